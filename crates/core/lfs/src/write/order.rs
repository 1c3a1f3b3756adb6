//! The log's ordering: an operation reaches the device as a whole, because no write-out is gathered
//! while an operation is under way.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use ordo_block::BlockError;
use ordo_cache::{Cache, WriteGate};
use ordo_ordering::{Begun, BlockFuture, OpKind, OrderingOp, OrderingPolicy};
use ordo_runtime::sync::Notify;
use ordo_runtime::{LocalFuture, MaybeFuture};

/// Finds space for operations before they begin.
pub trait SpaceProvider {
    /// Whether the log may lack space for an operation of this kind.
    fn is_short(&self, kind: OpKind) -> bool;

    /// Makes as much space as possible. The caller has no operation under way.
    fn provide(&self, kind: OpKind) -> LocalFuture<'_, Result<(), BlockError>>;

    /// Whether an operation of this kind must not begin, because it could use space that is kept
    /// for other purposes.
    fn refuses(&self, kind: OpKind) -> bool;

    /// Notes that an operation has ended.
    fn operation_ended(&self);
}

/// The operations under way, and whether more may begin.
struct OperationGate {
    /// The number of operations under way.
    under_way: Cell<u32>,
    /// Whether a write-out waits for the operations to end, or has no operation beside it.
    quiescing: Cell<bool>,
    changed: Notify,
    space_provider: RefCell<Option<Weak<dyn SpaceProvider>>>,
    blocks_max: u64,
    /// Whether an `fdatasync` keeps the size of a file that grew.
    keeps_synced_size: bool,
    /// A number that grows with each operation and with each block that is read.
    activity: Cell<u64>,
}

/// The ordering.
#[derive(Clone)]
pub struct LogOrder(Rc<OperationGate>);

impl LogOrder {
    /// An ordering whose operations allocate or free at most `blocks_max` blocks.
    /// `keeps_synced_size`: an `fdatasync` keeps the size of a file that grew, as it must.
    pub fn new(blocks_max: u64, keeps_synced_size: bool) -> LogOrder {
        let changed = Notify::new("operations on the log", 0);
        LogOrder(Rc::new(OperationGate {
            under_way: Cell::new(0),
            quiescing: Cell::new(false),
            changed,
            space_provider: RefCell::new(None),
            blocks_max,
            keeps_synced_size,
            activity: Cell::new(0),
        }))
    }

    /// Sets the object that finds space for operations.
    pub fn set_space_provider(&self, space_provider: Weak<dyn SpaceProvider>) {
        *self.0.space_provider.borrow_mut() = Some(space_provider);
    }

    /// The most blocks that one operation allocates.
    pub fn blocks_of_an_operation(&self) -> u64 {
        self.0.blocks_max
    }

    /// The number of operations under way.
    pub fn operations(&self) -> u64 {
        self.0.under_way.get().into()
    }

    /// A number that grows whenever the file system is used.
    pub fn activity(&self) -> u64 {
        self.0.activity.get()
    }

    /// Notes that the file system is used.
    pub fn note_activity(&self) {
        self.0.activity.set(self.0.activity.get().wrapping_add(1));
    }

    /// Whether no operation is under way, and nothing keeps operations from beginning.
    pub fn is_quiescent(&self) -> bool {
        self.0.under_way.get() == 0 && !self.0.quiescing.get()
    }

    /// Whether operations may begin.
    pub fn may_begin(&self) -> bool {
        !self.0.quiescing.get()
    }

    /// Lets no operation begin, and waits until none is under way. Operations may begin again when
    /// the returned guard is dropped.
    pub async fn quiesce(&self) -> Quiesced {
        while self.0.quiescing.get() {
            self.0.changed.notified().await;
        }
        self.0.quiescing.set(true);
        let quiesced = Quiesced(self.0.clone());
        while self.0.under_way.get() > 0 {
            self.0.changed.notified().await;
        }
        quiesced
    }

    /// Waits until an operation may begin.
    async fn wait_to_begin(&self, kind: OpKind) -> Result<(), BlockError> {
        self.note_activity();
        loop {
            let space_provider = self.space_provider();
            if let Some(space_provider) =
                space_provider.as_ref().filter(|space_provider| space_provider.is_short(kind))
            {
                space_provider.provide(kind).await?;
            }
            // Other operations may have begun while this one waited, so the conditions are checked
            // again.
            if !self.0.quiescing.get() {
                if space_provider.is_some_and(|space_provider| space_provider.refuses(kind)) {
                    return Err(super::writer::full());
                }
                return Ok(());
            }
            self.0.changed.notified().await;
        }
    }

    fn space_provider(&self) -> Option<Rc<dyn SpaceProvider>> {
        self.0.space_provider.borrow().as_ref().and_then(Weak::upgrade)
    }
}

/// A guard for the time in which no operation is under way, and none may begin. The time ends when
/// the guard is dropped.
pub struct Quiesced(Rc<OperationGate>);

impl Drop for Quiesced {
    fn drop(&mut self) {
        self.0.quiescing.set(false);
        self.0.changed.notify_all();
    }
}

/// An operation under way; it ends when this is dropped.
struct UnderWay(LogOrder);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.set(self.0.0.under_way.get() - 1);
        self.0.0.changed.notify_all();
    }
}

impl WriteGate for LogOrder {
    fn follows_writes(&self) -> bool {
        false
    }
}

impl OrderingPolicy for LogOrder {
    fn name(&self) -> &'static str {
        "log"
    }

    fn needs_check(&self) -> bool {
        false
    }

    fn whole_inodes(&self) -> bool {
        true
    }

    fn blocks_max(&self) -> u64 {
        self.0.blocks_max
    }

    fn keeps_synced_size(&self) -> bool {
        self.0.keeps_synced_size
    }

    fn begin<'a>(&'a self, _cache: &'a Cache, kind: OpKind) -> Begun<'a> {
        MaybeFuture::boxed(async move {
            self.wait_to_begin(kind).await?;
            self.0.under_way.set(self.0.under_way.get() + 1);
            Ok(Box::new(UnderWay(self.clone())) as Box<dyn OrderingOp>)
        })
    }
}

impl OrderingOp for UnderWay {
    fn end<'a>(self: Box<Self>, _cache: &'a Cache) -> BlockFuture<'a> {
        let order = self.0.clone();
        drop(self);
        order.note_activity();
        if let Some(space_provider) = order.space_provider() {
            space_provider.operation_ended();
        }
        MaybeFuture::ready(Ok(()))
    }
}

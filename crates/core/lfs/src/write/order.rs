//! The log's ordering: an operation reaches the device as a whole, because no write-out is gathered while an
//! operation is under way.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use ordo_block::BlockError;
use ordo_cache::{Cache, WriteGate};
use ordo_ordering::{Begun, Done, OpKind, OrderingOp, OrderingPolicy};
use ordo_runtime::sync::Notify;
use ordo_runtime::{LocalFuture, Outcome};

/// Finds space for operations before they begin.
pub trait SpaceProvider {
    /// Whether the log may lack space for an operation of this kind.
    fn is_short(&self, kind: OpKind) -> bool;

    /// Makes as much space as possible. The caller has no operation under way.
    fn provide(&self, kind: OpKind) -> LocalFuture<'_, Result<(), BlockError>>;

    /// Whether an operation of this kind must not begin, because it could use space that is kept for other
    /// purposes.
    fn refuses(&self, kind: OpKind) -> bool;

    /// Notes that an operation has ended.
    fn operation_ended(&self);
}

struct Turnstile {
    under_way: Cell<u32>,
    closed: Cell<bool>,
    changed: Notify,
    space_provider: RefCell<Option<Weak<dyn SpaceProvider>>>,
    blocks_max: u64,
    /// A number that grows with each operation and with each block that is read.
    activity: Cell<u64>,
}

/// The ordering.
#[derive(Clone)]
pub struct LogOrder(Rc<Turnstile>);

impl LogOrder {
    /// An ordering whose operations allocate or free at most `blocks_max` blocks.
    pub fn new(blocks_max: u64) -> LogOrder {
        let changed = Notify::new("operations on the log", 0);
        LogOrder(Rc::new(Turnstile {
            under_way: Cell::new(0),
            closed: Cell::new(false),
            changed,
            space_provider: RefCell::new(None),
            blocks_max,
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

    /// Whether no operation is under way, and none waits to begin.
    pub fn is_quiet(&self) -> bool {
        self.0.under_way.get() == 0 && !self.0.closed.get()
    }

    /// Whether operations may begin.
    pub fn is_open(&self) -> bool {
        !self.0.closed.get()
    }

    /// Waits until no operation is under way. No operation begins while the returned value lives.
    pub async fn close(&self) -> Closed {
        while self.0.closed.get() {
            self.0.changed.notified().await;
        }
        self.0.closed.set(true);
        let closed = Closed(self.0.clone());
        while self.0.under_way.get() > 0 {
            self.0.changed.notified().await;
        }
        closed
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
            // Other operations may have begun while this one waited, so the conditions are checked again.
            if !self.0.closed.get() {
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

/// A value that keeps operations from beginning while it lives; none is under way.
pub struct Closed(Rc<Turnstile>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.set(false);
        self.0.changed.notify_all();
    }
}

/// An operation under way; it ends when this is dropped.
struct UnderWay(Rc<Turnstile>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.changed.notify_all();
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

    fn begin<'a>(&'a self, _cache: &'a Cache, kind: OpKind) -> Begun<'a> {
        Outcome::later(async move {
            self.wait_to_begin(kind).await?;
            self.0.under_way.set(self.0.under_way.get() + 1);
            Ok(Box::new(UnderWay(self.0.clone())) as Box<dyn OrderingOp>)
        })
    }
}

impl OrderingOp for UnderWay {
    fn end<'a>(self: Box<Self>, _cache: &'a Cache) -> Done<'a> {
        let order = LogOrder(self.0.clone());
        drop(self);
        order.note_activity();
        if let Some(space_provider) = order.space_provider() {
            space_provider.operation_ended();
        }
        Outcome::now(Ok(()))
    }
}

//! The log's ordering: operations reach the device whole, because nothing is gathered while one is
//! under way.

use std::cell::Cell;
use std::rc::Rc;

use ordo_cache::{Cache, WriteGate};
use ordo_ordering::{Begun, OpKind, OrderingOp, OrderingPolicy};
use ordo_runtime::MaybeFuture;
use ordo_runtime::sync::Notify;

/// Operations under way, and whether new ones wait.
pub struct Quiet {
    under_way: Cell<u32>,
    closed: Cell<bool>,
    changed: Notify,
}

/// The ordering.
#[derive(Clone)]
pub struct LogOrder(Rc<Quiet>);

impl LogOrder {
    pub fn new() -> LogOrder {
        let changed = Notify::new("operations on the toy log", 0);
        LogOrder(Rc::new(Quiet { under_way: Cell::new(0), closed: Cell::new(false), changed }))
    }

    /// Whether no operation is under way, and none waits to begin.
    pub fn is_quiescent(&self) -> bool {
        self.0.under_way.get() == 0 && !self.0.closed.get()
    }

    /// Waits until no operation is under way. None begins while the returned value lives.
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
}

/// A guard: no operation is under way while it lives.
pub struct Closed(Rc<Quiet>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.set(false);
        self.0.changed.notify_all();
    }
}

/// An operation, until it is dropped.
pub struct UnderWay(Rc<Quiet>);

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
        "toy-log"
    }

    fn needs_check(&self) -> bool {
        false
    }

    fn whole_inodes(&self) -> bool {
        true
    }

    fn begin<'a>(&'a self, _cache: &'a Cache, _kind: OpKind) -> Begun<'a> {
        let quiet = &self.0;
        MaybeFuture::boxed(async move {
            while quiet.closed.get() {
                quiet.changed.notified().await;
            }
            quiet.under_way.set(quiet.under_way.get() + 1);
            Ok(Box::new(UnderWay(quiet.clone())) as Box<dyn OrderingOp>)
        })
    }
}

impl OrderingOp for UnderWay {}

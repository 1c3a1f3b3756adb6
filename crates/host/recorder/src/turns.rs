//! Moments between requests, at which an observer may end a part of its recording: the way of each
//! request to the device.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_runtime::Runtime;
use ordo_runtime::sync::Notify;

use crate::device::Core;

/// How often an idle device is asked whether its observer wants a turn.
const IDLE: Duration = Duration::from_millis(500);

/// The number of requests under way.
pub(crate) struct Turns {
    under_way: Cell<usize>,
    quiet: Notify,
}

impl Default for Turns {
    fn default() -> Turns {
        let quiet = Notify::new("the requests under way before a part ends", 0);
        Turns { under_way: Cell::new(0), quiet }
    }
}

/// A request under way.
struct UnderWay<'a>(&'a Turns);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let left = self.0.under_way.get() - 1;
        self.0.under_way.set(left);
        if left == 0 {
            self.0.quiet.notify_all();
        }
    }
}

impl Core {
    /// Lets a request begin: not while the observer waits for its turn.
    async fn enter(&self) -> UnderWay<'_> {
        while self.is_due() {
            if self.turns.under_way.get() == 0 {
                self.turn();
                break;
            }
            self.turns.quiet.notified().await;
        }
        self.turns.under_way.set(self.turns.under_way.get() + 1);
        UnderWay(&self.turns)
    }
}

/// Tells the observer of time, and gives it its turn while the device is idle, too.
pub(crate) async fn while_idle(runtime: Runtime, core: Rc<Core>) {
    loop {
        runtime.sleep(IDLE).await;
        core.tick();
        if core.turns.under_way.get() == 0 && core.is_due() {
            core.turn();
        }
    }
}

impl BlockDevice for Core {
    fn geometry(&self) -> Geometry {
        self.tap().geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let _under_way = self.enter().await;
        self.tap().read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let _under_way = self.enter().await;
        self.tap().write(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        let _under_way = self.enter().await;
        self.tap().flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let _under_way = self.enter().await;
        self.tap().discard(offset, len).await
    }
}

//! Reads that leave others their share of the disk.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ordo_block::{BlockDevice, BlockError, Device, Fault, Geometry, IoBuf, Operation, WriteFlags};
use ordo_runtime::{Runtime, Time};

use crate::Pace;

/// The longest rest after one piece of work.
const REST_MAX: Duration = Duration::from_secs(1);

/// A device that rests after each read, and fails after it was stopped.
pub(crate) struct Paced {
    runtime: Runtime,
    inner: Device,
    pace: Pace,
    stop: Rc<Cell<bool>>,
}

impl Paced {
    pub fn new(
        runtime: &Runtime,
        inner: impl BlockDevice,
        pace: Pace,
        stop: Rc<Cell<bool>>,
    ) -> Paced {
        Paced { runtime: runtime.clone(), inner: inner.erase(), pace, stop }
    }
}

/// Rests in proportion to the time of the work since `start`.
pub(crate) async fn rest(runtime: &Runtime, pace: Pace, start: Time) {
    let worked = (runtime.now() - start).as_secs_f64();
    let share = pace.share.clamp(0.001, 1.0);
    let rest = Duration::from_secs_f64(worked * (1.0 - share) / share).min(REST_MAX);
    if rest.is_zero() {
        runtime.yield_now().await;
    } else {
        runtime.sleep(rest).await;
    }
}

impl BlockDevice for Paced {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        if self.stop.get() {
            return Err(BlockError { op: Operation::Read, offset, len, fault: Fault::Gone });
        }
        let start = self.runtime.now();
        let bytes = self.inner.read(offset, len).await;
        rest(&self.runtime, self.pace, start).await;
        bytes
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.inner.write(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.inner.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.inner.discard(offset, len).await
    }
}

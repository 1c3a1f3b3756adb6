//! Marks of a program that come through a pipe.
//!
//! The pipe is read whenever it has lines, and before every request to a device. So a line that was
//! written before a request was sent stands before that request in the recording, however busy the
//! thread is. A line is never taken for older than it is.

use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_pseudo::{LinePipe, RecordedDisk};
use ordo_runtime::Runtime;

/// The pipe, and the recording into which its lines go.
pub(crate) struct MarkPipe {
    pub pipe: LinePipe,
    pub into: RecordedDisk,
}

impl MarkPipe {
    /// Takes all lines that are there.
    fn take(&self) {
        self.pipe.take(|line| self.into.mark(line.trim_end()));
    }

    /// Takes the last lines. Returns the number of those whose newline never came.
    pub(crate) fn finish(&self) -> usize {
        self.take();
        self.pipe.unfinished()
    }

    /// Takes lines as they come.
    pub(crate) async fn follow(self: Rc<MarkPipe>, rt: Runtime) {
        self.pipe.follow(&rt, |line| self.into.mark(line.trim_end())).await;
    }
}

/// A device whose requests wait until all earlier lines of the pipe are in the recording.
pub(crate) struct MarkedDisk {
    pub disk: RecordedDisk,
    pub marks: Rc<MarkPipe>,
}

impl BlockDevice for MarkedDisk {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.disk.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.marks.take();
        self.disk.write(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.marks.take();
        self.disk.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

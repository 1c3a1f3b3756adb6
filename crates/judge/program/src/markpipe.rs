//! Marks of a program that come through a pipe.
//!
//! The pipe is read whenever it has lines, and before every request to a device. So a line that was written before a
//! request was sent stands before that request in the recording, however busy the thread is. A line is never taken for
//! older than it is.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_pseudo::RecordedDisk;
use ordo_runtime::Runtime;

/// The longest line, in bytes. What is longer is cut off.
const LINE_MAX: usize = 64 << 10;

/// The pipe, and the recording into which its lines go.
pub(crate) struct MarkPipe {
    pipe: Arc<File>,
    line: RefCell<Vec<u8>>,
    into: RecordedDisk,
}

impl MarkPipe {
    /// Reads a pipe that is open without blocking.
    pub(crate) fn new(pipe: File, into: RecordedDisk) -> MarkPipe {
        MarkPipe { pipe: Arc::new(pipe), line: RefCell::default(), into }
    }

    /// Takes all lines that are there.
    fn take(&self) {
        let (mut buf, mut line) = ([0; 4096], self.line.borrow_mut());
        while let Ok(len @ 1..) = (&*self.pipe).read(&mut buf) {
            for byte in &buf[..len] {
                match byte {
                    b'\n' => {
                        let text = std::mem::take(&mut *line);
                        self.into.mark(String::from_utf8_lossy(&text).trim_end());
                    }
                    byte if line.len() < LINE_MAX => line.push(*byte),
                    _ => {}
                }
            }
        }
    }

    /// Takes lines as they come.
    pub(crate) async fn follow(self: Rc<MarkPipe>, rt: Runtime) {
        while rt.readable(&self.pipe).await.is_ok() {
            self.take();
        }
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

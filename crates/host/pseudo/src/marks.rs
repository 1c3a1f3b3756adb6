//! Marks for a device that has no files of its own: a named pipe that takes the commands of the control file.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_runtime::Runtime;
use rustix::fs::{Mode, OFlags};

use crate::device::Core;
use crate::session::{PseudoError, failed};

/// The longest line, in bytes; of a longer one nothing is taken.
const LINE_MAX: usize = 4096;

/// A named pipe in a folder of its own, which goes away with it.
#[derive(Debug)]
pub(crate) struct MarkPipe {
    folder: tempfile::TempDir,
}

impl MarkPipe {
    /// Makes the pipe. Only this user may write to it.
    ///
    /// # Errors
    /// The folder or the pipe cannot be made.
    pub(crate) fn new() -> Result<MarkPipe, PseudoError> {
        let folder = tempfile::Builder::new().prefix("ordo-marks-").tempdir();
        let pipe = MarkPipe { folder: folder.map_err(failed("making a directory for marks"))? };
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, pipe.path(), kind, mode, 0)
            .map_err(|error| failed("making a pipe for marks")(error.into()))?;
        Ok(pipe)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("control")
    }
}

/// The reading end, which puts each line `mark TEXT` into the trace.
pub(crate) struct MarkReader {
    file: Arc<File>,
    /// The line that has begun.
    line: RefCell<Vec<u8>>,
}

impl MarkReader {
    /// Opens the pipe. It is open for writing too, so that it does not end with a writer.
    pub(crate) fn open(path: &Path) -> io::Result<MarkReader> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(MarkReader { file: Arc::new(file), line: RefCell::default() })
    }

    /// Takes lines for ever.
    pub(crate) async fn serve(&self, runtime: &Runtime, core: &Core) {
        while runtime.readable(&self.file).await.is_ok() {
            self.drain(core);
        }
    }

    /// Takes everything that was written so far.
    pub(crate) fn drain(&self, core: &Core) {
        let mut some = [0; LINE_MAX];
        while let Ok(read @ 1..) = (&*self.file).read(&mut some) {
            self.take(&some[..read], |text| core.mark(text));
        }
    }

    /// Adds bytes to the line, and gives the mark of each whole line to `mark`.
    fn take(&self, bytes: &[u8], mut mark: impl FnMut(&str)) {
        let mut line = self.line.borrow_mut();
        for byte in bytes {
            match byte {
                b'\n' => {
                    let text = (line.len() < LINE_MAX).then(|| String::from_utf8_lossy(&line));
                    if let Some(text) = text.as_deref().and_then(|t| t.strip_prefix("mark ")) {
                        mark(text.trim_end());
                    }
                    line.clear();
                }
                _ if line.len() < LINE_MAX => line.push(*byte),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines come in pieces, with the ends that a terminal makes, and among lines that are no marks or too long.
    /// Would catch a mark that is cut where a read ended, and memory that grows with a line without end.
    #[test]
    fn lines_are_put_together() {
        let pipe = MarkPipe::new().unwrap();
        let reader = MarkReader::open(&pipe.path()).unwrap();
        let mut marks = Vec::new();
        let long = format!("mark {}\n", "x".repeat(2 * LINE_MAX));
        for piece in ["ma", "rk one\r\nsta", "rt\nmark two\n", &long, "\nmark three\nmark fo"] {
            reader.take(piece.as_bytes(), |text| marks.push(text.to_owned()));
        }
        assert_eq!(marks, ["one", "two", "three"]);
        assert_eq!(reader.line.borrow().as_slice(), b"mark fo");
    }
}

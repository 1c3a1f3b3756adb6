//! Lines from a named pipe, for devices that have no file of their own for marks.

use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use ordo_runtime::Runtime;
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The longest line, in bytes; the rest of a longer one is left out.
const LINE_MAX: usize = 64 << 10;

/// The reading end of a named pipe to which programs write lines.
#[derive(Debug)]
pub struct LinePipe {
    file: Arc<File>,
    /// The line that has begun.
    line: RefCell<Vec<u8>>,
}

impl LinePipe {
    /// Makes a pipe with these permissions, and opens it. It is open for writing too, so that it does not end with a writer.
    ///
    /// # Errors
    /// The pipe exists, or cannot be made or opened.
    pub fn make(path: &Path, permissions: u32) -> io::Result<LinePipe> {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(permissions), 0)?;
        // The process's mask may have taken some of them.
        std::fs::set_permissions(path, Permissions::from_mode(permissions))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = Arc::new(File::from(rustix::fs::open(path, flags, Mode::empty())?));
        Ok(LinePipe { file, line: RefCell::default() })
    }

    /// Calls `each` with every whole line, without its end, that was written so far.
    pub fn take(&self, mut each: impl FnMut(&str)) {
        let mut some = [0; 4096];
        while let Ok(read @ 1..) = (&*self.file).read(&mut some) {
            self.put_together(&some[..read], &mut each);
        }
    }

    /// Calls `each` with lines as they come.
    pub async fn follow(&self, runtime: &Runtime, mut each: impl FnMut(&str)) {
        while runtime.readable(&self.file).await.is_ok() {
            self.take(&mut each);
        }
    }

    /// Adds bytes to the line that has begun, and calls `each` with the lines that end in them.
    fn put_together(&self, bytes: &[u8], each: &mut impl FnMut(&str)) {
        let mut line = self.line.borrow_mut();
        for byte in bytes {
            match byte {
                b'\n' => {
                    each(&String::from_utf8_lossy(&line));
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
    use crate::nbd::mark_of;

    /// Lines come in pieces, with the ends that a terminal makes, and among lines that are no marks or too long.
    /// Would catch a mark that is cut where a read ended, and memory that grows with a line without end.
    #[test]
    fn lines_are_put_together() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = LinePipe::make(&dir.path().join("pipe"), 0o600).unwrap();
        let mut marks = Vec::new();
        let long = format!("mark {}\n", "x".repeat(2 * LINE_MAX));
        for piece in ["ma", "rk one\r\nsta", "rt\nmark two\n", &long, "\nmark three\nmark fo"] {
            pipe.put_together(piece.as_bytes(), &mut |line: &str| {
                marks.extend(mark_of(line).map(str::to_owned));
            });
        }
        assert_eq!(marks, ["one", "two", "three"]);
        assert_eq!(pipe.line.borrow().as_slice(), b"mark fo");
    }
}

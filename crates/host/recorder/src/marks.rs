//! Lines that programs write, put together from pieces: for the file of marks, and for a named pipe
//! where there is no such file.
//!
//! A line is one when its newline has come. The kernel hands a write over in pieces that end where
//! a page ends, and a program may write a line in several parts while others write theirs. So the
//! parts of each writer are put together apart. A line without a newline is none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use ordo_fuse::handler::FileWriter;
use ordo_runtime::Runtime;
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The longest line, in bytes; a longer one is left out.
const LINE_MAX: usize = 16 << 20;
/// The most memory for lines that have begun, in bytes; beyond it the longest is left out.
const BEGUN_MAX: usize = 64 << 20;
/// The memory of a line that has begun besides its bytes, at most.
const EACH: usize = 128;

/// Lines that have begun, by their writer.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    begun: BTreeMap<FileWriter, Begun>,
    /// The bytes of all of them.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Begun {
    bytes: Vec<u8>,
    /// Whether the line is too long, so that its bytes are not kept.
    is_too_long: bool,
}

impl Lines {
    /// Adds bytes to a writer's line, and calls `each` with the lines that end in them, without
    /// their ends.
    pub(crate) fn put(&mut self, writer: FileWriter, bytes: &[u8], each: &mut impl FnMut(&str)) {
        self.put_of(writer, bytes, &is_alive, each);
    }

    fn put_of(
        &mut self,
        writer: FileWriter,
        bytes: &[u8],
        is_alive: &dyn Fn(u32) -> bool,
        each: &mut impl FnMut(&str),
    ) {
        let mut line = self.take(writer, is_alive);
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            line.add(piece);
            if pieces.peek().is_none() {
                break;
            }
            if !line.is_too_long {
                each(&String::from_utf8_lossy(&line.bytes));
            }
            line = Begun::default();
        }
        if line.is_too_long || !line.bytes.is_empty() {
            self.keep(writer, line);
        }
    }

    /// The line that a writer has begun. A line that a thread left unfinished when it ended goes on
    /// through the same opening, as the output of several commands of a shell does.
    fn take(&mut self, writer: FileWriter, is_alive: &dyn Fn(u32) -> bool) -> Begun {
        let of_opening =
            FileWriter { thread: 0, ..writer }..=FileWriter { thread: u32::MAX, ..writer };
        let left = |w: &FileWriter| *w == writer || !is_alive(w.thread);
        let found = match self.begun.contains_key(&writer) {
            true => Some(writer),
            false => self.begun.range(of_opening).map(|(w, _)| *w).find(left),
        };
        let Some(line) = found.and_then(|found| self.begun.remove(&found)) else {
            return Begun::default();
        };
        self.bytes -= line.bytes.len() + EACH;
        line
    }

    fn keep(&mut self, writer: FileWriter, line: Begun) {
        self.bytes += line.bytes.len() + EACH;
        self.begun.insert(writer, line);
        while self.bytes > BEGUN_MAX {
            let longest = self.begun.iter().max_by_key(|(_, line)| line.bytes.len());
            let Some(writer) = longest.map(|(writer, _)| *writer) else { return };
            let line = self.begun.remove(&writer).unwrap_or_default();
            self.bytes -= line.bytes.len() + EACH;
            if line.bytes.is_empty() {
                continue;
            }
            // The rest of the line must not become a line of its own.
            self.bytes += EACH;
            self.begun.insert(writer, Begun { bytes: Vec::new(), is_too_long: true });
        }
    }

    /// The number of lines whose newline has not come.
    pub(crate) fn unfinished(&self) -> usize {
        self.begun.len()
    }
}

impl Begun {
    fn add(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.bytes.len() + bytes.len() > LINE_MAX;
        match self.is_too_long {
            true => self.bytes = Vec::new(),
            false => self.bytes.extend_from_slice(bytes),
        }
    }
}

fn is_alive(thread: u32) -> bool {
    // A thread of another namespace has no number here.
    thread == 0 || Path::new("/proc").join(thread.to_string()).exists()
}

/// The reading end of a named pipe to which programs write lines. Writers of a pipe cannot be told
/// apart, so only a line that is written at once, and is no longer than 4,096 bytes, is safe from
/// those of other writers.
#[derive(Debug)]
pub(crate) struct LinePipe {
    file: Arc<File>,
    lines: RefCell<Lines>,
}

impl LinePipe {
    /// Makes a pipe with these permissions, and opens it. It is open for writing too, so that it
    /// does not end with a writer.
    ///
    /// # Errors
    /// The pipe exists, or cannot be made or opened.
    pub(crate) fn make(path: &Path, permissions: u32) -> io::Result<LinePipe> {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(permissions), 0)?;
        // The process's mask may have taken some of them.
        std::fs::set_permissions(path, Permissions::from_mode(permissions))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = Arc::new(File::from(rustix::fs::open(path, flags, Mode::empty())?));
        Ok(LinePipe { file, lines: RefCell::default() })
    }

    /// Calls `each` with every whole line, without its end, that was written so far.
    pub(crate) fn take(&self, mut each: impl FnMut(&str)) {
        let mut some = [0; 64 << 10];
        while let Ok(read @ 1..) = (&*self.file).read(&mut some) {
            self.put_together(&some[..read], &mut each);
        }
    }

    /// Calls `each` with lines as they come.
    pub(crate) async fn follow(&self, runtime: &Runtime, mut each: impl FnMut(&str)) {
        while runtime.readable(&self.file).await.is_ok() {
            self.take(&mut each);
        }
    }

    fn put_together(&self, bytes: &[u8], each: &mut impl FnMut(&str)) {
        self.lines.borrow_mut().put(FileWriter::default(), bytes, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::mark_of;

    /// Lines come in pieces, with the ends that a terminal makes, and among lines that are no marks
    /// or too long. Would catch a mark that is cut where a read ended, and memory that grows with a
    /// line without end.
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
        assert_eq!(pipe.lines.borrow().unfinished(), 1);
    }

    /// The parts of lines come as the kernel and several writers hand them over: a line of 1 MB in
    /// pieces of a page, halves of two processes through their own openings, halves of two threads
    /// through one, and two commands of a shell that end one after the other.
    ///
    /// Would catch promises that nobody made: halves of lines, and lines of two writers in one.
    #[test]
    fn writers_are_told_apart() {
        let of = |opening, thread| FileWriter { opening, thread };
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let alive = |thread: u32| thread != 9;
        let mut put = |writer, bytes: &[u8]| {
            lines.put_of(writer, bytes, &alive, &mut |line: &str| out.push(line.to_owned()));
        };
        let long = vec![b'x'; 1 << 20];
        long.chunks(4096).for_each(|piece| put(of(1, 1), piece));
        put(of(2, 2), b"promise-2-");
        put(of(3, 3), b"promise-3-");
        put(of(3, 4), b"promise-4-");
        put(of(2, 2), b"1\npromise");
        put(of(3, 3), b"1\n");
        put(of(3, 4), b"1\n");
        put(of(4, 9), b"printf's ");
        put(of(4, 10), b"and echo's\n");
        put(of(1, 1), b"\n");
        let whole = ["promise-2-1", "promise-3-1", "promise-4-1", "printf's and echo's"];
        assert_eq!(out[..4], whole);
        assert!(out[4].len() == 1 << 20 && out.len() == 5);
        assert_eq!(lines.unfinished(), 1, "a beginning without a newline is no line");
    }

    /// A line without end, and very many lines that never end, take no more memory than the bounds.
    #[test]
    fn lines_without_end_take_bounded_memory() {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let mut put = |opening, bytes: &[u8]| {
            let writer = FileWriter { opening, thread: 1 };
            lines.put_of(writer, bytes, &|_| true, &mut |line: &str| out.push(line.to_owned()));
            assert!(lines.bytes <= BEGUN_MAX, "{}", lines.bytes);
        };
        let piece = vec![b'x'; 1 << 20];
        (0..20).for_each(|_| put(1, &piece));
        put(1, b"rest\nnext\n");
        (0..100).for_each(|opening| put(opening, &piece));
        put(2, b"\n");
        assert!(out[0] == "next" && out.len() == 2 && out[1].len() == 1 << 20, "{}", out.len());
    }
}

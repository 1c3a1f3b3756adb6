//! Contents that are kept: in memory up to a bound, and in a file beyond it.
//!
//! The file is in the folder for temporary files (`$TMPDIR`, or `/tmp`) and has no name, so it goes
//! away with the process. It is only ever appended to. What is in it is mapped, so it is read like
//! memory, and the machine may take its pages at any time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::IoBuf;
use crate::tap::KeptData;

/// The least part of the file that is mapped at once, in bytes.
const SEGMENT: usize = 64 << 20;

/// A part of the file, mapped for reading.
struct Segment {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only read, and belongs to this value alone.
#[allow(unsafe_code)]
unsafe impl Send for Segment {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Segment {}

impl Segment {
    fn new(file: &File, offset: u64, len: usize) -> io::Result<Segment> {
        let at = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping touches no other memory.
        #[allow(unsafe_code)]
        let start = unsafe { libc::mmap(null, len, libc::PROT_READ, libc::MAP_SHARED, fd, at) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Segment { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and nobody refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len);
        }
    }
}

/// Bytes of a segment that have been written.
struct Written {
    segment: Arc<Segment>,
    from: usize,
    len: usize,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `Spill::put` has written these bytes of the file, which has no name, and writes
        // them no more; the range is inside of the segment.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.segment.start.as_ptr().add(self.from), self.len)
        }
    }
}

#[derive(Default)]
struct State {
    in_memory: u64,
    file: Option<File>,
    /// The last segment, its first byte in the file, and the number of its bytes that are used.
    last: Option<(Arc<Segment>, u64, usize)>,
    in_file: u64,
    error: Option<io::Error>,
}

/// A store of contents with a bound on its memory.
pub struct Spill {
    most: u64,
    state: Mutex<State>,
}

impl Spill {
    /// A store that holds up to `most` bytes in memory.
    pub fn new(most: u64) -> Arc<Spill> {
        Arc::new(Spill { most, state: Mutex::default() })
    }

    /// Keeps contents. Those in memory are the request's own buffer where that is given. Contents
    /// that cannot be kept are empty, and [`error`](Self::error) has the reason.
    pub fn keep(&self, data: &[u8], shared: Option<&Arc<IoBuf>>) -> KeptData {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let len = data.len() as u64;
        if state.in_memory + len <= self.most || data.is_empty() {
            state.in_memory += len;
            return KeptData::of(data, shared);
        }
        let kept = state.put(data);
        KeptData::Filed(kept.unwrap_or_else(|error| {
            state.error.get_or_insert(error);
            Bytes::new()
        }))
    }

    /// The error after which contents were not kept; it is returned once.
    pub fn error(&self) -> Option<io::Error> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).error.take()
    }

    /// The number of bytes in memory, and in the file.
    pub fn kept(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.in_memory, state.in_file)
    }
}

impl State {
    /// Appends contents to the file.
    fn put(&mut self, data: &[u8]) -> io::Result<Bytes> {
        let has_space =
            |(segment, _, used): &(Arc<Segment>, u64, usize)| segment.len - used >= data.len();
        if !self.last.as_ref().is_some_and(has_space) {
            let file = match self.file.take() {
                Some(file) => file,
                None => tempfile::tempfile()?,
            };
            let file = self.file.insert(file);
            let offset = self.last.as_ref().map_or(0, |(last, from, _)| from + last.len as u64);
            let len = data.len().next_multiple_of(SEGMENT);
            file.set_len(offset + len as u64)?;
            self.last = Some((Arc::new(Segment::new(file, offset, len)?), offset, 0));
        }
        let (Some(file), Some((segment, offset, used))) = (&self.file, &mut self.last) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        file.write_all_at(data, *offset + *used as u64)?;
        let written = Written { segment: segment.clone(), from: *used, len: data.len() };
        *used += data.len();
        self.in_file += data.len() as u64;
        Ok(Bytes::from_owner(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents of many sizes, the first in memory and the rest in the file, over several segments.
    /// Each must be as it was when all are kept, also after the store itself is dropped. Would
    /// catch bytes of a neighbour, and a segment that is unmapped too early.
    #[test]
    fn contents_beyond_the_bound_are_in_a_file() {
        let spill = Spill::new(1 << 20);
        let sizes = [300, 1 << 20, 5, SEGMENT - 7, 1 << 20, 3 << 20, SEGMENT + 1, 2 << 20];
        let data = |n: usize, len: usize| -> Vec<u8> {
            (0..len).map(|at| (at * 7 + at / 4096 + n) as u8).collect()
        };
        let kept: Vec<_> =
            sizes.iter().enumerate().map(|(n, len)| spill.keep(&data(n, *len), None)).collect();
        assert!(spill.error().is_none());
        let all: usize = sizes.iter().sum();
        assert_eq!(spill.kept(), (305, all as u64 - 305));
        drop(spill);
        for (n, (kept, len)) in kept.iter().zip(sizes).enumerate() {
            assert!(kept[..] == data(n, len), "number {n}");
            assert!(kept.bytes() == data(n, len), "number {n}, shared");
        }
    }
}

//! Buffers that a device may read into or write from directly.
//!
//! Freed buffers go to a free list of their thread, so that large ones are not faulted in and zeroed again for each
//! request.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The alignment of every buffer, in bytes: enough for O_DIRECT on any common device.
const ALIGN: usize = 4096;

/// The number of size classes. A class holds buffers of `1 << class` pages, up to 1 MiB.
const CLASSES: usize = 9;

/// The most memory that one thread keeps on its free list, in bytes.
const KEEP_BYTES: usize = 32 << 20;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN]);

#[derive(Default)]
struct FreeList {
    classes: [Vec<Vec<Page>>; CLASSES],
    bytes: usize,
}

thread_local! {
    static FREE: RefCell<FreeList> = RefCell::default();
}

/// Owned bytes of any length, aligned to 4,096 bytes.
pub struct IoBuf {
    /// Whole pages, all of them initialised; at least `len` bytes.
    pages: Vec<Page>,
    len: usize,
}

impl IoBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> IoBuf {
        match take_free(len) {
            Some(pages) => {
                let mut buf = IoBuf { pages, len };
                buf.fill(0);
                buf
            }
            None => IoBuf { pages: fresh(len), len },
        }
    }

    /// A buffer of `len` bytes with the contents of an earlier buffer of this thread, for a caller that overwrites
    /// them all.
    pub fn scratch(len: usize) -> IoBuf {
        IoBuf { pages: take_free(len).unwrap_or_else(|| fresh(len)), len }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::scratch(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Gives it `len` bytes; new ones are zero.
    pub fn resize(&mut self, len: usize) {
        let keep = self.len.min(len);
        if class_of(len).is_some() && class_of(len) == class_of(self.len) {
            self.len = len;
            self[keep..].fill(0);
            return;
        }
        let mut other = IoBuf::zeroed(len);
        other[..keep].copy_from_slice(&self[..keep]);
        *self = other;
    }
}

/// The bytes of one request, in pieces that follow one another. Pieces may be shared with other holders, and none of
/// them can change a shared piece ([`Arc::make_mut`] copies it).
#[derive(Clone, Debug, Default)]
pub struct IoList {
    pieces: Vec<Arc<IoBuf>>,
    len: usize,
}

impl IoList {
    /// A list without bytes, with space for `pieces` pieces.
    pub fn with_capacity(pieces: usize) -> IoList {
        IoList { pieces: Vec::with_capacity(pieces), len: 0 }
    }

    /// Adds a piece behind the others.
    pub fn push(&mut self, piece: Arc<IoBuf>) {
        self.len += piece.len();
        self.pieces.push(piece);
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Arc<IoBuf>] {
        &self.pieces
    }

    /// The bytes of all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Joins all bytes in one buffer. They are copied, unless there is one piece only and it is not shared.
    pub fn join(mut self) -> IoBuf {
        if self.pieces.len() == 1 {
            let only = self.pieces.pop().expect("it has one");
            return Arc::try_unwrap(only).unwrap_or_else(|shared| (*shared).clone());
        }
        let mut all = IoBuf::scratch(self.len);
        let mut at = 0;
        for piece in &self.pieces {
            all[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        all
    }
}

fn class_of(len: usize) -> Option<usize> {
    let class = len.div_ceil(ALIGN).next_power_of_two().trailing_zeros() as usize;
    (len > 0 && class < CLASSES).then_some(class)
}

fn fresh(len: usize) -> Vec<Page> {
    let pages = class_of(len).map_or(len.div_ceil(ALIGN), |class| 1 << class);
    vec![Page([0; ALIGN]); pages]
}

fn take_free(len: usize) -> Option<Vec<Page>> {
    let class = class_of(len)?;
    FREE.with_borrow_mut(|free| {
        let pages = free.classes[class].pop()?;
        free.bytes -= pages.len() * ALIGN;
        Some(pages)
    })
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        let Some(class) = class_of(self.len) else { return };
        let pages = std::mem::take(&mut self.pages);
        debug_assert_eq!(pages.len(), 1 << class);
        // A thread that is ending has no free list any more, so the memory is freed.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.bytes + pages.len() * ALIGN <= KEEP_BYTES {
                free.bytes += pages.len() * ALIGN;
                free.classes[class].push(pages);
            }
        });
    }
}

impl Clone for IoBuf {
    fn clone(&self) -> IoBuf {
        IoBuf::from_slice(self)
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `Page` is `repr(C)` of plain bytes without padding, so the vector's elements are `pages.len() *
        // ALIGN` consecutive initialised bytes, and `len` is at most that.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len)
        }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the vector is borrowed mutably.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len)
        }
    }
}

impl std::fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recycled buffer must be zeroed if zeros are asked for, and must have the right length.
    #[test]
    fn recycled_buffers_are_clean_where_asked() {
        for len in [1, 512, 4096, 4097, 12_288, 1 << 20, (1 << 20) + 1] {
            let mut dirty = IoBuf::zeroed(len);
            dirty.fill(0xaa);
            drop(dirty);
            assert_eq!(IoBuf::scratch(len).len(), len);
            let clean = IoBuf::zeroed(len);
            assert_eq!(clean.len(), len);
            assert!(clean.iter().all(|b| *b == 0), "{len} bytes were not zeroed");
            assert_eq!(clean.as_ptr() as usize % ALIGN, 0);
        }
        assert!(IoBuf::zeroed(0).is_empty());
    }

    /// A longer buffer keeps its bytes and shows no older ones behind them, a shorter one keeps its beginning, in the
    /// memory that it has or in other.
    #[test]
    fn a_resized_buffer_keeps_its_beginning() {
        for (from, to) in [(512, 1024), (1024, 512), (4096, 12_288), (12_288, 4096), (100, 0)] {
            drop(IoBuf::from_slice(&vec![0xaa; to]));
            let mut buf = IoBuf::from_slice(&vec![7; from]);
            buf.resize(to);
            let kept = from.min(to);
            assert_eq!(buf.len(), to);
            assert!(buf[..kept].iter().all(|b| *b == 7) && buf[kept..].iter().all(|b| *b == 0));
        }
    }

    /// The free list must not grow without bound.
    #[test]
    fn the_free_list_is_bounded() {
        let held: Vec<IoBuf> = (0..100).map(|_| IoBuf::scratch(1 << 20)).collect();
        drop(held);
        FREE.with_borrow(|free| assert!(free.bytes <= KEEP_BYTES, "{} kept", free.bytes));
    }
}

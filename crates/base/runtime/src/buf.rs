//! Buffers that a device may read into or write from directly.
//!
//! Freed buffers go to a free list of their thread, so that large ones are not faulted in and
//! zeroed again for each request. [`IoBuf::keep_unused`] ends that where memory is short.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// The largest alignment, in bytes: enough for O_DIRECT on any common device.
const ALIGN_MAX: usize = 4096;

/// The least memory of a buffer, in bytes: a line of the processor's cache.
const SIZE_MIN: usize = 64;

/// The number of size classes. A class holds buffers of `SIZE_MIN << class` bytes, up to 1 MiB.
const CLASSES: usize = 15;

/// The most memory that one thread keeps on its free list, in bytes: as much as the longest
/// requests take that the kernel has under way at a FUSE server, so that none of them faults in new
/// memory.
const KEEP_BYTES: usize = 64 << 20;

/// The bytes of a buffer that is worth such memory, and the most bytes that are kept of each class
/// of shorter ones: the allocator has memory for those as quickly, and a cache frees many.
const LONG: usize = 8192;
const KEEP_SHORT_BYTES: usize = 1 << 20;

/// Initialised memory. It is aligned to its size, if that is a power of two, and to [`ALIGN_MAX`]
/// at most.
struct Memory {
    start: NonNull<u8>,
    /// Its size. A memory of 0 bytes is not allocated, or belongs to somebody else.
    bytes: usize,
}

// SAFETY: the memory has one owner, and its bytes are plain ones.
#[allow(unsafe_code)]
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference only reads.
#[allow(unsafe_code)]
unsafe impl Sync for Memory {}

impl Memory {
    const EMPTY: Memory = Memory { start: NonNull::dangling(), bytes: 0 };

    /// Zeros of the size class of `len`, or of whole pages for the longest buffers.
    fn zeroed(len: usize) -> Memory {
        let bytes = match class_of(len) {
            Some(class) => SIZE_MIN << class,
            None => len.next_multiple_of(ALIGN_MAX),
        };
        let layout = layout_of(bytes);
        // SAFETY: the layout has at least SIZE_MIN bytes.
        #[allow(unsafe_code)]
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, bytes }
    }

    /// Gives its pages to the machine, which has new ones for it when it is used again. Returns
    /// whether there are any: the machine's pages can be larger than this memory.
    fn return_pages(&self) -> bool {
        // SAFETY: the call has no conditions.
        #[allow(unsafe_code)]
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Some(page) = usize::try_from(page).ok().filter(|page| page.is_power_of_two()) else {
            return false;
        };
        let start = self.start.as_ptr() as usize;
        let (from, to) = (start.next_multiple_of(page), (start + self.bytes) & !(page - 1));
        if from >= to {
            return false;
        }
        let first = self.start.as_ptr().wrapping_add(from - start);
        // SAFETY: the pages are inside of memory that has no other owner; they become zeros, which
        // are bytes too. An error changes nothing.
        #[allow(unsafe_code)]
        let done = unsafe { libc::madvise(first.cast(), to - from, libc::MADV_DONTNEED) };
        done == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated with the layout of these bytes, and this is its only owner.
            #[allow(unsafe_code)]
            unsafe {
                dealloc(self.start.as_ptr(), layout_of(self.bytes));
            }
        }
    }
}

fn layout_of(bytes: usize) -> Layout {
    let align = bytes.next_power_of_two().min(ALIGN_MAX);
    Layout::from_size_align(bytes, align).expect("less than half of the address space")
}

#[derive(Default)]
struct FreeList {
    classes: [Vec<Memory>; CLASSES],
    /// The bytes of these.
    bytes: usize,
    /// Memory without pages. The allocator would keep its pages in memory as long as a neighbour is
    /// in use.
    hollow: [Vec<Memory>; CLASSES],
    /// Whether nothing is kept that has pages.
    returns_pages: bool,
}

impl FreeList {
    fn take(&mut self, class: usize) -> Option<Memory> {
        let Some(memory) = self.classes[class].pop() else { return self.hollow[class].pop() };
        self.bytes -= memory.bytes;
        Some(memory)
    }

    fn add(&mut self, class: usize, memory: Memory) {
        if self.returns_pages {
            if memory.return_pages() {
                self.hollow[class].push(memory);
            }
        } else if self.bytes + memory.bytes <= KEEP_BYTES && self.may_keep(class) {
            self.bytes += memory.bytes;
            self.classes[class].push(memory);
        }
    }

    fn may_keep(&self, class: usize) -> bool {
        let bytes = SIZE_MIN << class;
        bytes >= LONG || self.classes[class].len() < KEEP_SHORT_BYTES / bytes
    }
}

thread_local! {
    static FREE: RefCell<FreeList> = RefCell::default();
}

/// Owned bytes of any length. They are aligned to the power of two that is not less than their
/// number, but to 4,096 bytes at most: enough for direct I/O of so many bytes wherever it is
/// possible. A short buffer takes little memory.
pub struct IoBuf {
    /// At least `len` bytes.
    memory: Memory,
    len: usize,
}

impl IoBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> IoBuf {
        match take_free(len) {
            Some(memory) => {
                let mut buf = IoBuf { memory, len };
                buf.fill(0);
                buf
            }
            None => IoBuf { memory: Memory::zeroed(len), len },
        }
    }

    /// A buffer of `len` bytes with the contents of an earlier buffer of this thread, for a caller
    /// that overwrites them all.
    pub fn scratch(len: usize) -> IoBuf {
        IoBuf { memory: take_free(len).unwrap_or_else(|| Memory::zeroed(len)), len }
    }

    /// A buffer in memory that somebody else owns. It is neither freed nor kept on a free list.
    ///
    /// # Safety
    /// The `len` bytes at `start` are initialised, and stay valid as long as the program runs.
    /// Nobody writes them, and nobody but this buffer has a mutable reference to them, before the
    /// buffer is dropped.
    #[allow(unsafe_code)]
    pub unsafe fn lent(start: NonNull<u8>, len: usize) -> IoBuf {
        IoBuf { memory: Memory { start, bytes: 0 }, len }
    }

    /// Whether this thread keeps the memory of freed buffers for the next ones, as it does at
    /// first. If not, it gives the pages of each to the machine, and at once of those that it has
    /// kept.
    pub fn keep_unused(keep: bool) {
        FREE.with_borrow_mut(|free| {
            free.returns_pages = !keep;
            if free.returns_pages {
                free.bytes = 0;
                for (class, kept) in std::mem::take(&mut free.classes).into_iter().enumerate() {
                    kept.into_iter().for_each(|memory| free.add(class, memory));
                }
            }
        });
    }

    /// The memory that it takes, in bytes; 0 if somebody else owns it.
    pub fn memory_bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Takes bytes away from the end, so that `len` are left. The memory stays as large. Has no
    /// effect if there are not so many.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
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
        if class_of(len).is_some_and(|class| SIZE_MIN << class == self.memory.bytes) {
            self.len = len;
            self[keep..].fill(0);
            return;
        }
        let mut other = IoBuf::zeroed(len);
        other[..keep].copy_from_slice(&self[..keep]);
        *self = other;
    }
}

/// The bytes of one request, in pieces that follow one another. Pieces may be shared with other
/// holders, and none of them can change a shared piece ([`Arc::make_mut`] copies it).
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

    /// Joins all bytes in one buffer. They are copied, unless there is one piece only and it is not
    /// shared.
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
    let class = len.div_ceil(SIZE_MIN).next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

fn take_free(len: usize) -> Option<Memory> {
    let class = class_of(len)?;
    FREE.with_borrow_mut(|free| free.take(class))
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory::EMPTY);
        let Some(class) = class_of(memory.bytes).filter(|_| memory.bytes > 0) else { return };
        debug_assert_eq!(memory.bytes, SIZE_MIN << class);
        // A thread that is ending has no free list any more, so the memory is freed.
        let _ = FREE.try_with(|free| free.borrow_mut().add(class, memory));
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
        // SAFETY: the memory has at least `len` initialised bytes, and is borrowed as long as the
        // slice.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.memory.start.as_ptr(), self.len)
        }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the memory is borrowed mutably.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len)
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
        for len in [1, 64, 65, 256, 512, 1000, 4096, 4097, 12_288, 1 << 20, (1 << 20) + 1] {
            let mut dirty = IoBuf::zeroed(len);
            dirty.fill(0xaa);
            drop(dirty);
            assert_eq!(IoBuf::scratch(len).len(), len);
            let clean = IoBuf::zeroed(len);
            assert_eq!(clean.len(), len);
            assert!(clean.iter().all(|b| *b == 0), "{len} bytes were not zeroed");
        }
        assert!(IoBuf::zeroed(0).is_empty());
    }

    /// A request of direct I/O has a length that is a multiple of the device's alignment, a power
    /// of two; its buffer must be aligned so too. A short buffer must not take a page: a cache of
    /// inodes would take many times its size. Would catch an alignment that the kernel refuses, and
    /// memory that nothing counts.
    #[test]
    fn buffers_are_aligned_and_take_little_memory() {
        for len in (1..9000).chain([12_288, 1 << 20, 3 << 20]) {
            let held: Vec<IoBuf> = (0..3).map(|_| IoBuf::scratch(len)).collect();
            for buf in &held {
                let align = 1 << len.trailing_zeros().min(ALIGN_MAX.trailing_zeros());
                assert_eq!(buf.as_ptr() as usize % align, 0, "{len} bytes");
                assert!(buf.memory.bytes < (2 * len).max(SIZE_MIN + 1), "{len} bytes");
            }
        }
    }

    /// A longer buffer keeps its bytes and shows no older ones behind them, a shorter one keeps its
    /// beginning, in the memory that it has or in other.
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

    /// A buffer that was cut must give its whole memory back to the free list, and lent memory must
    /// stay its owner's. Would catch a list of buffers that are shorter than their class, and
    /// memory with two owners.
    #[test]
    fn cut_and_lent_buffers_give_back_what_is_theirs() {
        let mut cut = IoBuf::scratch(1 << 16);
        let start = cut.as_ptr();
        cut.truncate(100);
        assert_eq!((cut.len(), cut.memory_bytes()), (100, 1 << 16));
        cut.truncate(200);
        assert_eq!(cut.len(), 100);
        drop(cut);
        let again = IoBuf::scratch(1 << 16);
        assert_eq!((again.as_ptr(), again.len()), (start, 1 << 16));
        let owned: &'static mut [u8] = Box::leak(vec![7; 64].into_boxed_slice());
        let place = NonNull::from(&mut *owned);
        // SAFETY: the memory is leaked, and nobody writes it while the buffer lives.
        #[allow(unsafe_code)]
        let mut lent = unsafe { IoBuf::lent(place.cast(), 64) };
        assert_eq!((&lent[..], lent.memory_bytes()), (&[7; 64][..], 0));
        let kept = FREE.with_borrow(|free| free.bytes);
        lent.resize(32);
        assert_eq!((&lent[..], lent.memory_bytes()), (&[7; 32][..], 64));
        assert_eq!(FREE.with_borrow(|free| free.bytes), kept);
    }

    /// The free list must not grow without bound.
    #[test]
    fn the_free_list_is_bounded() {
        let kept = |len: usize| {
            let held: Vec<IoBuf> = (0..(100 << 20) / len).map(|_| IoBuf::scratch(len)).collect();
            drop(held);
            FREE.take().bytes
        };
        assert_eq!(kept(1 << 20), KEEP_BYTES);
        assert_eq!(kept(4096), KEEP_SHORT_BYTES);
    }

    /// The number of these pages that are in memory.
    fn resident(pages: &[usize]) -> usize {
        let is_in_memory = |page: &&usize| {
            let mut seen = 0;
            // SAFETY: the call writes one byte, as it gets one page; an address that is not mapped
            // is an error.
            #[allow(unsafe_code)]
            let done = unsafe { libc::mincore(**page as *mut _, ALIGN_MAX, &mut seen) };
            done == 0 && seen & 1 == 1
        };
        pages.iter().filter(is_in_memory).count()
    }

    /// In a shortage the pages of freed buffers must leave memory although neighbours of theirs
    /// stay, and those must keep their bytes. Would catch memory that a free list or the allocator
    /// keeps, and a page that is taken from a neighbour.
    #[test]
    fn unused_memory_goes_back_to_the_machine() {
        for len in [ALIGN_MAX, 32 << 10] {
            let bufs: Vec<IoBuf> =
                (0..512).map(|n| IoBuf::from_slice(&vec![n as u8 | 1; len])).collect();
            let (mut stay, mut go) = (Vec::new(), Vec::new());
            for (n, buf) in bufs.into_iter().enumerate() {
                if n % 8 == 0 { stay.push((n, buf)) } else { go.push(buf) }
            }
            let pages = |buf: &IoBuf| {
                let start = buf.as_ptr() as usize;
                (start..start + len).step_by(ALIGN_MAX).collect::<Vec<_>>()
            };
            let pages: Vec<usize> = go.iter().flat_map(pages).collect();
            assert_eq!(resident(&pages), pages.len());
            // Half of it is on the free list when memory becomes short, half in use.
            let count = go.len();
            go.truncate(count / 2);
            assert_eq!(resident(&pages), pages.len());
            IoBuf::keep_unused(false);
            drop(go);
            assert_eq!(resident(&pages), 0, "of {} pages", pages.len());
            for (n, buf) in &stay {
                assert!(buf.iter().all(|b| *b == *n as u8 | 1), "buffer {n}");
            }
            // The memory is used again, with or without pages.
            let again: Vec<IoBuf> = (0..count).map(|_| IoBuf::zeroed(len)).collect();
            assert!(again.iter().all(|buf| pages.contains(&(buf.as_ptr() as usize))));
            assert!(again.iter().all(|buf| buf.iter().all(|b| *b == 0)));
            IoBuf::keep_unused(true);
            drop(again);
            let most = if len < LONG { KEEP_SHORT_BYTES } else { KEEP_BYTES };
            FREE.with_borrow(|free| assert_eq!(free.bytes, (count * len).min(most)));
            FREE.take();
        }
    }
}

//! One block in memory.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use ordo_block::IoBuf;
use ordo_runtime::sync::Notify;

use crate::missing::Missing;

/// The identity of a buffer: a block of a file, or of the device itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufKey {
    /// The inode number; 0 for the device.
    pub file: u64,
    /// The logical block: 0 and up for contents, negative for blocks that the layout keeps beside
    /// them (indirect blocks, extended attributes). For the device, it is the address in sectors of
    /// 512 bytes.
    pub block: i64,
}

impl BufKey {
    /// A block of the device, by its byte address.
    pub fn device(address: u64) -> BufKey {
        BufKey { file: 0, block: (address / 512).cast_signed() }
    }

    /// A block of a file.
    pub fn file(ino: u64, block: i64) -> BufKey {
        BufKey { file: ino, block }
    }
}

/// The kind of a block, as far as the cache treats kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferClass {
    /// Inodes, groups, indirect blocks, superblock: written alone, early.
    Metadata,
    /// Contents of a directory.
    Directory,
    /// Contents of a file: gathered into clusters, written last.
    Data,
}

/// A counted reference to a buffer, which stays in memory as long as any reference lives.
pub type BufRef = Rc<Buffer>;

/// The length in bytes below which a buffer is copied when it is written: a copy costs less than
/// pages of its own.
const PAGED: usize = 8192;

/// The longest buffer that has no memory while it is all zeros.
const ZEROS_MAX: usize = 64 << 10;

/// The zeros that such a buffer shows.
static ZEROS: [u8; ZEROS_MAX] = [0; ZEROS_MAX];

/// The bytes of a buffer.
enum Bytes {
    /// So many zeros, which take no memory: most new blocks are overwritten as a whole.
    Zeros(usize),
    /// Memory that only the buffer uses.
    Own(IoBuf),
    /// Pages shared with an image, which may be under way to the device.
    Shared(Arc<IoBuf>),
}

impl Bytes {
    fn zeroed(len: usize) -> Bytes {
        match len {
            PAGED..=ZEROS_MAX => Bytes::Zeros(len),
            _ => Bytes::Own(IoBuf::zeroed(len)),
        }
    }

    #[inline]
    fn look(&self) -> &[u8] {
        match self {
            Bytes::Zeros(len) => &ZEROS[..*len],
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }

    /// The bytes, for a change: a copy of them if an image still uses the old ones.
    #[inline]
    fn own(&mut self) -> &mut [u8] {
        if let Bytes::Shared(_) | Bytes::Zeros(_) = self {
            self.take_back();
        }
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(_) | Bytes::Zeros(_) => unreachable!("it has memory of its own"),
        }
    }

    #[cold]
    fn take_back(&mut self) {
        let nothing = Bytes::Zeros(0);
        *self = match std::mem::replace(self, nothing) {
            Bytes::Shared(shared) => {
                Bytes::Own(Arc::try_unwrap(shared).unwrap_or_else(|image| (*image).clone()))
            }
            Bytes::Zeros(len) => Bytes::Own(IoBuf::zeroed(len)),
            other => other,
        };
    }

    /// Sets the bytes in `range`: first `data`, then zeros.
    fn overwrite(&mut self, range: Range<usize>, data: &[u8]) {
        if let Bytes::Zeros(len) = self
            && range == (0..*len)
        {
            // All of the earlier contents of this memory are overwritten below.
            *self = Bytes::Own(IoBuf::scratch(*len));
        }
        let (first, rest) = self.own()[range].split_at_mut(data.len());
        first.copy_from_slice(data);
        rest.fill(0);
    }

    /// The bytes as they are now, for an image. They are shared, or copied from a short buffer.
    fn share(&mut self) -> Arc<IoBuf> {
        if let Bytes::Zeros(_) = self {
            self.take_back();
        }
        if let Bytes::Own(bytes) = self
            && bytes.len() >= PAGED
        {
            *self = Bytes::Shared(Arc::new(std::mem::replace(bytes, IoBuf::scratch(0))));
        }
        match self {
            Bytes::Own(bytes) => Arc::new(IoBuf::from_slice(bytes)),
            Bytes::Shared(bytes) => bytes.clone(),
            Bytes::Zeros(_) => unreachable!("it has memory"),
        }
    }

    fn resize(&mut self, len: usize) {
        if let Bytes::Shared(_) | Bytes::Zeros(_) = self {
            self.take_back();
        }
        match self {
            Bytes::Own(bytes) => bytes.resize(len),
            Bytes::Shared(_) | Bytes::Zeros(_) => unreachable!("it has memory of its own"),
        }
    }
}

impl From<IoBuf> for Bytes {
    fn from(bytes: IoBuf) -> Bytes {
        // The memory of a short one may be longer, or somebody else's.
        Bytes::Own(if bytes.len() < PAGED { IoBuf::from_slice(&bytes) } else { bytes })
    }
}

/// One block in memory.
pub struct Buffer {
    key: BufKey,
    class: BufferClass,
    address: Cell<Option<u64>>,
    bytes: RefCell<Bytes>,
    len: Cell<usize>,
    version: Cell<u64>,
    /// The version of the newest image that has been written.
    written_version: Cell<u64>,
    loading: Cell<bool>,
    writing: Cell<bool>,
    /// The buffer's key in the list of dirty buffers, if it is dirty: due time and number.
    pub(crate) dirty: Cell<Option<(ordo_runtime::Time, u64)>>,
    pub(crate) referenced: Cell<bool>,
    /// The flush epoch in which the last write completed that was not durable by itself; 0 for
    /// none.
    pub(crate) volatile_since: Cell<u64>,
    /// The time since which the syncer has skipped the buffer although it was due.
    pub(crate) due_since: Cell<Option<ordo_runtime::Time>>,
    /// Drop-behind: no task is expected to use the buffer again, so it leaves memory when it is
    /// clean.
    pub(crate) drop_behind: Cell<bool>,
    /// The buffer's place in the list of clean buffers.
    pub(crate) clean_place: Cell<usize>,
    /// Whether the owner has checked the bytes that were read.
    verified: Cell<bool>,
    /// Whether the device has contents of the block, at its address or at one that it had before.
    stored: Cell<bool>,
    /// The bytes that the device lacks.
    unwritten: Cell<Unwritten>,
    /// The bytes that only the device has.
    missing: Cell<Option<Missing>>,
    changed: Notify,
}

/// The bytes of a buffer that the device lacks at the buffer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// All bytes, as far as is known.
    All,
    /// At most the bytes from the first number up to the second one.
    Within(usize, usize),
}

impl Unwritten {
    pub(crate) const NONE: Unwritten = Unwritten::Within(usize::MAX, 0);

    /// The bytes that the device lacks if it lacks both.
    pub(crate) fn and(self, other: Unwritten) -> Unwritten {
        match (self, other) {
            (Unwritten::Within(a, b), Unwritten::Within(c, d)) => {
                Unwritten::Within(a.min(c), b.max(d))
            }
            _ => Unwritten::All,
        }
    }
}

impl Buffer {
    fn new(key: BufKey, address: Option<u64>, bytes: Bytes, class: BufferClass) -> Buffer {
        Buffer {
            key,
            class,
            address: Cell::new(address),
            len: Cell::new(bytes.look().len()),
            bytes: RefCell::new(bytes),
            version: Cell::new(0),
            written_version: Cell::new(0),
            loading: Cell::new(false),
            writing: Cell::new(false),
            dirty: Cell::new(None),
            referenced: Cell::new(true),
            volatile_since: Cell::new(0),
            due_since: Cell::new(None),
            drop_behind: Cell::new(false),
            clean_place: Cell::new(crate::lists::NOWHERE),
            verified: Cell::new(false),
            stored: Cell::new(false),
            unwritten: Cell::new(Unwritten::All),
            missing: Cell::new(None),
            changed: Notify::new("I/O of the block at sector", address.unwrap_or(0) / 512),
        }
    }

    pub(crate) fn loading(
        key: BufKey,
        address: Option<u64>,
        len: usize,
        class: BufferClass,
    ) -> BufRef {
        let buf = Buffer::new(key, address, Bytes::Zeros(0), class);
        buf.len.set(len);
        buf.loading.set(true);
        Rc::new(buf)
    }

    pub(crate) fn zeroed(
        key: BufKey,
        address: Option<u64>,
        len: usize,
        class: BufferClass,
    ) -> BufRef {
        let buf = Buffer::new(key, address, Bytes::zeroed(len), class);
        buf.verified.set(true);
        Rc::new(buf)
    }

    /// A buffer of a block that the device has, without its contents.
    pub(crate) fn part(
        key: BufKey,
        address: u64,
        len: usize,
        class: BufferClass,
        missing: Missing,
    ) -> BufRef {
        let buf = Buffer::zeroed(key, Some(address), len, class);
        buf.missing.set(Some(missing));
        buf.unwritten.set(Unwritten::NONE);
        buf.set_stored();
        buf
    }

    /// The bytes that only the device has, if there are any.
    pub(crate) fn missing(&self) -> Option<Missing> {
        self.missing.get()
    }

    /// Whether some bytes are not in memory. The cache reads them before a task gets the buffer
    /// from [`Cache::get`](crate::Cache::get).
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.missing.get().is_some()
    }

    /// Takes the missing bytes from the contents of the block on the device.
    pub(crate) fn complete(&self, stored: &[u8]) {
        let Some(missing) = self.missing.take() else { return };
        let mut bytes = self.bytes.borrow_mut();
        let own = bytes.own();
        missing.ranges().for_each(|range| own[range.clone()].copy_from_slice(&stored[range]));
    }

    pub(crate) fn begin_loading(&self) {
        self.loading.set(true);
    }

    pub(crate) fn fill(&self, bytes: IoBuf) {
        debug_assert_eq!(bytes.len(), self.len());
        *self.bytes.borrow_mut() = bytes.into();
        self.unwritten.set(Unwritten::NONE);
        self.set_stored();
        self.end_loading();
    }

    /// Shares the present bytes, which later changes of the buffer leave alone. Bytes with pages of
    /// their own are not copied.
    pub(crate) fn share(&self) -> Arc<IoBuf> {
        self.bytes.borrow_mut().share()
    }

    /// Ends loading, with or without contents, and wakes the tasks that wait for it.
    pub(crate) fn end_loading(&self) {
        self.loading.set(false);
        self.changed.notify_all();
    }

    /// The buffer's identity.
    pub fn key(&self) -> BufKey {
        self.key
    }

    /// The kind of the block.
    pub fn class(&self) -> BufferClass {
        self.class
    }

    /// The block's byte address on the device, if it has one yet.
    pub fn address(&self) -> Option<u64> {
        self.address.get()
    }

    /// Gives the block another address. No write of the block may be under way.
    pub fn set_address(&self, address: Option<u64>) {
        assert!(!self.writing.get(), "an address changes only between writes");
        assert!(!self.is_partial(), "the missing bytes are at the old address");
        self.unwritten.set(Unwritten::All);
        self.address.set(address);
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(&self) -> usize {
        self.len.get()
    }

    pub(crate) fn set_len(&self, len: usize) {
        assert!(!self.is_partial(), "the whole block is in memory when its length changes");
        self.bytes.borrow_mut().resize(len);
        self.unwritten.set(Unwritten::All);
        self.len.set(len);
    }

    /// The bytes, for reading. The borrow must not live across an await.
    #[inline]
    pub fn read(&self) -> Ref<'_, [u8]> {
        debug_assert!(!self.is_partial(), "only a whole block is read");
        Ref::map(self.bytes.borrow(), Bytes::look)
    }

    /// Changes the bytes. [`Cache::mark_dirty`](crate::Cache::mark_dirty) must follow. A change of
    /// metadata goes through an ordering's operation instead, which does both.
    #[inline]
    pub fn write<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        debug_assert!(!self.is_partial(), "a change of unknown bytes needs the whole block");
        self.unwritten.set(Unwritten::All);
        change(self.bytes.borrow_mut().own())
    }

    /// As [`write`](Self::write), for a change of the bytes in `range` alone, which `change` gets.
    /// A cache with a unit of writing ([`CacheConfig::write_unit`](crate::CacheConfig::write_unit))
    /// need not write the other bytes.
    #[inline]
    pub fn write_part<R>(&self, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> R) -> R {
        self.note_part(&range);
        change(&mut self.bytes.borrow_mut().own()[range])
    }

    /// Sets the bytes in `range`: first `data`, then zeros. Otherwise as
    /// [`write_part`](Self::write_part). A new buffer that is overwritten as a whole is not filled
    /// with zeros before.
    ///
    /// # Panics
    /// The data are longer than the range.
    #[inline]
    pub fn overwrite(&self, range: Range<usize>, data: &[u8]) {
        self.note_part(&range);
        self.bytes.borrow_mut().overwrite(range, data);
    }

    /// Notes that the bytes in `range` are being overwritten.
    #[inline]
    fn note_part(&self, range: &Range<usize>) {
        if let Some(missing) = self.missing.get() {
            self.missing.set(missing.without(range.clone()));
        }
        let part = Unwritten::Within(range.start, range.end);
        self.unwritten.set(self.unwritten.get().and(part));
    }

    /// The bytes that the device lacks, in whole units.
    pub(crate) fn unwritten_units(&self, unit: Option<usize>) -> Range<usize> {
        match (self.unwritten.get(), unit) {
            (Unwritten::Within(from, to), Some(unit)) if from < to => {
                from / unit * unit..to.next_multiple_of(unit).min(self.len())
            }
            _ => 0..self.len(),
        }
    }

    /// Notes that an image has been made of the bytes that the device lacks; returns what these
    /// were.
    pub(crate) fn begin_image(&self) -> Unwritten {
        self.unwritten.replace(Unwritten::NONE)
    }

    /// Notes that the device may lack these bytes after all.
    pub(crate) fn image_failed(&self, unwritten: Unwritten) {
        self.unwritten.set(self.unwritten.get().and(unwritten));
    }

    /// The number of changes so far. If it is the same at two times, so are the contents.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Whether an image of this version, or of a later one, has been written, and may be in the
    /// device's volatile cache. What a gate has rolled back in it still has to be written.
    pub fn has_written(&self, version: u64) -> bool {
        self.written_version.get() >= version
    }

    /// Notes that an image of this version has been written.
    pub(crate) fn note_written(&self, version: u64) {
        self.written_version.set(self.written_version.get().max(version));
    }

    #[inline]
    pub(crate) fn bump_version(&self) {
        self.version.set(self.version.get() + 1);
    }

    /// Whether the buffer has changes that are not on disk.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.dirty.get().is_some()
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.loading.get()
    }

    /// Whether a write of the buffer is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.get()
    }

    pub(crate) fn set_writing(&self, writing: bool) {
        self.writing.set(writing);
        if !writing {
            self.changed.notify_all();
        }
    }

    /// Whether the owner has marked the contents as checked.
    pub fn is_verified(&self) -> bool {
        self.verified.get()
    }

    /// Marks the contents as checked, until the buffer leaves memory.
    pub fn set_verified(&self) {
        self.verified.set(true);
    }

    /// Whether the device has contents of the block, at its address or at one that it had before:
    /// the block was read, or has been written. If not, a crash can lose nothing of it for which a
    /// caller has waited.
    pub fn is_stored(&self) -> bool {
        self.stored.get()
    }

    /// Notes that the device has contents of the block.
    pub fn set_stored(&self) {
        self.stored.set(true);
    }

    #[inline]
    pub(crate) fn touch(&self) {
        self.referenced.set(true);
    }

    /// Waits until the buffer has been read, or could not be read.
    pub(crate) async fn loaded(&self) {
        while self.loading.get() {
            self.changed.notified().await;
        }
    }

    /// Waits until no write of the buffer is under way.
    pub async fn written(&self) {
        while self.writing.get() {
            self.changed.notified().await;
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("key", &self.key)
            .field("address", &self.address.get())
            .field("len", &self.len.get())
            .field("dirty", &self.is_dirty())
            .finish()
    }
}

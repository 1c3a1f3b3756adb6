//! The layout of `ufs` for a log.

use std::rc::Rc;

use ordo_cache::BufRef;
use ordo_format::lfs::{IFILE_INO, LE, LfsInode, ROOT_INO, Width, inode::pointer_area};
use ordo_ordering::{Admitted, DeferredFree, Op, OpKind, OrderedCache, What};
use ordo_ufs::{
    Fill, Inode, InodeRecord, Layout, Limits, NewInode, PinnedInode, SyncScope, io_error,
};
use ordo_vfs::{Errno, FileType, FsError, FsResult, StatFs, Timestamp};

use super::Shared;
use super::budget::SpacePurpose;
use super::cleaner::{Cleaner, CleanerCounts};
use super::directory::LogDirectory;
use super::order::SpaceProvider;
use super::store::{decode, has_pointers, is_set};
use super::writer::SegmentWriter;

/// The most names that an inode can have: the largest value of NetBSD's `di_nlink`.
const LINKS_MAX: u32 = 32_767;

/// An inode in memory.
pub(super) type LogInode = Inode<LogPointers>;
/// The layout's own fields of an inode in memory. Pointers are only in the inode's buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogPointers {
    /// The target of a short symbolic link.
    link: Vec<u8>,
    /// The number of the inode's blocks, including indirect ones, whether they are on the device or
    /// not.
    pub(super) mapped: u64,
    /// The group of the data device for the inode's contents, if there is a data device.
    group: u32,
}

/// A mounted log as a layout of `ufs`.
pub struct LogLayout {
    pub(super) store: Shared,
    pub(super) writer: Rc<SegmentWriter>,
    /// The cleaner. The layout owns it; the ordering has only a weak reference.
    pub(super) cleaner: Rc<Cleaner>,
}

fn record_of(d: &LfsInode) -> InodeRecord {
    let nanos = |nanos: i32| nanos.clamp(0, 999_999_999).cast_unsigned();
    let time = |seconds, n: i32| Timestamp { seconds, nanos: nanos(n) };
    let mut record = InodeRecord {
        mode: d.mode,
        links: u32::from(d.nlink.max(0).cast_unsigned()),
        uid: d.uid,
        gid: d.gid,
        size: d.size,
        blocks: d.blocks,
        atime: time(d.atime, d.atimensec),
        mtime: time(d.mtime, d.mtimensec),
        ctime: time(d.ctime, d.ctimensec),
        birthtime: time(d.birthtime, d.birthnsec),
        flags: d.flags,
        generation: d.generation,
        rdev: 0,
    };
    if record.is_device() {
        record.rdev = d.db[0].cast_unsigned();
    }
    record
}

fn put_record(d: &mut LfsInode, record: &InodeRecord) {
    d.mode = record.mode;
    d.nlink = i16::try_from(record.links).unwrap_or(i16::MAX);
    (d.uid, d.gid, d.flags, d.generation) =
        (record.uid, record.gid, record.flags, record.generation);
    (d.size, d.blocks) = (record.size, record.blocks);
    let parts = |t: Timestamp| (t.seconds, t.nanos.cast_signed());
    (d.atime, d.atimensec) = parts(record.atime);
    (d.mtime, d.mtimensec) = parts(record.mtime);
    (d.ctime, d.ctimensec) = parts(record.ctime);
    (d.birthtime, d.birthnsec) = parts(record.birthtime);
    if record.is_device() {
        d.db[0] = record.rdev.cast_signed();
    }
}

impl LogLayout {
    /// Whether a file of this mode and size has pointers in the pointer fields of its inode.
    pub(super) fn has_pointers(&self, mode: u16, size: u64) -> bool {
        has_pointers(&self.store.shape, mode, size)
    }

    /// Changes an inode's buffer. The attributes come from the inode in memory. `change` may edit
    /// the pointers, and the number of blocks is computed from them.
    pub(super) fn put(
        &self,
        op: &mut Op<'_>,
        pin: &BufRef,
        ip: &LogInode,
        admitted: Admitted<'_>,
        change: impl FnOnce(&mut LfsInode),
    ) {
        let mapped = ip.pointers().mapped;
        op.apply(pin, std::slice::from_ref(&(0..LfsInode::SIZE)), admitted, |bytes| {
            let mut d = LfsInode::decode(bytes, LE);
            let group = d.blksize;
            change(&mut d);
            d.inumber = ip.ino();
            if self.store.data.is_some() {
                // An inode that is being freed counts for its group until it is free.
                d.blksize = if ip.record().mode == 0 { group } else { ip.pointers().group };
                if d.size != ip.size() {
                    self.store.state.borrow_mut().resized.insert(ip.ino());
                }
            }
            let mode = ip.record().mode;
            d.size = ip.size();
            let slack = match self.has_pointers(mode, d.size) {
                true => self.store.state.borrow().slack(&d),
                false => 0,
            };
            let whole = mapped * u64::from(self.store.shape.frag);
            ip.record_mut().blocks = whole.saturating_sub(slack);
            put_record(&mut d, &ip.record());
            d.encode(bytes, LE);
        });
    }

    /// Stores an inode as the change `what`.
    pub(super) async fn store_record(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        what: What<'_>,
    ) -> FsResult<()> {
        let pin = self.store.pin(ip.ino()).await?;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        self.put(op, &pin, ip, admitted, |_| {});
        Ok(())
    }

    /// Cleans every segment of which at most `percent` percent is live, as far as there is space
    /// for the live blocks. Returns the work that was done.
    ///
    /// # Errors
    /// The device failed.
    pub async fn clean_below(&self, percent: u64) -> FsResult<CleanerCounts> {
        self.cleaner.clean_below(percent).await.map_err(io_error)
    }

    /// The cleaner's work since the mount.
    pub fn cleaned(&self) -> CleanerCounts {
        self.cleaner.counts()
    }

    /// The percentage of the space without live blocks that is in clean segments.
    pub fn clean_percent(&self) -> u8 {
        let state = self.store.state.borrow();
        let live = state.used().div_ceil(self.store.shape.fsize.into()).cast_signed();
        let free = (self.store.capacity - live).max(1);
        (state.space().max(0) * 100 / free).min(100) as u8
    }

    /// The number of metadata blocks that were rewritten because they were read, since the mount.
    pub fn relocated(&self) -> u64 {
        self.store.relocated()
    }

    /// The number of inodes that were rewritten because their files were read, since the mount.
    pub fn relocated_inodes(&self) -> u64 {
        self.store.relocated_inodes()
    }

    /// The number of checkpoints since the mount.
    pub fn checkpoints(&self) -> u64 {
        self.writer.checkpoints.get()
    }

    /// Whether there is space for rewriting `blocks` blocks.
    pub(super) fn may_rewrite(&self, blocks: u64) -> bool {
        !self.store.lacks(SpacePurpose::Change, 0, blocks, 0)
    }

    /// Makes sure that there is space for a sync: a checkpoint takes some even if nothing has
    /// changed.
    pub(super) async fn make_space(&self) -> FsResult<()> {
        match self.cleaner.is_short(OpKind::Remove) {
            true => self.cleaner.provide(OpKind::Remove).await.map_err(io_error),
            false => Ok(()),
        }
    }

    /// The group of the data device for a new inode in a directory of the group `parent`.
    fn group_in(&self, parent: u32, mode: u16) -> u32 {
        let mut state = self.store.state.borrow_mut();
        match &mut state.data {
            Some(data) if FileType::from_mode(mode) == Some(FileType::Directory) => {
                data.group_for(parent)
            }
            Some(_) => parent,
            None => 0,
        }
    }

    /// Whether there is space for `blocks` more blocks.
    pub(super) fn has_space(&self, blocks: u64) -> bool {
        let bytes = blocks * u64::from(self.store.shape.bsize);
        self.store.state.borrow().used() + bytes <= self.store.limit
            && !self.store.lacks(SpacePurpose::Growth, 0, blocks, 0)
    }
}

impl Layout for LogLayout {
    type Pointers = LogPointers;
    type Directory = LogDirectory;

    fn cache(&self) -> &OrderedCache {
        &self.store.cache
    }

    fn limits(&self) -> Limits {
        let sb = &self.store.shape;
        Limits {
            root: ROOT_INO,
            block: sb.bsize as usize,
            block_unit: sb.fsize.into(),
            file_max: sb.maxfilesize.min(sb.right_maxfilesize()),
            short_link: sb.maxsymlinklen.max(0).cast_unsigned() as usize,
            links_max: LINKS_MAX,
            device_max: u64::MAX - 1,
            seconds: (i64::MIN, i64::MAX),
            birth_times: true,
            attributes: None,
        }
    }

    fn directory(&self) -> LogDirectory {
        LogDirectory
    }

    async fn load_inode(&self, ino: u64) -> FsResult<(InodeRecord, LogPointers)> {
        if ino <= IFILE_INO || !is_set(self.store.place_of(ino)) {
            return Err(Errno::NotFound.into());
        }
        let pin = self.store.pin(ino).await?;
        let d = decode(&pin);
        let record = record_of(&d);
        if record.mode == 0 {
            return Err(Errno::NotFound.into());
        }
        let sb = &self.store.shape;
        let size_max = match FileType::from_mode(d.mode) {
            None => None,
            // A directory has no holes, so it is never larger than the device.
            Some(FileType::Directory) => Some(sb.size * u64::from(sb.fsize)),
            Some(_) => Some(sb.right_maxfilesize()),
        };
        if size_max.is_none_or(|max| d.size > max) {
            let what = format_args!("mode {:#o}, size {}", d.mode, d.size);
            return Err(self.store.corrupt(ino, what));
        }
        if !self.has_pointers(d.mode, d.size) {
            let is_link = FileType::from_mode(d.mode) == Some(FileType::Symlink);
            let area = &pin.read()[pointer_area(Width::Lfs64)];
            let link = if is_link { area.to_vec() } else { Vec::new() };
            return Ok((record, LogPointers { link, mapped: 0, group: d.blksize }));
        }
        let slack = self.store.state.borrow().slack(&d);
        let mapped = d.blocks.saturating_add(slack) / u64::from(sb.frag);
        Ok((record, LogPointers { link: Vec::new(), mapped, group: d.blksize }))
    }

    async fn pin_inode(&self, ino: u64) -> FsResult<PinnedInode> {
        self.store.pin(ino).await.map(PinnedInode::new)
    }

    fn store_inode(
        &self,
        op: &mut Op<'_>,
        pin: &PinnedInode,
        ip: &LogInode,
        admitted: Admitted<'_>,
    ) {
        let link = ip.pointers().link.clone();
        let is_used = ip.record().mode != 0;
        self.put(op, pin.buffer(), ip, admitted, |d| {
            if !is_used {
                *d = LfsInode::zeroed();
            }
            if !link.is_empty() {
                let mut bytes = [0; LfsInode::SIZE];
                d.encode(&mut bytes, LE);
                bytes[pointer_area(Width::Lfs64)][..link.len()].copy_from_slice(&link);
                *d = LfsInode::decode(&bytes, LE);
            }
        });
    }

    fn short_link(&self, ip: &LogInode) -> Vec<u8> {
        ip.pointers().link.clone()
    }

    fn set_short_link(&self, pointers: &mut LogPointers, target: &[u8]) {
        pointers.link = target.to_vec();
    }

    async fn new_inode(
        &self,
        op: &mut Op<'_>,
        parent: &LogInode,
        mode: u16,
    ) -> FsResult<NewInode<LogPointers>> {
        if !self.has_space(2) {
            return Err(FsError::with_detail(Errno::NoSpace, "the log is full"));
        }
        let ino = {
            let mut state = self.store.state.borrow_mut();
            let state = &mut *state;
            state.ifile.take_free(&state.sb).ok_or(Errno::NoSpace)?
        };
        let (ino, generation) = ino;
        let what = What::AllocateInode { ino };
        let _admitted = op.admit(&what).await.map_err(io_error)?;
        self.store.state.borrow_mut().sb.nfiles += 1;
        self.store.fresh_inode(ino).await;
        let group = self.group_in(parent.pointers().group, mode);
        Ok(NewInode { ino, generation, pointers: LogPointers { group, ..LogPointers::default() } })
    }

    async fn free_inode(&self, op: &mut Op<'_>, ino: u64, _was_directory: bool) -> FsResult<()> {
        let what = What::FreeInode { ino };
        let _admitted = op.admit(&what).await.map_err(io_error)?;
        let pin = self.store.pin(ino).await?;
        let inode = decode(&pin);
        let next = inode.generation.saturating_add(1);
        drop(pin);
        // The buffer may be part of a write under way, and forgetting it waits for that. As soon as
        // the number is free, it may be another file's, and so may the buffer.
        if !self.store.is_known(ino) {
            self.store.forget_inode(ino).await;
        }
        self.store.free_inode(ino, next, inode.blksize);
        Ok(())
    }

    async fn read_block(&self, ip: &LogInode, lbn: u64, ahead: usize) -> FsResult<Option<BufRef>> {
        self.store.order.note_activity();
        let found = self.store.read_block(ip.ino(), lbn, ip.is_directory(), ahead).await?;
        if let Some(buf) = &found {
            self.note_read(ip, lbn, Some(buf).filter(|_| ip.is_directory()));
        }
        Ok(found)
    }

    async fn make_block(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        self.make_file_block(op, ip, lbn, len, fill).await
    }

    async fn truncate(&self, op: &mut Op<'_>, ip: &LogInode, size: u64) -> FsResult<()> {
        self.set_size(op, ip, size).await
    }

    async fn punch_hole(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        first: u64,
        end: u64,
    ) -> FsResult<u64> {
        let what = What::ClearPointers { ino: ip.ino() };
        self.remove_blocks(op, ip, first, end, what).await?;
        Ok(end)
    }

    async fn is_mapped(&self, ip: &LogInode, lbn: u64) -> FsResult<(bool, u64)> {
        self.store.is_mapped(ip.ino(), lbn).await
    }

    async fn address(&self, ip: &LogInode, lbn: u64) -> FsResult<Option<u64>> {
        let (pointer, _) = self.store.pointer(ip.ino(), lbn.cast_signed()).await?;
        let fsize = u64::from(self.store.shape.fsize);
        Ok((pointer > 0).then(|| match &self.store.data {
            Some(data) => data.device.first + data.device.byte_of(pointer),
            None => pointer.unsigned_abs() * fsize,
        }))
    }

    async fn free_deferred(&self, _op: &mut Op<'_>, step: DeferredFree) -> FsResult<()> {
        unreachable!("the log defers no frees, but was given {step:?}")
    }

    fn statfs(&self) -> StatFs {
        let (sb, state) = (&self.store.shape, self.store.state.borrow());
        let fsize = u64::from(sb.fsize);
        let free = self.store.limit.saturating_sub(state.used()) / fsize;
        let inodes_free = state.ifile.free_inodes() as u64;
        let (blocks, blocks_free) = match state.data.as_ref().map(|data| data.space()) {
            Some(space) => (space.blocks, space.free + space.soon),
            None => (self.store.limit / fsize, free),
        };
        StatFs {
            fragment_size: sb.fsize,
            block_size: sb.bsize,
            blocks,
            blocks_free,
            blocks_available: blocks_free,
            // The IFILE grows as needed, so free space counts as free inodes: each takes its part
            // of a block of inodes.
            inodes: state.ifile.inodes(sb) + free * fsize / LfsInode::SIZE as u64,
            inodes_free: inodes_free + free * fsize / LfsInode::SIZE as u64,
            name_max: 255,
        }
    }

    async fn fsync(&self, ip: &LogInode, scope: SyncScope) -> FsResult<()> {
        let settled = self.store.cache.ordering().settled();
        let contents_only = scope == SyncScope::Contents && settled.has(ip.ino());
        let sync = settled.begin(ip.ino());
        let are_written =
            contents_only && self.writer.flush_contents(ip.ino()).await.map_err(io_error)?;
        if !are_written {
            self.make_space().await?;
            self.writer.flush_log(ip.ino()).await.map_err(io_error)?;
        }
        settled.end(sync);
        Ok(())
    }

    async fn sync(&self) -> FsResult<()> {
        self.make_space().await?;
        self.writer.checkpoint(false).await.map_err(io_error)
    }

    async fn unmount(&self, read_only: bool) -> FsResult<()> {
        if !read_only {
            self.make_space().await?;
        }
        let _idle = self.cleaner.stop_idle().await;
        if read_only {
            return Ok(());
        }
        self.writer.checkpoint(true).await.map_err(io_error)
    }
}

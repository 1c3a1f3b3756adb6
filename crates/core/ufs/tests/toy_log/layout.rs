//! The layout: a log of blocks of 4 KiB, with inodes and directories as in LFS64. A file has 12
//! direct blocks and one indirect block.

use std::rc::Rc;

use ordo_block::{BlockDevice, Device};
use ordo_cache::{BufKey, BufRef, BufferClass, CacheConfig, Writer};
use ordo_format::lfs::{LE, LfsInode, NO_ADDRESS, UNWRITTEN, Width, inode::pointer_area};
use ordo_ordering::{Admitted, DeferredFree, Op, OrderedCache, PointerTo, What};
use ordo_runtime::Runtime;
use ordo_ufs::{
    CHUNK, DirFormat, Fill, InodeRecord, Layout, LayoutInode, Limits, NewInode, PinnedInode,
    SyncScope, Ufs, UfsConfig, io_error,
};
use ordo_vfs::{Errno, FileType, FsError, FsResult, StatFs, Timestamp};

use crate::directory::LogDirectory;
use crate::order::LogOrder;
use crate::segment::SegmentWriter;
use crate::store::{
    BLOCK, Checkpoint, DIRECT, FILE_BLOCKS, IFILE, IFILE_BLOCKS, INDIRECT, INODES, INODES_MAX,
    ROOT, Store, byte_of, decode, is_set,
};

const LINKS_MAX: u32 = 1000;
const SHORT_LINK: usize = 120;

pub type ToyFs = Ufs<ToyLog>;

pub struct ToyLog {
    pub store: Rc<Store>,
    /// The layout owns the writer; the cache only refers to it.
    _writer: Rc<SegmentWriter>,
}

/// The layout's data of an inode in memory: the target of a short link. Pointers are in the inode's
/// buffer only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShortLink(Vec<u8>);

fn record_of(d: &LfsInode) -> InodeRecord {
    let time = |seconds, nanos: i32| Timestamp { seconds, nanos: nanos.cast_unsigned() };
    let mut record = InodeRecord {
        mode: d.mode,
        links: u32::from(d.nlink.cast_unsigned()),
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
    d.nlink = (record.links as u16).cast_signed();
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

/// Whether an inode's pointer fields hold pointers.
fn has_pointers(ip: &LayoutInode<ToyLog>) -> bool {
    match ip.file_type() {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => ip.size() >= SHORT_LINK as u64,
        _ => false,
    }
}

impl ToyLog {
    fn key(ip: &LayoutInode<ToyLog>, lbn: u64) -> BufKey {
        BufKey::file(ip.ino(), lbn.cast_signed())
    }

    fn class(ip: &LayoutInode<ToyLog>) -> BufferClass {
        if ip.is_directory() { BufferClass::Directory } else { BufferClass::Data }
    }

    /// Changes an inode's buffer: writes the record from memory, and lets `change` edit the
    /// pointers.
    fn put(
        op: &mut Op<'_>,
        pin: &BufRef,
        ip: &LayoutInode<Self>,
        admitted: Admitted<'_>,
        change: impl FnOnce(&mut LfsInode),
    ) {
        op.apply(pin, std::slice::from_ref(&(0..LfsInode::SIZE)), admitted, |bytes| {
            let mut d = LfsInode::decode(bytes, LE);
            change(&mut d);
            d.inumber = ip.ino();
            put_record(&mut d, &ip.record());
            d.encode(bytes, LE);
        });
    }

    /// Sets a file's pointer to a block, and its count of blocks.
    async fn point(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        lbn: u64,
        to: Option<&BufRef>,
    ) -> FsResult<()> {
        let pin = self.store.pin(ip.ino()).await?;
        let value = if to.is_some() { UNWRITTEN } else { NO_ADDRESS };
        let (ino, block) = (ip.ino(), lbn.cast_signed());
        let what = match to {
            Some(init) => {
                let to = PointerTo::Data;
                What::SetPointer { ino, block, old: (0, 0), new: (0, 1), to, init }
            }
            None => What::ClearPointers { ino },
        };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        if lbn < DIRECT {
            Self::put(op, &pin, ip, admitted, |d| d.db[lbn as usize] = value);
            return Ok(());
        }
        let pointers = self.store.indirect(ino, decode(&pin).ib[0]).await?;
        let at = (lbn - DIRECT) as usize * 8;
        op.apply(&pointers, std::slice::from_ref(&(at..at + 8)), admitted, |bytes| {
            LE.put_i64(bytes, at, value);
        });
        self.store_counts(op, ip, &pin).await
    }

    async fn store_counts(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        pin: &BufRef,
    ) -> FsResult<()> {
        let what = What::SetAttributes { ino: ip.ino() };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        Self::put(op, pin, ip, admitted, |_| {});
        Ok(())
    }

    /// Makes sure that a file has its indirect block.
    async fn make_indirect(&self, op: &mut Op<'_>, ip: &LayoutInode<Self>) -> FsResult<()> {
        let pin = self.store.pin(ip.ino()).await?;
        if is_set(decode(&pin).ib[0]) {
            return Ok(());
        }
        let key = BufKey::file(ip.ino(), INDIRECT);
        let buf = self.store.cache.get_new(key, None, BLOCK, BufferClass::Metadata).await;
        self.store.cache.mark_dirty(&buf);
        ip.add_blocks(1);
        let (ino, to, init) = (ip.ino(), PointerTo::Indirect, &buf);
        let what = What::SetPointer { ino, block: INDIRECT, old: (0, 0), new: (0, 1), to, init };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        Self::put(op, &pin, ip, admitted, |d| d.ib[0] = UNWRITTEN);
        Ok(())
    }

    /// Frees a block of a file, if it is mapped.
    async fn take(&self, op: &mut Op<'_>, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<()> {
        if !is_set(self.store.pointer(ip.ino(), lbn).await?) {
            return Ok(());
        }
        self.store.cache.forget(Self::key(ip, lbn)).await;
        let blocks = ip.record().blocks;
        ip.record_mut().blocks = blocks.saturating_sub(1);
        self.point(op, ip, lbn, None).await
    }

    async fn set_entry(
        &self,
        op: &mut Op<'_>,
        ino: u64,
        what: What<'_>,
        entry: i64,
    ) -> FsResult<()> {
        let (block, at) = self.store.entry_place(ino);
        let admitted = op.admit(&what).await.map_err(io_error)?;
        op.apply(&block, std::slice::from_ref(&(at..at + 8)), admitted, |bytes| {
            LE.put_i64(bytes, at, entry);
        });
        Ok(())
    }

    async fn write_everything(&self) -> FsResult<()> {
        self.store.cache.flush_all().await.map_err(io_error)
    }
}

impl Layout for ToyLog {
    type Pointers = ShortLink;
    type Directory = LogDirectory;

    fn cache(&self) -> &OrderedCache {
        &self.store.cache
    }

    fn limits(&self) -> Limits {
        Limits {
            root: ROOT,
            block: BLOCK,
            block_unit: BLOCK as u64,
            file_max: FILE_BLOCKS * BLOCK as u64,
            short_link: SHORT_LINK,
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

    async fn load_inode(&self, ino: u64) -> FsResult<(InodeRecord, ShortLink)> {
        if !(ROOT..INODES_MAX).contains(&ino) || !is_set(self.store.entry(ino)) {
            return Err(Errno::NotFound.into());
        }
        let pin = self.store.pin(ino).await?;
        let record = record_of(&decode(&pin));
        if record.mode == 0 {
            return Err(Errno::NotFound.into());
        }
        let short = FileType::from_mode(record.mode) == Some(FileType::Symlink)
            && record.size < SHORT_LINK as u64;
        let link = match short {
            true => pin.read()[pointer_area(Width::Lfs64)].to_vec(),
            false => Vec::new(),
        };
        Ok((record, ShortLink(link)))
    }

    async fn pin_inode(&self, ino: u64) -> FsResult<PinnedInode> {
        self.store.pin(ino).await.map(PinnedInode::new)
    }

    fn store_inode(
        &self,
        op: &mut Op<'_>,
        pin: &PinnedInode,
        ip: &LayoutInode<Self>,
        admitted: Admitted<'_>,
    ) {
        let link = ip.pointers().0.clone();
        let is_used = ip.record().mode != 0;
        Self::put(op, pin.buffer(), ip, admitted, |d| {
            if !is_used {
                *d = LfsInode::zeroed();
            }
            if !link.is_empty() {
                let mut bytes = [0; LfsInode::SIZE];
                d.encode(&mut bytes, LE);
                let area = pointer_area(Width::Lfs64);
                bytes[area][..link.len()].copy_from_slice(&link);
                *d = LfsInode::decode(&bytes, LE);
            }
        });
    }

    fn short_link(&self, ip: &LayoutInode<Self>) -> Vec<u8> {
        ip.pointers().0.clone()
    }

    fn set_short_link(&self, pointers: &mut ShortLink, target: &[u8]) {
        pointers.0 = target.to_vec();
    }

    async fn new_inode(
        &self,
        op: &mut Op<'_>,
        _parent: &LayoutInode<Self>,
        _mode: u16,
    ) -> FsResult<NewInode<ShortLink>> {
        let free = (ROOT + 1..INODES_MAX).find(|ino| !is_set(self.store.entry(*ino)));
        let ino = free.filter(|_| self.store.has_free_space(2)).ok_or(Errno::NoSpace)?;
        self.set_entry(op, ino, What::AllocateInode { ino }, UNWRITTEN).await?;
        self.store.fresh_inode(ino).await?;
        let generation = self.store.cache.runtime().random_u64() as u32;
        Ok(NewInode { ino, generation, pointers: ShortLink::default() })
    }

    async fn free_inode(&self, op: &mut Op<'_>, ino: u64, _was_directory: bool) -> FsResult<()> {
        self.set_entry(op, ino, What::FreeInode { ino }, NO_ADDRESS).await?;
        self.store.cache.forget(BufKey::file(INODES, ino.cast_signed())).await;
        Ok(())
    }

    async fn read_block(
        &self,
        ip: &LayoutInode<Self>,
        lbn: u64,
        _ahead: usize,
    ) -> FsResult<Option<BufRef>> {
        let pointer = self.store.pointer(ip.ino(), lbn).await?;
        if !is_set(pointer) {
            return Ok(None);
        }
        if let Some(buf) = self.store.cache.peek(Self::key(ip, lbn)) {
            return Ok(Some(buf));
        }
        assert!(pointer > 0, "a block that was never written is in memory");
        let (key, class) = (Self::key(ip, lbn), Self::class(ip));
        let found = self.store.cache.get(key, byte_of(pointer), BLOCK, class).await;
        found.map(Some).map_err(io_error)
    }

    async fn make_block(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        lbn: u64,
        _len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let _pin = self.store.pin(ip.ino()).await?;
        if let Some(buf) = self.read_block(ip, lbn, 0).await? {
            return Ok(buf);
        }
        if lbn >= FILE_BLOCKS {
            return Err(Errno::TooBig.into());
        }
        if !self.store.has_free_space(3) {
            return Err(FsError::with_detail(Errno::NoSpace, "the log is full"));
        }
        if lbn >= DIRECT {
            self.make_indirect(op, ip).await?;
        }
        let (key, class) = (Self::key(ip, lbn), Self::class(ip));
        let buf = self.store.cache.get_new(key, None, BLOCK, class).await;
        let contents = if let Fill::With(bytes) = fill { bytes } else { &[] };
        let init = |bytes: &mut [u8]| {
            bytes[..contents.len()].copy_from_slice(contents);
            if class == BufferClass::Directory {
                let free = bytes[contents.len()..].chunks_exact_mut(CHUNK);
                free.for_each(|chunk| LogDirectory.write_free(chunk));
            }
        };
        let what = What::InitDirectory { dir: ip.ino() };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        op.apply(&buf, std::slice::from_ref(&(0..BLOCK)), admitted, init);
        ip.add_blocks(1);
        self.point(op, ip, lbn, Some(&buf)).await?;
        Ok(buf)
    }

    async fn truncate(&self, op: &mut Op<'_>, ip: &LayoutInode<Self>, size: u64) -> FsResult<()> {
        let (old, block) = (ip.size(), BLOCK as u64);
        let keep = size.div_ceil(block);
        if size > 0 {
            let buf = self.make_block(op, ip, keep - 1, BLOCK, Fill::Keep).await?;
            let end = size.min(old).saturating_sub((keep - 1) * block) as usize;
            buf.write(|bytes| bytes[end..].fill(0));
            self.store.cache.mark_dirty(&buf);
        }
        if has_pointers(ip) {
            for lbn in keep..old.div_ceil(block) {
                self.take(op, ip, lbn).await?;
            }
        }
        let pin = self.store.pin(ip.ino()).await?;
        let mut d = decode(&pin);
        if has_pointers(ip) && keep <= DIRECT && is_set(d.ib[0]) {
            self.store.cache.forget(BufKey::file(ip.ino(), INDIRECT)).await;
            d.ib[0] = NO_ADDRESS;
            let blocks = ip.record().blocks;
            ip.record_mut().blocks = blocks.saturating_sub(1);
        }
        let (ino, directory) = (ip.ino(), ip.is_directory());
        let what = What::SetSize { ino, old, new: size, directory };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.record_mut().size = size;
        Self::put(op, &pin, ip, admitted, |now| now.ib = d.ib);
        Ok(())
    }

    async fn punch_hole(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        first: u64,
        end: u64,
    ) -> FsResult<u64> {
        for lbn in first..end {
            self.take(op, ip, lbn).await?;
        }
        Ok(end)
    }

    async fn is_mapped(&self, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<(bool, u64)> {
        Ok((is_set(self.store.pointer(ip.ino(), lbn).await?), 1))
    }

    async fn address(&self, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<Option<u64>> {
        let block = self.store.pointer(ip.ino(), lbn).await?;
        Ok(is_set(block).then(|| byte_of(block)))
    }

    async fn free_deferred(&self, _op: &mut Op<'_>, step: DeferredFree) -> FsResult<()> {
        unreachable!("this layout defers nothing, but {step:?} was deferred")
    }

    fn statfs(&self) -> StatFs {
        let free = self.store.blocks.saturating_sub(self.store.checkpoint.get().next);
        let inodes_free =
            (ROOT..INODES_MAX).filter(|i| !is_set(self.store.entry(*i))).count() as u64;
        StatFs {
            fragment_size: BLOCK as u32,
            block_size: BLOCK as u32,
            blocks: self.store.blocks,
            blocks_free: free,
            blocks_available: free,
            inodes: INODES_MAX - ROOT,
            inodes_free,
            name_max: 255,
        }
    }

    async fn fsync(&self, _ip: &LayoutInode<Self>, _scope: SyncScope) -> FsResult<()> {
        self.write_everything().await
    }

    async fn sync(&self) -> FsResult<()> {
        self.write_everything().await
    }

    async fn unmount(&self, read_only: bool) -> FsResult<()> {
        if read_only { Ok(()) } else { self.write_everything().await }
    }
}

fn log_on(rt: &Runtime, device: Device, config: &CacheConfig, checkpoint: Checkpoint) -> ToyLog {
    let order = LogOrder::new();
    let cache = OrderedCache::new(rt, device, order.clone(), config.clone());
    let store = Rc::new(Store::new((cache, order), checkpoint));
    let writer = Rc::new(SegmentWriter::new(store.clone()));
    let writer_of_cache: Rc<dyn Writer> = writer.clone();
    store.cache.set_writer(Rc::downgrade(&writer_of_cache));
    ToyLog { store, _writer: writer }
}

/// Makes an empty file system, with the writer that will write to it.
pub async fn mkfs(rt: &Runtime, device: Device) -> FsResult<()> {
    let first = Checkpoint { serial: 0, ifile: 0, next: 2 };
    let log = log_on(rt, device, &CacheConfig::default(), first);
    let store = &log.store;
    let (seconds, nanos) = rt.wall_time();
    let now = Timestamp { seconds, nanos };
    let mut blocks = Vec::new();
    for (ino, mode) in [(IFILE, 0o100_600), (ROOT, 0o040_755)] {
        let buf = store.fresh_inode(ino).await?;
        let lbns = if ino == IFILE { IFILE_BLOCKS } else { 1 };
        let record = InodeRecord {
            mode,
            links: 2,
            size: if ino == IFILE { lbns * BLOCK as u64 } else { CHUNK as u64 },
            blocks: lbns,
            atime: now,
            mtime: now,
            ctime: now,
            birthtime: now,
            generation: 1,
            ..InodeRecord::default()
        };
        let mut d = LfsInode { inumber: ino, ..LfsInode::zeroed() };
        put_record(&mut d, &record);
        d.db[..lbns as usize].fill(UNWRITTEN);
        buf.write(|bytes| d.encode(bytes, LE));
        store.cache.mark_dirty(&buf);
        blocks.push(buf);
        for lbn in 0..lbns {
            let key = BufKey::file(ino, lbn.cast_signed());
            let buf = store.cache.get_new(key, None, BLOCK, BufferClass::Directory).await;
            store.cache.mark_dirty(&buf);
            blocks.push(buf);
        }
    }
    let (root, of_root) = (blocks.pop().expect("its block"), blocks.pop().expect("its inode"));
    root.write(|bytes| {
        bytes.chunks_exact_mut(CHUNK).for_each(|chunk| LogDirectory.write_free(chunk));
        LogDirectory.write_first(&mut bytes[..CHUNK], ROOT, ROOT);
    });
    *store.ifile.borrow_mut() = blocks;
    let (entries, at) = store.entry_place(ROOT);
    entries.write(|bytes| LE.put_i64(bytes, at, UNWRITTEN));
    drop(of_root);
    log.write_everything().await
}

/// Mounts the newest whole checkpoint.
pub async fn mount(rt: &Runtime, device: Device, config: &CacheConfig) -> FsResult<ToyFs> {
    let mut newest: Option<Checkpoint> = None;
    for block in 0..2 {
        let bytes = device.read(byte_of(block), 512).await.map_err(io_error)?;
        let found = Checkpoint::decode(&bytes);
        newest = newest.into_iter().chain(found).max_by_key(|checkpoint| checkpoint.serial);
    }
    let checkpoint = newest.ok_or_else(|| FsError::corrupt("no checkpoint"))?;
    let log = log_on(rt, device, config, checkpoint);
    let inode = log.store.inode_at(IFILE, checkpoint.ifile.cast_signed()).await?;
    let places = decode(&inode).db;
    log.store.ifile.borrow_mut().push(inode);
    for (lbn, place) in (0..).zip(&places[..IFILE_BLOCKS as usize]) {
        let key = BufKey::file(IFILE, lbn);
        let block = log.store.cache.get(key, byte_of(*place), BLOCK, BufferClass::Metadata).await;
        log.store.ifile.borrow_mut().push(block.map_err(io_error)?);
    }
    Ok(Ufs::new(log, UfsConfig::default()))
}

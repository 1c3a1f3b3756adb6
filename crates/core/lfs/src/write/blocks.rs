//! Blocks of files: finding, reading and making them.

use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::lfs::{LE, NDADDR, NO_ADDRESS, UNWRITTEN, lbn};
use ordo_ordering::{Op, PointerTo, What};
use ordo_ufs::{CHUNK, DirFormat, Fill, io_error};
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use super::directory::LogDirectory;
use super::layout::{LogInode, LogLayout};
use super::store::{INODES, Store, decode, is_set};
use super::tree::{Node, ancestors, span};

fn class(is_directory: bool) -> BufferClass {
    if is_directory { BufferClass::Directory } else { BufferClass::Data }
}

impl Store {
    /// Whether the device may have an inode of this number as a file, so that the log must record
    /// its removal.
    pub fn is_known(&self, ino: u64) -> bool {
        let state = self.state.borrow();
        state.ifile.entry(&state.sb, ino).daddr > 0 || state.tombstones.contains(&ino)
    }

    /// Marks an inode of a group as free. If the inode may still be a file on the device, the log
    /// records its removal.
    pub fn free_inode(&self, ino: u64, next_version: u32, group: u32) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let addr = state.ifile.entry(&state.sb, ino).daddr;
        if addr > 0 {
            state.sub_live(addr, ordo_format::lfs::LfsInode::SIZE as u64);
            state.tombstones.insert(ino);
            if let Some(data) = &mut state.data {
                data.count_inode(group, -1);
            }
        }
        state.ifile.free_inode(&state.sb, ino, next_version);
        state.sb.nfiles = state.sb.nfiles.saturating_sub(1);
    }

    /// Removes an inode's buffer from memory.
    pub async fn forget_inode(&self, ino: u64) {
        self.cache.forget(BufKey::file(INODES, ino.cast_signed())).await;
    }

    /// Reads a block of a file; `None` for a hole. Up to `ahead` bytes that follow the block both
    /// in the file and on the device are read with it.
    pub async fn read_block(
        &self,
        ino: u64,
        number: u64,
        is_directory: bool,
        ahead: usize,
    ) -> FsResult<Option<BufRef>> {
        let signed = number.cast_signed();
        let key = BufKey::file(ino, signed);
        loop {
            let (pointer, _parent) = self.pointer(ino, signed).await?;
            if !is_set(pointer) {
                return Ok(None);
            }
            if let Some(buf) = self.cache.peek(key) {
                return Ok(Some(buf));
            }
            assert!(
                pointer > 0,
                "inode {ino}: block {number} was never written and is not in memory"
            );
            let pin = self.pin(ino).await?;
            let inode = decode(&pin);
            if self.reads_ahead() && !self.is_on_data(&inode, signed) {
                self.byte_of(ino, signed, pointer, self.bsize())?;
                let found = self.fill_from_log((ino, signed), pointer, class(is_directory)).await?;
                let now = self.pointer(ino, signed).await?.0;
                if let Some(buf) = found.filter(|buf| buf.is_dirty() || now == pointer) {
                    return Ok(Some(buf));
                }
                self.cache.forget(key).await;
                continue;
            }
            if !self.is_on_data(&inode, signed) {
                self.until_written(pointer).await;
            }
            let run = self.run_from(ino, number, pointer, ahead).await?;
            let byte = self.address_of(&inode, (ino, signed), pointer, run[0].1)?;
            // While the request waits, the cleaner may move the blocks, and their segment may be
            // used again.
            let stays = |key: BufKey, at: u64| {
                let frags = (at - byte) / u64::from(self.shape.fsize);
                self.may_be_at((ino, key.block), pointer + frags.cast_signed())
            };
            let found = self.cache.get_run_if(&run, byte, class(is_directory), stays).await;
            let Some(buf) = found.map_err(io_error)? else { continue };
            if buf.is_dirty() || self.pointer(ino, signed).await?.0 == pointer {
                return Ok(Some(buf));
            }
            drop(buf);
            self.cache.forget(key).await;
        }
    }

    /// The blocks from `number` on that follow each other on the device and are not in memory, each
    /// with its length.
    async fn run_from(
        &self,
        ino: u64,
        number: u64,
        pointer: i64,
        ahead: usize,
    ) -> FsResult<Vec<(BufKey, usize)>> {
        let inode = decode(&self.pin(ino).await?);
        let most = ahead.min(self.request_max());
        let is_on_data = self.is_on_data(&inode, number.cast_signed());
        let key = |number: u64| BufKey::file(ino, number.cast_signed());
        let mut run = vec![(key(number), self.written_bytes(&inode, number.cast_signed()))];
        let (mut total, mut at, mut next) = (run[0].1, pointer, number + 1);
        let last = inode.spare.div_ceil(self.bsize() as u64);
        while run[run.len() - 1].1 == self.bsize() && next < last {
            let bytes = self.written_bytes(&inode, next.cast_signed());
            at += self.shape.block_frags();
            // Another indirect block is not read for the sake of a longer run.
            let here = self.peek_pointer(ino, next.cast_signed());
            let follows = here == Some(at) && self.cache.peek(key(next)).is_none();
            let is_whole = is_on_data || !self.state.borrow().is_in_flight(at);
            if total + bytes > most || !follows || !is_whole || !self.can_be_at(is_on_data, at) {
                break;
            }
            run.push((key(next), bytes));
            total += bytes;
            next += 1;
        }
        Ok(run)
    }

    /// Whether a block of a file is mapped, and the number of blocks from it on that are known to
    /// have the same answer.
    pub async fn is_mapped(&self, ino: u64, number: u64) -> FsResult<(bool, u64)> {
        let nindir = self.nindir();
        let Some((_, path)) = Node::of(number.cast_signed(), nindir) else {
            return Ok((false, 1));
        };
        let pin = self.pin(ino).await?;
        let mut pointer = super::store::slot(&pin, path.slot);
        for (step, above) in ancestors(&path, nindir).enumerate() {
            if !is_set(pointer) {
                let end = above.first + span(above.level, nindir);
                return Ok((false, end - number));
            }
            let buf = self.indirect(ino, above.number(), pointer).await?;
            pointer = self.pointer_in(&buf, path.offsets[step]);
        }
        Ok((is_set(pointer), 1))
    }
}

impl LogLayout {
    /// A block of a file, with space for `len` bytes. The block is allocated if it is not mapped.
    pub(super) async fn make_file_block(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        number: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let store = &self.store;
        let (ino, signed) = (ip.ino(), number.cast_signed());
        if lbn::path(signed, store.nindir()).is_none() {
            return Err(Errno::TooBig.into());
        }
        let _pin = store.pin(ino).await?;
        let (pointer, _parent) = store.pointer(ino, signed).await?;
        if !is_set(pointer) {
            return self.new_block(op, ip, number, fill).await;
        }
        let key = BufKey::file(ino, signed);
        let is_dirty = store.cache.peek(key).is_some_and(|buf| buf.is_dirty());
        if !is_dirty && !self.may_rewrite(4) {
            return Err(FsError::with_detail(Errno::NoSpace, "the log is full"));
        }
        let buf = match (fill, store.cache.peek(key)) {
            (_, Some(buf)) => buf,
            (Fill::Overwritten, None) => {
                let class = class(ip.is_directory());
                store.cache.get_new(key, None, store.bsize(), class).await
            }
            _ => {
                let found = store.read_block(ino, number, ip.is_directory(), 0).await?;
                found.ok_or_else(|| store.corrupt(ino, "a block that was mapped is a hole now"))?
            }
        };
        if buf.len() < len {
            buf.written().await;
            store.cache.resize(&buf, store.bsize());
        }
        Ok(buf)
    }

    async fn new_block(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        number: u64,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        if !self.has_space(4) {
            return Err(FsError::with_detail(Errno::NoSpace, "the log is full"));
        }
        let is_on_data = self.is_on_data(ip);
        self.store.reserve_block(is_on_data)?;
        let made = self.new_block_at(op, ip, number, fill).await;
        if made.is_err() {
            self.store.release_block(is_on_data);
        }
        made
    }

    /// Whether a file's contents are on the data device.
    fn is_on_data(&self, ip: &LogInode) -> bool {
        self.store.data.is_some()
            && FileType::from_mode(ip.record().mode) == Some(FileType::Regular)
    }

    async fn new_block_at(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        number: u64,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let (ino, signed, store) = (ip.ino(), number.cast_signed(), &self.store);
        let nindir = store.nindir();
        let (_, path) = Node::of(signed, nindir).ok_or(Errno::TooBig)?;
        let above: Vec<i64> = ancestors(&path, nindir).map(Node::number).collect();
        for upper in above {
            if !is_set(store.pointer(ino, upper).await?.0) {
                let key = BufKey::file(ino, upper);
                let buf =
                    store.cache.get_new(key, None, store.bsize(), BufferClass::Metadata).await;
                buf.write(|bytes| bytes.fill(0));
                store.cache.mark_dirty(&buf);
                self.point(op, ip, upper, (UNWRITTEN, &buf, PointerTo::Indirect)).await?;
            }
        }
        let kind = class(ip.is_directory());
        let buf = store.cache.get_new(BufKey::file(ino, signed), None, store.bsize(), kind).await;
        if buf.len() < store.bsize() {
            store.cache.resize(&buf, store.bsize());
        }
        let contents = if let Fill::With(bytes) = fill { bytes } else { &[] };
        buf.write(|bytes| {
            bytes.fill(0);
            bytes[..contents.len()].copy_from_slice(contents);
            if ip.is_directory() {
                let free = bytes[contents.len()..].chunks_exact_mut(CHUNK);
                free.for_each(|chunk| LogDirectory.write_free(chunk));
            }
        });
        store.cache.mark_dirty(&buf);
        let to = match ip.file_type() {
            FileType::Directory => PointerTo::Directory,
            FileType::Symlink => PointerTo::LinkTarget,
            _ => PointerTo::Data,
        };
        self.point(op, ip, signed, (UNWRITTEN, &buf, to)).await?;
        Ok(buf)
    }

    /// Sets the pointer to a new block of a file.
    async fn point(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        number: i64,
        (value, init, to): (i64, &BufRef, PointerTo),
    ) -> FsResult<()> {
        let (ino, store) = (ip.ino(), &self.store);
        let (_, path) = Node::of(number, store.nindir()).ok_or(Errno::TooBig)?;
        let pin = store.pin(ino).await?;
        let (old, parent) = store.pointer(ino, number).await?;
        assert_eq!(old, NO_ADDRESS, "inode {ino}: block {number} is there already");
        let what = What::SetPointer { ino, block: number, old: (0, 0), new: (0, 1), to, init };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.pointers_mut().mapped += 1;
        if number < 0 || !self.is_on_data(ip) {
            store.state.borrow_mut().pending += store.bsize() as u64;
        }
        let Some(parent) = parent else {
            self.put(op, &pin, ip, admitted, |d| d.set_pointer(path.slot, value));
            return Ok(());
        };
        debug_assert!(path.slot >= NDADDR);
        let at = path.offsets[path.depth - 1] * 8;
        op.apply(&parent, std::slice::from_ref(&(at..at + 8)), admitted, |bytes| {
            LE.put_i64(bytes, at, value);
        });
        self.store_record(op, ip, What::SetAttributes { ino }).await
    }
}

//! Mapping logical blocks to addresses, and allocating blocks.
//!
//! The inode points to blocks 0 to 11, and to three trees of indirect blocks for the others, one,
//! two and three levels deep. In the cache an indirect block has the negated number of the first
//! block below it, less its level minus one: -12 for the single indirect block (FreeBSD's
//! convention). So all blocks of a file share one name space. The blocks of the extended attributes
//! are -1 and -2.

use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::ufs2::dir;
use ordo_ordering::{Admitted, Op, PointerTo, What};
use ordo_ufs::{Fill, io_error};
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use crate::{DIRECT, Ffs, FfsInode};

/// One level on the path down a tree of indirect blocks (FreeBSD's `struct indir`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndirectLevel {
    /// The level: 1 for a block that points to data.
    pub height: u32,
    /// The first logical block below this indirect block.
    pub first: u64,
    /// The index of the pointer to follow.
    pub index: usize,
}

impl IndirectLevel {
    /// The number of the indirect block in the cache.
    pub(crate) fn key(&self) -> i64 {
        -self.first.cast_signed() - i64::from(self.height - 1)
    }
}

/// The indirect path to a block: the root in the inode, then the levels from the top.
pub(crate) struct IndirectPath {
    pub root: usize,
    levels: [IndirectLevel; 3],
}

impl IndirectPath {
    pub(crate) fn levels(&self) -> &[IndirectLevel] {
        &self.levels[..=self.root]
    }
}

/// The number of blocks below one pointer of an indirect block of this level.
pub(crate) fn span(per_block: u64, height: u32) -> u64 {
    per_block.pow(height - 1)
}

/// The path to block `lbn`, which is not direct, with `per_block` pointers in a block (FreeBSD's
/// `ufs_getlbns`).
pub(crate) fn path(per_block: u64, lbn: u64) -> Option<IndirectPath> {
    let mut first = DIRECT;
    for root in 0..3 {
        let height = root as u32 + 1;
        let below = span(per_block, height) * per_block;
        if lbn - first < below {
            let mut levels = [IndirectLevel::default(); 3];
            let mut at = first;
            for (i, level) in levels.iter_mut().take(root + 1).enumerate() {
                let height = height - i as u32;
                let span = span(per_block, height);
                let index = (lbn - at) / span;
                *level = IndirectLevel { height, first: at, index: index as usize };
                at += index * span;
            }
            return Some(IndirectPath { root, levels });
        }
        first += below;
    }
    None
}

impl Ffs {
    pub(crate) fn path(&self, lbn: u64) -> FsResult<IndirectPath> {
        path(self.sb.addresses_per_block(), lbn).ok_or(Errno::TooBig.into())
    }

    /// The pointer at `index` in an indirect block.
    pub(crate) fn pointer(&self, bytes: &[u8], index: usize) -> i64 {
        self.sb.pointer(bytes, index, self.endian)
    }

    pub(crate) fn class_of(ip: &FfsInode) -> BufferClass {
        if ip.is_directory() { BufferClass::Directory } else { BufferClass::Data }
    }

    fn points_to(ip: &FfsInode) -> PointerTo {
        match ip.file_type() {
            FileType::Directory => PointerTo::Directory,
            FileType::Symlink => PointerTo::LinkTarget,
            _ => PointerTo::Data,
        }
    }

    /// Checks an address from the disk: `frags` fragments from it on must lie in one block, outside
    /// of the file system's own structures.
    pub(crate) fn check_address(
        &self,
        ip: &FfsInode,
        block: i64,
        address: i64,
        frags: u32,
    ) -> FsResult<u64> {
        let unsigned = address.cast_unsigned();
        let within = unsigned % u64::from(self.frag());
        let sound = address > 0
            && self.sb.has_frags(unsigned, u64::from(frags))
            && !self.sb.is_own(unsigned, u64::from(frags))
            && within + u64::from(frags) <= u64::from(self.frag());
        if sound {
            return Ok(unsigned);
        }
        Err(FsError::corrupt(format_args!(
            "{}, block {block}: fragment {address} cannot belong to a file; run a check (fsck)",
            self.inode_place(ip.ino())
        )))
    }

    /// The buffer of an indirect block at `address`.
    pub(crate) async fn pointers(
        &self,
        ip: &FfsInode,
        level: &IndirectLevel,
        address: i64,
    ) -> FsResult<BufRef> {
        let address = self.check_address(ip, level.key(), address, self.frag())?;
        let key = BufKey::file(ip.ino(), level.key());
        let byte = self.sb.byte_of(address);
        let len = self.sb.block_size();
        self.cache.get(key, byte, len, BufferClass::Metadata).await.map_err(io_error)
    }

    /// The number of fragments of block `lbn` in a file of this size.
    pub(crate) fn frags_at(&self, size: u64, lbn: u64) -> u32 {
        (self.sb.file_block_size(size, lbn) >> self.sb.fshift) as u32
    }

    /// The address of a file's block; 0 for a hole.
    pub(crate) async fn lookup(&self, ip: &FfsInode, lbn: u64) -> FsResult<u64> {
        let address = if lbn < DIRECT {
            ip.pointers().db[lbn as usize]
        } else {
            let path = self.path(lbn)?;
            let mut address = ip.pointers().ib[path.root];
            for level in path.levels() {
                if address == 0 {
                    return Ok(0);
                }
                let buf = self.pointers(ip, level, address).await?;
                address = self.pointer(&buf.read(), level.index);
            }
            address
        };
        if address == 0 {
            return Ok(0);
        }
        let frags = self.frags_at(ip.size(), lbn).max(1);
        self.check_address(ip, lbn.cast_signed(), address, frags)
    }

    /// Whether block `lbn` is mapped, and the number of blocks from it on that have the same
    /// answer. If a whole indirect block is missing, the answer holds for all blocks below it.
    pub(crate) async fn block_is_mapped(&self, ip: &FfsInode, lbn: u64) -> FsResult<(bool, u64)> {
        if lbn < DIRECT {
            return Ok((ip.pointers().db[lbn as usize] != 0, 1));
        }
        let per_block = self.sb.addresses_per_block();
        let path = self.path(lbn)?;
        let mut address = ip.pointers().ib[path.root];
        for level in path.levels() {
            if address == 0 {
                return Ok((false, level.first + span(per_block, level.height + 1) - lbn));
            }
            let buf = self.pointers(ip, level, address).await?;
            address = self.pointer(&buf.read(), level.index);
            if address == 0 && level.height > 1 {
                let width = span(per_block, level.height);
                return Ok((false, level.first + (level.index as u64 + 1) * width - lbn));
            }
        }
        Ok((address != 0, 1))
    }

    /// As [`lookup`](Self::lookup), but only from blocks that are in memory.
    fn peek_address(&self, ip: &FfsInode, lbn: u64) -> Option<u64> {
        let address = if lbn < DIRECT {
            ip.pointers().db[lbn as usize]
        } else {
            let path = self.path(lbn).ok()?;
            let lowest = path.levels().last()?;
            let buf = self.cache.peek(BufKey::file(ip.ino(), lowest.key()))?;
            self.pointer(&buf.read(), lowest.index)
        };
        let frags = self.frags_at(ip.size(), lbn).max(1);
        self.check_address(ip, lbn.cast_signed(), address, frags).ok()
    }

    /// Reads a block of a file, with up to `ahead` bytes that follow it both on disk and in the
    /// file.
    pub(crate) async fn read_file_block(
        &self,
        ip: &FfsInode,
        lbn: u64,
        ahead: usize,
    ) -> FsResult<Option<BufRef>> {
        let address = self.lookup(ip, lbn).await?;
        if address == 0 {
            return Ok(None);
        }
        let (size, class) = (ip.size(), Self::class_of(ip));
        let len = self.sb.file_block_size(size, lbn);
        if len == 0 {
            return Err(FsError::corrupt(format_args!(
                "{}, block {lbn}: beyond the end of the file; run a check (fsck)",
                self.inode_place(ip.ino())
            )));
        }
        let byte = self.sb.byte_of(address);
        let key = |lbn: u64| BufKey::file(ip.ino(), lbn.cast_signed());
        let mut run = vec![(key(lbn), len)];
        let mut total = len;
        let blocks = size.div_ceil(self.bsize());
        for next in lbn + 1..blocks {
            let len = self.sb.file_block_size(size, next);
            let follows = self.peek_address(ip, next).map(|a| self.sb.byte_of(a))
                == Some(byte + total as u64);
            if total + len > ahead || !follows || self.cache.peek(key(next)).is_some() {
                break;
            }
            run.push((key(next), len));
            total += len;
        }
        if run.len() > 1 && self.cache.peek(key(lbn)).is_none() {
            self.cache.read_run(&run, byte, class).await.map_err(io_error)?;
        }
        self.cache.get(key(lbn), byte, len, class).await.map(Some).map_err(io_error)
    }

    /// Sets the pointer of block `lbn`, and stores the inode if the pointer is in the inode itself.
    /// The indirect blocks on the path exist. The caller updates the count of blocks.
    pub(crate) async fn set_pointer(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        old: (u64, u32),
        new: (u64, u32),
        init: &BufRef,
    ) -> FsResult<()> {
        let (ino, block) = (ip.ino(), lbn.cast_signed());
        let what = What::SetPointer { ino, block, old, new, to: Self::points_to(ip), init };
        if lbn < DIRECT {
            let inode = self.inode_buffer(ino).await?;
            let admitted = op.admit(&what).await.map_err(io_error)?;
            ip.pointers_mut().db[lbn as usize] = new.0.cast_signed();
            match old.1 {
                0 => self.put_grown(op, &inode, ip, admitted),
                _ => self.put_inode(op, &inode, ip, admitted),
            }
            return Ok(());
        }
        let path = self.path(lbn)?;
        let level = path.levels().last().expect("an indirect path has a level");
        let mut address = ip.pointers().ib[path.root];
        for above in &path.levels()[..path.root] {
            let buf = self.pointers(ip, above, address).await?;
            address = self.pointer(&buf.read(), above.index);
        }
        let buf = self.pointers(ip, level, address).await?;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        self.put_pointer(op, &buf, level.index, new.0, admitted);
        Ok(())
    }

    fn put_pointer(
        &self,
        op: &mut Op<'_>,
        buf: &BufRef,
        index: usize,
        address: u64,
        admitted: Admitted<'_>,
    ) {
        let range = self.sb.pointer_bytes(index..index + 1);
        op.apply(buf, std::slice::from_ref(&range), admitted, |bytes| {
            self.sb.put_pointer(bytes, index, self.endian, address.cast_signed());
        });
    }

    pub(crate) async fn make_file_block(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        // These buffers are pinned, because after the first allocation no read may fail.
        let _inode = self.inode_buffer(ip.ino()).await?;
        if lbn >= DIRECT {
            return self.make_indirect(op, ip, lbn, fill).await;
        }
        let size = ip.size();
        let whole = size >= (lbn + 1) * self.bsize();
        let needed = if whole { self.frag() } else { self.sb.frags_for(len as u64) as u32 };
        let address = ip.pointers().db[lbn as usize];
        if address == 0 {
            return self.make_direct(op, ip, lbn, needed, fill).await;
        }
        let have = self.frags_at(size, lbn);
        let address = self.check_address(ip, lbn.cast_signed(), address, have.max(1))?;
        if have == 0 {
            return Err(FsError::corrupt(format_args!(
                "{}, block {lbn}: beyond the end of the file; run a check (fsck)",
                self.inode_place(ip.ino())
            )));
        }
        // Extending the block can fail, and then its old contents are still needed.
        let fill = if needed > have { Fill::Keep } else { fill };
        let buf = self.existing(ip, lbn, address, have, fill).await?;
        if needed > have {
            self.grow_fragments(op, ip, lbn, &buf, (address, have), needed).await?;
        }
        Ok(buf)
    }

    /// The buffer of a mapped block. The block is read only if its contents matter.
    async fn existing(
        &self,
        ip: &FfsInode,
        lbn: u64,
        address: u64,
        frags: u32,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let key = BufKey::file(ip.ino(), lbn.cast_signed());
        let (byte, len) = (self.sb.byte_of(address), frags as usize * self.sb.frag_size());
        let class = Self::class_of(ip);
        match fill {
            Fill::Overwritten => {
                let is_known = self.cache.peek(key).is_some();
                let buf = self.cache.get_new(key, Some(byte), len, class).await;
                if !is_known {
                    // The device may have the old contents.
                    buf.set_stored();
                }
                Ok(buf)
            }
            Fill::Part(from, n) if class == BufferClass::Data && frags == self.frag() => {
                let range = from..from + n;
                self.cache.get_part(key, byte, len, class, range).await.map_err(io_error)
            }
            _ => self.cache.get(key, byte, len, class).await.map_err(io_error),
        }
    }

    /// Makes a buffer for a block that was just allocated, with its first contents.
    async fn fresh(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        address: u64,
        frags: u32,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let key = BufKey::file(ip.ino(), lbn.cast_signed());
        let (byte, len) = (self.sb.byte_of(address), frags as usize * self.sb.frag_size());
        let class = Self::class_of(ip);
        let buf = self.cache.get_new(key, Some(byte), len, class).await;
        assert_eq!(buf.address(), Some(byte), "a hole has no buffer");
        let contents = if let Fill::With(bytes) = fill { bytes } else { &[] };
        if class == BufferClass::Directory {
            let what = What::InitDirectory { dir: ip.ino() };
            let admitted = op.admit(&what).await.map_err(io_error)?;
            op.apply(&buf, std::slice::from_ref(&(0..len)), admitted, |bytes| {
                bytes[..contents.len()].copy_from_slice(contents);
                dir::write_free_chunks(&mut bytes[contents.len()..], self.endian);
            });
        } else {
            if !contents.is_empty() {
                buf.write(|bytes| bytes[..contents.len()].copy_from_slice(contents));
            }
            self.cache.mark_dirty(&buf);
        }
        Ok(buf)
    }

    async fn make_direct(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        frags: u32,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let preferred = self.preference(ip, lbn, self.previous_direct(ip, lbn));
        let address = self.allocate(op, ip, preferred, frags).await?;
        let buf = self.fresh(op, ip, lbn, address, frags, fill).await?;
        ip.add_blocks(self.sectors(frags));
        self.set_pointer(op, ip, lbn, (0, 0), (address, frags), &buf).await?;
        Ok(buf)
    }

    fn previous_direct(&self, ip: &FfsInode, lbn: u64) -> Option<u64> {
        let previous = ip.pointers().db[(lbn as usize).checked_sub(1)?];
        (previous > 0).then_some(previous.cast_unsigned())
    }

    /// Extends the fragments of a file's last block, in place if possible, otherwise elsewhere.
    async fn grow_fragments(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        buf: &BufRef,
        (address, have): (u64, u32),
        needed: u32,
    ) -> FsResult<()> {
        let len = needed as usize * self.sb.frag_size();
        let old = (address, have);
        // The groups are read now, because after the first change no read may fail.
        let _held = self.groups_of([address]).await?;
        if self.extend(op, address, have, needed).await? {
            self.lengthen(op, ip, buf, len).await?;
            ip.add_blocks(self.sectors(needed - have));
            return self.set_pointer(op, ip, lbn, old, (address, needed), buf).await;
        }
        let asked = self.fragments_to_ask(needed);
        let preferred = self.preference(ip, lbn, self.previous_direct(ip, lbn));
        let new = match self.allocate(op, ip, preferred, asked).await {
            Err(e) if e.errno == Errno::NoSpace && asked > needed => {
                self.allocate(op, ip, preferred, needed).await?
            }
            Ok(new) => {
                if asked > needed {
                    self.free(op, new + u64::from(needed), asked - needed).await?;
                }
                new
            }
            Err(e) => return Err(e),
        };
        self.cache.move_to(buf, self.sb.byte_of(new)).await;
        self.lengthen(op, ip, buf, len).await?;
        ip.add_blocks(self.sectors(needed - have));
        self.set_pointer(op, ip, lbn, old, (new, needed), buf).await?;
        self.free(op, address, have).await
    }

    /// Extends a file's last block to `len` bytes. The whole new space of a directory gets free
    /// chunks, so that the directory can grow into it without another write.
    async fn lengthen(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        buf: &BufRef,
        len: usize,
    ) -> FsResult<()> {
        let had = buf.len();
        self.cache.resize(buf, len);
        self.cache.mark_dirty(buf);
        if ip.is_directory() {
            let what = What::InitDirectory { dir: ip.ino() };
            let admitted = op.admit(&what).await.map_err(io_error)?;
            op.apply(buf, std::slice::from_ref(&(had..len)), admitted, |bytes| {
                dir::write_free_chunks(&mut bytes[had..], self.endian);
            });
        }
        Ok(())
    }

    async fn make_indirect(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        let path = self.path(lbn)?;
        let mut address = ip.pointers().ib[path.root];
        let mut above = Vec::with_capacity(3);
        for level in path.levels() {
            if address == 0 {
                break;
            }
            let buf = self.pointers(ip, level, address).await?;
            address = self.pointer(&buf.read(), level.index);
            above.push(buf);
        }
        if address != 0 {
            let address = self.check_address(ip, lbn.cast_signed(), address, self.frag())?;
            return self.existing(ip, lbn, address, self.frag(), fill).await;
        }
        let missing = &path.levels()[above.len()..];
        let mut new = self.allocate_tree(op, ip, lbn, above.last(), &path, missing.len()).await?;
        let frags = self.frag();
        // The count of blocks is set before the pointers: on disk, a count that is too low is
        // damage; one that is too high is merely wrong.
        let old = ip.record().blocks;
        ip.add_blocks(self.sectors(frags) * new.len() as u64);
        let what = What::SetBlockCount { ino: ip.ino(), old, new: ip.record().blocks };
        let inode = self.inode_buffer(ip.ino()).await?;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        self.put_grown(op, &inode, ip, admitted);
        let data = new.pop().expect("one for the data");
        for (level, address) in missing.iter().zip(new) {
            let buf = self.hang_pointers(op, ip, &path, above.last(), level, address).await?;
            above.push(buf);
        }
        let buf = self.fresh(op, ip, lbn, data, frags, fill).await?;
        self.set_pointer(op, ip, lbn, (0, 0), (data, frags), &buf).await?;
        Ok(buf)
    }

    /// Allocates `pointers` indirect blocks and a block of data, or nothing. Returns the addresses
    /// from the top.
    async fn allocate_tree(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        lowest: Option<&BufRef>,
        path: &IndirectPath,
        pointers: usize,
    ) -> FsResult<Vec<u64>> {
        let frags = self.frag();
        let mut new: Vec<u64> = Vec::with_capacity(pointers + 1);
        for i in 0..=pointers {
            // Only a data block is placed behind the block before it. An indirect block gets a new
            // preferred place.
            let index = path.levels().last().expect("an indirect path has a level").index;
            let previous = match lowest {
                Some(buf) if pointers == 0 && index > 0 => {
                    Some(self.pointer(&buf.read(), index - 1))
                        .filter(|address| *address > 0)
                        .map(i64::cast_unsigned)
                }
                _ => None,
            };
            let preferred = self.preference(ip, lbn, previous);
            match self.allocate(op, ip, preferred, frags).await {
                Ok(address) => new.push(address),
                Err(error) => {
                    for address in new.into_iter().take(i) {
                        self.free(op, address, frags).await?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// Sets a pointer to an empty indirect block.
    async fn hang_pointers(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        path: &IndirectPath,
        above: Option<&BufRef>,
        level: &IndirectLevel,
        address: u64,
    ) -> FsResult<BufRef> {
        let key = BufKey::file(ip.ino(), level.key());
        let byte = self.sb.byte_of(address);
        let len = self.sb.block_size();
        let buf = self.cache.get_new(key, Some(byte), len, BufferClass::Metadata).await;
        assert_eq!(
            buf.address(),
            Some(byte),
            "an indirect block that does not exist has no buffer"
        );
        self.cache.mark_dirty(&buf);
        let what = What::SetPointer {
            ino: ip.ino(),
            block: level.key(),
            old: (0, 0),
            new: (address, self.frag()),
            to: PointerTo::Indirect,
            init: &buf,
        };
        match above {
            None => {
                let inode = self.inode_buffer(ip.ino()).await?;
                let admitted = op.admit(&what).await.map_err(io_error)?;
                ip.pointers_mut().ib[path.root] = address.cast_signed();
                self.put_grown(op, &inode, ip, admitted);
            }
            Some(above) => {
                let admitted = op.admit(&what).await.map_err(io_error)?;
                let upper = path.levels().iter().find(|h| h.height == level.height + 1);
                let upper = upper.expect("a higher indirect block points to it");
                self.put_pointer(op, above, upper.index, address, admitted);
            }
        }
        Ok(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of the first and the last block of each level. An off-by-one error there would
    /// give two blocks one pointer.
    #[test]
    fn ways_at_the_edges() {
        let n = 16;
        let levels = |lbn| path(n, lbn).unwrap().levels().to_vec();
        let level = |height, first, index| IndirectLevel { height, first, index };
        assert_eq!(levels(12), [level(1, 12, 0)]);
        assert_eq!(levels(27), [level(1, 12, 15)]);
        assert_eq!(levels(28), [level(2, 28, 0), level(1, 28, 0)]);
        assert_eq!(levels(28 + 255), [level(2, 28, 15), level(1, 28 + 240, 15)]);
        assert_eq!(levels(284), [level(3, 284, 0), level(2, 284, 0), level(1, 284, 0)]);
        assert!(path(n, 284 + 4096).is_none());
    }

    /// No two indirect blocks of a file have the same number in the cache, and none has the number
    /// of a block of attributes.
    #[test]
    fn keys_of_pointer_blocks_are_distinct() {
        let mut seen = std::collections::BTreeMap::new();
        for lbn in 12..12 + 16 + 256 + 4096 {
            for level in path(16, lbn).unwrap().levels() {
                let of = (level.height, level.first);
                assert_eq!(*seen.entry(level.key()).or_insert(of), of);
                assert!(level.key() < -2);
            }
        }
    }
}

//! Setting a file's size, and freeing the blocks beyond it.
//!
//! The inode is stored without its pointers before any block is marked free, and the ordering is
//! asked before each free. Indirect blocks that are freed whole are not changed.

use ordo_cache::{BufKey, BufRef};
use ordo_ordering::{Op, What};
use ordo_ufs::{Fill, io_error};
use ordo_vfs::{FsError, FsResult};

use crate::map::{IndirectLevel, span};
use crate::{DIRECT, Ffs, FfsInode};

/// The most buffers that a cut pins until it is done.
const HELD_MAX: usize = 64;

/// Blocks to free, to which a pointer led until it was reset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToFree {
    /// The fragments of a data block.
    Data { lbn: u64, address: i64, frags: u32 },
    /// An indirect block and everything below it.
    Tree { height: u32, first: u64, address: i64 },
}

impl Ffs {
    pub(crate) async fn set_size(&self, op: &mut Op<'_>, ip: &FfsInode, size: u64) -> FsResult<()> {
        let old = ip.size();
        if !self.has_blocks(ip) {
            // Such an inode has no pointers: their place is empty, or has the target of a short
            // link.
            return if size > old {
                self.extend_to(op, ip, size).await
            } else {
                self.note_size(op, ip, size).await
            };
        }
        if size > old {
            self.extend_to(op, ip, size).await
        } else if size < old || size == 0 {
            self.cut_to(op, ip, size).await
        } else {
            Ok(())
        }
    }

    /// Whether the pointer fields of an inode hold pointers, and any is set.
    fn has_blocks(&self, ip: &FfsInode) -> bool {
        use ordo_vfs::FileType::{Directory, Regular, Symlink};
        let (d, pointers) = (ip.record(), ip.pointers());
        match ip.file_type() {
            Regular | Directory => {
                pointers.db.iter().chain(&pointers.ib).any(|address| *address != 0)
            }
            // A target in the inode takes no blocks, but a target in a block does.
            Symlink => d.blocks > 0 && d.size >= self.sb.short_link_size() as u64,
            _ => false,
        }
    }

    async fn note_size(&self, op: &mut Op<'_>, ip: &FfsInode, size: u64) -> FsResult<()> {
        let old = ip.size();
        if size == old {
            return Ok(());
        }
        let directory = ip.is_directory();
        let what = What::SetSize { ino: ip.ino(), old, new: size, directory };
        let buf = self.inode_buffer(ip.ino()).await?;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.record_mut().size = size;
        self.put_inode(op, &buf, ip, admitted);
        Ok(())
    }

    /// Extends a file: extends its old last block to a whole one, and allocates its new last block.
    async fn extend_to(&self, op: &mut Op<'_>, ip: &FfsInode, size: u64) -> FsResult<()> {
        let (old, bsize) = (ip.size(), self.bsize());
        let last = (size - 1) / bsize;
        let old_last = old.saturating_sub(1) / bsize;
        if !old.is_multiple_of(bsize) && old_last < last {
            let buf = self.make_file_block(op, ip, old_last, bsize as usize, Fill::Keep).await?;
            buf.write(|bytes| bytes[(old % bsize) as usize..].fill(0));
            self.cache.mark_dirty(&buf);
            self.note_size(op, ip, (old_last + 1) * bsize).await?;
        }
        let len = (size - last * bsize) as usize;
        match self.make_file_block(op, ip, last, len, Fill::Keep).await {
            Ok(buf) => {
                // Zeros also if the block was there before, behind the file's old end.
                buf.write(|bytes| bytes[old.saturating_sub(last * bsize) as usize..].fill(0));
                self.cache.mark_dirty(&buf);
                self.note_size(op, ip, size).await
            }
            Err(error) => {
                if ip.size() != old {
                    self.cut_to(op, ip, old).await?;
                }
                Err(error)
            }
        }
    }

    async fn cut_to(&self, op: &mut Op<'_>, ip: &FfsInode, size: u64) -> FsResult<()> {
        let bsize = self.bsize();
        let _held = self.read_before_cut(ip, size).await?;
        if size > 0 {
            let last = (size - 1) / bsize;
            let len = (size - last * bsize) as usize;
            // A file never ends in a hole.
            let buf = self.make_file_block(op, ip, last, len, Fill::Keep).await?;
            if len < buf.len() {
                buf.write(|bytes| bytes[len..].fill(0));
                self.cache.mark_dirty(&buf);
            }
        }
        let mut to_free = Vec::new();
        let keep = size.div_ceil(bsize);
        self.cut_trees(op, ip, keep, &mut to_free).await?;
        self.cut_inode(op, ip, size, &mut to_free).await?;
        let mut damage = None;
        let mut freed = 0;
        for piece in to_free {
            freed += self.free_piece(op, ip, piece, &mut damage).await?;
        }
        if size > 0 {
            let (ino, old) = (ip.ino(), ip.record().blocks);
            let new = old.saturating_sub(freed);
            let buf = self.inode_buffer(ino).await?;
            let what = What::SetBlockCount { ino, old, new };
            let admitted = op.admit(&what).await.map_err(io_error)?;
            ip.record_mut().blocks = new;
            self.put_inode(op, &buf, ip, admitted);
        }
        damage.map_or(Ok(()), Err)
    }

    /// Reads everything that a cut to `size` needs, so that no read can fail halfway: the inode's
    /// block, the indirect blocks, the groups of the freed blocks. Some of the buffers stay pinned
    /// until the cut is done; the others are the most recently used ones of the cache. Damage is
    /// left for the cut to report, except for trees with more pointers than the file system has
    /// blocks.
    async fn read_before_cut(&self, ip: &FfsInode, size: u64) -> FsResult<Vec<BufRef>> {
        let mut held = vec![self.inode_buffer(ip.ino()).await?];
        let own = self.sb.cg_base(self.sb.ino_group(ip.ino()));
        let (direct, roots) = {
            let pointers = ip.pointers();
            (pointers.db, pointers.ib)
        };
        let data = direct.iter().map(|address| address.cast_unsigned());
        held.extend(self.groups_of(std::iter::once(own).chain(data)).await?);
        let per_block = self.sb.addresses_per_block();
        let keep = size.div_ceil(self.bsize());
        let mut left = self.sb.size.max(0).cast_unsigned() / u64::from(self.frag()) + 1;
        let mut trees: Vec<IndirectLevel> = Vec::new();
        let mut addresses: Vec<i64> = Vec::new();
        let mut first = DIRECT;
        for (root, address) in roots.into_iter().enumerate() {
            let height = root as u32 + 1;
            trees.push(IndirectLevel { height, first, index: 0 });
            addresses.push(address);
            first += span(per_block, height + 1);
        }
        while let (Some(level), Some(address)) = (trees.pop(), addresses.pop()) {
            if address == 0 || level.first + span(per_block, level.height + 1) <= keep {
                continue;
            }
            let buf = match self.pointers(ip, &level, address).await {
                Ok(buf) => buf,
                Err(error) if error.errno == ordo_vfs::Errno::Corrupt => continue,
                Err(error) => return Err(error),
            };
            let width = span(per_block, level.height);
            let pointers: Vec<(u64, i64)> = {
                let bytes = buf.read();
                (0..per_block)
                    .map(|i| (level.first + i * width, self.pointer(&bytes, i as usize)))
                    .filter(|(_, address)| *address != 0)
                    .collect()
            };
            left = left.checked_sub(pointers.len() as u64).ok_or_else(|| {
                FsError::corrupt(format_args!(
                    "{}, block of pointers at fragment {address}: more blocks than the file \
                     system has; run a check (fsck)",
                    self.inode_place(ip.ino())
                ))
            })?;
            let places = pointers.iter().map(|(_, address)| address.cast_unsigned());
            let groups = self.groups_of(std::iter::once(address.cast_unsigned()).chain(places));
            for buf in groups.await?.into_iter().chain([buf]) {
                if held.len() < HELD_MAX && !held.iter().any(|b| std::rc::Rc::ptr_eq(b, &buf)) {
                    held.push(buf);
                }
            }
            if level.height > 1 {
                for (first, address) in pointers {
                    trees.push(IndirectLevel { height: level.height - 1, first, index: 0 });
                    addresses.push(address);
                }
            }
        }
        Ok(held)
    }

    /// Resets the inode's own pointers beyond the end, and stores the inode with its new size.
    async fn cut_inode(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        size: u64,
        to_free: &mut Vec<ToFree>,
    ) -> FsResult<()> {
        let (old, keep) = (ip.size(), size.div_ceil(self.bsize()));
        let buf = self.inode_buffer(ip.ino()).await?;
        let mut pointers = ip.pointers().clone();
        for lbn in 0..DIRECT {
            let pointer = &mut pointers.db[lbn as usize];
            let had = self.frags_at(old, lbn).max(1);
            let left = if lbn < keep { self.frags_at(size, lbn) } else { 0 };
            if *pointer == 0 || left >= had {
                continue;
            }
            let address = pointer.saturating_add(left.into());
            to_free.push(ToFree::Data { lbn, address, frags: had - left });
            if left == 0 {
                *pointer = 0;
            }
        }
        let mut first = DIRECT;
        for (root, pointer) in pointers.ib.iter_mut().enumerate() {
            let height = root as u32 + 1;
            if *pointer != 0 && first >= keep {
                to_free.push(ToFree::Tree { height, first, address: *pointer });
                *pointer = 0;
            }
            first += span(self.sb.addresses_per_block(), height + 1);
        }
        let what = What::ClearPointers { ino: ip.ino() };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.record_mut().size = size;
        if size == 0 {
            // Only the blocks of the extended attributes are left.
            let attributes = self.sb.frags_for(u64::from(pointers.extsize)) as u32;
            ip.record_mut().blocks = self.sectors(attributes);
        }
        *ip.pointers_mut() = pointers;
        self.put_inode(op, &buf, ip, admitted);
        Ok(())
    }

    /// Resets the pointers beyond `keep` blocks, in the trees that the cut divides.
    async fn cut_trees(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        keep: u64,
        to_free: &mut Vec<ToFree>,
    ) -> FsResult<()> {
        if keep <= DIRECT {
            return Ok(());
        }
        let path = self.path(keep - 1)?;
        let mut address = ip.pointers().ib[path.root];
        // The loop follows the path to the last block that stays, and frees everything to its
        // right.
        for level in path.levels() {
            if address == 0 {
                break;
            }
            let buf = self.pointers(ip, level, address).await?;
            let width = span(self.sb.addresses_per_block(), level.height);
            let from = level.index + 1;
            let before = to_free.len();
            {
                let bytes = buf.read();
                for index in from..self.sb.addresses_per_block() as usize {
                    let address = self.pointer(&bytes, index);
                    let first = level.first + index as u64 * width;
                    match (address, level.height) {
                        (0, _) => {}
                        (_, 1) => {
                            let frags = self.frag();
                            to_free.push(ToFree::Data { lbn: first, address, frags });
                        }
                        (_, height) => {
                            to_free.push(ToFree::Tree { height: height - 1, first, address });
                        }
                    }
                }
            }
            if to_free.len() > before {
                let what = What::ClearPointers { ino: ip.ino() };
                let admitted = op.admit(&what).await.map_err(io_error)?;
                let range = self.sb.pointer_bytes(from..from).start..buf.len();
                op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
                    bytes[range.clone()].fill(0);
                });
            }
            address = self.pointer(&buf.read(), level.index);
        }
        Ok(())
    }

    /// Frees the blocks to which a pointer led. Returns the number of their sectors. Pointers that
    /// cannot be right are skipped and reported through `damage`. Only a failing device ends this
    /// early.
    pub(crate) async fn free_piece(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        to_free: ToFree,
        damage: &mut Option<FsError>,
    ) -> FsResult<u64> {
        match to_free {
            ToFree::Data { lbn, address, frags } => {
                let key = BufKey::file(ip.ino(), lbn.cast_signed());
                let cut = self.cache.peek(key).filter(|buf| {
                    // Only the end of the block is freed. The buffer stays, but gets shorter.
                    buf.address() != Some(self.sb.byte_of(address.cast_unsigned()))
                });
                match cut {
                    Some(buf) if self.frags_at(ip.size(), lbn) > 0 => {
                        buf.written().await;
                        self.cache.resize(&buf, self.sb.file_block_size(ip.size(), lbn));
                    }
                    _ => self.cache.forget(key).await,
                }
                self.free_checked(op, ip, lbn.cast_signed(), address, frags, damage).await
            }
            ToFree::Tree { height, first, address } => {
                self.free_tree(op, ip, height, first, address, damage).await
            }
        }
    }

    async fn free_checked(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        block: i64,
        address: i64,
        frags: u32,
        damage: &mut Option<FsError>,
    ) -> FsResult<u64> {
        let freed = match self.check_address(ip, block, address, frags) {
            Ok(address) => self.free(op, address, frags).await,
            Err(error) => Err(error),
        };
        match freed {
            Ok(()) => Ok(self.sectors(frags)),
            Err(error) if error.errno == ordo_vfs::Errno::Corrupt => {
                damage.get_or_insert(error);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    async fn free_tree(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        height: u32,
        first: u64,
        address: i64,
        damage: &mut Option<FsError>,
    ) -> FsResult<u64> {
        let level = IndirectLevel { height, first, index: 0 };
        let buf = match self.pointers(ip, &level, address).await {
            Ok(buf) => buf,
            Err(error) if error.errno == ordo_vfs::Errno::Corrupt => {
                damage.get_or_insert(error);
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let children: Vec<(u64, i64)> = {
            let bytes = buf.read();
            let width = span(self.sb.addresses_per_block(), height);
            (0..self.sb.addresses_per_block())
                .map(|i| (first + i * width, self.pointer(&bytes, i as usize)))
                .filter(|(_, address)| *address != 0)
                .collect()
        };
        drop(buf);
        let mut freed = 0;
        for (first, address) in children {
            freed += if height == 1 {
                self.cache.forget(BufKey::file(ip.ino(), first.cast_signed())).await;
                let (block, frags) = (first.cast_signed(), self.frag());
                self.free_checked(op, ip, block, address, frags, damage).await?
            } else {
                // The recursion has at most three levels.
                Box::pin(self.free_tree(op, ip, height - 1, first, address, damage)).await?
            };
        }
        self.cache.forget(BufKey::file(ip.ino(), level.key())).await;
        freed += self.free_checked(op, ip, level.key(), address, self.frag(), damage).await?;
        Ok(freed)
    }
}

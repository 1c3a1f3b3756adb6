//! Allocation of inodes: files near their directory, directories spread over the groups.

use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::ufs2::bitmap::{is_set, next_clear};
use ordo_format::ufs2::{Dinode, Group, ROOT_INO};
use ordo_ordering::{DeferredFree, Op, What};
use ordo_ufs::io_error;
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use super::group_order;
use crate::group::GroupChange;
use crate::{Ffs, FfsInode};

impl Ffs {
    /// Allocates a free inode. Returns its number.
    pub(crate) async fn allocate_inode(
        &self,
        op: &mut Op<'_>,
        parent: &FfsInode,
        mode: u16,
    ) -> FsResult<u64> {
        loop {
            let found = self.allocate_inode_once(op, parent, mode).await;
            let full = found.as_ref().is_err_and(|e| e.errno == Errno::NoSpace);
            // Deferred frees may free an inode.
            if !full || !self.cache.ordering().reclaim(&self.cache).await.map_err(io_error)? {
                return found;
            }
        }
    }

    async fn allocate_inode_once(
        &self,
        op: &mut Op<'_>,
        parent: &FfsInode,
        mode: u16,
    ) -> FsResult<u64> {
        let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
        let start = if is_directory {
            self.directory_group(parent)
        } else {
            self.sb.ino_group(parent.ino())
        };
        for cg in group_order(start, self.sb.ncg) {
            if self.allocation.borrow().groups[cg as usize].nifree <= 0 {
                continue;
            }
            if let Some(ino) = self.allocate_inode_in(op, cg, is_directory).await? {
                let mut allocation = self.allocation.borrow_mut();
                let row = &mut allocation.directories_in_a_row[cg as usize];
                *row = if is_directory { row.saturating_add(1) } else { row.saturating_sub(1) };
                return Ok(ino);
            }
        }
        Err(FsError::with_detail(Errno::NoSpace, "no free inodes"))
    }

    async fn allocate_inode_in(
        &self,
        op: &mut Op<'_>,
        cg: u32,
        is_directory: bool,
    ) -> FsResult<Option<u64>> {
        let buf = self.group(cg).await?;
        let mut change;
        // Another operation may take the inode while this one waits. Then it chooses again.
        let (index, ino, at, admitted) = loop {
            let Some((index, header)) = self.choose_inode(cg, &buf)? else { return Ok(None) };
            self.initialise_inodes(op, cg, &buf, index).await?;
            let ino = self.sb.cg_first_inode(cg) + u64::from(index);
            change = GroupChange::new(cg, What::AllocateInode { ino });
            let admitted = self.admit_group(op, &change).await?;
            let map = header.iusedoff as usize;
            if !is_set(&buf.read()[map..], index) {
                break (index, ino, map + (index / 8) as usize, admitted);
            }
        };
        let changed = self.edit_group(op, &buf, at..at + 1, admitted, |group| {
            group.change_inode(index, false, is_directory)
        });
        changed.map_err(|_| self.group_corrupt(cg, "its bitmap changed while it was used"))?;
        Ok(Some(ino))
    }

    /// The next free inode of a group, by its index in the group, and the group's header.
    fn choose_inode(&self, cg: u32, buf: &BufRef) -> FsResult<Option<(u32, Group)>> {
        let bytes = buf.read();
        let header = Group::decode(&bytes, self.endian);
        if header.cs.nifree <= 0 {
            return Ok(None);
        }
        let map = &bytes[header.layout(&self.sb).inodes];
        let found = next_clear(map, header.irotor, self.sb.ipg)
            .or_else(|| next_clear(map, 0, header.irotor));
        // Inodes 0 and 1 are never used, and are marked as used.
        let reserved = found.is_some_and(|i| cg == 0 && u64::from(i) < ROOT_INO);
        match found {
            Some(index) if !reserved => Ok(Some((index, header))),
            _ => Err(self.group_corrupt(cg, "nifree counts a free inode, but there is none")),
        }
    }

    /// Makes sure that the block of inodes with `index` is initialised. A group's inode blocks are
    /// filled with free inodes only when they are first needed. One block more than needed is kept
    /// initialised, so that a check that counts the blocks of a crashed image finds no block that
    /// is half filled. The next block is filled in advance, so that no operation waits for it
    /// later.
    async fn initialise_inodes(
        &self,
        op: &mut Op<'_>,
        cg: u32,
        group: &BufRef,
        index: u32,
    ) -> FsResult<()> {
        loop {
            let ready = self.sb.inodes_ready(&Group::decode(&group.read(), self.endian));
            if index + 2 * self.sb.inopb < ready || ready >= self.sb.ipg {
                return Ok(());
            }
            let Some(buf) = self.fill_inodes(op, cg, group, ready).await? else { continue };
            if index + self.sb.inopb < ready {
                return Ok(());
            }
            let first = self.sb.cg_first_inode(cg) + u64::from(ready);
            let what = What::UseInodeBlock { first, block: &buf };
            let change = GroupChange::new(cg, what);
            let admitted = self.admit_group(op, &change).await?;
            let count = self.sb.inopb.min(self.sb.ipg - ready);
            // On disk, the group must count the block before an entry stands for one of its inodes,
            // because a check looks only at inodes that the group counts as initialised.
            self.edit_group(op, group, 0..0, admitted, |group| {
                group.header.initediblk = (ready + count).max(group.header.initediblk);
            });
        }
    }

    /// Fills the block of inodes that begins at index `ready` of the group with free inodes.
    /// Returns its buffer; `None` if another operation has filled it meanwhile.
    async fn fill_inodes(
        &self,
        op: &mut Op<'_>,
        cg: u32,
        group: &BufRef,
        ready: u32,
    ) -> FsResult<Option<BufRef>> {
        let first = self.sb.cg_first_inode(cg) + u64::from(ready);
        if self.allocation.borrow().inodes_prepared[cg as usize] > ready {
            return self.inode_buffer(first).await.map(Some);
        }
        let (address, _) = self.sb.inode_block(first);
        let byte = self.sb.byte_of(address);
        let (key, len) = (BufKey::device(byte), self.sb.block_size());
        let what = What::InitInodeBlock { first };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        // While this operation waits for memory, another one may fill the block and put inodes in
        // it.
        let is_free = || {
            self.sb.inodes_ready(&Group::decode(&group.read(), self.endian)) == ready
                && self.allocation.borrow().inodes_prepared[cg as usize] <= ready
        };
        let kind = BufferClass::Metadata;
        let Some(buf) = self.cache.get_new_if(key, Some(byte), len, kind, is_free).await else {
            return Ok(None);
        };
        op.apply(&buf, std::slice::from_ref(&(0..len)), admitted, |bytes| {
            bytes.fill(0);
            for inode in bytes.chunks_exact_mut(self.sb.inode_size()) {
                let mut d = Dinode::zeroed();
                d.generation = self.new_generation();
                self.sb.put_inode(&d, inode, self.endian);
            }
        });
        self.allocation.borrow_mut().inodes_prepared[cg as usize] = ready + self.sb.inopb;
        op.soon(&buf);
        Ok(Some(buf))
    }

    pub(crate) fn new_generation(&self) -> u32 {
        (self.cache.runtime().random_u64() as u32).max(1)
    }

    /// Marks an inode as free, at once or when the ordering allows it.
    pub(crate) async fn free_inode_when_safe(
        &self,
        op: &mut Op<'_>,
        ino: u64,
        is_directory: bool,
    ) -> FsResult<()> {
        match op.defer(DeferredFree::FreeInode { ino, directory: is_directory }) {
            Some(_) => self.free_inode_now(op, ino, is_directory).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn free_inode_now(
        &self,
        op: &mut Op<'_>,
        ino: u64,
        is_directory: bool,
    ) -> FsResult<()> {
        let cg = self.sb.ino_group(ino);
        let index = (ino - self.sb.cg_first_inode(cg)) as u32;
        let buf = self.group(cg).await?;
        let change = GroupChange::new(cg, What::FreeInode { ino });
        let admitted = self.admit_group(op, &change).await?;
        let at = Group::decode(&buf.read(), self.endian).iusedoff as usize + (index / 8) as usize;
        let changed = self.edit_group(op, &buf, at..at + 1, admitted, |group| {
            group.change_inode(index, true, is_directory)
        });
        changed.map_err(|_| {
            self.group_corrupt(cg, format_args!("inode {ino} is to be freed, but is free already"))
        })
    }

    /// The group for a new directory (FreeBSD's `ffs_dirpref`). Directories in the root are spread
    /// at random over groups with more free space than the average; others go near their parent,
    /// unless its group is crowded.
    fn directory_group(&self, parent: &FfsInode) -> u32 {
        let sb = &self.sb;
        let allocation = self.allocation.borrow();
        let ncg = i64::from(sb.ncg);
        let average = |total: i64| total / ncg;
        let (inodes, blocks, directories) = (
            average(allocation.total.nifree),
            average(allocation.total.nbfree),
            average(allocation.total.ndir),
        );
        let around = |start: u32| {
            (0..sb.ncg).map(move |i| ((u64::from(start) + u64::from(i)) % ncg as u64) as u32)
        };
        let own = sb.ino_group(parent.ino());
        let has_space = |cg: &u32| {
            let g = &allocation.groups[*cg as usize];
            i64::from(g.nifree) >= inodes && i64::from(g.nbfree) >= blocks
        };
        if parent.ino() == ROOT_INO {
            let start = self.cache.runtime().random_below(u64::from(sb.ncg)) as u32;
            // Among the groups with space, one with the fewest directories is taken.
            let best = around(start)
                .filter(has_space)
                .min_by_key(|cg| allocation.groups[*cg as usize].ndir);
            return best.unwrap_or(own);
        }
        let most_directories = (directories + i64::from(sb.ipg) / 16).min(i64::from(sb.ipg));
        let row_max = self.directories_in_a_row_max(directories, blocks);
        let fits = |cg: &u32| {
            let g = &allocation.groups[*cg as usize];
            i64::from(g.ndir) < most_directories
                && i64::from(g.nifree) >= inodes - inodes / 4
                && i64::from(g.nbfree) >= blocks - blocks / 4
                && i64::from(allocation.directories_in_a_row[*cg as usize]) < row_max
        };
        let enough_inodes = |cg: &u32| i64::from(allocation.groups[*cg as usize].nifree) >= inodes;
        around(own).find(fits).or_else(|| around(own).find(enough_inodes)).unwrap_or(own)
    }

    /// The most directories that may be created in a group in a row. With more of them, the
    /// expected number of files per directory would no longer fit in the group.
    fn directories_in_a_row_max(&self, directories: i64, free_blocks: i64) -> i64 {
        let sb = &self.sb;
        let expected = i64::from(sb.avgfilesize) * i64::from(sb.avgfpdir);
        let group = i64::from(sb.fsize) * i64::from(sb.fpg);
        let used = group - free_blocks * i64::from(sb.bsize);
        let current = if directories > 0 { used / directories } else { 0 };
        let size = expected.max(current).max(1);
        let by_space = (free_blocks * i64::from(sb.bsize) / size).min(255);
        let per_directory = i64::from(sb.avgfpdir).max(1);
        by_space.min(i64::from(sb.ipg) / per_directory).max(1)
    }
}

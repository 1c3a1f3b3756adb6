//! The implementation of [`Layout`] for [`Ffs`], and inodes in their blocks.

use std::rc::Rc;

use ordo_cache::{BufKey, BufRef, Buffer, BufferClass};
use ordo_format::ufs2::{Dinode, Group, ROOT_INO};
use ordo_ordering::{Admitted, DeferredFree, Op, OrderedCache, SyncedInode};
use ordo_ufs::{
    AttributeArea, Fill, InodeRecord, Layout, Limits, NewInode, PinnedInode, SyncScope, io_error,
};
use ordo_vfs::{Errno, FileType, FsError, FsResult, StatFs};

use crate::allocation::AllocationSummary;
use crate::directory::UfsDirectory;
use crate::inode::{Pointers, join, split};
use crate::state_flags::MountState;
use crate::{Ffs, FfsInode};

impl Ffs {
    /// The block that holds an inode.
    pub(crate) async fn inode_buffer(&self, ino: u64) -> FsResult<BufRef> {
        let (address, _) = self.sb.inode_block(ino);
        let byte = self.sb.byte_of(address);
        let (key, len) = (BufKey::device(byte), self.sb.block_size());
        self.cache.get(key, byte, len, BufferClass::Metadata).await.map_err(io_error)
    }

    /// An inode and its place on the device, for errors.
    pub(crate) fn inode_place(&self, ino: u64) -> String {
        let (address, at) = self.sb.inode_block(ino);
        format!("inode {ino} (at byte {})", self.sb.byte_of(address) + at as u64)
    }

    /// Stores an inode in its block.
    pub(crate) fn put_inode(
        &self,
        op: &mut Op<'_>,
        block: &BufRef,
        ip: &FfsInode,
        admitted: Admitted<'_>,
    ) {
        let (_, at) = self.sb.inode_block(ip.ino());
        let range = at..at + self.sb.inode_size();
        op.apply(block, std::slice::from_ref(&range), admitted, |bytes| {
            let d = join(&ip.record(), &ip.pointers());
            self.sb.put_inode(&d, &mut bytes[range.clone()], self.endian);
        });
        ip.pointers().note_stored(block);
        self.cache.runtime().cpu().touch();
    }

    /// Stores an inode that got space beyond its size, if the ordering writes an operation's
    /// changes of an inode all or not at all. Otherwise the operation stores the inode later,
    /// together with its new size.
    pub(crate) fn put_grown(
        &self,
        op: &mut Op<'_>,
        block: &BufRef,
        ip: &FfsInode,
        admitted: Admitted<'_>,
    ) {
        if self.cache.ordering().whole_inodes() {
            self.put_inode(op, block, ip, admitted);
        } else {
            self.cache.runtime().cpu().touch();
        }
    }

    async fn read_dinode(&self, ino: u64) -> FsResult<Dinode> {
        self.dinode_in(&*self.inode_buffer(ino).await?, ino)
    }

    fn dinode_in(&self, block: &Buffer, ino: u64) -> FsResult<Dinode> {
        let (_, at) = self.sb.inode_block(ino);
        let bytes = block.read();
        let raw = &bytes[at..at + self.sb.inode_size()];
        self.sb.verify_inode(raw, self.endian).map_err(|e| {
            let place = self.inode_place(ino);
            FsError::corrupt(format_args!("{place}: {e}; run a check (fsck)"))
        })?;
        Ok(self.sb.inode(raw, self.endian))
    }

    /// Whether the block with this inode was ever initialised.
    async fn is_initialised(&self, ino: u64) -> FsResult<bool> {
        if self.sb.inodes_ready(&Group::zeroed()) == self.sb.ipg {
            // Every inode is initialised, whatever a group says.
            return Ok(true);
        }
        let cg = self.sb.ino_group(ino);
        let buf = self.group(cg).await?;
        let ready = self.sb.inodes_ready(&Group::decode(&buf.read(), self.endian));
        Ok(ino - self.sb.cg_first_inode(cg) < u64::from(ready))
    }
}

impl Layout for Ffs {
    type Pointers = Pointers;
    type Directory = UfsDirectory;

    fn cache(&self) -> &OrderedCache {
        &self.cache
    }

    fn limits(&self) -> Limits {
        Limits {
            root: ROOT_INO,
            block: self.sb.block_size(),
            block_unit: 512,
            file_max: self.sb.max_file_size(),
            short_link: self.sb.short_link_size(),
            links_max: self.sb.links_max(),
            device_max: self.sb.device_max(),
            seconds: self.sb.inode_seconds().into_inner(),
            birth_times: self.sb.has_birth_times(),
            attributes: self.sb.has_attributes().then(|| AttributeArea {
                bytes_max: 2 * self.sb.block_size(),
                endian: self.endian,
            }),
        }
    }

    fn directory(&self) -> UfsDirectory {
        UfsDirectory { endian: self.endian, chunk: self.dir_chunk }
    }

    async fn load_inode(&self, ino: u64) -> FsResult<(InodeRecord, Pointers)> {
        if !self.sb.has_inode(ino) || !self.is_initialised(ino).await? {
            return Err(Errno::NotFound.into());
        }
        let block = self.inode_buffer(ino).await?;
        let dinode = self.dinode_in(&block, ino)?;
        if dinode.mode == 0 {
            return Err(Errno::NotFound.into());
        }
        // A directory has no holes, so its size cannot exceed the disk's.
        let size_max = match FileType::from_mode(dinode.mode) {
            None => None,
            Some(FileType::Directory) => Some(self.sb.byte_of(self.sb.size.max(0).cast_unsigned())),
            Some(_) => Some(self.sb.max_file_size()),
        };
        if size_max.is_none_or(|max| dinode.size > max) {
            return Err(FsError::corrupt(format_args!(
                "{}: mode {:#o} and size {} cannot both be right; run a check (fsck)",
                self.inode_place(ino),
                dinode.mode,
                dinode.size
            )));
        }
        let (record, pointers) = split(&dinode);
        pointers.note_stored(&block);
        Ok((record, pointers))
    }

    async fn pin_inode(&self, ino: u64) -> FsResult<PinnedInode> {
        self.inode_buffer(ino).await.map(PinnedInode::new)
    }

    fn store_inode(
        &self,
        op: &mut Op<'_>,
        pin: &PinnedInode,
        ip: &FfsInode,
        admitted: Admitted<'_>,
    ) {
        self.put_inode(op, pin.buffer(), ip, admitted);
    }

    fn short_link(&self, ip: &FfsInode) -> Vec<u8> {
        ip.pointers().short_link(self.endian).to_vec()
    }

    fn set_short_link(&self, pointers: &mut Pointers, target: &[u8]) {
        pointers.set_short_link(target, self.endian);
    }

    async fn new_inode(
        &self,
        op: &mut Op<'_>,
        parent: &FfsInode,
        mode: u16,
    ) -> FsResult<NewInode<Pointers>> {
        let ino = self.allocate_inode(op, parent, mode).await?;
        let found = self.read_dinode(ino).await;
        let old = match found {
            Ok(old) if old.mode == 0 => old,
            Ok(old) => {
                return Err(FsError::corrupt(format_args!(
                    "{} is marked free, but has mode {:#o}; run a check (fsck)",
                    self.inode_place(ino),
                    old.mode
                )));
            }
            Err(error) => {
                if error.errno != Errno::Corrupt {
                    self.free_inode_when_safe(op, ino, mode & 0o170_000 == 0o040_000).await?;
                }
                return Err(error);
            }
        };
        let generation = match old.generation.wrapping_add(1) {
            0 | 1 => self.new_generation(),
            next => next,
        };
        Ok(NewInode { ino, generation, pointers: Pointers::default() })
    }

    async fn free_inode(&self, op: &mut Op<'_>, ino: u64, was_directory: bool) -> FsResult<()> {
        self.free_inode_when_safe(op, ino, was_directory).await
    }

    async fn read_block(&self, ip: &FfsInode, lbn: u64, ahead: usize) -> FsResult<Option<BufRef>> {
        self.read_file_block(ip, lbn, ahead).await
    }

    async fn make_block(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef> {
        self.make_file_block(op, ip, lbn, len, fill).await
    }

    async fn truncate(&self, op: &mut Op<'_>, ip: &FfsInode, size: u64) -> FsResult<()> {
        self.set_size(op, ip, size).await
    }

    async fn punch_hole(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        first: u64,
        end: u64,
    ) -> FsResult<u64> {
        self.punch_hole(op, ip, first, end).await
    }

    async fn is_mapped(&self, ip: &FfsInode, lbn: u64) -> FsResult<(bool, u64)> {
        self.block_is_mapped(ip, lbn).await
    }

    async fn address(&self, ip: &FfsInode, lbn: u64) -> FsResult<Option<u64>> {
        let address = self.lookup(ip, lbn).await?;
        Ok((address != 0).then(|| self.sb.byte_of(address)))
    }

    async fn cluster_complete(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        first: u64,
        count: u64,
    ) -> FsResult<()> {
        self.place_cluster(op, ip, first, count).await
    }

    async fn read_attributes(&self, ip: &FfsInode) -> FsResult<Rc<[u8]>> {
        self.read_area(ip).await
    }

    async fn write_attributes(&self, op: &mut Op<'_>, ip: &FfsInode, area: &[u8]) -> FsResult<()> {
        let none = ip.pointers().extsize == 0 && ip.pointers().extb == [0; 2];
        if area.is_empty() && none {
            return Ok(());
        }
        self.write_area(op, ip, area).await
    }

    async fn free_deferred(&self, op: &mut Op<'_>, step: DeferredFree) -> FsResult<()> {
        match step {
            DeferredFree::FreeBlock { address, frags } => {
                // The fragments may be from a log.
                self.may_be_freed(address, frags)?;
                self.free_now(op, address, frags).await
            }
            DeferredFree::FreeInode { ino, directory } => {
                self.free_inode_now(op, ino, directory).await
            }
            DeferredFree::Release { .. } => unreachable!("`ufs` releases inodes itself"),
        }
    }

    fn statfs(&self) -> StatFs {
        let allocation = self.allocation.borrow();
        let (frags, inodes) = self.cache.ordering().promised();
        let free = allocation.free_frags(&self.sb) + frags;
        StatFs {
            fragment_size: self.sb.fsize as u32,
            block_size: self.sb.bsize as u32,
            blocks: self.sb.dsize.max(0).cast_unsigned(),
            blocks_free: free,
            blocks_available: free.saturating_sub(AllocationSummary::reserve(&self.sb)),
            inodes: self.sb.inodes() - ROOT_INO,
            inodes_free: allocation.total.nifree.max(0).cast_unsigned() + inodes,
            name_max: 255,
        }
    }

    async fn fsync(&self, ip: &FfsInode, scope: SyncScope) -> FsResult<()> {
        let block = self.inode_buffer(ip.ino()).await?;
        let is_written = ip.pointers().is_written(&block);
        let settled = self.cache.ordering().settled();
        let contents_only = scope == SyncScope::Contents && settled.has(ip.ino());
        let inode = SyncedInode { ino: ip.ino(), block: &block, is_written, contents_only };
        let sync = settled.begin(ip.ino());
        self.cache.ordering().fsync(&self.cache, inode).await.map_err(io_error)?;
        // An earlier failure may concern blocks that lead to this file.
        self.cache.failure().map_or(Ok(()), |failure| Err(io_error(failure)))?;
        settled.end(sync);
        Ok(())
    }

    async fn sync(&self) -> FsResult<()> {
        if self.allocation.borrow().dirty {
            self.store_allocation(MountState::InUse).await?;
        }
        self.cache.ordering().sync(&self.cache).await.map_err(io_error)?;
        self.cache.flush_all().await.map_err(io_error)
    }

    async fn unmount(&self, read_only: bool) -> FsResult<()> {
        if read_only {
            return Ok(());
        }
        if let Some(failure) = self.cache.failure() {
            return Err(io_error(failure));
        }
        self.store_allocation(MountState::InUse).await?;
        self.cache.ordering().sync(&self.cache).await.map_err(io_error)?;
        self.cache.flush_all().await.map_err(io_error)?;
        // The superblock is marked clean last, when everything else is on the disk.
        self.store_allocation(MountState::Unmounted).await?;
        self.cache.flush_all().await.map_err(io_error)?;
        self.cache.ordering().close(&self.cache).await.map_err(io_error)
    }
}

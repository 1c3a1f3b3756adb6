//! Allocation of blocks and fragments.

use ordo_format::ufs2::Group;
use ordo_format::ufs2::bitmap::{block_bits, block_is_free, find_exact_run, next_clear, next_set};
use ordo_format::ufs2::superblock::{OPT_SPACE, OPT_TIME};
use ordo_ordering::{DeferredFree, Op, What};
use ordo_ufs::io_error;
use ordo_vfs::{Errno, FsError, FsResult};

use super::group_order;
use crate::allocation::AllocationSummary;
use crate::group::GroupChange;
use crate::{DIRECT, Ffs, FfsInode};

/// A run of fragments that was chosen in a group.
struct Choice {
    /// The run's first fragment, counted in the group.
    first: u32,
    /// Whether the run starts a wholly free block.
    block: bool,
}

impl Ffs {
    /// The preferred address of a file's block: the one after the block before it, with a gap
    /// between them where the tuning has one, or a new place for a first block and after every
    /// `maxbpg` blocks. The allocator may choose another.
    pub(crate) fn preference(&self, ip: &FfsInode, lbn: u64, previous: Option<u64>) -> u64 {
        let per_group = self.sb.maxbpg.max(1).cast_unsigned() as u64;
        if let Some(previous) = previous
            && !lbn.is_multiple_of(per_group)
        {
            return self.behind(previous, lbn);
        }
        let own = self.sb.ino_group(ip.ino());
        if lbn < DIRECT + self.sb.addresses_per_block() {
            return self.sb.cg_data(own);
        }
        // A large file moves on to a group that has more free blocks than the average.
        let start = match previous {
            Some(previous) => self.sb.frag_group(previous) + 1,
            None => own.wrapping_add((lbn / per_group) as u32),
        };
        let allocation = self.allocation.borrow();
        let average = allocation.total.nbfree / i64::from(self.sb.ncg);
        let cg = (0..self.sb.ncg)
            .map(|i| (u64::from(start) + u64::from(i)) % u64::from(self.sb.ncg))
            .find(|cg| i64::from(allocation.groups[*cg as usize].nbfree) >= average);
        cg.map_or(0, |cg| self.sb.cg_data(cg as u32))
    }

    /// The address for block `lbn` of a file behind the block before it.
    pub(crate) fn behind(&self, previous: u64, lbn: u64) -> u64 {
        let gap = self.tuning.gap_before(&self.sb, lbn);
        previous.saturating_add(self.sb.blocks_to_frags(1 + gap))
    }

    /// Whether `frags` more fragments can be allocated without touching the reserve.
    fn may_use(&self, frags: u32) -> bool {
        let allocation = self.allocation.borrow();
        let free = allocation.free_frags(&self.sb);
        let kept = if self.use_reserve { 0 } else { AllocationSummary::reserve(&self.sb) };
        free >= kept + u64::from(frags)
    }

    /// Allocates `frags` fragments of one block. Returns the address of the first.
    pub(crate) async fn allocate(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        preferred: u64,
        frags: u32,
    ) -> FsResult<u64> {
        loop {
            let found = self.allocate_once(op, ip, preferred, frags).await;
            let full = found.as_ref().is_err_and(|e| e.errno == Errno::NoSpace);
            // Deferred frees may free enough fragments.
            if !full || !self.cache.ordering().reclaim(&self.cache).await.map_err(io_error)? {
                return found;
            }
        }
    }

    async fn allocate_once(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        preferred: u64,
        frags: u32,
    ) -> FsResult<u64> {
        let no_space = || FsError::with_detail(Errno::NoSpace, "no free blocks");
        if !self.may_use(frags) {
            return Err(no_space());
        }
        let preferred = if self.sb.has_frags(preferred, 1) { preferred } else { 0 };
        let start = if preferred == 0 {
            self.sb.ino_group(ip.ino())
        } else {
            self.sb.frag_group(preferred)
        };
        for cg in group_order(start, self.sb.ncg) {
            if !self.group_has(cg, frags) {
                continue;
            }
            let within = (cg == start && preferred != 0).then(|| self.sb.frag_in_group(preferred));
            if let Some(address) = self.allocate_in(op, cg, within, frags).await? {
                return Ok(address);
            }
        }
        Err(no_space())
    }

    /// Whether a group may have the space, according to the summary.
    fn group_has(&self, cg: u32, frags: u32) -> bool {
        let counts = &self.allocation.borrow().groups[cg as usize];
        counts.nbfree > 0 || (frags < self.frag() && counts.nffree >= frags.cast_signed())
    }

    async fn allocate_in(
        &self,
        op: &mut Op<'_>,
        cg: u32,
        preferred: Option<u32>,
        frags: u32,
    ) -> FsResult<Option<u64>> {
        let buf = self.group(cg).await?;
        let mut change;
        let (choice, address, admitted) = loop {
            let Some(choice) = self.choose(cg, &buf.read(), preferred, frags)? else {
                return Ok(None);
            };
            let address = self.sb.cg_base(cg) + u64::from(choice.first);
            if !self.sb.has_frags(address, frags.into()) || self.sb.is_own(address, frags.into()) {
                return Err(
                    self.group_corrupt(cg, "fragments that are not for files are marked as free")
                );
            }
            let what = What::AllocateBlock { address, frags };
            change = GroupChange::new(cg, what);
            let admitted = self.admit_group(op, &change).await?;
            // Another operation may have taken the fragments while this one waited. Then other
            // fragments are chosen.
            if self.are_free(&buf.read(), choice.first, frags) {
                break (choice, address, admitted);
            }
        };
        let map = self.map_bytes(&buf.read(), choice.first);
        let changed = self.edit_group(op, &buf, map, admitted, |group| {
            if choice.block && frags == self.frag() {
                group.header.rotor = choice.first;
            } else {
                group.header.frotor = choice.first;
            }
            group.change_frags(choice.first, frags, false)
        });
        changed.map_err(|_| self.group_corrupt(cg, "its bitmap changed while it was used"))?;
        Ok(Some(address))
    }

    /// Whether fragments of one block are free in a group.
    fn are_free(&self, bytes: &[u8], first: u32, frags: u32) -> bool {
        let map = &bytes[Group::decode(bytes, self.endian).layout(&self.sb).frags];
        next_clear(map, first, first + frags).is_none()
    }

    /// The bytes of the fragment bitmap that hold a block, as a range of the group's bytes.
    fn map_bytes(&self, bytes: &[u8], first: u32) -> std::ops::Range<usize> {
        let header = Group::decode(bytes, self.endian);
        let start = header.freeoff as usize + (first / 8) as usize;
        start..start + 1
    }

    /// Chooses fragments in a group, and changes nothing.
    fn choose(
        &self,
        cg: u32,
        bytes: &[u8],
        preferred: Option<u32>,
        frags: u32,
    ) -> FsResult<Option<Choice>> {
        let header = Group::decode(bytes, self.endian);
        let layout = header.layout(&self.sb);
        let map = &bytes[layout.frags];
        let frag = self.frag();
        let blocks = header.ndblk / frag;
        if frags < frag {
            // The smallest free run that suffices is taken, so that larger ones stay whole.
            let size = (frags..frag).find(|n| header.frsum[*n as usize] > 0);
            if let Some(size) = size {
                let from = preferred.unwrap_or(header.frotor) / frag;
                let found = find_run(map, from, header.ndblk, frag, size);
                return match found {
                    Some(first) => Ok(Some(Choice { first, block: false })),
                    None => Err(self.group_corrupt(
                        cg,
                        format_args!(
                            "frsum counts a run of {size} free fragments, but there is none"
                        ),
                    )),
                };
            }
        }
        if header.cs.nbfree <= 0 {
            return Ok(None);
        }
        let from = preferred.unwrap_or(header.rotor) / frag;
        match find_block(map, from, blocks, frag) {
            Some(blk) => Ok(Some(Choice { first: blk * frag, block: true })),
            None => Err(self.group_corrupt(cg, "nbfree counts a free block, but there is none")),
        }
    }

    /// Marks fragments as free, at once or when the ordering allows it. The caller has forgotten
    /// their buffers and reset the pointer to them.
    pub(crate) async fn free(&self, op: &mut Op<'_>, address: u64, frags: u32) -> FsResult<()> {
        self.may_be_freed(address, frags)?;
        match op.defer(DeferredFree::FreeBlock { address, frags }) {
            Some(_) => self.free_now(op, address, frags).await,
            None => Ok(()),
        }
    }

    /// Whether fragments can belong to one block of a file. A damaged inode or log may name any.
    ///
    /// # Errors
    /// `Corrupt`: they cannot.
    pub(crate) fn may_be_freed(&self, address: u64, frags: u32) -> FsResult<()> {
        let (count, block) = (u64::from(frags), u64::from(self.frag()));
        let is_in_block = address % block + count <= block;
        if !is_in_block || !self.sb.has_frags(address, count) || self.sb.is_own(address, count) {
            return Err(FsError::corrupt(format_args!(
                "fragment {address} is to be freed, but cannot belong to a file; run a check (fsck)"
            )));
        }
        Ok(())
    }

    pub(crate) async fn free_now(&self, op: &mut Op<'_>, address: u64, frags: u32) -> FsResult<()> {
        let cg = self.sb.frag_group(address);
        let first = self.sb.frag_in_group(address);
        let buf = self.group(cg).await?;
        let change = GroupChange::new(cg, What::FreeBlock { address, frags });
        let admitted = self.admit_group(op, &change).await?;
        let map = self.map_bytes(&buf.read(), first);
        let changed = self
            .edit_group(op, &buf, map, admitted, |group| group.change_frags(first, frags, true));
        changed.map_err(|_| {
            self.group_corrupt(
                cg,
                format_args!("fragment {address} is to be freed, but is free already"),
            )
        })
    }

    /// Allocates the fragments that follow a run at `address`, so that it grows in place from `old`
    /// to `new` fragments. Returns false if they are not free.
    pub(crate) async fn extend(
        &self,
        op: &mut Op<'_>,
        address: u64,
        old: u32,
        new: u32,
    ) -> FsResult<bool> {
        let frag = self.frag();
        let first = self.sb.frag_in_group(address);
        if first % frag + new > frag || !self.may_use(new - old) {
            return Ok(false);
        }
        let cg = self.sb.frag_group(address);
        let buf = self.group(cg).await?;
        let what = What::AllocateBlock { address: address + u64::from(old), frags: new - old };
        let change = GroupChange::new(cg, what);
        let admitted = self.admit_group(op, &change).await?;
        let map = self.map_bytes(&buf.read(), first);
        let run = first + old..first + new;
        let free = {
            let bytes = buf.read();
            let header = Group::decode(&bytes, self.endian);
            let map = &bytes[header.layout(&self.sb).frags];
            run.end <= header.ndblk && next_clear(map, run.start, run.end).is_none()
        };
        if !free {
            return Ok(false);
        }
        let changed = self.edit_group(op, &buf, map, admitted, |group| {
            group.change_frags(run.start, new - old, false)
        });
        changed.map_err(|_| self.group_corrupt(cg, "its bitmap changed while it was used"))?;
        Ok(true)
    }

    /// The number of fragments to allocate for a run that must move. The number is the one that is
    /// needed. While free space is not fragmented it is a whole block instead, whose unneeded
    /// fragments are freed again, so that the run can grow into them.
    pub(crate) fn fragments_to_ask(&self, needed: u32) -> u32 {
        let mut allocation = self.allocation.borrow_mut();
        let broken = allocation.total.nffree.max(0).cast_unsigned();
        let size = self.sb.dsize.max(0).cast_unsigned();
        let minfree = self.sb.minfree.max(0).cast_unsigned() as u64;
        if allocation.optim == OPT_TIME {
            if broken >= size * minfree.saturating_sub(2) / 100 && minfree >= 2 {
                allocation.optim = OPT_SPACE;
            }
            self.frag()
        } else {
            if minfree >= 5 && broken <= size * minfree / 200 {
                allocation.optim = OPT_TIME;
            }
            needed
        }
    }
}

/// The first wholly free block from `from` on, with wrap-around.
fn find_block(map: &[u8], from: u32, blocks: u32, frag: u32) -> Option<u32> {
    let from = if from < blocks { from } else { 0 };
    search_block(map, from, blocks, frag).or_else(|| search_block(map, 0, from, frag))
}

fn search_block(map: &[u8], from: u32, to: u32, frag: u32) -> Option<u32> {
    let mut blk = from;
    while blk < to {
        // Skips used fragments a byte of the bitmap at a time.
        blk = next_set(map, blk * frag, to * frag)? / frag;
        if block_is_free(map, blk, frag) {
            return Some(blk);
        }
        blk += 1;
    }
    None
}

/// The first run of exactly `size` free fragments from block `from` on, with wrap-around.
fn find_run(map: &[u8], from: u32, frags: u32, frag: u32, size: u32) -> Option<u32> {
    let blocks = frags.div_ceil(frag);
    let from = if from < blocks { from } else { 0 };
    let search = |from: u32, to: u32| {
        let mut blk = from;
        while blk < to {
            blk = next_set(map, blk * frag, (to * frag).min(map.len() as u32 * 8))? / frag;
            let bits = block_bits(map, blk, frag);
            if !block_is_free(map, blk, frag)
                && let Some(at) = find_exact_run(bits, frag, size)
            {
                return Some(blk * frag + at);
            }
            blk += 1;
        }
        None
    };
    search(from, blocks).or_else(|| search(0, from))
}

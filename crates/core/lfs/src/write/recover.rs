//! Rolling forward for a mount that writes: applies the log behind the checkpoint to the state in
//! memory.
//!
//! Inodes in the log replace those of the checkpoint. The number of live bytes changes by the
//! difference between the trees of blocks of the old and the new inode. Blocks never change in
//! place, so equal pointers lead to equal trees, and only unequal pointers are followed.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, Device};
use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::{IFILE_INO, LfsInode, NDADDR, NIADDR, NO_ADDRESS, PsegBlock};
use ordo_runtime::sync::buffer_unordered;

use super::copy::MetadataCopy;
use super::ifile::{Ifile, next_of};
use super::state::{LogState, NANOS};
use super::store::{has_pointers, is_set};
use crate::LfsError;
use crate::data::{CopySide, DataAllocator, DualRules};
use crate::disk::{CACHE_BYTES, LogDisk};
use crate::error::LogDamage;
use crate::log::{self, LogScan};
use crate::map;

/// A block that is in the log behind the last copy of its inode. Its inode does not point to it
/// yet.
#[derive(Clone, Debug)]
pub struct TrailingBlock {
    pub ino: u64,
    pub version: u32,
    pub number: u64,
    pub addr: i64,
    pub bytes: u32,
}

/// The state of the log after recovery.
pub struct RecoveredLog {
    pub state: LogState,
    /// Blocks that still have to be put into their files.
    pub trailing: Vec<TrailingBlock>,
    /// Whether there are partial segments behind the checkpoint, even if they do not count.
    pub rolled: bool,
    /// Whether the partial segments of the log have seals. Later ones get seals too, or none.
    pub sealed: bool,
}

/// Reads the checkpoint and the log behind it. `is_only` says that no mount could start from
/// another checkpoint.
///
/// # Errors
/// The IFILE or an inode in the log cannot be right, or the device failed.
pub async fn recover(
    disk: &LogDisk,
    allocator: Option<Box<dyn DataAllocator>>,
    copy: Option<(Device, CopySide, DualRules)>,
    is_only: bool,
) -> Result<RecoveredLog, LfsError> {
    let inode = map::load_ifile(disk).await?;
    let ifile = Ifile::read(disk, inode).await?;
    let mut state = LogState::new(disk.sb.clone(), ifile, disk.device.geometry().max_request);
    if let Some(mut allocator) = allocator {
        allocator.load(state.ifile.tables(&disk.sb)).map_err(LfsError::Groups)?;
        state.data = Some(allocator);
    }
    if let Some(copy) = copy {
        state.copy = Some(MetadataCopy::load(disk, &state.ifile, copy).await?);
    }
    let log = log::read(disk).await?;
    for pseg in &log.psegs {
        count(&mut state, pseg);
    }
    if is_only {
        state.use_empty();
    }
    if let Some(last) = log.psegs.last() {
        let segment = disk.sb.segment_of(last.at).unwrap_or(0);
        let head = &last.summary.head;
        state.set_end(segment, last.end, head.next, head.serial);
    }
    let sealed = match log.psegs.last() {
        Some(last) => last.summary.is_sealed(),
        None => log::is_sealed(disk).await?,
    };
    let (moved, trailing) = inodes_of(disk, &log);
    let mut contents = Contents::default();
    read_old_inodes(disk, &state, &moved).await;
    for (ino, (addr, inode)) in moved {
        take_inode(disk, &mut state, &mut contents, (ino, addr), &inode).await?;
    }
    if let Some(data) = &mut state.data {
        data.roll(&contents.freed, &contents.allocated);
    }
    let sb = state.sb.clone();
    state.ifile.relink_free(&sb);
    let rolled = !log.psegs.is_empty() || log.incomplete > 0;
    Ok(RecoveredLog { state, trailing, rolled, sealed })
}

/// Counts a partial segment in the usage of its segment.
fn count(state: &mut LogState, pseg: &log::PartialSegment) {
    let Some(segment) = state.sb.segment_of(pseg.at) else { return };
    let current = state.current();
    if segment != current {
        state.begin_segment(current, segment);
        state.sb.lastseg = state.sb.curseg;
        state.sb.curseg = state.sb.segment_start(segment);
    }
    let blocks = pseg.blocks.iter().filter(|b| matches!(b, PsegBlock::Inodes { .. })).count();
    state.change_seguse(segment, |s| {
        s.flags |= seg_flag::DIRTY;
        s.nsums = s.nsums.saturating_add(1);
        s.ninos = s.ninos.saturating_add(blocks as u16);
    });
    let time = pseg.summary.head.create.saturating_mul(NANOS);
    state.note_written(segment, time);
    state.note_new(segment, time);
}

/// Inodes by number, each with the address of its block.
type Moved = BTreeMap<u64, (i64, LfsInode)>;

/// The last copy of each inode in the log, and the blocks behind the last copy of their inode.
fn inodes_of(disk: &LogDisk, log: &LogScan) -> (Moved, Vec<TrailingBlock>) {
    let sb = &disk.sb;
    let mut moved = Moved::new();
    let mut trailing: BTreeMap<u64, BTreeMap<u64, TrailingBlock>> = BTreeMap::new();
    let each = log.psegs.iter().flat_map(|pseg| pseg.blocks.iter().map(move |block| (pseg, block)));
    for (pseg, block) in each {
        match *block {
            PsegBlock::Inodes { addr } => {
                for raw in pseg.inode_block(addr).chunks_exact(sb.width.inode_size()) {
                    let inode = LfsInode::read(sb.width, raw);
                    if inode.inumber > IFILE_INO {
                        trailing.remove(&inode.inumber);
                        moved.insert(inode.inumber, (addr, inode));
                    }
                }
            }
            PsegBlock::File { ino, lbn, .. } if ino == IFILE_INO || lbn < 0 => {}
            // Contents on a data device are never in the log, and metadata is always written with
            // its inode.
            PsegBlock::File { .. } if disk.data.is_some() => {}
            PsegBlock::File { addr, bytes, ino, version, lbn } => {
                let number = lbn.cast_unsigned();
                let block = TrailingBlock { ino, version, number, addr, bytes };
                trailing.entry(ino).or_default().insert(number, block);
            }
        }
    }
    (moved, trailing.into_values().flat_map(BTreeMap::into_values).collect())
}

/// The most bytes of blocks of inodes that are read before they are needed: half of what the cache
/// of metadata holds.
const OLD_INODES_MAX: usize = CACHE_BYTES / 2;
/// The requests for them that are under way at a time.
const OLD_INODES_AT_A_TIME: usize = 32;

/// Reads the blocks in which inodes were at the checkpoint, in order of their addresses. An error
/// is reported when the inode is needed.
async fn read_old_inodes(disk: &LogDisk, state: &LogState, moved: &Moved) {
    let sb = &disk.sb;
    let old = moved.keys().filter(|ino| **ino < state.ifile.inodes(sb));
    let old = old.filter(|ino| !state.ifile.is_free(**ino));
    let places: BTreeMap<i64, u64> =
        old.map(|ino| (state.ifile.entry(sb, *ino).daddr, *ino)).filter(|old| old.0 > 0).collect();
    let reads = places
        .into_iter()
        .take(OLD_INODES_MAX / sb.ibsize as usize)
        .map(|(addr, ino)| disk.metadata(LogDamage::Inode(ino), addr, sb.ibsize));
    let ignored = |_, read: Result<_, LfsError>| {
        drop(read);
        Ok::<_, LfsError>(())
    };
    let done = buffer_unordered(OLD_INODES_AT_A_TIME, reads, ignored).await;
    done.expect("errors are ignored");
}

/// Replaces an inode of the checkpoint by the one in the log.
async fn take_inode(
    disk: &LogDisk,
    state: &mut LogState,
    contents: &mut Contents,
    (ino, addr): (u64, i64),
    inode: &LfsInode,
) -> Result<(), LfsError> {
    let sb = state.sb.clone();
    // An inode number cannot exceed the number of inodes that fit on the device.
    let most = sb.size * u64::from(sb.fsize) / LfsInode::SIZE as u64;
    if ino >= most {
        return Err(LfsError::InodeNumber { ino, count: state.ifile.inodes(&sb) });
    }
    while ino >= state.ifile.inodes(&sb) {
        let added = state.ifile.grow(&sb);
        state.pending += added * u64::from(sb.bsize);
    }
    let was_free = state.ifile.is_free(ino);
    let old = state.ifile.entry(&sb, ino).daddr;
    let before = match old > 0 && !was_free {
        true => Some(map::load(disk, ino, old).await?.inode),
        false => None,
    };
    let now = Some(inode).filter(|inode| inode.nlink > 0);
    if inode.size > sb.right_maxfilesize() {
        return Err(LfsError::InodeSize { ino, size: inode.size });
    }
    let left = sb.size + disk.data.as_ref().map_or(0, |data| data.shape.blocks);
    Diff { disk, state, contents, ino, left }.trees(before.as_ref(), now).await?;
    if let Some(data) = &mut state.data {
        before.iter().for_each(|inode| data.count_inode(inode.blksize, -1));
        now.iter().for_each(|inode| data.count_inode(inode.blksize, 1));
    }
    if before.is_some() {
        state.sub_live(old, LfsInode::SIZE as u64);
    }
    match now {
        Some(inode) => {
            state.ifile.take_this(&sb, ino);
            state.add_live(addr, LfsInode::SIZE as u64);
            state.sb.nfiles += u64::from(was_free);
            state.ifile.change_entry(&sb, ino, |entry| {
                (entry.daddr, entry.nextfree) = (addr, next_of(inode.nlink));
                entry.version = entry.version.max(inode.generation);
            });
        }
        None => {
            let version = inode.generation.saturating_add(1);
            if !was_free {
                state.sb.nfiles = state.sb.nfiles.saturating_sub(1);
                state.ifile.free_inode(&sb, ino, version);
            } else {
                let raise = |v: u32| v.max(version);
                state.ifile.change_entry(&sb, ino, |entry| entry.version = raise(entry.version));
            }
        }
    }
    Ok(())
}

/// Blocks of the data device that files lost and gained. One file may have gained a block that
/// another one lost, so all losses are applied before all gains.
#[derive(Default)]
struct Contents {
    freed: Vec<i64>,
    allocated: Vec<i64>,
}

/// A block of a file: its address, its length, and whether it is on the data device.
type Leaf = Option<(i64, u64, bool)>;

/// Counts the difference between two states of a file.
struct Diff<'a> {
    disk: &'a LogDisk,
    state: &'a mut LogState,
    contents: &'a mut Contents,
    ino: u64,
    /// The number of blocks that may still be visited. More blocks than the devices have would be a
    /// loop.
    left: u64,
}

impl Diff<'_> {
    async fn trees(
        &mut self,
        old: Option<&LfsInode>,
        new: Option<&LfsInode>,
    ) -> Result<(), LfsError> {
        let sb = self.disk.sb.clone();
        let old = old.filter(|inode| has_pointers(&sb, inode.mode, inode.size));
        let new = new.filter(|inode| has_pointers(&sb, inode.mode, inode.size));
        let is_on_data =
            |inode: Option<&LfsInode>| inode.is_some_and(|i| self.disk.data_of(i).is_some());
        let apart = (is_on_data(old), is_on_data(new));
        for slot in 0..NDADDR {
            let one = |inode: Option<&LfsInode>, is_on_data| {
                let inode = inode?;
                let bytes = sb.block_bytes(slot as u64, inode.size);
                is_set(inode.db[slot]).then_some((inode.db[slot], bytes, is_on_data))
            };
            let (old, new) = (one(old, apart.0), one(new, apart.1));
            if old != new {
                self.count(old, new)?;
            }
        }
        let root = |inode: Option<&LfsInode>, tree: usize| inode.map_or(NO_ADDRESS, |i| i.ib[tree]);
        let roots = (0..NIADDR).map(|tree| (root(old, tree), root(new, tree), tree + 1));
        let mut todo: Vec<(i64, i64, usize)> = roots.collect();
        while let Some((old, new, level)) = todo.pop() {
            let apart = if level == 0 { apart } else { (false, false) };
            // Equal numbers may stand for blocks of different devices.
            if old == new && (apart.0 == apart.1 || old <= 0) {
                continue;
            }
            let spent = LfsError::InodeSize { ino: self.ino, size: sb.size };
            self.left = self.left.checked_sub(1).ok_or(spent)?;
            let bytes = u64::from(sb.bsize);
            let one = |addr: i64, is_on_data| (addr > 0).then_some((addr, bytes, is_on_data));
            self.count(one(old, apart.0), one(new, apart.1))?;
            if level > 0 {
                let (old, new) = (self.pointers(old).await?, self.pointers(new).await?);
                todo.extend(old.into_iter().zip(new).map(|(o, n)| (o, n, level - 1)));
            }
        }
        Ok(())
    }

    fn count(&mut self, old: Leaf, new: Leaf) -> Result<(), LfsError> {
        match old {
            Some((addr, _, true)) => self.contents.freed.push(self.checked_contents(addr)?),
            Some((addr, bytes, false)) => self.state.sub_live(addr, bytes),
            None => {}
        }
        match new {
            Some((addr, _, true)) if addr > 0 => {
                self.contents.allocated.push(self.checked_contents(addr)?)
            }
            Some((addr, bytes, false)) => self.state.add_live(addr, bytes),
            _ => {}
        }
        Ok(())
    }

    /// Checks that a pointer to contents leads to a block of the data device, and returns it.
    fn checked_contents(&self, addr: i64) -> Result<i64, LfsError> {
        let data = self.disk.data.as_ref().expect("the contents are on the data device");
        match data.shape.holds(addr) {
            true => Ok(addr),
            false => {
                let (what, blocks) = (LogDamage::Block(self.ino, 0), data.shape.blocks);
                Err(LfsError::Contents { what, addr, blocks })
            }
        }
    }

    /// The pointers in an indirect block; all are unset if there is no block.
    async fn pointers(&self, addr: i64) -> Result<Vec<i64>, LfsError> {
        let sb = &self.disk.sb;
        let count = sb.nindir as usize;
        if addr <= 0 {
            return Ok(vec![NO_ADDRESS; count]);
        }
        let block = self.disk.read(LogDamage::Block(self.ino, -1), addr, sb.frag).await?;
        let size = sb.width.pointer_size();
        Ok((0..count).map(|i| sb.width.pointer(&block, i * size)).collect())
    }
}

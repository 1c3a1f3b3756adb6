//! The state of the log: segments, their live bytes, the place of the next write, the free space.
//!
//! Live bytes are counted for the state in memory. They are exact when everything is written, which
//! is the case at each checkpoint.

use std::collections::BTreeSet;

use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::{LABEL_BYTES, LfsInode, NDADDR, SUPERBLOCK_PAD, SegUse, Superblock};

use super::copy::MetadataCopy;
use super::ifile::Ifile;
use crate::data::DataAllocator;

/// The number of nanoseconds in a second.
pub const NANOS: u64 = 1_000_000_000;

/// The state of the log.
pub struct LogState {
    /// The superblock that the next checkpoint writes.
    pub sb: Superblock,
    pub ifile: Ifile,
    /// Whether a segment can be written: it is clean in the last checkpoint on the device.
    usable: Vec<bool>,
    /// Whether a segment had no live bytes at the last checkpoint.
    was_empty: Vec<bool>,
    /// The same for a checkpoint that is being written. Operations go on meanwhile, and free blocks
    /// that it has as live.
    empty_in_next: Vec<bool>,
    /// The number of times that a segment was begun since the mount.
    epochs: Vec<u32>,
    /// The time at which a segment was last written, in nanoseconds since 1970. The device has it
    /// in seconds.
    written: Vec<u64>,
    /// The time at which the youngest block of a segment was written first, in nanoseconds since
    /// 1970. Blocks that the cleaner moves may keep their age. The device does not have these
    /// times.
    youngest: Vec<u64>,
    /// The live bytes of all segments.
    live: u64,
    /// The bytes of blocks that have no address yet.
    pub pending: u64,
    /// The space in segments that can be written, in fragments, without the current segment.
    clean_frags: i64,
    /// The number of segments begun since the last checkpoint.
    pub begun: u32,
    /// Free inodes that may still be files on the device. The next write-out records their removal.
    pub tombstones: BTreeSet<u64>,
    /// Files whose sizes have changed since the last write-out. Their blocks on a data device may
    /// have to be there before the inode with the new size.
    pub resized: BTreeSet<u64>,
    /// Segments into which a write-out is under way.
    pub in_flight: BTreeSet<u64>,
    /// The most bytes of one request to the device.
    pub bytes_max: usize,
    /// The allocator of the data device, if there is one.
    pub data: Option<Box<dyn DataAllocator>>,
    /// The copy of the metadata on the data device, if there is one.
    pub copy: Option<MetadataCopy>,
}

impl LogState {
    /// The state of a log at a checkpoint, on a device that takes requests of `bytes_max` bytes.
    pub fn new(sb: Superblock, ifile: Ifile, bytes_max: usize) -> LogState {
        let count = sb.nseg as usize;
        let mut state = LogState {
            sb,
            ifile,
            usable: vec![false; count],
            was_empty: vec![false; count],
            empty_in_next: vec![false; count],
            epochs: vec![0; count],
            written: vec![0; count],
            youngest: vec![0; count],
            live: 0,
            pending: 0,
            clean_frags: 0,
            begun: 0,
            tombstones: BTreeSet::new(),
            resized: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            bytes_max,
            data: None,
            copy: None,
        };
        for segment in 0..count as u64 {
            let seguse = state.seguse(segment);
            state.written[segment as usize] = seguse.lastmod.saturating_mul(NANOS);
            state.youngest[segment as usize] = state.written[segment as usize];
            if seguse.is_dirty() {
                state.live += u64::from(seguse.nbytes);
                state.was_empty[segment as usize] = seguse.nbytes == 0;
            }
        }
        state.find_usable();
        state
    }

    /// The usage of a segment.
    pub fn seguse(&self, segment: u64) -> SegUse {
        self.ifile.seguse(&self.sb, segment)
    }

    /// Changes the usage of a segment.
    pub fn change_seguse(&mut self, segment: u64, change: impl FnOnce(&mut SegUse)) {
        let mut seguse = self.seguse(segment);
        change(&mut seguse);
        self.ifile.set_seguse(&self.sb, segment, &seguse);
    }

    /// The time at which a segment was last written, in nanoseconds since 1970.
    pub fn written(&self, segment: u64) -> u64 {
        self.written[segment as usize]
    }

    /// The time at which the youngest block of a segment was new, in nanoseconds since 1970.
    pub fn youngest(&self, segment: u64) -> u64 {
        self.youngest[segment as usize]
    }

    /// Notes that a segment is written at `time`, in nanoseconds since 1970.
    pub fn note_written(&mut self, segment: u64, time: u64) {
        self.written[segment as usize] = time;
        self.change_seguse(segment, |s| s.lastmod = time / NANOS);
    }

    /// Notes that a segment has a block that was new at `time`, in nanoseconds since 1970.
    pub fn note_new(&mut self, segment: u64, time: u64) {
        let youngest = &mut self.youngest[segment as usize];
        *youngest = time.max(*youngest);
    }

    /// Notes that bytes at `addr` have become live.
    pub fn add_live(&mut self, addr: i64, bytes: u64) {
        if let Some(segment) = self.sb.segment_of(addr) {
            self.change_seguse(segment, |s| s.nbytes = s.nbytes.saturating_add(bytes as u32));
            self.live += bytes;
            self.copy.iter_mut().for_each(|copy| copy.add(addr, bytes));
        }
    }

    /// Notes that bytes at `addr` are no longer live.
    pub fn sub_live(&mut self, addr: i64, bytes: u64) {
        if let Some(segment) = self.sb.segment_of(addr) {
            // The count on a damaged image may be too low.
            self.change_seguse(segment, |s| s.nbytes = s.nbytes.saturating_sub(bytes as u32));
            self.live = self.live.saturating_sub(bytes);
            self.copy.iter_mut().for_each(|copy| copy.sub(addr, bytes));
        }
    }

    /// The segment that is being written.
    pub fn current(&self) -> u64 {
        self.sb.segment_of(self.sb.curseg).expect("checked when it was read")
    }

    fn next(&self) -> u64 {
        self.sb.segment_of(self.sb.nextseg).expect("checked when it was read")
    }

    /// The number of times that a segment was begun since the mount.
    pub fn epoch(&self, segment: u64) -> u32 {
        self.epochs[segment as usize]
    }

    /// The number of times that the segment of an address was begun since the mount. Old contents
    /// of the address have a lower number than new ones.
    pub fn epoch_of(&self, addr: i64) -> u32 {
        self.sb.segment_of(addr).map_or(0, |segment| self.epoch(segment))
    }

    /// The most fragments of a segment that partial segments may waste, with the unused end of the
    /// segment.
    fn waste(&self) -> i64 {
        self.sb.block_frags() + 2 * i64::from(self.sb.sumsize / self.sb.fsize)
    }

    /// The number of fragments of a segment that can certainly be used.
    pub fn capacity(&self, segment: u64) -> i64 {
        let used = self.sb.segment_data(segment) - self.sb.segment_start(segment);
        (i64::from(self.sb.fsbpseg) - used - self.waste()).max(0)
    }

    /// Finds the segments that can be written: those that are clean in a checkpoint on the device.
    fn find_usable(&mut self) {
        let (current, mut sum) = (self.current(), 0);
        for segment in 0..u64::from(self.sb.nseg) {
            let seguse = self.seguse(segment);
            let barred = seg_flag::DIRTY | seg_flag::ERROR | seg_flag::INVAL;
            let usable = seguse.flags & barred == 0 && segment != current;
            self.usable[segment as usize] = usable;
            if usable {
                sum += self.capacity(segment);
            }
        }
        self.clean_frags = sum;
    }

    /// Makes usable the segments that were empty at the checkpoint of the mount and have not been
    /// begun since. This is sound only if no mount can start from another checkpoint, because the
    /// other superblock is damaged. A segment that was empty at the older checkpoint and clean at
    /// the newer one may hold the log behind the newer one, so the older one alone can have no
    /// other space left.
    pub fn use_empty(&mut self) {
        let current = self.current();
        for segment in 0..u64::from(self.sb.nseg) {
            let is_damaged = self.seguse(segment).flags & (seg_flag::ERROR | seg_flag::INVAL) != 0;
            let index = segment as usize;
            if self.was_empty[index] && !self.usable[index] && segment != current && !is_damaged {
                self.usable[index] = true;
                self.clean_frags += self.capacity(segment);
            }
        }
    }

    /// The number of fragments that can certainly be written. One segment is not counted, because
    /// the log must always have a next segment.
    pub fn space(&self) -> i64 {
        let rest = self.sb.segment_start(self.current() + 1) - self.sb.offset - self.waste();
        self.clean_frags + rest.max(0) - i64::from(self.sb.fsbpseg)
    }

    /// The bytes in use, including those of blocks that have no address yet.
    pub fn used(&self) -> u64 {
        self.live + self.pending
    }

    /// The first segment behind the chosen next one that can be written. The search wraps around.
    fn choose_next(&self) -> Option<u64> {
        let (count, next) = (u64::from(self.sb.nseg), self.next());
        let all = (1..count).map(|i| (next + i) % count);
        all.into_iter().find(|segment| self.usable[*segment as usize])
    }

    /// Continues the log in the next segment. Returns false, and changes nothing, if no segment
    /// could follow that one.
    #[must_use]
    pub fn advance(&mut self) -> bool {
        let (old, new) = (self.current(), self.next());
        let Some(after) = self.choose_next() else { return false };
        self.begin_segment(old, new);
        self.sb.lastseg = self.sb.curseg;
        self.sb.curseg = self.sb.segment_start(new);
        self.sb.offset = self.sb.segment_data(new);
        self.sb.nextseg = self.sb.segment_start(after);
        true
    }

    /// Notes that the log continues in another segment.
    pub fn begin_segment(&mut self, old: u64, new: u64) {
        self.change_seguse(old, |s| s.flags &= !seg_flag::ACTIVE);
        let mut left = 0;
        self.change_seguse(new, |s| {
            left = u64::from(s.nbytes);
            (s.nbytes, s.nsums, s.ninos) = (0, 0, 0);
            s.flags = s.flags & !seg_flag::EMPTY | seg_flag::ACTIVE | seg_flag::DIRTY;
        });
        self.live = self.live.saturating_sub(left);
        self.youngest[new as usize] = 0;
        // The log from the last checkpoint on has partial segments here.
        self.was_empty[new as usize] = false;
        self.epochs[new as usize] += 1;
        self.begun += 1;
        if std::mem::replace(&mut self.usable[new as usize], false) {
            self.clean_frags -= self.capacity(new);
        }
    }

    /// Sets the end of the log that rolling forward has found.
    pub fn set_end(&mut self, curseg: u64, offset: i64, next: i64, serial: u64) {
        self.sb.curseg = self.sb.segment_start(curseg);
        (self.sb.offset, self.sb.lastpseg, self.sb.serial) = (offset, offset, serial);
        let is_start = self.sb.segment_of(next).filter(|s| self.sb.segment_start(*s) == next);
        if is_start.is_some_and(|s| self.usable[s as usize]) {
            self.sb.nextseg = next;
        } else if let Some(other) = self.choose_next() {
            self.sb.nextseg = self.sb.segment_start(other);
        }
    }

    /// Whether the current segment has space for another partial segment.
    pub fn has_free_space(&self) -> bool {
        let end = self.sb.segment_start(self.current() + 1);
        let least = self.sb.block_frags() + i64::from(self.sb.sumsize / self.sb.fsize);
        end - self.sb.offset > least
    }

    /// Marks as clean the segments that are empty now and, with `twice`, were also empty at the
    /// last checkpoint.
    pub fn retire(&mut self, twice: bool) {
        let current = self.current();
        for segment in 0..u64::from(self.sb.nseg) {
            let seguse = self.seguse(segment);
            if !seguse.is_dirty() || segment == current {
                continue;
            }
            let is_empty = seguse.nbytes == 0;
            if is_empty && (self.was_empty[segment as usize] || !twice) {
                self.change_seguse(segment, |s| {
                    (s.nsums, s.ninos) = (0, 0);
                    s.flags = s.flags & !seg_flag::DIRTY | seg_flag::EMPTY;
                });
            }
        }
    }

    /// Whether a segment has no live bytes and needs only checkpoints before it can be used.
    pub fn has_empty(&self) -> bool {
        let current = self.current();
        let mut all = 0..u64::from(self.sb.nseg);
        all.any(|segment| {
            let seguse = self.seguse(segment);
            seguse.is_dirty() && seguse.nbytes == 0 && segment != current
        })
    }

    /// Notes which segments are empty in the checkpoint that was just gathered.
    pub fn checkpoint_gathered(&mut self) {
        for segment in 0..self.sb.nseg as usize {
            let seguse = self.seguse(segment as u64);
            self.empty_in_next[segment] = seguse.is_dirty() && seguse.nbytes == 0;
        }
    }

    /// Notes that the checkpoint is on the device.
    pub fn checkpoint_done(&mut self) {
        self.was_empty.clone_from(&self.empty_in_next);
        self.begun = 0;
        self.find_usable();
    }

    /// Computes the totals of a checkpoint as fsck_lfs does, and stores them in the superblock and
    /// in the IFILE.
    pub fn total(&mut self) {
        let sb = &self.sb;
        let frags = |bytes: u64| (bytes / u64::from(sb.fsize)) as i64;
        let (mut least, mut most, mut dmeta, mut avail, mut nclean) = (0, 0, 0, 0, 0u32);
        let label = sb.frags_of(LABEL_BYTES);
        for segment in 0..u64::from(sb.nseg) {
            let seguse = self.seguse(segment);
            if seguse.is_dirty() {
                let sums = u64::from(seguse.nsums) * u64::from(sb.sumsize);
                let inodes = u64::from(seguse.ninos) * u64::from(sb.ibsize);
                least += frags(u64::from(seguse.nbytes) + sums);
                most += frags(u64::from(seguse.nbytes) + sums + inodes);
                dmeta += frags(sums) + frags(inodes);
                continue;
            }
            nclean += 1;
            avail += i64::from(sb.fsbpseg);
            if seguse.has_superblock() {
                avail -= sb.frags_of(SUPERBLOCK_PAD);
            }
            if segment == 0 && sb.s0addr < label {
                avail -= label - sb.s0addr;
            }
        }
        let last = sb.segment_start(sb.nseg.into()) - 1;
        let current = sb.segment_of(sb.offset.min(last)).unwrap_or(0);
        avail += sb.segment_start(current + 1) - sb.offset;
        avail -= i64::from(sb.fsbpseg) * i64::from(sb.minfreeseg - sb.minfreeseg / 2);
        let skew = if sb.s0addr < label { label } else { 0 };
        let bfree = sb.dsize as i64 - skew - (least + most) / 2;
        let (head, tail) = self.ifile.free_ends();
        (self.sb.dmeta, self.sb.avail, self.sb.nclean) = (dmeta as i32, avail, nclean);
        (self.sb.bfree, self.sb.freehd) = (bfree, head);
        let dirty = self.sb.nseg - nclean;
        self.ifile.set_cleaner_info(&self.sb, |info| {
            (info.clean, info.dirty, info.bfree, info.avail) = (nclean, dirty, bfree, avail);
            (info.free_head, info.free_tail) = (head, tail);
        });
    }

    /// The number of fragments by which an inode's last direct block is shorter than a whole block;
    /// 0 if it is whole.
    pub fn slack(&self, inode: &LfsInode) -> u64 {
        let (bsize, fsize) = (u64::from(self.sb.bsize), u64::from(self.sb.fsize));
        let Some(last) = inode.size.checked_sub(1).map(|byte| byte / bsize) else { return 0 };
        if last >= NDADDR as u64 || !super::store::is_set(inode.db[last as usize]) {
            return 0;
        }
        u64::from(self.sb.frag) - self.sb.block_bytes(last, inode.size) / fsize
    }

    /// Copies the changed group tables into the IFILE.
    pub fn store_tables(&mut self) {
        let Some(data) = &mut self.data else { return };
        for (at, bytes) in data.changed() {
            self.ifile.set_table(&self.sb, at, &bytes);
        }
    }

    /// Whether a write-out into the segment with this address is under way.
    pub fn is_in_flight(&self, addr: i64) -> bool {
        self.sb.segment_of(addr).is_some_and(|segment| self.in_flight.contains(&segment))
    }

    /// The segments that the cleaner may choose: dirty, with live bytes, not the current one, and
    /// wholly on the device.
    pub fn victims(&self) -> impl Iterator<Item = (u64, SegUse)> + '_ {
        let current = self.current();
        let is_at_rest =
            move |segment: &u64| *segment != current && !self.in_flight.contains(segment);
        (0..u64::from(self.sb.nseg)).filter(is_at_rest).filter_map(|segment| {
            let seguse = self.seguse(segment);
            let wanted = seguse.is_dirty() && seguse.nbytes > 0;
            (wanted && seguse.flags & seg_flag::ERROR == 0).then_some((segment, seguse))
        })
    }
}

//! The plan of a write-out: the address of each block, and its partial segment.
//!
//! First every block gets its address; then the bytes of all blocks are copied. The order matters
//! because giving addresses changes the IFILE, which may be part of the write-out. Typical
//! sequence: [`SegmentPlan::new`]; [`block`](SegmentPlan::block), [`inodes`](SegmentPlan::inodes)
//! and [`ifile`](SegmentPlan::ifile); [`finish`](SegmentPlan::finish), then [`Pseg::bytes`] of each
//! partial segment.

use std::collections::BTreeSet;

use ordo_block::IoBuf;
use ordo_cache::BufRef;
use ordo_format::lfs::summary::{Seal, flag};
use ordo_format::lfs::{
    FileInfo, IFILE_INO, LfsInode, NO_ADDRESS, Segsum, Summary, Superblock, UNWRITTEN, Width,
};

use super::ifile::Ifile;
use super::state::LogState;
use super::store::put_written_size;
use super::work::Content;

/// The size of a block number, and of an inode block's address, in a summary.
const NUMBER: usize = Width::Lfs64.pointer_size();

/// The error when no segment is left in which the log could continue.
#[derive(Debug)]
pub struct Full;

/// A block of a partial segment.
enum Item {
    /// A block of a file.
    Block(Content),
    /// A block of inodes. If `ifile` is set, the IFILE's inode follows those of `bufs`.
    Inodes { bufs: Vec<BufRef>, ifile: bool },
    /// A block of the IFILE.
    Ifile(i64),
}

/// A partial segment that is being planned.
pub struct Pseg {
    /// The partial segment's address.
    pub at: i64,
    /// The address behind the partial segment.
    pub end: i64,
    /// The partial segment's serial number.
    serial: u64,
    limit: i64,
    next: i64,
    files: Vec<FileInfo>,
    inode_blocks: Vec<i64>,
    ninos: u16,
    /// Whether the cleaner moves its blocks.
    by_cleaner: bool,
    items: Vec<(i64, Item)>,
    /// The number of bytes that the summary takes.
    summary: usize,
    /// Whether the next block needs a new FINFO. Only the last block of a FINFO may be short, and a
    /// block of inodes ends one.
    broken: bool,
}

/// The plan of a write-out.
pub struct SegmentPlan<'s> {
    pub state: &'s mut LogState,
    psegs: Vec<Pseg>,
    /// The time of the write-out, in nanoseconds since 1970.
    now: u64,
    by_cleaner: bool,
    /// The time at which the next blocks were written first, if they keep their age.
    was_new: Option<u64>,
}

impl<'s> SegmentPlan<'s> {
    /// Starts a plan without blocks. `now` is in nanoseconds since 1970.
    pub fn new(state: &'s mut LogState, now: u64) -> SegmentPlan<'s> {
        SegmentPlan { state, psegs: Vec::new(), now, by_cleaner: false, was_new: None }
    }

    /// Sets the time at which the blocks that are added next were written first, in nanoseconds
    /// since 1970. `None`: now.
    pub fn set_was_new(&mut self, time: Option<u64>) {
        self.was_new = time;
    }

    /// The approximate number of whole blocks for which the current segment has space.
    pub fn blocks_left(&self) -> usize {
        let sb = &self.state.sb;
        let frags = sb.segment_start(self.state.current() + 1) - sb.offset;
        (frags / sb.block_frags()).max(0) as usize
    }

    /// Sets whether the cleaner moves the blocks that are added next. Moved blocks have partial
    /// segments of their own.
    pub fn set_by_cleaner(&mut self, by_cleaner: bool) {
        self.by_cleaner = by_cleaner;
    }

    /// The last partial segment, if it has space for `frags` more fragments and `summary` more
    /// bytes in its summary; otherwise a new one. The bytes of the summary are reserved.
    fn pseg_with_space(
        &mut self,
        frags: i64,
        summary: impl Fn(&Pseg) -> usize,
    ) -> Result<&mut Pseg, Full> {
        let (size, fsize) = (self.state.sb.sumsize as usize, i64::from(self.state.sb.fsize));
        let (bytes_max, by_cleaner) = (self.state.bytes_max as i64, self.by_cleaner);
        let fits = self.psegs.last().is_some_and(|p| {
            let bytes = (p.end + frags - p.at) * fsize;
            p.by_cleaner == by_cleaner
                && p.summary + summary(p) <= size
                && p.end + frags <= p.limit
                && bytes <= bytes_max
        });
        if !fits {
            self.begin()?;
        }
        let pseg = self.psegs.last_mut().expect("begun");
        pseg.summary += summary(pseg);
        Ok(pseg)
    }

    fn begin(&mut self) -> Result<(), Full> {
        let state = &mut *self.state;
        if !state.has_free_space() && !state.advance() {
            return Err(Full);
        }
        let segment = state.current();
        state.change_seguse(segment, |s| s.nsums = s.nsums.saturating_add(1));
        state.note_written(segment, self.now);
        if self.was_new.is_none() {
            state.note_new(segment, self.now);
        }
        state.sb.serial += 1;
        let at = state.sb.offset;
        let end = at + i64::from(state.sb.sumsize / state.sb.fsize);
        (state.sb.offset, state.sb.lastpseg) = (end, end);
        self.psegs.push(Pseg {
            at,
            end,
            serial: state.sb.serial,
            limit: state.sb.segment_start(segment + 1),
            next: state.sb.nextseg,
            files: Vec::new(),
            inode_blocks: Vec::new(),
            ninos: 0,
            by_cleaner: self.by_cleaner,
            items: Vec::new(),
            summary: state.sb.width.segsum_size() + 8 + Seal::SIZE,
            broken: true,
        });
        Ok(())
    }

    fn grow(&mut self, frags: i64) -> i64 {
        let pseg = self.psegs.last_mut().expect("begun");
        let addr = pseg.end;
        pseg.end += frags;
        (self.state.sb.offset, self.state.sb.lastpseg) = (pseg.end, pseg.end);
        addr
    }

    fn file_block(
        &mut self,
        (ino, version): (u64, u32),
        number: i64,
        bytes: u32,
    ) -> Result<i64, Full> {
        let (frags, finfo) = (i64::from(bytes / self.state.sb.fsize), Width::Lfs64.finfo_size());
        let is_new = move |p: &Pseg| p.broken || p.files.last().is_none_or(|f| f.ino != ino);
        let whole = bytes == self.state.sb.bsize;
        let pseg = self.pseg_with_space(frags, |p| NUMBER + if is_new(p) { finfo } else { 0 })?;
        if is_new(pseg) {
            pseg.files.push(FileInfo { ino, version, lastlength: bytes, blocks: Vec::new() });
        }
        let file = pseg.files.last_mut().expect("there");
        file.blocks.push(number);
        file.lastlength = bytes;
        pseg.broken = !whole;
        let addr = self.grow(frags);
        self.state.add_live(addr, bytes.into());
        if let Some(time) = self.was_new {
            self.state.note_new(self.state.current(), time);
        }
        Ok(addr)
    }

    /// Gives a block of a file, of `bytes` bytes, its place.
    pub fn block(
        &mut self,
        file: (u64, u32),
        number: i64,
        bytes: u32,
        content: Content,
    ) -> Result<i64, Full> {
        let addr = self.file_block(file, number, bytes)?;
        self.add(addr, Item::Block(content));
        Ok(addr)
    }

    fn add(&mut self, addr: i64, item: Item) {
        self.psegs.last_mut().expect("begun").items.push((addr, item));
    }

    fn inode_block(&mut self, count: u16) -> Result<i64, Full> {
        let frags = i64::from(self.state.sb.ibsize / self.state.sb.fsize);
        let pseg = self.pseg_with_space(frags, |_| NUMBER)?;
        pseg.ninos += count;
        pseg.broken = true;
        let addr = self.grow(frags);
        let pseg = self.psegs.last_mut().expect("begun");
        pseg.inode_blocks.push(addr);
        let segment = self.state.current();
        self.state.change_seguse(segment, |s| s.ninos = s.ninos.saturating_add(1));
        Ok(addr)
    }

    /// Gives a block of inodes its place.
    pub fn inodes(&mut self, bufs: &[BufRef]) -> Result<i64, Full> {
        let addr = self.inode_block(bufs.len() as u16)?;
        self.add(addr, Item::Inodes { bufs: bufs.to_vec(), ifile: false });
        Ok(addr)
    }

    /// Gives the IFILE's inode its place: in the last block of inodes of the partial segment, if
    /// that has space. A summary has only the number of inodes, so every block of inodes except the
    /// last must be full.
    fn ifile_inode(&mut self) -> Result<i64, Full> {
        let per_block = self.state.sb.inopb as usize;
        let pseg = self.psegs.last_mut();
        let last = pseg.and_then(|pseg| {
            let last = pseg.items.iter_mut().rev().find_map(|(addr, item)| match item {
                Item::Inodes { bufs, ifile } => Some((*addr, bufs.len(), ifile)),
                Item::Block(_) | Item::Ifile(_) => None,
            });
            let (addr, _, ifile) = last.filter(|(_, count, _)| *count < per_block)?;
            *ifile = true;
            pseg.ninos += 1;
            Some(addr)
        });
        if let Some(addr) = last {
            return Ok(addr);
        }
        let addr = self.inode_block(1)?;
        self.add(addr, Item::Inodes { bufs: Vec::new(), ifile: true });
        Ok(addr)
    }

    /// Gives every changed block of the IFILE, and its inode, an address. This changes the IFILE,
    /// so it is repeated until no further block has changed. Each block gets one address.
    pub fn ifile(&mut self) -> Result<(), Full> {
        let (mut placed, bsize) = (BTreeSet::new(), self.state.sb.bsize);
        // The cleaner's information changes at the end, so its block is counted as changed now.
        self.state.ifile.mark(0);
        let version = self.state.ifile.entry(&self.state.sb, IFILE_INO).version.max(1);
        let mut has_inode = false;
        loop {
            if let Some(number) = self.state.ifile.next_dirty(&placed) {
                let addr = self.file_block((IFILE_INO, version), number, bsize)?;
                self.add(addr, Item::Ifile(number));
                placed.insert(number);
                let sb = self.state.sb.clone();
                match self.state.ifile.set_address(&sb, number, addr) {
                    Some(UNWRITTEN) => {
                        self.state.pending = self.state.pending.saturating_sub(bsize.into());
                    }
                    Some(old) if old != NO_ADDRESS => self.state.sub_live(old, bsize.into()),
                    _ => {}
                }
            } else if !has_inode {
                has_inode = true;
                let addr = self.ifile_inode()?;
                self.state.sub_live(self.state.sb.idaddr, LfsInode::SIZE as u64);
                self.state.add_live(addr, LfsInode::SIZE as u64);
                self.state.sb.idaddr = addr;
            } else {
                return Ok(());
            }
        }
    }

    /// Ends the plan. Returns its partial segments.
    pub fn finish(self) -> Vec<Pseg> {
        self.psegs
    }
}

/// Options for encoding partial segments.
#[derive(Clone, Copy)]
pub struct Style {
    /// Whether each partial segment has a seal.
    pub sealed: bool,
    /// Whether the partial segments of one write-out count only together.
    pub chained: bool,
    /// The time of the write, in seconds.
    pub now: u64,
}

impl Pseg {
    /// Encodes the partial segment. `is_last`: no other one follows in the same write-out.
    pub fn bytes(&self, sb: &Superblock, ifile: &Ifile, style: Style, is_last: bool) -> IoBuf {
        let fsize = u64::from(sb.fsize);
        let mut bytes = IoBuf::zeroed(((self.end - self.at) as u64 * fsize) as usize);
        for (addr, item) in &self.items {
            let at = ((addr - self.at) as u64 * fsize) as usize;
            item.put(sb, ifile, &mut bytes[at..]);
        }
        let mut head = Segsum::zeroed();
        (head.ident, head.serial, head.create) = (sb.ident, self.serial, style.now);
        (head.next, head.ninos) = (self.next, self.ninos);
        if style.chained && !is_last {
            head.flags = flag::DIROP | flag::CONT;
        }
        if self.by_cleaner {
            head.flags |= flag::CLEAN;
        }
        let (files, inode_blocks) = (self.files.clone(), self.inode_blocks.clone());
        let mut summary = Summary { head, files, inode_blocks };
        let written = summary.write(sb, self.at, &mut bytes, style.sealed);
        written.expect("the plan keeps to the summary's size");
        bytes
    }

    /// The buffers in the partial segment: blocks of files with their addresses, and inodes.
    pub fn buffers(&self) -> impl Iterator<Item = (Option<i64>, &BufRef)> {
        self.items.iter().flat_map(|(addr, item)| {
            let (one, many): (Option<&BufRef>, &[BufRef]) = match item {
                Item::Block(Content::Buffer(buf)) => (Some(buf), &[]),
                Item::Inodes { bufs, .. } => (None, bufs),
                Item::Block(Content::Moved { .. }) | Item::Ifile(_) => (None, &[]),
            };
            one.into_iter().map(|b| (Some(*addr), b)).chain(many.iter().map(|b| (None, b)))
        })
    }
}

impl Item {
    fn put(&self, sb: &Superblock, ifile: &Ifile, to: &mut [u8]) {
        match self {
            Item::Block(content) => content.put(to),
            Item::Inodes { bufs, ifile: with_ifile } => {
                for (slot, buf) in to.chunks_exact_mut(LfsInode::SIZE).zip(bufs) {
                    slot.copy_from_slice(&buf.read());
                    put_written_size(slot, 0);
                }
                if *with_ifile {
                    ifile.inode.write(sb.width, &mut to[bufs.len() * LfsInode::SIZE..]);
                }
            }
            Item::Ifile(number) => {
                let bytes = ifile.contents(sb, *number);
                to[..bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
}

//! The blocks of a write-out: everything dirty, and the live blocks of the segments that are being
//! cleaned.
//!
//! The inode and the indirect blocks above a file's blocks are written too, since they change when
//! the blocks get their addresses. All of these buffers are pinned here, so that giving addresses
//! never waits.
//!
//! The live blocks of a segment that is being cleaned stay in the segment's bytes, outside of the
//! cache: cleaning takes no memory of the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ordo_block::pieces::read_all;
use ordo_block::{BlockError, IoBuf};
use ordo_cache::{BufKey, BufRef};
use ordo_format::lfs::{IFILE_INO, LfsInode, PsegBlock, Summary};
use ordo_vfs::{Errno, FsResult};

use super::budget::ReservedExtent;
use super::store::{INODES, Store, decode, has_pointers, is_set, slot};
use super::tree::{Node, ancestors};

/// The contents of a block that gets a new address.
#[derive(Clone)]
pub enum Content {
    /// A buffer of the cache.
    Buffer(BufRef),
    /// A part of a segment that is being cleaned.
    Moved {
        /// The segment's bytes.
        segment: Rc<IoBuf>,
        /// The first byte of the block in the segment's bytes.
        at: usize,
        /// The length of the block.
        len: usize,
    },
}

impl Content {
    /// Copies the block to the beginning of `to`.
    pub fn put(&self, to: &mut [u8]) {
        match self {
            Content::Buffer(buf) => {
                let bytes = buf.read();
                to[..bytes.len()].copy_from_slice(&bytes);
            }
            Content::Moved { segment, at, len } => {
                to[..*len].copy_from_slice(&segment[*at..at + len])
            }
        }
    }
}

/// The part of everything dirty that a write-out must have. Contents that are overwritten in their
/// places on a data device are left out otherwise.
#[derive(Clone, Copy)]
pub enum Needed<'w> {
    /// Everything.
    All,
    /// The contents of this file.
    File(u64),
    /// The contents in the buffers with these keys, which have reached their age.
    Aged(&'w BTreeSet<BufKey>),
}

impl Needed<'_> {
    /// Whether a buffer may be left out.
    fn leaves_out(self, key: BufKey) -> bool {
        match self {
            Needed::All => false,
            Needed::File(ino) => key.file != ino,
            Needed::Aged(keys) => !keys.contains(&key),
        }
    }
}

/// The blocks of one file that are written, by level, data first.
#[derive(Default)]
pub struct FileWork {
    pub levels: [BTreeMap<i64, Content>; 4],
}

/// The blocks to be written, and the indirect blocks above them.
#[derive(Default)]
pub struct Work {
    pub files: BTreeMap<u64, FileWork>,
    pub inodes: BTreeMap<u64, BufRef>,
    /// The indirect blocks above the blocks in `files`, pinned.
    pub pinned: BTreeMap<BufKey, BufRef>,
    /// Blocks of the IFILE.
    pub ifile: Vec<i64>,
    /// The order of the files' last changes: for each file, the position of its last dirty buffer
    /// among all dirty buffers, where 0 is the oldest.
    changed: BTreeMap<u64, usize>,
}

impl Work {
    /// Adds a block of a file. A block that was added before stays.
    fn add(&mut self, ino: u64, number: i64, level: usize, content: Content) {
        let file = self.files.entry(ino).or_default();
        file.levels[level].entry(number).or_insert(content);
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.inodes.is_empty() && self.ifile.is_empty()
    }

    /// The files in the order in which they and their inodes are written: by number or, if
    /// `inverse`, by last change, the latest first. Files with only moved blocks come last.
    pub fn order(&self, inverse: bool) -> Vec<u64> {
        let mut all: Vec<u64> = self.inodes.keys().copied().collect();
        if inverse {
            all.sort_by_key(|ino| std::cmp::Reverse((self.changed.get(ino), *ino)));
        }
        all
    }

    /// Adds the blocks of another write-out. A block that both have stays as it is here.
    pub fn absorb(&mut self, other: Work) {
        for (ino, file) in other.files {
            for (level, blocks) in file.levels.into_iter().enumerate() {
                for (number, content) in blocks {
                    self.add(ino, number, level, content);
                }
            }
        }
        self.inodes.extend(other.inodes);
        self.pinned.extend(other.pinned);
        self.ifile.extend(other.ifile);
    }

    /// The extent of this write-out and another one together.
    pub fn extent_with(&self, other: &Work, store: &Store) -> ReservedExtent {
        let sb = &store.shape;
        let (mut frags, mut blocks) = (0, 0);
        for (ino, file) in &self.files {
            for number in file.levels[0].keys().filter(|n| !self.is_on_data(store, *ino, **n)) {
                frags += i64::from(self.frags_of(store, *ino, *number));
                blocks += 1;
            }
        }
        let has = |ino: u64, number: i64| {
            self.files.get(&ino).is_some_and(|file| file.levels[0].contains_key(&number))
        };
        for (ino, file) in &other.files {
            for number in file.levels[0].keys().filter(|number| !has(*ino, **number)) {
                frags += i64::from(other.frags_of(store, *ino, *number));
                blocks += 1;
            }
        }
        let mut above: BTreeSet<BufKey> =
            self.pinned.keys().chain(other.pinned.keys()).copied().collect();
        for (ino, file) in self.files.iter().chain(&other.files) {
            let numbers = file.levels[1..].iter().flat_map(BTreeMap::keys);
            above.extend(numbers.map(|number| BufKey::file(*ino, *number)));
        }
        let others = other.inodes.keys().filter(|ino| !self.inodes.contains_key(ino));
        let inodes = (self.inodes.len() + others.count()) as i64;
        let above = above.len() as i64;
        let contents =
            ReservedExtent { frags: frags + above * sb.block_frags(), blocks: blocks + above };
        contents.and(ReservedExtent::of(&store.state.borrow(), 0, inodes))
    }

    /// Whether a block is on the data device. Such a block takes no space of the log.
    fn is_on_data(&self, store: &Store, ino: u64, number: i64) -> bool {
        self.inodes.get(&ino).is_some_and(|pin| store.is_on_data_in(pin, number))
    }

    fn frags_of(&self, store: &Store, ino: u64, number: i64) -> u32 {
        let size = self.inodes.get(&ino).map_or(u64::MAX, |pin| decode(pin).size);
        (store.shape.block_bytes(number.cast_unsigned(), size) / u64::from(store.shape.fsize))
            as u32
    }
}

/// A segment that is being cleaned.
pub struct Victim {
    /// The segment's number.
    pub segment: u64,
    /// The segment's epoch when it was chosen. If it has another one, the bytes are not the
    /// segment's any more.
    pub epoch: u32,
    /// The segment's bytes.
    bytes: Rc<IoBuf>,
    /// The blocks that the segment's summaries list.
    blocks: Vec<PsegBlock>,
}

impl Store {
    /// Finds and pins everything dirty, with the inodes and indirect blocks above, as far as it is
    /// needed. No operation is under way.
    pub async fn pin_dirty(&self, needed: Needed<'_>) -> Result<Work, BlockError> {
        let mut work = Work::default();
        for (n, buf) in self.cache.all_dirty().into_iter().enumerate() {
            let BufKey { file, block } = buf.key();
            if needed.leaves_out(buf.key()) && self.may_stay_dirty(file, block) {
                continue;
            }
            let ino = if file == INODES { block.cast_unsigned() } else { file };
            work.changed.insert(ino, n);
            self.pin_buffer(&mut work, buf).await.map_err(super::writer::as_block_error)?;
        }
        self.pin_changed_ends(&mut work).await.map_err(super::writer::as_block_error)?;
        Ok(work)
    }

    /// Whether a dirty block need not be written with metadata: it is overwritten in its place on
    /// the data device, so no pointer changes, and its file has the size that the log has.
    fn may_stay_dirty(&self, ino: u64, number: i64) -> bool {
        self.place_on_data(ino, number).is_some() && !self.state.borrow().resized.contains(&ino)
    }

    /// Adds a dirty buffer, with the inode and indirect blocks above it pinned.
    async fn pin_buffer(&self, work: &mut Work, buf: BufRef) -> FsResult<()> {
        buf.written().await;
        let BufKey { file, block } = buf.key();
        if file == INODES {
            work.inodes.insert(block.cast_unsigned(), buf);
            return Ok(());
        }
        let (level, _) = self.pin_ancestors(work, file, block).await?;
        work.add(file, block, level, Content::Buffer(buf));
        Ok(())
    }

    /// Pins a block's inode and the indirect blocks above the block. Returns the block's level, and
    /// the pointer to it.
    async fn pin_ancestors(
        &self,
        work: &mut Work,
        ino: u64,
        number: i64,
    ) -> FsResult<(usize, i64)> {
        let pin = self.pin(ino).await?;
        pin.written().await;
        let (node, path) = Node::of(number, self.nindir()).ok_or(Errno::TooBig)?;
        let mut pointer = slot(&pin, path.slot);
        for (step, above) in ancestors(&path, self.nindir()).enumerate() {
            if !is_set(pointer) {
                return Ok((node.level, pointer));
            }
            let upper = self.indirect(ino, above.number(), pointer).await?;
            upper.written().await;
            pointer = self.pointer_in(&upper, path.offsets[step]);
            work.pinned.insert(upper.key(), upper);
        }
        work.inodes.insert(ino, pin);
        Ok((node.level, pointer))
    }

    /// Adds the last block of each file in `work` whose length on the device changes with the
    /// file's size.
    async fn pin_changed_ends(&self, work: &mut Work) -> FsResult<()> {
        let mut ends = Vec::new();
        for ino in work.inodes.keys() {
            self.changed_ends(*ino, |number| ends.push((*ino, number)));
        }
        for (ino, number) in ends {
            let is_added = work.files.get(&ino).is_some_and(|f| f.levels[0].contains_key(&number));
            if is_added {
                continue;
            }
            let found = self.read_block(ino, number.cast_unsigned(), false, 0).await?;
            if let Some(buf) = found {
                self.cache.mark_dirty(&buf);
                self.pin_buffer(work, buf).await?;
            }
        }
        Ok(())
    }

    /// Reads a segment to be cleaned. The checksums of its partial segments are not verified: a
    /// check's repairs change blocks in place, and only pointers decide whether a block is live.
    ///
    /// # Errors
    /// The device failed.
    pub async fn read_victim(&self, segment: u64, epoch: u32) -> Result<Victim, BlockError> {
        let sb = &self.shape;
        let (first, end) = (sb.segment_data(segment), sb.segment_start(segment + 1));
        let (start, len) = (sb.byte_of(first), (end - first) as usize * sb.fsize as usize);
        let bytes = read_all(&self.device, start, len).await?;
        let (mut at, mut blocks) = (first, Vec::new());
        while end - at > i64::from(sb.sumsize / sb.fsize) {
            let Ok(summary) = Summary::read(sb, &bytes[self.offset(segment, at)..]) else { break };
            let Ok((some, next)) = summary.layout(sb, at) else { break };
            if summary.head.ident != sb.ident {
                break;
            }
            blocks.extend(some);
            at = next;
        }
        Ok(Victim { segment, epoch, bytes: Rc::new(bytes), blocks })
    }

    /// The index of an address in the bytes of a segment.
    fn offset(&self, segment: u64, addr: i64) -> usize {
        (addr - self.shape.segment_data(segment)) as usize * self.shape.fsize as usize
    }

    /// Finds the live blocks of a segment, and pins the inodes and indirect blocks that must be
    /// written with them. No operation is under way.
    ///
    /// # Errors
    /// `Corrupt`; the device failed.
    pub async fn pin_live(&self, victim: &Victim) -> FsResult<Work> {
        let mut work = Work::default();
        for block in &victim.blocks {
            match *block {
                PsegBlock::Inodes { addr } => self.pin_live_inodes(&mut work, victim, addr).await?,
                PsegBlock::File { addr, ino, lbn, .. } if ino == IFILE_INO => {
                    if self.state.borrow().ifile.address(lbn) == Some(addr) {
                        work.ifile.push(lbn);
                    }
                }
                PsegBlock::File { ino, .. } if !is_set(self.place_of(ino)) => {}
                PsegBlock::File { addr, ino, lbn, bytes, .. } => {
                    let at = self.offset(victim.segment, addr);
                    let (segment, len) = (victim.bytes.clone(), bytes as usize);
                    let moved = Content::Moved { segment, at, len };
                    self.add_moved(&mut work, (ino, lbn), addr, moved).await?;
                }
            }
        }
        Ok(work)
    }

    /// Pins the live inodes of a block of inodes in a segment that is being cleaned.
    async fn pin_live_inodes(&self, work: &mut Work, victim: &Victim, addr: i64) -> FsResult<()> {
        let (sb, at) = (&self.shape, self.offset(victim.segment, addr));
        for raw in victim.bytes[at..at + sb.ibsize as usize].chunks_exact(LfsInode::SIZE) {
            let ino = LfsInode::read(sb.width, raw).inumber;
            if ino > IFILE_INO && self.place_of(ino) == addr {
                work.inodes.insert(ino, self.pin(ino).await?);
            }
        }
        Ok(())
    }

    /// Adds a block of a segment that is being cleaned, if a pointer leads to it.
    async fn add_moved(
        &self,
        work: &mut Work,
        (ino, number): (u64, i64),
        addr: i64,
        moved: Content,
    ) -> FsResult<()> {
        let inode = decode(&self.pin(ino).await?);
        let has_none = !has_pointers(&self.shape, inode.mode, inode.size);
        // A pointer to contents on the data device is no address in the log.
        if has_none || self.is_on_data(&inode, number) {
            return Ok(());
        }
        let mut above = Work::default();
        let (level, pointer) = self.pin_ancestors(&mut above, ino, number).await?;
        if pointer != addr {
            return Ok(());
        }
        let content = match self.cache.peek(BufKey::file(ino, number)) {
            Some(buf) => Content::Buffer(buf),
            None if level > 0 => Content::Buffer(self.indirect(ino, number, addr).await?),
            None => moved,
        };
        if let Content::Buffer(buf) = &content {
            buf.written().await;
        }
        work.absorb(above);
        work.add(ino, number, level, content);
        Ok(())
    }
}

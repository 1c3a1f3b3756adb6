//! The block addresses of a file: which can be granted to it, and which conflict.

use ordo_block::BlockError;
use ordo_format::ufs2::inode::SF_SNAPSHOT;
use ordo_format::ufs2::{Dinode, NDADDR, NIADDR};

use crate::state::{DirBlock, Refused, Run};
use crate::{Finding, Slot};

/// The decision about an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressDecision {
    /// The file gets the block.
    Granted,
    /// The contents may be the file's, but the block belongs to another file: it will be copied.
    Refused,
    /// No file can have the address.
    Impossible,
}

/// The result of examining an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A block that the file has from now on.
    Granted,
    /// An address that stays for now, but must not be followed.
    Kept,
    /// An address that must be cleared.
    Clear,
}

/// A file whose addresses are being examined.
pub(crate) struct FileWalk {
    pub ino: u32,
    size: u64,
    blocks: u64,
    is_dir: bool,
    snapshot: bool,
    /// The number of sectors granted.
    pub sectors: u64,
    /// The last block that exists.
    pub last: Option<u64>,
    pub dir_blocks: Vec<DirBlock>,
    /// Whether any address was cleared or refused.
    pub touched: bool,
}

impl FileWalk {
    pub fn new(ino: u32, node: &Dinode, block_size: u64, is_dir: bool) -> FileWalk {
        FileWalk {
            ino,
            size: node.size,
            blocks: node.size.div_ceil(block_size),
            is_dir,
            snapshot: node.flags & SF_SNAPSHOT != 0,
            sectors: 0,
            last: None,
            dir_blocks: Vec::new(),
            touched: false,
        }
    }
}

/// An indirect block that is being walked.
struct Frame {
    addr: u64,
    bytes: Vec<u8>,
    level: u32,
    lbn: u64,
    index: usize,
}

impl Run<'_> {
    /// Examines all addresses of a file's contents, and clears in `node` those that the file cannot
    /// have.
    pub async fn walk_file(
        &mut self,
        walk: &mut FileWalk,
        node: &mut Dinode,
    ) -> Result<(), BlockError> {
        for i in 0..NDADDR {
            let slot = Slot::Direct(i as u32);
            let lbn = i as u64;
            if node.db[i] != 0 && self.look(walk, slot, lbn, 0, node.db[i]) == Seen::Clear {
                node.db[i] = 0;
            }
        }
        let mut lbn = NDADDR as u64;
        for i in 0..NIADDR {
            let (slot, level) = (Slot::Indirect(i as u32), i as u32 + 1);
            let addr = node.ib[i];
            if addr != 0 {
                match self.look(walk, slot, lbn, level, addr) {
                    Seen::Clear => node.ib[i] = 0,
                    Seen::Granted => self.walk_indirect(walk, addr as u64, level, lbn).await?,
                    Seen::Kept => {}
                }
            }
            lbn += self.reach(level);
        }
        Ok(())
    }

    /// The number of blocks below an indirect block of a level.
    fn reach(&self, level: u32) -> u64 {
        self.sb.addresses_per_block().saturating_pow(level)
    }

    /// Examines all addresses below a granted indirect block.
    pub async fn walk_indirect(
        &mut self,
        walk: &mut FileWalk,
        addr: u64,
        level: u32,
        lbn: u64,
    ) -> Result<(), BlockError> {
        let mut stack = vec![self.open_indirect(addr, level, lbn).await?];
        while let Some(frame) = stack.last_mut() {
            let entries = self.sb.addresses_per_block() as usize;
            while frame.index < entries
                && self.sb.pointer(&frame.bytes, frame.index, self.endian) == 0
            {
                frame.index += 1;
            }
            if frame.index == entries {
                stack.pop();
                continue;
            }
            let index = frame.index;
            frame.index += 1;
            let below = frame.level - 1;
            let (block, first) = (frame.addr, frame.lbn);
            let target = self.sb.pointer(&frame.bytes, index, self.endian);
            let lbn = first.saturating_add((index as u64).saturating_mul(self.reach(below)));
            let slot = Slot::Within { block, index: index as u32 };
            match self.look(walk, slot, lbn, below, target) {
                Seen::Clear => self.set_slot(walk.ino, slot, 0).await?,
                Seen::Granted if below > 0 => {
                    stack.push(self.open_indirect(target as u64, below, lbn).await?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn open_indirect(
        &mut self,
        addr: u64,
        level: u32,
        lbn: u64,
    ) -> Result<Frame, BlockError> {
        self.io.work.indirect_blocks += 1;
        let bytes = self.io.read(addr, self.sb.frag as u64).await?.to_vec();
        Ok(Frame { addr, bytes, level, lbn, index: 0 })
    }

    /// Examines one address that is not 0.
    fn look(&mut self, walk: &mut FileWalk, slot: Slot, lbn: u64, level: u32, addr: i64) -> Seen {
        if lbn >= walk.blocks {
            let growth = !walk.is_dir && !walk.snapshot && matches!(slot, Slot::Within { .. });
            self.finding(Finding::PointerBeyondEnd { ino: walk.ino, slot, addr, growth });
            walk.touched = true;
            return Seen::Clear;
        }
        if walk.snapshot && matches!(addr, 1 | 2) {
            // A snapshot marks blocks that it need not hold by special addresses.
            walk.last = walk.last.max(Some(lbn));
            return Seen::Kept;
        }
        let bytes = match level {
            0 => self.sb.file_block_size(walk.size, lbn),
            _ => self.sb.block_size(),
        };
        let frags = (bytes >> self.sb.fshift) as u32;
        let verdict = self.judge(walk.ino, slot, addr, frags);
        match verdict {
            AddressDecision::Granted => walk.sectors += self.sectors(frags),
            AddressDecision::Refused => {
                walk.touched = true;
                let addr = addr as u64;
                let refused = Refused { ino: walk.ino, slot, level, lbn, addr, frags };
                // The list is bounded: it has at most as many entries as the file system has
                // fragments.
                if self.refused.len() as u64 > self.sb.size as u64 {
                    return Seen::Clear;
                }
                self.refused.push_back(refused);
            }
            AddressDecision::Impossible => {
                walk.touched = true;
                return Seen::Clear;
            }
        }
        if level == 0 {
            walk.last = walk.last.max(Some(lbn));
            if walk.is_dir && verdict == AddressDecision::Granted {
                walk.dir_blocks.push(DirBlock { lbn, addr: addr as u64, bytes });
            }
        }
        if verdict == AddressDecision::Granted { Seen::Granted } else { Seen::Kept }
    }

    /// Decides whether a file can have a run of fragments. If so, marks the run as used.
    fn judge(&mut self, ino: u32, slot: Slot, raw: i64, count: u32) -> AddressDecision {
        let addr = raw as u64;
        let own = |sb: &ordo_format::ufs2::Superblock| {
            (addr..addr + u64::from(count)).any(|frag| sb.is_own(frag, 1))
        };
        if raw < 0 || !self.sb.has_frags(addr, count.into()) || own(&self.sb) {
            self.finding(Finding::BadBlock { ino, slot, addr: raw });
            return AddressDecision::Impossible;
        }
        let frag = self.sb.frag as u32;
        if (addr % u64::from(frag)) as u32 + count > frag {
            self.finding(Finding::Misaligned { ino, slot, addr, count });
            return AddressDecision::Refused;
        }
        if !self.is_free(addr, count) {
            self.finding(Finding::DuplicateBlock { ino, slot, addr, count });
            return AddressDecision::Refused;
        }
        self.take(addr, count);
        AddressDecision::Granted
    }

    /// Examines addresses as [`look`](Self::look) does, for the extended attributes, which have no
    /// indirect blocks.
    pub fn look_at_attributes(
        &mut self,
        walk: &mut FileWalk,
        n: usize,
        addr: i64,
        size: u64,
    ) -> bool {
        let slot = Slot::Attributes(n as u32);
        let frags = (self.sb.file_block_size(size, n as u64) >> self.sb.fshift) as u32;
        match self.judge(walk.ino, slot, addr, frags) {
            AddressDecision::Granted => walk.sectors += self.sectors(frags),
            AddressDecision::Refused => {
                walk.touched = true;
                let (ino, addr, lbn) = (walk.ino, addr as u64, n as u64);
                self.refused.push_back(Refused { ino, slot, level: 0, lbn, addr, frags });
            }
            AddressDecision::Impossible => {
                walk.touched = true;
                return false;
            }
        }
        true
    }
}

/// A block that a file holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub slot: Slot,
    pub level: u32,
    pub lbn: u64,
    pub addr: u64,
    pub frags: u32,
}

impl Held {
    /// Whether the block belongs to the file's contents, and not to its extended attributes.
    pub fn is_contents(&self) -> bool {
        !matches!(self.slot, Slot::Attributes(_))
    }
}

impl Run<'_> {
    /// All blocks of a file, including those of extended attributes, and a snapshot's marks, which
    /// have no fragments. Before the call, every address must have been granted to the file or
    /// cleared, so that the addresses form a tree.
    pub async fn held(&mut self, node: &Dinode) -> Result<Vec<Held>, BlockError> {
        let mut all = Vec::new();
        if !has_blocks(node, self.sb.short_link_size()) {
            self.held_attributes(node, &mut all);
            return Ok(all);
        }
        let snapshot = node.flags & SF_SNAPSHOT != 0;
        let is_mark = |addr: i64| snapshot && matches!(addr, 1 | 2);
        let mark = |slot, lbn, addr: i64| Held { slot, level: 0, lbn, addr: addr as u64, frags: 0 };
        let frag = self.sb.frag as u32;
        for (i, addr) in node.db.iter().enumerate().filter(|(_, addr)| **addr != 0) {
            let (slot, lbn) = (Slot::Direct(i as u32), i as u64);
            let frags = (self.sb.file_block_size(node.size, lbn) >> self.sb.fshift) as u32;
            all.push(match is_mark(*addr) {
                true => mark(slot, lbn, *addr),
                false => Held { slot, level: 0, lbn, addr: *addr as u64, frags },
            });
        }
        let mut pending = Vec::new();
        let mut lbn = NDADDR as u64;
        for (i, addr) in node.ib.iter().enumerate() {
            let (slot, level) = (Slot::Indirect(i as u32), i as u32 + 1);
            if is_mark(*addr) {
                all.push(mark(slot, lbn, *addr));
            } else if *addr != 0 {
                pending.push(Held { slot, level, lbn, addr: *addr as u64, frags: frag });
            }
            lbn += self.reach(level);
        }
        while let Some(held) = pending.pop() {
            all.push(held);
            if held.level == 0 {
                continue;
            }
            let bytes = self.io.read(held.addr, self.sb.frag as u64).await?;
            let (level, step) = (held.level - 1, self.reach(held.level - 1));
            for index in 0..self.sb.addresses_per_block() as usize {
                let addr = self.sb.pointer(&bytes, index, self.endian);
                let slot = Slot::Within { block: held.addr, index: index as u32 };
                let lbn = held.lbn + index as u64 * step;
                if is_mark(addr) {
                    all.push(mark(slot, lbn, addr));
                } else if addr != 0 {
                    pending.push(Held { slot, level, lbn, addr: addr as u64, frags: frag });
                }
            }
        }
        self.held_attributes(node, &mut all);
        Ok(all)
    }

    fn held_attributes(&self, node: &Dinode, all: &mut Vec<Held>) {
        for (i, addr) in node.extb.iter().enumerate().filter(|(_, addr)| **addr != 0) {
            let lbn = i as u64;
            let bytes = self.sb.file_block_size(node.extsize.into(), lbn);
            let frags = (bytes >> self.sb.fshift) as u32;
            let slot = Slot::Attributes(i as u32);
            all.push(Held { slot, level: 0, lbn, addr: *addr as u64, frags });
        }
    }

    /// Frees all blocks of a file, and its inode.
    pub async fn free_file(&mut self, ino: u32) -> Result<(), BlockError> {
        let node = self.load_inode(ino).await?;
        for held in self.held(&node).await? {
            self.release(held.addr, held.frags);
        }
        self.clear_inode(ino).await
    }
}

/// Whether a file's address fields hold addresses of blocks.
pub(crate) fn has_blocks(node: &Dinode, short_link: usize) -> bool {
    use ordo_format::ufs2::inode::{IFDIR, IFLNK, IFREG};
    match node.kind() {
        IFREG | IFDIR => true,
        IFLNK => node.size >= short_link as u64,
        _ => false,
    }
}

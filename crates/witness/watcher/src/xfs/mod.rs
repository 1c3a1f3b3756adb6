//! The decoder of XFS, versions 4 and 5.
//!
//! The first sectors of each allocation group are its headers. They lead to the group's trees, the
//! tree of inodes to the inodes, and these to the blocks of files ([`trees`]). Inodes count as soon
//! as they are in the log ([`log`]). In version 5 every block of metadata names its kind, its file
//! system and its place; a block in which all three agree is trusted. The log holds records of
//! changes, not copies of blocks.

mod buffers;
mod log;
pub(crate) mod outside;
mod prime;
mod trees;

use ordo_format::Endian;
use ordo_format::xfs::{self, Agf, Agi, Described, Dinode, Fork, Geometry, Tree, dir};
use rustc_hash::FxHashMap;

use crate::decoder::{
    Contents, Decoder, DecoderState, DiskImage, PairMember, Share, cover, unknown,
};
use crate::graph::{Entry, Graph};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::runs::{Role, Run};

use log::{LogOperation, LoggedInode, XfsLog, XfsPiece};
use trees::{XfsTag, XfsTrees};

pub(crate) use prime::probe;

/// The offset of the roots of groups, so that they lie above inode numbers.
const GROUPS: u64 = 1 << 62;

pub(crate) struct Xfs {
    g: Geometry,
    graph: Graph<XfsTrees>,
    log: XfsLog,
    /// For each group, the first and count of the free list's active entries, and the list (AGFL).
    lists: Vec<(u32, u32, Vec<u32>)>,
    /// For each block, the inodes that were logged since the block was last written at its place.
    logged: FxHashMap<u64, Vec<u64>>,
    /// Directory blocks as they are known, from their place and from changes in the log.
    dirs: FxHashMap<u64, Box<[u8]>>,
    events: Vec<LogOperation>,
}

/// The bit that marks the number of an inode with an inline directory, among numbers of directory
/// blocks.
const INLINE: u64 = 1 << 63;

/// The use of a place.
enum XfsPlace {
    /// A header of a group, by its sector number in the group.
    Header {
        group: u32,
        sector: u64,
    },
    XfsLog,
    Owned(Run),
    Free,
}

impl Xfs {
    fn place(&self, at: u64) -> XfsPlace {
        let g = &self.g;
        let linear = at >> g.block_shift;
        let (group, within) = ((linear / g.ag_blocks) as u32, linear % g.ag_blocks);
        let sector = (at - ((linear - within) << g.block_shift)) >> g.sector_shift;
        if sector < 4 || within == 0 {
            return XfsPlace::Header { group, sector };
        }
        match g.log {
            Some(start) if linear >= start && linear < start + g.log_blocks => XfsPlace::XfsLog,
            _ => self.graph.runs.at(linear).map_or(XfsPlace::Free, |run| XfsPlace::Owned(*run)),
        }
    }

    fn header_written(&mut self, group: u32, sector: u64, bytes: &[u8], state: &mut DecoderState) {
        let number = GROUPS | u64::from(group) << 2 | sector;
        match sector {
            1 if bytes.len() >= Agf::SIZE && bytes.starts_with(b"XAGF") => {
                let agf = Agf::decode(bytes, xfs::BIG);
                if agf.number != group {
                    return;
                }
                let trees = [
                    (Tree::ByBlock, agf.by_block, agf.by_block_levels),
                    (Tree::BySize, agf.by_size, agf.by_size_levels),
                    (Tree::Owners, agf.owners, agf.owners_levels),
                    (Tree::Shared, agf.shared, agf.shared_levels),
                ];
                self.set_trees(number, group, &trees, state);
                if let Some(list) = self.lists.get_mut(group as usize) {
                    (list.0, list.1) =
                        (agf.list_first, if agf.list_count == 0 { 0 } else { agf.list_count });
                }
                self.list_changed(group, state);
            }
            2 if bytes.len() >= Agi::SIZE && bytes.starts_with(b"XAGI") => {
                let agi = Agi::decode(bytes, xfs::BIG);
                if agi.number != group {
                    return;
                }
                let trees = [
                    (Tree::Inodes, agi.root, agi.levels),
                    (Tree::FreeInodes, agi.free_root, agi.free_levels),
                ];
                self.set_trees(number, group, &trees, state);
            }
            3 => {
                let skip = if self.g.self_describing { 36 } else { 0 };
                let list = bytes.get(skip..).unwrap_or_default();
                let list = list.chunks_exact(4).map(|raw| xfs::BIG.get_u32(raw, 0)).collect();
                if let Some(old) = self.lists.get_mut(group as usize) {
                    old.2 = list;
                }
                self.list_changed(group, state);
            }
            _ => {}
        }
    }

    fn set_trees(
        &mut self,
        number: u64,
        group: u32,
        trees: &[(Tree, u32, u32)],
        state: &mut DecoderState,
    ) {
        let reader = &self.graph.reader;
        let entries = trees
            .iter()
            .filter_map(|(tree, block, levels)| reader.group_node(*tree, group, *block, *levels));
        let entries = entries.collect();
        self.graph.set_root(number, entries, state);
    }

    /// Claims the blocks on a group's free list, which are kept for the group's trees.
    fn list_changed(&mut self, group: u32, state: &mut DecoderState) {
        let Some((first, count, list)) = self.lists.get(group as usize) else { return };
        let mut entries = Vec::new();
        let len = list.len() as u32;
        for i in 0..(*count).min(len) {
            // The list is a ring: indexes wrap around.
            let block = list[(first.wrapping_add(i) % len) as usize];
            let Some(start) = self.g.in_group(group, block).filter(|_| block != 0) else {
                continue;
            };
            // A block that a tree claims stays the tree's, even if an older list has it.
            if self
                .graph
                .runs
                .at(start)
                .is_some_and(|run| run.len == 1 && !matches!(run.role, Role::Attributes))
            {
                continue;
            }
            let (class, role) = (Class::SpaceTree, Role::Attributes);
            entries.push(Entry { start, len: 1, height: 0, class, ino: 0, role, node: None });
        }
        self.graph.set_root(GROUPS | u64::from(group) << 2 | 3, entries, state);
    }

    fn class_of(&self, ino: u64, inode: &Dinode) -> Class {
        match inode.mode & 0o170_000 {
            _ if self.g.quota_inodes.contains(&ino) && ino != 0 => Class::Quota,
            _ if self.g.rt_inodes.contains(&ino) => Class::Summary,
            0o040_000 => Class::Directory,
            0o120_000 => Class::Symlink,
            _ => Class::FileData,
        }
    }

    /// Sets the entries of an inode's two forks. A fork that is `None` stays as it was.
    fn set_forks(
        &mut self,
        ino: u64,
        data: Option<Vec<Entry<XfsTag>>>,
        attributes: Option<Vec<Entry<XfsTag>>>,
        state: &mut DecoderState,
    ) {
        if ino >> 60 != 0 {
            return;
        }
        if let Some(entries) = data {
            self.graph.set_root(ino << 1, entries, state);
        }
        if let Some(entries) = attributes {
            self.graph.set_root(ino << 1 | 1, entries, state);
        }
    }

    /// Takes in a block of inodes at its fixed location.
    fn inodes_written(&mut self, linear: u64, bytes: &[u8], state: &mut DecoderState) {
        let first = self.g.first_inode(linear);
        for (i, raw) in bytes.chunks_exact(self.g.inode_size()).enumerate() {
            let inode = Dinode::decode(raw, xfs::BIG);
            if inode.magic != Dinode::MAGIC {
                continue;
            }
            let ino = first + i as u64;
            if inode.version >= 3 && (inode.ino != ino || inode.uuid != self.g.uuid) {
                continue;
            }
            let class = self.class_of(ino, &inode);
            state.names.inode(ino, (inode.mode != 0).then_some(inode.generation));
            if inode.is_short_directory() {
                let fork = inode.raw_forks(raw).0;
                let each = |each: &mut dyn FnMut(&[u8], u64)| dir::in_inode(&self.g, fork, each);
                state.names.listed(ino | INLINE, ino, each);
            }
            let [data, attributes] = match inode.mode {
                0 => [Fork::None, Fork::None],
                _ => inode.forks(raw),
            };
            let data = if inode.flags & Dinode::REALTIME != 0 { Fork::None } else { data };
            let data = self.graph.reader.of_fork(data, ino, class);
            let attributes = self.graph.reader.of_fork(attributes, ino, Class::ExtendedAttributes);
            self.set_forks(ino, Some(data), Some(attributes), state);
        }
    }

    /// Takes in an inode from the log: the core is little-endian, the forks are as on disk.
    fn inode_logged(&mut self, logged: &LoggedInode, state: &mut DecoderState) {
        let ino = logged.item.ino;
        let mut core = [0; Dinode::SIZE];
        let len = logged.core.len().min(core.len());
        core[..len].copy_from_slice(&logged.core[..len]);
        let inode = Dinode::decode(&core, Endian::Little);
        if inode.magic != Dinode::MAGIC {
            return;
        }
        state.names.inode(ino, (inode.mode != 0).then_some(inode.generation));
        if inode.mode == 0 {
            return self.set_forks(ino, Some(Vec::new()), Some(Vec::new()), state);
        }
        if inode.is_short_directory()
            && let Some(fork) = &logged.data
        {
            let each = |each: &mut dyn FnMut(&[u8], u64)| dir::in_inode(&self.g, fork, each);
            state.names.listed(ino | INLINE, ino, each);
        }
        let reader = &self.graph.reader;
        let (data_count, attr_count) = inode.counts();
        let read = |raw: &Option<Vec<u8>>, format, count, class| match (format, raw) {
            // A fork with neither extents nor a tree has no blocks. For these, a fork that was not
            // logged did not change.
            (2, Some(raw)) => Some(reader.of_fork(xfs::fork(2, raw, count), ino, class)),
            (3, Some(raw)) => Some(reader.of_logged_root(raw, ino, class)),
            (2 | 3, None) if count > 0 => None,
            _ => Some(Vec::new()),
        };
        let class = self.class_of(ino, &inode);
        let data = match inode.flags & Dinode::REALTIME {
            0 => read(&logged.data, inode.format, data_count, class),
            _ => Some(Vec::new()),
        };
        let attributes = match inode.fork_offset {
            0 => Some(Vec::new()),
            _ => {
                let class = Class::ExtendedAttributes;
                read(&logged.attributes, inode.attr_format, attr_count, class)
            }
        };
        self.set_forks(ino, data, attributes, state);
    }

    /// The kind of the block that contains a sector.
    fn class_at(&self, sector: u64) -> Class {
        let Some(at) = sector.checked_mul(512) else { return Class::Unknown };
        if at >= self.g.blocks << self.g.block_shift {
            return Class::Unknown;
        }
        match self.place(at) {
            XfsPlace::Header { group, sector } => header(group, sector).0,
            XfsPlace::XfsLog => Class::JournalRecords,
            XfsPlace::Owned(run) => run.class,
            XfsPlace::Free => Class::Unknown,
        }
    }

    /// Gives a file its part of a range of the log.
    fn own(&self, (offset, len): (u64, u64), ino: u64, bytes: u64, state: &mut DecoderState) {
        // An item may have begun in an earlier request. Less than the range says that the range is
        // not the file's alone.
        let bytes = bytes.min(len.saturating_sub(1));
        if ino != 0 && bytes > 0 {
            state.shares.push(Share { offset, len, ino, file_block: None, bytes });
        }
    }

    /// The file to which the block that contains a sector belongs; 0 if there is none.
    fn owner_at(&self, sector: u64) -> u64 {
        let linear = sector >> (self.g.block_shift - 9);
        self.graph.runs.at(linear).map_or(0, |run| run.ino)
    }

    /// Learns from the events that a range of the log told. Returns whether all were understood.
    fn heed(&mut self, range: (u64, u64), state: &mut DecoderState) -> bool {
        let mut understood = true;
        for events in std::mem::take(&mut self.events) {
            match events {
                LogOperation::Bytes { id, len } => drop(state.journal.write(id.into(), len)),
                LogOperation::Commit { id } => drop(state.journal.commit(id.into(), 0)),
                LogOperation::Buffer { id, buffer } => {
                    let sector = buffer.item.sector;
                    state.names.begin_batch(Some(id.into()), true);
                    self.buffer_logged(&buffer, state);
                    self.own(range, self.owner_at(sector), buffer.bytes(), state);
                    state.journal.record(id.into(), sector, self.class_at(sector));
                }
                LogOperation::Inode { id, item } => {
                    state.names.begin_batch(Some(id.into()), true);
                    self.inode_logged(&item, state);
                    state.inodes.push(item.item.ino);
                    self.own(range, item.item.ino, item.bytes(), state);
                    if let Some(linear) = self.g.linear(item.item.ino >> self.g.inodes_shift()) {
                        let all = self.logged.entry(linear).or_default();
                        if !all.contains(&item.item.ino) {
                            all.push(item.item.ino);
                        }
                    }
                    state.journal.record(id.into(), item.item.sector, Class::InodeBlock);
                }
                LogOperation::Unmount => {}
                LogOperation::NotUnderstood => understood = false,
            }
        }
        state.names.begin_batch(None, false);
        understood
    }

    fn log_piece(&mut self, at: u64, bytes: &[u8], state: &mut DecoderState) -> ClassifiedRange {
        let g = &self.g;
        let start = g.log.unwrap_or(0) << g.block_shift;
        let (block, blocks) = ((at - start) / 512, (g.log_blocks << g.block_shift) / 512);
        let (piece, len) = self.log.piece(block, Some(blocks), bytes, &mut self.events);
        let understood = self.heed((at, len as u64), state);
        let (class, what) = named_piece(&piece, understood);
        ClassifiedRange { class, offset: at, len: len as u64, what }
    }

    /// Whether a block holds inodes that claim to be at this place.
    fn are_inodes(&self, linear: u64, bytes: &[u8]) -> bool {
        let first = self.g.first_inode(linear);
        let inodes = bytes.chunks_exact(self.g.inode_size()).enumerate();
        inodes.into_iter().all(|(i, raw)| {
            let inode = Dinode::decode(raw, xfs::BIG);
            inode.magic == Dinode::MAGIC
                && (inode.version < 3
                    || (inode.ino == first + i as u64 && inode.uuid == self.g.uuid))
        })
    }

    /// The kind of a whole block of metadata by its own header.
    fn described(&self, linear: u64, bytes: &[u8]) -> Option<(Class, BlockMeaning)> {
        if self.are_inodes(linear, bytes) {
            let count = 1 << self.g.inodes_shift();
            let first = self.g.first_inode(linear);
            return Some((
                Class::InodeBlock,
                BlockMeaning::Inodes { first, count, changed: Vec::new() },
            ));
        }
        if !self.g.self_describing {
            return None;
        }
        let group = linear / self.g.ag_blocks;
        let sector = linear << (self.g.block_shift - 9);
        Some(match xfs::describes_itself(&self.g, bytes, sector)? {
            Described::Group(tree) => (trees::class_of(tree), tree_words(tree, group)),
            Described::FileTree => {
                (Class::ExtentNode, BlockMeaning::Only("node of a file's extents"))
            }
            Described::Directory => (Class::Directory, BlockMeaning::Only("directory")),
            Described::Attributes => {
                (Class::ExtendedAttributes, BlockMeaning::Only("extended attributes"))
            }
            Described::Symlink => (Class::Symlink, BlockMeaning::Only("symbolic link")),
            Described::Either => {
                (Class::Directory, BlockMeaning::Only("index of a directory or of attributes"))
            }
        })
    }

    /// The meaning of blocks with an owner, from `at` on.
    fn owned(&self, run: &Run, at: u64, to: u64) -> (Class, BlockMeaning) {
        let shift = self.g.block_shift;
        let linear = at >> shift;
        let what = match run.role {
            _ if run.class == Class::InodeBlock => {
                let count = (((to - 1) >> shift) - linear + 1) << self.g.inodes_shift();
                BlockMeaning::Inodes {
                    first: self.g.first_inode(linear),
                    count,
                    changed: Vec::new(),
                }
            }
            Role::Data { lbn } => BlockMeaning::Blocks {
                ino: run.ino,
                first: lbn + (linear - run.start),
                count: ((to - 1) >> shift) - linear + 1,
            },
            Role::Map { level, .. } if run.class == Class::ExtentNode => {
                BlockMeaning::Extents { ino: run.ino, depth: level.saturating_sub(1) }
            }
            Role::Map { .. } => {
                BlockMeaning::Piece("tree of allocation group", linear / self.g.ag_blocks)
            }
            Role::Attributes => {
                BlockMeaning::Piece("block of the free list of group", linear / self.g.ag_blocks)
            }
        };
        (run.class, what)
    }
}

/// The meaning of a range of the log.
fn named_piece(piece: &XfsPiece, understood: bool) -> (Class, BlockMeaning) {
    let what = match piece {
        XfsPiece::Record(_) if !understood => BlockMeaning::Unknown(Reason::NotUnderstood),
        XfsPiece::Record(id) => {
            BlockMeaning::Journal { transaction: id.map(u64::from), home: None }
        }
        XfsPiece::Empty => BlockMeaning::Only("empty log records"),
        XfsPiece::Unmount => BlockMeaning::Only("log record of the unmount"),
        XfsPiece::Zeros => BlockMeaning::Only("zeros in the log"),
        XfsPiece::NotUnderstood => BlockMeaning::Unknown(Reason::NotUnderstood),
    };
    let class = match (&what, piece) {
        (BlockMeaning::Unknown(_), _) => Class::Unknown,
        (_, XfsPiece::Empty | XfsPiece::Zeros) => Class::LogClearing,
        _ => Class::JournalRecords,
    };
    (class, what)
}

fn tree_words(tree: Tree, group: u64) -> BlockMeaning {
    let name = match tree {
        Tree::ByBlock => "free space by block, group",
        Tree::BySize => "free space by size, group",
        Tree::Owners => "owners of blocks, group",
        Tree::Shared => "shared blocks, group",
        Tree::Inodes => "tree of inodes, group",
        Tree::FreeInodes => "chunks with free inodes, group",
    };
    BlockMeaning::Piece(name, group)
}

/// The meaning of a group's header sector.
fn header(group: u32, sector: u64) -> (Class, BlockMeaning) {
    let number = u64::from(group);
    match sector {
        0 if group == 0 => (Class::Superblock, BlockMeaning::Superblock),
        0 => {
            (Class::SuperblockCopy, BlockMeaning::Piece("copy of the superblock in group", number))
        }
        1 => {
            (Class::GroupHeader, BlockMeaning::Piece("header of free space (AGF) of group", number))
        }
        2 => (Class::GroupHeader, BlockMeaning::Piece("header of inodes (AGI) of group", number)),
        3 => (Class::GroupHeader, BlockMeaning::Piece("free list (AGFL) of group", number)),
        _ => (Class::GroupHeader, BlockMeaning::Piece("after the headers of group", number)),
    }
}

impl Decoder for Xfs {
    fn system(&self) -> &'static str {
        "xfs"
    }

    fn block_shift(&self) -> u32 {
        self.g.block_shift
    }

    fn home_shift(&self) -> u32 {
        9
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let shift = self.g.block_shift;
        cover(out, offset, data.len() as u64, self.g.blocks << shift, |at, end| {
            let linear = at >> shift;
            let place = self.place(at);
            let to = self.until(&place, at, end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let part = |(class, what)| ClassifiedRange { class, offset: at, len: to - at, what };
            let block = ((linear + 1) << shift).min(end);
            let first = &data[(at - offset) as usize..(block - offset) as usize];
            let whole = first.len() == self.g.block_size();
            match place {
                XfsPlace::Header { group, sector } => {
                    self.header_written(group, sector, bytes, state);
                    part(header(group, sector))
                }
                XfsPlace::XfsLog if !(at % 512 == 0 && bytes.len().is_multiple_of(512)) => {
                    unknown(at, to - at, Reason::NotUnderstood)
                }
                XfsPlace::XfsLog => self.log_piece(at, bytes, state),
                XfsPlace::Owned(run) if run.class == Class::FileData => {
                    part(self.owned(&run, at, to))
                }
                XfsPlace::Owned(run) => {
                    let described = if whole { self.described(linear, first) } else { None };
                    if whole {
                        self.learn((linear, at), first, state);
                    }
                    // A block with a valid header has the kind that it claims. Its owner is known
                    // better from the pointers to it.
                    let (class, what) = match described {
                        Some(own) if own.0 != run.class || run.role == Role::Attributes => own,
                        _ => self.owned(&run, at, block),
                    };
                    ClassifiedRange { class, offset: at, len: block - at, what }
                }
                XfsPlace::Free => {
                    let (class, what) = match whole.then(|| self.described(linear, first)).flatten()
                    {
                        Some(described) => {
                            let len = first.len() as u64;
                            state.own(at, len, dir::owner(&self.g, first).unwrap_or(0), None);
                            described
                        }
                        None => (Class::FileData, BlockMeaning::Unclaimed),
                    };
                    if whole {
                        self.learn((linear, at), first, state);
                    }
                    ClassifiedRange { class, offset: at, len: block - at, what }
                }
            }
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let shift = self.g.block_shift;
        cover(out, offset, len, self.g.blocks << shift, |at, end| {
            let place = self.place(at);
            let mut to = self.until(&place, at, end);
            let (class, what) = match place {
                XfsPlace::Header { group, sector } => header(group, sector),
                XfsPlace::XfsLog => (Class::JournalRecords, BlockMeaning::Only("log")),
                XfsPlace::Owned(run) => self.owned(&run, at, to),
                XfsPlace::Free => {
                    to = (((at >> shift) + 1) << shift).min(end);
                    let bytes =
                        data.and_then(|d| d.get((at - offset) as usize..(to - offset) as usize));
                    let whole = bytes.filter(|b| b.len() == self.g.block_size());
                    let described = whole.and_then(|b| self.described(at >> shift, b));
                    // The contents may be left from an earlier use of the block.
                    (described.map_or(Class::FileData, |(class, _)| class), BlockMeaning::Unclaimed)
                }
            };
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn log_bytes(&self) -> Option<u64> {
        self.g.log.map(|_| self.g.log_blocks << self.g.block_shift)
    }

    fn pair(&self) -> Option<PairMember> {
        self.g.log.is_none().then_some(PairMember { uuid: self.g.log_uuid, has_metadata: true })
    }

    fn adopt_log(&mut self, image: &dyn DiskImage) -> bool {
        self.log = XfsLog::over(image, 0, (self.g.log_blocks << self.g.block_shift) / 512);
        true
    }

    fn log_write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let bytes = self.g.log_blocks << self.g.block_shift;
        cover(out, offset, data.len() as u64, bytes, |at, end| {
            let bytes = &data[(at - offset) as usize..(end - offset) as usize];
            match at % 512 == 0 && bytes.len().is_multiple_of(512) {
                true => self.log_piece(at, bytes, state),
                false => unknown(at, end - at, Reason::NotUnderstood),
            }
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, self.g.block_shift)
    }
}

impl Xfs {
    /// The end of the range with the same use as `at`.
    fn until(&self, place: &XfsPlace, at: u64, end: u64) -> u64 {
        let g = &self.g;
        let linear = at >> g.block_shift;
        let to = match place {
            XfsPlace::Header { sector, .. } if *sector < 4 => {
                ((at >> g.sector_shift) + 1) << g.sector_shift
            }
            XfsPlace::Header { .. } => (linear + 1) << g.block_shift,
            XfsPlace::XfsLog => (g.log.unwrap_or(0) + g.log_blocks) << g.block_shift,
            XfsPlace::Owned(run) => run.end() << g.block_shift,
            XfsPlace::Free => (linear + 1) << g.block_shift,
        };
        to.min(end)
    }

    /// Learns the names in a directory block. Where directory blocks are larger than the file
    /// system's, only the names in the first block of each are learned.
    fn names_seen(&mut self, linear: u64, bytes: &[u8], state: &mut DecoderState) {
        let run = self.graph.runs.at(linear).filter(|run| run.class == Class::Directory);
        let sector = linear << (self.g.block_shift - 9);
        let is_its_own = || xfs::describes_itself(&self.g, bytes, sector).is_some();
        let says = dir::owner(&self.g, bytes).filter(|_| is_its_own());
        if let Some(directory) = says.or(run.map(|run| run.ino)) {
            let each = |each: &mut dyn FnMut(&[u8], u64)| dir::in_block(&self.g, bytes, each);
            state.names.listed(linear, directory, each);
            // A directory that outgrew its inode has no names in it any more.
            state.names.listed(directory | INLINE, directory, |_| {});
            if dir::has_entries(bytes) {
                self.keep_directory(linear, bytes);
            }
        }
    }

    /// Learns from a whole block that is not file data, at byte `at` of the device.
    fn learn(&mut self, (linear, at): (u64, u64), bytes: &[u8], state: &mut DecoderState) {
        if self.are_inodes(linear, bytes) {
            if let Some(inodes) = self.logged.remove(&linear) {
                state.divide(at, bytes.len() as u64, &inodes);
            }
            return self.inodes_written(linear, bytes, state);
        }
        self.names_seen(linear, bytes, state);
        match self.graph.runs.at(linear) {
            Some(run) if matches!(run.role, Role::Map { .. }) => {
                self.graph.node_written(linear, bytes, state);
            }
            Some(_) => {}
            None => self.graph.orphan_written(linear, bytes),
        }
    }
}

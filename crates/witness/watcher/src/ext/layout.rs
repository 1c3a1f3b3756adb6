//! Fixed places: superblocks, group descriptors, bitmaps, inode tables.

use ordo_format::ext4::Geometry;
use ordo_format::ext4::superblock::GroupPlaces;

use crate::kind::{BlockMeaning, Class};

/// The most groups that are searched: more than any disk has, as a bound against a damaged
/// superblock.
const GROUPS_MAX: u32 = 1 << 22;

/// The use of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixed {
    Boot,
    Superblock,
    SuperblockCopy {
        group: u32,
    },
    /// Blocks of descriptors from number `index` on.
    Descriptors {
        index: u64,
        copy: bool,
    },
    /// Blocks reserved for more descriptors.
    Reserved {
        group: u32,
    },
    BlockBitmap {
        group: u32,
    },
    InodeBitmap {
        group: u32,
    },
    InodeTable {
        group: u32,
    },
    MultiMount,
}

impl Fixed {
    pub(super) fn class(&self) -> Class {
        match self {
            Fixed::Boot => Class::BootArea,
            Fixed::Superblock | Fixed::MultiMount => Class::Superblock,
            Fixed::SuperblockCopy { .. } => Class::SuperblockCopy,
            Fixed::Descriptors { .. } | Fixed::Reserved { .. } => Class::GroupDescriptors,
            Fixed::BlockBitmap { .. } => Class::BlockBitmap,
            Fixed::InodeBitmap { .. } => Class::InodeBitmap,
            Fixed::InodeTable { .. } => Class::InodeBlock,
        }
    }

    pub(super) fn what(&self) -> BlockMeaning {
        match *self {
            Fixed::Boot => BlockMeaning::BootArea,
            Fixed::Superblock => BlockMeaning::Superblock,
            Fixed::SuperblockCopy { group } => {
                BlockMeaning::Piece("copy of the superblock in group", group.into())
            }
            Fixed::Descriptors { index, copy: false } => {
                BlockMeaning::Piece("group descriptors, block", index)
            }
            Fixed::Descriptors { index, copy: true } => {
                BlockMeaning::Piece("copy of the group descriptors, block", index)
            }
            Fixed::Reserved { group } => {
                BlockMeaning::Piece("block kept for more group descriptors in group", group.into())
            }
            Fixed::BlockBitmap { group } => {
                BlockMeaning::Piece("block bitmap of group", group.into())
            }
            Fixed::InodeBitmap { group } => {
                BlockMeaning::Piece("inode bitmap of group", group.into())
            }
            Fixed::InodeTable { group } => BlockMeaning::Piece("inodes of group", group.into()),
            Fixed::MultiMount => BlockMeaning::Only("multi-mount protection"),
        }
    }
}

/// Consecutive blocks of one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) what: Fixed,
}

/// All areas.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Areas in the order of the device, without overlap.
    areas: Vec<Area>,
    /// Places by group, as far as the group's descriptor was seen.
    groups: Vec<Option<GroupPlaces>>,
    /// The number of descriptors that lead out of the file system.
    nonsense: u64,
}

impl Layout {
    /// The layout that follows from the superblock alone; descriptors add the rest.
    pub(super) fn new(g: &Geometry) -> Layout {
        let groups = vec![None; g.groups.min(GROUPS_MAX) as usize];
        let mut layout = Layout { areas: Vec::new(), groups, nonsense: 0 };
        layout.rebuild(g);
        layout
    }

    /// The places of a group's bitmaps and inode table.
    pub(super) fn group(&self, group: u32) -> Option<GroupPlaces> {
        self.groups.get(group as usize).copied().flatten()
    }

    /// The number of descriptors seen so far that lead out of the file system.
    pub(super) fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Learns a block of descriptors; `index` is its number among those.
    pub(super) fn descriptors_written(&mut self, g: &Geometry, index: u64, bytes: &[u8]) {
        let first = index * g.descs_per_block();
        let mut moved = false;
        for (i, desc) in bytes.chunks_exact(g.desc_size).enumerate() {
            let Some(group) = self.groups.get_mut((first + i as u64) as usize) else { break };
            let new = g.places(desc);
            let fixed = |p: GroupPlaces| (p.block_bitmap, p.inode_bitmap, p.inode_table);
            moved |= new.map(fixed) != group.map(fixed);
            // A descriptor that makes no sense does not replace a good one. One of zeros was never
            // read.
            self.nonsense += u64::from(new.is_none() && desc.iter().any(|b| *b != 0));
            *group = new.or(*group);
        }
        if moved {
            self.rebuild(g);
        }
    }

    fn rebuild(&mut self, g: &Geometry) {
        let mut areas = Vec::new();
        let mut add = |start: u64, len: u64, what| {
            if len > 0 && start < g.blocks {
                areas.push(Area { start, len: len.min(g.blocks - start), what });
            }
        };
        add(0, g.super_block(0), Fixed::Boot);
        if g.mmp_block > 0 {
            add(g.mmp_block, 1, Fixed::MultiMount);
        }
        for group in 0..self.groups.len() as u32 {
            if g.has_super(group) {
                let first =
                    if group == 0 { Fixed::Superblock } else { Fixed::SuperblockCopy { group } };
                add(g.super_block(group), 1, first);
            }
            if let Some((start, count, index, reserved)) = g.descs_in(group) {
                let copy = g.desc_block(index) != start;
                add(start, count, Fixed::Descriptors { index, copy });
                add(start + count, reserved, Fixed::Reserved { group });
            }
            if let Some(places) = self.groups[group as usize] {
                add(places.block_bitmap, 1, Fixed::BlockBitmap { group });
                add(places.inode_bitmap, 1, Fixed::InodeBitmap { group });
                add(places.inode_table, g.inode_blocks(), Fixed::InodeTable { group });
            }
        }
        areas.sort_by_key(|a| a.start);
        // Damaged descriptors may overlap: the first of two areas keeps the blocks.
        let mut end = 0;
        areas.retain_mut(|a| {
            let to = a.start + a.len;
            let apart = a.start >= end;
            end = end.max(to);
            apart
        });
        self.areas = areas;
    }

    /// The area that a block is in.
    pub(super) fn at(&self, block: u64) -> Option<Area> {
        let after = self.areas.partition_point(|a| a.start <= block);
        let area = self.areas.get(after.checked_sub(1)?)?;
        (block < area.start + area.len).then_some(*area)
    }
}

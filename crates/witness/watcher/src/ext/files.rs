//! The owner of each block, by inodes and the nodes of their block maps.

use ordo_format::Endian;
use ordo_format::ext4::inode::mode;
use ordo_format::ext4::{Extent, Geometry, Inode};

use super::dirs;
use super::maps::{ExtTag, Maps};
use crate::decoder::DecoderState;
use crate::graph::{Entry, Graph};
use crate::kind::Class;
use crate::runs::Role;

/// The resize inode, which holds the blocks reserved for more group descriptors
/// (`EXT4_RESIZE_INO`).
const RESIZE_INODE: u32 = 7;
/// The first inode of an ordinary file (`EXT4_GOOD_OLD_FIRST_INO`); lower ones are reserved and
/// have no type of their own.
const FIRST_INODE: u32 = 11;

/// Inodes, their maps, and the blocks that these give them.
pub(super) type Files = Graph<Maps>;

pub(super) fn new(g: &Geometry) -> Files {
    Graph::new(Maps { g: g.clone() })
}

fn class_of(g: &Geometry, ino: u32, inode: &Inode) -> Class {
    match ino {
        _ if ino == g.journal_inode => Class::JournalData,
        _ if ino == g.orphan_inode => Class::Orphans,
        _ if g.quota_inodes.contains(&ino) => Class::Quota,
        RESIZE_INODE => Class::GroupDescriptors,
        _ if inode.flags & Inode::EA_INODE != 0 => Class::ExtendedAttributes,
        _ => match inode.mode & mode::TYPE {
            mode::DIRECTORY => Class::Directory,
            mode::LINK => Class::Symlink,
            _ => Class::FileData,
        },
    }
}

fn is_used(g: &Geometry, ino: u32, inode: &Inode) -> bool {
    match inode.mode {
        0 => ino < FIRST_INODE && inode.links_count > 0,
        // In an orphan, `i_dtime` holds the number of the next orphan.
        _ => inode.links_count > 0 || inode.dtime < g.groups.saturating_mul(g.inodes_per_group),
    }
}

/// Takes in an inode, written in its table or as a copy in the journal.
pub(super) fn inode_written(files: &mut Files, ino: u32, raw: &[u8], state: &mut DecoderState) {
    if ino == 0 || raw.len() < Inode::SIZE {
        return;
    }
    let g = &files.reader.g;
    let inode = Inode::decode(raw, Endian::Little);
    let mut entries = Vec::new();
    let is_used = is_used(g, ino, &inode);
    if ino >= FIRST_INODE {
        state.names.inode(ino.into(), is_used.then_some(inode.generation));
    }
    let is_directory = inode.mode & mode::TYPE == mode::DIRECTORY;
    if is_used && is_directory {
        let is_inline = inode.flags & Inode::INLINE_DATA != 0;
        dirs::learn_inline(ino.into(), is_inline.then_some(raw), &mut state.names);
    }
    if is_used {
        let class = class_of(g, ino, &inode);
        let extents = inode.flags & Inode::EXTENTS != 0;
        if inode.has_pointers() {
            entries =
                files.reader.of_inode(&inode, ExtTag { ino, class, level: 0, extents, lbn: 0 });
        }
        let at = inode.attributes();
        if at > g.first_block && at < g.blocks {
            let (class, role) = (Class::ExtendedAttributes, Role::Attributes);
            let ino = ino.into();
            entries.push(Entry { start: at, len: 1, height: 0, class, ino, role, node: None });
        }
    }
    files.set_root(ino.into(), entries, state);
}

/// Takes in a fast commit's record that a file has one more extent.
pub(super) fn range_added(files: &mut Files, ino: u32, raw: &[u8], state: &mut DecoderState) {
    let extent = Extent::decode(raw, Endian::Little);
    let (start, len, ino) = (extent.start(), u32::from(extent.blocks()), u64::from(ino));
    let end = start.checked_add(len.into());
    let g = &files.reader.g;
    if len == 0 || start <= g.first_block || end.is_none_or(|end| end > g.blocks) {
        return;
    }
    // The inode itself follows in a later record; until then the extent is all that is known of it.
    let mut entries = files.root(ino).to_vec();
    let class = entries.iter().find(|e| e.height == 0).map_or(Class::FileData, |e| e.class);
    let role = Role::Data { lbn: extent.block.into() };
    entries.push(Entry { start, len, height: 0, class, ino, role, node: None });
    files.set_root(ino, entries, state);
}

/// Takes in a fast commit's record that a file lost the blocks of a range: the first logical block,
/// and their number.
pub(super) fn range_removed(
    files: &mut Files,
    ino: u32,
    from: u64,
    len: u64,
    state: &mut DecoderState,
) {
    let mut left = Vec::new();
    let to = from.saturating_add(len);
    for entry in files.root(ino.into()) {
        let Role::Data { lbn } = entry.role else {
            left.push(*entry);
            continue;
        };
        let end = lbn + u64::from(entry.len);
        for (first, last) in [(lbn, end.min(from)), (lbn.max(to), end)] {
            if let Some(len) = last.checked_sub(first).filter(|len| *len > 0) {
                let (start, len) = (entry.start + (first - lbn), len as u32);
                left.push(Entry { start, len, role: Role::Data { lbn: first }, ..*entry });
            }
        }
    }
    files.set_root(ino.into(), left, state);
}

//! The files that own extents of data. Many files may share an extent, and many leaves may refer to
//! it.

use std::collections::BTreeMap;

use ordo_format::btrfs::tree;

use crate::kind::Class;

/// The most users of an extent that are searched for the owner of a byte. Others own it too, but
/// are not searched.
const USERS_MAX: usize = 64;
/// The bits of a file's number that hold the inode's number; the subvolume's is above.
const INODE_BITS: u32 = 40;

/// The number by which a file is known outside of the decoder: the inode number, with the
/// subvolume's number above it unless it is the first subvolume. `None` if it does not fit, or if
/// the subvolume is not known.
pub(super) fn file(of: u64, ino: u64) -> Option<u64> {
    let fits = tree::is_subvolume(of) && ino >> INODE_BITS == 0 && of >> (64 - INODE_BITS) == 0;
    let above = if of == tree::FS { 0 } else { of };
    fits.then_some(above << INODE_BITS | ino)
}

/// A part of an extent as a part of a file. Parts are ordered by address; of several parts with the
/// same extent, the first owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BtrfsExtent {
    /// The address of the extent.
    pub(super) start: u64,
    /// The tree and the inode of the file.
    pub(super) tree: u64,
    pub(super) ino: u64,
    /// The offset of this part in the file, in bytes.
    pub(super) at: u64,
    /// The offset of this part in the extent, in bytes; for a compressed extent, after
    /// decompression.
    pub(super) offset: u64,
    /// The length in bytes, after decompression.
    pub(super) len: u64,
    /// The length of the whole extent on the device, in bytes.
    pub(super) disk_len: u64,
    pub(super) packed: bool,
}

impl BtrfsExtent {
    pub(super) fn class(&self) -> Class {
        // Files of the root tree are the free space cache.
        if self.tree == tree::ROOT { Class::BlockBitmap } else { Class::FileData }
    }

    /// Whether the file uses the byte `within` of its extent.
    fn shows(&self, within: u64) -> bool {
        self.packed || within.checked_sub(self.offset).is_some_and(|n| n < self.len)
    }

    /// The smallest possible part, in this order, of an extent at `start`.
    fn least(start: u64) -> BtrfsExtent {
        let (tree, ino, at, offset, len, disk_len, packed) = (0, 0, 0, 0, 0, 0, false);
        BtrfsExtent { start, tree, ino, at, offset, len, disk_len, packed }
    }
}

/// The ownership of an address.
pub(super) struct Owned {
    /// The file part that uses it; `None` if no file uses that part of the extent.
    pub(super) by: Option<BtrfsExtent>,
    /// The kind of the extent, from any of its owners.
    pub(super) class: Class,
    /// The number of bytes for which this holds.
    pub(super) left: u64,
}

#[derive(Debug, Default)]
pub(super) struct BtrfsOwners {
    all: BTreeMap<BtrfsExtent, u32>,
}

impl BtrfsOwners {
    /// Adds a part. Returns whether it is new.
    pub(super) fn add(&mut self, extent: &BtrfsExtent) -> bool {
        let count = self.all.entry(*extent).or_default();
        *count += 1;
        *count == 1
    }

    pub(super) fn remove(&mut self, extent: &BtrfsExtent) {
        let Some(count) = self.all.get_mut(extent) else { return };
        *count -= 1;
        if *count == 0 {
            self.all.remove(extent);
        }
    }

    pub(super) fn at(&self, address: u64) -> Option<Owned> {
        let (last, _) = match address.checked_add(1) {
            Some(next) => self.all.range(..BtrfsExtent::least(next)).next_back()?,
            None => self.all.last_key_value()?,
        };
        let within = address - last.start;
        let mut left = last.disk_len.checked_sub(within).filter(|left| *left > 0)?;
        if let Some(next) = self.next(address + 1) {
            left = left.min(next - address);
        }
        let mut by = None;
        let users = self.all.range(BtrfsExtent::least(last.start)..).take(USERS_MAX);
        for (user, _) in users.take_while(|(e, _)| e.start == last.start) {
            if user.shows(within) && by.is_none() {
                by = Some(*user);
            }
            if !user.packed {
                let bounds = [user.offset, user.offset + user.len];
                let later = bounds.into_iter().filter(|bound| *bound > within);
                left = later.map(|bound| bound - within).fold(left, u64::min);
            }
        }
        Some(Owned { by, class: by.as_ref().unwrap_or(last).class(), left })
    }

    /// The address of the next extent at or after an address.
    pub(super) fn next(&self, address: u64) -> Option<u64> {
        Some(self.all.range(BtrfsExtent::least(address)..).next()?.0.start)
    }

    /// All parts whose extents begin between two addresses.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &BtrfsExtent> {
        self.all.range(BtrfsExtent::least(from)..BtrfsExtent::least(to.max(from))).map(|(e, _)| e)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BtrfsExtent> {
        self.all.keys()
    }
}

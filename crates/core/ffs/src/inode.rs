//! Inodes in the form that `ufs` uses: the record that every layout has, and the other fields.

use std::cell::Cell;

use ordo_cache::Buffer;
use ordo_format::Endian;
use ordo_format::ufs2::inode::SHORT_LINK_SIZE;
use ordo_format::ufs2::{Dinode, NDADDR};
use ordo_ufs::{Inode, InodeRecord};
use ordo_vfs::Timestamp;

/// An inode in memory.
pub type FfsInode = Inode<Pointers>;

/// The fields of an inode outside of its record: the places of its blocks, and fields that are only
/// written back unchanged. Two values are equal if their blocks are the same.
#[derive(Clone, Debug, Default)]
pub struct Pointers {
    /// The addresses of direct blocks, in fragments; or the first part of a short link's target
    /// (`di_db`).
    pub db: [i64; NDADDR],
    /// The addresses of indirect blocks: single, double, triple; or the rest of a short link's
    /// target (`di_ib`).
    pub ib: [i64; 3],
    /// The addresses of the blocks of extended attributes (`di_extb`).
    pub extb: [i64; 2],
    /// The size of the extended attributes, in bytes (`di_extsize`).
    pub extsize: u32,
    ckhash: u32,
    /// The version of the inode's block at which the inode was last stored in it, or read from it.
    stored: Cell<u64>,
    /// The rarely used fields. Most inodes have none, and a file system keeps many inodes in
    /// memory.
    rest: Option<Box<Rest>>,
}

/// Fields that are only written back unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rest {
    blksize: u32,
    kernflags: u32,
    modrev: u64,
    freelink_or_dirdepth: u32,
    spare: [u32; 2],
}

impl PartialEq for Pointers {
    fn eq(&self, other: &Pointers) -> bool {
        (self.db, self.ib, self.extb) == (other.db, other.ib, other.extb)
    }
}

impl Pointers {
    /// Notes that the inode is in `block` as it is now.
    pub(crate) fn note_stored(&self, block: &Buffer) {
        self.stored.set(block.version());
    }

    /// Whether the inode has been written since it was last stored in `block`.
    pub(crate) fn is_written(&self, block: &Buffer) -> bool {
        block.has_written(self.stored.get())
    }

    /// The target of a short symbolic link, NUL-padded. `endian` is the image's.
    pub(crate) fn short_link(&self, endian: Endian) -> [u8; SHORT_LINK_SIZE] {
        Dinode { db: self.db, ib: self.ib, ..Dinode::zeroed() }.short_link(endian)
    }

    /// Stores the target of a short symbolic link.
    pub(crate) fn set_short_link(&mut self, target: &[u8], endian: Endian) {
        let mut d = Dinode::zeroed();
        d.set_short_link(target, endian);
        (self.db, self.ib) = (d.db, d.ib);
    }
}

fn time(seconds: i64, nanos: i32) -> Timestamp {
    Timestamp { seconds, nanos: nanos.cast_unsigned() }
}

/// Splits an inode into its two parts.
pub fn split(d: &Dinode) -> (InodeRecord, Pointers) {
    let mut record = InodeRecord {
        mode: d.mode,
        links: d.nlink.into(),
        uid: d.uid,
        gid: d.gid,
        size: d.size,
        blocks: d.blocks,
        atime: time(d.atime, d.atimensec),
        mtime: time(d.mtime, d.mtimensec),
        ctime: time(d.ctime, d.ctimensec),
        birthtime: time(d.birthtime, d.birthnsec),
        flags: d.flags,
        generation: d.generation,
        rdev: 0,
    };
    if record.is_device() {
        record.rdev = d.db[0].cast_unsigned();
    }
    let rest = Rest {
        blksize: d.blksize,
        kernflags: d.kernflags,
        modrev: d.modrev,
        freelink_or_dirdepth: d.freelink_or_dirdepth,
        spare: d.spare,
    };
    let rest = (rest != Rest::default()).then(|| Box::new(rest));
    let Dinode { db, ib, extb, extsize, ckhash, .. } = *d;
    (record, Pointers { db, ib, extb, extsize, ckhash, stored: Cell::default(), rest })
}

/// Joins the two parts of an inode. The link count has 16 bits on disk; `ufs` never lets it exceed
/// `LINKS_MAX`.
pub(crate) fn join(record: &InodeRecord, pointers: &Pointers) -> Dinode {
    let none = Rest::default();
    let rest = pointers.rest.as_deref().unwrap_or(&none);
    let mut d = Dinode {
        mode: record.mode,
        nlink: record.links as u16,
        uid: record.uid,
        gid: record.gid,
        blksize: rest.blksize,
        size: record.size,
        blocks: record.blocks,
        atime: record.atime.seconds,
        mtime: record.mtime.seconds,
        ctime: record.ctime.seconds,
        birthtime: record.birthtime.seconds,
        mtimensec: record.mtime.nanos.cast_signed(),
        atimensec: record.atime.nanos.cast_signed(),
        ctimensec: record.ctime.nanos.cast_signed(),
        birthnsec: record.birthtime.nanos.cast_signed(),
        generation: record.generation,
        kernflags: rest.kernflags,
        flags: record.flags,
        extsize: pointers.extsize,
        extb: pointers.extb,
        db: pointers.db,
        ib: pointers.ib,
        modrev: rest.modrev,
        freelink_or_dirdepth: rest.freelink_or_dirdepth,
        ckhash: pointers.ckhash,
        spare: rest.spare,
    };
    if record.is_device() {
        d.db[0] = record.rdev.cast_signed();
    }
    d
}

#[cfg(test)]
mod tests {
    use ordo_format::ufs2::inode::{IFCHR, IFREG};

    use super::*;

    /// An inode is split into its two parts and joined again, and every byte is as before, for a
    /// file and for a device. Would catch a forgotten field, which would be zero on FreeBSD's image
    /// after the first change of the file.
    #[test]
    fn an_inode_in_two_parts_loses_nothing() {
        for kind in [IFREG, IFCHR] {
            let mut bytes: [u8; Dinode::SIZE] =
                std::array::from_fn(|i| (i as u8).wrapping_mul(73).wrapping_add(41));
            Endian::Little.put_u16(&mut bytes, 0, kind | 0o644);
            let (record, pointers) = split(&Dinode::decode(&bytes, Endian::Little));
            assert_eq!(record.rdev != 0, kind == IFCHR);
            let mut out = [0; Dinode::SIZE];
            join(&record, &pointers).encode(&mut out, Endian::Little);
            assert_eq!(out, bytes);
        }
    }
}

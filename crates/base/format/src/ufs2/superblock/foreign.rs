//! Features of other systems' UFS: an image with one of them is never written and never repaired
//! here.
//!
//! Sources: NetBSD's `sys/ufs/ffs/fs.h`, `sys/ufs/ufs/quota2.h` and `sys/ufs/ufs/dir.h`. NetBSD
//! uses bytes 864 to 927 of the superblock for other fields than FreeBSD:
//!
//! | byte | NetBSD | FreeBSD |
//! |---|---|---|
//! | 864 | `fs_journal_version`, `fs_journal_location` (u8 each) | `fs_unrefs` |
//! | 868 | `fs_journal_flags` | |
//! | 872 | `fs_journallocs`: four numbers of 64 bits | `fs_providersize`, `fs_metaspace` |
//! | 904 | `fs_quota_magic` (`QUOT`), flags; 912: `fs_quotafile`, two inodes | reserved |

use std::fmt;

use super::{MAGIC, MAGIC_EA, MAGIC_OFFSET, MAGIC_UFS1, Superblock};
use crate::ufs1::INODE_FORMAT;
use crate::{Endian, ufs2::dir};

/// The version of NetBSD's journal (`UFS_WAPBL_VERSION`).
const WAPBL_VERSION: u8 = 1;
/// The journal is behind the file system (`UFS_WAPBL_JOURNALLOC_END_PARTITION`).
const WAPBL_BEHIND: u8 = 1;
/// The journal is an inode without a name (`UFS_WAPBL_JOURNALLOC_IN_FILESYSTEM`).
const WAPBL_INSIDE: u8 = 2;
/// The magic number of NetBSD's quotas (`Q2_HEAD_MAGIC`).
const QUOTA_MAGIC: u32 = u32::from_le_bytes(*b"TOUQ");
/// The unit of directories in Apple's, NeXT's and OpenStep's UFS1, in bytes (`APPLEUFS_DIRBLKSIZ`).
pub const LONG_CHUNK: usize = 2 * dir::CHUNK;

/// A feature of another system's UFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFeature {
    /// NetBSD's journal, behind the file system.
    JournalBehind,
    /// NetBSD's journal, in an inode without a name.
    JournalInside,
    /// NetBSD's quotas, in inodes without names.
    Quotas,
    /// NetBSD's UFS2 with extended attributes, FFSv2ea.
    ExtendedAttributes,
    /// Inodes of 4.3BSD and before, with owners of 16 bits and directories without types.
    OldInodes,
    /// Directories in chunks of 1,024 bytes.
    LongChunks,
}

impl ForeignFeature {
    /// The sentence about the feature, for a person.
    pub const fn words(self) -> &'static str {
        match self {
            ForeignFeature::JournalBehind => {
                "it has NetBSD's journal (WAPBL), behind the file system"
            }
            ForeignFeature::JournalInside => {
                "it has NetBSD's journal (WAPBL), in an inode without a name"
            }
            ForeignFeature::Quotas => "it has NetBSD's quotas, in inodes without names",
            ForeignFeature::ExtendedAttributes => {
                "it is NetBSD's UFS2 with extended attributes (FFSv2ea)"
            }
            ForeignFeature::OldInodes => {
                "it is a UFS1 with the inodes of 4.3BSD (old_inodefmt is not 2)"
            }
            ForeignFeature::LongChunks => {
                "its directories have chunks of 1,024 bytes, as those of NeXT, OpenStep and Apple"
            }
        }
    }

    /// The feature that a superblock announces. The other fields need not be valid.
    pub fn announced(bytes: &[u8]) -> Option<ForeignFeature> {
        let is_magic = |endian: &Endian| {
            let magic = bytes.get(..Superblock::SIZE).map(|b| endian.get_i32(b, MAGIC_OFFSET));
            magic.is_some_and(|magic| [MAGIC, MAGIC_UFS1, MAGIC_EA].contains(&magic))
        };
        let endian = [Endian::Little, Endian::Big].into_iter().find(is_magic)?;
        Superblock::decode(bytes, endian).foreign_feature()
    }
}

impl fmt::Display for ForeignFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Superblock {
    /// The feature of another system that this superblock announces.
    pub fn foreign_feature(&self) -> Option<ForeignFeature> {
        if self.is_ufs1() && self.old_inodefmt != INODE_FORMAT {
            return Some(ForeignFeature::OldInodes);
        }
        // The fields are single bytes, of which the byte order makes the first or the last of a
        // number.
        let unrefs = self.unrefs;
        for [version, location, rest @ ..] in [unrefs.to_le_bytes(), unrefs.to_be_bytes()] {
            let is_reserved_zero = rest[..2] == [0, 0];
            match (version, location) {
                (WAPBL_VERSION, WAPBL_BEHIND) if is_reserved_zero => {
                    return Some(ForeignFeature::JournalBehind);
                }
                (WAPBL_VERSION, WAPBL_INSIDE) if is_reserved_zero => {
                    return Some(ForeignFeature::JournalInside);
                }
                _ => {}
            }
        }
        let quota = self.sparecon64[2];
        if [quota as u32, (quota >> 32) as u32].contains(&QUOTA_MAGIC) {
            return Some(ForeignFeature::Quotas);
        }
        (self.magic == MAGIC_EA).then_some(ForeignFeature::ExtendedAttributes)
    }

    /// Whether bytes 864 to 903 are NetBSD's, about a journal.
    pub(super) fn has_journal_fields(&self) -> bool {
        use ForeignFeature::{JournalBehind, JournalInside};
        matches!(self.foreign_feature(), Some(JournalBehind | JournalInside))
    }
}

/// Whether a directory, or a part of one from its beginning on, has chunks of 1,024 bytes: an entry
/// crosses byte 512 of one, and all of them are sound.
pub fn has_long_chunks(directory: &[u8], endian: Endian) -> bool {
    directory.len().is_multiple_of(LONG_CHUNK)
        && dir::entries(directory, endian).any(|entry| entry.is_err())
        && dir::entries_of(directory, endian, LONG_CHUNK).all(|entry| entry.is_ok())
}

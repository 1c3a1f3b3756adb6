//! The reasons why a superblock is refused.

use std::fmt;

use crate::Endian;

macro_rules! field_errors {
    ($($variant:ident: $field:ident @ $byte:literal, $want:literal;)+) => {
        /// The reason why bytes are not a usable superblock. Each variant with a `value` is about
        /// one field; its message names the field, its byte in the superblock, and the condition
        /// that it must meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SuperblockError {
            /// Fewer bytes than a superblock has.
            TooShort {
                /// The number of bytes.
                have: usize,
            },
            /// The magic number is another.
            Magic {
                /// The value found, read as little-endian.
                found: u32,
            },
            /// The file system's creation was not finished.
            Incomplete {
                /// The byte order.
                endian: Endian,
            },
            /// The check-hash (byte 1304) does not match the contents.
            CheckHash {
                /// The stored check-hash.
                stored: u32,
                /// The check-hash of the contents.
                computed: u32,
            },
            $(
                #[doc = concat!("`", stringify!($field), "` ", $want, ".")]
                $variant {
                    /// The field's value.
                    value: i64,
                },
            )+
        }

        impl SuperblockError {
            /// The byte in the superblock that the error is about.
            pub fn byte(&self) -> usize {
                match self {
                    SuperblockError::TooShort { have } => *have,
                    SuperblockError::Magic { .. }
                    | SuperblockError::Incomplete { .. } => super::MAGIC_OFFSET,
                    SuperblockError::CheckHash { .. } => super::CKHASH_OFFSET,
                    $(SuperblockError::$variant { .. } => $byte,)+
                }
            }

            /// The field with the error, if the error is about one.
            pub fn field(&self) -> Option<&'static str> {
                match self {
                    $(SuperblockError::$variant { .. } => Some(stringify!($field)),)+
                    _ => None,
                }
            }

            fn want(&self) -> Option<(i64, &'static str)> {
                match self {
                    $(SuperblockError::$variant { value } => Some((*value, $want)),)+
                    _ => None,
                }
            }
        }
    };
}

field_errors! {
    BlockSize: bsize @ 48, "must be a power of two from 4096 to 65536";
    FragmentSize: fsize @ 52, "must be a power of two from 512 to the block size";
    FragmentsPerBlock: frag @ 56, "must be the block size over the fragment size, at most 8";
    MinFree: minfree @ 60, "must be a percentage from 0 to 99";
    BlockMask: bmask @ 72, "must be the complement of the block size less 1";
    FragmentMask: fmask @ 76, "must be the complement of the fragment size less 1";
    BlockShift: bshift @ 80, "must be log2 of the block size";
    FragmentShift: fshift @ 84, "must be log2 of the fragment size";
    MaxContig: maxcontig @ 88, "must not be negative";
    MaxBlocksPerGroup: maxbpg @ 92, "must be at least 1";
    BlockFragmentShift: fragshift @ 96, "must be log2 of the fragments in a block";
    SectorShift: fsbtodb @ 100, "must be at most log2 of the 512-byte sectors in a fragment";
    SuperblockSize: sbsize @ 104, "must be from 1376 to 8192";
    AddressesPerBlock: nindir @ 116, "must be the block size over 8 (UFS1: 4)";
    InodesPerBlock: inopb @ 120, "must be the block size over 256 (UFS1: 128)";
    Optimisation: optim @ 128, "must be 0 (time) or 1 (space)";
    SummarySize: cssize @ 156, "must be 16 bytes a group, rounded up to fragments";
    GroupHeaderSize: cgsize @ 160, "must hold the group's bitmaps and fit in a block";
    InodesPerGroup: ipg @ 184, "must be whole blocks of inodes, and below 2^32 in all groups together";
    FragmentsPerGroup: fpg @ 188, "must be whole blocks, more than the group's own structures take";
    SuperblockCopy: sblkno @ 8, "must be whole blocks, and not inside the standard superblock";
    GroupHeader: cblkno @ 12, "must be whole blocks, after the superblock copy";
    Inodes: iblkno @ 16, "must be whole blocks, after the group header's block";
    Data: dblkno @ 20, "must be where the group's inodes end";
    Groups: ncg @ 44, "must be the size over the fragments per group, rounded up";
    Size: size @ 1080, "must be more than the last group's own structures need, and below 2^63 bytes";
    DataSize: dsize @ 1088, "must be from 1 to the size";
    SummaryAddress: csaddr @ 1096, "must leave the summary area inside of one group's data";
    MetadataSpace: metaspace @ 880, "must be from 0 to the fragments per group";
    Place: sblockloc @ 1000, "must be where superblocks are kept, and where this one was found";
    ClusterSum: contigsumsize @ 1316, "must be from 0 to 16";
    LinkLength: maxsymlinklen @ 1320, "must be from 0 to 120";
    InodeFormat: old_inodefmt @ 1324, "must be 2, the format of 4.4BSD";
    GroupOffset: old_cgoffset @ 24, "must be whole blocks, and leave each group's structures inside of it";
    Cylinders: old_cpg @ 180, "must be from 1 to 32767";
    Positions: old_nrpos @ 1360, "must be from 0 to 64";
    OffsetMask: qbmask @ 1336, "must be the block size less 1";
    FragmentOffsetMask: qfmask @ 1344, "must be the fragment size less 1";
}

fn order(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "little-endian",
        Endian::Big => "big-endian",
    }
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let byte = self.byte();
        match (self, self.field(), self.want()) {
            (_, Some(field), Some((value, want))) => {
                write!(f, "superblock byte {byte}: {field} is {value}, but {want}")
            }
            (SuperblockError::TooShort { have }, ..) => {
                write!(f, "truncated superblock: {have} bytes of {}", super::Superblock::SIZE)
            }
            (SuperblockError::Magic { found }, ..) => {
                write!(
                    f,
                    "no superblock: byte {byte} holds {found:#010x}, not a UFS file system's magic number"
                )
            }
            (SuperblockError::Incomplete { endian }, ..) => write!(
                f,
                "an incomplete file system, {}: the program that made it did not finish; make it again",
                order(*endian)
            ),
            (SuperblockError::CheckHash { stored, computed }, ..) => write!(
                f,
                "superblock byte {byte}: check-hash is {stored:#010x}, but the contents give \
                 {computed:#010x}"
            ),
            _ => unreachable!("every variant with a field has what it wants"),
        }
    }
}

impl std::error::Error for SuperblockError {}

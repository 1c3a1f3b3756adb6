//! The reasons why a superblock is refused.

use std::fmt;

use super::{Width, superblock};

macro_rules! field_errors {
    ($($variant:ident: $field:ident, $want:literal;)+) => {
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
            /// The superblock has the other byte order.
            ByteOrder {
                /// The format that its magic number names.
                width: Width,
            },
            /// The checksum (byte 508) does not match the contents.
            Checksum {
                /// The stored checksum.
                stored: u32,
                /// The checksum of the contents.
                computed: u32,
            },
            $(
                #[doc = concat!("`", stringify!($field), "` ", $want, ".")]
                $variant {
                    /// The format.
                    width: Width,
                    /// The field's value.
                    value: i64,
                },
            )+
        }

        impl SuperblockError {
            /// The field with the error, if the error is about one.
            pub fn field(&self) -> Option<&'static str> {
                match self {
                    $(SuperblockError::$variant { .. } => Some(stringify!($field)),)+
                    _ => None,
                }
            }

            fn want(&self) -> Option<(Width, i64, &'static str)> {
                match self {
                    $(SuperblockError::$variant { width, value } => Some((*width, *value, $want)),)+
                    _ => None,
                }
            }
        }
    };
}

field_errors! {
    Version: version, "must be 2: version 1 has no serial numbers to roll forward by";
    BlockSize: bsize, "must be a power of two from 512 to 65536";
    FragmentSize: fsize, "must be a power of two from 512 to 8192, at most the block size";
    FragmentsPerBlock: frag, "must be the block size over the fragment size";
    SegmentSize: ssize, "must be whole fragments, at least two blocks and a summary, at most 1 GB";
    FragmentsPerSegment: fsbpseg, "must be the segment size over the fragment size";
    SummarySize: sumsize, "must be whole fragments, at most a block";
    InodeBlockSize: ibsize, "must be whole fragments, at most a block";
    InodesPerBlock: inopb, "must be the size of a block of inodes over the size of an inode";
    EntriesPerBlock: ifpb, "must be the block size over the size of an IFILE entry";
    SegmentsPerBlock: sepb, "must be the block size over 24";
    PointersPerBlock: nindir, "must be the block size over the size of a pointer";
    Segments: nseg, "must be at least 1, and all segments inside of the file system";
    Size: size, "must be below 2^63 bytes (LFS32: 2^31 fragments)";
    DataSize: dsize, "must be at most the size";
    SegmentZero: s0addr, "must be inside of the file system";
    CleanerInfoSize: cleansz, "must be the blocks that the cleaner info takes";
    SegmentTableSize: segtabsz, "must be the blocks that one entry for each segment takes";
    BlockShift: bshift, "must be log2 of the block size";
    FragmentShift: ffshift, "must be log2 of the fragment size";
    BlockFragmentShift: fbshift, "must be log2 of the fragments in a block";
    BlockSectorShift: blktodb, "must be log2 of the 512-byte sectors in a block";
    SectorShift: fsbtodb, "must be log2 of the 512-byte sectors in a fragment";
    SuperblockPlace: sboffs, "must be behind the label, then at the starts of other segments, each once";
    IfileAddress: idaddr, "must be inside of a segment, and in no superblock";
    CurrentSegment: curseg, "must be the start of a segment";
    NextSegment: nextseg, "must be the start of another segment";
    LogOffset: offset, "must be inside of the current segment, or its end";
    MinFreeSegments: minfreeseg, "must be below the number of segments";
    CleanSegments: nclean, "must be at most the number of segments";
    LinkLength: maxsymlinklen, "must be from 0 to 120 (LFS32: 60)";
    InodeFormat: inodefmt, "must be 0, the format of 4.4BSD";
    IfileInode: ifile, "must be 1";
}

impl SuperblockError {
    /// The byte in the superblock that the error is about.
    pub fn byte(&self) -> usize {
        match (self, self.field(), self.want()) {
            (_, Some(field), Some((width, ..))) => superblock::field_byte(width, field),
            (SuperblockError::TooShort { have }, ..) => *have,
            (SuperblockError::Checksum { .. }, ..) => superblock::CKSUM_OFFSET,
            _ => 0,
        }
    }
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let byte = self.byte();
        match (self, self.field(), self.want()) {
            (_, Some(field), Some((width, value, want))) => {
                let name = width.name();
                write!(f, "{name} superblock byte {byte}: {field} is {value}, but {want}")
            }
            (SuperblockError::TooShort { have }, ..) => {
                write!(f, "truncated superblock: {have} bytes of 512")
            }
            (SuperblockError::ByteOrder { width }, ..) => {
                let name = width.name();
                write!(f, "{name} in big-endian byte order; only little-endian can be read")
            }
            (SuperblockError::Checksum { stored, computed }, ..) => write!(
                f,
                "superblock byte {byte}: cksum is {stored:#06x}, but the contents give {computed:#06x}"
            ),
            (SuperblockError::Magic { found }, ..) => {
                write!(f, "no superblock: byte 0 holds {found:#010x}, not LFS's magic number")
            }
            _ => unreachable!("every variant with a field has what it wants"),
        }
    }
}

impl std::error::Error for SuperblockError {}

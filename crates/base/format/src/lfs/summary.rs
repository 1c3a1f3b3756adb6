//! Partial segments, the units of the log.
//!
//! A partial segment is a summary of `sumsize` bytes and the blocks that it describes, without
//! gaps. The summary has a head ([`Segsum`]), then for each file a FINFO with the numbers of its
//! blocks, and from its end downwards the addresses of the inode blocks (IINFO). The blocks lie in
//! the order of the FINFOs. An inode block lies at its address, between two files' blocks. The last
//! block of a FINFO may be a fragment.
//!
//! Checksums: `sumsum` covers the summary from byte 4 on; `datasum` covers the first four bytes of
//! each block. In the gap between FINFOs and IINFOs, which NetBSD does not read, Ordo writes a
//! [`Seal`]. The seal follows the last FINFO, and its CRC-32C covers the whole partial segment. If
//! `pad` marks a partial segment as sealed, it is valid when this CRC is right; any other is valid
//! when the two sums are right.

use super::{LE, Superblock, Width, checksum, lbn};
use crate::on_disk;

/// The magic number of a summary (`SS_MAGIC`).
pub const SS_MAGIC: u32 = 0x0006_1561;

/// Flags of a partial segment (`SS_*`).
pub mod flag {
    /// Directory operations begin in this partial segment.
    pub const DIROP: u16 = 0x01;
    /// A directory operation continues in the next partial segment.
    pub const CONT: u16 = 0x02;
    /// The cleaner wrote it.
    pub const CLEAN: u16 = 0x04;
    /// Roll-forward wrote it.
    pub const RFW: u16 = 0x08;
    /// A checkpoint that reclaims segments wrote it.
    pub const RECLAIM: u16 = 0x10;
}

/// The value of `pad` in a partial segment with a [`Seal`].
pub const SEALED: u16 = 0x4f53;
/// The magic number of a seal.
pub const SEAL_MAGIC: u64 = u64::from_le_bytes(*b"OrdoSeal");

on_disk! {
    /// The head of a summary. NetBSD's `SEGSUM64`, its fields without `ss_`.
    pub struct Segsum: 56 {
        0 ss_sumsum => /** checksum of the summary from byte 4 on */ sumsum: u32,
        4 ss_datasum => /** checksum of the first four bytes of each block */ datasum: u32,
        8 ss_magic => /** 0x061561 */ magic: u32,
        12 ss_ident => /** `ident` of the superblock */ ident: u32,
        16 ss_next => /** address of the next segment */ next: i64,
        24 ss_nfinfo => /** number of FINFOs */ nfinfo: u16,
        26 ss_ninos => /** number of inodes */ ninos: u16,
        28 ss_flags => /** flags: 1 directory operation, 2 continued by the next partial segment, 4 written by the cleaner, 8 by roll-forward, 16 by reclaim */ flags: u16,
        30 ss_pad => /** padding; 0x4f53: Ordo has sealed the partial segment */ pad: u16,
        32 ss_reclino => /** inode that is being reclaimed */ reclino: u64,
        40 ss_serial => /** serial number: grows by one with each partial segment */ serial: u64,
        48 ss_create => /** time of the write, seconds since 1970 */ create: u64,
    }
}

on_disk! {
    /// The head on LFS32: `SEGSUM32`.
    pub struct Segsum32: 48 {
        0 ss_sumsum => /** checksum of the summary from byte 4 on */ sumsum: u32,
        4 ss_datasum => /** checksum of the first four bytes of each block */ datasum: u32,
        8 ss_magic => /** 0x061561 */ magic: u32,
        12 ss_next => /** address of the next segment */ next: i32,
        16 ss_ident => /** `ident` of the superblock */ ident: u32,
        20 ss_nfinfo => /** number of FINFOs */ nfinfo: u16,
        22 ss_ninos => /** number of inodes */ ninos: u16,
        24 ss_flags => /** flags: 1 directory operation, 2 continued by the next partial segment, 4 written by the cleaner, 8 by roll-forward, 16 by reclaim */ flags: u16,
        26 ss_pad => /** padding; 0x4f53: Ordo has sealed the partial segment */ pad: u16,
        28 ss_reclino => /** inode that is being reclaimed */ reclino: u32,
        32 ss_serial => /** serial number: grows by one with each partial segment */ serial: u64,
        40 ss_create => /** time of the write, seconds since 1970 */ create: u64,
    }
}

on_disk! {
    /// Blocks of one file, before their numbers. NetBSD's `FINFO64`, its fields without `fi_`.
    pub struct Finfo: 24 {
        0 fi_nblocks => /** number of block numbers that follow */ nblocks: u32,
        4 fi_version => /** version of the inode */ version: u32,
        8 fi_ino => /** inode number */ ino: u64,
        16 fi_lastlength => /** length of the last block in bytes */ lastlength: u32,
        20 fi_pad => /** unused */ pad: u32,
    }
}

on_disk! {
    /// A FINFO on LFS32: `FINFO32`.
    pub struct Finfo32: 16 {
        0 fi_nblocks => /** number of block numbers that follow */ nblocks: u32,
        4 fi_version => /** version of the inode */ version: u32,
        8 fi_ino => /** inode number */ ino: u32,
        12 fi_lastlength => /** length of the last block in bytes */ lastlength: u32,
    }
}

on_disk! {
    /// Ordo's proof that a partial segment is whole. It lies in the summary's gap, at the first
    /// multiple of 8.
    pub struct Seal: 16 {
        0 => /** `OrdoSeal` */ magic: u64,
        8 => /** number of fragments of the partial segment, including the summary */ frags: u32,
        12 => /** CRC-32C of the whole partial segment, computed with this field and `sumsum` as zero */ crc: u32,
    }
}

impl Segsum {
    /// Reads a head. Panics if there are too few bytes.
    pub fn read(width: Width, bytes: &[u8]) -> Segsum {
        match width {
            Width::Lfs64 => Segsum::decode(bytes, LE),
            Width::Lfs32 => {
                let s = Segsum32::decode(bytes, LE);
                Segsum {
                    sumsum: s.sumsum,
                    datasum: s.datasum,
                    magic: s.magic,
                    ident: s.ident,
                    next: s.next.into(),
                    nfinfo: s.nfinfo,
                    ninos: s.ninos,
                    flags: s.flags,
                    pad: s.pad,
                    reclino: s.reclino.into(),
                    serial: s.serial,
                    create: s.create,
                }
            }
        }
    }

    /// Writes a head. Panics if there are too few bytes.
    pub fn write(&self, width: Width, bytes: &mut [u8]) {
        match width {
            Width::Lfs64 => self.encode(bytes, LE),
            Width::Lfs32 => Segsum32 {
                sumsum: self.sumsum,
                datasum: self.datasum,
                magic: self.magic,
                next: self.next as i32,
                ident: self.ident,
                nfinfo: self.nfinfo,
                ninos: self.ninos,
                flags: self.flags,
                pad: self.pad,
                reclino: self.reclino as u32,
                serial: self.serial,
                create: self.create,
            }
            .encode(bytes, LE),
        }
    }
}

/// Blocks of one file in a partial segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The inode.
    pub ino: u64,
    /// The inode's version.
    pub version: u32,
    /// The number of bytes of the last block; the others are whole.
    pub lastlength: u32,
    /// Logical numbers of the blocks; negative ones are of indirect blocks.
    pub blocks: Vec<i64>,
}

/// A summary, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The head.
    pub head: Segsum,
    /// Each file's blocks.
    pub files: Vec<FileInfo>,
    /// Addresses of the inode blocks.
    pub inode_blocks: Vec<i64>,
}

/// A block of a partial segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsegBlock {
    /// An inode block.
    Inodes {
        /// The address, in fragments.
        addr: i64,
    },
    /// A data block or an indirect block of a file.
    File {
        /// The address, in fragments.
        addr: i64,
        /// The length in bytes.
        bytes: u32,
        /// The file.
        ino: u64,
        /// The version of its inode.
        version: u32,
        /// The logical block number.
        lbn: i64,
    },
}

impl PsegBlock {
    /// The block's address, in fragments.
    pub fn addr(&self) -> i64 {
        match self {
            PsegBlock::Inodes { addr } | PsegBlock::File { addr, .. } => *addr,
        }
    }
}

/// The reason why bytes are not a summary, or a partial segment is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// Fewer bytes than a summary has.
    #[error("truncated summary: {have} bytes")]
    TooShort {
        /// The number of bytes.
        have: usize,
    },
    /// The magic number is another.
    #[error("no summary: byte 8 holds {found:#010x}, not {SS_MAGIC:#010x}")]
    Magic {
        /// The value found.
        found: u32,
    },
    /// `sumsum` does not match the summary.
    #[error("sumsum is {stored:#06x}, but the summary gives {computed:#06x}")]
    SumSum {
        /// The stored sum.
        stored: u32,
        /// The sum of the contents.
        computed: u32,
    },
    /// FINFOs and IINFOs do not fit into the summary together.
    #[error("{nfinfo} FINFOs and {ninos} inodes do not fit in a summary of {bytes} bytes")]
    TooMany {
        /// The number of FINFOs that the head gives.
        nfinfo: u16,
        /// The number of inodes that the head gives.
        ninos: u16,
        /// The summary's size in bytes.
        bytes: usize,
    },
    /// A FINFO has no blocks, or the inode 0.
    #[error("FINFO {index}, for inode {ino}, has no blocks or no inode")]
    EmptyFinfo {
        /// The FINFO's index.
        index: usize,
        /// The inode number.
        ino: u64,
    },
    /// The last block's length is impossible.
    #[error("FINFO {index}: a last block {lbn} of {bytes} bytes is impossible")]
    LastLength {
        /// The FINFO's index.
        index: usize,
        /// The last block.
        lbn: i64,
        /// The length in bytes.
        bytes: u32,
    },
    /// No file can have a block with this number.
    #[error("FINFO {index}: no file has a block {lbn}")]
    BlockNumber {
        /// The FINFO's index.
        index: usize,
        /// The block number.
        lbn: i64,
    },
    /// An inode block does not begin at the end of the block before it.
    #[error("the address of a block of inodes is {stored}, but must be {expected}")]
    InodeBlock {
        /// The address in the summary.
        stored: i64,
        /// The end of the block before it.
        expected: i64,
    },
    /// The partial segment extends beyond its segment.
    #[error("it ends at {end}, beyond its segment, which ends at {limit}")]
    SegmentEnd {
        /// The end, in fragments.
        end: i64,
        /// The segment's end, in fragments.
        limit: i64,
    },
    /// `datasum` does not match the blocks.
    #[error("datasum is {stored:#06x}, but the blocks give {computed:#06x}")]
    DataSum {
        /// The stored sum.
        stored: u32,
        /// The sum of the contents.
        computed: u32,
    },
    /// The seal is not at its place, or has another length.
    #[error("it is marked as sealed, but has no seal for {frags} fragments")]
    NoSeal {
        /// The length of the partial segment, in fragments.
        frags: u32,
    },
    /// The seal does not match the contents.
    #[error("its seal is {stored:#010x}, but the contents give {computed:#010x}")]
    SealCrc {
        /// The stored CRC-32C.
        stored: u32,
        /// The CRC-32C of the contents.
        computed: u32,
    },
}

impl Summary {
    /// Reads the summary in `bytes`, of which the first `sumsize` count, and checks that it is
    /// consistent.
    ///
    /// # Errors
    /// The bytes are no summary, or it is damaged, or it describes impossible blocks.
    pub fn read(sb: &Superblock, bytes: &[u8]) -> Result<Summary, SummaryError> {
        let size = sb.sumsize as usize;
        let bytes = bytes.get(..size).ok_or(SummaryError::TooShort { have: bytes.len() })?;
        let head = Segsum::read(sb.width, bytes);
        if head.magic != SS_MAGIC {
            return Err(SummaryError::Magic { found: head.magic });
        }
        let computed = checksum(&bytes[4..]);
        if computed != head.sumsum {
            return Err(SummaryError::SumSum { stored: head.sumsum, computed });
        }
        let inode_blocks = inode_blocks(sb, &head, bytes)?;
        let capacity = size - inode_blocks.len() * sb.width.pointer_size();
        let files = files(sb, &head, &bytes[..capacity])?;
        Ok(Summary { head, files, inode_blocks })
    }

    /// The end of the FINFOs in the summary, in bytes.
    pub fn finfo_end(&self, width: Width) -> usize {
        let one = |f: &FileInfo| width.finfo_size() + f.blocks.len() * width.pointer_size();
        width.segsum_size() + self.files.iter().map(one).sum::<usize>()
    }

    /// The place of the [`Seal`] in the summary, in bytes.
    pub fn seal_at(&self, width: Width) -> usize {
        self.finfo_end(width).next_multiple_of(8)
    }

    /// Whether the head marks the partial segment as sealed.
    pub fn is_sealed(&self) -> bool {
        self.head.pad == SEALED
    }

    /// The blocks of the partial segment whose summary is at `at`, in the order of their addresses,
    /// and its end, in fragments.
    ///
    /// # Errors
    /// An inode block is at another place, or the partial segment extends beyond its segment.
    pub fn layout(&self, sb: &Superblock, at: i64) -> Result<(Vec<PsegBlock>, i64), SummaryError> {
        let limit = sb.segment_of(at).map_or(at, |s| sb.segment_start(s + 1));
        let mut addr = at + i64::from(sb.sumsize / sb.fsize);
        let mut out = Vec::new();
        let mut inodes = self.inode_blocks.iter().peekable();
        let mut files = self.files.iter();
        loop {
            if inodes.next_if(|i| **i == addr).is_some() {
                out.push(PsegBlock::Inodes { addr });
                addr += i64::from(sb.ibsize / sb.fsize);
                continue;
            }
            let Some(file) = files.next() else { break };
            for (i, lbn) in file.blocks.iter().enumerate() {
                let is_last = i + 1 == file.blocks.len();
                let bytes = if is_last { file.lastlength } else { sb.bsize };
                let (ino, version) = (file.ino, file.version);
                out.push(PsegBlock::File { addr, bytes, ino, version, lbn: *lbn });
                addr += i64::from(bytes / sb.fsize);
            }
            if addr > limit {
                return Err(SummaryError::SegmentEnd { end: addr, limit });
            }
        }
        if let Some(stored) = inodes.next() {
            return Err(SummaryError::InodeBlock { stored: *stored, expected: addr });
        }
        match addr > limit {
            true => Err(SummaryError::SegmentEnd { end: addr, limit }),
            false => Ok((out, addr)),
        }
    }

    /// Checks that the partial segment at `at` is valid; `bytes` is the whole of it, the summary
    /// first. The seal decides if there is one, otherwise `datasum`, which covers only four bytes
    /// of each block.
    ///
    /// # Errors
    /// The partial segment is not whole, or as for [`layout`](Self::layout).
    pub fn verify(&self, sb: &Superblock, at: i64, bytes: &[u8]) -> Result<(), SummaryError> {
        let (blocks, end) = self.layout(sb, at)?;
        let len = (end - at) as usize * sb.fsize as usize;
        let bytes = bytes.get(..len).ok_or(SummaryError::TooShort { have: bytes.len() })?;
        if self.is_sealed() {
            return self.verify_seal(sb, bytes);
        }
        let computed = datasum(sb, at, &blocks, bytes);
        let stored = self.head.datasum;
        if computed == stored { Ok(()) } else { Err(SummaryError::DataSum { stored, computed }) }
    }

    fn verify_seal(&self, sb: &Superblock, bytes: &[u8]) -> Result<(), SummaryError> {
        let frags = (bytes.len() / sb.fsize as usize) as u32;
        let at = self.seal_at(sb.width);
        let capacity = sb.sumsize as usize - self.inode_blocks.len() * sb.width.pointer_size();
        if at + Seal::SIZE > capacity {
            return Err(SummaryError::NoSeal { frags });
        }
        let seal = Seal::decode(&bytes[at..], LE);
        if (seal.magic, seal.frags) != (SEAL_MAGIC, frags) {
            return Err(SummaryError::NoSeal { frags });
        }
        let (stored, computed) = (seal.crc, seal_crc(bytes, at));
        if computed == stored { Ok(()) } else { Err(SummaryError::SealCrc { stored, computed }) }
    }

    /// Writes the summary of the partial segment at `at`, with its checksums, to the start of
    /// `bytes`, which hold its blocks already. With `sealed`, it writes a seal too.
    ///
    /// # Errors
    /// The summary does not fit, or as for [`layout`](Self::layout).
    pub fn write(
        &mut self,
        sb: &Superblock,
        at: i64,
        bytes: &mut [u8],
        sealed: bool,
    ) -> Result<(), SummaryError> {
        let (blocks, end) = self.layout(sb, at)?;
        let len = (end - at) as usize * sb.fsize as usize;
        let (width, size) = (sb.width, sb.sumsize as usize);
        let bytes = bytes.get_mut(..len).ok_or(SummaryError::TooShort { have: 0 })?;
        let (nfinfo, ninos) = (self.files.len() as u16, self.head.ninos);
        let capacity = size - (self.inode_blocks.len() * width.pointer_size()).min(size);
        let seal = if sealed { self.seal_at(width) + Seal::SIZE } else { 0 };
        if self.finfo_end(width).max(seal) > capacity {
            return Err(SummaryError::TooMany { nfinfo, ninos, bytes: size });
        }
        bytes[..size].fill(0);
        self.head.nfinfo = nfinfo;
        self.head.magic = SS_MAGIC;
        self.head.pad = if sealed { SEALED } else { 0 };
        self.head.datasum = datasum(sb, at, &blocks, bytes);
        self.head.sumsum = 0;
        self.head.write(width, bytes);
        self.write_lists(sb, bytes);
        if sealed {
            let seal_at = self.seal_at(width);
            let frags = (end - at) as u32;
            let mut seal = Seal { magic: SEAL_MAGIC, frags, crc: 0 };
            seal.encode(&mut bytes[seal_at..], LE);
            seal.crc = seal_crc(bytes, seal_at);
            seal.encode(&mut bytes[seal_at..], LE);
        }
        self.head.sumsum = checksum(&bytes[4..size]);
        LE.put_u32(bytes, 0, self.head.sumsum);
        Ok(())
    }

    fn write_lists(&self, sb: &Superblock, bytes: &mut [u8]) {
        let (width, pointer) = (sb.width, sb.width.pointer_size());
        let mut at = width.segsum_size();
        for file in &self.files {
            let (nblocks, lastlength) = (file.blocks.len() as u32, file.lastlength);
            match width {
                Width::Lfs64 => {
                    let (version, ino) = (file.version, file.ino);
                    Finfo { nblocks, version, ino, lastlength, pad: 0 }
                        .encode(&mut bytes[at..], LE);
                }
                Width::Lfs32 => {
                    let (version, ino) = (file.version, file.ino as u32);
                    Finfo32 { nblocks, version, ino, lastlength }.encode(&mut bytes[at..], LE);
                }
            }
            at += width.finfo_size();
            for lbn in &file.blocks {
                width.put_pointer(bytes, at, *lbn);
                at += pointer;
            }
        }
        for (i, addr) in self.inode_blocks.iter().enumerate() {
            width.put_pointer(bytes, sb.sumsize as usize - (i + 1) * pointer, *addr);
        }
    }
}

fn seal_crc(bytes: &[u8], seal_at: usize) -> u32 {
    let crc = seal_at + 12;
    [&[0; 4], &bytes[4..crc], &[0; 4], &bytes[crc + 4..]]
        .iter()
        .fold(0, |sum, part| crc32c::crc32c_append(sum, part))
}

fn datasum(sb: &Superblock, at: i64, blocks: &[PsegBlock], bytes: &[u8]) -> u32 {
    blocks.iter().fold(0, |sum, block| {
        let offset = (block.addr() - at) as usize * sb.fsize as usize;
        sum ^ checksum(&bytes[offset..offset + 4])
    })
}

fn inode_blocks(sb: &Superblock, head: &Segsum, bytes: &[u8]) -> Result<Vec<i64>, SummaryError> {
    let (pointer, size) = (sb.width.pointer_size(), bytes.len());
    let count = usize::from(head.ninos).div_ceil(sb.inopb as usize);
    if sb.width.segsum_size() + count * pointer > size {
        let (nfinfo, ninos) = (head.nfinfo, head.ninos);
        return Err(SummaryError::TooMany { nfinfo, ninos, bytes: size });
    }
    Ok((1..=count).map(|i| sb.width.pointer(bytes, size - i * pointer)).collect())
}

fn files(sb: &Superblock, head: &Segsum, bytes: &[u8]) -> Result<Vec<FileInfo>, SummaryError> {
    let (width, pointer) = (sb.width, sb.width.pointer_size());
    let too_many = SummaryError::TooMany {
        nfinfo: head.nfinfo,
        ninos: head.ninos,
        bytes: sb.sumsize as usize,
    };
    let mut at = width.segsum_size();
    let mut out = Vec::new();
    for index in 0..usize::from(head.nfinfo) {
        let raw = bytes.get(at..at + width.finfo_size()).ok_or(too_many)?;
        let info = match width {
            Width::Lfs64 => Finfo::decode(raw, LE),
            Width::Lfs32 => {
                let f = Finfo32::decode(raw, LE);
                let (nblocks, version, lastlength) = (f.nblocks, f.version, f.lastlength);
                Finfo { nblocks, version, ino: f.ino.into(), lastlength, pad: 0 }
            }
        };
        at += width.finfo_size();
        let count = info.nblocks as usize;
        if count == 0 || info.ino == 0 {
            return Err(SummaryError::EmptyFinfo { index, ino: info.ino });
        }
        let len = count.checked_mul(pointer).ok_or(too_many)?;
        let numbers = at.checked_add(len).and_then(|end| bytes.get(at..end)).ok_or(too_many)?;
        at += len;
        let blocks: Vec<i64> = (0..count).map(|i| width.pointer(numbers, i * pointer)).collect();
        check_file(sb, index, info.lastlength, &blocks)?;
        let (ino, version, lastlength) = (info.ino, info.version, info.lastlength);
        out.push(FileInfo { ino, version, lastlength, blocks });
    }
    Ok(out)
}

fn check_file(
    sb: &Superblock,
    index: usize,
    bytes: u32,
    blocks: &[i64],
) -> Result<(), SummaryError> {
    if let Some(lbn) = blocks.iter().find(|b| lbn::path(**b, sb.nindir.into()).is_none()) {
        return Err(SummaryError::BlockNumber { index, lbn: *lbn });
    }
    let lbn = blocks[blocks.len() - 1];
    let whole = bytes == sb.bsize;
    let fragment = (0..super::NDADDR as i64).contains(&lbn)
        && bytes > 0
        && bytes < sb.bsize
        && bytes.is_multiple_of(sb.fsize);
    if whole || fragment { Ok(()) } else { Err(SummaryError::LastLength { index, lbn, bytes }) }
}

//! The superblock's fields and constants.

use crate::on_disk;
use crate::ufs2::csum::{CsTotal, Csum};

on_disk! {
    /// The superblock: the parameters of the file system. FreeBSD's `struct fs`, without `fs_`.
    ///
    /// Addresses and sizes called "fragments" are in units of `fsize` bytes.
    pub struct Superblock: 1376 {
        0 => /** unused (once a list link) */ firstfield: i32,
        4 => /** unused */ unused_1: i32,
        8 => /** fragments from a group's start to its superblock copy */ sblkno: i32,
        12 => /** fragments from a group's start to its header */ cblkno: i32,
        16 => /** fragments from a group's start to its inodes */ iblkno: i32,
        20 => /** fragments from a group's start to its data after the inodes */ dblkno: i32,
        24 => /** UFS1: group offset in a cylinder */ old_cgoffset: i32,
        28 => /** UFS1: mask for the group offset */ old_cgmask: i32,
        32 => /** UFS1: last written, seconds */ old_time: i32,
        36 => /** UFS1: size in fragments */ old_size: i32,
        40 => /** UFS1: data fragments */ old_dsize: i32,
        44 => /** cylinder groups */ ncg: u32,
        48 => /** block size in bytes */ bsize: i32,
        52 => /** fragment size in bytes */ fsize: i32,
        56 => /** fragments in a block */ frag: i32,
        60 => /** percentage of space kept free */ minfree: i32,
        64 => /** UFS1: rotational delay, ms */ old_rotdelay: i32,
        68 => /** UFS1: revolutions a second */ old_rps: i32,
        72 => /** mask that clears the offset in a block */ bmask: i32,
        76 => /** mask that clears the offset in a fragment */ fmask: i32,
        80 => /** log2 of bsize */ bshift: i32,
        84 => /** log2 of fsize */ fshift: i32,
        88 => /** blocks in the longest contiguous transfer */ maxcontig: i32,
        92 => /** blocks a file takes in a group before it moves on */ maxbpg: i32,
        96 => /** log2 of frag */ fragshift: i32,
        100 => /** log2 of device sectors in a fragment */ fsbtodb: i32,
        104 => /** superblock size in bytes, rounded to fragments */ sbsize: i32,
        108 => /** reserved */ spare1: [i32; 2],
        116 => /** addresses in an indirect block */ nindir: i32,
        120 => /** inodes in a block */ inopb: u32,
        124 => /** UFS1: sectors in a fragment */ old_nspf: i32,
        128 => /** optimise for time (0) or space (1) */ optim: i32,
        132 => /** UFS1: sectors in a track with spares */ old_npsect: i32,
        136 => /** UFS1: sector interleave */ old_interleave: i32,
        140 => /** UFS1: sector 0 skew */ old_trackskew: i32,
        144 => /** file system id: time made, random */ id: [i32; 2],
        152 => /** UFS1: summary area address */ old_csaddr: i32,
        156 => /** summary area size in bytes */ cssize: i32,
        160 => /** group header size in bytes, bitmaps included */ cgsize: i32,
        164 => /** reserved */ spare2: i32,
        168 => /** UFS1: sectors in a track */ old_nsect: i32,
        172 => /** UFS1: sectors in a cylinder */ old_spc: i32,
        176 => /** UFS1: cylinders */ old_ncyl: i32,
        180 => /** UFS1: cylinders in a group */ old_cpg: i32,
        184 => /** inodes in a group */ ipg: u32,
        188 => /** fragments in a group */ fpg: i32,
        192 => /** UFS1: summary totals */ old_cstotal: Csum,
        208 => /** modified in memory */ fmod: i8,
        209 => /** cleanly unmounted */ clean: i8,
        210 => /** mounted read-only */ ronly: i8,
        211 => /** UFS1: flags (0x80: see flags) */ old_flags: u8,
        212 => /** where last mounted, NUL-terminated */ fsmnt: [u8; 468],
        680 => /** volume label, NUL-terminated */ volname: [u8; 32],
        712 => /** system-wide id */ swuid: u64,
        720 => /** padding */ pad: i32,
        724 => /** group last searched */ cgrotor: i32,
        728 => /** unused (once in-core pointers) */ ocsp: [u64; 16],
        856 => /** UFS1: cylinders in a rotational cycle */ old_cpc: i32,
        860 => /** largest extent in bytes */ maxbsize: i32,
        864 => /** inodes without a name (journaled soft updates) */ unrefs: i64,
        872 => /** device size in fragments */ providersize: i64,
        880 => /** fragments of each group's data kept for metadata */ metaspace: i64,
        888 => /** reserved */ sparecon64: [i64; 13],
        992 => /** byte offset of this copy */ sblockactualloc: i64,
        1000 => /** byte offset of the standard copy */ sblockloc: i64,
        1008 => /** summary totals */ cstotal: CsTotal,
        1072 => /** last written, seconds */ time: i64,
        1080 => /** size in fragments */ size: i64,
        1088 => /** data fragments */ dsize: i64,
        1096 => /** address of the summary area */ csaddr: i64,
        1104 => /** sectors being freed */ pendingblocks: i64,
        1112 => /** inodes being freed */ pendinginodes: u32,
        1116 => /** inode numbers of snapshots */ snapinum: [u32; 20],
        1196 => /** expected file size in bytes */ avgfilesize: u32,
        1200 => /** expected files in a directory */ avgfpdir: u32,
        1204 => /** true cgsize while a kernel uses bsize */ save_cgsize: i32,
        1208 => /** last mounted or checked, seconds */ mtime: i64,
        1216 => /** free list of the soft-updates journal */ sujfree: i32,
        1220 => /** reserved */ sparecon32: [i32; 21],
        1304 => /** check-hash of sbsize bytes */ ckhash: u32,
        1308 => /** what carries check-hashes: CK bits */ metackhash: u32,
        1312 => /** FS flags */ flags: i32,
        1316 => /** sizes in the cluster summary; 0: none */ contigsumsize: i32,
        1320 => /** longest link target kept in an inode */ maxsymlinklen: i32,
        1324 => /** UFS1: inode format */ old_inodefmt: i32,
        1328 => /** largest file in bytes */ maxfilesize: u64,
        1336 => /** offset in a block: bsize - 1 */ qbmask: i64,
        1344 => /** offset in a fragment: fsize - 1 */ qfmask: i64,
        1352 => /** validates clean (unused) */ state: i32,
        1356 => /** UFS1: layout table format */ old_postblformat: i32,
        1360 => /** UFS1: rotational positions */ old_nrpos: i32,
        1364 => /** reserved */ spare5: [i32; 2],
        1372 => /** magic number */ magic: i32,
    }
}

on_disk! {
    /// A recovery structure, with which the superblock's copies can be found when it is lost: the last bytes of the
    /// boot area before byte 65536. Not every mkfs writes it. FreeBSD's `struct fsrecovery`.
    pub struct Recovery: 20 {
        0 => /** the superblock's magic number, where there is a record */ magic: i32,
        4 => /** log2 of device sectors in a fragment */ fsbtodb: i32,
        8 => /** fragments from a group's start to its superblock copy */ sblkno: i32,
        12 => /** fragments in a group */ fpg: i32,
        16 => /** cylinder groups */ ncg: u32,
    }
}

/// The byte at which [`Recovery`] begins.
pub const RECOVERY_AT: u64 = SEARCH[0] - Recovery::SIZE as u64;

/// The places at which to look for the superblock, in this order, in bytes (`SBLOCKSEARCH`).
pub const SEARCH: [u64; 4] = [65536, 8192, 262_144, 0];
/// Bytes reserved for a superblock.
pub const SBLOCK_SIZE: usize = 8192;
/// UFS2's magic number.
pub const MAGIC: i32 = 0x1954_0119;
/// UFS1's magic number.
pub const MAGIC_UFS1: i32 = 0x0001_1954;
/// The magic number while a file system is being created (`FS_BAD_MAGIC`).
pub const MAGIC_INCOMPLETE: i32 = 0x1996_0408;
/// The byte of the check-hash.
pub const CKHASH_OFFSET: usize = 1304;
/// The byte of the magic number.
pub const MAGIC_OFFSET: usize = 1372;

/// The file system was not clean when it was mounted.
pub const FS_UNCLEAN: i32 = 0x01;
/// Soft updates order the metadata.
pub const FS_DOSOFTDEP: i32 = 0x02;
/// The file system must be checked before it is mounted.
pub const FS_NEEDSFSCK: i32 = 0x04;
/// Soft updates with a journal (SU+J).
pub const FS_SUJ: i32 = 0x08;
/// POSIX.1e access control lists.
pub const FS_ACLS: i32 = 0x10;
/// A MAC label for each object.
pub const FS_MULTILABEL: i32 = 0x20;
/// The device journals the file system (gjournal).
pub const FS_GJOURNAL: i32 = 0x40;
/// The flags were moved from their place in UFS1.
pub const FS_FLAGS_UPDATED: i32 = 0x80;
/// NFSv4 access control lists.
pub const FS_NFS4ACLS: i32 = 0x100;
/// Check-hashes are kept; `metackhash` says for which structures.
pub const FS_METACKHASH: i32 = 0x200;
/// Freed blocks are discarded.
pub const FS_TRIM: i32 = 0x400;

/// The superblock carries a check-hash.
pub const CK_SUPERBLOCK: u32 = 1;
/// Group headers carry check-hashes.
pub const CK_CYLGRP: u32 = 2;
/// Inodes carry check-hashes.
pub const CK_INODE: u32 = 4;
/// Indirect blocks would carry check-hashes; no system writes this.
pub const CK_INDIR: u32 = 8;
/// Directories would carry check-hashes; no system writes this.
pub const CK_DIR: u32 = 16;
/// The check-hashes that exist.
pub const CK_SUPPORTED: u32 = CK_SUPERBLOCK | CK_CYLGRP | CK_INODE;

/// `optim`: allocation prefers speed.
pub const OPT_TIME: i32 = 0;
/// `optim`: allocation prefers to waste little space.
pub const OPT_SPACE: i32 = 1;

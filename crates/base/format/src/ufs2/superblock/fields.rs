//! The superblock's fields and constants.

use crate::on_disk;
use crate::ufs2::csum::{CsTotal, Csum};

on_disk! {
    /// The superblock: the parameters of the file system. FreeBSD's `struct fs`, without `fs_`.
    ///
    /// Addresses and sizes called "fragments" are in units of `fsize` bytes.
    pub struct Superblock: 1376 {
        0 fs_firstfield => /** unused (a list link in old versions) */ firstfield: i32,
        4 fs_unused_1 => /** unused */ unused_1: i32,
        8 fs_sblkno => /** fragments from a group's start to its superblock copy */ sblkno: i32,
        12 fs_cblkno => /** fragments from a group's start to its header */ cblkno: i32,
        16 fs_iblkno => /** fragments from a group's start to its inodes */ iblkno: i32,
        20 fs_dblkno => /** fragments from a group's start to its data after the inodes */ dblkno: i32,
        24 fs_old_cgoffset => /** UFS1: offset of a group in its cylinder */ old_cgoffset: i32,
        28 fs_old_cgmask => /** UFS1: mask for the group offset */ old_cgmask: i32,
        32 fs_old_time => /** UFS1: time of the last write, seconds since 1970 */ old_time: i32,
        36 fs_old_size => /** UFS1: size in fragments */ old_size: i32,
        40 fs_old_dsize => /** UFS1: number of data fragments */ old_dsize: i32,
        44 fs_ncg => /** number of cylinder groups */ ncg: u32,
        48 fs_bsize => /** block size in bytes */ bsize: i32,
        52 fs_fsize => /** fragment size in bytes */ fsize: i32,
        56 fs_frag => /** fragments in a block */ frag: i32,
        60 fs_minfree => /** percentage of space that is kept free */ minfree: i32,
        64 fs_old_rotdelay => /** UFS1: rotational delay, ms */ old_rotdelay: i32,
        68 fs_old_rps => /** UFS1: revolutions a second */ old_rps: i32,
        72 fs_bmask => /** mask that clears the offset in a block */ bmask: i32,
        76 fs_fmask => /** mask that clears the offset in a fragment */ fmask: i32,
        80 fs_bshift => /** log2 of bsize */ bshift: i32,
        84 fs_fshift => /** log2 of fsize */ fshift: i32,
        88 fs_maxcontig => /** the most contiguous blocks in one transfer */ maxcontig: i32,
        92 fs_maxbpg => /** the most blocks that a file takes in a group before it continues in another one */ maxbpg: i32,
        96 fs_fragshift => /** log2 of frag */ fragshift: i32,
        100 fs_fsbtodb => /** log2 of device sectors in a fragment */ fsbtodb: i32,
        104 fs_sbsize => /** size of the superblock in bytes, rounded up to fragments */ sbsize: i32,
        108 fs_spare1 => /** reserved */ spare1: [i32; 2],
        116 fs_nindir => /** addresses in an indirect block */ nindir: i32,
        120 fs_inopb => /** inodes in a block */ inopb: u32,
        124 fs_old_nspf => /** UFS1: sectors in a fragment */ old_nspf: i32,
        128 fs_optim => /** optimisation: 0 for time, 1 for space */ optim: i32,
        132 fs_old_npsect => /** UFS1: sectors in a track with spares */ old_npsect: i32,
        136 fs_old_interleave => /** UFS1: sector interleave */ old_interleave: i32,
        140 fs_old_trackskew => /** UFS1: sector 0 skew */ old_trackskew: i32,
        144 fs_id => /** identifier: time of creation, random number */ id: [i32; 2],
        152 fs_old_csaddr => /** UFS1: address of the summary area */ old_csaddr: i32,
        156 fs_cssize => /** size of the summary area in bytes */ cssize: i32,
        160 fs_cgsize => /** size of a group's header in bytes, including its bitmaps */ cgsize: i32,
        164 fs_spare2 => /** reserved */ spare2: i32,
        168 fs_old_nsect => /** UFS1: sectors in a track */ old_nsect: i32,
        172 fs_old_spc => /** UFS1: sectors in a cylinder */ old_spc: i32,
        176 fs_old_ncyl => /** UFS1: cylinders */ old_ncyl: i32,
        180 fs_old_cpg => /** UFS1: cylinders in a group */ old_cpg: i32,
        184 fs_ipg => /** inodes in a group */ ipg: u32,
        188 fs_fpg => /** fragments in a group */ fpg: i32,
        192 fs_old_cstotal => /** UFS1: sums of the counts of all groups */ old_cstotal: Csum,
        208 fs_fmod => /** 1 in memory: the superblock has changed */ fmod: i8,
        209 fs_clean => /** 1: cleanly unmounted */ clean: i8,
        210 fs_ronly => /** 1: mounted read-only */ ronly: i8,
        211 fs_old_flags => /** UFS1: flags (0x80: see flags) */ old_flags: u8,
        212 fs_fsmnt => /** path of the last mount, NUL-terminated */ fsmnt: [u8; 468],
        680 fs_volname => /** volume label, NUL-terminated */ volname: [u8; 32],
        712 fs_swuid => /** identifier that is unique in the system */ swuid: u64,
        720 fs_pad => /** padding */ pad: i32,
        724 fs_cgrotor => /** group that was searched last */ cgrotor: i32,
        728 fs_ocsp => /** unused (once in-core pointers) */ ocsp: [u64; 16],
        856 fs_old_cpc => /** UFS1: cylinders in a rotational cycle */ old_cpc: i32,
        860 fs_maxbsize => /** size of the largest extent in bytes */ maxbsize: i32,
        864 fs_unrefs => /** number of inodes without a name (journaled soft updates) */ unrefs: i64,
        872 fs_providersize => /** size of the device in fragments */ providersize: i64,
        880 fs_metaspace => /** fragments of each group's data area that are kept for metadata */ metaspace: i64,
        888 fs_sparecon64 => /** reserved */ sparecon64: [i64; 13],
        992 fs_sblockactualloc => /** first byte of this copy on the device */ sblockactualloc: i64,
        1000 fs_sblockloc => /** first byte of the standard copy on the device */ sblockloc: i64,
        1008 fs_cstotal => /** sums of the counts of all groups */ cstotal: CsTotal,
        1072 fs_time => /** time of the last write, seconds since 1970 */ time: i64,
        1080 fs_size => /** size of the file system in fragments */ size: i64,
        1088 fs_dsize => /** number of data fragments */ dsize: i64,
        1096 fs_csaddr => /** address of the summary area in fragments */ csaddr: i64,
        1104 fs_pendingblocks => /** number of 512-byte sectors that are being freed */ pendingblocks: i64,
        1112 fs_pendinginodes => /** number of inodes that are being freed */ pendinginodes: u32,
        1116 fs_snapinum => /** inode numbers of snapshots */ snapinum: [u32; 20],
        1196 fs_avgfilesize => /** expected size of a file in bytes */ avgfilesize: u32,
        1200 fs_avgfpdir => /** expected number of files in a directory */ avgfpdir: u32,
        1204 fs_save_cgsize => /** true value of `cgsize` while a kernel has set that to `bsize` */ save_cgsize: i32,
        1208 fs_mtime => /** time of the last mount or check, seconds since 1970 */ mtime: i64,
        1216 fs_sujfree => /** free list of the journal of soft updates */ sujfree: i32,
        1220 fs_sparecon32 => /** reserved */ sparecon32: [i32; 21],
        1304 fs_ckhash => /** check-hash of the first `sbsize` bytes of the superblock */ ckhash: u32,
        1308 fs_metackhash => /** structures with check-hashes, as CK bits */ metackhash: u32,
        1312 fs_flags => /** flags, as FS bits */ flags: i32,
        1316 fs_contigsumsize => /** number of lengths in the cluster summary; 0: no summary */ contigsumsize: i32,
        1320 fs_maxsymlinklen => /** length in bytes below which a link's target is stored in the inode */ maxsymlinklen: i32,
        1324 fs_old_inodefmt => /** UFS1: inode format */ old_inodefmt: i32,
        1328 fs_maxfilesize => /** size of the largest file in bytes */ maxfilesize: u64,
        1336 fs_qbmask => /** mask of the offset in a block: bsize - 1 */ qbmask: i64,
        1344 fs_qfmask => /** mask of the offset in a fragment: fsize - 1 */ qfmask: i64,
        1352 fs_state => /** check of the field `clean` (unused) */ state: i32,
        1356 fs_old_postblformat => /** UFS1: layout table format */ old_postblformat: i32,
        1360 fs_old_nrpos => /** UFS1: rotational positions */ old_nrpos: i32,
        1364 fs_spare5 => /** reserved */ spare5: [i32; 2],
        1372 fs_magic => /** magic number, 0x19540119 */ magic: i32,
    }
}

on_disk! {
    /// A recovery structure, with which the superblock's copies can be found when it is lost: the
    /// last bytes of the boot area before byte 65536. Not every mkfs writes it. FreeBSD's `struct
    /// fsrecovery`.
    pub struct Recovery: 20 {
        0 fsr_magic => /** magic number of the superblock, if the structure is there */ magic: i32,
        4 fsr_fsbtodb => /** log2 of device sectors in a fragment */ fsbtodb: i32,
        8 fsr_sblkno => /** fragments from a group's start to its superblock copy */ sblkno: i32,
        12 fsr_fpg => /** fragments in a group */ fpg: i32,
        16 fsr_ncg => /** number of cylinder groups */ ncg: u32,
    }
}

/// The byte at which [`Recovery`] begins.
pub const RECOVERY_AT: u64 = SEARCH[0] - Recovery::SIZE as u64;

/// The places at which to look for the superblock, in this order, in bytes (`SBLOCKSEARCH`).
pub const SEARCH: [u64; 4] = [65536, 8192, 262_144, 0];
/// The number of bytes reserved for a superblock.
pub const SBLOCK_SIZE: usize = 8192;
/// UFS2's magic number.
pub const MAGIC: i32 = 0x1954_0119;
/// UFS1's magic number.
pub const MAGIC_UFS1: i32 = 0x0001_1954;
/// The magic number of NetBSD's UFS2 with extended attributes (`FS_UFS2EA_MAGIC`).
pub const MAGIC_EA: i32 = 0x1901_2038;
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
/// Check-hashes are kept, for the structures in `metackhash`.
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

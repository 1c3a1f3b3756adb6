//! NILFS2, as far as a decoder reads it, described in `docs/formats/nilfs2.md`. No code here writes
//! it.

use crate::Endian;

const LE: Endian = Endian::Little;

/// The first superblock's place in bytes.
pub const SUPERBLOCK_AT: u64 = 1024;
/// The magic number of a superblock (`NILFS_SUPER_MAGIC`).
const MAGIC: u16 = 0x3434;
/// The magic number of a segment summary (`NILFS_SEGSUM_MAGIC`).
const SUMMARY_MAGIC: u32 = 0x1eaf_fa11;
/// The format's revision (`NILFS_CURRENT_REV`).
const REVISION: u32 = 2;

/// Inodes of the files that hold the file system's metadata.
pub mod ino {
    /// The root directory.
    pub const ROOT: u64 = 2;
    /// The disk address translation file (DAT), which maps virtual block numbers to blocks.
    pub const DAT: u64 = 3;
    /// The checkpoint file.
    pub const CPFILE: u64 = 4;
    /// The segment usage file.
    pub const SUFILE: u64 = 5;
    /// The inode file.
    pub const IFILE: u64 = 6;
}

/// Flags of a segment summary (`NILFS_SS_*`).
pub mod summary_flag {
    /// The end of a logical segment.
    pub const LOG_END: u16 = 2;
    /// The last block is a super root.
    pub const SUPER_ROOT: u16 = 4;
    /// The cleaner wrote it, so its blocks were moved.
    pub const CLEANER: u16 = 16;
}

crate::on_disk! {
    /// The superblock (`struct nilfs_super_block`).
    pub struct Superblock: 1024 {
        0 s_rev_level => /** revision: 2 */ rev_level: u32,
        4 s_minor_rev_level => /** minor revision */ minor_rev_level: u16,
        6 s_magic => /** 0x3434 */ magic: u16,
        8 s_bytes => /** number of bytes covered by the checksum */ bytes: u16,
        10 s_flags => /** flags */ flags: u16,
        12 s_crc_seed => /** initial value of every checksum of the file system */ crc_seed: u32,
        16 s_sum => /** checksum, computed with this field as zero */ sum: u32,
        20 s_log_block_size => /** log2 of the bytes in a block, minus 10 */ log_block_size: u32,
        24 s_nsegments => /** number of segments */ nsegments: u64,
        32 s_dev_size => /** size of the device in bytes */ dev_size: u64,
        40 s_first_data_block => /** first block of segment 0 */ first_data_block: u64,
        48 s_blocks_per_segment => /** blocks in a segment */ blocks_per_segment: u32,
        52 s_r_segments_percentage => /** percentage of segments that is kept free */ r_segments_percentage: u32,
        56 s_last_cno => /** number of the newest checkpoint when the superblock was written */ last_cno: u64,
        64 s_last_pseg => /** first block of the partial segment with that checkpoint */ last_pseg: u64,
        72 s_last_seq => /** sequence number of the segment with that checkpoint */ last_seq: u64,
        80 s_free_blocks_count => /** number of free blocks */ free_blocks_count: u64,
        88 s_ctime => /** time of creation, seconds since 1970 */ ctime: u64,
        96 s_mtime => /** time of the last mount, seconds since 1970 */ mtime: u64,
        104 s_wtime => /** time of the last write of the superblock, seconds since 1970 */ wtime: u64,
        112 s_mnt_count => /** number of mounts since the last check */ mnt_count: u16,
        114 s_max_mnt_count => /** number of mounts after which a check is due */ max_mnt_count: u16,
        116 s_state => /** 1 clean, 2 errors were found */ state: u16,
        118 s_errors => /** reaction to an error */ errors: u16,
        120 s_lastcheck => /** time of the last check, seconds since 1970 */ lastcheck: u64,
        128 s_checkinterval => /** longest time between checks, in seconds */ checkinterval: u32,
        132 s_creator_os => /** operating system that created it */ creator_os: u32,
        136 s_def_resuid => /** user of the reserved blocks */ def_resuid: u16,
        138 s_def_resgid => /** group of the reserved blocks */ def_resgid: u16,
        140 s_first_ino => /** first inode for files of users */ first_ino: u32,
        144 s_inode_size => /** bytes in an inode */ inode_size: u16,
        146 s_dat_entry_size => /** bytes in an entry of the DAT */ dat_entry_size: u16,
        148 s_checkpoint_size => /** bytes in a checkpoint */ checkpoint_size: u16,
        150 s_segment_usage_size => /** bytes in an entry of the sufile */ segment_usage_size: u16,
        152 s_uuid => /** UUID of the file system */ uuid: [u8; 16],
        168 s_volume_name => /** volume label */ volume_name: [u8; 80],
        248 s_c_interval => /** seconds between commits */ c_interval: u32,
        252 s_c_block_max => /** number of blocks after which a commit is due */ c_block_max: u32,
        256 s_feature_compat => /** features that any version may ignore */ feature_compat: u64,
        264 s_feature_compat_ro => /** features that must be known to write the file system */ feature_compat_ro: u64,
        272 s_feature_incompat => /** features that must be known to read the file system */ feature_incompat: u64,
        280 s_reserved => /** zero */ reserved: [u8; 744],
    }
}

crate::on_disk! {
    /// The head of a partial segment's summary (`struct nilfs_segment_summary`).
    pub struct SegmentSummary: 64 {
        0 ss_datasum => /** checksum of the partial segment from byte 4 on */ datasum: u32,
        4 ss_sumsum => /** checksum of the summary from byte 8 on */ sumsum: u32,
        8 ss_magic => /** 0x1eaffa11 */ magic: u32,
        12 ss_bytes => /** size of this head in bytes */ bytes: u16,
        14 ss_flags => /** 1 begins a logical segment, 2 ends one, 4 has a super root, 8 data only, 16 written by the cleaner */ flags: u16,
        16 ss_seq => /** sequence number of the segment, which grows each time a segment is used again */ seq: u64,
        24 ss_create => /** time of creation, seconds since 1970 */ create: u64,
        32 ss_next => /** first block of the next segment */ next: u64,
        40 ss_nblocks => /** number of blocks, including the summary and the super root */ nblocks: u32,
        44 ss_nfinfo => /** number of files with blocks here */ nfinfo: u32,
        48 ss_sumbytes => /** size of the summary in bytes */ sumbytes: u32,
        52 ss_pad => /** zero */ pad: u32,
        56 ss_cno => /** number of its checkpoint */ cno: u64,
    }
}

crate::on_disk! {
    /// A file with blocks in a partial segment (`struct nilfs_finfo`).
    pub struct FileInfo: 24 {
        0 fi_ino => /** inode number */ ino: u64,
        8 fi_cno => /** checkpoint in which the file was changed; 0 for files of the file system itself */ cno: u64,
        16 fi_nblocks => /** number of blocks */ nblocks: u32,
        20 fi_ndatablk => /** number of data blocks among these; the others are nodes */ ndatablk: u32,
    }
}

crate::on_disk! {
    /// A data block of any file but the DAT (`struct nilfs_binfo_v`).
    pub struct BlockInfo: 16 {
        0 bi_vblocknr => /** virtual block number */ vblocknr: u64,
        8 bi_blkoff => /** number of the block in the file */ blkoff: u64,
    }
}

crate::on_disk! {
    /// A node of the DAT's tree (`struct nilfs_binfo_dat`).
    pub struct DatNodeInfo: 16 {
        0 bi_blkoff => /** first block of the file below it */ blkoff: u64,
        8 bi_level => /** level: 1 is nearest to the data */ level: u8,
        9 bi_pad => /** zero */ pad: [u8; 7],
    }
}

crate::on_disk! {
    /// The head of a super root (`struct nilfs_super_root`). Three inodes follow: the DAT's, the
    /// checkpoint file's, and the segment usage file's.
    pub struct SuperRoot: 16 {
        0 sr_sum => /** checksum from byte 4 on */ sum: u32,
        4 sr_bytes => /** number of bytes covered by the checksum */ bytes: u16,
        6 sr_flags => /** flags */ flags: u16,
        8 sr_nongc_ctime => /** time of the last write that was not made by the cleaner */ nongc_ctime: u64,
    }
}

crate::on_disk! {
    /// An inode (`struct nilfs_inode`).
    pub struct Inode: 128 {
        0 i_blocks => /** number of 512-byte sectors in use */ blocks: u64,
        8 i_size => /** size in bytes */ size: u64,
        16 i_ctime => /** time of the last change of the inode, seconds since 1970 */ ctime: u64,
        24 i_mtime => /** time of the last write, seconds since 1970 */ mtime: u64,
        32 i_ctime_nsec => /** time of the last change of the inode, nanoseconds of the second */ ctime_nsec: u32,
        36 i_mtime_nsec => /** time of the last write, nanoseconds of the second */ mtime_nsec: u32,
        40 i_uid => /** user number of the owner */ uid: u32,
        44 i_gid => /** group number of the owner */ gid: u32,
        48 i_mode => /** file type and permissions */ mode: u16,
        50 i_links_count => /** number of names (hard links) */ links_count: u16,
        52 i_flags => /** flags */ flags: u32,
        56 i_bmap => /** block addresses, or the root of a B-tree */ bmap: [u64; 7],
        112 i_xattr => /** unused */ xattr: u64,
        120 i_generation => /** generation: changes each time the inode number is used again */ generation: u32,
        124 i_pad => /** zero */ pad: u32,
    }
}

crate::on_disk! {
    /// The head of a tree node (`struct nilfs_btree_node`).
    pub struct TreeNode: 8 {
        0 bn_flags => /** 1: the node is the root, in an inode */ flags: u8,
        1 bn_level => /** level: 1 is nearest to the data */ level: u8,
        2 bn_nchildren => /** number of children */ nchildren: u16,
        4 bn_pad => /** zero */ pad: u32,
    }
}

crate::on_disk! {
    /// An entry of the DAT: a block with a virtual number (`struct nilfs_dat_entry`).
    pub struct DatEntry: 32 {
        0 de_blocknr => /** address of the block */ blocknr: u64,
        8 de_start => /** first checkpoint that has the block */ start: u64,
        16 de_end => /** first later checkpoint that no longer has the block; all bits set: none yet */ end: u64,
        24 de_rsv => /** zero */ rsv: u64,
    }
}

crate::on_disk! {
    /// The head of a directory entry (`struct nilfs_dir_entry`). The name follows; entries are
    /// padded to eight bytes.
    pub struct DirEntry: 12 {
        0 inode => /** inode number; 0: free entry */ ino: u64,
        8 rec_len => /** number of bytes to the next entry */ rec_len: u16,
        10 name_len => /** length of the name in bytes */ name_len: u8,
        11 file_type => /** file type of the inode */ file_type: u8,
    }
}

/// Continues a CRC-32 (IEEE) from `state`, without inversions.
pub fn checksum(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The geometry of a file system. Its values were checked, so they can be used in arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a shift.
    pub block_shift: u32,
    /// The device's size in bytes.
    pub bytes: u64,
    /// The second superblock's place in bytes.
    pub second: u64,
    /// The number of segments.
    pub segments: u64,
    /// The number of blocks in a segment.
    pub segment_blocks: u64,
    /// The first block of segment 0.
    pub first_data_block: u64,
    /// The start value of every checksum.
    pub crc_seed: u32,
    /// The size of an inode in bytes.
    pub inode_size: usize,
    /// The number of bytes in an entry of the DAT.
    pub dat_entry_size: usize,
}

impl Superblock {
    /// The geometry that a superblock gives; `None` if its checksum is wrong or a value is
    /// impossible.
    pub fn read(bytes: &[u8; Superblock::SIZE]) -> Option<Geometry> {
        let sb = Superblock::decode(bytes, LE);
        let counted = usize::from(sb.bytes);
        if sb.magic != MAGIC || sb.rev_level != REVISION || !(280..=1024).contains(&counted) {
            return None;
        }
        let sum = checksum(sb.crc_seed, &bytes[..16]);
        let sum = checksum(checksum(sum, &[0; 4]), &bytes[20..counted]);
        let (shift, each) = (sb.log_block_size.checked_add(10)?, u64::from(sb.blocks_per_segment));
        if sum != sb.sum || shift > 16 {
            return None;
        }
        let second = second_superblock_at(sb.dev_size)?;
        let sane = each >= 16
            && (1..each).contains(&sb.first_data_block)
            && sb.nsegments > 0
            && sb.nsegments.checked_mul(each)? <= sb.dev_size >> shift
            && sb.dev_size >= 8192
            && (128..=1024).contains(&sb.inode_size)
            && (32..=1024).contains(&sb.dat_entry_size);
        sane.then(|| Geometry {
            block_shift: shift,
            bytes: sb.dev_size,
            second,
            segments: sb.nsegments,
            segment_blocks: each,
            first_data_block: sb.first_data_block,
            crc_seed: sb.crc_seed,
            inode_size: sb.inode_size.into(),
            dat_entry_size: sb.dat_entry_size.into(),
        })
    }
}

/// The place of the second superblock on a device of `bytes` bytes.
pub fn second_superblock_at(bytes: u64) -> Option<u64> {
    Some(((bytes >> 12).checked_sub(1)?) << 12)
}

/// The use of a block in a file of entries in groups, such as the DAT and the inode file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouped {
    /// Group descriptors, with the number of free entries of each group.
    Descriptors,
    /// The bitmap of entries in use of this group.
    Bitmap(u64),
    /// Entries from this number on.
    Entries(u64),
}

impl Geometry {
    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// The segment that contains a block.
    pub fn segment(&self, block: u64) -> Option<u64> {
        let inside = block >= self.first_data_block && block < self.segments * self.segment_blocks;
        inside.then(|| block / self.segment_blocks)
    }

    /// The first block of a segment.
    pub fn segment_start(&self, segment: u64) -> u64 {
        match segment {
            0 => self.first_data_block,
            n => n * self.segment_blocks,
        }
    }

    /// The use of block `lbn` in a file with entries of `size` bytes. A group has as many entries
    /// as a block has bits.
    pub fn grouped(&self, lbn: u64, size: usize) -> Grouped {
        let (bytes, each) = (self.block_size() as u64, (self.block_size() / size) as u64);
        let entries = bytes * 8;
        let blocks = entries.div_ceil(each) + 1;
        let groups = bytes / 4;
        let with_descriptors = groups * blocks + 1;
        let Some(rest) = (lbn % with_descriptors).checked_sub(1) else {
            return Grouped::Descriptors;
        };
        let group = (lbn / with_descriptors).saturating_mul(groups) + rest / blocks;
        match rest % blocks {
            0 => Grouped::Bitmap(group),
            n => Grouped::Entries(group.saturating_mul(entries).saturating_add((n - 1) * each)),
        }
    }
}

/// Consecutive blocks of one file in a partial segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block, counted from the start of the partial segment.
    pub at: u32,
    /// The number of blocks.
    pub len: u32,
    /// The file's inode.
    pub ino: u64,
    /// The kind of blocks.
    pub holds: Holds,
}

/// The kind of a file's blocks in a partial segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Data, from this logical block on.
    Data(u64),
    /// A node of the file's tree, with its level; 0 if only the node itself holds the level.
    Node(u8),
}

impl SegmentSummary {
    /// The head of a summary in these bytes, to learn how many blocks it needs; `None` if a count
    /// is impossible.
    pub fn head(g: &Geometry, bytes: &[u8]) -> Option<SegmentSummary> {
        let head = SegmentSummary::decode(bytes.get(..SegmentSummary::SIZE)?, LE);
        let (own, all) = (u32::from(head.bytes), u64::from(head.nblocks));
        let sane = head.magic == SUMMARY_MAGIC
            && own >= SegmentSummary::SIZE as u32
            && own as usize <= g.block_size()
            && head.sumbytes >= own
            && (2..=g.segment_blocks).contains(&all)
            && u64::from(head.sumbytes.div_ceil(1 << g.block_shift)) <= all
            && u64::from(head.nfinfo) <= all;
        sane.then_some(head)
    }

    /// The number of blocks of the summary.
    pub fn blocks(&self, g: &Geometry) -> u32 {
        self.sumbytes.div_ceil(1 << g.block_shift)
    }

    /// Whether the last block is a super root.
    pub fn has_super_root(&self) -> bool {
        self.flags & summary_flag::SUPER_ROOT != 0
    }

    /// The contents of the partial segment after its summary, whose blocks are `summary`. `None` if
    /// the checksum is wrong, or the summary describes more or fewer blocks than there are.
    pub fn extents(&self, g: &Geometry, summary: &[u8]) -> Option<Vec<Extent>> {
        let bytes = summary.get(..self.sumbytes as usize)?;
        if checksum(g.crc_seed, &bytes[8..]) != self.sumsum {
            return None;
        }
        let mut entries = Reader { bytes, block: g.block_size(), at: self.bytes.into() };
        let end = self.nblocks.checked_sub(self.has_super_root().into())?;
        let (mut at, mut all) = (self.blocks(g), Vec::new());
        for _ in 0..self.nfinfo {
            let file = FileInfo::decode(entries.next(FileInfo::SIZE)?, LE);
            if file.ndatablk > file.nblocks || file.nblocks > end.checked_sub(at)? {
                return None;
            }
            for i in 0..file.nblocks {
                add(
                    &mut all,
                    Extent { at, len: 1, ino: file.ino, holds: entries.holds(&file, i)? },
                );
                at += 1;
            }
        }
        (at == end).then_some(all)
    }
}

fn add(all: &mut Vec<Extent>, new: Extent) {
    if let (Some(last), Holds::Data(lbn)) = (all.last_mut(), new.holds)
        && let Holds::Data(first) = last.holds
        && (last.ino, first.checked_add(last.len.into())) == (new.ino, Some(lbn))
    {
        last.len += 1;
        return;
    }
    all.push(new);
}

/// Reads the entries of a summary; an entry does not cross the end of a block.
struct Reader<'a> {
    bytes: &'a [u8],
    block: usize,
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self, size: usize) -> Option<&'a [u8]> {
        if self.at % self.block + size > self.block {
            self.at = self.at.next_multiple_of(self.block);
        }
        let entry = self.bytes.get(self.at..self.at + size)?;
        self.at += size;
        Some(entry)
    }

    fn holds(&mut self, file: &FileInfo, index: u32) -> Option<Holds> {
        Some(match (file.ino == ino::DAT, index < file.ndatablk) {
            (true, true) => Holds::Data(LE.get_u64(self.next(8)?, 0)),
            (true, false) => {
                Holds::Node(DatNodeInfo::decode(self.next(DatNodeInfo::SIZE)?, LE).level)
            }
            (false, true) => Holds::Data(BlockInfo::decode(self.next(BlockInfo::SIZE)?, LE).blkoff),
            (false, false) => {
                self.next(8)?;
                Holds::Node(0)
            }
        })
    }
}

impl SuperRoot {
    /// Whether a block is a super root with a right checksum.
    pub fn is_sound(g: &Geometry, block: &[u8]) -> bool {
        let Some(raw) = block.get(..SuperRoot::SIZE) else { return false };
        let root = SuperRoot::decode(raw, LE);
        let counted = block.get(4..usize::from(root.bytes));
        let least = SuperRoot::SIZE + 3 * g.inode_size;
        counted.is_some_and(|counted| {
            counted.len() + 4 >= least && checksum(g.crc_seed, counted) == root.sum
        })
    }
}

/// The level of a tree node; `None` if the block cannot be one.
pub fn node_level(block: &[u8]) -> Option<u8> {
    let node = TreeNode::decode(block.get(..TreeNode::SIZE)?, LE);
    let sane = (1..14).contains(&node.level)
        && TreeNode::SIZE + usize::from(node.nchildren) * 16 <= block.len();
    sane.then_some(node.level)
}

/// A name in a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The inode.
    pub ino: u64,
    /// The name.
    pub name: &'a [u8],
}

/// The names in a directory block, up to the first entry that makes no sense. The second value is
/// true if entries fill the block exactly, each with a valid name.
pub fn names(block: &[u8]) -> (Vec<Name<'_>>, bool) {
    let (mut at, mut all, mut sound) = (0, Vec::new(), true);
    while at + DirEntry::SIZE <= block.len() {
        let entry = DirEntry::decode(&block[at..], LE);
        let len = match usize::from(entry.rec_len) {
            // The value stands for 65536, which 16 bits cannot hold.
            65535 => 65536,
            len => len,
        };
        let name_len = usize::from(entry.name_len);
        if len < 16 || len % 8 != 0 || len > block.len() - at || name_len + DirEntry::SIZE > len {
            return (all, false);
        }
        if entry.ino != 0 {
            let name = &block[at + DirEntry::SIZE..][..name_len];
            sound &= !name.is_empty() && !name.contains(&0) && !name.contains(&b'/');
            all.push(Name { ino: entry.ino, name });
        }
        at += len;
    }
    (all, sound && at == block.len())
}

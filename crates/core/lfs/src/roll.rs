//! The changes in the log behind a checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use ordo_format::lfs::{IFILE_INO, LfsInode, PsegBlock};

use crate::LfsError;
use crate::disk::LogDisk;
use crate::log::{self, LogEnd, PartialSegment};

/// The outcome of rolling forward over the log behind the checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct RolledForward {
    /// The number of partial segments that count.
    pub partial_segments: usize,
    /// The number of partial segments that do not count, because the one that completes them is
    /// missing.
    pub incomplete: usize,
    /// The address at which the log will continue.
    pub offset: i64,
    /// The serial number of the last partial segment that counts.
    pub serial: u64,
    /// The reason why the log ends there.
    pub end: LogEnd,
}

/// Blocks of one file that were written without its inode: by logical number, the address and the
/// length.
type Blocks = BTreeMap<i64, (i64, u32)>;

/// The changes that the log behind the checkpoint makes.
#[derive(Default)]
pub struct RollChanges {
    /// The inodes that were written, each with the address of its block.
    pub inodes: BTreeMap<u64, i64>,
    /// Inodes of removed files.
    pub removed: BTreeSet<u64>,
    /// Blocks that were written after the last inode of their file, with the version of the file to
    /// which they belong.
    pub blocks: BTreeMap<u64, (u32, Blocks)>,
}

/// Reads the log and collects its changes.
///
/// # Errors
/// The device failed.
pub async fn forward(disk: &LogDisk) -> Result<(RolledForward, RollChanges), LfsError> {
    let found = log::read(disk).await?;
    let sb = &disk.sb;
    let mut changes = RollChanges::default();
    for pseg in &found.psegs {
        for block in &pseg.blocks {
            match *block {
                PsegBlock::Inodes { addr } => changes.take_inodes(disk, pseg, addr),
                // Indirect blocks count only together with the inode that points to them.
                PsegBlock::File { ino, lbn, .. } if ino == IFILE_INO || lbn < 0 => {}
                PsegBlock::File { addr, bytes, ino, version, lbn } => {
                    let entry = changes.blocks.entry(ino).or_default();
                    if entry.0 != version {
                        *entry = (version, Blocks::new());
                    }
                    entry.1.insert(lbn, (addr, bytes));
                }
            }
        }
    }
    let last = found.psegs.last();
    let rolled = RolledForward {
        partial_segments: found.psegs.len(),
        incomplete: found.incomplete,
        offset: last.map_or(sb.offset, |p| p.end),
        serial: last.map_or(sb.serial, |p| p.summary.head.serial),
        end: found.end,
    };
    Ok((rolled, changes))
}

impl RollChanges {
    /// Notes the inodes in a block of the log. An inode in the log has all pointers of the file at
    /// that time, and so includes all its blocks before it.
    fn take_inodes(&mut self, disk: &LogDisk, pseg: &PartialSegment, addr: i64) {
        let sb = &disk.sb;
        for raw in pseg.inode_block(addr).chunks_exact(sb.width.inode_size()) {
            let inode = LfsInode::read(sb.width, raw);
            let ino = inode.inumber;
            if ino <= IFILE_INO {
                continue;
            }
            self.blocks.remove(&ino);
            match inode.nlink > 0 {
                true => {
                    self.removed.remove(&ino);
                    self.inodes.insert(ino, addr);
                }
                false => {
                    self.inodes.remove(&ino);
                    self.removed.insert(ino);
                }
            }
        }
    }
}

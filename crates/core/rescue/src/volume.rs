//! The file system on a device: its superblock, and its inodes.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::Device;
use ordo_format::Endian;
use ordo_format::ufs2::group::Group;
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, SEARCH, Superblock, SuperblockError};
use ordo_format::ufs2::{Dinode, MIN_BLOCK, ROOT_INO};
use ordo_vfs::{Errno, FsError, FsResult};

use crate::notes::{Notes, Reason};
use crate::source::{Piece, Source, Unreadable};

/// The distance from its start up to which a device is searched for a copy of the superblock.
const SEARCH_LIMIT: u64 = 1 << 30;
/// The number of blocks that are kept in memory.
const KEPT_BLOCKS: usize = 64;

/// The reason why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// There is no superblock.
    #[error(
        "no superblock of UFS, and no copy of one in the first gigabyte: nothing leads to its files"
    )]
    NoSuperblock,
    /// The inodes have the layout of before 4.4BSD.
    #[error("its inodes are older than 4.4BSD (old_inodefmt), which are not read here")]
    OldInodes,
}

/// A block that was read, by its place.
type KeptBlock = (u64, usize, Rc<Piece>);

/// A file system on a device.
pub(crate) struct Volume {
    pub source: Source,
    pub sb: Superblock,
    pub endian: Endian,
    pub notes: Notes,
    kept: RefCell<Vec<KeptBlock>>,
}

impl Volume {
    pub async fn open(disk: &Device, unreadable: Unreadable) -> Result<Volume, RescueError> {
        let source = Source::new(disk.clone(), unreadable);
        let notes = Notes::default();
        let found = match standard(&source).await? {
            Some(found) => Some(found),
            None => copy(&source).await.map(|(at, sb, endian)| {
                notes.add(0, Reason::Superblock { copy: at });
                (sb, endian)
            }),
        };
        let (sb, endian) = found.ok_or(RescueError::NoSuperblock)?;
        let (want, have) = (sb.byte_of(sb.size.cast_unsigned()), source.bytes());
        if want > have {
            notes.add(0, Reason::CutOff { want, have });
        }
        Ok(Volume { source, sb, endian, notes, kept: RefCell::default() })
    }

    /// Reads a block of metadata, which may be asked for again soon.
    pub async fn block(&self, at: u64, len: usize) -> Rc<Piece> {
        let found = self.kept.borrow().iter().find(|k| (k.0, k.1) == (at, len)).cloned();
        if let Some((.., piece)) = found {
            return piece;
        }
        let piece = Rc::new(self.source.read(at, len).await);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT_BLOCKS {
            kept.remove(0);
        }
        kept.push((at, len, piece.clone()));
        piece
    }

    /// An inode, whatever is in it; `None` with a note if it cannot be read.
    pub async fn raw_inode(&self, ino: u64) -> Option<Dinode> {
        if ino < ROOT_INO || !self.sb.has_inode(ino) {
            self.notes.add(ino, Reason::NoInode);
            return None;
        }
        let (frag, first) = self.sb.inode_block(ino);
        let (at, size) = (self.sb.byte_of(frag), self.sb.inode_size());
        let piece = self.block(at, self.sb.block_size()).await;
        let range = first..first + size;
        if !piece.has(range.clone()) {
            self.notes.add(ino, Reason::InodeUnreadable { at: at + range.start as u64 });
            return None;
        }
        let raw = &piece.bytes[range];
        let inode = self.sb.inode(raw, self.endian);
        if inode.mode != 0 && self.sb.verify_inode(raw, self.endian).is_err() {
            self.notes.add(ino, Reason::InodeHash);
        }
        Some(inode)
    }

    /// An inode in use, or an error, with a note.
    pub async fn inode(&self, ino: u64) -> FsResult<Dinode> {
        let reason = match self.raw_inode(ino).await {
            None => {
                return Err(FsError::with_detail(
                    Errno::Io,
                    format_args!("inode {ino} cannot be read"),
                ));
            }
            Some(inode) if inode.mode == 0 => Reason::InodeFree,
            Some(inode) if ordo_vfs::FileType::from_mode(inode.mode).is_none() => {
                Reason::NoType { mode: inode.mode }
            }
            Some(inode) => return Ok(inode),
        };
        let error = FsError::corrupt(format_args!("inode {ino}: {reason}"));
        self.notes.add(ino, reason);
        Err(error)
    }

    /// The number of inodes of a group that were ever written; all, if its header is damaged.
    pub async fn inodes_ready(&self, cg: u32) -> u32 {
        let at = self.sb.byte_of(self.sb.cg_header(cg));
        let piece = self.source.read(at, self.sb.block_size()).await;
        match Group::parse(&piece.bytes, self.endian, &self.sb, cg) {
            Ok(group) if piece.bad.is_empty() => self.sb.inodes_ready(&group).min(self.sb.ipg),
            _ => self.sb.ipg,
        }
    }
}

/// The superblock at a standard place. A wrong check-hash does not matter, unless there is another.
async fn standard(source: &Source) -> Result<Option<(Superblock, Endian)>, RescueError> {
    let mut with_wrong_hash = None;
    let mut is_old = false;
    for at in SEARCH {
        let piece = source.read(at, SBLOCK_SIZE).await;
        match Superblock::parse(&piece.bytes) {
            Ok((sb, endian)) if u64::try_from(sb.sblockloc) == Ok(at) => {
                match sb.verify_hash(&piece.bytes, endian) {
                    Ok(()) => return Ok(Some((sb, endian))),
                    Err(_) => _ = with_wrong_hash.get_or_insert((sb, endian)),
                }
            }
            Err(SuperblockError::InodeFormat { .. }) => is_old = true,
            _ => {}
        }
    }
    match with_wrong_hash {
        None if is_old => Err(RescueError::OldInodes),
        found => Ok(found),
    }
}

/// The first copy of a superblock, with its place.
async fn copy(source: &Source) -> Option<(u64, Superblock, Endian)> {
    let step = MIN_BLOCK as usize;
    let mut at = 0;
    while at + SBLOCK_SIZE as u64 <= source.bytes().min(SEARCH_LIMIT) {
        let piece = source.read(at, 64 * step).await;
        for start in (0..piece.bytes.len()).step_by(step) {
            if Superblock::parse(&piece.bytes[start..]).is_err() {
                continue;
            }
            let place = at + start as u64;
            let whole = source.read(place, SBLOCK_SIZE).await;
            if let Ok((sb, endian)) = Superblock::read_copy(&whole.bytes)
                && sb.is_copy_at(place)
            {
                return Some((place, sb, endian));
            }
        }
        at += (64 * step) as u64;
    }
    None
}

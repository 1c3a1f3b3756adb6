//! Finding inodes and blocks: the IFILE's entries, inodes, block maps.

use ordo_format::lfs::{
    IFILE_INO, IfileEntry, LfsInode, NDADDR, NO_ADDRESS, UNWRITTEN, inode, lbn,
};

use crate::LfsError;
use crate::disk::LogDisk;
use crate::error::LogDamage;
use crate::roll::RollChanges;

/// An inode and its bytes, which include the target of a short link.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub inode: LfsInode,
    pub raw: Vec<u8>,
}

/// Reads the inode `ino` from the block at `addr`.
pub async fn load(disk: &LogDisk, ino: u64, addr: i64) -> Result<Loaded, LfsError> {
    let sb = &disk.sb;
    let block = disk.metadata(LogDamage::Inode(ino), addr, sb.ibsize).await?;
    let at = inode::find(sb.width, &block, ino).ok_or(LfsError::InodeMissing { ino, addr })?;
    let raw = block[at..at + sb.width.inode_size()].to_vec();
    let inode = LfsInode::read(sb.width, &raw);
    if inode.size > sb.right_maxfilesize() {
        return Err(LfsError::InodeSize { ino, size: inode.size });
    }
    Ok(Loaded { inode, raw })
}

/// The IFILE's inode, with a checked size.
pub async fn load_ifile(disk: &LogDisk) -> Result<LfsInode, LfsError> {
    let sb = &disk.sb;
    let inode = load(disk, IFILE_INO, sb.idaddr).await?.inode;
    let size = inode.size;
    let is_whole = size.is_multiple_of(sb.bsize.into());
    // The size cannot be larger than the device.
    let fits = size <= sb.size.saturating_mul(sb.fsize.into());
    if !is_whole || !fits || sb.inodes_in(size) == 0 {
        return Err(LfsError::IfileSize { size });
    }
    Ok(inode)
}

/// The address of a logical block, or the hole that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedBlock {
    /// The block is at this address.
    At(i64),
    /// The block is in a hole. The hole reaches at least to this block, which is not included.
    Hole(u64),
}

/// Finds a block of a file.
pub async fn find(disk: &LogDisk, inode: &LfsInode, lbn: u64) -> Result<MappedBlock, LfsError> {
    let (sb, ino) = (&disk.sb, inode.inumber);
    let nindir = u64::from(sb.nindir);
    let Some(path) = i64::try_from(lbn).ok().and_then(|l| lbn::path(l, nindir)) else {
        return Err(LfsError::InodeSize { ino, size: inode.size });
    };
    let mut addr = inode.pointer(path.slot);
    for above in 0..=path.depth {
        if matches!(addr, NO_ADDRESS | UNWRITTEN) {
            let span = nindir.saturating_pow((path.depth - above) as u32);
            let start = path.slot.checked_sub(NDADDR).map_or(lbn, |tree| lbn::trees(nindir)[tree]);
            let next = start.saturating_add(((lbn - start) / span + 1).saturating_mul(span));
            return Ok(MappedBlock::Hole(next));
        }
        if above < path.depth {
            let what = LogDamage::Block(ino, -(above as i64 + 1));
            let block = disk.metadata(what, addr, sb.bsize).await?;
            addr = sb.width.pointer(&block, path.offsets[above] * sb.width.pointer_size());
        }
    }
    Ok(MappedBlock::At(addr))
}

/// The address of a block of a file; `None` for a hole.
pub async fn address(disk: &LogDisk, inode: &LfsInode, lbn: u64) -> Result<Option<i64>, LfsError> {
    Ok(match find(disk, inode, lbn).await? {
        MappedBlock::At(addr) => Some(addr),
        MappedBlock::Hole(_) => None,
    })
}

/// An inode's entry in the IFILE of the checkpoint.
pub async fn entry(disk: &LogDisk, ifile: &LfsInode, ino: u64) -> Result<IfileEntry, LfsError> {
    let sb = &disk.sb;
    let count = sb.inodes_in(ifile.size);
    if ino >= count {
        return Err(LfsError::InodeNumber { ino, count });
    }
    let at = sb.entry_at(ino);
    let (lbn, within) = (at / u64::from(sb.bsize), (at % u64::from(sb.bsize)) as usize);
    let addr = address(disk, ifile, lbn).await?.ok_or(LfsError::IfileHole { lbn })?;
    let what = LogDamage::Block(IFILE_INO, lbn as i64);
    let block = disk.metadata(what, addr, sb.bsize).await?;
    Ok(IfileEntry::read(sb.width, &block[within..]))
}

/// The address of an inode's block after rolling forward; `None` for a free inode.
pub async fn locate(
    disk: &LogDisk,
    ifile: &LfsInode,
    changes: &RollChanges,
    ino: u64,
) -> Result<Option<i64>, LfsError> {
    if ino <= IFILE_INO || changes.removed.contains(&ino) {
        return Ok(None);
    }
    if let Some(addr) = changes.inodes.get(&ino) {
        return Ok(Some(*addr));
    }
    match entry(disk, ifile, ino).await {
        Ok(entry) if entry.is_orphan() && entry.daddr != NO_ADDRESS => Ok(None),
        Ok(entry) => Ok((entry.daddr != NO_ADDRESS).then_some(entry.daddr)),
        // Only a log that was torn can have inodes for which the IFILE has no entry.
        Err(LfsError::InodeNumber { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

//! A log in a file of the file system: making it, and finding it before anything else can be read.
//!
//! The file is in the root, visible to all but protected: it is not dumped, and no user, root
//! included, may write, cut, rename or remove it. It is found by its inode, not by its name: a
//! crash may have torn the root directory, but an inode that never changes is never half written.

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_format::ufs2::{Dinode, NDADDR, ROOT_INO};
use ordo_vfs::{Errno, FileSystem, FileType, FsError, FsResult, NewNode, SetAttr, flags};

use crate::mount::LocatedSuperblock;

/// The file's name.
pub const NAME: &[u8] = b".ordojournal";

/// The flags by which the log file's inode is found.
const FLAGS: u32 = flags::UF_NODUMP | flags::SF_IMMUTABLE | flags::SF_NOUNLINK;

/// The default size of a log file: a hundredth of the file system.
pub fn usual_size(bytes: u64) -> u64 {
    (bytes / 100).clamp(64 << 10, 1 << 30)
}

/// Makes the file on a mounted file system, which is new and empty except for the root, so that its
/// blocks are contiguous.
///
/// # Errors
/// There is no space, or the device failed.
pub async fn make<F: FileSystem>(fs: &F, bytes: u64) -> FsResult<()> {
    let file = fs.create(fs.root(), NAME, &NewNode::file(0o400)).await?;
    let chunk = vec![0; 256 << 10];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(chunk.len() as u64) as usize;
        at += fs.write(file.ino, at, &chunk[..n]).await? as u64;
    }
    fs.fsync(file.ino).await?;
    let set = SetAttr { flags: Some(FLAGS), ..SetAttr::default() };
    fs.setattr(file.ino, &set).await?;
    fs.sync().await
}

/// The places of an image's log file: offset and length of each run, in bytes. `None` if it has no
/// log file.
///
/// # Errors
/// The device failed, or the file's blocks cannot be right.
pub async fn find(device: &Device, image: &LocatedSuperblock) -> FsResult<Option<Vec<(u64, u64)>>> {
    let sb = &image.sb;
    let block = sb.block_size();
    let per_block = u64::from(sb.inopb);
    let mut first = 0;
    // The log file was the first file, so its inode is in the first group.
    while first < u64::from(sb.ipg).min(per_block * 4) {
        let (address, _) = sb.inode_block(first);
        let bytes = read(device, sb.byte_of(address), block).await?;
        for (i, inode) in bytes.chunks_exact(sb.inode_size()).enumerate() {
            let d = sb.inode(inode, image.endian);
            let is_file = FileType::from_mode(d.mode) == Some(FileType::Regular);
            if first + i as u64 > ROOT_INO && is_file && d.flags & FLAGS == FLAGS {
                return extents(device, image, &d).await.map(Some);
            }
        }
        first += per_block;
    }
    Ok(None)
}

async fn read(device: &Device, at: u64, len: usize) -> FsResult<Vec<u8>> {
    let failed = |e: BlockError| FsError::with_detail(Errno::Io, e);
    device.read(at, len).await.map(|bytes| bytes.to_vec()).map_err(failed)
}

/// Computes the runs of a file's blocks from its pointers.
async fn extents(
    device: &Device,
    image: &LocatedSuperblock,
    d: &Dinode,
) -> FsResult<Vec<(u64, u64)>> {
    let sb = &image.sb;
    let block = sb.block_size() as u64;
    let blocks = d.size / block;
    let damaged = || FsError::corrupt("the log file's blocks cannot be right; run a check (fsck)");
    let mut places: Vec<i64> = d.db.iter().copied().take(blocks as usize).collect();
    let mut left = blocks.saturating_sub(NDADDR as u64);
    for (depth, root) in d.ib.iter().enumerate() {
        if left == 0 {
            break;
        }
        // Reads the indirect blocks level by level.
        let mut level = vec![*root];
        for _ in 0..=depth {
            let mut below = Vec::new();
            for address in level {
                if !sb.has_frags(address.max(0).cast_unsigned(), sb.frag as u64) || address <= 0 {
                    return Err(damaged());
                }
                let at = sb.byte_of(address.cast_unsigned());
                let bytes = read(device, at, block as usize).await?;
                let count = sb.addresses_per_block() as usize;
                below.extend((0..count).map(|i| sb.pointer(&bytes, i, image.endian)));
                if below.len() as u64 > left {
                    break;
                }
            }
            below.truncate(left as usize);
            level = below;
        }
        left -= level.len() as u64;
        places.extend(level);
    }
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for address in places {
        if address <= 0 || !sb.has_frags(address.cast_unsigned(), sb.frag as u64) {
            return Err(damaged());
        }
        let at = sb.byte_of(address.cast_unsigned());
        match runs.last_mut() {
            Some((start, len)) if *start + *len == at => *len += block,
            _ => runs.push((at, block)),
        }
    }
    Ok(runs)
}

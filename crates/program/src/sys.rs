//! The few calls of the kernel's that have no safe wrapper: loop devices, a mount namespace, btrfs commits.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const BLKFLSBUF: libc::Ioctl = 0x1261;
/// `_IOR(0x94, 24, __u64)` and `_IOW(0x94, 22, __u64)`.
const BTRFS_IOC_START_SYNC: libc::Ioctl = 0x8008_9418u32 as libc::Ioctl;
const BTRFS_IOC_WAIT_SYNC: libc::Ioctl = 0x4008_9416;
/// `LO_FLAGS_AUTOCLEAR`: the last one who closes it takes it down.
const AUTOCLEAR: u32 = 4;

/// `struct loop_config` of Linux: what it is over, its block size, `struct loop_info64`, and a reserve.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// Device, inode, real device, offset, size limit.
    places: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    name: [u8; 64],
    keys: [u8; 96],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// A loop device over a file. It goes away when it is closed.
///
/// # Errors
/// The system's; there is no loop device to be had, or who calls is not root.
pub(crate) fn loop_over(backing: &File) -> io::Result<(PathBuf, File)> {
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
    let control = open("/dev/loop-control")?;
    for _ in 0..64 {
        // SAFETY: this request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = format!("/dev/loop{number}");
        let device = open(&path)?;
        let config = LoopConfig {
            fd: backing.as_raw_fd().cast_unsigned(),
            block_size: 0,
            places: [0; 5],
            number: 0,
            encryption: [0; 2],
            flags: AUTOCLEAR,
            name: [0; 64],
            keys: [0; 96],
            init: [0; 2],
            reserved: [0; 8],
        };
        // SAFETY: the request reads a `struct loop_config`, which `LoopConfig` is, from a pointer that outlives it.
        let code = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        let error = io::Error::last_os_error();
        match code {
            0 => return Ok((PathBuf::from(path), device)),
            // Somebody else took it.
            _ if error.raw_os_error() == Some(libc::EBUSY) => {}
            _ => return Err(error),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Has the kernel forget what it has in memory of a block device.
pub(crate) fn forget(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Commits a btrfs file system's transaction, which writes no contents of files that wait.
pub(crate) fn commit_btrfs(file: &File) -> io::Result<()> {
    let mut transaction = 0u64;
    let at = &raw mut transaction;
    // SAFETY: the request writes a number of 64 bits to a pointer that outlives it.
    let started = unsafe { libc::ioctl(file.as_raw_fd(), BTRFS_IOC_START_SYNC, at) };
    if started != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the request reads a number of 64 bits from a pointer that outlives it.
    match unsafe { libc::ioctl(file.as_raw_fd(), BTRFS_IOC_WAIT_SYNC, at) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread, and those that it starts, mounts of their own: whatever becomes of the process, they go
/// away with it. To be called before other threads are started.
///
/// # Errors
/// The system's: who calls is not root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: the flag concerns mounts only, no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

#[cfg(test)]
mod tests {
    use super::LoopConfig;

    /// The structure that the kernel reads has 304 bytes, its flags at byte 60 and the name at 64.
    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<LoopConfig>(), 304);
        assert_eq!(std::mem::offset_of!(LoopConfig, flags), 60);
        assert_eq!(std::mem::offset_of!(LoopConfig, name), 64);
    }
}

//! System calls without a safe wrapper: dropping a device's caches, a mount namespace, commits and devices of btrfs.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BLKFLSBUF: libc::Ioctl = 0x1261;
/// `_IOR(0x94, 24, __u64)`; the next constant is `_IOW(0x94, 22, __u64)`.
const BTRFS_IOC_START_SYNC: libc::Ioctl = 0x8008_9418u32 as libc::Ioctl;
const BTRFS_IOC_WAIT_SYNC: libc::Ioctl = 0x4008_9416;
/// `_IOW(0x94, 5, struct btrfs_ioctl_vol_args)`.
const BTRFS_IOC_FORGET_DEV: libc::Ioctl = 0x5000_9405;

/// `struct btrfs_ioctl_vol_args`: a descriptor, and a path that ends with a zero.
#[repr(C)]
struct BtrfsVolume {
    fd: i64,
    name: [u8; 4088],
}

/// Makes the kernel forget a device that it knows as one of an unmounted btrfs. Without this it would take the next
/// state, on another device, for an old copy of this one.
pub(crate) fn forget_btrfs(device: &Path) -> io::Result<()> {
    let control = File::options().read(true).write(true).open("/dev/btrfs-control")?;
    let mut volume = BtrfsVolume { fd: 0, name: [0; 4088] };
    let path = device.as_os_str().as_bytes();
    if path.len() >= volume.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    volume.name[..path.len()].copy_from_slice(path);
    let at = &raw const volume;
    // SAFETY: the request reads a `struct btrfs_ioctl_vol_args`, which `BtrfsVolume` is, from a pointer that outlives it.
    match unsafe { libc::ioctl(control.as_raw_fd(), BTRFS_IOC_FORGET_DEV, at) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the kernel drop its caches of a block device.
pub(crate) fn forget(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Commits a btrfs file system's transaction, without writing delayed contents of files.
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

/// Gives the calling thread, and threads that it starts, mounts of their own, which disappear with the process,
/// however it ends. Must be called before other threads are started.
///
/// # Errors
/// The operating system's error, for a caller that is not root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: the flag concerns mounts only, no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags)?;
    ordo_pseudo::drop_mounts_of_others();
    Ok(())
}

//! System calls without a safe wrapper: dropping a device's caches, namespaces, commits and devices
//! of btrfs.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

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

/// Makes the kernel forget a device that it knows as one of an unmounted btrfs. Without this it
/// would take the next state, on another device, for an old copy of this one.
pub(crate) fn forget_btrfs(device: &Path) -> io::Result<()> {
    let control = File::options().read(true).write(true).open("/dev/btrfs-control")?;
    let mut volume = BtrfsVolume { fd: 0, name: [0; 4088] };
    let path = device.as_os_str().as_bytes();
    if path.len() >= volume.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    volume.name[..path.len()].copy_from_slice(path);
    let at = &raw const volume;
    // SAFETY: the request reads a `struct btrfs_ioctl_vol_args`, which `BtrfsVolume` is, from a
    // pointer that outlives it.
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

/// Gives the calling thread, and threads that it starts, mounts of their own, which disappear with
/// the process, however it ends. Must be called before other threads are started.
///
/// # Errors
/// The operating system's error, for a caller that is not root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: the flag concerns mounts only, no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    use rustix::mount::MountPropagationFlags as Flags;
    rustix::mount::mount_change("/", Flags::PRIVATE | Flags::REC)?;
    // A check has mounts of its own, copies of these. They must not keep another check's state
    // mounted.
    rustix::mount::mount_change("/", Flags::SHARED | Flags::REC)?;
    ordo_recorder::drop_mounts_of_others();
    Ok(())
}

/// Makes a command begin in namespaces of its own: a network with `lo`, System V IPC, and mounts.
/// The first process that it starts, and all that this one starts, are in a namespace of processes
/// too, which ends with that process.
pub(crate) fn in_namespaces(command: &mut Command) -> &mut Command {
    // SAFETY: the function makes system calls only, and neither allocates nor takes locks.
    unsafe { command.pre_exec(leave_namespaces) }
}

/// Puts the calling process into new namespaces. It is called between fork and exec.
fn leave_namespaces() -> io::Result<()> {
    let flags = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let root = c"/".as_ptr();
    // What is unmounted outside is unmounted here too.
    let slave = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the flags concern no memory of this process, which has one thread here.
    let mut done = unsafe { libc::unshare(flags) } == 0;
    // SAFETY: the paths are strings that live for ever; the other arguments may be null.
    done &=
        unsafe { libc::mount(std::ptr::null(), root, std::ptr::null(), slave, std::ptr::null()) }
            == 0;
    if !done {
        return Err(io::Error::last_os_error());
    }
    lo_up()
}

/// Makes the network namespace's `lo` usable.
fn lo_up() -> io::Result<()> {
    // SAFETY: the call takes no memory.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros are a value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request reads a `struct ifreq` from a pointer that outlives it.
    let done = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) };
    let error = io::Error::last_os_error();
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(socket) };
    if done == 0 { Ok(()) } else { Err(error) }
}

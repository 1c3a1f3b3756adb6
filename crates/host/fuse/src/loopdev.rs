//! Loop devices: over an image, for the mount table, or over any open file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR`: the loop device is removed when its last user closes it.
const AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_PARTSCAN`: the loop device has partitions.
const PARTSCAN: u32 = 8;
/// `LO_FLAGS_DIRECT_IO`: the loop device caches nothing of the file.
const DIRECT_IO: u32 = 16;

/// Linux's `struct loop_config`: the file's descriptor, the block size, `struct loop_info64`, and
/// reserved bytes.
#[repr(C)]
struct Config {
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

/// Makes a loop device over an image, under the image's name. The returned file must be kept open
/// until another user has the device open.
///
/// # Errors
/// The operating system's error.
pub(crate) fn attach(image: &Path) -> io::Result<(PathBuf, File)> {
    let backing = open(image).or_else(|_| File::open(image))?;
    over(&backing, image)
}

/// Makes a loop device over an open file. The kernel shows `name` for it. The device disappears
/// when its last user closes it.
///
/// # Errors
/// The operating system's error; no loop device is free, or the caller is not root.
pub fn over(backing: &File, name: &Path) -> io::Result<(PathBuf, File)> {
    with_flags(backing, name, AUTOCLEAR)
}

/// The same, for a device whose requests all reach the file, and which may have partitions.
///
/// # Errors
/// The operating system's error; no loop device is free, or the caller is not root.
pub fn direct_over(
    backing: &File,
    name: &Path,
    has_partitions: bool,
) -> io::Result<(PathBuf, File)> {
    let partitions = if has_partitions { PARTSCAN } else { 0 };
    with_flags(backing, name, AUTOCLEAR | DIRECT_IO | partitions)
}

const BLKPG: libc::Ioctl = 0x1269;
const BLKPG_ADD_PARTITION: i32 = 1;
const BLKPG_DEL_PARTITION: i32 = 2;

/// Linux's `struct blkpg_partition`.
#[repr(C)]
struct PartitionRange {
    start: i64,
    len: i64,
    number: i32,
    names: [u8; 128],
}

/// Linux's `struct blkpg_ioctl_arg`.
#[repr(C)]
struct PartitionChange<'a> {
    op: i32,
    flags: i32,
    len: i32,
    range: &'a PartitionRange,
}

/// Tells the kernel of a partition of a device: its number, its first byte and its size in bytes,
/// both whole sectors. A partition that the kernel has found itself is kept.
///
/// # Errors
/// The operating system's error; the range lies outside of the device, or over another partition.
pub fn add_partition(device: &File, number: u32, start: u64, len: u64) -> io::Result<()> {
    match change_partition(device, BLKPG_ADD_PARTITION, number, start, len) {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        done => done,
    }
}

/// Tells the kernel that a partition is gone.
///
/// # Errors
/// The operating system's error; the partition is in use.
pub fn remove_partition(device: &File, number: u32) -> io::Result<()> {
    change_partition(device, BLKPG_DEL_PARTITION, number, 0, 0)
}

#[allow(unsafe_code)]
fn change_partition(device: &File, op: i32, number: u32, start: u64, len: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let range = PartitionRange {
        start: start.try_into().map_err(too_large)?,
        len: len.try_into().map_err(too_large)?,
        number: number.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        names: [0; 128],
    };
    let len = size_of::<PartitionRange>() as i32;
    let change = PartitionChange { op, flags: 0, len, range: &range };
    // SAFETY: the request reads a `struct blkpg_ioctl_arg` and what it points to; both outlive it.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), BLKPG, &raw const change) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn with_flags(backing: &File, name: &Path, flags: u32) -> io::Result<(PathBuf, File)> {
    let control = open(Path::new("/dev/loop-control"))?;
    // Another process may take the device that is free now, so several are tried.
    for _ in 0..64 {
        let number = free_number(&control)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        match configure(&device, backing, name, flags) {
            Ok(()) => return Ok((path, device)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

#[allow(unsafe_code)]
fn free_number(control: &File) -> io::Result<i32> {
    // SAFETY: this request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    if number >= 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code)]
fn configure(device: &File, backing: &File, file: &Path, flags: u32) -> io::Result<()> {
    let mut name = [0; 64];
    let bytes = file.as_os_str().as_bytes();
    let len = bytes.len().min(63);
    name[..len].copy_from_slice(&bytes[..len]);
    let config = Config {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: 0,
        places: [0; 5],
        number: 0,
        encryption: [0; 2],
        flags,
        name,
        keys: [0; 96],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: the request reads a `struct loop_config`, which `Config` is, from a pointer that
    // outlives it.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{Config, PartitionChange, PartitionRange};

    /// The structure that the kernel reads has 304 bytes, its flags at byte 60 and the name at 64.
    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<Config>(), 304);
        assert_eq!(std::mem::offset_of!(Config, flags), 60);
        assert_eq!(std::mem::offset_of!(Config, name), 64);
        assert_eq!((size_of::<PartitionRange>(), size_of::<PartitionChange<'_>>()), (152, 24));
    }
}

//! The places of a file on the host's device, by the kernel's FIEMAP.
//!
//! Source: the kernel's `Documentation/filesystems/fiemap.rst`.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

use crate::Extent;

/// The number of extents that one call asks for.
const BATCH: usize = 128;

/// `FIEMAP_FLAG_SYNC`: the kernel writes the file first, so that all of it has a place.
const SYNC: u32 = 1;
/// `FIEMAP_EXTENT_LAST`: the last extent of the file.
const LAST: u32 = 1;
/// `FIEMAP_EXTENT_UNKNOWN`, `FIEMAP_EXTENT_ENCODED`, `FIEMAP_EXTENT_NOT_ALIGNED` (tails and data in
/// inodes): the bytes are in no blocks of the file's own.
const ELSEWHERE: u32 = 2 | 8 | 0x100;

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct FiemapExtent {
    fe_logical: u64,
    fe_physical: u64,
    fe_length: u64,
    fe_reserved64: [u64; 2],
    fe_flags: u32,
    fe_reserved: [u32; 3],
}

/// `struct fiemap`, followed by an array of extents.
#[repr(C)]
struct Fiemap {
    fm_start: u64,
    fm_length: u64,
    fm_flags: u32,
    fm_mapped_extents: u32,
    fm_extent_count: u32,
    fm_reserved: u32,
    fm_extents: [FiemapExtent; BATCH],
}

/// The size of `struct fiemap` without extents, in bytes. The call's number contains this size.
const HEAD: usize = 32;

/// `FS_IOC_FIEMAP`.
const FIEMAP: rustix::ioctl::Opcode = opcode::read_write::<[u8; HEAD]>(b'f', 11);

fn call(file: impl AsFd, map: &mut Fiemap) -> Result<(), Errno> {
    // SAFETY: `FS_IOC_FIEMAP` reads and writes a `struct fiemap` and the `fm_extent_count` extents
    // behind it. `Fiemap` has that layout, and its array has as many extents as `fm_extent_count`
    // says.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<FIEMAP, Fiemap>::new(map))
    }
}

/// The extents of an open file.
pub(super) fn of(file: &impl AsFd) -> Result<Vec<Extent>, Errno> {
    let (mut extents, mut start) = (Vec::new(), 0);
    loop {
        let mut map = Fiemap {
            fm_start: start,
            fm_length: u64::MAX - start,
            fm_flags: SYNC,
            fm_mapped_extents: 0,
            fm_extent_count: BATCH as u32,
            fm_reserved: 0,
            fm_extents: [FiemapExtent::default(); BATCH],
        };
        call(file, &mut map)?;
        let found = &map.fm_extents[..(map.fm_mapped_extents as usize).min(BATCH)];
        for extent in found.iter().filter(|extent| extent.fe_flags & ELSEWHERE == 0) {
            let (offset, len) = (extent.fe_logical, extent.fe_length);
            Extent::join(&mut extents, Extent { offset, len, address: extent.fe_physical });
        }
        let Some(last) = found.last() else { break };
        start = last.fe_logical.saturating_add(last.fe_length);
        if last.fe_flags & LAST != 0 {
            break;
        }
    }
    Ok(extents)
}

//! The guest's memory, as its messages describe it.

use std::fs::File;

use ordo_format::vhost_user::MemRegion;
use ordo_format::{Endian, OnDisk};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// The memory of a guest: its ranges, mapped, and their addresses in the kernel's own memory.
pub(crate) struct Memory {
    mapped: GuestMemoryMmap<()>,
    regions: Vec<MemRegion>,
}

impl Memory {
    /// Maps the ranges of a message `SET_MEM_TABLE`.
    pub(crate) fn map(table: &[u8], files: Vec<File>) -> Result<Memory, String> {
        let count = table.get(..4).map_or(0, |head| u32::get(head, 0, Endian::NATIVE)) as usize;
        let needs = 8 + count * MemRegion::SIZE;
        if count == 0 || table.len() < needs || files.len() != count {
            return Err(format!("a table of {count} ranges in {} bytes", table.len()));
        }
        let regions: Vec<MemRegion> = table[8..needs]
            .chunks_exact(MemRegion::SIZE)
            .map(|bytes| MemRegion::get(bytes, 0, Endian::NATIVE))
            .collect();
        let ranges = regions.iter().zip(files).map(|(region, file)| {
            let place = FileOffset::new(file, region.mmap_offset);
            (GuestAddress(region.guest_addr), region.size as usize, Some(place))
        });
        let mapped = GuestMemoryMmap::from_ranges_with_files(ranges).map_err(|e| e.to_string())?;
        Ok(Memory { mapped, regions })
    }

    /// The mapping, for the rings.
    pub(crate) fn mapped(&self) -> &GuestMemoryMmap<()> {
        &self.mapped
    }

    /// The guest's address of an address in the kernel's own memory.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        let within = |r: &&MemRegion| user >= r.user_addr && user - r.user_addr < r.size;
        let region = self.regions.iter().find(within)?;
        Some(GuestAddress(region.guest_addr + (user - region.user_addr)))
    }

    /// Reads from the guest's memory. False: the range is not all there.
    pub(crate) fn read(&self, to: &mut [u8], at: GuestAddress) -> bool {
        self.mapped.read_slice(to, at).is_ok()
    }

    /// Writes to the guest's memory. False: the range is not all there.
    pub(crate) fn write(&self, from: &[u8], at: GuestAddress) -> bool {
        self.mapped.write_slice(from, at).is_ok()
    }
}

//! The facts about a crashed image that an ordering needs.

use std::ops::Range;

use ordo_format::Endian;
use ordo_format::ufs2::{Group, Superblock};
use ordo_ordering::Image;

use crate::state_flags;

/// An image on a device that is not mounted.
pub struct OnDevice<'a> {
    sb: &'a Superblock,
    endian: Endian,
    now: i64,
}

impl<'a> OnDevice<'a> {
    /// The image with this superblock, at time `now`.
    pub fn new(sb: &'a Superblock, endian: Endian, now: i64) -> OnDevice<'a> {
        OnDevice { sb, endian, now }
    }

    /// The group whose header holds a byte.
    fn header_at(&self, byte: u64) -> Option<Range<u64>> {
        let frag = byte >> self.sb.fshift;
        if frag >= self.sb.size.max(0).cast_unsigned() {
            return None;
        }
        let start = self.sb.byte_of(self.sb.cg_header(self.sb.frag_group(frag)));
        let len = (self.sb.cgsize as u64).next_multiple_of(512);
        Some(start..start + len).filter(|header| header.contains(&byte))
    }
}

impl Image for OnDevice<'_> {
    fn id(&self) -> u64 {
        let [made, chance] = self.sb.id.map(i32::cast_unsigned);
        // An id is never 0, because 0 stands for no file system.
        (u64::from(made) << 32 | u64::from(chance)).max(1)
    }

    fn is_clean(&self) -> bool {
        state_flags::is_clean(self.sb)
    }

    fn stamp(&self) -> i64 {
        self.sb.mtime
    }

    fn next_stamp(&self) -> i64 {
        self.now.max(self.sb.mtime.saturating_add(1))
    }

    fn fragment(&self) -> u64 {
        self.sb.fsize as u64
    }

    fn block(&self) -> u64 {
        self.sb.bsize as u64
    }

    fn unit(&self, byte: u64) -> Range<u64> {
        self.header_at(byte).unwrap_or_else(|| {
            let size = self.fragment();
            let start = byte / size * size;
            // A group's header may end inside of a fragment.
            match self.header_at(start) {
                Some(header) => header.end..start + size,
                None => start..start + size,
            }
        })
    }

    fn seal(&self, start: u64, block: &mut [u8]) {
        if self.header_at(start).is_some_and(|header| header.start == start) {
            Group::seal(block, self.endian, self.sb);
        }
    }
}

//! What an ordering is told of an image that a crash left, and what follows from the groups afterwards.

use std::ops::Range;

use ordo_block::BlockDevice;
use ordo_cache::{BufKey, Cache, Class};
use ordo_format::Endian;
use ordo_format::ufs2::{Csum, Group, Superblock};
use ordo_ordering::{Image, OrderingPolicy};
use ordo_runtime::sync::abreast;
use ordo_ufs::io_error;
use ordo_vfs::FsError;

use crate::marks;
use crate::mount::MountError;

/// Groups that are read at once.
const READS: usize = 64;

/// An image on a device that nobody has mounted.
pub struct OnDevice<'a> {
    sb: &'a Superblock,
    endian: Endian,
    now: i64,
}

impl<'a> OnDevice<'a> {
    /// The image of this superblock, now.
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
        // Never 0, which says that there is none.
        (u64::from(made) << 32 | u64::from(chance)).max(1)
    }

    fn is_clean(&self) -> bool {
        marks::is_clean(self.sb)
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

    fn unit(&self, byte: u64) -> Range<u64> {
        self.header_at(byte).unwrap_or_else(|| {
            let size = self.fragment();
            let start = byte / size * size;
            // A group's header may end within a fragment.
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

/// What the groups' headers say is free: where they are right and the summary may not be.
pub(crate) async fn read_groups<D: BlockDevice, P: OrderingPolicy>(
    cache: &Cache<D, P>,
    sb: &Superblock,
    endian: Endian,
) -> Result<Vec<Csum>, MountError> {
    let len = (sb.cgsize as usize).next_multiple_of(512);
    let read = |cg: u32| {
        let at = sb.byte_of(sb.cg_header(cg));
        async move {
            let read = cache.get(BufKey::device(at), at, len, Class::Metadata).await;
            let buf = read.map_err(io_error)?;
            let group = Group::read(&buf.read(), endian, sb, cg).map_err(|e| {
                FsError::corrupt(format_args!("block at byte {at}: {e}; run a check (fsck)"))
            });
            Ok::<_, FsError>(group?.cs)
        }
    };
    let mut groups = vec![Csum::zeroed(); sb.ncg as usize];
    abreast(READS, (0..sb.ncg).map(read), |cg, counts| {
        groups[cg] = counts?;
        Ok::<_, MountError>(())
    })
    .await?;
    Ok(groups)
}

//! Mounting a crashed image without a check, by rebuilding its summaries.
//!
//! Source: soft-updates-2000, section 3.3: under an ordering that keeps the bitmaps right,
//! everything that follows from them is rebuilt at the mount. The write of a group may be torn at
//! 512 bytes. Then every bit on the disk is right, or marks something as used that is free; but
//! counts, cluster maps and the check-hash may belong to another state of the bitmaps. So all of
//! these are rebuilt from the bitmaps. The number of directories cannot be computed from a bitmap,
//! so the header's number stays; only the choice of a group for the next directory depends on it.
//!
//! All groups are read, many at once, because every later allocation depends on their counts. The
//! paper does the same. The time depends on the number of groups, not on how full they are. Only
//! groups that were wrong are written, before any other write, so the rebuilding can be repeated
//! after another crash.

use std::fmt;

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_format::Endian;
use ordo_format::ufs2::bitmap::{block_mask, cluster_counts, count, for_each_run};
use ordo_format::ufs2::group::GroupLayout;
use ordo_format::ufs2::{Csum, Group, Superblock};
use ordo_runtime::Runtime;
use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::FsError;

use crate::MountError;

/// The number of groups that are read at once.
const READS: usize = 64;

/// The repairs of an image that had not been unmounted cleanly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of groups whose counts were rebuilt.
    pub groups: u32,
    /// The groups among them that had an error, which is repaired.
    pub repaired: Vec<u32>,
    /// Whether the superblock's last write was torn. Then the fields that change with every write
    /// were rebuilt from the groups.
    pub torn_superblock: bool,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.torn_superblock {
            f.write_str("the superblock was torn, and was rebuilt from its copy and the groups; ")?;
        }
        write!(
            f,
            "not unmounted cleanly: the free space of {} groups was counted again, and {} of them repaired; \
             leaked blocks and inodes stay in use until a check (ordo fsck)",
            self.groups,
            self.repaired.len()
        )
    }
}

/// Counts the free space of each group, and repairs the groups' headers.
///
/// # Errors
/// The device failed; a header is not that of a group.
pub(crate) async fn groups(
    runtime: &Runtime,
    device: &Device,
    sb: &Superblock,
    endian: Endian,
) -> Result<(Vec<Csum>, Recovered), MountError> {
    let len = (sb.cgsize as usize).next_multiple_of(device.geometry().sector as usize);
    let mut counts = vec![Csum::zeroed(); sb.ncg as usize];
    let mut recovered = Recovered { groups: sb.ncg, ..Recovered::default() };
    let tables = Tables::new(sb.frag as u32);
    let rebuild = |cg: u32| {
        let tables = &tables;
        async move {
            let at = sb.byte_of(sb.cg_header(cg));
            runtime.cpu().request();
            let bytes = device.read(at, len).await?;
            runtime.cpu().bytes(len);
            let (group, fresh) = tables.rebuild(&bytes, endian, sb, cg).map_err(|e| {
                FsError::corrupt(format_args!("block at byte {at}: {e}; run a check (fsck)"))
            })?;
            let is_wrong = fresh[..] != bytes[..];
            if is_wrong {
                device.write(at, IoBuf::from_slice(&fresh), WriteFlags::META).await?;
            }
            Ok::<_, MountError>((group.cs, is_wrong))
        }
    };
    buffer_unordered(READS, (0..sb.ncg).map(rebuild), |cg, done| {
        let (cs, is_wrong) = done?;
        counts[cg] = cs;
        if is_wrong {
            recovered.repaired.push(cg as u32);
        }
        Ok::<_, MountError>(())
    })
    .await?;
    recovered.repaired.sort_unstable();
    Ok((counts, recovered))
}

/// Tables of the properties of each byte value of a fragment bitmap.
struct Tables {
    frag: u32,
    /// The wholly free blocks, one bit each.
    whole: [u8; 256],
    /// The free fragments outside of wholly free blocks.
    to_free: [u8; 256],
    /// The runs of fragments that `to_free` counts, by length.
    runs: [[u8; 8]; 256],
}

impl Tables {
    fn new(frag: u32) -> Tables {
        let mut tables = Tables { frag, whole: [0; 256], to_free: [0; 256], runs: [[0; 8]; 256] };
        for byte in 0..=u8::MAX {
            let at = usize::from(byte);
            for blk in 0..8 / frag {
                let bits = byte >> (blk * frag) & block_mask(frag);
                if bits == block_mask(frag) {
                    tables.whole[at] |= 1 << blk;
                    continue;
                }
                tables.to_free[at] += bits.count_ones() as u8;
                for_each_run(bits, frag, |_, length| tables.runs[at][length as usize] += 1);
            }
        }
        tables
    }

    /// Rebuilds, in a group's header and bytes, everything that follows from the bitmaps.
    fn rebuild(
        &self,
        bytes: &[u8],
        endian: Endian,
        sb: &Superblock,
        cg: u32,
    ) -> Result<(Group, Vec<u8>), ordo_format::ufs2::group::GroupError> {
        let mut group = Group::parse(bytes, endian, sb, cg)?;
        let layout = group.layout(sb);
        let mut fresh = bytes.to_vec();
        group.cs.nifree = (sb.ipg - count(&bytes[layout.inodes.clone()], sb.ipg)).cast_signed();
        group.cs.ndir = group.cs.ndir.clamp(0, sb.ipg.cast_signed() - group.cs.nifree);
        let clusters = self.count_frags(&bytes[layout.frags.clone()], &mut group);
        group.encode(&mut fresh, endian);
        put_clusters(&mut fresh, endian, &layout, &clusters, group.nclusterblks);
        Group::seal(&mut fresh, endian, sb);
        Ok((group, fresh))
    }

    /// Counts what is free in a bitmap of fragments; returns the bitmap of free blocks.
    fn count_frags(&self, map: &[u8], group: &mut Group) -> Vec<u8> {
        let blocks_in_byte = 8 / self.frag;
        let used = group.ndblk as usize;
        let mut clusters = vec![0; map.len().div_ceil(self.frag as usize)];
        let mut times = [0i32; 256];
        for (at, byte) in map[..used.div_ceil(8)].iter().enumerate() {
            // Fragments beyond the group's end are not free, whatever their bits say.
            let left = used - 8 * at;
            let mask = if left < 8 { (1u8 << left) - 1 } else { 0xff };
            let byte = usize::from(byte & mask);
            times[byte] += 1;
            let bit = at as u32 * blocks_in_byte;
            clusters[bit as usize / 8] |= self.whole[byte] << (bit % 8);
        }
        group.cs.nbfree = 0;
        group.cs.nffree = 0;
        let mut frsum = [0; 8];
        for (byte, times) in times.iter().enumerate().filter(|(_, times)| **times > 0) {
            group.cs.nbfree += times * self.whole[byte].count_ones().cast_signed();
            group.cs.nffree += times * i32::from(self.to_free[byte]);
            for (sum, runs) in frsum.iter_mut().zip(self.runs[byte]) {
                *sum += times * i32::from(runs);
            }
        }
        let lengths = 1..self.frag as usize;
        group.frsum[lengths.clone()].copy_from_slice(&frsum[lengths]);
        clusters
    }
}

fn put_clusters(
    bytes: &mut [u8],
    endian: Endian,
    layout: &GroupLayout,
    clusters: &[u8],
    blocks: u32,
) {
    if layout.clusters.is_empty() {
        return;
    }
    let most = layout.cluster_sum.len() as u32 / 4 - 1;
    let sums = cluster_counts(clusters, blocks, most);
    let len = layout.clusters.len();
    bytes[layout.clusters.clone()].copy_from_slice(&clusters[..len]);
    for (length, sum) in sums.iter().enumerate().take(most as usize + 1).skip(1) {
        endian.put_i32(bytes, layout.cluster_sum.start + 4 * length, *sum);
    }
}

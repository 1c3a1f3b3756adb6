//! Fields that follow from others, and reserved fields: the superblock's and the recovery record's,
//! before phase 1; those of a group's header, in phases 1 and 5.
//!
//! `docs/formats/ufs2-checks.md` has a line for every field.

use std::ops::Range;

use ordo_block::BlockError;
use ordo_format::ufs1::OlderGroupFields;
use ordo_format::ufs2::group::{Group, GroupLayout};
use ordo_format::ufs2::superblock::{
    FS_FLAGS_UPDATED, MAGIC, RECOVERY_AT, Recovery, SBLOCK_SIZE, SEARCH, Superblock,
};
use ordo_format::ufs2::{SECTOR, bitmap};

use crate::Finding;
use crate::state::Run;

impl Run<'_> {
    /// Checks the remaining fields of a usable superblock.
    pub async fn check_superblock(&mut self) -> Result<(), BlockError> {
        let shift = self.right_sector_shift().await?;
        let sb = &mut self.sb;
        let summary = i64::from(sb.cssize >> sb.fshift);
        let own = i64::from(sb.ncg) * i64::from(sb.dblkno - sb.sblkno);
        let data = sb.size - i64::from(sb.sblkno) - own - summary;
        let whole = Superblock::SIZE.next_multiple_of(sb.fsize as usize).min(SBLOCK_SIZE) as i32;
        // Some systems store UFS1's limit, and others what the pointers can map.
        let largest = match sb.maxfilesize == sb.max_file_size() {
            true => sb.maxfilesize,
            false => sb.mapped_bytes_max(),
        };
        let flags = sb.old_flags | FS_FLAGS_UPDATED as u8;
        let derived = [
            ("fsbtodb", i64::from(sb.fsbtodb), i64::from(shift)),
            ("sbsize", sb.sbsize.into(), whole.into()),
            ("dsize", sb.dsize, data.max(1)),
            ("maxfilesize", sb.maxfilesize.cast_signed(), largest.cast_signed()),
            ("old_flags", sb.old_flags.into(), flags.into()),
        ];
        (sb.fsbtodb, sb.sbsize, sb.dsize) = (shift, whole, data.max(1));
        (sb.maxfilesize, sb.old_flags) = (largest, flags);
        for (field, stored, right) in derived.into_iter().filter(|(_, a, b)| a != b) {
            self.finding(Finding::SuperblockField { field, stored, right });
        }
        for (field, stored, right) in self.sb.older_fields().into_iter().filter(|(_, a, b)| a != b)
        {
            self.finding(Finding::OlderField { field, stored, right });
        }
        let total = &mut self.sb.cstotal;
        let reserved = [("numclusters", &[total.numclusters][..]), ("spare", &total.spare[..])];
        let reserved = reserved.map(|(field, values)| (field, first_set(values)));
        (total.numclusters, total.spare) = (0, [0; 3]);
        for (field, stored) in reserved.into_iter().filter(|(_, stored)| *stored != 0) {
            self.finding(Finding::ReservedTotals { field, stored });
        }
        if self.options.copies { self.check_record().await } else { Ok(()) }
    }

    /// The right `fsbtodb`. Some programs write a value for larger sectors. It is right if the
    /// first copy has it too.
    async fn right_sector_shift(&mut self) -> Result<i32, BlockError> {
        let stored = self.sb.fsbtodb;
        let usual = (self.sb.fsize as u32 / SECTOR).trailing_zeros() as i32;
        if stored == usual {
            return Ok(usual);
        }
        let frags = (SBLOCK_SIZE as u64).div_ceil(self.sb.fsize as u64);
        let bytes = self.io.read(self.sb.cg_superblock(0), frags).await?;
        let copied = Superblock::read_copy(&bytes).map(|(copy, _)| copy.fsbtodb);
        Ok(if copied == Ok(stored) { stored } else { usual })
    }

    /// Checks the recovery record. It need not exist: a boot program may be in its place, and not
    /// every mkfs writes it.
    async fn check_record(&mut self) -> Result<(), BlockError> {
        if self.sb.sblockloc as u64 != SEARCH[0] {
            return Ok(());
        }
        let sb = &self.sb;
        let (addr, within) = (RECOVERY_AT >> sb.fshift, RECOVERY_AT % sb.fsize as u64);
        let (fsbtodb, sblkno, fpg, ncg) = (sb.fsbtodb, sb.sblkno, sb.fpg, sb.ncg);
        let bytes = self.io.read(addr, 1).await?;
        let stored = Recovery::decode(&bytes[within as usize..], self.endian);
        if stored.magic != MAGIC {
            return Ok(());
        }
        let right = Recovery { magic: MAGIC, fsbtodb, sblkno, fpg, ncg };
        let fields = [
            ("fsbtodb", i64::from(stored.fsbtodb), i64::from(fsbtodb)),
            ("sblkno", stored.sblkno.into(), sblkno.into()),
            ("fpg", stored.fpg.into(), fpg.into()),
            ("ncg", stored.ncg.into(), ncg.into()),
        ];
        for (field, stored, right) in fields.into_iter().filter(|(_, a, b)| a != b) {
            self.finding(Finding::RecoveryRecord { field, stored, right });
        }
        if stored != right {
            let mut bytes = [0; Recovery::SIZE];
            right.encode(&mut bytes, self.endian);
            self.io.change(addr, within as usize, &bytes).await?;
        }
        Ok(())
    }

    /// Checks the places of a group's bitmaps in its header.
    pub fn check_layout(&mut self, cg: u32, group: &Group) -> bool {
        let standard = GroupLayout::standard(&self.sb);
        let (inodes, frags) = (standard.inodes.start, standard.frags.start);
        let (sums, clusters) = (standard.cluster_sum.start, standard.clusters.start);
        let places = [
            ("iusedoff", group.iusedoff, inodes),
            ("freeoff", group.freeoff, frags),
            ("clustersumoff", group.clustersumoff, sums),
            ("clusteroff", group.clusteroff, clusters),
            ("nextfreeoff", group.nextfreeoff, standard.end),
        ];
        let mut same = true;
        for (field, stored, right) in places {
            // Without clusters, the fields for their places are reserved.
            let is_kept = self.sb.contigsumsize > 0 || !field.starts_with("cluster");
            let right = right as u32;
            if stored != right && is_kept {
                self.finding(Finding::GroupLayout { cg, field, stored, right });
                same = false;
            }
        }
        same
    }

    /// Checks the reserved fields of a header.
    pub fn check_reserved(&mut self, cg: u32, group: &Group) {
        let has_clusters = self.sb.contigsumsize > 0;
        for (field, stored) in reserved(group, has_clusters).into_iter().filter(|(_, v)| *v != 0) {
            self.finding(Finding::GroupReserved { cg, field, stored });
        }
        let right = self.sb.older_group_fields(cg);
        let ready = self.sb.stored_ready(group.initediblk);
        for (field, stored, right) in [
            ("old_ncyl", i64::from(group.old_ncyl), i64::from(right.ncyl)),
            ("old_niblk", group.old_niblk.into(), right.old_niblk.into()),
            ("old_btotoff", group.old_btotoff.into(), right.btotoff.into()),
            ("old_boff", group.old_boff.into(), right.boff.into()),
            ("niblk", group.niblk.into(), right.niblk.into()),
            ("initediblk", group.initediblk.into(), ready.into()),
        ] {
            match (stored == right, right) {
                (true, _) => {}
                (false, 0) => self.finding(Finding::GroupReserved { cg, field, stored }),
                (false, _) => self.finding(Finding::OlderGroupField { cg, field, stored, right }),
            }
        }
    }

    /// Checks the bytes between a group's bitmaps, and the bytes after the last bit of each.
    pub fn check_padding(&mut self, cg: u32, header: &[u8], layout: &GroupLayout) {
        let frags = &header[layout.frags.clone()];
        let (end, all) = (self.sb.cg_frags(cg), 8 * frags.len() as u32);
        if let Some(fragment) = bitmap::next_set(frags, end, all) {
            self.finding(Finding::FreeBeyondEnd { cg, fragment });
        }
        if let Some(byte) = padding(layout).find(|byte| header[*byte] != 0) {
            self.finding(Finding::GroupPadding { cg, byte: byte as u32 });
        }
    }
}

/// The bytes between the fragment bitmap and the cluster counts.
pub(crate) fn padding(layout: &GroupLayout) -> Range<usize> {
    match layout.clusters.is_empty() {
        true => layout.frags.end..layout.frags.end,
        false => layout.frags.end..layout.cluster_sum.start + 4,
    }
}

/// The fields of a header that must be zero, with their values.
fn reserved(group: &Group, has_clusters: bool) -> [(&'static str, i64); 6] {
    let unless_clusters = |value: u32| if has_clusters { 0 } else { value.into() };
    [
        ("firstfield", group.firstfield.into()),
        ("clustersumoff", unless_clusters(group.clustersumoff)),
        ("clusteroff", unless_clusters(group.clusteroff)),
        ("nclusterblks", unless_clusters(group.nclusterblks)),
        ("sparecon32", group.sparecon32.into()),
        ("sparecon64", first_set(&group.sparecon64)),
    ]
}

/// Sets the right places of the bitmaps in a header and its older fields, and zeros its reserved
/// fields.
pub(crate) fn straighten(group: &mut Group, layout: &GroupLayout, older: &OlderGroupFields) {
    (group.firstfield, group.sparecon32, group.sparecon64) = (0, 0, [0; 3]);
    (group.old_ncyl, group.old_niblk, group.niblk) = (older.ncyl, older.old_niblk, older.niblk);
    (group.old_btotoff, group.old_boff) = (older.btotoff, older.boff);
    (group.iusedoff, group.freeoff) = (layout.inodes.start as u32, layout.frags.start as u32);
    group.nextfreeoff = layout.end as u32;
    if layout.clusters.is_empty() {
        (group.clustersumoff, group.clusteroff, group.nclusterblks) = (0, 0, 0);
    } else {
        group.clustersumoff = layout.cluster_sum.start as u32;
        group.clusteroff = layout.clusters.start as u32;
    }
}

/// The first value that is not zero, or zero.
fn first_set(values: &[i64]) -> i64 {
    values.iter().copied().find(|value| *value != 0).unwrap_or(0)
}

//! Phase 5: cylinder groups, the summary and the totals are compared with what is in use.
//!
//! A count is reported only when it matches neither the bitmap beside it nor the true use. If a
//! bitmap is wrong, only the bitmap is reported, and not the counts that are computed from it.

use ordo_block::BlockError;
use ordo_format::ufs2::dir::DT_DIR;
use ordo_format::ufs2::group::{CKHASH_OFFSET, GroupLayout};
use ordo_format::ufs2::superblock::CK_CYLGRP;
use ordo_format::ufs2::{Csum, Group, ROOT_INO, bitmap};

use crate::fields::{padding, straighten};
use crate::state::Run;
use crate::{CheckPhase, Count, Finding};

/// The counts and clusters that follow from a group's bitmaps.
struct Derived {
    cs: Csum,
    frsum: [i32; 8],
    clusters: Vec<u8>,
    sums: [i32; 17],
}

impl Run<'_> {
    /// Checks every group, then the summary and the totals.
    pub async fn check_groups(&mut self) -> Result<(), BlockError> {
        let groups = self.groups.len();
        let len = self.sb.summary_frags();
        let mut summary = self.io.read(self.sb.csaddr as u64, len).await?;
        let mut sums = [[0i64; 4]; 3];
        let mut changed = false;
        for cg in 0..groups {
            self.tell(CheckPhase::Groups, cg, groups);
            let (stored, expected) = self.check_group(cg as u32).await?;
            let entry = Csum::decode(&summary[cg * Csum::SIZE..], self.endian);
            for (i, (count, value)) in counts(&entry).into_iter().enumerate() {
                let (of_header, found) = (counts(&stored)[i].1, counts(&expected)[i].1);
                if value != of_header && value != found {
                    let cg = cg as u32;
                    self.finding(Finding::Summary { cg, count, stored: value, found });
                }
                for (sum, part) in sums.iter_mut().zip([value, of_header, found]) {
                    sum[i] += i64::from(part);
                }
            }
            if entry != expected {
                expected.encode(&mut summary[cg * Csum::SIZE..], self.endian);
                changed = true;
            }
        }
        if changed {
            self.io.change(self.sb.csaddr as u64, 0, &summary).await?;
        }
        self.check_totals(sums);
        self.tell(CheckPhase::Groups, groups, groups);
        Ok(())
    }

    /// Compares the totals in the superblock with the sums of the summary, of the headers, and of
    /// the true counts.
    fn check_totals(&mut self, sums: [[i64; 4]; 3]) {
        let total = &self.sb.cstotal;
        let stored = [total.ndir, total.nbfree, total.nifree, total.nffree];
        for (i, count) in ALL_COUNTS.into_iter().enumerate() {
            let fits = sums.iter().any(|sum| sum[i] == stored[i]);
            if !fits && !self.from_copy {
                let (stored, found) = (stored[i], sums[2][i]);
                self.finding(Finding::Totals { count, stored, found });
            }
        }
        let total = &mut self.sb.cstotal;
        [total.ndir, total.nbfree, total.nifree, total.nffree] = sums[2];
        let [_, blocks, inodes, frags] = sums[2].map(|sum| sum as u64);
        self.report.fragments = self.sb.size as u64;
        self.report.used_fragments = self.sb.size as u64 - self.sb.blocks_to_frags(blocks) - frags;
        self.report.files = self.sb.inodes() - inodes - ROOT_INO;
    }

    /// Checks one group. Returns the counts in its header, and the right counts.
    async fn check_group(&mut self, cg: u32) -> Result<(Csum, Csum), BlockError> {
        let state = &mut self.groups[cg as usize];
        let header = std::mem::take(&mut state.header);
        let (parsed, hash_ok) = (state.parsed.take(), state.hash_ok);
        let inodes = self.used_inodes(cg);
        let free = std::mem::take(&mut self.groups[cg as usize].free);
        let ndir = self.groups[cg as usize].inodes.iter().filter(|i| i.kind == DT_DIR).count();
        let expected = self.derive(cg, &inodes, &free, ndir as i32);
        let (rebuilt, in_place) = (parsed.is_none(), self.groups[cg as usize].in_place);
        let old = parsed.unwrap_or_else(|| Group::empty(&self.sb, cg));
        let layout = GroupLayout::standard(&self.sb);
        if !rebuilt {
            self.check_reserved(cg, &old);
        }
        if !rebuilt && in_place {
            self.check_padding(cg, &header, &layout);
            self.compare_maps(cg, &header, &layout, (&inodes, &free));
            self.compare_counts(cg, &header, &old, (&layout, &expected));
        }
        let keeps_maps = !rebuilt && in_place;
        let mut new = if keeps_maps { header.clone() } else { vec![0; self.sb.block_size()] };
        let mut group = old.clone();
        straighten(&mut group, &layout, &self.sb.older_group_fields(cg));
        group.initediblk = self.sb.stored_ready(self.groups[cg as usize].inodes.len() as u32);
        self.build_header(&mut new, group, &layout, (&inodes, &free), &expected);
        let hash = CKHASH_OFFSET..CKHASH_OFFSET + 4;
        let kept = self.sb.keeps_hash(CK_CYLGRP);
        let same =
            new[..hash.start] == header[..hash.start] && new[hash.end..] == header[hash.end..];
        if !same || !hash_ok {
            if kept {
                Group::seal(&mut new, self.endian, &self.sb);
            }
            self.io.change(self.sb.cg_header(cg), 0, &new).await?;
        }
        let stored = if rebuilt { expected.cs } else { old.cs };
        Ok((stored, expected.cs))
    }

    /// The right bitmap of used inodes.
    fn used_inodes(&self, cg: u32) -> Vec<u8> {
        let mut map = vec![0; (self.sb.ipg as usize).div_ceil(8)];
        if cg == 0 {
            (0..ROOT_INO as u32).for_each(|ino| bitmap::set(&mut map, ino));
        }
        for (i, info) in self.groups[cg as usize].inodes.iter().enumerate() {
            if info.kind != 0 {
                bitmap::set(&mut map, i as u32);
            }
        }
        map
    }

    /// Computes counts and clusters from bitmaps.
    fn derive(&self, cg: u32, inodes: &[u8], free: &[u8], ndir: i32) -> Derived {
        let (frag, ndblk) = (self.sb.frag as u32, self.sb.cg_frags(cg));
        let whole = ndblk / frag;
        let mut cs = Csum::zeroed();
        cs.ndir = ndir;
        cs.nifree = (self.sb.ipg - bitmap::count(inodes, self.sb.ipg)) as i32;
        let mut frsum = [0; 8];
        let blocks = self.sb.frags_to_blocks(self.sb.fpg as u64) as usize;
        let mut clusters = vec![0; blocks.div_ceil(8)];
        for blk in 0..ndblk.div_ceil(frag) {
            let mut bits = bitmap::block_bits(free, blk, frag);
            if blk == whole {
                bits &= (1u16 << (ndblk % frag)).wrapping_sub(1) as u8;
            }
            if bits == bitmap::block_mask(frag) {
                cs.nbfree += 1;
                bitmap::set(&mut clusters, blk);
            } else if bits != 0 {
                cs.nffree += bits.count_ones() as i32;
                bitmap::frag_sum(bits, frag, &mut frsum, 1);
            }
        }
        let most = self.sb.contigsumsize as u32;
        let sums = if most == 0 { [0; 17] } else { bitmap::cluster_counts(&clusters, whole, most) };
        Derived { cs, frsum, clusters, sums }
    }

    /// Compares the bitmaps in the header with what is in use.
    fn compare_maps(
        &mut self,
        cg: u32,
        header: &[u8],
        layout: &GroupLayout,
        (inodes, free): (&[u8], &[u8]),
    ) {
        let ndblk = self.sb.cg_frags(cg);
        let base = self.sb.cg_base(cg);
        let mut stored = header[layout.frags.clone()].to_vec();
        for addr in &self.moved_frags {
            if self.sb.frag_group(*addr) == cg {
                copy_bit(&mut stored, free, self.sb.frag_in_group(*addr));
            }
        }
        for_each_difference(&stored, free, ndblk, |first, count, is_free| {
            let addr = base + u64::from(first);
            self.finding(match is_free {
                true => Finding::BlocksNotMarked { addr, count },
                false => Finding::BlocksLeaked { addr, count },
            });
        });
        let first_ino = self.sb.cg_first_inode(cg) as u32;
        let mut stored = header[layout.inodes.clone()].to_vec();
        for ino in &self.moved_inodes {
            if ino / self.sb.ipg == cg {
                copy_bit(&mut stored, inodes, ino % self.sb.ipg);
            }
        }
        for_each_difference(&stored, inodes, self.sb.ipg, |first, count, is_used| {
            let ino = first_ino + first;
            self.finding(match is_used {
                true => Finding::InodesLeaked { ino, count },
                false => Finding::InodesNotMarked { ino, count },
            });
        });
    }

    /// Compares the counts in the header with its own bitmaps and with the right counts.
    fn compare_counts(
        &mut self,
        cg: u32,
        header: &[u8],
        group: &Group,
        (layout, expected): (&GroupLayout, &Derived),
    ) {
        let (inodes, free) = (&header[layout.inodes.clone()], &header[layout.frags.clone()]);
        let ndir = self.groups[cg as usize].directories;
        let own = self.derive(cg, inodes, free, ndir);
        for (i, (count, stored)) in counts(&group.cs).into_iter().enumerate() {
            let found = counts(&expected.cs)[i].1;
            if stored != found && stored != counts(&own.cs)[i].1 {
                self.finding(Finding::GroupCounts { cg, count, stored, found });
            }
        }
        // Runs of length 0 and of a whole block are not counted here.
        for length in 0..expected.frsum.len() {
            let (stored, found) = (group.frsum[length], expected.frsum[length]);
            if stored != found && stored != own.frsum[length] {
                let length = length as u32;
                self.finding(Finding::FragmentRuns { cg, length, stored, found });
            }
        }
        if layout.clusters.is_empty() {
            return;
        }
        let stored = &header[layout.clusters.clone()];
        if stored != expected.clusters && stored != own.clusters {
            let differs =
                |blk: &u32| bitmap::is_set(stored, *blk) != bitmap::is_set(&own.clusters, *blk);
            let block = (0..stored.len() as u32 * 8).find(differs).unwrap_or(0);
            self.finding(Finding::ClusterMap { cg, block });
        }
        let most = self.sb.contigsumsize as u32;
        let of_map = bitmap::cluster_counts(stored, group.nclusterblks, most);
        for (length, &of_map) in of_map.iter().enumerate().take(most as usize + 1).skip(1) {
            let at = layout.cluster_sum.start + 4 * length;
            let (stored, found) = (self.endian.get_i32(header, at), expected.sums[length]);
            if stored != found && stored != of_map && stored != own.sums[length] {
                let length = length as u32;
                self.finding(Finding::ClusterCounts { cg, length, stored, found });
            }
        }
    }

    /// Writes the right values into a header's bytes.
    fn build_header(
        &self,
        bytes: &mut [u8],
        mut group: Group,
        layout: &GroupLayout,
        (inodes, free): (&[u8], &[u8]),
        expected: &Derived,
    ) {
        (group.cs, group.frsum) = (expected.cs, expected.frsum);
        group.encode(bytes, self.endian);
        bytes[padding(layout)].fill(0);
        bytes[layout.inodes.clone()].copy_from_slice(inodes);
        bytes[layout.frags.clone()].copy_from_slice(free);
        if !layout.clusters.is_empty() {
            bytes[layout.clusters.clone()].copy_from_slice(&expected.clusters);
            for length in 1..=self.sb.contigsumsize as usize {
                let at = layout.cluster_sum.start + 4 * length;
                self.endian.put_i32(bytes, at, expected.sums[length]);
            }
        }
    }
}

const ALL_COUNTS: [Count; 4] =
    [Count::Directories, Count::FreeBlocks, Count::FreeInodes, Count::FreeFragments];

fn counts(cs: &Csum) -> [(Count, i32); 4] {
    let values = [cs.ndir, cs.nbfree, cs.nifree, cs.nffree];
    std::array::from_fn(|i| (ALL_COUNTS[i], values[i]))
}

fn copy_bit(to: &mut [u8], from: &[u8], bit: u32) {
    if bitmap::is_set(from, bit) {
        bitmap::set(to, bit);
    } else {
        bitmap::clear(to, bit);
    }
}

/// Calls `each(first, count, bit in a)` for every run of bits that differ in the same way.
fn for_each_difference(a: &[u8], b: &[u8], bits: u32, mut each: impl FnMut(u32, u32, bool)) {
    let mut at = 0;
    while at < bits {
        let byte = at as usize / 8;
        if at.is_multiple_of(8) && a[byte] == b[byte] {
            at += 8;
            continue;
        }
        let differs = |bit: u32| bitmap::is_set(a, bit) != bitmap::is_set(b, bit);
        if !differs(at) {
            at += 1;
            continue;
        }
        let (first, value) = (at, bitmap::is_set(a, at));
        while at < bits && differs(at) && bitmap::is_set(a, at) == value {
            at += 1;
        }
        each(first, at - first, value);
    }
}

//! Pass 5: segments, and the superblock's totals.

use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_PAD};

use super::LfsFinding;
use super::state::LfsRun;

/// The sums over segments, in fragments.
#[derive(Default)]
struct Sums {
    /// Live bytes and summaries.
    least_used: i64,
    /// Live bytes, summaries, and whole blocks of inodes.
    most_used: i64,
    dmeta: i64,
    avail: i64,
    nclean: i64,
}

impl LfsRun<'_> {
    /// Checks the live bytes of each segment, the clean segments, and the totals. After rolling
    /// forward, differences are expected and are no findings.
    pub(super) fn check_segments(&mut self) {
        if self.relist {
            self.make_free_list();
        }
        let mut sums = Sums::default();
        for segment in 0..self.sb.nseg.into() {
            self.check_segment(segment, &mut sums);
        }
        let sb = &self.sb;
        let (frags, label) = (i64::from(sb.fsbpseg), sb.frags_of(LABEL_BYTES));
        let current =
            sb.segment_of(sb.offset.min(sb.segment_start(sb.nseg.into()) - 1)).unwrap_or(0);
        sums.avail += sb.segment_start(current + 1) - sb.offset;
        sums.avail -= frags * i64::from(sb.minfreeseg - sb.minfreeseg / 2);
        let totals = [
            ("dmeta", i64::from(sb.dmeta), sums.dmeta),
            ("avail", sb.avail, sums.avail),
            ("nclean", sb.nclean.into(), sums.nclean),
        ];
        let skew = if sb.s0addr < label { label } else { 0 };
        let space = sb.dsize as i64 - skew;
        for (field, stored, right) in totals.into_iter().filter(|(_, s, r)| s != r) {
            self.accounting(LfsFinding::Total { field, stored, right });
        }
        (self.sb.dmeta, self.sb.avail) = (sums.dmeta as i32, sums.avail);
        self.sb.nclean = sums.nclean as u32;
        let (least, most) = (space - sums.most_used, space - sums.least_used);
        let stored = self.sb.bfree;
        if !(least..=most).contains(&stored) {
            self.accounting(LfsFinding::FreeFragments { stored, least, most });
            self.sb.bfree = space - (sums.most_used + sums.least_used) / 2;
        }
        self.report.free_fragments = self.sb.bfree;
        if self.report.rolled_forward {
            self.sb.nfiles = (self.inodes.len() as u64).saturating_sub(1);
        }
    }

    fn accounting(&mut self, finding: LfsFinding) {
        self.sb_changed = true;
        if !self.report.rolled_forward {
            self.report.add(finding);
        }
    }

    fn check_segment(&mut self, segment: u64, sums: &mut Sums) {
        let live = self.live[segment as usize];
        let mut seguse = self.seguse(segment);
        if !seguse.is_dirty() && live > 0 {
            self.accounting(LfsFinding::CleanSegmentInUse { segment, bytes: live });
            seguse.flags |= seg_flag::DIRTY;
            self.set_seguse(segment, &seguse);
        }
        if u64::from(seguse.nbytes) != live {
            let stored = seguse.nbytes.into();
            self.accounting(LfsFinding::SegmentBytes { segment, stored, found: live });
            seguse.nbytes = live as u32;
            self.set_seguse(segment, &seguse);
        }
        let (summaries, inodes) = (u64::from(seguse.nsums), u64::from(seguse.ninos));
        let counted = summaries * u64::from(self.sb.sumsize) + inodes * u64::from(self.sb.ibsize);
        if seguse.is_dirty() && counted > u64::from(self.sb.ssize) {
            self.accounting(LfsFinding::SegmentCounts { segment, summaries, inodes });
            (seguse.nsums, seguse.ninos) = (1, 0);
            self.set_seguse(segment, &seguse);
        }
        let sb = &self.sb;
        let whole = |bytes: u64| (bytes / u64::from(sb.fsize)) as i64;
        if seguse.is_dirty() {
            let summaries = u64::from(seguse.nsums) * u64::from(sb.sumsize);
            let inodes = u64::from(seguse.ninos) * u64::from(sb.ibsize);
            sums.least_used += whole(live + summaries);
            sums.most_used += whole(live + summaries + inodes);
            sums.dmeta += whole(summaries) + whole(inodes);
        } else {
            sums.nclean += 1;
            sums.avail += i64::from(sb.fsbpseg);
            if seguse.has_superblock() {
                sums.avail -= sb.frags_of(SUPERBLOCK_PAD);
            }
            let label = sb.frags_of(LABEL_BYTES);
            if segment == 0 && sb.s0addr < label {
                sums.avail -= label - sb.s0addr;
            }
        }
    }
}

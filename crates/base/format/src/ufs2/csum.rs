//! The counts of free space: one set in each group's header and in the summary area, and their sum.

use crate::on_disk;

on_disk! {
    /// The counts of one cylinder group. The summary area at `csaddr` holds one set for each group.
    pub struct Csum: 16 {
        0 cs_ndir => /** number of directories */ ndir: i32,
        4 cs_nbfree => /** number of free blocks */ nbfree: i32,
        8 cs_nifree => /** number of free inodes */ nifree: i32,
        12 cs_nffree => /** number of free fragments outside of free blocks */ nffree: i32,
    }
}

on_disk! {
    /// The sum over all groups, in the superblock.
    pub struct CsTotal: 64 {
        0 cs_ndir => /** number of directories */ ndir: i64,
        8 cs_nbfree => /** number of free blocks */ nbfree: i64,
        16 cs_nifree => /** number of free inodes */ nifree: i64,
        24 cs_nffree => /** number of free fragments outside of free blocks */ nffree: i64,
        32 cs_numclusters => /** number of free clusters, which is not kept up to date */ numclusters: i64,
        40 cs_spare => /** reserved */ spare: [i64; 3],
    }
}

impl Copy for Csum {}

impl CsTotal {
    /// Adds one group's counts.
    pub fn add(&mut self, group: &Csum) {
        self.ndir += i64::from(group.ndir);
        self.nbfree += i64::from(group.nbfree);
        self.nifree += i64::from(group.nifree);
        self.nffree += i64::from(group.nffree);
    }
}

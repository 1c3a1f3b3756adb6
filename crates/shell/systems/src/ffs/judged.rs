//! The parts of a crash test that know FFS: its check's findings, translated to words without a
//! format, and the places of its inodes.

use std::ops::Range;

use ordo_block::Device;
use ordo_check::{Checker, Finding, FsckOptions, Repair, Report, Severity};
use ordo_crash::{DiskFormat, Findings, InodePlaces, OwnNames};
use ordo_ffs::logfile;
use ordo_ffs::mount::{LocatedSuperblock, find_superblock};
use ordo_format::Endian;
use ordo_ordering::NoOrder;
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::{AnyFs, Ino};

use super::{UfsFormat, plain};
use crate::options::MountOptions;

/// Findings that the checker calls damage, although FFS has never ordered the writes that would
/// prevent them, and a check repairs them without a loss. Bitmaps may be older than the blocks that
/// they describe, so a check must come before the next mount. A rename of a directory passes
/// through a state in which the directory has both names. Without any ordering, a growing file's
/// old fragments may belong to another file before the inode on disk has lost its pointer to them.
/// A torn superblock or group has a wrong hash.
const NOT_ORDERED: [&str; 7] = [
    "BlocksNotMarked",
    "InodesNotMarked",
    "DirectoryLinkedTwice",
    "DuplicateBlock",
    "InitialisedTooLow",
    "GroupHash",
    "SuperblockHash",
];

/// Findings whose repair must guess: the owner of a block, the contents of the root.
pub const GUESSED: [&str; 4] =
    ["DuplicateBlock", "RootMissing", "RootNotDirectory", "SuperblockDamaged"];

/// The unit of the crash explorer's addresses on a disk, in bytes.
const SECTOR: u64 = ordo_crash::disk::SECTOR as u64;

/// The severity of a finding after a crash.
fn severity(report: &Report, finding: &Finding) -> ordo_crash::FindingSeverity {
    use ordo_crash::FindingSeverity as After;
    // The directory was being created or removed: no name leads to it, so it does no harm.
    let is_out_of_reach = || {
        let gone = |f: &Finding| f.kind() == "UnreferencedDirectory" && f.ino() == finding.ino();
        report.findings.iter().any(gone)
    };
    match (report.severity(finding), finding) {
        (Severity::CountsOnly, _) => After::Counts,
        // FreeBSD's preen does not repair this finding.
        (Severity::LeakOnly, Finding::UnreferencedDirectory { uncounted: true, .. }) => {
            After::Disorder
        }
        (Severity::LeakOnly, _) => After::Leak,
        // A pointer in an indirect block may be on disk before the inode with the size that
        // includes its block.
        (Severity::Damage, Finding::PointerBeyondEnd { growth: true, .. }) => After::Repairable,
        (Severity::Damage, _) if NOT_ORDERED.contains(&finding.kind()) || is_out_of_reach() => {
            After::Repairable
        }
        (Severity::Damage, _) => After::Damage,
    }
}

fn translated(report: Report) -> Findings {
    let one = |finding: &Finding| ordo_crash::Finding {
        severity: severity(&report, finding),
        kind: finding.kind(),
        ino: finding.ino().map(u64::from),
        is_guess: GUESSED.contains(&finding.kind()),
    };
    let all = report.findings.iter().map(one).collect();
    let unrepairable = report.unrepairable;
    Findings::new(all, unrepairable, move |number| report.describe(&report.findings[number]))
}

/// Whether a check or a log makes this name: a second `lost+found.1` if a check was interrupted
/// too, `#00000012` in the root directory if lost+found has no space, and the log file.
fn is_own_name(name: &[u8]) -> bool {
    let found = |rest: &[u8]| rest.len() >= 8 && rest[..8].iter().all(u8::is_ascii_digit);
    name.starts_with(b"lost+found")
        || name == logfile::NAME
        || name.strip_prefix(b"#").is_some_and(found)
}

impl DiskFormat for UfsFormat {
    fn own_names(&self) -> OwnNames {
        is_own_name
    }

    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>> {
        Box::pin(async move {
            let repair = if repair { Repair::Yes } else { Repair::No };
            let options = FsckOptions { repair, ..FsckOptions::default() };
            let report = Checker::new(disks[0].clone(), options).run().await;
            report.map(translated).map_err(|e| e.to_string())
        })
    }

    fn look<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>> {
        Box::pin(async move {
            let options = MountOptions { read_only: true, ..MountOptions::default() };
            let mounted = plain(rt, disks[0].clone(), NoOrder, &options).await;
            mounted.map(|mounted| mounted.fs().clone()).map_err(|e| e.to_string())
        })
    }

    fn places<'a>(&'a self, disk: &'a Device) -> LocalFuture<'a, Option<Box<dyn InodePlaces>>> {
        Box::pin(async move {
            let found = find_superblock(disk).await.ok()?;
            Some(Box::new(Places { key: key(&found), found }) as Box<dyn InodePlaces>)
        })
    }
}

/// The places of inodes, computed from a superblock.
struct Places {
    found: LocatedSuperblock,
    key: Vec<u64>,
}

/// The superblock's fields that give places and sizes, and whether its state is trusted.
fn key(found: &LocatedSuperblock) -> Vec<u64> {
    let sb = &found.sb;
    let sizes = [sb.bsize as u64, sb.fsize as u64, sb.size as u64, sb.ncg.into(), sb.fpg as u64];
    let inodes = [sb.ipg.into(), sb.inopb.into(), sb.magic as u64, sb.cssize as u64];
    let places = [sb.sblkno as u64, sb.cblkno as u64, sb.iblkno as u64, sb.dblkno as u64];
    let areas = [sb.csaddr as u64, sb.cgsize as u64, found.at, found.torn_superblock.into()];
    let believed = [sb.maxsymlinklen as u64, sb.flags as u64, sb.metackhash.into()];
    let more = [sb.clean as u64, sb.maxfilesize, u64::from(found.endian == Endian::Big)];
    [&sizes[..], &inodes, &places, &areas, &believed, &more].concat()
}

impl InodePlaces for Places {
    fn key(&self) -> &[u64] {
        &self.key
    }

    fn is_own(&self, sector: u64) -> bool {
        let sb = &self.found.sb;
        let addr = (sector * SECTOR) >> sb.fshift;
        sb.has_frags(addr, 1) && sb.is_own(addr, 1)
    }

    fn sector(&self, ino: Ino) -> u64 {
        let sb = &self.found.sb;
        let (block, at) = sb.inode_block(ino.0);
        (sb.byte_of(block) + at as u64) / SECTOR
    }

    fn group(&self, ino: Ino) -> u32 {
        self.found.sb.ino_group(ino.0)
    }

    fn group_sectors(&self, group: u32) -> Range<u64> {
        let sb = &self.found.sb;
        let first = sb.byte_of(sb.cg_header(group)) / SECTOR;
        first..first + (sb.cgsize as u64).div_ceil(SECTOR)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Each finding keeps its place in the order from counts to damage: a finding that FFS never
    /// ordered is repairable, and one that no careful order leaves is not called a leak. Would
    /// catch a translation that makes damage look harmless.
    #[test]
    fn findings_are_translated() {
        let ram = ordo_block::ram::RamDisk::new(1 << 20);
        let executor = ordo_runtime::Executor::simulated(1);
        let rt = executor.runtime();
        let disks = Device::of_each(&[std::rc::Rc::new(ram)]);
        let report = executor.block_on(async {
            crate::ffs::SYNC.make(&rt, &disks, &Default::default()).await.unwrap();
            Checker::new(disks[0].clone(), FsckOptions::default()).run().await.unwrap()
        });
        let mut report = report.unwrap();
        let dir = |ino, uncounted| Finding::UnreferencedDirectory { ino, empty: true, uncounted };
        report.findings = vec![
            Finding::InodeHash { ino: 3 },
            dir(4, false),
            dir(5, true),
            Finding::InodeHash { ino: 4 },
            Finding::GroupHash { cg: 0 },
        ];
        let found = translated(report);
        let all: Vec<_> = found.iter().map(|(_, f)| (f.severity, f.ino)).collect();
        use ordo_crash::FindingSeverity as After;
        let expected = [
            (After::Damage, Some(3)),
            (After::Leak, Some(4)),
            (After::Disorder, Some(5)),
            (After::Repairable, Some(4)),
            (After::Repairable, None),
        ];
        assert_eq!(all, expected);
        assert!(found.describe(1).contains("directory 4 is in no directory"));
    }
}

//! The check of LFS. Fault model: an image that NetBSD or Ordo wrote, with one structure changed.
//! Required: NetBSD's images are clean, as its own fsck_lfs says; a check names exactly the planted
//! fault and writes nothing; a repair removes it, and a second check finds nothing. Catches a check
//! that is missing, names another fault or repairs half, and a repair that does damage.

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::{LfsCheckError, LfsChecker, LfsFinding, LfsReport, LogBehind};
use ordo_format::lfs::{IFILE_INO, LfsInode};
use ordo_format::ufs2::dir::DT_WHT;
use ordo_runtime::Executor;

use crate::lfs_damage::{CASES, Surgeon};
use crate::lfs_made::made;

pub fn image(name: &str) -> Option<RamDisk> {
    let bytes = ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img"))?;
    Some(RamDisk::from_image(&bytes))
}

pub fn check(disk: &RamDisk, repair: Repair) -> (LfsReport, RamDisk) {
    let (report, disk) = try_check(disk, repair);
    (report.unwrap(), disk)
}

pub fn try_check(disk: &RamDisk, repair: Repair) -> (Result<LfsReport, LfsCheckError>, RamDisk) {
    let disk = std::rc::Rc::new(disk.snapshot());
    let checker = LfsChecker::new(disk.clone(), repair);
    let report = Executor::simulated(1).block_on(checker.run()).unwrap();
    (report, disk.snapshot())
}

/// NetBSD's images are clean, with the counts that fsck_lfs prints.
#[test]
fn images_of_netbsd_are_clean() {
    let said = [
        ("fresh64-8k", 2, 54668),
        ("tree64-8k", 416, 53049),
        ("tree32-8k", 416, 53211),
        ("full64-8k", 123, 12628),
        ("cut64-8k", 30, 54131),
    ];
    for (name, files, free) in said {
        let Some(disk) = image(name) else { return };
        let (report, _) = check(&disk, Repair::No);
        assert!(report.is_consistent(), "{name}: {report}");
        assert_eq!((report.files, report.free_fragments), (files, free), "{name}");
        let behind = if name == "cut64-8k" { 12 } else { 0 };
        assert_eq!(report.log, LogBehind { partial_segments: behind, incomplete: 0 });
    }
}

/// The log behind a checkpoint becomes part of the checkpoint: a second check finds no fault, and
/// no log behind it.
#[test]
fn a_log_is_rolled_forward() {
    let Some(disk) = image("cut64-8k") else { return };
    let (report, rolled) = check(&disk, Repair::Yes);
    assert!(report.rolled_forward && report.repaired, "{report}");
    assert!(report.is_consistent(), "{report}");
    let (report, _) = check(&rolled, Repair::No);
    assert!(report.is_consistent(), "{report}");
    // The manifest has 34 lines, of which two are one file; the IFILE is not in it.
    assert_eq!((report.files, report.log.partial_segments), (34, 0));
}

/// Findings that no repair removes, or that need an image of their own.
const ELSEWHERE: [&str; 4] = ["RootMissing", "NoRoomToReconnect", "IfileTooSmall", "DirectoryHole"];

/// Findings of DualFS only: crates/core/dualfs/tests/all/check.rs plants them.
const OF_DUALFS: [&str; 7] = [
    "BadDataBlock",
    "DuplicateDataBlock",
    "InodeGroup",
    "GroupBlocksFree",
    "GroupBlocksUsed",
    "GroupCount",
    "GroupBeyondEnd",
];

/// Every finding is planted alone, named, repaired, and gone.
#[test]
fn each_inconsistency_is_found_and_repaired() {
    let theirs = ["tree64-8k", "tree32-8k"].map(|name| (name, image(name)));
    let images = [("made", Some(made(8192, 1024)))].into_iter().chain(theirs);
    for (name, image) in images.filter_map(|(name, image)| Some((name, image?))) {
        for (kind, besides, plant) in CASES {
            let mut surgeon = Surgeon::new(&image);
            plant(&mut surgeon);
            let (report, untouched) = check(&surgeon.disk, Repair::No);
            let kinds: Vec<&str> = report.findings.iter().map(LfsFinding::kind).collect();
            assert!(kinds.contains(kind), "{name}: {kind}, but found:\n{report}");
            let other = kinds.iter().find(|k| *k != kind && !besides.contains(k));
            assert_eq!(other, None, "{name}: {kind}, and found:\n{report}");
            assert!(!report.repaired);
            assert_eq!(check(&untouched, Repair::No).0, report);
            let (report, repaired) = check(&surgeon.disk, Repair::Yes);
            assert_eq!(report.exit_code(), 1, "{name}: {kind}:\n{report}");
            let (again, _) = check(&repaired, Repair::No);
            assert!(again.is_consistent(), "{name}: {kind}, a second check:\n{again}");
        }
    }
    for kind in LfsFinding::KINDS {
        let planted = CASES.iter().any(|(k, besides, _)| k == kind || besides.contains(kind));
        let elsewhere = [&ELSEWHERE[..], &OF_DUALFS].concat().contains(kind);
        assert!(planted || elsewhere, "nothing plants {kind}");
    }
}

/// A whiteout is an entry that leads to inode 1, by its type no name of the IFILE's.
#[test]
fn a_whiteout_is_no_damage() {
    let Some(image) = image("tree64-8k") else { return };
    let surgeon = Surgeon::new(&image);
    let big = surgeon.find("bigdir");
    surgeon.repoint(big, "f00001", 1);
    let (report, _) = check(&surgeon.disk, Repair::No);
    assert!(report.findings.iter().any(|f| f.kind() == "EntryUnused"), "{report}");
    surgeon.retype(big, "f00001", DT_WHT);
    let (report, _) = check(&surgeon.disk, Repair::No);
    assert!(report.findings.iter().all(|f| f.kind() == "Unreferenced"), "{report}");
}

/// A fault that cannot be repaired is reported as such.
#[test]
fn what_cannot_be_repaired_is_said() {
    let Some(image) = image("tree64-8k") else { return };
    let surgeon = Surgeon::new(&image);
    surgeon.change_inode(2, |i| i.mode = 0o100_644);
    let (report, _) = check(&surgeon.disk, Repair::Yes);
    assert!(report.findings.iter().any(|f| f.kind() == "RootMissing"), "{report}");
    assert_eq!(report.exit_code(), 4);
    // A directory with a hole is truncated before it. The files behind it get other names, as far
    // as there is space.
    let surgeon = Surgeon::new(&image);
    let big = surgeon.find("bigdir");
    surgeon.change_inode(big, |i| i.db[1] = 0);
    let (report, repaired) = check(&surgeon.disk, Repair::Yes);
    assert!(report.findings.iter().any(|f| f.kind() == "DirectoryHole"), "{report}");
    let (again, _) = check(&repaired, Repair::No);
    assert!(
        again.findings.iter().all(|f| matches!(f.kind(), "Unreferenced" | "NoRoomToReconnect")),
        "{again}"
    );
}

/// Without an IFILE nothing can be found: each way in which it can be damaged is an error with a
/// name.
#[test]
fn a_broken_ifile_is_an_error() {
    let Some(image) = image("tree64-8k") else { return };
    let said = |plant: fn(&mut LfsInode)| {
        let surgeon = Surgeon::new(&image);
        surgeon.change_inode(IFILE_INO, plant);
        try_check(&surgeon.disk, Repair::Yes).0.unwrap_err()
    };
    assert!(matches!(said(|i| i.size = 1 << 60), LfsCheckError::IfileSize { .. }));
    assert!(matches!(said(|i| i.size = 8192), LfsCheckError::IfileSize { .. }));
    assert!(matches!(said(|i| i.size += 1), LfsCheckError::IfileSize { .. }));
    assert!(matches!(said(|i| i.db[1] = 0), LfsCheckError::IfileBlock { lbn: 1, addr: 0 }));
    assert!(matches!(said(|i| i.db[1] = i.db[0]), LfsCheckError::IfileBlock { .. }));
    assert!(matches!(said(|i| i.db[1] = 1 << 40), LfsCheckError::IfileBlock { .. }));
    assert!(matches!(said(|i| i.inumber = 9), LfsCheckError::IfileInode { .. }));
}

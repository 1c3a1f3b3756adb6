//! States that a crash leaves under soft updates: those that are ordinary, and their repair.
//!
//! Fault model: a valid file system, marked as soft updates leave it after a crash, with one
//! structure in a state through which soft updates pass; then the same with damage besides. Catches
//! a check that alarms people over every crash, one that fills lost+found with files that were
//! being removed, and one that clears files although a directory was lost.

use std::rc::Rc;

use crate::support::{
    FORMS, Inodes, Surgeon, assert_clean, check, check_with, kinds, populated, populated_in,
};
use ordo_block::ram::RamDisk;
use ordo_check::{FsckOptions, Repair, Report, Severity};
use ordo_ffs::mkfs::UfsVersion;
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_NEEDSFSCK};
use ordo_format::ufs2::{bitmap, dir};

use Severity::{CountsOnly, LeakOnly};

const ROOT: u32 = 2;
const FREE: u32 = 60;
const QUIET: u32 = 2;

/// A state: its name, the findings, the worst severity, and the function that makes it.
type State = (&'static str, &'static [&'static str], Severity, fn(&Surgeon, &Inodes));

const ORDINARY: &[State] = &[
    ("a file is removed, its inode not yet", &["UnreferencedInode"], LeakOnly, |s, _| {
        s.remove_entry(ROOT, "large");
    }),
    ("a file is removed, its count lowered", &["UnlinkedInode"], LeakOnly, |s, i| {
        s.remove_entry(ROOT, "large");
        s.change_inode(i.large, |node| node.nlink = 0);
    }),
    ("one name of many is removed", &["LinkCountHigh"], LeakOnly, |s, i| {
        s.remove_entry(i.dir, "again");
    }),
    (
        "a directory is removed, its parent's count not yet lowered",
        &["LinkCountHigh", "UnreferencedDirectory"],
        LeakOnly,
        |s, i| {
            s.remove_entry(i.sub, "inner");
            s.change_inode(i.inner, |node| node.nlink = 0);
            s.remove_entry(i.dir, "sub");
            s.zero_inode(i.inner);
            release(s, i.inner);
        },
    ),
    (
        "a directory is removed, its parent's count lowered",
        &["UnreferencedDirectory"],
        LeakOnly,
        |s, i| {
            s.remove_entry(i.sub, "inner");
            s.zero_inode(i.inner);
            release(s, i.inner);
            s.remove_entry(i.dir, "sub");
            s.change_inode(i.dir, |node| node.nlink -= 1);
            s.change_inode(i.sub, |node| node.nlink = 0);
        },
    ),
    (
        "a tree is removed, of which nothing but its name is gone",
        &[
            "LinkCountHigh",
            "LinkCountHigh",
            "UnreferencedDirectory",
            "UnreferencedDirectory",
            "UnreferencedInode",
        ],
        LeakOnly,
        |s, _| s.remove_entry(ROOT, "dir"),
    ),
    (
        "a directory has its new name and its old one",
        &["DirectoryLinkedTwice", "LinkCountHigh", "LinkCountHigh"],
        LeakOnly,
        |s, i| {
            s.add_entry(ROOT, "moved", i.sub, dir::DT_DIR);
            s.change_inode(i.sub, |node| node.nlink += 1);
            s.change_inode(ROOT, |node| node.nlink += 1);
        },
    ),
    (
        "a directory is moved into one that never had a name, and removed where it was",
        &["LinkCountHigh", "LinkCountHigh", "UnreferencedDirectory", "UnreferencedDirectory"],
        LeakOnly,
        |s, i| {
            s.remove_entry(i.sub, "inner");
            s.zero_inode(i.inner);
            release(s, i.inner);
            s.remove_entry(ROOT, "dir");
            s.change_entry(i.sub, "..", |entry| s.endian.put_u32(entry, 0, ROOT));
        },
    ),
    ("blocks taken for a file that did not get them", &["BlocksLeaked"], LeakOnly, |s, _| {
        let map = s.header(QUIET).0.layout(&s.sb).frags;
        let bit = s.sb.dblkno as u32 + 19;
        s.change_group(QUIET, |_, bytes| bitmap::clear(&mut bytes[map], bit));
    }),
    ("an inode taken, not written", &["InodesLeaked"], LeakOnly, |s, _| {
        let map = s.header(0).0.layout(&s.sb).inodes;
        s.change_group(0, |_, bytes| bitmap::set(&mut bytes[map], FREE));
    }),
    ("inodes taken in a block that was never filled", &["InodesLeaked"], LeakOnly, |s, i| {
        let group = s.header(0).0;
        let first = group.initediblk;
        assert!(first < s.sb.ipg, "some are not initialised");
        // The inode block holds remains of an older file system that look like a file.
        let old = s.load(s.inode_at(i.small), s.sb.inode_size());
        s.disk.store(s.inode_at(first), &old);
        s.change_group(0, |_, bytes| bitmap::set(&mut bytes[group.layout(&s.sb).inodes], first));
    }),
    ("a torn write of a group", &["GroupCounts", "GroupHash"], CountsOnly, |s, _| {
        s.disk.store(s.byte(s.sb.cg_header(0)) + 36, &[9; 4]);
    }),
    ("a torn write of the superblock", &["SuperblockHash"], CountsOnly, |s, _| {
        s.disk.store(s.at + 1072, &[9; 4]);
    }),
    ("an old summary", &["Summary", "Totals"], CountsOnly, |s, _| {
        let at = s.byte(s.sb.csaddr as u64) + u64::from(QUIET) * 16;
        s.disk.store(at, &[3; 4]);
        s.change_superblock(|sb| sb.cstotal.ndir = 77);
    }),
];

/// Marks an inode free, so that its blocks are leaked.
fn release(s: &Surgeon, ino: u32) {
    let cg = ino / s.sb.ipg;
    let map = s.header(cg).0.layout(&s.sb).inodes;
    s.change_group(cg, |_, bytes| bitmap::clear(&mut bytes[map], ino % s.sb.ipg));
}

fn crashed(sound: &RamDisk) -> Surgeon {
    let disk = Rc::new(sound.snapshot());
    Surgeon::new(&disk).change_superblock(|sb| {
        sb.clean = 0;
        sb.flags |= FS_DOSOFTDEP;
    });
    Surgeon::new(&disk)
}

fn found(report: &Report) -> Vec<&'static str> {
    // Other leaks that come with the planted one, and counts that follow, do not matter here.
    let also = ["BlocksLeaked", "GroupCounts", "Summary", "Totals"];
    let all = kinds(report);
    let rest: Vec<_> = all.iter().copied().filter(|kind| !also.contains(kind)).collect();
    if rest.is_empty() { all } else { rest }
}

fn lost_and_found(s: &Surgeon) -> bool {
    let node = s.inode(ROOT);
    let bytes = s.load(s.byte(node.db[0] as u64), node.size as usize);
    dir::entries(&bytes, s.endian).any(|entry| entry.unwrap().name == b"lost+found")
}

#[test]
fn ordinary_states_are_leaks_and_are_cleared() {
    for form in FORMS {
        let (sound, inodes) = populated_in(form);
        // UFS1 has no check-hashes, and no inodes that are not initialised.
        let exists = |name: &str| {
            form.0 == UfsVersion::Ufs2 || !name.contains("torn") && !name.contains("never filled")
        };
        for (name, wanted, worst, make) in ORDINARY.iter().filter(|state| exists(state.0)) {
            let s = crashed(&sound);
            make(&s, &inodes);
            let looked = check(&s.disk, Repair::No).unwrap();
            let mut wanted = wanted.to_vec();
            wanted.retain(|kind| found(&looked).contains(kind) || !kind.starts_with("GroupC"));
            assert!(looked.soft_updates && looked.is_safe(), "{name}:\n{looked}");
            if wanted.iter().all(|kind| !["Summary", "Totals"].contains(kind)) {
                assert_eq!(found(&looked), wanted, "{name}:\n{looked}");
            }
            assert_eq!(looked.counts.keys().max(), Some(worst), "{name}:\n{looked}");
            assert!(!looked.to_string().contains("unexpected"), "{looked}");
            // A preen that looks only at used inodes repairs all of it.
            let options = FsckOptions {
                repair: Repair::Preen,
                trust_bitmaps: true,
                ..FsckOptions::default()
            };
            let preened = check_with(&s.disk, options).unwrap();
            assert_eq!(preened.findings, looked.findings, "{name}");
            assert!(preened.repaired && preened.exit_code() == 1, "{name}:\n{preened}");
            assert!(!lost_and_found(&s), "{name}:\n{preened}");
            assert_clean(&s.disk, name);
        }
    }
}

#[test]
fn without_the_mark_the_same_is_saved() {
    let (sound, inodes) = populated(Endian::Little);
    let plain = Surgeon::new(&Rc::new(sound.snapshot()));
    plain.remove_entry(ROOT, "large");
    let report = check(&plain.disk, Repair::Yes).unwrap();
    assert!(!report.soft_updates && lost_and_found(&plain), "{report}");
    // If a full check is needed (`FS_NEEDSFSCK`), inodes without a name are not cleared either.
    let marked = crashed(&sound);
    marked.change_superblock(|sb| sb.flags |= FS_NEEDSFSCK);
    marked.remove_entry(ROOT, "large");
    let report = check(&marked.disk, Repair::Yes).unwrap();
    assert!(!report.soft_updates && lost_and_found(&marked), "{report}");
    assert_eq!(marked.inode(inodes.large).nlink, 1);
}

/// A kind of damage, and the function that plants it.
type Damage = (&'static str, fn(&Surgeon, &Inodes));

/// Damage of one kind each: a file without a name may then have been lost with a directory.
const DAMAGE: &[Damage] = &[
    ("EntryUnallocated", |s, i| s.add_entry(i.dir, "gone", FREE, dir::DT_REG)),
    ("Misaligned", |s, i| s.change_inode(i.huge, |node| node.db[0] = s.inode(i.small).db[0])),
    ("DotDotWrong", |s, i| {
        s.change_entry(i.sub, "..", |entry| s.endian.put_u32(entry, 0, i.wide));
    }),
    ("DotDotNoDirectory", |s, i| {
        s.remove_entry(i.dir, "sub");
        s.change_entry(i.sub, "..", |entry| s.endian.put_u32(entry, 0, i.small));
    }),
    ("LinkCountLow", |s, i| s.change_inode(i.twice, |node| node.nlink -= 1)),
    ("LinkCountLow", |s, i| s.change_inode(i.dir, |node| node.nlink -= 1)),
    ("BlocksNotMarked", |s, i| {
        let addr = s.inode(i.small).db[0] as u64;
        let (cg, bit) = (s.sb.frag_group(addr), s.sb.frag_in_group(addr));
        let map = s.header(cg).0.layout(&s.sb).frags;
        s.change_group(cg, |_, bytes| bitmap::set(&mut bytes[map], bit));
    }),
    ("InodesNotMarked", |s, i| release(s, i.small)),
    ("FreeBeyondEnd", |s, _| {
        let last = s.sb.ncg - 1;
        let map = s.header(last).0.layout(&s.sb).frags;
        let end = s.sb.cg_frags(last);
        s.change_group(last, |_, bytes| bitmap::set(&mut bytes[map], end + 3));
    }),
    ("PartlyFreed", |s, _| s.change_inode(FREE, |node| node.db[0] = 62)),
    ("InodeHash", |s, i| s.disk.store(s.inode_at(i.small) + 32, &[1; 4])),
    ("GroupHeader", |s, _| s.change_group(1, |group, _| group.magic = 0)),
    ("DirectoryLinkedTwice", |s, i| s.add_entry(i.sub, "up", ROOT, dir::DT_DIR)),
];

#[test]
fn no_inode_is_cleared_beside_damage() {
    for version in [UfsVersion::Ufs2, UfsVersion::Ufs1] {
        beside_damage(version);
    }
}

fn beside_damage(version: UfsVersion) {
    let (sound, inodes) = populated_in((version, Endian::Little));
    let exists = |kind: &str| version == UfsVersion::Ufs2 || kind != "InodeHash";
    for (kind, damage) in DAMAGE.iter().filter(|damage| exists(damage.0)) {
        let s = crashed(&sound);
        s.remove_entry(ROOT, "large");
        damage(&s, &inodes);
        let looked = check(&s.disk, Repair::No).unwrap();
        assert!(!looked.is_safe() && kinds(&looked).contains(kind), "{kind}:\n{looked}");
        assert!(looked.to_string().contains("unexpected after soft updates"), "{kind}:\n{looked}");
        let report = check(&s.disk, Repair::Yes).unwrap();
        assert_eq!(report.findings, looked.findings, "{kind}");
        assert!(lost_and_found(&s) && s.inode(inodes.large).nlink == 1, "{kind}:\n{report}");
        assert_clean(&s.disk, kind);
    }
}

/// A preen that trusts the bitmaps reads less, and finds the same.
#[test]
fn trusting_the_bitmaps_reads_fewer_inodes() {
    let (sound, _) = populated(Endian::Little);
    let s = crashed(&sound);
    s.remove_entry(ROOT, "large");
    let all = check(&s.disk, Repair::No).unwrap();
    let options = FsckOptions { trust_bitmaps: true, ..FsckOptions::default() };
    let few = check_with(&s.disk, options.clone()).unwrap();
    assert_eq!(all.findings, few.findings);
    assert_eq!(all.work.inodes_used, few.work.inodes_used);
    // Inodes 0 and 1 are marked used, but are not files.
    assert_eq!(few.work.inodes, few.work.inodes_used + 2, "{:?}", few.work);
    assert!(all.work.inodes > 3 * few.work.inodes, "{:?} {:?}", all.work, few.work);
    // Without soft updates the bitmaps cannot be trusted, whatever the option.
    let plain = Rc::new(sound.snapshot());
    let report = check_with(&plain, options).unwrap();
    assert_eq!(report.work.inodes, all.work.inodes);
}

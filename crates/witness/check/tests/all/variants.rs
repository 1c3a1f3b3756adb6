//! Every inconsistency, one at a time, in both formats and byte orders. Fault model: a valid file
//! system with one structure changed (and its check-hash corrected, unless that is the fault).
//! Required: a check names exactly that and writes nothing; a preen repairs it only where that
//! loses nothing; a repair removes it, and a second check finds nothing. Catches a check that is
//! missing, names another fault or repairs half, and a repair that does damage.

use std::rc::Rc;

use crate::support::{
    FORMS, Inodes, Surgeon, add_deep_directory, assert_clean, check, kinds, populated, populated_in,
};
use ordo_block::ram::RamDisk;
use ordo_check::{Finding, Repair};
use ordo_ffs::mkfs::UfsVersion;
use ordo_format::Endian;
use ordo_format::ufs2::inode::SF_SNAPSHOT;
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_SUJ, RECOVERY_AT, Recovery, SBLOCK_SIZE};
use ordo_format::ufs2::{Csum, bitmap, dir, inode};

/// The planted fault, the other findings that must come with it, and the function that plants it.
type Case = (&'static str, &'static [&'static str], fn(&Surgeon, &Inodes));

const ROOT: u32 = 2;
/// A free inode.
const FREE: u32 = 60;
/// A group without files.
const QUIET: u32 = 2;

const SUPERBLOCKS: &[Case] = &[
    ("SuperblockDamaged", &[], |s, _| s.disk.store(s.at, &[0; SBLOCK_SIZE])),
    ("SuperblockDamaged", &[], |s, _| s.disk.store(s.at + 48, &[1; 4])),
    ("SuperblockHash", &[], |s, _| s.disk.store(s.at + 212, b"/mnt")),
    ("SuperblockCopy", &[], |s, _| {
        s.disk.store(s.byte(s.sb.cg_superblock(1)), &[0; SBLOCK_SIZE]);
    }),
    ("SuperblockDamaged", &[], |s, _| s.change_superblock(|sb| sb.cgsize += 1)),
    ("SuperblockField", &[], |s, _| s.change_superblock(|sb| sb.fsbtodb -= 1)),
    ("SuperblockField", &[], |s, _| s.change_superblock(|sb| sb.sbsize = 1400)),
    ("SuperblockField", &[], |s, _| s.change_superblock(|sb| sb.dsize -= 1)),
    ("SuperblockField", &[], |s, _| s.change_superblock(|sb| sb.maxfilesize = 5000)),
    ("SuperblockField", &[], OLD_FLAGS),
    ("JournalMissing", &[], |s, _| s.change_superblock(|sb| sb.flags |= FS_SUJ)),
    ("ReservedTotals", &[], |s, _| s.change_superblock(|sb| sb.cstotal.numclusters = -1)),
    ("ReservedTotals", &[], |s, _| s.change_superblock(|sb| sb.cstotal.spare[2] = 1)),
    ("RecoveryRecord", &[], |s, _| {
        let mut record = Recovery::decode(&s.load(RECOVERY_AT, Recovery::SIZE), s.endian);
        record.ncg -= 1;
        let mut bytes = [0; Recovery::SIZE];
        record.encode(&mut bytes, s.endian);
        s.disk.store(RECOVERY_AT, &bytes);
    }),
    ("Totals", &[], |s, _| s.change_superblock(|sb| sb.cstotal.nffree += 5)),
    ("Summary", &[], |s, _| {
        let at = s.byte(s.sb.csaddr as u64) + u64::from(QUIET) * Csum::SIZE as u64;
        let mut entry = Csum::decode(&s.load(at, Csum::SIZE), s.endian);
        entry.nifree -= 1;
        let mut bytes = [0; Csum::SIZE];
        entry.encode(&mut bytes, s.endian);
        s.disk.store(at, &bytes);
    }),
];

const GROUPS: &[Case] = &[
    ("GroupHeader", &[], |s, _| s.change_group(0, |group, _| group.ndblk -= 1)),
    ("GroupHeader", &[], |s, _| s.change_group(1, |group, _| group.magic = 0)),
    ("GroupHash", &[], |s, _| s.disk.store(s.byte(s.sb.cg_header(0)) + 136, &[9; 4])),
    // All fields move together, so that the bitmaps do not overlap.
    ("GroupLayout", &[], |s, _| {
        s.change_group(0, |group, _| {
            for place in [&mut group.iusedoff, &mut group.freeoff, &mut group.nextfreeoff] {
                *place += 8;
            }
            (group.clustersumoff, group.clusteroff) =
                (group.clustersumoff + 8, group.clusteroff + 8);
        });
    }),
    ("GroupLayout", &[], |s, _| s.change_group(1, |group, _| group.nextfreeoff += 1)),
    ("GroupReserved", &[], OLD_BOFF),
    ("GroupReserved", &[], |s, _| s.change_group(0, |group, _| group.sparecon64[2] = 1)),
    ("GroupPadding", &[], |s, _| {
        let layout = s.header(QUIET).0.layout(&s.sb);
        assert!(layout.frags.end < layout.cluster_sum.start + 4, "there is a gap");
        s.change_group(QUIET, |_, bytes| bytes[layout.frags.end] = 1);
    }),
    ("GroupCounts", &[], |s, _| s.change_group(QUIET, |group, _| group.cs.nifree += 1)),
    ("GroupCounts", &[], |s, _| s.change_group(QUIET, |group, _| group.cs.ndir = -1)),
    ("FragmentRuns", &[], |s, _| s.change_group(0, |group, _| group.frsum[3] += 1)),
    ("FragmentRuns", &[], |s, _| s.change_group(0, |group, _| group.frsum[0] = 1)),
    ("ClusterMap", &[], |s, _| {
        let map = s.header(QUIET).0.layout(&s.sb).clusters;
        s.change_group(QUIET, |_, bytes| bytes[map.start + 12] ^= 4);
    }),
    ("ClusterCounts", &[], |s, _| {
        let sums = s.header(QUIET).0.layout(&s.sb).cluster_sum;
        s.change_group(QUIET, |_, bytes| s.endian.put_i32(bytes, sums.start + 8, 7));
    }),
    ("InitialisedTooLow", &[], |s, _| s.change_group(0, |group, _| group.initediblk = 0)),
    ("FreeBeyondEnd", &[], |s, _| {
        let last = s.sb.ncg - 1;
        let map = s.header(last).0.layout(&s.sb).frags;
        let end = s.sb.cg_frags(last);
        s.change_group(last, |_, bytes| bitmap::set(&mut bytes[map], end + 3));
    }),
    ("BlocksLeaked", &[], |s, _| {
        let map = s.header(QUIET).0.layout(&s.sb).frags;
        let bit = s.sb.dblkno as u32 + 19;
        s.change_group(QUIET, |_, bytes| bitmap::clear(&mut bytes[map], bit));
    }),
    ("BlocksNotMarked", &[], |s, i| {
        let addr = s.inode(i.small).db[0] as u64;
        let (cg, bit) = (s.sb.frag_group(addr), s.sb.frag_in_group(addr));
        let map = s.header(cg).0.layout(&s.sb).frags;
        s.change_group(cg, |_, bytes| bitmap::set(&mut bytes[map], bit));
    }),
    ("InodesLeaked", &[], |s, _| {
        let map = s.header(0).0.layout(&s.sb).inodes;
        s.change_group(0, |_, bytes| bitmap::set(&mut bytes[map], FREE));
    }),
    ("InodesNotMarked", &[], |s, i| {
        let map = s.header(0).0.layout(&s.sb).inodes;
        s.change_group(0, |_, bytes| bitmap::clear(&mut bytes[map], i.small));
    }),
];

const INODES: &[Case] = &[
    ("InodeHash", &[], |s, i| s.disk.store(s.inode_at(i.small) + 32, &[1; 4])),
    // FreeBSD's fsck also checks the inodes with numbers that no file has.
    ("InodeHash", &[], |s, _| s.disk.store(s.inode_at(1), &[1; 4])),
    ("PartlyFreed", &[], |s, _| s.change_inode(FREE, |node| node.size = 5)),
    ("BadMode", &["EntryUnallocated"], |s, i| {
        s.change_inode(i.empty, |node| node.mode = 0o070_644);
    }),
    ("BadSize", &["EntryUnallocated"], |s, i| {
        s.change_inode(i.empty, |node| node.size = u64::MAX);
    }),
    ("BadSize", &["EntryUnallocated", "BlocksLeaked"], |s, i| {
        s.change_inode(i.long, |node| node.size = 8193);
    }),
    ("BadSize", &["EntryUnallocated"], |s, i| s.change_inode(i.fifo, |node| node.size = 1)),
    ("DeviceNumber", &["EntryUnallocated"], |s, i| {
        s.change_inode(i.device, |node| node.db[0] = -1);
    }),
    ("DirectorySize", &[], |s, i| s.change_inode(i.dir, |node| node.size = 500)),
    ("EndsInHole", &[], |s, i| s.change_inode(i.large, |node| node.size += 5 * 8192)),
    ("EndsInHole", &[], |s, i| s.change_inode(i.empty, |node| node.size = 100)),
    ("PointerBeyondEnd", &[], |s, i| s.change_inode(i.small, |node| node.db[5] = 5000)),
    ("PointerBeyondEnd", &[], |s, i| s.change_inode(i.small, |node| node.ib[2] = 5000)),
    // The mark in a snapshot of a block that it need not hold.
    ("PointerBeyondEnd", &[], |s, i| {
        s.change_inode(i.small, |node| (node.flags, node.db[11]) = (SF_SNAPSHOT, 1));
    }),
    ("PointerBeyondEnd", &[], |s, i| {
        s.put_pointer(s.inode(i.large).ib[0], 100, 5000);
    }),
    ("BadBlock", &["BlocksLeaked"], |s, i| s.change_inode(i.large, |node| node.db[3] = -5)),
    ("BadBlock", &["BlocksLeaked"], |s, i| s.change_inode(i.large, |node| node.db[3] = 1 << 30)),
    ("BadBlock", &["BlocksLeaked"], |s, i| {
        let header = s.sb.cg_header(1) as i64;
        s.change_inode(i.large, |node| node.db[3] = header);
    }),
    ("Misaligned", &["BlocksLeaked"], |s, i| s.change_inode(i.large, |node| node.db[3] += 1)),
    ("DuplicateBlock", &[], |s, i| {
        s.change_inode(i.large, |node| node.db[3] = node.db[2]);
    }),
    // The whole tree below has a second reference, too.
    ("DuplicateBlock", &[], |s, i| {
        let ib = s.inode(i.large).ib[0];
        s.change_inode(i.empty, |node| {
            (node.ib[0], node.size, node.blocks) = (ib, 20 * 8192, 9 * 16);
        });
    }),
    ("HoleInDirectory", &["BlocksLeaked", "LinkCountHigh"], |s, i| {
        s.change_inode(i.wide, |node| (node.db[1], node.blocks) = (0, node.blocks - 16));
    }),
    ("BlockCount", &[], |s, i| s.change_inode(i.small, |node| node.blocks += 2)),
    ("SpecialWithBlocks", &[], |s, i| s.change_inode(i.fifo, |node| node.db[0] = 77)),
    ("SpecialWithBlocks", &[], |s, i| s.change_inode(i.device, |node| node.ib[1] = 77)),
    ("SpecialWithBlocks", &[], |s, i| s.put_slot(i.short, 2, 77)),
    ("SpecialWithBlocks", &[], |s, i| s.put_slot(i.short, 14, 77)),
    ("AttributesSize", &["BlocksLeaked"], |s, i| {
        s.change_inode(i.attrs, |node| node.extsize = 1 << 20);
    }),
    ("AttributesMissing", &["BlocksLeaked"], |s, i| {
        s.change_inode(i.attrs, |node| node.extb[0] = 0);
    }),
    ("AttributesDamaged", &[], |s, i| {
        let at = s.byte(s.inode(i.attrs).extb[0] as u64);
        let first = s.endian.get_u32(&s.load(at, 4), 0);
        s.disk.store(at + u64::from(first), &[0xff; 4]);
    }),
];

const NAMES: &[Case] = &[
    ("DotMissing", &[], |s, i| s.change_entry(i.sub, ".", |entry| entry[..4].fill(0))),
    ("DotWrong", &[], |s, i| {
        s.change_entry(i.sub, ".", |entry| s.endian.put_u32(entry, 0, i.small));
    }),
    ("DotDotMissing", &[], |s, i| s.change_entry(i.sub, "..", |entry| entry[..4].fill(0))),
    ("DotDotWrong", &[], |s, i| {
        s.change_entry(i.sub, "..", |entry| s.endian.put_u32(entry, 0, i.wide));
    }),
    ("DotDotNoDirectory", &["LinkCountHigh", "UnreferencedDirectory"], |s, i| {
        s.remove_entry(i.dir, "sub");
        s.change_entry(i.sub, "..", |entry| s.endian.put_u32(entry, 0, i.small));
    }),
    ("ExtraDot", &[], |s, i| s.add_entry(i.dir, "..", ROOT, dir::DT_DIR)),
    ("EntryDamaged", &[], |s, i| {
        s.add_entry(i.dir, "a-b", i.small, dir::DT_REG);
        s.change_entry(i.dir, "a-b", |entry| entry[9] = b'/');
    }),
    ("EntryDamaged", &[], |s, i| {
        s.add_entry(i.dir, "last", i.small, dir::DT_REG);
        s.change_entry(i.dir, "last", |entry| s.endian.put_u16(entry, 4, 0));
    }),
    ("EntryOutOfRange", &[], |s, i| s.add_entry(i.dir, "far", 1 << 30, dir::DT_REG)),
    ("EntryUnallocated", &[], |s, i| s.add_entry(i.dir, "gone", FREE, dir::DT_REG)),
    ("EntryUnallocated", &[], |s, i| s.add_entry(i.dir, "late", s.sb.ipg - 1, dir::DT_REG)),
    ("EntryType", &[], |s, i| s.change_entry(i.dir, "again", |entry| entry[6] = dir::DT_FIFO)),
    ("DuplicateName", &[], |s, i| s.add_entry(i.dir, "again", i.small, dir::DT_REG)),
    ("DirectoryLinkedTwice", &[], |s, i| s.add_entry(ROOT, "more", i.sub, dir::DT_DIR)),
    ("DirectoryLinkedTwice", &[], |s, i| s.add_entry(i.sub, "up", ROOT, dir::DT_DIR)),
    ("DirectoryLoop", &[], |s, i| {
        s.remove_entry(ROOT, "dir");
        s.add_entry(i.sub, "back", i.dir, dir::DT_DIR);
    }),
    ("UnreferencedDirectory", &[], |s, i| s.remove_entry(i.dir, "sub")),
    ("UnreferencedInode", &[], |s, _| s.remove_entry(ROOT, "small")),
    ("UnreferencedInode", &[], |s, _| s.remove_entry(ROOT, "empty")),
    ("UnlinkedInode", &[], |s, i| {
        s.remove_entry(ROOT, "large");
        s.change_inode(i.large, |node| node.nlink = 0);
    }),
    ("LinkCountHigh", &[], |s, i| s.change_inode(i.dir, |node| node.nlink += 1)),
    ("LinkCountLow", &[], |s, i| s.change_inode(i.small, |node| node.nlink = 0)),
    ("LinkCountLow", &[], |s, i| s.change_inode(i.twice, |node| node.nlink = 1)),
];

/// Faults of the root: every name in it goes too, so only the recovery of everything matters.
const ROOTS: &[Case] = &[
    ("RootMissing", &[], |s, _| s.change_inode(ROOT, |node| *node = inode::Dinode::zeroed())),
    ("RootNotDirectory", &[], |s, _| s.change_inode(ROOT, |node| node.mode = 0o100_644)),
];

/// Faults that only UFS1 can have.
const OLDER: &[Case] = &[
    ("SuperblockDamaged", &[], |s, _| s.change_superblock(|sb| sb.old_inodefmt = -1)),
    ("SuperblockDamaged", &[], |s, _| s.change_superblock(|sb| sb.old_cgoffset = 8)),
    ("SuperblockDamaged", &[], |s, _| s.change_superblock(|sb| sb.old_nrpos = 2)),
    ("OlderField", &[], |s, _| s.change_superblock(|sb| sb.old_size -= 1)),
    ("OlderField", &[], |s, _| s.change_superblock(|sb| sb.old_cstotal.nifree = 0)),
    ("OlderGroupField", &[], |s, _| s.change_group(1, |group, _| group.old_boff = -1)),
    ("OlderGroupField", &[], |s, _| s.change_group(1, |group, _| group.old_niblk += 1)),
    ("GroupReserved", &[], |s, _| s.change_group(1, |group, _| group.niblk = 1)),
    ("GroupReserved", &[], |s, _| s.change_group(QUIET, |group, _| group.initediblk = 64)),
    // The four bytes behind a target of three.
    ("SpecialWithBlocks", &[], |s, i| {
        s.change_inode(i.short, |node| node.size = 3);
        s.put_slot(i.short, 1, 77);
    }),
    ("EndsInHole", &[], |s, i| s.change_inode(i.empty, |node| node.size = (1 << 31) * 8192 - 1)),
    ("BadSize", &["EntryUnallocated"], |s, i| {
        s.change_inode(i.empty, |node| node.size = (1 << 31) * 8192);
    }),
];

/// Faults of structures that UFS1 does not have: check-hashes, attributes, inodes that are not
/// initialised, a record of the superblock's copies, flags at their new place.
fn is_of_ufs2(case: &Case) -> bool {
    let kinds = ["Hash", "Attributes", "InitialisedTooLow", "RecoveryRecord"];
    kinds.iter().any(|kind| case.0.contains(kind))
        || [OLD_FLAGS, OLD_BOFF].iter().any(|plant| std::ptr::fn_addr_eq(case.2, *plant))
}

const OLD_FLAGS: fn(&Surgeon, &Inodes) = |s, _| s.change_superblock(|sb| sb.old_flags = 0);
const OLD_BOFF: fn(&Surgeon, &Inodes) = |s, _| s.change_group(1, |group, _| group.old_boff = -1);

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [SUPERBLOCKS, GROUPS, INODES, NAMES].into_iter().flatten()
}

/// The faults that a file system of this format can have.
fn cases_of(version: UfsVersion) -> Vec<&'static Case> {
    match version {
        UfsVersion::Ufs2 => all_cases().collect(),
        UfsVersion::Ufs1 => all_cases().filter(|case| !is_of_ufs2(case)).chain(OLDER).collect(),
    }
}

/// Plants one fault in a copy of a valid file system.
fn plant(sound: &RamDisk, inodes: &Inodes, case: &Case) -> Rc<RamDisk> {
    let disk = Rc::new(sound.snapshot());
    (case.2)(&Surgeon::new(&disk), inodes);
    disk
}

#[test]
fn each_fault_is_named_alone_and_repaired() {
    for form in FORMS {
        let (sound, inodes) = populated_in(form);
        for case in cases_of(form.0) {
            let disk = plant(&sound, &inodes, case);
            let before = disk.to_vec();
            let mut wanted = vec![case.0];
            wanted.extend(case.1);
            if form.0 == UfsVersion::Ufs1 && case.0 == "Totals" {
                // The older total is compared with the newer one.
                wanted.push("OlderField");
            }
            wanted.sort_unstable();
            let report = check(&disk, Repair::No).unwrap();
            let mut found = kinds(&report);
            found.dedup();
            assert_eq!(found, wanted, "{form:?} {}:\n{report}", case.0);
            assert_eq!(report.exit_code(), 4);
            assert!(disk.to_vec() == before, "{}: a check writes nothing", case.0);

            let report = check(&disk, Repair::Yes).unwrap();
            let mut found = kinds(&report);
            found.dedup();
            assert_eq!(found, wanted, "{form:?} {}, repairing:\n{report}", case.0);
            assert_eq!((report.exit_code(), report.repaired), (1, true));
            assert_clean(&disk, &format!("{form:?} {} after its repair:\n{report}", case.0));
        }
    }
}

#[test]
fn preening_repairs_only_what_loses_nothing() {
    for version in [UfsVersion::Ufs2, UfsVersion::Ufs1] {
        preening_in(version);
    }
}

fn preening_in(version: UfsVersion) {
    let (sound, inodes) = populated_in((version, Endian::Little));
    let (mut repaired, mut left) = (0, 0);
    for case in cases_of(version) {
        let disk = plant(&sound, &inodes, case);
        let before = disk.to_vec();
        let report = check(&disk, Repair::Preen).unwrap();
        if report.findings.iter().all(|finding| report.is_safe_to_repair(finding)) {
            assert_eq!(report.exit_code(), 1, "{}", case.0);
            assert_clean(&disk, case.0);
            repaired += 1;
        } else {
            assert_eq!(report.exit_code(), 4);
            assert!(disk.to_vec() == before, "{}: nothing is written", case.0);
            left += 1;
        }
    }
    assert!(repaired > 15 && left > 15, "{repaired} {left}");
}

/// A file grew by a block whose pointer is in an indirect block, and the crash came before its
/// inode was written. The file is as its inode says, so a preen clears the pointer; but not in an
/// inode, which has its size beside it, not in a directory, where entries would be lost, and not
/// after soft updates, which leave no such pointer.
#[test]
fn growth_that_a_crash_cut_off_is_preened() {
    let beyond = |s: &Surgeon, file| s.put_pointer(s.inode(file).ib[0], 100, 5000);
    for (code, soft_updates, is_dir, in_inode) in [
        (1, false, false, false),
        (4, true, false, false),
        (4, false, true, false),
        (4, false, false, true),
    ] {
        let (disk, inodes) = populated(Endian::Little);
        let file = if is_dir { add_deep_directory(&disk) } else { inodes.large };
        let surgeon = Surgeon::new(&disk);
        match in_inode {
            true => surgeon.change_inode(inodes.small, |node| node.db[5] = 5000),
            false => beyond(&surgeon, file),
        }
        if soft_updates {
            surgeon.change_superblock(|sb| (sb.clean, sb.flags) = (0, sb.flags | FS_DOSOFTDEP));
        }
        let report = check(&disk, Repair::Preen).unwrap();
        assert_eq!(report.exit_code(), code, "{soft_updates} {is_dir} {in_inode}: {report}");
        if code == 1 {
            assert_clean(&disk, "after its preen");
        }
    }
}

/// A directory that a crash left half created or half removed: an inode of size 0 without a name,
/// as the ordering `sync` may leave it. A preen clears it whatever its link count. With a name, it
/// has lost its `.` and `..`, which is for a person to decide.
#[test]
fn a_directory_that_is_half_made_or_half_removed_is_preened() {
    for links in [0, 1, 2] {
        for has_name in [false, true] {
            let (disk, inodes) = populated(Endian::Little);
            let surgeon = Surgeon::new(&disk);
            surgeon.change_inode(FREE, |node| (node.mode, node.nlink) = (0o040_755, links));
            if has_name {
                surgeon.add_entry(inodes.dir, "hollow", FREE, dir::DT_DIR);
            }
            let report = check(&disk, Repair::Preen).unwrap();
            let found = kinds(&report);
            let (code, wanted) = match has_name {
                false => (1, "UnreferencedDirectory"),
                true => (4, "DotMissing"),
            };
            assert!(found.contains(&wanted), "{links} links: {report}");
            assert_eq!(report.exit_code(), code, "{links} links: {report}");
            assert_eq!(found.contains(&"DotMissing"), has_name, "{links} links: {report}");
            check(&disk, Repair::Yes).unwrap();
            assert_clean(&disk, &format!("{links} links, a name: {has_name}"));
        }
    }
}

#[test]
fn a_lost_root_is_made_anew_and_everything_found_again() {
    for form in FORMS {
        let (sound, inodes) = populated_in(form);
        for case in ROOTS {
            let disk = plant(&sound, &inodes, case);
            let report = check(&disk, Repair::Yes).unwrap();
            assert_eq!(
                report.findings.iter().filter(|f| f.kind() == case.0).count(),
                1,
                "{report}"
            );
            assert_eq!(report.exit_code(), 1);
            assert_clean(&disk, case.0);
            let surgeon = Surgeon::new(&disk);
            surgeon.entry_at(ROOT, "lost+found");
            assert!(surgeon.inode(inodes.small).size == 3000);
            assert!(report.paths[&inodes.small].starts_with("/lost+found/#"), "{report}");
        }
    }
}

#[test]
fn every_kind_of_finding_has_its_case() {
    // Faults that need an image of their own are in `special.rs`.
    let elsewhere = ["TooManyLinks", "NoPlace", "NoSpace"];
    for kind in Finding::KINDS {
        let planted = all_cases().chain(OLDER).chain(ROOTS).any(|case| case.0 == *kind);
        assert!(planted || elsewhere.contains(kind), "{kind} is not planted");
    }
}

/// FreeBSD's own fsck finds nothing after Ordo's repair.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_is_content_with_each_repair() {
    let fsck = ordo_testkit::FreebsdFsck::new();
    let (sound, inodes) = populated(Endian::Little);
    let mut unseen = Vec::new();
    for case in all_cases().chain(ROOTS) {
        let disk = plant(&sound, &inodes, case);
        if fsck.look(&disk.to_vec()).is_content() {
            unseen.push(case.0);
        }
        let report = check(&disk, Repair::Yes).unwrap();
        let said = fsck.look(&disk.to_vec());
        assert!(said.is_content(), "{}: {report}\n{}", case.0, said.text);
    }
    println!("of {} cases FreeBSD's does not see {unseen:?}", all_cases().chain(ROOTS).count());
}

//! The check of LFS. Fault model: an image that NetBSD wrote, with one structure changed. Required: NetBSD's images
//! are clean, as its own fsck_lfs says; a check names exactly the planted fault and writes nothing; a repair removes
//! it, and a second check finds nothing. Catches a check that is missing, names another fault or repairs half, and a
//! repair that does damage.

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::{LfsCheckError, LfsChecker, LfsFinding, LfsReport, LogBehind};
use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::{
    CleanerInfo, IFILE_INO, IfileEntry, LE, LfsInode, SegUse, Superblock, dir, inode,
};
use ordo_runtime::Executor;

fn image(name: &str) -> Option<RamDisk> {
    let bytes = ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img"))?;
    Some(RamDisk::from_image(&bytes))
}

fn check(disk: &RamDisk, repair: Repair) -> (LfsReport, RamDisk) {
    let (report, disk) = try_check(disk, repair);
    (report.unwrap(), disk)
}

fn try_check(disk: &RamDisk, repair: Repair) -> (Result<LfsReport, LfsCheckError>, RamDisk) {
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

/// The log behind a checkpoint becomes part of the checkpoint: a second check finds no fault, and no log behind it.
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

/// An image opened for changes.
struct Surgeon {
    disk: RamDisk,
    sb: Superblock,
}

impl Surgeon {
    fn new(disk: &RamDisk) -> Surgeon {
        let disk = disk.snapshot();
        let mut bytes = vec![0; 512];
        disk.load(8192, &mut bytes);
        Surgeon { sb: Superblock::read(&bytes).unwrap(), disk }
    }

    fn load(&self, addr: i64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.disk.load(self.sb.byte_of(addr), &mut bytes);
        bytes
    }

    /// Changes the superblock at both of its places.
    fn superblock(&mut self, change: impl FnOnce(&mut Superblock)) {
        change(&mut self.sb);
        let mut bytes = vec![0; 512];
        for place in [self.sb.sboffs[0], self.sb.sboffs[1]] {
            let at = place as u64 * 1024;
            self.disk.load(at, &mut bytes);
            self.sb.write(&mut bytes);
            self.disk.store(at, &bytes);
        }
    }

    /// The byte of an inode on the disk.
    fn inode_byte(&self, ino: u64) -> u64 {
        let addr = if ino == IFILE_INO { self.sb.idaddr } else { self.entry(ino).daddr };
        let block = self.load(addr, self.sb.ibsize as usize);
        self.sb.byte_of(addr) + inode::find(self.sb.width, &block, ino).unwrap() as u64
    }

    fn inode(&self, ino: u64) -> LfsInode {
        let mut raw = vec![0; self.sb.width.inode_size()];
        self.disk.load(self.inode_byte(ino), &mut raw);
        LfsInode::read(self.sb.width, &raw)
    }

    fn change_inode(&self, ino: u64, change: impl FnOnce(&mut LfsInode)) {
        let mut inode = self.inode(ino);
        let at = self.inode_byte(ino);
        change(&mut inode);
        let mut raw = vec![0; self.sb.width.inode_size()];
        inode.write(self.sb.width, &mut raw);
        self.disk.store(at, &raw);
    }

    /// The byte on the disk of a byte of the IFILE.
    fn ifile_byte(&self, at: u64) -> u64 {
        let bsize = u64::from(self.sb.bsize);
        self.sb.byte_of(self.inode(IFILE_INO).db[(at / bsize) as usize]) + at % bsize
    }

    fn entry(&self, ino: u64) -> IfileEntry {
        let mut raw = vec![0; self.sb.width.ifile_entry_size()];
        self.disk.load(self.ifile_byte(self.sb.entry_at(ino)), &mut raw);
        IfileEntry::read(self.sb.width, &raw)
    }

    fn change_entry(&self, ino: u64, change: impl FnOnce(&mut IfileEntry)) {
        let mut entry = self.entry(ino);
        change(&mut entry);
        let mut raw = vec![0; self.sb.width.ifile_entry_size()];
        entry.write(self.sb.width, &mut raw);
        self.disk.store(self.ifile_byte(self.sb.entry_at(ino)), &raw);
    }

    fn change_segment(&self, segment: u64, change: impl FnOnce(&mut SegUse)) {
        let at = self.ifile_byte(self.sb.seguse_at(segment));
        let mut raw = vec![0; SegUse::SIZE];
        self.disk.load(at, &mut raw);
        let mut seguse = SegUse::decode(&raw, LE);
        change(&mut seguse);
        seguse.encode(&mut raw, LE);
        self.disk.store(at, &raw);
    }

    fn change_info(&self, change: impl FnOnce(&mut CleanerInfo)) {
        let at = self.ifile_byte(0);
        let mut raw = vec![0; self.sb.width.cleaner_info_size()];
        self.disk.load(at, &mut raw);
        let mut info = CleanerInfo::read(self.sb.width, &raw);
        change(&mut info);
        info.write(self.sb.width, &mut raw);
        self.disk.store(at, &raw);
    }

    /// The inode and the byte on the disk of an entry of a directory of one block.
    fn name(&self, dir_ino: u64, name: &str) -> (u64, u64) {
        let inode = self.inode(dir_ino);
        let bytes = self.load(inode.db[0], inode.size.min(self.sb.bsize.into()) as usize);
        let entries = dir::entries(self.sb.width, &bytes).map(|e| e.unwrap());
        let found = entries.into_iter().find(|e| e.name == name.as_bytes()).unwrap();
        (found.ino, self.sb.byte_of(inode.db[0]) + found.at as u64)
    }

    fn find(&self, path: &str) -> u64 {
        path.split('/').filter(|p| !p.is_empty()).fold(2, |dir, name| self.name(dir, name).0)
    }

    /// Makes a name lead to another inode.
    fn repoint(&self, dir: u64, name: &str, ino: u64) {
        let at = self.name(dir, name).1;
        self.disk.store(at, &ino.to_le_bytes()[..self.sb.width.pointer_size()]);
    }

    /// A file of the root that has two blocks and indirect ones, as its manifest says.
    fn large(&self) -> u64 {
        (3..self.sb.nfiles)
            .find(|ino| {
                self.entry(*ino).daddr != 0
                    && self.inode(*ino).ib[0] > 0
                    && self.inode(*ino).kind() == 0o100_000
            })
            .unwrap()
    }
}

/// The planted fault, the other findings that must come with it, and the function that plants it.
type Case = (&'static str, &'static [&'static str], fn(&mut Surgeon));

const CASES: &[Case] = &[
    ("SuperblockDamaged", &[], |s| s.disk.store(8192 + 100, &[0xff])),
    ("SuperblockDamaged", &[], |s| s.disk.store(s.sb.byte_of(s.sb.sboffs[1]), &[0; 512])),
    ("SuperblockField", &[], |s| s.superblock(|sb| sb.bmask = 1)),
    ("SuperblockField", &[], |s| s.superblock(|sb| sb.maxfilesize += 1)),
    ("SuperblockField", &[], |s| s.superblock(|sb| sb.minfree = 101)),
    ("NotOnFreeList", &[], |s| {
        let second = s.entry(s.sb.freehd).nextfree;
        s.superblock(|sb| sb.freehd = second);
        s.change_info(|i| i.free_head = second);
    }),
    ("FreeListCycle", &["NotOnFreeList"], |s| {
        let first = s.sb.freehd;
        let second = s.entry(first).nextfree;
        s.change_entry(second, |e| e.nextfree = first);
    }),
    ("FreeListRange", &["NotOnFreeList"], |s| {
        s.change_entry(s.sb.freehd, |e| e.nextfree = 1 << 30)
    }),
    ("UsedOnFreeList", &[], |s| {
        let (first, used) = (s.sb.freehd, s.find("bigdir"));
        s.change_entry(used, |e| e.nextfree = first);
        s.superblock(|sb| sb.freehd = used);
        s.change_info(|i| i.free_head = used);
    }),
    ("FreeListEnds", &[], |s| s.change_info(|i| i.free_head = 0)),
    ("FreeListEnds", &[], |s| s.change_info(|i| i.free_tail = 3)),
    ("InodeAddress", &["EntryUnused", "SegmentBytes"], |s| {
        s.change_entry(s.find("bigdir/f00001"), |e| e.daddr = 1 << 30);
    }),
    ("InodeMissing", &["EntryUnused", "SegmentBytes"], |s| {
        let idaddr = s.sb.idaddr;
        s.change_entry(s.find("bigdir/f00001"), |e| e.daddr = idaddr);
    }),
    ("InodeMode", &["EntryUnused", "SegmentBytes"], |s| {
        s.change_inode(s.find("bigdir/f00001"), |i| i.mode = 0o644);
    }),
    ("InodeSize", &["EntryUnused", "SegmentBytes"], |s| {
        s.change_inode(s.find("bigdir/f00001"), |i| i.size = u64::MAX);
    }),
    ("BadBlock", &["BlockCount", "SegmentBytes"], |s| {
        s.change_inode(s.find("bigdir/f00001"), |i| i.db[0] = 8);
    }),
    ("BadBlock", &["BlockCount", "SegmentBytes"], |s| s.change_inode(s.large(), |i| i.ib[0] = -2)),
    ("DuplicateBlock", &["BlockCount", "SegmentBytes"], |s| {
        let other = s.inode(s.find("bigdir/f00001")).db[0];
        s.change_inode(s.find("bigdir/f00002"), |i| i.db[0] = other);
    }),
    ("DuplicateBlock", &["BlockCount", "SegmentBytes"], |s| {
        // The indirect block leads to itself.
        let block = s.inode(s.large()).ib[0];
        let mut raw = vec![0; s.sb.width.pointer_size()];
        s.sb.width.put_pointer(&mut raw, 0, block);
        s.disk.store(s.sb.byte_of(block), &raw);
    }),
    ("PointerBeyondEnd", &[], |s| {
        let other = s.inode(s.find("bigdir/f00002")).db[0];
        s.change_inode(s.find("bigdir/f00001"), |i| i.db[3] = other);
    }),
    ("BlockCount", &[], |s| s.change_inode(s.find("bigdir/f00001"), |i| i.blocks += 1)),
    ("DirectorySize", &[], |s| s.change_inode(s.find("bigdir"), |i| i.size += 100)),
    ("DirectoryEntry", &["Unreferenced"], |s| {
        let at = s.name(s.find("bigdir"), "f00001").1;
        s.disk.store(at + s.sb.width.pointer_size() as u64, &[3, 0]);
    }),
    ("DotsMissing", &["DirectoryLinkedTwice"], |s| {
        let at = s.name(s.find("bigdir"), ".").1;
        s.disk.store(at + s.sb.width.dir_header() as u64, b"x");
    }),
    ("DotEntry", &[], |s| s.repoint(s.find("bigdir"), ".", 2)),
    ("DotEntry", &[], |s| s.repoint(s.find("bigdir"), "..", s.find("bigdir"))),
    ("EntryUnused", &["Unreferenced"], |s| {
        s.repoint(s.find("bigdir"), "f00001", s.sb.freehd);
    }),
    ("EntryType", &[], |s| {
        let at = s.name(s.find("bigdir"), "f00001").1;
        s.disk.store(at + s.sb.width.dir_header() as u64 - 2, &[dir::DT_DIR]);
    }),
    ("DirectoryLinkedTwice", &["Unreferenced"], |s| {
        s.repoint(s.find("bigdir"), "f00001", 2);
    }),
    ("Unreferenced", &[], |s| {
        let at = s.name(s.find("bigdir"), "f00001").1;
        s.disk.store(at, &[0; 4]);
    }),
    ("Orphan", &["SegmentBytes"], |s| {
        let ino = s.find("bigdir/f00001");
        let at = s.name(s.find("bigdir"), "f00001").1;
        s.disk.store(at, &[0; 4]);
        s.change_inode(ino, |i| i.nlink = 0);
    }),
    ("LinkCount", &[], |s| s.change_inode(s.find("bigdir/f00001"), |i| i.nlink = 7)),
    ("LinkCount", &[], |s| s.change_inode(2, |i| i.nlink = 1)),
    ("CleanSegmentInUse", &["Total", "FreeFragments"], |s| {
        let segment = s.sb.segment_of(s.inode(s.large()).db[0]).unwrap();
        s.change_segment(segment, |u| u.flags &= !seg_flag::DIRTY);
    }),
    ("SegmentBytes", &[], |s| s.change_segment(0, |u| u.nbytes += 512)),
    ("SegmentCounts", &["Total", "FreeFragments"], |s| {
        s.change_segment(0, |u| (u.nsums, u.ninos) = (u16::MAX, u16::MAX));
    }),
    ("Total", &[], |s| s.superblock(|sb| sb.avail += 1)),
    ("Total", &[], |s| s.superblock(|sb| sb.dmeta -= 1)),
    ("Total", &[], |s| s.superblock(|sb| sb.nclean -= 1)),
    ("FreeFragments", &[], |s| s.superblock(|sb| sb.bfree = 1)),
];

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

/// Findings about the halves of a mirror only: crates/shell/systems/tests/registry.rs plants them.
const OF_MIRRORS: [&str; 3] = ["NotHalf", "HalfStale", "HalvesDiffer"];

/// Every finding is planted alone, named, repaired, and gone.
#[test]
fn each_inconsistency_is_found_and_repaired() {
    for name in ["tree64-8k", "tree32-8k"] {
        let Some(image) = image(name) else { return };
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
        let elsewhere = [&ELSEWHERE[..], &OF_DUALFS, &OF_MIRRORS].concat().contains(kind);
        assert!(planted || elsewhere, "nothing plants {kind}");
    }
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
    // A directory with a hole is truncated before it. The files behind it get other names, as far as there is space.
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

/// Without an IFILE nothing can be found: each way in which it can be damaged is an error with a name.
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

//! Damage to an LFS, a case for each finding: an image, opened for changes. Images have a directory
//! `bigdir` of some blocks with the files `f00001` and `f00002`, and a file with an indirect block.

use ordo_block::ram::RamDisk;
use ordo_format::lfs::ifile::{ORPHAN, ORPHAN_2016, seg_flag};
use ordo_format::lfs::{
    CleanerInfo, IFILE_INO, IfileEntry, LE, LfsInode, SegUse, Superblock, dir, inode,
};
use ordo_format::ufs2::inode::{IFCHR, IFDIR, IFLNK, IFREG};

/// An image opened for changes.
pub struct Surgeon {
    pub disk: RamDisk,
    pub sb: Superblock,
}

impl Surgeon {
    pub fn new(disk: &RamDisk) -> Surgeon {
        let disk = disk.snapshot();
        let mut bytes = vec![0; 512];
        disk.load(8192, &mut bytes);
        Surgeon { sb: Superblock::read(&bytes).unwrap(), disk }
    }

    pub fn load(&self, addr: i64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.disk.load(self.sb.byte_of(addr), &mut bytes);
        bytes
    }

    /// Changes the superblock at both of its places.
    pub fn superblock(&mut self, change: impl FnOnce(&mut Superblock)) {
        change(&mut self.sb);
        let mut bytes = vec![0; 512];
        for place in [self.sb.sboffs[0], self.sb.sboffs[1]] {
            let at = self.sb.byte_of(place);
            self.disk.load(at, &mut bytes);
            self.sb.write(&mut bytes);
            self.disk.store(at, &bytes);
        }
    }

    /// The byte of an inode on the disk.
    pub fn inode_byte(&self, ino: u64) -> u64 {
        let addr = if ino == IFILE_INO { self.sb.idaddr } else { self.entry(ino).daddr };
        let block = self.load(addr, self.sb.ibsize as usize);
        self.sb.byte_of(addr) + inode::find(self.sb.width, &block, ino).unwrap() as u64
    }

    pub fn inode(&self, ino: u64) -> LfsInode {
        let mut raw = vec![0; self.sb.width.inode_size()];
        self.disk.load(self.inode_byte(ino), &mut raw);
        LfsInode::read(self.sb.width, &raw)
    }

    pub fn change_inode(&self, ino: u64, change: impl FnOnce(&mut LfsInode)) {
        let mut inode = self.inode(ino);
        let at = self.inode_byte(ino);
        change(&mut inode);
        let mut raw = vec![0; self.sb.width.inode_size()];
        inode.write(self.sb.width, &mut raw);
        self.disk.store(at, &raw);
    }

    /// The byte on the disk of a byte of the IFILE.
    pub fn ifile_byte(&self, at: u64) -> u64 {
        let bsize = u64::from(self.sb.bsize);
        self.sb.byte_of(self.inode(IFILE_INO).db[(at / bsize) as usize]) + at % bsize
    }

    pub fn entry(&self, ino: u64) -> IfileEntry {
        let mut raw = vec![0; self.sb.width.ifile_entry_size()];
        self.disk.load(self.ifile_byte(self.sb.entry_at(ino)), &mut raw);
        IfileEntry::read(self.sb.width, &raw)
    }

    pub fn change_entry(&self, ino: u64, change: impl FnOnce(&mut IfileEntry)) {
        let mut entry = self.entry(ino);
        change(&mut entry);
        let mut raw = vec![0; self.sb.width.ifile_entry_size()];
        entry.write(self.sb.width, &mut raw);
        self.disk.store(self.ifile_byte(self.sb.entry_at(ino)), &raw);
    }

    pub fn change_segment(&self, segment: u64, change: impl FnOnce(&mut SegUse)) {
        let at = self.ifile_byte(self.sb.seguse_at(segment));
        let mut raw = vec![0; SegUse::SIZE];
        self.disk.load(at, &mut raw);
        let mut seguse = SegUse::decode(&raw, LE);
        change(&mut seguse);
        seguse.encode(&mut raw, LE);
        self.disk.store(at, &raw);
    }

    pub fn change_info(&self, change: impl FnOnce(&mut CleanerInfo)) {
        let at = self.ifile_byte(0);
        let mut raw = vec![0; self.sb.width.cleaner_info_size()];
        self.disk.load(at, &mut raw);
        let mut info = CleanerInfo::read(self.sb.width, &raw);
        change(&mut info);
        info.write(self.sb.width, &mut raw);
        self.disk.store(at, &raw);
    }

    /// The inode and the byte on the disk of an entry of a directory of one block.
    pub fn name(&self, dir_ino: u64, name: &str) -> (u64, u64) {
        let inode = self.inode(dir_ino);
        let bytes = self.load(inode.db[0], inode.size.min(self.sb.bsize.into()) as usize);
        let entries = dir::entries(self.sb.width, &bytes).map(|e| e.unwrap());
        let found = entries.into_iter().find(|e| e.name == name.as_bytes()).unwrap();
        (found.ino, self.sb.byte_of(inode.db[0]) + found.at as u64)
    }

    pub fn find(&self, path: &str) -> u64 {
        path.split('/').filter(|p| !p.is_empty()).fold(2, |dir, name| self.name(dir, name).0)
    }

    /// Makes a name lead to another inode.
    pub fn repoint(&self, dir: u64, name: &str, ino: u64) {
        let at = self.name(dir, name).1;
        self.disk.store(at, &ino.to_le_bytes()[..self.sb.width.pointer_size()]);
    }

    /// Changes the type in an entry.
    pub fn retype(&self, dir: u64, name: &str, kind: u8) {
        let at = self.name(dir, name).1;
        self.disk.store(at + self.sb.width.dir_header() as u64 - 2, &[kind]);
    }

    /// Changes a name to one that is not longer.
    pub fn rename(&self, dir: u64, name: &str, new: &str) {
        let at = self.name(dir, name).1 + self.sb.width.dir_header() as u64;
        let mut bytes = new.as_bytes().to_vec();
        bytes.resize(name.len(), 0);
        self.disk.store(at, &bytes);
        self.disk.store(at - 1, &[new.len() as u8]);
    }

    /// The first file whose inode is as wanted.
    fn first(&self, is_wanted: impl Fn(u64, &LfsInode) -> bool) -> u64 {
        (3..self.sb.inodes_in(self.inode(IFILE_INO).size))
            .find(|ino| self.entry(*ino).daddr != 0 && is_wanted(*ino, &self.inode(*ino)))
            .unwrap()
    }

    /// A file with an indirect block.
    pub fn large(&self) -> u64 {
        self.first(|_, inode| inode.ib[0] > 0 && inode.kind() == IFREG)
    }

    /// A file of this type.
    pub fn of_kind(&self, kind: u16) -> u64 {
        self.first(|_, inode| inode.kind() == kind)
    }

    /// A symbolic link whose target takes some of the inode's pointers.
    pub fn short_link(&self) -> u64 {
        self.first(|_, inode| inode.kind() == IFLNK && inode.size < 40)
    }

    /// A small directory without directories.
    pub fn leaf_directory(&self) -> u64 {
        let big = self.find("bigdir");
        self.first(|ino, inode| inode.kind() == IFDIR && inode.nlink == 2 && ino != big)
    }
}

/// The planted fault, the other findings that must come with it, and the function that plants it.
pub type Case = (&'static str, &'static [&'static str], fn(&mut Surgeon));

pub const CASES: &[Case] = &[
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
    ("InodeMode", &["EntryUnused", "SegmentBytes"], |s| {
        // A whiteout has no inode of its own.
        s.change_inode(s.find("bigdir/f00001"), |i| i.mode = 0o160_000);
    }),
    ("InodeSize", &["EntryUnused", "SegmentBytes"], |s| {
        s.change_inode(s.find("bigdir/f00001"), |i| i.size = u64::MAX);
    }),
    ("InodeSize", &["EntryUnused", "Unreferenced", "LinkCount", "SegmentBytes"], |s| {
        s.change_inode(s.leaf_directory(), |i| i.size = 0);
    }),
    ("IfileMode", &[], |s| s.change_inode(IFILE_INO, |i| i.mode = 0)),
    ("IfileMode", &[], |s| s.change_inode(IFILE_INO, |i| i.mode = 0o040_755)),
    ("BadBlock", &["BlockCount", "SegmentBytes"], |s| {
        s.change_inode(s.find("bigdir/f00001"), |i| i.db[0] = 8);
    }),
    ("BadBlock", &["BlockCount", "SegmentBytes", "FreeFragments"], |s| {
        s.change_inode(s.large(), |i| i.ib[0] = -2);
    }),
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
    ("BlockCount", &[], |s| s.change_inode(IFILE_INO, |i| i.blocks += 1)),
    ("SpecialWithBlocks", &[], |s| s.change_inode(s.of_kind(IFCHR), |i| i.db[1] = 77)),
    ("SpecialWithBlocks", &[], |s| s.change_inode(s.of_kind(IFCHR), |i| i.ib[2] = -1)),
    ("SpecialWithBlocks", &[], |s| s.change_inode(s.short_link(), |i| i.db[11] = 77)),
    ("SpecialWithBlocks", &[], |s| s.change_inode(s.short_link(), |i| i.ib[0] = 77)),
    ("DirectorySize", &[], |s| s.change_inode(s.find("bigdir"), |i| i.size += 100)),
    ("DirectoryEntry", &["Unreferenced"], |s| {
        let at = s.name(s.find("bigdir"), "f00001").1;
        s.disk.store(at + s.sb.width.pointer_size() as u64, &[3, 0]);
    }),
    ("DotsMissing", &["DirectoryLinkedTwice", "Unreferenced"], |s| {
        let at = s.name(s.find("bigdir"), ".").1;
        s.disk.store(at + s.sb.width.dir_header() as u64, b"x");
    }),
    ("ExtraDot", &["Unreferenced"], |s| s.rename(s.find("bigdir"), "f00001", ".")),
    ("ExtraDot", &["Unreferenced"], |s| s.rename(s.find("bigdir"), "f00001", "..")),
    ("DuplicateName", &["Unreferenced"], |s| s.rename(s.find("bigdir"), "f00002", "f00001")),
    ("DotEntry", &[], |s| s.repoint(s.find("bigdir"), ".", 2)),
    ("DotEntry", &[], |s| s.repoint(s.find("bigdir"), "..", s.find("bigdir"))),
    ("EntryUnused", &["Unreferenced"], |s| {
        s.repoint(s.find("bigdir"), "f00001", s.sb.freehd);
    }),
    ("EntryType", &[], |s| s.retype(s.find("bigdir"), "f00001", dir::DT_DIR)),
    ("EntryType", &[], |s| s.retype(s.find("bigdir"), ".", dir::DT_UNKNOWN)),
    ("EntryType", &[], |s| s.retype(s.find("bigdir"), "..", 8)),
    ("EntryType", &[], |s| s.retype(s.find("bigdir"), "f00001", 16)),
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
    ("NamedOrphan", &[], |s| s.change_entry(s.find("bigdir/f00001"), |e| e.nextfree = ORPHAN)),
    ("NamedOrphan", &[], |s| s.change_entry(s.find("bigdir"), |e| e.nextfree = ORPHAN_2016)),
    ("LinkCount", &[], |s| s.change_inode(s.find("bigdir/f00001"), |i| i.nlink = 7)),
    ("LinkCount", &[], |s| s.change_inode(2, |i| i.nlink = 1)),
    ("CleanSegmentInUse", &["Total", "FreeFragments"], |s| {
        let segment = s.sb.segment_of(s.inode(s.large()).db[0]).unwrap();
        s.change_segment(segment, |u| u.flags &= !seg_flag::DIRTY);
    }),
    ("SegmentBytes", &[], |s| s.change_segment(0, |u| u.nbytes += 512)),
    ("SegmentBytes", &[], |s| {
        let last = u64::from(s.sb.nseg) - 1;
        s.change_segment(last, |u| u.nbytes = 4);
    }),
    ("SegmentCounts", &["Total", "FreeFragments"], |s| {
        s.change_segment(0, |u| (u.nsums, u.ninos) = (u16::MAX, u16::MAX));
    }),
    ("Total", &[], |s| s.superblock(|sb| sb.avail += 1)),
    ("Total", &[], |s| s.superblock(|sb| sb.dmeta -= 1)),
    ("Total", &[], |s| s.superblock(|sb| sb.nclean -= 1)),
    ("FreeFragments", &[], |s| s.superblock(|sb| sb.bfree = 1)),
];

//! An empty file system, compared with that of newfs_lfs: equal fields, clean for the checker,
//! readable, in every shape.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_format::lfs::superblock::Dlfs64;
use ordo_format::lfs::{CleanerInfo, LE, SegUse, Superblock, Width};
use ordo_lfs::LfsReader;
use ordo_lfs::mkfs::{MkfsError, MkfsOptions, mkfs};
use ordo_runtime::Executor;
use ordo_vfs::{Cookie, FileSystem};

fn make(bytes: u64, options: &MkfsOptions) -> (Result<Superblock, MkfsError>, Rc<RamDisk>) {
    let disk = Rc::new(RamDisk::new(bytes));
    let made = Executor::simulated(1).block_on(mkfs(disk.clone(), options, 1_700_000_000));
    (made.unwrap(), disk)
}

fn load(disk: &RamDisk, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.load(at, &mut bytes);
    bytes
}

/// The fields of the superblock and the tables equal those of newfs_lfs for a device of the same
/// size. Each difference has a reason: newfs_lfs writes the IFILE twice, so one more summary, a
/// block of inodes and two blocks are dead in its log. Its cleaner info still has the counts from
/// before the second time, which are exactly Ordo's.
#[test]
fn the_fields_are_those_of_newfs_lfs() {
    let Some(image) = ordo_testkit::real_input("images/netbsd-lfs/fresh64-8k.img") else { return };
    let theirs = Superblock::read(&image[8192..]).unwrap();
    let options = MkfsOptions { segment_size: 524_288, ident: 4242, ..MkfsOptions::default() };
    let (ours, disk) = make(64 << 20, &options);
    let ours = ours.unwrap();
    let differ =
        ["bfree", "avail", "idaddr", "offset", "lastpseg", "dmeta", "serial", "tstamp", "cksum"];
    let (mut a, mut b) = (vec![0; 512], vec![0; 512]);
    theirs.write(&mut a);
    ours.write(&mut b);
    for field in Dlfs64::FIELDS.iter().filter(|f| !differ.contains(&f.name)) {
        let range = field.offset..field.offset + field.bytes;
        assert_eq!(a[range.clone()], b[range], "{}", field.name);
    }
    let byte = |addr: i64| theirs.byte_of(addr) as usize;
    let info = CleanerInfo::read(Width::Lfs64, &image[byte(0x2d)..]);
    assert_eq!((ours.bfree, ours.avail, ours.dmeta, ours.serial), (info.bfree, info.avail, 2, 1));
    // Behind the summary are the root's fragment, then the IFILE.
    let ifile = load(&disk, ours.byte_of(ours.segment_data(0) + 2), 3 * 8192);
    assert_eq!(CleanerInfo::read(Width::Lfs64, &ifile), info);
    for segment in 0..u64::from(ours.nseg) {
        let at = ours.seguse_at(segment) as usize;
        let mut wanted = SegUse::decode(&image[byte(0x35) + at - 8192..], LE);
        if segment == 0 {
            (wanted.nsums, wanted.ninos) = (1, 1);
        }
        assert_eq!(SegUse::decode(&ifile[at..], LE), wanted, "segment {segment}");
    }
    // Inode 2 is elsewhere. All other entries are equal.
    assert_eq!(ifile[2 * 8192 + 96..], image[byte(0x23) + 96..byte(0x23) + 8192]);
}

/// Every shape is clean for the checker and can be read: small and large blocks, an IFILE with
/// indirect blocks that takes several partial segments and more than one segment, with and without
/// seals.
#[test]
fn every_made_image_is_clean() {
    let shapes = [
        (128 << 20, 8192, 1024, 1 << 20, true),
        (64 << 20, 8192, 1024, 524_288, false),
        (40 << 20, 4096, 512, 262_144, true),
        (20 << 20, 512, 512, 65_536, true),
        (512 << 20, 65_536, 8192, 4 << 20, true),
        (100_000_000, 16_384, 8192, 600 * 1024, true),
        (64 << 30, 8192, 1024, 1 << 20, true),
        (24 << 30, 4096, 512, 131_072, true),
    ];
    for (bytes, block_size, frag_size, segment_size, sealed) in shapes {
        let segment_size = segment_size / frag_size * frag_size;
        let options =
            MkfsOptions { block_size, frag_size, segment_size, sealed, ..MkfsOptions::default() };
        let (made, disk) = make(bytes, &options);
        let made = made.unwrap_or_else(|e| panic!("{options:?}: {e}"));
        let checker = LfsChecker::new(disk.clone(), Repair::No);
        let report = Executor::simulated(1).block_on(checker.run()).unwrap();
        let report = report.unwrap_or_else(|e| panic!("{options:?}: {e}"));
        assert!(report.is_consistent() && report.files == 2, "{options:?}: {report}");
        let names = Executor::simulated(1).block_on(async {
            let fs = LfsReader::mount(disk).await.unwrap();
            let mut names = Vec::new();
            let mut each = |e: ordo_vfs::DirEntry<'_>| {
                names.push(e.name.to_vec());
                true
            };
            fs.readdir(fs.root(), Cookie::START, &mut each).await.unwrap();
            names
        });
        assert_eq!(names.unwrap(), [&b"."[..], b".."]);
        let is_large = bytes >= 24 << 30;
        assert_eq!(is_large, made.serial > 1, "{options:?}: serial {}", made.serial);
    }
}

/// Sizes that are not possible are refused with a reason, and nothing is written.
#[test]
fn sizes_that_mkfs_cannot_make_are_refused() {
    let sizes = |change: fn(&mut MkfsOptions)| {
        let mut options = MkfsOptions::default();
        change(&mut options);
        let (made, disk) = make(256 << 20, &options);
        assert_eq!(load(&disk, 0, 65536), vec![0; 65536]);
        made.unwrap_err()
    };
    assert!(matches!(sizes(|o| o.block_size = 5000), MkfsError::Sizes(_)));
    assert!(matches!(sizes(|o| o.block_size = 0), MkfsError::Sizes(_)));
    assert!(matches!(sizes(|o| o.frag_size = 0), MkfsError::Sizes(_)));
    assert!(matches!(sizes(|o| o.frag_size = 16384), MkfsError::Sizes(_)));
    for small in [sizes(|o| o.segment_size = 0), sizes(|o| o.segment_size = 8192)] {
        assert!(matches!(small, MkfsError::SegmentTooSmall { least: 16_384, .. }), "{small}");
    }
    assert!(matches!(sizes(|o| o.segment_size = 16_896), MkfsError::Sizes(_)));
    let few = sizes(|o| o.segment_size = 8 << 20);
    assert!(matches!(few, MkfsError::TooFewSegments { segments: 31, least: 80 }), "{few}");
    assert!(make(0, &MkfsOptions::default()).0.is_err());
    // Segments without room for the label and the superblock: the size that the error names is
    // enough.
    for bytes in [512, 4096] {
        let of = |segment_size| {
            let (block_size, frag_size) = (bytes, bytes);
            let sizes =
                MkfsOptions { block_size, frag_size, segment_size, ..MkfsOptions::default() };
            make(32 << 20, &sizes).0
        };
        let error = of(8192).unwrap_err();
        assert_eq!(error, MkfsError::SegmentTooSmall { segment: 8192, least: 16_384 });
        assert!(of(16_384).is_ok());
    }
}

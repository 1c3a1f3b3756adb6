//! Valid file systems give no findings, whichever program made them. Catches a check that is
//! stricter than the format.

use std::rc::Rc;

use crate::support::{assert_clean, check, check_with};
use ordo_block::ram::RamDisk;
use ordo_check::{FsckOptions, Repair};
use ordo_ffs::mkfs::MkfsOptions;
use ordo_format::Endian;

#[test]
fn freebsds_image_is_consistent() {
    let Some(image) = ordo_testkit::real_input("images/freebsd-ufs2-little-endian.img") else {
        return;
    };
    let disk = Rc::new(RamDisk::from_image(&image));
    let report = check(&disk, Repair::No).unwrap();
    assert!(report.is_consistent(), "{report}");
    assert!(report.was_clean);
    assert_eq!((report.files, report.work.directories), (16, 5));
}

#[test]
fn images_of_makefs_have_no_findings() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::write(tree.join("a/file"), vec![5; 300_000]).unwrap();
    std::fs::write(tree.join("a/b/small"), b"x").unwrap();
    for i in 0..300 {
        std::fs::write(tree.join(format!("a/b/c/{i}")), vec![1; i]).unwrap();
    }
    for (order, options) in [
        ("le", "version=2,bsize=8192,fsize=1024"),
        ("be", "version=2,bsize=32768,fsize=4096"),
        ("le", "version=1,bsize=4096,fsize=512"),
        ("le", "version=1,bsize=16384,fsize=2048"),
        ("be", "version=1,bsize=8192,fsize=1024"),
        ("be", "version=1,bsize=65536,fsize=8192"),
    ] {
        let image = dir.path().join(options);
        let (path, tree) = (image.to_str().unwrap(), tree.to_str().unwrap());
        let args = ["-t", "ffs", "-B", order, "-s", "16m", "-o", options, path, tree];
        if ordo_testkit::judge("makefs", &args).is_none() {
            return;
        }
        let disk = Rc::new(RamDisk::from_image(&std::fs::read(&image).unwrap()));
        assert_clean(&disk, &format!("{order}, {options}"));
    }
}

#[test]
fn images_of_mkfs_have_no_findings() {
    for (block_size, frag_size) in [(32768, 4096), (8192, 1024), (4096, 512), (65536, 65536)] {
        for (version, endian) in crate::support::FORMS {
            for snapshot_dir in [false, true] {
                let options = MkfsOptions {
                    version,
                    block_size,
                    frag_size,
                    endian,
                    snapshot_dir,
                    check_hashes: !snapshot_dir,
                    ..MkfsOptions::default()
                };
                let disk = crate::support::empty(&options, (20 << 20) - 512 * 9);
                assert_clean(&disk, &format!("{options:?}"));
            }
        }
    }
}

#[test]
fn a_file_system_with_one_of_everything_is_consistent() {
    for form in crate::support::FORMS {
        let (disk, _) = crate::support::populated_in(form);
        assert_clean(&disk, &format!("{form:?}"));
        let before = disk.to_vec();
        let report = check(&disk, Repair::Yes).unwrap();
        assert!(!report.repaired && disk.to_vec() == before, "nothing was written");
        assert_eq!(report.work.writes, 0);
    }
}

#[test]
fn a_clean_mark_can_be_believed() {
    let (disk, _) = crate::support::populated(Endian::Little);
    let options = FsckOptions { skip_clean: true, ..FsckOptions::default() };
    let report = check_with(&disk, options).unwrap();
    assert!(report.skipped && report.exit_code() == 0 && report.work.inodes == 0);
}

/// Empty file systems, and ones with a file of every kind, are shown to FreeBSD's own fsck.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_nothing_in_what_is_made_here() {
    let fsck = ordo_testkit::FreebsdFsck::new();
    for (block_size, frag_size) in [(32768, 4096), (8192, 1024), (4096, 512), (65536, 65536)] {
        for check_hashes in [false, true] {
            let options =
                MkfsOptions { block_size, frag_size, check_hashes, ..MkfsOptions::default() };
            let bytes = (20 << 20) - 512 * 9;
            let empty = crate::support::empty(&options, bytes);
            let (full, _) = crate::support::populated_with(&options, bytes);
            for (what, disk) in [("empty", empty), ("with one of everything", full)] {
                let said = fsck.look(&disk.to_vec());
                assert!(said.is_content(), "{what}, {options:?}: {}", said.text);
            }
        }
    }
    // And the prompt is a question.
    let disk = crate::support::populated(Endian::Little).0;
    crate::support::Surgeon::new(&disk).remove_entry(2, "large");
    let said = fsck.look(&disk.to_vec());
    assert!(!said.is_content() && said.text.contains("UNREF FILE"), "{}", said.text);
}

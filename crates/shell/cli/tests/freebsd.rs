//! Images that the command makes and fills, checked by FreeBSD's own fsck. `make test-freebsd` runs
//! these tests.
//!
//! Fault model: an image that is consistent only to Ordo's checker: a field that FreeBSD sets in
//! another way, a size of file system, block or fragment at which rounding differs.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use assert_cmd::Command;
use ordo_testkit::FreebsdFsck;

fn ordo(args: &[&str]) {
    Command::cargo_bin("ordo").unwrap().args(args).assert().success();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Checks that neither FreeBSD's fsck nor Ordo's has findings.
fn assert_whole(fsck: &FreebsdFsck, image: &Path, what: &str) {
    let said = fsck.run_on(image, &["-n", "-f"]);
    assert!(said.is_content(), "{what}: {}", said.text);
    ordo(&["fsck", "-f", "-q", text(image)]);
}

#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_nothing_in_what_mkfs_makes() {
    let (fsck, temp) = (FreebsdFsck::new(), tempfile::tempdir().unwrap());
    let image = temp.path().join("image");
    for shape in [
        "--size 1m -b 4k -f 512",
        "--size 5000k -b 8k -f 1k --soft-updates",
        "--size 64m",
        "--size 129m -b 16k -f 2k --soft-updates",
        "--size 300m -b 64k -f 64k",
        "--size 700m --no-check-hashes -L box",
        "--size 2g --soft-updates -i 100k -m 3",
        "--size 20g",
    ] {
        let mut args = vec!["mkfs", text(&image), "--force"];
        args.extend(shape.split(' '));
        ordo(&args);
        assert_whole(&fsck, &image, shape);
        fs::remove_file(&image).unwrap();
    }
}

/// A directory with files of many sizes, holes, hard and symbolic links, long names and many names.
fn tree(dir: &Path) {
    for deep in ["deep/er/and/deeper", "many", "empty"] {
        fs::create_dir_all(dir.join(deep)).unwrap();
    }
    for size in [0, 1, 511, 4096, 4097, 32_768, 100_000, 393_216, 400_000, 5_000_000] {
        fs::write(dir.join(format!("file-{size}")), vec![size as u8; size]).unwrap();
    }
    for i in 0..700 {
        fs::write(dir.join(format!("many/{i:04}-{}", "n".repeat(i % 200))), b"x").unwrap();
    }
    let sparse = fs::File::create(dir.join("deep/sparse")).unwrap();
    for at in [0u64, 1 << 20, 1 << 28, 5 << 30] {
        sparse.write_all_at(b"here", at).unwrap();
    }
    for len in [5, 119, 120, 121, 1000] {
        symlink("t".repeat(len), dir.join(format!("link-{len}"))).unwrap();
    }
    fs::hard_link(dir.join("file-4097"), dir.join("deep/er/twin")).unwrap();
    fs::set_permissions(dir.join("file-1"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::write(dir.join("deep").join("x".repeat(255)), b"long").unwrap();
}

#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_nothing_in_what_was_copied_in() {
    let (fsck, temp) = (FreebsdFsck::new(), tempfile::tempdir().unwrap());
    let (dir, image) = (temp.path().join("in"), temp.path().join("image"));
    tree(&dir);
    ordo(&["import", "-q", text(&dir), text(&image)]);
    assert_whole(&fsck, &image, "import");
    fs::remove_file(&image).unwrap();
    for shape in ["--size 64m -b 4k -f 512 --soft-updates", "--size 100m -b 64k -f 8k"] {
        let mut args = vec!["mkfs", text(&image)];
        args.extend(shape.split(' '));
        ordo(&args);
        ordo(&["import", "-q", text(&dir), text(&image), "--into", "/a/b"]);
        let inside = format!("{}:/again", text(&image));
        ordo(&["cp", "-q", text(&dir.join("file-5000000")), &inside]);
        assert_whole(&fsck, &image, shape);
        fs::remove_file(&image).unwrap();
    }
}

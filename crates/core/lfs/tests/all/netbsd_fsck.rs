//! Logs that Ordo wrote, judged by NetBSD's own fsck_lfs and dumplfs. `make test-netbsd` runs these
//! tests.
//!
//! Fault model: a log that is consistent only for Ordo's checker: a field that NetBSD sets in
//! another way, a size of segment, block or fragment at which rounding differs, a count that
//! deletes, truncations or the cleaner get wrong.

use std::fmt::Write;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, Superblock};
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{LfsRules, LogFs, MountOptions, mount};
use ordo_runtime::Executor;
use ordo_testkit::{NetbsdFsck, netbsd_dumplfs, netbsd_part};
use ordo_vfs::{FileSystem, NewNode, RenameMode, SetAttr};

use crate::churn::{Run, SHAPES};

/// fsck_lfs finds nothing, and dumplfs shows the superblock's fields.
fn assert_sound(fsck: &NetbsdFsck, disk: &RamDisk, what: &str) {
    let image = disk.to_vec();
    let said = fsck.look(&image);
    assert!(said.is_content(), "{what}: {}", said.text);
    let sb = Superblock::read(&image[LABEL_BYTES as usize..][..SUPERBLOCK_SIZE]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, &image).unwrap();
    let Some(dumped) = netbsd_dumplfs(&path) else { return };
    let fields = [
        ("nseg", sb.nseg.into()),
        ("nclean", sb.nclean.into()),
        ("nfiles", sb.nfiles as i64),
        ("bfree", sb.bfree),
        ("avail", sb.avail),
        ("dmeta", sb.dmeta.into()),
        ("freehd", sb.freehd as i64),
        ("idaddr", sb.idaddr),
        ("offset", sb.offset),
        ("serial", sb.serial as i64),
        ("ssize", sb.ssize.into()),
        ("bsize", sb.bsize.into()),
        ("fsize", sb.fsize.into()),
    ];
    for (name, ours) in fields {
        assert_eq!(dumped.superblock.get(name), Some(&ours), "{what}: {name}:\n{}", dumped.text);
    }
    let clean = dumped.cleaner_info.get("clean");
    assert_eq!(clean, Some(&sb.nclean.into()), "{what}: cleaner info:\n{}", dumped.text);
}

/// A name, a number of segments, and the sizes of segment, block and fragment.
const MADE: [(u64, u32, u32, u32); 9] = [
    (100, 64 << 10, 1024, 1024),
    (100, 64 << 10, 2048, 512),
    (90, 40 << 10, 4096, 512),
    (120, 128 << 10, 4096, 4096),
    (96, 512 << 10, 8192, 1024),
    (300, 128 << 10, 8192, 8192),
    (84, 256 << 10, 16_384, 2048),
    (90, 1 << 20, 32_768, 4096),
    (90, 1 << 20, 65_536, 8192),
];

/// Small files, a file with two levels of indirect blocks, directories, links short and long,
/// renames, truncations, deletes.
async fn work(fs: &LogFs, block: usize) {
    let (root, file) = (fs.root(), NewNode::file(0o644));
    let made = fs.create(root, b"dir", &NewNode::directory(0o755)).await.expect("space");
    for number in 0..400 {
        let name = format!("{number:04}{}", "n".repeat(number % 200)).into_bytes();
        let ino = fs.create(made.ino, &name, &file).await.expect("space").ino;
        fs.write(ino, 0, &vec![7; number * 13 % 5000]).await.expect("space");
        if number % 3 == 0 {
            fs.unlink(made.ino, &name).await.expect("there");
        }
    }
    let large = fs.create(root, b"large", &file).await.expect("space").ino;
    fs.write(large, 0, &vec![1; 20 * block]).await.expect("space");
    // Behind the first indirect block is the second level.
    let far = (12 + block / 8 + 3) * block;
    fs.write(large, far as u64, &vec![2; 3 * block]).await.expect("space");
    for (name, len) in [("a", 5), ("b", 119), ("c", 120), ("d", 500)] {
        let target = "t".repeat(len);
        let link = NewNode::symlink(target.as_bytes());
        fs.create(root, name.as_bytes(), &link).await.expect("space");
    }
    fs.sync().await.expect("a healthy device");
    fs.link(large, made.ino, b"twin").await.expect("space");
    fs.rename(root, b"a", made.ino, b"moved", RenameMode::Replace).await.expect("there");
    fs.create(root, b"sub", &NewNode::directory(0o700)).await.expect("space");
    fs.rename(root, b"sub", made.ino, b"sub", RenameMode::Replace).await.expect("there");
    let cut = fs.create(root, b"cut", &file).await.expect("space").ino;
    fs.write(cut, 0, &vec![3; 30 * block]).await.expect("space");
    fs.sync().await.expect("a healthy device");
    for size in [17 * block + 5, 3 * block + 100, 10] {
        let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        fs.setattr(cut, &set).await.expect("space");
        fs.fsync(cut).await.expect("a healthy device");
    }
}

#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_logs_of_every_shape() {
    let fsck = NetbsdFsck::new();
    let has_dumplfs = std::env::var_os("ORDO_NETBSD_DUMPLFS").is_some_and(|v| !v.is_empty());
    let shown = if has_dumplfs { ", and dumplfs shows the superblock's fields" } else { "" };
    let mut out = format!(
        "## Logs that Ordo wrote\n\nfsck_lfs finds nothing{shown}, when they are just made, and after\nwork with files of one and two levels of indirect blocks, links, renames, truncations and deletes.\n\n"
    );
    out += "| segments | segment | block | fragment |\n|---:|---:|---:|---:|\n";
    for (segments, segment_size, block_size, frag_size) in MADE {
        let what = format!("{segments} × {segment_size}, {block_size}/{frag_size}");
        let disk = Rc::new(RamDisk::new(LABEL_BYTES + segments * u64::from(segment_size)));
        let options = MkfsOptions { block_size, frag_size, segment_size, ..MkfsOptions::default() };
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let done = executor.block_on(async {
            mkfs(disk.clone().erase(), &options, 1).await.expect("legal sizes");
            assert_sound(&fsck, &disk, &format!("{what}, made"));
            let fs = mount(&rt, disk.clone(), &MountOptions::default()).await.expect("just made");
            work(&fs, block_size as usize).await;
            fs.unmount().await.expect("a healthy device");
        });
        done.expect("no deadlock");
        assert_sound(&fsck, &disk, &what);
        writeln!(out, "| {segments} | {segment_size} | {block_size} | {frag_size} |").unwrap();
    }
    netbsd_part("1-made", &out);
}

/// After random work on logs that stay as full as is wanted, with much cleaning.
#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_logs_that_are_cleaned() {
    let fsck = NetbsdFsck::new();
    let (mut cleaned, mut judged) = (0, 0);
    for (seed, shape) in (0..).zip(SHAPES) {
        for full in [0.5, 0.95, 2.0] {
            let executor = Executor::simulated(seed);
            let rt = executor.runtime();
            let ran = executor.block_on(async {
                let mut run = Run::new(rt, shape, seed, LfsRules::all()).await;
                run.fill(full).await;
                for round in 0..3 {
                    for _ in 0..700 {
                        run.step(full).await;
                    }
                    cleaned += run.fs.layout().cleaned().segments;
                    run.fs.unmount().await.expect("an unmount has space");
                    assert_sound(&fsck, &run.disk, &format!("{shape:?}, {full}, round {round}"));
                    judged += 1;
                    run.remount(false).await;
                }
            });
            ran.expect("no deadlock");
        }
    }
    assert!(cleaned > 100, "{cleaned}");
    let text = format!(
        "After random work on logs half full, nearly full and full, in which the cleaner moved {cleaned} segments, fsck_lfs\nfinds nothing in {judged} images.\n"
    );
    println!("{text}");
    netbsd_part("2-cleaned", &text);
}

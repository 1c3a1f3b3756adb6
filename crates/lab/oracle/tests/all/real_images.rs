//! Images by other software, read and changed; and images by Ordo, read by other software.
//!
//! Fault model: a misunderstanding of the format that Ordo's reader and writer share, which no test
//! of them alone can show. Judges: The Sleuth Kit, GRUB's reader, `dissect.ffs`. Writers: FreeBSD
//! and Debian's makefs.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_format::Endian;
use ordo_ordering::{NoOrder, OrderingPolicy, SyncOrder};
use ordo_runtime::{Executor, Runtime};
use ordo_testkit::{dissect, judge, judge_bytes, real_input};
use ordo_ufs::UfsConfig;
use ordo_vfs::tree::{self, Visit, Walk, WalkLimits};
use ordo_vfs::{FileSystem, FileType, Ino, NewNode, RenameMode, SetAttr, XattrMode, path};

const FREEBSD: &str = "images/freebsd-ufs2-little-endian.img";

type Fs = FastFs;

fn read_only() -> MountOptions {
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    MountOptions { ufs, ..MountOptions::default() }
}

async fn read_all<F: FileSystem>(fs: &F, ino: Ino) -> Vec<u8> {
    let size = fs.getattr(ino).await.unwrap().size;
    let mut contents = vec![0; size as usize];
    let n = fs.read(ino, 0, &mut contents).await.unwrap();
    assert_eq!(n as u64, size);
    contents
}

/// The largest file that is compared whole. Larger files are sparse, and only their ends are
/// compared.
const WHOLE_MAX: u64 = 32 << 20;

/// The contents of a file, or the first and last 64 KiB of one larger than `whole_max` bytes.
async fn sample<F: FileSystem>(fs: &F, ino: Ino, whole_max: u64) -> Vec<u8> {
    let size = fs.getattr(ino).await.unwrap().size;
    if size <= whole_max {
        return read_all(fs, ino).await;
    }
    let mut ends = vec![0; 128 << 10];
    let (first, last) = ends.split_at_mut(64 << 10);
    fs.read(ino, 0, first).await.unwrap();
    let n = last.len() as u64;
    assert_eq!(fs.read(ino, size - n, last).await.unwrap() as u64, n);
    ends
}

/// Every regular file by path, with its contents (a sample of huge ones).
async fn files<F: FileSystem>(fs: &F, whole_max: u64) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut walk = Walk::new(fs, fs.root(), WalkLimits::default()).await.unwrap();
    while let Some(visit) = walk.next().await.unwrap() {
        if let Visit::Enter(entry) = visit
            && entry.attr.file_type == FileType::Regular
        {
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            out.insert(name, sample(fs, entry.attr.ino, whole_max).await);
        }
    }
    out
}

/// The FreeBSD image has everything that its makers put there: every name, contents as The Sleuth
/// Kit reads them, holes, and 2,297 extended attributes on one file.
#[test]
fn freebsds_image_is_read_whole() {
    let Some(image) = real_input(FREEBSD) else { return };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::from_image(&image));
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("image");
    std::fs::write(&file, &image).unwrap();
    executor
        .block_on(async {
            let fs = mount(&rt, disk.clone(), NoOrder, &read_only()).await.unwrap();
            let all = files(&fs, WHOLE_MAX).await;
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            let expected = [
                "dir1/dir2/dir3/file2",
                "file1",
                "file3",
                "sparse",
                "sparse2",
                "sparse3",
                "xattrs",
                "xattrs2",
                "xattrs3",
            ];
            assert_eq!(names, expected);
            for (name, contents) in &all {
                let attr = path::lookup(&fs, name.as_bytes()).await.unwrap();
                if attr.size > WHOLE_MAX {
                    assert!(attr.blocks * 512 < 1 << 20, "{name} is sparse");
                    assert!(contents.iter().any(|b| *b != 0), "{name} has something at its ends");
                    continue;
                }
                let ino = attr.ino.to_string();
                let file = file.to_str().unwrap();
                if let Some(theirs) = judge_bytes("icat", &[file, &ino]) {
                    assert!(theirs == *contents, "{name}: The Sleuth Kit reads otherwise");
                }
            }
            let mut most = 0;
            for name in ["xattrs", "xattrs2", "xattrs3"] {
                let ino = path::lookup(&fs, name.as_bytes()).await.unwrap().ino;
                let list = fs.listxattr(ino).await.unwrap();
                most = most.max(list.len());
                for attribute in list {
                    fs.getxattr(ino, &attribute).await.unwrap();
                }
            }
            assert_eq!(most, 2297);
            let short = path::lookup_link(&fs, b"link1").await.unwrap();
            let long = path::lookup_link(&fs, b"long-link").await.unwrap();
            assert_eq!(fs.readlink(short.ino).await.unwrap().len() as u64, short.size);
            assert!(long.size >= 120);
            assert_eq!(fs.readlink(long.ino).await.unwrap().len() as u64, long.size);
            fs.unmount().await.unwrap();
            assert!(disk.to_vec() == image, "reading changed the image");
        })
        .unwrap();
}

/// Changes of every kind to an image by other software.
async fn change(fs: &Fs) {
    let root = fs.root();
    let dir = fs.create(root, b"new-dir", &NewNode::directory(0o755)).await.unwrap().ino;
    let contents: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let file = fs.create(dir, b"new-file", &NewNode::file(0o600)).await.unwrap().ino;
    assert_eq!(fs.write(file, 0, &contents).await.unwrap(), contents.len());
    fs.setxattr(file, b"user.colour", b"green", XattrMode::Set).await.unwrap();
    fs.create(dir, b"short", &NewNode::symlink(b"../new-dir")).await.unwrap();
    fs.create(dir, b"long", &NewNode::symlink(&[b'x'; 300])).await.unwrap();
    fs.link(file, root, b"second-name").await.unwrap();
    fs.rename(dir, b"new-file", root, b"moved", RenameMode::Replace).await.unwrap();
    let cut = SetAttr { size: Some(1234), ..SetAttr::default() };
    let victim = fs.create(root, b"cut", &NewNode::file(0o644)).await.unwrap().ino;
    fs.write(victim, 100_000, b"far").await.unwrap();
    fs.setattr(victim, &cut).await.unwrap();
}

async fn changed_as_asked<F: FileSystem>(fs: &F) {
    let moved = path::lookup(fs, b"moved").await.unwrap();
    let contents: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    assert_eq!((moved.links, read_all(fs, moved.ino).await == contents), (2, true));
    assert_eq!(fs.getxattr(moved.ino, b"user.colour").await.unwrap(), b"green");
    let long = path::lookup_link(fs, b"new-dir/long").await.unwrap();
    assert_eq!(fs.readlink(long.ino).await.unwrap(), [b'x'; 300]);
    let cut = path::lookup(fs, b"cut").await.unwrap();
    assert_eq!(read_all(fs, cut.ino).await, [0; 1234]);
}

async fn no_findings(disk: &Rc<RamDisk>, when: &str) {
    let checker = ordo_check::Checker::new(disk.clone(), ordo_check::FsckOptions::default());
    let report = checker.run().await.unwrap();
    assert!(report.findings.is_empty(), "{when}: {:#?}", report.findings);
}

async fn change_and_check<P: OrderingPolicy>(rt: &Runtime, image: &[u8], policy: fn() -> P) {
    let disk = Rc::new(RamDisk::from_image(image));
    no_findings(&disk, "as it came").await;
    let options = MountOptions { use_reserve: true, ..MountOptions::default() };
    let fs = mount(rt, disk.clone(), policy(), &options).await.unwrap();
    let before = files(&fs, WHOLE_MAX).await;
    change(&fs).await;
    fs.unmount().await.unwrap();
    no_findings(&disk, "after changes").await;
    let fs = mount(rt, disk.clone(), policy(), &options).await.unwrap();
    changed_as_asked(&fs).await;
    let after = files(&fs, WHOLE_MAX).await;
    assert!(before.iter().all(|(name, contents)| after[name] == *contents));
    for name in [&b"moved"[..], b"second-name", b"cut"] {
        fs.unlink(fs.root(), name).await.unwrap();
    }
    tree::remove(&fs, fs.root(), b"new-dir", WalkLimits::default()).await.unwrap();
    fs.unmount().await.unwrap();
    no_findings(&disk, "after removal").await;
    let fs = mount(rt, disk, policy(), &read_only()).await.unwrap();
    assert!(files(&fs, WHOLE_MAX).await == before);
}

/// Under each ordering, FreeBSD's image is changed and checked, then the change is reverted and the
/// image checked again.
#[test]
fn freebsds_image_is_changed_and_stays_sound() {
    let Some(image) = real_input(FREEBSD) else { return };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor
        .block_on(async {
            change_and_check(&rt, &image, || NoOrder).await;
            change_and_check(&rt, &image, SyncOrder::default).await;
        })
        .unwrap();
}

/// Debian's makefs puts its superblock elsewhere, writes no check-hashes and leaves no free space.
/// Its images are read, extended and checked.
#[test]
fn images_of_makefs_are_read_and_changed() {
    let temp = tempfile::tempdir().unwrap();
    let (tree, image) = (temp.path().join("tree"), temp.path().join("image"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i % 253) as u8).collect();
    std::fs::write(tree.join("a/large"), &large).unwrap();
    std::fs::write(tree.join("a/b/small"), b"small").unwrap();
    for order in ["le", "be"] {
        let (image, tree) = (image.to_str().unwrap(), tree.to_str().unwrap());
        let args = ["-t", "ffs", "-B", order, "-o", "version=2", "-s", "16m", image, tree];
        if judge("makefs", &args).is_none() {
            return;
        }
        let bytes = std::fs::read(image).unwrap();
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        executor
            .block_on(async {
                let disk = Rc::new(RamDisk::from_image(&bytes));
                let fs = mount(&rt, disk, NoOrder, &read_only()).await.unwrap();
                let all = files(&fs, WHOLE_MAX).await;
                assert!(all["a/large"] == large && all["a/b/small"] == b"small");
                change_and_check(&rt, &bytes, || NoOrder).await;
                change_and_check(&rt, &bytes, SyncOrder::default).await;
            })
            .unwrap();
    }
}

/// A tree with every feature of the format: every size of file, links, holes, many entries.
async fn fill<F: FileSystem>(fs: &F, block: u64) -> BTreeMap<String, Vec<u8>> {
    let root = fs.root();
    let frag = block / 8;
    let sizes = [
        0,
        1,
        frag,
        frag + 1,
        block - 1,
        block,
        3 * block + frag,
        12 * block,
        12 * block + 1,
        40 * block + 7,
    ];
    for (i, size) in sizes.into_iter().enumerate() {
        let name = format!("size-{size}");
        let ino = fs.create(root, name.as_bytes(), &NewNode::file(0o644)).await.unwrap().ino;
        let contents: Vec<u8> = (0..size).map(|j| (j * 31 + i as u64) as u8 | 1).collect();
        fs.write(ino, 0, &contents).await.unwrap();
    }
    // The file reaches into the double indirect block, with a hole before it.
    let double = (12 + block / 8 + 5) * block;
    let ino = fs.create(root, b"sparse", &NewNode::file(0o644)).await.unwrap().ino;
    fs.write(ino, 5, b"start").await.unwrap();
    fs.write(ino, double, b"far away").await.unwrap();
    let many = fs.create(root, b"many", &NewNode::directory(0o755)).await.unwrap().ino;
    for i in 0..700 {
        let name = format!("entry-{i}-{}", "n".repeat(i % 120));
        let ino = fs.create(many, name.as_bytes(), &NewNode::file(0o600)).await.unwrap().ino;
        fs.write(ino, 0, name.as_bytes()).await.unwrap();
    }
    // The directory gets holes, some of which are filled again.
    for i in (0..700).step_by(3) {
        let name = format!("entry-{i}-{}", "n".repeat(i % 120));
        fs.unlink(many, name.as_bytes()).await.unwrap();
    }
    let target = path::lookup(fs, b"size-1").await.unwrap().ino;
    fs.link(target, many, b"another-name").await.unwrap();
    fs.create(root, b"short-link", &NewNode::symlink(b"many/another-name")).await.unwrap();
    files(fs, u64::MAX).await
}

/// Three readers by other authors see all that Ordo writes: every name, every byte.
#[test]
fn others_read_what_ordo_wrote() {
    for (block, frag, endian) in [
        (32768u32, 4096u32, Endian::Little),
        (8192, 1024, Endian::Little),
        (8192, 1024, Endian::Big),
    ] {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        // The Sleuth Kit refuses a hole that is longer than the disk.
        let disk = Rc::new(RamDisk::new(u64::from(block) * 5200));
        let all = executor
            .block_on(async {
                let options = MkfsOptions {
                    block_size: block,
                    frag_size: frag,
                    endian,
                    ..MkfsOptions::default()
                };
                mkfs(&disk.clone().erase(), &options, rt.wall_time().0).await.unwrap();
                let fs =
                    mount(&rt, disk.clone(), SyncOrder::default(), &MountOptions::default()).await;
                let fs = fs.unwrap();
                let all = fill(&fs, u64::from(block)).await;
                fs.unmount().await.unwrap();
                no_findings(&disk, "as written").await;
                all
            })
            .unwrap();
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("image");
        std::fs::write(&file, disk.to_vec()).unwrap();
        let file = file.to_str().unwrap();
        sleuth_kit_agrees(file, &all);
        if endian == Endian::Little {
            grub_agrees(file, &all);
            dissect_agrees(file, &all);
        }
    }
}

/// `fls` lists the names with their inodes, `icat` gives the contents.
fn sleuth_kit_agrees(image: &str, all: &BTreeMap<String, Vec<u8>>) {
    let Some(listing) = judge("fls", &["-r", "-p", "-u", "-F", image]) else { return };
    let mut theirs = BTreeMap::new();
    for line in listing.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let (ino, name) = rest.split_once(":\t").unwrap();
        if kind == "r/r" {
            theirs.insert(name.to_owned(), ino.to_owned());
        }
    }
    assert_eq!(theirs.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    // Files of every kind of size are chosen, and a sample of the many small ones.
    let chosen =
        theirs.iter().enumerate().filter(|(i, (n, _))| !n.starts_with("many") || i % 40 == 0);
    for (_, (name, ino)) in chosen {
        let contents = judge_bytes("icat", &[image, ino]).expect("installed beside fls");
        assert!(contents == all[name], "{name}: icat reads otherwise");
    }
}

fn grub_agrees(image: &str, all: &BTreeMap<String, Vec<u8>>) {
    for name in ["size-0", "size-1"].into_iter().chain(all.keys().map(String::as_str)) {
        if name.starts_with("many/entry") {
            continue;
        }
        let args = [image, "cat", &format!("/{name}")];
        let Some(contents) = judge_bytes("grub-fstest", &args) else { return };
        assert!(contents == all[name], "{name}: GRUB reads otherwise");
    }
}

/// One line for each file: path, size, and a hash that is easy to compute in both languages.
const DISSECT_WALK: &str = r#"
import sys, zlib
from dissect.ffs import FFS
fs = FFS(open(sys.argv[1], "rb"))
def walk(node, path):
    for child in node.iterdir():
        name = child.name
        # Free space that once was an entry keeps its name, here as on FreeBSD; inode 0 marks it.
        if name in (".", "..") or child.inum == 0:
            continue
        if child.is_dir():
            walk(child, path + name + "/")
        elif child.is_file():
            data = child.open().read()
            print(len(data), zlib.adler32(data), path + name)
walk(fs.get("/"), "")
"#;

fn dissect_agrees(image: &str, all: &BTreeMap<String, Vec<u8>>) {
    let Some(listing) = dissect(DISSECT_WALK, &[image]) else { return };
    let theirs: BTreeMap<String, (usize, u32)> = listing
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next().unwrap().parse::<u64>().unwrap();
            let (size, sum) = (number() as usize, number() as u32);
            (words.next().unwrap().to_owned(), (size, sum))
        })
        .collect();
    let ours: BTreeMap<String, (usize, u32)> =
        all.iter().map(|(n, c)| (n.clone(), (c.len(), adler32(c)))).collect();
    assert_eq!(theirs, ours);
}

/// Adler's checksum, as in Python's zlib.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for chunk in bytes.chunks(5552) {
        for byte in chunk {
            a += u32::from(*byte);
            b += a;
        }
        (a, b) = (a % 65521, b % 65521);
    }
    b << 16 | a
}

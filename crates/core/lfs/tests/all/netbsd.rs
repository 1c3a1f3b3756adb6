//! Images that NetBSD's own kernel wrote, compared byte for byte with their manifests.
//!
//! NetBSD's own code made the manifests, from the same images, mounted: names, attributes, and a
//! SHA-256 of every file's contents. Would catch any misunderstanding of the format that Ordo's
//! reader and writer share, and a roll-forward that loses or invents something.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_lfs::{LfsReader, LogEnd};
use ordo_runtime::Executor;
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{Attr, FileSystem, FileType};

fn image(name: &str) -> Option<Vec<u8>> {
    ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img"))
}

/// The lines of a manifest, which is unpacked beside the images.
fn manifest(name: &str) -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared");
    let shared = std::env::var("ORDO_SHARED").unwrap_or_else(|_| root.into());
    let text = std::fs::read_to_string(format!("{shared}/images/netbsd-lfs/{name}.txt")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn mount(image: &[u8]) -> LfsReader {
    let disk = RamDisk::from_image(image);
    Executor::simulated(1).block_on(LfsReader::mount(disk)).unwrap().unwrap()
}

/// The SHA-256 of each contents, by the tool `sha256sum`.
fn sha256(contents: &[Vec<u8>]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut names = Vec::new();
    for (i, bytes) in contents.iter().enumerate() {
        std::fs::write(folder.join(i.to_string()), bytes).unwrap();
        names.push(i.to_string());
    }
    let mut child = Command::new("xargs")
        .args(["sha256sum", "--"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(names.join("\n").as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let sums = String::from_utf8(out.stdout).unwrap();
    sums.lines().map(|l| l.split_whitespace().next().unwrap().to_owned()).collect()
}

/// A line of a manifest without its last part: the sum, or the target.
fn line(attr: &Attr, path: &str) -> String {
    let kind = match attr.file_type {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Whiteout => 'w',
    };
    let time = attr.mtime;
    format!(
        "{kind} {:04o} nlink={} uid={} gid={} ino={} gen=0 size={} blocks={} mtime={}.{:09} {path} ",
        attr.permissions,
        attr.links,
        attr.uid,
        attr.gid,
        attr.ino,
        attr.size,
        attr.blocks,
        time.seconds,
        time.nanos
    )
}

async fn contents(fs: &LfsReader, attr: &Attr) -> Vec<u8> {
    let mut out = vec![0xa5; attr.size as usize];
    let mut at = 0;
    // An odd size makes reads begin and end inside of blocks and fragments.
    while at < out.len() {
        let end = out.len().min(at + 100_003);
        at += fs.read(attr.ino, at as u64, &mut out[at..end]).await.unwrap();
    }
    out
}

/// The whole tree in the form of a manifest.
async fn tree(fs: &LfsReader) -> Vec<String> {
    let mut lines = vec![line(&fs.getattr(fs.root()).await.unwrap(), "/")];
    let mut files = Vec::new();
    let mut walk = Walk::new(fs, fs.root(), WalkLimits::default()).await.unwrap();
    while let Some(visit) = walk.next().await.unwrap() {
        let Visit::Enter(entry) = visit else { continue };
        let path = format!("/{}", String::from_utf8(entry.path).unwrap().trim_start_matches('/'));
        let mut text = line(&entry.attr, &path);
        match entry.attr.file_type {
            FileType::Regular => files.push((lines.len(), contents(fs, &entry.attr).await)),
            FileType::Symlink => {
                let target = fs.readlink(entry.attr.ino).await.unwrap();
                text.push_str(&String::from_utf8(target).unwrap());
            }
            FileType::CharDevice | FileType::BlockDevice => {
                text.push_str(&format!("rdev={:#x}", entry.attr.rdev));
            }
            _ => {}
        }
        lines.push(text);
    }
    let (places, bytes): (Vec<usize>, Vec<Vec<u8>>) = files.into_iter().unzip();
    for (place, sum) in places.iter().zip(sha256(&bytes)) {
        lines[*place].push_str(&sum);
    }
    lines.sort();
    lines
}

fn assert_tree(image: &[u8], manifest_name: &str) {
    let fs = mount(image);
    let found = Executor::simulated(1).block_on(tree(&fs)).unwrap();
    let mut wanted = manifest(manifest_name);
    wanted.sort();
    let by_path = |lines: &[String]| -> BTreeMap<String, String> {
        lines.iter().map(|l| (l.split(' ').nth(9).unwrap().to_owned(), l.clone())).collect()
    };
    let (have, want) = (by_path(&found), by_path(&wanted));
    for (path, line) in &want {
        assert_eq!(have.get(path), Some(line), "{manifest_name}");
    }
    assert_eq!(found, wanted);
}

/// Every unmounted image has the contents of its manifest: fragments, indirect blocks of two
/// levels, holes, links, symbolic links inside and outside of the inode, device nodes, in both
/// widths.
#[test]
fn unmounted_images_are_as_their_manifests_say() {
    for name in ["fresh64-8k", "tree64-8k", "tree32-8k", "full64-8k"] {
        let Some(image) = image(name) else { return };
        assert_tree(&image, &format!("{name}.manifest"));
        assert_eq!(mount(&image).rolled_forward().end, LogEnd::Clean);
    }
}

/// An image was copied while it was in use. Rolled forward, it is the tree at the time of the copy.
/// With the log cut off behind the checkpoint it is the tree at the checkpoint, which shows the
/// effect of the roll-forward.
#[test]
fn a_copy_in_use_is_rolled_forward() {
    let Some(mut image) = image("cut64-8k") else { return };
    assert_tree(&image, "cut64-8k.live");
    let fs = mount(&image);
    assert_eq!((fs.rolled_forward().partial_segments, fs.rolled_forward().serial), (12, 19));
    let sb = fs.superblock().clone();
    let behind = sb.byte_of(sb.offset) as usize;
    image[behind + 8] ^= 1;
    assert_tree(&image, "cut64-8k.ckpt");
    // An image that is marked clean has that tree too: nothing behind the checkpoint is searched.
    image[behind + 8] ^= 1;
    let mut clean = sb;
    clean.pflags |= PF_CLEAN;
    clean.write(&mut image[8192..8704]);
    assert_tree(&image, "cut64-8k.ckpt");
}

/// A log that ends early: a damaged partial segment ends the log, with all that follow, but none
/// before it is lost.
#[test]
fn a_torn_partial_segment_ends_the_log() {
    let Some(image) = image("cut64-8k") else { return };
    let fs = mount(&image);
    let sb = fs.superblock().clone();
    let mut at = sb.offset;
    for count in 0..12 {
        let mut torn = image.clone();
        // The sum of the data covers the first block behind the summary.
        torn[sb.byte_of(at + 1) as usize] ^= 0x10;
        let cut = mount(&torn);
        assert_eq!(cut.rolled_forward().partial_segments, count);
        assert!(matches!(cut.rolled_forward().end, LogEnd::Torn(_)));
        let summary = ordo_format::lfs::Summary::read(&sb, &image[sb.byte_of(at) as usize..]);
        at = summary.unwrap().layout(&sb, at).unwrap().1;
    }
    assert_eq!(fs.rolled_forward().end, LogEnd::Nothing);
}

/// The check rolls forward on disk, by its own code, to the same tree as the mount: at every
/// partial segment behind which a crash can cut off the log, also between a file's blocks and its
/// inode.
#[test]
fn the_mount_and_the_check_roll_forward_alike() {
    let Some(image) = image("cut64-8k") else { return };
    let sb = mount(&image).superblock().clone();
    let base = RamDisk::from_image(&image);
    let executor = || Executor::simulated(1);
    let read = |disk: &Rc<RamDisk>| {
        let fs = executor().block_on(LfsReader::mount(disk.clone())).unwrap().unwrap();
        executor().block_on(tree(&fs)).unwrap()
    };
    let (mut at, mut trees) = (sb.offset, BTreeSet::new());
    for count in 0..12 {
        let disk = Rc::new(base.snapshot());
        disk.store(sb.byte_of(at) + 8, &[0; 4]);
        let before = read(&disk);
        let checker = LfsChecker::new(disk.clone(), Repair::Yes);
        let report = executor().block_on(checker.run()).unwrap().unwrap();
        assert!(report.is_consistent(), "{report}");
        assert_eq!(report.log.partial_segments, count);
        let checker = LfsChecker::new(disk.clone(), Repair::No);
        let report = executor().block_on(checker.run()).unwrap().unwrap();
        assert!(report.is_consistent() && report.log.partial_segments == 0, "{report}");
        assert_eq!(read(&disk), before, "cut behind {count}");
        trees.insert(before);
        let summary = ordo_format::lfs::Summary::read(&sb, &image[sb.byte_of(at) as usize..]);
        at = summary.unwrap().layout(&sb, at).unwrap().1;
    }
    assert!(trees.len() > 6, "cuts make a difference: {}", trees.len());
}

/// Of two superblocks the one with the higher serial number counts, unless it is torn. If the first
/// one is gone, the second is found.
#[test]
fn the_newest_whole_superblock_counts() {
    let Some(image) = image("cut64-8k") else { return };
    let sb = mount(&image).superblock().clone();
    let second = sb.byte_of(sb.sboffs[1]) as usize;
    let mut newer = sb.clone();
    newer.serial += 1;
    let mut both = image.clone();
    newer.write(&mut both[second..second + 512]);
    assert_eq!(mount(&both).superblock().serial, sb.serial + 1);
    both[second + 100] ^= 1;
    assert_eq!(mount(&both).superblock().serial, sb.serial);
    let mut gone = image;
    gone[8192..8704].fill(0);
    assert_eq!(mount(&gone).superblock().serial, sb.serial);
}

//! An LFS of Ordo's with files of every kind, after some work: names as in NetBSD's tree of files,
//! so that the same damage can be planted.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{LogFs, MountOptions, mount};
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, FileType, Ino, NewNode, RenameMode, SetAttr};

async fn file(fs: &LogFs, dir: Ino, name: &str, bytes: usize) -> Ino {
    let made = fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await;
    let ino = made.expect("there is space").ino;
    if bytes > 0 {
        let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        assert_eq!(fs.write(ino, 0, &data).await.expect("there is space"), bytes);
    }
    ino
}

async fn directory(fs: &LogFs, dir: Ino, name: &str) -> Ino {
    let made = fs.create(dir, name.as_bytes(), &NewNode::directory(0o755)).await;
    made.expect("there is space").ino
}

async fn work(fs: &LogFs) {
    let root = fs.root();
    let big = directory(fs, root, "bigdir").await;
    for number in 1..=900 {
        let long = "n".repeat(number % 90);
        let name = if number < 9 { String::new() } else { long };
        file(fs, big, &format!("f{number:05}{name}"), number % 7 * 500).await;
    }
    // Room for names of inodes that lose theirs.
    let lost = directory(fs, root, "lost+found").await;
    for number in 0..60 {
        let name = format!("room-for-a-name-{number}");
        file(fs, lost, &name, 0).await;
    }
    for number in 0..60 {
        let name = format!("room-for-a-name-{number}");
        fs.unlink(lost, name.as_bytes()).await.expect("it is there");
    }
    let deep = directory(fs, directory(fs, root, "deep").await, "deeper").await;
    file(fs, deep, "leaf", 777).await;
    let large = file(fs, root, "large", 300_000).await;
    for at in [20 << 20, 3 << 30] {
        fs.write(large, at, b"behind a hole").await.expect("there is space");
    }
    for (name, target) in [("short", 30), ("long", 119), ("longer", 120), ("longest", 900)] {
        let target = "t".repeat(target);
        let link = NewNode::symlink(target.as_bytes());
        fs.create(root, name.as_bytes(), &link).await.expect("there is space");
    }
    for (name, file_type) in
        [("fifo", FileType::Fifo), ("sock", FileType::Socket), ("null", FileType::CharDevice)]
    {
        let node = NewNode { file_type, rdev: 0x0103, ..NewNode::file(0o600) };
        fs.create(root, name.as_bytes(), &node).await.expect("there is space");
    }
    fs.sync().await.expect("a healthy device");
    for number in (101..400).step_by(3) {
        let name = format!("f{number:05}{}", "n".repeat(number % 90));
        fs.unlink(big, name.as_bytes()).await.expect("it is there");
    }
    fs.link(large, deep, b"twin").await.expect("there is space");
    fs.rename(deep, b"leaf", root, b"moved", RenameMode::Replace).await.expect("it is there");
    let cut = file(fs, root, "cut", 200_000).await;
    let set = SetAttr { size: Some(5_000), ..SetAttr::default() };
    fs.setattr(cut, &set).await.expect("there is space");
}

/// An unmounted LFS64 of 24 MB.
pub fn made(block_size: u32, frag_size: u32) -> RamDisk {
    let disk = Rc::new(RamDisk::new(24 << 20));
    let options =
        MkfsOptions { block_size, frag_size, segment_size: 256 << 10, ..MkfsOptions::default() };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let done = executor.block_on(async {
        mkfs(disk.clone().erase(), &options, 1_700_000_000).await.expect("legal sizes");
        let mounted = mount(&rt, disk.clone(), &MountOptions::default()).await;
        let fs = mounted.expect("just made");
        work(&fs).await;
        fs.unmount().await.expect("a healthy device");
    });
    done.expect("no deadlock");
    disk.snapshot()
}

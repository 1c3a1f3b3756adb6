//! A mount lets a user make only what the check accepts: each limit of each format is found by
//! trying; what was made there passes the check, and is unchanged at the next mount.
//!
//! Fault model: a limit that stands in two places with two values. The mount once allowed 65,500
//! links and the check 32,767: a sound disk failed the check, could not be repaired, and could not
//! be mounted after a crash.

use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_runtime::{Executor, Runtime};
use ordo_systems::{CheckOptions, MakeOptions, MountOptions, System, dualfs, ffs, journaled, lfs};
use ordo_vfs::{
    AnyFs, Attr, FileSystem, FileType, Ino, NewNode, SetAttr, SetTime, Timestamp, XattrMode,
};

const FILE: NewNode<'static> = NewNode::file(0o7777);

/// The largest number that is accepted. All up to it are, and 0 is.
async fn largest(above: u64, mut accepts: impl AsyncFnMut(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, above);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match accepts(middle).await {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

/// Makes names for one file, and directories in one directory, until no more are allowed. Returns
/// the numbers.
async fn most_links(fs: &AnyFs, directories: u32) -> (u32, u32) {
    let root = fs.root();
    let file = fs.create(root, b"linked", &FILE).await.unwrap().ino;
    let names = fs.create(root, b"names", &NewNode::directory(0o755)).await.unwrap().ino;
    let mut links = 1;
    while fs.link(file, names, links.to_string().as_bytes()).await.is_ok() {
        links += 1;
        // Soft updates looks for one of an inode's names that are not on disk among all of them.
        if links % 1000 == 0 {
            fs.sync().await.unwrap();
        }
    }
    let parent = fs.create(root, b"parent", &NewNode::directory(0o755)).await.unwrap().ino;
    let mut inside = 0;
    while inside < directories {
        let name = inside.to_string();
        match fs.create(parent, name.as_bytes(), &NewNode::directory(0o755)).await {
            Ok(_) => inside += 1,
            Err(_) => break,
        }
    }
    (links, inside)
}

/// Makes files with the longest names and targets.
async fn make_long(fs: &AnyFs) {
    let root = fs.root();
    let name = async |len: u64| {
        let name = vec![0xff; len as usize];
        let made = len > 0 && fs.create(root, &name, &FILE).await.is_ok();
        if made {
            fs.unlink(root, &name).await.unwrap();
        }
        made || len == 0
    };
    let longest = largest(2000, name).await;
    assert!(longest >= 255);
    fs.create(root, &vec![0xff; longest as usize], &FILE).await.unwrap();

    let target = async |len: u64| {
        let target = vec![b't'; len as usize];
        let made = fs.create(root, b"link", &NewNode::symlink(&target)).await.is_ok();
        if made {
            fs.unlink(root, b"link").await.unwrap();
        }
        made || len == 0
    };
    let longest = largest(70_000, target).await;
    for len in [59, 60, 61, 119, 120, 121, longest] {
        let target = vec![b't'; len as usize];
        fs.create(root, format!("link-{len}").as_bytes(), &NewNode::symlink(&target))
            .await
            .unwrap();
    }
}

/// Makes files of the largest sizes, and with the most attributes.
async fn make_large(fs: &AnyFs) {
    let root = fs.root();
    let file = fs.create(root, b"large", &FILE).await.unwrap().ino;
    let set = async |set: SetAttr| fs.setattr(file, &set).await.is_ok();
    let size =
        largest(u64::MAX, async |n| set(SetAttr { size: Some(n), ..SetAttr::default() }).await)
            .await;
    assert!(size > 1 << 30, "{size}");
    assert_eq!(fs.write(file, size - 1, b"x").await.unwrap(), 1);
    let end = fs.create(root, b"end", &FILE).await.unwrap().ino;
    let written = largest(u64::MAX, async |at| fs.write(end, at, b"x").await.is_ok()).await;
    assert_eq!(written, size - 1, "a write reaches as far as a truncation");

    let fits = async |n: u64| {
        fs.setxattr(file, b"user.v", &vec![1; n as usize], XattrMode::Set).await.is_ok()
    };
    let value = largest(1 << 17, fits).await;
    // A format without attributes refuses the empty one too.
    let _ = fs.setxattr(file, b"user.v", &vec![1; value as usize], XattrMode::Set).await;
    for n in 0..2000 {
        if fs.setxattr(end, format!("user.{n}").as_bytes(), &[], XattrMode::Set).await.is_err() {
            break;
        }
    }
}

/// Makes files with the first and last times, and with the largest numbers, as far as they are
/// taken.
async fn make_extremes(fs: &AnyFs) {
    let root = fs.root();
    for (n, seconds) in
        [i64::MIN, i32::MIN.into(), -1, i32::MAX.into(), 1 << 33, i64::MAX].into_iter().enumerate()
    {
        let made = fs.create(root, format!("time-{n}").as_bytes(), &FILE).await.unwrap().ino;
        let time = Timestamp { seconds, nanos: 999_999_999 };
        let all = SetAttr {
            atime: Some(SetTime::To(time)),
            mtime: Some(SetTime::To(time)),
            ..SetAttr::default()
        };
        let _ = fs.setattr(made, &all).await;
        let _ = fs.setattr(made, &SetAttr { birthtime: Some(time), ..SetAttr::default() }).await;
    }
    for number in [1 << 16, u64::from(u32::MAX) - 1, u32::MAX.into(), u64::MAX - 1, u64::MAX] {
        for file_type in [FileType::CharDevice, FileType::BlockDevice] {
            let device = NewNode { file_type, rdev: number, ..FILE };
            let _ = fs.create(root, format!("{file_type:?}-{number}").as_bytes(), &device).await;
        }
    }
    let owner = SetAttr { uid: Some(u32::MAX), gid: Some(u32::MAX), ..SetAttr::default() };
    let owned = fs.create(root, b"owned", &FILE).await.unwrap().ino;
    let _ = fs.setattr(owned, &owner).await;
    for bit in 0..32 {
        let made = fs.create(root, format!("flag-{bit}").as_bytes(), &FILE).await.unwrap().ino;
        let _ = fs.setattr(made, &SetAttr { flags: Some(1 << bit), ..SetAttr::default() }).await;
    }
}

/// All names in the root, with attributes and targets.
async fn listing(fs: &AnyFs) -> Vec<(Vec<u8>, Attr, Option<Vec<u8>>)> {
    let mut names: Vec<(Vec<u8>, Ino)> = Vec::new();
    let add = &mut |entry: ordo_vfs::DirEntry<'_>| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    };
    fs.readdir(fs.root(), ordo_vfs::Cookie::START, add).await.unwrap();
    names.sort();
    let mut all = Vec::new();
    for (name, ino) in names.into_iter().filter(|(name, _)| !name.starts_with(b".")) {
        let attr = fs.getattr(ino).await.unwrap();
        let target = match attr.file_type {
            FileType::Symlink => Some(fs.readlink(ino).await.unwrap()),
            _ => None,
        };
        all.push((name, attr, target));
    }
    all
}

async fn check(system: System, disks: &[Device]) {
    let report = system.format().check(disks, &CheckOptions::default()).await.unwrap();
    assert!(report.is_consistent(), "{}: {report}", system.name());
}

/// Makes everything at its limit, checks it, looks at it after another mount, and checks again.
async fn at_the_limits(rt: &Runtime, system: System, made: &MakeOptions, directories: u32) {
    let name = system.name();
    let sizes = system.devices(256 << 20, 512);
    let rams: Vec<_> = sizes.into_iter().map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    let disks = Device::of_each(&rams);
    system.make(rt, &disks, made).await.unwrap();
    let mounted = system.mount(rt, &disks, &MountOptions::default()).await.unwrap();
    let (links, inside) = most_links(mounted.fs(), directories).await;
    assert!(links >= 32_767 && inside >= directories.min(32_765), "{name}: {links}, {inside}");
    make_long(mounted.fs()).await;
    make_large(mounted.fs()).await;
    make_extremes(mounted.fs()).await;
    let before = listing(mounted.fs()).await;
    mounted.unmount().await.unwrap();
    check(system, &disks).await;

    let again = system.mount(rt, &disks, &MountOptions::default()).await.unwrap();
    let fs = again.fs();
    assert_eq!(listing(fs).await, before, "{name}");
    let names = fs.lookup(fs.root(), b"names").await.unwrap().ino;
    fs.unlink(names, b"1").await.unwrap();
    let file = fs.lookup(fs.root(), b"linked").await.unwrap();
    assert_eq!(file.links, links - 1, "{name}");
    again.unmount().await.unwrap();
    check(system, &disks).await;
}

/// Runs on each format, and on each family of orderings of FFS. Directories of as many directories
/// as a link count allows are made where they are small.
#[test]
fn whatever_a_mount_lets_one_make_the_check_accepts() {
    let small = MakeOptions {
        block_size: Some(4096),
        frag_size: Some(512),
        inodes: Some(80_000),
        ..MakeOptions::default()
    };
    let ufs1 = MakeOptions { ufs1: true, ..small.clone() };
    let log = MakeOptions { segment_size: Some(128 << 10), ..MakeOptions::default() };
    let usual = MakeOptions::default();
    let cases = [
        (ffs::NONE, &small, 70_000),
        (ffs::NONE, &ufs1, 70_000),
        (ffs::SOFT_UPDATES, &usual, 10),
        (journaled::WAFS_1ASYNC, &usual, 10),
        (lfs::LFS, &log, 10),
        (dualfs::DUALFS, &usual, 10),
    ];
    for (system, made, directories) in cases {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        executor.block_on(at_the_limits(&rt, system, made, directories)).unwrap();
    }
}

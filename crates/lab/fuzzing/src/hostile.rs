//! Hostile images: mounts any image, reads everything, changes a little.
//!
//! No input may cause a panic, an endless wait or loop, or memory use out of proportion to the
//! image; errors are valid results. A bug panics, so that a fuzzer sees it.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::{NoOrder, Ordering, SyncOrder};
use ordo_runtime::{Executor, Runtime};
use ordo_ufs::UfsConfig;
use ordo_vfs::{
    Attr, Cookie, Errno, FileSystem, FileType, FsError, FsResult, Ino, NewNode, RenameMode,
    SetAttr, XattrMode, name,
};

/// The greatest number of names in a walk.
const ENTRIES_MAX: usize = 3000;
/// The greatest number of bytes of a file that are read at once.
const READ_MAX: usize = 128 << 10;
/// The greatest number of extended attributes that are read of an inode.
const ATTRIBUTES_MAX: usize = 100;
/// The greatest number of errors that are kept.
const ERRORS_MAX: usize = 1000;

/// The results of a walk.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The reason why the image could not be mounted, if it could not.
    pub refused: Option<String>,
    /// The number of names met.
    pub entries: usize,
    /// The number of file bytes read.
    pub bytes: u64,
    /// The errors of the walk and of the changes; the first thousand.
    pub errors: Vec<FsError>,
}

impl Seen {
    fn note<T>(&mut self, result: FsResult<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if self.errors.len() < ERRORS_MAX {
                    self.errors.push(error);
                }
                None
            }
        }
    }
}

/// A name that a walk met.
struct Met {
    dir: Ino,
    name: Vec<u8>,
    attr: Attr,
}

fn options(read_only: bool) -> MountOptions {
    MountOptions {
        ufs: UfsConfig { read_only, inodes_max: 64, ..UfsConfig::default() },
        cache: CacheConfig::with_capacity(4 << 20),
        use_reserve: true,
        force: true,
        ..MountOptions::default()
    }
}

/// Mounts an image read-only and reads everything. Then mounts a copy read-write, under each
/// ordering, and changes a little.
///
/// # Panics
/// On a bug. Damage of the image is in the result instead.
pub fn walk_image(image: &RamDisk) -> Seen {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let mut seen = Seen::default();
        let disk = Rc::new(image.snapshot());
        match mount(&rt, disk.clone(), NoOrder, &options(true)).await {
            Err(error) => seen.refused = Some(error.to_string()),
            Ok(fs) => {
                walk(&fs, &mut seen).await;
                let unmounted = fs.unmount().await;
                assert!(unmounted.is_ok(), "{unmounted:?}");
            }
        }
        assert!(disk.to_vec() == image.to_vec(), "reading changes nothing");
        change_copy(&rt, image, NoOrder, &mut seen).await;
        change_copy(&rt, image, SyncOrder::default(), &mut seen).await;
        seen
    };
    executor.block_on(run).unwrap_or_else(|deadlock| panic!("{deadlock}"))
}

/// Reads everything, within bounds.
async fn walk<F: FileSystem>(fs: &F, seen: &mut Seen) -> Vec<Met> {
    let space = fs.statfs().await;
    seen.note(space);
    let mut all: Vec<Met> = Vec::new();
    let mut known = BTreeSet::from([fs.root()]);
    let mut dirs = VecDeque::from([fs.root()]);
    while let Some(dir) = dirs.pop_front() {
        let mut names = Vec::new();
        let listed = fs
            .readdir(dir, Cookie::START, &mut |entry| {
                names.push(entry.name.to_vec());
                names.len() < ENTRIES_MAX
            })
            .await;
        seen.note(listed);
        for name in names {
            let found = fs.lookup(dir, &name).await;
            let Some(attr) = seen.note(found) else { continue };
            if name::is_dot(&name) || all.len() >= ENTRIES_MAX {
                continue;
            }
            seen.entries += 1;
            all.push(Met { dir, name, attr });
            if known.insert(attr.ino) {
                look(fs, &attr, seen).await;
                if attr.file_type == FileType::Directory {
                    dirs.push_back(attr.ino);
                }
            }
        }
    }
    all
}

/// Reads an inode's contents: both ends of a file, a link's target, attributes.
async fn look<F: FileSystem>(fs: &F, attr: &Attr, seen: &mut Seen) {
    let ino = attr.ino;
    match attr.file_type {
        FileType::Regular => {
            let mut bytes = vec![0; READ_MAX];
            let middle = attr.size / 2;
            let end = attr.size.saturating_sub(READ_MAX as u64 / 2);
            for at in [0, READ_MAX as u64, middle, end] {
                let read = fs.read(ino, at, &mut bytes).await;
                seen.bytes += seen.note(read).unwrap_or(0) as u64;
            }
        }
        FileType::Symlink => {
            let target = fs.readlink(ino).await;
            seen.note(target);
        }
        _ => {}
    }
    let list = fs.listxattr(ino).await;
    for attribute in seen.note(list).unwrap_or_default().iter().take(ATTRIBUTES_MAX) {
        match fs.getxattr(ino, attribute).await {
            // A stored name may be one that cannot be looked up.
            Err(e) if matches!(e.errno, Errno::Invalid | Errno::NameTooLong) => {}
            value => drop(seen.note(value)),
        }
    }
}

async fn change_copy(rt: &Runtime, image: &RamDisk, policy: impl Into<Ordering>, seen: &mut Seen) {
    let disk = Rc::new(image.snapshot());
    let Ok(fs) = mount(rt, disk, policy, &options(false)).await else { return };
    let all = walk(&fs, &mut Seen::default()).await;
    make(&fs, seen).await;
    change(&fs, &all, seen).await;
    let synced = fs.sync().await;
    seen.note(synced);
    remove(&fs, &all, seen).await;
    // Damage may keep the file system from being marked clean.
    let unmounted = fs.unmount().await;
    seen.note(unmounted);
}

/// Creates new files, enough to ask the bitmaps for fragments, blocks, inodes and clusters.
async fn make<F: FileSystem>(fs: &F, seen: &mut Seen) {
    let root = fs.root();
    let dir = fs.create(root, b"new directory", &NewNode::directory(0o700)).await;
    let dir = seen.note(dir).map_or(root, |attr| attr.ino);
    for i in 0..20 {
        let name = format!("a new file with a long name, number {i}");
        let file = fs.create(dir, name.as_bytes(), &NewNode::file(0o600)).await;
        let Some(file) = seen.note(file) else { continue };
        let written = fs.write(file.ino, 0, &vec![7; 700 * (i * i + 1)]).await;
        seen.note(written);
    }
    let link = fs.create(dir, b"link", &NewNode::symlink(&[b'l'; 400])).await;
    seen.note(link);
}

/// Changes some of the existing files.
async fn change<F: FileSystem>(fs: &F, all: &[Met], seen: &mut Seen) {
    let root = fs.root();
    for (i, met) in all.iter().take(40).enumerate() {
        let ino = met.attr.ino;
        let value = fs.setxattr(ino, b"user.new", &[1; 300], XattrMode::Set).await;
        seen.note(value);
        if met.attr.file_type == FileType::Regular {
            let at = if i % 2 == 0 { met.attr.size } else { met.attr.size / 2 };
            let written = fs.write(ino, at, &[3; 20_000]).await;
            seen.note(written);
            let size = Some(met.attr.size / 3);
            let cut = fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).await;
            seen.note(cut);
        }
        let new = format!("moved {i}");
        let linked = fs.link(ino, root, new.as_bytes()).await;
        seen.note(linked);
        let moved = fs.rename(met.dir, &met.name, root, new.as_bytes(), RenameMode::Replace).await;
        seen.note(moved);
        if i % 3 == 0 {
            let back = fs.rename(root, new.as_bytes(), met.dir, &met.name, RenameMode::NoReplace);
            let back = back.await;
            seen.note(back);
        }
    }
}

/// Removes files if possible.
async fn remove<F: FileSystem>(fs: &F, all: &[Met], seen: &mut Seen) {
    for met in all.iter().rev().take(400) {
        let removed = match met.attr.file_type {
            FileType::Directory => fs.rmdir(met.dir, &met.name).await,
            _ => fs.unlink(met.dir, &met.name).await,
        };
        seen.note(removed);
    }
    for i in 0..40 {
        let name = format!("moved {i}");
        let removed = match fs.unlink(fs.root(), name.as_bytes()).await {
            Err(e) if e.errno == Errno::IsDir => fs.rmdir(fs.root(), name.as_bytes()).await,
            done => done,
        };
        seen.note(removed);
    }
}

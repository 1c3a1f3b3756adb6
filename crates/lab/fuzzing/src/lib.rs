//! The bodies of the fuzz targets, and the corpus that tests run again.
//!
//! Layers: [`image`] makes an image from the fuzzer's bytes. [`check`] and [`mount`] (through
//! [`walk_image`]) assert the properties of any image, [`lfs()`] those of any LFS image
//! ([`lfs_image`]), and [`dualfs()`] those of any pair of a DualFS ([`dualfs_images`]). `fuzz/`
//! holds the targets, one line each. `fuzz/regressions/` holds inputs that once failed, or that
//! reach much of the code; a normal test runs them.
//!
//! Input: with a first byte of 0, the rest is the image. Otherwise the rest changes a valid file
//! system by records of an offset (three bytes), a length (one byte, modulo 17) and that many
//! bytes. The offset counts through the bytes that metadata occupies, so that every change matters.
//! The highest bit of the first byte also asks for corrected check-hashes.
//!
//! ```
//! ordo_fuzzing::check(&[1, 0, 0, 0, 2, 0xff, 0xff]);
//! ordo_fuzzing::mount(b"\0not an image");
//! ```

mod base;
mod dualfs;
mod hostile;
mod lfs;

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::{CheckError, Checker, FsckOptions, Repair, Report};
use ordo_ffs::mount::{self as ffs_mount, MountOptions};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{Cookie, Errno, FileSystem, FileType, FsError, Ino, NewNode, RenameMode, SetAttr};

pub use dualfs::{Pair, dualfs, dualfs_images};
pub use hostile::{Seen, walk_image};
pub use lfs::{lfs, lfs_image};

/// The greatest number of bytes that are read of one file.
const READ_AT_MOST: u64 = 1 << 20;
/// The greatest number of entries visited, since a damaged directory may lead to itself.
const VISIT_AT_MOST: usize = 2000;

/// The image for the fuzzer's bytes.
pub fn image(data: &[u8]) -> Rc<RamDisk> {
    match data.split_first() {
        None => Rc::new(RamDisk::new(0)),
        Some((0, image)) => Rc::new(RamDisk::from_image(image)),
        Some((which, changes)) => base::changed(*which, changes),
    }
}

/// Asserts the following of any image. A check ends, and finds the same with repair as without.
/// After a repair a second check finds nothing, every file can be read, and the file system can be
/// used and stays consistent, unless something was called unrepairable.
pub fn check(data: &[u8]) {
    let disk = image(data);
    let before = match run_check(&disk, Repair::No) {
        Ok(report) => report,
        Err(CheckError::Device(error)) => panic!("a request outside of the device: {error}"),
        Err(_) => return,
    };
    let repaired = run_check(&disk, Repair::Yes).expect("what was checked can be repaired");
    assert_eq!(repaired.findings, before.findings, "with repair and without");
    if repaired.unrepairable > 0 {
        return;
    }
    let after = run_check(&disk, Repair::No).expect("what was repaired can be checked");
    assert!(after.is_consistent(), "found\n{repaired}\nand after the repair\n{after}");
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let walked = executor.block_on(async {
        let Ok(fs) = ffs_mount::mount(&runtime, disk.clone(), NoOrder, &read_only()).await else {
            return Ok(());
        };
        walk(&fs).await
    });
    let walked = walked.expect("reading ends");
    assert!(walked.is_ok(), "consistent, but not readable: {walked:?}");
    let used = executor.block_on(async {
        let options = MountOptions::default();
        match ffs_mount::mount(&runtime, disk.clone(), NoOrder, &options).await {
            Ok(fs) => {
                let used = change(&fs).await;
                used.and(fs.unmount().await)
            }
            Err(_) => Ok(()),
        }
    });
    let used = used.expect("using it ends");
    let full = |errno| matches!(errno, Errno::NoSpace | Errno::TooManyLinks | Errno::NotPermitted);
    assert!(used.as_ref().err().is_none_or(|error| full(error.errno)), "not usable: {used:?}");
    let last = run_check(&disk, Repair::No).expect("what was used can be checked");
    assert!(last.is_consistent(), "after use:\n{last}");
}

/// Creates and removes a few files.
async fn change<F: FileSystem>(fs: &F) -> Result<(), FsError> {
    let root = fs.root();
    let mut names: Vec<(Vec<u8>, Option<FileType>)> = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        names.push((entry.name.to_vec(), entry.file_type));
        names.len() < 20
    };
    fs.readdir(root, Cookie::START, &mut each).await?;
    let dir = fs.create(root, b"fuzz-dir", &NewNode::directory(0o755)).await?;
    for (name, file_type) in &names {
        match file_type {
            Some(FileType::Regular) => {
                let ino = fs.lookup(root, name).await?.ino;
                fs.write(ino, 5000, &[9; 6000]).await?;
                let cut = SetAttr { size: Some(700), ..SetAttr::default() };
                fs.setattr(ino, &cut).await?;
                fs.rename(root, name, dir.ino, name, RenameMode::Replace).await?;
            }
            Some(FileType::Directory) => {}
            _ => fs.unlink(root, name).await?,
        }
    }
    let file = fs.create(dir.ino, b"fuzz-file", &NewNode::file(0o600)).await?;
    fs.write(file.ino, 0, &[8; 20_000]).await?;
    fs.unlink(dir.ino, b"fuzz-file").await
}

fn run_check(disk: &Rc<RamDisk>, repair: Repair) -> Result<Report, CheckError> {
    let options = FsckOptions { repair, max_findings: 10_000, ..FsckOptions::default() };
    let executor = Executor::simulated(1);
    executor.block_on(Checker::new(disk.clone(), options).run()).expect("a check waits for no one")
}

/// Asserts of any image that mounting it, reading everything, and changing a copy all end, with
/// data or with errors.
pub fn mount(data: &[u8]) {
    walk_image(&image(data));
}

fn read_only() -> MountOptions {
    let mut options = MountOptions::default();
    options.ufs.read_only = true;
    options
}

/// Visits every name and reads its file. The first error is returned, but does not stop the walk.
async fn walk<F: FileSystem>(fs: &F) -> Result<(), FsError> {
    let mut first = Ok(());
    let mut keep = |result: Result<(), FsError>| {
        if first.is_ok() {
            first = result;
        }
    };
    let mut pending = vec![fs.root()];
    let mut visited = 0;
    while let Some(dir) = pending.pop() {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut each = |entry: ordo_vfs::DirEntry<'_>| {
            names.push(entry.name.to_vec());
            names.len() < VISIT_AT_MOST
        };
        keep(fs.readdir(dir, Cookie::START, &mut each).await);
        for name in names {
            visited += 1;
            if visited > VISIT_AT_MOST {
                return first;
            }
            match fs.lookup(dir, &name).await {
                Err(error) => keep(Err(error)),
                Ok(attr) => {
                    if attr.file_type == FileType::Directory {
                        if !matches!(&name[..], b"." | b"..") {
                            pending.push(attr.ino);
                        }
                    } else {
                        keep(read_file(fs, attr.ino, attr.file_type, attr.size).await);
                    }
                    keep(read_attributes(fs, attr.ino).await);
                }
            }
        }
    }
    first
}

async fn read_file<F: FileSystem>(
    fs: &F,
    ino: Ino,
    file_type: FileType,
    size: u64,
) -> Result<(), FsError> {
    match file_type {
        FileType::Symlink => fs.readlink(ino).await.map(drop),
        FileType::Regular => {
            let mut buf = vec![0; 64 * 1024];
            let mut at = 0;
            while at < READ_AT_MOST {
                let n = fs.read(ino, at, &mut buf).await?;
                if n == 0 {
                    break;
                }
                at += n as u64;
            }
            // The end of a file that is too long to read whole is read for the sake of its indirect
            // blocks.
            fs.read(ino, size.saturating_sub(100), &mut buf[..100]).await.map(drop)
        }
        _ => Ok(()),
    }
}

async fn read_attributes<F: FileSystem>(fs: &F, ino: Ino) -> Result<(), FsError> {
    for name in fs.listxattr(ino).await?.iter().take(100) {
        fs.getxattr(ino, name).await?;
    }
    Ok(())
}

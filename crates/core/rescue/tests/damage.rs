//! Damaged images, made with a seed.
//!
//! Fault models: parts of a device that cannot be read, or that are behind its end; bytes and
//! sectors with other contents. After the first, every file is as it was, or differs only where a
//! note says so. After the second, the reader ends, without a panic.

use std::collections::BTreeMap;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ordering::NoOrder;
use ordo_rescue::{LeftOut, Mapfile, Reason, RescueFs, Unreadable};
use ordo_runtime::Executor;
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{FileSystem, FileType, NewNode, XattrMode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The size of the device in bytes.
const SIZE: u64 = 6 << 20;

/// The contents of files, by their paths; of a directory `None`.
type Tree = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An image with files of many sizes: small, sparse, with indirect blocks, in several directories.
fn image(executor: &Executor, options: &MkfsOptions) -> Vec<u8> {
    let disk = std::rc::Rc::new(RamDisk::new(SIZE));
    executor
        .block_on(async {
            mkfs(&disk.clone().erase(), options, 1).await.unwrap();
            let runtime = executor.runtime();
            let mount = MountOptions::default();
            let fs = ordo_ffs::mount::mount(&runtime, disk.clone(), NoOrder, &mount).await.unwrap();
            for d in 0..6 {
                let name = format!("dir{d}");
                let dir = fs
                    .create(fs.root(), name.as_bytes(), &NewNode::directory(0o755))
                    .await
                    .unwrap();
                for f in 0..12u64 {
                    let name = format!("a file with a longer name, number {f}");
                    let file = fs.create(dir.ino, name.as_bytes(), &NewNode::file(0o644)).await;
                    let file = file.unwrap().ino;
                    let len = [0, 1, 700, 5000, 40_000, 120_000][(f % 6) as usize];
                    let data: Vec<u8> = (0..len).map(|i| (i % 251 + d + f) as u8 | 1).collect();
                    let at = if f == 10 { 1 << 20 } else { 0 };
                    fs.write(file, at, &data).await.unwrap();
                    if options.version_has_attributes() && f < 2 {
                        fs.setxattr(file, b"user.note", &[7; 90], XattrMode::Set).await.unwrap();
                    }
                }
                let link = NewNode::symlink(b"the/target");
                fs.create(dir.ino, b"link", &link).await.unwrap();
            }
            fs.unmount().await.unwrap();
        })
        .unwrap();
    disk.to_vec()
}

/// Everything that can be read, and what was left out.
fn read(
    executor: &Executor,
    disk: RamDisk,
    unreadable: Unreadable,
) -> Option<(Tree, Vec<LeftOut>)> {
    executor
        .block_on(async {
            let fs = RescueFs::open(&disk.erase(), unreadable).await.ok()?;
            let mut tree = Tree::new();
            let Ok(mut walk) = Walk::new(&fs, fs.root(), WalkLimits::default()).await else {
                return Some((tree, fs.left_out().0));
            };
            loop {
                let Ok(visit) = walk.next().await else { continue };
                let Some(visit) = visit else { break };
                let Visit::Enter(entry) = visit else { continue };
                let contents = match entry.attr.file_type {
                    FileType::Directory => None,
                    FileType::Symlink => fs.readlink(entry.attr.ino).await.ok(),
                    _ => {
                        let mut data = vec![0; entry.attr.size.min(2 << 20) as usize];
                        let n = fs.read(entry.attr.ino, 0, &mut data).await.unwrap();
                        data.truncate(n);
                        Some(data)
                    }
                };
                fs.listxattr(entry.attr.ino).await.ok();
                fs.deleted(entry.attr.ino).await.ok();
                tree.insert(entry.path, contents);
            }
            fs.orphans(&|_| false).await;
            Some((tree, fs.left_out().0))
        })
        .unwrap()
}

trait HasAttributes {
    fn version_has_attributes(&self) -> bool;
}

impl HasAttributes for MkfsOptions {
    fn version_has_attributes(&self) -> bool {
        self.version == ordo_ffs::mkfs::UfsVersion::Ufs2
    }
}

fn formats() -> [MkfsOptions; 3] {
    use ordo_ffs::mkfs::UfsVersion::{Ufs1, Ufs2};
    let small: MkfsOptions =
        MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
    [
        MkfsOptions { version: Ufs2, ..small.clone() },
        MkfsOptions { version: Ufs1, ..small.clone() },
        MkfsOptions { version: Ufs1, endian: ordo_format::Endian::Big, ..small },
    ]
}

/// Whether the notes say that a file is missing, or has zeros from one byte to another.
fn explains(notes: &[LeftOut], path: &[u8], from: u64, to: u64) -> bool {
    notes.iter().any(|note| {
        let full = note.path.strip_prefix(b"/").unwrap_or(&note.path);
        full == path
            && matches!(note.reason, Reason::Unreadable { from: a, to: b } if a <= from && to <= b)
    })
}

/// Whether the notes say why a path is missing: its inode is lost, or a directory above it has
/// parts that are.
fn explains_absence(notes: &[LeftOut], path: &[u8]) -> bool {
    notes.iter().any(|note| {
        let full = note.path.strip_prefix(b"/").unwrap_or(&note.path);
        let is_above = full.is_empty() || path == full || path.starts_with(&[full, b"/"].concat());
        is_above && !note.path.is_empty()
    })
}

/// Parts of the device cannot be read, or its end is missing. Every difference is explained, byte
/// by byte: no zeros pass for contents, and no file is missing without a reason.
#[test]
fn every_loss_is_in_the_list() {
    let executor = Executor::simulated(1);
    for (kind, options) in formats().into_iter().enumerate() {
        let image = image(&executor, &options);
        let (whole, notes) =
            read(&executor, RamDisk::from_image(&image), Unreadable::default()).unwrap();
        assert!(notes.is_empty() && whole.len() == 84, "{} {notes:?}", whole.len());
        let (mut rescued, mut lost) = (0, 0);
        for seed in 0..120 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut text = "0 +\n".to_owned();
            for _ in 0..rng.random_range(1..30) {
                let (at, len) =
                    (rng.random_range(200..SIZE / 512) * 512, rng.random_range(1..40) * 512);
                text += &format!("{at} {len} -\n");
            }
            let unreadable = Mapfile::parse(&text).unwrap().of_part(0, SIZE);
            let cut = if seed % 3 == 0 { rng.random_range(300..SIZE / 512) * 512 } else { SIZE };
            let disk = RamDisk::from_image(&image[..cut as usize]);
            let Some((tree, notes)) = read(&executor, disk, unreadable) else {
                panic!("seed {seed}: the superblock is sound");
            };
            for (path, contents) in &whole {
                let name = String::from_utf8_lossy(path);
                let Some(found) = tree.get(path) else {
                    assert!(
                        explains_absence(&notes, path),
                        "{kind}, seed {seed}: {name}: {notes:?}"
                    );
                    lost += 1;
                    continue;
                };
                rescued += 1;
                let (Some(found), Some(contents)) = (found, contents) else { continue };
                assert_eq!(found.len(), contents.len(), "{kind}, seed {seed}: {name}");
                for (at, (a, b)) in found.iter().zip(contents).enumerate() {
                    let at = at as u64;
                    let said = a == b || *a == 0 && explains(&notes, path, at, at + 1);
                    assert!(said, "{kind}, seed {seed}: {name}, byte {at}: {notes:?}");
                }
            }
        }
        assert!(rescued > 1000 && lost > 100, "{rescued} and {lost}");
    }
}

/// Any bytes are other bytes, mostly of metadata. The reader ends, and most files are still there.
#[test]
fn no_damage_stops_the_reader() {
    let executor = Executor::simulated(1);
    let mut found = 0;
    for options in formats() {
        let image = image(&executor, &options);
        for seed in 0..150 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut damaged = image.clone();
            for _ in 0..rng.random_range(1..60) {
                let at = rng.random_range(0..damaged.len() - 512);
                match rng.random_range(0..4) {
                    0 => damaged[at..at + 512].fill(rng.random()),
                    1 => damaged[at..at + 8].copy_from_slice(&rng.random::<[u8; 8]>()),
                    2 => damaged[at] ^= 1 << rng.random_range(0..8),
                    _ => {
                        let from = rng.random_range(0..damaged.len() / 512 - 1) * 512;
                        damaged.copy_within(from..from + 512, at / 512 * 512);
                    }
                }
            }
            let disk = RamDisk::from_image(&damaged);
            if let Some((tree, _)) = read(&executor, disk, Unreadable::default()) {
                found += tree.len();
            }
        }
    }
    assert!(found > 150 * 3 * 60, "{found}");
}

/// The superblock is destroyed: its copy is used, and that is said.
#[test]
fn a_copy_of_the_superblock_is_enough() {
    let executor = Executor::simulated(1);
    for options in formats() {
        let mut image = image(&executor, &options);
        let at = if options.version_has_attributes() { 65_536 } else { 8192 };
        image[at..at + 1376].fill(0xa5);
        let read = read(&executor, RamDisk::from_image(&image), Unreadable::default());
        let (tree, notes) = read.expect("a copy is there");
        assert_eq!(tree.len(), 84);
        assert!(matches!(notes[..], [LeftOut { ino: 0, reason: Reason::Superblock { .. }, .. }]));
    }
}

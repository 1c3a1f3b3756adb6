//! Every write of LFS has a name.
//!
//! Fault model: a block that the decoder cannot name, names wrongly, or takes for another file's. A
//! log goes around with directories, small files, files with two levels of indirect blocks, long
//! symbolic links and deletes, until the cleaner works. Then each file's blocks are where the
//! decoder says, byte for byte, and what it counted as contents is no less than what was written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_cache::CacheConfig;
use ordo_dualfs::mkfs as dual;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{LogFs, MountOptions, mount};
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, Ino, NewNode};
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

const SEGMENTS: u64 = 100;
const SEGMENT: u32 = 128 << 10;
const BLOCK: usize = 4096;
/// The length of most files.
const LEN: usize = 40_000;

fn image(disk: &RamDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.geometry().bytes as usize];
    disk.load(0, &mut bytes);
    bytes
}

/// Contents that tell files and blocks apart.
fn contents(tag: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|n| (tag << 32 | n).to_le_bytes());
    words.take(len).collect()
}

async fn file(fs: &LogFs, name: &str, tag: u64, len: usize) -> Ino {
    let made = fs.create(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await;
    let ino = made.expect("there is space").ino;
    let data = contents(tag, len);
    assert_eq!(fs.write(ino, 0, &data).await.expect("there is space"), len);
    ino
}

/// The files that stay, each with its contents.
async fn work(fs: &LogFs) -> BTreeMap<u64, Vec<u8>> {
    let root = fs.root();
    let mut all = BTreeMap::new();
    for n in 0..30 {
        let node = NewNode::directory(0o755);
        let dir = fs.create(root, format!("d{n}").as_bytes(), &node).await.expect("there is space");
        let link = NewNode::symlink(&[b'x'; 300]);
        fs.create(dir.ino, b"link", &link).await.expect("there is space");
    }
    // Blocks behind the first 12 + 512 have two levels of indirect blocks above them.
    let deep = file(fs, "deep", 1, 600 * BLOCK).await;
    all.insert(deep.0, contents(1, 600 * BLOCK));
    let short = file(fs, "short", 2, 700).await;
    all.insert(short.0, contents(2, 700));
    fs.fsync(short).await.expect("there is space");
    for round in 0..60 {
        // Files that stay lie between others that go.
        for n in 0..6 {
            let (name, tag) = (format!("f{round}-{n}"), 100 + round * 6 + n);
            let ino = file(fs, &name, tag, LEN).await;
            if n < 2 {
                all.insert(ino.0, contents(tag, LEN));
            }
        }
        match round % 3 {
            0 => fs.sync().await.expect("there is space"),
            1 => fs.fsync(root).await.expect("there is space"),
            _ => {}
        }
        for n in 2..6 {
            let name = format!("f{round}-{n}");
            fs.unlink(root, name.as_bytes()).await.expect("deletes go through");
        }
    }
    let late = file(fs, "late", 3, 30 * BLOCK).await;
    all.insert(late.0, contents(3, 30 * BLOCK));
    all
}

#[test]
fn every_write_has_a_name() {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let disk = Rc::new(RamDisk::new(8192 + SEGMENTS * u64::from(SEGMENT)));
        let made = MkfsOptions {
            block_size: BLOCK as u32,
            frag_size: 512,
            segment_size: SEGMENT,
            ..MkfsOptions::default()
        };
        mkfs(disk.clone().erase(), &made, 1).await.expect("legal sizes");
        let start = image(&disk);
        let watch = Watch::over(&&start[..]).expect("an LFS");
        assert_eq!(watch.system(), "lfs");
        let tap = Rc::new(Tap::new(&rt, disk.clone()));
        tap.attach(watch.clone());
        let bytes: Rc<RefCell<BTreeMap<Class, u64>>> = Rc::default();
        let (sums, to) = (Rc::new(RefCell::new(0)), bytes.clone());
        let cleaners = sums.clone();
        watch.listen(move |told| {
            for part in &told.named.parts {
                assert_ne!(part.class, Class::Unknown, "{part:?}");
                *to.borrow_mut().entry(part.class).or_default() += part.len;
                let is_cleaners =
                    matches!(part.what, BlockMeaning::Piece(words, _) if words.contains("cleaner"));
                *cleaners.borrow_mut() += u64::from(is_cleaners);
            }
        });
        let options =
            MountOptions { cache: CacheConfig::with_capacity(1 << 20), ..MountOptions::default() };
        let fs = mount(&rt, tap.clone(), &options).await.expect("just made");
        let files = work(&fs).await;
        let cleaned = fs.layout().cleaned();
        assert!(cleaned.segments > 0, "the cleaner had nothing to do");
        fs.unmount().await.expect("there is space");
        let stats = watch.finish();
        assert_eq!(stats.unclaimed, 0, "blocks that nothing names");
        let end = image(&disk);
        for (ino, wanted) in &files {
            let mut found = vec![0; wanted.len().next_multiple_of(BLOCK)];
            for piece in watch.contents(*ino) {
                let (at, from, len) =
                    (piece.at as usize, piece.offset as usize, piece.len as usize);
                found[at..at + len].copy_from_slice(&end[from..from + len]);
            }
            assert!(
                found[..wanted.len()] == wanted[..],
                "inode {ino} is not where it is said to be"
            );
        }
        for class in [
            Class::Superblock,
            Class::SegmentSummary,
            Class::SegmentUsage,
            Class::InodeMap,
            Class::InodeBlock,
            Class::Indirect,
            Class::Directory,
            Class::Symlink,
        ] {
            assert!(bytes.borrow().contains_key(&class), "no write of {class}");
        }
        let written = files.values().map(|f| f.len() as u64).sum::<u64>();
        assert!(bytes.borrow()[&Class::FileData] >= written, "{:?}", bytes.borrow());
        assert!(*sums.borrow() > 0, "nothing is said to be the cleaner's");
    });
    ran.expect("no deadlock");
}

/// Contents on a data device that is on the same disk: each block is named by its file as soon as a
/// pointer to it is written, and a watch that begins later knows the same. Would catch a block that
/// stays nobody's, or its last owner's.
#[test]
fn blocks_of_a_data_device_have_their_files() {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let disk = Rc::new(RamDisk::new(64 << 20));
        let made = dual::MkfsOptions {
            metadata: dual::MetadataSize::Bytes(16 << 20),
            copy: Some(dual::MetadataSize::Percent(90)),
            ..dual::MkfsOptions::default()
        };
        dual::mkfs(&rt, &[disk.clone().erase()], &made).await.expect("legal sizes");
        let watch = Watch::over(&&image(&disk)[..]).expect("a DualFS");
        assert_eq!(watch.system(), "dualfs");
        let tap = Rc::new(Tap::new(&rt, disk.clone()));
        tap.attach(watch.clone());
        let (named, copied) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(0)));
        let (to_named, to_copied) = (named.clone(), copied.clone());
        watch.listen(move |told| {
            for part in &told.named.parts {
                assert_ne!(part.class, Class::Unknown, "{part:?}");
                let is_file = matches!(part.what, BlockMeaning::Blocks { .. });
                if part.class == Class::FileData && is_file {
                    *to_named.borrow_mut() += part.len;
                }
                if part.class == Class::Checkpoint {
                    *to_copied.borrow_mut() += part.len;
                }
            }
        });
        let options = ordo_dualfs::mount::MountOptions::default();
        let devices = [tap.clone().erase()];
        let fs = ordo_dualfs::mount::mount(&rt, &devices, &options).await.expect("just made");
        let files = work(&fs).await;
        // Overwritten blocks are known when they are written.
        assert_eq!(*named.borrow(), 0);
        let (ino, data) = files.first_key_value().expect("some stay");
        fs.write(Ino(*ino), 0, data).await.expect("it has its blocks");
        fs.unmount().await.expect("there is space");
        assert_eq!(*named.borrow(), data.len() as u64);
        assert!(*copied.borrow() > 0, "the copy of the metadata is not seen");
        assert_eq!(watch.finish().unclaimed, 0, "blocks that nothing names");
        let end = image(&disk);
        let later = Watch::over(&&end[..]).expect("a DualFS");
        for watch in [&watch, &later] {
            for (ino, wanted) in &files {
                let mut found = vec![0; wanted.len().next_multiple_of(BLOCK)];
                for piece in watch.contents(*ino) {
                    let (at, from) = (piece.at as usize, piece.offset as usize);
                    let len = piece.len as usize;
                    found[at..at + len].copy_from_slice(&end[from..from + len]);
                }
                assert!(found[..wanted.len()] == wanted[..], "inode {ino} is elsewhere");
            }
        }
    });
    ran.expect("no deadlock");
}

/// Contents on a data device that has a disk of its own: its blocks are named by files and paths
/// that only the other disk shows, and watches that begin later know the same. Would catch a data
/// device whose blocks are nobody's.
#[test]
fn blocks_of_a_data_device_on_its_own_disk_have_their_files() {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let disks = [16, 64].map(|mib| Rc::new(RamDisk::new(mib << 20)));
        let devices = disks.each_ref().map(|disk| disk.clone().erase());
        dual::mkfs(&rt, &devices, &dual::MkfsOptions::default()).await.expect("legal sizes");
        let watch = || {
            let images = disks.each_ref().map(|disk| &**disk as &dyn DiskImage);
            // The order of the devices does not matter.
            let [data, metadata] = &Watch::over_each(&[images[1], images[0]])[..] else {
                panic!("there are two")
            };
            [metadata.clone(), data.clone()]
        };
        let watches = watch();
        let taps = [0, 1].map(|n| Rc::new(Tap::new(&rt, disks[n].clone())));
        taps.iter().zip(&watches).for_each(|(tap, watch)| tap.attach(watch.clone()));
        let (named, shown) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(0)));
        let (to_named, to_shown) = (named.clone(), shown.clone());
        watches[1].listen(move |told| {
            *to_shown.borrow_mut() += told.claims.iter().filter(|c| c.owner.is_some()).count();
            for part in &told.named.parts {
                assert!(matches!(part.class, Class::FileData | Class::Superblock), "{part:?}");
                if let BlockMeaning::Blocks { ino, .. } = part.what {
                    assert_eq!(told.path(ino).as_deref(), Some("/deep"));
                    *to_named.borrow_mut() += part.len;
                }
            }
        });
        let options = ordo_dualfs::mount::MountOptions::default();
        let tapped = taps.each_ref().map(|tap| tap.clone().erase());
        let fs = ordo_dualfs::mount::mount(&rt, &tapped, &options).await.expect("just made");
        let files = work(&fs).await;
        // Overwritten blocks are known when they are written.
        assert_eq!(*named.borrow(), 0);
        let (ino, data) = files.iter().find(|(_, data)| data.len() == 600 * BLOCK).expect("deep");
        fs.write(Ino(*ino), 0, data).await.expect("it has its blocks");
        fs.unmount().await.expect("there is space");
        assert_eq!(*named.borrow(), data.len() as u64);
        assert!(*shown.borrow() > 600, "{} blocks were shown to be a file's", *shown.borrow());
        assert_eq!(watches[1].finish().unclaimed, 0, "blocks that nothing names");
        let end = image(&disks[1]);
        for watch in [&watches[1], &watch()[1]] {
            assert_eq!(watch.path(*ino).as_deref(), Some("/deep"));
            for (ino, wanted) in &files {
                let mut found = vec![0; wanted.len().next_multiple_of(BLOCK)];
                for piece in watch.contents(*ino) {
                    let (at, from, len) =
                        (piece.at as usize, piece.offset as usize, piece.len as usize);
                    found[at..at + len].copy_from_slice(&end[from..from + len]);
                }
                assert!(found[..wanted.len()] == wanted[..], "inode {ino} is elsewhere");
            }
        }
        // A device alone names no files.
        assert_eq!(Watch::over_any(&*disks[1]).contents(*ino), []);
    });
    ran.expect("no deadlock");
}

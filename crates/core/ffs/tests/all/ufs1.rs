//! UFS1 images that other software made are read and changed: every name, every byte, every
//! attribute. Other software reads the result.
//!
//! Fault model: a misunderstanding of the format. Debian's makefs writes the images, in both byte
//! orders, from a tree with which they are compared. GRUB and the Sleuth Kit read what was written
//! here. The checker's opinion of such images is in `crates/witness/check/tests/all/ufs1.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, UfsVersion, mkfs};
use ordo_ffs::{FastFs, MountError, MountOptions, mount};
use ordo_format::Endian;
use ordo_ordering::{NoOrder, Ordering, SoftOptions, SoftUpdates, SyncOrder};
use ordo_runtime::Executor;
use ordo_testkit::{judge, judge_bytes};
use ordo_ufs::UfsConfig;
use ordo_vfs::{
    Cookie, Errno, FileSystem, FileType, NewNode, SetAttr, SetTime, Timestamp, XattrMode, path,
};

/// Contents of a file that is too large for direct blocks and for one indirect block.
fn large() -> Vec<u8> {
    (0..20_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()
}

/// An image of a tree. Its files are too large for direct blocks or for one indirect block, or have
/// a hole in between.
fn image(folder: &Path, order: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (tree, image) = (folder.join("tree"), folder.join(order));
    let large = large();
    if !tree.exists() {
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("a/large"), &large).unwrap();
        std::fs::write(tree.join("a/b/small"), b"small").unwrap();
        std::fs::set_permissions(tree.join("a/b/small"), PermissionsExt::from_mode(0o4751))
            .unwrap();
        std::os::unix::fs::symlink("b/small", tree.join("a/short")).unwrap();
        std::os::unix::fs::symlink("x/".repeat(40), tree.join("a/long")).unwrap();
        std::fs::hard_link(tree.join("a/b/small"), tree.join("twin")).unwrap();
        for i in 0..300 {
            std::fs::write(tree.join(format!("a/b/{i}-{}", "n".repeat(i % 90))), b"").unwrap();
        }
    }
    let (to, from) = (image.to_str().unwrap(), tree.to_str().unwrap());
    let options = "version=1,bsize=8192,fsize=1024";
    judge(
        "makefs",
        &["-t", "ffs", "-B", order, "-o", options, "-s", "64m", "-f", "2000", to, from],
    )?;
    Some((std::fs::read(image).unwrap(), large))
}

fn read_only() -> MountOptions {
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    MountOptions { ufs, ..MountOptions::default() }
}

/// Compares a mounted image of the tree with the tree.
async fn compare(fs: &FastFs, large: &[u8], folder: &Path) {
    let find = async |name: &str| path::lookup(fs, name.as_bytes()).await.unwrap();
    let found = find("a/large").await;
    let mut contents = vec![0; found.size as usize];
    fs.read(found.ino, 0, &mut contents).await.unwrap();
    assert!(contents == large);
    let (small, twin) = (find("a/b/small").await, find("twin").await);
    assert_eq!((small.ino, small.links, small.permissions), (twin.ino, 2, 0o4751));
    let host = std::fs::metadata(folder.join("tree/twin")).unwrap();
    let time = host.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(small.mtime.seconds, time.as_secs() as i64);
    let a = find("a").await.ino;
    let short = fs.lookup(a, b"short").await.unwrap();
    assert_eq!(short.file_type, FileType::Symlink);
    assert_eq!(fs.readlink(short.ino).await.unwrap(), b"b/small");
    let long = fs.readlink(fs.lookup(a, b"long").await.unwrap().ino).await.unwrap();
    assert_eq!(long, "x/".repeat(40).as_bytes());
    let mut names = 0;
    let mut each = |_: ordo_vfs::DirEntry<'_>| {
        names += 1;
        true
    };
    fs.readdir(find("a/b").await.ino, Cookie::START, &mut each).await.unwrap();
    assert_eq!(names, 303);
    let space = fs.statfs().await.unwrap();
    assert!(space.blocks_free < space.blocks && space.inodes_free < space.inodes);
}

#[test]
fn images_of_makefs_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for order in ["le", "be"] {
        let Some((bytes, large)) = image(folder.path(), order) else { return };
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        executor
            .block_on(async {
                let disk = Rc::new(RamDisk::from_image(&bytes));
                let fs = mount(&rt, disk.clone(), NoOrder, &read_only()).await.unwrap();
                compare(&fs, &large, folder.path()).await;
            })
            .unwrap();
    }
}

/// An ordering's name, and the function that makes it.
type Named = (&'static str, fn() -> Ordering);

/// Every ordering whose log, if any, is not beside the image.
fn orderings() -> [Named; 3] {
    [
        ("none", || NoOrder.into()),
        ("sync", || SyncOrder::default().into()),
        ("soft-updates", || SoftUpdates::new(SoftOptions::default()).into()),
    ]
}

/// Changes of every kind, in the root directory of a mounted image.
async fn change(fs: &FastFs, large: &[u8]) {
    let (root, file) = (fs.root(), NewNode::file(0o640));
    let new = fs.create(root, b"new", &file).await.unwrap().ino;
    fs.write(new, 0, large).await.unwrap();
    // A hole up to the triple indirect block, of which a punch then takes an indirect block.
    let far = (12 + 2048 + 2048 * 2048 + 7) * 8192;
    let sparse = fs.create(root, b"sparse", &file).await.unwrap().ino;
    fs.write(sparse, far, b"far").await.unwrap();
    fs.write(sparse, 20 * 8192, b"near").await.unwrap();
    let cut = fs.create(root, b"cut", &file).await.unwrap().ino;
    fs.write(cut, 0, &large[..3_000_000]).await.unwrap();
    let size = SetAttr { size: Some(100_001), ..SetAttr::default() };
    fs.setattr(cut, &size).await.unwrap();
    for (name, target) in [
        (&b"link59"[..], "x".repeat(59)),
        (b"link60", "y".repeat(60)),
        (b"link119", "z".repeat(119)),
        (b"link4000", "w".repeat(4000)),
    ] {
        fs.create(root, name, &NewNode::symlink(target.as_bytes())).await.unwrap();
    }
    for (name, file_type, rdev) in [
        (&b"block"[..], FileType::BlockDevice, 0xff00_1234),
        (b"char", FileType::CharDevice, 0x105),
        (b"pipe", FileType::Fifo, 0),
    ] {
        let node = NewNode { file_type, rdev, ..NewNode::file(0o600) };
        fs.create(root, name, &node).await.unwrap();
    }
    let dir = fs.create(root, b"dir", &NewNode::directory(0o755)).await.unwrap().ino;
    for i in 0..400 {
        let made = fs.create(dir, format!("name-{i}").as_bytes(), &file).await.unwrap();
        fs.write(made.ino, 0, &[i as u8; 1500]).await.unwrap();
    }
    for i in (0..400).step_by(2) {
        fs.unlink(dir, format!("name-{i}").as_bytes()).await.unwrap();
    }
    for name in [&b"gone119"[..], b"gone60"] {
        let target = vec![b'g'; if name == b"gone60" { 60 } else { 119 }];
        fs.create(root, name, &NewNode::symlink(&target)).await.unwrap();
        fs.unlink(root, name).await.unwrap();
    }
    // Times that UFS1 cannot keep become the nearest that it can, at once and not only after the
    // next mount.
    let late = Timestamp { seconds: 1 << 33, nanos: 5 };
    let times = SetAttr {
        atime: Some(SetTime::To(late)),
        mtime: Some(SetTime::To(Timestamp { seconds: -7, nanos: 1 })),
        birthtime: Some(late),
        uid: Some(70_000),
        gid: Some(80_000),
        ..SetAttr::default()
    };
    let set = fs.setattr(cut, &times).await.unwrap();
    assert_eq!(set.atime, Timestamp { seconds: i32::MAX.into(), nanos: 0 });
    let refused = fs.setxattr(cut, b"user.x", b"y", XattrMode::Create).await.unwrap_err();
    assert_eq!(refused.errno, Errno::NotSupported);
}

/// Compares what [`change`] did.
async fn look(fs: &FastFs, large: &[u8]) {
    let root = fs.root();
    let read = async |name: &[u8], at: u64, len: usize| {
        let found = fs.lookup(root, name).await.unwrap();
        let mut bytes = vec![0; len];
        let n = fs.read(found.ino, at, &mut bytes).await.unwrap();
        bytes.truncate(n);
        bytes
    };
    assert!(read(b"new", 0, large.len() + 1).await == large);
    let far = (12 + 2048 + 2048 * 2048 + 7) * 8192;
    assert_eq!(read(b"sparse", far - 2, 9).await, b"\0\0far");
    assert_eq!(read(b"sparse", 20 * 8192 - 1, 6).await, b"\0near\0");
    assert!(read(b"cut", 0, 200_000).await == large[..100_001]);
    for (name, byte, len) in
        [(&b"link59"[..], b'x', 59), (b"link60", b'y', 60), (b"link119", b'z', 119)]
    {
        let link = fs.lookup(root, name).await.unwrap();
        assert_eq!(fs.readlink(link.ino).await.unwrap(), vec![byte; len]);
        assert_eq!(link.blocks == 0, len == 59, "{len}");
    }
    assert_eq!(fs.lookup(root, b"block").await.unwrap().rdev, 0xff00_1234);
    assert_eq!(fs.lookup(root, b"char").await.unwrap().rdev, 0x105);
    let dir = fs.lookup(root, b"dir").await.unwrap().ino;
    assert!(fs.lookup(dir, b"name-2").await.is_err());
    let odd = fs.lookup(dir, b"name-399").await.unwrap();
    let mut bytes = vec![0; 1600];
    assert_eq!(fs.read(odd.ino, 0, &mut bytes).await.unwrap(), 1500);
    let cut = fs.lookup(root, b"cut").await.unwrap();
    assert_eq!((cut.uid, cut.gid), (70_000, 80_000));
    assert_eq!(cut.mtime, Timestamp { seconds: -7, nanos: 1 });
    assert_eq!(cut.atime.seconds, i64::from(i32::MAX));
    assert_eq!(cut.birthtime, Timestamp::default());
}

/// Images of makefs are changed under each ordering, and read again, in both byte orders.
#[test]
fn images_of_makefs_are_changed() {
    let folder = tempfile::tempdir().unwrap();
    for order in ["le", "be"] {
        let Some((bytes, large)) = image(folder.path(), order) else { return };
        for (name, ordering) in orderings() {
            let executor = Executor::simulated(1);
            let rt = executor.runtime();
            executor
                .block_on(async {
                    let disk = Rc::new(RamDisk::from_image(&bytes));
                    let options = MountOptions::default();
                    let fs = mount(&rt, disk.clone(), ordering(), &options).await.unwrap();
                    change(&fs, &large).await;
                    look(&fs, &large).await;
                    fs.unmount().await.unwrap();
                    let fs = mount(&rt, disk.clone(), NoOrder, &read_only()).await.unwrap();
                    compare(&fs, &large, folder.path()).await;
                    look(&fs, &large).await;
                    println!("{order}, {name}: as expected");
                })
                .unwrap();
        }
    }
}

/// GRUB and the Sleuth Kit read what was written to a file system that was made here, in both byte
/// orders.
#[test]
fn other_readers_see_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let large = large();
    for (endian, block_size, frag_size) in
        [(Endian::Little, 8192, 1024), (Endian::Big, 8192, 1024), (Endian::Big, 16_384, 2048)]
    {
        let disk = Rc::new(RamDisk::new(64 << 20));
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let version = UfsVersion::Ufs1;
        let options = MkfsOptions { version, endian, block_size, frag_size, ..Default::default() };
        executor
            .block_on(async {
                mkfs(&disk.clone().erase(), &options, 1_700_000_000).await.unwrap();
                let options = MountOptions::default();
                let soft = SoftUpdates::new(SoftOptions::default());
                let fs = mount(&rt, disk.clone(), soft, &options).await.unwrap();
                change(&fs, &large).await;
                fs.unmount().await.unwrap();
            })
            .unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, disk.to_vec()).unwrap();
        let image = image.to_str().unwrap();
        let grub = |path: &str| judge_bytes("grub-fstest", &[image, "cat", path]);
        // GRUB reads the pointers in indirect blocks of big-endian images, those of makefs too, in
        // the wrong order.
        let is_little = endian == Endian::Little;
        if let Some(read) = grub(if is_little { "(loop0)/new" } else { "(loop0)/dir/name-7" }) {
            assert!(read == if is_little { &large[..] } else { &[7; 1500] }, "{endian:?}");
            assert!(!is_little || grub("(loop0)/cut").unwrap() == large[..100_001]);
        }
        let Some(names) = judge("fls", &[image]) else { continue };
        for name in ["new", "sparse", "link60", "link4000", "block", "pipe", "dir"] {
            assert!(names.contains(&format!("\t{name}\n")), "{endian:?}: {names}");
        }
        let number = |name: &str| {
            let line = names.lines().find(|line| line.ends_with(&format!("\t{name}"))).unwrap();
            line.split([' ', ':']).nth(1).unwrap().to_owned()
        };
        // The Sleuth Kit gives the target of a short link only with the inode.
        let inode = judge("istat", &[image, &number("link59")]).unwrap();
        assert!(inode.contains(&format!("symbolic link to: {}\n", "x".repeat(59))), "{inode}");
        for (name, byte, len) in [("link60", b'y', 60), ("link4000", b'w', 4000)] {
            let target = judge_bytes("icat", &[image, &number(name)]).unwrap();
            assert_eq!(target, vec![byte; len], "{endian:?}: {name}");
        }
        assert!(judge_bytes("icat", &[image, &number("new")]).unwrap() == large, "{endian:?}");
    }
}

/// A damaged superblock is refused, whatever field it is in; the mount never panics or loops.
#[test]
fn hostile_superblocks() {
    let folder = tempfile::tempdir().unwrap();
    let Some((bytes, _)) = image(folder.path(), "le") else { return };
    let image = RamDisk::from_image(&bytes);
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let mut refused = 0;
    for at in (0..1376).step_by(4) {
        for value in [u32::MAX, 0, 1, 0x7fff_ffff] {
            let disk = Rc::new(image.snapshot());
            disk.store(8192 + at, &value.to_le_bytes());
            let mounted = executor.block_on(async {
                let fs = mount(&rt, disk, NoOrder, &MountOptions::default()).await?;
                // The contents may be nonsense, and then an error reports damage.
                if let Ok(found) = path::lookup(&fs, b"a/large").await {
                    let _ = fs.read(found.ino, 0, &mut [0; 65536]).await;
                    let _ = fs.write(found.ino, 0, &[1; 65536]).await;
                }
                let _ = fs.create(fs.root(), b"new", &NewNode::file(0o600)).await;
                let _ = fs.unmount().await;
                Ok::<_, MountError>(())
            });
            refused += usize::from(mounted.unwrap().is_err());
        }
    }
    assert!(refused > 60, "{refused}");
}

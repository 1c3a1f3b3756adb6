//! UFS1 images that other software made are read: every name, every byte, every attribute.
//!
//! Fault model: a misunderstanding of the format. Debian's makefs writes the images, in both byte orders, from
//! a tree with which they are compared.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_ffs::{MountError, MountOptions, mount};
use ordo_ordering::{NoOrder, SyncOrder};
use ordo_runtime::Executor;
use ordo_testkit::judge;
use ordo_ufs::UfsConfig;
use ordo_vfs::{Cookie, FileSystem, FileType, path};

/// An image of a tree. Its files are too large for direct blocks or for one indirect block, or have a hole in
/// between.
fn image(folder: &Path, order: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (tree, image) = (folder.join("tree"), folder.join(order));
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
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
    judge("makefs", &["-t", "ffs", "-B", order, "-o", options, "-s", "64m", to, from])?;
    Some((std::fs::read(image).unwrap(), large))
}

fn read_only() -> MountOptions {
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    MountOptions { ufs, ..MountOptions::default() }
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
                let find = async |name: &str| path::lookup(&fs, name.as_bytes()).await.unwrap();
                let found = find("a/large").await;
                let mut contents = vec![0; found.size as usize];
                fs.read(found.ino, 0, &mut contents).await.unwrap();
                assert!(contents == large, "{order}");
                let (small, twin) = (find("a/b/small").await, find("twin").await);
                assert_eq!((small.ino, small.links, small.permissions), (twin.ino, 2, 0o4751));
                let host = std::fs::metadata(folder.path().join("tree/twin")).unwrap();
                let time = host.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
                assert_eq!(small.mtime.seconds, time.as_secs() as i64, "{order}");
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
                let refused =
                    mount(&rt, disk, SyncOrder::default(), &MountOptions::default()).await;
                assert!(matches!(refused, Err(MountError::Unsupported(_))), "{order}");
            })
            .unwrap();
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
                let fs = mount(&rt, disk, NoOrder, &read_only()).await?;
                // The contents may be nonsense, and then an error reports damage.
                if let Ok(found) = path::lookup(&fs, b"a/large").await {
                    let _ = fs.read(found.ino, 0, &mut [0; 65536]).await;
                }
                Ok::<_, MountError>(())
            });
            refused += usize::from(mounted.unwrap().is_err());
        }
    }
    assert!(refused > 60, "{refused}");
}

//! A real block device below everything: a loop device of the host, if the test may make one.
//!
//! Fault model: the properties that only a device has. Its size and sector come from the kernel's
//! calls; requests must be aligned to its sector (which may have 4,096 bytes, as on modern disks);
//! it is opened exclusively. Would catch a size that is taken from the file's metadata (0 for a
//! device), direct I/O in units of the wrong size, and a device that two programs change at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::SyncOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};

/// A loop device, which is detached when dropped.
struct Loop(PathBuf);

impl Loop {
    /// A loop device on a file, with sectors of `sector` bytes; `None` if the host allows none.
    fn attach(file: &Path, sector: u32) -> Option<Loop> {
        let size = sector.to_string();
        let out = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &size])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(out.stdout).ok()?;
        let attached = out.status.success() && Path::new(name.trim()).exists();
        attached.then(|| Loop(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

async fn mounted_and_unmounted(disk: Rc<FileDisk>, rt: &ordo_runtime::Runtime) {
    let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
    mkfs(&disk.clone().erase(), &options, 0).await.unwrap();
    let fs = mount(rt, disk.clone(), SyncOrder::default(), &MountOptions::default()).await.unwrap();
    let file = fs.create(fs.root(), b"file", &NewNode::file(0o600)).await.unwrap().ino;
    let contents: Vec<u8> = (0..500_000u32).map(|i| (i % 251) as u8).collect();
    fs.write(file, 0, &contents).await.unwrap();
    fs.fsync(file).await.unwrap();
    fs.drop_caches().await.unwrap();
    let mut back = vec![0; contents.len()];
    fs.read(file, 0, &mut back).await.unwrap();
    assert!(back == contents);
    fs.unmount().await.unwrap();
    let report = Checker::new(disk, FsckOptions::default()).run().await.unwrap();
    assert!(report.is_consistent(), "{report}");
}

#[test]
fn a_loop_device_carries_a_file_system() {
    let folder = tempfile::tempdir().unwrap();
    for (sector, bytes) in [(512, (16 << 20) + 3 * 512), (4096, 16 << 20)] {
        let path = folder.path().join(format!("backing-{sector}"));
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let Some(device) = Loop::attach(&path, sector) else {
            ordo_testkit::skip("no loop device can be made here (losetup, as root)");
            return;
        };
        let executor = Executor::real(1);
        let rt = executor.runtime();
        let disk = Rc::new(FileDisk::open(&rt, &device.0, FileAccess::ReadWrite).unwrap());
        let geometry = disk.geometry();
        assert_eq!((geometry.bytes, geometry.read_only), (bytes, false));
        let again = FileDisk::open(&rt, &device.0, FileAccess::ReadWrite).unwrap_err();
        assert!(matches!(again, OpenError::Busy { .. } | OpenError::Locked { .. }), "{again}");
        executor
            .block_on(async {
                // The writes are shorter than the device's sector. The bytes around them must stay.
                for (at, byte) in [(4096, 1), (4608, 2)] {
                    let data = IoBuf::from_slice(&[byte; 512]);
                    disk.write(at, data, WriteFlags::FUA).await.unwrap();
                }
                let both = disk.read(4096, 1024).await.unwrap();
                assert!(both[..512] == [1; 512] && both[512..] == [2; 512]);
                disk.write(bytes - 512, IoBuf::from_slice(&[3; 512]), WriteFlags::empty())
                    .await
                    .unwrap();
                disk.read(bytes, 512).await.unwrap_err();
                mounted_and_unmounted(disk.clone(), &rt).await;
            })
            .unwrap();
    }
}

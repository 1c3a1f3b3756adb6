//! A check of an image whose log was not replayed. It replays the log in memory only, or for good.
//!
//! Fault model: the power fails while files are created. Would catch a read-only check that changes
//! an image, a replay that leaves something to be found, and a log that is replayed after other
//! software has used the image.

use std::rc::Rc;

use ordo_block::overlay::Overlay;
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ffs::{MountError, MountOptions, mount};
use ordo_ordering::{NoOrder, RecoverError};
use ordo_runtime::Executor;
use ordo_systems::journaled::{Journaled, JournaledError, LogPlace, replay};
use ordo_vfs::{FileSystem, NewNode};

/// An image after a power cut, with many records in its log.
fn cut(place: LogPlace) -> RamDisk {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disks = [Rc::new(RamDisk::new(16 << 20))];
    let journaled = Journaled::new(place, true, None);
    let work = async {
        journaled.make(&rt, &Device::of_each(&disks), &MkfsOptions::default()).await.unwrap();
        let (fs, _) =
            journaled.mount(&rt, &Device::of_each(&disks), &MountOptions::default()).await.unwrap();
        for n in 0..50 {
            let name = format!("file-{n}").into_bytes();
            fs.create(fs.root(), &name, &NewNode::file(0o644)).await.unwrap();
        }
        disks[0].snapshot()
    };
    executor.block_on(work).unwrap()
}

#[test]
fn a_look_changes_nothing_and_a_replay_leaves_nothing() {
    for place in [LogPlace::File, LogPlace::Same] {
        let disk = Rc::new(cut(place));
        let disks = [disk.clone()];
        let before = disk.to_vec();
        let executor = Executor::simulated(2);
        let rt = executor.runtime();
        let work = async {
            let look = Overlay::new(disk.clone()).erase();
            assert!(replay(&rt, std::slice::from_ref(&look)).await.unwrap().is_some());
            let report = Checker::new(look, FsckOptions::default()).run().await.unwrap();
            assert!(report.findings.is_empty(), "{place:?}: {report}");
            assert!(disk.to_vec() == before, "{place:?}: a look has changed the image");
            assert!(replay(&rt, &Device::of_each(&disks)).await.unwrap().is_some());
            let report = Checker::new(disk.clone(), FsckOptions::default()).run().await.unwrap();
            assert!(report.findings.is_empty() && report.files >= 51, "{place:?}: {report}");
            assert_eq!(
                replay(&rt, &Device::of_each(&disks)).await.unwrap(),
                None,
                "nothing is left to replay"
            );
        };
        executor.block_on(work).unwrap();
    }
}

/// Software that ignores the log mounts the image by force, uses it, and crashes. The log is not
/// replayed over its changes.
#[test]
fn a_stale_log_is_refused() {
    let disk = Rc::new(cut(LogPlace::Same));
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    let work = async {
        let options = MountOptions { force: true, ..MountOptions::default() };
        let fs = mount(&rt, disk.clone(), NoOrder, &options).await.unwrap();
        fs.create(fs.root(), b"other", &NewNode::file(0o644)).await.unwrap();
        fs.sync().await.unwrap();
        let stale = Rc::new(disk.snapshot());
        let error = replay(&rt, &[stale.erase()]).await.unwrap_err();
        let refused =
            matches!(error, JournaledError::Mount(MountError::Recover(RecoverError::StaleLog)));
        assert!(refused, "{error}");
    };
    executor.block_on(work).unwrap();
}

//! A repair that is interrupted, and begun again.
//!
//! Fault model: the power fails after any of the writes of a repair; writes complete in order.

use std::rc::Rc;

use crate::support::{Surgeon, assert_clean, check, empty};
use ordo_block::Operation;
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Recorder, Tap};
use ordo_check::{Checker, FsckOptions, Repair};
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ffs::mount::{self, MountOptions};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};

/// Names of three letters that fill a directory's three chunks up to eight bytes, so that
/// lost+found does not fit.
fn names() -> Vec<Vec<u8>> {
    (0..40 + 2 * 42).map(|n| format!("{n:03}").into_bytes()).collect()
}

/// A file system whose root directory is full to its last fragment, with a file that lost its name.
fn full_root() -> Rc<RamDisk> {
    let options = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
    let disk = empty(&options, 1 << 20);
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let device = disk.clone();
    let work = async move {
        let fs = mount::mount(&rt, device, NoOrder, &MountOptions::default()).await.unwrap();
        let mut names = names().into_iter();
        let dir = fs.create(fs.root(), &names.next().unwrap(), &NewNode::directory(0o755)).await;
        let dir = dir.unwrap().ino;
        let lost = fs.create(dir, b"without-a-name", &NewNode::file(0o644)).await;
        fs.write(lost.unwrap().ino, 0, b"contents").await.unwrap();
        for name in names {
            fs.create(fs.root(), &name, &NewNode::file(0o644)).await.unwrap();
        }
        fs.unmount().await.unwrap();
        u32::try_from(dir.0).unwrap()
    };
    let dir = executor.block_on(work).unwrap();
    Surgeon::new(&disk).remove_entry(dir, "without-a-name");
    disk
}

/// The root directory must grow into a longer run elsewhere to take lost+found in. Catches a repair
/// whose inode points there before the entries are written: the next repair would lose everything
/// in the root.
#[test]
fn files_keep_their_names_when_a_repair_is_interrupted() {
    let disk = full_root();
    let start = disk.snapshot();
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let recorder = Recorder::new(true);
    let tap = Rc::new(Tap::new(&rt, disk.clone()));
    tap.attach(recorder.clone());
    let options = FsckOptions { repair: Repair::Yes, ..FsckOptions::default() };
    let report = executor.block_on(Checker::new(tap, options).run()).unwrap().unwrap();
    assert!(report.findings.iter().any(|f| f.kind() == "UnreferencedInode"), "{report}");
    assert_clean(&disk, "after the repair");
    let writes = recorder.take().into_iter().filter(|r| r.op == Operation::Write);
    let writes: Vec<_> = writes.map(|r| (r.offset, r.data.unwrap())).collect();
    assert!(writes.len() > 3, "{} writes", writes.len());
    for cut in 0..=writes.len() {
        let disk = Rc::new(start.snapshot());
        writes[..cut].iter().for_each(|(offset, data)| disk.store(*offset, data));
        check(&disk, Repair::Yes).unwrap();
        assert_clean(&disk, &format!("cut off after {cut} writes"));
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let missing = async move {
            let fs = mount::mount(&rt, disk, NoOrder, &MountOptions::default()).await.unwrap();
            let mut missing = Vec::new();
            for name in names() {
                if fs.lookup(fs.root(), &name).await.is_err() {
                    missing.push(String::from_utf8(name).unwrap());
                }
            }
            missing
        };
        let missing = executor.block_on(missing).unwrap();
        assert!(missing.is_empty(), "cut off after {cut} of {} writes: {missing:?}", writes.len());
    }
}

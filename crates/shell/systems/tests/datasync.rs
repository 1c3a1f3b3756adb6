//! The writes of an fdatasync, on every system.
//!
//! A database's log is overwritten in place. Each record changes the file's times, and nothing that
//! is needed to read it: so an fdatasync is one write of the record, while an fsync writes the
//! inode too, or the log of metadata. A record that makes the file longer costs what an fsync
//! costs. Would catch a file system that takes the one for the other, in either direction.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::{Record, Recorder, Tap};
use ordo_block::{BlockDevice, Device, Operation};
use ordo_runtime::{Duration, Executor};
use ordo_systems::{Format, MakeOptions, MountOptions, System, lfs};
use ordo_vfs::{FileSystem, Ino, NewNode};

const BYTES: u64 = 32 << 20;
/// A block of every system here, or more.
const RECORD: u64 = 16 << 10;

fn small(format: &dyn Format) -> MakeOptions {
    let segment_size = (format.name() == lfs::LFS.format().name()).then_some(128 << 10);
    MakeOptions { segment_size, ..MakeOptions::default() }
}

/// The writes of an fsync after a record was overwritten, of an fdatasync, and of an fdatasync
/// after a record was appended within the file's last block.
fn writes_of(system: System) -> [usize; 3] {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let work = async {
        let sizes = system.devices(BYTES, 4096);
        let seen: Vec<_> = sizes.iter().map(|_| Recorder::new(false)).collect();
        let tapped = |(bytes, seen): (&u64, &Rc<Recorder>)| {
            let tap = Rc::new(Tap::new(&rt, Rc::new(RamDisk::new(*bytes))));
            tap.attach(seen.clone());
            tap.erase()
        };
        let disks: Vec<Device> = sizes.iter().zip(&seen).map(tapped).collect();
        system.make(&rt, &disks, &small(system.format())).await.unwrap();
        let mounted = system.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
        let fs = mounted.fs();
        let log = fs.create(fs.root(), b"log", &NewNode::file(0o644)).await.unwrap().ino;
        let record = |byte: u8, len: u64| vec![byte; len as usize];
        fs.write(log, 0, &record(1, 4 * RECORD + 100)).await.unwrap();
        fs.fsync(log).await.unwrap();
        fs.sync().await.unwrap();
        let count = || {
            let writes = |seen: &Rc<Recorder>| {
                seen.take().into_iter().filter(|r: &Record| r.op == Operation::Write).count()
            };
            seen.iter().map(writes).sum::<usize>()
        };
        let overwrite = async |byte, at: u64, len| {
            // The times change.
            rt.sleep(Duration::from_millis(1100)).await;
            fs.write(Ino(log.0), at, &record(byte, len)).await.unwrap();
            count();
        };
        overwrite(2, RECORD, RECORD).await;
        fs.fsync(log).await.unwrap();
        let fsync = count();
        overwrite(3, RECORD, RECORD).await;
        fs.fdatasync(log).await.unwrap();
        let fdatasync = count();
        overwrite(4, 4 * RECORD + 100, 100).await;
        fs.fdatasync(log).await.unwrap();
        [fsync, fdatasync, count()]
    };
    executor.block_on(work).unwrap()
}

#[test]
fn an_fdatasync_of_an_overwritten_record_is_one_write() {
    for system in System::runnable() {
        let [fsync, fdatasync, grown] = writes_of(system);
        println!("| {} | {fsync} | {fdatasync} | {grown} |", system.name());
        let name = system.name();
        if system == lfs::LFS {
            // A log has no place in which a record could be overwritten.
            assert_eq!(fdatasync, fsync, "{name}");
            continue;
        }
        assert_eq!(fdatasync, 1, "{name}: an fdatasync");
        assert!(fsync > 1, "{name}: {fsync} writes of an fsync");
        assert!(grown > 1, "{name}: {grown} writes of an fdatasync after growth");
    }
}

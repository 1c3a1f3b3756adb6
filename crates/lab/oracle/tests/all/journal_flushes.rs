//! An fsync under a journal costs one flush, and makes everything durable.
//!
//! The log's device, and the file system's, have volatile caches. A file is made, written and
//! synced. Where both are one device, one flush must cover the log and the contents, and no write
//! is forced besides; a log on a device of its own is forced there. Then the power fails, and both
//! devices lose everything that was not flushed: the file must be there with its contents. Would
//! catch a forced write of the log before the flush (twice the time of SQLite's transactions), a
//! block of a directory that is written for an fsync although the log has it, a flush that comes
//! before the log's last write, and a log on another device that nobody forces.

use std::cell::Cell;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::{Completed, Issued, Tap, TapSink};
use ordo_block::volatile::{KeepWrites, VolatileCache};
use ordo_block::{Device, Operation, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ffs::{FastFs, MountOptions};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_vfs::{FileSystem, Ino, NewNode};

const MIB: u64 = 1 << 20;
const PLACES: [LogPlace; 3] = [LogPlace::File, LogPlace::Same, LogPlace::Other];

/// The requests of a device.
#[derive(Default)]
struct Counted {
    flushes: Cell<u32>,
    forced: Cell<u32>,
    writes: Cell<u32>,
}

impl Counted {
    /// The numbers of flushes, of forced writes and of all writes since the last call.
    fn take(&self) -> (u32, u32, u32) {
        (self.flushes.take(), self.forced.take(), self.writes.take())
    }
}

impl TapSink for Counted {
    fn issued(&self, request: &Issued<'_>) {
        let add = |counter: &Cell<u32>, yes: bool| counter.set(counter.get() + u32::from(yes));
        let is_write = request.op == Operation::Write;
        add(&self.flushes, request.op == Operation::Flush);
        add(&self.writes, is_write);
        add(&self.forced, is_write && request.flags.contains(WriteFlags::FUA));
    }

    fn completed(&self, _: &Completed<'_>) {}
}

type Disk = Rc<Tap<VolatileCache<RamDisk>>>;

fn journaled(place: LogPlace) -> Journaled {
    let mut journaled = Journaled::new(place, false, None);
    // Nothing is written unless somebody asks for it.
    journaled.options.tick = Duration::from_secs(1000);
    journaled
}

fn disks(rt: &Runtime) -> ([Disk; 2], [Rc<Counted>; 2]) {
    let disks = [12 * MIB, MIB].map(|bytes| VolatileCache::new(RamDisk::new(bytes)));
    let disks = disks.map(|disk| Rc::new(Tap::new(rt, disk)));
    let counted = [Rc::new(Counted::default()), Rc::new(Counted::default())];
    disks.iter().zip(&counted).for_each(|(disk, sink)| disk.attach(sink.clone()));
    (disks, counted)
}

async fn mounted(journaled: &Journaled, rt: &Runtime, disks: &[Device]) -> FastFs {
    let cache = CacheConfig { data_age: Duration::from_secs(1000), ..CacheConfig::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    journaled.mount(rt, disks, &options).await.unwrap().0
}

/// Makes a file of `len` bytes, as a program does that writes it in pieces. There are so few pieces
/// that their records do not fill a cluster of the log, which would be written by itself.
async fn write_file(fs: &FastFs, name: &[u8], len: usize, byte: u8) -> Ino {
    let file = fs.create(fs.root(), name, &NewNode::file(0o644)).await.unwrap().ino;
    let most = (len / 3).max(1000);
    for at in (0..len).step_by(most) {
        let piece = vec![byte; most.min(len - at)];
        assert_eq!(fs.write(file, at as u64, &piece).await.unwrap(), piece.len());
    }
    file
}

#[test]
fn an_fsync_under_a_journal_is_one_flush_and_keeps_its_promise() {
    for place in PLACES {
        for len in [700, 3000, 60_000] {
            let executor = Executor::simulated(1);
            let rt = executor.runtime();
            let (disks, counted) = disks(&rt);
            let journaled = journaled(place);
            let small = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
            let work = async {
                journaled.make(&rt, &Device::of_each(&disks), &small).await.unwrap();
                let fs = mounted(&journaled, &rt, &Device::of_each(&disks)).await;
                write_file(&fs, b"first", len, 1).await;
                fs.sync().await.unwrap();
                for counted in &counted {
                    counted.take();
                }

                let file = write_file(&fs, b"second", len, 2).await;
                fs.fsync(file).await.unwrap();
                let [(flushes, forced, writes), log] = [counted[0].take(), counted[1].take()];
                assert_eq!((flushes, forced), (1, 0), "{place:?}, {len} bytes");
                assert!(writes > 0);
                let is_forced = (0, u32::from(place == LogPlace::Other));
                assert_eq!((log.0, log.1), is_forced, "{place:?}, {len} bytes: the other device");

                fs.fsync(file).await.unwrap();
                fs.fsync(fs.root()).await.unwrap();
                let nothing = [counted[0].take(), counted[1].take()];
                assert_eq!(nothing, [(0, 0, 0); 2], "{place:?}, {len} bytes: nothing was changed");
                // Without contents the log's own flush is the only one.
                write_file(&fs, b"third", 0, 3).await;
                fs.fsync(fs.root()).await.unwrap();
                let [first, log] = [counted[0].take(), counted[1].take()];
                let durable = first.0 + first.1 + log.0 + log.1;
                assert_eq!(durable, 1, "{place:?}, a name: {first:?} {log:?}");
                disks.each_ref().map(|disk| disk.inner().crash_image(|_| KeepWrites::Nothing))
            };
            let left = executor.block_on(work).unwrap();
            drop(executor);
            let executor = Executor::simulated(2);
            let rt = executor.runtime();
            let left = left.map(Rc::new);
            let found = executor.block_on(async {
                let fs = mounted(&journaled, &rt, &Device::of_each(&left)).await;
                let file = fs.lookup(fs.root(), b"second").await.unwrap();
                fs.lookup(fs.root(), b"third").await.unwrap();
                let mut bytes = vec![0; len + 1];
                let read = fs.read(file.ino, 0, &mut bytes).await.unwrap();
                bytes.truncate(read);
                bytes
            });
            assert!(found.unwrap() == vec![2; len], "{place:?}, {len} bytes");
        }
    }
}

//! An fsync under soft updates costs as few flushes as the order of its blocks allows, and makes
//! everything durable.
//!
//! A program writes as SQLite does with a rollback journal: it makes a file, writes and syncs it,
//! syncs the directory, overwrites the file's first bytes and syncs them, overwrites another file
//! and syncs that, changes its permissions and syncs again, and removes the first one; again and
//! again, so that a removed file's inode waits to be cleared in the block of those that are synced.
//! The disk has a volatile cache. A new file takes three flushes: after its contents and its bits
//! in the bitmap, after its inode, and after its name. An overwritten one takes one flush, and a
//! directory whose new name is on disk already none. Then the power fails, and all that was not
//! flushed is lost: both files must be there with their contents. Would catch an inode's block that
//! is written and flushed for the sake of other inodes in it (one flush more in each transaction),
//! and an inode that is taken for written although its latest change is not, also where the change
//! came while an image of its block was on the way to the disk.

use std::cell::Cell;
use std::rc::Rc;

use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Completed, Issued, Tap, TapSink};
use ordo_block::volatile::{KeepWrites, VolatileCache};
use ordo_block::{BlockDevice, Operation};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::SoftUpdates;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, Ino, NewNode, SetAttr};

const SIZES: [(u32, u32); 3] = [(4096, 512), (8192, 1024), (32_768, 4096)];
const TRANSACTIONS: u8 = 5;

/// The number of flushes since the last look.
#[derive(Default)]
struct Flushes(Cell<u32>);

impl TapSink for Flushes {
    fn issued(&self, request: &Issued<'_>) {
        self.0.set(self.0.get() + u32::from(request.op == Operation::Flush));
    }

    fn completed(&self, _: &Completed<'_>) {}
}

async fn mounted(rt: &Runtime, disk: impl BlockDevice + 'static) -> FastFs {
    // Nothing is written unless the program asks for it.
    let cache = CacheConfig { data_age: Duration::from_secs(1000), ..CacheConfig::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    mount(rt, disk.erase(), SoftUpdates::default(), &options).await.unwrap()
}

/// Mounts what a crash has left, and looks at it.
fn after_crash<T>(left: RamDisk, look: impl AsyncFnOnce(FastFs) -> T) -> T {
    let executor = Executor::simulated(2);
    let rt = executor.runtime();
    executor.block_on(async { look(mounted(&rt, Rc::new(left)).await).await }).unwrap()
}

/// Syncs a file, and returns the number of flushes that this took.
async fn flushes_of(fs: &FastFs, ino: Ino, flushes: &Flushes) -> u32 {
    flushes.0.set(0);
    fs.fsync(ino).await.unwrap();
    flushes.0.get()
}

async fn contents(fs: &FastFs, name: &[u8]) -> Vec<u8> {
    let file = fs.lookup(fs.root(), name).await.unwrap();
    let mut bytes = vec![0; file.size as usize];
    assert_eq!(fs.read(file.ino, 0, &mut bytes).await.unwrap(), bytes.len());
    bytes
}

#[test]
fn an_fsync_under_soft_updates_has_a_flush_for_each_step_and_keeps_its_promise() {
    for (block_size, frag_size) in SIZES {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let disk = Rc::new(Tap::new(&rt, VolatileCache::new(RamDisk::new(32 << 20))));
        let flushes = Rc::new(Flushes::default());
        disk.attach(flushes.clone());
        let work = async {
            let made = MkfsOptions { block_size, frag_size, ..MkfsOptions::default() };
            mkfs(&disk.clone().erase(), &made, 0).await.unwrap();
            let fs = mounted(&rt, disk.clone()).await;
            let root = fs.root();
            let database = fs.create(root, b"database", &NewNode::file(0o644)).await.unwrap().ino;
            fs.write(database, 0, &[0; 40_000]).await.unwrap();
            fs.sync().await.unwrap();
            for n in 1..=TRANSACTIONS {
                let journal = fs.create(root, b"journal", &NewNode::file(0o644)).await.unwrap().ino;
                for at in (0..8000).step_by(1000) {
                    fs.write(journal, at, &[n; 1000]).await.unwrap();
                }
                let new = flushes_of(&fs, journal, &flushes).await;
                let name = flushes_of(&fs, root, &flushes).await;
                rt.sleep(Duration::from_millis(5)).await;
                fs.write(journal, 0, &[100 + n; 12]).await.unwrap();
                let header = flushes_of(&fs, journal, &flushes).await;
                fs.write(database, 4096, &[n; 4096]).await.unwrap();
                let page = flushes_of(&fs, database, &flushes).await;
                let mode =
                    SetAttr { permissions: Some(0o600 + u16::from(n)), ..SetAttr::default() };
                fs.setattr(database, &mode).await.unwrap();
                let attributes = flushes_of(&fs, database, &flushes).await;
                let counted = (new, name, header, page, attributes);
                assert_eq!(counted, (3, 0, 1, 1, 1), "blocks of {block_size}, transaction {n}");
                if n < TRANSACTIONS {
                    fs.unlink(root, b"journal").await.unwrap();
                }
            }
            disk.inner().crash_image(|_| KeepWrites::Nothing)
        };
        let left = executor.block_on(work).unwrap();
        let (journal, database, mode) = after_crash(left, async |fs| {
            let mode = fs.lookup(fs.root(), b"database").await.unwrap().permissions;
            (contents(&fs, b"journal").await, contents(&fs, b"database").await, mode)
        });
        let n = TRANSACTIONS;
        assert!(
            journal == [[100 + n; 12].as_slice(), &[n; 7988]].concat(),
            "blocks of {block_size}"
        );
        assert_eq!((database.len(), database[4095], database[4096]), (40_000, 0, n));
        assert_eq!(mode, 0o600 + u16::from(n), "blocks of {block_size}: the inode's latest change");
    }
}

/// An inode is changed while a write of its block is under way for another one's sake, and is
/// synced after that write: the block must be written again. Would catch a block that counts as
/// written as it is when the write ends.
#[test]
fn a_change_during_a_write_of_its_block_is_written_by_an_fsync() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let cache = Rc::new(VolatileCache::new(RamDisk::new(32 << 20)));
    let slow = Model::by_name("cheetah").expect("a model");
    let disk = Rc::new(Modeled::new(&rt, slow, cache.clone()));
    let work = async {
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
        let fs = Rc::new(mounted(&rt, disk.clone()).await);
        let (root, file) = (fs.root(), NewNode::file(0o644));
        let first = fs.create(root, b"first", &file).await.unwrap().ino;
        let other = fs.create(root, b"other", &file).await.unwrap().ino;
        fs.sync().await.unwrap();
        let set = |bits| SetAttr { permissions: Some(bits), ..SetAttr::default() };
        fs.setattr(first, &set(0o600)).await.unwrap();
        let synced = rt.spawn("the fsync of the other inode", {
            let fs = fs.clone();
            async move { fs.fsync(first).await.unwrap() }
        });
        // The first write of a disk that is at rest takes longer than this.
        rt.sleep(Duration::from_micros(50)).await;
        fs.setattr(other, &set(0o640)).await.unwrap();
        synced.await;
        fs.fsync(other).await.unwrap();
        cache.crash_image(|_| KeepWrites::Nothing)
    };
    let left = executor.block_on(work).unwrap();
    let found =
        after_crash(left, async |fs| fs.lookup(fs.root(), b"other").await.unwrap().permissions);
    assert_eq!(found, 0o640);
}

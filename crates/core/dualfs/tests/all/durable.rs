//! The contents that an fsync of one file writes.
//!
//! Contents that are overwritten in their places wait for their own age, since no pointer to them
//! changes: an fsync of another file does not write them. Contents of a file whose size has changed
//! do not wait, because the log then gets an inode with the new size. Would catch a database whose
//! every commit writes all dirty pages of all tables, and sizes that reach the disk before the
//! bytes that they cover.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::{Record, Recorder, Tap};
use ordo_block::{BlockDevice, Device, Operation};
use ordo_dualfs::DualFs;
use ordo_dualfs::mkfs::{MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, Ino, NewNode, SetAttr};

const BLOCK: u64 = 4096;

/// A pair on two disks, whose data device is watched.
struct Watched {
    rt: Runtime,
    fs: DualFs,
    seen: Rc<Recorder>,
    data: Rc<RamDisk>,
}

impl Watched {
    async fn new(rt: &Runtime) -> Watched {
        let [metadata, data] = [16, 16].map(|mib| Rc::new(RamDisk::new(mib << 20)));
        let tap = Rc::new(Tap::new(rt, data.clone()));
        let seen = Recorder::new(true);
        tap.attach(seen.clone());
        let disks: Vec<Device> = vec![metadata.erase(), tap.erase()];
        mkfs(rt, &disks, &MkfsOptions::default()).await.expect("legal sizes");
        let fs = mount(rt, &disks, &MountOptions::default()).await.expect("just made");
        Watched { rt: rt.clone(), fs, seen, data }
    }

    async fn file(&self, name: &str, byte: u8, len: u64) -> Ino {
        let made = self.fs.create(self.fs.root(), name.as_bytes(), &NewNode::file(0o644)).await;
        let ino = made.expect("room").ino;
        self.write(ino, 0, byte, len).await;
        ino
    }

    async fn write(&self, ino: Ino, at: u64, byte: u8, len: u64) {
        self.fs.write(ino, at, &vec![byte; len as usize]).await.expect("room");
    }

    /// The first byte of each block that was written to the data device since the last call, in
    /// order.
    fn written(&self) -> Vec<u8> {
        let is_write = |r: &Record| r.op == Operation::Write;
        let blocks = |r: Record| {
            let bytes = r.data.expect("contents are kept").to_vec();
            bytes.chunks(BLOCK as usize).map(|block| block[0]).collect::<Vec<u8>>()
        };
        let mut all: Vec<u8> =
            self.seen.take().into_iter().filter(is_write).flat_map(blocks).collect();
        all.sort_unstable();
        all
    }

    async fn fsync(&self, ino: Ino) -> Vec<u8> {
        self.written();
        self.fs.fsync(ino).await.expect("a healthy device");
        self.written()
    }
}

fn run(work: impl AsyncFnOnce(Watched)) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor.block_on(async { work(Watched::new(&rt).await).await }).expect("no deadlock");
}

#[test]
fn overwritten_contents_of_other_files_wait_for_their_age() {
    run(async |pair| {
        let one = pair.file("one", b'a', 4 * BLOCK).await;
        let other = pair.file("other", b'b', 2 * BLOCK).await;
        pair.fs.sync().await.expect("a healthy device");
        pair.write(one, BLOCK, b'c', 2 * BLOCK).await;
        pair.write(other, 0, b'd', BLOCK).await;
        assert_eq!(pair.fsync(other).await, b"d");
        assert_eq!(pair.fsync(pair.fs.root()).await, b"");
        // Six seconds are enough for metadata, and not for contents.
        pair.rt.sleep(Duration::from_secs(6)).await;
        assert_eq!(pair.written(), b"");
        pair.rt.sleep(Duration::from_secs(30)).await;
        assert_eq!(pair.written(), b"cc");
        pair.write(one, 0, b'e', BLOCK).await;
        assert_eq!(pair.fsync(one).await, b"e");
        pair.write(one, 0, b'f', BLOCK).await;
        pair.fs.sync().await.expect("a healthy device");
        assert_eq!(pair.written(), b"f");
        pair.fs.unmount().await.expect("a healthy device");
        assert!(pair.data.to_vec().chunks(BLOCK as usize).any(|block| block[0] == b'f'));
    });
}

#[test]
fn contents_of_files_whose_size_changes_do_not_wait() {
    run(async |pair| {
        let one = pair.file("one", b'a', BLOCK / 2).await;
        let other = pair.file("other", b'b', BLOCK).await;
        pair.fs.sync().await.expect("a healthy device");
        // More bytes in a block that has its place.
        pair.write(one, BLOCK / 2, b'c', BLOCK / 4).await;
        pair.write(other, 0, b'd', BLOCK).await;
        assert_eq!(pair.fsync(other).await, b"ad");
        // The size is the same again, and bytes behind the shorter one are zeros.
        let size = |size: u64| SetAttr { size: Some(size), ..SetAttr::default() };
        pair.fs.setattr(one, &size(10)).await.expect("shorter");
        pair.fs.setattr(one, &size(BLOCK / 4 * 3)).await.expect("longer");
        pair.write(other, 0, b'e', BLOCK).await;
        assert_eq!(pair.fsync(other).await, b"ae");
        // New blocks come with the metadata that leads to them.
        pair.write(one, BLOCK, b'g', BLOCK).await;
        pair.rt.sleep(Duration::from_secs(6)).await;
        assert!(pair.written().contains(&b'g'));
    });
}

//! One large file through the file system, against plain O_DIRECT requests of the same size.

use std::path::PathBuf;
use std::rc::Rc;

use ordo_block::file::FileDisk;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_ffs::{MountOptions, mkfs, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::{Executor, Runtime, Time};
use ordo_ufs::{Layout, Ufs};
use ordo_vfs::{FileSystem, NewNode, SetAttr};

use crate::{Sample, Section};

const MIB: u64 = 1 << 20;
/// The number of bytes of the file.
pub const FILE: u64 = 1 << 30;
const DISK: u64 = FILE + (192 << 20);
/// The size of a request in bytes.
pub const REQUEST: usize = 1 << 20;
/// The number of plain requests under way at once. The cache has at least as many.
const DEPTH: u64 = 4;
/// The number of rounds of each, by turns.
pub const ROUNDS: usize = 5;

/// MiB a second of a file of `bytes` bytes, by the clock of the runtime, which may be simulated.
fn rate(rt: &Runtime, start: Time, bytes: u64) -> f64 {
    (bytes / MIB) as f64 / rt.now().since(start).as_secs_f64()
}

/// Sends every request of a file of `bytes` bytes once, `DEPTH` at a time. `request` makes each of
/// them.
async fn in_parallel<F, Fut>(rt: &Runtime, bytes: u64, request: F)
where
    F: Fn(u64) -> Fut + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let tasks: Vec<_> = (0..DEPTH)
        .map(|first| {
            let request = request.clone();
            rt.spawn("requests", async move {
                let mut n = first;
                while n * (REQUEST as u64) < bytes {
                    request(n * REQUEST as u64).await;
                    n += DEPTH;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

/// Writes a file of `bytes` bytes by plain requests: MiB a second.
pub async fn plain_write<D: BlockDevice>(rt: &Runtime, disk: &Rc<D>, bytes: u64) -> f64 {
    let contents = vec![0x5a; REQUEST];
    let start = rt.now();
    let (disk2, contents) = (disk.clone(), Rc::new(contents));
    in_parallel(rt, bytes, move |at| {
        let (disk, contents) = (disk2.clone(), contents.clone());
        async move {
            let buf = IoBuf::from_slice(&contents);
            disk.write(at, buf, WriteFlags::empty()).await.expect("a healthy device");
        }
    })
    .await;
    disk.flush().await.expect("a healthy device");
    rate(rt, start, bytes)
}

/// The same, read.
pub async fn plain_read<D: BlockDevice>(rt: &Runtime, disk: &Rc<D>, bytes: u64) -> f64 {
    let mut into = vec![0; REQUEST];
    let start = rt.now();
    let disk = disk.clone();
    let sink = Rc::new(std::cell::RefCell::new(std::mem::take(&mut into)));
    in_parallel(rt, bytes, move |at| {
        let (disk, sink) = (disk.clone(), sink.clone());
        async move {
            // The reader of the file copies the bytes, so this reader does too.
            let read = disk.read(at, REQUEST).await.expect("a healthy device");
            sink.borrow_mut().copy_from_slice(&read);
        }
    })
    .await;
    rate(rt, start, bytes)
}

/// Writes and reads the file through the file system, with cold caches.
async fn through_ffs(rt: &Runtime, disk: &Rc<FileDisk>) -> (f64, f64) {
    mkfs::mkfs(&disk.clone().erase(), &mkfs::MkfsOptions::default(), 0).await.expect("legal sizes");
    let mut options = MountOptions { use_reserve: true, ..MountOptions::default() };
    options.cache.capacity = 128 << 20;
    options.cache.dirty_max = 64 << 20;
    options.cache.cluster = REQUEST;
    let fs = mount(rt, disk.clone(), NoOrder, &options).await.expect("just made");
    let rates = through(rt, &fs, FILE).await;
    fs.unmount().await.expect("a healthy device");
    rates
}

/// Writes and reads a file of `bytes` bytes through a file system, with cold caches, and removes
/// it: MiB a second.
pub async fn through<L: Layout>(rt: &Runtime, fs: &Ufs<L>, bytes: u64) -> (f64, f64) {
    let ino = fs.create(fs.root(), b"large", &NewNode::file(0o644)).await.expect("room").ino;
    let mut buf = vec![0xa5; REQUEST];
    let start = rt.now();
    for at in (0..bytes).step_by(REQUEST) {
        assert_eq!(fs.write(ino, at, &buf).await.expect("room"), REQUEST);
    }
    fs.fsync(ino).await.expect("a healthy device");
    let written = rate(rt, start, bytes);
    fs.drop_caches().await.expect("a healthy device");
    let start = rt.now();
    for at in (0..bytes).step_by(REQUEST) {
        assert_eq!(fs.read(ino, at, &mut buf).await.expect("there"), REQUEST);
    }
    let read = rate(rt, start, bytes);
    assert!(buf.iter().all(|b| *b == 0xa5));
    fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).await.expect("there");
    (written, read)
}

/// The folder of the disk's file: `ORDO_BENCH_DIR`, or the build directory.
pub fn place() -> PathBuf {
    let build = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    std::env::var_os("ORDO_BENCH_DIR").map_or(build, PathBuf::from)
}

/// Measures both on one preallocated file.
pub fn measure(out: &mut Section) {
    let folder = place();
    let _ = std::fs::create_dir_all(&folder);
    let temp = tempfile::tempdir_in(&folder).expect("a folder to write to");
    let executor = Executor::real(1);
    let rt = executor.runtime();
    let mut samples: [Sample; 4] = Default::default();
    let run = async {
        let disk = FileDisk::create(&rt, &temp.path().join("disk"), DISK).expect("room");
        let direct = disk.is_direct();
        let disk = Rc::new(disk);
        // The file is allocated beforehand, so that no measurement includes its growth.
        for at in (0..DISK).step_by(REQUEST) {
            let buf = IoBuf::zeroed(REQUEST);
            disk.write(at, buf, WriteFlags::empty()).await.expect("room");
        }
        for _ in 0..ROUNDS {
            samples[0].push(plain_write(&rt, &disk, FILE).await);
            samples[2].push(plain_read(&rt, &disk, FILE).await);
            let (written, read) = through_ffs(&rt, &disk).await;
            samples[1].push(written);
            samples[3].push(read);
        }
        direct
    };
    let direct = executor.block_on(run).expect("no deadlock");
    out.say(format_args!(
        "A file of 1 GiB in requests of 1 MiB, in real time, on a preallocated disk file ({}); plain: \
         {DEPTH} requests under way, each copied to or from the application's buffer as the file \
         system's are. {ROUNDS} rounds of each in turn; MiB a second.",
        if direct { "O_DIRECT" } else { "buffered: O_DIRECT is refused here" }
    ));
    out.table();
    out.row("write, plain requests", &samples[0], 0);
    out.row("write, FFS, with fsync", &samples[1], 0);
    out.row("read, plain requests", &samples[2], 0);
    out.row("read, FFS, cold", &samples[3], 0);
    let (write, read) = (samples[1].over(&samples[0]), samples[3].over(&samples[2]));
    out.row("write, FFS over plain", &write, 2);
    out.row("read, FFS over plain", &read, 2);
    out.end();
    for (name, sample) in [("write", write), ("read", read)] {
        let (_, ratio, _) = sample.spread();
        out.target(&format!("{name}: 0.9 of plain or more"), ratio, ratio >= 0.9);
    }
}

//! FFS on a device that fails.
//!
//! Fault model: any one write, or every write from some time on, fails; any one read fails; the
//! disk is full meanwhile; the device is read-only, shorter than its file system, or of an odd
//! size.
//!
//! Demanded: no panic and no endless wait. After a failed write the file system is read-only, names
//! that write in its errors, and reports nothing durable any more. A check with repair makes the
//! image consistent, with everything that was made durable before the fault. A failed read is
//! reported with its place and changes nothing, so the same operation succeeds once the fault is
//! gone.
//!
//! Would catch an error that a delayed write swallows, an fsync that looks only at its own file, a
//! count that stays too high after an operation that gave up halfway, a lost inode or block.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::fault::{FaultRule, Faults, Faulty};
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags, ram::RamDisk};
use ordo_cache::CacheConfig;
use ordo_check::{Checker, FsckOptions, Repair};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountError, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SyncOrder};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_ufs::{Layout, UfsConfig};
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{
    Cookie, Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, XattrMode,
    path,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Disk = Rc<Faulty<RamDisk>>;
type Fs = FastFs;

const MIB: u64 = 1 << 20;

/// One operation of a workload, on paths.
#[derive(Clone, Debug)]
enum Step {
    Dir(&'static str),
    /// Creates a file of that many bytes.
    File(&'static str, usize),
    /// Writes that many bytes at an offset.
    Write(&'static str, u64, usize),
    Size(&'static str, u64),
    Link(&'static str, &'static str),
    Symlink(&'static str, usize),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Xattr(&'static str, usize),
    Read(&'static str),
    List(&'static str),
    Fsync(&'static str),
    Sync,
}

/// Every kind of operation, with direct, single and double indirect blocks, fragments that grow and
/// move, and directories that grow.
fn workload() -> Vec<Step> {
    use Step::*;
    vec![
        Dir("d"),
        File("d/kept", 30_000),
        Fsync("d/kept"),
        File("kept-too", 150_000),
        Sync,
        Dir("d/e"),
        File("d/frag", 1500),
        Write("d/frag", 1500, 3000),
        File("d/large", 130_000),
        Write("d/large", 12 * 8192 + 1024 * 8192 + 77, 9000),
        Xattr("d/large", 3000),
        Link("d/large", "other"),
        Symlink("short", 20),
        Symlink("long", 500),
        Rename("d/frag", "d/e/moved"),
        File("victim", 20_000),
        Fsync("victim"),
        Rename("d/e/moved", "victim"),
        Size("d/large", 100_000),
        Write("d/large", 90_000, 200_000),
        Read("d/large"),
        List("d"),
        Dir("d/f"),
        Rename("d/f", "g"),
        Rename("g", "d/e/h"),
        Xattr("d/large", 9),
        Sync,
        Unlink("other"),
        Unlink("d/large"),
        Unlink("long"),
        Rmdir("d/e/h"),
        Rmdir("d/e"),
        File("last", 70_000),
        Fsync("last"),
        Unlink("last"),
        Unlink("victim"),
    ]
}

fn contents(name: &str, len: usize) -> Vec<u8> {
    let salt = name.bytes().fold(7u32, |a, b| a.wrapping_mul(31).wrapping_add(b.into()));
    (0..len as u32).map(|i| (i.wrapping_mul(salt) >> 5) as u8 | 1).collect()
}

async fn write_all<F: FileSystem>(fs: &F, ino: Ino, at: u64, data: &[u8]) -> FsResult<()> {
    let mut done = 0;
    while done < data.len() {
        done += fs.write(ino, at + done as u64, &data[done..]).await?;
    }
    Ok(())
}

async fn ino_of<F: FileSystem>(fs: &F, name: &str) -> FsResult<Ino> {
    Ok(path::lookup_link(fs, name.as_bytes()).await?.ino)
}

async fn read_whole<F: FileSystem>(fs: &F, ino: Ino) -> FsResult<Vec<u8>> {
    let mut bytes = vec![0; fs.getattr(ino).await?.size as usize];
    fs.read(ino, 0, &mut bytes).await?;
    Ok(bytes)
}

/// Does a step. A step that creates and fills a file may fail after the creation. A second try
/// continues from there.
async fn apply<F: FileSystem>(fs: &F, step: &Step) -> FsResult<()> {
    match step.clone() {
        Step::Dir(name) => {
            let (dir, last) = path::parent(fs, name.as_bytes()).await?;
            fs.create(dir, last, &NewNode::directory(0o755)).await.map(|_| ())
        }
        Step::File(name, len) => {
            let (dir, last) = path::parent(fs, name.as_bytes()).await?;
            let ino = match fs.lookup(dir, last).await {
                Err(e) if e.errno == Errno::NotFound => {
                    fs.create(dir, last, &NewNode::file(0o644)).await?.ino
                }
                found => found?.ino,
            };
            write_all(fs, ino, 0, &contents(name, len)).await
        }
        Step::Write(name, at, len) => {
            write_all(fs, ino_of(fs, name).await?, at, &contents(name, len)).await
        }
        Step::Size(name, size) => {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(ino_of(fs, name).await?, &set).await.map(|_| ())
        }
        Step::Link(old, new) => {
            let ino = ino_of(fs, old).await?;
            let (dir, last) = path::parent(fs, new.as_bytes()).await?;
            fs.link(ino, dir, last).await.map(|_| ())
        }
        Step::Symlink(name, len) => {
            let target = vec![b't'; len];
            let (dir, last) = path::parent(fs, name.as_bytes()).await?;
            fs.create(dir, last, &NewNode::symlink(&target)).await.map(|_| ())
        }
        Step::Rename(old, new) => {
            let (from, old) = path::parent(fs, old.as_bytes()).await?;
            let (to, new) = path::parent(fs, new.as_bytes()).await?;
            fs.rename(from, old, to, new, RenameMode::Replace).await
        }
        Step::Unlink(name) => {
            let (dir, last) = path::parent(fs, name.as_bytes()).await?;
            fs.unlink(dir, last).await
        }
        Step::Rmdir(name) => {
            let (dir, last) = path::parent(fs, name.as_bytes()).await?;
            fs.rmdir(dir, last).await
        }
        Step::Xattr(name, len) => {
            let ino = ino_of(fs, name).await?;
            fs.setxattr(ino, b"user.x", &contents(name, len), XattrMode::Set).await
        }
        Step::Read(name) => read_whole(fs, ino_of(fs, name).await?).await.map(|_| ()),
        Step::List(name) => fs.readdir(ino_of(fs, name).await?, Cookie::START, &mut |_| true).await,
        Step::Fsync(name) => fs.fsync(ino_of(fs, name).await?).await,
        Step::Sync => fs.sync().await,
    }
}

/// Names, types, link counts, sizes and contents of all files.
async fn dump<F: FileSystem>(fs: &F) -> BTreeMap<String, (FileType, u32, u64, u64, Vec<u8>)> {
    let mut out = BTreeMap::new();
    let mut walk = Walk::new(fs, fs.root(), WalkLimits::default()).await.unwrap();
    while let Some(visit) = walk.next().await.unwrap() {
        let Visit::Enter(e) = visit else { continue };
        let bytes = match e.attr.file_type {
            FileType::Regular => read_whole(fs, e.attr.ino).await.unwrap(),
            FileType::Symlink => fs.readlink(e.attr.ino).await.unwrap(),
            _ => Vec::new(),
        };
        let (a, name) = (e.attr, String::from_utf8_lossy(&e.path).into_owned());
        out.insert(name, (a.file_type, a.links, a.size, a.blocks, bytes));
    }
    out
}

/// Few inodes and a small cache, so that much of the work reaches the disk.
fn options() -> MountOptions {
    let cache = CacheConfig { capacity: 1 << 20, dirty_max: 96 << 10, ..CacheConfig::default() };
    MountOptions { cache, ..MountOptions::default() }
}

fn papers() -> MkfsOptions {
    MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() }
}

/// An empty file system of `bytes` bytes, and the fault injector of its device.
async fn made(bytes: u64, options: &MkfsOptions) -> (Disk, Faults) {
    let faults = Faults::new();
    let disk = Rc::new(Faulty::new(RamDisk::new(bytes), &faults));
    mkfs(&disk.clone().erase(), options, 0).await.unwrap();
    (disk, faults)
}

async fn check(disk: &Disk, repair: Repair) -> ordo_check::Report {
    let options = FsckOptions { repair, ..FsckOptions::default() };
    Checker::new(disk.clone(), options).run().await.unwrap()
}

/// Checks that a check with repair makes the image consistent: the next one has no findings.
async fn repairs(disk: &Disk, when: &str) {
    let first = check(disk, Repair::Yes).await;
    let second = check(disk, Repair::No).await;
    assert!(second.is_consistent(), "{when}: {first}\nthen {second}");
}

/// Runs `f` with a simulated clock; a run that takes a simulated day hangs.
fn simulated<F: Future<Output = ()>>(seed: u64, f: impl FnOnce(Runtime) -> F) {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let watch = rt.clone();
    executor
        .block_on(async {
            let mut work = std::pin::pin!(f(rt));
            let mut day = std::pin::pin!(watch.sleep(Duration::from_secs(86_400)));
            std::future::poll_fn(|cx| {
                if work.as_mut().poll(cx).is_ready() {
                    return std::task::Poll::Ready(());
                }
                assert!(day.as_mut().poll(cx).is_pending(), "a day, and not done");
                std::task::Poll::Pending
            })
            .await;
        })
        .unwrap();
}

/// The contents that were durable before the fault, by path.
type Durable = BTreeMap<&'static str, Vec<u8>>;

/// The name of the ordering under which `fs` is mounted.
fn ordering(fs: &Fs) -> &'static str {
    Layout::cache(fs.layout()).ordering().name()
}

/// Runs the workload to its end. Returns what was durable when the first write failed, or `None` if
/// none failed.
async fn run_with_failing_writes(
    rt: &Runtime,
    fs: &Fs,
    fired: impl Fn() -> bool,
) -> Option<Durable> {
    let mut durable = Durable::new();
    let mut written: BTreeMap<&'static str, Vec<u8>> = BTreeMap::new();
    let mut at_fault = None;
    for step in workload() {
        let before = fired();
        let result = apply(fs, &step).await;
        if !before && !fired() && result.is_ok() {
            match &step {
                Step::File(name, len) if name.starts_with("kept") || name.ends_with("kept") => {
                    written.insert(name, contents(name, *len));
                }
                // Without an ordering a file's names are durable only after a sync.
                Step::Fsync(name) if ordering(fs) != "none" => {
                    durable.extend(written.get(name).map(|bytes| (*name, bytes.clone())));
                }
                Step::Sync => durable.extend(written.clone()),
                _ => {}
            }
        } else if fired() && at_fault.is_none() {
            at_fault = Some(durable.clone());
        }
        match (&step, result) {
            (Step::Fsync(_) | Step::Sync, Ok(())) => {
                assert!(!before, "{step:?} after a failed write")
            }
            (_, Ok(())) => {}
            (_, Err(e)) => {
                assert!(fired(), "{step:?}: {e}");
                let detail = e.detail.as_deref().unwrap_or_default();
                let named = matches!(e.errno, Errno::NotFound | Errno::NotEmpty)
                    || detail.contains("write of ") && detail.contains(" at byte ");
                assert!(named, "{step:?}: {e}");
            }
        }
        if before {
            let refused = fs.create(fs.root(), b"more", &NewNode::file(0o600)).await.unwrap_err();
            assert_eq!(refused.errno, Errno::ReadOnly);
            assert!(refused.to_string().contains("write of "), "{refused}");
            assert!(fs.is_read_only());
        }
        // The syncer gets time for several rounds.
        rt.sleep(Duration::from_secs(11)).await;
    }
    at_fault.or_else(|| fired().then_some(durable))
}

async fn one_failing_write<P: OrderingPolicy>(rt: &Runtime, policy: P, n: u64, all: bool) -> bool {
    let (disk, faults) = made(24 * MIB, &papers()).await;
    let fs = mount(rt, disk.clone(), policy, &options()).await.unwrap();
    let rule = FaultRule::fail(libc::EIO).on(Operation::Write);
    let id = faults.add(if all { rule.from_nth(n) } else { rule.nth(n) });
    let fired = || faults.fired(id) > 0;
    let when =
        format!("{}, write {n}{}", ordering(&fs), if all { " and all after it" } else { "" });
    let durable = run_with_failing_writes(rt, &fs, fired).await;
    let unmounted = fs.unmount().await;
    assert_eq!(unmounted.is_err(), fired(), "{when}: {unmounted:?}");
    if !fired() {
        return false;
    }
    drop(fs);
    faults.clear();
    repairs(&disk, &when).await;
    let fs = mount(rt, disk, NoOrder, &MountOptions::default()).await.unwrap();
    for (name, bytes) in durable.unwrap_or_default() {
        let ino = ino_of(&fs, name).await.unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
        assert!(read_whole(&fs, ino).await.unwrap() == bytes, "{when}: {name}");
    }
    fs.unmount().await.unwrap();
    true
}

/// Each write in turn fails, once or for ever after, until the workload has no further write.
fn every_write_fails<P: OrderingPolicy>(policy: fn() -> P) {
    for all in [false, true] {
        let mut n = 1;
        let mut failed = 0;
        loop {
            let mut went_wrong = false;
            simulated(n, async |rt| {
                went_wrong = one_failing_write(&rt, policy(), n, all).await;
            });
            if !went_wrong {
                break;
            }
            failed += 1;
            n += 1 + n / 40;
        }
        assert!(failed > 20, "{failed}");
    }
}

#[test]
fn a_failed_write_makes_it_read_only_without_an_ordering() {
    every_write_fails(|| NoOrder);
}

#[test]
fn a_failed_write_makes_it_read_only_under_sync() {
    every_write_fails(SyncOrder::default);
}

/// Runs the workload with cold caches. The n-th read fails once, and its step is then repeated.
/// Returns the dump at the end, and whether there was an n-th read.
async fn with_failing_read<P: OrderingPolicy>(
    rt: &Runtime,
    policy: P,
    n: u64,
) -> (BTreeMap<String, (FileType, u32, u64, u64, Vec<u8>)>, bool) {
    let (disk, faults) = made(24 * MIB, &papers()).await;
    let options = MountOptions::default();
    let fs = mount(rt, disk.clone(), policy, &options).await.unwrap();
    let id = faults.add(FaultRule::fail(libc::EIO).on(Operation::Read).nth(n));
    for step in workload() {
        let before = faults.fired(id);
        let cold = fs.drop_caches().await;
        let first = match cold {
            Ok(()) => apply(&fs, &step).await,
            Err(e) => Err(e),
        };
        if let Err(e) = first {
            assert!(faults.fired(id) > before, "read {n}, {step:?}: {e}");
            let detail = e.detail.as_deref().unwrap_or_default();
            assert_eq!(e.errno, Errno::Io);
            assert!(detail.contains("read of ") && detail.contains(" at byte "), "{e}");
            let again = apply(&fs, &step).await;
            assert!(again.is_ok(), "read {n}, {step:?} done again: {again:?}");
        }
    }
    let fired = faults.fired(id) > 0;
    faults.clear();
    let all = dump(&fs).await;
    fs.unmount().await.unwrap();
    let report = check(&disk, Repair::No).await;
    assert!(report.is_consistent(), "{}, read {n}: {report}", ordering(&fs));
    (all, fired)
}

fn every_read_fails<P: OrderingPolicy>(policy: fn() -> P) {
    let mut expected = None;
    for n in 0.. {
        let mut fired = false;
        simulated(1, async |rt| {
            let (all, reached) = with_failing_read(&rt, policy(), n).await;
            fired = reached;
            let expected = expected.get_or_insert_with(|| all.clone());
            assert!(all == *expected, "read {n}: another outcome than without the fault");
        });
        if n > 0 && !fired {
            assert!(n > 100, "{n}");
            return;
        }
    }
}

#[test]
fn a_failed_read_changes_nothing_without_an_ordering() {
    every_read_fails(|| NoOrder);
}

#[test]
fn a_failed_read_changes_nothing_under_sync() {
    every_read_fails(SyncOrder::default);
}

/// A random operation on a few names.
async fn random_step<F: FileSystem>(fs: &F, dice: &mut Pcg64Mcg) -> FsResult<()> {
    let root = fs.root();
    let name = format!("n{}", dice.random_range(0..12));
    let name = name.as_bytes();
    match dice.random_range(0..9) {
        0..=3 => {
            let ino = match fs.create(root, name, &NewNode::file(0o644)).await {
                Err(e) if e.errno == Errno::Exists => fs.lookup(root, name).await?.ino,
                made => made?.ino,
            };
            let data = vec![1; dice.random_range(1..120_000)];
            fs.write(ino, dice.random_range(0..300_000), &data).await.map(|_| ())
        }
        4 => fs.unlink(root, name).await,
        5 => {
            let size = Some(dice.random_range(0..400_000));
            let ino = fs.lookup(root, name).await?.ino;
            fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).await.map(|_| ())
        }
        6 => {
            let ino = fs.lookup(root, name).await?.ino;
            let value = vec![2; dice.random_range(0..9000)];
            fs.setxattr(ino, b"user.y", &value, XattrMode::Set).await
        }
        7 => fs.create(root, name, &NewNode::directory(0o755)).await.map(|_| ()),
        _ => {
            let to = format!("n{}", dice.random_range(0..12));
            fs.rename(root, name, root, to.as_bytes(), RenameMode::Replace).await
        }
    }
}

async fn storm<P: OrderingPolicy>(rt: &Runtime, policy: P, seed: u64) -> (u32, u32) {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let (disk, faults) = made(MIB + MIB / 4, &papers()).await;
    let fs = mount(rt, disk.clone(), policy, &options()).await.unwrap();
    let writes = dice.random_range(100..4000);
    let reads = dice.random_range(20..200);
    let write = faults.add(FaultRule::fail(libc::EIO).on(Operation::Write).nth(writes));
    faults.add(FaultRule::fail(libc::EIO).on(Operation::Read).nth(reads));
    faults.add(FaultRule::fail(libc::EIO).on(Operation::Read).nth(reads * 2));
    let (mut full, mut wrong) = (0, 0);
    for _ in 0..250 {
        let before = faults.fired(write) > 0;
        match random_step(&fs, &mut dice).await {
            Ok(()) => {}
            Err(e) if e.errno == Errno::NoSpace => full += 1,
            Err(e) if e.errno == Errno::Io || e.errno == Errno::ReadOnly => wrong += 1,
            Err(e) => assert_ne!(e.errno, Errno::Corrupt, "seed {seed}: {e}"),
        }
        if before {
            assert!(fs.sync().await.is_err(), "seed {seed}");
        }
        rt.sleep(Duration::from_millis(700)).await;
    }
    let fired = faults.fired(write) > 0;
    faults.clear();
    assert_eq!(fs.unmount().await.is_err(), fired, "seed {seed}");
    let when = format!("{}, seed {seed}", ordering(&fs));
    drop(fs);
    repairs(&disk, &when).await;
    (full, wrong)
}

/// Space runs out again and again while the device fails now and then.
#[test]
fn a_full_disk_that_fails() {
    let (mut full, mut wrong) = (0, 0);
    for seed in 0..60 {
        simulated(seed, async |rt| {
            let a = storm(&rt, NoOrder, seed).await;
            let b = storm(&rt, SyncOrder::default(), seed).await;
            full += a.0 + b.0;
            wrong += a.1 + b.1;
        });
    }
    assert!(full > 100 && wrong > 100, "{full} {wrong}");
}

/// A device that accepts no writes.
struct Sealed(Rc<RamDisk>);

impl BlockDevice for Sealed {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.0.geometry() }
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.0.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, _: WriteFlags) -> Result<(), BlockError> {
        panic!("a write of {} bytes at byte {offset}", data.len());
    }
    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        panic!("a discard of {len} bytes at byte {offset}");
    }
}

/// A read-only device is mounted read-only or not at all. One that was cut short is refused with
/// both sizes. One of an odd size works up to its end.
#[test]
fn odd_devices() {
    simulated(1, async |rt| {
        let bytes = 9 * MIB + 3 * 512;
        let disk = Rc::new(RamDisk::new(bytes));
        mkfs(&disk.clone().erase(), &papers(), 0).await.unwrap();
        let fs = mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await.unwrap();
        let ino = fs.create(fs.root(), b"all", &NewNode::file(0o600)).await.unwrap().ino;
        let chunk = contents("all", 100_000);
        let mut size = 0;
        while let Ok(n) = fs.write(ino, size, &chunk).await {
            size += n as u64;
        }
        assert!(size > 6 * MIB);
        fs.unmount().await.unwrap();

        let sealed = || Sealed(disk.clone());
        let refused = mount(&rt, sealed(), NoOrder, &MountOptions::default()).await;
        assert!(matches!(refused, Err(MountError::ReadOnlyDevice)));
        let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
        let read_only = MountOptions { ufs, ..MountOptions::default() };
        let fs = mount(&rt, sealed(), NoOrder, &read_only).await.unwrap();
        assert_eq!(read_whole(&fs, ino).await.unwrap().len() as u64, size);
        let refused = fs.create(fs.root(), b"x", &NewNode::file(0o600)).await.unwrap_err();
        assert_eq!(refused.errno, Errno::ReadOnly);
        fs.sync().await.unwrap();
        fs.unmount().await.unwrap();

        let image = disk.to_vec();
        let short = Rc::new(RamDisk::from_image(&image[..image.len() - 4096]));
        for options in [&read_only, &MountOptions::default()] {
            let refused =
                mount(&rt, short.clone(), NoOrder, options).await.map(|_| ()).unwrap_err();
            let MountError::DeviceTooSmall { want, have } = refused else { panic!("{refused}") };
            assert!(want <= bytes && have == bytes - 4096, "{want} {have}");
        }
    });
}

//! The same three calls on FFS in this process (RAM disk, ordering `none`) and on ext4 on a loop
//! device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::{MountOptions, mkfs, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};

use crate::{Sample, Section};

/// The number of files that are made, looked up and removed.
pub const FILES: usize = 20_000;
/// The number of rounds of each, by turns.
pub const ROUNDS: usize = 7;

/// Files a second: create, stat, unlink, and all three together.
pub type Rates = [f64; 4];

/// The names of the rates.
pub const NAMES: [&str; 4] = ["create", "stat", "unlink", "all three"];

fn rates(seconds: [f64; 3]) -> Rates {
    let rate = |s: f64| FILES as f64 / s;
    [rate(seconds[0]), rate(seconds[1]), rate(seconds[2]), rate(seconds.iter().sum())]
}

/// The rates of FFS without order.
pub fn in_process() -> Rates {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(1 << 30));
    let run = async {
        mkfs::mkfs(&disk.clone().erase(), &mkfs::MkfsOptions::default(), 0)
            .await
            .expect("legal sizes");
        let mut options = MountOptions::default();
        options.cache.capacity = 256 << 20;
        options.cache.dirty_max = 128 << 20;
        let fs = mount(&rt, disk.clone(), NoOrder, &options).await.expect("just made");
        on(&fs).await
    };
    executor.block_on(run).expect("no deadlock")
}

/// The rates of a file system in this process.
pub async fn on<F: FileSystem>(fs: &F) -> Rates {
    let dir = fs.create(fs.root(), b"dir", &NewNode::directory(0o755)).await.expect("room").ino;
    let names: Vec<String> = (0..FILES).map(|i| format!("file{i}")).collect();
    let mut seconds = [0.0; 3];
    let start = Instant::now();
    for name in &names {
        fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.expect("room");
    }
    seconds[0] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for name in &names {
        std::hint::black_box(fs.lookup(dir, name.as_bytes()).await.expect("there"));
    }
    seconds[1] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for name in &names {
        fs.unlink(dir, name.as_bytes()).await.expect("there");
    }
    seconds[2] = start.elapsed().as_secs_f64();
    rates(seconds)
}

fn on_kernel(dir: &Path) -> Rates {
    let names: Vec<PathBuf> = (0..FILES).map(|i| dir.join(format!("file{i}"))).collect();
    let mut seconds = [0.0; 3];
    let start = Instant::now();
    for name in &names {
        drop(std::fs::File::create_new(name).expect("room"));
    }
    seconds[0] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for name in &names {
        std::hint::black_box(std::fs::metadata(name).expect("there"));
    }
    seconds[1] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for name in &names {
        std::fs::remove_file(name).expect("there");
    }
    seconds[2] = start.elapsed().as_secs_f64();
    rates(seconds)
}

/// ext4 on a loop device, unmounted when dropped.
struct Ext4 {
    _temp: tempfile::TempDir,
    at: PathBuf,
}

impl Ext4 {
    fn new() -> Option<Ext4> {
        let temp = tempfile::tempdir().ok()?;
        let (image, at) = (temp.path().join("image"), temp.path().join("at"));
        std::fs::File::create(&image).ok()?.set_len(1 << 30).ok()?;
        std::fs::create_dir(&at).ok()?;
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            Command::new(program).args(args).output().is_ok_and(|o| o.status.success())
        };
        let made = run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_ref()])
            && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()]);
        made.then_some(Ext4 { _temp: temp, at })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

/// Measures both. Without root or loop devices, only FFS is measured.
pub fn measure(out: &mut Section) {
    let ext4 = Ext4::new();
    if ext4.is_none() {
        out.say("SKIPPED: ext4 could not be mounted on a loop device (needs root).");
    }
    let mut ours: [Sample; 4] = Default::default();
    let mut theirs: [Sample; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (sample, rate) in ours.iter_mut().zip(in_process()) {
            sample.push(rate);
        }
        if let Some(ext4) = &ext4 {
            for (sample, rate) in theirs.iter_mut().zip(on_kernel(&ext4.at)) {
                sample.push(rate);
            }
        }
    }
    out.say(format_args!(
        "{FILES} empty files in one directory, {ROUNDS} rounds of each in turn, one thread; files a \
         second. Ours has no system call to pay for: that is what in-process means."
    ));
    out.table();
    let names = NAMES;
    for (i, name) in names.iter().enumerate() {
        out.row(&format!("{name}, FFS in process"), &ours[i], 0);
        if ext4.is_some() {
            out.row(&format!("{name}, ext4"), &theirs[i], 0);
            out.row(&format!("{name}, ratio"), &ours[i].over(&theirs[i]), 1);
        }
    }
    out.end();
    if ext4.is_some() {
        for (i, name) in names.iter().enumerate() {
            let (_, ratio, _) = ours[i].over(&theirs[i]).spread();
            out.target(&format!("{name}: 10 times ext4 or more"), ratio, ratio >= 10.0);
        }
    }
}

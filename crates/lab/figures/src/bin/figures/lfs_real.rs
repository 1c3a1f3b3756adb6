//! LFS in this process beside FFS without order, in real time; and one large file beside plain
//! requests, in virtual time on models of disks, and in real time on a disk of this machine.

use std::rc::Rc;

use ordo_block::file::FileDisk;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{LogFs, MountOptions, mount};
use ordo_runtime::{Executor, Runtime};

use crate::in_process::{self, NAMES, Rates};
use crate::streaming::{self, FILE, REQUEST};
use crate::{Sample, Section};

/// A log of which the large file takes two thirds.
const DISK: u64 = FILE + FILE / 2;

async fn mounted(rt: &Runtime, disk: impl BlockDevice + Clone, cache: CacheConfig) -> LogFs {
    mkfs(disk.clone(), &MkfsOptions::default(), 0).await.expect("legal sizes");
    let options = MountOptions { cache, ..MountOptions::default() };
    mount(rt, disk, &options).await.expect("just made")
}

fn on_log() -> Rates {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let cache = CacheConfig { dirty_max: 128 << 20, ..CacheConfig::with_capacity(256 << 20) };
        in_process::on(&mounted(&rt, Rc::new(RamDisk::new(1 << 30)), cache).await).await
    };
    executor.block_on(run).expect("no deadlock")
}

fn load() -> String {
    let read = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Makes, looks up and removes empty files in process.
pub fn names(out: &mut Section) {
    let before = load();
    let mut ours: [Sample; 4] = Default::default();
    let mut theirs: [Sample; 4] = Default::default();
    for _ in 0..in_process::ROUNDS {
        ours.iter_mut().zip(on_log()).for_each(|(sample, rate)| sample.push(rate));
        theirs.iter_mut().zip(in_process::in_process()).for_each(|(s, rate)| s.push(rate));
    }
    out.say(format_args!(
        "{} empty files in one directory on a RAM disk, {} rounds of each in turn, one thread, in real time; files a \
         second, and how many times as long LFS takes. Load of the machine before: {before}.",
        in_process::FILES,
        in_process::ROUNDS
    ));
    out.table();
    for (i, name) in NAMES.iter().enumerate() {
        out.row(&format!("{name}, LFS"), &ours[i], 0);
        out.row(&format!("{name}, FFS without order"), &theirs[i], 0);
        out.row(&format!("{name}, times as long"), &theirs[i].over(&ours[i]), 2);
    }
    out.end();
    let (_, times, _) = theirs[3].over(&ours[3]).spread();
    out.target("all three: 1.5 times as long as FFS without order, or less", times, times <= 1.5);
}

/// The bytes of the large file on disks of the catalogue.
const FILE_ON_MODEL: u64 = 128 << 20;

/// Writes and reads one large file on disks of the catalogue, by plain requests and through LFS:
/// MiB a second.
pub fn sequential(out: &mut Section) {
    out.say(format_args!(
        "A file of {} MiB in requests of 1 MiB on an empty log of twice that size, and plain requests of that size at the same \
         place, four under way; MiB a second with the fsync or flush at the end. Virtual time without a processor model, seed 1: exact.",
        FILE_ON_MODEL >> 20
    ));
    let mut table = String::from(
        "| disk | write, plain | write, LFS | over plain | read, plain | read, LFS | over plain |\n|---|---:|---:|---:|---:|---:|---:|",
    );
    let mut least = f64::INFINITY;
    for name in ["viking", "st34310a", "hdd-4tb", "sata-ssd", "nvme"] {
        let model = Model::by_name(name).expect("in the catalogue");
        let [plain, log] = on_model(model);
        let write = log.0 / plain.0;
        least = least.min(write);
        table += &format!(
            "\n| {name} | {:.1} | {:.1} | {write:.2} | {:.1} | {:.1} | {:.2} |",
            plain.0,
            log.0,
            plain.1,
            log.1,
            log.1 / plain.1
        );
    }
    out.say(table);
    out.target("write: 0.9 of plain requests or more on each disk, the least", least, least >= 0.9);
}

/// Writes and reads the file on a disk: by plain requests, and through LFS.
fn on_model(model: &Model) -> [(f64, f64); 2] {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let disk = || Rc::new(Modeled::new(&rt, model, RamDisk::new(2 * FILE_ON_MODEL)));
        let plain = disk();
        let written = streaming::plain_write(&rt, &plain, FILE_ON_MODEL).await;
        let read = streaming::plain_read(&rt, &plain, FILE_ON_MODEL).await;
        let usual = CacheConfig::with_capacity(64 << 20);
        let cache = CacheConfig { dirty_max: 16 << 20, cluster: REQUEST, ..usual };
        let fs = mounted(&rt, disk(), cache).await;
        let through = streaming::through(&rt, &fs, FILE_ON_MODEL).await;
        fs.unmount().await.expect("a healthy device");
        [(written, read), through]
    };
    executor.block_on(run).expect("no deadlock")
}

/// Writes and reads one large file.
pub fn stream(out: &mut Section) {
    let before = load();
    let folder = streaming::place();
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
        for _ in 0..streaming::ROUNDS {
            samples[0].push(streaming::plain_write(&rt, &disk, FILE).await);
            samples[2].push(streaming::plain_read(&rt, &disk, FILE).await);
            let usual = CacheConfig::with_capacity(128 << 20);
            let cache = CacheConfig { dirty_max: 64 << 20, cluster: REQUEST, ..usual };
            let fs = mounted(&rt, disk.clone(), cache).await;
            let (written, read) = streaming::through(&rt, &fs, FILE).await;
            fs.unmount().await.expect("a healthy device");
            samples[1].push(written);
            samples[3].push(read);
        }
        direct
    };
    let direct = executor.block_on(run).expect("no deadlock");
    out.say(format_args!(
        "A file of 1 GiB in requests of 1 MiB in a log of 1.5 GiB, in real time, on a preallocated disk file ({}), beside \
         plain requests of the same size. {} rounds of each in turn; MiB a second. Load of the machine before: {before}.",
        if direct { "O_DIRECT" } else { "buffered: O_DIRECT is refused here" },
        streaming::ROUNDS
    ));
    out.table();
    out.row("write, plain requests", &samples[0], 0);
    out.row("write, LFS, with fsync", &samples[1], 0);
    out.row("read, plain requests", &samples[2], 0);
    out.row("read, LFS, cold", &samples[3], 0);
    let write = samples[1].over(&samples[0]);
    out.row("write, LFS over plain", &write, 2);
    out.row("read, LFS over plain", &samples[3].over(&samples[2]), 2);
    out.end();
    let (_, ratio, _) = write.spread();
    out.target("write: 0.9 of plain requests or more", ratio, ratio >= 0.9);
}

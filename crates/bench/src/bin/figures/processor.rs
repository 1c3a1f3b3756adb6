//! What a record of an ordering takes of the processor: the source of the model's price.

use std::time::Instant;

use ordo_bench::journaled::{Journaled, LogPlace};
use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::{NoOrder, SoftUpdates};
use ordo_runtime::cpu::{CpuModel, RECORD_TOUCHES_PERCENT};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::charged::Charged;
use ordo_vfs::{FileSystem, NewNode};

use crate::{Sample, Section};

const FILES: u64 = 20_000;
const ROUNDS: usize = 9;

/// Files made, written (1 KB) and removed, a hundred there at any time: seconds of the real processor for each file, and
/// what the model `counts` for it.
async fn work<F: FileSystem>(rt: &Runtime, fs: F, counts: CpuModel) -> (f64, f64) {
    let fs = Charged::calls_only(fs, rt.clone());
    let before = rt.cpu().total_ns();
    rt.cpu().set_model(counts);
    let start = Instant::now();
    for n in 0..FILES {
        let name = format!("file{n}").into_bytes();
        let file = fs.make(fs.root(), &name, &NewNode::file(0o644)).await.expect("room");
        fs.write(file.ino, 0, &[7; 1024]).await.expect("room");
        if n >= 100 {
            let old = format!("file{}", n - 100).into_bytes();
            fs.unlink(fs.root(), &old).await.expect("it is there");
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let counted = rt.cpu().total_ns() - before;
    (seconds / FILES as f64, counted as f64 / FILES as f64)
}

#[derive(Clone, Copy)]
enum Ordering {
    None,
    Soft,
    Journal,
}

fn once(ordering: Ordering, counts: CpuModel) -> (f64, f64) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = RamDisk::new(256 << 20).erase();
    let (make, how) = (MkfsOptions::default(), MountOptions::default());
    let all = async {
        match ordering {
            Ordering::None | Ordering::Soft => {
                mkfs(&disk, &make, rt.wall_time().0).await.expect("legal sizes");
            }
            Ordering::Journal => {}
        }
        match ordering {
            Ordering::None => {
                let fs = mount(&rt, disk.clone(), NoOrder, &how).await.expect("made");
                work(&rt, fs, counts).await
            }
            Ordering::Soft => {
                let fs = mount(&rt, disk.clone(), SoftUpdates::default(), &how).await;
                work(&rt, fs.expect("made"), counts).await
            }
            Ordering::Journal => {
                let journaled = Journaled::new(LogPlace::Same, false, None);
                let disks = [disk.clone()];
                journaled.make(&rt, &disks, &make).await.expect("it is made");
                let (fs, _) = journaled.mount(&rt, &disks, &how).await.expect("it mounts");
                work(&rt, fs, counts).await
            }
        }
    };
    executor.block_on(all).expect("nothing waits for itself")
}

/// What one unit of the model costs where everything else is free.
const RECORDS: CpuModel = CpuModel { record_ns: 1, ..CpuModel::NONE };

/// The price of a record, by measuring what a file takes without order and with records.
pub fn measure(out: &mut Section) {
    out.say(format_args!(
        "In process on a disk in memory, {FILES} files made, written (1 KB) and removed, a hundred there at any \
         time; {ROUNDS} rounds of each in turn. What an ordering takes more than none is shared among its \
         records: dependencies of soft updates made or undone, entries of the log. The model `modern` says what \
         a file takes without order; by that its price of a look at a buffer is put into nanoseconds of this \
         machine."
    ));
    let (mut none, mut soft, mut journal) =
        (Sample::default(), Sample::default(), Sample::default());
    let modern = once(Ordering::None, CpuModel::MODERN).1;
    let records = [Ordering::Soft, Ordering::Journal].map(|o| once(o, RECORDS).1);
    let (mut each_soft, mut each_journal, mut percent) =
        (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..ROUNDS {
        let [n, s, j] = [Ordering::None, Ordering::Soft, Ordering::Journal]
            .map(|o| once(o, CpuModel::NONE).0 * 1e9);
        none.push(n);
        soft.push(s);
        journal.push(j);
        let touch = CpuModel::MODERN.touch_ns as f64 * n / modern;
        each_soft.push((s - n) / records[0]);
        each_journal.push((j - n) / records[1]);
        percent.push(50.0 * ((s - n) / records[0] + (j - n) / records[1]) / touch);
    }
    out.table();
    out.row("no order, nanoseconds a file", &none, 0);
    out.row("soft updates, nanoseconds a file", &soft, 0);
    out.row("journal (1async), nanoseconds a file", &journal, 0);
    out.row("soft updates: nanoseconds a record", &each_soft, 0);
    out.row("journal: nanoseconds a record, bytes included", &each_journal, 0);
    out.row("a record, in hundredths of a look at a buffer, mean of both", &percent, 0);
    out.end();
    out.say(format_args!(
        "Records for each file: soft updates {:.1}, journal {:.1}.",
        records[0], records[1]
    ));
    let (_, found, _) = percent.spread();
    let off = found / RECORD_TOUCHES_PERCENT as f64;
    out.target(
        "the price in `CpuModel` within a third of what is measured; measured over priced",
        off,
        (0.67..1.5).contains(&off),
    );
}

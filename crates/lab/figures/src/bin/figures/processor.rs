//! The processor time of one record of an ordering. The processor model's price of a record comes
//! from this measurement.

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::{NoOrder, SoftUpdates};
use ordo_runtime::cpu::{CpuModel, DEPENDENCY_TOUCHES, LOG_RECORD_TOUCHES};
use ordo_runtime::{Executor, Runtime};
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_vfs::FileSystem;
use ordo_vfs::cpu_cost::WithCpuCost;

use crate::soft::{FILES, churn};
use crate::{Sample, Section};

const ROUNDS: usize = 9;

/// The processor time that this thread has used. Other threads may share the processor.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Creates files, writes 1 KB to each and removes them, with a thousand in existence at any time.
/// Ten seconds pass for each thousand, so that old blocks are written. Returns the seconds of the
/// real processor for each file, and the amount that the model `counts` charges for it.
async fn work<F: FileSystem>(rt: &Runtime, fs: F, counts: CpuModel) -> (f64, f64) {
    let fs = WithCpuCost::calls_only(fs, rt.clone());
    let before = rt.cpu().total_ns();
    rt.cpu().set_model(counts);
    let start = processor_seconds();
    churn(rt, &fs).await;
    fs.sync().await.expect("a sound device");
    let seconds = processor_seconds() - start;
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

/// A model in which a record costs one nanosecond, and everything else is free.
const RECORDS: CpuModel = CpuModel { dependency_ns: 1, log_record_ns: 1, ..CpuModel::NONE };

/// The model `modern` with free records: what it charges for everything else that an ordering does,
/// such as the operations of soft updates that free what a removal has deferred.
const BESIDE_RECORDS: CpuModel =
    CpuModel { dependency_ns: 0, log_record_ns: 0, ..CpuModel::MODERN };

/// The price of a record, from the cost of a file without ordering and with records.
pub fn measure(out: &mut Section) {
    out.say(format_args!(
        "In process on a disk in memory, {FILES} files made, written (1 KB) and removed, a thousand there at any \
         time, ten seconds for each thousand; {ROUNDS} rounds of each in turn, processor time. The model `modern` says \
         what a file takes without order; by that its prices are put into nanoseconds of this machine. What an \
         ordering takes more than the model charges for its operations, looks and copies is shared among its \
         records: dependencies of soft updates made or rolled back, entries of the log."
    ));
    let (mut none, mut soft, mut journal) =
        (Sample::default(), Sample::default(), Sample::default());
    let modern = once(Ordering::None, CpuModel::MODERN).1;
    let beside = [Ordering::Soft, Ordering::Journal].map(|o| once(o, BESIDE_RECORDS).1);
    let records = [Ordering::Soft, Ordering::Journal].map(|o| once(o, RECORDS).1);
    let mut touches = [Sample::default(), Sample::default()];
    for _ in 0..ROUNDS {
        let [n, s, j] = [Ordering::None, Ordering::Soft, Ordering::Journal]
            .map(|o| once(o, CpuModel::NONE).0 * 1e9);
        none.push(n);
        soft.push(s);
        journal.push(j);
        let touch = CpuModel::MODERN.touch_ns as f64 * n / modern;
        for (of, (sample, time)) in touches.iter_mut().zip([s, j]).enumerate() {
            let priced_already = beside[of] * n / modern;
            sample.push((time - priced_already) / records[of] / touch);
        }
    }
    out.table();
    out.row("no order, nanoseconds a file", &none, 0);
    out.row("soft updates, nanoseconds a file", &soft, 0);
    out.row("journal (1async), nanoseconds a file", &journal, 0);
    out.row("a dependency, in looks at a buffer", &touches[0], 1);
    out.row("a log record, in looks at a buffer", &touches[1], 1);
    out.end();
    out.say(format_args!(
        "Records for each file: soft updates {:.1}, journal {:.1}.",
        records[0], records[1]
    ));
    for (sample, priced, what) in [
        (&touches[0], DEPENDENCY_TOUCHES, "a dependency"),
        (&touches[1], LOG_RECORD_TOUCHES, "a log record"),
    ] {
        let off = sample.spread().1 / priced as f64;
        let target =
            format!("the price of {what} in `CpuModel` within a half; measured over priced");
        out.target(&target, off, (0.67..1.5).contains(&off));
    }
}

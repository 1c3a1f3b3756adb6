//! The speed of virtual time: simulated requests in a second of real time.

use std::rc::Rc;
use std::time::Instant;

use ordo_block::model::{ALL, Modeled};
use ordo_block::{BlockDevice, ram::RamDisk};
use ordo_runtime::Executor;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Sample, Section};

const REQUESTS: u64 = 400_000;
const TASKS: u64 = 16;
const ROUNDS: usize = 5;

/// Random reads of 4 KiB from 16 tasks.
fn requests_per_second(model: &'static ordo_block::model::Model) -> f64 {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let bytes = model.bytes();
    let disk = RamDisk::new(if bytes == 0 { 4 << 30 } else { bytes.min(4 << 30) });
    let blocks = disk.geometry().bytes / 4096;
    let disk = Rc::new(Modeled::new(&rt, model, disk));
    let start = Instant::now();
    let run = async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let (disk, mut rng) = (disk.clone(), Pcg64Mcg::seed_from_u64(n));
                rt.spawn("reader", async move {
                    for _ in 0..REQUESTS / TASKS {
                        let at = rng.random_range(0..blocks) * 4096;
                        disk.read(at, 4096).await.expect("a RAM disk");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    };
    executor.block_on(run).expect("no deadlock");
    REQUESTS as f64 / start.elapsed().as_secs_f64()
}

/// Measures every model.
pub fn measure(out: &mut Section) {
    out.say(format_args!(
        "{REQUESTS} random reads of 4 KiB from {TASKS} tasks, {ROUNDS} rounds; thousand simulated \
         requests a second of real time, on one core."
    ));
    let mut samples: Vec<Sample> = ALL.iter().map(|_| Sample::default()).collect();
    for _ in 0..ROUNDS {
        for (sample, model) in samples.iter_mut().zip(ALL) {
            sample.push(requests_per_second(model) / 1000.0);
        }
    }
    out.table();
    for (sample, model) in samples.iter().zip(ALL) {
        out.row(model.name, sample, 0);
    }
    out.end();
    let slowest = samples.iter().map(|s| s.spread().1).fold(f64::INFINITY, f64::min);
    out.target(
        "a million a second or more, in thousands, slowest model",
        slowest,
        slowest >= 1000.0,
    );
}

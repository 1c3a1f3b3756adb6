//! How many simulated disk requests a second the runtime and the disk models carry.

use std::rc::Rc;
use std::time::Instant;

use ordo_block::model::{ALL, Modeled};
use ordo_block::{BlockDevice, IoBuf, WriteFlags, ram::RamDisk};
use ordo_runtime::Executor;

fn main() {
    const REQUESTS: u64 = 400_000;
    for model in ALL {
        for depth in [1u64, 16] {
            let executor = Executor::simulated(1);
            let runtime = executor.runtime();
            let disk = Rc::new(Modeled::new(&runtime, model, RamDisk::new(64 << 20)));
            for task in 0..depth {
                let disk = disk.clone();
                runtime.spawn("client", async move {
                    let mut at = task;
                    for i in 0..REQUESTS / depth {
                        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(12_345);
                        let offset = (at >> 33) % (16 << 10) * 4096;
                        if i % 2 == 0 {
                            disk.read(offset, 4096).await.expect("inside");
                        } else {
                            let data = IoBuf::scratch(4096);
                            disk.write(offset, data, WriteFlags::empty()).await.expect("inside");
                        }
                    }
                });
            }
            let start = Instant::now();
            executor.run_until_idle().expect("nobody waits for ever");
            let rate = REQUESTS as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{:16} depth {depth:2}: {rate:5.2} million requests a second", model.name);
        }
    }
}

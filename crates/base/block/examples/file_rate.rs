//! Measures sequential and random rates of a file through the I/O driver. Arguments: a file that
//! may be overwritten, and the number of MiB of it to use.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use ordo_block::file::FileDisk;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_runtime::Executor;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file to overwrite");
    let mib: u64 = args.next().map_or(256, |n| n.parse().expect("a number of MiB"));
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let disk = FileDisk::create(&runtime, Path::new(&path), mib << 20).expect("can be made");
    println!("{}, direct: {}", runtime.io_backend(), disk.is_direct());
    let disk = Rc::new(disk);
    for (name, write, size, depth) in [
        ("sequential write, 1 MiB", true, 1 << 20, 4u64),
        ("sequential read, 1 MiB", false, 1 << 20, 4),
        ("read, 4 KiB, 64 at once", false, 4096, 64),
    ] {
        let count = ((mib << 20) / size).min(200_000);
        let start = Instant::now();
        for task in 0..depth {
            let disk = disk.clone();
            runtime.spawn("client", async move {
                for i in (task..count).step_by(depth as usize) {
                    if write {
                        let data = IoBuf::scratch(size as usize);
                        let done = disk.write(i * size, data, WriteFlags::empty()).await;
                        done.expect("the file takes it");
                    } else {
                        disk.read(i * size, size as usize).await.expect("it is there");
                    }
                }
            });
        }
        executor.run_until_idle().expect("nobody waits for ever");
        let seconds = start.elapsed().as_secs_f64();
        let rate = (count * size) as f64 / seconds / 1e6;
        println!("{name}: {rate:.0} MB/s, {:.0} a second", count as f64 / seconds);
    }
}

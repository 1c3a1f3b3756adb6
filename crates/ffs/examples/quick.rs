//! Rates of create, stat and unlink on a RAM disk, and per-operation cost in small and large directories.
use std::rc::Rc;
use std::time::Instant;

use ordo_block::ram::RamDisk;
use ordo_ffs::{MountOptions, mkfs, mount};
use ordo_ordering::NoOrder;
use ordo_vfs::{FileSystem, NewNode};

fn main() {
    let n: u64 = std::env::args().nth(1).map_or(100_000, |s| s.parse().unwrap());
    let executor = ordo_runtime::Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(4 << 30));
    executor
        .block_on(async {
            mkfs::mkfs(&disk, &mkfs::MkfsOptions::default(), 0).await.unwrap();
            let mut options = MountOptions::default();
            options.cache.capacity = 1 << 30;
            options.cache.dirty_max = 1 << 29;
            let fs = mount(&rt, disk, NoOrder, &options).await.unwrap();
            let names: Vec<String> = (0..n).map(|i| format!("file{i}")).collect();
            let t = Instant::now();
            for name in &names {
                fs.make(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await.unwrap();
            }
            println!("create {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
            let t = Instant::now();
            for name in &names {
                fs.lookup(fs.root(), name.as_bytes()).await.unwrap();
            }
            println!("stat {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
            let t = Instant::now();
            for name in &names {
                fs.unlink(fs.root(), name.as_bytes()).await.unwrap();
            }
            println!("unlink {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
            fs.unmount().await.unwrap();
        })
        .unwrap();
}

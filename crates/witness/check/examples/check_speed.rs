//! Measures the number of checks a second, which limits a search through crash states.
//!
//! `cargo run --release --package ordo-check --example check_speed`

use std::rc::Rc;
use std::time::Instant;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::{self, MountOptions};
use ordo_ordering::NoOrder;
use ordo_vfs::{FileSystem, NewNode};

fn image(block_size: u32, frag_size: u32, bytes: u64, files: usize) -> Rc<RamDisk> {
    let disk = Rc::new(RamDisk::new(bytes));
    let executor = ordo_runtime::Executor::simulated(1);
    let runtime = executor.runtime();
    let options = MkfsOptions { block_size, frag_size, ..MkfsOptions::default() };
    let made = executor.block_on(async {
        mkfs(&disk.clone().erase(), &options, 0).await.expect("legal sizes");
        let mounting = MountOptions::default();
        let mounted = mount::mount(&runtime, disk.clone(), NoOrder, &mounting).await;
        let fs = mounted.unwrap_or_else(|error| panic!("{error}"));
        for i in 0..files {
            let name = format!("file{i}");
            let file =
                fs.create(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await.expect("room");
            fs.write(file.ino, 0, &vec![1; 100 * (i % 50)]).await.expect("room");
        }
        fs.unmount().await.expect("memory");
    });
    made.expect("no one waits");
    disk
}

fn main() {
    for (block, frag, bytes, files) in [
        (4096, 512, 1 << 20, 20),
        (8192, 1024, 4 << 20, 100),
        (32768, 4096, 8 << 20, 100),
        (32768, 4096, 1 << 30, 20_000),
    ] {
        let disk = image(block, frag, bytes, files);
        let (start, mut runs, mut work) = (Instant::now(), 0u32, None);
        while start.elapsed().as_millis() < 1000 {
            let executor = ordo_runtime::Executor::simulated(1);
            let options = FsckOptions { copies: false, ..FsckOptions::default() };
            let checker = Checker::new(disk.clone(), options);
            let report = executor.block_on(checker.run()).expect("no one waits").expect("sound");
            assert!(report.is_consistent(), "{report}");
            (runs, work) = (runs + 1, Some(report.work));
        }
        let rate = f64::from(runs) / start.elapsed().as_secs_f64();
        let work = work.expect("at least one run");
        println!(
            "{block}/{frag}, {} MiB, {files} files: {rate:.0} checks a second, {} reads, {} KiB each",
            bytes >> 20,
            work.reads,
            work.bytes_read >> 10
        );
    }
}

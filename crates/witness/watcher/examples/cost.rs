//! Measures the cost of watching: the same file-system work on a RAM disk, unwatched and watched.

use std::rc::Rc;
use std::time::Instant;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::{self, MountOptions};
use ordo_ordering::SyncOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};
use ordo_watcher::Watch;

fn main() {
    for (block_size, frag_size) in [(8192, 1024), (32768, 4096)] {
        for watched in [false, true] {
            let options = MkfsOptions { block_size, frag_size, ..MkfsOptions::default() };
            let executor = Executor::simulated(1);
            let rt = executor.runtime();
            let start = Instant::now();
            let work = async {
                let ram = Rc::new(RamDisk::new(1 << 30));
                mkfs(&ram.clone().erase(), &options, 0).await.expect("large enough");
                let tap = Rc::new(Tap::new(&rt, ram.clone()));
                let watch = Watch::over(&*ram).expect("a file system is there");
                watch.count_only();
                if watched {
                    tap.attach(watch.clone());
                }
                let options = MountOptions::default();
                let fs = mount::mount(&rt, tap, SyncOrder::default(), &options)
                    .await
                    .expect("just made");
                for round in 0..40 {
                    let name = format!("dir{round}");
                    let new = NewNode::directory(0o755);
                    let dir = fs.create(fs.root(), name.as_bytes(), &new).await;
                    let dir = dir.expect("there is room").ino;
                    for i in 0..500 {
                        let name = format!("file{i}");
                        let file = fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await;
                        let file = file.expect("there is room").ino;
                        fs.write(file, 0, &[1; 4096]).await.expect("there is room");
                    }
                    for i in 0..400 {
                        let name = format!("file{i}");
                        fs.unlink(dir, name.as_bytes()).await.expect("it is there");
                    }
                }
                fs.unmount().await.expect("memory does not fail");
                watch.finish().writes.total().requests
            };
            let requests = executor.block_on(work).expect("nobody waits for ever");
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "blocks of {block_size}, watched {watched}: {seconds:.2} s, {requests} writes"
            );
        }
    }
}

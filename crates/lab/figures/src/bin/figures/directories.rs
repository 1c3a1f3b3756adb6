//! The cost of an operation in a directory of a thousand entries, and in one of a million.

use std::rc::Rc;
use std::time::Instant;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::{FastFs, MountOptions, mkfs, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Sample, Section};

const SMALL: u64 = 1_000;
const LARGE: u64 = 1_000_000;
const CREATES: u64 = 1_000;
const LOOKUPS: u64 = 20_000;
const ROUNDS: u64 = 15;

type Fs = FastFs;

async fn directory(fs: &Fs, name: &[u8], entries: u64) -> Ino {
    let dir = fs.create(fs.root(), name, &NewNode::directory(0o755)).await.expect("room").ino;
    for i in 0..entries {
        let name = format!("entry-{i}");
        fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.expect("room");
    }
    dir
}

/// The creates and look-ups a second.
async fn rates(fs: &Fs, dir: Ino, entries: u64, round: u64) -> (f64, f64) {
    let names: Vec<String> = (0..CREATES).map(|i| format!("new-{round}-{i}")).collect();
    let start = Instant::now();
    for name in &names {
        fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.expect("room");
    }
    let creates = CREATES as f64 / start.elapsed().as_secs_f64();
    for name in &names {
        fs.unlink(dir, name.as_bytes()).await.expect("there");
    }
    // The same number of different entries is used in both, so that the directories differ and not
    // the processor's caches.
    let mut rng = Pcg64Mcg::seed_from_u64(round);
    let first = rng.random_range(0..=entries - SMALL);
    let names: Vec<String> =
        (0..LOOKUPS).map(|_| format!("entry-{}", first + rng.random_range(0..SMALL))).collect();
    let start = Instant::now();
    for name in &names {
        std::hint::black_box(fs.lookup(dir, name.as_bytes()).await.expect("there"));
    }
    (creates, LOOKUPS as f64 / start.elapsed().as_secs_f64())
}

/// Measures both directories by turns.
pub fn measure(out: &mut Section) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(16 << 30));
    let mut samples: [Sample; 4] = Default::default();
    let run = async {
        mkfs::mkfs(&disk.clone().erase(), &mkfs::MkfsOptions::default(), 0)
            .await
            .expect("legal sizes");
        let mut options = MountOptions::default();
        options.cache.capacity = 1 << 30;
        options.cache.dirty_max = 1 << 29;
        let fs = mount(&rt, disk.clone(), NoOrder, &options).await.expect("just made");
        let small = directory(&fs, b"small", SMALL).await;
        let large = directory(&fs, b"large", LARGE).await;
        fs.sync().await.expect("a RAM disk");
        for round in 0..ROUNDS {
            let (create, look) = rates(&fs, small, SMALL, round).await;
            samples[0].push(create);
            samples[1].push(look);
            let (create, look) = rates(&fs, large, LARGE, round).await;
            samples[2].push(create);
            samples[3].push(look);
        }
    };
    executor.block_on(run).expect("no deadlock");
    out.say(format_args!(
        "In process, ordering `none`, RAM disk, {ROUNDS} rounds of each in turn; {CREATES} creates and \
         {LOOKUPS} look-ups of {SMALL} different entries a round."
    ));
    out.table();
    out.row("creates a second, 10^3 entries", &samples[0], 0);
    out.row("creates a second, 10^6 entries", &samples[2], 0);
    out.row("look-ups a second, 10^3 entries", &samples[1], 0);
    out.row("look-ups a second, 10^6 entries", &samples[3], 0);
    let (create, look) = (samples[0].over(&samples[2]), samples[1].over(&samples[3]));
    out.row("cost of a create, 10^6 over 10^3", &create, 2);
    out.row("cost of a look-up, 10^6 over 10^3", &look, 2);
    out.end();
    for (name, sample) in [("create", create), ("look-up", look)] {
        let (_, ratio, _) = sample.spread();
        out.target(&format!("a {name} costs 1.5 times or less"), ratio, ratio <= 1.5);
    }
}

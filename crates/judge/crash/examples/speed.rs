//! The number of states judged in a second, in a run like PostMark's: `speed [FILES TRANSACTIONS
//! MIB STATES soft|sync|none]`.

use std::sync::Arc;
use std::time::Instant;

use ordo_crash::recording::RecordingFs;
use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Promise, RunWorkload, Scheme, explore_run, record,
};
use ordo_ordering::{NoOrder, SoftUpdates, SyncOrder};
use ordo_runtime::Runtime;
use ordo_runtime::cpu::CpuModel;
use ordo_systems::OnFfs;
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A workload of files of 500 to 10,000 bytes that are created, removed, read and extended.
struct Files {
    files: usize,
    transactions: usize,
}

struct Pool<F> {
    fs: F,
    rng: Pcg64Mcg,
    files: Vec<(Vec<u8>, Ino, u64)>,
    made: usize,
}

impl<F: FileSystem> Pool<F> {
    async fn make(&mut self) -> FsResult<()> {
        let name = format!("{}", self.made).into_bytes();
        self.made += 1;
        let ino = self.fs.create(self.fs.root(), &name, &NewNode::file(0o644)).await?.ino;
        let size = self.rng.random_range(500..10_000);
        self.files.push((name, ino, 0));
        let last = self.files.len() - 1;
        self.add(last, size).await
    }

    async fn add(&mut self, file: usize, len: usize) -> FsResult<()> {
        let fill = self.rng.random_range(1..=255);
        let (_, ino, size) = &mut self.files[file];
        for at in (0..len).step_by(512) {
            let n = (len - at).min(512);
            *size += self.fs.write(*ino, *size, &vec![fill; n]).await? as u64;
        }
        Ok(())
    }

    async fn transaction(&mut self) -> FsResult<()> {
        if self.rng.random() {
            let file = self.rng.random_range(0..self.files.len());
            self.add(file, 512).await?;
        }
        if self.rng.random() {
            return self.make().await;
        }
        let file = self.rng.random_range(0..self.files.len());
        let (name, ..) = self.files.swap_remove(file);
        self.fs.unlink(self.fs.root(), &name).await
    }
}

impl RunWorkload for Files {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
    ) -> Result<(), String> {
        rt.cpu().set_model(CpuModel::PENTIUM_II_300);
        let fs = WithCpuCost::new(client(0), rt.clone());
        let rng = Pcg64Mcg::seed_from_u64(1);
        let mut pool = Pool { fs, rng, files: Vec::new(), made: 0 };
        let said = |e: ordo_vfs::FsError| e.to_string();
        for _ in 0..self.files {
            pool.make().await.map_err(said)?;
        }
        for _ in 0..self.transactions {
            pool.transaction().await.map_err(said)?;
        }
        Ok(())
    }
}

/// The processor time of this process, in seconds, exact to a hundredth. On a shared machine it
/// says more than elapsed time.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn measure(scheme: &impl Scheme, work: &Files, states: usize) {
    let started = Instant::now();
    let run =
        Arc::new(record(scheme, work, &Config::new(1, CrashModel::Volatile)).expect("it runs"));
    let recorded = started.elapsed().as_secs_f64();
    println!(
        "{}: recorded in {recorded:.1} s: {} writes, {} calls",
        scheme.name(),
        run.disks[0].writes.len(),
        run.history.calls.len()
    );
    let all = Budget { states, ..Budget::default() };
    let tree = Budget { usable_every: 0, recovery_every: 0, ..all.clone() };
    let structure = Budget { tree_every: 0, ..tree.clone() };
    let none = Budget { states: 0, ..structure.clone() };
    let budgets =
        [("none", none), ("structure", structure), ("names and contents", tree), ("all", all)];
    for (what, budget) in budgets {
        for threads in [1, 2] {
            let budget = Budget { threads, ..budget.clone() };
            let (started, used) = (Instant::now(), processor());
            let outcome = explore_run(scheme, &run, 1, &budget);
            let (seconds, used) = (started.elapsed().as_secs_f64(), processor() - used);
            let states = outcome.counts.states + outcome.counts.in_recovery;
            println!(
                "  {what}, {threads} thread(s): {states} states of {} frontiers in {seconds:.2} s: {:.0} a second, {:.0} \
                 a second of processor; {} broken",
                outcome.frontiers,
                states as f64 / seconds,
                states as f64 / used,
                outcome.counts.promise_broken
            );
        }
    }
}

fn main() {
    let number = |n: usize| std::env::args().nth(n).and_then(|text| text.parse::<usize>().ok());
    let work = Files { files: number(1).unwrap_or(300), transactions: number(2).unwrap_or(3000) };
    let shape = FsGeometry::default().sized((number(3).unwrap_or(64) as u64) << 20);
    let states = number(4).unwrap_or(5000);
    let only = std::env::args().nth(5);
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let soft = OnFfs::new("ffs-soft-updates", SoftUpdates::default, Promise::SOFT_UPDATES);
    if wanted("soft") {
        measure(&soft.shaped(&shape), &work, states);
    }
    let sync = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
    if wanted("sync") {
        measure(&sync.shaped(&shape), &work, states);
    }
    let none = OnFfs::new("ffs-none", || NoOrder, Promise::NONE);
    if wanted("none") {
        measure(&none.shaped(&shape), &work, states);
    }
}

//! Random overwrites of files that fill a file system to a given share. This is hard work for a
//! log's cleaner.
//!
//! Source of the two patterns: Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", section 3.5: uniform, and hot-and-cold, where one tenth of the
//! files gets nine writes of ten.

use std::fmt;

use ordo_runtime::Duration;
use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, size};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The most files in a directory.
const PER_DIRECTORY: u64 = 100;
/// The number of files of which one is hot.
const GROUP: usize = 10;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// The percentage of the file system's space that is in use.
    pub full: u64,
    /// The size of each file in bytes.
    pub size: u64,
    /// The length of each write in bytes.
    pub block: u64,
    /// The number of writes before the measured ones.
    pub warm: u64,
    /// The number of measured writes.
    pub writes: u64,
    /// The percentage of writes to hot files, which are a tenth of all. With 10, all files are
    /// alike.
    pub hot: u64,
    /// The number of writes between two pauses.
    pub burst: u64,
    /// The length of a pause in milliseconds.
    pub pause: u64,
}

impl Overwrite {
    /// Half full, uniform, without pauses.
    pub const USUAL: Overwrite = Overwrite {
        full: 50,
        size: 64 << 10,
        block: 8192,
        warm: 20_000,
        writes: 20_000,
        hot: 10,
        burst: 512,
        pause: 0,
    };

    pub(super) fn describe(&self) -> String {
        let Overwrite { full, size: bytes, block, writes, hot, .. } = self;
        format!(
            "{full} % full of files of {}, {writes} random overwrites of {}, {hot} % of them in a tenth of the files",
            size(*bytes),
            size(*block)
        )
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let data = Bytes::new(seed, (2 * self.size.max(self.block)) as usize);
        let files = self.fill(run, &data).await?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for (phase, count) in [("settle", self.warm), ("overwrite", self.writes)] {
            if count == 0 {
                continue;
            }
            run.begin(phase, count);
            for n in 0..count {
                let file = self.pick(&mut random, files.len());
                let places = (self.size / self.block).max(1);
                let at = random.random_range(0..places) * self.block;
                let from = random.random_range(0..self.size) as usize;
                let bytes = &data.get(2 * self.size)[from..from + self.block as usize];
                let written = files::write(run.fs(), files[file], at, bytes, bytes.len()).await;
                written.doing(|| format!("overwriting {} at {at}", size(self.block)))?;
                run.step(self.block);
                if self.pause > 0 && n % self.burst == self.burst - 1 {
                    let pause = Duration::from_millis(self.pause);
                    run.stage.runtime().clone().sleep(pause).await;
                }
            }
            run.end();
        }
        Ok(())
    }

    /// The number of a file: every tenth file is hot.
    fn pick(&self, random: &mut Pcg64Mcg, count: usize) -> usize {
        let groups = (count / GROUP).max(1);
        let within = match random.random_range(0..100) < self.hot {
            true => 0,
            false => random.random_range(1..GROUP),
        };
        (random.random_range(0..groups) * GROUP + within).min(count - 1)
    }

    async fn fill<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        data: &Bytes,
    ) -> Result<Vec<Ino>, WorkloadError> {
        let stat = run.fs().statfs().await.doing(|| "asking for free space".into())?;
        let total = stat.blocks * u64::from(stat.fragment_size);
        let wanted = total / 100 * self.full;
        run.begin("fill", wanted / self.size);
        let (mut all, mut dir) = (Vec::new(), run.fs().root());
        loop {
            let stat = run.fs().statfs().await.doing(|| "asking for free space".into())?;
            let used = (stat.blocks - stat.blocks_free) * u64::from(stat.fragment_size);
            if used + self.size > wanted && !all.is_empty() {
                break;
            }
            let number = all.len() as u64;
            if number.is_multiple_of(PER_DIRECTORY) {
                let (root, name) = (run.fs().root(), format!("d{}", number / PER_DIRECTORY));
                let made = run.fs().create(root, name.as_bytes(), &NewNode::directory(0o755)).await;
                dir = made.doing(|| format!("making /{name}"))?.ino;
            }
            let name = format!("f{number}");
            let made =
                files::create(run.fs(), dir, name.as_bytes(), data.get(self.size), 64 << 10).await;
            all.push(made.doing(|| format!("making {name}"))?.ino);
            run.log.made(1);
            run.step(self.size);
        }
        run.end();
        run.fs().sync().await.doing(|| "making the files durable".into())?;
        Ok(all)
    }
}

impl fmt::Display for Overwrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Overwrite::USUAL {
            return write!(f, "overwrite");
        }
        let Overwrite { full, size, block, warm, writes, hot, burst, pause } = self;
        write!(
            f,
            "overwrite:full={full},size={size},block={block},warm={warm},writes={writes},hot={hot},\
             burst={burst},pause={pause}"
        )
    }
}

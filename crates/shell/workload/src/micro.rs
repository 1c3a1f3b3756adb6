//! The microbenchmarks of both papers. For each of a range of file sizes, files are created, read,
//! written and removed, with the caches emptied before each phase (soft-updates-2000, section 4.2;
//! journaling-versus-soft-updates-2000, section 7.2).

use std::fmt;

use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};

use super::files::{self, Bytes, size};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The bytes of one call.
const UNIT: usize = 64 * 1024;

/// The default sizes of files, in KB: powers of two from 2 KB to 4 MB, and the two sizes at which
/// the papers saw throughput drop.
const SIZES_KB: [u64; 14] = [2, 4, 8, 16, 32, 64, 96, 104, 128, 256, 512, 1024, 2048, 4096];

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Micro {
    /// The number of bytes of contents for each size of file.
    pub total: u64,
    /// The fewest files of a size, whatever their total length.
    pub files_min: u64,
    /// The most files in a directory.
    pub files_per_directory: u64,
    /// The sizes of files, in bytes.
    pub sizes: Vec<u64>,
}

impl Micro {
    /// As in soft-updates-2000, section 4.2: 32 MB of each size.
    pub fn soft_updates() -> Micro {
        Micro {
            total: 32 << 20,
            files_min: 1,
            files_per_directory: 50,
            sizes: SIZES_KB.iter().map(|kb| kb << 10).collect(),
        }
    }

    /// As in journaling-versus-soft-updates-2000, section 7.2: 128 MB of each size, or 512 files if
    /// that is more.
    pub fn journaling() -> Micro {
        Micro { total: 128 << 20, files_min: 512, ..Micro::soft_updates() }
    }

    /// The number of files of `size` bytes.
    pub fn files(&self, size: u64) -> u64 {
        (self.total / size.max(1)).max(self.files_min).max(1)
    }

    pub(super) fn describe(&self) -> String {
        let (first, last) = (self.sizes.iter().min(), self.sizes.iter().max());
        format!(
            "{} of files of each of {} sizes from {} to {}, made, read, written and removed",
            size(self.total),
            self.sizes.len(),
            size(*first.unwrap_or(&0)),
            size(*last.unwrap_or(&0))
        )
    }

    /// The phase that creates the files of the middle size.
    pub(super) fn crash_phase(&self) -> String {
        format!("create {}", size(self.sizes.get(self.sizes.len() / 2).copied().unwrap_or(0)))
    }

    pub(super) fn footprint(&self) -> u64 {
        self.sizes.iter().map(|s| s * self.files(*s)).max().unwrap_or(0)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let bytes = Bytes::new(seed, *self.sizes.iter().max().unwrap_or(&0) as usize);
        for &size in &self.sizes {
            self.run_size(run, size, bytes.get(size)).await?;
        }
        Ok(())
    }

    async fn run_size<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        bytes: u64,
        data: &[u8],
    ) -> Result<(), WorkloadError> {
        let count = self.files(bytes);
        let text = size(bytes);
        let places = self.directories(run, count).await.doing(|| "making directories".into())?;
        for phase in ["create", "read", "write", "delete"] {
            run.drop_caches().await?;
            run.begin(format!("{phase} {text}"), count);
            for i in 0..count {
                let dir = places[(i / self.files_per_directory) as usize];
                let name = format!("f{i}");
                let done = self.one(run.fs(), phase, dir, name.as_bytes(), data).await;
                let right = done.doing(|| format!("{phase} of file {i} of {text}"))?;
                if !right {
                    let first = format!("file {i} of {text}");
                    return Err(WorkloadError::Differs { count: 1, first });
                }
                run.log.made(u64::from(phase == "create"));
                run.step(if phase == "delete" { 0 } else { bytes });
            }
            run.end();
        }
        self.remove_directories(run, places.len()).await.doing(|| "removing directories".into())
    }

    /// Makes the directories for `count` files, outside of the timed phases.
    async fn directories<S: WorkloadStage>(
        &self,
        run: &Run<'_, S>,
        count: u64,
    ) -> FsResult<Vec<Ino>> {
        let fs = run.fs();
        let mut places = Vec::new();
        for d in 0..count.div_ceil(self.files_per_directory) {
            let name = format!("d{d}");
            let made = fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await?;
            places.push(made.ino);
        }
        Ok(places)
    }

    async fn remove_directories<S: WorkloadStage>(
        &self,
        run: &Run<'_, S>,
        count: usize,
    ) -> FsResult<()> {
        for d in 0..count {
            run.fs().rmdir(run.fs().root(), format!("d{d}").as_bytes()).await?;
        }
        Ok(())
    }

    /// Does one phase's work on one file. Returns false if a read did not return the written bytes.
    async fn one<F: FileSystem>(
        &self,
        fs: &F,
        phase: &str,
        dir: Ino,
        name: &[u8],
        data: &[u8],
    ) -> FsResult<bool> {
        match phase {
            "create" => files::create(fs, dir, name, data, UNIT).await.map(|_| true),
            "read" => {
                let mut right = true;
                let n = files::read(fs, dir, name, UNIT, &mut |offset, piece| {
                    let at = offset as usize;
                    right &= data.get(at..at + piece.len()) == Some(piece);
                })
                .await?;
                Ok(right && n == data.len() as u64)
            }
            "write" => {
                let file = fs.lookup(dir, name).await?.ino;
                fs.open(file).await?;
                let written = files::write(fs, file, 0, data, UNIT).await;
                fs.close(file).await?;
                written.map(|()| true)
            }
            _ => fs.unlink(dir, name).await.map(|()| true),
        }
    }
}

impl fmt::Display for Micro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Micro::soft_updates() {
            return write!(f, "micro");
        }
        if *self == Micro::journaling() {
            return write!(f, "micro:journaling");
        }
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        write!(
            f,
            "micro:total={},files-min={},per-directory={},sizes={}",
            self.total,
            self.files_min,
            self.files_per_directory,
            sizes.join("+")
        )
    }
}

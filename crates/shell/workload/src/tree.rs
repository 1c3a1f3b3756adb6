//! A tree, of the host or generated from a seed: it is copied in, read and compared in every byte
//! and attribute, and removed.

use std::fmt;
use std::path::PathBuf;

use ordo_runtime::Executor;
use ordo_vfs::host::HostDir;
use ordo_vfs::tree::{self, CompareOptions, Comparison, Copied, CopyOptions, Totals, WalkLimits};
use ordo_vfs::{FileSystem, Ino, NewNode};

use super::files::size;
use super::{Doing, Generated, Run, WorkloadError, WorkloadStage};

/// The directory to which the tree is copied.
const PLACE: &[u8] = b"tree";

/// The source of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the host.
    Host(PathBuf),
    /// A generated tree.
    Seed(Generated),
}

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTree {
    /// The source.
    pub source: Source,
    /// The counts of the tree.
    pub totals: Totals,
}

impl SourceTree {
    /// The tree at `path`, with its counts.
    ///
    /// # Errors
    /// [`WorkloadError::Source`] if it cannot be read.
    pub fn new(path: impl Into<PathBuf>) -> Result<SourceTree, WorkloadError> {
        let path = path.into();
        let host = HostDir::open(&path).map_err(WorkloadError::Source)?;
        let measured = tree::measure(&host, host.root(), WalkLimits::default());
        let totals = Executor::simulated(0)
            .block_on(measured)
            .expect("a directory of the host never waits")
            .map_err(WorkloadError::Source)?;
        Ok(SourceTree { source: Source::Host(path), totals })
    }

    /// A generated tree, with its counts.
    ///
    /// # Errors
    /// [`WorkloadError::Source`] if it has too many files for a directory's link count.
    pub fn generated(from: Generated) -> Result<SourceTree, WorkloadError> {
        let measured = async {
            let fs = from.make().await?;
            tree::measure(&fs, fs.root(), WalkLimits::default()).await
        };
        let totals = Executor::simulated(0)
            .block_on(measured)
            .expect("a tree in memory never waits")
            .map_err(WorkloadError::Source)?;
        Ok(SourceTree { source: Source::Seed(from), totals })
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{} copied in, compared and removed: {} entries, {}{}",
            match &self.source {
                Source::Host(path) => path.display().to_string(),
                Source::Seed(from) => format!("A tree generated from seed {}", from.seed),
            },
            self.totals.entries,
            size(self.totals.bytes),
            match self.totals.unreadable {
                0 => String::new(),
                n => format!("; {n} that may not be read are left out"),
            }
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.totals.bytes + self.totals.entries * 4096
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
    ) -> Result<(), WorkloadError> {
        match &self.source {
            Source::Host(path) => {
                let host = HostDir::open(path).map_err(WorkloadError::Source)?;
                self.run_from(run, &host).await
            }
            Source::Seed(from) => {
                let made = from.make().await.map_err(WorkloadError::Source)?;
                self.run_from(run, &made).await
            }
        }
    }

    async fn run_from<S: WorkloadStage, T: FileSystem>(
        &self,
        run: &mut Run<'_, S>,
        source: &T,
    ) -> Result<(), WorkloadError> {
        // The root itself is not used, since a file system may keep a file of its own there.
        let root = run.fs().root();
        let place = run.fs().create(root, PLACE, &NewNode::directory(0o755)).await;
        let place = place.doing(|| "making a directory for the tree".into())?.ino;
        let copied = self.copy_in(run, source, place).await?;
        run.drop_caches().await?;
        self.compare(run, source, place, &copied).await?;
        run.drop_caches().await?;
        run.begin("delete", copied.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let mut removed = 0;
        let each = &mut || {
            removed += 1;
            log.reached(removed, 0);
        };
        let done = tree::remove_below(fs, place, WalkLimits::default(), each).await;
        done.doing(|| "removing the tree".into())?;
        fs.rmdir(root, PLACE).await.doing(|| "removing the tree's directory".into())?;
        run.end();
        Ok(())
    }

    async fn copy_in<S: WorkloadStage, T: FileSystem>(
        &self,
        run: &mut Run<'_, S>,
        source: &T,
        place: Ino,
    ) -> Result<Copied, WorkloadError> {
        run.begin("copy in", self.totals.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let each = &mut |c: &Copied| log.reached(c.entries, c.bytes);
        let copied =
            tree::copy(source, source.root(), fs, place, &CopyOptions::default(), each).await;
        let copied = copied.doing(|| "copying in".into())?;
        run.log.made(copied.entries);
        run.end();
        Ok(copied)
    }

    async fn compare<S: WorkloadStage, T: FileSystem>(
        &self,
        run: &mut Run<'_, S>,
        source: &T,
        place: Ino,
        copied: &Copied,
    ) -> Result<(), WorkloadError> {
        let ignore = copied.skipped.iter().map(|(path, _)| path.clone()).collect();
        let options = CompareOptions { ignore, ..CompareOptions::default() };
        run.begin("read back", copied.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let each = &mut |c: &Comparison| log.reached(c.entries, c.bytes);
        let found = tree::compare((source, source.root()), (fs, place), &options, each).await;
        let found = found.doing(|| "reading back".into())?;
        if let Some(first) = found.differences.first() {
            let (count, first) = (found.difference_count, first.to_string());
            return Err(WorkloadError::Differs { count, first });
        }
        run.end();
        Ok(())
    }
}

impl fmt::Display for SourceTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Host(path) => write!(f, "tree:{}", path.display()),
            Source::Seed(Generated { seed, files: Generated::FILES }) => {
                write!(f, "tree:seed={seed}")
            }
            Source::Seed(Generated { seed, files }) => write!(f, "tree:seed={seed},files={files}"),
        }
    }
}

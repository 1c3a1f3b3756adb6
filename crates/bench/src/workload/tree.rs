//! A real directory of the host: copied in, read back and compared in every byte and attribute, removed.

use std::fmt;
use std::path::PathBuf;

use ordo_runtime::Executor;
use ordo_vfs::host::HostDir;
use ordo_vfs::tree::{self, CompareOptions, Comparison, Copied, CopyOptions, Limits, Totals};
use ordo_vfs::{FileSystem, Ino, NewNode};

use super::files::size;
use super::{Doing, Run, Stage, WorkloadError};

/// The directory that the tree is copied to.
const PLACE: &[u8] = b"tree";

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The directory of the host.
    pub path: PathBuf,
    /// What is in it.
    pub totals: Totals,
}

impl Tree {
    /// The tree at `path`, measured.
    ///
    /// # Errors
    /// [`WorkloadError::Source`] where it cannot be read.
    pub fn new(path: impl Into<PathBuf>) -> Result<Tree, WorkloadError> {
        let path = path.into();
        let host = HostDir::open(&path).map_err(WorkloadError::Source)?;
        let measured = tree::measure(&host, host.root(), Limits::default());
        let totals = Executor::simulated(0)
            .block_on(measured)
            .expect("a directory of the host never waits")
            .map_err(WorkloadError::Source)?;
        Ok(Tree { path, totals })
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{} copied in, compared and removed: {} entries, {}{}",
            self.path.display(),
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

    pub(super) async fn run<S: Stage>(&self, run: &mut Run<'_, S>) -> Result<(), WorkloadError> {
        let host = HostDir::open(&self.path).map_err(WorkloadError::Source)?;
        // Not in the root itself, where a file system may keep a file of its own.
        let root = run.fs().root();
        let place = run.fs().make(root, PLACE, &NewNode::directory(0o755)).await;
        let place = place.doing(|| "making a directory for the tree".into())?.ino;
        let copied = self.copy_in(run, &host, place).await?;
        run.drop_caches().await?;
        self.compare(run, &host, place, &copied).await?;
        run.drop_caches().await?;
        run.begin("delete", copied.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let mut removed = 0;
        let each = &mut || {
            removed += 1;
            log.reached(removed, 0);
        };
        let done = tree::remove_below(fs, place, Limits::default(), each).await;
        done.doing(|| "removing the tree".into())?;
        fs.rmdir(root, PLACE).await.doing(|| "removing the tree's directory".into())?;
        run.end();
        Ok(())
    }

    async fn copy_in<S: Stage>(
        &self,
        run: &mut Run<'_, S>,
        host: &HostDir,
        place: Ino,
    ) -> Result<Copied, WorkloadError> {
        run.begin("copy in", self.totals.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let each = &mut |c: &Copied| log.reached(c.entries, c.bytes);
        let copied = tree::copy(host, host.root(), fs, place, &CopyOptions::default(), each).await;
        let copied = copied.doing(|| "copying in".into())?;
        run.log.made(copied.entries);
        run.end();
        Ok(copied)
    }

    async fn compare<S: Stage>(
        &self,
        run: &mut Run<'_, S>,
        host: &HostDir,
        place: Ino,
        copied: &Copied,
    ) -> Result<(), WorkloadError> {
        let ignore = copied.skipped.iter().map(|(path, _)| path.clone()).collect();
        let options = CompareOptions { ignore, ..CompareOptions::default() };
        run.begin("read back", copied.entries);
        let (fs, log) = (run.stage.fs(), &mut run.log);
        let each = &mut |c: &Comparison| log.reached(c.entries, c.bytes);
        let found = tree::compare((host, host.root()), (fs, place), &options, each).await;
        let found = found.doing(|| "reading back".into())?;
        if let Some(first) = found.differences.first() {
            let (count, first) = (found.difference_count, first.to_string());
            return Err(WorkloadError::Differs { count, first });
        }
        run.end();
        Ok(())
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree:{}", self.path.display())
    }
}

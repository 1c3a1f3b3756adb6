//! The create/delete benchmark of journaling-versus-soft-updates-2000, section 7.2: empty files,
//! each removed before the next is created. It isolates the cost of metadata.

use std::fmt;

use ordo_vfs::{FileSystem, NewNode};

use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDelete {
    /// The number of files.
    pub files: u64,
}

impl CreateDelete {
    /// As in the paper: 50,000 files.
    pub const PAPER: CreateDelete = CreateDelete { files: 50_000 };

    pub(super) fn describe(&self) -> String {
        format!("{} empty files, each made and removed before the next", self.files)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
    ) -> Result<(), WorkloadError> {
        let root = run.fs().root();
        run.begin("create-delete", self.files);
        for i in 0..self.files {
            let name = format!("f{i}");
            let name = name.as_bytes();
            let made = run.fs().create(root, name, &NewNode::file(0o644)).await;
            made.doing(|| format!("making /f{i}"))?;
            run.fs().unlink(root, name).await.doing(|| format!("removing /f{i}"))?;
            run.log.made(1);
            run.step(0);
        }
        run.end();
        Ok(())
    }
}

impl fmt::Display for CreateDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self == CreateDelete::PAPER {
            true => write!(f, "create-delete"),
            false => write!(f, "create-delete:files={}", self.files),
        }
    }
}

//! Files that a command creates, and takes away again if it fails.

use std::path::{Path, PathBuf};

/// The files that a command has created so far. They are removed when this is dropped, unless they
/// are kept.
#[derive(Debug, Default)]
pub struct CreatedFiles(Vec<PathBuf>);

impl CreatedFiles {
    /// Notes a file that was just created.
    pub fn add(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }

    /// Keeps all files: the command has succeeded.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

//! Files and folders for their owner alone. A recording has contents of files, which other users
//! may not be allowed to read where they came from.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a folder, with those above it, that only its owner may enter. One that exists stays as it
/// is.
///
/// # Errors
/// It cannot be made.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes an empty file that only its owner may read. An older file of that name gets these
/// permissions too, but a device or a pipe keeps its own.
///
/// # Errors
/// It cannot be made.
pub fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

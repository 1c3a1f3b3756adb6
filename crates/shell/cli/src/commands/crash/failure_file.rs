//! Files of failures: they hold contents of files and a command, so they are the user's alone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The most files of one name in the user's directory.
const NAMES_MAX: u32 = 10_000;

/// Writes a failure: to the given path, or to a new file in the user's state directory whose name
/// begins with `name`. Returns the path. No link is followed, and nobody else may read the file.
pub(super) fn write(path: Option<&Path>, name: &str, text: &str) -> Result<PathBuf> {
    match path {
        Some(path) => {
            // A new file takes the place of whatever has the name, a link too.
            crate::text::replace(path, text, 0o600)?;
            Ok(path.to_owned())
        }
        None => {
            let folder = state_folder()?;
            let (path, mut file) = new_file(&folder, name)
                .with_context(|| format!("a file for the failure in {}", folder.display()))?;
            file.write_all(text.as_bytes())
                .with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        }
    }
}

/// The user's directory for such files, made if need be.
pub(super) fn state_folder() -> Result<PathBuf> {
    let of = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let state = of("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| of("HOME").map(|home| home.join(".local/state")));
    let state = state.context(
        "no place for the failure: neither $XDG_STATE_HOME nor $HOME is set; --save names a file",
    )?;
    let folder = state.join("ordo");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// A file that did not exist.
fn new_file(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    for number in 1..=NAMES_MAX {
        let path = match number {
            1 => folder.join(format!("{name}.json")),
            _ => folder.join(format!("{name}-{number}.json")),
        };
        // It never follows a link: with `create_new` the name itself must be free.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                file.set_permissions(Permissions::from_mode(0o600))?;
                return Ok((path, file));
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

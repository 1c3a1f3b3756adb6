//! The privileges that commands need, asked for before anything is made.

use anyhow::{Result, bail};

/// Refuses to begin unless the caller is root. `why` says which step needs it.
///
/// # Errors
/// The caller is not root.
pub fn need_root(command: &str, why: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{command} needs root, because it {why}; nothing was made");
    }
    Ok(())
}

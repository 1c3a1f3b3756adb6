//! The kernels that run as a process: where they are, and what they can do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::GuestError;

/// The version of Ordo's own changes to the kernel, at the end of its release. They give it a price
/// for the processor, a seed for its random numbers, and a time stamp counter in virtual time.
const PATCHED: &str = "-ordo1";

/// A kernel that runs as a process.
#[derive(Clone, Debug)]
pub struct Kernel {
    path: PathBuf,
    release: String,
    options: BTreeSet<String>,
}

/// The folder in which `make guest-kernel` puts kernels.
fn cache() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    Some(own.or_else(home)?.join("ordo/guest"))
}

/// The places of kernels, the first one first.
fn places() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("ORDO_KERNEL") {
        return vec![named.into()];
    }
    let mut places: Vec<PathBuf> = cache().map(|dir| dir.join("linux")).into_iter().collect();
    places.extend(["/usr/lib/ordo/linux", "/usr/bin/linux.uml"].map(PathBuf::from));
    places
}

impl Kernel {
    /// The kernel that is there for everyone: the one that `$ORDO_KERNEL` names, or the first of
    /// the cache, of a package of Ordo's, and of Debian's package `user-mode-linux`.
    ///
    /// # Errors
    /// There is none, or the program found is no kernel.
    pub fn find() -> Result<Kernel, GuestError> {
        let places = places();
        if let Some(path) = places.iter().find(|path| path.exists()) {
            return Kernel::at(path);
        }
        let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        Err(GuestError::NoKernel { looked: format!("there is no {}", looked.join(", no ")) })
    }

    /// The kernel at a path.
    ///
    /// # Errors
    /// The program is no kernel that runs as a process.
    pub fn at(path: &Path) -> Result<Kernel, GuestError> {
        let not = |why: String| GuestError::NotAKernel { path: path.to_owned(), why };
        let ask = |what: &str| {
            let asked = Command::new(path).arg(what).output().map_err(|e| not(e.to_string()))?;
            Ok::<_, GuestError>(String::from_utf8_lossy(&asked.stdout).into_owned())
        };
        let release = ask("--version")?.trim().to_owned();
        let config = ask("--showconfig")?;
        if !config.contains("CONFIG_UML=y") {
            return Err(not("it does not show the configuration of one".to_owned()));
        }
        let set = config.lines().filter_map(|line| line.trim().strip_prefix("CONFIG_"));
        let options = set.filter_map(|line| line.strip_suffix("=y")).map(str::to_owned).collect();
        Ok(Kernel { path: path.to_owned(), release, options })
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The release, as `uname -r` says it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Whether an option of the configuration, such as `EXT4_FS`, is built in.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains(option)
    }

    /// Whether its clock can be Ordo's.
    pub fn has_virtual_time(&self) -> bool {
        self.has("UML_TIME_TRAVEL_SUPPORT")
    }

    /// Whether it has Ordo's own changes, without which the processor has no price and contents
    /// differ from run to run.
    pub fn is_patched(&self) -> bool {
        self.release.ends_with(PATCHED)
    }

    /// Asks for an option.
    ///
    /// # Errors
    /// The kernel is built without it.
    pub fn needs(&self, option: &str) -> Result<(), GuestError> {
        if self.has(option) {
            return Ok(());
        }
        Err(GuestError::Lacks { path: self.path.clone(), what: format!("CONFIG_{option}") })
    }
}

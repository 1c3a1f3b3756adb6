//! Ordo's own file systems as places for a program: made, recovered and mounted in this process.

use std::sync::Arc;

use ordo_block::Device;
use ordo_crash::Volume;
use ordo_crash_program::own::{OwnFs, OwnMounting};
use ordo_crash_program::{ProgramError, ProgramSystem};
use ordo_runtime::{LocalFuture, Runtime};
use ordo_systems::{CacheConfig, LogOptions, MakeOptions, MountOptions, System};

/// The default size of the first device, in bytes.
const BYTES: u64 = 64 << 20;
/// The memory of a mounted file system for blocks, in bytes.
const CACHE: usize = 16 << 20;
/// The number of segments of a log that is a whole file system.
const SEGMENTS: u64 = 1024;
/// The smallest of these segments, in bytes.
const SEGMENT_MIN: u64 = 32 << 10;

/// One of Ordo's systems.
#[derive(Clone, Copy, Debug)]
struct Own {
    system: System,
    bytes: u64,
}

/// The file system with this name, and with a first device of this size if one is given: one of
/// Ordo's, or one of the kernel's with mount options.
///
/// # Errors
/// There is no such file system.
pub(super) fn system(name: &str, bytes: Option<u64>) -> Result<ProgramSystem, ProgramError> {
    let bytes = bytes.map(|bytes| bytes / 4096 * 4096);
    if let Some(system) = System::by_name(name).filter(System::is_runnable) {
        let bytes = bytes.unwrap_or(BYTES);
        return Ok(ProgramSystem::of_process(
            system.name(),
            bytes,
            Arc::new(Own { system, bytes }),
        ));
    }
    let mut found = ProgramSystem::parse(name).map_err(|error| match error {
        ProgramError::System { name, known } => {
            let own: Vec<&str> = System::runnable().map(|system| system.name()).collect();
            ProgramError::System { name, known: format!("{known}; and Ordo's {}", own.join(", ")) }
        }
        error => error,
    })?;
    found.bytes = bytes.unwrap_or(found.bytes);
    Ok(found)
}

impl Own {
    fn options(&self) -> MakeOptions {
        let segment = (self.bytes / SEGMENTS).next_power_of_two().max(SEGMENT_MIN);
        let segment_size = self.system.format().has_cleaner().then_some(segment);
        self.system.marked(MakeOptions { segment_size, ..MakeOptions::default() })
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl OwnFs for Own {
    fn devices(&self) -> Vec<u64> {
        self.system.devices(self.bytes, self.options().ffs_block())
    }

    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<(), String>> {
        Box::pin(async move { self.system.make(rt, disks, &self.options()).await.map_err(words) })
    }

    fn mount<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        how: OwnMounting,
    ) -> LocalFuture<'a, Result<Volume, String>> {
        Box::pin(async move {
            if how.crashed && !self.system.promise().no_check {
                self.repair(disks).await?;
            }
            let mounted = self.system.mount(rt, disks, &mounting(how)).await.map_err(words)?;
            let fs = mounted.fs().clone();
            Ok(Volume::new(fs, move |_| {
                let mounted = mounted.clone();
                async move { mounted.unmount().await }
            }))
        })
    }
}

impl Own {
    /// The check with repair that comes before a mount of a system that promises nothing else.
    async fn repair(&self, disks: &[Device]) -> Result<(), String> {
        let Some(format) = self.system.format().judged() else { return Ok(()) };
        match format.check(disks, true).await?.unrepairable() {
            0 => Ok(()),
            left => Err(format!("the check cannot repair it: {left} findings are left")),
        }
    }
}

fn mounting(how: OwnMounting) -> MountOptions {
    let cache = CacheConfig::with_capacity(CACHE);
    let Some(age) = how.age else { return MountOptions { cache, ..MountOptions::default() } };
    let cache = CacheConfig { metadata_age: age, directory_age: age, data_age: age, ..cache };
    let log = LogOptions { tick: Some(age), ..LogOptions::default() };
    MountOptions { cache, log, ..MountOptions::default() }
}

//! The registry: every system of this process, one line each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use ordo_block::Device;
use ordo_crash::Promise;
use ordo_runtime::Runtime;

use crate::format::{Format, SystemFuture};
use crate::journaled::{self, Journaled, LogKind, LogPlace, OF_CONTENTS};
use crate::mounted::Mounted;
use crate::options::{MakeOptions, MountOptions};
use crate::{SystemError, dualfs, ffs, lfs};

/// A function that mounts a device under an ordering. The device holds only the file system.
pub type MountFn = for<'a> fn(&'a Runtime, Device, &'a MountOptions) -> SystemFuture<'a, Mounted>;

/// A function that mounts one or two devices.
pub type MountDevicesFn =
    for<'a> fn(&'a Runtime, &'a [Device], &'a MountOptions) -> SystemFuture<'a, Mounted>;

/// The way in which a system is mounted.
#[derive(Clone, Copy)]
pub enum Mounting {
    /// Under an ordering that keeps no data beside the image.
    Ordering(MountFn),
    /// The same, except that a mount after a crash rolls the log forward.
    Rolling(MountFn),
    /// With metadata and data on two devices. A mount after a crash rolls the log forward.
    Pair {
        /// Whether each has a disk of its own.
        apart: bool,
        /// The function that mounts them.
        mount: MountDevicesFn,
    },
    /// Under a journal.
    Journal(LogKind),
    /// For reading only.
    ReadOnly,
}

/// The data of a system.
#[derive(Clone, Copy)]
pub struct ListedEntry {
    /// The system's name on the command line.
    pub name: &'static str,
    /// The line about the system in a list.
    pub about: &'static str,
    /// The name of the system's ordering in `mount -o ordering=`.
    pub ordering: &'static str,
    /// Other names of the ordering.
    pub also: &'static [&'static str],
    /// The format of the system's devices.
    pub format: &'static dyn Format,
    /// The way in which the system is mounted.
    pub mounting: Mounting,
    /// The system's promise about the state after a crash.
    pub promise: Promise,
    /// The rules of the system's ordering, by name.
    pub rules: fn() -> Vec<&'static str>,
}

/// A system of this process.
#[derive(Clone, Copy)]
pub struct System(pub(crate) &'static ListedEntry);

/// Every system, in the order of tables. A new system gets a line here.
static REGISTRY: [System; 13] = [
    ffs::SYNC,
    ffs::SOFT_UPDATES,
    ffs::NONE,
    journaled::FILE,
    journaled::WAFS_1SYNC,
    journaled::WAFS_1ASYNC,
    journaled::WAFS_2SYNC,
    journaled::WAFS_2ASYNC,
    journaled::WAFS_1SYNC_GROUP,
    journaled::WAFS_2SYNC_GROUP,
    lfs::LFS,
    dualfs::DUALFS,
    dualfs::DUALFS_2,
];

impl PartialEq for System {
    fn eq(&self, other: &System) -> bool {
        self.name() == other.name()
    }
}

impl Eq for System {}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl System {
    /// Every system, in the order of tables.
    pub fn all() -> &'static [System] {
        &REGISTRY
    }

    /// The systems that can be mounted for writing. Only these are run, compared and crashed.
    pub fn runnable() -> impl Iterator<Item = System> + Clone {
        REGISTRY.iter().copied().filter(System::is_runnable)
    }

    /// The system of this name. The name of a journaled one may have options of its journal, as in
    /// `lffs-file:contents=data,commits=tangled`.
    pub fn by_name(name: &str) -> Option<System> {
        match name.split_once(':') {
            Some((usual, options)) => System::by_name(usual)?.with(options).ok(),
            None => REGISTRY.iter().copied().find(|system| system.name() == name),
        }
    }

    /// The system with options of its journal, as `contents=data,commits=tangled` has them. Entries
    /// of such systems are kept until the process ends, one for each name.
    ///
    /// # Errors
    /// The system has no journal, or its journal no such option.
    pub fn with(self, options: &str) -> Result<System, SystemError> {
        static MADE: Mutex<BTreeMap<String, System>> = Mutex::new(BTreeMap::new());
        let Mounting::Journal(kind) = self.0.mounting else { return Err(SystemError::NoJournal) };
        let kind = kind.with(options)?;
        let name = match self.name().contains(':') {
            true => format!("{},{options}", self.name()),
            false => format!("{}:{options}", self.name()),
        };
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let name = Box::leak(name.clone().into_boxed_str());
            let (mounting, promise) = (Mounting::Journal(kind), kind.promise());
            System(Box::leak(Box::new(ListedEntry { name, mounting, promise, ..*self.0 })))
        };
        Ok(*made.entry(name.clone()).or_insert_with(new))
    }

    /// The system's name on the command line.
    pub const fn name(&self) -> &'static str {
        self.0.name
    }

    /// The line about the system in a list.
    pub const fn describe(&self) -> &'static str {
        self.0.about
    }

    /// The name of the system's ordering in `mount -o ordering=`.
    pub const fn ordering(&self) -> &'static str {
        self.0.ordering
    }

    /// The system's promise about the state after a crash.
    pub const fn promise(&self) -> Promise {
        self.0.promise
    }

    /// The rules of the system's ordering that matter in its mode. Each can be switched off.
    pub fn rules(&self) -> Vec<&'static str> {
        let mut rules = (self.0.rules)();
        if self.journal().is_some_and(|journal| !journal.options.mode.follows_contents()) {
            rules.retain(|rule| OF_CONTENTS.iter_names().all(|(name, _)| name != *rule));
        }
        rules
    }

    /// The format of the system's devices.
    pub const fn format(&self) -> &'static dyn Format {
        self.0.format
    }

    /// Whether the system can be mounted for writing.
    pub const fn is_runnable(&self) -> bool {
        !matches!(self.0.mounting, Mounting::ReadOnly)
    }

    /// Whether the system has a cleaner, which takes options.
    pub fn has_cleaner(&self) -> bool {
        self.format().has_cleaner()
    }

    /// The system's journal, if it has one.
    pub fn journal(&self) -> Option<Journaled> {
        match self.0.mounting {
            Mounting::Journal(kind) => Some(kind.journaled()),
            _ => None,
        }
    }

    /// Whether a mount after a crash recovers from a log, so that no check is needed.
    pub fn recovers(&self) -> bool {
        matches!(
            self.0.mounting,
            Mounting::Journal(_) | Mounting::Rolling(_) | Mounting::Pair { .. }
        )
    }

    /// Whether metadata and data have a disk each.
    pub fn is_apart(&self) -> bool {
        matches!(self.0.mounting, Mounting::Pair { apart: true, .. })
    }

    /// The number of the device that has only a log, if there is one: DualFS's metadata device, or
    /// a journal's log device.
    pub fn log_device(&self) -> Option<usize> {
        match self.journal() {
            _ if self.is_apart() => Some(0),
            Some(journal) if journal.place == LogPlace::Other => Some(1),
            _ => None,
        }
    }

    /// The sizes of the system's devices in bytes, if the first has `bytes` bytes, and blocks have
    /// `block` bytes.
    pub fn devices(&self, bytes: u64, block: u32) -> Vec<u64> {
        match self.journal() {
            _ if self.is_apart() => dualfs::sizes(bytes, block),
            Some(journal) if journal.place == LogPlace::Other => {
                vec![bytes, journal.sizes(bytes, block).1]
            }
            _ => vec![bytes],
        }
    }

    /// The mkfs options with the flags that make a mount choose this system by default.
    #[must_use]
    pub fn marked(&self, options: MakeOptions) -> MakeOptions {
        let soft_updates = options.soft_updates || *self == ffs::SOFT_UPDATES;
        MakeOptions { soft_updates, ..self.with_log(options) }
    }

    fn with_log(&self, options: MakeOptions) -> MakeOptions {
        MakeOptions { log: options.log.or(self.journal().map(|j| j.place)), ..options }
    }

    /// Makes an empty file system.
    ///
    /// # Errors
    /// The sizes are not legal, or a device failed.
    pub async fn make(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MakeOptions,
    ) -> Result<(), SystemError> {
        let mut options = self.with_log(options.clone());
        if matches!(self.0.mounting, Mounting::Pair { .. }) {
            // In a comparison all systems get the same options, so fragments are whole blocks
            // everywhere.
            options.frag_size = None;
        }
        if self.is_apart() {
            // The whole first disk is the metadata device.
            options.metadata = None;
        }
        self.format().make(rt, disks, &options).await.map(drop)
    }

    /// Mounts the file system, after a replay of its log if one is needed.
    ///
    /// # Errors
    /// The system can only be read, or the devices' contents cannot be mounted.
    pub async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MountOptions,
    ) -> Result<Mounted, SystemError> {
        match self.0.mounting {
            Mounting::Ordering(mount) | Mounting::Rolling(mount) => {
                mount(rt, disks[0].clone(), options).await
            }
            Mounting::Pair { mount, .. } => mount(rt, disks, options).await,
            Mounting::Journal(kind) => {
                Ok(journaled::mount(&kind.journaled(), rt, disks, options).await?.0)
            }
            Mounting::ReadOnly => Err(self.format().cannot("mounted to be written")),
        }
    }
}

/// The orderings of `mount -o ordering=`: the main name of each, and its other names.
pub fn orderings() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for System(entry) in System::runnable() {
        let known = all.iter_mut().find(|(name, _)| *name == entry.ordering);
        let words = entry.also.iter().copied().chain([entry.name]);
        match known {
            Some((_, also)) => also.extend(words),
            None => all.push((entry.ordering, words.collect())),
        }
    }
    all
}

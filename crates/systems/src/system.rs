//! The registry: every system that this process keeps, one line each.

use std::fmt;

use ordo_block::Device;
use ordo_crash::Promise;
use ordo_runtime::Runtime;

use crate::format::{Done, Format};
use crate::journaled::{self, Journaled, LogKind, LogPlace};
use crate::mounted::Mounted;
use crate::options::{MakeOptions, MountOptions};
use crate::{SystemError, ffs, lfs};

/// Mounts a device, on which nothing but the file system is, under an ordering.
pub type MountFn = for<'a> fn(&'a Runtime, Device, &'a MountOptions) -> Done<'a, Mounted>;

/// How a system is mounted.
#[derive(Clone, Copy)]
pub enum Mounting {
    /// Under an ordering that keeps nothing beside the image.
    Ordering(MountFn),
    /// Under a journal.
    Journal(LogKind),
    /// To be read only.
    ReadOnly,
}

/// What is known of a system.
pub struct Entry {
    /// The name that a user gives it.
    pub name: &'static str,
    /// One line for a list.
    pub about: &'static str,
    /// What `mount -o ordering=` calls its ordering.
    pub ordering: &'static str,
    /// Other words for that ordering.
    pub also: &'static [&'static str],
    /// What its devices hold: how it is made, read, checked, shown.
    pub format: &'static dyn Format,
    /// How it is mounted.
    pub mounting: Mounting,
    /// What it promises of what a crash leaves.
    pub promise: Promise,
    /// The rules of its ordering, by name.
    pub rules: fn() -> Vec<&'static str>,
}

/// A system that this process keeps.
#[derive(Clone, Copy)]
pub struct System(pub(crate) &'static Entry);

/// Every system, in the order in which tables show them. A new one is a line here.
static REGISTRY: [System; 11] = [
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
    /// Every system, in the order in which tables show them.
    pub fn all() -> &'static [System] {
        &REGISTRY
    }

    /// Those that can be mounted to be written: what runs, is compared and is crashed.
    pub fn runnable() -> impl Iterator<Item = System> + Clone {
        REGISTRY.iter().copied().filter(System::is_runnable)
    }

    /// The system of this name.
    pub fn by_name(name: &str) -> Option<System> {
        REGISTRY.iter().copied().find(|system| system.name() == name)
    }

    /// What a user calls it.
    pub const fn name(&self) -> &'static str {
        self.0.name
    }

    /// One line for a list.
    pub const fn describe(&self) -> &'static str {
        self.0.about
    }

    /// What `mount -o ordering=` calls its ordering.
    pub const fn ordering(&self) -> &'static str {
        self.0.ordering
    }

    /// What it promises of what a crash leaves.
    pub const fn promise(&self) -> Promise {
        self.0.promise
    }

    /// The rules of its ordering, each of which can be switched off.
    pub fn rules(&self) -> Vec<&'static str> {
        (self.0.rules)()
    }

    /// What its devices hold.
    pub const fn format(&self) -> &'static dyn Format {
        self.0.format
    }

    /// Whether it can be mounted to be written.
    pub const fn is_runnable(&self) -> bool {
        !matches!(self.0.mounting, Mounting::ReadOnly)
    }

    /// How it keeps its journal, where it has one.
    pub fn journal(&self) -> Option<Journaled> {
        match self.0.mounting {
            Mounting::Journal(kind) => Some(kind.journaled()),
            Mounting::Ordering(_) | Mounting::ReadOnly => None,
        }
    }

    /// The sizes of its devices in bytes, where the first has `bytes`.
    pub fn devices(&self, bytes: u64) -> Vec<u64> {
        match self.journal() {
            Some(journal) if journal.place == LogPlace::Other => {
                vec![bytes, journal.sizes(bytes).1]
            }
            _ => vec![bytes],
        }
    }

    /// What is to be made so that a mount takes this system without being told to.
    #[must_use]
    pub fn marked(&self, options: MakeOptions) -> MakeOptions {
        let soft_updates = options.soft_updates || *self == ffs::SOFT_UPDATES;
        MakeOptions { soft_updates, ..self.with_log(options) }
    }

    fn with_log(&self, options: MakeOptions) -> MakeOptions {
        MakeOptions { log: options.log.or(self.journal().map(|j| j.place)), ..options }
    }

    /// Makes it, empty.
    ///
    /// # Errors
    /// The sizes are not legal, or a device failed.
    pub async fn make(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MakeOptions,
    ) -> Result<(), SystemError> {
        let options = self.with_log(options.clone());
        self.format().make(rt, disks, &options).await.map(drop)
    }

    /// Mounts it, after its log was replayed where that is needed.
    ///
    /// # Errors
    /// It is only read, or what is on the devices cannot be mounted.
    pub async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MountOptions,
    ) -> Result<Mounted, SystemError> {
        match self.0.mounting {
            Mounting::Ordering(mount) => mount(rt, disks[0].clone(), options).await,
            Mounting::Journal(kind) => {
                journaled::mount(&kind.journaled(), rt, disks, options).await
            }
            Mounting::ReadOnly => Err(self.format().cannot("mounted to be written")),
        }
    }
}

/// The orderings that `mount -o ordering=` takes: the first word of each, and the others.
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

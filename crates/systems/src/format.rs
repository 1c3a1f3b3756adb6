//! What a device holds, whichever system keeps it: found by its superblock, made, read, checked, shown.

use std::collections::BTreeMap;
use std::fmt::Display;

use ordo_block::Device;
use ordo_check::{Severity, Work};
use ordo_crash::DiskFormat;
use ordo_runtime::Runtime;
use ordo_vfs::LocalFuture;

use crate::mounted::Mounted;
use crate::options::{CheckOptions, Choice, MakeOptions, MountOptions, ShowOptions, Tell};
use crate::{SystemError, ffs, lfs};

/// What a format's work gives.
pub type Done<'a, T> = LocalFuture<'a, Result<T, SystemError>>;

/// What can be done with what a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Made by `ordo mkfs`.
    Make,
    /// Read: listed, copied out of, mounted read-only.
    Read,
    /// Written: copied into, mounted read-write.
    Write,
    /// Checked and repaired.
    Check,
    /// Crashed, and judged by its promise.
    Crash,
}

impl Ability {
    /// The word for it: "can be ...".
    pub const fn word(self) -> &'static str {
        match self {
            Ability::Make => "made",
            Ability::Read => "read (ls, cat, cp out of it, export, mount -o ro)",
            Ability::Write => "written",
            Ability::Check => "checked",
            Ability::Crash => "crashed",
        }
    }
}

/// All that is said of what was just made.
pub trait MadeReport {
    /// For a person; `image` is what it is called.
    fn text(&self, image: &str) -> String;

    /// For a program.
    ///
    /// # Errors
    /// A value has no form in JSON.
    fn json(&self, image: &str) -> Result<String, serde_json::Error>;
}

/// What a check found and did. As text a line for each finding, and one with the sum.
pub trait CheckReport: Display {
    /// The exit status of fsck(8): 0 nothing found, 1 all that was found is repaired, 4 something is left.
    fn exit_code(&self) -> i32;
    /// Whether nothing was found.
    fn is_consistent(&self) -> bool;
    /// Findings by severity.
    fn counts(&self) -> &BTreeMap<Severity, u64>;
    /// What each finding is called, as far as they were kept, and how bad it is here.
    fn kinds(&self) -> Vec<(&'static str, Severity)>;
    /// Findings that no repair makes go away.
    fn unrepairable(&self) -> u64;
    /// What it took.
    fn work(&self) -> Work;
    /// Files in use after the check.
    fn files(&self) -> u64;
    /// All of it for a program.
    ///
    /// # Errors
    /// A value has no form in JSON.
    fn json(&self) -> Result<String, serde_json::Error>;
}

/// What an image says of how it is to be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// It is marked to keep ACLs.
    pub acl: bool,
    /// It is big-endian.
    pub big_endian: bool,
}

/// What came of an attempt to mount for use.
pub enum Attempt {
    /// Mounted, under the ordering of this name.
    Mounted(Mounted, &'static str),
    /// It can only be read, for this reason.
    ReadOnly(String),
}

/// A format on disk.
pub trait Format: Sync {
    /// What `ordo mkfs --fs` calls it.
    fn name(&self) -> &'static str;

    /// With its article: "an LFS".
    fn noun(&self) -> &'static str;

    /// What can be done with it.
    fn abilities(&self) -> &'static [Ability];

    /// Whether a device holds one, by its superblock.
    fn is_on<'a>(&'a self, disk: &'a Device) -> Done<'a, bool>;

    /// Makes an empty one; a log for a journal on the second device where the options say so.
    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MakeOptions,
    ) -> Done<'a, Box<dyn MadeReport>>;

    /// Mounts it to be read, even where it was not unmounted. Nothing is written.
    fn read<'a>(
        &'a self,
        rt: &'a Runtime,
        disk: Device,
        options: &'a MountOptions,
    ) -> Done<'a, Mounted>;

    /// Mounts an image that nobody uses, to change it at once: nothing is ordered.
    fn edit<'a>(&'a self, rt: &'a Runtime, disk: Device) -> Done<'a, Mounted>;

    /// What an image says of how it is to be mounted.
    fn facts<'a>(&'a self, disk: &'a Device) -> Done<'a, Facts>;

    /// Mounts for use, after whatever its ordering needs after a crash: a log is replayed, what a check repairs without
    /// a loss is repaired, what was leaked is given back in the background. The second device holds the log.
    fn attach<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        choice: &'a Choice,
        options: &'a MountOptions,
        tell: &'a Tell,
    ) -> Done<'a, Attempt>;

    /// Replays the log of an image that has one and was not unmounted: how many records it held. `None` where there is
    /// nothing to replay.
    fn replay<'a>(&'a self, rt: &'a Runtime, disks: &'a [Device]) -> Done<'a, Option<u64>>;

    /// Checks, and repairs what the options allow.
    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a CheckOptions,
    ) -> Done<'a, Box<dyn CheckReport>>;

    /// What its superblock and its groups or segments say.
    fn show<'a>(&'a self, disk: &'a Device, options: &'a ShowOptions) -> Done<'a, String>;

    /// What judging a crash of it takes; none where it cannot be crashed.
    fn judged(&self) -> Option<&dyn DiskFormat>;

    /// Why something cannot be done with it: an error that names what can.
    fn cannot(&self, wanted: &'static str) -> SystemError {
        let can: Vec<&str> = self.abilities().iter().map(|a| a.word()).collect();
        let can = match can.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => can.concat(),
        };
        SystemError::Cannot { what: self.noun(), can, wanted }
    }
}

/// Every format; the first is that of an image of which nobody says more.
pub static FORMATS: [&dyn Format; 2] = [&ffs::Ufs2, &lfs::Lfs];

/// The format that a device holds. The last of [`FORMATS`] is asked first: where something was made over the first, whose
/// superblock lies far from the beginning, that may still be there.
///
/// # Errors
/// The device failed.
pub async fn probe(disk: &Device) -> Result<Option<&'static dyn Format>, SystemError> {
    for format in FORMATS.into_iter().rev() {
        if format.is_on(disk).await? {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

/// The same, for whoever has to go on: a device on which nothing is found is taken for the first format, which says
/// what is wrong with it, and whose check looks for copies of a superblock.
///
/// # Errors
/// The device failed.
pub async fn format_of(disk: &Device) -> Result<&'static dyn Format, SystemError> {
    Ok(probe(disk).await?.unwrap_or(FORMATS[0]))
}

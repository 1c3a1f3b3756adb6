//! Formats: the structure of a device's contents, independent of the system that wrote them. A
//! format is found by its superblock; it can be made, read, checked and shown.

use std::collections::BTreeMap;
use std::fmt::Display;

use ordo_block::Device;
use ordo_check::{CheckWork, Severity};
use ordo_crash::{DiskFormat, FsGeometry};
use ordo_runtime::LocalFuture;
use ordo_runtime::Runtime;

use crate::crashed::shaped;
use crate::journaled::Replayed;
use crate::mounted::Mounted;
use crate::options::{CheckOptions, Choice, MakeOptions, MessageSink, MountOptions, ShowOptions};
use crate::{SystemError, dualfs, ffs, lfs};

/// The result of a format's function, as a boxed future.
pub type SystemFuture<'a, T> = LocalFuture<'a, Result<T, SystemError>>;

/// Something that can be done with a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// The format can be made by `ordo mkfs`.
    Make,
    /// The format can be read: listed, copied from, mounted read-only.
    Read,
    /// The format can be written: copied to, mounted read-write.
    Write,
    /// The format can be checked and repaired.
    Check,
    /// The format can be crashed, and judged by its promise.
    Crash,
}

impl Ability {
    /// The word for the ability, after "can be ...".
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

/// The report on a file system that was just made.
pub trait MadeReport {
    /// The report for a person. `image` is the name of the image.
    fn text(&self, image: &str) -> String;

    /// The report for a program.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    fn json(&self, image: &str) -> Result<String, serde_json::Error>;
}

/// The findings and repairs of a check. The text has a line for each finding, and one with the sum.
pub trait CheckReport: Display {
    /// The exit status of fsck(8): 0 for no findings, 1 if all findings are repaired, 4 if some are
    /// left.
    fn exit_code(&self) -> i32;
    /// Whether there are no findings.
    fn is_consistent(&self) -> bool;
    /// The numbers of findings, by severity.
    fn counts(&self) -> &BTreeMap<Severity, u64>;
    /// For each finding that was kept: its name, and its severity here.
    fn kinds(&self) -> Vec<(&'static str, Severity)>;
    /// The number of findings that no repair removes.
    fn unrepairable(&self) -> u64;
    /// The work of the check.
    fn work(&self) -> CheckWork;
    /// The number of files in use after the check.
    fn files(&self) -> u64;
    /// The report for a program.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    fn json(&self) -> Result<String, serde_json::Error>;
}

/// One of the two devices of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// The identifier that both devices have.
    pub pair: String,
    /// The name of this device: "metadata" or "data".
    pub role: &'static str,
    /// The name of the other device.
    pub other: &'static str,
    /// Whether this device is the first of the two in every function of [`Format`].
    pub is_first: bool,
}

/// The facts in an image that matter for a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the image is marked to keep ACLs.
    pub acl: bool,
    /// Whether the image is big-endian.
    pub big_endian: bool,
}

/// The result of an attempt to mount for use.
pub enum Attempt {
    /// The mounted file system, and the name of its ordering.
    Mounted(Mounted, &'static str),
    /// The reason why the image can only be read.
    ReadOnly(String),
}

/// A format on disk.
pub trait Format: Sync {
    /// The format's name for `ordo mkfs --fs`.
    fn name(&self) -> &'static str;

    /// The format's noun, with its article: "an LFS".
    fn noun(&self) -> &'static str;

    /// The format's abilities.
    fn abilities(&self) -> &'static [Ability];

    /// Whether this is a UFS, which can be read past damage ([`rescue`](crate::rescue)).
    fn is_ufs(&self) -> bool {
        false
    }

    /// Whether a mounted file system has a cleaner, which takes options.
    fn has_cleaner(&self) -> bool {
        false
    }

    /// Whether a mount takes the sizes of runs of blocks, and of the gaps between them.
    fn has_tuning(&self) -> bool {
        false
    }

    /// Whether a device holds this format, according to its superblock.
    fn is_on<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, bool>;

    /// Whether a file system of this format may be on two devices, of which none has only a log.
    fn has_pairs(&self) -> bool {
        false
    }

    /// The half of a pair that a device holds; `None` if it holds none, or both.
    fn half<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, Option<Half>> {
        let _ = disk;
        Box::pin(async { Ok(None) })
    }

    /// Makes an empty file system. A second device gets what the format or the options put there: a
    /// journal's log, or the contents of files.
    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MakeOptions,
    ) -> SystemFuture<'a, Box<dyn MadeReport>>;

    /// Mounts for reading, even if the image was not unmounted. Nothing is written.
    fn read<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MountOptions,
    ) -> SystemFuture<'a, Mounted>;

    /// Mounts an image that is not in use, for changes without any ordering.
    fn edit<'a>(&'a self, rt: &'a Runtime, disks: &'a [Device]) -> SystemFuture<'a, Mounted>;

    /// The facts in an image that matter for a mount.
    fn facts<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, Facts>;

    /// Mounts for use, with the recovery that the ordering needs after a crash: a log is replayed,
    /// damage that a check repairs without a loss is repaired, and leaked space is freed in the
    /// background. The second device has the log.
    fn attach<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        choice: &'a Choice,
        options: &'a MountOptions,
        tell: &'a MessageSink,
    ) -> SystemFuture<'a, Attempt>;

    /// Replays the log of an image that has one and was not unmounted. Returns `None` if there is
    /// nothing to replay.
    fn replay<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> SystemFuture<'a, Option<Replayed>>;

    /// Checks, and repairs what the options allow.
    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a CheckOptions,
    ) -> SystemFuture<'a, Box<dyn CheckReport>>;

    /// Shows the superblock, and the groups or segments. One device of a pair shows what it has;
    /// both show the whole pair.
    fn show<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a ShowOptions,
    ) -> SystemFuture<'a, String>;

    /// The parts of a crash test that know the format; `None` if the format cannot be crashed.
    fn judged(&self) -> Option<&dyn DiskFormat>;

    /// The size in bytes of a file system of this shape in crash tests, if it is not the shape's
    /// own.
    fn crash_bytes(&self, geometry: &FsGeometry) -> Option<u64> {
        let _ = geometry;
        None
    }

    /// The free space in bytes of a file system of this shape in crash tests, if other files fill
    /// the rest.
    fn crash_free(&self, geometry: &FsGeometry) -> Option<u64> {
        let _ = geometry;
        None
    }

    /// The options with which a file system of this geometry is made for crash exploration.
    fn crash_options(&self, geometry: &FsGeometry) -> MakeOptions {
        shaped(geometry)
    }

    /// The error for an ability that the format lacks. It names the abilities that the format has.
    fn cannot(&self, wanted: &'static str) -> SystemError {
        let can: Vec<&str> = self.abilities().iter().map(|a| a.word()).collect();
        let can = match can.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => can.concat(),
        };
        SystemError::Cannot { what: self.noun(), can, wanted }
    }
}

/// Every format. The first one is assumed for an image about which nothing else is known.
pub static FORMATS: [&dyn Format; 4] = [&ffs::UFS2, &ffs::UFS1, &lfs::Lfs, &dualfs::Dual];

/// The format that a device holds. [`FORMATS`] is tried from its end: if a file system was made
/// over one of the first format, that format's old superblock, which lies far from the beginning,
/// may still be there.
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

/// As [`probe`], for callers that need a format. A device without a known superblock is taken for
/// the first format. That format then reports the fault, and its check searches for copies of a
/// superblock.
///
/// # Errors
/// The device failed.
pub async fn format_of(disk: &Device) -> Result<&'static dyn Format, SystemError> {
    Ok(probe(disk).await?.unwrap_or(FORMATS[0]))
}

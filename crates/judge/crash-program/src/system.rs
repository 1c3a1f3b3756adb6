//! A kernel file system, by its name and any mount options: `ext4:data=journal,journal_checksum`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_kernelfs::table::KernelFs;
use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::more::MoreDevices;
use crate::own::OwnFs;

/// A file system on which a program is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSystem {
    /// The kernel's name for it.
    pub kind: String,
    /// Mount options, separated by commas, with those for more devices (`external-journal`).
    pub options: String,
    /// Additional arguments for mkfs.
    pub mkfs: Vec<String>,
    /// The size of its device in bytes; of the first, if there are several.
    pub bytes: u64,
    /// The file system, if it is one of this process.
    #[serde(skip)]
    own: Option<Own>,
    /// The devices besides the first, for which options ask.
    #[serde(skip)]
    more: MoreDevices,
    /// The devices that are in files in the folder for temporary files, and not in memory.
    #[serde(skip)]
    in_files: InFiles,
}

/// The devices that are in files without names, and not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFiles {
    /// Those of a recording.
    pub recording: bool,
    /// Those of the states of the kernel's file systems. A flush of theirs waits for the disk of
    /// the folder for temporary files.
    pub states: bool,
}

/// A file system of this process. Whether two are the same is told by their names and sizes.
#[derive(Clone, Debug)]
struct Own(Arc<dyn OwnFs>);

impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        self.0.devices() == other.0.devices()
    }
}

impl Eq for Own {}

/// Arguments for few inodes and no delayed initialisation, so that all writes are the program's.
const SMALL_EXT: [&str; 6] = ["-b", "4096", "-N", "4096", "-E", "lazy_itable_init=0,nodiscard"];

impl ProgramSystem {
    /// The file system that a text names: a kind, and mount options after a colon. `ext3-journal`
    /// and `ext3-writeback` are short for `ext3:data=journal` and `ext3:data=writeback`. Options
    /// for more devices are `external-journal` and `external-journal=SIZE` (ext3, ext4),
    /// `external-log` (XFS), and `devices=N` (btrfs).
    ///
    /// # Errors
    /// [`ProgramError::System`]: there is no such kind. [`ProgramError::Option`]: an option asks for devices that
    /// cannot be.
    pub fn parse(text: &str) -> Result<ProgramSystem, ProgramError> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        let (kind, options) = match kind {
            "ext3-journal" => ("ext3", format!("data=journal,{options}")),
            "ext3-writeback" => ("ext3", format!("data=writeback,{options}")),
            _ => (kind, options.to_owned()),
        };
        let known = KernelFs::by_name(kind).ok_or_else(|| ProgramError::System {
            name: kind.to_owned(),
            known: KernelFs::names(),
        })?;
        let options = options.trim_matches(',').to_owned();
        let mut more = MoreDevices::None;
        for option in words(&options) {
            more = MoreDevices::asked(kind, option)?.unwrap_or(more);
        }
        let (kind, bytes) = (kind.to_owned(), known.bytes);
        Ok(ProgramSystem {
            kind,
            options,
            mkfs: Vec::new(),
            bytes,
            own: None,
            more,
            in_files: InFiles::default(),
        })
    }

    /// Whether a text begins with the name of one of these file systems, whatever options it has.
    pub fn is_named(text: &str) -> bool {
        ProgramSystem::parse(text.split(':').next().unwrap_or_default()).is_ok()
    }

    /// The file system with more arguments for mkfs.
    ///
    /// # Errors
    /// [`ProgramError::Option`]: an argument names a device.
    pub fn with_mkfs(self, mkfs: Vec<String>) -> Result<ProgramSystem, ProgramError> {
        MoreDevices::check_mkfs(&self.kind, &mkfs)?;
        Ok(ProgramSystem { mkfs, ..self })
    }

    /// A file system of this process with this name.
    pub fn of_process(name: &str, bytes: u64, own: Arc<dyn OwnFs>) -> ProgramSystem {
        let (kind, own) = (name.to_owned(), Some(Own(own)));
        ProgramSystem {
            kind,
            options: String::new(),
            mkfs: Vec::new(),
            bytes,
            own,
            more: MoreDevices::None,
            in_files: InFiles::default(),
        }
    }

    /// The file system with these devices in files in the folder for temporary files. The states of
    /// those of this process are in memory all the same.
    #[must_use]
    pub fn with_devices_in_files(self, in_files: InFiles) -> ProgramSystem {
        ProgramSystem { in_files, ..self }
    }

    /// The devices that are in files in the folder for temporary files.
    pub(crate) fn in_files(&self) -> InFiles {
        self.in_files
    }

    /// The file system, if it is one of this process.
    pub(crate) fn own(&self) -> Option<&Arc<dyn OwnFs>> {
        self.own.as_ref().map(|own| &own.0)
    }

    /// Whether the kernel makes and mounts it, for which it asks for root.
    pub fn is_kernels(&self) -> bool {
        self.own.is_none()
    }

    /// The sizes of its devices in bytes.
    pub fn devices(&self) -> Vec<u64> {
        self.own().map_or_else(|| self.more.sizes(self.bytes), |own| own.devices())
    }

    /// The words for a person about its device `number`, counted from 0.
    pub(crate) fn device_words(&self, number: usize) -> &'static str {
        self.more.words(number)
    }

    /// The name as a user gives it.
    pub fn name(&self) -> String {
        match self.options.is_empty() {
            true => self.kind.clone(),
            false => format!("{}:{}", self.kind, self.options),
        }
    }

    fn known(&self) -> &'static KernelFs {
        KernelFs::by_name(&self.kind).expect("a system is made of a known kind")
    }

    /// Makes the file system on its devices.
    ///
    /// # Errors
    /// The mkfs is not installed, or failed.
    pub(crate) fn make(&self, devices: &[PathBuf]) -> Result<(), ProgramError> {
        let (before, after) = self.more.make(devices, &self.mkfs)?;
        let mkfs = self.known().mkfs;
        let device = devices[0].to_string_lossy();
        let mut args: Vec<&str> = mkfs[1..].to_vec();
        if self.kind.starts_with("ext") {
            args.extend(SMALL_EXT);
        }
        args.extend(self.mkfs.iter().chain(&before).map(String::as_str));
        args.push(&device);
        args.extend(after.iter().map(String::as_str));
        Ok(ordo_kernelfs::kernel::run(mkfs[0], &args)?)
    }

    /// Mounts the file system by the system call, without a program.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn mount(&self, devices: &[PathBuf], dir: &Path) -> std::io::Result<()> {
        let (flags, mut data) = self.mount_words();
        data.extend(self.more.mount_options(devices));
        let data = std::ffi::CString::new(data.join(",")).map_err(std::io::Error::other)?;
        Ok(rustix::mount::mount(&devices[0], dir, &*self.kind, flags, data.as_c_str())?)
    }

    /// Makes the kernel forget the devices of the unmounted file system, where it remembers them.
    pub(crate) fn forget(&self, devices: &[PathBuf]) {
        if self.is_btrfs() && devices.len() > 1 {
            for device in devices {
                // A device that the kernel does not know, because its superblock is torn, is an
                // error here.
                let _ = crate::sys::forget_btrfs(device);
            }
        }
    }

    /// Options in the form of the system call: flags, and words that the file system parses.
    fn mount_words(&self) -> (MountFlags, Vec<String>) {
        // Options for more devices have been accepted, and are none of the kernel's.
        let is_kernels = |word: &&str| matches!(MoreDevices::asked(&self.kind, word), Ok(None));
        let given = words(&self.options).filter(is_kernels);
        let (flags, mut rest) = ordo_fuse::mounts::flags_of(given);
        let of_copies = self.known().copy_option;
        if !of_copies.is_empty() && !rest.contains(&of_copies) {
            rest.push(of_copies);
        }
        (flags, rest.into_iter().map(str::to_owned).collect())
    }

    /// The command that repairs the file system after a crash, before a mount; empty if none is
    /// needed.
    pub(crate) fn repair(&self) -> &'static [&'static str] {
        if self.own.is_some() { &[] } else { self.known().repair }
    }

    pub(crate) fn is_btrfs(&self) -> bool {
        self.kind == "btrfs"
    }
}

/// The single options of a list.
fn words(options: &str) -> impl Iterator<Item = &str> {
    options.split(',').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is a kind with any options; an unknown kind is refused with the list of kinds.
    #[test]
    fn systems_have_names() {
        let journal = ProgramSystem::parse("ext3-journal").unwrap();
        assert_eq!(journal.name(), "ext3:data=journal");
        assert_eq!(ProgramSystem::parse("ext3:data=journal").unwrap(), journal);
        assert_eq!(ProgramSystem::parse("xfs").unwrap().bytes, 300 << 20);
        let error = ProgramSystem::parse("zfs").unwrap_err().to_string();
        assert!(error.contains("'zfs'") && error.contains("btrfs"), "{error}");
    }

    /// Options that mount(8) turns into flags are flags here; all others go to the file system.
    #[test]
    fn options_are_split_as_mount_does() {
        let system = ProgramSystem::parse("ext4:noatime,data=journal,sync,nobarrier").unwrap();
        let (flags, rest) = system.mount_words();
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::SYNCHRONOUS);
        assert_eq!(rest, ["data=journal", "nobarrier"]);
        assert_eq!(ProgramSystem::parse("xfs").unwrap().mount_words().1, ["nouuid"]);
    }

    /// Options for more devices are no mount options, stay in the name, and give the sizes of all
    /// devices.
    #[test]
    fn options_give_more_devices() {
        let system = ProgramSystem::parse("ext4:external-journal=16m,data=journal").unwrap();
        assert_eq!(system.name(), "ext4:external-journal=16m,data=journal");
        assert_eq!(system.devices(), [64 << 20, 16 << 20]);
        assert_eq!(system.mount_words().1, ["data=journal"]);
        assert_eq!(ProgramSystem::parse("btrfs:devices=2").unwrap().devices(), [256 << 20; 2]);
        assert!(ProgramSystem::parse("btrfs:external-journal").is_err());
        assert!(
            ProgramSystem::is_named("btrfs:external-journal") && !ProgramSystem::is_named("nfs")
        );
    }
}

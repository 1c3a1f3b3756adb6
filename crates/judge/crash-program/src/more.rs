//! The devices of a kernel file system besides its first: an external journal, an external log, the
//! other members of a btrfs. They are options of the file system, as in `ext4:external-journal` or
//! `btrfs:devices=2`.

use std::path::{Path, PathBuf};

use crate::ProgramError;

const MIB: u64 = 1 << 20;
/// The default size of an external journal in bytes. A journal has at least 1,024 blocks.
const JOURNAL: u64 = 8 * MIB;
/// The default size of an external log in bytes, which is the smallest that mkfs.xfs accepts.
const LOG: u64 = 64 * MIB;
/// The most devices of a btrfs.
const MEMBERS_MAX: u64 = 8;
/// The largest journal or log, in bytes: all devices are in memory.
const BYTES_MAX: u64 = 1 << 30;

/// The devices besides the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MoreDevices {
    /// There are none.
    #[default]
    None,
    /// The journal of ext3 or ext4, of so many bytes.
    Journal(u64),
    /// The log of XFS, of so many bytes.
    Log(u64),
    /// The devices of a btrfs, the first one included, which are equally large.
    Members(u64),
}

/// Mount options that name devices of the machine.
const DEVICES: [&str; 5] = ["journal_path", "journal_dev", "logdev", "rtdev", "device"];

/// The option with which each kind of file system gets more devices.
fn option_of(kind: &str) -> Option<&'static str> {
    match kind {
        "ext3" | "ext4" => Some("external-journal"),
        "xfs" => Some("external-log"),
        "btrfs" => Some("devices"),
        _ => None,
    }
}

fn wrong(kind: &str, option: &str, why: impl Into<String>) -> ProgramError {
    ProgramError::Option { system: kind.to_owned(), option: option.to_owned(), why: why.into() }
}

/// The option that a user can write instead of one that is refused.
fn instead(kind: &str) -> String {
    match option_of(kind) {
        Some("devices") => "devices=2 gives btrfs a second device of its own".to_owned(),
        Some(option) => format!("{option} gives {kind} a second device of its own"),
        None => format!("{kind} has one device only"),
    }
}

/// A size in bytes: a number with `k`, `m` or `g`.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['k', 'm', 'g', 'K', 'M', 'G']);
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl MoreDevices {
    /// The devices that one option asks for; `None` if it is another option, for the kernel.
    ///
    /// # Errors
    /// The option is one of another file system, has a wrong value, or names a device of the
    /// machine.
    pub(crate) fn asked(kind: &str, option: &str) -> Result<Option<MoreDevices>, ProgramError> {
        let (key, value) = option.split_once('=').map_or((option, None), |(k, v)| (k, Some(v)));
        if DEVICES.contains(&key) {
            let why = format!("it names a device of this machine; {}", instead(kind));
            return Err(wrong(kind, option, why));
        }
        if !["external-journal", "external-log", "devices"].contains(&key) {
            return Ok(None);
        }
        if option_of(kind) != Some(key) {
            return Err(wrong(kind, option, format!("there is no such thing; {}", instead(kind))));
        }
        let sized = |default: u64, least: u64| match value.map(size) {
            None => Ok(default),
            Some(Some(bytes)) if (least..=BYTES_MAX).contains(&bytes) => Ok(bytes / 4096 * 4096),
            Some(_) => {
                let why = format!(
                    "its size is {} MiB to {} MiB, as in {key}={}m",
                    least / MIB,
                    BYTES_MAX / MIB,
                    default / MIB
                );
                Err(wrong(kind, option, why))
            }
        };
        Ok(Some(match key {
            "external-journal" => MoreDevices::Journal(sized(JOURNAL, 2 * MIB)?),
            "external-log" => MoreDevices::Log(sized(LOG, LOG)?),
            _ => match value.and_then(|n| n.parse().ok()) {
                Some(1) => MoreDevices::None,
                Some(count @ 2..=MEMBERS_MAX) => MoreDevices::Members(count),
                _ => return Err(wrong(kind, option, "there are 1 to 8, as in devices=2")),
            },
        }))
    }

    /// Refuses arguments of mkfs that name a device of the machine: mkfs would write to it, and it
    /// would not be recorded.
    ///
    /// # Errors
    /// There is such an argument.
    pub(crate) fn check_mkfs(kind: &str, words: &[String]) -> Result<(), ProgramError> {
        let names = ["/dev/", "device=", "logdev=", "rtdev=", "journal_dev"];
        match words.iter().find(|word| names.iter().any(|name| word.contains(name))) {
            None => Ok(()),
            Some(word) => {
                let why = format!("it names a device of this machine; {}", instead(kind));
                Err(wrong(kind, &format!("--mkfs {word}"), why))
            }
        }
    }

    /// The sizes of all devices in bytes, of which the first one has `bytes`.
    pub(crate) fn sizes(self, bytes: u64) -> Vec<u64> {
        match self {
            MoreDevices::None => vec![bytes],
            MoreDevices::Journal(more) | MoreDevices::Log(more) => vec![bytes, more],
            MoreDevices::Members(count) => vec![bytes; count as usize],
        }
    }

    /// The words for a person about the device `number`, counted from 0.
    pub(crate) fn words(self, number: usize) -> &'static str {
        match self {
            _ if number == 0 => "file system",
            MoreDevices::Journal(_) => "external journal",
            MoreDevices::Log(_) => "external log",
            MoreDevices::None | MoreDevices::Members(_) => "another device of the file system",
        }
    }

    /// The mount options that name the devices besides the first.
    pub(crate) fn mount_options(self, devices: &[PathBuf]) -> Vec<String> {
        let key = match self {
            MoreDevices::None => return Vec::new(),
            MoreDevices::Journal(_) => "journal_path",
            MoreDevices::Log(_) => "logdev",
            MoreDevices::Members(_) => "device",
        };
        devices[1..].iter().map(|device| format!("{key}={}", device.display())).collect()
    }

    /// Makes what must be there before the file system's own mkfs, which gets the returned
    /// arguments besides its own: those before the first device, and those after it.
    ///
    /// # Errors
    /// The mkfs is not installed, or failed.
    pub(crate) fn make(
        self,
        devices: &[PathBuf],
        mkfs: &[String],
    ) -> Result<(Vec<String>, Vec<String>), ProgramError> {
        let name = |device: &Path| device.to_string_lossy().into_owned();
        match self {
            MoreDevices::None => Ok((Vec::new(), Vec::new())),
            MoreDevices::Journal(_) => {
                // Both devices have blocks of the same size.
                let (block, journal) = (block_size(mkfs), name(&devices[1]));
                let args = ["-q", "-F", "-b", block, "-O", "journal_dev", &journal];
                ordo_kernelfs::kernel::run("mke2fs", &args)?;
                Ok((vec!["-J".into(), format!("device={journal}")], Vec::new()))
            }
            MoreDevices::Log(_) => {
                Ok((vec!["-l".into(), format!("logdev={}", name(&devices[1]))], Vec::new()))
            }
            MoreDevices::Members(_) => {
                Ok((Vec::new(), devices[1..].iter().map(|d| name(d)).collect()))
            }
        }
    }
}

/// The block size that arguments for mke2fs ask for.
fn block_size(mkfs: &[String]) -> &str {
    let at = mkfs.iter().rposition(|word| word.starts_with("-b"));
    let value = at.and_then(|at| match &mkfs[at][2..] {
        "" => mkfs.get(at + 1).map(String::as_str),
        joined => Some(joined),
    });
    value.unwrap_or("4096")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(kind: &str, option: &str) -> String {
        MoreDevices::asked(kind, option).unwrap_err().to_string()
    }

    /// Each file system has its own word for more devices, with a size that can be; all others are
    /// refused, and the reason says what is possible. Options of the kernel are left alone.
    #[test]
    fn only_devices_that_can_be_are_accepted() {
        let asked = |kind, option| MoreDevices::asked(kind, option).unwrap();
        assert_eq!(asked("ext3", "external-journal"), Some(MoreDevices::Journal(8 << 20)));
        assert_eq!(asked("ext4", "external-journal=16m"), Some(MoreDevices::Journal(16 << 20)));
        assert_eq!(asked("xfs", "external-log"), Some(MoreDevices::Log(64 << 20)));
        assert_eq!(asked("btrfs", "devices=2"), Some(MoreDevices::Members(2)));
        assert_eq!(asked("ext4", "data=journal"), None);
        assert!(why("ext2", "external-journal").contains("one device"));
        assert!(why("xfs", "external-journal").contains("external-log"));
        assert!(why("ext4", "external-journal=9").contains("2 MiB"));
        assert!(why("ext4", "external-journal=xm").contains("2 MiB"));
        assert!(why("btrfs", "devices=90").contains("1 to 8"));
        assert!(why("ext4", "journal_path=/dev/sda").contains("external-journal"));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let refused = MoreDevices::check_mkfs("ext4", &words("-J device=/dev/sda"));
        assert!(refused.unwrap_err().to_string().contains("external-journal"));
        assert!(MoreDevices::check_mkfs("ext4", &words("-J size=8")).is_ok());
        assert_eq!(
            [block_size(&words("-b 1024")), block_size(&words("-b2048 -q"))],
            ["1024", "2048"]
        );
        assert_eq!(block_size(&[]), "4096");
    }
}

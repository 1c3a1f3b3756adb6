//! The table of mounts of this process, `/proc/self/mountinfo`: `proc_pid_mountinfo(5)`; and the
//! options of a mount.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::MountFlags;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'t> {
    /// The numbers of its device, as `MAJOR:MINOR`.
    pub device: &'t str,
    /// The directory.
    pub dir: PathBuf,
    /// The kind of file system.
    pub kind: &'t str,
    /// The source: a device, or a word of the file system.
    pub source: PathBuf,
}

/// The text of the table.
///
/// # Errors
/// The operating system's error.
pub fn table() -> io::Result<String> {
    std::fs::read_to_string("/proc/self/mountinfo")
}

/// Options in the form of the system call, as mount(8) makes it: flags, and the words that the file
/// system parses.
///
/// ```
/// let (_, rest) = ordo_fuse::mounts::flags_of("ro,noatime,data=journal".split(','));
/// assert_eq!(rest, ["data=journal"]);
/// ```
pub fn flags_of<'o>(options: impl Iterator<Item = &'o str>) -> (MountFlags, Vec<&'o str>) {
    let (mut flags, mut rest) = (MountFlags::empty(), Vec::new());
    for word in options {
        match word {
            "" | "defaults" | "rw" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "nodev" => flags |= MountFlags::NODEV,
            "nosuid" => flags |= MountFlags::NOSUID,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => rest.push(other),
        }
    }
    (flags, rest)
}

/// The mounts of a table, in the order in which they were made.
pub fn of(table: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    table.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' ').skip(2), after.split(' '));
        let (device, dir) = (before.next()?, plain(before.nth(1)?));
        Some(Mount { device, dir, kind: after.next()?, source: plain(after.next()?) })
    })
}

/// The characters that are octal numbers in the table.
const ESCAPED: [char; 4] = [' ', '\t', '\n', '\\'];

/// A path as the table has it.
pub fn escaped(path: &Path) -> String {
    let escape = |c: char| match c {
        c if ESCAPED.contains(&c) => format!("\\{:03o}", c as u32),
        c => c.to_string(),
    };
    path.to_string_lossy().chars().map(escape).collect()
}

/// The path of a word of the table.
fn plain(word: &str) -> PathBuf {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some((byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal.filter(|_| *byte == b'\\') {
            Some(char) => {
                out.push(char);
                rest = &behind[3..];
            }
            None => {
                out.push(*byte);
                rest = behind;
            }
        }
    }
    OsString::from_vec(out).into()
}

/// Whether the server of the FUSE file system on a directory is gone.
pub fn is_dead(dir: &Path) -> bool {
    // The kernel answers many calls from its caches, but never this one.
    matches!(rustix::fs::statfs(dir), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_paths_are_escaped() {
        assert_eq!(escaped(Path::new("/a b\\c")), "/a\\040b\\134c");
    }

    /// Every path comes back from the table. Would catch an escape that is decoded twice, as in a
    /// name with a backslash and digits.
    #[test]
    fn paths_come_back_from_the_table() {
        for path in ["/", "/a b\\c", "/\t\n", "/a\\040b", "/end\\", "/\\13"] {
            assert_eq!(plain(&escaped(Path::new(path))), Path::new(path));
        }
    }
}

//! Manifests in the language of mtree(5), as FreeBSD's METALOG is: the tree of an image, with
//! owners and devices that the host's files cannot have without root.
//!
//! A line is a path and its keywords; `/set` and `/unset` change the defaults. A path with a slash
//! counts from the root. One without is in the directory of the lines before it, which `..` leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ordo_vfs::{FileType, Timestamp, flags};

use super::listed::{Contents, ListedFs, Node};

/// The keywords of an entry, the defaults among them.
type Words = BTreeMap<String, String>;

/// The names of flags.
const FLAGS: [(&str, u32); 20] = [
    ("none", 0),
    ("nodump", flags::UF_NODUMP),
    ("uchg", flags::UF_IMMUTABLE),
    ("uchange", flags::UF_IMMUTABLE),
    ("uimmutable", flags::UF_IMMUTABLE),
    ("uappnd", flags::UF_APPEND),
    ("uappend", flags::UF_APPEND),
    ("opaque", flags::UF_OPAQUE),
    ("uunlnk", flags::UF_NOUNLINK),
    ("uunlink", flags::UF_NOUNLINK),
    ("arch", flags::SF_ARCHIVED),
    ("archived", flags::SF_ARCHIVED),
    ("schg", flags::SF_IMMUTABLE),
    ("schange", flags::SF_IMMUTABLE),
    ("simmutable", flags::SF_IMMUTABLE),
    ("sappnd", flags::SF_APPEND),
    ("sappend", flags::SF_APPEND),
    ("sunlnk", flags::SF_NOUNLINK),
    ("sunlink", flags::SF_NOUNLINK),
    ("uarch", 0),
];

/// Reads a manifest whose files are below `root`. Returns the tree, and the paths that have no
/// file.
///
/// # Errors
/// A line is not of this language; it is named.
pub fn read(manifest: &Path, root: &Path, time: Timestamp) -> Result<(ListedFs, Vec<String>)> {
    let name = || manifest.display().to_string();
    let text = fs::read(manifest).with_context(name)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut reader = Reader {
        root,
        fs: ListedFs::new(time),
        time,
        set: Words::new(),
        dir: Vec::new(),
        missing: Vec::new(),
    };
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let mut whole = line.trim().to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            whole.push(' ');
            whole.push_str(lines.next().map_or("", |(_, next)| next.trim()));
        }
        let taken = reader.take(&whole);
        taken.with_context(|| format!("{}, line {}", manifest.display(), i + 1))?;
    }
    Ok((reader.fs, reader.missing))
}

struct Reader<'r> {
    root: &'r Path,
    fs: ListedFs,
    time: Timestamp,
    set: Words,
    /// The directory of names without a slash.
    dir: Vec<u8>,
    missing: Vec<String>,
}

impl Reader<'_> {
    fn take(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
        let keyword = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key.to_owned(), value.to_owned())
        };
        match first {
            "/set" => self.set.extend(words.map(keyword)),
            "/unset" => words.for_each(|word| match word {
                "all" => self.set.clear(),
                word => _ = self.set.remove(word),
            }),
            ".." => {
                let up = self.dir.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                self.dir.truncate(up);
            }
            path => {
                let mut own = self.set.clone();
                own.extend(words.map(keyword));
                self.entry(&unescaped(path)?, path.contains('/'), &own)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &[u8], is_full: bool, words: &Words) -> Result<()> {
        let path = match is_full || name == b"." {
            true => name.to_vec(),
            false => [&self.dir[..], b"/", name].concat(),
        };
        let host = match words.get("contents") {
            Some(contents) => self.root.join(std::ffi::OsStr::from_bytes(&unescaped(contents)?)),
            None => {
                let below = path.strip_prefix(b"/").unwrap_or(&path);
                self.root.join(std::ffi::OsStr::from_bytes(below))
            }
        };
        let there = fs::symlink_metadata(&host).ok();
        let file_type = match words.get("type").map(String::as_str) {
            Some("file") => FileType::Regular,
            Some("dir") => FileType::Directory,
            Some("link") => FileType::Symlink,
            Some("char") => FileType::CharDevice,
            Some("block") => FileType::BlockDevice,
            Some("fifo") => FileType::Fifo,
            Some("socket") => FileType::Socket,
            Some(other) => bail!("type={other}: there is no such type"),
            None => there
                .as_ref()
                .and_then(|m| FileType::from_mode(m.mode() as u16))
                .ok_or_else(|| anyhow!("no type, and no file {}", host.display()))?,
        };
        if file_type == FileType::Directory && !is_full && name != b"." {
            self.dir.clone_from(&path);
        }
        let node = self.node(file_type, there.as_ref(), words)?;
        let node = match file_type {
            FileType::Regular => match &there {
                Some(m) if m.is_file() => node.with(Contents::Host(host), m.len()),
                _ if words.contains_key("optional") => return Ok(()),
                _ => {
                    self.missing.push(host.display().to_string());
                    return Ok(());
                }
            },
            FileType::Symlink => {
                let target = match words.get("link") {
                    Some(target) => unescaped(target)?,
                    None => {
                        let read = fs::read_link(&host);
                        let read = read.with_context(|| host.display().to_string())?;
                        read.as_os_str().as_bytes().to_vec()
                    }
                };
                let len = target.len() as u64;
                node.with(Contents::Text(target), len)
            }
            _ => node,
        };
        Ok(self.fs.add(&path, node)?)
    }

    /// The node with the attributes of an entry; those that are not given are the host's file's.
    fn node(
        &self,
        file_type: FileType,
        there: Option<&fs::Metadata>,
        words: &Words,
    ) -> Result<Node> {
        let usual = if file_type == FileType::Directory { 0o755 } else { 0o644 };
        let mode = match words.get("mode") {
            Some(mode) => mode_of(mode)?,
            None => there.map_or(usual, |m| (m.mode() & 0o7777) as u16),
        };
        let time = match words.get("time") {
            Some(time) => time_of(time)?,
            None => there.map_or(self.time, |m| Timestamp {
                seconds: m.mtime(),
                nanos: m.mtime_nsec() as u32,
            }),
        };
        let mut node = Node::new(file_type, mode, time);
        node.attr.uid = owner(words, "uid", "uname", "/etc/passwd")?;
        node.attr.gid = owner(words, "gid", "gname", "/etc/group")?;
        if let Some(names) = words.get("flags") {
            node.attr.flags = flags_of(names)?;
        }
        if matches!(file_type, FileType::CharDevice | FileType::BlockDevice) {
            let device = words.get("device").ok_or_else(|| anyhow!("a device without device="))?;
            node.attr.rdev = device_of(device)?;
        }
        Ok(node)
    }
}

fn mode_of(text: &str) -> Result<u16> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| anyhow!("mode={text}: not an octal number up to 7777"))
}

fn time_of(text: &str) -> Result<Timestamp> {
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let (seconds, nanos) = (seconds.parse().ok(), nanos.parse().ok());
    match (seconds, nanos.filter(|nanos| *nanos < 1_000_000_000)) {
        (Some(seconds), Some(nanos)) => Ok(Timestamp { seconds, nanos }),
        _ => bail!("time={text}: not seconds since 1970"),
    }
}

/// The number of an owner: given as a number, or by a name of BSD's or of this host's. Without
/// either it is root.
fn owner(words: &Words, number: &str, name: &str, table: &str) -> Result<u32> {
    if let Some(text) = words.get(number) {
        return text.parse().map_err(|_| anyhow!("{number}={text}: not a number"));
    }
    let Some(wanted) = words.get(name) else { return Ok(0) };
    if matches!(wanted.as_str(), "root" | "wheel") {
        return Ok(0);
    }
    let text = fs::read_to_string(table).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(wanted)).then(|| fields.nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| anyhow!("{name}={wanted}: not in {table}; {number}= gives the number"))
}

fn flags_of(text: &str) -> Result<u32> {
    let mut all = 0;
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let found = FLAGS.iter().find(|(known, _)| *known == name);
        all |= found.ok_or_else(|| anyhow!("flags={name}: there is no such flag"))?.1;
    }
    Ok(all)
}

/// A device's number: one number, or the format's name, major and minor.
fn device_of(text: &str) -> Result<u64> {
    let numbers: Vec<Option<u32>> = text
        .split(',')
        .skip(usize::from(text.contains(',') && !text.starts_with(|c: char| c.is_ascii_digit())))
        .map(|word| match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        })
        .collect();
    match numbers[..] {
        [Some(number)] => Ok(number.into()),
        [Some(major), Some(minor)] => Ok(rustix::fs::makedev(major, minor)),
        _ => bail!("device={text}: not a number, nor major and minor"),
    }
}

/// A name without the escapes of vis(3): `\040`, `\s`, `\\`.
fn unescaped(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let plain = match bytes.next() {
            Some(digit @ b'0'..=b'7') => {
                let more: Vec<u8> = bytes.by_ref().take(2).collect();
                let octal = |sum: Option<u32>, digit: &u8| match digit {
                    b'0'..=b'7' => Some(sum? * 8 + u32::from(digit - b'0')),
                    _ => None,
                };
                let value = more.iter().fold(Some(u32::from(digit - b'0')), octal);
                value.filter(|_| more.len() == 2).and_then(|value| u8::try_from(value).ok())
            }
            Some(b's') => Some(b' '),
            Some(b't') => Some(b'\t'),
            Some(b'n') => Some(b'\n'),
            Some(other @ (b'\\' | b'#' | b'"')) => Some(other),
            _ => None,
        };
        out.push(plain.ok_or_else(|| anyhow!("{text}: an escape that is not known"))?);
    }
    Ok(out)
}

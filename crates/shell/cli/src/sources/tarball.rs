//! Archives of tar, as a tree.
//!
//! The archive is spooled to a file without a name, so that contents are read in the order of the
//! tree, and memory holds only names.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ordo_vfs::{FileType, Timestamp};

use super::listed::{Contents, ListedFs, Node};
use crate::packed;

/// The prefix of extended attributes in an archive.
const XATTR: &str = "SCHILY.xattr.";

/// Reads an archive: a file, or the standard input for `-`. It may be compressed.
///
/// # Errors
/// The archive cannot be read, or is damaged.
pub fn read(from: &Path, time: Timestamp) -> Result<ListedFs> {
    let name = from.display().to_string();
    let mut spool = packed::spool_file()?;
    match from.as_os_str() == "-" {
        true => _ = io::copy(&mut io::stdin().lock(), &mut spool)?,
        false => _ = io::copy(&mut File::open(from).with_context(|| name.clone())?, &mut spool)?,
    }
    let spool = packed::unpacked(spool, &name).with_context(|| name.clone())?;
    list(spool, time).with_context(|| format!("{name}: not a sound archive of tar"))
}

fn list(mut spool: File, time: Timestamp) -> Result<ListedFs> {
    spool.seek(SeekFrom::Start(0))?;
    let mut end = spool.metadata()?.len();
    let contents = Rc::new(spool.try_clone()?);
    let mut fs = ListedFs::new(time);
    let mut archive = tar::Archive::new(io::BufReader::new(spool));
    // Contents that are not in one piece in the archive are put behind it.
    let mut behind = File::options().read(true).write(true).open(packed::name_of(&contents))?;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let mut path = entry.path_bytes().into_owned();
        let kind = entry.header().entry_type();
        let file_type = match kind {
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                FileType::Regular
            }
            tar::EntryType::Directory => FileType::Directory,
            tar::EntryType::Symlink => FileType::Symlink,
            tar::EntryType::Char => FileType::CharDevice,
            tar::EntryType::Block => FileType::BlockDevice,
            tar::EntryType::Fifo => FileType::Fifo,
            tar::EntryType::Link => {
                let target = entry.link_name_bytes().context("a hard link without a target")?;
                fs.link(&path, &target)?;
                continue;
            }
            _ => continue,
        };
        let (mut node, sparse) = attributes(&mut entry, file_type)?;
        if let Some(SparseFile { name, len }) = sparse {
            write_parts(&mut entry, &behind, end, len)?;
            node = node.with(Contents::Part(contents.clone(), end), len);
            (path, end) = (name, end.saturating_add(len));
        } else if kind == tar::EntryType::GNUSparse {
            behind.seek(SeekFrom::Start(end))?;
            let len = io::copy(&mut entry, &mut behind)?;
            node = node.with(Contents::Part(contents.clone(), end), len);
            end += len;
        } else if file_type == FileType::Regular {
            let at = entry.raw_file_position();
            node = node.with(Contents::Part(contents.clone(), at), entry.size());
        } else if file_type == FileType::Symlink {
            let target = entry.link_name_bytes().context("a link without a target")?.into_owned();
            let len = target.len() as u64;
            node = node.with(Contents::Text(target), len);
        }
        fs.add(&path, node)?;
    }
    behind.flush()?;
    Ok(fs)
}

/// A file with holes in the form of POSIX archives: its contents begin with the list of its parts.
struct SparseFile {
    name: Vec<u8>,
    len: u64,
}

/// Puts the parts of a file with holes into the `len` bytes of a file at `at`. The list is of lines
/// with a number each: how many parts, then offset and length of each. Contents begin at the next
/// multiple of 512 bytes.
fn write_parts(from: &mut impl Read, to: &File, at: u64, len: u64) -> Result<()> {
    let mut consumed = 0_u64;
    let mut number = |from: &mut dyn Read| -> Result<u64> {
        let mut value = 0_u64;
        loop {
            let mut byte = [0];
            from.read_exact(&mut byte)?;
            consumed += 1;
            match byte[0] {
                b'\n' => return Ok(value),
                digit @ b'0'..=b'9' => {
                    let next =
                        value.checked_mul(10).and_then(|v| v.checked_add((digit - b'0').into()));
                    value = next.context("a number in a list of holes is too large")?;
                }
                _ => bail!("a list of holes is damaged"),
            }
        }
    };
    let mut parts = Vec::new();
    for _ in 0..number(from)? {
        parts.push((number(from)?, number(from)?));
    }
    io::copy(&mut from.take(consumed.next_multiple_of(512) - consumed), &mut io::sink())?;
    to.set_len(at.checked_add(len).context("a file is too long")?)?;
    let mut to = to;
    for (first, part) in parts {
        if first.checked_add(part).is_none_or(|end| end > len) {
            bail!("a part of a file with holes is behind its end");
        }
        to.seek(SeekFrom::Start(at + first))?;
        io::copy(&mut from.take(part), &mut to)?;
    }
    Ok(())
}

/// The node of an entry, and the file that it stands for if that has holes.
fn attributes<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    file_type: FileType,
) -> Result<(Node, Option<SparseFile>)> {
    let (mut version, mut name, mut len) = (None, None, None);
    let header = entry.header().clone();
    let mut time = Timestamp { seconds: header.mtime()?.cast_signed(), nanos: 0 };
    let mut xattrs = Vec::new();
    if let Some(all) = entry.pax_extensions()? {
        for extension in all {
            let extension = extension?;
            let Ok(key) = extension.key() else { continue };
            if let Some(name) = key.strip_prefix(XATTR) {
                xattrs.push((name.as_bytes().to_vec(), extension.value_bytes().to_vec()));
            } else if key == "mtime"
                && let Some(exact) = extension.value().ok().and_then(exact_time)
            {
                time = exact;
            } else if let Some(key) = key.strip_prefix("GNU.sparse.") {
                let value = extension.value_bytes();
                let text = String::from_utf8_lossy(value).into_owned();
                match key {
                    "major" => version = Some(text),
                    "minor" => version = version.map(|major| format!("{major}.{text}")),
                    "name" => name = Some(value.to_vec()),
                    "realsize" => len = Some(text.parse()?),
                    _ => version = version.or(Some(format!("0, {key}"))),
                }
            }
        }
    }
    let mut node = Node::new(file_type, (header.mode()? & 0o7777) as u16, time);
    node.attr.uid = u32::try_from(header.uid()?)?;
    node.attr.gid = u32::try_from(header.gid()?)?;
    if matches!(file_type, FileType::CharDevice | FileType::BlockDevice)
        && let (Some(major), Some(minor)) = (header.device_major()?, header.device_minor()?)
    {
        node.attr.rdev = rustix::fs::makedev(major, minor);
    }
    node.xattrs = xattrs;
    let sparse = match (version.as_deref(), name, len) {
        (None, ..) => None,
        (Some("1.0"), Some(name), Some(len)) => Some(SparseFile { name, len }),
        (Some(version), ..) => {
            bail!("a file with holes in a form that is not read ({version}); tar --format=gnu is")
        }
    };
    Ok((node, sparse))
}

/// Seconds since 1970 with a fraction, as an extended header has them.
fn exact_time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let (seconds, nanos): (i64, u32) = (seconds.parse().ok()?, digits.parse().ok()?);
    // A fraction goes towards later times, before 1970 too.
    match text.starts_with('-') && nanos > 0 {
        true => Some(Timestamp { seconds: seconds - 1, nanos: 1_000_000_000 - nanos }),
        false => Some(Timestamp { seconds, nanos }),
    }
}

//! `ordo ls` and `ordo cat`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ordo_report::json;
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{AnyFs, Attr, Cookie, FileSystem, FileType, FsError, Ino, name, path};

use super::deleted;
use crate::args::{Cat, Ls, RescueChoice};
use crate::image::real_time;
use crate::reading::{Reader, advised};
use crate::text::{date, mode, put, type_name};

/// The number of bytes read at a time.
const CHUNK: usize = 256 * 1024;

/// One line of a listing.
#[derive(serde::Serialize)]
struct Line {
    path: String,
    /// The bytes of the path in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    ino: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    flags: u32,
    mtime: i64,
    mtime_nanos: u32,
    rdev: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    /// The raw bytes of the name.
    #[serde(skip)]
    raw: Vec<u8>,
    #[serde(skip)]
    raw_target: Option<Vec<u8>>,
    #[serde(skip)]
    attr: Attr,
}

impl Line {
    async fn new(reader: &Reader, raw: Vec<u8>, attr: Attr) -> Result<Line> {
        let raw_target = match attr.file_type {
            FileType::Symlink => match reader.fs().readlink(attr.ino).await {
                Ok(target) => Some(target),
                Err(error) if reader.goes_on() => {
                    reader.lose(&path::at(&raw, error));
                    None
                }
                Err(error) => return Err(path::at(&raw, error).into()),
            },
            _ => None,
        };
        Ok(Line {
            path: String::from_utf8_lossy(&raw).into_owned(),
            path_hex: hex(&raw),
            ino: attr.ino.0,
            kind: type_name(attr.file_type),
            mode: format!("{:04o}", attr.permissions),
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            flags: attr.flags,
            mtime: attr.mtime.seconds,
            mtime_nanos: attr.mtime.nanos,
            rdev: attr.rdev,
            target: raw_target.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()),
            target_hex: raw_target.as_deref().and_then(hex),
            raw,
            raw_target,
            attr,
        })
    }

    fn write(&self, out: &mut impl Write, long: bool) -> std::io::Result<()> {
        if long {
            let size = match self.attr.file_type {
                FileType::CharDevice | FileType::BlockDevice => format!("{:#x}", self.rdev),
                _ => self.size.to_string(),
            };
            write!(
                out,
                "{} {:>3} {:>5} {:>5} {:>12} {} ",
                mode(&self.attr),
                self.links,
                self.uid,
                self.gid,
                size,
                date(self.attr.mtime)
            )?;
        }
        write!(out, "{}", ordo_shown::name(&self.raw))?;
        match (&self.raw_target, long) {
            (Some(target), true) => writeln!(out, " -> {}", ordo_shown::name(target)),
            _ => writeln!(out),
        }
    }
}

/// The bytes of a name that is not UTF-8, in hexadecimal.
fn hex(name: &[u8]) -> Option<String> {
    let is_text = std::str::from_utf8(name).is_ok();
    (!is_text).then(|| name.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub fn ls(args: &Ls) -> Result<ExitCode> {
    real_time(async |rt| {
        let named = args.reading.of(&args.image);
        let past_damage = args.reading.rescue.rescue || args.deleted || args.inode.is_some();
        let choice = RescueChoice { rescue: past_damage, ..args.reading.rescue.clone() };
        let reader = Reader::open(&rt, named, &choice).await?;
        let listed = list(args, &reader).await;
        listed.map_err(|e| if reader.goes_on() { e } else { advised(e) })?;
        Ok(reader.end())
    })
}

async fn list(args: &Ls, reader: &Reader) -> Result<()> {
    let fs = reader.fs();
    let (name, attr) = match args.inode {
        Some(ino) => (format!("inode {ino}").into(), reader.rescued()?.any_inode(Ino(ino)).await?),
        None => (args.path.clone(), path::lookup(fs, args.path.as_bytes()).await?),
    };
    if args.deleted {
        if attr.file_type != FileType::Directory {
            bail!("{}: not a directory", args.path.display());
        }
        return deleted::list(reader.rescued()?, &attr, args.recursive, args.json).await;
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut lines = Vec::new();
    let mut show = |line: Line| -> Result<()> {
        match args.json {
            true => lines.push(line),
            false => line.write(&mut out, args.long)?,
        }
        Ok(())
    };
    if attr.file_type != FileType::Directory {
        show(Line::new(reader, name.as_bytes().to_vec(), attr).await?)?;
    } else if args.recursive {
        let mut walk = Walk::new(fs, attr.ino, WalkLimits::default()).await?;
        loop {
            match walk.next().await {
                Ok(Some(Visit::Enter(entry))) => {
                    show(Line::new(reader, entry.path, entry.attr).await?)?;
                }
                Ok(Some(Visit::Leave(_))) => {}
                Ok(None) => break,
                Err(error) if reader.goes_on() => reader.lose(&error),
                Err(error) => return Err(error.into()),
            }
        }
    } else {
        for name in names(fs, &attr).await? {
            match fs.lookup(attr.ino, &name).await {
                Ok(child) => show(Line::new(reader, name, child).await?)?,
                Err(error) if reader.goes_on() => reader.lose(&path::at(&name, error)),
                Err(error) => return Err(path::at(&name, error).into()),
            }
        }
    }
    out.flush()?;
    drop(out);
    if args.json { put(None, &json(&lines)?) } else { Ok(()) }
}

/// The sorted names in a directory, without `.` and `..`.
async fn names(fs: &AnyFs, dir: &Attr) -> Result<Vec<Vec<u8>>, FsError> {
    let mut names = Vec::new();
    fs.readdir(dir.ino, Cookie::START, &mut |e| {
        if !name::is_dot(e.name) {
            names.push(e.name.to_vec());
        }
        true
    })
    .await?;
    names.sort_unstable();
    Ok(names)
}

pub fn cat(args: &Cat) -> Result<ExitCode> {
    real_time(async |rt| {
        let named = args.reading.of(&args.image);
        let past_damage = args.reading.rescue.rescue || args.inode.is_some();
        let choice = RescueChoice { rescue: past_damage, ..args.reading.rescue.clone() };
        let reader = Reader::open(&rt, named, &choice).await?;
        let printed = print_all(args, &reader).await;
        printed.map_err(|e| if reader.goes_on() { e } else { advised(e) })?;
        Ok(reader.end())
    })
}

async fn print_all(args: &Cat, reader: &Reader) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut buf = vec![0; CHUNK];
    if let Some(ino) = args.inode {
        let (fs, ino) = (reader.rescued()?, Ino(ino));
        let attr = fs.any_inode(ino).await?;
        refuse_other(&format!("inode {}", ino.0), &attr)?;
        let mut offset = 0;
        loop {
            match fs.read_any(ino, offset, &mut buf).await? {
                0 => return Ok(out.flush()?),
                n => out.write_all(&buf[..n])?,
            }
            offset += CHUNK as u64;
        }
    }
    let fs = reader.fs();
    for path in &args.paths {
        let shown = path::display(path.as_bytes()).to_string();
        let attr = path::lookup(fs, path.as_bytes()).await?;
        refuse_other(&shown, &attr)?;
        let mut offset = 0;
        loop {
            let n = match fs.read(attr.ino, offset, &mut buf).await {
                Err(error) if reader.goes_on() => {
                    reader.lose(&path::at(path.as_bytes(), error));
                    let n = (attr.size - offset).min(CHUNK as u64) as usize;
                    buf[..n].fill(0);
                    n
                }
                n => n.with_context(|| format!("{shown}, from byte {offset}"))?,
            };
            if n == 0 {
                break;
            }
            out.write_all(&buf[..n])?;
            offset += n as u64;
        }
    }
    Ok(out.flush()?)
}

/// Refuses what is not a regular file.
fn refuse_other(name: &str, attr: &Attr) -> Result<()> {
    match attr.file_type {
        FileType::Regular => Ok(()),
        other => bail!("{name}: is not a file but a {}", type_name(other)),
    }
}

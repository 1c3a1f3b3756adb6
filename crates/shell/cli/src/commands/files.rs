//! `ordo ls` and `ordo cat`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use ordo_report::json;
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{AnyFs, Attr, Cookie, FileSystem, FileType, FsError, name, path};

use crate::args::{Cat, Ls};
use crate::image::{self, real_time};
use crate::pair::NamedImage;
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
    async fn new(fs: &AnyFs, raw: Vec<u8>, attr: Attr) -> Result<Line> {
        let raw_target = match attr.file_type {
            FileType::Symlink => {
                let target = fs.readlink(attr.ino).await;
                let target = target.with_context(|| path::display(&raw).to_string())?;
                Some(target)
            }
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

pub fn ls(args: &Ls) -> Result<()> {
    real_time(async |rt| {
        let named = NamedImage::new(&args.image).with(&args.metadata).at(&args.part);
        let named = named.salvaged(args.salvage);
        let fs = image::open_to_read(&rt, named).await?;
        let attr = path::lookup(&fs, args.path.as_bytes()).await?;
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
            show(Line::new(&fs, args.path.as_bytes().to_vec(), attr).await?)?;
        } else if args.recursive {
            let mut walk = Walk::new(&fs, attr.ino, WalkLimits::default()).await?;
            while let Some(visit) = walk.next().await? {
                if let Visit::Enter(entry) = visit {
                    show(Line::new(&fs, entry.path, entry.attr).await?)?;
                }
            }
        } else {
            for name in names(&fs, &attr).await? {
                let child = fs.lookup(attr.ino, &name).await;
                let child = child.with_context(|| path::display(&name).to_string())?;
                show(Line::new(&fs, name, child).await?)?;
            }
        }
        out.flush()?;
        drop(out);
        if args.json { put(None, &json(&lines)?) } else { Ok(()) }
    })
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

pub fn cat(args: &Cat) -> Result<()> {
    real_time(async |rt| {
        let named = NamedImage::new(&args.image).with(&args.metadata).at(&args.part);
        let named = named.salvaged(args.salvage);
        let fs = image::open_to_read(&rt, named).await?;
        let mut out = std::io::stdout().lock();
        let mut buf = vec![0; CHUNK];
        for path in &args.paths {
            let attr = path::lookup(&fs, path.as_bytes()).await?;
            if attr.file_type != FileType::Regular {
                let path = path::display(path.as_bytes());
                bail!("{path}: is not a file but a {}", type_name(attr.file_type));
            }
            let mut offset = 0;
            loop {
                let n = fs.read(attr.ino, offset, &mut buf).await;
                let n = n.with_context(|| {
                    format!("{}, from byte {offset}", path::display(path.as_bytes()))
                })?;
                if n == 0 {
                    break;
                }
                out.write_all(&buf[..n])?;
                offset += n as u64;
            }
        }
        Ok(out.flush()?)
    })
}

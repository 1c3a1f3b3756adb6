//! `ordo cp`, `ordo export`: copies between file systems.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use ordo_report::{json, number, progress::Progress};
use ordo_runtime::Runtime;
use ordo_vfs::host::HostDir;
use ordo_vfs::tree::{self, Copied, CopyOptions, Totals, WalkLimits};
use ordo_vfs::{Attr, Errno, FileSystem, FileType, Ino, path};

use crate::args::{Cp, Export};
use crate::image::{self, real_time};
use crate::pair::NamedImage;
use crate::reading::{Reader, advised};
use crate::text::put;

/// The most notes of a source that are kept.
const LEFT_OUT_MAX: usize = 1000;

/// One end of a copy.
#[derive(Clone, Debug, PartialEq)]
enum CopyEnd {
    Host(PathBuf),
    Image { image: PathBuf, path: Vec<u8> },
}

impl CopyEnd {
    /// Parses a path: `IMAGE:/path` is in an image; anything else is on the host.
    fn parse(text: &Path) -> CopyEnd {
        let bytes = text.as_os_str().as_bytes();
        match bytes.windows(2).position(|w| w == b":/").filter(|at| *at > 0) {
            Some(at) => CopyEnd::Image {
                image: PathBuf::from(OsStr::from_bytes(&bytes[..at])),
                path: bytes[at + 1..].to_vec(),
            },
            None => CopyEnd::Host(text.to_path_buf()),
        }
    }
}

/// The sum of all copies of one command.
#[derive(Debug, Default, serde::Serialize)]
pub(super) struct Done {
    entries: u64,
    directories: u64,
    hard_links: u64,
    bytes: u64,
    bytes_written: u64,
    skipped: Vec<Skipped>,
    skipped_count: u64,
    lost_attributes: Vec<Lost>,
    lost_attribute_count: u64,
    lost_owners: u64,
    lost_flags: u64,
    /// Whatever could not be read of a damaged file system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOutLine>,
    left_out_count: u64,
}

/// Something that could not be read.
#[derive(Debug, serde::Serialize)]
struct LeftOutLine {
    path: String,
    ino: u64,
    reason: String,
}

/// An extended attribute that the copy lacks.
#[derive(Debug, serde::Serialize)]
struct Lost {
    path: String,
    name: String,
    why: String,
}

#[derive(Debug, serde::Serialize)]
struct Skipped {
    path: String,
    why: String,
}

impl Done {
    fn add(&mut self, copied: Copied) {
        self.entries += copied.entries;
        self.directories += copied.directories;
        self.hard_links += copied.hard_links;
        self.bytes += copied.bytes;
        self.bytes_written += copied.bytes_written;
        self.skipped_count += copied.skipped_count;
        self.skipped.extend(copied.skipped.into_iter().map(|(path, why)| Skipped {
            path: path::display(&path).to_string(),
            why: why.errno.text().1.to_string(),
        }));
        self.lost_attribute_count += copied.lost_attribute_count;
        self.lost_owners += copied.lost_owners;
        self.lost_flags += copied.lost_flags;
        self.lost_attributes.extend(copied.lost_attributes.into_iter().map(|(lost, why)| Lost {
            path: path::display(&lost.path).to_string(),
            name: path::display(&lost.name).to_string(),
            why: match why.errno {
                Errno::NoSpace => "too large for the attributes of one file there".to_string(),
                errno => errno.text().1.to_string(),
            },
        }));
    }

    /// Adds what a source left out that is read past damage. Entries that were left out for
    /// that are in its list, with their inodes.
    fn add_left_out(&mut self, reader: &Reader) {
        let (all, more) = reader.left_out();
        self.left_out_count += all.len() as u64 + more;
        self.left_out.extend(all.into_iter().take(LEFT_OUT_MAX).map(|left| LeftOutLine {
            path: path::display(&left.path).to_string(),
            ino: left.ino,
            reason: left.reason.to_string(),
        }));
    }

    /// Tells what the copies lack, on the standard error.
    fn tell_losses(&self) {
        for s in &self.skipped {
            eprintln!("ordo: left out: {}: {}", s.path, s.why);
        }
        for left in &self.left_out {
            let LeftOutLine { path, ino, reason } = left;
            match (*ino, path.is_empty()) {
                (0, _) => eprintln!("ordo: {reason}"),
                (ino, true) => eprintln!("ordo: inode {ino}: {reason}"),
                (ino, false) => eprintln!("ordo: {path}, inode {ino}: {reason}"),
            }
        }
        let more = self.left_out_count - self.left_out.len() as u64;
        if more > 0 {
            eprintln!("ordo: and {more} more that could not be read");
        }
        let more = self.skipped_count - self.skipped.len() as u64;
        if more > 0 {
            eprintln!("ordo: and {more} more left out");
        }
        for lost in &self.lost_attributes {
            let path = if lost.path.is_empty() { "/" } else { &*lost.path };
            eprintln!("ordo: left out: extended attribute {} of {path}: {}", lost.name, lost.why);
        }
        let more = self.lost_attribute_count - self.lost_attributes.len() as u64;
        if more > 0 {
            eprintln!("ordo: and {more} more attributes left out");
        }
        for (what, count, why) in [
            ("owner or group", self.lost_owners, "only root may set those of others"),
            ("flags", self.lost_flags, "this file system does not take them"),
        ] {
            if count > 0 {
                let entries = if count == 1 { "entry" } else { "entries" };
                let count = number::count(count);
                eprintln!("ordo: {what} of {count} {entries} not kept: {why}");
            }
        }
    }

    /// Prints a report. The exit status is 1 if entries or extended attributes were left out;
    /// owners that only root may set, and flags that the other system does not have, are told only.
    pub(super) fn report(&self, as_json: bool) -> Result<ExitCode> {
        if as_json {
            put(None, &json(self)?)?;
        } else {
            let mut text = format!(
                "{} {} copied, {}",
                number::count(self.entries),
                if self.entries == 1 { "entry" } else { "entries" },
                number::bytes(self.bytes)
            );
            if self.bytes_written < self.bytes {
                let holes = number::bytes(self.bytes - self.bytes_written);
                text.push_str(&format!(" ({holes} of it holes)"));
            }
            put(None, &(text + "\n"))?;
            self.tell_losses();
        }
        let lost = self.skipped_count + self.lost_attribute_count + self.left_out_count;
        Ok(ExitCode::from(u8::from(lost > 0)))
    }
}

pub fn cp(args: &Cp) -> Result<ExitCode> {
    let places: Vec<CopyEnd> = args.paths.iter().map(|p| CopyEnd::parse(p)).collect();
    let (to, from) = places.split_last().expect("clap asks for two");
    if places.iter().all(|p| matches!(p, CopyEnd::Host(_))) {
        bail!("neither path is in an image; write a path in an image as IMAGE:/path");
    }
    let done = real_time(async |rt| match to {
        CopyEnd::Image { image, path } => {
            let mounted =
                image::open(&rt, NamedImage::new(image).with(&args.metadata).at(&args.part))
                    .await?;
            let done = copy_from_all(&rt, args, from, to, (mounted.fs(), path)).await;
            image::close(image, mounted).await?;
            done
        }
        CopyEnd::Host(path) => {
            let (dir, name) = host_target(path)?;
            let fs = HostDir::open(&dir)?;
            copy_from_all(&rt, args, from, to, (&fs, name.as_deref().unwrap_or(b"/"))).await
        }
    })?;
    done.report(args.json)
}

/// Splits a host path into its directory and the name in it. There is no name if the path is itself
/// a directory.
fn host_target(path: &Path) -> Result<(PathBuf, Option<Vec<u8>>)> {
    if path.is_dir() {
        return Ok((path.to_path_buf(), None));
    }
    let name = path.file_name().ok_or_else(|| anyhow!("{}: no such directory", path.display()))?;
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    };
    Ok((parent, Some(name.as_bytes().to_vec())))
}

async fn copy_from_all<G: FileSystem>(
    runtime: &Runtime,
    args: &Cp,
    from: &[CopyEnd],
    to: &CopyEnd,
    (fs, to_path): (&G, &[u8]),
) -> Result<Done> {
    let mut done = Done::default();
    let target = path::lookup(fs, to_path).await;
    let into = target.ok().filter(|a| a.file_type == FileType::Directory);
    if into.is_none() && from.len() > 1 {
        bail!("several files can only be copied to a directory; create it first");
    }
    for place in from {
        let copied = match place {
            CopyEnd::Host(source) => {
                let full = source.canonicalize();
                let full = full.with_context(|| source.display().to_string())?;
                let parent = full.parent().unwrap_or(Path::new("/"));
                let host = HostDir::open(parent)?;
                let attr = match full.file_name() {
                    Some(name) => host.lookup(host.root(), name.as_bytes()).await?,
                    None => host.getattr(host.root()).await?,
                };
                copy_one(args, (&host, attr), (fs, into, to_path), &full).await?
            }
            CopyEnd::Image { image, path } => {
                if matches!(to, CopyEnd::Image { image: other, .. } if other == image) {
                    bail!(
                        "both paths are in {}: copy out of it first, then into it",
                        image.display()
                    );
                }
                // If both are images, the option is about the destination.
                let named = match to {
                    CopyEnd::Image { .. } => NamedImage::new(image),
                    CopyEnd::Host(_) => NamedImage::new(image).with(&args.metadata).at(&args.part),
                };
                let reader = Reader::open(runtime, named, &args.rescue).await?;
                let source = reader.fs();
                let attr = path::lookup(source, path).await?;
                let full = PathBuf::from(OsStr::from_bytes(path));
                let copied = copy_one(args, (source, attr), (fs, into, to_path), &full).await;
                done.add_left_out(&reader);
                copied.map_err(|e| if reader.goes_on() { e } else { advised(e) })?
            }
        };
        done.add(copied);
    }
    Ok(done)
}

/// Copies one source into the directory `into`; if there is none, to the path itself.
async fn copy_one<F: FileSystem, G: FileSystem>(
    args: &Cp,
    (from, what): (&F, Attr),
    (to, into, to_path): (&G, Option<Attr>, &[u8]),
    source: &Path,
) -> Result<Copied> {
    let is_directory = what.file_type == FileType::Directory;
    if is_directory && !args.recursive {
        bail!("{}: is a directory; -r copies it with everything in it", source.display());
    }
    let bar = Progress::new(args.quiet);
    let total = match args.rescue.rescue {
        true => Totals::default(),
        false => count(from, &what).await?,
    };
    bar.begin("cp", &source.display().to_string(), total.entries);
    let each = &mut |c: &Copied| bar.reach(c.entries, total.entries.max(c.entries));
    let options = CopyOptions { past_damage: args.rescue.rescue, ..CopyOptions::default() };
    let context = || source.display().to_string();
    match (into, source.file_name()) {
        (Some(dir), Some(name)) => {
            let target = (to, dir.ino, name.as_bytes());
            tree::copy_as((from, &what), target, &options, each).await.with_context(context)
        }
        (Some(dir), None) => {
            tree::copy(from, what.ino, to, dir.ino, &options, each).await.with_context(context)
        }
        (None, _) => {
            let (dir, name) = path::parent(to, to_path).await?;
            let target = (to, dir, name);
            tree::copy_as((from, &what), target, &options, each).await.with_context(context)
        }
    }
}

async fn count<F: FileSystem>(fs: &F, what: &Attr) -> Result<Totals> {
    Ok(match what.file_type {
        FileType::Directory => tree::measure(fs, what.ino, WalkLimits::default()).await?,
        _ => Totals { entries: 1, bytes: what.size, ..Totals::default() },
    })
}

pub fn export(args: &Export) -> Result<ExitCode> {
    let done = real_time(async |rt| {
        let named = args.reading.of(&args.image);
        let reader = Reader::open(&rt, named, &args.reading.rescue).await?;
        let fs = reader.fs();
        let from = path::lookup(fs, args.from.as_bytes()).await?;
        if from.file_type != FileType::Directory {
            bail!("{}: not a directory; ordo cp copies files", args.from);
        }
        let bar = Progress::new(args.quiet);
        bar.begin("export", "counting", 1);
        let totals = match reader.goes_on() {
            true => Totals::default(),
            false => tree::measure(fs, from.ino, WalkLimits::default())
                .await
                .map_err(|e| advised(e.into()))?,
        };
        std::fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
        let host = HostDir::open(&args.dir)?;
        bar.begin("export", &args.image.display().to_string(), totals.entries);
        let options =
            CopyOptions { past_damage: args.reading.rescue.rescue, ..CopyOptions::default() };
        let to = (&host, host.root());
        let copied = copy_tree((fs, from.ino), to, &options, (&bar, &totals)).await;
        bar.finish();
        let mut copied = copied.map_err(|e| if reader.goes_on() { e } else { advised(e) });
        copied.iter_mut().for_each(|done| done.add_left_out(&reader));
        copied.with_context(|| {
            let (image, dir) = (args.image.display(), args.dir.display());
            format!("exporting {image} to {dir}; what was copied is there")
        })
    })?;
    done.report(args.json)
}

pub(super) async fn copy_tree<F: FileSystem, G: FileSystem>(
    from: (&F, Ino),
    to: (&G, Ino),
    options: &CopyOptions,
    (bar, totals): (&Progress, &Totals),
) -> Result<Done> {
    let mut entries = 0;
    let each = &mut |c: &Copied| {
        entries = c.entries;
        bar.reach(entries, totals.entries.max(entries));
    };
    let copied = tree::copy(from.0, from.1, to.0, to.1, options, each).await;
    let copied = copied.with_context(|| {
        let (copied, all) = (number::count(entries), number::count(totals.entries));
        format!("after {copied} of {all} entries")
    })?;
    let mut done = Done::default();
    done.add(copied);
    Ok(done)
}

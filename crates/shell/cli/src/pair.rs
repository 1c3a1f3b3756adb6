//! File systems on two images or devices, or three: finding those that the user did not name.
//!
//! The user names the device with the contents of files, as for any file system, and its metadata
//! device beside it. If only one of them is named, the others are searched in the same directory,
//! by the identifier that all have. A metadata device in two halves may lack one of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::overlay::Overlay;
use ordo_block::{BlockDevice, Device};
use ordo_runtime::{Duration, Runtime};
use ordo_systems::{FORMATS, Format, Half, format_of, probe};

use crate::args::MetadataPaths;
use crate::overwrite::refuse_doubt;

/// The image or device that a user named, and the metadata device with it.
#[derive(Clone, Copy)]
pub struct NamedImage<'a> {
    /// The image.
    pub image: &'a Path,
    /// The metadata device, if it was named.
    pub metadata: Option<&'a Path>,
    /// The other half of the metadata device, if it was named; `none` if there shall be none.
    pub mirror: Option<&'a Path>,
    /// Whether it is read without a metadata device.
    pub salvage: bool,
}

/// The devices of a file system that were not given as the image, in the order of a format that
/// takes all of them.
#[derive(Debug, Default)]
pub struct Companions {
    /// The devices before the image.
    pub before: Vec<PathBuf>,
    /// The devices behind it.
    pub after: Vec<PathBuf>,
    /// A message about half of the metadata device that is missing.
    pub notice: Option<String>,
}

impl Companions {
    /// The paths of the metadata device, or of its halves, and of the image, where `image` was
    /// given.
    pub fn names(&self, image: &str) -> (Vec<String>, String) {
        let shown = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
        let mut all: Vec<String> = shown(&self.before);
        all.push(image.to_owned());
        all.extend::<Vec<String>>(shown(&self.after));
        let data = all.pop().expect("the image is one of them");
        (all, data)
    }
}

/// A device of the pair that was found beside the image.
struct Neighbour {
    path: PathBuf,
    is_first: bool,
}

impl<'a> NamedImage<'a> {
    /// An image alone.
    pub fn new(image: &'a Path) -> NamedImage<'a> {
        NamedImage { image, metadata: None, mirror: None, salvage: false }
    }

    /// The same, with the paths of its metadata device where the user named them.
    #[must_use]
    pub fn with(self, paths: &'a MetadataPaths) -> NamedImage<'a> {
        let (metadata, mirror) = (paths.meta_device.as_deref(), paths.meta_mirror.as_deref());
        NamedImage { metadata, mirror, ..self }
    }

    /// The same, to be read without its metadata device where that is asked for.
    #[must_use]
    pub fn salvaged(self, salvage: bool) -> NamedImage<'a> {
        NamedImage { salvage, ..self }
    }

    /// The format of what is on `disk`. The metadata device's identity may be lost with it.
    ///
    /// # Errors
    /// There is no file system, or the device failed.
    pub async fn format(&self, disk: &Device) -> Result<&'static dyn Format> {
        match self.salvage {
            true => {
                Ok(*FORMATS.iter().find(|format| format.has_pairs()).expect("DualFS has pairs"))
            }
            false => Ok(format_of(disk).await?),
        }
    }

    /// The image's path, and the metadata device's, for messages.
    pub fn words(&self) -> String {
        match self.metadata {
            None => self.image.display().to_string(),
            Some(metadata) => {
                format!("{}, metadata device {}", self.image.display(), metadata.display())
            }
        }
    }

    /// Finds the other devices of the file system on `disk`, which is the image or a part of it:
    /// none if the file system is on one device.
    ///
    /// # Errors
    /// The format has no metadata device; another device is not found beside the image, or is found
    /// more often than it can be.
    pub async fn companions(&self, runtime: &Runtime, disk: &Device) -> Result<Companions> {
        if self.salvage {
            return Ok(Companions::default());
        }
        match self.metadata {
            Some(path) => self.named(runtime, disk, path).await,
            None => self.searched(runtime, disk).await,
        }
    }

    /// The devices where the user named the metadata device.
    async fn named(&self, runtime: &Runtime, disk: &Device, path: &Path) -> Result<Companions> {
        let image = self.image.display();
        let half = match probe(disk).await? {
            Some(format) if format.has_pairs() => format.half(disk).await?,
            Some(format) => {
                bail!("{image}: holds {}: --meta-device does not go with it", format.noun())
            }
            None => bail!("{image}: has no file system, so it is not the data device of a DualFS"),
        };
        let mut before = vec![path.to_path_buf()];
        match (self.mirror, half) {
            (Some(other), _) if other == Path::new("none") => {}
            (Some(other), _) => before.push(other.to_path_buf()),
            (None, Some(half)) if half.is_mirrored && !half.is_first => {
                let dirs = [neighbourhood(path), neighbourhood(self.image)];
                let known = [path, self.image];
                let found = search(runtime, &known, &dirs, &half.pair).await?;
                let found: Vec<PathBuf> =
                    found.into_iter().filter(|n| n.is_first).map(|n| n.path).collect();
                if found.len() > 1 {
                    bail!("{image}: {}: name one with --meta-mirror", several(&half, &found));
                }
                before.extend(found);
            }
            (None, _) => return Ok(Companions { before, ..Companions::default() }),
        }
        // Half of the metadata device is enough where the other one is gone.
        if before.len() == 2 && before.iter().any(|path| path.exists()) {
            before.retain(|path| path.exists());
        }
        let notice = self.degraded(&before);
        Ok(Companions { before, after: Vec::new(), notice })
    }

    /// The message about a metadata device of which one half is there.
    fn degraded(&self, halves: &[PathBuf]) -> Option<String> {
        let [only] = halves else { return None };
        let (image, only) = (self.image.display(), only.display());
        let found = "is the only half of its metadata device that is here: degraded, used alone";
        Some(format!("{image}: {only} {found}"))
    }

    /// The devices that are found beside the image.
    async fn searched(&self, runtime: &Runtime, disk: &Device) -> Result<Companions> {
        let image = self.image.display();
        let Some(half) = format_of(disk).await?.half(disk).await? else {
            return Ok(Companions::default());
        };
        let dir = neighbourhood(self.image);
        let found = search(runtime, &[self.image], std::slice::from_ref(&dir), &half.pair).await?;
        let of = |is_first: bool| {
            let some = found.iter().filter(move |n| n.is_first == is_first);
            some.map(|n| n.path.clone()).collect::<Vec<PathBuf>>()
        };
        let (metadata, data) = (of(true), of(false));
        let (wanted, most) = match half.is_first {
            true => (&data, 1),
            false => (&metadata, 1 + usize::from(half.is_mirrored)),
        };
        let next = match half.is_first {
            true => format!("name the data device, and this one with --meta-device {image}"),
            false => "name it with --meta-device PATH; or, if it is lost, --salvage reads from the copy of the \
                      metadata that this device may keep"
                .to_owned(),
        };
        let Half { pair, role, other, .. } = &half;
        if wanted.is_empty() {
            bail!(
                "{image}: is the {role} device of the pair {pair}; no {other} device of it is in {}: {next}",
                dir.display()
            );
        }
        if wanted.len() > most {
            let next = match half.is_first {
                true => "name one, and this one with --meta-device",
                false => "name one with --meta-device",
            };
            bail!("{image}: {}: {next}", several(&half, wanted));
        }
        let mut companions = match half.is_first {
            false => Companions { before: metadata, ..Companions::default() },
            true => {
                let halves = if half.is_mirrored { metadata } else { Vec::new() };
                Companions {
                    after: halves.into_iter().chain(data).collect(),
                    ..Companions::default()
                }
            }
        };
        if half.is_mirrored {
            companions.notice = match half.is_first {
                true if companions.after.len() == 1 => self.degraded(&[self.image.to_path_buf()]),
                true => None,
                false => self.degraded(&companions.before),
            };
        }
        Ok(companions)
    }

    /// Opens the image and the other devices, in the order of the format.
    ///
    /// # Errors
    /// One of them cannot be opened, or another device is not found.
    pub async fn open(&self, runtime: &Runtime, access: FileAccess) -> Result<Vec<Rc<FileDisk>>> {
        let image = Rc::new(FileDisk::open(runtime, self.image, access)?);
        self.with_others(runtime, image, access).await
    }

    /// As [`open`](NamedImage::open); waits a moment for a device that is still in use.
    ///
    /// # Errors
    /// As for [`open`](NamedImage::open).
    pub async fn open_when_free(
        &self,
        runtime: &Runtime,
        access: FileAccess,
    ) -> Result<Vec<Rc<FileDisk>>> {
        let image = when_free(runtime, || Ok(FileDisk::open(runtime, self.image, access)?)).await?;
        self.with_others(runtime, Rc::new(image), access).await
    }

    async fn with_others(
        &self,
        runtime: &Runtime,
        image: Rc<FileDisk>,
        access: FileAccess,
    ) -> Result<Vec<Rc<FileDisk>>> {
        let disk = image.clone().erase();
        if access == FileAccess::ReadWrite {
            refuse_doubt(&disk, self.image).await?;
        }
        let found = self.companions(runtime, &disk).await;
        let Companions { before, after, notice } = found.with_context(|| self.words())?;
        if let Some(notice) = notice {
            let _ = writeln!(std::io::stderr(), "ordo: {notice}");
        }
        let open = async |path: &PathBuf| {
            let open = || Ok(FileDisk::open(runtime, path, access)?);
            when_free(runtime, open).await.map(Rc::new)
        };
        let mut disks = Vec::new();
        for path in &before {
            disks.push(open(path).await?);
        }
        disks.push(image);
        for path in &after {
            disks.push(open(path).await?);
        }
        Ok(disks)
    }
}

/// Opens a file that may still be locked for a moment: after a server was killed, the kernel ends
/// its requests some time later. Tries for five seconds.
///
/// # Errors
/// The error of opening it.
pub async fn when_free<T>(runtime: &Runtime, open: impl Fn() -> Result<T>) -> Result<T> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match open() {
            Err(error)
                if matches!(error.downcast_ref::<OpenError>(), Some(OpenError::Locked { .. })) =>
            {
                runtime.sleep(Duration::from_millis(50)).await;
            }
            opened => return opened,
        }
    }
    open()
}

/// The device whose contents determine the format: the last one, which is the image if all were
/// named.
pub fn image(disks: &[Device]) -> &Device {
    disks.last().expect("there is an image")
}

/// The devices as they are, or with changes that stay in memory.
pub fn erased(disks: Vec<Rc<FileDisk>>, in_memory: bool) -> Vec<Device> {
    let erase = |disk: Rc<FileDisk>| match in_memory {
        true => Overlay::new(disk).erase(),
        false => disk.erase(),
    };
    disks.into_iter().map(erase).collect()
}

/// The directory that is searched for the other device of an image.
fn neighbourhood(image: &Path) -> PathBuf {
    match image.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The words for more devices of one kind than can be.
fn several(half: &Half, found: &[PathBuf]) -> String {
    let names: Vec<String> = found.iter().map(|p| p.display().to_string()).collect();
    let Half { pair, role, other, .. } = half;
    format!(
        "is the {role} device of the pair {pair}, of which {} are {other} devices",
        names.join(" and ")
    )
}

/// The images and devices in `dirs` that belong to the pair, in order of their names, without the
/// `known` ones. Files that cannot be opened or read are skipped.
async fn search(
    runtime: &Runtime,
    known: &[&Path],
    dirs: &[PathBuf],
    pair: &str,
) -> Result<Vec<Neighbour>> {
    let mut seen: Vec<PathBuf> =
        known.iter().filter_map(|p| std::fs::canonicalize(p).ok()).collect();
    let mut found = Vec::new();
    for dir in dirs {
        let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            // A symbolic link to a device counts as the device, once.
            let Ok(full) = std::fs::canonicalize(&path) else { continue };
            if seen.contains(&full) {
                continue;
            }
            let Ok(disk) = FileDisk::open(runtime, &path, FileAccess::Watch) else { continue };
            let disk = disk.erase();
            let Ok(Some(format)) = probe(&disk).await else { continue };
            if let Ok(Some(half)) = format.half(&disk).await
                && half.pair == pair
            {
                seen.push(full);
                found.push(Neighbour { path, is_first: half.is_first });
            }
        }
    }
    Ok(found)
}

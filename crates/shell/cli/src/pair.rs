//! File systems on two images or devices: finding the one that the user did not name.
//!
//! The user names the device with the contents of files, as for any file system, and its metadata
//! device beside it. If only one of the two is named, the other is searched in the same directory,
//! by the identifier that both have.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::overlay::Overlay;
use ordo_block::{BlockDevice, Device};
use ordo_runtime::{Duration, Runtime};
use ordo_systems::{FORMATS, Format, Half, probe};

use crate::args::MetadataPath;
use crate::overwrite::refuse_doubt;
use crate::partition::{self, Disk, PartitionChoice};
use crate::{contents, packed};

/// The image or device that a user named, and the metadata device with it.
#[derive(Clone, Copy)]
pub struct NamedImage<'a> {
    /// The image.
    pub image: &'a Path,
    /// The metadata device, if it was named.
    pub metadata: Option<&'a Path>,
    /// The partition of the image, if it was named.
    pub partition: Option<&'a str>,
    /// Whether it is read without a metadata device.
    pub salvage: bool,
    /// Whether it is read past damage, also if its end is missing.
    pub rescue: bool,
}

/// The device of a pair that was not given as the image.
pub struct Companion {
    /// The device's path.
    pub path: PathBuf,
    /// Whether the device comes before the image in a format that takes both.
    pub is_first: bool,
}

impl<'a> NamedImage<'a> {
    /// An image alone.
    pub fn new(image: &'a Path) -> NamedImage<'a> {
        NamedImage { image, metadata: None, partition: None, salvage: false, rescue: false }
    }

    /// The same, with the path of its metadata device where the user named it.
    #[must_use]
    pub fn with(self, path: &'a MetadataPath) -> NamedImage<'a> {
        NamedImage { metadata: path.meta_device.as_deref(), ..self }
    }

    /// The same, with the name of its partition where the user named it.
    #[must_use]
    pub fn at(self, choice: &'a PartitionChoice) -> NamedImage<'a> {
        NamedImage { partition: choice.partition.as_deref(), ..self }
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
            false => contents::format(disk).await,
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

    /// Finds the other device of the file system on `disk`, which is the image or a part of it;
    /// `None` if the file system is on one device.
    ///
    /// # Errors
    /// The format has no metadata device; the other device is not found beside the image, or is
    /// found more than once.
    pub async fn companion(&self, runtime: &Runtime, disk: &Device) -> Result<Option<Companion>> {
        if self.salvage {
            return Ok(None);
        }
        match self.metadata {
            Some(path) => self.named(disk, path).await.map(Some),
            None => self.searched(runtime, disk).await,
        }
    }

    /// The metadata device that the user named.
    async fn named(&self, disk: &Device, path: &Path) -> Result<Companion> {
        let image = self.image.display();
        match probe(disk).await? {
            Some(format) if format.has_pairs() => {
                Ok(Companion { path: path.into(), is_first: true })
            }
            Some(format) => {
                bail!("{image}: holds {}: --meta-device does not go with it", format.noun())
            }
            None => bail!("{image}: has no file system, so it is not the data device of a DualFS"),
        }
    }

    /// The device that is found beside the image.
    async fn searched(&self, runtime: &Runtime, disk: &Device) -> Result<Option<Companion>> {
        let image = self.image.display();
        let Some(format) = probe(disk).await? else { return Ok(None) };
        let Some(half) = format.half(disk).await? else { return Ok(None) };
        let dir = neighbourhood(self.image);
        let mut found = search(runtime, self.image, &dir, &half).await?;
        let Half { pair, role, other, .. } = &half;
        match found.len() {
            1 => Ok(Some(Companion { path: found.remove(0), is_first: !half.is_first })),
            0 => {
                let next = match half.is_first {
                    true => format!("name the data device, and this one with --meta-device {image}"),
                    false => "name it with --meta-device PATH; or, if it is lost, --salvage reads from the copy of the \
                              metadata that this device may keep"
                        .to_owned(),
                };
                bail!(
                    "{image}: is the {role} device of the pair {pair}; no {other} device of it is in {}: {next}",
                    dir.display()
                )
            }
            _ => {
                let names: Vec<String> = found.iter().map(|p| p.display().to_string()).collect();
                let next = match half.is_first {
                    true => "name one, and this one with --meta-device",
                    false => "name one with --meta-device",
                };
                bail!(
                    "{image}: is the {role} device of the pair {pair}, of which {} are {other} devices: {next}",
                    names.join(" and ")
                )
            }
        }
    }

    /// Opens the image and the other device, in the order of the format.
    ///
    /// # Errors
    /// One of the two cannot be opened, or the other device is not found.
    pub async fn open(&self, runtime: &Runtime, access: FileAccess) -> Result<Vec<Disk>> {
        let image = packed::open(runtime, self.image, access)?;
        self.with_other(runtime, image, access).await
    }

    /// As [`open`](NamedImage::open); waits a moment for a device that is still in use.
    ///
    /// # Errors
    /// As for [`open`](NamedImage::open).
    pub async fn open_when_free(&self, runtime: &Runtime, access: FileAccess) -> Result<Vec<Disk>> {
        let image = when_free(runtime, || packed::open(runtime, self.image, access)).await?;
        self.with_other(runtime, image, access).await
    }

    async fn with_other(
        &self,
        runtime: &Runtime,
        image: FileDisk,
        access: FileAccess,
    ) -> Result<Vec<Disk>> {
        let image =
            partition::choose(Rc::new(image), self.image, self.partition, self.rescue).await?;
        let disk = image.clone().erase();
        if access == FileAccess::ReadWrite {
            refuse_doubt(&disk, self.image).await?;
        }
        let found = self.companion(runtime, &disk).await;
        let mut disks = vec![image];
        if let Some(Companion { path, is_first }) = found.with_context(|| self.words())? {
            let open = || Ok(FileDisk::open(runtime, &path, access)?);
            let other = partition::whole(Rc::new(when_free(runtime, open).await?));
            disks.insert(usize::from(!is_first), other);
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

/// The device whose contents determine the format: the last one, which is the image if both were
/// named.
pub fn image(disks: &[Device]) -> &Device {
    disks.last().expect("there is an image")
}

/// The devices as they are, or with changes that stay in memory.
pub fn erased(disks: Vec<Disk>, in_memory: bool) -> Vec<Device> {
    let erase = |disk: Disk| match in_memory {
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

/// The images and devices in `dir` that are the other device of the pair, in order of their names.
/// Files that cannot be opened or read are skipped.
async fn search(runtime: &Runtime, image: &Path, dir: &Path, half: &Half) -> Result<Vec<PathBuf>> {
    let mut seen: Vec<PathBuf> = std::fs::canonicalize(image).into_iter().collect();
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        // A symbolic link to a device counts as the device, once.
        let Ok(full) = std::fs::canonicalize(&path) else { continue };
        if seen.contains(&full) {
            continue;
        }
        let Ok(disk) = FileDisk::open(runtime, &path, FileAccess::Watch) else { continue };
        let disk = disk.erase();
        let Ok(Some(format)) = probe(&disk).await else { continue };
        if let Ok(Some(other)) = format.half(&disk).await
            && other.pair == half.pair
            && other.is_first != half.is_first
        {
            seen.push(full);
            found.push(path);
        }
    }
    Ok(found)
}

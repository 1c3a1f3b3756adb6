//! Asking before a device's contents are lost: every command that makes something on a device goes
//! through here.
//!
//! First all devices of a command are examined, and only then is the first byte changed. Signatures
//! that are recognised are refused by name. Bytes that nobody knows but that are not zero are asked
//! about on a terminal, and refused elsewhere. `--force` puts zeros over all signatures, as
//! wipefs(8) does, so that no program finds the old contents beside the new ones.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ordo_block::{BlockDevice, Device, WriteFlags};
use ordo_format::signature::{Contents, Found, find};
use ordo_report::number;
use ordo_systems::{FORMATS, probe};

use crate::contents::{named, read};

/// The unit in which signatures are overwritten, in bytes.
const SECTOR: u64 = 512;
/// The most rounds of wiping: below a FAT's signature is a boot sector's, and so on.
const ROUNDS: usize = 32;

/// The bytes before the superblock of UFS1 and LFS.
const BOOT_AREA: u64 = 8192;
/// The signatures that may stand before a file system of a BSD.
const BESIDE_BSD: [&str; 9] = [
    "a BSD label",
    "a Sun label",
    "an Apple partition map",
    "an SGI label",
    "a Solaris label",
    "an Ultrix label",
    "an MBR partition table",
    "a boot sector",
    "a log",
];

/// A device that may be overwritten.
pub struct Target {
    disk: Device,
    path: PathBuf,
    signatures: Vec<Found>,
}

/// Sectors as they were before signatures were wiped.
pub struct Wiped {
    disk: Device,
    sectors: Vec<(u64, Vec<u8>)>,
}

/// Examines a device that a command is about to overwrite. Changes nothing.
///
/// # Errors
/// The device holds something and `force` is false; or the device failed.
pub async fn examine(disk: &Device, path: &Path, force: bool) -> Result<Target> {
    let mut contents = read(disk).await.with_context(|| path.display().to_string())?;
    let found = find(&contents);
    if !force {
        refuse(path, &found, contents.first_byte())?;
    }
    let mut signatures = Vec::new();
    let mut left = found;
    for _ in 0..ROUNDS {
        if left.is_empty() {
            break;
        }
        left.iter().for_each(|found| contents.erase(found));
        signatures.append(&mut left);
        left = find(&contents);
    }
    Ok(Target { disk: disk.clone(), path: path.to_path_buf(), signatures })
}

/// Refuses to overwrite contents, or asks about them.
fn refuse(path: &Path, found: &[Found], first_byte: Option<u64>) -> Result<()> {
    let shown = path.display();
    if !found.is_empty() {
        bail!("{shown}: holds {}; --force overwrites it", named(found));
    }
    let Some(at) = first_byte else { return Ok(()) };
    let at = number::count(at);
    let holds = format!("{shown}: holds data of a kind that is not known (byte {at} is not zero)");
    if !std::io::stdin().is_terminal() {
        bail!("{holds}; --force overwrites it");
    }
    let mut errors = std::io::stderr().lock();
    write!(errors, "ordo: {holds}\nOverwrite it? [y/N] ").and_then(|()| errors.flush())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("{shown}: not overwritten"),
    }
}

/// Refuses to write to a file system of Ordo's if another one was made over it: the boot area,
/// which no format of Ordo's writes, then has the signature of the other. Labels and boot code of a
/// BSD may stand there.
///
/// # Errors
/// The device has signatures of both, or it failed.
pub async fn refuse_doubt(disk: &Device, path: &Path) -> Result<()> {
    let Some(format) = probe(disk).await? else { return Ok(()) };
    let len = disk.geometry().bytes.min(BOOT_AREA) as usize;
    let head = disk.read(0, len).await?.to_vec();
    let mut found = find(&Contents::new(disk.geometry().bytes, vec![(0, head)]));
    let is_ours = |noun: &str| FORMATS.iter().any(|format| format.noun() == noun);
    // Two bytes alone may be boot code.
    found.retain(|f| f.len > 2 && f.offset < BOOT_AREA && !is_ours(f.noun));
    found.retain(|f| !BESIDE_BSD.contains(&f.noun));
    if found.is_empty() {
        return Ok(());
    }
    let ours = format.noun();
    let (shown, theirs) = (path.display(), named(&found));
    bail!(
        "{shown}: holds {ours}, but also {theirs}: one was made over the other, and a write might destroy the one in use. It can be \
         read (export, mount -o ro); wipefs -o {} removes the other signature",
        found[0].offset
    )
}

impl Target {
    /// Puts zeros over every signature.
    ///
    /// # Errors
    /// The device failed.
    pub async fn wipe(&self) -> Result<Wiped> {
        let mut wiped = Wiped { disk: self.disk.clone(), sectors: Vec::new() };
        let done = self.wipe_into(&mut wiped).await;
        done.with_context(|| format!("{}: wiping old signatures", self.path.display()))?;
        Ok(wiped)
    }

    async fn wipe_into(&self, wiped: &mut Wiped) -> Result<()> {
        for Found { offset, len, .. } in &self.signatures {
            let start = offset / SECTOR * SECTOR;
            let end = (offset + *len as u64).next_multiple_of(SECTOR);
            let mut bytes = self.disk.read(start, (end - start) as usize).await?;
            wiped.sectors.push((start, bytes.to_vec()));
            let within = (offset - start) as usize;
            bytes[within..within + len].fill(0);
            self.disk.write(start, bytes, WriteFlags::empty()).await?;
        }
        Ok(self.disk.flush().await?)
    }
}

impl Wiped {
    /// Puts the signatures back, after nothing was made in their place.
    pub async fn put_back(self) {
        // The error that made this necessary is the one to tell.
        for (at, bytes) in self.sectors.iter().rev() {
            let bytes = ordo_runtime::IoBuf::from_slice(bytes);
            let _ = self.disk.write(*at, bytes, WriteFlags::empty()).await;
        }
        let _ = self.disk.flush().await;
    }
}

/// Makes something on devices that were examined. If it fails, the old signatures come back.
///
/// # Errors
/// The work's own error, or a device failed.
pub async fn replacing<T>(targets: &[Target], work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
    let mut wiped = Vec::new();
    for target in targets {
        wiped.push(target.wipe().await?);
    }
    let made = work().await;
    if made.is_err() {
        for wiped in wiped {
            wiped.put_back().await;
        }
    }
    made
}

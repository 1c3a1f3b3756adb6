//! Refuses to record a device or an image that something else uses: its requests would pass beside
//! the recorder, and two writers would damage its file system.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ordo_fuse::mounts;
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Loop devices with their files.
pub(super) fn loops() -> Vec<(PathBuf, PathBuf)> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let file = file.trim_end().trim_end_matches(" (deleted)");
        Some((Path::new("/dev").join(entry.file_name()), PathBuf::from(file)))
    };
    all.filter_map(of).collect()
}

/// Whether a name is that of a device, or of one of its partitions.
fn is_of(device: &Path, name: &Path) -> bool {
    let (device, name) = (device.to_string_lossy(), name.to_string_lossy());
    let Some(rest) = name.strip_prefix(&*device) else { return false };
    let rest = rest.strip_prefix('p').unwrap_or(rest);
    rest.chars().all(|c| c.is_ascii_digit())
}

/// The places where a device or one of its partitions is mounted.
fn mounted(device: &Path) -> Vec<PathBuf> {
    let table = mounts::table().unwrap_or_default();
    let mounts = mounts::of(&table).filter(|mount| is_of(device, &mount.source));
    mounts.map(|mount| mount.dir).collect()
}

/// The swap area on a device or in a file, or in a partition of the device.
fn swap(path: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let names = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    names.map(PathBuf::from).find(|name| is_of(path, name))
}

/// The message about a mounted device, and the way to free it.
fn mounts_in_words(dirs: &[PathBuf]) -> (String, String) {
    let names: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    (format!("mounted on {}", names.join(", ")), format!("umount {}", names.join(" ")))
}

fn refuse_device(path: &Path, real: &Path) -> Result<()> {
    let shown = path.display();
    let dirs = mounted(real);
    if !dirs.is_empty() {
        let (is, way) = mounts_in_words(&dirs);
        bail!("{shown}: {is}: its requests would not pass through the recorder; first {way}");
    }
    let name = real.file_name().unwrap_or_default();
    let holders = fs::read_dir(Path::new("/sys/class/block").join(name).join("holders"));
    if let Some(holder) = holders.into_iter().flatten().flatten().next() {
        let holder = holder.file_name();
        bail!(
            "{shown}: /dev/{0} uses it (device mapper, RAID, or another layer); first take that down, or record \
             /dev/{0} itself",
            holder.to_string_lossy()
        );
    }
    Ok(())
}

/// Whether another process has locked a range of a file, as virtual machines do.
fn is_locked(file: &File) -> bool {
    let lock = Flock { length: 0, ..Flock::from(FlockType::WriteLock) };
    fcntl_getlk(file, &lock).is_ok_and(|other| other.is_some())
}

/// Refuses a device or an image that is mounted, that a loop device or a swap area uses, or that
/// another process has locked.
///
/// # Errors
/// The path is in use: what uses it, and what to do.
pub(super) fn refuse(path: &Path) -> Result<()> {
    let shown = path.display();
    let Ok(meta) = fs::metadata(path) else { return Ok(()) };
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(area) = swap(&real) {
        bail!("{shown}: it is used as swap space; first swapoff {}", area.display());
    }
    if meta.file_type().is_block_device() {
        return refuse_device(path, &real);
    }
    for (device, file) in loops() {
        let is_same = fs::metadata(&file)
            .is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()));
        if !is_same {
            continue;
        }
        let (name, dirs) = (device.display(), mounted(&device));
        if dirs.is_empty() {
            bail!("{shown}: the loop device {name} is over it; first losetup -d {name}");
        }
        let (is, way) = mounts_in_words(&dirs);
        bail!(
            "{shown}: the loop device {name} is over it, {is}; first {way}, then losetup -d {name}"
        );
    }
    if File::options().read(true).write(true).open(path).is_ok_and(|file| is_locked(&file)) {
        bail!("{shown}: another process has locked it, such as a virtual machine; first end that");
    }
    Ok(())
}

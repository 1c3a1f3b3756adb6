//! Mounting a file system on a directory, and unmounting it.
//!
//! **When is the disk clean?** The kernel tells a file system on a block device (`fuseblk`) that it
//! is being unmounted, and `umount` waits for the answer. It tells no other FUSE file system. So
//! Ordo mounts as such a file system if it may: on the device itself, or on a loop device over the
//! image, which stands for it in the mount table and is neither read nor written. Without
//! privileges (through `fusermount3`) `umount` returns at once, and `ordo umount` waits.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType,
};

use crate::mounts;
use crate::wire::MAX_DATA;

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The source shown in the mount table.
    pub source: PathBuf,
    /// Whether the source is a block device that is mounted whole, so that the kernel may claim it.
    pub device: bool,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// Flags that the kernel enforces: `nodev`, `nosuid`, `noexec`, `sync`, `dirsync`.
    pub flags: Vec<String>,
}

/// The reason why a file system cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel has no FUSE.
    #[error("/dev/fuse: {0}; load the kernel's module (modprobe fuse)")]
    NoFuse(io::Error),
    /// The kernel refused.
    #[error("mounting on {dir}: {error}")]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The helper `fusermount3`, which is needed without privileges, is missing.
    #[error("fusermount3: {0}; install fuse3, or mount as root")]
    NoHelper(io::Error),
    /// The helper refused, and printed the reason on its standard error.
    #[error("fusermount3 refused to mount on {dir}")]
    HelperRefused {
        /// The directory.
        dir: PathBuf,
    },
}

/// A mounted directory.
#[derive(Debug)]
pub struct Attached {
    /// The device from which requests are read.
    pub device: File,
    /// The directory.
    pub dir: PathBuf,
    /// Whether `umount` waits until the disk is clean.
    pub umount_waits: bool,
    by_helper: bool,
}

/// The type of a mount on a block device.
const ON_DEVICE: &str = "fuseblk.ordo";

fn mount_on(how: &Attach, dir: &Path, device: &File, source: &Path, kind: &str) -> io::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,max_read={MAX_DATA}",
        device.as_raw_fd()
    );
    if how.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("no NUL in it");
    let flags = mount_flags(how.read_only, &how.flags);
    Ok(rustix::mount::mount(source, dir, kind, flags, data.as_c_str())?)
}

fn open_device() -> Result<File, AttachError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let open = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/fuse");
    open.map_err(AttachError::NoFuse)
}

/// Mounts on a directory. Requests wait in the device from then on.
///
/// # Errors
/// [`AttachError`].
pub fn attach(how: &Attach, dir: &Path) -> Result<Attached, AttachError> {
    if !rustix::process::geteuid().is_root() {
        let device = by_helper(how, dir)?;
        let dir = dir.to_path_buf();
        return Ok(Attached { device, dir, umount_waits: false, by_helper: true });
    }
    let device = open_device()?;
    let by_itself = how.device && mount_on(how, dir, &device, &how.source, ON_DEVICE).is_ok();
    // Without a loop device, the mount continues as an ordinary FUSE file system.
    let stand_in = if by_itself { None } else { crate::loopdev::attach(&how.source).ok() };
    let umount_waits = by_itself || stand_in.is_some();
    if !by_itself {
        let (source, kind) = match &stand_in {
            Some((path, _)) => (path.as_path(), ON_DEVICE),
            None => (how.source.as_path(), "fuse.ordo"),
        };
        mount_on(how, dir, &device, source, kind)
            .map_err(|error| AttachError::Refused { dir: dir.to_path_buf(), error })?;
    }
    Ok(Attached { device, dir: dir.to_path_buf(), umount_waits, by_helper: false })
}

/// Changes the flags that the kernel enforces on an existing mount.
///
/// # Errors
/// The operating system's error: `EPERM` for users other than root, `EBUSY` if a file is open for
/// writing.
pub fn remount(dir: &Path, read_only: bool, flags: &[String]) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(dir, mount_flags(read_only, flags), "")?)
}

fn mount_flags(read_only: bool, words: &[String]) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, read_only);
    for flag in words {
        flags |= match flag.as_str() {
            "nodev" => MountFlags::NODEV,
            "nosuid" => MountFlags::NOSUID,
            "noexec" => MountFlags::NOEXEC,
            "sync" => MountFlags::SYNCHRONOUS,
            "dirsync" => MountFlags::DIRSYNC,
            "nodiratime" => MountFlags::NODIRATIME,
            _ => MountFlags::empty(),
        };
    }
    flags
}

/// Mounts through `fusermount3`, which has the privileges and sends the opened device back through
/// a socket.
fn by_helper(how: &Attach, dir: &Path) -> Result<File, AttachError> {
    let failed = |error: rustix::io::Errno| AttachError::NoHelper(error.into());
    let flags = rustix::net::SocketFlags::empty();
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(failed)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let source = how.source.display().to_string().replace([',', '\\'], "_");
    let mut options = format!(
        "{},subtype=ordo,fsname={source},default_permissions,max_read={MAX_DATA}",
        if how.read_only { "ro" } else { "rw" }
    );
    if how.allow_other {
        options.push_str(",allow_other");
    }
    for flag in &how.flags {
        options.push(',');
        options.push_str(flag);
    }
    let status = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .status()
        .map_err(AttachError::NoHelper)?;
    drop(theirs);
    if !status.success() {
        return Err(AttachError::HelperRefused { dir: dir.to_path_buf() });
    }
    let device = received(ours).map_err(AttachError::NoHelper)?;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDWR;
    rustix::fs::fcntl_setfl(&device, flags).map_err(failed)?;
    Ok(device)
}

/// The descriptor that a socket received.
fn received(socket: impl AsFd) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(File::from(fd));
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it sent no descriptor"))
}

/// A handle that unmounts a directory, from any thread.
#[derive(Clone, Debug)]
pub struct Detach {
    dir: PathBuf,
    by_helper: bool,
}

impl Attached {
    /// A handle that unmounts it.
    pub fn detach(&self) -> Detach {
        Detach { dir: self.dir.clone(), by_helper: self.by_helper }
    }

    /// Sets the kernel's read-ahead to the size of one request, if it is less (usually 128 KB).
    /// Only root may do so; for others it stays. Must be called before the first request is
    /// answered, because the kernel takes the smaller of this value and the one in the reply.
    pub fn widen_read_ahead(&self) {
        let table = mounts::table().unwrap_or_default();
        let Some(number) = device_number(&table, &self.dir) else { return };
        // On a block device the plain name belongs to the device itself.
        let suffix = if self.umount_waits { "-fuseblk" } else { "" };
        let path = format!("/sys/class/bdi/{number}{suffix}/read_ahead_kb");
        let now = std::fs::read_to_string(&path).ok().and_then(|kb| kb.trim().parse().ok());
        if now.is_some_and(|kb: usize| kb < MAX_DATA >> 10) {
            let _ = std::fs::write(&path, (MAX_DATA >> 10).to_string());
        }
    }
}

/// The number of the device mounted on a directory, from the mount table; if there are several,
/// that of the last one.
fn device_number<'a>(table: &'a str, dir: &Path) -> Option<&'a str> {
    mounts::of(table).rfind(|mount| mount.dir == dir).map(|mount| mount.device)
}

impl Detach {
    /// Unmounts. It waits for the file system's answer, if there is one, so the thread that gives
    /// the answer must not call it. With `lazily`, the mount is taken out of the tree even while it
    /// is in use.
    ///
    /// # Errors
    /// The operating system's error: `EBUSY` while the mount is in use.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        if self.by_helper {
            let lazy = if lazily { "-uqz" } else { "-uq" };
            let status = Command::new("fusermount3").args([lazy, "--"]).arg(&self.dir).status()?;
            return match status.success() {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
            };
        }
        let how = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        Ok(rustix::mount::unmount(&self.dir, how)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device must be that of the mount itself: the last mount on its directory, not one below
    /// it, for a directory with any bytes in its name.
    #[test]
    fn a_mount_is_found_in_the_table() {
        let table = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                     44 27 7:1 / /mnt rw shared:1 - fuseblk.ordo /dev/loop1 rw\n\
                     45 44 7:2 / /mnt rw - fuseblk.ordo /dev/loop2 rw\n\
                     46 45 0:30 / /mnt/a\\040b rw - tmpfs none rw\n";
        let number = |dir: &str| device_number(table, Path::new(dir));
        assert_eq!(number("/mnt"), Some("7:2"));
        assert_eq!(number("/mnt/a b"), Some("0:30"));
        assert_eq!(number("/mnt/a"), None);
    }
}

//! Attaching a file system to a directory, and letting go of it.
//!
//! **When is the disk clean?** The kernel tells a file system on a block device (`fuseblk`) that it is being
//! unmounted, and `umount` waits for the answer. To any other FUSE file system it says nothing. So where it
//! may, Ordo mounts as one on a block device: a loop device over the image, which stands for it in the mount
//! table and which nothing is read from or written to. Without privileges (through `fusermount3`) `umount`
//! returns at once; `ordo umount` waits.

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

use crate::wire::MAX_DATA;

/// How to attach.
#[derive(Clone, Debug)]
pub struct Attach {
    /// What the mount table shows.
    pub source: PathBuf,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Others than who mounts it may use it.
    pub allow_other: bool,
    /// Flags that the kernel enforces: `nodev`, `nosuid`, `noexec`, `sync`, `dirsync`.
    pub flags: Vec<String>,
}

/// Why it cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no FUSE.
    #[error("/dev/fuse: {0}; load the kernel's module (modprobe fuse)")]
    NoFuse(io::Error),
    /// The kernel refused.
    #[error("mounting on {dir}: {error}")]
    Refused {
        /// Where.
        dir: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// Without privileges there is only fusermount3.
    #[error("fusermount3: {0}; install fuse3, or mount as root")]
    NoHelper(io::Error),
    /// It said why on its standard error.
    #[error("fusermount3 refused to mount on {dir}")]
    HelperRefused {
        /// Where.
        dir: PathBuf,
    },
}

/// A mounted directory.
#[derive(Debug)]
pub struct Attached {
    /// Requests come from here.
    pub device: File,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Whether `umount` waits until the disk is clean.
    pub umount_waits: bool,
    by_helper: bool,
}

fn open_device() -> Result<File, AttachError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let open = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/fuse");
    open.map_err(AttachError::NoFuse)
}

/// Attaches to a directory; requests wait in the device from then on.
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
    // Who made no loop device mounts all the same.
    let stand_in = crate::loopdev::attach(&how.source).ok();
    let umount_waits = stand_in.is_some();
    let refused = |error: rustix::io::Errno| AttachError::Refused {
        dir: dir.to_path_buf(),
        error: error.into(),
    };
    let (source, kind) = match &stand_in {
        Some((path, _)) => (path.as_path(), "fuseblk.ordo"),
        None => (how.source.as_path(), "fuse.ordo"),
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,max_read={MAX_DATA}",
        device.as_raw_fd()
    );
    if how.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("no NUL in it");
    let done = rustix::mount::mount(source, dir, kind, mount_flags(how), data.as_c_str());
    done.map_err(refused)?;
    Ok(Attached { device, dir: dir.to_path_buf(), umount_waits, by_helper: false })
}

fn mount_flags(how: &Attach) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, how.read_only);
    for flag in &how.flags {
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

/// Has `fusermount3` do it, which may, and which sends the opened device back through a socket.
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

/// The descriptor that was sent through a socket.
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

/// What lets go of a directory, from any thread.
#[derive(Clone, Debug)]
pub struct Detach {
    dir: PathBuf,
    by_helper: bool,
}

impl Attached {
    /// What lets go of it.
    pub fn detach(&self) -> Detach {
        Detach { dir: self.dir.clone(), by_helper: self.by_helper }
    }
}

impl Detach {
    /// Unmounts; waits for the file system's answer where there is one, so not to be called by the thread
    /// that gives it. `lazily`: takes it out of the tree even while it is in use.
    ///
    /// # Errors
    /// The system's: `EBUSY` while it is in use.
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

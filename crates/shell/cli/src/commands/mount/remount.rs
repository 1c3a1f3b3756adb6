//! `-o remount`: changes the kernel's options of an existing mount.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ordo_fuse::kernel;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::options::MountRequest;
use super::umount::assert_ours;

/// Remounts read-only or read-write, with the given options. All else stays as it was.
pub fn run(dir: &Path, wanted: &MountRequest) -> Result<ExitCode> {
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    assert_ours(&dir)?;
    let remount = |read_only| {
        let done = kernel::remount(&dir, read_only, &wanted.flags);
        done.with_context(|| format!("{}: cannot be remounted", dir.display()))
    };
    remount(wanted.read_only)?;
    if !wanted.read_only && refuses_writes(&dir) {
        remount(true)?;
        bail!(
            "{}: was mounted read-only, or became read-only when a write failed; unmount it and mount it again",
            dir.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the file system itself refuses changes, whatever the kernel would allow. The test
/// creates a file without a name, which leaves nothing behind.
fn refuses_writes(dir: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, dir, flags, Mode::RUSR).err() == Some(Errno::ROFS)
}

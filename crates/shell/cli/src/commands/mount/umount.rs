//! `ordo umount`: unmounts, and returns when the disk is clean.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use ordo_fuse::mounts;

/// `ordo umount`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
If root mounted it, umount(8) waits too. Exit status: 0 unmounted and clean, 1 not.

Example:
  ordo umount /mnt")]
pub struct Umount {
    /// The mount point.
    pub dir: PathBuf,
}

pub fn run(args: &Umount) -> Result<ExitCode> {
    let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
    let server = server_of(&dir)?;
    let root = rustix::process::geteuid().is_root();
    let mut command = match root {
        true => Command::new("umount"),
        false => Command::new("fusermount3"),
    };
    if !root {
        command.arg("-u");
    }
    let status = command.arg("--").arg(&dir).status().context("cannot unmount")?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(server) = server {
        wait_for(server);
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a directory that is not a mount of Ordo.
pub fn assert_ours(dir: &std::path::Path) -> Result<()> {
    let table = mounts::table()?;
    let uppermost = mounts::of(&table).rfind(|mount| mount.dir == dir);
    if !uppermost.is_some_and(|mount| mount.kind.ends_with(".ordo")) {
        bail!("{}: Ordo has mounted nothing here", dir.display());
    }
    Ok(())
}

/// The process that serves a directory, if it can be found.
fn server_of(dir: &std::path::Path) -> Result<Option<i32>> {
    assert_ours(dir)?;
    let wanted = dir.as_os_str();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(process.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        let serves =
            words.contains(&b"mount".as_slice()) && words.contains(&b"--foreground".as_slice());
        let here = |word: &&[u8]| {
            use std::os::unix::ffi::OsStrExt;
            std::path::Path::new(std::ffi::OsStr::from_bytes(word)).canonicalize().ok().as_deref()
                == Some(std::path::Path::new(wanted))
        };
        if serves && words.iter().any(here) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Waits until a process has ended.
fn wait_for(id: i32) {
    let Some(pid) = rustix::process::Pid::from_raw(id) else { return };
    while rustix::process::test_kill_process(pid).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

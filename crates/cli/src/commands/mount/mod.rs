//! `ordo mount` and `ordo umount`.
//!
//! `options` reads what is asked for, `helper` what mount(8) asks for; `recover` mounts the file system, after whatever its ordering needs
//! after a crash; `remount` changes what is mounted already; `serve` hands it to the kernel and takes it back. In the background the command starts
//! itself anew, shows what that says until the mount is there, and ends.

pub mod helper;
mod options;
mod recover;
mod remount;
mod serve;
mod tell;
mod umount;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::image::real_time;
pub use umount::{Umount, run as umount};

/// `ordo mount`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Options, after -o, separated by commas:
  ordering=ORDER    none, sync, soft-updates, journal [default: journal where the image has a
                    log file, soft-updates where it is marked so, else sync]
  log=PLACE         where the journal's log is: file (in the image), behind (after the file system);
  logdev=PATH       or on this device or image
  log-sync          changes of names are durable on return
  group-commit      callers at the same time share log writes; group-delay=MICROSECONDS: how long
                    the first waits for others at most [default: 1000]; group-batch=N: for how
                    many [default: 64]
  ro, rw            nothing may be changed; refuse what could only be mounted read-only
  partition=N       the N-th partition of the disk, as `ordo info` lists them; 1a is a BSD label's
  cache=BYTES       memory for the cache [default: 256m]; dirty=BYTES: how much of it may be dirty
  dependencies=BYTES   memory for what soft updates have to keep in order [default: an eighth of cache]
  uid=N, gid=N      everything belongs to N here; N:M: and what is made belongs to M on disk;
                    N=M+...: N here is M on disk and the other way round
  allow_other, private   others may use it (root's default), or not
  acl, noacl        POSIX ACLs [default: as the image is marked]
  atime, relatime, noatime   record the time of last access: with every read, where the file
                    was changed since or a day has passed, never [default: noatime]
  bsdgroups         a new file's group is its directory's
  sync              every change is durable on return
  io_uring, no_io_uring   requests over io_uring, where the kernel offers that, or not [default]
  writeback         the kernel keeps what is written and sends it later
  noreaddirplus     directories are read without the attributes of what is in them
  reserve           the reserve for root (minfree) may be used up
  nodev, nosuid, noexec, dirsync, nodiratime   as for any mount
  remount           with ro or rw and the line above: only those change on what is mounted
  force             mount what was not unmounted, unchecked; for the last resort

Examples:
  ordo mount disk.img /mnt
  ordo mount disk.img /mnt -o ordering=soft-updates,noatime
  ordo mount -f disk.img /mnt -o ro        in the foreground; ^C unmounts
  ordo umount /mnt                         returns when the disk is clean

In fstab, with mount.fuse.ordo a link to ordo in /sbin:
  /srv/disk.img /mnt fuse.ordo ordering=soft-updates,nofail 0 0")]
pub struct Mount {
    /// The image or device.
    pub image: PathBuf,
    /// Where to mount it.
    pub dir: PathBuf,
    /// Options, separated by commas; may be given more than once.
    #[arg(short, long = "options", value_name = "LIST")]
    pub options: Vec<String>,
    /// Stay in the foreground; a signal unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Say less.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Says to a mount that it was started by one in the foreground that waits for it.
const WAITED_FOR: &str = "ORDO_MOUNT_WAITED_FOR";

pub fn run(args: &Mount) -> Result<ExitCode> {
    let wanted = options::Wanted::parse(&args.options)?;
    if !args.dir.is_dir() {
        bail!("{}: not a directory", args.dir.display());
    }
    if wanted.remount {
        return remount::run(&args.dir, &wanted);
    }
    if !args.foreground {
        return in_background(args);
    }
    let waited_for = std::env::var_os(WAITED_FOR).is_some();
    if waited_for {
        // Its own session: a terminal that closes does not end it.
        let _ = rustix::process::setsid();
    }
    let tell = tell::Tell::new(args, waited_for);
    let args = Mount {
        image: args.image.canonicalize().with_context(|| args.image.display().to_string())?,
        dir: args.dir.canonicalize().with_context(|| args.dir.display().to_string())?,
        options: args.options.clone(),
        ..*args
    };
    real_time(async |rt| recover::mount_and_serve(&rt, &args, &wanted, &tell).await)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the same in the background, and waits until it is mounted.
fn in_background(args: &Mount) -> Result<ExitCode> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("mount").arg("--foreground").env(WAITED_FOR, "1");
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if args.quiet {
        command.arg("--quiet");
    }
    command.arg("--").arg(&args.image).arg(&args.dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start in the background")?;
    let mut said = child.stdout.take().expect("piped");
    let mut buf = [0; 4096];
    loop {
        let n = said.read(&mut buf)?;
        if n == 0 {
            // It ended before it was mounted, and has said why.
            let code = child.wait()?.code().unwrap_or(1);
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1).max(1)));
        }
        let mounted = buf[..n].iter().position(|b| *b == tell::MOUNTED);
        std::io::stdout().write_all(&buf[..mounted.unwrap_or(n)])?;
        if mounted.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

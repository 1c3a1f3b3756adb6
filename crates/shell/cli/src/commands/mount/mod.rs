//! `ordo mount` and `ordo umount`.
//!
//! `options` parses the options, `helper` the calls by mount(8). `recover` mounts the file system,
//! with the recovery that its ordering needs after a crash. `remount` changes an existing mount.
//! `serve` hands the file system to the kernel and takes it back. For a mount in the background,
//! the command starts itself again, prints the messages of that process until the mount is there,
//! and exits.

pub mod helper;
mod options;
pub(crate) mod pressure;
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

use crate::args::{MetadataPath, PartitionChoice};
use crate::image::real_time;
pub use umount::{Umount, run as umount};

/// `ordo mount`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Options, after -o, separated by commas:
  ordering=ORDER    none, sync, soft-updates, journal [default: journal if the image has a log
                    file, soft-updates if it is marked so, otherwise sync]
  log=PLACE         place of the journal's log: file (in the image), behind (the file system);
  logdev=PATH       or on this device or image
  metadev=PATH      the metadata device of a DualFS on two devices, of which the image is the data
                    device [default: searched beside the image]
  log-sync          changes of names are durable when their call returns
  contents=WHAT     file contents that the journal makes safe: none (default), ordered (written
                    before a commit), data (in the log), adaptive (the last two are for measurements
                    only: they can lose synced contents); records=bytes (default), blocks
  commits=WHOSE     changes that an fsync commits: untangled (its file's, default), tangled (all);
                    commit-every=SECONDS: a commit without one; phases=together (default), apart,
                    overlap: contents, records and commit record of an fsync, in turn or at once
  group-commit      concurrent callers share log writes; group-delay=MICROSECONDS: the longest wait
                    of the first for others [default: 1000]; group-batch=N: the most callers
                    [default: 64]
  ro, rw            refuse all changes; refuse an image that can only be mounted read-only
  partition=N       as --partition: the N-th partition of the disk, as `ordo info` lists them; 1a is
                    in a BSD label
  cache=BYTES       memory for blocks [default: 256m, but at most a quarter of the memory], less
                    while memory is short; inodes and directory indexes take up to half as much
                    more; dirty=BYTES: the most dirty data in it
  write-unit=BYTES  write only the changed part of a file's block, in such units, if no neighbour is
                    written with it; a block of which whole units are overwritten is not read
                    before; write-unit=block: read and write whole blocks [default: 4k]
  maxcontig=BLOCKS  blocks of an FFS that follow each other and go in one request (default: the
                    superblock's); rotgap=BLOCKS: blocks left free behind each such run (default 0)
  cleaner=POLICY    how an LFS's cleaner chooses segments: greedy, cost-benefit (default), hot-cold
  idle=SECONDS      clean an LFS after this time without any operation (default 2; off: never)
  clean-low=PERCENT until this much of its free space is in clean segments (default 50)
  clean-every=SECONDS   clean an LFS in use, at this interval (default off; DualFS 5);
                    busy-low=PERCENT: if less of its free space is in clean segments (default 10)
  prefetch=BLOCKS   metadata blocks of a DualFS that are read together (default 16; off)
  order=ORDER       the order of metadata in its log: inverse (default), the last changed file
                    first; or by number
  relocate=BLOCKS   rewrite metadata that was read, up to so many blocks a second (default 128; off)
  affinity=PERCENT  a new directory leaves its parent's group for one with this many percent more
                    free blocks (default 10; off: always)
  salvage           read a DualFS without its metadata device, from the copy of the metadata on its
                    data device (mkfs --meta-copy), as of the last checkpoint; with ro
  rescue            read a damaged UFS past its damage: what cannot be read is zeros or missing, and
                    listed at the unmount; with ro
  dependencies=BYTES   memory for the dependencies of soft updates [default: an eighth of cache]
  uid=N, gid=N      all files belong to N here; N:M: new files belong to M on disk;
                    N=M+...: N here is M on disk, and the reverse
  umask=OCTAL       permissions that nobody has here, whatever the disk says; fmask=, dmask=: of
                    files, of directories
  allow_other, private   others may use the mount (default for root), or not
  acl, noacl        POSIX ACLs [default: as the image is marked]
  atime, relatime, noatime   update the access time on every read; after a change of the file or
                    a day; never [default: noatime]
  bsdgroups         a new file gets its directory's group
  sync              every change is durable when its call returns
  io_uring, no_io_uring   requests over io_uring, if the kernel offers that, or not [default]
  timeout=SECONDS   the kernel aborts the mount if a request is not answered for this long, and
                    all waiting programs get an error [default: 0, never; Linux 6.16]
  writeback         the kernel caches written data and sends them later
  noreaddirplus     directories are read without the attributes of their files
  reserve           the reserve for root (minfree) may be used
  nodev, nosuid, noexec, dirsync, nodiratime   as for any mount
  remount           with ro or rw and the options in the line above: change these on a mount
  force             mount an image that was not unmounted, without a check: a last resort

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
    /// The mount point.
    pub dir: PathBuf,
    /// Options, separated by commas. May be given more than once.
    #[arg(short, long = "options", value_name = "LIST")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Stay in the foreground; a signal unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Print fewer messages.
    #[arg(short, long)]
    pub quiet: bool,
}

/// An environment variable that is set for a process whose mount another one, in the foreground,
/// awaits.
const WAITED_FOR: &str = "ORDO_MOUNT_WAITED_FOR";

pub fn run(args: &Mount) -> Result<ExitCode> {
    let mut wanted = options::MountRequest::parse(&args.options)?;
    wanted.meta_device = args.metadata.meta_device.clone().or(wanted.meta_device);
    wanted.partition = args.part.partition.clone().or(wanted.partition);
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
        // A session of its own keeps the mount when the terminal closes.
        let _ = rustix::process::setsid();
    }
    let tell = tell::MessageSink::new(args, waited_for);
    let args = Mount {
        image: args.image.canonicalize().with_context(|| args.image.display().to_string())?,
        dir: args.dir.canonicalize().with_context(|| args.dir.display().to_string())?,
        options: args.options.clone(),
        metadata: args.metadata.clone(),
        part: args.part.clone(),
        ..*args
    };
    real_time(async |rt| recover::mount_and_serve(&rt, &args, &wanted, &tell).await)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the same command in the background, and waits until it has mounted.
fn in_background(args: &Mount) -> Result<ExitCode> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("mount").arg("--foreground").env(WAITED_FOR, "1");
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(path) = &args.metadata.meta_device {
        command.arg("--meta-device").arg(path);
    }
    if let Some(name) = &args.part.partition {
        command.arg("--partition").arg(name);
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
            // The process ended before it had mounted, and has printed the reason.
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

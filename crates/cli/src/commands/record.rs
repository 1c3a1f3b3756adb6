//! `ordo trace run`, `attach` and `serve`: requests are recorded and named while a device is used.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use ordo_annotate::{files, store};
use ordo_block::model::Model;
use ordo_live::kernel::{Mounted, System};
use ordo_live::watching::{Into, take, watching};
use ordo_live::{Rule, Seen, Wanted};
use ordo_pseudo::nbd::{Address, Nbd};
use ordo_pseudo::{Keep, Place, Recording, Session, Setup};
use ordo_report::number::parse_bytes;

use super::analyze::tables;
use super::trace::wrote;
use super::traffic::{top_files, whole};
use crate::text::put;

/// Options of a recording, and of the device's behaviour.
#[derive(Args, Debug)]
struct How {
    /// Keep the trace, in a directory of Parquet files.
    #[arg(long, short, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Keep no contents. Memory then has only a row for each block.
    #[arg(long)]
    without_contents: bool,
    /// Keep only the counts, and the last so many requests, so that memory is bounded.
    #[arg(long, value_name = "REQUESTS", conflicts_with = "without_contents")]
    last: Option<usize>,
    /// Delay or drop writes by their kind: 'delay file_data 10s', 'drop journal after 3 journal_commit'. The
    /// first rule that applies to a write decides.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// Let requests take the time of a disk model, in real time: viking, hdd-4tb, sata-ssd and so on, as in
    /// ordo compare. mkfs is not slowed down.
    #[arg(long, value_name = "MODEL", value_parser = crate::args::disk)]
    disk: Option<&'static Model>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl How {
    fn setup(&self, place: Place) -> Setup {
        let keep = match (self.last, self.without_contents, &self.output) {
            (Some(most), ..) => Keep::Last(most),
            (None, false, Some(_)) => Keep::Contents,
            (None, _, Some(_)) => Keep::Requests,
            (None, _, None) => Keep::Last(1),
        };
        Setup { disk: self.disk, ..Setup::new(place, keep) }
    }

    fn wanted(&self) -> Wanted {
        let rows = self.output.is_some() && self.last.is_none();
        Wanted { rows, rules: self.rules.clone(), ..Wanted::default() }
    }

    /// Prints the analysis, and keeps the trace if that was asked for.
    fn report(&self, recording: &Recording, seen: Option<&Seen>) -> Result<()> {
        let Some(seen) = seen else {
            eprintln!("ordo: the device had no known file system: its blocks have no names");
            return self.keep(recording, &ordo_annotate::rows::unnamed(&recording.trace), None);
        };
        self.keep(recording, &seen.rows, Some(seen))?;
        if seen.delayed + seen.dropped > 0 {
            eprintln!("ordo: {} writes were delayed, {} dropped", seen.delayed, seen.dropped);
        }
        let (analysis, files) =
            (&seen.analysis, files::of(&recording.trace, &seen.rows, &seen.shares));
        put(
            None,
            &match self.json {
                true => whole(analysis, &files)?,
                false => tables(analysis) + &top_files(&files),
            },
        )
    }

    fn keep(
        &self,
        recording: &Recording,
        blocks: &[ordo_annotate::Block],
        seen: Option<&Seen>,
    ) -> Result<()> {
        let Some(dir) = &self.output else { return Ok(()) };
        let none = ordo_annotate::Pieces::default();
        let (start, system) = seen.map_or((&none, "none"), |s| (&s.start, &*s.found.system));
        let found = seen.map(|s| &s.found);
        let shares = seen.map_or(&[][..], |s| &s.shares);
        let parts = store::Parts { trace: &recording.trace, blocks, shares, start, system, found };
        wrote(dir, &store::write(dir, &parts)?);
        Ok(())
    }
}

/// Record what a kernel file system writes while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Makes the file system on a device in memory, mounts it, runs the command in it, unmounts it, and
prints what was written. Needs root. The exit status is the command's. A line 'mark TEXT' that the
command writes to the file $ORDO_MARK is put into the trace; 'mark fsync INODE FIRST BYTES' notes
that an fsync has returned, for ordo analyze --expect.

Examples:
  ordo trace run --fs ext3 --mount-opts data=journal -- tar xf ~/linux.tar
  ordo trace run --fs xfs --size 1g -o three.trace -- \\
    sh -c 'for i in 1 2 3; do date >> log; sync log; done'
  ordo trace show three.trace
  ordo trace export three.trace --to perfetto -o three.json
  ordo trace run --fs ext4 --rule 'delay file_data 2s' -- sh -c 'date > a; sync'
  ordo trace run --fs ext4 --disk viking -- sh -c 'date > a; sync'")]
pub struct Run {
    /// The file system: ext2, ext3, ext4, xfs, jfs, reiserfs, ntfs, btrfs, if this machine can mount it.
    #[arg(long, short, value_name = "NAME")]
    fs: String,
    /// More arguments for mkfs.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// Mount options.
    #[arg(long, value_name = "OPTIONS", default_value = "defaults")]
    mount_opts: String,
    /// Size of the device. All of it may come to be in memory, and all written contents too.
    #[arg(long, default_value = "512m", value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    #[command(flatten)]
    how: How,
    /// Write the device's contents before the trace to this file.
    #[arg(long, value_name = "FILE")]
    start: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Record the requests to a device or an image while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Puts a pseudo-device over a device or an image, and runs the command with the pseudo-device's name
in $ORDO_DEVICE. The pseudo-device is removed when the command ends. Writes go to the device or
image itself. Needs root.

Example:
  ordo trace attach disk.img -o use.trace -- \\
    sh -c 'mount $ORDO_DEVICE /mnt && make -C /mnt; umount /mnt'")]
pub struct AttachTo {
    /// The device or image, which must not be in use.
    device: PathBuf,
    #[command(flatten)]
    how: How,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Serve a device over NBD, and record its requests, while a command runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
For virtual machines, and kernels on other machines. The command gets the server's URI in
$ORDO_URI. The server ends with the command. Needs no privileges.

Example:
  ordo trace serve disk.img --socket /tmp/disk.nbd -o boot.trace -- \\
    qemu-system-x86_64 -drive driver=nbd,server.type=unix,server.path=/tmp/disk.nbd ...")]
pub struct Serve {
    /// An image or a device. Without one the server uses memory.
    #[arg(required_unless_present = "size")]
    device: Option<PathBuf>,
    /// Use memory of this size.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with = "device")]
    size: Option<u64>,
    /// Listen on this Unix socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on this loopback address.
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "socket",
        required_unless_present = "socket"
    )]
    tcp: Option<String>,
    #[command(flatten)]
    how: How,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn carry_out(
    command: &[String],
    dir: Option<&Path>,
    variables: &[(&str, &str)],
) -> Result<ExitCode> {
    let mut run = Command::new(&command[0]);
    run.args(&command[1..]).envs(variables.iter().copied());
    if let Some(dir) = dir {
        run.current_dir(dir);
    }
    let status = run.status().with_context(|| format!("running {}", command[0]))?;
    // A signal has no exit status. Shells use 128 or more.
    Ok(ExitCode::from(status.code().map_or(128, |code| code as u8)))
}

/// Records a run, and prints what was written.
///
/// # Errors
/// There is no device, or the file system cannot be made or mounted, or the files cannot be written.
pub fn run(args: &Run) -> Result<ExitCode> {
    let system = System {
        name: args.fs.clone(),
        mkfs: args.mkfs.split_whitespace().map(str::to_owned).collect(),
        options: args.mount_opts.clone(),
        bytes: args.size / 4096 * 4096,
    };
    let mut setup = args.how.setup(Place::Memory(system.bytes));
    setup.keep_start = args.start.is_some();
    let mounted = Mounted::new(&system, args.how.wanted(), setup)?;
    let control = mounted.control().to_string_lossy().into_owned();
    let status = carry_out(&args.command, Some(mounted.dir()), &[("ORDO_MARK", &control)]);
    let (recording, seen) = mounted.finish()?;
    if let Some(path) = &args.start {
        let wrote = std::fs::write(path, &recording.start);
        wrote.with_context(|| format!("writing {}", path.display()))?;
    }
    args.how.report(&recording, Some(&seen))?;
    status
}

/// Records the requests to a device.
///
/// # Errors
/// As `run`.
pub fn attach(args: &AttachTo) -> Result<ExitCode> {
    let seen = Into::default();
    let mut setup = args.how.setup(Place::Path(args.device.clone()));
    setup.observer = Some(watching(args.how.wanted(), Arc::clone(&seen)));
    let session = Session::with(setup)?;
    session.start()?;
    let device = session.device().to_string_lossy().into_owned();
    let control = session.control().to_string_lossy().into_owned();
    let variables = [("ORDO_DEVICE", &*device), ("ORDO_MARK", &*control)];
    let status = carry_out(&args.command, None, &variables);
    let recording = session.finish()?;
    let mut seen = take(&seen);
    seen.iter_mut().for_each(|seen| seen.renumber(&recording));
    args.how.report(&recording, seen.as_ref())?;
    status
}

/// Serves a device.
///
/// # Errors
/// As `run`.
pub fn serve(args: &Serve) -> Result<ExitCode> {
    let place = match (&args.device, args.size) {
        (Some(path), _) => Place::Path(path.clone()),
        (None, size) => Place::Memory(size.unwrap_or(0) / 4096 * 4096),
    };
    let address = match (&args.socket, &args.tcp) {
        (Some(path), _) => Address::Unix(path.clone()),
        (None, tcp) => Address::Tcp(tcp.clone().unwrap_or_default()),
    };
    let seen = Into::default();
    let mut setup = args.how.setup(place);
    setup.observer = Some(watching(args.how.wanted(), Arc::clone(&seen)));
    let nbd = Nbd::serve(setup, &address)?;
    let uri = nbd.uri().to_owned();
    let status = carry_out(&args.command, None, &[("ORDO_URI", &uri)]);
    let recording = nbd.finish()?;
    args.how.report(&recording, take(&seen).as_ref())?;
    status
}

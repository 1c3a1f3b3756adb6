//! `ordo trace run` and `serve`, and the options of a recording: requests are recorded and named
//! while a device is used.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ordo_annotate::calls::StoredCall;
use ordo_annotate::{files, private, store};
use ordo_block::model::Model;
use ordo_guest::Kernel;
use ordo_kernelfs::kernel::{KernelMount, LiveSystem};
use ordo_kernelfs::{GuestMount, WatchOptions, WatchedTraffic, WriteRule};
use ordo_recorder::nbd::{Address, Nbd};
use ordo_recorder::{DeviceSetup, KeepRequests, Recording, Transport};
use ordo_report::number::parse_bytes;

use super::calls::Calls;
use super::guest::{self, GuestOptions};
use super::parts::InParts;
use super::rotate::{Rotate, SampleTimes};
use super::running::Signals;
use super::streaming::{Counters, StreamingRecorder};
use super::trace::wrote;
use super::traffic::Results;
use super::volumes::{self, Recorder, report_all, together};
use crate::privileges::need_root;
use crate::text::put;

/// Options of a recording, and of the device's behaviour.
#[derive(Args, Clone, Debug)]
pub(super) struct RecordOptions {
    /// Store the trace in a directory of Parquet files, created before the command runs.
    #[arg(long, short, value_name = "DIRECTORY")]
    pub(super) output: Option<PathBuf>,
    /// Replace a trace that is in the directory.
    #[arg(long, requires = "output")]
    force: bool,
    /// Write the trace in parts, each a trace by itself, while it is recorded: a part ends when it
    /// takes this size in memory (64k to 256m), or after this time (10min, 30s, 1h). Both may be
    /// given; without a size it is 64m. Memory stays below 512 MB for any length. -o is then the
    /// folder of all recordings.
    #[arg(long, value_name = "SIZE|TIME", requires = "output")]
    rotate: Vec<Rotate>,
    /// Record only a part of the time, as 10s/5min: the first ten seconds of every five minutes. In
    /// between requests cost nothing but their way through the pseudo-device. The trace is written
    /// in parts.
    #[arg(long, value_name = "TIME/TIME", requires = "output")]
    sample: Option<SampleTimes>,
    /// Record no contents. Memory then holds only a row for each block.
    #[arg(long = "without-contents")]
    without_contents: bool,
    /// Store only the counts and this many of the last requests, so that memory is bounded.
    #[arg(long, value_name = "REQUESTS", conflicts_with = "without_contents")]
    last: Option<usize>,
    /// Store only counts of each kind of block, and write them to this file every five seconds, in
    /// the text form of Prometheus (for the textfile collector of its node exporter). Memory is
    /// that of the file system's metadata.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "last", "without_contents", "rules"])]
    pub(super) counters: Option<PathBuf>,
    /// Delay or drop writes by their kind: 'delay file_data 10s', 'drop journal after 3
    /// journal_commit'. The first rule that applies to a write decides.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<WriteRule>,
    /// Make requests take the time of a disk model, in real time: viking, hdd-4tb, sata-ssd and so
    /// on, as in ordo compare. mkfs is not slowed down.
    #[arg(long, value_name = "MODEL", value_parser = crate::args::disk)]
    disk: Option<&'static Model>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// The name of the volume, if these are options for one of several; empty otherwise.
    #[arg(skip)]
    volume: String,
}

impl RecordOptions {
    /// The options for one of several volumes: files have its name.
    pub(super) fn for_volume(&self, name: &str) -> RecordOptions {
        let mut how = self.clone();
        if !how.is_in_parts() {
            how.output = how.output.map(|dir| dir.join(name));
        }
        how.counters = how.counters.map(|file| {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let extension = file.extension().map(|e| format!(".{}", e.to_string_lossy()));
            file.with_file_name(format!("{stem}-{name}{}", extension.unwrap_or_default()))
        });
        how.volume = name.to_owned();
        how
    }

    pub(super) fn setup(&self, place: Transport) -> DeviceSetup {
        let keep = match (self.last, self.without_contents, &self.output) {
            // The observer keeps them.
            _ if self.is_in_parts() => KeepRequests::Last(1),
            (Some(most), ..) => KeepRequests::Last(most),
            (None, false, Some(_)) => KeepRequests::Contents,
            (None, _, Some(_)) => KeepRequests::Requests,
            (None, _, None) => KeepRequests::Last(1),
        };
        DeviceSetup { disk: self.disk, ..DeviceSetup::new(place, keep) }
    }

    pub(super) fn is_in_parts(&self) -> bool {
        !self.rotate.is_empty() || self.sample.is_some()
    }

    /// Refuses options that a recording in parts does not have.
    ///
    /// # Errors
    /// There is one: its name, and the reason.
    fn fit(&self, calls: bool) -> Result<()> {
        let all = [
            (self.force, "--force: each has a name of its own, so none is replaced"),
            (
                self.last.is_some(),
                "--last: parts bound the memory already, and old ones can be removed one by one",
            ),
            (
                !self.rules.is_empty(),
                "--rule: parts are for devices in use, whose writes are not delayed or dropped; \
                 take --rule without --rotate and --sample",
            ),
            (
                calls,
                "--calls: the requests of a call are sought in the whole recording at its end, when \
                 parts are no longer in memory; take --calls without --rotate and --sample",
            ),
        ];
        match all.into_iter().find(|(is_given, _)| self.is_in_parts() && *is_given) {
            Some((_, why)) => bail!("recordings in parts (--rotate, --sample) do not have {why}"),
            None => Ok(()),
        }
    }

    /// The recorder of a device with this name instead of a trace in memory, if that was asked for.
    /// Its observer is in `setup` then.
    pub(super) fn streaming(
        &self,
        device: &str,
        setup: &mut DeviceSetup,
    ) -> Result<Option<StreamingRecorder>> {
        if let Some(file) = &self.counters {
            let counters = Counters::new(file)?;
            setup.observer = Some(counters.observer(device));
            return Ok(Some(StreamingRecorder::Counters(counters)));
        }
        let Some(root) = self.output.as_deref().filter(|_| self.is_in_parts()) else {
            return Ok(None);
        };
        let parts = InParts::new(root, device);
        let disk = self.disk.map(|disk| disk.name);
        setup.observer = Some(parts.observer(
            &self.rotate,
            self.sample.as_ref(),
            !self.without_contents,
            disk,
        )?);
        Ok(Some(StreamingRecorder::Parts(parts)))
    }

    pub(super) fn wanted(&self) -> WatchOptions {
        let rows = self.output.is_some() && self.last.is_none();
        WatchOptions { rows, rules: self.rules.clone(), ..WatchOptions::default() }
    }

    /// Makes the directory of the trace before the recording. A directory with anything else in it
    /// than a trace that may be replaced is refused.
    pub(super) fn open(&self) -> Result<()> {
        let Some(dir) = &self.output else { return Ok(()) };
        self.fit(false)?;
        private::folder(dir).with_context(|| format!("making {}", dir.display()))?;
        if self.is_in_parts() {
            let probe = tempfile::NamedTempFile::new_in(dir);
            return probe.map(drop).with_context(|| format!("writing in {}", dir.display()));
        }
        let mut entries = std::fs::read_dir(dir)
            .with_context(|| format!("reading {}", dir.display()))?
            .flatten()
            .peekable();
        let is_empty = entries.peek().is_none();
        let foreign = entries.find(|entry| {
            let path = entry.path();
            path.extension().is_none_or(|extension| extension != "parquet")
        });
        match (is_empty, foreign) {
            (true, _) => {}
            (_, Some(entry)) => {
                let name = entry.file_name();
                bail!(
                    "{}: not a trace: it has {}; -o takes a new directory, or a trace with --force",
                    dir.display(),
                    name.to_string_lossy()
                );
            }
            (false, None) if !self.force => bail!(
                "{}: a trace exists already; --force replaces it, or use another directory",
                dir.display()
            ),
            (false, None) => {}
        }
        // If a file can be created now, one can be written later, as far as there is space.
        let probe = tempfile::NamedTempFile::new_in(dir);
        probe.map(drop).with_context(|| format!("writing in {}", dir.display()))
    }

    /// Prints the analysis, and keeps the trace if that was asked for.
    fn report(
        &self,
        recording: &Recording,
        seen: Option<&WatchedTraffic>,
        calls: &[StoredCall],
    ) -> Result<()> {
        match self.reported(recording, seen, calls)? {
            Some(text) => put(None, &text),
            None => Ok(()),
        }
    }

    /// The analysis as text or as JSON, if the file system is known. Keeps the trace if that was
    /// asked for.
    pub(super) fn reported(
        &self,
        recording: &Recording,
        seen: Option<&WatchedTraffic>,
        calls: &[StoredCall],
    ) -> Result<Option<String>> {
        let Some(seen) = seen else {
            let what = match &*self.volume {
                "" => "the device",
                volume => volume,
            };
            eprintln!("ordo: {what} had no known file system: its blocks have no names");
            let rows = ordo_annotate::rows::unclassified(&recording.trace);
            self.keep(recording, &rows, None, calls)?;
            return Ok(None);
        };
        self.keep(recording, &seen.rows, Some(seen), calls)?;
        if seen.delayed + seen.dropped > 0 {
            eprintln!("ordo: {} writes were delayed, {} dropped", seen.delayed, seen.dropped);
        }
        let (analysis, files) =
            (&seen.analysis, files::of(&recording.trace, &seen.rows, &seen.shares));
        let results = Results { analysis, files: &files, calls, requests: None };
        Ok(Some(results.text(self.json)?))
    }

    fn keep(
        &self,
        recording: &Recording,
        blocks: &[ordo_annotate::BlockRow],
        seen: Option<&WatchedTraffic>,
        calls: &[StoredCall],
    ) -> Result<()> {
        let Some(dir) = &self.output else { return Ok(()) };
        let none = ordo_annotate::Pieces::default();
        let (start, system) = seen.map_or((&none, "none"), |s| (&s.start, &*s.found.system));
        let found = seen.map(|s| &s.found);
        let shares = seen.map_or(&[][..], |s| &s.shares);
        let parts =
            store::Parts { trace: &recording.trace, blocks, shares, calls, start, system, found };
        wrote(dir, &store::write(dir, &parts)?);
        Ok(())
    }
}

/// Record what a kernel file system writes while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Makes the file system on a device in memory, mounts it, runs the command in it, unmounts it, and
prints what was written. The exit status is the command's. With this machine's kernel it needs root
and takes real time; with a guest kernel (--kernel guest: a Linux that runs as a process) it needs
no root, and time is virtual: the same seed gives the same trace. A line 'mark TEXT' that the
command writes to the file $ORDO_MARK is put into the trace; 'mark fsync INODE FIRST BYTES' notes
that an fsync has returned, for ordo analyze --expect.

With --image the file system of an image or a device is mounted, which must not be in use. All
partitions of a disk are recorded, each by itself (ordo trace attach --help).

Examples:
  ordo trace run --fs ext3 --mount-opts data=journal -- tar xf ~/linux.tar
  ordo trace run --fs xfs --size 1g -o three.trace -- \\
    sh -c 'for i in 1 2 3; do date >> log; sync log; done'
  ordo trace show three.trace
  ordo trace export three.trace --to perfetto -o three.json
  ordo trace run --fs ext4 --rule 'delay file_data 2s' -- sh -c 'date > a; sync'
  ordo trace run --fs ext4 --disk viking -- sh -c 'date > a; sync'
  ordo trace run --fs f2fs --kernel guest --disk nvme -- sh -c 'date > a; sleep 60; sync'
  ordo trace run --image vm.img --partition 2 -o vm -- sh -c 'date > a; sync'")]
pub struct Run {
    /// The file system: ext2, ext3, ext4, xfs, btrfs, jfs, reiserfs, f2fs, nilfs2, ntfs, ntfs3,
    /// vfat, exfat or bcachefs, if the kernel has it.
    #[arg(long, short, value_name = "NAME", required_unless_present = "image")]
    fs: Option<String>,
    /// Mount an existing file system, in an image or on a device, which is changed.
    /// Nothing is made.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["fs", "mkfs", "size", "start"])]
    image: Option<PathBuf>,
    /// The partition of the image to mount, if it has several with a file system.
    #[arg(long, value_name = "NUMBER", requires = "image", conflicts_with = "offset")]
    partition: Option<String>,
    /// The file system begins at this byte of the image, where no partition table leads to it.
    #[arg(long, value_name = "BYTES", requires = "image", value_parser = parse_bytes)]
    offset: Option<u64>,
    /// More arguments for mkfs.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// Mount options.
    #[arg(long = "mount-opts", value_name = "OPTIONS", default_value = "defaults")]
    mount_opts: String,
    /// Size of the device. The whole device may come to be in memory, and all written contents too.
    #[arg(long, default_value = "512m", value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    #[command(flatten)]
    how: RecordOptions,
    #[command(flatten)]
    guest: GuestOptions,
    /// Write the device's contents before the trace to this file.
    #[arg(long, value_name = "FILE")]
    start: Option<PathBuf>,
    /// Record the command's system calls about files too, and the requests that each waited for.
    /// Needs strace and -o.
    #[arg(long, requires = "output")]
    calls: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Serve a device over NBD, and record its requests, while a command runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
For virtual machines, and kernels on other machines. The command gets the server's URI in
$ORDO_URI. A line 'mark TEXT' that is written to the named pipe $ORDO_MARK is put into the trace.
A guest writes marks to a serial port whose other end is that pipe. The server ends with the
command. Needs no privileges. A disk with partitions is recorded by partition, as by ordo trace
attach; on an empty one a file system over the whole disk is recognised when the guest has made it.

Example:
  ordo trace serve disk.img --socket /tmp/disk.nbd -o boot.trace -- \\
    sh -c 'qemu-system-x86_64 -drive driver=nbd,server.type=unix,server.path=/tmp/disk.nbd \
      -serial stdio -serial file:$ORDO_MARK ...'")]
pub struct Serve {
    /// An image or a device. Without one the server uses memory.
    #[arg(required_unless_present = "size")]
    device: Option<PathBuf>,
    /// Use memory of this size.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with = "device")]
    size: Option<u64>,
    /// The file system begins at this byte of the device, where no partition table leads to it.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "device")]
    offset: Option<u64>,
    /// Listen on this Unix socket, which only its owner may use [default: one in a folder of the
    /// server's own].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on this loopback address instead, which every user of this machine can reach. The
    /// export's name in $ORDO_URI is a secret, without which nobody is served; a client that has it
    /// on its command line shows it to others.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket")]
    tcp: Option<String>,
    #[command(flatten)]
    how: RecordOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Run {
    fn system(&self) -> LiveSystem {
        LiveSystem {
            name: self.fs.clone().unwrap_or_default(),
            mkfs: self.mkfs.split_whitespace().map(str::to_owned).collect(),
            options: self.mount_opts.clone(),
            bytes: self.size / 4096 * 4096,
        }
    }

    fn keep_start(&self, recording: &Recording) -> Result<()> {
        let Some(path) = &self.start else { return Ok(()) };
        let wrote = private::file(path).and_then(|mut file| file.write_all(&recording.start));
        wrote.with_context(|| format!("writing {}", path.display()))
    }
}

/// The name of a device, for the folder of its recordings.
pub(super) fn name_of(place: &Transport) -> String {
    match place {
        Transport::Memory(_) | Transport::Temporary(_) => "memory".to_owned(),
        Transport::Path(path) => {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
    }
}

/// Records a run, and prints what was written.
///
/// # Errors
/// There is no device, or the file system cannot be made or mounted, or the files cannot be
/// written.
pub fn run(args: &Run) -> Result<ExitCode> {
    args.how.fit(args.calls)?;
    if let Some(image) = &args.image {
        need_root("ordo trace run", "makes a device and mounts it")?;
        return run_on(args, image);
    }
    let fs = args.fs.as_deref().unwrap_or_default();
    if let Some(kernel) = args.guest.kernel.choose("ordo trace run", fs)? {
        return run_in_guest(args, kernel);
    }
    let system = args.system();
    args.how.open()?;
    let signals = Signals::catch()?;
    let mut setup = args.how.setup(Transport::Memory(system.bytes));
    setup.keep_start = args.start.is_some();
    let calls = if args.calls { Some(Calls::new()?) } else { None };
    let streaming = args.how.streaming("memory", &mut setup)?;
    let mounted = KernelMount::new(&system, args.how.wanted(), setup)?;
    let dir = mounted.dir().to_owned();
    let status = carry_out(args, &signals, &mounted, calls.as_ref());
    if let Some(streaming) = streaming {
        args.keep_start(&mounted.finish_recording()?)?;
        put(None, &streaming.reported(args.how.json)?)?;
        return status;
    }
    let (recording, seen) = mounted.finish()?;
    args.keep_start(&recording)?;
    let calls = match &calls {
        Some(calls) => calls.finish(&dir, &recording, &seen.rows)?,
        None => Vec::new(),
    };
    args.how.report(&recording, Some(&seen), &calls)?;
    status
}

/// Records a run in a guest kernel, in virtual time.
fn run_in_guest(args: &Run, kernel: Kernel) -> Result<ExitCode> {
    let unfit = [
        (args.how.is_in_parts(), "--rotate and --sample, which are for devices in use"),
        (args.how.counters.is_some(), "--counters, which is for devices in use"),
    ];
    if let Some((_, option)) = unfit.into_iter().find(|(is_given, _)| *is_given) {
        bail!("a recording in a guest kernel does not have {option}; take --kernel host");
    }
    let system = args.system();
    args.how.open()?;
    let signals = Signals::catch()?;
    let mut setup = args.how.setup(Transport::Memory(system.bytes));
    setup.keep_start = args.start.is_some();
    let release = kernel.release().to_owned();
    let calls = if args.calls { Some(Calls::in_guest()?) } else { None };
    let command = calls.as_ref().map_or_else(|| args.command.clone(), |c| c.around(&args.command));
    let words: Vec<std::ffi::OsString> = args.command.iter().map(Into::into).collect();
    let mut guest = args.guest.setup(kernel, &signals, &words)?;
    guest.shared.extend(calls.as_ref().map(|calls| calls.folder().to_owned()));
    guest.is_rotational = args.how.disk.is_none_or(Model::is_rotational);
    let mounted = GuestMount::new(&system, args.how.wanted(), setup, guest)?;
    let dir = mounted.dir().to_owned();
    let words = command.into_iter().map(Into::into).collect();
    let status = guest::carry_out(&mounted, &signals, words);
    guest::tell_time(&release, mounted.seconds(), args.guest.seed);
    let (recording, seen) = match mounted.finish() {
        Ok(finished) => finished,
        // The reason why the guest ended is the better one.
        Err(error) => return Err(status.err().unwrap_or(error.into())),
    };
    args.keep_start(&recording)?;
    let calls = match (&calls, &seen) {
        (Some(calls), Some(seen)) => calls.finish(&dir, &recording, &seen.rows)?,
        _ => Vec::new(),
    };
    args.how.report(&recording, seen.as_ref(), &calls)?;
    status
}

/// Runs the command in the mounted file system.
fn carry_out(
    args: &Run,
    signals: &Signals,
    mounted: &KernelMount,
    calls: Option<&Calls>,
) -> Result<ExitCode> {
    let control = mounted.control().to_string_lossy().into_owned();
    let command = calls.map_or_else(|| args.command.clone(), |c| c.around(&args.command));
    signals.carry_out(&command, Some(mounted.dir()), &[("ORDO_MARK", &control)])
}

/// Records a run on a file system that is there already.
fn run_on(args: &Run, image: &Path) -> Result<ExitCode> {
    let volumes = volumes::find(image, args.offset)?;
    let chosen = volumes::choose(image, &volumes, args.partition.as_deref())?;
    let place = Transport::Path(image.to_owned());
    let (recorders, setup) = Recorder::of(&args.how, place.clone(), &name_of(&place), &volumes)?;
    let signals = Signals::catch()?;
    let calls = if args.calls { Some(Calls::new()?) } else { None };
    let number = chosen.and_then(|volume| volume.number);
    let mounted = KernelMount::of_device(&args.mount_opts, setup, number)?;
    let dir = mounted.dir().to_owned();
    let status = carry_out(args, &signals, &mounted, calls.as_ref());
    let recording = mounted.finish_recording()?;
    let mut texts = Vec::new();
    for recorder in &recorders {
        let is_mounted = chosen.is_none_or(|volume| volume.name == recorder.name);
        let of_calls = calls.as_ref().filter(|_| is_mounted);
        let find = |recording: &Recording, seen: Option<&WatchedTraffic>| match (of_calls, seen) {
            (Some(calls), Some(seen)) => calls.finish(&dir, recording, &seen.rows),
            _ => Ok(Vec::new()),
        };
        texts.push((&*recorder.name, recorder.reported(&recording, find)?));
    }
    put(None, &together(&texts, args.how.json)?)?;
    status
}

/// Serves a device.
///
/// # Errors
/// As `run`.
pub fn serve(args: &Serve) -> Result<ExitCode> {
    let (place, volumes) = match (&args.device, args.size) {
        (Some(path), _) => (Transport::Path(path.clone()), volumes::find(path, args.offset)?),
        (None, size) => (Transport::Memory(size.unwrap_or(0) / 4096 * 4096), Vec::new()),
    };
    let address = match (&args.socket, &args.tcp) {
        (Some(path), _) => Address::Unix(path.clone()),
        (None, Some(tcp)) => Address::Tcp(tcp.clone()),
        (None, None) => Address::Private,
    };
    if let Address::Tcp(at) = &address {
        eprintln!(
            "ordo: every user of this machine can reach {at}, and read and write the device with the secret in $ORDO_URI; \
             --socket is for its owner alone"
        );
    }
    let signals = Signals::catch()?;
    let (recorders, setup) = Recorder::of(&args.how, place.clone(), &name_of(&place), &volumes)?;
    let nbd = Nbd::serve(setup, &address)?;
    let (uri, control) = (nbd.uri().to_owned(), nbd.control().to_string_lossy().into_owned());
    let variables = [("ORDO_URI", &*uri), ("ORDO_MARK", &*control)];
    let status = signals.carry_out(&args.command, None, &variables);
    let recording = nbd.finish()?;
    put(None, &report_all(&recorders, &recording, args.how.json)?)?;
    status
}

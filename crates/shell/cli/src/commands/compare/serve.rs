//! A file system under a command in a guest: one of Ordo's on the guest's disks, or one of the
//! kernel's, passed through. Its calls are counted, and every change is noted with its time.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ordo_block::file::{FileAccess, FileDisk};
use ordo_block::{BlockDevice, Device};
use ordo_compare::kernel::{
    SERVE_ARGUMENT, ServeJob, ServeReport, WithThreads, mark, may_open_many,
};
use ordo_compare::lost::{NameChanges, Noted, Notes};
use ordo_fuse::dev::{self, Stop};
use ordo_fuse::kernel::{Attach, attach};
use ordo_fuse::{Handler, HandlerOptions};
use ordo_runtime::Runtime;
use ordo_systems::Mounted;
use ordo_vfs::FileSystem;
use ordo_vfs::host::HostDir;

use crate::args::{ChoiceList, OwnChoice, SystemChoice};
use crate::image::real_time;

/// The argument, after the job's file, of that process in the foreground.
const FOREGROUND: &str = "--foreground";
/// Written when the file system is mounted.
const MOUNTED: u8 = b'+';

/// Starts to serve what the job in a file says, and returns when it is mounted.
///
/// # Errors
/// It cannot be mounted.
pub fn begin(file: &Path) -> Result<()> {
    if std::env::args_os().nth(3).is_some_and(|word| word == FOREGROUND) {
        let job: ServeJob = serde_json::from_slice(&std::fs::read(file)?)?;
        return real_time(async |runtime| serve(&runtime, &job).await);
    }
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(SERVE_ARGUMENT)
        .arg(file)
        .arg(FOREGROUND)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the server")?;
    let mut said = [0];
    let read = child.stdout.take().expect("piped").read(&mut said)?;
    if read == 0 || said[0] != MOUNTED {
        return Err(anyhow!("the file system could not be mounted"));
    }
    Ok(())
}

async fn serve(runtime: &Runtime, job: &ServeJob) -> Result<()> {
    may_open_many().context("raising the limit of open files")?;
    let Some(name) = &job.system else {
        let dir = WithThreads::new(HostDir::open(&job.dir)?, runtime);
        return noted(runtime, job, dir, async || Ok(())).await;
    };
    let list = ChoiceList::parse(name).map_err(anyhow::Error::msg)?;
    let Some(SystemChoice::Own(own)) = list.0.first() else {
        return Err(anyhow!("{name}: not one of Ordo's"));
    };
    let OwnChoice { system, cleaning, dual, tuning, .. } = own;
    let open = |path| FileDisk::open(runtime, path, FileAccess::ReadWrite).map(|d| d.erase());
    let disks: Result<Vec<Device>, _> = job.devices.iter().map(|path| open(path)).collect();
    let mut options = job.options(*system);
    options.cleaning = cleaning.unwrap_or_default();
    options.dual = dual.unwrap_or_default();
    options.tuning = *tuning;
    let mounted: Mounted = system.mount(runtime, &disks?, &options).await?;
    let fs = mounted.fs().clone();
    noted(runtime, job, fs, async || mounted.unmount().await.context("unmounting")).await
}

/// Serves a file system until it is unmounted, and reports its calls.
async fn noted<F: FileSystem + 'static>(
    runtime: &Runtime,
    job: &ServeJob,
    fs: F,
    unmount: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let notes: Notes = Rc::new(RefCell::new(job.has_notes.then(NameChanges::default)));
    let fs = Noted::new(fs, runtime.clone(), notes.clone());
    let counts = fs.counts();
    let how = Attach {
        source: job.devices.first().cloned().unwrap_or_else(|| "ordo".into()),
        device: job.system.is_some(),
        read_only: false,
        allow_other: true,
        flags: Vec::new(),
    };
    let attached = attach(&how, &job.dir)?;
    let options = HandlerOptions {
        write_back: false,
        names_only: false,
        acl: false,
        synchronous: false,
        bsd_groups: false,
        big_endian: false,
        ids: Default::default(),
        io_uring: false,
        timeout: 0,
        writer: None,
    };
    let handler = Handler::new(fs, options, Rc::new(|text: &str| eprintln!("ordo: {text}")));
    std::io::stdout().write_all(&[MOUNTED])?;
    std::io::stdout().flush()?;
    mark(&ServeJob::clock(runtime.now()));
    attached.widen_read_ahead();
    let device = Arc::new(attached.device.try_clone()?);
    let served = dev::serve(runtime, &device, &Rc::new(handler), &Rc::new(Stop::default())).await?;
    let unmounted = unmount().await;
    served.send(runtime).await;
    let report = ServeReport {
        changes: notes.take().unwrap_or_default(),
        fsync_ns: counts.fsync_ns.take(),
        written: counts.written.get(),
        error: unmounted.err().map(|error| format!("{error:#}")),
    };
    let whole = job.report.with_extension("part");
    std::fs::write(&whole, serde_json::to_vec(&report)?)?;
    Ok(std::fs::rename(whole, &job.report)?)
}

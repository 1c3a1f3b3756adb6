//! Carrying out planned calls.

use std::cell::{Cell, RefCell};

use ordo_runtime::sync::{Notify, buffer_unordered};
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, path};
use rustc_hash::FxHashMap;

use super::super::files::{self, Bytes};
use super::super::tally::Tally;
use super::super::{Doing, Run, WorkloadError, WorkloadStage};
use super::plan::{KINDS, Plan, PlannedCall, Step};

/// The most bytes of one call to the file system.
const UNIT: u64 = 1 << 20;

/// Makes what exists at the start, and carries out the calls.
pub(super) async fn run<S: WorkloadStage>(
    plan: &Plan,
    think: bool,
    run: &mut Run<'_, S>,
    seed: u64,
) -> Result<(), WorkloadError> {
    let bytes = Bytes::new(seed, UNIT as usize);
    let objects = prepare(plan, run, &bytes).await?;
    run.drop_caches().await?;
    run.begin("calls", plan.calls.len() as u64);
    let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
    let waited_for = plan.calls.iter().flat_map(|call| &call.waits);
    let signal = |call: &usize| (*call, Notify::new("a recorded call", *call as u64));
    let replay = Replay {
        fs,
        runtime,
        bytes: &bytes,
        think,
        objects: RefCell::new(objects),
        opens: RefCell::default(),
        done: (0..plan.calls.len()).map(|_| Cell::new(false)).collect(),
        signals: waited_for.map(signal).collect(),
        ended: RefCell::new(vec![false; plan.processes.len()]),
        all_ended: Cell::new(0),
        gate: Notify::new("the end of recorded processes", 0),
        made: Cell::new(0),
        counts: RefCell::new([Tally::default(); KINDS.len()]),
    };
    let log = RefCell::new(&mut run.log);
    let processes = plan.processes.iter().map(|(calls, place)| {
        let (replay, log) = (&replay, &log);
        async move {
            for number in calls {
                let call = &plan.calls[*number];
                replay.wait(call).await;
                let done = replay.call(*number, call).await;
                done.doing(|| format!("recorded call {number}: {:?}", call.step))?;
                let (operations, bytes) = Tally::all(&*replay.counts.borrow());
                log.borrow_mut().reached(operations, bytes);
            }
            replay.end(*place);
            Ok::<_, WorkloadError>(())
        }
    });
    buffer_unordered(plan.width(), processes, |_, result| result).await?;
    replay.close_all().await.doing(|| "closing files".into())?;
    let (counts, made) = (replay.counts.into_inner(), replay.made.get());
    run.log.made(made);
    let mixed = KINDS.iter().zip(counts).filter(|(_, tally)| tally.operations > 0);
    run.log.mix(mixed.map(|(name, tally)| tally.entry(*name)).collect());
    run.end();
    Ok(())
}

/// Makes the files and directories that exist at the start. Returns the inodes of the objects that
/// exist.
async fn prepare<S: WorkloadStage>(
    plan: &Plan,
    run: &mut Run<'_, S>,
    bytes: &Bytes,
) -> Result<Vec<Option<Ino>>, WorkloadError> {
    let mut objects = vec![None; plan.objects];
    run.begin("make the files", plan.initial.len() as u64);
    for (name, initial) in &plan.initial {
        let doing = || format!("making {name}");
        let ino = match initial.size {
            None => {
                let made = path::make_directories(run.fs(), name.as_bytes(), 0o755).await;
                made.doing(doing)?.ino
            }
            Some(size) => make_file(run.fs(), name, size, bytes).await.doing(doing)?,
        };
        objects[initial.object] = Some(ino);
        run.log.made(1);
        run.step(initial.size.unwrap_or(0));
    }
    run.fs().sync().await.doing(|| "making the files durable".into())?;
    run.end();
    Ok(objects)
}

async fn make_file<F: FileSystem>(fs: &F, name: &str, size: u64, bytes: &Bytes) -> FsResult<Ino> {
    let (dir, last) = path::parent(fs, name.as_bytes()).await?;
    let file = fs.create(dir, last, &NewNode::file(0o644)).await?.ino;
    write(fs, file, 0, size, bytes).await?;
    Ok(file)
}

/// Writes `len` bytes at `at`.
async fn write<F: FileSystem>(fs: &F, file: Ino, at: u64, len: u64, bytes: &Bytes) -> FsResult<()> {
    for done in (0..len).step_by(UNIT as usize) {
        let piece = bytes.get((len - done).min(UNIT));
        files::write(fs, file, at + done, piece, piece.len()).await?;
    }
    Ok(())
}

/// Calls under way.
struct Replay<'r, F> {
    fs: &'r F,
    runtime: &'r Runtime,
    bytes: &'r Bytes,
    think: bool,
    /// The inodes of the objects that exist.
    objects: RefCell<Vec<Option<Ino>>>,
    /// How often each object is open.
    opens: RefCell<FxHashMap<usize, u64>>,
    done: Vec<Cell<bool>>,
    /// For each call for which others wait.
    signals: FxHashMap<usize, Notify>,
    /// For each process, in the order of the recorded ends, whether it has ended; and how many have
    /// from the first on.
    ended: RefCell<Vec<bool>>,
    all_ended: Cell<usize>,
    gate: Notify,
    /// The number of files, links and directories that were made.
    made: Cell<u64>,
    counts: RefCell<[Tally; KINDS.len()]>,
}

impl<F: FileSystem> Replay<'_, F> {
    async fn wait(&self, call: &PlannedCall) {
        while self.all_ended.get() < call.gate {
            self.gate.notified().await;
        }
        for other in &call.waits {
            while !self.done[*other].get() {
                self.signals[other].notified().await;
            }
        }
        if self.think && call.think > 0 {
            self.runtime.sleep(Duration::from_nanos(call.think)).await;
        }
    }

    async fn call(&self, number: usize, call: &PlannedCall) -> FsResult<()> {
        let begun = self.runtime.now();
        let bytes = self.step(&call.step).await?;
        let nanos = self.runtime.now().as_nanos() - begun.as_nanos();
        self.counts.borrow_mut()[call.step.kind()].add(bytes, nanos);
        self.done[number].set(true);
        if let Some(signal) = self.signals.get(&number) {
            signal.notify_all();
        }
        Ok(())
    }

    /// A process has made its last call.
    fn end(&self, place: usize) {
        let mut ended = self.ended.borrow_mut();
        ended[place] = true;
        let mut all = self.all_ended.get();
        while ended.get(all) == Some(&true) {
            all += 1;
        }
        if all > self.all_ended.replace(all) {
            self.gate.notify_all();
        }
    }

    fn count_made(&self) {
        self.made.set(self.made.get() + 1);
    }

    fn ino(&self, object: usize) -> FsResult<Ino> {
        self.objects.borrow()[object].ok_or_else(|| Errno::NotFound.into())
    }

    /// Carries out a step. Returns the bytes that it read and wrote.
    async fn step(&self, step: &Step) -> FsResult<u64> {
        let fs = self.fs;
        match step {
            Step::Missing { path } => match path::lookup(fs, path.as_bytes()).await {
                Err(error) if !matches!(error.errno, Errno::NotFound | Errno::NotDir) => Err(error),
                _ => Ok(0),
            },
            Step::Open { path, object, creates, truncates } => {
                self.open(path, *object, *creates, *truncates).await
            }
            Step::Close { object } => self.close(*object).await,
            Step::Read { object, at, len } => self.read(self.ino(*object)?, *at, *len).await,
            Step::Write { object, at, len } => {
                write(fs, self.ino(*object)?, *at, *len, self.bytes).await?;
                Ok(*len)
            }
            Step::Copy { from, from_at, to, at, len } => {
                let read = self.read(self.ino(*from)?, *from_at, *len).await?;
                write(fs, self.ino(*to)?, *at, *len, self.bytes).await?;
                Ok(read + len)
            }
            Step::Sync { object, data } => {
                let ino = self.ino(*object)?;
                let done = if *data { fs.fdatasync(ino).await } else { fs.fsync(ino).await };
                done.map(|()| 0)
            }
            Step::SyncAll => fs.sync().await.map(|()| 0),
            Step::Truncate { object, size } => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                fs.setattr(self.ino(*object)?, &set).await.map(|_| 0)
            }
            _ => self.change_name(step).await.map(|()| 0),
        }
    }

    async fn change_name(&self, step: &Step) -> FsResult<()> {
        let fs = self.fs;
        match step {
            Step::Remove { path, is_directory } => {
                let (dir, name) = path::parent(fs, path.as_bytes()).await?;
                if *is_directory { fs.rmdir(dir, name).await } else { fs.unlink(dir, name).await }
            }
            Step::MakeDirectory { path, object } => {
                let (dir, name) = path::parent(fs, path.as_bytes()).await?;
                let made = fs.create(dir, name, &NewNode::directory(0o755)).await?;
                self.count_made();
                self.objects.borrow_mut()[*object] = Some(made.ino);
                Ok(())
            }
            Step::Rename { from, to } => {
                let (from_dir, from) = path::parent(fs, from.as_bytes()).await?;
                let (to_dir, to) = path::parent(fs, to.as_bytes()).await?;
                fs.rename(from_dir, from, to_dir, to, RenameMode::Replace).await
            }
            Step::Link { object, path } => {
                let (dir, name) = path::parent(fs, path.as_bytes()).await?;
                fs.link(self.ino(*object)?, dir, name).await?;
                self.count_made();
                Ok(())
            }
            Step::Symlink { path, target } => {
                let (dir, name) = path::parent(fs, path.as_bytes()).await?;
                let target = target.as_ref().map_or("target".into(), |to| format!("/{to}"));
                fs.create(dir, name, &NewNode::symlink(target.as_bytes())).await?;
                self.count_made();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn open(
        &self,
        path: &str,
        object: usize,
        creates: bool,
        truncates: bool,
    ) -> FsResult<u64> {
        let fs = self.fs;
        let found = match path::lookup(fs, path.as_bytes()).await {
            Err(error) if creates && error.errno == Errno::NotFound => {
                let (dir, name) = path::parent(fs, path.as_bytes()).await?;
                let made = fs.create(dir, name, &NewNode::file(0o644)).await?;
                self.count_made();
                made
            }
            found => found?,
        };
        self.objects.borrow_mut()[object] = Some(found.ino);
        if truncates && found.size > 0 {
            fs.setattr(found.ino, &SetAttr { size: Some(0), ..SetAttr::default() }).await?;
        }
        if found.file_type != FileType::Directory {
            fs.open(found.ino).await?;
            *self.opens.borrow_mut().entry(object).or_default() += 1;
        }
        Ok(0)
    }

    async fn close(&self, object: usize) -> FsResult<u64> {
        let is_open = match self.opens.borrow_mut().get_mut(&object) {
            Some(opens) if *opens > 0 => {
                *opens -= 1;
                true
            }
            _ => false,
        };
        if is_open {
            self.fs.close(self.ino(object)?).await?;
        }
        Ok(0)
    }

    /// Closes what the calls left open.
    async fn close_all(&self) -> FsResult<()> {
        let mut open: Vec<(usize, u64)> =
            self.opens.borrow().iter().map(|(o, n)| (*o, *n)).collect();
        open.sort_unstable();
        for (object, opens) in open {
            for _ in 0..opens {
                self.close(object).await?;
            }
        }
        Ok(())
    }

    async fn read(&self, file: Ino, at: u64, len: u64) -> FsResult<u64> {
        let mut buf = vec![0; len.min(UNIT) as usize];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(UNIT) as usize;
            let n = self.fs.read(file, at + done, &mut buf[..piece]).await?;
            if n == 0 {
                break;
            }
            done += n as u64;
        }
        Ok(done)
    }
}

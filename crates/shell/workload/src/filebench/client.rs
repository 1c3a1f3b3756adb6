//! A client: one instance of a thread, which carries out its flowops one after another, again and
//! again.
//!
//! Facts about each flowop are from filebench 1.5's `flowop_library.c`. The differences are in
//! `docs/filebench.md`.

use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Duration, Time};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::super::{Doing, WorkloadError, files};
use super::amount::Amount;
use super::background::Background;
use super::error::WmlProblem;
use super::fileset::Wanted;
use super::model::{Action, Finish, Flowop, Target, Transfer};
use super::resolve::{DESCRIPTORS, IO_MOST};
use super::shared::Shared;
use super::syntax::QuitMode;

/// The steps that may take no time before some passes anyway.
const IDLE_STEPS: u32 = 16;

/// An open file.
#[derive(Clone, Copy)]
struct Handle {
    fileset: usize,
    file: usize,
    ino: Ino,
    /// The place of the next sequential read or write, in bytes.
    position: u64,
    /// Whether every write is durable before it returns.
    dsync: bool,
    /// Whether this client has removed the file.
    is_removed: bool,
}

/// The result of a flowop.
enum Step {
    /// An operation on the file system was done, with this many bytes.
    Done(u64),
    /// Nothing is to be counted.
    Nothing,
    /// The client ends.
    Ends,
}

/// A client.
pub(super) struct Client<'s, 'a, 'l, F> {
    shared: &'s Shared<'a, 'l, F>,
    thread: usize,
    /// Its number among the clients of its thread.
    number: usize,
    random: Pcg64Mcg,
    descriptors: Vec<Option<Handle>>,
    /// The next descriptor of a flowop that goes round over all.
    next_descriptor: usize,
    /// The client's own next file of each fileset.
    next_files: Vec<usize>,
    /// Operations and bytes of each flowop.
    counts: Vec<(u64, u64)>,
    buffer: Vec<u8>,
    /// The steps since time last went on.
    idle_steps: u32,
}

impl<'s, 'a, 'l, F: FileSystem> Client<'s, 'a, 'l, F> {
    pub(super) fn new(
        shared: &'s Shared<'a, 'l, F>,
        (thread, number): (usize, usize),
        random: Pcg64Mcg,
    ) -> Client<'s, 'a, 'l, F> {
        Client {
            shared,
            thread,
            number,
            random,
            descriptors: vec![None; DESCRIPTORS],
            next_descriptor: 0,
            next_files: vec![0; shared.filesets.len()],
            counts: vec![(0, 0); shared.model.threads[thread].flowops.len()],
            buffer: Vec::new(),
            idle_steps: 0,
        }
    }

    /// Carries out flowops until the run is over.
    ///
    /// # Errors
    /// The file system's, and a flowop that cannot be carried out.
    pub(super) async fn run(mut self) -> Result<(), WorkloadError> {
        let shared = self.shared;
        let mut background = Background::new();
        let flowops = &shared.model.threads[self.thread].flowops;
        while !flowops.is_empty() && !shared.is_over() {
            if !self.round(&mut background).await? {
                break;
            }
            self.pass_time(shared.runtime.now()).await;
        }
        background.until(0).await;
        background.result().doing(|| "an asynchronous write".into())?;
        for handle in std::mem::take(&mut self.descriptors).into_iter().flatten() {
            self.close(handle).await.doing(|| "closing at the end".into())?;
        }
        Ok(())
    }

    /// Lets a microsecond pass after many steps that took none, so that every run comes to its end.
    /// `begun` is the beginning of the last step.
    async fn pass_time(&mut self, begun: Time) {
        let runtime = self.shared.runtime;
        self.idle_steps = if runtime.now() == begun { self.idle_steps + 1 } else { 0 };
        if self.idle_steps >= IDLE_STEPS {
            self.idle_steps = 0;
            runtime.sleep(Duration::from_micros(1)).await;
        }
    }

    /// Carries out each flowop once, or as often as it says. Returns false if the client ends.
    async fn round(&mut self, background: &mut Background<'s>) -> Result<bool, WorkloadError> {
        let shared = self.shared;
        for (number, flowop) in shared.model.threads[self.thread].flowops.iter().enumerate() {
            for _ in 0..flowop.iters.sample(&mut self.random) {
                if shared.is_over() {
                    return Ok(false);
                }
                let begun = shared.runtime.now();
                let step = match &flowop.action {
                    Action::AsyncWrite(target, transfer) => {
                        let write = self.async_write(flowop, *target, transfer, background);
                        write.await?
                    }
                    Action::AsyncWait => {
                        background.until(background.count() / 2).await;
                        Step::Nothing
                    }
                    _ => background.beside(self.step(flowop)).await?,
                };
                background.result().doing(|| format!("flowop {}", flowop.name))?;
                match step {
                    Step::Done(bytes) => {
                        let (operations, all) = self.counts[number];
                        self.counts[number] = (operations + 1, all + bytes);
                        shared.count((self.thread, number), bytes, begun);
                    }
                    Step::Nothing => {}
                    Step::Ends => return Ok(false),
                }
                // A directory of the host never waits, so clients take turns there.
                if !shared.runtime.is_simulated() {
                    shared.runtime.yield_now().await;
                }
                self.pass_time(begun).await;
            }
        }
        Ok(true)
    }

    /// Carries out one flowop.
    async fn step(&mut self, flowop: &Flowop) -> Result<Step, WorkloadError> {
        let shared = self.shared;
        let doing = || format!("flowop {} of client {}", flowop.name, self.number);
        match &flowop.action {
            Action::Open(target) => self.open(flowop, *target, Wanted::Existing).await,
            Action::Create(target) => self.open(flowop, *target, Wanted::Missing).await,
            Action::Close(target) => self.close_descriptor(flowop, *target).await,
            Action::Delete(target) => self.delete(flowop, *target).await,
            Action::Stat(target) => self.stat(flowop, *target).await,
            Action::Fsync(target) => {
                let (handle, _) = self.handle(flowop, target.fd)?;
                shared.fs.fsync(handle.ino).await.doing(doing)?;
                Ok(Step::Done(0))
            }
            Action::FsyncSet(fileset) => {
                let open = self.descriptors.iter().flatten();
                for handle in open.filter(|handle| handle.fileset == *fileset) {
                    shared.fs.fsync(handle.ino).await.doing(doing)?;
                }
                Ok(Step::Done(0))
            }
            Action::SemBlock(block, value) => {
                let value = value.sample(&mut self.random);
                shared.take(*block, self.number, value).await;
                Ok(Step::Nothing)
            }
            Action::SemPost { to, value, blocking } => {
                let value = value.sample(&mut self.random);
                for block in to {
                    shared.post(*block, value, *blocking).await;
                }
                Ok(Step::Nothing)
            }
            Action::Hog(value) => {
                let value = value.sample(&mut self.random);
                self.compute(value).await;
                Ok(Step::Nothing)
            }
            Action::Delay(seconds) => {
                let nanos = seconds.sample(&mut self.random).saturating_mul(1_000_000_000);
                let until = shared.runtime.now().as_nanos().saturating_add(nanos);
                shared.sleep_until(Time::from_nanos(until)).await;
                Ok(Step::Nothing)
            }
            Action::EventLimit => {
                shared.event().await;
                Ok(Step::Nothing)
            }
            Action::Finish(finish) => Ok(self.finish(*finish)),
            _ => self.transfer(flowop).await,
        }
    }

    /// Carries out a flowop that reads or writes.
    async fn transfer(&mut self, flowop: &Flowop) -> Result<Step, WorkloadError> {
        let (Action::Read(target, _)
        | Action::Write(target, _)
        | Action::ReadWhole(target, _)
        | Action::WriteWhole(target, ..)
        | Action::Append(target, _)
        | Action::AppendRandom(target, _)) = &flowop.action
        else {
            unreachable!("the caller has the other flowops");
        };
        let Some(fd) = self.opened(flowop, *target).await? else { return Ok(Step::Ends) };
        let done = match &flowop.action {
            Action::Read(_, transfer) => {
                let (at, length) = self.range(flowop, fd, transfer)?;
                self.read(fd, at, length).await
            }
            Action::Write(_, transfer) => {
                let (at, length) = self.range(flowop, fd, transfer)?;
                self.write(fd, at, length, length, target.dsync).await
            }
            Action::ReadWhole(_, iosize) => {
                let unit = self.unit(iosize, fd);
                self.read_whole(fd, unit).await
            }
            Action::WriteWhole(_, iosize, source) => {
                let unit = self.unit(iosize, fd);
                let size = self.planned(flowop, if *source == 0 { fd } else { *source })?;
                self.write(fd, None, size, unit, target.dsync).await
            }
            Action::Append(_, iosize) => {
                let length = iosize.sample(&mut self.random);
                self.append(fd, length, target.dsync).await
            }
            Action::AppendRandom(_, iosize) => {
                let most = iosize.sample(&mut self.random).max(1);
                let length = self.random.random_range(0..most);
                self.append(fd, length, target.dsync).await
            }
            _ => unreachable!("the caller has the other flowops"),
        };
        let doing = || format!("flowop {} of client {}", flowop.name, self.number);
        done.doing(doing).map(Step::Done)
    }

    fn handle(&self, flowop: &Flowop, fd: usize) -> Result<(Handle, usize), WorkloadError> {
        self.descriptors[fd].map(|handle| (handle, fd)).ok_or_else(|| {
            let problem = WmlProblem::NotOpen { flowop: flowop.name.clone(), fd };
            self.shared.fault(flowop, problem)
        })
    }

    /// The descriptor of a flowop that reads or writes. A file is opened if the descriptor has
    /// none. `None` if the client ends.
    async fn opened(
        &mut self,
        flowop: &Flowop,
        target: Target,
    ) -> Result<Option<usize>, WorkloadError> {
        let mut target = target;
        if target.fd == 0 && target.rotates {
            self.next_descriptor = (self.next_descriptor + DESCRIPTORS - 1) % DESCRIPTORS;
            target.fd = self.next_descriptor;
        }
        if self.descriptors[target.fd].is_none() {
            if target.fileset.is_none() {
                self.handle(flowop, target.fd)?;
            }
            if let Step::Ends = self.open(flowop, target, Wanted::Existing).await? {
                return Ok(None);
            }
        }
        Ok(Some(target.fd))
    }

    /// Opens a file that exists, or creates one that does not.
    async fn open(
        &mut self,
        flowop: &Flowop,
        target: Target,
        wanted: Wanted,
    ) -> Result<Step, WorkloadError> {
        let shared = self.shared;
        let Target { fd, dsync, .. } = target;
        if self.descriptors[fd].is_some() {
            let problem = WmlProblem::IsOpen { flowop: flowop.name.clone(), fd };
            return Err(shared.fault(flowop, problem));
        }
        let fileset = target.fileset.expect("a flowop that opens has a fileset");
        let own = target.rotates.then_some(&mut self.next_files[fileset]);
        let Some(file) = shared.pick(fileset, wanted, own).await else {
            if !shared.is_over() {
                shared.no_file(flowop, fileset, wanted)?;
            }
            return Ok(Step::Ends);
        };
        let files = &shared.filesets[fileset];
        let (dir, name) = files.place(file);
        let made = wanted == Wanted::Missing;
        let found = match made {
            true => shared.fs.create(dir, &name, &NewNode::file(0o644)).await,
            false => shared.fs.lookup(dir, &name).await,
        };
        let doing = || format!("flowop {} of client {}", flowop.name, self.number);
        let ino = found.doing(doing)?.ino;
        shared.fs.open(ino).await.doing(doing)?;
        if made {
            files.exists(file, true);
            shared.made(1);
        }
        files.opened(file);
        files.release(file);
        let handle = Handle { fileset, file, ino, position: 0, dsync, is_removed: false };
        self.descriptors[fd] = Some(handle);
        Ok(Step::Done(0))
    }

    async fn close_descriptor(
        &mut self,
        flowop: &Flowop,
        target: Target,
    ) -> Result<Step, WorkloadError> {
        let (handle, fd) = self.handle(flowop, target.fd)?;
        self.descriptors[fd] = None;
        self.close(handle).await.doing(|| format!("flowop {}", flowop.name))?;
        Ok(Step::Done(0))
    }

    async fn close(&self, handle: Handle) -> FsResult<()> {
        if !handle.is_removed {
            self.shared.filesets[handle.fileset].closed(handle.file);
        }
        self.shared.fs.close(handle.ino).await
    }

    /// Removes the file of an open descriptor, or any file. A file that another client has open
    /// stays.
    async fn delete(&mut self, flowop: &Flowop, target: Target) -> Result<Step, WorkloadError> {
        let shared = self.shared;
        let held = self.descriptors[target.fd].filter(|_| target.fd > 0);
        let (fileset, file) = match held {
            Some(Handle { is_removed: true, .. }) => return Ok(Step::Nothing),
            Some(handle) => (handle.fileset, handle.file),
            None => match self.any_file(flowop, target).await? {
                Some(chosen) => chosen,
                None => return Ok(Step::Ends),
            },
        };
        let files = &shared.filesets[fileset];
        // Another client may be opening the file.
        while held.is_some() && !files.grab(file) {
            if shared.is_over() {
                return Ok(Step::Ends);
            }
            shared.wait_for(files.changed()).await;
        }
        if files.open_count(file) > u32::from(held.is_some()) {
            files.release(file);
            return Ok(Step::Nothing);
        }
        let (dir, name) = files.place(file);
        if let Some(handle) = &mut self.descriptors[target.fd]
            && held.is_some()
        {
            handle.is_removed = true;
            files.detach(file);
        }
        let gone = shared.fs.unlink(dir, &name).await;
        gone.doing(|| format!("flowop {} of client {}", flowop.name, self.number))?;
        files.exists(file, false);
        files.release(file);
        Ok(Step::Done(0))
    }

    /// Chooses an existing file for a flowop without a descriptor, and makes it busy. `None` if the
    /// client ends.
    async fn any_file(
        &mut self,
        flowop: &Flowop,
        target: Target,
    ) -> Result<Option<(usize, usize)>, WorkloadError> {
        let shared = self.shared;
        let Some(fileset) = target.fileset else {
            self.handle(flowop, target.fd)?;
            return Ok(None);
        };
        if let Some(file) = shared.pick(fileset, Wanted::Existing, None).await {
            return Ok(Some((fileset, file)));
        }
        if !shared.is_over() {
            shared.no_file(flowop, fileset, Wanted::Existing)?;
        }
        Ok(None)
    }

    async fn stat(&mut self, flowop: &Flowop, target: Target) -> Result<Step, WorkloadError> {
        let shared = self.shared;
        let doing = || format!("flowop {}", flowop.name);
        if let Some(handle) = self.descriptors[target.fd].filter(|_| target.fd > 0) {
            shared.fs.getattr(handle.ino).await.doing(doing)?;
            return Ok(Step::Done(0));
        }
        let Some((fileset, file)) = self.any_file(flowop, target).await? else {
            return Ok(Step::Ends);
        };
        let (dir, name) = shared.filesets[fileset].place(file);
        shared.fs.lookup(dir, &name).await.doing(doing)?;
        shared.filesets[fileset].release(file);
        Ok(Step::Done(0))
    }

    /// The bytes of one call: those of the flowop; where it gives none, the whole file.
    fn unit(&mut self, iosize: &Amount, fd: usize) -> u64 {
        let handle = self.descriptors[fd].expect("the caller has opened it");
        let whole = self.shared.filesets[handle.fileset].entry(handle.file).size;
        let unit = match iosize {
            Amount::Fixed(0) => whole,
            amount => amount.sample(&mut self.random),
        };
        unit.clamp(1, IO_MOST)
    }

    /// The size that a whole write gives to the file of a descriptor.
    fn planned(&self, flowop: &Flowop, fd: usize) -> Result<u64, WorkloadError> {
        let (handle, _) = self.handle(flowop, fd)?;
        Ok(self.shared.filesets[handle.fileset].entry(handle.file).size)
    }

    /// The place and the length of a read or a write. `None` as the place is the next one.
    fn range(
        &mut self,
        flowop: &Flowop,
        fd: usize,
        transfer: &Transfer,
    ) -> Result<(Option<u64>, u64), WorkloadError> {
        let iosize = transfer.iosize.sample(&mut self.random).max(1);
        if !transfer.random {
            return Ok((None, iosize));
        }
        let within = match transfer.workingset {
            0 => self.planned(flowop, fd)?,
            bytes => bytes,
        };
        if iosize > within {
            let flowop_name = flowop.name.clone();
            let problem = WmlProblem::TooShort { flowop: flowop_name, iosize, within };
            return Err(self.shared.fault(flowop, problem));
        }
        let places = (within - iosize) / iosize;
        Ok((Some(self.random.random_range(0..=places) * iosize), iosize))
    }

    /// Reads once. A sequential read at the end begins anew.
    async fn read(&mut self, fd: usize, at: Option<u64>, length: u64) -> FsResult<u64> {
        let handle = self.descriptors[fd].as_mut().expect("the caller has opened it");
        self.buffer.resize(length as usize, 0);
        let place = at.unwrap_or(handle.position);
        let n = self.shared.fs.read(handle.ino, place, &mut self.buffer).await? as u64;
        if at.is_none() {
            handle.position = if n == 0 { 0 } else { place + n };
        }
        Ok(n)
    }

    /// Reads a file from its start until there is no more.
    async fn read_whole(&mut self, fd: usize, unit: u64) -> FsResult<u64> {
        let handle = self.descriptors[fd].expect("the caller has opened it");
        let files = &self.shared.filesets[handle.fileset];
        let mut at = 0;
        loop {
            // A buffer that is longer than the rest of the file would be for nothing.
            let rest = files.entry(handle.file).length.saturating_sub(at);
            self.buffer.resize(unit.min(rest.max(1)) as usize, 0);
            match self.shared.fs.read(handle.ino, at, &mut self.buffer).await? {
                0 => return Ok(at),
                n => at += n as u64,
            }
        }
    }

    /// Writes `length` bytes in calls of `unit` bytes, from a place or from the next one on.
    async fn write(
        &mut self,
        fd: usize,
        at: Option<u64>,
        length: u64,
        unit: u64,
        dsync: bool,
    ) -> FsResult<u64> {
        let shared = self.shared;
        let handle = self.descriptors[fd].as_mut().expect("the caller has opened it");
        let mut place = at.unwrap_or(handle.position);
        let end = place + length;
        while place < end {
            let piece = shared.data.get((end - place).min(unit));
            files::write(shared.fs, handle.ino, place, piece, piece.len()).await?;
            if dsync || handle.dsync {
                shared.fs.fsync(handle.ino).await?;
            }
            place += piece.len() as u64;
        }
        if at.is_none() {
            handle.position = place;
        }
        shared.filesets[handle.fileset].grow(handle.file, place);
        Ok(length)
    }

    /// Appends in one call.
    async fn append(&mut self, fd: usize, length: u64, dsync: bool) -> FsResult<u64> {
        if length == 0 {
            return Ok(0);
        }
        let handle = self.descriptors[fd].expect("the caller has opened it");
        let end = self.shared.filesets[handle.fileset].extend(handle.file, length);
        self.write(fd, Some(end), length, length, dsync).await
    }

    /// Starts a write that goes on by itself.
    async fn async_write(
        &mut self,
        flowop: &Flowop,
        target: Target,
        transfer: &Transfer,
        background: &mut Background<'s>,
    ) -> Result<Step, WorkloadError> {
        let opened = background.beside(self.opened(flowop, target)).await?;
        let Some(fd) = opened else { return Ok(Step::Ends) };
        let (at, length) = self.range(flowop, fd, transfer)?;
        let handle = self.descriptors[fd].expect("it was opened");
        let shared = self.shared;
        let at = at.expect("asynchronous writes are random");
        background.start(async move {
            let piece = shared.data.get(length);
            files::write(shared.fs, handle.ino, at, piece, piece.len()).await?;
            shared.filesets[handle.fileset].grow(handle.file, at + length);
            if target.dsync || handle.dsync {
                shared.fs.fsync(handle.ino).await?;
            }
            Ok(())
        });
        // The write begins now, not with the client's next flowop.
        background.beside(async {}).await;
        Ok(Step::Done(length))
    }

    /// Computes for as long as `stores` stores to memory take: a nanosecond each on a processor of
    /// the 2020s, and in proportion on the models of older ones.
    async fn compute(&self, stores: u64) {
        let runtime = self.shared.runtime;
        if runtime.is_simulated() {
            let slower = runtime.cpu().model().touch_ns;
            let nanos = u128::from(stores) * u128::from(slower)
                / u128::from(CpuModel::MODERN.touch_ns.max(1));
            runtime.cpu().compute(u64::try_from(nanos).unwrap_or(u64::MAX / 4));
            runtime.settle().await;
        } else {
            for store in 0..stores {
                std::hint::black_box(store);
            }
        }
    }

    /// Whether a count has been reached. The end of a run that is there for its time ends it for
    /// all.
    fn finish(&self, finish: Finish) -> Step {
        let (operations, bytes) = match finish.of {
            Some(flowop) => self.counts[flowop],
            None => self.shared.totals.get(),
        };
        let is_reached = match finish.bytes {
            true => bytes > finish.at,
            false => operations >= finish.at,
        };
        if !is_reached {
            return Step::Nothing;
        }
        if self.shared.model.quit != QuitMode::AllDone {
            self.shared.finish();
        }
        Step::Ends
    }
}

//! The device that the kernel or an NBD client uses: storage, rules about writes, a tap.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ordo_block::file::{FileAccess, FileDisk};
use ordo_block::model::{Model, Modeled, catalog};
use ordo_block::ram::RamDisk;
use ordo_block::spill::Spill;
use ordo_block::tap::{Issued, Recorder, Tap, TapSink};
use ordo_block::{BlockDevice, BlockError, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags};
use ordo_runtime::sync::Notify;
use ordo_runtime::{Runtime, Time};
use ordo_trace::Trace;

use crate::later::ShownLater;
use crate::storage::{DeviceContents, Storage};
use crate::turns::Turns;

const SECTOR: u32 = 512;
/// The error of a write that fails.
const EIO: i32 = 5;

/// The place of the device's contents.
#[derive(Clone, Debug)]
pub enum Transport {
    /// In memory: this many bytes, all zero.
    Memory(u64),
    /// In a file without a name in the folder for temporary files: this many bytes, all zero.
    Temporary(u64),
    /// In an image file, or on another device.
    Path(PathBuf),
}

/// The part of the requests that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRequests {
    /// All requests, with contents.
    Contents,
    /// All requests, with the contents of writes only.
    Writes,
    /// All requests, without contents.
    Requests,
    /// This many of the last requests, without contents.
    Last(usize),
}

/// The decision about a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestDecision {
    /// The write is carried out.
    #[default]
    Pass,
    /// The write is carried out, and completes this much later.
    Delay(Duration),
    /// The write completes at once and is never carried out.
    Drop,
    /// The write fails, and is never carried out.
    Fail,
}

/// Something that the observers of a session's devices share.
pub(crate) type Shared = RefCell<Option<Rc<dyn Any>>>;

/// The devices of a session, and the place of this one among them.
#[derive(Clone, Copy)]
struct Beside<'a> {
    devices: &'a [Rc<Core>],
    number: usize,
    shared: &'a Shared,
}

/// The contents of a device, or of a part of it, before the first recorded request.
pub struct Before<'a> {
    /// The size in bytes.
    pub bytes: u64,
    /// The first byte on the device.
    origin: u64,
    core: &'a Core,
    beside: Option<Beside<'a>>,
}

impl<'a> Before<'a> {
    fn of(core: &'a Core, beside: Option<Beside<'a>>) -> Before<'a> {
        Before { bytes: core.tap.geometry().bytes, origin: 0, core, beside }
    }

    /// The contents of `bytes` bytes of the device from byte `origin` on, as those of a device of
    /// their own.
    #[must_use]
    pub fn within(&self, origin: u64, bytes: u64) -> Before<'a> {
        let (core, beside) = (self.core, self.beside);
        Before { bytes, origin: self.origin + origin, core, beside }
    }

    /// The contents at any later time.
    pub fn later(&self) -> DeviceContents {
        let (origin, bytes) = (self.origin, self.bytes);
        DeviceContents { held: self.core.tap.inner().storage().held(), origin, bytes }
    }

    /// The first byte on the device.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The range lies outside the device, or the read failed.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.core.tap.inner().storage().held().load((self.origin, self.bytes), offset, buf)
    }

    /// The number of the device in its session, from 0.
    pub fn number(&self) -> usize {
        self.beside.map_or(0, |beside| beside.number)
    }

    /// The contents of another device of the session.
    pub fn device(&self, number: usize) -> Option<Before<'a>> {
        let beside = self.beside?;
        let core = beside.devices.get(number)?;
        Some(Before::of(core, Some(Beside { number, ..beside })))
    }

    /// A value that the observers of all devices of the session share, if all of them ask for one
    /// of the same type. The first to ask makes it.
    pub fn shared<T: Default + 'static>(&self) -> Rc<T> {
        let Some(beside) = self.beside else { return Rc::default() };
        let mut shared = beside.shared.borrow_mut();
        let value = shared.get_or_insert_with(|| Rc::<T>::default());
        value.clone().downcast().unwrap_or_default()
    }
}

/// Whether an observer must see a request before it is carried out.
pub type IsUrgent = Rc<dyn Fn(&Issued<'_>) -> bool>;

/// A watcher of the device while it is used. It runs on the device's own thread.
pub trait Observer {
    /// The sink that is shown the requests. A write is shown before it is carried out; the sink
    /// puts its decision into the cell that [`MakeObserver`] was given.
    fn sink(&self) -> Rc<dyn TapSink>;
    /// A function that tells the requests that must be shown at once; the others may be shown
    /// later, in their order, and nothing is decided about them. `None`: all must.
    fn urgent(&self) -> Option<IsUrgent> {
        None
    }
    /// Ends the watch: the device is removed, and the observer must pass on its results.
    fn finish(self: Box<Self>);
    /// Called every half second, between requests.
    fn tick(&self, _now: Time) {}
    /// Takes in a mark.
    fn mark(&self, _text: &str, _at: Time) {}
    /// Whether the observer wants a [turn](Self::turn). Then no request begins until those under
    /// way have completed.
    fn is_due(&self, _now: Time) -> bool {
        false
    }
    /// A moment at which no request is under way. `now` has the device's present contents.
    fn turn(&self, _now: &Before<'_>) {}
}

/// A function that makes an observer when recording begins.
pub type MakeObserver =
    Box<dyn FnOnce(&Before<'_>, &Rc<Cell<RequestDecision>>) -> Option<Box<dyn Observer>> + Send>;

/// The configuration of a device.
pub struct DeviceSetup {
    /// The place of its contents.
    pub place: Transport,
    /// The part of the requests that is kept.
    pub keep: KeepRequests,
    /// The store of the contents, where only those of writes are kept; without one, all are kept in
    /// memory.
    pub spill: Option<Arc<Spill>>,
    /// Whether all contents before the recording are kept.
    pub keep_start: bool,
    /// The observer, if any.
    pub observer: Option<MakeObserver>,
    /// Whether requests go over io_uring, if the kernel has it.
    pub io_uring: bool,
    /// A disk model that gives requests their least time, once recording has begun.
    pub disk: Option<&'static Model>,
    /// Whether the device reports a volatile cache, so that its user sends flushes.
    pub volatile: bool,
    /// Partitions that the kernel is told of: number, first byte and size in bytes of each. Their
    /// devices have the number behind the device's name and a `p`.
    pub partitions: Vec<(u32, u64, u64)>,
}

impl DeviceSetup {
    /// A device of `bytes` bytes in memory, with everything kept.
    pub fn in_memory(bytes: u64) -> DeviceSetup {
        DeviceSetup {
            keep_start: true,
            ..DeviceSetup::new(Transport::Memory(bytes), KeepRequests::Contents)
        }
    }

    /// A device in a place, with no disk model; `keep` says which requests are kept.
    pub fn new(place: Transport, keep: KeepRequests) -> DeviceSetup {
        DeviceSetup {
            place,
            keep,
            spill: None,
            keep_start: false,
            observer: None,
            io_uring: true,
            disk: None,
            volatile: false,
            partitions: Vec::new(),
        }
    }
}

/// A recording of a device.
#[derive(Debug)]
pub struct Recording {
    /// The device's contents at the beginning of the trace; empty if they were not to be kept.
    pub start: Vec<u8>,
    /// The ranges of `start` outside of which it is zero. That memory was never touched, and should
    /// not be.
    pub used: Vec<Range<usize>>,
    /// Every request since then, or the last ones.
    pub trace: Trace,
    /// A moment on this process's clock, and exactly the same moment on the trace's, so that
    /// recordings of several threads can be put on one clock.
    pub clock: (Instant, Time),
    /// The requests before which marks were put, numbered as if there were no marks.
    pub marks: Vec<u64>,
    /// The number of lines of marks whose newline never came, which are no marks.
    pub unfinished: usize,
}

impl Recording {
    /// The number in the trace of a request that an observer counted, since observers are not shown
    /// marks.
    pub fn number(&self, request: u64) -> u64 {
        request + self.marks.partition_point(|at| *at <= request) as u64
    }
}

/// Storage that takes a disk's time, and applies the observer's decision to each write.
pub(crate) struct Ruled {
    disk: Modeled<Storage>,
    /// Whether requests take the disk's time yet.
    paced: Cell<bool>,
    runtime: Runtime,
    verdict: Rc<Cell<RequestDecision>>,
    volatile: bool,
    recorder: Rc<Recorder>,
    /// The number in the recording of each write that was dropped; none if only the last requests
    /// are kept.
    dropped: RefCell<Vec<usize>>,
    keeps_all: bool,
}

impl Ruled {
    fn storage(&self) -> &Storage {
        self.disk.inner()
    }

    /// Whether a write is carried out, after the observer's decision and the delay that it may ask
    /// for.
    async fn is_let_through(&self, offset: u64, len: usize) -> Result<bool, BlockError> {
        // The tap has just shown this write to the observer; no other code has run since.
        match self.verdict.take() {
            RequestDecision::Pass => {}
            RequestDecision::Delay(time) => self.runtime.sleep(time).await,
            RequestDecision::Drop => {
                self.note_dropped();
                return Ok(false);
            }
            RequestDecision::Fail => {
                let fault = Fault::Io(EIO);
                return Err(BlockError { op: Operation::Write, offset, len, fault });
            }
        }
        Ok(true)
    }

    /// Notes that the newest request of the recording was dropped.
    fn note_dropped(&self) {
        let newest = self.recorder.with(|records| records.len().checked_sub(1));
        if let Some(newest) = newest.filter(|_| self.keeps_all) {
            self.dropped.borrow_mut().push(newest);
        }
    }
}

impl BlockDevice for Ruled {
    fn geometry(&self) -> Geometry {
        let geometry = self.disk.geometry();
        Geometry { volatile_cache: geometry.volatile_cache || self.volatile, ..geometry }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        match self.paced.get() {
            true => self.disk.read(offset, len).await,
            false => self.storage().read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        match (self.is_let_through(offset, data.len()).await?, self.paced.get()) {
            (false, _) => Ok(()),
            (true, true) => self.disk.write(offset, data, flags).await,
            (true, false) => self.storage().write(offset, data, flags).await,
        }
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        match (self.is_let_through(offset, data.len()).await?, self.paced.get()) {
            (false, _) => Ok(()),
            (true, true) => self.disk.write_list(offset, data, flags).await,
            (true, false) => self.storage().write_list(offset, data, flags).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        match self.paced.get() {
            true => self.disk.flush().await,
            false => self.storage().flush().await,
        }
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        match self.paced.get() {
            true => self.disk.discard(offset, len).await,
            false => self.storage().discard(offset, len).await,
        }
    }
}

/// The contents before the recording, and the ranges outside of which they are zero.
type Start = (Vec<u8>, Vec<Range<usize>>);

/// The device on the thread that serves it.
pub(crate) struct Core {
    tap: Tap<Ruled>,
    pub(crate) turns: Turns,
    recorder: Rc<Recorder>,
    verdict: Rc<Cell<RequestDecision>>,
    make: RefCell<Option<MakeObserver>>,
    observer: RefCell<Option<Box<dyn Observer>>>,
    /// The requests that the observer is shown later.
    later: RefCell<Option<Rc<ShownLater>>>,
    /// Whether there is a task that shows them.
    may_show_later: Cell<bool>,
    /// The signal that an observer was attached.
    pub(crate) attached: Notify,
    keep_start: bool,
    /// Whether marks are kept.
    marked: bool,
    start: RefCell<Option<Start>>,
    /// The marks: the number of requests issued before, the moment, and the text.
    marks: RefCell<Vec<(u64, Time, String)>>,
    /// The number of lines of marks that were never finished.
    unfinished: Cell<usize>,
    runtime: Runtime,
}

impl Core {
    pub(crate) fn new(runtime: &Runtime, setup: DeviceSetup) -> Result<Core, String> {
        let storage = match &setup.place {
            Transport::Memory(bytes) => Storage::Memory(Rc::new(RamDisk::new(*bytes))),
            Transport::Temporary(bytes) => Storage::temporary(*bytes).map_err(|e| e.to_string())?,
            Transport::Path(path) => {
                let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
                let disk = FileDisk::open(runtime, path, FileAccess::ReadWrite);
                Storage::Path(disk.map_err(|e| e.to_string())?, Rc::new(file))
            }
        };
        let recorder = match setup.keep {
            KeepRequests::Contents => Recorder::new(true),
            KeepRequests::Writes => Recorder::of_writes(setup.spill.clone()),
            KeepRequests::Requests => Recorder::new(false),
            KeepRequests::Last(most) => Recorder::last(most),
        };
        let verdict = Rc::new(Cell::default());
        let ruled = Ruled {
            disk: Modeled::new(runtime, setup.disk.unwrap_or(&catalog::RAM), storage),
            paced: Cell::new(false),
            runtime: runtime.clone(),
            verdict: verdict.clone(),
            volatile: setup.volatile,
            recorder: recorder.clone(),
            dropped: RefCell::default(),
            keeps_all: !matches!(setup.keep, KeepRequests::Last(_)),
        };
        let tap = Tap::new(runtime, ruled);
        tap.share_buffers(matches!(setup.keep, KeepRequests::Contents | KeepRequests::Writes));
        Ok(Core {
            tap,
            turns: Turns::default(),
            recorder,
            verdict,
            make: RefCell::new(setup.observer),
            observer: RefCell::default(),
            later: RefCell::default(),
            may_show_later: Cell::new(false),
            attached: Notify::new("an observer", 0),
            keep_start: setup.keep_start,
            marked: !matches!(setup.keep, KeepRequests::Last(_)),
            start: RefCell::default(),
            marks: RefCell::default(),
            unfinished: Cell::default(),
            runtime: runtime.clone(),
        })
    }

    /// Forgets what was recorded, and keeps the device's present contents if they are wanted.
    fn clear(&self) {
        self.tap.detach_all();
        let _ = self.recorder.take();
        self.tap.inner().dropped.take();
        self.marks.take();
        let held = self.tap.inner().storage().held();
        let whole = self.keep_start.then(|| held.whole(self.tap.geometry().bytes));
        *self.start.borrow_mut() = Some(whole.unwrap_or_default());
    }

    /// Begins to show requests to the observer, and to record them.
    fn attach(&self, beside: Beside<'_>) {
        if let Some(make) = self.make.take() {
            let observer = make(&Before::of(self, Some(beside)), &self.verdict);
            if let Some(observer) = observer {
                // Requests to several devices have one order, which the observers share.
                let can_wait = self.may_show_later.get() && beside.devices.len() == 1;
                match observer.urgent().filter(|_| can_wait) {
                    Some(urgent) => {
                        let later = Rc::new(ShownLater::new(observer.sink(), urgent));
                        self.tap.attach(later.clone());
                        self.tap.share_buffers(true);
                        *self.later.borrow_mut() = Some(later);
                    }
                    None => self.tap.attach(observer.sink()),
                }
                *self.observer.borrow_mut() = Some(observer);
                self.attached.notify_all();
            }
        }
        self.tap.attach(self.recorder.clone());
        self.tap.inner().paced.set(true);
    }

    /// Allows requests to be shown later: a task shows them.
    pub(crate) fn may_show_later(&self) {
        self.may_show_later.set(true);
    }

    /// The requests that the observer is shown later, if it allows that.
    pub(crate) fn shown_later(&self) -> Option<Rc<ShownLater>> {
        self.later.borrow().clone()
    }

    /// Shows the observer all requests so far.
    fn show_all(&self) {
        if let Some(later) = self.shown_later() {
            later.show_all();
        }
    }

    /// Puts a mark into the trace; ignored where only the last requests are kept.
    pub(crate) fn mark(&self, text: &str) {
        self.show_all();
        if let Some(observer) = &*self.observer.borrow() {
            observer.mark(text, self.runtime.now());
        }
        if self.marked {
            let issued = self.recorder.with(|records| records.len() as u64);
            self.marks.borrow_mut().push((issued, self.runtime.now(), text.to_owned()));
        }
    }

    /// Notes how many lines of marks were never finished.
    pub(crate) fn note_unfinished(&self, lines: usize) {
        self.unfinished.set(lines);
    }

    /// The device, which shows requests to the recorder and the observer.
    pub(crate) fn tap(&self) -> &Tap<Ruled> {
        &self.tap
    }

    /// Tells the observer that time has passed.
    pub(crate) fn tick(&self) {
        self.show_all();
        if let Some(observer) = &*self.observer.borrow() {
            observer.tick(self.runtime.now());
        }
    }

    /// Whether the observer wants a turn.
    pub(crate) fn is_due(&self) -> bool {
        let observer = self.observer.borrow();
        observer.as_ref().is_some_and(|observer| observer.is_due(self.runtime.now()))
    }

    /// Gives the observer its turn. No request may be under way.
    pub(crate) fn turn(&self) {
        self.show_all();
        if let Some(observer) = &*self.observer.borrow() {
            observer.turn(&Before::of(self, None));
        }
    }

    /// The recording; `None` if recording never began.
    pub(crate) fn finish(&self) -> Option<Recording> {
        self.tap.detach_all();
        self.show_all();
        if let Some(observer) = self.observer.take() {
            observer.finish();
        }
        let (start, used) = self.start.take()?;
        let now = self.runtime.now();
        let clock = (self.runtime.instant(now).unwrap_or_else(Instant::now), now);
        let mut trace = Trace::from_records(&self.recorder.take(), SECTOR);
        self.tap.inner().dropped.take().into_iter().for_each(|number| trace.set_dropped(number));
        let marks = self.marks.take();
        let numbers = marks.iter().map(|(at, ..)| *at).collect();
        trace.insert_marks(marks.iter().map(|(before, at, text)| (*before, *at, &**text)));
        let model = self.tap.inner().disk.model();
        trace.set_disk((model.name != catalog::RAM.name).then_some(model.name));
        let unfinished = self.unfinished.get();
        Some(Recording { start, used, trace, clock, marks: numbers, unfinished })
    }
}

/// Begins recording on all devices of a session: from now on requests are shown and recorded.
pub(crate) fn start(devices: &[Rc<Core>]) {
    devices.iter().for_each(|core| core.clear());
    let shared = Shared::default();
    for (number, core) in devices.iter().enumerate() {
        core.attach(Beside { devices, number, shared: &shared });
    }
}

/// A recorded device for a file system of the same thread, which needs no kernel.
#[derive(Clone)]
pub struct RecordedDisk(Rc<Core>);

impl RecordedDisk {
    /// A device with the given configuration.
    ///
    /// # Errors
    /// The place of its contents cannot be opened, in words.
    pub fn new(runtime: &Runtime, setup: DeviceSetup) -> Result<RecordedDisk, String> {
        Core::new(runtime, setup).map(|core| RecordedDisk(Rc::new(core)))
    }

    /// Begins recording; the trace starts with the device's present contents.
    pub fn start(&self) {
        start(std::slice::from_ref(&self.0));
    }

    pub(crate) fn core(&self) -> Rc<Core> {
        self.0.clone()
    }

    /// Puts a mark into the recording.
    pub fn mark(&self, text: &str) {
        self.0.mark(text);
    }

    /// Notes how many lines of marks were never finished.
    pub fn note_unfinished(&self, lines: usize) {
        self.0.note_unfinished(lines);
    }

    /// Ends the recording. `None` if it never began.
    pub fn finish(&self) -> Option<Recording> {
        self.0.finish()
    }
}

impl BlockDevice for RecordedDisk {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.0.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.0.write(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.0.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.0.discard(offset, len).await
    }
}

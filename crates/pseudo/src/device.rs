//! What the kernel, or whoever speaks NBD, has for a device: storage, rules about writes, a tap.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ordo_block::file::{Access, FileDisk};
use ordo_block::model::{Model, Modeled, catalog};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Recorder, Tap, TapSink};
use ordo_block::{BlockDevice, BlockError, Fault, Geometry, IoBuf, Operation, WriteFlags};
use ordo_runtime::{Runtime, Time};
use ordo_trace::{Flags, Op, Request, Trace};

/// Zeros are written in pieces of this size at most.
const ZEROS: u64 = 1 << 20;
const SECTOR: u32 = 512;
/// The error of a write that fails.
const EIO: i32 = 5;

/// Where the device's contents are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory, so many bytes, all zero.
    Memory(u64),
    /// In an image, or on a device.
    Path(PathBuf),
}

/// What is kept of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them, with contents.
    Contents,
    /// All of them, without contents.
    Requests,
    /// The last ones, so many, without contents.
    Last(usize),
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It is carried out.
    #[default]
    Pass,
    /// It is carried out, and completes, so much later.
    Delay(Duration),
    /// It completes at once and is never carried out.
    Drop,
    /// It fails, and is never carried out.
    Fail,
}

/// The device before the first request that is recorded.
pub struct Before<'a> {
    /// Its size in bytes.
    pub bytes: u64,
    read: &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>,
}

impl Before<'_> {
    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The range is not there, or could not be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (self.read)(offset, buf)
    }
}

/// Who watches the device while it is used, on the device's own thread.
pub trait Observer {
    /// Who is shown the requests. A write is shown before it is carried out: what is put into the cell that
    /// [`MakeObserver`] got is what becomes of it.
    fn sink(&self) -> Rc<dyn TapSink>;
    /// The device goes away: what was seen is to be handed on.
    fn finish(self: Box<Self>);
}

/// Makes an observer, when recording begins.
pub type MakeObserver =
    Box<dyn FnOnce(&Before<'_>, &Rc<Cell<Verdict>>) -> Option<Box<dyn Observer>> + Send>;

/// How a device is to be.
pub struct Setup {
    /// Where its contents are.
    pub place: Place,
    /// What is kept of requests.
    pub keep: Keep,
    /// Whether all that it held before is kept.
    pub keep_start: bool,
    /// Who watches it.
    pub observer: Option<MakeObserver>,
    /// Requests over io_uring, where the kernel has it.
    pub io_uring: bool,
    /// A disk whose time requests take at least, once recording has begun.
    pub disk: Option<&'static Model>,
}

impl Setup {
    /// A device of `bytes` bytes in memory, of which everything is kept.
    pub fn in_memory(bytes: u64) -> Setup {
        Setup { keep_start: true, ..Setup::new(Place::Memory(bytes), Keep::Contents) }
    }

    /// A device in a place, that takes no more time than it must, and of which `keep` is kept.
    pub fn new(place: Place, keep: Keep) -> Setup {
        Setup { place, keep, keep_start: false, observer: None, io_uring: true, disk: None }
    }
}

/// What was recorded.
#[derive(Debug)]
pub struct Recording {
    /// What the device held when the trace begins; empty where that was not to be kept.
    pub start: Vec<u8>,
    /// Every request since, or the last ones.
    pub trace: Trace,
    /// A moment on this process's clock, and the same one on the trace's.
    pub clock: (Instant, Time),
    /// Before which requests marks were put, as these would be numbered without marks.
    pub marks: Vec<u64>,
}

impl Recording {
    /// The number in the trace of a request that an observer has counted, to whom marks are not shown.
    pub fn number(&self, request: u64) -> u64 {
        request + self.marks.partition_point(|at| *at <= request) as u64
    }
}

enum Storage {
    Memory(Rc<RamDisk>),
    /// With a second handle, to read from before there are requests.
    Path(FileDisk, File),
}

impl BlockDevice for Storage {
    fn geometry(&self) -> Geometry {
        match self {
            Storage::Memory(ram) => ram.geometry(),
            Storage::Path(disk, _) => disk.geometry(),
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        match self {
            Storage::Memory(ram) => ram.read(offset, len).await,
            Storage::Path(disk, _) => disk.read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.write(offset, data, flags).await,
            Storage::Path(disk, _) => disk.write(offset, data, flags).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.flush().await,
            Storage::Path(disk, _) => disk.flush().await,
        }
    }

    /// What is discarded reads as zeros: the loop driver sends what must be zero as a discard too.
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if let Storage::Path(disk, _) = self {
            disk.discard(offset, len).await?;
        }
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(ZEROS);
            let zeros = IoBuf::zeroed(piece as usize);
            self.write(offset + done, zeros, WriteFlags::empty()).await?;
            done += piece;
        }
        Ok(())
    }
}

/// Storage that takes a disk's time, with the observer's verdict on each write.
pub(crate) struct Ruled {
    disk: Modeled<Storage>,
    /// Whether requests take the disk's time by now.
    paced: Cell<bool>,
    runtime: Runtime,
    verdict: Rc<Cell<Verdict>>,
}

impl Ruled {
    fn storage(&self) -> &Storage {
        self.disk.inner()
    }
}

impl BlockDevice for Ruled {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        match self.paced.get() {
            true => self.disk.read(offset, len).await,
            false => self.storage().read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        // The tap has shown this write, and nothing else has run since.
        match self.verdict.take() {
            Verdict::Pass => {}
            Verdict::Delay(time) => self.runtime.sleep(time).await,
            Verdict::Drop => return Ok(()),
            Verdict::Fail => {
                let fault = Fault::Io(EIO);
                return Err(BlockError { op: Operation::Write, offset, len: data.len(), fault });
            }
        }
        match self.paced.get() {
            true => self.disk.write(offset, data, flags).await,
            false => self.storage().write(offset, data, flags).await,
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

/// The device, on the thread that serves it.
pub(crate) struct Core {
    pub(crate) tap: Tap<Ruled>,
    recorder: Rc<Recorder>,
    verdict: Rc<Cell<Verdict>>,
    make: RefCell<Option<MakeObserver>>,
    observer: RefCell<Option<Box<dyn Observer>>>,
    keep_start: bool,
    /// Whether marks are kept.
    marked: bool,
    start: RefCell<Option<Vec<u8>>>,
    /// Texts, with the moment and how many requests had been issued.
    marks: RefCell<Vec<(u64, Time, String)>>,
    runtime: Runtime,
}

impl Core {
    pub(crate) fn new(runtime: &Runtime, setup: Setup) -> Result<Core, String> {
        let storage = match &setup.place {
            Place::Memory(bytes) => Storage::Memory(Rc::new(RamDisk::new(*bytes))),
            Place::Path(path) => {
                let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
                let disk = FileDisk::open(runtime, path, Access::ReadWrite);
                Storage::Path(disk.map_err(|e| e.to_string())?, file)
            }
        };
        let verdict = Rc::new(Cell::default());
        let ruled = Ruled {
            disk: Modeled::new(runtime, setup.disk.unwrap_or(&catalog::RAM), storage),
            paced: Cell::new(false),
            runtime: runtime.clone(),
            verdict: verdict.clone(),
        };
        let recorder = match setup.keep {
            Keep::Contents => Recorder::new(true),
            Keep::Requests => Recorder::new(false),
            Keep::Last(most) => Recorder::last(most),
        };
        Ok(Core {
            tap: Tap::new(runtime, ruled),
            recorder,
            verdict,
            make: RefCell::new(setup.observer),
            observer: RefCell::default(),
            keep_start: setup.keep_start,
            marked: !matches!(setup.keep, Keep::Last(_)),
            start: RefCell::default(),
            marks: RefCell::default(),
            runtime: runtime.clone(),
        })
    }

    /// From now on requests are shown and recorded.
    pub(crate) fn start(&self) {
        self.tap.detach_all();
        let _ = self.recorder.take();
        self.marks.take();
        let bytes = self.tap.geometry().bytes;
        let make = self.make.take();
        let whole = match self.tap.inner().storage() {
            Storage::Memory(ram) if make.is_some() || self.keep_start => ram.to_vec(),
            Storage::Path(_, file) if self.keep_start => {
                let mut all = vec![0; bytes as usize];
                let _ = file.read_exact_at(&mut all, 0);
                all
            }
            _ => Vec::new(),
        };
        if let Some(make) = make {
            let read = |offset: u64, buf: &mut [u8]| match self.tap.inner().storage() {
                Storage::Memory(_) => {
                    let from = usize::try_from(offset).ok();
                    let found = from.and_then(|at| whole.get(at..at.checked_add(buf.len())?));
                    buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                    Ok(())
                }
                Storage::Path(_, file) => file.read_exact_at(buf, offset),
            };
            let observer = make(&Before { bytes, read: &read }, &self.verdict);
            if let Some(observer) = observer {
                self.tap.attach(observer.sink());
                *self.observer.borrow_mut() = Some(observer);
            }
        }
        *self.start.borrow_mut() = Some(if self.keep_start { whole } else { Vec::new() });
        self.tap.attach(self.recorder.clone());
        self.tap.inner().paced.set(true);
    }

    /// Puts a text into the trace. Where only the last requests are kept, it is not.
    pub(crate) fn mark(&self, text: &str) {
        if self.marked {
            let issued = self.recorder.with(|records| records.len() as u64);
            self.marks.borrow_mut().push((issued, self.runtime.now(), text.to_owned()));
        }
    }

    /// What was recorded, if anything was to be.
    pub(crate) fn finish(&self) -> Option<Recording> {
        self.tap.detach_all();
        if let Some(observer) = self.observer.take() {
            observer.finish();
        }
        let start = self.start.take()?;
        let clock = (Instant::now(), self.runtime.now());
        let trace = Trace::from_records(&self.recorder.take(), SECTOR);
        let marks = self.marks.take();
        let numbers = marks.iter().map(|(at, ..)| *at).collect();
        let trace = if marks.is_empty() { trace } else { marked(&trace, &marks) };
        Some(Recording { start, trace, clock, marks: numbers })
    }
}

/// A trace with marks put in.
fn marked(trace: &Trace, marks: &[(u64, Time, String)]) -> Trace {
    let mut new = Trace::new(trace.sector(), trace.timed());
    let mut marks = marks.iter().peekable();
    let mut epoch = 0;
    for number in 0..=trace.requests().len() {
        while let Some((_, issued, text)) = marks.next_if(|(at, ..)| *at <= number as u64) {
            let data = Some(new.keep(text.as_bytes()));
            let (op, flags, issued) = (Op::Mark, Flags::empty(), *issued);
            new.push(Request { op, flags, offset: 0, len: 0, issued, epoch, end: None, data });
        }
        if let Some(r) = trace.requests().get(number) {
            epoch = r.epoch + u64::from(r.op == Op::Flush);
            let data = trace.data(r).map(|bytes| new.keep(bytes));
            new.push(Request { data, ..*r });
        }
    }
    new
}

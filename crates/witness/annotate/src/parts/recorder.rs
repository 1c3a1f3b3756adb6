//! The sink of a device whose recording has parts: requests are named and kept until their part
//! ends.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use ordo_block::Operation;
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::decoder::DiskImage;
use rustc_hash::FxHashMap;

use super::maker::{Next, Part, PartMaker};
use crate::rows::BlockRow;

const SECTOR: u32 = 512;
/// The bytes that a block takes in memory, with what the collector keeps beside its row.
const ROW: usize = size_of::<BlockRow>() + 64;

/// When a part ends: at the first of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLimits {
    /// The bytes that it takes in memory: contents, requests and rows.
    pub bytes: usize,
    /// The time since its first request; `None` for any.
    pub time: Option<Duration>,
}

/// The part of the time that is recorded: the first so much of every so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time that is recorded.
    pub on: Duration,
    /// The time from the beginning of one such time to that of the next.
    pub every: Duration,
}

impl Sample {
    fn is_off(&self, now: Time) -> bool {
        u128::from(now.as_nanos()) % self.every.as_nanos().max(1) >= self.on.as_nanos()
    }
}

/// Keeps the requests of a part, and shows them to the watcher.
pub struct PartRecorder {
    maker: RefCell<PartMaker>,
    with_contents: bool,
    limits: PartLimits,
    sample: Option<Sample>,
    disk: Option<&'static str>,
    /// Whether nothing is recorded at present, and whether that should be so.
    is_asleep: Cell<bool>,
    wants_sleep: Cell<bool>,
    trace: RefCell<Trace>,
    /// Requests under way: their index in the part, by the tap's number.
    open: RefCell<FxHashMap<u64, usize>>,
    began: Cell<Option<Time>>,
    /// The number of flushes so far.
    epoch: Cell<u64>,
    /// Whether the recording has ended early: then requests are no longer kept.
    has_ended: Cell<bool>,
}

impl PartRecorder {
    /// A recorder for the parts of `maker`. `disk` is the disk model that gives requests their
    /// time.
    pub fn new(
        maker: PartMaker,
        limits: PartLimits,
        sample: Option<Sample>,
        with_contents: bool,
        disk: Option<&'static str>,
    ) -> PartRecorder {
        let recorder = PartRecorder {
            maker: RefCell::new(maker),
            with_contents,
            limits,
            sample,
            disk,
            is_asleep: Cell::new(false),
            wants_sleep: Cell::new(false),
            trace: RefCell::default(),
            open: RefCell::default(),
            began: Cell::new(None),
            epoch: Cell::new(0),
            has_ended: Cell::new(false),
        };
        recorder.trace.replace(recorder.empty());
        recorder
    }

    fn empty(&self) -> Trace {
        let mut trace = Trace::new(SECTOR, true);
        trace.set_disk(self.disk);
        trace
    }

    /// The file system's name.
    pub fn system(&self) -> &'static str {
        self.maker.borrow().system()
    }

    /// The bytes of the part in memory.
    pub fn bytes(&self) -> usize {
        let trace = self.trace.borrow();
        trace.contents_len() + size_of_val(trace.requests()) + self.maker.borrow().rows() * ROW
    }

    /// Whether the part should end, or begin.
    pub fn is_due(&self, now: Time) -> bool {
        self.wants_sleep.set(self.sample.is_some_and(|sample| sample.is_off(now)));
        if self.wants_sleep.get() != self.is_asleep.get() {
            return true;
        }
        let Some(began) = self.began.get() else { return false };
        let is_late = self.limits.time.is_some_and(|time| now.since(began) >= time);
        is_late || self.bytes() >= self.limits.bytes
    }

    /// Keeps and names nothing from now on.
    pub fn stop(&self) {
        self.has_ended.set(true);
        self.trace.replace(self.empty());
        self.began.set(None);
    }

    /// Does what is due: ends the part, or begins one that starts with the contents of `image`.
    /// Returns the part that has ended.
    pub fn turn(&self, image: &dyn DiskImage) -> Option<Part> {
        if self.is_asleep.replace(self.wants_sleep.get()) {
            self.maker.borrow_mut().resume(image);
            return None;
        }
        Some(self.end(if self.is_asleep.get() { Next::Pause } else { Next::Part(image) }))
    }

    /// Ends the recording.
    pub fn finish(&self) -> Part {
        self.end(Next::End)
    }

    fn end(&self, next: Next<'_>) -> Part {
        let trace = self.trace.replace(self.empty());
        self.began.set(None);
        self.open.borrow_mut().clear();
        self.maker.borrow_mut().end(trace, next)
    }

    /// Puts a mark into the part.
    pub fn mark(&self, text: &str, at: Time) {
        if self.has_ended.get() || self.is_asleep.get() {
            return;
        }
        let mut trace = self.trace.borrow_mut();
        let data = Some(trace.keep(text.as_bytes()));
        let (op, flags) = (RequestOp::Mark, Flags::empty());
        let (offset, len, issued, epoch, end) = (0, 0, at, self.epoch.get(), None);
        trace.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
        self.began.set(self.began.get().or(Some(at)));
    }

    /// Sets the watcher's number of the request with this index in the part.
    fn number(&self, index: usize) {
        let maker = self.maker.borrow();
        maker.now().set(maker.first() + index as u64);
    }

    fn watch(&self, show: impl FnOnce(&ordo_watcher::Watch)) {
        let watch = self.maker.borrow().watch().cloned();
        if let Some(watch) = watch {
            show(&watch);
        }
    }
}

impl TapSink for PartRecorder {
    fn issued(&self, r: &Issued<'_>) {
        self.epoch.set(r.epoch + u64::from(r.op == Operation::Flush));
        if self.has_ended.get() || self.is_asleep.get() {
            return;
        }
        let index = {
            let mut trace = self.trace.borrow_mut();
            let data = r.data.filter(|_| self.with_contents).map(|data| trace.keep(data));
            trace.push(TraceRequest {
                op: RequestOp::from(r.op),
                flags: Flags::from(r.flags),
                offset: r.offset,
                len: r.len,
                issued: r.at,
                epoch: r.epoch,
                end: None,
                data,
            });
            trace.requests().len() - 1
        };
        self.began.set(self.began.get().or(Some(r.at)));
        self.open.borrow_mut().insert(r.id, index);
        self.number(index);
        self.watch(|watch| watch.issued(r));
    }

    fn completed(&self, r: &Completed<'_>) {
        let Some(index) = self.open.borrow_mut().remove(&r.id) else { return };
        if self.has_ended.get() {
            return;
        }
        {
            let mut trace = self.trace.borrow_mut();
            let data = r.data.filter(|_| self.with_contents).map(|data| trace.keep(data));
            let (order, at, epoch, ok) = (r.order, r.at, r.epoch, r.result.is_ok());
            trace.end(index, RequestEnd { order, at, epoch, ok }, data);
        }
        self.number(index);
        self.watch(|watch| watch.completed(r));
    }
}

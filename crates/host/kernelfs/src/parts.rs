//! A recording in parts on a pseudo-device: each part is written while the next one is recorded.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ordo_annotate::parts::writer::WrittenParts;
use ordo_annotate::parts::{PartLimits, PartMaker, PartRecorder, PartWriter, Place, Sample};
use ordo_annotate::store::StoreError;
use ordo_block::tap::TapSink;
use ordo_recorder::{Before, MakeObserver, Observer};
use ordo_runtime::Time;

use crate::watching::Device;

/// A part of at most this many bytes is written while the next one is recorded. With larger ones
/// the device waits, so that two are never in memory.
const BESIDE_MAX: usize = 128 << 20;

/// A function that takes an error and a number of parts.
pub type Failed = Box<dyn FnOnce(&StoreError, u32) + Send>;

/// The configuration of a recording in parts.
pub struct PartsOptions {
    /// The folders of the parts.
    pub place: Place,
    /// The recording's name.
    pub recording: String,
    /// The time of day at which it begins, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When a part ends.
    pub limits: PartLimits,
    /// The part of the time that is recorded, and the same in words; `None` for all of it.
    pub sample: Option<(Sample, String)>,
    /// Whether contents are kept.
    pub with_contents: bool,
    /// The disk model that gives requests their time.
    pub disk: Option<&'static str>,
    /// Called once when a part cannot be written, with the reason and the number of parts so far.
    /// Recording ends then; the device goes on.
    pub failed: Failed,
}

/// The results of a recording in parts.
#[derive(Debug)]
pub struct PartsDone {
    /// The totals.
    pub written: WrittenParts,
    /// The error at which the recording ended early.
    pub error: Option<StoreError>,
}

/// The place where the results are put.
pub type PartsSlot = Arc<Mutex<Option<PartsDone>>>;

struct InParts {
    sink: Rc<PartRecorder>,
    writer: RefCell<PartWriter>,
    limits: PartLimits,
    has_failed: Arc<AtomicBool>,
    has_ended: Cell<bool>,
    into: PartsSlot,
}

impl InParts {
    /// Ends the recording if a part could not be written.
    fn has_ended(&self) -> bool {
        if !self.has_ended.get() && self.has_failed.load(Ordering::Acquire) {
            self.has_ended.set(true);
            self.sink.stop();
        }
        self.has_ended.get()
    }
}

impl Observer for InParts {
    fn sink(&self) -> Rc<dyn TapSink> {
        self.sink.clone()
    }

    fn mark(&self, text: &str, at: Time) {
        self.sink.mark(text, at);
    }

    fn is_due(&self, now: Time) -> bool {
        !self.has_ended() && self.sink.is_due(now)
    }

    fn turn(&self, now: &Before<'_>) {
        let Some(part) = self.sink.turn(&Device(now)) else { return };
        let mut writer = self.writer.borrow_mut();
        writer.write(part);
        if self.limits.bytes > BESIDE_MAX {
            writer.wait();
        }
    }

    fn finish(self: Box<Self>) {
        if !self.has_ended() {
            self.writer.borrow_mut().write(self.sink.finish());
        }
        let (written, error) = self.writer.into_inner().finish();
        let done = PartsDone { written, error };
        *self.into.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }
}

/// A function that makes the recorder of a pseudo-device.
///
/// # Errors
/// There are no more threads.
pub fn in_parts(wanted: PartsOptions, into: PartsSlot) -> io::Result<MakeObserver> {
    let PartsOptions { place, recording, began_ns, limits, .. } = wanted;
    let PartsOptions { sample, with_contents, disk, failed, .. } = wanted;
    let (sample, in_words) = sample.unzip();
    let has_failed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_failed);
    let writer = PartWriter::start(place, move |error, parts| {
        flag.store(true, Ordering::Release);
        failed(error, parts);
    })?;
    Ok(Box::new(move |before, _| {
        let mut maker = PartMaker::new(recording, began_ns, &Device(before));
        maker.set_sample(in_words);
        let sink = Rc::new(PartRecorder::new(maker, limits, sample, with_contents, disk));
        let (writer, has_ended) = (RefCell::new(writer), Cell::new(false));
        Some(Box::new(InParts { sink, writer, limits, has_failed, has_ended, into })
            as Box<dyn Observer>)
    }))
}

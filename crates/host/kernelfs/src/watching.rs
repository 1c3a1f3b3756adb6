//! A watcher on a pseudo-device: it names requests as they pass, applies rules, and hands on its
//! results.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ordo_annotate::owners::Collector;
use ordo_annotate::rows::{BlockRow, FileShare};
use ordo_annotate::volumes::{self, DiskVolume};
use ordo_annotate::{Learning, Pieces};
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_recorder::{
    Before, DeviceContents, IsUrgent, MakeObserver, Observer, Recording, RequestDecision,
};
use ordo_watcher::Watch;
use ordo_watcher::analysis::{Analysis, WatchFindings};
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::journal::Transaction;

use crate::rules::{WriteRule, WriteRules};

/// The configuration of a watcher.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Whether to keep a row for each block.
    pub rows: bool,
    /// The rules about writes.
    pub rules: Vec<WriteRule>,
    /// A switch that suspends the rules while it is set.
    pub lax: Arc<AtomicBool>,
    /// The volume, if it is the space outside of partitions, which has no file system.
    pub tables: Option<DiskVolume>,
}

/// The results of a watcher.
#[derive(Debug)]
pub struct WatchedTraffic {
    /// The summary.
    pub analysis: Analysis,
    /// All findings, with every transaction.
    pub found: WatchFindings,
    /// The blocks in the order of requests, if rows were asked for.
    pub rows: Vec<BlockRow>,
    /// The files' shares of blocks that they have together, if rows were asked for.
    pub shares: Vec<FileShare>,
    /// The pieces of the device that the decoder read before.
    pub start: Pieces,
    /// The size of the journal or log on the device in bytes, if it is known.
    pub log_bytes: Option<u64>,
    /// The number of writes that were delayed.
    pub delayed: u64,
    /// The number of writes that were dropped.
    pub dropped: u64,
}

impl WatchedTraffic {
    /// Renumbers requests as the recording does, which counts marks too.
    pub fn renumber(&mut self, recording: &Recording) {
        self.rows.iter_mut().for_each(|row| row.request = recording.number(row.request));
        let shares = self.shares.iter_mut();
        shares.for_each(|share| share.request = recording.number(share.request));
        for moment in self.found.transactions.iter_mut().flat_map(Transaction::moments_mut) {
            moment.request = recording.number(moment.request);
        }
        self.analysis = Analysis::from(&self.found);
    }
}

/// The place where a watcher puts its results. It stays empty if no file system was recognised.
pub type TrafficSlot = Arc<Mutex<Option<WatchedTraffic>>>;

/// Takes the results of a watcher.
pub fn take(into: &TrafficSlot) -> Option<WatchedTraffic> {
    into.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A device's contents, for a decoder.
pub(crate) struct Device<'a>(pub(crate) &'a Before<'a>);

impl DiskImage for Device<'_> {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
}

/// A device's contents at any time.
pub(crate) struct DeviceNow(pub(crate) DeviceContents);

impl DiskImage for DeviceNow {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
}

/// The watchers of a session's devices, by the devices' numbers, and the first byte and the size of
/// each one's part.
#[derive(Default)]
struct Watches(RefCell<BTreeMap<(usize, u64, u64), Rc<Watch>>>);

/// Joins the watcher of a device with those of the session's earlier devices, for a file system on
/// two of them.
fn join(before: &Before<'_>, image: &dyn DiskImage, watch: &Rc<Watch>) {
    let watches = before.shared::<Watches>();
    for ((number, origin, bytes), earlier) in &*watches.0.borrow() {
        if let Some(other) = before.device(*number) {
            Watch::join((earlier, &Device(&other.within(*origin, *bytes))), (watch, image));
        }
    }
    let key = (before.number(), before.origin(), before.bytes);
    watches.0.borrow_mut().insert(key, watch.clone());
}

/// A sink that numbers requests as a recorder does that starts together with it.
struct Counted {
    watch: Rc<Watch>,
    first: Cell<Option<u64>>,
    now: Rc<Cell<u64>>,
}

impl Counted {
    fn number(&self, id: u64) {
        let first = self.first.get().unwrap_or(id);
        self.first.set(Some(first));
        self.now.set(id.saturating_sub(first));
    }
}

impl TapSink for Counted {
    fn issued(&self, r: &Issued<'_>) {
        self.number(r.id);
        self.watch.issued(r);
    }
    fn completed(&self, r: &Completed<'_>) {
        self.number(r.id);
        self.watch.completed(r);
    }
}

struct Watching {
    sink: Rc<Counted>,
    rows: Rc<RefCell<Collector>>,
    rules: Rc<RefCell<WriteRules>>,
    ruled: bool,
    start: Pieces,
    into: TrafficSlot,
}

impl Observer for Watching {
    fn sink(&self) -> Rc<dyn TapSink> {
        self.sink.clone()
    }

    fn urgent(&self) -> Option<IsUrgent> {
        let watch = self.sink.watch.clone();
        (!self.ruled).then(|| Rc::new(move |r: &Issued<'_>| watch.must_see_now(r)) as IsUrgent)
    }

    fn finish(self: Box<Self>) {
        if self.sink.watch.system() == NO_SYSTEM {
            return;
        }
        let (rows, shares) = self.rows.take().finish(&self.sink.watch);
        let rules = self.rules.borrow();
        let found = WatchFindings::of(&self.sink.watch);
        let seen = WatchedTraffic {
            analysis: Analysis::from(&found),
            found,
            rows,
            shares,
            start: self.start,
            log_bytes: self.sink.watch.log_bytes(),
            delayed: rules.delayed,
            dropped: rules.dropped,
        };
        *self.into.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}

/// The name of no file system.
const NO_SYSTEM: &str = "none";

/// A function that makes the watcher of a pseudo-device. A file system that is made while it
/// watches is recognised.
pub fn watching(wanted: WatchOptions, into: TrafficSlot) -> MakeObserver {
    Box::new(move |before, verdict| {
        let device = Device(before);
        let learning = Learning::new(&device);
        let watch = match &wanted.tables {
            Some(volume) => {
                // The tables are learned, so that the requests can be named again.
                let _ = volumes::table(&learning);
                volume.watch_of_tables()?
            }
            None => {
                let watch = Watch::over_any(&learning);
                watch.follow(Rc::new(DeviceNow(before.later())));
                watch
            }
        };
        join(before, &learning, &watch);
        let start = learning.learned();
        let rows = Rc::new(RefCell::new(Collector::default()));
        let rules = Rc::new(RefCell::new(WriteRules::new(&wanted.rules)));
        let now = Rc::new(Cell::new(0));
        let (to, judge, number) = (rows.clone(), rules.clone(), now.clone());
        let cell: Rc<Cell<RequestDecision>> = verdict.clone();
        let ruled = !wanted.rules.is_empty();
        if wanted.rows || ruled {
            watch.listen(move |event| {
                if ruled && !wanted.lax.load(Ordering::Relaxed) {
                    cell.set(judge.borrow_mut().judge(event));
                }
                if wanted.rows {
                    to.borrow_mut().add_event(number.get(), event);
                }
            });
        }
        watch.number_by(now.clone());
        let sink = Rc::new(Counted { watch, first: Cell::new(None), now });
        Some(Box::new(Watching { sink, rows, rules, ruled, start, into }) as Box<dyn Observer>)
    })
}

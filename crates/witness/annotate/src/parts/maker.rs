//! Makes parts of the requests that one watcher names from the beginning of a recording to its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::Watch;
use ordo_watcher::analysis::WatchFindings;
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::parts::PartFindings;

use super::PartHead;
use crate::image::{Learning, PIECE, Pieces};
use crate::owners::{Collector, FileChange, PartRows};
use crate::rows::{BlockRow, FileShare, unclassified};
use crate::store::Parts;

/// A part that has ended.
#[derive(Debug)]
pub struct Part {
    /// The requests.
    pub trace: Trace,
    /// A row for each block.
    pub rows: Vec<BlockRow>,
    /// The shares of files.
    pub shares: Vec<FileShare>,
    /// The known pieces of the device before the part.
    pub start: Pieces,
    /// The file system's name.
    pub system: &'static str,
    /// The description of the part.
    pub head: PartHead,
}

impl Part {
    /// The part's tables, to be stored.
    pub fn parts(&self) -> Parts<'_> {
        Parts {
            trace: &self.trace,
            blocks: &self.rows,
            shares: &self.shares,
            calls: &[],
            start: &self.start,
            system: self.system,
            found: (self.system != "none").then_some(&self.head.found.found),
        }
    }
}

/// Names the requests of a recording, and makes its parts.
pub struct PartMaker {
    recording: String,
    began_ns: u64,
    /// How much of the time is recorded, in words.
    sample: Option<String>,
    watch: Option<Rc<Watch>>,
    rows: Rc<RefCell<Collector>>,
    now: Rc<Cell<u64>>,
    part: u32,
    first: u64,
    start: Pieces,
    /// Whether nothing is named at present.
    is_paused: bool,
    base: Base,
}

/// The numbers at which a watcher begins that follows a pause, in which nothing was named.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    part: u32,
    lifetimes: u64,
    transactions: u64,
    unclaimed: u64,
    orphans: u64,
}

impl Base {
    /// Gives the findings of a part the numbers that they have in the recording.
    fn number(&self, found: &mut PartFindings, files: &mut [FileChange]) {
        let earlier = std::mem::take(&mut found.earlier).into_iter();
        let moved = |((part, was, kind), counts)| ((part + self.part, was, kind), counts);
        found.earlier = earlier.map(moved).collect();
        found.first_transaction += self.transactions;
        found.continued.iter_mut().for_each(|(number, _)| *number += self.transactions);
        found.unclaimed_so_far += self.unclaimed;
        found.orphans_so_far += self.orphans;
        for file in files {
            file.part += self.part;
            file.life = file.life.map(|life| life + self.lifetimes);
        }
    }
}

/// The continuation after a part.
#[derive(Clone, Copy)]
pub enum Next<'a> {
    /// A part that begins with the contents of this device.
    Part(&'a dyn DiskImage),
    /// A time in which nothing is recorded.
    Pause,
    /// Nothing.
    End,
}

/// A watcher over a device, and the pieces of the device that it has read. All pieces count as
/// known where no file system is recognised, and none is kept.
fn learn(image: &dyn DiskImage) -> (Option<Rc<Watch>>, Pieces) {
    let learning = Learning::new(image);
    let watch = Watch::over(&learning);
    let mut pieces = learning.learned();
    if watch.is_none() {
        pieces.known.clear();
    }
    (watch, pieces)
}

/// Divides a recorded trace into parts, each of about so many bytes in memory, and calls `each`
/// with every one. `start` is the device before the trace.
///
/// # Errors
/// Those of `each`.
pub fn divide<E>(
    trace: &Trace,
    start: &Pieces,
    recording: &str,
    is_full: impl Fn(&Trace, usize, usize) -> bool,
    mut each: impl FnMut(Part) -> Result<(), E>,
) -> Result<(), E> {
    let mut device = start.clone();
    let mut maker = PartMaker::new(recording.to_owned(), 0, &device);
    let (all, mut from) = (trace.requests().len(), 0);
    loop {
        let mut to = from;
        while to < all && (to == from || !is_full(trace, from, to)) {
            to += 1;
        }
        let part = trace.part(from, to);
        if let Some(watch) = maker.watch().cloned() {
            ordo_trace::replay_from(&part, maker.first(), &*watch, &maker.now().clone());
        }
        for request in part.requests() {
            match (request.op, part.data(request)) {
                (RequestOp::Write, Some(data)) => device.write(request.offset, data),
                (RequestOp::WriteZeroes, _) => zero(&mut device, request.offset, request.len),
                _ => {}
            }
        }
        let next = if to < all { Next::Part(&device) } else { Next::End };
        each(maker.end(part, next))?;
        if to == all {
            return Ok(());
        }
        from = to;
    }
}

fn zero(device: &mut Pieces, offset: u64, len: u64) {
    let zeros = vec![0; PIECE as usize];
    let end = offset.saturating_add(len).min(device.bytes);
    let mut at = offset;
    while at < end {
        let next = (at / PIECE + 1).saturating_mul(PIECE).min(end);
        device.write(at, &zeros[..(next - at) as usize]);
        at = next;
    }
}

impl PartMaker {
    /// Begins a recording with this name, of a device that now holds the contents of `image`.
    /// `began_ns` is time zero of the recording, in nanoseconds since 1970.
    pub fn new(recording: String, began_ns: u64, image: &dyn DiskImage) -> PartMaker {
        let mut maker = PartMaker {
            recording,
            began_ns,
            sample: None,
            watch: None,
            rows: Rc::default(),
            now: Rc::new(Cell::new(0)),
            part: 0,
            first: 0,
            start: Pieces::default(),
            is_paused: false,
            base: Base::default(),
        };
        maker.begin(image);
        maker
    }

    /// Begins to name requests to a device that now holds the contents of `image`.
    fn begin(&mut self, image: &dyn DiskImage) {
        (self.watch, self.start) = learn(image);
        self.rows = Rc::new(RefCell::new(Collector::in_parts()));
        if let Some(watch) = &self.watch {
            let (to, number) = (self.rows.clone(), self.now.clone());
            watch.listen(move |event| to.borrow_mut().add_event(number.get(), event));
            watch.number_by(self.now.clone());
        }
    }

    /// Notes in every part how much of the time is recorded.
    pub fn set_sample(&mut self, sample: Option<String>) {
        self.sample = sample;
    }

    /// Ends a pause: the next part begins with the contents of `image`.
    pub fn resume(&mut self, image: &dyn DiskImage) {
        self.is_paused = false;
        self.begin(image);
    }

    /// The watcher; `None` if the device has no known file system. Requests must be shown to it in
    /// order.
    pub fn watch(&self) -> Option<&Rc<Watch>> {
        self.watch.as_ref()
    }

    /// The cell with the number, in the recording, of the request that is shown to the watcher.
    pub fn now(&self) -> &Rc<Cell<u64>> {
        &self.now
    }

    /// The number in the recording of the part's first request.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The file system's name.
    pub fn system(&self) -> &'static str {
        self.watch.as_ref().map_or("none", |watch| watch.system())
    }

    /// The number of rows in memory.
    pub fn rows(&self) -> usize {
        self.rows.borrow().len()
    }

    /// Ends the part with these requests, all of which were shown to the watcher.
    pub fn end(&mut self, trace: Trace, next: Next<'_>) -> Part {
        let is_last = !matches!(next, Next::Part(_));
        let (mut rows, mut found) = match &self.watch {
            // In a pause there are no requests.
            Some(watch) if self.is_paused => {
                let system = watch.system().to_owned();
                let found = WatchFindings { system, ..WatchFindings::default() };
                (PartRows::default(), PartFindings { found, ..PartFindings::default() })
            }
            Some(watch) => {
                let mut rows = self.rows.borrow_mut();
                let rows = rows.end_part(watch, &trace, self.first, is_last);
                (rows, watch.end_part(is_last))
            }
            None => {
                let rows = unclassified(&trace);
                (PartRows { rows, ..PartRows::default() }, PartFindings::default())
            }
        };
        self.base.number(&mut found, &mut rows.files);
        // Within a part, requests are counted from its beginning.
        for moment in found.found.transactions.iter_mut().flat_map(|t| t.moments_mut()) {
            moment.request = moment.request.saturating_sub(self.first);
        }
        let start = match next {
            Next::Part(image) => learn(image).1,
            Next::Pause | Next::End => Pieces::default(),
        };
        let head = PartHead {
            recording: self.recording.clone(),
            part: self.part,
            first_request: self.first,
            began_ns: self.began_ns,
            sample: self.sample.clone(),
            is_last: matches!(next, Next::End),
            found,
            files: rows.files,
            not_carried: rows.not_carried,
        };
        self.part += 1;
        self.first += trace.requests().len() as u64;
        if matches!(next, Next::Pause) {
            self.is_paused = true;
            let found = &head.found;
            self.base = Base {
                part: self.part,
                lifetimes: self.base.lifetimes + self.rows.borrow().lifetimes(),
                transactions: found.first_transaction + found.found.transactions.len() as u64,
                unclaimed: found.unclaimed_so_far,
                orphans: found.orphans_so_far,
            };
        }
        Part {
            trace,
            rows: rows.rows,
            shares: rows.shares,
            start: std::mem::replace(&mut self.start, start),
            system: self.system(),
            head,
        }
    }
}

//! Observers of the volumes of one device: each sees the requests to its volume as if the volume
//! were a device.

use std::cell::Cell;
use std::rc::Rc;

use ordo_annotate::volumes::{CutSink, DiskVolume};
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_recorder::{Before, MakeObserver, Observer, Recording};
use ordo_runtime::Time;
use ordo_trace::RequestOp;

/// Shows each request to several sinks.
struct Sinks(Vec<Rc<dyn TapSink>>);

impl TapSink for Sinks {
    fn issued(&self, r: &Issued<'_>) {
        self.0.iter().for_each(|sink| sink.issued(r));
    }
    fn completed(&self, r: &Completed<'_>) {
        self.0.iter().for_each(|sink| sink.completed(r));
    }
}

/// The observer of a volume.
struct OfVolume {
    volume: DiskVolume,
    observer: Box<dyn Observer>,
}

struct OfEach {
    all: Vec<OfVolume>,
    sink: Rc<Sinks>,
    /// The time at which the observers were last asked whether they want a turn.
    asked: Cell<Time>,
}

impl Observer for OfEach {
    fn sink(&self) -> Rc<dyn TapSink> {
        self.sink.clone()
    }

    fn finish(self: Box<Self>) {
        self.all.into_iter().for_each(|one| one.observer.finish());
    }

    fn tick(&self, now: Time) {
        self.all.iter().for_each(|one| one.observer.tick(now));
    }

    fn mark(&self, text: &str, at: Time) {
        self.all.iter().for_each(|one| one.observer.mark(text, at));
    }

    fn is_due(&self, now: Time) -> bool {
        self.asked.set(now);
        self.all.iter().any(|one| one.observer.is_due(now))
    }

    fn turn(&self, now: &Before<'_>) {
        let asked = self.asked.get();
        for OfVolume { volume, observer } in self.all.iter().filter(|o| o.observer.is_due(asked)) {
            observer.turn(&now.within(volume.origin, volume.bytes));
        }
    }
}

/// A function that makes the observers of a device's volumes, as one observer.
pub fn of_each(makers: Vec<(DiskVolume, MakeObserver)>) -> MakeObserver {
    Box::new(move |before, verdict| {
        let made = makers.into_iter().filter_map(|(volume, make)| {
            let observer = make(&before.within(volume.origin, volume.bytes), verdict)?;
            Some(OfVolume { volume, observer })
        });
        let all: Vec<OfVolume> = made.collect();
        let sinks = all.iter().map(|one| {
            Rc::new(CutSink::new(one.volume.clone(), one.observer.sink())) as Rc<dyn TapSink>
        });
        let sink = Rc::new(Sinks(sinks.collect()));
        let asked = Cell::new(Time::ZERO);
        Some(Box::new(OfEach { all, sink, asked }) as Box<dyn Observer>)
    })
}

/// The recording of a volume, of that of its device.
pub fn recording_of(volume: &DiskVolume, recording: &Recording) -> Recording {
    let trace = volume.trace(&recording.trace);
    let mut marks = Vec::new();
    let mut requests = 0;
    for request in trace.requests() {
        match request.op {
            RequestOp::Mark => marks.push(requests),
            _ => requests += 1,
        }
    }
    let within: std::ops::Range<usize> =
        volume.origin as usize..(volume.origin + volume.bytes) as usize;
    let start = recording.start.get(within.clone()).map_or_else(Vec::new, <[u8]>::to_vec);
    let here = recording.used.iter().map(|r| r.start.max(within.start)..r.end.min(within.end));
    let used = here.filter(|r| !r.is_empty() && !start.is_empty());
    let used = used.map(|r| r.start - within.start..r.end - within.start).collect();
    Recording {
        start,
        used,
        trace,
        clock: recording.clock,
        marks,
        unfinished: recording.unfinished,
    }
}

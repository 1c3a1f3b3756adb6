//! Counters of a device by kind of block, and no trace: a text file in the form that Prometheus
//! reads.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ordo_block::tap::{Issued, TapSink};
use ordo_recorder::{Before, IsUrgent, MakeObserver, Observer};
use ordo_runtime::Time;
use ordo_watcher::analysis::{Analysis, Transactions};
use ordo_watcher::stats::ByClass;
use ordo_watcher::{Stats, TrafficCounts, Watch};

use crate::watching::{Device, DeviceNow};

/// The time between two writes of the file.
const EVERY: Duration = Duration::from_secs(5);

/// The configuration of counters.
pub struct CounterOptions {
    /// The file.
    pub file: PathBuf,
    /// The device's name, a label of every counter.
    pub device: String,
    /// Called once when the file cannot be written. Counting goes on, and so do the attempts.
    pub failed: Box<dyn Fn(&io::Error) + Send>,
}

/// The place where the summary is put at the end.
pub type CountersSlot = Arc<Mutex<Option<Analysis>>>;

struct Counting {
    watch: Rc<Watch>,
    wanted: CounterOptions,
    written: Cell<Option<Time>>,
    has_failed: Cell<bool>,
    text: RefCell<String>,
    into: CountersSlot,
}

/// The counters as Prometheus's text: `# HELP`, `# TYPE`, and a line for each.
fn text(out: &mut String, stats: &Stats, device: &str, system: &str, seconds: f64) {
    out.clear();
    let device = device.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("device=\"{device}\",fs=\"{system}\"");
    let head = |out: &mut String, name: &str, help: &str| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
    };
    type Of = fn(&TrafficCounts) -> u64;
    let kinds: [(&str, &str, &ByClass, Of); 4] = [
        ("ordo_written_bytes_total", "Bytes written, by kind of block.", &stats.writes, |c| {
            c.bytes
        }),
        (
            "ordo_write_requests_total",
            "Writes, by the kind of their first block.",
            &stats.writes,
            |c| c.requests,
        ),
        ("ordo_read_bytes_total", "Bytes read, by kind of block.", &stats.reads, |c| c.bytes),
        (
            "ordo_read_requests_total",
            "Reads, by the kind of their first block.",
            &stats.reads,
            |c| c.requests,
        ),
    ];
    for (name, help, by, of) in kinds {
        head(out, name, help);
        // Counters of Prometheus never fall: a guess that turns out to be of another kind moves
        // from one to the other, which Prometheus takes as a restart of the first.
        for (class, counts) in by.iter().filter(|(_, counts)| counts.blocks > 0) {
            let _ = writeln!(out, "{name}{{{labels},kind=\"{}\"}} {}", class.key(), of(counts));
        }
    }
    for (name, help, value) in [
        ("ordo_flushes_total", "Flushes of the device's cache.", stats.flushes),
        ("ordo_discards_total", "Discards.", stats.discards),
    ] {
        head(out, name, help);
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
    let name = "ordo_device_cpu_seconds_total";
    head(out, name, "Processor time of the device's thread: its requests, and naming them.");
    let _ = writeln!(out, "{name}{{{labels}}} {seconds:.3}");
}

/// The processor time of this thread, in seconds.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl Counting {
    fn write(&self) {
        let mut out = self.text.borrow_mut();
        let (stats, system) = (self.watch.so_far(), self.watch.system());
        text(&mut out, &stats, &self.wanted.device, system, thread_seconds());
        // Nothing of the journal's transactions is kept: memory is that of the file system's
        // metadata.
        let _ = self.watch.end_part(false);
        // A reader never sees half of a file.
        let mut beside = self.wanted.file.clone().into_os_string();
        beside.push(".new");
        let done = fs::write(&beside, &*out).and_then(|()| fs::rename(&beside, &self.wanted.file));
        match done {
            Err(error) if !self.has_failed.replace(true) => (self.wanted.failed)(&error),
            Err(_) => {}
            Ok(()) => self.has_failed.set(false),
        }
    }
}

impl Observer for Counting {
    fn sink(&self) -> Rc<dyn TapSink> {
        self.watch.clone()
    }

    fn tick(&self, now: Time) {
        if self.written.get().is_none_or(|at| now.since(at) >= EVERY) {
            self.written.set(Some(now));
            self.write();
        }
    }

    fn urgent(&self) -> Option<IsUrgent> {
        let watch = self.watch.clone();
        Some(Rc::new(move |r: &Issued<'_>| watch.must_see_now(r)))
    }

    fn finish(self: Box<Self>) {
        self.write();
        let (stats, system) = (self.watch.finish(), self.watch.system().to_owned());
        let orphans = self.watch.orphan_blocks();
        let analysis = Analysis::with(system, stats, orphans, Transactions::default());
        *self.into.lock().unwrap_or_else(PoisonError::into_inner) = Some(analysis);
    }
}

/// A function that makes the counters of a device. Without a known file system all blocks are of an
/// unknown kind.
pub fn counting(wanted: CounterOptions, into: CountersSlot) -> MakeObserver {
    Box::new(move |before: &Before<'_>, _| {
        let watch = Watch::over_any(&Device(before));
        watch.count_only();
        watch.follow(Rc::new(DeviceNow(before.later())));
        let counting = Counting {
            watch,
            wanted,
            written: Cell::new(None),
            has_failed: Cell::new(false),
            text: RefCell::default(),
            into,
        };
        Some(Box::new(counting) as Box<dyn Observer>)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ordo_watcher::Class;

    /// The text has each kind once, with labels whose characters are escaped, and no kind without
    /// traffic.
    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut stats = Stats::default();
        let counts = TrafficCounts { requests: 2, blocks: 3, bytes: 12_288, ..Default::default() };
        stats.writes[Class::FileData].add(&counts);
        stats.flushes = 4;
        let mut out = "old".to_owned();
        text(&mut out, &stats, "a\"b", "ext4", 1.5);
        let labels = "device=\"a\\\"b\",fs=\"ext4\"";
        let has = |line: &str| assert!(out.lines().any(|l| l == line), "{line} in {out}");
        has(&format!("ordo_written_bytes_total{{{labels},kind=\"file_data\"}} 12288"));
        has(&format!("ordo_write_requests_total{{{labels},kind=\"file_data\"}} 2"));
        has(&format!("ordo_flushes_total{{{labels}}} 4"));
        has(&format!("ordo_device_cpu_seconds_total{{{labels}}} 1.500"));
        has("# TYPE ordo_written_bytes_total counter");
        assert_eq!(out.matches("kind=").count(), 2);
        assert!(out.ends_with('\n') && !out.contains("old"));
    }
}

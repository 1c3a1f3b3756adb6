//! Experiments about time: how long a change waits that no program asks to have written.
//!
//! A timer that begins with a change fires near its end: kernels round timers up to whole seconds,
//! compare times in whole seconds, and keep long timers only to within an eighth of their time. A
//! timer that runs by itself fires at any time after a change, up to its period. The two are told
//! apart by changes at irregular times: only under the first do all changes wait equally long.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_trace::RequestOp;

use super::lab::{Event, Lab, Outcome, change_inode, fill, is_journal};
use super::{Effort, InferredFinding, greatest, least, round};
use ordo_kernelfs::kernel::{LiveError, LiveSystem};

/// Writes that follow each other within this time are parts of one.
const ONE_WRITE: Duration = Duration::from_millis(50);
/// The time by which kernels round timers up, in seconds: to a whole second, after times that were
/// cut to whole seconds.
const ROUNDED: f64 = 2.0;
/// The time by which a timer that compares whole seconds may be early, in seconds.
const CUT: f64 = 1.0;
/// The share of its time by which a timer may be late (Linux's timer wheel).
const WHEEL: f64 = 0.125;
/// The time that passes between a timer's end and the write, at most, in seconds.
const LATE: f64 = 0.25;
/// Another process's request to write all file systems reaches them within this time.
const ALL_SYNCED: Duration = Duration::from_millis(500);
/// How far the time between changes departs from its mean, in seconds, in turn: a period of which
/// one is a multiple is not one of the others.
const UNEVEN: [f64; 4] = [0.0, 3.9, -2.8, 1.6];
/// How often a run is made that others disturbed.
const RUNS: u32 = 3;
/// The least number of changes that must have waited undisturbed.
const ENOUGH: usize = 2;

/// The waits of changes until a write, in seconds.
#[derive(Debug, Default, PartialEq)]
struct Waits {
    seconds: Vec<f64>,
    /// The times between writes that ended a wait.
    between: Vec<f64>,
    /// The number of waits that another process ended.
    disturbed: usize,
}

/// The waits from the oldest change that was not written yet to each write, for writes in order. A
/// change that a timer wrote only after the next change had been made has waited since it was made
/// itself. Writes at the moments of `others` were somebody else's doing.
fn waits(changes: &[Instant], writes: impl Iterator<Item = Instant>, others: &[Instant]) -> Waits {
    let (mut last, mut ended): (Option<Instant>, Option<Instant>) = (None, None);
    let mut all = Waits::default();
    for at in writes {
        let goes_on = last.is_some_and(|last| at.duration_since(last) < ONE_WRITE);
        let is_left = |change: &&Instant| **change < at && last.is_none_or(|last| **change > last);
        if let Some(oldest) = changes.iter().find(is_left).filter(|_| !goes_on) {
            let apart =
                |other: &Instant| at.max(*other).duration_since(at.min(*other)) < ALL_SYNCED;
            if others.iter().any(apart) {
                all.disturbed += 1;
            } else {
                all.seconds.push(at.duration_since(*oldest).as_secs_f64());
                all.between.extend(ended.map(|ended| at.duration_since(ended).as_secs_f64()));
                ended = Some(at);
            }
        }
        last = Some(at);
    }
    all
}

/// The interval in which a timer's time lies, in seconds, if it is rounded up by at most `rounded`
/// beside the wheel's share.
fn interval(waits: &Waits, rounded: f64) -> [f64; 2] {
    let (low, high) = (least(&waits.seconds), greatest(&waits.seconds));
    let lower = ((high - rounded - LATE) / (1.0 + WHEEL)).max(0.0);
    let late = rounded + LATE + high * WHEEL;
    let all_alike = waits.seconds.len() >= ENOUGH && high - low <= late;
    match all_alike {
        // A change may have joined what another one had begun, and waited less.
        true => [lower, high + CUT],
        // A timer that runs by itself: its period is at most the time between two of its writes.
        false => [lower, waits.between.iter().copied().fold(f64::MAX, f64::min).max(high)],
    }
}

/// The time after which the kernel looks for old data again, in seconds.
fn flusher_period() -> f64 {
    let text = fs::read_to_string("/proc/sys/vm/dirty_writeback_centisecs").unwrap_or_default();
    text.trim().parse::<f64>().map_or(5.0, |hundredths| hundredths / 100.0)
}

/// The finding of one timer, after a wait of `each` seconds for each change.
fn finding(question: &'static str, waits: &Waits, rounded: f64, each: f64) -> InferredFinding {
    let mut found = match waits.seconds.is_empty() {
        true => {
            let mut none =
                InferredFinding::words(question, format!("more than {each:.0} s, or none"));
            let shortest = (each - rounded - LATE) / (1.0 + WHEEL);
            none.interval = Some([shortest.max(0.0), f64::MAX]);
            none.unit = Some("seconds");
            none
        }
        false => {
            let [low, high] = interval(waits, rounded);
            let mut found = InferredFinding::number(question, &[low, high], "seconds");
            if high == f64::MAX {
                found.answer = format!("{} s or more", round(low));
            }
            found.because(format!(
                "{} changes waited {} to {} s; timers may be a second early, and up to {rounded:.0} s and an eighth late",
                waits.seconds.len(),
                round(least(&waits.seconds)),
                round(greatest(&waits.seconds))
            ))
        }
    };
    if waits.disturbed > 0 {
        found = found.because(format!(
            "{} waits were left out: another process had all file systems written",
            waits.disturbed
        ));
    }
    found
}

/// The requests that commit a transaction.
fn commits(out: &Outcome) -> BTreeSet<usize> {
    let commits = out.seen.found.transactions.iter().filter_map(|t| t.commit);
    commits.map(|commit| commit.request as usize).collect()
}

/// The moments at which writes of these blocks, or the chosen requests, began.
fn moments<'a>(
    events: &'a [Event],
    chosen: &'a BTreeSet<usize>,
    of: impl Fn(&BlockRow) -> bool + 'a,
) -> impl Iterator<Item = Instant> + 'a {
    let each = events.iter().enumerate().filter(|(_, e)| e.op == RequestOp::Write);
    each.filter(move |(i, e)| chosen.contains(i) || e.writes(&of)).map(|(_, e)| e.issued)
}

/// Another file system, which is changed all the time and has no timer for that. Writes to it and
/// to the file system under experiment at the same moment were asked for by another process, for
/// all file systems.
struct Witness {
    // Closed before the file system is unmounted, also where the experiment ends early.
    file: File,
    lab: Lab,
}

impl Witness {
    /// A small ext2, which has no journal; `None` if this kernel has none.
    fn new() -> Option<Witness> {
        let (name, options) = ("ext2".to_owned(), "defaults".to_owned());
        let system = LiveSystem { name, mkfs: Vec::new(), options, bytes: 16 << 20 };
        let lab = Lab::new(&system, &[]).ok()?;
        let file = lab.file("file").ok()?;
        lab.settle();
        Some(Witness { lab, file })
    }

    fn change_until(&self, stop: &AtomicBool) {
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            // A failure shows as nothing that disturbs.
            let _ = change_inode(&self.file, round);
            round += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The moments at which it was written.
    fn written(self) -> Result<Vec<Instant>, LiveError> {
        let events = self.lab.finish(self.file)?.events;
        Ok(moments(&events, &BTreeSet::new(), |_| true).collect())
    }
}

/// The results of one run: the waits for the journal, and for file data.
fn run(system: &LiveSystem, effort: &Effort) -> Result<[Waits; 2], LiveError> {
    let lab = Lab::new(system, &[])?;
    let other = Witness::new();
    let file = lab.file("file")?;
    lab.settle();
    let each = effort.wait.as_secs_f64() / f64::from(effort.trials.max(1));
    let mut changes = Vec::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| other.as_ref().map(|other| other.change_until(&stop)));
        let mut work = || {
            for round in 0..effort.trials {
                change_inode(&file, round)?;
                fill(&file, u64::from(round) * 65_536, 65_536)?;
                changes.push(Instant::now());
                let uneven = UNEVEN[round as usize % UNEVEN.len()];
                super::pause(Duration::from_secs_f64((each + uneven).max(1.0)))?;
            }
            Ok(())
        };
        let done: Result<(), LiveError> = work();
        stop.store(true, Ordering::Relaxed);
        done
    })?;
    let until = Instant::now();
    let out = lab.finish(file)?;
    let others = other.map_or_else(|| Ok(Vec::new()), Witness::written)?;
    let none = BTreeSet::new();
    let is_data = |b: &BlockRow| b.kind == ordo_watcher::Class::FileData;
    let in_time = |at: &Instant| *at < until;
    let chosen = commits(&out);
    Ok([
        waits(&changes, moments(&out.events, &chosen, is_journal).filter(in_time), &others),
        waits(&changes, moments(&out.events, &none, is_data).filter(in_time), &others),
    ])
}

/// Finds the time from a change until it is in the journal, or committed where there is none, and
/// the time until file data are at their place, when no program asks for either. A run that other
/// processes disturbed is made again.
pub(super) fn timers(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let mut runs = 1;
    let [commit, data] = loop {
        let both = run(system, effort)?;
        let is_poor = |w: &Waits| w.disturbed > 0 && w.seconds.len() < ENOUGH;
        if runs >= RUNS || !both.iter().any(is_poor) {
            break both;
        }
        runs += 1;
    };
    let each = effort.wait.as_secs_f64() / f64::from(effort.trials.max(1));
    let period = flusher_period();
    let waited = format!(
        "{} changes, each waited for {each:.0} s{}",
        effort.trials,
        if runs > 1 { format!("; run {runs}, since others disturbed") } else { String::new() }
    );
    let all = [
        finding("commit timer", &commit, ROUNDED, each),
        finding("data timer", &data, ROUNDED + period, each),
    ];
    Ok(all.map(|found| found.because(waited.clone())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(changes: &[u64], writes: &[u64], others: &[u64]) -> Waits {
        let start = Instant::now();
        let at = |all: &[u64]| -> Vec<Instant> {
            all.iter().map(|ms| start + Duration::from_millis(*ms)).collect()
        };
        waits(&at(changes), at(writes).into_iter(), &at(others))
    }

    fn millis(all: &[f64]) -> Vec<u64> {
        all.iter().map(|seconds| (seconds * 1000.0).round() as u64).collect()
    }

    /// Would catch a timer that is taken for one of no time, because it fired just after the next
    /// change.
    #[test]
    fn a_change_waits_until_its_own_write() {
        let times =
            |changes: &[u64], writes: &[u64]| millis(&measured(changes, writes, &[]).seconds);
        assert_eq!(times(&[0, 7000], &[5000, 5001, 12_500]), [5000, 5500]);
        // The timer of 6 to 7 seconds fires behind the second change, or goes on behind it.
        assert_eq!(times(&[0, 7000], &[7001, 7002]), [7001]);
        assert_eq!(times(&[0, 7000], &[6999, 7001, 13_500]), [6999]);
        assert_eq!(times(&[0, 7000], &[]), [0; 0]);
    }

    /// A write at the moment of another file system's is no timer's, and is counted.
    #[test]
    fn what_others_ask_for_is_left_out() {
        let found = measured(&[0, 14_000, 29_000], &[5500, 16_000, 34_800], &[2000, 16_020]);
        assert_eq!((millis(&found.seconds), found.disturbed), (vec![5500, 5800], 1));
        assert_eq!(millis(&found.between), [29_300]);
    }

    /// The true time lies in the interval: for a timer that a change starts, rounded up to whole
    /// seconds; for one that runs by itself; and for one of which a single wait was seen.
    #[test]
    fn the_interval_has_the_true_time() {
        let of = |seconds: &[f64], between: &[f64]| {
            let (seconds, between) = (seconds.to_vec(), between.to_vec());
            interval(&Waits { seconds, between, disturbed: 0 }, ROUNDED)
        };
        let [low, high] = of(&[5.02, 5.97, 5.4], &[15.0, 14.0]);
        assert!(low <= 5.0 && high >= 5.0 && low > 2.0 && high < 7.0, "{low} {high}");
        // The second change joined the first one's data, which were written just before.
        let [low, high] = of(&[5.6, 2.7, 5.5], &[15.0, 14.0]);
        assert!(low <= 5.0 && (5.0..7.0).contains(&high), "{low} {high}");
        let [low, high] = of(&[3.0, 21.0, 12.0], &[30.0, 60.0]);
        assert!(low <= 30.0 && high >= 30.0 && low > 16.0, "{low} {high}");
        // 17 seconds, kept to within two seconds and an eighth.
        let [low, high] = of(&[17.1, 20.9, 18.0], &[40.0, 37.0]);
        assert!(low <= 17.0 && (17.0..22.0).contains(&high), "{low} {high}");
        let [low, high] = of(&[5.4], &[]);
        assert!(low <= 5.0 && high == f64::MAX, "{low} {high}");
    }
}

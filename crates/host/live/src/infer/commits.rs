//! Experiments about commits and checkpoints: their triggers and their form.

use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_trace::RequestOp;

use super::lab::{Event, Lab, change_inode, done, fill, is_journal, touch};
use super::{Effort, InferredFinding, greatest, least, round};
use crate::kernel::{LiveError, LiveSystem};

/// Finds out whether blocks or records are logged, and whether flushes protect the commit.
pub(super) fn logging(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let lab = Lab::new(system, &[])?;
    let file = lab.file("file")?;
    for round in 0..8 * effort.trials {
        change_inode(&file, round)?;
        touch(&file)?;
    }
    let out = lab.finish(file)?;
    let t = &out.seen.analysis.transactions;
    let answer = match (t.copies.greatest, t.records.greatest) {
        (0, 0) => "no journal was seen",
        (_, 0) => "whole blocks are logged",
        (0, _) => "records of changes are logged",
        _ => "whole blocks and records of changes are logged",
    };
    let logged = InferredFinding::words("what is logged", answer).because(format!(
        "{} transactions: {} to {} copies of blocks, {} to {} records, {} to {} bytes",
        t.committed,
        t.copies.least,
        t.copies.greatest,
        t.records.least,
        t.records.greatest,
        t.bytes.least,
        t.bytes.greatest
    ));
    let flushes = out.events.iter().filter(|e| e.op == RequestOp::Flush).count();
    let answer = match t.unordered_commits {
        _ if t.committed == 0 => "no commit was seen",
        _ if flushes == 0 => "no flush was seen: the disk decides the order of commits",
        0 if t.copies.greatest > 0 => "a flush stands between every copy and its commit",
        0 => "a flush stands before commits, or commit and records are one write",
        _ => "some commits have no flush between them and their last copy",
    };
    let protected = InferredFinding::words("flushes protect the commit", answer).because(format!(
        "{flushes} flushes; of {} commits {} without a flush after their last copy",
        t.committed, t.unordered_commits
    ));
    Ok(vec![logged, protected])
}

/// The size of the journal in bytes, as far as it was written.
fn journal_bytes(events: &[Event]) -> f64 {
    let blocks = || events.iter().flat_map(|e| &e.blocks).filter(|b| b.kind.is_journal());
    let first = blocks().map(|b| b.offset).min().unwrap_or(0);
    let end = blocks().map(|b| b.offset + b.len).max().unwrap_or(0);
    (end - first) as f64
}

fn completes(b: &BlockRow) -> bool {
    b.completes.is_some()
}

/// Finds the commit threshold and the trigger of checkpoints, as shares of the journal. The work never calls fsync
/// until the journal has wrapped around more than once; then come many small transactions.
pub(super) fn thresholds(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let lab = Lab::new(system, &[])?;
    let begun = Instant::now();
    // Names in directories are metadata for every file system; data are in the journal only for some.
    for dir in 0..10 * effort.trials {
        let dir = lab.path(&format!("dir{dir}"));
        done(&dir, std::fs::create_dir(&dir))?;
        for i in 0..600 {
            let path = dir.join(format!("{i:03}-{}", "n".repeat(60)));
            let file = done(&path, std::fs::File::create(&path))?;
            fill(&file, 0, 4096)?;
        }
    }
    let took = begun.elapsed();
    let quiet = Instant::now();
    lab.settle();
    let file = lab.file("fsync")?;
    for round in 0..400 * effort.trials {
        change_inode(&file, round)?;
        touch(&file)?;
    }
    let out = lab.finish(file)?;
    let size = journal_bytes(&out.events);
    let before: Vec<&Event> = out.events.iter().filter(|e| e.issued <= quiet).collect();
    let t = &out.seen.analysis.transactions;
    let largest = t.bytes.greatest as f64 / size.max(1.0);
    let commit = if t.committed == 0 {
        InferredFinding::words("commit threshold", "no commit was seen")
    } else {
        // A commit is at most this large; a timer may have come first.
        let mut found = InferredFinding::number("commit threshold", &[largest], "of the journal");
        let by_size = before.iter().any(|e| e.writes(is_journal)) && took < Duration::from_secs(4);
        if !by_size {
            found.answer =
                format!("not reached, or hidden by a timer: at least {}", round(largest));
            found.interval = Some([largest, 1.0]);
        }
        found
    };
    let commit = commit.because(format!(
        "{} files made in {:.1} s without fsync; the largest of {} transactions is {} KiB, the journal's extent {} KiB",
        6000 * effort.trials,
        took.as_secs_f64(),
        t.committed,
        t.bytes.greatest >> 10,
        size as u64 >> 10
    ));
    Ok(vec![commit, checkpoints(&out.events, size)])
}

/// The journal traffic between one burst of checkpoint writes and the next.
fn checkpoints(events: &[Event], size: f64) -> InferredFinding {
    let question = "checkpoint trigger";
    let (mut since, mut shares, mut seen) = (0u64, Vec::new(), 0u64);
    for event in events.iter().filter(|e| e.op == RequestOp::Write) {
        if event.writes(completes) {
            seen += 1;
            // Writes of one burst follow each other, with nothing logged between them.
            if since as f64 > size / 64.0 {
                shares.push(since as f64 / size);
            }
            since = 0;
        }
        since += event.bytes(is_journal);
    }
    let finding = match shares.is_empty() {
        true => InferredFinding::words(question, "no checkpoint by a filling journal was seen"),
        false => {
            InferredFinding::number(question, &shares, "of the journal since the last checkpoint")
        }
    };
    finding.because(format!(
        "{seen} writes completed a transaction at its fixed location, {} of them after more than 1/64 of the journal",
        shares.len()
    ))
}

/// Writes that follow each other within this time are parts of one.
const ONE_WRITE: Duration = Duration::from_millis(50);

/// The seconds from the oldest change that was not written yet to each write, for writes in order. A change that a timer wrote only
/// after the next change had been made has waited since it was made itself.
fn waits(changes: &[Instant], writes: impl Iterator<Item = Instant>) -> Vec<f64> {
    let mut last: Option<Instant> = None;
    let mut times = Vec::new();
    for at in writes {
        let goes_on = last.is_some_and(|last| at.duration_since(last) < ONE_WRITE);
        let is_left = |change: &&Instant| **change < at && last.is_none_or(|last| **change > last);
        if let Some(oldest) = changes.iter().find(is_left).filter(|_| !goes_on) {
            times.push(at.duration_since(*oldest).as_secs_f64());
        }
        last = Some(at);
    }
    times
}

/// Finds the time from a change until it is in the journal, and the time until file data are at their place, when
/// no program asks for either.
pub(super) fn timers(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let lab = Lab::new(system, &[])?;
    let file = lab.file("file")?;
    lab.settle();
    let mut changes = Vec::new();
    let each = effort.wait / effort.trials.max(1);
    for round in 0..effort.trials {
        change_inode(&file, round)?;
        fill(&file, u64::from(round) * 65_536, 65_536)?;
        changes.push(Instant::now());
        std::thread::sleep(each);
    }
    let until = Instant::now();
    let out = lab.finish(file)?;
    let data: fn(&BlockRow) -> bool = |b| b.kind == ordo_sba::Class::FileData;
    let mut all = Vec::new();
    for (question, of) in
        [("commit timer", is_journal as fn(&BlockRow) -> bool), ("data timer", data)]
    {
        let writes = out.events.iter().filter(|e| e.issued < until && e.writes(of));
        let times = waits(&changes, writes.map(|e| e.issued));
        let waited =
            format!("{} changes, each waited for {:.0} s", changes.len(), each.as_secs_f64());
        let finding = match times.is_empty() {
            true => {
                let mut none = InferredFinding::words(
                    question,
                    format!("more than {:.0} s, or none", each.as_secs_f64()),
                );
                none.interval = Some([each.as_secs_f64(), f64::MAX]);
                none.unit = Some("seconds");
                none
            }
            // A timer that runs by itself fires at any moment after a change, so its period is at least the longest
            // wait.
            false => {
                InferredFinding::number(question, &[greatest(&times), greatest(&times)], "seconds")
                    .because(format!(
                        "first write after {} to {} s",
                        round(least(&times)),
                        round(greatest(&times))
                    ))
            }
        };
        all.push(finding.because(waited));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch a timer that is taken for one of no time, because it fired just after the next change.
    #[test]
    fn a_change_waits_until_its_own_write() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let times = |changes: &[u64], writes: &[u64]| {
            let changes: Vec<Instant> = changes.iter().map(|ms| at(*ms)).collect();
            let found = waits(&changes, writes.iter().map(|ms| at(*ms)));
            found.iter().map(|seconds| (seconds * 1000.0).round() as u64).collect::<Vec<u64>>()
        };
        assert_eq!(times(&[0, 7000], &[5000, 5001, 12_500]), [5000, 5500]);
        // The timer of 6 to 7 seconds fires behind the second change, or goes on behind it.
        assert_eq!(times(&[0, 7000], &[7001, 7002]), [7001]);
        assert_eq!(times(&[0, 7000], &[6999, 7001, 13_500]), [6999]);
        assert_eq!(times(&[0, 7000], &[]), [0; 0]);
    }
}

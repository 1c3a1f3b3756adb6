//! Experiments about commits and checkpoints: their triggers and their form.

use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_trace::RequestOp;

use super::lab::{Event, Lab, Outcome, change_inode, done, fill, is_journal, touch};
use super::{Effort, InferredFinding, greatest, least, round};
use ordo_kernelfs::kernel::{LiveError, LiveSystem};

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

/// The size of the journal in bytes: its own, or as far as it was written.
fn journal_bytes(out: &Outcome) -> f64 {
    if let Some(bytes) = out.seen.log_bytes {
        return bytes as f64;
    }
    let blocks = || out.events.iter().flat_map(|e| &e.blocks).filter(|b| b.kind.is_journal());
    let first = blocks().map(|b| b.offset).min().unwrap_or(0);
    let end = blocks().map(|b| b.offset + b.len).max().unwrap_or(0);
    (end - first) as f64
}

/// The part of the largest transaction that another one must have to have ended for the same
/// reason.
const ALIKE: f64 = 0.8;
/// A limit counts what operations reserve, and they write less; and operations under way may join a
/// transaction that has reached it. The share by which the limit may lie above or below what was
/// written.
const RESERVED: f64 = 0.125;
/// The blocks that operations under way may have reserved without writing them, at least.
const RESERVED_BLOCKS: u64 = 64;

/// The size of a block that is copied to the journal, in bytes; 0 if none is.
fn copied_block(out: &Outcome) -> u64 {
    let blocks = out.events.iter().flat_map(|e| &e.blocks);
    let copies = blocks.filter(|b| b.kind == ordo_watcher::Class::JournalData);
    copies.map(|b| b.len).max().unwrap_or(0)
}

/// The shares of the journal that the largest transactions took: of copies or records alone, and
/// with everything.
fn largest(out: &Outcome, size: f64) -> Vec<[f64; 2]> {
    let all = &out.seen.found.transactions;
    let most = all.iter().map(|t| t.bytes).max().unwrap_or(0) as f64;
    let block = copied_block(out);
    let alike = all.iter().filter(|t| t.commit.is_some() && t.bytes as f64 >= ALIKE * most);
    let shares = alike.map(|t| {
        let own = if t.copies > 0 { t.copies * block } else { t.bytes };
        [own.min(t.bytes), t.bytes].map(|bytes| bytes as f64 / size.max(1.0))
    });
    shares.collect()
}

fn completes(b: &BlockRow) -> bool {
    b.completes.is_some()
}

/// Finds the commit threshold and the trigger of checkpoints, as shares of the journal. The work
/// never calls fsync until the journal has wrapped around more than once; then come many small
/// transactions.
pub(super) fn thresholds(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let lab = Lab::new(system, &[])?;
    let begun = Instant::now();
    // Names in directories are metadata for every file system; data are in the journal only for
    // some.
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
    let size = journal_bytes(&out);
    let before: Vec<&Event> = out.events.iter().filter(|e| e.issued <= quiet).collect();
    let t = &out.seen.analysis.transactions;
    let shares = largest(&out, size);
    let commit = if t.committed == 0 {
        InferredFinding::words("commit threshold", "no commit was seen")
    } else {
        let (own, whole): (Vec<f64>, Vec<f64>) = shares.iter().map(|[a, b]| (*a, *b)).unzip();
        let reserved = (RESERVED_BLOCKS * copied_block(&out)) as f64 / size.max(1.0);
        let most = greatest(&whole);
        let ends = [
            least(&own) * (1.0 - RESERVED),
            (most * (1.0 + RESERVED)).max(most + reserved).min(1.0),
        ];
        let mut found = InferredFinding::number("commit threshold", &ends, "of the journal");
        // A commit is at most as large as the limit; a timer may have come first.
        let by_size = shares.len() > 1
            && before.iter().any(|e| e.writes(is_journal))
            && took < Duration::from_secs(4) * effort.trials;
        if !by_size {
            let largest = greatest(&own) * (1.0 - RESERVED);
            found.answer =
                format!("not reached, or hidden by a timer: at least {}", round(largest));
            found.interval = Some([largest, 1.0]);
        }
        found.because(format!("{} transactions were about as large as the largest", shares.len()))
    };
    let commit = commit.because(format!(
        "{} files made in {:.1} s without fsync; the largest of {} transactions is {} KiB, the journal has {} KiB",
        6000 * effort.trials,
        took.as_secs_f64(),
        t.committed,
        t.bytes.greatest >> 10,
        size as u64 >> 10
    ));
    let mut all = vec![commit, checkpoints(&out.events, size)];
    if let Some(bytes) = out.seen.log_bytes {
        let mut found = InferredFinding::words("journal size", format!("{} KiB", bytes >> 10));
        (found.interval, found.unit) = (Some([bytes as f64; 2]), Some("bytes"));
        all.push(found.because("the journal or the file system says so"));
    }
    Ok(all)
}

/// The journal traffic between one burst of checkpoint writes and the next.
fn checkpoints(events: &[Event], size: f64) -> InferredFinding {
    let question = "checkpoint trigger";
    let (mut since, mut shares, mut seen, mut around) = (0u64, Vec::new(), 0u64, 0u64);
    for event in events.iter().filter(|e| e.op == RequestOp::Write) {
        if event.writes(completes) {
            seen += 1;
            // Writes of one burst follow each other, with nothing logged between them. More than
            // the whole journal was logged where all that a checkpoint needs had been logged again:
            // then it wrote nothing.
            match since as f64 / size {
                share if share > 1.0 => around += 1,
                share if share > 1.0 / 64.0 => shares.push(share),
                _ => {}
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
        "{seen} writes completed a transaction at its fixed location, {} of them after more than 1/64 of the journal, \
         {around} after all of it, which is no trigger",
        shares.len()
    ))
}

//! Probes: writes of one kind are delayed, to see what waits for them, or dropped, to see what a
//! restart needs.

use std::path::Path;
use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_watcher::{Class, Kinds};

use super::lab::{Event, Lab, change_inode, done, fill};
use super::{Effort, InferredFinding, greatest, least, round};
use ordo_kernelfs::kernel::{LiveError, LiveSystem, look_into};

/// The kinds of writes that are delayed and dropped, each with its question about what waits, and
/// about a restart.
const PROBED: [(Kinds, &str, &str); 4] = [
    (Kinds::One(Class::FileData), "what waits for file data", "a restart without file data"),
    (Kinds::Journal, "what waits for the journal", "a restart without the journal's blocks"),
    (Kinds::Commit, "what waits for the commit", "a restart without commits"),
    (
        Kinds::Metadata,
        "what waits for metadata in place",
        "a restart without metadata in their places",
    ),
];

/// Two delays, in milliseconds. The difference between them is that which must be seen again in
/// what waits.
const DELAYS: [u64; 2] = [200, 600];
/// The bytes of a probed file, and the byte that they have.
const BYTES: usize = 64 << 10;
const PATTERN: u8 = 0x5a;

/// A write that may wait, or the call.
const WAITERS: [&str; 5] =
    ["file data", "copies and records in the journal", "the commit", "metadata in place", "fsync"];

fn is_waiter(number: usize, row: &BlockRow) -> bool {
    let commit = Kinds::Commit.have(row.kind);
    match number {
        0 => row.kind == Class::FileData,
        1 => row.kind.is_journal() && !commit && row.kind != Class::JournalSuperblock,
        2 => commit,
        _ => Kinds::Metadata.have(row.kind),
    }
}

/// The milliseconds from a change of a file's inode to the first write of each kind, and to the end
/// of its fsync, in each trial in which there was such a write. Meanwhile another file's data are
/// on their way.
fn times(
    system: &LiveSystem,
    effort: &Effort,
    delayed: Kinds,
    delay: u64,
) -> Result<[Vec<f64>; WAITERS.len()], LiveError> {
    let lab = Lab::suspended(system, &[&format!("delay {delayed} {delay}ms")])?;
    let (other, mut spans) = (lab.file("other")?, Vec::new());
    for trial in 0..effort.trials {
        let name = format!("data{trial}");
        let file = lab.file(&name)?;
        lab.settle();
        fill(&file, 0, BYTES)?;
        lab.set_lax(false);
        let writer = std::thread::spawn(move || file.sync_data());
        // The other file's data are on their way by then.
        std::thread::sleep(Duration::from_millis(DELAYS[0] / 4));
        let before = Instant::now();
        change_inode(&other, trial)?;
        done(Path::new("other"), other.sync_all())?;
        spans.push((before, Instant::now()));
        done(&lab.path(&name), writer.join().unwrap_or(Ok(())))?;
        lab.set_lax(true);
    }
    let out = lab.finish(other)?;
    let mut all: [Vec<f64>; WAITERS.len()] = Default::default();
    for (from, to) in spans {
        let during: Vec<&Event> =
            out.events.iter().filter(|e| e.issued >= from && e.issued <= to).collect();
        for (number, times) in all.iter_mut().enumerate().take(WAITERS.len() - 1) {
            let first = during.iter().find(|e| e.writes(|row| is_waiter(number, row)));
            times.extend(first.map(|e| (e.issued - from).as_secs_f64() * 1000.0));
        }
        all[WAITERS.len() - 1].push((to - from).as_secs_f64() * 1000.0);
    }
    Ok(all)
}

fn middle(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Delays each kind of write by two times, and finds what comes later by their difference (section
/// 6).
pub(super) fn waits(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let mut all = Vec::new();
    for (delayed, question, _) in PROBED {
        let [short, long] = DELAYS;
        let (less, more) =
            (times(system, effort, delayed, short)?, times(system, effort, delayed, long)?);
        let (mut waiting, mut evidence) = (Vec::new(), Vec::new());
        for (name, (less, more)) in WAITERS.iter().zip(less.iter().zip(&more)) {
            if less.is_empty() || more.is_empty() {
                continue;
            }
            let later = middle(more) - middle(less);
            evidence.push(format!(
                "delayed for {short} and {long} ms: {name} after {} and {} ms ({} to {}, {} to {})",
                round(middle(less)),
                round(middle(more)),
                round(least(less)),
                round(greatest(less)),
                round(least(more)),
                round(greatest(more)),
            ));
            if later > (long - short) as f64 / 2.0 {
                waiting.push(*name);
            }
        }
        let answer = if waiting.is_empty() { "nothing".to_owned() } else { waiting.join(", ") };
        let finding = InferredFinding::words(question, answer);
        all.push(evidence.into_iter().fold(finding, InferredFinding::because));
    }
    Ok(all)
}

/// Drops each kind of write while a file is made durable, copies the device as a power cut would
/// leave it, and mounts the copy (section 5).
pub(super) fn restart(
    system: &LiveSystem,
    _effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    PROBED.iter().map(|(dropped, _, question)| without(system, *dropped, question)).collect()
}

fn without(
    system: &LiveSystem,
    dropped: Kinds,
    question: &'static str,
) -> Result<InferredFinding, LiveError> {
    let lab = Lab::suspended(system, &[&format!("drop {dropped}")])?;
    let old = lab.file("old")?;
    fill(&old, 0, BYTES)?;
    lab.settle();
    lab.set_lax(false);
    let new = lab.file("new")?;
    fill(&new, 0, BYTES)?;
    done(Path::new("new"), new.sync_all())?;
    let copy = tempfile::NamedTempFile::new();
    let copy = done(Path::new("a copy of the device"), copy)?;
    lab.crash_image(copy.path())?;
    lab.set_lax(true);
    let out = lab.finish((old, new))?;
    let read = |dir: &Path| ["old", "new"].map(|name| std::fs::read(dir.join(name)));
    let count = |bytes: &[u8]| bytes.iter().filter(|b| **b == PATTERN).count();
    let (answer, said) = match look_into(&system.name, copy.path(), read) {
        _ if out.seen.dropped == 0 => ("there was no such write".to_owned(), String::new()),
        Err(error) => {
            ("needed: the file system cannot be mounted".to_owned(), format!("; mount: {error}"))
        }
        Ok([_, Err(error)]) => (
            "needed: a file whose fsync had returned is not there".to_owned(),
            format!("; {error}"),
        ),
        Ok([_, Ok(bytes)]) if count(&bytes) < BYTES => {
            let answer = "needed: a file whose fsync had returned has not its contents";
            let zeros = bytes.iter().filter(|b| **b == 0).count();
            let said = format!(
                "; it has {} bytes, {} as written, {zeros} zeros",
                bytes.len(),
                count(&bytes)
            );
            (answer.to_owned(), said)
        }
        Ok([Ok(bytes), Ok(_)]) if count(&bytes) == BYTES => {
            ("not needed: a file whose fsync had returned is there".to_owned(), String::new())
        }
        Ok(_) => ("needed: an older file is damaged".to_owned(), String::new()),
    };
    let evidence = format!("{} writes were dropped before the power cut{said}", out.seen.dropped);
    Ok(InferredFinding::words(question, answer).because(evidence))
}

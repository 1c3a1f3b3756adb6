//! Experiments about order: which writes wait for which.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_trace::RequestOp;
use ordo_watcher::Class;

use super::lab::{Event, Lab, change_inode, done, fill, is_journal, touch};
use super::{Effort, InferredFinding, greatest, least, round};
use ordo_kernelfs::kernel::{LiveError, LiveSystem, look_into};

/// The time for which file data are held up, in milliseconds: far above that of a commit on a
/// device in memory.
const HELD_MS: u64 = 400;
/// The time, in milliseconds, if it must also suffice for a copy of the device.
const HELD_LONG_MS: u64 = 6000;
/// The byte of all data that is written.
const PATTERN: u8 = 0x5a;
/// The byte in all free space.
const OLD: u8 = 0xa5;

fn is_data(b: &BlockRow) -> bool {
    b.kind == Class::FileData
}

fn is_copy_of_data(b: &BlockRow) -> bool {
    b.home.is_some_and(|(_, class)| class == Class::FileData)
}

/// Finds the journaling mode: whether data are in the journal, and if not, whether a commit waits
/// for data under way. The device holds up one file's data while another file's inode is made
/// durable.
pub(super) fn mode(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    let question = "journaling mode";
    let lab = Lab::new(system, &[&format!("delay file_data {HELD_MS}ms")])?;
    let other = lab.file("other")?;
    let mut asked = Vec::new();
    for trial in 0..effort.trials {
        let name = format!("data{trial}");
        let file = lab.file(&name)?;
        lab.settle();
        fill(&file, 0, 256 << 10)?;
        let path = lab.path(&name);
        let writer = std::thread::spawn(move || file.sync_data());
        std::thread::sleep(Duration::from_millis(HELD_MS / 5));
        change_inode(&other, trial)?;
        let before = Instant::now();
        done(Path::new("other"), other.sync_all())?;
        asked.push((before, before.elapsed()));
        done(&path, writer.join().unwrap_or(Ok(())))?;
    }
    let out = lab.finish(other)?;
    let written: u64 =
        out.events.iter().filter(|e| e.op == RequestOp::Write).map(|e| e.bytes(is_data)).sum();
    let copied: u64 = out.events.iter().map(|e| e.bytes(is_copy_of_data)).sum();
    let journal = out.seen.analysis.transactions.committed > 0;
    let waits: Vec<f64> = asked.iter().map(|(_, took)| took.as_secs_f64() * 1000.0).collect();
    let share = format!(
        "{} KiB of file data went to fixed locations, copies of {} KiB to the journal",
        written >> 10,
        copied >> 10
    );
    let waited = format!(
        "fsync of another file's inode took {} to {} ms while data were delayed for {HELD_MS} ms",
        round(least(&waits)),
        round(greatest(&waits))
    );
    let held = HELD_MS as f64 / 2.0;
    let answer = match () {
        () if !journal => "no journal was seen",
        () if copied > 0 => "data and metadata are journaled",
        () if least(&waits) > held => "metadata are journaled; a commit waits for data (ordered)",
        () if greatest(&waits) < held => {
            return Ok(vec![exposed(system)?.because(share).because(waited)]);
        }
        () => "metadata are journaled; a commit waited for data in some trials and not in others",
    };
    Ok(vec![InferredFinding::words(question, answer).because(share).because(waited)])
}

/// If a commit does not wait for data, finds whether it can expose blocks that the data have not
/// reached. The device is copied while data are held up, as a power cut would leave it, and
/// examined.
fn exposed(system: &LiveSystem) -> Result<InferredFinding, LiveError> {
    let lab = Lab::new(system, &[&format!("delay file_data {HELD_LONG_MS}ms")])?;
    let (other, file) = (lab.file("other")?, lab.file("data")?);
    // The old contents of blocks that a file gets must differ from zeros.
    lab.set_lax(true);
    let old = lab.file("old")?;
    let piece = vec![OLD; 1 << 20];
    // The loop writes until the device is full.
    while (&old).write_all(&piece).is_ok() {}
    lab.settle();
    drop(old);
    done(&lab.path("old"), std::fs::remove_file(lab.path("old")))?;
    lab.settle();
    lab.set_lax(false);
    fill(&file, 0, 256 << 10)?;
    let writer = std::thread::spawn(move || file.sync_data());
    std::thread::sleep(Duration::from_millis(HELD_MS / 5));
    change_inode(&other, 1)?;
    done(Path::new("other"), other.sync_all())?;
    let copy = tempfile::NamedTempFile::new();
    let copy = done(Path::new("a copy of the device"), copy)?;
    let before = Instant::now();
    lab.crash_image(copy.path())?;
    let in_time = before.elapsed() < Duration::from_millis(HELD_LONG_MS * 4 / 5);
    done(Path::new("data"), writer.join().unwrap_or(Ok(())))?;
    lab.finish(other)?;
    let found = look_into(&system.name, copy.path(), |dir| std::fs::read(dir.join("data")))?;
    let bytes = found.unwrap_or_default();
    let of = |wanted: fn(u8) -> bool| bytes.iter().filter(|b| wanted(**b)).count();
    let (old, zero, new) = (of(|b| b == OLD), of(|b| b == 0), of(|b| b == PATTERN));
    let answer = match () {
        () if !in_time => {
            "metadata are journaled; a commit does not wait for data; the contents that it shows were not determined"
        }
        () if old > 0 => "metadata are journaled; no order between data and commit (writeback)",
        () if zero > 0 => {
            "metadata are journaled; a commit does not wait for data, but shows zeros until they are there (ordered)"
        }
        () => {
            "metadata are journaled; a commit does not wait for data, and shows them only when they are there (ordered)"
        }
    };
    Ok(InferredFinding::words("journaling mode", answer).because(format!(
        "after a power cut while data were delayed the file has {} bytes: {new} that were written, {zero} zeros, {old} of a \
         file removed before",
        bytes.len()
    )))
}

/// The number of bytes written between two moments.
fn between(events: &[Event], from: Instant, to: Instant, of: impl Fn(&BlockRow) -> bool) -> u64 {
    let inside = |e: &&Event| e.op == RequestOp::Write && e.issued >= from && e.issued <= to;
    events.iter().filter(inside).map(|e| e.bytes(&of)).sum()
}

/// Finds compound transactions (tangled synchrony, Figure 6): whether making one file durable
/// writes other programs' changes.
pub(super) fn tangled(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    const MADE: usize = 400;
    let lab = Lab::new(system, &[])?;
    let own = lab.file("own")?;
    let mut spans = Vec::new();
    for trial in 0..effort.trials {
        for crowd in [false, true] {
            lab.settle();
            if crowd {
                let dir = lab.path(&format!("crowd{trial}"));
                done(&dir, std::fs::create_dir(&dir))?;
                for i in 0..MADE {
                    done(&dir, std::fs::File::create(dir.join(format!("{i:05}"))))?;
                }
            }
            let before = Instant::now();
            touch(&own)?;
            spans.push((crowd, before, Instant::now()));
        }
    }
    let out = lab.finish(own)?;
    let of = |wanted: bool| -> Vec<f64> {
        let spans = spans.iter().filter(|(crowd, ..)| *crowd == wanted);
        spans
            .map(|(_, from, to)| between(&out.events, *from, *to, is_journal) as f64 / 1024.0)
            .collect()
    };
    let (alone, among) = (of(false), of(true));
    let answer = match () {
        () if greatest(&among) == 0.0 => "no journal was seen",
        () if least(&among) > 2.0 * greatest(&alone) => {
            "one transaction has the changes of all processes: fsync of one file writes the changes of others"
        }
        () => "fsync of one file does not write the changes of others",
    };
    Ok(vec![
        InferredFinding::words("compound transactions", answer)
            .because(format!(
                "fsync of a byte wrote {} to {} KiB to the journal by itself",
                round(least(&alone)),
                round(greatest(&alone))
            ))
            .because(format!(
                "and {} to {} KiB after {MADE} files were made elsewhere without fsync",
                round(least(&among)),
                round(greatest(&among))
            )),
    ])
}

/// The times at which a write was sent and done; `None` if it never was.
type Span = (Instant, Option<Instant>);

/// The number of writes that were sent while one of `others` was on its way.
fn sent_during(writes: &[Span], others: &[Span]) -> usize {
    let during = |(sent, _): &&Span| {
        let open = |(from, done): &Span| from < sent && done.is_none_or(|done| done > *sent);
        others.iter().any(open)
    };
    writes.iter().filter(during).count()
}

/// Finds whether journal writes are sent while data are under way (falsely limited parallelism,
/// section 3.2.2).
pub(super) fn overlap(
    system: &LiveSystem,
    effort: &Effort,
) -> Result<Vec<InferredFinding>, LiveError> {
    const WRITERS: usize = 5;
    const EACH: usize = 16 << 10;
    let lab = Lab::new(system, &["delay file_data 10ms"])?;
    let mut files = Vec::new();
    for i in 0..WRITERS {
        let file = lab.file(&format!("writer{i}"))?;
        fill(&file, 0, 1 << 20)?;
        files.push(file);
    }
    lab.settle();
    let from = Instant::now();
    std::thread::scope(|scope| {
        for (i, file) in files.iter().enumerate() {
            let rounds = 4 * effort.trials as usize;
            scope.spawn(move || {
                for round in 0..rounds {
                    let place = (round * 7 + i * 3) % 64 * EACH;
                    // A failure here shows as too few writes.
                    let _ = fill(file, place as u64, EACH);
                    let _ = change_inode(file, round as u32);
                    let _ = file.sync_all();
                }
            });
        }
    });
    let out = lab.finish(files)?;
    let sent = |of: fn(&BlockRow) -> bool| -> Vec<Span> {
        let writes = out.events.iter().filter(|e| e.issued >= from && e.writes(of));
        writes.map(|e| (e.issued, e.done)).collect()
    };
    let (data, journal) = (sent(is_data), sent(is_journal));
    let (during, all) = (sent_during(&journal, &data), journal.len());
    let share = during as f64 / all.max(1) as f64;
    let answer = match () {
        () if all == 0 => "no journal was seen".to_owned(),
        () if data.is_empty() => "no data at fixed locations to overlap with".to_owned(),
        () => format!(
            "{:.0} % of journal writes were sent while data were on their way",
            share * 100.0
        ),
    };
    let mut finding = InferredFinding::words("journal and fixed-location writes overlap", answer);
    finding.interval = (all > 0 && !data.is_empty()).then_some([share, share]);
    finding.unit = finding.interval.map(|_| "share");
    Ok(vec![finding.because(format!(
        "{WRITERS} writers of 16 KiB with fsync, data delayed for 10 ms: {} data writes, {all} journal writes, {during} of \
         these while data were on their way",
        data.len()
    ))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Falsely limited parallelism (section 3.2.2, Figure 9): a journal that is written only when
    /// the data are done has no write that was sent during theirs, however close they are; one that
    /// does not wait has all but those sent in a pause. A write of data that never ended is on its
    /// way for good. Would catch an experiment that calls writes side by side because their times
    /// touch.
    #[test]
    fn journal_writes_during_data_writes_are_told_from_those_after() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let span = |from, to| (at(from), Some(at(to)));
        let data = [span(0, 10), span(20, 30), span(25, 40)];
        let after = [span(10, 12), span(15, 16), span(40, 45)];
        assert_eq!(sent_during(&after, &data), 0);
        let beside = [span(5, 6), span(12, 13), span(28, 50), span(39, 60)];
        assert_eq!(sent_during(&beside, &data), 3);
        assert_eq!(sent_during(&after, &[(at(0), None)]), 3);
    }
}

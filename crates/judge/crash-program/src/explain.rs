//! A failure made small, and explained in the program's words.

use std::collections::BTreeSet;
use std::path::Path;

use ordo_crash::space::{Fate, Pick, Space};
use ordo_trace::strace::Syscall;
use ordo_watcher::Class;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::bench::Bench;
use crate::causes::{self, Cause, CauseFailure, Differing, LostWrite};
use crate::check::Check;
use crate::explore::{JobFinding, Wrong};
use crate::judged::RecoveryCut;
use crate::record::{Meaning, Recorded};
use crate::stand::Stand;
use crate::tree::{FileTree, TreeContents, TreeDifference};

/// The most differences, writes and calls in an explanation.
const LISTED_MAX: usize = 12;
/// The number of states that are judged to make one small.
const SHRINK_MAX: usize = 60;
/// The number of later states that are tried until one is right.
const RIGHT_MAX: usize = 12;

/// A write of the last moment, and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedWrite {
    /// Whether the write is on the disk.
    pub fate: Fate,
    /// The description of the write.
    pub what: String,
    /// The file, if the write has contents of one.
    pub path: Option<String>,
    /// The range of that file: first byte, end.
    pub bytes: Option<(u64, u64)>,
    /// The time of issue, in nanoseconds after the command began.
    pub at: u64,
}

/// A power cut during a recovery, explained.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedCut {
    /// The moment of the power cut, in nanoseconds after the recovery began.
    pub cut: u64,
    /// The recovery's writes that the cut may lose, with the fate of each.
    pub writes: Vec<ListedWrite>,
}

/// A failure, explained and made small.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The explanation.
    pub told: Explanation,
    /// The power cuts during recoveries, with the recordings of these.
    pub recoveries: Vec<RecoveryCut>,
}

/// An explained failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The state, made small.
    pub pick: Pick,
    /// The kind of failure.
    pub wrong: Wrong,
    /// The check's output.
    pub said: String,
    /// The number of states that fail alike.
    pub alike: u64,
    /// The last line that the program had promised.
    pub after: Option<String>,
    /// The lines that were pending.
    pub pending: Vec<String>,
    /// The moment of the power cut, in nanoseconds after the command began.
    pub cut: u64,
    /// The differences of the state from a right one.
    pub differences: Vec<String>,
    /// The writes that a power cut at this moment may lose, with the fate of each.
    pub writes: Vec<ListedWrite>,
    /// The power cuts during the recovery of this state, and of what they left. Mostly there are
    /// none.
    pub recoveries: Vec<ExplainedCut>,
    /// System calls before the cut, with marks between them.
    pub calls: Vec<String>,
    /// The causes, the most likely one first.
    pub causes: Vec<Cause>,
}

/// Makes a failing state as small as possible, and explains it.
///
/// # Errors
/// There is no loop device, or the check cannot be run.
pub fn explain(
    recorded: &Recorded,
    check: &Check,
    unit: usize,
    finding: &JobFinding,
    shrink: bool,
) -> Result<Explained, ProgramError> {
    let bench = Bench::new(recorded, check, unit);
    let stand = bench.stand(0)?;
    let (pick, recoveries) = match shrink {
        true => small(&bench, &stand, finding)?,
        false => (finding.pick.clone(), finding.recoveries.clone()),
    };
    let judged = bench.judge_pick(&stand, &pick, &recoveries)?;
    let said = judged.map_or_else(|| finding.said.clone(), |(_, said)| said);
    let compared = match finding.wrong {
        Wrong::Unsound => Compared::default(),
        _ => compared(&bench, &stand, &pick, &recoveries)?,
    };
    let began = recorded.began_at;
    let cut = event_time(recorded, pick.events);
    let writes = writes(&recorded.meanings, &bench.space.fates(&pick), began);
    let cuts = recoveries.iter().map(|cut| explained_cut(cut, unit)).collect();
    let promises = bench.promises(pick.events);
    let causes = causes_of(recorded, (&pick, finding.wrong), &said, &compared, &writes);
    let differences = compared.differences.iter();
    let differences = differences.map(|one| format!("{} {}", one.path, one.said)).collect();
    let mut lines = calls_before(recorded, cut, began);
    lines.push(format!("{:>9.3} ms  power cut", millis(cut, began)));
    let told = Explanation {
        pick,
        wrong: finding.wrong,
        said,
        alike: finding.alike,
        after: promises.acked.last().cloned(),
        pending: promises.pending,
        cut: cut.saturating_sub(began),
        differences,
        writes,
        recoveries: cuts,
        calls: if recorded.calls.is_empty() { Vec::new() } else { lines },
        causes,
    };
    Ok(Explained { told, recoveries })
}

/// The writes of a recovery at a power cut during it.
fn explained_cut(cut: &RecoveryCut, unit: usize) -> ExplainedCut {
    let recovery = &cut.recovery;
    let fates = Space::new(recovery.run.clone(), unit).fates(&cut.pick);
    let last = recovery.times.last().copied().unwrap_or(0);
    let at = recovery.times.get(cut.pick.events).copied().unwrap_or(last + 1);
    ExplainedCut { cut: at, writes: writes(&recovery.meanings, &fates, 0) }
}

/// Finds a state of the same moment that fails in the same way, with as few lost writes as
/// possible. If a recovery was cut, its writes are those that are lost or kept.
fn small(
    bench: &Bench<'_>,
    stand: &Stand,
    finding: &JobFinding,
) -> Result<(Pick, Vec<RecoveryCut>), ProgramError> {
    let (mut error, mut left) = (None, SHRINK_MAX);
    let mut fails = |pick: &Pick, cuts: &[RecoveryCut]| {
        if left == 0 {
            return false;
        }
        left -= 1;
        match bench.judge_pick(stand, pick, cuts) {
            Ok(found) => found.is_some_and(|(wrong, _)| wrong == finding.wrong),
            Err(why) => {
                error.get_or_insert(why);
                false
            }
        }
    };
    let (mut pick, mut cuts) = (finding.pick.clone(), finding.recoveries.clone());
    match cuts.split_last_mut() {
        None => {
            // Often no write needs to be lost: the missing data were never sent.
            pick = match bench.space.everything(pick.frontier) {
                Some(whole) if fails(&whole, &[]) => whole,
                _ => bench.space.shrink(&pick, |pick| fails(pick, &[])),
            };
        }
        Some((last, before)) => {
            let space = Space::new(last.recovery.run.clone(), bench.unit());
            let recovery = last.recovery.clone();
            last.pick = space.shrink(&last.pick, |cut| {
                let cut = RecoveryCut { recovery: recovery.clone(), pick: cut.clone() };
                fails(&pick, &[&*before, &[cut]].concat())
            });
        }
    }
    error.map_or(Ok((pick, cuts)), Err)
}

fn millis(at: u64, began: u64) -> f64 {
    (at as f64 - began as f64) / 1e6
}

/// The time of the next event after the first `events`.
fn event_time(recorded: &Recorded, events: usize) -> u64 {
    let last = recorded.times.last().copied().unwrap_or(0);
    recorded.times.get(events).copied().unwrap_or(last + 1)
}

/// The causes of a failure: from the program's calls, or guessed from lost writes.
fn causes_of(
    recorded: &Recorded,
    (pick, wrong): (&Pick, Wrong),
    said: &str,
    compared: &Compared,
    writes: &[ListedWrite],
) -> Vec<Cause> {
    let mut marks = recorded.marks.iter().filter(|mark| mark.events <= pick.events);
    let promised = marks.rfind(|mark| !mark.text.starts_with("begin "));
    let differing: Vec<Differing> =
        compared.differences.iter().map(TreeDifference::defect).collect();
    let right = compared.right.map(|events| event_time(recorded, events) as i64);
    let failure = CauseFailure {
        wrong,
        said,
        differing: &differing,
        present: &compared.present,
        existing: &recorded.existing,
        promised: promised.map(|mark| mark.at as i64),
        cut: event_time(recorded, pick.events) as i64,
        right,
    };
    match (wrong, recorded.calls.is_empty()) {
        (Wrong::Unsound, _) => Vec::new(),
        (_, false) => causes::by_calls(&recorded.calls, &failure),
        (wrong, true) => causes::by_writes(wrong, &lost(writes), said, &differing),
    }
}

/// A state beside the first later one that is right.
#[derive(Default)]
struct Compared {
    differences: Vec<TreeDifference>,
    /// All paths of the state.
    present: BTreeSet<String>,
    /// The number of events of the right state.
    right: Option<usize>,
}

fn compared(
    bench: &Bench<'_>,
    stand: &Stand,
    pick: &Pick,
    cuts: &[RecoveryCut],
) -> Result<Compared, ProgramError> {
    let seen = |work: &Path| FileTree::of(work, false).map(|tree| (tree, TreeContents::of(work)));
    let Some(Ok((tree, contents))) = bench.look(stand, pick, cuts, seen)? else {
        return Ok(Compared::default());
    };
    let promises = bench.promises(pick.events);
    let last = bench.space.frontiers().saturating_sub(1);
    let (mut at, mut step, mut right) = (pick.frontier, 1, None);
    for _ in 0..RIGHT_MAX {
        let Some(whole) = bench.space.everything(at) else { break };
        // The check may change what is there.
        let look = |work: &Path| (seen(work), bench.check.run(work, &promises, stand.number));
        if let Some((Ok(seen), said)) = bench.look(stand, &whole, &[], look)? {
            right = Some((seen, whole.events));
            if !said?.is_broken() {
                break;
            }
        }
        if at == last {
            break;
        }
        (at, step) = ((at + step).min(last), step * 2);
    }
    let present = tree.0.keys().cloned().collect();
    let Some(((whole, rightly), events)) = right else {
        return Ok(Compared { present, ..Compared::default() });
    };
    let mut differences = tree.differences(&whole, LISTED_MAX);
    differences.iter_mut().for_each(|one| one.refine(&contents, &rightly));
    Ok(Compared { differences, present, right: Some(events) })
}

/// Writes with their fates, and with times after the moment `began`.
fn writes(
    meanings: &[Vec<Meaning>],
    fates: &[(usize, usize, Fate)],
    began: u64,
) -> Vec<ListedWrite> {
    let tell = |(disk, write, fate): &(usize, usize, Fate)| {
        let meaning = &meanings[*disk][*write];
        let of = if *disk == 0 { String::new() } else { format!(" of disk {disk}") };
        ListedWrite {
            fate: *fate,
            what: in_words(meaning) + &of,
            path: meaning.path.clone(),
            bytes: meaning.bytes,
            at: meaning.at.saturating_sub(began),
        }
    };
    fates.iter().map(tell).collect()
}

/// The description of a write for a person.
fn in_words(meaning: &Meaning) -> String {
    let name =
        meaning.path.as_deref().map(|p| if p.is_empty() { "the program's directory" } else { p });
    match (meaning.class, name, meaning.bytes) {
        (Class::FileData, Some(name), Some((from, to))) => {
            format!("data of {name}, bytes {from} to {}", to - 1)
        }
        (Class::FileData, Some(name), None) => format!("data of {name}"),
        (Class::Directory, Some(name), _) => format!("entries of {name}"),
        (_, Some(name), _) => format!("{} ({name})", meaning.words),
        _ => meaning.words.clone(),
    }
}

fn lost(writes: &[ListedWrite]) -> Vec<LostWrite<'_>> {
    let lost = writes.iter().filter(|write| write.fate != Fate::Kept);
    let is_data =
        |write: &ListedWrite| write.what.contains("data of ") || write.what.contains("file data");
    lost.map(|write| LostWrite {
        is_data: is_data(write),
        torn: write.fate == Fate::Torn,
        path: write.path.as_deref(),
    })
    .collect()
}

/// The last calls before a moment, with the marks between them.
fn calls_before(recorded: &Recorded, cut: u64, began: u64) -> Vec<String> {
    let shown =
        |call: &&Syscall| call.began <= cut as i64 && !matches!(&*call.name, "close" | "lseek");
    let calls = recorded.calls.iter().filter(shown).map(|call| {
        let over = if call.ended > cut as i64 { ", which had not returned" } else { "" };
        (call.began, format!("{}{over}", call.text()))
    });
    let marks = recorded.marks.iter().filter(|mark| mark.at <= cut);
    let marks = marks.map(|mark| (mark.at as i64, format!("promised: {}", mark.text)));
    let mut lines: Vec<(i64, String)> = calls.chain(marks).collect();
    lines.sort();
    let from = lines.len().saturating_sub(LISTED_MAX);
    let line =
        |(at, text): &(i64, String)| format!("{:>9.3} ms  {text}", millis(*at as u64, began));
    lines[from..].iter().map(line).collect()
}

impl Explanation {
    /// The explanation for a person, in lines, without the last line's end.
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        let what = match self.wrong {
            Wrong::LostDurable => "promised data are missing",
            Wrong::NotAtomic => "the data contradict each other, independently of promises",
            Wrong::Unsound => "the file system cannot be mounted",
        };
        let alike = match self.alike {
            1 => "1 state".to_owned(),
            n => format!("{n} states"),
        };
        out.push(format!("{what} ({alike})"));
        out.extend(self.said.lines().take(4).map(|line| format!("  | {line}")));
        let after =
            self.after.as_ref().map_or("before any promise".to_owned(), |a| format!("after '{a}'"));
        out.push(format!("  power cut {after}, {:.3} ms after the start", self.cut as f64 / 1e6));
        out.extend(self.differences.iter().map(|line| format!("  found: {line}")));
        match self.recoveries.is_empty() {
            true => out.extend(write_lines(&self.writes)),
            false => out.extend(lost_lines(&self.writes)),
        }
        for cut in &self.recoveries {
            let at = cut.cut as f64 / 1e6;
            out.push(format!(
                "  power cut again, {at:.3} ms after the recovery of this state began"
            ));
            out.extend(lost_lines(&cut.writes));
        }
        for cause in &self.causes {
            let (name, advice) = cause.mistake.advice();
            let sure = if cause.sure { "cause" } else { "perhaps" };
            out.push(format!("  {sure}: {name}: {}", cause.text));
            out.push(format!("         {advice}"));
        }
        if !self.calls.is_empty() {
            out.push("  system calls before:".to_owned());
            out.extend(self.calls.iter().map(|line| format!("    {line}")));
        }
        out.join("\n")
    }
}

/// The lines for the writes that make the difference.
fn write_lines(writes: &[ListedWrite]) -> Vec<String> {
    let lines = lost_lines(writes);
    if lines.is_empty() {
        return vec![
            "  no write was lost: the missing data had not been sent to the disk yet".to_owned(),
        ];
    }
    let kept = writes.iter().filter(|write| write.fate == Fate::Kept);
    lines.into_iter().chain(kept.take(4).map(write_line)).collect()
}

fn write_line(write: &ListedWrite) -> String {
    let fate = match write.fate {
        Fate::Kept => "KEPT",
        Fate::Lost => "LOST",
        Fate::Torn => "TORN",
    };
    format!("  {fate} {} (written at {:.3} ms)", write.what, write.at as f64 / 1e6)
}

/// The lines for the writes that are lost, and then those that are torn.
fn lost_lines(writes: &[ListedWrite]) -> Vec<String> {
    let of = |fate: Fate| writes.iter().filter(move |write| write.fate == fate);
    let losses = of(Fate::Lost).chain(of(Fate::Torn));
    let mut lines: Vec<String> = losses.clone().take(LISTED_MAX).map(write_line).collect();
    let more = losses.count().saturating_sub(LISTED_MAX);
    if more > 0 {
        lines.push(format!("  and {more} more are lost"));
    }
    lines
}

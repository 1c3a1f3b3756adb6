//! A failure made small, and explained in the program's words.

use ordo_crash::space::{Fate, Pick};
use ordo_sba::Class;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::calls::Syscall;
use crate::causes::{self, Cause, CauseFailure, LostWrite};
use crate::check::Check;
use crate::explore::{Bench, JobFinding, Wrong};
use crate::record::{Meaning, Recorded};
use crate::stand::Stand;
use crate::tree::FileTree;

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
) -> Result<Explanation, ProgramError> {
    let bench = Bench::new(recorded, check, unit);
    let stand = bench.stand(0)?;
    let pick = match shrink {
        true => small(&bench, &stand, finding)?,
        false => finding.pick.clone(),
    };
    let judged = bench.judge_pick(&stand, &pick)?;
    let said = judged.map_or_else(|| finding.said.clone(), |(_, said)| said);
    let differences = match finding.wrong {
        Wrong::Unsound => Vec::new(),
        _ => differences(&bench, &stand, &pick)?,
    };
    let (paths, differences): (Vec<String>, Vec<String>) = differences
        .into_iter()
        .map(|(path, said)| (path.clone(), format!("{path} {said}")))
        .unzip();
    let began = event_time(recorded, recorded.began);
    let cut = event_time(recorded, pick.events);
    let writes = writes(&bench, &pick, began);
    let promises = bench.promises(pick.events);
    let marks = recorded.marks.iter().filter(|mark| mark.events <= pick.events);
    let promised = marks.clone().rfind(|mark| !mark.text.starts_with("begin "));
    let failure = CauseFailure {
        wrong: finding.wrong,
        paths: &paths,
        promised: promised.map(|mark| mark.at as i64),
        cut: cut as i64,
    };
    let causes = match (finding.wrong, recorded.calls.is_empty()) {
        (Wrong::Unsound, _) => Vec::new(),
        (_, false) => causes::by_calls(&recorded.calls, &failure),
        (wrong, true) => causes::by_writes(wrong, &lost(&writes), &paths),
    };
    let mut told = calls_before(recorded, cut, began);
    told.push(format!("{:>9.3} ms  power cut", millis(cut, began)));
    Ok(Explanation {
        pick,
        wrong: finding.wrong,
        said,
        alike: finding.alike,
        after: promises.acked.last().cloned(),
        pending: promises.pending,
        cut: cut.saturating_sub(began),
        differences,
        writes,
        calls: if recorded.calls.is_empty() { Vec::new() } else { told },
        causes,
    })
}

/// Finds a state of the same moment that fails in the same way, with as few lost writes as possible.
fn small(bench: &Bench<'_>, stand: &Stand, finding: &JobFinding) -> Result<Pick, ProgramError> {
    let (mut error, mut left) = (None, SHRINK_MAX);
    let mut fails = |pick: &Pick| {
        if left == 0 {
            return false;
        }
        left -= 1;
        match bench.judge_pick(stand, pick) {
            Ok(found) => found.is_some_and(|(wrong, _)| wrong == finding.wrong),
            Err(why) => {
                error.get_or_insert(why);
                false
            }
        }
    };
    // Often no write needs to be lost: the missing data were never sent.
    let pick = match bench.space.everything(finding.pick.frontier) {
        Some(whole) if fails(&whole) => whole,
        _ => bench.space.shrink(&finding.pick, &mut fails),
    };
    error.map_or(Ok(pick), Err)
}

fn millis(at: u64, began: u64) -> f64 {
    (at as f64 - began as f64) / 1e6
}

/// The time of the next event after the first `events`.
fn event_time(recorded: &Recorded, events: usize) -> u64 {
    let last = recorded.times.last().copied().unwrap_or(0);
    recorded.times.get(events).copied().unwrap_or(last + 1)
}

/// The differences of the state from the first later one that is right.
fn differences(
    bench: &Bench<'_>,
    stand: &Stand,
    pick: &Pick,
) -> Result<Vec<(String, String)>, ProgramError> {
    let tree = bench.look(stand, pick, FileTree::of)?;
    let Some(Ok(tree)) = tree else { return Ok(Vec::new()) };
    let promises = bench.promises(pick.events);
    let last = bench.space.frontiers().saturating_sub(1);
    let (mut at, mut step, mut right) = (pick.frontier, 1, None);
    for _ in 0..RIGHT_MAX {
        let Some(whole) = bench.space.everything(at) else { break };
        let seen = bench
            .look(stand, &whole, |work| (FileTree::of(work), bench.check.run(work, &promises)))?;
        if let Some((Ok(tree), said)) = seen {
            right = Some(tree);
            if !said?.is_broken() {
                break;
            }
        }
        if at == last {
            break;
        }
        (at, step) = ((at + step).min(last), step * 2);
    }
    Ok(right.map_or_else(Vec::new, |right| tree.differences(&right, LISTED_MAX)))
}

fn writes(bench: &Bench<'_>, pick: &Pick, began: u64) -> Vec<ListedWrite> {
    let fates = bench.space.fates(pick);
    let tell = |(_, write, fate): &(usize, usize, Fate)| {
        let meaning = &bench.recorded.meanings[*write];
        ListedWrite {
            fate: *fate,
            what: in_words(meaning),
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
    let marks = marks.map(|mark| (mark.at as i64, format!("said: {}", mark.text)));
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
        out.extend(self.differences.iter().map(|line| format!("  there: {line}")));
        out.extend(self.write_lines());
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

    /// The lines for the writes that make the difference.
    fn write_lines(&self) -> Vec<String> {
        let of = |fate: Fate| self.writes.iter().filter(move |write| write.fate == fate);
        let losses = of(Fate::Lost).chain(of(Fate::Torn));
        if losses.clone().next().is_none() {
            return vec![
                "  no write was lost: the missing data had not been sent to the disk yet"
                    .to_owned(),
            ];
        }
        let line = |write: &ListedWrite| {
            let fate = match write.fate {
                Fate::Kept => "KEPT",
                Fate::Lost => "LOST",
                Fate::Torn => "TORN",
            };
            format!("  {fate} {} (written at {:.3} ms)", write.what, write.at as f64 / 1e6)
        };
        let mut lines: Vec<String> = losses.clone().take(LISTED_MAX).map(line).collect();
        let more = losses.count().saturating_sub(LISTED_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more are lost"));
        }
        lines.extend(of(Fate::Kept).take(4).map(line));
        lines
    }
}

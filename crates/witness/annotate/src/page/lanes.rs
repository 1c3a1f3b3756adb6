//! Lanes of the page: transactions, from their first write to the log until they are checkpointed,
//! and the files with most bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Clock, MARKS, Mark, Timeline, written};
use crate::rows::BlockRow;

/// The most lanes of transactions whose times overlap; those beyond them are left out, and counted.
const LANES: usize = 6;
/// The number of files that have a lane.
const FILES: usize = 12;
/// The most characters of a file's name in front of its lane: its end.
const NAME: usize = 22;

/// The time from the first to the last write of something, and its number.
type Span = (f64, f64, u64);

/// The span of each number, by the rows that have one.
fn spans(
    clock: &Clock<'_>,
    blocks: &[BlockRow],
    number: impl Fn(&BlockRow) -> Option<u64>,
) -> Vec<Span> {
    let mut all: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for block in written(clock.trace, blocks) {
        let Some(number) = number(block) else { continue };
        let (from, to) = clock.span(block.request as usize);
        let span = all.entry(number).or_insert((from, to));
        *span = (span.0.min(from), span.1.max(to));
    }
    let mut all: Vec<Span> =
        all.into_iter().map(|(number, (from, to))| (from, to, number)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    all
}

/// Puts spans into as few lanes as possible, in each of which they do not overlap. Returns the
/// marks, with the first lane's number `first`, the number of lanes, and the number of spans that
/// are left out.
fn packed(spans: Vec<Span>, first: usize, journal: bool) -> (Vec<Mark>, usize, usize) {
    let (mut ends, mut marks, mut left_out) = (Vec::<f64>::new(), Vec::new(), 0);
    for (from, to, number) in spans {
        let lane = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
        if lane >= LANES || marks.len() >= MARKS {
            left_out += 1;
            continue;
        }
        ends.resize(ends.len().max(lane + 1), to);
        ends[lane] = to;
        marks.push((first + lane, from, to, number, journal));
    }
    (marks, ends.len(), left_out)
}

/// The transactions: the time in which each was written to the log, and the time in which its
/// blocks were written at their places. `None` if no transaction was seen.
pub(super) fn transactions(clock: &Clock<'_>, blocks: &[BlockRow]) -> Option<Timeline> {
    let logged = spans(clock, blocks, |b| b.transaction);
    if logged.is_empty() {
        return None;
    }
    let (mut marks, lanes, left) = packed(logged, 0, true);
    let checkpoints = spans(clock, blocks, |b| b.completes);
    let (more, places, left_too) = packed(checkpoints, lanes, false);
    marks.extend(more);
    let name = |what: &str, n: usize, of: usize| match of {
        1 => what.to_owned(),
        _ => format!("{what} {}", n + 1),
    };
    let logs = (0..lanes).map(|n| name("to the journal", n, lanes));
    let rows = logs.chain((0..places).map(|n| name("checkpointed", n, places))).collect();
    let (title, noun) = ("Transactions", "transaction");
    let (x, flushes, left_out) = (clock.unit(), clock.flushes(), left + left_too);
    Some(Timeline { title, noun, x, rows, marks, flushes, left_out })
}

fn shortened(path: &str) -> String {
    let count = path.chars().count();
    match count <= NAME {
        true => path.to_owned(),
        false => std::iter::once('…').chain(path.chars().skip(count + 1 - NAME)).collect(),
    }
}

/// The writes of the files with most bytes: contents, metadata, and what the journal has of them.
/// `None` if no file is known.
pub(super) fn files(clock: &Clock<'_>, blocks: &[BlockRow]) -> Option<Timeline> {
    let mut bytes: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for block in written(clock.trace, blocks) {
        if let Some(path) = &block.path {
            *bytes.entry(path).or_default() += block.len;
        }
    }
    let mut most: Vec<(&Arc<str>, u64)> = bytes.into_iter().collect();
    most.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    most.truncate(FILES);
    let mut marks = Vec::new();
    for block in written(clock.trace, blocks) {
        let Some(path) = &block.path else { continue };
        let Some(row) = most.iter().position(|(one, _)| *one == path) else { continue };
        let (from, to) = clock.span(block.request as usize);
        let mark = (row, from, to, block.request, block.final_kind.is_journal());
        if marks.last() != Some(&mark) {
            marks.push(mark);
        }
    }
    if most.is_empty() {
        return None;
    }
    let rows = most.iter().map(|(path, _)| shortened(path)).collect();
    let (marks, left_out) = super::thin_marks(marks);
    let (title, noun) = ("Writes of the files with most bytes", "request");
    let (x, flushes) = (clock.unit(), clock.flushes());
    Some(Timeline { title, noun, x, rows, marks, flushes, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans that overlap get lanes of their own, the next ones the first lane that is free, and no
    /// more than six lanes are used. Would catch a transaction that is drawn over another.
    #[test]
    fn spans_that_overlap_have_their_own_lanes() {
        let spans = vec![(0.0, 2.0, 1), (1.0, 3.0, 2), (2.0, 4.0, 3), (2.5, 5.0, 4)];
        let (marks, lanes, left_out) = packed(spans, 10, true);
        let rows: Vec<_> = marks.iter().map(|(row, _, _, number, _)| (*row, *number)).collect();
        assert_eq!((rows, lanes, left_out), (vec![(10, 1), (11, 2), (10, 3), (12, 4)], 3, 0));
        let crowd = (0..9).map(|n| (0.0, 1.0, n)).collect();
        let (marks, lanes, left_out) = packed(crowd, 0, true);
        assert_eq!((marks.len(), lanes, left_out), (LANES, LANES, 3));
        assert_eq!(shortened("/a/long/path/of/a/file/that/goes/on").chars().count(), NAME);
        assert_eq!(shortened("/short"), "/short");
    }
}

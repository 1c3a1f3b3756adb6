//! Lines of the kernel's block tracepoints, as tracefs (ftrace), `trace-cmd report` and `perf
//! script` print them: `docs/formats/tracers.md`.
//!
//! The three differ in front of the event's name alone: a task, `[cpu]`, flags, a time with a colon
//! behind it. Then come `block_rq_issue: 8,0 WS 4096 () 2048 + 8 [jbd2/sda1-8]`, with a priority in
//! front of the brackets since Linux 6.11.

use ordo_format::blktrace::BlkEvent;

use crate::blktext::{Damaged, TextEvent, category, device, event, nanos, process_of};

/// The names of events that are read, each with the action that it is.
const EVENTS: [(&str, u16); 5] = [
    ("block_rq_issue", BlkEvent::ISSUE),
    ("block_rq_complete", BlkEvent::COMPLETE),
    ("block_rq_requeue", BlkEvent::REQUEUE),
    ("block_bio_queue", BlkEvent::QUEUE),
    ("block_bio_complete", BlkEvent::COMPLETE),
];

/// The event that a line is about: the text before its name, the index in [`EVENTS`], and the text
/// behind it.
fn split(line: &str) -> Option<(&str, usize, &str)> {
    let at = line.find("block_")?;
    let (before, rest) = line.split_at(at);
    let (name, rest) = rest.split_once(": ")?;
    let index = EVENTS.iter().position(|(event, _)| *event == name)?;
    Some((before.strip_suffix("block:").unwrap_or(before), index, rest.trim()))
}

/// The number of events that a line says were lost, as `CPU:1 [LOST 17 EVENTS]`.
pub(crate) fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("[LOST ")?;
    rest.split_once(" EVENTS]")?.0.trim().parse().ok()
}

/// Reads a line. `None` if it is about something else, or about a request that is not the device's.
pub(crate) fn read(line: &str) -> Option<Result<TextEvent, Damaged>> {
    let (before, index, rest) = split(line)?;
    let (name, act) = EVENTS[index];
    let Some(time) = before.split_ascii_whitespace().last().and_then(|t| t.strip_suffix(':'))
    else {
        return Some(Err(Damaged));
    };
    let read = || {
        let time = nanos(time)?;
        // A driver's command in parentheses may have any text.
        let words = &rest[..rest.rfind(" [").unwrap_or(rest.len())];
        let (head, place) = match (words.find(" ("), words.find(") ")) {
            (Some(from), Some(to)) if from < to => (&words[..from], &words[to + 2..]),
            _ => words.split_at(words.match_indices(' ').nth(1)?.0),
        };
        let mut head = head.split_ascii_whitespace();
        let (device, category) = (device(head.next()?)?, category(head.next()?)?);
        let mut fields = place.split_ascii_whitespace();
        let (sector, plus) = (fields.next()?.parse::<u64>().ok()?, fields.next()?);
        let sectors = fields.next()?.parse::<u64>().ok()?;
        (plus == "+").then_some((device, time, category, sector, sectors))
    };
    let Some((device, time, category, sector, sectors)) = read() else {
        return Some(Err(Damaged));
    };
    let in_brackets = process_of(rest);
    let is_end = act == BlkEvent::COMPLETE;
    // The kernel ends a write once more, without sectors, when the flush behind it is done.
    let directions = BlkEvent::READ | BlkEvent::WRITE | BlkEvent::DISCARD;
    if is_end && sectors == 0 && category & directions != 0 && sector != 0 && sector != u64::MAX {
        return None;
    }
    let error = in_brackets.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let failed = u16::from(is_end && error != 0);
    let made = event((device, time), act, category, (sector, sectors), failed);
    Some(made.map(|event| TextEvent {
        process: in_brackets.filter(|_| !is_end && act != BlkEvent::REQUEUE).map(Box::from),
        is_bio_end: name == "block_bio_complete",
        ..event
    }))
}

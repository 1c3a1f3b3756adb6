//! Lines of text about requests, as `blkparse` prints them or as a short script of bpftrace does:
//! `docs/formats/blktrace.md`. Those of the kernel's tracepoints are read by
//! [`tracepoints`](crate::tracepoints).

use ordo_format::Endian;
use ordo_format::blktrace::BlkEvent;

use crate::blktrace::SECTOR;
use crate::tracepoints;

/// The longest line that is read, in bytes.
const LINE_MAX: usize = 4096;

/// An event from a line.
pub(crate) struct TextEvent {
    pub(crate) head: BlkEvent,
    /// The text of a message.
    pub(crate) words: Vec<u8>,
    /// The process that was running.
    pub(crate) process: Option<Box<str>>,
    /// Whether it is the end of a bio, which is that of a request only where there are no requests.
    pub(crate) is_bio_end: bool,
}

impl From<BlkEvent> for TextEvent {
    fn from(head: BlkEvent) -> TextEvent {
        TextEvent { head, words: Vec::new(), process: None, is_bio_end: false }
    }
}

/// A line that begins as an event and is not one: a field is missing or damaged, or a sector or a
/// length that no device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Reads a line. `None` if it is about something else: a heading, a sum, an action that is not
/// read.
pub(crate) fn read(line: &[u8]) -> Option<Result<TextEvent, Damaged>> {
    let line = std::str::from_utf8(line.get(..LINE_MAX).unwrap_or(line)).ok()?;
    if line.contains("block_") {
        return tracepoints::read(line);
    }
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    match fields.first()?.contains(',') {
        true => of_blkparse(line, &fields),
        false => of_bpftrace(&fields),
    }
}

/// The text in the brackets at the end of a line: a process, or an error.
pub(crate) fn process_of(line: &str) -> Option<&str> {
    let line = line.trim_end().strip_suffix(']')?;
    Some(&line[line.rfind(" [")? + 2..])
}

/// `8,0`: the device's numbers.
pub(crate) fn device(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(',')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    major.checked_mul(1 << 20)?.checked_add(minor)
}

/// Seconds with up to nine digits behind the point, in nanoseconds.
pub(crate) fn nanos(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_once('.')?;
    let digits = rest.get(..rest.len().min(9))?;
    let scale = 10u64.pow(9 - digits.len() as u32);
    let rest = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// The action of a letter; `None` if it is not one that is read.
fn action(letter: &str) -> Option<u16> {
    match letter {
        "Q" => Some(BlkEvent::QUEUE),
        "D" => Some(BlkEvent::ISSUE),
        "C" => Some(BlkEvent::COMPLETE),
        "R" => Some(BlkEvent::REQUEUE),
        _ => None,
    }
}

/// The categories of letters such as `WS`, `FWFSM`, `R`, `D`: an F in front of the direction is a
/// flush before, behind it FUA. `N` alone is a driver's own command, and so are most that begin
/// with `Z`, about zones; `ZA` appends to one.
pub(crate) fn category(letters: &str) -> Option<u16> {
    let (mut category, mut has_direction) = (0, false);
    match letters.strip_prefix('Z') {
        Some(zone) if zone.starts_with('A') => return Some(BlkEvent::WRITE),
        Some("") | None => {}
        Some(_) => return Some(BlkEvent::PASSTHROUGH),
    }
    for letter in letters.chars() {
        let (bits, is_direction) = match letter {
            'R' => (BlkEvent::READ, true),
            'W' => (BlkEvent::WRITE, true),
            'D' => (BlkEvent::DISCARD, true),
            'N' => (0, true),
            'F' if has_direction => (BlkEvent::FUA, false),
            'F' => (BlkEvent::FLUSH, false),
            'S' => (BlkEvent::SYNC, false),
            'M' => (BlkEvent::META, false),
            // A read ahead, a secure discard, and letters of newer kernels.
            'A' | 'E' | 'B' | 'V' | 'Z' | 'O' | 'C' => (0, false),
            _ => return None,
        };
        category |= bits;
        has_direction |= is_direction;
    }
    let of_device = BlkEvent::READ | BlkEvent::WRITE | BlkEvent::DISCARD | BlkEvent::FLUSH;
    let own = if category & of_device == 0 { BlkEvent::PASSTHROUGH } else { 0 };
    Some(category | own)
}

fn empty() -> BlkEvent {
    BlkEvent::decode(&[0; BlkEvent::SIZE], Endian::Little)
}

/// An event of a request.
pub(crate) fn event(
    (device, time): (u32, u64),
    act: u16,
    category: u16,
    (sector, sectors): (u64, u64),
    error: u16,
) -> Result<TextEvent, Damaged> {
    let bytes = sectors.checked_mul(SECTOR).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.ok_or(Damaged)?;
    let end = sector.checked_mul(SECTOR).and_then(|at| at.checked_add(bytes.into()));
    if bytes > 0 && end.is_none() {
        return Err(Damaged);
    }
    let head = BlkEvent {
        magic: BlkEvent::MAGIC | u32::from(BlkEvent::VERSION),
        time,
        sector: if bytes == 0 { 0 } else { sector },
        bytes,
        action: u32::from(act) | u32::from(category) << 16,
        device,
        error,
        ..empty()
    };
    Ok(head.into())
}

/// `8,0 3 1 0.000000000 697 D WS 223490 + 8 [kjournald]`; a completion has its error in the
/// brackets, a flush no place.
fn of_blkparse(line: &str, fields: &[&str]) -> Option<Result<TextEvent, Damaged>> {
    let device = device(fields[0])?;
    let [_, _cpu, _sequence, time, _pid, letter, kind, rest @ ..] = fields else {
        return Some(Err(Damaged));
    };
    let Some(time) = nanos(time) else { return Some(Err(Damaged)) };
    if *letter == "m" {
        let category = u32::from(BlkEvent::NOTICE) << 16;
        let action = u32::from(BlkEvent::MESSAGE) | category;
        let head = BlkEvent { time, action, device, ..empty() };
        return Some(Ok(TextEvent { words: rest.join(" ").into_bytes(), ..head.into() }));
    }
    let act = action(letter)?;
    let Some(category) = category(kind) else { return Some(Err(Damaged)) };
    let number = |text: &&str| text.parse::<u64>().ok();
    let place = match rest {
        [sector, "+", sectors, ..] => number(sector).zip(number(sectors)),
        [] => Some((0, 0)),
        // A flush has no place, or a sector alone.
        [first, ..] if first.starts_with(['[', '(']) || number(first).is_some() => Some((0, 0)),
        _ => None,
    };
    let Some(place) = place else { return Some(Err(Damaged)) };
    let said = rest.last().map_or("", |last| last.trim_matches(['[', ']', '(', ')']));
    let failed = act == BlkEvent::COMPLETE && said.parse::<i64>().is_ok_and(|error| error != 0);
    let made = event((device, time), act, category, place, u16::from(failed));
    let process = process_of(line).filter(|_| matches!(act, BlkEvent::ISSUE | BlkEvent::QUEUE));
    Some(made.map(|event| TextEvent { process: process.map(Box::from), ..event }))
}

/// `NANOSECONDS D MAJOR,MINOR KIND SECTOR SECTORS`; a completion has its error behind that, an
/// issue the process, if it has one.
fn of_bpftrace(fields: &[&str]) -> Option<Result<TextEvent, Damaged>> {
    let time = fields[0].parse::<u64>().ok()?;
    let act = action(fields.get(1)?)?;
    let device = device(fields.get(2)?)?;
    let read = || {
        let category = category(fields.get(3)?)?;
        let (sector, sectors) = (fields.get(4)?.parse().ok()?, fields.get(5)?.parse().ok()?);
        // The kernel gives the sector of a flush as -1.
        let is_end = act == BlkEvent::COMPLETE;
        let error = fields.get(6).filter(|_| is_end);
        let error = error.map_or(Some(0), |error| error.parse::<i64>().ok())?;
        let process = fields.get(6..).filter(|words| !is_end && !words.is_empty());
        let process = process.map(|words| words.join(" ").into_boxed_str());
        Some((category, (sector, sectors), u16::from(error != 0), process))
    };
    let Some((category, place, error, process)) = read() else { return Some(Err(Damaged)) };
    let made = event((device, time), act, category, place, error);
    Some(made.map(|event| TextEvent { process, ..event }))
}

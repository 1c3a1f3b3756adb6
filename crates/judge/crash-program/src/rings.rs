//! The requests of a program's rings of io_uring, from the kernel's trace events. Strace sees a
//! ring's setup, and none of its requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ordo_recorder::Folder;
use ordo_trace::strace::RingRequest;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::time::ClockId;

/// The events that tell of a request: it is sent, its descriptor, it is done.
const EVENTS: [&str; 4] =
    ["io_uring_create", "io_uring_submit_req", "io_uring_file_get", "io_uring_complete"];
/// The memory for events, in KiB for each processor.
const BUFFER: &str = "4096";

/// The kernel's events about rings while a program runs.
pub(crate) struct Rings {
    /// The trace's own directory; it goes away with this.
    instance: PathBuf,
    mount: Folder,
    /// The time of day less the clock of the events, in nanoseconds.
    shift: i64,
}

impl Rings {
    /// Begins to watch. `None` where the kernel tells no events, as it does to ordinary users.
    pub fn watch() -> Option<Rings> {
        let mount = Folder::new("ordo-events-").ok()?;
        let none = None::<&std::ffi::CStr>;
        rustix::mount::mount("none", mount.path(), "tracefs", MountFlags::empty(), none).ok()?;
        let instance = mount.path().join(format!("instances/ordo-{}", std::process::id()));
        let rings = Rings { instance, mount, shift: shift() };
        fs::create_dir(&rings.instance).ok()?;
        let set = |file: &str, text: &str| fs::write(rings.instance.join(file), text).ok();
        set("trace_clock", "mono")?;
        set("buffer_size_kb", BUFFER)?;
        for event in EVENTS {
            set(&format!("events/io_uring/{event}/enable"), "1")?;
        }
        Some(rings)
    }

    /// The requests of the rings that strace saw. `None` if events were lost.
    pub fn requests(&self, strace: &str) -> Option<Vec<RingRequest>> {
        let _ = fs::write(self.instance.join("tracing_on"), "0");
        let text = fs::read_to_string(self.instance.join("trace")).ok()?;
        let setups = strace.lines().filter(|line| line.contains(" io_uring_setup("));
        let makers = setups.filter_map(|line| line.split_whitespace().next()?.parse().ok());
        parse(&text, &makers.collect(), self.shift)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // The kernel lets the directory go when the mount does, if it does not let it go now.
        let _ = fs::remove_dir(&self.instance);
        let _ = rustix::mount::unmount(self.mount.path(), UnmountFlags::DETACH);
    }
}

/// The time of day less the clock of the events.
fn shift() -> i64 {
    let mono = rustix::time::clock_gettime(ClockId::Monotonic);
    let mono = Duration::new(mono.tv_sec as u64, mono.tv_nsec as u32);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wall.as_nanos() as i64 - mono.as_nanos() as i64
}

/// One event: its thread, its time, its name, and what it tells.
struct Event<'t> {
    pid: u32,
    at: i64,
    name: &'t str,
    told: &'t str,
}

impl<'t> Event<'t> {
    /// Reads `name-12 [000] d..1. 12.345678: io_uring_complete: ring 00000000abc, req ...`.
    fn of(line: &'t str) -> Option<Event<'t>> {
        let at = line.find(": io_uring_")?;
        let (before, after) = (&line[..at], &line[at + 2..]);
        let (name, told) = after.split_once(": ")?;
        let (task, rest) = before.rsplit_once(" [")?;
        let pid = task.trim_end().rsplit_once('-')?.1.parse().ok()?;
        let time: f64 = rest.split_whitespace().last()?.parse().ok()?;
        Some(Event { pid, at: (time * 1e9) as i64, name, told })
    }

    /// The word behind a name.
    fn word(&self, name: &str) -> Option<&'t str> {
        let mut words = self.told.split([' ', ',']).filter(|word| !word.is_empty());
        words.find(|word| *word == name)?;
        words.next()
    }
}

/// Reads the kernel's events. Only rings that `makers` made count; `None` if events were lost.
fn parse(text: &str, makers: &BTreeSet<u32>, shift: i64) -> Option<Vec<RingRequest>> {
    let (mut rings, mut open) = (BTreeSet::new(), BTreeMap::<&str, RingRequest>::new());
    let mut out = Vec::new();
    for line in text.lines() {
        if let Some(counts) = line.strip_prefix("# entries-in-buffer/entries-written: ") {
            let (here, written) = counts.split_whitespace().next()?.split_once('/')?;
            if here != written {
                return None;
            }
        }
        let Some(event) = Event::of(line) else { continue };
        let Some(ring) = event.word("ring") else { continue };
        if event.name == "io_uring_create" && makers.contains(&event.pid) {
            rings.insert(ring);
        }
        let Some(request) = event.word("req").filter(|_| rings.contains(ring)) else { continue };
        match event.name {
            "io_uring_submit_req" => {
                let request_of = RingRequest {
                    pid: event.pid,
                    began: event.at + shift,
                    ended: None,
                    operation: event.word("opcode")?.to_owned(),
                    fd: None,
                    result: 0,
                };
                out.extend(open.insert(request, request_of));
            }
            "io_uring_file_get" => {
                let fd = event.word("fd").and_then(|fd| fd.parse().ok());
                open.entry(request).and_modify(|request| request.fd = fd);
            }
            _ => {
                if let Some(mut done) = open.remove(request) {
                    done.ended = Some(event.at + shift);
                    done.result = event.word("result")?.parse().ok()?;
                    out.push(done);
                }
            }
        }
    }
    out.extend(open.into_values());
    out.sort_by_key(|request| request.began);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# tracer: nop
# entries-in-buffer/entries-written: 7/7   #P:2
#
             one-12      [000] ..... 10.000001: io_uring_create: ring 00000000aa, fd 3 sq size 8, cq size 16, flags 0x0
          other-99      [001] ..... 10.000002: io_uring_create: ring 00000000bb, fd 3 sq size 8, cq size 16, flags 0x0
             one-12      [000] ..... 10.000100: io_uring_submit_req: ring 00000000aa, req 00000000c1, user_data 0x1, opcode WRITE, flags 0x0, sq_thread 0
             one-12      [000] ..... 10.000101: io_uring_file_get: ring 00000000aa, req 00000000c1, user_data 0x1, fd 4
          other-99      [001] ..... 10.000150: io_uring_submit_req: ring 00000000bb, req 00000000c2, user_data 0x1, opcode FSYNC, flags 0x0, sq_thread 0
   iou-wrk-12-13      [001] ..... 10.000300: io_uring_complete: ring 00000000aa, req 00000000c1, user_data 0x1, result 4096, cflags 0x0 extra1 0 extra2 0
             one-12      [000] ..... 10.000400: io_uring_submit_req: ring 00000000aa, req 00000000c1, user_data 0x2, opcode FSYNC, flags 0x4, sq_thread 0
";

    /// Requests of the program's rings are read with their descriptors, results and times; one of
    /// which the end was not seen has none, and those of other programs do not count. If events
    /// were lost, nothing is known.
    #[test]
    fn events_become_requests() {
        let found = parse(TEXT, &BTreeSet::from([12]), 1).unwrap();
        let write = RingRequest {
            pid: 12,
            began: 10_000_100_001,
            ended: Some(10_000_300_001),
            operation: "WRITE".to_owned(),
            fd: Some(4),
            result: 4096,
        };
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], write);
        assert_eq!((&*found[1].operation, found[1].ended, found[1].fd), ("FSYNC", None, None));
        assert_eq!(parse(&TEXT.replace("7/7", "7/90"), &BTreeSet::from([12]), 1), None);
        assert!(
            parse("rubbish\n a-1 [0] x: io_uring_create: ring\n", &BTreeSet::new(), 0).is_some()
        );
    }
}

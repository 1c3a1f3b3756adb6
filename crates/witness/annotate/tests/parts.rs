//! A recording in parts gives what the whole recording gives, and a part is a trace by itself.
//!
//! Fault model: a block that is written in one part and owned by what a later part shows; a
//! transaction that goes on in later parts; a request that continues one of the part before; a file
//! whose name changes later; a part that is damaged, missing, there twice, or cut off with its
//! recorder.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

use ordo_annotate::image::{Learning, Pieces};
use ordo_annotate::parts::writer::{Place, write};
use ordo_annotate::parts::{JoinedParts, Next, Part, PartMaker, divide, find};
use ordo_annotate::{counting, files, owners, store};
use ordo_trace::Trace;
use ordo_watcher::Watch;
use ordo_watcher::analysis::{Analysis, WatchFindings};
use ordo_watcher::decoder::DiskImage;

use crate::recorded::{RECORDED, recorded};

mod recorded;

fn json(analysis: &Analysis) -> String {
    serde_json::to_string_pretty(analysis).unwrap()
}

fn place(root: &Path) -> Place {
    Place { root: root.to_owned(), host: "web7".into(), device: "/dev/sda".into() }
}

/// Writes a trace in parts of `each` requests; returns their directories.
fn in_parts(root: &Path, trace: &Trace, start: &Pieces, each: usize) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let full = |_: &Trace, from: usize, to: usize| to - from >= each;
    let keep = |part: Part| {
        write(&place(root), &part).unwrap();
        dirs.push(place(root).of(&part));
        Ok::<(), Infallible>(())
    };
    divide(trace, start, "r1", full, keep).unwrap();
    dirs
}

fn joined(root: &Path) -> JoinedParts {
    let found = find(root).unwrap();
    assert_eq!(found.recordings.len(), 1, "{found:?}");
    found.recordings[0].joined().unwrap()
}

/// The analysis and the files of a whole trace.
fn whole(trace: &Trace, start: &Pieces) -> (Analysis, Vec<files::FileTraffic>) {
    let watch = Watch::over(start).unwrap();
    let (rows, shares) = owners::with_shares(trace, &watch);
    (Analysis::from(&WatchFindings::of(&watch)), files::of(trace, &rows, &shares))
}

/// Calls `look` with each recorded trace, the device before it, and its name.
fn each_recorded(mut look: impl FnMut(&Trace, &Pieces, &str)) {
    for (start, name) in RECORDED {
        let Some((image, trace)) = recorded(start, name) else { return };
        look(&trace, &Pieces::of(&image), name);
    }
}

/// Every kernel trace, in parts of several lengths: the sum of the parts is what the whole trace
/// gives, every file and every transaction included. Each part alone reads back and is counted.
#[test]
fn parts_give_what_the_whole_gives() {
    each_recorded(|trace, start, name| {
        let (analysis, files) = whole(trace, start);
        for each in [5, 37, 400, usize::MAX] {
            let dir = tempfile::tempdir().unwrap();
            let dirs = in_parts(dir.path(), trace, start, each);
            assert_eq!(dirs.len(), trace.requests().len().div_ceil(each));
            let all = joined(dir.path());
            assert_eq!((all.parts, all.aside.len(), all.missing.len()), (dirs.len(), 0, 0));
            assert_eq!(all.not_carried, 0);
            assert_eq!(json(&all.analysis), json(&analysis), "{name} {each}");
            assert_eq!(all.files, files, "{name} {each}");
            let mut requests = 0;
            for dir in &dirs {
                let part = store::read(dir).unwrap();
                requests += part.trace.requests().len();
                assert!(counting::count(dir).unwrap().is_some(), "{}", dir.display());
                // The part's own start is enough to name it.
                let watch = Watch::over(&part.start).unwrap();
                ordo_trace::replay(&part.trace, &*watch);
                assert_eq!(watch.system(), analysis.system);
            }
            assert_eq!(requests, trace.requests().len());
        }
    });
}

/// The start of a part is what a decoder reads of the device at that moment, and no more.
#[test]
fn a_part_starts_with_the_device_as_it_was() {
    each_recorded(|trace, start, name| {
        let dir = tempfile::tempdir().unwrap();
        let each = trace.requests().len() / 3 + 1;
        let dirs = in_parts(dir.path(), trace, start, each);
        let mut device = start.clone();
        for (i, dir) in dirs.iter().enumerate() {
            let part = store::read(dir).unwrap();
            let learning = Learning::new(&device);
            let _ = Watch::over(&learning);
            assert_eq!(part.start, learning.learned(), "{name}, part {i}");
            assert_eq!(part.start.bytes(), start.bytes);
            let requests = part.trace.requests().iter();
            requests.filter(|r| r.op == ordo_trace::RequestOp::Write).for_each(|r| {
                device.write(r.offset, part.trace.data(r).unwrap());
            });
        }
    });
}

/// Nothing is recorded for a while: what comes after is named from the device as it is then, and
/// the sum of the parts is that of the two times. Transactions, files and guesses of the second
/// time are not taken for those of the first.
#[test]
fn a_pause_divides_a_recording_in_two() {
    each_recorded(|trace, start, name| {
        let folder = tempfile::tempdir().unwrap();
        let third = trace.requests().len() / 3;
        let mut device = start.clone();
        let mut maker = PartMaker::new("r1".into(), 0, &device);
        maker.set_sample(Some("1s/3s".into()));
        let mut sums = Vec::new();
        let apply = |device: &mut Pieces, trace: &Trace| {
            for r in trace.requests().iter().filter(|r| r.op == ordo_trace::RequestOp::Write) {
                device.write(r.offset, trace.data(r).unwrap());
            }
        };
        for (from, to) in [(0, third), (2 * third, trace.requests().len())] {
            if from > 0 {
                apply(&mut device, &trace.part(third, from));
                maker.resume(&device);
            }
            let halves = [(from, usize::midpoint(from, to)), (usize::midpoint(from, to), to)];
            sums.push(whole(&trace.part(from, to), &device));
            for (i, (from, to)) in halves.into_iter().enumerate() {
                let part = trace.part(from, to);
                let watch = maker.watch().unwrap().clone();
                ordo_trace::replay_from(&part, maker.first(), &*watch, &maker.now().clone());
                apply(&mut device, &part);
                let next = if i == 0 { Next::Part(&device) } else { Next::Pause };
                write(&place(folder.path()), &maker.end(part, next)).unwrap();
            }
        }
        let last = maker.end(Trace::new(512, true), Next::End);
        write(&place(folder.path()), &last).unwrap();
        let found = find(folder.path()).unwrap();
        assert_eq!(found.recordings[0].sample.as_deref(), Some("1s/3s"));
        let all = joined(folder.path());
        assert_eq!((all.parts, all.aside.len()), (5, 0));
        let [(one, some), (two, more)] = &sums[..] else { unreachable!() };
        for (class, counts) in all.analysis.stats.writes.iter() {
            let (a, b) = (&one.stats.writes[class], &two.stats.writes[class]);
            assert_eq!(counts.bytes, a.bytes + b.bytes, "{name} {class:?}");
            assert_eq!(counts.requests, a.requests + b.requests, "{name} {class:?}");
        }
        let (a, b) = (&one.transactions, &two.transactions);
        assert_eq!(all.analysis.transactions.seen, a.seen + b.seen, "{name}");
        assert_eq!(all.analysis.transactions.committed, a.committed + b.committed, "{name}");
        assert_eq!(all.analysis.stats.settled, one.stats.settled + two.stats.settled);
        assert_eq!(all.analysis.stats.unclaimed, one.stats.unclaimed + two.stats.unclaimed);
        let data = |files: &[files::FileTraffic]| files.iter().map(|f| f.bytes()).sum::<u64>();
        assert_eq!(data(&all.files), data(some) + data(more), "{name}");
        for file in some.iter().filter(|file| file.path.is_some()) {
            let same = |f: &&files::FileTraffic| (f.inode, &f.path) == (file.inode, &file.path);
            let other = more.iter().find(same).map_or(0, files::FileTraffic::bytes);
            let sum = all.files.iter().find(same).map(files::FileTraffic::bytes);
            assert_eq!(sum, Some(file.bytes() + other), "{name} {file:?}");
        }
    });
}

/// A part that is damaged is named and set aside, and the others are whole: their sum is that of
/// the requests in them. The same holds for one that is lost, there twice, of a newer version, or
/// under way.
#[test]
fn what_is_damaged_is_named_and_the_rest_is_whole() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let (start, folder) = (Pieces::of(&image), tempfile::tempdir().unwrap());
    let dirs = in_parts(folder.path(), &trace, &start, trace.requests().len() / 5 + 1);
    let sum = |left_out: usize| {
        let dirs = dirs.iter().enumerate().filter(|(i, _)| *i != left_out);
        dirs.map(|(_, dir)| counting::count(dir).unwrap().unwrap().stats.writes.total().bytes)
            .sum::<u64>()
    };
    let file = dirs[2].join("blocks.parquet");
    let good = fs::read(&file).unwrap();
    for damaged in [&good[..good.len() / 2], &[&good[..100], &good[101..]].concat()[..], b""] {
        fs::write(&file, damaged).unwrap();
        let all = joined(folder.path());
        assert_eq!(all.aside.len(), 1);
        assert_eq!(all.aside[0].path, dirs[2]);
        assert!(all.aside[0].why.contains("blocks.parquet"), "{}", all.aside[0].why);
        assert_eq!((all.parts, all.missing.len()), (dirs.len() - 1, 0));
        assert_eq!(all.analysis.stats.writes.total().bytes, sum(2));
    }
    fs::write(&file, &good).unwrap();

    let copy = folder.path().join("host=other").join("r1.000003");
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(&dirs[3]).unwrap().flatten() {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let found = find(folder.path()).unwrap();
    assert_eq!(found.aside.len(), 1);
    assert!(found.aside[0].why.contains("part 3 is in"), "{:?}", found.aside);
    fs::remove_dir_all(&copy).unwrap();

    let lost =
        dirs[1].with_file_name(format!("{}.writing", dirs[1].file_name().unwrap().display()));
    fs::rename(&dirs[1], &lost).unwrap();
    let found = find(folder.path()).unwrap();
    assert_eq!(found.under_way, [lost]);
    let all = found.recordings[0].joined().unwrap();
    assert_eq!(all.missing, [1]);
    assert!(found.recordings[0].has_end);
}

/// A part has tables that only the other parts need. A copy that loses one of them, or has it from
/// another part, is still a trace by itself. The recording is not counted with it as if nothing
/// were known about earlier parts: the part is named with the table and set aside, and the sum is
/// that of the others. With the table back it is the whole again.
#[test]
fn a_part_without_a_table_for_the_others_is_named_and_not_counted() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let (start, folder) = (Pieces::of(&image), tempfile::tempdir().unwrap());
    let dirs = in_parts(folder.path(), &trace, &start, trace.requests().len() / 5 + 1);
    let whole = joined(folder.path());
    let part = &dirs[3];
    let alone = counting::count(part).unwrap().unwrap();
    let others: u64 = dirs
        .iter()
        .filter(|dir| *dir != part)
        .map(|dir| counting::count(dir).unwrap().unwrap().stats.writes.total().bytes)
        .sum();
    for name in ["earlier.parquet", "continued.parquet", "changes.parquet"] {
        let file = part.join(name);
        let good = fs::read(&file).unwrap();
        let another = fs::read(dirs[2].join(name)).unwrap();
        assert!(good != another, "{name}: the parts do not differ, so this shows nothing");
        for change in [None, Some(&another), Some(&Vec::new())] {
            match change {
                None => fs::remove_file(&file).unwrap(),
                Some(bytes) => fs::write(&file, bytes).unwrap(),
            }
            let all = joined(folder.path());
            assert_eq!(all.aside.len(), 1, "{name}: {:?}", all.aside);
            assert_eq!(&all.aside[0].path, part);
            assert!(all.aside[0].why.contains(name), "{}", all.aside[0].why);
            assert_eq!((all.parts, all.missing.len()), (dirs.len() - 1, 0));
            assert_eq!(all.analysis.stats.writes.total().bytes, others);
            // By itself the part is what it was.
            assert_eq!(json(&counting::count(part).unwrap().unwrap()), json(&alone));
        }
        fs::write(&file, good).unwrap();
        assert_eq!(json(&joined(folder.path()).analysis), json(&whole.analysis));
    }
}

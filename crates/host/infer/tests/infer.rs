//! Policies of this kernel's file systems, found from their writes. The experiments know none of
//! the answers; the kernel's sources and documentation do, and decide.
//!
//! Fault model: data held up by the device. Skipped with a message where there is no pseudo-device.

use std::time::Duration;

use ordo_infer::{Effort, InferredFinding, infer};
use ordo_kernelfs::kernel::{LiveError, LiveSystem};

fn found(name: &str, options: &str, only: &[&str]) -> Option<Vec<InferredFinding>> {
    found_with(name, options, only, Effort { trials: 2, wait: Duration::from_secs(14) })
}

fn found_with(
    name: &str,
    options: &str,
    only: &[&str],
    effort: Effort,
) -> Option<Vec<InferredFinding>> {
    let mkfs = if ["ext3", "ext4"].contains(&name) {
        vec!["-J".into(), "size=4".into()]
    } else {
        Vec::new()
    };
    let bytes = if name == "xfs" { 512 << 20 } else { 192 << 20 };
    let system = LiveSystem { name: name.into(), mkfs, options: options.into(), bytes };
    let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
    match infer(&system, &effort, &only, |_| {}) {
        Ok(findings) => Some(findings),
        Err(LiveError::Io { what, error }) => panic!("{name}: {what}: {error}"),
        Err(error) => {
            ordo_testkit::skip(&format!("no experiment on {name}: {error}"));
            None
        }
    }
}

fn answer<'a>(all: &'a [InferredFinding], question: &str) -> &'a InferredFinding {
    all.iter().find(|f| f.question == question).unwrap_or_else(|| panic!("{question}: {all:?}"))
}

/// A commit of ext3 waits for another file's data in ordered mode and not in writeback mode, and in
/// both for the journal; after a restart a durable file is whole only if its data, the journal and
/// its commit were not lost. Fault model: writes of one kind are delayed, or lost in a power cut.
/// Would catch a wait that is not seen, or is seen where there is none.
#[test]
fn delayed_and_dropped_writes_show_what_waits_and_what_is_needed() {
    let effort = Effort { trials: 1, wait: Duration::ZERO };
    for (options, waits) in [("data=ordered", true), ("data=writeback", false)] {
        let only: &[&str] = if waits { &["waits", "restart"] } else { &["waits"] };
        let Some(all) = found_with("ext3", options, only, effort) else { return };
        let data = answer(&all, "what waits for file data");
        assert_eq!(data.answer.contains("the commit"), waits, "{options}: {data:?}");
        let journal = answer(&all, "what waits for the journal");
        assert!(journal.answer.contains("the commit, fsync"), "{options}: {journal:?}");
        let metadata = answer(&all, "what waits for metadata in place");
        assert_eq!(metadata.answer, "nothing", "{options}: {metadata:?}");
        if waits {
            for (question, needed) in [
                ("a restart without file data", "has not its contents"),
                ("a restart without the journal's blocks", "is not there"),
                ("a restart without commits", "is not there"),
                ("a restart without metadata in their places", "there was no such write"),
            ] {
                let found = answer(&all, question);
                assert!(found.answer.ends_with(needed), "{found:?}");
            }
        }
    }
}

/// ext3 in its three modes, ext4, XFS: each must be distinguished from the others.
#[test]
fn modes_are_distinguished() {
    let cases = [
        ("ext2", "defaults", "no journal"),
        ("ext3", "data=journal", "data and metadata are journaled"),
        ("ext3", "data=ordered", "(ordered)"),
        ("ext3", "data=writeback", "(writeback)"),
        ("ext4", "data=ordered", "(ordered)"),
        ("ext4", "data=writeback,dioread_lock", "(writeback)"),
        ("xfs", "defaults", "(ordered)"),
    ];
    for (name, options, expected) in cases {
        let Some(all) = found(name, options, &["mode"]) else { return };
        let mode = answer(&all, "journaling mode");
        assert!(mode.answer.contains(expected), "{name} {options}: {mode:?}");
    }
}

/// ext3 logs blocks and XFS records; both put all programs' changes into one transaction; both
/// flush before a commit.
#[test]
fn the_logged_kinds_and_forms_are_found() {
    let Some(ext3) = found("ext3", "defaults", &["logging", "tangled"]) else { return };
    assert!(answer(&ext3, "what is logged").answer.starts_with("whole blocks"), "{ext3:?}");
    let flush = answer(&ext3, "flushes protect the commit");
    assert!(flush.answer.starts_with("a flush stands between"), "{flush:?}");
    let tangled = answer(&ext3, "compound transactions");
    assert!(tangled.answer.starts_with("one transaction"), "{tangled:?}");
    let Some(ext3) = found("ext3", "barrier=0", &["logging"]) else { return };
    let flush = answer(&ext3, "flushes protect the commit");
    assert!(!flush.answer.starts_with("a flush stands"), "{flush:?}");
    let Some(xfs) = found("xfs", "defaults", &["logging", "tangled"]) else { return };
    assert!(answer(&xfs, "what is logged").answer.contains("records"), "{xfs:?}");
}

/// The true times of commit timers lie in their intervals, and these say something: mounts of ext3
/// and ext4, each with three changes, at the same time. The times are those of the mount option.
#[test]
fn true_times_lie_in_their_intervals() {
    let cases = [("ext3", 3.0), ("ext4", 5.0)];
    let all = std::thread::scope(|scope| {
        let each = cases.map(|(name, seconds)| {
            scope.spawn(move || {
                let options = format!("commit={seconds}");
                let effort = Effort { trials: 3, wait: Duration::from_secs(30) };
                found_with(name, &options, &["timers"], effort)
            })
        });
        each.map(|thread| thread.join().unwrap())
    });
    for ((name, seconds), all) in cases.into_iter().zip(all) {
        let Some(all) = all else { return };
        let timer = answer(&all, "commit timer");
        let [low, high] = timer.interval.unwrap();
        assert!((low..=high).contains(&seconds), "{name} {seconds}: {timer:?}");
        // With a single wait that others did not disturb, no upper end is known.
        let is_known = high < f64::MAX;
        assert!(low > 0.1 * seconds, "{name} {seconds}: {timer:?}");
        assert!(!is_known || high < 3.0 * seconds + 1.0, "{name} {seconds}: {timer:?}");
    }
}

/// ext3 commits after the seconds of its mount option, and checkpoints before its journal is full.
#[test]
fn timers_and_thresholds_follow_the_options() {
    let Some(two) = found("ext3", "commit=2", &["timers", "thresholds"]) else { return };
    let interval = answer(&two, "commit timer").interval.unwrap();
    assert!(interval[0] <= 2.0 && (2.0..4.5).contains(&interval[1]), "{two:?}");
    let size = answer(&two, "journal size").interval.unwrap();
    assert_eq!(size, [4194304.0; 2], "{two:?}");
    let checkpoint = answer(&two, "checkpoint trigger");
    let interval = checkpoint.interval.unwrap_or_else(|| panic!("{two:?}"));
    assert!(interval[0] > 0.0 && interval[1] <= 1.0, "{checkpoint:?}");
    // JBD2 lets a transaction grow to a quarter of the journal, newer kernels to a third. Where a
    // timer came first, the observed value is a lower bound.
    let commit = answer(&two, "commit threshold");
    let interval = commit.interval.unwrap_or_else(|| panic!("{two:?}"));
    assert!(interval[0] > 0.02 && interval[0] < 0.36, "{commit:?}");
    let is_inside = |share: f64| (interval[0]..=interval[1]).contains(&share);
    assert!(is_inside(0.25) || is_inside(1.0 / 3.0), "{commit:?}");
    let by_size = !commit.answer.contains("hidden by a timer");
    assert!(by_size || interval[1] == 1.0, "what was not reached has no upper end: {commit:?}");
    assert!(!by_size || (interval[0] > 0.12 && interval[1] < 0.5), "{commit:?}");
    let Some(five) = found("ext3", "commit=6", &["timers"]) else { return };
    let longer = answer(&five, "commit timer").interval.unwrap();
    assert!(longer[1] > 3.0, "{five:?}");
}

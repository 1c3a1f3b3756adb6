//! Predictions against the truth. A small journaling file system runs in virtual time, and its
//! trace is played with a change. The time of the same file system with that change really made is
//! the truth.
//!
//! This file system and playback share the disk model. They do not share who waits for whom. The
//! file system has tasks that wait for each other; playback has a plan that was worked out from
//! times.

mod journaling;

use journaling::{BLOCK, DEVICE, JOURNAL, Rules, run};
use ordo_annotate::Pieces;
use ordo_block::model::Model;
use ordo_playback::change::{Barriers, Home, JournalPlace, Mode, PlanChange};
use ordo_playback::predict::{Input, PredictError, Predictor, Window};
use ordo_playback::traffic::SeenTrace;

/// The unchanged playback's error, the prediction in seconds, its interval, and the truth.
fn predicted(rules: Rules, changes: &[PlanChange], made: Rules) -> (f64, f64, (f64, f64), f64) {
    let (trace, rows, _) = run(rules);
    let start = Pieces { bytes: DEVICE, ..Pieces::default() };
    let input = Input {
        contents: &trace,
        calls: &[],
        start: &start,
        system: "ext3",
        bytes: DEVICE,
        disk: Some(rules.disk),
        depth: 1,
    };
    let seen = SeenTrace::of(&trace, &rows, &[]).unwrap();
    let predictor = Predictor::new(input, seen, &Window::default()).unwrap();
    let unchanged = predictor.unchanged().unwrap();
    let outcome = predictor.changed(changes, unchanged.error).unwrap();
    let spent: f64 = outcome.spent.values().sum();
    assert!((spent - outcome.seconds).abs() < 1e-6, "the critical path is the whole time");
    let (_, _, truth) = run(made);
    (unchanged.error, outcome.seconds, outcome.interval, truth)
}

/// Every change that this file system can really make.
fn cases(rules: Rules) -> Vec<(PlanChange, Rules)> {
    let model = |name| Model::by_name(name).unwrap();
    let middle = DEVICE / 2;
    vec![
        (PlanChange::JournalAt(JournalPlace::Byte(middle)), Rules { journal_at: middle, ..rules }),
        (
            PlanChange::JournalDevice(model("nvram")),
            Rules { journal_disk: Some(model("nvram")), ..rules },
        ),
        (
            PlanChange::JournalDevice(model("viking")),
            Rules { journal_disk: Some(model("viking")), ..rules },
        ),
        (PlanChange::Overlap, Rules { overlap: true, ..rules }),
        (PlanChange::Barriers(Barriers::Off), Rules { barriers: false, ..rules }),
        (PlanChange::Mode(Mode::Data(Home::Timer)), Rules { data: true, ..rules }),
        (PlanChange::Disk(model("cheetah")), Rules { disk: model("cheetah"), ..rules }),
        (PlanChange::Disk(model("sata-ssd")), Rules { disk: model("sata-ssd"), ..rules }),
    ]
}

/// One client: each request waits for the one before, and playback must find this chain. The
/// unchanged trace is played to the nanosecond, and each change within 2 %, the truth inside the
/// interval. Catches a change that leaves out or adds a wait, a request or a byte.
#[test]
fn one_client_is_predicted_as_it_really_runs() {
    let rules = Rules::new();
    for (change, made) in cases(rules) {
        let (unchanged, predicted, interval, truth) = predicted(rules, &[change], made);
        println!("{change}: predicted {predicted:.4} {interval:.3?}, truth {truth:.4}");
        assert!(unchanged.abs() < 1e-9, "unchanged: {unchanged}");
        assert!((predicted / truth - 1.0).abs() < 0.02, "{change}: {predicted} for {truth}");
    }
}

/// Five clients, whose blocks share transactions: who is in which transaction depends on the time
/// that things take, which playback cannot change. The mean error stays within 10 %, each within 15
/// %.
#[test]
fn several_clients_are_predicted_within_the_bound() {
    let rules = Rules { clients: 5, syncs: 80, ..Rules::new() };
    let mut errors = Vec::new();
    for (change, made) in cases(rules) {
        let (unchanged, predicted, interval, truth) = predicted(rules, &[change], made);
        let error = predicted / truth - 1.0;
        println!(
            "{change}: predicted {predicted:.4} {interval:.3?}, truth {truth:.4}, {error:+.3}"
        );
        assert!(unchanged.abs() < 1e-9, "unchanged: {unchanged}");
        errors.push(error.abs());
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert!(mean < 0.10, "mean {mean}");
    assert!(worst < 0.15, "worst {worst}");
}

/// A change that means nothing for a trace is refused with its reason: data that is in the journal
/// already, and a journal that is not there.
#[test]
fn a_change_that_means_nothing_is_refused() {
    let (trace, rows, _) = run(Rules { data: true, syncs: 5, ..Rules::new() });
    let start = Pieces { bytes: DEVICE, ..Pieces::default() };
    let disk = Some(Rules::new().disk);
    let of = |system, rows: &[ordo_annotate::BlockRow], change: PlanChange| {
        let calls = &[];
        let input =
            Input { contents: &trace, calls, start: &start, system, bytes: DEVICE, disk, depth: 1 };
        let seen = SeenTrace::of(&trace, rows, &[]).unwrap();
        let predictor = Predictor::new(input, seen, &Window::default()).unwrap();
        match predictor.changed(&[change], 0.0) {
            Err(PredictError::Refused(refused)) => refused.to_string(),
            other => panic!("{change}: {other:?}"),
        }
    };
    let overlap = of("ext3", &rows, PlanChange::Overlap);
    assert!(overlap.contains("no journal write of this trace waits for file data"), "{overlap}");
    let mode = of("xfs", &rows, PlanChange::Mode(Mode::Data(Home::Timer)));
    assert!(mode.contains("xfs has no such mode"), "{mode}");
    let away = of("ext3", &rows, PlanChange::JournalAt(JournalPlace::Byte(DEVICE)));
    assert!(away.contains("is not on the device"), "{away}");
    let none = of("ext2", &[], PlanChange::JournalAt(JournalPlace::Permille(500)));
    assert!(none.contains("no write to a journal"), "{none}");
    let differential = of("ext3", &rows, PlanChange::Differential);
    assert!(differential.contains("no copies of blocks"), "{differential}");
    assert_eq!(JOURNAL % BLOCK, 0);
}

/// A trace whose disk is not known is played with the times that its requests took: the unchanged
/// one exactly. A change of the waits can be predicted, and so can another disk; a change of places
/// is refused with the reason.
#[test]
fn a_trace_of_an_unknown_disk_is_played_with_its_own_times() {
    let rules = Rules { syncs: 20, ..Rules::new() };
    let (trace, rows, seconds) = run(rules);
    let start = Pieces { bytes: DEVICE, ..Pieces::default() };
    let (bytes, system) = (DEVICE, "ext3");
    let calls = &[];
    let input =
        Input { contents: &trace, calls, start: &start, system, bytes, disk: None, depth: 1 };
    let seen = SeenTrace::of(&trace, &rows, &[]).unwrap();
    let predictor = Predictor::new(input, seen, &Window::default()).unwrap();
    let unchanged = predictor.unchanged().unwrap();
    assert!((unchanged.predicted.seconds - seconds).abs() < 1e-9, "{unchanged:?}");
    let overlap = predictor.changed(&[PlanChange::Overlap], 0.0).unwrap().seconds;
    assert!(overlap < seconds, "{overlap} of {seconds}");
    let moved =
        predictor.changed(&[PlanChange::JournalAt(JournalPlace::Permille(500))], 0.0).unwrap_err();
    assert!(moved.to_string().contains("does not say on which disk"), "{moved}");
    let cheetah = Model::by_name("cheetah").unwrap();
    let other = predictor.changed(&[PlanChange::Disk(cheetah)], 0.0).unwrap().seconds;
    let (_, _, truth) = run(Rules { disk: cheetah, ..rules });
    assert!((other / truth - 1.0).abs() < 0.02, "{other} for {truth}");
}

/// Marks bound the time; the error for an unknown mark lists the known ones.
#[test]
fn a_mark_that_is_not_there_is_named() {
    let (trace, rows, _) = run(Rules { syncs: 5, ..Rules::new() });
    let start = Pieces { bytes: DEVICE, ..Pieces::default() };
    let disk = Some(Rules::new().disk);
    let (calls, system, bytes) = (&[], "ext3", DEVICE);
    let input = Input { contents: &trace, calls, start: &start, system, bytes, disk, depth: 1 };
    let window = Window { from: Some("begin".into()), until: None };
    let seen = SeenTrace::of(&trace, &rows, &[]).unwrap();
    let error = Predictor::new(input, seen, &window).err().unwrap().to_string();
    assert_eq!(error, "the trace has no mark 'begin'; it has none");
}

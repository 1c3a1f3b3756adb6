//! The reach of a power cut under load.
//!
//! Under soft updates, an application's change is on disk at most 45 seconds later
//! (journaling-versus-soft-updates-2000, section 6). Other orderings may lose older contents: when
//! a file grows, its last fragments move, and the pointer to the new place may be on disk before
//! the contents are.
//!
//! Fault model: the power fails in the middle of a load that keeps a slow disk busy for minutes,
//! with more dirty blocks than allowed waiting. Would catch a syncer that writes only the easy
//! blocks, a block whose age is reset by a write of part of it, and a limit on dirty memory that is
//! larger than the disk can write in time.

use ordo_block::model::Model;
use ordo_cache::LOST_MAX;
use ordo_compare::{ComparisonSetup, RecoveryTime, run};
use ordo_systems::{System, ffs};

fn cut(system: System, load: &str, setup: &ComparisonSetup) -> RecoveryTime {
    let row = run(system, &load.parse().unwrap(), setup, &mut ()).unwrap();
    row.recovery.expect("asked for")
}

/// Random loads run on disks of 1997 and 1998, with little and with much memory for dirty blocks.
#[test]
fn nothing_older_than_45_seconds_is_lost() {
    let loads = [
        "postmark:files=4000,transactions=8000,directories=0",
        "postmark:files=1000,transactions=15000,directories=10",
        "micro:total=16m,sizes=2k,per-directory=100",
    ];
    let system = ffs::SOFT_UPDATES;
    let mut oldest = 0.0_f64;
    for (seed, load) in (1..).zip(loads) {
        for (disk, dirty) in [("viking", 544 * 8192), ("cheetah", 64 << 20)] {
            let disk = Model::by_name(disk).unwrap();
            let setup = ComparisonSetup {
                disk,
                dirty_max: dirty,
                memory: 128 << 20,
                seed,
                ..ComparisonSetup::papers()
            };
            let recovery = cut(system, load, &setup);
            let (lost, at) = (recovery.oldest_lost_seconds, recovery.cut_at_seconds);
            let what = recovery.oldest_lost.unwrap_or_default();
            let name = format!("{} on {}, {load}, seed {seed}", system.name(), disk.name);
            let lost = lost.unwrap_or(0.0);
            assert!(
                lost <= LOST_MAX.as_secs_f64(),
                "{name}: cut at {at:.0} s, {what} of {lost:.1} s before is lost"
            );
            oldest = oldest.max(lost);
        }
    }
    // Otherwise the loads were too small to lose anything.
    assert!(oldest > 15.0, "the oldest loss was of {oldest:.1} s");
}

//! A log that is nearly full is never stuck.
//!
//! Fault model: random overwrites, creates, appends, truncations and deletes on a log that stays so
//! full, over several sizes of segments, blocks and fragments. New blocks may be refused; then all
//! files are unchanged. `sync`, `fsync`, deletes and the unmount always succeed. All contents are
//! right at the end and after a remount, and the checker finds nothing. `ORDO_STEPS` and
//! `ORDO_SEED` make longer runs by hand.

use crate::churn::{Run, SHAPES, Shape};
use ordo_lfs::write::{LfsRules, LogFs};
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, FsError, NewNode};

/// Runs on one shape. Returns the number of segments that were cleaned.
fn run(shape: Shape, full: f64, seed: u64, steps: u64) -> u64 {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let mut run = Run::new(rt, shape, seed, LfsRules::all()).await;
        run.fill(full).await;
        let mut cleaned = 0;
        for n in 0..steps {
            run.step(full).await;
            if n % 2000 == 1999 {
                cleaned += run.fs.layout().cleaned().segments;
                run.remount(n % 4000 == 3999).await;
            }
        }
        run.compare("at the end").await;
        cleaned += run.fs.layout().cleaned().segments;
        run.remount(true).await;
        while !run.files.is_empty() {
            run.delete().await;
        }
        run.remount(true).await;
        cleaned
    });
    ran.expect("no deadlock")
}

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn assert_never_stuck(full: f64) {
    let steps = given("ORDO_STEPS").unwrap_or(2_000);
    let seeds = given("ORDO_SEED").map_or(0..2, |seed| seed..seed + 1);
    let mut cleaned = 0;
    for seed in seeds {
        for (i, shape) in SHAPES.iter().enumerate() {
            cleaned += run(*shape, full, seed * 100 + i as u64, steps);
        }
    }
    assert!(cleaned > 0, "nothing was ever cleaned");
}

#[test]
fn a_log_half_full_is_never_stuck() {
    assert_never_stuck(0.5);
}

#[test]
fn a_log_three_quarters_full_is_never_stuck() {
    assert_never_stuck(0.75);
}

#[test]
fn a_log_nearly_full_is_never_stuck() {
    assert_never_stuck(0.95);
}

/// All space is in use, and new blocks are refused all the time.
#[test]
fn a_full_log_is_never_stuck() {
    assert_never_stuck(2.0);
}

/// Makes a directory of 100 empty files.
async fn hundred(fs: &LogFs, dir: u64) -> Result<(), FsError> {
    let made = fs.create(fs.root(), &name("dir", dir), &NewNode::directory(0o755)).await?;
    for file in 0..100 {
        fs.create(made.ino, &name("file", file), &NewNode::file(0o644)).await?;
    }
    Ok(())
}

fn name(what: &str, number: u64) -> Vec<u8> {
    format!("{what}{number}").into_bytes()
}

/// While there is plenty of space, the IFILE grows by a part of the inodes in use, so that a file
/// seldom waits for a checkpoint: fewer than one for each 200 files. Would catch an IFILE that
/// grows by a constant number of inodes, for which a superblock and blocks of the IFILE are written
/// again and again.
#[test]
fn many_empty_files_need_few_checkpoints() {
    for shape in [SHAPES[0], SHAPES[5]] {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let ran = executor.block_on(async {
            let mut run = Run::new(rt, shape, 1, LfsRules::all()).await;
            let before = run.fs.layout().checkpoints();
            for dir in 0..30 {
                hundred(&run.fs, dir).await.expect("there is plenty of space");
            }
            let checkpoints = run.fs.layout().checkpoints() - before;
            assert!(checkpoints < 3000 / 200, "{shape:?}: {checkpoints}");
            run.remount(true).await;
        });
        ran.expect("no deadlock");
    }
}

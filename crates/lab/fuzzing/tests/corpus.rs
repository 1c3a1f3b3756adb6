//! Runs every input under `fuzz/regressions` again, and a spread of arbitrary inputs: the
//! assertions of the fuzz targets hold for them. An input that fails a target is added there once
//! its fault is fixed.

use std::path::{Path, PathBuf};

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/regressions").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn run_all(target: &str, run: fn(&[u8])) {
    let paths = inputs(target);
    assert!(!paths.is_empty());
    for path in paths {
        println!("{}", path.display());
        run(&std::fs::read(path).unwrap());
    }
}

#[test]
fn the_check_corpus_passes() {
    run_all("check", ordo_fuzzing::check);
}

#[test]
fn the_mount_corpus_passes() {
    run_all("mount", ordo_fuzzing::mount);
}

#[test]
fn a_spread_of_changes_passes() {
    // A multiplicative generator; any spread would do.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (state >> 56) as u8
    };
    // `ORDO_ROUNDS` sets the number of inputs.
    let rounds = std::env::var("ORDO_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(300u32) {
        let mut input = vec![1 + (round % 4) as u8];
        for _ in 0..1 + round % 9 {
            input.extend([byte(), byte(), 0, 1 + byte() % 8]);
            let kind = byte() % 3;
            input.extend((0..8).map(|_| if kind == 0 { byte() } else { 0xff * (kind - 1) }));
        }
        ordo_fuzzing::check(&input);
        ordo_fuzzing::mount(&input);
    }
}

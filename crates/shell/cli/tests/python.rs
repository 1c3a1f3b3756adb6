//! The Python package `ordo_trace` under pytest, with the command that was just built: queries,
//! frames, plots, the notebook, and fleets under xargs and on a Spark cluster one of whose
//! executors is killed.
//!
//! Fault model: files of Ordo that the package reads wrongly; tasks whose results differ on another
//! machine; a fleet whose result depends on the machine that was lost.

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_package() {
    let python = std::env::var("ORDO_PYTHON").unwrap_or_else(|_| "python3".into());
    let needs = "import pytest, duckdb, pyarrow, google_crc32c, pandas, polars, matplotlib";
    let has = Command::new(&python).args(["-c", needs]).output();
    if !has.is_ok_and(|out| out.status.success()) {
        ordo_testkit::skip(&format!("{python} lacks what python/pyproject.toml lists for tests"));
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python");
    let out = Command::new(&python)
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests"])
        .current_dir(folder)
        .env("ORDO", env!("CARGO_BIN_EXE_ordo"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    // Skipped tests of pytest are printed as loudly as those of cargo.
    for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
        ordo_testkit::skip(line);
    }
}

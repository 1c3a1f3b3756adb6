//! `ordo fsck`, as a person runs it, on mutants. Fault model: one number of a sound file system's superblock, its
//! copies, summary or group headers changed with its check-hash right again, or one byte with the check-hash as it
//! was; written to an image file. Demanded: `-n` tells the damage by its exit code and changes nothing, `-y` says by
//! its own what it repaired, and the next `-n` finds nothing and exits with 0. Catches what the library's tests of the
//! same mutants (`crates/check/tests/fields.rs`) cannot see: a repair that never reaches the file, exit codes that
//! differ from the report, a replay of a log that undoes a repair.

#[path = "../../check/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use ordo_check::Repair;
use ordo_format::Endian;
use ordo_testkit::FreebsdFsck;
use support::check;
use support::mutants::{Mutant, Shape, shapes};

/// Mutants that an ordinary run tries.
const SOME: usize = 120;

/// Fields that say whether there are check-hashes. Where they come to say no, FreeBSD 12 takes a group's old hash,
/// which nobody reads, for bad summary information; 13 and later do not.
const UNHASHED: [&str; 2] = ["flags", "metackhash"];

fn fsck(how: &str, image: &Path) -> Output {
    Command::new(cargo_bin("ordo")).args(["fsck", how, "-f"]).arg(image).output().unwrap()
}

/// `count` mutants of a shape, spread evenly over fields and bytes; other ones for other `turn`s.
fn some(shape: &Shape, count: usize, turn: usize) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (all, count) in [(shape.by_field(), count - count / 3), (shape.by_byte(), count / 3)] {
        let step = (all.len() / count.max(1)).max(1);
        mutants.extend(all.into_iter().skip(7 * turn % step).step_by(step).take(count));
    }
    mutants
}

/// What is wrong with how the command deals with a mutant.
fn judge(
    shape: &Shape,
    mutant: &Mutant,
    image: &Path,
    freebsd: Option<&FreebsdFsck>,
) -> Result<bool, String> {
    let damaged = shape.with(mutant);
    let is_damaged = !check(&damaged, Repair::No).map_err(|e| e.to_string())?.is_consistent();
    let bytes = damaged.to_vec();
    std::fs::write(image, &bytes).unwrap();
    let runs = [("-n", [0, 4]), ("-y", [0, 1]), ("-n", [0, 0])];
    for (turn, (how, codes)) in runs.into_iter().enumerate() {
        let out = fsck(how, image);
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        let wanted = codes[usize::from(is_damaged)];
        if out.status.code() != Some(wanted) {
            return Err(format!(
                "run {turn}, {how}: {:?}, not {wanted}:\n{text}",
                out.status.code()
            ));
        }
        if turn == 0 && std::fs::read(image).unwrap() != bytes {
            return Err("-n wrote to the image".into());
        }
    }
    match freebsd.map(|fsck| fsck.run_on(image, &["-n", "-f"])) {
        Some(said) if !said.is_content() => Err(format!("FreeBSD's, afterwards:\n{}", said.text)),
        _ => Ok(is_damaged),
    }
}

/// Tries `count` mutants; how many of them were damaged.
fn campaign(count: usize, freebsd: Option<&FreebsdFsck>) -> usize {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("image");
    let orders: &[Endian] = match freebsd {
        None => &[Endian::Little, Endian::Big],
        // It reads the byte order of the machine only.
        Some(_) => &[Endian::Little],
    };
    let shapes: Vec<_> = orders.iter().flat_map(|order| shapes(*order)).collect();
    let (mut damaged, mut wrong) = (0, Vec::new());
    for (turn, shape) in shapes.iter().enumerate() {
        for mutant in some(shape, count.div_ceil(shapes.len()), turn) {
            if freebsd.is_some() && UNHASHED.contains(&mutant.field.name) {
                continue;
            }
            match judge(shape, &mutant, &image, freebsd) {
                Ok(is_damaged) => damaged += usize::from(is_damaged),
                Err(error) => wrong.push(format!("{}: {mutant:?}\n{error}", shape.name)),
            }
        }
    }
    let first: Vec<_> = wrong.iter().take(8).cloned().collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), first.join("\n\n"));
    damaged
}

#[test]
fn after_a_repair_nothing_is_found_and_the_exit_code_is_0() {
    let damaged = campaign(SOME, None);
    assert!(
        damaged > SOME / 3,
        "{damaged} of {SOME} mutants were damaged: too few to prove anything"
    );
}

/// The same mutants and as many more as `ORDO_MUTANTS` says; FreeBSD's fsck looks at what was repaired.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_nothing_in_what_the_command_repairs() {
    let count = std::env::var("ORDO_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(SOME);
    println!("{} of {count} mutants were damaged", campaign(count, Some(&FreebsdFsck::new())));
}

//! `ordo fsck`, as a user runs it, on mutants.
//!
//! Fault model: one number in the superblock, its copies, the summary or the group headers of a
//! consistent file system is changed, with its check-hash corrected, or one byte without that; the
//! image is a file. Demanded: `-n` reports the damage by its exit status and changes nothing, `-y`
//! reports its repairs by its own, and the next `-n` has no findings and exits with 0. Would catch
//! errors that the library's tests of the same mutants (`crates/witness/check/tests/all/fields.rs`)
//! cannot see: a repair that never reaches the file, exit statuses that differ from the report, a
//! replay of a log that undoes a repair.

#[path = "../../../witness/check/tests/all/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use ordo_check::Repair;
use ordo_format::Endian;
use ordo_testkit::FreebsdFsck;
use support::check;
use support::mutants::{Mutant, Shape, shapes};

/// The mutants of an ordinary run.
const SOME: usize = 120;

/// Fields that say whether there are check-hashes. If they say no, FreeBSD 12 takes a group's old
/// hash, which has no meaning then, for bad summary information; 13 and later do not.
const UNHASHED: [&str; 2] = ["flags", "metackhash"];

fn fsck(how: &str, image: &Path) -> Output {
    Command::new(cargo_bin("ordo")).args(["fsck", how, "-f"]).arg(image).output().unwrap()
}

/// `count` mutants of a shape, spread evenly over fields and bytes. Each `turn` has different ones.
fn some(shape: &Shape, count: usize, turn: usize) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (all, count) in [(shape.by_field(), count - count / 3), (shape.by_byte(), count / 3)] {
        let step = (all.len() / count.max(1)).max(1);
        mutants.extend(all.into_iter().skip(7 * turn % step).step_by(step).take(count));
    }
    mutants
}

/// Runs the command on a mutant. The error describes a fault of the command.
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

/// Tries `count` mutants. Returns the number that were damaged.
fn campaign(count: usize, freebsd: Option<&FreebsdFsck>) -> usize {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("image");
    let orders: &[Endian] = match freebsd {
        None => &[Endian::Little, Endian::Big],
        // FreeBSD's fsck reads only images of the machine's byte order.
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

/// The same mutants, and as many more as `ORDO_MUTANTS` says. FreeBSD's fsck checks the repaired
/// images.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_nothing_in_what_the_command_repairs() {
    let count = std::env::var("ORDO_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(SOME);
    println!("{} of {count} mutants were damaged", campaign(count, Some(&FreebsdFsck::new())));
}

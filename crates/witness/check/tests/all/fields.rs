//! Every field of superblock, copies, totals, recovery record, summary and group headers, changed
//! alone. Fault model: one number of a valid file system is set to 0, 1, the largest value, one
//! more or one less, with the check-hash corrected; or one byte is changed without that. Required:
//! the result that `docs/formats/ufs2-checks.md` promises for the field; a repair exits with 1, and
//! a check after it finds nothing and exits with 0. Catches a field that is never compared, a page
//! that promises too much, and a repair that leaves something.

use crate::support::mutants::{How, Mutant, STRUCTURES, Shape, lines, shapes};
use crate::support::{check, kinds};
use ordo_check::{CheckError, Finding, Repair};
use ordo_ffs::mkfs::UfsVersion;
use ordo_format::Endian;

/// The number of mutants of each shape in an ordinary run.
const SOME: usize = 30;

#[test]
fn the_page_of_checks_has_a_line_for_every_field() {
    let versions = [UfsVersion::Ufs2, UfsVersion::Ufs1];
    for (version, (structure, _, fields)) in
        versions.into_iter().flat_map(|v| STRUCTURES.map(|s| (v, s)))
    {
        let lines = lines(version, structure);
        let named: Vec<_> = lines.iter().map(|line| line.field.as_str()).collect();
        let wanted: Vec<_> = fields.iter().map(|field| field.name).collect();
        assert_eq!(named, wanted, "{structure}");
        for line in lines.iter().filter(|line| line.field != "cstotal") {
            let is_left = line.how == How::No;
            assert_eq!(line.kinds().is_empty(), is_left, "{structure}.{}", line.field);
            assert!(!line.text.is_empty(), "{structure}.{}: no reason", line.field);
            let names = line.text.split(", ").all(|word| Finding::KINDS.contains(&word));
            assert!(is_left || names, "{structure}.{}: {}", line.field, line.text);
        }
    }
}

/// `count` mutants of all, spread evenly; another `turn` gives others.
fn some(all: Vec<Mutant>, count: usize, turn: usize) -> Vec<Mutant> {
    let step = all.len().div_ceil(count).max(1);
    all.into_iter().skip(turn % step).step_by(step).collect()
}

/// Whether the findings are those that the page promises.
fn judge(shape: &Shape, mutant: &Mutant) -> Result<(), String> {
    let lines = lines(shape.options.version, mutant.structure);
    let line = lines.iter().find(|line| line.field == mutant.field.name).unwrap();
    let (how, wanted) = shape.wanted(mutant, line);
    let disk = shape.with(mutant);
    let report = match check(&disk, Repair::No) {
        Ok(report) => report,
        Err(error) => return Err(format!("no check: {error}")),
    };
    let found = kinds(&report);
    let named = found.iter().any(|kind| wanted.contains(kind));
    let holds = match how {
        How::Exact => named,
        How::Range => found.iter().all(|kind| wanted.contains(kind)),
        How::No => found.is_empty(),
        How::Hash => unreachable!("worked out before"),
    };
    if !holds {
        return Err(format!("{how:?} of {wanted:?}, but {found:?}:\n{report}"));
    }
    let clean = i32::from(!report.is_consistent());
    let repaired = check(&disk, Repair::Yes).map_err(|error| error.to_string())?;
    let after = check(&disk, Repair::No).map_err(|error: CheckError| error.to_string())?;
    if (repaired.exit_code(), after.exit_code(), after.was_clean) != (clean, 0, true) {
        return Err(format!("found\n{report}\nrepaired\n{repaired}\nand then\n{after}"));
    }
    Ok(())
}

/// Tries `count` mutants of every shape, or all of them where `count` is large. Returns the number
/// tried.
fn campaign(count: usize) -> usize {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (turn, shape) in [Endian::Little, Endian::Big].into_iter().flat_map(shapes).enumerate() {
        let fields = some(shape.by_field(), count, turn);
        let bytes = some(shape.by_byte(), count / 2, 3 * turn);
        for mutant in fields.iter().chain(&bytes) {
            tried += 1;
            if let Err(error) = judge(&shape, mutant) {
                wrong.push(format!("{}: {mutant:?}\n{error}", shape.name));
            }
        }
    }
    let first: Vec<_> = wrong.iter().take(12).cloned().collect();
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), first.join("\n\n"));
    tried
}

#[test]
fn each_planted_field_value_has_the_finding_on_the_page() {
    assert!(campaign(SOME) > 600);
}

/// All mutants, which take minutes: `cargo test --release -p ordo-check --test all -- --ignored
/// all_mutants`
#[test]
#[ignore = "takes minutes"]
fn all_mutants_are_found_as_the_page_says_and_repaired() {
    let tried = campaign(usize::MAX);
    println!("{tried} mutants");
    assert!(tried > 10_000);
}

/// FreeBSD's fsck finds nothing that Ordo's check misses, and nothing after Ordo's repair.
/// `ORDO_MUTANTS` sets the number of each shape.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_finds_no_more_in_mutants_and_nothing_in_repaired_ones() {
    let fsck = ordo_testkit::FreebsdFsck::new();
    let count = std::env::var("ORDO_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let (mut tried, mut both, mut ours, mut wrong) = (0, 0, 0, Vec::new());
    for (turn, shape) in shapes(Endian::Little).into_iter().enumerate() {
        let mut mutants = some(shape.by_field(), count, turn);
        mutants.extend(some(shape.by_byte(), count / 2, 3 * turn));
        for mutant in mutants {
            let disk = shape.with(&mutant);
            let said = fsck.look(&disk.to_vec());
            let report = check(&disk, Repair::Yes).unwrap();
            tried += 1;
            match (said.is_content(), report.is_consistent()) {
                (false, false) => both += 1,
                (true, false) => ours += 1,
                (true, true) => {}
                (false, true) => {
                    wrong.push(format!("{}, unseen: {mutant:?}\n{}", shape.name, said.text));
                }
            }
            let after = fsck.look(&disk.to_vec());
            if !after.is_content() {
                let what = format!("{}, repaired: {mutant:?}\n{report}", shape.name);
                wrong.push(format!("{what}\n{}", after.text));
            }
        }
    }
    println!("{tried} mutants: {both} found by both, {ours} here only, the rest by nobody");
    let first: Vec<_> = wrong.iter().take(12).cloned().collect();
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), first.join("\n\n"));
}

//! The tables and verdicts.

use std::fmt::Write;
use std::path::Path;

use crate::machine::Cost;
use crate::systems::{BARE, MeasuredDevice};

/// The goal: at most so many times the bare loop device, or the server that names nothing.
const GOAL: f64 = 1.03;

/// The least, the middle and the greatest value.
fn spread(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

fn cell((least, middle, most): (f64, f64, f64)) -> String {
    format!("{middle:.2} ({least:.2} to {most:.2})")
}

/// One of the two times of a run.
type What = fn(&Cost) -> f64;

/// The ratios of one system to another, round by round.
fn ratios(of: &[Cost], to: &[Cost], what: What) -> (f64, f64, f64) {
    spread(of.iter().zip(to).map(|(one, other)| what(one) / what(other)).collect())
}

pub fn heading(place: &Path, rounds: usize, ring: bool) -> String {
    let kind = match std::fs::metadata(place).is_ok() && is_memory(place) {
        true => "in memory (tmpfs)",
        false => "on the machine's disk",
    };
    let missing = if ring { "" } else { " FUSE over io_uring could not be switched on." };
    format!(
        "### Image {kind}\n\nMedians of {rounds} rounds, after one to warm up; the least and the most in brackets. The systems take turns \
         in each round, and ratios are within a round. Processor time is that of the whole machine.{missing}\n"
    )
}

fn is_memory(place: &Path) -> bool {
    let place = place.canonicalize().unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let tmpfs = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        (kind == "tmpfs").then(|| at.to_owned())
    });
    tmpfs.into_iter().any(|at| place.starts_with(at))
}

pub fn table(work: &str, systems: &[MeasuredDevice], costs: &[Vec<Cost>]) -> String {
    let wall: What = |cost| cost.wall;
    let processor: What = |cost| cost.processor;
    let mut text = format!(
        "#### {work}\n\n| device | seconds | times bare | processor seconds | times bare | times no names | processor, times no names |\n\
         |---|---|---|---|---|---|---|\n"
    );
    let mut verdicts = String::new();
    for (system, of) in systems.iter().zip(costs) {
        let bare = &costs[BARE];
        let floor = system.floor.map(|number| &costs[number]);
        let beside =
            |what: What| floor.map_or_else(|| "-".into(), |floor| cell(ratios(of, floor, what)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            system.name,
            cell(spread(of.iter().map(wall).collect())),
            cell(ratios(of, bare, wall)),
            cell(spread(of.iter().map(processor).collect())),
            cell(ratios(of, bare, processor)),
            beside(wall),
            beside(processor),
        );
        let Some(floor) = floor else { continue };
        for (to, than) in [(bare, "the bare loop device"), (floor, "the same server without names")]
        {
            let (_, middle, _) = ratios(of, to, wall);
            let verdict = if middle <= GOAL { "PASSED" } else { "MISSED" };
            let _ = writeln!(
                verdicts,
                "- {}: {middle:.2} times {than}, goal {GOAL}: {verdict}",
                system.name
            );
        }
    }
    format!("{text}\n{verdicts}")
}

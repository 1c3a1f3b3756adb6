//! The subjects of commits, since the project's rules for them.

use std::path::Path;
use std::process::Command;

/// The most characters of a subject.
const SUBJECT_MAX: usize = 72;

/// The last commit before the rule.
const BEFORE: &str = "83a31b9f";

/// A line for each subject that is too long; none where the history is not there, as in a copy of
/// the sources.
pub fn check(root: &Path) -> Vec<String> {
    let range = format!("{BEFORE}..HEAD");
    let log =
        Command::new("git").arg("-C").arg(root).args(["log", "--format=%h %s", &range]).output();
    let Ok(log) = log else { return Vec::new() };
    let text = String::from_utf8_lossy(&log.stdout).into_owned();
    let subjects = text.lines().filter_map(|line| line.split_once(' '));
    let long = subjects.filter(|(_, subject)| subject.chars().count() > SUBJECT_MAX);
    long.map(|(id, subject)| {
        format!("commit {id}: a subject of {} characters", subject.chars().count())
    })
    .collect()
}

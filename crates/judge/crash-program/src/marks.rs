//! The promises of a program, and those that held at the power cut.
//!
//! A program writes lines to the file `$ORDO_MARK`. Each line is a promise from the moment at which
//! the write of its newline returns. A line that begins with `begin ` announces the rest of the
//! line. An announced line that is not promised yet is *pending*: a check must accept its change,
//! and its absence. If a program announces nothing, the next line is pending.

use serde::{Deserialize, Serialize};

/// The word that announces the rest of its line.
const BEGIN: &str = "begin ";

/// A line that a program wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The number of the device's events before it: requests issued, and requests completed.
    pub events: usize,
    /// The time, in nanoseconds of the run's clock.
    pub at: u64,
    /// The line.
    pub text: String,
}

/// The promises at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promises {
    /// Lines that were promised, oldest first.
    pub acked: Vec<String>,
    /// Lines that were pending.
    pub pending: Vec<String>,
}

impl Promises {
    /// The promises after the first `events` events.
    pub fn at(marks: &[Mark], events: usize) -> Promises {
        let (before, after) = marks.split_at(marks.partition_point(|mark| mark.events <= events));
        let mut promises = Promises::default();
        for mark in before {
            match mark.text.strip_prefix(BEGIN) {
                Some(rest) => promises.pending.push(rest.to_owned()),
                None => {
                    let announced = promises.pending.iter().position(|p| *p == mark.text);
                    announced.map(|at| promises.pending.remove(at));
                    promises.acked.push(mark.text.clone());
                }
            }
        }
        if !marks.iter().any(|mark| mark.text.starts_with(BEGIN)) {
            promises.pending.extend(after.first().map(|mark| mark.text.clone()));
        }
        promises
    }

    /// The promises at the same moment as if nothing had been promised: every line is pending.
    #[must_use]
    pub fn none(&self) -> Promises {
        let pending = self.acked.iter().chain(&self.pending).cloned().collect();
        Promises { acked: Vec::new(), pending }
    }

    /// The lines in the form of the files that a check reads.
    pub fn lines(list: &[String]) -> String {
        list.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(list: &[(usize, &str)]) -> Vec<Mark> {
        let mark =
            |(events, text): &(usize, &str)| Mark { events: *events, at: 0, text: (*text).into() };
        list.iter().map(mark).collect()
    }

    /// A line is promised from the event before which it came; the next line's change may be there
    /// already.
    #[test]
    fn lines_are_promises() {
        let marks = marks(&[(3, "a 1"), (5, "a 2")]);
        assert_eq!(
            Promises::at(&marks, 2),
            Promises { acked: vec![], pending: vec!["a 1".into()] }
        );
        let at_three = Promises { acked: vec!["a 1".into()], pending: vec!["a 2".into()] };
        assert_eq!(Promises::at(&marks, 3), at_three);
        assert_eq!(Promises::at(&marks, 4), at_three);
        assert_eq!(Promises::at(&marks, 9).acked.len(), 2);
        assert_eq!(at_three.none().pending, ["a 1", "a 2"]);
    }

    /// An announced line is pending until it is promised; each of several programs announces its
    /// own.
    #[test]
    fn announced_lines_are_pending() {
        let marks = marks(&[(1, "begin x"), (2, "begin y"), (4, "y"), (6, "x")]);
        assert_eq!(Promises::at(&marks, 0), Promises::default());
        assert_eq!(Promises::at(&marks, 3).pending, ["x", "y"]);
        let at_five = Promises { acked: vec!["y".into()], pending: vec!["x".into()] };
        assert_eq!(Promises::at(&marks, 5), at_five);
        assert_eq!(Promises::at(&marks, 6).pending, Vec::<String>::new());
    }
}

//! Rules for crash states by meaning: the kinds of block that are lost, kept, torn or reordered,
//! and the writes that fail.

use std::fmt;
use std::str::FromStr;

use ordo_watcher::{Class, Kinds, NoKind};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::model::{Layout, Sectors};
use crate::run::Write;

/// The syntax of a rule, for help texts.
pub const SYNTAX: &str = "\
  lose KIND            all writes of this kind that are not durable are lost; all others are kept
  keep KIND            all writes of this kind are kept; all others that are not durable are lost
  tear KIND            all writes of this kind that are not durable are torn; all others are kept
  KIND before KIND     the first kind is kept, the second lost: the disk wrote them in the wrong order
  eio KIND N           the Nth write of this kind fails
KIND is a kind of block (superblock, summary, cylinder_group, inode_block, directory, indirect,
file_data, ...), a disk (disk0, disk1), or 'text:WORDS' for writes whose description contains WORDS.
Some words stand for several kinds: 'journal' is any part of a journal or log; 'commit' is a commit
block or, in a log without commit blocks, any part of the log; 'metadata' is all but file data, at
its fixed location; 'fixed' is metadata and file data at their fixed locations.";

/// The writes to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Writes whose first block is of one of these kinds.
    Of(Kinds),
    /// Writes to this disk.
    Disk(usize),
    /// Writes whose description contains this text.
    Text(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRule {
    /// These writes are lost, and no others.
    Lose(RuleKind),
    /// These writes are kept, and no others.
    Keep(RuleKind),
    /// These writes are torn, and all others kept.
    Tear(RuleKind),
    /// The first writes are kept, the second ones lost.
    Before(RuleKind, RuleKind),
    /// The write with this number, counted from 1, fails.
    Fail(RuleKind, u64),
}

/// The reason why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The text has none of the forms.
    #[error("'{0}' is not a rule; the forms are:\n{SYNTAX}")]
    Form(String),
    /// No kind has this name.
    #[error("{0}, disk0, disk1, and text:WORDS")]
    Kind(#[from] NoKind),
}

impl FromStr for RuleKind {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<RuleKind, RuleError> {
        if let Some(words) = text.strip_prefix("text:") {
            return Ok(RuleKind::Text(words.to_string()));
        }
        if let Some(disk) = text.strip_prefix("disk").and_then(|n| n.parse().ok()) {
            return Ok(RuleKind::Disk(disk));
        }
        Ok(RuleKind::Of(text.parse()?))
    }
}

impl FromStr for StateRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<StateRule, RuleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = || RuleError::Form(text.to_string());
        Ok(match words[..] {
            ["lose", kind] => StateRule::Lose(kind.parse()?),
            ["keep", kind] => StateRule::Keep(kind.parse()?),
            ["tear", kind] => StateRule::Tear(kind.parse()?),
            [first, "before", second] => StateRule::Before(first.parse()?, second.parse()?),
            ["eio", kind, number] => match number.parse() {
                Ok(0) | Err(_) => return Err(wrong()),
                Ok(number) => StateRule::Fail(kind.parse()?, number),
            },
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleKind::Of(kinds) => kinds.fmt(f),
            RuleKind::Disk(disk) => write!(f, "disk{disk}"),
            RuleKind::Text(text) => write!(f, "text:{text}"),
        }
    }
}

impl fmt::Display for StateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateRule::Lose(kind) => write!(f, "lose {kind}"),
            StateRule::Keep(kind) => write!(f, "keep {kind}"),
            StateRule::Tear(kind) => write!(f, "tear {kind}"),
            StateRule::Before(first, second) => write!(f, "{first} before {second}"),
            StateRule::Fail(kind, number) => write!(f, "eio {kind} {number}"),
        }
    }
}

impl RuleKind {
    /// Whether a write is of this kind.
    pub fn is(&self, disk: usize, class: Class, name: &str) -> bool {
        match self {
            RuleKind::Of(kinds) => kinds.have(class),
            RuleKind::Disk(d) => *d == disk,
            RuleKind::Text(text) => name.contains(text.as_str()),
        }
    }

    fn is_write(&self, sectors: &Sectors, write: (usize, usize)) -> bool {
        let Write { class, name, .. } = &sectors.run.disks[write.0].writes[write.1];
        self.is(write.0, *class, name)
    }
}

/// Calls `each` with the states of a frontier that follow one of the rules; for a rule that tears,
/// with `tears` states.
pub(crate) fn states(
    sectors: &Sectors,
    layout: &Layout,
    rules: &[StateRule],
    (tears, rng): (usize, &mut Pcg64Mcg),
    mut each: impl FnMut(&[u8]),
) {
    for rule in rules {
        let is = |kind: &RuleKind| -> Vec<bool> {
            layout.writes.iter().map(|w| kind.is_write(sectors, w.write)).collect()
        };
        let some = |marks: &[bool]| marks.contains(&true);
        match rule {
            StateRule::Lose(kind) => {
                let marks = is(kind);
                if some(&marks) {
                    each(&layout.with_writes(|i| !marks[i]));
                }
            }
            StateRule::Keep(kind) => {
                let marks = is(kind);
                if some(&marks) {
                    each(&layout.with_writes(|i| marks[i]));
                }
            }
            StateRule::Before(first, second) => {
                let (first, second) = (is(first), is(second));
                if some(&first) && some(&second) {
                    each(&layout.with_writes(|i| first[i] || !second[i]));
                }
            }
            StateRule::Tear(kind) => {
                let marks = is(kind);
                let whole = layout.with_writes(|_| true);
                for _ in 0..if some(&marks) { tears } else { 0 } {
                    let mut state = whole.clone();
                    let torn = layout.writes.iter().zip(&marks).filter(|(_, m)| **m);
                    for (choice, _) in torn.flat_map(|(w, _)| &w.parts) {
                        if rng.random() {
                            state[*choice as usize] = 0;
                        }
                    }
                    each(&state);
                }
            }
            StateRule::Fail(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in [
            "lose directory",
            "keep disk1",
            "tear text:links 2",
            "eio inode_block 3",
            "a before b",
            "tear commit",
            "metadata before journal",
        ] {
            let rule = text.parse::<StateRule>();
            match text {
                "tear text:links 2" => assert!(matches!(rule, Err(RuleError::Form(_)))),
                "a before b" => assert_eq!(rule, Err(RuleError::Kind(NoKind("a".into())))),
                _ => assert_eq!(rule.unwrap().to_string(), text),
            }
        }
        assert!("eio inode_block 0".parse::<StateRule>().is_err());
        let of = |class| RuleKind::Of(Kinds::One(class));
        let rule: StateRule = "superblock before directory".parse().unwrap();
        assert_eq!(rule, StateRule::Before(of(Class::Superblock), of(Class::Directory)));
    }
}

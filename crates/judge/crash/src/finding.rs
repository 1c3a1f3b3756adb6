//! The findings of a check, in words without a format: severity, kind, inode.

use serde::Serialize;

/// The severity of a finding after a crash, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingSeverity {
    /// Counts on which only statistics and allocation hints depend.
    Counts,
    /// Space, inodes or links that are lost: the file system can be used safely.
    Leak,
    /// Nothing is lost or in danger, but no careful order of writes leaves this.
    Disorder,
    /// Use without a check could lose or mix up data; a check repairs it without a loss.
    Repairable,
    /// Use could lose or mix up data.
    Damage,
}

/// A finding of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity in this system.
    pub severity: FindingSeverity,
    /// The kind, as the checker names it.
    pub kind: &'static str,
    /// The inode of the finding, if it has one.
    pub ino: Option<u64>,
    /// Whether a repair must guess: the owner of a block, the contents of the root.
    pub is_guess: bool,
}

/// All findings of a check.
pub struct Findings {
    all: Vec<Finding>,
    unrepairable: u64,
    words: Box<dyn Fn(usize) -> String>,
}

impl Findings {
    /// The findings `all`, of which no repair removes `unrepairable`. `words` describes one of
    /// them, by its index, for a person.
    pub fn new(
        all: Vec<Finding>,
        unrepairable: u64,
        words: impl Fn(usize) -> String + 'static,
    ) -> Findings {
        Findings { all, unrepairable, words: Box::new(words) }
    }

    /// All findings, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Finding)> {
        self.all.iter().enumerate()
    }

    /// One finding in a line: what, where, and what a repair does about it.
    pub fn describe(&self, number: usize) -> String {
        (self.words)(number)
    }

    /// Whether there are no findings.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of findings that no repair removes.
    pub fn unrepairable(&self) -> u64 {
        self.unrepairable
    }
}

//! What a check finds, in words that know no format: how bad, what, where.

use serde::Serialize;

/// How bad a finding is after a crash, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Counts that nothing but statistics and allocation hints depend on.
    Counts,
    /// Space, inodes or links that nothing uses: safe to go on with.
    Leak,
    /// Nothing is lost and nothing in danger, but no careful order of writes would have left it.
    Disorder,
    /// Going on without a check could lose or mix up data; a check repairs it without a loss.
    Repairable,
    /// Going on could lose or mix up data.
    Damage,
}

/// Something that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is here.
    pub severity: Severity,
    /// What it is, in the checker's one word.
    pub kind: &'static str,
    /// The inode that it is about, where it is about one.
    pub ino: Option<u64>,
    /// Whether a repair has to guess: whose a block is, what the root was.
    pub is_guess: bool,
}

/// All that a check found.
pub struct Findings {
    all: Vec<Finding>,
    unrepairable: u64,
    words: Box<dyn Fn(usize) -> String>,
}

impl Findings {
    /// `all`, of which so many no repair makes go away; `words` says one of them, by its number, for a person.
    pub fn new(
        all: Vec<Finding>,
        unrepairable: u64,
        words: impl Fn(usize) -> String + 'static,
    ) -> Findings {
        Findings { all, unrepairable, words: Box::new(words) }
    }

    /// Each of them, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Finding)> {
        self.all.iter().enumerate()
    }

    /// One of them in a line: what, where, and what a repair does about it.
    pub fn describe(&self, number: usize) -> String {
        (self.words)(number)
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many no repair makes go away.
    pub fn unrepairable(&self) -> u64 {
        self.unrepairable
    }
}

//! Words for kinds of blocks: a word stands for one kind, or for several that have something in
//! common.

use std::fmt;
use std::str::FromStr;

use crate::Class;

/// A set of block kinds that one word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All kinds.
    Any,
    /// Blocks of a journal or log.
    Journal,
    /// Blocks that commit a transaction: commit blocks. In Ordo's own log, which has none, every
    /// block counts, since any may.
    Commit,
    /// Blocks with a fixed location.
    Fixed,
    /// Metadata at fixed locations: the blocks that a checkpoint writes.
    Metadata,
    /// One kind.
    One(Class),
}

/// The error for a word that names no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kind of block is called '{0}'; there are {all}", all = Kinds::words())]
pub struct NoKind(pub String);

impl Kinds {
    /// The sets of more than one kind.
    pub const SEVERAL: [Kinds; 5] =
        [Kinds::Any, Kinds::Journal, Kinds::Commit, Kinds::Fixed, Kinds::Metadata];

    /// Whether this kind is in the set.
    pub const fn have(self, class: Class) -> bool {
        match self {
            Kinds::Any => true,
            Kinds::Journal => class.is_journal(),
            Kinds::Commit => matches!(class, Class::JournalCommit | Class::Log),
            Kinds::Fixed => !class.is_journal(),
            Kinds::Metadata => !class.is_journal() && class.is_metadata(),
            Kinds::One(one) => one as usize == class as usize,
        }
    }

    /// The word for the set.
    pub const fn word(self) -> &'static str {
        match self {
            Kinds::Any => "any",
            Kinds::Journal => "journal",
            Kinds::Commit => "commit",
            Kinds::Fixed => "fixed",
            Kinds::Metadata => "metadata",
            Kinds::One(class) => class.key(),
        }
    }

    /// All words, for an error message.
    pub fn words() -> String {
        let all = Kinds::SEVERAL.into_iter().chain(Class::ALL.map(Kinds::One));
        all.map(Kinds::word).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Kinds {
    type Err = NoKind;

    fn from_str(word: &str) -> Result<Kinds, NoKind> {
        let several = Kinds::SEVERAL.into_iter().find(|kinds| kinds.word() == word);
        let found = several.or_else(|| Class::from_key(word).map(Kinds::One));
        found.ok_or_else(|| NoKind(word.into()))
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a word for several kinds that is also one kind's key, and a kind that is in no set
    /// or in all.
    #[test]
    fn every_word_for_kinds_is_read_back() {
        for kinds in Kinds::SEVERAL.into_iter().chain(Class::ALL.map(Kinds::One)) {
            assert_eq!(kinds.to_string().parse(), Ok(kinds));
        }
        let error = "inodes".parse::<Kinds>().unwrap_err().to_string();
        assert!(
            error.contains("'inodes'")
                && error.contains("metadata")
                && error.contains("inode_block")
        );
        let kinds = |class| Kinds::SEVERAL.map(|kinds| kinds.have(class));
        assert_eq!(kinds(Class::JournalCommit), [true, true, true, false, false]);
        assert_eq!(kinds(Class::JournalData), [true, true, false, false, false]);
        assert_eq!(kinds(Class::Log), [true, true, true, false, false]);
        assert_eq!(kinds(Class::InodeBlock), [true, false, false, true, true]);
        assert_eq!(kinds(Class::FileData), [true, false, false, true, false]);
        assert!(Kinds::One(Class::Log).have(Class::Log));
        assert!(!Kinds::One(Class::Log).have(Class::JournalCommit));
    }
}

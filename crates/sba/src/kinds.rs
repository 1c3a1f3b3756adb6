//! Kinds of blocks by a word: one kind, or several that have something in common.

use std::fmt;
use std::str::FromStr;

use crate::Class;

/// Which kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All.
    Any,
    /// What goes to a journal or log.
    Journal,
    /// What commits a transaction: a commit block; in a log without such any part of it may.
    Commit,
    /// What goes to fixed locations.
    Fixed,
    /// What is about files and not what they hold, at fixed locations: what a checkpoint writes.
    Metadata,
    /// One.
    One(Class),
}

/// No kind of block is called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kind of block is called '{0}'; there are {all}", all = Kinds::words())]
pub struct NoKind(pub String);

impl Kinds {
    /// Those of several kinds.
    pub const SEVERAL: [Kinds; 5] =
        [Kinds::Any, Kinds::Journal, Kinds::Commit, Kinds::Fixed, Kinds::Metadata];

    /// Whether this kind is one of them.
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

    /// The word for it.
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

    /// All words, for whoever used another.
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

    /// Would catch a word for several kinds that is one kind's too, and a kind that is in none or in all.
    #[test]
    fn words_are_read_as_they_are_written() {
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

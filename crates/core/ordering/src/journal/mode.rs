//! The modes of a journal: what is logged of file contents, in which form, who is committed
//! together, and in which order the writes of a commit go out.
//!
//! Source: *Analysis and Evolution of Journaling File Systems* (2005): section 2.1 of the three
//! modes of ext3, 3.2.1 and 3.3.3 of tangled transactions, 3.3.2 of the adaptive mode, 3.3.4 of the
//! overlap, 3.3.5 of differences.

use ordo_runtime::Duration;

/// The file contents that a journal makes safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogContents {
    /// None: contents are written when they are due, and new blocks may hold what another file had
    /// there (ext3's `data=writeback`).
    #[default]
    None,
    /// Contents are written at their fixed location before a commit (`data=ordered`).
    Ordered,
    /// Contents are records of the log, and are written at their fixed location later
    /// (`data=journal`).
    Data,
    /// Each commit in the better way: ordered where its contents lie in long runs, otherwise data.
    Adaptive,
}

/// The form of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordForm {
    /// The bytes that changed.
    #[default]
    Bytes,
    /// Whole blocks. A commit has an image of each block that changed since the commit before.
    Blocks,
}

/// The changes that a commit makes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitScope {
    /// Those of the caller's file, and the operations on which they depend.
    #[default]
    Untangled,
    /// All: operations under way, and the contents of every file (ext3's compound transaction).
    Tangled,
}

/// The order of the writes of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitPhases {
    /// Contents, then one write of the log, which has the commit record too.
    #[default]
    Together,
    /// Contents, then the records, then the commit record, each after the one before (ext3).
    Apart,
    /// Contents and records at once, then the commit record.
    Overlap,
}

/// The modes of a journal. The default is that of the published systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMode {
    /// The file contents that are made safe.
    pub contents: LogContents,
    /// The form of the records.
    pub records: RecordForm,
    /// The changes that a commit makes durable.
    pub commits: CommitScope,
    /// The order of the writes of a commit.
    pub phases: CommitPhases,
    /// The interval of commits that nobody asks for. The default is the journal's tick.
    pub every: Option<Duration>,
}

/// The reason why an option of the journal cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalModeError {
    /// There is no such option.
    #[error("a journal has no option '{0}'; its options are {keys}", keys = JournalMode::KEYS.join(", "))]
    Unknown(String),
    /// The option does not take this value.
    #[error("'{value}': expected {expected}")]
    Value {
        /// The value.
        value: String,
        /// The values that it takes.
        expected: &'static str,
    },
}

impl Default for JournalMode {
    fn default() -> JournalMode {
        JournalMode::PUBLISHED
    }
}

impl JournalMode {
    /// The mode of the published systems.
    pub const PUBLISHED: JournalMode = JournalMode {
        contents: LogContents::None,
        records: RecordForm::Bytes,
        commits: CommitScope::Untangled,
        phases: CommitPhases::Together,
        every: None,
    };

    /// The keys of [`set`](Self::set).
    pub const KEYS: [&'static str; 5] =
        ["contents", "records", "commits", "phases", "commit-every"];

    /// Sets an option, as `contents=ordered` or `commit-every=5` have it.
    ///
    /// # Errors
    /// There is no such option, or it does not take this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), JournalModeError> {
        let wrong = |expected| JournalModeError::Value { value: value.to_owned(), expected };
        match (key, value) {
            ("contents", "none") => self.contents = LogContents::None,
            ("contents", "ordered") => self.contents = LogContents::Ordered,
            ("contents", "data") => self.contents = LogContents::Data,
            ("contents", "adaptive") => self.contents = LogContents::Adaptive,
            ("contents", _) => return Err(wrong("none, ordered, data or adaptive")),
            ("records", "bytes") => self.records = RecordForm::Bytes,
            ("records", "blocks") => self.records = RecordForm::Blocks,
            ("records", _) => return Err(wrong("bytes or blocks")),
            ("commits", "untangled") => self.commits = CommitScope::Untangled,
            ("commits", "tangled") => self.commits = CommitScope::Tangled,
            ("commits", _) => return Err(wrong("untangled or tangled")),
            ("phases", "together") => self.phases = CommitPhases::Together,
            ("phases", "apart") => self.phases = CommitPhases::Apart,
            ("phases", "overlap") => self.phases = CommitPhases::Overlap,
            ("phases", _) => return Err(wrong("together, apart or overlap")),
            ("commit-every", _) => {
                let seconds = value.parse::<f64>().ok().filter(|s| (0.001..=3600.0).contains(s));
                let seconds = seconds.ok_or_else(|| wrong("seconds from 0.001 to 3600"))?;
                self.every = Some(Duration::from_nanos((seconds * 1e9) as u64));
            }
            _ => return Err(JournalModeError::Unknown(key.to_owned())),
        }
        Ok(())
    }

    /// Whether the journal knows which contents of files are at their fixed locations, so that no
    /// block shows what another file had there.
    pub fn follows_contents(self) -> bool {
        self.contents != LogContents::None
    }

    /// Whether contents that are overwritten are durable when they have been written in their
    /// places: the log never has them.
    pub(super) fn writes_in_place(self) -> bool {
        matches!(self.contents, LogContents::None | LogContents::Ordered)
    }

    /// Whether the journal does more at a commit than write its log.
    pub(super) fn has_commits(self) -> bool {
        self != JournalMode { every: self.every, ..JournalMode::default() }
    }

    /// Whether a commit has images of metadata. With contents in the log it has none: see
    /// `docs/journal.md`.
    pub(super) fn logs_images(self) -> bool {
        let logs_contents = matches!(self.contents, LogContents::Data | LogContents::Adaptive);
        self.records == RecordForm::Blocks && !logs_contents
    }

    pub(super) fn is_tangled(self) -> bool {
        self.commits == CommitScope::Tangled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key takes its values, and refuses another one with the values that it takes.
    #[test]
    fn modes_are_read() {
        let mut mode = JournalMode::default();
        assert!(!mode.has_commits() && !mode.follows_contents());
        for (key, value) in [
            ("contents", "adaptive"),
            ("records", "blocks"),
            ("commits", "tangled"),
            ("phases", "overlap"),
            ("commit-every", "0.5"),
        ] {
            mode.set(key, value).unwrap();
            let wrong = mode.set(key, "perhaps").unwrap_err().to_string();
            assert!(wrong.contains("expected"), "{wrong}");
        }
        assert_eq!(mode.every, Some(Duration::from_millis(500)));
        assert!(mode.has_commits() && !mode.logs_images() && mode.is_tangled());
        for seconds in ["0", "-1", "nan", "inf", "1e9"] {
            assert!(mode.set("commit-every", seconds).is_err(), "{seconds}");
        }
        assert!(mode.set("content", "none").unwrap_err().to_string().contains("contents, records"));
    }
}

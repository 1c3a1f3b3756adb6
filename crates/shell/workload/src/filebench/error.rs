//! Errors in a file of WML, each with its place.

use std::fmt;

/// A place in a file of WML. Both numbers count from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WmlPlace {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl fmt::Display for WmlPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A fault in a file of WML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{place}: {problem}")]
pub struct WmlError {
    /// The personality's name, or the path of the file.
    pub file: String,
    /// The place of the fault.
    pub place: WmlPlace,
    /// The fault.
    pub problem: WmlProblem,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WmlProblem {
    /// A character has no meaning in WML.
    #[error("the character {0:?} means nothing here")]
    Character(char),
    /// A text does not end.
    #[error("this text has no closing quotation mark")]
    OpenText,
    /// A number is too large to be stored.
    #[error("{0} is too large for a number")]
    Number(String),
    /// Something else should stand here.
    #[error("{found} stands where {expected} should")]
    Expected {
        /// The words that would fit.
        expected: &'static str,
        /// The text that stands there.
        found: String,
    },
    /// A variable has no value.
    #[error("${0} has no value: `set ${0}=...` must come first")]
    Unset(String),
    /// A variable of the command line is not in the file.
    #[error("the file sets no variable ${name}; it sets {known}")]
    Override {
        /// The variable of the user.
        name: String,
        /// The variables of the file.
        known: String,
    },
    /// An entity has no such attribute.
    #[error("a {entity} has no attribute '{name}' here; it has {known}")]
    Attribute {
        /// The entity: a fileset, a flowop.
        entity: String,
        /// The attribute of the user.
        name: String,
        /// The attributes that are read.
        known: String,
    },
    /// An entity lacks an attribute.
    #[error("this {entity} needs the attribute '{name}'")]
    Missing {
        /// The entity.
        entity: String,
        /// The attribute.
        name: &'static str,
    },
    /// An attribute's value does not fit.
    #[error("{name} is {found}, but must be {expected}")]
    Value {
        /// The attribute.
        name: String,
        /// Its value.
        found: String,
        /// The values that would fit.
        expected: String,
    },
    /// No file or fileset has this name.
    #[error("no file or fileset is called '{0}'")]
    NoFileset(String),
    /// Two files or filesets have one name.
    #[error("a file or fileset called '{0}' is there already")]
    Twice(String),
    /// No flowop that could be meant has this name.
    #[error("no {kind} is called '{name}'")]
    NoTarget {
        /// The kind of flowop.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A word of WML, or of nobody, that the reader does not carry out.
    #[error("{what} is not in the part of WML that Ordo reads{instead}")]
    Unsupported {
        /// The construct.
        what: String,
        /// The constructs that are read, or another way.
        instead: String,
    },
    /// There is no work.
    #[error("the file defines no process with a flowop, so there is nothing to do")]
    Nothing,
    /// A flowop opens a descriptor that is open.
    #[error("flowop {flowop} opens descriptor {fd}, which is open already")]
    IsOpen {
        /// The flowop.
        flowop: String,
        /// The descriptor.
        fd: usize,
    },
    /// A flowop needs a descriptor that is not open.
    #[error("flowop {flowop} needs descriptor {fd}, which is not open")]
    NotOpen {
        /// The flowop.
        flowop: String,
        /// The descriptor.
        fd: usize,
    },
    /// A flowop found no file, in a run that may not end so.
    #[error(
        "flowop {flowop} found no file of '{fileset}' that {wanted}; more entries, a shorter run or \
         `set mode quit firstdone` avoid this"
    )]
    NoFile {
        /// The flowop.
        flowop: String,
        /// The fileset.
        fileset: String,
        /// The property of the file that was sought.
        wanted: &'static str,
    },
    /// A random place was asked for in a file that is too short.
    #[error("flowop {flowop} moves {iosize} bytes at a random place of {within}: they do not fit")]
    TooShort {
        /// The flowop.
        flowop: String,
        /// The bytes of one call.
        iosize: u64,
        /// The bytes of the file, or of the working set.
        within: u64,
    },
}

impl WmlProblem {
    pub(super) fn at(self, place: WmlPlace) -> Fault {
        Fault { place, problem: self }
    }

    pub(super) fn unsupported(what: impl Into<String>, instead: impl Into<String>) -> WmlProblem {
        WmlProblem::Unsupported { what: what.into(), instead: instead.into() }
    }
}

/// A fault without the name of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) place: WmlPlace,
    pub(super) problem: WmlProblem,
}

impl Fault {
    pub(super) fn in_file(self, file: &str) -> WmlError {
        WmlError { file: file.to_owned(), place: self.place, problem: self.problem }
    }
}

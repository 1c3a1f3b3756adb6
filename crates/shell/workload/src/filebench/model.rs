//! A personality that is ready to run: files, clients, and their flowops.

use super::amount::Amount;
use super::error::WmlPlace;
use super::syntax::QuitMode;

/// A personality.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) filesets: Vec<FilesetModel>,
    pub(super) threads: Vec<ThreadModel>,
    /// The names of the flowops that wait for posts, each with the number of its thread.
    pub(super) blocks: Vec<Block>,
    /// Events a second, for `eventlimit`; `None` is no limit.
    pub(super) rate: Option<u64>,
    /// The length of the run in seconds.
    pub(super) seconds: u64,
    pub(super) quit: QuitMode,
}

/// A file or a fileset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilesetModel {
    pub(super) name: String,
    /// Whether it is one file in the root, without directories.
    pub(super) is_file: bool,
    /// The number of files that may exist.
    pub(super) entries: u64,
    /// The size of each file in bytes.
    pub(super) size: Amount,
    /// The mean number of entries of a directory.
    pub(super) dirwidth: u64,
    /// The shape of the gamma distribution of a directory's width and depth; 0 is always the mean.
    pub(super) dirgamma: f64,
    /// The percentage of the files that exist at the start.
    pub(super) prealloc: u64,
}

/// A thread of a process, and the number of clients that carry it out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadModel {
    pub(super) name: String,
    pub(super) clients: u64,
    pub(super) flowops: Vec<Flowop>,
}

/// A flowop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flowop {
    pub(super) name: String,
    pub(super) place: WmlPlace,
    /// The number of times that it is carried out in each round.
    pub(super) iters: Amount,
    pub(super) action: Action,
}

/// A `semblock`: each client of its thread has a pair of semaphores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) thread: usize,
    /// The posts that may be ahead of a client before a poster waits.
    pub(super) highwater: u64,
}

/// The file on which a flowop works: the one that a descriptor has, or one of a fileset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) fileset: Option<usize>,
    pub(super) fd: usize,
    /// Whether the flowop goes round over all descriptors (`opennext`).
    pub(super) rotates: bool,
    /// Whether each write is durable before the next flowop.
    pub(super) dsync: bool,
}

/// The bytes of one call, and their place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transfer {
    pub(super) iosize: Amount,
    pub(super) random: bool,
    /// The part of the file at its start that random places are in; 0 is all of it.
    pub(super) workingset: u64,
}

/// An end of the run by a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) at: u64,
    /// The flowop of the same client that is counted; `None` is everything.
    pub(super) of: Option<usize>,
    /// Whether bytes are counted, and not operations.
    pub(super) bytes: bool,
}

/// The work of a flowop.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Open(Target),
    Create(Target),
    Close(Target),
    Delete(Target),
    Stat(Target),
    Read(Target, Transfer),
    Write(Target, Transfer),
    ReadWhole(Target, Amount),
    /// The number is the descriptor of the file that gives the size; 0 is the file itself.
    WriteWhole(Target, Amount, usize),
    Append(Target, Amount),
    /// An append of a random length below the amount.
    AppendRandom(Target, Amount),
    Fsync(Target),
    /// An fsync of each open file of a fileset.
    FsyncSet(usize),
    AsyncWrite(Target, Transfer),
    AsyncWait,
    /// Waits for posts: the number of the block, and of posts.
    SemBlock(usize, Amount),
    /// Posts to all clients of some blocks.
    SemPost {
        to: Vec<usize>,
        value: Amount,
        blocking: bool,
    },
    /// Computes: the number of stores.
    Hog(Amount),
    /// Sleeps: seconds.
    Delay(Amount),
    /// Waits for the next event.
    EventLimit,
    Finish(Finish),
}

impl Action {
    /// Whether the action works on the file system. Only these are counted.
    pub(super) fn is_operation(&self) -> bool {
        !matches!(
            self,
            Action::AsyncWait
                | Action::SemBlock(..)
                | Action::SemPost { .. }
                | Action::Hog(_)
                | Action::Delay(_)
                | Action::EventLimit
                | Action::Finish(_)
        )
    }
}

//! Rules that a journaling file system is expected to keep, and the requests that break them.
//!
//! Two rules are those of write-ahead logging on a disk with a volatile cache; two are about files
//! ([`files`]). They are expectations, not laws. A file system that checksums whole transactions
//! needs no flush before a commit. One that logs records may write a block together with a commit
//! that is still to come. One that is mounted with lazy times may leave an inode's times unwritten.

pub mod files;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use ordo_trace::{Flags, RequestOp, Trace};
use ordo_watcher::{Class, Watch};
use rustc_hash::FxHashMap;

use crate::rows::BlockRow;

/// A broken rule, with the requests that broke it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum Broken {
    /// No flush separates a transaction's last copy from its commit, so the disk may write the
    /// commit first.
    CommitWithoutFlush {
        /// The transaction.
        transaction: u64,
        /// The write of its last copy.
        last_copy: u64,
        /// The write of its commit.
        commit: u64,
    },
    /// A block was written at its fixed location before its transaction was committed. After a
    /// crash this write cannot be rolled back.
    HomeBeforeCommit {
        /// The transaction.
        transaction: u64,
        /// The block's fixed location in bytes.
        offset: u64,
        /// The kind.
        kind: Class,
        /// The write.
        write: u64,
        /// The write of the commit; `None` if there was none.
        commit: Option<u64>,
    },
    /// An fsync returned, but its data was not written, or no flush has made it durable.
    FsyncWithoutData {
        /// The file.
        inode: u64,
        /// The first byte of the file that is missing.
        byte: u64,
        /// The mark for the fsync's return.
        mark: u64,
        /// The write of that block, or of its copy in the journal; `None` if there was none since
        /// the last fsync.
        written: Option<u64>,
    },
    /// A block was overwritten, and its inode did not change: the file's times are wrong after a
    /// crash.
    OverwrittenWithoutInode {
        /// The file.
        inode: u64,
        /// The path, if names were seen.
        path: Option<String>,
        /// The block's place in bytes.
        offset: u64,
        /// The earlier write.
        first: u64,
        /// The write that overwrote it.
        write: u64,
    },
}

impl Broken {
    /// The request at which the rule is broken.
    pub fn request(&self) -> u64 {
        match self {
            Broken::CommitWithoutFlush { commit, .. } => *commit,
            Broken::HomeBeforeCommit { write, .. }
            | Broken::OverwrittenWithoutInode { write, .. } => *write,
            Broken::FsyncWithoutData { mark, .. } => *mark,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::CommitWithoutFlush { transaction, last_copy, commit } => write!(
                f,
                "no flush between journal data and commit: transaction {transaction}, last copy in request {last_copy}, \
                 commit in request {commit}"
            ),
            Broken::HomeBeforeCommit { transaction, offset, kind, write, commit } => {
                write!(
                    f,
                    "written before it was committed: {kind} at byte {offset} in request {write}; transaction \
                     {transaction} "
                )?;
                match commit {
                    Some(commit) => write!(f, "is committed in request {commit}"),
                    None => write!(f, "has no commit"),
                }
            }
            Broken::FsyncWithoutData { inode, byte, mark, written } => {
                write!(
                    f,
                    "fsync returned, but its data was not seen: inode {inode} at byte {byte} "
                )?;
                match written {
                    Some(request) => {
                        write!(f, "was written in request {request} and not flushed ")?
                    }
                    None => write!(f, "was not written ")?,
                }
                write!(f, "before request {mark}")
            }
            Broken::OverwrittenWithoutInode { inode, path, offset, first, write } => {
                let path = path.as_deref().unwrap_or("a file without a known path");
                write!(
                    f,
                    "overwritten block, inode not logged: inode {inode} ({path}), block at byte {offset} written in \
                     request {first} and again in request {write}"
                )
            }
        }
    }
}

/// The facts about a transaction so far.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    last_copy: Option<u64>,
    commit: Option<u64>,
}

/// All broken rules of a trace, in the order of requests. The watcher must have seen nothing of the
/// trace.
pub fn expected(trace: &Trace, watch: &Rc<Watch>) -> Vec<Broken> {
    let played = files::play(trace, watch);
    let mut all = broken(trace, &played.blocks);
    all.extend(played.fsyncs(trace));
    all.extend(played.overwritten(trace));
    all.sort_by_key(Broken::request);
    all
}

/// The broken rules about the journal, in the order of requests.
pub fn broken(trace: &Trace, blocks: &[BlockRow]) -> Vec<Broken> {
    let requests = trace.requests();
    let flushes = |r: &ordo_trace::TraceRequest| {
        u64::from(r.op == RequestOp::Flush) + u64::from(r.flags.contains(Flags::PREFLUSH))
    };
    // The number of flushes up to and with each request.
    let mut sum = 0;
    let before: Vec<u64> = requests
        .iter()
        .map(|r| {
            sum += flushes(r);
            sum
        })
        .collect();
    let mut commits: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
    for block in blocks.iter().filter(|b| b.kind == Class::JournalCommit) {
        if let Some(id) = block.transaction {
            commits.entry(id).or_default().push(block.request);
        }
    }
    let mut all = BTreeMap::new();
    let mut known: FxHashMap<u64, Known> = FxHashMap::default();
    for (at, block) in blocks.iter().enumerate() {
        let written =
            requests.get(block.request as usize).is_some_and(|r| r.op == RequestOp::Write);
        if !written {
            continue;
        }
        if let (Some(id), Class::JournalData) = (block.transaction, block.kind) {
            let of = known.entry(id).or_default();
            // Numbers are used again: after its commit, a number means another transaction.
            if of.commit.is_some_and(|commit| commit < block.request) {
                *of = Known::default();
            }
            of.last_copy = Some(block.request);
        }
        if let (Some(id), Class::JournalCommit) = (block.transaction, block.kind) {
            let of = known.entry(id).or_default();
            of.commit = Some(block.request);
            let Some(last_copy) = of.last_copy.filter(|last| *last < block.request) else {
                continue;
            };
            let (from, to) = (before[last_copy as usize], before[block.request as usize]);
            if from == to {
                let commit = block.request;
                all.insert(at, Broken::CommitWithoutFlush { transaction: id, last_copy, commit });
            }
        }
        if let Some(id) = block.completes
            && let Some(of) = known.get(&id)
            && of.commit.is_none()
        {
            let later = commits.get(&id).and_then(|all| all.iter().find(|c| **c > block.request));
            let (offset, kind, write) = (block.offset, block.kind, block.request);
            let commit = later.copied();
            all.insert(
                at,
                Broken::HomeBeforeCommit { transaction: id, offset, kind, write, commit },
            );
        }
    }
    all.into_values().collect()
}

//! Writes that change more of an inode than its times: those that make a file longer or give it
//! blocks. An fsync commits after them however little time has passed, and an fdatasync commits
//! after them alone.
//!
//! The trace shows them in two ways. A write behind the end of a file that the trace saw made grows
//! it. Writes before an fdatasync that waited for a commit have changed the inode, whatever made
//! the file.

use std::collections::BTreeMap;

use ordo_annotate::calls::StoredCall;

use super::ClientAct;

/// The kind of a wait for a commit block, as [`StoredCall::waits`] names it.
const COMMIT: &str = "journal_commit";

/// The state of a file.
#[derive(Default)]
struct FileState {
    /// Its end, if the trace saw it made.
    end: Option<u64>,
    /// The writes since its last sync: of which call, and the number of the act there.
    writes: Vec<(usize, usize)>,
}

/// Whether a call makes a file, or makes it empty.
pub(super) fn makes_file(call: &StoredCall) -> bool {
    let flags = call.flags.as_deref().unwrap_or_default();
    let opens = call.name.contains("open") && flags.contains("O_CREAT");
    call.error.is_none() && (opens || flags.contains("O_TRUNC") || call.name == "creat")
}

/// Marks the writes among the acts of calls that grow a file. `made`: for each call the file that
/// it makes.
pub(super) fn mark(calls: &[StoredCall], made: &[Option<u64>], acts: &mut [Vec<ClientAct>]) {
    let mut files: BTreeMap<u64, FileState> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        if let Some(file) = made[number] {
            files.entry(file).or_default().end.get_or_insert(0);
        }
        for n in 0..acts[number].len() {
            match &mut acts[number][n] {
                ClientAct::Write { file, offset, len, grows } => {
                    let state = files.entry(*file).or_default();
                    let to = *offset + *len;
                    *grows = state.end.is_some_and(|end| to > end);
                    state.end = state.end.map(|end| end.max(to));
                    state.writes.push((number, n));
                }
                ClientAct::Sync { file, data } => {
                    let writes = std::mem::take(&mut files.entry(*file).or_default().writes);
                    if *data && call.waits.iter().any(|wait| wait.kind == COMMIT) {
                        writes.into_iter().for_each(|at| grow(acts, at));
                    }
                }
                ClientAct::SyncAll => files.values_mut().for_each(|file| file.writes.clear()),
            }
        }
    }
}

fn grow(acts: &mut [Vec<ClientAct>], (call, n): (usize, usize)) {
    if let ClientAct::Write { grows, .. } = &mut acts[call][n] {
        *grows = true;
    }
}

#[cfg(test)]
mod tests {
    use ordo_annotate::calls::Wait;

    use super::*;

    /// A file that the trace saw made grows where it is written behind its end. One that was there
    /// grows where its fdatasync waited for a commit. Would catch a log that is overwritten in
    /// place and pays for a commit at each fdatasync, and an append whose fsync commits nothing
    /// since the clock has not ticked.
    #[test]
    fn appends_grow_and_overwrites_do_not() {
        let write = |offset| vec![ClientAct::Write { file: 7, offset, len: 10, grows: false }];
        let sync = vec![ClientAct::Sync { file: 7, data: true }];
        let mut acts = [vec![], write(0), write(10), write(5), sync.clone(), write(3), sync];
        let wait = |kind| vec![Wait { request: 0, kind, ns: 1 }];
        let mut calls = vec![StoredCall::default(); acts.len()];
        let grown = |acts: &[Vec<ClientAct>]| -> Vec<usize> {
            let is_grown =
                |acts: &[ClientAct]| matches!(acts, [ClientAct::Write { grows: true, .. }]);
            (0..acts.len()).filter(|n| is_grown(&acts[*n])).collect()
        };
        let made: Vec<Option<u64>> = (0..acts.len()).map(|n| (n == 0).then_some(7)).collect();
        let mut seen = acts.clone();
        mark(&calls, &made, &mut seen);
        assert_eq!(grown(&seen), [1, 2]);
        // The file was there, and its first fdatasync waited for a commit.
        calls[4].waits = wait(COMMIT);
        calls[6].waits = wait("file_data");
        mark(&calls, &vec![None; acts.len()], &mut acts);
        assert_eq!(grown(&acts), [1, 2, 3]);
    }
}

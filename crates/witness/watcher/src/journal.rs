//! The activity of a journal: transactions, and the checkpoint writes at fixed locations that
//! follow them. The code is the same for every format; decoders fill it in.

use std::collections::BTreeSet;

use ordo_runtime::Time;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kind::Class;

/// The most transactions of a recording that are kept in detail; later ones are only counted.
pub const MOST: usize = 1 << 20;

/// A request, as a transaction refers to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moment {
    /// The request's number.
    pub request: u64,
    /// The time at which it was issued, in nanoseconds; 0 if the trace has no times.
    pub nanos: u64,
    /// The number of flushes that had been issued before it.
    pub epoch: u64,
}

impl Transaction {
    /// The transaction's moments.
    pub fn moments_mut(&mut self) -> impl Iterator<Item = &mut Moment> {
        [&mut self.first, &mut self.last]
            .into_iter()
            .chain(self.commit.as_mut())
            .chain(self.checkpoint.as_mut())
    }
}

/// One transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Transaction {
    /// The transaction's number in the journal; for journals of records, the place where its
    /// records start.
    pub id: u64,
    /// The transaction's first write.
    pub first: Moment,
    /// The transaction's last write before the commit.
    pub last: Moment,
    /// The write of the commit; `None` if none was seen.
    pub commit: Option<Moment>,
    /// Journal descriptors: blocks that name the fixed locations of copies.
    pub descriptors: u64,
    /// The number of copies of blocks.
    pub copies: u64,
    /// The copies of file data among them.
    pub data_copies: u64,
    /// The number of records of changes.
    pub records: u64,
    /// The number of blocks revoked.
    pub revoked: u64,
    /// The number of bytes written to the journal for the transaction.
    pub bytes: u64,
    /// Wrong checksums.
    pub bad_checksums: u64,
    /// The number of blocks that were later written at their fixed location.
    pub checkpointed: u64,
    /// The last such checkpoint write.
    pub checkpoint: Option<Moment>,
}

/// The transactions of a part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartTransactions {
    /// The number of transactions that began before the part.
    pub first: u64,
    /// Those that began in it, in the order in which they were first seen.
    pub began: Vec<Transaction>,
    /// Those that began before and changed in it, each with its number in that order, as they are
    /// at the part's end.
    pub continued: Vec<(u64, Transaction)>,
}

/// Everything that was seen of a journal.
#[derive(Debug, Default)]
pub struct Journal {
    /// The transactions that began in the present part of the recording.
    list: Vec<Transaction>,
    /// The number of transactions that began in earlier parts.
    base: usize,
    /// Those among them that a later request may still change.
    older: FxHashMap<usize, Transaction>,
    /// Those among these that the present part has changed.
    changed: BTreeSet<usize>,
    /// The newest transaction with each number.
    newest: FxHashMap<u64, usize>,
    /// The newest transaction that has a copy of a block, until the block is written at its fixed
    /// location.
    homes: FxHashMap<u64, usize>,
    /// The present request.
    now: Moment,
    /// The number of transactions beyond the number that are kept.
    left_out: u64,
    /// The number of copies whose transaction is not known.
    orphan_blocks: u64,
}

impl Journal {
    /// Every transaction that began in the present part, in the order in which they were first
    /// seen.
    pub fn transactions(&self) -> &[Transaction] {
        &self.list
    }

    /// The number of transactions that are missing from the list, because there were too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The number of copies whose transaction is not known.
    pub fn orphan_blocks(&self) -> u64 {
        self.orphan_blocks
    }

    /// The number of transactions so far.
    pub(crate) fn begun(&self) -> u64 {
        (self.base + self.list.len()) as u64
    }

    /// Forgets which transactions are under way and which blocks wait for their fixed locations:
    /// another file system is on the device now.
    pub(crate) fn end_system(&mut self) {
        self.newest.clear();
        self.homes.clear();
    }

    /// Begins a request.
    pub(crate) fn at(&mut self, request: u64, at: Time, epoch: u64) {
        self.now = Moment { request, nanos: at.as_nanos(), epoch };
    }

    /// The number of flushes before the present request.
    pub(crate) fn epoch(&self) -> u64 {
        self.now.epoch
    }

    /// Takes in a write of `bytes` bytes for the transaction with this number, and returns the
    /// transaction.
    pub(crate) fn write(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let newest = self.newest.get(&id).copied();
        let known = newest.and_then(|i| Some((i, self.get(i)?.commit)));
        let index = match known {
            // Numbers are used again: after its commit, a number means another transaction.
            Some((i, commit)) if commit.is_none_or(|c| c.request == now.request) => i,
            _ if self.list.len() >= MOST => {
                self.left_out += 1;
                return None;
            }
            _ => {
                self.list.push(Transaction { id, first: now, last: now, ..Transaction::default() });
                let index = self.base + self.list.len() - 1;
                self.newest.insert(id, index);
                index
            }
        };
        let transaction = self.get_mut(index)?;
        transaction.bytes += bytes;
        Some(transaction)
    }

    fn get(&self, index: usize) -> Option<&Transaction> {
        match index.checked_sub(self.base) {
            Some(at) => self.list.get(at),
            None => self.older.get(&index),
        }
    }

    /// A transaction, to be changed.
    fn get_mut(&mut self, index: usize) -> Option<&mut Transaction> {
        match index.checked_sub(self.base) {
            Some(at) => self.list.get_mut(at),
            None => {
                self.changed.insert(index);
                self.older.get_mut(&index)
            }
        }
    }

    /// Ends a part of the recording. Returns its transactions. Of those that nothing can change any
    /// more, nothing is kept.
    pub(crate) fn end_part(&mut self) -> PartTransactions {
        let changed = std::mem::take(&mut self.changed);
        let continued = changed.into_iter();
        let continued = continued.filter_map(|i| Some((i as u64, self.older.get(&i)?.clone())));
        let continued = continued.collect();
        let (first, began) = (self.base, std::mem::take(&mut self.list));
        self.base += began.len();
        self.older.extend(began.iter().cloned().enumerate().map(|(i, t)| (first + i, t)));
        let Journal { older, newest, homes, .. } = self;
        let awaited: FxHashSet<usize> = homes.values().copied().collect();
        newest.retain(|_, i| older.get(i).is_some_and(|t| t.commit.is_none()));
        let open: FxHashSet<usize> = newest.values().copied().collect();
        older.retain(|i, _| awaited.contains(i) || open.contains(i));
        PartTransactions { first: first as u64, began, continued }
    }

    /// Takes in a copy of the block at `home`, written for a transaction.
    pub(crate) fn copy(&mut self, id: u64, home: u64, class: Class, bytes: u64) {
        let now = self.now;
        if let Some(transaction) = self.write(id, bytes) {
            transaction.copies += 1;
            transaction.data_copies += u64::from(class == Class::FileData);
            transaction.last = now;
            if let Some(index) = self.newest.get(&id) {
                self.homes.insert(home, *index);
            }
        }
    }

    /// Takes in `bytes` bytes of a transaction that were written at their final place, outside of
    /// any journal.
    pub(crate) fn in_place(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let transaction = self.write(id, bytes)?;
        transaction.last = now;
        Some(transaction)
    }

    /// Takes in a record of a change to the block at `home`, written for a transaction.
    pub(crate) fn record(&mut self, id: u64, home: u64, class: Class) {
        let now = self.now;
        if let Some(transaction) = self.write(id, 0) {
            transaction.records += 1;
            transaction.data_copies += u64::from(class == Class::FileData);
            transaction.last = now;
            if let Some(index) = self.newest.get(&id) {
                self.homes.insert(home, *index);
            }
        }
    }

    /// Takes in a block of a transaction in a log-structured file system, where the log is the
    /// block's only place. `records` is the number of records in it; `again` marks one more copy of
    /// the same block.
    pub(crate) fn block(&mut self, id: u64, bytes: u64, records: u64, again: bool) {
        let now = self.now;
        if let Some(transaction) = self.write(id, bytes) {
            transaction.last = now;
            if !again {
                transaction.copies += 1;
                transaction.records += records;
            }
        }
    }

    /// Whether any block is logged and not yet written at its fixed location.
    pub(crate) fn waits(&self) -> bool {
        !self.homes.is_empty()
    }

    /// Counts a copy whose transaction is not known yet. With `found`, such a copy is taken off the
    /// count.
    pub(crate) fn orphan_block(&mut self, found: bool) {
        self.orphan_blocks =
            if found { self.orphan_blocks.saturating_sub(1) } else { self.orphan_blocks + 1 };
    }

    /// Takes in the commit of a transaction by the present request.
    pub(crate) fn commit(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let transaction = self.write(id, bytes)?;
        transaction.commit = Some(now);
        Some(transaction)
    }

    /// Revokes a block: its older copies no longer count.
    pub(crate) fn revoke(&mut self, home: u64) {
        self.homes.remove(&home);
    }

    /// Takes in a write of a block at its fixed location. Returns the number of the transaction
    /// that it checkpoints.
    pub(crate) fn checkpoint(&mut self, home: u64) -> Option<u64> {
        if self.homes.is_empty() {
            return None;
        }
        let index = self.homes.remove(&home)?;
        let now = self.now;
        let transaction = self.get_mut(index)?;
        transaction.checkpointed += 1;
        transaction.checkpoint = Some(now);
        Some(transaction.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that is logged twice and then written at its fixed location checkpoints the newer
    /// transaction. A second such write checkpoints nothing. A revoked copy is not waited for. A
    /// number that is used again after its commit is another transaction.
    #[test]
    fn a_write_home_belongs_to_the_newest_copy() {
        let mut journal = Journal::default();
        for (request, id) in [(1, 7), (2, 8)] {
            journal.at(request, Time::from_nanos(request), 0);
            journal.copy(id, 100, Class::InodeBlock, 4096);
            journal.copy(id, 200 + id, Class::FileData, 4096);
            journal.commit(id, 4096);
        }
        journal.revoke(208);
        journal.at(3, Time::from_nanos(3), 1);
        assert_eq!(journal.checkpoint(100), Some(8));
        assert_eq!(journal.checkpoint(100), None);
        assert_eq!(journal.checkpoint(208), None);
        assert_eq!(journal.checkpoint(207), Some(7));
        journal.copy(7, 300, Class::InodeBlock, 4096);
        let all = journal.transactions();
        let seen: Vec<_> =
            all.iter().map(|t| (t.id, t.copies, t.data_copies, t.checkpointed)).collect();
        assert_eq!(seen, [(7, 2, 1, 1), (8, 2, 1, 1), (7, 1, 0, 0)]);
        assert_eq!(all[1].checkpoint, Some(Moment { request: 3, nanos: 3, epoch: 1 }));
        assert_eq!(all[0].bytes, 3 * 4096);
    }

    /// A transaction that goes on in later parts is given with each, as it is at the part's end,
    /// and no longer once nothing can change it. A number that is used again in a later part is
    /// another transaction.
    #[test]
    fn a_transaction_goes_on_in_later_parts() {
        let mut journal = Journal::default();
        let at = |journal: &mut Journal, request| journal.at(request, Time::from_nanos(request), 0);
        at(&mut journal, 1);
        journal.copy(7, 100, Class::InodeBlock, 4096);
        let one = journal.end_part();
        assert_eq!((one.first, one.began.len(), one.continued.len()), (0, 1, 0));
        at(&mut journal, 2);
        journal.commit(7, 512);
        journal.copy(8, 300, Class::InodeBlock, 4096);
        journal.commit(8, 512);
        let two = journal.end_part();
        assert_eq!((two.first, two.began.len()), (1, 1));
        let seven = &two.continued[0];
        assert_eq!((seven.0, seven.1.bytes, seven.1.commit.unwrap().request), (0, 4608, 2));
        at(&mut journal, 3);
        assert_eq!(journal.checkpoint(100), Some(7));
        journal.copy(7, 200, Class::InodeBlock, 4096);
        let three = journal.end_part();
        assert_eq!((three.first, three.began.len()), (2, 1), "another transaction 7");
        assert_eq!((three.continued.len(), three.continued[0].1.checkpointed), (1, 1));
        assert_eq!(
            journal.older.len(),
            2,
            "8 waits for its checkpoint, the other 7 for its commit"
        );
        assert_eq!(journal.end_part().continued, []);
    }
}

//! What a journal was seen to do: transactions, and the writes at fixed locations that they later become.
//! The same for every format; decoders fill it in.

use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::kind::Class;

/// Transactions whose particulars are kept at most; later ones are only counted.
const MOST: usize = 1 << 20;

/// A request, as far as a transaction remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moment {
    /// The request's number.
    pub request: u64,
    /// When it was issued, in nanoseconds; 0 where nobody knows.
    pub nanos: u64,
    /// How many flushes had been issued before.
    pub epoch: u64,
}

/// One transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Transaction {
    /// Its number in the journal; with records, where they start.
    pub id: u64,
    /// Its first write.
    pub first: Moment,
    /// Its last write before the commit.
    pub last: Moment,
    /// The write of its commit; `None` where none was seen.
    pub commit: Option<Moment>,
    /// Blocks that say where copies belong.
    pub descriptors: u64,
    /// Copies of blocks.
    pub copies: u64,
    /// Of the copies, those of file data.
    pub data_copies: u64,
    /// Records of changes.
    pub records: u64,
    /// Blocks taken back.
    pub revoked: u64,
    /// Bytes written to the journal for it.
    pub bytes: u64,
    /// Checksums that were wrong.
    pub bad_checksums: u64,
    /// Blocks that were then written where they belong.
    pub checkpointed: u64,
    /// The last such write.
    pub checkpoint: Option<Moment>,
}

/// Everything seen of a journal.
#[derive(Debug, Default)]
pub struct Journal {
    list: Vec<Transaction>,
    /// The newest transaction with a number.
    newest: FxHashMap<u64, usize>,
    /// The newest transaction that has a copy of a block, until the block is written where it belongs.
    homes: FxHashMap<u64, usize>,
    /// The request that is looked at.
    now: Moment,
    /// Transactions beyond the most that are kept.
    left_out: u64,
    /// Copies whose transaction nobody could tell.
    strays: u64,
}

impl Journal {
    /// Every transaction, in the order in which they were first seen.
    pub fn transactions(&self) -> &[Transaction] {
        &self.list
    }

    /// Transactions that are not in the list, because there were too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Copies whose transaction nobody could tell.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// A request begins.
    pub(crate) fn at(&mut self, request: u64, at: Time, epoch: u64) {
        self.now = Moment { request, nanos: at.as_nanos(), epoch };
    }

    /// The transaction with this number, as a write of `bytes` bytes for it passes.
    pub(crate) fn write(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let index = match self.newest.get(&id) {
            // After its commit a number means another transaction.
            Some(i) if self.list[*i].commit.is_none_or(|c| c.request == now.request) => *i,
            _ if self.list.len() >= MOST => {
                self.left_out += 1;
                return None;
            }
            _ => {
                self.list.push(Transaction { id, first: now, last: now, ..Transaction::default() });
                self.newest.insert(id, self.list.len() - 1);
                self.list.len() - 1
            }
        };
        let transaction = &mut self.list[index];
        transaction.bytes += bytes;
        Some(transaction)
    }

    /// A copy of the block at `home` was written for a transaction.
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

    /// `bytes` bytes of what a transaction consists of were written where they stay.
    pub(crate) fn in_place(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let transaction = self.write(id, bytes)?;
        transaction.last = now;
        Some(transaction)
    }

    /// A change of what is at `home` was recorded for a transaction.
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

    /// A block that has no other place was written for a transaction, with so many records in it; `again` where it is one
    /// more copy of the same.
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

    /// Whether any block is logged and not yet written where it belongs.
    pub(crate) fn waits(&self) -> bool {
        !self.homes.is_empty()
    }

    /// A copy whose transaction nobody can tell yet was written, or its transaction is now known.
    pub(crate) fn stray(&mut self, found: bool) {
        self.strays = if found { self.strays.saturating_sub(1) } else { self.strays + 1 };
    }

    /// The transaction is committed by the present request.
    pub(crate) fn commit(&mut self, id: u64, bytes: u64) -> Option<&mut Transaction> {
        let now = self.now;
        let transaction = self.write(id, bytes)?;
        transaction.commit = Some(now);
        Some(transaction)
    }

    /// Older copies of this block no longer count.
    pub(crate) fn revoke(&mut self, home: u64) {
        self.homes.remove(&home);
    }

    /// A block is written where it belongs. The number of the transaction that it thereby checkpoints.
    pub(crate) fn checkpoint(&mut self, home: u64) -> Option<u64> {
        if self.homes.is_empty() {
            return None;
        }
        let index = self.homes.remove(&home)?;
        let transaction = &mut self.list[index];
        transaction.checkpointed += 1;
        transaction.checkpoint = Some(self.now);
        Some(transaction.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block logged twice and then written home checkpoints the newer transaction; a second write home
    /// checkpoints nothing; a revoked copy is not waited for; a number used again after its commit is
    /// another transaction.
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
}

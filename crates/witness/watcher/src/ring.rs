//! A ring log of block copies: blocks that were announced but have not come yet, and blocks that
//! came without an announcement.

use rustc_hash::FxHashMap;

/// The most unannounced copies that are kept.
const ORPHANS_MAX: usize = 4096;

/// The announced blocks and the unannounced copies of a ring log, by their positions. `T` describes
/// an announced block.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    expected: FxHashMap<u64, T>,
    /// Unannounced blocks, each with the number of transactions that had ended when it came.
    orphan_blocks: FxHashMap<u64, (u64, Box<[u8]>)>,
    ended: u64,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { expected: FxHashMap::default(), orphan_blocks: FxHashMap::default(), ended: 0 }
    }
}

impl<T> Ring<T> {
    /// Announces the block at a place. Returns the announcement with the block's bytes, if the
    /// block came before it.
    pub(crate) fn announce(&mut self, at: u64, what: T) -> Option<(T, Box<[u8]>)> {
        match self.orphan_blocks.remove(&at) {
            Some((_, bytes)) => Some((what, bytes)),
            None => {
                self.expected.insert(at, what);
                None
            }
        }
    }

    /// Takes in a write of a block. Returns its announcement, if there was one.
    pub(crate) fn take(&mut self, at: u64) -> Option<T> {
        if !self.orphan_blocks.is_empty() {
            self.orphan_blocks.remove(&at);
        }
        self.expected.remove(&at)
    }

    /// Keeps a block that was not announced.
    pub(crate) fn keep(&mut self, at: u64, bytes: &[u8]) {
        if self.orphan_blocks.len() < ORPHANS_MAX {
            self.orphan_blocks.insert(at, (self.ended, bytes.into()));
        }
    }

    /// Ends a transaction. The next transaction's copies may have come already. A block is dropped
    /// if it came before the previous transaction's end and was never announced.
    pub(crate) fn ended(&mut self) {
        self.ended += 1;
        let now = self.ended;
        self.orphan_blocks.retain(|_, (then, _)| *then + 1 >= now);
    }

    /// Forgets all unannounced blocks.
    pub(crate) fn forget(&mut self) {
        self.orphan_blocks.clear();
    }

    /// Starts again with another log.
    pub(crate) fn reset(&mut self) {
        self.orphan_blocks.clear();
        self.expected.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy may come before its announcement. It is kept across the end of one transaction, but
    /// not of two.
    #[test]
    fn copies_before_their_descriptor_are_kept_for_one_transaction() {
        let mut ring = Ring::default();
        ring.keep(5, b"early");
        ring.ended();
        assert_eq!(ring.announce(5, 'a'), Some(('a', b"early"[..].into())));
        ring.keep(6, b"old");
        ring.ended();
        ring.ended();
        assert_eq!(ring.announce(6, 'b'), None);
        assert_eq!((ring.take(6), ring.take(6)), (Some('b'), None));
    }
}

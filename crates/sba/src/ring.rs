//! A log of copies of blocks: what has been announced and not come, what has come and was not announced.

use rustc_hash::FxHashMap;

/// Copies kept that nothing has announced yet.
const STRAYS_MAX: usize = 4096;

/// Blocks of a ring by their place in it; `T` is what an announcement says of one.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    expected: FxHashMap<u64, T>,
    /// With the number of transactions that had ended.
    strays: FxHashMap<u64, (u64, Box<[u8]>)>,
    ended: u64,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { expected: FxHashMap::default(), strays: FxHashMap::default(), ended: 0 }
    }
}

impl<T> Ring<T> {
    /// Announces the block at a place. Its bytes, where it has come already.
    pub(crate) fn announce(&mut self, at: u64, what: T) -> Option<(T, Box<[u8]>)> {
        match self.strays.remove(&at) {
            Some((_, bytes)) => Some((what, bytes)),
            None => {
                self.expected.insert(at, what);
                None
            }
        }
    }

    /// A block is written: what was announced of it.
    pub(crate) fn take(&mut self, at: u64) -> Option<T> {
        if !self.strays.is_empty() {
            self.strays.remove(&at);
        }
        self.expected.remove(&at)
    }

    /// Keeps a block that nothing has announced.
    pub(crate) fn keep(&mut self, at: u64, bytes: &[u8]) {
        if self.strays.len() < STRAYS_MAX {
            self.strays.insert(at, (self.ended, bytes.into()));
        }
    }

    /// A transaction has ended. The next one's copies may have come before; what came before the last one
    /// ended, and was not announced, never will be.
    pub(crate) fn ended(&mut self) {
        self.ended += 1;
        let now = self.ended;
        self.strays.retain(|_, (then, _)| *then + 1 >= now);
    }

    /// Forgets what came and was not announced.
    pub(crate) fn forget(&mut self) {
        self.strays.clear();
    }

    /// Another log begins.
    pub(crate) fn reset(&mut self) {
        self.strays.clear();
        self.expected.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy may come before what announces it, across the end of one transaction but not of two.
    #[test]
    fn early_copies_wait_for_one_transaction() {
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

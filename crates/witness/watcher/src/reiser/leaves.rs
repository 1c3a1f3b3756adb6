//! Whose bytes a write of a leaf is: the objects whose items differ from those of the leaf's last
//! write.

use std::collections::BTreeSet;
use std::hash::Hasher;

use ordo_format::reiserfs;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::decoder::DecoderState;

/// The most leaves that are remembered.
const LEAVES_MAX: usize = 1 << 18;

/// The items of leaves as they were last seen.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// For each block, the object and a hash of each item.
    items: FxHashMap<u64, Box<[(u32, u64)]>>,
    /// For each block, the objects that changed in the journal since its last write at its place.
    logged: FxHashMap<u64, BTreeSet<u64>>,
}

impl Leaves {
    /// Takes in a leaf. Returns the objects with an item that is new, different or gone.
    pub(super) fn seen(&mut self, block: u64, bytes: &[u8]) -> BTreeSet<u64> {
        let items = reiserfs::item_heads(bytes).map(|item| {
            let mut hash = FxHasher::default();
            hash.write_u64(item.offset_and_type);
            hash.write(item.body(bytes));
            (item.object_id, hash.finish())
        });
        let now: Box<[(u32, u64)]> = items.collect();
        if self.items.len() >= LEAVES_MAX {
            self.items.clear();
            self.logged.clear();
        }
        let before = self.items.insert(block, now.clone()).unwrap_or_default();
        let sets = [&before, &now].map(|all| all.iter().copied().collect::<FxHashSet<_>>());
        sets[0].symmetric_difference(&sets[1]).map(|(object, _)| u64::from(*object)).collect()
    }

    /// Gives a copy of a leaf in the journal to the objects that changed.
    pub(super) fn logged(
        &mut self,
        block: u64,
        offset: Option<u64>,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        let objects = self.seen(block, bytes);
        if let Some(offset) = offset.filter(|_| !objects.is_empty()) {
            let all: Vec<u64> = objects.iter().copied().collect();
            state.divide(offset, bytes.len() as u64, &all);
        }
        if !objects.is_empty() {
            self.logged.entry(block).or_default().extend(objects);
        }
    }

    /// Gives a leaf that is written at its place to the objects that changed since it was written
    /// there before.
    pub(super) fn written(
        &mut self,
        block: u64,
        offset: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        let mut objects = self.seen(block, bytes);
        objects.extend(self.logged.remove(&block).unwrap_or_default());
        if !objects.is_empty() {
            let all: Vec<u64> = objects.into_iter().collect();
            state.divide(offset, bytes.len() as u64, &all);
        }
    }
}

//! Names in directory blocks.

use ordo_format::ext4::dir;
use rustc_hash::FxHashMap;

use crate::decoder::Books;
use crate::kind::Class;
use crate::names::Names;
use crate::runs::Runs;

/// Unclaimed blocks kept that look like a directory's.
const EARLY_MAX: usize = 1024;

/// Directory blocks that were written before the inode that points to them.
#[derive(Debug, Default)]
pub(super) struct Dirs {
    early: FxHashMap<u64, Box<[u8]>>,
}

/// Learns the names in a block of the directory `ino`.
pub(super) fn learn(ino: u64, block: &[u8], names: &mut Names) {
    if dir::looks_like(block) {
        dir::entries(block, |e| names.seen(ino, e.name, e.ino.into()));
    }
}

impl Dirs {
    pub(super) fn keep(&mut self, block: u64, bytes: &[u8]) {
        if self.early.len() >= EARLY_MAX {
            self.early.clear();
        }
        self.early.insert(block, bytes.into());
    }

    /// Learns the names in kept blocks that have an owner now.
    pub(super) fn claimed(&mut self, runs: &Runs, books: &mut Books) {
        if self.early.is_empty() || books.claims.is_empty() {
            return;
        }
        for claim in &books.claims {
            if claim.class != Class::Directory {
                continue;
            }
            for block in claim.block..claim.block + claim.blocks.min(EARLY_MAX as u64) {
                let Some(bytes) = self.early.remove(&block) else { continue };
                if let Some(run) = runs.at(block) {
                    learn(run.ino, &bytes, &mut books.names);
                }
            }
        }
    }
}

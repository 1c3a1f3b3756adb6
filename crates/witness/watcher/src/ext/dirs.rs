//! Names in directory blocks.

use ordo_format::ext4::{dir, inode};
use rustc_hash::FxHashMap;

use crate::decoder::DecoderState;
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

/// The bit that marks the number of an inode with an inline directory, among numbers of directory
/// blocks.
const INLINE: u64 = 1 << 63;
/// The byte of `i_block` at which the entries of an inline directory begin. The parent's number is
/// before them.
const INLINE_AT: usize = 4;
/// The bytes of an inode that `i_block` takes.
const BLOCK_MAP: std::ops::Range<usize> = 40..100;

/// Learns the names in the block `at` of the directory `ino`. The names that the block had before
/// are replaced. A block of the directory's index has none.
pub(super) fn learn(ino: u64, at: u64, block: &[u8], names: &mut Names) {
    let has_any = dir::looks_like(block);
    names.listed(at, ino, |each| {
        if has_any {
            dir::entries(block, |e| each(e.name, e.ino.into()));
        }
    });
}

/// Learns the names of an inline directory: those in the place of the block map, and those in the
/// attribute `system.data` behind the inode's fixed part. `None` stands for a directory with
/// blocks: names that were inline are gone.
pub(super) fn learn_inline(ino: u64, raw: Option<&[u8]>, names: &mut Names) {
    names.listed(ino | INLINE, ino, |each| {
        let Some(raw) = raw else { return };
        let each = &mut |e: dir::Entry<'_>| each(e.name, e.ino.into());
        dir::entries(&raw[BLOCK_MAP][INLINE_AT..], &mut *each);
        if let Some(rest) = inode::inline_rest(raw) {
            dir::entries(rest, each);
        }
    });
}

impl Dirs {
    pub(super) fn keep(&mut self, block: u64, bytes: &[u8]) {
        if self.early.len() >= EARLY_MAX {
            self.early.clear();
        }
        self.early.insert(block, bytes.into());
    }

    /// Learns the names in kept blocks that have an owner now.
    pub(super) fn claimed(&mut self, runs: &Runs, state: &mut DecoderState) {
        if self.early.is_empty() || state.claims.is_empty() {
            return;
        }
        for claim in &state.claims {
            if claim.class != Class::Directory {
                continue;
            }
            for block in claim.block..claim.block + claim.blocks.min(EARLY_MAX as u64) {
                let Some(bytes) = self.early.remove(&block) else { continue };
                if let Some(run) = runs.at(block) {
                    learn(run.ino, block, &bytes, &mut state.names);
                }
            }
        }
    }
}

//! Names that a directory has twice.
//!
//! A directory may have any number of names, so that the first reading keeps only their hashes.
//! Only if a hash comes twice is the directory read again, and the names with such hashes are
//! compared themselves.

use std::collections::{BTreeMap, BTreeSet};

use ordo_format::lfs::dir::{self, CHUNK};
use rustc_hash::FxHashSet;

use super::state::LfsRun;
use super::{LfsCheckError, LfsFinding};
use crate::names::{hash, printable};

/// The hashes of a directory's names.
#[derive(Default)]
pub(super) struct Names {
    all: FxHashSet<u64>,
    /// Those that came more than once.
    pub twice: BTreeSet<u64>,
}

impl Names {
    pub(super) fn add(&mut self, name: &[u8]) {
        let hash = hash(name);
        if !self.all.insert(hash) {
            self.twice.insert(hash);
        }
    }
}

impl LfsRun<'_> {
    /// Removes all but the first entry of each name with one of these hashes. The names of the
    /// directory have been counted.
    pub(super) async fn remove_same_names(
        &mut self,
        ino: u64,
        twice: &BTreeSet<u64>,
    ) -> Result<(), LfsCheckError> {
        let mut kept: BTreeMap<u64, Vec<Box<[u8]>>> = BTreeMap::new();
        for block in self.inodes[&ino].blocks.clone() {
            let bytes = self.directory_block(ino, block).await?;
            for (i, chunk) in bytes.chunks_exact(CHUNK).enumerate() {
                let entries = dir::entries(self.sb.width, chunk).flatten();
                for entry in entries.filter(|entry| entry.ino != 0) {
                    let hash = hash(entry.name);
                    if !twice.contains(&hash) {
                        continue;
                    }
                    let same = kept.entry(hash).or_default();
                    if !same.iter().any(|name| **name == *entry.name) {
                        same.push(entry.name.into());
                        continue;
                    }
                    let (name, target) = (printable(entry.name), entry.ino);
                    self.report.add(LfsFinding::DuplicateName { ino, name, target });
                    let place = (block.1, i * CHUNK + entry.at);
                    self.remove_entry(place.0, place.1).await?;
                    self.uncount_name(target, place);
                }
            }
        }
        Ok(())
    }

    /// Takes back what was counted for an entry.
    fn uncount_name(&mut self, target: u64, place: (i64, usize)) {
        let Some(known) = self.inodes.get_mut(&target) else { return };
        known.links = known.links.saturating_sub(1);
        if known.named_at == Some(place) {
            (known.parent, known.named_at) = (None, None);
        }
    }
}

//! Files that have merely grown since they were last in the log. An fsync of another file leaves
//! them out: inode, indirect blocks and contents stay dirty together.
//!
//! Nothing in the log depends on such a file. Its blocks get their places when it is written, so no
//! table counts them yet, and no entry has come to stand for its inode. A file is *tied* to the
//! rest of what is dirty as soon as anything else about it has changed: a name, its owner or
//! permissions, or a block that it has lost and that another file may get.

use ordo_format::lfs::{IFILE_INO, LfsInode, NO_ADDRESS};
use ordo_ordering::What;

use super::rules::LfsRules;
use super::store::{Store, decode, is_set};
use crate::data::is_regular;

/// Whether a change of an inode adds size and blocks, or sets times, and does nothing else.
pub fn grows(what: &What<'_>, old: &LfsInode, new: &LfsInode) -> bool {
    let has_kept = |old: &[i64], new: &[i64]| {
        old.iter().zip(new).all(|(old, new)| old == new || *old == NO_ADDRESS)
    };
    let same = |d: &LfsInode| (d.mode, d.nlink, d.uid, d.gid, d.flags, d.generation, d.blksize);
    !matches!(what, What::ClearPointers { .. })
        && same(old) == same(new)
        && new.size >= old.size
        && has_kept(&old.db, &new.db)
        && has_kept(&old.ib, &new.ib)
}

impl Store {
    /// Whether an fsync of another file may leave a file out: the log has it, and it has merely
    /// grown since.
    pub fn has_merely_grown(&self, ino: u64, rules: LfsRules) -> bool {
        let is_free = || !self.state.borrow().tied.contains(&ino);
        ino > IFILE_INO
            && is_set(self.place_of(ino))
            && (is_free() || !rules.contains(LfsRules::GROWN_LEFT_OUT))
            && self.peek_inode(ino).is_some_and(|pin| is_regular(&decode(&pin)))
    }
}

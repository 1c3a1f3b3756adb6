//! What the superblock says of how an image is used, by FreeBSD's rules.
//!
//! - While mounted it is not clean. Where it was not clean when it was mounted, it says so too
//!   (`FS_UNCLEAN`), and is not clean after it is unmounted either, until a check has gone through it:
//!   what the crash leaked is still there. Where a journal was replayed nothing is: that is as good as clean.
//! - `FS_DOSOFTDEP` says that a crash leaves the bitmaps right. An ordering that keeps them so sets it, in
//!   the write that makes the image unclean; for any other the flag is off while it is mounted. On a clean
//!   image it is only a wish of its owner's, and comes back when the image is clean again.

use std::cell::Cell;

use ordo_format::ufs2::Superblock;
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_NEEDSFSCK, FS_UNCLEAN};

/// How an image is marked while it is mounted, and after.
pub(crate) struct Marks {
    flags: Cell<i32>,
    /// Flags that come back once it is clean.
    wishes: i32,
}

/// Whether an image was unmounted and nothing was found wrong with it.
pub(crate) fn is_clean(sb: &Superblock) -> bool {
    sb.clean == 1 && sb.flags & FS_NEEDSFSCK == 0
}

/// Whether the bitmaps of an image that is not clean can be trusted.
pub(crate) fn has_right_bitmaps(sb: &Superblock) -> bool {
    sb.flags & FS_DOSOFTDEP != 0 && sb.flags & FS_NEEDSFSCK == 0
}

impl Marks {
    /// For an image that is mounted now. `trusted`: the ordering keeps the bitmaps right. `replayed`: what
    /// a crash left has been put right.
    pub fn new(sb: &Superblock, trusted: bool, replayed: bool) -> Marks {
        let mut flags = sb.flags & !(FS_UNCLEAN | FS_DOSOFTDEP);
        let clean = is_clean(sb) || (replayed && sb.flags & FS_NEEDSFSCK == 0);
        if !clean {
            flags |= FS_UNCLEAN;
        }
        if trusted && (clean || has_right_bitmaps(sb)) {
            flags |= FS_DOSOFTDEP;
        }
        let wishes = if clean { sb.flags & FS_DOSOFTDEP } else { 0 };
        Marks { flags: Cell::new(flags), wishes }
    }

    /// Puts the marks into a superblock. `unmounted`: everything is on the disk.
    pub fn put(&self, sb: &mut Superblock, unmounted: bool) {
        let flags = self.flags.get();
        let clean = unmounted && flags & (FS_UNCLEAN | FS_NEEDSFSCK) == 0;
        sb.clean = i8::from(clean);
        sb.flags = if clean { flags | self.wishes } else { flags };
        sb.fmod = 0;
        (sb.pendingblocks, sb.pendinginodes) = (0, 0);
    }

    /// A check has gone through all of it, and nothing is left to repair.
    pub fn checked(&self) {
        self.flags.set(self.flags.get() & !FS_UNCLEAN);
    }

    /// Something is wrong that has to be looked into before the next mount.
    pub fn needs_check(&self) {
        self.flags.set(self.flags.get() | FS_NEEDSFSCK);
    }
}

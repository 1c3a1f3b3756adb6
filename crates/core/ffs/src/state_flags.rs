//! The superblock's state flags, set by FreeBSD's rules.
//!
//! - A mounted image is not clean. If it was not clean when it was mounted, the flag `FS_UNCLEAN`
//!   is set too, and it stays unclean after the unmount, until a check has gone through it: space
//!   that the crash leaked is still lost. After the replay of a journal no space is leaked, so the
//!   image counts as clean.
//! - `FS_DOSOFTDEP` on an unclean image means that the crash left the bitmaps right. An ordering
//!   that keeps them right sets it in the write that makes the image unclean; under any other
//!   ordering the flag is off during the mount. On a clean image the flag only asks for soft
//!   updates at the next mount. A request that was there before comes back when the image is clean
//!   again.

use std::cell::Cell;

use ordo_format::ufs2::Superblock;
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_NEEDSFSCK, FS_UNCLEAN};

/// The point of a mount at which a superblock is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountState {
    /// Nothing was written yet. The flags are those of the mount, but a clean image is still clean.
    Announced,
    /// The file system is in use.
    InUse,
    /// Everything else is on the disk.
    Unmounted,
}

/// The state flags of an image during a mount and after it.
pub(crate) struct StateFlags {
    flags: Cell<i32>,
    /// Flags that are set again when the image is clean.
    when_clean: i32,
}

/// Whether an image was unmounted cleanly and no damage was found in it.
pub(crate) fn is_clean(sb: &Superblock) -> bool {
    sb.clean == 1 && sb.flags & FS_NEEDSFSCK == 0
}

/// Whether the bitmaps of an image that is not clean can be trusted.
pub(crate) fn has_right_bitmaps(sb: &Superblock) -> bool {
    sb.flags & FS_DOSOFTDEP != 0 && sb.flags & FS_NEEDSFSCK == 0
}

impl StateFlags {
    /// The flags of an image that is about to be mounted. `trusted`: the ordering keeps the bitmaps
    /// right. `replayed`: recovery has repaired everything that a crash left.
    pub fn new(sb: &Superblock, trusted: bool, replayed: bool) -> StateFlags {
        let mut flags = sb.flags & !(FS_UNCLEAN | FS_DOSOFTDEP);
        let clean = is_clean(sb) || (replayed && sb.flags & FS_NEEDSFSCK == 0);
        if !clean {
            flags |= FS_UNCLEAN;
        }
        if trusted && (clean || has_right_bitmaps(sb)) {
            flags |= FS_DOSOFTDEP;
        }
        let when_clean = if clean { sb.flags & FS_DOSOFTDEP } else { 0 };
        StateFlags { flags: Cell::new(flags), when_clean }
    }

    /// Sets the flags in a superblock.
    pub fn put(&self, sb: &mut Superblock, state: MountState) {
        let flags = self.flags.get();
        let clean = state != MountState::InUse && flags & (FS_UNCLEAN | FS_NEEDSFSCK) == 0;
        sb.clean = i8::from(clean);
        sb.flags = match state {
            MountState::Unmounted if clean => flags | self.when_clean,
            _ => flags,
        };
        sb.fmod = 0;
        (sb.pendingblocks, sb.pendinginodes) = (0, 0);
    }

    /// Notes that a check has gone through the whole image, and nothing is left to repair.
    pub fn checked(&self) {
        self.flags.set(self.flags.get() & !FS_UNCLEAN);
    }

    /// Notes damage that a check must look into before the next mount.
    pub fn needs_check(&self) {
        self.flags.set(self.flags.get() | FS_NEEDSFSCK);
    }
}

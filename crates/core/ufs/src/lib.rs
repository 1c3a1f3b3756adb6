//! Names, inodes and directories, over a [`Layout`] that decides where inodes and blocks go.
//!
//! Layers, lowest first:
//! - [`layout`]: the trait that a layout implements: its codecs, its limits, and the places of
//!   blocks (fixed in `ffs`, at the end of the log in `lfs`).
//! - [`inode`]: the record of an inode, and the table of the inodes in memory.
//! - [`dir`](mod@dir): the formats of entries, and the index that finds them.
//! - `file`, `space`, `names`, `attributes`, `release`: the operations, on [`Ufs`].
//! - `background`: deferred frees; `reclaim`: freeing resources that a crash leaked.
//! - `fs`: [`ordo_vfs::FileSystem`] for [`Ufs`].
//!
//! Invariants:
//! - An inode's buffer in the cache ([`PinnedInode`]) is always up to date: every change of an
//!   inode is made there at once, through an ordering's operation. So an inode in memory can be
//!   dropped whenever it is not in use.
//! - This crate knows no address, no size of an inode and no unit of space. A buffer need not have
//!   an address.
//! - Directory entries never move: a place in a directory stays valid while entries are added and
//!   removed.
//! - This crate names no ordering and tests for none.
//!
//! Lock order: the rename lock; directories, an ancestor before its descendants, otherwise by inode
//! number; other inodes, by number. An operation (`Op`) begins after its locks are held.
//!
//! Typical sequence: `let fs = Ufs::new(layout, config)`; then the operations of `FileSystem`.

mod attributes;
mod background;
pub mod dir;
mod error;
mod file;
mod fs;
pub mod inode;
pub mod layout;
mod names;
mod reclaim;
mod release;
mod rename;
mod space;
mod xattr;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_ordering::{Op, OpKind, OrderedCache};
use ordo_runtime::Duration;
use ordo_runtime::sync::RwLock;
use ordo_vfs::{Errno, FsError, FsResult, Ino, Timestamp};

pub use dir::format::{CHUNK, DirDamage, DirFormat, DirRecord, FreeSpace};
pub use error::io_error;
pub use inode::{Inode, InodeRecord, InodeTable};
pub use layout::{AttributeArea, Fill, Layout, Limits, NewInode, PinnedInode, SyncScope};

/// An inode of the layout `L`.
pub type LayoutInode<L> = Inode<<L as Layout>::Pointers>;

/// Options of a mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UfsConfig {
    /// Refuse every change (`ro`).
    pub read_only: bool,
    /// The rule for updating access times.
    pub access_times: AccessTimes,
    /// The number of inodes in memory above which unused ones are evicted.
    pub inodes_max: usize,
    /// The number of directory entries that all indexes in memory may have.
    pub indexed_entries_max: usize,
    /// Drop-behind: contents that are read or written in order leave memory at once, since the
    /// layer above keeps them.
    pub drop_behind: bool,
    /// The step in which times of files advance. A write inside of a file that changes neither its
    /// blocks nor its times then changes no metadata. 0: times are exact, and every write stores
    /// the inode.
    pub time_grain: Duration,
}

/// The rule for updating an inode's access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never.
    #[default]
    Never,
    /// On a read after a change of the file, or a day after the last update (`relatime`).
    Relative,
    /// On every read (`strictatime`).
    Always,
}

impl AccessTimes {
    /// Whether a read at `now` updates the access time.
    fn wants(self, d: &InodeRecord, now: Timestamp) -> bool {
        const DAY_SECONDS: i64 = 24 * 60 * 60;
        match self {
            AccessTimes::Never => false,
            AccessTimes::Always => true,
            AccessTimes::Relative => {
                d.atime <= d.mtime
                    || d.atime <= d.ctime
                    || now.seconds.saturating_sub(d.atime.seconds) >= DAY_SECONDS
            }
        }
    }
}

impl Default for UfsConfig {
    fn default() -> UfsConfig {
        UfsConfig {
            read_only: false,
            access_times: AccessTimes::Never,
            inodes_max: 65_536,
            indexed_entries_max: 4_000_000,
            drop_behind: false,
            time_grain: Duration::ZERO,
        }
    }
}

/// A file system over a layout. Clones are cheap and share everything.
pub struct Ufs<L: Layout> {
    shared: Rc<Shared<L>>,
}

struct Shared<L: Layout> {
    layout: L,
    config: UfsConfig,
    limits: Limits,
    inodes: InodeTable<L::Pointers>,
    rename: RwLock,
    indexed_entries: Cell<usize>,
    /// The lock that is held while deferred frees are done.
    deferred_frees: RwLock,
    /// The error of a deferred free that failed.
    deferred_free_failure: RefCell<Option<FsError>>,
}

impl<L: Layout> Clone for Ufs<L> {
    fn clone(&self) -> Self {
        Ufs { shared: self.shared.clone() }
    }
}

impl<L: Layout> Ufs<L> {
    /// A file system on a mounted layout.
    pub fn new(layout: L, config: UfsConfig) -> Ufs<L> {
        let shared = Shared {
            limits: layout.limits(),
            layout,
            inodes: InodeTable::new(config.inodes_max),
            rename: RwLock::new("the rename lock", 0),
            indexed_entries: Cell::new(0),
            deferred_frees: RwLock::new("the lock on deferred frees", 0),
            deferred_free_failure: RefCell::new(None),
            config,
        };
        let fs = Ufs { shared: Rc::new(shared) };
        fs.start_deferred_frees();
        fs
    }

    /// The layout below.
    pub fn layout(&self) -> &L {
        &self.shared.layout
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn cache(&self) -> &OrderedCache {
        self.shared.layout.cache()
    }

    pub(crate) fn table(&self) -> &InodeTable<L::Pointers> {
        &self.shared.inodes
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.shared.config.read_only || self.cache().failure().is_some()
    }

    /// The time now, as stored on disk.
    pub(crate) fn now(&self) -> Timestamp {
        let (seconds, nanos) = self.cache().runtime().wall_time();
        let grain = self.shared.config.time_grain.subsec_nanos().max(1);
        self.limits().nearest(Timestamp { seconds, nanos: nanos - nanos % grain })
    }

    /// Checks that changes are allowed. A read-only mount refuses them. After a failed write they
    /// are refused for good, since the disk lacks earlier changes on which later ones build.
    pub(crate) fn writable(&self) -> FsResult<()> {
        if let Some(failure) = self.cache().failure() {
            return Err(FsError::with_detail(
                Errno::ReadOnly,
                format_args!(
                    "read-only since a write failed ({failure}); unmount, repair the device, then check (fsck)"
                ),
            ));
        }
        if self.shared.config.read_only {
            return Err(Errno::ReadOnly.into());
        }
        Ok(())
    }

    /// Starts an operation that changes something.
    pub(crate) async fn begin(&self, kind: OpKind) -> FsResult<Op<'_>> {
        self.writable()?;
        Op::begin(self.cache(), kind).await.map_err(io_error)
    }

    /// The inode of this number, from memory or disk.
    pub(crate) async fn inode(&self, ino: u64) -> FsResult<Rc<LayoutInode<L>>> {
        if let Some(ip) = self.table().get(ino) {
            return Ok(ip);
        }
        let (record, pointers) = self.shared.layout.load_inode(ino).await?;
        // Another task may have loaded the inode meanwhile, and changed it since.
        match self.table().get(ino) {
            Some(ip) => Ok(ip),
            None => Ok(self.table().insert(Inode::new(ino, record, pointers))),
        }
    }

    /// An inode, by the number that a user gave.
    pub(crate) async fn inode_of(&self, ino: Ino) -> FsResult<Rc<LayoutInode<L>>> {
        let ip = self.inode(ino.0).await.map_err(|e| match e.errno {
            Errno::NotFound => Errno::Stale.into(),
            _ => e,
        })?;
        if ip.is_unused() { Err(Errno::Stale.into()) } else { Ok(ip) }
    }

    /// A directory, by the number that a user gave.
    pub(crate) async fn directory(&self, ino: Ino) -> FsResult<Rc<LayoutInode<L>>> {
        let ip = self.inode_of(ino).await?;
        if ip.is_directory() { Ok(ip) } else { Err(Errno::NotDir.into()) }
    }

    /// Unmounts: makes everything durable and marks the file system clean. Nobody may use it any
    /// more: a file that is still open counts as closed, and is freed if it has no name.
    ///
    /// # Errors
    /// The device failed: the image must be checked before it is used again.
    pub async fn unmount(&self) -> FsResult<()> {
        let read_only = self.shared.config.read_only;
        if !read_only && self.cache().ordering().deferred() > 0 {
            // The deferred frees come before the release of orphans.
            self.sync_all().await?;
        }
        // On a read-only mount orphans stay; the next check frees them.
        let orphans = if read_only { Vec::new() } else { self.table().orphans() };
        for ip in orphans {
            // A file that is still open is freed too: no program can use it after the unmount.
            ip.opens.set(0);
            if let Err(error) = self.release(&ip).await {
                // A deferred free failed, so the file system is not marked clean, but everything
                // that can be written is written.
                let synced = self.sync_all().await;
                return Err(synced.err().unwrap_or(error));
            }
        }
        if !read_only {
            self.sync_all().await?;
        }
        self.shared.layout.unmount(read_only).await
    }

    /// Limits memory for blocks and inodes to so many percent of the configured sizes until the
    /// next call. What does not fit any more leaves memory, and so do the indexes of directories
    /// that are not in use.
    pub async fn limit_memory(&self, percent: usize) {
        if percent < 100 {
            for dir in self.table().idle_indexes() {
                self.forget_index(&dir);
            }
        }
        self.table().limit(percent);
        self.cache().limit_memory(percent).await;
    }

    /// Drops every inode and clean buffer that is not in use, as a remount would. Benchmarks use it
    /// to start cold.
    ///
    /// # Errors
    /// The device failed.
    pub async fn drop_caches(&self) -> FsResult<()> {
        if !self.is_read_only() {
            self.sync_all().await?;
        }
        for ip in self.table().drop_unused() {
            self.forget_index(&ip);
        }
        self.cache().drop_clean();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relative access time is updated after a change, and once a day. Other reads cost no write.
    #[test]
    fn relative_access_times() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut d = InodeRecord::default();
        (d.atime, d.mtime, d.ctime) = (at(1000), at(1000), at(900));
        assert!(AccessTimes::Relative.wants(&d, at(1001)));
        d.atime = at(1001);
        assert!(!AccessTimes::Relative.wants(&d, at(1002)));
        assert!(AccessTimes::Always.wants(&d, at(1002)) && !AccessTimes::Never.wants(&d, at(1002)));
        assert!(AccessTimes::Relative.wants(&d, at(1001 + 86_400)));
        d.ctime = at(1002);
        assert!(AccessTimes::Relative.wants(&d, at(1003)));
    }
}

//! Orderings: which writes of metadata must reach the disk before which others.
//!
//! A file system's core describes each change by its meaning ([`What`]). An [`OrderingPolicy`]
//! decides what the change demands of the order of writes. The core names no ordering and tests for
//! none; an ordering knows no layout.
//!
//! Layers:
//! - [`change`]: the changes, by meaning.
//! - [`policy`]: the traits of an ordering and of its operations, [`OrderedCache`], and [`Op`],
//!   through which the core makes every change of metadata.
//! - [`settled`]: the files of which an `fdatasync` writes contents only.
//! - [`none`], [`sync`], [`soft_updates`], [`journal`]: the orderings.
//!
//! Invariants:
//! - [`Op::apply`] makes every change of metadata, after [`Op::admit`] has permitted it. It takes
//!   an [`Admitted`] change, which only `admit` returns, and takes it once.
//! - [`Op::apply`] does not wait: between `admit` and `apply` nothing else happens to the buffer.
//! - An operation that fails takes back its own changes, and is then dropped without [`Op::end`].
//!
//! Typical sequence, for a create: `Op::begin`; `admit` [`What::AllocateInode`] and apply it to the
//! group, then [`What::InitInode`] to the inode's buffer, then [`What::AddEntry`] to the
//! directory's block; `Op::end`.

pub mod change;
pub mod journal;
pub mod none;
pub mod policy;
pub mod settled;
pub mod soft_updates;
pub mod sync;

pub use change::{Change, DeferredFree, OpKind, PointerTo, What};
pub use journal::{
    CommitPhases, CommitScope, JournalMode, JournalModeError, JournalOptions, JournalOrder,
    JournalRules, LogContents, RecordForm,
};
pub use none::NoOrder;
pub use policy::{
    Admitted, Begun, BlockFuture, Dependencies, Image, Op, OrderedCache, Ordering, OrderingOp,
    OrderingPolicy, RecoverError, Recovery, SyncedInode,
};
pub use settled::{Settled, Settling};
pub use soft_updates::{SoftOptions, SoftRules, SoftStats, SoftUpdates};
pub use sync::{SyncOrder, SyncRules};

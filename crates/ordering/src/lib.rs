//! Orderings: what must reach the disk before what.
//!
//! A file system's core says what it changes, in words that carry meaning ([`What`]); an
//! [`OrderingPolicy`] decides what that means for the order of writes. The core names no ordering and
//! tests for none; an ordering knows no layout.
//!
//! Layers:
//! - [`change`]: the words.
//! - [`policy`]: the trait, and [`Op`], through which the core makes every change of metadata.
//! - [`none`], [`sync`], [`soft_updates`], [`journal`]: the orderings.
//!
//! Invariants:
//! - Every change of metadata is made by [`Op::apply`], after [`Op::admit`] of the same thing: an [`Admitted`] change can
//!   be made once, and there is no other way to have one.
//! - [`Op::apply`] does not wait: between `admit` and `apply` nothing else happens to the buffer.
//! - An operation that fails is dropped without [`Op::end`]; it has then undone its own changes.
//!
//! Typical sequence, for a create: `Op::begin`; `admit` [`What::AllocateInode`] and apply it to the group, then
//! [`What::InitInode`] to the inode's buffer, then [`What::AddEntry`] to the directory's block; `Op::end`.

pub mod change;
pub mod journal;
pub mod none;
pub mod policy;
pub mod soft_updates;
pub mod sync;

pub use change::{Change, Deferred, OpKind, PointerTo, What};
pub use journal::{JournalOptions, JournalOrder, JournalRules};
pub use none::NoOrder;
pub use policy::{Admitted, Dependencies, Image, Op, OrderingPolicy, RecoverError, Recovery};
pub use soft_updates::{SoftOptions, SoftRules, SoftStats, SoftUpdates};
pub use sync::{SyncOrder, SyncRules};

//! No ordering: every write is delayed, and delayed writes go out in any order.
//!
//! One write is not delayed: the target of a symbolic link that is too long for its inode. No call
//! makes a target durable by itself, so an fsync of the link's directory would leave a name that
//! shows what the block had before.
//!
//! Source: "No Order" of soft-updates-2000, section 4.1; "FFS-async" of
//! journaling-versus-soft-updates-2000, Table 1. No ordering can be faster. After a crash, a check
//! may find damage that it cannot repair.

use ordo_cache::{Cache, WriteGate};
use ordo_runtime::MaybeFuture;

use crate::{Begun, BlockFuture, OpKind, OrderingOp, OrderingPolicy, PointerTo, What};

/// The ordering `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOrder;

impl WriteGate for NoOrder {
    fn follows_writes(&self) -> bool {
        false
    }
}

impl OrderingPolicy for NoOrder {
    fn name(&self) -> &'static str {
        "none"
    }

    fn needs_check(&self) -> bool {
        true
    }

    fn whole_inodes(&self) -> bool {
        false
    }

    fn begin<'a>(&'a self, _cache: &'a Cache, _kind: OpKind) -> Begun<'a> {
        MaybeFuture::ready(Ok(Box::new(Unordered)))
    }
}

/// An operation whose changes have no order.
struct Unordered;

impl OrderingOp for Unordered {
    fn admit<'a>(&'a mut self, cache: &'a Cache, what: &'a What<'a>) -> BlockFuture<'a> {
        match *what {
            What::SetPointer { to: PointerTo::LinkTarget, init, .. } => {
                MaybeFuture::boxed(cache.write_now(std::slice::from_ref(init)))
            }
            _ => MaybeFuture::ready(Ok(())),
        }
    }
}

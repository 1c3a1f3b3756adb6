//! No ordering: every write is delayed, and delayed writes go out in any order.
//!
//! Source: "No Order" of soft-updates-2000, section 4.1; "FFS-async" of journaling-versus-soft-updates-2000,
//! Table 1. No ordering can be faster. After a crash, a check may find damage that it cannot repair.

use ordo_cache::{Cache, WriteGate};
use ordo_runtime::MaybeFuture;

use crate::{Begun, OpKind, OrderingOp, OrderingPolicy};

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

impl OrderingOp for Unordered {}

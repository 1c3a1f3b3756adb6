//! No ordering: every write is delayed, and delayed writes go out in any order.
//!
//! Source: "No Order" of soft-updates-2000, section 4.1; "FFS-async" of journaling-versus-soft-updates-2000,
//! Table 1. No ordering can be faster. After a crash, a check may find damage that it cannot repair.

use ordo_block::BlockError;
use ordo_cache::{Cache, WriteGate};

use crate::{Change, OpKind, OrderingPolicy, What};

/// The ordering `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOrder;

impl WriteGate for NoOrder {
    const FOLLOWS_WRITES: bool = false;
}

impl OrderingPolicy for NoOrder {
    const NAME: &'static str = "none";
    const NEEDS_CHECK: bool = true;
    const WHOLE_INODES: bool = false;
    type Op = ();

    async fn begin(_cache: &Cache<Self>, _kind: OpKind) -> Result<(), BlockError> {
        Ok(())
    }

    async fn admit(_cache: &Cache<Self>, _op: &mut (), _what: &What<'_>) -> Result<(), BlockError> {
        Ok(())
    }

    fn record(&self, _op: &mut (), _change: &Change<'_>) {}

    async fn end(_cache: &Cache<Self>, _op: ()) -> Result<(), BlockError> {
        Ok(())
    }
}

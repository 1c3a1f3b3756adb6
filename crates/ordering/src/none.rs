//! No ordering: every write is delayed and goes out in any order.
//!
//! Source: "No Order" of soft-updates-2000, section 4.1; "FFS-async" of
//! journaling-versus-soft-updates-2000, Table 1. The fastest there can be, and after a crash a check
//! may not be able to mend what it finds.

use ordo_block::{BlockDevice, BlockError};
use ordo_cache::{Buffer, Cache, Verdict, WriteGate};

use crate::{Change, OpKind, OrderingPolicy, What};

/// The ordering `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOrder;

impl WriteGate for NoOrder {
    const FOLLOWS_WRITES: bool = false;

    fn before_write(&self, _block: &Buffer, _image: &mut [u8]) -> Verdict {
        Verdict::Write
    }
    fn write_done(&self, _block: &Buffer, _result: Result<(), BlockError>) {}
    async fn wait_for(&self, _lsn: u64) -> Result<(), BlockError> {
        Ok(())
    }
    fn independent(&self, _block: &Buffer) -> bool {
        true
    }
}

impl OrderingPolicy for NoOrder {
    const NAME: &'static str = "none";
    const KEEPS_OLD: bool = false;
    const NEEDS_CHECK: bool = true;
    type Op = ();

    async fn begin<D: BlockDevice>(
        _cache: &Cache<D, Self>,
        _kind: OpKind,
    ) -> Result<(), BlockError> {
        Ok(())
    }

    async fn admit<D: BlockDevice>(
        _cache: &Cache<D, Self>,
        _op: &mut (),
        _what: &What<'_>,
    ) -> Result<(), BlockError> {
        Ok(())
    }

    fn record(&self, _op: &mut (), _change: &Change<'_>) {}

    async fn end<D: BlockDevice>(_cache: &Cache<D, Self>, _op: ()) -> Result<(), BlockError> {
        Ok(())
    }

    async fn fsync<D: BlockDevice>(_cache: &Cache<D, Self>, _ino: u64) -> Result<(), BlockError> {
        Ok(())
    }
}

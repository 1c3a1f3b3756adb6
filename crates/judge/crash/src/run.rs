//! A recorded run: the contents of its disks at the start, every write, and the events of the disks
//! in order.

use std::sync::Arc;

use bytes::Bytes;
use ordo_watcher::Class;
use serde::{Deserialize, Serialize};

use crate::CrashModel;
use crate::base::Base;
use crate::history::History;

/// An event of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A write was issued.
    Issued {
        /// The disk.
        disk: usize,
        /// The index of the write.
        write: usize,
    },
    /// A write completed.
    Completed {
        /// The disk.
        disk: usize,
        /// The index of the write.
        write: usize,
    },
    /// A write failed. All of it may be there, or any part, until it is written again.
    Failed {
        /// The disk.
        disk: usize,
        /// The index of the write.
        write: usize,
    },
    /// A flush was issued.
    FlushIssued {
        /// The disk.
        disk: usize,
        /// The number of the request.
        id: u64,
    },
    /// A flush completed.
    Flushed {
        /// The disk.
        disk: usize,
        /// The number of the request.
        id: u64,
    },
}

/// A write, with its meaning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The number of the request.
    pub id: u64,
    /// The offset on the disk, in bytes.
    pub offset: u64,
    /// The contents.
    #[serde(with = "shared")]
    pub data: Bytes,
    /// Whether it is durable when it completes.
    pub fua: bool,
    /// The meaning in words.
    pub name: String,
    /// The kind of its first block.
    pub class: Class,
}

/// The contents of one disk at the start, and all writes to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskRun {
    /// The contents at the start.
    #[serde(with = "sparse")]
    pub base: Arc<Base>,
    /// All writes, in the order of issue.
    pub writes: Vec<Write>,
}

/// A recorded run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The model under which it was recorded.
    pub model: CrashModel,
    /// The size in bytes that its disks never tear: 512 or a multiple.
    pub unit: usize,
    /// The disks.
    pub disks: Vec<DiskRun>,
    /// The events of the disks, in order.
    pub events: Vec<Event>,
    /// The history of the workload's calls.
    pub history: Arc<History>,
}

/// Bytes as a sequence.
mod shared {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(&bytes[..])
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Bytes, D::Error> {
        Vec::deserialize(from).map(Bytes::from)
    }
}

/// The contents of a disk without the zeros.
mod sparse {
    use std::sync::Arc;

    use bytes::Bytes;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::base::Base;

    /// The largest disk of a run.
    const DISK_MAX: u64 = 1 << 32;

    /// The unit in which zeros are left out.
    const PIECE: usize = 4096;

    pub fn serialize<S: Serializer>(base: &Arc<Base>, to: S) -> Result<S::Ok, S::Error> {
        let unit = PIECE as u64;
        let of = |(at, piece): &(u64, Bytes)| at / unit..(at + piece.len() as u64).div_ceil(unit);
        let mut numbers: Vec<u64> = base.pieces().iter().flat_map(of).collect();
        numbers.dedup();
        let len = |n: u64| unit.min(base.len() - n * unit) as usize;
        let pieces = numbers.into_iter().map(|n| (n, base.slice(n * unit, len(n))));
        let used: Vec<_> = pieces.filter(|(_, piece)| piece.iter().any(|b| *b != 0)).collect();
        let used: Vec<(u64, &[u8])> = used.iter().map(|(n, piece)| (*n, &piece[..])).collect();
        (base.len(), used).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Arc<Base>, D::Error> {
        let (len, used) = <(u64, Vec<(u64, Vec<u8>)>)>::deserialize(from)?;
        if len > DISK_MAX {
            return Err(D::Error::custom("a disk that is too large"));
        }
        let mut bytes = vec![0; len as usize];
        for (n, piece) in used {
            let at = usize::try_from(n).ok().and_then(|n| n.checked_mul(PIECE));
            let place = at.and_then(|at| bytes.get_mut(at..at.checked_add(piece.len())?));
            place.ok_or_else(|| D::Error::custom("bytes beyond a disk"))?.copy_from_slice(&piece);
        }
        Ok(Arc::new(bytes.into()))
    }
}

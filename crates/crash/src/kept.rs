//! Runs as text, for failures of what cannot be run again.
//!
//! [Postcard](https://postcard.jamesmunns.com), compressed with zstd, in base64. What a disk held at the start is
//! kept without its zeros.

use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::disk::SECTOR;
use crate::history::{History, Purpose};
use crate::record::{Event, Run};
use crate::saved::SavedError;

/// How many bytes of runs are read at most.
const BYTES_MAX: u64 = 1 << 30;

/// How large a disk of a run may be.
const DISK_MAX: u64 = 1 << 32;

/// Disks of a run at most.
const DISKS_MAX: usize = 4;

/// The compression that is tried: what a run writes is mostly alike.
const LEVEL: i32 = 9;

fn damaged(what: impl ToString) -> SavedError {
    SavedError::Damaged(format!("the run in it: {}", what.to_string()))
}

/// Runs as text.
///
/// # Errors
/// [`SavedError::Damaged`] never in fact.
pub fn pack(runs: &[Arc<Run>]) -> Result<String, SavedError> {
    let bytes = postcard::to_allocvec(runs).map_err(damaged)?;
    let small = zstd::bulk::compress(&bytes, LEVEL).map_err(damaged)?;
    Ok(STANDARD.encode(small))
}

/// Runs from text.
///
/// # Errors
/// [`SavedError::Damaged`]: it is none, or what is in it does not fit together.
pub fn unpack(text: &str) -> Result<Vec<Arc<Run>>, SavedError> {
    let small = STANDARD.decode(text).map_err(damaged)?;
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(&small[..]).map_err(damaged)?;
    decoder.take(BYTES_MAX).read_to_end(&mut bytes).map_err(damaged)?;
    let runs: Vec<Arc<Run>> = postcard::from_bytes(&bytes).map_err(damaged)?;
    if runs.iter().all(|run| fits(run) && history_fits(&run.history)) {
        Ok(runs)
    } else {
        Err(damaged("it does not fit together"))
    }
}

/// Whether all that a run names is there.
fn fits(run: &Run) -> bool {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR as u64);
    let disks = run.disks.len() <= DISKS_MAX
        && run.disks.iter().all(|disk| {
            let bytes = disk.base.len() as u64;
            let inside = |(at, len): (u64, usize)| {
                let end = at.checked_add(len as u64);
                whole(at) && whole(len as u64) && end.is_some_and(|end| end <= bytes)
            };
            whole(bytes) && disk.writes.iter().all(|w| inside((w.offset, w.data.len())))
        });
    let known = |disk: usize, write: usize| {
        run.disks.get(disk).is_some_and(|disk| write < disk.writes.len())
    };
    disks
        && !run.disks.is_empty()
        && run.events.iter().all(|event| match *event {
            Event::Issued { disk, write }
            | Event::Completed { disk, write }
            | Event::Failed { disk, write } => known(disk, write),
            Event::FlushIssued { disk, .. } | Event::Flushed { disk, .. } => disk < run.disks.len(),
        })
}

fn history_fits(history: &History) -> bool {
    let (calls, objects) = (history.calls.len(), history.objects.len());
    let call = |n: usize| n < calls;
    let object = |n: usize| n < objects;
    let purposes = history.calls.iter().all(|c| match c.purpose {
        Purpose::Fsync(n) => object(n),
        _ => true,
    });
    let things = history.objects.iter().all(|o| {
        let sectors = o.sectors.values().flatten();
        o.sizes.iter().all(|s| call(s.0))
            && o.natures.iter().all(|n| call(n.0))
            && sectors.clone().all(|(n, data)| call(*n) && data.len() == SECTOR)
    });
    let names = history.names.iter().all(|((dir, _), changes)| {
        object(*dir) && changes.iter().all(|c| call(c.call) && c.object.is_none_or(object))
    });
    let vague = history.vague_names.iter().all(|(dir, _)| object(*dir));
    let exchanges = history.exchanges.iter().all(|(n, a, b)| call(*n) && object(*a) && object(*b));
    objects > 0 && purposes && things && names && vague && exchanges
}

/// The contents of a disk without the zeros.
pub(crate) mod sparse {
    use std::sync::Arc;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::DISK_MAX;

    /// The unit in which zeros are left out.
    const PIECE: usize = 4096;

    pub fn serialize<S: Serializer>(bytes: &Arc<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        let pieces = bytes.chunks(PIECE).enumerate();
        let used: Vec<(u64, &[u8])> = pieces
            .filter(|(_, piece)| piece.iter().any(|b| *b != 0))
            .map(|(n, piece)| (n as u64, piece))
            .collect();
        (bytes.len() as u64, used).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Arc<Vec<u8>>, D::Error> {
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
        Ok(Arc::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use ordo_ordering::SyncOrder;
    use proptest::prelude::*;

    use super::*;
    use crate::test_scheme::OnFfs;
    use crate::{Budget, Config, Model, Promise, Script, explore_run, record};

    fn packed() -> (Arc<Run>, String) {
        let sync = OnFfs::new(SyncOrder::default, Promise::SYNC);
        let run = record(&sync, &Script::random(5, 2, 30), &Config::new(5, Model::Volatile));
        let run = Arc::new(run.unwrap());
        let text = pack(std::slice::from_ref(&run)).unwrap();
        (run, text)
    }

    /// What is explored of a run that was kept is what is explored of the run itself.
    #[test]
    fn a_run_that_was_kept_is_the_same() {
        let sync = OnFfs::new(SyncOrder::default, Promise::SYNC);
        let budget = Budget { states: 300, ..Budget::default() };
        let (run, text) = packed();
        let again = &unpack(&text).unwrap()[0];
        assert_eq!(crate::saved::fingerprint(&run), crate::saved::fingerprint(again));
        let counts = |run| explore_run(&sync, run, 5, &budget).counts;
        assert_eq!(counts(&run), counts(again));
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Whatever was done to the bytes of a run, it is refused or can be explored: no panic, no endless memory.
        #[test]
        fn a_damaged_run_is_refused_or_sound(changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..4)) {
            let (run, _) = packed();
            let mut bytes = postcard::to_allocvec(&[run]).unwrap();
            for (at, byte) in changes {
                let at = at as usize % bytes.len();
                bytes[at] = byte;
            }
            let text = STANDARD.encode(zstd::bulk::compress(&bytes, 1).unwrap());
            if let Ok(runs) = unpack(&text) {
                let sync = OnFfs::new(SyncOrder::default, Promise::SYNC);
                let budget = Budget { states: 3, threads: 1, ..Budget::default() };
                explore_run(&sync, &runs[0], 5, &budget);
            }
        }
    }
}

//! Runs as text, for failures of systems whose runs cannot be repeated.
//!
//! The encoding is [Postcard](https://postcard.jamesmunns.com), compressed with zstd, in base64.
//! The contents of a disk at the start are stored without their zeros.

use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::disk::SECTOR;
use crate::history::{History, Purpose};
use crate::run::{Event, Run};
use crate::saved::SavedError;

/// The most bytes of runs that are decoded.
const BYTES_MAX: u64 = 1 << 30;

/// The most disks of a run.
const DISKS_MAX: usize = 4;

/// The level of compression. The writes of a run are mostly similar.
const LEVEL: i32 = 9;

fn damaged(what: impl ToString) -> SavedError {
    SavedError::Damaged(format!("the run in it: {}", what.to_string()))
}

/// Runs as text.
///
/// # Errors
/// [`SavedError::Damaged`], which never happens in practice.
pub fn pack(runs: &[Arc<Run>]) -> Result<String, SavedError> {
    let bytes = postcard::to_allocvec(runs).map_err(damaged)?;
    let small = zstd::bulk::compress(&bytes, LEVEL).map_err(damaged)?;
    Ok(STANDARD.encode(small))
}

/// Runs from text.
///
/// # Errors
/// [`SavedError::Damaged`]: the text is no run, or its parts contradict each other.
pub fn unpack(text: &str) -> Result<Vec<Arc<Run>>, SavedError> {
    let small = STANDARD.decode(text).map_err(damaged)?;
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(&small[..]).map_err(damaged)?;
    decoder.take(BYTES_MAX).read_to_end(&mut bytes).map_err(damaged)?;
    let runs: Vec<Arc<Run>> = postcard::from_bytes(&bytes).map_err(damaged)?;
    if runs.iter().all(|run| fits(run) && history_fits(&run.history)) {
        Ok(runs)
    } else {
        Err(damaged("its parts contradict each other"))
    }
}

/// Whether everything to which a run refers is there.
fn fits(run: &Run) -> bool {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR as u64);
    let disks = run.disks.len() <= DISKS_MAX
        && run.disks.iter().all(|disk| {
            let bytes = disk.base.len();
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
        Purpose::Fsync(n) | Purpose::Fdatasync(n) => object(n),
        _ => true,
    });
    let things = history.objects.iter().all(|o| {
        let sectors = o.sectors.values().flatten();
        o.sizes.iter().all(|s| call(s.0))
            && o.metadata.iter().all(|n| call(n.0))
            && sectors
                .clone()
                .all(|(n, data)| call(*n) && data.as_ref().is_none_or(|data| data.len() == SECTOR))
    });
    let names = history.names.iter().all(|((dir, _), changes)| {
        object(*dir) && changes.iter().all(|c| call(c.call) && c.object.is_none_or(object))
    });
    let indeterminate = history.indeterminate_names.iter().all(|(dir, _)| object(*dir));
    let exchanges = history.exchanges.iter().all(|(n, a, b)| call(*n) && object(*a) && object(*b));
    objects > 0 && purposes && things && names && indeterminate && exchanges
}

#[cfg(test)]
mod tests {
    use ordo_ordering::{NoOrder, SyncOrder};
    use proptest::prelude::*;

    use super::*;
    use crate::test_scheme::OnFfs;
    use crate::{Budget, Config, CrashModel, Promise, Script, explore_run, record};

    fn packed() -> (Arc<Run>, String) {
        let sync = OnFfs::new(SyncOrder::default, Promise::SYNC);
        let run = record(&sync, &Script::random(5, 2, 30), &Config::new(5, CrashModel::Volatile));
        let run = Arc::new(run.unwrap());
        let text = pack(std::slice::from_ref(&run)).unwrap();
        (run, text)
    }

    /// The exploration of a stored run equals that of the run itself.
    #[test]
    fn a_saved_run_gives_the_same_results() {
        let sync = OnFfs::new(SyncOrder::default, Promise::SYNC);
        let budget = Budget { states: 300, ..Budget::default() };
        let (run, text) = packed();
        let again = &unpack(&text).unwrap()[0];
        assert_eq!(crate::saved::fingerprint(&run), crate::saved::fingerprint(again));
        let counts = |run| explore_run(&sync, run, 5, &budget).counts;
        assert_eq!(counts(&run), counts(again));
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
    }

    /// The counts depend neither on the number of threads, nor on results that are kept from
    /// earlier states. The format of this test has no fixed places of inodes. Would catch
    /// comparisons of contents that are kept for a state in which the file may have other bytes.
    #[test]
    fn counts_depend_on_no_thread_and_on_nothing_kept() {
        let none = OnFfs::new(|| NoOrder, Promise::NONE);
        let config = Config::new(5, CrashModel::Volatile);
        let run = Arc::new(record(&none, &Script::random(5, 2, 30), &config).unwrap());
        let counts = |threads, recall| {
            let budget = Budget { states: 300, threads, recall, ..Budget::default() };
            explore_run(&none, &run, 5, &budget).counts
        };
        let afresh = counts(1, false);
        assert!(afresh.stale > 0, "no state has wrong contents: {afresh:?}");
        for (threads, recall) in [(1, true), (2, true), (3, true), (3, false)] {
            assert_eq!(counts(threads, recall), afresh, "{threads} threads, recall {recall}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Whatever bytes of a stored run are changed, it is refused or can be explored, without a
        /// panic or unlimited memory.
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

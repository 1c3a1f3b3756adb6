//! Rows in virtual time, measured in parallel: in virtual time, one measurement does not disturb
//! another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Measures every job, on as many threads as there are processors. Returns the results in the order
/// of the jobs. Only for virtual time: in real time the jobs would disturb each other.
pub fn each<J: Sync, R: Send>(jobs: &[J], measure: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(n) else { break };
                    let result = measure(job);
                    let mut done = done.lock().expect("no thread panics with the lock");
                    done.push((n, result));
                    eprintln!("  {} of {} rows", done.len(), jobs.len());
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread has panicked with the lock");
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

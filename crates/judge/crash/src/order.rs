//! The test whether a state is the one after some number of operations, in their order.
//!
//! A *cut* of a client is a number of its calls: the calls before the cut have their effect in the
//! state, the others do not. The value of each name and inode allows some cuts of the client that
//! changed it. The cuts of all clients are in order if no call is included that began after the
//! return of another call which is not.

use std::collections::BTreeMap;

use crate::expect::Candidate;
use crate::history::{Call, History, Purpose};

/// Ranges of cuts, as first cut and end. A cut is the number of the first call that is not there.
type Ranges = Vec<(usize, usize)>;

/// The cuts that each client may have.
#[derive(Clone, Default)]
pub(crate) struct Cuts(BTreeMap<usize, Ranges>);

impl Cuts {
    /// Notes that one of `found` is there. Each is a value of something that only `client` has
    /// changed.
    pub fn agree<T>(&mut self, client: Option<usize>, found: &[&Candidate<T>]) {
        let Some(client) = client else { return };
        let after = |call: usize| call + 1;
        let range = |c: &&Candidate<T>| (c.call.map_or(0, after), c.next.map_or(usize::MAX, after));
        let ranges: Ranges = found.iter().map(range).collect();
        let left = self.0.entry(client).or_insert_with(|| vec![(0, usize::MAX)]);
        *left = intersect(left, &ranges);
    }

    /// Notes that at least so many of a client's calls are there.
    pub fn at_least(&mut self, client: usize, calls: usize) {
        let left = self.0.entry(client).or_insert_with(|| vec![(0, usize::MAX)]);
        *left = intersect(left, &vec![(calls, usize::MAX)]);
    }

    /// Whether each client may have a cut, whatever the others have.
    pub fn can_be(&self) -> bool {
        self.0.values().all(|ranges| !ranges.is_empty())
    }

    /// Whether there is a cut for every client so that all are in order. `durable` has each
    /// client's last call that must be included. The error says in words why there is none. Each
    /// client gets the smallest cut possible, because that demands the least of the others.
    pub fn judge(&self, history: &History, durable: &BTreeMap<usize, usize>) -> Result<(), String> {
        let mut least: BTreeMap<usize, usize> = BTreeMap::new();
        for client in self.0.keys() {
            let must = durable.get(client).map_or(0, |call| call + 1);
            let cut = self.cut(*client, must).ok_or_else(|| {
                format!(
                    "the operations of client {client} that are there are not a prefix of those that it did"
                )
            })?;
            least.insert(*client, cut);
        }
        loop {
            let mut moved = false;
            for client in self.0.keys() {
                let others = least.iter().filter(|(other, _)| *other != client);
                let last = others.filter_map(|(other, cut)| last_there(history, *other, *cut));
                let Some((other, newest)) = last.max_by_key(|(_, call)| call.began) else {
                    continue;
                };
                let must = after_all_before(history, *client, newest);
                if must <= least[client] {
                    continue;
                }
                let cut = self.cut(*client, must).ok_or_else(|| {
                    format!(
                        "an operation of client {client} is missing, but a later one of client {other} is there: {}",
                        newest.text
                    )
                })?;
                moved |= least.insert(*client, cut) != Some(cut);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// The smallest possible cut of a client that is not below `least`.
    fn cut(&self, client: usize, least: usize) -> Option<usize> {
        let fits = self.0[&client].iter().filter(|(_, end)| *end > least);
        fits.map(|(first, _)| (*first).max(least)).min()
    }
}

fn is_change(call: &Call, client: usize) -> bool {
    let changes = matches!(call.purpose, Purpose::Change | Purpose::InodeMetadata);
    call.client == client && changes && call.ok
}

/// The last call of a client that a cut includes.
fn last_there(history: &History, client: usize, cut: usize) -> Option<(usize, &Call)> {
    let calls = &history.calls[..cut.min(history.calls.len())];
    calls.iter().rfind(|c| is_change(c, client)).map(|c| (client, c))
}

/// The cut of a client behind all calls that had returned when `newest` began.
fn after_all_before(history: &History, client: usize, newest: &Call) -> usize {
    let before = |c: &Call| c.ended.is_some_and(|ended| ended < newest.began);
    history.calls.iter().rposition(|c| is_change(c, client) && before(c)).map_or(0, |at| at + 1)
}

fn intersect(a: &Ranges, b: &Ranges) -> Ranges {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x.0.max(y.0), x.1.min(y.1))));
    pairs.filter(|(from, to)| from < to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of clients 0 and 1 by turns. Each begins after the one before has returned.
    fn history(calls: usize) -> History {
        let call = |n: usize| Call {
            client: n % 2,
            text: format!("call {n}"),
            purpose: Purpose::Change,
            began: 2 * n + 1,
            began_at: 0,
            ended: Some(2 * n + 2),
            ended_at: Some(0),
            ok: true,
        };
        History { calls: (0..calls).map(call).collect(), ..History::default() }
    }

    /// A value that was the newest from `call` until `next`.
    fn found(call: Option<usize>, next: Option<usize>) -> Candidate<()> {
        Candidate { value: (), call, next }
    }

    /// A state with a call of one client, but without another client's call that returned before
    /// it, is out of order. Would catch an oracle that looks at each client separately.
    #[test]
    fn a_call_is_missing_only_with_all_calls_that_began_after_its_return() {
        let judge = |of_0: Candidate<()>, of_1: Candidate<()>| {
            let mut cuts = Cuts::default();
            cuts.agree(Some(0), &[&of_0]);
            cuts.agree(Some(1), &[&of_1]);
            cuts.judge(&history(6), &BTreeMap::new())
        };
        let kept = |result: Result<(), String>| result.is_ok();
        // Client 0 made calls 0, 2 and 4; client 1 made the others.
        assert!(kept(judge(found(Some(2), Some(4)), found(Some(3), Some(5)))));
        assert!(kept(judge(found(Some(2), Some(4)), found(Some(1), Some(3)))));
        assert!(kept(judge(found(Some(2), None), found(Some(3), None))));
        assert!(!kept(judge(found(Some(0), Some(2)), found(Some(3), Some(5)))));
        assert!(!kept(judge(found(Some(4), None), found(None, Some(1)))));
    }

    /// All values that one client set must allow the same cut. Would catch an oracle that accepts
    /// names of two different times.
    #[test]
    fn all_values_of_a_client_allow_one_common_cut() {
        let mut cuts = Cuts::default();
        cuts.agree(Some(0), &[&found(Some(0), Some(2)), &found(Some(4), None)]);
        assert_eq!(cuts.judge(&history(6), &BTreeMap::new()), Ok(()));
        let durable = BTreeMap::from([(0, 2)]);
        assert_eq!(cuts.judge(&history(6), &durable), Ok(()));
        cuts.agree(Some(0), &[&found(Some(2), Some(4))]);
        assert!(cuts.judge(&history(6), &BTreeMap::new()).is_err());
    }
}

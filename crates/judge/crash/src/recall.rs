//! The verdicts on earlier states, for states that differ only in sectors that were not read.
//!
//! A judge of disks comes to the same verdict wherever the sectors that it reads are the same,
//! because the contents of one sector decide which one is read next. The states of a frontier
//! differ only in its choices. So the verdict on one state holds for every state with the same
//! options for those choices whose sectors were read.

use rustc_hash::FxHashMap;

/// The most sets of choices that are kept for a frontier. With more, the search takes longer than
/// it saves.
const SETS_MAX: usize = 24;

/// Verdicts, by the options for one set of choices.
type Known<T> = FxHashMap<Vec<u8>, T>;

/// Verdicts, by the choices that were read.
pub(crate) struct Recall<T> {
    sets: Vec<(Vec<u32>, Known<T>)>,
}

impl<T> Default for Recall<T> {
    fn default() -> Self {
        Recall { sets: Vec::new() }
    }
}

fn options(read: &[u32], state: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend(read.iter().map(|choice| state[*choice as usize]));
}

impl<T> Recall<T> {
    /// The verdict on a state that has the same options as this one in the choices that were read.
    pub fn of(&self, state: &[u8]) -> Option<&T> {
        let mut key = Vec::new();
        self.sets.iter().find_map(|(read, known)| {
            options(read, state, &mut key);
            known.get(&key)
        })
    }

    /// Keeps the verdict on a state of which these choices were `read`, in ascending order.
    pub fn keep(&mut self, read: Vec<u32>, state: &[u8], value: T) {
        let mut key = Vec::new();
        options(&read, state, &mut key);
        let place = self.sets.iter().position(|(set, _)| *set == read);
        let place = place.or_else(|| {
            let remaining = self.sets.len() < SETS_MAX;
            remaining.then(|| self.sets.push((read, FxHashMap::default())))?;
            Some(self.sets.len() - 1)
        });
        if let Some(place) = place {
            self.sets[place].1.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_differ_in_unread_sectors_share_a_verdict() {
        let mut recall = Recall::default();
        recall.keep(vec![0, 2], &[1, 7, 3, 9], "a");
        assert_eq!(recall.of(&[1, 0, 3, 0]), Some(&"a"));
        assert_eq!(recall.of(&[1, 7, 2, 9]), None);
        recall.keep(vec![0], &[2, 0, 0, 0], "b");
        assert_eq!(recall.of(&[2, 5, 5, 5]), Some(&"b"));
        for n in 0..100 {
            recall.keep(vec![n], &[0; 100], "c");
        }
        assert!(recall.sets.len() <= SETS_MAX);
    }
}

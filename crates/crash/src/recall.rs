//! What was found of states that differ only where nobody looked.
//!
//! Whoever looks at disks finds the same wherever they hold the same in the sectors that were read: what a sector
//! says decides which one is read next. The states of a frontier differ in its choices alone. So what came of one is
//! what comes of every state with the same options for those choices whose sectors were read.

use rustc_hash::FxHashMap;

/// Sets of choices that are told apart at a frontier: beyond so many, looking them up takes longer than it saves.
const SETS_MAX: usize = 24;

/// What came of states, by the options for one set of choices.
type Known<T> = FxHashMap<Vec<u8>, T>;

/// What came of states, by the choices that were read.
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
    /// What came of a state that is like this one where it was read.
    pub fn of(&self, state: &[u8]) -> Option<&T> {
        let mut key = Vec::new();
        self.sets.iter().find_map(|(read, known)| {
            options(read, state, &mut key);
            known.get(&key)
        })
    }

    /// Keeps what came of a state of which these choices were `read`, in ascending order.
    pub fn keep(&mut self, read: Vec<u32>, state: &[u8], value: T) {
        let mut key = Vec::new();
        options(&read, state, &mut key);
        let place = self.sets.iter().position(|(set, _)| *set == read);
        let place = place.or_else(|| {
            let room = self.sets.len() < SETS_MAX;
            room.then(|| self.sets.push((read, FxHashMap::default())))?;
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
    fn what_was_not_read_makes_no_difference() {
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

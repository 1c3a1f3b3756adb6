//! The owner of each block of a device, as runs of blocks.

use std::collections::BTreeMap;

use crate::decoder::Contents;
use crate::kind::Class;

/// The role of blocks in their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Contents of the file.
    Data {
        /// The logical block of the run's first block.
        lbn: u64,
    },
    /// Indirect blocks or extent nodes. `level` 1 is nearest to the contents. `extents` tells
    /// extent nodes from indirect blocks. `lbn` is the logical block to which the first pointer
    /// leads.
    Map { level: u8, extents: bool, lbn: u64 },
    /// Extended attributes.
    Attributes,
}

/// Blocks of one file that are consecutive on the device and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The root or node that claims the blocks.
    pub(crate) by: u64,
    pub(crate) ino: u64,
    pub(crate) class: Class,
    pub(crate) role: Role,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The part of the run from `from` to `to`.
    fn cut(&self, from: u64, to: u64) -> Run {
        let role = match self.role {
            Role::Data { lbn } => Role::Data { lbn: lbn + (from - self.start) },
            other => other,
        };
        Run { start: from, len: to - from, role, ..*self }
    }

    /// Whether `next` continues the run.
    fn goes_on(&self, next: &Run) -> bool {
        let Role::Data { lbn } = self.role else { return false };
        self.end() == next.start
            && (self.by, self.ino) == (next.by, next.ino)
            && self.class == next.class
            && next.role == Role::Data { lbn: lbn + self.len }
    }
}

/// The owners of all blocks with a known owner. Runs do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<u64, Run>,
}

impl Runs {
    /// The run that contains a block.
    pub(crate) fn at(&self, block: u64) -> Option<&Run> {
        let (_, run) = self.by_start.range(..=block).next_back()?;
        (block < run.end()).then_some(run)
    }

    /// Whether any of these blocks has an owner.
    pub(crate) fn any(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.at(start).is_some() || self.by_start.range(start..end).next().is_some()
    }

    /// Gives blocks to a file; a previous owner loses them.
    pub(crate) fn claim(&mut self, mut run: Run) {
        if run.len == 0 {
            return;
        }
        self.clear(run.start, run.end(), |_| true);
        if let Some((_, before)) = self.by_start.range(..run.start).next_back()
            && before.goes_on(&run)
        {
            let before = *before;
            self.by_start.remove(&before.start);
            run = Run { len: before.len + run.len, ..before };
        }
        if let Some(after) = self.by_start.get(&run.end())
            && run.goes_on(after)
        {
            let after = *after;
            self.by_start.remove(&after.start);
            run.len += after.len;
        }
        self.by_start.insert(run.start, run);
    }

    /// Takes back the claim of `by` to these blocks.
    pub(crate) fn release(&mut self, start: u64, len: u64, by: u64) {
        self.clear(start, start.saturating_add(len), |run| run.by == by);
    }

    fn clear(&mut self, from: u64, to: u64, mine: impl Fn(&Run) -> bool) {
        let first = self.by_start.range(..=from).next_back().map_or(from, |(start, _)| *start);
        while let Some(run) = self
            .by_start
            .range(first..to)
            .map(|(_, run)| *run)
            .find(|run| run.end() > from && mine(run))
        {
            self.by_start.remove(&run.start);
            if run.start < from {
                let rest = run.cut(run.start, from);
                self.by_start.insert(rest.start, rest);
            }
            if run.end() > to {
                let rest = run.cut(to, run.end());
                self.by_start.insert(rest.start, rest);
            }
        }
    }

    /// The ranges that hold a file's contents.
    pub(crate) fn contents(&self, ino: u64, shift: u32) -> Vec<Contents> {
        let of = |run: &Run| match run.role {
            Role::Data { lbn } if run.ino == ino && run.class == Class::FileData => {
                Some(Contents {
                    at: lbn << shift,
                    offset: run.start << shift,
                    len: run.len << shift,
                })
            }
            _ => None,
        };
        self.iter().filter_map(of).collect()
    }

    /// Every run, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.by_start.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(start: u64, len: u64, ino: u64, lbn: u64) -> Run {
        Run { start, len, by: ino, ino, class: Class::FileData, role: Role::Data { lbn } }
    }

    /// Claims that overlap, contain or touch each other, and releases, are compared with a model
    /// that has one owner for each block.
    #[test]
    fn a_block_has_one_owner() {
        let mut runs = Runs::default();
        let who = |runs: &Runs| {
            (0..12)
                .map(|b| {
                    let run = runs.at(b)?;
                    let Role::Data { lbn } = run.role else { return None };
                    Some((run.ino, lbn + b - run.start))
                })
                .collect::<Vec<_>>()
        };
        runs.claim(data(2, 4, 1, 0));
        runs.claim(data(6, 2, 1, 4));
        assert_eq!(runs.iter().count(), 1, "what follows is one run");
        runs.claim(data(4, 2, 2, 9));
        runs.release(3, 5, 2);
        let mut expected = vec![None; 12];
        for (block, lbn) in [(2, 0), (3, 1), (6, 4), (7, 5)] {
            expected[block] = Some((1, lbn));
        }
        assert_eq!(who(&runs), expected);
        runs.claim(data(0, 1, 3, 0));
        runs.release(0, 12, 1);
        assert_eq!(who(&runs)[0], Some((3, 0)));
        assert_eq!(runs.iter().count(), 1);
    }
}

//! The bench: a recording with everything from which its states are made and judged.

use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ordo_crash::Run;
use ordo_crash::base::Base;
use ordo_crash::disk::SECTOR;
use ordo_crash::space::{CrashState, Pick, Space};
use rustc_hash::{FxHashMap, FxHasher};

use crate::ProgramError;
use crate::check::{Check, CheckAnswer};
use crate::explore::Wrong;
use crate::judged::{Judged, JudgedState, RecoveryCut, StateResult};
use crate::marks::Promises;
use crate::record::{Meaning, Recorded, WORK};
use crate::stand::Stand;
use crate::tree::FileTree;

/// The results that are known already, by disk and by tree.
#[derive(Default)]
pub(crate) struct Known {
    /// The tree to which each disk recovers, as a sum of names and contents.
    pub trees: FxHashMap<u128, Result<u128, String>>,
    answers: FxHashMap<(u128, u64), StateResult>,
}

impl Known {
    /// Notes the results of an earlier search.
    pub fn note(&mut self, judged: &Judged) {
        for state in &judged.states {
            match (&state.result, state.tree) {
                (StateResult::Unsound(why), _) => {
                    self.trees.insert(state.image, Err(why.clone()));
                }
                (result, Some(tree)) => {
                    self.trees.insert(state.image, Ok(tree));
                    self.answers.insert((tree, state.promises), result.clone());
                }
                (_, None) => {}
            }
        }
    }
}

/// The disk in one state.
#[derive(Clone, Copy)]
pub(crate) struct StateDisk<'a> {
    /// The contents of each disk before the first request.
    pub start: &'a [Arc<Base>],
    /// The sectors that differ.
    pub state: &'a CrashState<'a>,
    /// A sum of the contents, which is another one for another disk.
    pub image: u128,
}

impl StateDisk<'_> {
    /// The parts of a disk that were ever written: the first byte and the contents of each.
    pub fn over(&self, disk: usize) -> impl Iterator<Item = (u64, &[u8])> {
        self.state.sectors(disk).map(|(n, data)| (n * SECTOR as u64, &data[..]))
    }
}

/// A recording, with everything from which its states are made.
pub(crate) struct Bench<'a> {
    pub recorded: &'a Recorded,
    pub check: &'a Check,
    pub space: Space,
    unit: usize,
    pub start: Vec<Arc<Base>>,
    known: Mutex<Known>,
    /// The number of recoveries recorded so far; locked while one is recorded, since that takes
    /// memory.
    recoveries: Mutex<u32>,
}

pub(crate) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The contents of the disks before the first request of a run.
pub(crate) fn starts(run: &Run) -> Vec<Arc<Base>> {
    run.disks.iter().map(|disk| disk.base.clone()).collect()
}

/// For each write of each disk, the group with which it is lost or kept: contents of one file, or
/// parts of one structure. The writes of two disks are never of one group.
pub(crate) fn groups(meanings: &[Vec<Meaning>]) -> Vec<Vec<u64>> {
    let of_disk = |(disk, meanings): (usize, &Vec<Meaning>)| {
        let group = |meaning: &Meaning| hash_of((disk, meaning.class, &meaning.path));
        meanings.iter().map(group).collect()
    };
    meanings.iter().enumerate().map(of_disk).collect()
}

/// The check's answer in a state: an earlier one for the same tree, or a new one.
enum Answered {
    Before(StateResult),
    Now(CheckAnswer),
}

/// A tree's sum if it could be read, and the check's answer; or the reason why the state cannot be
/// mounted.
type Seen = Result<(Option<u128>, Answered), String>;

impl<'a> Bench<'a> {
    pub fn new(recorded: &'a Recorded, check: &'a Check, unit: usize) -> Bench<'a> {
        let space = Space::new(recorded.run.clone(), unit);
        let start = starts(&recorded.run);
        let (known, recoveries) = (Mutex::default(), Mutex::default());
        Bench { recorded, check, space, unit, start, known, recoveries }
    }

    pub fn stand(&self, number: u8) -> Result<Stand, ProgramError> {
        Stand::new(&self.recorded.system, u32::from(number))
    }

    /// The size in bytes that the disk never tears.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The turn to record a recovery, and the number of those before it.
    pub fn recovery_turn(&self) -> MutexGuard<'_, u32> {
        self.recoveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The promises after the first `events` events.
    pub fn promises(&self, events: usize) -> Promises {
        Promises::at(&self.recorded.marks, events)
    }

    pub fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Mounts a state and runs the check in it, unless the answer is known for its tree.
    fn seen(
        &self,
        stand: &Stand,
        disk: StateDisk<'_>,
        promises: &Promises,
    ) -> Result<Seen, ProgramError> {
        stand.put(disk)?;
        let seen = stand.look(|dir| -> Result<(Option<u128>, Answered), ProgramError> {
            let work = dir.join(WORK);
            let sum = FileTree::of(&work, self.check.sees_times).ok().map(|tree| tree.sum());
            let known = sum.and_then(|sum| {
                self.known(|known| known.answers.get(&(sum, hash_of(promises))).cloned())
            });
            if let Some(result) = known {
                return Ok((sum, Answered::Before(result)));
            }
            Ok((sum, Answered::Now(self.asked_in(stand, &work, promises)?)))
        })?;
        match seen {
            Ok(done) => done.map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }

    fn asked_in(
        &self,
        stand: &Stand,
        work: &Path,
        promises: &Promises,
    ) -> Result<CheckAnswer, ProgramError> {
        stand.checks.set(stand.checks.get() + 1);
        self.check.run(work, promises, stand.number)
    }

    /// Mounts a state and runs the check in it, whatever is known. The inner error says why the
    /// state cannot be mounted.
    fn asked(
        &self,
        stand: &Stand,
        disk: StateDisk<'_>,
        promises: &Promises,
    ) -> Result<Result<CheckAnswer, String>, ProgramError> {
        stand.put(disk)?;
        stand
            .look(|dir| self.asked_in(stand, &dir.join(WORK), promises))?
            .map_or_else(|why| Ok(Err(why)), |answer| answer.map(Ok))
    }

    /// Runs the check in the state after the command's end, in which nothing is lost, with all
    /// promises. Returns the reason why it does not pass; `None` if it does.
    pub fn control(&self) -> Result<Option<String>, ProgramError> {
        let Some(last) = self.space.frontiers().checked_sub(1) else { return Ok(None) };
        let Some(pick) = self.space.everything(last) else { return Ok(None) };
        let (stand, promises) = (self.stand(0)?, self.promises(usize::MAX));
        let asked = self.with(&pick, &[], |disk| self.asked(&stand, disk, &promises));
        Ok(match asked.transpose()? {
            None | Some(Ok(CheckAnswer::Kept)) => None,
            Some(Ok(CheckAnswer::Broken(said))) => Some(format!("exit status 1: {said}")),
            Some(Ok(CheckAnswer::Failed(said))) => Some(said),
            Some(Ok(CheckAnswer::TimedOut)) => Some("it does not end in time".to_owned()),
            Some(Err(why)) => Some(format!("the state cannot be mounted: {why}")),
        })
    }

    /// Judges a state, from earlier results if its disk or its tree has been seen before.
    pub fn judge(
        &self,
        stand: &Stand,
        disk: StateDisk<'_>,
        promises: &Promises,
    ) -> Result<JudgedState, ProgramError> {
        let (image, key) = (disk.image, hash_of(promises));
        let judged =
            |result, tree| JudgedState { cuts: Vec::new(), result, image, tree, promises: key };
        let known = self.known(|known| match known.trees.get(&image)? {
            Err(why) => Some((StateResult::Unsound(why.clone()), None)),
            Ok(tree) => Some((known.answers.get(&(*tree, key))?.clone(), Some(*tree))),
        });
        if let Some((result, tree)) = known {
            return Ok(judged(result, tree));
        }
        let (tree, answered) = match self.seen(stand, disk, promises)? {
            Ok(seen) => seen,
            Err(why) => {
                self.known(|known| known.trees.insert(image, Err(why.clone())));
                return Ok(judged(StateResult::Unsound(why), None));
            }
        };
        let result = match answered {
            Answered::Before(result) => result,
            Answered::Now(CheckAnswer::Broken(said)) => {
                self.confirmed(stand, disk, promises, said)?
            }
            Answered::Now(answer) => StateResult::Checked(answer),
        };
        let Some(sum) = tree else { return Ok(judged(result, None)) };
        // Another stand may have judged the same tree meanwhile. Then its result holds, and it
        // holds whole.
        let result = self.known(|known| {
            known.trees.insert(image, Ok(sum));
            known.answers.entry((sum, key)).or_insert(result).clone()
        });
        Ok(judged(result, tree))
    }

    /// The result of a state of which the check reports a broken promise: it must report it again,
    /// in the same state made anew.
    fn confirmed(
        &self,
        stand: &Stand,
        disk: StateDisk<'_>,
        promises: &Promises,
        said: String,
    ) -> Result<StateResult, ProgramError> {
        let again = self.asked(stand, disk, promises)?;
        Ok(match again.is_ok_and(|answer| answer.is_broken()) {
            true => StateResult::Broken(self.wrong(stand, disk, promises)?, said),
            false => StateResult::Flaky(said),
        })
    }

    /// The kind of failure of a state that breaks promises: whether it would pass without any
    /// promise.
    fn wrong(
        &self,
        stand: &Stand,
        disk: StateDisk<'_>,
        promises: &Promises,
    ) -> Result<Wrong, ProgramError> {
        let without = self.asked(stand, disk, &promises.none())?;
        Ok(match without {
            Ok(answer) if !answer.is_broken() => Wrong::LostDurable,
            _ => Wrong::NotAtomic,
        })
    }

    /// Calls `with` with the disk in the state of a pick, or in the state that the last of some
    /// cuts during recoveries left; `None` if there is no such state.
    pub fn with<T>(
        &self,
        pick: &Pick,
        cuts: &[RecoveryCut],
        with: impl FnOnce(StateDisk<'_>) -> T,
    ) -> Option<T> {
        let Some(last) = cuts.last() else {
            return self.space.with(pick, |state| {
                with(StateDisk { start: &self.start, state: &state, image: state.sum() })
            });
        };
        let start = starts(&last.recovery.run);
        let space = Space::new(last.recovery.run.clone(), self.unit);
        // The sum of a state counts only the places that the recovery wrote, so it belongs to that
        // recovery.
        let of = hash_of(kept_before(pick, cuts));
        space.with(&last.pick, |state| {
            with(StateDisk { start: &start, state: &state, image: nested(u128::from(of), &state) })
        })
    }

    /// Judges one state; `None` if there is no such state.
    pub fn result_of(
        &self,
        stand: &Stand,
        pick: &Pick,
        cuts: &[RecoveryCut],
    ) -> Result<Option<StateResult>, ProgramError> {
        let promises = self.promises(pick.events);
        let judged = self.with(pick, cuts, |disk| self.judge(stand, disk, &promises));
        Ok(judged.transpose()?.map(|judged| judged.result))
    }

    /// Judges one state. Returns its kind of failure and the check's output.
    pub fn judge_pick(
        &self,
        stand: &Stand,
        pick: &Pick,
        cuts: &[RecoveryCut],
    ) -> Result<Option<(Wrong, String)>, ProgramError> {
        let result = self.result_of(stand, pick, cuts)?;
        Ok(result.and_then(|result| result.failure().map(|(wrong, said)| (wrong, said.to_owned()))))
    }

    /// Mounts a state, and calls `look` with the program's directory in it.
    pub fn look<T>(
        &self,
        stand: &Stand,
        pick: &Pick,
        cuts: &[RecoveryCut],
        look: impl FnOnce(&Path) -> T,
    ) -> Result<Option<T>, ProgramError> {
        let looked = self.with(pick, cuts, |disk| {
            stand.put(disk)?;
            stand.look(|dir| look(&dir.join(WORK)))
        });
        Ok(looked.transpose()?.and_then(Result::ok))
    }

    /// Writes a state to files, one for each disk in order; `None` if there is no such state.
    pub fn write(
        &self,
        files: &[std::fs::File],
        pick: &Pick,
        cuts: &[RecoveryCut],
    ) -> Option<std::io::Result<()>> {
        self.with(pick, cuts, |disk| {
            let mut disks = files.iter().zip(disk.start).enumerate();
            disks.try_for_each(|(n, (file, start))| start.write(file, disk.over(n)))
        })
    }
}

/// The picks before the last cut.
fn kept_before<'p>(pick: &'p Pick, cuts: &'p [RecoveryCut]) -> Vec<(usize, &'p [u8])> {
    let cuts = cuts[..cuts.len() - 1].iter().map(|cut| (cut.pick.frontier, &cut.pick.state[..]));
    std::iter::once((pick.frontier, &pick.state[..])).chain(cuts).collect()
}

/// The sum of a disk after a cut during the recovery of another disk, of which `of` is the sum.
pub(crate) fn nested(of: u128, state: &CrashState<'_>) -> u128 {
    // An odd factor keeps the sums of different disks apart.
    of.wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        .wrapping_add(state.sum())
}

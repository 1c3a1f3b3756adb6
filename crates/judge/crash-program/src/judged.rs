//! The result of a state, with those of power cuts during its recovery, in the form in which a
//! search keeps it.

use std::sync::Arc;

use ordo_crash::Run;
use ordo_crash::space::Pick;
use serde::{Deserialize, Serialize};

use crate::check::CheckAnswer;
use crate::explore::Wrong;
use crate::record::Meaning;

/// The recovery of a state, recorded: every write and flush from the mount to the end of the
/// unmount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedRecovery {
    /// The requests; the disk at the start is the state.
    #[serde(with = "packed")]
    pub run: Arc<Run>,
    /// For each disk, the meaning of each write.
    pub meanings: Vec<Vec<Meaning>>,
    /// The time of each event, in nanoseconds since the recovery began.
    pub times: Vec<u64>,
}

/// A power cut during a recovery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryCut {
    /// The recovery.
    pub recovery: Arc<RecordedRecovery>,
    /// The state that the cut left.
    pub pick: Pick,
}

/// The result of one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateResult {
    /// The state cannot be mounted, for this reason.
    Unsound(String),
    /// Everything promised is there, or the check gave no answer. It is never
    /// [`CheckAnswer::Broken`].
    Checked(CheckAnswer),
    /// The check reported a broken promise twice: the kind of failure, and the output.
    Broken(Wrong, String),
    /// The check reported a broken promise once, with this output, and not when it ran again in the
    /// same state.
    Flaky(String),
}

impl StateResult {
    /// Whether everything promised is there.
    pub fn is_kept(&self) -> bool {
        matches!(self, StateResult::Checked(CheckAnswer::Kept))
    }

    /// The kind of failure and its description, if the state fails.
    pub fn failure(&self) -> Option<(Wrong, &str)> {
        match self {
            StateResult::Unsound(why) => Some((Wrong::Unsound, why)),
            StateResult::Broken(wrong, said) => Some((*wrong, said)),
            StateResult::Checked(_) | StateResult::Flaky(_) => None,
        }
    }
}

/// One state that was judged: the state of a pick, or one that a cut during its recovery left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JudgedState {
    /// The cuts during recoveries, each by the index of its recovery. Empty for the pick's own
    /// state.
    pub cuts: Vec<(usize, Pick)>,
    /// The result.
    pub result: StateResult,
    /// The disk, as a sum of its contents.
    pub image: u128,
    /// The names and contents after recovery, as a sum; `None` if they could not be read.
    pub tree: Option<u128>,
    /// The promises, as a hash.
    pub promises: u64,
}

/// The results for one pick of a search.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Judged {
    /// The number of the pick among all that were chosen.
    pub number: u64,
    /// The pick's own state, and after it the states of cuts during its recovery.
    pub states: Vec<JudgedState>,
    /// The recoveries. Those in which no state failed are left out of the stored form.
    pub recoveries: Vec<Option<Arc<RecordedRecovery>>>,
    /// The number of runs of the check.
    pub checks: u64,
}

impl Judged {
    /// Drops the recoveries to which no failing state belongs.
    pub(crate) fn keep_failing(&mut self) {
        let failing = self.states.iter().filter(|state| state.result.failure().is_some());
        let used: Vec<usize> = failing.flat_map(|s| s.cuts.iter().map(|(n, _)| *n)).collect();
        for (n, recovery) in self.recoveries.iter_mut().enumerate() {
            if !used.contains(&n) {
                *recovery = None;
            }
        }
    }

    /// The cuts of a failing state.
    pub(crate) fn cuts(&self, state: &JudgedState) -> Vec<RecoveryCut> {
        let cut = |(n, pick): &(usize, Pick)| {
            let recovery = self.recoveries.get(*n)?.clone()?;
            Some(RecoveryCut { recovery, pick: pick.clone() })
        };
        state.cuts.iter().filter_map(cut).collect()
    }
}

/// A run in the form of [`ordo_crash::kept`].
mod packed {
    use std::sync::Arc;

    use ordo_crash::{Run, kept};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    pub fn serialize<S: Serializer>(run: &Arc<Run>, to: S) -> Result<S::Ok, S::Error> {
        let text = kept::pack(std::slice::from_ref(run)).map_err(ser::Error::custom)?;
        text.serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Arc<Run>, D::Error> {
        let runs = kept::unpack(&String::deserialize(from)?).map_err(de::Error::custom)?;
        runs.into_iter().next().ok_or_else(|| de::Error::custom("no run"))
    }
}

//! A failure as a file: all that it takes to see it again.

use serde::{Deserialize, Serialize};

use crate::record::{Event, Run};
use crate::{Geometry, Model, Point, Script};

/// What the head of a failure file says.
const FORMAT: &str = "ordo crash failure 1";

/// A failure that can be repeated: the run is made again from its seed, and the state put together from
/// the same choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// What kind of file this is.
    pub format: String,
    /// The system.
    pub system: String,
    /// The system whose promise it is held to, where it is not its own.
    pub held_to: Option<String>,
    /// What the disk may lose.
    pub model: Model,
    /// The seed of the run.
    pub seed: u64,
    /// The size of the first disk in bytes.
    pub bytes: u64,
    /// The shape of the file system, where it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometry: Option<Geometry>,
    /// Whether blocks stay in the cache as long as in a mounted file system.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub real_ages: bool,
    /// What was done, where it is not a script.
    pub workload: String,
    /// What each client did, where it is one.
    pub script: Option<Script>,
    /// The rules that the run followed.
    pub rules: Vec<String>,
    /// The state, and the states of recoveries that were cut off.
    pub path: Vec<Point>,
    /// How the lives before ended: what was under way, and what of it was on the disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The run, and the recoveries that were cut off, where they cannot be made again; see [`mod@crate::kept`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// What is wrong with it.
    pub broken: Vec<String>,
    /// What was under way, and what of it was on the disks.
    pub picture: Vec<String>,
    /// Stands for every request of the run.
    pub run: u32,
    /// Stands for all of the above.
    pub check: u32,
}

/// Why a failure file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// Not one, or cut short.
    #[error("not a whole failure file: {0}")]
    Damaged(String),
    /// Changed by somebody.
    #[error("the failure file was changed after it was written: its sum is wrong")]
    Sum,
    /// The run that it describes is another one now.
    #[error(
        "the run that this failure is from cannot be made again: the system writes something else \
         now (it was changed since); explore it anew with --seed {seed}"
    )]
    OtherRun {
        /// Its seed.
        seed: u64,
    },
    /// The run has no such state.
    #[error("the run has no such state: the file is not from this version")]
    NoState,
}

impl Saved {
    /// As text, sealed.
    ///
    /// # Errors
    /// As `serde_json`, never in fact.
    pub fn seal(mut self) -> Result<String, serde_json::Error> {
        self.format = FORMAT.into();
        self.check = self.sum()?;
        serde_json::to_string_pretty(&self).map(|text| text + "\n")
    }

    /// From text.
    ///
    /// # Errors
    /// [`SavedError::Damaged`], [`SavedError::Sum`].
    pub fn parse(text: &str) -> Result<Saved, SavedError> {
        let damaged = |what: String| SavedError::Damaged(what);
        let saved: Saved = serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
        if saved.format != FORMAT {
            return Err(damaged(format!("its format is {:?}, not {FORMAT:?}", saved.format)));
        }
        let sum = saved.sum().map_err(|e| damaged(e.to_string()))?;
        if sum == saved.check { Ok(saved) } else { Err(SavedError::Sum) }
    }

    /// The shape of the file system, and its size.
    pub fn geometry(&self) -> Geometry {
        self.geometry.clone().unwrap_or_default().sized(self.bytes)
    }

    fn sum(&self) -> Result<u32, serde_json::Error> {
        let text = serde_json::to_string(&Saved { check: 0, ..self.clone() })?;
        Ok(crc32c::crc32c(text.as_bytes()))
    }
}

/// A number that stands for every request of a run.
pub fn fingerprint(run: &Run) -> u32 {
    let mut sum = 0;
    let mut add = |bytes: &[u8]| sum = crc32c::crc32c_append(sum, bytes);
    for write in run.disks.iter().flat_map(|d| &d.writes) {
        add(&write.offset.to_le_bytes());
        add(&[u8::from(write.fua)]);
        add(&write.data);
    }
    for event in &run.events {
        let (kind, disk, number) = match *event {
            Event::Issued { disk, write } => (0, disk, write as u64),
            Event::Completed { disk, write } => (1, disk, write as u64),
            Event::FlushIssued { disk, id } => (2, disk, id),
            Event::Flushed { disk, id } => (3, disk, id),
            Event::Failed { disk, write } => (4, disk, write as u64),
        };
        add(&[kind, disk as u8]);
        add(&number.to_le_bytes());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was cut, or in which any byte that means something was changed, is refused.
    #[test]
    fn damaged_failures_are_refused() {
        let saved = Saved {
            format: String::new(),
            system: "ffs-none".into(),
            held_to: None,
            model: Model::Prefix,
            seed: 7,
            bytes: 1 << 20,
            geometry: Some(Geometry::of(8192, 1024)),
            real_ages: true,
            workload: String::new(),
            script: Some(Script::random(1, 1, 3)),
            rules: Vec::new(),
            path: vec![Point { frontier: 3, state: vec![0, 1, 2] }],
            before: Vec::new(),
            recorded: None,
            broken: vec!["something".into()],
            picture: Vec::new(),
            run: 12,
            check: 0,
        };
        let text = saved.clone().seal().unwrap();
        assert_eq!(Saved::parse(&text).unwrap().path, saved.path);
        for end in 0..text.len() - 2 {
            assert!(Saved::parse(&text[..end]).is_err());
        }
        let digits = text.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit());
        for (at, digit) in digits {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if digit == b'1' { b'2' } else { b'1' };
            assert!(Saved::parse(std::str::from_utf8(&bytes).unwrap()).is_err(), "byte {at}");
        }
    }
}

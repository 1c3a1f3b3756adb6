//! A failure as a file, with everything that is needed to repeat it.

use serde::{Deserialize, Serialize};

use crate::run::{Event, Run};
use crate::{CachePlan, CrashModel, FsGeometry, Point, Script};

/// The format in the head of a failure file.
const FORMAT: &str = "ordo crash failure 3";

/// A failure that can be repeated: the run is made again from its seed, and the state from the same
/// choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The format of the file.
    pub format: String,
    /// The system.
    pub system: String,
    /// The system to whose promise it is held. By default that is its own.
    pub held_to: Option<String>,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The seed of the run.
    pub seed: u64,
    /// The size of the first disk in bytes.
    pub bytes: u64,
    /// The shape of the file system, if it is not the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometry: Option<FsGeometry>,
    /// The cache.
    #[serde(flatten)]
    pub cache: CachePlan,
    /// The workload, if it is not a script.
    pub workload: String,
    /// The script, if it is one.
    pub script: Option<Script>,
    /// The rules that the run followed.
    pub rules: Vec<String>,
    /// The state, and the states of interrupted recoveries.
    pub path: Vec<Point>,
    /// The ends of the crash cycles before: the calls and writes that were under way, and which of
    /// the writes are on the disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The run, and the interrupted recoveries, if they cannot be repeated; see
    /// [`mod@crate::kept`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// The broken promises.
    pub broken: Vec<String>,
    /// The calls and writes that were under way, and which of the writes are on the disks.
    pub picture: Vec<String>,
    /// A fingerprint of every request of the run.
    pub run: u32,
    /// A checksum of all fields above.
    pub check: u32,
}

/// The reason why a failure file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The file is no failure file, or was cut short.
    #[error("not a complete failure file: {0}")]
    Damaged(String),
    /// The file was changed after it was written.
    #[error("the failure file was changed after it was written: its checksum is wrong")]
    Sum,
    /// The run is now a different one.
    #[error(
        "the run of this failure cannot be repeated: the system has changed since and makes other writes; \
         explore it again with --seed {seed}"
    )]
    OtherRun {
        /// The seed of the run.
        seed: u64,
    },
    /// The run has no such state.
    #[error("the run has no such state: the file is not from this version")]
    NoState,
}

impl Saved {
    /// The failure as text, with its checksum.
    ///
    /// # Errors
    /// An error of `serde_json`, which never happens in practice.
    pub fn seal(mut self) -> Result<String, serde_json::Error> {
        self.format = FORMAT.into();
        self.check = self.sum()?;
        serde_json::to_string_pretty(&self).map(|text| text + "\n")
    }

    /// Parses a failure.
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
    pub fn geometry(&self) -> FsGeometry {
        self.geometry.clone().unwrap_or_default().sized(self.bytes)
    }

    fn sum(&self) -> Result<u32, serde_json::Error> {
        let text = serde_json::to_string(&Saved { check: 0, ..self.clone() })?;
        Ok(crc32c::crc32c(text.as_bytes()))
    }
}

/// A fingerprint of every request of a run.
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

    /// A file that was cut, or in which any byte with a meaning was changed, is refused.
    #[test]
    fn damaged_failures_are_refused() {
        let saved = Saved {
            format: String::new(),
            system: "ffs-none".into(),
            held_to: None,
            model: CrashModel::Prefix,
            seed: 7,
            bytes: 1 << 20,
            geometry: Some(FsGeometry::of(8192, 1024)),
            cache: CachePlan { real_ages: true, cache_blocks: Some(12), write_unit: Some(512) },
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

//! Workloads beside the programs that they stand for: the mix of operations of each is held to that
//! of a recording.
//!
//! The recordings are counts of the system calls of real programs, which `recordings/record.sh`
//! runs under strace. A workload is accepted if its mix is near the recording's ([`DISTANCE`]) and
//! it has about as many operations for a unit of work ([`FACTOR`]), both for all operations and for
//! those alone that change something. The bytes are compared too, and do not decide: those of a
//! build depend on the program that is built.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_runtime::{Executor, Runtime};
use ordo_trace::strace::Syscall;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{FsResult, Timestamp};
use serde::{Deserialize, Serialize};

use crate::mix::{Counting, FileOperation, JoinedCalls, Mix};
use ordo_workload::{ParseError, Phase, PhaseListener, Workload, WorkloadError, WorkloadStage};

/// The greatest distance of an accepted mix from the recording's.
pub const DISTANCE: f64 = 0.10;
/// The greatest factor between the operations for a unit of work of an accepted workload and of the
/// recording.
pub const FACTOR: f64 = 1.33;
/// The smallest number of changes, and of bytes, for a unit of work that is compared.
const FEW_OPERATIONS: f64 = 0.01;
const FEW_BYTES: f64 = 100.0;

/// The calls of a real program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramRecording {
    /// The program with its version, and the size of its work.
    pub program: String,
    /// The number of units of work: transactions, messages, files compiled.
    pub units: u64,
    /// The calls that count as one operation.
    pub joined: JoinedCalls,
    /// The counts.
    #[serde(flatten)]
    pub mix: Mix,
}

impl ProgramRecording {
    /// Reads a recording.
    ///
    /// # Errors
    /// The text is not a recording.
    pub fn parse(text: &str) -> Result<ProgramRecording, toml::de::Error> {
        toml::from_str(text)
    }

    /// A recording of calls.
    pub fn of_calls(
        program: String,
        units: u64,
        calls: &[Syscall],
        joined: JoinedCalls,
    ) -> ProgramRecording {
        ProgramRecording { program, units, joined, mix: Mix::of_calls(calls, joined) }
    }

    /// The recording as text.
    pub fn text(&self) -> String {
        let Mix { operations, bytes_read, bytes_written } = &self.mix;
        let ProgramRecording { program, units, joined, .. } = self;
        let joined = if *joined == JoinedCalls::Files { "files" } else { "ranges" };
        let counts: BTreeMap<_, _> = operations.iter().map(|(of, n)| (of.key(), n)).collect();
        let counts: String = counts.iter().map(|(key, n)| format!("{key} = {n}\n")).collect();
        format!(
            "program = \"{program}\"\nunits = {units}\njoined = \"{joined}\"\nbytes_read = {bytes_read}\nbytes_written = {bytes_written}\n\n[operations]\n{counts}"
        )
    }
}

/// A workload, and the recording that it is held to.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The recording's name.
    pub name: &'static str,
    /// The recording.
    pub recording: &'static str,
    /// The workload, with the size of the recorded work.
    pub workload: &'static str,
    /// The phases whose operations count. All phases count if there are none.
    pub phases: &'static [&'static str],
    /// The phase whose operations are the units of work, or `PHASE/KIND` for one kind of them.
    pub units: &'static str,
}

/// All workloads that have a recording.
pub const CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "postmark",
        recording: include_str!("../recordings/postmark.toml"),
        workload: "postmark:files=500,transactions=2000,directories=10,min=512,max=16384,block=512,buffered=yes",
        phases: &[],
        units: "transactions",
    },
    Candidate {
        name: "pgbench",
        recording: include_str!("../recordings/pgbench.toml"),
        workload: "tpcb:accounts=107m,warm=0,transactions=4000,commit=1,pool=4m",
        phases: &["transactions"],
        units: "transactions",
    },
    Candidate {
        name: "tpcc",
        recording: include_str!("../recordings/tpcc.toml"),
        workload: "tpcc-like:warehouses=2,transactions=2000,clients=10,pool=8m",
        phases: &["transactions"],
        units: "transactions",
    },
    Candidate {
        name: "nginx",
        recording: include_str!("../recordings/nginx.toml"),
        workload: "specweb-like:directories=20,requests=15000,clients=20,dynamic=no",
        phases: &["requests"],
        units: "requests",
    },
    Candidate {
        name: "sendmail",
        recording: include_str!("../recordings/sendmail.toml"),
        workload: "mail-server:minutes=10,messages=100,users=50,read=0,sync-directories=yes",
        phases: &["mail"],
        units: "mail/accept",
    },
    Candidate {
        name: "openssh-unpack",
        recording: include_str!("../recordings/openssh-unpack.toml"),
        workload: "ssh-build",
        phases: &["unpack"],
        units: "unpack",
    },
    Candidate {
        name: "openssh-config",
        recording: include_str!("../recordings/openssh-config.toml"),
        workload: "ssh-build",
        phases: &["config"],
        units: "config",
    },
    Candidate {
        name: "openssh-build",
        recording: include_str!("../recordings/openssh-build.toml"),
        workload: "ssh-build:includes=39",
        phases: &["build"],
        units: "build",
    },
    Candidate {
        name: "kernel",
        recording: include_str!("../recordings/kernel.toml"),
        workload: "kernel-build:processes=1,files=12000,compiled=7,includes=1000,commands=yes,compute=no",
        phases: &["compile", "link", "link the kernel"],
        units: "compile",
    },
    Candidate {
        name: "andrew",
        recording: include_str!("../recordings/andrew.toml"),
        workload: "andrew-like:files=237,includes=40,compute=no",
        phases: &["make directories", "copy", "scan", "read", "make"],
        units: "copy",
    },
];

/// The reason why a workload was not compared.
#[derive(Debug, thiserror::Error)]
pub enum AcceptanceError {
    /// The recording cannot be read.
    #[error("the recording of {name}: {error}")]
    Recording {
        /// The recording's name.
        name: &'static str,
        /// The reason.
        error: toml::de::Error,
    },
    /// The workload cannot be parsed.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The workload stopped.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload waits for ever.
    #[error("{0} waits for something that does not happen")]
    Waits(&'static str),
}

/// A workload beside its recording.
#[derive(Clone, Debug, Serialize)]
pub struct Acceptance {
    /// The recording's name.
    pub name: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The recording.
    pub recording: ProgramRecording,
    /// The operations of the workload.
    pub mix: Mix,
    /// The workload's units of work.
    pub units: u64,
}

impl Acceptance {
    /// How far the mixes are apart ([`Mix::distance`]): of all operations, and of those that change
    /// something.
    pub fn distances(&self) -> [f64; 2] {
        let theirs = &self.recording.mix;
        [self.mix.distance(theirs), self.mix.changes().distance(&theirs.changes())]
    }

    /// The workload's amount for a unit of work over the recording's. `None` if both are below
    /// `few`.
    fn ratio(&self, amount: impl Fn(&Mix) -> u64, few: f64) -> Option<f64> {
        let ours = amount(&self.mix) as f64 / self.units.max(1) as f64;
        let theirs = amount(&self.recording.mix) as f64 / self.recording.units.max(1) as f64;
        (ours.max(theirs) > few).then(|| ours / theirs)
    }

    /// The operations for a unit of work, over the recording's: all, and those that change
    /// something.
    pub fn operations(&self) -> [Option<f64>; 2] {
        let changes = |mix: &Mix| mix.changes().total();
        [self.ratio(Mix::total, 0.0), self.ratio(changes, FEW_OPERATIONS)]
    }

    /// The bytes read and written for a unit of work, over the recording's. `None` where both are
    /// next to nothing.
    pub fn bytes(&self) -> [Option<f64>; 2] {
        let [read, written]: [fn(&Mix) -> u64; 2] = [|mix| mix.bytes_read, |mix| mix.bytes_written];
        [self.ratio(read, FEW_BYTES), self.ratio(written, FEW_BYTES)]
    }

    /// The number of operations of a kind for a unit of work: the workload's, and the recording's.
    pub fn each(&self, of: FileOperation) -> (f64, f64) {
        let each = |mix: &Mix, units: u64| mix.count(of) as f64 / units.max(1) as f64;
        (each(&self.mix, self.units), each(&self.recording.mix, self.recording.units))
    }

    /// Whether the workload is accepted.
    pub fn is_accepted(&self) -> bool {
        let [all, changes] = self.distances();
        let [_, has_changes] = self.operations();
        all <= DISTANCE
            && (changes <= DISTANCE || has_changes.is_none())
            && are_near(self.operations())
    }

    /// Whether the bytes agree too.
    pub fn has_its_bytes(&self) -> bool {
        are_near(self.bytes())
    }
}

fn are_near(ratios: [Option<f64>; 2]) -> bool {
    ratios.iter().flatten().all(|ratio| (1.0 / FACTOR..=FACTOR).contains(ratio))
}

/// A file system in memory whose operations are counted.
struct OnModel {
    runtime: Runtime,
    fs: Rc<Counting<ModelFs>>,
}

impl WorkloadStage for OnModel {
    type Fs = Rc<Counting<ModelFs>>;

    fn fs(&self) -> &Self::Fs {
        &self.fs
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    async fn drop_caches(&mut self) -> FsResult<()> {
        Ok(())
    }
}

/// Switches the counts on in the phases that count.
struct Listener<'a> {
    phases: &'static [&'static str],
    is_on: &'a dyn Fn(bool),
}

impl PhaseListener for Listener<'_> {
    fn phase_start(&mut self, name: &str) {
        (self.is_on)(self.phases.is_empty() || self.phases.contains(&name));
    }

    fn ended(&mut self, _phase: &Phase) {
        (self.is_on)(self.phases.is_empty());
    }
}

/// Counts the operations of a workload in memory, and compares them with the recording.
///
/// # Errors
/// [`AcceptanceError`].
pub fn judge(candidate: &Candidate, seed: u64) -> Result<Acceptance, AcceptanceError> {
    let &Candidate { name, workload, units, .. } = candidate;
    let recording = ProgramRecording::parse(candidate.recording)
        .map_err(|error| AcceptanceError::Recording { name, error })?;
    let (mix, phases) = count(candidate, recording.joined, seed)?;
    Ok(Acceptance { name, workload, recording, mix, units: units_in(&phases, units) })
}

fn units_in(phases: &[Phase], units: &str) -> u64 {
    let (name, kind) =
        units.split_once('/').map_or((units, None), |(name, kind)| (name, Some(kind)));
    let of = |phase: &Phase| match kind {
        None => phase.operations,
        Some(kind) => phase.mix.iter().filter(|of| of.name == kind).map(|of| of.operations).sum(),
    };
    phases.iter().filter(|phase| phase.name == name).map(of).sum()
}

fn count(
    &Candidate { workload, phases, .. }: &Candidate,
    joined: JoinedCalls,
    seed: u64,
) -> Result<(Mix, Vec<Phase>), AcceptanceError> {
    let parsed: Workload = workload.parse()?;
    let executor = Executor::simulated(seed);
    let model = ModelFs::new(ModelConfig::ufs2(4096), Timestamp::default);
    let fs = Rc::new(Counting::new(model, joined));
    let mut stage = OnModel { runtime: executor.runtime(), fs: fs.clone() };
    fs.is_on.set(phases.is_empty());
    let is_on = |on: bool| fs.is_on.set(on);
    let mut listener = Listener { phases, is_on: &is_on };
    let run = executor.block_on(async { parsed.run(&mut stage, seed, &mut listener).await });
    let phases = run.map_err(|_| AcceptanceError::Waits(workload))??;
    Ok((fs.mix(), phases))
}

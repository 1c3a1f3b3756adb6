//! Experiments that tell a file system's policies from its writes, after "Analysis and Evolution of
//! Journaling File Systems" (2005), sections 2.1.2, 3.2, 5 and 6.
//!
//! Each experiment makes a file system on a device in memory, does controlled work in it, and
//! evaluates kinds of blocks and times.
//!
//! Layers, lowest first:
//! - `lab`: a file system on a watched device, for one experiment.
//! - `orders`, `commits`, `timers`, `probes`: the experiments; [`infer`] does all of them.
//!
//! Invariants:
//! - No experiment knows which file system it is, or any of its constants.
//! - An experiment's mount and device go away however it ends.
//!
//! All of this needs root.
#![forbid(unsafe_code)]

mod commits;
mod lab;
mod orders;
mod probes;
mod timers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ordo_kernelfs::kernel::{LiveError, LiveSystem};

/// A finding of an experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct InferredFinding {
    /// The question.
    pub question: &'static str,
    /// The answer in words.
    pub answer: String,
    /// The interval in which the true value lies, as far as the experiment shows, if the answer is
    /// a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The number's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'static str>,
    /// The observations behind the answer.
    pub evidence: Vec<String>,
}

impl InferredFinding {
    fn words(question: &'static str, answer: impl Into<String>) -> InferredFinding {
        let (interval, unit, evidence) = (None, None, Vec::new());
        InferredFinding { question, answer: answer.into(), interval, unit, evidence }
    }

    fn number(question: &'static str, all: &[f64], unit: &'static str) -> InferredFinding {
        let (low, high) = (least(all), greatest(all));
        let answer = format!("{} to {} {unit}", round(low), round(high));
        let interval = Some([low, high]);
        InferredFinding { question, answer, interval, unit: Some(unit), evidence: Vec::new() }
    }

    fn because(mut self, evidence: impl Into<String>) -> InferredFinding {
        self.evidence.push(evidence.into());
        self
    }
}

fn least(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn round(n: f64) -> String {
    if n >= 100.0 { format!("{n:.0}") } else { format!("{n:.2}") }
}

/// The effort of the experiments.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The number of times that each trial is made.
    pub trials: u32,
    /// The time for which a timer is waited for.
    pub wait: Duration,
}

/// Whether [`stop`] was called.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Asks all experiments of this process to end soon: a wait ends, what was made is taken down, and
/// [`infer`] returns [`LiveError::Stopped`]. It may be called from any thread.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

fn go_on() -> Result<(), LiveError> {
    if STOPPED.load(Ordering::Relaxed) { Err(LiveError::Stopped) } else { Ok(()) }
}

/// Waits so long, or until the experiments are to end.
fn pause(time: Duration) -> Result<(), LiveError> {
    const STEP: Duration = Duration::from_millis(50);
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        go_on()?;
        std::thread::sleep(left.min(STEP));
    }
    go_on()
}

type Experiment = fn(&LiveSystem, &Effort) -> Result<Vec<InferredFinding>, LiveError>;

/// Every experiment, with its subject.
pub const EXPERIMENTS: [(&str, Experiment); 8] = [
    ("mode", orders::mode),
    ("logging", commits::logging),
    ("tangled", orders::tangled),
    ("overlap", orders::overlap),
    ("thresholds", commits::thresholds),
    ("timers", timers::timers),
    ("waits", probes::waits),
    ("restart", probes::restart),
];

/// Runs all experiments, or the named ones; `each` is called before one begins.
///
/// # Errors
/// The file system cannot be made, mounted or watched, or the experiments were [stopped](stop).
pub fn infer(
    system: &LiveSystem,
    effort: &Effort,
    only: &[String],
    mut each: impl FnMut(&str),
) -> Result<Vec<InferredFinding>, LiveError> {
    let mut all = Vec::new();
    for (name, experiment) in EXPERIMENTS {
        if only.is_empty() || only.iter().any(|o| o == name) {
            go_on()?;
            each(name);
            all.extend(experiment(system, effort)?);
        }
    }
    Ok(all)
}

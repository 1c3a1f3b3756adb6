//! Recorded system calls as a workload: the output of strace(1), or the `calls` table of a recorded
//! trace.
//!
//! The calls are carried out again on another file system, each process's in order, and each as
//! soon as what it waited for in the recording is done (`order`): never at recorded times. What the
//! calls read and no call wrote exists at the start (`plan`). Source of the method: Weiss, Harter,
//! Arpaci-Dusseau and Arpaci-Dusseau, "ROOT: Replaying Multithreaded Traces with Resource-Oriented
//! Ordering" (SOSP 2013), for rules by names and processes.

mod order;
mod plan;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ordo_trace::strace::{self, Syscall};

use super::files::size;
use super::parse::{ParseError, parameters};
use super::{Run, WorkloadError, WorkloadStage};
use plan::Plan;

/// The most bytes that may exist at the start.
const INITIAL_MOST: u64 = 1 << 40;
/// The bytes for which a file is counted beside its contents.
const BESIDE: u64 = 4096;

/// Recorded calls that are ready to be carried out.
#[derive(Clone, Debug)]
pub struct Calls {
    file: String,
    /// The directory whose files count, if the file is strace's.
    dir: String,
    /// Whether processes compute between their calls as long as they did.
    think: bool,
    plan: Arc<Plan>,
}

impl PartialEq for Calls {
    fn eq(&self, other: &Calls) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Calls {
    /// Reads `FILE[,dir=DIR][,think=yes|no]`.
    pub(super) fn parse(text: &str, stored: ReadCalls<'_>) -> Result<Calls, ParseError> {
        let (file, rest) = text.split_once(',').unwrap_or((text, ""));
        let (mut dir, mut think) = (String::new(), false);
        for (key, value) in parameters(rest) {
            match (key, value) {
                ("dir", Some(value)) => dir = value.trim_end_matches('/').to_owned(),
                ("think", Some("yes")) => think = true,
                ("think", Some("no")) => think = false,
                ("think" | "dir", _) => {
                    let expected = "yes or no for think, a directory for dir";
                    let value = value.unwrap_or_default().to_owned();
                    return Err(ParseError::Value { parameter: key.to_owned(), value, expected });
                }
                _ => {
                    let (parameter, known) = (key.to_owned(), "dir, think");
                    return Err(ParseError::Parameter { workload: "calls", parameter, known });
                }
            }
        }
        let plan = Arc::new(read(file, &dir, stored)?);
        Ok(Calls { file: file.to_owned(), dir, think, plan })
    }

    pub(super) fn describe(&self) -> String {
        let Plan { calls, processes, initial, skipped, .. } = &*self.plan;
        let bytes: u64 = initial.values().filter_map(|initial| initial.size).sum();
        let without = if *skipped == 0 {
            String::new()
        } else {
            format!("; {skipped} more cannot be repeated")
        };
        format!(
            "{} recorded calls of {} processes, with {} files and directories of {} at the start{without}",
            calls.len(),
            processes.len(),
            initial.len(),
            size(bytes)
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.plan.footprint + self.plan.objects as u64 * BESIDE
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        replay::run(&self.plan, self.think, run, seed).await
    }
}

/// Reads the calls that are stored with a recorded trace, a folder. Their paths begin at the root
/// of the file system, without a slash. An error is in words.
pub type ReadCalls<'a> = &'a dyn Fn(&Path) -> Result<Vec<Syscall>, String>;

/// Reads calls, and makes a plan of them.
fn read(file: &str, dir: &str, stored: ReadCalls<'_>) -> Result<Plan, ParseError> {
    let wrong = |reason: String| ParseError::Calls { file: file.to_owned(), reason };
    if file.is_empty() {
        return Err(wrong("calls needs a file: calls:strace.txt, calls:recorded.trace".into()));
    }
    let path = Path::new(file);
    let calls = if path.is_dir() {
        stored(path).map_err(wrong)?
    } else {
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        strace::parse(&String::from_utf8_lossy(&text), dir)
    };
    let plan = Plan::new(&calls);
    if plan.calls.is_empty() {
        let below = if dir.is_empty() { String::new() } else { format!(" below {dir}") };
        return Err(wrong(format!(
            "no calls about files{below}; record them with strace -f -y -ttt -T -s 0 -e trace=%file,%desc -o FILE COMMAND"
        )));
    }
    if plan
        .initial
        .values()
        .filter_map(|initial| initial.size)
        .try_fold(0, u64::checked_add)
        .is_none_or(|all| all > INITIAL_MOST)
    {
        return Err(wrong(format!(
            "its files would have more than {} at the start",
            size(INITIAL_MOST)
        )));
    }
    Ok(plan)
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calls:{}", self.file)?;
        if !self.dir.is_empty() {
            write!(f, ",dir={}", self.dir)?;
        }
        f.write_str(if self.think { ",think=yes" } else { "" })
    }
}

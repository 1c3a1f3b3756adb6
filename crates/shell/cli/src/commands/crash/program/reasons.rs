//! The reasons why a search proves nothing, or not all.

use ordo_report::number::count;
use serde::{Deserialize, Serialize};

use super::Row;
use crate::args::Crash;

/// A reason why promises could not be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NotJudged {
    /// The command cannot be run.
    NoCommand(String),
    /// The command ended with this status, or by a signal.
    CommandFailed(Option<i32>),
    /// The file system had no space left.
    NoSpace,
    /// The program promised nothing.
    NoPromise,
    /// No state was judged.
    NoState,
    /// The search was interrupted.
    Interrupted,
    /// The check does not pass in the state after the command's end.
    Control(String),
    /// So many states could not be mounted, so many of them with a torn superblock.
    Unmountable(u64, u64),
    /// The check itself failed in so many states, and did not end in so many.
    Check(u64, u64),
    /// The check reported a broken promise in so many states, and passed when it ran again.
    Flaky(u64),
}

impl NotJudged {
    /// The reasons for a row.
    pub fn of(row: &Row, args: &Crash) -> Vec<NotJudged> {
        let (program, counts) = (&args.program, &row.counts);
        let mut out = Vec::new();
        let has_failed = row.command_status != Some(0) && !row.command_stopped;
        if has_failed && !program.allow_failure {
            out.push(NotJudged::CommandFailed(row.command_status));
        }
        if row.no_space && !program.allow_failure {
            out.push(NotJudged::NoSpace);
        }
        if row.promises == 0 && !program.allow_no_promise {
            out.push(NotJudged::NoPromise);
        }
        match &row.control {
            Some(why) => out.push(NotJudged::Control(why.clone())),
            None if counts.states < counts.planned => out.push(NotJudged::Interrupted),
            None if counts.states == 0 => out.push(NotJudged::NoState),
            None => {}
        }
        if counts.unsound > 0 {
            out.push(NotJudged::Unmountable(counts.unsound, counts.torn_superblock));
        }
        if counts.check_failed + counts.timed_out > 0 {
            out.push(NotJudged::Check(counts.check_failed, counts.timed_out));
        }
        if counts.flaky > 0 {
            out.push(NotJudged::Flaky(counts.flaky));
        }
        out
    }

    /// The reason for a person, with what to do next.
    pub fn text(&self, row: &Row) -> String {
        match self {
            NotJudged::NoCommand(why) => why.clone(),
            NotJudged::CommandFailed(status) => {
                let status = status.map_or("a signal".to_owned(), |n| format!("status {n}"));
                format!("the command ended with {status} (--allow-failure judges it all the same)")
            }
            NotJudged::NoSpace => "the file system had no space left: give a larger --size \
                                   (--allow-failure judges it all the same)"
                .to_owned(),
            NotJudged::NoPromise => "the program promised nothing ($ORDO_MARK; --allow-no-promise \
                                     judges it all the same)"
                .to_owned(),
            NotJudged::NoState => {
                "no state was judged: --only, --rule or --shard leave none".to_owned()
            }
            NotJudged::Interrupted => format!(
                "stopped after {} of {} states",
                count(row.counts.states),
                count(row.counts.planned)
            ),
            NotJudged::Control(why) => format!(
                "the check does not pass after the command's end, with nothing lost and all promises \
                 made, so it can judge no state: {why}"
            ),
            NotJudged::Unmountable(states, torn) => format!(
                "{} states could not be mounted, {torn} of them with a torn superblock: disks whose \
                 sectors have 4,096 bytes do not tear it (--sector 4096)",
                count(*states)
            ),
            NotJudged::Check(failed, late) => format!(
                "the check itself failed in {failed} states and did not end in {late}: {}",
                row.check_output.as_deref().unwrap_or("it did not end in time")
            ),
            NotJudged::Flaky(states) => format!(
                "the check is flaky: in {} states it failed once, and passed when it ran again: {}",
                count(*states),
                row.flaky_output.as_deref().unwrap_or_default()
            ),
        }
    }
}

//! A command that runs beside a recording, and the signals that end it in order.
//!
//! A signal stops the command and all processes that it started. The recording continues to its
//! end, so that the file system is unmounted and the trace so far is complete.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ordo_trace::{COMMAND_BEGINS, COMMAND_ENDS};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The interval at which the end of the command is checked.
const PAUSE: Duration = Duration::from_millis(5);
/// The variable with the path of the file that takes marks.
const MARKS: &str = "ORDO_MARK";
/// The time that stopped processes have before they are killed.
const GRACE: Duration = Duration::from_secs(3);

/// Signals that were caught since this was made. They no longer end this process.
#[derive(Clone, Debug)]
pub(super) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn catch() -> Result<Signals> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, caught.clone(), signal as usize)?;
        }
        // Processes that the command started become children of this process when the command
        // itself has ended.
        set_child_subreaper(Some(getpid()))?;
        Ok(Signals(caught))
    }

    /// The last signal caught.
    pub(super) fn caught(&self) -> Option<Signal> {
        match self.0.load(Ordering::Relaxed) as i32 {
            SIGINT => Some(Signal::INT),
            SIGTERM => Some(Signal::TERM),
            SIGHUP => Some(Signal::HUP),
            _ => None,
        }
    }

    /// Runs a command to its end, or until a signal comes. If the variables have a file of marks,
    /// its begin and its end are marked. The exit status is the command's; after
    /// a signal it is 128 and the signal's number, as shells have it.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(super) fn carry_out(
        &self,
        command: &[String],
        dir: Option<&Path>,
        variables: &[(&str, &str)],
    ) -> Result<ExitCode> {
        let mut run = Command::new(&command[0]);
        run.args(&command[1..]).envs(variables.iter().copied());
        if let Some(dir) = dir {
            run.current_dir(dir);
        }
        if let Some(signal) = self.caught() {
            return Ok(stopped(signal));
        }
        let before = descendants(&[]);
        let control = variables.iter().find(|(name, _)| *name == MARKS).map(|(_, path)| *path);
        mark(control, COMMAND_BEGINS);
        let ended = self.wait(run, command, &before);
        mark(control, COMMAND_ENDS);
        ended
    }

    /// Starts the command, and waits for its end or a signal.
    fn wait(&self, mut run: Command, command: &[String], before: &[i32]) -> Result<ExitCode> {
        let mut child = run.spawn().with_context(|| format!("running {}", command[0]))?;
        loop {
            if let Some(status) = child.try_wait().context("waiting for the command")? {
                // A signal from a terminal reaches the command too, and may end it first.
                return Ok(self.caught().map_or_else(|| code(status), stopped));
            }
            if let Some(signal) = self.caught() {
                eprintln!("ordo: stopping the command; the recording is finished first");
                stop(&mut child, signal, before);
                return Ok(stopped(signal));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Sets a mark, if there is a file for it. A recording that has ended already takes none.
fn mark(control: Option<&str>, text: &str) {
    let Some(path) = control else { return };
    // A pipe that nobody reads any more must not stop this process.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("mark {text}\n").as_bytes()));
}

fn code(status: ExitStatus) -> ExitCode {
    // A process that a signal ended has no exit status: shells report 128 and the signal's number.
    ExitCode::from(status.code().map_or(128, |code| code as u8))
}

pub(super) fn stopped(signal: Signal) -> ExitCode {
    ExitCode::from(128 + signal.as_raw() as u8)
}

/// Ends the command and all processes that it started: first with the signal, later by force.
/// `before` are the processes below this one that the command did not start.
fn stop(child: &mut Child, signal: Signal, before: &[i32]) {
    for signal in [signal, Signal::KILL] {
        for pid in descendants(before).into_iter().filter_map(Pid::from_raw) {
            // A process that is gone already is no error.
            let _ = kill_process(pid, signal);
        }
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            let _ = child.try_wait();
            reap();
            if descendants(before).is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Collects the exit statuses of processes that became children of this one when their parents
/// ended.
fn reap() {
    let own = getpid().as_raw_pid();
    for (pid, (parent, state)) in processes() {
        if state == 'Z' && parent == own {
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
        }
    }
}

/// The parent and the state of each process.
fn processes() -> BTreeMap<i32, (i32, char)> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The program's name, in parentheses, may contain any characters.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((pid, (fields.next()?.parse().ok()?, state)))
    };
    all.filter_map(of).collect()
}

/// All processes below this one that are not yet dead, without `others` and the processes below
/// those.
fn descendants(others: &[i32]) -> Vec<i32> {
    let (all, own) = (processes(), getpid().as_raw_pid());
    let is_below = |pid: &i32| {
        let mut at = *pid;
        // No chain of parents is longer than the number of processes.
        for _ in 0..all.len() {
            match all.get(&at) {
                _ if others.contains(&at) => return false,
                Some((parent, _)) if *parent == own => return true,
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        false
    };
    let alive = all.iter().filter(|(_, (_, state))| *state != 'Z');
    alive.map(|(pid, _)| *pid).filter(is_below).collect()
}

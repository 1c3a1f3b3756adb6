//! The check of a state: any command, run in the directory. Its exit status is its answer.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ordo_pseudo::Folder;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::marks::Promises;

/// The part of a check's output that is kept, in bytes.
const OUTPUT_MAX: u64 = 16 << 10;

/// The answer of a check about a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckAnswer {
    /// Exit status 0: everything promised is there.
    Kept,
    /// Exit status 1: a promise is broken; the output names it.
    Broken(String),
    /// Another exit status, or a signal: the check itself failed. The text is that status and the output.
    Failed(String),
    /// The check did not end in time.
    TimedOut,
}

impl CheckAnswer {
    /// Whether a promise is broken.
    pub fn is_broken(&self) -> bool {
        matches!(self, CheckAnswer::Broken(_))
    }
}

/// A check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// A command for the shell.
    pub command: String,
    /// The time after which the command is stopped.
    pub timeout: Duration,
    /// The working directory of the user who ran the command: `$ORDO_ORIGIN`.
    pub origin: std::path::PathBuf,
}

impl Check {
    /// Runs the check in a directory. Processes that it has left running are stopped.
    ///
    /// # Errors
    /// There is no shell, or no space for the check's files.
    pub fn run(&self, dir: &Path, promises: &Promises) -> Result<CheckAnswer, ProgramError> {
        let wrong = ProgramError::io("running the check");
        let folder = Folder::new("ordo-check-").map_err(&wrong)?;
        let (acked, pending) = (folder.path().join("acked"), folder.path().join("pending"));
        std::fs::write(&acked, Promises::lines(&promises.acked)).map_err(&wrong)?;
        std::fs::write(&pending, Promises::lines(&promises.pending)).map_err(&wrong)?;
        // The output goes to a file: a server that the check leaves running would hold a pipe open.
        let mut output = tempfile::tempfile().map_err(&wrong)?;
        let to = |file: &File| file.try_clone().map(Stdio::from).map_err(&wrong);
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).current_dir(dir).process_group(0);
        command.env("ORDO_ACKED", &acked).env("ORDO_PENDING", &pending).env("ORDO_DIR", dir);
        command.env("ORDO_ORIGIN", &self.origin);
        command.stdin(Stdio::null()).stdout(to(&output)?).stderr(to(&output)?);
        let mut child = command.spawn().map_err(&wrong)?;
        let group = rustix::process::Pid::from_child(&child);
        let status = wait(&mut child, self.timeout).map_err(&wrong)?;
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        if status.is_none() {
            let _ = child.wait();
            return Ok(CheckAnswer::TimedOut);
        }
        let mut said = Vec::new();
        output.rewind().map_err(&wrong)?;
        output.take(OUTPUT_MAX).read_to_end(&mut said).map_err(&wrong)?;
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        let status = status.expect("it ended");
        Ok(match status.code() {
            Some(0) => CheckAnswer::Kept,
            Some(1) => CheckAnswer::Broken(said),
            Some(code) => CheckAnswer::Failed(format!("exit status {code}: {said}")),
            None => CheckAnswer::Failed(format!("signal {}: {said}", status.signal().unwrap_or(0))),
        })
    }
}

/// Waits for a child until it ends, or the time is over.
fn wait(
    child: &mut std::process::Child,
    timeout: Duration,
) -> std::io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + timeout;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, promises: &Promises) -> CheckAnswer {
        let check = Check {
            command: command.into(),
            timeout: Duration::from_millis(500),
            origin: "/".into(),
        };
        check.run(Path::new("/"), promises).unwrap()
    }

    /// Exit status 0 is kept and 1 is broken, with the output; other codes, signals and time-outs are neither.
    #[test]
    fn exit_codes_are_distinguished() {
        let promises = Promises { acked: vec!["a".into()], pending: vec!["b".into()] };
        assert_eq!(run("exit 0", &promises), CheckAnswer::Kept);
        let both = run("cat $ORDO_ACKED $ORDO_PENDING; exit 1", &promises);
        assert_eq!(both, CheckAnswer::Broken("a\nb".into()));
        assert_eq!(
            run("echo no >&2; exit 7", &promises),
            CheckAnswer::Failed("exit status 7: no".into())
        );
        assert_eq!(run("kill -9 $$", &promises), CheckAnswer::Failed("signal 9: ".into()));
        assert_eq!(run("sleep 9", &promises), CheckAnswer::TimedOut);
    }

    /// Processes that a check leaves running are stopped when it has ended, and are not waited for.
    #[test]
    fn processes_that_a_check_leaves_are_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let began = Instant::now();
        let command = format!("sleep 30 & echo $! >{}; exit 0", pid.display());
        assert_eq!(run(&command, &Promises::default()), CheckAnswer::Kept);
        assert!(began.elapsed() < Duration::from_secs(5));
        let pid = std::fs::read_to_string(pid).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(state.is_err() || state.unwrap().contains(") Z"));
    }
}

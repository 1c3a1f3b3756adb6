//! The check of a state: any command, run in the directory. Its exit status is its answer.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ordo_recorder::Folder;
use serde::{Deserialize, Serialize};

use crate::marks::Promises;
use crate::{ProgramError, sys};

/// A command of the shell that runs `$1` as the first program of new namespaces would not survive
/// it, with processes of its own: an `sh` that mounts their `/proc`, and ends when `$1` does, which
/// ends all that it has started.
const FIRST: &str =
    "sh -c 'mount -t proc proc /proc 2>/dev/null; sh -c \"$1\"; exit $?' sh \"$1\"; exit $?";
/// The exit status with which a shell tells of a signal, without the signal's number.
const SIGNALLED: i32 = 128;

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
    /// Another exit status, a signal, or an exception that nobody caught: the check itself failed.
    /// The text is that status and the output.
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
    /// Whether it looks at times of files, so that states that differ by them alone are not equal
    /// to it.
    #[serde(default)]
    pub sees_times: bool,
}

impl Check {
    /// Runs the check in a directory. Processes that it has left running are stopped. Where that is
    /// possible, its network, its processes and its System V IPC are its own ([`apart`]). `slot` is
    /// another number for each check that runs at the same time: `$ORDO_SLOT`.
    ///
    /// # Errors
    /// There is no shell, or no space for the check's files.
    pub fn run(
        &self,
        dir: &Path,
        promises: &Promises,
        slot: u32,
    ) -> Result<CheckAnswer, ProgramError> {
        let wrong = ProgramError::io("running the check");
        let folder = Folder::new("ordo-check-").map_err(&wrong)?;
        let (acked, pending) = (folder.path().join("acked"), folder.path().join("pending"));
        std::fs::write(&acked, Promises::lines(&promises.acked)).map_err(&wrong)?;
        std::fs::write(&pending, Promises::lines(&promises.pending)).map_err(&wrong)?;
        // The output goes to a file: a server that the check leaves running would hold a pipe open.
        let mut output = tempfile::tempfile().map_err(&wrong)?;
        let to = |file: &File| file.try_clone().map(Stdio::from).map_err(&wrong);
        let is_apart = apart().is_ok();
        let mut command = Command::new("sh");
        match is_apart {
            true => sys::in_namespaces(command.args(["-c", FIRST, "sh", &self.command])),
            false => command.args(["-c", &self.command]),
        };
        command.current_dir(dir).process_group(0).env("ORDO_SLOT", slot.to_string());
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
        let signal = status.code().map(|code| code - SIGNALLED).filter(|n| (1..65).contains(n));
        if let Some(signal) = signal.filter(|_| is_apart) {
            return Ok(CheckAnswer::Failed(format!("signal {signal}: {said}")));
        }
        Ok(match status.code() {
            Some(0) => CheckAnswer::Kept,
            Some(1) => match uncaught(&said) {
                Some(what) => CheckAnswer::Failed(format!("{what}: {said}")),
                None => CheckAnswer::Broken(said),
            },
            Some(code) => CheckAnswer::Failed(format!("exit status {code}: {said}")),
            None => CheckAnswer::Failed(format!("signal {}: {said}", status.signal().unwrap_or(0))),
        })
    }
}

/// Whether checks run in namespaces of their own, so that those at the same time share no network;
/// the error says why not.
///
/// # Errors
/// The kernel's, in words: mostly that the caller is not root.
pub fn apart() -> Result<(), &'static str> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    let tried = TRIED.get_or_init(|| {
        let mut command = Command::new("sh");
        let done = sys::in_namespaces(command.args(["-c", FIRST, "sh", "exit 0"])).status();
        match done {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    tried.as_ref().copied().map_err(String::as_str)
}

/// The words for an exception that ended a check, if its output shows one. An assertion that fails
/// is an answer, and no exception.
fn uncaught(said: &str) -> Option<&'static str> {
    let line = |is: &dyn Fn(&str) -> bool| said.lines().any(is);
    if line(&|line| line.contains("AssertionError")) {
        return None;
    }
    let shell = |line: &str| {
        let before = line.strip_suffix(": command not found").or(line.strip_suffix(": not found"));
        let parts = before.into_iter().flat_map(|before| before.split(": ").skip(1));
        parts.map(|part| part.trim_start_matches("line ")).any(|part| part.parse::<u32>().is_ok())
    };
    let is_ruby =
        |line: &str| line.contains(".rb:") && line.contains(":in ") && line.ends_with("Error)");
    let known: [(&'static str, bool); 6] = [
        (
            "an uncaught exception of Python",
            line(&|line| line.starts_with("Traceback (most recent call last):")),
        ),
        (
            "an uncaught exception of Node.js",
            line(&|l| l.starts_with("Node.js v")) && line(&|l| l.starts_with("    at ")),
        ),
        ("an uncaught exception of Ruby", line(&is_ruby)),
        ("an uncaught exception of Java", line(&|l| l.starts_with("Exception in thread \""))),
        (
            "a panic",
            line(&|l| l.starts_with("panic: ")) && line(&|l| l.starts_with("goroutine "))
                || line(&|l| l.starts_with("thread '") && l.contains("panicked at")),
        ),
        ("a command of the check was not found", line(&shell)),
    ];
    known.into_iter().find_map(|(what, is)| is.then_some(what))
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
            sees_times: false,
        };
        check.run(Path::new("/"), promises, 7).unwrap()
    }

    /// Exit status 0 is kept and 1 is broken, with the output; other codes, signals and time-outs
    /// are neither.
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
        let CheckAnswer::Failed(killed) = run("kill -9 $$", &promises) else { panic!() };
        assert!(killed.starts_with("signal 9: "), "{killed}");
        assert_eq!(run("test $ORDO_SLOT = 7", &promises), CheckAnswer::Kept);
        assert_eq!(run("sleep 9", &promises), CheckAnswer::TimedOut);
    }

    /// An exception that nobody caught is no answer, though it ends with status 1 too; an assertion
    /// that fails is one.
    ///
    /// Would catch a program that is accused because its check has a mistake.
    #[test]
    fn exceptions_are_told_apart() {
        let none = Promises::default();
        let is_failed = |command: &str, what: &str| match run(command, &none) {
            CheckAnswer::Failed(said) => said.contains(what),
            _ => false,
        };
        assert!(is_failed("no-such-command || exit 1", "a command of the check was not found"));
        let of = |text: &str| format!("printf '{text}'; exit 1");
        let node = "Error: x\\n    at f (a.js:1:1)\\n\\nNode.js v20.1.0\\n";
        assert!(is_failed(&of(node), "Node.js"));
        assert!(is_failed(&of("panic: x\\n\\ngoroutine 1 [running]:\\n"), "a panic"));
        let ruby = "c.rb:1:in `<main>: undefined method (NoMethodError)\\n";
        assert!(is_failed(&of(ruby), "Ruby"));
        for answer in ["echo lost; exit 1", "echo 'key 7: not found'; exit 1"] {
            assert!(run(answer, &none).is_broken(), "{answer}");
        }
        if ordo_testkit::judge("python3", &["--version"]).is_some() {
            assert!(is_failed("python3 -c 'open(\"none\")'", "Python"));
            assert!(run("python3 -c 'assert False, \"lost\"'", &none).is_broken());
        }
    }

    /// Processes that a check leaves running are stopped when it has ended, and are not waited for.
    #[test]
    fn processes_that_a_check_leaves_are_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let began = Instant::now();
        let command = format!(
            "setsid sleep 30 & readlink /proc/$!/ns/pid >{}; sleep 0.1; exit 0",
            pid.display()
        );
        assert_eq!(run(&command, &Promises::default()), CheckAnswer::Kept);
        assert!(began.elapsed() < Duration::from_secs(5));
        let namespace = std::fs::read_to_string(pid).unwrap();
        let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
        if apart().is_err() {
            return ordo_testkit::skip("processes that leave the check's group need root");
        }
        assert_ne!(namespace.trim(), own.to_string_lossy());
        let of = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("ns/pid")).ok();
        let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(of);
        let left = all.filter(|of| of.to_string_lossy() == namespace.trim()).count();
        assert_eq!(left, 0, "processes of the check's namespace");
    }

    /// Two checks listen at one port at the same time, and each reaches its own server.
    ///
    /// Would catch checks that share a network: the second server cannot start, or the first one
    /// answers for it, and a correct program is lost in some states.
    #[test]
    fn checks_at_the_same_time_share_no_network() {
        if apart().is_err() || ordo_testkit::judge("python3", &["--version"]).is_none() {
            return ordo_testkit::skip("networks of their own need root and python3");
        }
        let server = "python3 -c '
import os, socket, time
s = socket.socket(); s.bind((\"127.0.0.1\", 40123)); s.listen()
time.sleep(0.2)
c = socket.create_connection((\"127.0.0.1\", 40123)); s.accept()[0].send(os.environ[\"ORDO_SLOT\"].encode())
exit(c.recv(9) != os.environ[\"ORDO_SLOT\"].encode())'";
        let check = Check {
            command: server.into(),
            timeout: Duration::from_secs(20),
            origin: "/".into(),
            sees_times: false,
        };
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let check = &check;
                scope.spawn(move || {
                    let answer = check.run(Path::new("/"), &Promises::default(), slot).unwrap();
                    assert_eq!(answer, CheckAnswer::Kept);
                });
            }
        });
    }
}

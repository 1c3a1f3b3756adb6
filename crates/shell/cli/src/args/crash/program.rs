//! The arguments of `ordo crash -- COMMAND`.

use std::path::PathBuf;

use clap::Args;
use ordo_crash::space::Manner;
use ordo_report::number::parse_bytes;

/// Arguments for `ordo crash -- COMMAND` only.
#[derive(Args, Debug)]
#[command(next_help_heading = "For a program (ordo crash -- COMMAND)")]
pub struct ProgramArgs {
    /// The check: a shell command that runs in each state. Exit status 0: everything promised is
    /// there. 1: something is missing, and the output says what. It has a network of its own, if
    /// ordo runs as root; $ORDO_SLOT is another number for each check at the same time.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub check: Option<String>,
    /// A shell command that prepares the directory before the recording.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub setup: Option<String>,
    /// More arguments for mkfs, which may not name devices.
    #[arg(long, value_name = "ARGS", requires = "command", allow_hyphen_values = true)]
    pub mkfs: Option<String>,
    /// More mount options for each of the systems.
    #[arg(long = "mount-opts", value_name = "OPTIONS", requires = "command")]
    pub mount_opts: Option<String>,
    /// Bytes that the disk never tears: 512 or 4096 [default: 4096]. Also for the kernel's file
    /// systems without a program. Ordo's own are judged by sectors of 512 bytes then.
    #[arg(long = "sector", value_name = "BYTES", value_parser = sector)]
    pub asked_sector: Option<usize>,
    /// Judge only states of these manners, separated by commas: amnesia (all that was not flushed
    /// is lost), everything (nothing is lost), group, one, prefix (writes up to some point
    /// survive), torn, chance, rule.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "command", value_parser = manner)]
    pub only: Vec<Manner>,
    /// Record system calls (needs strace), so that causes are known instead of guessed.
    #[arg(long, requires = "command")]
    pub syscalls: bool,
    /// Let a write fail with an I/O error: 'file_data 3' is the third write of contents.
    #[arg(long, value_name = "KIND N", requires = "command", value_parser = fail)]
    pub fail: Vec<ordo_kernelfs::WriteRule>,
    /// Simulate another program that fsyncs a file of its own at this interval, in milliseconds,
    /// which commits names meanwhile; 0 means no other program.
    #[arg(long, value_name = "MS", default_value_t = 50, requires = "command")]
    pub neighbour: u64,
    /// The most memory for what the command writes: half of it for contents, and half for the
    /// devices of states [default: 64m for contents, a quarter of the machine's memory for states].
    /// What is more goes to files without names in $TMPDIR.
    #[arg(long, value_name = "BYTES", requires = "command", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Time limit of a check, in seconds.
    #[arg(
        long = "check-timeout",
        value_name = "SECONDS",
        default_value_t = 30,
        requires = "command"
    )]
    pub check_timeout: u64,
    /// Time limit of the command, in seconds.
    #[arg(long, value_name = "SECONDS", requires = "command")]
    pub timeout: Option<u64>,
    /// Stop the command at its time limit, and take what it did until then as the run: for servers
    /// that never end.
    #[arg(long = "until-timeout", requires = "timeout")]
    pub until_timeout: bool,
    /// Judge a command that ended with another status than 0, or ran out of space, as any other.
    #[arg(long = "allow-failure", requires = "command")]
    pub allow_failure: bool,
    /// Judge a command that promised nothing as any other: its states must only be consistent.
    #[arg(long = "allow-no-promise", requires = "command")]
    pub allow_no_promise: bool,
    /// Run the check again in states that differ by times of files alone: for checks that look at
    /// times.
    #[arg(long, requires = "command")]
    pub times: bool,
    /// Write an HTML page.
    #[arg(long, value_name = "FILE", requires = "command")]
    pub html: Option<PathBuf>,
    /// Write the result as JUnit XML, with a test case for each system.
    #[arg(long, value_name = "FILE", requires = "command")]
    pub junit: Option<PathBuf>,
    /// The command to crash, and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

impl ProgramArgs {
    /// The bytes that the disk never tears.
    pub fn sector(&self) -> usize {
        self.asked_sector.unwrap_or(4096)
    }
}

fn sector(text: &str) -> Result<usize, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4k" => Ok(4096),
        _ => Err(format!("'{text}': a disk has sectors of 512 or of 4096 bytes")),
    }
}

fn manner(text: &str) -> Result<Manner, String> {
    let found = serde_json::from_value(serde_json::Value::String(text.to_owned()));
    found.map_err(|_| {
        format!(
            "'{text}': there are amnesia, everything, rule, group, one, prefix, torn and chance"
        )
    })
}

fn fail(text: &str) -> Result<ordo_kernelfs::WriteRule, String> {
    // An fsync is written as the write for which it waits.
    let words = text.strip_prefix("fsync of ").or(text.strip_prefix("write of ")).unwrap_or(text);
    format!("fail {words}").parse().map_err(|e: ordo_kernelfs::rules::WriteRuleError| e.to_string())
}

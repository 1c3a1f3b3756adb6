//! The `ordo` command.
//!
//! `args` says what can be asked for, `commands` does it, `image` opens images and mounts what is in
//! them, `partition` finds the parts of a disk. Each command gives an exit status of its own; an error is printed with all that led to it
//! and gives 1, or what the Unix tool of the same name gives.

mod args;
mod commands;
mod image;
mod partition;
mod text;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Judging a crash state is many small allocations: with this one a quarter more of them a second.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What fsck(8) gives when the check itself failed, and when it was asked for wrongly.
const FSCK_FAILED: u8 = 8;
const FSCK_USAGE: u8 = 16;

fn main() -> ExitCode {
    let fsck = std::env::args_os().nth(1).is_some_and(|a| a == "fsck");
    let cli = match Cli::try_parse_from(words()) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return match e.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if fsck => ExitCode::from(FSCK_USAGE),
                code => ExitCode::from(code as u8),
            };
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ordo: {}", told(&error));
            ExitCode::from(if fsck { FSCK_FAILED } else { 1 })
        }
    }
}

/// The command line. Under a name that begins with `mount.` it is mount(8) that calls.
fn words() -> Vec<std::ffi::OsString> {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().unwrap_or_default();
    match name.as_encoded_bytes().starts_with(b"mount.") {
        true => commands::mount::helper::as_helper(std::env::args_os()),
        false => std::env::args_os().collect(),
    }
}

/// An error with what led to it, without what is said already.
fn told(error: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if out.is_empty() {
            out = cause;
        } else if !out.contains(&cause) {
            out.push_str(": ");
            out.push_str(&cause);
        }
    }
    out
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Compare(a) => commands::compare::run(&a),
        Command::Reproduce(a) => commands::reproduce::run(&a),
        Command::Bench(a) => commands::bench::run(&a).map(done),
        Command::Crash(a) => commands::crash::run(&a),
        Command::Analyze(a) => commands::analyze::analyze(&a),
        Command::Trace(a) => commands::trace::trace(&a),
        Command::Infer(a) => commands::infer::run(&a).map(done),
        Command::Mkfs(a) => commands::mkfs::run(&a).map(done),
        Command::Info(a) => commands::info::run(&a).map(done),
        Command::Fsck(a) => commands::fsck::run(&a),
        Command::Mount(a) => commands::mount::run(&a),
        Command::Umount(a) => commands::mount::umount(&a),
        Command::Ls(a) => commands::files::ls(&a).map(done),
        Command::Cat(a) => commands::files::cat(&a).map(done),
        Command::Cp(a) => commands::copy::cp(&a),
        Command::Import(a) => commands::copy::import(&a),
        Command::Export(a) => commands::copy::export(&a),
        Command::Log(a) => commands::log::run(&a).map(done),
        Command::Completions(a) => commands::generate::completions(&a).map(done),
        Command::Man(a) => commands::generate::man(&a).map(done),
    }
}

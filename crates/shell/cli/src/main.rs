//! The `ordo` command.
//!
//! `command_line` lists the commands, `args` has their arguments, `commands` carries them out,
//! `image` opens images and mounts them, `reading` reads them past damage, `packed` unpacks
//! compressed ones, `partition` finds the file system on a disk, `contents` says what a device
//! holds. Each command has an exit status of its own. An error is printed with its causes; the exit
//! status is then 1, or that of the Unix tool of the same name.

/// Prints to standard output, as the standard macro does, but output that nobody reads any more is
/// left out: `ordo ... | head` must not end the command in the middle of its work.
macro_rules! print {
    ($($word:tt)*) => { $crate::text::say(format_args!($($word)*)) };
}

/// Prints a line, as [`print!`] does.
macro_rules! println {
    () => { $crate::text::say(format_args!("\n")) };
    ($($word:tt)*) => { $crate::text::say(format_args!("{}\n", format_args!($($word)*))) };
}

/// Prints a line to standard error, as the standard macro does, but control characters are escaped.
macro_rules! eprintln {
    () => { $crate::text::complain(format_args!("\n")) };
    ($($word:tt)*) => { $crate::text::complain(format_args!("{}\n", format_args!($($word)*))) };
}

mod args;
mod command_line;
mod commands;
mod contents;
mod created;
mod image;
mod interrupt;
mod overwrite;
mod packed;
mod pair;
mod partition;
mod privileges;
mod reading;
mod sources;
mod text;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use command_line::{Cli, Command};

/// Judging a crash state makes many small allocations. This allocator allows a quarter more states
/// a second.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit status of fsck(8) if the check itself failed, or its usage was wrong.
const FSCK_FAILED: u8 = 8;
const FSCK_USAGE: u8 = 16;

/// The exit status of a command's errors.
fn status_of_error(command: Option<&std::ffi::OsStr>) -> u8 {
    match command.and_then(std::ffi::OsStr::to_str) {
        Some("fsck") => FSCK_FAILED,
        Some("crash") => commands::crash::CrashStatus::Failed as u8,
        _ => 1,
    }
}

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    if let Some(status) = within_guest(command.as_deref()) {
        return status;
    }
    let fsck = command.as_ref().is_some_and(|a| a == "fsck");
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
            eprintln!("ordo: {}", told(&error));
            ExitCode::from(status_of_error(command.as_deref()))
        }
    }
}

/// Carries out a process of a guest kernel's, if this is one.
fn within_guest(command: Option<&std::ffi::OsStr>) -> Option<ExitCode> {
    let done = match command?.to_str()? {
        "guest-init" => ordo_guest::init::first_process().map_err(anyhow::Error::from),
        ordo_compare::kernel::ARGUMENT => {
            let file = std::env::args_os().nth(2).unwrap_or_default();
            ordo_compare::kernel::carry_out(file.as_ref()).map_err(anyhow::Error::from)
        }
        ordo_compare::kernel::SERVE_ARGUMENT => {
            let file = std::env::args_os().nth(2).unwrap_or_default();
            commands::compare::serve::begin(file.as_ref())
        }
        "guest-marks" => ordo_kernelfs::guest::serve_marks().map_err(anyhow::Error::from),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ordo: {}", told(&error));
            ExitCode::FAILURE
        }
    })
}

/// The command line. If the program's name begins with `mount.`, mount(8) has called it.
fn words() -> Vec<std::ffi::OsString> {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().unwrap_or_default();
    match name.as_encoded_bytes().starts_with(b"mount.") {
        true => commands::mount::helper::as_helper(std::env::args_os()),
        false => std::env::args_os().collect(),
    }
}

/// An error with its causes, without repetitions.
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

/// Whether the reader of the output has closed its end of the pipe.
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
        Command::Age(a) => commands::age::run(&a).map(done),
        Command::Bench(a) => commands::bench::run(&a).map(done),
        Command::Crash(a) => commands::crash::run(&a),
        Command::Whatif(a) => commands::whatif::whatif(&a),
        Command::Analyze(a) => commands::analyze::analyze(&a),
        Command::Where(a) => commands::place::place(&a),
        Command::Trace(a) => commands::trace::trace(&a),
        Command::Infer(a) => commands::infer::run(&a),
        Command::Guest(a) => commands::guest::run(&a),
        Command::Mkfs(a) => commands::mkfs::run(&a).map(done),
        Command::Info(a) => commands::info::run(&a).map(done),
        Command::Fsck(a) => commands::fsck::run(&a),
        Command::Mount(a) => commands::mount::run(&a),
        Command::Umount(a) => commands::mount::umount(&a),
        Command::Ls(a) => commands::files::ls(&a),
        Command::Cat(a) => commands::files::cat(&a),
        Command::Cp(a) => commands::copy::cp(&a),
        Command::Import(a) => commands::import::import(&a),
        Command::Edit(a) => commands::edit::run(&a).map(done),
        Command::Export(a) => commands::copy::export(&a),
        Command::Log(a) => commands::log::run(&a).map(done),
        Command::Lfs(a) => commands::lfs::run(&a).map(done),
        Command::Completions(a) => commands::generate::completions(&a, Cli::command()).map(done),
        Command::Man(a) => commands::generate::man(&a, Cli::command()).map(done),
    }
}

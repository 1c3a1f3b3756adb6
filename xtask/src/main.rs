//! Project tasks. `cargo xtask tidy` checks the style that no other tool does, with `--wrap` wraps
//! comments, and with `--summary` writes the book's table of contents; `cargo xtask building
//! COMMIT` measures builds; `cargo xtask calls` measures what recording system calls costs; `cargo
//! xtask campaign` writes the pages of a crash campaign; `cargo xtask mounts ORDO` measures mounts,
//! `cargo xtask xfstests ORDO` tries the generic tests of xfstests on them, `cargo xtask
//! qemu-pressure ORDO` has them in a guest that is short of memory; `cargo xtask qemu ORDO`, `cargo
//! xtask qemu-logs ORDO`, `cargo xtask qemu-sources ORDO` and `cargo xtask qemu-infer ORDO` watch
//! file systems of a kernel in QEMU.

mod book;
mod building;
mod calls;
mod campaign;
mod commits;
mod layers;
mod links;
mod mounts;
mod mutants;
mod names;
mod papers;
mod qemu;
mod sources;
mod tidy;
mod wrap;
mod xfstests;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            if std::env::args().nth(2).as_deref() == Some("--wrap") {
                return status(tidy::wrap_all(&tidy::root()));
            }
            if std::env::args().nth(2).as_deref() == Some("--summary") {
                return status(book::write(&tidy::root()));
            }
            let faults = tidy::check(&tidy::root());
            for fault in &faults {
                println!("{fault}");
            }
            println!("tidy: {} fault(s)", faults.len());
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        Some("building") => {
            let base = std::env::args().nth(2).unwrap_or("1eb1395".into());
            status(building::run(&base))
        }
        Some("calls") => status(calls::run()),
        Some("campaign") => status(campaign::run()),
        Some("mounts") => {
            let ordo = std::env::args().nth(2).unwrap_or("target/release/ordo".into());
            status(mounts::run(ordo.as_ref()))
        }
        Some(
            suite @ ("xfstests" | "qemu" | "qemu-logs" | "qemu-pressure" | "qemu-sources"
            | "qemu-infer"),
        ) => {
            let ordo = std::env::args().nth(2).unwrap_or("target/release/ordo".into());
            let run = match suite {
                "qemu" => qemu::run,
                "qemu-logs" => qemu::logs::run,
                "qemu-pressure" => qemu::pressure::run,
                "qemu-sources" => qemu::sources::run,
                "qemu-infer" => qemu::policies::run,
                _ => xfstests::run,
            };
            match run(ordo.as_ref()) {
                Ok(sound) => ExitCode::from(u8::from(!sound)),
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            println!(
                "usage: cargo xtask tidy [--wrap|--summary] | building COMMIT | calls | campaign | mounts ORDO | xfstests ORDO | qemu ORDO | qemu-logs ORDO | qemu-pressure ORDO | qemu-sources ORDO | qemu-infer ORDO"
            );
            ExitCode::from(2)
        }
    }
}

/// The exit status of a task, after its error was printed.
fn status(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

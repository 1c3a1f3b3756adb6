//! `ordo trace cleanup`: takes down what killed recordings and searches have left.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use ordo_fuse::mounts::{self, Mount};

use super::in_use;

/// The beginning of the names of directories on which recordings mount.
const DEVICE_DIR: &str = "ordo-pseudo-";
const MOUNT_DIRS: [&str; 2] = ["ordo-live-", "ordo-program-"];

/// Remove what killed recordings and crash searches left: mounts, loop devices, FUSE connections
/// and temporary folders
#[derive(Args, Debug)]
#[command(after_long_help = "\
Devices and folders of running ones are left alone. Removing devices needs root; other users remove
their own folders.

Example:
  ordo trace cleanup --dry-run")]
pub struct Cleanup {
    /// Only list what would be taken down.
    #[arg(long = "dry-run")]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Something that a killed recording has left.
#[derive(Debug, serde::Serialize)]
struct Left {
    what: &'static str,
    path: PathBuf,
    /// Whether it was removed; null in a dry run.
    removed: Option<bool>,
}

fn name_begins(path: &Path, with: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(with))
}

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let done = Command::new(program).args(args).arg(path).output();
    done.is_ok_and(|done| done.status.success())
}

/// Takes down what killed recordings have left, uppermost first: file systems, loop devices,
/// devices' files, directories.
///
/// # Errors
/// The mounts cannot be read.
pub fn cleanup(args: &Cleanup) -> Result<ExitCode> {
    let table = mounts::table().context("reading the mounts")?;
    let mounts: Vec<Mount<'_>> = mounts::of(&table).collect();
    let dead: Vec<&Mount<'_>> = mounts
        .iter()
        .filter(|m| m.source.as_os_str() == "ordo-pseudo" && name_begins(&m.dir, DEVICE_DIR))
        .filter(|m| mounts::is_dead(&m.dir))
        .collect();
    let loops: Vec<PathBuf> = in_use::loops()
        .into_iter()
        .filter(|(_, file)| dead.iter().any(|m| file.starts_with(&m.dir)))
        .map(|(device, _)| device)
        .collect();
    let over = |m: &&Mount<'_>| loops.contains(&m.source);
    let mut all: Vec<Left> = Vec::new();
    let mut take = |what, path: &Path, ways: &[(&str, &[&str])]| {
        let remove = || ways.iter().any(|(program, args)| run(program, args, path));
        let removed = (!args.dry_run).then(remove);
        all.push(Left { what, path: path.to_owned(), removed });
    };
    let lazy: [(&str, &[&str]); 2] = [("umount", &[]), ("umount", &["-l"])];
    for mount in mounts.iter().rev().filter(over) {
        take("file system", &mount.dir, &lazy);
    }
    for device in &loops {
        // Most go away with their last user, which was the file system.
        let is_gone = !args.dry_run && !in_use::loops().iter().any(|(found, _)| found == device);
        let way: (&str, &[&str]) = if is_gone { ("true", &[]) } else { ("losetup", &["-d"]) };
        take("loop device", device, &[way]);
    }
    for mount in &dead {
        take("device", &mount.dir, &lazy);
    }
    let dirs = mounts.iter().filter(over).chain(dead.iter().copied()).map(|m| &m.dir);
    let ours = |dir: &&PathBuf| {
        let names = MOUNT_DIRS.into_iter().chain([DEVICE_DIR]);
        names.into_iter().any(|name| name_begins(dir, name))
    };
    for dir in dirs.filter(ours) {
        take("directory", dir, &[("rmdir", &[])]);
    }
    for left in ordo_recorder::leftovers().context("reading the temporary folders")? {
        let path = left.path().to_owned();
        let removed = (!args.dry_run).then(|| left.remove().is_ok());
        all.push(Left { what: "folder", path, removed });
    }
    if args.json {
        println!("{}", ordo_report::json(&all)?);
    } else {
        for Left { what, path, removed } in &all {
            let done = match removed {
                None => "is left",
                Some(true) => "taken down",
                Some(false) => "could not be removed: it may still be in use",
            };
            println!("{what} {}: {done}", path.display());
        }
        if all.is_empty() {
            println!("nothing of killed recordings is left");
        }
    }
    let failed = all.iter().any(|left| left.removed == Some(false));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

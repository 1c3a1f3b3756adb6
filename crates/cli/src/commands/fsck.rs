//! `ordo fsck`.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::file::{Access, FileDisk};
use ordo_block::overlay::Overlay;
use ordo_block::{BlockDevice, Device};
use ordo_check::lfs::{LfsChecker, LfsReport};
use ordo_check::{Checker, Options, Phase, Repair, Report};
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_report::{json, progress::Progress};
use ordo_runtime::Runtime;

use crate::args::Fsck;
use crate::image::{self, real_time, when_free};
use crate::text::put;

pub fn run(args: &Fsck) -> Result<ExitCode> {
    let repair = match (args.yes, args.preen) {
        (true, _) => Repair::Yes,
        (_, true) => Repair::Preen,
        _ => Repair::No,
    };
    let options = Options {
        repair,
        superblock: args.superblock.map(|sector| sector * 512),
        skip_clean: args.preen && !args.force,
        trust_bitmaps: args.preen,
        ..Options::default()
    };
    let access = if repair == Repair::No { Access::ReadOnly } else { Access::ReadWrite };
    if let Some(report) = real_time(async |rt| lfs(&rt, args, repair, access).await)? {
        let text =
            if args.json { json(&report)? } else { as_text(args, &report, report.exit_code()) };
        put(None, &text)?;
        return Ok(ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(8)));
    }
    let report = real_time(async |rt| {
        let paths = std::iter::once(&args.image).chain(&args.journal);
        let mut disks = Vec::new();
        for path in paths {
            disks.push(when_free(&rt, || Ok(FileDisk::open(&rt, path, access)?)).await?);
        }
        let device = |disk: FileDisk| match repair {
            // What a replay would make of it is looked at; the image stays as it is.
            Repair::No => Overlay::new(disk).erase(),
            _ => disk.erase(),
        };
        let disks: Vec<Device> = disks.into_iter().map(device).collect();
        replay_log(&rt, &disks, args).await;
        check(disks[0].clone(), options, args).await
    })?;
    put(
        None,
        &if args.json { json(&report)? } else { as_text(args, &report, report.exit_code()) },
    )?;
    Ok(ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(8)))
}

/// The check of an LFS; `None`: it is none.
async fn lfs(
    rt: &Runtime,
    args: &Fsck,
    repair: Repair,
    access: Access,
) -> Result<Option<LfsReport>> {
    let disk = FileDisk::open(rt, &args.image, access)?.erase();
    let image = || args.image.display().to_string();
    if args.superblock.is_some() || !ordo_lfs::superblock::probe(&disk).await? {
        return Ok(None);
    }
    let found = ordo_lfs::superblock::find(&disk).await;
    let is_clean = found.is_ok_and(|f| f.sb.pflags & PF_CLEAN != 0);
    if args.preen && !args.force && is_clean {
        let report = LfsChecker::new(disk, Repair::No).skipped().await.with_context(image)?;
        return Ok(Some(report));
    }
    let checker = LfsChecker::new(disk, repair);
    Ok(Some(checker.run().await.with_context(image)?))
}

/// Replays the log of an image that has one, before it is checked.
async fn replay_log(rt: &Runtime, disks: &[Device], args: &Fsck) {
    if args.superblock.is_some() {
        return;
    }
    let in_memory = !(args.yes || args.preen);
    let said = image::replay_log(rt, disks, &args.image, in_memory).await;
    if let Some(said) = said.filter(|_| !args.quiet) {
        let _ = writeln!(std::io::stderr(), "{said}");
    }
}

async fn check(disk: Device, options: Options, args: &Fsck) -> Result<Report> {
    let bar = Progress::new(args.quiet);
    let checker = Checker::new(disk, options).on_progress(Rc::new(move |phase, done, total| {
        if done == 0 {
            bar.begin("fsck", words(phase), total);
        }
        bar.reach(done, total);
    }));
    checker.run().await.with_context(|| args.image.display().to_string())
}

fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Blocks => "blocks and sizes",
        Phase::Names => "path names",
        Phase::Connectivity => "connectivity",
        Phase::References => "reference counts",
        Phase::Groups => "cylinder groups",
        Phase::Writing => "writing repairs",
    }
}

/// A report of a check, of either format, and what to do next.
fn as_text(args: &Fsck, report: &impl Display, exit_code: i32) -> String {
    let all = report.to_string();
    let image = args.image.display();
    let last = all.lines().last().unwrap_or_default();
    let mut out = if args.quiet { String::new() } else { lines_before_last(&all) };
    out.push_str(&format!("{image}: {last}\n"));
    out.push_str(&next_step(args, exit_code));
    out
}

/// What to do where something is left.
fn next_step(args: &Fsck, exit_code: i32) -> String {
    if exit_code != 4 {
        return String::new();
    }
    let next = match (args.yes, args.preen) {
        (true, _) => "what is left cannot be repaired: copy what can be read (ordo export)",
        (_, true) => "nothing was written; ordo fsck -y repairs everything",
        _ => "nothing was written; ordo fsck -y repairs it, -p only what loses nothing",
    };
    format!("{}: {next}\n", args.image.display())
}

fn lines_before_last(text: &str) -> String {
    match text.rfind('\n') {
        Some(at) => text[..=at].to_string(),
        None => String::new(),
    }
}

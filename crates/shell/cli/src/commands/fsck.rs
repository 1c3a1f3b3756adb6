//! `ordo fsck`.

use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::BlockDevice;
use ordo_block::file::{FileAccess, FileDisk};
use ordo_check::Repair;
use ordo_report::progress::Progress;
use ordo_runtime::Runtime;
use ordo_systems::{CheckOptions, CheckReport, FORMATS};

use crate::args::Fsck;
use crate::image::{self, real_time};
use crate::pair::{NamedImage, erased, when_free};
use crate::text::put;
use crate::{contents, partition};

pub fn run(args: &Fsck) -> Result<ExitCode> {
    let repair = match (args.yes, args.preen) {
        (true, _) => Repair::Yes,
        (_, true) => Repair::Preen,
        _ => Repair::No,
    };
    let report = real_time(async |rt| check(&rt, args, repair).await)?;
    put(None, &if args.json { report.json()? } else { as_text(args, &*report) })?;
    Ok(ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(8)))
}

async fn check(rt: &Runtime, args: &Fsck, repair: Repair) -> Result<Box<dyn CheckReport>> {
    let partition = args.partition.as_deref();
    let named = NamedImage { partition, ..NamedImage::new(&args.image).with(&args.metadata) };
    let name = || named.words();
    let access = if repair == Repair::No { FileAccess::ReadOnly } else { FileAccess::ReadWrite };
    let mut files = named.open_when_free(rt, access).await?;
    // A superblock at a place that the user gave must be UFS2's.
    let format = match args.superblock {
        Some(_) => FORMATS[0],
        None => {
            let image = files.last().expect("the image is open").clone().erase();
            contents::format_to_check(&image).await.with_context(name)?
        }
    };
    if let Some(path) = &args.journal {
        let log = when_free(rt, || Ok(FileDisk::open(rt, path, access)?)).await?;
        files.push(partition::whole(Rc::new(log)));
    }
    // Without a repair, the log is replayed in memory only; the image stays unchanged.
    let disks = erased(files, repair == Repair::No);
    if args.superblock.is_none() {
        let in_memory = !(args.yes || args.preen);
        let said = image::replay_log(rt, format, &disks, &args.image, in_memory).await;
        if let Some(said) = said.filter(|_| !args.quiet) {
            let _ = writeln!(std::io::stderr(), "{said}");
        }
    }
    let bar = Progress::new(args.quiet);
    let options = CheckOptions {
        repair,
        superblock: args.superblock.map(|sector| sector * 512),
        skip_clean: args.preen && !args.force,
        trust_bitmaps: args.preen,
        progress: Some(Rc::new(move |phase, done, total| {
            if done == 0 {
                bar.begin("fsck", phase, total);
            }
            bar.reach(done, total);
        })),
    };
    format.check(&disks, &options).await.with_context(name)
}

/// The report of a check, and the next step.
fn as_text(args: &Fsck, report: &dyn CheckReport) -> String {
    let all = report.to_string();
    let image = args.image.display();
    let last = all.lines().last().unwrap_or_default();
    let mut out = if args.quiet { String::new() } else { lines_before_last(&all) };
    out.push_str(&format!("{image}: {last}\n"));
    out.push_str(&next_step(args, report.exit_code()));
    out
}

/// The next step for the user, if damage is left.
fn next_step(args: &Fsck, exit_code: i32) -> String {
    if exit_code != 4 {
        return String::new();
    }
    let next = match (args.yes, args.preen) {
        (true, _) => {
            "the remaining damage cannot be repaired: copy the files that can be read (ordo export)"
        }
        (_, true) => "nothing was written; ordo fsck -y repairs everything",
        _ => "nothing was written; ordo fsck -y repairs it, -p only if nothing is lost",
    };
    format!("{}: {next}\n", args.image.display())
}

fn lines_before_last(text: &str) -> String {
    match text.rfind('\n') {
        Some(at) => text[..=at].to_string(),
        None => String::new(),
    }
}

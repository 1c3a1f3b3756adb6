//! The output of `ordo info` for UFS2: that of dumpfs, with a line about the log.

use ordo_block::{BlockDevice, Device};
use ordo_ffs::mount::{LocatedSuperblock, find_superblock};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::FS_DOSOFTDEP;
use ordo_format::ufs2::{Csum, Group, dump};
use ordo_report::{json, number};

use crate::SystemError;
use crate::journaled::{self, FoundLog, LogPlace};
use crate::options::ShowOptions;

/// Shows the file system on `disk`, as text or JSON.
pub(super) async fn show(disk: &Device, options: &ShowOptions) -> Result<String, SystemError> {
    let found = find_superblock(disk).await?;
    let log = journaled::find(std::slice::from_ref(disk)).await;
    if options.json {
        return as_json(disk, &found, options, log.ok().flatten()).await;
    }
    let mut out = dump::superblock(&found.sb, found.endian);
    match log {
        Ok(None) => {}
        Ok(Some(log)) => out.push_str(&log_line(&log, &found)),
        Err(error) => out.push_str(&format!("log\t{error}\n")),
    }
    out.push('\n');
    out.push_str(&dump::summary(&summary(disk, &found).await?));
    if options.groups {
        for cg in 0..found.sb.ncg {
            out.push('\n');
            out.push_str(&group(disk, &found, cg).await?.1);
        }
    }
    Ok(out)
}

fn place(log: &FoundLog) -> &'static str {
    match log.place {
        LogPlace::File => "file",
        LogPlace::Same => "behind",
        LogPlace::Other => "other",
    }
}

fn log_bytes(log: &FoundLog) -> u64 {
    log.superblock.sectors * u64::from(log.superblock.sector)
}

/// The line about the log. It says whether the log must be replayed.
fn log_line(log: &FoundLog, found: &LocatedSuperblock) -> String {
    let state = match (found.sb.clean == 1, log.superblock.epoch) {
        (true, _) => "nothing to replay",
        (false, 0) => "never used",
        _ => "not unmounted cleanly: ordo fsck replays it",
    };
    let size = number::bytes(log_bytes(log));
    format!("log\t{}\tsize\t{size}\t{state}\n", place(log))
}

/// Reads the summary area: the counts of each group.
async fn summary(disk: &Device, found: &LocatedSuperblock) -> Result<Vec<Csum>, SystemError> {
    let sb = &found.sb;
    let mut out = Vec::new();
    let total = sb.ncg as usize * Csum::SIZE;
    let start = sb.byte_of(sb.csaddr as u64);
    let step = sb.bsize as usize;
    for offset in (0..total).step_by(step) {
        let len = (total - offset).min(step);
        let bytes = disk.read(start + offset as u64, len.next_multiple_of(512)).await?;
        let entries = bytes[..len].chunks_exact(Csum::SIZE);
        out.extend(entries.map(|e| Csum::decode(e, found.endian)));
    }
    Ok(out)
}

/// Reads one group's header, and dumps it.
async fn group(
    disk: &Device,
    found: &LocatedSuperblock,
    cg: u32,
) -> Result<(Group, String), SystemError> {
    let sb = &found.sb;
    let bytes = disk.read(sb.byte_of(sb.cg_header(cg)), sb.bsize as usize).await?;
    let group = Group::read(&bytes, found.endian, sb, cg)
        .map_err(|error| SystemError::Group { group: cg, error: error.to_string() })?;
    let text = dump::group(sb, &group, &bytes, found.endian);
    Ok((group, text))
}

#[derive(serde::Serialize)]
struct Counts {
    directories: i64,
    free_blocks: i64,
    free_fragments: i64,
    free_inodes: i64,
}

#[derive(serde::Serialize)]
struct OneGroup {
    group: u32,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(serde::Serialize)]
struct Log {
    place: &'static str,
    bytes: u64,
}

#[derive(serde::Serialize)]
struct Shown {
    image: String,
    format: &'static str,
    byte_order: &'static str,
    superblock_at: u64,
    label: String,
    bytes: u64,
    block_size: i32,
    frag_size: i32,
    groups: u32,
    frags_per_group: i32,
    inodes_per_group: u32,
    min_free_percent: i32,
    clean: bool,
    soft_updates: bool,
    flags: i32,
    check_hashes: u32,
    last_written: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Log>,
    #[serde(flatten)]
    totals: Counts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    per_group: Vec<OneGroup>,
}

async fn as_json(
    disk: &Device,
    found: &LocatedSuperblock,
    options: &ShowOptions,
    log: Option<FoundLog>,
) -> Result<String, SystemError> {
    let sb = &found.sb;
    let mut per_group = Vec::new();
    if options.groups {
        for (cg, c) in summary(disk, found).await?.into_iter().enumerate() {
            let counts = Counts {
                directories: c.ndir.into(),
                free_blocks: c.nbfree.into(),
                free_fragments: c.nffree.into(),
                free_inodes: c.nifree.into(),
            };
            per_group.push(OneGroup { group: cg as u32, counts });
        }
    }
    let label = sb.volname.split(|b| *b == 0).next().unwrap_or_default();
    Ok(json(&Shown {
        image: options.image.clone(),
        format: "ufs2",
        byte_order: if found.endian == Endian::Little { "little" } else { "big" },
        superblock_at: found.at,
        label: String::from_utf8_lossy(label).into_owned(),
        bytes: sb.byte_of(sb.size as u64),
        block_size: sb.bsize,
        frag_size: sb.fsize,
        groups: sb.ncg,
        frags_per_group: sb.fpg,
        inodes_per_group: sb.ipg,
        min_free_percent: sb.minfree,
        clean: sb.clean == 1,
        soft_updates: sb.flags & FS_DOSOFTDEP != 0,
        flags: sb.flags,
        check_hashes: sb.metackhash,
        last_written: sb.time,
        log: log.map(|log| Log { place: place(&log), bytes: log_bytes(&log) }),
        totals: Counts {
            directories: sb.cstotal.ndir,
            free_blocks: sb.cstotal.nbfree,
            free_fragments: sb.cstotal.nffree,
            free_inodes: sb.cstotal.nifree,
        },
        per_group,
    })?)
}

//! The log behind a checkpoint.

use ordo_block::Device;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::lfs::{PsegBlock, Summary, SummaryError, Superblock, summary::flag};

use crate::disk::LogDisk;
use crate::{LfsError, superblock};

/// A complete partial segment that follows the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSegment {
    /// The address of the partial segment's summary.
    pub at: i64,
    /// The address behind the partial segment.
    pub end: i64,
    /// The summary.
    pub summary: Summary,
    /// The blocks of the partial segment.
    pub blocks: Vec<PsegBlock>,
}

/// The reason for the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The file system was unmounted.
    Clean,
    /// No partial segment follows: at the next address there is an older one, or no summary.
    Nothing,
    /// A partial segment follows, but it is torn.
    Torn(SummaryError),
}

/// The log behind a checkpoint.
pub struct LogScan {
    /// The partial segments. Those at the end whose continuation (`SS_CONT`) is missing are left out.
    pub psegs: Vec<PartialSegment>,
    /// The number of partial segments at the end whose continuation is missing.
    pub incomplete: usize,
    /// The reason why the log ends here.
    pub end: LogEnd,
}

/// The addresses at which the next partial segment can be: behind the last one if its segment has space,
/// otherwise at the start of the next. The space that NetBSD's writer demands differs by a fragment from the
/// space that its roll-forward demands, so in a close case both addresses are possible.
fn candidates(sb: &Superblock, at: i64, next: i64) -> [Option<i64>; 2] {
    // At the end of a full segment, `at` is the start of the following one, but the log continues at `next`.
    let inside = sb.segment_of(at - 1).filter(|_| at > sb.s0addr);
    let space = inside.map_or(0, |s| sb.segment_start(s + 1) - at);
    let at_start = sb.segment_of(at).filter(|s| sb.segment_data(*s) == at);
    let here = (space > sb.block_frags() || at_start.is_some()).then_some(at);
    let start = sb.segment_of(next).filter(|s| sb.segment_start(*s) == next);
    let is_close = space <= sb.block_frags() + i64::from(sb.sumsize / sb.fsize);
    [here, start.filter(|_| is_close).map(|s| sb.segment_data(s))]
}

/// Reads the log behind the checkpoint.
///
/// # Errors
/// The device failed.
pub async fn read(disk: &LogDisk) -> Result<LogScan, LfsError> {
    let sb = &disk.sb;
    let mut out = LogScan { psegs: Vec::new(), incomplete: 0, end: LogEnd::Nothing };
    if sb.pflags & PF_CLEAN != 0 {
        out.end = LogEnd::Clean;
        return Ok(out);
    }
    let (mut at, mut next, mut serial) = (sb.offset, sb.nextseg, sb.serial);
    while let Some(wanted) = serial.checked_add(1) {
        let mut found = None;
        for place in candidates(sb, at, next).into_iter().flatten() {
            match read_pseg(disk, place, wanted).await? {
                Ok(pseg) => {
                    found = Some(pseg);
                    break;
                }
                Err(LogEnd::Nothing) => {}
                Err(end) => out.end = end,
            }
        }
        let Some(pseg) = found else { break };
        out.end = LogEnd::Nothing;
        (at, next, serial) = (pseg.end, pseg.summary.head.next, wanted);
        match pseg.summary.head.flags & flag::CONT {
            0 => out.incomplete = 0,
            _ => out.incomplete += 1,
        }
        out.psegs.push(pseg);
    }
    out.psegs.truncate(out.psegs.len() - out.incomplete);
    Ok(out)
}

/// Whether the partial segments of the LFS on a device have seals, as those to come will. See
/// [`LfsRules::BLOCKS_FIRST`](crate::write::LfsRules).
///
/// # Errors
/// There is no LFS, or the device failed.
pub async fn has_seals(device: &Device) -> Result<bool, LfsError> {
    let found = superblock::find(device).await?;
    is_sealed(&LogDisk::new(device.clone(), found.sb, None)).await
}

/// Whether the last partial segment before the end of the checkpoint has a seal. A log that has none, because another
/// system made it or because of an option of mkfs, gets none later. A log whose last summary cannot be read counts as
/// sealed.
///
/// # Errors
/// The device failed.
pub async fn is_sealed(disk: &LogDisk) -> Result<bool, LfsError> {
    let sb = &disk.sb;
    // If the log fills its last segment, `offset` is the start of the segment behind it.
    let Some(segment) = sb.segment_of(sb.offset - 1) else { return Ok(true) };
    let (mut at, mut found) = (sb.segment_data(segment), true);
    while at < sb.offset && sb.is_log(at, sb.sumsize / sb.fsize) {
        let bytes = disk.read_raw(at, sb.sumsize.into()).await?;
        let Ok(summary) = Summary::read(sb, &bytes) else { break };
        let Ok((_, end)) = summary.layout(sb, at) else { break };
        found = summary.is_sealed();
        at = end;
    }
    Ok(found)
}

/// The partial segment at `at`, if it has this serial number and is complete.
async fn read_pseg(
    disk: &LogDisk,
    at: i64,
    serial: u64,
) -> Result<Result<PartialSegment, LogEnd>, LfsError> {
    let sb = &disk.sb;
    if !sb.is_log(at, sb.sumsize / sb.fsize) {
        return Ok(Err(LogEnd::Nothing));
    }
    let bytes = disk.read_raw(at, sb.sumsize.into()).await?;
    let summary = match Summary::read(sb, &bytes) {
        Ok(summary) => summary,
        Err(SummaryError::Magic { .. }) => return Ok(Err(LogEnd::Nothing)),
        Err(error) => return Ok(Err(LogEnd::Torn(error))),
    };
    let head = &summary.head;
    if head.serial != serial || head.ident != sb.ident {
        return Ok(Err(LogEnd::Nothing));
    }
    let (blocks, end) = match summary.layout(sb, at) {
        Ok(found) => found,
        Err(error) => return Ok(Err(LogEnd::Torn(error))),
    };
    let bytes = disk.read_raw(at, (end - at) as u64 * u64::from(sb.fsize)).await?;
    if let Err(error) = summary.verify(sb, at, &bytes) {
        return Ok(Err(LogEnd::Torn(error)));
    }
    // An empty partial segment has no meaning, and NetBSD does not read past it.
    if blocks.is_empty() {
        return Ok(Err(LogEnd::Nothing));
    }
    Ok(Ok(PartialSegment { at, end, summary, blocks }))
}

//! The log behind a checkpoint.

use std::collections::BTreeMap;

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
    /// The contents of its blocks of inodes, by address.
    inodes: BTreeMap<i64, Box<[u8]>>,
}

impl PartialSegment {
    /// The contents of one of its blocks of inodes.
    pub fn inode_block(&self, addr: i64) -> &[u8] {
        self.inodes.get(&addr).map_or(&[], |bytes| bytes)
    }
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
    /// The partial segments. Those at the end whose continuation (`SS_CONT`) is missing are left
    /// out.
    pub psegs: Vec<PartialSegment>,
    /// The number of partial segments at the end whose continuation is missing.
    pub incomplete: usize,
    /// The reason why the log ends here.
    pub end: LogEnd,
}

/// The addresses at which the next partial segment can be: behind the last one if its segment has
/// space, otherwise at the start of the next. The space that NetBSD's writer demands differs by a
/// fragment from the space that its roll-forward demands, so in a close case both addresses are
/// possible.
fn candidates(sb: &Superblock, at: i64, next: i64) -> [Option<i64>; 2] {
    // At the end of a full segment, `at` is the start of the following one, but the log continues
    // at `next`.
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
    let mut ahead = Ahead { disk, at: 0, bytes: Vec::new() };
    while let Some(wanted) = serial.checked_add(1) {
        let mut found = None;
        for place in candidates(sb, at, next).into_iter().flatten() {
            match read_pseg(&mut ahead, place, wanted).await? {
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

/// Whether the last partial segment before the end of the checkpoint has a seal. A log that has
/// none, because another system made it or because of an option of mkfs, gets none later. A log
/// whose last summary cannot be read counts as sealed.
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

/// The bytes that are read at once, as far as the segment goes.
const AHEAD: u64 = 256 << 10;

/// Bytes of the log that were read together. On a disk with moving heads, each of two requests for
/// neighbouring bytes costs a turn.
struct Ahead<'d> {
    disk: &'d LogDisk,
    /// The address of the first byte.
    at: i64,
    bytes: Vec<u8>,
}

impl Ahead<'_> {
    /// The `bytes` bytes from fragment `addr` on, which are in one segment.
    async fn get(&mut self, addr: i64, bytes: u64) -> Result<&[u8], LfsError> {
        let sb = &self.disk.sb;
        let fsize = u64::from(sb.fsize);
        let have = self.at..self.at + (self.bytes.len() as u64 / fsize).cast_signed();
        match have.contains(&addr) {
            true => drop(self.bytes.drain(..((addr - self.at) as u64 * fsize) as usize)),
            false => self.bytes.clear(),
        }
        self.at = addr;
        let known = self.bytes.len() as u64;
        if known < bytes {
            let from = addr + (known / fsize).cast_signed();
            let end = sb.segment_of(addr).map_or(from, |segment| sb.segment_start(segment + 1));
            let rest = (end - from).max(0).cast_unsigned() * fsize;
            let need = bytes - known;
            let more = match self.disk.read_raw(from, need.max(rest.min(AHEAD))).await {
                Ok(more) => more,
                // What lies behind the end of the log may be unreadable.
                Err(_) => self.disk.read_raw(from, need).await?,
            };
            self.bytes.extend(more);
        }
        Ok(&self.bytes[..bytes as usize])
    }
}

/// The partial segment at `at`, if it has this serial number and is complete.
async fn read_pseg(
    ahead: &mut Ahead<'_>,
    at: i64,
    serial: u64,
) -> Result<Result<PartialSegment, LogEnd>, LfsError> {
    let sb = &ahead.disk.sb;
    if !sb.is_log(at, sb.sumsize / sb.fsize) {
        return Ok(Err(LogEnd::Nothing));
    }
    let bytes = ahead.get(at, sb.sumsize.into()).await?;
    let summary = match Summary::read(sb, bytes) {
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
    let bytes = ahead.get(at, (end - at) as u64 * u64::from(sb.fsize)).await?;
    if let Err(error) = summary.verify(sb, at, bytes) {
        return Ok(Err(LogEnd::Torn(error)));
    }
    // An empty partial segment has no meaning, and NetBSD does not read past it.
    if blocks.is_empty() {
        return Ok(Err(LogEnd::Nothing));
    }
    let in_bytes = |addr: i64| (addr - at) as usize * sb.fsize as usize;
    let inodes = blocks.iter().filter_map(|block| match *block {
        PsegBlock::Inodes { addr } => {
            Some((addr, bytes[in_bytes(addr)..][..sb.ibsize as usize].into()))
        }
        PsegBlock::File { .. } => None,
    });
    let inodes = inodes.collect();
    Ok(Ok(PartialSegment { at, end, summary, blocks, inodes }))
}

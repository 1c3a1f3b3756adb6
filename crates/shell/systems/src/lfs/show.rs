//! The output of `ordo info` for an LFS: that of dumplfs.

use ordo_block::Device;
use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::lfs::{SegUse, Superblock};
use ordo_lfs::{LfsReader, LogEnd, RolledForward};
use ordo_report::{json, number};

use crate::SystemError;
use crate::options::ShowOptions;

#[derive(serde::Serialize)]
struct Segment {
    segment: u64,
    flags: String,
    live_bytes: u32,
    summaries: u16,
    inode_blocks: u16,
    last_written: u64,
}

#[derive(serde::Serialize)]
struct Shown {
    image: String,
    format: &'static str,
    byte_order: &'static str,
    bytes: u64,
    block_size: u32,
    frag_size: u32,
    segment_size: u32,
    segments: u32,
    clean_segments: u32,
    clean: bool,
    ident: u32,
    serial: u64,
    free_fragments: i64,
    available_fragments: i64,
    files: u64,
    superblocks_at: Vec<u64>,
    last_written: u64,
    /// The number of partial segments behind the checkpoint.
    log_partial_segments: usize,
    log_incomplete: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    per_segment: Vec<Segment>,
}

/// Shows the file system on `disk`, as text or JSON.
pub(super) async fn show(disk: &Device, options: &ShowOptions) -> Result<String, SystemError> {
    let fs = LfsReader::mount(disk.clone()).await?;
    let (sb, rolled) = (fs.superblock(), fs.rolled_forward());
    let segments = if options.groups { fs.segments().await? } else { Vec::new() };
    match options.json {
        true => Ok(json(&shown(sb, rolled, &segments, options))?),
        false => Ok(text(sb, rolled, &segments)),
    }
}

fn shown(
    sb: &Superblock,
    rolled: &RolledForward,
    segments: &[SegUse],
    options: &ShowOptions,
) -> Shown {
    let places = sb.sboffs.iter().filter(|a| **a != 0);
    let each = |(segment, s): (u64, &SegUse)| Segment {
        segment,
        flags: flags(s),
        live_bytes: s.nbytes,
        summaries: s.nsums,
        inode_blocks: s.ninos,
        last_written: s.lastmod,
    };
    Shown {
        image: options.image.clone(),
        format: match sb.width {
            ordo_format::lfs::Width::Lfs32 => "lfs32",
            ordo_format::lfs::Width::Lfs64 => "lfs64",
        },
        byte_order: "little",
        bytes: sb.size * u64::from(sb.fsize),
        block_size: sb.bsize,
        frag_size: sb.fsize,
        segment_size: sb.ssize,
        segments: sb.nseg,
        clean_segments: sb.nclean,
        clean: sb.pflags & PF_CLEAN != 0,
        ident: sb.ident,
        serial: sb.serial,
        free_fragments: sb.bfree,
        available_fragments: sb.avail,
        files: sb.nfiles,
        superblocks_at: places.map(|a| sb.byte_of(*a)).collect(),
        last_written: sb.tstamp,
        log_partial_segments: rolled.partial_segments,
        log_incomplete: rolled.incomplete,
        per_segment: (0..).zip(segments).map(each).collect(),
    }
}

/// The flags of a segment as dumplfs's letters: active, dirty or clean, superblock.
fn flags(s: &SegUse) -> String {
    let letter = |flag: u32, letter: char| if s.flags & flag != 0 { letter } else { '-' };
    let dirty = if s.is_dirty() { 'D' } else { 'C' };
    [
        letter(seg_flag::ACTIVE, 'A'),
        dirty,
        letter(seg_flag::SUPERBLOCK, 'S'),
        letter(seg_flag::ERROR, 'E'),
    ]
    .iter()
    .collect()
}

fn text(sb: &Superblock, rolled: &RolledForward, segments: &[SegUse]) -> String {
    let size = number::bytes(sb.size * u64::from(sb.fsize));
    let clean = if sb.pflags & PF_CLEAN != 0 { "clean" } else { "not unmounted" };
    let mut out = format!(
        "{}  version {}  {size}  ident {:#x}  {clean}\n\
         ssize {}  bsize {}  fsize {}  frag {}  sumsize {}  ibsize {}\n\
         nseg {}  nclean {}  minfreeseg {}  resvseg {}  minfree {} %  s0addr {}\n\
         dsize {}  bfree {}  avail {}  dmeta {}  nfiles {}  freehd {}\n",
        sb.width.name(),
        sb.version,
        sb.ident,
        sb.ssize,
        sb.bsize,
        sb.fsize,
        sb.frag,
        sb.sumsize,
        sb.ibsize,
        sb.nseg,
        sb.nclean,
        sb.minfreeseg,
        sb.resvseg,
        sb.minfree,
        sb.s0addr,
        sb.dsize,
        sb.bfree,
        sb.avail,
        sb.dmeta,
        sb.nfiles,
        sb.freehd,
    );
    out.push_str(&format!(
        "checkpoint: serial {}  tstamp {}  idaddr {}\n\
         curseg {}  offset {}  nextseg {}  lastseg {}\n",
        sb.serial, sb.tstamp, sb.idaddr, sb.curseg, sb.offset, sb.nextseg, sb.lastseg
    ));
    let places: Vec<String> =
        sb.sboffs.iter().filter(|a| **a != 0).map(|a| a.to_string()).collect();
    out.push_str(&format!("superblocks at {}\n", places.join(" ")));
    out.push_str(&log_line(rolled));
    if !segments.is_empty() {
        out.push_str("\nsegment flags  live bytes summaries inode blocks last written\n");
    }
    for (i, s) in segments.iter().enumerate() {
        out.push_str(&format!(
            "{i:>7} {:<5} {:>11} {:>9} {:>12} {:>12}\n",
            flags(s),
            s.nbytes,
            s.nsums,
            s.ninos,
            s.lastmod
        ));
    }
    out
}

fn log_line(rolled: &RolledForward) -> String {
    let RolledForward { partial_segments, incomplete, offset, serial, end } = rolled;
    let mut out = match (partial_segments, end) {
        (0, LogEnd::Clean) => return "log: unmounted, nothing behind the checkpoint\n".into(),
        (0, _) => "log: nothing behind the checkpoint".to_string(),
        (n, _) => format!(
            "log: {n} partial segments behind the checkpoint, to serial {serial} at {offset}"
        ),
    };
    if *incomplete > 0 {
        out.push_str(&format!(", {incomplete} incomplete"));
    }
    if let LogEnd::Torn(error) = end {
        out.push_str(&format!("\nlog: torn there: {error}"));
    }
    out + "\n"
}

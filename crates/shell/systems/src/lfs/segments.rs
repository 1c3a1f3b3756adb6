//! The segments of an LFS: a map of how full they are, and cleaning.

use std::fmt::Write as _;

use ordo_block::Device;
use ordo_lfs::LfsReader;
use ordo_lfs::write::{MountOptions, mount};
use ordo_report::number;
use ordo_runtime::Runtime;

use crate::SystemError;

/// The number of segments in a line of the map.
const LINE: usize = 64;
/// The width of a segment in the drawing, and its height when it is full, in pixels.
const CELL: (usize, usize) = (10, 24);

/// A segment in the map.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MapSegment {
    /// The segment's number.
    pub segment: u64,
    /// Whether it can be written.
    pub clean: bool,
    /// Whether the log ends in this segment.
    pub active: bool,
    /// The number of live bytes in the segment.
    pub live_bytes: u64,
    /// The time when the segment was last written, in seconds since 1970.
    pub last_written: u64,
}

/// The segments of an LFS, with the live bytes of each.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SegmentMap {
    /// The size of a segment in bytes.
    pub segment_bytes: u64,
    /// The number of live bytes in all segments.
    pub live_bytes: u64,
    /// The number of segments that can be written.
    pub clean: u64,
    /// All segments.
    pub segments: Vec<MapSegment>,
}

/// The result of a cleaning.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Cleaned {
    /// The number of segments that were cleaned.
    pub segments: u64,
    /// Live bytes that were moved.
    pub moved_bytes: u64,
    /// The number of write-outs that the cleaning took.
    pub passes: u64,
}

/// Reads the segments of the LFS on a device.
///
/// # Errors
/// There is no LFS, it is damaged, or the device failed.
pub async fn map(disk: &Device) -> Result<SegmentMap, SystemError> {
    let fs = LfsReader::mount(disk.clone()).await?;
    let current = fs.superblock().segment_of(fs.superblock().offset - 1);
    let all = fs.segments().await?;
    let segments: Vec<MapSegment> = (0..)
        .zip(&all)
        .map(|(segment, seguse)| MapSegment {
            segment,
            clean: !seguse.is_dirty(),
            active: current == Some(segment),
            live_bytes: if seguse.is_dirty() { seguse.nbytes.into() } else { 0 },
            last_written: seguse.lastmod,
        })
        .collect();
    Ok(SegmentMap {
        segment_bytes: fs.superblock().ssize.into(),
        live_bytes: segments.iter().map(|s| s.live_bytes).sum(),
        clean: segments.iter().filter(|s| s.clean).count() as u64,
        segments,
    })
}

/// Cleans every segment of the LFS on a device of which at most `percent` is live. The LFS is
/// unmounted afterwards.
///
/// # Errors
/// There is no LFS that can be written, it is damaged, or the device failed.
pub async fn clean(rt: &Runtime, disk: Device, percent: u64) -> Result<Cleaned, SystemError> {
    let fs = mount(rt, disk, &MountOptions::default()).await?;
    let counts = fs.layout().clean_below(percent).await?;
    fs.unmount().await?;
    let (segments, moved_bytes, passes) = (counts.segments, counts.moved_bytes, counts.passes);
    Ok(Cleaned { segments, moved_bytes, passes })
}

impl SegmentMap {
    /// The live part of a segment in tenths, rounded down: 0 to 9.
    fn tenth(&self, segment: &MapSegment) -> u64 {
        (segment.live_bytes * 10 / self.segment_bytes.max(1)).min(9)
    }

    /// The map as text, with the number of segments in each tenth of fullness.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{} segments of {}, {} clean, {} live\n. clean   0-9 tenths that are live   * the log ends here\n\n",
            self.segments.len(),
            number::bytes(self.segment_bytes),
            self.clean,
            number::bytes(self.live_bytes),
        );
        for line in self.segments.chunks(LINE) {
            let _ = write!(out, "{:>8}  ", line[0].segment);
            for segment in line {
                out.push(match segment {
                    MapSegment { active: true, .. } => '*',
                    MapSegment { clean: true, .. } => '.',
                    segment => char::from(b'0' + self.tenth(segment) as u8),
                });
            }
            out.push('\n');
        }
        out.push_str("\nlive      segments\n");
        for tenth in 0..10 {
            let count = self.segments.iter().filter(|s| !s.clean && self.tenth(s) == tenth).count();
            let bar = "#".repeat((count * 60).div_ceil(self.segments.len().max(1)));
            let line = format!("{:>3}-{:<3}%  {count:>7}  {bar}", tenth * 10, tenth * 10 + 10);
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// The map as a drawing. Each segment is a bar whose height is the live part of the segment.
    pub fn svg(&self) -> String {
        let (width, height) = CELL;
        let lines = self.segments.len().div_ceil(LINE);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\n\
             <title>{} segments, {} clean</title>\n",
            LINE * width,
            lines * (height + 4),
            self.segments.len(),
            self.clean,
        );
        for (i, segment) in self.segments.iter().enumerate() {
            let (x, y) = (i % LINE * width, i / LINE * (height + 4));
            let live = segment.live_bytes * height as u64 / self.segment_bytes.max(1);
            let live = (live as usize).clamp(usize::from(segment.live_bytes > 0), height);
            let ground = if segment.clean { "#eee" } else { "#ccd" };
            let ink = if segment.active { "#c40" } else { "#246" };
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{height}\" fill=\"{ground}\"/>\
                 <rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{live}\" fill=\"{ink}\"/>",
                width - 1,
                y + height - live,
                width - 1,
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

//! The report on a DualFS that was just made.

use ordo_dualfs::mkfs::Made;
use ordo_report::{json, number};

use crate::format::MadeReport;

#[derive(serde::Serialize)]
struct Shown<'a> {
    image: &'a str,
    format: &'static str,
    pair: String,
    block_size: u32,
    metadata_bytes: u64,
    segment_size: u32,
    segments: u32,
    data_bytes: u64,
    group_blocks: u32,
    groups: u32,
    /// The first byte of the data device, if it is on the same disk.
    data_at: Option<u64>,
}

impl MadeReport for Made {
    fn text(&self, image: &str) -> String {
        let (id, sb) = (&self.identity, &self.superblock);
        let place = match id.data_at {
            0 => "on a device of its own".to_owned(),
            at => format!("from byte {at} on"),
        };
        format!(
            "{image}: DualFS, pair {}, blocks of {}\n\
             metadata: {}, {} segments of {}\n\
             data: {}, {place}, {} groups of {} blocks\n",
            id.name(),
            number::bytes(id.bsize.into()),
            number::bytes(id.metadata_bytes),
            sb.nseg,
            number::bytes(sb.ssize.into()),
            number::bytes(id.blocks * u64::from(id.bsize)),
            id.groups,
            id.group_blocks,
        )
    }

    fn json(&self, image: &str) -> Result<String, serde_json::Error> {
        let (id, sb) = (&self.identity, &self.superblock);
        json(&Shown {
            image,
            format: "dualfs",
            pair: id.name().to_string(),
            block_size: id.bsize,
            metadata_bytes: id.metadata_bytes,
            segment_size: sb.ssize,
            segments: sb.nseg,
            data_bytes: id.blocks * u64::from(id.bsize),
            group_blocks: id.group_blocks,
            groups: id.groups,
            data_at: Some(id.data_at).filter(|at| *at > 0),
        })
    }
}

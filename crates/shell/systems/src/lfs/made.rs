//! The report on an LFS that was just made.

use ordo_format::lfs::Superblock;
use ordo_report::{json, number};

use crate::format::MadeReport;

#[derive(serde::Serialize)]
struct Made<'a> {
    image: &'a str,
    format: &'static str,
    bytes: u64,
    block_size: u32,
    frag_size: u32,
    segment_size: u32,
    segments: u32,
    superblock_copies: Vec<u64>,
}

impl MadeReport for Superblock {
    fn text(&self, image: &str) -> String {
        format!(
            "{image}: LFS64, {}, blocks of {}, fragments of {}, {} segments of {}\n",
            number::bytes(self.size * u64::from(self.fsize)),
            number::bytes(self.bsize.into()),
            number::bytes(self.fsize.into()),
            self.nseg,
            number::bytes(self.ssize.into()),
        )
    }

    fn json(&self, image: &str) -> Result<String, serde_json::Error> {
        let copies = self.sboffs.iter().skip(1).filter(|a| **a != 0);
        json(&Made {
            image,
            format: "lfs64",
            bytes: self.size * u64::from(self.fsize),
            block_size: self.bsize,
            frag_size: self.fsize,
            segment_size: self.ssize,
            segments: self.nseg,
            superblock_copies: copies.map(|a| self.byte_of(*a)).collect(),
        })
    }
}

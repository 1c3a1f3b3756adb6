//! The report on a UFS2 file system that was just made.

use ordo_ffs::mkfs::MkfsReport;
use ordo_report::{json, number};

use crate::format::MadeReport;

/// The number of superblock copies that are listed.
const LISTED: usize = 8;

#[derive(serde::Serialize)]
struct Made<'a> {
    image: &'a str,
    bytes: u64,
    block_size: i32,
    frag_size: i32,
    groups: u32,
    inodes: u64,
    superblock_copies: &'a [u64],
    writes: u64,
    bytes_written: u64,
}

impl MadeReport for MkfsReport {
    fn text(&self, image: &str) -> String {
        let sb = &self.superblock;
        let mut out = format!(
            "{image}: {}, {} blocks of {}, fragments of {}, {} cylinder groups, {} inodes\n",
            number::bytes(sb.byte_of(sb.size as u64)),
            number::count(sb.size as u64 / sb.frag as u64),
            number::bytes(sb.bsize as u64),
            number::bytes(sb.fsize as u64),
            sb.ncg,
            number::count(u64::from(sb.ncg) * u64::from(sb.ipg)),
        );
        if let Some(density) = self.density_changed {
            out.push_str(&format!(
                "one inode for every {density} bytes, to fit the group headers\n"
            ));
        }
        let sectors: Vec<String> =
            self.copies.iter().take(LISTED).map(|at| (at / 512).to_string()).collect();
        let more = if self.copies.len() > LISTED { ", ..." } else { "" };
        out.push_str(&format!(
            "copies of the superblock (for fsck -b) at sectors {}{more}\n",
            sectors.join(", ")
        ));
        out
    }

    fn json(&self, image: &str) -> Result<String, serde_json::Error> {
        let sb = &self.superblock;
        json(&Made {
            image,
            bytes: sb.byte_of(sb.size as u64),
            block_size: sb.bsize,
            frag_size: sb.fsize,
            groups: sb.ncg,
            inodes: u64::from(sb.ncg) * u64::from(sb.ipg),
            superblock_copies: &self.copies,
            writes: self.writes,
            bytes_written: self.bytes_written,
        })
    }
}

//! `ordo mkfs --fs lfs`.

use anyhow::{Context, Result, bail};
use ordo_block::BlockDevice;
use ordo_block::part::Part;
use ordo_format::lfs::Superblock;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_report::{json, number};

use super::{open, u32_of};
use crate::args::Mkfs;
use crate::image::real_time;
use crate::text::put;

#[derive(serde::Serialize)]
struct Made {
    image: String,
    format: &'static str,
    bytes: u64,
    block_size: u32,
    frag_size: u32,
    segment_size: u32,
    segments: u32,
    superblock_copies: Vec<u64>,
}

pub fn run(args: &Mkfs) -> Result<()> {
    let defaults = MkfsOptions::default();
    let block_size = match args.block_size {
        Some(bytes) => u32_of("block size", bytes)?,
        None => defaults.block_size,
    };
    let options = MkfsOptions {
        block_size,
        frag_size: match args.frag_size {
            Some(bytes) => u32_of("fragment size", bytes)?,
            None => (block_size / 8).max(512),
        },
        segment_size: u32_of("segment size", args.segment_size)?,
        min_free: args.min_free.into(),
        ident: u32_of("seed", args.seed)?,
        sealed: !args.no_crc,
    };
    let sb = real_time(async |rt| {
        let disk = open(&rt, args).await?;
        let have = disk.geometry().bytes;
        let bytes = args.size.unwrap_or(have);
        if bytes > have {
            bail!("{}: has {have} bytes, {bytes} were asked for", args.image.display());
        }
        let now = rt.wall_time().0.max(0).cast_unsigned();
        let made = mkfs(Part::new(disk, 0, bytes / 512 * 512), &options, now).await;
        made.with_context(|| args.image.display().to_string())
    })?;
    put(None, &if args.json { json(&made(args, &sb))? } else { as_text(args, &sb) })
}

fn made(args: &Mkfs, sb: &Superblock) -> Made {
    let copies = sb.sboffs.iter().skip(1).filter(|a| **a != 0);
    Made {
        image: args.image.display().to_string(),
        format: "lfs64",
        bytes: sb.size * u64::from(sb.fsize),
        block_size: sb.bsize,
        frag_size: sb.fsize,
        segment_size: sb.ssize,
        segments: sb.nseg,
        superblock_copies: copies.map(|a| sb.byte_of(*a)).collect(),
    }
}

fn as_text(args: &Mkfs, sb: &Superblock) -> String {
    format!(
        "{}: LFS64, {}, blocks of {}, fragments of {}, {} segments of {}\n",
        args.image.display(),
        number::bytes(sb.size * u64::from(sb.fsize)),
        number::bytes(sb.bsize.into()),
        number::bytes(sb.fsize.into()),
        sb.nseg,
        number::bytes(sb.ssize.into()),
    )
}

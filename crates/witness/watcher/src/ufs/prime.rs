//! Priming: reads the superblock, inodes, indirect blocks and directories of a device before the
//! first request.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use ordo_format::Endian;
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, SEARCH};
use ordo_format::ufs2::{Group, Superblock, dir};

use super::Ufs;
use super::learned::{ClassifiedParts, LearnedState, RangeData, RequestDetail};
use crate::decoder::{Decoder, DecoderState, DiskImage};

const ROOT: u64 = 2;
/// The largest read, in bytes.
const READ: u64 = 1 << 20;

/// The decoder for an image; `None` if the image has no UFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    read_all(image, state).map(|ufs| Box::new(ufs) as Box<dyn Decoder>)
}

/// Reads everything on an image; `None` if the image has no UFS.
pub(super) fn read_all(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Ufs> {
    let (sb, endian) = SEARCH.iter().find_map(|place| {
        let raw = read(image, *place, SBLOCK_SIZE as u64).ok()?;
        Superblock::read(&raw, *place).ok()
    })?;
    let mut learned = LearnedState::new(&sb, endian);
    learn(&mut learned, image, state).ok()?;
    state.begin();
    state.names.set_root(ROOT);
    names(&learned, image, state);
    Some(Ufs { learned })
}

/// The decoder for a device of which only a request is known; `None` if the request has no
/// superblock.
pub(crate) fn sight(
    offset: u64,
    data: &[u8],
    state: &mut DecoderState,
) -> Option<Box<dyn Decoder>> {
    let (sb, endian) = superblocks(offset, data).next()?;
    state.names.set_root(ROOT);
    Some(Box::new(Ufs { learned: LearnedState::new(&sb, endian) }))
}

/// The superblocks in a request that lie at one of their standard places.
pub(super) fn superblocks(
    offset: u64,
    data: &[u8],
) -> impl Iterator<Item = (Superblock, Endian)> + use<'_> {
    SEARCH.into_iter().filter_map(move |place| {
        let from = usize::try_from(place.checked_sub(offset)?).ok()?;
        let bytes = data.get(from..).filter(|bytes| bytes.len() >= Superblock::SIZE)?;
        let found = Superblock::parse(bytes).ok()?;
        (found.0.sblockloc == place as i64).then_some(found)
    })
}

/// Reads a range of the image, up to the end of the image.
fn read(image: &dyn DiskImage, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut all = vec![0; len.min(image.bytes().saturating_sub(at)) as usize];
    image.read_at(at, &mut all)?;
    Ok(all)
}

/// Learns everything except names.
fn learn(
    learned: &mut LearnedState,
    image: &dyn DiskImage,
    state: &mut DecoderState,
) -> io::Result<()> {
    let (sb, endian) = (learned.sb.clone(), learned.endian);
    let bsize = sb.bsize as u64;
    for cg in 0..sb.ncg {
        let header = read(image, sb.byte_of(sb.cg_header(cg)), bsize)?;
        let inited = match Group::read(&header, endian, &sb, cg) {
            Ok(group) => sb.inodes_ready(&group),
            Err(_) => sb.ipg,
        };
        let first = sb.byte_of(sb.cg_inodes(cg));
        let len = (u64::from(inited) * sb.inode_size() as u64).next_multiple_of(bsize);
        learn_range(learned, image, first..first + len, state)?;
    }
    // Each round reads one more level of indirect blocks; there are three.
    for _ in 0..3 {
        for addr in learned.files.unread_indirects() {
            let at = sb.byte_of(addr);
            learn_range(learned, image, at..at + bsize, state)?;
        }
    }
    for (start, frags) in learned.files.directories() {
        let at = sb.byte_of(start);
        learn_range(learned, image, at..at + sb.byte_of(frags), state)?;
    }
    learned.primed = true;
    Ok(())
}

fn learn_range(
    learned: &mut LearnedState,
    image: &dyn DiskImage,
    range: Range<u64>,
    state: &mut DecoderState,
) -> io::Result<()> {
    let bsize = learned.sb.bsize as u64;
    let step = READ.max(bsize) / bsize * bsize;
    let (mut at, to) = (range.start, range.end);
    while at < to {
        let data = read(image, at, step.min(to - at))?;
        if data.is_empty() {
            break;
        }
        let mut named = ClassifiedParts::default();
        learned.name(RequestDetail::Read, &RangeData::of(at, &data), &mut named);
        for part in &named.parts {
            let start = (part.offset - at) as usize;
            learned.absorb_read(part, &data[start..start + part.len as usize], state);
        }
        // Claims count requests again. No request has been counted yet.
        state.claims.clear();
        at += data.len() as u64;
    }
    Ok(())
}

/// Learns the names in the directories of the image.
fn names(learned: &LearnedState, image: &dyn DiskImage, state: &mut DecoderState) {
    // Directories are read in the order of the device: the last name that is seen of a file is its
    // path.
    let all: BTreeMap<u64, u64> = learned.files.directories().into_iter().collect();
    for (start, frags) in all {
        let Some(extent) = learned.files.owners.at(start) else { continue };
        let mut block = vec![0; learned.sb.byte_of(frags) as usize];
        if image.read_at(learned.sb.byte_of(start), &mut block).is_ok() {
            for entry in dir::entries(&block, learned.endian).flatten() {
                if entry.ino != 0 {
                    state.names.seen(extent.ino.into(), entry.name, entry.ino.into());
                }
            }
        }
    }
}

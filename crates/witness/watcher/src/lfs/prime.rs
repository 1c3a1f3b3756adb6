//! Priming: learns the state of a device before requests pass. It reads all summaries, then blocks
//! of inodes in the order in which they were written, then directories.

use ordo_format::lfs::{LABEL_BYTES, ROOT_INO, SUPERBLOCK_SIZE, Superblock};

use super::Lfs;
use super::dual::{self, DataDisk};
use super::log::{LfsPiece, Pseg};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::Class;

/// The decoder of an image, if it holds an LFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let identity = dual::identity(image);
    if let Some(data) = identity.as_ref().and_then(DataDisk::probe) {
        return Some(data);
    }
    let read = |bytes: &[u8]| Superblock::read(bytes).ok().map(|sb| (sb, None));
    let read_dual = |bytes: &[u8]| {
        let identity = identity.as_ref()?;
        Superblock::read_dual(bytes).ok().map(|sb| (sb, Some(identity.clone())))
    };
    let superblock = |at| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        image.read_at(at, &mut bytes).ok()?;
        read(&bytes).or_else(|| read_dual(&bytes))
    };
    let (first, dual) = superblock(LABEL_BYTES)?;
    let second = first.second_superblock().and_then(superblock);
    let second = second.map(|(second, _)| second);
    let newer = second.filter(|second| {
        second.magic == first.magic && second.serial > first.serial && second.size == first.size
    });
    let mut lfs = Lfs::new(newer.unwrap_or(first), dual);
    lfs.prime(image, state);
    Some(Box::new(lfs))
}

/// `frags` fragments from the device.
fn frags(image: &dyn DiskImage, sb: &Superblock, addr: i64, frags: i64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(frags).ok()?.checked_mul(sb.fsize as usize)?];
    image.read_at(sb.byte_of(addr), &mut bytes).ok()?;
    Some(bytes)
}

impl Lfs {
    /// Learns everything on the device. A block that cannot be read is left out; it is learned when
    /// it is written.
    fn prime(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let sb = self.sb.clone();
        state.names.set_root(ROOT_INO);
        let sum = i64::from(sb.sumsize / sb.fsize);
        let mut found = Vec::new();
        for segment in 0..u64::from(sb.nseg) {
            let (mut at, end) = (sb.segment_data(segment), sb.segment_start(segment + 1));
            while at + sum < end {
                let bytes = frags(image, &sb, at, sum);
                let Some(pseg) = bytes.and_then(|bytes| Pseg::read(&sb, at, &bytes)) else { break };
                at = pseg.end;
                found.push(pseg);
            }
        }
        // The place that was written last counts.
        found.sort_by_key(|pseg| (pseg.head.serial, pseg.start));
        found.into_iter().for_each(|pseg| self.register(pseg, state));
        self.learn_files(image, state);
    }

    /// Learns files from their inodes, and what leads on from there: directories, and indirect
    /// blocks if they lead to blocks of a data device whose files are wanted.
    pub(super) fn learn_files(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let sb = self.sb.clone();
        let blocks: Vec<(i64, i64)> = self
            .log
            .by_serial()
            .into_iter()
            .flat_map(|pseg| &pseg.pieces)
            .filter(|(_, _, piece)| matches!(piece, LfsPiece::Inodes { .. }))
            .map(|(addr, len, _)| (*addr, *len))
            .collect();
        for (addr, len) in blocks {
            if let Some(bytes) = frags(image, &sb, addr, len) {
                self.inodes(&bytes, state);
            }
        }
        let is_directory = |ino: &u64| self.classes.get(ino) == Some(&Class::Directory);
        // Indirect blocks lead to blocks of a data device.
        let is_followed = self.data.borrow().is_followed();
        let leads = |lbn: i64| lbn < 0 && is_followed;
        let places: Vec<(u64, i64, i64, u32)> = self
            .places
            .iter()
            .filter(|((ino, lbn), _)| if *lbn < 0 { leads(*lbn) } else { is_directory(ino) })
            .map(|((ino, lbn), (addr, len))| (*ino, *lbn, *addr, *len))
            .collect();
        for (ino, lbn, addr, len) in places {
            if let Some(bytes) = frags(image, &sb, addr, i64::from(len / sb.fsize)) {
                let class = if lbn < 0 { Class::Indirect } else { Class::Directory };
                self.contents_of((ino, lbn), class, &bytes, state);
            }
        }
        self.untyped.clear();
        self.waiting = 0;
        self.data.borrow_mut().take_claims();
        state.claims.clear();
        state.inodes.clear();
    }
}

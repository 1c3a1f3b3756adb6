//! The first partial segments: the root directory, the IFILE, and their inodes.
//!
//! All addresses are determined by sizes alone, so they are laid out first ([`Layout`]). The
//! contents depend on the addresses, and are made after that.

use std::collections::BTreeMap;

use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::summary::{Seal, flag};
use ordo_format::lfs::{
    CleanerInfo, FileInfo, IFILE_INO, IfileEntry, LABEL_BYTES, LE, LfsInode, NDADDR, ROOT_INO,
    SUPERBLOCK_PAD, SegUse, Segsum, Summary, Superblock, dir, lbn,
};

use super::MkfsError;

/// `flags` of the IFILE's inode: no user may change it.
const SF_IMMUTABLE: u32 = 0x0002_0000;

/// A partial segment of the layout.
struct Piece {
    at: i64,
    end: i64,
    files: Vec<FileInfo>,
    inodes_at: Option<i64>,
}

/// The addresses of all blocks.
struct Layout {
    pieces: Vec<Piece>,
    /// The address of each block of a file.
    blocks: BTreeMap<(u64, i64), i64>,
    inodes_at: i64,
}

/// Lays out partial segments in consecutive segments, from segment 0 on.
struct Packer<'a> {
    sb: &'a Superblock,
    layout: Layout,
    segment: u64,
}

impl Packer<'_> {
    fn begin(&mut self) -> Result<(), MkfsError> {
        let at = self.layout.pieces.last().map_or(self.sb.segment_data(0), |p| p.end);
        let sum = i64::from(self.sb.sumsize / self.sb.fsize);
        let end = self.sb.segment_start(self.segment + 1);
        let at = match end - at > sum + self.sb.block_frags() {
            true => at,
            false => {
                self.segment += 1;
                self.sb.segment_data(self.segment)
            }
        };
        if self.segment + 1 >= self.sb.nseg.into() {
            return Err(MkfsError::IfileTooLarge { blocks: self.layout.blocks.len() as u64 });
        }
        let (files, inodes_at) = (Vec::new(), None);
        self.layout.pieces.push(Piece { at, end: at + sum, files, inodes_at });
        Ok(())
    }

    /// Whether the last partial segment has space for another block, both in its segment and in its
    /// summary.
    fn has_free_space(&self, frags: i64, is_new_file: bool) -> bool {
        let Some(piece) = self.layout.pieces.last() else { return false };
        let (width, pointer) = (self.sb.width, self.sb.width.pointer_size());
        let blocks: usize = piece.files.iter().map(|f| f.blocks.len()).sum();
        let files = piece.files.len() + usize::from(is_new_file);
        // The summary has at most one block of inodes, and a seal.
        let summary = width.segsum_size()
            + files * width.finfo_size()
            + (blocks + 2) * pointer
            + 8
            + Seal::SIZE;
        summary <= self.sb.sumsize as usize
            && piece.end + frags <= self.sb.segment_start(self.segment + 1)
    }

    fn block(&mut self, ino: u64, lbn: i64, bytes: u32) -> Result<(), MkfsError> {
        let frags = i64::from(bytes / self.sb.fsize);
        let is_new = |p: &Piece| p.files.last().is_none_or(|f| f.ino != ino);
        if !self.has_free_space(frags, self.layout.pieces.last().is_none_or(is_new)) {
            self.begin()?;
        }
        let piece = self.layout.pieces.last_mut().expect("begun");
        if is_new(piece) {
            piece.files.push(FileInfo { ino, version: 1, lastlength: bytes, blocks: Vec::new() });
        }
        piece.files.last_mut().expect("there").blocks.push(lbn);
        self.layout.blocks.insert((ino, lbn), piece.end);
        piece.end += frags;
        Ok(())
    }

    fn inodes(&mut self) -> Result<(), MkfsError> {
        let frags = i64::from(self.sb.ibsize / self.sb.fsize);
        if !self.has_free_space(frags, false) {
            self.begin()?;
        }
        let piece = self.layout.pieces.last_mut().expect("begun");
        piece.inodes_at = Some(piece.end);
        self.layout.inodes_at = piece.end;
        piece.end += frags;
        Ok(())
    }
}

/// The logical numbers of the indirect blocks of a file with `count` blocks.
fn indirect_blocks(sb: &Superblock, count: u64) -> Vec<i64> {
    let starts = lbn::trees(sb.nindir.into());
    let mut out = Vec::new();
    for (tree, start) in starts.into_iter().take(3).enumerate().filter(|(_, s)| *s < count) {
        let mut below = 1;
        for level in 1..=tree + 1 {
            below *= u64::from(sb.nindir);
            let end = count.min(starts[tree + 1]);
            let firsts = (start..end).step_by(below as usize);
            out.extend(firsts.map(|first| lbn::indirect(level, first)));
        }
    }
    out
}

fn lay_out(sb: &Superblock, ifile_blocks: u64) -> Result<Layout, MkfsError> {
    let layout = Layout { pieces: Vec::new(), blocks: BTreeMap::new(), inodes_at: 0 };
    let mut packer = Packer { sb, layout, segment: 0 };
    packer.block(ROOT_INO, 0, sb.fsize)?;
    for lbn in 0..ifile_blocks as i64 {
        packer.block(IFILE_INO, lbn, sb.bsize)?;
    }
    for lbn in indirect_blocks(sb, ifile_blocks) {
        packer.block(IFILE_INO, lbn, sb.bsize)?;
    }
    packer.inodes()?;
    Ok(packer.layout)
}

/// Builds the partial segments, each with its address. Makes the superblock a checkpoint of them.
pub fn build(
    sb: &mut Superblock,
    sealed: bool,
    tables: &[u8],
    now: u64,
) -> Result<Vec<(i64, Vec<u8>)>, MkfsError> {
    let count = sb.entry_at(0) / u64::from(sb.bsize) + 1;
    let layout = lay_out(sb, count)?;
    let segments = segments(sb, &layout);
    checkpoint(sb, &layout, &segments);
    let mut ifile = ifile(sb, &layout, &segments, count);
    let at = sb.group_tables_at() as usize;
    ifile[at..at + tables.len()].copy_from_slice(tables);
    let inodes = inodes(sb, &layout, count, now);
    let mut out = Vec::new();
    for (i, piece) in layout.pieces.iter().enumerate() {
        let mut bytes = vec![0; ((piece.end - piece.at) * i64::from(sb.fsize)) as usize];
        let mut put = |addr: i64, from: &[u8]| {
            let at = ((addr - piece.at) * i64::from(sb.fsize)) as usize;
            bytes[at..at + from.len()].copy_from_slice(from);
        };
        for (ino, lbn) in piece.files.iter().flat_map(|f| f.blocks.iter().map(|b| (f.ino, *b))) {
            let addr = layout.blocks[&(ino, lbn)];
            match (ino, lbn) {
                (ROOT_INO, _) => put(addr, &root(sb)),
                (_, 0..) => {
                    let start = lbn as usize * sb.bsize as usize;
                    put(addr, &ifile[start..start + sb.bsize as usize]);
                }
                _ => put(addr, &pointers(sb, &layout, lbn, count)),
            }
        }
        if let Some(addr) = piece.inodes_at {
            put(addr, &inodes);
        }
        let mut summary = summary(sb, piece, i as u64 + 1, now, i + 1 < layout.pieces.len());
        let written = summary.write(sb, piece.at, &mut bytes, sealed);
        written.expect("the packer keeps to the summary's size");
        out.push((piece.at, bytes));
    }
    Ok(out)
}

fn summary(sb: &Superblock, piece: &Piece, serial: u64, now: u64, goes_on: bool) -> Summary {
    let mut head = Segsum::zeroed();
    let segment = sb.segment_of(piece.at).unwrap_or(0);
    (head.ident, head.serial, head.create) = (sb.ident, serial, now);
    head.next = sb.segment_start(segment + 1);
    head.ninos = if piece.inodes_at.is_some() { 2 } else { 0 };
    head.flags = if goes_on { flag::CONT } else { 0 };
    Summary {
        head,
        files: piece.files.clone(),
        inode_blocks: piece.inodes_at.into_iter().collect(),
    }
}

/// The usage of each segment.
fn segments(sb: &Superblock, layout: &Layout) -> Vec<SegUse> {
    let mut out = vec![SegUse::zeroed(); sb.nseg as usize];
    let at = |addr: i64| sb.segment_of(addr).unwrap_or(0) as usize;
    for ((ino, _), addr) in &layout.blocks {
        out[at(*addr)].nbytes += if *ino == ROOT_INO { sb.fsize } else { sb.bsize };
    }
    out[at(layout.inodes_at)].nbytes += 2 * LfsInode::SIZE as u32;
    for piece in &layout.pieces {
        let seguse = &mut out[at(piece.at)];
        seguse.nsums += 1;
        seguse.ninos += u16::from(piece.inodes_at.is_some());
        seguse.flags = seg_flag::DIRTY;
    }
    let last = layout.pieces.last().expect("at least one");
    out[at(last.at)].flags |= seg_flag::ACTIVE;
    for seguse in out.iter_mut().filter(|s| !s.is_dirty()) {
        seguse.flags |= seg_flag::EMPTY;
    }
    for place in sb.sboffs.iter().filter(|a| **a != 0) {
        out[at(*place)].flags |= seg_flag::SUPERBLOCK;
    }
    out
}

fn checkpoint(sb: &mut Superblock, layout: &Layout, segments: &[SegUse]) {
    let last = layout.pieces.last().expect("at least one");
    let current = sb.segment_of(last.at).unwrap_or(0);
    let before = current.checked_sub(1).unwrap_or(u64::from(sb.nseg) - 1);
    sb.curseg = sb.segment_start(current);
    (sb.lastseg, sb.nextseg) = (sb.segment_start(before), sb.segment_start(current + 1));
    (sb.offset, sb.lastpseg, sb.idaddr) = (last.end, last.end, layout.inodes_at);
    (sb.serial, sb.freehd) = (layout.pieces.len() as u64, ROOT_INO + 1);
    let (mut least, mut most, mut dmeta, mut avail) = (0, 0, 0, 0);
    let frags = |bytes: u64| (bytes / u64::from(sb.fsize)) as i64;
    let mut nclean = 0;
    for seguse in segments {
        if seguse.is_dirty() {
            let sums = u64::from(seguse.nsums) * u64::from(sb.sumsize);
            let inodes = u64::from(seguse.ninos) * u64::from(sb.ibsize);
            least += frags(u64::from(seguse.nbytes) + sums);
            most += frags(u64::from(seguse.nbytes) + sums + inodes);
            dmeta += frags(sums) + frags(inodes);
        } else {
            nclean += 1;
            let pad = if seguse.has_superblock() { sb.frags_of(SUPERBLOCK_PAD) } else { 0 };
            avail += i64::from(sb.fsbpseg) - pad;
        }
    }
    avail += sb.segment_start(current + 1) - last.end;
    avail -= i64::from(sb.fsbpseg) * i64::from(sb.minfreeseg - sb.minfreeseg / 2);
    let label = sb.frags_of(LABEL_BYTES);
    let bfree = sb.dsize as i64 - label - (least + most) / 2;
    (sb.dmeta, sb.avail, sb.nclean, sb.bfree) = (dmeta as i32, avail, nclean, bfree);
}

fn ifile(sb: &Superblock, layout: &Layout, segments: &[SegUse], count: u64) -> Vec<u8> {
    let mut bytes = vec![0; (count * u64::from(sb.bsize)) as usize];
    let info = CleanerInfo {
        clean: sb.nclean,
        dirty: sb.nseg - sb.nclean,
        bfree: sb.bfree,
        avail: sb.avail,
        free_head: sb.freehd,
        free_tail: u64::from(sb.ifpb) - 1,
        flags: 0,
        pad: 0,
    };
    info.write(sb.width, &mut bytes);
    for (segment, seguse) in (0..).zip(segments) {
        seguse.encode(&mut bytes[sb.seguse_at(segment) as usize..], LE);
    }
    for ino in IFILE_INO..sb.ifpb.into() {
        let mut entry = IfileEntry::zeroed();
        entry.version = 1;
        match ino {
            IFILE_INO => {}
            ROOT_INO => entry.daddr = layout.inodes_at,
            _ => entry.nextfree = if ino + 1 < sb.ifpb.into() { ino + 1 } else { 0 },
        }
        entry.write(sb.width, &mut bytes[sb.entry_at(ino) as usize..]);
    }
    bytes
}

fn inodes(sb: &Superblock, layout: &Layout, count: u64, now: u64) -> Vec<u8> {
    let mut common = LfsInode::zeroed();
    (common.atime, common.mtime, common.ctime) = (now as i64, now as i64, now as i64);
    common.generation = 1;
    let addr = |ino: u64, lbn: i64| layout.blocks.get(&(ino, lbn)).copied().unwrap_or(0);
    let mut root = LfsInode { inumber: ROOT_INO, mode: 0o040_755, nlink: 2, ..common.clone() };
    (root.size, root.blocks, root.db[0]) = (dir::CHUNK as u64, 1, addr(ROOT_INO, 0));
    let mut ifile = LfsInode { inumber: IFILE_INO, mode: 0o100_600, nlink: 1, ..common };
    ifile.flags = SF_IMMUTABLE;
    ifile.size = count * u64::from(sb.bsize);
    let indirect = indirect_blocks(sb, count);
    ifile.blocks = (count + indirect.len() as u64) * u64::from(sb.frag);
    for slot in 0..NDADDR {
        ifile.db[slot] = addr(IFILE_INO, slot as i64);
    }
    for (tree, first) in lbn::trees(sb.nindir.into()).into_iter().take(3).enumerate() {
        ifile.ib[tree] = addr(IFILE_INO, lbn::indirect(tree + 1, first));
    }
    let mut bytes = vec![0; sb.ibsize as usize];
    root.write(sb.width, &mut bytes);
    ifile.write(sb.width, &mut bytes[LfsInode::SIZE..]);
    bytes
}

/// An indirect block of the IFILE, with a pointer to each block whose indirect path ends in it.
fn pointers(sb: &Superblock, layout: &Layout, number: i64, count: u64) -> Vec<u8> {
    let (nindir, pointer) = (u64::from(sb.nindir), sb.width.pointer_size());
    let mut bytes = vec![0; sb.bsize as usize];
    let own = lbn::path(number, nindir).expect("one of the file's");
    let children = (0..count as i64).chain(indirect_blocks(sb, count));
    for child in children {
        let path = lbn::path(child, nindir).expect("one of the file's");
        let is_below = path.depth == own.depth + 1
            && path.slot == own.slot
            && path.offsets[..own.depth] == own.offsets[..own.depth];
        if is_below {
            let at = path.offsets[own.depth] * pointer;
            sb.width.put_pointer(&mut bytes, at, layout.blocks[&(IFILE_INO, child)]);
        }
    }
    bytes
}

fn root(sb: &Superblock) -> Vec<u8> {
    let mut chunk = [0; dir::CHUNK];
    let entries = [(ROOT_INO, dir::DT_DIR, &b"."[..]), (ROOT_INO, dir::DT_DIR, b"..")];
    dir::fill_chunk(sb.width, &mut chunk, &entries);
    let mut bytes = chunk.to_vec();
    bytes.resize(sb.fsize as usize, 0);
    bytes
}

//! Pass 2: the entries of directories.

use std::collections::BTreeSet;

use ordo_format::lfs::dir::{self, CHUNK, DT_DIR, DirHeader, LfsDirEntry, type_of_mode};
use ordo_format::lfs::{NDADDR, NIADDR, NO_ADDRESS, ROOT_INO, lbn};
use ordo_format::ufs2::WHITEOUT_INO;
use ordo_format::ufs2::dir::DT_WHT;
use ordo_format::ufs2::inode::IFDIR;

use super::blocks::Target;
use super::same_names::Names;
use super::state::LfsRun;
use super::{LfsCheckError, LfsFinding};
use crate::names::printable;

/// A chunk of a directory: the directory, the chunk's place in it in bytes, its block, and its
/// place in the block in bytes.
#[derive(Clone, Copy)]
struct Chunk {
    ino: u64,
    start: u64,
    addr: i64,
    within: usize,
}

impl LfsRun<'_> {
    /// Truncates a directory to whole chunks, and before the first block that is missing or cannot
    /// be its own. Returns false if nothing is left.
    pub(super) async fn fit_directory(
        &mut self,
        target: &mut Target,
    ) -> Result<bool, LfsCheckError> {
        let (ino, size) = (target.inode.inumber, target.inode.size);
        let bsize = u64::from(self.sb.bsize);
        if size % CHUNK as u64 != 0 {
            self.report.add(LfsFinding::DirectorySize { ino, size });
            target.cut(size - size % CHUNK as u64);
        }
        // No block can be the directory's twice, so the number of blocks that are read is bounded.
        let mut seen = BTreeSet::new();
        for lbn in 0..target.inode.size.div_ceil(bsize) {
            let bytes = self.sb.block_bytes(lbn, target.inode.size);
            let addr = self.own_block(target, lbn, bytes / u64::from(self.sb.fsize)).await?;
            if !addr.is_some_and(|a| seen.insert(a)) {
                self.report.add(LfsFinding::DirectoryHole { ino, lbn });
                target.cut(lbn * bsize);
                break;
            }
        }
        Ok(target.inode.size > 0)
    }

    /// The address of a block, if it can be the file's.
    async fn own_block(
        &mut self,
        target: &Target,
        block: u64,
        frags: u64,
    ) -> Result<Option<i64>, LfsCheckError> {
        let nindir = u64::from(self.sb.nindir);
        let Some(path) = i64::try_from(block).ok().and_then(|l| lbn::path(l, nindir)) else {
            return Ok(None);
        };
        debug_assert!(path.slot < NDADDR + NIADDR);
        let mut addr = target.inode.pointer(path.slot);
        for offset in path.offsets.iter().take(path.depth) {
            if addr == NO_ADDRESS || !self.can_take(addr, self.sb.frag.into()) {
                return Ok(None);
            }
            let bytes = self.io.read(addr as u64, self.sb.frag.into()).await?;
            addr = self.sb.width.pointer(&bytes, offset * self.sb.width.pointer_size());
        }
        Ok((addr != NO_ADDRESS && self.can_take(addr, frags)).then_some(addr))
    }

    /// Reads every directory: removes damaged entries, and counts each name for its inode.
    pub(super) async fn check_names(&mut self) -> Result<(), LfsCheckError> {
        let mode = self.inodes.get(&ROOT_INO).map_or(0, |k| k.inode.mode);
        if type_of_mode(mode) != DT_DIR {
            self.report.add(LfsFinding::RootMissing { mode });
        }
        let all = self.inodes.iter().filter(|(_, k)| k.inode.kind() == IFDIR);
        for ino in all.map(|(ino, _)| *ino).collect::<Vec<_>>() {
            self.io.work.directories += 1;
            let mut names = Names::default();
            for block in self.inodes[&ino].blocks.clone() {
                let mut bytes = self.directory_block(ino, block).await?;
                let start = block.0 * u64::from(self.sb.bsize);
                for (i, chunk) in bytes.chunks_exact_mut(CHUNK).enumerate() {
                    let (addr, within) = (block.1, i * CHUNK);
                    let at = Chunk { ino, start: start + within as u64, addr, within };
                    self.check_chunk(at, chunk, &mut names).await?;
                }
            }
            if !names.twice.is_empty() {
                self.remove_same_names(ino, &names.twice).await?;
            }
        }
        Ok(())
    }

    /// The contents of a block of a directory: its number and its address.
    pub(super) async fn directory_block(
        &mut self,
        ino: u64,
        (lbn, addr): (u64, i64),
    ) -> Result<Vec<u8>, LfsCheckError> {
        let size = self.inodes[&ino].inode.size;
        let start = lbn * u64::from(self.sb.bsize);
        let frags = self.sb.block_bytes(lbn, size) / u64::from(self.sb.fsize);
        let mut bytes = self.io.read(addr as u64, frags).await?.to_vec();
        bytes.truncate(size.saturating_sub(start).min(bytes.len() as u64) as usize);
        Ok(bytes)
    }

    async fn check_chunk(
        &mut self,
        at: Chunk,
        bytes: &mut [u8],
        names: &mut Names,
    ) -> Result<(), LfsCheckError> {
        let broken = dir::entries(self.sb.width, bytes).find_map(|e| e.err());
        if let Some(found) = broken {
            let (ino, offset) = (at.ino, at.start + found.at as u64);
            self.report.add(LfsFinding::DirectoryEntry {
                ino,
                offset,
                error: found.fault.to_string(),
            });
            self.empty_rest(at, bytes, found.at).await?;
        }
        if at.start == 0 {
            self.check_dots(at, bytes).await?;
        }
        let entries: Vec<LfsDirEntry<'_>> =
            dir::entries(self.sb.width, bytes).flatten().filter(|e| e.ino != 0).collect();
        for (index, entry) in entries.into_iter().enumerate() {
            self.io.work.entries += 1;
            let is_dot = at.start == 0 && index < 2;
            names.add(entry.name);
            self.check_entry(at, entry, is_dot).await?;
        }
        Ok(())
    }

    /// Makes the chunk free space from byte `from` on.
    async fn empty_rest(
        &mut self,
        at: Chunk,
        bytes: &mut [u8],
        from: usize,
    ) -> Result<(), LfsCheckError> {
        let header = self.sb.width.dir_header();
        // The last bytes, if they are too few for an entry, become part of the entry before them.
        let mut start = from;
        if CHUNK - from < header {
            let before = dir::entries(self.sb.width, &bytes[..CHUNK]).flatten().last();
            start = before.map_or(0, |e| e.at);
            let mut head = DirHeader::read(self.sb.width, &bytes[start..]);
            head.reclen = (CHUNK - start) as u16;
            head.write(self.sb.width, &mut bytes[start..]);
        } else {
            let reclen = (CHUNK - from) as u16;
            bytes[from..].fill(0);
            DirHeader { ino: 0, reclen, kind: 0, namlen: 0 }
                .write(self.sb.width, &mut bytes[from..]);
        }
        Ok(self.io.change(at.addr as u64, at.within + start, &bytes[start..]).await?)
    }

    /// Checks that the first two entries are `.` and `..`.
    async fn check_dots(&mut self, at: Chunk, bytes: &mut [u8]) -> Result<(), LfsCheckError> {
        let width = self.sb.width;
        let found: Vec<(u64, u8, Vec<u8>)> = dir::entries(width, bytes)
            .flatten()
            .filter(|e| e.ino != 0)
            .map(|e| (e.ino, e.kind, e.name.to_vec()))
            .collect();
        let is = |i: usize, name: &[u8]| found.get(i).is_some_and(|(_, _, n)| n == name);
        if is(0, b".") && is(1, b"..") {
            return Ok(());
        }
        self.report.add(LfsFinding::DotsMissing { ino: at.ino });
        let parent = found.iter().find(|(.., n)| n == b"..").map_or(ROOT_INO, |(ino, ..)| *ino);
        let mut entries: Vec<(u64, u8, &[u8])> =
            vec![(at.ino, DT_DIR, b"."), (parent, DT_DIR, b"..")];
        let mut space = CHUNK - 2 * dir::entry_size(width, 2);
        for (ino, kind, name) in found.iter().filter(|(.., n)| n != b"." && n != b"..") {
            let size = dir::entry_size(width, name.len());
            // An entry that does not fit any more loses its name here. The inode gets another name
            // later.
            if size <= space {
                space -= size;
                entries.push((*ino, *kind, name));
            }
        }
        let mut chunk = [0; CHUNK];
        dir::fill_chunk(width, &mut chunk, &entries);
        bytes[..CHUNK].copy_from_slice(&chunk);
        Ok(self.io.change(at.addr as u64, at.within, &chunk).await?)
    }

    async fn check_entry(
        &mut self,
        at: Chunk,
        entry: LfsDirEntry<'_>,
        is_dot: bool,
    ) -> Result<(), LfsCheckError> {
        let (ino, place) = (at.ino, at.within + entry.at);
        if is_dot {
            return self.check_dot(at, &entry, place).await;
        }
        if matches!(entry.name, b"." | b"..") {
            self.report.add(LfsFinding::ExtraDot { ino, offset: at.start + entry.at as u64 });
            return self.remove_entry(at.addr, place).await;
        }
        // A whiteout, as a union mount leaves it in the place of a name that was removed.
        if entry.kind == DT_WHT && entry.ino == WHITEOUT_INO {
            return Ok(());
        }
        let name = || printable(entry.name);
        let Some(target) = self.inodes.get(&entry.ino) else {
            self.report.add(LfsFinding::EntryUnused { ino, name: name(), target: entry.ino });
            return self.remove_entry(at.addr, place).await;
        };
        let (right, is_dir) = (type_of_mode(target.inode.mode), target.inode.kind() == IFDIR);
        if is_dir && (target.parent.is_some() || entry.ino == ROOT_INO || entry.ino == ino) {
            let finding = LfsFinding::DirectoryLinkedTwice { ino, name: name(), target: entry.ino };
            self.report.add(finding);
            return self.remove_entry(at.addr, place).await;
        }
        if entry.kind != right {
            self.correct_type(at, &entry, place, right).await?;
        }
        let target = self.inodes.get_mut(&entry.ino).expect("looked up");
        target.links += 1;
        if is_dir {
            (target.parent, target.named_at) = (Some(ino), Some((at.addr, place)));
        }
        Ok(())
    }

    /// Corrects the type in an entry.
    async fn correct_type(
        &mut self,
        at: Chunk,
        entry: &LfsDirEntry<'_>,
        place: usize,
        right: u8,
    ) -> Result<(), LfsCheckError> {
        let (ino, name, stored) = (at.ino, printable(entry.name), entry.kind);
        self.report.add(LfsFinding::EntryType { ino, name, stored, right });
        let byte = place + self.sb.width.dir_header() - 2;
        Ok(self.io.change(at.addr as u64, byte, &[right]).await?)
    }

    async fn check_dot(
        &mut self,
        at: Chunk,
        entry: &LfsDirEntry<'_>,
        place: usize,
    ) -> Result<(), LfsCheckError> {
        let ino = at.ino;
        if entry.kind != DT_DIR {
            self.correct_type(at, entry, place, DT_DIR).await?;
        }
        if entry.name == b"." {
            if entry.ino != ino {
                let stored = entry.ino;
                self.report.add(LfsFinding::DotEntry { ino, name: ".", stored, right: ino });
                self.point_entry(at.addr, place, ino).await?;
            }
            self.inodes.get_mut(&ino).expect("a directory").links += 1;
        } else {
            // The right target is known only when all names are.
            let known = self.inodes.get_mut(&ino).expect("a directory");
            known.dotdot = Some((entry.ino, at.addr, place));
        }
        Ok(())
    }

    pub(super) async fn remove_entry(&mut self, addr: i64, at: usize) -> Result<(), LfsCheckError> {
        self.point_entry(addr, at, 0).await
    }

    /// Changes an entry's inode.
    pub(super) async fn point_entry(
        &mut self,
        addr: i64,
        at: usize,
        ino: u64,
    ) -> Result<(), LfsCheckError> {
        let bytes = ino.to_le_bytes();
        let len = self.sb.width.pointer_size();
        Ok(self.io.change(addr as u64, at, &bytes[..len]).await?)
    }
}

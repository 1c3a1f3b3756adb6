//! Phase 2: directories and the names in them.

use std::hash::Hasher;

use ordo_block::BlockError;
use ordo_format::ufs2::WHITEOUT_INO;
use ordo_format::ufs2::dir::{self, CHUNK, DT_DIR, DT_REG, DT_WHT, Entry};
use ordo_format::ufs2::superblock::{FS_SUJ, ForeignFeature, LONG_CHUNK, has_long_chunks};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::state::{DirBlock, DirInfo, ROOT, Run};
use crate::{CheckError, CheckPhase, ExtraName, Finding};

/// The file in the root directory that holds the soft updates journal.
const SUJ_FILE: &[u8] = b".sujournal";

/// An entry for a directory.
struct DirRef {
    child: u32,
    parent: u32,
    /// The entry's byte on the device.
    at: u64,
    name: Box<[u8]>,
}

/// A change to a chunk.
enum Edit {
    /// The entry at this byte becomes free space.
    Free(usize),
    /// Nothing can be read from here on; the entry before, if there is one, gets the rest.
    Cut { before: Option<usize>, at: usize },
    /// The entry at this byte gets another inode number.
    Ino(usize, u32),
    /// The entry at this byte gets another type.
    Kind(usize, u8),
}

/// The facts gathered while directories are read.
#[derive(Default)]
pub(crate) struct Names {
    refs: Vec<DirRef>,
    /// Hashes of the names in the directory being read.
    seen: FxHashSet<u64>,
    /// Hashes that came up twice.
    twice: FxHashSet<u64>,
}

impl Run<'_> {
    /// Reads every directory, and finds the parent of each.
    pub async fn check_names(&mut self) -> Result<(), BlockError> {
        let mut names = Names::default();
        let (begun, whole): (Vec<_>, Vec<_>) =
            (0..self.dirs.len()).partition(|idx| self.is_begun_or_removed(*idx));
        for (done, idx) in whole.into_iter().enumerate() {
            self.tell(CheckPhase::Names, done, self.dirs.len());
            self.check_directory(idx, &mut names).await?;
        }
        let named: FxHashSet<u32> = names.refs.iter().map(|link| link.child).collect();
        for idx in begun {
            if named.contains(&self.dirs[idx].ino) {
                self.check_directory(idx, &mut names).await?;
            }
        }
        self.tell(CheckPhase::Names, self.dirs.len(), self.dirs.len());
        if self.sb.flags & FS_SUJ != 0 && !self.has_suj_file {
            self.finding(Finding::JournalMissing {});
            self.sb.flags &= !FS_SUJ;
        }
        self.choose_parents(names.refs).await
    }

    /// Whether a directory of size 0 was half created or half removed at a crash: then it has no
    /// name, and that is its only fault. With a name it has lost its contents.
    fn is_begun_or_removed(&self, idx: usize) -> bool {
        let info = &self.dirs[idx];
        info.size == 0 && info.blocks.is_empty() && info.ino != ROOT
    }

    async fn check_directory(&mut self, idx: usize, names: &mut Names) -> Result<(), BlockError> {
        self.io.work.directories += 1;
        names.seen.clear();
        names.twice.clear();
        if self.dirs[idx].blocks.is_empty() {
            self.give_first_chunk(idx).await?;
        }
        if self.dirs[idx].blocks.is_empty() {
            let ino = self.dirs[idx].ino;
            self.finding(Finding::NoSpace { ino });
            return Ok(());
        }
        for run in self.runs(idx) {
            let addr = run[0].addr;
            let frags: usize = run.iter().map(|block| block.bytes >> self.sb.fshift).sum();
            let mut bytes = self.io.read(addr, frags as u64).await?;
            let start = run[0].lbn << self.sb.bshift;
            let end = (self.dirs[idx].size - start).min(bytes.len() as u64) as usize;
            for at in (0..end).step_by(CHUNK) {
                let place = (start + at as u64, self.sb.byte_of(addr) + at as u64);
                let chunk = &mut bytes[at..at + CHUNK];
                if self.check_chunk(idx, place, chunk, names) {
                    self.io.change(addr, at, chunk).await?;
                }
            }
        }
        if !names.twice.is_empty() {
            self.remove_duplicates(idx, names).await?;
        }
        Ok(())
    }

    /// Refuses a UFS1 whose directories have longer chunks than 4.4BSD's: cut at 512 bytes, sound
    /// directories would be taken apart. One directory must need the longer chunks, and none may
    /// end in the middle of one.
    pub async fn refuse_long_chunks(&mut self) -> Result<(), CheckError> {
        let is_long = |dir: &DirInfo| dir.size.is_multiple_of(LONG_CHUNK as u64);
        if !self.sb.is_ufs1() || !self.dirs.iter().all(is_long) {
            return Ok(());
        }
        for idx in 0..self.dirs.len() {
            for run in self.runs(idx) {
                let frags: usize = run.iter().map(|block| block.bytes >> self.sb.fshift).sum();
                let start = run[0].lbn << self.sb.bshift;
                let bytes = self.io.read(run[0].addr, frags as u64).await?;
                let end = self.dirs[idx].size.saturating_sub(start).min(bytes.len() as u64);
                if has_long_chunks(&bytes[..end as usize], self.endian) {
                    return Err(CheckError::Foreign(ForeignFeature::LongChunks));
                }
            }
        }
        Ok(())
    }

    /// A directory's blocks, in runs that are contiguous on the device.
    pub fn runs(&self, idx: usize) -> Vec<Vec<DirBlock>> {
        let most = self.io.batch() as usize * self.sb.frag_size();
        let mut runs: Vec<Vec<DirBlock>> = Vec::new();
        let mut bytes = 0;
        for block in &self.dirs[idx].blocks {
            if let Some(run) = runs.last_mut()
                && let Some(last) = run.last()
                && last.addr + self.sb.frags_for(last.bytes as u64) == block.addr
                && last.bytes == self.sb.block_size()
                && bytes + block.bytes <= most
            {
                run.push(*block);
                bytes += block.bytes;
            } else {
                bytes = block.bytes;
                runs.push(vec![*block]);
            }
        }
        runs
    }

    /// Checks one chunk, at a byte of the directory and a byte of the device. Returns whether it
    /// was changed.
    fn check_chunk(
        &mut self,
        idx: usize,
        (offset, device_at): (u64, u64),
        chunk: &mut [u8],
        names: &mut Names,
    ) -> bool {
        let rebuilt = offset == 0 && self.check_dots(idx, device_at, chunk);
        let mut edits = Vec::new();
        let mut before = None;
        let skip = if offset == 0 { 2 } else { 0 };
        for (n, item) in dir::entries(chunk, self.endian).enumerate() {
            let at = match &item {
                Ok(entry) => entry.at,
                Err(error) => error.at,
            };
            match item {
                Ok(entry) if !entry.is_free() && n >= skip => {
                    let place = (offset + at as u64, device_at + at as u64);
                    edits.extend(self.check_entry(idx, place, &entry, names));
                }
                Ok(_) => {}
                Err(error) => {
                    let ino = self.dirs[idx].ino;
                    let offset = offset + at as u64;
                    let text = error.fault.to_string();
                    self.finding(Finding::EntryDamaged { ino, offset, error: text });
                    let edit = match error.framing_holds() {
                        true => Edit::Free(at),
                        false => Edit::Cut { before, at },
                    };
                    edits.push(edit);
                }
            }
            before = Some(at);
        }
        edits.iter().for_each(|edit| self.apply(edit, chunk));
        rebuilt || !edits.is_empty()
    }

    fn apply(&self, edit: &Edit, chunk: &mut [u8]) {
        let endian = self.endian;
        match *edit {
            Edit::Free(at) => endian.put_u32(chunk, at + dir::INO_OFFSET, 0),
            Edit::Ino(at, ino) => endian.put_u32(chunk, at + dir::INO_OFFSET, ino),
            Edit::Kind(at, kind) => chunk[at + dir::TYPE_OFFSET] = kind,
            Edit::Cut { before: Some(before), .. } => {
                let rest = (CHUNK - before) as u16;
                endian.put_u16(chunk, before + dir::RECLEN_OFFSET, rest);
            }
            Edit::Cut { before: None, at } => {
                assert_eq!(at, 0, "only the first entry has none before it");
                dir::write_free_chunk(chunk, endian);
            }
        }
    }

    /// Checks `.` and `..` in a directory's first chunk. Returns whether the chunk was changed.
    fn check_dots(&mut self, idx: usize, device_at: u64, chunk: &mut [u8]) -> bool {
        let ino = self.dirs[idx].ino;
        let mut entries = dir::entries(chunk, self.endian);
        let mut named = |name: &[u8]| {
            let entry = entries.next()?.ok()?;
            (!entry.is_free() && entry.name == name).then_some((entry.at, entry.ino, entry.kind))
        };
        let dot = named(b".");
        let dotdot = named(b"..");
        if dot.is_none() {
            self.finding(Finding::DotMissing { ino });
        }
        if dotdot.is_none() && !second_is_dotdot(chunk, self.endian) {
            self.finding(Finding::DotDotMissing { ino });
        }
        let (Some(dot), Some(dotdot)) = (dot, dotdot) else {
            // An unknown parent must not become 0, which would be free space.
            let known = find_dotdot(chunk, self.endian);
            let parent = known.unwrap_or(ino);
            rebuild_first(chunk, self.endian, ino, parent);
            self.dirs[idx].dotdot = parent;
            self.dirs[idx].dotdot_at = device_at + dir::entry_size(1) as u64;
            self.dirs[idx].moved = known.is_none();
            return true;
        };
        self.dirs[idx].dotdot = dotdot.1;
        self.dirs[idx].dotdot_at = device_at + dotdot.0 as u64;
        let mut changed = false;
        if dot.1 != ino {
            self.finding(Finding::DotWrong { ino, stored: dot.1 });
            self.apply(&Edit::Ino(dot.0, ino), chunk);
            changed = true;
        }
        for (name, (at, target, kind)) in [(".", dot), ("..", dotdot)] {
            if kind != DT_DIR {
                let (stored, actual, name) = (kind, DT_DIR, name.to_owned());
                self.finding(Finding::EntryType { ino, name, target, stored, actual });
                self.apply(&Edit::Kind(at, DT_DIR), chunk);
                changed = true;
            }
        }
        changed
    }

    /// Checks an entry that is neither free nor the directory's own `.` or `..`.
    fn check_entry(
        &mut self,
        idx: usize,
        (offset, device_at): (u64, u64),
        entry: &Entry<'_>,
        names: &mut Names,
    ) -> Option<Edit> {
        self.io.work.entries += 1;
        let (ino, target, at) = (self.dirs[idx].ino, entry.ino, entry.at);
        if matches!(entry.name, b"." | b"..") {
            self.finding(Finding::ExtraDot { ino, offset });
            return Some(Edit::Free(at));
        }
        let hash = hash(entry.name);
        if !names.seen.insert(hash) {
            names.twice.insert(hash);
        }
        if entry.kind == DT_WHT && u64::from(target) == WHITEOUT_INO {
            self.dirs[idx].entries += 1;
            return None;
        }
        if !self.sb.has_inode(target.into()) {
            let name = printable(entry.name);
            self.finding(Finding::EntryOutOfRange { ino, name, target });
            return Some(Edit::Free(at));
        }
        if !self.is_used(target) {
            let name = printable(entry.name);
            self.finding(Finding::EntryUnallocated { ino, name, target });
            return Some(Edit::Free(at));
        }
        let actual = self.info(target).expect("in use").kind;
        self.dirs[idx].entries += 1;
        if ino == ROOT && entry.name == SUJ_FILE {
            self.has_suj_file |= actual == DT_REG;
        }
        if actual == DT_DIR {
            let (child, parent, name) = (target, ino, entry.name.into());
            names.refs.push(DirRef { child, parent, at: device_at, name });
        } else {
            let info = self.info_mut(target).expect("in use");
            info.found = info.found.saturating_add(1);
            if let Some(path @ None) = self.wanted.get_mut(&target) {
                *path = Some((ino, entry.name.into()));
            }
        }
        if entry.kind == actual {
            return None;
        }
        let (stored, name) = (entry.kind, printable(entry.name));
        self.finding(Finding::EntryType { ino, name, target, stored, actual });
        Some(Edit::Kind(at, actual))
    }

    /// Removes the later entries of names that occur twice. Only names with equal hashes are
    /// compared.
    async fn remove_duplicates(&mut self, idx: usize, names: &mut Names) -> Result<(), BlockError> {
        let ino = self.dirs[idx].ino;
        let mut kept: FxHashMap<u64, Vec<Box<[u8]>>> = FxHashMap::default();
        for block in self.dirs[idx].blocks.clone() {
            let frags = self.sb.frags_for(block.bytes as u64);
            let bytes = self.io.read(block.addr, frags).await?;
            let start = block.lbn << self.sb.bshift;
            let end = (self.dirs[idx].size - start).min(block.bytes as u64) as usize;
            let entries = dir::entries(&bytes[..end], self.endian).filter_map(Result::ok);
            for entry in entries.filter(|entry| !entry.is_free()) {
                let hash = hash(entry.name);
                if !names.twice.contains(&hash) {
                    continue;
                }
                let same = kept.entry(hash).or_default();
                if !same.iter().any(|name| **name == *entry.name) {
                    same.push(entry.name.into());
                    continue;
                }
                let (target, name) = (entry.ino, printable(entry.name));
                self.finding(Finding::DuplicateName { ino, name, target });
                self.io.change(block.addr, entry.at + dir::INO_OFFSET, &[0; 4]).await?;
                self.dirs[idx].entries -= 1;
                self.relinked.insert(target);
                let at = self.sb.byte_of(block.addr) + entry.at as u64;
                names.refs.retain(|link| link.at != at);
                if let Some(info) = self.info_mut(target).filter(|info| info.kind != DT_DIR) {
                    info.found = info.found.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// Gives every directory one parent. Among several, parents that the root reaches are
    /// preferred; among these the one that `..` names, else the first.
    async fn choose_parents(&mut self, mut refs: Vec<DirRef>) -> Result<(), BlockError> {
        refs.sort_by_key(|link| link.child);
        let inside = if refs.windows(2).any(|pair| pair[0].child == pair[1].child) {
            self.reachable(&refs)
        } else {
            FxHashSet::default()
        };
        let mut rest = refs.as_slice();
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|link| link.child == first.child).count();
            let (links, after) = rest.split_at(same);
            rest = after;
            let child = self.dir_of[&first.child];
            let chosen = match first.child {
                ROOT => usize::MAX,
                _ => {
                    let dotdot = self.dirs[child].dotdot;
                    let rank =
                        |link: &DirRef| (!inside.contains(&link.parent), link.parent != dotdot);
                    (0..links.len()).min_by_key(|i| rank(&links[*i])).unwrap_or(0)
                }
            };
            for (i, link) in links.iter().enumerate() {
                if i == chosen {
                    let info = &mut self.dirs[child];
                    info.parent = Some(link.parent);
                    info.name = link.name.clone();
                    info.entry_at = link.at;
                } else {
                    if let Some(kept) = links.get(chosen) {
                        self.report.extra_names.push(ExtraName {
                            target: link.child,
                            dir: link.parent,
                            name: link.name.clone(),
                            kept_dir: kept.parent,
                            kept_name: kept.name.clone(),
                        });
                    }
                    self.remove_link(link).await?;
                }
            }
        }
        Ok(())
    }

    /// The directories that can be reached from the root by names.
    fn reachable(&self, refs: &[DirRef]) -> FxHashSet<u32> {
        let mut below: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for link in refs {
            below.entry(link.parent).or_default().push(link.child);
        }
        let mut inside = FxHashSet::from_iter([ROOT]);
        let mut pending = vec![ROOT];
        while let Some(ino) = pending.pop() {
            for child in below.get(&ino).into_iter().flatten() {
                if inside.insert(*child) {
                    pending.push(*child);
                }
            }
        }
        inside
    }

    async fn remove_link(&mut self, link: &DirRef) -> Result<(), BlockError> {
        let (ino, target, name) = (link.parent, link.child, printable(&link.name));
        self.finding(Finding::DirectoryLinkedTwice { ino, name, target });
        if !self.report.soft_updates {
            self.relinked.insert(target);
        }
        let parent = self.dir_of[&link.parent];
        self.dirs[parent].entries -= 1;
        self.remove_entry_at(link.at).await
    }

    /// Makes the entry at a byte of the device free space.
    pub async fn remove_entry_at(&mut self, at: u64) -> Result<(), BlockError> {
        let addr = at >> self.sb.fshift;
        let within = (at & self.sb.qfmask as u64) as usize;
        self.io.change(addr, within + dir::INO_OFFSET, &[0; 4]).await
    }
}

pub(crate) fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// A name in the form that findings show.
pub(crate) fn printable(name: &[u8]) -> String {
    ordo_shown::name(name)
}

/// Whether the second entry is a valid `..`, even if `.` is not valid.
fn second_is_dotdot(chunk: &[u8], endian: ordo_format::Endian) -> bool {
    let second = dir::entries(chunk, endian).nth(1);
    matches!(second, Some(Ok(entry)) if !entry.is_free() && entry.name == b"..")
}

/// The inode in a `..` anywhere in the chunk.
fn find_dotdot(chunk: &[u8], endian: ordo_format::Endian) -> Option<u32> {
    let mut entries = dir::entries(chunk, endian).filter_map(Result::ok);
    entries.find(|entry| !entry.is_free() && entry.name == b"..").map(|entry| entry.ino)
}

/// Rebuilds a first chunk with `.` and `..`, and with the other entries that can be read and fit.
fn rebuild_first(chunk: &mut [u8], endian: ordo_format::Endian, ino: u32, parent: u32) {
    let old = chunk.to_vec();
    dir::write_first_chunk(chunk, endian, ino, parent);
    let mut last = dir::entry_size(1);
    let mut end = last + dir::entry_size(2);
    let entries = dir::entries(&old, endian).filter_map(Result::ok);
    for entry in entries.filter(|entry| !entry.is_free()) {
        let size = dir::entry_size(entry.name.len());
        if matches!(entry.name, b"." | b"..") || end + size > CHUNK {
            continue;
        }
        endian.put_u16(chunk, last + dir::RECLEN_OFFSET, (end - last) as u16);
        let rest = (CHUNK - end) as u16;
        dir::write_entry(&mut chunk[end..], endian, entry.ino, rest, entry.kind, entry.name);
        (last, end) = (end, end + size);
    }
}

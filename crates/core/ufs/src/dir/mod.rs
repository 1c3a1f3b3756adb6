//! Entries in directories.
//!
//! An entry stays in its place until it is removed: free space is never gathered by moving entries.
//! So a place in a directory can be given to users as a cookie, and an ordering can name an entry
//! by its place.

pub mod format;
pub(crate) mod index;

use ordo_cache::{BufKey, BufRef};
use ordo_ordering::{Op, What};
use ordo_vfs::{Cookie, DirEntry, Errno, FileType, FsError, FsResult, Ino};

use crate::layout::{Fill, Layout};
use crate::{LayoutInode, Ufs, io_error};
use format::{CHUNK, DirFormat};
use index::DirIndex;

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    /// The inode for which the entry stands.
    pub ino: u64,
    /// The entry's first byte in the directory.
    pub place: u64,
}

/// A place for a new entry.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The chunk's first byte in the directory.
    chunk: u64,
    /// Whether the directory grows by that chunk.
    grows: bool,
}

const CHUNK_BYTES: u64 = CHUNK as u64;

impl<L: Layout> Ufs<L> {
    fn corrupt_entry(dir: &LayoutInode<L>, at: u64, what: impl std::fmt::Display) -> FsError {
        FsError::corrupt(format_args!(
            "directory inode {}, byte {at}: {what}; run a check (fsck)",
            dir.ino()
        ))
    }

    /// The block of a directory that holds byte `place`, and that byte's index in it. A hole in a
    /// directory is damage.
    pub(crate) async fn dir_block(
        &self,
        dir: &LayoutInode<L>,
        place: u64,
    ) -> FsResult<(BufRef, usize)> {
        let block = self.limits().block as u64;
        let lbn = place / block;
        let key = BufKey::file(dir.ino(), lbn.cast_signed());
        let within = (place % block) as usize;
        if let Some(buf) = self.cache().peek(key) {
            return Ok((buf, within));
        }
        match self.layout().read_block(dir, lbn, 0).await? {
            Some(buf) => Ok((buf, within)),
            None => Err(Self::corrupt_entry(dir, place, "a hole")),
        }
    }

    /// As [`dir_block`](Self::dir_block), but `None` if the directory ends in a hole there. An
    /// ordering may have written the directory's size before the pointer to its last block, which
    /// is in an indirect block; then no name was ever in that block. A hole that a block follows is
    /// damage.
    async fn dir_block_or_end(
        &self,
        dir: &LayoutInode<L>,
        place: u64,
    ) -> FsResult<Option<(BufRef, usize)>> {
        let block = self.limits().block as u64;
        let (lbn, blocks) = (place / block, dir.size().div_ceil(block));
        let cached = self.cache().peek(BufKey::file(dir.ino(), lbn.cast_signed())).is_some();
        let mut at = lbn;
        while !cached && at < blocks {
            let (there, run) = self.layout().is_mapped(dir, at).await?;
            if there {
                break;
            }
            at += run.max(1);
        }
        if cached || at < blocks {
            return self.dir_block(dir, place).await.map(Some);
        }
        Ok(None)
    }

    /// Builds the index of a directory that has none. The caller holds the directory's lock.
    async fn index(&self, dir: &LayoutInode<L>) -> FsResult<()> {
        if dir.index.borrow().is_some() {
            return Ok(());
        }
        let mut index = DirIndex::default();
        let size = dir.size();
        let unit = self.layout().directory().chunk();
        if !size.is_multiple_of(unit as u64) {
            let what = format_args!("its size is not a multiple of {unit}");
            return Err(Self::corrupt_entry(dir, size, what));
        }
        let mut at = 0;
        while at < size {
            let Some((buf, within)) = self.dir_block_or_end(dir, at).await? else {
                index.hole = Some(at);
                break;
            };
            let end = buf.len().min(within + usize::try_from(size - at).unwrap_or(usize::MAX));
            let bytes = buf.read();
            for chunk in (within..end).step_by(unit) {
                let base = at + (chunk - within) as u64;
                self.index_chunk(dir, &mut index, base, &bytes[chunk..end.min(chunk + unit)])?;
            }
            at += (end - within) as u64;
        }
        if dir.index.borrow().is_some() {
            // Another reader may have built the index meanwhile.
            return Ok(());
        }
        let count = index.len();
        *dir.index.borrow_mut() = Some(index);
        self.note_indexed(count);
        Ok(())
    }

    fn index_chunk(
        &self,
        dir: &LayoutInode<L>,
        index: &mut DirIndex,
        base: u64,
        chunk: &[u8],
    ) -> FsResult<()> {
        let format = self.layout().directory();
        for entry in format.records(chunk) {
            let entry = entry.map_err(|e| Self::corrupt_entry(dir, base + e.at as u64, e.fault))?;
            if entry.ino != 0 {
                index.insert(index::hash(entry.name), base + entry.at as u64);
            }
        }
        index.note_chunk(base / CHUNK_BYTES, format.most_space(chunk));
        Ok(())
    }

    /// Counts the entries that an index gained. If all indexes together have too many, those of
    /// idle directories are dropped.
    fn note_indexed(&self, count: usize) {
        let total = &self.shared.indexed_entries;
        total.set(total.get() + count);
        if total.get() > self.shared.config.indexed_entries_max {
            for dir in self.table().idle_indexes() {
                self.forget_index(&dir);
                if total.get() <= self.shared.config.indexed_entries_max / 2 {
                    break;
                }
            }
        }
    }

    pub(crate) fn forget_index(&self, dir: &LayoutInode<L>) {
        if let Some(index) = dir.index.borrow_mut().take() {
            let total = &self.shared.indexed_entries;
            total.set(total.get().saturating_sub(index.len()));
        }
    }

    /// Finds `name` in a directory. The caller holds the directory's lock.
    pub(crate) async fn find_entry(
        &self,
        dir: &LayoutInode<L>,
        name: &[u8],
    ) -> FsResult<Option<FoundEntry>> {
        if dir.index.borrow().is_none() {
            self.index(dir).await?;
        }
        let hash = index::hash(name);
        let mut nth = 0;
        loop {
            let place = {
                let index = dir.index.borrow();
                let Some(index) = index.as_ref() else { return Err(Errno::Again.into()) };
                index.candidates(hash).nth(nth)
            };
            let Some(place) = place else { return Ok(None) };
            let (buf, within) = self.dir_block(dir, place).await?;
            let bytes = buf.read();
            let rest = bytes.get(within..).unwrap_or(&[]);
            if let Some(ino) = self.layout().directory().inode_if_named(rest, name) {
                return Ok(Some(FoundEntry { ino, place }));
            }
            nth += 1;
        }
    }

    /// Finds the place for an entry `name`. The caller holds the directory's lock for writing, and
    /// has checked that there is no such entry.
    pub(crate) async fn find_slot(&self, dir: &LayoutInode<L>, name: &[u8]) -> FsResult<Slot> {
        self.index(dir).await?;
        let need = self.layout().directory().entry_size(name.len());
        let mut index = dir.index.borrow_mut();
        let index = index.as_mut().expect("just built");
        Ok(match index.chunk_with_space(need) {
            Some(chunk) => Slot { chunk: chunk * CHUNK_BYTES, grows: false },
            None => Slot { chunk: index.hole.unwrap_or(dir.size()), grows: true },
        })
    }

    /// Makes an entry in a slot, and stores the directory's inode with new times. The directory
    /// grows if the slot lies beyond its end. The caller holds the directory's lock for writing.
    pub(crate) async fn add_entry(
        &self,
        op: &mut Op<'_>,
        dir: &LayoutInode<L>,
        slot: &Slot,
        name: &[u8],
        child: u64,
        file_type: FileType,
    ) -> FsResult<()> {
        let (buf, within) = self.slot_block(op, dir, slot).await?;
        let inode = self.layout().pin_inode(child).await?;
        let format = self.layout().directory();
        let range = within..within + CHUNK;
        let space = {
            let need = format.entry_size(name.len());
            format.first_with_space(&buf.read()[range.clone()], need)
        };
        // According to the index the chunk has the space. On a damaged image the block may belong
        // to another file too, whose changes the index does not know.
        let Some(space) = space else {
            let what = "another file has changed this directory's block";
            return Err(Self::corrupt_entry(dir, slot.chunk, what));
        };
        let at = space.start();
        let directory = file_type == FileType::Directory;
        let what = What::AddEntry {
            dir: dir.ino(),
            name,
            child,
            directory,
            at: within + at,
            inode: inode.buffer(),
        };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
            format.insert(&mut bytes[range.clone()], space, child, file_type, name);
        });
        {
            let mut index = dir.index.borrow_mut();
            let index = index.as_mut().expect("find_slot has built it, under the same lock");
            if slot.grows {
                index.fill_hole(slot.chunk, self.limits().block as u64, dir.size());
            }
            index.insert(index::hash(name), slot.chunk + at as u64);
            let bytes = buf.read();
            index.note_chunk(slot.chunk / CHUNK_BYTES, format.most_space(&bytes[range]));
        }
        self.note_indexed(1);
        let size = if slot.grows { slot.chunk + CHUNK_BYTES } else { 0 };
        let size = size.max(dir.size());
        self.directory_changed(op, dir, size).await
    }

    /// The block with a slot's chunk, and the chunk's first byte in the block. A directory that
    /// grows gets both.
    async fn slot_block(
        &self,
        op: &mut Op<'_>,
        dir: &LayoutInode<L>,
        slot: &Slot,
    ) -> FsResult<(BufRef, usize)> {
        if !slot.grows {
            return self.dir_block(dir, slot.chunk).await;
        }
        let (block, format) = (self.limits().block as u64, self.layout().directory());
        let within = (slot.chunk % block) as usize;
        let lbn = slot.chunk / block;
        let buf = self.layout().make_block(op, dir, lbn, within + CHUNK, Fill::Keep).await?;
        let range = within..within + CHUNK;
        if !format.is_free(&buf.read()[range.clone()]) {
            let what = What::InitDirectory { dir: dir.ino() };
            let admitted = op.admit(&what).await.map_err(io_error)?;
            op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
                format.write_free(&mut bytes[range.clone()]);
            });
        }
        Ok((buf, within))
    }

    /// Stores a directory's inode after a change of its entries.
    async fn directory_changed(
        &self,
        op: &mut Op<'_>,
        dir: &LayoutInode<L>,
        size: u64,
    ) -> FsResult<()> {
        let now = self.now();
        let old = dir.size();
        let what = if size == old {
            What::SetAttributes { ino: dir.ino() }
        } else {
            What::SetSize { ino: dir.ino(), old, new: size, directory: true }
        };
        self.update_inode(op, dir, what, |d| {
            d.size = size;
            (d.mtime, d.ctime) = (now, now);
        })
        .await
    }

    /// Removes an entry, and stores the directory's inode with new times. `directory`: whether the
    /// entry stands for a directory. The caller holds the directory's lock for writing.
    pub(crate) async fn remove_entry(
        &self,
        op: &mut Op<'_>,
        dir: &LayoutInode<L>,
        name: &[u8],
        found: FoundEntry,
        directory: bool,
    ) -> FsResult<()> {
        let (buf, within) = self.dir_block(dir, found.place).await?;
        let child = found.ino;
        let what = What::RemoveEntry { dir: dir.ino(), name, child, directory, at: within };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        let start = within / CHUNK * CHUNK;
        let range = start..start + CHUNK;
        let format = self.layout().directory();
        op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
            format.remove(&mut bytes[range.clone()], within - start);
        });
        if let Some(index) = dir.index.borrow_mut().as_mut() {
            index.remove(index::hash(name), found.place);
            let bytes = buf.read();
            index.note_chunk(found.place / CHUNK_BYTES, format.most_space(&bytes[range]));
            let total = &self.shared.indexed_entries;
            total.set(total.get().saturating_sub(1));
        }
        self.directory_changed(op, dir, dir.size()).await
    }

    /// Gives an entry another inode, and stores the directory's inode with new times.
    pub(crate) async fn change_entry(
        &self,
        op: &mut Op<'_>,
        dir: &LayoutInode<L>,
        (name, found): (&[u8], FoundEntry),
        child: u64,
        file_type: FileType,
    ) -> FsResult<()> {
        let (buf, within) = self.dir_block(dir, found.place).await?;
        let inode = self.layout().pin_inode(child).await?;
        let what = What::ChangeEntry {
            dir: dir.ino(),
            name,
            old: found.ino,
            new: child,
            directory: file_type == FileType::Directory,
            at: within,
            inode: inode.buffer(),
        };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        let format = self.layout().directory();
        let start = within / CHUNK * CHUNK;
        let range = start..start + CHUNK;
        op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
            format.change(&mut bytes[range.clone()], within - start, child, file_type);
        });
        self.directory_changed(op, dir, dir.size()).await
    }

    /// Whether a directory has no entries but `.` and `..`. The caller holds its lock.
    pub(crate) async fn is_empty(&self, dir: &LayoutInode<L>) -> FsResult<bool> {
        let mut empty = true;
        self.each_entry(dir, Cookie::START, &mut |entry| {
            empty = entry.name == b"." || entry.name == b"..";
            empty
        })
        .await?;
        Ok(empty)
    }

    /// Calls `each` for the entries from `cookie` on, until it returns false. The caller holds the
    /// lock.
    pub(crate) async fn each_entry(
        &self,
        dir: &LayoutInode<L>,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        // The entry at the cookie may be part of a longer one by now, so the scan begins at its
        // chunk.
        let unit = self.layout().directory().chunk();
        let mut chunk = cookie.0 / unit as u64 * unit as u64;
        let size = dir.size();
        while chunk < size {
            let Some((buf, within)) = self.dir_block_or_end(dir, chunk).await? else { break };
            let bytes = buf.read();
            let end = (within + unit).min(bytes.len());
            for entry in self.layout().directory().records(&bytes[within..end]) {
                let entry =
                    entry.map_err(|e| Self::corrupt_entry(dir, chunk + e.at as u64, e.fault))?;
                let place = chunk + entry.at as u64;
                if entry.ino == 0 || place < cookie.0 {
                    continue;
                }
                let go_on = each(DirEntry {
                    ino: Ino(entry.ino),
                    file_type: entry.file_type,
                    name: entry.name,
                    next: Cookie(place + entry.reclen.min(entry.used) as u64),
                });
                if !go_on {
                    return Ok(());
                }
            }
            chunk += unit as u64;
        }
        Ok(())
    }
}

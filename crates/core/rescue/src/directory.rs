//! Entries of damaged directories, and what is left of removed entries.

use ordo_format::ufs2::Dinode;
use ordo_format::ufs2::dir::{self, Entry};
use ordo_format::ufs2::superblock::has_long_chunks;
use ordo_vfs::name;

use crate::notes::Reason;
use crate::volume::Volume;

/// The chunks of Apple's and NeXT's directories, in bytes.
const LONG_CHUNK: usize = 1024;
/// The most entries of a directory that are read.
const ENTRIES_MAX: usize = 20_000_000;

/// An entry of a directory, with its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    pub at: u64,
    pub ino: u64,
    pub kind: u8,
    pub name: Vec<u8>,
}

/// The state of the inode of a removed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedState {
    /// The entry has no inode number any more.
    Unknown,
    /// The inode is in use: by another name of the file, or by a new file.
    InUse,
    /// The inode has no name, but its contents can be read.
    Readable,
    /// The inode is free, and leads to nothing.
    Cleared,
    /// The inode cannot be read.
    Unreadable,
}

/// A removed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode's number; 0 if it is unknown.
    pub ino: u64,
    /// The entry's type: a `DT_` constant of `format`.
    pub kind: u8,
    /// The state of the inode.
    pub state: DeletedState,
}

impl Volume {
    /// Calls `each` for every chunk of a directory that has contents: its place, and its bytes.
    async fn chunks(&self, ino: u64, inode: &Dinode, mut each: impl FnMut(u64, &[u8], usize)) {
        let (bsize, end) = (self.sb.block_size(), self.end(ino, inode));
        let (mut at, mut total, mut chunk) = (0, 0, None);
        let mut block = vec![0; bsize];
        while at < end {
            let Some(data) = self.seek(ino, inode, at, true).await else { break };
            if data > at {
                self.notes.add(ino, Reason::DirectoryHole { from: at, to: data });
            }
            if total > self.source.bytes() {
                self.notes.add(ino, Reason::DirectoryEndless { at });
                break;
            }
            let n = self.read(ino, inode, data, &mut block).await;
            let bytes = &block[..n];
            let is_long = || has_long_chunks(bytes, self.endian);
            let size =
                *chunk.get_or_insert_with(|| if is_long() { LONG_CHUNK } else { dir::CHUNK });
            for (i, part) in bytes.chunks(size).enumerate() {
                // A chunk that could not be read is zeros, and has its note.
                if part.iter().any(|byte| *byte != 0) {
                    each(data + (i * size) as u64, part, size);
                }
            }
            total += n as u64;
            at = data + n as u64;
        }
    }

    /// The sound entries of a directory, `.` and `..` included.
    pub async fn entries(&self, ino: u64, inode: &Dinode) -> Vec<FoundEntry> {
        let mut out = Vec::new();
        let mut faults = Vec::new();
        self.chunks(ino, inode, |start, bytes, chunk| {
            for entry in dir::entries_of(bytes, self.endian, chunk) {
                match entry {
                    Ok(entry) if entry.is_free() => {}
                    Ok(entry) if out.len() < ENTRIES_MAX => out.push(FoundEntry {
                        at: start + entry.at as u64,
                        ino: entry.ino.into(),
                        kind: entry.kind,
                        name: entry.name.to_vec(),
                    }),
                    Ok(entry) => {
                        faults.push(Reason::DirectoryEndless { at: start + entry.at as u64 })
                    }
                    Err(error) => faults
                        .push(Reason::Entry { at: start + error.at as u64, fault: error.fault }),
                }
            }
        })
        .await;
        faults.truncate(1000);
        faults.into_iter().for_each(|reason| self.notes.add(ino, reason));
        out
    }

    /// The removed names of a directory, whose entries were not overwritten.
    pub async fn deleted(&self, ino: u64, inode: &Dinode) -> Vec<DeletedEntry> {
        let mut found = Vec::new();
        self.chunks(ino, inode, |_, bytes, chunk| {
            for entry in dir::entries_of(bytes, self.endian, chunk).flatten() {
                if found.len() < ENTRIES_MAX {
                    self.stale(bytes, &entry, &mut found);
                }
            }
        })
        .await;
        let mut out = Vec::with_capacity(found.len());
        for (ino, kind, name) in found {
            let state = self.state(ino).await;
            out.push(DeletedEntry { name, ino, kind, state });
        }
        out
    }

    /// The entries in the free space of `entry`.
    fn stale(&self, bytes: &[u8], entry: &Entry<'_>, found: &mut Vec<(u64, u8, Vec<u8>)>) {
        let mut at = entry.at + entry.needs();
        let end = entry.at + usize::from(entry.reclen);
        while at + dir::entry_size(1) <= end {
            // An entry at the beginning of its chunk loses its inode number when it is removed.
            let may_lack_ino = entry.is_free() && at == entry.at;
            match self.candidate(&bytes[at..end], may_lack_ino) {
                Some((ino, kind, name)) => {
                    at += dir::entry_size(name.len());
                    if !name::is_dot(&name) {
                        found.push((ino, kind, name));
                    }
                }
                None => at += 4,
            }
        }
    }

    /// The entry at the beginning of free space, if it looks like one.
    fn candidate(&self, rest: &[u8], may_lack_ino: bool) -> Option<(u64, u8, Vec<u8>)> {
        let ino = u64::from(self.endian.get_u32(rest, dir::INO_OFFSET));
        let reclen = usize::from(self.endian.get_u16(rest, dir::RECLEN_OFFSET));
        let (kind, len) = (rest[dir::TYPE_OFFSET], usize::from(rest[dir::NAMLEN_OFFSET]));
        let name = rest.get(dir::HEADER..dir::HEADER + len)?;
        let is_entry = (self.sb.has_inode(ino) && ino > 1 || (may_lack_ino && ino == 0))
            && len > 0
            && reclen >= dir::entry_size(len)
            && reclen.is_multiple_of(4)
            && rest.get(dir::HEADER + len) == Some(&0)
            && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
            && matches!(kind, 0 | 1 | 2 | 4 | 6 | 8 | 10 | 12 | 14);
        is_entry.then(|| (ino, kind, name.to_vec()))
    }

    async fn state(&self, ino: u64) -> DeletedState {
        if ino == 0 {
            return DeletedState::Unknown;
        }
        match self.raw_inode(ino).await {
            None => DeletedState::Unreadable,
            Some(inode) if inode.mode != 0 && inode.nlink > 0 => DeletedState::InUse,
            Some(inode) if inode.size > 0 && (inode.db[0] != 0 || inode.blocks > 0) => {
                DeletedState::Readable
            }
            Some(inode) if inode.mode != 0 => DeletedState::Readable,
            Some(_) => DeletedState::Cleared,
        }
    }
}

//! Mapping and reading the contents of files.

use ordo_format::ufs2::{Dinode, NDADDR};
use ordo_vfs::FileType;

use crate::notes::Reason;
use crate::volume::Volume;

/// The place of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// A hole.
    Hole,
    /// An address in fragments.
    At(u64),
    /// A pointer that cannot be right.
    Wild(i64),
    /// An indirect block that cannot be read.
    Unreadable,
}

impl Volume {
    /// The end of what is read of a file: its size, unless that cannot be.
    pub fn end(&self, ino: u64, inode: &Dinode) -> u64 {
        let (size, most) = (inode.size, self.sb.mapped_bytes_max());
        if size > most {
            self.notes.add(ino, Reason::Size { size, to: most });
        }
        size.min(most)
    }

    /// The place of block `lbn`, and the number of blocks from it on of which the same is true.
    pub async fn locate(&self, inode: &Dinode, lbn: u64) -> (Located, u64) {
        if let Some(address) = inode.db.get(lbn as usize).filter(|_| lbn < NDADDR as u64) {
            return (self.checked(*address), 1);
        }
        let per_block = self.sb.addresses_per_block();
        let mut first = NDADDR as u64;
        for (root, top) in inode.ib.iter().enumerate() {
            let below = per_block.pow(root as u32 + 1);
            if lbn - first >= below {
                first += below;
                continue;
            }
            let (mut address, mut width) = (*top, below);
            loop {
                // All blocks below this pointer share its fate, up to the end of its span.
                let rest = width - (lbn - first) % width;
                match self.checked(address) {
                    Located::At(place) if width > 1 => {
                        let at = self.sb.byte_of(place);
                        let piece = self.block(at, self.sb.block_size()).await;
                        width /= per_block;
                        let index = (((lbn - first) / width) % per_block) as usize;
                        let size = self.sb.pointer_size();
                        if !piece.has(index * size..(index + 1) * size) {
                            return (Located::Unreadable, width - (lbn - first) % width);
                        }
                        address = self.sb.pointer(&piece.bytes, index, self.endian);
                    }
                    found => return (found, rest),
                }
            }
        }
        (Located::Hole, u64::MAX - lbn)
    }

    fn checked(&self, address: i64) -> Located {
        let unsigned = address.cast_unsigned();
        match address {
            0 => Located::Hole,
            _ if self.sb.has_frags(unsigned, 1) && !self.sb.is_own(unsigned, 1) => {
                Located::At(unsigned)
            }
            _ => Located::Wild(address),
        }
    }

    /// Reads from a file at `offset`. Fewer bytes are read only at its end. Whatever is lost reads
    /// as zeros, with a note.
    pub async fn read(&self, ino: u64, inode: &Dinode, offset: u64, buf: &mut [u8]) -> usize {
        let bsize = self.sb.block_size() as u64;
        let end = self.end(ino, inode).min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        while at < end {
            let lbn = at / bsize;
            let until = end.min((lbn + 1) * bsize);
            let within = (at - lbn * bsize) as usize;
            let out = &mut buf[(at - offset) as usize..(until - offset) as usize];
            out.fill(0);
            match self.locate(inode, lbn).await.0 {
                Located::Hole => {
                    if FileType::from_mode(inode.mode) == Some(FileType::Directory) {
                        self.notes.add(ino, Reason::DirectoryHole { from: at, to: until });
                    }
                }
                Located::Wild(address) => {
                    self.notes.add(ino, Reason::Address { from: at, to: until, address });
                }
                Located::Unreadable => {
                    self.notes.add(ino, Reason::Unreadable { from: at, to: until });
                }
                Located::At(place) => {
                    let len = self.sb.file_block_size(inode.size, lbn);
                    let piece = self.source.read(self.sb.byte_of(place), len).await;
                    out.copy_from_slice(&piece.bytes[within..within + out.len()]);
                    for bad in piece.bad {
                        let from = (lbn * bsize + bad.start as u64).max(at);
                        let to = (lbn * bsize + bad.end as u64).min(until);
                        if from < to {
                            self.notes.add(ino, Reason::Unreadable { from, to });
                        }
                    }
                }
            }
            at = until;
        }
        (at - offset) as usize
    }

    /// The next byte from `offset` on that has contents (`is_data`), or that has none; `None` if
    /// there is none before the end. What is lost has none, and gets a note.
    pub async fn seek(&self, ino: u64, inode: &Dinode, offset: u64, is_data: bool) -> Option<u64> {
        let (bsize, end) = (self.sb.block_size() as u64, self.end(ino, inode));
        let mut at = offset;
        while at < end {
            let lbn = at / bsize;
            let (place, run) = self.locate(inode, lbn).await;
            let to = lbn.saturating_add(run).saturating_mul(bsize).min(end);
            match place {
                Located::Hole | Located::At(_) => {}
                Located::Wild(address) => {
                    self.notes.add(ino, Reason::Address { from: at, to, address });
                }
                Located::Unreadable => self.notes.add(ino, Reason::Unreadable { from: at, to }),
            }
            if matches!(place, Located::At(_)) == is_data {
                return Some(at);
            }
            at = to;
        }
        (!is_data).then_some(end)
    }
}

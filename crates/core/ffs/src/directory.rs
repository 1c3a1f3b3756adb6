//! Directories, in the form that `ufs` uses.

use ordo_format::Endian;
use ordo_format::ufs2::dir;
use ordo_ufs::{DirDamage, DirFormat, DirRecord, FreeSpace};
use ordo_vfs::FileType;

/// The format of directories on an image: `docs/formats/ufs2.md`, "Directories".
#[derive(Clone, Copy, Debug)]
pub struct UfsDirectory {
    /// The byte order of the image.
    pub endian: Endian,
    /// The bytes of a chunk: more than [`dir::CHUNK`] on images that are read only.
    pub chunk: usize,
}

impl DirFormat for UfsDirectory {
    type Fault = dir::EntryFault;

    fn chunk(&self) -> usize {
        self.chunk
    }

    fn entry_size(&self, len: usize) -> usize {
        dir::entry_size(len)
    }

    fn records<'b>(
        &self,
        chunk: &'b [u8],
    ) -> impl Iterator<Item = Result<DirRecord<'b>, DirDamage<dir::EntryFault>>> {
        dir::entries_of(chunk, self.endian, self.chunk).map(|entry| {
            let entry = entry.map_err(|e| DirDamage { at: e.at, fault: e.fault })?;
            Ok(DirRecord {
                at: entry.at,
                ino: entry.ino.into(),
                reclen: entry.reclen.into(),
                used: entry.needs(),
                file_type: FileType::from_mode(u16::from(entry.kind) << 12),
                name: entry.name,
            })
        })
    }

    #[inline]
    fn inode_if_named(&self, rest: &[u8], name: &[u8]) -> Option<u64> {
        dir::inode_if_named(rest, self.endian, name).map(u64::from)
    }

    fn first_with_space(&self, chunk: &[u8], bytes: usize) -> Option<FreeSpace> {
        let (at, used, reclen) = dir::first_with_space(chunk, self.endian, bytes)?;
        Some(FreeSpace { at, used, reclen })
    }

    fn most_space(&self, chunk: &[u8]) -> usize {
        dir::most_space(chunk, self.endian)
    }

    fn insert(
        &self,
        chunk: &mut [u8],
        space: FreeSpace,
        ino: u64,
        file_type: FileType,
        name: &[u8],
    ) {
        if space.used > 0 {
            self.endian.put_u16(chunk, space.at + dir::RECLEN_OFFSET, space.used as u16);
        }
        let left = (space.reclen - space.used) as u16;
        let kind = dir::type_of_mode(file_type.mode_bits());
        dir::write_entry(&mut chunk[space.start()..], self.endian, ino as u32, left, kind, name);
    }

    fn remove(&self, chunk: &mut [u8], at: usize) {
        match dir::place_before(chunk, self.endian, at) {
            Some(prev) => {
                let reclen = self.endian.get_u16(chunk, prev + dir::RECLEN_OFFSET);
                let freed = self.endian.get_u16(chunk, at + dir::RECLEN_OFFSET);
                self.endian.put_u16(chunk, prev + dir::RECLEN_OFFSET, reclen.saturating_add(freed));
            }
            None => self.endian.put_u32(chunk, at + dir::INO_OFFSET, 0),
        }
    }

    fn change(&self, chunk: &mut [u8], at: usize, ino: u64, file_type: FileType) {
        self.endian.put_u32(chunk, at + dir::INO_OFFSET, ino as u32);
        chunk[at + dir::TYPE_OFFSET] = dir::type_of_mode(file_type.mode_bits());
    }

    fn is_free(&self, chunk: &[u8]) -> bool {
        dir::is_free_chunk(chunk, self.endian)
    }

    fn write_free(&self, chunk: &mut [u8]) {
        dir::write_free_chunk(chunk, self.endian);
    }

    fn write_first(&self, chunk: &mut [u8], ino: u64, parent: u64) {
        dir::write_first_chunk(chunk, self.endian, ino as u32, parent as u32);
    }
}

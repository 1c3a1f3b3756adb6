//! The directories of LFS64 in the form in which `ufs` edits them.

use ordo_format::lfs::Width;
use ordo_format::lfs::dir::{DirFault, DirHeader, entries, entry_size, fill_chunk, put};
use ordo_ufs::{CHUNK, DirDamage, DirFormat, DirRecord, FreeSpace};
use ordo_vfs::FileType;

const WIDTH: Width = Width::Lfs64;

/// The format of LFS64's directories.
#[derive(Clone, Copy, Debug)]
pub struct LogDirectory;

fn kind(file_type: FileType) -> u8 {
    (file_type.mode_bits() >> 12) as u8
}

/// The valid entries of a chunk: first byte, bytes in use, length. The first damaged entry ends
/// them.
fn frames(chunk: &[u8]) -> impl Iterator<Item = FreeSpace> + '_ {
    let whole = entries(WIDTH, chunk).map_while(Result::ok);
    whole.map(|e| FreeSpace { at: e.at, used: used(e.ino, e.name), reclen: e.reclen })
}

fn used(ino: u64, name: &[u8]) -> usize {
    if ino == 0 { 0 } else { entry_size(WIDTH, name.len()) }
}

impl DirFormat for LogDirectory {
    type Fault = DirFault;

    fn entry_size(&self, len: usize) -> usize {
        entry_size(WIDTH, len)
    }

    fn records<'b>(
        &self,
        chunk: &'b [u8],
    ) -> impl Iterator<Item = Result<DirRecord<'b>, DirDamage<DirFault>>> {
        entries(WIDTH, chunk).map(|entry| {
            let e = entry.map_err(|e| DirDamage { at: e.at, fault: e.fault })?;
            Ok(DirRecord {
                at: e.at,
                ino: e.ino,
                reclen: e.reclen,
                used: used(e.ino, e.name),
                file_type: FileType::from_mode(u16::from(e.kind) << 12),
                name: e.name,
            })
        })
    }

    fn inode_if_named(&self, rest: &[u8], name: &[u8]) -> Option<u64> {
        let head = WIDTH.dir_header();
        let found = rest.get(head..head + name.len())?;
        let header = DirHeader::read(WIDTH, rest);
        let same = usize::from(header.namlen) == name.len() && found == name;
        (same && header.ino != 0).then_some(header.ino)
    }

    fn first_with_space(&self, chunk: &[u8], bytes: usize) -> Option<FreeSpace> {
        frames(chunk).find(|frame| frame.reclen - frame.used >= bytes)
    }

    fn most_space(&self, chunk: &[u8]) -> usize {
        frames(chunk).map(|frame| frame.reclen - frame.used).max().unwrap_or(0)
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
            let header = DirHeader::read(WIDTH, &chunk[space.at..]);
            let reclen = space.used as u16;
            DirHeader { reclen, ..header }.write(WIDTH, &mut chunk[space.at..]);
        }
        put(WIDTH, &mut chunk[space.start()..space.at + space.reclen], ino, kind(file_type), name);
    }

    fn remove(&self, chunk: &mut [u8], at: usize) {
        let header = DirHeader::read(WIDTH, &chunk[at..]);
        let Some(before) = frames(chunk).map(|f| f.at).take_while(|place| *place < at).last()
        else {
            return DirHeader { ino: 0, ..header }.write(WIDTH, &mut chunk[at..]);
        };
        let longer = DirHeader::read(WIDTH, &chunk[before..]);
        let reclen = longer.reclen + header.reclen;
        DirHeader { reclen, ..longer }.write(WIDTH, &mut chunk[before..]);
    }

    fn change(&self, chunk: &mut [u8], at: usize, ino: u64, file_type: FileType) {
        let header = DirHeader::read(WIDTH, &chunk[at..]);
        DirHeader { ino, kind: kind(file_type), ..header }.write(WIDTH, &mut chunk[at..]);
    }

    fn is_free(&self, chunk: &[u8]) -> bool {
        let header = DirHeader::read(WIDTH, chunk);
        header.ino == 0 && usize::from(header.reclen) == CHUNK
    }

    fn write_free(&self, chunk: &mut [u8]) {
        chunk.fill(0);
        let header = DirHeader { ino: 0, reclen: CHUNK as u16, kind: 0, namlen: 0 };
        header.write(WIDTH, chunk);
    }

    fn write_first(&self, chunk: &mut [u8], ino: u64, parent: u64) {
        let kind = kind(FileType::Directory);
        let chunk = chunk.try_into().expect("a chunk");
        fill_chunk(WIDTH, chunk, &[(ino, kind, b"."), (parent, kind, b"..")]);
    }
}

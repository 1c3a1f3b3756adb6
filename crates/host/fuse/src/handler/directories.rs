//! Reading directories.

use ordo_format::fuse::{EntryOut, FuseDirent, ReadIn};
use ordo_vfs::{Cookie, DirEntry, FileSystem, FileType, Ino};

use super::{Handled, Handler, VALID_SECONDS};
use crate::wire::{Out, Request};

/// An entry of a list with attributes.
struct Entry {
    ino: Ino,
    next: Cookie,
    kind: Option<FileType>,
    name: Vec<u8>,
}

impl<F: FileSystem> Handler<F> {
    pub(super) async fn readdir(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let ReadIn { offset, size, .. } = r.structure();
        let (dir, cookie) = (self.ino(r.node), Cookie(offset));
        let mut list = Out::new(out.space(size as usize));
        let mut each = |e: DirEntry<'_>| list.dirent(e.ino.0, e.next.0, e.file_type, e.name);
        self.fs.readdir(dir, cookie, &mut each).await.map_err(|e| self.fail(e))?;
        let len = list.len();
        out.advance(len);
        Ok(())
    }

    pub(super) async fn readdirplus(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let ReadIn { offset, size, .. } = r.structure();
        let (dir, cookie, size) = (self.ino(r.node), Cookie(offset), size as usize);
        let mut entries = Vec::new();
        let mut capacity = size;
        let mut each = |e: DirEntry<'_>| {
            let needs = (EntryOut::SIZE + FuseDirent::SIZE + e.name.len()).next_multiple_of(8);
            let fits = needs <= capacity;
            if fits {
                capacity -= needs;
                let name = e.name.to_vec();
                entries.push(Entry { ino: e.ino, next: e.next, kind: e.file_type, name });
            }
            fits
        };
        self.fs.readdir(dir, cookie, &mut each).await.map_err(|e| self.fail(e))?;
        let mut list = Out::new(out.space(size));
        for entry in entries {
            let dots = entry.name == b"." || entry.name == b"..";
            // An entry that was removed in between, or cannot be read, is left for the kernel to
            // look up.
            let attr = match dots {
                true => None,
                false => self.fs.lookup(dir, &entry.name).await.ok().filter(|a| a.ino == entry.ino),
            };
            match attr {
                Some(attr) if self.know(attr.ino).await.is_ok() => {
                    list.entry_out(self.node(attr.ino), &self.shown(attr), VALID_SECONDS);
                }
                _ => list.zeroes(EntryOut::SIZE),
            }
            let capacity = list.dirent(entry.ino.0, entry.next.0, entry.kind, &entry.name);
            assert!(capacity, "sizes were added up");
        }
        let len = list.len();
        out.advance(len);
        Ok(())
    }
}

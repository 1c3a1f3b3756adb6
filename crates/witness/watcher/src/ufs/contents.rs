//! Guesses from contents: the kind that unclaimed bytes look like.

use ordo_format::Endian;
use ordo_format::ufs2::Superblock;
use ordo_format::ufs2::dir::{self, CHUNK};

use crate::kind::{Class, EntryChange, Looks};

/// The addresses in an indirect block, with their indexes; zeros are left out.
pub(super) type Addresses = Box<[(u32, u64)]>;

/// Whether these bytes, which begin with a chunk, could be a part of a directory: chunks that can
/// be parsed, followed by zeros only.
pub(super) fn is_directory(bytes: &[u8], endian: Endian) -> bool {
    let mut chunks = bytes.chunks(CHUNK);
    let mut any = false;
    for chunk in chunks.by_ref() {
        if chunk.len() < CHUNK || dir::entries(chunk, endian).any(|e| e.is_err()) {
            return any && is_zero(chunk) && chunks.all(is_zero);
        }
        any = true;
    }
    any
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// Whether `addr` can be the address of `frags` fragments of a file.
pub(super) fn is_address(sb: &Superblock, addr: u64, frags: u64) -> bool {
    sb.has_frags(addr, frags) && !sb.is_own(addr, frags)
}

/// The addresses in a whole block; `None` if a word cannot be the address of a whole block.
pub(super) fn addresses(bytes: &[u8], endian: Endian, sb: &Superblock) -> Option<Addresses> {
    let frag = sb.frag as u64;
    let mut found = Vec::new();
    for i in 0..bytes.len() / sb.pointer_size() {
        let addr = sb.pointer(bytes, i, endian).cast_unsigned();
        if addr == 0 {
            continue;
        }
        if !addr.is_multiple_of(frag) || !is_address(sb, addr, frag) {
            return None;
        }
        found.push((i as u32, addr));
    }
    Some(found.into())
}

/// The most likely class of bytes, from the kinds that their contents allow.
pub(super) fn class_of(looks: Looks) -> Class {
    match looks {
        Looks::Like(class) => class,
        Looks::Unjudged | Looks::Any | Looks::Plain => Class::FileData,
    }
}

/// The kinds of block that bytes can be, from their contents. Zeros can be of any kind. Bytes that
/// look like a directory may be in a file, but are far more likely to be a directory. Only a whole
/// block can be an indirect block.
pub(super) fn looks_like(bytes: &[u8], endian: Endian, sb: &Superblock) -> Looks {
    if is_zero(bytes) {
        Looks::Any
    } else if is_directory(bytes, endian) {
        Looks::Like(Class::Directory)
    } else if bytes.len() == sb.block_size()
        && addresses(bytes, endian, sb).is_some_and(|a| !a.is_empty())
    {
        Looks::Like(Class::Indirect)
    } else {
        Looks::Plain
    }
}

/// The entries that changed between two states of the same chunks of a directory.
pub(super) fn entry_changes(old: &[u8], new: &[u8], endian: Endian) -> Vec<EntryChange> {
    let read = |bytes| -> Vec<(Box<[u8]>, u32)> {
        let used = dir::entries(bytes, endian).flatten().filter(|e| !e.is_free());
        let mut all: Vec<_> = used.map(|e| (Box::from(e.name), e.ino)).collect();
        all.sort();
        all
    };
    let (old, new) = (read(old), read(new));
    let find = |list: &[(Box<[u8]>, u32)], name: &[u8]| {
        list.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| list[i].1)
    };
    let mut changes = Vec::new();
    for (name, ino) in &new {
        match find(&old, name) {
            None => changes.push(EntryChange::Added { name: name.clone(), ino: *ino }),
            Some(from) if from != *ino => {
                changes.push(EntryChange::Redirected { name: name.clone(), from, to: *ino });
            }
            Some(_) => {}
        }
    }
    for (name, ino) in &old {
        if find(&new, name).is_none() {
            changes.push(EntryChange::Removed { name: name.clone(), ino: *ino });
        }
    }
    changes
}

//! POSIX ACLs: stored in FreeBSD's form, shown in Linux's form.
//!
//! On disk they are attributes `posix1e.acl_access` and `posix1e.acl_default` of the system name
//! space. Each is a count (u32) and 32 entries of tag, id (u32 each), permissions (u16) and 2 bytes
//! of padding, in the byte order of the machine that wrote them, which is the image's. The
//! permissions of owner, others and mask are taken from the mode, so a `chmod` need not know of
//! ACLs. Linux's form is a version (u32, 2), then entries of tag and permissions (u16 each) and id
//! (u32). The tags are the same.

use ordo_vfs::{Attr, Errno, FileSystem, FileType, Ino, SetAttr, XattrMode};

use super::{Handled, Handler};

/// The names of the attributes on Linux.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";
const STORED_ACCESS: &[u8] = b"system.posix1e.acl_access";
const STORED_DEFAULT: &[u8] = b"system.posix1e.acl_default";

const ENTRIES_MAX: usize = 32;
const ENTRY: usize = 12;

const USER_OBJ: u32 = 1;
const GROUP_OBJ: u32 = 4;
const MASK: u32 = 0x10;
const OTHER: u32 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u32,
    id: u32,
    perm: u16,
}

/// An ACL: its entries, in order of tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<Entry>);

/// Whether this is the name of an ACL.
pub(super) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// The name on Linux of a stored attribute that is an ACL.
pub(super) fn shown(name: &[u8]) -> Option<&'static [u8]> {
    [ACCESS, DEFAULT].into_iter().find(|acl| stored(acl) == name)
}

fn stored(name: &[u8]) -> &'static [u8] {
    if name == ACCESS { STORED_ACCESS } else { STORED_DEFAULT }
}

impl Acl {
    fn from_linux(bytes: &[u8]) -> Option<Acl> {
        let body = bytes.strip_prefix(&2u32.to_le_bytes())?;
        if body.len() % 8 != 0 || body.len() / 8 > ENTRIES_MAX {
            return None;
        }
        let half = |e: &[u8], at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        let word = |e: &[u8], at: usize| u32::from_le_bytes(e[at..at + 4].try_into().expect("4"));
        let entries = body.chunks_exact(8).map(|e| Entry {
            tag: half(e, 0).into(),
            perm: half(e, 2) & 7,
            id: word(e, 4),
        });
        Some(Acl(entries.collect()))
    }

    fn to_linux(&self) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend((e.tag as u16).to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            out.extend(e.id.to_le_bytes());
        }
        out
    }

    fn from_disk(bytes: &[u8], big_endian: bool) -> Option<Acl> {
        let word = |at: usize| {
            let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().expect("four bytes");
            Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let count = word(0)? as usize;
        if count > ENTRIES_MAX {
            return None;
        }
        let entry = |i: usize| {
            let at = 4 + i * ENTRY;
            let perm = bytes.get(at + 8..at + 10)?;
            let perm = [perm[0], perm[1]];
            let perm =
                if big_endian { u16::from_be_bytes(perm) } else { u16::from_le_bytes(perm) } & 7;
            Some(Entry { tag: word(at)?, id: word(at + 4)?, perm })
        };
        (0..count).map(entry).collect::<Option<Vec<_>>>().map(Acl)
    }

    fn to_disk(&self, big_endian: bool) -> Vec<u8> {
        let word = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        // The permissions take the first half of their word in either byte order.
        let half = |n: u16| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut out = word(self.0.len() as u32).to_vec();
        for e in &self.0 {
            out.extend(word(e.tag));
            out.extend(word(e.id));
            out.extend(half(e.perm));
            out.extend([0; 2]);
        }
        out.resize(4 + ENTRIES_MAX * ENTRY, 0);
        out
    }

    fn find(&self, tag: u32) -> Option<usize> {
        self.0.iter().position(|e| e.tag == tag)
    }

    /// The entry whose permissions are the mode's group bits.
    fn group_class(&self) -> Option<usize> {
        self.find(MASK).or_else(|| self.find(GROUP_OBJ))
    }

    /// Sets the entries that the mode decides.
    fn set_mode(&mut self, mode: u16) {
        for (place, shift) in
            [(self.find(USER_OBJ), 6), (self.group_class(), 3), (self.find(OTHER), 0)]
        {
            if let Some(i) = place {
                self.0[i].perm = mode >> shift & 7;
            }
        }
    }

    /// Removes the permissions that the mode does not have.
    fn mask_mode(&mut self, mode: u16) {
        for (place, shift) in
            [(self.find(USER_OBJ), 6), (self.group_class(), 3), (self.find(OTHER), 0)]
        {
            if let Some(i) = place {
                self.0[i].perm &= mode >> shift & 7;
            }
        }
    }

    /// The permission bits of the mode for this ACL.
    fn mode(&self) -> u16 {
        let perm = |place: Option<usize>| place.map_or(0, |i| self.0[i].perm);
        perm(self.find(USER_OBJ)) << 6 | perm(self.group_class()) << 3 | perm(self.find(OTHER))
    }

    /// Whether the mode alone expresses the whole list.
    fn is_minimal(&self) -> bool {
        self.0.len() <= 3
    }
}

impl<F: FileSystem> Handler<F> {
    async fn load_acl(&self, ino: Ino, name: &[u8]) -> Result<Option<Acl>, super::Failure> {
        match self.fs.getxattr(ino, stored(name)).await {
            Ok(bytes) => match Acl::from_disk(&bytes, self.options.big_endian) {
                Some(acl) => Ok(Some(acl)),
                None => Err(Errno::Corrupt.into()),
            },
            Err(e) if e.errno == Errno::NoAttribute => Ok(None),
            Err(e) => Err(self.fail(e)),
        }
    }

    pub(super) async fn get_acl(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, super::Failure> {
        let mut acl = self.load_acl(ino, name).await?.ok_or(Errno::NoAttribute)?;
        if name == ACCESS {
            let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
            acl.set_mode(attr.permissions);
        }
        Ok(acl.to_linux())
    }

    pub(super) async fn set_acl(&self, ino: Ino, name: &[u8], value: &[u8]) -> Handled {
        let acl = Acl::from_linux(value).ok_or(Errno::Invalid)?;
        if name == ACCESS {
            let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
            let permissions = Some(attr.permissions & 0o7000 | acl.mode());
            let set = SetAttr { permissions, ..SetAttr::default() };
            self.fs.setattr(ino, &set).await.map_err(|e| self.fail(e))?;
        }
        self.store_acl(ino, name, &acl).await
    }

    async fn store_acl(&self, ino: Ino, name: &[u8], acl: &Acl) -> Handled {
        if name == ACCESS && acl.is_minimal() || acl.0.is_empty() {
            return self.remove_acl(ino, name).await;
        }
        let stored = stored(name);
        let value = acl.to_disk(self.options.big_endian);
        let set = self.fs.setxattr(ino, stored, &value, XattrMode::Set).await;
        set.map_err(|e| self.fail(e))
    }

    pub(super) async fn remove_acl(&self, ino: Ino, name: &[u8]) -> Handled {
        match self.fs.removexattr(ino, stored(name)).await {
            Err(e) if e.errno != Errno::NoAttribute => Err(self.fail(e)),
            _ => Ok(()),
        }
    }

    /// The permissions and the ACL of a new file, by its directory's default ACL or by the umask.
    pub(super) async fn inherited(
        &self,
        dir: Ino,
        (permissions, umask): (u16, u32),
    ) -> Result<(u16, Option<Acl>), super::Failure> {
        if !self.options.acl {
            return Ok((permissions, None));
        }
        Ok(match self.load_acl(dir, DEFAULT).await? {
            None => (permissions & !(umask as u16), None),
            Some(mut acl) => {
                acl.mask_mode(permissions);
                (permissions & 0o7000 | acl.mode(), Some(acl))
            }
        })
    }

    /// Gives a new file the access lists that it inherits from its directory.
    pub(super) async fn inherit(&self, dir: Ino, made: &Attr, acl: Option<Acl>) -> Handled {
        let Some(acl) = acl else { return Ok(()) };
        if made.file_type == FileType::Symlink {
            return Ok(());
        }
        if made.file_type == FileType::Directory
            && let Some(default) = self.load_acl(dir, DEFAULT).await?
        {
            self.store_acl(made.ino, DEFAULT, &default).await?;
        }
        self.store_acl(made.ino, ACCESS, &acl).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl() -> Acl {
        let entry = |tag, id, perm| Entry { tag, id, perm };
        let none = u32::MAX;
        Acl(vec![
            entry(USER_OBJ, none, 7),
            entry(2, 1000, 5),
            entry(GROUP_OBJ, none, 4),
            entry(MASK, none, 5),
            entry(OTHER, none, 0),
        ])
    }

    /// An ACL must come back from either form; the disk's has FreeBSD's fixed size. A form that is
    /// cut short or has too great a count must be refused.
    #[test]
    fn both_forms() {
        assert_eq!(Acl::from_linux(&acl().to_linux()), Some(acl()));
        for big in [false, true] {
            let disk = acl().to_disk(big);
            assert_eq!(disk.len(), 388);
            assert_eq!(Acl::from_disk(&disk, big), Some(acl()));
            assert_eq!(Acl::from_disk(&disk[..40], big), None);
            assert_ne!(Acl::from_disk(&disk, !big), Some(acl()));
        }
        // The first entry as a big-endian FreeBSD writes it: owner, no id, rwx.
        let disk = acl().to_disk(true);
        assert_eq!(disk[..16], [0, 0, 0, 5, 0, 0, 0, 1, 255, 255, 255, 255, 0, 7, 0, 0]);
        assert_eq!(Acl::from_disk(&[33, 0, 0, 0], false), None);
        assert_eq!(Acl::from_linux(&[1, 0, 0, 0]), None);
    }

    /// If a list has a mask, the mode's group bits are that mask: a `chmod` must not change the
    /// group's own entry.
    #[test]
    fn the_mode_and_the_mask() {
        let mut a = acl();
        assert_eq!(a.mode(), 0o750);
        a.set_mode(0o611);
        assert_eq!((a.mode(), a.0[2].perm), (0o611, 4));
        assert!(!a.is_minimal());
    }
}

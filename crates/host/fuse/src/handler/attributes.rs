//! Requests about attributes.

use ordo_format::fuse::{Fsxattr, GetxattrIn, IoctlIn, IoctlOut, SetattrIn, SetxattrIn, WriteOut};
use ordo_format::{Endian, OnDisk};
use ordo_vfs::{Errno, FileSystem, FileType, SetAttr, SetTime, XattrMode, flags};

use super::acl::{self, is_acl};
use super::files::without_set_id;
use super::ids::HiddenPermissions;
use super::{Failure, Handled, Handler, VALID_SECONDS};
use crate::wire::{Out, Request, fattr, split_name, timestamp};

/// `FS_IOC_GETFLAGS`; the next constant is `FS_IOC_SETFLAGS`.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` (`struct fsxattr`), with flag numbers of its own. The kernel asks with it
/// before it sets any flag.
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;

/// Each row: a flag of Linux, its number in `struct fsxattr`, and two BSD flags with the same
/// meaning, of which the first is the one that is set.
const FLAGS: [(u32, u32, u32, u32); 3] = [
    (0x10, 0x8, flags::SF_IMMUTABLE, flags::UF_IMMUTABLE),
    (0x20, 0x10, flags::SF_APPEND, flags::UF_APPEND),
    (0x40, 0x80, flags::UF_NODUMP, 0),
];

/// The flag in the structure for extended attributes, which no caller sets.
const HAS_ATTRIBUTES: u32 = 0x8000_0000;

/// The Linux flags with the meaning of BSD's.
fn to_linux(bsd: u32) -> u32 {
    let set = FLAGS.iter().filter(|(_, _, a, b)| bsd & (a | b) != 0);
    set.fold(0, |all, (linux, ..)| all | linux)
}

/// BSD's flags after those of Linux were set to `wanted`; `None` if UFS cannot store one of them.
fn to_bsd(old: u32, wanted: u32) -> Option<u32> {
    let mut new = old;
    for (linux, _, bsd, other) in FLAGS {
        match wanted & linux != 0 {
            true if new & (bsd | other) == 0 => new |= bsd,
            true => {}
            false => new &= !(bsd | other),
        }
    }
    let known = FLAGS.iter().fold(0, |all, (linux, ..)| all | linux);
    (wanted & !known == 0).then_some(new)
}

/// The Linux flags in a structure; `None` if it asks for anything else.
fn from_structure(bytes: &[u8]) -> Option<u32> {
    let wanted = Fsxattr::decode(bytes, Endian::NATIVE);
    let set = FLAGS.iter().filter(|(_, x, ..)| wanted.fsx_xflags & x != 0);
    let known = FLAGS.iter().fold(HAS_ATTRIBUTES, |all, (_, x, ..)| all | x);
    let hints = [wanted.fsx_extsize, wanted.fsx_projid, wanted.fsx_cowextsize];
    let nothing_else = wanted.fsx_xflags & !known == 0 && hints == [0; 3];
    nothing_else.then(|| set.fold(0, |all, (linux, ..)| all | linux))
}

impl<F: FileSystem> Handler<F> {
    pub(super) async fn getattr(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let attr = self.fs.getattr(self.ino(r.node)).await.map_err(|e| self.fail(e))?;
        out.attr_out(&self.shown(attr), VALID_SECONDS);
        Ok(())
    }

    pub(super) async fn statx(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let attr = self.fs.getattr(self.ino(r.node)).await.map_err(|e| self.fail(e))?;
        out.statx(&self.shown(attr), VALID_SECONDS);
        Ok(())
    }

    pub(super) async fn setattr(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let (ino, wanted) = (self.ino(r.node), r.structure::<SetattrIn>());
        let given = |bit: u32| wanted.valid & bit != 0;
        let time = |set: u32, now: u32, to: (u64, u32)| match () {
            () if given(now) => Some(SetTime::Now),
            () if given(set) => Some(SetTime::To(timestamp(to.0, to.1))),
            () => None,
        };
        let (atime, mtime) = ((wanted.atime, wanted.atimensec), (wanted.mtime, wanted.mtimensec));
        let ids = &self.options.ids;
        let mut set = SetAttr {
            permissions: given(fattr::MODE).then_some(wanted.mode as u16 & 0o7777),
            uid: given(fattr::UID).then(|| ids.users.disk(wanted.uid)),
            gid: given(fattr::GID).then(|| ids.groups.disk(wanted.gid)),
            size: given(fattr::SIZE).then_some(wanted.size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, atime),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime),
            ..SetAttr::default()
        };
        let gives_away = set.uid.is_some() || set.gid.is_some();
        if set.permissions.is_none() && (gives_away || given(fattr::KILL_SUIDGID)) {
            let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
            let without = without_set_id(attr.permissions);
            if attr.file_type != FileType::Directory && without != attr.permissions {
                set.permissions = Some(without);
            }
        }
        if let Some(wanted) = set.permissions.filter(|_| ids.hidden != HiddenPermissions::default())
        {
            let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
            let hidden = ids.hidden.of(attr.file_type);
            set.permissions = Some(wanted & !hidden | attr.permissions & hidden);
        }
        let attr = match set == SetAttr::default() {
            true => self.fs.getattr(ino).await,
            false => self.fs.setattr(ino, &set).await,
        };
        let attr = attr.map_err(|e| self.fail(e))?;
        self.changed().await?;
        out.attr_out(&self.shown(attr), VALID_SECONDS);
        Ok(())
    }

    /// Serves `chattr` and `lsattr`. The kernel decides who may set which flag.
    pub(super) async fn ioctl(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let IoctlIn { cmd: command, out_size, .. } = r.structure();
        let ino = self.ino(r.node);
        let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
        let asked = match command {
            GET_FLAGS | GET_XATTR => None,
            SET_FLAGS => {
                let flags = r.rest.get(..u32::SIZE).ok_or(Errno::Invalid)?;
                Some(u32::get(flags, 0, Endian::NATIVE))
            }
            SET_XATTR => {
                let bytes = r.rest.get(..Fsxattr::SIZE).ok_or(Errno::Invalid)?;
                Some(from_structure(bytes).ok_or(Errno::NotSupported)?)
            }
            _ => return Err(Failure(libc::ENOTTY)),
        };
        out.put(&IoctlOut::zeroed());
        match asked {
            Some(wanted) => {
                let new = to_bsd(attr.flags, wanted).ok_or(Errno::NotSupported)?;
                let set = SetAttr { flags: Some(new), ..SetAttr::default() };
                self.fs.setattr(ino, &set).await.map_err(|e| self.fail(e))?;
                self.changed().await?;
            }
            None if command == GET_XATTR => {
                let linux = to_linux(attr.flags);
                let set = FLAGS.iter().filter(|(flag, ..)| linux & flag != 0);
                let fsx_xflags = set.fold(0, |all, (_, x, ..)| all | x);
                out.put(&Fsxattr { fsx_xflags, ..Fsxattr::zeroed() });
            }
            None => {
                out.put(&to_linux(attr.flags));
                // A caller that asks for a long gets one.
                out.zeroes((out_size as usize).saturating_sub(4).min(4));
            }
        }
        Ok(())
    }

    pub(super) async fn setxattr(&self, r: &Request<'_>) -> Handled {
        let SetxattrIn { size, flags, .. } = r.structure();
        let mode = match flags.cast_signed() {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::Invalid.into()),
        };
        let (name, value) = split_name(r.rest);
        let value = value.get(..size as usize).ok_or(Errno::Invalid)?;
        if self.options.acl && is_acl(name) {
            self.set_acl(self.ino(r.node), name, value).await?;
            return self.changed().await;
        }
        let name = stored(name)?;
        let set = self.fs.setxattr(self.ino(r.node), &name, value, mode).await;
        set.map_err(|e| self.fail(e))?;
        self.changed().await
    }

    pub(super) async fn removexattr(&self, r: &Request<'_>) -> Handled {
        if self.options.acl && is_acl(r.name().0) {
            self.remove_acl(self.ino(r.node), r.name().0).await?;
            return self.changed().await;
        }
        let name = stored(r.name().0)?;
        let removed = self.fs.removexattr(self.ino(r.node), &name).await;
        removed.map_err(|e| self.fail(e))?;
        self.changed().await
    }

    pub(super) async fn getxattr(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        if self.options.acl && is_acl(r.name().0) {
            let value = self.get_acl(self.ino(r.node), r.name().0).await?;
            return sized(&value, r, out);
        }
        let name = stored(r.name().0)?;
        let value = self.fs.getxattr(self.ino(r.node), &name).await.map_err(|e| self.fail(e))?;
        sized(&value, r, out)
    }

    pub(super) async fn listxattr(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let names = self.fs.listxattr(self.ino(r.node)).await.map_err(|e| self.fail(e))?;
        let mut list = Vec::new();
        for name in names {
            let acl = if self.options.acl { acl::shown(&name).map(<[u8]>::to_vec) } else { None };
            if let Some(name) = acl.or_else(|| shown(&name)) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        sized(&list, r, out)
    }
}

/// Replies with a value; if the caller gave no space, with its length.
fn sized(value: &[u8], r: &Request<'_>, out: &mut Out<'_>) -> Handled {
    let GetxattrIn { size: capacity, .. } = r.structure();
    if capacity == 0 {
        out.put(&WriteOut { size: value.len() as u32, padding: 0 });
    } else if value.len() > capacity as usize {
        return Err(Errno::Range.into());
    } else {
        out.bytes(value);
    }
    Ok(())
}

/// Name spaces of Linux that UFS lacks, and the prefixes under which they are stored in its own.
const KEPT: [(&[u8], &[u8]); 2] =
    [(b"security.", b"system.linux.security."), (b"trusted.", b"system.linux.trusted.")];

/// The name by which an attribute is stored. FreeBSD's `system` name space is `trusted.freebsd.`
/// here, since Linux has other uses for `system.`.
fn stored(name: &[u8]) -> Result<Vec<u8>, Failure> {
    if name.starts_with(b"user.") {
        return Ok(name.to_vec());
    }
    if let Some(short) = name.strip_prefix(b"trusted.freebsd.".as_slice()) {
        return Ok([b"system.", short].concat());
    }
    let kept = KEPT
        .iter()
        .find_map(|(here, there)| name.strip_prefix(*here).map(|short| [there, short].concat()));
    kept.ok_or(Errno::NotSupported.into())
}

/// The name by which a stored attribute is shown.
fn shown(name: &[u8]) -> Option<Vec<u8>> {
    if name.starts_with(b"user.") {
        return Some(name.to_vec());
    }
    let kept = KEPT
        .iter()
        .find_map(|(here, there)| name.strip_prefix(*there).map(|short| [here, short].concat()));
    kept.or_else(|| {
        let short = name.strip_prefix(b"system.".as_slice())?;
        Some([b"trusted.freebsd.", short].concat())
    })
}

//! Operations on objects of the run, so that a sequence means the same on any file system.

use std::fmt;

use ordo_vfs::{
    Attr, Cookie, FileSystem, FileType, FsError, Ino, NewNode, RenameMode, SetAttr, XattrMode,
};

/// An inode of the run. 0 is the root; any other has the number of the step that created it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OracleObject(pub usize);

impl fmt::Debug for OracleObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A name, which is printed in a short form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OracleName(pub Vec<u8>);

impl fmt::Debug for OracleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        match self.0.len() {
            0..=24 => write!(f, "{text:?}"),
            n => write!(f, "{:?}..({n} bytes)", text.chars().take(8).collect::<String>()),
        }
    }
}

/// One operation. The fields are the arguments of [`FileSystem`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are FileSystem's arguments")]
pub enum OracleOp {
    Lookup {
        dir: OracleObject,
        name: OracleName,
    },
    Create {
        dir: OracleObject,
        name: OracleName,
        file_type: FileType,
        permissions: u16,
        owner: u32,
        rdev: u64,
        target: OracleName,
    },
    Link {
        object: OracleObject,
        dir: OracleObject,
        name: OracleName,
    },
    Unlink {
        dir: OracleObject,
        name: OracleName,
    },
    Rmdir {
        dir: OracleObject,
        name: OracleName,
    },
    Rename {
        from_dir: OracleObject,
        from: OracleName,
        to_dir: OracleObject,
        to: OracleName,
        mode: RenameMode,
    },
    Open {
        object: OracleObject,
    },
    Close {
        object: OracleObject,
    },
    GetAttr {
        object: OracleObject,
    },
    SetAttr {
        object: OracleObject,
        set: SetAttr,
    },
    ReadLink {
        object: OracleObject,
    },
    Read {
        object: OracleObject,
        offset: u64,
        len: usize,
    },
    /// Writes `len` bytes that are generated from `fill`, or zeros if it is 0.
    Write {
        object: OracleObject,
        offset: u64,
        len: usize,
        fill: u64,
    },
    /// Lists the whole directory.
    List {
        dir: OracleObject,
    },
    /// Lists `count` entries, and keeps the cookie.
    ListFirst {
        dir: OracleObject,
        count: usize,
    },
    /// Continues the listing of step `listing`: `count` entries more, or to the end.
    ListOn {
        listing: usize,
        count: Option<usize>,
    },
    Fsync {
        object: OracleObject,
    },
    Sync,
    StatFs,
    GetXattr {
        object: OracleObject,
        name: OracleName,
    },
    SetXattr {
        object: OracleObject,
        name: OracleName,
        value: OracleName,
        mode: XattrMode,
    },
    ListXattrs {
        object: OracleObject,
    },
    RemoveXattr {
        object: OracleObject,
        name: OracleName,
    },
    /// Closes everything, unmounts and mounts again.
    Remount,
}

/// The result of an operation, in a form that can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Nothing,
    Attr(Attr),
    Bytes(Vec<u8>),
    Count(usize),
    Names(Vec<Vec<u8>>),
    Entries(Vec<Listed>),
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) file_type: Option<FileType>,
}

/// The bytes that a write of `len` bytes with `fill` writes.
pub(super) fn filling(fill: u64, len: usize) -> Vec<u8> {
    if fill == 0 {
        return vec![0; len];
    }
    let mut state = fill;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Does `op` on `fs`. `ino` gives the inode of each object. The runner does listings with cookies,
/// and remounts.
pub(super) async fn apply<F: FileSystem>(
    fs: &F,
    op: &OracleOp,
    ino: &dyn Fn(OracleObject) -> Ino,
) -> Result<Outcome, FsError> {
    match op {
        OracleOp::Lookup { dir, name } => fs.lookup(ino(*dir), &name.0).await.map(Outcome::Attr),
        OracleOp::Create { dir, name, file_type, permissions, owner, rdev, target } => {
            let new = NewNode {
                file_type: *file_type,
                permissions: *permissions,
                uid: *owner,
                gid: *owner / 2,
                rdev: *rdev,
                target: &target.0,
            };
            fs.create(ino(*dir), &name.0, &new).await.map(Outcome::Attr)
        }
        OracleOp::Link { object, dir, name } => {
            fs.link(ino(*object), ino(*dir), &name.0).await.map(Outcome::Attr)
        }
        OracleOp::Unlink { dir, name } => nothing(fs.unlink(ino(*dir), &name.0).await),
        OracleOp::Rmdir { dir, name } => nothing(fs.rmdir(ino(*dir), &name.0).await),
        OracleOp::Rename { from_dir, from, to_dir, to, mode } => {
            nothing(fs.rename(ino(*from_dir), &from.0, ino(*to_dir), &to.0, *mode).await)
        }
        OracleOp::Open { object } => nothing(fs.open(ino(*object)).await),
        OracleOp::Close { object } => nothing(fs.close(ino(*object)).await),
        OracleOp::GetAttr { object } => fs.getattr(ino(*object)).await.map(Outcome::Attr),
        OracleOp::SetAttr { object, set } => fs.setattr(ino(*object), set).await.map(Outcome::Attr),
        OracleOp::ReadLink { object } => fs.readlink(ino(*object)).await.map(Outcome::Bytes),
        OracleOp::Read { object, offset, len } => {
            let mut buf = vec![0xee; *len];
            let n = fs.read(ino(*object), *offset, &mut buf).await?;
            buf.truncate(n);
            Ok(Outcome::Bytes(buf))
        }
        OracleOp::Write { object, offset, len, fill } => {
            let data = filling(*fill, *len);
            fs.write(ino(*object), *offset, &data).await.map(Outcome::Count)
        }
        OracleOp::List { dir } => {
            list(fs, ino(*dir), Cookie::START, None).await.map(|(mut e, _)| {
                e.sort_by(|a, b| a.name.cmp(&b.name));
                Outcome::Entries(e)
            })
        }
        OracleOp::Fsync { object } => nothing(fs.fsync(ino(*object)).await),
        OracleOp::Sync => nothing(fs.sync().await),
        OracleOp::StatFs => fs.statfs().await.map(|s| Outcome::Count(s.name_max as usize)),
        OracleOp::GetXattr { object, name } => {
            fs.getxattr(ino(*object), &name.0).await.map(Outcome::Bytes)
        }
        OracleOp::SetXattr { object, name, value, mode } => {
            nothing(fs.setxattr(ino(*object), &name.0, &value.0, *mode).await)
        }
        OracleOp::ListXattrs { object } => fs.listxattr(ino(*object)).await.map(|mut names| {
            names.sort_unstable();
            Outcome::Names(names)
        }),
        OracleOp::RemoveXattr { object, name } => {
            nothing(fs.removexattr(ino(*object), &name.0).await)
        }
        OracleOp::ListFirst { .. } | OracleOp::ListOn { .. } | OracleOp::Remount => {
            unreachable!("the runner does these itself")
        }
    }
}

fn nothing(result: Result<(), FsError>) -> Result<Outcome, FsError> {
    result.map(|()| Outcome::Nothing)
}

/// Lists at most `count` entries from `cookie` on, and returns the next cookie.
pub(super) async fn list<F: FileSystem>(
    fs: &F,
    dir: Ino,
    cookie: Cookie,
    count: Option<usize>,
) -> Result<(Vec<Listed>, Cookie), FsError> {
    let count = count.unwrap_or(usize::MAX).max(1);
    let mut entries: Vec<Listed> = Vec::new();
    let mut next = cookie;
    fs.readdir(dir, cookie, &mut |e| {
        entries.push(Listed { name: e.name.to_vec(), ino: e.ino, file_type: e.file_type });
        next = e.next;
        entries.len() < count
    })
    .await?;
    Ok((entries, next))
}

impl OracleOp {
    /// The objects on which the operation works.
    pub(super) fn objects(&self) -> Vec<OracleObject> {
        match self {
            OracleOp::Lookup { dir, .. }
            | OracleOp::Create { dir, .. }
            | OracleOp::Unlink { dir, .. }
            | OracleOp::Rmdir { dir, .. }
            | OracleOp::List { dir }
            | OracleOp::ListFirst { dir, .. } => vec![*dir],
            OracleOp::Link { object, dir, .. } => vec![*object, *dir],
            OracleOp::Rename { from_dir, to_dir, .. } => vec![*from_dir, *to_dir],
            OracleOp::Open { object }
            | OracleOp::Close { object }
            | OracleOp::GetAttr { object }
            | OracleOp::SetAttr { object, .. }
            | OracleOp::ReadLink { object }
            | OracleOp::Read { object, .. }
            | OracleOp::Write { object, .. }
            | OracleOp::Fsync { object }
            | OracleOp::GetXattr { object, .. }
            | OracleOp::SetXattr { object, .. }
            | OracleOp::ListXattrs { object }
            | OracleOp::RemoveXattr { object, .. } => vec![*object],
            OracleOp::ListOn { .. } | OracleOp::Sync | OracleOp::StatFs | OracleOp::Remount => {
                Vec::new()
            }
        }
    }

    /// The entries that the operation changes when it succeeds.
    pub(super) fn entries(&self) -> Vec<(OracleObject, &OracleName)> {
        match self {
            OracleOp::Create { dir, name, .. }
            | OracleOp::Link { dir, name, .. }
            | OracleOp::Unlink { dir, name }
            | OracleOp::Rmdir { dir, name } => vec![(*dir, name)],
            OracleOp::Rename { from_dir, from, to_dir, to, .. } => {
                vec![(*from_dir, from), (*to_dir, to)]
            }
            _ => Vec::new(),
        }
    }
}

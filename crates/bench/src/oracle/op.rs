//! Operations on objects of the run, so that a sequence means the same on any file system.

use std::fmt;

use ordo_vfs::{
    Attr, Cookie, FileSystem, FileType, FsError, Ino, NewNode, RenameMode, SetAttr, XattrMode,
};

/// An inode of the run. 0 is the root; any other has the number of the step that created it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object(pub usize);

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A name, which is printed in a short form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub Vec<u8>);

impl fmt::Debug for Name {
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
pub enum Op {
    Lookup {
        dir: Object,
        name: Name,
    },
    Make {
        dir: Object,
        name: Name,
        file_type: FileType,
        permissions: u16,
        owner: u32,
        rdev: u64,
        target: Name,
    },
    Link {
        object: Object,
        dir: Object,
        name: Name,
    },
    Unlink {
        dir: Object,
        name: Name,
    },
    Rmdir {
        dir: Object,
        name: Name,
    },
    Rename {
        from_dir: Object,
        from: Name,
        to_dir: Object,
        to: Name,
        mode: RenameMode,
    },
    Open {
        object: Object,
    },
    Close {
        object: Object,
    },
    GetAttr {
        object: Object,
    },
    SetAttr {
        object: Object,
        set: SetAttr,
    },
    ReadLink {
        object: Object,
    },
    Read {
        object: Object,
        offset: u64,
        len: usize,
    },
    /// Writes `len` bytes that are generated from `fill`, or zeros where it is 0.
    Write {
        object: Object,
        offset: u64,
        len: usize,
        fill: u64,
    },
    /// Lists the whole directory.
    List {
        dir: Object,
    },
    /// Lists `count` entries, and keeps the cookie.
    ListFirst {
        dir: Object,
        count: usize,
    },
    /// Continues the listing of step `listing`: `count` entries more, or to the end.
    ListOn {
        listing: usize,
        count: Option<usize>,
    },
    Fsync {
        object: Object,
    },
    Sync,
    StatFs,
    GetXattr {
        object: Object,
        name: Name,
    },
    SetXattr {
        object: Object,
        name: Name,
        value: Name,
        mode: XattrMode,
    },
    ListXattrs {
        object: Object,
    },
    RemoveXattr {
        object: Object,
        name: Name,
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

/// Does `op` on `fs`. `ino` gives the inode of each object. The runner does listings with cookies, and
/// remounts.
pub(super) async fn apply<F: FileSystem>(
    fs: &F,
    op: &Op,
    ino: &dyn Fn(Object) -> Ino,
) -> Result<Outcome, FsError> {
    match op {
        Op::Lookup { dir, name } => fs.lookup(ino(*dir), &name.0).await.map(Outcome::Attr),
        Op::Make { dir, name, file_type, permissions, owner, rdev, target } => {
            let new = NewNode {
                file_type: *file_type,
                permissions: *permissions,
                uid: *owner,
                gid: *owner / 2,
                rdev: *rdev,
                target: &target.0,
            };
            fs.make(ino(*dir), &name.0, &new).await.map(Outcome::Attr)
        }
        Op::Link { object, dir, name } => {
            fs.link(ino(*object), ino(*dir), &name.0).await.map(Outcome::Attr)
        }
        Op::Unlink { dir, name } => nothing(fs.unlink(ino(*dir), &name.0).await),
        Op::Rmdir { dir, name } => nothing(fs.rmdir(ino(*dir), &name.0).await),
        Op::Rename { from_dir, from, to_dir, to, mode } => {
            nothing(fs.rename(ino(*from_dir), &from.0, ino(*to_dir), &to.0, *mode).await)
        }
        Op::Open { object } => nothing(fs.open(ino(*object)).await),
        Op::Close { object } => nothing(fs.close(ino(*object)).await),
        Op::GetAttr { object } => fs.getattr(ino(*object)).await.map(Outcome::Attr),
        Op::SetAttr { object, set } => fs.setattr(ino(*object), set).await.map(Outcome::Attr),
        Op::ReadLink { object } => fs.readlink(ino(*object)).await.map(Outcome::Bytes),
        Op::Read { object, offset, len } => {
            let mut buf = vec![0xee; *len];
            let n = fs.read(ino(*object), *offset, &mut buf).await?;
            buf.truncate(n);
            Ok(Outcome::Bytes(buf))
        }
        Op::Write { object, offset, len, fill } => {
            let data = filling(*fill, *len);
            fs.write(ino(*object), *offset, &data).await.map(Outcome::Count)
        }
        Op::List { dir } => list(fs, ino(*dir), Cookie::START, None).await.map(|(mut e, _)| {
            e.sort_by(|a, b| a.name.cmp(&b.name));
            Outcome::Entries(e)
        }),
        Op::Fsync { object } => nothing(fs.fsync(ino(*object)).await),
        Op::Sync => nothing(fs.sync().await),
        Op::StatFs => fs.statfs().await.map(|s| Outcome::Count(s.name_max as usize)),
        Op::GetXattr { object, name } => {
            fs.getxattr(ino(*object), &name.0).await.map(Outcome::Bytes)
        }
        Op::SetXattr { object, name, value, mode } => {
            nothing(fs.setxattr(ino(*object), &name.0, &value.0, *mode).await)
        }
        Op::ListXattrs { object } => fs.listxattr(ino(*object)).await.map(|mut names| {
            names.sort_unstable();
            Outcome::Names(names)
        }),
        Op::RemoveXattr { object, name } => nothing(fs.removexattr(ino(*object), &name.0).await),
        Op::ListFirst { .. } | Op::ListOn { .. } | Op::Remount => {
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

impl Op {
    /// The objects on which it works.
    pub(super) fn objects(&self) -> Vec<Object> {
        match self {
            Op::Lookup { dir, .. }
            | Op::Make { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::Rmdir { dir, .. }
            | Op::List { dir }
            | Op::ListFirst { dir, .. } => vec![*dir],
            Op::Link { object, dir, .. } => vec![*object, *dir],
            Op::Rename { from_dir, to_dir, .. } => vec![*from_dir, *to_dir],
            Op::Open { object }
            | Op::Close { object }
            | Op::GetAttr { object }
            | Op::SetAttr { object, .. }
            | Op::ReadLink { object }
            | Op::Read { object, .. }
            | Op::Write { object, .. }
            | Op::Fsync { object }
            | Op::GetXattr { object, .. }
            | Op::SetXattr { object, .. }
            | Op::ListXattrs { object }
            | Op::RemoveXattr { object, .. } => vec![*object],
            Op::ListOn { .. } | Op::Sync | Op::StatFs | Op::Remount => Vec::new(),
        }
    }

    /// The entries that it changes when it succeeds.
    pub(super) fn entries(&self) -> Vec<(Object, &Name)> {
        match self {
            Op::Make { dir, name, .. }
            | Op::Link { dir, name, .. }
            | Op::Unlink { dir, name }
            | Op::Rmdir { dir, name } => vec![(*dir, name)],
            Op::Rename { from_dir, from, to_dir, to, .. } => vec![(*from_dir, from), (*to_dir, to)],
            _ => Vec::new(),
        }
    }
}

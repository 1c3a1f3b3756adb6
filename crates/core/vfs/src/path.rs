//! Paths on any file system.
//!
//! A path is bytes with `/` between names; it starts at the root whether or not it begins with `/`.

use std::collections::VecDeque;
use std::fmt::Display;

use crate::{Attr, Errno, FileSystem, FileType, FsError, FsResult, Ino, NewNode, name};

/// The most symbolic links through which one path may lead.
const LINKS_MAX: usize = 40;

/// The names in `path`, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".")
}

/// The absolute form of `path`, without `.`, `..` and doubled `/`. Only the text counts; links are
/// not followed.
pub fn normalise(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for c in components(path) {
        if c == b".." {
            names.pop();
        } else {
            names.push(c);
        }
    }
    let mut out = Vec::with_capacity(path.len() + 1);
    for n in names {
        out.push(b'/');
        out.extend_from_slice(n);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// `path` as it is shown to a person ([`ordo_shown`]).
pub fn display(path: &[u8]) -> impl Display + use<> {
    ordo_shown::name(path)
}

/// The inode of `path`. Symbolic links are followed, the last one too.
///
/// # Errors
/// As [`FileSystem::lookup`], and [`Errno::Loop`] beyond 40 symbolic links; the detail names the
/// path.
pub async fn lookup<F: FileSystem>(fs: &F, path: &[u8]) -> FsResult<Attr> {
    resolve(fs, path, true).await.map_err(|e| at(path, e))
}

/// As [`lookup`], but a symbolic link as the last name is not followed.
///
/// # Errors
/// As [`lookup`].
pub async fn lookup_link<F: FileSystem>(fs: &F, path: &[u8]) -> FsResult<Attr> {
    resolve(fs, path, false).await.map_err(|e| at(path, e))
}

/// The directory that has the last name of `path`, and that name, which need not exist.
///
/// # Errors
/// As [`lookup`] for the directory; [`Errno::Invalid`] if the path has no last name, or if the last
/// name is `..`.
pub async fn parent<'p, F: FileSystem>(fs: &F, path: &'p [u8]) -> FsResult<(Ino, &'p [u8])> {
    let trimmed = path.trim_ascii_end_slashes();
    let split = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let (directory, last) = trimmed.split_at(split);
    name::check(last).map_err(|e| at(path, e))?;
    if name::is_dot(last) {
        return Err(at(path, Errno::Invalid.into()));
    }
    let directory = lookup(fs, directory).await?;
    if directory.file_type != FileType::Directory {
        return Err(at(path, Errno::NotDir.into()));
    }
    Ok((directory.ino, last))
}

/// Finds the directory `path`. It, and the directories on the path to it, are created if they are
/// missing.
///
/// # Errors
/// As [`FileSystem::create`]; [`Errno::NotDir`] if a part of the path is not a directory.
pub async fn make_directories<F: FileSystem>(
    fs: &F,
    path: &[u8],
    permissions: u16,
) -> FsResult<Attr> {
    let path = normalise(path);
    let mut current = fs.getattr(fs.root()).await?;
    for component in components(&path) {
        let found = match fs.lookup(current.ino, component).await {
            Err(e) if e.errno == Errno::NotFound => {
                fs.create(current.ino, component, &NewNode::directory(permissions)).await
            }
            other => other,
        };
        current = found.map_err(|e| at(&path, e))?;
    }
    if current.file_type != FileType::Directory {
        return Err(at(&path, Errno::NotDir.into()));
    }
    Ok(current)
}

async fn resolve<F: FileSystem>(fs: &F, path: &[u8], follow_last: bool) -> FsResult<Attr> {
    let mut rest: VecDeque<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
    let mut directory = fs.root();
    let mut current = fs.getattr(directory).await?;
    let mut links = 0;
    while let Some(component) = rest.pop_front() {
        if current.file_type != FileType::Directory {
            return Err(Errno::NotDir.into());
        }
        directory = current.ino;
        current = fs.lookup(directory, &component).await?;
        if current.file_type == FileType::Symlink && (follow_last || !rest.is_empty()) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::Loop.into());
            }
            let target = fs.readlink(current.ino).await?;
            for c in components(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(c.to_vec());
            }
            let start = if target.first() == Some(&b'/') { fs.root() } else { directory };
            current = fs.getattr(start).await?;
        }
    }
    Ok(current)
}

/// Adds the path to an error without a description.
pub fn at(path: &[u8], error: FsError) -> FsError {
    match error.detail {
        Some(_) => error,
        None => FsError::with_detail(error.errno, display(path)),
    }
}

/// Removes slashes from the end of a slice.
trait TrimSlashes {
    fn trim_ascii_end_slashes(&self) -> &Self;
}

impl TrimSlashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        let end = self.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
        &self[..end]
    }
}

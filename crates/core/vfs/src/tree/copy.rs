//! Copying a tree from one file system to another: into an image, out of it, or anywhere else.

use std::collections::BTreeMap;

use super::walk::{Visit, Walk, WalkEntry, WalkLimits, concerns_one_entry};
use crate::{
    Attr, Errno, FileSystem, FileType, FsError, FsResult, Ino, NewNode, Seek, SetAttr, SetTime,
    Timestamp, XattrMode, path,
};

/// Bytes that are read and written at a time. Runs of zeros this long can become holes.
const CHUNK: usize = 64 * 1024;
/// The unit in which holes are searched for, in bytes.
const HOLE: usize = 4096;
/// The most entries, and the most attributes, that are listed.
const LISTED_MAX: usize = 1000;

/// The treatment of a name that exists already. Directories are added to in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The copy ends with an error.
    #[default]
    Refuse,
    /// The old inode is replaced.
    Replace,
    /// The old inode is kept.
    Keep,
}

/// Options of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// The largest tree that is copied.
    pub limits: WalkLimits,
    /// Whether owners are set. Owners that may not be set are counted.
    pub owners: bool,
    /// Whether extended attributes are copied. Those that cannot be read or set are listed.
    pub xattrs: bool,
    /// Whether file flags are copied. Those that cannot be set are counted.
    pub flags: bool,
    /// Whether damage of the source, and failed reads, concern an entry only, which is skipped.
    pub past_damage: bool,
    /// The names that exist already.
    pub existing: Existing,
    /// The owner and the group that everything gets, instead of its own.
    pub owner: (Option<u32>, Option<u32>),
    /// Times of contents after this one become this one, and times of access those of the contents.
    pub newest: Option<Timestamp>,
}

impl CopyOptions {
    fn goes_on_after(&self, errno: Errno) -> bool {
        concerns_one_entry(errno)
            || self.past_damage && matches!(errno, Errno::Corrupt | Errno::Io | Errno::Stale)
    }
}

impl Default for CopyOptions {
    fn default() -> CopyOptions {
        CopyOptions {
            limits: WalkLimits::default(),
            owners: true,
            xattrs: true,
            flags: true,
            past_damage: false,
            existing: Existing::Refuse,
            owner: (None, None),
            newest: None,
        }
    }
}

/// The counts of a copy so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The number of names that were created, including further names of a file.
    pub entries: u64,
    /// The number of directories among these.
    pub directories: u64,
    /// Further names of files already copied among them.
    pub hard_links: u64,
    /// The number of bytes of contents, holes included.
    pub bytes: u64,
    /// The number of bytes of contents that were written, without holes.
    pub bytes_written: u64,
    /// Entries that could not be copied, with the reasons; at most 1,000.
    pub skipped: Vec<(Vec<u8>, FsError)>,
    /// The number of entries that could not be copied.
    pub skipped_count: u64,
    /// Extended attributes that the copy lacks, with the reasons; at most 1,000.
    pub lost_attributes: Vec<(LostAttribute, FsError)>,
    /// The number of extended attributes that the copy lacks.
    pub lost_attribute_count: u64,
    /// The number of entries whose owner or group could not be set.
    pub lost_owners: u64,
    /// The number of entries whose flags could not be set.
    pub lost_flags: u64,
}

/// An extended attribute that a copy lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostAttribute {
    /// The path of the entry, from the root of the copy; empty for the root itself.
    pub path: Vec<u8>,
    /// The attribute's name, with its name space.
    pub name: Vec<u8>,
}

impl Copied {
    fn skip(&mut self, path: &[u8], why: FsError) {
        self.skipped_count += 1;
        if self.skipped.len() < LISTED_MAX {
            self.skipped.push((path.to_vec(), why));
        }
    }

    fn lose_attribute(&mut self, path: &[u8], name: &[u8], why: FsError) {
        self.lost_attribute_count += 1;
        if self.lost_attributes.len() < LISTED_MAX {
            let lost = LostAttribute { path: path.to_vec(), name: name.to_vec() };
            self.lost_attributes.push((lost, why));
        }
    }
}

/// Copies everything below `from_dir` into `to_dir`, and the attributes of `from_dir`.
///
/// Types, modes, owners, times to the nanosecond, extended attributes, file flags, device numbers,
/// hard links and holes are kept. An entry that may not be read or created is skipped, and listed
/// in the result. So are attributes that the copy's file system cannot hold. Holes are skipped by
/// [`FileSystem::seek`], so a sparse file takes the time of its contents. `progress` is called
/// after every entry.
///
/// # Errors
/// The error of reading or writing, if it concerns more than a single entry, such as
/// [`Errno::NoSpace`]. The detail names the path.
pub async fn copy<F: FileSystem, G: FileSystem>(
    from: &F,
    from_dir: Ino,
    to: &G,
    to_dir: Ino,
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Copied),
) -> FsResult<Copied> {
    let mut copier = Copier {
        from,
        to,
        options,
        done: Copied::default(),
        linked: BTreeMap::new(),
        buffer: vec![0; CHUNK],
    };
    let mut walk = Walk::new(from, from_dir, options.limits).await?;
    let mut directories = vec![to_dir];
    loop {
        let visit = match walk.next().await {
            Ok(Some(visit)) => visit,
            Ok(None) => break,
            Err(e) if options.goes_on_after(e.errno) => {
                let what = e.detail.clone().unwrap_or_default();
                copier.done.skip(what.as_bytes(), e);
                continue;
            }
            Err(e) => return Err(e),
        };
        let into = *directories.last().expect("the root is never left");
        let result = match &visit {
            Visit::Enter(entry) => copier.enter(entry, into).await.map(|made| {
                if let Some(directory) = made {
                    directories.push(directory);
                }
            }),
            Visit::Leave(entry) => {
                directories.pop();
                copier.attributes(&entry.path, &entry.attr, into).await
            }
        };
        match result {
            Ok(()) => {}
            Err(e) if options.goes_on_after(e.errno) => {
                walk.skip_below();
                copier.done.skip(visit.path(), e);
            }
            Err(e) => return Err(path::at(visit.path(), e)),
        }
        progress(&copier.done);
    }
    let root = from.getattr(from_dir).await?;
    copier.attributes(b"", &root, to_dir).await?;
    Ok(copier.done)
}

/// Copies one file, or a directory with everything below it, to the name `name` in `to_dir`. An
/// inode with that name is replaced, except that a directory is added to an existing directory.
///
/// # Errors
/// As [`copy`]; [`Errno::IsDir`] and [`Errno::NotDir`] if only one of the two is a directory.
pub async fn copy_as<F: FileSystem, G: FileSystem>(
    (from, what): (&F, &Attr),
    (to, to_dir, name): (&G, Ino, &[u8]),
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Copied),
) -> FsResult<Copied> {
    let is_directory = what.file_type == FileType::Directory;
    let there = match to.lookup(to_dir, name).await {
        Ok(attr) => Some(attr),
        Err(e) if e.errno == Errno::NotFound => None,
        Err(e) => return Err(path::at(name, e)),
    };
    match there.map(|t| (t.file_type == FileType::Directory, t.ino)) {
        Some((true, _)) if !is_directory => return Err(path::at(name, Errno::IsDir.into())),
        Some((false, _)) if is_directory => return Err(path::at(name, Errno::NotDir.into())),
        Some((true, ino)) => return copy(from, what.ino, to, ino, options, progress).await,
        Some((false, _)) => to.unlink(to_dir, name).await.map_err(|e| path::at(name, e))?,
        None => {}
    }
    let mut copier = Copier {
        from,
        to,
        options,
        done: Copied::default(),
        linked: BTreeMap::new(),
        buffer: vec![0; CHUNK],
    };
    let entry = WalkEntry { path: name.to_vec(), attr: *what, parent: to_dir };
    let made = copier.enter(&entry, to_dir).await.map_err(|e| path::at(name, e))?;
    progress(&copier.done);
    let Some(directory) = made else { return Ok(copier.done) };
    let mut below = copy(from, what.ino, to, directory, options, progress).await?;
    below.entries += 1;
    below.directories += 1;
    Ok(below)
}

struct Copier<'a, F, G> {
    from: &'a F,
    to: &'a G,
    options: &'a CopyOptions,
    done: Copied,
    /// For each file with several names, its copy.
    linked: BTreeMap<Ino, Ino>,
    buffer: Vec<u8>,
}

impl<F: FileSystem, G: FileSystem> Copier<'_, F, G> {
    /// Copies one entry into `into`. Returns the new inode if the entry is a directory.
    async fn enter(&mut self, entry: &WalkEntry, into: Ino) -> FsResult<Option<Ino>> {
        let attr = &entry.attr;
        let is_directory = attr.file_type == FileType::Directory;
        if let Some(copy) = self.linked.get(&attr.ino).copied() {
            match (self.to.link(copy, into, entry.name()).await, self.options.existing) {
                (Err(e), Existing::Keep) if e.errno == Errno::Exists => return Ok(None),
                (Err(e), Existing::Replace) if e.errno == Errno::Exists => {
                    self.to.unlink(into, entry.name()).await?;
                    self.to.link(copy, into, entry.name()).await?;
                }
                (linked, _) => _ = linked?,
            }
            self.done.entries += 1;
            self.done.hard_links += 1;
            return Ok(None);
        }
        let target = match attr.file_type {
            FileType::Symlink => self.from.readlink(attr.ino).await?,
            _ => Vec::new(),
        };
        // A directory must be writable while it is filled, so it gets its own permissions last. A
        // link's cannot be changed later.
        let permissions = match attr.file_type {
            FileType::Directory => 0o700,
            FileType::Symlink => attr.permissions,
            _ => 0o600,
        };
        let new = NewNode {
            file_type: attr.file_type,
            permissions,
            uid: if self.options.owners { attr.uid } else { 0 },
            gid: if self.options.owners { attr.gid } else { 0 },
            rdev: attr.rdev,
            target: &target,
        };
        let Some(made) = self.create(into, entry.name(), new).await? else { return Ok(None) };
        if is_directory {
            self.done.entries += 1;
            self.done.directories += 1;
            return Ok(Some(made.ino));
        }
        if let Err(e) = self.fill(entry, made.ino).await {
            // A file that cannot be read is removed from the copy again.
            self.to.unlink(into, entry.name()).await?;
            return Err(e);
        }
        self.done.entries += 1;
        if attr.links > 1 {
            self.linked.insert(attr.ino, made.ino);
        }
        Ok(None)
    }

    /// Copies contents and attributes of an inode that is not a directory.
    async fn fill(&mut self, entry: &WalkEntry, to: Ino) -> FsResult<()> {
        if entry.attr.file_type == FileType::Regular {
            self.contents(&entry.attr, to).await?;
        }
        self.attributes(&entry.path, &entry.attr, to).await
    }

    /// Creates an inode, or takes the directory that is there; `None` if another inode is there and
    /// is kept.
    async fn create(&mut self, into: Ino, name: &[u8], new: NewNode<'_>) -> FsResult<Option<Attr>> {
        let error = match self.to.create(into, name, &new).await {
            Err(e) if e.errno == Errno::Exists => e,
            other => return other.map(Some),
        };
        let there = self.to.lookup(into, name).await?;
        let are_directories = [there.file_type, new.file_type].map(|t| t == FileType::Directory);
        match (are_directories, self.options.existing) {
            ([true, true], _) => Ok(Some(there)),
            (_, Existing::Refuse) => Err(error),
            (_, Existing::Keep) => Ok(None),
            ([true, false], Existing::Replace) => Err(Errno::IsDir.into()),
            (_, Existing::Replace) => {
                self.to.unlink(into, name).await?;
                self.to.create(into, name, &new).await.map(Some)
            }
        }
    }

    async fn contents(&mut self, attr: &Attr, to: Ino) -> FsResult<()> {
        let sparse = attr.blocks.saturating_mul(512) < attr.size;
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.contents_through(attr, to, sparse, &mut buffer).await;
        self.buffer = buffer;
        result
    }

    async fn contents_through(
        &mut self,
        attr: &Attr,
        to: Ino,
        sparse: bool,
        buffer: &mut [u8],
    ) -> FsResult<()> {
        // A file that has all of its blocks has no holes to seek.
        let (mut at, mut end) = (0, if sparse { 0 } else { u64::MAX });
        loop {
            if at >= end {
                match self.next_data(attr.ino, at).await? {
                    Some(data) => (at, end) = data,
                    None => break,
                }
            }
            let len = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
            let n = self.from.read(attr.ino, at, &mut buffer[..len]).await?;
            if n == 0 {
                break;
            }
            for run in runs(&buffer[..n], sparse) {
                let to_byte = at + run.start as u64;
                write_all(self.to, to, to_byte, &buffer[run.clone()]).await?;
                self.done.bytes_written += run.len() as u64;
            }
            at += n as u64;
        }
        if sparse {
            at = self.from.getattr(attr.ino).await?.size;
            let size = Some(at);
            self.to.setattr(to, &SetAttr { size, ..SetAttr::default() }).await?;
        }
        self.done.bytes += at;
        Ok(())
    }

    /// The next range of data from `at` on; `None` if only a hole follows.
    async fn next_data(&self, ino: Ino, at: u64) -> FsResult<Option<(u64, u64)>> {
        let start = match self.from.seek(ino, at, Seek::Data).await {
            Err(e) if e.errno == Errno::NoAddress => return Ok(None),
            // Without an answer everything is data.
            Err(e) if matches!(e.errno, Errno::NotSupported | Errno::Invalid) => {
                return Ok(Some((at, u64::MAX)));
            }
            found => found?,
        };
        let end = self.from.seek(ino, start, Seek::Hole).await?;
        Ok((end > start).then_some((start, end)))
    }

    /// Copies owner, mode, extended attributes, times and flags, in an order in which no step
    /// undoes an earlier one.
    async fn attributes(&mut self, path: &[u8], attr: &Attr, to: Ino) -> FsResult<()> {
        if self.options.owners {
            let (uid, gid) = self.options.owner;
            let (uid, gid) = (Some(uid.unwrap_or(attr.uid)), Some(gid.unwrap_or(attr.gid)));
            let set = SetAttr { uid, gid, ..SetAttr::default() };
            self.done.lost_owners += u64::from(!is_set(self.to.setattr(to, &set).await)?);
        }
        if attr.file_type != FileType::Symlink {
            let permissions = Some(attr.permissions);
            self.to.setattr(to, &SetAttr { permissions, ..SetAttr::default() }).await?;
        }
        if self.options.xattrs {
            self.xattrs(path, attr.ino, to).await?;
        }
        let (atime, mtime) = match self.options.newest {
            None => (attr.atime, attr.mtime),
            Some(newest) => (attr.mtime.min(newest), attr.mtime.min(newest)),
        };
        let times = SetAttr {
            atime: Some(SetTime::To(atime)),
            mtime: Some(SetTime::To(mtime)),
            ..SetAttr::default()
        };
        self.to.setattr(to, &times).await?;
        if self.options.flags && attr.flags != 0 {
            let flags = SetAttr { flags: Some(attr.flags), ..SetAttr::default() };
            self.done.lost_flags += u64::from(!is_set(self.to.setattr(to, &flags).await)?);
        }
        Ok(())
    }

    async fn xattrs(&mut self, path: &[u8], from: Ino, to: Ino) -> FsResult<()> {
        let names = match self.from.listxattr(from).await {
            Err(e) if matches!(e.errno, Errno::NotSupported | Errno::NotPermitted) => return Ok(()),
            other => other?,
        };
        for name in names {
            let value = match self.from.getxattr(from, &name).await {
                // It was removed meanwhile.
                Err(e) if e.errno == Errno::NoAttribute => continue,
                Err(e) if concerns_one_entry(e.errno) => {
                    self.done.lose_attribute(path, &name, e);
                    continue;
                }
                other => other?,
            };
            match self.to.setxattr(to, &name, &value, XattrMode::Set).await {
                // The space is that of an inode's attributes. If the file system is full, the next
                // write says so.
                Err(e) if is_refused_attribute(e.errno) => {
                    self.done.lose_attribute(path, &name, e);
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// Whether an attribute was set; false if it may not be.
fn is_set(result: FsResult<Attr>) -> FsResult<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.errno, Errno::NotPermitted | Errno::NotSupported) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether an error is about an extended attribute that a file system cannot hold.
fn is_refused_attribute(errno: Errno) -> bool {
    concerns_one_entry(errno) || matches!(errno, Errno::NoSpace | Errno::TooBig | Errno::Range)
}

/// Writes all of `data`, in as many calls as necessary.
///
/// # Errors
/// As [`FileSystem::write`].
pub(super) async fn write_all<F: FileSystem>(
    fs: &F,
    ino: Ino,
    offset: u64,
    data: &[u8],
) -> FsResult<()> {
    let mut done = 0;
    while done < data.len() {
        let n = fs.write(ino, offset + done as u64, &data[done..]).await?;
        if n == 0 {
            return Err(Errno::NoSpace.into());
        }
        done += n;
    }
    Ok(())
}

/// The ranges of `data` that are written. If `sparse`, whole units of zeros are left out.
fn runs(data: &[u8], sparse: bool) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, unit) in data.chunks(HOLE).enumerate() {
        if sparse && unit.iter().all(|b| *b == 0) {
            continue;
        }
        let range = i * HOLE..i * HOLE + unit.len();
        match runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_holes_only_where_the_source_has_them() {
        let mut data = vec![0; 5 * HOLE];
        data[HOLE] = 1;
        data[2 * HOLE] = 1;
        data[5 * HOLE - 1] = 1;
        assert_eq!(runs(&data, true), [HOLE..3 * HOLE, 4 * HOLE..5 * HOLE]);
        assert_eq!(runs(&data, false).len(), 1);
    }
}

//! The mix of a program's operations on files: how many there are of each kind, and how many bytes
//! they move. It is counted in the system calls of a real program ([`Mix::of_calls`]), and in the
//! operations of a workload ([`Counting`]).
//!
//! Calls that fail, positions, names that are only looked up, and reads at the end of a file are
//! left out. A new file that is opened counts as created, and not as opened. Calls that read count
//! as one operation if they belong together, and so do those that write ([`JoinedCalls`]); another
//! operation on the file begins a new one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use ordo_trace::strace::Syscall;
use ordo_vfs::{Attr, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOperation {
    /// A new file.
    Create,
    /// A file that exists is opened.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file's contents are made durable: fsync, fdatasync.
    Sync,
    /// A file is cut or its size is set.
    Truncate,
    /// A name of a file is removed.
    Remove,
    /// A name is changed.
    Rename,
    /// A second name, or a symbolic link.
    Link,
    /// A new directory.
    MakeDirectory,
    /// A directory is removed.
    RemoveDirectory,
}

impl FileOperation {
    /// The name in recordings and tables.
    pub const fn key(self) -> &'static str {
        match self {
            FileOperation::Create => "create",
            FileOperation::Open => "open",
            FileOperation::Read => "read",
            FileOperation::Write => "write",
            FileOperation::Sync => "sync",
            FileOperation::Truncate => "truncate",
            FileOperation::Remove => "remove",
            FileOperation::Rename => "rename",
            FileOperation::Link => "link",
            FileOperation::MakeDirectory => "make-directory",
            FileOperation::RemoveDirectory => "remove-directory",
        }
    }
}

/// The calls that count as one read, or as one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinedCalls {
    /// Calls of one file of which each goes on where the last one ended: for programs that read and
    /// write at random.
    #[default]
    Ranges,
    /// All calls of a file until something else is done to it, wherever they read and write: for
    /// programs that use whole files, and for linkers, which jump in them.
    Files,
}

/// Counts of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// The number of operations of each kind.
    pub operations: BTreeMap<FileOperation, u64>,
    /// The number of bytes read.
    pub bytes_read: u64,
    /// The number of bytes written.
    pub bytes_written: u64,
}

/// The reads and writes of a file since something else was done to it.
#[derive(Clone, Copy, Default)]
struct FileRun {
    was_read: bool,
    was_written: bool,
    /// The last one, and where it ended.
    last: Option<(FileOperation, Option<u64>)>,
}

struct Runs<K> {
    joined: JoinedCalls,
    files: FxHashMap<K, FileRun>,
}

impl<K: Eq + Hash> Runs<K> {
    fn new(joined: JoinedCalls) -> Runs<K> {
        Runs { joined, files: FxHashMap::default() }
    }

    /// Whether bytes belong to an operation that was counted.
    fn goes_on(&mut self, file: K, operation: FileOperation, at: Option<u64>, len: u64) -> bool {
        let run = self.files.entry(file).or_default();
        let before = run.last.replace((operation, at.map(|at| at + len)));
        let seen =
            if operation == FileOperation::Read { &mut run.was_read } else { &mut run.was_written };
        let was_seen = std::mem::replace(seen, true);
        match self.joined {
            JoinedCalls::Files => was_seen,
            JoinedCalls::Ranges => at.is_some() && before == Some((operation, at)),
        }
    }
}

impl Mix {
    fn add(&mut self, operation: FileOperation) {
        *self.operations.entry(operation).or_default() += 1;
    }

    /// Counts bytes; `goes_on` if they belong to the operation before.
    fn add_bytes(&mut self, operation: FileOperation, bytes: u64, goes_on: bool) {
        match operation {
            FileOperation::Read => self.bytes_read += bytes,
            _ => self.bytes_written += bytes,
        }
        if !goes_on {
            self.add(operation);
        }
    }

    /// The number of operations of a kind.
    pub fn count(&self, operation: FileOperation) -> u64 {
        self.operations.get(&operation).copied().unwrap_or(0)
    }

    /// The number of all operations.
    pub fn total(&self) -> u64 {
        self.operations.values().sum()
    }

    /// How far two mixes are apart: half the sum of the differences between the shares of each
    /// kind. 0 is the same mix, 1 means that they have no kind in common.
    pub fn distance(&self, other: &Mix) -> f64 {
        let (ours, theirs) = (self.total().max(1) as f64, other.total().max(1) as f64);
        let kinds: BTreeSet<FileOperation> =
            self.operations.keys().chain(other.operations.keys()).copied().collect();
        let share = |of: FileOperation| {
            (self.count(of) as f64 / ours - other.count(of) as f64 / theirs).abs()
        };
        kinds.into_iter().map(share).sum::<f64>() / 2.0
    }

    /// The operations that change a file system or make it durable.
    #[must_use]
    pub fn changes(&self) -> Mix {
        let mut mix = self.clone();
        mix.operations.retain(|of, _| !matches!(of, FileOperation::Open | FileOperation::Read));
        mix
    }

    /// Counts system calls, in order of time. A file that is opened with `O_CREAT` counts as new
    /// unless an earlier call had it.
    pub fn of_calls(calls: &[Syscall], joined: JoinedCalls) -> Mix {
        let (mix, known) = Default::default();
        let mut reader = Reader { mix, known, runs: Runs::new(joined) };
        for call in calls.iter().filter(|call| call.error.is_none()) {
            if let Some(file) = call.file.as_deref() {
                reader.count(call, file);
            }
        }
        reader.mix
    }
}

/// Calls that are counted.
struct Reader<'c> {
    mix: Mix,
    /// The files that exist.
    known: BTreeSet<&'c str>,
    runs: Runs<&'c str>,
}

impl<'c> Reader<'c> {
    fn count(&mut self, call: &'c Syscall, file: &'c str) {
        let is_write = call.name.contains("write") || call.is_copy();
        if call.len > 0 && (is_write || call.name.contains("read")) {
            return self.count_bytes(call, file, is_write);
        }
        let Some(operation) = self.operation(call, file) else { return };
        self.mix.add(operation);
        self.runs.files.remove(file);
        if operation == FileOperation::Open && call.flags.contains("O_TRUNC") {
            self.mix.add(FileOperation::Truncate);
        }
    }

    fn count_bytes(&mut self, call: &'c Syscall, file: &'c str, is_write: bool) {
        let operation = if is_write { FileOperation::Write } else { FileOperation::Read };
        let goes_on = self.runs.goes_on(file, operation, call.offset, call.len);
        self.mix.add_bytes(operation, call.len, goes_on);
        if let Some(source) = call.other.as_deref().filter(|_| call.is_copy()) {
            // The call shows no place in its source.
            let goes_on = self.runs.goes_on(source, FileOperation::Read, None, call.len);
            self.mix.add_bytes(FileOperation::Read, call.len, goes_on);
        }
    }

    /// The kind of a call that moves no bytes.
    fn operation(&mut self, call: &'c Syscall, file: &'c str) -> Option<FileOperation> {
        Some(match &*call.name {
            "open" | "openat" | "creat" if call.flags.contains("O_DIRECTORY") => return None,
            "open" | "openat" | "creat" => {
                let is_new = self.known.insert(file) && call.flags.contains("O_CREAT");
                if is_new { FileOperation::Create } else { FileOperation::Open }
            }
            "fsync" | "fdatasync" => FileOperation::Sync,
            "ftruncate" | "truncate" | "fallocate" => FileOperation::Truncate,
            "unlinkat" if call.flags.contains("AT_REMOVEDIR") => FileOperation::RemoveDirectory,
            "unlink" | "unlinkat" => {
                self.known.remove(file);
                FileOperation::Remove
            }
            "rmdir" => FileOperation::RemoveDirectory,
            "mkdir" | "mkdirat" => FileOperation::MakeDirectory,
            "link" | "linkat" | "symlink" | "symlinkat" => {
                self.known.extend(call.other.as_deref());
                FileOperation::Link
            }
            "rename" | "renameat" | "renameat2" => {
                self.known.remove(file);
                self.known.extend(call.other.as_deref());
                FileOperation::Rename
            }
            _ => return None,
        })
    }
}

/// A file system that counts the operations on it, while it is switched on.
pub struct Counting<F> {
    fs: F,
    mix: RefCell<Mix>,
    runs: RefCell<Runs<u64>>,
    /// New files that were not opened yet.
    new: RefCell<BTreeSet<u64>>,
    /// Whether operations are counted.
    pub is_on: Cell<bool>,
}

impl<F: FileSystem> Counting<F> {
    /// Counts the operations on `fs`.
    pub fn new(fs: F, joined: JoinedCalls) -> Counting<F> {
        let runs = RefCell::new(Runs::new(joined));
        let (mix, new) = Default::default();
        Counting { fs, mix, runs, new, is_on: Cell::new(true) }
    }

    /// The operations so far.
    pub fn mix(&self) -> Mix {
        self.mix.borrow().clone()
    }

    /// Counts an operation on a file, which ends a run of reads or writes.
    fn add(&self, operation: FileOperation, file: Option<Ino>) {
        file.map(|file| self.runs.borrow_mut().files.remove(&file.0));
        if self.is_on.get() {
            self.mix.borrow_mut().add(operation);
        }
    }

    fn add_bytes(&self, operation: FileOperation, file: Ino, at: u64, n: usize) {
        if n == 0 {
            return;
        }
        let goes_on = self.runs.borrow_mut().goes_on(file.0, operation, Some(at), n as u64);
        if self.is_on.get() {
            self.mix.borrow_mut().add_bytes(operation, n as u64, goes_on);
        }
    }
}

impl<F: FileSystem> FileSystem for Counting<F> {
    ordo_vfs::delegate! { this => this.fs; root, lookup, close, getattr, tmpfile, readlink, seek, extents, readdir, statfs, sync, getxattr,
    setxattr, listxattr, removexattr }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.fs.open(ino).await?;
        if !self.new.borrow_mut().remove(&ino.0) {
            self.add(FileOperation::Open, Some(ino));
        }
        Ok(())
    }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let found = self.fs.setattr(ino, set).await?;
        if set.size.is_some() {
            self.add(FileOperation::Truncate, Some(ino));
        }
        Ok(found)
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        let made = self.fs.create(dir, name, new).await?;
        match made.file_type {
            FileType::Directory => self.add(FileOperation::MakeDirectory, None),
            FileType::Symlink => self.add(FileOperation::Link, None),
            _ => {
                self.new.borrow_mut().insert(made.ino.0);
                self.add(FileOperation::Create, Some(made.ino));
            }
        }
        Ok(made)
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let found = self.fs.link(ino, dir, name).await?;
        self.add(FileOperation::Link, None);
        Ok(found)
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.unlink(dir, name).await?;
        self.add(FileOperation::Remove, None);
        Ok(())
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.rmdir(dir, name).await?;
        self.add(FileOperation::RemoveDirectory, None);
        Ok(())
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        self.fs.rename(from_dir, from, to_dir, to, mode).await?;
        self.add(FileOperation::Rename, None);
        Ok(())
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let n = self.fs.read(ino, offset, buf).await?;
        self.add_bytes(FileOperation::Read, ino, offset, n);
        Ok(n)
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let n = self.fs.write(ino, offset, data).await?;
        self.add_bytes(FileOperation::Write, ino, offset, n);
        Ok(n)
    }

    async fn allocate(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        self.fs.allocate(ino, offset, len).await?;
        self.add(FileOperation::Truncate, Some(ino));
        Ok(())
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        self.fs.punch_hole(ino, offset, len).await?;
        self.add(FileOperation::Truncate, Some(ino));
        Ok(())
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.fs.fsync(ino).await?;
        self.add(FileOperation::Sync, Some(ino));
        Ok(())
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fs.fdatasync(ino).await?;
        self.add(FileOperation::Sync, Some(ino));
        Ok(())
    }
}

//! The recorder of calls: a file system that notes in a [`History`] what is done to it.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_vfs::{
    Attr, Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, SetTime,
    XattrMode,
};

use crate::format::OwnNames;
use crate::history::{ChangeAim, History, Object, ObjectId, Purpose, RecorderState, words};
use crate::tree::Tree;

/// The recorder of the calls to a file system.
#[derive(Clone)]
pub struct HistoryRecorder(Rc<RefCell<RecorderState>>);

impl HistoryRecorder {
    /// A recorder for an empty file system with this root. `clock` returns the number of events of
    /// the run so far.
    pub fn new(root: Ino, clock: impl Fn() -> usize + 'static) -> HistoryRecorder {
        HistoryRecorder(RecorderState::new(root, clock))
    }

    /// Notes everything that exists on disks that a crash has left, when a run begins.
    ///
    /// # Errors
    /// The file system cannot be read.
    pub async fn find<F: FileSystem>(&self, fs: &F, own_names: OwnNames) -> FsResult<()> {
        let tree = Tree::read(fs, own_names).await?;
        self.0.borrow_mut().find(&tree);
        Ok(())
    }

    /// The file system for one client.
    pub fn watch<F>(&self, fs: F, client: usize) -> RecordingFs<F> {
        RecordingFs { fs, recorder: self.0.clone(), client }
    }

    /// Notes an unmount, which makes everything durable but is no call of the file system.
    ///
    /// # Errors
    /// The error of `doing`.
    pub fn unmount<T>(&self, doing: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let call = self.0.borrow_mut().begin(0, Purpose::Sync, "unmount".into());
        let result = doing();
        self.0.borrow_mut().end(call, result.is_ok());
        result
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.0.borrow().history.clone()
    }
}

/// A file system whose calls are recorded.
#[derive(Clone)]
pub struct RecordingFs<F> {
    pub(crate) fs: F,
    pub(crate) recorder: Rc<RefCell<RecorderState>>,
    pub(crate) client: usize,
}

impl<F> RecordingFs<F> {
    fn begin(&self, purpose: Purpose, text: String) -> usize {
        self.recorder.borrow_mut().begin(self.client, purpose, text)
    }

    fn title(&self, ino: Ino) -> String {
        let recorder = self.recorder.borrow();
        let known = recorder.object(ino).map(|o| recorder.history.objects[o].title());
        known.unwrap_or_else(|| format!(" (inode {ino})"))
    }

    /// Notes that a call reads from an inode.
    fn is_read(&self, ino: Ino) {
        let mut recorder = self.recorder.borrow_mut();
        if let Some(object) = recorder.object(ino) {
            recorder.history.objects[object].is_read();
        }
    }

    /// Notes the end of a call, and the call's effect if it succeeded.
    fn end<T>(&self, call: usize, result: &FsResult<T>, did: impl FnOnce(&mut RecorderState, &T)) {
        let mut recorder = self.recorder.borrow_mut();
        if let Ok(value) = result {
            did(&mut recorder, value);
        }
        recorder.end(call, result.is_ok());
    }

    /// Makes a change of an object's contents, and notes it. After a success, `did` notes the new
    /// contents, and returns whether the change is complete. After a failure in the middle, the new
    /// contents may be there or not.
    async fn change<T>(
        &self,
        ino: Ino,
        (purpose, aim): (Purpose, ChangeAim),
        text: String,
        doing: impl Future<Output = FsResult<T>>,
        did: impl FnOnce(&mut Object, usize, &T) -> bool,
    ) -> FsResult<T> {
        let call = self.begin(purpose, text);
        let object = self.recorder.borrow().object(ino);
        if let Some(object) = object {
            self.recorder.borrow_mut().begin_change(object, call, aim);
        }
        let result = doing.await;
        // A call that is refused changes nothing. One without space, or with a failed disk, may
        // have had an effect for a while.
        let in_midst = |errno| matches!(errno, Errno::NoSpace | Errno::Io | Errno::ReadOnly);
        let mut whole = result.as_ref().is_err_and(|e| !in_midst(e.errno));
        self.end(call, &result, |recorder, value| {
            if let Some(object) = object {
                whole = did(&mut recorder.history.objects[object], call, value);
            }
        });
        if let Some(object) = object {
            self.recorder.borrow_mut().end_change(object, call, whole);
        }
        result
    }

    /// Marks names as indeterminate after a call that failed with the disk.
    fn doubt<T>(&self, result: &FsResult<T>, names: &[(Option<ObjectId>, &[u8])]) {
        let by_disk = |e: &ordo_vfs::FsError| matches!(e.errno, Errno::Io | Errno::ReadOnly);
        if result.as_ref().is_err_and(by_disk) {
            let indeterminate = &mut self.recorder.borrow_mut().history.indeterminate_names;
            indeterminate.extend(names.iter().filter_map(|(dir, n)| Some(((*dir)?, n.to_vec()))));
        }
    }
}

impl<F: FileSystem> FileSystem for RecordingFs<F> {
    ordo_vfs::delegate! { this => this.fs; root, lookup, open, close, getattr, seek, extents, readdir, statfs,
    getxattr, listxattr }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let is_inode = SetAttr { size: None, ..*set } != SetAttr::default();
        if set.size.is_none() && !is_inode {
            return self.fs.setattr(ino, set).await;
        }
        let text = format!("set {} of {}", changes(set), self.title(ino));
        let what = match (is_inode, set.size) {
            (true, None) => (Purpose::InodeMetadata, ChangeAim::Metadata),
            (true, Some(_)) => (Purpose::InodeMetadata, ChangeAim::Size),
            (false, _) => (Purpose::Contents, ChangeAim::Size),
        };
        self.change(ino, what, text, self.fs.setattr(ino, set), |object, call, attr| {
            if let Some(size) = set.size {
                object.cut(call, size);
            }
            if is_inode {
                object.turn(call, |metadata| {
                    metadata.take(attr);
                    if attr.file_type != FileType::Directory {
                        metadata.atime = set.atime.map_or(metadata.atime, |_| Some(attr.atime));
                        metadata.mtime = set.mtime.map_or(metadata.mtime, |_| Some(attr.mtime));
                    }
                });
            }
            true
        })
        .await
    }

    async fn read(&self, ino: Ino, offset: u64, data: &mut [u8]) -> FsResult<usize> {
        self.is_read(ino);
        self.fs.read(ino, offset, data).await
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.is_read(ino);
        self.fs.readlink(ino).await
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        let kind = if new.file_type == FileType::Directory { "mkdir" } else { "make" };
        let text = format!("{kind} {} in {}", words(name), self.title(dir));
        let call = self.begin(Purpose::Change, text);
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.create(dir, name, new).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, attr| {
            let object = recorder.add(call, attr, name);
            if new.file_type == FileType::Symlink {
                recorder.history.objects[object].write(call, 0, new.target);
            }
            if let Some(parent) = parent {
                recorder.name(call, parent, name, Some(object));
            }
        });
        result
    }

    async fn tmpfile(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Attr> {
        let call = self
            .begin(Purpose::Change, format!("create a file without a name in {}", self.title(dir)));
        let result = self.fs.tmpfile(dir, new).await;
        self.end(call, &result, |recorder, attr| {
            recorder.add(call, attr, b"(no name)");
        });
        result
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let text = format!("link {} as {} in {}", self.title(ino), words(name), self.title(dir));
        let call = self.begin(Purpose::Change, text);
        let (object, parent) =
            (self.recorder.borrow().object(ino), self.recorder.borrow().object(dir));
        let result = self.fs.link(ino, dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, _| {
            if let (Some(object), Some(parent)) = (object, parent) {
                recorder.name(call, parent, name, Some(object));
            }
        });
        result
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let call =
            self.begin(Purpose::Change, format!("unlink {} in {}", words(name), self.title(dir)));
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.unlink(dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, ()| {
            if let Some(parent) = parent {
                recorder.name(call, parent, name, None);
            }
        });
        result
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let call =
            self.begin(Purpose::Change, format!("rmdir {} in {}", words(name), self.title(dir)));
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.rmdir(dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, ()| {
            if let Some(parent) = parent {
                recorder.name(call, parent, name, None);
            }
        });
        result
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        let text = format!(
            "rename {} in {} to {} in {}",
            words(from),
            self.title(from_dir),
            words(to),
            self.title(to_dir)
        );
        let call = self.begin(Purpose::Change, text);
        let (a, b) =
            (self.recorder.borrow().object(from_dir), self.recorder.borrow().object(to_dir));
        if let (RenameMode::Exchange, Some(a)) = (mode, a) {
            let mut recorder = self.recorder.borrow_mut();
            let moved = recorder.stands_for(a, from);
            recorder.history.exchanges.extend(moved.map(|object| (call, a, object)));
        }
        let result = self.fs.rename(from_dir, from, to_dir, to, mode).await;
        self.doubt(&result, &[(a, from), (b, to)]);
        self.end(call, &result, |recorder, ()| {
            let (Some(a), Some(b)) = (a, b) else { return };
            let (moved, other) = (recorder.stands_for(a, from), recorder.stands_for(b, to));
            // Both names belong to one file, so the rename does nothing.
            if moved == other {
                recorder.history.calls[call].purpose = Purpose::Nothing;
                return;
            }
            let back = if mode == RenameMode::Exchange { other } else { None };
            recorder.name(call, a, from, back);
            recorder.name(call, b, to, moved);
        });
        result
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let len = data.len();
        let text = format!("write {len} bytes at {offset} of {}", self.title(ino));
        // A write without space may have had an effect for a while.
        self.change(
            ino,
            contents(offset, len as u64),
            text,
            self.fs.write(ino, offset, data),
            |object, call, written| {
                object.write(call, offset, &data[..*written]);
                *written == len
            },
        )
        .await
    }

    async fn allocate(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let text = format!("allocate {len} bytes at {offset} of {}", self.title(ino));
        let doing = self.fs.allocate(ino, offset, len);
        self.change(ino, contents(offset, len), text, doing, |object, call, ()| {
            object.allocate(call, offset, len);
            true
        })
        .await
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let text = format!("punch a hole of {len} bytes at {offset} of {}", self.title(ino));
        let doing = self.fs.punch_hole(ino, offset, len);
        self.change(ino, contents(offset, len), text, doing, |object, call, ()| {
            let len = len.min(object.size().saturating_sub(offset)) as usize;
            if len > 0 {
                object.write(call, offset, &vec![0; len]);
            }
            true
        })
        .await
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        let object = self.recorder.borrow().object(ino);
        let purpose = object.map_or(Purpose::Nothing, Purpose::Fsync);
        let call = self.begin(purpose, format!("fsync {}", self.title(ino)));
        let result = self.fs.fsync(ino).await;
        self.end(call, &result, |_, ()| ());
        result
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        let object = self.recorder.borrow().object(ino);
        let purpose = object.map_or(Purpose::Nothing, Purpose::Fdatasync);
        let call = self.begin(purpose, format!("fdatasync {}", self.title(ino)));
        let result = self.fs.fdatasync(ino).await;
        self.end(call, &result, |_, ()| ());
        result
    }

    async fn sync(&self) -> FsResult<()> {
        let call = self.begin(Purpose::Sync, "sync".into());
        let result = self.fs.sync().await;
        self.end(call, &result, |_, ()| ());
        result
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let len = value.len();
        let text = format!("set {} of {} to {len} bytes", words(name), self.title(ino));
        let doing = self.fs.setxattr(ino, name, value, mode);
        self.change(ino, METADATA, text, doing, |object, call, ()| {
            object.turn(call, |n| drop(n.attributes.insert(name.to_vec(), value.to_vec())));
            true
        })
        .await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let text = format!("remove {} of {}", words(name), self.title(ino));
        self.change(ino, METADATA, text, self.fs.removexattr(ino, name), |object, call, ()| {
            object.turn(call, |metadata| drop(metadata.attributes.remove(name)));
            true
        })
        .await
    }
}

/// A change of metadata.
const METADATA: (Purpose, ChangeAim) = (Purpose::InodeMetadata, ChangeAim::Metadata);

/// A change of so many bytes.
fn contents(offset: u64, len: u64) -> (Purpose, ChangeAim) {
    (Purpose::Contents, ChangeAim::Bytes(offset..offset.saturating_add(len)))
}

/// The changes of a call, in words.
fn changes(set: &SetAttr) -> String {
    let SetAttr { permissions, uid, gid, size, flags, atime, mtime, birthtime } = *set;
    let words = |what: &str, to: Option<String>| to.map(|to| format!("{what} {to}"));
    let time = |what, to: Option<SetTime>| {
        let to = to.map(|to| match to {
            SetTime::Now => "now".into(),
            SetTime::To(to) => format!("{}.{:09}", to.seconds, to.nanos),
        });
        words(what, to)
    };
    let all = [
        words("size", size.map(|s| s.to_string())),
        words("permissions", permissions.map(|p| format!("{p:o}"))),
        words("owner", uid.map(|u| u.to_string())),
        words("group", gid.map(|g| g.to_string())),
        words("flags", flags.map(|f| format!("{f:#x}"))),
        time("atime", atime),
        time("mtime", mtime),
        time("birthtime", birthtime.map(SetTime::To)),
    ];
    all.into_iter().flatten().collect::<Vec<String>>().join(" and ")
}

/// Notes the unmount of a file system, which makes everything durable.
pub(crate) async fn noted_unmount<F>(
    watched: &RecordingFs<F>,
    unmount: impl Future<Output = FsResult<()>>,
) -> FsResult<()> {
    let call = watched.begin(Purpose::Sync, "unmount".into());
    let result = unmount.await;
    watched.end(call, &result, |_, ()| ());
    result
}

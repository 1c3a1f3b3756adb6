//! The files and names of a program as its calls leave them, and the changes that no call has made
//! durable.

use std::collections::{BTreeMap, BTreeSet};

use ordo_trace::strace::{RING_CALL, RING_SEEN, Syscall};

/// A range of bytes: first byte, end.
pub(super) type Span = (u64, u64);

/// The unit in which a file system writes contents.
const BLOCK: u64 = 4096;

/// The way in which a part of a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Overwritten,
    Appended,
    /// The file became shorter.
    Cut,
    /// Mode, owner or attributes.
    Described,
    /// By a request of a ring, which says no place.
    Ring,
}

/// A change that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub span: Span,
    pub call: usize,
    pub way: Way,
}

/// A shared mapping through which a file may be written.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub span: Span,
    pub call: usize,
    /// The parts that were synced after it was made.
    pub synced: Vec<Span>,
    /// An msync of it that did not wait.
    pub asked: Option<usize>,
}

/// An object of the file system.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    pub size: u64,
    /// The size when it was last durable; `None` if it never was.
    pub durable: Option<u64>,
    pub changes: Vec<Change>,
    /// The call that made it shorter since it was durable.
    pub cut: Option<usize>,
    pub ranged: Option<usize>,
    /// A sync of a file that the program never wrote, after the last change of this one.
    pub other_sync: Option<usize>,
    /// A sync that failed, and the parts that it lost, as far as they were not written again.
    pub failed: Option<usize>,
    lost: Vec<Span>,
    pub maps: Vec<Mapped>,
    /// Whether the places of writes are known.
    pub is_exact: bool,
    pub is_dir: bool,
    was_written: bool,
    /// The last sync that returned.
    pub synced: Option<usize>,
    /// The last call about it that may have changed it.
    pub touched: Option<usize>,
}

/// The part of `all` outside of `of`.
fn without(all: &[Span], of: Span) -> Vec<Span> {
    let parts = |span: &Span| [(span.0, span.1.min(of.0)), (span.0.max(of.1), span.1)];
    all.iter().flat_map(parts).filter(|(from, to)| from < to).collect()
}

impl Object {
    /// Makes everything durable.
    fn clean(&mut self, n: usize) {
        self.clean_span((0, u64::MAX), n);
        self.changes.clear();
        self.durable = Some(self.size);
        (self.cut, self.ranged, self.other_sync) = (None, None, None);
        if self.lost.is_empty() {
            self.failed = None;
        }
    }

    /// Makes a part durable.
    fn clean_span(&mut self, span: Span, n: usize) {
        let changes = std::mem::take(&mut self.changes);
        let rest = |change: Change| {
            without(&[change.span], span).into_iter().map(move |span| Change { span, ..change })
        };
        self.changes = changes.into_iter().flat_map(rest).collect();
        for map in &mut self.maps {
            map.synced.push(span);
        }
        self.durable = Some(self.durable.unwrap_or(0).max(self.size.min(span.1)));
        self.synced = Some(n);
    }

    fn fail(&mut self, n: usize) {
        self.failed = Some(n);
        self.lost.extend(self.changes.iter().map(|change| change.span));
        if self.lost.is_empty() {
            self.lost.push((0, u64::MAX));
        }
    }

    fn change(&mut self, n: usize, span: Span, way: Way) {
        self.touched = Some(n);
        self.was_written = true;
        (self.other_sync, self.ranged) = (None, None);
        self.lost = without(&self.lost, span);
        self.changes.push(Change { span, call: n, way });
    }

    fn write(&mut self, n: usize, span: Span) {
        let old = self.durable.unwrap_or(0);
        if span.0 < old {
            self.change(n, (span.0, span.1.min(old)), Way::Overwritten);
        }
        if span.1 > old || span.0 == span.1 {
            self.change(n, (span.0.max(old), span.1), Way::Appended);
        }
        self.size = self.size.max(span.1);
    }

    fn resize(&mut self, n: usize, size: u64) {
        let before = self.size.max(self.durable.unwrap_or(0));
        if size < before {
            self.cut = Some(n);
            self.change(n, (size, before), Way::Cut);
        } else if size > before {
            self.change(n, (before, size), Way::Appended);
        }
        self.touched = Some(n);
        self.size = size;
    }

    /// The parts of `spans` that a mapping has, and that no sync of it has made durable.
    pub fn unsynced(map: &Mapped, spans: &[Span]) -> Vec<Span> {
        let part = |span: &Span| (span.0.max(map.span.0), span.1.min(map.span.1));
        let parts = spans.iter().map(part).filter(|(from, to)| from < to).collect();
        map.synced.iter().fold(parts, |parts: Vec<Span>, synced| without(&parts, *synced))
    }

    pub fn is_lost(&self, overlaps: impl Fn(Span) -> bool) -> bool {
        self.lost.iter().any(|span| overlaps(*span))
    }
}

/// The way to a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Renamed {
    pub call: usize,
    pub from: String,
    /// Whether the old name was durable.
    pub was_durable: bool,
}

/// A name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub object: usize,
    pub created: Option<usize>,
    pub renamed: Option<Renamed>,
    /// The call that gave the file this name while a write to it was not durable.
    pub renamed_unsynced: Option<usize>,
    /// The call that renamed a directory above while a write to the file was not durable.
    pub moved_unsynced: Option<usize>,
}

/// A name that is gone.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub call: usize,
    /// The new name, if it was renamed, and whether nothing had that name before.
    pub to: Option<(String, bool)>,
}

/// The files and names at a moment.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub objects: Vec<Object>,
    pub names: BTreeMap<String, Name>,
    pub gone: BTreeMap<String, Gone>,
    /// For each descriptor of an object, and for its last one, whether its writes are synced.
    opened: BTreeMap<(Option<i64>, usize), bool>,
    /// A ring whose requests cannot be seen.
    pub unseen_ring: Option<usize>,
    /// A request of a ring about an unknown file or name.
    pub unknown_request: Option<usize>,
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Whether a change counts although the state differs in other bytes of the same blocks only.
pub(super) fn blocks(span: Span) -> Span {
    (span.0 / BLOCK * BLOCK, span.1.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX))
}

impl Replay {
    /// Replays all calls that had begun by `until`. A sync counts only if it had ended.
    pub fn of(calls: &[Syscall], existing: &[(String, Option<u64>)], until: i64) -> Replay {
        let mut replay = Replay::default();
        replay.add("", Object { is_dir: true, durable: Some(0), ..Object::default() });
        for (path, size) in existing {
            let size_now = size.unwrap_or(0);
            let object = Object {
                is_dir: size.is_none(),
                size: size_now,
                durable: Some(size_now),
                is_exact: true,
                ..Object::default()
            };
            replay.add(path, object);
        }
        for (n, call) in calls.iter().enumerate().take_while(|(_, call)| call.began <= until) {
            replay.call(n, call, call.ended <= until);
        }
        replay
    }

    fn add(&mut self, path: &str, object: Object) -> usize {
        let id = self.objects.len();
        self.objects.push(object);
        self.names.insert(path.to_owned(), Name { object: id, ..Name::default() });
        id
    }

    /// The object of a name. One that nothing has told of is one of which little is known.
    fn id(&mut self, path: &str) -> usize {
        match self.names.get(path) {
            Some(name) => name.object,
            None => self.add(path, Object::default()),
        }
    }

    fn object(&mut self, path: &str) -> &mut Object {
        let id = self.id(path);
        &mut self.objects[id]
    }

    pub fn at(&self, path: &str) -> Option<(&Name, &Object)> {
        let name = self.names.get(path)?;
        Some((name, &self.objects[name.object]))
    }

    fn call(&mut self, n: usize, call: &Syscall, over: bool) {
        if let Some(operation) = call.name.strip_prefix(RING_CALL) {
            return self.ring(n, call, (operation, over));
        }
        let path = call.file.clone().unwrap_or_default();
        match &*call.name {
            "fsync" | "fdatasync" | "msync" if call.error.is_some() => self.object(&path).fail(n),
            _ if call.error.is_some() => {}
            "open" | "creat" | "openat" => self.open(n, call, path),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "copy_file_range"
            | "sendfile" => self.write(n, call, over),
            "ftruncate" | "truncate" => self.object(&path).resize(n, call.offset.unwrap_or(0)),
            "fallocate" => self.allocate(n, call),
            "sync_file_range" => self.object(&path).ranged = Some(n),
            "fsync" | "fdatasync" if over => self.sync(n, &path),
            "msync" => self.msync(n, call, over),
            "sync" | "syncfs" if over => self.sync_all(n),
            "mmap" => {
                let span = span(call);
                let map = Mapped { span, call: n, synced: Vec::new(), asked: None };
                self.object(&path).maps.push(map);
            }
            "rename" | "renameat" | "renameat2" => self.rename(n, call, &path),
            "link" | "linkat" => {
                let Some(to) = call.other.clone() else { return };
                let object = self.id(&path);
                let name = Name { object, created: Some(n), ..Name::default() };
                self.names.insert(to, name);
            }
            "symlink" | "symlinkat" | "mkdir" | "mkdirat" | "mknod" | "mknodat" => {
                let is_dir = call.name.starts_with("mkdir");
                let object =
                    Object { is_dir, durable: Some(0), is_exact: true, ..Object::default() };
                self.add(&path, object);
                self.create(n, &path);
            }
            "unlink" | "unlinkat" | "rmdir" => {
                self.names.remove(&path);
                self.gone.insert(path, Gone { call: n, to: None });
            }
            "chmod" | "fchmod" | "fchmodat" | "chown" | "fchown" | "lchown" | "fchownat"
            | "setxattr" | "lsetxattr" | "fsetxattr" | "removexattr" | "lremovexattr"
            | "fremovexattr" => self.object(&path).change(n, (0, 0), Way::Described),
            _ => {}
        }
    }

    fn create(&mut self, n: usize, path: &str) {
        if let Some(name) = self.names.get_mut(path) {
            name.created = Some(n);
        }
        let object = self.object(path);
        object.touched = Some(n);
    }

    /// A request of a ring.
    fn ring(&mut self, n: usize, call: &Syscall, (operation, over): (&str, bool)) {
        match (operation, &call.file) {
            ("setup", _) if call.flags == RING_SEEN => {}
            ("setup", _) => {
                self.unseen_ring.get_or_insert(n);
            }
            (_, Some(_)) if call.error.is_some() && operation != "fsync" => {}
            ("write" | "writev" | "write_fixed" | "writev_fixed", Some(path)) => {
                let (path, is_synced) = (path.clone(), over && self.is_synced(call));
                let object = self.object(&path);
                object.change(n, (0, u64::MAX), Way::Ring);
                object.is_exact = false;
                if is_synced {
                    object.clean(n);
                }
            }
            ("fsync", Some(path)) if call.error.is_some() => {
                let path = path.clone();
                self.object(&path).fail(n);
            }
            ("fsync", Some(path)) if over => {
                let path = path.clone();
                self.sync(n, &path);
            }
            ("sync_file_range", Some(path)) => {
                let path = path.clone();
                self.object(&path).ranged = Some(n);
            }
            ("fallocate" | "ftruncate", Some(path)) => {
                let path = path.clone();
                self.object(&path).change(n, (0, u64::MAX), Way::Ring);
            }
            (
                "write" | "writev" | "write_fixed" | "writev_fixed" | "fsync" | "sync_file_range"
                | "fallocate" | "ftruncate" | "openat" | "openat2" | "renameat" | "unlinkat"
                | "mkdirat" | "linkat" | "symlinkat" | "fsetxattr" | "setxattr",
                None,
            ) => {
                self.unknown_request.get_or_insert(n);
            }
            _ => {}
        }
    }

    fn open(&mut self, n: usize, call: &Syscall, path: String) {
        let is_new = call.flags.contains("O_CREAT") && !self.names.contains_key(&path);
        let cuts = call.flags.contains("O_TRUNC");
        if is_new {
            self.add(&path, Object { is_exact: true, ..Object::default() });
            self.create(n, &path);
        } else if cuts {
            self.object(&path).resize(n, 0);
        } else if !self.names.contains_key(&path) {
            return;
        }
        let id = self.id(&path);
        let is_synced = call.flags.split('|').any(|flag| matches!(flag, "O_SYNC" | "O_DSYNC"));
        self.opened.insert((call.fd, id), is_synced);
        self.opened.insert((None, id), is_synced);
    }

    /// Whether a write is durable when it returns.
    fn is_synced(&mut self, call: &Syscall) -> bool {
        let by_flag = call.flags.split('|').any(|flag| matches!(flag, "RWF_SYNC" | "RWF_DSYNC"));
        let id = self.id(call.file.as_deref().unwrap_or_default());
        // A descriptor that was copied is known by nothing but its file.
        let opened = self.opened.get(&(call.fd, id)).or_else(|| self.opened.get(&(None, id)));
        by_flag || opened.copied().unwrap_or(false)
    }

    fn write(&mut self, n: usize, call: &Syscall, over: bool) {
        let is_synced = over && self.is_synced(call);
        let object = self.object(call.file.as_deref().unwrap_or_default());
        let at = call.offset.unwrap_or(object.size);
        object.write(n, (at, at + call.len));
        if is_synced {
            object.clean_span((at, at + call.len), n);
        }
    }

    fn allocate(&mut self, n: usize, call: &Syscall) {
        let object = self.object(call.file.as_deref().unwrap_or_default());
        let (from, to) = span(call);
        let shifts = ["COLLAPSE", "INSERT"].iter().any(|mode| call.flags.contains(mode));
        if shifts {
            object.is_exact = false;
            object.change(n, (from, u64::MAX), Way::Overwritten);
        } else if call.flags.contains("KEEP_SIZE") {
            let to = to.min(object.size);
            object.write(n, (from.min(to), to));
        } else {
            object.write(n, (from, to));
        }
    }

    fn msync(&mut self, n: usize, call: &Syscall, over: bool) {
        let object = self.object(call.file.as_deref().unwrap_or_default());
        let of = blocks(span(call));
        if over && call.flags.contains("MS_SYNC") {
            object.clean_span(of, n);
        } else {
            for map in object.maps.iter_mut().filter(|map| map.span.0 < of.1 && of.0 < map.span.1) {
                map.asked = Some(n);
            }
        }
    }

    fn sync_all(&mut self, n: usize) {
        self.objects.iter_mut().for_each(|object| object.clean(n));
        for name in self.names.values_mut() {
            *name = Name { object: name.object, ..Name::default() };
        }
        self.gone.clear();
    }

    fn rename(&mut self, n: usize, call: &Syscall, from: &str) {
        let Some(to) = call.other.clone() else { return };
        self.id(from);
        let was_free = !self.names.contains_key(&to);
        let exchanges = call.flags.contains("EXCHANGE");
        let mine = self.taken(from);
        let other = self.taken(&to);
        self.place(n, mine, from, &to);
        self.gone.remove(&to);
        if exchanges {
            self.place(n, other, &to, from);
        } else {
            self.gone.insert(from.to_owned(), Gone { call: n, to: Some((to, was_free)) });
        }
    }

    /// Takes away a name and all names below it: each as what follows the name.
    fn taken(&mut self, path: &str) -> Vec<(String, Name)> {
        let below = format!("{path}/");
        let is_one = |name: &&String| *name == path || name.starts_with(&below);
        let names: Vec<String> = self.names.keys().filter(is_one).cloned().collect();
        let take = |name: String| Some((name[path.len()..].to_owned(), self.names.remove(&name)?));
        names.into_iter().filter_map(take).collect()
    }

    /// Puts names below a new one.
    fn place(&mut self, n: usize, names: Vec<(String, Name)>, from: &str, to: &str) {
        for (rest, mut name) in names {
            let object = &mut self.objects[name.object];
            let is_unsynced = !object.changes.is_empty();
            if rest.is_empty() {
                let was_durable = name.created.is_none() && name.renamed.is_none();
                let from = from.to_owned();
                name.renamed = Some(Renamed { call: n, from, was_durable });
                name.renamed_unsynced = is_unsynced.then_some(n);
                object.touched = Some(n);
            } else if is_unsynced || name.created.is_some() {
                name.moved_unsynced = Some(n);
            }
            self.names.insert(format!("{to}{rest}"), name);
        }
    }

    fn sync(&mut self, n: usize, path: &str) {
        let id = self.id(path);
        let is_below = |p: &str| p != path && parent(p) == path;
        let is_dir = self.objects[id].is_dir || self.names.keys().any(|p| is_below(p));
        if !is_dir && !self.objects[id].was_written && self.objects[id].synced.is_some() {
            for (_, object) in self.objects.iter_mut().enumerate().filter(|(other, _)| *other != id)
            {
                if !object.changes.is_empty() {
                    object.other_sync = Some(n);
                }
            }
        }
        let mut moved = BTreeSet::new();
        for (_, name) in self.names.iter_mut().filter(|(p, _)| is_below(p)) {
            // A rename is one change: it is durable for the old directory too.
            moved.extend(name.renamed.take().map(|renamed| renamed.from));
            name.created = None;
        }
        self.gone.retain(|p, _| !is_below(p) && !moved.contains(p));
        self.objects[id].clean(n);
        for name in self.names.values_mut().filter(|name| name.object == id) {
            name.renamed_unsynced = None;
            if name.created.is_none() {
                name.moved_unsynced = None;
            }
        }
    }
}

fn span(call: &Syscall) -> Span {
    let at = call.offset.unwrap_or(0);
    (at, at.saturating_add(call.len))
}

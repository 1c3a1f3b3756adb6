//! From recorded calls to steps: which object each call means, what exists at the start, and what
//! each call waits for.

use std::collections::BTreeMap;

use ordo_trace::strace::Syscall;
use rustc_hash::FxHashMap;

use super::order::Order;

/// The most symbolic links of a path.
const LINKS_MOST: usize = 40;

/// A file or directory that calls use. Its number is its index.
pub(super) type Object = usize;

/// The work of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A name that is looked up and is not there.
    Missing {
        path: String,
    },
    /// A file or directory is opened, and created if it is not there and `creates`.
    Open {
        path: String,
        object: Object,
        creates: bool,
        truncates: bool,
    },
    Close {
        object: Object,
    },
    Read {
        object: Object,
        at: u64,
        len: u64,
    },
    Write {
        object: Object,
        at: u64,
        len: u64,
    },
    Copy {
        from: Object,
        from_at: u64,
        to: Object,
        at: u64,
        len: u64,
    },
    Sync {
        object: Object,
        /// Whether only contents are to be durable (fdatasync, msync).
        data: bool,
    },
    SyncAll,
    Truncate {
        object: Object,
        size: u64,
    },
    Remove {
        path: String,
        is_directory: bool,
    },
    MakeDirectory {
        path: String,
        object: Object,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        object: Object,
        path: String,
    },
    /// A symbolic link; its target is a path from the root, if it is known.
    Symlink {
        path: String,
        target: Option<String>,
    },
}

/// The kinds of calls, as the table of a run shows them.
pub(super) const KINDS: [&str; 14] = [
    "not there",
    "open",
    "close",
    "read",
    "write",
    "copy",
    "fsync",
    "sync",
    "truncate",
    "remove",
    "mkdir",
    "rename",
    "link",
    "symlink",
];

impl Step {
    /// The index in [`KINDS`].
    pub(super) fn kind(&self) -> usize {
        match self {
            Step::Missing { .. } => 0,
            Step::Open { .. } => 1,
            Step::Close { .. } => 2,
            Step::Read { .. } => 3,
            Step::Write { .. } => 4,
            Step::Copy { .. } => 5,
            Step::Sync { .. } => 6,
            Step::SyncAll => 7,
            Step::Truncate { .. } => 8,
            Step::Remove { .. } => 9,
            Step::MakeDirectory { .. } => 10,
            Step::Rename { .. } => 11,
            Step::Link { .. } => 12,
            Step::Symlink { .. } => 13,
        }
    }
}

/// A call that is carried out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedCall {
    pub step: Step,
    /// The calls that must have ended before.
    pub waits: Vec<usize>,
    /// The number of processes that must have ended before, in the order of their ends.
    pub gate: usize,
    /// The time in nanoseconds between the last of what the call waits for and its beginning.
    pub think: u64,
}

/// A file or directory that exists at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Initial {
    pub object: Object,
    /// The bytes of a file; `None` for a directory.
    pub size: Option<u64>,
}

/// Recorded calls, ready to be carried out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The calls in order of their beginnings.
    pub calls: Vec<PlannedCall>,
    /// For each process, in order of their beginnings, its calls, and its place in the order of
    /// their ends.
    pub processes: Vec<(Vec<usize>, usize)>,
    /// The files and directories that exist at the start, by path. A directory is before what is in
    /// it.
    pub initial: BTreeMap<String, Initial>,
    /// The number of objects.
    pub objects: usize,
    /// The number of calls of a kind that is not carried out, or that have no place in a file.
    pub skipped: u64,
    /// The bytes that the files may need at most.
    pub footprint: u64,
}

impl Plan {
    /// The number of processes, in order of their beginnings, that may have to be under way at
    /// once: when the first calls of the recording that are not done can be carried out, their
    /// process is among so many.
    pub(super) fn width(&self) -> usize {
        let gate = |calls: &[usize]| calls.first().map_or(0, |first| self.calls[*first].gate);
        let ahead = self.processes.iter().enumerate().map(|(at, (calls, _))| at - gate(calls));
        ahead.max().unwrap_or(0) + 1
    }

    /// Makes a plan of calls, which are in order of their beginnings.
    pub(super) fn new(calls: &[Syscall]) -> Plan {
        let mut planner = Planner::default();
        let mut kept = Vec::new();
        for call in calls.iter().filter(|call| !is_elsewhere(call)) {
            match planner.step(call) {
                Some(step) => {
                    planner.plan.calls.push(PlannedCall {
                        step,
                        waits: Vec::new(),
                        gate: 0,
                        think: 0,
                    });
                    kept.push(call);
                }
                None if is_no_work(call) => {}
                None => planner.plan.skipped += 1,
            }
        }
        let Planner { mut plan, states, .. } = planner;
        plan.objects = states.len();
        plan.footprint = states.iter().map(|state| state.most).sum();
        for Initial { object, size } in plan.initial.values_mut() {
            if let Some(size) = size {
                *size = states[*object].initial;
            }
        }
        for call in &mut plan.calls {
            // A file that was there after all is opened and not created.
            if let Step::Open { object, creates, .. } = &mut call.step
                && states[*object].was_there
            {
                *creates = false;
            }
        }
        Order::new(&kept).apply(&mut plan);
        plan
    }
}

/// Whether a call is about the kernel's own file systems.
fn is_elsewhere(call: &Syscall) -> bool {
    let is_special = |path: &String| {
        let first = path.split('/').next();
        matches!(first, Some("proc" | "sys" | "dev"))
    };
    call.file.as_ref().is_some_and(is_special) || call.other.as_ref().is_some_and(is_special)
}

/// Whether a call does nothing that a file system could notice, or nothing beside what others do: a
/// descriptor that was copied is closed more than once.
fn is_no_work(call: &Syscall) -> bool {
    let moves_none = call.len == 0 && (call.name.contains("read") || call.name.contains("write"));
    let is_quiet = ["lseek", "chdir", "fchdir", "close", "sync_file_range"].contains(&&*call.name);
    call.error.is_some() || is_quiet || moves_none || call.is_copy() && call.len == 0
}

/// An object while the calls are read.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_directory: bool,
    /// Whether it exists at the start.
    was_there: bool,
    /// The size, the size at the start, and the greatest size.
    size: u64,
    initial: u64,
    most: u64,
    opens: u64,
    /// The bytes that were copied from it since it was opened.
    copied: u64,
}

#[derive(Default)]
struct Planner {
    plan: Plan,
    states: Vec<State>,
    /// The targets of symbolic links.
    links: BTreeMap<String, String>,
    /// The objects by the names that they have now, and by names that were removed.
    names: BTreeMap<String, Object>,
    gone: FxHashMap<String, Object>,
    /// The name under which an object was created by a call that would also have opened it.
    maybe_new: FxHashMap<Object, String>,
}

impl Planner {
    fn step(&mut self, call: &Syscall) -> Option<Step> {
        let path = call.file.as_deref().map(|path| self.real(path));
        if call.error.is_some() {
            let is_lookup =
                matches!(&*call.name, "open" | "openat") && call.error.as_deref() == Some("ENOENT");
            let path = path.filter(|path| is_lookup && !self.names.contains_key(path))?;
            return Some(Step::Missing { path });
        }
        if matches!(&*call.name, "sync" | "syncfs") {
            return Some(Step::SyncAll);
        }
        let path = path?;
        match &*call.name {
            "open" | "openat" | "creat" => Some(self.open(call, path)),
            "close" => {
                let object = *self.names.get(&path).or_else(|| self.gone.get(&path))?;
                let state = &mut self.states[object];
                state.opens = state.opens.checked_sub(1)?;
                Some(Step::Close { object })
            }
            // The kernel's msync makes contents durable, and not the inode.
            "fsync" | "fdatasync" | "msync" => {
                let data = call.name != "fsync";
                Some(Step::Sync { object: self.object(&path, false), data })
            }
            "ftruncate" | "truncate" => {
                let (object, size) = (self.object(&path, false), call.offset?);
                self.resize(object, |_| size);
                Some(Step::Truncate { object, size })
            }
            "mkdir" | "mkdirat" => {
                self.parent(&path);
                let object = self.add(&path, State { is_directory: true, ..State::default() });
                Some(Step::MakeDirectory { path, object })
            }
            "unlink" | "unlinkat" | "rmdir" => {
                let is_directory = call.name == "rmdir" || call.flags.contains("AT_REMOVEDIR");
                let object = self.object(&path, is_directory);
                self.names.remove(&path);
                self.links.remove(&path);
                self.gone.insert(path.clone(), object);
                Some(Step::Remove { path, is_directory })
            }
            "sync_file_range" => None,
            "renameat2" if call.flags.contains("EXCHANGE") => None,
            "rename" | "renameat" | "renameat2" => {
                let other = call.other.as_deref().map(|other| self.real(other))?;
                self.rename(path, other)
            }
            "link" | "linkat" => {
                let other = call.other.as_deref().map(|other| self.real(other))?;
                let (object, path) = (self.object(&path, false), other);
                self.parent(&path);
                self.names.insert(path.clone(), object);
                Some(Step::Link { object, path })
            }
            "symlink" | "symlinkat" => {
                self.parent(&path);
                self.add(&path, State::default());
                let target = call.other.clone();
                if let Some(target) = &target {
                    self.links.insert(path.clone(), target.clone());
                }
                Some(Step::Symlink { path, target })
            }
            _ => self.bytes(call, &path),
        }
    }

    /// A path without symbolic links on the way to its last name.
    fn real(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MOST {
            let slashes = path.match_indices('/').map(|(at, _)| at);
            let found = slashes.into_iter().find_map(|at| Some((at, self.links.get(&path[..at])?)));
            match found {
                Some((at, target)) => path = format!("{target}{}", &path[at..]),
                None => break,
            }
        }
        path.trim_start_matches('/').to_owned()
    }

    /// A call that reads, writes or copies bytes.
    fn bytes(&mut self, call: &Syscall, path: &str) -> Option<Step> {
        let (at, len) = (call.offset?, call.len);
        let end = at.checked_add(len).filter(|_| len > 0)?;
        if call.name.contains("read") {
            let object = self.object(path, false);
            self.needs(object, end);
            return Some(Step::Read { object, at, len });
        }
        if call.is_copy() {
            let to = self.object(path, false);
            self.resize(to, |size| size.max(end));
            let Some(source) = &call.other else {
                return Some(Step::Write { object: to, at, len });
            };
            let from = self.object(source, false);
            // The call shows no place in its source: copies go on where the last one ended.
            let from_at = self.states[from].copied;
            self.states[from].copied += len;
            self.needs(from, from_at.checked_add(len)?);
            return Some(Step::Copy { from, from_at, to, at, len });
        }
        if !call.name.contains("write") {
            return None;
        }
        let object = self.object(path, false);
        self.resize(object, |size| size.max(end));
        Some(Step::Write { object, at, len })
    }

    fn open(&mut self, call: &Syscall, path: String) -> Step {
        let creates = call.flags.contains("O_CREAT");
        let truncates = call.flags.contains("O_TRUNC");
        let object = match self.names.get(&path) {
            Some(object) => *object,
            None if creates => {
                self.parent(&path);
                let object = self.add(&path, State::default());
                if !truncates && !call.flags.contains("O_EXCL") {
                    self.maybe_new.insert(object, path.clone());
                }
                object
            }
            None => self.object(&path, call.flags.contains("O_DIRECTORY")),
        };
        if truncates {
            self.resize(object, |_| 0);
        }
        self.states[object].opens += 1;
        self.states[object].copied = 0;
        Step::Open { path, object, creates, truncates }
    }

    fn rename(&mut self, from: String, to: String) -> Option<Step> {
        let object = self.object(&from, false);
        self.parent(&to);
        if let Some(replaced) = self.names.get(&to) {
            self.gone.insert(to.clone(), *replaced);
        }
        // Everything below a directory gets new names, too.
        let below = format!("{from}/");
        let inside =
            self.names.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        let moved: Vec<(String, Object)> =
            inside.map(|(name, object)| (name.clone(), *object)).collect();
        for (name, object) in moved {
            self.names.remove(&name);
            self.names.insert(format!("{to}/{}", &name[below.len()..]), object);
        }
        self.names.remove(&from);
        self.names.insert(to.clone(), object);
        Some(Step::Rename { from, to })
    }

    /// The object of a name. A name that no call has made is that of a file or directory that was
    /// there at the start.
    fn object(&mut self, path: &str, is_directory: bool) -> Object {
        if let Some(object) = self.names.get(path).or_else(|| self.gone.get(path)) {
            return *object;
        }
        self.parent(path);
        let is_directory = is_directory || path.is_empty();
        let object = self.add(path, State { is_directory, was_there: true, ..State::default() });
        let size = (!is_directory).then_some(0);
        self.plan.initial.insert(path.to_owned(), Initial { object, size });
        object
    }

    /// Makes sure that the directory of a name exists.
    fn parent(&mut self, path: &str) {
        let Some((parent, _)) = path.rsplit_once('/') else { return };
        let object = self.object(parent, true);
        if !self.states[object].is_directory {
            // A name that was used like a file's is that of a directory.
            self.states[object].is_directory = true;
            if let Some(initial) = self.plan.initial.get_mut(parent) {
                initial.size = None;
            }
        }
    }

    fn add(&mut self, path: &str, state: State) -> Object {
        self.states.push(state);
        self.names.insert(path.to_owned(), self.states.len() - 1);
        self.states.len() - 1
    }

    fn resize(&mut self, object: Object, to: impl Fn(u64) -> u64) {
        let state = &mut self.states[object];
        state.size = to(state.size);
        state.most = state.most.max(state.size);
    }

    /// A read shows that a file is this long. If no call has written so much, it was there at the
    /// start.
    fn needs(&mut self, object: Object, end: u64) {
        if self.states[object].size >= end {
            return;
        }
        if let Some(path) = self.maybe_new.remove(&object) {
            self.states[object].was_there = true;
            self.plan.initial.insert(path, Initial { object, size: Some(0) });
        }
        self.resize(object, |size| size.max(end));
        let state = &mut self.states[object];
        if state.was_there {
            state.initial = state.initial.max(end);
        }
    }
}

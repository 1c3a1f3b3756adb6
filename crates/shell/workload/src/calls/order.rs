//! The order of recorded calls: what each of them waited for, as far as times, names and processes
//! show it.
//!
//! - A process carries out its calls one after another.
//! - A process begins when all processes have ended that had ended before its first call, and when
//!   the call has ended that ended last before it.
//! - A process that did nothing while another one began and ended waited for it.
//! - A call that names a file, or uses one for the first time in its process, waits for the last
//!   change of the file or of its directory by another process; one that changes a name waits for
//!   its last use.
//!
//! Everything else may overlap as it likes: calls are not repeated at recorded times.

use std::collections::BTreeMap;

use ordo_trace::strace::Syscall;
use rustc_hash::{FxHashMap, FxHashSet};

use super::plan::Plan;

/// A process of the recording.
struct Process {
    calls: Vec<usize>,
    began: i64,
    ended: i64,
}

/// The calls of a recording, by process and by time.
pub(super) struct Order<'c> {
    calls: &'c [&'c Syscall],
    /// The processes in order of their beginnings.
    processes: Vec<Process>,
    /// The processes in order of their ends, as indices.
    by_end: Vec<usize>,
    /// The process of each call.
    process_of: Vec<usize>,
    /// The calls in order of their ends.
    ends: Vec<usize>,
}

/// The last uses of a name.
#[derive(Clone, Default)]
struct NameUses {
    changed: Option<usize>,
    used: Option<usize>,
}

impl<'c> Order<'c> {
    /// The order of `calls`, which are sorted by their beginnings.
    pub(super) fn new(calls: &'c [&'c Syscall]) -> Order<'c> {
        let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
        let mut processes: Vec<Process> = Vec::new();
        let mut process_of = Vec::with_capacity(calls.len());
        for (number, call) in calls.iter().enumerate() {
            let at = *numbers.entry(call.pid).or_insert_with(|| {
                processes.push(Process { calls: Vec::new(), began: call.began, ended: call.ended });
                processes.len() - 1
            });
            processes[at].calls.push(number);
            processes[at].ended = processes[at].ended.max(call.ended);
            process_of.push(at);
        }
        let mut by_end: Vec<usize> = (0..processes.len()).collect();
        by_end.sort_by_key(|at| (processes[*at].ended, *at));
        let mut ends: Vec<usize> = (0..calls.len()).collect();
        ends.sort_by_key(|at| (calls[*at].ended, *at));
        Order { calls, processes, by_end, process_of, ends }
    }

    /// Puts the order into the plan of the same calls.
    pub(super) fn apply(self, plan: &mut Plan) {
        let mut names: FxHashMap<&str, NameUses> = FxHashMap::default();
        let mut used: FxHashSet<(usize, &str)> = FxHashSet::default();
        let mut before: Vec<Option<usize>> = vec![None; self.processes.len()];
        for (number, call) in self.calls.iter().enumerate() {
            let process = self.process_of[number];
            let mut waits = Vec::new();
            let last = before[process].replace(number).map(|last| self.calls[last].ended);
            match last {
                None => {
                    plan.calls[number].gate = self.ended_before(call.began);
                    waits.extend(self.last_end_before(call.began));
                }
                Some(last) => waits.extend(self.child(process, last, call.began)),
            }
            self.wait_for_names(number, (&mut names, &mut used), &mut waits);
            waits.retain(|wait| self.process_of[*wait] != process);
            waits.sort_unstable();
            waits.dedup();
            let since = waits.iter().map(|wait| self.calls[*wait].ended);
            let since = since.chain(last).max().unwrap_or(call.began);
            plan.calls[number].think = u64::try_from(call.began - since).unwrap_or(0);
            plan.calls[number].waits = waits;
        }
        let mut place = vec![0; self.processes.len()];
        self.by_end.iter().enumerate().for_each(|(at, process)| place[*process] = at);
        plan.processes = self
            .processes
            .into_iter()
            .zip(place)
            .map(|(process, at)| (process.calls, at))
            .collect();
    }

    /// The number of processes that had ended at a time.
    fn ended_before(&self, at: i64) -> usize {
        self.by_end.partition_point(|process| self.processes[*process].ended <= at)
    }

    /// The call that ended last before a time.
    fn last_end_before(&self, at: i64) -> Option<usize> {
        let behind = self.ends.partition_point(|call| self.calls[*call].ended <= at);
        behind.checked_sub(1).map(|place| self.ends[place])
    }

    /// The last call of a process that began and ended between two times, the one that ended last.
    fn child(&self, process: usize, from: i64, to: i64) -> Option<usize> {
        let behind = self.ended_before(to);
        let ended = self.by_end[..behind].iter().rev();
        let mut recent = ended.take_while(|other| self.processes[**other].ended > from);
        let child =
            recent.find(|other| **other != process && self.processes[**other].began > from)?;
        self.processes[*child].calls.last().copied()
    }

    fn wait_for_names(
        &self,
        number: usize,
        (names, used): (&mut FxHashMap<&'c str, NameUses>, &mut FxHashSet<(usize, &'c str)>),
        waits: &mut Vec<usize>,
    ) {
        let (call, process) = (self.calls[number], self.process_of[number]);
        let changes = changes_names(call);
        let ended_before = |other: &usize| self.calls[*other].ended <= call.began;
        for path in [&call.file, &call.other].into_iter().flatten() {
            let is_first = used.insert((process, path)) || call.name.contains("open");
            if is_first || changes {
                let parent = path.rsplit_once('/').map(|(parent, _)| parent);
                let parent = parent.and_then(|parent| names.get(parent)?.changed);
                let own = names.get(&**path).cloned().unwrap_or_default();
                waits.extend(parent.iter().chain(&own.changed).copied().filter(ended_before));
                waits.extend(own.used.filter(|_| changes).filter(ended_before));
            }
            let uses = names.entry(path).or_default();
            uses.used = Some(number);
            if changes || is_change(call) {
                uses.changed = Some(number);
            }
        }
    }
}

/// Whether a call makes, moves or removes a name.
fn changes_names(call: &Syscall) -> bool {
    let open = call.name.contains("open") || call.name == "creat";
    let names = ["mkdir", "rmdir", "unlink", "rename", "link"];
    (open && call.flags.contains("O_CREAT")) || names.iter().any(|name| call.name.contains(name))
}

/// Whether a call changes a file's contents, or ends a use that did.
fn is_change(call: &Syscall) -> bool {
    call.name.contains("write")
        || call.name.contains("truncate")
        || call.is_copy()
        || call.name == "close"
}

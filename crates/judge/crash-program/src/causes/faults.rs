//! The mistake behind each defect of a failing state.

use ordo_trace::strace::Syscall;

use super::objects::{Change, Gone, Mapped, Name, Object, Replay, Way, blocks, parent};
use super::{Cause, CauseFailure, Defect, Differing, Mistake, Span, rank, words};
use crate::explore::Wrong;

/// A mistake about one path.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub path: String,
    pub mistake: Mistake,
    call: Option<usize>,
    /// Details beside the mistake.
    more: Option<String>,
    pub is_sure: bool,
}

impl Fault {
    fn new(path: &str, mistake: Mistake, call: usize) -> Fault {
        let path = path.to_owned();
        Fault { path, mistake, call: Some(call), more: None, is_sure: true }
    }

    pub fn cause(&self, calls: &[Syscall]) -> Cause {
        let path = if self.path.is_empty() { "." } else { &self.path };
        let call = self.call.and_then(|n| calls.get(n));
        let by = call.map(|call| format!(": {} by pid {}", call.text(), call.pid));
        let more = self.more.as_ref().map(|more| format!("; {more}")).unwrap_or_default();
        let text = format!("{path}: {}{more}{}", words(self.mistake), by.unwrap_or_default());
        Cause { mistake: self.mistake, path: path.to_owned(), text, sure: self.is_sure }
    }
}

/// The program's calls, replayed to the moments that matter.
pub(super) struct Faults<'a> {
    calls: &'a [Syscall],
    failure: &'a CauseFailure<'a>,
    /// The moment by which changes had to be durable, or that of the power cut if none had to.
    then: Replay,
    /// The moment of the right state.
    right: Option<Replay>,
}

/// Whether a defect concerns a part of a file.
fn concerns(defect: &Defect, object: &Object, change: &Change) -> bool {
    match defect {
        Defect::Unknown | Defect::Missing => true,
        Defect::Extra => false,
        Defect::Changed { is_described, .. } if change.way == Way::Described => *is_described,
        Defect::Changed { spans, .. } => {
            let is_in = |span: &Span| span.0 < change.span.1 && change.span.0 < span.1;
            !spans.is_empty() && (!object.is_exact || spans.iter().any(is_in))
        }
    }
}

fn bytes(spans: &[Span]) -> Option<String> {
    let (from, to) = (spans.first()?.0, spans.last()?.1);
    Some(format!("bytes {from} to {}", to - 1))
}

impl<'a> Faults<'a> {
    pub fn of(calls: &'a [Syscall], failure: &'a CauseFailure<'a>) -> Faults<'a> {
        let until = match failure.wrong {
            Wrong::LostDurable => failure.promised.unwrap_or(failure.cut),
            _ => failure.cut,
        };
        let replay = |until| Replay::of(calls, failure.existing, until);
        Faults { calls, failure, then: replay(until), right: failure.right.map(replay) }
    }

    /// The mistake by which what a promise needs is not durable.
    pub fn not_durable(&self, path: &str, defect: &Defect) -> Option<Fault> {
        let fault = self.not_durable_exactly(path, defect)?;
        // A request of a ring may have synced any file, or have renamed it.
        let is_sure = fault.is_sure && self.then.unknown_request.is_none();
        Some(Fault { is_sure, ..fault })
    }

    fn not_durable_exactly(&self, path: &str, defect: &Defect) -> Option<Fault> {
        let Some((name, object)) = self.then.at(path) else {
            return match defect {
                Defect::Missing => self.above(path),
                _ => self.still_there(path),
            };
        };
        if *defect == Defect::Extra {
            return None;
        }
        if let Some(n) = object.failed
            && object.is_lost(|span| self.overlaps(defect, object, span))
        {
            return Some(Fault::new(path, Mistake::SyncErrorIgnored, n));
        }
        if let Some(n) = self.lost_rename(name) {
            return Some(Fault::new(path, Mistake::RenameWithoutDirectorySync, n));
        }
        if *defect == Defect::Missing
            && let Some(fault) = self.renamed_above(path)
        {
            return Some(fault);
        }
        if let Some(fault) = self.unsynced(path, (name, object), defect) {
            return Some(fault);
        }
        if let Some(renamed) = &name.renamed
            && !self.is_under_neither(path, renamed.was_durable, &renamed.from)
        {
            return Some(Fault::new(path, Mistake::RenameWithoutDirectorySync, renamed.call));
        }
        if let Some(n) = name.created.filter(|_| !matches!(defect, Defect::Changed { .. })) {
            let mistake = match name.moved_unsynced {
                Some(_) => Mistake::DirectoryRenamedUnsynced,
                None => Mistake::CreateWithoutDirectorySync,
            };
            return Some(Fault::new(path, mistake, name.moved_unsynced.unwrap_or(n)));
        }
        match defect {
            Defect::Missing => self.above(path),
            _ => None,
        }
    }

    fn overlaps(&self, defect: &Defect, object: &Object, span: Span) -> bool {
        concerns(defect, object, &Change { span, call: 0, way: Way::Overwritten })
    }

    /// The call of a rename that the state shows to be lost: the file has its old name.
    fn lost_rename(&self, name: &Name) -> Option<usize> {
        let renamed = name.renamed.as_ref()?;
        let is_back = self.failure.present.contains(&renamed.from)
            && !self.then.names.contains_key(&renamed.from);
        is_back.then_some(renamed.call)
    }

    /// The mistake by which contents are not durable.
    fn unsynced(
        &self,
        path: &str,
        (name, object): (&Name, &Object),
        defect: &Defect,
    ) -> Option<Fault> {
        let change = object.changes.iter().rfind(|change| concerns(defect, object, change));
        if let Some(change) = change {
            let of = [
                (name.renamed_unsynced, Mistake::RenameWithoutFileSync),
                (name.moved_unsynced, Mistake::DirectoryRenamedUnsynced),
                (object.ranged, Mistake::SyncFileRange),
                (object.other_sync, Mistake::WrongDescriptor),
            ];
            let found = of.into_iter().find_map(|(n, mistake)| Some((n?, mistake)));
            let or = match change.way {
                Way::Ring => (change.call, Mistake::RingWithoutSync),
                _ => (change.call, Mistake::NoSync),
            };
            let (n, mistake) = found.unwrap_or(or);
            return Some(Fault::new(path, mistake, n));
        }
        let Defect::Changed { spans, .. } = defect else { return None };
        self.mapped(path, object, spans).or_else(|| self.by_unseen_ring(path, object, spans))
    }

    /// A part that differs, and that was changed through a mapping: no call wrote it.
    fn mapped(&self, path: &str, object: &Object, spans: &[Span]) -> Option<Fault> {
        let maps = || object.maps.iter().rev().filter(|map| touches(map, spans));
        let unsynced = |map: &Mapped| Some(Object::unsynced(map, spans)).filter(|s| !s.is_empty());
        if let Some((map, lost)) = maps().find_map(|map| Some((map, unsynced(map)?))) {
            let mut fault = Fault::new(path, Mistake::MappedWithoutSync, map.call);
            let asked = match map.asked {
                Some(n) => self.calls.get(n).map(|call| call.flags.contains("MS_ASYNC")),
                None => None,
            };
            let waits = if asked == Some(true) { ", and MS_ASYNC waits for nothing" } else { "" };
            let others = match map.synced.is_empty() {
                true => "",
                false => ", while other pages were synced",
            };
            let fd = self.calls.get(map.call).and_then(|call| call.fd);
            let fd = fd.map(|fd| format!(" (descriptor {fd})")).unwrap_or_default();
            fault.more = bytes(&lost).map(|bytes| format!("{bytes} are lost{others}{waits}{fd}"));
            return Some(fault);
        }
        // The moment at which memory is changed is not seen: the change may have come after the
        // sync of it.
        let map = maps().next()?;
        let more = "the pages were changed after the last msync, or it was none of them".to_owned();
        let fault = Fault::new(path, Mistake::MappedWithoutSync, map.call);
        Some(Fault { more: Some(more), is_sure: false, ..fault })
    }

    /// A file that no call wrote, although the program may have written it by a ring that could
    /// not be seen.
    fn by_unseen_ring(&self, path: &str, object: &Object, spans: &[Span]) -> Option<Fault> {
        let n = self.then.unseen_ring.or(self.then.unknown_request)?;
        if spans.is_empty() || (object.synced.is_some() && object.durable >= Some(spans.last()?.1))
        {
            return None;
        }
        let more = "the requests of the ring could not be seen".to_owned();
        let fault = Fault::new(path, Mistake::RingWithoutSync, n);
        Some(Fault { more: Some(more), is_sure: false, ..fault })
    }

    /// The mistake by which a name is there that should be gone.
    fn still_there(&self, path: &str) -> Option<Fault> {
        let gone = |path: &str| self.then.gone.get(path);
        let fault = |gone: &Gone| {
            let mistake = match gone.to {
                Some(_) => Mistake::RenameWithoutDirectorySync,
                None => Mistake::RemoveWithoutDirectorySync,
            };
            Fault::new(path, mistake, gone.call)
        };
        if let Some(found) = gone(path) {
            return (!self.is_under_both(found)).then(|| fault(found));
        }
        above(path).find_map(|above| gone(above).filter(|gone| gone.to.is_some())).map(fault)
    }

    /// The mistake by which a directory above a missing file is missing.
    fn above(&self, path: &str) -> Option<Fault> {
        self.renamed_above(path).or_else(|| {
            let made = |above: &str| {
                let created = self.then.at(above)?.0.created?;
                let is_gone = !self.failure.present.contains(above);
                is_gone.then(|| Fault::new(above, Mistake::CreateWithoutDirectorySync, created))
            };
            above(path).find_map(made)
        })
    }

    fn renamed_above(&self, path: &str) -> Option<Fault> {
        above(path).find_map(|above| {
            let n = self.then.at(above)?.0.renamed.as_ref()?.call;
            let is_gone = !self.failure.present.contains(above);
            is_gone.then(|| Fault::new(above, Mistake::RenameWithoutDirectorySync, n))
        })
    }

    /// Whether a file is under neither its new name nor the old one, which was durable. A rename
    /// takes a file from one to the other, and leaves it nowhere at no time.
    fn is_under_neither(&self, path: &str, was_durable: bool, from: &str) -> bool {
        let present = self.failure.present;
        was_durable && !present.contains(path) && !present.contains(from) && !present.is_empty()
    }

    /// Whether a file is under its old name and under the new one, which nothing had before.
    fn is_under_both(&self, gone: &Gone) -> bool {
        let Some((to, true)) = &gone.to else { return false };
        let differs = self.failure.differing.iter().any(|one| one.path == *to);
        let is_file = self.then.at(to).is_some_and(|(_, object)| !object.is_dir);
        is_file && self.failure.present.contains(to) && !differs
    }

    /// The verdict on the file system: the object was synced, nothing changed it since, and it is
    /// not there.
    pub fn of_file_system(&self, one: &Differing) -> Option<Fault> {
        let Differing { path, defect } = one;
        let fault = |n: usize, more: String| {
            let fault = Fault::new(path, Mistake::FileSystem, n);
            Some(Fault { more: Some(more), ..fault })
        };
        if self.then.unseen_ring.is_some()
            || self.then.unknown_request.is_some()
            || self.calls.iter().any(|call| call.error.as_deref() == Some("EIO"))
        {
            return None;
        }
        let Some((name, object)) = self.then.at(path) else {
            let gone = self.then.gone.get(path).filter(|gone| self.is_under_both(gone))?;
            let to = gone.to.as_ref().map_or("", |(to, _)| to);
            return fault(gone.call, format!("it is under this name and under {to}"));
        };
        let later = self.right.as_ref()?;
        let (now, same) = later.at(path)?;
        if now != name || same.touched != object.touched || !object.maps.is_empty() {
            return None;
        }
        if let Some(renamed) = &name.renamed {
            let is_lost = *defect == Defect::Missing
                && self.is_under_neither(path, renamed.was_durable, &renamed.from)
                && later.gone.get(&renamed.from).is_none_or(|gone| gone.to.is_some());
            let n = object.synced.filter(|_| is_lost)?;
            return fault(n, format!("it is under neither this name nor {}", renamed.from));
        }
        if object.is_dir || !object.changes.is_empty() || name.created.is_some() {
            return None;
        }
        let lacks = match defect {
            Defect::Missing => "its name is gone".to_owned(),
            Defect::Changed { spans, is_described } => match bytes(spans) {
                Some(bytes) => format!("{bytes} are not there"),
                None if *is_described => "its mode, owner or attributes are not there".to_owned(),
                None => return None,
            },
            Defect::Extra | Defect::Unknown => return None,
        };
        fault(object.synced?, lacks)
    }

    /// The mistake by which a file may be there only in part.
    pub fn not_atomic(&self, path: &str, defect: &Defect) -> Option<Fault> {
        let (name, object) = self.then.at(path)?;
        if let Some(n) = object.failed {
            return Some(Fault::new(path, Mistake::SyncErrorIgnored, n));
        }
        let concerned = || object.changes.iter().filter(|one| concerns(defect, object, one));
        if let (Some(_), Some(n)) = (concerned().next(), name.renamed_unsynced) {
            return Some(Fault::new(path, Mistake::RenameWithoutFileSync, n));
        }
        if let (Some(_), Some(n)) = (concerned().next(), name.moved_unsynced) {
            return Some(Fault::new(path, Mistake::DirectoryRenamedUnsynced, n));
        }
        let of = |way: Way, mistake: Mistake| {
            let last = concerned().rfind(|change| change.way == way);
            last.map(|change| Fault::new(path, mistake, change.call))
        };
        let more = || of(Way::Appended, Mistake::AppendUnchecked);
        if object.durable.is_none() && name.created.is_some() {
            // A new file is appended to, and not truncated.
            return more().or_else(|| of(Way::Ring, Mistake::AppendUnchecked));
        }
        let cut = object.cut.map(|n| Fault::new(path, Mistake::TruncateInPlace, n));
        let mapped = || match defect {
            Defect::Changed { spans, .. } => {
                let map = object.maps.iter().rfind(|map| touches(map, spans))?;
                Some(Fault::new(path, Mistake::OverwriteInPlace, map.call))
            }
            _ => None,
        };
        cut.or_else(|| of(Way::Overwritten, Mistake::OverwriteInPlace))
            .or_else(more)
            .or_else(|| of(Way::Ring, Mistake::OverwriteInPlace))
            .or_else(mapped)
    }

    /// Finds files that belong together, of which one may be there without the other. Only files
    /// without any other mistake count.
    pub fn order(&self, differing: &[(usize, &Differing)]) -> Option<(usize, Fault)> {
        differing.iter().find_map(|(rank, one)| {
            let fault = self.not_durable(&one.path, &one.defect)?;
            Some((*rank, Fault { mistake: Mistake::OrderOfFiles, more: None, ..fault }))
        })
    }

    /// The files that no call has made durable, where it is not known in which the state differs:
    /// those of which the check tells, or guesses.
    pub fn guesses(&self, said: &str) -> Vec<Fault> {
        let then = &self.then;
        let look = |path: &String| {
            let fault = match self.failure.wrong {
                Wrong::LostDurable => self.not_durable(path, &Defect::Unknown),
                _ => self.not_atomic(path, &Defect::Unknown),
            }?;
            Some((rank(said, path), fault))
        };
        let all = then.names.keys().chain(then.gone.keys());
        let mut found: Vec<(usize, Fault)> = all.filter_map(look).collect();
        found.sort_by_key(|(rank, fault)| (*rank, fault.mistake));
        let best = found.first().map_or(3, |(rank, _)| *rank);
        found.retain(|(rank, _)| *rank == best);
        let guess = |(_, fault)| Fault { is_sure: false, ..fault };
        found.into_iter().map(guess).collect()
    }
}

/// Whether a mapping has blocks of these parts, synced or not.
fn touches(map: &Mapped, spans: &[Span]) -> bool {
    let of = blocks(map.span);
    spans.iter().any(|span| span.0.max(of.0) < span.1.min(of.1))
}

/// The directories above a path, the nearest first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(parent(path)), |path| {
        Some(parent(path)).filter(|_| !path.is_empty())
    })
    .filter(|path| !path.is_empty())
}

//! Comparing a state's names, contents, permissions, attributes and order with those that the
//! history allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use ordo_vfs::{FileType, Ino};
use rustc_hash::FxHashMap;

use crate::Promise;
use crate::disk::SECTOR;
use crate::expect::{
    Candidate, DirExpected, Expect, Expected, FileExpected, NameExpected, SectorExpected,
};
use crate::history::{History, ObjectId, words};
use crate::order::Cuts;
use crate::tree::{Contents, InodeMetadata, Listing, Tree};
use crate::verdict::Verdict;

/// The differences of a comparison, in words, each with a flag whether it breaks a promise.
#[derive(Default)]
pub(crate) struct Differences {
    lost_durable: Vec<(bool, String)>,
    not_atomic: Vec<(bool, String)>,
    stale: Vec<(bool, String)>,
    lost_returned: u64,
}

impl Differences {
    /// Adds the differences to a verdict.
    pub fn into_verdict(self, verdict: &mut Verdict) {
        verdict.lost_returned += self.lost_returned;
        let Verdict { lost_durable, not_atomic, stale, broken, .. } = verdict;
        for (list, found) in
            [(lost_durable, self.lost_durable), (not_atomic, self.not_atomic), (stale, self.stale)]
        {
            for (promised, what) in found {
                Verdict::note(list, broken, promised, what);
            }
        }
    }
}

/// A fault in the size or the contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WrongContents {
    what: String,
    /// Whether bytes, or a size, for which a caller has waited are lost. Otherwise the fault is in
    /// a part of the file that no caller has made durable.
    lost: bool,
}

/// The compared contents of files, by inode and object: the two versions that were compared, and
/// their difference.
pub(crate) type Compared = FxHashMap<(Ino, ObjectId), ((u64, u64), Option<WrongContents>)>;

/// Compares a state with the allowed ones. If `compared` is given, results for files are taken from
/// it and noted in it.
pub(crate) fn compare(
    tree: &Tree,
    (history, promise): (&History, &Promise),
    expect: &Expect,
    compared: Option<&mut Compared>,
) -> Differences {
    let mut comparer = Comparer {
        tree,
        history,
        expect,
        promise,
        compared,
        found: Differences::default(),
        seen: BTreeSet::new(),
        cuts: Cuts::default(),
    };
    comparer.directories();
    comparer.always_named();
    comparer.order();
    comparer.found
}

/// A directory that must be judged: the objects that it may be, oldest first. There are several if
/// it was removed and made again with the same inode.
type FoundDirectory = (Vec<ObjectId>, Ino);

struct Comparer<'a> {
    tree: &'a Tree,
    history: &'a History,
    expect: &'a Expect,
    promise: &'a Promise,
    compared: Option<&'a mut Compared>,
    found: Differences,
    seen: BTreeSet<ObjectId>,
    /// For each client, the number of its calls whose effects are there, as far as the state shows.
    cuts: Cuts,
}

impl<'a> Comparer<'a> {
    fn title(&self, object: ObjectId) -> String {
        self.history.objects[object].title()
    }

    /// Whether concurrent calls have made the state of a name indeterminate.
    fn is_indeterminate(&self, dir: ObjectId, name: &[u8]) -> bool {
        let indeterminate = &self.history.indeterminate_names;
        !indeterminate.is_empty() && indeterminate.contains(&(dir, name.to_vec()))
    }

    fn directories(&mut self) {
        self.metadata(&[0], self.tree.root);
        let mut todo: Vec<FoundDirectory> = vec![(vec![0], self.tree.root)];
        while let Some((objects, ino)) = self.next_directory(&mut todo) {
            let dir = self.which(&objects, ino);
            if !self.seen.insert(dir) {
                continue;
            }
            let (tree, expect) = (self.tree, self.expect);
            let listing = tree.dirs.get(&ino).map(|listing| &**listing);
            let expected = expect.names.get(&dir);
            if let Some(expected) = expected {
                self.expected_names(dir, expected, listing, &mut todo);
            }
            for (name, found) in listing.iter().flat_map(|listing| &listing.by_name) {
                let known = expected.is_some_and(|e| e.get(name).is_some());
                if let Some(object) = self.spare(dir, name, *found) {
                    todo.extend(self.follow(vec![object], Some(*found)));
                } else if !known && !self.is_indeterminate(dir, name) && !(tree.own_names)(name) {
                    let place = self.title(dir);
                    let what = format!("{}: a name that never existed, in {place}", words(name));
                    self.found.not_atomic.push((self.promise.names, what));
                }
            }
        }
    }

    /// Takes the directory to judge next. One that may be several objects comes last, when most is
    /// known.
    fn next_directory(&self, todo: &mut Vec<FoundDirectory>) -> Option<FoundDirectory> {
        let sure = todo.iter().rposition(|(objects, _)| objects.len() == 1);
        sure.map(|at| todo.swap_remove(at)).or_else(|| todo.pop())
    }

    /// The object that a directory is: the newest one whose names agree with what was found
    /// elsewhere, or just the newest.
    fn which(&self, objects: &[ObjectId], ino: Ino) -> ObjectId {
        let newest = *objects.last().expect("a directory is some object");
        let fits = |dir: &&ObjectId| objects.len() > 1 && self.can_be(**dir, ino);
        objects.iter().rev().find(fits).copied().unwrap_or(newest)
    }

    /// Whether the names in a directory can be those of an object, after what was found elsewhere.
    fn can_be(&self, dir: ObjectId, ino: Ino) -> bool {
        let listing = self.tree.dirs.get(&ino).map(|listing| &listing.by_name);
        let Some(expected) = self.expect.names.get(&dir) else {
            return listing.is_none_or(|names| names.is_empty());
        };
        let mut cuts = self.cuts.clone();
        expected.least().for_each(|(client, calls)| cuts.at_least(client, calls));
        for (name, expected) in expected.live() {
            let found = listing.and_then(|names| names.get(name)).copied();
            let fits = self.fitting(expected, found);
            if fits.is_empty() {
                return false;
            }
            cuts.agree(expected.client, &fits);
        }
        let may = |name: &Vec<u8>| expected.get(name).is_some() && expected.gone(name).is_none();
        let mut names = listing.into_iter().flatten().map(|(name, _)| name);
        names.all(|name| may(name) || (self.tree.own_names)(name)) && cuts.can_be()
    }

    /// The candidates for a name that have the inode which was found.
    fn fitting<'e>(
        &self,
        expected: &'e NameExpected,
        found: Option<Ino>,
    ) -> Vec<&'e Candidate<Option<ObjectId>>> {
        let ino_of = |o: Option<ObjectId>| o.map(|o| self.history.objects[o].ino);
        expected.candidates.iter().filter(|c| ino_of(c.value) == found).collect()
    }

    /// Judges the names of a directory that may exist, and those that exist but must not.
    fn expected_names(
        &mut self,
        dir: ObjectId,
        expected: &DirExpected,
        listing: Option<&Listing>,
        todo: &mut Vec<FoundDirectory>,
    ) {
        let entries = listing.map(|listing| &listing.by_name);
        let there = entries.into_iter().flatten();
        let gone: Vec<_> = there.filter_map(|(name, _)| expected.gone(name)).collect();
        let mut names: Vec<(&[u8], &NameExpected)> = expected.live().collect();
        if gone.is_empty() {
            expected.least().for_each(|(client, calls)| self.cuts.at_least(client, calls));
        } else {
            names.extend(expected.all_gone());
            names.sort_unstable_by_key(|(name, _)| *name);
        }
        for (name, expected) in names {
            if self.is_indeterminate(dir, name) {
                continue;
            }
            let found = entries.and_then(|entries| entries.get(name)).copied();
            let objects = self.name(dir, name, expected, found);
            todo.extend(self.follow(objects, found));
        }
    }

    /// The object that has an additional name while an exchange of two names, which need not be
    /// atomic, is under way.
    fn spare(&self, dir: ObjectId, name: &[u8], found: Ino) -> Option<ObjectId> {
        let is_it = |spare: &&(ObjectId, ObjectId)| {
            spare.0 == dir && self.history.objects[spare.1].ino == found
        };
        let may = !self.promise.ordered && name.starts_with(b".exchange-");
        self.expect.spares.iter().find(is_it).filter(|_| may).map(|spare| spare.1)
    }

    /// Judges the inode of a name. Returns the objects that it may be.
    fn name(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        expected: &NameExpected,
        found: Option<Ino>,
    ) -> Vec<ObjectId> {
        let fits = self.fitting(expected, found);
        if fits.is_empty() {
            let may: Vec<String> = expected
                .candidates
                .iter()
                .map(|c| c.value.map_or("nothing".into(), |o| self.title(o)))
                .collect();
            let is = found.map_or("nothing".into(), |i| format!("inode {i}"));
            let what = format!(
                "{} in {}: points to {is}, may point to {}",
                words(name),
                self.title(dir),
                may.join(" or ")
            );
            // A check that finds a directory under two names, in the middle of a rename or an
            // exchange, removes one of them. It does so even if another inode had that name before,
            // or was to have it.
            let is_directory = |c: &Candidate<Option<ObjectId>>| {
                let file_type = |o: ObjectId| self.history.objects[o].file_type;
                c.value.is_some_and(|o| file_type(o) == FileType::Directory)
            };
            let moved = !expected.is_settled() && expected.candidates.iter().any(is_directory);
            if moved && found.is_none() && !self.promise.no_check {
                self.found.not_atomic.push((false, what));
            } else if expected.durable {
                self.found.lost_durable.push((self.promise.durable_fsync, what));
            } else {
                self.found.not_atomic.push((self.promise.names, what));
            }
            return Vec::new();
        }
        let is_older = |c: &&Candidate<_>| c.call < expected.returned;
        self.found.lost_returned += u64::from(fits.iter().all(is_older));
        self.cuts.agree(expected.client, &fits);
        fits.iter().filter_map(|c| c.value).collect()
    }

    /// Judges the inode under a name. Returns directories that must be judged too.
    fn follow(&mut self, objects: Vec<ObjectId>, found: Option<Ino>) -> Option<FoundDirectory> {
        let (ino, attr) = (found?, &self.tree.nodes.get(&found?)?.attr);
        let fitting =
            objects.iter().filter(|o| self.history.objects[**o].file_type == attr.file_type);
        let fitting: Vec<ObjectId> = fitting.copied().collect();
        let Some(newest) = fitting.last().copied() else {
            if let Some(object) = objects.first() {
                let what = format!("{} is found as {:?}", self.title(*object), attr.file_type);
                self.found.not_atomic.push((self.promise.names, what));
            }
            return None;
        };
        self.metadata(&fitting, ino);
        if attr.file_type == FileType::Directory {
            return Some((fitting, ino));
        }
        if !self.seen.contains(&newest) {
            self.seen.extend(&fitting);
            let mut wrong = Vec::new();
            for object in &fitting {
                match self.contents(*object, ino) {
                    None => return None,
                    Some(found) => wrong.push(found),
                }
            }
            let WrongContents { lost, what } = wrong.pop()?;
            if lost {
                self.found.lost_durable.push((self.promise.durable_fsync, what));
            } else {
                let is_link = attr.file_type == FileType::Symlink;
                let promised = self.promise.no_stale || is_link && self.promise.link_targets;
                self.found.stale.push((promised, what));
            }
        }
        None
    }

    /// Judges owner, permissions, times, flags and attributes of an inode that may be one of
    /// `objects`: together they must be a state that the inode had.
    fn metadata(&mut self, objects: &[ObjectId], ino: Ino) {
        let Some(node) = self.tree.nodes.get(&ino) else { return };
        let found = &node.metadata;
        for object in objects {
            let Some(expected) = self.expect.metadata.get(object) else { return };
            // Nobody has made the root, so it may have any state until a call sets one.
            let fits = |c: &&Candidate<Option<Arc<InodeMetadata>>>| match &c.value {
                Some(metadata) => metadata.allows(found),
                None => *object == 0,
            };
            let fits: Vec<_> = expected.candidates.iter().filter(fits).collect();
            if !fits.is_empty() {
                if objects.len() == 1 {
                    self.cuts.agree(expected.client, &fits);
                }
                return;
            }
        }
        let Some(object) = objects.last() else { return };
        let settled = self.expect.metadata.get(object).is_some_and(|e| e.is_settled() && e.durable);
        let what = format!("{}: was never in this state: {found}", self.title(*object));
        if settled {
            self.found.lost_durable.push((self.promise.durable_fsync, what));
        } else {
            self.found.not_atomic.push((self.promise.names, what));
        }
    }

    /// The fault in a file's size and contents, if there is one. The result of the last comparison
    /// is used if the inode was kept and neither it nor the allowed states have changed since.
    fn contents(&mut self, object: ObjectId, ino: Ino) -> Option<WrongContents> {
        let (version, expected) = self.expect.files.get(&object)?;
        let node = self.tree.nodes.get(&ino)?;
        let contents = node.contents.as_ref()?;
        let (Some(kept), Some(compared)) = (node.version, &self.compared) else {
            return self.wrong_contents(object, expected, contents);
        };
        let versions = (kept, *version);
        if let Some((known, wrong)) = compared.get(&(ino, object))
            && *known == versions
        {
            return wrong.clone();
        }
        let wrong = self.wrong_contents(object, expected, contents);
        if let Some(compared) = &mut self.compared {
            compared.insert((ino, object), (versions, wrong.clone()));
        }
        wrong
    }

    fn wrong_contents(
        &self,
        object: ObjectId,
        expected: &FileExpected,
        contents: &Contents,
    ) -> Option<WrongContents> {
        let size = contents.size;
        let sizes: Vec<u64> = expected.size.candidates.iter().map(|c| c.value).collect();
        let (low, high) = (sizes.iter().min()?, sizes.iter().max()?);
        let title = self.title(object);
        if size < *low || size > *high {
            let what = format!("{title}: size {size}, may be {low} to {high}");
            // While a later call changes the size, a check may cut the file at the last block that
            // it finds.
            let cut = !self.promise.no_check && !expected.size.is_settled();
            return Some(WrongContents { what, lost: expected.size.durable && !cut });
        }
        let fits = |index: u64, found: &[u8]| match expected.sectors.get(&index) {
            None => is_zero(found),
            Some(e) => e.candidates.iter().any(|c| c.value.allows(found)),
        };
        let in_hole = expected.sectors.range(..size.div_ceil(SECTOR as u64)).map(|(i, _)| *i);
        let in_hole = in_hole.filter(|i| !contents.has_data(*i)).map(|index| {
            (index, &[0; SECTOR][..(size - index * SECTOR as u64).min(SECTOR as u64) as usize])
        });
        let mut bad = contents.sectors().chain(in_hole).filter(|(i, found)| !fits(*i, found));
        let is_lost = |(index, found): &(u64, &[u8])| {
            // Bytes behind the lowest size that may be found need not be there.
            let below = low.saturating_sub(index * SECTOR as u64).min(found.len() as u64);
            let found = &found[..below as usize];
            expected
                .sectors
                .get(index)
                .is_some_and(|e| lacks_durable(e, found, || expected.is_settled()))
        };
        // A lost sector says more than one with contents of which nothing was durable.
        let first = bad.next()?;
        let (lost, (index, found)) =
            std::iter::once(first).chain(bad).find(is_lost).map_or((false, first), |f| (true, f));
        let at = index * SECTOR as u64;
        let head: Vec<String> = found.iter().take(16).map(|b| format!("{b:02x}")).collect();
        let verb = if lost { "the durable contents are lost" } else { "never written there" };
        let what = format!("{title}: byte {at}: {verb}: {}", head.join(" "));
        Some(WrongContents { what, lost })
    }

    fn always_named(&mut self) {
        for object in &self.expect.always_named {
            // An object that only an indeterminate name leads to may exist or not.
            let sure = self.history.indeterminate_names.is_empty();
            if sure && !self.seen.contains(object) {
                let what = format!("{} has lost its last name", self.title(*object));
                self.found.lost_durable.push((self.promise.names, what));
            }
        }
    }

    fn order(&mut self) {
        if let Err(what) = self.cuts.judge(self.history, &self.expect.last_durable) {
            self.found.not_atomic.push((self.promise.ordered, what));
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// Whether a sector lacks bytes for which a caller has waited: bytes that no later call has
/// changed, so that every version that may be found has them. Later calls, for which nobody has
/// waited, may have changed others. A sector that may have been in a hole has durable bytes only if
/// the whole file is settled: otherwise a later call may have given it a block.
fn lacks_durable(
    expected: &Expected<SectorExpected>,
    found: &[u8],
    is_settled: impl FnOnce() -> bool,
) -> bool {
    let Some((first, rest)) = expected.candidates.split_first() else { return false };
    let in_hole = expected.candidates.iter().any(|c| c.value.may_be_hole());
    expected.durable
        && (!in_hole || is_settled())
        && found.iter().enumerate().any(|(at, found)| {
            let durable = first.value.byte(at);
            durable.is_some_and(|durable| *found != durable)
                && rest.iter().all(|c| c.value.byte(at) == durable)
        })
}

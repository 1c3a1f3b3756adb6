//! Doing a sequence of operations on both sides, and comparing everything that can be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use ordo_vfs::{Attr, Cookie, Errno, FileSystem, FileType, FsError, Timestamp};

use super::op::{Listed, OracleName, OracleObject, OracleOp, Outcome, apply, list};
pub(super) use super::world::World;
use super::world::{Listing, ready, step_of};
use super::{OracleConfig, OracleReport, OracleSubject};

/// The size up to which files are compared whole. Larger ones are compared around the places that
/// were written.
const WHOLE_MAX: u64 = 256 * 1024;
const WINDOW: u64 = 8 * 1024;

type Given = Result<Outcome, FsError>;

/// A run: the subject, the model, and the relation between their inodes.
pub(super) struct Runner<'c, S> {
    subject: S,
    pub(super) world: World,
    config: &'c OracleConfig,
    /// The beginning and end of each step on the subject's clock.
    windows: BTreeMap<usize, (Timestamp, Timestamp)>,
    pub(super) report: OracleReport,
}

impl<'c, S: OracleSubject> Runner<'c, S> {
    pub(super) fn new(subject: S, config: &'c OracleConfig) -> Runner<'c, S> {
        let world = World::new(config.model.clone(), subject.fs().root());
        Runner { subject, world, config, windows: BTreeMap::new(), report: OracleReport::default() }
    }

    /// Does one operation. The error describes a difference. An operation on an object that is gone
    /// is skipped.
    pub(super) async fn step(&mut self, step: usize, op: &OracleOp) -> Result<(), String> {
        if op.objects().iter().any(|o| self.world.get(*o).is_none()) {
            return Ok(());
        }
        // The open may have been left out while a failure was shrunk.
        if matches!(op, OracleOp::Close { object } if self.world.get(*object).is_some_and(|t| t.opens == 0))
        {
            return Ok(());
        }
        self.world.begin(step);
        self.report.steps += 1;
        match op {
            OracleOp::ListFirst { dir, count } => return self.list_first(step, *dir, *count).await,
            OracleOp::ListOn { listing, count } => return self.list_on(*listing, *count).await,
            OracleOp::Remount => return self.remount().await,
            _ => {}
        }
        let before = self.subject.now();
        let given =
            apply(self.subject.fs(), op, &|o| self.world.get(o).expect("checked").subject).await;
        if let (Some(before), Some(after)) = (before, self.subject.now()) {
            self.windows.insert(step, (before, after));
        }
        self.count(&given);
        let mut op = op.clone();
        if self.config.rules.may_fill {
            if matches!(&given, Err(e) if e.errno == Errno::NoSpace) {
                return self.had_no_space(&op).await;
            }
            if let (OracleOp::Write { len, .. }, Ok(Outcome::Count(n))) = (&mut op, &given)
                && (1..*len).contains(n)
            {
                self.report.short_writes += 1;
                *len = *n;
            }
        }
        let mut concerned = op.objects();
        concerned.extend(op.entries().into_iter().filter_map(|(d, n)| self.world.entry(d, &n.0)));
        let expected =
            ready(apply(&self.world.model, &op, &|o| self.world.get(o).expect("checked").model));
        self.same_result(&op, &expected, &given)?;
        if let Ok(outcome) = &expected {
            self.follow(step, &op, outcome, &given)?;
        }
        self.world.forget_gone(&concerned);
        for object in concerned.into_iter().collect::<BTreeSet<_>>() {
            self.same_attributes(object).await?;
        }
        Ok(())
    }

    fn count(&mut self, given: &Given) {
        match given {
            Ok(_) => self.report.succeeded += 1,
            Err(e) => *self.report.errors.entry(e.errno).or_default() += 1,
        }
    }

    /// Checks a subject that reports that it has no space. That is right only if no other error
    /// applies, and nothing may have changed.
    async fn had_no_space(&mut self, op: &OracleOp) -> Result<(), String> {
        let fork = self.world.fork();
        let expected = ready(apply(&fork, op, &|o| self.world.get(o).expect("checked").model));
        if let Err(e) = &expected
            && e.errno != Errno::NoSpace
        {
            return Err(format!(
                "gave NoSpace, must give {:?} however much space there is",
                e.errno
            ));
        }
        let mut concerned = op.objects();
        for (dir, OracleName(name)) in op.entries() {
            let was = self.world.entry(dir, name);
            let t = self.world.get(dir).expect("checked");
            let is = self.subject.fs().lookup(t.subject, name).await;
            match (was, is) {
                (None, Err(_)) => {}
                (Some(was), Ok(is)) if self.world.of_subject(is.ino) == Some(was) => {
                    concerned.push(was);
                }
                (was, is) => {
                    let name = OracleName(name.clone());
                    return Err(format!("NoSpace, yet {name:?} was {was:?} and is {is:?}"));
                }
            }
        }
        for object in concerned {
            self.same_attributes(object).await.map_err(|e| format!("after NoSpace: {e}"))?;
        }
        Ok(())
    }

    fn same_result(&self, op: &OracleOp, expected: &Given, given: &Given) -> Result<(), String> {
        match (expected, given) {
            (Err(a), Err(b)) if a.errno == b.errno => Ok(()),
            (Err(a), Err(b)) => Err(format!("must give {:?}, gave {:?} ({b})", a.errno, b.errno)),
            (Err(a), Ok(b)) => Err(format!("must give {:?}, gave {}", a.errno, short(b))),
            (Ok(_), Err(b)) => Err(format!("must succeed, gave {:?} ({b})", b.errno)),
            (Ok(Outcome::Attr(a)), Ok(Outcome::Attr(b))) => {
                let new = matches!(op, OracleOp::Create { .. });
                let (mine, theirs) = (self.world.of_model(a.ino), self.world.of_subject(b.ino));
                if !new && mine != theirs {
                    return Err(format!("must be {mine:?}, is {theirs:?} (inode {})", b.ino));
                }
                self.attributes_differ(a, b).map_or(Ok(()), Err)
            }
            (Ok(Outcome::Entries(a)), Ok(Outcome::Entries(b))) => self.same_entries(a, b),
            (Ok(a), Ok(b)) if a == b => Ok(()),
            (Ok(a), Ok(b)) => Err(format!("must give {}, gave {}", short(a), short(b))),
        }
    }

    fn same_entries(&self, a: &[Listed], b: &[Listed]) -> Result<(), String> {
        let names = |l: &[Listed]| l.iter().map(|e| OracleName(e.name.clone())).collect::<Vec<_>>();
        let (mine, theirs) = (names(a), names(b));
        if mine != theirs {
            return Err(format!("must list {mine:?}, lists {theirs:?}"));
        }
        for (a, b) in a.iter().zip(b) {
            let (mine, theirs) = (self.world.of_model(a.ino), self.world.of_subject(b.ino));
            // The `..` of a removed directory may lead to one that is gone from the run.
            if mine != theirs {
                let name = OracleName(a.name.clone());
                return Err(format!("entry {name:?} must be {mine:?}, is {theirs:?}"));
            }
            if b.file_type.is_some() && a.file_type != b.file_type {
                let name = OracleName(a.name.clone());
                let (a, b) = (a.file_type, b.file_type);
                return Err(format!("entry {name:?} must have type {a:?}, has {b:?}"));
            }
        }
        Ok(())
    }

    /// Updates the world after an operation that succeeded on both sides.
    fn follow(
        &mut self,
        step: usize,
        op: &OracleOp,
        outcome: &Outcome,
        given: &Given,
    ) -> Result<(), String> {
        for (dir, OracleName(name)) in op.entries() {
            for l in self.world.listings.values_mut().filter(|l| l.dir == dir) {
                l.touched.insert(name.clone());
            }
        }
        match (op, outcome, given) {
            (OracleOp::Create { .. }, Outcome::Attr(a), Ok(Outcome::Attr(b))) => {
                self.world.track(OracleObject(step), a.ino, b.ino, a.file_type)?;
            }
            (OracleOp::Open { object }, ..) => self.world.get_mut(*object).opens += 1,
            (OracleOp::Close { object }, ..) => self.world.get_mut(*object).opens -= 1,
            (OracleOp::Write { object, offset, len, .. }, ..) if *len > 0 => {
                self.world.mark(*object, *offset);
                self.world.mark(*object, *offset + *len as u64);
            }
            (OracleOp::SetAttr { object, set }, ..) => {
                if let Some(size) = set.size {
                    self.world.mark(*object, size);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn same_attributes(&self, object: OracleObject) -> Result<(), String> {
        let Some(t) = self.world.get(object) else { return Ok(()) };
        let mine = self.world.model_attr(t.model).expect("tracked");
        let theirs = self.subject.fs().getattr(t.subject).await;
        let theirs = theirs.map_err(|e| format!("getattr of {object:?} gave {e}"))?;
        match self.attributes_differ(&mine, &theirs) {
            Some(what) => Err(format!("{object:?}: {what}")),
            None => Ok(()),
        }
    }

    fn attributes_differ(&self, a: &Attr, b: &Attr) -> Option<String> {
        let rules = &self.config.rules;
        let differ = |what: &str, a: &dyn Debug, b: &dyn Debug| {
            Some(format!("{what} must be {a:?}, is {b:?}"))
        };
        if a.file_type != b.file_type {
            return differ("type", &a.file_type, &b.file_type);
        }
        let is_link = a.file_type == FileType::Symlink;
        if a.permissions != b.permissions && (rules.link_modes || !is_link) {
            return differ("mode", &a.permissions, &b.permissions);
        }
        if a.links != b.links {
            return differ("link count", &a.links, &b.links);
        }
        if rules.owners && (a.uid, a.gid) != (b.uid, b.gid) {
            return differ("owner", &(a.uid, a.gid), &(b.uid, b.gid));
        }
        if a.rdev != b.rdev {
            return differ("device", &a.rdev, &b.rdev);
        }
        if a.size != b.size && a.file_type != FileType::Directory {
            return differ("size", &a.size, &b.size);
        }
        if rules.flags && a.flags != b.flags {
            return differ("flags", &a.flags, &b.flags);
        }
        let times = [
            ("mtime", a.mtime, b.mtime, true),
            ("ctime", a.ctime, b.ctime, true),
            ("atime", a.atime, b.atime, rules.atimes),
            ("birthtime", a.birthtime, b.birthtime, rules.birthtimes),
        ];
        times.into_iter().find(|(_, a, b, compared)| *compared && !self.same_time(*a, *b)).map(
            |(what, a, b, _)| match step_of(a) {
                Some(step) => {
                    let window = self.windows.get(&step);
                    format!("{what} must be that of step {step} {window:?}, is {b:?}")
                }
                None => format!("{what} must be {a:?}, is {b:?}"),
            },
        )
    }

    fn same_time(&self, model: Timestamp, subject: Timestamp) -> bool {
        match step_of(model) {
            None => model == subject,
            Some(step) => self.windows.get(&step).is_none_or(|(from, to)| {
                let slack = self.config.rules.time_slack_ns;
                nanos(subject) + slack >= nanos(*from) && nanos(subject) <= nanos(*to) + slack
            }),
        }
    }

    async fn list_first(
        &mut self,
        step: usize,
        dir: OracleObject,
        count: usize,
    ) -> Result<(), String> {
        let expected = self.world.model_list(dir);
        let ino = self.world.get(dir).expect("checked").subject;
        let given = list(self.subject.fs(), ino, Cookie::START, Some(count)).await;
        match (expected, given) {
            (Err(a), Err(b)) if a.errno == b.errno => Ok(()),
            (Ok(all), Ok((some, cookie))) => {
                let listing = Listing {
                    dir,
                    cookie,
                    at_start: all.into_iter().map(|e| e.name).collect(),
                    touched: BTreeSet::new(),
                    seen: some.into_iter().map(|e| e.name).collect(),
                };
                self.world.listings.insert(step, listing);
                Ok(())
            }
            (a, b) => Err(format!("listing must give {:?}, gave {:?}", a.map(drop), b.map(drop))),
        }
    }

    async fn list_on(&mut self, listing: usize, count: Option<usize>) -> Result<(), String> {
        let Some(l) = self.world.listings.get(&listing) else { return Ok(()) };
        let ino = self.world.get(l.dir).expect("a listing goes with its directory").subject;
        let given = list(self.subject.fs(), ino, l.cookie, count).await;
        let (more, cookie) = match given {
            Ok(given) => given,
            // A directory that was removed while it was listed has no more entries.
            Err(e) if e.errno == Errno::NotFound && self.world.model_list(l.dir).is_err() => {
                self.world.listings.remove(&listing);
                return Ok(());
            }
            Err(e) => return Err(format!("listing on gave {e}")),
        };
        let ended = count.is_none_or(|c| more.len() < c);
        let l = self.world.listings.get_mut(&listing).expect("just looked at");
        l.cookie = cookie;
        l.seen.extend(more.into_iter().map(|e| e.name));
        if !ended {
            return Ok(());
        }
        let l = self.world.listings.remove(&listing).expect("just looked at");
        self.report.listings += 1;
        listing_was_right(&l)
    }

    /// Closes everything on both sides, mounts again, and demands that everything is there.
    async fn remount(&mut self) -> Result<(), String> {
        let open = self.world.open_objects();
        for object in &open {
            let t = self.world.get(*object).expect("listed");
            for _ in 0..t.opens {
                ready(self.world.model.close(t.model)).expect("it was open");
                self.subject.fs().close(t.subject).await.map_err(|e| format!("close: {e}"))?;
            }
            self.world.get_mut(*object).opens = 0;
        }
        self.world.forget_gone(&open);
        self.world.listings.clear();
        self.subject.remount().await.map_err(|e| format!("mounting again gave {e}"))?;
        self.verify().await
    }

    /// Compares everything on both sides.
    pub(super) async fn verify(&mut self) -> Result<(), String> {
        for object in self.world.objects() {
            self.same_attributes(object).await?;
            let file_type = self.world.file_type(object).expect("listed");
            let ops = match file_type {
                FileType::Directory if self.world.model_list(object).is_ok() => {
                    vec![OracleOp::List { dir: object }]
                }
                FileType::Symlink => vec![OracleOp::ReadLink { object }],
                FileType::Regular => self.reads(object),
                _ => Vec::new(),
            };
            for op in ops {
                self.same_answer(object, &op).await?;
            }
            if self.config.rules.xattr_types.contains(&file_type) {
                self.same_answer(object, &OracleOp::ListXattrs { object }).await?;
                let names =
                    ready(self.world.model.listxattr(self.world.get(object).unwrap().model));
                for name in names.expect("tracked") {
                    self.same_answer(
                        object,
                        &OracleOp::GetXattr { object, name: OracleName(name) },
                    )
                    .await?;
                }
            }
        }
        self.subject.audit().await
    }

    async fn same_answer(&mut self, object: OracleObject, op: &OracleOp) -> Result<(), String> {
        let t = self.world.get(object).expect("listed");
        let expected = ready(apply(&self.world.model, op, &|_| t.model));
        let given = apply(self.subject.fs(), op, &|_| t.subject).await;
        // The comparison's own reads may set access times. They belong to the step before them.
        if let Some(now) = self.subject.now() {
            let window = self.windows.entry(self.world.step()).or_insert((now, now));
            window.1 = now;
        }
        self.same_result(op, &expected, &given).map_err(|e| format!("{op:?}: {e}"))
    }

    /// The reads that compare a file: all of it, or the surroundings of the places that changed.
    fn reads(&self, object: OracleObject) -> Vec<OracleOp> {
        let size = self.world.size(object).expect("listed");
        let whole = OracleOp::Read { object, offset: 0, len: (size.min(WHOLE_MAX) + 1) as usize };
        if size <= WHOLE_MAX {
            return vec![whole];
        }
        let window = |place: u64| {
            let offset = place.saturating_sub(WINDOW);
            OracleOp::Read { object, offset, len: 2 * WINDOW as usize }
        };
        std::iter::once(whole).chain(self.world.marks(object).chain([size]).map(window)).collect()
    }
}

/// Whether a listing with pauses returned what it must: every entry that existed all the time
/// exactly once, no entry that never existed, and an entry twice only if it was removed and added
/// again.
fn listing_was_right(l: &Listing) -> Result<(), String> {
    for name in l.at_start.difference(&l.touched) {
        let times = l.seen.iter().filter(|n| *n == name).count();
        if times != 1 {
            let name = OracleName(name.clone());
            return Err(format!("a listing with pauses saw {name:?}, always there, {times} times"));
        }
    }
    for name in &l.seen {
        if !l.at_start.contains(name) && !l.touched.contains(name) {
            return Err(format!("a listing saw {:?}, never there", OracleName(name.clone())));
        }
    }
    Ok(())
}

fn nanos(t: Timestamp) -> i128 {
    i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos)
}

fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(b) => format!("{} bytes (sum {:x})", b.len(), checksum(b)),
        Outcome::Attr(a) => format!("inode {} ({:?})", a.ino, a.file_type),
        other => format!("{other:?}"),
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

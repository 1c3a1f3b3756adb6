//! Fault injection: devices that fail on demand.
//!
//! [`Faulty`] asks its [`Faults`] about each request. Rules decide which requests fail and how. A
//! latent error makes a range unreadable until it is written again. The handle is shared, so a test
//! can change the rules while the file system runs.
//!
//! ```
//! use ordo_block::{BlockDevice, IoBuf, Operation, WriteFlags, ram::RamDisk};
//! use ordo_block::fault::{Faults, Faulty, FaultRule};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let faults = Faults::new();
//! let disk = Faulty::new(RamDisk::new(1 << 20), &faults);
//! faults.add(FaultRule::fail(5).on(Operation::Write).nth(2));
//! executor.block_on(async {
//!     disk.write(0, IoBuf::zeroed(512), WriteFlags::empty()).await.unwrap();
//!     disk.write(0, IoBuf::zeroed(512), WriteFlags::empty()).await.unwrap_err();
//!     disk.write(0, IoBuf::zeroed(512), WriteFlags::empty()).await.unwrap();
//! }).unwrap();
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::{BlockDevice, BlockError, Fault, Geometry, IoBuf, Operation, WriteFlags};

/// The unit of torn writes, in bytes.
const TEAR: usize = 512;

/// A request, as a rule's predicate sees it.
#[derive(Clone, Copy, Debug)]
pub struct FaultAttempt<'a> {
    /// The kind of request.
    pub op: Operation,
    /// The offset in bytes; 0 for a flush.
    pub offset: u64,
    /// The length in bytes; 0 for a flush.
    pub len: u64,
    /// The flags of a write.
    pub flags: WriteFlags,
    /// The data of a write.
    pub data: Option<&'a [u8]>,
}

/// The way in which a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// An error; the device does nothing.
    Error(i32),
    /// The marked sectors of 512 bytes are written. The request then ends with the error, or with
    /// success if there is none.
    Tear(Vec<bool>, Option<i32>),
    /// Success; the device does nothing.
    Lie,
}

type Predicate = Rc<dyn Fn(&FaultAttempt<'_>) -> bool>;

/// A rule for which requests fail, and how. Without a restriction it applies to all requests, every
/// time.
#[derive(Clone)]
pub struct FaultRule {
    failure: Failure,
    op: Option<Operation>,
    range: Option<Range<u64>>,
    predicate: Option<Predicate>,
    /// The matching requests that fail, by number from 1.
    numbers: Range<u64>,
    matched: u64,
    fired: u64,
}

impl FaultRule {
    fn new(failure: Failure) -> FaultRule {
        let (op, range, predicate) = (None, None, None);
        FaultRule { failure, op, range, predicate, numbers: 1..u64::MAX, matched: 0, fired: 0 }
    }

    /// Makes requests fail with `errno` (5 is EIO); the device does nothing.
    pub fn fail(errno: i32) -> FaultRule {
        FaultRule::new(Failure::Error(errno))
    }

    /// Tears writes: the marked sectors of 512 bytes of each are written (those beyond the list are
    /// not), and the request fails with EIO.
    pub fn tear(sectors: impl Into<Vec<bool>>) -> FaultRule {
        FaultRule::new(Failure::Tear(sectors.into(), Some(libc::EIO))).on(Operation::Write)
    }

    /// Tears writes, and reports success.
    pub fn tear_silently(sectors: impl Into<Vec<bool>>) -> FaultRule {
        FaultRule::new(Failure::Tear(sectors.into(), None)).on(Operation::Write)
    }

    /// Makes the device report success and do nothing: a lost write, or a flush that lies. Reads
    /// are not affected.
    pub fn lie() -> FaultRule {
        FaultRule::new(Failure::Lie)
    }

    /// Restricts the rule to requests of this kind.
    pub fn on(mut self, op: Operation) -> FaultRule {
        self.op = Some(op);
        self
    }

    /// Restricts the rule to requests that touch these bytes.
    pub fn within(mut self, bytes: Range<u64>) -> FaultRule {
        self.range = Some(bytes);
        self
    }

    /// Restricts the rule to requests for which `predicate` holds.
    pub fn when(mut self, predicate: impl Fn(&FaultAttempt<'_>) -> bool + 'static) -> FaultRule {
        self.predicate = Some(Rc::new(predicate));
        self
    }

    /// Restricts the rule to the `n`th matching request from now on, counted from 1.
    pub fn nth(mut self, n: u64) -> FaultRule {
        self.numbers = n..n + 1;
        self
    }

    /// Restricts the rule to the `n`th matching request and all after it, counted from 1.
    pub fn from_nth(mut self, n: u64) -> FaultRule {
        self.numbers = n..u64::MAX;
        self
    }

    fn matches(&self, attempt: &FaultAttempt<'_>) -> bool {
        let touches = |r: &Range<u64>| {
            attempt.op != Operation::Flush
                && attempt.offset < r.end
                && r.start < attempt.offset.saturating_add(attempt.len)
        };
        self.op.is_none_or(|op| op == attempt.op)
            && self.range.as_ref().is_none_or(touches)
            && self.predicate.as_ref().is_none_or(|p| p(attempt))
    }
}

/// The identity of an added rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

#[derive(Default)]
struct Rules {
    next: u64,
    rules: BTreeMap<RuleId, FaultRule>,
    /// The start and end of ranges that cannot be read; they do not overlap.
    latent: BTreeMap<u64, u64>,
}

/// The faults of a device, shared between the device and the test that sets them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Faults(Rc<RefCell<Rules>>);

impl Faults {
    /// No faults yet.
    pub fn new() -> Faults {
        Faults::default()
    }

    /// Adds a rule. If several rules match a request, the one that was added first decides.
    pub fn add(&self, rule: FaultRule) -> RuleId {
        let mut rules = self.0.borrow_mut();
        let id = RuleId(rules.next);
        rules.next += 1;
        rules.rules.insert(id, rule);
        id
    }

    /// Removes a rule.
    pub fn remove(&self, id: RuleId) {
        let removed = self.0.borrow_mut().rules.remove(&id);
        drop(removed);
    }

    /// The number of requests that a rule has made fail so far.
    pub fn fired(&self, id: RuleId) -> u64 {
        self.0.borrow().rules.get(&id).map_or(0, |r| r.fired)
    }

    /// Makes bytes unreadable until they are written again.
    pub fn add_latent(&self, bytes: Range<u64>) {
        let latent = &mut self.0.borrow_mut().latent;
        remove_range(latent, &bytes);
        if bytes.start < bytes.end {
            latent.insert(bytes.start, bytes.end);
        }
    }

    /// Removes every rule and every latent error.
    pub fn clear(&self) {
        // Rules are dropped when nothing is borrowed any more, since predicates are the caller's
        // code.
        let all = self.0.take();
        self.0.borrow_mut().next = all.next;
        drop(all);
    }

    /// The failure of a request; `None` if no rule matches.
    fn judge(&self, attempt: &FaultAttempt<'_>) -> Option<Failure> {
        let mut rules = self.0.borrow_mut();
        let mut failure = None;
        for rule in rules.rules.values_mut() {
            if !rule.matches(attempt) {
                continue;
            }
            rule.matched += 1;
            if failure.is_none() && rule.numbers.contains(&rule.matched) {
                rule.fired += 1;
                failure = Some(rule.failure.clone());
            }
        }
        let end = attempt.offset.saturating_add(attempt.len);
        let unreadable = attempt.op == Operation::Read
            && rules.latent.range(..end).next_back().is_some_and(|(_, e)| *e > attempt.offset);
        failure.or(unreadable.then_some(Failure::Error(libc::EIO)))
    }

    fn written(&self, offset: u64, len: u64) {
        remove_range(&mut self.0.borrow_mut().latent, &(offset..offset.saturating_add(len)));
    }
}

/// Removes a range from a set of ranges.
fn remove_range(set: &mut BTreeMap<u64, u64>, range: &Range<u64>) {
    while let Some((start, end)) = set
        .range(..range.end)
        .next_back()
        .map(|(s, e)| (*s, *e))
        .filter(|(s, e)| *e > range.start && *s < range.end)
    {
        set.remove(&start);
        if end > range.end {
            set.insert(range.end, end);
        }
        if start < range.start {
            set.insert(start, range.start);
        }
    }
}

/// A device that fails as its [`Faults`] say.
pub struct Faulty<D> {
    inner: D,
    faults: Faults,
}

impl<D: BlockDevice> Faulty<D> {
    /// Wraps `inner`, which then fails as `faults` say.
    pub fn new(inner: D, faults: &Faults) -> Faulty<D> {
        Faulty { inner, faults: faults.clone() }
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Writes the marked sectors, in runs.
    async fn tear(&self, offset: u64, data: &[u8], sectors: &[bool]) -> Result<(), BlockError> {
        let marked = |i: usize| sectors.get(i).copied().unwrap_or(false);
        let count = data.len() / TEAR;
        let mut i = 0;
        while i < count {
            let run = (i..count).take_while(|i| marked(*i)).count();
            if run > 0 {
                let bytes = i * TEAR..(i + run) * TEAR;
                let at = offset + bytes.start as u64;
                let part = IoBuf::from_slice(&data[bytes]);
                self.inner.write(at, part, WriteFlags::empty()).await?;
            }
            i += run.max(1);
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let (op, flags) = (Operation::Read, WriteFlags::empty());
        let attempt = FaultAttempt { op, offset, len: len as u64, flags, data: None };
        if let Some(Failure::Error(errno)) = self.faults.judge(&attempt) {
            return Err(BlockError { op, offset, len, fault: Fault::Io(errno) });
        }
        self.inner.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let (op, len) = (Operation::Write, data.len());
        let attempt = FaultAttempt { op, offset, len: len as u64, flags, data: Some(&data) };
        let errno = match self.faults.judge(&attempt) {
            None => {
                self.inner.write(offset, data, flags).await?;
                self.faults.written(offset, len as u64);
                return Ok(());
            }
            Some(Failure::Lie) => None,
            Some(Failure::Error(errno)) => Some(errno),
            Some(Failure::Tear(sectors, errno)) => {
                self.inner.geometry().check_write(op, offset, len)?;
                self.tear(offset, &data, &sectors).await?;
                errno
            }
        };
        match errno {
            Some(errno) => Err(BlockError { op, offset, len, fault: Fault::Io(errno) }),
            None => Ok(()),
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        let (op, flags) = (Operation::Flush, WriteFlags::empty());
        match self.faults.judge(&FaultAttempt { op, offset: 0, len: 0, flags, data: None }) {
            None => self.inner.flush().await,
            Some(Failure::Error(errno) | Failure::Tear(_, Some(errno))) => {
                Err(BlockError { op, offset: 0, len: 0, fault: Fault::Io(errno) })
            }
            Some(Failure::Lie | Failure::Tear(_, None)) => Ok(()),
        }
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let (op, flags) = (Operation::Discard, WriteFlags::empty());
        match self.faults.judge(&FaultAttempt { op, offset, len, flags, data: None }) {
            None => self.inner.discard(offset, len).await,
            Some(Failure::Error(errno) | Failure::Tear(_, Some(errno))) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Err(BlockError { op, offset, len, fault: Fault::Io(errno) })
            }
            Some(Failure::Lie | Failure::Tear(_, None)) => Ok(()),
        }
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Executor;

    use super::*;
    use crate::ram::RamDisk;

    fn disk(faults: &Faults) -> Faulty<RamDisk> {
        Faulty::new(RamDisk::new(64 << 10), faults)
    }

    fn run<T>(f: impl Future<Output = T>) -> T {
        Executor::simulated(1).block_on(f).unwrap()
    }

    async fn put(disk: &Faulty<RamDisk>, at: u64, byte: u8, len: usize) -> Result<(), BlockError> {
        disk.write(at, IoBuf::from_slice(&vec![byte; len]), WriteFlags::empty()).await
    }

    /// Each restriction of a rule must work alone: kind, range, number, predicate. A removed rule
    /// must not apply.
    #[test]
    fn rules_choose_requests() {
        let faults = Faults::new();
        let disk = disk(&faults);
        run(async {
            let range = faults.add(FaultRule::fail(5).on(Operation::Write).within(4096..8192));
            put(&disk, 0, 1, 4096).await.unwrap();
            put(&disk, 8192, 1, 4096).await.unwrap();
            disk.read(4096, 512).await.unwrap();
            let e = put(&disk, 3584, 1, 1024).await.unwrap_err();
            assert_eq!((e.fault, e.offset, e.len), (Fault::Io(5), 3584, 1024));
            assert_eq!(disk.read(3584, 512).await.unwrap()[0], 1, "a failed write left something");
            assert_eq!(faults.fired(range), 1);
            faults.remove(range);
            put(&disk, 4096, 1, 512).await.unwrap();

            faults.add(FaultRule::fail(28).on(Operation::Flush).nth(2));
            disk.flush().await.unwrap();
            assert_eq!(disk.flush().await.unwrap_err().fault, Fault::Io(28));
            disk.flush().await.unwrap();

            faults.add(FaultRule::fail(5).when(|a| a.data.is_some_and(|d| d[0] == 0xee)));
            put(&disk, 0, 0xed, 512).await.unwrap();
            put(&disk, 0, 0xee, 512).await.unwrap_err();
            faults.add(FaultRule::fail(5).on(Operation::Read).from_nth(2));
            disk.read(0, 512).await.unwrap();
            disk.read(0, 512).await.unwrap_err();
            disk.read(0, 512).await.unwrap_err();
            faults.clear();
            disk.read(0, 512).await.unwrap();
        });
    }

    /// A torn write leaves exactly the marked sectors, and reports an error or success as its rule
    /// demands.
    #[test]
    fn torn_writes_leave_the_marked_sectors() {
        let faults = Faults::new();
        let disk = disk(&faults);
        run(async {
            faults.add(FaultRule::tear([true, false, true, true]).nth(1));
            let silent = FaultRule::tear_silently([false, true]).nth(2);
            faults.add(silent);
            put(&disk, 0, 7, 6 * 512).await.unwrap_err();
            put(&disk, 8192, 7, 1024).await.unwrap();
            let firsts = |image: IoBuf| image.chunks(512).map(|s| s[0]).collect::<Vec<_>>();
            assert_eq!(firsts(disk.read(0, 6 * 512).await.unwrap()), [7, 0, 7, 7, 0, 0]);
            assert_eq!(firsts(disk.read(8192, 1024).await.unwrap()), [0, 7]);
        });
    }

    /// A lost write and a lying flush report success.
    #[test]
    fn lies_report_success() {
        let faults = Faults::new();
        let disk = disk(&faults);
        run(async {
            faults.add(FaultRule::lie().on(Operation::Write).nth(1));
            put(&disk, 0, 7, 512).await.unwrap();
            assert_eq!(disk.read(0, 512).await.unwrap()[0], 0);
            put(&disk, 0, 7, 512).await.unwrap();
            assert_eq!(disk.read(0, 512).await.unwrap()[0], 7);
        });
    }

    /// A latent error fails every read that touches it, until exactly those bytes are written.
    #[test]
    fn latent_errors_end_where_they_are_written() {
        let faults = Faults::new();
        let disk = disk(&faults);
        run(async {
            faults.add_latent(1024..4096);
            disk.read(0, 1024).await.unwrap();
            disk.read(0, 1536).await.unwrap_err();
            put(&disk, 2048, 1, 512).await.unwrap();
            disk.read(2048, 512).await.unwrap();
            disk.read(1536, 512).await.unwrap_err();
            disk.read(2560, 512).await.unwrap_err();
            put(&disk, 0, 1, 4096).await.unwrap();
            disk.read(0, 8192).await.unwrap();
        });
    }
}

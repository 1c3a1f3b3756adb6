//! Reading records, in order or by LSN.

use ordo_block::{BlockDevice, Device, IoBuf};
use ordo_format::wafs::{NO_RECORD, SectorHead, WafsSuper};

use crate::log::Shared;
use crate::ring::{ExpectedSector, Ring, get_length};
use crate::{LogError, LogRules, Lsn, Wafs};

/// The most bytes that are read at once. The first read is shorter, since often only a sector or
/// two are wanted.
const READ_MAX: u64 = 64 << 10;
const READ_FIRST: u64 = 4 << 10;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WafsRecord {
    /// The record's log sequence number.
    pub lsn: Lsn,
    /// The LSN at which the next record begins.
    pub end: Lsn,
    /// The time at which the record's last sector was written, in seconds since the log was made.
    pub time: u32,
    /// The record's contents.
    pub bytes: Vec<u8>,
}

/// A record in the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The record's log sequence number.
    pub lsn: Lsn,
    /// The LSN at which the next record begins.
    pub end: Lsn,
    /// The time at which the record's last sector was written, in seconds since the log was made.
    pub time: u32,
    /// The record's contents.
    pub bytes: &'a [u8],
}

/// The replay cache: the first records of a log, kept while mounting reads them for a recovery that
/// follows at once.
#[derive(Default)]
pub(crate) struct ReplayCache {
    bytes: Vec<u8>,
    /// The records by number: beginning and end in the log, time, and end in `bytes`.
    records: Vec<(Lsn, Lsn, u32, usize)>,
    /// Set when a record was not kept. No later record is kept then.
    full: bool,
}

impl ReplayCache {
    /// Keeps a record, unless the kept ones would then have more than `most` bytes.
    pub(crate) fn keep(&mut self, record: RecordRef<'_>, most: usize) {
        self.full |= self.bytes.len() + record.bytes.len() > most;
        if !self.full {
            self.bytes.extend_from_slice(record.bytes);
            self.records.push((record.lsn, record.end, record.time, self.bytes.len()));
        }
    }

    /// The kept records from `lsn` on, in order.
    pub(crate) fn from(&self, lsn: Lsn) -> impl Iterator<Item = RecordRef<'_>> {
        let first = self.records.partition_point(|(at, ..)| *at < lsn);
        (first..self.records.len()).map(|i| {
            let (lsn, end, time, until) = self.records[i];
            let from = i.checked_sub(1).map_or(0, |before| self.records[before].3);
            RecordRef { lsn, end, time, bytes: &self.bytes[from..until] }
        })
    }
}

/// The reason why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A sector that is not full: the last one.
    Partial,
    /// A sector that does not continue the log.
    Foreign,
    /// Every sector of the ring belongs to the log: the scan came round to its start.
    Round,
}

/// An iterator over sectors, until one does not continue the log.
pub(crate) struct Sectors<'d> {
    device: &'d Device,
    ring: Ring,
    id: u32,
    first: u64,
    next: u64,
    epoch: u32,
    rules: LogRules,
    /// Sectors that were read ahead, with the number of their bytes that were returned already.
    ahead: IoBuf,
    used: usize,
    /// The number of bytes to read next.
    ask: u64,
    /// The LSN behind the sectors that were read.
    pub reach: Option<Lsn>,
    pub repaired: u64,
    pub stop: Option<Stop>,
}

impl<'d> Sectors<'d> {
    pub(crate) fn new(
        device: &'d Device,
        (ring, id, rules): (Ring, u32, LogRules),
        number: u64,
    ) -> Self {
        let (ahead, used) = (IoBuf::zeroed(0), 0);
        Sectors {
            device,
            ring,
            id,
            first: number,
            next: number,
            epoch: 0,
            rules,
            ahead,
            used,
            ask: READ_FIRST,
            reach: None,
            repaired: 0,
            stop: None,
        }
    }

    /// The bytes of the next sector, whether it belongs to the log or not.
    pub(crate) async fn raw(&mut self) -> Result<&[u8], LogError> {
        self.read_ahead().await?;
        let size = self.ring.sector as usize;
        self.next += 1;
        self.used += size;
        Ok(&self.ahead[self.used - size..self.used])
    }

    async fn read_ahead(&mut self) -> Result<(), LogError> {
        if self.used == self.ahead.len() {
            let most = (self.ask / self.ring.sector).max(1);
            self.ask = (2 * self.ask).min(READ_MAX);
            let count = self.ring.run(self.next, most);
            let len = (count * self.ring.sector) as usize;
            self.ahead = self.device.read(self.ring.byte(self.next), len).await?;
            self.used = 0;
        }
        Ok(())
    }

    /// The next sector of the log with its head; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<(SectorHead, &[u8])>, LogError> {
        if self.stop.is_some() {
            return Ok(None);
        }
        if self.next >= self.first + self.ring.sectors {
            self.stop = Some(Stop::Round);
            return Ok(None);
        }
        let lsn = self.ring.lsn(self.next);
        self.read_ahead().await?;
        let end = self.used + self.ring.sector as usize;
        let sector = &mut self.ahead[self.used..end];
        let expected = ExpectedSector { id: self.id, lsn, epoch: self.epoch, rules: self.rules };
        let mut head = SectorHead::read(sector);
        if head.is_none() && !self.rules.contains(LogRules::CHECKSUM) {
            head = SectorHead::read_unchecked(sector);
        } else if head.is_none() && expected.could_be(sector) {
            head = SectorHead::repair(sector);
            self.repaired += u64::from(head.as_ref().is_some_and(|head| expected.is(head)));
        }
        let Some(head) = head.filter(|head| expected.is(head)) else {
            self.stop = Some(Stop::Foreign);
            return Ok(None);
        };
        let skip = u64::from(head.skip);
        self.next += 1 + skip;
        self.used = (end + (skip * self.ring.sector) as usize).min(self.ahead.len());
        self.epoch = head.epoch;
        self.reach = Some(head.lsn + u64::from(head.used));
        if skip > 0 {
            self.reach = Some(self.ring.lsn(self.next));
        } else if u64::from(head.used) < self.ring.payload {
            self.stop = Some(Stop::Partial);
        }
        Ok(Some((head, &self.ahead[end - self.ring.sector as usize..end])))
    }

    /// The number of the next sector, and the epoch so far.
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.next, self.epoch)
    }
}

/// A reader of consecutive records.
pub struct Reader<'d> {
    sectors: Sectors<'d>,
    /// The payload that has been read, from `at` on.
    bytes: Vec<u8>,
    /// The number of payload bytes that were returned already.
    used: usize,
    at: Lsn,
    /// The LSN at which the log continues behind skipped sectors.
    jump: Option<Lsn>,
    time: u32,
}

impl<'d> Reader<'d> {
    pub(crate) fn new(device: &'d Device, log: (Ring, u32, LogRules), from: Lsn) -> Self {
        let sectors = Sectors::new(device, log, log.0.number(from));
        // The payload before the first record is dropped when its sector is read.
        Reader { sectors, bytes: Vec::new(), used: 0, at: from, jump: None, time: 0 }
    }

    /// A reader of a log that need not be mounted, described by its superblock. A record must begin
    /// at `from`.
    pub fn on(device: &'d Device, sb: &WafsSuper, from: Lsn) -> Self {
        Reader::new(device, (Ring::of(sb), sb.id, LogRules::all()), from)
    }

    pub(crate) fn sectors(&mut self) -> &mut Sectors<'d> {
        &mut self.sectors
    }

    /// The LSN at which the next record begins.
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// Continues behind the end that was reached, because another process may have written there
    /// since.
    pub fn again(&mut self) {
        let old = &self.sectors;
        let log = (old.ring, old.id, old.rules);
        let mut sectors = Sectors::new(old.device, log, old.ring.number(self.at));
        sectors.epoch = old.epoch;
        self.sectors = sectors;
        self.bytes.clear();
        self.used = 0;
    }

    /// The next record; `None` at the end of what is on the device.
    ///
    /// # Errors
    /// The device failed.
    #[allow(clippy::should_implement_trait, reason = "it is async")]
    pub async fn next(&mut self) -> Result<Option<WafsRecord>, LogError> {
        let owned = |RecordRef { lsn, end, time, bytes }: RecordRef<'_>| {
            let bytes = bytes.to_vec();
            WafsRecord { lsn, end, time, bytes }
        };
        Ok(self.step().await?.map(owned))
    }

    /// The next record in the reader's buffer; `None` at the end of what is on the device.
    ///
    /// # Errors
    /// The device failed.
    pub async fn step(&mut self) -> Result<Option<RecordRef<'_>>, LogError> {
        loop {
            let left = &self.bytes[self.used..];
            let whole = get_length(left).filter(|(len, size)| left.len() >= len + size);
            if let Some((len, size)) = whole {
                let lsn = self.at;
                self.used += size + len;
                self.at += (size + len) as u64;
                let bytes = &self.bytes[self.used - len..self.used];
                return Ok(Some(RecordRef { lsn, end: self.at, time: self.time, bytes }));
            }
            self.bytes.drain(..self.used);
            self.used = 0;
            if let Some(lsn) = self.jump.take() {
                self.bytes.clear();
                self.at = lsn;
            }
            let Some((head, sector)) = self.sectors.next().await? else { return Ok(None) };
            let payload = &sector[SectorHead::SIZE..][..usize::from(head.used)];
            let skip = self.at.saturating_sub(head.lsn).min(payload.len() as u64) as usize;
            let skip = if self.bytes.is_empty() { skip } else { 0 };
            self.bytes.extend_from_slice(&payload[skip..]);
            self.time = head.time;
            self.jump = if head.skip > 0 { self.sectors.reach } else { None };
        }
    }
}

impl Shared {
    /// The facts by which sectors of the log are recognised.
    fn known_by(&self) -> (Ring, u32, LogRules) {
        (self.ring, self.sb.borrow().id, self.options.rules)
    }
}

impl Wafs {
    /// Calls `each` with the durable records from `from` on, in order, as long as it returns true.
    /// A record must begin at `from`. Records in the [replay cache](crate::MountOptions::keep) are
    /// not read again.
    ///
    /// # Errors
    /// The device failed.
    pub async fn scan(
        &self,
        from: Lsn,
        each: &mut dyn FnMut(RecordRef<'_>) -> bool,
    ) -> Result<(), LogError> {
        let (mut from, durable) = (from, self.durable());
        for record in self.shared.kept.borrow().from(from) {
            if record.end > durable || !each(record) {
                return Ok(());
            }
            from = record.end;
        }
        if from >= durable {
            return Ok(());
        }
        let mut reader = self.reader(from);
        while let Some(record) = reader.step().await? {
            if record.end > durable || !each(record) {
                break;
            }
        }
        Ok(())
    }

    /// A reader of records from `lsn` on, where a record must begin, up to the present end on the
    /// device.
    pub fn reader(&self, lsn: Lsn) -> Reader<'_> {
        Reader::new(&self.shared.device, self.shared.known_by(), lsn)
    }

    /// The record that begins at `lsn`; it must be durable.
    ///
    /// # Errors
    /// No record begins there, or the device failed.
    pub async fn read(&self, lsn: Lsn) -> Result<WafsRecord, LogError> {
        let (start, end) = (self.start(), self.durable());
        let none = LogError::NoRecord { lsn, start, end };
        if lsn < start || lsn >= end || !self.is_record_start(lsn).await? {
            return Err(none);
        }
        let record = self.reader(lsn).next().await?;
        record.filter(|record| record.lsn == lsn && record.end <= end).ok_or(none)
    }

    /// Whether a record begins at `lsn`. The search starts at the first record of its sector, or of
    /// an earlier one.
    async fn is_record_start(&self, lsn: Lsn) -> Result<bool, LogError> {
        let shared = &self.shared;
        let ring = shared.ring;
        let oldest = ring.number(self.start());
        let mut number = ring.number(lsn);
        let from = loop {
            if number == oldest {
                break self.start();
            }
            let mut sectors = Sectors::new(&shared.device, shared.known_by(), number);
            let Some((head, _)) = sectors.next().await? else { return Ok(false) };
            let start = head.lsn + u64::from(head.first);
            if head.first != NO_RECORD && start <= lsn {
                break start;
            }
            number -= 1;
        };
        let mut reader = self.reader(from);
        while reader.at() < lsn {
            if reader.next().await?.is_none() {
                return Ok(false);
            }
        }
        Ok(reader.at() == lsn)
    }
}

//! A tap: shows every request to a device, with its contents, to sinks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ordo_runtime::{Runtime, Time};

use crate::spill::Spill;
use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// A request when it is sent to the device.
#[derive(Clone, Copy, Debug)]
pub struct Issued<'a> {
    /// The number, in order of issue, from 0.
    pub id: u64,
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
    /// The buffer of the data, if a sink may keep it.
    pub shared: Option<&'a Arc<IoBuf>>,
    /// The time of issue.
    pub at: Time,
    /// The number of flushes issued before. A flush has its own number.
    pub epoch: u64,
}

/// A request when it completes.
#[derive(Clone, Copy, Debug)]
pub struct Completed<'a> {
    /// The number, in order of issue.
    pub id: u64,
    /// The number in order of completion, from 0.
    pub order: u64,
    /// The kind of request.
    pub op: Operation,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The flags of a write.
    pub flags: WriteFlags,
    /// The data of a read.
    pub data: Option<&'a [u8]>,
    /// The time of issue.
    pub issued: Time,
    /// The time of completion.
    pub at: Time,
    /// The number of flushes issued before the completion. A write that completed in epoch `e` is
    /// durable once flush number `e`, or any later one, has completed.
    pub epoch: u64,
    /// The result.
    pub result: Result<(), BlockError>,
}

/// A watcher of a device. A request whose task is dropped, or which a crash interrupts, is issued
/// and never completed.
pub trait TapSink {
    /// A request is about to be sent.
    fn issued(&self, request: &Issued<'_>);
    /// A request has completed.
    fn completed(&self, request: &Completed<'_>);
}

impl<S: TapSink + ?Sized> TapSink for Rc<S> {
    fn issued(&self, request: &Issued<'_>) {
        (**self).issued(request);
    }
    fn completed(&self, request: &Completed<'_>) {
        (**self).completed(request);
    }
}

/// A device that shows its requests to any number of sinks.
pub struct Tap<D> {
    inner: D,
    runtime: Runtime,
    sinks: RefCell<Vec<Rc<dyn TapSink>>>,
    next_id: Cell<u64>,
    next_order: Cell<u64>,
    epoch: Cell<u64>,
    shares: Cell<bool>,
}

/// The fields that the two messages of a request share.
struct Ticket {
    id: u64,
    op: Operation,
    offset: u64,
    len: u64,
    flags: WriteFlags,
    issued: Time,
}

impl<D: BlockDevice> Tap<D> {
    /// Wraps `inner`, with no sinks yet.
    pub fn new(runtime: &Runtime, inner: D) -> Tap<D> {
        Tap {
            inner,
            runtime: runtime.clone(),
            sinks: RefCell::default(),
            next_id: Cell::new(0),
            next_order: Cell::new(0),
            epoch: Cell::new(0),
            shares: Cell::new(false),
        }
    }

    /// Sets whether sinks may keep the buffers of writes. The device beneath gets such a write as a
    /// list.
    pub fn share_buffers(&self, shares: bool) {
        self.shares.set(shares);
    }

    /// Attaches `sink`, which sees every request from now on.
    pub fn attach(&self, sink: Rc<dyn TapSink>) {
        self.sinks.borrow_mut().push(sink);
    }

    /// Detaches all sinks.
    pub fn detach_all(&self) {
        self.sinks.take();
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn each_sink(&self, show: impl Fn(&dyn TapSink)) {
        // A sink may attach another during the call, so the list is not borrowed and its length is
        // fixed.
        let count = self.sinks.borrow().len();
        for i in 0..count {
            let sink = self.sinks.borrow().get(i).cloned();
            if let Some(sink) = sink {
                show(&*sink);
            }
        }
    }

    fn issue(
        &self,
        op: Operation,
        offset: u64,
        len: u64,
        flags: WriteFlags,
        data: Option<&[u8]>,
        shared: Option<&Arc<IoBuf>>,
    ) -> Ticket {
        let id = self.next_id.replace(self.next_id.get() + 1);
        let (at, epoch) = (self.runtime.now(), self.epoch.get());
        let request = Issued { id, op, offset, len, flags, data, shared, at, epoch };
        self.each_sink(|sink| sink.issued(&request));
        if op == Operation::Flush {
            self.epoch.set(epoch + 1);
        }
        Ticket { id, op, offset, len, flags, issued: at }
    }

    fn complete(&self, ticket: &Ticket, data: Option<&[u8]>, result: Result<(), BlockError>) {
        let request = Completed {
            id: ticket.id,
            order: self.next_order.replace(self.next_order.get() + 1),
            op: ticket.op,
            offset: ticket.offset,
            len: ticket.len,
            flags: ticket.flags,
            data,
            issued: ticket.issued,
            at: self.runtime.now(),
            epoch: self.epoch.get(),
            result,
        };
        self.each_sink(|sink| sink.completed(&request));
    }
}

impl<D: BlockDevice> BlockDevice for Tap<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let flags = WriteFlags::empty();
        let ticket = self.issue(Operation::Read, offset, len as u64, flags, None, None);
        let result = self.inner.read(offset, len).await;
        let (data, status) = match &result {
            Ok(data) => (Some(&data[..]), Ok(())),
            Err(e) => (None, Err(*e)),
        };
        self.complete(&ticket, data, status);
        result
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let len = data.len() as u64;
        // A lent buffer must be copied by those that keep it.
        if self.shares.get() && data.memory_bytes() >= data.len() {
            let data = Arc::new(data);
            let (op, bytes) = (Operation::Write, Some(&data[..]));
            let ticket = self.issue(op, offset, len, flags, bytes, Some(&data));
            let mut list = IoList::with_capacity(1);
            list.push(data);
            let result = self.inner.write_list(offset, list, flags).await;
            self.complete(&ticket, None, result);
            return result;
        }
        let ticket = self.issue(Operation::Write, offset, len, flags, Some(&data), None);
        let result = self.inner.write(offset, data, flags).await;
        self.complete(&ticket, None, result);
        result
    }

    async fn flush(&self) -> Result<(), BlockError> {
        let ticket = self.issue(Operation::Flush, 0, 0, WriteFlags::empty(), None, None);
        let result = self.inner.flush().await;
        self.complete(&ticket, None, result);
        result
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let ticket = self.issue(Operation::Discard, offset, len, WriteFlags::empty(), None, None);
        let result = self.inner.discard(offset, len).await;
        self.complete(&ticket, None, result);
        result
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }
}

/// Contents that a [`Recorder`] keeps.
#[derive(Clone, Debug)]
pub enum KeptData {
    /// A copy.
    Copied(Arc<[u8]>),
    /// The buffer of the request itself.
    Shared(Arc<IoBuf>),
    /// Bytes in a file.
    Filed(Bytes),
}

impl KeptData {
    /// Keeps the buffer of a request, or a copy if there is none.
    pub fn of(data: &[u8], shared: Option<&Arc<IoBuf>>) -> KeptData {
        let copy = || KeptData::Copied(Arc::from(data));
        shared.map_or_else(copy, |buf| KeptData::Shared(buf.clone()))
    }

    /// The same bytes, which are not copied.
    pub fn bytes(&self) -> Bytes {
        match self {
            KeptData::Filed(bytes) => bytes.clone(),
            _ => Bytes::from_owner(self.clone()),
        }
    }
}

impl AsRef<[u8]> for KeptData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for KeptData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            KeptData::Copied(bytes) => bytes,
            KeptData::Shared(buf) => buf,
            KeptData::Filed(bytes) => bytes,
        }
    }
}

impl PartialEq for KeptData {
    fn eq(&self, other: &KeptData) -> bool {
        **self == **other
    }
}

impl Eq for KeptData {}

/// A request as a [`Recorder`] keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number, in order of issue.
    pub id: u64,
    /// The kind of request.
    pub op: Operation,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The flags of a write.
    pub flags: WriteFlags,
    /// The data that was written or read, if contents are kept.
    pub data: Option<KeptData>,
    /// The time of issue.
    pub issued: Time,
    /// The epoch of issue.
    pub issue_epoch: u64,
    /// The request's completion; `None` if it was interrupted.
    pub end: Option<RecordEnd>,
}

/// The end of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEnd {
    /// The number in order of completion.
    pub order: u64,
    /// The time of completion.
    pub at: Time,
    /// The epoch of completion: see [`Completed::epoch`].
    pub epoch: u64,
    /// The result.
    pub result: Result<(), BlockError>,
}

/// A sink that keeps every request, in order of issue.
pub struct Recorder {
    /// Whether the data of writes are kept, and whether those of reads are.
    contents: (bool, bool),
    /// The store of contents; without one, all are kept in memory.
    spill: Option<Arc<Spill>>,
    /// The number of records that are kept.
    most: usize,
    records: RefCell<VecDeque<Record>>,
    /// The id of the first record.
    first: Cell<u64>,
}

impl Recorder {
    /// A recorder of every request. `contents`: it keeps their data.
    pub fn new(contents: bool) -> Rc<Recorder> {
        Recorder::keeping((contents, contents), None)
    }

    /// A recorder of every request, which keeps the data of writes only, with `spill` if there is
    /// one.
    pub fn of_writes(spill: Option<Arc<Spill>>) -> Rc<Recorder> {
        Recorder::keeping((true, false), spill)
    }

    fn keeping(contents: (bool, bool), spill: Option<Arc<Spill>>) -> Rc<Recorder> {
        let (most, records, first) = (usize::MAX, RefCell::default(), Cell::new(0));
        Rc::new(Recorder { contents, spill, most, records, first })
    }

    /// A recorder that keeps the last `most` requests, without contents.
    pub fn last(most: usize) -> Rc<Recorder> {
        let (contents, records, first) = ((false, false), RefCell::default(), Cell::new(0));
        Rc::new(Recorder { contents, spill: None, most, records, first })
    }

    /// Takes the records so far. Requests still under way appear as interrupted.
    pub fn take(&self) -> Vec<Record> {
        self.records.take().into()
    }

    /// Calls `look` with the records so far.
    pub fn with<T>(&self, look: impl FnOnce(&[Record]) -> T) -> T {
        look(self.records.borrow_mut().make_contiguous())
    }

    fn keep(&self, data: &[u8], shared: Option<&Arc<IoBuf>>) -> KeptData {
        // A buffer that takes much more memory than its bytes is better copied.
        let is_tight = |buf: &&Arc<IoBuf>| buf.memory_bytes() < 2 * buf.len();
        let shared = shared.filter(is_tight);
        match &self.spill {
            Some(spill) => spill.keep(data, shared),
            None => KeptData::of(data, shared),
        }
    }
}

impl TapSink for Recorder {
    fn issued(&self, r: &Issued<'_>) {
        let mut records = self.records.borrow_mut();
        while records.len() >= self.most.max(1) {
            records.pop_front();
        }
        self.first.set(records.front().map_or(r.id, |first| first.id));
        records.push_back(Record {
            id: r.id,
            op: r.op,
            offset: r.offset,
            len: r.len,
            flags: r.flags,
            data: r.data.filter(|_| self.contents.0).map(|data| self.keep(data, r.shared)),
            issued: r.at,
            issue_epoch: r.epoch,
            end: None,
        });
    }

    fn completed(&self, r: &Completed<'_>) {
        let mut records = self.records.borrow_mut();
        let index = r.id.checked_sub(self.first.get()).and_then(|i| usize::try_from(i).ok());
        let Some(record) = index.and_then(|i| records.get_mut(i)).filter(|x| x.id == r.id) else {
            return;
        };
        record.end = Some(RecordEnd { order: r.order, at: r.at, epoch: r.epoch, result: r.result });
        if let Some(data) = r.data.filter(|_| self.contents.1) {
            record.data = Some(self.keep(data, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Executor;

    use super::*;
    use crate::model::{Model, Modeled};
    use crate::ram::RamDisk;

    /// A read, two writes at once and a flush on a disk with an arm: the sink must see contents,
    /// the order of issue and of completion, times and epochs as they were.
    #[test]
    fn every_request_is_shown_as_it_happened() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let model = Model::by_name("viking").unwrap();
        let disk = Rc::new(Tap::new(&rt, Modeled::new(&rt, model, RamDisk::new(1 << 30))));
        let recorder = Recorder::new(true);
        disk.attach(recorder.clone());
        // The arm starts at the outermost cylinder, so the nearer write, issued last, completes
        // first.
        for at in [900u64 << 20, 1 << 20] {
            let disk = disk.clone();
            rt.spawn("writer", async move {
                let data = IoBuf::from_slice(&[(at >> 20) as u8; 512]);
                disk.write(at, data, WriteFlags::SYNC).await.unwrap();
            });
        }
        executor.run_until_idle().unwrap();
        executor
            .block_on(async {
                disk.flush().await.unwrap();
                disk.read(1 << 20, 512).await.unwrap();
                disk.read(1, 512).await.unwrap_err();
                disk.discard(0, 4096).await.unwrap();
            })
            .unwrap();
        let records = recorder.take();
        let ends: Vec<_> = records.iter().map(|r| r.end.unwrap()).collect();
        let ops: Vec<_> = records.iter().map(|r| (r.id, r.op, r.issue_epoch)).collect();
        assert_eq!(
            ops,
            [
                (0, Operation::Write, 0),
                (1, Operation::Write, 0),
                (2, Operation::Flush, 0),
                (3, Operation::Read, 1),
                (4, Operation::Read, 1),
                (5, Operation::Discard, 1),
            ]
        );
        let orders: Vec<_> = ends.iter().map(|e| (e.order, e.epoch)).collect();
        assert_eq!(orders, [(1, 0), (0, 0), (2, 1), (3, 1), (4, 1), (5, 1)]);
        assert!(ends[0].at > ends[1].at && ends[1].at > records[0].issued);
        assert_eq!(records[1].flags, WriteFlags::SYNC);
        assert_eq!(records[1].data.as_deref(), Some(&[1; 512][..]));
        assert_eq!(records[3].data.as_deref(), Some(&[1; 512][..]));
        assert!(ends[4].result.is_err() && records[4].data.is_none());
    }

    /// A crash cuts a request off: issued, never completed; and its data is not on the device.
    #[test]
    fn a_crash_cuts_requests_off() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let ram = Rc::new(RamDisk::new(1 << 20));
        let model = Model::by_name("viking").unwrap();
        let disk = Rc::new(Tap::new(&rt, Modeled::new(&rt, model, ram.clone())));
        let recorder = Recorder::new(false);
        disk.attach(recorder.clone());
        let writer = disk.clone();
        rt.spawn("writer", async move {
            let data = IoBuf::from_slice(&[1; 512]);
            writer.write(0, data, WriteFlags::FUA).await.unwrap();
        });
        executor.block_on(rt.yield_now()).unwrap();
        drop(executor);
        let records = recorder.take();
        assert_eq!((records.len(), records[0].end, &records[0].data), (1, None, &None));
        assert!(ram.to_vec().iter().all(|b| *b == 0));
    }
}

//! A small journaling file system: clients that write and sync blocks, and a task that commits for
//! them: it writes the data of the blocks that wait, then the journal, then the commit block, as
//! jbd does in ordered mode. Every request is noted with its times and its meaning, as a trace has
//! them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_annotate::BlockRow;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_runtime::sync::Notify;
use ordo_runtime::time::Duration;
use ordo_runtime::{Executor, Runtime};
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::Class;

pub const DEVICE: u64 = 1 << 30;
/// The journal's length in bytes.
pub const JOURNAL: u64 = 16 << 20;
pub const BLOCK: u64 = 4096;

/// The behaviour of the file system.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub disk: &'static Model,
    pub journal_at: u64,
    pub journal_disk: Option<&'static Model>,
    /// Data goes into the journal.
    pub data: bool,
    /// The journal write does not wait for the data.
    pub overlap: bool,
    /// A flush before the commit block and one behind it.
    pub barriers: bool,
    pub clients: u64,
    /// The number of blocks that each client writes and syncs.
    pub syncs: u64,
    /// Processor time of a client between two syncs, in microseconds.
    pub think: u64,
}

impl Rules {
    pub fn new() -> Rules {
        let disk = Model::by_name("viking").unwrap();
        Rules {
            disk,
            journal_at: 1 << 20,
            journal_disk: None,
            data: false,
            overlap: false,
            barriers: true,
            clients: 1,
            syncs: 200,
            think: 700,
        }
    }
}

/// The notes of a run.
#[derive(Default)]
struct Notes {
    requests: Vec<TraceRequest>,
    rows: Vec<BlockRow>,
    flushes: u64,
    done: u64,
}

struct Fs {
    rules: Rules,
    runtime: Runtime,
    disk: Modeled<RamDisk>,
    journal: Option<Modeled<RamDisk>>,
    notes: RefCell<Notes>,
    head: Cell<u64>,
    transaction: Cell<u64>,
    /// Blocks whose clients wait for a commit, and the number of commits that are complete.
    waiting: RefCell<Vec<u64>>,
    committed: Cell<u64>,
    wanted: Notify,
    ended: Notify,
    left: Cell<u64>,
}

/// Runs the workload; the trace, its rows, and the seconds that it took.
pub fn run(rules: Rules) -> (Trace, Vec<BlockRow>, f64) {
    let executor = Executor::simulated(7);
    let runtime = executor.runtime();
    let disk = |model, bytes| Modeled::new(&runtime, model, RamDisk::new(bytes));
    let fs = Rc::new(Fs {
        rules,
        disk: disk(rules.disk, DEVICE),
        journal: rules.journal_disk.map(|model| disk(model, JOURNAL)),
        runtime: runtime.clone(),
        notes: RefCell::default(),
        head: Cell::new(0),
        transaction: Cell::new(1),
        waiting: RefCell::default(),
        committed: Cell::new(0),
        wanted: Notify::new("a block to commit", 0),
        ended: Notify::new("a commit", 0),
        left: Cell::new(rules.clients),
    });
    let (committer, clients) = (Rc::clone(&fs), Rc::clone(&fs));
    runtime.spawn_daemon("journal", async move { committer.commits().await });
    let all = async move {
        let each: Vec<_> = (0..rules.clients)
            .map(|n| {
                let fs = Rc::clone(&clients);
                clients.runtime.spawn("client", async move { fs.client(n).await })
            })
            .collect();
        for one in each {
            one.await;
        }
    };
    executor.block_on(all).unwrap();
    let notes = fs.notes.take();
    let seconds = notes.requests.iter().filter_map(|r| r.end).map(|end| end.at).max().unwrap();
    let begin = notes.requests[0].issued;
    let mut trace = Trace::new(512, true);
    notes.requests.into_iter().for_each(|request| trace.push(request));
    (trace, notes.rows, seconds.since(begin).as_secs_f64())
}

impl Fs {
    async fn client(&self, n: u64) {
        // Addresses from a small generator: the same for every rule, so that truth and prediction
        // have the same work.
        let mut at = 12_345 + n * 777;
        for _ in 0..self.rules.syncs {
            // Every client thinks for another time, so that transactions have different clients.
            let think = self.rules.think * (2 + n) / 2;
            self.runtime.sleep(Duration::from_micros(think)).await;
            at = (at * 1_103_515_245 + 12_345) % 2_147_483_648;
            let block = (64 << 20) + at % 30_000 * BLOCK;
            self.waiting.borrow_mut().push(block);
            // The commit that is under way may have begun without this block.
            let wanted = self.transaction.get() + 1;
            self.wanted.notify_one();
            while self.committed.get() < wanted - 1 {
                self.ended.notified().await;
            }
        }
        self.left.set(self.left.get() - 1);
    }

    async fn commits(&self) {
        loop {
            while self.waiting.borrow().is_empty() {
                self.wanted.notified().await;
            }
            let id = self.transaction.get();
            let blocks = self.waiting.take();
            self.transaction.set(id + 1);
            let count = blocks.len() as u64;
            let logged = if self.rules.data { 2 * count + 1 } else { count + 1 };
            let log = self.place(logged * BLOCK);
            let write =
                self.request(RequestOp::Write, log, logged * BLOCK, Class::JournalData, Some(id));
            let data = blocks.iter().filter(|_| !self.rules.data);
            let data =
                data.map(|b| self.request(RequestOp::Write, *b, BLOCK, Class::FileData, None));
            let mut requests: Vec<Waiting<'_>> = data.map(|f| Box::pin(f) as _).collect();
            if !self.rules.overlap {
                all(std::mem::take(&mut requests)).await;
            }
            requests.push(Box::pin(write));
            all(requests).await;
            if self.rules.barriers {
                self.request(RequestOp::Flush, 0, 0, Class::Unknown, None).await;
            }
            let commit = self.place(BLOCK);
            self.request(RequestOp::Write, commit, BLOCK, Class::JournalCommit, Some(id)).await;
            if self.rules.barriers {
                self.request(RequestOp::Flush, 1, 0, Class::Unknown, None).await;
            }
            self.committed.set(id);
            self.ended.notify_all();
        }
    }

    fn place(&self, len: u64) -> u64 {
        let head = if self.head.get() + len > JOURNAL { 0 } else { self.head.get() };
        self.head.set(head + len);
        self.rules.journal_at + head
    }

    /// A request, noted. The offset of a flush says which one it is: 0 before the commit block, 1
    /// behind it.
    async fn request(
        &self,
        op: RequestOp,
        offset: u64,
        len: u64,
        kind: Class,
        transaction: Option<u64>,
    ) {
        let number = {
            let mut notes = self.notes.borrow_mut();
            notes.flushes += u64::from(op == RequestOp::Flush);
            let epoch = notes.flushes - u64::from(op == RequestOp::Flush);
            let number = notes.requests.len();
            let flags = Flags::empty();
            let (at, issued) =
                (if op == RequestOp::Flush { 0 } else { offset }, self.runtime.now());
            notes.requests.push(TraceRequest {
                op,
                flags,
                offset: at,
                len,
                issued,
                epoch,
                end: None,
                data: None,
            });
            if op == RequestOp::Write {
                let place = (offset, len);
                notes
                    .rows
                    .push(BlockRow { transaction, ..BlockRow::new(number as u64, place, kind) });
            }
            number
        };
        let own = self.journal.as_ref();
        match op {
            RequestOp::Flush => {
                if own.is_none() || offset == 0 {
                    self.disk.flush().await.unwrap();
                }
                if let Some(journal) = own {
                    journal.flush().await.unwrap();
                }
            }
            _ => {
                let data = IoBuf::zeroed(len as usize);
                match own.filter(|_| transaction.is_some()) {
                    Some(journal) => {
                        let at = offset - self.rules.journal_at;
                        journal.write(at, data, WriteFlags::empty()).await.unwrap();
                    }
                    None => self.disk.write(offset, data, WriteFlags::empty()).await.unwrap(),
                }
            }
        }
        let mut notes = self.notes.borrow_mut();
        let (order, epoch) = (notes.done, notes.flushes);
        notes.done += 1;
        notes.requests[number].end =
            Some(RequestEnd { order, at: self.runtime.now(), epoch, ok: true });
    }
}

type Waiting<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Waits for several requests at once.
async fn all(mut requests: Vec<Waiting<'_>>) {
    std::future::poll_fn(|cx| {
        requests.retain_mut(|request| request.as_mut().poll(cx).is_pending());
        match requests.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

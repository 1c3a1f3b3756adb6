//! A mail server: messages arrive around the clock, are queued durably, delivered into mailboxes or
//! passed on, and read.
//!
//! "Soft Updates" (2000), section 4.3, counts the disk writes of a mail server in 24 hours, but
//! publishes neither its load nor its programs. Here a message takes the steps of sendmail and
//! procmail, as a recording of both shows them (`crates/lab/figures/recordings`): a data file
//! (`df`) and a control file (`qf`) are written, both with an fsync, before the message is
//! accepted; then it is delivered into the user's mailbox under a lock file, which is made under
//! another name and linked, or it goes to another host; then both files are removed. The rate, the
//! lengths, and the shares of messages that are passed on and read are Ordo's own.

use std::cell::{Cell, RefCell};
use std::fmt;

use ordo_runtime::sync::{Mutex, buffer_unordered};
use ordo_runtime::{Runtime, Time};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode, SetAttr};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, create};
use super::tally::Tally;
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The bytes of one call of a program.
const UNIT: usize = 8192;
/// The mean length of a message in bytes, and the longest one.
const MESSAGE: f64 = 4096.0;
const MESSAGE_MOST: u64 = 128 << 10;
/// The bytes of a control file, and of a line of the log.
const CONTROL: u64 = 700;
const LOG_LINE: u64 = 180;
/// The percentage of messages for other hosts.
const PASSED_ON: u32 = 30;
/// The bytes that sendmail gathers before it writes a data file.
const GATHERED: u64 = 4096;
/// The most messages that are worked on at once.
const PROCESSES: usize = 32;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// The length of the run in minutes.
    pub minutes: u64,
    /// The mean number of messages a minute.
    pub messages: u64,
    /// The number of mailboxes.
    pub users: u64,
    /// The percentage of deliveries after which the user reads the mailbox and empties it.
    pub read: u64,
    /// Whether the queue's directory is made durable when a name leaves it, as sendmail does on
    /// Linux.
    pub sync_directories: bool,
}

/// The kinds of work that are counted.
const KINDS: [&str; 4] = ["accept", "deliver", "pass on", "read"];

impl MailServer {
    /// A day with 120 messages a minute.
    pub const DAY: MailServer = MailServer {
        minutes: 24 * 60,
        messages: 120,
        users: 500,
        read: 20,
        sync_directories: false,
    };

    pub(super) fn describe(&self) -> String {
        let MailServer { minutes, messages, users, .. } = self;
        format!(
            "a mail server: {messages} messages a minute for {minutes} minutes, {users} mailboxes"
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        // A mailbox has five messages on average, and a message may be longer for a while; the log
        // grows.
        self.users * 10 * MESSAGE as u64 + self.minutes * self.messages * 3 * LOG_LINE + (16 << 20)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let bytes = Bytes::new(seed, MESSAGE_MOST as usize);
        run.begin("mailboxes", self.users);
        let spool = Spool::create(run.fs(), self.users).await;
        let spool = spool.doing(|| "creating the spool".into())?;
        run.fs().sync().await.doing(|| "making the spool durable".into())?;
        run.log.made(self.users);
        run.end();

        let total = self.minutes * self.messages;
        run.begin("mail", total);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let server = Server {
            fs,
            runtime,
            spool: &spool,
            bytes: &bytes,
            sync_directories: self.sync_directories,
            logged: Default::default(),
            counts: RefCell::default(),
        };
        let log = RefCell::new(&mut run.log);
        let arrivals = Arrivals {
            next: runtime.now(),
            end: Time::from_nanos(runtime.now().as_nanos() + self.minutes * 60_000_000_000),
            gap: 60e9 / self.messages as f64,
            random: Pcg64Mcg::seed_from_u64(seed),
            users: self.users,
            read: self.read,
        };
        let start = runtime.now();
        let length = arrivals.end.as_nanos() - start.as_nanos();
        let messages = arrivals.zip(1..).map(|(message, number)| {
            let (server, log) = (&server, &log);
            async move {
                runtime.sleep_until(message.at).await;
                let done = server.message(number, &message).await;
                done.doing(|| format!("message {number}"))?;
                let share = (message.at.as_nanos() - start.as_nanos()) / 1_000_000;
                let (operations, bytes) = Tally::all(&*server.counts.borrow());
                log.borrow_mut().reached_share(operations, bytes, (share, length / 1_000_000));
                Ok::<_, WorkloadError>(())
            }
        });
        buffer_unordered(PROCESSES, messages, |_, result| result).await?;
        let counts = server.counts.into_inner();
        run.log.made(2 * counts[0].operations);
        run.log.mix(KINDS.iter().zip(counts).map(|(name, tally)| tally.entry(*name)).collect());
        run.end();
        Ok(())
    }
}

/// A message that arrives.
struct Message {
    at: Time,
    length: u64,
    /// The user's number; `None` for another host.
    to: Option<usize>,
    is_read: bool,
}

/// The arrivals, with exponential times between them.
struct Arrivals {
    next: Time,
    end: Time,
    /// The mean time between two, in nanoseconds.
    gap: f64,
    random: Pcg64Mcg,
    users: u64,
    /// The percentage of deliveries after which the mailbox is read.
    read: u64,
}

impl Iterator for Arrivals {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let exponential = |random: &mut Pcg64Mcg| -libm::log(1.0 - random.random::<f64>());
        let after = (self.gap * exponential(&mut self.random)) as u64;
        self.next = Time::from_nanos(self.next.as_nanos() + after);
        let random = &mut self.random;
        let length = (MESSAGE * exponential(random)) as u64;
        let is_local = random.random_range(0..100) >= PASSED_ON;
        let message = Message {
            at: self.next,
            length: length.clamp(200, MESSAGE_MOST),
            to: is_local.then_some(random.random_range(0..self.users) as usize),
            is_read: random.random_range(0..100) < self.read,
        };
        (self.next < self.end).then_some(message)
    }
}

/// A mailbox: its file, and the bytes in it. Programs take turns by a lock file.
struct Mailbox {
    ino: Ino,
    length: Mutex<u64>,
}

/// The directories and files of the server.
struct Spool {
    queue: Ino,
    mail: Ino,
    log: Ino,
    /// procmail's log.
    deliveries: Ino,
    mailboxes: Vec<Mailbox>,
}

impl Spool {
    async fn create<F: FileSystem>(fs: &F, users: u64) -> FsResult<Spool> {
        let new = NewNode::directory(0o755);
        let queue = fs.create(fs.root(), b"mqueue", &new).await?.ino;
        let mail = fs.create(fs.root(), b"mail", &new).await?.ino;
        let log = fs.create(fs.root(), b"maillog", &NewNode::file(0o644)).await?.ino;
        let deliveries = fs.create(fs.root(), b"procmail.log", &NewNode::file(0o644)).await?.ino;
        let mut mailboxes = Vec::new();
        for user in 0..users {
            let made = create(fs, mail, format!("user{user}").as_bytes(), &[], UNIT).await?;
            mailboxes.push(Mailbox { ino: made.ino, length: Mutex::new(0, "a mailbox", user) });
        }
        Ok(Spool { queue, mail, log, deliveries, mailboxes })
    }
}

/// The server at work.
struct Server<'r, F> {
    fs: &'r F,
    runtime: &'r Runtime,
    spool: &'r Spool,
    bytes: &'r Bytes,
    sync_directories: bool,
    /// The bytes of the log, and of procmail's.
    logged: [Cell<u64>; 2],
    /// The counts of each kind.
    counts: RefCell<[Tally; KINDS.len()]>,
}

impl<F: FileSystem> Server<'_, F> {
    fn count(&self, kind: usize, bytes: u64, begun: Time) {
        let nanos = self.runtime.now().as_nanos() - begun.as_nanos();
        self.counts.borrow_mut()[kind].add(bytes, nanos);
    }

    /// A message from its arrival until it is out of the queue.
    async fn message(&self, number: u64, message: &Message) -> FsResult<()> {
        let begun = self.runtime.now();
        self.accept(number, message.length).await?;
        self.count(0, message.length + CONTROL, begun);
        let begun = self.runtime.now();
        let (data, control) = (format!("df{number:08}"), format!("qf{number:08}"));
        let queue = self.spool.queue;
        files::read(self.fs, queue, data.as_bytes(), UNIT, &mut |_, _| {}).await?;
        if let Some(user) = message.to {
            self.deliver(user, message.length, number).await?;
        }
        self.write_log(0).await?;
        for name in [data, control] {
            self.fs.unlink(queue, name.as_bytes()).await?;
            if self.sync_directories {
                self.fs.open(queue).await?;
                let durable = self.fs.fsync(queue).await;
                self.fs.close(queue).await?;
                durable?;
            }
        }
        self.count(if message.to.is_some() { 1 } else { 2 }, message.length, begun);
        if let Some(user) = message.to.filter(|_| message.is_read) {
            let begun = self.runtime.now();
            let bytes = self.read(user, number).await?;
            self.count(3, bytes, begun);
        }
        Ok(())
    }

    /// Puts a message into the queue. It is accepted when both of its files are durable.
    async fn accept(&self, number: u64, length: u64) -> FsResult<()> {
        let (fs, queue, text) = (self.fs, self.spool.queue, self.bytes.get(length));
        let data = format!("df{number:08}");
        let made = fs.create(queue, data.as_bytes(), &NewNode::file(0o600)).await?;
        fs.open(made.ino).await?;
        let written = self.write_data(made.ino, text).await;
        fs.close(made.ino).await?;
        written?;
        let (control, text) = (format!("qf{number:08}"), self.bytes.get(CONTROL));
        let made = create(fs, queue, control.as_bytes(), text, UNIT).await?;
        fs.fsync(made.ino).await?;
        self.write_log(0).await
    }

    /// Writes a message's data file, durably. What does not fit into sendmail's memory is written
    /// first.
    async fn write_data(&self, file: Ino, text: &[u8]) -> FsResult<()> {
        let gathered = text.len().min(GATHERED as usize);
        if text.len() > gathered {
            self.fs.setattr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).await?;
            files::write(self.fs, file, GATHERED, &text[gathered..], UNIT).await?;
        }
        files::write(self.fs, file, 0, &text[..gathered], UNIT).await?;
        self.fs.fsync(file).await
    }

    /// Appends a message to a mailbox, durably, under its lock file.
    async fn deliver(&self, user: usize, length: u64, number: u64) -> FsResult<()> {
        let (fs, mailbox) = (self.fs, &self.spool.mailboxes[user]);
        let held = mailbox.length.lock().await;
        fs.open(self.spool.deliveries).await?;
        let lock = self.lock(user, number).await?;
        fs.open(mailbox.ino).await?;
        let end = *held.get();
        let written = files::write(fs, mailbox.ino, end, self.bytes.get(length), UNIT).await;
        *held.get_mut() = end + length;
        let durable = fs.fsync(mailbox.ino).await;
        fs.close(mailbox.ino).await?;
        written.and(durable)?;
        fs.unlink(self.spool.mail, lock.as_bytes()).await?;
        self.write_log(1).await?;
        fs.close(self.spool.deliveries).await
    }

    /// Reads a mailbox and empties it, under its lock file. Returns its bytes.
    async fn read(&self, user: usize, number: u64) -> FsResult<u64> {
        let mailbox = &self.spool.mailboxes[user];
        let held = mailbox.length.lock().await;
        let lock = self.lock(user, number).await?;
        let name = format!("user{user}");
        let mail = self.spool.mail;
        let bytes = files::read(self.fs, mail, name.as_bytes(), UNIT, &mut |_, _| {}).await?;
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        self.fs.setattr(mailbox.ino, &empty).await?;
        *held.get_mut() = 0;
        self.fs.unlink(mail, lock.as_bytes()).await?;
        Ok(bytes)
    }

    /// Makes a lock file: under a name of its own, which is linked to the lock's name, so that only
    /// one program succeeds.
    async fn lock(&self, user: usize, number: u64) -> FsResult<String> {
        let (fs, mail) = (self.fs, self.spool.mail);
        let (own, name) = (format!("_{number:08}.{user}"), format!("user{user}.lock"));
        let made = create(fs, mail, own.as_bytes(), self.bytes.get(1), UNIT).await?;
        fs.link(made.ino, mail, name.as_bytes()).await?;
        fs.unlink(mail, own.as_bytes()).await?;
        Ok(name)
    }

    /// Appends a line to a log: sendmail's, or procmail's.
    async fn write_log(&self, log: usize) -> FsResult<()> {
        let at = self.logged[log].get();
        self.logged[log].set(at + LOG_LINE);
        let file = [self.spool.log, self.spool.deliveries][log];
        files::write(self.fs, file, at, self.bytes.get(LOG_LINE), UNIT).await
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == MailServer::DAY {
            return write!(f, "mail-server");
        }
        let MailServer { minutes, messages, users, read, sync_directories } = self;
        write!(f, "mail-server:minutes={minutes},messages={messages},users={users},read={read}")?;
        f.write_str(if *sync_directories { ",sync-directories=yes" } else { "" })
    }
}

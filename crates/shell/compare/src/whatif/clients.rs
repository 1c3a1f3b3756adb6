//! Clients that write and sync, and whose calls are recorded.

use ordo_annotate::calls::StoredCall;
use ordo_ffs::FastFs;
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The work of one client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TaskKind {
    /// Overwrites random aligned pieces of its file, each with an fsync.
    Random {
        /// The length of a piece in bytes.
        len: u64,
        /// The number of pieces.
        syncs: u64,
        /// The pause before each.
        pause: Duration,
    },
    /// Overwrites random aligned pieces of its file, and syncs nothing.
    Scattered {
        /// The length of a piece in bytes.
        len: u64,
        /// The number of pieces.
        count: u64,
        /// The pause before each.
        pause: Duration,
    },
    /// Changes records in pages of its file, and appends to the end of it, as TPC-B's transactions
    /// do.
    Records {
        /// The number of pages of which a transaction changes one record each.
        pages: u64,
        /// The bytes of each record.
        record: u64,
        /// The bytes that are appended to a log in the file's last part, which is written around.
        log: u64,
        /// The number of transactions.
        transactions: u64,
    },
    /// By turns a part in order and random pieces: a mixed stream.
    Mixed {
        /// The rounds, each with one fsync of [`MIXED_RUN`] bytes in order and [`MIXED_PIECES`] of
        /// 4 KB.
        rounds: u64,
    },
}

/// Bytes in order in one round of [`TaskKind::Mixed`].
pub const MIXED_RUN: u64 = 1 << 20;
/// Random pieces in one round of [`TaskKind::Mixed`], which become durable together.
pub const MIXED_PIECES: u64 = 16;
/// The time of a program between two transactions on records. Without any, its next write of the
/// log is always the nearest request for the arm of a disk, which then leaves all others waiting
/// for a minute.
const THINK: Duration = Duration::from_micros(100);
/// The last part of a file of records, in bytes, which has the log.
const LOG_PART: u64 = 1 << 20;

/// Clients, each with a file of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncClients {
    /// The work of each.
    pub tasks: Vec<TaskKind>,
    /// The size of each file in bytes.
    pub file_bytes: u64,
    /// Directories with a file each. They spread over the disk, and the clients use the files in
    /// these places, in the order of the disk. The default is a file in one directory for each
    /// client.
    pub spread: Option<(u64, u64)>,
}

impl SyncClients {
    /// The same work for each of some clients.
    pub fn alike(count: usize, kind: TaskKind, file_bytes: u64) -> SyncClients {
        SyncClients { tasks: vec![kind; count], file_bytes, spread: None }
    }

    fn files(&self) -> u64 {
        self.spread.map_or(self.tasks.len() as u64, |(files, _)| files)
    }

    /// Makes the files.
    pub(super) async fn prepare(&self, fs: &FastFs) {
        let piece = vec![1; 1 << 20];
        for n in 0..self.files() {
            let mut dir = fs.root();
            if self.spread.is_some() {
                let name = format!("d{n}").into_bytes();
                dir = fs.create(dir, &name, &NewNode::directory(0o755)).await.expect("space").ino;
            }
            let file = fs.create(dir, &name(n), &NewNode::file(0o644)).await.expect("space").ino;
            for at in (0..self.file_bytes).step_by(piece.len()) {
                let len = (self.file_bytes - at).min(piece.len() as u64) as usize;
                let done = fs.write(file, at, &piece[..len]).await;
                assert_eq!(done.expect("space"), len, "a file of {} bytes", self.file_bytes);
            }
        }
    }

    async fn file(&self, fs: &FastFs, task: usize) -> Ino {
        let at = self.spread.map_or(task as u64, |(_, first)| first + task as u64);
        let mut dir = fs.root();
        if self.spread.is_some() {
            // Directories lie in groups in the order of their first files' blocks.
            let mut places = Vec::new();
            for n in 0..self.files() {
                let dir = fs.lookup(fs.root(), format!("d{n}").as_bytes()).await.expect("made").ino;
                let file = fs.lookup(dir, &name(n)).await.expect("made").ino;
                let extents = fs.extents(file).await.expect("a disk in memory");
                places.push((extents.first().map(|e| e.address), n, dir));
            }
            places.sort_unstable();
            let (_, n, place) = places[(at % self.files()) as usize];
            dir = place;
            return fs.lookup(dir, &name(n)).await.expect("made").ino;
        }
        fs.lookup(dir, &name(at)).await.expect("made").ino
    }

    /// Reads every file that is used, so that nothing has to be read later.
    pub(super) async fn warm(&self, fs: &FastFs) {
        let mut piece = vec![0; 1 << 20];
        for task in 0..self.tasks.len() {
            let file = self.file(fs, task).await;
            for at in (0..self.file_bytes).step_by(piece.len()) {
                fs.read(file, at, &mut piece).await.expect("a disk in memory");
            }
        }
    }

    /// The work of one client. Returns its calls.
    pub(super) async fn run(
        &self,
        rt: &Runtime,
        fs: &FastFs,
        task: usize,
        seed: u64,
    ) -> Vec<StoredCall> {
        let file = self.file(fs, task).await;
        let random = Pcg64Mcg::seed_from_u64(seed << 8 | task as u64);
        let mut one = One { rt, fs, file, task, calls: Vec::new(), random, number: 0 };
        let size = self.file_bytes;
        match self.tasks[task] {
            TaskKind::Random { len, syncs, pause } => {
                for _ in 0..syncs {
                    if !pause.is_zero() {
                        rt.sleep(pause).await;
                    }
                    one.random_piece(size, len).await;
                    one.sync().await;
                }
            }
            TaskKind::Scattered { len, count, pause } => {
                for _ in 0..count {
                    rt.sleep(pause).await;
                    one.random_piece(size, len).await;
                }
            }
            TaskKind::Records { pages, record, log, transactions } => {
                one.records((size, pages, record, log), transactions).await;
            }
            TaskKind::Mixed { rounds } => {
                for round in 0..rounds {
                    one.write(round * MIXED_RUN % (size / 2), MIXED_RUN).await;
                    one.sync().await;
                    for _ in 0..MIXED_PIECES {
                        one.random_piece(size, 4096).await;
                    }
                    one.sync().await;
                }
            }
        }
        one.calls
    }
}

fn name(n: u64) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

/// A client at work.
struct One<'a> {
    rt: &'a Runtime,
    fs: &'a FastFs,
    file: Ino,
    task: usize,
    calls: Vec<StoredCall>,
    random: Pcg64Mcg,
    /// The number of writes so far, which makes contents differ.
    number: u64,
}

impl One<'_> {
    async fn random_piece(&mut self, size: u64, len: u64) {
        let at = self.random.random_range(0..size / len) * len;
        self.write(at, len).await;
    }

    async fn records(&mut self, (size, pages, record, log): (u64, u64, u64, u64), count: u64) {
        let tables = size - LOG_PART;
        let mut at = 0;
        for _ in 0..count {
            for n in 0..pages {
                // The later tables are small: their pages change again and again.
                let of_table = (tables >> (3 * n).min(12)).max(4096) / 4096;
                let page = self.random.random_range(0..of_table);
                let slot = self.random.random_range(0..4096 / record);
                self.write(page * 4096 + slot * record, record).await;
            }
            if log > 0 {
                self.write(tables + at % (LOG_PART - log), log).await;
                at += log;
            }
            self.sync().await;
            self.rt.sleep(THINK).await;
        }
    }

    async fn write(&mut self, offset: u64, len: u64) {
        self.number += 1;
        let began = self.rt.now().as_nanos();
        // No byte is as it was.
        let fill = (self.number % 251) as u8 + 1;
        let done = self.fs.write(self.file, offset, &vec![fill; len as usize]).await;
        assert_eq!(done.expect("a disk in memory"), len as usize);
        self.note("pwrite64", began, Some((offset, len)));
    }

    async fn sync(&mut self) {
        let began = self.rt.now().as_nanos();
        self.fs.fsync(self.file).await.expect("a disk in memory");
        self.note("fsync", began, None);
    }

    fn note(&mut self, name: &str, began: u64, range: Option<(u64, u64)>) {
        self.calls.push(StoredCall {
            process: self.task as u64,
            name: name.to_owned(),
            inode: Some(self.file.0),
            offset: range.map(|range| range.0),
            len: range.map(|range| range.1),
            began,
            ended: self.rt.now().as_nanos(),
            ..StoredCall::default()
        });
    }
}

//! Transactions like those of TPC-B: each changes a random account, its teller and its branch,
//! appends to a history, and is durable when its record in a log is.
//!
//! Contents are pages that a program changes in place. The log is one file that is written around,
//! as databases do; pages reach the disk when the file system writes them. With a pool, the
//! database has a cache of its own, an index of the accounts whose leaf changes with each account,
//! a log of whole pages, and a checkpoint at the end, as PostgreSQL under pgbench.

use std::fmt;

use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, size};
use super::pool::{self, Page, Pool};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The size of a page in bytes.
const PAGE: u64 = 8192;
/// The number of bytes of a record in an account's, teller's or branch's page.
const RECORD: u64 = 100;
/// The number of bytes that a transaction appends to the history.
const HISTORY: u64 = 50;
/// The number of bytes of a transaction's record in the log.
const LOG_RECORD: u64 = 512;
/// The number of bytes of the log, which is written around.
const LOG: u64 = 4 << 20;
/// The pages of accounts for each leaf of their index.
const PAGES_OF_LEAF: u64 = 6;
/// The number of pages of tellers, and of branches.
const TELLERS: u64 = 16;
const BRANCHES: u64 = 2;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tpcb {
    /// The number of bytes of accounts.
    pub accounts: u64,
    /// The number of transactions before the measured ones.
    pub warm: u64,
    /// The number of transactions that are measured.
    pub transactions: u64,
    /// The number of transactions that become durable together.
    pub commit: u64,
    /// The bytes of the database's own cache of pages; 0 leaves caching to the file system.
    pub pool: u64,
}

struct Tables {
    accounts: Ino,
    tellers: Ino,
    branches: Ino,
    history: Ino,
    /// The index of the accounts, if the database has a pool.
    index: Option<Ino>,
    log: Ino,
}

/// The database at work.
struct Database<'t> {
    tables: &'t Tables,
    data: &'t Bytes,
    random: Pcg64Mcg,
    pool: Pool,
    /// The bytes that were appended to the log.
    logged: u64,
}

impl Tpcb {
    /// 128 MB of accounts, each transaction durable by itself.
    pub const USUAL: Tpcb =
        Tpcb { accounts: 128 << 20, warm: 10_000, transactions: 10_000, commit: 1, pool: 0 };

    pub(super) fn describe(&self) -> String {
        format!(
            "{} transactions like TPC-B's on {} of accounts, {} durable together",
            self.transactions,
            size(self.accounts),
            self.commit
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.accounts + LOG + (self.warm + self.transactions) * HISTORY
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let data = Bytes::new(seed, LOG as usize);
        let tables = self.load(run, &data).await?;
        let mut database = Database {
            tables: &tables,
            data: &data,
            random: Pcg64Mcg::seed_from_u64(seed),
            pool: Pool::new(self.pool / PAGE),
            logged: 0,
        };
        let mut done = 0;
        for (phase, count) in [("settle", self.warm), ("transactions", self.transactions)] {
            if count == 0 {
                continue;
            }
            run.begin(phase, count);
            for _ in 0..count {
                let one = self.transaction(run.fs(), &mut database, done).await;
                one.doing(|| format!("transaction {done}"))?;
                done += 1;
                run.step(3 * RECORD + HISTORY + LOG_RECORD);
            }
            database.checkpoint(run.fs()).await.doing(|| "the checkpoint".into())?;
            run.end();
        }
        Ok(())
    }

    async fn load<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        data: &Bytes,
    ) -> Result<Tables, WorkloadError> {
        run.begin("load", self.accounts / LOG);
        let root = run.fs().root();
        let mut all = Vec::new();
        let index = (self.pool > 0).then_some((&b"index"[..], self.leaves() * PAGE));
        let tables: [(&[u8], u64); 5] = [
            (b"accounts", self.accounts),
            (b"tellers", TELLERS * PAGE),
            (b"branches", BRANCHES * PAGE),
            (b"history", 0),
            (b"log", LOG),
        ];
        for (name, bytes) in tables.into_iter().chain(index) {
            let made = run.fs().create(root, name, &NewNode::file(0o644)).await;
            let ino = made.doing(|| format!("making {}", name.escape_ascii()))?.ino;
            for at in (0..bytes).step_by(LOG as usize) {
                let piece = data.get((bytes - at).min(LOG));
                let written = files::write(run.fs(), ino, at, piece, 64 << 10).await;
                written.doing(|| format!("filling {}", name.escape_ascii()))?;
                run.step(piece.len() as u64);
            }
            all.push(ino);
        }
        run.log.made(all.len() as u64);
        run.end();
        run.drop_caches().await?;
        let index = (self.pool > 0).then(|| all.pop()).flatten();
        let [accounts, tellers, branches, history, log] = all[..] else {
            unreachable!("five files were made besides the index")
        };
        Ok(Tables { accounts, tellers, branches, history, index, log })
    }

    /// The leaves of the accounts' index.
    fn leaves(&self) -> u64 {
        (self.accounts / PAGE / PAGES_OF_LEAF).max(1)
    }

    async fn transaction<F: FileSystem>(
        &self,
        fs: &F,
        database: &mut Database<'_>,
        number: u64,
    ) -> FsResult<()> {
        let (tables, data) = (database.tables, database.data);
        let (pages, keeps) = ((self.accounts / PAGE).max(1), database.pool.keeps());
        let mut record = LOG_RECORD;
        for (table, pages) in
            [(tables.accounts, pages), (tables.tellers, TELLERS), (tables.branches, BRANCHES)]
        {
            let page = database.random.random_range(0..pages);
            record += database.change(fs, (table, page)).await?;
            if let Some(index) = tables.index.filter(|_| table == tables.accounts) {
                record += database.change(fs, (index, page % self.leaves())).await?;
            }
        }
        if keeps {
            record += database.change(fs, (tables.history, number * HISTORY / PAGE)).await?;
            database.append(fs, record).await?;
        } else {
            let line = data.get(LOG_RECORD);
            let history = &line[..HISTORY as usize];
            files::write(fs, tables.history, number * HISTORY, history, HISTORY as usize).await?;
            let at = number * LOG_RECORD % LOG;
            files::write(fs, tables.log, at, line, LOG_RECORD as usize).await?;
        }
        if number % self.commit == self.commit - 1 {
            fs.fdatasync(tables.log).await?;
        }
        Ok(())
    }
}

impl Database<'_> {
    /// Changes a record of a page. Returns the bytes of the page that belong into the log.
    async fn change<F: FileSystem>(&mut self, fs: &F, page: Page) -> FsResult<u64> {
        let needed = self.pool.touch(page, true);
        if let Some(evicted) = needed.evicted {
            pool::write(fs, evicted, self.data.get(PAGE)).await?;
        }
        let (table, offset) = (page.0, page.1 * PAGE);
        let mut bytes = vec![0; PAGE as usize];
        if needed.is_read {
            fs.read(table, offset, &mut bytes).await?;
        }
        let at = self.random.random_range(0..PAGE / RECORD) * RECORD;
        if needed.is_written {
            let record = &mut bytes[at as usize..(at + RECORD) as usize];
            record.fill(record[0].wrapping_add(1));
            files::write(fs, table, offset, &bytes, PAGE as usize).await?;
        }
        Ok(if needed.is_logged { PAGE } else { 0 })
    }

    /// Appends a record to the log, in whole pages: the one that is begun is written again.
    async fn append<F: FileSystem>(&mut self, fs: &F, record: u64) -> FsResult<()> {
        let (from, to) = (self.logged / PAGE * PAGE, (self.logged + record).next_multiple_of(PAGE));
        self.logged += record;
        let at = if from % LOG + (to - from) > LOG { 0 } else { from % LOG };
        let bytes = self.data.get(to - from);
        files::write(fs, self.tables.log, at, bytes, bytes.len()).await
    }

    /// Writes the changed pages of the pool, and makes the tables durable.
    async fn checkpoint<F: FileSystem>(&mut self, fs: &F) -> FsResult<()> {
        pool::write_out(fs, self.pool.checkpoint(), self.data.get(PAGE)).await
    }
}

impl fmt::Display for Tpcb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Tpcb::USUAL {
            return write!(f, "tpcb");
        }
        let Tpcb { accounts, warm, transactions, commit, pool } = self;
        write!(
            f,
            "tpcb:accounts={accounts},warm={warm},transactions={transactions},commit={commit}"
        )?;
        if *pool > 0 { write!(f, ",pool={pool}") } else { Ok(()) }
    }
}

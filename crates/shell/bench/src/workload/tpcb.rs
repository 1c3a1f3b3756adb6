//! Transactions like those of TPC-B: each changes a random account, its teller and its branch, appends to a
//! history, and is durable when its record in a log is.
//!
//! Contents are pages that a program changes in place. The log is one file that is written around, as databases do;
//! pages reach the disk when the file system writes them.

use std::fmt;

use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, size};
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
}

struct Tables {
    accounts: Ino,
    tellers: Ino,
    branches: Ino,
    history: Ino,
    log: Ino,
}

impl Tpcb {
    /// 128 MB of accounts, each transaction durable by itself.
    pub const USUAL: Tpcb =
        Tpcb { accounts: 128 << 20, warm: 10_000, transactions: 10_000, commit: 1 };

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
        let (mut random, mut done) = (Pcg64Mcg::seed_from_u64(seed), 0);
        for (phase, count) in [("settle", self.warm), ("transactions", self.transactions)] {
            if count == 0 {
                continue;
            }
            run.begin(phase, count);
            for _ in 0..count {
                let one = self.transaction(run.fs(), &tables, &mut random, (done, &data)).await;
                one.doing(|| format!("transaction {done}"))?;
                done += 1;
                run.step(3 * RECORD + HISTORY + LOG_RECORD);
            }
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
        let tables: [(&[u8], u64); 5] = [
            (b"accounts", self.accounts),
            (b"tellers", TELLERS * PAGE),
            (b"branches", BRANCHES * PAGE),
            (b"history", 0),
            (b"log", LOG),
        ];
        for (name, bytes) in tables {
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
        let [accounts, tellers, branches, history, log] = all[..] else {
            unreachable!("five tables were made")
        };
        Ok(Tables { accounts, tellers, branches, history, log })
    }

    async fn transaction<F: FileSystem>(
        &self,
        fs: &F,
        tables: &Tables,
        random: &mut Pcg64Mcg,
        (number, data): (u64, &Bytes),
    ) -> ordo_vfs::FsResult<()> {
        let pages = (self.accounts / PAGE).max(1);
        for (table, pages) in
            [(tables.accounts, pages), (tables.tellers, TELLERS), (tables.branches, BRANCHES)]
        {
            let page = random.random_range(0..pages) * PAGE;
            let mut bytes = vec![0; PAGE as usize];
            fs.read(table, page, &mut bytes).await?;
            let at = random.random_range(0..PAGE / RECORD) * RECORD;
            let record = &mut bytes[at as usize..(at + RECORD) as usize];
            record.fill(record[0].wrapping_add(1));
            files::write(fs, table, page, &bytes, PAGE as usize).await?;
        }
        let line = data.get(LOG_RECORD);
        let history = &line[..HISTORY as usize];
        files::write(fs, tables.history, number * HISTORY, history, HISTORY as usize).await?;
        let at = number * LOG_RECORD % LOG;
        files::write(fs, tables.log, at, line, LOG_RECORD as usize).await?;
        if number % self.commit == self.commit - 1 {
            fs.fsync(tables.log).await?;
        }
        Ok(())
    }
}

impl fmt::Display for Tpcb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Tpcb::USUAL {
            return write!(f, "tpcb");
        }
        let Tpcb { accounts, warm, transactions, commit } = self;
        write!(
            f,
            "tpcb:accounts={accounts},warm={warm},transactions={transactions},commit={commit}"
        )
    }
}

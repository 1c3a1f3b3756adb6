//! A workload of a small database: its operations on the file system.
//!
//! A transaction, as in SQLite with a rollback journal (<https://sqlite.org/atomiccommit.html>):
//! the old contents of the pages that will change are copied to a journal beside the database, and
//! made durable; then the database is changed and made durable; then the journal is invalidated,
//! which commits. It is removed, truncated, or left with its head cleared.

use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{Errno, FileSystem, FsResult, Ino, NewNode, SetAttr};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::RunWorkload;
use crate::recording::RecordingFs;

/// The bytes of a page.
const PAGE: u64 = 1024;
/// The most pages that a transaction changes.
const CHANGED: u64 = 6;

/// The transactions of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The seed of the choice of pages.
    pub seed: u64,
    /// The number of transactions.
    pub transactions: usize,
    /// The number of pages at the start.
    pub pages: u64,
    /// The longest pause between two transactions, in milliseconds.
    pub pause: u64,
}

struct Session<F> {
    fs: F,
    rng: Pcg64Mcg,
    database: Ino,
    pages: u64,
    number: u8,
}

const JOURNAL: &[u8] = b"data.db-journal";

impl<F: FileSystem> Session<F> {
    async fn begin(fs: F, of: &Database) -> FsResult<Session<F>> {
        let made = fs.create(fs.root(), b"data.db", &NewNode::file(0o644)).await?;
        let rng = Pcg64Mcg::seed_from_u64(of.seed);
        let session = Session { fs, rng, database: made.ino, pages: of.pages, number: 1 };
        for page in 0..of.pages {
            session.write(made.ino, page * PAGE, PAGE).await?;
        }
        session.fs.fsync(made.ino).await?;
        Ok(session)
    }

    async fn write(&self, file: Ino, at: u64, len: u64) -> FsResult<()> {
        self.fs.write(file, at, &vec![self.number; len as usize]).await.map(drop)
    }

    async fn journal(&self) -> FsResult<Ino> {
        let root = self.fs.root();
        match self.fs.lookup(root, JOURNAL).await {
            Ok(attr) => Ok(attr.ino),
            Err(_) => Ok(self.fs.create(root, JOURNAL, &NewNode::file(0o644)).await?.ino),
        }
    }

    async fn transaction(&mut self) -> FsResult<()> {
        self.number = self.number.wrapping_add(1).max(1);
        let count = self.rng.random_range(1..=CHANGED);
        // In one of four transactions the last page is a new one.
        let all = self.pages + u64::from(self.rng.random_range(0..4) == 0);
        let journal = self.journal().await?;
        self.write(journal, 0, 512).await?;
        for page in 0..count {
            self.write(journal, 512 + page * (PAGE + 8), PAGE + 8).await?;
        }
        self.fs.fsync(journal).await?;
        self.fs.fsync(self.fs.root()).await?;
        for _ in 0..count {
            let page = self.rng.random_range(0..all);
            self.write(self.database, page * PAGE, PAGE).await?;
        }
        self.write(self.database, (all - 1) * PAGE, PAGE).await?;
        self.pages = all;
        self.fs.fsync(self.database).await?;
        match self.rng.random_range(0..4) {
            0 => {
                let none = SetAttr { size: Some(0), ..SetAttr::default() };
                self.fs.setattr(journal, &none).await?;
                self.fs.fsync(journal).await
            }
            1 => {
                self.fs.write(journal, 0, &[0; 28]).await?;
                self.fs.fsync(journal).await
            }
            _ => self.fs.unlink(self.fs.root(), JOURNAL).await,
        }
    }
}

impl RunWorkload for Database {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
    ) -> Result<(), String> {
        let work = async {
            let mut session = Session::begin(client(0), self).await?;
            for _ in 0..self.transactions {
                session.transaction().await?;
                let millis = session.rng.random_range(0..=self.pause);
                rt.sleep(Duration::from_millis(millis)).await;
            }
            Ok(())
        };
        match work.await {
            Err(ordo_vfs::FsError { errno: Errno::NoSpace, .. }) => Ok(()),
            worked => worked.map_err(|e: ordo_vfs::FsError| e.to_string()),
        }
    }
}

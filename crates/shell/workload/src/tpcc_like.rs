//! Transactions like those of TPC-C, as pages and a log: the five transactions change and read
//! random pages of nine tables, and are durable when their records in a log are.
//!
//! Source: TPC Benchmark C, revision 5.11: clause 1.2.1 for the rows and their lengths, 2.4 to 2.8
//! for what a transaction reads and changes, 2.1.6 for the random choice of customers and items,
//! 5.2.3 for the least shares of the transactions. Left out: think times, and the tenth of a
//! percent of orders that are rolled back for an item that does not exist. The results are no TPC
//! results.
//!
//! Pages are changed in place through the file system, whose cache is the only one, and reach the
//! disk when the file system writes them. With a pool, the database has a cache of its own, an
//! index of each table but the history, whose leaf is used with every row, whole pages in its log,
//! and a checkpoint at the end. The log is one file that is written around in whole pages. Clients
//! whose records were appended before an fsync of the log began become durable together.

use std::cell::{Cell, RefCell};
use std::fmt;

use ordo_runtime::Runtime;
use ordo_runtime::sync::{Mutex, buffer_unordered};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, random_kind, size};
use super::pool::{self, Page, Pool, Use};
use super::tally::Tally;
use super::{Doing, Run, WorkloadError, WorkloadStage};

mod orders;

use orders::Orders;

/// The size of a page in bytes.
const PAGE: u64 = 8192;
/// The bytes of the log, which is written around, and of a record's head in it.
const LOG: u64 = 64 << 20;
const HEAD: u64 = 60;
/// The rows for which a leaf of an index has entries.
const ROWS_OF_LEAF: u64 = 250;
/// Tables with a second index, by another key: customers by name, and orders by customer. A changed
/// row has a new entry in each.
const SECOND: [(Table, &str); 2] =
    [(Table::Customer, "customer.name"), (Table::Order, "orders.customer")];
/// A prime that spreads neighbouring rows over the leaves of a second index.
const SPREAD: u64 = 7919;
/// The most bytes of one write to the log.
const RECORD_MOST: u64 = 1 << 20;
/// The districts of a warehouse, the customers of a district, and the items.
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3000;
const ITEMS: u64 = 100_000;
/// The percentages of the transactions, in the order of [`KINDS`].
const SHARES: [u32; 5] = [45, 43, 4, 4, 4];
const KINDS: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Warehouse,
    District,
    Customer,
    History,
    NewOrder,
    Order,
    OrderLine,
    Stock,
    Item,
}

impl Table {
    const ALL: [Table; 9] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::History,
        Table::NewOrder,
        Table::Order,
        Table::OrderLine,
        Table::Stock,
        Table::Item,
    ];

    /// The table's file, the length of a row in bytes, and the rows of each warehouse at the start.
    /// Items are the same for all warehouses.
    const fn shape(self) -> (&'static str, u64, u64) {
        match self {
            Table::Warehouse => ("warehouse", 89, 1),
            Table::District => ("district", 95, DISTRICTS),
            Table::Customer => ("customer", 655, DISTRICTS * CUSTOMERS),
            Table::History => ("history", 46, DISTRICTS * CUSTOMERS),
            Table::NewOrder => ("new_order", 8, DISTRICTS * orders::UNDELIVERED),
            Table::Order => ("orders", 24, DISTRICTS * CUSTOMERS),
            Table::OrderLine => ("order_line", 54, DISTRICTS * CUSTOMERS * orders::LINES),
            Table::Stock => ("stock", 306, ITEMS),
            Table::Item => ("item", 82, ITEMS),
        }
    }

    /// The file of the table's index.
    const fn index(self) -> &'static str {
        match self {
            Table::Warehouse => "warehouse.index",
            Table::District => "district.index",
            Table::Customer => "customer.index",
            Table::History => "history.index",
            Table::NewOrder => "new_order.index",
            Table::Order => "orders.index",
            Table::OrderLine => "order_line.index",
            Table::Stock => "stock.index",
            Table::Item => "item.index",
        }
    }

    fn rows(self, warehouses: u64) -> u64 {
        self.shape().2 * if self == Table::Item { 1 } else { warehouses }
    }

    /// The number of the page that holds a row.
    fn page_of(self, row: u64) -> u64 {
        row / (PAGE / self.shape().1)
    }
}

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpccLike {
    /// The number of warehouses.
    pub warehouses: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// The number of clients at once.
    pub clients: u64,
    /// The bytes of the database's own cache of pages; 0 leaves caching to the file system.
    pub pool: u64,
}

impl TpccLike {
    /// 4 warehouses with 10 clients each.
    pub const USUAL: TpccLike =
        TpccLike { warehouses: 4, transactions: 20_000, clients: 40, pool: 0 };

    /// The bytes of all tables at the start.
    fn tables(&self) -> u64 {
        let pages = |table: &Table| table.page_of(table.rows(self.warehouses) - 1) + 1;
        Table::ALL.iter().map(pages).sum::<u64>() * PAGE
    }

    pub(super) fn describe(&self) -> String {
        let TpccLike { warehouses, transactions, clients, .. } = self;
        let bytes = size(self.tables());
        format!(
            "{transactions} transactions of {clients} clients, like TPC-C's, on {warehouses} warehouses of {bytes} in all"
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.tables() + LOG + self.transactions * 1000
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let (tables, log) = self.load(run, seed).await?;
        run.begin("transactions", self.transactions);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let database = Database {
            fs,
            runtime,
            tables,
            log,
            warehouses: self.warehouses,
            orders: RefCell::new(Orders::new(self.warehouses)),
            history: Cell::new(Table::History.rows(self.warehouses)),
            logged: Cell::new(0),
            durable: Mutex::new(0, "the database's log", 0),
            page: Bytes::new(seed, RECORD_MOST as usize),
            pool: RefCell::new(Pool::new(self.pool / PAGE)),
            counts: RefCell::default(),
        };
        let progress = RefCell::new(&mut run.log);
        let transactions = (0..self.transactions).map(|number| {
            let (database, progress) = (&database, &progress);
            async move {
                let random = Pcg64Mcg::seed_from_u64(seed.rotate_left(32) ^ number);
                let done = database.transaction(random, number).await;
                done.doing(|| format!("transaction {number}"))?;
                let (operations, bytes) = Tally::all(&*database.counts.borrow());
                progress.borrow_mut().reached(operations, bytes);
                Ok::<_, WorkloadError>(())
            }
        });
        buffer_unordered(self.clients as usize, transactions, |_, result| result).await?;
        database.checkpoint().await.doing(|| "the checkpoint".into())?;
        let counts = database.counts.into_inner();
        run.log.mix(KINDS.iter().zip(counts).map(|(name, tally)| tally.entry(*name)).collect());
        run.end();
        Ok(())
    }

    async fn load<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(Vec<Ino>, Ino), WorkloadError> {
        const PIECE: u64 = 1 << 20;
        let data = Bytes::new(seed, PIECE as usize);
        let all = Table::ALL.map(|table| {
            (table.shape().0, (table.page_of(table.rows(self.warehouses) - 1) + 1) * PAGE)
        });
        let indices = Table::ALL.map(|table| {
            let leaves = table.rows(self.warehouses).div_ceil(ROWS_OF_LEAF);
            (table.index(), leaves * PAGE)
        });
        let second = SECOND
            .map(|(table, name)| (name, table.rows(self.warehouses).div_ceil(ROWS_OF_LEAF) * PAGE));
        let indices = indices.into_iter().chain(second).filter(|_| self.pool > 0);
        let all = all.into_iter().chain(indices).chain([("log", LOG)]);
        run.begin("load", (self.tables() + LOG) / PIECE);
        let (root, mut files) = (run.fs().root(), Vec::new());
        for (name, bytes) in all {
            let made = run.fs().create(root, name.as_bytes(), &NewNode::file(0o600)).await;
            let ino = made.doing(|| format!("making {name}"))?.ino;
            for at in (0..bytes).step_by(PIECE as usize) {
                let piece = data.get((bytes - at).min(PIECE));
                let written = files::write(run.fs(), ino, at, piece, 64 << 10).await;
                written.doing(|| format!("filling {name}"))?;
                run.step(piece.len() as u64);
            }
            files.push(ino);
        }
        run.log.made(files.len() as u64);
        run.fs().sync().await.doing(|| "making the tables durable".into())?;
        run.end();
        run.drop_caches().await?;
        let log = files.pop().expect("the last one is the log");
        Ok((files, log))
    }
}

/// The database at work.
struct Database<'r, F> {
    fs: &'r F,
    runtime: &'r Runtime,
    /// The tables' files, in the order of [`Table::ALL`]; behind them those of their indices, if
    /// there is a pool.
    tables: Vec<Ino>,
    log: Ino,
    warehouses: u64,
    orders: RefCell<Orders>,
    /// The rows of the history.
    history: Cell<u64>,
    /// The bytes that were appended to the log.
    logged: Cell<u64>,
    /// The bytes of the log that are durable. The client that holds this makes the log durable.
    durable: Mutex<u64>,
    /// Pages of a table or of the log.
    page: Bytes,
    pool: RefCell<Pool>,
    counts: RefCell<[Tally; KINDS.len()]>,
}

/// A transaction under way: the bytes of its pages, and of its records.
#[derive(Default)]
struct Work {
    bytes: u64,
    records: u64,
}

/// The non-uniform random number of clause 2.1.6 in 0..`count`.
fn nurand(random: &mut Pcg64Mcg, a: u64, count: u64) -> u64 {
    (random.random_range(0..=a) | random.random_range(0..count)) % count
}

impl<F: FileSystem> Database<'_, F> {
    async fn transaction(&self, mut random: Pcg64Mcg, number: u64) -> FsResult<()> {
        let kind = random_kind(&mut random, &SHARES);
        // A client belongs to a warehouse.
        let warehouse = number % self.warehouses;
        let district = warehouse * DISTRICTS + random.random_range(0..DISTRICTS);
        let begun = self.runtime.now();
        let mut work = Work::default();
        match kind {
            0 => self.new_order(&mut work, &mut random, district).await?,
            1 => self.payment(&mut work, &mut random, district).await?,
            2 => self.order_status(&mut work, &mut random, district).await?,
            3 => self.delivery(&mut work, warehouse).await?,
            _ => self.stock_level(&mut work, district).await?,
        }
        self.commit(&work).await?;
        let nanos = self.runtime.now().as_nanos() - begun.as_nanos();
        self.counts.borrow_mut()[kind].add(work.bytes + work.records, nanos);
        Ok(())
    }

    async fn new_order(
        &self,
        work: &mut Work,
        random: &mut Pcg64Mcg,
        district: u64,
    ) -> FsResult<()> {
        let customer = nurand(random, 1023, CUSTOMERS);
        self.read(work, Table::Warehouse, district / DISTRICTS).await?;
        self.change(work, Table::District, district).await?;
        self.read(work, Table::Customer, district * CUSTOMERS + customer).await?;
        let lines = random.random_range(5..=15);
        let order = self.orders.borrow_mut().add(district, customer, lines);
        self.change(work, Table::Order, order.row).await?;
        self.change(work, Table::NewOrder, order.new_row).await?;
        for line in 0..lines {
            let item = nurand(random, 8191, ITEMS);
            let is_remote = random.random_range(0..100) == 0;
            let own = district / DISTRICTS;
            let from = if is_remote { random.random_range(0..self.warehouses) } else { own };
            self.read(work, Table::Item, item).await?;
            self.change(work, Table::Stock, from * ITEMS + item).await?;
            self.change(work, Table::OrderLine, order.first_line + line).await?;
        }
        Ok(())
    }

    async fn payment(&self, work: &mut Work, random: &mut Pcg64Mcg, district: u64) -> FsResult<()> {
        self.change(work, Table::Warehouse, district / DISTRICTS).await?;
        self.change(work, Table::District, district).await?;
        // 15 percent of the customers are of another warehouse.
        let of = match random.random_range(0..100) < 15 {
            true => random.random_range(0..self.warehouses * DISTRICTS),
            false => district,
        };
        let customer = self.customer(work, random, of).await?;
        self.change(work, Table::Customer, of * CUSTOMERS + customer).await?;
        let row = self.history.get();
        self.history.set(row + 1);
        self.change(work, Table::History, row).await
    }

    async fn order_status(
        &self,
        work: &mut Work,
        random: &mut Pcg64Mcg,
        district: u64,
    ) -> FsResult<()> {
        let customer = self.customer(work, random, district).await?;
        self.read(work, Table::Customer, district * CUSTOMERS + customer).await?;
        let Some(order) = self.orders.borrow().last_of(district, customer) else { return Ok(()) };
        self.read(work, Table::Order, order.row).await?;
        self.read_lines(work, order.first_line, order.lines).await
    }

    async fn delivery(&self, work: &mut Work, warehouse: u64) -> FsResult<()> {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let Some(order) = self.orders.borrow_mut().deliver(district) else { continue };
            self.change(work, Table::NewOrder, order.new_row).await?;
            self.change(work, Table::Order, order.row).await?;
            for line in 0..order.lines {
                self.change(work, Table::OrderLine, order.first_line + line).await?;
            }
            self.change(work, Table::Customer, district * CUSTOMERS + order.customer).await?;
        }
        Ok(())
    }

    async fn stock_level(&self, work: &mut Work, district: u64) -> FsResult<()> {
        self.read(work, Table::District, district).await?;
        let recent = self.orders.borrow().recent(district);
        let mut random = Pcg64Mcg::seed_from_u64(recent.first().map_or(0, |order| order.row));
        for order in recent {
            self.read_lines(work, order.first_line, order.lines).await?;
            for _ in 0..order.lines {
                let item = nurand(&mut random, 8191, ITEMS);
                self.read(work, Table::Stock, district / DISTRICTS * ITEMS + item).await?;
            }
        }
        Ok(())
    }

    /// Finds a customer of a district: by number, or in 60 percent by the last name, which three
    /// customers have on average.
    async fn customer(
        &self,
        work: &mut Work,
        random: &mut Pcg64Mcg,
        district: u64,
    ) -> FsResult<u64> {
        if random.random_range(0..100) < 60 {
            for _ in 0..2 {
                let other = district * CUSTOMERS + nurand(random, 1023, CUSTOMERS);
                self.read(work, Table::Customer, other).await?;
            }
        }
        Ok(nurand(random, 1023, CUSTOMERS))
    }

    async fn read_lines(&self, work: &mut Work, first: u64, lines: u64) -> FsResult<()> {
        for row in first..first + lines {
            self.read(work, Table::OrderLine, row).await?;
        }
        Ok(())
    }

    /// Reads the page with a row.
    async fn read(&self, work: &mut Work, table: Table, row: u64) -> FsResult<Vec<u8>> {
        self.load(work, (table, row), false).await.map(|(page, _)| page)
    }

    /// Brings the page with a row into memory, and the leaf of the index that leads to it.
    async fn load(
        &self,
        work: &mut Work,
        (table, row): (Table, u64),
        is_changed: bool,
    ) -> FsResult<(Vec<u8>, Use)> {
        if table != Table::History
            && let Some(index) = self.tables.get(Table::ALL.len() + table as usize)
        {
            self.page(work, (*index, row / ROWS_OF_LEAF), is_changed).await?;
        }
        if let Some(second) = SECOND.iter().position(|(of, _)| is_changed && *of == table)
            && let Some(index) = self.tables.get(2 * Table::ALL.len() + second)
        {
            // Neighbours by one key are far apart by the other.
            let leaves = table.rows(self.warehouses).div_ceil(ROWS_OF_LEAF);
            self.page(work, (*index, row.wrapping_mul(SPREAD) % leaves), true).await?;
        }
        self.page(work, (self.tables[table as usize], table.page_of(row)), is_changed).await
    }

    /// Brings a page into memory, unless it is in the pool.
    async fn page(
        &self,
        work: &mut Work,
        page: Page,
        is_changed: bool,
    ) -> FsResult<(Vec<u8>, Use)> {
        let needed = self.pool.borrow_mut().touch(page, is_changed);
        if let Some(evicted) = needed.evicted {
            pool::write(self.fs, evicted, self.page.get(PAGE)).await?;
        }
        let mut bytes = vec![0; PAGE as usize];
        if needed.is_read {
            self.fs.read(page.0, page.1 * PAGE, &mut bytes).await?;
        }
        work.bytes += PAGE;
        work.records += if needed.is_logged { PAGE } else { 0 };
        Ok((bytes, needed))
    }

    /// Writes the changed pages of the pool, and makes the tables durable.
    async fn checkpoint(&self) -> FsResult<()> {
        let pages = self.pool.borrow_mut().checkpoint();
        pool::write_out(self.fs, pages, self.page.get(PAGE)).await
    }

    /// Changes or adds a row.
    async fn change(&self, work: &mut Work, table: Table, row: u64) -> FsResult<()> {
        let (mut page, needed) = self.load(work, (table, row), true).await?;
        let len = table.shape().1;
        let at = row % (PAGE / len) * len;
        let bytes = &mut page[at as usize..(at + len) as usize];
        bytes.fill(bytes[0].wrapping_add(1));
        if needed.is_written {
            let (file, start) = (self.tables[table as usize], table.page_of(row) * PAGE);
            files::write(self.fs, file, start, &page, PAGE as usize).await?;
        }
        work.bytes += PAGE;
        work.records += HEAD + len;
        Ok(())
    }

    /// Appends a transaction's records to the log, in whole pages, and makes the log durable.
    /// Transactions that only read have none.
    async fn commit(&self, work: &Work) -> FsResult<()> {
        if work.records == 0 {
            return Ok(());
        }
        let start = self.logged.get();
        let end = start + work.records;
        self.logged.set(end);
        let (from, to) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        // A database with a cache of its own writes a record with one call.
        let most = if self.pool.borrow().keeps() { RECORD_MOST } else { PAGE };
        for start in (from..to).step_by(most as usize) {
            let bytes = self.page.get((to - start).min(most).min(LOG - start % LOG));
            files::write(self.fs, self.log, start % LOG, bytes, bytes.len()).await?;
        }
        let held = self.durable.lock().await;
        if *held.get() >= end {
            return Ok(());
        }
        let all = self.logged.get();
        self.fs.fdatasync(self.log).await?;
        *held.get_mut() = all;
        Ok(())
    }
}

impl fmt::Display for TpccLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == TpccLike::USUAL {
            return write!(f, "tpcc-like");
        }
        let TpccLike { warehouses, transactions, clients, pool } = self;
        write!(
            f,
            "tpcc-like:warehouses={warehouses},transactions={transactions},clients={clients}"
        )?;
        if *pool > 0 { write!(f, ",pool={pool}") } else { Ok(()) }
    }
}

//! A web server: clients read its files by the classes and popularities of SPECweb, as they are or
//! in dynamic pages, and the server appends to its logs.
//!
//! Sources: the page of SPECweb96's workload on spec.org for the sizes, the classes' shares and the
//! accesses within a class (a Poisson distribution); Ruan and Pai, "Making the 'Box' Transparent"
//! (2004), section 2.3, for the directories of SPECweb99 (Zipf's distribution with an exponent
//! of 1) and 3 GB; the white paper of SPECweb99 on spec.org, section 6, for the shares of dynamic
//! requests, and its run rules, section 2.3, for their work: each reads its file; a page with a
//! rotating advertisement reads the user's record and that of an advertisement before; a post
//! appends a record to a log, and counts it at the head. The programs of CGI requests are left out.
//! The results are no SPEC results.

use std::cell::{Cell, RefCell};
use std::fmt;

use ordo_runtime::Runtime;
use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, create, random_kind, size};
use super::tally::Tally;
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The bytes of one call of the server.
const UNIT: usize = 64 << 10;
/// The percentage of requests for each class of files.
const SHARES: [u32; CLASSES] = [35, 50, 14, 1];
const CLASSES: usize = 4;
/// The bytes of the smallest file of each class; the others have 2 to 9 times as many.
const SMALLEST: [u64; CLASSES] = [102, 1024, 10_240, 102_400];
/// The files of a class in each directory.
const FILES: usize = 9;
/// The mean of the Poisson distribution of accesses within a class.
const MEAN: f64 = 5.0;
/// The bytes of a directory's files.
const DIRECTORY: u64 = 45 * (102 + 1024 + 10_240 + 102_400);
/// The bytes that a request appends to the access log, and a post to the log of posts.
const LOG_LINE: u64 = 100;
const POST: u64 = 140;
/// The bytes of the count at the head of the log of posts.
const POST_COUNT: u64 = 10;
/// The shares of requests in hundredths of a percent: dynamic pages (also by CGI), pages with an
/// advertisement, posts.
const PAGES: u32 = 1245 + 15;
const ADVERTISEMENTS: u32 = 1260;
const POSTS: u32 = 480;
/// The records of users and of advertisements: how many, and the bytes of each.
const USERS: (u64, u64) = (10_000, 15);
const CUSTOM: (u64, u64) = (360, 38);

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecwebLike {
    /// The number of directories with 36 files each.
    pub directories: u64,
    /// The number of requests.
    pub requests: u64,
    /// The number of clients that are served at once.
    pub clients: u64,
    /// Whether there are dynamic pages. Without them there are only files and posts, which are not
    /// answered with a file.
    pub dynamic: bool,
}

/// The names of the classes, and of dynamic requests.
const KINDS: [&str; CLASSES + 3] = [
    "under 1 KB",
    "1 to 9 KB",
    "10 to 90 KB",
    "100 KB up",
    "dynamic page",
    "advertisement",
    "post",
];

impl SpecwebLike {
    /// 3 GB of files, 100 clients.
    pub const USUAL: SpecwebLike =
        SpecwebLike { directories: 630, requests: 100_000, clients: 100, dynamic: true };

    pub(super) fn describe(&self) -> String {
        let SpecwebLike { directories, requests, clients, .. } = self;
        let bytes = size(directories * DIRECTORY);
        format!(
            "a web server: {requests} requests of {clients} clients for {bytes} of files; SPECweb-like"
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        // The smallest files have fragments of their own.
        self.directories * (DIRECTORY + (64 << 10)) + self.requests * (LOG_LINE + POST)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let site = self.make(run, seed).await?;
        run.drop_caches().await?;
        run.begin("requests", self.requests);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let server = Server {
            fs,
            runtime,
            site: &site,
            dynamic: self.dynamic,
            ends: [Cell::new(0), Cell::new(if self.dynamic { POST_COUNT } else { 0 })],
            counts: RefCell::default(),
        };
        let popular = Popular::new(self.directories);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let log = RefCell::new(&mut run.log);
        let requests = (0..self.requests).map(|number| {
            let wanted = popular.request(&mut random, self.dynamic);
            let (server, log) = (&server, &log);
            async move {
                let done = server.serve(&wanted).await;
                done.doing(|| format!("request {number}"))?;
                let (operations, bytes) = Tally::all(&*server.counts.borrow());
                log.borrow_mut().reached(operations, bytes);
                Ok::<_, WorkloadError>(())
            }
        });
        buffer_unordered(self.clients as usize, requests, |_, result| result).await?;
        let counts = server.counts.into_inner();
        run.log.mix(KINDS.iter().zip(counts).map(|(name, tally)| tally.entry(*name)).collect());
        run.end();
        Ok(())
    }

    /// Makes the files and the logs.
    async fn make<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<Site, WorkloadError> {
        let bytes = Bytes::new(seed, (SMALLEST[CLASSES - 1] * FILES as u64) as usize);
        run.begin("make the files", self.directories);
        let root = run.fs().root();
        let log = async |name: &[u8]| run.fs().create(root, name, &NewNode::file(0o644)).await;
        let logs = [log(b"access.log").await, log(b"post.log").await];
        let [access, posts] = logs.map(|made| made.doing(|| "making the logs".into()));
        let logs = [access?.ino, posts?.ino];
        let mut records = Vec::new();
        if self.dynamic {
            for (name, (count, len)) in [("User.Personality", USERS), ("Custom.Ads", CUSTOM)] {
                let name = name.as_bytes();
                let made = create(run.fs(), root, name, bytes.get(count * len), UNIT).await;
                records.push(made.doing(|| "making the records".into())?.ino);
            }
            let counted = files::write(run.fs(), logs[1], 0, bytes.get(POST_COUNT), UNIT).await;
            counted.doing(|| "making the logs".into())?;
        }
        let mut directories = Vec::new();
        for number in 0..self.directories {
            let made = directory(run.fs(), number, &bytes).await;
            directories.push(made.doing(|| format!("making directory {number}"))?);
            run.step(DIRECTORY);
        }
        run.fs().sync().await.doing(|| "making the files durable".into())?;
        run.log.made(self.directories * 37 + 2 + records.len() as u64);
        run.end();
        Ok(Site { directories, logs, records, bytes })
    }
}

/// Makes a directory with all of its files.
async fn directory<F: FileSystem>(fs: &F, number: u64, bytes: &Bytes) -> FsResult<Ino> {
    let name = format!("dir{number:05}");
    let dir = fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await?.ino;
    for (class, smallest) in SMALLEST.into_iter().enumerate() {
        for file in 0..FILES {
            let len = smallest * (file as u64 + 1);
            create(fs, dir, &file_name(class, file), bytes.get(len), UNIT).await?;
        }
    }
    Ok(dir)
}

fn file_name(class: usize, file: usize) -> Vec<u8> {
    format!("class{class}_{file}").into_bytes()
}

/// The files of the server.
struct Site {
    directories: Vec<Ino>,
    /// The log of accesses, and that of posts.
    logs: [Ino; 2],
    /// The records of users and of advertisements, if there are dynamic pages.
    records: Vec<Ino>,
    bytes: Bytes,
}

/// A request for more than a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dynamic {
    Page,
    /// The records of the user and of the advertisement.
    Advertisement([u64; 2]),
    Post,
}

/// A request of a client.
struct Wanted {
    directory: usize,
    class: usize,
    file: usize,
    dynamic: Option<Dynamic>,
}

/// The popularity of directories and of files within a class, as sums of the shares up to each.
struct Popular {
    directories: Vec<f64>,
    files: Vec<f64>,
}

/// The sums of weights up to each, so that the last is 1.
fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    sums.iter_mut().for_each(|sum| *sum /= all);
    sums
}

fn choose(sums: &[f64], random: &mut Pcg64Mcg) -> usize {
    let at: f64 = random.random();
    sums.partition_point(|sum| *sum <= at).min(sums.len() - 1)
}

impl Popular {
    fn new(directories: u64) -> Popular {
        let zipf = (1..=directories).map(|rank| 1.0 / rank as f64);
        // The probability of k, up to a factor: MEAN to the power of k over k factorial.
        let poisson = (1..=FILES).scan(1.0, |weight, k| {
            *weight *= MEAN / k as f64;
            Some(*weight)
        });
        Popular { directories: sums(zipf), files: sums(poisson) }
    }

    fn request(&self, random: &mut Pcg64Mcg, has_dynamic: bool) -> Wanted {
        let class = random_kind(random, &SHARES);
        let directory = choose(&self.directories, random);
        let file = choose(&self.files, random);
        let dynamic = match random.random_range(0..10_000) {
            share if share < POSTS => Some(Dynamic::Post),
            _ if !has_dynamic => None,
            share if share < POSTS + PAGES => Some(Dynamic::Page),
            share if share < POSTS + PAGES + ADVERTISEMENTS => Some(Dynamic::Advertisement(
                [USERS, CUSTOM].map(|(count, _)| random.random_range(0..count)),
            )),
            _ => None,
        };
        Wanted { directory, class, file, dynamic }
    }
}

/// The server at work.
struct Server<'r, F> {
    fs: &'r F,
    runtime: &'r Runtime,
    site: &'r Site,
    dynamic: bool,
    /// The bytes of each log.
    ends: [Cell<u64>; 2],
    counts: RefCell<[Tally; KINDS.len()]>,
}

impl<F: FileSystem> Server<'_, F> {
    async fn serve(&self, wanted: &Wanted) -> FsResult<()> {
        let begun = self.runtime.now();
        let (kind, mut bytes) = match wanted.dynamic {
            None => (wanted.class, 0),
            Some(Dynamic::Page) => (CLASSES, 0),
            Some(Dynamic::Advertisement(records)) => (CLASSES + 1, self.records(records).await?),
            Some(Dynamic::Post) => (CLASSES + 2, self.post().await?),
        };
        if self.dynamic || wanted.dynamic != Some(Dynamic::Post) {
            let name = file_name(wanted.class, wanted.file);
            let dir = self.site.directories[wanted.directory];
            bytes += files::read(self.fs, dir, &name, UNIT, &mut |_, _| {}).await?;
        }
        self.append(0, LOG_LINE).await?;
        let nanos = self.runtime.now().as_nanos() - begun.as_nanos();
        self.counts.borrow_mut()[kind].add(bytes, nanos);
        Ok(())
    }

    /// Reads the records of a user and of an advertisement. Returns their bytes.
    async fn records(&self, numbers: [u64; 2]) -> FsResult<u64> {
        let mut bytes = 0;
        for ((file, number), (_, len)) in self.site.records.iter().zip(numbers).zip([USERS, CUSTOM])
        {
            let mut record = vec![0; len as usize];
            bytes += self.fs.read(*file, number * len, &mut record).await? as u64;
        }
        Ok(bytes)
    }

    /// Appends a record to the log of posts, and counts it. Returns the bytes.
    async fn post(&self) -> FsResult<u64> {
        self.append(1, POST).await?;
        if !self.dynamic {
            return Ok(POST);
        }
        let count = self.site.bytes.get(POST_COUNT);
        files::write(self.fs, self.site.logs[1], 0, count, UNIT).await?;
        Ok(POST + POST_COUNT)
    }

    async fn append(&self, log: usize, bytes: u64) -> FsResult<()> {
        let at = self.ends[log].get();
        self.ends[log].set(at + bytes);
        files::write(self.fs, self.site.logs[log], at, self.site.bytes.get(bytes), UNIT).await
    }
}

impl fmt::Display for SpecwebLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == SpecwebLike::USUAL {
            return write!(f, "specweb-like");
        }
        let SpecwebLike { directories, requests, clients, dynamic } = self;
        write!(f, "specweb-like:directories={directories},requests={requests},clients={clients}")?;
        f.write_str(if *dynamic { "" } else { ",dynamic=no" })
    }
}

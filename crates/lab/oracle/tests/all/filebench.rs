//! Personalities of filebench: the operations that reach the file system are those of the file, in
//! its proportions, from all clients; a file that cannot be carried out is refused with its place.
//!
//! Fault model: flowops that are left out, counted but not done, or done by one client alone;
//! semaphores that let a client run ahead; files that a personality did not ask for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;

use ordo_block::model::Model;
use ordo_compare::{ComparisonSetup, run as compare};
use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_systems::{System, ffs, journaled};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{Totals, WalkLimits, measure};
use ordo_vfs::{Attr, FileSystem, FsResult, Ino, NewNode, Timestamp};
use ordo_workload::{Phase, Workload, WorkloadStage};

/// The model, with each of its operations counted by name. An fsync takes a while, so that clients
/// meet.
struct Counting {
    fs: ModelFs,
    runtime: Runtime,
    calls: RefCell<BTreeMap<&'static str, u64>>,
}

impl Counting {
    fn count(&self, call: &'static str) {
        *self.calls.borrow_mut().entry(call).or_default() += 1;
    }
}

impl FileSystem for Counting {
    ordo_vfs::delegate! { this => this.fs; root, close, getattr, setattr, tmpfile, link, rmdir, rename, readlink,
    allocate, punch_hole, seek, extents, readdir, statfs, sync, getxattr, setxattr, listxattr, removexattr }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.count("lookup");
        self.fs.lookup(dir, name).await
    }
    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.count("open");
        self.fs.open(ino).await
    }
    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        self.count("create");
        self.fs.create(dir, name, new).await
    }
    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.count("unlink");
        self.fs.unlink(dir, name).await
    }
    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.count("read");
        self.fs.read(ino, offset, buf).await
    }
    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.count("write");
        self.fs.write(ino, offset, data).await
    }
    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.count("fsync");
        self.runtime.sleep(Duration::from_millis(2)).await;
        self.fs.fsync(ino).await
    }
    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fsync(ino).await
    }
}

struct OnCounting {
    runtime: Runtime,
    fs: WithCpuCost<Counting>,
}

impl WorkloadStage for OnCounting {
    type Fs = WithCpuCost<Counting>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        Ok(())
    }
}

/// The results of a run on the model.
struct Ran {
    phases: Vec<Phase>,
    /// The calls of both phases.
    calls: BTreeMap<&'static str, u64>,
    left: Totals,
}

impl Ran {
    fn run(&self) -> &Phase {
        &self.phases[1]
    }

    /// The number of operations of a flowop.
    fn of(&self, flowop: &str) -> f64 {
        let mix = &self.run().mix;
        let found = mix.iter().find(|entry| entry.name == flowop);
        found.unwrap_or_else(|| panic!("no {flowop} in {mix:?}")).operations as f64
    }
}

fn ran(text: &str, seed: u64) -> Result<Ran, String> {
    let workload: Workload = text.parse().map_err(|e| format!("{e}"))?;
    let executor = Executor::simulated(seed);
    let runtime = executor.runtime();
    runtime.cpu().set_model(CpuModel::MODERN);
    let model = ModelFs::new(ModelConfig::ufs2(8192), || Timestamp { seconds: 1, nanos: 0 });
    let counting = Counting { fs: model, runtime: runtime.clone(), calls: RefCell::default() };
    let mut stage =
        OnCounting { fs: WithCpuCost::new(counting, runtime.clone()), runtime: runtime.clone() };
    let done = executor.block_on(async {
        let phases = workload.run(&mut stage, seed, &mut ()).await.map_err(|e| format!("{e}"))?;
        let left = measure(&stage.fs, stage.fs.root(), WalkLimits::default()).await.unwrap();
        let calls = stage.fs.inner().calls.borrow().clone();
        Ok::<_, String>(Ran { phases, calls, left })
    });
    done.expect("no client waits for ever")
}

/// Runs a file of WML.
fn ran_file(script: &str) -> Result<Ran, String> {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("mine.f");
    fs::write(&path, script).unwrap();
    let said = ran(&format!("filebench:{}", path.display()), 1);
    said.map_err(|text| text.replace(&format!("{}/", temp.path().display()), ""))
}

/// Each round of varmail's clients is one remove, one create, two fsyncs and two whole reads, and
/// the file system sees as many. All sixteen work at once: the run has the fsyncs of sixteen
/// clients in its time. A seed fixes everything.
#[test]
fn varmail_reaches_the_file_system_in_its_proportions_from_all_clients() {
    let text = "filebench:varmail,run=3";
    let of = ran(text, 1).unwrap();
    let rounds = of.of("new");
    for flowop in ["remove", "new-text", "new-sync", "reply-read", "reply-sync", "look-close"] {
        assert!((of.of(flowop) - rounds).abs() <= 16.0, "{flowop} {} {rounds}", of.of(flowop));
    }
    let mix: u64 = of.run().mix.iter().map(|entry| entry.operations).sum();
    assert_eq!((mix, of.run().mix.len()), (of.run().operations, 13));
    let bytes: u64 = of.run().mix.iter().map(|entry| entry.bytes).sum();
    assert_eq!(bytes, of.run().bytes);
    assert_eq!(of.calls["fsync"] as f64, of.of("new-sync") + of.of("reply-sync"));
    assert_eq!(of.calls["unlink"] as f64, of.of("remove"));
    // An fsync takes 2 ms, and a round has two: one client alone would do 750 rounds.
    assert!(rounds > 15.0 * 740.0 && rounds < 16.0 * 751.0, "{rounds} rounds");
    assert!((3.0..3.1).contains(&of.run().seconds()), "{}", of.run().seconds());
    // The appended texts are 8 KB on average.
    let each = of.run().mix[2].bytes as f64 / of.of("new-text");
    assert!((7800.0..8600.0).contains(&each), "{each} bytes a text");
    let again = ran(text, 1).unwrap();
    assert_eq!((&again.phases, &again.left), (&of.phases, &of.left));
    assert_ne!(ran(text, 2).unwrap().phases, of.phases);
}

/// A file server keeps as many files as it began with; a web server changes nothing but its log, to
/// which each client appends once for ten pages.
#[test]
fn a_file_server_and_a_web_server_change_what_they_say() {
    let of = ran("filebench:fileserver,run=1,nfiles=400,nthreads=5,filesize=30000", 1).unwrap();
    let files = of.left.entries as i64;
    let directories = of.phases[0].files_made as i64 - of.phases[0].operations as i64;
    let (store, remove) = (of.of("store") as i64, of.of("remove") as i64);
    assert_eq!(files - directories, of.phases[0].operations as i64 + store - remove);
    assert!((store - remove).abs() <= 5 + store / 50, "{store} {remove}");
    let written = of.run().mix.iter().find(|entry| entry.name == "store-write").unwrap();
    assert_eq!(written.bytes, written.operations * 30_000);

    let of = ran("filebench:webserver,run=1,nfiles=300", 1).unwrap();
    let pages: f64 = (1..=10).map(|n| of.of(&format!("read{n}"))).sum();
    assert!((pages / of.of("log") / 10.0 - 1.0).abs() < 0.1, "{pages} {}", of.of("log"));
    let log = of.run().mix.iter().find(|entry| entry.name == "log").unwrap();
    assert_eq!(of.left.bytes - of.phases[0].bytes, log.bytes);
    assert_eq!(of.calls.get("unlink"), None);
}

/// The clients of a database post to its writers: one write of the log for 3200 reads, and a
/// hundred pages of each of ten writers for 1000 reads. Would catch semaphores that nobody waits
/// for, and posts that reach one writer alone.
#[test]
fn the_writers_of_a_database_keep_pace_with_its_readers() {
    let of = ran("filebench:oltp,run=6,usermode=20000,nshadows=50", 1).unwrap();
    let reads = of.of("client/read");
    assert!(reads > 8000.0, "{reads} reads");
    // Each writer begins with one round that nobody has posted for, and a client may be 2000 posts
    // ahead.
    let pages = of.of("pages/write") - 1000.0;
    assert!((reads - 4000.0..=reads).contains(&pages), "{pages} pages for {reads} reads");
    let logs = of.of("log/write") - 1.0;
    assert!((reads / 3200.0 - 2.0..=reads / 3200.0).contains(&logs), "{logs} {reads}");
    assert_eq!(of.run().mix[0].bytes, of.run().mix[0].operations * (256 << 10));
}

/// A file of a user's own: sizes from a table, sequential reads that begin anew, whole writes from
/// another file's size, a rate of events, and an end by a count.
#[test]
fn a_file_of_ones_own_runs_as_it_is_written() {
    let script = r#"
        set $dir=/tmp            # the path of the files says nothing here
        set $size=randvar(type=tabular,min=1k,round=1k,randtable={{50,2k,2k},{50,6k,6k}})
        set $count = 40
        set mode quit firstdone
        eventgen rate = 100
        define fileset name=from, path=$dir, size=$size, entries=$count, dirwidth=10, prealloc, reuse
        define fileset name=to, path=$dir, size=1, entries=$count, dirwidth=5
        define file name=one, path=$dir, size=10k, prealloc
        define process name=copy, instances=1
        {
          thread name=copier, memsize=1m, instances=2
          {
            flowop openfile name=open, filesetname=from, fd=1
            flowop createfile name=make, filesetname=to, fd=2
            flowop writewholefile name=write, fd=2, srcfd=1, iosize=1k, dsync
            flowop closefile name=close1, fd=1
            flowop closefile name=close2, fd=2
            flowop read name=scan, filename=one, fd=3, iosize=4k
            flowop eventlimit name=limit
          }
        }
        echo "loaded $dir"
        run 60
    "#;
    let of = ran_file(script).unwrap();
    // All forty files are copied, at a hundred a second, and then there is none to create.
    assert_eq!((of.of("make"), of.of("write")), (40.0, 40.0));
    assert!((0.38..0.42).contains(&of.run().seconds()), "{}", of.run().seconds());
    let (from, to) = (of.phases[0].bytes - 10 * 1024, of.run().mix[2].bytes);
    assert_eq!(from, to, "each copy has the size of its source");
    assert_eq!((of.left.bytes, from % 2048), (from + to + 10 * 1024, 0));
    assert_eq!(of.calls["fsync"] * 1024, to, "each write of 1 KB is durable by itself");
    // 4 KB, 4 KB, 2 KB, the end, and again.
    let scanned = of.run().mix.iter().find(|entry| entry.name == "scan").unwrap();
    let rounds = |n: u64| n / 4 * 10 + [0, 4, 8, 10][(n % 4) as usize];
    let each = [rounds(scanned.operations / 2), rounds(scanned.operations.div_ceil(2))];
    assert!(scanned.bytes.abs_diff((each[0] + each[1]) * 1024) <= 8 << 10, "{scanned:?}");

    let counted = script.replace(
        "flowop eventlimit name=limit",
        "flowop finishoncount name=f,value=30,target=scan",
    );
    let of = ran_file(&counted).unwrap();
    assert!((30.0..=60.0).contains(&of.of("scan")), "{}", of.of("scan"));
}

/// A flowop that cannot be carried out is an error with its place, not a panic and not a run that
/// does less.
#[test]
fn a_run_that_cannot_go_on_says_which_flowop_and_where() {
    let script = |flowops: &str| {
        format!(
            "define fileset name=a,size=4k,entries=3,dirwidth=5,prealloc=100\n\
             define process name=p\n{{ thread name=t {{\n{flowops}\n}} }}\nrun 5"
        )
    };
    let said = |flowops: &str| ran_file(&script(flowops)).map(|_| ()).unwrap_err();
    let twice = "flowop openfile name=o,filesetname=a,fd=1";
    assert_eq!(said(twice), "mine.f:4:8: flowop o opens descriptor 1, which is open already");
    let closed = "flowop fsync name=f,fd=1";
    assert!(said(closed).contains("mine.f:4:8: flowop f needs descriptor 1, which is not open"));
    let none = "flowop createfile name=c,filesetname=a,fd=1\n flowop closefile name=x,fd=1";
    assert!(said(none).contains("found no file of 'a' that does not exist yet; more entries"));
    let short = "flowop read name=r,filesetname=a,iosize=8k,random";
    assert!(said(short).contains("moves 8192 bytes at a random place of 4096: they do not fit"));
}

/// Four clients open, remove and create the same few files all the time: a file that another client
/// is opening is not removed under its hands, and one that is open elsewhere stays. A thread that
/// does nothing, and one whose steps take no time, do not keep a run from its end.
#[test]
fn clients_do_not_remove_files_under_each_others_hands() {
    let script = "define fileset name=a,size=1k,entries=40,dirwidth=9,prealloc=50\n\
        define process name=p\n{\n\
        thread name=t, instances=6 {\n\
        flowop openfile name=open,filesetname=a,fd=1\n\
        flowop fsync name=sync,fd=1\n\
        flowop deletefile name=drop,fd=1\n\
        flowop closefile name=close,fd=1\n\
        flowop createfile name=make,filesetname=a,fd=2\n\
        flowop closefile name=done,fd=2\n\
        flowop statfile name=look,filesetname=a }\n\
        thread name=idle { flowop opslimit name=limit }\n\
        thread name=quick { flowop hog name=hog,value=0,iters=9000000000000000000 } }\n\
        set mode quit alldone\nrun 1";
    let of = ran_file(script).unwrap();
    let (dropped, made) = (of.of("t/drop"), of.of("t/make"));
    assert!(dropped > 20.0 && made > 20.0, "{dropped} {made}");
    let before = of.phases[0].operations as f64;
    let files = of.left.entries as f64 - (of.phases[0].files_made as f64 - before);
    assert_eq!(files, before - dropped + made);
    assert!((1.0..1.1).contains(&of.run().seconds()), "{}", of.run().seconds());
}

/// The same personality on real systems, in virtual time: an fsync that is synchronous waits for
/// the disk, and where all clients' fsyncs share a write of the log, more messages are stored.
#[test]
fn sixteen_clients_share_the_writes_of_a_log() {
    let disk = Model::by_name("cheetah").unwrap();
    let setup = ComparisonSetup { recovery: false, disk, ..ComparisonSetup::papers() };
    let workload: Workload = "filebench:varmail,run=5,nfiles=200".parse().unwrap();
    let row = |system: System| compare(system, &workload, &setup, &mut ()).unwrap();
    let stored = |system: System| {
        let row = row(system);
        let run = row.phases.iter().find(|p| p.phase.name == "run").unwrap();
        assert_eq!(row.writes.get("unknown"), 0);
        assert!(run.phase.seconds() < 6.0, "{}", run.phase.seconds());
        run.phase.mix.iter().find(|entry| entry.name == "new").unwrap().operations
    };
    let (sync, group) = (stored(ffs::SYNC), stored(journaled::WAFS_1SYNC_GROUP));
    assert!(sync > 10 && group > sync, "{sync} {group}");
}

/// A power cut in the middle of the run leaves a file system that the system's own recovery
/// accepts.
#[test]
fn the_power_is_cut_in_the_middle_of_a_personality() {
    let workload: Workload = "filebench:varmail,run=2,nfiles=100,nthreads=4".parse().unwrap();
    let row = compare(ffs::SOFT_UPDATES, &workload, &ComparisonSetup::papers(), &mut ()).unwrap();
    let recovery = row.recovery.expect("the power was cut");
    let begin = row.phases[1].phase.start_seconds - row.phases[0].phase.start_seconds;
    assert!((begin + 0.9..begin + 1.5).contains(&recovery.cut_at_seconds), "{recovery:?}");
    assert!(recovery.consistent_afterwards, "{recovery:?}");
}

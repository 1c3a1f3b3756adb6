//! The workloads: their operations, their dependence on the seed only, and their detection of a
//! file system with wrong contents.

use std::fs;

use ordo_runtime::{Executor, Runtime, cpu::CpuModel};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{Totals, WalkLimits, measure};
use ordo_vfs::{FileSystem, FsResult, Timestamp};
use ordo_workload::{Benchmark, Phase, PhaseListener, Workload, WorkloadError, WorkloadStage};

/// The model, with a processor of the 2020s.
struct OnModel {
    runtime: Runtime,
    fs: WithCpuCost<ModelFs>,
    dropped: u32,
}

impl OnModel {
    fn new(runtime: &Runtime) -> OnModel {
        runtime.cpu().set_model(CpuModel::MODERN);
        let model = ModelFs::new(ModelConfig::ufs2(8192), || Timestamp { seconds: 1, nanos: 0 });
        let fs = WithCpuCost::new(model, runtime.clone());
        OnModel { runtime: runtime.clone(), fs, dropped: 0 }
    }
}

impl WorkloadStage for OnModel {
    type Fs = WithCpuCost<ModelFs>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.dropped += 1;
        Ok(())
    }
}

/// Runs a workload and demands that it leaves nothing behind.
fn run(text: &str, seed: u64) -> (Vec<Phase>, u32) {
    let (phases, dropped, left) = run_and_keep(text, seed);
    assert_eq!(left.entries, 0, "{text} left something behind");
    (phases, dropped)
}

/// Runs a workload. Returns its phases, the number of times that it emptied the caches, and the
/// counts of its files.
fn run_and_keep(text: &str, seed: u64) -> (Vec<Phase>, u32, Totals) {
    let workload: Workload = text.parse().unwrap();
    let executor = Executor::simulated(seed);
    let mut stage = OnModel::new(&executor.runtime());
    executor
        .block_on(async {
            let phases = workload.run(&mut stage, seed, &mut ()).await.unwrap();
            let left = measure(&stage.fs, stage.fs.root(), WalkLimits::default()).await.unwrap();
            (phases, stage.dropped, left)
        })
        .unwrap()
}

fn named<'p>(phases: &'p [Phase], name: &str) -> &'p Phase {
    phases.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name} in {phases:?}"))
}

#[test]
fn create_delete_counts_files_and_time_passes() {
    let (phases, _) = run("create-delete:files=100", 1);
    assert_eq!((phases.len(), phases[0].operations, phases[0].bytes), (1, 100, 0));
    assert!(phases[0].seconds() > 0.0 && phases[0].rate().unwrap() > 1000.0);
}

#[test]
fn micro_has_four_phases_a_size_each_from_cold_caches() {
    let (phases, dropped) = run("micro:total=300k,sizes=2k+100k,files-min=4", 1);
    assert_eq!((phases.len(), dropped), (8, 8));
    assert_eq!(named(&phases, "create 2 KB").operations, 150);
    assert_eq!(named(&phases, "read 100 KB").bytes, 4 * 100 * 1024);
    assert_eq!(named(&phases, "delete 100 KB").bytes, 0);
}

#[test]
fn postmark_does_as_many_transactions_as_asked_and_a_seed_fixes_them() {
    let text = "postmark:files=50,transactions=400,directories=3";
    let (phases, _) = run(text, 7);
    let transactions = named(&phases, "transactions");
    assert_eq!(transactions.operations, 400);
    assert_eq!(named(&phases, "create").operations, 50);
    // Every transaction reads or appends, and half of them create: some 8 KB each.
    let per_transaction = transactions.bytes / 400;
    assert!((6_000..16_000).contains(&per_transaction), "{per_transaction}");
    assert_eq!(run(text, 7).0, phases);
    assert_ne!(run(text, 8).0, phases);
}

#[test]
fn postmark_without_buffering_writes_its_own_small_blocks() {
    let base = "postmark:files=20,transactions=0";
    let buffered = named(&run(base, 1).0, "create").seconds();
    let plain = named(&run(&format!("{base},buffered=no"), 1).0, "create").seconds();
    assert!(plain > 1.5 * buffered, "{plain} and {buffered}");
}

/// After a build, sources, objects, libraries and programs exist, but no test program of
/// `configure`. After a news server, the articles exist that arrived and were not removed. Would
/// catch phases that do less than they say.
#[test]
fn a_build_and_a_news_server_leave_the_expected_files() {
    let (phases, _, left) = run_and_keep("ssh-build", 1);
    let names: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.operations)).collect();
    assert_eq!(names, [("unpack", 626), ("config", 120), ("build", 268)]);
    // There are 9 directories, 626 sources, config.log and 14 files of configure, 260 objects, 8
    // libraries and programs.
    assert_eq!(left.entries, 9 + 626 + 15 + 268);
    let seconds: f64 = phases.iter().map(Phase::seconds).sum();
    let (same, ..) = run_and_keep("ssh-build:compute=no", 1);
    let without: f64 = same.iter().map(Phase::seconds).sum();
    assert!(without < 2.0 && seconds - without > 50.0, "{seconds} {without}");

    let text = "netnews:files=300,directories=120,unbatch=50,expire=80";
    let (phases, dropped, left) = run_and_keep(text, 1);
    let names: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.operations)).collect();
    assert_eq!(names, [("fill", 300), ("unbatch", 50), ("expire", 80)]);
    // There are 120 groups in two directories above them.
    assert_eq!((left.entries, dropped), (122 + 300 + 50 - 80, 1));
    let mean = phases[0].bytes / 300;
    assert!((2500..6000).contains(&mean), "articles of {mean} bytes");
    assert_eq!(run_and_keep(text, 1).0, phases);
}

/// Transactions change pages and leave their tables, as long as they were: the history has a line
/// for each one. Would catch a log that grows, and a history that is written over.
#[test]
fn transactions_leave_their_tables() {
    let text = "tpcb:accounts=64k,warm=5,transactions=7,commit=2";
    let (phases, dropped, left) = run_and_keep(text, 1);
    let names: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.operations)).collect();
    assert_eq!(names[1..], [("settle", 5), ("transactions", 7)]);
    let pages = (64 << 10) + 18 * 8192 + (4 << 20);
    assert_eq!((left.entries, left.bytes, dropped), (5, pages + 12 * 50, 1));
    assert_eq!(run_and_keep(text, 1).0, phases);
}

/// Each benchmark of the sources by itself does as many steps, on as many bytes, as in the row of
/// all of them, with cold caches before it if it has trees to find. Would catch a benchmark without
/// its trees, or with the other kind of them.
#[test]
fn a_benchmark_by_itself_finds_its_trees() {
    let base = "sources:processes=2,copies=2,files=40";
    let in_a_row = run_and_keep(base, 1).0;
    let counts =
        |phase: &Phase| (phase.name.clone(), phase.operations, phase.bytes, phase.files_made);
    assert_eq!(in_a_row.len(), Benchmark::ALL.len());
    for (phase, benchmark) in in_a_row.iter().zip(Benchmark::ALL) {
        let (alone, dropped, _) = run_and_keep(&format!("{base},only={}", benchmark.name), 1);
        assert_eq!(alone.iter().map(counts).collect::<Vec<_>>(), [counts(phase)]);
        let makes = benchmark.name.starts_with("write");
        assert_eq!(dropped, if makes { 1 } else { 2 }, "{}", benchmark.name);
    }
}

/// Each user's script has every command as often as its definition says, in an order of its own,
/// and the users' computing shares one processor: scripts of twice as many users take twice as long
/// where nothing waits for a disk. Would catch commands that are left out, scripts one after
/// another on a processor of their own, and files that are not removed.
#[test]
fn every_user_carries_out_the_whole_script() {
    let (phases, _, left) = run_and_keep("sdet-like:users=3", 1);
    let scripts = named(&phases, "scripts");
    let counts = [
        ("edit", 15),
        ("compile", 12),
        ("link", 3),
        ("copy", 12),
        ("touch", 8),
        ("remove", 14),
        ("move", 6),
        ("mkdir", 8),
        ("rmdir", 8),
        ("list", 15),
        ("find", 6),
        ("search", 16),
        ("compare", 5),
        ("format", 4),
        ("spell", 4),
        ("archive", 2),
        ("shell", 20),
    ];
    let mix: Vec<_> = scripts.mix.iter().map(|e| (e.name.as_str(), e.operations)).collect();
    assert_eq!(mix, counts.map(|(name, count)| (name, 3 * count)));
    assert_eq!(scripts.operations, 3 * 158);
    // What is left of a home: itself and three directories, its 22 files, objects of up to 12
    // sources, a program, a formatted text and an archive, and 12 + 8 - 14 copied or touched files.
    // Beside them are headers and two directories.
    let of_a_home = 4 + 22 + 3 + 6;
    let objects = left.entries - (3 * of_a_home + 10 + 2);
    assert!((3..=3 * 12).contains(&objects), "{objects} objects");

    let seconds = |users: u64| {
        named(&run_and_keep(&format!("sdet-like:users={users}"), 1).0, "scripts").seconds()
    };
    let (one, four) = (seconds(1), seconds(4));
    assert!((3.9..4.1).contains(&(four / one)), "{one} {four}");
    let (quick, ..) = run_and_keep("sdet-like:compute=no", 1);
    assert!(named(&quick, "scripts").seconds() < 0.8 * one);
    assert_eq!(run_and_keep("sdet-like:users=3", 1).0, phases);
}

/// A mail server gets its messages at their rate, each is accepted once and then delivered or
/// passed on in the given shares, the queue is empty at the end, and the mailboxes have what was
/// delivered and not read. Would catch messages that are lost or delivered twice, and lock files
/// that stay.
#[test]
fn a_mail_server_delivers_every_message_once() {
    let text = "mail-server:minutes=30,messages=120,users=20";
    let (phases, _, left) = run_and_keep(text, 1);
    let mail = named(&phases, "mail");
    let of = |kind: &str| mail.mix.iter().find(|entry| entry.name == kind).unwrap();
    let accepted = of("accept").operations;
    assert!((3400..3800).contains(&accepted), "{accepted} messages in 30 minutes");
    assert_eq!(of("deliver").operations + of("pass on").operations, accepted);
    let share = |part: &str, whole: u64| of(part).operations as f64 / whole as f64;
    assert!((0.27..0.33).contains(&share("pass on", accepted)), "{}", share("pass on", accepted));
    let read = share("read", of("deliver").operations);
    assert!((0.17..0.23).contains(&read), "{read}");
    let mean = of("accept").bytes as f64 / accepted as f64 - 700.0;
    assert!((3900.0..4500.0).contains(&mean), "messages of {mean} bytes");
    // Two directories, two logs and twenty mailboxes are left; two lines for each message in
    // sendmail's log, and one for each delivery in procmail's.
    assert_eq!(left.entries, 2 + 2 + 20);
    let in_boxes = left.bytes - 2 * 180 * accepted - 180 * of("deliver").operations;
    assert_eq!(in_boxes, of("deliver").bytes - of("read").bytes);
    assert!((1799.0..1802.0).contains(&mail.seconds()), "{}", mail.seconds());
    assert_eq!(run_and_keep(text, 1).0, phases);
}

/// A build reads every source for its dependencies, compiles three of ten of the others than
/// headers, and joins the objects of each directory and then all. With four processes the
/// computing, which shares one processor, takes as long. Would catch objects of sources that are
/// not compiled, and directories that are left out.
#[test]
fn a_kernel_is_built_from_all_its_objects() {
    let (phases, dropped, left) = run_and_keep("kernel-build:files=400", 1);
    let names: Vec<&str> = phases.iter().map(|p| &p.name[..]).collect();
    assert_eq!(names, ["unpack", "make dep", "compile", "link", "link the kernel"]);
    assert_eq!((dropped, phases[1].operations, phases[4].operations), (1, 400, 1));
    let compiled = phases[2].operations;
    assert!((80..=100).contains(&compiled), "{compiled} of 300 sources");
    // 25 directories and the top; a list in each, an object for each source, one more for each
    // directory with any.
    let directories = 25;
    assert_eq!(phases[1].files_made, directories);
    let joined = phases[3].operations;
    assert_eq!(left.entries, 400 + directories + directories + compiled + joined + 1);
    let kernel: u64 = phases[4].bytes;
    assert!(kernel > 0, "{phases:?}");
    let seconds = |text: &str| named(&run_and_keep(text, 1).0, "compile").seconds();
    let (one, four) =
        (seconds("kernel-build:files=400"), seconds("kernel-build:files=400,processes=4"));
    assert!((0.9..1.1).contains(&(four / one)), "{one} {four}");
    assert!(seconds("kernel-build:files=400,compute=no") < one / 10.0);
    assert_eq!(run_and_keep("kernel-build:files=400", 1).0, phases);
}

/// A web server reads the files of each class in their shares, and each request has one line in the
/// log of accesses, each post one in that of posts. Would catch shares that are mixed up, files
/// that are read in part, and lines that are written over.
#[test]
fn a_web_server_reads_its_classes_in_their_shares() {
    let text = "specweb-like:directories=20,requests=20000,clients=16,dynamic=no";
    let (phases, dropped, left) = run_and_keep(text, 1);
    let requests = named(&phases, "requests");
    assert_eq!((requests.operations, requests.mix.len(), dropped), (20_000, 7, 1));
    assert_eq!((requests.mix[4].operations, requests.mix[5].operations), (0, 0));
    let post = requests.mix[6].operations;
    assert!((860..1060).contains(&post), "{post} posts in 20,000 requests");
    let reads = (20_000 - post) as f64;
    let share = |class: usize| requests.mix[class].operations as f64 / reads * 100.0;
    for (class, wanted, within) in [(0, 35.0, 1.5), (1, 50.0, 1.5), (2, 14.0, 1.0), (3, 1.0, 0.3)] {
        assert!((share(class) - wanted).abs() < within, "{}: {}", class, share(class));
    }
    // Within a class the files have five times the smallest one's bytes on average, by a Poisson
    // distribution cut at 9.
    for (class, least) in [(0, 102.0), (1, 1024.0), (2, 10_240.0)] {
        let mean = requests.mix[class].bytes as f64 / requests.mix[class].operations as f64;
        assert!((4.7..5.1).contains(&(mean / least)), "{class}: {mean} bytes");
    }
    assert_eq!(left.entries, 20 * 37 + 2);
    let site = 20 * 45 * (102 + 1024 + 10_240 + 102_400);
    assert_eq!(left.bytes - site, 20_000 * 100 + post * 140);
    assert_eq!(run_and_keep(text, 1).0, phases);
}

/// Dynamic requests come in SPECweb99's shares, each reads a file besides the records of an
/// advertisement, and a post is logged and counted. Would catch dynamic pages that read nothing,
/// and posts that write over the count or each other.
#[test]
fn dynamic_pages_read_their_files_and_records() {
    let text = "specweb-like:directories=20,requests=20000,clients=16";
    let (phases, _, left) = run_and_keep(text, 1);
    let mix = &named(&phases, "requests").mix;
    let share = |kind: usize| mix[kind].operations as f64 / 200.0;
    let files: f64 = (0..4).map(share).sum();
    assert!((69.0..71.0).contains(&files), "{files}");
    for (kind, percent) in [(4, 12.6), (5, 12.6), (6, 4.8)] {
        assert!((share(kind) - percent).abs() < 0.7, "{}: {}", mix[kind].name, share(kind));
        // The files of all classes have 15 KB on average.
        let mean = mix[kind].bytes / mix[kind].operations;
        assert!((11_000..19_000).contains(&mean), "{}: {mean}", mix[kind].name);
    }
    let site = 20 * 45 * (102 + 1024 + 10_240 + 102_400) + 10_000 * 15 + 360 * 38;
    assert_eq!(left.entries, 20 * 37 + 4);
    assert_eq!(left.bytes - site, 20_000 * 100 + 10 + mix[6].operations * 140);
}

/// The transactions come in their shares, and the tables grow by the rows that they add: an order,
/// its lines, a payment's history. Would catch rows that are written over, a log that grows, and
/// shares that are mixed up.
#[test]
fn transactions_like_those_of_tpcc_grow_their_tables() {
    let text = "tpcc-like:warehouses=1,transactions=3000,clients=8";
    let (phases, dropped, left) = run_and_keep(text, 1);
    let done = named(&phases, "transactions");
    assert_eq!((done.operations, dropped, left.entries), (3000, 1, 10));
    let of = |kind: &str| done.mix.iter().find(|entry| entry.name == kind).unwrap().operations;
    let within = |kind: &str, least: u64, most: u64| {
        assert!((least..most).contains(&of(kind)), "{kind}: {}", of(kind));
    };
    within("new-order", 1270, 1430);
    within("payment", 1210, 1370);
    for kind in ["order-status", "delivery", "stock-level"] {
        within(kind, 80, 160);
    }
    let grown = left.bytes - phases[0].bytes;
    // Ten lines of 54 bytes and an order of 24 for each new order, 46 bytes for each payment; in
    // whole pages.
    let rows = of("new-order") * (540 + 24) + of("payment") * 46;
    assert!((rows * 9 / 10..rows * 11 / 10 + 4 * 8192).contains(&grown), "{grown}, {rows}");
    assert_eq!(run_and_keep(text, 1).0, phases);
}

#[test]
fn a_tree_is_copied_compared_and_removed() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("a/b")).unwrap();
    fs::write(temp.path().join("a/b/f"), vec![7; 70_000]).unwrap();
    fs::hard_link(temp.path().join("a/b/f"), temp.path().join("g")).unwrap();
    std::os::unix::fs::symlink("a/b", temp.path().join("s")).unwrap();
    let (phases, dropped) = run(&format!("tree:{}", temp.path().display()), 1);
    let names: Vec<&str> = phases.iter().map(|p| &p.name[..]).collect();
    assert_eq!((names, dropped), (vec!["copy in", "read back", "delete"], 2));
    assert!(phases.iter().all(|p| p.operations == 5), "{phases:?}");
    assert_eq!((phases[0].bytes, phases[1].bytes), (70_000, 140_000));
}

#[test]
fn a_tree_that_changes_under_the_run_is_noticed() {
    struct Meddle(std::path::PathBuf);
    impl PhaseListener for Meddle {
        fn ended(&mut self, phase: &Phase) {
            if phase.name == "copy in" {
                fs::write(&self.0, "other").unwrap();
            }
        }
    }
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("f");
    fs::write(&file, "this").unwrap();
    let workload: Workload = format!("tree:{}", temp.path().display()).parse().unwrap();
    let executor = Executor::simulated(1);
    let mut stage = OnModel::new(&executor.runtime());
    let result = executor.block_on(workload.run(&mut stage, 1, &mut Meddle(file))).unwrap();
    let Err(WorkloadError::Differs { first, .. }) = result else { panic!("{result:?}") };
    assert!(first.starts_with("/f: "), "{first}");
}

/// Calls of a shell and the programs that it ran: a directory, a file, one that a subshell writes
/// after `cat`, a copy, a rename, a link, what `cat` joins, a removal of all but that. Each is done
/// again, in the order in which one waited for another, whichever system carries them out, and the
/// same files are left. Would catch calls that mean another file than they did, and processes that
/// begin too early.
#[test]
fn recorded_calls_are_carried_out_again() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/shell.strace");
    for think in ["", ",think=yes"] {
        let (phases, dropped, left) = run_and_keep(&format!("calls:{file},dir=/m{think}"), 1);
        assert_eq!((phases.len(), dropped, left.entries), (2, 1, 1));
        let kinds: Vec<(&str, u64, u64)> = named(&phases, "calls")
            .mix
            .iter()
            .map(|kind| (kind.name.as_str(), kind.operations, kind.bytes))
            .collect();
        assert_eq!(
            kinds,
            [
                ("not there", 1, 0),
                ("open", 12, 0),
                ("close", 12, 0),
                ("read", 1, 16),
                ("write", 2, 8),
                ("copy", 4, 56),
                ("fsync", 1, 0),
                ("remove", 5, 0),
                ("mkdir", 1, 0),
                ("rename", 1, 0),
                ("link", 1, 0)
            ]
        );
        // Four files, a directory and a link.
        assert_eq!(named(&phases, "calls").files_made, 6);
        // The recording took 0.11 seconds.
        assert_eq!(named(&phases, "calls").seconds() > 0.05, !think.is_empty());
    }
}

/// Files that hold no calls are refused with what to do.
#[test]
fn recordings_without_calls_are_refused() {
    let refused = |text: &str| ordo_compare::parse_workload(text).unwrap_err().to_string();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/shell.strace");
    assert!(refused("calls:").contains("calls needs a file"));
    assert!(refused("calls:/no/such").contains("No such file"));
    assert!(refused(&format!("calls:{file},think=1")).contains("yes or no for think"));
    assert!(refused(&format!("calls:{file},dirs=/n")).contains("it has dir, think"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    assert!(refused(&format!("calls:{path}")).contains("has no system calls"));
    // Lines of noise, cut at every place, neither panic nor hang.
    let text = fs::read_to_string(file).unwrap();
    let cut = folder.path().join("cut");
    for at in (0..text.len()).step_by(97) {
        fs::write(&cut, &text[..at]).unwrap();
        if let Ok(workload) = format!("calls:{}", cut.display()).parse::<Workload>() {
            let executor = Executor::simulated(1);
            let mut stage = OnModel::new(&executor.runtime());
            executor.block_on(workload.run(&mut stage, 1, &mut ())).unwrap().unwrap();
        }
    }
    // Calls about files elsewhere are none.
    fs::write(&cut, "7 1.0 openat(AT_FDCWD</m>, \"a\", O_RDONLY) = 3</m/a> <0.0>\n").unwrap();
    let elsewhere = format!("calls:{},dir=/n", cut.display());
    assert!(refused(&elsewhere).contains("no calls about files below /n; record"));
    // A file that would be far too large is refused before anything is written.
    fs::write(&cut, "7 1.0 pread64(3</m/a>, \"\"..., 100, 4611686018427387904) = 100 <0.0>\n")
        .unwrap();
    assert!(refused(&format!("calls:{}", cut.display())).contains("at the start"));
}

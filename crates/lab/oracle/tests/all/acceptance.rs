//! Workloads beside the programs that they stand for.
//!
//! Fault model: a workload whose mix of operations is not that of the real program: files that are
//! not read, names that are not removed, an fsync too few, changes that nothing shows because reads
//! outnumber them.

use ordo_figures::acceptance::{CANDIDATES, Candidate, judge};
use ordo_figures::mix::{Counting, FileOperation, JoinedCalls, Mix};
use ordo_runtime::Executor;
use ordo_trace::strace::parse;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{FileSystem, FsResult, NewNode, RenameMode, SetAttr, Timestamp};

/// Each workload that has a recording has its mix. The bytes agree too, but for builds: programs of
/// today are larger, and their objects hold debugging information.
#[test]
fn workloads_have_the_mix_of_their_programs() {
    let mut with_bytes = Vec::new();
    for candidate in CANDIDATES {
        let verdict = judge(candidate, 1).unwrap();
        assert!(
            verdict.is_accepted(),
            "{}: distances {:?}, operations {:?}",
            candidate.name,
            verdict.distances(),
            verdict.operations()
        );
        with_bytes.extend(verdict.has_its_bytes().then_some(candidate.name));
    }
    for name in ["postmark", "pgbench", "tpcc", "nginx", "sendmail"] {
        assert!(with_bytes.contains(&name), "{name}: {with_bytes:?}");
    }
}

/// Workloads that leave something out are refused: an fsync of the directory, the files beside an
/// object, the headers, the database's own cache.
#[test]
fn a_workload_that_leaves_something_out_is_refused() {
    let wrong = [
        ("sendmail", "mail-server:minutes=10,messages=100,users=50,read=0"),
        ("kernel", "kernel-build:processes=1,files=12000,includes=985,compute=no"),
        ("openssh-build", "ssh-build:includes=0"),
        ("pgbench", "tpcb:accounts=107m,warm=0,transactions=400"),
        ("tpcc", "tpcc-like:warehouses=2,transactions=200,clients=10"),
        ("nginx", "specweb-like:directories=2,requests=0"),
    ];
    for (name, workload) in wrong {
        let candidate = CANDIDATES.iter().find(|candidate| candidate.name == name).unwrap();
        let verdict = judge(&Candidate { workload, ..*candidate }, 1).unwrap();
        assert!(!verdict.is_accepted(), "{workload}: {:?}", verdict.distances());
    }
}

/// The calls of a program: a file is made, written in two calls and made durable, read back in two
/// and once more at another place, cut, linked, renamed and removed.
const CALLS: &str = r#"
7 1.00 mkdir("/m/d", 0755) = 0 <0.1>
7 1.01 openat(AT_FDCWD</m>, "d/a", O_RDWR|O_CREAT, 0644) = 3</m/d/a> <0.1>
7 1.02 write(3</m/d/a>, ""..., 4096) = 4096 <0.1>
7 1.03 write(3</m/d/a>, ""..., 904) = 904 <0.1>
7 1.04 fsync(3</m/d/a>) = 0 <0.1>
7 1.05 pread64(3</m/d/a>, ""..., 100, 0) = 100 <0.1>
7 1.06 pread64(3</m/d/a>, ""..., 100, 100) = 100 <0.1>
7 1.07 pread64(3</m/d/a>, ""..., 100, 4000) = 100 <0.1>
7 1.08 pread64(3</m/d/a>, ""..., 100, 5000) = 0 <0.1>
7 1.09 ftruncate(3</m/d/a>, 10) = 0 <0.1>
7 1.10 close(3</m/d/a>) = 0 <0.1>
7 1.11 openat(AT_FDCWD</m>, "d/a", O_RDONLY) = 3</m/d/a> <0.1>
7 1.12 openat(AT_FDCWD</m>, "d/none", O_RDONLY) = -1 ENOENT (No such file or directory) <0.1>
7 1.13 openat(AT_FDCWD</m>, "d", O_RDONLY|O_DIRECTORY) = 4</m/d> <0.1>
7 1.14 link("/m/d/a", "/m/d/b") = 0 <0.1>
7 1.15 rename("/m/d/b", "/m/d/c") = 0 <0.1>
7 1.16 unlink("/m/d/c") = 0 <0.1>
7 1.17 unlink("/m/d/a") = 0 <0.1>
7 1.18 unlinkat(AT_FDCWD</m>, "d", AT_REMOVEDIR) = 0 <0.1>
"#;

/// The same operations on a file system.
async fn operations<F: FileSystem>(fs: &F) -> FsResult<()> {
    let root = fs.root();
    let dir = fs.create(root, b"d", &NewNode::directory(0o755)).await?.ino;
    let file = fs.create(dir, b"a", &NewNode::file(0o644)).await?.ino;
    fs.open(file).await?;
    fs.write(file, 0, &[1; 4096]).await?;
    fs.write(file, 4096, &[1; 904]).await?;
    fs.fsync(file).await?;
    for at in [0, 100, 4000, 5000] {
        fs.read(file, at, &mut [0; 100]).await?;
    }
    fs.setattr(file, &SetAttr { size: Some(10), ..SetAttr::default() }).await?;
    fs.close(file).await?;
    fs.open(fs.lookup(dir, b"a").await?.ino).await?;
    fs.lookup(dir, b"none").await.unwrap_err();
    fs.link(file, dir, b"b").await?;
    fs.rename(dir, b"b", dir, b"c", RenameMode::Replace).await?;
    fs.unlink(dir, b"c").await?;
    fs.unlink(dir, b"a").await?;
    fs.close(file).await?;
    fs.rmdir(root, b"d").await
}

/// System calls and operations of a workload are counted alike.
#[test]
fn calls_and_operations_count_alike() {
    for (joined, reads) in [(JoinedCalls::Ranges, 2), (JoinedCalls::Files, 1)] {
        let calls = Mix::of_calls(&parse(CALLS, "/m"), joined);
        let executor = Executor::simulated(1);
        let model = ModelFs::new(ModelConfig::ufs2(4096), Timestamp::default);
        let fs = Counting::new(model, joined);
        executor.block_on(operations(&fs)).unwrap().unwrap();
        assert_eq!(fs.mix(), calls);
        assert_eq!((calls.count(FileOperation::Read), calls.bytes_read), (reads, 300));
        assert_eq!((calls.count(FileOperation::Write), calls.bytes_written), (1, 5000));
        assert_eq!((calls.count(FileOperation::Remove), calls.total()), (2, 11 + reads));
    }
}

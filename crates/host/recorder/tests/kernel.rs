//! This kernel's own file systems on a pseudo-device: made, mounted, used, unmounted. Every block
//! must have a name, and at the end an owner exactly where the file system's own maps call it used.
//!
//! Fault model: a kernel that is newer than the recorded traces, with features that they do not
//! have.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use ordo_recorder::{DeviceSetup, Recording, Session, Transport};
use ordo_trace::{RequestOp, Trace};
use ordo_watcher::analysis::Analysis;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

/// A lock for one test at a time, since loop devices and mounts belong to the whole machine.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn run(program: &str, args: &[&str]) {
    let out =
        Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A device for a test; `None`, with a message, where this machine cannot have one.
fn session(bytes: u64) -> Option<Session> {
    match Session::new(bytes) {
        Ok(session) => Some(session),
        Err(error) => {
            ordo_testkit::skip(&format!("no pseudo-device: {error}"));
            None
        }
    }
}

/// Files made, synced one by one, grown, overwritten, linked, removed.
fn work(dir: &Path) {
    use std::io::Write;
    std::fs::create_dir(dir.join("d")).unwrap();
    for i in 0..120 {
        std::fs::write(dir.join(format!("d/file-{i}")), vec![i as u8; 700 * i]).unwrap();
    }
    let mut log = std::fs::File::create(dir.join("log")).unwrap();
    for i in 0..12 {
        writeln!(log, "line {i}").unwrap();
        log.sync_all().unwrap();
    }
    let big = vec![0x5a; 6 << 20];
    std::fs::write(dir.join("big"), &big).unwrap();
    run("sync", &["-f", dir.to_str().unwrap()]);
    std::os::unix::fs::symlink("x".repeat(150), dir.join("long-link")).unwrap();
    (0..60).for_each(|i| std::fs::remove_file(dir.join(format!("d/file-{}", i * 2))).unwrap());
    std::fs::remove_file(dir.join("big")).unwrap();
    std::fs::write(dir.join("after"), &big[..3 << 20]).unwrap();
}

/// Records the kernel's requests for a file system that is made and mounted with these arguments.
fn recorded(bytes: u64, mkfs: &[&str], kind: &str, options: &str) -> Option<Recording> {
    let session = session(bytes)?;
    let device = session.device().to_str().unwrap().to_owned();
    run(mkfs[0], &[&mkfs[1..], &[&device]].concat());
    run("sync", &[&device]);
    session.start().unwrap();
    let folder = tempfile_dir();
    let dir = folder.path().to_str().unwrap();
    let mounted =
        Command::new("mount").args(["-t", kind, "-o", options, &device, dir]).output().unwrap();
    if !mounted.status.success() {
        ordo_testkit::skip(&format!(
            "mount {kind}: {}",
            String::from_utf8_lossy(&mounted.stderr).trim()
        ));
        return None;
    }
    let worked = std::panic::catch_unwind(|| work(folder.path()));
    run("umount", &[dir]);
    worked.unwrap();
    Some(session.finish().unwrap())
}

fn tempfile_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Replays a recording to a watcher, and asserts that it knows every block.
fn known(recording: &Recording, what: &str) -> (Rc<Watch>, Analysis) {
    let watch = Watch::over(&&recording.start[..]).unwrap();
    let unknown = Rc::new(RefCell::new(Vec::new()));
    let into = unknown.clone();
    watch.listen(move |told| {
        if told.named.parts.iter().any(|part| part.class == Class::Unknown) {
            into.borrow_mut().push(told.named.to_string());
        }
    });
    ordo_trace::replay(&recording.trace, &watch);
    assert!(unknown.borrow().is_empty(), "{what}: {:?}", unknown.borrow());
    let analysis = Analysis::of(&watch);
    assert_eq!(analysis.stats.unclaimed, 0, "{what}: {:?}", analysis.stats);
    assert_eq!(analysis.orphan_blocks, 0, "{what}");
    (watch, analysis)
}

fn after(recording: &Recording) -> Vec<u8> {
    let mut image = recording.start.clone();
    for r in recording.trace.requests() {
        if let (RequestOp::Write, Some(data)) = (r.op, recording.trace.data(r)) {
            image[r.offset as usize..][..data.len()].copy_from_slice(data);
        }
    }
    image
}

/// Free blocks, as dumpe2fs lists them.
fn free(image: &[u8]) -> Option<BTreeSet<u64>> {
    let folder = tempfile_dir();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    let text = ordo_testkit::judge("dumpe2fs", &[path.to_str()?])?;
    let mut free = BTreeSet::new();
    let groups = text.lines().skip_while(|l| !l.starts_with("Group 0"));
    for line in groups.filter_map(|l| l.trim().strip_prefix("Free blocks: ")) {
        for range in line.split(", ").filter(|r| !r.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            free.extend(first.parse::<u64>().ok()?..=last.parse().ok()?);
        }
    }
    Some(free)
}

/// Asserts that a block has an owner exactly where it is used. Reads are shown to the watcher; a
/// free block must stay unknown.
fn owners_are_right(watch: &Watch, image: &[u8], free: &BTreeSet<u64>, size: usize, what: &str) {
    use ordo_block::tap::{Completed, TapSink};
    let said = Rc::new(RefCell::new(false));
    let into = said.clone();
    watch.listen(move |told| {
        *into.borrow_mut() =
            told.named.parts.iter().all(|part| part.what != BlockMeaning::Unclaimed);
    });
    for (block, data) in image.chunks_exact(size).enumerate() {
        let zero = ordo_runtime::Time::ZERO;
        watch.completed(&Completed {
            id: 0,
            order: 0,
            op: ordo_block::Operation::Read,
            offset: (block * size) as u64,
            len: size as u64,
            flags: ordo_block::WriteFlags::empty(),
            data: Some(data),
            issued: zero,
            at: zero,
            epoch: 0,
            result: Ok(()),
        });
        assert_eq!(*said.borrow(), !free.contains(&(block as u64)), "{what}: block {block}");
    }
}

#[test]
fn ext2_ext3_and_ext4_have_names() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let shapes: [(&str, &str, &str); 7] = [
        ("-t ext2 -b 1024", "ext2", "defaults"),
        ("-t ext3 -b 1024", "ext3", "data=ordered"),
        ("-t ext3 -b 4096", "ext3", "data=journal"),
        ("-t ext3 -b 1024", "ext3", "data=writeback"),
        ("-t ext4 -b 4096", "ext4", "data=ordered"),
        ("-t ext4 -b 1024 -O fast_commit", "ext4", "data=ordered"),
        ("-t ext4 -b 4096 -O ^metadata_csum,meta_bg,^resize_inode", "ext4", "data=journal"),
    ];
    for (make, kind, options) in shapes {
        let what = format!("{make}, {options}");
        let mut mkfs = vec!["mke2fs", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        mkfs.extend(make.split(' '));
        let Some(recording) = recorded(64 << 20, &mkfs, kind, options) else { return };
        let (watch, analysis) = known(&recording, &what);
        assert_eq!(watch.system(), kind, "{what}");
        assert_eq!(kind == "ext2", analysis.journal.bytes == 0, "{what}");
        let t = &analysis.transactions;
        assert_eq!(t.bad_checksums, 0, "{what}: {t:?}");
        assert_eq!(options == "data=journal", t.data_copies > 1000, "{what}: {t:?}");
        let image = after(&recording);
        let Some(free) = free(&image) else { return };
        let size = 1024usize << image[1048];
        owners_are_right(&watch, &image, &free, size, &what);
    }
}

#[test]
fn xfs_has_names() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if Command::new("mkfs.xfs").arg("-V").output().is_err() {
        return ordo_testkit::skip("mkfs.xfs is not installed");
    }
    let Some(recording) = recorded(320 << 20, &["mkfs.xfs", "-q", "-f"], "xfs", "defaults") else {
        return;
    };
    let (watch, analysis) = known(&recording, "xfs");
    assert_eq!(watch.system(), "xfs");
    assert!(analysis.transactions.committed > 12, "{:?}", analysis.transactions);
}

/// A program's writes to the device are in the trace, in order, with their contents, and so are its
/// flushes; the earlier contents are the start.
#[test]
fn requests_are_recorded_as_they_are() {
    use std::os::unix::fs::FileExt;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(session) = session(8 << 20) else { return };
    let device = std::fs::OpenOptions::new().read(true).write(true).open(session.device()).unwrap();
    device.write_all_at(&[1; 4096], 0).unwrap();
    device.sync_all().unwrap();
    session.start().unwrap();
    for (byte, at) in [(2, 1 << 20), (3, 0)] {
        device.write_all_at(&[byte; 8192], at).unwrap();
        device.sync_all().unwrap();
    }
    drop(device);
    let recording = session.finish().unwrap();
    assert_eq!((recording.start[0], recording.start[4096]), (1, 0));
    let writes: Vec<_> =
        recording.trace.requests().iter().filter(|r| r.op == RequestOp::Write).collect();
    // Flushes are counted from the device's creation.
    let first = recording.trace.requests()[0].epoch;
    let seen: Vec<_> = writes.iter().map(|r| (r.offset, r.len, r.epoch - first)).collect();
    assert_eq!(seen, [(1 << 20, 8192, 0), (0, 8192, 1)]);
    assert_eq!(recording.trace.data(writes[1]), Some(&[3; 8192][..]));
    assert!(writes[0].end.unwrap().at <= writes[1].issued, "in real time");
}

/// A device in use is not removed; a dropped session leaves nothing behind.
#[test]
fn a_session_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(session) = session(8 << 20) else { return };
    let device = session.device().to_owned();
    let folder = session.contents().parent().unwrap().to_str().unwrap().to_owned();
    let is_mounted = || std::fs::read_to_string("/proc/mounts").unwrap().contains(&folder);
    assert!(is_mounted(), "{folder}");
    drop(session);
    let listed = ordo_testkit::judge("losetup", &["-l", "-n", "-O", "NAME"]).unwrap_or_default();
    assert!(!listed.lines().any(|l| Path::new(l.trim()) == device), "{listed}");
    assert!(!is_mounted(), "{folder}");
}

/// An external XFS log is used until it wraps around: every block of it has a name, and every
/// transaction its commit, except perhaps the last. Catches lost records that continue at the
/// device's start.
#[test]
fn a_log_of_xfs_elsewhere_is_read() {
    const FILES: u32 = 4000;
    const ROUNDS: u32 = 80;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(session) = session(64 << 20) else { return };
    let log = session.device().to_str().unwrap().to_owned();
    let place = Transport::Memory(320 << 20);
    let fs = Session::with(DeviceSetup { place, ..DeviceSetup::in_memory(0) }).unwrap();
    let device = fs.device().to_str().unwrap().to_owned();
    run("mkfs.xfs", &["-q", "-f", "-l", &format!("logdev={log}"), &device]);
    run("sync", &[&log]);
    session.start().unwrap();
    let folder = tempfile_dir();
    let dir = folder.path().to_str().unwrap();
    let options = format!("logdev={log}");
    let mounted = Command::new("mount").args(["-t", "xfs", "-o", &options, &device, dir]).output();
    let mounted = mounted.unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let worked = std::panic::catch_unwind(|| {
        let path = |n: u32| folder.path().join(n.to_string());
        (0..FILES).for_each(|n| std::fs::write(path(n), [7; 20]).unwrap());
        for round in 0..ROUNDS {
            let mode = <Permissions as PermissionsExt>::from_mode(0o600 + round % 8);
            (0..FILES).for_each(|n| std::fs::set_permissions(path(n), mode.clone()).unwrap());
            run("sync", &["-f", dir]);
        }
    });
    run("umount", &[dir]);
    worked.unwrap();
    fs.start().unwrap();
    fs.finish().unwrap();
    let recording = session.finish().unwrap();
    let (watch, analysis) = known(&recording, "xfs");
    assert_eq!(watch.system(), "xfs log");
    let t = &analysis.transactions;
    assert!(t.committed > 20 && t.committed + 1 >= t.seen, "{t:?}");
    let written = analysis.stats.writes.total().bytes;
    assert!(written > 72 << 20, "the log has begun again: {written}");
}

/// An external journal: transactions must be read as from an internal one, and every copy must have
/// the checksum that the kernel gave it. Catches blocks that are counted from the journal's start
/// and not from the device's.
#[test]
fn a_journal_elsewhere_is_read() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for size in ["1024", "4096"] {
        let Some(session) = session(16 << 20) else { return };
        let journal = session.device().to_str().unwrap().to_owned();
        run("mke2fs", &["-q", "-F", "-b", size, "-O", "journal_dev", &journal]);
        let place = Transport::Memory(64 << 20);
        let fs = Session::with(DeviceSetup { place, ..DeviceSetup::in_memory(0) }).unwrap();
        let device = fs.device().to_str().unwrap().to_owned();
        run(
            "mke2fs",
            &["-q", "-F", "-t", "ext4", "-b", size, "-J", &format!("device={journal}"), &device],
        );
        run("sync", &[&journal]);
        session.start().unwrap();
        let folder = tempfile_dir();
        let dir = folder.path().to_str().unwrap();
        let mounted = Command::new("mount").args(["-t", "ext4", &device, dir]).output().unwrap();
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        let worked = std::panic::catch_unwind(|| work(folder.path()));
        run("umount", &[dir]);
        worked.unwrap();
        fs.start().unwrap();
        fs.finish().unwrap();
        let recording = session.finish().unwrap();
        let (watch, analysis) = known(&recording, size);
        assert_eq!(watch.system(), "ext journal");
        let t = &analysis.transactions;
        assert!(t.committed > 10 && t.copies.greatest > 5, "{t:?}");
        assert_eq!(t.bad_checksums, 0, "{t:?}");
    }
}

/// Checksums of whole transactions, which this kernel writes when metadata checksums are off: all
/// must be right, and one wrong after a bit of a copy is flipped.
#[test]
fn checksums_of_whole_transactions_are_right() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mkfs = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let Some(recording) = recorded(64 << 20, &mkfs, "ext4", "journal_checksum") else { return };
    let (_, analysis) = known(&recording, "journal_checksum");
    assert!(analysis.transactions.committed > 10);
    assert_eq!(analysis.transactions.bad_checksums, 0, "{:?}", analysis.transactions);
    // The first copy in the journal, found through the rows.
    let watch = Watch::over(&&recording.start[..]).unwrap();
    let copy = Rc::new(RefCell::new(None));
    let into = copy.clone();
    watch.listen(move |told| {
        let copies = told.named.parts.iter().find(|part| part.class == Class::JournalData);
        if let Some(part) = copies {
            into.borrow_mut().get_or_insert(part.offset);
        }
    });
    ordo_trace::replay(&recording.trace, &watch);
    let at = copy.borrow().unwrap();
    let (mut trace, mut done) = (Trace::new(512, true), false);
    for r in recording.trace.requests() {
        let data = recording.trace.data(r).map(|bytes| {
            let mut bytes = bytes.to_vec();
            if r.op == RequestOp::Write && !done && (r.offset..r.offset + r.len).contains(&at) {
                bytes[(at - r.offset) as usize + 777] ^= 4;
                done = true;
            }
            trace.keep(&bytes)
        });
        trace.push(ordo_trace::TraceRequest { data, ..*r });
    }
    let watch = Watch::over(&&recording.start[..]).unwrap();
    ordo_trace::replay(&trace, &watch);
    assert_eq!(Analysis::of(&watch).transactions.bad_checksums, 1);
}

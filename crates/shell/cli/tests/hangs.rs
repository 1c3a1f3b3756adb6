//! Nothing hangs.
//!
//! Fault model: the server of a mount is killed or stopped; the mount is taken from its users
//! (`umount -l`, `umount -f`); the device below is pulled out; the image is cut off, or its host is
//! full; a second process wants the image by another name. Demanded each time: every program that
//! uses the mount gets an error within seconds, or can be killed; `sync` of other programs returns;
//! the mount can be removed; the server ends; and after a check everything is there that was synced
//! before.

mod mounting;

use std::fs::{self, File};
use std::io::{Error, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use mounting::{Disk, ORDERINGS, can_mount, ordo, run, text, wait_until_gone};
use ordo_recorder::{DeviceSetup, KeepRequests, Session, Transport};
use rustix::io::Errno;

/// The time that anything may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(program: &str, args: &[&str]) -> Child {
    let command = &mut Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether a program ends in time. Otherwise it is killed.
fn ends(mut child: Child) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    false
}

fn is_one_of(error: &Error, codes: &[Errno]) -> bool {
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// `sync` of other programs returns: of everything, and of a file system beside the mount.
fn assert_sync_returns(beside: &Path) {
    assert!(ends(start("sync", &[])), "sync hangs");
    assert!(ends(start("sync", &["-f", beside.to_str().unwrap()])), "sync -f hangs");
}

fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Mounts an image or device that is not the disk's own.
fn mount(source: &str, disk: &Disk) -> Output {
    let options = format!("ordering={}", disk.ordering);
    let program = cargo_bin("ordo");
    let words = ["60", program.to_str().unwrap(), "mount", source, disk.dir().to_str().unwrap()]
        .map(str::to_owned);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.extend(["-o", &options]);
    run("timeout", &words)
}

/// Writes `/kept` and syncs it, then a file that stays open and is not synced.
fn use_it(dir: &Path) -> File {
    fs::write(dir.join("kept"), b"kept").unwrap();
    File::open(dir.join("kept")).unwrap().sync_all().unwrap();
    let mut open = File::create(dir.join("open")).unwrap();
    open.write_all(&[1; 10_000]).unwrap();
    open
}

/// A mounted disk with `/kept`, which is synced, and a file that is open and written to.
fn in_use(ordering: &'static str) -> (Disk, File) {
    let disk = Disk::new(ordering, 32);
    disk.mount();
    let open = use_it(&disk.dir());
    (disk, open)
}

fn assert_kept(disk: &Disk) {
    let out = disk.fsck(&["-y"]);
    assert!(out.status.code().is_some_and(|code| code <= 1), "{}", text(&out));
    disk.assert_clean();
    // After a crash without an ordering, only the state after a check is promised.
    if disk.ordering != "none" {
        assert_eq!(ordo(&["cat", disk.image(), "/kept"]).stdout, b"kept", "{}", disk.ordering);
    }
}

/// Every program that touches a mount whose server was killed gets an error at once. So does a
/// program that waits for a reply at that moment. Would catch a connection that outlives its
/// server, as one does that another process has inherited.
#[test]
fn a_killed_server() {
    if !can_mount() {
        return;
    }
    for ordering in ORDERINGS {
        let (disk, open) = in_use(ordering);
        let dir = disk.dir();
        let server = disk.server();
        // A program waits for a reply while the server dies.
        run("kill", &["-STOP", &server.to_string()]);
        let waits = start("ls", &["-l", dir.join("not-known").to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(100));
        run("kill", &["-KILL", &server.to_string()]);
        assert!(ends(waits), "{ordering}: a program that waited still does");
        wait_until_gone(server);
        for error in [
            open.write_at(&[2; 100], 0).unwrap_err(),
            open.sync_all().unwrap_err(),
            fs::read(dir.join("other")).unwrap_err(),
            fs::read_dir(&dir).map(drop).unwrap_err(),
        ] {
            let codes = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO];
            assert!(is_one_of(&error, &codes), "{ordering}: {error}");
        }
        assert_sync_returns(disk.folder.path());
        drop(open);
        assert!(ends(start("umount", &[dir.to_str().unwrap()])), "{ordering}: umount hangs");
        assert_kept(&disk);
    }
}

/// While a server is stopped its users wait, but can be killed. When it continues, so do they.
/// `umount -f` removes the mount even while it is stopped.
#[test]
fn a_stopped_server() {
    if !can_mount() {
        return;
    }
    for by_force in [false, true] {
        let (disk, open) = in_use("soft-updates");
        let dir = disk.dir();
        let server = disk.server();
        run("kill", &["-STOP", &server.to_string()]);
        let mut waits = start("touch", &[dir.join("late").to_str().unwrap()]);
        let mut killed = start("cat", &[dir.join("unknown").to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(200));
        assert!(killed.try_wait().unwrap().is_none(), "it answers: the server was not stopped");
        killed.kill().unwrap();
        assert!(ends(killed), "a program that waits for a stopped server cannot be killed");
        assert!(waits.try_wait().unwrap().is_none());
        if by_force {
            // Every waiting program gets an error. The mount itself is in use until its files are
            // closed.
            assert!(ends(start("umount", &["-f", dir.to_str().unwrap()])), "umount -f hangs");
            assert!(ends(waits), "a program that waited still does");
            drop(open);
            assert!(ends(start("umount", &["-f", "-l", dir.to_str().unwrap()])));
            assert_sync_returns(disk.folder.path());
            run("kill", &["-CONT", &server.to_string()]);
            wait_until_gone(server);
            assert_kept(&disk);
            continue;
        }
        run("kill", &["-CONT", &server.to_string()]);
        assert!(ends(waits), "it does not continue");
        assert!(dir.join("late").exists());
        drop(open);
        disk.umount();
        disk.assert_clean();
    }
}

/// Any `sync` asks every mount, so a stopped server holds it up, until the kernel gives the mount
/// up after `timeout=` seconds (it looks every 15). Would catch a timeout that the kernel is not
/// told.
#[test]
fn a_stopped_server_is_given_up() {
    if !can_mount() {
        return;
    }
    if !kernel_is_at_least(6, 16) {
        return ordo_testkit::skip("this kernel gives no server up (Linux 6.16)");
    }
    let disk = Disk::new("soft-updates", 32);
    let out = disk.mount_with("timeout=3");
    assert!(out.status.success(), "{}", text(&out));
    drop(use_it(&disk.dir()));
    let server = disk.server();
    run("kill", &["-STOP", &server.to_string()]);
    let waits = start("touch", &[disk.dir().join("late").to_str().unwrap()]);
    let sync = start("sync", &[]);
    let in_time = (ends(waits), ends(sync));
    run("kill", &["-KILL", &server.to_string()]);
    assert_eq!(in_time, (true, true), "a user of the mount, and a sync");
    wait_until_gone(server);
    assert!(ends(start("umount", &[disk.dir().to_str().unwrap()])));
    assert_kept(&disk);
}

/// After `umount -l` the directory is empty at once, the open file works until it is closed, and
/// then the server unmounts and ends by itself, with a clean disk.
#[test]
fn umount_lazily_while_in_use() {
    if !can_mount() {
        return;
    }
    let (disk, mut open) = in_use("soft-updates");
    let server = disk.server();
    assert!(ends(start("umount", &["-l", disk.dir().to_str().unwrap()])), "umount -l hangs");
    assert!(!disk.dir().join("kept").exists());
    open.write_all(&[3; 10_000]).unwrap();
    open.sync_all().unwrap();
    assert_sync_returns(disk.folder.path());
    drop(open);
    wait_until_gone(server);
    disk.assert_clean();
    assert_eq!(ordo(&["cat", disk.image(), "/open"]).stdout[10_000..], [3; 10_000]);
}

/// `umount -f` while a file is open returns, whether the mount is gone or still in use. Afterwards
/// all users get errors, the server ends, and everything that was synced is there.
#[test]
fn umount_by_force_while_in_use() {
    if !can_mount() {
        return;
    }
    for ordering in ["soft-updates", "journal"] {
        let (disk, open) = in_use(ordering);
        let server = disk.server();
        assert!(ends(start("umount", &["-f", disk.dir().to_str().unwrap()])), "umount -f hangs");
        let written = open.write_at(&[4; 100], 0).and_then(|_| open.sync_all());
        assert!(written.is_err(), "{ordering}: the connection was cut");
        drop(open);
        let _ = run("umount", &["-l", disk.dir().to_str().unwrap()]);
        wait_until_gone(server);
        assert_sync_returns(disk.folder.path());
        assert_kept(&disk);
    }
}

/// A disk is pulled out: from then on each of its requests fails. A program that syncs gets an I/O
/// error, the file system becomes read-only, and `umount` returns. The device is a loop device on a
/// file of a FUSE server, whose connection is cut.
#[test]
fn a_device_that_is_pulled_out() {
    if !can_mount() {
        return;
    }
    for ordering in ["sync", "soft-updates", "journal"] {
        let disk = Disk::new(ordering, 64);
        let setup = DeviceSetup::new(Transport::Path(disk.image().into()), KeepRequests::Last(1));
        let session = Session::with(setup).unwrap();
        let device = session.device().to_str().unwrap().to_owned();
        let out = mount(&device, &disk);
        assert!(out.status.success(), "{ordering}: {}", text(&out));
        let dir = disk.dir();
        let (open, server) = (use_it(&dir), disk.server());
        let plug = session.contents().parent().unwrap().to_str().unwrap().to_owned();
        assert!(ends(start("umount", &["-f", &plug])));
        let error = open.write_at(&[2; 100_000], 0).and_then(|_| open.sync_all()).unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        let error = fs::write(dir.join("more"), b"no").unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        assert_sync_returns(disk.folder.path());
        drop(open);
        assert!(ends(start("umount", &[dir.to_str().unwrap()])), "{ordering}: umount hangs");
        wait_until_gone(server);
        drop(session);
        assert_kept(&disk);
    }
}

/// Somebody cuts the image off under the mount. A program that reads or syncs what is gone gets an
/// I/O error, nothing panics, `umount` returns with the server, and a check says that the image is
/// not whole.
#[test]
fn an_image_that_is_cut_off() {
    if !can_mount() {
        return;
    }
    for ordering in ORDERINGS {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let dir = disk.dir();
        fs::write(dir.join("large"), vec![3; 8 << 20]).unwrap();
        disk.umount();
        disk.mount();
        let server = disk.server();
        let open = use_it(&dir);
        let image = File::options().write(true).open(disk.image()).unwrap();
        image.set_len(128 << 10).unwrap();
        let error = fs::read(dir.join("large")).unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO]), "{ordering}: {error}");
        let error = open.sync_all().unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        let error = fs::write(dir.join("more"), b"no").unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        assert_sync_returns(disk.folder.path());
        drop(open);
        assert!(ends(start("umount", &[dir.to_str().unwrap()])), "{ordering}: umount hangs");
        wait_until_gone(server);
        let out = disk.fsck(&["-n", "-f"]);
        assert!(out.status.code().is_some_and(|code| code > 1), "{ordering}: {}", text(&out));
        assert!(!text(&out).contains("panicked"), "{ordering}: {}", text(&out));
    }
}

/// The host of an image is full: a write that needs space there fails. A program that syncs gets an
/// error, the file system becomes read-only, and everything that was synced before is there when
/// the host has space again.
#[test]
fn an_image_on_a_full_host() {
    if !can_mount() {
        return;
    }
    for ordering in ORDERINGS {
        let disk = Disk::new(ordering, 64);
        let host = disk.folder.path().join("host");
        fs::create_dir(&host).unwrap();
        let host = host.to_str().unwrap();
        let made = run("mount", &["-t", "tmpfs", "-o", "size=16m", "none", host]);
        assert!(made.status.success(), "{}", text(&made));
        let image = format!("{host}/image");
        // The image is sparse, and most of it was never written.
        assert!(run("cp", &["--sparse=always", disk.image(), &image]).status.success());
        let out = mount(&image, &disk);
        assert!(out.status.success(), "{ordering}: {}", text(&out));
        let dir = disk.dir();
        let (mut open, server) = (use_it(&dir), disk.server());
        let written = (0..32).try_for_each(|_| open.write_all(&vec![1; 1 << 20]));
        let error = written.and_then(|()| open.sync_all()).unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        let error = fs::write(dir.join("more"), b"no").unwrap_err();
        assert!(is_one_of(&error, &[Errno::IO, Errno::ROFS]), "{ordering}: {error}");
        assert_sync_returns(disk.folder.path());
        drop(open);
        assert!(ends(start("umount", &[dir.to_str().unwrap()])), "{ordering}: umount hangs");
        wait_until_gone(server);
        assert!(run("mount", &["-o", "remount,size=100m", host]).status.success());
        assert!(run("cp", &["--sparse=always", &image, disk.image()]).status.success());
        run("umount", &["-l", host]);
        assert_kept(&disk);
    }
}

/// An image that is mounted cannot be mounted again by another of its names: a symbolic link, a
/// hard link, or a loop device that somebody has put on it. The refusal comes within seconds, and
/// the first mount works on.
#[test]
fn two_mounts_of_one_image() {
    if !can_mount() {
        return;
    }
    let (disk, open) = in_use("soft-updates");
    let other = Disk::new("soft-updates", 16);
    let names = ["soft", "hard"].map(|name| disk.folder.path().join(name));
    std::os::unix::fs::symlink(disk.image(), &names[0]).unwrap();
    fs::hard_link(disk.image(), &names[1]).unwrap();
    let made = run("losetup", &["-f", "--show", disk.image()]);
    assert!(made.status.success(), "{}", text(&made));
    let device = text(&made).trim().to_owned();
    let refused = |source: &str| {
        let out = mount(source, &other);
        (!out.status.success() && text(&out).contains("another process")).then_some(out)
    };
    let on_loop = refused(&device);
    run("losetup", &["-d", &device]);
    assert!(on_loop.is_some(), "a loop device on a mounted image was mounted");
    for name in names {
        assert!(refused(name.to_str().unwrap()).is_some(), "{}", name.display());
    }
    open.write_at(&[5; 100], 0).unwrap();
    open.sync_all().unwrap();
    drop(open);
    disk.umount();
    disk.assert_clean();
}

/// Each of the files of a mount may be locked for another second after its server was killed, until
/// the kernel has ended the server's requests: the image, and the device of the log. A mount waits
/// for them. Would catch one that is refused, as it was where only the log was still in use.
#[test]
fn a_mount_waits_for_a_server_that_was_killed() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("journal", 32);
    let log = disk.folder.path().join("log");
    let made = ordo(&["log", "create", log.to_str().unwrap(), "--size", "8M"]);
    assert!(made.status.success(), "{}", text(&made));
    let with_log = format!("logdev={}", log.display());
    for held in [disk.image().into(), log] {
        let file = File::open(&held).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(1));
            drop(file);
        });
        let out = disk.mount_with(&with_log);
        assert!(out.status.success(), "{}: {}", held.display(), text(&out));
        holder.join().unwrap();
        disk.umount();
    }
}

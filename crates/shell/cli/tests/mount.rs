//! `ordo mount`, through the kernel: the view of programs, the disk afterwards, and both after the
//! server is killed, the disk is full, or the disk fails.

mod mounting;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assert_cmd::cargo::cargo_bin;
use mounting::{Disk, ORDERINGS, all, can_mount, ordo, run, shell, text};

/// Under every ordering and on every log, files of every kind are created through the kernel; then
/// `umount` runs. When it returns the disk must be clean: a full check has no findings, another
/// mount can have the image, and everything is there. Would catch a server that answers before the
/// disk is clean, and anything that is lost or changed.
#[test]
fn umount_leaves_a_clean_disk_with_everything_on_it() {
    if !can_mount() {
        return;
    }
    for ordering in all() {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let dir = disk.dir();
        shell(
            &dir,
            "mkdir -p a/b; echo one > a/one; ln a/one a/two; ln -s ../a/one a/b/link; mkfifo a/pipe
             head -c 3000000 /dev/urandom > a/big; truncate -s 50M a/sparse; echo end >> a/sparse
             cp a/big a/copy; chmod 4711 a/copy; chown 7:8 a/big; mv a/copy a/b/moved
             for i in $(seq 300); do echo $i > a/b/file-$i; done; rm a/b/file-1*
             touch -d '1999-01-02 03:04:05.678901234' a/one",
        );
        // The longest target that Linux has.
        let target = "t".repeat(4095);
        std::os::unix::fs::symlink(&target, dir.join("a/long")).unwrap();
        let longer = std::os::unix::fs::symlink("t".repeat(4096), dir.join("a/longer"));
        assert_eq!(longer.unwrap_err().kind(), ErrorKind::InvalidFilename);
        let sums = "find . -type f ! -name .ordojournal | sort | xargs -d '\\n' sha256sum; \
                    find . | sort | xargs -d '\\n' stat -c '%n %f %u %g %h %s %.9Y'";
        let before = shell(&dir, sums);
        disk.umount();
        disk.assert_clean();
        disk.mount();
        assert!(before == shell(&dir, sums), "{ordering}: something is not as it was");
        let sparse = fs::metadata(dir.join("a/sparse")).unwrap();
        assert!(sparse.blocks() < 2000, "{} sectors for a hole", sparse.blocks());
        assert_eq!(fs::read_link(dir.join("a/b/link")).unwrap().to_str(), Some("../a/one"));
        assert_eq!(fs::read_link(dir.join("a/long")).unwrap().as_os_str(), target.as_str());
        disk.umount();
        // The independent reader sees the same names. It knows no log.
        if !disk.is_log()
            && let Some(listing) = ordo_testkit::judge("fls", &["-r", "-p", disk.image()])
        {
            let has = |path| listing.lines().any(|l| !l.contains('*') && l.ends_with(path));
            assert!(has("\ta/b/moved") && has("\ta/two") && !has("\ta/copy"), "{listing}");
        }
    }
}

/// While an image is mounted, no other process can mount or check it.
#[test]
fn a_mounted_image_is_taken() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 16);
    disk.mount();
    let other = disk.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let out = ordo(&["mount", disk.image(), other.to_str().unwrap()]);
    assert!(!out.status.success() && text(&out).contains("another process"), "{}", text(&out));
    assert_ne!(ordo(&["fsck", disk.image()]).status.code(), Some(0));
    disk.umount();
    assert_eq!(ordo(&["fsck", disk.image()]).status.code(), Some(0));
}

/// The server is killed while two programs create, sync and remove files. After any ordering's
/// recovery every file that was synced and not removed must be there, whole. Fault model: the
/// process is gone at once; everything that it had sent to the image stays.
#[test]
fn synced_files_survive_kill_9() {
    if !can_mount() {
        return;
    }
    for ordering in ["sync", "soft-updates", "journal", "lfs", "dualfs"] {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let synced = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let programs: Vec<_> = (0..2)
            .map(|p: usize| {
                let (dir, synced) = (disk.dir(), synced.clone());
                std::thread::spawn(move || write_and_sync(&dir, p, &synced[p]))
            })
            .collect();
        while synced.iter().any(|n| n.load(Ordering::SeqCst) < 30) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        disk.end_server("-KILL");
        for program in programs {
            program.join().unwrap();
        }
        let said = disk.mount();
        assert!(said.contains("not unmounted cleanly"), "{ordering}: {said}");
        for (p, count) in synced.iter().enumerate() {
            let count = count.load(Ordering::SeqCst);
            // The last ten are never removed.
            for n in count.saturating_sub(9)..=count {
                let path = disk.dir().join(format!("{p}-{n}"));
                let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{ordering}: {path:?}: {e}"));
                assert!(bytes == vec![n as u8; 5000], "{ordering}: {path:?} has other contents");
            }
        }
        shell(&disk.dir(), "mkdir after; cp -r ./0-* after/; rm -r after");
        disk.umount();
        let out = ordo(&["fsck", "-p", disk.image()]);
        assert!(out.status.code().is_some_and(|code| code <= 1), "{ordering}: {}", text(&out));
        disk.assert_clean();
    }
}

/// Creates files, syncs each, and removes the one before the last ten, until the mount is gone.
fn write_and_sync(dir: &std::path::Path, program: usize, synced: &AtomicU64) {
    for n in 1.. {
        let path = dir.join(format!("{program}-{n}"));
        let done = fs::File::create(&path).and_then(|mut file| {
            file.write_all(&vec![n as u8; 5000])?;
            file.sync_all()
        });
        if done.is_err() {
            return;
        }
        synced.store(n, Ordering::SeqCst);
        if n > 12 && fs::remove_file(dir.join(format!("{program}-{}", n - 12))).is_err() {
            return;
        }
    }
}

/// A signal must end the mount as `umount` does, even while a process is in it: the disk is clean
/// afterwards, and that process gets an error and does not hang.
#[test]
fn a_signal_unmounts() {
    if !can_mount() {
        return;
    }
    for busy in [false, true] {
        let disk = Disk::new("soft-updates", 16);
        disk.mount();
        fs::write(disk.dir().join("file"), b"kept").unwrap();
        let open = busy.then(|| fs::File::open(disk.dir().join("file")).unwrap());
        disk.end_server("-TERM");
        if let Some(file) = open {
            file.read_at(&mut [0; 4], 1 << 20).unwrap_err();
        }
        disk.assert_clean();
        assert_eq!(ordo(&["cat", disk.image(), "/file"]).stdout, b"kept");
    }
}

/// A full disk gives ENOSPC, loses none of its files, and can be written again after one was
/// removed.
#[test]
fn a_full_disk() {
    if !can_mount() {
        return;
    }
    for ordering in ["soft-updates", "journal", "lfs", "dualfs"] {
        let disk = Disk::new(ordering, 16);
        disk.mount();
        let dir = disk.dir();
        fs::write(dir.join("before"), vec![5; 100_000]).unwrap();
        let mut file = fs::File::create(dir.join("large")).unwrap();
        let full = (0..100).find_map(|_| file.write_all(&vec![1; 1 << 20]).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{ordering}: {full}");
        assert_eq!(fs::read(dir.join("before")).unwrap(), vec![5; 100_000]);
        drop(file);
        fs::remove_file(dir.join("large")).unwrap();
        // The kernel tells a FUSE server of a close only after close(2) has returned. Until then
        // the file is open, and its space is not free.
        let again = || fs::write(dir.join("again"), vec![2; 4 << 20]);
        let soon = (0..200).any(|_| {
            let written = again();
            assert!(written.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::StorageFull));
            std::thread::sleep(std::time::Duration::from_millis(10));
            written.is_ok()
        });
        assert!(soon, "{ordering}: what was removed is free");
        disk.umount();
        disk.assert_clean();
    }
}

/// The disk fails while it is written: the image is on a file system that is too small for it. A
/// process that syncs must get an error, no more changes are allowed, nothing hangs, and everything
/// that was synced before is there after a check.
#[test]
fn a_disk_that_fails() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 64);
    let host = disk.folder.path().join("host");
    fs::create_dir(&host).unwrap();
    let host_text = host.to_str().unwrap();
    assert!(run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", host_text]).status.success());
    let image = host.join("image");
    let image = image.to_str().unwrap();
    assert!(ordo(&["mkfs", "--size", "64m", image]).status.success());
    let dir = disk.dir();
    let out = ordo(&["mount", image, dir.to_str().unwrap(), "-o", "ordering=soft-updates"]);
    assert!(out.status.success(), "{}", text(&out));
    shell(&dir, "echo kept > kept; sync kept");
    let mut file = fs::File::create(dir.join("large")).unwrap();
    let written = (0..32).try_for_each(|_| file.write_all(&vec![1; 1 << 20]));
    let failed = written.and_then(|()| file.sync_all()).unwrap_err();
    assert_ne!(failed.kind(), ErrorKind::StorageFull, "the image has room: {failed}");
    let refused = fs::write(dir.join("more"), b"no").unwrap_err();
    assert!(matches!(refused.raw_os_error(), Some(5 | 30)), "{refused}");
    drop(file);
    disk.umount();
    // The check needs space for its writes.
    assert!(run("mount", &["-o", "remount,size=80m", host_text]).status.success());
    let out = ordo(&["fsck", "-y", image]);
    assert!(out.status.code().is_some_and(|code| code <= 1), "{}", text(&out));
    assert_eq!(ordo(&["cat", image, "/kept"]).stdout, b"kept\n");
    run("umount", &["-l", host_text]);
}

/// Space in the middle of a file is allocated, punched and searched. A hole must read as zeros, and
/// the rest of the file must not change; a range that was never written must be a hole.
#[test]
fn holes_and_space() {
    if !can_mount() {
        return;
    }
    for ordering in ORDERINGS {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let dir = disk.dir();
        // The file has 20 MB: direct blocks and an indirect block.
        shell(
            &dir,
            "yes 0123456789abcde | head -c 20000000 > f; cp f g; sync
             fallocate -p -o 100000 -l 15000000 f
             dd if=/dev/zero of=g bs=100000 seek=1 count=150 conv=notrunc status=none; cmp f g
             truncate -s 100000 h; echo x | dd of=h bs=1M seek=5 conv=notrunc status=none
             fallocate -l 3000000 new; test $(stat -c %s new) = 3000000
             ! fallocate -n -l 9000000 new 2>/dev/null",
        );
        let blocks = |name: &str| fs::metadata(dir.join(name)).unwrap().blocks() * 512;
        assert!(blocks("new") >= 3_000_000, "{ordering}");
        assert!(
            blocks("f") < blocks("g") - 14_900_000,
            "{ordering}: {} {}",
            blocks("f"),
            blocks("g")
        );
        let hole = shell(
            &dir,
            "python3 -c 'import os
f = os.open(\"h\", 0); h = os.lseek(f, 0, os.SEEK_HOLE); print(h, os.lseek(f, h, os.SEEK_DATA))'",
        );
        // An indirect block is freed with its last pointer. The file ends below another one.
        let blocks_of_far = |script: &str| {
            shell(&dir, script);
            blocks("far")
        };
        let before = blocks_of_far("truncate -s 200M far");
        let one = blocks_of_far("echo x | dd of=far bs=1M seek=20 conv=notrunc status=none");
        assert_eq!(one - before, 2 * 32768, "{ordering}");
        assert_eq!(blocks_of_far("fallocate -p -o 20M -l 1M far"), before, "{ordering}");
        // Three blocks were never written; the last one always exists.
        assert_eq!(hole.trim(), "0 98304", "{ordering}");
        disk.umount();
        disk.assert_clean();
        disk.mount();
        shell(&dir, "cmp f g");
        disk.umount();
    }
}

/// Attributes, ACLs and flags are kept over a remount in FreeBSD's form and enforced meanwhile, and
/// a default ACL is inherited.
#[test]
fn attributes_acls_and_flags() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 16);
    let acl = |entries: &[(u16, u16, u32)]| {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            out.extend(id.to_le_bytes());
        }
        out.iter().map(|b| format!("\\x{b:02x}")).collect::<String>()
    };
    let none = u32::MAX;
    let value = acl(&[(1, 7, none), (2, 6, 65534), (4, 5, none), (16, 7, none), (32, 0, none)]);
    let mounted = disk.mount_with("acl");
    assert!(mounted.status.success(), "{}", text(&mounted));
    let dir = disk.dir();
    let python = |script: &str| shell(&dir, &format!("python3 -c 'import os\n{script}'"));
    python(&format!(
        "open(\"f\", \"w\").write(\"secret\"); os.mkdir(\"d\")
os.setxattr(\"f\", \"user.note\", b\"hello\"); os.setxattr(\"f\", \"trusted.t\", b\"1\")
os.chmod(\"f\", 0o600); os.setxattr(\"f\", \"system.posix_acl_access\", b\"{value}\")
os.setxattr(\"d\", \"system.posix_acl_default\", b\"{value}\")
open(\"d/new\", \"w\"); os.mkdir(\"d/sub\")"
    ));
    let check = "
assert os.getxattr(\"f\", \"user.note\") == b\"hello\", 1
assert set(os.listxattr(\"f\")) >= {\"user.note\", \"trusted.t\", \"system.posix_acl_access\"}, os.listxattr(\"f\")
assert os.stat(\"f\").st_mode & 0o777 == 0o770
assert len(os.getxattr(\"d/new\", \"system.posix_acl_access\")) == 44
assert os.stat(\"d/new\").st_mode & 0o777 == 0o660, oct(os.stat(\"d/new\").st_mode)
assert len(os.getxattr(\"d/sub\", \"system.posix_acl_default\")) == 44
os.setegid(65534); os.seteuid(65534); assert open(\"f\").read() == \"secret\"";
    python(check);
    disk.umount();
    let mounted = disk.mount_with("acl");
    assert!(mounted.status.success(), "{}", text(&mounted));
    python(check);
    shell(&dir, "chattr +id f");
    let refused = fs::remove_file(dir.join("f")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let listed = shell(&dir, "lsattr f");
    assert!(listed.starts_with("----i-d-"), "{listed}");
    assert!(!run("chattr", &["+c", dir.join("f").to_str().unwrap()]).status.success());
    shell(&dir, "chattr -i f; chattr +a f; echo more >> f; ! echo less > f; chattr -ad f; rm f");
    // A user who is not root clears set-id bits by writing.
    fs::write(dir.join("s"), b"x").unwrap();
    fs::set_permissions(dir.join("s"), fs::Permissions::from_mode(0o6777)).unwrap();
    python("os.setegid(65534); os.seteuid(65534); open(\"s\", \"a\").write(\"y\")");
    assert_eq!(fs::metadata(dir.join("s")).unwrap().permissions().mode() & 0o7777, 0o777);
    disk.umount();
    disk.assert_clean();
}

/// A file system is on the second partition of a disk, whose table another tool made. It is listed,
/// found by its number, and written within its bounds.
#[test]
fn a_partition_of_a_disk() {
    if !can_mount() {
        return;
    }
    if std::process::Command::new("sfdisk").arg("--version").output().is_err() {
        return ordo_testkit::skip("sfdisk is not installed");
    }
    let disk = Disk::new("soft-updates", 32);
    for label in ["gpt", "dos"] {
        shell(
            disk.folder.path(),
            &format!(
                "rm -f disk; truncate -s 64M disk
                 printf 'label: {label}\\nstart=2048,size=16384\\nstart=20480,size=65536\\n' | sfdisk -q disk
                 cp disk table; dd if=image of=disk bs=512 seek=20480 conv=notrunc status=none"
            ),
        );
        let whole = disk.folder.path().join("disk");
        let whole = whole.to_str().unwrap();
        let listed = text(&ordo(&["info", whole]));
        assert!(listed.contains("10485760") && listed.contains("33554432"), "{listed}");
        let info = text(&ordo(&["info", whole, "--partition", "2"]));
        assert!(info.contains("superblock"), "{label}: {info}");
        let dir = disk.dir();
        let dir = dir.to_str().unwrap();
        let out = ordo(&["mount", whole, dir, "-o", "partition=2"]);
        assert!(out.status.success(), "{}", text(&out));
        shell(&disk.dir(), "cp -r /usr/include/linux . && sync -f .");
        disk.umount();
        // The bytes before the partition are unchanged.
        shell(
            disk.folder.path(),
            "cmp -n 10485760 disk table; dd if=disk of=image bs=512 skip=20480 count=65536 status=none",
        );
        disk.assert_clean();
        assert!(text(&ordo(&["ls", disk.image(), "/linux"])).contains("fuse.h"));
    }
}

/// A block device is mounted under its own name, by which `umount`, `findmnt` and checks for use
/// find it. No other process can have it meanwhile. Would catch a device that stays claimed, and
/// one that another process may write at the same time.
#[test]
fn a_block_device_is_mounted_by_its_name() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 64);
    let made = run("losetup", &["-f", "--show", disk.image()]);
    if !made.status.success() {
        ordo_testkit::skip("a block device needs losetup");
        return;
    }
    let device: &str = text(&made).trim().to_owned().leak();
    let dir = disk.dir();
    let mount = || {
        run(
            "timeout",
            &["60", cargo_bin("ordo").to_str().unwrap(), "mount", device, dir.to_str().unwrap()],
        )
    };
    for _ in 0..2 {
        let mounted = mount();
        assert!(mounted.status.success(), "{}", text(&mounted));
        let found = run("findmnt", &["-rnS", device, "-o", "TARGET"]);
        assert_eq!(text(&found).trim(), dir.to_str().unwrap());
        shell(&dir, "echo here > file; sync file");
        assert_eq!(ordo(&["fsck", "-y", device]).status.code(), Some(8), "checked while mounted");
        assert!(!mount().status.success(), "mounted twice");
        let out = run("timeout", &["60", "umount", device]);
        assert!(out.status.success(), "{}", text(&out));
        let checked = ordo(&["fsck", "-f", device]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    }
    shell(Path::new("/"), &format!("losetup -d {device}"));
}

/// Updates of the access time, through the kernel: never by default; with `relatime` after a change
/// of the file, and not again within a day; with `atime` every time. A kernel that reads from its
/// own cache sends no request, so each read is of a file that it has dropped.
#[test]
fn times_of_last_access() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 64);
    let mount = |option: &str| assert!(disk.mount_with(option).status.success(), "{option}");
    mount("");
    shell(&disk.dir(), "echo contents > file; touch -ad '2020-01-01 00:00 UTC' file");
    disk.umount();
    // Reads the file. Returns its access time afterwards, in seconds.
    let read = |option: &str| -> u64 {
        mount(option);
        let time = shell(&disk.dir(), "cat file > /dev/null; stat -c %X file");
        disk.umount();
        time.trim().parse().unwrap()
    };
    let long_ago = 1_577_836_800;
    assert_eq!(read("relatime,ro"), long_ago, "recorded on what may not be written");
    assert_eq!(read("noatime"), long_ago);
    assert_eq!(read(""), long_ago);
    let first = read("relatime");
    assert!(first > long_ago, "a read after a change was not recorded");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(read("relatime"), first, "recorded again within a day");
    assert!(read("atime") > first, "not recorded");
    disk.assert_clean();
}

/// A file without a name (`O_TMPFILE`) can be written and read, and can be given a name. One
/// without a name when the server is killed must leave nothing behind after recovery. Would catch
/// an ordering that does not learn of such a file's end.
#[test]
fn files_without_a_name() {
    if !can_mount() {
        return;
    }
    for ordering in ["sync", "soft-updates", "journal"] {
        let disk = Disk::new(ordering, 32);
        disk.mount();
        let dir = disk.dir();
        let python = |script: &str| shell(&dir, &format!("python3 -c 'import os\n{script}'"));
        python(
            "
f = os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, b\"hello\")
assert os.fstat(f).st_nlink == 0 and os.listdir(\".\").count(\"named\") == 0
root = os.open(\"/\", 0)
os.link(f\"/proc/self/fd/{f}\", \"named\", src_dir_fd=root)
assert open(\"named\").read() == \"hello\" and os.stat(\"named\").st_mode == 0o100640
g = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(g, b\"x\" * 300000); os.close(g)",
        );
        disk.umount();
        let before = text(&ordo(&["fsck", "-f", disk.image()]));
        assert!(before.contains(": consistent"), "{ordering}: {before}");
        disk.mount();
        let made = "
f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"x\" * 2000000); os.fsync(f)
print(1, flush=True); input()";
        let mut holder = std::process::Command::new("python3")
            .args(["-c", &format!("import os{made}")])
            .current_dir(&dir)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut one = [0; 1];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut one).unwrap();
        disk.end_server("-KILL");
        let _ = holder.kill();
        let _ = holder.wait();
        disk.mount();
        disk.umount();
        let checked = ordo(&["fsck", "-p", disk.image()]);
        assert!(checked.status.code().is_some_and(|c| c <= 1), "{ordering}: {}", text(&checked));
        assert_eq!(text(&ordo(&["fsck", "-f", disk.image()])), before, "{ordering}");
    }
}

/// A write by another user than root clears a file's set-id bits, and a reader of the mode alone
/// must see that at once, whatever the way of writing. Would catch a mode that the kernel has
/// cached.
#[test]
fn cleared_set_id_bits_are_seen_at_once() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 64);
    disk.mount();
    for write in ["echo x >> file", "cp other file", "truncate -s 1 file", "fallocate -l 5000 file"]
    {
        let script = format!(
            "echo contents > file; echo other > other; chmod 6777 file; stat -c %a file
             setpriv --reuid 1000 --regid 1000 --clear-groups sh -c '{write}'; stat -c %a file"
        );
        assert_eq!(shell(&disk.dir(), &script), "6777\n777\n", "{write}");
    }
    disk.umount();
    disk.assert_clean();
}

/// Owners and permissions of another machine, as ntfs-3g and apfs-fuse map them: every file is one
/// user's, new files belong to another number on disk, two numbers change places, and permissions
/// are hidden. The disk keeps what it had, also of a file whose mode is changed. Would catch a
/// mapping that is shown and not enforced, and a `chmod` that writes the hidden bits away.
#[test]
fn owners_and_permissions_are_mapped() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 16);
    disk.mount();
    let dir = disk.dir();
    shell(
        &dir,
        "echo a > a; mkdir d; chown 501:20 a d; chmod 666 a; chmod 777 d; echo r > r; chmod 600 r",
    );
    disk.umount();
    let listed = |options: &str, script: &str| {
        let out = disk.mount_with(options);
        assert!(out.status.success(), "{options}: {}", text(&out));
        let said = shell(&dir, script);
        disk.umount();
        said
    };
    let stat = "stat -c '%n %u %g %a' a d r";
    assert_eq!(
        listed("uid=1000,gid=1000", stat),
        "a 1000 1000 666\nd 1000 1000 777\nr 1000 1000 600\n"
    );
    // The kernel lets the mapped owner in, and no one else.
    let as_user = |n: u32, what: &str| {
        format!(
            "setpriv --reuid {n} --regid {n} --clear-groups sh -c '{what}' 2>/dev/null && echo yes || echo no"
        )
    };
    assert_eq!(
        listed("uid=1000:7,gid=1000:8", &as_user(1000, "cat r && echo n > new")),
        "r\nyes\n"
    );
    assert_eq!(listed("uid=1000,gid=1000", &as_user(1001, "cat r")), "no\n");
    assert_eq!(listed("", "stat -c '%u %g' new r"), "7 8\n0 0\n");
    assert_eq!(
        listed("uid=1000=501,gid=100=20", stat),
        "a 1000 100 666\nd 1000 100 777\nr 0 0 600\n"
    );
    assert_eq!(listed("umask=027", stat), "a 501 20 640\nd 501 20 750\nr 0 0 600\n");
    assert_eq!(listed("fmask=0111,dmask=0", stat), "a 501 20 666\nd 501 20 777\nr 0 0 600\n");
    assert_eq!(listed("umask=022", &as_user(1001, "echo x >> a")), "no\n");
    assert_eq!(listed("umask=022", "chmod 600 a; chmod 755 d; stat -c %a a d"), "600\n755\n");
    assert_eq!(listed("", "stat -c %a a d"), "622\n777\n", "hidden bits stay");
    let refused = disk.mount_with("umask=022,acl");
    assert!(!refused.status.success() && text(&refused).contains("umask"), "{}", text(&refused));
    disk.assert_clean();
}

/// A mount is made read-only and writable again, as mount(8) asks for it through its helper. An
/// image that can only be read stays read-only, with the reason. Nothing is lost.
#[test]
fn a_remount() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("journal", 64);
    disk.mount();
    let dir = disk.dir();
    let remount = |options: &str| {
        let helper = disk.folder.path().join("mount.fuse.ordo");
        let _ = std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin("ordo"), &helper);
        let all = ["-sn", "-t", "fuse.ordo", "-o", options];
        std::process::Command::new(helper).arg(disk.image()).arg(&dir).args(all).output().unwrap()
    };
    shell(&dir, "echo one > file");
    assert_eq!(text(&remount("remount,ro,nodev,ordering=journal")), "");
    assert!(std::fs::write(dir.join("file"), "two").is_err());
    shell(&dir, "findmnt -no OPTIONS . | grep -w ro | grep -qw nodev; grep -q one file");
    assert_eq!(text(&remount("rw,remount,relatime,user_id=0")), "");
    shell(&dir, "echo two > file");
    disk.umount();
    disk.assert_clean();
    assert!(disk.mount_with("ro").status.success());
    let refused = text(&remount("remount,rw"));
    assert!(refused.contains("was mounted read-only"), "{refused}");
    shell(&dir, "findmnt -no OPTIONS . | grep -qw ro; grep -q two file");
    disk.umount();
    let refused = text(&remount("remount,ro"));
    assert!(refused.contains("Ordo has mounted nothing here"), "{refused}");
}

/// If the kernel does not offer requests over io_uring, a mount with that option must say so and
/// work.
#[test]
fn a_ring_that_is_not_to_be_had() {
    let leave = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if !can_mount() || leave.is_ok_and(|leave| leave.trim() == "Y") {
        return;
    }
    let disk = Disk::new("none", 16);
    let dir = disk.dir();
    let out = ordo(&["mount", disk.image(), dir.to_str().unwrap(), "-o", "io_uring"]);
    assert!(out.status.success() && text(&out).contains("/dev/fuse"), "{}", text(&out));
    shell(&dir, "echo x > f; cat f");
    disk.umount();
}

/// A big-endian image is written in its own byte order.
#[test]
fn a_big_endian_image() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("soft-updates", 32);
    fs::remove_file(disk.image()).unwrap();
    assert!(ordo(&["mkfs", "--size", "32m", "--big-endian", disk.image()]).status.success());
    disk.mount();
    shell(
        &disk.dir(),
        "cp -r /usr/include/linux .; diff -r /usr/include/linux linux; rm -r linux/n*",
    );
    disk.umount();
    disk.assert_clean();
    assert!(text(&ordo(&["info", disk.image()])).to_lowercase().contains("big"));
}

/// An image with a feature of another system that writing would damage is mounted read-only, with
/// the reason. A mount with `rw` is refused.
#[test]
fn an_image_that_may_only_be_read() {
    if !can_mount() {
        return;
    }
    const FLAGS: u64 = 65_536 + 1312;
    const GJOURNAL: u8 = 0x40;
    let disk = Disk::new("soft-updates", 16);
    fs::remove_file(disk.image()).unwrap();
    assert!(ordo(&["mkfs", "--size", "16m", "--no-check-hashes", disk.image()]).status.success());
    let file = fs::File::options().read(true).write(true).open(disk.image()).unwrap();
    let mut flags = [0];
    file.read_exact_at(&mut flags, FLAGS).unwrap();
    file.write_all_at(&[flags[0] | GJOURNAL], FLAGS).unwrap();
    drop(file);
    let said = disk.mount();
    assert!(said.contains("read-only") && said.contains("gjournal"), "{said}");
    let refused = fs::write(disk.dir().join("x"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    disk.umount();
    let out = disk.mount_with("rw");
    assert!(!out.status.success() && text(&out).contains("gjournal"), "{}", text(&out));
}

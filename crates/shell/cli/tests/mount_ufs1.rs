//! UFS1 in a mount: images of another tool, and of Ordo, under every ordering.
//!
//! Fault model: none but a misunderstanding of the format. `kills.rs` kills servers of both
//! formats.

mod mounting;

use mounting::{Disk, can_mount, ordo, shell, text};

/// UFS1 images of either byte order, which another tool made, are read as they were made, and
/// written under each ordering. Ordo's check, which knows the format too, finds nothing.
#[test]
fn ufs1_images() {
    if !can_mount() {
        return;
    }
    if std::process::Command::new("makefs").output().is_err() {
        return ordo_testkit::skip("makefs is not installed");
    }
    for (order, ordering) in [("le", "soft-updates"), ("be", "sync"), ("be", "journal")] {
        let disk = Disk::new(ordering, 16);
        shell(
            disk.folder.path(),
            &format!(
                "rm image; makefs -t ffs -B {order} -o version=1 -f 2000 -s 48m image /usr/include/linux"
            ),
        );
        disk.assert_clean();
        if ordering == "journal" {
            // Its log is a file, which must be made first: an image that has none is mounted
            // without a journal.
            let out = disk.mount_with("");
            assert!(!out.status.success(), "{}", text(&out));
            continue;
        }
        disk.mount();
        shell(
            &disk.dir(),
            "diff -r --no-dereference /usr/include/linux . && cp -r /usr/include/linux new &&
             rm -r netfilter && ln -s $(printf x%.0s $(seq 59)) l59 && ln -s $(printf y%.0s $(seq 60)) l60 &&
             test $(readlink l60 | wc -c) = 61 && truncate -s 40g sparse && echo end >> sparse &&
             touch -d 2100-01-01 late && date -d @2147483647 > /dev/null && mkfifo pipe &&
             ! setfattr -n user.x -v y late 2>/dev/null",
        );
        disk.umount();
        disk.assert_clean();
        disk.mount();
        shell(
            &disk.dir(),
            "diff -r --no-dereference /usr/include/linux new && test ! -e netfilter &&
             test $(readlink l59 | wc -c) = 60 && test $(tail -c 4 sparse) = end &&
             test $(stat -c %Y late) = 2147483647",
        );
        disk.umount();
        disk.assert_clean();
        assert!(text(&ordo(&["ls", disk.image(), "/"])).contains("fuse.h"));
        let long = if order == "le" { "little-endian" } else { "big-endian" };
        assert!(text(&ordo(&["info", disk.image()])).contains(&format!("(UFS1, {long})")));
    }
}

/// UFS1 that Ordo made, with every ordering and every place of a log, is killed and recovers:
/// `kills.rs` does that at random. Here each is mounted, used and checked once.
#[test]
fn ufs1_under_every_ordering() {
    if !can_mount() {
        return;
    }
    for (ordering, log) in [
        ("soft-updates", "file"),
        ("sync", "file"),
        ("none", "file"),
        ("journal", "file"),
        ("journal", "behind"),
        ("journal", "apart"),
    ] {
        let disk = Disk::shaped(ordering, log, &["--fs", "ufs1", "--size", "48m", "--big-endian"]);
        disk.mount();
        shell(
            &disk.dir(),
            "cp -r /usr/include/linux . && rm -r linux/n* && diff -r linux/usb /usr/include/linux/usb",
        );
        disk.umount();
        disk.assert_clean();
        assert!(text(&ordo(&["info", disk.image()])).contains("(UFS1, big-endian)"));
    }
}

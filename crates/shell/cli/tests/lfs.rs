//! The commands on an LFS, as a user meets them.
//!
//! Fault model: a command that takes an LFS for another format, that writes to an image it must not
//! change, or that does not report damage which it found.

mod calling;

use std::fs;

use calling::{done, ordo, text};

/// The result of mkfs is an LFS for every command: shown, listed, checked, not overwritten,
/// written.
#[test]
fn an_empty_one_is_made_and_known_by_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    let image = text(&image);
    let made = done(&["mkfs", image, "--fs", "lfs", "--size", "128m"]);
    assert!(made.contains("LFS64, 128 MB") && made.contains("127 segments of 1 MB"), "{made}");
    let info = done(&["info", image]);
    assert!(info.starts_with("LFS64  version 2") && info.contains("clean"), "{info}");
    assert!(info.lines().all(|l| l.chars().count() <= 100), "{info}");
    let shown: serde_json::Value =
        serde_json::from_str(&done(&["info", image, "--json", "--groups"])).unwrap();
    assert_eq!((&shown["format"], &shown["segments"]), (&"lfs64".into(), &127.into()));
    assert_eq!(shown["per_segment"].as_array().unwrap().len(), 127);
    assert_eq!(shown["per_segment"][0]["flags"], "ADS-");
    assert_eq!(done(&["ls", image]), "");
    assert!(done(&["fsck", image]).contains("consistent: 2 files"));
    assert!(done(&["fsck", "-p", image]).contains("marked clean, not checked"));
    let (code, _, errors) = ordo(&["mkfs", image]);
    assert!(code != 0 && errors.contains("holds an LFS (byte"), "{errors}");
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a file"), "its contents").unwrap();
    done(&["import", text(&folder), image]);
    assert!(done(&["ls", image]).contains("a file"));
    assert!(done(&["fsck", image]).contains("consistent: 3 files"));
    let (code, _, errors) =
        ordo(&["mkfs", image, "--force", "--fs", "lfs", "--segment-size", "4m"]);
    assert!(code != 0 && errors.contains("31 segments, but at least 80"), "{errors}");
}

/// An image of NetBSD's that was in use: listed and copied out as it was then, checked, its log
/// rolled forward by a repair, and the same after that.
#[test]
fn an_image_in_use_is_read_and_rolled_forward() {
    let Some(bytes) = ordo_testkit::real_input("images/netbsd-lfs/cut64-8k.img") else { return };
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("cut.img");
    fs::write(&image, bytes).unwrap();
    let image = text(&image);
    let info = done(&["info", image]);
    assert!(info.contains("12 partial segments behind the checkpoint, to serial 19"), "{info}");
    let listed = done(&["ls", image]);
    assert!(listed.contains("hardkeep\n") && !listed.contains("victim"), "{listed}");
    let listed = done(&["ls", "-lR", image]);
    let out = temp.path().join("out");
    done(&["export", image, text(&out)]);
    assert_eq!(fs::read(out.join("a/newdir/x")).unwrap().len(), 777);
    assert_eq!(fs::read(out.join("last")).unwrap().len(), 1234);
    assert!(!done(&["cat", image, "/last"]).is_empty());
    let single = temp.path().join("last");
    done(&["cp", &format!("{image}:/last"), text(&single)]);
    assert_eq!(fs::read(single).unwrap(), fs::read(out.join("last")).unwrap());
    let said = done(&["fsck", image]);
    assert!(said.contains("12 partial segments to be rolled forward"), "{said}");
    assert!(
        said.contains("consistent: 30 files, 533") || said.contains("consistent: 30 files"),
        "{said}"
    );
    let said = done(&["fsck", "-y", image]);
    assert!(said.contains("12 partial segments rolled forward"), "{said}");
    let said = done(&["fsck", image]);
    assert!(!said.contains("behind the checkpoint") && said.contains("34 files"), "{said}");
    assert_eq!(done(&["ls", "-lR", image]), listed);
}

/// Damage is reported with the next step, and repaired.
#[test]
fn damage_is_reported_and_repaired() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a.img");
    let image = text(&path);
    done(&["mkfs", image, "--fs", "lfs", "--size", "128m"]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192 + 200] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, out, _) = ordo(&["fsck", image]);
    assert!(code == 4 && out.contains("superblock at byte 8192"), "{out}");
    assert!(out.contains("ordo fsck -y repairs it"), "{out}");
    assert_eq!(ordo(&["fsck", "-y", image]).0, 1);
    assert_eq!(ordo(&["fsck", image]).0, 0);
}

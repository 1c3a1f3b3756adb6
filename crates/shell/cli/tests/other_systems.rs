//! UFS with features of other systems: named, never written, never repaired, and read where the
//! reading is sure.
//!
//! Fault model: a disk of NetBSD, or of NeXT, OpenStep or Apple, is given to every command that
//! writes. Would catch a journal that is not known and whose owner replays it over what was written
//! here, a superblock that is "repaired" from a copy without a journal, quota inodes that a check
//! moves to lost+found, and sound directories that it takes apart.

mod calling;

use std::fs;
use std::path::{Path, PathBuf};

use calling::{done, ordo, text};

/// An image, the words about its feature, and the names in its root if it can be read.
type Case = (&'static str, &'static str, Option<&'static [&'static str]>);

const CASES: &[Case] = &[
    ("wapbl-end", "NetBSD's journal (WAPBL), behind the file system", Some(&["a", "b"])),
    ("wapbl-big", "NetBSD's journal (WAPBL), behind the file system", Some(&["a", "b"])),
    ("infs", "NetBSD's journal (WAPBL), in an inode without a name", Some(&["aaa", "zzz"])),
    ("q2", "NetBSD's quotas", Some(&["aaa", "zzz"])),
    ("ea", "FFSv2ea", Some(&[])),
    ("apple", "chunks of 1,024 bytes", Some(&["file_with_a_name_11", "file_with_a_name_60"])),
    ("old", "inodes of 4.3BSD", None),
];

fn unpacked(name: &str, dir: &Path) -> Option<PathBuf> {
    let bytes = ordo_testkit::real_input(&format!("cases/images/{name}.img"))?;
    let image = dir.join(name);
    fs::write(&image, bytes).unwrap();
    Some(image)
}

/// Tries everything that writes, and expects the words and an unchanged image.
fn is_never_written(image: &Path, words: &str) {
    let before = fs::read(image).unwrap();
    let folder = image.with_extension("folder");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("new"), "new").unwrap();
    let shown = text(image);
    for args in [
        &["fsck", shown][..],
        &["fsck", "-y", shown],
        &["fsck", "-p", "-f", shown],
        &["import", text(&folder), shown],
        &["cp", text(&folder.join("new")), &format!("{shown}:/new")],
    ] {
        let (code, out, errors) = ordo(args);
        assert!(code != 0 && errors.contains(words), "{args:?}: {code} {out}{errors}");
        assert!(fs::read(image).unwrap() == before, "{args:?}: the image has changed");
    }
}

#[test]
fn an_image_of_another_system_is_named_and_never_written() {
    let temp = tempfile::tempdir().unwrap();
    for (name, words, names) in CASES {
        let Some(image) = unpacked(name, temp.path()) else { return };
        is_never_written(&image, words);
        let Some(names) = names else {
            let (code, _, errors) = ordo(&["ls", text(&image)]);
            assert!(code != 0 && errors.contains(words), "{name}: {errors}");
            continue;
        };
        let listed = done(&["ls", text(&image)]);
        for wanted in *names {
            assert!(listed.lines().any(|line| line == *wanted), "{name}: {wanted} in {listed}");
        }
        let out = temp.path().join(format!("{name}.out"));
        done(&["export", text(&image), text(&out)]);
        assert!(fs::read_dir(&out).unwrap().count() >= names.len());
    }
}

/// A copy of the superblock that knows no journal is not taken either, whether it is named or
/// found.
#[test]
fn a_copy_that_knows_no_journal_is_not_believed() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("disk.img");
    let shown = text(&image);
    for ufs in ["ufs2", "ufs1"] {
        let made =
            done(&["mkfs", shown, "--size", "64m", "--force", "--no-check-hashes", "--fs", ufs]);
        let copies = made.lines().find_map(|line| line.split("at sectors ").nth(1)).unwrap();
        let copy = copies.split(", ").next().unwrap();
        let at = if ufs == "ufs2" { 65_536 } else { 8192 };
        for (version, location, words) in
            [(1, 1, "behind the file system"), (1, 2, "in an inode without a name")]
        {
            let mut bytes = fs::read(&image).unwrap();
            bytes[at + 864..at + 866].copy_from_slice(&[version, location]);
            // The usual size of a journal, where FreeBSD has the space for metadata, and a flag
            // that is not clean.
            bytes[at + 880..at + 888].copy_from_slice(&(64u64 << 20).to_le_bytes());
            bytes[at + 209] = 0;
            fs::write(&image, &bytes).unwrap();
            is_never_written(&image, words);
            let (code, _, errors) = ordo(&["fsck", "-y", "-b", copy.trim(), shown]);
            assert!(code != 0 && errors.contains(words), "{errors}");
            assert!(fs::read(&image).unwrap() == bytes, "repaired from a copy");
        }
    }
}

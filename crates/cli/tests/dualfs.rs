//! The commands on a DualFS, as a user meets them.
//!
//! Fault model: a command that takes it for something else, that writes where it must not, or that does not say what is missing.

mod calling;

use std::fs;

use calling::{done, ordo, text};

#[test]
fn a_pair_on_one_disk_is_known_by_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    let image = text(&image);
    let made = done(&["mkfs", image, "--fs", "dualfs", "--size", "64m", "--meta", "8m"]);
    assert!(made.contains("DualFS, pair ") && made.contains("metadata: 8 MB"), "{made}");
    let info = done(&["info", image, "--groups"]);
    assert!(info.starts_with("DualFS, metadata device of the pair "), "{info}");
    assert!(info.contains("group 0: ") && info.contains("log: unmounted"), "{info}");
    assert!(info.lines().all(|l| l.chars().count() <= 100), "{info}");
    let shown: serde_json::Value = serde_json::from_str(&done(&["info", image, "--json"])).unwrap();
    assert_eq!((&shown["format"], &shown["data_at"]), (&"dualfs".into(), &(8 << 20).into()));
    let (code, _, errors) = ordo(&["mkfs", image]);
    assert!(code != 0 && errors.contains("holds a DualFS; --force"), "{errors}");
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a file"), vec![7; 100_000]).unwrap();
    done(&["import", text(&folder), image]);
    assert!(done(&["ls", image]).contains("a file"));
    let checked = done(&["fsck", image]);
    assert!(checked.contains("consistent: 3 files") && checked.contains("25 data"), "{checked}");
    assert!(done(&["fsck", "-p", image]).contains("marked clean, not looked at"));
    let out = temp.path().join("to");
    done(&["export", image, text(&out)]);
    assert_eq!(fs::read(out.join("a file")).unwrap(), vec![7; 100_000]);
    let before = fs::read(image).unwrap();
    let mut cut = before.clone();
    cut.truncate(32 << 20);
    fs::write(image, &cut).unwrap();
    let (code, _, errors) = ordo(&["ls", image]);
    assert!(code != 0 && errors.contains("cut short?"), "{errors}");
}

#[test]
fn sizes_that_cannot_be_are_refused_in_words() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    let image = text(&image);
    let refused = |args: &[&str], why: &str| {
        let (code, _, errors) =
            ordo(&[&["mkfs", image, "--size", "64m", "--force"], args].concat());
        assert!(code != 0 && errors.contains(why), "{args:?}: {errors}");
    };
    refused(&["--fs", "dualfs", "--meta", "100%"], "no share of a disk");
    refused(&["--fs", "dualfs", "--meta", "64m"], "have no room for");
    refused(&["--fs", "dualfs", "--block-size", "16k"], "512 to 8192 are possible");
    refused(&["--fs", "dualfs", "--frag-size", "1k"], "--frag-size does not go with a DualFS");
    refused(&["--fs", "lfs", "--meta", "10%"], "--meta does not go with an LFS");
    refused(&["--fs", "dualfs-2"], "takes two disks");
}

//! `ordo age` as a user runs it.
//!
//! Fault model: an image that is not clean after it was aged; scores that do not come from the
//! disk.

use assert_cmd::Command;
use serde_json::Value;

fn ordo(args: &[&str]) -> (String, String, Option<i32>) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code())
}

/// An image is aged: its earlier files stay, and it is clean. A second run continues, and an
/// impossible option is refused with an explanation.
#[test]
fn an_image_is_aged() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let image = image.to_str().unwrap();
    assert_eq!(ordo(&["mkfs", image, "--size", "48m"]).2, Some(0));
    let note = folder.path().join("note");
    std::fs::write(&note, "stays").unwrap();
    assert_eq!(ordo(&["cp", note.to_str().unwrap(), &format!("{image}:/note")]).2, Some(0));

    let (table, said, code) = ordo(&["age", image, "--util", "60", "--overwrites", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(table.contains("score, fresh"), "{table}");
    assert_eq!(ordo(&["fsck", "-n", image]).2, Some(0));
    assert_eq!(ordo(&["cat", image, "/note"]).0, "stays");

    let (_, said, code) = ordo(&["age", image, "--util", "20"]);
    assert!(code != Some(0) && said.contains("in use already"), "{said}");
    let (_, said, code) = ordo(&["age", image, "--profile", "nobody"]);
    assert!(code != Some(0) && said.contains("agrawal, douceur, meyer, server"), "{said}");
    let (_, said, code) = ordo(&["age", image, "--util", "120%"]);
    assert!(code != Some(0) && said.contains("1% to 99%"), "{said}");
}

/// In a directory of this machine the places come from the kernel, or the output says that the
/// kernel does not give them. The same seed makes the same files in memory.
#[test]
fn systems_in_memory_give_the_same_again() {
    let args = ["age", "--fs", "ffs-none,lfs", "--size", "96m", "--overwrites", "1", "--json"];
    let (rows, said, code) = ordo(&args);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ordo(&args).0, rows);
    let rows: Value = serde_json::from_str(&rows).unwrap();
    for row in rows["rows"].as_array().unwrap() {
        for key in ["score_before", "score_after", "utilisation"] {
            let share = row[key].as_f64().unwrap();
            assert!((0.1..=1.0).contains(&share), "{key}: {row}");
        }
        assert!(row["files"].as_u64().unwrap() > 10, "{row}");
    }
}

/// `ordo compare --aged` says how old the file systems are, with and without a profile, and refuses
/// unknown options.
#[test]
fn a_comparison_says_how_its_file_systems_have_aged() {
    let compare = |aged: &str| {
        let work = ["-f", "ffs-none", "-w", "create-delete:files=20", "--size", "96m", "-q"];
        ordo(&[&["compare", aged, "--wide"], &work[..]].concat())
    };
    let (table, said, code) = compare("--aged=server:util=50%,overwrites=1");
    assert_eq!(code, Some(0), "{said}");
    assert!(table.contains("Aged by server: 50 % full, the space written 1 times."), "{table}");
    assert!(table.contains("layout score before ageing") && table.contains("and after it"));
    let (table, said, code) = compare("--aged");
    assert_eq!(code, Some(0), "{said}");
    assert!(table.contains("Aged by agrawal: 76 % full"), "{table}");
    let (_, said, code) = compare("--aged=agrawal:slow");
    assert!(code == Some(2) && said.contains("util= and overwrites="), "{said}");
}

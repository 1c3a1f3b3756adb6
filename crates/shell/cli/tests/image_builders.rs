//! Images as build systems make them: from manifests and archives, without root, of a wanted size,
//! the same bytes each time.
//!
//! Would catch an owner, mode, time, flag, device, link or hole that is lost on the way, an image
//! that depends on the clock or on the host, and a size that is not what was asked for. makefs and
//! tar are the judges.

mod calling;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use calling::{done, ordo, text};
use serde_json::Value;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

/// The entries of an image, by their paths.
fn listed(image: &Path) -> BTreeMap<String, Value> {
    let all: Vec<Value> =
        serde_json::from_str(&done(&["ls", "-R", "--json", text(image)])).unwrap();
    all.into_iter().map(|line| (line["path"].as_str().unwrap().to_owned(), line)).collect()
}

fn files(folder: &Path) -> PathBuf {
    let dir = folder.join("dest");
    fs::create_dir_all(dir.join("etc")).unwrap();
    fs::create_dir_all(dir.join("bin")).unwrap();
    fs::write(dir.join("etc/passwd"), "root:0\n").unwrap();
    fs::write(dir.join("etc/a name"), "spaces\n").unwrap();
    fs::write(dir.join("bin/sh"), vec![7; 50_000]).unwrap();
    dir
}

const METALOG: &str = "#mtree 2.0
/set uname=root gname=wheel
. type=dir mode=0755 time=1000.5
./bin type=dir mode=0555
./bin/sh type=file mode=04555 uid=5 gid=7 time=1234567890.000000001 flags=schg,nodump
./etc type=dir mode=0755 \\
    time=99.0
./etc/passwd type=file mode=0600 uname=root uid=1001 gid=0 size=7
./etc/a\\040name type=file mode=0644 time=77.0
./etc/link type=link mode=0777 link=../bin/sh
./dev type=dir mode=0755
./dev/null type=char mode=0666 device=native,2,3
./dev/pipe type=fifo mode=0640 time=5.0
./etc/gone type=file mode=0644 optional
";

/// A METALOG: everything has what the manifest says, which no file of the host could have, and
/// makefs's image of it has the same. A file that is missing is named, and a wrong line too.
#[test]
fn a_manifest_says_what_the_host_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let dir = files(folder.path());
    let manifest = folder.path().join("METALOG");
    fs::write(&manifest, METALOG).unwrap();
    let image = folder.path().join("image");
    done(&["import", "-q", "--mtree", text(&manifest), text(&dir), text(&image)]);
    let all = listed(&image);
    assert_eq!(all.len(), 9, "{all:?}");
    let sh = &all["bin/sh"];
    assert_eq!((&sh["uid"], &sh["gid"], &sh["mode"]), (&5.into(), &7.into(), &"4555".into()));
    assert_eq!((&sh["mtime"], &sh["mtime_nanos"]), (&1_234_567_890.into(), &1.into()));
    assert_eq!(sh["flags"], 0x2_0001);
    assert_eq!(all["etc/passwd"]["uid"], 1001);
    assert_eq!(all["etc/a name"]["mtime"], 77);
    assert_eq!(all["etc/link"]["target"], "../bin/sh");
    assert_eq!(all["dev/null"]["rdev"], 0x203);
    assert_eq!(done(&["cat", text(&image), "/etc/a name"]), "spaces\n");
    done(&["fsck", "-f", "-q", text(&image)]);
    judged_by_makefs(folder.path(), &dir, &all);
    for (line, said) in [
        ("./x type=file mode=0644\n", "no such file"),
        ("./x type=odd\n", "line 1: type=odd: there is no such type"),
        ("./x type=dir mode=9\n", "mode=9: not an octal number"),
        ("./x type=dir uname=nobody-here\n", "uname=nobody-here: not in"),
        ("./x/../../y type=dir\n", "not a path below the root"),
        ("./x type=dir flags=nodump,odd\n", "flags=odd"),
        ("./x type=char\n", "a device without device="),
        ("./x\\9 type=dir\n", "an escape that is not known"),
    ] {
        fs::write(&manifest, line).unwrap();
        let other = folder.path().join("other");
        let (code, _, errors) =
            ordo(&["import", "-q", "--mtree", text(&manifest), text(&dir), text(&other)]);
        assert!(code == 1 && errors.contains(said), "{line}: {errors}");
        let _ = fs::remove_file(other);
    }
}

fn judged_by_makefs(folder: &Path, dir: &Path, ours: &BTreeMap<String, Value>) {
    let image = folder.join("makefs.img");
    let plain: String = METALOG
        .lines()
        .filter(|line| !line.contains("optional"))
        .map(|l| l.replace("wheel", "root") + "\n")
        .collect();
    let manifest = folder.join("plain");
    fs::write(&manifest, plain).unwrap();
    let made = Command::new("makefs")
        .args(["-t", "ffs", "-o", "version=2", "-s", "8m", "-F"])
        .args([&manifest, &image, &dir.to_path_buf()])
        .output();
    let Ok(made) = made else { return ordo_testkit::skip("makefs is not installed") };
    if !made.status.success() {
        return ordo_testkit::skip(&format!("makefs: {}", String::from_utf8_lossy(&made.stderr)));
    }
    for (path, theirs) in listed(&image) {
        // A makefs on Linux sets no flags.
        for field in ["type", "mode", "uid", "gid", "size", "target"] {
            if theirs["type"] == "directory" && field == "size" {
                continue;
            }
            assert_eq!(ours[&path][field], theirs[field], "{path}: {field}");
        }
    }
}

/// An archive of GNU tar on the standard input, plain, compressed and in its newer format: hard and
/// symbolic links, holes, long names, owners and times to the nanosecond come through.
#[test]
fn an_archive_becomes_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let dir = files(folder.path());
    fs::hard_link(dir.join("bin/sh"), dir.join("bin/twin")).unwrap();
    symlink("sh", dir.join("bin/link")).unwrap();
    fs::write(dir.join("n".repeat(200)), "long").unwrap();
    let holes = File::create(dir.join("holes")).unwrap();
    holes.set_len(3 << 20).unwrap();
    holes.write_all_at(b"data", 1 << 20).unwrap();
    for options in [&["-c"][..], &["-cz"], &["-cS", "--format=gnu"], &["-cS", "--format=posix"]] {
        let archive = Command::new("tar").args(options).args(["-C", text(&dir), "."]).output();
        let archive = archive.expect("tar is on every machine").stdout;
        let image = folder.path().join("image");
        let _ = fs::remove_file(&image);
        let mut import = Command::new(ORDO)
            .args(["import", "-q", "--owner", "12:34", "-", text(&image)])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(&archive).unwrap();
        assert!(import.wait().unwrap().success(), "{options:?}");
        let all = listed(&image);
        assert_eq!(all["bin/sh"]["ino"], all["bin/twin"]["ino"], "{options:?}");
        assert!(all.values().all(|line| line["uid"] == 12 && line["gid"] == 34), "{options:?}");
        let out = folder.path().join("out");
        done(&["export", "-q", text(&image), text(&out)]);
        let same =
            Command::new("diff").args(["-r", "--no-dereference", text(&dir), text(&out)]).output();
        let same = same.unwrap();
        assert!(same.status.success(), "{options:?}: {}", String::from_utf8_lossy(&same.stdout));
        fs::remove_dir_all(out).unwrap();
        done(&["fsck", "-f", "-q", text(&image)]);
    }
    let odd = folder.path().join("odd");
    fs::write(&odd, vec![1; 2000]).unwrap();
    let new = folder.path().join("new");
    let (code, _, errors) = ordo(&["import", text(&odd), text(&new)]);
    assert!(code == 1 && errors.contains("not a sound archive"), "{errors}");
    assert!(!new.exists(), "an image of nothing stays behind");
}

/// An existing tree: refused without a word about it, replaced, or kept.
#[test]
fn files_that_exist_are_replaced_or_kept() {
    let folder = tempfile::tempdir().unwrap();
    let dir = files(folder.path());
    let image = folder.path().join("image");
    let import =
        |more: &[&str]| ordo(&[&["import", "-q", text(&dir), text(&image)], more].concat());
    assert_eq!(import(&[]).0, 0);
    fs::write(dir.join("etc/passwd"), "changed\n").unwrap();
    fs::write(dir.join("etc/new"), "new\n").unwrap();
    let (code, _, errors) = import(&[]);
    assert!(code == 1 && errors.contains("file exists"), "{errors}");
    assert_eq!(import(&["--merge"]).0, 0);
    assert_eq!(done(&["cat", text(&image), "/etc/passwd", "/etc/new"]), "root:0\nnew\n");
    assert_eq!(import(&["--overwrite"]).0, 0);
    assert_eq!(done(&["cat", text(&image), "/etc/passwd", "/etc/new"]), "changed\nnew\n");
    done(&["fsck", "-f", "-q", text(&image)]);
    let (code, _, errors) = import(&["-b", "8k"]);
    assert!(code == 1 && errors.contains("options of mkfs are for a new image"), "{errors}");
}

/// With `SOURCE_DATE_EPOCH` two images of the same files are the same bytes, whenever they are
/// made; without it, or with another seed, they differ.
#[test]
fn the_same_files_are_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = files(folder.path());
    let make = |name: &str, epoch: Option<&str>, more: &[&str]| {
        let image = folder.path().join(name);
        let mut command = Command::new(ORDO);
        command.args(["import", "-q", text(&dir), text(&image)]).args(more);
        epoch.iter().for_each(|epoch| _ = command.env("SOURCE_DATE_EPOCH", epoch));
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        fs::read(image).unwrap()
    };
    let first = make("a", Some("86400"), &[]);
    let plain = make("b", None, &[]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fs::read(dir.join("bin/sh")).unwrap();
    let second = make("c", Some("86400"), &[]);
    assert!(first == second, "the images differ");
    assert!(first != plain && make("d", None, &[]) != plain, "time does not matter");
    assert!(make("e", Some("86400"), &["--seed", "2"]) != first, "the seed does not matter");
    let newest = listed(&folder.path().join("a"));
    assert!(newest.values().all(|line| line["mtime"].as_i64() <= Some(86_400)), "{newest:?}");
    let image = folder.path().join("f");
    let mut command = Command::new(ORDO);
    command.args(["import", text(&dir), text(&image)]).env("SOURCE_DATE_EPOCH", "today");
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains("SOURCE_DATE_EPOCH=today: not a number"), "{said}");
}

/// The smallest image, and one of which a fifth is free. Both are consistent and have everything.
#[test]
fn an_image_has_the_wanted_space() {
    let folder = tempfile::tempdir().unwrap();
    let dir = files(folder.path());
    fs::write(dir.join("more"), vec![3; 100_000]).unwrap();
    let small = folder.path().join("small");
    done(&["import", "-q", text(&dir), text(&small), "--minimal"]);
    let bytes = fs::metadata(&small).unwrap().len();
    assert!(bytes < 400_000, "{bytes}");
    done(&["fsck", "-f", "-q", text(&small)]);
    assert_eq!(done(&["cat", text(&small), "/etc/passwd"]), "root:0\n");
    let fifth = folder.path().join("fifth");
    fs::write(dir.join("large"), vec![5; 20 << 20]).unwrap();
    done(&["import", "-q", text(&dir), text(&fifth), "--free", "20%", "--label", "root", "-U"]);
    let bytes = fs::metadata(&fifth).unwrap().len();
    assert!((25 << 20..31 << 20).contains(&bytes), "{bytes}");
    done(&["fsck", "-f", "-q", text(&fifth)]);
    assert!(done(&["info", text(&fifth)]).contains("root"));
    let (code, _, errors) = ordo(&["import", text(&dir), text(&fifth), "--minimal"]);
    assert!(code == 1 && errors.contains("exists: its size is what it is"), "{errors}");
}

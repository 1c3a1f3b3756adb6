//! The commands on a DualFS, as a user meets them.
//!
//! Fault model: a command that takes a DualFS for another format, that writes to the wrong device,
//! or that does not say which device is missing.

mod calling;

use std::fs;
use std::path::{Path, PathBuf};

use calling::{done, ordo, text};
use ordo_format::dualfs::Identity;

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
    assert!(code != 0 && errors.contains("holds a DualFS (byte"), "{errors}");
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a file"), vec![7; 100_000]).unwrap();
    done(&["import", text(&folder), image]);
    assert!(done(&["ls", image]).contains("a file"));
    let checked = done(&["fsck", image]);
    assert!(checked.contains("consistent: 3 files") && checked.contains("25 data"), "{checked}");
    assert!(done(&["fsck", "-p", image]).contains("marked clean, not checked"));
    let out = temp.path().join("to");
    done(&["export", image, text(&out)]);
    assert_eq!(fs::read(out.join("a file")).unwrap(), vec![7; 100_000]);
    let before = fs::read(image).unwrap();
    let mut cut = before.clone();
    cut.truncate(32 << 20);
    fs::write(image, &cut).unwrap();
    let (code, _, errors) = ordo(&["ls", image]);
    assert!(code != 0 && errors.contains("was it truncated?"), "{errors}");
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
    refused(&["--fs", "dualfs", "--meta", "100%"], "is not a share of a disk");
    refused(&["--fs", "dualfs", "--meta", "64m"], "have no space for");
    refused(&["--fs", "dualfs", "--block-size", "16k"], "512 to 8192 are possible");
    refused(&["--fs", "dualfs", "--frag-size", "1k"], "--frag-size does not go with a DualFS");
    refused(&["--fs", "lfs", "--meta", "10%"], "--meta does not go with an LFS");
    refused(&["--fs", "lfs", "--meta-copy", "10%"], "--meta-copy does not go with an LFS");
    refused(&["--fs", "dualfs", "--meta-copy", "64m"], "the data device has fewer blocks");
    refused(&["--fs", "dualfs", "--meta-copy", "4k"], "too few for any block");
    refused(&["--fs", "dualfs-2"], "takes two disks");
    // The error names the size that is enough.
    fs::create_dir(temp.path().join("src")).unwrap();
    let small = "segments of 8192 bytes: the first one has the label and the superblock, which take 16384 bytes";
    refused(&["--fs", "dualfs", "--segment-size", "8k"], small);
    let args = ["mkfs", image, "--size", "64m", "--force", "--fs", "dualfs", "--segment-size"];
    done(&[&args[..], &["16384"]].concat());
    done(&["import", text(temp.path().join("src").as_path()), image]);
    assert!(done(&["fsck", image]).contains("consistent"));
}

/// A pair on two images, in directories of their own: `[data, metadata]`.
fn made_pair(dir: &Path) -> [PathBuf; 2] {
    let paths = ["data", "metadata"].map(|name| {
        let folder = dir.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder.join("half.img")
    });
    let [data, metadata] = &paths;
    let args = ["mkfs", text(data), "--fs", "dualfs", "--size", "64m", "--meta-device"];
    let made = done(&[&args[..], &[text(metadata), "--meta", "8m"]].concat());
    assert!(made.contains("metadata: 8 MB") && made.contains("on a device of its own"), "{made}");
    assert!(made.contains(&format!("metadata device: {}", metadata.display())), "{made}");
    paths
}

#[test]
fn a_pair_on_two_images_is_known_by_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let [data, metadata] = made_pair(temp.path());
    let lengths = [&data, &metadata].map(|path| fs::metadata(path).unwrap().len());
    assert_eq!(lengths, [64 << 20, 8 << 20]);
    let (data, device) = (text(&data), ["--meta-device", text(&metadata)]);
    let with = |args: &[&str]| done(&[args, &device[..]].concat());
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a file"), vec![7; 100_000]).unwrap();
    with(&["import", text(&folder), data]);
    assert!(with(&["ls", data]).contains("a file"));
    let single = temp.path().join("b");
    fs::write(&single, "words").unwrap();
    with(&["cp", text(&single), &format!("{data}:/")]);
    assert_eq!(with(&["cat", data, "/b"]), "words");
    let copied = temp.path().join("c");
    with(&["cp", &format!("{data}:/b"), text(&copied)]);
    assert_eq!(fs::read(copied).unwrap(), b"words");
    let checked = with(&["fsck", data]);
    assert!(checked.contains("consistent: 4 files"), "{checked}");
    let out = temp.path().join("to");
    with(&["export", data, text(&out)]);
    assert_eq!(fs::read(out.join("a file")).unwrap(), vec![7; 100_000]);
    let info = with(&["info", data, "--groups"]);
    assert!(info.starts_with("DualFS, pair ") && info.contains("group 0: "), "{info}");
    for line in [format!("metadata device: {}", device[1]), format!("data device: {data}")] {
        assert!(info.contains(&line), "{info}");
    }
    let shown: serde_json::Value = serde_json::from_str(&with(&["info", data, "--json"])).unwrap();
    assert_eq!((&shown["role"], &shown["metadata_device"]), (&"both".into(), &device[1].into()));
    let (code, _, errors) = ordo(&[&["mkfs", data, "--fs", "dualfs"], &device[..]].concat());
    assert!(code != 0 && errors.contains("holds a DualFS (byte"), "{errors}");
}

/// If a command line names one half of a pair, the other is found in the same directory by the
/// pair's identifier, whatever else is there; if it is missing, or is found twice, the message says
/// so.
#[test]
fn the_other_half_is_found_beside_the_image() {
    let temp = tempfile::tempdir().unwrap();
    let [data, metadata] = made_pair(temp.path());
    let missing = |image: &Path, why: &str| {
        let (code, _, errors) = ordo(&["ls", text(image)]);
        assert!(code != 0 && errors.contains(why), "{errors}");
    };
    missing(&data, "no metadata device of it is in");
    missing(&metadata, "no data device of it is in");
    let (code, out, errors) = ordo(&["info", text(&metadata)]);
    assert!(code == 0 && out.starts_with("DualFS, metadata device of the pair"), "{out}");
    assert!(errors.contains("name the data device, and this one with --meta-device"), "{errors}");
    let near = temp.path().join("near");
    let others = made_pair(&near);
    for (number, path) in others.iter().enumerate() {
        fs::rename(path, near.join(format!("other-{number}"))).unwrap();
    }
    let halves = [near.join("d"), near.join("m")];
    fs::copy(&data, &halves[0]).unwrap();
    fs::copy(&metadata, &halves[1]).unwrap();
    fs::write(near.join("a text"), "nothing of it").unwrap();
    done(&["import", text(&temp.path().join("data")), text(&halves[0])]);
    for half in &halves {
        assert!(done(&["ls", text(half)]).contains("half.img"));
    }
    fs::copy(&halves[1], near.join("m2")).unwrap();
    missing(&halves[0], "name one with --meta-device");
}

#[test]
fn halves_that_do_not_belong_together_are_refused_in_words() {
    let temp = tempfile::tempdir().unwrap();
    let [data, metadata] = made_pair(temp.path());
    let foreign = made_pair(&temp.path().join("foreign"));
    let plain = temp.path().join("plain.img");
    let empty = temp.path().join("empty.img");
    fs::write(&empty, vec![0; 1 << 20]).unwrap();
    done(&["mkfs", text(&plain), "--size", "64m"]);
    let [old_data, old_metadata] = ["old-d", "old-m"].map(|name| temp.path().join(name));
    fs::copy(&data, &old_data).unwrap();
    fs::copy(&metadata, &old_metadata).unwrap();
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    done(&["import", text(&folder), text(&data), "--meta-device", text(&metadata)]);
    let refused = |image: &Path, device: &Path, why: &str| {
        for command in ["ls", "info", "fsck"] {
            let (code, out, errors) = ordo(&[command, text(image), "--meta-device", text(device)]);
            let said = format!("{out}{errors}");
            assert!(code != 0 && said.contains(why), "{command}: {code}: {said}");
        }
    };
    refused(&metadata, &data, "the devices are swapped");
    refused(&data, &data, "both are data devices");
    refused(&metadata, &metadata, "both are metadata devices");
    refused(&data, &foreign[1], "the data device of the pair");
    refused(&old_data, &metadata, "the data device is older");
    refused(&data, &old_metadata, "the metadata device is older");
    refused(&data, &plain, "the metadata device is not a device of a DualFS");
    refused(&plain, &metadata, "holds a UFS2 file system: --meta-device does not go with it");
    refused(&empty, &metadata, "has no file system, so it is not the data device");
    refused(&data, &temp.path().join("none"), "No such file");
    let cut = temp.path().join("cut");
    fs::write(&cut, &fs::read(&data).unwrap()[..32 << 20]).unwrap();
    refused(&cut, &metadata, "was it truncated?");
    let mkfs = |args: &[&str], why: &str| {
        let new = temp.path().join("new");
        let new_metadata = temp.path().join("new-m");
        let fixed = ["mkfs", text(&new), "--size", "64m", "--meta-device", text(&new_metadata)];
        let (code, _, errors) = ordo(&[&fixed, args].concat());
        assert!(code != 0 && errors.contains(why), "{args:?}: {errors}");
    };
    mkfs(&[], "--meta-device does not go with a UFS2");
    let (code, _, errors) =
        ordo(&["mkfs", text(&plain), "--fs", "dualfs", "--force", "--meta-device", text(&plain)]);
    assert!(code != 0 && errors.contains("cannot be both devices"), "{errors}");
}

/// An option of a DualFS or of a cleaner is refused on a file system that has neither, before
/// anything is mounted. Would catch an option that is accepted and then ignored.
#[test]
fn mount_options_that_mean_nothing_are_refused_in_words() {
    let temp = tempfile::tempdir().unwrap();
    let (plain, log, dir) =
        ["plain.img", "log.img", "dir"].map(|name| temp.path().join(name)).into();
    done(&["mkfs", text(&plain), "--size", "64m"]);
    done(&["mkfs", text(&log), "--fs", "lfs", "--size", "128m"]);
    fs::create_dir(&dir).unwrap();
    for (image, option, why) in [
        (&plain, "prefetch=4", "-o prefetch= does not go with a UFS2 file system"),
        (&plain, "cleaner=greedy", "-o cleaner= does not go with a UFS2 file system"),
        (&log, "affinity=3", "-o affinity= does not go with an LFS"),
    ] {
        let (code, _, errors) = ordo(&["mount", "-o", option, text(image), text(&dir)]);
        assert!(code != 0 && errors.contains(why), "{option}: {code}: {errors}");
    }
}

/// With a copy of the metadata on the data device, files are read although the metadata device is
/// gone; without one, or without being asked, a command says what is missing.
#[test]
fn files_are_salvaged_without_the_metadata_device() {
    let temp = tempfile::tempdir().unwrap();
    let [data, metadata] = made_pair(temp.path());
    let device = ["--meta-device", text(&metadata)];
    let args = ["mkfs", text(&data), "--fs", "dualfs", "--force", "--meta-copy", "90%"];
    done(&[&args[..], &device[..]].concat());
    let folder = temp.path().join("from");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a file"), vec![7; 100_000]).unwrap();
    done(&[&["import", text(&folder), text(&data)], &device[..]].concat());
    let info = done(&["info", text(&data)]);
    assert!(info.contains("copy of the metadata: checkpoint "), "{info}");
    let shown: serde_json::Value =
        serde_json::from_str(&done(&["info", text(&data), "--json"])).unwrap();
    assert!(shown["copy"]["blocks"].as_u64().unwrap() > 5, "{shown}");
    fs::remove_file(&metadata).unwrap();
    let before = fs::read(&data).unwrap();
    let (code, _, errors) = ordo(&["ls", text(&data)]);
    assert!(code != 0 && errors.contains("--salvage"), "{errors}");
    assert!(done(&["ls", text(&data), "--salvage"]).contains("a file"));
    assert_eq!(done(&["cat", text(&data), "--salvage", "/a file"]).len(), 100_000);
    let out = temp.path().join("to");
    done(&["export", text(&data), text(&out), "--salvage"]);
    assert_eq!(fs::read(out.join("a file")).unwrap(), vec![7; 100_000]);
    assert!(before == fs::read(&data).unwrap(), "something was written");
    let at = temp.path().join("at");
    fs::create_dir(&at).unwrap();
    let (code, _, errors) = ordo(&["mount", text(&data), text(&at), "-o", "salvage"]);
    assert!(code != 0 && errors.contains("only reads: -o ro,salvage"), "{errors}");
    let [plain, metadata] = made_pair(&temp.path().join("plain"));
    fs::remove_file(&metadata).unwrap();
    let (code, _, errors) = ordo(&["ls", text(&plain), "--salvage"]);
    assert!(code != 0 && errors.contains("keeps no copy of the metadata"), "{errors}");
}

/// Makes a DualFS's identity that of a device of a pair with a mirrored metadata device, as older
/// versions of Ordo made it.
fn mark_mirrored(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let mut identity = Identity::read(&bytes[..512]).unwrap();
    identity.reserved = 2;
    identity.seal(&mut bytes[..512]);
    fs::write(path, &bytes).unwrap();
}

/// A pair with a mirrored metadata device is refused by name by every command, which says what to
/// do, and no byte of it changes. Would catch a repair of half a mirror, after which the two halves
/// differ and nothing says so. `mkfs` asks for `--force` as for any other DualFS.
#[test]
fn a_mirrored_metadata_device_is_refused_by_name() {
    let temp = tempfile::tempdir().unwrap();
    let [data, metadata] = made_pair(temp.path());
    for path in [&data, &metadata] {
        mark_mirrored(path);
    }
    let before = [&data, &metadata].map(|path| fs::read(path).unwrap());
    let at = temp.path().join("at");
    fs::create_dir(&at).unwrap();
    let (d, m, at) = (text(&data), text(&metadata), text(&at));
    let into = format!("{d}:/");
    let calls: [&[&str]; 15] = [
        &["ls", d, "--meta-device", m],
        &["ls", d],
        &["ls", m],
        &["ls", d, "--salvage"],
        &["cat", d, "/a", "--meta-device", m],
        &["info", d, "--meta-device", m],
        &["info", d],
        &["info", m],
        &["fsck", d, "--meta-device", m],
        &["fsck", "-p", d, "--meta-device", m],
        &["fsck", "-y", d, "--meta-device", m],
        &["fsck", "-y", m],
        &["import", at, d, "--meta-device", m],
        &["cp", m, &into, "--meta-device", m],
        &["mount", "-o", "ro", d, at, "--meta-device", m],
    ];
    let mount: &[&str] = &["mount", d, at, "--meta-device", m];
    for args in calls.into_iter().chain([mount]) {
        let (code, out, errors) = ordo(args);
        let said = format!("{out}{errors}");
        assert_ne!(code, 0, "{args:?}: {said}");
        for words in [
            "is of a DualFS that this version does not read",
            "byte 60: 2, which must be 0: the metadata device of this pair is a mirror of two halves",
            "copy the files off with the version of Ordo that made it",
        ] {
            assert!(said.contains(words), "{args:?}: {said}");
        }
        let after = [&data, &metadata].map(|path| fs::read(path).unwrap());
        assert!(before == after, "{args:?}: something was written");
    }
    let (code, _, errors) = ordo(&["mkfs", d]);
    assert!(code != 0 && errors.contains("holds a DualFS (byte"), "{errors}");
    done(&["mkfs", d, "--force"]);
    assert!(done(&["fsck", d]).contains("consistent"));
}

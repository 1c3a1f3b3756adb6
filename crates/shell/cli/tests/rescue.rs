//! Damaged images, read past their damage by the command, and beside The Sleuth Kit.
//!
//! Fault models: an image that was cut off, parts that could not be copied, bytes that are others.
//! Would catch a command that stops at the first fault, that loses files in silence, and that finds
//! less than fls and icat.

mod calling;
mod mounting;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use calling::{done, ordo, text};
use ordo_block::ram::RamDisk;
use ordo_ffs::MountOptions;
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, path};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A folder with a tree and images of it.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        let case = Case { folder: tempfile::tempdir().unwrap() };
        let tree = case.path("tree");
        for d in 0..5 {
            let dir = tree.join(format!("dir{d}"));
            fs::create_dir_all(&dir).unwrap();
            for f in 0..20 {
                let data: Vec<u8> = (0..f * 3000).map(|i| (i % 251 + d + f) as u8 | 1).collect();
                fs::write(dir.join(format!("file{f}")), data).unwrap();
            }
        }
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An image with the tree.
    fn image(&self, name: &str, more: &[&str]) -> PathBuf {
        let image = self.path(name);
        let mkfs = ["mkfs", text(&image), "--size", "12m", "-b", "8k", "-f", "1k"];
        done(&[&mkfs, more].concat());
        done(&["import", "-q", text(&self.path("tree")), text(&image)]);
        image
    }

    /// Compares an exported tree with the original: a file that differs or is missing must be among
    /// the errors, by its path or that of a directory above it. Returns the number of sound files.
    fn compare(&self, out: &Path, errors: &str) -> usize {
        let mut sound = 0;
        for d in 0..5 {
            for f in 0..20 {
                let name = format!("dir{d}/file{f}");
                let is = fs::read(out.join(&name)).ok();
                if is == Some(fs::read(self.path("tree").join(&name)).unwrap()) {
                    sound += 1;
                    continue;
                }
                let dir = format!("/dir{d}, inode ");
                let said = errors.contains(&format!("/{name}, inode ")) || errors.contains(&dir);
                assert!(said || errors.contains("ordo: /, inode "), "{name}: {errors}");
            }
        }
        sound
    }
}

/// An image without its end, alone and as the partition of a disk, whose partition then ends behind
/// it: refused by a command as usual, with the way past it; with --rescue everything that is there
/// comes out, and the rest is in the list.
#[test]
fn an_image_that_was_cut_off() {
    let case = Case::new();
    for version in ["ufs2", "ufs1"] {
        let whole = case.image(&format!("{version}.img"), &["--fs", version]);
        let bytes = fs::read(&whole).unwrap();
        let disk = case.path(&format!("{version}.disk"));
        let file = File::create(&disk).unwrap();
        let mut entry = [0; 16];
        entry[4] = 0xa5;
        entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        entry[12..].copy_from_slice(&(12_u32 * 2048).to_le_bytes());
        file.write_all_at(&entry, 446).unwrap();
        file.write_all_at(&[0x55, 0xaa], 510).unwrap();
        let cut = case.path("cut.img");
        for keep in [2_u64 << 20, 5 << 20, 9 << 20] {
            fs::write(&cut, &bytes[..keep as usize]).unwrap();
            file.write_all_at(&bytes[..keep as usize], 1 << 20).unwrap();
            file.set_len((1 << 20) + keep).unwrap();
            for image in [&cut, &disk] {
                let (code, _, errors) = ordo(&["ls", text(image)]);
                let advises = image == &disk || errors.contains("--rescue reads");
                assert!(code == 1 && advises, "{errors}");
                let out = case.path("out");
                let (code, _, errors) =
                    ordo(&["export", "-q", "--rescue", text(image), text(&out)]);
                assert_eq!(code, 1, "{errors}");
                assert!(errors.contains("but the device only"), "{errors}");
                let sound = case.compare(&out, &errors);
                assert!(keep < 9 << 20 || sound > 60, "{sound}: {errors}");
                fs::remove_dir_all(&out).unwrap();
                let (code, listed, _) = ordo(&["ls", "-R", "--rescue", text(image)]);
                assert!(code == 1 && listed.lines().count() >= sound, "{listed}");
            }
        }
    }
}

/// A copy by ddrescue has zeros where it could not read; its mapfile says where. The files that
/// have such zeros are named, with their ranges; the others are sound, and without the mapfile
/// nobody would know.
#[test]
fn a_mapfile_tells_zeros_from_contents() {
    let case = Case::new();
    let image = case.image("image", &[]);
    let mut bytes = fs::read(&image).unwrap();
    let mut map = "# Mapfile. Created by GNU ddrescue\n0x0 + 1\n".to_owned();
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    for _ in 0..40 {
        let at = rng.random_range(300..bytes.len() / 512 - 8) * 512;
        bytes[at..at + 4096].fill(0);
        map += &format!("{at:#x} 0x1000 -\n");
    }
    fs::write(&image, &bytes).unwrap();
    let (mapfile, out) = (case.path("map"), case.path("out"));
    fs::write(&mapfile, map).unwrap();
    let args = ["export", "-q", "--rescue", "--mapfile", text(&mapfile), text(&image), text(&out)];
    let (code, _, errors) = ordo(&args);
    assert_eq!(code, 1, "{errors}");
    let sound = case.compare(&out, &errors);
    assert!(errors.contains("cannot be read: zeros instead") && sound > 20, "{sound}: {errors}");
    fs::write(&mapfile, "no mapfile\n").unwrap();
    let (code, _, errors) = ordo(&args);
    assert!(code == 1 && errors.contains("line 1 is not of a ddrescue mapfile"), "{errors}");
    let (code, ..) = ordo(&["ls", "--mapfile", text(&mapfile), text(&image)]);
    assert_eq!(code, 2, "--mapfile needs --rescue");
}

/// A directory entry, a check-hash and a pointer are damaged: as usual the first fault stops a
/// copy, and with --rescue each is named with its inode and the rest is copied; cat and cp do the
/// same.
#[test]
fn single_faults_are_named() {
    let case = Case::new();
    let image = case.image("image", &[]);
    let mut bytes = fs::read(&image).unwrap();
    let find = |bytes: &[u8], name: &[u8]| {
        bytes.windows(name.len()).position(|window| window == name).unwrap()
    };
    // An entry of dir1 gets a length that cannot be.
    let at = find(&bytes, b"file7\0");
    bytes[at - 4..at - 2].copy_from_slice(&[1, 0]);
    fs::write(&image, &bytes).unwrap();
    let out = case.path("out");
    let (code, _, errors) = ordo(&["export", "-q", text(&image), text(&out)]);
    assert!(code == 1 && errors.contains("--rescue reads whatever can be read"), "{errors}");
    let (code, _, errors) = ordo(&["export", "-q", "--rescue", text(&image), text(&out)]);
    assert!(code == 1 && errors.contains("is damaged (entry length 1"), "{errors}");
    let sound = case.compare(&out, &errors);
    assert!((80..100).contains(&sound), "{sound}");
    let json =
        done_with(1, &["export", "--json", "--rescue", text(&image), text(&case.path("again"))]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["left_out"][0]["ino"].as_u64() > Some(2), "{json}");
    let from = format!("{}:/dir4/file19", text(&image));
    done(&["cp", "-q", "--rescue", &from, text(&case.path("one"))]);
    assert_eq!(
        fs::read(case.path("one")).unwrap(),
        fs::read(case.path("tree/dir4/file19")).unwrap()
    );
    done(&["cat", "--rescue", text(&image), "/dir4/file19"]);
}

/// A mount to read past damage, of an image that was cut off and has no superblock: sound files are
/// read by any program, and a mount that could write is refused.
#[test]
fn a_damaged_image_is_mounted() {
    if !mounting::can_mount() {
        return;
    }
    let case = Case::new();
    let image = case.image("image", &[]);
    let mut bytes = fs::read(&image).unwrap();
    bytes.truncate(9 << 20);
    bytes[65_536..65_536 + 2000].fill(0);
    fs::write(&image, &bytes).unwrap();
    let dir = case.path("mnt");
    fs::create_dir(&dir).unwrap();
    let (code, _, errors) = ordo(&["mount", text(&image), text(&dir), "-o", "rescue"]);
    assert!(code == 1 && errors.contains("-o rescue only reads: -o ro,rescue"), "{errors}");
    let (code, _, errors) = ordo(&["mount", text(&image), text(&dir), "-o", "ro"]);
    assert!(code == 1 && errors.contains("superblock"), "{errors}");
    done(&["mount", text(&image), text(&dir), "-o", "ro,rescue"]);
    let is_sound = |name: &String| {
        fs::read(dir.join(name)).ok() == fs::read(case.path("tree").join(name)).ok()
    };
    let names = (0..100).map(|i| format!("dir{}/file{}", i / 20, i % 20));
    let sound = names.filter(is_sound).count();
    let written = fs::write(dir.join("new"), "x");
    done(&["umount", text(&dir)]);
    assert!(written.is_err() && sound > 60, "{sound}");
}

/// The output of a call with this exit status.
fn done_with(status: i32, args: &[&str]) -> String {
    let (code, out, errors) = ordo(args);
    assert_eq!(code, status, "{args:?}: {errors}");
    out
}

/// Removes files by Ordo itself.
fn remove(image: &Path, paths: &[&str]) {
    let bytes = fs::read(image).unwrap();
    let disk = std::rc::Rc::new(RamDisk::from_image(&bytes));
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let rt = executor.runtime();
            let fs = ordo_ffs::mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await;
            let fs = fs.unwrap();
            for name in paths {
                let (dir, name) = path::parent(&fs, name.as_bytes()).await.unwrap();
                fs.unlink(dir, name).await.unwrap();
            }
            fs.unmount().await.unwrap();
        })
        .unwrap();
    fs::write(image, disk.to_vec()).unwrap();
}

/// The lines of fls: the inode's number, and the path.
fn fls(image: &Path, options: &[&str]) -> Option<BTreeSet<(u64, String)>> {
    let out = Command::new("fls").args(["-f", "ufs", "-r", "-p"]).args(options).arg(image).output();
    let Ok(out) = out else {
        ordo_testkit::skip("fls (sleuthkit) is not installed");
        return None;
    };
    let all = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = |line: &str| {
        let (head, name) = line.split_once(":\t")?;
        let word = head.split_whitespace().last()?;
        let ino = word.split('(').next()?.parse().ok()?;
        Some((ino, name.to_owned()))
    };
    Some(all.lines().filter_map(line).filter(|(_, name)| !name.contains('$')).collect())
}

/// Removed names are listed with their inodes, at least all that fls lists; a file whose inode has
/// another name is printed by its number, as icat does.
#[test]
fn removed_names_are_found() {
    let case = Case::new();
    for version in ["ufs2", "ufs1"] {
        let image = case.image(&format!("{version}.img"), &["--fs", version]);
        let ino: serde_json::Value =
            serde_json::from_str(&done(&["ls", "--json", text(&image), "/dir3/file9"])).unwrap();
        let ino = ino[0]["ino"].as_u64().unwrap();
        let removed = ["/dir1/file3", "/dir1/file4", "/dir2/file19", "/dir4/file0"];
        remove(&image, &removed);
        let json = done(&["ls", "-R", "--deleted", "--json", text(&image)]);
        let lines: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let ours: BTreeSet<(u64, String)> = lines
            .iter()
            .map(|line| (line["ino"].as_u64().unwrap(), line["path"].as_str().unwrap().to_owned()))
            .collect();
        for name in removed {
            assert!(ours.iter().any(|(_, path)| path == &name[1..]), "{name}: {json}");
        }
        if let Some(theirs) = fls(&image, &["-d"]) {
            assert!(theirs.is_subset(&ours), "{version}: {theirs:?}, but {ours:?}");
        }
        let number = ino.to_string();
        let printed = done(&["cat", "--inode", &number, text(&image)]);
        assert_eq!(
            printed.as_bytes(),
            String::from_utf8_lossy(&fs::read(case.path("tree/dir3/file9")).unwrap()).as_bytes()
        );
        if let Ok(icat) = Command::new("icat").args(["-f", "ufs"]).arg(&image).arg(&number).output()
        {
            assert_eq!(icat.stdout, fs::read(case.path("tree/dir3/file9")).unwrap());
        }
        assert!(
            done(&["ls", "-l", "--inode", &number, text(&image)]).contains("inode"),
            "{number}"
        );
        let (code, _, errors) = ordo(&["cat", "--inode", "999999", text(&image)]);
        assert!(code == 1 && errors.contains("inode 999999"), "{errors}");
    }
}

/// Images with a few sectors of other contents. Every file that fls lists is listed here too.
#[test]
fn nothing_is_missed_that_fls_finds() {
    let case = Case::new();
    let sound = fs::read(case.image("sound", &[])).unwrap();
    let image = case.path("damaged");
    for seed in 0..25 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = sound.clone();
        for _ in 0..rng.random_range(1..12) {
            let at = rng.random_range(200..bytes.len() / 512) * 512;
            match rng.random_range(0..2) {
                0 => bytes[at..at + 512].fill(0),
                _ => bytes[at + 100..at + 108].copy_from_slice(&rng.random::<[u8; 8]>()),
            }
        }
        fs::write(&image, &bytes).unwrap();
        let Some(theirs) = fls(&image, &["-u"]) else { return };
        let (_, out, errors) = ordo(&["ls", "-R", "--rescue", text(&image)]);
        let ours: BTreeSet<&str> = out.lines().collect();
        for (ino, path) in theirs {
            let found =
                ours.contains(&*path) || errors.contains(&format!("/{path}, inode {ino}: "));
            assert!(found, "seed {seed}: {path}, inode {ino}: {errors}\n{out}");
        }
    }
}

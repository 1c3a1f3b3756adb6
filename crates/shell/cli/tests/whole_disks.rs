//! Disks and images as people have them: with partitions, compressed, in a virtual machine's
//! format.
//!
//! Every command finds the one file system of a disk by itself, and asks where there are several.
//! Would catch a command with rules of its own, a write outside of the partition, a compressed
//! image that is written or taken for damaged, and advice that cannot help.

mod calling;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use calling::{done, ordo, text};

const MB: u64 = 1 << 20;

/// An entry of an MBR, with places in megabytes.
fn entry(disk: &File, slot: u64, kind: u8, first_mb: u64, len_mb: u64) {
    let mut bytes = [0; 16];
    bytes[4] = kind;
    bytes[8..12].copy_from_slice(&((first_mb * 2048) as u32).to_le_bytes());
    bytes[12..].copy_from_slice(&((len_mb * 2048) as u32).to_le_bytes());
    disk.write_all_at(&bytes, 446 + 16 * slot).unwrap();
    disk.write_all_at(&[0x55, 0xaa], 510).unwrap();
}

/// A BSD label in sector 1 of a slice at `at`, with the partitions a, d, e ... of the given first
/// megabytes and lengths, counted from the slice.
fn label(disk: &File, at: u64, len_mb: u64, parts: &[(u64, u64)]) {
    let mut sector = [0; 512];
    let mut put32 = |at: usize, value: u64| {
        sector[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    };
    put32(0, 0x8256_4557);
    put32(132, 0x8256_4557);
    let letters = [0, 3, 4, 5];
    for (letter, (first, len)) in letters.into_iter().zip(parts) {
        put32(148 + 16 * letter, len * 2048);
        put32(148 + 16 * letter + 4, first * 2048);
        put32(148 + 16 * letter + 12, 7);
    }
    put32(148 + 32, len_mb * 2048);
    sector[138] = 8;
    let sum = sector[..148 + 128]
        .chunks(2)
        .fold(0, |sum, two| sum ^ u16::from_le_bytes([two[0], two[1]]));
    sector[136..138].copy_from_slice(&sum.to_le_bytes());
    disk.write_all_at(&sector, at + 512).unwrap();
}

/// Puts an image into a disk.
fn put(disk: &File, at_mb: u64, image: &Path) {
    disk.write_all_at(&fs::read(image).unwrap(), at_mb * MB).unwrap();
}

/// Images of file systems, each with a file that has the name of its format.
struct Images {
    folder: tempfile::TempDir,
}

impl Images {
    fn new() -> Images {
        Images { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An image of `mb` megabytes.
    fn make(&self, format: &str, mb: u64) -> PathBuf {
        let image = self.path(&format!("{format}.img"));
        done(&["mkfs", text(&image), "--fs", format, "--size", &format!("{mb}m"), "--force"]);
        let note = self.path("note");
        fs::write(&note, format!("this is {format}\n")).unwrap();
        done(&["cp", "-q", text(&note), &format!("{}:/{format}", text(&image))]);
        image
    }

    /// A disk of `mb` megabytes.
    fn disk(&self, name: &str, mb: u64) -> (PathBuf, File) {
        let path = self.path(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(mb * MB).unwrap();
        (path, file)
    }
}

/// The commands read, check and change the only file system of a disk, whichever table the disk has
/// and wherever the file system lies; the bytes around it stay as they are.
#[test]
fn the_only_file_system_of_a_disk_is_found() {
    let images = Images::new();
    for (format, table) in
        [("ufs2", "mbr"), ("ufs1", "slice"), ("lfs", "mbr"), ("dualfs", "mbr"), ("ufs2", "label")]
    {
        let name = format!("{format}-{table}");
        let (disk, file) = images.disk(&name, 100);
        let image = images.make(format, 64);
        let first = match table {
            "mbr" => {
                entry(&file, 0, 0x83, 1, 4);
                entry(&file, 1, 0xa5, 8, 64);
                8
            }
            "slice" => {
                entry(&file, 0, 0xa5, 2, 96);
                label(&file, 2 * MB, 96, &[(8, 64), (80, 4)]);
                10
            }
            _ => {
                label(&file, 0, 100, &[(4, 64)]);
                4
            }
        };
        put(&file, first, &image);
        let mut before = vec![0; (first * MB) as usize];
        file.read_exact_at(&mut before, 0).unwrap();
        let disk = text(&disk);
        assert_eq!(done(&["cat", disk, &format!("/{format}")]), format!("this is {format}\n"));
        assert!(done(&["ls", disk]).contains(format), "{name}");
        let new = images.path("new");
        fs::write(&new, "new\n").unwrap();
        done(&["cp", "-q", text(&new), &format!("{disk}:/new")]);
        done(&["import", "-q", "--into", "/below", text(&tree(&images)), disk]);
        done(&["fsck", "-q", disk]);
        let out = images.path(&format!("{name}.out"));
        done(&["export", "-q", disk, text(&out)]);
        assert_eq!(fs::read(out.join("new")).unwrap(), b"new\n");
        assert_eq!(fs::read(out.join("below/leaf")).unwrap(), b"leaf\n");
        let info = done(&["info", disk]);
        assert!(info.contains("first byte") && info.lines().count() > 8, "{name}: {info}");
        let json: serde_json::Value =
            serde_json::from_str(&done(&["info", "--json", disk])).unwrap();
        assert!(json["partitions"].is_array() && json["file_system"].is_object(), "{json}");
        let mut after = vec![0; before.len()];
        file.read_exact_at(&mut after, 0).unwrap();
        assert!(after == before, "{name}: the bytes before the partition were changed");
    }
}

fn tree(images: &Images) -> PathBuf {
    let dir = images.path("tree");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("leaf"), "leaf\n").unwrap();
    dir
}

/// Several partitions hold a format of Ordo's: every command asks, and takes the answer in
/// each of its forms; where none does, it says what they hold.
#[test]
fn several_file_systems_are_asked_about() {
    let images = Images::new();
    let (disk, file) = images.disk("disk", 200);
    entry(&file, 0, 0xa5, 1, 70);
    entry(&file, 1, 0xa5, 72, 64);
    entry(&file, 2, 0x83, 140, 8);
    label(&file, MB, 70, &[(1, 64)]);
    put(&file, 2, &images.make("ufs1", 64));
    put(&file, 72, &images.make("ufs2", 64));
    file.write_all_at(b"XFSB", 140 * MB).unwrap();
    let disk = text(&disk);
    let place = format!("{disk}:/x");
    let (note, out, dir) = (images.path("note"), images.path("out"), tree(&images));
    let calls: [&[&str]; 7] = [
        &["ls", disk],
        &["cat", disk, "/ufs1"],
        &["cp", text(&note), &place],
        &["cp", &place, text(&out)],
        &["export", disk, text(&out)],
        &["import", text(&dir), disk],
        &["fsck", disk],
    ];
    for call in calls {
        let (code, _, errors) = ordo(call);
        assert_ne!(code, 0, "{call:?}");
        let said = "holds several file systems: 1a (a UFS1 file system), 2 (a UFS2 file system); \
                    choose one with --partition";
        assert!(errors.contains(said), "{call:?}: {errors}");
    }
    for (part, format) in [("1a", "ufs1"), ("2", "ufs2"), ("p2", "ufs2")] {
        let path = format!("/{format}");
        let said = format!("this is {format}\n");
        assert_eq!(done(&["cat", disk, &path, "--partition", part]), said);
        assert_eq!(done(&["cat", "-p", part, disk, &path]), said);
        done(&["fsck", "-q", "--partition", part, disk]);
        done(&["cp", "-q", "-p", part, text(&note), &place]);
        assert!(done(&["info", "-p", part, disk]).contains("magic"), "{part}");
    }
    let (code, _, errors) = ordo(&["ls", "-p", "9", disk]);
    assert!(
        code == 1 && errors.contains("there is no partition 9; there are 1, 1a, 2, 3"),
        "{errors}"
    );
    let (code, _, errors) = ordo(&["ls", "-p", "3", disk]);
    let said = "holds an XFS file system (byte 0), not UFS, LFS or DualFS";
    assert!(code == 1 && errors.contains(said), "{errors}");
    // None is left.
    let (lone, file) = images.disk("lone", 20);
    entry(&file, 0, 0x83, 1, 8);
    entry(&file, 1, 0x07, 10, 8);
    file.write_all_at(b"XFSB", MB).unwrap();
    let (code, _, errors) = ordo(&["ls", text(&lone)]);
    let said = "no partition holds UFS, LFS or DualFS, but 1 (an XFS file system), 2 (type 0x7)";
    assert!(code == 1 && errors.contains(said), "{errors}");
}

/// A disk that was made over as a whole still has a table, or the partitions of a disk that once
/// was a single file system: only its owner knows which counts.
#[test]
fn a_table_over_a_file_system_is_asked_about() {
    let images = Images::new();
    let (disk, file) = images.disk("disk", 100);
    put(&file, 0, &images.make("ufs1", 96));
    entry(&file, 0, 0xa5, 30, 64);
    let disk = text(&disk);
    // The table is a remainder, or the first part of boot code.
    assert_eq!(done(&["cat", disk, "/ufs1"]), "this is ufs1\n");
    put(&file, 30, &images.make("ufs2", 64));
    let (code, _, errors) = ordo(&["ls", disk]);
    let said = "several file systems: 1 (a UFS2 file system), and the whole disk, a UFS1 file \
                system (whole); choose one";
    assert!(code == 1 && errors.contains(said), "{errors}");
    assert_eq!(done(&["cat", disk, "-p", "1", "/ufs2"]), "this is ufs2\n");
    assert!(done(&["ls", disk, "-p", "whole"]).contains("ufs1"));
}

/// Compressed images and disks are read by every command, also in several streams, and never
/// written; a damaged one is named, and nothing of it stays.
#[test]
fn compressed_images_are_read() {
    let images = Images::new();
    let (disk, file) = images.disk("disk", 80);
    entry(&file, 0, 0xa5, 4, 64);
    put(&file, 4, &images.make("ufs2", 64));
    for (program, options, suffix) in
        [("gzip", "-kf", "gz"), ("xz", "-kfT2", "xz"), ("zstd", "-qkf", "zst")]
    {
        let Ok(packed) = Command::new(program).arg(options).arg(&disk).output() else {
            ordo_testkit::skip(&format!("{program} is not installed"));
            continue;
        };
        assert!(packed.status.success(), "{program}");
        let path = images.path(&format!("disk.{suffix}"));
        let image = text(&path);
        let before = fs::read(&path).unwrap();
        assert_eq!(done(&["cat", image, "/ufs2"]), "this is ufs2\n");
        done(&["fsck", "-q", image]);
        assert!(done(&["info", image]).contains("magic"), "{suffix}");
        let out = images.path(&format!("out-{suffix}"));
        done(&["export", "-q", image, text(&out)]);
        assert!(out.join("ufs2").exists());
        for change in [
            &["fsck", "-y", image][..],
            &["cp", text(&images.path("note")), &format!("{image}:/note")],
        ] {
            let (code, _, errors) = ordo(change);
            assert!(
                code != 0 && errors.contains("is compressed, so it can only be read"),
                "{errors}"
            );
        }
        assert!(fs::read(&path).unwrap() == before, "{suffix}: the image was changed");
        let mut cut = before;
        cut.truncate(cut.len() / 2);
        fs::write(&path, &cut).unwrap();
        let (code, _, errors) = ordo(&["ls", image]);
        assert!(code == 1 && errors.contains("damaged or cut off"), "{suffix}: {errors}");
    }
}

/// Formats of virtual machines are named, with the command that converts them. The signature of one
/// that is otherwise raw counts only at its beginning.
#[test]
fn formats_of_virtual_machines_are_named() {
    let images = Images::new();
    let raw = images.make("ufs2", 64);
    for (format, noun) in [
        ("qcow2", "a qcow2"),
        ("vmdk", "a VMDK"),
        ("vpc", "a VHD"),
        ("vdi", "a VDI"),
        ("vhdx", "a VHDX"),
    ] {
        let path = images.path(&format!("vm.{format}"));
        let args = ["convert", "-f", "raw", "-O", format, text(&raw), text(&path)];
        match Command::new("qemu-img").args(args).output() {
            Ok(made) => assert!(made.status.success(), "{made:?}"),
            Err(_) => return ordo_testkit::skip("qemu-img is not installed"),
        }
        let (code, _, errors) = ordo(&["ls", text(&path)]);
        let to = path.with_extension("raw");
        let command = format!("qemu-img convert -O raw {} {}", text(&path), text(&to));
        assert!(code == 1 && errors.contains(noun) && errors.contains(&command), "{errors}");
        // The advice works.
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        assert!(Command::new("qemu-img").args(words).status().unwrap().success());
        assert_eq!(done(&["cat", text(&to), "/ufs2"]), "this is ufs2\n");
        fs::remove_file(to).unwrap();
    }
    let fixed = images.path("fixed.vhd");
    let args = ["convert", "-O", "vpc", "-o", "subformat=fixed", text(&raw), text(&fixed)];
    assert!(Command::new("qemu-img").args(args).status().unwrap().success());
    assert_eq!(done(&["cat", text(&fixed), "/ufs2"]), "this is ufs2\n");
}

/// Contents that are no file system are called what it is, and a check is advised only where it can
/// help.
#[test]
fn contents_are_named_and_advice_can_be_followed() {
    let images = Images::new();
    let (empty, _) = images.disk("empty", 8);
    let (other, file) = images.disk("other", 8);
    file.write_all_at(b"hello", 3 * MB).unwrap();
    let lost = images.make("ufs2", 64);
    let file = File::options().write(true).open(&lost).unwrap();
    file.write_all_at(&[0; 8192], 65_536).unwrap();
    for (path, said) in [
        (&empty, "is empty"),
        (&other, "holds nothing that Ordo knows"),
        (&lost, "the superblock of a UFS file system is destroyed, but a copy of it is at byte"),
    ] {
        for command in ["ls", "info"] {
            let (code, _, errors) = ordo(&[command, text(path)]);
            assert!(code == 1 && errors.contains(said), "{command}: {errors}");
            assert_eq!(errors.contains("fsck -y"), path == &lost, "{errors}");
        }
    }
    let (code, ..) = ordo(&["fsck", "-y", "-q", text(&lost)]);
    assert_eq!(code, 1);
    assert_eq!(done(&["cat", text(&lost), "/ufs2"]), "this is ufs2\n");
}

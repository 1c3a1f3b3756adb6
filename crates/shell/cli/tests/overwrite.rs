//! Nothing is overwritten without `--force`: what a device holds is named, and where it was found.
//!
//! Fault model: a user names the wrong disk. Real programs make its contents. Would catch a format
//! that is not recognised, a command that does not ask, a signature that stays beside the new file
//! system, so that `blkid` is in doubt and the old format's check calls it clean, and a `--force`
//! that destroys the old contents although nothing can be made.

mod calling;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use calling::{done, ordo, text};
use ordo_testkit::skip;

const SIZE: u64 = 512 << 20;

/// Programs that make contents, with the words of the message.
const MAKERS: &[(&str, &[&str], &str)] = &[
    ("mkfs.ext2", &["-q", "-F"], "an ext2 file system (byte 1,080)"),
    ("mkfs.ext4", &["-q", "-F"], "an ext4 file system (byte 1,080)"),
    ("mkfs.ext4", &["-q", "-F", "-O", "journal_dev"], "the journal of an ext3 or ext4"),
    ("mkfs.xfs", &["-q", "-f"], "an XFS file system (byte 0)"),
    ("mkfs.btrfs", &["-q", "-f"], "a btrfs file system"),
    ("mkfs.jfs", &["-q"], "a JFS file system"),
    ("mkfs.reiserfs", &["-q", "-ff"], "a ReiserFS file system"),
    ("mkfs.ntfs", &["-q", "-F", "-f"], "an NTFS file system (byte 3)"),
    ("mkfs.nilfs2", &["-q", "-f"], "a NILFS2 file system"),
    ("mkfs.f2fs", &["-q", "-f"], "an F2FS file system"),
    ("mkfs.fat", &["-F", "32", "-S", "4096"], "a FAT file system"),
    ("mkfs.fat", &["-F", "16"], "a FAT file system"),
    ("mkfs.fat", &["-F", "32"], "a FAT file system"),
    ("mkfs.exfat", &[], "an exFAT file system"),
    ("mkfs.minix", &["-3"], "a minix file system"),
    ("mkudffs", &[], "a UDF file system"),
    ("mkswap", &["-q"], "swap space (byte 4,086)"),
    ("mkswap", &["-q", "-p", "65536"], "swap space (byte 65,526)"),
    ("sgdisk", &["-n", "1:0:0"], "a GPT partition table (bytes 512 and 536,870,400)"),
    ("cryptsetup", &["luksFormat", "-q", "--type", "luks1"], "a LUKS volume"),
    ("cryptsetup", &["luksFormat", "-q", "--type", "luks2"], "a LUKS2 volume"),
];

fn blank(path: &Path) {
    File::create(path).unwrap().set_len(SIZE).unwrap();
}

/// Runs one of the programs on a new image. False, with a message, if it is not installed.
fn made_by(maker: &str, options: &[&str], image: &Path) -> bool {
    let _ = fs::remove_file(image);
    blank(image);
    let mut command = Command::new(maker);
    command.args(options).arg(image);
    if maker == "cryptsetup" {
        command.args([
            "--pbkdf-force-iterations",
            "4",
            "--key-size",
            "256",
            "--key-file",
            "/etc/hostname",
        ]);
        if options.contains(&"luks1") {
            command.args(["--pbkdf-force-iterations", "1000"]);
        }
    }
    let Ok(out) = command.output() else {
        skip(&format!("{maker} is not installed"));
        return false;
    };
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{maker} {options:?}: {errors}");
    true
}

/// The first and last megabyte, where all these formats have something.
fn edges(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut bytes = vec![0; 2 << 20];
    let (head, tail) = bytes.split_at_mut(1 << 20);
    file.read_exact_at(head, 0).unwrap();
    file.read_exact_at(tail, SIZE - (1 << 20)).unwrap();
    bytes
}

/// All contents that blkid finds, one a line; `None` if it is in doubt.
fn blkid(image: &Path) -> Option<String> {
    let args = ["-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE"];
    let out = Command::new("blkid").args(args).arg(image).output().expect("blkid");
    (out.status.code() != Some(8)).then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

#[test]
fn contents_of_real_programs_are_refused_by_name_and_replaced_by_force() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("disk.img");
    for (maker, options, words) in MAKERS {
        if !made_by(maker, options, &image) {
            continue;
        }
        let before = edges(&image);
        let (code, _, errors) = ordo(&["mkfs", text(&image)]);
        assert_eq!(code, 1, "{maker} {options:?}: {errors}");
        assert!(errors.contains(words) && errors.contains("--force"), "{maker}: {errors}");
        assert!(edges(&image) == before, "{maker}: changed although it was refused");
        for (layout, kind) in [("ufs2", "ufs"), ("lfs", "")] {
            done(&["mkfs", text(&image), "--force", "--fs", layout]);
            let found = blkid(&image);
            assert_eq!(found.as_deref(), Some(kind), "{maker} {options:?}, then {layout}");
        }
    }
}

/// Every command that makes something asks first, about each of its devices.
#[test]
fn every_command_that_makes_something_asks_first() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let (archive, fresh) = (path("old.tar"), path("new.img"));
    let mut bytes = vec![0; 64 << 20];
    bytes[..4].copy_from_slice(b"name");
    bytes[257..262].copy_from_slice(b"ustar");
    fs::write(&archive, &bytes).unwrap();
    let (old, new) = (text(&archive), text(&fresh));
    let calls: [&[&str]; 7] = [
        &["mkfs", old],
        &["mkfs", old, "--fs", "ufs1"],
        &["mkfs", old, "--fs", "lfs"],
        &["mkfs", old, "--fs", "dualfs"],
        &["mkfs", new, "--size", "64m", "-J", old],
        &["mkfs", new, "--size", "64m", "--fs", "dualfs", "--meta-device", old],
        &["log", "create", old],
    ];
    for args in calls {
        let (code, _, errors) = ordo(args);
        assert_eq!(code, 1, "{args:?}: {errors}");
        assert!(errors.contains("a tar archive (byte 257)"), "{args:?}: {errors}");
        assert!(fs::read(&archive).unwrap() == bytes, "{args:?}: changed");
        let _ = fs::remove_file(&fresh);
    }
    // A log takes no good file system either.
    done(&["mkfs", new, "--size", "64m"]);
    let (code, _, errors) = ordo(&["log", "create", new]);
    assert!(code == 1 && errors.contains("holds a UFS2 file system (byte 66,908)"), "{errors}");
}

/// Bytes that are not zero and that nobody knows are refused where nobody can be asked; zeros are
/// not mentioned.
#[test]
fn unknown_bytes_are_refused_and_zeros_are_not() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("disk.img");
    blank(&image);
    File::options().write(true).open(&image).unwrap().write_all_at(b"precious", 70_000).unwrap();
    let (code, _, errors) = ordo(&["mkfs", text(&image)]);
    assert!(code == 1 && errors.contains("byte 70,000 is not zero"), "{errors}");
    done(&["mkfs", text(&image), "--force"]);
    let _ = fs::remove_file(&image);
    blank(&image);
    let (code, _, errors) = ordo(&["mkfs", text(&image)]);
    assert_eq!((code, &*errors), (0, ""));
}

/// A user at a terminal is asked. Any answer but yes leaves the bytes as they were.
#[test]
fn a_terminal_is_asked_about_unknown_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("disk.img");
    let answer = |answer: &str| {
        blank(&image);
        let file = File::options().write(true).read(true).open(&image).unwrap();
        file.write_all_at(b"precious", 70_000).unwrap();
        let command = format!("{} mkfs {}", env!("CARGO_BIN_EXE_ordo"), text(&image));
        // `script` gives the command a terminal, and exits as the command does.
        let mut asked = Command::new("script");
        asked.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        asked.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut asked = asked.spawn().unwrap();
        asked.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let out = asked.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(said.contains("Overwrite it? [y/N]"), "{said}");
        (out.status.success(), blkid(&image), said)
    };
    let (done, found, said) = answer("n\n");
    assert!(!done && found.as_deref() == Some("") && said.contains("not overwritten"), "{said}");
    let (done, found, said) = answer("\n");
    assert!(!done && found.as_deref() == Some(""), "{said}");
    let (done, found, said) = answer("y\n");
    assert!(done && found.as_deref() == Some("ufs"), "{found:?}: {said}");
}

/// If nothing can be made, `--force` leaves the old contents as they were.
#[test]
fn a_forced_mkfs_that_fails_leaves_the_old_contents() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("disk.img");
    if !made_by("mkfs.ext4", &["-q", "-F"], &image) {
        return;
    }
    let before = edges(&image);
    let (code, ..) = ordo(&["mkfs", text(&image), "--force", "--block-size", "3000"]);
    assert!(code != 0 && edges(&image) == before);
    assert_eq!(blkid(&image).as_deref(), Some("ext4"));
}

/// Another file system was made over one of Ordo's, whose superblock is still there: nothing is
/// written to it, not by a copy, a repair or a mount. Would catch a command that takes the old
/// superblock for the disk's contents.
#[test]
fn an_old_file_system_under_another_is_never_written() {
    let temp = tempfile::tempdir().unwrap();
    let (image, folder) = (temp.path().join("disk.img"), temp.path().join("folder"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "new").unwrap();
    for (maker, options, words) in MAKERS {
        if !["mkfs.ntfs", "sgdisk"].contains(maker) {
            continue;
        }
        blank(&image);
        done(&["mkfs", text(&image), "--force"]);
        let made = Command::new(maker).args(*options).arg(&image).output();
        if !made.is_ok_and(|out| out.status.success()) {
            skip(&format!("{maker} is not installed"));
            continue;
        }
        let before = edges(&image);
        let mount = temp.path().join("mount");
        let _ = fs::create_dir(&mount);
        for args in [
            &["import", text(&folder), text(&image)][..],
            &["fsck", "-y", text(&image)],
            &["mount", text(&image), text(&mount)],
        ] {
            let (code, _, errors) = ordo(args);
            let words = words.split(" (").next().unwrap();
            assert!(code != 0 && errors.contains(words), "{maker}, {args:?}: {errors}");
            assert!(edges(&image) == before, "{maker}, {args:?}: changed");
        }
        done(&["ls", text(&image)]);
    }
}

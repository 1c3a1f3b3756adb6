//! The mount as `mount(8)` makes it from fstab, and as an ordinary user makes it through
//! `fusermount3`.

mod mounting;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use mounting::{Disk, can_mount, ordo, run, shell, text};

/// The helper that `mount -t fuse.ordo` runs. The link is removed again, unless it was there
/// before.
struct Helper(bool);

impl Helper {
    const PATH: &str = "/sbin/mount.fuse.ordo";

    fn new() -> Helper {
        let is_ours = std::os::unix::fs::symlink(cargo_bin("ordo"), Self::PATH).is_ok();
        assert!(Path::new(Self::PATH).exists());
        Helper(is_ours)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.0 {
            let _ = fs::remove_file(Self::PATH);
        }
    }
}

/// A line of fstab, with options of mount(8), of the kernel and of Ordo, mounts; `umount` returns
/// when the disk is clean. So do `mount -t fuse.ordo`, a second mount point (refused, since the
/// image is taken), a change to read-only, and a device by a label that is not there (refused, with
/// the reason). Would catch an option of mount(8) that the helper does not know.
#[test]
fn fstab_mounts_an_image() {
    if !can_mount() {
        return;
    }
    let _helper = Helper::new();
    let disk = Disk::new("soft-updates", 32);
    let (image, dir) = (disk.image(), disk.dir().display().to_string());
    let table = disk.folder.path().join("fstab");
    let line = "rw,nofail,nodev,nosuid,noauto,x-systemd.automount,ordering=soft-updates,cache=32m";
    fs::write(&table, format!("{image} {dir} fuse.ordo {line} 0 0\n")).unwrap();
    let out = run("mount", &["-T", table.to_str().unwrap(), &dir]);
    assert!(out.status.success(), "{}", text(&out));
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let shown = shown.lines().find(|l| l.contains(&dir)).unwrap().to_owned();
    for word in ["fuseblk.ordo", "nodev", "nosuid", "allow_other"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    shell(&disk.dir(), "echo kept > file; mkdir sub; cp file sub");
    let out = run("mount", &["-o", "remount,ro", &dir]);
    assert!(out.status.success(), "{}", text(&out));
    let refused = fs::write(disk.dir().join("x"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    disk.umount();
    disk.assert_clean();
    let out = run("mount", &["-t", "fuse.ordo", "-o", "ro,cache=16m", image, &dir]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(fs::read(disk.dir().join("sub/file")).unwrap(), b"kept\n");
    let other = disk.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let out = run("mount", &["-t", "fuse.ordo", image, other.to_str().unwrap()]);
    assert!(!out.status.success() && text(&out).contains("another process"), "{}", text(&out));
    disk.umount();
    let out = run("mount", &["-t", "fuse.ordo", "-o", "speed=high", image, &dir]);
    assert!(!out.status.success() && text(&out).contains("speed"), "{}", text(&out));
    disk.assert_clean();
}

/// `/dev/fuse` as distributions have it: open to every user. Its permissions are as before
/// afterwards.
struct OpenFuse(fs::Permissions);

impl OpenFuse {
    const PATH: &str = "/dev/fuse";

    fn new() -> OpenFuse {
        let before = fs::metadata(Self::PATH).unwrap().permissions();
        if before.mode() & 0o006 != 0o006 {
            fs::set_permissions(Self::PATH, fs::Permissions::from_mode(0o666)).unwrap();
        }
        OpenFuse(before)
    }
}

impl Drop for OpenFuse {
    fn drop(&mut self) {
        let _ = fs::set_permissions(Self::PATH, self.0.clone());
    }
}

/// The user and group of the ordinary user.
const NOBODY: u32 = 65534;

/// A folder of an ordinary user, with an image, a mount point and a copy of the program: the
/// build's own folder may be closed to others.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        fs::copy(cargo_bin("ordo"), home.path("ordo")).unwrap();
        fs::create_dir(home.path("mounted")).unwrap();
        fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for file in ["", "mounted"] {
            std::os::unix::fs::chown(home.path(file), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script in the folder as the user.
    fn shell(&self, script: &str) -> Output {
        let id = NOBODY.to_string();
        Command::new("timeout")
            .args(["120", "setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"])
            .args(["bash", "-ec", script])
            .current_dir(self.0.path())
            .output()
            .expect("setpriv")
    }

    #[track_caller]
    fn does(&self, script: &str) -> String {
        let out = self.shell(script);
        assert!(out.status.success(), "{script}\n{}", text(&out));
        text(&out)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.path("mounted").to_str().unwrap()]);
    }
}

/// An ordinary user makes an image, mounts it, works in it, and unmounts it. Another user, root
/// even, does not see into the mount. Both ways of unmounting leave a clean disk. A mount point of
/// somebody else, an image that the user cannot write, and options that need privileges are
/// refused, each with its reason.
#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    if !can_mount() {
        return;
    }
    for program in ["fusermount3", "setpriv"] {
        if Command::new(program).arg("--version").output().is_err() {
            return ordo_testkit::skip(&format!("{program} is not installed"));
        }
    }
    let _open = OpenFuse::new();
    let home = Home::new();
    // The root directory of a new image is root's.
    home.does("./ordo mkfs --size 32m image; ./ordo mount image mounted -o uid=65534,gid=65534");
    home.does("cd mounted; echo mine > file; mkdir sub; cp file sub; ln file sub/two; chmod 600 file; cat sub/two");
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounted = home.path("mounted").display().to_string();
    let line = shown.lines().find(|l| l.contains(&mounted)).unwrap();
    assert!(line.contains("fuse.ordo") && line.contains(&format!("user_id={NOBODY}")), "{line}");
    let refused = fs::metadata(home.path("mounted/file")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "root sees a user's mount");
    home.does("./ordo umount mounted; ./ordo fsck -f image");
    home.does("./ordo mount image mounted -o uid=65534; cat mounted/file; fusermount3 -u mounted");
    // The server may still be writing. The check waits for the image, as a script must.
    home.does("for i in $(seq 100); do ./ordo fsck -f image && exit; sleep 0.1; done; exit 1");
    assert_eq!(fs::metadata(home.path("image")).unwrap().uid(), NOBODY);
    let refused = |script: &str, word: &str| {
        let out = home.shell(script);
        assert!(!out.status.success() && text(&out).contains(word), "{script}: {}", text(&out));
    };
    fs::create_dir(home.path("roots")).unwrap();
    refused("./ordo mount image roots", "fusermount3 refused to mount on");
    fs::copy(home.path("image"), home.path("closed")).unwrap();
    fs::set_permissions(home.path("closed"), fs::Permissions::from_mode(0o600)).unwrap();
    refused("./ordo mount closed mounted", "Permission denied");
    assert!(ordo(&["fsck", "-f", home.path("image").to_str().unwrap()]).status.success());
}

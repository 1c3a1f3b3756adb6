//! Commands that need root say so before they make anything.
//!
//! Fault model: an ordinary user. Would catch a command that fails in the middle, with directories
//! and traces left behind and a message about a loop device.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The command as user and group 65534. The build directory may be closed to them, so it is copied.
fn as_nobody(ordo: &Path, dir: &Path, args: &[&str]) -> (bool, String) {
    let out =
        Command::new(ordo).args(args).current_dir(dir).uid(65534).gid(65534).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn nothing_is_made_without_root() {
    if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() != 0
    {
        ordo_testkit::skip("only root can become another user");
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (ordo, dir) = (temp.path().join("ordo"), temp.path().join("work"));
    fs::copy(assert_cmd::cargo::cargo_bin("ordo"), &ordo).unwrap();
    fs::create_dir(&dir).unwrap();
    for path in [temp.path(), &ordo] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.join("disk.img"), vec![0; 1 << 20]).unwrap();
    let calls: [&[&str]; 6] = [
        &["trace", "run", "--fs", "ext4", "-o", "trace", "--", "true"],
        &["trace", "attach", "disk.img", "-o", "trace", "--", "true"],
        &["infer", "--fs", "ext4"],
        &["bench", "micro", "--dir", "bench", "--drop-caches"],
        &["crash", "--fs", "ext4", "--output", "results.json"],
        &["crash", "--fs", "ext4", "--check", "true", "--output", "more.json", "--", "true"],
    ];
    for args in calls {
        let (done, errors) = as_nobody(&ordo, &dir, args);
        assert!(!done && errors.contains("root"), "{args:?}: {errors}");
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["disk.img"], "{args:?}");
    }
}

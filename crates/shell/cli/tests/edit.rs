//! Changes in an image without a mount.
//!
//! Would catch a change that follows a symbolic link, that stops at the first of several files,
//! that a check finds wrong, and an error that does not name the path.

mod calling;

use std::fs;
use std::path::PathBuf;

use calling::{done, ordo, text};
use serde_json::Value;

/// An image of a format with a few files.
fn image(folder: &tempfile::TempDir, format: &str) -> PathBuf {
    let (dir, image) = (folder.path().join("dir"), folder.path().join(format!("{format}.img")));
    fs::create_dir_all(dir.join("sub/deep")).unwrap();
    fs::write(dir.join("sub/file"), "file\n").unwrap();
    fs::write(dir.join("sub/deep/leaf"), "leaf\n").unwrap();
    fs::write(dir.join("top"), "top\n").unwrap();
    done(&["mkfs", text(&image), "--fs", format, "--size", "64m"]);
    done(&["import", "-q", text(&dir), text(&image)]);
    image
}

fn attributes(image: &str, path: &str) -> Value {
    let all: Value = serde_json::from_str(&done(&["ls", "--json", image, path])).unwrap();
    all[0].clone()
}

/// Every command, on every format, and a check afterwards.
#[test]
fn an_image_is_changed_without_a_mount() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["ufs2", "ufs1", "lfs", "dualfs"] {
        let path = image(&folder, format);
        let image = text(&path);
        done(&["edit", "mkdir", image, "/new", "-m", "750"]);
        done(&["edit", "mkdir", "--parents", image, "/a/b/c", "/new"]);
        done(&["edit", "mv", image, "/top", "/sub/file", "/new"]);
        done(&["edit", "mv", image, "/new/top", "/new/renamed"]);
        done(&["edit", "ln", image, "/new/renamed", "/hard"]);
        done(&["edit", "ln", "-s", image, "new/file", "/soft"]);
        done(&["edit", "touch", "--time", "-5", image, "/hard", "/made"]);
        done(&["edit", "chmod", image, "640", "/hard"]);
        done(&["edit", "chmod", image, "u+rwX,g=rx,o-rwx", "/sub", "-R"]);
        done(&["edit", "chown", image, "7:8", "/sub", "-R"]);
        done(&["edit", "chown", image, ":9", "/soft"]);
        let listed = done(&["ls", "-R", image]);
        let wanted = "a\na/b\na/b/c\nhard\nmade\nnew\nnew/file\nnew/renamed\nsoft\nsub\nsub/deep\nsub/deep/leaf\n";
        assert_eq!(listed, wanted, "{format}");
        let hard = attributes(image, "/new/renamed");
        assert_eq!((&hard["mode"], &hard["links"]), (&"0640".into(), &2.into()), "{format}");
        assert_eq!(hard["mtime"], -5, "{format}");
        let leaf = attributes(image, "/sub/deep/leaf");
        assert_eq!((&leaf["mode"], &leaf["uid"]), (&"0650".into(), &7.into()), "{format}");
        let all: Value = serde_json::from_str(&done(&["ls", "--json", image])).unwrap();
        let find = |name: &str| all.as_array().unwrap().iter().find(|l| l["path"] == name).unwrap();
        assert_eq!((&find("new")["mode"], &find("sub")["mode"]), (&"0750".into(), &"0750".into()));
        // The link's owner changed, and not its target's.
        assert_eq!(
            (&find("soft")["gid"], &find("soft")["target"]),
            (&9.into(), &"new/file".into())
        );
        assert_eq!(attributes(image, "/new/file")["gid"], find("hard")["gid"]);
        done(&["edit", "rm", image, "/soft", "/hard"]);
        done(&["edit", "rm", "-r", "-f", image, "/sub", "/not/there"]);
        assert_eq!(done(&["ls", image]), "a\nmade\nnew\n", "{format}");
        assert_eq!(done(&["cat", image, "/new/renamed", "/new/file"]), "top\nfile\n");
        done(&["fsck", "-f", "-q", image]);
    }
}

/// Extended attributes are set, exported, and removed.
#[test]
fn attributes_are_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, "ufs2");
    let image = text(&path);
    done(&["edit", "setfattr", "-n", "user.note", "-v", "hello", image, "/top"]);
    let out = folder.path().join("out");
    done(&["export", "-q", image, text(&out)]);
    let mut value = [0; 16];
    match rustix::fs::getxattr(out.join("top"), "user.note", &mut value[..]) {
        Ok(len) => assert_eq!(&value[..len], b"hello"),
        Err(error) => ordo_testkit::skip(&format!("the host keeps no attributes: {error}")),
    }
    done(&["edit", "setfattr", "-x", "user.note", image, "/top"]);
    let (code, _, errors) = ordo(&["edit", "setfattr", "-x", "user.note", image, "/top"]);
    assert!(code == 1 && errors.contains("/top: no data available"), "{errors}");
    done(&["fsck", "-f", "-q", image]);
}

/// Errors name the image and the path, and leave the image as it was.
#[test]
fn errors_name_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, "ufs2");
    let image = text(&path);
    let before = done(&["ls", "-R", image]);
    let calls: [(&[&str], &str); 9] = [
        (&["rm", image, "/sub"], "/sub: is a directory; -r removes it"),
        (&["rm", image, "/none"], "/none: no such file"),
        (&["mkdir", image, "/sub"], "/sub: file exists"),
        (&["mkdir", image, "/x/y"], "no such file"),
        (&["mv", image, "/sub", "/sub/deep"], "/sub: invalid argument"),
        (&["mv", image, "/top", "/sub/file", "/none"], "/none: not a directory"),
        (&["ln", image, "/sub", "/other"], "/other: operation not permitted"),
        (&["chmod", image, "600", "/none"], "/none: no such file"),
        (&["touch", image, "/none/file"], "no such file"),
    ];
    for (call, said) in calls {
        let (code, _, errors) = ordo(&[&["edit"], call].concat());
        assert!(code == 1 && errors.contains(said), "{call:?}: {errors}");
    }
    for call in [["chmod", image, "u+q", "/top"], ["chown", image, "me", "/top"]] {
        assert_eq!(ordo(&[&["edit"], &call[..]].concat()).0, 2, "{call:?}");
    }
    assert_eq!(done(&["ls", "-R", image]), before);
    done(&["fsck", "-f", "-q", image]);
}

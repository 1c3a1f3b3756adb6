//! Names that do something to a terminal, or forge a row, are shown escaped, by every command; and
//! every name can be given back.
//!
//! Fault model: an image of a stranger. Would catch a command that prints a name as it is.

mod calling;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use assert_cmd::Command;
use calling::{done, ordo, text};

const NAMES: [&[u8]; 4] =
    [b"a\x1b[2Jb", b"row\n-rwsr-xr-x 1 0 0 forged", b"\xff\xfe", "right\u{202e}left".as_bytes()];

/// The image, checked for names of these kinds in files, directories, links and targets.
#[test]
fn hostile_names_are_escaped_and_can_be_given_back() {
    let temp = tempfile::tempdir().unwrap();
    let (from, image, out) =
        (temp.path().join("from"), temp.path().join("a.img"), temp.path().join("out"));
    fs::create_dir(&from).unwrap();
    for name in NAMES {
        let dir = from.join(OsStr::from_bytes(&[b"dir ", name].concat()));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
        std::os::unix::fs::symlink(OsStr::from_bytes(name), dir.join("link")).unwrap();
    }
    done(&["import", text(&from), text(&image)]);
    let image = text(&image);
    for args in
        [&["ls", "-lR", image][..], &["ls", "-R", "--json", image], &["ls", image, "/none\x1b"]]
    {
        let (_, out, errors) = ordo(args);
        for said in [out, errors] {
            let is_bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!said.contains(is_bad), "{args:?}: {said:?}");
            assert!(!said.lines().any(|line| line.starts_with("-rwsr")), "{said}");
        }
    }
    let listed = done(&["ls", "-lR", image]);
    for shown in [r"a\033[2Jb", r"row\n-rwsr-xr-x", r"\377\376", r"right\342\200\256left"] {
        assert_eq!(listed.matches(shown).count(), 5, "{shown}: {listed}");
    }
    let all: serde_json::Value =
        serde_json::from_str(&done(&["ls", "-R", "--json", image])).unwrap();
    let hex: Vec<_> =
        all.as_array().unwrap().iter().filter_map(|l| l["path_hex"].as_str()).collect();
    assert!(hex.iter().any(|path| path.ends_with("2ffffe")), "{hex:?}");
    for name in NAMES {
        let path = [b"/dir ", name, b"/", name].concat();
        let mut cat = Command::cargo_bin("ordo").unwrap();
        let got = cat.args(["cat", image]).arg(OsStr::from_bytes(&path)).output().unwrap();
        assert_eq!(got.stdout, name);
    }
    done(&["export", image, text(&out)]);
    assert!(out.join(OsStr::from_bytes(b"dir \xff\xfe/\xff\xfe")).exists());
}

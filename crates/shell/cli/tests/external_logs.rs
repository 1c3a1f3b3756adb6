//! A file system and its journal on two devices, as a user records them.
//!
//! The kernel's ext4 and XFS are used through two pseudo-devices, with names that change and inodes
//! that are used again. Would catch a journal that is read without its file system: data and copies
//! without files, or with the files that had the inodes before. debugfs judges the owners. Skipped
//! with a message where there is no pseudo-device.

#[allow(dead_code)]
mod judging;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use judging::{MB, data, json, ordo, owners, records, tool};

/// Writes, renames, removes and writes again, with a sync in between, so that blocks and inodes are
/// used again.
fn script(m: &str, mount: &str) -> String {
    format!(
        "set -e; D=$ORDO_DEVICE; L=$ORDO_DEVICE_2; mkdir -p {m}; {mount}; cd {m}; B='head -c 60000 /dev/urandom'; \
         mkdir -p a b; for i in 1 2 3 4; do $B > a/f$i; done; sync; \
         for i in 1 2 3; do rm a/f$i; $B > b/g$i; done; mv a/f4 b/moved; sync; \
         for i in 1 2; do $B > b/h$i; done; for i in 1 2; do echo more >> b/g$i; sync b/g$i; done; cd /; umount {m}"
    )
}

/// The bytes in the journal of each file with a path.
fn journal(json: &Value) -> BTreeMap<String, u64> {
    let files = json["files"].as_array().unwrap().iter();
    let each = files.filter_map(|file| {
        Some((file["path"].as_str()?.to_owned(), file["journal"]["bytes"].as_u64()?))
    });
    each.filter(|(_, bytes)| *bytes > 0).collect()
}

fn make(folder: &Path, name: &str, mb: u64) -> String {
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    File::create_new(&path).unwrap().set_len(mb * MB).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Records the script, and returns the analyses of the file system and of its log.
fn record(folder: &Path, fs: &str, log: &str, mount: &str) -> (Value, Value) {
    let (mnt, out) = (folder.join("mnt"), folder.join("both"));
    let _ = fs::remove_dir_all(&out);
    let script = script(mnt.to_str().unwrap(), &mount.replace("MNT", mnt.to_str().unwrap()));
    let out = out.to_str().unwrap();
    let attach = ["trace", "attach", fs, log, "--json", "-o", out, "--", "sh", "-c", &script];
    let (code, text, errors) = ordo(&attach);
    assert_eq!(code, Some(0), "{errors}");
    let both = json(&text);
    (both["fs.img"].clone(), both["log.img"].clone())
}

#[test]
fn an_external_journal_of_ext4_names_files() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for block in ["1024", "4096"] {
        let (image, log) = (make(folder.path(), "fs.img", 64), make(folder.path(), "log.img", 16));
        // A file system is made with the journal's device; images have none, so loop devices stand
        // for them.
        let [fs_loop, log_loop] =
            [&image, &log].map(|path| tool("losetup", &["-f", "--show", path]).trim().to_owned());
        tool("mke2fs", &["-q", "-F", "-b", block, "-O", "journal_dev", &log_loop]);
        let journal_at = format!("device={log_loop}");
        tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", block, "-J", &journal_at, &fs_loop]);
        tool("losetup", &["-d", &fs_loop, &log_loop]);
        let mount = "mount -o journal_path=$L $D MNT";
        let (on_fs, on_log) = record(folder.path(), &image, &log, mount);
        assert_eq!(on_log["system"], "ext journal");
        let all = data(&on_fs);
        assert_eq!(on_fs["data_bytes"], on_fs["data_bytes_with_path"], "{block}: {all:?}");
        for path in ["/a/f1", "/b/g1", "/b/moved", "/b/h2"] {
            assert!(all.contains_key(path), "{path}: {all:?}");
        }
        let logged = journal(&on_log);
        assert!(logged.keys().any(|path| path.starts_with("/b/")), "{block}: {logged:?}");
        assert_eq!(on_log["writes"]["unknown"], Value::Null);
        assert!(on_log["transactions"]["committed"].as_u64() >= Some(4), "{on_log}");
        judge(folder.path(), &image, block.parse().unwrap());
    }
}

/// debugfs knows the owner of each block that is in use at the end; the row of its last write has
/// the same.
fn judge(folder: &Path, image: &str, block: u64) {
    let dir = folder.join("both/fs.img");
    let rows = parquet_rows(&dir);
    let last: BTreeMap<u64, (Option<String>, Option<String>)> =
        rows.into_iter().map(|(offset, path, known)| (offset / block, (path, known))).collect();
    let blocks: Vec<u64> = last.keys().copied().collect();
    let judged = owners(Path::new(image), &blocks);
    assert!(judged.len() > 80, "{} blocks", judged.len());
    for (at, path) in &judged {
        assert_eq!(last[at].0.as_ref(), Some(path), "block {at}: {:?}", last[at]);
    }
}

/// The offset, the path and the way in which it is known of each block of file data that was
/// written, in order.
fn parquet_rows(dir: &Path) -> Vec<(u64, Option<String>, Option<String>)> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    let rows = |name: &str| -> Vec<Row> {
        let reader = SerializedFileReader::new(File::open(dir.join(name)).unwrap()).unwrap();
        reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
    };
    let field = |row: &Row, name: &str| {
        row.get_column_iter().find(|(column, _)| *column == name).map(|(_, f)| f.clone()).unwrap()
    };
    let text = |row: &Row, name: &str| match field(row, name) {
        Field::Str(text) => Some(text),
        _ => None,
    };
    let int = |row: &Row, name: &str| match field(row, name) {
        Field::Long(n) => u64::try_from(n).unwrap(),
        other => panic!("{name}: {other:?}"),
    };
    let writes: Vec<bool> = rows("requests.parquet")
        .iter()
        .map(|row| text(row, "op").as_deref() == Some("write"))
        .collect();
    let blocks = rows("blocks.parquet");
    let of_data = blocks.iter().filter(|row| {
        writes[int(row, "request") as usize]
            && text(row, "final_kind").as_deref() == Some("file_data")
    });
    of_data.map(|row| (int(row, "device_offset"), text(row, "path"), text(row, "owner"))).collect()
}

#[test]
fn an_external_log_of_xfs_names_files() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, log) = (make(folder.path(), "fs.img", 320), make(folder.path(), "log.img", 80));
    tool("mkfs.xfs", &["-q", "-f", "-l", &format!("logdev={log},size=64m"), &image]);
    let (on_fs, on_log) = record(folder.path(), &image, &log, "mount -o logdev=$L $D MNT");
    assert_eq!(on_log["system"], "xfs log");
    let all = data(&on_fs);
    assert_eq!(on_fs["data_bytes"], on_fs["data_bytes_with_path"], "{all:?}");
    for path in ["/a/f1", "/b/g1", "/b/moved", "/b/h2"] {
        assert!(all.contains_key(path), "{path}: {all:?}");
    }
    let logged = journal(&on_log);
    assert!(logged.keys().any(|path| path.starts_with("/b/")), "{logged:?}");
    assert_eq!(on_log["writes"]["unknown"], Value::Null);
}

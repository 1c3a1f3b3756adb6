//! Running the command and debugfs, which judges it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

pub const ORDO: &str = env!("CARGO_BIN_EXE_ordo");
pub const MB: u64 = 1 << 20;

/// Runs the command, and returns its exit code, output and errors.
pub fn ordo(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(ORDO).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Runs a tool, which must succeed.
pub fn tool(program: &str, args: &[&str]) -> String {
    let out =
        Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Whether recordings work here. Prints the reason if not.
pub fn records() -> bool {
    let (code, _, errors) = ordo(&["trace", "run", "--fs", "ext4", "--size", "16m", "--", "true"]);
    if code != Some(0) {
        ordo_testkit::skip(&format!("no recording here: {errors}"));
    }
    code == Some(0)
}

/// The bytes of file data written, by path.
pub fn data(json: &Value) -> BTreeMap<String, u64> {
    let files = json["files"].as_array().unwrap().iter();
    let each = files.map(|file| {
        let path = file["path"].as_str().unwrap_or("?").to_owned();
        (path, file["data"]["bytes"].as_u64().unwrap())
    });
    each.filter(|(_, bytes)| *bytes > 0).collect()
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The paths of files on an image of a partition, by block number: as debugfs knows them.
pub fn owners(image: &Path, blocks: &[u64]) -> BTreeMap<u64, String> {
    let image = image.to_str().unwrap();
    let all = |command: String| tool("debugfs", &["-R", &command, image]);
    let list: Vec<String> = blocks.iter().map(u64::to_string).collect();
    let inodes: BTreeMap<u64, u64> = all(format!("icheck {}", list.join(" ")))
        .lines()
        .skip(1)
        .filter_map(|line| {
            let (block, ino) = line.split_once('\t')?;
            Some((block.parse().ok()?, ino.parse().ok()?))
        })
        .collect();
    let list: Vec<String> = inodes.values().map(u64::to_string).collect();
    let names: BTreeMap<u64, String> = all(format!("ncheck {}", list.join(" ")))
        .lines()
        .skip(1)
        .filter_map(|line| {
            let (ino, path) = line.split_once('\t')?;
            Some((ino.parse().ok()?, path.to_owned()))
        })
        .collect();
    let named = inodes.iter().filter_map(|(block, ino)| Some((*block, names.get(ino)?.clone())));
    named.collect()
}

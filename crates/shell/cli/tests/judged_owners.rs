//! The owners of blocks of file data, as the kernel's own tools know them, over options of mkfs.
//!
//! A small workload makes, overwrites, renames and removes files, so that blocks and inodes are
//! used again. At its end xfs_db and debugfs are asked for the file of a sample of the blocks.
//! Would catch a path that is wrong as a fact, and groups, inodes or blocks of another size that
//! are read as if they were usual. Skipped with a message where there is no pseudo-device.

#[allow(dead_code)]
mod judging;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use ordo_annotate::input::{WhichPart, open};
use ordo_annotate::owners::of_trace;
use ordo_trace::RequestOp;
use ordo_watcher::Class;

use judging::{MB, ordo, owners, records, tool};

/// The most blocks for which a tool is asked.
const SAMPLE: usize = 150;

/// Makes a file system and records the workload on it. Returns the file of each block of data, by
/// its offset in bytes.
fn recorded(folder: &Path, mkfs: &[&str], mb: u64) -> BTreeMap<u64, String> {
    let (image, mnt, out) = (folder.join("image"), folder.join("mnt"), folder.join("out"));
    let _ = (fs::remove_file(&image), fs::remove_dir_all(&out));
    fs::create_dir_all(&mnt).unwrap();
    File::create_new(&image).unwrap().set_len(mb * MB).unwrap();
    let (path, m) = (image.to_str().unwrap(), mnt.display());
    tool(mkfs[0], &[&mkfs[1..], &[path]].concat());
    let script = format!(
        "set -e; mount $ORDO_DEVICE {m}; cd {m}; B='head -c 70000 /dev/urandom'; mkdir -p a/b c; \
         for i in 1 2 3 4 5 6; do $B > a/f$i; $B > a/b/g$i; done; sync -f .; rm a/f1 a/f2 a/b/g1; \
         for i in 1 2 3; do $B > c/h$i; done; mv a/f3 c/moved; mv a/b a/deep; sync -f .; \
         head -c 20000 /dev/urandom | dd of=c/moved bs=20000 seek=1 conv=notrunc,fsync 2>/dev/null; rm a/deep/g2; cd /; umount {m}"
    );
    let out = out.to_str().unwrap();
    let (code, _, errors) = ordo(&["trace", "attach", path, "-o", out, "--", "sh", "-c", &script]);
    assert_eq!(code, Some(0), "{mkfs:?}: {errors}");
    let opened = open(&[out.into()], None, WhichPart::default()).unwrap();
    let rows = of_trace(&opened.trace, &opened.watch.unwrap());
    let writes = rows
        .iter()
        .filter(|row| opened.trace.requests()[row.request as usize].op == RequestOp::Write);
    let data = writes.filter(|row| row.final_kind == Class::FileData);
    data.map(|row| (row.offset, row.path.as_deref().unwrap_or("?").to_owned())).collect()
}

/// About [`SAMPLE`] blocks, evenly.
fn sample(all: &BTreeMap<u64, String>) -> Vec<(u64, &String)> {
    let step = all.len().div_ceil(SAMPLE).max(1);
    all.iter().step_by(step).map(|(offset, path)| (*offset, path)).collect()
}

/// The file of each sector that is a block's first, as xfs_db finds it; none of blocks that are not
/// of a file's data.
fn of_xfs_db(image: &Path, offsets: &[u64]) -> BTreeMap<u64, String> {
    let mut command = Command::new("xfs_db");
    command.args(["-r", "-c", "blockget -n"]);
    for offset in offsets {
        command.args(["-c", &format!("daddr {}", offset / 512), "-c", "blockuse -n"]);
    }
    let out = command.arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("block ")).collect();
    assert_eq!(lines.len(), offsets.len(), "{text}");
    let named = offsets.iter().zip(lines).filter_map(|(offset, line)| {
        // `block 25 (0/25) type data inode 132 a/f1`
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_data = words.get(4) == Some(&"data");
        is_data.then(|| Some((*offset, format!("/{}", words.get(7)?))))?
    });
    named.collect()
}

#[test]
fn xfs_db_finds_the_same_owners() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sets: [&[&str]; 5] = [
        &[],
        &["-b", "size=1k"],
        &["-i", "size=1024", "-d", "agcount=3"],
        &["-m", "rmapbt=0,reflink=0", "-i", "sparse=0"],
        &["-n", "size=16k", "-m", "inobtcount=0,bigtime=0"],
    ];
    for set in sets {
        let ours = recorded(folder.path(), &[&["mkfs.xfs", "-q", "-f"], set].concat(), 320);
        let sample = sample(&ours);
        let offsets: Vec<u64> = sample.iter().map(|(offset, _)| *offset).collect();
        let judged = of_xfs_db(&folder.path().join("image"), &offsets);
        assert!(judged.len() > 60, "{set:?}: {} of {}", judged.len(), offsets.len());
        for (offset, path) in sample {
            let judged = judged.get(&offset);
            assert!(
                judged.is_none_or(|judged| judged == path),
                "{set:?}, {offset}: {path}, {judged:?}"
            );
        }
    }
}

#[test]
fn debugfs_finds_the_same_owners() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sets: [(&[&str], u64); 6] = [
        (&["-t", "ext4", "-b", "4096"], 4096),
        (&["-t", "ext4", "-b", "1024", "-O", "inline_data"], 1024),
        (&["-t", "ext4", "-b", "4096", "-O", "fast_commit"], 4096),
        (&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"], 1024),
        (&["-t", "ext4", "-b", "4096", "-O", "bigalloc"], 4096),
        (&["-t", "ext3", "-b", "2048"], 2048),
    ];
    for (set, size) in sets {
        let ours = recorded(folder.path(), &[&["mke2fs", "-q", "-F"], set].concat(), 48);
        let sample = sample(&ours);
        let blocks: Vec<u64> = sample.iter().map(|(offset, _)| offset / size).collect();
        let judged = owners(&folder.path().join("image"), &blocks);
        assert!(judged.len() > 60, "{set:?}: {} of {}", judged.len(), blocks.len());
        for (offset, path) in sample {
            let judged = judged.get(&(offset / size));
            assert!(
                judged.is_none_or(|judged| judged == path),
                "{set:?}, {offset}: {path}, {judged:?}"
            );
        }
    }
}

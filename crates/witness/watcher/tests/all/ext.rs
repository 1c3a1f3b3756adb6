//! ext2, ext3 and ext4: a trace that a kernel made, images that mke2fs made, journals that debugfs
//! wrote.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::{all_is_known, damaged, logged, name_of, output, recorded, watched, write};
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

/// Pairs of a transaction and a block that was logged for it, as debugfs finds them in an image.
fn judged(image: &Path) -> Option<Vec<(u64, u64)>> {
    let text = output("debugfs", &["-R", "logdump -a", image.to_str()?])?;
    let mut sequence = 0;
    let mut pairs = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |word: &str| {
            let i = words.iter().position(|w| *w == word)?;
            words.get(i + 1)?.trim_end_matches(',').parse::<u64>().ok()
        };
        match after("sequence") {
            Some(n) => sequence = n,
            None if line.contains("logged at") => pairs.push((sequence, after("block").unwrap())),
            None => {}
        }
    }
    Some(pairs)
}

/// A kernel made an ext3, filled, overwrote and removed files. Every block must have a name that is
/// no guess, and every copy in the journal the transaction and the fixed location that debugfs
/// gives it. Catches a tag read at the wrong place, a lost transaction, and an inode that was seen
/// in the journal and not used.
#[test]
fn every_block_of_a_kernels_ext3_trace_is_named() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    assert_eq!(said.system, "ext3");
    all_is_known(&said, "ext3");
    // Request 94 is the last commit; after it the journal is emptied.
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, recorded.after(95)).unwrap();
    let Some(pairs) = judged(&image) else { return };
    assert_eq!(pairs.len(), 61);
    assert_eq!(logged(&said, 10), pairs);
    let commits: Vec<_> = said.transactions.iter().map(|t| (t.id, t.commit.is_some())).collect();
    assert_eq!(commits, (2..=15).map(|id| (id, true)).collect::<Vec<_>>());
    // Each logged block is later written at its fixed location, which checkpoints the newest copy's
    // transaction.
    let mut newest = std::collections::BTreeMap::new();
    newest.extend(pairs.iter().map(|(id, block)| (*block, *id)));
    for (block, id) in newest {
        // Block 49669 and after belong to an indirect block whose file was removed: revoked.
        let home = said.checkpoints.iter().rfind(|(_, b, _)| *b == block);
        assert_eq!(home.map(|(_, _, t)| *t), Some(id), "block {block}");
    }
    // In ordered mode the data is issued before the transaction's first block.
    let data = said.parts.iter().position(|(_, p)| p.class == Class::FileData).unwrap();
    let logged = said
        .parts
        .iter()
        .position(|(_, p)| matches!(p.what, BlockMeaning::Journal { transaction: Some(3), .. }));
    assert!(Some(data) < logged);
}

/// The description of requests in words.
#[test]
fn requests_are_described_in_words() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let line = |id| &said.lines.iter().find(|(i, _)| *i == id).unwrap().1;
    assert_eq!(line(2), "journal superblock");
    assert_eq!(line(5), "journal commit of transaction 2");
    assert_eq!(line(8), "block bitmap of group 6; inode bitmap of group 6; inodes 12289 to 12292");
    assert_eq!(line(11), "group descriptors, block 0");
    assert_eq!(line(38), "file data, nothing points to it yet");
    assert_eq!(line(43), "file data block 0 of inode 13");
    assert!(line(37).starts_with("single indirect block of inode 12; double indirect"));
    assert!(line(44).ends_with("journal data of transaction 6: inode block for byte 269312"));
}

/// A directory with files that need every kind of block.
fn fill(folder: &Path) {
    use std::io::{Seek, SeekFrom, Write};
    for i in 0..120 {
        let sub = folder.join(format!("d{}", i % 4));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(
            sub.join(format!("a-rather-long-name-of-a-file-{i}")),
            vec![i as u8; i * 97],
        )
        .unwrap();
    }
    // Holes: an extent each, so that the tree has inner nodes.
    let mut file = std::fs::File::create(folder.join("holes")).unwrap();
    for i in 0..700 {
        file.seek(SeekFrom::Start(i * 8192)).unwrap();
        file.write_all(&[1; 4096]).unwrap();
    }
    std::fs::write(folder.join("large"), vec![7; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), folder.join("long-link")).unwrap();
    std::os::unix::fs::symlink("short", folder.join("short-link")).unwrap();
}

/// Free blocks, as dumpe2fs lists them.
fn free(image: &str) -> Option<BTreeSet<u64>> {
    let text = output("dumpe2fs", &[image])?;
    let mut free = BTreeSet::new();
    // Before the groups there is a line with the number of all free blocks.
    let groups = text.lines().skip_while(|l| !l.starts_with("Group 0"));
    for line in groups.filter_map(|l| l.trim().strip_prefix("Free blocks: ")) {
        for range in line.split(", ").filter(|r| !r.is_empty()) {
            let mut ends = range.split('-').map(|n| n.parse::<u64>().unwrap());
            let first = ends.next().unwrap();
            free.extend(first..=ends.next().unwrap_or(first));
        }
    }
    Some(free)
}

/// Images of every shape that mke2fs makes. A block must have an owner exactly where mke2fs's own
/// bitmaps call it used. Catches a missed pointer, a fixed place computed wrongly, and a misread
/// feature.
#[test]
fn every_used_block_has_a_name_and_no_free_one() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    let image = folder.path().join("image");
    let path = image.to_str().unwrap();
    let shapes: [(&str, &str); 13] = [
        ("ext2", "-t ext2 -b 1024"),
        ("ext2", "-t ext2 -b 4096 -O ^sparse_super,^resize_inode -r 0 -I 128"),
        ("ext3", "-t ext3 -b 1024"),
        ("ext3", "-t ext3 -b 2048 -O sparse_super2"),
        ("ext4", "-t ext4 -b 1024"),
        ("ext4", "-t ext4 -b 4096 -O 64bit,metadata_csum"),
        ("ext4", "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
        ("ext4", "-t ext4 -b 1024 -O meta_bg,^resize_inode,64bit,^flex_bg"),
        ("ext4", "-t ext4 -b 1024 -G 4 -O mmp,quota,project"),
        ("ext4", "-t ext4 -b 1024 -O inline_data,orphan_file"),
        ("ext4", "-t ext4 -b 1024 -O fast_commit,ea_inode"),
        ("ext4", "-t ext4 -b 4096 -O bigalloc -C 16384"),
        ("ext4", "-t ext4 -b 1024 -O bigalloc -C 16384"),
    ];
    for (system, options) in shapes {
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(48 << 20).unwrap();
        let mut args: Vec<&str> = vec!["-q", "-F", "-d", tree.to_str().unwrap()];
        args.extend(options.split(' '));
        args.push(path);
        if ordo_testkit::judge("mke2fs", &args).is_none() {
            return;
        }
        let Some(free) = free(path) else { return };
        let bytes = std::fs::read(&image).unwrap();
        let watch = Watch::over(&&bytes[..]).unwrap();
        assert_eq!(watch.system(), system, "{options}");
        let size = 1024usize << u32::from_le_bytes(bytes[1048..1052].try_into().unwrap());
        let mut kinds = BTreeSet::new();
        for (block, data) in bytes.chunks_exact(size).enumerate() {
            let parts = name_of(&watch, (block * size) as u64, data);
            let [part] = &parts[..] else { panic!("{options}, block {block}: {parts:?}") };
            let owned = part.what != BlockMeaning::Unclaimed;
            // A read of a block without an owner is not one of file data.
            assert_eq!(owned, part.class != Class::FreeSpace, "{part:?}");
            let expected = !free.contains(&(block as u64));
            // A bigalloc cluster is in use as a whole.
            let cluster = options.contains("bigalloc") && !owned && expected;
            assert!(owned == expected || cluster, "{options}, block {block}: {part:?}");
            kinds.insert(part.class);
        }
        let extents = if system == "ext4" { Class::ExtentNode } else { Class::Indirect };
        for kind in [Class::Directory, Class::FileData, Class::Symlink, Class::InodeBlock, extents]
        {
            assert!(kinds.contains(&kind), "{options}: no {kind}");
        }
        assert_eq!(system == "ext2", !kinds.iter().any(|k| k.is_journal()), "{options}");
    }
}

/// The journal blocks that debugfs wrote, in the order in which a kernel would write them.
fn journal_writes(before: &[u8], after: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let blocks = before.chunks(1024).zip(after.chunks(1024)).enumerate();
    let changed = blocks.filter(|(_, (old, new))| old != new);
    changed.map(|(i, (_, new))| (i as u64 * 1024, new.to_vec())).collect()
}

/// Journals with and without 64-bit numbers and checksums, written by debugfs: transactions, copies
/// and revokes must be those that were asked for. Checksums must be right, and wrong after a bit
/// has flipped.
#[test]
fn journals_of_every_version_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let content = folder.path().join("content");
    let commands = folder.path().join("commands");
    // The journal's own magic number begins the third block: it must be escaped.
    let mut blocks = vec![0x55; 5 * 1024];
    blocks[2048..2052].copy_from_slice(&0xc03b_3998u32.to_be_bytes());
    std::fs::write(&content, &blocks).unwrap();
    let c = content.to_str().unwrap();
    for (features, open, checked) in [
        ("^64bit,^metadata_csum", "jo", false),
        ("64bit,^metadata_csum", "jo", false),
        ("^64bit,metadata_csum", "jo -c -v 2", true),
        ("64bit,metadata_csum", "jo -c -v 2", true),
        ("^64bit,metadata_csum", "jo -c -v 3", true),
        ("64bit,metadata_csum", "jo -c -v 3", true),
    ] {
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let path = image.to_str().unwrap();
        let made = ordo_testkit::judge(
            "mke2fs",
            &["-qF", "-t", "ext4", "-b", "1024", "-O", features, path],
        );
        if made.is_none() {
            return;
        }
        let before = std::fs::read(&image).unwrap();
        let text = format!("{open}\njw -b 5000-5003,6000 {c}\njw -r 5001 -b 6001 {c}\njc\n");
        std::fs::write(&commands, text).unwrap();
        Command::new("debugfs")
            .args(["-w", "-f", commands.to_str().unwrap(), path])
            .output()
            .unwrap();
        let after = std::fs::read(&image).unwrap();
        let writes = journal_writes(&before, &after);
        let run = |writes: &[(u64, Vec<u8>)]| {
            let watch = Watch::over(&&before[..]).unwrap();
            for (i, (offset, data)) in writes.iter().enumerate() {
                write(&watch, i as u64, *offset, data);
            }
            watch.transactions(<[_]>::to_vec)
        };
        // debugfs writes the superblocks before the journal, as a mount does.
        let all = run(&writes);
        let seen: Vec<_> =
            all.iter().map(|t| (t.id, t.copies, t.revoked, t.commit.is_some())).collect();
        assert_eq!(seen, [(1, 5, 0, true), (2, 1, 1, true)], "{features} {open}");
        assert!(all.iter().all(|t| t.bad_checksums == 0), "{features} {open}: {all:?}");
        // The same in another order: copies before their descriptor.
        let descriptor =
            writes.iter().position(|(_, b)| b[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]);
        let mut turned = writes.clone();
        turned[descriptor.unwrap()..][..6].reverse();
        let seen: Vec<_> = run(&turned).iter().map(|t| (t.id, t.copies)).collect();
        assert_eq!(seen, [(1, 5), (2, 1)], "{features} {open}, turned");
        if checked {
            let mut bad = writes.clone();
            bad[descriptor.unwrap() + 1].1[77] ^= 1;
            assert_eq!(run(&bad)[0].bad_checksums, 1, "{features} {open}: a copy");
            let mut bad = writes.clone();
            bad[descriptor.unwrap()].1[1000] ^= 1;
            assert_eq!(run(&bad)[0].bad_checksums, 1, "{features} {open}: a descriptor");
        }
    }
}

/// Another file system is made on the device: nothing that was learned of the old one may be used
/// for the new one.
#[test]
fn a_superblock_of_another_shape_ends_what_was_known() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    let watch = Watch::over(&&recorded.start[..]).unwrap();
    let mut superblock = recorded.start[1024..2048].to_vec();
    superblock[40] ^= 8;
    write(&watch, 0, 1024, &superblock);
    write(&watch, 1, 2048, &[0; 1024]);
    let stats = watch.finish();
    assert_eq!(stats.unknown[&ordo_watcher::kind::Reason::NotLearned], 2);
}

/// Flipped bits in all important places of the image and the writes: names or "unknown", never a
/// panic.
#[test]
fn changed_bytes_of_ext3_and_its_trace_never_panic() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    // Superblock and descriptors, inodes of the first group, the journal's first blocks, the root
    // directory.
    let interesting =
        [(1024, 2048), (260 << 10, 8 << 10), (786 << 10, 64 << 10), (772 << 10, 1024)];
    for seed in 0..60 {
        damaged(&recorded, seed, &interesting);
    }
}

//! The places of a file's blocks on the disk, as `filefrag` shows them.
//!
//! A file with a hole, and a second one whose blocks lie between, are written and synced. Every
//! block must lie in the image where `filefrag` says. Would catch places in another unit or of
//! another file, and a file whose blocks are moved or overwritten while the kernel is told the old
//! places.

mod mounting;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mounting::{Disk, all, can_mount, shell};

const BLOCK: usize = 32 << 10;

/// The extents that `filefrag` shows, each as its first byte in the file, its first byte on the
/// disk, and its length.
fn shown(file: &Path) -> Vec<(u64, u64, u64)> {
    let script = format!("filefrag -B -e -v {}", file.display());
    let text = shell(Path::new("/"), &script);
    let unit = text.split_once("blocks of ").and_then(|(_, rest)| rest.split(' ').next());
    let unit: u64 = unit.and_then(|unit| unit.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    let mut extents = Vec::new();
    for line in text.lines() {
        let numbers: Vec<u64> =
            line.split([':', '.', ' ']).filter_map(|word| word.parse().ok()).collect();
        // Its number, first and last block in the file, first and last block on the disk, length.
        if let [_, from, _, at, _, len, ..] = numbers[..]
            && line.contains("..")
        {
            extents.push((from * unit, at * unit, len * unit));
        }
    }
    extents
}

fn assert_in_place(disk: &Disk, file: &Path) {
    let image = File::open(disk.image()).unwrap();
    let contents = fs::read(file).unwrap();
    let mut found = 0;
    for (from, at, len) in shown(file) {
        let from = from as usize;
        let len = (len as usize).min(contents.len() - from);
        let mut bytes = vec![0; len];
        image.read_exact_at(&mut bytes, at).unwrap();
        assert!(bytes == contents[from..from + len], "{}: {from} at {at}", disk.ordering);
        found += len;
    }
    if disk.is_log() {
        // Its blocks need not lie where the kernel's do; those are shown as holes.
        return;
    }
    let data = contents.chunks(BLOCK).filter(|block| block.iter().any(|b| *b != 0));
    assert_eq!(found, data.map(<[u8]>::len).sum::<usize>(), "{}", disk.ordering);
}

#[test]
fn blocks_lie_where_filefrag_says() {
    if !can_mount() {
        return;
    }
    for ordering in all() {
        let disk = Disk::new(ordering, 64);
        disk.mount();
        let (first, other) = (disk.dir().join("first"), disk.dir().join("other"));
        let files = [&first, &other].map(|path| File::create_new(path).unwrap());
        for n in (0..40).filter(|n| !(10..20).contains(n)) {
            for (which, file) in files.iter().enumerate() {
                file.write_all_at(&[1 + n as u8 + 100 * which as u8; BLOCK], n * BLOCK as u64)
                    .unwrap();
                file.sync_all().unwrap();
            }
        }
        for file in [&first, &other] {
            assert_in_place(&disk, file);
        }
        // Other blocks, which the kernel must not look for in the old places.
        files[0].set_len(0).unwrap();
        files[1].write_all_at(&[250; 3 * BLOCK], 12 * BLOCK as u64).unwrap();
        files[0].write_all_at(&[251; 7 * BLOCK], 0).unwrap();
        files.iter().for_each(|file| file.sync_all().unwrap());
        for file in [&first, &other] {
            assert_in_place(&disk, file);
        }
        drop(files);
        disk.umount();
        disk.assert_clean();
    }
}

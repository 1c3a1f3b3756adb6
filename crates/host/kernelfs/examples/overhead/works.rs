//! The work that is measured.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// A piece of work in a mounted file system.
pub struct Work {
    pub name: &'static str,
    pub run: fn(&Path),
}

pub const ALL: &[Work] = &[
    Work { name: "sequential write: 1 GB, a megabyte at a time, then fsync", run: sequential },
    Work {
        name: "metadata storm: 48,000 files of 2,000 bytes, a third renamed, a third removed, fsync every 200",
        run: storm,
    },
];

const DATA: usize = 1 << 30;
const DIRECTORIES: usize = 240;
const FILES: usize = 200;

/// One file, a megabyte at a time, durable at the end.
fn sequential(dir: &Path) {
    let mut file = File::create(dir.join("file")).expect("there is space");
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..DATA >> 20 {
        file.write_all(&piece).expect("there is space");
    }
    file.sync_all().expect("a sound device");
}

/// Files made, written, renamed, removed; durable after each directory.
fn storm(dir: &Path) {
    for round in 0..DIRECTORIES {
        let sub = dir.join(format!("dir{round}"));
        std::fs::create_dir(&sub).expect("there is space");
        for i in 0..FILES {
            let path = sub.join(format!("file{i}"));
            File::create(&path).and_then(|mut f| f.write_all(&[7; 2000])).expect("there is space");
            if i % 3 == 0 {
                std::fs::rename(&path, sub.join(format!("other{i}"))).expect("it is there");
            } else if i % 3 == 1 {
                std::fs::remove_file(&path).expect("it is there");
            }
        }
        let last = OpenOptions::new().write(true).open(sub.join("file2")).expect("it is there");
        last.sync_all().expect("a sound device");
    }
}

//! Images of LFS that the command makes, fills, cleans and repairs, judged by NetBSD's own fsck_lfs
//! and dumplfs. `make test-netbsd` runs these tests.
//!
//! Fault model: an image that is consistent only for Ordo; `ordo info` that shows something else
//! than what NetBSD reads.

mod calling;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use calling::{done, ordo, text};
use ordo_testkit::{NetbsdFsck, netbsd_dumplfs};

const SHAPES: [&str; 5] = [
    "--size 100m",
    "--size 40m -b 4k -f 512 --segment-size 256k",
    "--size 80m -b 8k -f 8k --segment-size 512k --no-crc",
    "--size 200m -b 32k -f 4k --segment-size 2m",
    "--size 400m -b 64k -f 8k --segment-size 4m",
];

fn make(image: &Path, shape: &str) {
    let mut args = vec!["mkfs", text(image), "--fs", "lfs", "--force"];
    args.extend(shape.split(' '));
    done(&args);
}

/// A directory with files of many sizes, links, long names and many names.
fn tree(dir: &Path) {
    for deep in ["deep/er/and/deeper", "many", "empty"] {
        fs::create_dir_all(dir.join(deep)).unwrap();
    }
    for size in [0, 1, 511, 4096, 4097, 32_768, 100_000, 393_216, 400_000, 6_000_000] {
        fs::write(dir.join(format!("file-{size}")), vec![size as u8; size]).unwrap();
    }
    for i in 0..500 {
        fs::write(dir.join(format!("many/{i:04}-{}", "n".repeat(i % 200))), b"x").unwrap();
    }
    for len in [5, 59, 119, 120, 900] {
        symlink("t".repeat(len), dir.join(format!("link-{len}"))).unwrap();
    }
    fs::hard_link(dir.join("file-4097"), dir.join("deep/er/twin")).unwrap();
}

/// Neither program finds anything, and NetBSD's dumplfs shows what `ordo info` shows.
fn assert_whole(fsck: &NetbsdFsck, image: &Path, what: &str) {
    let said = fsck.look_at(image);
    assert!(said.is_content(), "{what}: {}", said.text);
    assert!(done(&["fsck", text(image)]).contains("consistent"), "{what}");
    let Some(dumped) = netbsd_dumplfs(image) else { return };
    let info = done(&["info", text(image)]);
    let words: Vec<&str> = info.split_whitespace().collect();
    let shown: Vec<_> = words
        .windows(2)
        .filter_map(|pair| Some((pair[0], pair[1].parse::<i64>().ok()?)))
        .filter_map(|(name, ours)| Some((name, ours, *dumped.superblock.get(name)?)))
        .collect();
    for (name, ours, theirs) in &shown {
        assert_eq!(ours, theirs, "{what}: {name}:\n{info}\n{}", dumped.text);
    }
    for name in ["nseg", "nclean", "dsize", "bfree", "avail", "dmeta", "nfiles", "serial"] {
        assert!(shown.iter().any(|(shown, ..)| *shown == name), "{what}: {name} is not shown");
    }
    assert_segments(image, &dumped.text, what);
}

/// The flags and counts of every segment.
fn assert_segments(image: &Path, dumped: &str, what: &str) {
    let info: serde_json::Value =
        serde_json::from_str(&done(&["info", text(image), "--json", "--groups"])).unwrap();
    let lines = dumped.lines().skip_while(|line| !line.starts_with("segnum")).skip(1);
    let theirs: Vec<Vec<&str>> = lines
        .take_while(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.split('\t').take(5).map(str::trim).collect())
        .collect();
    let ours = info["per_segment"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        let flags = ours["flags"].as_str().unwrap();
        let flag = |letter| flags.contains(letter);
        let letters = [
            if flag('A') { "A" } else { "" },
            if flag('D') { "D" } else { "C" },
            if flag('S') { "S" } else { "" },
        ];
        assert_eq!(letters.concat(), theirs[1].replace(' ', ""), "{what}: {ours}");
        for (field, column) in [("segment", 0), ("live_bytes", 2), ("inode_blocks", 3)] {
            assert_eq!(ours[field].to_string(), theirs[column], "{what}: {ours}");
        }
        assert_eq!(ours["summaries"].to_string(), theirs[4], "{what}: {ours}");
    }
}

#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_what_the_command_makes_fills_and_cleans() {
    let (fsck, temp) = (NetbsdFsck::new(), tempfile::tempdir().unwrap());
    let (dir, image) = (temp.path().join("in"), temp.path().join("image"));
    tree(&dir);
    for shape in SHAPES {
        make(&image, shape);
        assert_whole(&fsck, &image, shape);
        done(&["import", "-q", text(&dir), text(&image), "--into", "/a/b"]);
        assert_whole(&fsck, &image, &format!("{shape}, filled"));
        for _ in 0..3 {
            let inside = format!("{}:/again", text(&image));
            done(&["cp", "-q", text(&dir.join("file-6000000")), &inside]);
        }
        assert_whole(&fsck, &image, &format!("{shape}, written again"));
        done(&["lfs", "clean", text(&image), "--below", "99"]);
        assert_whole(&fsck, &image, &format!("{shape}, cleaned"));
        fs::remove_file(&image).unwrap();
    }
}

/// The cut image of NetBSD's, rolled forward by the command, and a damaged image, repaired by it.
#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_what_the_command_repairs() {
    let (fsck, temp) = (NetbsdFsck::new(), tempfile::tempdir().unwrap());
    let image = temp.path().join("image");
    if let Some(bytes) = ordo_testkit::real_input("images/netbsd-lfs/cut64-8k.img") {
        fs::write(&image, bytes).unwrap();
        assert!(done(&["fsck", "-y", text(&image)]).contains("12 partial segments rolled forward"));
        assert_whole(&fsck, &image, "rolled forward");
        fs::remove_file(&image).unwrap();
    }
    make(&image, SHAPES[0]);
    let mut bytes = fs::read(&image).unwrap();
    bytes[8192 + 200] ^= 1;
    fs::write(&image, bytes).unwrap();
    assert!(!fsck.look_at(&image).is_content());
    assert_eq!(ordo(&["fsck", "-y", text(&image)]).0, 1);
    assert_whole(&fsck, &image, "repaired");
}

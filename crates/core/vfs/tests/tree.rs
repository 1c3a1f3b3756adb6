//! Copying, comparing and removing trees between two models.
//!
//! Fault model: a copy that loses something (a hole, a link, a nanosecond), or a comparison that
//! overlooks it. The test damages each attribute in turn, and the comparison must name it.

use std::cell::Cell;

use ordo_runtime::Executor;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{self, CompareOptions, CopyOptions, WalkLimits};
use ordo_vfs::{
    Errno, FileSystem, FileType, FsResult, Ino, NewNode, Seek, SetAttr, SetTime, Timestamp,
    XattrMode, path,
};

fn model() -> ModelFs {
    ModelFs::new(ModelConfig::default(), || Timestamp { seconds: 1_000, nanos: 5 })
}

async fn sample(fs: &ModelFs) {
    let root = fs.root();
    let deep = path::make_directories(fs, b"/a/b/c", 0o751).await.unwrap().ino;
    let f = fs.create(deep, b"file", &NewNode::file(0o4755)).await.unwrap().ino;
    fs.write(f, 0, &[3; 70_000]).await.unwrap();
    fs.setxattr(f, b"user.note", b"value", XattrMode::Set).await.unwrap();
    fs.link(f, root, b"same").await.unwrap();
    let hole = fs.create(deep, b"hole", &NewNode::file(0o600)).await.unwrap().ino;
    fs.write(hole, 1 << 20, b"end").await.unwrap();
    fs.create(root, b"link", &NewNode::symlink(b"a/../a/b")).await.unwrap();
    let fifo = NewNode { file_type: FileType::Fifo, uid: 5, gid: 6, ..NewNode::file(0o622) };
    fs.create(root, b"fifo", &fifo).await.unwrap();
    let old = SetTime::To(Timestamp { seconds: -77, nanos: 123_456_789 });
    let times = SetAttr { mtime: Some(old), atime: Some(old), ..SetAttr::default() };
    fs.setattr(deep, &times).await.unwrap();
    fs.setattr(f, &times).await.unwrap();
}

async fn differences(a: &ModelFs, b: &ModelFs) -> Vec<String> {
    let options = CompareOptions { atimes: true, ..CompareOptions::default() };
    let found = tree::compare((a, a.root()), (b, b.root()), &options, &mut |_| {}).await.unwrap();
    found.differences.iter().map(ToString::to_string).collect()
}

#[test]
fn a_copy_is_the_same_in_every_byte_and_attribute() {
    let (a, b) = (model(), model());
    Executor::simulated(1)
        .block_on(async {
            sample(&a).await;
            let mut calls = 0;
            let options = CopyOptions::default();
            let copied = tree::copy(&a, a.root(), &b, b.root(), &options, &mut |_| calls += 1)
                .await
                .unwrap();
            assert_eq!(differences(&a, &b).await, [] as [String; 0]);
            assert_eq!((copied.entries, copied.directories, copied.hard_links), (8, 3, 1));
            assert!(copied.skipped.is_empty() && calls >= 8);
            // The hole stayed a hole: only the last page was written.
            assert_eq!(copied.bytes, 70_000 + (1 << 20) + 3);
            assert_eq!(copied.bytes_written, 70_000 + 3);
            let hole = path::lookup(&b, b"/a/b/c/hole").await.unwrap();
            assert!(hole.blocks * 512 < hole.size);
            let same = path::lookup(&b, b"same").await.unwrap();
            assert_eq!(same.ino, path::lookup(&b, b"link/c/file").await.unwrap().ino);
        })
        .unwrap();
}

#[test]
fn every_kind_of_damage_is_found_and_named() {
    let set = |s: SetAttr| {
        move |fs: &ModelFs, ino: Ino| {
            Executor::simulated(1).block_on(fs.setattr(ino, &s)).unwrap().unwrap();
        }
    };
    let tick = Some(SetTime::To(Timestamp { seconds: -77, nanos: 123_456_788 }));
    let keep = Some(SetTime::To(Timestamp { seconds: -77, nanos: 123_456_789 }));
    type Damage = Box<dyn Fn(&ModelFs, Ino)>;
    let cases: Vec<(&str, Damage)> = vec![
        ("mode", Box::new(set(SetAttr { permissions: Some(0o755), ..SetAttr::default() }))),
        ("owner", Box::new(set(SetAttr { gid: Some(9), ..SetAttr::default() }))),
        ("last change", Box::new(set(SetAttr { mtime: tick, ..SetAttr::default() }))),
        ("last access", Box::new(set(SetAttr { atime: tick, ..SetAttr::default() }))),
        ("size", Box::new(set(SetAttr { size: Some(69_999), mtime: keep, ..SetAttr::default() }))),
        (
            "contents from byte 66000",
            Box::new(move |fs, ino| {
                Executor::simulated(1).block_on(fs.write(ino, 66_000, &[4])).unwrap().unwrap();
                set(SetAttr { mtime: keep, ..SetAttr::default() })(fs, ino);
            }),
        ),
        (
            "extended attribute user.note",
            Box::new(|fs, ino| {
                Executor::simulated(1)
                    .block_on(fs.removexattr(ino, b"user.note"))
                    .unwrap()
                    .unwrap();
            }),
        ),
    ];
    for (what, damage) in cases {
        let (a, b) = (model(), model());
        Executor::simulated(1)
            .block_on(async {
                sample(&a).await;
                sample(&b).await
            })
            .unwrap();
        let lookup = path::lookup(&b, b"/a/b/c/file");
        let ino = Executor::simulated(1).block_on(lookup).unwrap().unwrap().ino;
        damage(&b, ino);
        let found = Executor::simulated(1).block_on(differences(&a, &b)).unwrap();
        assert!(found.iter().all(|d| d.contains(what)) || what == "size", "{what}: {found:?}");
        assert!(found.iter().any(|d| d.contains(what)), "{what}: {found:?}");
        assert!(found.iter().any(|d| d.starts_with("/a/b/c/file: ")), "{what}: {found:?}");
    }
}

#[test]
fn missing_and_extra_names_and_split_links_are_found() {
    let (a, b) = (model(), model());
    Executor::simulated(1)
        .block_on(async {
            sample(&a).await;
            sample(&b).await;
            b.unlink(b.root(), b"fifo").await.unwrap();
            b.create(b.root(), b"more", &NewNode::file(0)).await.unwrap();
            b.unlink(b.root(), b"same").await.unwrap();
            let copy = b.create(b.root(), b"same", &NewNode::file(0o4755)).await.unwrap().ino;
            b.write(copy, 0, &[3; 70_000]).await.unwrap();
            let found = differences(&a, &b).await.join("\n");
            assert!(found.contains("/fifo: only in the first"), "{found}");
            assert!(found.contains("/more: only in the second"), "{found}");
            assert!(found.contains("a copy in the second"), "{found}");
        })
        .unwrap();
}

#[test]
fn a_tree_is_removed_from_its_leaves() {
    let fs = model();
    Executor::simulated(1)
        .block_on(async {
            sample(&fs).await;
            let totals = tree::measure(&fs, fs.root(), WalkLimits::default()).await.unwrap();
            assert_eq!((totals.entries, totals.directories), (8, 3));
            assert_eq!(tree::remove(&fs, fs.root(), b"a", WalkLimits::default()).await.unwrap(), 5);
            assert_eq!(
                tree::remove_below(&fs, fs.root(), WalkLimits::default(), &mut || {}).await,
                Ok(3)
            );
            assert_eq!(fs.inode_count(), 1);
        })
        .unwrap();
}

#[test]
fn a_walk_stops_at_its_limits() {
    let fs = model();
    Executor::simulated(1)
        .block_on(async {
            sample(&fs).await;
            let few = WalkLimits { entries: 5, ..WalkLimits::default() };
            let err = tree::measure(&fs, fs.root(), few).await.unwrap_err();
            assert_eq!(err.errno, Errno::Corrupt);
            let flat = WalkLimits { depth: 2, ..WalkLimits::default() };
            let err = tree::measure(&fs, fs.root(), flat).await.unwrap_err();
            assert!(err.to_string().contains("a/b is nested too deep"), "{err}");
        })
        .unwrap();
}

#[test]
fn paths_lead_through_links_and_stop_at_loops() {
    let fs = model();
    Executor::simulated(1)
        .block_on(async {
            sample(&fs).await;
            let root = fs.root();
            fs.create(root, b"loop", &NewNode::symlink(b"/loop")).await.unwrap();
            assert_eq!(path::lookup(&fs, b"loop").await.unwrap_err().errno, Errno::Loop);
            let link = path::lookup_link(&fs, b"/link").await.unwrap();
            assert_eq!(link.file_type, FileType::Symlink);
            let b = path::lookup(&fs, b"/a//b/.").await.unwrap().ino;
            assert_eq!(path::lookup(&fs, b"/link/").await.unwrap().ino, b);
            assert_eq!(path::parent(&fs, b"/link/new/").await.unwrap(), (b, &b"new"[..]));
            assert_eq!(path::parent(&fs, b"/").await.unwrap_err().errno, Errno::Invalid);
            let through = path::lookup(&fs, b"/fifo/x").await.unwrap_err();
            assert_eq!(through.to_string(), "not a directory: /fifo/x");
        })
        .unwrap();
    assert_eq!(path::normalise(b"a/./b//../c/../../../d"), b"/d");
    assert_eq!(path::normalise(b"/.."), b"/");
}

/// The size of a sparse file, and where it has data.
const SIZE: u64 = 549 << 30;
const PIECES: [std::ops::Range<u64>; 2] = [0..4096, 300 << 30..(300 << 30) + 102_400];

/// A file system whose reads are counted, and whose files have data in two places only.
struct CountedReads(ModelFs, Cell<u64>);

impl FileSystem for CountedReads {
    ordo_vfs::delegate! { this => this.0; root, lookup, open, close, getattr, setattr, create, tmpfile, link, unlink, rmdir,
    rename, readlink, write, allocate, punch_hole, extents, readdir, statfs, fsync, fdatasync, sync, getxattr, setxattr,
    listxattr, removexattr }

    async fn seek(&self, _: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let next = PIECES.into_iter().find(|piece| piece.end > offset);
        match (next, what) {
            (Some(piece), Seek::Data) => Ok(offset.max(piece.start)),
            (Some(piece), Seek::Hole) if piece.contains(&offset) => Ok(piece.end),
            (_, Seek::Hole) if offset < SIZE => Ok(offset),
            _ => Err(Errno::NoAddress.into()),
        }
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.1.set(self.1.get() + 1);
        assert!(self.1.get() < 100, "holes are read byte by byte");
        self.0.read(ino, offset, buf).await
    }
}

/// A file of 549 GB with two pieces of data is copied by a handful of reads, and its copy has its
/// holes, also the one at its end. Would catch a copy that reads holes, which does not end for a
/// disk image.
#[test]
fn a_sparse_file_is_copied_by_its_data_alone() {
    let (a, b) = (CountedReads(model(), Cell::new(0)), model());
    Executor::simulated(1)
        .block_on(async {
            let file = a.create(a.root(), b"disk", &NewNode::file(0o600)).await.unwrap().ino;
            a.write(file, PIECES[1].start, &[7; 100_000]).await.unwrap();
            a.write(file, 0, b"head").await.unwrap();
            let size = SetAttr { size: Some(SIZE), ..SetAttr::default() };
            a.setattr(file, &size).await.unwrap();
            let options = CopyOptions::default();
            let copied = tree::copy(&a, a.root(), &b, b.root(), &options, &mut |_| {}).await;
            let copied = copied.unwrap();
            assert_eq!(copied.bytes, SIZE);
            assert!(copied.bytes_written < 300_000, "{copied:?}");
            let copy = path::lookup(&b, b"/disk").await.unwrap();
            assert!(copy.size == SIZE && copy.blocks * 512 < 300_000, "{copy:?}");
            let mut bytes = [0; 4];
            b.read(copy.ino, (300 << 30) + 99_998, &mut bytes).await.unwrap();
            assert_eq!(bytes, [7, 7, 0, 0]);
        })
        .unwrap();
}

/// An attribute that the target has no room for does not end a copy: everything else comes over,
/// and the loss is listed with its path, name and reason. Would catch a copy that ends with "no
/// space left", or that says nothing.
#[test]
fn an_attribute_that_does_not_fit_is_listed_and_the_copy_goes_on() {
    let a = model();
    let small = ModelConfig { xattr_area_max: 100, ..ModelConfig::default() };
    let b = ModelFs::new(small, || Timestamp { seconds: 1, nanos: 0 });
    Executor::simulated(1)
        .block_on(async {
            for name in [b"1", b"2"] {
                let file = a.create(a.root(), name, &NewNode::file(0o600)).await.unwrap().ino;
                a.write(file, 0, name).await.unwrap();
                a.setxattr(file, b"user.small", b"x", XattrMode::Set).await.unwrap();
            }
            let first = path::lookup(&a, b"/1").await.unwrap().ino;
            a.setxattr(first, b"user.large", &[1; 500], XattrMode::Set).await.unwrap();
            let options = CopyOptions::default();
            let copied = tree::copy(&a, a.root(), &b, b.root(), &options, &mut |_| {}).await;
            let copied = copied.unwrap();
            assert_eq!((copied.entries, copied.lost_attribute_count), (2, 1));
            let (lost, why) = &copied.lost_attributes[0];
            assert_eq!((&*lost.path, &*lost.name), (&b"1"[..], &b"user.large"[..]));
            assert_eq!(why.errno, Errno::NoSpace);
            for name in [&b"/1"[..], b"/2"] {
                let copy = path::lookup(&b, name).await.unwrap().ino;
                assert_eq!(b.getxattr(copy, b"user.small").await.unwrap(), b"x");
            }
        })
        .unwrap();
}

//! The rules of the reference model, each stated once by an example.
//!
//! Fault model: a wrong rule here would be demanded of every file system. The random comparison
//! with a kernel's own file system is the second witness.

use std::cell::Cell;
use std::rc::Rc;

use ordo_runtime::Executor;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{
    Attr, Cookie, Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr,
    SetTime, Timestamp, XattrMode, flags,
};

/// A model whose clock shows the number of the last operation.
fn model(config: ModelConfig) -> (ModelFs, Rc<Cell<i64>>) {
    let now = Rc::new(Cell::new(0));
    let clock = now.clone();
    (ModelFs::new(config, move || Timestamp { seconds: clock.get(), nanos: 0 }), now)
}

fn run<T>(test: impl AsyncFnOnce(ModelFs, Rc<Cell<i64>>) -> T) -> T {
    let (fs, now) = model(ModelConfig::default());
    Executor::simulated(1).block_on(test(fs, now)).unwrap()
}

fn errno<T: std::fmt::Debug>(result: FsResult<T>) -> Errno {
    result.unwrap_err().errno
}

async fn file(fs: &ModelFs, dir: Ino, name: &str) -> Attr {
    fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.unwrap()
}

async fn directory(fs: &ModelFs, dir: Ino, name: &str) -> Attr {
    fs.create(dir, name.as_bytes(), &NewNode::directory(0o755)).await.unwrap()
}

#[test]
fn the_first_error_that_applies_is_given() {
    run(async |fs, _| {
        let root = fs.root();
        let f = file(&fs, root, "f").await.ino;
        let d = directory(&fs, root, "d").await.ino;
        file(&fs, d, "x").await;
        let long = [b'n'; 256];
        assert_eq!(errno(fs.lookup(f, &long).await), Errno::NameTooLong);
        assert_eq!(errno(fs.lookup(f, b"x").await), Errno::NotDir);
        assert_eq!(errno(fs.lookup(Ino(99), b"x").await), Errno::Stale);
        assert_eq!(errno(fs.create(root, b".", &NewNode::file(0)).await), Errno::Exists);
        assert_eq!(errno(fs.unlink(root, b"d").await), Errno::IsDir);
        assert_eq!(errno(fs.unlink(root, b"..").await), Errno::IsDir);
        assert_eq!(errno(fs.rmdir(root, b"f").await), Errno::NotDir);
        assert_eq!(errno(fs.rmdir(root, b".").await), Errno::Invalid);
        assert_eq!(errno(fs.rmdir(root, b"d").await), Errno::NotEmpty);
        assert_eq!(errno(fs.link(d, root, b"l").await), Errno::NotPermitted);
        assert_eq!(errno(fs.link(d, root, b"f").await), Errno::Exists);
        assert_eq!(errno(fs.read(d, 0, &mut [0]).await), Errno::IsDir);
        assert_eq!(errno(fs.write(f, u64::MAX, &[0]).await), Errno::TooBig);
        assert_eq!(errno(fs.readlink(f).await), Errno::Invalid);
        assert_eq!(errno(fs.readdir(f, Cookie::START, &mut |_| true).await), Errno::NotDir);
    });
}

#[test]
fn rename_refuses_what_would_tear_the_tree() {
    run(async |fs, _| {
        let root = fs.root();
        let a = directory(&fs, root, "a").await.ino;
        let b = directory(&fs, a, "b").await.ino;
        file(&fs, root, "f").await;
        let to = |d, n: &'static [u8], m| fs.rename(root, b"a", d, n, m);
        assert_eq!(errno(to(b, b"x", RenameMode::Replace).await), Errno::Invalid);
        assert_eq!(errno(to(a, b"x", RenameMode::Replace).await), Errno::Invalid);
        assert_eq!(errno(to(a, b"b", RenameMode::Exchange).await), Errno::Invalid);
        assert_eq!(errno(to(root, b"..", RenameMode::Replace).await), Errno::Invalid);
        assert_eq!(errno(to(root, b"f", RenameMode::Replace).await), Errno::NotDir);
        assert_eq!(errno(to(root, b"f", RenameMode::NoReplace).await), Errno::Exists);
        assert_eq!(errno(to(root, b"g", RenameMode::Exchange).await), Errno::NotFound);
        let onto = |from: &'static [u8]| fs.rename(root, from, root, b"a", RenameMode::Replace);
        assert_eq!(errno(onto(b"f").await), Errno::IsDir);
        directory(&fs, root, "c").await;
        assert_eq!(errno(onto(b"c").await), Errno::NotEmpty);
    });
}

#[test]
fn a_moved_directory_takes_its_link_and_its_parent_along() {
    run(async |fs, now| {
        let root = fs.root();
        let a = directory(&fs, root, "a").await.ino;
        let b = directory(&fs, root, "b").await.ino;
        let c = directory(&fs, a, "c").await.ino;
        now.set(7);
        fs.rename(a, b"c", b, b"c2", RenameMode::Replace).await.unwrap();
        let links = async |i| fs.getattr(i).await.unwrap().links;
        assert_eq!((links(root).await, links(a).await, links(b).await), (4, 2, 3));
        assert_eq!(fs.lookup(c, b"..").await.unwrap().ino, b);
        let moved = fs.getattr(c).await.unwrap();
        assert_eq!((moved.ctime.seconds, moved.mtime.seconds), (7, 0));
        assert_eq!(fs.getattr(a).await.unwrap().mtime.seconds, 7);
        // A file takes the directory's place, and the link count falls again.
        file(&fs, a, "f").await;
        fs.rename(a, b"f", b, b"c2", RenameMode::Exchange).await.unwrap();
        assert_eq!((links(a).await, links(b).await), (3, 2));
    });
}

#[test]
fn an_open_file_lives_without_names_until_it_is_closed() {
    run(async |fs, _| {
        let f = file(&fs, fs.root(), "f").await.ino;
        fs.open(f).await.unwrap();
        fs.write(f, 0, b"here").await.unwrap();
        fs.unlink(fs.root(), b"f").await.unwrap();
        assert_eq!(fs.getattr(f).await.unwrap().links, 0);
        assert_eq!(errno(fs.link(f, fs.root(), b"g").await), Errno::NotFound);
        let mut buf = [0; 8];
        assert_eq!(fs.read(f, 0, &mut buf).await.unwrap(), 4);
        fs.close(f).await.unwrap();
        assert_eq!(errno(fs.getattr(f).await), Errno::Stale);
    });
}

#[test]
fn an_open_removed_directory_takes_no_entries() {
    run(async |fs, _| {
        let d = directory(&fs, fs.root(), "d").await.ino;
        fs.open(d).await.unwrap();
        fs.rmdir(fs.root(), b"d").await.unwrap();
        assert_eq!(fs.getattr(d).await.unwrap().links, 0);
        assert_eq!(errno(fs.create(d, b"x", &NewNode::file(0)).await), Errno::NotFound);
        assert_eq!(errno(fs.lookup(d, b".").await), Errno::NotFound);
        assert_eq!(errno(fs.readdir(d, Cookie::START, &mut |_| true).await), Errno::NotFound);
    });
}

#[test]
fn a_saved_cookie_sees_what_stays_exactly_once() {
    run(async |fs, _| {
        let root = fs.root();
        for name in ["a", "b", "c", "d"] {
            file(&fs, root, name).await;
        }
        let mut seen = Vec::new();
        let mut cookie = Cookie::START;
        fs.readdir(root, cookie, &mut |e| {
            seen.push(e.name.to_vec());
            cookie = e.next;
            seen.len() < 4
        })
        .await
        .unwrap();
        fs.unlink(root, b"a").await.unwrap();
        fs.unlink(root, b"c").await.unwrap();
        file(&fs, root, "e").await;
        fs.readdir(root, cookie, &mut |e| {
            seen.push(e.name.to_vec());
            true
        })
        .await
        .unwrap();
        assert_eq!(seen, [&b"."[..], b"..", b"a", b"b", b"d", b"e"]);
    });
}

#[test]
fn times_move_as_posix_says() {
    run(async |fs, now| {
        let f = file(&fs, fs.root(), "f").await.ino;
        let times = async || {
            let a = fs.getattr(f).await.unwrap();
            (a.atime.seconds, a.mtime.seconds, a.ctime.seconds)
        };
        now.set(1);
        fs.write(f, 0, b"x").await.unwrap();
        assert_eq!(times().await, (0, 1, 1));
        now.set(2);
        fs.read(f, 0, &mut [0]).await.unwrap();
        fs.write(f, 9, b"").await.unwrap();
        assert_eq!(times().await, (0, 1, 1));
        fs.setattr(f, &SetAttr { permissions: Some(0o600), ..SetAttr::default() }).await.unwrap();
        assert_eq!(times().await, (0, 1, 2));
        now.set(3);
        let same_size = SetAttr { size: Some(1), ..SetAttr::default() };
        fs.setattr(f, &same_size).await.unwrap();
        assert_eq!(times().await, (0, 3, 3));
        let past = Timestamp { seconds: -5, nanos: 999_999_999 };
        let set = SetAttr { mtime: Some(SetTime::To(past)), size: Some(0), ..SetAttr::default() };
        assert_eq!(fs.setattr(f, &set).await.unwrap().mtime, past);
        fs.setattr(f, &SetAttr::default()).await.unwrap();
        now.set(4);
        fs.rename(fs.root(), b"f", fs.root(), b"f", RenameMode::Replace).await.unwrap();
        assert_eq!(fs.getattr(f).await.unwrap().ctime.seconds, 3);
    });
}

#[test]
fn flags_forbid_and_can_be_taken_back() {
    run(async |fs, _| {
        let root = fs.root();
        let f = file(&fs, root, "f").await.ino;
        let set = async |flags| {
            fs.setattr(f, &SetAttr { flags: Some(flags), ..SetAttr::default() }).await.unwrap();
        };
        fs.write(f, 0, b"12").await.unwrap();
        set(flags::UF_APPEND).await;
        assert_eq!(errno(fs.write(f, 0, b"x").await), Errno::NotPermitted);
        assert_eq!(fs.write(f, 2, b"3").await.unwrap(), 1);
        set(flags::SF_IMMUTABLE).await;
        assert_eq!(errno(fs.write(f, 3, b"x").await), Errno::NotPermitted);
        assert_eq!(errno(fs.unlink(root, b"f").await), Errno::NotPermitted);
        assert_eq!(errno(fs.link(f, root, b"g").await), Errno::NotPermitted);
        let chmod = SetAttr { permissions: Some(0), ..SetAttr::default() };
        assert_eq!(errno(fs.setattr(f, &chmod).await), Errno::NotPermitted);
        set(flags::UF_NOUNLINK).await;
        assert_eq!(errno(fs.unlink(root, b"f").await), Errno::NotPermitted);
        set(0).await;
        fs.unlink(root, b"f").await.unwrap();
    });
}

#[test]
fn extended_attributes_share_an_area_of_two_blocks() {
    run(async |fs, _| {
        let f = file(&fs, fs.root(), "f").await.ino;
        // One value fills the area: 65,536 bytes less 8 for the header and the name.
        let value = vec![1; 65_536 - 8];
        fs.setxattr(f, b"user.a", &value, XattrMode::Create).await.unwrap();
        assert_eq!(errno(fs.setxattr(f, b"user.b", b"", XattrMode::Set).await), Errno::NoSpace);
        assert_eq!(errno(fs.setxattr(f, b"user.a", b"", XattrMode::Create).await), Errno::Exists);
        let absent = fs.setxattr(f, b"system.a", b"", XattrMode::Replace).await;
        assert_eq!(errno(absent), Errno::NoAttribute);
        fs.setxattr(f, b"user.a", b"small", XattrMode::Replace).await.unwrap();
        fs.setxattr(f, b"system.a", b"", XattrMode::Set).await.unwrap();
        assert_eq!(fs.listxattr(f).await.unwrap(), [b"user.a".to_vec(), b"system.a".to_vec()]);
        fs.removexattr(f, b"user.a").await.unwrap();
        assert_eq!(errno(fs.getxattr(f, b"user.a").await), Errno::NoAttribute);
    });
}

#[test]
fn a_full_parent_takes_no_more_directories() {
    let (fs, _) = model(ModelConfig { link_max: 4, ..ModelConfig::default() });
    Executor::simulated(1)
        .block_on(async {
            let root = fs.root();
            let a = directory(&fs, root, "a").await.ino;
            directory(&fs, root, "b").await;
            let third = fs.create(root, b"c", &NewNode::directory(0)).await;
            assert_eq!(errno(third), Errno::TooManyLinks);
            directory(&fs, a, "c").await;
            let up = fs.rename(a, b"c", root, b"c", RenameMode::Replace).await;
            assert_eq!(errno(up), Errno::TooManyLinks);
            // Replacing a directory needs no additional link.
            fs.rename(a, b"c", root, b"b", RenameMode::Replace).await.unwrap();
            let device =
                NewNode { file_type: FileType::CharDevice, rdev: 0x103, ..NewNode::file(0o600) };
            assert_eq!(fs.create(root, b"null", &device).await.unwrap().rdev, 0x103);
        })
        .unwrap();
}

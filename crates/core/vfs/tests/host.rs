//! A directory of the host as a file system.
//!
//! Fault model: there are few descriptors, so inodes come up again after theirs was closed; names
//! change meanwhile; a copy to the kernel's file system and back must lose nothing.

use ordo_runtime::Executor;
use ordo_vfs::host::HostDir;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{self, CompareOptions, CopyOptions};
use ordo_vfs::{
    Errno, FileSystem, FsResult, NewNode, RenameMode, SetAttr, SetTime, Timestamp, XattrMode, path,
};

fn run<T>(test: impl AsyncFnOnce(HostDir) -> FsResult<T>) -> T {
    let temp = tempfile::tempdir().unwrap();
    let host = HostDir::open(temp.path()).unwrap();
    Executor::simulated(1).block_on(test(host)).unwrap().unwrap()
}

#[test]
fn more_inodes_than_descriptors_are_found_again_even_after_renames() {
    run(async |fs| {
        let root = fs.root();
        let a = fs.create(root, b"a", &NewNode::directory(0o755)).await?.ino;
        let mut inodes = Vec::new();
        for i in 0..600 {
            let f = fs.create(a, format!("{i}").as_bytes(), &NewNode::file(0o644)).await?;
            fs.write(f.ino, 0, format!("{i}").as_bytes()).await?;
            inodes.push(f.ino);
        }
        fs.rename(root, b"a", root, b"b", RenameMode::Replace).await?;
        fs.rename(a, b"7", root, b"seven", RenameMode::Replace).await?;
        for (i, ino) in inodes.iter().enumerate() {
            let mut buf = [0; 8];
            let n = fs.read(*ino, 0, &mut buf).await?;
            assert_eq!(&buf[..n], format!("{i}").as_bytes());
        }
        Ok(())
    });
}

#[test]
fn an_open_file_outlives_its_names_and_a_closed_one_does_not() {
    run(async |fs| {
        let root = fs.root();
        let f = fs.create(root, b"f", &NewNode::file(0o644)).await?.ino;
        fs.open(f).await?;
        fs.unlink(root, b"f").await?;
        fs.write(f, 0, b"still").await?;
        assert_eq!(fs.getattr(f).await?.links, 0);
        fs.close(f).await?;
        assert_eq!(fs.getattr(f).await.unwrap_err().errno, Errno::Stale);
        Ok(())
    });
}

#[test]
fn a_tree_comes_back_from_the_host_as_it_went() {
    run(async |fs| {
        let model = || ModelFs::new(ModelConfig::default(), || Timestamp { seconds: 99, nanos: 1 });
        let (before, after) = (model(), model());
        let deep = path::make_directories(&before, b"/x/y", 0o711).await?.ino;
        let f = before.create(deep, b"f", &NewNode::file(0o640)).await?.ino;
        before.write(f, 100_000, &[1; 100]).await?;
        before.link(f, before.root(), b"l").await?;
        before.create(deep, b"s", &NewNode::symlink(&[b't'; 300])).await?;
        let time = SetTime::To(Timestamp { seconds: 1_000_000_007, nanos: 987_654_321 });
        before.setattr(f, &SetAttr { mtime: Some(time), ..SetAttr::default() }).await?;
        before.setxattr(f, b"user.k", b"v", XattrMode::Set).await?;
        let xattrs = {
            let probe = fs.create(fs.root(), b"probe", &NewNode::file(0o600)).await?.ino;
            let can = fs.setxattr(probe, b"user.k", b"v", XattrMode::Set).await.is_ok();
            fs.unlink(fs.root(), b"probe").await?;
            can
        };
        // Only root can set the owner. Without root, the loss is reported and not compared.
        let owners = fs.getattr(fs.root()).await?.uid == 0;
        let options = CopyOptions { owners, xattrs, ..CopyOptions::default() };
        tree::copy(&before, before.root(), &fs, fs.root(), &options, &mut |_| {}).await?;
        tree::copy(&fs, fs.root(), &after, after.root(), &options, &mut |_| {}).await?;
        let check = CompareOptions { owners, xattrs, ..CompareOptions::default() };
        for other in [
            tree::compare((&before, before.root()), (&fs, fs.root()), &check, &mut |_| {}).await?,
            tree::compare((&before, before.root()), (&after, after.root()), &check, &mut |_| {})
                .await?,
        ] {
            assert_eq!(other.differences, []);
            assert_eq!(other.entries, 5);
        }
        Ok(())
    });
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let err = HostDir::open("/no/such/place").err().unwrap();
    assert_eq!(err.to_string(), "no such file or directory: /no/such/place");
}

/// An entry that may not be read is left out and reported, and the entries after it go to the right
/// places.
#[test]
fn unreadable_entries_are_left_out_and_nothing_is_misplaced() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    // Root may read everything.
    let name = "unreadable_entries_are_left_out_and_nothing_is_misplaced";
    if ordo_testkit::run_as_ordinary_user(name) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    fs::create_dir_all(at("a/locked")).unwrap();
    fs::write(at("a/secret"), "secret").unwrap();
    fs::write(at("a/z"), "z").unwrap();
    fs::create_dir(at("b")).unwrap();
    for name in ["a/locked", "a/secret"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let model = ModelFs::new(ModelConfig::default(), Timestamp::default);
    let options = CopyOptions { owners: false, xattrs: false, ..CopyOptions::default() };
    let host = HostDir::open(temp.path()).unwrap();
    Executor::simulated(1)
        .block_on(async {
            let copied =
                tree::copy(&host, host.root(), &model, model.root(), &options, &mut |_| ()).await?;
            assert_eq!(copied.skipped_count, 2, "{copied:?}");
            assert!(path::lookup(&model, b"/a/z").await.is_ok());
            assert!(path::lookup(&model, b"/b").await.is_ok());
            let secret = path::lookup(&model, b"/a/secret").await;
            assert_eq!(secret.unwrap_err().errno, Errno::NotFound);
            let ignore = copied.skipped.iter().map(|(path, _)| path.clone()).collect();
            let check = CompareOptions {
                ignore,
                owners: false,
                xattrs: false,
                ..CompareOptions::default()
            };
            let pair = (&model, model.root());
            let found = tree::compare((&host, host.root()), pair, &check, &mut |_| ()).await?;
            assert_eq!(found.differences, []);
            FsResult::Ok(())
        })
        .unwrap()
        .unwrap();
    fs::set_permissions(at("a/locked"), fs::Permissions::from_mode(0o700)).unwrap();
}

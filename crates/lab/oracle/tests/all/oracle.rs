//! The comparison with the reference model: it must find planted mistakes and shrink them, find
//! none if there are none, and the model must agree with a kernel's file system.
//!
//! Fault model: a comparison that passes whatever it is given; a model that is wrong.

use std::cell::Cell;
use std::rc::Rc;
use std::time::SystemTime;

use ordo_oracle::{OracleConfig, OracleRules, OracleSubject, check};
use ordo_vfs::host::HostDir;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsError, FsResult, Ino, NewNode,
    RenameMode, SetAttr, SetTime, Timestamp, XattrMode,
};

/// The mistakes that can be planted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    OneByteOfAWrite,
    GrowsWithGarbage,
    ParentIsItself,
    ListingSkips,
    FullButMade,
    FullBeforeExists,
    WrongError,
    LinkIsLost,
    MicrosecondTimes,
    ReplaceCreates,
    PanicsOnDirectoryRename,
    NeverWakes,
}

const FLAWS: [Flaw; 12] = [
    Flaw::OneByteOfAWrite,
    Flaw::GrowsWithGarbage,
    Flaw::ParentIsItself,
    Flaw::ListingSkips,
    Flaw::FullButMade,
    Flaw::FullBeforeExists,
    Flaw::WrongError,
    Flaw::LinkIsLost,
    Flaw::MicrosecondTimes,
    Flaw::ReplaceCreates,
    Flaw::PanicsOnDirectoryRename,
    Flaw::NeverWakes,
];

/// The model with a mistake.
struct Flawed {
    fs: ModelFs,
    flaw: Flaw,
    calls: Cell<u32>,
    now: Rc<Cell<i64>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Flawed {
        let now = Rc::new(Cell::new(0));
        let clock = now.clone();
        let fs = ModelFs::new(ModelConfig::ufs2(8192), move || {
            clock.set(clock.get() + 1);
            Timestamp { seconds: clock.get(), nanos: 3 }
        });
        Flawed { fs, flaw, calls: Cell::new(0), now }
    }

    /// Whether this is the flaw, and this call is its `n`-th.
    fn strikes(&self, flaw: Flaw, n: u32) -> bool {
        if self.flaw != flaw {
            return false;
        }
        self.calls.set(self.calls.get() + 1);
        self.calls.get().is_multiple_of(n)
    }
}

impl OracleSubject for Flawed {
    type Fs = Flawed;
    fn fs(&self) -> &Flawed {
        self
    }
    fn now(&self) -> Option<Timestamp> {
        Some(Timestamp { seconds: self.now.get(), nanos: 3 })
    }
}

impl FileSystem for Flawed {
    ordo_vfs::delegate! { this => this.fs; root, open, close, getattr, tmpfile, unlink, readlink, read, allocate, punch_hole, seek,
    extents, statfs, sync, getxattr, listxattr, removexattr }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let name = if name == b".." && self.strikes(Flaw::ParentIsItself, 1) { b"." } else { name };
        self.fs.lookup(dir, name).await
    }
    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let mut set = *set;
        if let Some(SetTime::To(t)) = &mut set.mtime
            && self.flaw == Flaw::MicrosecondTimes
        {
            t.nanos -= t.nanos % 1000;
        }
        let before = self.fs.getattr(ino).await?;
        let after = self.fs.setattr(ino, &set).await?;
        if after.size > before.size && self.strikes(Flaw::GrowsWithGarbage, 3) {
            self.fs.write(ino, before.size, &[0xaa]).await?;
        }
        Ok(after)
    }
    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        if self.strikes(Flaw::FullBeforeExists, 9) && self.fs.lookup(dir, name).await.is_ok() {
            return Err(Errno::NoSpace.into());
        }
        let made = self.fs.create(dir, name, new).await?;
        if self.strikes(Flaw::FullButMade, 20) { Err(Errno::NoSpace.into()) } else { Ok(made) }
    }
    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let linked = self.fs.link(ino, dir, name).await?;
        if self.strikes(Flaw::LinkIsLost, 4) {
            self.fs.unlink(dir, name).await?;
        }
        Ok(linked)
    }
    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.rmdir(dir, name).await.map_err(|e| {
            let wrong = e.errno == Errno::NotEmpty && self.flaw == Flaw::WrongError;
            if wrong { FsError::from(Errno::Exists) } else { e }
        })
    }
    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        if let Ok(a) = self.fs.lookup(from_dir, from).await {
            let directory = a.file_type == FileType::Directory;
            assert!(self.flaw != Flaw::PanicsOnDirectoryRename || !directory, "planted");
        }
        self.fs.rename(from_dir, from, to_dir, to, mode).await
    }
    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let mut data = data.to_vec();
        if data.len() > 8192 && self.strikes(Flaw::OneByteOfAWrite, 2) {
            data[8191] ^= 1;
        }
        self.fs.write(ino, offset, &data).await
    }
    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let mut skip = cookie != Cookie::START && self.flaw == Flaw::ListingSkips;
        self.fs.readdir(dir, cookie, &mut |e| std::mem::take(&mut skip) || each(e)).await
    }
    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        if self.strikes(Flaw::NeverWakes, 3) {
            std::future::pending::<()>().await;
        }
        self.fs.fsync(ino).await
    }
    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fs.fdatasync(ino).await
    }
    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let creates = mode == XattrMode::Replace && self.flaw == Flaw::ReplaceCreates;
        self.fs.setxattr(ino, name, value, if creates { XattrMode::Set } else { mode }).await
    }
}

fn config(seed: u64, steps: usize) -> OracleConfig {
    OracleConfig::ufs2(seed, steps, 8192, 1024)
}

#[test]
fn the_model_agrees_with_itself_and_every_kind_of_error_comes_up() {
    let report = check(&config(1, 20_000), async |_| Ok(Flawed::new(Flaw::None))).unwrap();
    assert!(
        report.succeeded > 6_000 && report.steps > 19_000 && report.listings > 100,
        "{report:?}"
    );
    for errno in [
        Errno::NotFound,
        Errno::Exists,
        Errno::NotDir,
        Errno::IsDir,
        Errno::NotEmpty,
        Errno::Invalid,
        Errno::NameTooLong,
        Errno::NotPermitted,
        Errno::TooBig,
        Errno::NoAttribute,
        Errno::NotSupported,
    ] {
        assert!(report.errors.get(&errno).is_some_and(|n| *n >= 5), "{errno:?}: {report:?}");
    }
}

#[test]
fn every_planted_mistake_is_found_and_made_small() {
    for flaw in FLAWS {
        let result = check(&config(2, 20_000), async |_| Ok(Flawed::new(flaw)));
        let failure = result.expect_err("planted, but not found");
        assert!(failure.ops.len() <= 60, "{flaw:?} takes {} operations", failure.ops.len());
        assert!(failure.to_string().contains("seed 2, step"), "{flaw:?}: {failure}");
        println!("{flaw:?}: {failure}\n");
    }
}

#[test]
fn a_failure_repeats_exactly() {
    let run = || check(&config(3, 5_000), async |_| Ok(Flawed::new(Flaw::WrongError))).unwrap_err();
    assert_eq!(run().to_string(), run().to_string());
}

struct OnHost {
    fs: HostDir,
    _temp: tempfile::TempDir,
}

impl OracleSubject for OnHost {
    type Fs = HostDir;
    fn fs(&self) -> &HostDir {
        &self.fs
    }
    fn now(&self) -> Option<Timestamp> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Some(Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() })
    }
    async fn remount(&mut self) -> FsResult<()> {
        Ok(())
    }
}

/// The second witness: the model's answers are those of the kernel's own file system.
fn against_the_kernel(base: &std::path::Path, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let privileged = rustix_is_root();
        let rules = OracleRules::linux(privileged);
        let model = ModelConfig { symlink_max: rules.symlink_max, ..ModelConfig::ufs2(4096) };
        let mut config = OracleConfig::ufs2(seed, 6_000, 4096, 1024);
        config.large_offsets = false;
        config.rules = rules;
        config.model = model;
        let result = check(&config, async |_| {
            let temp = tempfile::tempdir_in(base).unwrap();
            Ok(OnHost { fs: HostDir::open(temp.path())?, _temp: temp })
        });
        if let Err(failure) = result {
            panic!("{}: {failure}", base.display());
        }
    }
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir().unwrap();
    std::fs::metadata(temp.path()).unwrap().uid() == 0
}

#[test]
fn the_model_agrees_with_the_file_system_of_the_temporary_directory() {
    against_the_kernel(&std::env::temp_dir(), 0..4);
}

#[test]
fn the_model_agrees_with_tmpfs() {
    let shm = std::path::Path::new("/dev/shm");
    if !shm.is_dir() {
        ordo_testkit::skip("no /dev/shm here");
        return;
    }
    against_the_kernel(shm, 10..14);
}

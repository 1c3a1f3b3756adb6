//! Concurrent clients on one tree, on a disk whose writes take random times.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{Errno, FileSystem, FsResult, Ino, NewNode, RenameMode, SetAttr};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A disk that takes a random time, up to two milliseconds, for each write.
pub struct Jitter<D> {
    /// The source of time and chance.
    pub runtime: Runtime,
    /// One write in `slow` takes up to forty times as long; 0 means none.
    pub slow: u64,
    /// The storage.
    pub disk: D,
}

impl<D: BlockDevice> BlockDevice for Jitter<D> {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.disk.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let is_slow = self.slow > 0 && self.runtime.random_below(self.slow) == 0;
        let micros = self.runtime.random_below(if is_slow { 80_000 } else { 2000 });
        self.runtime.sleep(Duration::from_micros(micros)).await;
        self.disk.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.disk.flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

/// The number of files that are renamed all the time and never removed.
pub const KEEPERS: usize = 4;

/// One client: its random operations on shared directories.
pub struct Client<F> {
    /// The file system.
    pub fs: F,
    /// Directories that may exist.
    pub dirs: Rc<RefCell<Vec<Ino>>>,
    /// The files that must have a name.
    pub keepers: Rc<Vec<Ino>>,
    /// The client's random numbers.
    pub rng: Pcg64Mcg,
}

impl<F: FileSystem + Clone> Client<F> {
    fn dir(&mut self) -> Ino {
        let dirs = self.dirs.borrow();
        dirs[self.rng.random_range(0..dirs.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        format!("name-{}-{}", self.rng.random_range(0..12), "x".repeat(60)).into_bytes()
    }

    /// Does one operation. Errors are expected, except damage and device errors.
    pub async fn step(&mut self) {
        let (dir, other, a, b) = (self.dir(), self.dir(), self.name(), self.name());
        let fs = self.fs.clone();
        let done = match self.rng.random_range(0..15) {
            0..=2 => fs.create(dir, &a, &NewNode::file(0o644)).await.map(|_| ()),
            3 => {
                let made = fs.create(dir, &a, &NewNode::directory(0o755)).await;
                made.map(|d| self.dirs.borrow_mut().push(d.ino))
            }
            4..=5 => fs.unlink(dir, &a).await,
            6 => fs.rmdir(dir, &a).await,
            7 => fs.rename(dir, &a, other, &b, RenameMode::NoReplace).await,
            8 => match fs.lookup(dir, &a).await {
                Ok(attr) => fs.link(attr.ino, other, &b).await.map(|_| ()),
                Err(e) => Err(e),
            },
            9..=10 => match fs.lookup(dir, &a).await {
                Ok(attr) => self.change_contents(attr.ino).await,
                Err(e) => Err(e),
            },
            _ => self.move_checkpointer(other).await,
        };
        if let Err(error) = done {
            assert!(!matches!(error.errno, Errno::Corrupt | Errno::Io), "{error}");
        }
    }

    async fn change_contents(&mut self, ino: Ino) -> FsResult<()> {
        if self.rng.random() {
            let len = [600, 5000, 20_000, 60_000][self.rng.random_range(0..4)];
            let at = self.rng.random_range(0..3) * 4096;
            return self.fs.write(ino, at, &vec![7; len]).await.map(|_| ());
        }
        let size = Some(self.rng.random_range(0..40_000));
        self.fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).await.map(|_| ())
    }

    /// Renames a file that must have a name at all times.
    async fn move_checkpointer(&mut self, to: Ino) -> FsResult<()> {
        let which = self.rng.random_range(0..KEEPERS);
        let name = format!("keeper-{which}").into_bytes();
        let dirs = self.dirs.borrow().clone();
        for from in dirs {
            let found = self.fs.lookup(from, &name).await;
            if found.is_ok_and(|attr| attr.ino == self.keepers[which]) {
                return self.fs.rename(from, &name, to, &name, RenameMode::NoReplace).await;
            }
        }
        Ok(())
    }
}

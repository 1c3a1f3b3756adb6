//! One client of a script: it takes one step after another, and continues if a step is refused.

use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{
    Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, SetTime, Timestamp,
    XattrMode,
};

use crate::script::{COMMON, ITSELF, NAMES, OPEN_MAX, ROOT, ScriptPlace, ScriptStep, WIDE};

/// One client.
pub(crate) struct Client<F> {
    pub fs: F,
    pub runtime: Runtime,
    pub number: usize,
    pub dirs: Vec<Ino>,
    /// The files that are open, the oldest first.
    pub open: Vec<Ino>,
}

impl<F: FileSystem> Client<F> {
    /// Does all steps.
    pub async fn run(mut self, steps: Vec<ScriptStep>) -> Result<(), String> {
        for (i, step) in steps.into_iter().enumerate() {
            if let Err(error) = self.step(step, i).await {
                // When the disk has failed, only reads are possible.
                if matches!(error.errno, Errno::Io | Errno::ReadOnly) {
                    return Err(format!("{step:?}: {error}"));
                }
                assert!(error.errno != Errno::Corrupt, "{step:?}: {error}");
            }
        }
        // Some files stay open: an unmount frees those without names.
        Ok(())
    }

    /// Finds the client's directories again after a crash.
    pub async fn find_dirs(&mut self) -> FsResult<()> {
        let mut at = 0;
        while let Some(dir) = self.dirs.get(at).copied() {
            for name in 0..NAMES {
                let name = self.name(ScriptPlace { dir: 0, name: name.into() });
                let there = match self.fs.lookup(dir, &name).await {
                    Err(e) if e.errno == Errno::NotFound => continue,
                    there => there?,
                };
                if there.file_type == FileType::Directory && !self.dirs.contains(&there.ino) {
                    self.dirs.push(there.ino);
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn dir(&self, place: ScriptPlace) -> Ino {
        self.dirs[usize::from(place.dir) % self.dirs.len()]
    }

    /// A name: short, or long enough to fill a directory's chunk; or of any length.
    fn name(&self, place: ScriptPlace) -> Vec<u8> {
        if place.name >= WIDE {
            return wide_name(self.number, place.name);
        }
        if place.name >= COMMON {
            return format!("common-{}", place.name - COMMON).into_bytes();
        }
        let long = if place.name.is_multiple_of(3) { "x".repeat(60) } else { String::new() };
        format!("c{}-{}{long}", self.number, place.name).into_bytes()
    }

    async fn find(&self, place: ScriptPlace) -> FsResult<Ino> {
        match place {
            ScriptPlace { dir: ROOT, name: ITSELF } => return Ok(self.fs.root()),
            ScriptPlace { name: ITSELF, .. } => return Ok(self.dir(place)),
            _ => {}
        }
        Ok(self.fs.lookup(self.dir(place), &self.name(place)).await?.ino)
    }

    async fn find_or_make(&self, place: ScriptPlace) -> FsResult<Ino> {
        match self.find(place).await {
            Err(e) if e.errno == Errno::NotFound => {
                let new = NewNode::file(0o644);
                Ok(self.fs.create(self.dir(place), &self.name(place), &new).await?.ino)
            }
            found => found,
        }
    }

    async fn step(&mut self, step: ScriptStep, number: usize) -> FsResult<()> {
        let fs = &self.fs;
        match step {
            ScriptStep::Make(p) => {
                let new = NewNode::file(0o644);
                fs.create(self.dir(p), &self.name(p), &new).await.map(drop)
            }
            ScriptStep::Mkdir(p) => {
                let new = NewNode::directory(0o755);
                let made = fs.create(self.dir(p), &self.name(p), &new).await?;
                self.dirs.push(made.ino);
                Ok(())
            }
            ScriptStep::Link(p, to) => {
                let ino = self.find(p).await?;
                fs.link(ino, self.dir(to), &self.name(to)).await.map(drop)
            }
            ScriptStep::Rename(p, to) => {
                let (from, name) = (self.dir(p), self.name(p));
                let mode = RenameMode::Replace;
                let replaced = self.find(to).await.ok();
                let moved = fs.lookup(from, &name).await?.ino;
                fs.rename(from, &name, self.dir(to), &self.name(to), mode).await?;
                self.dirs.retain(|d| Some(*d) != replaced || *d == moved);
                Ok(())
            }
            ScriptStep::Unlink(p) => fs.unlink(self.dir(p), &self.name(p)).await,
            ScriptStep::Rmdir(p) => {
                let ino = self.find(p).await?;
                fs.rmdir(self.dir(p), &self.name(p)).await?;
                self.dirs.retain(|d| *d != ino);
                Ok(())
            }
            ScriptStep::Symlink(..) | ScriptStep::Fifo(_) | ScriptStep::Device(..) => {
                self.make_special(step, number).await
            }
            ScriptStep::Exchange(p, to) => {
                let (from, name, mode) = (self.dir(p), self.name(p), RenameMode::Exchange);
                fs.rename(from, &name, self.dir(to), &self.name(to), mode).await
            }
            ScriptStep::Append(p, len) => {
                let file = self.find_or_make(p).await?;
                let at = fs.getattr(file).await?.size;
                let data = stamped(self.number, number, at, len);
                fs.write(file, at, &data).await.map(drop)
            }
            ScriptStep::Fsync(p) => fs.fsync(self.find(p).await?).await,
            ScriptStep::Fdatasync(p) => fs.fdatasync(self.find(p).await?).await,
            ScriptStep::Sync => fs.sync().await,
            ScriptStep::Pause(ms) => {
                self.runtime.sleep(Duration::from_millis(ms.into())).await;
                Ok(())
            }
            ScriptStep::Open(_)
            | ScriptStep::Tmpfile(_)
            | ScriptStep::WriteOpen(..)
            | ScriptStep::Name(..)
            | ScriptStep::FsyncOpen(_)
            | ScriptStep::FdatasyncOpen(_)
            | ScriptStep::Close(_) => self.with_open(step, number).await,
            _ => self.change(step, number).await,
        }
    }

    /// Makes a symbolic link, a fifo, or a device file.
    async fn make_special(&self, step: ScriptStep, number: usize) -> FsResult<()> {
        let of_type = |file_type| NewNode { file_type, ..NewNode::file(0o600) };
        let target;
        let (place, new) = match step {
            ScriptStep::Symlink(p, len) => {
                target = vec![b'a' + (number % 26) as u8; len.into()];
                (p, NewNode::symlink(&target))
            }
            ScriptStep::Fifo(p) => (p, of_type(FileType::Fifo)),
            ScriptStep::Device(p, number) => {
                (p, NewNode { rdev: number.into(), ..of_type(FileType::CharDevice) })
            }
            _ => unreachable!("the caller does these"),
        };
        self.fs.create(self.dir(place), &self.name(place), &new).await.map(drop)
    }

    /// Opens a file, or does something with an open one.
    async fn with_open(&mut self, step: ScriptStep, number: usize) -> FsResult<()> {
        let fs = &self.fs;
        let which = |which: u8| {
            let index = usize::from(which).checked_rem(self.open.len());
            index.map(|index| (index, self.open[index])).ok_or(Errno::NotFound)
        };
        match step {
            ScriptStep::Open(p) => {
                let ino = self.find(p).await?;
                fs.open(ino).await?;
                self.opened(ino).await
            }
            ScriptStep::Tmpfile(p) => {
                let made = fs.tmpfile(self.dir(p), &NewNode::file(0o600)).await?;
                self.opened(made.ino).await
            }
            ScriptStep::WriteOpen(n, at, len) => {
                let data = stamped(self.number, number, at.into(), len);
                fs.write(which(n)?.1, at.into(), &data).await.map(drop)
            }
            ScriptStep::Name(n, p) => {
                fs.link(which(n)?.1, self.dir(p), &self.name(p)).await.map(drop)
            }
            ScriptStep::FsyncOpen(n) => fs.fsync(which(n)?.1).await,
            ScriptStep::FdatasyncOpen(n) => fs.fdatasync(which(n)?.1).await,
            ScriptStep::Close(n) => {
                let (index, ino) = which(n)?;
                self.open.remove(index);
                self.fs.close(ino).await
            }
            _ => unreachable!("the caller does these"),
        }
    }

    /// Notes that a file is open, and closes the oldest of too many.
    async fn opened(&mut self, ino: Ino) -> FsResult<()> {
        self.open.push(ino);
        match self.open.len() > OPEN_MAX {
            true => self.fs.close(self.open.remove(0)).await,
            false => Ok(()),
        }
    }

    /// Sets something in an inode.
    async fn set(&self, step: ScriptStep) -> FsResult<()> {
        let none = SetAttr::default();
        let time = |seconds: u32| {
            Some(SetTime::To(Timestamp { seconds: seconds.into(), nanos: seconds % 1_000_000_000 }))
        };
        let (place, set) = match step {
            ScriptStep::Mode(p, mode) => (p, SetAttr { permissions: Some(mode), ..none }),
            ScriptStep::Owner(p, uid, gid) => {
                (p, SetAttr { uid: Some(uid.into()), gid: Some(gid.into()), ..none })
            }
            ScriptStep::Times(p, atime, mtime) => {
                (p, SetAttr { atime: time(atime), mtime: time(mtime), ..none })
            }
            ScriptStep::Flags(p, which) => {
                let flag = HARMLESS_FLAGS[usize::from(which) % HARMLESS_FLAGS.len()];
                (p, SetAttr { flags: Some(flag), ..none })
            }
            _ => unreachable!("the caller does these"),
        };
        let ino = self.find(place).await?;
        self.fs.setattr(ino, &set).await.map(drop)
    }

    /// Changes an inode or its contents.
    async fn change(&self, step: ScriptStep, number: usize) -> FsResult<()> {
        let fs = &self.fs;
        match step {
            ScriptStep::Write(p, at, len) => {
                let ino = self.find(p).await?;
                let data = stamped(self.number, number, at, len);
                fs.write(ino, at, &data).await.map(drop)
            }
            ScriptStep::Size(p, size) => {
                let ino = self.find(p).await?;
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(ino, &set).await.map(drop)
            }
            ScriptStep::Punch(p, at, len) => {
                let ino = self.find(p).await?;
                fs.punch_hole(ino, at, len.into()).await
            }
            ScriptStep::Allocate(p, at, len) => {
                let ino = self.find(p).await?;
                fs.allocate(ino, at.into(), len.into()).await
            }
            ScriptStep::Mode(..)
            | ScriptStep::Owner(..)
            | ScriptStep::Times(..)
            | ScriptStep::Flags(..) => self.set(step).await,
            ScriptStep::Attribute(p, which, len) => {
                let ino = self.find(p).await?;
                let value = stamped(self.number, number, 0, len.into());
                fs.setxattr(ino, &attribute(which), &value, XattrMode::Set).await
            }
            ScriptStep::Strip(p, which) => {
                fs.removexattr(self.find(p).await?, &attribute(which)).await
            }
            _ => unreachable!("the caller does these"),
        }
    }
}

/// A name of any length that belongs to one client: a number in digits and letters, and padding.
fn wide_name(client: usize, number: u16) -> Vec<u8> {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let number = usize::from(number - WIDE);
    let (len, mut rest) = (1 + number * 97 % 255, client * usize::from(u16::MAX) + number);
    let mut name = vec![DIGITS[rest % DIGITS.len()]];
    while rest >= DIGITS.len() {
        rest /= DIGITS.len();
        name.push(DIGITS[rest % DIGITS.len()]);
    }
    name.resize(len.max(name.len()), b'-');
    name
}

/// No flag, `UF_NODUMP`, and `UF_OPAQUE`.
const HARMLESS_FLAGS: [u32; 3] = [0, 1, 8];

/// The name of one of a file's attributes.
fn attribute(which: u8) -> Vec<u8> {
    format!("user.a{which}").into_bytes()
}

/// Contents that identify themselves: client, step and place in each run of 8 bytes.
fn stamped(client: usize, step: usize, at: u64, len: u32) -> Vec<u8> {
    let cell = |i: u32| {
        let [s0, s1, ..] = (step as u32).to_le_bytes();
        let [o0, o1, o2, o3, o4, ..] = (at + u64::from(i) * 8).to_le_bytes();
        [0xc0 | client as u8, s0, s1, 0xfe ^ o4, o0, o1, o2, o3]
    };
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(cell).collect();
    out.truncate(len as usize);
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Would catch two of a client's names that are equal, and lengths that never occur.
    #[test]
    fn wide_names_are_of_all_lengths_and_all_differ() {
        let numbers = || (0..3).flat_map(|client| (0..300).map(move |n| (client, WIDE + n)));
        let names: BTreeSet<_> = numbers().map(|(client, n)| wide_name(client, n)).collect();
        assert_eq!(names.len(), 900);
        let lengths: BTreeSet<usize> = names.iter().map(Vec::len).collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (1..256).collect::<Vec<_>>());
    }
}

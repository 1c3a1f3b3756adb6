//! A stand, the place for a state: devices, and a directory on which the state is mounted.
//!
//! A stand is made once and used for many states. [`Stand::put`] makes the devices hold one state:
//! their contents at the start, without zeros, and the sectors that differ. [`Stand::look`] mounts
//! it and unmounts it again. For the kernel's file systems each device is a file in memory under a
//! loop device, and the mount is a system call, so no process is started for a state. For file
//! systems of this process it is a thread (`own`).

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ordo_crash::base::Base;
use ordo_recorder::Folder;
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;

use crate::bench::StateDisk;
use crate::own::{OwnFs, mount_state};
use crate::system::ProgramSystem;
use crate::{ProgramError, btrfs, sys};

/// The number of times that an unmount is tried while the mount is busy; the next constant is the
/// pause between two. On a busy machine, processes that have been killed take seconds to end.
const TRIES: u32 = 2000;
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// A place at which states are put and mounted.
pub(crate) struct Stand {
    devices: Devices,
    folder: Folder,
    /// Its number among the stands in use at the same time.
    pub(crate) number: u32,
    /// The number of checks that were run here.
    pub(crate) checks: Cell<u64>,
}

enum Devices {
    Kernel(LoopDevices),
    Own(Arc<dyn OwnFs>, RefCell<Vec<Arc<Base>>>),
}

impl Stand {
    /// A new stand. Each stand in use at the same time needs another `number`.
    pub(crate) fn new(system: &ProgramSystem, number: u32) -> Result<Stand, ProgramError> {
        let devices = match system.own() {
            Some(own) => Devices::Own(own.clone(), RefCell::default()),
            None => Devices::Kernel(LoopDevices::new(system, number)?),
        };
        let folder =
            Folder::new("ordo-state-").map_err(ProgramError::io("a directory to mount on"))?;
        Ok(Stand { devices, folder, number, checks: Cell::new(0) })
    }

    /// Makes the devices hold a state.
    pub(crate) fn put(&self, disk: StateDisk<'_>) -> Result<(), ProgramError> {
        match &self.devices {
            Devices::Kernel(devices) => devices.put(disk),
            Devices::Own(_, images) => {
                let image = |(number, start): (usize, &Arc<Base>)| {
                    Arc::new(start.with(disk.state.contents(number)))
                };
                images.replace(disk.start.iter().enumerate().map(image).collect());
                Ok(())
            }
        }
    }

    /// Repairs the state if that must come first, mounts it, calls `look`, and unmounts it. Each
    /// state can be looked into once.
    ///
    /// # Errors
    /// The error of the mount if the state cannot be mounted: the file system was lost.
    pub(crate) fn look<T>(
        &self,
        look: impl FnOnce(&Path) -> T,
    ) -> Result<Result<T, String>, ProgramError> {
        let dir = self.folder.path();
        match &self.devices {
            Devices::Kernel(devices) => devices.look(dir, look),
            Devices::Own(own, images) => match mount_state(own, images.take(), dir)? {
                Err(why) => Ok(Err(format!("mounting: {why}"))),
                Ok(mounted) => {
                    let seen = look(dir);
                    // The state is discarded, so an error of its unmount does not matter.
                    let _ = mounted.unmount();
                    Ok(Ok(seen))
                }
            },
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // The state is still mounted only if an unmount failed or a check panicked.
        let _ = rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

/// Files without names under loop devices, for a file system of the kernel's.
struct LoopDevices {
    system: ProgramSystem,
    /// For each device, the file and the loop device.
    files: Vec<(File, File)>,
    paths: Vec<PathBuf>,
    /// The stand's number, which tells apart the copies of a btrfs file system that are mounted at
    /// once.
    number: u32,
}

/// An empty file without a name, in memory or in the folder for temporary files.
fn contents(system: &ProgramSystem) -> io::Result<File> {
    if system.in_files().states {
        return tempfile::tempfile();
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("ordo-state", flags)?.into())
}

impl LoopDevices {
    fn new(system: &ProgramSystem, number: u32) -> Result<LoopDevices, ProgramError> {
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        for bytes in system.devices() {
            let memory = contents(system).and_then(|file| file.set_len(bytes).map(|()| file));
            let memory = memory.map_err(ProgramError::io("a file for a state's contents"))?;
            let (path, device) = ordo_fuse::loopdev::over(&memory, Path::new(""))
                .map_err(ProgramError::io("a loop device (the kernel's file systems need root)"))?;
            files.push((memory, device));
            paths.push(path);
        }
        Ok(LoopDevices { system: system.clone(), files, paths, number })
    }

    fn put(&self, disk: StateDisk<'_>) -> Result<(), ProgramError> {
        for (number, ((memory, device), start)) in self.files.iter().zip(disk.start).enumerate() {
            let write = || start.write(memory, disk.over(number));
            let put = sys::forget(device).and_then(|()| write());
            put.map_err(ProgramError::io("putting a state on a device"))?;
            if self.system.is_btrfs() {
                btrfs::rename(memory, self.number)
                    .map_err(ProgramError::io("the superblock of a state"))?;
            }
        }
        Ok(())
    }

    /// Mounts the state. A busy device says nothing about the state: a process that another stand
    /// is starting has this one's open files, and so the exclusive one of [`released`], until it is
    /// executed.
    fn mount(&self, dir: &Path) -> io::Result<()> {
        while_busy(TRIES, || self.system.mount(&self.paths, dir))
    }

    fn look<T>(
        &self,
        dir: &Path,
        look: impl FnOnce(&Path) -> T,
    ) -> Result<Result<T, String>, ProgramError> {
        if let [program, args @ ..] = self.system.repair() {
            let done = Command::new(program).args(args).arg(&self.paths[0]).output();
            let done = done.map_err(|e| ProgramError::Program(format!("{program}: {e}")))?;
            // Exit code 0: nothing wrong; 1: repaired.
            if !matches!(done.status.code(), Some(0 | 1)) {
                let said = String::from_utf8_lossy(&done.stdout);
                return Ok(Err(format!("{program} cannot repair it: {}", said.trim())));
            }
            let device = &self.files[0].1;
            sys::forget(device).map_err(ProgramError::io("a loop device"))?;
        }
        let seen = match self.mount(dir) {
            Ok(()) => {
                let seen = look(dir);
                unmount(dir).map_err(ProgramError::io("unmounting a state"))?;
                for path in &self.paths {
                    released(path, TRIES)
                        .map_err(ProgramError::io("a state that a process of the check holds"))?;
                }
                Ok(seen)
            }
            Err(error) => Err(format!("mounting: {error}")),
        };
        self.system.forget(&self.paths);
        Ok(seen)
    }
}

/// Waits until no file system uses a device. A process of the check that is just ending may have
/// had a mount of its own.
///
/// # Errors
/// A file system still uses it. The next state must not be put there: a mount would show the file
/// system of this one.
fn released(device: &Path, tries: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    while_busy(tries, || match rustix::fs::open(device, flags, rustix::fs::Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => Err(rustix::io::Errno::BUSY.into()),
        _ => Ok(()),
    })
}

/// Unmounts. A process that is just ending may keep the mount busy for a moment.
pub(crate) fn unmount(dir: &Path) -> io::Result<()> {
    while_busy(TRIES, || Ok(rustix::mount::unmount(dir, UnmountFlags::empty())?))
}

/// Calls `call` again while something is busy, after a pause each time, `tries` times at most.
fn while_busy(tries: u32, mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..tries {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that another mount still uses is not free for the next state, and one that is open
    /// exclusively for a moment is waited for. Would catch a search that judges the old state in
    /// place of the new one, and one that takes a busy device for a state that cannot be mounted,
    /// or that is flaky.
    #[test]
    fn a_device_in_use_is_not_released() {
        if !rustix::process::geteuid().is_root() {
            return ordo_testkit::skip("mounting needs root");
        }
        let system = ProgramSystem::parse("ext4").unwrap();
        let devices = LoopDevices::new(&system, 0).unwrap();
        let made = Command::new("mke2fs").args(["-q", "-F"]).arg(&devices.paths[0]).status();
        if !made.is_ok_and(|status| status.success()) {
            return ordo_testkit::skip("mke2fs is not installed");
        }
        let dir = Folder::new("ordo-state-").unwrap();
        devices.mount(dir.path()).unwrap();
        assert!(released(&devices.paths[0], 2).is_err());
        unmount(dir.path()).unwrap();
        released(&devices.paths[0], TRIES).unwrap();

        // A device that is open exclusively for a moment, as in a process that is being started.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let open = rustix::fs::open(&devices.paths[0], flags, rustix::fs::Mode::empty()).unwrap();
        assert!(system.mount(&devices.paths, dir.path()).is_err());
        let ending = std::thread::spawn(move || {
            std::thread::sleep(20 * PAUSE);
            drop(open);
        });
        devices.mount(dir.path()).unwrap();
        ending.join().unwrap();
        unmount(dir.path()).unwrap();
    }
}

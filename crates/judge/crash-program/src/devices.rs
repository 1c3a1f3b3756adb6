//! The devices of a recorded command: pseudo-devices for the kernel's file systems, devices of a
//! thread for the others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ordo_recorder::{DeviceSetup, Recording, Session};
use rustix::mount::UnmountFlags;

use crate::ProgramError;
use crate::own::{OwnMount, OwnSession};
use crate::stand::unmount;
use crate::system::ProgramSystem;

/// A new file system on devices that can be recorded.
pub(crate) struct RecordedDevices {
    system: ProgramSystem,
    kind: Kind,
}

enum Kind {
    Kernel(KernelDevices),
    Own(OwnSession),
}

impl RecordedDevices {
    /// Makes devices, and the file system on them.
    pub(crate) fn new(
        system: &ProgramSystem,
        setups: Vec<DeviceSetup>,
    ) -> Result<RecordedDevices, ProgramError> {
        let kind = match system.own() {
            Some(own) => Kind::Own(OwnSession::new(own, setups)?),
            None => {
                let devices = KernelDevices::new(setups)?;
                system.make(&devices.paths())?;
                Kind::Kernel(devices)
            }
        };
        Ok(RecordedDevices { system: system.clone(), kind })
    }

    /// Mounts the file system. `age` is the time after which a file system of this process writes
    /// changes for which nobody waits.
    pub(crate) fn mount<'a>(
        &self,
        dir: &'a Path,
        age: Option<Duration>,
    ) -> Result<Mounted<'a>, ProgramError> {
        let own = match &self.kind {
            Kind::Own(session) => Some(session.mount(dir, age)?),
            Kind::Kernel(devices) => {
                let paths = devices.paths();
                let mounted = self.system.mount(&paths, dir);
                mounted.map_err(|error| ProgramError::Io {
                    what: format!("mounting {} on {}", self.system.name(), paths[0].display()),
                    error,
                })?;
                None
            }
        };
        Ok(Mounted { dir, own, is_mounted: true })
    }

    /// Writes what the kernel caches for the devices of an unmounted file system.
    pub(crate) fn settle(&self) -> Result<(), ProgramError> {
        let Kind::Kernel(devices) = &self.kind else { return Ok(()) };
        let each = devices.0.iter();
        let written = each.map(|session| File::open(session.device())?.sync_all());
        written.collect::<Result<(), _>>().map_err(ProgramError::io("writing a device's cache"))
    }

    /// Begins the recording.
    pub(crate) fn start(&self) -> Result<(), ProgramError> {
        match &self.kind {
            Kind::Kernel(devices) => devices.start()?,
            Kind::Own(session) => session.start(),
        }
        Ok(())
    }

    /// The file that takes marks.
    pub(crate) fn marks(&self) -> PathBuf {
        match &self.kind {
            Kind::Kernel(devices) => devices.0[0].marks(),
            Kind::Own(session) => session.marks(),
        }
    }

    /// Removes the devices, and returns their recordings.
    pub(crate) fn finish(self) -> Result<Vec<Recording>, ProgramError> {
        match self.kind {
            Kind::Kernel(devices) => devices.finish(&self.system),
            Kind::Own(session) => session.finish(),
        }
    }
}

/// The pseudo-devices of one of the kernel's file systems, each with a thread of its own.
pub(crate) struct KernelDevices(Vec<Session>);

impl KernelDevices {
    /// Makes the devices; there is at least one.
    pub(crate) fn new(setups: Vec<DeviceSetup>) -> Result<KernelDevices, ProgramError> {
        Ok(KernelDevices(setups.into_iter().map(Session::with).collect::<Result<_, _>>()?))
    }

    /// The paths of the devices.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|session| session.device().to_owned()).collect()
    }

    /// Begins the recording.
    pub(crate) fn start(&self) -> Result<(), ProgramError> {
        Ok(self.0.iter().try_for_each(Session::start)?)
    }

    /// Removes the devices, on which the file system is not mounted any more, and returns their
    /// recordings.
    pub(crate) fn finish(self, system: &ProgramSystem) -> Result<Vec<Recording>, ProgramError> {
        system.forget(&self.paths());
        Ok(self.0.into_iter().map(Session::finish).collect::<Result<_, _>>()?)
    }
}

/// A mounted file system, which is unmounted when dropped.
pub(crate) struct Mounted<'a> {
    dir: &'a Path,
    own: Option<OwnMount>,
    is_mounted: bool,
}

impl Mounted<'_> {
    /// Unmounts.
    pub(crate) fn unmount(mut self) -> Result<(), ProgramError> {
        self.is_mounted = false;
        match self.own.take() {
            Some(own) => own.unmount(),
            None => unmount(self.dir).map_err(ProgramError::io("unmounting the file system")),
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            // A program that still uses the mount loses it.
            let _ = own.unmount();
        } else if self.is_mounted && unmount(self.dir).is_err() {
            // The unmount is lazy: a program that still uses the mount must not keep the device
            // alive.
            let _ = rustix::mount::unmount(self.dir, UnmountFlags::DETACH);
        }
    }
}

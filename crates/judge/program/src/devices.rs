//! The devices of a recorded command: a pseudo-device for the kernel's file systems, devices of a thread for the others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ordo_pseudo::{DeviceSetup, Recording, Session};
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
    Kernel(Session),
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
                let setup = setups.into_iter().next().expect("one device");
                let session = Session::with(setup)?;
                system.make(session.device())?;
                Kind::Kernel(session)
            }
        };
        Ok(RecordedDevices { system: system.clone(), kind })
    }

    /// Mounts the file system. `age` is the time after which a file system of this process writes changes for which
    /// nobody waits.
    pub(crate) fn mount<'a>(
        &self,
        dir: &'a Path,
        age: Option<Duration>,
    ) -> Result<Mounted<'a>, ProgramError> {
        let own = match &self.kind {
            Kind::Own(session) => Some(session.mount(dir, age)?),
            Kind::Kernel(session) => {
                let mounted = self.system.mount(session.device(), dir);
                mounted.map_err(|error| ProgramError::Io {
                    what: format!(
                        "mounting {} on {}",
                        self.system.name(),
                        session.device().display()
                    ),
                    error,
                })?;
                None
            }
        };
        Ok(Mounted { dir, own, is_mounted: true })
    }

    /// Writes what the kernel caches for the device of an unmounted file system.
    pub(crate) fn settle(&self) -> Result<(), ProgramError> {
        let Kind::Kernel(session) = &self.kind else { return Ok(()) };
        let device = File::open(session.device());
        let written = device.and_then(|device| device.sync_all());
        written.map_err(ProgramError::io("writing the device's cache"))
    }

    /// Begins the recording.
    pub(crate) fn start(&self) -> Result<(), ProgramError> {
        match &self.kind {
            Kind::Kernel(session) => session.start()?,
            Kind::Own(session) => session.start(),
        }
        Ok(())
    }

    /// The file that takes marks.
    pub(crate) fn marks(&self) -> PathBuf {
        match &self.kind {
            Kind::Kernel(session) => session.marks(),
            Kind::Own(session) => session.marks(),
        }
    }

    /// Removes the devices, and returns their recordings.
    pub(crate) fn finish(self) -> Result<Vec<Recording>, ProgramError> {
        match self.kind {
            Kind::Kernel(session) => Ok(vec![session.finish()?]),
            Kind::Own(session) => session.finish(),
        }
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
            // The unmount is lazy: a program that still uses the mount must not keep the device alive.
            let _ = rustix::mount::unmount(self.dir, UnmountFlags::DETACH);
        }
    }
}

//! Mounting FFS for use, with the recovery that its ordering needs after a crash.

use std::rc::Rc;

use ordo_bgfsck::{Background, Ending, Pace};
use ordo_block::Device;
use ordo_block::snapshot::SnapshotDevice;
use ordo_check::Repair;
use ordo_ffs::mount::{LocatedSuperblock, find_superblock};
use ordo_ffs::{MountError, mount};
use ordo_format::ufs2::superblock::FS_DOSOFTDEP;
use ordo_runtime::Runtime;

use super::check;
use crate::SystemError;
use crate::format::Attempt;
use crate::journaled::{self, Journaled};
use crate::mounted::{Mounted, OnFfs};
use crate::options::{CheckOptions, Choice, MessageSink, MountMessage, MountOptions};
use crate::system::System;

/// The memory of the snapshot that a background check reads, in bytes.
const SNAPSHOT_MAX: usize = 256 << 20;

/// The parameters of a mount.
struct Attaching<'a> {
    rt: &'a Runtime,
    disks: &'a [Device],
    choice: &'a Choice,
    options: &'a MountOptions,
    tell: &'a MessageSink,
    found: LocatedSuperblock,
}

/// Mounts under the ordering of `choice`, or under the one for which the image asks.
pub(super) async fn attach(
    rt: &Runtime,
    disks: &[Device],
    choice: &Choice,
    options: &MountOptions,
    tell: &MessageSink,
) -> Result<Attempt, SystemError> {
    let found = find_superblock(&disks[0]).await?;
    let attaching = Attaching { rt, disks, choice, options, tell, found };
    let ordering = match choice.ordering {
        Some(ordering) => ordering,
        None => attaching.usual().await?,
    };
    let has_journal = ordering == journaled::FILE.ordering();
    if options.log.mode.is_some() && !has_journal {
        return Err(SystemError::NoJournal);
    }
    let mounted = match System::runnable().find(|system| system.ordering() == ordering) {
        Some(system) if system.journal().is_some() => attaching.journal().await,
        Some(system) if system == super::SOFT_UPDATES => attaching.soft_updates().await,
        Some(system) => attaching.attempt(async || attaching.mount(system).await).await,
        None => Err(SystemError::Option { option: "this ordering", what: "a UFS2 file system" }),
    };
    Ok(match mounted? {
        Ok(mounted) => Attempt::Mounted(mounted, ordering),
        Err(reason) => Attempt::ReadOnly(reason),
    })
}

/// The mounted file system, or the reason why it can only be read.
type Tried<T> = Result<Result<T, String>, SystemError>;

impl Attaching<'_> {
    /// The ordering for which an image asks, by its flags and its log.
    async fn usual(&self) -> Result<&'static str, SystemError> {
        let has_log =
            self.choice.log.is_some() || journaled::find(&self.disks[..1]).await?.is_some();
        Ok(match () {
            () if has_log => journaled::FILE.ordering(),
            () if self.found.sb.flags & FS_DOSOFTDEP != 0 => super::SOFT_UPDATES.ordering(),
            () => super::SYNC.ordering(),
        })
    }

    fn notice(&self, text: &str) {
        (self.tell)(MountMessage::Notice(text));
    }

    async fn mount(&self, system: System) -> Result<Mounted, SystemError> {
        system.mount(self.rt, self.disks, self.options).await
    }

    /// Mounts under soft updates. Space that a crash leaked is freed in the background.
    async fn soft_updates(&self) -> Tried<Mounted> {
        let attempt = async || {
            let device = Rc::new(SnapshotDevice::new(self.disks[0].clone(), SNAPSHOT_MAX));
            let policy = super::soft_updates(self.options);
            let options = self.options.ffs();
            Ok((mount(self.rt, device.clone(), policy, &options).await?, device))
        };
        let (fs, device) = match self.attempt(attempt).await? {
            Ok(mounted) => mounted,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(recovered) = fs.layout().recovered() else {
            device.thaw();
            return Ok(Ok(OnFfs::mounted(fs)));
        };
        let (groups, repaired) = (recovered.groups, recovered.repaired.len());
        self.notice(&format!(
            "not unmounted cleanly: the free space of {groups} groups was counted again, {repaired} of them \
             repaired; leaked blocks and inodes are freed in the background"
        ));
        let check = Background::start(self.rt, &fs, &device, Pace::default());
        let tell = self.tell.clone();
        let stop = Box::pin(async move {
            match check.stop().await {
                Ok(outcome) if outcome.ending == Ending::Damage => {
                    tell(MountMessage::Error(&outcome.to_string()));
                }
                Ok(outcome) => tell(MountMessage::Notice(&outcome.to_string())),
                Err(error) => {
                    tell(MountMessage::Error(&format!("the background check failed: {error}")))
                }
            }
        });
        Ok(Ok(OnFfs::with(fs, None, Some(stop))))
    }

    /// Mounts under a journal, with the log that was asked for or found.
    async fn journal(&self) -> Tried<Mounted> {
        let place = match self.choice.log {
            Some(place) => place,
            None => match journaled::find(&self.disks[..1]).await? {
                Some(found) => found.place,
                None => return Err(SystemError::NoLog),
            },
        };
        let journaled = Journaled::new(place, self.choice.log_sync, self.choice.group);
        let mounted = self
            .attempt(async || journaled::mount(&journaled, self.rt, self.disks, self.options).await)
            .await?;
        let (mounted, recovery) = match mounted {
            Ok(mounted) => mounted,
            Err(reason) => return Ok(Err(reason)),
        };
        if self.found.sb.clean != 1 {
            self.notice("not unmounted cleanly: its log has been replayed");
        }
        self.warn(recovery.lost_bytes());
        Ok(Ok(mounted))
    }

    /// Warns about bytes of files that a recovery could not read, if there are any.
    fn warn(&self, lost: u64) {
        if let Some(warning) = journaled::warning(lost) {
            (self.tell)(MountMessage::Error(&warning));
        }
    }

    /// Mounts. If a check is needed first, runs it and mounts again.
    async fn attempt<T>(&self, mount: impl AsyncFn() -> Result<T, SystemError>) -> Tried<T> {
        let mut checked = false;
        loop {
            let error = match mount().await {
                Ok(mounted) => return Ok(Ok(mounted)),
                Err(error) => error,
            };
            match error.mount() {
                Some(MountError::Unclean) if !checked => self.preen().await?,
                Some(why @ (MountError::Unsupported(_) | MountError::ReadOnlyDevice)) => {
                    return Ok(Err(reason(why)));
                }
                _ => return Err(error),
            }
            checked = true;
        }
    }

    /// Repairs the damage that a crash explains, as a check at boot does. A person must decide
    /// about any other damage.
    async fn preen(&self) -> Result<(), SystemError> {
        self.notice("not unmounted cleanly: checking it");
        if let Some(done) = journaled::replay(self.rt, &self.disks[..1]).await? {
            self.notice(&format!("its log was replayed, {} records", done.records));
            self.warn(done.lost);
        }
        let options =
            CheckOptions { repair: Repair::Preen, trust_bitmaps: true, ..CheckOptions::default() };
        let report = check(&self.disks[0], &options).await?;
        if report.exit_code() > 1 {
            return Err(SystemError::NeedsCheck);
        }
        let last = report.to_string();
        self.notice(last.lines().last().unwrap_or("checked"));
        Ok(())
    }
}

/// The reason why a file system can only be read, for a person.
fn reason(error: &MountError) -> String {
    match error {
        MountError::Unsupported(reason) => (*reason).to_owned(),
        MountError::ReadOnlyDevice => "the device is read-only".to_owned(),
        error => error.to_string(),
    }
}

//! FFS on UFS2's format and UFS1's, and the systems whose ordering keeps no data beside the image.

mod attach;
mod judged;
mod made;
mod show;

pub use judged::GUESSED;

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::{BlockDevice, Device};
use ordo_check::{CheckPhase, CheckWork, Checker, FsckOptions, Report, Severity};
use ordo_crash::{DiskFormat, FsGeometry, Promise};
use ordo_ffs::mkfs::{MkfsOptions, UfsVersion, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_ffs::{MountError, mount};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::FS_ACLS;
use ordo_ordering::{NoOrder, Ordering, SoftOptions, SoftRules, SoftUpdates, SyncOrder, SyncRules};
use ordo_report::json;
use ordo_runtime::Runtime;

use crate::SystemError;
use crate::crashed::shaped;
use crate::format::{Ability, Attempt, CheckReport, Facts, Format, MadeReport, SystemFuture};
use crate::journaled::{self, Journaled, Replayed};
use crate::mounted::{Mounted, OnFfs};
use crate::options::{CheckOptions, Choice, MakeOptions, MessageSink, MountOptions, ShowOptions};
use crate::rules::{all_but, names};
use crate::size::u32_of;
use crate::system::{ListedEntry, MountFn, Mounting, System};

/// One of the two formats of FFS, with or without a log of Ordo's.
pub struct UfsFormat(UfsVersion);

/// FreeBSD's UFS2.
pub const UFS2: UfsFormat = UfsFormat(UfsVersion::Ufs2);
/// UFS1, the format of 4.4BSD. A system makes UFS2, but runs on either.
pub const UFS1: UfsFormat = UfsFormat(UfsVersion::Ufs1);

const fn entry(name: &'static str, about: &'static str, mount: MountFn) -> ListedEntry {
    ListedEntry {
        name,
        about,
        ordering: "",
        also: &[],
        format: &UFS2,
        mounting: Mounting::Ordering(mount),
        promise: Promise::NONE,
        rules: Vec::new,
    }
}

/// FFS that writes metadata synchronously where order matters ("Conventional").
pub const SYNC: System = System(&ListedEntry {
    ordering: "sync",
    promise: Promise::SYNC,
    rules: names::<SyncRules>,
    ..entry(
        "ffs-sync",
        "FFS with synchronous metadata writes where order matters",
        |rt, disk, options| {
            let rules = all_but::<SyncRules>(options.without);
            Box::pin(plain(rt, disk, SyncOrder::with_rules(rules), options))
        },
    )
});
/// FFS with soft updates: all writes are delayed, and changes that would reach the disk too early
/// are rolled back.
pub const SOFT_UPDATES: System = System(&ListedEntry {
    ordering: "soft-updates",
    also: &["softdep"],
    promise: Promise::SOFT_UPDATES,
    rules: names::<SoftRules>,
    ..entry(
        "ffs-soft-updates",
        "FFS with soft updates: no waiting, and usable after a crash",
        |rt, disk, options| Box::pin(plain(rt, disk, soft_updates(options), options)),
    )
});
/// FFS without any ordering ("No Order", "FFS-async"): fast, but not safe.
pub const NONE: System = System(&ListedEntry {
    ordering: "none",
    also: &["async"],
    ..entry(
        "ffs-none",
        "FFS with no order at all: the bound on speed, and not safe",
        |rt, disk, options| Box::pin(plain(rt, disk, NoOrder, options)),
    )
});

/// Soft updates with the options of a mount.
fn soft_updates(options: &MountOptions) -> SoftUpdates {
    let off = SoftRules::all().difference(all_but(options.without));
    let rules = options.soft.rules.difference(off);
    SoftUpdates::new(SoftOptions { rules, ..options.soft })
}

async fn plain(
    rt: &Runtime,
    disk: Device,
    ordering: impl Into<Ordering>,
    options: &MountOptions,
) -> Result<Mounted, SystemError> {
    Ok(OnFfs::mounted(mount(rt, disk, ordering, &options.ffs()).await?))
}

/// The mkfs options for a shape of a crash test.
pub fn mkfs_options(geometry: &FsGeometry) -> MkfsOptions {
    UFS2.options(&shaped(geometry)).expect("sizes fit 32 bits, and no option is another format's")
}

impl UfsFormat {
    fn options(&self, options: &MakeOptions) -> Result<MkfsOptions, SystemError> {
        let refused = [
            (options.segment_size.is_some(), "--segment-size"),
            (options.no_seals, "--no-crc"),
            (options.metadata.is_some(), "--meta"),
            (options.metadata_copy.is_some(), "--meta-copy"),
        ];
        if let Some((_, option)) = refused.into_iter().find(|(given, _)| *given) {
            return Err(SystemError::Option { option, what: self.noun() });
        }
        let usual = MkfsOptions::default();
        let given = |what, bytes: Option<u64>| bytes.map(|b| u32_of(what, b)).transpose();
        let block_size = given("block size", options.block_size)?.unwrap_or(usual.block_size);
        let smallest = (block_size / 8).max(512);
        Ok(MkfsOptions {
            version: if options.ufs1 { UfsVersion::Ufs1 } else { self.0 },
            block_size,
            frag_size: given("fragment size", options.frag_size)?.unwrap_or(smallest),
            endian: if options.big_endian { Endian::Big } else { Endian::Little },
            label: options.label.clone().unwrap_or_default(),
            soft_updates: options.soft_updates,
            check_hashes: !options.no_check_hashes,
            min_free: options.min_free.unwrap_or(usual.min_free),
            density: given("density", options.density)?,
            inodes: options.inodes,
            size: options.size,
            max_blocks_per_group: options.group_blocks,
            seed: options.seed,
            ..usual
        })
    }
}

impl Format for UfsFormat {
    fn name(&self) -> &'static str {
        match self.0 {
            UfsVersion::Ufs1 => "ufs1",
            UfsVersion::Ufs2 => "ufs2",
        }
    }

    fn noun(&self) -> &'static str {
        match self.0 {
            UfsVersion::Ufs1 => "a UFS1 file system",
            UfsVersion::Ufs2 => "a UFS2 file system",
        }
    }

    fn abilities(&self) -> &'static [Ability] {
        &[Ability::Make, Ability::Read, Ability::Write, Ability::Check, Ability::Crash]
    }

    fn is_ufs(&self) -> bool {
        true
    }

    fn has_tuning(&self) -> bool {
        true
    }

    fn is_on<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, bool> {
        Box::pin(async move {
            match find_superblock(disk).await {
                Ok(found) => Ok(found.sb.is_ufs1() == (self.0 == UfsVersion::Ufs1)),
                Err(MountError::Device(error)) => Err(error.into()),
                Err(_) => Ok(false),
            }
        })
    }

    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MakeOptions,
    ) -> SystemFuture<'a, Box<dyn MadeReport>> {
        Box::pin(async move {
            let made = self.options(options)?;
            let have = disks[0].geometry().bytes;
            if let Some(size) = made.size.filter(|size| *size > have) {
                return Err(SystemError::NoFreeSpace { have, size });
            }
            let report = match options.log {
                None => mkfs(&disks[0], &made, rt.wall_time().0).await?,
                Some(place) => {
                    let usual = Journaled::new(place, false, None);
                    let journaled = Journaled { log_bytes: options.log_bytes, ..usual };
                    journaled.make(rt, disks, &made).await?
                }
            };
            Ok(Box::new(report) as Box<dyn MadeReport>)
        })
    }

    fn read<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MountOptions,
    ) -> SystemFuture<'a, Mounted> {
        Box::pin(async move {
            let options = MountOptions { read_only: true, ..options.clone() };
            plain(rt, disks[0].clone(), NoOrder, &options).await
        })
    }

    fn edit<'a>(&'a self, rt: &'a Runtime, disks: &'a [Device]) -> SystemFuture<'a, Mounted> {
        Box::pin(async move {
            let options = MountOptions { use_reserve: true, ..MountOptions::default() };
            plain(rt, disks[0].clone(), NoOrder, &options).await
        })
    }

    fn facts<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, Facts> {
        Box::pin(async move {
            let found = find_superblock(disk).await?;
            let acl = found.sb.flags & FS_ACLS != 0;
            Ok(Facts { acl, big_endian: found.endian == Endian::Big })
        })
    }

    fn attach<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        choice: &'a Choice,
        options: &'a MountOptions,
        tell: &'a MessageSink,
    ) -> SystemFuture<'a, Attempt> {
        Box::pin(attach::attach(rt, disks, choice, options, tell))
    }

    fn replay<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> SystemFuture<'a, Option<Replayed>> {
        Box::pin(async move { Ok(journaled::replay(rt, disks).await?) })
    }

    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a CheckOptions,
    ) -> SystemFuture<'a, Box<dyn CheckReport>> {
        Box::pin(async move { Ok(Box::new(check(&disks[0], options).await?) as Box<_>) })
    }

    fn show<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a ShowOptions,
    ) -> SystemFuture<'a, String> {
        Box::pin(show::show(&disks[0], options))
    }

    fn judged(&self) -> Option<&dyn DiskFormat> {
        Some(self)
    }
}

async fn check(disk: &Device, options: &CheckOptions) -> Result<Report, SystemError> {
    let wanted = FsckOptions {
        repair: options.repair,
        superblock: options.superblock,
        skip_clean: options.skip_clean,
        trust_bitmaps: options.trust_bitmaps,
        ..FsckOptions::default()
    };
    let mut checker = Checker::new(disk.clone(), wanted);
    if let Some(progress) = options.progress.clone() {
        checker = checker
            .on_progress(Rc::new(move |phase, done, total| progress(words(phase), done, total)));
    }
    Ok(checker.run().await?)
}

fn words(phase: CheckPhase) -> &'static str {
    match phase {
        CheckPhase::Blocks => "blocks and sizes",
        CheckPhase::Names => "path names",
        CheckPhase::Connectivity => "connectivity",
        CheckPhase::References => "reference counts",
        CheckPhase::Groups => "cylinder groups",
        CheckPhase::Writing => "writing repairs",
    }
}

impl CheckReport for Report {
    fn exit_code(&self) -> i32 {
        Report::exit_code(self)
    }

    fn is_consistent(&self) -> bool {
        Report::is_consistent(self)
    }

    fn counts(&self) -> &BTreeMap<Severity, u64> {
        &self.counts
    }

    fn kinds(&self) -> Vec<(&'static str, Severity)> {
        self.findings.iter().map(|f| (f.kind(), self.severity(f))).collect()
    }

    fn unrepairable(&self) -> u64 {
        self.unrepairable
    }

    fn work(&self) -> CheckWork {
        self.work
    }

    fn files(&self) -> u64 {
        self.files
    }

    fn json(&self) -> Result<String, serde_json::Error> {
        json(self)
    }
}

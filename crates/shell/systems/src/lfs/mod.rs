//! LFS on NetBSD's format, and the system whose ordering is the log itself.

pub(crate) mod judged;
mod made;
pub(crate) mod mounted;
pub mod segments;
mod show;

use std::collections::BTreeMap;

use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device};
use ordo_check::lfs::{LfsChecker, LfsReport};
use ordo_check::{CheckWork, Repair, Severity};
use ordo_crash::{DiskFormat, FsGeometry, Promise};
use ordo_format::lfs::LABEL_BYTES;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_lfs::mkfs::{MkfsOptions, mkfs, segment_size};
use ordo_lfs::write::LfsRules;
use ordo_lfs::{LfsError, LfsReader};
use ordo_report::json;
use ordo_runtime::Runtime;
use ordo_vfs::AnyFs;

use crate::SystemError;
use crate::format::{Ability, Attempt, CheckReport, Facts, Format, MadeReport, SystemFuture};
use crate::journaled::Replayed;
use crate::mounted::{Mounted, OnlyRead};
use crate::options::{
    CheckOptions, Choice, MakeOptions, MessageSink, MountMessage, MountOptions, ShowOptions,
};
use crate::rules::names;
use crate::size::u32_of;
use crate::system::{ListedEntry, Mounting, System};

/// NetBSD's LFS64 and LFS32.
pub struct Lfs;

/// The log-structured file system.
pub const LFS: System = System(&ListedEntry {
    name: "lfs",
    about: "LFS, the log-structured file system: everything goes to the end of a log",
    ordering: "log",
    also: &[],
    format: &Lfs,
    mounting: Mounting::Rolling(|rt, disk, options| Box::pin(mounted::mount(rt, disk, options))),
    promise: Promise { no_stale: true, ..Promise::journal(false) },
    rules: names::<LfsRules>,
});

/// The number of blocks in a segment of an LFS in crash tests: few, so that segments are begun and
/// cleaned all the time.
const CRASHED_BLOCKS: u64 = 8;
/// The most blocks in a segment of a shape.
const SEGMENT_BLOCKS_MAX: u64 = 32;
/// The number of segments of an LFS in crash tests.
const CRASHED_SEGMENTS: u64 = 100;

/// The number of blocks in a segment of a shape: as many as in a group, if groups are small.
fn crashed_blocks(geometry: &FsGeometry) -> u64 {
    let small = geometry.group_blocks.map(u64::from).filter(|blocks| *blocks <= SEGMENT_BLOCKS_MAX);
    small.map_or(CRASHED_BLOCKS, |blocks| blocks.max(CRASHED_BLOCKS))
}

impl Lfs {
    fn options(&self, options: &MakeOptions, bytes: u64) -> Result<MkfsOptions, SystemError> {
        let refused = [
            (options.ufs1, "--ufs1"),
            (options.label.is_some(), "--label"),
            (options.soft_updates, "--soft-updates"),
            (options.big_endian, "--big-endian"),
            (options.density.is_some() || options.inodes.is_some(), "--density"),
            (options.group_blocks.is_some(), "a size of cylinder groups"),
            (options.log.is_some(), "--journal"),
            (options.no_check_hashes, "--no-check-hashes"),
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
            block_size,
            frag_size: given("fragment size", options.frag_size)?.unwrap_or(smallest),
            segment_size: given("segment size", options.segment_size)?
                .unwrap_or_else(|| segment_size(block_size.into(), bytes)),
            min_free: options.min_free.map_or(usual.min_free, u32::from),
            ident: u32_of("seed", options.seed)?,
            sealed: !options.no_seals,
        })
    }
}

impl Format for Lfs {
    fn name(&self) -> &'static str {
        "lfs"
    }

    fn noun(&self) -> &'static str {
        "an LFS"
    }

    fn abilities(&self) -> &'static [Ability] {
        &[Ability::Make, Ability::Read, Ability::Write, Ability::Check, Ability::Crash]
    }

    fn has_cleaner(&self) -> bool {
        true
    }

    fn is_on<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, bool> {
        Box::pin(async move { Ok(ordo_lfs::superblock::probe(disk).await?) })
    }

    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MakeOptions,
    ) -> SystemFuture<'a, Box<dyn MadeReport>> {
        Box::pin(async move {
            let have = disks[0].geometry().bytes;
            let size = options.size.unwrap_or(have);
            let made = self.options(options, size)?;
            if size > have {
                return Err(SystemError::NoFreeSpace { have, size });
            }
            let now = rt.wall_time().0.max(0).cast_unsigned();
            let sb =
                mkfs(Partition::new(disks[0].clone(), 0, size / 512 * 512), &made, now).await?;
            Ok(Box::new(sb) as Box<dyn MadeReport>)
        })
    }

    fn read<'a>(
        &'a self,
        _rt: &'a Runtime,
        disks: &'a [Device],
        _options: &'a MountOptions,
    ) -> SystemFuture<'a, Mounted> {
        Box::pin(async move {
            let reader = LfsReader::mount(disks[0].clone()).await?;
            Ok(Mounted::new(AnyFs::new(reader), OnlyRead))
        })
    }

    fn edit<'a>(&'a self, rt: &'a Runtime, disks: &'a [Device]) -> SystemFuture<'a, Mounted> {
        Box::pin(
            async move { mounted::mount(rt, disks[0].clone(), &MountOptions::default()).await },
        )
    }

    fn facts<'a>(&'a self, _disk: &'a Device) -> SystemFuture<'a, Facts> {
        Box::pin(async move { Ok(Facts::default()) })
    }

    fn attach<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        choice: &'a Choice,
        options: &'a MountOptions,
        tell: &'a MessageSink,
    ) -> SystemFuture<'a, Attempt> {
        Box::pin(async move {
            if choice.ordering.is_some_and(|ordering| ordering != LFS.ordering()) {
                return Err(SystemError::Option { option: "ordering=", what: self.noun() });
            }
            if choice.log.is_some() {
                return Err(SystemError::Option { option: "log=", what: self.noun() });
            }
            let found = ordo_lfs::superblock::find(&disks[0]).await?;
            if found.sb.pflags & PF_CLEAN == 0 {
                (tell)(MountMessage::Notice("not unmounted cleanly: rolling forward"));
            }
            let sealed = ordo_lfs::has_seals(&disks[0]).await?;
            match mounted::mount(rt, disks[0].clone(), options).await {
                Ok(mounted) => {
                    if !sealed {
                        (tell)(MountMessage::Notice(
                            "its log has no seals and is written by NetBSD's rules: blocks, flush, summaries, flush",
                        ));
                    }
                    Ok(Attempt::Mounted(mounted, LFS.ordering()))
                }
                Err(SystemError::Lfs(LfsError::NotWritable(why))) => {
                    Ok(Attempt::ReadOnly(why.to_owned()))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn replay<'a>(
        &'a self,
        _rt: &'a Runtime,
        _disks: &'a [Device],
    ) -> SystemFuture<'a, Option<Replayed>> {
        // A reader rolls forward in memory, and a repair does it on disk.
        Box::pin(async move { Ok(None) })
    }

    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a CheckOptions,
    ) -> SystemFuture<'a, Box<dyn CheckReport>> {
        Box::pin(async move {
            if disks.len() > 1 {
                return Err(SystemError::Option { option: "--journal", what: self.noun() });
            }
            let disk = disks[0].clone();
            let found = ordo_lfs::superblock::find(&disk).await;
            let is_clean = found.is_ok_and(|f| f.sb.pflags & PF_CLEAN != 0);
            let report = match options.skip_clean && is_clean {
                true => LfsChecker::new(disk, Repair::No).skipped().await?,
                false => LfsChecker::new(disk, options.repair).run().await?,
            };
            Ok(Box::new(report) as Box<dyn CheckReport>)
        })
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

    fn crash_bytes(&self, geometry: &FsGeometry) -> Option<u64> {
        let segments = CRASHED_SEGMENTS * crashed_blocks(geometry) * u64::from(geometry.block_size);
        Some(LABEL_BYTES + segments)
    }

    fn crash_free(&self, geometry: &FsGeometry) -> Option<u64> {
        // A full shape leaves as much space as an FFS of that shape has in all.
        (geometry.min_free == 0).then_some(geometry.bytes)
    }

    fn crash_options(&self, geometry: &FsGeometry) -> MakeOptions {
        MakeOptions {
            block_size: Some(geometry.block_size.into()),
            frag_size: Some(geometry.frag_size.min(LABEL_BYTES as u32).into()),
            segment_size: Some(crashed_blocks(geometry) * u64::from(geometry.block_size)),
            ..MakeOptions::default()
        }
    }
}

impl CheckReport for LfsReport {
    fn exit_code(&self) -> i32 {
        LfsReport::exit_code(self)
    }

    fn is_consistent(&self) -> bool {
        LfsReport::is_consistent(self)
    }

    fn counts(&self) -> &BTreeMap<Severity, u64> {
        &self.counts
    }

    fn kinds(&self) -> Vec<(&'static str, Severity)> {
        self.findings.iter().map(|f| (f.kind(), f.severity())).collect()
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

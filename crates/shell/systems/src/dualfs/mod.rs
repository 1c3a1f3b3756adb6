//! DualFS: metadata in a log on one device, data in groups on another.

mod judged;
mod made;
mod mounted;
mod show;

use ordo_block::Device;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_crash::{DiskFormat, FsGeometry, Promise};
use ordo_dualfs::DualRules;
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::pair::{Pair, probe, read_identity};
use ordo_format::dualfs::ROLE_METADATA;
use ordo_format::lfs::LABEL_BYTES;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_lfs::LfsError;
use ordo_lfs::superblock::{VolumeKind, find_kind};
use ordo_lfs::write::LfsRules;
use ordo_runtime::Runtime;
use ordo_vfs::AnyFs;

pub(crate) use judged::Salvaged;

use crate::SystemError;
use crate::format::{Ability, Attempt, CheckReport, Facts, Format, Half, MadeReport, SystemFuture};
use crate::journaled::Replayed;
use crate::mounted::{Mounted, OnlyRead};
use crate::options::{
    CheckOptions, Choice, MakeOptions, MessageSink, MountMessage, MountOptions, ShowOptions,
};
use crate::rules::names;
use crate::size::u32_of;
use crate::system::{ListedEntry, MountDevicesFn, Mounting, System};

/// The format of both devices.
pub struct Dual;

const fn entry(name: &'static str, about: &'static str, apart: bool) -> ListedEntry {
    let mount: MountDevicesFn = |rt, disks, options| Box::pin(mounted::mount(rt, disks, options));
    ListedEntry {
        name,
        about,
        ordering: "dual",
        also: &[],
        format: &Dual,
        mounting: Mounting::Pair { apart, mount },
        promise: Promise { no_stale: true, ..Promise::journal(false) },
        rules,
    }
}

/// DualFS with both devices on one disk, the metadata first.
pub const DUALFS: System =
    System(&entry("dualfs", "DualFS: metadata in a log, data in groups, both on one disk", false));
/// DualFS with a disk for each device.
pub const DUALFS_2: System =
    System(&entry("dualfs-2", "DualFS with metadata and data on a disk each", true));

/// The rules of the metadata log, which always has seals, and those between the devices.
fn rules() -> Vec<&'static str> {
    let of_log = names::<LfsRules>().into_iter().filter(|rule| *rule != "BLOCKS_FIRST");
    of_log.chain(names::<DualRules>()).collect()
}

/// The number of blocks in a segment of a metadata log in crash tests: few, so that segments are
/// begun and cleaned all the time.
const CRASHED_SEGMENT: u64 = 8;
/// The number of segments of a metadata log in crash tests.
const CRASHED_SEGMENTS: u64 = 100;
/// The number of blocks of a data device in crash tests, and of each of its groups.
const CRASHED_BLOCKS: u64 = 256;
const CRASHED_GROUP: u32 = 64;
/// The largest block of the format, in bytes.
const BLOCK_MAX: u32 = 8192;

/// The sizes of the metadata device and of the data device for `bytes` bytes of data: a tenth is
/// added for metadata.
pub(crate) fn sizes(bytes: u64, block: u32) -> Vec<u64> {
    let least = LABEL_BYTES + CRASHED_SEGMENTS * CRASHED_SEGMENT * u64::from(block.min(BLOCK_MAX));
    vec![(bytes / 10).max(least).next_multiple_of(u64::from(BLOCK_MAX)), bytes]
}

/// The sizes of both devices in crash tests.
pub(crate) fn crash_sizes(geometry: &FsGeometry) -> Vec<u64> {
    vec![crash_metadata(geometry), CRASHED_BLOCKS * crash_block(geometry)]
}

fn crash_block(geometry: &FsGeometry) -> u64 {
    geometry.block_size.min(BLOCK_MAX).into()
}

fn crash_metadata(geometry: &FsGeometry) -> u64 {
    let segments = CRASHED_SEGMENTS * CRASHED_SEGMENT * crash_block(geometry);
    (LABEL_BYTES + segments).next_multiple_of(u64::from(BLOCK_MAX))
}

/// Room for a copy of all metadata of a crash test, on a metadata device of this size.
pub(crate) fn crash_copy(metadata: MetadataSize) -> MetadataSize {
    MetadataSize::Bytes(bytes_of(metadata) + bytes_of(metadata) / 16)
}

/// The bytes of a size that is not a share.
pub(crate) fn bytes_of(size: MetadataSize) -> u64 {
    match size {
        MetadataSize::Bytes(bytes) => bytes,
        MetadataSize::Percent(_) => unreachable!("crash tests have sizes in bytes"),
    }
}

/// Whether the superblock says that the file system was unmounted.
async fn is_clean(disks: &[Device]) -> bool {
    let Ok(pair) = Pair::open(disks).await else { return false };
    let found = find_kind(&pair.metadata, VolumeKind::Dual).await;
    found.is_ok_and(|found| found.sb.pflags & PF_CLEAN != 0)
}

impl Dual {
    fn options(&self, options: &MakeOptions) -> Result<MkfsOptions, SystemError> {
        let refused = [
            (options.ufs1, "--ufs1"),
            (options.label.is_some(), "--label"),
            (options.soft_updates, "--soft-updates"),
            (options.big_endian, "--big-endian"),
            (options.density.is_some() || options.inodes.is_some(), "--density"),
            (options.frag_size.is_some(), "--frag-size"),
            (options.log.is_some(), "--journal"),
            (options.no_check_hashes, "--no-check-hashes"),
            (options.no_seals, "--no-crc"),
        ];
        if let Some((_, option)) = refused.into_iter().find(|(given, _)| *given) {
            return Err(SystemError::Option { option, what: self.noun() });
        }
        let usual = MkfsOptions::default();
        let given = |what, bytes: Option<u64>| bytes.map(|b| u32_of(what, b)).transpose();
        Ok(MkfsOptions {
            block_size: given("block size", options.block_size)?.unwrap_or(usual.block_size),
            segment_size: given("segment size", options.segment_size)?,
            group_blocks: options.group_blocks,
            metadata: options.metadata.unwrap_or(usual.metadata),
            copy: options.metadata_copy,
            size: options.size,
            min_free: options.min_free.map_or(usual.min_free, u32::from),
            seed: options.seed,
        })
    }
}

impl Format for Dual {
    fn name(&self) -> &'static str {
        "dualfs"
    }

    fn noun(&self) -> &'static str {
        "a DualFS"
    }

    fn abilities(&self) -> &'static [Ability] {
        &[Ability::Make, Ability::Read, Ability::Write, Ability::Check, Ability::Crash]
    }

    fn has_cleaner(&self) -> bool {
        true
    }

    fn is_on<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, bool> {
        Box::pin(async move { Ok(probe(disk).await?) })
    }

    fn has_pairs(&self) -> bool {
        true
    }

    fn half<'a>(&'a self, disk: &'a Device) -> SystemFuture<'a, Option<Half>> {
        Box::pin(async move {
            let found = read_identity(disk).await?.ok().filter(|id| id.data_at == 0);
            Ok(found.map(|id| {
                let is_first = id.role == ROLE_METADATA;
                let other = if is_first { "data" } else { "metadata" };
                Half { pair: id.name().to_string(), role: id.role_name(), other, is_first }
            }))
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
            if disks.len() > 1 && options.metadata.is_some() {
                return Err(SystemError::Option { option: "--meta", what: "two devices" });
            }
            Ok(Box::new(mkfs(rt, disks, &made).await?) as Box<dyn MadeReport>)
        })
    }

    fn read<'a>(
        &'a self,
        _rt: &'a Runtime,
        disks: &'a [Device],
        options: &'a MountOptions,
    ) -> SystemFuture<'a, Mounted> {
        Box::pin(async move {
            let reader = match options.salvage {
                true => ordo_dualfs::salvage::read(disks).await?.0,
                false => ordo_dualfs::mount::read(disks).await?,
            };
            Ok(Mounted::new(AnyFs::new(reader), OnlyRead))
        })
    }

    fn edit<'a>(&'a self, rt: &'a Runtime, disks: &'a [Device]) -> SystemFuture<'a, Mounted> {
        Box::pin(async move { mounted::mount(rt, disks, &MountOptions::default()).await })
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
            if choice.ordering.is_some_and(|ordering| ordering != DUALFS.ordering()) {
                return Err(SystemError::Option { option: "ordering=", what: self.noun() });
            }
            if choice.log.is_some() {
                return Err(SystemError::Option { option: "log=", what: self.noun() });
            }
            let pair = Pair::open(disks).await?;
            let found = find_kind(&pair.metadata, VolumeKind::Dual).await?;
            if found.sb.pflags & PF_CLEAN == 0 {
                (tell)(MountMessage::Notice("not unmounted cleanly: rolling forward"));
            }
            match mounted::mount(rt, disks, options).await {
                Ok(mounted) => Ok(Attempt::Mounted(mounted, DUALFS.ordering())),
                Err(SystemError::Dual(ordo_dualfs::DualError::Log(LfsError::NotWritable(why)))) => {
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
            let report = match options.skip_clean && is_clean(disks).await {
                true => DualChecker::new(disks, Repair::No).skipped().await?,
                false => DualChecker::new(disks, options.repair).run().await?,
            };
            Ok(Box::new(report) as Box<dyn CheckReport>)
        })
    }

    fn show<'a>(
        &'a self,
        disks: &'a [Device],
        options: &'a ShowOptions,
    ) -> SystemFuture<'a, String> {
        Box::pin(show::show(disks, options))
    }

    fn judged(&self) -> Option<&dyn DiskFormat> {
        Some(self)
    }

    fn crash_bytes(&self, geometry: &FsGeometry) -> Option<u64> {
        Some(crash_sizes(geometry).iter().sum())
    }

    fn crash_options(&self, geometry: &FsGeometry) -> MakeOptions {
        MakeOptions {
            block_size: Some(crash_block(geometry)),
            segment_size: Some(CRASHED_SEGMENT * crash_block(geometry)),
            group_blocks: Some(CRASHED_GROUP),
            metadata: Some(MetadataSize::Bytes(crash_metadata(geometry))),
            ..MakeOptions::default()
        }
    }
}

//! Systems in the form that the crash explorer takes.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_crash::{DiskFormat, FsGeometry, Promise, Scheme, Volume};
use ordo_ffs::mount;
use ordo_ordering::Ordering;
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{FileSystem, NewNode};

use crate::SystemError;
use crate::ffs::UFS2;
use crate::forms::CrashForm;
use crate::journaled::LogPlace;
use crate::options::{LogOptions, MakeOptions, MountOptions};
use crate::system::System;

/// The tick of a journal in a crash test. A short tick lets little time pass between two states.
const TICK: Duration = Duration::from_millis(5);

/// The mkfs options for a shape of a crash test.
pub fn shaped(geometry: &FsGeometry) -> MakeOptions {
    MakeOptions {
        block_size: Some(geometry.block_size.into()),
        frag_size: Some(geometry.frag_size.into()),
        group_blocks: geometry.group_blocks,
        density: geometry.density.map(u64::from),
        min_free: Some(geometry.min_free),
        ufs1: geometry.ufs1,
        ..MakeOptions::default()
    }
}

/// The number of blocks of a file that fills space in a full shape.
const FILLER_BLOCKS: u64 = 10;

/// A system in a shape, with the promise to which it is held.
#[derive(Clone, Debug)]
pub struct Crashed {
    system: System,
    promise: Promise,
    geometry: FsGeometry,
    without: Option<&'static str>,
    form: CrashForm,
}

impl System {
    /// A system in a shape, for the crash explorer. It is held to the promise of `held_to` if that
    /// is given, and to its own otherwise.
    ///
    /// # Errors
    /// The system cannot be mounted for writing.
    pub fn crashed(
        &self,
        held_to: Option<System>,
        geometry: &FsGeometry,
    ) -> Result<Crashed, SystemError> {
        if !self.is_runnable() {
            return Err(self.format().cannot("crashed"));
        }
        let promise = held_to.unwrap_or(*self).promise();
        let (geometry, without) = (geometry.clone(), None);
        Ok(Crashed { system: *self, promise, geometry, without, form: CrashForm::Usual })
    }
}

impl Crashed {
    /// The same system with one rule of its ordering switched off: one of [`System::rules`]; in the
    /// form in which the rule matters.
    #[must_use]
    pub fn without(self, rule: &'static str) -> Crashed {
        Crashed { without: Some(rule), ..self.in_form_for(rule) }
    }

    /// The same system in the form in which a rule matters: for example a log without seals, or a
    /// checkpoint that cannot be read.
    #[must_use]
    pub fn in_form_for(self, rule: &str) -> Crashed {
        let form = CrashForm::of(rule);
        Crashed { promise: form.promise(self.promise), form, ..self }
    }

    /// The sizes of the devices in the usual form.
    fn usual_devices(&self) -> Vec<u64> {
        let bytes = self.geometry.bytes;
        if self.system.is_apart() {
            return crate::dualfs::crash_sizes(&self.geometry);
        }
        if let Some(bytes) = self.system.format().crash_bytes(&self.geometry) {
            return vec![bytes];
        }
        let Some(journal) = self.system.journal() else { return vec![bytes] };
        let log = journal.sizes(bytes, self.geometry.block_size).1;
        match journal.place {
            LogPlace::Other => vec![bytes, log],
            // A small shape has no space for a log, so the log's bytes come in addition.
            LogPlace::File | LogPlace::Same if self.geometry.min_free == 0 => vec![bytes + log],
            LogPlace::File | LogPlace::Same => vec![bytes],
        }
    }
}

/// Fills a new file system with files that the judge ignores, until `left` bytes are free.
async fn fill(system: System, rt: &Runtime, disks: &[Device], left: u64) -> Result<(), String> {
    let mounted = system.mount(rt, disks, &MountOptions::default()).await.map_err(said)?;
    let fs = mounted.fs();
    for number in 0u64.. {
        let stat = fs.statfs().await.map_err(said)?;
        let free = stat.blocks_free * u64::from(stat.fragment_size);
        let each = FILLER_BLOCKS * u64::from(stat.block_size);
        if free < left + each {
            break;
        }
        let name = format!("lost+found.{number}").into_bytes();
        let file = fs.create(fs.root(), &name, &NewNode::file(0o600)).await.map_err(said)?;
        let written = fs.write(file.ino, 0, &vec![number as u8; each as usize]).await;
        written.map_err(said)?;
    }
    mounted.unmount().await.map_err(said)
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Scheme for Crashed {
    fn name(&self) -> &str {
        self.system.name()
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn format(&self) -> Option<&dyn DiskFormat> {
        match self.form {
            CrashForm::Salvaged => Some(&crate::dualfs::Salvaged),
            _ => self.system.format().judged(),
        }
    }

    fn devices(&self) -> Vec<u64> {
        let mut sizes = self.usual_devices();
        if self.form == CrashForm::Salvaged {
            let made = self.system.format().crash_options(&self.geometry);
            let copy = self.form.made(made).metadata_copy;
            *sizes.last_mut().expect("a device") += copy.map_or(0, crate::dualfs::bytes_of);
        }
        sizes
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let made = self.form.made(self.system.format().crash_options(&self.geometry));
        self.system.make(rt, disks, &made).await.map_err(said)?;
        if self.form == CrashForm::Salvaged {
            // The first checkpoint is copied when a mount makes one.
            let first = self.system.mount(rt, disks, &MountOptions::default()).await;
            let first = first.map_err(said)?;
            let (fs, node) = (first.fs(), NewNode::file(0o600));
            let file = fs.create(fs.root(), b"lost+found.first", &node).await.map_err(said)?;
            fs.fsync(file.ino).await.map_err(said)?;
            first.unmount().await.map_err(said)?;
        }
        match self.system.format().crash_free(&self.geometry) {
            Some(left) => fill(self.system, rt, disks, left).await,
            None => Ok(()),
        }
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let log = LogOptions { tick: Some(TICK), ..LogOptions::default() };
        let (cache, without) = (cache.clone(), self.without);
        let options = MountOptions { cache, log, without, ..MountOptions::default() };
        let mounted = self.system.mount(rt, disks, &options).await.map_err(said)?;
        let fs = mounted.fs().clone();
        Ok(Volume::new(fs, move |_| {
            let mounted = mounted.clone();
            async move { mounted.unmount().await }
        }))
    }

    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        if !self.recovers() || self.form == CrashForm::Salvaged {
            return Ok(());
        }
        self.form.strike(disks).await.map_err(said)?;
        let volume = self.mount(rt, disks, &CacheConfig::default()).await?;
        volume.unmount().await.map_err(said)
    }

    fn recovers(&self) -> bool {
        self.system.recovers()
    }
}

/// FFS on one device under an ordering that is not in the registry, for example one of a test.
#[derive(Clone)]
pub struct OnFfs<M> {
    name: String,
    policy: M,
    promise: Promise,
    geometry: FsGeometry,
}

impl<P: Into<Ordering> + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> OnFfs<M> {
    /// FFS of 1 MiB with blocks of 4 KiB and fragments of 512 bytes, under the ordering that
    /// `policy` makes.
    pub fn new(name: impl Into<String>, policy: M, promise: Promise) -> OnFfs<M> {
        OnFfs { name: name.into(), policy, promise, geometry: FsGeometry::default() }
    }

    /// The same system in another shape.
    #[must_use]
    pub fn shaped(self, geometry: &FsGeometry) -> OnFfs<M> {
        OnFfs { geometry: geometry.clone(), ..self }
    }
}

impl<P: Into<Ordering> + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> Scheme
    for OnFfs<M>
{
    fn name(&self) -> &str {
        &self.name
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn format(&self) -> Option<&dyn DiskFormat> {
        Some(&UFS2)
    }

    fn devices(&self) -> Vec<u64> {
        vec![self.geometry.bytes]
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        crate::ffs::NONE.make(rt, disks, &shaped(&self.geometry)).await.map_err(said)
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() }.ffs();
        let fs = mount(rt, disks[0].clone(), (self.policy)(), &options).await.map_err(said)?;
        Ok(Volume::new(fs, |fs| async move { fs.unmount().await }))
    }
}

#[cfg(test)]
mod tests {
    use ordo_block::{BlockDevice, ram::RamDisk};
    use ordo_ffs::mkfs::plan;

    use super::*;

    /// Each shape can be made, and has the properties that its name says. Would catch a size for
    /// which mkfs makes other groups than intended.
    #[test]
    fn each_geometry_can_be_made_and_is_what_it_is_called() {
        let default = FsGeometry::default();
        assert_eq!((default.name.as_str(), default.bytes), ("4k-512", 1 << 20));
        for geometry in FsGeometry::all() {
            let disk = RamDisk::new(geometry.bytes).geometry();
            let made = plan(&crate::ffs::mkfs_options(&geometry), &disk, 0);
            let sb = made.unwrap_or_else(|e| panic!("{}: {e}", geometry.name)).superblock;
            let what = format!("{}: {} groups, {} free", geometry.name, sb.ncg, sb.dsize);
            assert_eq!(
                (sb.bsize as u32, sb.fsize as u32),
                (geometry.block_size, geometry.frag_size)
            );
            let free = sb.dsize / i64::from(sb.frag);
            match geometry.name.rsplit('-').next().unwrap() {
                "full" => assert!(free <= 40 && sb.minfree == 0, "{what}"),
                "groups" => assert!(sb.ncg >= 12 && free / i64::from(sb.ncg) <= 26, "{what}"),
                _ => assert!(sb.ncg >= 3 && free > 80, "{what}"),
            }
            assert_eq!(FsGeometry::by_name(&geometry.name), Some(geometry));
        }
    }
}

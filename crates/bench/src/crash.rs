//! The systems and workloads of the comparison, as the crash explorer takes them.
//!
//! [`with_scheme`] is where a system's name becomes something to crash, with what it promises.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_cache::CacheConfig;
use ordo_crash::history::Watched;
use ordo_crash::{HeldTo, OnFfs, Promise, Scheme};
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ordering::{NoOrder, SoftUpdates, SyncOrder};
use ordo_runtime::{Duration, Runtime, cpu::CpuModel};
use ordo_vfs::charged::Charged;
use ordo_vfs::{FileSystem, FsResult};

use crate::compare::System;
use crate::journaled::{Journaled, JournaledFs, LogPlace};
use crate::workload::{Stage, Workload};

/// Who wants a scheme, of whatever type it is.
pub trait UseScheme {
    /// What it gives.
    type Out;

    /// Uses it.
    fn with<S: Scheme>(self, scheme: &S) -> Self::Out;
}

/// Hands the scheme of a system to `user`, on a first disk of `bytes` bytes, held to the promise of the
/// system `held_to` where that is given.
pub fn with_scheme<U: UseScheme>(
    system: System,
    held_to: Option<System>,
    bytes: u64,
    user: U,
) -> U::Out {
    let Some(other) = held_to else { return with_own(system, bytes, user) };
    let promise = with_own(other, bytes, ItsPromise);
    with_own(system, bytes, Held { promise, user })
}

struct ItsPromise;

impl UseScheme for ItsPromise {
    type Out = Promise;
    fn with<S: Scheme>(self, scheme: &S) -> Promise {
        scheme.promise()
    }
}

struct Held<U> {
    promise: Promise,
    user: U,
}

impl<U: UseScheme> UseScheme for Held<U> {
    type Out = U::Out;
    fn with<S: Scheme>(self, scheme: &S) -> U::Out {
        self.user.with(&HeldTo { scheme: scheme.clone(), promise: self.promise })
    }
}

fn with_own<U: UseScheme>(system: System, bytes: u64, user: U) -> U::Out {
    let mkfs = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
    let name = system.name();
    if let Some(journal) = system.journal() {
        return user.with(&OnJournal { name, journal, bytes, mkfs });
    }
    match system {
        System::FfsSync => {
            user.with(&OnFfs::new(name, SyncOrder::default, Promise::SYNC).sized(bytes, mkfs))
        }
        System::FfsSoftUpdates => user.with(
            &OnFfs::new(name, SoftUpdates::default, Promise::SOFT_UPDATES).sized(bytes, mkfs),
        ),
        _ => user.with(&OnFfs::new(name, || NoOrder, Promise::NONE).sized(bytes, mkfs)),
    }
}

/// A journaled system. Its log is looked after often, so that little time passes between two states.
#[derive(Clone)]
struct OnJournal {
    name: &'static str,
    journal: Journaled,
    bytes: u64,
    mkfs: MkfsOptions,
}

/// How often the journal looks after its log when it is crashed.
const TICK: Duration = Duration::from_millis(5);

impl Scheme for OnJournal {
    type Fs<D: BlockDevice> = JournaledFs<D>;

    fn name(&self) -> &str {
        self.name
    }

    fn promise(&self) -> Promise {
        Promise::journal(self.journal.synchronous)
    }

    fn devices(&self) -> Vec<u64> {
        match self.journal.place {
            LogPlace::Other => vec![self.bytes, self.journal.sizes(self.bytes).1],
            LogPlace::File | LogPlace::Same => vec![self.bytes],
        }
    }

    async fn make<D: BlockDevice>(&self, rt: &Runtime, disks: &[Rc<D>]) -> Result<(), String> {
        self.journal.make(rt, disks, &self.mkfs).await.map(drop).map_err(|e| e.to_string())
    }

    async fn mount<D: BlockDevice>(
        &self,
        rt: &Runtime,
        disks: &[Rc<D>],
        cache: &CacheConfig,
    ) -> Result<JournaledFs<D>, String> {
        let mut journal = self.journal;
        journal.options.tick = TICK;
        journal.options.checkpoint_every = TICK;
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        let mounted = journal.mount(rt, disks, &options).await;
        mounted.map(|(fs, _)| fs).map_err(|e| e.to_string())
    }

    async fn recover<D: BlockDevice>(&self, rt: &Runtime, disks: &[Rc<D>]) -> Result<(), String> {
        let fs = self.mount(rt, disks, &CacheConfig::default()).await?;
        fs.unmount().await.map_err(|e| e.to_string())
    }

    fn recovers(&self) -> bool {
        true
    }
}

/// A workload of the comparison with a seed.
pub struct Seeded<'w> {
    /// The workload.
    pub workload: &'w Workload,
    /// Fixes its choices.
    pub seed: u64,
}

struct OnWatched<F> {
    fs: Charged<Watched<F>>,
    runtime: Runtime,
}

impl<F: FileSystem> Stage for OnWatched<F> {
    type Fs = Charged<Watched<F>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.sync().await
    }
}

impl ordo_crash::Workload for Seeded<'_> {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> Watched<F>,
    ) -> Result<(), String> {
        // Else all of it would be done before anything is written.
        rt.cpu().set_model(CpuModel::PENTIUM_II_300);
        let fs = Charged::new(client(0), rt.clone());
        let mut stage = OnWatched { fs, runtime: rt.clone() };
        let ran = self.workload.run(&mut stage, self.seed, &mut ()).await;
        ran.map(drop).map_err(|e| e.to_string())
    }
}

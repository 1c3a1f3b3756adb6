//! The file systems, with their promises.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_crash::disk::Scratch;
use ordo_crash::{
    Config, CrashError, DiskFormat, Promise, Question, Run, RunWorkload, Scheme, Verdict, Volume,
};
use ordo_kernelfs::table::KernelFs;
use ordo_runtime::Runtime;

use crate::judge;

/// A kernel file system in one of its modes.
#[derive(Clone, Copy, Debug)]
pub struct KernelSystem {
    /// The name by which a user chooses it.
    pub name: &'static str,
    /// The kernel's name for it.
    pub kind: &'static str,
    /// Additional arguments for mkfs.
    pub(crate) mkfs: &'static [&'static str],
    /// The mount options.
    pub(crate) options: &'static str,
    /// The size of its device in bytes.
    pub(crate) bytes: u64,
    /// Whether file contents are on disk before the metadata that lead to them.
    contents_first: bool,
    /// Whether making anything durable also makes all earlier changes of names durable, even if
    /// only one of them is visible.
    ordered: bool,
    /// The promise by which the system is judged, if it is not its usual one.
    held_to: Option<Promise>,
}

const SMALL: &[&str] = &["-b", "1024", "-I", "256"];
const EXT: KernelSystem = KernelSystem {
    name: "ext4",
    kind: "ext4",
    mkfs: SMALL,
    options: "defaults",
    bytes: 8 << 20,
    contents_first: true,
    ordered: true,
    held_to: None,
};

impl KernelSystem {
    /// All file systems.
    pub const ALL: [KernelSystem; 7] = [
        KernelSystem { name: "ext2", kind: "ext2", ..EXT },
        KernelSystem { name: "ext3", kind: "ext3", ..EXT },
        KernelSystem { name: "ext3-journal", kind: "ext3", options: "data=journal", ..EXT },
        KernelSystem {
            name: "ext3-writeback",
            kind: "ext3",
            options: "data=writeback",
            contents_first: false,
            ..EXT
        },
        EXT,
        KernelSystem { name: "xfs", kind: "xfs", mkfs: &[], bytes: 300 << 20, ..EXT },
        KernelSystem {
            name: "btrfs",
            kind: "btrfs",
            mkfs: &[],
            bytes: 128 << 20,
            ordered: false,
            ..EXT
        },
    ];

    /// The file system with this name.
    pub fn by_name(name: &str) -> Option<KernelSystem> {
        KernelSystem::ALL.into_iter().find(|system| system.name == name)
    }

    /// The same file system, held to another promise.
    pub fn holding(self, promise: Promise) -> KernelSystem {
        KernelSystem { held_to: Some(promise), ..self }
    }

    /// Its programs.
    pub(crate) fn known(&self) -> &'static KernelFs {
        KernelFs::by_name(self.kind).expect("each is one of the kernel's")
    }

    /// A lock to hold while one is mounted, if only one may be mounted at a time.
    pub(crate) fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        static TURN: Mutex<()> = Mutex::new(());
        self.known().is_alone.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it can be mounted in the state that a crash left.
    pub(crate) fn has_journal(&self) -> bool {
        self.known().repair.is_empty()
    }
}

/// The error for parts of [`Scheme`] that this process does not have.
const ELSEWHERE: &str = "a file system of the kernel's is made and mounted by the kernel";

impl Scheme for KernelSystem {
    fn name(&self) -> &str {
        self.name
    }

    /// The usual promise of a metadata journal: it can be mounted at once, durable changes are
    /// there, and names, permissions and attributes are those after some number of operations.
    /// btrfs does not keep the last part, since its log holds only what an fsync asked for, and not
    /// earlier changes. ext2 promises nothing.
    fn promise(&self) -> Promise {
        if let Some(promise) = self.held_to {
            return promise;
        }
        if !self.has_journal() {
            return Promise::NONE;
        }
        let (ordered, no_stale) = (self.ordered, self.contents_first);
        Promise { ordered, passed: ordered, no_stale, ..Promise::journal(false) }
    }

    /// No format: the kernel and the file system's own check judge it.
    fn format(&self) -> Option<&dyn DiskFormat> {
        None
    }

    fn devices(&self) -> Vec<u64> {
        vec![self.bytes]
    }

    async fn make(&self, _rt: &Runtime, _disks: &[Device]) -> Result<(), String> {
        Err(ELSEWHERE.into())
    }

    async fn mount(
        &self,
        _rt: &Runtime,
        _disks: &[Device],
        _cache: &CacheConfig,
    ) -> Result<Volume, String> {
        Err(ELSEWHERE.into())
    }

    fn record<W: RunWorkload>(&self, workload: &W, config: &Config) -> Result<Run, CrashError> {
        crate::record(self, workload, config)
    }

    fn record_recovery(
        &self,
        images: &[Arc<Vec<u8>>],
        of: &Run,
        _seed: u64,
    ) -> Result<Run, String> {
        crate::record::record_recovery(self, &images[0], of).map_err(|e| e.to_string())
    }

    /// The kernel works in real time, so a run cannot be repeated.
    fn repeats(&self) -> bool {
        false
    }

    fn judge_outside(&self, disks: &[Rc<Scratch>], question: &Question<'_>) -> Option<Verdict> {
        Some(judge::judge(self, &disks[0].to_vec(), question))
    }
}

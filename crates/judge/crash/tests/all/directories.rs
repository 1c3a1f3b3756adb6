//! Directories that grow by chunk, fragment, block and indirect block, crashed on every geometry.
//!
//! Fault model: completed is durable, with a crash after every completed write; a volatile cache
//! that loses any subset, torn at 512 bytes. Two clients make names, long and short, in one
//! directory and in the root; one of them makes its last file durable now and then; half of the
//! names are removed again. In each state the checker may have only the findings that the scheme
//! allows. Some of the images are mounted without a check and used.

use ordo_crash::recording::RecordingFs;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Outcome, Promise, RunWorkload, explore};
use ordo_ordering::{OrderingPolicy, SoftRules, SoftUpdates, SyncOrder};
use ordo_runtime::Runtime;
use ordo_systems::OnFfs;
use ordo_vfs::{FileSystem, FsError, Ino, NewNode};

/// A workload that makes `count` names of `len` bytes in the root, and as many in a directory.
struct Names {
    count: usize,
    len: usize,
}

impl Names {
    fn name(&self, number: usize) -> Vec<u8> {
        let mut name = format!("{number:03}-").into_bytes();
        name.resize(self.len.max(name.len()), b'n');
        name
    }

    async fn client<F: FileSystem>(&self, fs: &F, dir: Ino, each: usize) -> Result<(), FsError> {
        let new = NewNode::file(0o644);
        for number in 0..self.count {
            let made = fs.create(dir, &self.name(number), &new).await?;
            if number % each == each - 1 {
                fs.fsync(made.ino).await?;
            }
        }
        for number in (0..self.count).step_by(2) {
            fs.unlink(dir, &self.name(number)).await?;
        }
        Ok(())
    }
}

impl RunWorkload for Names {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
    ) -> Result<(), String> {
        let (one, two) = (client(0), client(1));
        let work = async {
            let dir = one.create(one.root(), b"d", &NewNode::directory(0o755)).await?.ino;
            let names = Names { ..*self };
            let root = two.root();
            let other =
                rt.spawn("a client", async move { names.client(&two, root, usize::MAX).await });
            self.client(&one, dir, 16).await?;
            other.await?;
            one.sync().await
        };
        work.await.map_err(|e: FsError| e.to_string())
    }
}

fn grow<P: OrderingPolicy + 'static>(
    geometry: &FsGeometry,
    policy: impl Fn() -> P + Clone + Send + Sync + 'static,
    promise: Promise,
    (names, model, seed): (&Names, CrashModel, u64),
) -> Outcome {
    let scheme = OnFfs::new("grown", policy, promise).shaped(geometry);
    let budget = Budget { states: 800, ..Budget::default() };
    explore(&scheme, names, &Config::new(seed, model), &budget).unwrap()
}

/// Short names fill chunks; long ones fill fragments, blocks and, where a block is small, an
/// indirect block.
fn loads(geometry: &FsGeometry) -> Vec<Names> {
    let indirect = if geometry.block_size == 4096 { 2 * 12 * 8 } else { 40 };
    vec![Names { count: 40, len: 20 }, Names { count: indirect, len: 250 }]
}

/// On no geometry does a directory have a size whose chunks were never written, a pointer beyond
/// its size, or a hole before its end. On fragments larger than a chunk this once happened: the new
/// size was on disk before the chunk.
#[test]
fn directories_grow_in_order_on_every_geometry() {
    for geometry in FsGeometry::all().into_iter().filter(|g| !g.name.ends_with("full")) {
        for names in loads(&geometry) {
            for model in [CrashModel::Completed, CrashModel::Volatile] {
                let what =
                    format!("{}, {} names of {}, {model:?}", geometry.name, names.count, names.len);
                let soft = (SoftUpdates::default, Promise::SOFT_UPDATES);
                let run = (&names, model, 1);
                grow(&geometry, soft.0, soft.1, run).expect_kept(&format!("soft updates, {what}"));
                grow(&geometry, SyncOrder::default, Promise::SYNC, run)
                    .expect_kept(&format!("sync, {what}"));
            }
        }
    }
}

/// Without the rule a size is on disk before the chunk that it covers, on every geometry whose
/// fragments are larger than a chunk: there the space behind the root's first chunk has the
/// contents that mkfs left.
#[test]
fn a_size_without_its_chunk_is_seen() {
    let rules = SoftRules::all() - SoftRules::SIZE_AFTER_CONTENTS;
    for geometry in
        FsGeometry::all().into_iter().filter(|g| g.frag_size > 512 && !g.name.ends_with("full"))
    {
        let broken = (1..9).any(|seed| {
            let policy = move || SoftUpdates::with_rules(rules);
            let run = (&Names { count: 40, len: 20 }, CrashModel::Completed, seed);
            grow(&geometry, policy, Promise::SOFT_UPDATES, run).counts.promise_broken > 0
        });
        assert!(broken, "{}: nothing was broken", geometry.name);
    }
}

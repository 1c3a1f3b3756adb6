//! Random operations on a file system and on the reference model, with every answer compared.
//!
//! [`check`] makes a fresh [`OracleSubject`], does a seeded sequence of operations on it and on
//! [`ModelFs`](ordo_vfs::model::ModelFs), and compares results, error codes, attributes, contents,
//! listings (whole, and with pauses while entries are added and removed) and extended attributes.
//! Now and then, and at the end, it compares everything. If there is a difference, the run is
//! shrunk: operations are left out as long as a difference remains, and the others are printed with
//! the seed and the step.
//!
//! Some things are not compared: inode numbers (but the object of each is), block counts, sizes of
//! directories, and everything that [`OracleRules`] leave out. If a subject reports that it has no
//! space, nothing may have changed, and no other error may apply; a write may then be short.

mod generate;
mod op;
mod run;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ordo_runtime::{Executor, Runtime};
use ordo_vfs::model::ModelConfig;
use ordo_vfs::{Errno, FileSystem, FileType, FsResult, Timestamp};

use generate::Generator;
pub use op::{OracleName, OracleObject, OracleOp};
use run::Runner;

/// A file system under test, freshly made and empty.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait OracleSubject {
    /// The type of the file system.
    type Fs: FileSystem;

    /// The mounted file system.
    fn fs(&self) -> &Self::Fs;

    /// The present time on the clock of the subject's timestamps. `None` leaves times uncompared,
    /// except those that are set.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// Unmounts and mounts again, while nothing is open. The default makes everything durable.
    ///
    /// # Errors
    /// The file system's error.
    async fn remount(&mut self) -> FsResult<()> {
        self.fs().sync().await
    }

    /// Searches for damage that no operation shows, on disk or in memory.
    ///
    /// # Errors
    /// The damage, in words.
    async fn audit(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The abilities of a subject that are tried, and the answers that are compared.
#[derive(Clone, Debug)]
pub struct OracleRules {
    /// The types of special files to create.
    pub special_types: Vec<FileType>,
    /// Whether owners can be set.
    pub owners: bool,
    /// The longest target of a symbolic link, in bytes. One byte more is tried too.
    pub symlink_max: usize,
    /// Permission bits that are always set: without root's rights, the owner's own.
    pub mode_always: u16,
    /// Permission bits that may be set.
    pub mode_mask: u16,
    /// Whether modes of symbolic links are compared.
    pub link_modes: bool,
    /// Whether BSD file flags exist.
    pub flags: bool,
    /// The types of inodes that can have extended attributes.
    pub xattr_types: Vec<FileType>,
    /// The name spaces of extended attributes, with the dot.
    pub xattr_spaces: Vec<&'static str>,
    /// The shortest value to set, in bytes. The kernel's ext4 leaves the time of change as it is if
    /// an attribute is set to the value that it has already, and short values are often equal.
    pub xattr_value_min: usize,
    /// The longest value to set, in bytes.
    pub xattr_value_max: usize,
    /// Whether times of last access are compared.
    pub atimes: bool,
    /// Whether times of birth are compared.
    pub birthtimes: bool,
    /// The longest time by which a timestamp may lie outside of its operation, in nanoseconds.
    pub time_slack_ns: i128,
    /// Whether the subject may run out of space.
    pub may_fill: bool,
}

impl OracleRules {
    /// The rules for everything that UFS2 has.
    pub fn ufs2() -> OracleRules {
        OracleRules {
            special_types: vec![
                FileType::Fifo,
                FileType::Socket,
                FileType::CharDevice,
                FileType::BlockDevice,
            ],
            owners: true,
            symlink_max: 4095,
            mode_always: 0,
            mode_mask: 0o7777,
            link_modes: true,
            flags: true,
            xattr_types: vec![
                FileType::Regular,
                FileType::Directory,
                FileType::Symlink,
                FileType::Fifo,
            ],
            xattr_spaces: vec!["user.", "system.", "user.", "odd."],
            xattr_value_min: 0,
            xattr_value_max: 3000,
            atimes: true,
            birthtimes: true,
            time_slack_ns: 0,
            may_fill: true,
        }
    }

    /// The rules for a directory of a Linux host: see [`HostDir`](ordo_vfs::host::HostDir). The
    /// kernel's clock ticks, so timestamps lie up to 20 ms before their operation.
    pub fn linux(privileged: bool) -> OracleRules {
        OracleRules {
            special_types: vec![FileType::Fifo, FileType::Socket],
            owners: privileged,
            symlink_max: 4095,
            // The kernel clears set-id bits when another user than root writes.
            mode_always: if privileged { 0 } else { 0o700 },
            mode_mask: if privileged { 0o7777 } else { 0o777 },
            link_modes: false,
            flags: false,
            xattr_types: vec![FileType::Regular, FileType::Directory],
            xattr_spaces: vec!["user."],
            xattr_value_min: 7,
            xattr_value_max: 1500,
            atimes: false,
            birthtimes: true,
            time_slack_ns: 20_000_000,
            may_fill: true,
        }
    }
}

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct OracleConfig {
    /// The seed of every choice.
    pub seed: u64,
    /// The number of operations.
    pub steps: usize,
    /// The number of names: few, so that they collide.
    pub names: usize,
    /// The largest write, in bytes.
    pub write_max: usize,
    /// The subject's block size, in bytes: sizes near its multiples are preferred.
    pub block_size: u32,
    /// The subject's fragment size, in bytes.
    pub fragment_size: u32,
    /// Whether to use offsets and sizes at the edges of double and triple indirection.
    pub large_offsets: bool,
    /// The number of operations after which everything is compared. At the end of the run
    /// everything is compared again.
    pub verify_every: usize,
    /// The most runs that are spent on shrinking a failure.
    pub shrink_runs: usize,
    /// The options of the model.
    pub model: ModelConfig,
    /// The rules.
    pub rules: OracleRules,
}

impl OracleConfig {
    /// A run of `steps` operations on UFS2 with these sizes, in bytes.
    pub fn ufs2(seed: u64, steps: usize, block_size: u32, fragment_size: u32) -> OracleConfig {
        OracleConfig {
            seed,
            steps,
            names: 18,
            write_max: 3 * block_size as usize,
            block_size,
            fragment_size,
            large_offsets: true,
            verify_every: 500,
            shrink_runs: 400,
            model: ModelConfig::ufs2(block_size),
            rules: OracleRules::ufs2(),
        }
    }
}

/// The counters of a run without a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OracleReport {
    /// The number of operations that were done.
    pub steps: usize,
    /// The number of operations that succeeded.
    pub succeeded: usize,
    /// Operations that failed as they had to, by error.
    pub errors: BTreeMap<Errno, usize>,
    /// The number of writes that were short for want of space.
    pub short_writes: usize,
    /// Listings with pauses that were followed to their end.
    pub listings: usize,
}

/// A difference, after shrinking.
#[derive(Clone, Debug)]
pub struct OracleFailure {
    /// The run's seed.
    pub seed: u64,
    /// The step of the original run at which it appeared.
    pub step: usize,
    /// The difference at that step.
    pub original: String,
    /// The difference that the remaining operations show.
    pub what: String,
    /// The remaining operations, each with its step.
    pub ops: Vec<(usize, OracleOp)>,
}

impl fmt::Display for OracleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.original)?;
        writeln!(f, "{} operations show: {}", self.ops.len(), self.what)?;
        for (step, op) in &self.ops {
            writeln!(f, "  {step}: {op:?}")?;
        }
        write!(f, "to repeat: the same configuration with seed {}", self.seed)
    }
}

impl std::error::Error for OracleFailure {}

/// The failure of a run.
struct Stopped {
    step: usize,
    what: String,
}

/// Compares a subject with the model over one seeded sequence. `fresh` makes the subject, on an
/// executor with a virtual clock.
///
/// # Errors
/// The first difference, after shrinking. A panic or a deadlock of the subject counts as one.
pub fn check<S: OracleSubject>(
    config: &OracleConfig,
    fresh: impl AsyncFn(Runtime) -> FsResult<S>,
) -> Result<OracleReport, Box<OracleFailure>> {
    let ops: Rc<RefCell<Vec<(usize, OracleOp)>>> = Rc::default();
    let recorded = ops.clone();
    let stopped = match attempt(config, async |rt: Runtime| {
        let mut runner = start(config, &fresh, rt).await?;
        let mut generator = Generator::new(config);
        for step in 1..=config.steps {
            let op = generator.next(&runner.world);
            recorded.borrow_mut().push((step, op.clone()));
            let verify = step % config.verify_every == 0 || step == config.steps;
            one_step(&mut runner, step, &op, verify).await?;
        }
        Ok(runner.report)
    }) {
        Ok(report) => return Ok(report),
        Err(stopped) => stopped,
    };
    let all = ops.take();
    let mut what = stopped.what.clone();
    let still_fails = |ops: &[(usize, OracleOp)]| {
        attempt(config, async |rt: Runtime| replay(config, &fresh, rt, ops).await)
            .err()
            .map(|stopped| what = stopped.what)
            .is_some()
    };
    let ops = ordo_crash::minimise(all, config.shrink_runs, still_fails);
    // The last attempt of shrinking may have passed, so the remaining operations are run once more
    // for their difference.
    let last = attempt(config, async |rt: Runtime| replay(config, &fresh, rt, &ops).await);
    let what = last.err().map_or(what, |stopped| stopped.what);
    let Stopped { step, what: original } = stopped;
    Err(Box::new(OracleFailure { seed: config.seed, step, original, what, ops }))
}

async fn start<'c, S: OracleSubject>(
    config: &'c OracleConfig,
    fresh: &impl AsyncFn(Runtime) -> FsResult<S>,
    rt: Runtime,
) -> Result<Runner<'c, S>, Stopped> {
    let made = fresh(rt).await;
    let subject =
        made.map_err(|e| Stopped { step: 0, what: format!("making the subject: {e}") })?;
    Ok(Runner::new(subject, config))
}

async fn one_step<S: OracleSubject>(
    runner: &mut Runner<'_, S>,
    step: usize,
    op: &OracleOp,
    verify: bool,
) -> Result<(), Stopped> {
    let mut result = runner.step(step, op).await.map_err(|what| format!("{op:?}: {what}"));
    if verify && result.is_ok() {
        result = runner.verify().await;
    }
    result.map_err(|what| Stopped { step, what })
}

async fn replay<S: OracleSubject>(
    config: &OracleConfig,
    fresh: &impl AsyncFn(Runtime) -> FsResult<S>,
    rt: Runtime,
    ops: &[(usize, OracleOp)],
) -> Result<OracleReport, Stopped> {
    let mut runner = start(config, fresh, rt).await?;
    for (i, (step, op)) in ops.iter().enumerate() {
        let verify = (i + 1) % config.verify_every == 0 || i + 1 == ops.len();
        one_step(&mut runner, *step, op, verify).await?;
    }
    Ok(runner.report)
}

/// Runs on a fresh executor; a panic or a deadlock is an error like any other.
fn attempt(
    config: &OracleConfig,
    run: impl AsyncFnOnce(Runtime) -> Result<OracleReport, Stopped>,
) -> Result<OracleReport, Stopped> {
    let executor = Executor::simulated(config.seed);
    let runtime = executor.runtime();
    let outcome = catch_unwind(AssertUnwindSafe(|| executor.block_on(run(runtime))));
    match outcome {
        Ok(Ok(result)) => result,
        Ok(Err(deadlock)) => Err(Stopped { step: 0, what: deadlock.to_string() }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
            Err(Stopped { step: 0, what: format!("panic: {text}") })
        }
    }
}

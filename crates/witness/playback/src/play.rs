//! Playback: a plan carried out on disks, closed loop, in virtual time or on a real device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::model::{Model, Modeled};
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_runtime::{Duration, Executor, Runtime, Time};
use ordo_trace::RequestOp;
use smallvec::SmallVec;

use crate::plan::Plan;
use crate::real::Real;
use crate::traffic::Role;

/// The median time of a request of each role, in nanoseconds.
pub type Medians = BTreeMap<Role, u64>;

/// A disk on which a plan is played.
#[derive(Clone, Debug, PartialEq)]
pub enum PlayDisk {
    /// A model.
    Model(&'static Model),
    /// The one on which the trace was recorded, whichever it was: a request takes the time that it
    /// took there, and one that a change adds the median of its role, in nanoseconds. Places and
    /// queues do not matter.
    Recorded(Rc<Medians>),
    /// A real one. It is the only disk of its stage.
    Real(Real),
}

impl PlayDisk {
    /// Whether completed writes may be lost in a power failure; `None` if the disk is unknown.
    pub fn volatile_cache(&self) -> Option<bool> {
        match self {
            PlayDisk::Model(model) => Some(model.volatile_cache()),
            PlayDisk::Recorded(_) => None,
            PlayDisk::Real(real) => Some(real.volatile()),
        }
    }

    /// The model, if it has one.
    pub fn model(&self) -> Option<&'static Model> {
        match self {
            PlayDisk::Model(model) => Some(model),
            PlayDisk::Recorded(_) | PlayDisk::Real(_) => None,
        }
    }
}

/// The disks on which a plan is played.
#[derive(Clone, Debug)]
pub struct PlayStage {
    /// The disks, each with the size of the device in bytes.
    pub disks: Vec<(PlayDisk, u64)>,
    /// Fixes the order of requests that are issued at the same moment.
    pub seed: u64,
    /// Nanoseconds that are added to the recorder's clock: a disk's platters are then elsewhere.
    pub shift: u64,
    /// Think times, in thousandths of the recorded ones.
    pub think: u64,
}

/// The executor of a playback: that of its real disk, or one in virtual time.
pub(crate) enum StageExecutor {
    Real(Real),
    Virtual(Box<Executor>),
}

impl std::ops::Deref for StageExecutor {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        match self {
            StageExecutor::Real(real) => real.executor(),
            StageExecutor::Virtual(executor) => executor,
        }
    }
}

impl PlayStage {
    /// The executor for these disks, and the nanoseconds from the recorder's clock to its clock. In
    /// real time, the time before `first` on the recorder's clock is skipped.
    pub(crate) fn executor(&self, first: u64) -> (StageExecutor, i64) {
        let real = self.disks.iter().find_map(|(disk, _)| match disk {
            PlayDisk::Real(real) => Some(real.clone()),
            PlayDisk::Model(_) | PlayDisk::Recorded(_) => None,
        });
        assert!(real.is_none() || self.disks.len() == 1, "a real disk is the only one");
        match real {
            Some(real) => {
                let now = real.executor().runtime().now().as_nanos();
                (StageExecutor::Real(real), now.cast_signed() - first.cast_signed())
            }
            None => {
                let executor = Box::new(Executor::simulated(self.seed));
                (StageExecutor::Virtual(executor), self.shift.cast_signed())
            }
        }
    }

    /// One disk of `bytes` bytes, with the recorder's clock and think times.
    pub fn one(disk: PlayDisk, bytes: u64) -> PlayStage {
        PlayStage { disks: vec![(disk, bytes)], seed: 1, shift: 0, think: 1000 }
    }
}

/// The times of a playback, in nanoseconds on the recorder's clock.
#[derive(Clone, Debug)]
pub struct Played {
    /// For each step its issue and its completion; zero for removed steps.
    pub times: Vec<(u64, u64)>,
}

/// The reason why a plan was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A disk refused a request.
    #[error("step {step} of the plan: {error}")]
    Device {
        /// The step's index.
        step: usize,
        /// The error.
        error: BlockError,
    },
}

/// A device that stores nothing: only time matters.
pub(crate) struct Nothing(Geometry);

impl BlockDevice for Nothing {
    fn geometry(&self) -> Geometry {
        self.0
    }

    async fn read(&self, _: u64, len: usize) -> Result<IoBuf, BlockError> {
        Ok(IoBuf::scratch(len))
    }

    async fn write(&self, _: u64, _: IoBuf, _: WriteFlags) -> Result<(), BlockError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), BlockError> {
        Ok(())
    }
}

/// The state of each step.
struct State {
    /// The number of steps that it still waits for.
    open: Vec<u32>,
    /// The time before which it is not issued.
    ready: Vec<u64>,
    times: Vec<(u64, u64)>,
    left: usize,
    error: Option<PlayError>,
}

/// A disk during a playback.
pub(crate) enum DiskAtPlay {
    Model(Box<Modeled<Nothing>>),
    Recorded(Rc<Medians>),
    Real(Real),
}

struct Player {
    plan: Rc<Plan>,
    disks: Vec<DiskAtPlay>,
    runtime: Runtime,
    state: RefCell<State>,
    /// Nanoseconds from the recorder's clock to that of the playback.
    shift: i64,
    think: u64,
}

/// Plays a plan: in real time if its disk is a real one, otherwise in virtual time.
///
/// # Errors
/// A request lies outside its disk.
///
/// # Panics
/// The plan has a circle: steps that wait for each other.
pub fn play(plan: &Rc<Plan>, stage: &PlayStage) -> Result<Played, PlayError> {
    let first = plan.live().filter(|n| plan.after(*n).is_empty());
    let first = first.map(|n| plan.step(n).not_before).min().unwrap_or(0);
    let (executor, shift) = stage.executor(first);
    let runtime = executor.runtime();
    let disks = stage.disks.iter().map(|(disk, bytes)| DiskAtPlay::new(&runtime, disk, *bytes));
    let state = State {
        open: (0..plan.len()).map(|n| plan.after(n).len() as u32).collect(),
        ready: (0..plan.len())
            .map(|n| plan.step(n).not_before.saturating_add_signed(shift))
            .collect(),
        times: vec![(0, 0); plan.len()],
        left: plan.live().count(),
        error: None,
    };
    let player = Rc::new(Player {
        plan: Rc::clone(plan),
        disks: disks.collect(),
        runtime,
        state: RefCell::new(state),
        shift,
        think: stage.think,
    });
    for step in plan.live().filter(|n| plan.after(*n).is_empty()) {
        player.start(step);
    }
    executor.run_until_idle().expect("tasks that wait for time alone");
    let mut state = player.state.borrow_mut();
    if let Some(error) = state.error.take() {
        return Err(error);
    }
    assert_eq!(state.left, 0, "a plan without circles");
    Ok(Played { times: std::mem::take(&mut state.times) })
}

impl DiskAtPlay {
    pub(crate) fn new(runtime: &Runtime, disk: &PlayDisk, bytes: u64) -> DiskAtPlay {
        let geometry = Geometry {
            bytes: bytes.next_multiple_of(512),
            sector: 512,
            max_request: usize::MAX,
            volatile_cache: false,
            read_only: false,
        };
        match disk {
            PlayDisk::Model(model) => {
                DiskAtPlay::Model(Box::new(Modeled::new(runtime, model, Nothing(geometry))))
            }
            PlayDisk::Recorded(medians) => DiskAtPlay::Recorded(Rc::clone(medians)),
            PlayDisk::Real(real) => DiskAtPlay::Real(real.clone()),
        }
    }

    /// Sends a request that is in no plan.
    pub(crate) async fn request(
        &self,
        runtime: &Runtime,
        op: RequestOp,
        role: Role,
        (offset, len): (u64, u64),
        fua: bool,
    ) -> Result<(), BlockError> {
        match self {
            DiskAtPlay::Model(disk) => on_model(disk, op, (offset, len), fua).await,
            DiskAtPlay::Recorded(medians) => {
                let took = medians.get(&role).copied().unwrap_or(0);
                runtime.sleep(Duration::from_nanos(took)).await;
                Ok(())
            }
            DiskAtPlay::Real(real) => real.send(op, (offset, len), fua).await,
        }
    }
}

async fn on_model(
    disk: &Modeled<Nothing>,
    op: RequestOp,
    (offset, len): (u64, u64),
    fua: bool,
) -> Result<(), BlockError> {
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    match op {
        RequestOp::Mark => Ok(()),
        RequestOp::Read => disk.read(offset, bytes).await.map(drop),
        RequestOp::Write => {
            let flags = if fua { WriteFlags::FUA } else { WriteFlags::empty() };
            disk.write(offset, IoBuf::scratch(bytes), flags).await
        }
        RequestOp::Flush => disk.flush().await,
        RequestOp::Discard | RequestOp::WriteZeroes => disk.discard(offset, len).await,
    }
}

impl Player {
    /// Starts a task that plays a step, and then the first step that waited for nothing else.
    fn start(self: &Rc<Self>, step: usize) {
        let player = Rc::clone(self);
        self.runtime.spawn("a chain of requests", async move {
            let mut next = Some(step);
            while let Some(step) = next {
                let at = player.state.borrow().ready[step];
                player.runtime.sleep_until(Time::from_nanos(at)).await;
                let issued = player.runtime.now().as_nanos();
                let result = player.request(step).await;
                next = player.finish(step, issued, result);
            }
        });
    }

    async fn request(&self, step: usize) -> Result<(), BlockError> {
        let step = self.plan.step(step);
        match &self.disks[usize::from(step.disk)] {
            DiskAtPlay::Model(disk) => {
                if step.preflush {
                    disk.flush().await?;
                }
                on_model(disk, step.op, (step.offset, step.len), step.fua).await
            }
            DiskAtPlay::Real(real) => real.request(step).await,
            DiskAtPlay::Recorded(medians) => {
                let median = || medians.get(&step.role).copied().unwrap_or(0);
                let took = Duration::from_nanos(step.recorded.map_or_else(median, |r| r.took));
                self.runtime.sleep(took).await;
                Ok(())
            }
        }
    }

    /// Notes a completion, and starts the steps that waited for nothing else, but for the first
    /// one, which is returned.
    fn finish(
        self: &Rc<Self>,
        step: usize,
        issued: u64,
        result: Result<(), BlockError>,
    ) -> Option<usize> {
        let now = self.runtime.now().as_nanos();
        let mut ready: SmallVec<[usize; 4]> = SmallVec::new();
        {
            let mut state = self.state.borrow_mut();
            state.left -= 1;
            let recorded = |at: u64| at.saturating_add_signed(-self.shift);
            state.times[step] = (recorded(issued), recorded(now));
            if let Err(error) = result {
                state.error.get_or_insert(PlayError::Device { step, error });
            }
            for waiting in self.plan.before(step) {
                let think = self.plan.think(waiting, step) * self.think / 1000;
                state.ready[waiting] = state.ready[waiting].max(now + think);
                state.open[waiting] -= 1;
                if state.open[waiting] == 0 {
                    ready.push(waiting);
                }
            }
        }
        let mut ready = ready.into_iter();
        let first = ready.next();
        ready.for_each(|step| self.start(step));
        first
    }
}

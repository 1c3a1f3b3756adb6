//! File systems of this process: made, recovered and mounted here over FUSE, on devices in memory.
//!
//! A thread of its own has the devices and the file system, and serves one mount after another.
//! Nothing of this needs root where ordinary users may mount by FUSE (`fusermount3`).

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_crash::Volume;
use ordo_crash::base::Base;
use ordo_fuse::dev::{self, Stop};
use ordo_fuse::kernel::{Attach, Detach, attach};
use ordo_fuse::{Handler, HandlerOptions};
use ordo_recorder::{DeviceSetup, MarkFile, MarkServer, RecordedDisk, Recording, WatchedMount};
use ordo_runtime::{Executor, LocalFuture, Runtime};
use ordo_vfs::{AnyFs, FileSystem, FsResult, SetAttr};

use crate::ProgramError;
use crate::stand::PAUSE;

/// The largest write with which a disk is filled, in bytes.
const PIECE: usize = 1 << 20;
/// The longest time that an unmount may take to write everything.
const END_MAX: Duration = Duration::from_secs(60);

/// A file system of this process. Errors are text for a person.
pub trait OwnFs: std::fmt::Debug + Send + Sync {
    /// The sizes of its devices in bytes.
    fn devices(&self) -> Vec<u64>;

    /// Makes an empty file system.
    fn make<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<(), String>>;

    /// Mounts it. If a power cut has left it, its recovery comes first, or the check that it needs.
    fn mount<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
        how: OwnMounting,
    ) -> LocalFuture<'a, Result<Volume, String>>;
}

/// How a file system is mounted.
#[derive(Clone, Copy, Debug)]
pub struct OwnMounting {
    /// Whether a power cut has left it, and not an unmount.
    pub crashed: bool,
    /// The time after which changes are written that nobody waits for.
    pub age: Option<Duration>,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The number of times that an unmount is tried before a lazy one: a second and a half.
const TRIES: u32 = 300;

/// The mounted file system as other threads see it.
pub(crate) struct OwnMount {
    detach: Detach,
    ended: Receiver<Result<(), String>>,
    /// The watchdog's note of the mount; `None` if there can be none.
    _watched: Option<WatchedMount>,
}

impl OwnMount {
    /// Unmounts, and waits until everything is on the devices.
    pub(crate) fn unmount(self) -> Result<(), ProgramError> {
        let wrong = ProgramError::io("unmounting a file system of Ordo's");
        let mut tries = 0;
        while let Err(error) = self.detach.unmount(tries >= TRIES) {
            if tries > TRIES {
                return Err(wrong(error));
            }
            std::thread::sleep(PAUSE);
            tries += 1;
        }
        // After a lazy unmount the file system ends when the last program that uses it has ended.
        let ended = self.ended.recv_timeout(END_MAX).map_err(|_| {
            ProgramError::Program("a program still uses the file system after its end".into())
        })?;
        ended.map_err(|why| ProgramError::Program(format!("the unmount failed: {why}")))
    }
}

const PANICKED: &str = "the thread of the file system panicked";

/// The two answers of a server's thread: the mount, or the reason why there is none; and the end of
/// the mount.
struct Told {
    mounted: Sender<Result<Detach, String>>,
    ended: Sender<Result<(), String>>,
}

type Tells = (Receiver<Result<Detach, String>>, Receiver<Result<(), String>>);

impl Told {
    fn new() -> (Told, Tells) {
        let ((mounted, told), (ended, end)) = (channel(), channel());
        (Told { mounted, ended }, (told, end))
    }
}

/// The mount of which a server's thread tells; or the reason why there is none. `watched` was made
/// before the thread could mount anything.
fn awaited(
    (told, ended): Tells,
    watched: Option<WatchedMount>,
) -> Result<Result<OwnMount, String>, ProgramError> {
    let told = told.recv().map_err(|_| ProgramError::Program(PANICKED.into()))?;
    Ok(told.map(|detach| OwnMount { detach, ended, _watched: watched }))
}

/// Mounts a file system and serves it until it is unmounted.
async fn serve(
    rt: &Runtime,
    own: &dyn OwnFs,
    disks: &[Device],
    (how, dir): (OwnMounting, &Path),
    told: &Told,
) {
    let mounted = async {
        let volume = own.mount(rt, disks, how).await?;
        if !how.crashed {
            take_root(volume.fs()).await.map_err(words)?;
        }
        let how = Attach {
            source: PathBuf::from("ordo-program"),
            device: false,
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            flags: Vec::new(),
        };
        attach(&how, dir).map_err(words).map(|attached| (volume, attached))
    };
    let (volume, attached) = match mounted.await {
        Ok(mounted) => mounted,
        Err(why) => {
            let _ = told.mounted.send(Err(why));
            return;
        }
    };
    let _ = told.mounted.send(Ok(attached.detach()));
    let handler =
        Handler::new(volume.fs().clone(), HandlerOptions::default(), Rc::new(|_: &str| {}));
    let (handler, stop) = (Rc::new(handler), Rc::new(Stop::default()));
    let served = dev::serve(rt, &Arc::new(attached.device), &handler, &stop).await;
    let unmounted = volume.unmount().await.map_err(words);
    if let Ok(reply) = served {
        reply.send(rt).await;
    }
    let _ = told.ended.send(unmounted);
}

/// Gives the root directory, which a mkfs makes for root, to the user who runs this process.
async fn take_root(fs: &AnyFs) -> FsResult<()> {
    let user = rustix::process::geteuid().as_raw();
    if fs.getattr(fs.root()).await?.uid != user {
        let gid = Some(rustix::process::getegid().as_raw());
        let set = SetAttr { uid: Some(user), gid, ..SetAttr::default() };
        fs.setattr(fs.root(), &set).await?;
    }
    Ok(())
}

/// Puts contents on a disk that holds zeros.
async fn fill(disk: &impl BlockDevice, start: &Base) -> Result<(), String> {
    for (from, piece) in start.pieces() {
        for (number, data) in piece.chunks(PIECE).enumerate() {
            let (at, data) = (from + (number * PIECE) as u64, IoBuf::from_slice(data));
            disk.write(at, data, WriteFlags::empty()).await.map_err(words)?;
        }
    }
    Ok(())
}

/// Mounts a state that a power cut left, in a new thread. The inner result says why it cannot be
/// recovered.
pub(crate) fn mount_state(
    own: &Arc<dyn OwnFs>,
    images: Vec<Arc<Base>>,
    dir: &Path,
) -> Result<Result<OwnMount, String>, ProgramError> {
    let (told, tells) = Told::new();
    let (own, on) = (own.clone(), dir.to_owned());
    let watched = WatchedMount::before_mount(dir).ok();
    let server = std::thread::Builder::new().name("ordo-state".into()).spawn(move || {
        let executor = Executor::real(1);
        let rt = executor.runtime();
        let rams: Vec<_> = images.iter().map(|image| Rc::new(ram(image))).collect();
        let disks = Device::of_each(&rams);
        let how = OwnMounting { crashed: true, age: None };
        let served = executor.block_on(serve(&rt, &*own, &disks, (how, &on), &told));
        if let Err(error) = served {
            let _ = told.mounted.send(Err(words(error)));
        }
    });
    server.map_err(ProgramError::io("starting a thread"))?;
    awaited(tells, watched)
}

/// A disk in memory with these contents.
fn ram(image: &Base) -> RamDisk {
    let ram = RamDisk::new(image.len());
    image.pieces().iter().for_each(|(at, piece)| ram.store(*at, piece));
    ram
}

/// Records the recovery of a state, from the mount to the end of the unmount; `None` if it cannot
/// be recovered.
pub(crate) fn record_recovery(
    own: &dyn OwnFs,
    bases: &[Arc<Base>],
    setups: Vec<DeviceSetup>,
) -> Result<Option<Vec<Recording>>, ProgramError> {
    let executor = Executor::real(1);
    let rt = executor.runtime();
    let recorded = executor.block_on(async {
        let disks = recorded_disks(&rt, setups)?;
        for (disk, base) in disks.iter().zip(bases) {
            fill(disk, base).await?;
        }
        disks.iter().for_each(RecordedDisk::start);
        let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
        let how = OwnMounting { crashed: true, age: None };
        let Ok(volume) = own.mount(&rt, &devices, how).await else { return Ok(None) };
        volume.unmount().await.map_err(words)?;
        Ok(disks.iter().map(RecordedDisk::finish).collect())
    });
    recorded.map_err(words).and_then(|done| done).map_err(ProgramError::Program)
}

fn recorded_disks(rt: &Runtime, setups: Vec<DeviceSetup>) -> Result<Vec<RecordedDisk>, String> {
    setups
        .into_iter()
        .map(|setup| RecordedDisk::new(rt, DeviceSetup { volatile: true, ..setup }))
        .collect()
}

/// An order to the thread of a session.
enum Order {
    Mount(PathBuf, OwnMounting, Told),
    Start,
    Finish(Sender<Vec<Option<Recording>>>),
}

/// A new file system on recorded devices, with the thread that has them.
pub(crate) struct OwnSession {
    orders: Sender<Order>,
    server: Option<JoinHandle<()>>,
    marks: MarkFile,
}

impl OwnSession {
    /// Makes the file system.
    pub(crate) fn new(
        own: &Arc<dyn OwnFs>,
        setups: Vec<DeviceSetup>,
    ) -> Result<OwnSession, ProgramError> {
        let (marks, server) = MarkFile::new()?;
        let ((orders, taken), (tell, made)) = (channel(), channel());
        let own = own.clone();
        let thread = std::thread::Builder::new().name("ordo-program".into()).spawn(move || {
            run(&*own, setups, server, &taken, &tell);
        });
        let server = Some(thread.map_err(ProgramError::io("starting a thread"))?);
        let session = OwnSession { orders, server, marks };
        let made = made.recv().map_err(|_| ProgramError::Program(PANICKED.into()))?;
        made.map_err(ProgramError::Program)?;
        Ok(session)
    }

    /// The file that takes marks, a line each.
    pub(crate) fn marks(&self) -> PathBuf {
        self.marks.path()
    }

    pub(crate) fn mount(
        &self,
        dir: &Path,
        age: Option<Duration>,
    ) -> Result<OwnMount, ProgramError> {
        let (told, tells) = Told::new();
        let how = OwnMounting { crashed: false, age };
        let watched = WatchedMount::before_mount(dir).ok();
        let _ = self.orders.send(Order::Mount(dir.to_owned(), how, told));
        let why = |why| ProgramError::Program(format!("mounting: {why}"));
        awaited(tells, watched)?.map_err(why)
    }

    /// Begins the recording.
    pub(crate) fn start(&self) {
        let _ = self.orders.send(Order::Start);
    }

    /// The recordings of all devices.
    pub(crate) fn finish(mut self) -> Result<Vec<Recording>, ProgramError> {
        let (tell, told) = channel();
        let _ = self.orders.send(Order::Finish(tell));
        let recordings = told.recv().ok().and_then(|all| all.into_iter().collect());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        recordings.ok_or_else(|| ProgramError::Program("nothing was recorded".into()))
    }
}

/// The work of a session's thread.
fn run(
    own: &dyn OwnFs,
    setups: Vec<DeviceSetup>,
    server: MarkServer,
    orders: &Receiver<Order>,
    made: &Sender<Result<(), String>>,
) {
    let executor = Executor::real(1);
    let rt = executor.runtime();
    let make = async {
        let disks = recorded_disks(&rt, setups)?;
        let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
        let marks = server.serve(&rt, &disks);
        own.make(&rt, &devices).await.map(|()| (disks, devices, marks))
    };
    let (disks, devices, marks) = match executor.block_on(make).map_err(words).and_then(|made| made)
    {
        Ok(done) => done,
        Err(why) => return drop(made.send(Err(why))),
    };
    let _ = made.send(Ok(()));
    while let Ok(order) = orders.recv() {
        match order {
            Order::Mount(dir, how, told) => {
                let served = executor.block_on(serve(&rt, own, &devices, (how, &dir), &told));
                if let Err(error) = served {
                    let _ = told.ended.send(Err(words(error)));
                }
            }
            Order::Start => disks.iter().for_each(RecordedDisk::start),
            Order::Finish(tell) => {
                let unfinished = marks.unfinished();
                disks.iter().for_each(|disk| disk.note_unfinished(unfinished));
                let _ = tell.send(disks.iter().map(RecordedDisk::finish).collect());
                return;
            }
        }
    }
}

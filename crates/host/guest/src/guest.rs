//! A guest: a kernel as a process, its disks and its clock.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ordo_block::{BlockDevice, Device};
use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{CalendarClient, Entry, Runtime, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::calendar::{Calendar, Said};
use crate::control::{Control, ControlDisk, SERIAL};
use crate::disk::{Disk, Heard};
use crate::error::{GuestError, protocol, starting};
use crate::kernel::Kernel;
use crate::orders::{GuestAnswer, GuestProgram, Order};

/// The longest wait for the kernel to connect to its calendar or a disk.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of the kernel's last words in an error.
const LAST_WORDS: u64 = 2000;
/// The kernel's log.
const LOG: &str = "log";
/// The argument of the first process that asks for the file of marks, and of the process that
/// serves it.
pub(crate) const MARKS_ARGUMENT: &str = "guest-marks";
/// The calendar's socket.
const CALENDAR: &str = "calendar";

/// The configuration of a guest.
pub struct GuestSetup {
    /// The kernel.
    pub kernel: Kernel,
    /// The program that is the guest's first process: it calls [`first_process`](crate::init).
    pub init: PathBuf,
    /// Its disks: `/dev/vda` and so on.
    pub disks: Vec<Device>,
    /// Whether the disks turn. The kernel takes any disk of a guest for one that does, and file
    /// systems make more of the order of its blocks then.
    pub is_rotational: bool,
    /// Whether programs find a file to which they write marks. `init` serves it, called with the
    /// argument `guest-marks`.
    pub has_marks: bool,
    /// Its memory, in MiB.
    pub memory: u64,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The processor, whose prices of a system call and of a KiB that it copies are charged if the
    /// kernel can charge them.
    pub cpu: CpuModel,
    /// Directories of the host that the guest may write to. All others can be read, but for those
    /// below `/tmp`, `/var/tmp`, `/run` and `/dev/shm`, where the guest has its own.
    pub shared: Vec<PathBuf>,
    /// Directories below these that can be read all the same.
    pub shown: Vec<PathBuf>,
    /// The time of day at the executor's time zero, in nanoseconds since 1970.
    pub epoch_ns: u64,
    /// The real time for which a program may compute without a pause.
    pub patience: Duration,
    /// Asked now and then whether the guest is to end at once.
    pub stop: Rc<dyn Fn() -> bool>,
}

impl GuestSetup {
    /// A guest without a disk: 256 MiB, a processor that costs nothing.
    pub fn new(kernel: Kernel, init: PathBuf) -> GuestSetup {
        GuestSetup {
            kernel,
            init,
            disks: Vec::new(),
            is_rotational: true,
            has_marks: false,
            memory: 256,
            seed: 1,
            cpu: CpuModel::NONE,
            shared: Vec::new(),
            shown: Vec::new(),
            epoch_ns: ordo_runtime::VIRTUAL_EPOCH.unsigned_abs() * 1_000_000_000,
            patience: Duration::from_secs(60),
            stop: Rc::new(|| false),
        }
    }
}

/// The guest's process while the executor has the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Just started: it has not been asked for anything.
    Starting,
    /// Waiting until it is told to run.
    Waiting,
    /// Waiting for the acknowledgement of a kick of this disk.
    Kicked(usize),
    /// Gone.
    Gone,
}

/// A kernel that runs as a process in the executor's virtual time.
pub struct Guest {
    /// Its place in the calendar, which goes first.
    entry: RefCell<Option<Entry>>,
    vm: Rc<Vm>,
    control: Rc<Control>,
    /// Directories of the host that are to be mounted before the first order, with their options.
    shares: RefCell<Vec<(PathBuf, &'static str)>>,
    /// Whether the kernel has yet to be told that its disks do not turn.
    is_solid: Cell<bool>,
}

/// Tells a kernel that its disks do not turn.
const SOLID: &str = "for disk in /sys/block/vd*/queue/rotational; do echo 0 > $disk; done";

/// The guest's process and everything that it is connected to.
struct Vm {
    runtime: Runtime,
    child: RefCell<Process>,
    calendar: RefCell<Calendar>,
    disks: Vec<Rc<Disk>>,
    control: Rc<Control>,
    stand: Cell<Stand>,
    is_over: Cell<bool>,
    patience: Duration,
    stop: Rc<dyn Fn() -> bool>,
    folder: tempfile::TempDir,
}

fn listen(folder: &Path, name: &str) -> Result<UnixListener, GuestError> {
    let listener = UnixListener::bind(folder.join(name)).map_err(starting("a socket"))?;
    listener.set_nonblocking(true).map_err(starting("a socket"))?;
    Ok(listener)
}

/// The last bytes of a file.
fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(LAST_WORDS)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Waits for the kernel's connection.
fn accept(
    listener: &UnixListener,
    child: &mut Child,
    log: &Path,
) -> Result<UnixStream, GuestError> {
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(starting("a socket"))?;
                return Ok(stream);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(starting("a socket")(e)),
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(GuestError::Ended { status: status.to_string(), log: tail(log) });
        }
        if began.elapsed() > CONNECTS_WITHIN {
            return Err(starting("its connection")("none came within 30 s"));
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&wait));
    }
}

/// The file system in which a kernel puts the guest's memory, if it may.
const SHARED_MEMORY: &str = "/dev/shm";

/// Whether a file system may come to hold so many bytes. That of a container often holds 64 MiB,
/// and a kernel whose memory does not fit is ended by a signal.
fn has_room(dir: &str, bytes: u64) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|of| of.f_bavail * of.f_frsize >= bytes)
}

/// The kernel's command line. It is the same in each run: the kernel's random numbers follow from
/// it, too. Paths are relative to the guest's folder.
fn command(setup: &GuestSetup, folder: &Path, disks: usize) -> Result<Command, GuestError> {
    let log = File::create(folder.join(LOG)).map_err(starting("a log"))?;
    let errors = log.try_clone().map_err(starting("a log"))?;
    let mut command = Command::new(setup.kernel.path());
    command
        .arg0("linux")
        .env_clear()
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0);
    crate::calls::without_random_addresses(&mut command);
    if !has_room(SHARED_MEMORY, setup.memory << 20) {
        command.env("TMPDIR", std::env::temp_dir());
    }
    command.args(
        [
            format!("mem={}M", setup.memory),
            format!("time-travel=ext:{CALENDAR}"),
            format!("ordo_seed={}", setup.seed),
            format!("ordo_call_ns={}", setup.cpu.operation_ns),
            format!("ordo_kib_ns={}", setup.cpu.copy_kib_ns),
            "uml_dir=.".to_owned(),
            "umid=guest".to_owned(),
            "root=/dev/root rootfstype=hostfs rootflags=/ ro".to_owned(),
            "con=null con0=null,fd:1 loglevel=5 panic=-1".to_owned(),
        ]
        .iter()
        .flat_map(|words| words.split(' ')),
    );
    command.args((0..disks).map(|n| format!("virtio_uml.device=disk{n}:2")));
    command.arg(format!("init={}", setup.init.display()));
    command.args(["--", "guest-init"]);
    if setup.has_marks {
        command.arg(MARKS_ARGUMENT);
    }
    Ok(command)
}

impl Guest {
    /// Starts a guest at the executor's present time. It runs while the executor has nothing else
    /// to do.
    ///
    /// # Errors
    /// The kernel lacks virtual time or a disk, or cannot be started.
    pub fn start(runtime: &Runtime, setup: GuestSetup) -> Result<Guest, GuestError> {
        for option in ["UML_TIME_TRAVEL_SUPPORT", "VIRTIO_UML", "VIRTIO_BLK", "HOSTFS"] {
            setup.kernel.needs(option)?;
        }
        let control = Control::new();
        let folder = tempfile::Builder::new().prefix("ordo-guest-").tempdir();
        let folder = folder.map_err(starting("a folder"))?;
        let calendar = listen(folder.path(), CALENDAR)?;
        let mut devices = setup.disks.clone();
        devices.push(ControlDisk(Rc::clone(&control)).erase());
        let last = devices.len() - 1;
        let disks: Result<Vec<Rc<Disk>>, GuestError> = devices
            .into_iter()
            .enumerate()
            .map(|(n, device)| {
                let name = if n == last { SERIAL.to_owned() } else { format!("ordo-disk{n}") };
                Ok(Rc::new(Disk::new(name, device, listen(folder.path(), &format!("disk{n}"))?)))
            })
            .collect();
        let disks = disks?;
        let spawned = command(&setup, folder.path(), disks.len())?.spawn();
        let mut child = Process::new(spawned.map_err(starting("the kernel"))?);
        child.stay_on_one_processor();
        let calendar = accept(&calendar, &mut child.0, &folder.path().join(LOG))?;
        let calendar = Calendar::new(calendar, runtime.now(), setup.epoch_ns)?;
        let vm = Rc::new(Vm {
            runtime: runtime.clone(),
            child: RefCell::new(child),
            calendar: RefCell::new(calendar),
            disks,
            control: Rc::clone(&control),
            stand: Cell::new(Stand::Starting),
            is_over: Cell::new(false),
            patience: setup.patience,
            stop: setup.stop,
            folder,
        });
        let entry = RefCell::new(Some(runtime.enter(Rc::clone(&vm) as Rc<dyn CalendarClient>)));
        // A directory below another one is mounted after it.
        let mut shares: Vec<(PathBuf, &'static str)> =
            setup.shown.into_iter().map(|d| (d, "ro,")).collect();
        shares.retain(|(dir, _)| !setup.shared.contains(dir));
        shares.extend(setup.shared.into_iter().map(|dir| (dir, "")));
        shares.sort();
        shares.dedup();
        let is_solid = Cell::new(!setup.is_rotational && last > 0);
        Ok(Guest { entry, vm, control, shares: RefCell::new(shares), is_solid })
    }

    /// Gives an order, and waits in virtual time until it is carried out.
    ///
    /// # Errors
    /// The guest is gone.
    pub async fn ask(&self, order: &Order) -> Result<GuestAnswer, GuestError> {
        for (dir, options) in self.shares.take() {
            // A file system of the host's has the name of its directory as its options.
            let (fs, source) = ("hostfs".to_owned(), PathBuf::from("none"));
            let options = format!("{options}{}", dir.display());
            let order = Order::Mount { fs, source, dir, options };
            if let GuestAnswer::Failed(why) = self.control.ask(&order).await? {
                return Err(GuestError::Order(why));
            }
        }
        if self.is_solid.take() {
            let words = ["/bin/sh", "-c", SOLID].map(Into::into).to_vec();
            let program = GuestProgram { words, dir: "/".into(), ..GuestProgram::default() };
            self.control.ask(&Order::Run(program)).await?;
        }
        self.control.ask(order).await
    }

    /// Gives an order that is to succeed.
    ///
    /// # Errors
    /// The guest is gone, or could not carry it out.
    pub async fn carry_out(&self, order: &Order) -> Result<(), GuestError> {
        match self.ask(order).await? {
            GuestAnswer::Done | GuestAnswer::Ended { code: Some(0), .. } => Ok(()),
            GuestAnswer::Ended { code: Some(code), .. } => {
                Err(GuestError::Order(format!("{} ended with status {code}", program(order))))
            }
            GuestAnswer::Ended { signal, .. } => {
                let signal = signal.unwrap_or_default();
                Err(GuestError::Order(format!("{} was ended by signal {signal}", program(order))))
            }
            GuestAnswer::Failed(why) => Err(GuestError::Order(why)),
        }
    }

    /// Calls `call` with each mark that a program in the guest sets, at its time.
    pub fn on_mark(&self, call: impl Fn(&str) + 'static) {
        self.control.on_mark(Box::new(call));
    }

    /// Ends the guest in an orderly way. Mounted file systems stay as they are.
    ///
    /// # Errors
    /// It ended otherwise.
    pub async fn power_off(&self) -> Result<(), GuestError> {
        self.vm.is_over.set(true);
        let asked = self.control.ask(&Order::PowerOff).await;
        match asked.err().unwrap_or_else(|| GuestError::Order("it went on".to_owned())) {
            GuestError::Ended { status, .. } if status.is_empty() => Ok(()),
            error => Err(error),
        }
    }

    /// Ends the guest at once, as a power failure would.
    pub fn kill(&self) {
        self.vm.end(GuestError::Ended { status: "killed".to_owned(), log: String::new() });
        self.entry.borrow_mut().take();
    }

    /// All that the kernel has written.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.vm.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The reason why the guest is gone, if it is.
    pub fn failure(&self) -> Option<GuestError> {
        self.control.failure()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program(order: &Order) -> String {
    match order {
        Order::Run(program) => {
            program.words.first().map_or_else(String::new, |w| w.to_string_lossy().into_owned())
        }
        _ => "it".to_owned(),
    }
}

/// The process groups of all guests of this process.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Ends all guests at once, for a process that is about to exit in the middle of its work.
pub fn end_all() {
    let all = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().for_each(|group| end_group(*group));
}

fn end_group(group: i32) {
    if let Some(group) = rustix::process::Pid::from_raw(group) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// The kernel's process, which ends with this, and the guest's processes with it.
struct Process(Child);

impl Process {
    fn new(child: Child) -> Process {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(child.id() as i32);
        Process(child)
    }

    fn end(&mut self) {
        let group = self.0.id() as i32;
        end_group(group);
        let _ = self.0.wait();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != group);
    }

    /// Waits for the end of a process that has closed its clock.
    fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > CONNECTS_WITHIN {
                return Err(io::Error::other("it did not end"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Keeps the kernel and the guest's programs on one processor, this thread's at the moment.
    /// Only one of them runs at a time, and each system call passes from one to the other, which
    /// takes several times as long between processors.
    fn stay_on_one_processor(&self) {
        use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32);
        // Where it is refused, the guest is slow.
        let _ = sched_setaffinity(pid, &one);
    }

    /// The task of the guest's that runs, as far as the kernel shows it.
    fn task(&self) -> String {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.0.id()));
        name.map_or_else(|_| "a program".to_owned(), |name| name.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Vm {
    /// Ends the guest, for the reason that everyone is told who waits for it.
    fn end(&self, why: GuestError) {
        if self.stand.replace(Stand::Gone) != Stand::Gone {
            self.child.borrow_mut().end();
        }
        self.control.fail(why);
    }

    /// The kernel has ended by itself.
    fn ended(&self) -> GuestError {
        let status = self.child.borrow_mut().wait();
        let log = tail(&self.folder.path().join(LOG));
        let status = match status {
            Ok(_) if self.is_over.get() && !log.contains("Kernel panic") => String::new(),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        GuestError::Ended { status, log }
    }

    fn is_heard(&self, nth: usize, events: PollFlags) -> bool {
        let is_closed = nth.checked_sub(1).is_some_and(|disk| self.disks[disk].is_closed());
        !is_closed && !events.is_empty()
    }

    /// Waits until the calendar or a disk has something to say, and says which.
    fn listen(&self) -> Result<Vec<usize>, GuestError> {
        let began = Instant::now();
        loop {
            if (self.stop)() {
                return Err(GuestError::Stopped);
            }
            let calendar = self.calendar.borrow();
            let mut all = vec![PollFd::new(calendar.socket(), PollFlags::IN)];
            all.extend(self.disks.iter().map(|disk| {
                // The kernel closes its disks when it powers off, before it ends.
                let flags = if disk.is_closed() { PollFlags::empty() } else { PollFlags::IN };
                PollFd::from_borrowed_fd(disk.ears(), flags)
            }));
            let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut all, Some(&wait)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => drop(other.map_err(|e| protocol("sockets", e))?),
            }
            let ready: Vec<usize> =
                (0..all.len()).filter(|&n| self.is_heard(n, all[n].revents())).collect();
            if !ready.is_empty() {
                return Ok(ready);
            }
            if began.elapsed() >= self.patience {
                let task = self.child.borrow().task();
                return Err(GuestError::Spins { task, seconds: self.patience.as_secs() });
            }
        }
    }

    /// Lets the guest go on from where it stands, and returns when it stands again.
    fn go_on(&self, now: Time, until: Time) -> Result<(), GuestError> {
        {
            let mut calendar = self.calendar.borrow_mut();
            match self.stand.get() {
                Stand::Gone => return Ok(()),
                Stand::Starting => calendar.set_free_until(until),
                Stand::Kicked(disk) => {
                    // News that came meanwhile are told when it waits, at once.
                    let has_news = self.disks.iter().any(|disk| disk.has_news());
                    calendar.set_free_until(if has_news { now } else { until });
                    self.disks[disk].acknowledge_kick()?;
                }
                Stand::Waiting => {
                    calendar.set_time(now);
                    for disk in self.disks.iter().filter(|disk| disk.has_news()) {
                        disk.call()?;
                    }
                    // An interrupt that waits already takes in later news, too: the guest then asks
                    // for no earlier time than before, and may not run at any other.
                    if calendar.request().is_none_or(|at| at > now) {
                        return Ok(());
                    }
                    calendar.set_free_until(until);
                    calendar.run()?;
                }
            }
        }
        loop {
            for ready in self.listen()? {
                let stand = match ready.checked_sub(1) {
                    None => match self.calendar.borrow_mut().hear()? {
                        Said::Answered => continue,
                        Said::Waits => Stand::Waiting,
                        Said::Closed => return Err(self.ended()),
                    },
                    Some(disk) => match self.disks[disk].hear()? {
                        Heard::Answered | Heard::Closed => continue,
                        Heard::Kick => {
                            self.disks[disk].take_requests(&self.runtime)?;
                            Stand::Kicked(disk)
                        }
                    },
                };
                self.stand.set(stand);
                return Ok(());
            }
        }
    }
}

impl CalendarClient for Vm {
    fn request(&self) -> Option<Time> {
        match self.stand.get() {
            Stand::Gone => None,
            Stand::Starting | Stand::Kicked(_) => Some(Time::ZERO),
            Stand::Waiting if self.disks.iter().any(|disk| disk.has_news()) => Some(Time::ZERO),
            Stand::Waiting => self.calendar.borrow().request(),
        }
    }

    fn run(&self, now: Time, until: Time) -> Time {
        match self.go_on(now, until) {
            Ok(()) => self.calendar.borrow().time(),
            Err(why) => {
                self.end(why);
                now
            }
        }
    }
}

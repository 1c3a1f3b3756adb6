//! The first process of a guest: it carries out the orders that it reads from a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, mount, unmount};

use crate::control::{FIRST, MARKS, ORDERS, SERIAL, SLOT, framed, unframed};
use crate::guest::MARKS_ARGUMENT;
use crate::orders::{GuestAnswer, GuestProgram, Order};

/// The alignment of direct I/O, in bytes.
const ALIGN: usize = 4096;

/// The directory of the files that take marks: a line each, or commands `mark TEXT`.
pub const MARK_DIR: &str = "/run/ordo";
/// The file of marks, a line each.
pub const MARK_FILE: &str = "/run/ordo/marks";
/// The file of commands.
pub const CONTROL_FILE: &str = "/run/ordo/control";
/// The longest wait for the file of marks.
const MARKS_WITHIN: Duration = Duration::from_secs(10);

/// File systems that every program expects: type, directory, options. The host's files are there
/// for reading; what programs write on the way is in memory.
const MOUNTS: [(&str, &str, &str); 8] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("devpts", "/dev/pts", "ptmxmode=666,mode=620"),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/var/tmp", "mode=1777"),
];

/// Carries out a guest's orders until it is told to power off. It is called in the program that
/// [`GuestSetup::init`](crate::GuestSetup::init) names, with the argument `guest-init`.
///
/// # Errors
/// It is not a guest's first process, or the orders cannot be read.
pub fn first_process() -> io::Result<()> {
    if !rustix::process::getpid().is_init() {
        return Err(io::Error::other("this is for the first process of a guest kernel"));
    }
    prepare();
    if std::env::args_os().any(|word| word == MARKS_ARGUMENT) {
        serve_marks()?;
    }
    let orders = Orders::open()?;
    let mut number = 0;
    loop {
        let order = orders.read(number)?;
        if order == Order::PowerOff {
            rustix::system::reboot(rustix::system::RebootCommand::PowerOff)?;
        }
        let answer = carry_out(order).unwrap_or_else(|e| GuestAnswer::Failed(e.to_string()));
        orders.answer(number, &answer)?;
        number += 1;
    }
}

/// Mounts what every program expects, and brings the network's loop up.
fn prepare() {
    for (fs, dir, options) in MOUNTS {
        if Path::new(dir).exists() || std::fs::create_dir(dir).is_ok() {
            // A kernel without one of them serves most programs all the same.
            let _ = attach(fs, Path::new(fs), Path::new(dir), options);
        }
    }
    let _ = crate::calls::bring_up();
}

/// Starts this program again, to serve the file of marks, and waits until the file is there.
fn serve_marks() -> io::Result<()> {
    std::fs::create_dir(MARK_DIR)?;
    Command::new("/proc/self/exe").arg(MARKS_ARGUMENT).stdin(Stdio::null()).spawn()?;
    let began = Instant::now();
    while !Path::new(MARK_FILE).exists() {
        if began.elapsed() > MARKS_WITHIN {
            return Err(io::Error::other("the file of marks did not come"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn attach(fs: &str, source: &Path, dir: &Path, options: &str) -> io::Result<()> {
    let (flags, rest) = ordo_fuse::mounts::flags_of(options.split(','));
    let rest = std::ffi::CString::new(rest.join(","))?;
    Ok(mount(source, dir, fs, flags, Some(rest.as_c_str()))?)
}

fn carry_out(order: Order) -> io::Result<GuestAnswer> {
    match order {
        Order::Run(program) => return run(&program),
        Order::Mount { fs, source, dir, options } => {
            std::fs::create_dir_all(&dir)?;
            let mounted = attach(&fs, &source, &dir, &options);
            mounted.map_err(|e| {
                let (source, dir) = (source.display(), dir.display());
                io::Error::other(format!("mounting {fs} of {source} on {dir}: {e}"))
            })?;
        }
        Order::Unmount { dir } => {
            let unmounted = unmount(&dir, UnmountFlags::empty());
            unmounted
                .map_err(|e| io::Error::other(format!("unmounting {}: {e}", dir.display())))?;
        }
        Order::PowerOff => {}
    }
    Ok(GuestAnswer::Done)
}

/// Runs a program, and takes in what ends meanwhile.
fn run(program: &GuestProgram) -> io::Result<GuestAnswer> {
    let [name, args @ ..] = &program.words[..] else {
        return Err(io::Error::other("no program is named"));
    };
    let open = |path: &Option<PathBuf>| -> io::Result<Option<File>> {
        path.as_ref().map(|p| OpenOptions::new().append(true).create(true).open(p)).transpose()
    };
    let output = open(&program.output)?;
    let errors = match &program.errors {
        Some(_) => open(&program.errors)?,
        None => output.as_ref().map(File::try_clone).transpose()?,
    };
    let to = |file: &Option<File>| -> io::Result<Stdio> {
        file.as_ref().map_or(Ok(Stdio::null()), |file| Ok(file.try_clone()?.into()))
    };
    let mut command = Command::new(name);
    command
        .args(args)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&program.dir)
        .stdin(Stdio::null())
        .stdout(to(&output)?)
        .stderr(to(&errors)?);
    if let Some((user, group)) = program.user {
        command.uid(user).gid(group);
    }
    let named = |e: io::Error| io::Error::other(format!("{}: {e}", name.to_string_lossy()));
    let child = command.spawn().map_err(named)?;
    let status = wait_for(child.id())?;
    // The host sees what was written.
    for file in [output, errors].into_iter().flatten() {
        file.sync_all()?;
    }
    Ok(GuestAnswer::Ended { code: status.code(), signal: status.signal() })
}

/// Waits for a child, and for every orphan that ends before it.
fn wait_for(child: u32) -> io::Result<std::process::ExitStatus> {
    use rustix::process::{WaitOptions, wait};
    loop {
        let ended = wait(WaitOptions::empty())?;
        if let Some((pid, status)) = ended
            && pid.as_raw_nonzero().get() as u32 == child
        {
            return Ok(std::process::ExitStatus::from_raw(status.as_raw()));
        }
    }
}

/// The disk of the orders.
struct Orders(File);

impl Orders {
    /// Finds the disk by its name.
    fn open() -> io::Result<Orders> {
        for entry in std::fs::read_dir("/sys/block")? {
            let path = entry?.path();
            let serial = std::fs::read_to_string(path.join("serial")).unwrap_or_default();
            if serial.trim() == SERIAL
                && let Some(name) = path.file_name()
            {
                let mut how = OpenOptions::new();
                how.read(true).write(true).custom_flags(libc::O_DIRECT);
                return Ok(Orders(how.open(Path::new("/dev").join(name))?));
            }
        }
        Err(io::Error::other("there is no disk with orders"))
    }

    fn read(&self, number: u64) -> io::Result<Order> {
        let place = ORDERS + number * SLOT;
        let mut bytes = self.read_at(place, FIRST)?;
        if unframed(&bytes).is_none() {
            bytes = self.read_at(place, SLOT as usize)?;
        }
        let text = unframed(&bytes).ok_or_else(|| io::Error::other("an order is cut off"))?;
        serde_json::from_slice(text).map_err(io::Error::other)
    }

    fn answer(&self, number: u64, answer: &GuestAnswer) -> io::Result<()> {
        self.write_at(ORDERS + number * SLOT, &serde_json::to_vec(answer)?)
    }

    fn read_at(&self, place: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut memory = Aligned::new(len);
        self.0.read_exact_at(memory.bytes(), place)?;
        Ok(memory.bytes().to_vec())
    }

    fn write_at(&self, place: u64, text: &[u8]) -> io::Result<()> {
        let text = framed(text);
        let mut memory = Aligned::new(text.len());
        memory.bytes().copy_from_slice(&text);
        self.0.write_all_at(memory.bytes(), place)
    }
}

/// The way of marks out of a guest, for the program that serves [`MARK_FILE`].
pub struct MarkWriter(Orders);

impl MarkWriter {
    /// Opens the way, as root.
    ///
    /// # Errors
    /// This is no guest.
    pub fn open() -> io::Result<MarkWriter> {
        Orders::open().map(MarkWriter)
    }

    /// Sets a mark at this moment.
    ///
    /// # Errors
    /// The guest ends.
    pub fn set(&self, text: &str) -> io::Result<()> {
        self.0.write_at(MARKS, text.as_bytes())
    }
}

/// Memory that is aligned for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![0; len + ALIGN];
        let from = memory.as_ptr().align_offset(ALIGN);
        Aligned { memory, from, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.len]
    }
}

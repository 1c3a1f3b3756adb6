//! The device as an NBD server, for virtual machines and for kernels elsewhere: a unix socket, or
//! TCP on this machine's own addresses. The protocol is the fixed newstyle, with simple replies:
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
//!
//! No client can stop the server or another client. Sockets never block the server's thread: a
//! reply waits until its client reads. Until then it counts against the client's budget
//! ([`PENDING_MAX`]), and a client without budget is not read from.
//!
//! A unix socket is open to its owner alone. A TCP port is open to every user of the machine, so
//! there the export's name is a secret, which only the URI tells.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_runtime::sync::{Mutex, Semaphore};
use ordo_runtime::{Executor, Runtime};

use crate::device::{Core, DeviceSetup, Recording, start};
use crate::file::CONTROL;
use crate::folders::Folder;
use crate::later::show_while_idle;
use crate::marks::LinePipe;
use crate::session::{PseudoError, Served, failed, joined};
use crate::turns::while_idle;

/// The largest request, in bytes; a longer one ends the connection.
const REQUEST_MAX: u32 = 32 << 20;
/// The most bytes of requests, with their answers, that a connection may have under way.
const PENDING_MAX: u64 = 64 << 20;
/// The bytes that a request counts beside its data: no more than 1,024 requests are under way.
const REQUEST_COST: u64 = 64 << 10;
/// The most connections.
const CONNECTIONS_MAX: usize = 32;
/// The largest data of an option, in bytes.
const OPTION_MAX: u32 = 64 << 10;
/// The length of a line of the control pipe, in bytes, that is too long for a mark.
const MARK_MAX: usize = 4096;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;

/// Handshake flags: fixed newstyle (`NBD_FLAG_FIXED_NEWSTYLE`), and no zeros after the oldest
/// option (`NBD_FLAG_NO_ZEROES`).
const SERVER_FLAGS: u16 = 3;
/// Transmission flags: has flags, flush, FUA, trim, write-zeroes, several connections
/// (`NBD_FLAG_*`).
const EXPORT_FLAGS: u16 = 1 | 4 | 8 | 32 | 64 | 256;

/// Options of the handshake phase, and the replies to them.
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const ACK: u32 = 1;
const SERVER: u32 = 2;
const SAYS: u32 = 3;
const UNSUPPORTED: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;

/// Commands of the transmission phase.
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;

const EINVAL: u32 = 22;
const EIO: u32 = 5;

/// The address at which the server listens.
#[derive(Clone, Debug)]
pub enum Address {
    /// A unix socket in a folder of the server's own.
    Private,
    /// A unix socket in the file system. It must not exist, and is removed with the server.
    Unix(PathBuf),
    /// A host of this machine's loopback and a port; port 0 takes a free one. The export's name is
    /// a secret.
    Tcp(String),
}

/// A server, and the thread on which it runs.
#[derive(Debug)]
pub struct Nbd {
    uri: String,
    socket: Option<PathBuf>,
    /// The folder of the control pipe.
    marks: Folder,
    /// A socket whose closing ends the server.
    stop: Option<UnixStream>,
    server: Option<JoinHandle<Served>>,
}

impl Nbd {
    /// Serves a device. Recording begins at once.
    ///
    /// # Errors
    /// The server cannot listen at the address, or the device cannot be opened.
    pub fn serve(setup: DeviceSetup, address: &Address) -> Result<Nbd, PseudoError> {
        let listening = failed("listening");
        let marks = Folder::new("ordo-marks-").map_err(failed("making a directory for marks"))?;
        let listening = match address {
            Address::Private => on_socket(&marks.path().join("socket")).map_err(listening)?,
            Address::Unix(path) => on_socket(path).map_err(listening)?,
            Address::Tcp(name) => {
                let all: Vec<SocketAddr> = name.to_socket_addrs().map_err(&listening)?.collect();
                if all.is_empty() || !all.iter().all(|a| a.ip().is_loopback()) {
                    let why = "not a loopback address of this machine, which is required because there is no \
                               encryption; a unix socket (--socket, the default) is for its owner alone";
                    return Err(listening(io::Error::new(io::ErrorKind::InvalidInput, why)));
                }
                let listener = TcpListener::bind(&all[..]).map_err(&listening)?;
                let at = listener.local_addr().map_err(&listening)?;
                let secret = secret().map_err(failed("making a secret"))?;
                let uri = format!("nbd://{at}/{secret}");
                Listening {
                    listener: OwnedFd::from(listener),
                    uri,
                    socket: None,
                    secret: Some(secret),
                }
            }
        };
        let Listening { listener, uri, socket, secret } = listening;
        let (stop, stopped) = UnixStream::pair().map_err(failed("making a pair of sockets"))?;
        let lines = LinePipe::make(&marks.path().join(CONTROL), 0o600);
        let lines = lines.map_err(failed("making a pipe for marks"))?;
        let (tell, told) = mpsc::channel();
        let server = std::thread::Builder::new().name("nbd-server".into());
        let server =
            server.spawn(move || run(setup, File::from(listener), secret, (stopped, lines), &tell));
        let server = Some(server.map_err(failed("starting the server"))?);
        let mut nbd = Nbd { uri, socket, marks, stop: Some(stop), server };
        match told.recv() {
            Ok(()) => Ok(nbd),
            Err(_) => Err(joined(nbd.server.take())
                .err()
                .unwrap_or_else(|| PseudoError::Server("it ended at once".into()))),
        }
    }

    /// The URI for clients: `nbd+unix:///?socket=...`, or `nbd://HOST:PORT/SECRET`.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// A named pipe that takes commands, a line each: `mark TEXT` puts a text into the trace,
    /// before the requests that come after the server has read it, a moment after it was written.
    pub fn control(&self) -> PathBuf {
        self.marks.path().join(CONTROL)
    }

    /// Ends the server, and returns the recording.
    ///
    /// # Errors
    /// The server had failed.
    pub fn finish(mut self) -> Result<Recording, PseudoError> {
        self.stop = None;
        joined(self.server.take()).map(|mut all| all.swap_remove(0))
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that waits for connections.
struct Listening {
    listener: OwnedFd,
    uri: String,
    /// The socket's place in the file system.
    socket: Option<PathBuf>,
    /// The name of the export, if it is a secret.
    secret: Option<String>,
}

/// Listens on a new unix socket, which only its owner may use.
fn on_socket(path: &Path) -> io::Result<Listening> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let listener = UnixListener::bind(path).map_err(named)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(named)?;
    let uri = format!("nbd+unix:///?socket={}", path.display());
    let socket = Some(path.to_path_buf());
    Ok(Listening { listener: OwnedFd::from(listener), uri, socket, secret: None })
}

/// A name that no other user can guess. It comes from the system's generator, and from no seed.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The text of a line `mark TEXT`.
pub(crate) fn mark_of(line: &str) -> Option<&str> {
    let is_short = line.len() < MARK_MAX;
    line.strip_prefix("mark ").filter(|_| is_short).map(str::trim_end)
}

fn put_mark(core: &Core, line: &str) {
    if let Some(text) = mark_of(line) {
        core.mark(text);
    }
}

fn run(
    setup: DeviceSetup,
    listener: File,
    secret: Option<String>,
    (stopped, lines): (UnixStream, LinePipe),
    tell: &mpsc::Sender<()>,
) -> Served {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let core = Rc::new(Core::new(&runtime, setup)?);
    start(std::slice::from_ref(&core));
    // The send fails only when the receiver has gone.
    let _ = tell.send(());
    let (served, rt, lines) = (core.clone(), runtime.clone(), Rc::new(lines));
    let done = executor.block_on(async move {
        let listener = Arc::new(listener);
        let (followed, marked, of) = (lines.clone(), served.clone(), rt.clone());
        rt.spawn_daemon("marks", async move {
            followed.follow(&of, |line| put_mark(&marked, line)).await;
        });
        let shown = show_while_idle(rt.clone(), served.clone());
        rt.spawn_daemon("requests for the observer", shown);
        rt.spawn_daemon("turns of the observer", while_idle(rt.clone(), served.clone()));
        let accepted = accept(rt.clone(), listener, secret.map(Rc::from), served.clone());
        rt.spawn_daemon("new connections", accepted);
        let stopped = Arc::new(File::from(OwnedFd::from(stopped)));
        let stopped = rt.readable(&stopped).await.map_err(|e| e.to_string());
        lines.take(|line| put_mark(&served, line));
        stopped
    });
    let ended: Result<(), String> = done.map_err(|e| e.to_string())?;
    ended?;
    Ok(core.finish().map(|recording| vec![recording]))
}

async fn accept(runtime: Runtime, listener: Arc<File>, secret: Option<Rc<str>>, core: Rc<Core>) {
    let connections = Rc::new(Cell::new(0));
    loop {
        if runtime.readable(&listener).await.is_err() {
            return;
        }
        let Ok(fd) = listener.try_clone().map(OwnedFd::from) else { return };
        let Ok(socket) = accepted(fd, secret.is_some()) else { continue };
        // A client too many is disconnected.
        if connections.get() >= CONNECTIONS_MAX {
            continue;
        }
        let connection = Connection {
            runtime: runtime.clone(),
            socket: Arc::new(socket),
            core: core.clone(),
            secret: secret.clone(),
            broken: Cell::new(false),
            sending: Mutex::new((), "a reply of a connection", 0),
            budget: Semaphore::new(PENDING_MAX, "requests of a connection", 0),
        };
        connections.set(connections.get() + 1);
        let count = connections.clone();
        runtime.spawn_daemon("a connection", async move {
            // A client that disconnects, or breaks the protocol, ends only its own connection.
            let _ = Rc::new(connection).serve().await;
            count.set(count.get() - 1);
        });
    }
}

/// Accepts a connection. Its socket does not block.
fn accepted(listener: OwnedFd, tcp: bool) -> io::Result<File> {
    if tcp {
        let (socket, _) = TcpListener::from(listener).accept()?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        return Ok(File::from(OwnedFd::from(socket)));
    }
    let (socket, _) = UnixListener::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    Ok(File::from(OwnedFd::from(socket)))
}

struct Connection {
    runtime: Runtime,
    socket: Arc<File>,
    core: Rc<Core>,
    /// The name that the export must be asked for by.
    secret: Option<Rc<str>>,
    /// Whether a reply could not be sent.
    broken: Cell<bool>,
    /// Held while a reply is sent, so that replies are not mixed.
    sending: Mutex<()>,
    /// The bytes that requests may still take.
    budget: Semaphore,
}

/// Whether a socket only has to be waited for.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn no(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// A request of the transmission phase.
#[derive(Clone, Copy)]
struct Asked {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl Connection {
    /// Fills `buf`. It waits for the first byte without blocking other connections, then for all of
    /// them.
    async fn fill(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            self.runtime.readable(&self.socket).await?;
            match (&*self.socket).read(&mut buf[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if is_for_later(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends pieces as one reply. It waits for the client without blocking other connections.
    async fn send(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let _alone = self.sending.lock().await;
        for piece in pieces {
            let mut done = 0;
            while done < piece.len() {
                match (&*self.socket).write(&piece[done..]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => done += n,
                    Err(e) if is_for_later(&e) => self.runtime.writable(&self.socket).await?,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Whether a client asks for the export by its name.
    fn is_named(&self, name: &[u8]) -> bool {
        self.secret.as_ref().is_none_or(|secret| secret.as_bytes() == name)
    }

    async fn serve(self: Rc<Self>) -> io::Result<()> {
        let mut hello = b"NBDMAGICIHAVEOPT".to_vec();
        hello.extend(SERVER_FLAGS.to_be_bytes());
        self.send(&[&hello]).await?;
        let mut flags = [0; 4];
        self.fill(&mut flags).await?;
        if !self.options(u32_at(&flags, 0) & 2 != 0).await? {
            return Ok(());
        }
        let mut head = [0; 28];
        while !self.broken.get() {
            self.fill(&mut head).await?;
            if u32_at(&head, 0) != REQUEST_MAGIC {
                return Err(no("no request"));
            }
            let asked = Asked {
                flags: u16_at(&head, 4),
                command: u16_at(&head, 6),
                cookie: u64_at(&head, 8),
                offset: u64_at(&head, 16),
                len: u32_at(&head, 24),
            };
            if asked.command == DISCONNECT {
                return Ok(());
            }
            if matches!(asked.command, READ | WRITE) && asked.len > REQUEST_MAX {
                return Err(no("a request too long"));
            }
            let moved = if matches!(asked.command, READ | WRITE) { asked.len } else { 0 };
            let cost = REQUEST_COST + u64::from(moved);
            // Given back when the reply was sent.
            std::mem::forget(self.budget.acquire(cost).await);
            let mut data = None;
            if asked.command == WRITE {
                let mut buf = IoBuf::zeroed(asked.len as usize);
                self.fill(&mut buf).await?;
                data = Some(buf);
            }
            let this = self.clone();
            self.runtime.spawn_daemon("a request", async move {
                this.carry_out(asked, data).await;
                this.budget.release(cost);
            });
        }
        Ok(())
    }

    /// Serves the handshake phase, until the client has chosen. Returns false if the client
    /// disconnects.
    async fn options(&self, no_zeroes: bool) -> io::Result<bool> {
        let bytes = self.core.geometry().bytes;
        loop {
            let mut head = [0; 16];
            self.fill(&mut head).await?;
            let (option, len) = (u32_at(&head, 8), u32_at(&head, 12));
            if u64_at(&head, 0) != OPTION_MAGIC || len > OPTION_MAX {
                return Err(no("no option"));
            }
            let mut data = vec![0; len as usize];
            self.fill(&mut data).await?;
            match option {
                EXPORT_NAME if !self.is_named(&data) => return Err(no("another export")),
                EXPORT_NAME => {
                    let mut out = bytes.to_be_bytes().to_vec();
                    out.extend(EXPORT_FLAGS.to_be_bytes());
                    out.resize(out.len() + if no_zeroes { 0 } else { 124 }, 0);
                    self.send(&[&out]).await?;
                    return Ok(true);
                }
                ABORT => {
                    self.reply(option, ACK, &[]).await?;
                    return Ok(false);
                }
                LIST if self.secret.is_some() => {
                    self.reply(option, POLICY, b"the export's name is a secret").await?;
                }
                LIST => {
                    // There is one export, with the empty name.
                    self.reply(option, SERVER, &[0; 4]).await?;
                    self.reply(option, ACK, &[]).await?;
                }
                INFO | GO => {
                    let name = if data.len() < 6 { u32::MAX } else { u32_at(&data, 0) };
                    if u64::from(name) + 6 > data.len() as u64 {
                        self.reply(option, INVALID, b"a truncated option").await?;
                        continue;
                    }
                    if !self.is_named(&data[4..4 + name as usize]) {
                        self.reply(option, UNKNOWN, b"no such export").await?;
                        continue;
                    }
                    let mut export = vec![0; 2];
                    export.extend(bytes.to_be_bytes());
                    export.extend(EXPORT_FLAGS.to_be_bytes());
                    self.reply(option, SAYS, &export).await?;
                    let mut sizes = vec![0, 3];
                    for size in [512, 4096, REQUEST_MAX] {
                        sizes.extend(size.to_be_bytes());
                    }
                    self.reply(option, SAYS, &sizes).await?;
                    self.reply(option, ACK, &[]).await?;
                    if option == GO {
                        return Ok(true);
                    }
                }
                _ => self.reply(option, UNSUPPORTED, b"not known here").await?,
            }
        }
    }

    async fn reply(&self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut out = REPLY_MAGIC.to_be_bytes().to_vec();
        for word in [option, kind, data.len() as u32] {
            out.extend(word.to_be_bytes());
        }
        out.extend(data);
        self.send(&[&out]).await
    }

    async fn carry_out(&self, asked: Asked, data: Option<IoBuf>) {
        let tap = &self.core;
        let Asked { offset, len, .. } = asked;
        let mut flags = WriteFlags::empty();
        flags.set(WriteFlags::FUA, asked.flags & 1 != 0);
        let inside = offset.checked_add(len.into()).is_some_and(|end| end <= tap.geometry().bytes);
        let whole = (offset | u64::from(len)).is_multiple_of(u64::from(tap.geometry().sector));
        let mut read = None;
        let done = match (asked.command, data) {
            (FLUSH, _) => tap.flush().await.map_err(|_| EIO),
            _ if !inside || !whole => Err(EINVAL),
            (READ, _) => match tap.read(offset, len as usize).await {
                Ok(bytes) => {
                    read = Some(bytes);
                    Ok(())
                }
                Err(_) => Err(EIO),
            },
            (WRITE, Some(data)) => tap.write(offset, data, flags).await.map_err(|_| EIO),
            (TRIM, _) => tap.discard(offset, len.into()).await.map_err(|_| EIO),
            (ZEROES, _) => self.zeroes(offset, len.into(), flags).await,
            _ => Err(EINVAL),
        };
        let mut out = SIMPLE_MAGIC.to_be_bytes().to_vec();
        out.extend(done.err().unwrap_or(0).to_be_bytes());
        out.extend(asked.cookie.to_be_bytes());
        let bytes: &[u8] = read.as_deref().unwrap_or_default();
        if self.send(&[&out, bytes]).await.is_err() {
            self.broken.set(true);
        }
    }

    /// Writes zeros, in pieces.
    async fn zeroes(&self, offset: u64, len: u64, flags: WriteFlags) -> Result<(), u32> {
        const PIECE: u64 = 1 << 20;
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE);
            let zeros = IoBuf::zeroed(piece as usize);
            let wrote = self.core.write(offset + done, zeros, flags).await;
            wrote.map_err(|_| EIO)?;
            done += piece;
        }
        Ok(())
    }
}

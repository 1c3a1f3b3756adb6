//! The messages of a mount: to the terminal until it is mounted, then to the system's log.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

use super::Mount;

/// The byte that ends the messages to the terminal, because the mount is there.
pub const MOUNTED: u8 = 0;

/// The receiver of messages. Clones are cheap.
#[derive(Clone)]
pub struct MessageSink {
    image: Rc<str>,
    quiet: bool,
    waited_for: bool,
    mounted: Rc<Cell<bool>>,
}

/// The severity of a message, as numbered in the system's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error = 3,
    Notice = 5,
}

impl MessageSink {
    pub fn new(args: &Mount, waited_for: bool) -> MessageSink {
        let image = args.image.display().to_string().into();
        MessageSink { image, quiet: args.quiet, waited_for, mounted: Rc::default() }
    }

    /// Sends a notice.
    pub fn notice(&self, text: &str) {
        if !self.quiet {
            self.say(Severity::Notice, text);
        }
    }

    /// Sends an error.
    pub fn error(&self, text: &str) {
        self.say(Severity::Error, text);
    }

    fn say(&self, severity: Severity, text: &str) {
        let line = format!("{}: {text}", self.image);
        if self.waited_for && self.mounted.get() {
            to_log(severity, &line);
        } else if severity == Severity::Error {
            eprintln!("ordo: {line}");
        } else {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// Tells the waiting process that the mount is there. The terminal gets no more messages.
    pub fn mounted(&self) {
        self.mounted.set(true);
        if !self.waited_for {
            return;
        }
        let mut out = std::io::stdout();
        let _ = out.write_all(&[MOUNTED]).and_then(|()| out.flush());
        if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // The directory in which it was started may be unmounted later.
        let _ = std::env::set_current_dir("/");
    }
}

/// Sends a line to the system's log, if there is one.
fn to_log(severity: Severity, line: &str) {
    const DAEMON: u8 = 3 << 3;
    let message = format!("<{}>ordo[{}]: {line}", DAEMON | severity as u8, std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(message.as_bytes(), "/dev/log");
    }
}

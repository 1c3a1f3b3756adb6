//! What a mount says: to the terminal while somebody looks, to the system's log afterwards.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

use super::Mount;

/// Ends what is said to the terminal: the mount is there.
pub const MOUNTED: u8 = 0;

/// Says things. Cheap to clone.
#[derive(Clone)]
pub struct Tell {
    image: Rc<str>,
    quiet: bool,
    waited_for: bool,
    mounted: Rc<Cell<bool>>,
}

/// How bad it is, as the system's log counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error = 3,
    Notice = 5,
}

impl Tell {
    pub fn new(args: &Mount, waited_for: bool) -> Tell {
        let image = args.image.display().to_string().into();
        Tell { image, quiet: args.quiet, waited_for, mounted: Rc::default() }
    }

    /// Something worth knowing.
    pub fn notice(&self, text: &str) {
        if !self.quiet {
            self.say(Severity::Notice, text);
        }
    }

    /// Something wrong.
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

    /// It is mounted: whoever waits for that is told, and the terminal is left alone from now on.
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
        // The directory it was started in may be unmounted meanwhile.
        let _ = std::env::set_current_dir("/");
    }
}

/// Sends a line to the system's log, where there is one.
fn to_log(severity: Severity, line: &str) {
    const DAEMON: u8 = 3 << 3;
    let message = format!("<{}>ordo[{}]: {line}", DAEMON | severity as u8, std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(message.as_bytes(), "/dev/log");
    }
}

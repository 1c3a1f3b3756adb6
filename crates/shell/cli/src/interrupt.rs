//! Ctrl-C, SIGTERM and SIGHUP: a command shows what it has finished, takes away what it has made,
//! and exits with 130.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::text::put;

/// The exit status of a command that a signal has ended, as a shell reports it for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Calls `act` in a thread of its own at each signal from now on.
///
/// # Errors
/// The system refuses.
pub fn on_each(mut act: impl FnMut() + Send + 'static) -> Result<()> {
    let (mut ours, theirs) = UnixStream::pair().context("catching signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    let each = move || {
        while ours.read_exact(&mut [0]).is_ok() {
            act();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(each)?;
    Ok(())
}

type LastAct = Box<dyn FnOnce() + Send>;

/// The last thing that is done when a signal ends this process, until this is dropped. A thread of
/// its own does it, so the work of the command need not look for signals. Mounts and temporary
/// folders are taken down after it.
pub struct OnInterrupt(Arc<Mutex<Option<LastAct>>>);

impl OnInterrupt {
    /// Catches the signals from now on. Without further calls a signal only ends the process.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> Result<OnInterrupt> {
        let act: Arc<Mutex<Option<LastAct>>> = Arc::new(Mutex::new(Some(Box::new(|| {}))));
        let shared = act.clone();
        on_each(move || {
            // Once this is dropped, the command is about to end by itself.
            if let Ok(mut act) = shared.lock()
                && let Some(act) = act.take()
            {
                act();
                ordo_recorder::remove_own();
                ordo_guest::end_all();
                std::process::exit(INTERRUPTED.into());
            }
        })?;
        Ok(OnInterrupt(act))
    }

    /// Sets what is done when a signal comes.
    pub fn set(&self, act: impl FnOnce() + Send + 'static) {
        if let Ok(mut now) = self.0.lock() {
            *now = Some(Box::new(act));
        }
    }

    /// On a signal, prints `text`, which is the result so far, and says `what` of all it is.
    pub fn keep(&self, output: Option<&Path>, text: String, what: String) {
        let output = output.map(Path::to_owned);
        self.set(move || {
            eprintln!("ordo: interrupted: {what}");
            if let Err(error) = put(output.as_deref(), &text) {
                eprintln!("ordo: {error:#}");
            }
        });
    }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        if let Ok(mut act) = self.0.lock() {
            *act = None;
        }
    }
}

//! The progress of a long command.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The interval at which a bar is refreshed.
const REFRESH: Duration = Duration::from_millis(100);

/// A progress bar on the standard error: the present work, how much of it is done, and the
/// remaining time. If that is not a terminal, nothing is shown.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar, unless `quiet` is set or there is no terminal.
    pub fn new(quiet: bool) -> Progress {
        if quiet || !std::io::stderr().is_terminal() {
            return Progress { bar: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{prefix:>12} {bar:30} {percent:>3}%  {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress { bar: Some(bar) }
    }

    /// Begins new work: its subject, its name, and the number of steps.
    pub fn begin(&self, who: &str, what: &str, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(who.to_string());
            bar.set_message(what.to_string());
            bar.set_length(total.max(1));
            bar.set_position(0);
        }
    }

    /// Shows that `done` steps are done.
    #[inline]
    pub fn reach(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(total.max(1)) {
                bar.set_length(total.max(1));
            }
            bar.set_position(done);
        }
    }

    /// Runs one of `total` steps, after `done` of them. Meanwhile `part` counts the parts of this
    /// step, at most `parts`.
    pub fn follow<T>(
        &self,
        (done, total): (u64, u64),
        (part, parts): (&AtomicU64, u64),
        work: impl FnOnce() -> T,
    ) -> T {
        let Some(bar) = &self.bar else { return work() };
        part.store(0, Ordering::Relaxed);
        bar.set_length((total * parts).max(1));
        std::thread::scope(|scope| {
            let (working, worked) = mpsc::channel::<()>();
            scope.spawn(move || {
                while worked.recv_timeout(REFRESH) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let part = part.load(Ordering::Relaxed).min(parts);
                    bar.set_position(done * parts + part);
                }
            });
            let result = work();
            drop(working);
            bar.set_position((done + 1) * parts);
            result
        })
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

//! A file system of the kernel's after the power cut: recovered by the kernel, or by its own
//! program, and checked by that.

use std::rc::Rc;

use ordo_check::Severity;
use ordo_guest::orders::GuestAnswer;
use ordo_runtime::{Executor, Runtime};

use super::within::{Changes, Found, GuestJob};
use super::{Guests, KernelFsSetup, done, started, written};
use crate::recovery::{OwnCheck, RecoveryTime};
use crate::stack::{Cut, Rig};
use crate::{CompareError, ComparisonSetup};

/// The most characters of what a check says that are kept.
const SAID: usize = 400;

/// Makes the file system usable in a new guest, on a disk of the same model, and checks it.
pub(super) fn check(
    cut: Cut,
    system: &KernelFsSetup,
    setup: &ComparisonSetup,
    guests: &Guests,
) -> Result<RecoveryTime, CompareError> {
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    executor.block_on(recovered(&runtime, cut, system, setup, guests))?
}

async fn recovered(
    runtime: &Runtime,
    cut: Cut,
    system: &KernelFsSetup,
    setup: &ComparisonSetup,
    guests: &Guests,
) -> Result<RecoveryTime, CompareError> {
    let images: Vec<_> = cut.images.into_iter().map(Rc::new).collect();
    let models = images.iter().map(|_| setup.disk);
    let rig = Rig::new(runtime, models, images.clone());
    let setup = guests.setup(setup, setup.cpu, &rig);
    let guest = started(runtime, &system.live(), setup).await?;
    let began = runtime.now();
    let before = rig.disk_stats();
    guest.repair().await?;
    let mounted = guest.mount().await;
    let seconds = runtime.now().since(began).as_secs_f64();
    let work = rig.disk_stats();
    let mut found: Found = Ok(None);
    if mounted.is_ok() {
        let folder = guest.folder();
        let (changes, report) = (folder.join("changes"), folder.join("lost"));
        written(&changes, &Changes { changes: cut.changes, at_ns: cut.at.as_nanos() })?;
        let dir = guest.dir().to_owned();
        let looked = done(&guest, guests, &GuestJob::Lost { dir, changes, report }).await;
        found = looked.unwrap_or_else(|error| Err(error.to_string()));
    }
    // A damaged file system can end or stop its kernel.
    let (mut ended, mut said) = (GuestAnswer::Done, String::new());
    if guest.is_running() {
        if mounted.is_ok() {
            guest.unmount().await?;
        }
        (ended, said) = guest.check().await?;
        guest.power_off().await?;
    }
    let unmountable = mounted.err().map(|error| ("mount", error.to_string()));
    let unreadable = found.as_ref().err().map(|error| ("reading its files", error.clone()));
    let refused = unmountable.or(unreadable);
    let lost = found.ok().flatten();
    let is_clean = refused.is_none() && ended == GuestAnswer::Ended { code: Some(0), signal: None };
    let (program, said) = refused.unwrap_or((system.fs.check[0], said));
    let said: String = said.chars().take(SAID).collect();
    let since = |what: fn(&(u64, u64, u64)) -> u64| what(&work) - what(&before);
    let mut row = RecoveryTime {
        cut_at_seconds: cut.at_seconds,
        seconds,
        consistent_afterwards: is_clean,
        reads: since(|(reads, ..)| *reads),
        bytes_read: since(|(_, bytes, _)| *bytes),
        writes: since(|(.., writes)| *writes),
        oldest_lost_seconds: lost.as_ref().map(|lost| lost.seconds),
        oldest_lost: lost.map(|lost| lost.what),
        own_check: Some(OwnCheck { program: program.to_owned(), is_clean, said }),
        ..RecoveryTime::default()
    };
    if !is_clean {
        row.findings.insert(Severity::Damage, 1);
    }
    Ok(row)
}

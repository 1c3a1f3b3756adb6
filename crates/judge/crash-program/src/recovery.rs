//! Power cuts during the kernel's own recovery.
//!
//! The state is put on pseudo-devices, which record what the file system's mount (and, before it,
//! its repair), and the unmount write. The states that a second cut leaves of these writes are
//! judged by the promises of the first: a recovery that is interrupted must lose nothing that it
//! would have kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ordo_crash::base::Base;
use ordo_crash::space::{Choosing, Pick, Space};
use ordo_kernelfs::WatchOptions;
use ordo_recorder::{DeviceSetup, Folder, Recording};

use crate::bench::{Bench, StateDisk, groups, nested, starts};
use crate::devices::KernelDevices;
use crate::explore::Job;
use crate::judged::{Judged, RecordedRecovery};
use crate::marks::Promises;
use crate::requests::{Requests, run_of, watched};
use crate::stand::{Stand, unmount};
use crate::{ProgramError, btrfs, own, sys};

/// The numbers from which recoveries are counted, so that their copies of a btrfs file system
/// differ from those of stands.
const NUMBER: u32 = 1 << 16;

/// The judgement of a pick, with cuts during the recovery of its state.
pub(crate) struct Judging<'a> {
    pub bench: &'a Bench<'a>,
    pub stand: &'a Stand,
    pub job: &'a Job,
    pub stop: &'a dyn Fn() -> bool,
    pub promises: Promises,
    pub judged: Judged,
}

impl Judging<'_> {
    /// Judges the state of the pick `number`. `None` if the work was stopped in the middle.
    pub fn judge(
        mut self,
        number: u64,
        disk: StateDisk<'_>,
    ) -> Result<Option<Judged>, ProgramError> {
        self.judged.number = number;
        self.stand.checks.set(0);
        let done = self.state(number, disk, Vec::new())?;
        self.judged.checks = self.stand.checks.get();
        self.judged.keep_failing();
        Ok(done.then_some(self.judged))
    }

    /// Judges one state, and the cuts during its recovery if it is the turn of that. Returns
    /// whether everything was judged.
    fn state(
        &mut self,
        number: u64,
        disk: StateDisk<'_>,
        cuts: Vec<(usize, Pick)>,
    ) -> Result<bool, ProgramError> {
        let depth = cuts.len() as u32;
        let mut state = self.bench.judge(self.stand, disk, &self.promises)?;
        state.cuts.clone_from(&cuts);
        let is_kept = state.result.is_kept();
        self.judged.states.push(state);
        let every = self.job.recovery_every as u64;
        let turn = every > 0 && number.is_multiple_of(every) && depth < self.job.recovery_depth;
        if turn && is_kept { self.cut(disk, &cuts) } else { Ok(true) }
    }

    /// Records the recovery of a state, and judges the states that cuts during it leave.
    fn cut(&mut self, disk: StateDisk<'_>, before: &[(usize, Pick)]) -> Result<bool, ProgramError> {
        // If the recovery fails now, the state's own result says so.
        let Some(recovery) = recorded(self.bench, disk)? else { return Ok(true) };
        let recovery = Arc::new(recovery);
        let index = self.judged.recoveries.len();
        self.judged.recoveries.push(Some(recovery.clone()));
        let space = Space::new(recovery.run.clone(), self.bench.unit());
        let start = starts(&recovery.run);
        let groups = groups(&recovery.meanings);
        let choosing = Choosing {
            states: self.job.recovery_states,
            seed: self.job.seed,
            from: 0,
            rules: &[],
            groups: &groups,
            manners: &[],
        };
        let (mut done, mut number) = (Ok(true), 0);
        space.each(&space.picks(&choosing), |pick, state| {
            if (self.stop)() {
                done = Ok(false);
                return false;
            }
            let mut cuts = before.to_vec();
            cuts.push((index, pick.clone()));
            let disk =
                StateDisk { start: &start, state: &state, image: nested(disk.image, &state) };
            done = self.state(number, disk, cuts);
            number += 1;
            matches!(done, Ok(true))
        });
        done
    }
}

/// Records the recovery of a state; `None` if it cannot be recovered.
fn recorded(
    bench: &Bench<'_>,
    disk: StateDisk<'_>,
) -> Result<Option<RecordedRecovery>, ProgramError> {
    let mut turn = bench.recovery_turn();
    *turn += 1;
    let system = &bench.recorded.system;
    let with = |(n, start): (usize, &Arc<Base>)| {
        let base = start.with(disk.state.contents(n));
        Arc::new(if system.is_btrfs() { btrfs::renamed(&base, NUMBER + *turn) } else { base })
    };
    let bases: Vec<Arc<Base>> = disk.start.iter().enumerate().map(with).collect();
    let (setups, seen) =
        watched(system, &WatchOptions { rows: true, ..WatchOptions::default() }, None);
    let recordings = match system.own() {
        Some(own) => own::record_recovery(&**own, &bases, setups)?,
        None => kernel_recovery(bench, &bases, setups)?,
    };
    let Some(recordings) = recordings else { return Ok(None) };
    let requests = Requests::of(&recordings, seen);
    let from = requests.events.first().map_or(0, |(at, _)| *at);
    let times: Vec<u64> = requests.events.iter().map(|(at, _)| at - from).collect();
    let meanings = requests.meanings(&times);
    let events = requests.events.into_iter().map(|(_, event)| event).collect();
    let disks = bases.into_iter().zip(requests.writes);
    let run = run_of(bench.recorded.run.model, disks, events);
    Ok(Some(RecordedRecovery { run: Arc::new(run), meanings, times }))
}

/// Records the recovery by the kernel, on pseudo-devices.
fn kernel_recovery(
    bench: &Bench<'_>,
    bases: &[Arc<Base>],
    setups: Vec<DeviceSetup>,
) -> Result<Option<Vec<Recording>>, ProgramError> {
    let setups = setups.into_iter().map(|setup| DeviceSetup { keep_start: false, ..setup });
    let devices = KernelDevices::new(setups.collect())?;
    let paths = devices.paths();
    for (device, base) in paths.iter().zip(bases) {
        fill(device, base).map_err(ProgramError::io("putting a state on a pseudo-device"))?;
    }
    devices.start()?;
    let recovered = recover(bench, &paths)?;
    let recordings = devices.finish(&bench.recorded.system)?;
    Ok(recovered.then_some(recordings))
}

/// Writes contents to a device that holds zeros, beneath the kernel's caches at the end.
fn fill(device: &Path, base: &Base) -> io::Result<()> {
    let device = File::options().read(true).write(true).open(device)?;
    for (at, piece) in base.pieces() {
        device.write_all_at(piece, *at)?;
    }
    device.sync_all()?;
    sys::forget(&device)
}

/// Repairs the file system if that must come first, mounts it and unmounts it. Returns whether it
/// could be mounted.
fn recover(bench: &Bench<'_>, devices: &[PathBuf]) -> Result<bool, ProgramError> {
    let system = &bench.recorded.system;
    if let [program, args @ ..] = system.repair() {
        let done = Command::new(program).args(args).arg(&devices[0]).output();
        done.map_err(|e| ProgramError::Program(format!("{program}: {e}")))?;
    }
    let folder =
        Folder::new("ordo-recovery-").map_err(ProgramError::io("a directory to mount on"))?;
    if system.mount(devices, folder.path()).is_err() {
        return Ok(false);
    }
    unmount(folder.path()).map_err(ProgramError::io("unmounting a recovered state"))?;
    Ok(true)
}

//! `make test-kills`: mounts that are killed at random while programs use them. The results are
//! written to `docs/results/kills.md`. `make test` runs a few of the same tests.
//!
//! Fault model: the server is killed (SIGKILL) at any moment. Everything that it had sent to the
//! image stays; everything in its memory is lost. Meanwhile programs create, change, rename and
//! remove files, sync most of them, and record outside of the image the states in which each may be
//! afterwards ([`programs`]). Others note owners, times, attributes, device numbers, targets, holes
//! and the entries of their directory too ([`strict`]).
//!
//! Demanded after Ordo's recovery, a mount or `ordo fsck -p` by turns: synced files are there and
//! whole; Ordo's checker has no findings; and where `ORDO_FREEBSD_FSCK` names FreeBSD's, that has
//! none either, and preens the killed image itself under soft updates without a question. Under
//! `none`, which promises no file, `ordo fsck -y` recovers, and only the checkers are asked. An
//! image is killed again and again, so that recoveries follow recoveries.

mod mounting;
#[path = "kills/page.rs"]
mod page;
#[path = "kills/programs.rs"]
mod programs;
#[path = "kills/strict.rs"]
mod strict;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mounting::{Disk, can_mount, text};
use ordo_testkit::FreebsdFsck;
use page::{Lot, Shape, write_page};
use programs::{Dice, Program, Record};
use strict::{Ledger, StrictProgram};

/// The orderings, each with the place of its log.
const SYSTEMS: [(&str, &str); 8] = [
    ("soft-updates", "file"),
    ("journal", "file"),
    ("journal", "behind"),
    ("journal", "apart"),
    ("sync", "file"),
    ("none", "file"),
    ("lfs", "file"),
    ("dualfs", "file"),
];

/// The format, and block and fragment sizes.
const SHAPES: [Shape; 8] = [
    ("ufs2", "4k", "512"),
    ("ufs1", "8k", "1k"),
    ("ufs2", "16k", "2k"),
    ("ufs1", "32k", "4k"),
    ("ufs2", "8k", "1k"),
    ("ufs1", "4k", "512"),
    ("ufs2", "32k", "4k"),
    ("ufs1", "16k", "2k"),
];

/// The number of kills of one image.
const KILLS_OF_ONE: usize = 4;

/// An image that is killed again and again.
struct Victim<'a> {
    disk: Disk,
    record: Arc<Record>,
    ledger: Arc<Ledger>,
    dice: Dice,
    freebsd: Option<&'a FreebsdFsck>,
}

impl Victim<'_> {
    fn new<'a>(lot: &Lot, seed: u64, freebsd: Option<&'a FreebsdFsck>) -> Victim<'a> {
        let (format, block, fragment) = lot.shape;
        let disk = match mounting::LOGS.contains(&lot.system.0) {
            true => Disk::new(lot.system.0, 96),
            false => {
                let shape = ["--fs", format, "--size", "64m", "-b", block, "-f", fragment];
                Disk::shaped(lot.system.0, lot.system.1, &shape)
            }
        };
        let (record, ledger) = (Arc::default(), Arc::default());
        Victim { disk, record, ledger, dice: Dice(seed), freebsd }
    }

    /// The names that are not as they were noted.
    fn wrong(&self, for_now: bool) -> (usize, Vec<String>) {
        let (files, mut wrong) = self.record.compare(&self.disk.dir(), for_now);
        let (names, more) = self.ledger.compare(&self.disk.dir());
        wrong.extend(more);
        (files + names, wrong)
    }

    /// Lets some programs work, and kills their server. Returns the number of their syncs.
    fn kill(&mut self) -> Result<usize, String> {
        // With little memory, blocks are written all the time, also in part.
        let little = [
            "cache=4m,dirty=512k",
            "cache=4m,dirty=512k,write-unit=block",
            "cache=8m,dependencies=256k",
            "",
            "group-commit",
        ];
        let mut options = little[self.dice.below(little.len())];
        let group = options == "group-commit" && self.disk.ordering != "journal";
        if group || self.disk.is_log() && options.contains("dependencies") {
            options = "";
        }
        let out = self.disk.mount_with(options);
        if !out.status.success() {
            return Err(format!("mounting it to work on: {}", text(&out)));
        }
        // A check since then may have cut files that were not synced.
        let (_, wrong) = self.wrong(false);
        if self.disk.ordering != "none" && !wrong.is_empty() {
            return Err(format!("before anything is done: {}", wrong.join("\n")));
        }
        // The server's mount is taken from its directory when it has been killed. By the handle, a
        // program that is still at work meets the dead mount, and not the directory below it.
        let top = File::open(self.disk.dir()).map_err(|e| e.to_string())?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", top.as_raw_fd()));
        let before = self.record.syncs();
        let programs = (0..2 + self.dice.below(2)).map(|number| {
            let seed = self.dice.next();
            let program = Program::new(&root, number, &self.record, seed);
            std::thread::spawn(move || program.run())
        });
        let mut programs: Vec<_> = programs.collect();
        let strict = (0..1 + self.dice.below(3)).map(|number| {
            let program = StrictProgram::new(&root, number, &self.ledger, self.dice.next());
            std::thread::spawn(move || program.run())
        });
        programs.extend(strict);
        let most = [60, 300, 1500][self.dice.below(3)];
        std::thread::sleep(Duration::from_millis(10 + self.dice.below(most) as u64));
        self.disk.end_server("-KILL");
        for program in programs {
            program.join().map_err(|_| "a program panicked".to_owned())?;
        }
        drop(top);
        Ok(self.record.syncs() - before)
    }

    /// FreeBSD's own preen of a copy of the killed image.
    fn freebsd_preens(&self) -> Result<(), String> {
        let Some(fsck) = self.freebsd.filter(|_| self.disk.ordering == "soft-updates") else {
            return Ok(());
        };
        let copy = self.disk.folder.path().join("copy");
        std::fs::copy(self.disk.image(), &copy).map_err(|e| e.to_string())?;
        let said = fsck.run_on(&copy, &["-p", "-f"]);
        match said.code {
            0 => Ok(()),
            code => Err(format!(
                "FreeBSD's preen of the killed image exits with {code}:\n{}",
                said.text
            )),
        }
    }

    fn fsck(&self, how: &[&str], codes: &[i32]) -> Result<(), String> {
        let out = self.disk.fsck(how);
        match out.status.code() {
            Some(code) if codes.contains(&code) => Ok(()),
            code => Err(format!("ordo fsck {how:?} exits with {code:?}:\n{}", text(&out))),
        }
    }

    /// Recovers, compares with the record, and checks. Returns the number of files that had to be
    /// there whole.
    fn recover(&mut self) -> Result<usize, String> {
        let promises = self.disk.ordering != "none";
        match (promises, self.dice.below(2)) {
            (false, _) => self.fsck(&["-y"], &[0, 1])?,
            (true, 0) => self.fsck(&["-p"], &[0, 1])?,
            (true, _) => {}
        }
        let out = self.disk.mount_with("");
        if !out.status.success() {
            return Err(format!("mounting it to recover: {}", text(&out)));
        }
        let (firm, wrong) = self.wrong(true);
        self.disk.umount();
        // The background check may not have freed everything yet.
        self.fsck(&["-p"], &[0, 1])?;
        self.fsck(&["-f", "-n"], &[0])?;
        if let Some(said) = self
            .freebsd
            .filter(|_| !self.disk.is_log())
            .map(|fsck| fsck.run_on(Path::new(self.disk.image()), &["-n", "-f"]))
            && !said.is_content()
        {
            return Err(format!("FreeBSD's, after recovery:\n{}", said.text));
        }
        match promises && !wrong.is_empty() {
            true => Err(wrong.join("\n")),
            false => Ok(if promises { firm } else { 0 }),
        }
    }
}

/// Kills images of one lot until it has had its number of kills. Failures are noted in the lot.
fn go(lot: &mut Lot, seed: u64, freebsd: Option<&FreebsdFsck>) {
    let mut victim: Option<Victim<'_>> = None;
    for n in 0..lot.wanted {
        if n % KILLS_OF_ONE == 0 {
            victim = None;
        }
        let turn = seed.wrapping_mul(1000).wrapping_add(n as u64);
        let current = victim.get_or_insert_with(|| Victim::new(lot, turn, freebsd));
        let outcome = current.kill().and_then(|syncs| {
            current.freebsd_preens()?;
            Ok((syncs, current.recover()?))
        });
        lot.kills += 1;
        match outcome {
            Ok((syncs, firm)) => {
                lot.syncs += syncs;
                lot.firm += firm;
            }
            Err(why) => {
                let (system, shape) = (lot.system, lot.shape);
                let failure = format!("{system:?}, {shape:?}, seed {seed}, kill {n}: {why}");
                eprintln!("{failure}");
                lot.failures.push(failure);
                if std::env::var_os("ORDO_KILLS_KEEP").is_some() {
                    let kept = format!("/tmp/ordo-killed-{seed}-{n}");
                    let _ = std::fs::copy(current.disk.image(), kept);
                }
                victim = None;
            }
        }
    }
}

/// Spreads `kills` over systems and shapes, two at a time. Each lot has a seed of its own.
fn campaign(kills: usize, seed: u64, freebsd: Option<&FreebsdFsck>) -> Vec<Lot> {
    let mut lots = Vec::new();
    // Each system begins with another shape, so that a few kills cover all of both.
    for round in 0..SHAPES.len() {
        for (i, system) in SYSTEMS.into_iter().enumerate() {
            match mounting::LOGS.contains(&system.0) {
                // These have one shape.
                true if round > 0 => {}
                true => lots.push(Lot::new(system, (system.0, "8k", "1k"))),
                false => lots.push(Lot::new(system, SHAPES[(i + round) % SHAPES.len()])),
            }
        }
    }
    let count = lots.len();
    for (i, lot) in lots.iter_mut().enumerate() {
        lot.wanted = kills / count + usize::from(i < kills % count);
    }
    let only = std::env::var("ORDO_KILLS_ONLY").unwrap_or_default();
    let is_wanted = |lot: &Lot| lot.wanted > 0 && lot.words().contains(&only);
    let wanted = lots.iter_mut().enumerate().filter(|(_, lot)| is_wanted(lot));
    let queue = Mutex::new(wanted.collect::<Vec<_>>().into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((i, lot)) = queue.lock().unwrap().next() else { return };
                    go(lot, seed.wrapping_add(i as u64), freebsd);
                    eprintln!("{i} of {count}: {} kills of {}", lot.kills, lot.words());
                }
            });
        }
    });
    lots.retain(|lot| lot.kills > 0);
    lots
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn assert_whole(lots: &[Lot]) {
    let failures: Vec<_> = lots.iter().flat_map(|lot| &lot.failures).cloned().collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
    let syncs: usize = lots.iter().map(|lot| lot.syncs).sum();
    assert!(syncs > lots.len(), "hardly anything was synced: nothing is proven");
}

/// Every ordering and every shape at least once.
#[test]
fn a_handful_of_kills() {
    if can_mount() {
        assert_whole(&campaign(SYSTEMS.len(), 1, None));
    }
}

/// As many kills as `ORDO_KILLS` says, of the lots whose names contain `ORDO_KILLS_ONLY`:
/// `soft-updates file ufs2 4k/512`.
#[test]
#[ignore = "takes minutes: make test-kills"]
fn many_kills() {
    if !can_mount() {
        return;
    }
    let kills = number("ORDO_KILLS").unwrap_or(200) as usize;
    let seed = number("ORDO_KILLS_SEED").unwrap_or(1);
    let freebsd = FreebsdFsck::given();
    let lots = campaign(kills, seed, freebsd.as_ref());
    if let Some(path) = std::env::var_os("ORDO_KILLS_PAGE") {
        write_page(Path::new(&path), &lots, seed, freebsd.is_some());
    }
    assert_whole(&lots);
}

//! Crash states of soft updates, given to FreeBSD's own fsck. `make test-freebsd` runs these tests.
//!
//! Fault model: as in `soft_updates.rs`. FreeBSD's program is the recovery of each state. It may
//! find what its own soft updates leave, must preen it without a question, and must leave names,
//! contents and durable data unchanged. Afterwards Ordo's checker has no findings. Would catch an
//! error that Ordo's file system and checker share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_check::{Checker, FsckOptions, Repair};
use ordo_crash::{
    Budget, Config, CrashModel, Finding, FindingSeverity, Promise, Scheme, Script, explore,
};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};
use ordo_runtime::Runtime;
use ordo_systems::OnFfs;
use ordo_testkit::{FreebsdFsck, FsckOutput};

/// The program that repairs a state before it is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Repairer {
    /// FreeBSD's preen. Its findings with `-n` are noted first.
    Freebsd,
    /// Ordo's check. FreeBSD's then looks at the result.
    Ours(Repair),
}

/// The complaints of FreeBSD's fsck that are ordinary after soft updates: leaks, high counts, both
/// names of a rename.
const ORDINARY: &[&str] = &[
    "BLK(S) MISSING IN BIT MAPS",
    "FREE BLK COUNT(S) WRONG IN SUPERBLK",
    "SUMMARY BLK COUNT(S) WRONG IN SUPERBLK",
    "SUMMARY INFORMATION BAD",
    "INCORRECT BLOCK COUNT",
    "LINK COUNT DIR",
    "LINK COUNT FILE",
    "UNREF DIR",
    "UNREF FILE",
    TWO_NAMES,
];

/// Further complaints about the parent of a directory without a name, which it was not allowed to
/// reconnect: the `..` counts. A preen does not count it.
const OF_UNNAMED: [&str; 2] = ["LINK COUNT INCREASING", "UNEXPECTED SOFT UPDATE INCONSISTENCY"];

/// The exit status that asks for another run: after a change of a directory, also in a preen.
const ANOTHER_RUN: i32 = 16;

/// The complaint about a superblock that was written in part.
const TORN_SUPERBLOCK: &str = "Superblock check-hash failed";

/// Further complaints about a directory with both names of a rename: its `..` agrees with only one
/// of them.
const OF_TWO_NAMES: [&str; 2] = ["BAD INODE NUMBER FOR '..' in DIR", "CURRENTLY POINTS TO I="];
const TWO_NAMES: &str = "IS AN EXTRANEOUS HARD LINK TO DIRECTORY";

type Notes = Arc<Mutex<BTreeMap<String, u64>>>;

/// A system whose states are repaired after the crash.
#[derive(Clone)]
struct Repaired<S> {
    scheme: S,
    repairer: Repairer,
    /// The number of complaints of each kind.
    notes: Notes,
}

impl<S: Scheme> Scheme for Repaired<S> {
    pass_on! { scheme; name, promise, format, devices, make, mount }

    async fn recover(&self, _rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let fsck = FreebsdFsck::new();
        let mut image = read(&disks[0]).await?;
        match self.repairer {
            Repairer::Freebsd => {
                let found = fsck.look(&image);
                let crashed = image.clone();
                let repaired = match found.text.contains(TORN_SUPERBLOCK) {
                    true => self.answer_yes(&fsck, &mut image),
                    false => self.note(&found).and_then(|()| self.preen(&fsck, &mut image)),
                };
                repaired.map_err(|e| format!("{e}\nbefore: {}", found.text))?;
                write(&disks[0], &crashed, &image).await?;
            }
            Repairer::Ours(repair) => {
                let trust_bitmaps = repair == Repair::Preen;
                let options = FsckOptions { repair, trust_bitmaps, ..FsckOptions::default() };
                let report = Checker::new(disks[0].clone(), options).run().await;
                report.map_err(|e| e.to_string())?;
                image = read(&disks[0]).await?;
            }
        }
        let after = fsck.look(&image);
        if after.is_content() { Ok(()) } else { Err(format!("repaired: {}", after.text)) }
    }

    fn recovers(&self) -> bool {
        true
    }
}

impl<S> Repaired<S> {
    /// Counts complaints by kind. Returns an error for one that is not ordinary.
    fn note(&self, said: &FsckOutput) -> Result<(), String> {
        let mut notes = self.notes.lock().unwrap();
        let asked = |line: &&str| line.ends_with("? no") || line.starts_with("SIZE=");
        for line in said.complaints().into_iter().filter(|line| !asked(line)) {
            let of_unnamed = OF_UNNAMED.contains(&line) && said.text.contains("UNREF DIR");
            let of_two = |sort: &&&str| line.contains(**sort) && said.text.contains(TWO_NAMES);
            let sort = ORDINARY.iter().find(|sort| line.contains(**sort));
            let sort = sort.or(OF_TWO_NAMES.iter().find(of_two));
            match sort.or(OF_UNNAMED.first().filter(|_| of_unnamed)) {
                Some(sort) => *notes.entry((*sort).to_owned()).or_default() += 1,
                None => return Err(format!("not ordinary after soft updates: {line}")),
            }
        }
        Ok(())
    }

    /// With a torn superblock FreeBSD's preen does not start, on FreeBSD's own disks as on Ordo's:
    /// it asks which copy to use. Then it asks for another run.
    fn answer_yes(&self, fsck: &FreebsdFsck, image: &mut Vec<u8>) -> Result<(), String> {
        self.count("states with a torn superblock: -y");
        for _ in 1..=ROUNDS_MAX {
            let said = fsck.repair(image, "-y");
            if fsck.look(image).is_content() {
                return Ok(());
            }
            if ![0, ANOTHER_RUN].contains(&said.code) {
                return Err(format!("-y gives up ({}): {}", said.code, said.text));
            }
        }
        Err(format!("not repaired in {ROUNDS_MAX} rounds"))
    }

    fn count(&self, what: &str) {
        *self.notes.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// Runs FreeBSD's preen. One run clears a directory without a name; only the next one clears
    /// the files that were in it.
    fn preen(&self, fsck: &FreebsdFsck, image: &mut Vec<u8>) -> Result<(), String> {
        for round in 1..=ROUNDS_MAX {
            let said = fsck.repair(image, "-p");
            if ![0, ANOTHER_RUN].contains(&said.code) || said.text.contains("UNEXPECTED") {
                return Err(format!("preen {round} gives up ({}): {}", said.code, said.text));
            }
            if fsck.look(image).is_content() {
                self.count(&format!("states preened in {round}"));
                return Ok(());
            }
        }
        Err(format!("not preened in {ROUNDS_MAX} rounds"))
    }
}

/// The most preens in a row: the depth of a script's directories.
const ROUNDS_MAX: u32 = 6;

/// The number of bytes read or written at once.
const PIECE: usize = 64 << 10;

async fn read(disk: &Device) -> Result<Vec<u8>, String> {
    let bytes = disk.geometry().bytes as usize;
    let mut image = Vec::with_capacity(bytes);
    while image.len() < bytes {
        let len = PIECE.min(bytes - image.len());
        let piece = disk.read(image.len() as u64, len).await.map_err(|e| e.to_string())?;
        image.extend_from_slice(&piece);
    }
    Ok(image)
}

/// Writes the pieces that differ.
async fn write(disk: &Device, old: &[u8], new: &[u8]) -> Result<(), String> {
    for (i, (old, new)) in old.chunks(512).zip(new.chunks(512)).enumerate() {
        if old != new {
            let data = IoBuf::from_slice(new);
            let done = disk.write(i as u64 * 512, data, WriteFlags::default()).await;
            done.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// The fault models of the disks.
const MODELS: [CrashModel; 3] = [CrashModel::Completed, CrashModel::Volatile, CrashModel::Prefix];

/// Explores the repaired states that a crash leaves under `policy`.
fn go<P: OrderingPolicy + 'static>(
    name: &str,
    policy: impl Fn() -> P + Clone + Send + Sync + 'static,
    promise: Promise,
    repairer: Repairer,
    states: usize,
) {
    let notes = Notes::default();
    let mut judged = 0;
    for model in MODELS {
        for seed in 0..3 {
            let scheme = OnFfs::new(name, policy.clone(), promise);
            let scheme = Repaired { scheme, repairer, notes: notes.clone() };
            let script = Script::random(seed, 3, 120);
            let budget = Budget { states, recovery_every: 0, ..Budget::default() };
            let outcome = explore(&scheme, &script, &Config::new(seed, model), &budget).unwrap();
            outcome.expect_kept(&format!("{name}, {repairer:?}, {model:?}, seed {seed}"));
            judged += outcome.counts.states;
        }
    }
    println!("{name}, {repairer:?}: {judged} states, {:#?}", notes.lock().unwrap());
    assert!(judged as usize >= states * 2 * MODELS.len(), "{judged}");
}

/// After FreeBSD's preen a file that reaches its indirect block may still be longer than its
/// blocks. Later versions of FreeBSD's preen cut it.
fn cut_later(finding: &Finding) -> bool {
    finding.kind == "EndsInHole" && finding.severity == FindingSeverity::Counts
}

/// Would catch a state that FreeBSD calls unexpected, or repairs into something else.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_preens_what_soft_updates_leave() {
    let promise = Promise { allows: cut_later, ..Promise::SOFT_UPDATES };
    go("ffs-soft-updates", SoftUpdates::default, promise, Repairer::Freebsd, 200);
}

/// Would catch a repair that satisfies only its own checker.
#[test]
#[ignore = "needs FreeBSD's fsck_ffs: make test-freebsd"]
fn freebsd_is_content_with_what_is_repaired_here() {
    let promise = Promise { allows: |_| false, ..Promise::SOFT_UPDATES };
    for repair in [Repair::Preen, Repair::Yes] {
        let repairer = Repairer::Ours(repair);
        go("ffs-soft-updates", SoftUpdates::default, promise, repairer, 100);
    }
    let repairer = Repairer::Ours(Repair::Yes);
    go("ffs-sync", SyncOrder::default, Promise::NONE, repairer, 100);
    go("ffs-none", || NoOrder, Promise::NONE, repairer, 100);
}

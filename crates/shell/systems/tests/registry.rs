//! The registry: every system does what it declares, and refuses the rest with an explanation; no
//! other source lists the systems.
//!
//! Fault model: a system that is listed and cannot be used; one that is refused without a word on
//! what can be done with it; an option that is dropped in silence; a second place that has to be
//! changed when a system is added.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_runtime::{Executor, Runtime};
use ordo_systems::journaled::LogPlace;
use ordo_systems::{
    Ability, Attempt, CheckOptions, Choice, FORMATS, Format, MakeOptions, MetadataSize,
    MountOptions, ShowOptions, System, SystemError, dualfs, ffs, format_of, lfs, orderings, probe,
};
use ordo_vfs::{Errno, FileSystem, NewNode};

/// Enough for an LFS with segments of 128 KiB.
const BYTES: u64 = 32 << 20;

fn run<T>(scenario: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor.block_on(scenario(rt)).unwrap()
}

fn rams(system: System) -> Vec<Device> {
    let sizes = system.devices(BYTES, 4096);
    let rams: Vec<_> = sizes.into_iter().map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    Device::of_each(&rams)
}

fn small(format: &dyn Format) -> MakeOptions {
    let segment_size = (format.name() == lfs::LFS.format().name()).then_some(128 << 10);
    MakeOptions { segment_size, ..MakeOptions::default() }
}

/// Each system that runs is made, found by probe, mounted, written, unmounted, checked, and read
/// again. Would catch a system whose entry leads to another one's parts.
#[test]
fn every_system_that_runs_keeps_what_is_written() {
    for system in System::runnable() {
        run(async |rt| {
            let (disks, name) = (rams(system), system.name());
            system.make(&rt, &disks, &small(system.format())).await.unwrap();
            let found = probe(&disks[0]).await.unwrap().expect(name);
            assert_eq!(found.name(), system.format().name(), "{name}");
            let mounted = system.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
            let fs = mounted.fs();
            let file = fs.create(fs.root(), b"kept", &NewNode::file(0o644)).await.unwrap();
            fs.write(file.ino, 0, b"what was written").await.unwrap();
            assert_eq!(mounted.statistics().log.is_some(), system.journal().is_some(), "{name}");
            mounted.unmount().await.unwrap();
            let report = found.check(&disks, &CheckOptions::default()).await.unwrap();
            assert!(report.is_consistent() && report.exit_code() == 0, "{name}: {report}");
            let read = found.read(&rt, &disks, &MountOptions::default()).await.unwrap();
            let fs = read.fs();
            let file = fs.lookup(fs.root(), b"kept").await.unwrap();
            let mut there = [0; 16];
            assert_eq!(fs.read(file.ino, 0, &mut there).await.unwrap(), 16, "{name}");
            assert_eq!(&there, b"what was written", "{name}");
        });
    }
}

/// Every rule that a system names can be switched off, and the system works without it as long as
/// nothing crashes; unknown rules are refused. Would catch names of another ordering's rules.
#[test]
fn rules_are_those_of_the_ordering() {
    for system in System::runnable() {
        for rule in system.rules() {
            run(async |rt| {
                let disks = rams(system);
                system.make(&rt, &disks, &small(system.format())).await.unwrap();
                let without = MountOptions { without: Some(rule), ..MountOptions::default() };
                let mounted = system.mount(&rt, &disks, &without).await.unwrap();
                mounted.unmount().await.unwrap();
            });
        }
    }
    let of = |system: System| system.rules().len();
    assert_eq!(of(ffs::NONE), 0);
    assert!(of(ffs::SYNC) > 3 && of(ffs::SOFT_UPDATES) > 10);
}

/// An LFS is mounted for use under its own ordering, and under no other's. Would catch an ordering
/// that is dropped in silence, or a mount that only reads.
#[test]
fn a_log_is_mounted_under_its_own_ordering() {
    run(async |rt| {
        let (system, disks) = (lfs::LFS, rams(lfs::LFS));
        system.make(&rt, &disks, &small(system.format())).await.unwrap();
        let format = format_of(&disks[0]).await.unwrap();
        let can = [Ability::Make, Ability::Read, Ability::Write, Ability::Check, Ability::Crash];
        assert_eq!(format.abilities(), can);
        let told: ordo_systems::MessageSink = Rc::new(|_| {});
        let options = MountOptions::default();
        let other = Choice { ordering: Some(ffs::SYNC.ordering()), ..Choice::default() };
        let refused = format.attach(&rt, &disks, &other, &options, &told).await;
        assert!(matches!(refused, Err(SystemError::Option { option: "ordering=", .. })));
        let attempt = format.attach(&rt, &disks, &Choice::default(), &options, &told).await;
        let Ok(Attempt::Mounted(mounted, "log")) = attempt else { panic!("it is written") };
        let fs = mounted.fs();
        fs.create(fs.root(), b"new", &NewNode::file(0o644)).await.unwrap();
        mounted.unmount().await.unwrap();
        let read = format.read(&rt, &disks, &options).await.unwrap();
        read.fs().lookup(read.fs().root(), b"new").await.unwrap();
        let made = read.fs().create(read.fs().root(), b"newer", &NewNode::file(0o644)).await;
        assert_eq!(made.unwrap_err().errno, Errno::ReadOnly);
        let shown = format.show(&disks, &ShowOptions::default()).await.unwrap();
        assert!(shown.starts_with("LFS64"), "{shown}");
    });
}

/// The file system made last is found, and nothing of the earlier one: no superblock of the earlier
/// one leads to it. Would catch a probe that takes a leftover for the present format, and a reader
/// that finds an old copy.
#[test]
fn the_file_system_that_was_made_last_is_found() {
    run(async |rt| {
        let disks = rams(lfs::LFS);
        let name = async || probe(&disks[0]).await.unwrap().map(|f| f.name());
        ffs::SYNC.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
        assert_eq!(name().await, Some("ufs2"));
        for _ in 0..2 {
            lfs::LFS.make(&rt, &disks, &small(lfs::LFS.format())).await.unwrap();
            assert_eq!(name().await, Some("lfs"));
            let (ufs, options) = (ffs::SYNC.format(), MountOptions::default());
            assert!(!ufs.is_on(&disks[0]).await.unwrap());
            assert!(ufs.read(&rt, &disks, &options).await.is_err());
            ffs::SYNC.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
            assert_eq!(name().await, Some("ufs2"));
            let log = lfs::LFS.format();
            assert!(!log.is_on(&disks[0]).await.unwrap());
            assert!(log.read(&rt, &disks, &options).await.is_err());
            dualfs::DUALFS.make(&rt, &disks, &small(dualfs::DUALFS.format())).await.unwrap();
            assert_eq!(name().await, Some("dualfs"));
            ffs::SYNC.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
            assert_eq!(name().await, Some("ufs2"));
        }
    });
}

/// A DualFS is found by its metadata device, and the error names the missing data device; a data
/// device alone is recognised too. Would catch a pair that is mounted without one half, or taken
/// for another format.
#[test]
fn a_pair_is_found_and_shown_by_either_half() {
    run(async |rt| {
        let (system, disks) = (dualfs::DUALFS_2, rams(dualfs::DUALFS_2));
        system.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
        for (disk, role) in disks.iter().zip(["metadata", "data"]) {
            let format = probe(disk).await.unwrap().expect("a pair");
            assert_eq!(format.name(), "dualfs");
            let shown =
                format.show(std::slice::from_ref(disk), &ShowOptions::default()).await.unwrap();
            assert!(shown.starts_with(&format!("DualFS, {role} device of the pair")), "{shown}");
            let alone = std::slice::from_ref(disk);
            let error = format.read(&rt, alone, &MountOptions::default()).await.err().unwrap();
            assert!(error.to_string().contains("give"), "{error}");
        }
        let one = rams(dualfs::DUALFS);
        dualfs::DUALFS.make(&rt, &one, &MakeOptions::default()).await.unwrap();
        let options = ShowOptions { groups: true, json: true, ..ShowOptions::default() };
        let format = format_of(&one[0]).await.unwrap();
        let shown = format.show(&one, &options).await.unwrap();
        assert!(shown.contains("\"free_blocks\"") && shown.contains("\"data_at\""), "{shown}");
    });
}

/// Would catch an option that a format drops in silence.
#[test]
fn options_that_a_format_lacks_are_refused() {
    let odd = |of: fn(&mut MakeOptions)| {
        let mut options = MakeOptions::default();
        of(&mut options);
        options
    };
    let not_lfs: [(&str, MakeOptions); 6] = [
        ("--meta-copy", odd(|o| o.metadata_copy = Some(MetadataSize::Percent(20)))),
        ("--label", odd(|o| o.label = Some("data".into()))),
        ("--soft-updates", odd(|o| o.soft_updates = true)),
        ("--big-endian", odd(|o| o.big_endian = true)),
        ("--density", odd(|o| o.density = Some(4096))),
        ("--no-check-hashes", odd(|o| o.no_check_hashes = true)),
    ];
    let not_dualfs = [
        ("--label", odd(|o| o.label = Some("data".into()))),
        ("--no-crc", odd(|o| o.no_seals = true)),
        ("--journal", odd(|o| o.log = Some(LogPlace::File))),
    ];
    let not_ufs2 = [
        ("--segment-size", odd(|o| o.segment_size = Some(1 << 20))),
        ("--no-crc", odd(|o| o.no_seals = true)),
        ("--meta", odd(|o| o.metadata = Some(MetadataSize::Percent(20)))),
        ("--meta-copy", odd(|o| o.metadata_copy = Some(MetadataSize::Percent(20)))),
    ];
    let all = not_lfs
        .iter()
        .map(|o| (lfs::LFS, o))
        .chain(not_ufs2.iter().map(|o| (ffs::SYNC, o)))
        .chain(not_dualfs.iter().map(|o| (dualfs::DUALFS, o)));
    for (system, (option, options)) in all {
        run(async |rt| {
            let made = system.make(&rt, &rams(system), options).await;
            let refused =
                matches!(&made, Err(SystemError::Option { option: o, .. }) if o == option);
            assert!(refused, "{option}: {made:?}");
        });
    }
}

/// Names are unique, and an ordering's word leads to one kind of system. Would catch an entry that
/// was copied.
#[test]
fn names_are_unique() {
    let mut names: Vec<_> = System::all().iter().map(|s| s.name()).collect();
    // LFS and DualFS are formats of one use.
    let of_one = [lfs::LFS.name(), dualfs::DUALFS.name()];
    names.extend(FORMATS.iter().map(|f| f.name()).filter(|n| !of_one.contains(n)));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let orderings = orderings();
    let words: Vec<_> = orderings.iter().map(|(first, _)| *first).collect();
    assert_eq!(words, ["sync", "soft-updates", "none", "journal", "log", "dual"]);
    for system in System::runnable() {
        assert_eq!(System::by_name(system.name()), Some(system));
        let of = orderings.iter().filter(|(_, also)| also.contains(&system.name()));
        assert_eq!(of.map(|(first, _)| *first).collect::<Vec<_>>(), [system.ordering()]);
    }
}

/// Files outside `systems` that name systems, in how many lines, and why.
const ELSEWHERE: [(&str, usize, &str); 19] = [
    ("shell/compare/src/published.rs", 6, "what the papers say of each"),
    ("shell/compare/src/reproduce/tables.rs", 21, "which of them a published table measured"),
    ("shell/compare/src/reproduce/soft_updates.rs", 8, "which of them a published figure compares"),
    ("shell/compare/src/reproduce/crashes.rs", 8, "which of them a published figure compares"),
    ("shell/compare/src/reproduce/items.rs", 2, "which of them a published table measured"),
    ("shell/compare/src/reproduce/journaling.rs", 20, "which of them a paper's sentence compares"),
    ("shell/compare/src/reproduce/micro.rs", 28, "which of them a published figure compares"),
    ("shell/compare/src/reproduce/dualfs.rs", 1, "which of them a published table measured"),
    ("shell/compare/src/recovery.rs", 1, "looks at what is left without any order"),
    ("lab/figures/src/bin/figures", 56, "what `make bench` sets beside published figures"),
    ("shell/cli/src/args.rs", 6, "a default, and examples of calls"),
    ("shell/cli/src/args/choice.rs", 4, "examples of what --fs takes"),
    ("shell/cli/src/args/crash.rs", 12, "examples of calls"),
    ("shell/cli/src/commands/age.rs", 1, "an example of a call"),
    (
        "shell/cli/src/commands/compare/explanation.rs",
        1,
        "the one sentence that compares two of them",
    ),
    ("shell/cli/src/commands/crash/program/mod.rs", 1, "an example of a call"),
    ("shell/cli/src/commands/crash/fleet.rs", 1, "an example of a call"),
    ("shell/cli/src/commands/crash/explanation.rs", 2, "what a paper says of two of them"),
    ("judge/crash/src/saved.rs", 1, "a name in a test of the file's form"),
];

/// Adding a system touches its own module and a line of the registry: outside of this crate no
/// source knows a system by name, except the places above, which show published comparisons or
/// examples. Would catch a list of systems, or a match over them, that has to be kept up to date.
#[test]
fn systems_are_named_here_and_in_few_places_for_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found: Vec<(String, usize)> = Vec::new();
    for file in sources(crates) {
        let name = file.strip_prefix(crates).unwrap().display().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter(|line| names_a_system(line)).count();
        if lines > 0 && !name.starts_with("shell/systems/") {
            found.push((name, lines));
        }
    }
    for (place, most, why) in ELSEWHERE {
        let lines: usize = found.iter().filter(|f| f.0.starts_with(place)).map(|f| f.1).sum();
        assert!(lines > 0, "{place} ({why}): no system is named there any more");
        assert!(lines <= most, "{place} ({why}): {lines} lines name a system, {most} are expected");
    }
    found.retain(|(name, _)| !ELSEWHERE.iter().any(|(place, ..)| name.starts_with(place)));
    assert_eq!(found, [], "these name a system: take it from the registry");
}

/// Whether a line of code, not of documentation, has a system's name as a word, or the constant
/// that it is.
fn names_a_system(line: &str) -> bool {
    if line.trim_start().starts_with("//") {
        return false;
    }
    let is_word = |at: usize, name: &str| {
        let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-');
        !part(line[..at].chars().next_back()) && !part(line[at + name.len()..].chars().next())
    };
    // A format's name is that of modules too.
    let by_name = System::runnable()
        .filter(|s| s.name() != s.format().name())
        .any(|s| line.match_indices(s.name()).any(|(at, name)| is_word(at, name)));
    let constants = ["ffs::SYNC", "ffs::SOFT_UPDATES", "ffs::NONE", "lfs::LFS", "dualfs::DUALFS"];
    let journals = ["journaled::FILE", "journaled::WAFS_"];
    by_name || constants.iter().chain(&journals).any(|c| line.contains(c))
}

/// The Rust sources of all crates but their tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(&*name, "tests" | "examples" | "target") {
            out.extend(sources(&path));
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "test_scheme.rs" {
            out.push(path);
        }
    }
    out.sort();
    out
}

//! `make bench-mount`: mounts side by side, on the same disk, in one run.
//!
//! Every contestant gets the same work from the same program, one round of each by turns, so that
//! other work on the machine slows all of them alike. The medians of the rounds are compared.
//! "Cold" means that the file system was unmounted and mounted again, and that the kernel has
//! dropped the image from its cache. Client and server are pinned to the processors in `PIN`; the
//! default is all of them. `ROUNDS`, `FILES` and `MIB` change the amount of work. `HALT_POLL` sets
//! for how many nanoseconds a virtual machine's idle processor polls before it halts; the page is
//! then another one. `ONLY` selects contestants by parts of their names or, after `=`, by their
//! names, with `;` between them; then nothing is written, unless `RESULTS` names a file of earlier
//! figures, to which the new ones are added, so that a run can be made in parts. The part of the
//! page below `## By hand` stays as it is.

mod programs;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use programs::PROGRAMS;

/// The measurements by this program: name, unit, and whether less is better. Those of [`PROGRAMS`]
/// follow.
const OWN_WORK: [(&str, &str, bool); 9] = [
    ("create empty files", "µs each", true),
    ("create empty files, two clients at a time", "µs each", true),
    ("create files of 1 KB in 200 directories", "µs each", true),
    ("read these files cold", "µs each", true),
    ("list the directories cold, with attributes", "µs each", true),
    ("delete these files", "µs each", true),
    ("write a large file and fsync", "MB/s", false),
    ("read the large file cold", "MB/s", false),
    ("untar a source tree", "s", true),
];

/// All measurements: name, unit, and whether less is better.
fn work() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    let programs = PROGRAMS.iter().map(|program| (program.name, program.unit, program.less()));
    OWN_WORK.into_iter().chain(programs)
}

/// A contestant: the shell lines that make, mount and unmount it. `$D` is its folder, `$M` its
/// mount point, `$P` the command that pins a server.
struct Contestant {
    name: &'static str,
    make: String,
    mount: String,
    unmount: &'static str,
    /// Whether it waits for the disk with every change, so that one round suffices.
    once: bool,
}

/// The heading of the part of the page that people write and that is kept.
const BY_HAND: &str = "## Notes on the run";

/// Makes the kernel drop an image from its cache. The unmount drops everything about the mount
/// itself.
const FORGET: &str = "{ [ ! -f $D/image ] || \
     dd of=$D/image oflag=nocache conv=notrunc,fdatasync count=0 status=none; }";

const EXT4: &str = "ext4 on a loop device";

/// The contestant with which the others are compared first.
const YARDSTICK: &str = "passthrough_ll on tmpfs";
/// The same without the kernel's caches: every read and write is direct, and no attribute is kept.
const UNCACHED: &str = "passthrough_ll on tmpfs, not cached";

fn contestants(ordo: &Path) -> Vec<Contestant> {
    let ordo = ordo.display();
    let new = |name, make: &str, mount: &str| Contestant {
        name,
        make: make.to_owned(),
        mount: mount.to_owned(),
        unmount: "umount $M",
        once: name == "ordo, sync",
    };
    let mkfs = format!("{ordo} mkfs --size 2g $D/image >/dev/null");
    let with_log = format!("{ordo} mkfs --size 2g --journal file $D/image >/dev/null");
    let ours = |ordering| format!("$P {ordo} mount -q $D/image $M -o cache=1g,ordering={ordering}");
    let passthrough = std::env::var("PASSTHROUGH").unwrap_or("passthrough_ll".into());
    vec![
        new(
            YARDSTICK,
            "mkdir -p $D/ram; mount -t tmpfs -o size=3g none $D/ram",
            // The server keeps a descriptor of every file that the kernel knows.
            &format!("ulimit -n $(ulimit -Hn); $P {passthrough} -s -o source=$D/ram $M"),
        ),
        new(
            UNCACHED,
            "mkdir -p $D/ram; mount -t tmpfs -o size=3g none $D/ram",
            &format!(
                "ulimit -n $(ulimit -Hn); $P {passthrough} -s -o source=$D/ram,cache=never $M"
            ),
        ),
        new("ordo, none", &mkfs, &ours("none")),
        new("ordo, none, over io_uring", &mkfs, &ours("none,io_uring")),
        new("ordo, none, write-back", &mkfs, &ours("none,writeback")),
        new("ordo, none, no readdirplus", &mkfs, &ours("none,noreaddirplus")),
        new("ordo, soft-updates", &mkfs, &ours("soft-updates")),
        new("ordo, soft-updates, over io_uring", &mkfs, &ours("soft-updates,io_uring")),
        new("ordo, journal", &with_log, &ours("journal")),
        new("ordo, journal, over io_uring", &with_log, &ours("journal,io_uring")),
        new("ordo, sync", &mkfs, &ours("sync")),
        new(
            "ntfs-3g",
            "truncate -s 2g $D/image; mkntfs -qF $D/image >/dev/null 2>&1",
            "$P ntfs-3g $D/image $M",
        ),
        new(
            "fuse2fs",
            "truncate -s 2g $D/image; mkfs.ext4 -qF $D/image",
            "$P fuse2fs $D/image $M -o fakeroot 2>/dev/null; for i in $(seq 100); do \
             mountpoint -q $M && break; sleep 0.05; done",
        ),
        new(EXT4, "truncate -s 2g $D/image; mkfs.ext4 -qF $D/image", "mount -o loop $D/image $M"),
        new(
            "XFS on a loop device",
            "truncate -s 2g $D/image; mkfs.xfs -qf $D/image",
            "mount -o loop $D/image $M",
        ),
    ]
}

/// Whether a contestant takes part.
fn is_chosen(c: &Contestant) -> bool {
    let Ok(only) = std::env::var("ONLY") else { return true };
    only.split(';').any(|word| match word.strip_prefix('=') {
        Some(name) => c.name == name,
        None => c.name.contains(word),
    })
}

/// The figures of each contestant and measurement.
type Figures = Vec<Vec<Vec<f64>>>;

/// The figures of earlier runs in a file: lines of contestant, measurement and figure, with tabs
/// between them.
fn read_figures(file: &Path, all: &[Contestant]) -> Figures {
    let mut figures = vec![vec![Vec::new(); work().count()]; all.len()];
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [name, what, figure] = words[..] else { continue };
        let contestant = all.iter().position(|c| c.name == name);
        let measurement = work().position(|(w, _, _)| w == what);
        if let (Some(c), Some(w), Ok(figure)) = (contestant, measurement, figure.parse()) {
            figures[c][w].push(figure);
        }
    }
    figures
}

fn write_figures(file: &Path, all: &[Contestant], figures: &Figures) -> Result<(), String> {
    let mut out = String::new();
    for (contestant, figures) in all.iter().zip(figures) {
        for ((what, _, _), figures) in work().zip(figures) {
            for figure in figures {
                let _ = writeln!(out, "{}\t{what}\t{figure}", contestant.name);
            }
        }
    }
    fs::write(file, out).map_err(|e| format!("{}: {e}", file.display()))
}

/// A parameter of the kernel that has another value during the run.
struct Parameter {
    file: &'static str,
    before: Option<String>,
}

impl Parameter {
    /// Sets the parameter if the machine has it.
    fn set(file: &'static str, value: &str) -> Parameter {
        let before = fs::read_to_string(file).ok();
        let is_set = fs::write(file, value).is_ok();
        Parameter { file, before: before.filter(|_| is_set) }
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(self.file, before);
        }
    }
}

/// Permission for FUSE over io_uring.
const OVER_IO_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The time for which an idle processor of a virtual machine polls before it halts, in nanoseconds.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// Measures all contestants that the machine has, and writes the page.
pub fn run(ordo: &Path) -> Result<(), String> {
    let number = |name: &str, usual: usize| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
    };
    let (rounds, files, mib) = (number("ROUNDS", 5), number("FILES", 10_000), number("MIB", 512));
    let folder = std::env::temp_dir().join(format!("ordo-mounts-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let tar = folder.join("tree.tar");
    let tree = std::env::var("TREE").unwrap_or("/usr/include".into());
    shell(&folder, &format!("tar cf {} -C {tree} .", tar.display()))?;
    let all = contestants(ordo);
    let halt_poll = std::env::var("HALT_POLL").ok();
    let _over_io_uring = Parameter::set(OVER_IO_URING, "Y");
    let _halt_poll = halt_poll.as_deref().map(|value| Parameter::set(HALT_POLL, value));
    let kept = std::env::var_os("RESULTS").map(std::path::PathBuf::from);
    let mut results = read_figures(kept.as_deref().unwrap_or("".as_ref()), &all);
    for round in 0..rounds {
        for (contestant, results) in all.iter().zip(&mut results) {
            let has_run = results.iter().any(|figures| !figures.is_empty());
            if !is_chosen(contestant) || contestant.once && has_run {
                continue;
            }
            eprintln!("round {}, {}", round + 1, contestant.name);
            let place = folder.join(contestant.name.replace([' ', ','], "-"));
            match one(contestant, &place, &tar, files, mib) {
                Ok(times) => times.iter().zip(results).for_each(|(t, all)| all.extend(*t)),
                Err(error) => eprintln!("  left out: {error}"),
            }
            let clean = "umount -l $M 2>/dev/null; umount -l $D/ram 2>/dev/null; rm -rf $D";
            let _ = shell(&place, clean);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    if let Some(file) = &kept {
        write_figures(file, &all, &results)?;
    }
    let text = page(&all, &results, (files, mib), &tree);
    print!("{text}");
    if kept.is_some() || std::env::var_os("ONLY").is_none() {
        let page = if halt_poll.is_some() { "mount-halt-poll.md" } else { "mount.md" };
        let file = crate::tidy::root().join("docs/results").join(page);
        let old = fs::read_to_string(&file).unwrap_or_default();
        let kept = old.find(BY_HAND).map_or("", |at| &old[at..]);
        fs::write(&file, text + kept).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Runs a script. `$D` is the place, `$M` the mount point in it.
pub fn shell(place: &Path, script: &str) -> Result<(), String> {
    let mount = place.join("mounted");
    let pin = std::env::var("PIN").map(|cpus| format!("taskset -c {cpus}")).unwrap_or_default();
    let out = Command::new("bash")
        .args(["-c", script])
        .env("D", place)
        .env("M", &mount)
        .env("P", pin)
        .output()
        .map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{script}: {}", String::from_utf8_lossy(&out.stderr))),
    }
}

fn one(
    c: &Contestant,
    place: &Path,
    tar: &Path,
    files: usize,
    mib: usize,
) -> Result<Vec<Option<f64>>, String> {
    let mounted = place.join("mounted");
    fs::create_dir_all(&mounted).map_err(|e| e.to_string())?;
    shell(place, &c.make)?;
    let mount = || shell(place, &c.mount);
    let again = || {
        shell(place, &format!("{} && {FORGET}", c.unmount))?;
        mount()
    };
    mount()?;
    let mut out = Vec::new();
    let per = |seconds: f64| seconds * 1e6 / files as f64;
    let flat = mounted.join("flat");
    fs::create_dir(&flat).map_err(|e| e.to_string())?;
    out.push(per(timed(|| each(files, |i| File::create(flat.join(format!("f{i}"))).map(drop)))?));
    // The kernel drops these, and the server may do so too.
    again()?;
    out.push(per(timed(|| two_at_a_time(&mounted, files))?));
    again()?;
    let name = |i: usize| mounted.join(format!("d{}/file-{i}", i % 200));
    (0..200)
        .try_for_each(|i| fs::create_dir(mounted.join(format!("d{i}"))))
        .map_err(|e| e.to_string())?;
    let kilobyte = [7; 1024];
    out.push(per(timed(|| each(files, |i| fs::write(name(i), kilobyte)))?));
    again()?;
    out.push(per(timed(|| each(files, |i| fs::read(name(i)).map(drop)))?));
    again()?;
    out.push(per(timed(|| list(&mounted))?));
    out.push(per(timed(|| each(files, |i| fs::remove_file(name(i))))?));
    let large = mounted.join("large");
    let block = vec![5; 1 << 20];
    let write = || {
        let mut file = File::create(&large)?;
        (0..mib).try_for_each(|_| file.write_all(&block))?;
        file.sync_all()
    };
    out.push(mib as f64 * 1.048_576 / timed(write)?);
    again()?;
    let mut buf = vec![0; 1 << 20];
    let read = || {
        let mut file = File::open(&large)?;
        while file.read(&mut buf)? > 0 {}
        Ok(())
    };
    out.push(mib as f64 * 1.048_576 / timed(read)?);
    out.push(untar(place, tar, &mounted.join("tree"))?);
    let mut out: Vec<Option<f64>> = out.into_iter().map(Some).collect();
    for program in &PROGRAMS {
        out.push(programs::measure(program, &mounted).unwrap_or_else(|error| {
            eprintln!("  left out: {}", error.lines().next().unwrap_or_default());
            None
        }));
    }
    shell(place, c.unmount)?;
    Ok(out)
}

/// Lists the directories with the attributes of what is in them.
fn list(mounted: &Path) -> std::io::Result<()> {
    for i in 0..200 {
        for entry in fs::read_dir(mounted.join(format!("d{i}")))? {
            entry?.metadata()?;
        }
    }
    Ok(())
}

/// The seconds in which an archive is unpacked.
fn untar(place: &Path, tar: &Path, to: &Path) -> Result<f64, String> {
    fs::create_dir(to).map_err(|e| e.to_string())?;
    let script = format!("tar xf {} -C {} --no-same-owner", tar.display(), to.display());
    let start = Instant::now();
    shell(place, &script)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Runs two threads, each in a directory of its own.
fn two_at_a_time(mounted: &Path, files: usize) -> std::io::Result<()> {
    let half = |name: &str| {
        let dir = mounted.join(name);
        fs::create_dir(&dir)?;
        each(files / 2, |i| File::create(dir.join(format!("f{i}"))).map(drop))
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half("left"));
        half("right").and(other.join().expect("it does not panic"))
    })
}

fn each(n: usize, f: impl FnMut(usize) -> std::io::Result<()>) -> std::io::Result<()> {
    (0..n).try_for_each(f)
}

fn timed(f: impl FnOnce() -> std::io::Result<()>) -> Result<f64, String> {
    let start = Instant::now();
    f().map_err(|e| e.to_string())?;
    Ok(start.elapsed().as_secs_f64())
}

/// The middle one; NaN of none.
pub fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The behaviour of an idle processor of this machine, as far as that is known.
fn idle() -> String {
    let Ok(ns) = fs::read_to_string(HALT_POLL) else { return String::new() };
    let us = ns.trim().parse().unwrap_or(0) / 1000;
    match us {
        0 => "; an idle processor halts at once".to_owned(),
        us => format!("; an idle processor polls for {us} µs before it halts"),
    }
}

fn page(
    all: &[Contestant],
    results: &[Vec<Vec<f64>>],
    (files, mib): (usize, usize),
    tree: &str,
) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let info = read("/proc/cpuinfo");
    let cpu = info.lines().find_map(|l| l.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let load = read("/proc/loadavg");
    let pin = std::env::var("PIN").unwrap_or("all processors".into());
    let mut out = format!(
        "# Mounts side by side\n\nWritten by `make bench-mount`: each figure is the median of some rounds, with the \
         least, the most and the number of rounds in brackets. In each round all systems run in turn. All images are on one disk. {} \
         processors of {cpu}, Linux {}; client and server run on {pin}{}; the load of the machine at the end: {}. \
         {files} files of each kind, one large file of {mib} MiB; the tree is {tree}.\n\n",
        std::thread::available_parallelism().map_or(1, usize::from),
        kernel.trim(),
        idle(),
        load.split(' ').next().unwrap_or("unknown"),
    );
    let yardstick = all.iter().position(|c| c.name == YARDSTICK);
    for (w, (what, unit, less)) in work().enumerate() {
        let _ = writeln!(out, "## {what}\n\n| | {unit} | times {YARDSTICK} |\n|---|---|---|");
        let base = yardstick.map_or(f64::NAN, |y| median(&results[y][w]));
        for (contestant, results) in all.iter().zip(results) {
            let times = &results[w];
            if times.is_empty() {
                if results.iter().any(|times| !times.is_empty()) {
                    let _ = writeln!(out, "| {} | did not run | |", contestant.name);
                }
                continue;
            }
            let (least, most) =
                times.iter().fold((f64::MAX, 0f64), |(a, b), t| (a.min(*t), b.max(*t)));
            let own = median(times);
            // Ratios of times: more is always slower.
            let ratio = if less { own / base } else { base / own };
            let _ = writeln!(
                out,
                "| {} | {own:.2} ({least:.2} to {most:.2}; {}) | {ratio:.2} |",
                contestant.name,
                times.len(),
            );
        }
        out.push('\n');
    }
    out.push_str(&verdicts(all, results));
    out
}

/// The file systems of [`verdicts`], each with the most times that it may be faster; infinite where
/// that is no goal. Of several contestants the faster one counts.
const GOALS: [(&[&str], &str, f64); 4] = [
    (&[YARDSTICK, UNCACHED], "the faster passthrough_ll", 1.1),
    (&["ntfs-3g"], "ntfs-3g", 1.0),
    (&["fuse2fs"], "fuse2fs", 1.0),
    (&[EXT4], "ext4", f64::INFINITY),
];

/// Goals of single measurements: words of its name, the ordering or none for every, the file
/// system, and the most times that it may be faster.
const OWN_GOALS: [(&str, &str, &str, f64); 7] = [
    // An fsync on tmpfs does nothing.
    ("SQLite", "", "the faster passthrough_ll", f64::INFINITY),
    ("random writes of 4 KB, direct", "", "the faster passthrough_ll", 1.25),
    ("random writes of 4 KB, buffered", "", "the faster passthrough_ll", 1.25),
    ("untar", "", "ext4", 3.0),
    ("SQLite", "journal", "ext4", 1.0),
    ("SQLite", "soft-updates", "ext4", 1.5),
    ("delete", "journal", "ordo, none", 1.0),
];

/// The goal of a measurement of an ordering beside a file system; infinite if there is none.
fn goal(what: &str, ours: &str, theirs: &str) -> f64 {
    let own = OWN_GOALS.iter().find(|(words, ordering, name, _)| {
        what.contains(words) && ours.contains(ordering) && *name == theirs
    });
    let usual = || GOALS.iter().find(|(_, name, _)| *name == theirs).map(|(_, _, most)| *most);
    own.map(|(_, _, _, most)| *most).or_else(usual).unwrap_or(f64::INFINITY)
}

/// How the orderings that people use compare with the goals, from the medians.
fn verdicts(all: &[Contestant], results: &[Vec<Vec<f64>>]) -> String {
    let place = |name: &str| all.iter().position(|c| c.name == name);
    let mut out = "## Against the goals\n\nThe time of the system, divided by the time of the other one, and the goal where there is one: \
                   a ratio above it is in bold. Of passthrough_ll, with the kernel's caches and without, the faster one counts; for buffered I/O the one with them.\n"
        .to_owned();
    let others = GOALS.iter().map(|(names, name, _)| (names.to_vec(), *name));
    let others: Vec<_> = others.chain([(vec!["ordo, none"], "ordo, none")]).collect();
    for ours in ["ordo, soft-updates", "ordo, journal"] {
        let Some(own) = place(ours) else { continue };
        let names: Vec<&str> = others.iter().map(|(_, name)| *name).collect();
        let _ = writeln!(
            out,
            "\n| {ours} | {} |\n|---{}|",
            names.join(" | "),
            "|---".repeat(names.len())
        );
        let (mut reached, mut missed) = (0, 0);
        for (w, (what, _, less)) in work().enumerate() {
            let _ = write!(out, "| {what} |");
            let time = |at: usize| {
                let median = median(&results[at][w]);
                if less { median } else { 1.0 / median }
            };
            for (names, name) in &others {
                // Without the kernel's caches, buffered I/O is direct: it is other work.
                let is_same = |name: &&&str| !(what.contains("buffered") && **name == UNCACHED);
                let names = names.iter().filter(is_same);
                let theirs = names.filter_map(|n| place(n)).map(time).fold(f64::NAN, f64::min);
                let (ratio, most) = (time(own) / theirs, goal(what, ours, name));
                let shown =
                    if most.is_finite() { format!(" (goal {most})") } else { String::new() };
                let _ = match ratio {
                    ratio if ratio.is_nan() => write!(out, " - |"),
                    ratio if ratio > most => write!(out, " **{ratio:.2}**{shown} |"),
                    ratio => write!(out, " {ratio:.2}{shown} |"),
                };
                reached += u32::from(most.is_finite() && ratio <= most);
                missed += u32::from(most.is_finite() && ratio > most);
            }
            out.push('\n');
        }
        let _ = writeln!(out, "\n{ours}: {reached} goals are reached, {missed} are missed.");
    }
    out.push('\n');
    out
}

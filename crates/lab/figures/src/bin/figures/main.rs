//! `make bench`: measures the figures and writes them to pages.
//!
//! Each section measures everything that it compares in one run, several rounds of each by turns,
//! and gives the median with the least and the most beside it. The machine may be shared: ratios
//! are then more reliable than single times. Virtual time is exact; the model and the seed are
//! named. With arguments, only the named sections are measured. The results of a section are kept
//! in `target/figures`, with the commit at which they were measured. A section that is not there
//! stays as the page has it; a page is written as soon as all its sections have been measured, now
//! or earlier.

mod acceptance;
mod aged;
mod compare;
mod crash;
mod directories;
mod dualfs;
mod files;
mod in_process;
mod journal;
mod kernel;
mod lfs;
mod lfs_real;
mod lfs_recovery;
mod processor;
mod recovery;
mod replay;
mod rows;
mod servers;
mod simulated;
mod soft;
mod streaming;
mod whatif;
mod whatif_kernel;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The allocator of the `ordo` command, so that figures in process are those that its users see.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Several measurements of one quantity.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The least, the median and the most.
    pub fn spread(&self) -> (f64, f64, f64) {
        let mut all = self.0.clone();
        all.sort_by(f64::total_cmp);
        let last = all.len().saturating_sub(1);
        let at = |i: usize| all.get(i).copied().unwrap_or(f64::NAN);
        (at(0), at(all.len() / 2), at(last))
    }

    /// The ratio of two samples, pair by pair.
    pub fn over(&self, other: &Sample) -> Sample {
        Sample(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// A section of a page in Markdown: tables of samples, and a verdict on each target.
#[derive(Default)]
pub struct Section {
    text: String,
    /// The plots of the section: name and contents.
    plots: Vec<(String, String)>,
}

impl Section {
    fn titled(title: &str) -> Section {
        Section { text: format!("## {title}\n\n"), plots: Vec::new() }
    }

    /// Adds a paragraph.
    pub fn say(&mut self, words: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{words}\n");
    }

    /// Adds a plot, as SVG, in a file of its own.
    pub fn plot(&mut self, file: &str, what: &str, svg: String) {
        let _ = writeln!(self.text, "![{what}]({file})\n");
        self.plots.push((file.to_owned(), svg));
    }

    /// Adds the head of a table of samples.
    pub fn table(&mut self) {
        self.text.push_str("| what | median | least | most |\n|---|---|---|---|\n");
    }

    /// Adds a row of the table.
    pub fn row(&mut self, what: &str, sample: &Sample, decimals: usize) {
        let (least, median, most) = sample.spread();
        let _ = writeln!(
            self.text,
            "| {what} | {median:.decimals$} | {least:.decimals$} | {most:.decimals$} |"
        );
    }

    /// Ends a table.
    pub fn end(&mut self) {
        self.text.push('\n');
    }

    /// Adds a line.
    pub fn line(&mut self, words: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{words}");
    }

    /// Adds a target, and whether it was met.
    pub fn target(&mut self, what: &str, value: f64, met: bool) {
        let verdict = if met { "met" } else { "MISSED" };
        let _ = writeln!(self.text, "Target: {what}: {value:.2}, {verdict}.\n");
    }
}

type Measure = fn(&mut Section);

/// The pages: file and title.
const PAGES: [(&str, &str); 10] = [
    ("core.md", "Figures of the core"),
    ("soft-updates.md", "Figures of soft updates"),
    ("journal.md", "Figures of the journals"),
    ("lfs.md", "Figures of LFS"),
    ("dualfs.md", "Figures of DualFS"),
    ("aged.md", "File systems that have aged"),
    ("dualfs-kernel.md", "DualFS and the kernel's file systems"),
    ("workloads.md", "Workloads and the programs that they stand for"),
    ("whatif.md", "Playback with a change, and the change really made"),
    ("compare.md", "Programs on Ordo's file systems and the kernel's"),
];

/// The sections: page, name, title.
const SECTIONS: [(&str, &str, &str, Measure); 36] = [
    (CORE, "in-process", "Create, stat and unlink, in process and on ext4", in_process::measure),
    (CORE, "directories", "A directory of a million entries", directories::measure),
    (CORE, "streaming", "One large file, written and read", streaming::measure),
    (CORE, "processor", "What records of an ordering take", processor::measure),
    (CORE, "simulated", "Simulated disk requests", simulated::measure),
    (CORE, "crash", "Crash states judged", crash::measure),
    (CORE, "files", "Writes for each file, and throughput by size", files::measure),
    (SOFT, "soft-updates", "Beside no order and synchronous writes", soft::measure),
    (SOFT, "recovery", "After a crash", recovery::measure),
    (JOURNAL, "journal", "Journals, and what group commit buys", journal::measure),
    (JOURNAL, "replay", "Recovery of a journal", replay::measure),
    (LFS, "lfs", "Beside FFS, by the size of files", lfs::measure),
    (LFS, "lfs-tuning", "FFS tuned for writing or for reading", lfs::tuning),
    (LFS, "lfs-transactions", "Transactions at half full", lfs::transactions),
    (LFS, "lfs-cleaning", "The cost of cleaning", lfs::cleaning),
    (LFS, "lfs-idle", "Cleaning while idle", lfs::idle),
    (LFS, "lfs-recovery", "A mount after a power cut", lfs_recovery::measure),
    (LFS, "lfs-in-process", "Create, stat and unlink in process", lfs_real::names),
    (LFS, "lfs-sequential", "One large file on disks of the catalogue", lfs_real::sequential),
    (LFS, "lfs-stream", "One large file, written and read", lfs_real::stream),
    (DUALFS, "dualfs", "Beside FFS, journals and LFS", dualfs::measure),
    (DUALFS, "dualfs-switches", "What each mechanism is worth", dualfs::switches),
    (DUALFS, "dualfs-copy", "What a copy of the metadata costs", dualfs::copy),
    (DUALFS, "dualfs-pairs", "Metadata on another device", dualfs::pairs),
    (DUALFS, "dualfs-servers", "The paper's servers", servers::measure),
    (AGED, "aged", "Aged beside fresh", aged::measure),
    (WORKLOADS, "acceptance", "The mix of operations", acceptance::measure),
    (
        WHATIF,
        "whatif-kernel",
        "Another disk, for the kernel's file systems",
        whatif_kernel::measure,
    ),
    (WHATIF, "whatif", "Every change", whatif::changes),
    (WHATIF, "whatif-12", "The place of the journal (Figure 12)", whatif::figure_12),
    (WHATIF, "whatif-adaptive", "The adaptive mode", whatif::adaptive),
    (
        WHATIF,
        "whatif-13",
        "Tangled and untangled transactions (Figures 6 and 13)",
        whatif::figure_13,
    ),
    (WHATIF, "whatif-14", "Overlapped writes (Figure 14)", whatif::figure_14),
    (WHATIF, "whatif-differential", "Differences instead of blocks", whatif::differential),
    (KERNEL, "dualfs-kernel", "The micro-benchmarks on one disk", kernel::measure),
    (COMPARE, "compare", "Six works on fifteen systems and three disks", compare::measure),
];

const CORE: &str = PAGES[0].0;
const SOFT: &str = PAGES[1].0;
const JOURNAL: &str = PAGES[2].0;
const LFS: &str = PAGES[3].0;
const DUALFS: &str = PAGES[4].0;
const AGED: &str = PAGES[5].0;
const KERNEL: &str = PAGES[6].0;
const WORKLOADS: &str = PAGES[7].0;
const WHATIF: &str = PAGES[8].0;
const COMPARE: &str = PAGES[9].0;

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = info.lines().filter(|l| l.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel: String = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{cores} cores of {}, Linux {kernel}", model.trim_start_matches([':', ' ', '\t']))
}

/// The commit that is measured, and whether the tree differs from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let changed = git(&["status", "--porcelain", "--", crates]).is_some_and(|s| !s.is_empty());
    if changed { format!("{commit} with changes") } else { commit }
}

/// The `ordo` beside this program.
fn ordo() -> PathBuf {
    std::env::current_exe().expect("this program").with_file_name("ordo")
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The folder with the stored results of a section.
fn kept(name: &str) -> PathBuf {
    root().join("target/figures").join(name)
}

/// The file with the text of a section, in the section's folder. Plots are beside it.
const TEXT: &str = "text.md";

impl Section {
    /// Reads the results of a section that were measured earlier.
    fn kept(name: &str) -> Option<Section> {
        let text = std::fs::read_to_string(kept(name).join(TEXT)).ok()?;
        let mut plots = Vec::new();
        for file in std::fs::read_dir(kept(name)).ok()?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name != TEXT {
                plots.push((name, std::fs::read_to_string(file.path()).ok()?));
            }
        }
        Some(Section { text, plots })
    }

    /// Reads a section from its page, in `docs/results`. Its plots lie beside the page and stay as
    /// they are.
    fn on_page(page: &str, title: &str) -> Option<Section> {
        let text = std::fs::read_to_string(root().join("docs/results").join(page)).ok()?;
        let (_, from) = text.split_once(&format!("\n## {title}\n"))?;
        let body = from.split("\n## ").next().unwrap_or(from).trim_end();
        Some(Section { text: format!("## {title}\n{body}\n\n"), plots: Vec::new() })
    }

    fn keep(&self, name: &str) {
        let _ = std::fs::remove_dir_all(kept(name));
        let mut files = self.plots.clone();
        files.push((TEXT.to_owned(), self.text.clone()));
        write(&kept(name), &files);
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|c| c == name);
    if let Some(unknown) = chosen.iter().find(|c| SECTIONS.iter().all(|s| s.1 != c.as_str())) {
        let names: Vec<&str> = SECTIONS.iter().map(|s| s.1).collect();
        eprintln!("there is no section {unknown}; the sections are {}", names.join(", "));
        std::process::exit(2);
    }
    let commit = commit();
    for (page, title) in PAGES {
        let of_page = || SECTIONS.iter().filter(|section| section.0 == page);
        if !of_page().any(|section| is_chosen(section.1)) {
            continue;
        }
        let mut text = format!("# {title}\n\nWritten by `make bench` ({}, seed 1).\n\n", machine());
        let mut files = Vec::new();
        let mut missing = Vec::new();
        for (_, name, title, measure) in of_page() {
            if is_chosen(name) {
                eprintln!("measuring: {title}");
                let mut section = Section::titled(title);
                measure(&mut section);
                section.say(format_args!("Measured at commit {commit}."));
                print!("{}", section.text);
                section.keep(name);
            }
            match Section::kept(name).or_else(|| Section::on_page(page, title)) {
                Some(mut section) => {
                    text.push_str(&section.text);
                    files.append(&mut section.plots);
                }
                None => missing.push(*name),
            }
        }
        if missing.is_empty() {
            files.push((page.to_owned(), format!("{}\n", text.trim_end())));
            write(&root().join("docs/results"), &files);
        } else {
            eprintln!("{page} is not written: not measured yet: {}", missing.join(", "));
        }
    }
}

fn write(folder: &Path, files: &[(String, String)]) {
    for (name, contents) in files {
        let path = folder.join(name);
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, contents));
        match written {
            Ok(()) => eprintln!("written: {}", path.display()),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
}

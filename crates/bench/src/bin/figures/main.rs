//! `make bench`: measures the figures and writes them to pages.
//!
//! Each section measures everything that it compares in one run, several rounds of each by turns, and gives the
//! median with the least and the most beside it. The machine may be shared: ratios are then more reliable than
//! single times. Virtual time is exact; the model and the seed are named. With arguments, only the named
//! sections are run, and only pages are written whose sections were all run.

mod crash;
mod directories;
mod files;
mod in_process;
mod journal;
mod processor;
mod recovery;
mod replay;
mod simulated;
mod soft;
mod streaming;

use std::fmt::Write as _;
use std::path::Path;

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
    plots: Vec<(&'static str, String)>,
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
    pub fn plot(&mut self, file: &'static str, what: &str, svg: String) {
        let _ = writeln!(self.text, "![{what}]({file})\n");
        self.plots.push((file, svg));
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
const PAGES: [(&str, &str); 3] = [
    ("core.md", "Figures of the core"),
    ("soft-updates.md", "Figures of soft updates"),
    ("journal.md", "Figures of the journals"),
];

/// The sections: page, name, title.
const SECTIONS: [(&str, &str, &str, Measure); 11] = [
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
];

const CORE: &str = PAGES[0].0;
const SOFT: &str = PAGES[1].0;
const JOURNAL: &str = PAGES[2].0;

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = info.lines().filter(|l| l.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel: String = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{cores} cores of {}, Linux {kernel}", model.trim_start_matches([':', ' ', '\t']))
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    for (page, title) in PAGES {
        let mut text = format!("# {title}\n\nWritten by `make bench` ({}, seed 1).\n\n", machine());
        let mut plots = Vec::new();
        let mut complete = true;
        for (_, name, title, measure) in SECTIONS.iter().filter(|section| section.0 == page) {
            if !chosen.is_empty() && !chosen.iter().any(|c| c == name) {
                complete = false;
                continue;
            }
            eprintln!("measuring: {title}");
            let mut section = Section::titled(title);
            measure(&mut section);
            print!("{}", section.text);
            text.push_str(&section.text);
            plots.append(&mut section.plots);
        }
        if complete {
            plots.push((page, format!("{}\n", text.trim_end())));
            write(&results, &plots);
        }
    }
}

fn write(results: &Path, files: &[(&str, String)]) {
    for (name, contents) in files {
        let written = std::fs::create_dir_all(results)
            .and_then(|()| std::fs::write(results.join(name), contents));
        match written {
            Ok(()) => eprintln!("written to docs/results/{name}"),
            Err(error) => eprintln!("docs/results/{name}: {error}"),
        }
    }
}

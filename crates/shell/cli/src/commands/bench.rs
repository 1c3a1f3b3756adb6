//! `ordo bench`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_compare::{self as compare, ComparisonRow, PhaseRow};
use ordo_report::progress::Progress;
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_runtime::Runtime;
use ordo_vfs::host::HostDir;
use ordo_vfs::{FileSystem, FsResult};
use ordo_workload::{MixEntry, Phase, PhaseListener, Workload, WorkloadStage};

use super::compare::{Bar, setup};
use crate::args::Bench;
use crate::image::real_time;
use crate::interrupt::OnInterrupt;
use crate::privileges::need_root;
use crate::text::put;

pub fn run(args: &Bench) -> Result<()> {
    if args.drop_caches {
        need_root("ordo bench --drop-caches", "empties the kernel's caches")?;
    }
    let text = match &args.dir {
        Some(dir) => in_directory(args, dir)?,
        None => {
            let mut bar = Bar::new(args.quiet);
            let setup = setup(&args.machine, false)?;
            let row = compare::run(args.fs, &args.workload, &setup, &mut bar);
            bar.finish();
            let row = row.with_context(|| format!("{} on {}", args.workload, args.fs.name()))?;
            if args.json { json(&row)? } else { as_text(&args.workload, &row) }
        }
    };
    put(args.output.as_deref(), &text)
}

fn as_text(workload: &Workload, row: &ComparisonRow) -> String {
    let mut out =
        format!("{}\non {}, {}, {}\n\n", workload.describe(), row.system, row.disk, row.cpu);
    let phases: Vec<&Phase> = row.phases.iter().map(|p| &p.phase).collect();
    let mut table = phase_table();
    for heading in ["disk", "writes", "sync waits", "writes/op"] {
        table.column(heading, Align::Right);
    }
    for (phase, p) in phases.iter().zip(&row.phases) {
        let cells = phase_cells(phase).into_iter().chain(disk_cells(p));
        table.row(cells);
    }
    out.push_str(&table.to_string());
    out.push_str(&mix_tables(phases.iter().copied()));
    out.push_str(&format!(
        "\napplication {}, until everything was on disk {}, disk busy {}\n",
        number::seconds(row.app_seconds),
        number::seconds(row.total_seconds),
        number::seconds(row.disk_seconds)
    ));
    out
}

fn phase_table() -> Table {
    let right = |h| (h, Align::Right);
    Table::new(&[
        ("phase", Align::Left),
        right("operations"),
        right("time"),
        right("per second"),
        right("MB/s"),
    ])
}

fn phase_cells(phase: &Phase) -> Vec<String> {
    let speed = phase.bytes as f64 / phase.seconds() / (1 << 20) as f64;
    vec![
        phase.name.clone(),
        number::count(phase.operations),
        number::seconds(phase.seconds()),
        phase.rate().map_or("-".into(), number::figure),
        if phase.bytes == 0 { String::new() } else { number::figure(speed) },
    ]
}

/// A table of the kinds of operations for each phase that mixes some.
fn mix_tables<'p>(phases: impl Iterator<Item = &'p Phase>) -> String {
    let mut out = String::new();
    for phase in phases.filter(|phase| !phase.mix.is_empty()) {
        let right = |h| (h, Align::Right);
        let mut table = Table::new(&[
            (phase.name.as_str(), Align::Left),
            right("operations"),
            right("percent"),
            right("per second"),
            right("MB/s"),
            right("each"),
        ]);
        for MixEntry { name, operations, bytes, seconds } in &phase.mix {
            let count = *operations as f64;
            let speed = *bytes as f64 / phase.seconds() / (1 << 20) as f64;
            let each = if *operations == 0 { 0.0 } else { seconds / count };
            table.row([
                name.clone(),
                number::count(*operations),
                number::figure(100.0 * count / phase.operations.max(1) as f64),
                number::figure(count / phase.seconds()),
                if *bytes == 0 { String::new() } else { number::figure(speed) },
                number::seconds(each),
            ]);
        }
        out.push_str(&format!("\n{table}"));
    }
    out
}

fn disk_cells(row: &PhaseRow) -> Vec<String> {
    let writes = row.writes.total();
    vec![
        number::seconds(row.disk_seconds),
        number::count(writes),
        number::count(row.sync_waits),
        number::figure(writes as f64 / row.phase.operations.max(1) as f64),
    ]
}

/// A directory of the host as a stage, in real time.
struct OnHost {
    runtime: Runtime,
    fs: HostDir,
    dir: PathBuf,
    /// Whether the kernel's caches are emptied.
    drops: bool,
    marks: Rc<Marks>,
}

impl WorkloadStage for OnHost {
    type Fs = HostDir;
    fn fs(&self) -> &HostDir {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// Makes everything durable. Without `--drop-caches` the kernel's own caches stay.
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.sync().await?;
        if self.drops {
            compare::kernel::empty_caches(&self.dir)?;
        }
        self.marks.put("synced", &self.marks.phase.borrow());
        Ok(())
    }
}

/// The output of a run in a directory.
#[derive(serde::Serialize)]
struct InDirectory<'a> {
    system: String,
    workload: String,
    app_seconds: f64,
    total_seconds: f64,
    phases: &'a [Phase],
}

/// Removes a directory in which another thread may still make files.
fn remove_while_used(dir: &Path) {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {}
            _ => return,
        }
    }
    eprintln!("ordo: {}: could not be removed", dir.display());
}

fn in_directory(args: &Bench, dir: &Path) -> Result<String> {
    let place = dir.join(format!("ordo-bench-{}", std::process::id()));
    let interrupt = OnInterrupt::new()?;
    let made = place.clone();
    interrupt.set(move || {
        eprintln!("ordo: interrupted: removing {}", made.display());
        remove_while_used(&made);
    });
    std::fs::create_dir(&place).with_context(|| format!("making {}", place.display()))?;
    let result = real_time(async |runtime| {
        let marks = Rc::new(Marks::default());
        let mut bar = HostBar { progress: Progress::new(args.quiet), marks: marks.clone() };
        let (fs, dir, runtime) = (HostDir::open(&place)?, dir.to_owned(), runtime.clone());
        let mut stage =
            OnHost { fs, dir, runtime: runtime.clone(), drops: args.drop_caches, marks };
        let start = runtime.now();
        let phases = args.workload.run(&mut stage, args.machine.seed, &mut bar).await?;
        stage.fs.sync().await?;
        Ok((phases, runtime.now().since(start).as_secs_f64()))
    });
    drop(interrupt);
    let removed = std::fs::remove_dir_all(&place);
    let (phases, total) = result?;
    removed.with_context(|| format!("removing {}", place.display()))?;
    let app: f64 = phases.iter().map(Phase::seconds).sum();
    if args.json {
        return Ok(json(&InDirectory {
            system: dir.display().to_string(),
            workload: args.workload.to_string(),
            app_seconds: app,
            total_seconds: total,
            phases: &phases,
        })?);
    }
    let mut table = phase_table();
    phases.iter().for_each(|p| table.row(phase_cells(p)));
    let mix = mix_tables(phases.iter());
    Ok(format!(
        "{}\nin {}, in real time\n\n{table}{mix}\napplication {}, until everything was on disk {}\n",
        args.workload.describe(),
        dir.display(),
        number::seconds(app),
        number::seconds(total)
    ))
}

/// Marks in the trace of `ordo trace run`, if this process runs under one.
#[derive(Default)]
struct Marks {
    /// The phase that began last.
    phase: RefCell<String>,
}

impl Marks {
    /// Puts a mark into the trace. A trace that cannot be marked is no reason to stop.
    fn put(&self, what: &str, phase: &str) {
        if let Some(control) = std::env::var_os("ORDO_MARK") {
            let _ = std::fs::write(control, format!("mark {what} {phase}\n"));
        }
    }
}

struct HostBar {
    progress: Progress,
    marks: Rc<Marks>,
}

impl PhaseListener for HostBar {
    fn phase_start(&mut self, name: &str) {
        self.progress.begin("bench", name, 1);
        name.clone_into(&mut self.marks.phase.borrow_mut());
        self.marks.put("begin", name);
    }
    fn progress(&mut self, _name: &str, done: u64, total: u64) {
        self.progress.reach(done, total);
    }
    fn ended(&mut self, phase: &Phase) {
        self.marks.put("end", &phase.name);
    }
}

//! Semantic trace playback beside the change really made in Ordo's journal, in virtual time.

use ordo_block::model::Model;
use ordo_compare::whatif::{JournalSetup, LogAt, RecordedRun, SyncClients, TaskKind, record};
use ordo_playback::change::{Home, JournalPlace, Mode, PlanChange};
use ordo_runtime::Duration;

use crate::Section;

/// The way of ext3: contents, then records, then the commit record; everything together; whole
/// blocks.
const EXT3: [&str; 4] = ["contents=ordered", "phases=apart", "commits=tangled", "records=blocks"];
/// The errors that are allowed.
const MEAN: f64 = 0.10;
const WORST: f64 = 0.15;
const UNCHANGED: f64 = 0.02;

fn model(name: &str) -> &'static Model {
    Model::by_name(name).expect("in the catalogue")
}

const DATA: PlanChange = PlanChange::Mode(Mode::Data(Home::Timer));
const ADAPTIVE: PlanChange = PlanChange::Mode(Mode::Adaptive(Home::Timer));

/// A row: the change, as predicted and as made.
struct Row<'a> {
    what: &'a str,
    changes: &'a [PlanChange],
    made: JournalSetup,
}

/// The errors so far: of predictions, and of unchanged playback.
#[derive(Default)]
struct Errors {
    predicted: Vec<f64>,
    unchanged: Vec<f64>,
}

impl Errors {
    fn verdict(&self, out: &mut Section) {
        let all = &self.predicted;
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        let worst = all.iter().copied().fold(0.0, f64::max);
        let own = self.unchanged.iter().copied().fold(0.0, f64::max);
        let verdict = |met: bool| if met { "PASSED" } else { "MISSED" };
        out.say(format_args!(
            "{} predictions: mean error {:.1} % (goal 10 %: {}), worst {:.1} % (goal 15 %: {}). Unchanged playback of {} \
             traces: worst {:.2} % (goal 2 %: {}).",
            all.len(),
            mean * 100.0,
            verdict(mean <= MEAN),
            worst * 100.0,
            verdict(worst <= WORST),
            self.unchanged.len(),
            own * 100.0,
            verdict(own <= UNCHANGED),
        ));
    }
}

fn head(out: &mut Section) {
    out.line("| trace | change | trace, s | unchanged | predicted, s | really made, s | error |");
    out.line("|---|---|---:|---:|---:|---:|---:|");
}

/// Records the trace, predicts each row and makes it. Returns the trace.
fn rows(
    out: &mut Section,
    errors: &mut Errors,
    (name, setup, clients): (&str, &JournalSetup, &SyncClients),
    rows: &[Row<'_>],
) -> RecordedRun {
    let run = record(setup, clients);
    let start = run.start();
    let predictor = run.predictor(&start).expect("a trace with times");
    let world = predictor.calls().expect("calls that were recorded with the requests");
    let unchanged = world.unchanged().expect("requests on the disk");
    errors.unchanged.push(unchanged.error.abs());
    for row in rows {
        let cells = |predicted: String, made: String, error: String| {
            format!(
                "| {name} | {} | {:.3} | {:+.2} % | {predicted} | {made} | {error} |",
                row.what,
                run.seconds,
                unchanged.error * 100.0
            )
        };
        let made = record(&row.made, clients).seconds;
        match world.changed(row.changes, unchanged.error) {
            Ok(predicted) => {
                let error = predicted.seconds / made - 1.0;
                errors.predicted.push(error.abs());
                out.line(cells(
                    format!("{:.3}", predicted.seconds),
                    format!("{made:.3}"),
                    format!("{:+.1} %", error * 100.0),
                ));
            }
            Err(error) => out.line(cells(format!("{error}"), format!("{made:.3}"), String::new())),
        }
    }
    run
}

fn random(count: usize, len: u64, syncs: u64) -> SyncClients {
    let kind = TaskKind::Random { len, syncs, pause: Duration::from_nanos(0) };
    SyncClients::alike(count, kind, 8 << 20)
}

/// A change: its name, as it is predicted, and as it is made.
type Change = (&'static str, Vec<PlanChange>, JournalSetup);

/// Every change that can be made.
fn every_change(setup: &JournalSetup, other: &'static Model) -> Vec<Change> {
    let every = Duration::from_secs(1).as_nanos() as u64;
    let (small, own) = (512 << 10, setup.disk);
    let with = |options: &[&str]| setup.with(options);
    let half = PlanChange::JournalAt(JournalPlace::Permille(500));
    vec![
        ("mode writeback", vec![PlanChange::Mode(Mode::Writeback)], with(&["contents=none"])),
        ("mode data", vec![DATA], with(&["contents=data"])),
        (
            "mode data, differential",
            vec![DATA, PlanChange::Differential],
            with(&["contents=data", "records=bytes"]),
        ),
        (
            "mode data, journal-size 512k",
            vec![DATA, PlanChange::JournalSize(small)],
            JournalSetup { log_bytes: small, ..with(&["contents=data"]) },
        ),
        ("mode adaptive", vec![ADAPTIVE], with(&["contents=adaptive"])),
        ("overlap", vec![PlanChange::Overlap], with(&["phases=overlap"])),
        ("untangle", vec![PlanChange::Untangle], with(&["commits=untangled"])),
        ("commit-every 1", vec![PlanChange::CommitEvery(every)], with(&["commit-every=1"])),
        ("journal-at 50%", vec![half], JournalSetup { log_at: LogAt::Permille(500), ..*setup }),
        (
            "journal-device, the same model",
            vec![PlanChange::JournalDevice(own)],
            JournalSetup { log_at: LogAt::Disk(own), ..*setup },
        ),
        ("another disk", vec![PlanChange::Disk(other)], JournalSetup { disk: other, ..*setup }),
    ]
}

/// Every change, on three disks, with one client and five.
pub fn changes(out: &mut Section) {
    out.say(
        "Clients overwrite random blocks of a file of 8 MB each and sync every one: 150 times 4 KB, and five clients 60 \
         times 16 KB. FFS of 512 MB with a journal in ext3's way (`contents=ordered,phases=apart,commits=tangled,\
         records=blocks`), log of 8 MB behind the file system. Recorded in process with its calls; the journal's policies are read \
         from the trace. Really made: the same run with the option of the journal, the place or the disk changed. Prediction and truth \
         share the disk model, and nothing above it. Virtual time, seed 1: exact.",
    );
    let mut errors = Errors::default();
    head(out);
    for (disk, other) in [("viking", "hdd-4tb"), ("hdd-4tb", "viking"), ("sata-ssd", "nvme")] {
        for (count, len, syncs) in [(1, 4096, 150), (5, 16384, 60)] {
            let setup = JournalSetup::usual(model(disk)).with(&EXT3);
            let all = every_change(&setup, model(other));
            let all: Vec<Row<'_>> = all
                .iter()
                .map(|(what, changes, made)| Row { what, changes, made: *made })
                .collect();
            let name = format!("{disk}, {count} x {syncs} of {len}");
            rows(out, &mut errors, (&name, &setup, &random(count, len, syncs)), &all);
        }
    }
    out.end();
    errors.verdict(out);
}

/// Figure 12: the place of the journal, and files near and far.
pub fn figure_12(out: &mut Section) {
    out.say(
        "4 GB, twelve directories with a file of 50 MB each, which FFS spreads over the disk; the n-th file by its place. 200 \
         synchronous writes of 4 KB at random places of it. The trace has the journal behind the file system; Viking, which has \
         4.5 GB. Published, on ext3 with the journal at the beginning: bandwidth falls by nearly 30 % with the distance, and \
         with the journal in the middle the worst case is avoided; the prediction is nearly identical to the truth.",
    );
    let mut errors = Errors::default();
    head(out);
    let (mut near, mut far) = (f64::INFINITY, 0.0f64);
    for file in [0, 3, 6, 9, 11] {
        let setup = JournalSetup {
            bytes: 4 << 30,
            log_bytes: 32 << 20,
            ..JournalSetup::usual(model("viking")).with(&EXT3)
        };
        let kind = TaskKind::Random { len: 4096, syncs: 200, pause: Duration::from_nanos(0) };
        let clients =
            SyncClients { tasks: vec![kind], file_bytes: 50 << 20, spread: Some((12, file)) };
        let at = |part| JournalSetup { log_at: LogAt::Permille(part), ..setup };
        let place = |part| PlanChange::JournalAt(JournalPlace::Permille(part));
        let all = [
            Row { what: "journal-at 50%", changes: &[place(500)], made: at(500) },
            Row { what: "journal-at 0%", changes: &[place(0)], made: at(0) },
        ];
        let run = rows(out, &mut errors, (&format!("file {file}"), &setup, &clients), &all);
        (near, far) = (near.min(run.seconds), far.max(run.seconds));
    }
    out.end();
    out.say(format_args!(
        "With the journal at the end, the farthest file takes {:.2} times as long as the nearest (published: up to 1.4).",
        far / near
    ));
    errors.verdict(out);
}

/// Figure 13 beside Figure 6: tangled and untangled commits.
pub fn figure_13(out: &mut Section) {
    out.say(
        "A client overwrites 4 KB at random places of a file of 50 MB, one every 10 ms for six seconds, and syncs nothing; another one does \
         so too, syncs, and pauses. (What is written in order leaves FFS's cache at once, so that a sequential stream is not \
         tangled here.) Published (Figures 6 and 13): in tangled transactions each sync takes \
         the other's data with it, and the asynchronous client falls to the disk's speed; untangled it is unaffected. Here a writer \
         waits for the disk only if it has too many dirty blocks, so the harm of the tangle is in the time of the other's fsyncs. \
         Viking; seconds.",
    );
    out.line("| pause | fsync, tangled | fsync, untangled: predicted | really | asynchronous client, tangled | untangled: predicted | really | error of the fsync |");
    out.line("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut errors = Errors::default();
    for millis in [20, 100, 500, 2000] {
        let setup = JournalSetup::usual(model("viking")).with(&EXT3);
        let pause = Duration::from_millis(millis);
        let stream =
            TaskKind::Scattered { len: 4096, count: 600, pause: Duration::from_millis(10) };
        let syncs = TaskKind::Random { len: 4096, syncs: (6000 / (millis + 100)).max(5), pause };
        let clients =
            SyncClients { tasks: vec![stream, syncs], file_bytes: 50 << 20, spread: None };
        let run = record(&setup, &clients);
        let made = record(&setup.with(&["commits=untangled"]), &clients);
        let start = run.start();
        let predictor = run.predictor(&start).expect("a trace with times");
        let world = predictor.calls().expect("calls");
        errors.unchanged.push(world.unchanged().expect("requests on the disk").error.abs());
        let predicted = match world.clients(&[PlanChange::Untangle]) {
            Ok(predicted) => predicted,
            Err(error) => {
                out.line(format_args!(
                    "| {millis} ms | {:.4} | {error} | {:.4} | | | | |",
                    run.of_sync, made.of_sync
                ));
                continue;
            }
        };
        let error = predicted.of_sync / made.of_sync - 1.0;
        errors.predicted.push(error.abs());
        out.line(format_args!(
            "| {millis} ms | {:.4} | {:.4} | {:.4} | {:.3} | {:.3} | {:.3} | {:+.1} % |",
            run.of_sync,
            predicted.of_sync,
            made.of_sync,
            run.of_quietest,
            predicted.of_quietest,
            made.of_quietest,
            error * 100.0
        ));
    }
    out.end();
    errors.verdict(out);
}

/// Figure 14: overlapped pre-commit writes, with the journal on its own disk.
pub fn figure_14(out: &mut Section) {
    out.say(
        "Five clients, 100 synchronous writes of 16 KB each at random places of a file of their own, journal on a disk of its own. \
         The trace is on one disk. Published: overlapping the journal's writes with those of file data gains about 18 %.",
    );
    let mut errors = Errors::default();
    head(out);
    let mut gains = Vec::new();
    for disk in ["viking", "cheetah", "hdd-4tb"] {
        let setup = JournalSetup::usual(model(disk)).with(&EXT3);
        let apart = JournalSetup { log_at: LogAt::Disk(model(disk)), ..setup };
        let overlap = apart.with(&["phases=overlap"]);
        let clients = random(5, 16384, 100);
        let own = PlanChange::JournalDevice(model(disk));
        let all = [
            Row { what: "journal-device", changes: &[own], made: apart },
            Row {
                what: "journal-device, overlap",
                changes: &[PlanChange::Overlap, own],
                made: overlap,
            },
        ];
        rows(out, &mut errors, (disk, &setup, &clients), &all);
        let gain = record(&apart, &clients).seconds / record(&overlap, &clients).seconds - 1.0;
        gains.push(format!("{disk} {:+.1} %", gain * 100.0));
    }
    out.end();
    out.say(format_args!(
        "Bandwidth with the overlap, really made: {} (published +18 %).",
        gains.join(", ")
    ));
    errors.verdict(out);
}

/// The adaptive mode on a mixed stream.
pub fn adaptive(out: &mut Section) {
    out.say(
        "By turns 1 MB in order with one fsync, and sixteen random pieces of 4 KB with one fsync, 40 rounds, in a file of 32 MB; log of \
         64 MB. The trace is ordered; the paper's trace, of HP, is not public. Published: ordered 83.39 s, data 86.67 s, adaptive \
         51.75 s, so 0.62 of ordered.",
    );
    let mut errors = Errors::default();
    head(out);
    let mut lines = Vec::new();
    for disk in ["viking", "hdd-4tb"] {
        let setup =
            JournalSetup { log_bytes: 64 << 20, ..JournalSetup::usual(model(disk)).with(&EXT3) };
        let clients = SyncClients::alike(1, TaskKind::Mixed { rounds: 40 }, 32 << 20);
        let (data, adaptive) = (setup.with(&["contents=data"]), setup.with(&["contents=adaptive"]));
        let all = [
            Row { what: "mode data", changes: &[DATA], made: data },
            Row { what: "mode adaptive", changes: &[ADAPTIVE], made: adaptive },
        ];
        let run = rows(out, &mut errors, (disk, &setup, &clients), &all);
        lines.push(format!("{disk} {:.2}", record(&adaptive, &clients).seconds / run.seconds));
    }
    out.end();
    out.say(format_args!(
        "Adaptive over ordered, really made: {} (published 0.62).",
        lines.join(", ")
    ));
    errors.verdict(out);
}

/// Differences in the log instead of blocks.
pub fn differential(out: &mut Section) {
    out.say(
        "Transactions that change records in pages of one file and are durable one by one, 10,000 after each other with 0.1 ms between them, \
         data in the log (8 MB of tables, log of 64 MB). Like TPC-B: three balances of 10 bytes in pages of tables of falling size, and 50 bytes behind a history. \
         Like TPC-C on PostgreSQL: ten order lines of 54 bytes, and 4 KB of a write-ahead log. Bytes appended to the log. Published: 200 \
         times less for TPC-B, 6 times less for TPC-C; under 1 % in the other modes, whose log has metadata alone. A page goes into the log \
         whole when it is changed for the first time, and again after it was written in its place.",
    );
    out.line("| like | blocks, bytes | differences: predicted | really | blocks over differences: predicted | really | published | error of the time |");
    out.line("|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut errors = Errors::default();
    let kinds = [("TPC-B", 3, 10, 50, 200.0), ("TPC-C", 10, 54, 4096, 6.0)];
    for (name, pages, record_bytes, log, published) in kinds {
        let setup = JournalSetup {
            log_bytes: 64 << 20,
            ..JournalSetup::usual(model("viking")).with(&EXT3)
        };
        let setup = setup.with(&["contents=data", "phases=together"]);
        let kind = TaskKind::Records { pages, record: record_bytes, log, transactions: 10_000 };
        let clients = SyncClients::alike(1, kind, 9 << 20);
        let run = record(&setup, &clients);
        let made = record(&setup.with(&["records=bytes"]), &clients);
        let start = run.start();
        let predictor = run.predictor(&start).expect("a trace with times");
        let world = predictor.calls().expect("calls");
        let unchanged = world.unchanged().expect("requests on the disk");
        errors.unchanged.push(unchanged.error.abs());
        let changes = [PlanChange::Differential];
        let predicted = world.changed(&changes, unchanged.error).expect("a log with contents");
        let bytes = world.log_bytes(&changes).expect("the same playback");
        let error = predicted.seconds / made.seconds - 1.0;
        errors.predicted.push(error.abs());
        let whole = run.log_bytes as f64;
        out.line(format_args!(
            "| {name} | {} | {bytes} | {} | {:.1} | {:.1} | {published} | {:+.1} % |",
            run.log_bytes,
            made.log_bytes,
            whole / bytes.max(1) as f64,
            whole / made.log_bytes.max(1) as f64,
            error * 100.0
        ));
    }
    out.end();
    errors.verdict(out);
}

//! The time of a recovery, by the contents of the log and by the size of the file system.

use std::fmt::Write as _;
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_runtime::{Duration, Executor};
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_vfs::{FileSystem, NewNode};
use plotters::prelude::*;

use crate::{Section, rows};

const LOG: u64 = 32 << 20;

/// A crash after a number of creates since the log's start was last recorded.
#[derive(Clone, Copy)]
struct Crash {
    bytes: u64,
    creates: usize,
    /// Whether the files are in one directory. Otherwise every fifty files have a directory of
    /// their own, and the directories are spread over the groups.
    together: bool,
    /// The part of the file system that was in use before, in percent.
    full: u64,
    /// The creates in a second. `None` means all at once.
    pace: Option<u64>,
}

/// The costs of a recovery: its seconds, its requests to read and write, the bytes of log; and the
/// seconds of a full check of the same image.
struct Took {
    replay: f64,
    reads: u64,
    writes: u64,
    log: u64,
    check: f64,
}

/// The size of each file that fills the file system, in bytes; also the number of files in a
/// directory.
const FILE: usize = 16 << 10;
const FILES: usize = 100;

fn journaled() -> Journaled {
    let mut journaled = Journaled::new(LogPlace::Same, false, None);
    journaled.options.checkpoint_every = Duration::from_secs(1 << 20);
    Journaled { log_bytes: Some(LOG), ..journaled }
}

/// Creates files until `full` percent of a file system are in use.
async fn fill<F: FileSystem>(fs: &F, full: u64) {
    let mut dir = fs.root();
    for n in 0.. {
        let there = fs.statfs().await.expect("it is mounted");
        if (there.blocks - there.blocks_free) * 100 >= there.blocks * full {
            return;
        }
        let name = format!("old-{n}").into_bytes();
        if n % FILES == 0 {
            let made = fs.create(fs.root(), &name, &NewNode::directory(0o755)).await;
            dir = made.expect("room").ino;
        } else {
            let file = fs.create(dir, &name, &NewNode::file(0o644)).await.expect("room");
            fs.write(file.ino, 0, &[n as u8; FILE]).await.expect("room");
        }
    }
}

impl Crash {
    /// The image after the power cut: the log is complete, and most blocks are not in their places.
    fn happens(self) -> Rc<RamDisk> {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let disk = Rc::new(RamDisk::new(self.bytes + LOG));
        let disks = [disk.clone()];
        let work = async {
            let options =
                MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
            journaled().make(&rt, &Device::of_each(&disks), &options).await.expect("it is made");
            if self.full > 0 {
                let mounted = journaled()
                    .mount(&rt, &Device::of_each(&disks), &MountOptions::default())
                    .await;
                let (fs, _) = mounted.expect("it mounts");
                fill(&fs, self.full).await;
                fs.unmount().await.expect("the disk does not fail");
            }
            let mounted =
                journaled().mount(&rt, &Device::of_each(&disks), &MountOptions::default()).await;
            let (fs, journal) = mounted.expect("it mounts");
            let mut dir = fs.root();
            for n in 0..self.creates {
                let name = format!("entry-{n}").into_bytes();
                if n == 0 || (n % 50 == 0 && !self.together) {
                    let made = fs.create(fs.root(), &name, &NewNode::directory(0o755)).await;
                    dir = made.expect("room").ino;
                } else {
                    fs.create(dir, &name, &NewNode::file(0o644)).await.expect("room");
                }
                if let Some(pace) = self.pace {
                    rt.sleep(Duration::from_nanos(1_000_000_000 / pace)).await;
                }
            }
            while journal.log().durable() < journal.log().end() {
                rt.sleep(Duration::from_millis(100)).await;
            }
            Rc::new(disk.snapshot())
        };
        executor.block_on(work).expect("nothing waits for itself")
    }

    fn took(self) -> Took {
        let image = self.happens();
        let check = checked(image.snapshot());
        let model = Model::by_name("cheetah").expect("in the catalogue");
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let disks = [Rc::new(Modeled::new(&rt, model, image))];
        let work = async {
            let mounted =
                journaled().mount(&rt, &Device::of_each(&disks), &MountOptions::default()).await;
            let (fs, journal) = mounted.expect("it is recovered");
            let replay = rt.now().as_secs_f64();
            let log = journal.log().mounted().bytes;
            let stats = disks[0].stats();
            let (reads, writes) = (stats.reads, stats.writes);
            fs.unmount().await.expect("the disk does not fail");
            let report = Checker::new(disks[0].clone(), FsckOptions::default()).run().await;
            let report = report.expect("it is checked");
            assert!(report.findings.is_empty() && report.files >= self.creates as u64, "{report}");
            Took { replay, reads, writes, log, check }
        };
        executor.block_on(work).expect("nothing waits for itself")
    }
}

/// The seconds of a full check of an image. It repairs nothing, since repairs would take longer.
fn checked(image: RamDisk) -> f64 {
    let model = Model::by_name("cheetah").expect("in the catalogue");
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Modeled::new(&rt, model, image);
    let checked = executor.block_on(Checker::new(disk, FsckOptions::default()).run());
    checked.expect("nothing waits for itself").expect("a file system");
    rt.now().as_secs_f64()
}

fn table(out: &mut Section, rows: &[(Crash, Took)]) {
    let mut table = String::from(
        "| file system | full | creates | log | recovery | reads, writes | full check |\n|---|---|---|---|---|---|---|\n",
    );
    for (crash, took) in rows {
        let _ = writeln!(
            table,
            "| {} MB | {} % | {} | {} KB | {:.2} s | {}, {} | {:.2} s |",
            crash.bytes >> 20,
            crash.full,
            crash.creates,
            took.log >> 10,
            took.replay,
            took.reads,
            took.writes,
            took.check
        );
    }
    out.say(table.trim_end());
}

/// The tables by distance between checkpoints, by contents, by pace, and by size.
pub fn measure(out: &mut Section) {
    out.say(
        "Seagate Cheetah, blocks of 8 KB, log behind the file system. So many files of 0 bytes are created at once, the log \
         has all of it, and hardly a block is in its place at the power cut. Until the file system can be used: all reads and \
         writes of log and file system. Beside it a full check of what the same crash left, which repairs nothing. \
         Virtual time: exact.",
    );
    let took = |crashes: &[Crash]| -> Vec<(Crash, Took)> {
        crashes.iter().copied().zip(rows::each(crashes, |crash| crash.took())).collect()
    };
    let empty = Crash { bytes: 1 << 30, creates: 4000, together: false, full: 0, pace: None };
    let by_distance = took(
        &[0, 1000, 2000, 4000, 8000, 16_000, 32_000].map(|creates| Crash { creates, ..empty }),
    );
    let by_fullness = took(&[20, 50, 90].map(|full| Crash { creates: 32_000, full, ..empty }));
    let by_pace = took(&[4000, 1000, 500].map(|pace| Crash {
        creates: 32_000,
        full: 50,
        pace: Some(pace),
        ..empty
    }));
    let sized = |together: bool| {
        took(&[256, 512, 1024, 4096, 16_384].map(|mb| Crash { bytes: mb << 20, together, ..empty }))
    };
    let (by_size, together) = (sized(false), sized(true));
    for (title, rows) in [
        ("By what the log holds.", &by_distance),
        (
            "By what the file system held before: files of 16 KB, a hundred to a directory.",
            &by_fullness,
        ),
        (
            "By how fast they are created: 4,000, 1,000 and 500 a second. What is older than half a minute has been written to \
             its place, and the log says so.",
            &by_pace,
        ),
        (
            "By size, all files in one directory: the log has the same records in the same places.",
            &together,
        ),
        (
            "By size. Directories of fifty files are spread over the groups: the larger, the more groups have to be \
             written, and the farther apart they are.",
            &by_size,
        ),
    ] {
        out.say(title);
        table(out, rows);
    }
    let (_, last) = by_distance.last().expect("some were measured");
    let what = "32,000 creates, none in its place, recovered in 1 s or less";
    out.target(what, last.replay, last.replay <= 1.0);
    let paced = by_pace.iter().map(|(_, t)| t.replay).fold(0.0, f64::max);
    out.target("the same, created at 500 to 4,000 a second", paced, paced <= 1.0);
    let slower = by_fullness.iter().map(|(_, t)| t.replay / t.check).fold(0.0, f64::max);
    out.target("recovery over a check of the same crash, below 1", slower, slower < 1.0);
    let requests = together.iter().map(|(_, took)| took.reads + took.writes);
    let (least, most) = requests.fold((u64::MAX, 0), |(a, b), t| (a.min(t), b.max(t)));
    let more = most as f64 / least as f64;
    out.target("requests on 16 GB over those on 256 MB, 1.05 or less", more, more <= 1.05);
    let distance = lines("KB of log", by_distance.iter().map(|(_, t)| ((t.log >> 10) as f64, t)));
    let size =
        lines("MB of file system", together.iter().map(|(c, t)| ((c.bytes >> 20) as f64, t)));
    match drawn([&distance, &size]) {
        Ok(svg) => out.plot("recovery.svg", "recovery by log and by size", svg),
        Err(error) => out.say(format!("not drawn: {error}")),
    }
}

/// Two lines over one axis.
struct Lines {
    axis: &'static str,
    replay: Vec<(f64, f64)>,
    check: Vec<(f64, f64)>,
}

fn lines<'a>(axis: &'static str, points: impl Iterator<Item = (f64, &'a Took)>) -> Lines {
    let points: Vec<_> = points.collect();
    let replay = points.iter().map(|(x, took)| (*x, took.replay)).collect();
    let check = points.iter().map(|(x, took)| (*x, took.check)).collect();
    Lines { axis, replay, check }
}

fn drawn(plots: [&Lines; 2]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (900, 360)).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, lines) in root.split_evenly((1, 2)).iter().zip(plots) {
            let last = lines.replay.last().map_or(1.0, |(x, _)| *x);
            let all = lines.replay.iter().chain(&lines.check).map(|(_, y)| *y);
            let top = all.fold(0.0, f64::max) * 1.1;
            let mut chart = ChartBuilder::on(area)
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(50)
                .build_cartesian_2d(0.0..last, 0.0..top)?;
            chart.configure_mesh().x_desc(lines.axis).y_desc("seconds").draw()?;
            for (points, colour, name) in
                [(&lines.replay, BLUE, "replay of the log"), (&lines.check, RED, "full check")]
            {
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            }
            chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
        }
        root.present()?;
    }
    Ok(svg)
}

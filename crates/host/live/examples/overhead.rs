//! Measures the cost of the pseudo-device, with every block named, against a bare loop device: the same work on ext4
//! in pairs, one after the other, in alternating order. Run it with
//! `cargo run --release -p ordo-live --example overhead [PAIRS] [DIRECTORY]`, as root; the images are made in
//! DIRECTORY. Then it measures how fast a trace is read and named, and how large it is.
//! read and named, and how large it is.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use ordo_live::watching::{Into, Wanted, take, watching};
use ordo_pseudo::{DeviceSetup, KeepRequests, Session, Transport};

const IMAGE: u64 = 768 << 20;
const DATA: usize = 384 << 20;

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect(program);
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// One file, a megabyte at a time, durable at the end.
fn sequential(dir: &Path) {
    let mut file = File::create(dir.join("file")).expect("room");
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..DATA >> 20 {
        file.write_all(&piece).expect("room");
    }
    file.sync_all().expect("a sound device");
}

/// Files made, written, renamed, removed; durable every 200.
fn storm(dir: &Path) {
    for round in 0..20 {
        let sub = dir.join(format!("dir{round}"));
        std::fs::create_dir(&sub).expect("room");
        for i in 0..200 {
            let path = sub.join(format!("file{i}"));
            File::create(&path).and_then(|mut f| f.write_all(&[7; 2000])).expect("room");
            if i % 3 == 0 {
                std::fs::rename(&path, sub.join(format!("other{i}"))).expect("it is there");
            } else if i % 3 == 1 {
                std::fs::remove_file(&path).expect("it is there");
            }
        }
        let last = OpenOptions::new().write(true).open(sub.join("file2")).expect("it is there");
        last.sync_all().expect("a sound device");
    }
}

/// Seconds of the work between mount and unmount, the unmount included.
fn timed(device: &str, folder: &Path, work: fn(&Path)) -> f64 {
    let dir = folder.to_str().expect("a name");
    run("mount", &["-t", "ext4", device, dir]);
    let start = Instant::now();
    work(folder);
    run("umount", &[dir]);
    start.elapsed().as_secs_f64()
}

fn image(path: &Path) {
    File::create(path).and_then(|f| f.set_len(IMAGE)).expect("room for an image");
    // The file is allocated before the measurement.
    let mut file = OpenOptions::new().write(true).open(path).expect("just made");
    for _ in 0..IMAGE >> 20 {
        file.write_all(&vec![0; 1 << 20]).expect("room");
    }
    file.sync_all().expect("a sound disk");
    let busy_poll = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", busy_poll, path.to_str().expect("a name")]);
}

fn bare(path: &Path, folder: &Path, work: fn(&Path)) -> f64 {
    let args = ["--direct-io=on", "--show", "-f", path.to_str().expect("a name")];
    let device = run("losetup", &args);
    let seconds = timed(&device, folder, work);
    run("losetup", &["-d", &device]);
    seconds
}

fn watched(path: &Path, folder: &Path, work: fn(&Path), named: bool) -> f64 {
    let seen = Into::default();
    let observer = watching(Wanted::default(), Arc::clone(&seen));
    let setup = DeviceSetup {
        observer: named.then_some(observer),
        ..DeviceSetup::new(Transport::Path(path.to_owned()), KeepRequests::Last(1))
    };
    let session = Session::with(setup).expect("a pseudo-device: root, FUSE, losetup");
    session.start().expect("a server");
    let seconds = timed(session.device().to_str().expect("a name"), folder, work);
    session.finish().expect("nobody uses it");
    if named {
        let seen = take(&seen).expect("ext4 is known");
        assert!(seen.analysis.transactions.committed > 0);
    }
    seconds
}

fn middle(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let pairs: usize = args.first().and_then(|n| n.parse().ok()).unwrap_or(9);
    let place = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir().expect("a directory to mount on");
    let path = place.join(format!("ordo-overhead-{}.img", std::process::id()));
    let kind = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    println!("FUSE over io_uring allowed: {}", kind.unwrap_or_default().trim());
    for (name, work) in [("sequential write", sequential as fn(&Path)), ("metadata storm", storm)] {
        let (mut plain, mut tapped, mut whole, mut bares) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for turn in 0..=pairs {
            image(&path);
            let mut parts = [0.0; 3];
            // The order alternates, since the first of a pair finds the host's caches as the previous one left them.
            for k in 0..3 {
                let which = (k + turn) % 3;
                image(&path);
                parts[which] = match which {
                    0 => bare(&path, folder.path(), work),
                    1 => watched(&path, folder.path(), work, false),
                    _ => watched(&path, folder.path(), work, true),
                };
            }
            // The first round warms everything up, and does not count.
            if turn > 0 {
                bares.push(parts[0]);
                plain.push(parts[1] / parts[0]);
                whole.push(parts[2] / parts[0]);
                tapped.push(parts[2] / parts[1]);
            }
        }
        let (_, seconds, _) = middle(bares);
        println!(
            "{name}: {seconds:.3} s on the bare loop device, {pairs} pairs; least, middle, most:"
        );
        for (what, ratios) in [
            ("pseudo-device / bare", plain),
            ("pseudo-device with every block named / bare", whole),
            ("named / not named", tapped),
        ] {
            let (least, mid, most) = middle(ratios);
            println!("  {what}: {least:.3} {mid:.3} {most:.3}");
        }
    }
    let _ = std::fs::remove_file(&path);
}

//! The machine: programs, the image, processor time, and the switch of FUSE over io_uring.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Seconds of the clock.
    pub wall: f64,
    /// Seconds of all processors, of every process and of the kernel.
    pub processor: f64,
}

/// Runs a program, and returns its output.
pub fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect(program);
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Whether a program can be started.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The seconds in which processors of the machine have worked since it started.
fn worked() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .flat_map(str::parse)
        .collect();
    // user, nice, system, then idle and iowait, then irq and softirq; in hundredths of a second.
    [0, 1, 2, 5, 6].iter().filter_map(|i| fields.get(*i)).sum::<f64>() / 100.0
}

/// The cost of some work between mount and unmount, the unmount included.
pub fn cost_of(device: &str, at: &Path, work: fn(&Path)) -> Cost {
    let dir = at.to_str().expect("a name");
    run("mount", &["-t", "ext4", device, dir]);
    let (start, before) = (Instant::now(), worked());
    work(at);
    run("umount", &[dir]);
    Cost { wall: start.elapsed().as_secs_f64(), processor: worked() - before }
}

/// An image, removed at the end.
pub struct Image(PathBuf);

impl Image {
    /// An image whose space is allocated before anything is measured.
    pub fn new(place: &Path, bytes: u64) -> Image {
        let path = place.join(format!("ordo-overhead-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the image");
        // A server that goes to the background leaves the present directory.
        let path = path.canonicalize().expect("just made");
        let image = Image(path.join("image"));
        let mut file = File::create(image.path()).expect("an image");
        for _ in 0..bytes >> 20 {
            file.write_all(&vec![0; 1 << 20]).expect("space for an image");
        }
        file.sync_all().expect("a sound disk");
        image
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().expect("a file in a directory"));
    }
}

/// A new ext4 in the image, whose tables are written now and not in the background.
pub fn make_ext4(image: &Path) {
    let now = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", now, image.to_str().expect("a name")]);
}

/// A loop device without a cache of its own over a file.
pub fn loop_over(file: &Path) -> String {
    run("losetup", &["--direct-io=on", "--show", "-f", file.to_str().expect("a name")])
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The administrator's switch of FUSE over io_uring, which gets its old value back.
pub struct RingSwitch(Option<String>);

impl RingSwitch {
    pub fn new() -> RingSwitch {
        let old = std::fs::read_to_string(SWITCH).ok();
        let set = OpenOptions::new().write(true).open(SWITCH).and_then(|mut f| f.write_all(b"Y"));
        RingSwitch(old.filter(|_| set.is_ok()))
    }

    /// Whether it could be switched on.
    pub fn works(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for RingSwitch {
    fn drop(&mut self) {
        if let Some(old) = &self.0 {
            let _ = std::fs::write(SWITCH, old);
        }
    }
}

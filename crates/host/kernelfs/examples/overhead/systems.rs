//! The devices that are compared.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_kernelfs::watching::{TrafficSlot, WatchOptions, take, watching};
use ordo_recorder::{DeviceSetup, KeepRequests, Session, Transport};

use crate::machine::{Cost, cost_of, has, loop_over, run};
use crate::works::Work;

/// The layers between ext4 and the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// A loop device.
    Loop,
    /// A loop device over libfuse's example of a pass-through.
    Libfuse,
    /// A loop device over Ordo's server, which names nothing.
    Server,
    /// The pseudo-device, which names every block and counts.
    Named,
    /// The pseudo-device, which keeps a row for each block and all contents too, as `trace run -o`
    /// does.
    Kept,
}

/// A device that is measured.
pub struct MeasuredDevice {
    pub name: &'static str,
    between: Between,
    ring: bool,
    /// The number of the system without names to which this one is compared.
    pub floor: Option<usize>,
}

/// The number of the bare loop device.
pub const BARE: usize = 0;

/// All systems that this machine can have.
pub fn all(ring: bool) -> Vec<MeasuredDevice> {
    let new = |name, between, ring, floor| MeasuredDevice { name, between, ring, floor };
    let mut all = vec![
        new("bare loop device", Between::Loop, false, None),
        new("no names, /dev/fuse", Between::Server, false, None),
        new("every block named, /dev/fuse", Between::Named, false, Some(1)),
        new("named and kept with contents, /dev/fuse", Between::Kept, false, Some(1)),
    ];
    if ring {
        all.push(new("no names, io_uring", Between::Server, true, None));
        all.push(new("every block named, io_uring", Between::Named, true, Some(4)));
        all.push(new("named and kept with contents, io_uring", Between::Kept, true, Some(4)));
    }
    if has(&passthrough()) {
        all.push(new("passthrough_ll of libfuse", Between::Libfuse, false, None));
    }
    // For a profile.
    if std::env::var_os("ONLY").is_some() {
        all.retain(|system| is_wanted("ONLY", system.name));
        all.iter_mut().for_each(|system| system.floor = None);
    }
    all
}

/// Whether a name has one of the words that a variable lists, if it is set.
pub fn is_wanted(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |words| words.split(';').any(|word| name.contains(word)))
}

fn passthrough() -> String {
    let given = std::env::var("PASSTHROUGH").ok().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| "passthrough_ll".into())
}

impl MeasuredDevice {
    /// The cost of a work on this device.
    pub fn carry_out(&self, work: &Work, image: &Path, at: &Path) -> Cost {
        match self.between {
            Between::Loop => over_loop(image, at, work),
            Between::Libfuse => over_libfuse(image, at, work),
            _ => self.over_server(image, at, work),
        }
    }

    fn over_server(&self, image: &Path, at: &Path, work: &Work) -> Cost {
        let seen = TrafficSlot::default();
        let kept = self.between == Between::Kept;
        let named = self.between != Between::Server;
        let observer =
            watching(WatchOptions { rows: kept, ..WatchOptions::default() }, Arc::clone(&seen));
        let keep = if kept { KeepRequests::Contents } else { KeepRequests::Last(1) };
        let setup = DeviceSetup {
            observer: named.then_some(observer),
            io_uring: self.ring,
            ..DeviceSetup::new(Transport::Path(image.to_owned()), keep)
        };
        let session = Session::with(setup).expect("a pseudo-device: root, FUSE, losetup");
        session.start().expect("a server");
        let cost = cost_of(session.device().to_str().expect("a name"), at, work.run);
        session.finish().expect("nobody uses it");
        if named {
            let seen = take(&seen).expect("ext4 is known");
            assert!(seen.analysis.transactions.committed > 0, "the work was seen");
        }
        cost
    }
}

fn over_loop(file: &Path, at: &Path, work: &Work) -> Cost {
    let device = loop_over(file);
    let cost = cost_of(&device, at, work.run);
    run("losetup", &["-d", &device]);
    cost
}

fn over_libfuse(image: &Path, at: &Path, work: &Work) -> Cost {
    let folder = tempfile::tempdir().expect("a directory to mount on");
    let dir = folder.path().to_str().expect("a name");
    let source = image.parent().expect("a directory").display().to_string();
    run(&passthrough(), &["-o", &format!("source={source},cache=never"), dir]);
    let file = PathBuf::from(dir).join(image.file_name().expect("a file"));
    let cost = over_loop(&file, at, work);
    // The kernel releases the loop device's file a moment after the device is gone.
    for _ in 0..500 {
        if std::process::Command::new("umount").arg(dir).output().is_ok_and(|o| o.status.success())
        {
            return cost;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{dir}: still in use")
}

//! Marks of an application's fsyncs, compared with the writes of the kernel's file systems.
//!
//! Fault model: an application that was told of an fsync that never happened. Skipped with a
//! message where there is no pseudo-device.

use std::os::unix::fs::MetadataExt;

use ordo_annotate::expect::{Broken, expected};
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::kernel::{KernelMount, LiveSystem};
use ordo_recorder::DeviceSetup;
use ordo_trace::RequestOp;
use ordo_watcher::Watch;

/// Two files are written; one is synced, and one is only marked as synced. Only the second may be
/// reported, at its mark, and rows must number requests as the trace does. Catches marks that are
/// put at the wrong place.
#[test]
fn an_fsync_that_never_was_is_found() {
    for (name, options) in [
        ("ext4", "data=ordered"),
        ("ext3", "data=journal"),
        ("xfs", "defaults"),
        ("btrfs", "defaults"),
    ] {
        let bytes = if ["xfs", "btrfs"].contains(&name) { 320 << 20 } else { 64 << 20 };
        let (mkfs, options) = (Vec::new(), options.to_owned());
        let system = LiveSystem { name: name.into(), mkfs, options, bytes };
        let wanted = WatchOptions { rows: true, ..WatchOptions::default() };
        let mounted = match KernelMount::new(&system, wanted, DeviceSetup::in_memory(bytes)) {
            Ok(mounted) => mounted,
            Err(error) => {
                return ordo_testkit::skip(&format!("no {name} on a pseudo-device: {error}"));
            }
        };
        let control = mounted.control();
        let write = |file: &str, sync: bool| {
            let path = mounted.dir().join(file);
            std::fs::write(&path, vec![0x77; 65_536]).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            if sync {
                file.sync_all().unwrap();
            }
            let ino = file.metadata().unwrap().ino();
            std::fs::write(&control, format!("mark fsync {ino} 0 65536\n")).unwrap();
            ino
        };
        write("synced", true);
        let not = write("not", false);
        let (recording, seen) = mounted.finish().unwrap();
        let marks: Vec<usize> = recording
            .trace
            .requests()
            .iter()
            .enumerate()
            .filter(|(_, r)| r.op == RequestOp::Mark)
            .map(|(i, _)| i)
            .collect();
        assert_eq!(marks.len(), 2, "{name}");
        for row in &seen.rows {
            let r = &recording.trace.requests()[row.request as usize];
            let inside = r.offset <= row.offset && row.offset + row.len <= r.offset + r.len;
            assert!(inside, "{name}: {row:?} is no block of {r:?}");
        }
        let watch = Watch::over(&&recording.start[..]).unwrap();
        let found = expected(&recording.trace, &watch);
        let found: Vec<_> =
            found.iter().filter(|b| matches!(b, Broken::FsyncWithoutData { .. })).collect();
        let named = matches!(found[..], [Broken::FsyncWithoutData { inode, byte: 0, mark, .. }]
            if (*inode, *mark) == (not, marks[1] as u64));
        assert!(named, "{name}: {found:?}");
    }
}

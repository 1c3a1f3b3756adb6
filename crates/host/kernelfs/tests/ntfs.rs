//! NTFS while it is used, by ntfs-3g. Skipped with a message where that is not installed.

use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::kernel::{KernelMount, LiveSystem};
use ordo_recorder::DeviceSetup;
use ordo_watcher::Class;

/// Files are created, grown, overwritten and removed: no block may be unknown, and every kind must
/// be seen. ntfs-3g writes no log; it only marks the existing one.
#[test]
fn every_block_of_an_ntfs_3g_trace_is_named() {
    let bytes = 64 << 20;
    let (name, mkfs, options) = ("ntfs".into(), Vec::new(), "defaults".into());
    let system = LiveSystem { name, mkfs, options, bytes };
    let wanted = WatchOptions { rows: true, ..WatchOptions::default() };
    let mounted = match KernelMount::new(&system, wanted, DeviceSetup::in_memory(bytes)) {
        Ok(mounted) => mounted,
        Err(error) => return ordo_testkit::skip(&format!("no NTFS on a pseudo-device: {error}")),
    };
    let dir = mounted.dir().join("a directory");
    std::fs::create_dir(&dir).unwrap();
    for i in 0..200usize {
        let path = dir.join(format!("a file with a name of some length, number {i}"));
        std::fs::write(&path, vec![1 + (i % 200) as u8; 300 * i]).unwrap();
        if i % 4 == 0 {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let (_, seen) = mounted.finish().unwrap();
    let stats = &seen.analysis.stats;
    assert_eq!(seen.analysis.system, "ntfs");
    assert!(stats.unknown.is_empty(), "{:?}", stats.unknown);
    for class in [Class::InodeBlock, Class::BlockBitmap, Class::Directory, Class::FileData] {
        assert!(stats.writes[class].blocks > 0, "no {class}: {:?}", stats.writes);
    }
    let data = stats.writes[Class::FileData].bytes;
    assert!(data > 4 << 20, "{data} bytes of file data");
    assert!(seen.rows.iter().any(|b| b.path.as_deref().is_some_and(|p| p.contains("number 19"))));
}

//! The map of an LFS's segments, and cleaning them.
//!
//! Fault model: a map that counts wrongly, and a cleaning that loses contents, leaves a damaged
//! image, or gains nothing. Files lie between others that go, so that every segment is partly dead.

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_systems::lfs::segments::{clean, map};
use ordo_systems::{CheckOptions, MakeOptions, MountOptions, System, probe};
use ordo_vfs::{FileSystem, NewNode};

const LEN: usize = 20_000;

#[test]
fn cleaning_gains_segments_and_loses_nothing() {
    let executor = ordo_runtime::Executor::simulated(1);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let system = System::by_name("lfs").expect("there is one");
        let disk = RamDisk::new(16 << 20).erase();
        let made = MakeOptions { segment_size: Some(128 << 10), ..MakeOptions::default() };
        system.make(&rt, std::slice::from_ref(&disk), &made).await.expect("legal sizes");
        let options = MountOptions::default();
        let mounted = system.mount(&rt, std::slice::from_ref(&disk), &options).await.expect("made");
        let (fs, name) = (mounted.fs(), |n: u8| format!("f{n}").into_bytes());
        for n in 0..100 {
            let ino =
                fs.create(fs.root(), &name(n), &NewNode::file(0o644)).await.expect("space").ino;
            assert_eq!(fs.write(ino, 0, &[n; LEN]).await.expect("space"), LEN);
        }
        fs.sync().await.expect("space");
        for n in (0..100).filter(|n| n % 3 > 0) {
            fs.unlink(fs.root(), &name(n)).await.expect("deletes go through");
        }
        mounted.unmount().await.expect("space");

        let before = map(&disk).await.expect("an LFS");
        let least = (100_u64.div_ceil(3)) * LEN as u64;
        assert!(before.live_bytes >= least, "{} live", before.live_bytes);
        let cleaned = clean(&rt, disk.clone(), 60).await.expect("an LFS");
        assert!(cleaned.segments > 5 && cleaned.moved_bytes > 0, "{cleaned:?}");
        let after = map(&disk).await.expect("an LFS");
        assert!(after.clean >= before.clean + 5, "{} clean, then {}", before.clean, after.clean);
        assert_eq!(after.svg().matches("<rect").count(), 2 * after.segments.len());
        let text = after.text();
        assert!(text.contains('*') && text.lines().all(|line| line.len() <= 100), "{text}");
        // A second time there is nothing to gain.
        let again = clean(&rt, disk.clone(), 10).await.expect("an LFS");
        assert!(again.segments <= 1, "{again:?}");

        let format = probe(&disk).await.expect("it can be read").expect("an LFS");
        let report = format.check(std::slice::from_ref(&disk), &CheckOptions::default()).await;
        assert!(report.expect("it can be checked").is_consistent());
        let mounted = system.mount(&rt, &[disk], &options).await.expect("it is whole");
        let fs = mounted.fs();
        for n in (0..100).filter(|n| n % 3 == 0) {
            let attr = fs.lookup(fs.root(), &name(n)).await.expect("it stayed");
            let mut found = vec![0; LEN];
            assert_eq!(fs.read(attr.ino, 0, &mut found).await.expect("readable"), LEN);
            assert!(found == [n; LEN], "file {n}");
        }
    });
    ran.expect("no deadlock");
}

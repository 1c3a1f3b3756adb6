//! Images that NetBSD's own kernel wrote, mounted to be written, written, and checked again.
//!
//! Fault model: a mount that rolls forward to something else than a reader sees; a count of
//! NetBSD's that is carried on wrongly; a cleaner that does not understand NetBSD's partial
//! segments. Without the images nothing is tested, and that is said.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_lfs::write::{MountOptions, mount};
use ordo_lfs::{LfsError, LfsReader};
use ordo_runtime::Executor;
use ordo_vfs::tree::{CompareOptions, compare};
use ordo_vfs::{Errno, FileSystem, NewNode};

/// Makes and overwrites files until it is full, and removes most of them again.
async fn work<F: FileSystem>(fs: &F) {
    let root = fs.root();
    for round in 0..3u32 {
        for n in 0..40u32 {
            let name = format!("ours-{n}").into_bytes();
            let made = match fs.create(root, &name, &NewNode::file(0o644)).await {
                Err(error) if error.errno == Errno::Exists => fs.lookup(root, &name).await,
                made => made,
            };
            let ino = match made {
                Err(error) if error.errno == Errno::NoSpace => continue,
                made => made.expect("room, or a word about it").ino,
            };
            let data = vec![(round + n) as u8; 9_000 * (1 + n as usize % 30)];
            match fs.write(ino, 0, &data).await {
                Err(error) if error.errno == Errno::NoSpace => {}
                written => drop(written.expect("room, or a word about it")),
            }
        }
        fs.sync().await.expect("a healthy device");
    }
    for n in 0..35u32 {
        match fs.unlink(root, format!("ours-{n}").as_bytes()).await {
            Err(error) if error.errno == Errno::NotFound => {}
            gone => gone.expect("what deletes always goes through"),
        }
    }
}

fn written(name: &str) {
    let Some(bytes) = ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img")) else {
        return;
    };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let reader = LfsReader::mount(RamDisk::from_image(&bytes)).await.expect("it is read");
        let disk = Rc::new(RamDisk::from_image(&bytes));
        let options = MountOptions::default();
        let fs = mount(&rt, disk.clone(), &options).await.expect("it is written");
        let compared = CompareOptions { xattrs: false, ..CompareOptions::default() };
        let same = async |fs: &ordo_lfs::write::LogFs| {
            let roots = ((&reader, reader.root()), (fs, fs.root()));
            let found = compare(roots.0, roots.1, &compared, &mut |_| {}).await.expect("read");
            let names = |d: &&String| !d.contains("ours-");
            let all: Vec<String> = found.differences.iter().map(ToString::to_string).collect();
            all.iter().filter(names).cloned().collect::<Vec<_>>()
        };
        assert_eq!(same(&fs).await, [""; 0], "{name}: as a reader sees it");
        work(&fs).await;
        fs.unmount().await.expect("a healthy device");
        let report = LfsChecker::new(disk.clone(), Repair::No).run().await.expect("it is an LFS");
        assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
        let fs = mount(&rt, disk, &options).await.expect("unmounted");
        let differences = same(&fs).await;
        let others: Vec<_> = differences.iter().filter(|d| !d.starts_with("/:")).collect();
        assert!(others.len() <= 1, "{name}: {others:#?}");
    };
    executor.block_on(run).expect("no deadlock");
}

#[test]
fn images_of_netbsd_are_written_and_checked() {
    for name in ["fresh64-8k", "tree64-8k", "cut64-8k", "full64-8k"] {
        written(name);
    }
}

/// Would catch a writer that takes 32 bits for 64.
#[test]
fn lfs32_is_only_read() {
    let Some(bytes) = ordo_testkit::real_input("images/netbsd-lfs/tree32-8k.img") else { return };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = RamDisk::from_image(&bytes);
    let mounted = executor.block_on(mount(&rt, disk, &MountOptions::default())).unwrap();
    assert!(matches!(mounted.err(), Some(LfsError::NotWritable(_))));
}

//! Two devices that do not belong together are refused, each with its own error, and nothing is
//! written to either.
//!
//! Fault model: devices that are swapped, missing, of other pairs, copied at another time,
//! truncated or damaged. Would catch a mount that accepts one of them, and one that refuses a state
//! that a crash can leave.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::dualfs::{DualCheckError, DualChecker};
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount, read};
use ordo_dualfs::pair::Pair;
use ordo_dualfs::{DualError, DualFs, salvage};
use ordo_format::dualfs::{Identity, IdentityError, PairError};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};

fn run<T>(work: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    executor.block_on(work(rt)).expect("no deadlock")
}

fn devices(disks: &[&Rc<RamDisk>]) -> Vec<Device> {
    disks.iter().map(|disk| (*disk).clone().erase()).collect()
}

async fn made(rt: &Runtime) -> (Rc<RamDisk>, Rc<RamDisk>) {
    let disks = (Rc::new(RamDisk::new(16 << 20)), Rc::new(RamDisk::new(8 << 20)));
    let options = MkfsOptions::default();
    mkfs(rt, &devices(&[&disks.0, &disks.1]), &options).await.expect("legal sizes");
    disks
}

async fn mounted(rt: &Runtime, disks: &[Device]) -> Result<DualFs, DualError> {
    mount(rt, disks, &MountOptions::default()).await
}

/// The error of a mount that must fail. A check and a reader must give the same error, and the
/// disks must not change.
async fn refused(rt: &Runtime, disks: &[&Rc<RamDisk>]) -> DualError {
    let before: Vec<Vec<u8>> = disks.iter().map(|disk| disk.to_vec()).collect();
    let error = mounted(rt, &devices(disks)).await.err().expect("it is refused");
    let reader = read(&devices(disks)).await.err().expect("it is refused to readers too");
    assert_eq!(reader, error);
    let checked = DualChecker::new(&devices(disks), Repair::Yes).run().await;
    let checked = checked.expect_err("there is nothing to check");
    if let (DualError::Pair(one), DualCheckError::Pair(other)) = (&error, &checked) {
        assert_eq!(one, other);
    }
    let after: Vec<Vec<u8>> = disks.iter().map(|disk| disk.to_vec()).collect();
    assert!(before == after, "something was written");
    error
}

#[test]
fn devices_of_other_pairs_and_other_orders_are_refused() {
    run(async |rt| {
        let (meta, data) = made(&rt).await;
        let (other_meta, other_data) = made(&rt).await;
        assert_eq!(refused(&rt, &[&data, &meta]).await, PairError::Swapped.into());
        assert_eq!(
            refused(&rt, &[&meta, &other_meta]).await,
            PairError::SameRole { role: "metadata" }.into()
        );
        let foreign = refused(&rt, &[&meta, &other_data]).await;
        assert!(matches!(foreign, DualError::Pair(PairError::Foreign { .. })), "{foreign}");
        let missing = refused(&rt, &[&meta]).await;
        assert!(matches!(missing, DualError::DataMissing(_)), "{missing}");
        let missing = refused(&rt, &[&data]).await;
        assert!(matches!(missing, DualError::OnlyData(_)), "{missing}");
        let short = Rc::new(RamDisk::from_image(&data.to_vec()[..4 << 20]));
        let short = refused(&rt, &[&meta, &short]).await;
        assert!(matches!(short, DualError::TooSmall { device: "data", .. }), "{short}");
        data.store(100, &[1]);
        let torn = refused(&rt, &[&meta, &data]).await;
        let DualError::Identity { device: "data device", error } = torn else { panic!("{torn}") };
        assert!(matches!(error, IdentityError::Checksum { .. }));
    });
}

#[test]
fn a_copy_from_another_time_is_refused() {
    run(async |rt| {
        let (meta, data) = made(&rt).await;
        let copies = (Rc::new(meta.snapshot()), Rc::new(data.snapshot()));
        let fs = mounted(&rt, &devices(&[&meta, &data])).await.expect("just made");
        fs.create(fs.root(), b"new", &NewNode::file(0o644)).await.expect("room");
        fs.unmount().await.expect("healthy devices");
        let older = |role| DualError::Pair(PairError::Older { role, have: 1, want: 2 });
        assert_eq!(refused(&rt, &[&copies.0, &data]).await, older("metadata"));
        assert_eq!(refused(&rt, &[&meta, &copies.1]).await, older("data"));
        let both = mounted(&rt, &devices(&[&copies.0, &copies.1])).await;
        both.expect("both are of one time");
    });
}

/// A pair whose metadata device was a mirror of two halves, as older versions of Ordo made it, is
/// refused by name by every way in, and nothing is written: only a half of what counts may be here.
#[test]
fn a_mirrored_metadata_device_is_refused_by_name() {
    run(async |rt| {
        let (meta, data) = made(&rt).await;
        let plain = [meta.snapshot(), data.snapshot()].map(Rc::new);
        for disk in [&meta, &data] {
            let mut id = Identity::read(&disk.to_vec()[..512]).expect("just made");
            id.reserved = 2;
            let mut bytes = [0; 512];
            id.seal(&mut bytes);
            disk.store(0, &bytes);
        }
        let mirrored = |error: &IdentityError| *error == IdentityError::Mirrored { value: 2 };
        let orders = [[&meta, &data], [&data, &meta], [&meta, &plain[1]], [&plain[0], &data]];
        let alone = [[&meta], [&data]];
        let all = orders.iter().map(|disks| &disks[..]).chain(alone.iter().map(|disks| &disks[..]));
        for disks in all {
            let refused = refused(&rt, disks).await;
            let words = refused.to_string();
            let DualError::Identity { error, .. } = &refused else { panic!("{refused}") };
            assert!(mirrored(error), "{error}");
            assert!(words.contains("is of a DualFS that this version does not read"), "{words}");
            let checked = DualChecker::new(&devices(disks), Repair::Yes).run().await;
            let Err(DualCheckError::Identity { error, .. }) = checked else { panic!() };
            assert!(mirrored(&error), "{error}");
            let salvaged = salvage::read(&devices(disks)).await.err();
            let Some(DualError::Identity { error, .. }) = salvaged else { panic!("{salvaged:?}") };
            assert!(mirrored(&error), "{error}");
            let before: Vec<Vec<u8>> = disks.iter().map(|disk| disk.to_vec()).collect();
            assert!(mounted(&rt, &devices(disks)).await.is_err());
            assert!(before == disks.iter().map(|disk| disk.to_vec()).collect::<Vec<_>>());
        }
    });
}

/// A crash of a mount between any two of its writes to the identities leaves a pair.
#[test]
fn a_crash_during_a_mount_leaves_a_pair() {
    run(async |rt| {
        let (meta, data) = made(&rt).await;
        let pair = Pair::open(&devices(&[&meta, &data])).await.expect("just made");
        let (mut one, mut other) = (pair.identity.clone(), pair.data_identity.clone());
        let store = |disk: &RamDisk, id: &Identity| {
            let mut bytes = [0; 512];
            id.seal(&mut bytes);
            disk.store(0, &bytes);
        };
        one.next = 2;
        store(&meta, &one);
        Pair::open(&devices(&[&meta, &data])).await.expect("announced");
        other.generation = 2;
        store(&data, &other);
        let mut pair = Pair::open(&devices(&[&meta, &data])).await.expect("taken over");
        pair.begin_mount().await.expect("healthy devices");
        let pair = Pair::open(&devices(&[&meta, &data])).await.expect("mounted again");
        assert_eq!((pair.identity.generation, pair.data_identity.generation), (3, 3));
    });
}

#[test]
fn both_devices_can_be_one_disk() {
    run(async |rt| {
        let disk = Rc::new(RamDisk::new(64 << 20));
        let size = MetadataSize::Percent(10);
        let options = MkfsOptions { metadata: size, ..MkfsOptions::default() };
        let made = mkfs(&rt, &devices(&[&disk]), &options).await.expect("legal sizes");
        let tenth = (64 << 20) / 10;
        assert!((tenth..tenth + 4096).contains(&made.identity.metadata_bytes));
        let fs = mounted(&rt, &devices(&[&disk])).await.expect("just made");
        let file = fs.create(fs.root(), b"kept", &NewNode::file(0o644)).await.expect("room");
        fs.write(file.ino, 0, &[7; 100_000]).await.expect("room");
        fs.unmount().await.expect("a healthy device");
        let reader = read(&devices(&[&disk])).await.expect("unmounted");
        let mut bytes = vec![0; 100_000];
        let found = reader.lookup(reader.root(), b"kept").await.expect("it was made");
        reader.read(found.ino, 0, &mut bytes).await.expect("readable");
        assert!(bytes.iter().all(|byte| *byte == 7));
        // The contents lie on the data part only.
        let image = disk.to_vec();
        let at = made.identity.data_at as usize;
        let sevens = |part: &[u8]| part.chunks(4096).filter(|b| b.iter().all(|b| *b == 7)).count();
        assert_eq!((sevens(&image[..at]), sevens(&image[at..])), (0, 24));
        let report = DualChecker::new(&devices(&[&disk]), Repair::No).run().await.expect("a pair");
        assert!(report.is_consistent(), "{report}");
        assert_eq!(report.data_blocks_used, Some(25));
        let too_many = read(&devices(&[&disk, &disk])).await.err();
        assert!(matches!(too_many, Some(DualError::TooMany(_))));
    });
}

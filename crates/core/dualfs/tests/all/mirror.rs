//! A metadata device in two halves keeps everything that was acknowledged, whichever half fails and
//! whatever a power cut leaves.
//!
//! Fault model: three disks with volatile caches, which lose any part of what was not flushed,
//! sectors torn, each on its own; one half fails all its requests from some request on, or cannot
//! read some bytes. Then the power goes, and either both halves are there again, or only one of
//! them. Each rule of the mirror is switched off in turn, and then something must be lost.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::fault::{FaultRule, Faults, Faulty};
use ordo_block::model::{Model, Modeled};
use ordo_block::pieces::{read_all, write_all};
use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, Device, IoBuf, Operation, WriteFlags};
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::mirror::{HalfAccess, HalfState, Joined, LossSink, MirrorRules, join, read_label};
use ordo_dualfs::mount::{MountOptions, mount, read};
use ordo_dualfs::{DualError, DualRules};
use ordo_format::dualfs::{IDENTITY_SIZE, Identity, PairError};
use ordo_format::mirror::{LABEL_AT, LABEL_END, LABEL_SIZE, LabelError, MirrorError, MirrorLabel};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};

use crate::crash::{SEGMENTS, SIZES, Sizes, State, found, make, work_on};

type Cached = Rc<VolatileCache<RamDisk>>;

fn silent() -> LossSink {
    Rc::new(|_| {})
}

async fn joined(disks: &[Device], access: HalfAccess) -> Result<Joined, DualError> {
    join(disks, access, MirrorRules::all(), silent()).await
}

/// The error of halves that must not be joined, whether to be read or written.
async fn refused(disks: &[Device]) -> MirrorError {
    let mut errors = Vec::new();
    for access in [HalfAccess::Read, HalfAccess::Write] {
        match joined(disks, access).await.err() {
            Some(DualError::Mirror(error)) => errors.push(error),
            other => panic!("{access:?}: {other:?}"),
        }
    }
    assert_eq!(errors[0], errors[1]);
    errors[0]
}

fn bytes_of(sizes: Sizes) -> [u64; 3] {
    let bsize = u64::from(sizes.block);
    let half = 8192 + SEGMENTS * u64::from(sizes.segment_blocks) * bsize;
    [half, half, sizes.blocks * bsize]
}

/// The devices that are there after the power cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    All,
    /// Only this half, and the data device.
    Half(usize),
}

struct Ran {
    /// The disks as the power cut leaves them.
    images: Vec<Rc<RamDisk>>,
    states: Vec<State>,
    /// The half that the mirror went on without.
    lost: Option<usize>,
}

/// Works, while a half fails from a request on if the seed says so; then the power goes.
fn run(seed: u64, sizes: Sizes, rules: MirrorRules) -> Ran {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let disks: Vec<Cached> =
        bytes_of(sizes).map(|bytes| Rc::new(VolatileCache::new(RamDisk::new(bytes)))).to_vec();
    let faults = [0; 3].map(|_| Faults::new());
    let devices: Vec<Device> = disks
        .iter()
        .zip(&faults)
        .map(|(disk, faults)| Faulty::new(disk.clone(), faults).erase())
        .collect();
    let lost = Rc::new(RefCell::new(None));
    let said = lost.clone();
    let sink: LossSink = Rc::new(move |text| {
        *said.borrow_mut() =
            Some(usize::from(!text.contains("the first half of the metadata device failed")));
    });
    let states = executor.block_on(async {
        make(&rt, &devices, sizes).await;
        let joined = join(&devices, HalfAccess::Write, rules, sink).await.expect("just made");
        if !seed.is_multiple_of(4) {
            let dies = 1 + seed * 7 % 100;
            faults[(seed / 4) as usize % 2].add(FaultRule::fail(5).from_nth(dies));
        }
        work_on(&rt, &joined.disks, seed, sizes, DualRules::all()).await
    });
    let states = states.expect("no deadlock");
    let images = (0..)
        .zip(&disks)
        .map(|(n, disk)| Rc::new(disk.crash_image_seeded(Loss::Subset, seed * 3 + n)))
        .collect();
    let lost = *lost.borrow();
    Ran { images, states, lost }
}

/// The first byte in which halves differ, but for their labels.
fn first_difference(halves: &[Rc<RamDisk>]) -> Option<usize> {
    let bytes = [halves[0].to_vec(), halves[1].to_vec()];
    let own = LABEL_AT as usize..LABEL_END as usize;
    (0..bytes[0].len()).find(|at| bytes[0][*at] != bytes[1][*at] && !own.contains(at))
}

/// Joins, reads, mounts and checks what the power cut left. The error says what is wrong.
async fn come_back(
    rt: &Runtime,
    ran: &Ran,
    back: Back,
    sizes: Sizes,
    rules: MirrorRules,
) -> Result<(), String> {
    let bsize = u64::from(sizes.block);
    let all: Vec<Device> = ran.images.iter().map(|disk| disk.clone().erase()).collect();
    let given = match back {
        Back::All => all.clone(),
        Back::Half(half) => vec![all[half].clone(), all[2].clone()],
    };
    let reading =
        join(&given, HalfAccess::Read, rules, silent()).await.map_err(|e| e.to_string())?;
    let reader = read(&reading.disks).await.map_err(|e| format!("to be read: {e}"))?;
    let state = found(&reader, bsize).await?;
    if !ran.states.contains(&state) {
        return Err(format!("{state:?} is after no step of the last: {:?}", ran.states));
    }
    let joined =
        join(&given, HalfAccess::Write, rules, silent()).await.map_err(|e| e.to_string())?;
    let options = MountOptions::default();
    let fs = mount(rt, &joined.disks, &options).await.map_err(|e| e.to_string())?;
    fs.create(fs.root(), b"f999", &NewNode::file(0o600)).await.map_err(|e| e.to_string())?;
    fs.unmount().await.map_err(|e| e.to_string())?;
    joined.mirror.expect("two halves").close().await.map_err(|e| e.to_string())?;
    if back == Back::All
        && let Some(at) = first_difference(&ran.images)
    {
        return Err(format!("the halves differ at byte {at}"));
    }
    // Each half alone has everything.
    let alone: Vec<usize> = if let Back::Half(half) = back { vec![half] } else { vec![0, 1] };
    for half in alone {
        let pair = [all[half].clone(), all[2].clone()];
        let report = DualChecker::new(&pair, Repair::No).run().await.map_err(|e| e.to_string())?;
        if !report.is_consistent() {
            return Err(format!("half {half}: {:?}", report.findings));
        }
    }
    Ok(())
}

/// The faults found after one run, by the devices that came back.
fn crash(seed: u64, sizes: Sizes, rules: MirrorRules) -> Vec<(Back, String)> {
    let mut wrong = Vec::new();
    for back in [Back::All, Back::Half(0), Back::Half(1)] {
        let ran = run(seed, sizes, rules);
        let executor = Executor::simulated(seed + 1);
        let rt = executor.runtime();
        let judged = executor.block_on(come_back(&rt, &ran, back, sizes, rules));
        let judged = judged.expect("no deadlock");
        match (judged, back) {
            // The half that was lost must be refused where it is alone.
            (Ok(()), Back::Half(half)) if ran.lost == Some(half) => {
                wrong.push((back, "the older half was taken".to_owned()));
            }
            (Err(e), Back::Half(half)) if ran.lost == Some(half) => {
                if !e.contains("half of the metadata device is older") {
                    wrong.push((back, e));
                }
            }
            (Err(e), _) => wrong.push((back, e)),
            (Ok(()), _) => {}
        }
    }
    wrong
}

#[test]
fn nothing_that_was_acknowledged_is_lost_with_a_half() {
    let mut lost = [0, 0];
    for sizes in SIZES {
        for seed in 0..60 {
            let wrong = crash(seed, sizes, MirrorRules::all());
            assert!(wrong.is_empty(), "{sizes:?}, seed {seed}: {wrong:?}");
            if let Some(half) = run(seed, sizes, MirrorRules::all()).lost {
                lost[half] += 1;
            }
        }
    }
    assert!(lost[0] > 40 && lost[1] > 30, "{lost:?}");
}

/// Without a rule some run loses what was acknowledged, takes a half that is older, or leaves the
/// halves apart.
fn is_missed(rule: MirrorRules, back: &[Back], why: &[&str]) {
    let rules = MirrorRules::all().difference(rule);
    for sizes in SIZES {
        let is_broken = |seed| {
            let wrong = crash(seed, sizes, rules);
            wrong.iter().any(|(b, e)| back.contains(b) && why.iter().any(|why| e.contains(why)))
        };
        assert!((0..200).any(is_broken), "{sizes:?}: nothing misses {rule:?}");
    }
}

#[test]
fn a_stale_half_wins_when_no_epoch_is_raised() {
    is_missed(MirrorRules::RAISED, &[Back::All], &["after no step"]);
}

#[test]
fn halves_stay_apart_when_they_are_not_made_equal() {
    is_missed(MirrorRules::EQUALISED, &[Back::All], &["the halves differ"]);
}

#[test]
fn a_stale_half_is_taken_alone_when_the_data_device_does_not_know() {
    let halves = [Back::Half(0), Back::Half(1)];
    is_missed(MirrorRules::TOLD, &halves, &["after no step", "the older half was taken"]);
}

/// Runs `test` on new devices: two halves of 8 MiB, a data device of 8 MiB.
fn on_new(test: impl AsyncFnOnce(Runtime, [Rc<RamDisk>; 3], [Faults; 3], [Device; 3])) {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    let rams = [0; 3].map(|_| Rc::new(RamDisk::new(8 << 20)));
    let faults = [0; 3].map(|_| Faults::new());
    let n = [0, 1, 2];
    let devices = n.map(|n| Faulty::new(rams[n].clone(), &faults[n]).erase());
    let done = executor.block_on(async {
        let options = ordo_dualfs::mkfs::MkfsOptions::default();
        ordo_dualfs::mkfs::mkfs(&rt, &devices, &options).await.expect("legal sizes");
        test(rt.clone(), rams, faults, devices).await;
    });
    done.expect("no deadlock");
}

async fn label(half: &Device) -> MirrorLabel {
    read_label(half).await.unwrap().unwrap()
}

/// Bytes that a half cannot read come from the other half and are written back; a half that cannot
/// be written back is lost. Would catch a read error that reaches the file system, and a half that
/// stays unreadable.
#[test]
fn a_read_error_is_repaired_from_the_other_half() {
    on_new(async |_, rams, faults, devices| {
        let Joined { disks, mirror, .. } = joined(&devices, HalfAccess::Write).await.unwrap();
        let mirror = mirror.unwrap();
        let bytes = vec![7; 4096];
        let flags = WriteFlags::empty();
        disks[0].write(1 << 20, IoBuf::from_slice(&bytes), flags).await.unwrap();
        faults[0].add_latent((1 << 20)..(1 << 20) + 512);
        assert_eq!(disks[0].read(1 << 20, 4096).await.unwrap()[..], bytes[..]);
        assert_eq!(devices[0].read(1 << 20, 4096).await.unwrap()[..], bytes[..]);
        assert!(!mirror.is_degraded());
        faults[0].add_latent((1 << 20)..(1 << 20) + 512);
        faults[0].add(FaultRule::fail(5).on(Operation::Write));
        assert_eq!(disks[0].read(1 << 20, 4096).await.unwrap()[..], bytes[..]);
        assert!(mirror.is_degraded());
        assert_eq!((label(&devices[1]).await.epoch, label(&devices[1]).await.alone), (2, 1));
        let mut raw = vec![0; IDENTITY_SIZE];
        rams[2].load(0, &mut raw);
        assert_eq!(Identity::read(&raw).unwrap().mirror_epoch, 2);
        // Both halves gone: an error, and no wrong bytes.
        faults[1].add(FaultRule::fail(5));
        disks[0].read(1 << 20, 4096).await.unwrap_err();
        disks[0].write(1 << 20, IoBuf::from_slice(&bytes), flags).await.unwrap_err();
        disks[0].flush().await.unwrap_err();
    });
}

/// While a slow half fails to read some bytes, the other half fails in a write of these bytes and
/// is lost. It must not be the source of the repair, since it has the bytes of before. Would catch
/// a repair that undoes an acknowledged write.
#[test]
fn a_read_error_is_not_repaired_from_a_half_that_lacks_the_write() {
    on_new(async |rt, _, faults, devices| {
        let model = Model::by_name("viking").expect("in the catalogue");
        let slow = Modeled::new(&rt, model, devices[0].clone()).erase();
        let halves = [slow, devices[1].clone(), devices[2].clone()];
        let Joined { disks, mirror, .. } = joined(&halves, HalfAccess::Write).await.unwrap();
        let (at, flags) = (1 << 20, WriteFlags::empty());
        disks[0].write(at, IoBuf::from_slice(&[7; 4096]), flags).await.unwrap();
        faults[0].add_latent(at..at + 512);
        let disk = disks[0].clone();
        let reader = rt.spawn("reader", async move { disk.read(at, 4096).await.map(drop) });
        rt.yield_now().await;
        faults[1].add(FaultRule::fail(5).on(Operation::Write));
        disks[0].write(at, IoBuf::from_slice(&[8; 4096]), flags).await.unwrap();
        let _ = reader.await;
        assert!(mirror.unwrap().is_degraded());
        assert!(devices[0].read(at, 4096).await.unwrap()[..] == [8; 4096], "the write is undone");
    });
}

/// A write over the label leaves the labels alone, and halves that are joined for reading are not
/// written.
#[test]
fn labels_are_each_halfs_own() {
    on_new(async |_, rams, _, devices| {
        let before = rams.each_ref().map(|ram| ram.to_vec());
        let reading = joined(&devices, HalfAccess::Read).await.unwrap();
        assert!(reading.disks[0].geometry().read_only);
        assert_eq!(reading.halves, [HalfState::Current; 2]);
        read(&reading.disks).await.unwrap();
        assert!(before == rams.each_ref().map(|ram| ram.to_vec()), "something was written");
        let Joined { disks, mirror, .. } = joined(&devices, HalfAccess::Write).await.unwrap();
        let labels = [label(&devices[0]).await, label(&devices[1]).await];
        write_all(&disks[0], 512, &[9; 16384], WriteFlags::empty()).await.unwrap();
        assert_eq!(labels, [label(&devices[0]).await, label(&devices[1]).await]);
        for device in &devices[..2] {
            let bytes = read_all(device, 512, 16384).await.unwrap();
            let own = (LABEL_AT - 512) as usize..(LABEL_END - 512) as usize;
            let wrong = (0..16384).find(|at| (bytes[*at] == 9) == own.contains(at));
            assert_eq!(wrong, None);
        }
        disks[0].discard(0, 16384).await.unwrap();
        mirror.unwrap().close().await.unwrap();
        assert_eq!(label(&devices[1]).await.state_name(), "clean");
        assert_eq!(first_difference(&rams[..2]), None);
    });
}

/// A half that was missing is made equal when it is there again, whichever it was; the other one
/// goes on alone meanwhile.
#[test]
fn a_half_that_was_missing_is_made_equal() {
    for missing in [0, 1] {
        on_new(async |rt, rams, _, devices| {
            let there = 1 - missing;
            let pair = [devices[there].clone(), devices[2].clone()];
            let alone = joined(&pair, HalfAccess::Write).await.unwrap();
            assert_eq!(alone.halves[missing], HalfState::Missing);
            let fs = mount(&rt, &alone.disks, &MountOptions::default()).await.unwrap();
            fs.create(fs.root(), b"made alone", &NewNode::file(0o600)).await.unwrap();
            fs.unmount().await.unwrap();
            alone.mirror.unwrap().close().await.unwrap();
            let older = refused(&[devices[missing].clone(), devices[2].clone()]).await;
            assert!(matches!(older, MirrorError::Older { have: 1, want: 2, .. }), "{older}");
            // The order in which the halves are named does not matter.
            let swapped = [devices[1].clone(), devices[0].clone(), devices[2].clone()];
            let reading = joined(&swapped, HalfAccess::Read).await.unwrap();
            assert_eq!(reading.halves[missing], HalfState::Stale);
            let reader = read(&reading.disks).await.unwrap();
            reader.lookup(reader.root(), b"made alone").await.unwrap();
            assert!(first_difference(&rams[..2]).is_some());
            let writing = joined(&swapped, HalfAccess::Write).await.unwrap();
            assert_eq!(first_difference(&rams[..2]), None);
            writing.mirror.unwrap().close().await.unwrap();
            let again = joined(&devices, HalfAccess::Read).await.unwrap();
            assert_eq!(again.halves, [HalfState::Current; 2]);
        });
    }
}

/// Copying a newer half onto an older one is cut off by a power cut, when the data device did not
/// know the newer epoch yet. The half that was copied in part is refused.
#[test]
fn a_half_that_was_copied_in_part_is_refused() {
    for rules in [MirrorRules::all(), MirrorRules::all().difference(MirrorRules::TOLD)] {
        copied_in_part(rules);
    }
}

fn copied_in_part(rules: MirrorRules) {
    on_new(async |_, _, faults, devices| {
        let newer = MirrorLabel { epoch: 2, alone: 1, ..label(&devices[1]).await };
        let mut bytes = [0; LABEL_SIZE];
        newer.seal(&mut bytes);
        write_all(&devices[1], LABEL_AT, &bytes, WriteFlags::FUA).await.unwrap();
        write_all(&devices[1], 1 << 20, &[3; 1 << 20], WriteFlags::FUA).await.unwrap();
        // No label can be written any more, as after a power cut.
        for half in &faults[..2] {
            half.add(FaultRule::fail(5).on(Operation::Write).within(LABEL_AT..LABEL_END));
        }
        let cut = join(&devices, HalfAccess::Write, rules, silent()).await;
        cut.err().expect("no half can be marked");
        assert_eq!(label(&devices[0]).await.epoch, 1);
        faults[0].clear();
        if !rules.contains(MirrorRules::TOLD) {
            let alone = [devices[0].clone(), devices[2].clone()];
            assert!(joined(&alone, HalfAccess::Read).await.is_ok(), "nothing misses the rule");
            return;
        }
        let older = refused(&[devices[0].clone(), devices[2].clone()]).await;
        assert!(matches!(older, MirrorError::Older { have: 1, want: 2, .. }), "{older}");
    });
}

/// Devices that are no halves of one mirror are refused, each with its own error, and nothing is
/// written.
#[test]
fn halves_that_do_not_belong_together_are_refused() {
    on_new(async |rt, rams, _, devices| {
        let [a, b, data] = devices.clone();
        let other = [0; 3].map(|_| RamDisk::new(8 << 20).erase());
        let options = ordo_dualfs::mkfs::MkfsOptions { seed: 9, ..Default::default() };
        ordo_dualfs::mkfs::mkfs(&rt, &other, &options).await.unwrap();
        let plain = [0; 2].map(|_| RamDisk::new(8 << 20).erase());
        ordo_dualfs::mkfs::mkfs(&rt, &plain, &options).await.unwrap();
        let blank = RamDisk::new(8 << 20).erase();
        let before = rams.each_ref().map(|ram| ram.to_vec());
        let all = |x: &Device, y: &Device, z: &Device| [x.clone(), y.clone(), z.clone()];
        let foreign = refused(&all(&a, &other[1], &data)).await;
        assert!(matches!(foreign, MirrorError::Foreign { half: "second", .. }), "{foreign}");
        let twice = refused(&all(&b, &b, &data)).await;
        assert_eq!(twice, MirrorError::Twice { half: "second" });
        let not_half = refused(&all(&a, &blank, &data)).await;
        let error = LabelError::Magic { value: 0 };
        assert_eq!(not_half, MirrorError::NotHalf { which: "second", error });
        let two = refused(&all(&plain[0], &a, &plain[1])).await;
        assert!(matches!(two, MirrorError::NotMirrored(_)), "{two}");
        let swapped = joined(&all(&a, &data, &b), HalfAccess::Read).await.err();
        assert_eq!(swapped, Some(DualError::Pair(PairError::Swapped)));
        let role = joined(&all(&a, &data, &data), HalfAccess::Read).await.err();
        assert_eq!(role, Some(DualError::Pair(PairError::SameRole { role: "data" })));
        assert!(before == rams.each_ref().map(|ram| ram.to_vec()), "something was written");
        // Each half was used without the other by a copy of the data device.
        let copy = RamDisk::from_image(&rams[2].to_vec()).erase();
        joined(&[a.clone(), data.clone()], HalfAccess::Write).await.unwrap();
        joined(&[b.clone(), copy], HalfAccess::Write).await.unwrap();
        assert_eq!(refused(&devices).await, MirrorError::Split { epoch: 2 });
        // A device without a label becomes the other half, where that is asked for.
        let given = all(&a, &blank, &data);
        let rebuilt = joined(&given, HalfAccess::Rebuild { second_counts: false }).await.unwrap();
        rebuilt.mirror.unwrap().close().await.unwrap();
        assert_eq!(label(&blank).await.name(), "second");
        assert_eq!(joined(&given, HalfAccess::Read).await.unwrap().halves, [HalfState::Current; 2]);
    });
}

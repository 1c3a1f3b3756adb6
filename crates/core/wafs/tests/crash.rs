//! The records of a log after crashes and damage.
//!
//! Fault model: the honest disk with a volatile cache of `docs/crash-model.md`. Any subset of the
//! writes that were not made durable survives, torn at 512 bytes, and requests under way survive in
//! part. Crashes follow each other on the same image. Everything that was forced must be there, in
//! order; what follows must be a prefix of what was appended; and nothing that an earlier crash
//! lost may come back. Catches an end of the log that is found too early or too late, sectors of an
//! older mount that are taken for new ones, and a force that returns before its write is durable.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{self, Recorder, Tap};
use ordo_block::volatile::VolatileCache;
use ordo_block::{BlockDevice, Operation, WriteFlags};
use ordo_runtime::{Duration, Executor};
use ordo_wafs::{
    GroupCommit, LogError, LogRules, MkfsOptions, MountOptions, RecordRef, Wafs, mkfs,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

async fn all(log: &Wafs) -> Vec<Vec<u8>> {
    let mut reader = log.reader(log.start());
    let mut out = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        out.push(record.bytes);
    }
    out
}

/// All records; `None` if a scan from any record on gives others, some kept by mounting and the
/// rest read.
async fn all_and_scanned(log: &Wafs, rng: &mut Pcg64Mcg) -> Option<Vec<Vec<u8>>> {
    let there = all(log).await;
    let skip = rng.random_range(0..=there.len());
    let (mut from, mut out) = (log.end(), Vec::new());
    let mut number = 0;
    let mut find = |record: RecordRef<'_>| {
        from = if number == skip { record.lsn } else { from };
        number += 1;
        number <= skip
    };
    log.scan(log.start(), &mut find).await.unwrap();
    let mut each = |record: RecordRef<'_>| {
        out.push(record.bytes.to_vec());
        true
    };
    log.scan(from, &mut each).await.unwrap();
    (out == there[skip..]).then_some(there)
}

fn record(rng: &mut Pcg64Mcg, n: usize) -> Vec<u8> {
    let len = match rng.random_range(0..10) {
        0 => rng.random_range(0..3000),
        _ => rng.random_range(0..120),
    };
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes.extend_from_slice(&n.to_le_bytes());
    bytes
}

/// The disk after a crash at any point behind the first `acknowledged` writes.
fn crash(
    rng: &mut Pcg64Mcg,
    disk: RamDisk,
    requests: &[tap::Record],
    acknowledged: usize,
) -> RamDisk {
    let writes: Vec<_> = requests.iter().filter(|r| r.op == Operation::Write).collect();
    let complete = rng.random_range(acknowledged..=writes.len());
    for (i, write) in writes.iter().take(complete + 1).enumerate() {
        let whole = i < complete && write.flags.contains(WriteFlags::FUA);
        let data = write.data.as_ref().expect("contents are kept");
        for (n, sector) in data.chunks(512).enumerate() {
            if whole || rng.random() {
                disk.store(write.offset + 512 * n as u64, sector);
            }
        }
    }
    disk
}

/// The same disk with a new log.
fn with_log(executor: &Executor, disk: &RamDisk) -> RamDisk {
    let disk = Rc::new(disk.snapshot());
    let made = executor.block_on(mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0));
    made.unwrap().unwrap();
    disk.snapshot()
}

/// Runs crash cycles on one image. Returns the number of crashes that lost an appended record, or
/// the violation found.
fn crash_cycles(seed: u64, crash_cycles: usize, rules: LogRules) -> Result<usize, String> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let executor = Executor::simulated(seed);
    let mut disk = with_log(&executor, &RamDisk::new(64 << 10));
    // The records that the log must hold, and the index from which on they were not forced.
    let mut expected: Vec<Vec<u8>> = Vec::new();
    let mut forced = 0;
    let mut lost = 0;
    let mut n = 0;
    for cycle in 0..crash_cycles {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let before = disk.snapshot();
        let tap = Tap::new(&rt, VolatileCache::new(disk));
        let recorder = Recorder::new(true);
        tap.attach(recorder.clone());
        let cluster = [512, 4096, 65536][rng.random_range(0..3)];
        let skip_sectors = [0, 1, 3, 9][rng.random_range(0..4)];
        let keep = [0, 700, 1 << 20][cycle % 3];
        let options =
            MountOptions { cluster, skip_sectors, keep, rules, ..MountOptions::default() };
        let count = || recorder.with(|all| all.iter().filter(|r| r.op == Operation::Write).count());
        let mut acknowledged = 0;
        let survived = executor
            .block_on(async {
                let log = Wafs::mount(&rt, tap, &options).await.map_err(|e| e.to_string())?;
                let there = all_and_scanned(&log, &mut rng).await;
                let there = there.ok_or(format!("seed {seed}, life {cycle}: scanned otherwise"))?;
                let start = expected.len().saturating_sub(there.len());
                if there.len() < forced {
                    return Err(format!("seed {seed}, life {cycle}: a forced record is gone"));
                }
                if !expected.starts_with(&there) {
                    return Err(format!("seed {seed}, life {cycle}: not what was appended"));
                }
                lost += start;
                expected.truncate(there.len());
                forced = expected.len();
                acknowledged = count();
                for _ in 0..rng.random_range(0..60) {
                    let bytes = record(&mut rng, n);
                    n += 1;
                    match log.append(&bytes) {
                        Ok(_) => expected.push(bytes),
                        Err(LogError::Full { .. }) => {
                            log.force(log.end()).await.unwrap();
                            log.truncate(log.end());
                            log.checkpoint(None).await.unwrap();
                            (expected, forced) = (Vec::new(), 0);
                            acknowledged = count();
                        }
                        Err(error) => panic!("{error}"),
                    }
                    if rng.random_range(0..4) == 0 {
                        log.force(log.end()).await.unwrap();
                        forced = expected.len();
                        acknowledged = count();
                    } else {
                        rt.yield_now().await;
                    }
                }
                Ok(())
            })
            .unwrap();
        survived?;
        drop(executor);
        disk = crash(&mut rng, before, &recorder.take(), acknowledged);
    }
    Ok(lost)
}

#[test]
fn forced_records_survive_every_crash() {
    let lost: usize = (0..60).map(|seed| crash_cycles(seed, 25, LogRules::all()).unwrap()).sum();
    assert!(lost > 100, "the crashes lost next to nothing: {lost}");
}

/// Each rule for recognising sectors is needed: without the epoch rule crashes do harm, without the
/// checksum rule or the rule about later sectors damage does.
#[test]
fn every_rule_of_the_log_is_missed() {
    let off = LogRules::all() - LogRules::EPOCH;
    assert!((0..200).any(|seed| crash_cycles(seed, 25, off).is_err()), "epochs are for nothing");
    let (disk, records) = sample();
    let image = disk.to_vec();
    let bit = |n: usize| {
        let mut bad = image.clone();
        bad[n / 8] ^= 1 << (n % 8);
        bad
    };
    let off = LogRules::all() - LogRules::CHECKSUM;
    let believed = (0..image.len() * 8).step_by(37).filter(|n| {
        verdict_by(RamDisk::from_image(&bit(*n)), off).is_ok_and(|there| there != records)
    });
    assert!(believed.count() > 100, "without checksums flipped bits are not believed");
    let sector = |n: usize| {
        let mut bad = image.clone();
        bad[n * 512..(n + 1) * 512].fill(0x77);
        bad
    };
    let off = LogRules::all() - LogRules::BEHIND;
    let short = (2..image.len() / 512).filter(|n| {
        verdict_by(RamDisk::from_image(&sector(*n)), off)
            .is_ok_and(|there| there.len() + 8 < records.len())
    });
    assert!(short.count() > 3, "without the word of later sectors what is lost is not missed");
}

/// Mounts the log on `disk`, appends records and forces them. Returns the disk after mounting, and
/// at the end.
fn appended(disk: &RamDisk, rules: LogRules, records: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let executor = Executor::simulated(1);
    let (rt, disk) = (executor.runtime(), Rc::new(disk.snapshot()));
    executor
        .block_on(async {
            let options = MountOptions { cluster: 64 << 10, rules, ..MountOptions::default() };
            let log = Wafs::mount(&rt, disk.clone(), &options).await.unwrap();
            let mounted = disk.to_vec();
            for bytes in records {
                log.append(bytes).unwrap();
            }
            log.force(log.end()).await.unwrap();
            (mounted, disk.to_vec())
        })
        .unwrap()
}

/// Two crashes. The first leaves the beginning of a record in the log's last sector. A longer
/// record is then appended from there. The second crash loses the new version of that sector and
/// keeps the sectors behind it. The old beginning must not be joined with the kept rest of the
/// longer record. `first` bytes of another record come before. The lost record begins in `sector`
/// of the device, behind that other record or at the sector's beginning.
#[test]
fn the_beginning_of_a_lost_record_is_not_joined_with_another_record() {
    let scenario = |first: usize, sector: usize, rules: LogRules| {
        let disk = with_log(&Executor::simulated(1), &RamDisk::new(64 << 10));
        let a = vec![0xaa; first];
        let (mut crashed, whole) = appended(&disk, rules, &[&a, &[0xbb; 1100]]);
        let behind = (sector + 1) * 512;
        crashed[..behind].copy_from_slice(&whole[..behind]);
        let crashed = RamDisk::from_image(&crashed);
        assert_eq!(verdict(crashed.snapshot()).unwrap(), std::slice::from_ref(&a), "one was lost");
        let (mut crashed, whole) = appended(&crashed, rules, &[&[0xcc; 1900]]);
        crashed[behind..].copy_from_slice(&whole[behind..]);
        verdict(RamDisk::from_image(&crashed)).is_ok_and(|there| there == [a])
    };
    for (first, sector) in [(600, 3), (942, 4)] {
        assert!(scenario(first, sector, LogRules::all()), "after {first} bytes");
        let off = LogRules::all() - LogRules::CUT;
        assert!(!scenario(first, sector, off), "the rule is for nothing after {first} bytes");
    }
}

/// A log with some records, all forced but the last, on a disk of its own.
fn sample() -> (RamDisk, Vec<Vec<u8>>) {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(16 << 10));
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut records: Vec<Vec<u8>> = (0..60).map(|n| record(&mut rng, n)).collect();
    records.iter_mut().for_each(|record| record.truncate(90));
    executor
        .block_on(async {
            mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
            // Once around, so that the rest of the ring holds old sectors.
            let log = Wafs::mount(&rt, disk.clone(), &MountOptions::default()).await.unwrap();
            while log.free_space() > 100 {
                log.append(&[0xee; 60]).unwrap();
            }
            log.force(log.end()).await.unwrap();
            log.truncate(log.end());
            log.checkpoint(None).await.unwrap();
            for (i, record) in records.iter().enumerate() {
                let at = log.append(record).unwrap();
                if i % 7 == 0 {
                    log.force(at.end).await.unwrap();
                }
            }
            log.force(log.end()).await.unwrap();
        })
        .unwrap();
    (disk.snapshot(), records)
}

/// The result of mounting an image: the records, or the damage.
fn verdict(disk: RamDisk) -> Result<Vec<Vec<u8>>, LogError> {
    verdict_by(disk, LogRules::all())
}

fn verdict_by(disk: RamDisk, rules: LogRules) -> Result<Vec<Vec<u8>>, LogError> {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor
        .block_on(async {
            let options = MountOptions { read_only: true, rules, ..MountOptions::default() };
            let log = Wafs::mount(&rt, disk, &options).await?;
            Ok(all(&log).await)
        })
        .unwrap()
}

/// Each bit of the log is flipped, one at a time: it is repaired, or it was in no record that is
/// kept.
#[test]
fn every_single_flipped_bit_is_harmless() {
    let (disk, records) = sample();
    let image = disk.to_vec();
    assert_eq!(verdict(RamDisk::from_image(&image)), Ok(records.clone()));
    for bit in 0..image.len() * 8 {
        let mut bad = image.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(verdict(RamDisk::from_image(&bad)).as_ref(), Ok(&records), "bit {bit}");
    }
}

/// Each sector is lost, or torn in its middle: this is found, except for the very last sector,
/// whose loss looks like a write that was never made. Then all records before it are there.
#[test]
fn a_lost_sector_is_found() {
    let (disk, records) = sample();
    let image = disk.to_vec();
    let mut found = 0;
    for sector in 0..image.len() / 512 {
        for torn in [0, 100, 300] {
            let mut bad = image.clone();
            bad[sector * 512 + torn..(sector + 1) * 512].fill(0x77);
            match verdict(RamDisk::from_image(&bad)) {
                Ok(there) if there == records => {}
                Ok(there) => {
                    assert!(records.starts_with(&there), "sector {sector}");
                    assert!(there.len() + 8 >= records.len(), "sector {sector}: {}", there.len());
                }
                Err(LogError::Damaged { .. }) => found += 1,
                Err(error) => panic!("sector {sector}: {error}"),
            }
        }
    }
    assert!(found > 12, "{found}");
}

/// A device without a log, another log's sectors, and a log without a superblock: one clear error
/// each.
#[test]
fn devices_without_a_log_are_refused() {
    assert!(matches!(verdict(RamDisk::new(8192)), Err(LogError::NoSuperblock(_))));
    let (disk, _) = sample();
    let mut image = disk.to_vec();
    image[..1024].fill(0);
    assert!(matches!(verdict(RamDisk::from_image(&image)), Err(LogError::NoSuperblock(_))));
    // One copy is enough, if the log has not moved on since it was written.
    let mut image = disk.to_vec();
    image[..512].fill(0);
    let one = verdict(RamDisk::from_image(&image));
    let mut image = disk.to_vec();
    image[512..1024].fill(0);
    let other = verdict(RamDisk::from_image(&image));
    let sound = [&one, &other].iter().filter(|v| v.is_ok()).count();
    assert!(sound >= 1, "{one:?} {other:?}");
    for v in [one, other] {
        assert!(matches!(v, Ok(_) | Err(LogError::Damaged { .. })));
    }
    // A new log in place of an old one starts empty, whatever the old sectors say.
    let disk = with_log(&Executor::simulated(1), &disk);
    assert_eq!(verdict(disk), Ok(Vec::new()));
}

/// Sixteen callers at once, one force each, again and again, on a disk that takes no time. With
/// group commit they share writes; without it each record is written as it comes.
#[test]
fn group_commit_shares_writes() {
    let writes = |group| {
        let executor = Executor::simulated(3);
        let rt = executor.runtime();
        let disk = Rc::new(RamDisk::new(1 << 20));
        executor
            .block_on(async {
                mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
                let options = MountOptions { group, skip_sectors: 2, ..MountOptions::default() };
                let log = Wafs::mount(&rt, disk.clone(), &options).await.unwrap();
                let order = Rc::new(RefCell::new(0));
                let tasks: Vec<_> = (0..16u8)
                    .map(|who| {
                        let (log, order, rt) = (log.clone(), order.clone(), rt.clone());
                        rt.clone().spawn("a client", async move {
                            for _ in 0..20 {
                                let at = log.append(&[who; 500]).unwrap();
                                log.force(at.end).await.unwrap();
                                assert!(log.durable() >= at.end);
                                *order.borrow_mut() += 1;
                                rt.sleep(Duration::from_millis(1)).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await;
                }
                assert_eq!(*order.borrow(), 320);
                assert_eq!(log.read(log.start()).await.unwrap().bytes.len(), 500);
                log.stats().writes
            })
            .unwrap()
    };
    let each = writes(None);
    let shared = writes(Some(GroupCommit { delay: Duration::from_micros(100), batch: 16 }));
    assert!(each >= 320, "{each}");
    assert!(shared <= each / 3, "{shared} of {each}");
}

/// Sixteen callers at once on a rotating disk, without group commit: a caller that comes while a
/// write is under way is served by the next one, whichever task sends it. In the published form
/// each caller's own write ends with the sector of his record; those in one sector still go
/// together. Catches a write that carries only the record of its sender, where writes are shared
/// (there would be 320), and a switch for that which changes nothing.
#[test]
fn a_write_carries_what_others_wait_for() {
    let writes = |shares| {
        let executor = Executor::simulated(3);
        let rt = executor.runtime();
        let model = Model::by_name("cheetah").unwrap();
        let disk = Rc::new(Modeled::new(&rt, model, RamDisk::new(1 << 20)));
        let work = async {
            mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
            let options = MountOptions { cluster: 64 << 10, shares, ..MountOptions::default() };
            let log = Wafs::mount(&rt, disk.clone(), &options).await.unwrap();
            let client = |who: u8| {
                let log = log.clone();
                rt.spawn("a client", async move {
                    for _ in 0..20 {
                        let at = log.append(&[who; 400]).unwrap();
                        log.force(at.end).await.unwrap();
                        assert!(log.durable() >= at.end);
                    }
                })
            };
            let tasks: Vec<_> = (0..16).map(client).collect();
            for task in tasks {
                task.await;
            }
            log.stats().writes
        };
        executor.block_on(work).unwrap()
    };
    let (shared, alone) = (writes(true), writes(false));
    assert!(shared <= 48, "{shared}");
    assert!(alone >= 160, "{alone} in the published form");
}

/// Every record is found by its LSN, and no LSN in between gives one.
#[test]
fn records_are_found_by_their_numbers() {
    let (disk, records) = sample();
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor
        .block_on(async {
            let log = Wafs::mount(&rt, disk, &MountOptions::default()).await.unwrap();
            let mut lsn = log.start();
            for record in &records {
                let found = log.read(lsn).await.unwrap();
                assert_eq!(&found.bytes, record);
                for between in lsn + 1..found.end.min(lsn + 30) {
                    assert!(matches!(log.read(between).await, Err(LogError::NoRecord { .. })));
                }
                lsn = found.end;
            }
            assert_eq!(lsn, log.end());
            assert!(log.read(lsn).await.is_err());
        })
        .unwrap();
}

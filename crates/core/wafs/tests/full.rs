//! A log that is full to its last byte.
//!
//! Fault model: none but the end of the ring; forced records are read back after a mount. Catches
//! an end that meets the start and is taken for an empty log, a record over the ring's seam that is
//! cut, a last byte that is refused, and one byte too many that is accepted.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_runtime::Executor;
use ordo_wafs::{LogError, MkfsOptions, MountOptions, Wafs, mkfs};

const LAPS: usize = 4;

/// A record that, with its length in front of it, fills `free_space` bytes, or nearly so where no
/// length fits exactly.
fn filling(free_space: u64, with: u8) -> Vec<u8> {
    let length = if free_space > 128 { 2 } else { 1 };
    vec![with; (free_space - length) as usize]
}

async fn records(log: &Wafs) -> Vec<Vec<u8>> {
    let mut reader = log.reader(log.start());
    let mut out = Vec::new();
    while let Some(record) = reader.next().await.expect("it is whole") {
        out.push(record.bytes);
    }
    out
}

/// Lap after lap the log is filled to its last byte, mounted again and read, and then freed up to a
/// record, so that each lap begins at another place in the ring.
fn fill(size: usize, skip_sectors: u16) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(16 << 10));
    let work = async {
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
        let options = MountOptions { skip_sectors, ..MountOptions::default() };
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        for lap in 0..LAPS {
            let log = Wafs::mount(&rt, disk.clone(), &options).await.unwrap();
            let need = size as u64 + 2;
            while log.free_space() >= need + 3 {
                let bytes = vec![kept.len() as u8; size];
                kept.push((log.append(&bytes).unwrap().lsn, bytes));
                if kept.len().is_multiple_of(7) {
                    log.force(log.end()).await.unwrap();
                }
            }
            while log.free_space() > 0 {
                let bytes = filling(log.free_space().min(1000), 0xee);
                kept.push((log.append(&bytes).unwrap().lsn, bytes));
            }
            let refused = log.append(b"");
            assert!(
                matches!(refused, Err(LogError::Full { need: 1, free_space: 0 })),
                "{refused:?}"
            );
            log.force(log.end()).await.unwrap();
            let (start, end) = (log.start(), log.end());
            drop(log);

            let log = Wafs::mount(&rt, disk.clone(), &options).await.unwrap();
            assert_eq!(
                (log.start(), log.end(), log.free_space()),
                (start, end, 0),
                "size {size}, lap {lap}"
            );
            let there = records(&log).await;
            let expected: Vec<_> = kept.iter().map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(there, expected, "size {size}, stride {skip_sectors}, lap {lap}");
            // All but the last few records are freed.
            kept.drain(..kept.len() - 2);
            log.truncate(kept[0].0);
            log.checkpoint(None).await.unwrap();
            assert!(log.free_space() > log.capacity() / 2, "size {size}, lap {lap}");
            log.unmount().await.unwrap();
        }
    };
    executor.block_on(work).unwrap();
}

#[test]
fn a_log_is_filled_to_its_last_byte() {
    for size in [1, 2, 100, 126, 470, 472, 475, 476, 510, 1000] {
        for skip_sectors in [0, 3] {
            fill(size, skip_sectors);
        }
    }
}

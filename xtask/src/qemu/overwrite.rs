//! The program of `make test-qemu-logs` and `make test-qemu-pressure`: fills a file, or overwrites
//! random blocks of it with an fsync after every 64. `rustc` builds it by itself, without
//! libraries, since the guest has none.
//!
//! `overwrite fill FILE BLOCKS`, `overwrite uniform|hot FILE BLOCKS SEED FIRST WRITES`. A file
//! system without clean space refuses a write until its cleaner has made some; the program tries
//! again, and prints how often it did.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

/// Bytes in a block.
const BLOCK: usize = 4096;
/// Blocks written between two fsyncs.
const INTERVAL: u64 = 64;
/// The most times that a refused call is tried again, with 100 ms between two tries.
const TRIES: u32 = 600;

/// Calls again what found no space.
fn insist(waits: &mut u64, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..TRIES {
        match call() {
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                *waits += 1;
                sleep(Duration::from_millis(100));
            }
            done => return done,
        }
    }
    Err(Error::from(ErrorKind::StorageFull))
}

/// The next number of the sequence SplitMix64 (Steele, Lea and Flood, 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that no file system can shorten.
fn contents(block: &mut [u8], mut seed: u64) {
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&next(&mut seed).to_le_bytes());
    }
}

fn fill(file: &File, blocks: u64, waits: &mut u64) -> Result<()> {
    let mut bytes = vec![0; BLOCK * INTERVAL as usize];
    for first in (0..blocks).step_by(INTERVAL as usize) {
        let length = (blocks - first).min(INTERVAL) as usize * BLOCK;
        contents(&mut bytes, first);
        insist(waits, || file.write_all_at(&bytes[..length], first * BLOCK as u64))?;
        if first % (INTERVAL * 32) == 0 {
            insist(waits, || file.sync_all())?;
        }
    }
    insist(waits, || file.sync_all())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args[at].parse::<u64>().expect("a number");
    let (how, blocks) = (args[1].as_str(), number(3));
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&args[2])?;
    let mut waits = 0;
    if how == "fill" {
        fill(&file, blocks, &mut waits)?;
    } else {
        let (mut state, first, writes) = (number(4), number(5), number(6));
        let mut bytes = [0; BLOCK];
        for n in 0..first + writes {
            // Nine writes of ten go to every tenth block, or a block is chosen of all.
            let (hot, draw) = (next(&mut state) % 10 < 9, next(&mut state));
            let block = match how {
                "hot" if hot => draw % (blocks / 10) * 10,
                _ => draw % blocks,
            };
            if n < first {
                continue;
            }
            contents(&mut bytes, n ^ block << 32);
            insist(&mut waits, || file.write_all_at(&bytes, block * BLOCK as u64))?;
            if (n + 1) % INTERVAL == 0 {
                insist(&mut waits, || file.sync_all())?;
            }
        }
        insist(&mut waits, || file.sync_all())?;
    }
    println!("refused and tried again: {waits}");
    Ok(())
}

//! New blocks, whose memory may have been another block's before.

use std::rc::Rc;

use ordo_block::{IoBuf, ram::RamDisk};
use ordo_cache::{BufKey, BufferClass, Cache, CacheConfig, NoGate};
use ordo_runtime::Executor;

/// A block with pages of its own.
const LARGE: usize = 32 << 10;

/// A new block is zeros, also where its memory was another block's before, and also in an image.
/// Would catch memory that is used again without being cleared, which would give an old file's
/// bytes to a new one.
#[test]
fn a_new_block_has_nothing_of_an_earlier_one() {
    let executor = Executor::simulated(7);
    let disk = Rc::new(RamDisk::new(16 << 20));
    let cache =
        Cache::new(&executor.runtime(), disk.clone(), Rc::new(NoGate), CacheConfig::default());
    let scenario = async {
        for n in 0..8 {
            drop(IoBuf::from_slice(&[0xEE; LARGE]));
            let (key, at) = (BufKey::file(9, n), n as u64 * LARGE as u64);
            let buf = cache.get_new(key, Some(at), LARGE, BufferClass::Data).await;
            let mut wanted = vec![0; LARGE];
            assert!(buf.read()[..] == wanted[..]);
            match n {
                0 => {}
                1 => buf.overwrite(0..LARGE, &[3; LARGE - 1]),
                2 => buf.overwrite(0..LARGE, &[3; 700]),
                3 => buf.overwrite(0..LARGE, &[]),
                4 => buf.overwrite(100..LARGE, &[3; 600]),
                5 => buf.overwrite(0..700, &[3; 700]),
                6 => buf.write(|bytes| bytes[..700].fill(3)),
                _ => buf.write_part(0..700, |bytes| bytes.fill(3)),
            }
            match n {
                0 | 3 => {}
                1 => wanted[..LARGE - 1].fill(3),
                4 => wanted[100..700].fill(3),
                _ => wanted[..700].fill(3),
            }
            assert!(buf.read()[..] == wanted[..], "change {n}");
            cache.mark_dirty(&buf);
            cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            let mut there = vec![1; LARGE];
            disk.load(at, &mut there);
            assert!(there == wanted, "change {n} on the disk");
        }
        let key = BufKey::file(9, 9);
        let buf = cache.get_new(key, None, LARGE, BufferClass::Data).await;
        drop(IoBuf::from_slice(&[0xEE; LARGE / 2]));
        cache.resize(&buf, LARGE / 2);
        assert!(buf.read()[..] == [0; LARGE / 2]);
        cache.resize(&buf, LARGE);
        assert!(buf.read()[..] == [0; LARGE]);
    };
    executor.block_on(scenario).unwrap();
}

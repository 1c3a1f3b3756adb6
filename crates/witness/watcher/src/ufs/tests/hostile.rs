use ordo_format::ufs2::inode::{IFDIR, IFLNK, IFREG};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// Bytes that often enough look like valid metadata: inodes and indirect blocks with pointers to
/// anywhere, to themselves and to each other; directories; and noise.
fn nonsense(w: &WatchedUfs, rng: &mut Pcg64Mcg, len: usize, inodes: bool) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let addr = |rng: &mut Pcg64Mcg| match rng.random_range(0..8) {
        0 => rng.random::<u64>(),
        1 => rng.random_range(0..w.sb.size as u64 + 8),
        // Few blocks, so that files share them and indirect blocks form circles.
        _ => w.data(0, rng.random_range(0..6)),
    };
    if inodes {
        for raw in bytes.chunks_exact_mut(Dinode::SIZE) {
            let mode = [0, IFREG, IFREG, IFDIR, IFLNK, rng.random()][rng.random_range(0..6)];
            let mut inode = inode(mode, rng.random::<u64>() >> rng.random_range(0..64), 1);
            inode.generation = rng.random_range(0..3);
            inode.extsize = rng.random();
            for slot in inode.db.iter_mut().chain(&mut inode.ib).chain(&mut inode.extb) {
                if rng.random_range(0..3) == 0 {
                    *slot = addr(rng) as i64;
                }
            }
            inode.encode(raw, w.endian);
        }
    } else if rng.random_range(0..4) == 0 {
        rng.fill_bytes(&mut bytes);
    } else {
        for word in bytes.chunks_exact_mut(8) {
            if rng.random_range(0..20) == 0 {
                let a = addr(rng);
                w.endian.put_u64(word, 0, a / w.sb.frag as u64 * w.sb.frag as u64);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Hostile writes anywhere: no panic, no endless loop, and every byte counted once.
    #[test]
    fn nonsense_is_counted_like_everything_else(seed: u64) {
        let w = WatchedUfs::small(16 << 20);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = 0;
        for _ in 0..60 {
            let inodes = rng.random_range(0..3) == 0;
            let at = if inodes {
                w.sb.byte_of(w.sb.cg_inodes(0)) + 8192 * rng.random_range(0..2u64)
            } else {
                w.sb.byte_of(w.data(0, rng.random_range(0..6)))
            };
            let shift = 512 * rng.random_range(0..4u64) * u64::from(rng.random_range(0..4) == 0);
            let len = if rng.random_range(0..4) == 0 { 512 * rng.random_range(1..40) } else { 8192 };
            let data = nonsense(&w, &mut rng, len, inodes);
            w.write_at(at + shift, &data);
            bytes += len as u64;
        }
        let stats = w.watch.finish();
        prop_assert_eq!(stats.writes.total().bytes, bytes);
        prop_assert_eq!(stats.writes.total().requests, 60);
    }
}

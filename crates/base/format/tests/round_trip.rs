//! Random bytes and random structures go through every codec and back, in both byte orders. Catches
//! a codec that forgets bytes, mixes byte orders, or panics on bytes that a disk may hold.

use ordo_format::ufs1::Inode1;
use ordo_format::ufs2::csum::CsTotal;
use ordo_format::ufs2::inode::{IFBLK, IFCHR, IFDIR, IFIFO, IFLNK, IFREG};
use ordo_format::ufs2::superblock::MAGIC_UFS1;
use ordo_format::ufs2::{Csum, Dinode, Group, Superblock, bitmap, dir, extattr};
use ordo_format::{Endian, OnDisk};
use proptest::prelude::*;

fn order() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

/// Decoding and encoding changes no byte, whatever the bytes are.
fn round_trip<T: OnDisk>(bytes: &[u8], endian: Endian) -> Result<(), TestCaseError> {
    let mut again = bytes.to_vec();
    T::get(bytes, 0, endian).put(&mut again, 0, endian);
    prop_assert_eq!(&again, bytes);
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_of_a_ufs2_structure_come_back(
        bytes in prop::collection::vec(any::<u8>(), 1376),
        endian in order(),
    ) {
        round_trip::<Superblock>(&bytes, endian)?;
        round_trip::<Group>(&bytes, endian)?;
        round_trip::<Dinode>(&bytes, endian)?;
        round_trip::<Csum>(&bytes, endian)?;
        round_trip::<CsTotal>(&bytes, endian)?;
        let _ = Superblock::read(&bytes, 65536);
        let node = Dinode::decode(&bytes, endian);
        prop_assert_eq!(&node.short_link(endian)[..], &bytes[112..232]);
    }

    #[test]
    fn any_directory_ends_and_stays_in_its_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..2048),
        small in any::<bool>(),
        endian in order(),
    ) {
        if small {
            // Entry lengths are often valid, so that the walk goes on.
            for i in (0..bytes.len().saturating_sub(8)).step_by(16) {
                endian.put_u16(&mut bytes, i + 4, 16);
                bytes[i + 7] %= 8;
            }
        }
        let mut seen = 0;
        for entry in dir::entries(&bytes, endian) {
            seen += 1;
            if let Ok(entry) = entry {
                prop_assert!(entry.at + usize::from(entry.reclen) <= bytes.len());
            }
        }
        prop_assert!(seen <= bytes.len() / 12 + 1);
    }

    #[test]
    fn directories_are_read_as_written(
        names in prop::collection::vec("[a-zA-Z0-9.]{1,40}", 1..12),
        endian in order(),
    ) {
        let mut chunk = [0; dir::CHUNK];
        let mut at = 0;
        let mut kept = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let size = dir::entry_size(name.len());
            if at + size + dir::entry_size(1) > dir::CHUNK {
                break;
            }
            dir::write_entry(&mut chunk[at..], endian, i as u32 + 3, size as u16, 8, name.as_bytes());
            at += size;
            kept.push((i as u32 + 3, name.as_bytes()));
        }
        let left = (dir::CHUNK - at) as u16;
        dir::write_entry(&mut chunk[at..], endian, 2, left, dir::DT_DIR, b".");
        kept.push((2, b"."));
        let read: Vec<_> = dir::entries(&chunk, endian).map(|e| e.unwrap()).collect();
        prop_assert_eq!(read.iter().map(|e| (e.ino, e.name)).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn attributes_are_read_as_written(
        attrs in prop::collection::vec(
            (1u8..3, prop::collection::vec(1u8.., 1..255), prop::collection::vec(any::<u8>(), 0..99)),
            0..20,
        ),
        cut in any::<usize>(),
        endian in order(),
    ) {
        let mut area = Vec::new();
        for (space, name, content) in &attrs {
            extattr::append(&mut area, endian, *space, name, content);
        }
        let read: Vec<_> = extattr::attrs(&area, endian)
            .map(|attr| attr.unwrap())
            .map(|a| (a.namespace, a.name.to_vec(), a.content.to_vec()))
            .collect();
        prop_assert_eq!(&read, &attrs);
        // The area is cut anywhere: whole records, then at most one error.
        let cut = &area[..cut % (area.len() + 1)];
        let results: Vec<_> = extattr::attrs(cut, endian).collect();
        let errors = results.iter().filter(|attr| attr.is_err()).count();
        prop_assert!(errors <= 1 && results.len() <= attrs.len());
    }

    #[test]
    fn any_attributes_end(area in prop::collection::vec(any::<u8>(), 0..512), endian in order()) {
        prop_assert!(extattr::attrs(&area, endian).count() <= area.len() / 16 + 1);
    }

    #[test]
    fn cluster_counts_follow_every_change(
        blocks in 1u32..70,
        most in 1u32..17,
        changes in prop::collection::vec((0u32..70, any::<bool>()), 0..200),
        endian in order(),
    ) {
        let sums = 4 * (most as usize + 1);
        let map = (blocks as usize).div_ceil(8);
        let layout = ordo_format::ufs2::group::GroupLayout {
            inodes: 0..0,
            frags: 0..0,
            cluster_sum: 0..sums,
            clusters: sums..sums + map,
            end: sums + map,
        };
        let mut header = vec![0; sums + map];
        for (blk, freed) in changes {
            bitmap::cluster_account(&mut header, endian, &layout, blk % blocks, freed);
            let counts = bitmap::cluster_counts(&header[sums..], blocks, most);
            for (n, count) in counts.iter().enumerate().take(most as usize + 1).skip(1) {
                prop_assert_eq!(endian.get_i32(&header, 4 * n), *count);
            }
        }
    }

    /// An inode of UFS1 becomes one of UFS2 and again one of UFS1, and no byte has changed: of a
    /// file, of a link with a short target and with a long one, of a device, and of a free inode.
    /// So does a pointer in an indirect block.
    #[test]
    fn any_bytes_of_a_ufs1_inode_come_back(
        mut bytes in prop::collection::vec(any::<u8>(), 128),
        kind in prop::sample::select(vec![0, IFREG, IFDIR, IFLNK, IFCHR, IFBLK, IFIFO]),
        size in prop_oneof![1u64..70, any::<u64>()],
        endian in order(),
    ) {
        let mut sb = Superblock::zeroed();
        (sb.magic, sb.maxsymlinklen) = (MAGIC_UFS1, 60);
        endian.put_u16(&mut bytes, 0, kind | 0o644);
        endian.put_u64(&mut bytes, 8, size);
        round_trip::<Inode1>(&bytes, endian)?;
        let node = sb.inode(&bytes, endian);
        let mut again = vec![0; 128];
        sb.put_inode(&node, &mut again, endian);
        prop_assert_eq!(&again, &bytes);
        prop_assert_eq!((node.kind(), node.size), (kind, size));
        let address = sb.pointer(&bytes, 5, endian);
        sb.put_pointer(&mut again, 6, endian, address);
        prop_assert_eq!(&again[24..28], &bytes[20..24]);
    }

    #[test]
    fn bit_searches_agree_with_looking_at_each(
        map in prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 1..20),
        from in 0u32..160,
        to in 0u32..160,
    ) {
        let bits = map.len() as u32 * 8;
        let (from, to) = (from.min(bits), to.min(bits));
        prop_assert_eq!(
            bitmap::next_set(&map, from, to), (from..to).find(|bit| bitmap::is_set(&map, *bit)));
        prop_assert_eq!(
            bitmap::next_clear(&map, from, to), (from..to).find(|bit| !bitmap::is_set(&map, *bit)));
        let set = (0..to).filter(|bit| bitmap::is_set(&map, *bit)).count();
        prop_assert_eq!(bitmap::count(&map, to) as usize, set);
    }
}

#[test]
fn fragment_runs_in_every_block() {
    for frag in [1, 2, 4, 8] {
        for bits in 0..=bitmap::block_mask(frag) {
            let mut sums = [0; 8];
            bitmap::frag_sum(bits, frag, &mut sums, 1);
            let mut by_hand = [0; 8];
            let text: String =
                (0..frag).map(|bit| if bits >> bit & 1 == 1 { '1' } else { '0' }).collect();
            for run in text.split('0').filter(|run| !run.is_empty() && run.len() < frag as usize) {
                by_hand[run.len()] += 1;
            }
            assert_eq!(sums, by_hand, "{text}");
            for n in 1..=frag {
                let run = "1".repeat(n as usize);
                assert_eq!(bitmap::find_run(bits, frag, n), text.find(&run).map(|at| at as u32));
            }
        }
        let mut map = [0; 4];
        for blk in 0..32 / frag {
            assert_eq!(bitmap::block_bits(&map, blk, frag), 0);
            let bit = blk * frag;
            map[bit as usize / 8] |= bitmap::block_mask(frag) << (bit % 8);
            assert!(bitmap::block_is_free(&map, blk, frag));
        }
        assert_eq!(map, [255; 4]);
        map[0] &= !bitmap::block_mask(frag);
        assert_eq!(bitmap::count(&map, 32), 32 - frag);
        assert_eq!(bitmap::find_exact_run(bitmap::block_mask(frag), frag, frag), Some(0));
    }
}

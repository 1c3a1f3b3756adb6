//! The codecs on an image that FreeBSD wrote: every structure validates, every check-hash is the
//! one that FreeBSD computed, and decoding then encoding changes no byte. Catches a wrong offset, a
//! wrong hash rule, and a field that is missing from a structure.

use ordo_format::Endian;
use ordo_format::ufs2::superblock::{CK_INODE, SBLOCK_SIZE};
use ordo_format::ufs2::{Csum, Dinode, Group, ROOT_INO, Superblock, bitmap, dir, extattr, inode};

fn freebsd_image() -> Option<Vec<u8>> {
    ordo_testkit::real_input("images/freebsd-ufs2-little-endian.img")
}

#[test]
fn every_structure_and_hash_is_understood() {
    let Some(image) = freebsd_image() else { return };
    let (sb, endian) = Superblock::read(&image[65536..65536 + SBLOCK_SIZE], 65536).unwrap();
    assert_eq!(endian, Endian::Little);
    assert_eq!((sb.bsize, sb.fsize, sb.ncg, sb.fpg, sb.ipg), (32768, 4096, 4, 264, 256));
    let mut again = image[65536..65536 + SBLOCK_SIZE].to_vec();
    sb.encode(&mut again, endian);
    assert_eq!(again, image[65536..65536 + SBLOCK_SIZE]);

    let mut totals = sb.cstotal.clone();
    (totals.ndir, totals.nbfree, totals.nifree, totals.nffree) = (0, 0, 0, 0);
    for cg in 0..sb.ncg {
        let copy = sb.byte_of(sb.cg_superblock(cg)) as usize;
        let (other, _) = Superblock::read_copy(&image[copy..copy + SBLOCK_SIZE]).unwrap();
        assert!(other.is_copy_at(copy as u64));
        totals.add(&check_group(&image, &sb, endian, cg));
    }
    assert_eq!(totals, sb.cstotal);
}

/// Checks a group's header and inodes, and returns its counts.
fn check_group(image: &[u8], sb: &Superblock, endian: Endian, cg: u32) -> Csum {
    let at = sb.byte_of(sb.cg_header(cg)) as usize;
    let bytes = &image[at..at + sb.block_size()];
    let group = Group::read(bytes, endian, sb, cg).unwrap();
    let layout = group.layout(sb);
    let frags = &bytes[layout.frags.clone()];
    let (mut blocks, mut frsum) = (0, [0; 8]);
    for blk in 0..group.ndblk / 8 {
        blocks += i32::from(bitmap::block_is_free(frags, blk, 8));
        bitmap::frag_sum(bitmap::block_bits(frags, blk, 8), 8, &mut frsum, 1);
    }
    assert_eq!(blocks, group.cs.nbfree);
    assert_eq!(frsum, group.frsum);
    let clusters = &bytes[layout.clusters.clone()];
    let counts = bitmap::cluster_counts(clusters, group.nclusterblks, sb.contigsumsize as u32);
    for (n, count) in counts.iter().enumerate().take(sb.contigsumsize as usize + 1).skip(1) {
        assert_eq!(*count, endian.get_i32(bytes, layout.cluster_sum.start + 4 * n));
    }
    assert!(sb.keeps_hash(CK_INODE));
    for ino in sb.cg_first_inode(cg)..sb.cg_first_inode(cg) + u64::from(group.initediblk) {
        let (addr, within) = sb.inode_block(ino);
        let at = sb.byte_of(addr) as usize + within;
        let bytes = &image[at..at + Dinode::SIZE];
        Dinode::verify_hash(bytes, endian).unwrap();
        let mut again = bytes.to_vec();
        Dinode::decode(bytes, endian).encode(&mut again, endian);
        assert_eq!(again, bytes);
    }
    let summary = sb.byte_of(sb.csaddr as u64) as usize + cg as usize * Csum::SIZE;
    assert_eq!(Csum::decode(&image[summary..], endian), group.cs);
    group.cs
}

#[test]
fn the_root_directory_and_the_attributes_are_listed() {
    let Some(image) = freebsd_image() else { return };
    let (sb, endian) = Superblock::read(&image[65536..65536 + SBLOCK_SIZE], 65536).unwrap();
    let load = |ino: u64| {
        let (addr, within) = sb.inode_block(ino);
        Dinode::decode(&image[sb.byte_of(addr) as usize + within..], endian)
    };
    let root = load(ROOT_INO);
    assert_eq!(root.kind(), inode::IFDIR);
    let at = sb.byte_of(root.db[0] as u64) as usize;
    let chunks = &image[at..at + root.size as usize];
    let entries: Vec<_> = dir::entries(chunks, endian).map(Result::unwrap).collect();
    assert_eq!((entries[0].name, entries[1].name), (&b"."[..], &b".."[..]));

    let mut most = 0;
    for ino in ROOT_INO..sb.inodes() {
        let inode = load(ino);
        if inode.mode == 0 || inode.extsize == 0 {
            continue;
        }
        let mut area = Vec::new();
        for (i, addr) in inode.extb.iter().enumerate().filter(|(_, addr)| **addr != 0) {
            let at = sb.byte_of(*addr as u64) as usize;
            let len = sb.file_block_size(inode.extsize.into(), i as u64);
            area.extend_from_slice(&image[at..at + len]);
        }
        area.truncate(inode.extsize as usize);
        let mut rebuilt = Vec::new();
        let mut count = 0;
        for attr in extattr::attrs(&area, endian) {
            let attr = attr.unwrap();
            extattr::append(&mut rebuilt, endian, attr.namespace, attr.name, attr.content);
            count += 1;
        }
        assert_eq!(rebuilt, area, "the builder writes what FreeBSD wrote");
        most = most.max(count);
    }
    assert_eq!(most, 2297);
}

#[test]
fn the_dump_shows_what_dumpfs_shows() {
    use ordo_format::ufs2::dump;
    let Some(image) = freebsd_image() else { return };
    let (sb, endian) = Superblock::read(&image[65536..65536 + SBLOCK_SIZE], 65536).unwrap();
    let text = dump::superblock(&sb, endian);
    for part in ["19540119 (UFS2", "2024-08-04 15:39:59", "soft-updates check-hashes", "ncg 4"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let bytes = &image[sb.byte_of(sb.cg_header(3)) as usize..];
    let group = Group::read(bytes, endian, &sb, 3).unwrap();
    let text = dump::group(&sb, &group, bytes, endian);
    assert!(text.contains("nbfree 24  ndir 1  nifree 255  nffree 7"), "{text}");
    assert!(text.contains("inodes used: 0\n"), "{text}");
}

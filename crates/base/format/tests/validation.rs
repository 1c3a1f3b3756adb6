//! Each validated field, changed alone, gives its own error, in both byte orders. Fault model: a
//! valid superblock or group header in which one field is overwritten; the check-hash is corrected,
//! so that it does not catch the change first. Catches a check that is missing, too weak, or names
//! the wrong byte.

use ordo_format::ufs2::group::{GroupError, GroupField};
use ordo_format::ufs2::superblock::{
    CK_SUPPORTED, FS_METACKHASH, MAGIC, SBLOCK_SIZE, Superblock, SuperblockError as E,
};
use ordo_format::ufs2::{Dinode, Group, group};
use ordo_format::{Endian, Field};

const ORDERS: [Endian; 2] = [Endian::Little, Endian::Big];

/// The superblock that mkfs writes on 4 MiB with 32 KiB blocks and 4 KiB fragments.
fn sound() -> Superblock {
    let mut sb = Superblock::zeroed();
    (sb.bsize, sb.fsize, sb.frag) = (32768, 4096, 8);
    (sb.bmask, sb.fmask, sb.qbmask, sb.qfmask) = (-32768, -4096, 32767, 4095);
    (sb.bshift, sb.fshift, sb.fragshift, sb.fsbtodb) = (15, 12, 3, 3);
    (sb.nindir, sb.inopb, sb.sbsize, sb.cgsize) = (4096, 128, 4096, 4096);
    (sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno) = (24, 32, 40, 56);
    (sb.ncg, sb.fpg, sb.ipg, sb.size, sb.dsize) = (4, 264, 256, 1024, 871);
    (sb.cssize, sb.csaddr, sb.sblockloc) = (4096, 56, 65536);
    (sb.maxcontig, sb.maxbpg, sb.contigsumsize, sb.minfree) = (32, 4096, 16, 8);
    (sb.maxsymlinklen, sb.flags, sb.metackhash) = (120, FS_METACKHASH, CK_SUPPORTED);
    sb.magic = MAGIC;
    sb
}

fn encoded(sb: &Superblock, endian: Endian) -> Vec<u8> {
    let mut bytes = vec![0; SBLOCK_SIZE];
    sb.encode(&mut bytes, endian);
    // The range is that of `seal`, but for sizes that cannot be trusted.
    let end = usize::try_from(sb.sbsize).unwrap_or(0).clamp(Superblock::SIZE, SBLOCK_SIZE);
    let hash = ordo_format::check_hash(&[&bytes[..1304], &[0; 4], &bytes[1308..end]]);
    endian.put_u32(&mut bytes, 1304, hash);
    bytes
}

/// Overwrites a field of either width.
fn poke(bytes: &mut [u8], endian: Endian, name: &str, value: i64) {
    let field = Field::find(Superblock::FIELDS, name).unwrap();
    match field.bytes {
        4 => endian.put_i32(bytes, field.offset, value as i32),
        8 => endian.put_i64(bytes, field.offset, value),
        other => panic!("{name} has {other} bytes"),
    }
    let sb = Superblock::decode(bytes, endian);
    bytes.copy_from_slice(&encoded(&sb, endian));
}

#[test]
fn a_sound_superblock_is_read() {
    for endian in ORDERS {
        let bytes = encoded(&sound(), endian);
        let (sb, found) = Superblock::read(&bytes, 65536).unwrap();
        assert_eq!(found, endian);
        assert_eq!(Superblock { ckhash: 0, ..sb }, sound());
    }
}

#[test]
fn each_field_changed_alone_gives_its_own_error() {
    type Case<'a> = (&'a str, &'a [i64], fn(i64) -> E);
    let cases: &[Case<'_>] = &[
        ("bsize", &[0, -32768, 3000, 2048, 131_072], |value| E::BlockSize { value }),
        ("fsize", &[0, -4096, 3000, 256, 65536], |value| E::FragmentSize { value }),
        ("frag", &[0, 7, -8, 16], |value| E::FragmentsPerBlock { value }),
        ("minfree", &[-1, 100], |value| E::MinFree { value }),
        ("bmask", &[0, -32767], |value| E::BlockMask { value }),
        ("fmask", &[0, -4095], |value| E::FragmentMask { value }),
        ("bshift", &[0, 14, 64], |value| E::BlockShift { value }),
        ("fshift", &[0, 13, 64], |value| E::FragmentShift { value }),
        ("maxcontig", &[-1], |value| E::MaxContig { value }),
        ("maxbpg", &[0, -5], |value| E::MaxBlocksPerGroup { value }),
        ("fragshift", &[0, 4, -1], |value| E::BlockFragmentShift { value }),
        ("fsbtodb", &[-1, 4, 40], |value| E::SectorShift { value }),
        ("sbsize", &[0, 1375, 8193, -1], |value| E::SuperblockSize { value }),
        ("nindir", &[0, 8192, -1], |value| E::AddressesPerBlock { value }),
        ("inopb", &[0, 127], |value| E::InodesPerBlock { value }),
        ("optim", &[2, -1], |value| E::Optimisation { value }),
        ("cssize", &[0, 8192, -4096], |value| E::SummarySize { value }),
        ("cgsize", &[0, 168, 300, 32769, -1], |value| E::GroupHeaderSize { value }),
        ("ipg", &[0, 255, 1 << 31], |value| E::InodesPerGroup { value }),
        ("fpg", &[0, 56, 263, -264], |value| E::FragmentsPerGroup { value }),
        ("sblkno", &[-8, 0, 16, 25], |value| E::SuperblockCopy { value }),
        ("cblkno", &[-8, 0, 24, 33], |value| E::GroupHeader { value }),
        ("iblkno", &[-8, 0, 32, 41], |value| E::Inodes { value }),
        ("dblkno", &[-8, 0, 48, 57, 64], |value| E::Data { value }),
        ("ncg", &[0, 3, 5], |value| E::Groups { value }),
        ("size", &[0, -1, i64::MAX, 264 * 3 + 55], |value| E::Size { value }),
        ("dsize", &[0, -1, 1025], |value| E::DataSize { value }),
        ("csaddr", &[0, 55, -1, 1024, 264, i64::MAX], |value| E::SummaryAddress { value }),
        ("metaspace", &[-1, 265], |value| E::MetadataSpace { value }),
        ("sblockloc", &[0, 8192, 262_144, 4096, -1], |value| E::Place { value }),
        ("contigsumsize", &[-1, 17], |value| E::ClusterSum { value }),
        ("maxsymlinklen", &[-1, 121], |value| E::LinkLength { value }),
        ("qbmask", &[0, 32768], |value| E::OffsetMask { value }),
        ("qfmask", &[0, 4096], |value| E::FragmentOffsetMask { value }),
    ];
    for endian in ORDERS {
        for (name, values, error) in cases {
            for &value in *values {
                let mut bytes = encoded(&sound(), endian);
                poke(&mut bytes, endian, name, value);
                let got = Superblock::read(&bytes, 65536).map(|_| ());
                // Moving the standard superblock also moves the structures that must come after it.
                if *name == "sblockloc" && value == 262_144 {
                    assert_eq!(got, Err(E::SuperblockCopy { value: 24 }));
                    continue;
                }
                assert_eq!(got, Err(error(value)), "{name} = {value}");
                let field = Field::find(Superblock::FIELDS, name).unwrap();
                assert_eq!(error(value).byte(), field.offset);
                assert!(error(value).to_string().contains(&format!("{name} is {value}")));
            }
        }
    }
}

#[test]
fn other_formats_and_broken_hashes_are_distinguished() {
    for endian in ORDERS {
        let mut bytes = encoded(&sound(), endian);
        bytes[800] ^= 1;
        let error = Superblock::read(&bytes, 65536).unwrap_err();
        assert!(matches!(error, E::CheckHash { .. }) && error.byte() == 1304);
        Superblock::parse(&bytes).unwrap();
        endian.put_i32(&mut bytes, 1372, 0x1996_0408);
        assert_eq!(Superblock::parse(&bytes), Err(E::Incomplete { endian }));
        assert_eq!(Superblock::parse(&bytes[..1000]), Err(E::TooShort { have: 1000 }));
    }
    assert_eq!(Superblock::parse(&[0; 8192]), Err(E::Magic { found: 0 }));
}

/// UFS1's superblock: the older fields are valid unless the newer ones are marked as right, and a
/// fault is named. A superblock that is stored has both.
#[test]
fn older_superblocks_are_taken_over() {
    for endian in ORDERS {
        let mut old = sound();
        (old.magic, old.old_inodefmt) = (0x0001_1954, 2);
        (old.nindir, old.inopb) = (old.bsize / 4, old.bsize as u32 / 128);
        old.ipg = old.inopb * (old.ipg / sound().inopb);
        old.old_flags = 0;
        (old.sblockloc, old.old_cgmask, old.flags) = (0, -1, 0);
        (old.old_size, old.old_dsize) = (old.size as i32, old.dsize as i32);
        old.old_csaddr = old.csaddr as i32;
        (old.size, old.dsize, old.csaddr, old.maxbsize) = (7, 7, 7, 0);
        (old.old_cpg, old.old_nrpos) = (1, 1);
        let read = |sb: &Superblock| Superblock::read(&encoded(sb, endian), 8192);
        let (sb, found) = read(&old).unwrap();
        assert_eq!((sb.size, sb.dsize, sb.csaddr), (sound().size, sound().dsize, sound().csaddr));
        assert!(found == endian && sb.is_ufs1() && sb.inode_size() == 128);
        let newer = Superblock { maxbsize: old.bsize, size: 7, ..old.clone() };
        assert!(matches!(read(&newer), Err(E::Groups { .. } | E::Size { .. })));
        let format = Superblock { old_inodefmt: -1, ..old.clone() };
        assert_eq!(read(&format), Err(E::InodeFormat { value: -1 }));
        let moved = Superblock { old_cgoffset: 8, old_cgmask: !3, ..old.clone() };
        assert_eq!(
            read(&moved).unwrap().0.cg_header(3),
            3 * old.fpg as u64 + 24 + old.cblkno as u64
        );
        let out = Superblock { old_cgoffset: 1 << 20, old_cgmask: !3, ..old.clone() };
        assert_eq!(read(&out), Err(E::GroupOffset { value: 1 << 20 }));
        let at_another_place = Superblock::read(&encoded(&old, endian), 65536);
        assert_eq!(at_another_place, Err(E::Place { value: 8192 }));
        let tables = Superblock { old_cpg: 0, ..old.clone() };
        assert_eq!(read(&tables), Err(E::Cylinders { value: 0 }));
        let tables = Superblock { old_nrpos: -1, ..old.clone() };
        assert_eq!(read(&tables), Err(E::Positions { value: -1 }));
        let tables = Superblock { old_cpg: 20_000, ..old.clone() };
        assert!(matches!(read(&tables), Err(E::GroupHeaderSize { .. })));
        let mut stored = encoded(&old, endian);
        let changed = Superblock { time: 77, clean: 1, ..sb.clone() };
        changed.store(&mut stored, endian);
        let raw = Superblock::decode(&stored, endian);
        assert_eq!(
            (raw.old_time, raw.old_size, i64::from(raw.old_dsize)),
            (77, old.old_size, sb.dsize)
        );
        assert_eq!(Superblock::read(&stored, 8192), Ok((raw, endian)));
        assert!(changed.older_fields().iter().all(|(_, stored, right)| stored == right));
        let wrong = Superblock { old_csaddr: 3, ..changed };
        assert_eq!(wrong.older_fields().iter().filter(|(_, a, b)| a != b).count(), 1);
    }
}

/// A valid header for the short last group.
fn sound_group(endian: Endian) -> Vec<u8> {
    let mut bytes = vec![0; 32768];
    Group::empty(&sound(), 3).encode(&mut bytes, endian);
    Group::seal(&mut bytes, endian, &sound());
    bytes
}

#[test]
fn each_group_field_changed_alone_gives_its_own_error() {
    let sb = sound();
    for endian in ORDERS {
        Group::read(&sound_group(endian), endian, &sb, 3).unwrap();
        let cases: &[(GroupField, &[u32])] = &[
            (GroupField::Number, &[0, 4, u32::MAX]),
            (GroupField::Fragments, &[0, 231, 264]),
            (GroupField::Inodes, &[0, 255, 257]),
            (GroupField::Initialised, &[257, u32::MAX]),
            (GroupField::InodeMap, &[0, 167]),
            (GroupField::FragmentMap, &[0, 199, 168]),
            (GroupField::ClusterSum, &[0, 228, 233]),
            (GroupField::ClusterMap, &[0, 299]),
            (GroupField::ClusterBlocks, &[0, 28, 33]),
            (GroupField::MapEnd, &[0, 304, 4097]),
            (GroupField::BlockRotor, &[232]),
            (GroupField::FragmentRotor, &[232, u32::MAX]),
            (GroupField::InodeRotor, &[256]),
        ];
        assert_eq!(cases.len(), GroupField::ALL.len());
        for (field, values) in cases {
            for value in *values {
                let mut bytes = sound_group(endian);
                endian.put_u32(&mut bytes, field.byte(), *value);
                Group::seal(&mut bytes, endian, &sb);
                match Group::read(&bytes, endian, &sb, 3) {
                    Err(GroupError::Field { cg: 3, field: got, byte, value: v, .. }) => {
                        assert_eq!((got, byte, v), (*field, field.byte(), *value));
                    }
                    other => panic!("{field} = {value}: {other:?}"),
                }
            }
        }
        let mut bytes = sound_group(endian);
        bytes[200] ^= 1;
        let error = Group::read(&bytes, endian, &sb, 3).unwrap_err();
        assert!(matches!(error, GroupError::CheckHash { cg: 3, .. }), "{error}");
        endian.put_i32(&mut bytes, 4, group::MAGIC + 1);
        let error = Group::read(&bytes, endian, &sb, 3).unwrap_err();
        assert_eq!(error, GroupError::Magic { cg: 3, found: group::MAGIC + 1 });
        let error = Group::read(&bytes[..4095], endian, &sb, 3).unwrap_err();
        assert_eq!(error, GroupError::TooShort { cg: 3, have: 4095 });
    }
}

#[test]
fn an_inode_hash_catches_any_flipped_bit() {
    for endian in ORDERS {
        let mut node = Dinode::zeroed();
        node.mode = 0o100_644;
        node.set_short_link(b"target", endian);
        let mut bytes = vec![0; Dinode::SIZE];
        node.encode(&mut bytes, endian);
        Dinode::seal(&mut bytes, endian);
        Dinode::verify_hash(&bytes, endian).unwrap();
        assert_eq!(&node.short_link(endian)[..7], b"target\0");
        assert_eq!(&bytes[112..118], b"target");
        for bit in 0..Dinode::SIZE * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Dinode::verify_hash(&bytes, endian).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn geometry_agrees_with_itself() {
    let sb = sound();
    assert_eq!((sb.cg_frags(0), sb.cg_frags(3), sb.cg_frags(4)), (264, 232, 0));
    assert_eq!(sb.inode_block(2), (40, 512));
    assert_eq!(sb.inode_block(256 + 128), (264 + 48, 0));
    assert_eq!((sb.frag_group(263), sb.frag_group(264), sb.frag_in_group(265)), (0, 1, 1));
    let sizes = [0, 1, 4096, 4097, 32768, 32769].map(|size| sb.file_block_size(size, 0));
    assert_eq!(sizes, [0, 4096, 4096, 8192, 32768, 32768]);
    assert_eq!(sb.file_block_size(32769, 1), 4096);
    assert_eq!(sb.file_block_size(13 * 32768 - 1, 12), 32768);
    assert_eq!(sb.max_file_size(), (12 + 4096 + (1 << 24) + (1 << 36)) * 32768 - 1);
    assert!(sb.is_own(0, 1) && sb.is_own(55, 1) && sb.is_own(56, 1) && !sb.is_own(57, 1));
    assert!(!sb.is_own(264, 8) && sb.is_own(264 + 16, 9) && sb.is_own(264 + 55, 1));
    assert!(sb.is_copy_at(24 * 4096) && sb.is_copy_at((264 + 24) * 4096) && !sb.is_copy_at(65536));
}

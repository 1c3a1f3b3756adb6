//! The LFS codecs on images that NetBSD wrote, and on damaged ones.
//!
//! Catches a wrong offset, a wrong checksum rule, a field that is missing from a structure, and a
//! block that is taken for another's. Of damage, it catches whatever would be trusted or cause a
//! panic.

use ordo_format::lfs::summary::{SEALED, Seal, flag};
use ordo_format::lfs::superblock::{CKSUM_OFFSET, Dlfs32, Dlfs64};
use ordo_format::lfs::{
    FileInfo, IFILE_INO, LABEL_BYTES, LfsInode, PsegBlock, Segsum, Summary, SummaryError,
    Superblock, SuperblockError, Width, checksum, dir, inode,
};
use ordo_format::{Endian, Field};
use proptest::prelude::*;

const IMAGES: [&str; 5] = ["fresh64-8k", "tree64-8k", "cut64-8k", "full64-8k", "tree32-8k"];

fn image(name: &str) -> Option<Vec<u8>> {
    ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img"))
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::read(&image[LABEL_BYTES as usize..]).unwrap()
}

/// The partial segments of a segment in order, for as long as their serial numbers rise.
fn log(image: &[u8], sb: &Superblock, segment: u64) -> Vec<(i64, Summary)> {
    let mut at = sb.segment_data(segment);
    let mut out: Vec<(i64, Summary)> = Vec::new();
    while let Some(bytes) = image.get(sb.byte_of(at) as usize..) {
        let Ok(summary) = Summary::read(sb, bytes) else { break };
        if out.last().is_some_and(|(_, last)| summary.head.serial <= last.head.serial) {
            break;
        }
        let Ok((_, end)) = summary.layout(sb, at) else { break };
        summary.verify(sb, at, bytes).unwrap();
        out.push((at, summary));
        at = end;
    }
    out
}

/// Every partial segment that NetBSD wrote is whole, is encoded to its own bytes, and has inodes in
/// each of its inode blocks. Both formats occur, and more than one summary with several files.
#[test]
fn every_partial_segment_is_understood() {
    let (mut seen, mut inodes, mut entries) = (0, 0, 0);
    for name in IMAGES {
        let Some(image) = image(name) else { return };
        let sb = superblock(&image);
        assert_eq!(sb.width == Width::Lfs32, name.starts_with("tree32"));
        for segment in 0..sb.nseg.into() {
            for (at, mut summary) in log(&image, &sb, segment) {
                let (blocks, end) = summary.layout(&sb, at).unwrap();
                let range = sb.byte_of(at) as usize..sb.byte_of(end) as usize;
                let mut again = image[range.clone()].to_vec();
                summary.write(&sb, at, &mut again, false).unwrap();
                // NetBSD leaves old bytes in the gap and in paddings, which sumsum covers.
                let decoded = Summary::read(&sb, &again).unwrap();
                assert_eq!(decoded.files, summary.files);
                assert_eq!(
                    decoded.head.datasum,
                    Segsum::read(sb.width, &image[range.start..]).datasum
                );
                again.clone_from_slice(&image[range]);
                for block in blocks {
                    let bytes = &again[(block.addr() - at) as usize * sb.fsize as usize..];
                    match block {
                        PsegBlock::Inodes { .. } => inodes += check_inodes(&sb, bytes),
                        PsegBlock::File { ino: 2, lbn: 0.., bytes: len, .. } => {
                            entries += check_directory(&sb, &bytes[..len as usize]);
                        }
                        PsegBlock::File { .. } => {}
                    }
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 100 && inodes > 1000 && entries > 100, "{seen} {inodes} {entries}");
}

fn check_inodes(sb: &Superblock, block: &[u8]) -> usize {
    let block = &block[..sb.ibsize as usize];
    let used = block.chunks_exact(sb.width.inode_size()).filter(|raw| {
        let inode = LfsInode::read(sb.width, raw);
        let mut again = raw.to_vec();
        inode.write(sb.width, &mut again);
        assert_eq!(again, *raw);
        inode.inumber != 0
            && inode::find(sb.width, block, inode.inumber).is_some()
            && (inode.kind() != 0 || inode.nlink == 0)
    });
    used.count()
}

fn check_directory(sb: &Superblock, bytes: &[u8]) -> usize {
    let whole = &bytes[..bytes.len() - bytes.len() % dir::CHUNK];
    let used = whole.chunks_exact(dir::CHUNK).filter(|c| c.iter().any(|b| *b != 0));
    used.flat_map(|chunk| dir::entries(sb.width, chunk))
        .map(|e| e.unwrap())
        .filter(|e| e.ino != 0)
        .count()
}

/// All ten superblocks are encoded to the bytes that NetBSD wrote, and the values that follow from
/// their fields are right.
#[test]
fn superblocks_come_out_as_they_were() {
    for name in IMAGES {
        let Some(image) = image(name) else { return };
        let sb = superblock(&image);
        for place in sb.sboffs {
            let at = sb.byte_of(place) as usize;
            let bytes = &image[at..at + 512];
            let mut again = bytes.to_vec();
            Superblock::read(bytes).unwrap().write(&mut again);
            assert_eq!(again, bytes, "{name}, superblock at {place}");
        }
        assert_eq!((sb.segment_data(0), sb.segment_data(1), sb.segment_data(12)), (16, 512, 6152));
        assert_eq!(sb.right_maxfilesize(), sb.maxfilesize, "{name}");
        assert!(sb.is_log(sb.idaddr, 1) && !sb.is_log(15, 1) && !sb.is_log(6144, 8));
        assert!(!sb.is_log(0, 1) && !sb.is_log(-2, 1) && !sb.is_log(511, 2));
        let inodes = &image[sb.byte_of(sb.idaddr) as usize..][..sb.ibsize as usize];
        let at = inode::find(sb.width, inodes, IFILE_INO).unwrap();
        assert_eq!(LfsInode::read(sb.width, &inodes[at..]).inumber, IFILE_INO);
    }
}

/// A superblock such as `mkfs` would write, without an image from NetBSD.
fn made(width: Width) -> Superblock {
    let mut sb = Superblock { width, fields: Dlfs64::zeroed() };
    let (bsize, fsize) = (8192, 1024);
    (sb.magic, sb.version, sb.size, sb.dsize) = (width.magic(), 2, 65536, 54704);
    (sb.ssize, sb.bsize, sb.fsize, sb.frag, sb.fsbpseg) = (524_288, bsize, fsize, 8, 512);
    (sb.idaddr, sb.nextseg, sb.offset, sb.serial, sb.ident) = (44, 512, 61, 2, 77);
    (sb.inopb, sb.ifpb) =
        (1024 / width.inode_size() as u32, bsize / width.ifile_entry_size() as u32);
    (sb.sepb, sb.nindir, sb.nseg) = (bsize / 24, bsize / width.pointer_size() as u32, 127);
    (sb.cleansz, sb.segtabsz, sb.bshift, sb.ffshift, sb.fbshift) = (1, 1, 13, 10, 3);
    (sb.blktodb, sb.fsbtodb, sb.maxsymlinklen) = (4, 1, 60);
    (sb.minfreeseg, sb.sumsize, sb.ibsize) = (20, 1024, 1024);
    sb.sboffs = std::array::from_fn(|i| if i == 0 { 8 } else { i as i64 * 6144 });
    sb
}

fn bytes_of(sb: &Superblock) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    sb.write(&mut bytes);
    bytes
}

/// Each field from which sizes and places are computed is refused by its own name when it is
/// impossible, in both formats, and the message names the byte.
#[test]
fn each_impossible_field_has_its_error() {
    type Plant = (&'static str, fn(&mut Superblock));
    let plants: [Plant; 35] = [
        ("version", |sb| sb.version = 1),
        ("bsize", |sb| sb.bsize = 8193),
        ("bsize", |sb| sb.bsize = 1 << 31),
        ("fsize", |sb| sb.fsize = 0),
        ("fsize", |sb| (sb.bsize, sb.bshift, sb.fsize) = (65536, 16, 16384)),
        ("frag", |sb| sb.frag = 9),
        ("bshift", |sb| sb.bshift = 64),
        ("ffshift", |sb| sb.ffshift = 200),
        ("fbshift", |sb| sb.fbshift = u32::MAX),
        ("blktodb", |sb| sb.blktodb = 33),
        ("fsbtodb", |sb| sb.fsbtodb = 32),
        ("sumsize", |sb| sb.sumsize = 0),
        ("ibsize", |sb| sb.ibsize = 1000),
        ("ssize", |sb| sb.ssize = 8192),
        ("ssize", |sb| sb.ssize = u32::MAX),
        ("fsbpseg", |sb| sb.fsbpseg = 0),
        ("inopb", |sb| sb.inopb = 0),
        ("ifpb", |sb| sb.ifpb = 0),
        ("sepb", |sb| sb.sepb = 342),
        ("nindir", |sb| sb.nindir = 0),
        ("size", |sb| sb.size = 0),
        ("dsize", |sb| sb.dsize = 65537),
        ("s0addr", |sb| sb.s0addr = -1),
        ("nseg", |sb| sb.nseg = u32::MAX),
        ("nseg", |sb| sb.nseg = 0),
        ("cleansz", |sb| sb.cleansz = u32::MAX),
        ("segtabsz", |sb| sb.segtabsz = 0),
        ("minfreeseg", |sb| sb.minfreeseg = 127),
        ("maxsymlinklen", |sb| sb.maxsymlinklen = 121),
        ("sboffs", |sb| sb.sboffs[1] = 8),
        ("curseg", |sb| sb.curseg = 1),
        ("nextseg", |sb| sb.nextseg = 0),
        ("offset", |sb| sb.offset = 513),
        ("idaddr", |sb| sb.idaddr = 8),
        ("inodefmt", |sb| sb.inodefmt = 1),
    ];
    for width in [Width::Lfs64, Width::Lfs32] {
        let good = made(width);
        assert_eq!(Superblock::read(&bytes_of(&good)).unwrap().fields.idaddr, 44);
        for (field, plant) in plants {
            let mut sb = good.clone();
            plant(&mut sb);
            let error = Superblock::read(&bytes_of(&sb)).unwrap_err();
            assert_eq!(error.field(), Some(field), "{width:?}: {error}");
            let fields = if width == Width::Lfs64 { Dlfs64::FIELDS } else { Dlfs32::FIELDS };
            let byte = Field::find(fields, field).unwrap().offset;
            assert!(error.to_string().contains(&format!("byte {byte}: {field} is")), "{error}");
        }
    }
    let mut large = made(Width::Lfs64);
    large.size = i64::MAX as u64;
    assert_eq!(Superblock::read(&bytes_of(&large)).unwrap_err().field(), Some("size"));
}

/// Bytes that are no valid superblock get a name too: another byte order, a torn write, something
/// else.
#[test]
fn other_superblocks_are_refused_by_name() {
    let good = bytes_of(&made(Width::Lfs64));
    let mut torn = good.clone();
    torn[100] ^= 1;
    assert!(matches!(Superblock::read(&torn), Err(SuperblockError::Checksum { .. })));
    for width in [Width::Lfs32, Width::Lfs64] {
        let mut big = good.clone();
        Endian::Big.put_u32(&mut big, 0, width.magic());
        assert_eq!(Superblock::read(&big), Err(SuperblockError::ByteOrder { width }));
    }
    assert!(matches!(Superblock::read(&[0; 512]), Err(SuperblockError::Magic { found: 0 })));
    assert_eq!(Superblock::read(&good[..511]), Err(SuperblockError::TooShort { have: 511 }));
    let mut other = bytes_of(&made(Width::Lfs32));
    Endian::Little.put_u32(&mut other, 56, 3);
    let error = Superblock::read(&other).unwrap_err();
    assert_eq!((error.field(), error.byte()), (Some("ifile"), 56));
}

/// A sealed partial segment of two files and an inode block, at fragment 600.
fn pseg(sb: &Superblock) -> (Summary, Vec<u8>) {
    let file = |ino, lastlength, blocks| FileInfo { ino, version: 1, lastlength, blocks };
    let mut head = Segsum::read(sb.width, &[0; 64]);
    (head.ident, head.serial, head.next, head.ninos, head.flags) = (77, 3, 512, 2, flag::DIROP);
    let files = vec![file(5, 2048, vec![0, 1]), file(6, 8192, vec![3, -12])];
    let mut summary = Summary { head, files, inode_blocks: vec![600 + 1 + 8 + 2] };
    let mut bytes = vec![0; (1 + 8 + 2 + 1 + 16) * 1024];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i / 7) as u8;
    }
    summary.write(sb, 600, &mut bytes, true).unwrap();
    (summary, bytes)
}

/// A sealed partial segment is recognised as torn whichever byte is changed, while NetBSD's sums
/// cover four bytes of each block. Without the seal the same damage passes, so it is the seal that
/// detects it.
#[test]
fn a_seal_covers_every_byte() {
    for width in [Width::Lfs64, Width::Lfs32] {
        let sb = made(width);
        let (summary, bytes) = pseg(&sb);
        assert_eq!(Summary::read(&sb, &bytes).unwrap(), summary);
        summary.verify(&sb, 600, &bytes).unwrap();
        let mut damaged = bytes.clone();
        for at in (0..bytes.len()).step_by(97) {
            damaged[at] ^= 0x40;
            let whole = Summary::read(&sb, &damaged).and_then(|s| s.verify(&sb, 600, &damaged));
            assert!(whole.is_err(), "byte {at}");
            damaged[at] = bytes[at];
        }
        let mut bare = bytes.clone();
        let mut unsealed = summary.clone();
        unsealed.write(&sb, 600, &mut bare, false).unwrap();
        bare[5000] ^= 0x40;
        Summary::read(&sb, &bare).unwrap().verify(&sb, 600, &bare).unwrap();
        bare[1024] ^= 0x40;
        let error = unsealed.verify(&sb, 600, &bare).unwrap_err();
        assert!(matches!(error, SummaryError::DataSum { .. }), "{error}");
    }
}

/// Changes a summary and corrects its sum, so that only the change can be found.
fn planted(sb: &Superblock, change: impl FnOnce(&mut [u8])) -> SummaryError {
    let (_, mut bytes) = pseg(sb);
    change(&mut bytes);
    let sum = checksum(&bytes[4..1024]);
    Endian::Little.put_u32(&mut bytes, 0, sum);
    let read = Summary::read(sb, &bytes);
    read.and_then(|s| s.verify(sb, 600, &bytes)).unwrap_err()
}

/// Each contradiction within a summary has its own error.
#[test]
fn each_impossible_summary_has_its_error() {
    use SummaryError as E;
    let sb = made(Width::Lfs64);
    let le = Endian::Little;
    let seal = pseg(&sb).0.seal_at(sb.width);
    assert!(matches!(planted(&sb, |b| b[8] = 0), E::Magic { .. }));
    assert!(matches!(planted(&sb, |b| le.put_u16(b, 24, u16::MAX)), E::TooMany { .. }));
    assert!(matches!(planted(&sb, |b| le.put_u16(b, 26, u16::MAX)), E::TooMany { .. }));
    assert!(matches!(planted(&sb, |b| le.put_u32(b, 56, u32::MAX)), E::TooMany { .. }));
    assert!(matches!(planted(&sb, |b| le.put_u32(b, 56, 0)), E::EmptyFinfo { index: 0, .. }));
    assert!(matches!(planted(&sb, |b| le.put_u64(b, 64, 0)), E::EmptyFinfo { ino: 0, .. }));
    assert!(matches!(planted(&sb, |b| le.put_u32(b, 72, 100)), E::LastLength { bytes: 100, .. }));
    assert!(matches!(planted(&sb, |b| le.put_u32(b, 72, u32::MAX)), E::LastLength { .. }));
    assert!(matches!(planted(&sb, |b| le.put_i64(b, 80, -13)), E::BlockNumber { lbn: -13, .. }));
    assert!(matches!(planted(&sb, |b| le.put_i64(b, 80, i64::MIN)), E::BlockNumber { .. }));
    assert!(matches!(
        planted(&sb, |b| le.put_i64(b, 1016, 900)),
        E::InodeBlock { stored: 900, .. }
    ));
    assert!(matches!(planted(&sb, |b| b[seal] ^= 1), E::NoSeal { .. }));
    assert!(matches!(planted(&sb, |b| le.put_u32(b, seal + 8, 9)), E::NoSeal { .. }));
    assert!(matches!(planted(&sb, |b| b[seal + 12] ^= 1), E::SealCrc { .. }));
    assert!(matches!(planted(&sb, |b| b[48] ^= 1), E::SealCrc { .. }));
    let (summary, bytes) = pseg(&sb);
    assert!(matches!(summary.layout(&sb, 1020), Err(E::InodeBlock { .. } | E::SegmentEnd { .. })));
    assert!(matches!(Summary::read(&sb, &bytes[..1000]), Err(E::TooShort { .. })));
    assert!(matches!(summary.verify(&sb, 600, &bytes[..5000]), Err(E::TooShort { .. })));
    assert_eq!((Seal::SIZE, SEALED), (16, u16::from_le_bytes(*b"SO")));
}

proptest! {
    /// Arbitrary bytes in place of a summary or superblock give an error or a structure, never a
    /// panic, and an accepted structure stays inside its segment.
    #[test]
    fn any_bytes_are_judged(changes in prop::collection::vec((0usize..1024, any::<u8>()), 1..12), start in 512i64..1024) {
        let sb = made(Width::Lfs64);
        let (_, mut bytes) = pseg(&sb);
        for (at, byte) in &changes {
            bytes[*at] = *byte;
        }
        let sum = checksum(&bytes[4..1024]);
        Endian::Little.put_u32(&mut bytes, 0, sum);
        if let Ok(summary) = Summary::read(&sb, &bytes)
            && let Ok((blocks, end)) = summary.layout(&sb, start)
        {
            prop_assert!(end <= 1024);
            prop_assert!(blocks.iter().all(|b| b.addr() > start && b.addr() < end));
        }
        let mut sb = bytes_of(&made(Width::Lfs32));
        for (at, byte) in &changes {
            sb[*at % CKSUM_OFFSET] = *byte;
        }
        let sum = checksum(&sb[..CKSUM_OFFSET]);
        Endian::Little.put_u32(&mut sb, CKSUM_OFFSET, sum);
        if let Ok(sb) = Superblock::read(&sb) {
            let last = u64::from(sb.nseg) - 1;
            prop_assert!(sb.segment_start(last + 1) as u64 <= sb.size);
            prop_assert_eq!(sb.segment_of(sb.segment_start(last)), Some(last));
        }
    }

    /// Arbitrary bytes as a directory: entries never leave their chunk, and the walk ends.
    #[test]
    fn any_directory_is_judged(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        for width in [Width::Lfs32, Width::Lfs64] {
            for entry in dir::entries(width, &bytes).flatten() {
                prop_assert!(entry.at % dir::CHUNK + entry.reclen <= dir::CHUNK);
            }
        }
    }
}

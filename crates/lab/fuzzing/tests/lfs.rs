//! Damaged images of an LFS. Fault model: an image that NetBSD wrote, in which arbitrary metadata
//! bytes are changed: superblocks (with a corrected checksum), IFILE, inode blocks, directories,
//! indirect blocks, and summaries behind the checkpoint. The assertions are those of
//! `ordo_fuzzing::lfs`. Catches a panic, a loop, a request outside the device, an incomplete
//! repair, and a check that accepts an image that cannot be read.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_format::lfs::{
    IFILE_INO, IfileEntry, LfsInode, SUPERBLOCK_SIZE, Summary, Superblock, checksum, inode,
};

/// The places of metadata: first byte and length.
fn metadata(image: &[u8], sb: &Superblock) -> Vec<(usize, usize)> {
    let byte = |addr: i64| sb.byte_of(addr) as usize;
    let block = |addr: i64| &image[byte(addr)..byte(addr) + sb.bsize as usize];
    let load = |ino: u64, addr: i64| {
        let inodes = &block(addr)[..sb.ibsize as usize];
        LfsInode::read(sb.width, &inodes[inode::find(sb.width, inodes, ino).unwrap()..])
    };
    let ifile = load(IFILE_INO, sb.idaddr);
    let mut out = vec![(byte(sb.idaddr), sb.ibsize as usize)];
    out.extend(ifile.db.iter().filter(|a| **a > 0).map(|a| (byte(*a), sb.bsize as usize)));
    for ino in 2..sb.inodes_in(ifile.size) {
        let at = sb.entry_at(ino) as usize;
        let raw = &block(ifile.db[at / sb.bsize as usize])[at % sb.bsize as usize..];
        let addr = IfileEntry::read(sb.width, raw).daddr;
        if addr == 0 {
            continue;
        }
        let found = load(ino, addr);
        out.push((byte(addr), sb.ibsize as usize));
        out.extend(found.ib.iter().filter(|a| **a > 0).map(|a| (byte(*a), 64)));
        if found.kind() == 0o040_000 {
            let size = found.size.min(sb.bsize.into()) as usize;
            out.push((byte(found.db[0]), size));
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// A multiplicative generator; any spread would do.
struct Spread(u64);

impl Spread {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        ((self.0 >> 33) as usize) % below
    }
}

/// Changes a few bytes of metadata.
fn damage(disk: &RamDisk, places: &[(usize, usize)], spread: &mut Spread) {
    for _ in 0..1 + spread.next(4) {
        let (start, len) = places[spread.next(places.len())];
        // Fields lie at multiples of four; changing a whole field more often gives a plausible
        // value.
        let at = start + spread.next(len) / 4 * 4;
        let value: [u8; 4] = match spread.next(4) {
            0 => [0; 4],
            1 => [0xff; 4],
            2 => (spread.next(1 << 17) as u32).to_le_bytes(),
            _ => (spread.next(1 << 31) as u32).to_le_bytes(),
        };
        disk.store(at as u64, &value[..1 + spread.next(4)]);
    }
}

/// Changes the superblock, and corrects its checksum.
fn damage_superblock(disk: &RamDisk, spread: &mut Spread) {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    disk.load(8192, &mut bytes);
    let at = spread.next(116) * 4;
    let value = match spread.next(3) {
        0 => 0,
        1 => u32::MAX,
        _ => spread.next(1 << 20) as u32,
    };
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let sum = checksum(&bytes[..508]);
    bytes[508..].copy_from_slice(&sum.to_le_bytes());
    disk.store(8192, &bytes);
}

fn run(name: &str, also: impl Fn(&[u8], &Superblock) -> Vec<(usize, usize)>) {
    let Some(image) = ordo_testkit::real_input(&format!("images/netbsd-lfs/{name}.img")) else {
        return;
    };
    let sb = Superblock::read(&image[8192..]).unwrap();
    let mut places = metadata(&image, &sb);
    places.extend(also(&image, &sb));
    let base = RamDisk::from_image(&image);
    let mut spread = Spread(0x9e37_79b9_7f4a_7c15);
    // `ORDO_ROUNDS` sets the number of rounds.
    let rounds = std::env::var("ORDO_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(60u32) {
        let disk = Rc::new(base.snapshot());
        match round % 5 {
            0 => damage_superblock(&disk, &mut spread),
            _ => damage(&disk, &places, &mut spread),
        }
        println!("{name}, round {round}");
        ordo_fuzzing::lfs(&disk);
    }
}

/// The fuzz target's work on a spread of inputs: an empty file system from mkfs, with changes.
/// Needs no image.
#[test]
fn a_spread_of_changes_passes() {
    let mut spread = Spread(0x2545_f491_4f6c_dd1d);
    for round in 0..400 {
        let mut input = vec![(round % 2 * 0x80) as u8];
        for _ in 0..1 + spread.next(5) {
            input.extend([spread.next(256) as u8, spread.next(40) as u8, 0]);
            let len = 1 + spread.next(8);
            let kind = spread.next(3);
            input.push(len as u8);
            input.extend((0..len).map(|_| [0, 0xff, spread.next(256) as u8][kind]));
        }
        ordo_fuzzing::lfs(&ordo_fuzzing::lfs_image(&input));
    }
}

#[test]
fn damaged_images_are_judged_and_repaired() {
    run("tree64-8k", |_, _| Vec::new());
    run("tree32-8k", |_, _| Vec::new());
}

/// The same on an image with a log behind its checkpoint, so that summaries and their blocks are
/// damaged too.
#[test]
fn damaged_logs_are_judged_and_repaired() {
    run("cut64-8k", |image, sb| {
        let (mut at, mut out) = (sb.offset, Vec::new());
        while let Ok(summary) = Summary::read(sb, &image[sb.byte_of(at) as usize..]) {
            let Ok((_, end)) = summary.layout(sb, at) else { break };
            out.push((sb.byte_of(at) as usize, sb.sumsize as usize));
            out.push((sb.byte_of(at) as usize, (end - at) as usize * sb.fsize as usize));
            at = end;
        }
        out
    });
}

//! Random damage to the metadata of an LFS that is in use: superblocks, IFILE, inodes, indirect
//! blocks, directories.

use ordo_block::ram::RamDisk;
use ordo_format::lfs::{IFILE_INO, SUPERBLOCK_SIZE, checksum, superblock};
use ordo_format::ufs2::inode::IFDIR;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::lfs_damage::Surgeon;

/// A kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Superblock,
    Ifile,
    Inode,
    Indirect,
    Directory,
}

impl Place {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Place::Superblock => "superblock",
            Place::Ifile => "IFILE",
            Place::Inode => "inode",
            Place::Indirect => "indirect block",
            Place::Directory => "directory",
        }
    }
}

/// Every kind of metadata.
pub const PLACES: [Place; 5] =
    [Place::Superblock, Place::Ifile, Place::Inode, Place::Indirect, Place::Directory];

/// A range of bytes of the disk: its first byte and its length.
type Range = (u64, u64);

/// The metadata of an image.
pub struct Targets {
    image: RamDisk,
    ranges: Vec<(Place, Vec<Range>)>,
}

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
}

impl Targets {
    /// The metadata of an image.
    pub fn new(image: &RamDisk) -> Targets {
        let surgeon = Surgeon::new(image);
        let sb = &surgeon.sb;
        let bsize = u64::from(sb.bsize);
        let (mut inodes, mut indirect, mut directories) = (Vec::new(), Vec::new(), Vec::new());
        for ino in IFILE_INO + 1..sb.inodes_in(surgeon.inode(IFILE_INO).size) {
            if surgeon.entry(ino).daddr == 0 {
                continue;
            }
            inodes.push((surgeon.inode_byte(ino), sb.width.inode_size() as u64));
            let inode = surgeon.inode(ino);
            let is_pointer = |addr: &i64| *addr > 0 && *addr < sb.size as i64;
            let is_short = inode.kind() != IFDIR && inode.blocks == 0;
            let blocks = inode.ib.into_iter().filter(|addr| !is_short && is_pointer(addr));
            indirect.extend(blocks.map(|addr| (sb.byte_of(addr), 256)));
            if inode.kind() == IFDIR {
                let blocks = inode.db.into_iter().enumerate().filter(|(_, addr)| is_pointer(addr));
                let len = |lbn: u64| (inode.size - lbn * bsize).min(bsize);
                directories.extend(blocks.map(|(lbn, a)| (sb.byte_of(a), len(lbn as u64))));
            }
        }
        let ifile = surgeon.inode(IFILE_INO).db.into_iter().filter(|addr| *addr > 0);
        let ifile = ifile.map(|addr| (sb.byte_of(addr), bsize)).collect();
        let superblock = vec![(0, SUPERBLOCK_SIZE as u64 - 4)];
        let ranges = [superblock, ifile, inodes, indirect, directories];
        Targets { image: image.snapshot(), ranges: PLACES.into_iter().zip(ranges).collect() }
    }

    /// The image with one or two damaged places of this kind.
    pub fn damaged(&self, place: Place, seed: u64) -> RamDisk {
        let disk = self.image.snapshot();
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed << 8 | place as u64));
        let (_, ranges) = self.ranges.iter().find(|(p, _)| *p == place).expect("all are there");
        for _ in 0..1 + dice.below(2) {
            let (from, len) = ranges[dice.below(ranges.len() as u64) as usize];
            // Most of a block of the IFILE or of a directory is alike, and so its start is taken
            // more often.
            let len = if dice.below(3) == 0 { len } else { len.min(256) };
            let at = from + dice.below(len);
            if place == Place::Superblock {
                self.damage_superblock(&disk, at as usize, &mut dice);
            } else {
                let mut bytes = [0; 8];
                disk.load(at / 8 * 8, &mut bytes);
                self.damage(&mut bytes, (at % 8) as usize, &mut dice);
                disk.store(at / 8 * 8, &bytes);
            }
        }
        disk
    }

    /// Changes eight bytes: one bit, one byte, or all of them.
    fn damage(&self, bytes: &mut [u8; 8], at: usize, dice: &mut Dice) {
        match dice.below(8) {
            0..4 => bytes[at] ^= 1 << dice.below(8),
            4 => bytes[at] = dice.below(16) as u8,
            5 => bytes[at] = dice.below(256) as u8,
            6 => bytes[at / 4 * 4..][..4].fill(0),
            _ => {
                // A plausible address, size or number.
                let most = self.image.to_vec().len() as u64 >> dice.below(30);
                *bytes = dice.below(most.max(2)).to_le_bytes();
            }
        }
    }

    /// Changes both superblocks alike, with a right checksum.
    fn damage_superblock(&self, disk: &RamDisk, at: usize, dice: &mut Dice) {
        let mut raw = vec![0; SUPERBLOCK_SIZE];
        disk.load(8192, &mut raw);
        let places = Surgeon::new(&self.image).sb;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[at / 8 * 8..][..8]);
        self.damage(&mut bytes, at % 8, dice);
        raw[at / 8 * 8..][..8].copy_from_slice(&bytes);
        let sum = checksum(&raw[..superblock::CKSUM_OFFSET]);
        raw[superblock::CKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        for place in places.sboffs.into_iter().take(2) {
            disk.store(places.byte_of(place), &raw);
        }
    }
}

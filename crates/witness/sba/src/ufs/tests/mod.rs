//! The classifier on images made by hand, on real file systems, and on nonsense.

mod by_hand;
mod decoder;
mod hostile;
mod real;

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_format::Endian;
use ordo_format::ufs2::{Dinode, Superblock};
use ordo_runtime::Executor;

use super::Classifier;

/// A small file system that a classifier watches.
struct Watched {
    executor: Executor,
    ram: Rc<RamDisk>,
    tap: Rc<Tap<Rc<RamDisk>>>,
    classifier: Rc<Classifier>,
    sb: Superblock,
    endian: Endian,
}

impl Watched {
    fn new(bytes: u64, options: &MkfsOptions) -> Watched {
        let executor = Executor::simulated(1);
        let ram = Rc::new(RamDisk::new(bytes));
        let tap = Rc::new(Tap::new(&executor.runtime(), ram.clone()));
        let classifier = Classifier::new();
        let sb = executor
            .block_on(async {
                let report = mkfs(&ram.clone().erase(), options, 0).await.unwrap();
                assert!(classifier.prime(&ram.clone().erase()).await.unwrap());
                report.superblock
            })
            .unwrap();
        tap.attach(classifier.clone());
        Watched { executor, ram, tap, classifier, sb, endian: options.endian }
    }

    /// The papers' sizes: blocks of 8 KB, fragments of 1 KB.
    fn small(bytes: u64) -> Watched {
        let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
        Watched::new(bytes, &options)
    }

    fn write_at(&self, offset: u64, data: &[u8]) {
        let write = self.tap.write(offset, IoBuf::from_slice(data), WriteFlags::SYNC);
        self.executor.block_on(write).unwrap().unwrap();
    }

    /// Writes a fragment address's contents.
    fn put(&self, addr: u64, data: &[u8]) {
        self.write_at(self.sb.byte_of(addr), data);
    }

    /// Changes inodes of one block and writes that block.
    fn put_inodes(&self, inodes: &[(u64, Dinode)]) {
        let (addr, _) = self.sb.inode_block(inodes[0].0);
        let mut block = vec![0; self.sb.block_size()];
        self.ram.load(self.sb.byte_of(addr), &mut block);
        for (ino, inode) in inodes {
            let (same, at) = self.sb.inode_block(*ino);
            assert_eq!(same, addr, "one block at a time");
            inode.encode(&mut block[at..], self.endian);
        }
        self.put(addr, &block);
    }

    /// The address of a data block of a group, counted from its first.
    fn data(&self, cg: u32, block: u64) -> u64 {
        let first = self.sb.cg_data(cg).next_multiple_of(self.sb.frag as u64);
        let after_summary = if cg == 0 { self.sb.summary_frags() } else { 0 };
        first + after_summary.next_multiple_of(self.sb.frag as u64) + self.sb.blocks_to_frags(block)
    }
}

/// An inode of a type and size.
fn inode(mode: u16, size: u64, generation: u32) -> Dinode {
    Dinode { mode, size, generation, nlink: 1, ..Dinode::zeroed() }
}

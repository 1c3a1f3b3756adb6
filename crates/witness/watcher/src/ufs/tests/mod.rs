//! The decoder on images made by hand, on real file systems, and on nonsense.

mod by_hand;
mod decoder;
mod hostile;
mod real;

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_format::Endian;
use ordo_format::ufs2::{Dinode, Superblock};
use ordo_runtime::Executor;

use super::{Ufs, prime};
use crate::decoder::{Contents, Decoder, DecoderState};
use crate::kind::ClassifiedRange;
use crate::watch::Watch;

/// A decoder that the test looks into while it is watched with.
struct Shared(Rc<RefCell<Ufs>>);

impl Decoder for Shared {
    fn system(&self) -> &'static str {
        self.0.borrow().system()
    }
    fn block_shift(&self) -> u32 {
        self.0.borrow().block_shift()
    }
    fn claim_shift(&self) -> u32 {
        self.0.borrow().claim_shift()
    }
    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.0.borrow_mut().write(offset, data, out, state);
    }
    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.0.borrow_mut().read(offset, len, data, out, state);
    }
    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.0.borrow().contents(ino)
    }
}

/// A small UFS2 on a RAM disk whose requests are watched.
struct WatchedUfs {
    executor: Executor,
    ram: Rc<RamDisk>,
    tap: Rc<Tap<Rc<RamDisk>>>,
    watch: Rc<Watch>,
    ufs: Rc<RefCell<Ufs>>,
    sb: Superblock,
    endian: Endian,
}

impl WatchedUfs {
    fn new(bytes: u64, options: &MkfsOptions) -> WatchedUfs {
        let executor = Executor::simulated(1);
        let ram = Rc::new(RamDisk::new(bytes));
        let tap = Rc::new(Tap::new(&executor.runtime(), ram.clone()));
        let device = ram.clone().erase();
        let made = executor.block_on(mkfs(&device, options, 0)).unwrap().unwrap();
        let ufs = prime::read_all(&*ram, &mut DecoderState::default()).expect("just made");
        let ufs = Rc::new(RefCell::new(ufs));
        let watch = Watch::with(Box::new(Shared(ufs.clone())));
        tap.attach(watch.clone());
        WatchedUfs { executor, ram, tap, watch, ufs, sb: made.superblock, endian: options.endian }
    }

    /// The papers' sizes: blocks of 8 KB, fragments of 1 KB.
    fn small(bytes: u64) -> WatchedUfs {
        let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
        WatchedUfs::new(bytes, &options)
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

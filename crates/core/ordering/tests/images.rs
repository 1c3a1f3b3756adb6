//! Images of an inode under soft updates. Whatever is rolled back, an image shows a state that the
//! inode had.
//!
//! Fault model: none. The inode changes at random; its blocks are written and made durable in
//! random order. Fields have few values, so a byte often returns to an earlier one. Would catch
//! bytes that are lost when two changes are merged into one: an inode that is not in use, but has a
//! pointer.

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::{BufKey, BufRef, BufferClass, CacheConfig, WriteImage};
use ordo_ordering::{Change, OpKind, OrderedCache, OrderingOp, PointerTo, SoftUpdates, What};
use ordo_runtime::{Executor, Runtime};
use proptest::prelude::*;

/// The inode's place in its block.
const INODE: std::ops::Range<usize> = 256..512;

/// The fields of an inode within its 256 bytes: type, link count, size, generation, and a pointer.
const MODE: usize = 0;
const LINKS: usize = 2;
const SIZE: usize = 16;
const GENERATION: usize = 80;
const POINTER: usize = 112;

const INO: u64 = 7;

/// The values of bytes. They are few, so that old values return.
const BYTES: [u8; 3] = [0, 0x3e, 0x5d];

#[derive(Clone, Copy, Debug)]
enum Step {
    Links,
    Size,
    Attributes,
    /// The pointer changes to another block.
    Pointer(u8, u8),
    /// The operation ends, and another one begins.
    NextOperation,
    /// The block of inodes is written; the flag says whether the write is durable.
    WriteInode(bool),
    /// A block of the file is written durably.
    WriteData,
}

fn step() -> impl Strategy<Value = Step> {
    let byte = || (0..BYTES.len()).prop_map(|n| BYTES[n]);
    prop_oneof![
        Just(Step::Links),
        Just(Step::Size),
        Just(Step::Attributes),
        (byte(), byte()).prop_map(|(low, high)| Step::Pointer(low, high)),
        Just(Step::NextOperation),
        any::<bool>().prop_map(Step::WriteInode),
        Just(Step::WriteData),
    ]
}

struct Bench {
    cache: OrderedCache,
    inode: BufRef,
    data: BufRef,
    /// The states that the inode had without its link count, and the link counts that it had.
    states: Vec<Vec<u8>>,
    links: Vec<u8>,
}

/// The inode without its link count.
fn body(inode: &[u8]) -> Vec<u8> {
    let mut body = inode.to_vec();
    body[LINKS] = 0;
    body
}

impl Bench {
    async fn new(rt: &Runtime) -> Bench {
        let disk = RamDisk::new(1 << 20).erase();
        let cache = OrderedCache::new(rt, disk, SoftUpdates::default(), CacheConfig::default());
        let inode = cache.get_new(BufKey::device(64), Some(64 * 512), 1024, BufferClass::Metadata);
        let data = cache.get_new(BufKey::file(INO, 0), Some(128 * 512), 1024, BufferClass::Data);
        let (inode, data) = (inode.await, data.await);
        inode.write(|bytes| bytes[INODE][GENERATION] = 9);
        let first = inode.read()[INODE].to_vec();
        cache.mark_dirty(&data);
        Bench { cache, inode, data, states: vec![first], links: vec![0] }
    }

    /// Changes the inode.
    fn change(&mut self, op: &mut dyn OrderingOp, what: What<'_>, edit: impl FnOnce(&mut [u8])) {
        let old = self.inode.read()[INODE].to_vec();
        self.inode.write(|bytes| edit(&mut bytes[INODE]));
        let change = Change { buf: &self.inode, ranges: &[INODE], old: &old, what };
        op.record(&change);
        self.cache.mark_dirty(&self.inode);
        self.states.push(body(&self.inode.read()[INODE]));
        self.links.push(self.inode.read()[INODE][LINKS]);
    }

    /// Makes an image of a block, and marks the write as durable if so asked.
    fn write(&self, block: &BufRef, durable: bool) -> Vec<u8> {
        let mut image = WriteImage::of(block);
        let gate = self.cache.gate();
        gate.before_write(block, &mut image, &mut Vec::new());
        if durable {
            gate.write_done(block, block.version(), Ok(()));
        }
        image.to_vec()
    }

    async fn run(&mut self, steps: &[Step]) {
        let mut op = self.cache.ordering().begin(&self.cache, OpKind::Make).await.unwrap();
        let data = self.data.clone();
        self.change(&mut *op, What::InitInode { ino: INO }, |inode| inode[MODE] = 0x41);
        for (n, step) in steps.iter().enumerate() {
            let links = self.inode.read()[INODE][LINKS];
            let new = links + 1;
            match *step {
                Step::Links => {
                    let what = What::SetLinkCount { ino: INO, old: links.into(), new: new.into() };
                    self.change(&mut *op, what, |inode| inode[LINKS] = new);
                }
                Step::Size => {
                    let (ino, old, new) = (INO, 0, n as u64 + 1);
                    let what = What::SetSize { ino, old, new, directory: false };
                    self.change(&mut *op, what, |inode| inode[SIZE] = BYTES[n % BYTES.len()]);
                }
                Step::Attributes => {
                    self.change(&mut *op, What::SetAttributes { ino: INO }, |inode| {
                        inode[8] ^= 0x3e
                    });
                }
                Step::Pointer(low, high) => {
                    let now = self.inode.read()[INODE][POINTER..POINTER + 2].to_vec();
                    let old = u64::from(u16::from_le_bytes([now[0], now[1]]));
                    let new = u64::from(u16::from_le_bytes([low, high]));
                    let what = What::SetPointer {
                        ino: INO,
                        block: 0,
                        old: (old, u32::from(old > 0)),
                        new: (new, 1),
                        to: PointerTo::Data,
                        init: &data,
                    };
                    if new != 0 {
                        let edit = |inode: &mut [u8]| {
                            inode[POINTER..POINTER + 2].copy_from_slice(&[low, high]);
                        };
                        self.change(&mut *op, what, edit);
                    }
                }
                Step::NextOperation => {
                    op.end(&self.cache).await.unwrap();
                    op = self.cache.ordering().begin(&self.cache, OpKind::Write).await.unwrap();
                }
                Step::WriteInode(durable) => {
                    let image = self.write(&self.inode, durable);
                    let shown = &image[INODE];
                    let is_state = self.states.contains(&body(shown));
                    assert!(is_state && self.links.contains(&shown[LINKS]), "{shown:?}");
                }
                Step::WriteData => {
                    self.write(&data, true);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_image_shows_a_state_that_the_inode_had(steps in prop::collection::vec(step(), 1..24)) {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        executor.block_on(async { Bench::new(&rt).await.run(&steps).await }).unwrap();
    }
}

//! DualFS: its metadata log is an LFS with tables of groups added; its data device has contents of
//! regular files and an identity, so every block there is known by its place.

use std::collections::BTreeMap;

use ordo_format::dualfs::{DataShape, IDENTITY_SIZE, Identity, ROLE_DATA};
use ordo_format::lfs::{IFILE_INO, LfsInode, NDADDR, Superblock, lbn};

use crate::decoder::{
    Claim, Contents, Decoder, DecoderState, DiskImage, FilesOfBlocks, Owner, PairMember, cover,
};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

/// The identity of one device of a pair, if the image has one.
pub(super) fn identity(image: &dyn DiskImage) -> Option<Identity> {
    let mut bytes = [0; IDENTITY_SIZE];
    image.read_at(0, &mut bytes).ok()?;
    Identity::read(&bytes).ok()
}

/// The class of a block of the IFILE's group tables, counted from the first of them.
pub(super) fn table_class(identity: &Identity, block: u64) -> Class {
    match block < identity.shape().descriptor_blocks() {
        true => Class::GroupDescriptors,
        false => Class::BlockBitmap,
    }
}

/// The part of a data device at byte `at`, and the number of bytes from there on that are of the
/// same kind.
pub(super) fn data_part(identity: &Identity, at: u64, end: u64) -> (Class, BlockMeaning, u64) {
    let shape = identity.shape();
    let bsize = u64::from(shape.bsize);
    let last = shape.blocks * bsize;
    match () {
        () if at < bsize => {
            (Class::Superblock, BlockMeaning::Superblock, (bsize - at).min(end - at))
        }
        () if at < last => {
            (Class::FileData, BlockMeaning::Only("contents of files"), last.min(end) - at)
        }
        () => copy_part(identity, at, end),
    }
}

/// The part of a data device at byte `at`, behind its blocks.
fn copy_part(identity: &Identity, at: u64, end: u64) -> (Class, BlockMeaning, u64) {
    let Some(area) = identity.copy_area().filter(|_| at < identity.data_bytes()) else {
        return (Class::Unknown, BlockMeaning::Unknown(Reason::BeyondFileSystem), end - at);
    };
    let (index, slots) = (area.index_at(0), area.slot_at(0));
    let (what, to) = match () {
        () if at < index => ("head of the copy of the metadata", index),
        () if at < slots => ("index of the copy of the metadata", slots),
        () => ("copy of the metadata", identity.data_bytes()),
    };
    (Class::Checkpoint, BlockMeaning::Only(what), to.min(end) - at)
}

/// The most blocks of a data device whose files are remembered.
const BLOCKS_MAX: usize = 1 << 22;

/// Claims that are kept for a data device on another disk, at most.
const CLAIMS_MAX: usize = 1 << 20;

/// The files of the blocks of a data device: by pointers in inodes and in indirect blocks, as they
/// are written to the metadata device. A block is given to another file only when what its file no
/// longer has was written.
///
/// The data device is on the same disk, or on another one whose decoder shares this.
#[derive(Default)]
pub(crate) struct DataBlocks {
    /// The device's blocks; `None` if no decoder needs their files.
    shape: Option<DataShape>,
    /// The first byte of the device on the disk of the metadata device, if it is there.
    first: u64,
    /// Blocks whose owner was shown, and which no decoder has told of yet.
    claims: Vec<Claim>,
    /// For each block, the file and its logical block.
    owners: BTreeMap<u64, (u64, u64)>,
    /// For each file and logical block, the block.
    places: BTreeMap<(u64, u64), u64>,
}

impl DataBlocks {
    /// None yet, of the data device that an identity tells of.
    pub(super) fn new(identity: Option<&Identity>) -> DataBlocks {
        let here = identity.filter(|id| id.data_at > 0);
        let (shape, first) = (here.map(Identity::shape), here.map_or(0, |id| id.data_at));
        DataBlocks { shape, first, ..DataBlocks::default() }
    }

    /// Whether the files of blocks are wanted: the data device is on this disk, or its decoder asks
    /// for them.
    pub(super) fn is_followed(&self) -> bool {
        self.shape.is_some()
    }

    /// Whether the data device is on this disk.
    pub(super) fn is_here(&self) -> bool {
        self.first > 0
    }

    /// Follows the blocks of a data device on another disk from now on.
    pub(super) fn follow(&mut self, shape: DataShape) {
        self.shape = Some(shape);
    }

    /// Takes the claims since the last call.
    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// A pointer of a file is written.
    fn point(&mut self, key: (u64, u64), addr: i64) {
        let Some(shape) = self.shape else { return };
        let block = Some(addr).filter(|addr| shape.holds(*addr)).map(i64::cast_unsigned);
        if self.places.get(&key) == block.as_ref() {
            return;
        }
        self.forget(key);
        let Some(block) = block else { return };
        if self.owners.len() >= BLOCKS_MAX {
            self.owners.clear();
            self.places.clear();
        }
        if let Some(before) = self.owners.insert(block, key) {
            self.places.remove(&before);
        }
        self.places.insert(key, block);
        let owner = Some(Owner { ino: key.0, first: Some(key.1), packed: false });
        let at = self.first / u64::from(shape.bsize) + block;
        let class = Class::FileData;
        if self.claims.len() >= CLAIMS_MAX {
            self.claims.clear();
        }
        self.claims.push(Claim { block: at, blocks: 1, class, owner, is_old: false });
    }

    fn forget(&mut self, key: (u64, u64)) {
        if let Some(block) = self.places.remove(&key)
            && self.owners.get(&block) == Some(&key)
        {
            self.owners.remove(&block);
        }
    }

    /// Notes an inode that is written. Its file has at most `end` blocks.
    pub(super) fn inode(&mut self, inode: &LfsInode, end: i64) {
        if self.shape.is_none() || inode.inumber == IFILE_INO {
            return;
        }
        let (ino, is_regular) = (inode.inumber, inode.mode & 0o170_000 == 0o100_000);
        let end = if is_regular { end.max(0).cast_unsigned() } else { 0 };
        let gone: Vec<_> =
            self.places.range((ino, end)..=(ino, u64::MAX)).map(|(k, _)| *k).collect();
        gone.into_iter().for_each(|key| self.forget(key));
        if is_regular {
            for (lbn, addr) in (0..end).zip(&inode.db) {
                self.point((ino, lbn), *addr);
            }
        }
    }

    /// An indirect block is written. Only those of the lowest level lead to contents.
    pub(super) fn indirect(&mut self, sb: &Superblock, (ino, number): (u64, i64), bytes: &[u8]) {
        let path = lbn::path(number, sb.nindir.into()).filter(|_| self.is_followed());
        let Some(path) = path.filter(|_| ino != IFILE_INO) else { return };
        if path.slot != NDADDR + path.depth {
            return;
        }
        // Its number is that of its first block, negative.
        let first = number.unsigned_abs();
        let size = sb.width.pointer_size();
        for (lbn, at) in (first..).zip((0..bytes.len() / size).map(|n| n * size)) {
            self.point((ino, lbn), sb.width.pointer(bytes, at));
        }
    }

    /// The contents of files from byte `at` of the device on, as far as they are of one file in
    /// order, or of none; `None` where there are no contents.
    pub(super) fn part(&self, at: u64, end: u64) -> Option<(Class, BlockMeaning, u64)> {
        let shape = self.shape?;
        let bsize = u64::from(shape.bsize);
        let (first, last) = (at / bsize, shape.blocks);
        if first == 0 || first >= last {
            return None;
        }
        let owner = self.owners.get(&first).copied();
        let follows = |block: u64| match (owner, self.owners.get(&block)) {
            (None, None) => true,
            (Some((ino, lbn)), Some(next)) => *next == (ino, lbn + (block - first)),
            _ => false,
        };
        let limit = end.div_ceil(bsize).min(last);
        let stop = (first + 1..limit).find(|block| !follows(*block)).unwrap_or(limit);
        let count = (stop - first).max(1);
        let what = match owner {
            Some((ino, first)) => BlockMeaning::Blocks { ino, first, count },
            None => BlockMeaning::Unclaimed,
        };
        Some((Class::FileData, what, (stop * bsize).min(end) - at))
    }

    /// A file's contents.
    pub(super) fn contents(&self, ino: u64) -> impl Iterator<Item = Contents> + '_ {
        let bsize = u64::from(self.shape.map_or(0, |shape| shape.bsize));
        self.places.range((ino, 0)..=(ino, u64::MAX)).map(move |((_, lbn), block)| Contents {
            at: lbn.saturating_mul(bsize),
            offset: self.first + block * bsize,
            len: bsize,
        })
    }
}

/// The decoder of a data device that has a disk of its own.
pub(super) struct DataDisk {
    identity: Identity,
    /// The files of its blocks, if the metadata device is watched too.
    blocks: Option<FilesOfBlocks>,
}

impl DataDisk {
    /// The decoder of an image, if it is a data device.
    pub fn probe(identity: &Identity) -> Option<Box<dyn Decoder>> {
        let is_data = identity.role == ROLE_DATA;
        let identity = identity.clone();
        is_data.then(|| Box::new(DataDisk { identity, blocks: None }) as Box<dyn Decoder>)
    }

    fn cover(&self, offset: u64, len: u64, out: &mut Vec<ClassifiedRange>) {
        let bytes = self.identity.data_bytes();
        cover(out, offset, len, bytes, |at, end| {
            let owned = self.blocks.as_ref().and_then(|blocks| blocks.0.borrow().part(at, end));
            let (class, what, len) = owned.unwrap_or_else(|| data_part(&self.identity, at, end));
            ClassifiedRange { class, offset: at, len, what }
        });
    }
}

impl Decoder for DataDisk {
    fn system(&self) -> &'static str {
        "dualfs"
    }

    fn block_shift(&self) -> u32 {
        self.identity.bsize.trailing_zeros()
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        state.claims = self.late_claims();
        self.cover(offset, data.len() as u64, out);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        state.claims = self.late_claims();
        self.cover(offset, len, out);
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        let mut all: Vec<Contents> = Vec::new();
        if let Some(blocks) = &self.blocks {
            all.extend(blocks.0.borrow().contents(ino));
        }
        all.sort_unstable_by_key(|c| c.offset);
        all
    }

    fn pair(&self) -> Option<PairMember> {
        Some(PairMember { uuid: self.identity.uuid, has_metadata: false })
    }

    fn take_blocks(&mut self, blocks: FilesOfBlocks) {
        self.blocks = Some(blocks);
    }

    fn late_claims(&mut self) -> Vec<Claim> {
        self.blocks.as_ref().map_or_else(Vec::new, |blocks| blocks.0.borrow_mut().take_claims())
    }
}

//! DualFS: the metadata log is LFS's but for the tables of groups; the data device has contents of regular files and its
//! identity, so that every block of it is known by its place.

use ordo_format::dualfs::{IDENTITY_SIZE, Identity, ROLE_DATA};

use crate::decoder::{Contents, Decoder, DecoderState, DiskImage, cover};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

/// The identity of a device of a pair, where the image is one.
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

/// The part of a data device at byte `at` of it, and how many bytes from there on are of the same kind.
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
        () => (Class::Unknown, BlockMeaning::Unknown(Reason::BeyondFileSystem), end - at),
    }
}

/// The decoder of a data device that has a disk of its own.
pub(super) struct DataDisk(pub Identity);

impl DataDisk {
    /// The decoder, where the image is a data device.
    pub fn probe(identity: &Identity) -> Option<Box<dyn Decoder>> {
        let is_data = identity.role == ROLE_DATA;
        is_data.then(|| Box::new(DataDisk(identity.clone())) as Box<dyn Decoder>)
    }

    fn cover(&self, offset: u64, len: u64, out: &mut Vec<ClassifiedRange>) {
        let bytes = self.0.blocks * u64::from(self.0.bsize);
        cover(out, offset, len, bytes, |at, end| {
            let (class, what, len) = data_part(&self.0, at, end);
            ClassifiedRange { class, offset: at, len, what }
        });
    }
}

impl Decoder for DataDisk {
    fn system(&self) -> &'static str {
        "dualfs"
    }

    fn block_shift(&self) -> u32 {
        self.0.bsize.trailing_zeros()
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        self.cover(offset, data.len() as u64, out);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        self.cover(offset, len, out);
    }

    fn contents(&self, _ino: u64) -> Vec<Contents> {
        Vec::new()
    }
}

//! A disk in memory: sparse, and cheap to copy.

use std::cell::RefCell;
use std::rc::Rc;

use crate::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags};

/// The unit in which memory is allocated and shared between copies, in bytes.
const CHUNK: usize = 64 * 1024;

type Chunk = Option<Rc<[u8]>>;

/// A disk in memory. Chunks never written take no memory and read as zero; a
/// [`snapshot`](RamDisk::snapshot) shares every chunk until one side writes it.
pub struct RamDisk {
    geometry: Geometry,
    chunks: RefCell<Vec<Chunk>>,
}

impl RamDisk {
    /// `bytes` bytes of zero; rounded down to whole sectors of 512.
    pub fn new(bytes: u64) -> RamDisk {
        let bytes = bytes / 512 * 512;
        let geometry = Geometry {
            bytes,
            sector: 512,
            max_request: 1 << 20,
            volatile_cache: false,
            read_only: false,
        };
        let chunks = vec![None; usize::try_from(bytes.div_ceil(CHUNK as u64)).expect("fits")];
        RamDisk { geometry, chunks: RefCell::new(chunks) }
    }

    /// A disk that holds `image`, padded to whole sectors.
    pub fn from_image(image: &[u8]) -> RamDisk {
        let disk = RamDisk::new((image.len() as u64).next_multiple_of(512));
        disk.store(0, image);
        disk
    }

    /// A copy as of now.
    pub fn snapshot(&self) -> RamDisk {
        RamDisk { geometry: self.geometry, chunks: RefCell::new(self.chunks.borrow().clone()) }
    }

    /// Copies bytes out, without a request.
    pub fn load(&self, offset: u64, out: &mut [u8]) {
        let chunks = self.chunks.borrow();
        for_each_piece(offset, out.len(), |index, within, range| {
            let out = &mut out[range];
            match &chunks[index] {
                Some(chunk) => out.copy_from_slice(&chunk[within..within + out.len()]),
                None => out.fill(0),
            }
        });
    }

    /// Copies bytes in, without a request.
    pub fn store(&self, offset: u64, data: &[u8]) {
        let mut chunks = self.chunks.borrow_mut();
        for_each_piece(offset, data.len(), |index, within, range| {
            let data = &data[range];
            let chunk = chunks[index].get_or_insert_with(|| Rc::from(vec![0; CHUNK]));
            Rc::make_mut(chunk)[within..within + data.len()].copy_from_slice(data);
        });
    }

    /// The whole contents. For tests on small disks.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(self.geometry.bytes).expect("fits in memory")];
        self.load(0, &mut out);
        out
    }
}

/// Calls `f(chunk, offset within it, range of the caller's bytes)` for each chunk touched.
fn for_each_piece(
    offset: u64,
    len: usize,
    mut f: impl FnMut(usize, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = usize::try_from(offset).expect("fits") + done;
        let within = at % CHUNK;
        let n = (CHUNK - within).min(len - done);
        f(at / CHUNK, within, done..done + n);
        done += n;
    }
}

impl BlockDevice for RamDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.geometry.check(Operation::Read, offset, len)?;
        let mut buf = IoBuf::scratch(len);
        self.load(offset, &mut buf);
        Ok(buf)
    }

    async fn write(&self, offset: u64, data: IoBuf, _flags: WriteFlags) -> Result<(), BlockError> {
        self.geometry.check(Operation::Write, offset, data.len())?;
        self.store(offset, &data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry.check(Operation::Discard, offset, len as usize)?;
        Ok(())
    }
}

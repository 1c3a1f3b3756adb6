//! A disk in memory: sparse, and cheap to copy.

use std::cell::RefCell;
use std::rc::Rc;

use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// The unit in which memory is allocated and shared between copies, in bytes.
const CHUNK: usize = 64 * 1024;

type Chunk = Option<Rc<[u8]>>;

/// A disk in memory. Chunks that hold nothing but zeros since the beginning take no memory. A
/// [`snapshot`](RamDisk::snapshot) shares every chunk until one side writes it.
pub struct RamDisk {
    geometry: Geometry,
    chunks: RefCell<Vec<Chunk>>,
}

impl RamDisk {
    /// A disk of `bytes` zero bytes, rounded down to whole sectors of 512.
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

    /// A copy of the present contents.
    pub fn snapshot(&self) -> RamDisk {
        RamDisk { geometry: self.geometry, chunks: RefCell::new(self.chunks.borrow().clone()) }
    }

    /// Copies bytes out, without a request through the device.
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

    /// Copies bytes in, without a request through the device.
    pub fn store(&self, offset: u64, data: &[u8]) {
        let mut chunks = self.chunks.borrow_mut();
        for_each_piece(offset, data.len(), |index, within, range| {
            let data = &data[range];
            if chunks[index].is_none() && is_zero(data) {
                return;
            }
            let chunk = chunks[index].get_or_insert_with(|| Rc::from(vec![0; CHUNK]));
            Rc::make_mut(chunk)[within..within + data.len()].copy_from_slice(data);
        });
    }

    /// The whole contents. Chunks that were never written take no memory.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(self.geometry.bytes).expect("fits in memory")];
        for (chunk, out) in self.chunks.borrow().iter().zip(out.chunks_mut(CHUNK)) {
            if let Some(chunk) = chunk {
                out.copy_from_slice(&chunk[..out.len()]);
            }
        }
        out
    }
}

impl RamDisk {
    /// The ranges of bytes that were ever written; the rest is zero.
    pub fn written(&self) -> Vec<std::ops::Range<usize>> {
        let chunks = self.chunks.borrow();
        let used = chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_some());
        let len = usize::try_from(self.geometry.bytes).expect("fits in memory");
        used.map(|(n, _)| n * CHUNK..((n + 1) * CHUNK).min(len)).collect()
    }
}

/// Whether all bytes are zero. Each byte is compared with the next one, which a comparison of
/// memory does for many at once.
fn is_zero(data: &[u8]) -> bool {
    data.split_first().is_none_or(|(first, rest)| *first == 0 && rest == &data[..rest.len()])
}

/// A device that can be copied at once.
pub trait Snapshot {
    /// A copy of the present contents.
    fn snapshot(&self) -> RamDisk;
}

impl Snapshot for RamDisk {
    fn snapshot(&self) -> RamDisk {
        RamDisk::snapshot(self)
    }
}

impl<T: Snapshot> Snapshot for Rc<T> {
    fn snapshot(&self) -> RamDisk {
        (**self).snapshot()
    }
}

/// Calls `f(chunk, offset in the chunk, range of the caller's bytes)` for each chunk touched.
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

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        _flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.geometry.check(Operation::Write, offset, data.len())?;
        let mut at = offset;
        for piece in data.pieces() {
            self.store(at, piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry.check(Operation::Discard, offset, len as usize)?;
        Ok(())
    }

    fn immediate(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Executor;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Writes anywhere, across chunks too, are compared with a plain vector. A snapshot taken
        /// in between must not change with the original, nor the original with the snapshot.
        #[test]
        fn a_ram_disk_is_a_vector_of_bytes(
            writes in prop::collection::vec((0u64..400, 0usize..200, any::<u8>()), 1..40),
            cut in 0usize..40,
        ) {
            const SECTORS: u64 = 600;
            let executor = Executor::simulated(1);
            let disk = RamDisk::new(SECTORS * 512);
            let mut model = vec![0; SECTORS as usize * 512];
            let mut taken = None;
            for (i, (sector, n, byte)) in writes.iter().copied().enumerate() {
                if i == cut {
                    taken = Some((disk.snapshot(), model.clone()));
                }
                let (at, data) = (sector * 512, vec![byte; n * 512]);
                model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                let write = disk.write(at, IoBuf::from_slice(&data), WriteFlags::empty());
                executor.block_on(write).unwrap().unwrap();
                let back = executor.block_on(disk.read(at, data.len())).unwrap().unwrap();
                prop_assert!(back[..] == data[..]);
            }
            prop_assert!(disk.to_vec() == model);
            if let Some((copy, then)) = taken {
                prop_assert!(copy.to_vec() == then);
                copy.store(0, &[1; 512]);
                prop_assert!(disk.to_vec() == model);
            }
        }
    }

    /// Zeros on a disk of zeros take no memory, and other bytes do. Would catch an image of a
    /// hundred gigabytes without contents that takes a hundred gigabytes of memory.
    #[test]
    fn zeros_on_a_new_disk_take_no_memory() {
        let disk = RamDisk::new(1 << 20);
        let chunks = |disk: &RamDisk| disk.chunks.borrow().iter().flatten().count();
        disk.store(0, &[0; 1 << 20]);
        assert_eq!(chunks(&disk), 0);
        disk.store(CHUNK as u64 - 1, &[0, 7]);
        assert_eq!(chunks(&disk), 1);
        disk.store(CHUNK as u64, &[0]);
        assert!(disk.to_vec().iter().all(|byte| *byte == 0), "zeros replace other bytes");
    }

    /// Requests must be whole sectors inside the disk.
    #[test]
    fn requests_are_checked() {
        let executor = Executor::simulated(1);
        let disk = RamDisk::new(1025);
        assert_eq!(disk.geometry().bytes, 1024);
        let fault = |at, len| executor.block_on(disk.read(at, len)).unwrap().unwrap_err().fault;
        assert_eq!(fault(1024, 512), crate::Fault::OutOfRange);
        assert_eq!(fault(u64::MAX - 511, 1024), crate::Fault::OutOfRange);
        assert_eq!(fault(1, 512), crate::Fault::Misaligned);
        assert_eq!(fault(0, 511), crate::Fault::Misaligned);
    }
}

//! The place of a device's contents: memory, an image, or a device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use ordo_block::file::FileDisk;
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, IoList, WriteFlags};

/// The largest piece in which zeros are written, in bytes.
const ZEROS: u64 = 1 << 20;

pub(crate) enum Storage {
    Memory(Rc<RamDisk>),
    /// A file, with a second handle to read the contents without a request.
    Path(FileDisk, Rc<File>),
}

/// A handle to read contents without a request.
#[derive(Clone)]
pub(crate) enum Held {
    Memory(Rc<RamDisk>),
    Path(Rc<File>),
}

impl Held {
    /// Reads from a part of the device: its first byte and its size.
    pub(crate) fn load(
        &self,
        (origin, bytes): (u64, u64),
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        end.filter(|end| *end <= bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            Held::Memory(ram) => {
                ram.load(origin + offset, buf);
                Ok(())
            }
            Held::Path(file) => file.read_exact_at(buf, origin + offset),
        }
    }

    /// All `bytes` bytes. Parts that are zero take no memory. A part that cannot be read is zero.
    pub(crate) fn whole(&self, bytes: u64) -> Vec<u8> {
        let file = match self {
            Held::Memory(ram) => return ram.to_vec(),
            Held::Path(file) => file,
        };
        let (mut whole, mut piece) = (vec![0; bytes as usize], vec![0; ZEROS as usize]);
        for (number, part) in whole.chunks_mut(ZEROS as usize).enumerate() {
            let piece = &mut piece[..part.len()];
            let read = file.read_exact_at(piece, number as u64 * ZEROS);
            if read.is_ok() && piece.iter().any(|byte| *byte != 0) {
                part.copy_from_slice(piece);
            }
        }
        whole
    }
}

/// The contents of a device, or of a part of it, at the moment when they are read. Every write that
/// has completed is in them.
#[derive(Clone)]
pub struct DeviceContents {
    /// The size in bytes.
    pub bytes: u64,
    pub(crate) origin: u64,
    pub(crate) held: Held,
}

impl DeviceContents {
    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The range lies outside the device or its part, or the read failed.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.held.load((self.origin, self.bytes), offset, buf)
    }
}

impl Storage {
    pub(crate) fn held(&self) -> Held {
        match self {
            Storage::Memory(ram) => Held::Memory(ram.clone()),
            Storage::Path(_, file) => Held::Path(file.clone()),
        }
    }
}

impl BlockDevice for Storage {
    fn geometry(&self) -> Geometry {
        match self {
            Storage::Memory(ram) => ram.geometry(),
            Storage::Path(disk, _) => disk.geometry(),
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        match self {
            Storage::Memory(ram) => ram.read(offset, len).await,
            Storage::Path(disk, _) => disk.read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.write(offset, data, flags).await,
            Storage::Path(disk, _) => disk.write(offset, data, flags).await,
        }
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.write_list(offset, data, flags).await,
            Storage::Path(disk, _) => disk.write_list(offset, data, flags).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.flush().await,
            Storage::Path(disk, _) => disk.flush().await,
        }
    }

    /// Discards a range, which then reads as zeros: the loop driver sends ranges that must become
    /// zero as discards too.
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if let Storage::Path(disk, _) = self {
            disk.discard(offset, len).await?;
        }
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(ZEROS);
            let zeros = IoBuf::zeroed(piece as usize);
            self.write(offset + done, zeros, WriteFlags::empty()).await?;
            done += piece;
        }
        Ok(())
    }
}

//! The place of a device's contents: memory, an image, or a device.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use ordo_block::file::FileDisk;
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// The largest piece in which zeros are written, in bytes.
const ZEROS: u64 = 1 << 20;
/// The error of a request for which the host gives no other.
const EIO: i32 = 5;

pub(crate) enum Storage {
    Memory(Rc<RamDisk>),
    /// A file without a name, which nobody else has.
    Temporary(Rc<File>, Geometry),
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

    /// All `bytes` bytes, and the ranges outside of which they are zero and take no memory. A part
    /// that cannot be read is zero.
    pub(crate) fn whole(&self, bytes: u64) -> (Vec<u8>, Vec<Range<usize>>) {
        let file = match self {
            Held::Memory(ram) => return (ram.to_vec(), ram.written()),
            Held::Path(file) => file,
        };
        let mut used = Vec::new();
        let (mut whole, mut piece) = (vec![0; bytes as usize], vec![0; ZEROS as usize]);
        for (number, part) in whole.chunks_mut(ZEROS as usize).enumerate() {
            let piece = &mut piece[..part.len()];
            let read = file.read_exact_at(piece, number as u64 * ZEROS);
            if read.is_ok() && piece.iter().any(|byte| *byte != 0) {
                part.copy_from_slice(piece);
                let from = number * ZEROS as usize;
                used.push(from..from + part.len());
            }
        }
        (whole, used)
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
    /// `bytes` zero bytes in a file without a name in the folder for temporary files.
    pub(crate) fn temporary(bytes: u64) -> io::Result<Storage> {
        let geometry = RamDisk::new(bytes).geometry();
        let file = tempfile::tempfile()?;
        file.set_len(geometry.bytes)?;
        Ok(Storage::Temporary(Rc::new(file), geometry))
    }

    pub(crate) fn held(&self) -> Held {
        match self {
            Storage::Memory(ram) => Held::Memory(ram.clone()),
            Storage::Temporary(file, _) | Storage::Path(_, file) => Held::Path(file.clone()),
        }
    }
}

/// The error of a request that the host's file system refused.
fn failed((op, offset, len): (Operation, u64, usize)) -> impl Fn(io::Error) -> BlockError {
    move |error| {
        let fault = Fault::Io(error.raw_os_error().unwrap_or(EIO));
        BlockError { op, offset, len, fault }
    }
}

impl BlockDevice for Storage {
    fn geometry(&self) -> Geometry {
        match self {
            Storage::Memory(ram) => ram.geometry(),
            Storage::Temporary(_, geometry) => *geometry,
            Storage::Path(disk, _) => disk.geometry(),
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        match self {
            Storage::Memory(ram) => ram.read(offset, len).await,
            Storage::Temporary(file, geometry) => {
                geometry.check(Operation::Read, offset, len)?;
                let mut buf = IoBuf::scratch(len);
                let read = file.read_exact_at(&mut buf, offset);
                read.map(|()| buf).map_err(failed((Operation::Read, offset, len)))
            }
            Storage::Path(disk, _) => disk.read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.write(offset, data, flags).await,
            Storage::Temporary(file, geometry) => {
                geometry.check(Operation::Write, offset, data.len())?;
                let wrote = file.write_all_at(&data, offset);
                wrote.map_err(failed((Operation::Write, offset, data.len())))
            }
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
            Storage::Temporary(file, geometry) => {
                geometry.check(Operation::Write, offset, data.len())?;
                let mut at = offset;
                for piece in data.pieces() {
                    let wrote = file.write_all_at(piece, at);
                    wrote.map_err(failed((Operation::Write, at, piece.len())))?;
                    at += piece.len() as u64;
                }
                Ok(())
            }
            Storage::Path(disk, _) => disk.write_list(offset, data, flags).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        match self {
            Storage::Memory(ram) => ram.flush().await,
            Storage::Temporary(..) => Ok(()),
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

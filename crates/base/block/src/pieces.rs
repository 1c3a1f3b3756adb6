//! Ranges of any length, read and written in requests that a device takes.

use std::ops::Range;

use crate::{BlockDevice, BlockError, Device, Geometry, IoBuf, WriteFlags};

impl Geometry {
    /// The bytes of the largest request of whole sectors that the device takes, at most `most`; at
    /// least one sector.
    ///
    /// ```
    /// use ordo_block::{BlockDevice, ram::RamDisk};
    /// let geometry = RamDisk::new(4 << 20).geometry();
    /// assert_eq!(geometry.request(3000), 2560);
    /// assert_eq!(geometry.request(1), 512);
    /// assert_eq!(geometry.request(usize::MAX), geometry.max_request);
    /// ```
    pub fn request(&self, most: usize) -> usize {
        let sector = self.sector as usize;
        (self.max_request.min(most) / sector).max(1) * sector
    }

    /// The requests that together have `len` bytes: the range of each among these bytes.
    fn pieces(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let step = self.request(usize::MAX);
        (0..len).step_by(step).map(move |at| at..len.min(at + step))
    }
}

/// Reads `len` bytes at `offset`, in as many requests as they take. Only `offset` must be at a
/// sector: the last sector is read whole and cut.
///
/// # Errors
/// The range does not begin at a sector or lies outside of the device, or the device failed.
pub async fn read_all(device: &Device, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
    let geometry = device.geometry();
    let whole = len.next_multiple_of(geometry.sector as usize);
    let mut bytes = match whole <= geometry.request(usize::MAX) {
        true => device.read(offset, whole).await?,
        false => {
            let mut bytes = IoBuf::scratch(whole);
            for piece in geometry.pieces(whole) {
                let read = device.read(offset + piece.start as u64, piece.len()).await?;
                bytes[piece].copy_from_slice(&read);
            }
            bytes
        }
    };
    if len < whole {
        bytes.resize(len);
    }
    Ok(bytes)
}

/// Writes `bytes` at `offset`, in as many requests as they take, one after another. Zeros fill up
/// the last sector.
///
/// # Errors
/// As for [`read_all`]. The contents of the range are undefined afterwards.
pub async fn write_all(
    device: &Device,
    offset: u64,
    bytes: &[u8],
    flags: WriteFlags,
) -> Result<(), BlockError> {
    let geometry = device.geometry();
    let sector = geometry.sector as usize;
    for piece in geometry.pieces(bytes.len()) {
        let mut buf = IoBuf::from_slice(&bytes[piece.clone()]);
        if !piece.len().is_multiple_of(sector) {
            buf.resize(piece.len().next_multiple_of(sector));
        }
        device.write(offset + piece.start as u64, buf, flags).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use ordo_runtime::Executor;

    use super::*;
    use crate::fault::{FaultRule, Faults, Faulty};
    use crate::ram::RamDisk;

    /// Bytes of any length come back as they were written, from a device that takes one MiB at
    /// once; each byte is in one request, and none is longer than the device takes. Would catch a
    /// piece that is left out at the end, or one that begins where the one before it does.
    #[test]
    fn bytes_of_any_length_are_written_and_read() {
        let executor = Executor::simulated(1);
        let faults = Faults::new();
        let disk = Rc::new(Faulty::new(RamDisk::new(4 << 20), &faults));
        let most = disk.geometry().max_request as u64;
        faults.add(FaultRule::fail(5).when(move |request| request.len > most));
        let device = disk.erase();
        let done = executor.block_on(async {
            for len in [1, 512, 513, 1 << 20, (1 << 20) + 1, (5 << 19) + 700] {
                let bytes: Vec<u8> = (0..len).map(|n: usize| (n / 256 % 251) as u8 + 1).collect();
                write_all(&device, 512, &vec![255; len + 512], WriteFlags::META).await.unwrap();
                write_all(&device, 512, &bytes, WriteFlags::META).await.unwrap();
                assert_eq!(read_all(&device, 512, len).await.unwrap()[..], bytes[..]);
                // The rest of the last sector is zero, and the next sector is as it was.
                let end = len.next_multiple_of(512);
                let behind = read_all(&device, 512, end + 1).await.unwrap();
                assert!(behind[len..end].iter().all(|byte| *byte == 0));
                assert_eq!(behind[end], 255);
            }
            assert_eq!(device.geometry().pieces(0).count(), 0);
        });
        done.unwrap();
    }
}

//! Reading a file system whose metadata device is lost, by the copy of the metadata that the data device keeps.
//!
//! The copy is shown as a metadata device: each block of the log that it has is where it was, and all else reads as zeros. On
//! it the file system is read as of the checkpoint that was copied last. Files that changed since have the contents that they
//! have now, as far as they had their blocks then.
//!
//! Typical sequence: [`read()`].

use std::collections::BTreeMap;

use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, BlockError, Device, Fault, Geometry, IoBuf, Operation, WriteFlags};
use ordo_format::check_hash;
use ordo_format::dualfs::{
    CopyArea, CopyEntry, IDENTITY_SIZE, Identity, IdentityError, PairName, ROLE_DATA,
};
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, Superblock};
use ordo_lfs::LfsReader;
use ordo_lfs::data::{CopySide, DataDevice};
use ordo_lfs::write::CopyIndex;

use crate::DualError;
use crate::pair::read_identity;

/// The distance between two places at which a data device is searched on a disk that had both, in bytes.
const STEP: usize = 512;
/// Bytes of a request with which it is searched.
const PIECE: usize = 256 << 10;
/// The host's number of an error of a device.
const EIO: i32 = 5;

/// The copy that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedCopy {
    /// The pair.
    pub pair: PairName,
    /// The serial number of its checkpoint.
    pub serial: u64,
    /// When that was made, in seconds since 1970.
    pub time: u64,
    /// Blocks of metadata.
    pub blocks: u64,
}

/// The copy as a metadata device.
struct CopiedLog {
    data: Device,
    area: CopyArea,
    bytes: u64,
    superblock: Vec<u8>,
    /// By block of the log.
    entries: BTreeMap<u64, CopyEntry>,
}

impl CopiedLog {
    async fn block(&self, number: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let bsize = self.area.bsize as usize;
        let Some(entry) = self.entries.get(&number) else { return Ok(()) };
        let at = self.area.slot_at(entry.slot);
        let bytes = self.data.read(at, bsize).await?;
        if check_hash(&[&bytes]) != entry.check {
            let fault = Fault::Io(EIO);
            return Err(BlockError { op: Operation::Read, offset: at, len: bsize, fault });
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }
}

impl BlockDevice for CopiedLog {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, read_only: true, ..self.data.geometry() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.geometry().check(Operation::Read, offset, len)?;
        let (bsize, end) = (u64::from(self.area.bsize), offset + len as u64);
        // Sectors may be smaller than blocks.
        let (first, last) = (offset / bsize, end.div_ceil(bsize));
        let mut all = vec![0; ((last - first) * bsize) as usize];
        for (number, block) in (first..).zip(all.chunks_exact_mut(bsize as usize)) {
            self.block(number, block).await?;
        }
        let start = LABEL_BYTES.checked_sub(first * bsize).map(|at| at as usize);
        if let Some(place) = start.and_then(|at| all.get_mut(at..at + SUPERBLOCK_SIZE)) {
            place.copy_from_slice(&self.superblock);
        }
        let skip = (offset - first * bsize) as usize;
        Ok(IoBuf::from_slice(&all[skip..skip + len]))
    }

    async fn write(&self, offset: u64, data: IoBuf, _flags: WriteFlags) -> Result<(), BlockError> {
        let (op, len) = (Operation::Write, data.len());
        Err(BlockError { op, offset, len, fault: Fault::ReadOnly })
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let (op, len) = (Operation::Discard, len as usize);
        Err(BlockError { op, offset, len, fault: Fault::ReadOnly })
    }
}

/// The data device among the disks: one of them, or the part of one that had both devices.
async fn find_data(disks: &[Device]) -> Result<(Device, Identity), DualError> {
    let mut first = None;
    for disk in disks {
        match read_identity(disk).await? {
            Ok(id) if id.role == ROLE_DATA => return Ok((disk.clone(), id)),
            Ok(id) if id.data_at > 0 => {
                let rest = disk.geometry().bytes.saturating_sub(id.data_at);
                let part = Partition::new(disk.clone(), id.data_at, rest).erase();
                if let Ok(id) = read_identity(&part).await?
                    && id.role == ROLE_DATA
                {
                    return Ok((part, id));
                }
            }
            Ok(_) => {}
            Err(error) => first = first.or(Some(error)),
        }
    }
    // The metadata device's identity went with it: the data device is searched behind it.
    for disk in disks {
        if let Some(found) = search(disk).await? {
            return Ok(found);
        }
    }
    let error = first.unwrap_or(IdentityError::TooShort { have: 0 });
    Err(DualError::Identity { device: "data device", error })
}

async fn search(disk: &Device) -> Result<Option<(Device, Identity)>, DualError> {
    let geometry = disk.geometry();
    let sector = geometry.sector as usize;
    let piece = geometry.request(PIECE);
    for start in (0..geometry.bytes).step_by(piece) {
        let len = piece.min((geometry.bytes - start) as usize) / sector * sector;
        // What cannot be read is not it.
        let Ok(bytes) = disk.read(start, len).await else { continue };
        for (n, raw) in bytes.chunks_exact(STEP).enumerate() {
            let at = start + (n * STEP) as u64;
            let Ok(id) = Identity::read(&raw[..IDENTITY_SIZE]) else { continue };
            let rest = geometry.bytes - at;
            if id.role == ROLE_DATA && at.is_multiple_of(sector as u64) && id.data_bytes() <= rest {
                return Ok(Some((Partition::new(disk.clone(), at, rest).erase(), id)));
            }
        }
    }
    Ok(None)
}

/// Finds the last complete copy on a data device.
///
/// # Errors
/// There is no data device among the disks, it keeps no copy, or none that is complete; it is too small; it failed.
async fn find(disks: &[Device]) -> Result<(Device, Identity, CopyIndex), DualError> {
    let (data, id) = find_data(disks).await?;
    let (want, have) = (id.data_bytes(), data.geometry().bytes);
    if have < want {
        return Err(DualError::TooSmall { device: "data", want, have });
    }
    let Some(area) = id.copy_area() else { return Err(DualError::NoCopy(id.name())) };
    let side = CopySide { area, uuid: id.uuid };
    let found = CopyIndex::read(&data, side).await?;
    let found = found.ok_or(DualError::CopyIncomplete(id.name()))?;
    Ok((data, id, found))
}

/// The copy that a data device keeps.
///
/// # Errors
/// As for [`read()`].
pub async fn copy_on(disks: &[Device]) -> Result<SalvagedCopy, DualError> {
    let (_, id, found) = find(disks).await?;
    Ok(said(&id, &found))
}

fn said(id: &Identity, found: &CopyIndex) -> SalvagedCopy {
    let head = &found.head;
    SalvagedCopy { pair: id.name(), serial: head.serial, time: head.time, blocks: head.entries }
}

/// Mounts for reading what the copy of the metadata leads to. The disks have the data device among them; nothing of the
/// metadata device is read.
///
/// # Errors
/// There is no data device, it keeps no copy, or none that is complete; the copy cannot be right; a device failed.
pub async fn read(disks: &[Device]) -> Result<(LfsReader, SalvagedCopy), DualError> {
    let (data, id, found) = find(disks).await?;
    let about = said(&id, &found);
    let mut superblock = vec![0; SUPERBLOCK_SIZE];
    let sb: &Superblock = &found.sb;
    sb.write(&mut superblock);
    let area = id.copy_area().expect("it was found there");
    let by_block = |entry: CopyEntry| Some((u64::try_from(entry.addr).ok()?, entry));
    let entries: BTreeMap<u64, CopyEntry> =
        found.entries.into_iter().filter_map(by_block).collect();
    let bytes = id.metadata_bytes;
    let log = CopiedLog { data: data.clone(), area, bytes, superblock, entries };
    let device = DataDevice { device: data, shape: id.shape(), first: 0 };
    Ok((LfsReader::mount_with(log, device).await?, about))
}

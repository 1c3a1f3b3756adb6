//! Reading a file system whose metadata device is lost, by the copy of the metadata that the data
//! device keeps.
//!
//! The copy is presented as a metadata device: each block that was copied is at its address, and
//! all others read as zeros. Mounted from this device, the file system has the metadata of the
//! checkpoint that was copied last. The data device has only the newest contents, so a file that
//! was changed since then may have new contents in the blocks that it had then.
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

/// The step, in bytes, of the search for the data device on a disk that had both devices.
const STEP: usize = 512;
/// The length of a request of this search, in bytes.
const PIECE: usize = 256 << 10;
/// The host's error number for a failed device.
const EIO: i32 = 5;

/// The copy from which metadata are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagedCopy {
    /// The pair to which the copy belongs.
    pub pair: PairName,
    /// The serial number of its checkpoint.
    pub serial: u64,
    /// The time at which the checkpoint was made, in seconds since 1970.
    pub time: u64,
    /// The number of blocks of metadata.
    pub blocks: u64,
}

/// The copy as a metadata device.
struct CopiedLog {
    data: Device,
    area: CopyArea,
    bytes: u64,
    superblock: Vec<u8>,
    /// The copied blocks, by their addresses in the log.
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

/// Finds the data device: one of the disks, or a part of a disk that had both devices.
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
            Err(error @ IdentityError::Mirrored { .. }) => {
                return Err(DualError::Identity { device: "data device", error });
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    // On a disk with both devices, the identity that says where the data device begins may be lost.
    // Then the data device is searched for.
    for disk in disks {
        if let Some(found) = search(disk).await? {
            return Ok(found);
        }
    }
    let error = first.unwrap_or(IdentityError::TooShort { have: 0 });
    Err(DualError::Identity { device: "data device", error })
}

/// Searches a disk for the identity of a data device.
async fn search(disk: &Device) -> Result<Option<(Device, Identity)>, DualError> {
    let geometry = disk.geometry();
    let sector = geometry.sector as usize;
    let piece = geometry.request(PIECE);
    for start in (0..geometry.bytes).step_by(piece) {
        let len = piece.min((geometry.bytes - start) as usize) / sector * sector;
        // A part of the disk that cannot be read is skipped.
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
/// There is no data device among the disks; it keeps no copy, or no complete one; it is too small;
/// a device failed.
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

/// Describes the complete copy that a data device keeps.
///
/// # Errors
/// As for [`read()`].
pub async fn copy_on(disks: &[Device]) -> Result<SalvagedCopy, DualError> {
    let (_, id, found) = find(disks).await?;
    Ok(describe(&id, &found))
}

fn describe(id: &Identity, found: &CopyIndex) -> SalvagedCopy {
    let head = &found.head;
    SalvagedCopy { pair: id.name(), serial: head.serial, time: head.time, blocks: head.entries }
}

/// Mounts a file system for reading from the copy of its metadata. One of the disks is the data
/// device. The metadata device is not read.
///
/// # Errors
/// There is no data device; it keeps no copy, or no complete one; the copy is damaged; a device
/// failed.
pub async fn read(disks: &[Device]) -> Result<(LfsReader, SalvagedCopy), DualError> {
    let (data, id, found) = find(disks).await?;
    let about = describe(&id, &found);
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

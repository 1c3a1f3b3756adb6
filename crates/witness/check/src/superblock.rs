//! The search for a usable superblock, before phase 1.

use ordo_block::{BlockDevice, Device, IoBuf};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{
    CK_SUPERBLOCK, ForeignFeature, MAGIC, RECOVERY_AT, Recovery, SBLOCK_SIZE, SEARCH, Superblock,
    SuperblockError,
};
use ordo_format::ufs2::{MAX_BLOCK, MIN_BLOCK};

use crate::copies::same_shape;
use crate::{CheckError, CheckWork, Finding};

/// The distance from its start up to which a device is searched for copies that no record points
/// to, in bytes.
const SEARCH_LIMIT: u64 = 1 << 30;
/// The number of groups whose copies are tried if the recovery record gives their places.
const GROUPS_TRIED: u32 = 64;

/// The byte of the clean flag.
const CLEAN_AT: usize = 209;

/// The place in bytes of a usable copy of a UFS superblock, if the device has one: where the
/// recovery record says, where a first group's is usual, or anywhere in the first gigabyte.
///
/// # Errors
/// The device failed.
pub async fn find_copy(device: &Device) -> Result<Option<u64>, CheckError> {
    Ok(Search::new(device).find_copy().await?.map(|(at, ..)| at))
}

/// A usable superblock, and the fault of the place where it was found.
pub(crate) struct Found {
    pub sb: Superblock,
    pub endian: Endian,
    pub from_copy: bool,
    pub findings: Vec<Finding>,
}

/// The search for superblocks.
pub(crate) struct Search<'d> {
    device: &'d Device,
    pub work: CheckWork,
}

impl<'d> Search<'d> {
    pub fn new(device: &'d Device) -> Search<'d> {
        Search { device, work: CheckWork::default() }
    }

    /// Reads `len` bytes at `at`; `None` if the device ends before that.
    pub async fn load(&mut self, at: u64, len: usize) -> Result<Option<IoBuf>, CheckError> {
        let sector = u64::from(self.device.geometry().sector);
        if at + len as u64 > self.device.geometry().bytes || !at.is_multiple_of(512) {
            return Ok(None);
        }
        let start = at / sector * sector;
        let end = (at + len as u64).next_multiple_of(sector);
        self.work.reads += 1;
        self.work.bytes_read += end - start;
        let bytes = self.device.read(start, (end - start) as usize).await?;
        let skip = (at - start) as usize;
        Ok(Some(if skip == 0 { bytes } else { IoBuf::from_slice(&bytes[skip..]) }))
    }

    /// The superblock at a place that the caller chose.
    pub async fn chosen(&mut self, at: u64) -> Result<Found, CheckError> {
        let short = SuperblockError::TooShort { have: 0 };
        let wrong = |error| CheckError::Superblock { at, error };
        let bytes = self.load(at, SBLOCK_SIZE).await?.ok_or(wrong(short))?;
        let (sb, endian) = Superblock::parse(&bytes).map_err(wrong)?;
        let from_copy = at != sb.sblockloc as u64;
        if from_copy && !sb.is_copy_at(at) {
            return Err(wrong(SuperblockError::Place { value: sb.sblockloc }));
        }
        let mut findings = Vec::new();
        if sb.verify_hash(&bytes, endian).is_err() {
            findings.push(Finding::SuperblockHash { at, flag_only: false });
        }
        Ok(Found { sb, endian, from_copy, findings })
    }

    /// Refuses a file system with a feature of another system. A copy of the superblock may not
    /// know of it, so the standard superblock is asked too, as far as it can be read.
    pub async fn refuse_foreign(&mut self, found: &Found) -> Result<(), CheckError> {
        let standard = self.load(found.sb.sblockloc as u64, SBLOCK_SIZE).await?;
        let announced = standard.and_then(|bytes| announced(&bytes));
        match found.sb.foreign_feature().or(announced) {
            Some(feature) => Err(CheckError::Foreign(feature)),
            None => Ok(()),
        }
    }

    /// The standard superblock, or else a copy.
    pub async fn find(&mut self) -> Result<Found, CheckError> {
        // The first error that shows that a superblock was once there.
        let mut error = SuperblockError::Magic { found: 0 };
        for at in SEARCH {
            let Some(bytes) = self.load(at, SBLOCK_SIZE).await? else { continue };
            if let Some(feature) = announced(&bytes) {
                return Err(CheckError::Foreign(feature));
            }
            let this = match Superblock::read(&bytes, at) {
                Ok((sb, endian)) if self.fits(&sb) => {
                    return Ok(Found { sb, endian, from_copy: false, findings: Vec::new() });
                }
                Ok((sb, _)) => return self.too_large(&sb).await,
                // A copy can lie where another file system's standard superblock would.
                Err(SuperblockError::Place { .. }) => continue,
                Err(this) => this,
            };
            if matches!(this, SuperblockError::CheckHash { .. })
                && let Some(found) = self.with_wrong_hash(at, &bytes).await?
            {
                return Ok(found);
            }
            if is_absent(error) {
                error = this;
            }
        }
        if matches!(error, SuperblockError::Incomplete { .. }) {
            return Err(CheckError::NoSuperblock(error));
        }
        match self.find_copy().await? {
            Some((copy, sb, endian)) => {
                let at = sb.sblockloc as u64;
                let error = error.to_string();
                let finding = Finding::SuperblockDamaged { at, copy, error };
                Ok(Found { sb, endian, from_copy: true, findings: vec![finding] })
            }
            // All copies agree with it.
            None if matches!(error, SuperblockError::InodeFormat { .. }) => {
                Err(CheckError::Foreign(ForeignFeature::OldInodes))
            }
            None => Err(CheckError::NoSuperblock(error)),
        }
    }

    /// Finds a copy with a smaller file system, for a superblock whose file system is larger than
    /// the device. If there is no such copy, the device was cut short.
    async fn too_large(&mut self, sb: &Superblock) -> Result<Found, CheckError> {
        let (size, device) = (sb.byte_of(sb.size as u64), self.device.geometry().bytes);
        let Some((copy, right, endian)) = self.find_copy().await? else {
            return Err(CheckError::Truncated { size, device });
        };
        let at = sb.sblockloc as u64;
        let error = SuperblockError::Size { value: sb.size }.to_string();
        let findings = vec![Finding::SuperblockDamaged { at, copy, error }];
        Ok(Found { sb: right, endian, from_copy: true, findings })
    }

    /// Uses a standard superblock that is valid except for its check-hash, unless a copy has
    /// another geometry.
    async fn with_wrong_hash(
        &mut self,
        at: u64,
        bytes: &[u8],
    ) -> Result<Option<Found>, CheckError> {
        let Ok((mut sb, endian)) = Superblock::parse(bytes) else { return Ok(None) };
        if sb.sblockloc as u64 != at || !self.fits(&sb) {
            return Ok(None);
        }
        if let Some(copy) = self.load(sb.byte_of(sb.cg_superblock(0)), SBLOCK_SIZE).await?
            && let Ok((copy, _)) = Superblock::read_copy(&copy)
            && !same_shape(&copy, &sb)
        {
            return Ok(None);
        }
        // A mount or unmount changes the clean flag, which is in another sector than the hash.
        let mut whole = bytes.to_vec();
        whole[CLEAN_AT] ^= 1;
        let flag_only = sb.verify_hash(&whole, endian).is_ok();
        if flag_only {
            sb.clean = whole[CLEAN_AT] as i8;
        } else {
            sb.clean = 0;
        }
        let findings = vec![Finding::SuperblockHash { at, flag_only }];
        Ok(Some(Found { sb, endian, from_copy: false, findings }))
    }

    pub fn fits(&self, sb: &Superblock) -> bool {
        sb.byte_of(sb.size as u64) <= self.device.geometry().bytes
    }

    /// The first usable copy, and its place.
    pub async fn find_copy(&mut self) -> Result<Option<(u64, Superblock, Endian)>, CheckError> {
        let mut places = self.recorded_copies().await?;
        for standard in SEARCH {
            let end = standard + SBLOCK_SIZE as u64;
            let sizes = (0..).map(|n| u64::from(MIN_BLOCK) << n);
            for block in sizes.take_while(|size| *size <= MAX_BLOCK.into()) {
                places.push(end.next_multiple_of(block));
            }
        }
        for at in places {
            let Some(bytes) = self.load(at, SBLOCK_SIZE).await? else { continue };
            if let Some((sb, endian)) = self.copy_in(&bytes, at) {
                return Ok(Some((at, sb, endian)));
            }
        }
        self.scan_for_copy().await
    }

    fn copy_in(&self, bytes: &[u8], at: u64) -> Option<(Superblock, Endian)> {
        let (sb, endian) = Superblock::read_copy(bytes).ok()?;
        (sb.is_copy_at(at) && self.fits(&sb)).then_some((sb, endian))
    }

    /// The places of copies according to the recovery record at the end of the boot area.
    async fn recorded_copies(&mut self) -> Result<Vec<u64>, CheckError> {
        let at = SEARCH[0] - 512;
        let Some(bytes) = self.load(at, 512).await? else { return Ok(Vec::new()) };
        let mut places = Vec::new();
        for endian in [Endian::Little, Endian::Big] {
            let record = Recovery::decode(&bytes[(RECOVERY_AT - at) as usize..], endian);
            let Recovery { magic, fsbtodb: shift, sblkno, fpg, ncg } = record;
            if magic != MAGIC || !(0..8).contains(&shift) || sblkno < 0 || fpg < 0 {
                continue;
            }
            // The shift counts sectors of the device on which the file system was made.
            for sector in [512, 4096] {
                for cg in 0..ncg.min(GROUPS_TRIED) {
                    let frag = u64::from(cg) * fpg as u64 + sblkno as u64;
                    places.push((frag << shift) * sector);
                }
            }
        }
        Ok(places)
    }

    /// Searches every place where a block can start.
    async fn scan_for_copy(&mut self) -> Result<Option<(u64, Superblock, Endian)>, CheckError> {
        let step = u64::from(MIN_BLOCK);
        let end = self.device.geometry().bytes.min(SEARCH_LIMIT);
        let piece = (self.device.geometry().max_request as u64 / step).clamp(1, 64) * step;
        let mut at = 0;
        while at + step <= end {
            let len = piece.min((end - at) / step * step);
            let Some(bytes) = self.load(at, len as usize).await? else { break };
            for start in (0..len).step_by(step as usize) {
                if Superblock::parse(&bytes[start as usize..]).is_err() {
                    continue;
                }
                let Some(whole) = self.load(at + start, SBLOCK_SIZE).await? else { continue };
                if let Some((sb, endian)) = self.copy_in(&whole, at + start) {
                    return Ok(Some((at + start, sb, endian)));
                }
            }
            at += len;
        }
        Ok(None)
    }
}

/// The feature that a standard superblock announces. The format of the inodes is a single field, in
/// which a copy may show damage: so it is believed when no copy has another.
fn announced(bytes: &[u8]) -> Option<ForeignFeature> {
    ForeignFeature::announced(bytes).filter(|feature| *feature != ForeignFeature::OldInodes)
}

fn is_absent(error: SuperblockError) -> bool {
    matches!(error, SuperblockError::Magic { .. } | SuperblockError::TooShort { .. })
}

/// The bytes of a superblock for its standard place.
pub(crate) fn encode(sb: &Superblock, endian: Endian, old: &[u8], at: u64) -> IoBuf {
    let mut bytes = IoBuf::from_slice(old);
    let mut sb = sb.clone();
    sb.sblockactualloc = at as i64;
    sb.store(&mut bytes, endian);
    if sb.keeps_hash(CK_SUPERBLOCK) {
        sb.seal(&mut bytes, endian);
    }
    bytes
}

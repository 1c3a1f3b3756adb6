//! Everything known during a check, and writing the repairs.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_format::dualfs::DataShape;
use ordo_format::lfs::{
    CleanerInfo, IFILE_INO, IfileEntry, LfsInode, NO_ADDRESS, SUPERBLOCK_SIZE, SegUse, Superblock,
    SuperblockError, inode,
};

use super::blocks::Target;
use super::groups::Contents;
use super::log::Log;
use super::superblock::Found;
use super::{LfsCheckError, LfsReport};
use crate::CheckWork;
use crate::io::Io;

/// The IFILE's contents.
pub(super) struct Ifile {
    pub bytes: Vec<u8>,
    /// The address of each block of the IFILE.
    pub blocks: Vec<i64>,
    /// Whether the contents differ from what is on the device.
    pub changed: bool,
}

/// Live bytes by segment.
pub(super) type Live = Vec<(u64, u64)>;

/// An inode in use.
pub(super) struct Known {
    pub inode: LfsInode,
    /// The block that contains the inode, and the inode's place in the block in bytes.
    pub place: (i64, usize),
    /// The live bytes of the inode's blocks.
    pub live: Live,
    /// For a directory, its blocks.
    pub blocks: BTreeMap<u64, i64>,
    /// The number of names found for the inode.
    pub links: i64,
    /// For a directory, its parent. The next field has the place of its entry: block, byte.
    pub parent: Option<u64>,
    pub named_at: Option<(i64, usize)>,
    /// For a directory, the inode in its `..`, and the place of that entry: block, byte.
    pub dotdot: Option<(u64, i64, usize)>,
}

pub(super) struct LfsRun<'d> {
    pub io: Io<'d>,
    pub sb: Superblock,
    pub sb_changed: bool,
    pub damaged: Option<(u64, SuperblockError)>,
    pub report: LfsReport,
    pub ifile: Ifile,
    pub ifile_inode: LfsInode,
    pub log: Log,
    /// A bit for each fragment that has an owner.
    pub used: Vec<u64>,
    /// The live bytes of each segment.
    pub live: Vec<u64>,
    pub inodes: BTreeMap<u64, Known>,
    /// The claims to the data device, if the contents of regular files are there.
    pub contents: Option<Contents>,
    /// Whether the free list must be built again.
    pub relist: bool,
}

impl<'d> LfsRun<'d> {
    /// Reads the IFILE.
    pub async fn open(
        device: &'d Device,
        found: Found,
        data: Option<DataShape>,
    ) -> Result<LfsRun<'d>, LfsCheckError> {
        let Found { sb, damaged } = found;
        if let Some(shape) = data
            && (sb.group_table_blocks() != shape.table_blocks()
                || sb.bsize != shape.bsize
                || sb.frag != 1)
        {
            let (have, want) = (sb.group_table_blocks(), shape.table_blocks());
            return Err(LfsCheckError::Tables { have, want });
        }
        let mut report = LfsReport::new();
        report.was_clean = sb.pflags & ordo_format::lfs::superblock::PF_CLEAN != 0;
        let mut run = LfsRun {
            io: Io::new(device, sb.fsize as usize, CheckWork::default()),
            used: vec![0; (sb.size as usize).div_ceil(64)],
            live: vec![0; sb.nseg as usize],
            sb,
            sb_changed: false,
            damaged,
            report,
            ifile: Ifile { bytes: Vec::new(), blocks: Vec::new(), changed: false },
            ifile_inode: LfsInode::zeroed(),
            log: Log::default(),
            inodes: BTreeMap::new(),
            contents: data.map(Contents::new),
            relist: false,
        };
        run.read_ifile().await?;
        Ok(run)
    }

    async fn read_ifile(&mut self) -> Result<(), LfsCheckError> {
        let (addr, bsize) = (self.sb.idaddr, u64::from(self.sb.bsize));
        let missing = LfsCheckError::IfileInode { addr };
        let Some((inode, at)) = self.load(IFILE_INO, addr).await? else { return Err(missing) };
        let size = inode.size;
        let device = self.sb.size * u64::from(self.sb.fsize);
        if !size.is_multiple_of(bsize) || size > device || self.sb.inodes_in(size) == 0 {
            return Err(LfsCheckError::IfileSize { size });
        }
        let mut target = Target::new(inode, true);
        self.claim_inode(&mut target, addr);
        self.claim_blocks(&mut target).await?;
        for lbn in 0..size / bsize {
            let addr = target.blocks.get(&lbn).copied().unwrap_or(NO_ADDRESS);
            if addr == NO_ADDRESS {
                return Err(LfsCheckError::IfileBlock { lbn, addr });
            }
            let block = self.io.read(addr as u64, self.sb.frag.into()).await?;
            self.ifile.bytes.extend_from_slice(&block);
            self.ifile.blocks.push(addr);
        }
        self.check_ifile_inode(&mut target, at).await?;
        self.ifile_inode = target.inode;
        Ok(())
    }

    /// An inode in the block at `addr`, and its place in the block; `None` if it is not there.
    pub async fn load(
        &mut self,
        ino: u64,
        addr: i64,
    ) -> Result<Option<(LfsInode, usize)>, LfsCheckError> {
        let frags = self.sb.ibsize / self.sb.fsize;
        if !self.sb.is_log(addr, frags) {
            return Ok(None);
        }
        let block = self.io.read(addr as u64, frags.into()).await?;
        let found = inode::find(self.sb.width, &block, ino);
        Ok(found.map(|at| (LfsInode::read(self.sb.width, &block[at..]), at)))
    }

    /// The number of inodes for which the IFILE has entries.
    pub fn inode_count(&self) -> u64 {
        self.sb.inodes_in(self.ifile.bytes.len() as u64)
    }

    pub fn entry(&self, ino: u64) -> IfileEntry {
        IfileEntry::read(self.sb.width, &self.ifile.bytes[self.sb.entry_at(ino) as usize..])
    }

    pub fn set_entry(&mut self, ino: u64, entry: &IfileEntry) {
        let at = self.sb.entry_at(ino) as usize;
        entry.write(self.sb.width, &mut self.ifile.bytes[at..]);
        self.ifile.changed = true;
    }

    pub fn seguse(&self, segment: u64) -> SegUse {
        let at = self.sb.seguse_at(segment) as usize;
        SegUse::decode(&self.ifile.bytes[at..], ordo_format::lfs::LE)
    }

    pub fn set_seguse(&mut self, segment: u64, seguse: &SegUse) {
        let at = self.sb.seguse_at(segment) as usize;
        seguse.encode(&mut self.ifile.bytes[at..], ordo_format::lfs::LE);
        self.ifile.changed = true;
    }

    pub fn cleaner_info(&self) -> CleanerInfo {
        CleanerInfo::read(self.sb.width, &self.ifile.bytes)
    }

    pub fn set_cleaner_info(&mut self, info: &CleanerInfo) {
        info.write(self.sb.width, &mut self.ifile.bytes);
        self.ifile.changed = true;
    }

    /// Writes an inode in place.
    pub async fn store_inode(&mut self, ino: u64) -> Result<(), LfsCheckError> {
        let known = &self.inodes[&ino];
        let (addr, at) = known.place;
        let mut raw = vec![0; self.sb.width.inode_size()];
        known.inode.write(self.sb.width, &mut raw);
        Ok(self.io.change(addr as u64, at, &raw).await?)
    }

    /// Frees an inode with its blocks.
    pub fn clear(&mut self, ino: u64) {
        let mut entry = self.entry(ino);
        entry.daddr = NO_ADDRESS;
        entry.version = entry.version.wrapping_add(1);
        self.set_entry(ino, &entry);
        self.relist = true;
        if let Some(contents) = &mut self.contents {
            contents.give_up(ino);
        }
        if let Some(known) = self.inodes.remove(&ino) {
            for (segment, bytes) in known.live {
                self.live[segment as usize] -= bytes;
            }
        }
    }

    /// Writes the repairs: files, then the IFILE, then the superblocks.
    pub async fn write_repairs(&mut self, device: &Device) -> Result<(), LfsCheckError> {
        self.io.write_out().await?;
        if self.ifile.changed {
            let blocks = std::mem::take(&mut self.ifile.blocks);
            for (addr, bytes) in blocks.iter().zip(self.ifile.bytes.chunks(self.sb.bsize as usize))
            {
                self.io.change(*addr as u64, 0, bytes).await?;
            }
            self.io.write_out().await?;
        }
        device.flush().await?;
        if self.sb_changed {
            for place in self.sb.sboffs.into_iter().take(2).filter(|a| *a != 0) {
                let at = self.sb.byte_of(place);
                let len = SUPERBLOCK_SIZE.max(device.geometry().sector as usize);
                let mut bytes = device.read(at, len).await?.to_vec();
                self.sb.write(&mut bytes);
                device.write(at, IoBuf::from_slice(&bytes), WriteFlags::META).await?;
                device.flush().await?;
            }
        }
        self.report.repaired = true;
        Ok(())
    }
}

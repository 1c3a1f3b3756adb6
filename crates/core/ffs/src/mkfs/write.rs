//! Building each group's bytes, and writing them.

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_format::Endian;
use ordo_format::ufs2::group::{Group, GroupLayout};
use ordo_format::ufs2::superblock::{self, SBLOCK_SIZE, Superblock};
use ordo_format::ufs2::{Csum, Dinode, ROOT_INO, SECTOR, bitmap, dir, inode};
use ordo_format::{dualfs, lfs};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{MkfsError, MkfsOptions, MkfsPlan, MkfsReport, UfsVersion};

/// Bytes at the end of the boot area that help to find the superblock's copies (FreeBSD's `struct
/// fsrecovery`).
const RECOVERY_SIZE: usize = 20;
/// The inode blocks that mkfs initialises in each group of UFS2. The others are initialised when
/// inodes run short.
const INODE_BLOCKS: u32 = 2;

/// The writer of a planned file system.
pub(super) struct Writer<'a> {
    device: &'a Device,
    options: &'a MkfsOptions,
    endian: Endian,
    sb: Superblock,
    density_changed: Option<u64>,
    random: Pcg64Mcg,
    summary: Vec<u8>,
    /// A group that is neither the first nor the last. All such groups are alike.
    middle: Option<(Group, Vec<u8>)>,
    writes: u64,
    bytes: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(device: &'a Device, options: &'a MkfsOptions, plan: MkfsPlan) -> Writer<'a> {
        Writer {
            device,
            options,
            endian: options.endian,
            summary: vec![0; plan.superblock.cssize as usize],
            sb: plan.superblock,
            density_changed: plan.density_changed,
            middle: None,
            random: Pcg64Mcg::seed_from_u64(options.seed ^ 0x6f72_646f),
            writes: 0,
            bytes: 0,
        }
    }

    pub(super) async fn run(mut self, now: i64) -> Result<MkfsReport, MkfsError> {
        self.forget_old().await?;
        self.write_standard(superblock::MAGIC_INCOMPLETE).await?;
        self.device.flush().await?;
        let roots = self.count_all();
        for cg in 0..self.sb.ncg {
            self.write_group(cg, &roots, now).await?;
        }
        let summary = std::mem::take(&mut self.summary);
        self.send(self.sb.byte_of(self.sb.csaddr as u64), &summary).await?;
        for root in &roots {
            self.send(self.sb.byte_of(root.addr), &root.contents).await?;
        }
        self.write_recovery().await?;
        self.device.flush().await?;
        self.write_standard(self.sb.magic).await?;
        self.device.flush().await?;
        let copies = (0..self.sb.ncg).map(|cg| self.sb.byte_of(self.sb.cg_superblock(cg)));
        Ok(MkfsReport {
            copies: copies.collect(),
            superblock: self.sb,
            density_changed: self.density_changed,
            writes: self.writes,
            bytes_written: self.bytes,
        })
    }

    /// The place of the superblock, in bytes.
    fn place(&self) -> u64 {
        self.sb.sblockloc as u64
    }

    /// Clears an older superblock that the new one does not overwrite, so that no reader finds it.
    async fn forget_old(&mut self) -> Result<(), MkfsError> {
        for place in superblock::SEARCH {
            if place == self.place()
                || place + SBLOCK_SIZE as u64 > self.device.geometry().bytes
                || place < self.place() && self.device.geometry().sector > SBLOCK_SIZE as u32
            {
                continue;
            }
            let old = self.device.read(place, SBLOCK_SIZE).await?;
            use superblock::SuperblockError as E;
            if !matches!(Superblock::parse(&old), Err(E::Magic { .. } | E::TooShort { .. })) {
                self.send(place, &[0; SBLOCK_SIZE]).await?;
            }
        }
        self.forget_pair().await?;
        self.forget_log().await
    }

    /// Clears the identity of a DualFS.
    async fn forget_pair(&mut self) -> Result<(), MkfsError> {
        let unit = dualfs::IDENTITY_SIZE.max(self.device.geometry().sector as usize);
        if unit as u64 > self.device.geometry().bytes {
            return Ok(());
        }
        use dualfs::IdentityError as E;
        let old = self.device.read(0, unit).await?;
        match dualfs::Identity::read(&old) {
            Err(E::Magic { .. } | E::TooShort { .. }) => Ok(()),
            _ => self.send(0, &vec![0; unit]).await,
        }
    }

    /// Clears the superblocks of an LFS, all of them: a reader that misses the first one looks for
    /// another.
    async fn forget_log(&mut self) -> Result<(), MkfsError> {
        let geometry = self.device.geometry();
        let unit = lfs::SUPERBLOCK_SIZE.max(geometry.sector as usize);
        let fits = |place: u64| place.checked_add(unit as u64).is_some_and(|e| e <= geometry.bytes);
        if !fits(lfs::LABEL_BYTES) {
            return Ok(());
        }
        let old = self.device.read(lfs::LABEL_BYTES, unit).await?;
        use lfs::SuperblockError as E;
        let mut places = vec![lfs::LABEL_BYTES];
        match lfs::Superblock::read(&old) {
            Ok(sb) => {
                let all = sb.sboffs.iter().filter(|addr| **addr > 0);
                places.extend(all.map(|addr| sb.byte_of(*addr)));
            }
            Err(E::Magic { .. } | E::TooShort { .. }) => return Ok(()),
            Err(_) => {}
        }
        for place in places {
            if fits(place) && place.is_multiple_of(unit as u64) {
                self.send(place, &vec![0; unit]).await?;
            }
        }
        Ok(())
    }

    /// Lays out the first directories and counts the free space, so that every copy of the
    /// superblock has the right totals when it is first written.
    fn count_all(&mut self) -> Vec<Root> {
        let roots = self.roots();
        for cg in 0..self.sb.ncg {
            let counts = self.group(cg, &roots).0.cs;
            self.sb.cstotal.add(&counts);
            counts.encode(&mut self.summary[cg as usize * Csum::SIZE..], self.endian);
        }
        roots
    }

    /// The first directories: the root and, on request, `.snap`. Each takes one fragment at the
    /// start of a free block.
    fn roots(&self) -> Vec<Root> {
        let frag = self.sb.frag as u64;
        let first = (self.sb.csaddr as u64 + self.sb.summary_frags()).next_multiple_of(frag);
        let mut contents = vec![0; self.sb.frag_size()];
        dir::write_first_chunk(&mut contents[..dir::CHUNK], self.endian, 2, 2);
        let mut root =
            Root { ino: ROOT_INO, addr: first, links: 2, mode: 0o755, contents, depth: 0 };
        if !self.options.snapshot_dir {
            return vec![root];
        }
        let dot = dir::entry_size(1);
        let dots = dot + dir::entry_size(2);
        self.endian.put_u16(&mut root.contents, dot + dir::RECLEN_OFFSET, (dots - dot) as u16);
        let left = (dir::CHUNK - dots) as u16;
        let rest = &mut root.contents[dots..];
        dir::write_entry(rest, self.endian, 3, left, dir::DT_DIR, b".snap");
        root.links = 3;
        let mut contents = vec![0; self.sb.frag_size()];
        dir::write_first_chunk(&mut contents[..dir::CHUNK], self.endian, 3, 2);
        let addr = first + frag;
        let snap = Root { ino: ROOT_INO + 1, addr, links: 2, mode: 0o775, contents, depth: 1 };
        vec![root, snap]
    }

    /// A group's header, with the right counts but not yet encoded, and its bitmaps in place.
    fn group(&mut self, cg: u32, roots: &[Root]) -> (Group, Vec<u8>) {
        if cg == 0 || cg + 1 == self.sb.ncg {
            return self.build_group(cg, roots);
        }
        if self.middle.is_none() {
            self.middle = Some(self.build_group(cg, roots));
        }
        let (mut group, bytes) = self.middle.clone().expect("just made");
        group.cgx = cg;
        (group, bytes)
    }

    fn build_group(&self, cg: u32, roots: &[Root]) -> (Group, Vec<u8>) {
        let sb = &self.sb;
        let (frag, layout) = (sb.frag as u32, GroupLayout::standard(sb));
        let mut group = Group::empty(sb, cg);
        let mut bytes = vec![0; sb.block_size()];
        group.initediblk = sb.stored_ready(sb.ipg.min(INODE_BLOCKS * sb.inopb));
        group.cs.nifree = sb.ipg as i32;
        let roots = if cg == 0 { roots } else { &[] };
        if cg == 0 {
            group.cs.ndir = roots.len() as i32;
            let used = ROOT_INO as u32 + roots.len() as u32;
            group.cs.nifree -= used as i32;
            (0..used).for_each(|ino| bitmap::set(&mut bytes[layout.inodes.clone()], ino));
        }
        // Free fragments lie before the superblock's copy (except in the first group), and after
        // the inodes (in the first group, after the summary).
        let before = if cg == 0 { 0 } else { sb.sblkno as u32 };
        let after = sb.dblkno as u32 + if cg == 0 { sb.summary_frags() as u32 } else { 0 };
        let map = &mut bytes[layout.frags.clone()];
        (0..before).chain(after..group.ndblk).for_each(|bit| bitmap::set(map, bit));
        roots.iter().for_each(|root| bitmap::clear(map, root.addr as u32));
        for blk in 0..group.ndblk.div_ceil(frag) {
            let bits = bitmap::block_bits(&bytes[layout.frags.clone()], blk, frag);
            if bits == bitmap::block_mask(frag) {
                group.cs.nbfree += 1;
                bitmap::cluster_account(&mut bytes, self.endian, &layout, blk, true);
            } else {
                group.cs.nffree += bits.count_ones() as i32;
                bitmap::frag_sum(bits, frag, &mut group.frsum, 1);
            }
        }
        (group, bytes)
    }

    /// Writes a group in one contiguous request: superblock copy, header, the first inode blocks.
    async fn write_group(&mut self, cg: u32, roots: &[Root], now: i64) -> Result<(), MkfsError> {
        let (mut group, mut header) = self.group(cg, roots);
        self.sb.stamp(&mut group, now);
        group.encode(&mut header, self.endian);
        Group::seal(&mut header, self.endian, &self.sb);
        let start = self.sb.cg_superblock(cg);
        let from_start = |addr: u64| self.sb.byte_of(addr - start) as usize;
        let header_at = from_start(self.sb.cg_header(cg));
        let inodes_at = from_start(self.sb.cg_inodes(cg));
        let (inodes, each) = (self.sb.inodes_ready(&group) as usize, self.sb.inode_size());
        let mut bytes = vec![0; inodes_at + inodes * each];
        let copy_at = self.sb.byte_of(start);
        self.encode_superblock(&mut bytes[..SBLOCK_SIZE], copy_at, self.sb.magic);
        bytes[header_at..header_at + header.len()].copy_from_slice(&header);
        for slot in bytes[inodes_at..].chunks_exact_mut(each) {
            let mut free = Dinode::zeroed();
            free.generation = self.random.next_u32();
            self.sb.put_inode(&free, slot, self.endian);
        }
        for root in roots.iter().filter(|_| cg == 0) {
            let at = inodes_at + root.ino as usize * each;
            self.encode_root(root, &mut bytes[at..at + each], now);
        }
        self.send(copy_at, &bytes).await
    }

    fn encode_root(&self, root: &Root, slot: &mut [u8], now: i64) {
        let mut node = self.sb.inode(slot, self.endian);
        node.mode = inode::IFDIR | root.mode;
        node.nlink = root.links;
        node.size = dir::CHUNK as u64;
        node.blocks = u64::from(self.options.frag_size / SECTOR);
        (node.atime, node.mtime, node.ctime, node.birthtime) = (now, now, now, now);
        node.db[0] = root.addr as i64;
        node.freelink_or_dirdepth = root.depth;
        self.sb.put_inode(&node, slot, self.endian);
    }

    fn encode_superblock(&self, bytes: &mut [u8], at: u64, magic: i32) {
        let mut copy = self.sb.clone();
        copy.sblockactualloc = at as i64;
        copy.magic = magic;
        copy.store(bytes, self.endian);
        copy.seal(bytes, self.endian);
    }

    async fn write_standard(&mut self, magic: i32) -> Result<(), MkfsError> {
        let mut bytes = vec![0; SBLOCK_SIZE];
        self.encode_superblock(&mut bytes, self.place(), magic);
        self.send(self.place(), &bytes).await
    }

    /// Writes the last bytes of the boot area: enough of the geometry to find the superblock's
    /// copies. UFS1 has other structures there.
    async fn write_recovery(&mut self) -> Result<(), MkfsError> {
        if self.options.version == UfsVersion::Ufs1 {
            return Ok(());
        }
        let sector = self.device.geometry().sector as usize;
        let at = self.place() - sector as u64;
        let mut bytes = self.device.read(at, sector).await?.to_vec();
        let sb = &self.sb;
        let fields = [sb.magic, sb.fsbtodb, sb.sblkno, sb.fpg, sb.ncg as i32];
        let record = &mut bytes[sector - RECOVERY_SIZE..];
        for (i, value) in fields.into_iter().enumerate() {
            self.endian.put_i32(record, 4 * i, value);
        }
        self.send(at, &bytes).await
    }

    async fn send(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        let most = self.device.geometry().request(usize::MAX);
        let mut at = offset;
        for piece in bytes.chunks(most) {
            self.device.write(at, IoBuf::from_slice(piece), WriteFlags::META).await?;
            at += piece.len() as u64;
            self.writes += 1;
            self.bytes += piece.len() as u64;
        }
        Ok(())
    }
}

/// One of the first directories.
struct Root {
    ino: u64,
    addr: u64,
    links: u16,
    mode: u16,
    contents: Vec<u8>,
    depth: u32,
}

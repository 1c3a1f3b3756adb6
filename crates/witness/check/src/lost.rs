//! Places for inodes without a name: the root directory, lost+found, and entries in it.

use ordo_block::BlockError;
use ordo_format::ufs2::dir::{self, CHUNK, DT_DIR, DT_REG};
use ordo_format::ufs2::inode::IFDIR;
use ordo_format::ufs2::{Dinode, NDADDR};

use crate::Finding;
use crate::state::{DirBlock, DirInfo, InodeInfo, ROOT, Run};

/// The most lost+found directories; each holds thousands of entries.
const MOST_LOST: usize = 1000;

/// The place of an added entry: the directory, the name, and the entry's byte on the device.
type Placed = (u32, Box<[u8]>, u64);

impl Run<'_> {
    /// Makes a root directory if there is none.
    pub async fn check_root(&mut self) -> Result<(), BlockError> {
        if self.is_used(ROOT) {
            return Ok(());
        }
        let known = |finding: &Finding| {
            matches!(finding, Finding::RootNotDirectory { .. })
                || matches!(
                    finding,
                    Finding::BadMode { ino: ROOT, .. } | Finding::BadSize { ino: ROOT, .. }
                )
        };
        if !self.report.findings.iter().any(known) {
            self.finding(Finding::RootMissing {});
        }
        if self.groups[0].inodes.len() <= ROOT as usize
            || !self.make_directory(ROOT, ROOT, 0o755).await?
        {
            self.finding(Finding::NoSpace { ino: ROOT });
        }
        Ok(())
    }

    /// Makes an inode an empty directory of one fragment. Returns false if there is no space.
    async fn make_directory(
        &mut self,
        ino: u32,
        parent: u32,
        mode: u16,
    ) -> Result<bool, BlockError> {
        let Some(addr) = self.allocate(1) else { return Ok(false) };
        let mut bytes = vec![0; self.sb.frag_size()];
        dir::write_first_chunk(&mut bytes[..CHUNK], self.endian, ino, parent);
        self.io.change(addr, 0, &bytes).await?;
        let old = self.load_inode(ino).await?;
        let mut node = Dinode::zeroed();
        let now = self.sb.time;
        node.mode = IFDIR | mode;
        node.nlink = 2;
        node.size = CHUNK as u64;
        node.blocks = self.sectors(1);
        (node.atime, node.mtime, node.ctime, node.birthtime) = (now, now, now, now);
        node.generation = old.generation.wrapping_add(1);
        node.db[0] = addr as i64;
        node.freelink_or_dirdepth = u32::from(ino != ROOT);
        self.store_inode(ino, &node).await?;
        let info = InodeInfo { kind: DT_DIR, empty: false, links: 2, found: 0 };
        *self.info_mut(ino).expect("an initialised inode") = info;
        self.relinked.insert(ino);
        self.moved_inodes.insert(ino);
        self.dir_of.insert(ino, self.dirs.len());
        let block = DirBlock { lbn: 0, addr, bytes: bytes.len() };
        self.dirs.push(DirInfo {
            ino,
            size: CHUNK as u64,
            blocks: vec![block],
            cut: false,
            parent: None,
            name: Box::default(),
            entry_at: 0,
            dotdot: parent,
            dotdot_at: self.sb.byte_of(addr) + dir::entry_size(1) as u64,
            entries: 0,
            moved: true,
            alive: true,
        });
        Ok(true)
    }

    /// Gives a directory without blocks a first block of free space. The check then finds its `.`
    /// and `..` missing.
    pub async fn give_first_chunk(&mut self, idx: usize) -> Result<(), BlockError> {
        let Some(addr) = self.allocate(1) else { return Ok(()) };
        let mut bytes = vec![0; self.sb.frag_size()];
        dir::write_free_chunk(&mut bytes[..CHUNK], self.endian);
        self.io.change(addr, 0, &bytes).await?;
        let ino = self.dirs[idx].ino;
        let mut node = self.load_inode(ino).await?;
        node.size = CHUNK as u64;
        node.db[0] = addr as i64;
        node.blocks += self.sectors(1);
        self.store_inode(ino, &node).await?;
        self.dirs[idx].size = CHUNK as u64;
        self.dirs[idx].blocks.push(DirBlock { lbn: 0, addr, bytes: bytes.len() });
        Ok(())
    }

    /// Moves a directory without a parent to lost+found.
    pub async fn move_to_lost(&mut self, idx: usize) -> Result<(), BlockError> {
        let ino = self.dirs[idx].ino;
        match self.put_in_lost(ino, DT_DIR).await? {
            None => self.finding(Finding::NoSpace { ino }),
            Some((parent, name, at)) => {
                self.relinked.insert(parent);
                let info = &mut self.dirs[idx];
                (info.parent, info.name, info.entry_at) = (Some(parent), name, at);
                info.moved = true;
            }
        }
        Ok(())
    }

    /// Moves a file without a name to lost+found. Returns false if there is no space.
    pub async fn put_file_in_lost(&mut self, ino: u32, kind: u8) -> Result<bool, BlockError> {
        let Some((parent, name, _)) = self.put_in_lost(ino, kind).await? else { return Ok(false) };
        if let Some(path @ None) = self.wanted.get_mut(&ino) {
            *path = Some((parent, name));
        }
        if let Some(info) = self.info_mut(ino) {
            info.found += 1;
        }
        Ok(true)
    }

    /// Adds an entry to lost+found, or to the root directory itself on a disk without space for
    /// one.
    async fn put_in_lost(&mut self, ino: u32, kind: u8) -> Result<Option<Placed>, BlockError> {
        if self.lost.is_empty() && !self.add_lost().await? {
            return self.put_in_root(ino, kind).await;
        }
        loop {
            let idx = *self.lost.last().expect("there is one");
            if let Some(placed) = self.put_in(idx, ino, kind).await? {
                return Ok(Some(placed));
            }
            if !self.add_lost().await? {
                return self.put_in_root(ino, kind).await;
            }
        }
    }

    async fn put_in_root(&mut self, ino: u32, kind: u8) -> Result<Option<Placed>, BlockError> {
        let Some(&root) = self.dir_of.get(&ROOT) else { return Ok(None) };
        self.put_in(root, ino, kind).await
    }

    /// Adds an entry named after its inode to a directory; `None` if there is no space.
    async fn put_in(
        &mut self,
        idx: usize,
        ino: u32,
        kind: u8,
    ) -> Result<Option<Placed>, BlockError> {
        for attempt in 0..10 {
            let name = match attempt {
                0 => format!("#{ino:08}"),
                _ => format!("#{ino:08}.{attempt}"),
            };
            if self.lookup(idx, name.as_bytes()).await?.is_some() {
                continue;
            }
            let at = self.add_entry(idx, name.as_bytes(), ino, kind).await?;
            return Ok(at.map(|at| (self.dirs[idx].ino, name.into_bytes().into(), at)));
        }
        Ok(None)
    }

    /// Finds or makes the next lost+found directory. Returns false if there is no space.
    async fn add_lost(&mut self) -> Result<bool, BlockError> {
        let Some(&root) = self.dir_of.get(&ROOT) else { return Ok(false) };
        let tried = self.lost.len();
        for n in 0..MOST_LOST {
            let name = if n == 0 { "lost+found".into() } else { format!("lost+found.{n}") };
            match self.lookup(root, name.as_bytes()).await? {
                Some(ino) => {
                    let Some(&idx) = self.dir_of.get(&ino) else { continue };
                    if self.dirs[idx].alive && !self.lost.contains(&idx) {
                        self.lost.push(idx);
                        return Ok(true);
                    }
                }
                None => return self.make_lost(root, name.as_bytes(), tried).await,
            }
        }
        Ok(false)
    }

    async fn make_lost(
        &mut self,
        root: usize,
        name: &[u8],
        tried: usize,
    ) -> Result<bool, BlockError> {
        let Some(ino) = self.allocate_inode() else { return Ok(false) };
        if !self.make_directory(ino, ROOT, 0o700).await? {
            return Ok(false);
        }
        let idx = self.dirs.len() - 1;
        let Some(at) = self.add_entry(root, name, ino, DT_DIR).await? else {
            self.dirs[idx].alive = false;
            self.free_file(ino).await?;
            return Ok(false);
        };
        self.relinked.insert(ROOT);
        let info = &mut self.dirs[idx];
        (info.parent, info.name, info.entry_at) = (Some(ROOT), name.into(), at);
        self.lost.push(idx);
        assert!(self.lost.len() > tried);
        Ok(true)
    }

    /// A free inode among the initialised ones.
    fn allocate_inode(&self) -> Option<u32> {
        let free = |(cg, group): (usize, &crate::state::GroupState)| {
            let first = cg as u32 * self.sb.ipg;
            let within = group
                .inodes
                .iter()
                .enumerate()
                .position(|(i, info)| info.kind == 0 && first + i as u32 > ROOT)?;
            Some(first + within as u32)
        };
        self.groups.iter().enumerate().find_map(free)
    }

    /// The inode of a name in a directory.
    async fn lookup(&mut self, idx: usize, name: &[u8]) -> Result<Option<u32>, BlockError> {
        for block in self.dirs[idx].blocks.clone() {
            let bytes = self.io.read(block.addr, self.sb.frags_for(block.bytes as u64)).await?;
            let end = self.end_in_block(idx, &block);
            let mut entries = dir::entries(&bytes[..end], self.endian).filter_map(Result::ok);
            if let Some(entry) = entries.find(|entry| !entry.is_free() && entry.name == name) {
                return Ok(Some(entry.ino));
            }
        }
        Ok(None)
    }

    /// The bytes of a block within the directory's size.
    fn end_in_block(&self, idx: usize, block: &DirBlock) -> usize {
        let start = block.lbn << self.sb.bshift;
        (self.dirs[idx].size - start).min(block.bytes as u64) as usize
    }

    /// Adds an entry to a directory. Returns its byte on the device; `None` if it does not fit and
    /// the directory cannot grow.
    async fn add_entry(
        &mut self,
        idx: usize,
        name: &[u8],
        ino: u32,
        kind: u8,
    ) -> Result<Option<u64>, BlockError> {
        let needs = dir::entry_size(name.len());
        // New entries go behind the last one, so each old chunk is searched only once.
        let blocks = self.dirs[idx].blocks.clone();
        for block in blocks.iter().rev().take(2).rev() {
            let mut bytes = self.io.read(block.addr, self.sb.frags_for(block.bytes as u64)).await?;
            let end = self.end_in_block(idx, block);
            let entries = dir::entries(&bytes[..end], self.endian).filter_map(Result::ok);
            let Some((at, used, reclen)) = entries
                .map(|entry| (entry.at, entry.needs(), usize::from(entry.reclen)))
                .find(|(_, used, reclen)| reclen - used >= needs)
            else {
                continue;
            };
            if used > 0 {
                self.endian.put_u16(&mut bytes, at + dir::RECLEN_OFFSET, used as u16);
            }
            let new = at + used;
            let rest = (reclen - used) as u16;
            dir::write_entry(&mut bytes[new..], self.endian, ino, rest, kind, name);
            let chunk = at / CHUNK * CHUNK;
            self.io.change(block.addr, chunk, &bytes[chunk..chunk + CHUNK]).await?;
            self.dirs[idx].entries += 1;
            return Ok(Some(self.sb.byte_of(block.addr) + new as u64));
        }
        let Some((addr, within)) = self.grow(idx).await? else { return Ok(None) };
        let mut chunk = [0; CHUNK];
        dir::write_entry(&mut chunk, self.endian, ino, CHUNK as u16, kind, name);
        self.io.change(addr, within, &chunk).await?;
        self.dirs[idx].entries += 1;
        Ok(Some(self.sb.byte_of(addr) + within as u64))
    }

    /// Grows a directory by one chunk. Returns the chunk's block and its byte in the block.
    /// Directories with indirect blocks do not grow here.
    async fn grow(&mut self, idx: usize) -> Result<Option<(u64, usize)>, BlockError> {
        let (ino, size) = (self.dirs[idx].ino, self.dirs[idx].size);
        let lbn = size >> self.sb.bshift;
        let within = (size & self.sb.qbmask as u64) as usize;
        if lbn >= NDADDR as u64 {
            return Ok(None);
        }
        let last = self.dirs[idx].blocks.iter().position(|block| block.lbn == lbn);
        let (addr, bytes) = match last.map(|i| self.dirs[idx].blocks[i]) {
            Some(block) if within < block.bytes => (block.addr, block.bytes),
            Some(block) => {
                // The directory moves to a longer run of fragments elsewhere.
                let frags = self.sb.frags_for(block.bytes as u64) as u32;
                let Some(addr) = self.allocate(frags + 1) else { return Ok(None) };
                let old = self.io.read(block.addr, frags.into()).await?;
                self.io.change(addr, 0, &old).await?;
                self.release(block.addr, frags);
                // Until the inode is written, the directory on the device has the old run of
                // fragments.
                self.pin(block.addr, frags);
                (addr, block.bytes + self.sb.frag_size())
            }
            None => {
                let Some(addr) = self.allocate(1) else { return Ok(None) };
                (addr, self.sb.frag_size())
            }
        };
        if within.is_multiple_of(self.sb.frag_size()) {
            let fresh = vec![0; self.sb.frag_size()];
            self.io.change(addr, within, &fresh).await?;
        }
        let mut node = self.load_inode(ino).await?;
        let had = last.map_or(0, |i| self.dirs[idx].blocks[i].bytes);
        node.blocks += self.sectors(((bytes - had) >> self.sb.fshift) as u32);
        node.db[lbn as usize] = addr as i64;
        node.size += CHUNK as u64;
        self.store_inode(ino, &node).await?;
        self.dirs[idx].size = node.size;
        let block = DirBlock { lbn, addr, bytes };
        match last {
            Some(i) => self.dirs[idx].blocks[i] = block,
            None => self.dirs[idx].blocks.push(block),
        }
        self.move_references(idx, lbn, addr);
        Ok(Some((addr, within)))
    }

    /// Moves references after a directory's block moved: to its `..`, and to the entries of its
    /// subdirectories.
    fn move_references(&mut self, idx: usize, lbn: u64, addr: u64) {
        if lbn == 0 {
            let within = self.dirs[idx].dotdot_at & self.sb.qfmask as u64;
            // The first chunk, and so the first fragment, has both `.` and `..`.
            self.dirs[idx].dotdot_at = self.sb.byte_of(addr) + within;
        }
    }

    /// Whether an inode has no contents that anyone would miss.
    pub fn is_empty_file(&self, ino: u32) -> bool {
        self.info(ino).is_some_and(|info| info.empty && matches!(info.kind, DT_REG | dir::DT_SOCK))
    }
}

//! Passes 3 and 4: every directory is inside the root, and every inode has as many names as its
//! link count.

use std::collections::BTreeSet;

use ordo_format::lfs::ROOT_INO;
use ordo_format::lfs::dir::{self, CHUNK, DirHeader, type_of_mode};
use ordo_format::ufs2::inode::IFDIR;

use super::state::LfsRun;
use super::{LfsCheckError, LfsFinding};

impl LfsRun<'_> {
    /// Gives inodes without a name one, or clears them, and corrects link counts.
    pub(super) async fn check_links(&mut self) -> Result<(), LfsCheckError> {
        if self.inodes.get(&ROOT_INO).is_none_or(|k| k.inode.kind() != IFDIR) {
            return Ok(());
        }
        self.break_loops().await?;
        for ino in self.orphans() {
            let (size, nlink) = (self.inodes[&ino].inode.size, self.inodes[&ino].inode.nlink);
            if nlink <= 0 {
                self.report.add(LfsFinding::Orphan { ino });
                self.clear(ino);
                continue;
            }
            self.report.add(LfsFinding::Unreferenced { ino, size });
            if !self.reconnect(ino).await? {
                self.report.add(LfsFinding::NoRoomToReconnect { ino });
            }
        }
        self.check_parents().await?;
        self.check_marks();
        self.check_counts().await
    }

    /// Removes the marks of orphans from inodes that have a name.
    fn check_marks(&mut self) {
        let named: Vec<u64> =
            self.inodes.iter().filter(|(_, k)| k.links > 0).map(|(ino, _)| *ino).collect();
        for ino in named.into_iter().filter(|ino| *ino != ROOT_INO) {
            let mut entry = self.entry(ino);
            if entry.is_orphan() {
                self.report.add(LfsFinding::NamedOrphan { ino });
                entry.nextfree = 0;
                self.set_entry(ino, &entry);
            }
        }
    }

    fn orphans(&self) -> Vec<u64> {
        let named = |ino: u64, links: i64, is_dir: bool, parent: Option<u64>| match is_dir {
            true => ino == ROOT_INO || parent.is_some(),
            false => links > 0,
        };
        let all = self.inodes.iter();
        all.filter(|(ino, k)| !named(**ino, k.links, k.inode.kind() == IFDIR, k.parent))
            .map(|(ino, _)| *ino)
            .collect()
    }

    /// Breaks loops of directories that have names only in each other: one of them loses such a
    /// name.
    async fn break_loops(&mut self) -> Result<(), LfsCheckError> {
        let mut inside = BTreeSet::from([ROOT_INO]);
        let all: Vec<u64> = self.inodes.keys().copied().collect();
        for start in all {
            let (mut way, mut at) = (Vec::new(), start);
            let mut seen = BTreeSet::new();
            while !inside.contains(&at) {
                if !seen.insert(at) {
                    // `at` is on the loop. Without its name it is the topmost of the directories
                    // below it.
                    if let Some(known) = self.inodes.get_mut(&at) {
                        known.parent = None;
                        known.links -= 1;
                        if let Some((addr, place)) = known.named_at.take() {
                            self.remove_entry(addr, place).await?;
                        }
                    }
                    break;
                }
                way.push(at);
                match self.inodes.get(&at).and_then(|k| k.parent) {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
            inside.extend(way);
        }
        Ok(())
    }

    /// Gives an inode a name in `lost+found`, or in the root if there is no such directory. Returns
    /// false if there is no space.
    async fn reconnect(&mut self, ino: u64) -> Result<bool, LfsCheckError> {
        let name = format!("#{ino}");
        for dir in [self.find_lost_found().await?, Some(ROOT_INO)].into_iter().flatten() {
            if dir != ino && self.add_entry(dir, name.as_bytes(), ino).await? {
                let known = self.inodes.get_mut(&ino).expect("in use");
                known.links += 1;
                known.parent = Some(dir);
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn find_lost_found(&mut self) -> Result<Option<u64>, LfsCheckError> {
        for (addr, bytes) in self.directory_chunks(ROOT_INO).await? {
            let entries = dir::entries(self.sb.width, &bytes).flatten();
            let found = entries.filter(|e| e.name == b"lost+found").map(|e| e.ino).last();
            debug_assert!(addr.0 > 0);
            if let Some(ino) = found
                && self.inodes.get(&ino).is_some_and(|k| k.inode.kind() == IFDIR)
            {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// The chunks of a directory, each with its block and its place in the block.
    async fn directory_chunks(
        &mut self,
        ino: u64,
    ) -> Result<Vec<((i64, usize), Vec<u8>)>, LfsCheckError> {
        let Some(known) = self.inodes.get(&ino) else { return Ok(Vec::new()) };
        let (blocks, size) = (known.blocks.clone(), known.inode.size);
        let mut out = Vec::new();
        for (lbn, addr) in blocks {
            let frags = self.sb.block_bytes(lbn, size) / u64::from(self.sb.fsize);
            let bytes = self.io.read(addr as u64, frags).await?;
            let have = size.saturating_sub(lbn * u64::from(self.sb.bsize)) as usize;
            let whole = &bytes[..have.min(bytes.len())];
            let chunks = whole.chunks_exact(CHUNK).enumerate();
            out.extend(chunks.map(|(i, chunk)| ((addr, i * CHUNK), chunk.to_vec())));
        }
        Ok(out)
    }

    /// Puts a name into free space of a directory.
    async fn add_entry(
        &mut self,
        dir_ino: u64,
        name: &[u8],
        ino: u64,
    ) -> Result<bool, LfsCheckError> {
        let width = self.sb.width;
        let need = dir::entry_size(width, name.len());
        let kind = type_of_mode(self.inodes[&ino].inode.mode);
        for ((addr, within), mut bytes) in self.directory_chunks(dir_ino).await? {
            let own = |e: &dir::LfsDirEntry<'_>| match e.ino {
                0 => 0,
                _ => dir::entry_size(width, e.name.len()),
            };
            let found = dir::entries(width, &bytes)
                .flatten()
                .find(|e| e.reclen - own(e) >= need)
                .map(|e| (e.at, own(&e), e.reclen));
            let Some((at, own, reclen)) = found else { continue };
            if own > 0 {
                let mut head = DirHeader::read(width, &bytes[at..]);
                head.reclen = own as u16;
                head.write(width, &mut bytes[at..]);
            }
            dir::put(width, &mut bytes[at + own..at + reclen], ino, kind, name);
            self.io.change(addr as u64, within, &bytes).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Corrects every `..` to the directory's parent.
    async fn check_parents(&mut self) -> Result<(), LfsCheckError> {
        let dirs = self.inodes.iter().filter(|(_, k)| k.inode.kind() == IFDIR);
        let all: Vec<_> = dirs.map(|(ino, k)| (*ino, k.parent, k.dotdot)).collect();
        for (ino, parent, dotdot) in all {
            let right = if ino == ROOT_INO { Some(ROOT_INO) } else { parent };
            let (Some(right), Some((stored, addr, at))) = (right, dotdot) else { continue };
            if stored != right {
                self.report.add(LfsFinding::DotEntry { ino, name: "..", stored, right });
                self.point_entry(addr, at, right).await?;
            }
            if let Some(parent) = self.inodes.get_mut(&right) {
                parent.links += 1;
            }
        }
        Ok(())
    }

    async fn check_counts(&mut self) -> Result<(), LfsCheckError> {
        let all: Vec<_> =
            self.inodes.iter().map(|(ino, k)| (*ino, i64::from(k.inode.nlink), k.links)).collect();
        for (ino, stored, found) in all {
            let Ok(right) = i16::try_from(found) else { continue };
            if stored != found && found > 0 {
                self.report.add(LfsFinding::LinkCount { ino, stored, found });
                self.inodes.get_mut(&ino).expect("in use").inode.nlink = right;
                self.store_inode(ino).await?;
            }
        }
        Ok(())
    }
}

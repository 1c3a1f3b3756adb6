//! Priming: learns the state of a device before requests pass.

use ordo_format::ext4::superblock::{SUPERBLOCK_AT, feature};
use ordo_format::ext4::{Geometry, Superblock};

use super::{Ext, dirs, files};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::Class;
use crate::runs::Role;

/// The root directory's inode (`EXT4_ROOT_INO`).
const ROOT_INODE: u64 = 2;
/// The most bytes of an inode table that are read at once.
const STEP: u64 = 1 << 20;
/// The number of rounds in which nodes of block maps are read: the deepest tree has six levels.
const ROUNDS: usize = 8;

/// The decoder of an image, if it holds ext2, ext3 or ext4.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(SUPERBLOCK_AT, &mut bytes).ok()?;
    let (_, geometry) = Superblock::read(&bytes).ok()?;
    if geometry.incompat & feature::JOURNAL_DEV != 0 {
        return Some(super::outside::over(image, geometry));
    }
    let mut ext = Ext::new(geometry);
    ext.prime(image, state);
    Some(Box::new(ext))
}

fn block(image: &dyn DiskImage, g: &Geometry, block: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; g.block_size()];
    image.read_at(block.checked_shl(g.block_shift)?, &mut bytes).ok()?;
    Some(bytes)
}

impl Ext {
    /// Learns everything on the device. A block that cannot be read is left out; it is learned when
    /// it is written.
    fn prime(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let g = self.geometry.clone();
        for index in 0..g.desc_blocks() {
            let Some(bytes) = block(image, &g, g.desc_block(index)) else { break };
            self.layout.descriptors_written(&g, index, &bytes);
        }
        for group in 0..g.groups {
            self.prime_group(image, group, state);
            state.claims.clear();
        }
        for _ in 0..ROUNDS {
            for at in self.files.unread() {
                if let Some(bytes) = block(image, &g, at) {
                    self.files.node_written(at, &bytes, state);
                }
            }
            state.claims.clear();
        }
        self.prime_names(image, state);
        let journal =
            self.files.runs.iter().find(|run| {
                run.ino == u64::from(g.journal_inode) && run.role == Role::Data { lbn: 0 }
            });
        if let Some(bytes) = journal.and_then(|run| block(image, &g, run.start)) {
            self.log.superblock(&bytes);
        }
    }

    fn prime_names(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        state.names.set_root(ROOT_INODE);
        let g = &self.geometry;
        let dirs = self.files.runs.iter().filter(|run| run.class == Class::Directory);
        for run in dirs.filter(|run| matches!(run.role, Role::Data { .. })) {
            for at in run.start..run.end() {
                let Some(bytes) = block(image, g, at) else { return };
                dirs::learn(run.ino, at, &bytes, &mut state.names);
            }
        }
    }

    fn prime_group(&mut self, image: &dyn DiskImage, group: u32, state: &mut DecoderState) {
        let g = &self.geometry;
        let Some(places) = self.layout.group(group) else { return };
        let (size, first) = (g.inode_size, u64::from(group) * u64::from(g.inodes_per_group) + 1);
        let used = u64::from(g.inodes_per_group.saturating_sub(places.unused)) * size as u64;
        let table = places.inode_table << g.block_shift;
        let mut done = 0;
        while done < used {
            let mut bytes = vec![0; STEP.min(used - done) as usize];
            if image.read_at(table + done, &mut bytes).is_err() {
                return;
            }
            for (i, raw) in bytes.chunks_exact(size).enumerate() {
                let ino = first + done / size as u64 + i as u64;
                files::inode_written(&mut self.files, ino as u32, raw, state);
            }
            done += bytes.len() as u64;
        }
    }
}

//! The extended-attribute area: at most two blocks, with pointers in the inode.
//!
//! A changed area is written to new blocks. One store of the inode makes the pointers lead to them
//! instead of the old ones. In memory the buffer of an old block moves to the new address, as that
//! of the last fragments of a growing file does. So a dependency on the old contents becomes one on
//! the new contents.

use std::rc::Rc;

use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_ordering::{Op, PointerTo, What};
use ordo_ufs::io_error;
use ordo_vfs::{Errno, FsError, FsResult};

use crate::{Ffs, FfsInode};

/// The cache's key of the n-th block of an inode's area.
fn key(ip: &FfsInode, n: usize) -> BufKey {
    BufKey::file(ip.ino(), -1 - n as i64)
}

impl Ffs {
    /// The blocks of an area of `len` bytes: the address and the number of fragments of each.
    fn area_blocks(&self, ip: &FfsInode) -> FsResult<Vec<(u64, u32)>> {
        let d = ip.pointers();
        let (len, bsize) = (d.extsize as usize, self.sb.block_size());
        if len > 2 * bsize {
            return Err(FsError::corrupt(format_args!(
                "{}: {len} bytes of extended attributes do not fit their blocks; run a check (fsck)",
                self.inode_place(ip.ino())
            )));
        }
        let pieces = (0..len.div_ceil(bsize)).map(|n| {
            let bytes = (len - n * bsize).min(bsize);
            let frags = self.sb.frags_for(bytes as u64) as u32;
            let address = self.check_address(ip, -1 - n as i64, d.extb[n], frags)?;
            Ok((address, frags))
        });
        pieces.collect()
    }

    async fn area_buffer(
        &self,
        ip: &FfsInode,
        n: usize,
        (address, frags): (u64, u32),
    ) -> FsResult<BufRef> {
        let (byte, size) = (self.sb.byte_of(address), frags as usize * self.sb.frag_size());
        self.cache.get(key(ip, n), byte, size, BufferClass::Metadata).await.map_err(io_error)
    }

    pub(crate) async fn read_area(&self, ip: &FfsInode) -> FsResult<Rc<[u8]>> {
        let blocks = self.area_blocks(ip)?;
        let len = ip.pointers().extsize as usize;
        let mut area = Vec::with_capacity(len);
        for (n, (address, frags)) in blocks.into_iter().enumerate() {
            area.extend_from_slice(&self.area_buffer(ip, n, (address, frags)).await?.read());
        }
        area.truncate(len);
        Ok(area.into())
    }

    pub(crate) async fn write_area(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        area: &[u8],
    ) -> FsResult<()> {
        let old = self.area_blocks(ip)?;
        let bsize = self.sb.block_size();
        if area.len() > 2 * bsize {
            return Err(Errno::NoSpace.into());
        }
        // These buffers are pinned, because after the first change no read may fail.
        let _inode = self.inode_buffer(ip.ino()).await?;
        let _groups = self.groups_of(old.iter().map(|(address, _)| *address)).await?;
        let mut moved = Vec::with_capacity(2);
        for (n, block) in old.iter().enumerate() {
            moved.push(self.area_buffer(ip, n, *block).await?);
        }
        let pieces: Vec<&[u8]> = area.chunks(bsize).collect();
        let mut new: Vec<(u64, u32)> = Vec::with_capacity(2);
        for piece in &pieces {
            let frags = self.sb.frags_for(piece.len() as u64) as u32;
            let preferred = self.preference(ip, 0, None);
            match self.allocate(op, ip, preferred, frags).await {
                Ok(address) => new.push((address, frags)),
                Err(error) => {
                    for (address, frags) in new {
                        self.free(op, address, frags).await?;
                    }
                    return Err(error);
                }
            }
        }
        let mut buffers = Vec::with_capacity(2);
        for (n, (piece, (address, frags))) in pieces.iter().zip(&new).enumerate() {
            let (byte, len) = (self.sb.byte_of(*address), *frags as usize * self.sb.frag_size());
            let buf = match moved.get(n) {
                Some(buf) => {
                    self.cache.move_to(buf, byte).await;
                    self.cache.resize(buf, len);
                    buf.clone()
                }
                None => {
                    self.cache.get_new(key(ip, n), Some(byte), len, BufferClass::Metadata).await
                }
            };
            buf.write(|bytes| {
                bytes[..piece.len()].copy_from_slice(piece);
                bytes[piece.len()..].fill(0);
            });
            self.cache.mark_dirty(&buf);
            buffers.push(buf);
        }
        self.hang_area(op, ip, area.len(), &old, &new, &buffers).await?;
        for n in new.len()..old.len() {
            self.cache.forget(key(ip, n)).await;
        }
        for (address, frags) in old {
            self.free(op, address, frags).await?;
        }
        Ok(())
    }

    /// Stores the inode with pointers to the new blocks instead of the old ones.
    async fn hang_area(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        len: usize,
        old: &[(u64, u32)],
        new: &[(u64, u32)],
        buffers: &[BufRef],
    ) -> FsResult<()> {
        let inode = self.inode_buffer(ip.ino()).await?;
        let frags = |blocks: &[(u64, u32)]| blocks.iter().map(|(_, frags)| frags).sum::<u32>();
        let set = |ip: &FfsInode| {
            let mut pointers = ip.pointers_mut();
            pointers.extb = [0; 2];
            for (pointer, (address, _)) in pointers.extb.iter_mut().zip(new) {
                *pointer = address.cast_signed();
            }
            pointers.extsize = len as u32;
            let mut d = ip.record_mut();
            d.blocks = d
                .blocks
                .saturating_add(self.sectors(frags(new)))
                .saturating_sub(self.sectors(frags(old)));
        };
        let whats = buffers
            .iter()
            .enumerate()
            .map(|(n, init)| What::SetPointer {
                ino: ip.ino(),
                block: -1 - n as i64,
                old: old.get(n).copied().unwrap_or((0, 0)),
                new: new[n],
                to: PointerTo::Attributes,
                init,
            })
            .chain((new.len() < old.len()).then_some(What::ClearPointers { ino: ip.ino() }));
        let whats: Vec<What<'_>> = whats.collect();
        let mut admitted = Vec::with_capacity(3);
        for what in &whats {
            admitted.push(op.admit(what).await.map_err(io_error)?);
        }
        set(ip);
        for change in admitted {
            self.put_inode(op, &inode, ip, change);
        }
        Ok(())
    }
}

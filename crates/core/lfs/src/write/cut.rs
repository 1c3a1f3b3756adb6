//! Setting a file's size, and removing blocks.

use ordo_cache::{BufKey, BufRef};
use ordo_format::lfs::{LE, LfsInode, NDADDR, NIADDR, NO_ADDRESS, lbn};
use ordo_ordering::{Op, What};
use ordo_ufs::{Fill, io_error};
use ordo_vfs::{Errno, FsResult};

use super::layout::{LogInode, LogLayout};
use super::store::{decode, is_set, put_slot};
use super::tree::{Node, span};

/// The blocks and pointers to be removed with a range of a file. All indirect blocks that the
/// removal needs are in memory.
#[derive(Default)]
struct Removed {
    /// The blocks, by number, with the pointers to them.
    blocks: Vec<(i64, i64)>,
    /// The inode's pointers that are reset.
    slots: Vec<usize>,
    /// The pointers in indirect blocks that are reset.
    pointers: Vec<(BufRef, Vec<usize>)>,
}

impl LogLayout {
    pub(super) async fn set_size(&self, op: &mut Op<'_>, ip: &LogInode, size: u64) -> FsResult<()> {
        let old = ip.size();
        let is_empty = ip.pointers().mapped == 0;
        match () {
            () if size > old => self.extend_to(op, ip, size).await,
            () if is_empty => self.note_size(op, ip, size).await,
            () if size < old || size == 0 => self.cut_to(op, ip, size).await,
            () => Ok(()),
        }
    }

    async fn note_size(&self, op: &mut Op<'_>, ip: &LogInode, size: u64) -> FsResult<()> {
        let (ino, old, directory) = (ip.ino(), ip.size(), ip.is_directory());
        if size == old {
            return Ok(());
        }
        let pin = self.store.pin(ino).await?;
        let what = What::SetSize { ino, old, new: size, directory };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.record_mut().size = size;
        self.put(op, &pin, ip, admitted, |_| {});
        Ok(())
    }

    /// Makes a file longer: its old last block becomes a whole block, and its new last block is
    /// mapped.
    async fn extend_to(&self, op: &mut Op<'_>, ip: &LogInode, size: u64) -> FsResult<()> {
        let (old, bsize) = (ip.size(), self.store.bsize() as u64);
        let (last, old_last) = ((size - 1) / bsize, old.saturating_sub(1) / bsize);
        if !old.is_multiple_of(bsize) && old_last < last {
            self.zero_behind(op, ip, old_last, (old % bsize) as usize).await?;
            self.note_size(op, ip, (old_last + 1) * bsize).await?;
        }
        let from = if old > last * bsize { (old % bsize) as usize } else { self.store.bsize() };
        match self.zero_behind(op, ip, last, from).await {
            Ok(()) => self.note_size(op, ip, size).await,
            Err(error) => {
                if ip.size() != old {
                    self.cut_to(op, ip, old).await?;
                }
                Err(error)
            }
        }
    }

    /// Makes a block mapped, whole and dirty, and fills it with zeros from byte `from` on.
    async fn zero_behind(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        number: u64,
        from: usize,
    ) -> FsResult<()> {
        let buf = self.make_file_block(op, ip, number, self.store.bsize(), Fill::Keep).await?;
        buf.write(|bytes| bytes[from..].fill(0));
        self.store.cache.mark_dirty(&buf);
        Ok(())
    }

    async fn cut_to(&self, op: &mut Op<'_>, ip: &LogInode, size: u64) -> FsResult<()> {
        let bsize = self.store.bsize() as u64;
        if size > 0 {
            // A file never ends in a hole. A last block that stays whole is not read, because a
            // long file is truncated in many steps.
            let last = (size - 1) / bsize;
            let stays = size.is_multiple_of(bsize) && self.store.is_mapped(ip.ino(), last).await?.0;
            if !stays {
                self.zero_behind(op, ip, last, (size - last * bsize) as usize).await?;
            }
        }
        let (ino, old, directory) = (ip.ino(), ip.size(), ip.is_directory());
        let what = What::SetSize { ino, old, new: size, directory };
        ip.record_mut().size = size;
        let cut = self.remove_blocks(op, ip, size.div_ceil(bsize), u64::MAX, what).await;
        if cut.is_err() {
            ip.record_mut().size = old;
        }
        cut
    }

    /// Removes blocks `from..end` in the change `what`, and stores the inode.
    pub(super) async fn remove_blocks(
        &self,
        op: &mut Op<'_>,
        ip: &LogInode,
        from: u64,
        end: u64,
        what: What<'_>,
    ) -> FsResult<()> {
        let (ino, store) = (ip.ino(), &self.store);
        let pin = store.pin(ino).await?;
        let inode = decode(&pin);
        let removed = self.find_removed(ino, &inode, from, end).await?;
        for (number, pointer) in &removed.blocks {
            store.cache.forget(BufKey::file(ino, *number)).await;
            let mut state = store.state.borrow_mut();
            let is_on_data = store.is_on_data(&inode, *number);
            match (state.data.as_mut().filter(|_| is_on_data), *pointer > 0) {
                (Some(data), true) => data.free(*pointer),
                (Some(data), false) => data.release(),
                (None, true) => {
                    state.sub_live(*pointer, store.written_bytes(&inode, *number) as u64);
                }
                (None, false) => {
                    state.pending = state.pending.saturating_sub(store.bsize() as u64);
                }
            }
        }
        let gone = removed.blocks.len() as u64;
        let mapped = ip.pointers().mapped.saturating_sub(gone);
        ip.pointers_mut().mapped = mapped;
        for (buf, indexes) in removed.pointers {
            let admitted = op.admit(&what).await.map_err(io_error)?;
            let ranges: Vec<_> = indexes.iter().map(|i| i * 8..i * 8 + 8).collect();
            op.apply(&buf, &ranges, admitted, |bytes| {
                indexes.iter().for_each(|i| LE.put_i64(bytes, i * 8, NO_ADDRESS));
            });
        }
        let admitted = op.admit(&what).await.map_err(io_error)?;
        let has_pointers = self.has_pointers(inode.mode, inode.size);
        self.put(op, &pin, ip, admitted, |d| {
            let mut bytes = [0; LfsInode::SIZE];
            d.encode(&mut bytes, LE);
            if has_pointers {
                removed.slots.iter().for_each(|slot| put_slot(&mut bytes, *slot, NO_ADDRESS));
            }
            *d = LfsInode::decode(&bytes, LE);
        });
        Ok(())
    }

    /// Finds everything that must be removed with blocks `from..end`. Nothing is changed.
    async fn find_removed(
        &self,
        ino: u64,
        inode: &LfsInode,
        from: u64,
        end: u64,
    ) -> FsResult<Removed> {
        let (mut out, nindir) = (Removed::default(), self.store.nindir());
        if !self.has_pointers(inode.mode, inode.size) {
            return Ok(out);
        }
        for slot in 0..NDADDR {
            let pointer = inode.db[slot];
            if (from..end).contains(&(slot as u64)) && is_set(pointer) {
                out.blocks.push((slot as i64, pointer));
                out.slots.push(slot);
            }
        }
        let mut todo = Vec::new();
        for (tree, first) in lbn::trees(nindir).into_iter().take(NIADDR).enumerate() {
            let (node, pointer) = (Node { level: tree + 1, first }, inode.ib[tree]);
            if is_set(pointer) && meets(node, from, end, nindir) {
                if is_inside(node, from, end, nindir) {
                    out.blocks.push((node.number(), pointer));
                    out.slots.push(NDADDR + tree);
                }
                todo.push((node, pointer));
            }
        }
        // More pointers than the device has blocks are damage, perhaps a loop.
        let mut left = self.store.all_blocks();
        while let Some((node, pointer)) = todo.pop() {
            let buf = self.store.indirect(ino, node.number(), pointer).await?;
            let whole = is_inside(node, from, end, nindir);
            let mut reset = Vec::new();
            let below = span(node.level - 1, nindir);
            let begin = from.saturating_sub(node.first) / below;
            let stop = end.saturating_sub(node.first).div_ceil(below).min(nindir);
            for index in begin as usize..stop as usize {
                let (child, pointer) =
                    (node.child(index, nindir), self.store.pointer_in(&buf, index));
                if !is_set(pointer) || !meets(child, from, end, nindir) {
                    continue;
                }
                left = left.checked_sub(1).ok_or(Errno::Corrupt)?;
                if is_inside(child, from, end, nindir) {
                    out.blocks.push((child.number(), pointer));
                    reset.push(index);
                }
                if child.level > 0 {
                    todo.push((child, pointer));
                }
            }
            if !whole && !reset.is_empty() {
                out.pointers.push((buf, reset));
            }
        }
        Ok(out)
    }
}

fn meets(node: Node, from: u64, end: u64, nindir: u64) -> bool {
    node.first < end && node.first.saturating_add(span(node.level, nindir)) > from
}

fn is_inside(node: Node, from: u64, end: u64, nindir: u64) -> bool {
    node.first >= from && node.first.saturating_add(span(node.level, nindir)) <= end
}

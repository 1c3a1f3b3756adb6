//! Contents of files: reading with read-ahead, writing in clusters.

use std::rc::Rc;

use ordo_cache::BufKey;
use ordo_ordering::{Op, OpKind, What};
use ordo_vfs::{Errno, FileType, FsResult, Ino, flags};

use crate::layout::{Fill, Layout};
use crate::names::require;
use crate::{LayoutInode, Ufs, io_error};

/// The number of clusters beyond the present one that read-ahead keeps under way.
const AHEAD_CLUSTERS: u64 = 5;

/// The most blocks by which a request may overtake the request that it should follow.
const OVERTAKING_MAX: u64 = 32;

impl<L: Layout> Ufs<L> {
    /// A regular file, for reading or writing.
    pub(crate) async fn regular(&self, ino: Ino) -> FsResult<Rc<LayoutInode<L>>> {
        let ip = self.inode_of(ino).await?;
        match ip.file_type() {
            FileType::Regular => Ok(ip),
            FileType::Directory => Err(Errno::IsDir.into()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    pub(crate) async fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let ip = self.regular(ino).await?;
        let read = {
            let _guard = ip.lock.read().await;
            self.still_there(&ip)?;
            self.read_at(&ip, offset, buf).await?
        };
        let now = self.now();
        let wanted = self.shared.config.access_times.wants(&ip.record(), now);
        if wanted && !buf.is_empty() && !self.is_read_only() {
            let _guard = ip.lock.write().await;
            self.still_there(&ip)?;
            let mut op = self.begin(OpKind::Attributes).await?;
            let what = What::SetAttributes { ino: ip.ino() };
            self.update_inode(&mut op, &ip, what, |d| d.atime = now).await?;
            op.end().await.map_err(io_error)?;
        }
        Ok(read)
    }

    /// Reads the contents of an inode. The caller holds its lock.
    pub(crate) async fn read_at(
        &self,
        ip: &Rc<LayoutInode<L>>,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<usize> {
        let block = self.limits().block as u64;
        let end = ip.size().min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        while at < end {
            let lbn = at / block;
            let within = (at % block) as usize;
            let n = ((block - at % block).min(end - at)) as usize;
            let done = (at - offset) as usize;
            let out = &mut buf[done..done + n];
            let key = BufKey::file(ip.ino(), lbn.cast_signed());
            let found = match self.cache().peek(key).filter(|buf| !buf.is_partial()) {
                Some(buf) => Some(buf),
                None => {
                    let wanted = self.worth_reading(ip, lbn, end - at);
                    self.layout().read_block(ip, lbn, wanted).await?
                }
            };
            match found {
                Some(buf) => {
                    let bytes = buf.read();
                    // A part of the last block that was never allocated reads as zeros.
                    let have = bytes.len().saturating_sub(within).min(n);
                    out[..have].copy_from_slice(&bytes[within..within + have]);
                    out[have..].fill(0);
                    drop(bytes);
                    let whole = within == 0 && (n as u64 == block || at + n as u64 == ip.size());
                    if whole && self.shared.config.drop_behind && !buf.is_dirty() {
                        self.cache().drop_behind(&buf);
                    }
                }
                None => out.fill(0),
            }
            self.cache().runtime().cpu().bytes(n);
            at += n as u64;
            self.read_ahead(ip, lbn);
        }
        Ok((end.max(offset) - offset) as usize)
    }

    fn cluster(&self) -> usize {
        self.cache().config().cluster.max(self.limits().block)
    }

    /// The number of bytes worth reading from block `lbn` on, for a reader that asks for `asked`
    /// bytes. With drop-behind, no more is read ahead than has been read from this file so far.
    fn worth_reading(&self, ip: &LayoutInode<L>, lbn: u64, asked: u64) -> usize {
        let (drop_behind, cluster) = (self.shared.config.drop_behind, self.cluster() as u64);
        let worth = match self.goes_on(ip, lbn) || lbn == 0 {
            true if drop_behind => {
                asked.saturating_add(lbn.saturating_mul(self.limits().block as u64))
            }
            true => cluster,
            false => asked,
        };
        worth.min(cluster) as usize
    }

    /// Whether a read of block `lbn` continues the last one. With drop-behind, several requests of
    /// one reader come at the same time, and overtake each other.
    fn goes_on(&self, ip: &LayoutInode<L>, lbn: u64) -> bool {
        let slack = if self.shared.config.drop_behind { OVERTAKING_MAX } else { 0 };
        lbn.abs_diff(ip.next_read.get()) <= slack
    }

    /// Keeps read-ahead going for a sequential reader.
    fn read_ahead(&self, ip: &Rc<LayoutInode<L>>, lbn: u64) {
        let sequential = self.goes_on(ip, lbn);
        let next = if sequential { ip.next_read.get().max(lbn + 1) } else { lbn + 1 };
        ip.next_read.set(next);
        if !sequential || lbn == 0 {
            if !sequential {
                ip.ahead_until.set(lbn + 1);
            }
            return;
        }
        let blocks = (self.cluster() / self.limits().block) as u64;
        let last = ip.size().div_ceil(self.limits().block as u64);
        let most = if self.shared.config.drop_behind { lbn + 1 } else { u64::MAX };
        let goal = (lbn + 1 + (AHEAD_CLUSTERS * blocks).min(most)).min(last);
        let from = ip.ahead_until.get().max(lbn + 1);
        // Read-ahead takes whole clusters, except at the end of the file.
        if from + blocks > goal && !(goal == last && from < last) {
            return;
        }
        let to = (from + blocks).min(last);
        ip.ahead_until.set(to);
        let (fs, ip) = (self.clone(), ip.clone());
        drop(self.cache().runtime().spawn("read-ahead", async move {
            // A truncation waits for this lock, so no block is read while it is freed. An error
            // here is ignored: the reader's own request for the block reports it.
            let _guard = ip.lock.read().await;
            let mut at = from;
            while at < to && !ip.gone.get() && at * (fs.limits().block as u64) < ip.size() {
                let key = BufKey::file(ip.ino(), at.cast_signed());
                let passed = fs.shared.config.drop_behind && at < ip.next_read.get();
                if !passed && fs.cache().peek(key).is_none() {
                    let _ = fs.layout().read_block(&ip, at, fs.cluster()).await;
                }
                at += 1;
            }
        }));
    }

    pub(crate) async fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let ip = self.regular(ino).await?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        self.write_locked(&ip, offset, data).await
    }

    /// Writes to a file. The caller holds its lock.
    pub(crate) async fn write_locked(
        &self,
        ip: &Rc<LayoutInode<L>>,
        offset: u64,
        data: &[u8],
    ) -> FsResult<usize> {
        let appends = offset == ip.size();
        let file_flags = ip.record().flags;
        let allowed = !flags::immutable(file_flags) && (!flags::append_only(file_flags) || appends);
        require(allowed, Errno::NotPermitted)?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64);
        require(end.is_some_and(|end| end <= self.limits().file_max), Errno::TooBig)?;
        let _pinned = self.pin([&**ip]).await?;
        let most = self.cache().ordering().blocks_max().saturating_mul(self.limits().block as u64);
        let mut done = 0;
        for piece in data.chunks(usize::try_from(most).unwrap_or(usize::MAX)) {
            match self.write_piece(ip, offset + done as u64, piece).await {
                Ok(written) if written == piece.len() => done += written,
                Ok(written) => return Ok(done + written),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes as much as one operation may.
    async fn write_piece(
        &self,
        ip: &Rc<LayoutInode<L>>,
        offset: u64,
        data: &[u8],
    ) -> FsResult<usize> {
        let mut op = self.begin(OpKind::Write).await?;
        let (before, blocks) = (ip.size(), ip.record().blocks);
        if offset > before {
            self.fill_gap(&mut op, ip, offset).await?;
        }
        let (written, failure) = self.write_blocks(&mut op, ip, offset, data).await;
        if written == 0 && ip.size() != before {
            self.layout().truncate(&mut op, ip, before).await?;
        }
        if written > 0 {
            let size = ip.size().max(offset + written as u64);
            if size != before || op.has_changed() || !self.has_times_of_now(ip, blocks) {
                self.store_size(&mut op, ip, (before, size)).await?;
            }
        }
        op.end().await.map_err(io_error)?;
        match failure {
            Some(error) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }

    /// Whether a write that has changed no metadata need not store the inode: times advance in
    /// steps, and the inode has the times of this step and as many blocks as before the write.
    fn has_times_of_now(&self, ip: &LayoutInode<L>, blocks: u64) -> bool {
        if self.shared.config.time_grain.is_zero() {
            return false;
        }
        let (now, record) = (self.now(), ip.record());
        (record.mtime, record.ctime, record.blocks) == (now, now, blocks)
    }

    /// Prepares a write beyond the end of a file. The old last block comes to lie inside of the
    /// file, so it is made a whole block, with zeros behind the old end.
    async fn fill_gap(
        &self,
        op: &mut Op<'_>,
        ip: &Rc<LayoutInode<L>>,
        offset: u64,
    ) -> FsResult<()> {
        let block = self.limits().block as u64;
        let size = ip.size();
        let last = size.saturating_sub(1) / block;
        if size.is_multiple_of(block) || last == offset / block {
            return Ok(());
        }
        let buf = self.layout().make_block(op, ip, last, block as usize, Fill::Keep).await?;
        buf.write(|bytes| bytes[(size % block) as usize..].fill(0));
        self.cache().mark_dirty(&buf);
        // A layout with fragments takes the length of the last block from the size.
        let whole = (last + 1) * block;
        let what = What::SetSize { ino: ip.ino(), old: size, new: whole, directory: false };
        self.update_inode(op, ip, what, |d| d.size = whole).await
    }

    /// Writes block after block. Returns the number of bytes written, and the error that ended it.
    async fn write_blocks(
        &self,
        op: &mut Op<'_>,
        ip: &Rc<LayoutInode<L>>,
        offset: u64,
        data: &[u8],
    ) -> (usize, Option<ordo_vfs::FsError>) {
        let block = self.limits().block;
        let mut written = 0;
        while written < data.len() {
            let at = offset + written as u64;
            let lbn = at / block as u64;
            let within = (at % block as u64) as usize;
            let n = (block - within).min(data.len() - written);
            let piece = &data[written..written + n];
            let old_size = ip.size();
            // Bytes beyond the end of the file need not be read.
            let covers = within == 0 && at + n as u64 >= old_size || n == block;
            let inside = (lbn + 1) * block as u64 <= old_size;
            let fill = match covers {
                true => Fill::Overwritten,
                false if inside => Fill::Part(within, n),
                false => Fill::Keep,
            };
            let buf = match self.layout().make_block(op, ip, lbn, within + n, fill).await {
                Ok(buf) => buf,
                Err(error) => return (written, Some(error)),
            };
            if !self.cache().ordering().whole_inodes() {
                // The inode may be stored before all of the write is done, with the pointers set so
                // far.
                ip.record_mut().size = old_size.max(at + n as u64);
            }
            let used = (old_size.saturating_sub(lbn * block as u64)).min(buf.len() as u64);
            let used = used as usize;
            // Behind the file's end a block may have bytes of an older file: one that is reused or
            // enlarged, and one whose contents were not all written when the power went.
            let ends_here = within + n >= used;
            let range = within..if ends_here { buf.len() } else { within + n };
            buf.overwrite(range, piece);
            let behind = if ends_here { used..within } else { used..buf.len() };
            if !behind.is_empty() {
                buf.write_part(behind, |bytes| bytes.fill(0));
            }
            self.cache().mark_dirty(&buf);
            self.cache().runtime().cpu().bytes(n);
            written += n;
            if within + n == block
                && let Err(error) = self.block_written(op, ip, lbn).await
            {
                return (written, Some(error));
            }
        }
        (written, None)
    }

    /// Notes that a block was written to its end. If it completes a cluster of blocks that were
    /// written in order, the cluster goes to the device, and no task waits for that.
    async fn block_written(
        &self,
        op: &mut Op<'_>,
        ip: &Rc<LayoutInode<L>>,
        lbn: u64,
    ) -> FsResult<()> {
        let (mut first, next) = ip.writing.get();
        if lbn != next {
            first = lbn;
        }
        ip.writing.set((first, lbn + 1));
        let count = lbn + 1 - first;
        if count as usize * self.limits().block >= self.cluster() {
            ip.writing.set((lbn + 1, lbn + 1));
            self.layout().cluster_complete(op, ip, first, count).await?;
            if self.shared.config.drop_behind {
                let key = |lbn: u64| BufKey::file(ip.ino(), lbn.cast_signed());
                let written = (first..first + count).filter_map(|lbn| self.cache().peek(key(lbn)));
                written.for_each(|buf| self.cache().drop_behind(&buf));
                self.cache().drop_behind_rest();
            }
        }
        Ok(())
    }

    /// Stores a file's size in place of an old one, and the times of a write.
    async fn store_size(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<L>,
        (old, size): (u64, u64),
    ) -> FsResult<()> {
        let now = self.now();
        let what = What::SetSize { ino: ip.ino(), old, new: size, directory: false };
        self.update_inode(op, ip, what, |d| {
            d.size = size;
            (d.mtime, d.ctime) = (now, now);
        })
        .await
    }
}

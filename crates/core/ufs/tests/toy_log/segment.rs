//! The writer: writes everything dirty to the end of the log, then a checkpoint.
//!
//! Order in the log: contents and directories, which change pointers; indirect blocks; inodes, in
//! blocks of sixteen, which change the IFILE; the IFILE's blocks; its inode. About every sixteenth
//! block is a summary.

use std::rc::Rc;

use ordo_block::{BlockError, Fault, IoBuf, Operation};
use ordo_cache::{BufKey, BufRef, Gathered, Occasion, WriteOut, Writer};
use ordo_format::lfs::{LE, LfsInode};
use ordo_runtime::sync::Mutex;
use ordo_vfs::FsError;

use crate::store::{BLOCK, Checkpoint, DIRECT, IFILE, INDIRECT, INODES, Store, decode};

/// The blocks of one request, its summary included.
const REQUEST_BLOCKS: usize = 16;

pub struct SegmentWriter {
    store: Rc<Store>,
    one: Mutex<()>,
}

impl SegmentWriter {
    pub fn new(store: Rc<Store>) -> SegmentWriter {
        SegmentWriter { store, one: Mutex::new((), "the writer of the toy log", 0) }
    }

    /// Reads and pins everything that is needed to assign addresses: inodes of files with dirty
    /// blocks, and their indirect blocks.
    async fn pin(&self) -> Result<Vec<BufRef>, BlockError> {
        let store = &self.store;
        let mut held = Vec::new();
        for buf in store.cache.all_dirty() {
            let BufKey { file, block } = buf.key();
            if file != INODES {
                let inode = store.pin(file).await.map_err(as_block_error)?;
                let root = decode(&inode).ib[0];
                held.push(inode);
                if block >= DIRECT.cast_signed() {
                    held.push(store.indirect(file, root).await.map_err(as_block_error)?);
                }
            }
            buf.written().await;
        }
        Ok(held)
    }

    /// Gives everything dirty a place in the log. It never waits, so nothing changes meanwhile.
    fn gather(&self) -> (Vec<Gathered>, Checkpoint) {
        let store = &self.store;
        let last = store.checkpoint.get();
        let mut log = Log { store, next: last.next, full: Vec::new(), open: None };
        let dirty = |wanted: &dyn Fn(BufKey) -> bool| {
            let mut bufs = store.cache.all_dirty();
            bufs.retain(|buf| wanted(buf.key()));
            bufs.sort_by_key(|buf| buf.key());
            bufs
        };
        let is_file = |key: BufKey| key.file != INODES && key.file != IFILE;
        for buf in dirty(&|key| is_file(key) && key.block >= 0) {
            let place = log.add(&buf);
            self.point(buf.key(), place);
        }
        for buf in dirty(&|key| is_file(key) && key.block == INDIRECT) {
            let place = log.add(&buf);
            self.change_inode(buf.key().file, |d| d.ib[0] = place);
        }
        let inodes = dirty(&|key| key.file == INODES && key.block != IFILE.cast_signed());
        for some in inodes.chunks(BLOCK / LfsInode::SIZE) {
            let place = log.add_inodes(some);
            for buf in some.iter().filter(|buf| decode(buf).mode != 0) {
                let (block, at) = store.entry_place(buf.key().block.cast_unsigned());
                block.write(|bytes| LE.put_i64(bytes, at, place));
                store.cache.mark_dirty(&block);
            }
        }
        for buf in dirty(&|key| key.file == IFILE) {
            let place = log.add(&buf);
            self.point(buf.key(), place);
        }
        let ifile = log.add_inodes(&[store.ifile.borrow()[0].clone()]);
        let (requests, next) = log.end();
        let serial = last.serial + 1;
        (requests, Checkpoint { serial, ifile: ifile.cast_unsigned(), next })
    }

    /// Sets the pointer to a block of a file, which has a place now.
    fn point(&self, key: BufKey, place: i64) {
        let lbn = key.block.cast_unsigned();
        if lbn < DIRECT {
            return self.change_inode(key.file, |d| d.db[lbn as usize] = place);
        }
        let pointers = self.store.cache.peek(BufKey::file(key.file, INDIRECT)).expect("held");
        pointers.write(|bytes| LE.put_i64(bytes, (lbn - DIRECT) as usize * 8, place));
        self.store.cache.mark_dirty(&pointers);
    }

    fn change_inode(&self, ino: u64, change: impl FnOnce(&mut LfsInode)) {
        let buf = self.store.cache.peek(BufKey::file(INODES, ino.cast_signed())).expect("held");
        let mut d = decode(&buf);
        change(&mut d);
        buf.write(|bytes| d.encode(bytes, LE));
        self.store.cache.mark_dirty(&buf);
    }

    async fn write_log(&self) -> Result<(), BlockError> {
        let store = &self.store;
        let (requests, checkpoint, done) = {
            let _closed = store.order.close().await;
            if !store.has_free_space(0) {
                let fault = Fault::OutOfRange;
                return Err(BlockError { op: Operation::Write, offset: 0, len: 0, fault });
            }
            let _pinned = self.pin().await?;
            let (requests, checkpoint) = self.gather();
            (requests, checkpoint, store.done.get())
        };
        for request in requests {
            store.cache.write_gathered(request, false).await?;
        }
        store.cache.barrier().await?;
        store.store_checkpoint(checkpoint).await.map_err(as_block_error)?;
        store.checkpoint.set(checkpoint);
        store.made.borrow_mut().push((checkpoint.serial, done));
        Ok(())
    }
}

fn as_block_error(error: FsError) -> BlockError {
    let fault = Fault::Io(error.errno.raw());
    BlockError { op: Operation::Write, offset: 0, len: 0, fault }
}

impl Writer for SegmentWriter {
    fn write_out(&self, dirty: Vec<BufRef>, occasion: Occasion) -> WriteOut<'_> {
        Box::pin(async move {
            if occasion == Occasion::Memory && !self.store.order.is_quiescent() {
                return Ok(());
            }
            let _one = self.one.lock().await;
            match dirty.iter().any(|buf| buf.is_dirty()) {
                true => self.write_log().await,
                false => Ok(()),
            }
        })
    }
}

/// Requests that follow one another in the log.
struct Log<'s> {
    store: &'s Store,
    next: u64,
    full: Vec<Gathered>,
    open: Option<Gathered>,
}

impl Log<'_> {
    /// The place of the next block.
    fn free_space(&mut self) -> i64 {
        if self.open.as_ref().is_some_and(|r| r.len() / BLOCK == REQUEST_BLOCKS - 1) {
            self.close();
        }
        self.open.get_or_insert_with(|| Gathered::at(self.next * BLOCK as u64));
        self.next += 1;
        (self.next - 1).cast_signed()
    }

    fn open(&mut self) -> &mut Gathered {
        self.open.as_mut().expect("there is room")
    }

    fn add(&mut self, buf: &BufRef) -> i64 {
        let place = self.free_space();
        let store = self.store;
        store.cache.gather(self.open(), buf);
        place
    }

    fn add_inodes(&mut self, inodes: &[BufRef]) -> i64 {
        let place = self.free_space();
        let mut block = IoBuf::zeroed(BLOCK);
        for (slot, buf) in block.chunks_exact_mut(LfsInode::SIZE).zip(inodes) {
            slot.copy_from_slice(&buf.read());
        }
        let store = self.store;
        store.cache.gather_bytes(self.open(), block, inodes);
        place
    }

    /// Ends a request with its summary, which has the number of blocks.
    fn close(&mut self) {
        let Some(mut request) = self.open.take() else { return };
        let mut summary = IoBuf::zeroed(BLOCK);
        LE.put_u64(&mut summary, 0, (request.len() / BLOCK) as u64);
        self.store.cache.gather_bytes(&mut request, summary, &[]);
        self.next += 1;
        self.full.push(request);
    }

    fn end(mut self) -> (Vec<Gathered>, u64) {
        self.close();
        (self.full, self.next)
    }
}

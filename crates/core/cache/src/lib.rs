//! The buffer cache: delayed writes, clustering, the syncer, and the gate every write passes.
//!
//! Layers, lowest first:
//! - [`buffer`]: one block in memory, keyed by (file, logical block), so that a layout may choose
//!   its address as late as when it is written.
//! - [`gate`]: [`WriteGate`], through which an ordering sees the [image](WriteImage) of each block
//!   before it is written and learns when the write is durable.
//! - [`Cache`]: look-up, bounded memory ([`evict`]), writing ([`mod@write`], `waves`), ageing
//!   ([`syncer`]).
//! - [`writer`]: writing in another way than in place; `devices`: one space of addresses over
//!   several devices.
//!
//! Invariants:
//! - At most one write of a buffer is under way at a time, and none once [`Cache::forget`] has
//!   returned. The buffer's address may then be given to another one.
//! - The device gets an image: the buffer's bytes at one moment. Image and buffer share these bytes
//!   until the gate or the seal changes the image, or the file system changes the buffer; the first
//!   of these changes makes a copy. A live buffer is never rolled back, and never locked for I/O.
//! - A buffer is clean only when the gate has let its last version be written whole.
//! - A failed write leaves the buffer dirty and the cache [failed](Cache::failure). No write after
//!   it is reported durable.
//! - Memory stays within the configured size, except for buffers that running operations pin.
//!
//! Typical sequence: [`Cache::get`], change the bytes with [`Buffer::write`],
//! [`Cache::mark_dirty`]; then the syncer, [`Cache::write_now`], or [`Cache::flush_all`] writes it.

pub mod buffer;
mod config;
mod devices;
pub mod evict;
pub mod gate;
mod lists;
mod missing;
mod pace;
pub mod syncer;
mod waves;
pub mod write;
pub mod writer;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_runtime::{Runtime, sync::Notify, sync::Semaphore};
use rustc_hash::FxHashMap;

pub use buffer::{BufKey, BufRef, Buffer, BufferClass};
pub use config::{CacheConfig, CacheStats, LOST_MAX, WritersWait};
pub use gate::{NoGate, WriteDecision, WriteGate, WriteImage, WritePreview};

pub use writer::{Gathered, Occasion, WriteOut, Writer};

use devices::Devices;
use lists::{CleanList, DirtyList};
use write::Epochs;

/// Completes a block's image just before it is written: sets check-hashes over the bytes that the
/// gate has left. Its last argument has the places of the gate's rollbacks.
pub type Seal = Box<dyn Fn(&Buffer, &mut WriteImage, &[usize])>;

/// A buffer cache over a device. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Cache {
    shared: Rc<Shared>,
}

struct Shared {
    runtime: Runtime,
    devices: Devices,
    gate: Rc<dyn WriteGate>,
    config: CacheConfig,
    volatile: bool,
    seal: RefCell<Option<Seal>>,
    writer: RefCell<Option<Weak<dyn Writer>>>,
    buffers: RefCell<FxHashMap<BufKey, BufRef>>,
    clean: RefCell<CleanList>,
    dirty: RefCell<DirtyList>,
    bytes: Cell<usize>,
    /// The most bytes of buffers for now: the configured capacity, or less while the machine is
    /// short of memory.
    allowance: Cell<usize>,
    /// Wakes the syncer: the first buffer is dirty, or too many are.
    syncer_wake: Notify,
    /// Signals that the dirty bytes fell below the limit.
    drained: Notify,
    /// The request slots, which bound the requests under way.
    slots: Semaphore,
    /// Buffers whose writes have completed but may not be durable yet, in the order of completion.
    unflushed: RefCell<Vec<(BufRef, u64)>>,
    /// The bytes of those unflushed buffers that leave memory once they are durable.
    unflushed_drop_behind: Cell<usize>,
    /// Whether there are completed writes that may not be durable yet of buffers that the gate does
    /// not follow.
    unflushed_others: Cell<bool>,
    /// Written buffers that should leave memory, but were in use.
    lingering: RefCell<Vec<BufKey>>,
    epochs: Epochs,
    /// The number of flushes under way, and the signal that one has ended.
    flushing: Cell<u32>,
    flushed: Notify,
    failure: Cell<Option<BlockError>>,
    /// The number of buffers that were written whole.
    cleaned: Cell<u64>,
    /// The speed at which buffers become clean.
    pace: pace::Pace,
    stats: RefCell<CacheStats>,
}

impl Cache {
    /// A cache over `device` whose writes pass `gate`. Starts its syncer.
    pub fn new(
        runtime: &Runtime,
        device: impl BlockDevice,
        gate: Rc<dyn WriteGate>,
        config: CacheConfig,
    ) -> Cache {
        Cache::over(runtime, vec![device.erase()], gate, config)
    }

    /// A cache over several devices, one behind the other in one space of addresses: see
    /// [`first_address`](Self::first_address). No buffer and no request crosses from one device
    /// into the next.
    ///
    /// # Panics
    /// The list of devices is empty.
    pub fn over(
        runtime: &Runtime,
        devices: Vec<Device>,
        gate: Rc<dyn WriteGate>,
        config: CacheConfig,
    ) -> Cache {
        let devices = Devices::new(devices);
        let volatile = devices.any_volatile();
        let shared = Shared {
            runtime: runtime.clone(),
            devices,
            gate,
            volatile,
            seal: RefCell::new(None),
            writer: RefCell::new(None),
            buffers: RefCell::new(FxHashMap::default()),
            clean: RefCell::new(CleanList::default()),
            dirty: RefCell::new(DirtyList::default()),
            bytes: Cell::new(0),
            allowance: Cell::new(config.capacity),
            syncer_wake: Notify::new("something dirty", 0),
            drained: Notify::new("fewer dirty buffers", 0),
            slots: Semaphore::new(config.requests_max, "a request slot of the cache", 0),
            unflushed: RefCell::new(Vec::new()),
            unflushed_drop_behind: Cell::new(0),
            unflushed_others: Cell::new(false),
            lingering: RefCell::new(Vec::new()),
            epochs: Epochs::default(),
            flushing: Cell::new(0),
            flushed: Notify::new("a flush of the device", 0),
            failure: Cell::new(None),
            cleaned: Cell::new(0),
            pace: pace::Pace::default(),
            stats: RefCell::new(CacheStats::default()),
            config,
        };
        let cache = Cache { shared: Rc::new(shared) };
        syncer::start(&cache);
        cache
    }

    /// The runtime of the cache.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// The device below, or the first of several. Cached blocks must be read and written through
    /// the cache.
    pub fn device(&self) -> &Device {
        self.shared.devices.first()
    }

    /// The address of the first byte of device `nth`, from 0.
    ///
    /// # Panics
    /// There is no such device.
    pub fn first_address(&self, nth: usize) -> u64 {
        self.shared.devices.base(nth)
    }

    /// The gate that every write passes.
    pub fn gate(&self) -> &dyn WriteGate {
        &*self.shared.gate
    }

    /// The options of the cache.
    pub fn config(&self) -> &CacheConfig {
        &self.shared.config
    }

    /// Charges the processor for the dependencies that the gate has made or met since the last
    /// call.
    #[inline]
    pub fn charge_gate(&self) {
        self.shared.runtime.cpu().dependencies(self.shared.gate.take_work());
    }

    /// Whether a device below may lose writes that were not flushed.
    pub fn is_volatile(&self) -> bool {
        self.shared.volatile
    }

    /// Counters since the cache was made.
    pub fn stats(&self) -> CacheStats {
        let mut stats = self.shared.stats.borrow().clone();
        stats.bytes = self.shared.bytes.get();
        stats.dirty_bytes = self.shared.dirty.borrow().bytes();
        stats
    }

    /// Sets the function that completes each image before it is written.
    pub fn set_seal(&self, seal: Seal) {
        *self.shared.seal.borrow_mut() = Some(seal);
    }

    /// The first failed write, if there was one. After it, no write counts as durable.
    pub fn failure(&self) -> Option<BlockError> {
        self.shared.failure.get()
    }

    /// The buffer of `key`, if it is in memory and is not being read. It may be
    /// [partial](Buffer::is_partial).
    #[inline]
    pub fn peek(&self, key: BufKey) -> Option<BufRef> {
        let buffers = self.shared.buffers.borrow();
        let buf = buffers.get(&key)?;
        if buf.is_loading() {
            return None;
        }
        buf.touch();
        self.shared.runtime.cpu().touch();
        Some(buf.clone())
    }

    /// The buffer of `key`, read from byte `address` of the device if it is not in memory. `len` is
    /// its length in bytes; a buffer in memory keeps its own length.
    ///
    /// # Errors
    /// The device failed.
    #[inline]
    pub async fn get(
        &self,
        key: BufKey,
        address: u64,
        len: usize,
        class: BufferClass,
    ) -> Result<BufRef, BlockError> {
        match self.peek(key) {
            Some(buf) if !buf.is_partial() => Ok(buf),
            _ => self.get_slow(key, address, len, class).await,
        }
    }

    async fn get_slow(
        &self,
        key: BufKey,
        address: u64,
        len: usize,
        class: BufferClass,
    ) -> Result<BufRef, BlockError> {
        loop {
            let found = self.get_run_if(&[(key, len)], address, class, |_, _| true).await?;
            if let Some(buf) = found {
                return Ok(buf);
            }
        }
    }

    /// Reads adjacent buffers from byte `address` on, in one request, up to the first that is in
    /// memory. Buffers in memory keep their contents.
    ///
    /// # Errors
    /// The device failed.
    pub async fn read_run(
        &self,
        run: &[(BufKey, usize)],
        address: u64,
        class: BufferClass,
    ) -> Result<(), BlockError> {
        self.read_run_if(run, address, class, |_, _| true).await
    }

    /// The first buffer of a run, read with the others from byte `address` on if it is not in
    /// memory. For blocks that may move while a read is under way: `stays` says of a buffer and the
    /// first byte from which it was read whether these are its contents. It is asked when the read
    /// is done, before any task sees the buffer; a buffer for which it says no is not kept. Returns
    /// `None` if that is the first one.
    ///
    /// # Errors
    /// The device failed.
    pub async fn get_run_if(
        &self,
        run: &[(BufKey, usize)],
        address: u64,
        class: BufferClass,
        stays: impl Fn(BufKey, u64) -> bool,
    ) -> Result<Option<BufRef>, BlockError> {
        let mut was_read = false;
        loop {
            let key = run[0].0;
            if let Some(buf) = self.peek(key) {
                self.complete(&buf).await?;
                return Ok(Some(buf));
            }
            let loading = self.shared.buffers.borrow().get(&key).cloned();
            match loading {
                Some(buf) => buf.loaded().await,
                None if was_read => return Ok(None),
                None => {
                    self.read_run_if(run, address, class, &stays).await?;
                    was_read = true;
                }
            }
        }
    }

    async fn read_run_if(
        &self,
        run: &[(BufKey, usize)],
        address: u64,
        class: BufferClass,
        stays: impl Fn(BufKey, u64) -> bool,
    ) -> Result<(), BlockError> {
        let total: usize = run.iter().map(|(_, len)| len).sum();
        self.evict(total).await;
        let mut loading = evict::Loading::new(self);
        let mut at = address;
        for (key, len) in run {
            if self.shared.buffers.borrow().contains_key(key) {
                break;
            }
            let buf = Buffer::loading(*key, Some(at), *len, class);
            // The bytes on the device may be from a write without a flush since, whose buffer was
            // evicted.
            buf.volatile_since.set(self.shared.epochs.unflushed());
            self.insert(&buf);
            loading.push(buf);
            at += *len as u64;
        }
        let len = usize::try_from(at - address).expect("a run fits in memory");
        if len == 0 {
            return Ok(());
        }
        self.shared.stats.borrow_mut().reads += 1;
        let bytes = {
            let _slot = self.shared.slots.acquire(1).await;
            self.shared.devices.read(address, len).await?
        };
        loading.fill(bytes, |buf| buf.address().is_none_or(|at| stays(buf.key(), at)));
        Ok(())
    }

    /// The buffer of `key`, without a read: from memory, or new, with `len` zeros. A buffer in
    /// memory keeps its contents and length.
    pub async fn get_new(
        &self,
        key: BufKey,
        address: Option<u64>,
        len: usize,
        class: BufferClass,
    ) -> BufRef {
        let found = self.get_new_if(key, address, len, class, || true).await;
        found.expect("the buffer is always wanted")
    }

    /// As [`get_new`](Self::get_new), or `None` if the buffer is not `wanted` any more when there
    /// is memory for it: its zeros could hide what another task has written there meanwhile. No
    /// other task runs between the question and the return.
    pub async fn get_new_if(
        &self,
        key: BufKey,
        address: Option<u64>,
        len: usize,
        class: BufferClass,
        wanted: impl Fn() -> bool,
    ) -> Option<BufRef> {
        let make = || wanted().then(|| Buffer::zeroed(key, address, len, class));
        self.get_or_make(key, len, make).await.filter(|_| wanted())
    }

    /// The buffer of `key`, from memory, or new: `fill` gets its `len` zeros, and no other task
    /// runs before it has been called. A new buffer is clean and has no address. It is for data
    /// that a layout keeps inside of other blocks.
    pub async fn get_filled(
        &self,
        key: BufKey,
        len: usize,
        class: BufferClass,
        fill: impl FnOnce(&mut [u8]),
    ) -> BufRef {
        let make = || {
            let buf = Buffer::zeroed(key, None, len, class);
            buf.write(fill);
            Some(buf)
        };
        self.get_or_make(key, len, make).await.expect("the buffer is always wanted")
    }

    async fn get_or_make(
        &self,
        key: BufKey,
        len: usize,
        make: impl FnOnce() -> Option<BufRef>,
    ) -> Option<BufRef> {
        loop {
            if let Some(buf) = self.peek(key) {
                return Some(buf);
            }
            let loading = self.shared.buffers.borrow().get(&key).cloned();
            if let Some(buf) = loading {
                buf.loaded().await;
                continue;
            }
            self.evict(len).await;
            if self.shared.buffers.borrow().contains_key(&key) {
                continue;
            }
            let buf = make()?;
            self.insert(&buf);
            return Some(buf);
        }
    }

    /// Removes a buffer from memory, whatever its contents, and waits for a write of it that is
    /// under way. When this returns, its address can be given to another buffer.
    pub async fn forget(&self, key: BufKey) {
        let Some(buf) = self.shared.buffers.borrow().get(&key).cloned() else { return };
        if buf.is_loading() {
            buf.loaded().await;
        }
        self.mark_clean(&buf);
        while buf.is_writing() {
            buf.written().await;
            self.mark_clean(&buf);
        }
        self.shared.gate.forgotten(&buf);
        self.remove(&buf);
    }

    /// Changes a buffer's length. New bytes are zero.
    pub fn resize(&self, buf: &BufRef, len: usize) {
        let old = buf.len();
        buf.set_len(len);
        let bytes = &self.shared.bytes;
        bytes.set(bytes.get() + len - old);
        if buf.is_dirty() {
            self.shared.dirty.borrow_mut().resized(old, len);
        }
    }

    /// Marks a buffer as changed. It will be written when it is old enough, or sooner.
    #[inline]
    pub fn mark_dirty(&self, buf: &BufRef) {
        buf.bump_version();
        buf.drop_behind.set(false);
        if buf.is_dirty() {
            return;
        }
        let now = self.shared.runtime.now();
        let due = now + self.shared.config.age(buf.class());
        let was_empty = {
            self.shared.clean.borrow_mut().remove(buf);
            let mut dirty = self.shared.dirty.borrow_mut();
            dirty.insert(buf, due);
            dirty.len() == 1
        };
        if was_empty || self.is_behind() {
            self.shared.syncer_wake.notify_one();
        }
    }

    /// Gives a buffer another place on the device. A write to the old place that is under way ends
    /// first, because that place may be freed then. The buffer is dirty afterwards: no write so far
    /// has reached the new place.
    pub async fn move_to(&self, buf: &BufRef, address: u64) {
        buf.written().await;
        buf.set_address(Some(address));
        self.mark_dirty(buf);
    }

    pub(crate) fn mark_clean(&self, buf: &BufRef) {
        if buf.is_dirty() {
            self.shared.dirty.borrow_mut().remove(buf);
            self.shared.clean.borrow_mut().insert(buf);
            if !self.over_dirty_limit() {
                self.shared.drained.notify_all();
            }
        }
    }

    /// Changes the time at which a dirty buffer is due.
    pub(crate) fn set_due(&self, buf: &BufRef, due: ordo_runtime::Time) {
        self.shared.dirty.borrow_mut().set_due(buf, due);
    }

    /// All dirty buffers, oldest first.
    pub fn all_dirty(&self) -> Vec<BufRef> {
        self.shared.dirty.borrow().all()
    }

    /// The oldest dirty buffers that `fit`, up to `bytes` bytes in all, among the `looks` oldest.
    pub(crate) fn oldest_dirty(
        &self,
        bytes: usize,
        looks: usize,
        fit: impl Fn(&BufRef) -> bool,
    ) -> Vec<BufRef> {
        self.shared.dirty.borrow().oldest(bytes, looks, fit)
    }

    pub(crate) fn cleaned(&self) -> u64 {
        self.shared.cleaned.get()
    }

    /// Whether no change of the buffer can be lost any more: it is clean, and its last write is
    /// durable.
    pub fn is_durable(&self, buf: &BufRef) -> bool {
        !buf.is_dirty() && !buf.is_writing() && self.shared.epochs.is_durable(buf)
    }

    /// Whether writers must wait, because too much is dirty, or more than the device can write in
    /// time.
    pub(crate) fn over_dirty_limit(&self) -> bool {
        let dirty = self.shared.dirty.borrow();
        self.is_full(&dirty) || (self.is_paced() && self.shared.pace.is_late(dirty.len()))
    }

    /// Whether the syncer must write before anything is due.
    pub(crate) fn is_behind(&self) -> bool {
        let dirty = self.shared.dirty.borrow();
        self.is_full(&dirty) || (self.is_paced() && self.shared.pace.is_behind(dirty.len()))
    }

    /// Whether the device's speed limits what may be dirty.
    fn is_paced(&self) -> bool {
        self.shared.config.writers_wait == WritersWait::InTime
    }

    fn is_full(&self, dirty: &DirtyList) -> bool {
        dirty.bytes() > self.shared.config.dirty_max
    }

    /// Waits while more is dirty than allowed. Writers call it between operations.
    ///
    /// # Errors
    /// The device failed, so no dirty buffer will be written any more.
    pub async fn throttle(&self) -> Result<(), BlockError> {
        while self.over_dirty_limit() {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            self.shared.syncer_wake.notify_one();
            self.shared.drained.notified().await;
        }
        Ok(())
    }
}

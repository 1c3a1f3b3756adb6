//! Bounded memory: loading buffers, and evicting them.

use ordo_block::IoBuf;

use crate::buffer::{BufRef, Buffer};
use crate::{Cache, Occasion};

impl Cache {
    pub(crate) fn insert(&self, buf: &BufRef) {
        let replaced = self.shared.buffers.borrow_mut().insert(buf.key(), buf.clone());
        assert!(replaced.is_none(), "one buffer for each key");
        self.shared.clean.borrow_mut().insert(buf);
        self.shared.bytes.set(self.shared.bytes.get() + buf.len());
    }

    pub(crate) fn remove(&self, buf: &BufRef) {
        let mut buffers = self.shared.buffers.borrow_mut();
        // The key may belong to another buffer by now.
        if buffers.get(&buf.key()).is_some_and(|b| std::rc::Rc::ptr_eq(b, buf)) {
            buffers.remove(&buf.key());
            self.shared.clean.borrow_mut().remove(buf);
            self.shared.bytes.set(self.shared.bytes.get() - buf.len());
        }
    }

    /// Evicts clean buffers, and writes dirty ones, until `len` more bytes fit.
    pub(crate) async fn evict(&self, len: usize) {
        while self.shared.bytes.get() + len > self.shared.allowance.get() {
            let victim = self.shared.clean.borrow_mut().victim();
            if let Some(buf) = victim {
                self.shared.stats.borrow_mut().evicted += 1;
                self.remove(&buf);
                continue;
            }
            if !self.shared.unflushed.borrow().is_empty() {
                // Written buffers stay until the gate knows that they are durable.
                let _ = self.barrier().await;
                continue;
            }
            // The cache keeps a failure, and reports it where durability is demanded.
            let some = len.max(self.shared.config.cluster);
            let wrote = self.write_some_on(Occasion::Memory, some).await;
            if !wrote.is_ok_and(|some| some) || self.failure().is_some() {
                // Every buffer is pinned by an operation under way, or cannot be written.
                return;
            }
        }
    }

    /// Limits the memory for buffers to so many percent of the configured capacity until the next
    /// call. What does not fit any more leaves memory: clean buffers first, dirty ones once they
    /// are written.
    pub async fn limit_memory(&self, percent: usize) {
        let capacity = self.shared.config.capacity;
        self.shared.allowance.set(capacity * percent.min(100) / 100);
        self.evict(0).await;
    }

    /// Drop-behind: marks a buffer as not expected to be used again. It leaves memory at once, or
    /// when it has been written, unless it is in use or is changed before that.
    pub fn drop_behind(&self, buf: &BufRef) {
        buf.drop_behind.set(true);
        self.drop_if_idle(buf);
    }

    fn drop_if_idle(&self, buf: &BufRef) -> bool {
        // Three references belong to the map, the list and the caller.
        let held = std::rc::Rc::strong_count(buf) > 3;
        let idle = !buf.is_dirty() && !buf.is_writing() && !buf.is_loading() && !held;
        if idle {
            self.remove(buf);
        }
        idle
    }

    /// Removes a drop-behind buffer that stayed in memory only until its write ended, or until it
    /// was durable.
    pub(crate) fn remove_drop_behind(&self, buf: &BufRef) {
        if buf.drop_behind.get() && !buf.is_dirty() && !self.drop_if_idle(buf) {
            self.shared.lingering.borrow_mut().push(buf.key());
        }
    }

    /// Removes buffers that should have left memory when they were written, but were in use then.
    /// It is called when a file has been made durable.
    pub fn drop_behind_rest(&self) {
        for key in self.shared.lingering.take() {
            let buf = self.shared.buffers.borrow().get(&key).cloned();
            if let Some(buf) = buf.filter(|buf| buf.drop_behind.get()) {
                self.drop_if_idle(&buf);
            }
        }
    }

    /// Drops every clean buffer that is not in use, as a remount would.
    pub fn drop_clean(&self) {
        loop {
            let victim = self.shared.clean.borrow_mut().victim();
            match victim {
                Some(buf) => self.remove(&buf),
                None => return,
            }
        }
    }
}

/// A buffer whose missing bytes are being read.
pub(crate) struct Completing<'a>(&'a Buffer);

impl<'a> Completing<'a> {
    pub(crate) fn new(buf: &'a Buffer) -> Completing<'a> {
        buf.begin_loading();
        Completing(buf)
    }
}

impl Drop for Completing<'_> {
    fn drop(&mut self) {
        self.0.end_loading();
    }
}

/// Buffers that are being read. When this is dropped, those that got no contents leave the cache
/// again, so a failed or abandoned read leaves no empty buffers behind.
pub(crate) struct Loading<'a> {
    cache: &'a Cache,
    buffers: Vec<BufRef>,
}

impl<'a> Loading<'a> {
    pub(crate) fn new(cache: &'a Cache) -> Self {
        Loading { cache, buffers: Vec::new() }
    }

    pub(crate) fn push(&mut self, buf: BufRef) {
        self.buffers.push(buf);
    }

    /// Gives the buffers their contents, one after another, as far as `stays` says that these bytes
    /// are still theirs.
    pub(crate) fn fill(mut self, bytes: IoBuf, stays: impl Fn(&Buffer) -> bool) {
        if let [only] = &self.buffers[..] {
            if stays(only) {
                self.buffers.remove(0).fill(bytes);
            }
            return;
        }
        let mut at = 0;
        self.buffers.retain(|buf| {
            let (part, stays) = (at..at + Buffer::len(buf), stays(buf));
            at = part.end;
            if stays {
                buf.fill(IoBuf::from_slice(&bytes[part]));
            }
            !stays
        });
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        for buf in self.buffers.drain(..) {
            self.cache.remove(&buf);
            buf.end_loading();
        }
    }
}

//! Blocks that are being written: what the journal allows, what it learns, and what the log says of
//! it.

use ordo_cache::{Buffer, BufferClass, WriteDecision};

use super::JournalRules;
use super::record::{self, BlockRecord};
use super::state::{DirtyPage, State, Written};

/// The most blocks in one record of blocks that are durable in their places.
pub(super) const PLACED_MAX: usize = 256;

impl State {
    pub fn before_write(&self, block: &Buffer) -> WriteDecision {
        if self.failure.get().is_some() {
            return WriteDecision::WaitFor(u64::MAX);
        }
        self.moves.borrow_mut().image(block);
        if self.is_on(JournalRules::WHOLE_FIRST) {
            self.bases.borrow_mut().written(block);
        }
        let mut dirty_pages = self.dirty_pages.borrow_mut();
        let Some(page) = dirty_pages.get_mut(&block.key()) else { return WriteDecision::Write };
        // Contents need not wait: recovery redoes what the log has of them, whichever version the
        // device has.
        let is_followed =
            self.options.mode.follows_contents() && block.class() == BufferClass::Data;
        if is_followed && page.address != block.address() {
            // The block is about to move, and the log does not say so yet: its records at the old
            // place are needed.
            return WriteDecision::Write;
        }
        let waits = !is_followed;
        if waits && page.high > self.log.durable() && self.is_on(JournalRules::WRITE_AHEAD) {
            self.count(|stats| stats.write_ahead += 1);
            return WriteDecision::WaitFor(page.high);
        }
        let Some(at) = block.address() else { return WriteDecision::Write };
        let (version, len) = (block.version(), block.len() as u64);
        let now = Written { version, end: self.log.end(), at, len };
        match page.images.last_mut() {
            Some(last) if last.version == version => (last.at, last.len) = (at, len),
            _ => page.images.push(now),
        }
        WriteDecision::Write
    }

    /// Whether the durable end of a block's write matters: the log has records about the block, or
    /// its contents have moved.
    pub fn follows(&self, block: &Buffer) -> bool {
        self.options.mode.follows_contents()
            || block.class() != BufferClass::Data
            || self.dirty_pages.borrow().contains_key(&block.key())
            || self.moves.borrow().is_pending(block)
    }

    pub fn written(&self, block: &Buffer, version: u64) {
        let mut dirty_pages = self.dirty_pages.borrow_mut();
        let Some(page) = dirty_pages.get_mut(&block.key()) else { return };
        if !std::ptr::eq(&raw const *page.buf, block) {
            return;
        }
        let is_followed =
            self.options.mode.follows_contents() && block.class() == BufferClass::Data;
        let image = page.images.iter().find(|image| image.version == version);
        let image = image.map(|image| (image.at, image.len, image.end));
        let is_last = block.version() == version;
        if let Some((at, len, mut end)) =
            image.or_else(|| self.unseen(block, is_followed && is_last))
        {
            if is_followed && is_last && self.is_on(JournalRules::WRITTEN_LAST) {
                // Contents may be logged while this same version is being written. The device has
                // those records too.
                end = end.max(page.high);
            }
            if self.is_on(JournalRules::WHOLE_FIRST) {
                self.bases.borrow_mut().written(block);
            }
            let noted = if is_followed { &self.written_contents } else { &self.placed };
            let mut noted = noted.borrow_mut();
            // An owner that has left the place may have had a write of it under way, whose end is
            // told late.
            if noted.get(&at).is_none_or(|(_, known)| *known <= end) {
                noted.insert(at, (len, end));
            }
            drop(noted);
            // The image lacks every record that was logged after the image was made.
            page.low = page.low.max(end);
        }
        if is_last {
            dirty_pages.remove(&block.key());
            return;
        }
        page.images.retain(|image| image.version > version);
    }

    /// The write of contents of which the log knew nothing when it began: the place, the length,
    /// and no record that it has.
    fn unseen(&self, block: &Buffer, is_last: bool) -> Option<(u64, u64, u64)> {
        let is_noted = is_last && self.is_on(JournalRules::WRITTEN_LAST);
        block.address().filter(|_| is_noted).map(|at| (at, block.len() as u64, 0))
    }

    /// Logs which blocks have become durable in their places, as far as the log has records about
    /// them, and while at least half of the log is free. A recovery then leaves these blocks alone.
    pub fn append_placed(&self) {
        let placed = self.placed.take().into_iter();
        if self.closed.get() {
            return;
        }
        let (mut out, start) = (self.scratch.take(), self.log.start());
        let mut blocks: Vec<BlockRecord> = Vec::new();
        for (at, (len, lsn)) in placed.filter(|(_, (_, lsn))| *lsn > start) {
            // Addresses may overlap where a block was freed and allocated again meanwhile. The
            // block at the higher address is left out.
            if blocks.last().is_none_or(|last| last.at + last.len <= at) {
                blocks.push(BlockRecord { at, len, lsn });
            }
        }
        for some in blocks.chunks(PLACED_MAX) {
            record::placed(some, &mut out);
            if self.log.free_space() < self.log.capacity() / 2 {
                break;
            }
            self.append(&out);
        }
        self.scratch.replace(out);
    }

    pub fn forget(&self, block: &Buffer) {
        self.changed.borrow_mut().remove(&block.key());
        let mut dirty_pages = self.dirty_pages.borrow_mut();
        let ours = |page: &DirtyPage| std::ptr::eq(&raw const *page.buf, block);
        if dirty_pages.get(&block.key()).is_some_and(ours)
            && let Some(page) = dirty_pages.remove(&block.key())
        {
            // The operation that frees the block may still be rolled back.
            self.pinned_ranges.borrow_mut().push((page.low, self.log.end() + 1));
        }
    }

    pub fn is_held(&self, block: &Buffer) -> bool {
        let freed = self.freed.borrow();
        if freed.is_empty() || !self.is_on(JournalRules::HOLD) {
            return false;
        }
        let Some(address) = block.address() else { return false };
        let size = self.fragment.get();
        let frags = address / size..(address + block.len() as u64).div_ceil(size);
        freed.range(frags).next().is_some()
    }
}

//! The cleaner: moves what lives out of segments that are mostly dead, so that they can be written again.
//!
//! A victim's summaries say which blocks it had; the pointers of today say which of them live. These are read and
//! marked dirty, and the next write-out gives them new places. Two checkpoints later the victim is clean. Sums of
//! partial segments are not looked at: a check's repairs change blocks in place, and pointers decide anyway.

use std::cell::Cell;
use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError};
use ordo_format::lfs::{IFILE_INO, LfsInode, PsegBlock, SegUse, Summary};
use ordo_ordering::OpKind;
use ordo_runtime::sync::Mutex;
use ordo_vfs::{Errno, FsResult, LocalFuture};

use super::Shared;
use super::order::Keeper;
use super::rules::CleanerPolicy;
use super::store::{decode, has_pointers};
use super::writer::SegmentWriter;

/// Victims in one pass at most.
const VICTIMS_MAX: usize = 16;
/// Segments that are cleaned beyond what an operation needs, for the next ones.
const MORE: u64 = 2;
/// Passes for one operation that needs space at most.
const PASSES_MAX: usize = 12;

/// Cleans segments.
pub struct Cleaner {
    store: Shared,
    writer: Rc<SegmentWriter>,
    policy: CleanerPolicy,
    one: Mutex<()>,
    /// Bytes in use when nothing more was gained, for writes and for deletes: nothing is tried again before there are
    /// fewer by a part of a segment.
    fruitless: [Cell<Option<u64>>; 2],
    counts: Cell<CleanerCounts>,
}

/// What the cleaner has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerCounts {
    /// Segments that were cleaned.
    pub segments: u64,
    /// Live bytes that were in them.
    pub moved_bytes: u64,
    /// Passes.
    pub passes: u64,
}

impl Cleaner {
    pub fn new(store: Shared, writer: Rc<SegmentWriter>, policy: CleanerPolicy) -> Cleaner {
        let one = Mutex::new((), "the cleaner of the log", 0);
        let (fruitless, counts) = (Default::default(), Cell::default());
        Cleaner { store, writer, policy, one, fruitless, counts }
    }

    /// What it has done.
    pub fn counts(&self) -> CleanerCounts {
        self.counts.get()
    }

    fn lacks_inodes(&self) -> bool {
        self.store.state.borrow().ifile.free_inodes() < 32
    }

    /// Whether there is less space than an operation needs and `more` segments.
    fn lacks_space(&self, kind: OpKind, more: u64) -> bool {
        let is_delete = is_delete(kind);
        let state = self.store.state.borrow();
        let blocks = self.store.cache.gate().blocks_of_an_operation() + 8;
        let dirty = self.store.cache.stats().dirty_bytes as u64;
        let wanted = dirty + blocks * u64::from(self.store.shape.bsize);
        let more = (more * u64::from(self.store.shape.fsbpseg)).cast_signed();
        state.space() - state.cost(wanted) < state.kept(is_delete) + more
    }

    /// Whether trying again could gain anything.
    fn is_worth_trying(&self, kind: OpKind) -> bool {
        let part = u64::from(self.store.shape.ssize) / 2;
        let failed = self.fruitless[usize::from(is_delete(kind))].get();
        failed.is_none_or(|used| self.store.state.borrow().used() + part <= used)
    }

    /// Makes another checkpoint where segments are empty: after the second one they can be used.
    async fn free_empty(&self) -> Result<(), BlockError> {
        if self.store.state.borrow().has_empty() {
            self.writer.force_checkpoint().await?;
        }
        Ok(())
    }

    /// Cleans as many segments as there is space for in one pass. Whether there is more space than before.
    ///
    /// # Errors
    /// The device failed.
    pub async fn pass(&self) -> Result<bool, BlockError> {
        let before = self.store.state.borrow().space();
        let victims = self.choose();
        if victims.is_empty() {
            return Ok(false);
        }
        let mut counts = self.counts.get();
        counts.passes += 1;
        for (segment, seguse) in victims {
            match self.mark_live(segment).await {
                Ok(()) => {
                    counts.segments += 1;
                    counts.moved_bytes += u64::from(seguse.nbytes);
                }
                // What is damaged stays where it is.
                Err(error) if error.errno == Errno::Corrupt => {}
                Err(error) => return Err(super::writer::as_block_error(error)),
            }
        }
        self.counts.set(counts);
        self.writer.force_checkpoint().await?;
        self.free_empty().await?;
        Ok(self.store.state.borrow().space() > before)
    }

    /// The victims of a pass, best first, as many as there is space for.
    fn choose(&self) -> Vec<(u64, SegUse)> {
        let state = self.store.state.borrow();
        let now = self.store.cache.runtime().wall_time().0.max(0).cast_unsigned();
        let size = u64::from(self.store.shape.ssize);
        let mut all: Vec<(u64, u64, SegUse)> = state
            .victims()
            .map(|(segment, seguse)| {
                let live = u64::from(seguse.nbytes).min(size);
                let age = now.saturating_sub(seguse.lastmod) + 1;
                let worth = match self.policy {
                    CleanerPolicy::Greedy => size - live,
                    CleanerPolicy::CostBenefit => {
                        let benefit = u128::from(size - live) * u128::from(age) * 1024;
                        u64::try_from(benefit / u128::from(size + live)).unwrap_or(u64::MAX)
                    }
                };
                (worth, segment, seguse)
            })
            .collect();
        all.sort_by_key(|(worth, segment, _)| (std::cmp::Reverse(*worth), *segment));
        let mut dirty = self.store.cache.stats().dirty_bytes as u64;
        let mut out = Vec::new();
        for (_, segment, seguse) in all.into_iter().take(VICTIMS_MAX) {
            // Blocks that are short on the device are whole in memory, and bring their inodes and parents.
            dirty += u64::from(seguse.nbytes);
            if state.cost(dirty) > state.space() {
                break;
            }
            out.push((segment, seguse));
        }
        out
    }

    /// Reads what lives in a segment, and marks it dirty.
    async fn mark_live(&self, segment: u64) -> FsResult<()> {
        let (store, sb) = (&self.store, &self.store.shape);
        let (mut at, end) = (sb.segment_data(segment), sb.segment_start(segment + 1));
        while end - at > i64::from(sb.sumsize / sb.fsize) {
            let found = store.device.read(sb.byte_of(at), sb.sumsize as usize).await;
            let bytes = found.map_err(ordo_ufs::io_error)?;
            let Ok(summary) = Summary::read(sb, &bytes) else { break };
            let Ok((blocks, next)) = summary.layout(sb, at) else { break };
            if summary.head.ident != sb.ident {
                break;
            }
            for block in blocks {
                match block {
                    PsegBlock::Inodes { addr } => self.mark_inodes(addr).await?,
                    PsegBlock::File { addr, ino, lbn, .. } if ino == IFILE_INO => {
                        let mut state = store.state.borrow_mut();
                        if state.ifile.address(lbn) == Some(addr) {
                            state.ifile.mark(lbn);
                        }
                    }
                    PsegBlock::File { addr, ino, lbn, .. } => {
                        self.mark_block(ino, lbn, addr).await?;
                    }
                }
            }
            at = next;
        }
        Ok(())
    }

    async fn mark_inodes(&self, addr: i64) -> FsResult<()> {
        let (store, sb) = (&self.store, &self.store.shape);
        let found = store.device.read(sb.byte_of(addr), sb.ibsize as usize).await;
        let bytes = found.map_err(ordo_ufs::io_error)?;
        for raw in bytes.chunks_exact(LfsInode::SIZE) {
            let ino = LfsInode::read(sb.width, raw).inumber;
            if ino > IFILE_INO && store.place_of(ino) == addr {
                let pin = store.pin(ino).await?;
                if store.place_of(ino) == addr {
                    store.cache.mark_dirty(&pin);
                }
            }
        }
        Ok(())
    }

    async fn mark_block(&self, ino: u64, number: i64, addr: i64) -> FsResult<()> {
        let store = &self.store;
        if store.place_of(ino) == 0 {
            return Ok(());
        }
        let pin = store.pin(ino).await?;
        let inode = decode(&pin);
        if !has_pointers(&store.shape, inode.mode, inode.size) {
            return Ok(());
        }
        let (pointer, _held) = store.pointer(ino, number).await?;
        if pointer != addr {
            return Ok(());
        }
        let is_directory = inode.mode & 0o170_000 == 0o040_000;
        let buf = match u64::try_from(number) {
            Ok(number) => store.read_block(ino, number, is_directory, 0).await?,
            Err(_) => Some(store.indirect(ino, number, pointer).await?),
        };
        // Nothing waits from here on: what it is now is what is marked.
        if let Some(buf) = buf
            && store.peek_pointer(ino, number) == Some(addr)
        {
            store.cache.mark_dirty(&buf);
        }
        Ok(())
    }
}

/// Whether an operation gives space back in the end, and so must always go through.
fn is_delete(kind: OpKind) -> bool {
    matches!(kind, OpKind::Remove | OpKind::Free)
}

impl Keeper for Cleaner {
    fn is_short(&self, kind: OpKind) -> bool {
        let lacks_space = self.lacks_space(kind, 0);
        let lacks_inodes = kind == OpKind::Make && self.lacks_inodes();
        (lacks_space && self.is_worth_trying(kind)) || (lacks_inodes && !lacks_space)
    }

    fn provide(&self, kind: OpKind) -> LocalFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            let _one = self.one.lock().await;
            if !self.is_short(kind) {
                return Ok(());
            }
            // What everything dirty takes is known when it is written.
            self.writer.force_checkpoint().await?;
            self.free_empty().await?;
            let failed = &self.fruitless[usize::from(is_delete(kind))];
            failed.set(None);
            for _ in 0..PASSES_MAX {
                if !self.lacks_space(kind, MORE) || !self.pass().await? {
                    break;
                }
            }
            let used = self.store.state.borrow().used();
            failed.set(self.lacks_space(kind, 0).then_some(used));
            Ok(())
        })
    }
}

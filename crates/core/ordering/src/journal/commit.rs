//! Commits of a journal that follows file contents, logs whole blocks, or commits everything at
//! once ([`JournalMode`]).
//!
//! **Contents in place** are written first. A new block of a file has a record of the log that its
//! bytes are zeros, which a recovery redoes unless a later record says that the block has been
//! written since. So a block never shows what another file had there, whichever of its pointer and
//! its contents is durable first, and an fsync of one file forces no contents of another one.
//!
//! **Contents in the log** are records that belong to an operation of their own. Their blocks stay
//! dirty, and are written when they are due, or when the log needs its space. A difference is taken
//! from the version that the log had last, if nothing of the block has been written in its place
//! since: so the log has a whole block and all its differences, and the result does not depend on
//! the version that the device has.
//!
//! **Images of metadata** (whole blocks) come beside the records of changes, which are needed to
//! roll operations back. An image has the changes of operations under way too, so it depends on
//! these.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Buffer, BufferClass, Cache};
use ordo_runtime::LocalFuture;
use ordo_runtime::sync::buffer_unordered;

use super::mode::{CommitPhases, JournalMode, LogContents, RecordForm};
use super::record::{self, BlockRecord};
use super::state::State;
use super::written::PLACED_MAX;
use super::{BLOCK_MAX, JournalRules};
use crate::OpKind;

/// Contents that lie in runs of this many bytes or more count as sequential, for the adaptive mode.
const SEQUENTIAL: u64 = 64 << 10;
/// The part of the log, as one over this number, that the contents of one commit may take. More are
/// written in place.
const CONTENTS_SHARE: u64 = 4;
/// The most bytes of versions kept for differences.
const BASES_MAX: usize = 32 << 20;

/// The version of a block that the log has.
struct LoggedVersion {
    key: BufKey,
    bytes: Box<[u8]>,
}

/// The versions of blocks that the log has, to take differences from: by address.
#[derive(Default)]
pub(super) struct Bases {
    known: BTreeMap<u64, LoggedVersion>,
    bytes: usize,
}

impl Bases {
    /// The last logged version of a block, where no other version and no other place has come
    /// since.
    fn of(&self, buf: &BufRef, address: u64) -> Option<&LoggedVersion> {
        let known = self.known.get(&address)?;
        (known.key == buf.key() && known.bytes.len() == buf.len()).then_some(known)
    }

    fn put(&mut self, buf: &BufRef, address: u64) {
        if self.bytes + buf.len() > BASES_MAX {
            *self = Bases::default();
        }
        self.remove(address);
        self.bytes += buf.len();
        let bytes: Box<[u8]> = buf.read().as_ref().into();
        self.known.insert(address, LoggedVersion { key: buf.key(), bytes });
    }

    fn remove(&mut self, address: u64) {
        if let Some(gone) = self.known.remove(&address) {
            self.bytes -= gone.bytes.len();
        }
    }

    /// Notes that a write of a block in its place begins, or has ended. The device may have any
    /// version from now on, so that a difference alone could give a mixture of two.
    pub(super) fn written(&mut self, block: &Buffer) {
        if let Some(address) = block.address() {
            self.remove(address);
        }
    }

    /// Notes that a part of the device is freed, or new: older records say nothing about it any
    /// more.
    pub(super) fn void(&mut self, range: Range<u64>) {
        let near = self.known.range(range.start.saturating_sub(BLOCK_MAX)..range.end);
        let hit = near.filter(|(at, known)| **at + known.bytes.len() as u64 > range.start);
        let hit: Vec<u64> = hit.map(|(at, _)| *at).collect();
        hit.into_iter().for_each(|at| self.remove(at));
    }
}

/// Makes a file durable, and in a tangled journal everything else.
pub(super) async fn fsync(state: &State, cache: &Cache, ino: u64) -> Result<(), BlockError> {
    let mode = state.options.mode;
    // In a tangled journal one commit goes on at a time, and the next one has everything that has
    // come meanwhile.
    let _one = if mode.is_tangled() {
        let before = state.begun.get();
        let one = state.compound.lock().await;
        let is_left = |buf: &BufRef| buf.class() == BufferClass::Data && !state.is_logged(buf);
        let has_all = mode.follows_contents()
            && !state.left_out.get()
            && !cache.dirty_of(ino).iter().any(is_left);
        if state.begun.get() > before && has_all {
            // It began after this call, and has ended. It had the contents of every file.
            return state.check();
        }
        state.begun.set(state.begun.get() + 1);
        Some(one)
    } else {
        None
    };
    // Fragments that another operation has freed are written by their new owner when the free is
    // certain.
    while cache.dirty_of(ino).iter().any(|buf| state.is_held(buf)) {
        state.commit_more().await?;
    }
    let all = mode.is_tangled() && mode.follows_contents();
    let contents = dirty_contents(state, cache, (!all).then_some(ino));
    state.left_out.set(all && cache.all_dirty().iter().any(|buf| state.is_held(buf)));
    commit(state, cache, contents, true).await?;
    match mode.is_tangled() {
        true => state.commit_more().await,
        false => state.commit_all().await,
    }
}

/// A commit that nobody asked for: what an fsync would do in a tangled journal; otherwise only
/// whole blocks of metadata.
pub(super) async fn timed(state: &State, cache: &Cache) -> Result<(), BlockError> {
    // A commit that goes on anyway does this one's work.
    let Some(_one) = state.compound.try_lock() else { return Ok(()) };
    let all = state.options.mode.is_tangled() && state.options.mode.follows_contents();
    let contents = if all { dirty_contents(state, cache, None) } else { Vec::new() };
    commit(state, cache, contents, false).await
}

/// Writes all contents of files in place, and logs that. A recovery then leaves them alone.
pub(super) async fn sync(state: &State, cache: &Cache) -> Result<(), BlockError> {
    let dirty = || {
        let mut dirty = cache.all_dirty();
        dirty.retain(|buf| buf.class() == BufferClass::Data);
        dirty
    };
    // Contents that are held back now must be written too, before the log says what has been
    // written.
    let mut held = dirty();
    held.retain(|buf| state.is_held(buf));
    while held.iter().any(|buf| buf.is_dirty() && state.is_held(buf)) {
        state.commit_more().await?;
    }
    let mut contents = dirty();
    contents.retain(|buf| !state.is_held(buf));
    cache.write_all(contents, true).await?;
    cache.barrier().await?;
    cache.barrier_if_needed().await?;
    append_written(state, true).await?;
    state.commit_all().await
}

/// The dirty contents of a file, or of all files, that the log does not have. Those that must not
/// be written yet are left out.
fn dirty_contents(state: &State, cache: &Cache, ino: Option<u64>) -> Vec<BufRef> {
    let mut dirty = match ino {
        Some(ino) => cache.dirty_of(ino),
        None => cache.all_dirty(),
    };
    let is_new = |buf: &BufRef| !state.is_held(buf) && !state.is_logged(buf);
    dirty.retain(|buf| buf.class() == BufferClass::Data && is_new(buf));
    dirty.sort_by_key(|buf| buf.key());
    dirty
}

/// Whether contents lie in long runs.
fn is_sequential(contents: &[BufRef]) -> bool {
    let (mut bytes, mut runs, mut last) = (0, 0, None);
    for buf in contents {
        let at = buf.address();
        runs += u64::from(at.is_none() || last != at);
        bytes += buf.len() as u64;
        last = at.map(|at| at + buf.len() as u64);
    }
    runs == 0 || bytes / runs >= SEQUENTIAL
}

/// Brings contents to the log or to their places, and the records to the log, as the mode has it.
/// `waits`: a caller waits, and log space may be waited for. The last write of the log is left to
/// the caller.
async fn commit(
    state: &State,
    cache: &Cache,
    contents: Vec<BufRef>,
    waits: bool,
) -> Result<(), BlockError> {
    let JournalMode { contents: which, phases, .. } = state.options.mode;
    let bytes: u64 = contents.iter().map(|buf| buf.len() as u64).sum();
    let logged = match which {
        LogContents::None | LogContents::Ordered => false,
        LogContents::Data => true,
        LogContents::Adaptive => !is_sequential(&contents),
    } && bytes <= state.log.capacity() / CONTENTS_SHARE;
    let place = match logged {
        // The file's own contents belong to operations that have ended. Those of other files may be
        // about to move.
        true => {
            log_blocks(state, cache, contents, (waits, state.options.mode.is_tangled())).await?
        }
        false => contents,
    };
    if state.options.mode.logs_images() {
        let images = state.changed.take().into_values().collect();
        // A block without an image has its changes in the log all the same.
        log_blocks(state, cache, images, (waits, true)).await?;
    }
    // The commit before may have had everything.
    let is_needed = !place.is_empty() || state.log.durable() < state.log.end();
    let write = async {
        if !place.is_empty() {
            cache.write_all(place, true).await?;
            cache.barrier().await?;
        }
        // Another task's flush may cover a write, and not have ended.
        cache.barrier_if_needed().await
    };
    let early = !state.is_on(JournalRules::WRITTEN_FIRST);
    if early {
        note_all(state, cache);
        append_written(state, waits).await?;
    }
    match phases {
        CommitPhases::Together => write.await?,
        CommitPhases::Apart => {
            write.await?;
            state.force(state.log.end()).await?;
        }
        CommitPhases::Overlap => {
            let both: [LocalFuture<'_, _>; 2] =
                [Box::pin(write), Box::pin(state.force(state.log.end()))];
            buffer_unordered(2, both, |_, done| done).await?;
        }
    }
    if !early && state.is_on(JournalRules::WRITTEN_NOTED) {
        append_written(state, waits).await?;
    }
    if phases != CommitPhases::Together && is_needed && (waits || !state.closed.get()) {
        // The commit record: a write of the log of its own, after everything else.
        state.append_aside([]);
    }
    Ok(())
}

/// Logs blocks as they are now, in operations of their own, which depend on all that are under way
/// if `needs_all`. Returns the blocks for which the log has no space, if nobody may wait for it.
async fn log_blocks(
    state: &State,
    cache: &Cache,
    blocks: Vec<BufRef>,
    (waits, needs_all): (bool, bool),
) -> Result<Vec<BufRef>, BlockError> {
    let kind = OpKind::Write;
    let mut rest = VecDeque::from(blocks);
    while !rest.is_empty() && (waits || !state.closed.get()) {
        let begun = match waits {
            true => Some(state.begin(kind).await?),
            false => state.try_begin(kind)?,
        };
        let Some((mut ticket, reserved)) = begun else { break };
        let (number, before) = (state.enter(&mut ticket), state.log.stats().bytes);
        if needs_all {
            // An operation under way may have moved a block, and the log does not say so yet.
            state.need_all(number);
        }
        // Each batch stays within the bytes that are reserved for it.
        let most = state.batch_max();
        while let Some(buf) = rest.front() {
            let taken = state.log.stats().bytes - before;
            if taken > 0 && taken + buf.len() as u64 + 64 > most {
                break;
            }
            // A block may have been freed while log space was waited for. Its place may be another
            // one's by now.
            if cache.peek(buf.key()).is_some_and(|there| Rc::ptr_eq(&there, buf)) {
                state.append_block(number, buf);
            }
            rest.pop_front();
        }
        state.end(kind, &mut ticket, reserved, true);
    }
    Ok(rest.into())
}

/// Calls blocks written that are not: the harm of this is shown by the rule
/// [`JournalRules::WRITTEN_FIRST`].
fn note_all(state: &State, cache: &Cache) {
    let end = state.log.end();
    for buf in dirty_contents(state, cache, None) {
        if let Some(address) = buf.address() {
            state.written_contents.borrow_mut().insert(address, (buf.len() as u64, end));
        }
    }
}

/// Logs which contents are durable in their places. All of them: the log's start may have moved
/// past a block's records, and not be recorded on the device yet. Nothing is taken from the list
/// before there is space to log it, since another caller may wait for it.
pub(super) async fn append_written(state: &State, waits: bool) -> Result<(), BlockError> {
    let kind = OpKind::Attributes;
    while !state.written_contents.borrow().is_empty() && (waits || !state.closed.get()) {
        let begun = match waits {
            true => Some(state.begin(kind).await?),
            false => state.try_begin(kind)?,
        };
        // Without space, the next commit says so.
        let Some((mut ticket, reserved)) = begun else { break };
        let mut written = state.written_contents.borrow_mut();
        let mut some: Vec<BlockRecord> = Vec::new();
        while let Some((at, (len, lsn))) = written.first_key_value().map(|(at, b)| (*at, *b)) {
            // Addresses may overlap where a block was freed and allocated again. Those of one
            // record must not.
            let is_apart = some.last().is_none_or(|last| last.at + last.len <= at);
            if some.len() == PLACED_MAX || !is_apart {
                break;
            }
            some.push(BlockRecord { at, len, lsn });
            written.pop_first();
        }
        drop(written);
        if !some.is_empty() {
            state.append_with(|out| record::placed(&some, out));
        }
        state.end(kind, &mut ticket, reserved, false);
    }
    Ok(())
}

impl State {
    /// The most bytes of blocks that one operation of [`log_blocks`] logs.
    fn batch_max(&self) -> u64 {
        (self.log.capacity() / 16).max(self.block.get() + 512)
    }

    /// Logs a block as it is now, whole or by the bytes that differ from its last logged version.
    fn append_block(&self, number: super::ops::Number, buf: &BufRef) {
        let Some(address) = buf.address().filter(|_| buf.is_dirty()) else { return };
        self.touch(number, address..address + buf.len() as u64);
        let is_contents = buf.class() == BufferClass::Data;
        let differs = is_contents && self.options.mode.records == RecordForm::Bytes;
        let mut bases = self.bases.borrow_mut();
        let base = bases.of(buf, address).filter(|_| differs);
        let lsn = self.append_with(|out| {
            match base {
                Some(base) => record::difference(address, &base.bytes, &buf.read(), out),
                None => record::image(address, &buf.read(), out),
            }
            record::set_owner(number, out);
        });
        if differs {
            bases.put(buf, address);
        }
        drop(bases);
        self.page(buf, lsn);
        if is_contents {
            self.note_logged(buf);
        }
        self.changed.borrow_mut().remove(&buf.key());
    }
}

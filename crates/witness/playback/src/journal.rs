//! The journal of a trace: its place, its size and its transactions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ordo_annotate::Pieces;
use ordo_format::jbd2::JournalSuper;
use ordo_format::wafs::{SECTOR_MIN, SUPER_SECTORS, WafsSuper};
use ordo_trace::{RequestContents, RequestOp};

use crate::plan::Plan;
use crate::traffic::{Role, SeenTraffic};

/// The place of a journal on its device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSpan {
    /// The first byte.
    pub first: u64,
    /// The byte behind its last one.
    pub end: u64,
    /// The number of bytes in a block of the journal.
    pub block: u64,
    /// Whether the size is the journal's own, from its superblock; otherwise it is the part that
    /// the trace writes to.
    pub whole: bool,
}

impl JournalSpan {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.end == self.first
    }
}

/// The journal's place, from its superblock if the trace has one and the journal is contiguous,
/// otherwise from the blocks that were written to it. `None` without a journal.
pub fn span(contents: &dyn RequestContents, plan: &Plan) -> Option<JournalSpan> {
    let journal = || plan.live().map(|n| plan.step(n)).filter(|step| step.role.is_journal());
    let first = journal().map(|step| step.offset).min()?;
    let end = journal().map(|step| step.offset + step.len).max()?;
    let superblocks = plan.live().map(|n| plan.step(n)).filter(|step| step.op == RequestOp::Write);
    for step in superblocks.filter(|step| step.role == Role::JournalSuperblock) {
        let Some(bytes) = step.number().and_then(|n| contents.contents(n)) else { continue };
        let Some((_, shape)) = JournalSuper::shape(&bytes) else { continue };
        let block = shape.block_size as u64;
        let all = JournalSpan {
            first: step.offset,
            end: step.offset + u64::from(shape.len) * block,
            block,
            whole: true,
        };
        if all.first <= first && end <= all.end {
            return Some(all);
        }
    }
    Some(JournalSpan { first, end, block: 4096, whole: false })
}

/// The place of Ordo's log (`docs/formats/wafs.md`) that the log writes of a trace go to: its ring,
/// from the superblock before it. That was written in the trace, or is known from before.
pub fn own_span(
    contents: &dyn RequestContents,
    seen: &[SeenTraffic],
    start: &Pieces,
    first: u64,
) -> Option<JournalSpan> {
    let written = seen.iter().filter(|s| s.role == Role::JournalSuperblock && s.offset <= first);
    let written = written.filter_map(|s| Some((s.offset, contents.contents(s.number)?)));
    let known = start.known.range(..=first).map(|(at, piece)| (*at, Cow::Borrowed(&**piece)));
    let ring = |(at, bytes): (u64, Cow<'_, [u8]>)| {
        let sectors = bytes.chunks_exact(SECTOR_MIN).enumerate();
        let mut found = sectors.filter_map(|(n, sector)| {
            let found = WafsSuper::read(sector, u64::MAX).ok()?;
            // The generation says which of the two copies this is.
            let (copy, sector) = (found.generation % SUPER_SECTORS, u64::from(found.sector));
            let at = (at + (n * SECTOR_MIN) as u64).checked_sub(copy * sector)?;
            let first = at + SUPER_SECTORS * sector;
            Some(JournalSpan {
                first,
                end: first + found.sectors * sector,
                block: sector,
                whole: true,
            })
        });
        found.rfind(|span| (span.first..span.end).contains(&first))
    };
    known.rev().find_map(ring).or_else(|| written.filter_map(ring).next_back())
}

/// A transaction: the steps that write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalTransaction {
    /// The writes of descriptors, copies and revokes, in order.
    pub log: Vec<usize>,
    /// The write of the commit block.
    pub commit: Option<usize>,
    /// The writes of file data between the commit before and this one, checkpoints left out.
    pub data: Vec<usize>,
}

/// The transactions of a plan by number, those without a commit included.
pub fn transactions(plan: &Plan) -> BTreeMap<u64, JournalTransaction> {
    let mut all: BTreeMap<u64, JournalTransaction> = BTreeMap::new();
    let mut data = Vec::new();
    for index in plan.in_order() {
        let step = plan.step(index);
        match (step.role, step.transaction) {
            (Role::Data, _) if !step.checkpoint => data.push(index),
            (Role::Journal, Some(id)) => all.entry(id).or_default().log.push(index),
            (Role::Commit, Some(id)) => {
                let one = all.entry(id).or_default();
                one.commit = Some(index);
                one.data = std::mem::take(&mut data);
            }
            _ => {}
        }
    }
    all
}

/// Gives every write of the journal a new place: one behind the other from the first one's place,
/// and from the log's start again after its end, if that is known. Must be called after the lengths
/// have changed.
pub fn relay(plan: &mut Plan, span: &JournalSpan) {
    let writes: Vec<usize> = plan
        .in_order()
        .into_iter()
        .filter(|n| matches!(plan.step(*n).role, Role::Journal | Role::Commit))
        .collect();
    let Some(first) = writes.first() else { return };
    let mut head = plan.step(*first).offset;
    for index in writes {
        let step = plan.step_mut(index);
        if span.whole && head + step.len > span.end {
            head = span.first + span.block;
        }
        step.offset = head;
        head += step.len;
    }
}

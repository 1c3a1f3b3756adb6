//! The journaling mode, which decides what goes into the journal: ordered, data, adaptive (§3.3.2
//! of the paper).
//!
//! Data mode: the data of a transaction is in its journal write, with descriptors for it, and is
//! written at its fixed location later, by the writeback timer after `EXPIRE`, or when `FULL` of
//! the journal is used: then the next transaction waits for it. A block that a later transaction
//! contains again is written once. A block that is not due when the trace ends is not written.
//!
//! Ordered mode: the data is written at its fixed location, sorted, before the journal write, which
//! waits for it.

use std::collections::BTreeMap;

use ordo_trace::RequestOp;

use super::{Home, Mode, World, journal_of};
use crate::journal::{JournalSpan, JournalTransaction, relay, transactions};
use crate::plan::{After, Plan, PlanStep};
use crate::traffic::{Logged, Role};

/// The age at which writeback writes a dirty block, in nanoseconds: `dirty_expire_centisecs` of
/// Linux.
const EXPIRE: u64 = 30_000_000_000;
/// The part of the journal, as one over this number, whose use makes a checkpoint necessary
/// (§3.2.2: between a quarter and a half is free then).
const FULL: u64 = 2;
/// Data that lies in runs of this many bytes or more counts as sequential, for the adaptive mode.
const SEQUENTIAL: u64 = 64 << 10;
/// The number of bytes of a descriptor for each copy: a tag with a checksum
/// (`journal_block_tag3_t`).
const TAG: u64 = 16;

pub(super) fn change(world: &mut World<'_>, mode: Mode) -> Result<(), String> {
    let span = journal_of(world)?;
    if !world.system.starts_with("ext") {
        return Err(format!("{} has no such mode; ext3 and ext4 have", world.system));
    }
    let all = transactions(&world.plan);
    let logged = all
        .values()
        .any(|t| t.log.iter().any(|n| world.plan.step(*n).copies.iter().any(|c| c.data)));
    if mode == Mode::Writeback {
        return Err(super::NEEDS_CALLS.into());
    }
    if mode == Mode::Ordered {
        return match logged {
            true => ordered(&mut world.plan, &span, all),
            false => {
                Err("the trace's journal has no file data: it is in ordered mode already".into())
            }
        };
    }
    if logged {
        return Err("the trace's journal has file data already; play it as `mode ordered`".into());
    }
    if all.values().all(|t| t.data.is_empty()) {
        return Err("no transaction of the trace has file data".into());
    }
    let home = match mode {
        Mode::Data(home) | Mode::Adaptive(home) => home,
        Mode::Ordered | Mode::Writeback => Home::Sync,
    };
    let mut later = Later { pending: BTreeMap::new(), used: 0, span, home };
    let mut last = None;
    for transaction in all.into_values() {
        let log = transaction.log.first().copied().zip(transaction.commit);
        let sequential = sequential(&world.plan, &transaction, &mut last);
        let whole = matches!(mode, Mode::Data(_)) || !sequential;
        if let (Some((log, commit)), true) = (log, whole && !transaction.data.is_empty()) {
            let at = world.plan.step(commit).recorded.map_or(0, |recorded| recorded.issued);
            later.log_data(&mut world.plan, (log, commit, at), &transaction.data);
        }
    }
    relay(&mut world.plan, &span);
    Ok(())
}

/// Whether a transaction's data lies in long runs, the last transaction's data before it included.
fn sequential(plan: &Plan, transaction: &JournalTransaction, last: &mut Option<u64>) -> bool {
    let (mut bytes, mut breaks) = (0, 0);
    for step in transaction.data.iter().map(|n| plan.step(*n)) {
        breaks += u64::from(*last != Some(step.offset));
        bytes += step.len;
        *last = Some(step.offset + step.len);
    }
    breaks == 0 || bytes / breaks >= SEQUENTIAL
}

/// A block of data that is in the journal and not yet at its fixed location.
#[derive(Clone, Copy)]
struct Pending {
    /// The length in bytes.
    len: u64,
    /// The commit after which it may be written.
    commit: usize,
    /// The time of that commit in the trace, in nanoseconds.
    at: u64,
}

/// The data that is in the journal and not yet at its fixed location.
struct Later {
    /// The blocks by offset.
    pending: BTreeMap<u64, Pending>,
    /// The number of bytes of the journal that were written since the last checkpoint.
    used: u64,
    span: JournalSpan,
    home: Home,
}

impl Later {
    /// Moves the data of a transaction into its journal write.
    fn log_data(
        &mut self,
        plan: &mut Plan,
        (log, commit, at): (usize, usize, u64),
        data: &[usize],
    ) {
        self.write_back(plan, at);
        let block = self.span.block;
        let mut bytes = 0;
        let mut copies = Vec::new();
        let mut logged = BTreeMap::new();
        for index in data.iter().copied() {
            let step = plan.step(index).clone();
            for home in (step.offset..step.offset + step.len).step_by(block as usize) {
                let source = (step.number().unwrap_or(u64::MAX), home - step.offset);
                copies.push(Logged { home, len: block, source, data: true });
                logged.insert(home, Pending { len: block, commit, at });
                bytes += block;
            }
            match self.home {
                Home::Sync if self.used > 0 => written_again(plan, index),
                _ => plan.remove(index),
            }
        }
        // The descriptor that is there already has room for one block of tags.
        let descriptors = (bytes / block * TAG).div_ceil(block - TAG).saturating_sub(1) * block;
        self.used += plan.step(log).len + bytes + descriptors + block;
        if self.home == Home::Timer && self.span.whole && self.used > self.span.len() / FULL {
            self.checkpoint(plan, log);
        }
        if self.home == Home::Timer {
            self.pending.extend(logged);
        }
        let step = plan.step_mut(log);
        step.len += bytes + descriptors;
        step.copies.extend(copies);
    }

    /// Writes the blocks of older transactions to their fixed locations, and makes the journal
    /// write `log` wait for that.
    fn checkpoint(&mut self, plan: &mut Plan, log: usize) {
        let due = std::mem::take(&mut self.pending);
        let waits = plan.after(log).to_vec();
        let mut anchor = plan.step(log).clone();
        anchor.order = anchor.order.saturating_sub(1);
        for run in runs(&due) {
            let step = plan.add(home(&anchor, run, true), waits.clone());
            plan.wait(log, After { step, think: 0 });
        }
        self.used = 0;
    }

    /// Lets the timer write the blocks that are old enough at the moment `now`.
    fn write_back(&mut self, plan: &mut Plan, now: u64) {
        let (due, rest) =
            std::mem::take(&mut self.pending).into_iter().partition(|(_, b)| b.at + EXPIRE <= now);
        self.pending = rest;
        let last = due.values().max_by_key(|block: &&Pending| block.at).copied();
        let Some(last) = last else { return };
        let mut anchor = plan.step(last.commit).clone();
        (anchor.order, anchor.not_before) = (anchor.order + 1, 0);
        for run in runs(&due) {
            let timer = After { step: last.commit, think: EXPIRE };
            plan.add(home(&anchor, run, true), vec![timer]);
        }
    }
}

/// Turns the write of a sync's own data into that of the data of the sync before, which is in the
/// journal by now: the same file's, and so as far away, and a flush behind it.
fn written_again(plan: &mut Plan, index: usize) {
    plan.step_mut(index).checkpoint = true;
    let anchor = plan.step(index).clone();
    let (op, role, offset, len) = (RequestOp::Flush, Role::Flush, 0, 0);
    plan.behind(
        index,
        PlanStep { op, role, offset, len, checkpoint: false, recorded: None, ..anchor },
    );
}

/// Neighbouring blocks as runs: offset and length.
fn runs(blocks: &BTreeMap<u64, Pending>) -> Vec<(u64, u64)> {
    merged(blocks.iter().map(|(offset, block)| (*offset, block.len)))
}

/// Ranges in order of their offsets, neighbours joined.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in ranges {
        match runs.last_mut() {
            Some(run) if run.0 + run.1 == offset => run.1 += len,
            _ => runs.push((offset, len)),
        }
    }
    runs
}

/// A write of file data at its fixed location, ordered and issued as `anchor` is.
fn home(anchor: &PlanStep, (offset, len): (u64, u64), checkpoint: bool) -> PlanStep {
    PlanStep {
        disk: 0,
        op: RequestOp::Write,
        offset,
        len,
        fua: false,
        preflush: false,
        role: Role::Data,
        transaction: None,
        copies: Vec::new(),
        checkpoint,
        recorded: None,
        text: None,
        not_before: anchor.not_before,
        order: anchor.order,
    }
}

/// Takes file data out of the journal: it is written at its fixed location before the transaction.
fn ordered(
    plan: &mut Plan,
    span: &JournalSpan,
    all: BTreeMap<u64, JournalTransaction>,
) -> Result<(), String> {
    for transaction in all.into_values() {
        let logs = transaction.log;
        let copies = logs.iter().flat_map(|n| plan.step(*n).copies.iter().filter(|copy| copy.data));
        let homes: BTreeMap<u64, u64> = copies.map(|copy| (copy.home, copy.len)).collect();
        let Some(first) = logs.first().filter(|_| !homes.is_empty()) else { continue };
        let mut anchor = plan.step(*first).clone();
        anchor.order = anchor.order.saturating_sub(1);
        let waits = plan.after(*first).to_vec();
        let mut written = Vec::new();
        for run in merged(homes.into_iter()) {
            written.push(plan.add(home(&anchor, run, false), waits.clone()));
        }
        for log in logs {
            let data: u64 = plan.step(log).copies.iter().filter(|c| c.data).map(|c| c.len).sum();
            let step = plan.step_mut(log);
            step.len = step.len.saturating_sub(data).max(span.block);
            step.copies.retain(|copy| !copy.data);
            written.iter().for_each(|n| plan.wait(log, After { step: *n, think: 0 }));
        }
    }
    // The checkpoints of that data are no longer needed, nor the flushes for them alone.
    let stale = |plan: &Plan, n: usize| plan.step(n).role == Role::Data && plan.step(n).checkpoint;
    let flush = |plan: &Plan, n: usize| {
        let after = plan.after(n);
        plan.step(n).role == Role::Flush
            && !after.is_empty()
            && after.iter().all(|a| stale(plan, a.step))
    };
    let gone: Vec<usize> = plan.live().filter(|n| flush(plan, *n) || stale(plan, *n)).collect();
    gone.into_iter().for_each(|n| plan.remove(n));
    relay(plan, span);
    Ok(())
}

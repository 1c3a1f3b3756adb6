//! The journal without a file system: which operations wait for which, and how much of a log can be
//! used.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_runtime::sync::select;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_wafs::{MkfsOptions, MountOptions, Wafs, mkfs};

use super::JournalOptions;
use super::moves::Moved;
use super::record::{self, LogEntry};
use super::state::State;
use crate::OpKind;

fn run<T>(work: impl AsyncFnOnce(&Runtime, State) -> T) -> T {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let all = async {
        let disk = Rc::new(RamDisk::new(1 << 20));
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
        let log = Wafs::mount(&rt, disk, &MountOptions::default()).await.unwrap();
        let state = State::new(&rt, log, JournalOptions::wafs(true));
        work(&rt, state).await
    };
    executor.block_on(all).unwrap()
}

/// One operation stays under way for ever. A thousand others begin, end and become durable all the
/// same. An operation that shares changed bytes with the first one does not become durable. Would
/// catch a commit that waits until no operation is under way, and one that keeps others from
/// beginning.
#[test]
fn a_commit_waits_only_for_operations_on_which_it_depends() {
    run(async |rt, state| {
        let (mut long, _) = state.begin(OpKind::Write).await.unwrap();
        let number = state.enter(&mut long);
        state.freed(number, 100, 8);
        for n in 0..1000 {
            let (mut ticket, most) = state.begin(OpKind::Make).await.unwrap();
            let number = state.enter(&mut ticket);
            state.freed(number, 1000 + n, 1);
            let behind = state.end(OpKind::Make, &mut ticket, most, true);
            state.commit(ticket, behind).await.unwrap();
        }
        assert_eq!(state.stats.get().waits, 0);
        state.commit_all().await.unwrap();
        let (mut after, most) = state.begin(OpKind::Make).await.unwrap();
        let second = state.enter(&mut after);
        state.freed(second, 107, 1);
        let behind = state.end(OpKind::Make, &mut after, most, true);
        let done = std::cell::Cell::new(false);
        let commit = async {
            state.commit(after, behind).await.unwrap();
            done.set(true);
        };
        select(commit, rt.sleep(Duration::from_secs(10))).await;
        assert!(!done.get(), "it depends on the first");
        state.end(OpKind::Write, &mut long, 0, true);
        state.commit_all().await.unwrap();
        assert_eq!(state.safe.get(), state.log.end());
    });
}

/// Several operations at once can use most of the log before one has to wait. Would catch space
/// that is reserved for operations that have not begun.
#[test]
fn most_of_a_log_can_be_used() {
    run(async |rt, state| {
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(state.begin(OpKind::Make).await.unwrap());
        }
        let waits = loop {
            let begun = std::cell::Cell::new(None);
            let begin = async { begun.set(Some(state.begin(OpKind::Make).await.unwrap())) };
            select(begin, rt.sleep(Duration::from_secs(1))).await;
            let Some((mut ticket, most)) = begun.take() else { break state.log.free_space() };
            let number = state.enter(&mut ticket);
            for ino in 0..100 {
                state.append_short(number, &LogEntry::Orphan(ino));
            }
            state.end(OpKind::Make, &mut ticket, most, true);
            state.force(state.log.end()).await.unwrap();
        };
        let capacity = state.log.capacity();
        assert!(waits < capacity / 4, "{waits} of {capacity} are never used");
        assert!(waits >= capacity / 8, "{waits} of {capacity} are left for those under way");
    });
}

/// Contents have left a place, and an inode has lost its last name. Both are to be freed, but
/// nobody frees them. The log goes on for many times its length all the same, and a recovery still
/// finds both. Would catch a log whose space is kept by records about frees that wait for that
/// space.
#[test]
fn what_is_to_be_freed_keeps_no_log_space() {
    run(async |_, state| {
        let (ino, from) = (77, 512 * 1000);
        let moved = Moved { from, to: from, len: 512 };
        let lsns = state.append_aside([LogEntry::Orphan(ino), LogEntry::Moved(moved)]);
        state.orphans.borrow_mut().insert(ino, lsns[0]);
        state.moves.borrow_mut().found(from, 1, lsns[1]);
        let (mut written, capacity) = (0, state.log.capacity());
        while written < 4 * capacity {
            let before = state.log.end();
            let (mut ticket, most) = state.try_begin(OpKind::Make).unwrap().expect("space");
            let number = state.enter(&mut ticket);
            for n in 0..200 {
                state.append_short(number, &LogEntry::Kept(1 << 40 | n));
            }
            let behind = state.end(OpKind::Make, &mut ticket, most, true);
            state.commit(ticket, behind).await.unwrap();
            state.checkpoint(false).await.unwrap();
            written += state.log.end() - before;
        }
        let (mut inodes, mut places) = (Vec::new(), Vec::new());
        let mut look = |record: ordo_wafs::RecordRef<'_>| {
            match record::decode(record.bytes) {
                Some(LogEntry::Orphan(ino)) => inodes.push(ino),
                Some(LogEntry::Moved(moved)) => places.push(moved),
                _ => {}
            }
            true
        };
        state.log.scan(state.log.start(), &mut look).await.unwrap();
        assert!(inodes.contains(&ino) && places.contains(&moved), "{inodes:?} {places:?}");
        state.moves.borrow_mut().gone(from);
        state.orphans.borrow_mut().clear();
    });
}

//! Expectations: kernel traces keep the rules, and the same traces with planted faults break them.

use std::collections::BTreeSet;

use ordo_annotate::expect::{Broken, broken, expected};
use ordo_annotate::{owners, rows};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::{Class, Watch};

use crate::recorded::recorded;

mod recorded;

/// The kernel's ext3 and ReiserFS keep the rules of write-ahead logging. The same trace without its
/// flushes, and with a block written at its fixed location before its commit, breaks them, and the
/// requests are named.
#[test]
fn broken_expectations_are_named() {
    let of = |image: &[u8], trace: &Trace| {
        let watch = Watch::over(&image).unwrap();
        broken(trace, &owners::of_trace(trace, &watch))
    };
    let Some((image, trace)) = recorded("reiserfs", "reiserfs-ordered") else { return };
    assert_eq!(of(&image, &trace), []);
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    assert_eq!(of(&image, &trace), []);
    let rebuilt = |requests: Vec<&TraceRequest>| {
        let mut new = Trace::new(512, false);
        for r in requests {
            let data = trace.data(r).map(|bytes| new.keep(bytes));
            new.push(TraceRequest { data, ..*r });
        }
        new
    };
    let without = trace.requests().iter().filter(|r| r.op != RequestOp::Flush).collect();
    let found = of(&image, &rebuilt(without));
    assert!(!found.is_empty());
    assert!(found.iter().all(
        |b| matches!(b, Broken::CommitWithoutFlush { last_copy, commit, .. } if last_copy < commit)
    ));
    // The first checkpoint write is moved before the commit of its transaction.
    let watch = Watch::over(&&image[..]).unwrap();
    let blocks = owners::of_trace(&trace, &watch);
    let home = blocks.iter().find(|b| b.completes.is_some()).unwrap();
    let is_commit = |b: &&rows::BlockRow| {
        b.kind == ordo_watcher::Class::JournalCommit && b.transaction == home.completes
    };
    let commit = blocks.iter().find(is_commit).unwrap().request as usize;
    let mut requests: Vec<&TraceRequest> = trace.requests().iter().collect();
    let moved = requests.remove(home.request as usize);
    requests.insert(commit, moved);
    let found = of(&image, &rebuilt(requests));
    let named = found.iter().any(|b| {
        matches!(b, Broken::HomeBeforeCommit { offset, write, commit: Some(then), .. }
            if *offset == home.offset && *write == commit as u64 && *then == commit as u64 + 1)
    });
    assert!(named, "{found:?}");
}

fn judged(image: &[u8], trace: &Trace) -> Vec<Broken> {
    expected(trace, &Watch::over(&image).unwrap())
}

fn blocks(image: &[u8], trace: &Trace) -> Vec<rows::BlockRow> {
    owners::of_trace(trace, &Watch::over(&image).unwrap())
}

/// A trace with marks and writes inserted before requests: (request number, operation, offset,
/// contents).
fn with(
    trace: &Trace,
    put: &[(usize, RequestOp, u64, &[u8])],
    leave: &dyn Fn(usize) -> bool,
) -> Trace {
    let mut new = Trace::new(trace.sector(), false);
    let add = |new: &mut Trace, at: usize| {
        for (_, op, offset, data) in put.iter().filter(|p| p.0 == at) {
            let (len, kept) = (data.len() as u64, new.keep(data));
            let len = if *op == RequestOp::Mark { 0 } else { len };
            let (flags, issued, data) = (Flags::empty(), Time::ZERO, Some(kept));
            new.push(TraceRequest {
                op: *op,
                flags,
                offset: *offset,
                len,
                issued,
                epoch: 0,
                end: None,
                data,
            });
        }
    };
    for (i, r) in trace.requests().iter().enumerate() {
        add(&mut new, i);
        if leave(i) {
            continue;
        }
        let data = trace.data(r).map(|bytes| new.keep(bytes));
        new.push(TraceRequest { data, ..*r });
    }
    add(&mut new, trace.requests().len());
    new
}

/// A file with blocks of its own: its inode, its first block's place, its number of blocks, and the
/// request that wrote it. The trace's end must be known.
fn some_file(image: &[u8], trace: &Trace) -> (u64, u64, u64, usize) {
    let watch = Watch::over(&image).unwrap();
    let rows = owners::of_trace(trace, &watch);
    let written = |offset: u64| {
        let r = rows.iter().filter(|b| b.kind == Class::FileData && b.offset == offset);
        r.map(|b| b.request as usize).min()
    };
    let inodes: BTreeSet<u64> = rows.iter().filter_map(|b| b.ino).collect();
    let of = inodes.into_iter().find_map(|ino| {
        let contents = watch.contents(ino);
        let [first, ..] = contents[..] else { return None };
        (first.at == 0 && first.len >= 4096).then_some((ino, first, written(first.offset)?))
    });
    let (ino, first, request) = of.expect("a file with blocks");
    (ino, first.offset, first.len, request)
}

/// The kernel's writes keep every rule about files. A mark for an fsync's return after the flush
/// behind the data keeps them too. A mark before that flush, before the data, or without the data
/// breaks one, and the answer names that rule.
#[test]
fn an_fsync_without_its_data_is_named() {
    let all = ["ext3", "reiserfs-ordered", "xfs", "nilfs2", "f2fs"];
    for name in all {
        let start = name.split('-').next().unwrap();
        let Some((image, trace)) = recorded(start, name) else { return };
        assert_eq!(judged(&image, &trace), [], "{name}");
        let (ino, offset, _, request) = some_file(&image, &trace);
        let end = trace.requests().len();
        let mark = format!("fsync {ino} 0 4096");
        let marked = |at: usize, leave: &dyn Fn(usize) -> bool| {
            with(&trace, &[(at, RequestOp::Mark, 0, mark.as_bytes())], leave)
        };
        assert_eq!(judged(&image, &marked(end, &|_| false)), [], "{name}: after all of it");
        let found = |trace: &Trace| {
            let all = judged(&image, trace).into_iter();
            let mut all = all.filter(|b| matches!(b, Broken::FsyncWithoutData { .. }));
            all.next()
        };
        let without = found(&marked(request, &|_| false));
        let (inode, byte) = (ino, 0);
        let never = Broken::FsyncWithoutData { inode, byte, mark: request as u64, written: None };
        assert_eq!(without, Some(never), "{name}: before the data");
        // A flush after the block's last write makes it durable.
        let no_flush = |i: usize| {
            let r = &trace.requests()[i];
            i > request
                && (r.op == RequestOp::Flush || r.flags.intersects(Flags::FUA | Flags::PREFLUSH))
        };
        let unflushed = found(&marked(end, &no_flush));
        assert!(
            matches!(unflushed, Some(Broken::FsyncWithoutData { written: Some(_), .. })),
            "{name}: {unflushed:?}"
        );
        let writes = |i: usize| {
            let r = &trace.requests()[i];
            r.op == RequestOp::Write && r.offset <= offset && offset < r.offset + r.len
        };
        let gone = found(&marked(end, &writes));
        assert!(
            matches!(gone, Some(Broken::FsyncWithoutData { written: None, byte: 0, .. })),
            "{name}: {gone:?}"
        );
    }
}

/// A file's block is written twice more at the end, and nothing else: the inode's times are those
/// of the first write. With the inode's own block changed in between, no rule is broken.
#[test]
fn an_overwritten_block_without_its_inode_is_named() {
    for (start, name) in [("ext3", "ext3"), ("reiserfs", "reiserfs-ordered"), ("jfs", "jfs")] {
        let Some((image, trace)) = recorded(start, name) else { return };
        assert_eq!(judged(&image, &trace), [], "{name}");
        let (ino, offset, _, _) = some_file(&image, &trace);
        let end = trace.requests().len();
        let twice: [(usize, RequestOp, u64, &[u8]); 2] = [
            (end, RequestOp::Write, offset, &[0x5a; 4096]),
            (end, RequestOp::Write, offset, &[0x5b; 4096]),
        ];
        let found = judged(&image, &with(&trace, &twice, &|_| false));
        let named = matches!(found[..], [Broken::OverwrittenWithoutInode { inode, first, write, .. }]
            if (inode, first, write) == (ino, end as u64, end as u64 + 1));
        assert!(named, "{name}: {found:?}");
        let Some((at, block)) = changed_inode(name, &image, &trace, ino) else { continue };
        let between = [twice[0], (end, RequestOp::Write, at, &block), twice[1]];
        assert_eq!(judged(&image, &with(&trace, &between, &|_| false)), [], "{name}");
    }
}

/// On ext3: the block of an inode as the trace leaves it, with another change time.
fn changed_inode(name: &str, image: &[u8], trace: &Trace, ino: u64) -> Option<(u64, Vec<u8>)> {
    let rows = blocks(image, trace);
    let has = |b: &&rows::BlockRow| {
        b.kind == Class::InodeBlock
            && b.first_inode
                .is_some_and(|first| (first..first + b.inodes.unwrap_or(0)).contains(&ino))
    };
    let row = rows.iter().rev().find(has).filter(|_| name == "ext3")?;
    let r = &trace.requests()[row.request as usize];
    let data = &trace.data(r)?[(row.offset - r.offset) as usize..][..row.len as usize];
    let mut block = data.to_vec();
    let size = block.len() / row.inodes? as usize;
    block[(ino - row.first_inode?) as usize * size + 12] ^= 1;
    Some((row.offset, block))
}

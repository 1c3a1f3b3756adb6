//! The summary of a trace, against numbers counted by hand from the output of debugfs and
//! debugreiserfs.

use crate::common::{recorded, watched};
use ordo_watcher::analysis::Analysis;

/// A kernel's ext3 in ordered mode: 14 transactions of 61 copies, none of them data. A flush
/// separates each commit from its copies.
#[test]
fn an_ordered_journal_in_numbers() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let analysis = Analysis::of(&said.watch);
    let t = &analysis.transactions;
    assert_eq!((t.seen, t.committed, t.data_copies, t.revoked), (14, 14, 0, 5));
    assert_eq!((t.copies.least, t.copies.greatest), (1, 18));
    assert_eq!((t.unordered_commits, t.bad_checksums), (0, 0));
    // 14 descriptors, 61 copies, 14 commits, 1 revoke block, 6 superblocks, of 1 KiB each.
    assert_eq!(analysis.journal.bytes, (14 + 61 + 14 + 1 + 6) << 10);
    let written = recorded.trace.requests().iter().filter(|r| r.op == ordo_trace::RequestOp::Write);
    let written: u64 = written.map(|r| r.len).sum();
    assert_eq!(analysis.journal.bytes + analysis.fixed.bytes, written);
    let json = serde_json::to_value(&analysis).unwrap();
    assert_eq!(json["system"], "ext3");
    assert_eq!(json["writes"]["journal_commit"]["blocks"], 14);
    assert_eq!(json["transactions"]["copies"]["greatest"], 18);
}

/// The same work without the flushes, as a disk without a cache would be sent it: the disk may then
/// write every commit first. Catches a rule that never finds an unordered commit.
#[test]
fn a_commit_without_a_flush_is_found() {
    let Some(recorded) = recorded("ext3", "ext3") else { return };
    let mut trace = ordo_trace::Trace::new(512, false);
    for r in recorded.trace.requests().iter().filter(|r| r.op == ordo_trace::RequestOp::Write) {
        let data = recorded.trace.data(r).map(|data| trace.keep(data));
        trace.push(ordo_trace::TraceRequest { epoch: 0, data, ..*r });
    }
    let said = watched(&recorded.start, &trace).unwrap();
    let analysis = Analysis::of(&said.watch);
    assert_eq!(analysis.transactions.unordered_commits, 14);
}

/// ReiserFS with data in the journal: most of the copies are data.
#[test]
fn data_in_the_journal_is_counted() {
    let Some(recorded) = recorded("reiserfs", "reiserfs-journal") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let analysis = Analysis::of(&said.watch);
    assert!(analysis.transactions.data_copies >= 256, "{:?}", analysis.transactions);
    assert!(analysis.journal.bytes > 4 * analysis.fixed.bytes);
}

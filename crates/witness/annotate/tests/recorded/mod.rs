//! The kernel traces of other people, each with the image from which it starts.

use ordo_trace::Trace;

/// The names of all start images and traces.
#[allow(dead_code, reason = "some tests are about single traces")]
pub const RECORDED: [(&str, &str); 8] = [
    ("ext3", "ext3"),
    ("xfs", "xfs"),
    ("jfs", "jfs"),
    ("reiserfs", "reiserfs-ordered"),
    ("reiserfs", "reiserfs-journal"),
    ("reiserfs", "reiserfs-writeback"),
    ("nilfs2", "nilfs2"),
    ("f2fs", "f2fs"),
];

/// A start image, and the trace. `None`, loudly, if there are no such files.
pub fn recorded(start: &str, name: &str) -> Option<(Vec<u8>, Trace)> {
    let start = ordo_testkit::real_input(&format!("traces/{start}-start.img"))?;
    let log = ordo_testkit::real_input(&format!("traces/{name}.dmlogwrites"))?;
    Some((start, ordo_trace::dm_log_writes::import(log).unwrap().trace))
}

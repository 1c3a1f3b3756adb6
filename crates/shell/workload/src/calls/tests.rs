//! Plans of recorded calls: objects by name, what exists at the start, and what waits for what.

use ordo_trace::strace::parse;

use super::plan::{Plan, PlannedCall, Step};

fn plan(text: &str) -> Plan {
    Plan::new(&parse(text, "/m"))
}

fn initial(plan: &Plan) -> Vec<(&str, Option<u64>)> {
    plan.initial.iter().map(|(path, initial)| (path.as_str(), initial.size)).collect()
}

/// A file that calls read, remove or rename and no call made exists at the start, with its
/// directories, and as long as the reads show it. One that calls made does not, nor one that they
/// did not find.
#[test]
fn files_that_no_call_makes_exist_at_the_start() {
    let plan = plan(
        r#"
7 1.0 openat(AT_FDCWD</m>, "src/a.c", O_RDONLY) = 3</m/src/a.c> <0.0>
7 1.1 read(3</m/src/a.c>, ""..., 4096) = 4096 <0.0>
7 1.2 read(3</m/src/a.c>, ""..., 4096) = 900 <0.0>
7 1.3 openat(AT_FDCWD</m>, "src/a.h", O_RDONLY) = -1 ENOENT (No such file or directory) <0.0>
7 1.4 mkdir("/m/obj", 0755) = 0 <0.0>
7 1.5 openat(AT_FDCWD</m>, "obj/a.o", O_RDWR|O_CREAT|O_TRUNC, 0666) = 4</m/obj/a.o> <0.0>
7 1.6 write(4</m/obj/a.o>, ""..., 70) = 70 <0.0>
7 1.7 unlink("/m/old/b.o") = 0 <0.0>
7 1.8 openat(AT_FDCWD</m>, "/proc/cpuinfo", O_RDONLY) = 5</proc/cpuinfo> <0.0>
7 1.9 fallocate(4</m/obj/a.o>, 0, 0, 4096) = 0 <0.0>
"#,
    );
    assert_eq!(
        initial(&plan),
        [("old", None), ("old/b.o", Some(0)), ("src", None), ("src/a.c", Some(4996))]
    );
    assert_eq!(plan.calls[3].step, Step::Missing { path: "src/a.h".into() });
    // Space that is set aside is not repeated, and said to be so.
    assert_eq!((plan.calls.len(), plan.skipped), (8, 1));
}

/// A file that is opened with `O_CREAT` and then read further than anything was written was there
/// before.
#[test]
fn a_file_that_is_read_beyond_what_was_written_was_there() {
    let text = |read: u32| {
        format!(
            "7 1.0 openat(AT_FDCWD</m>, \"db\", O_RDWR|O_CREAT, 0644) = 3</m/db> <0.0>\n\
             7 1.1 pwrite64(3</m/db>, \"\"..., 100, 0) = 100 <0.0>\n\
             7 1.2 pread64(3</m/db>, \"\"..., {read}, 0) = {read} <0.0>\n"
        )
    };
    assert_eq!(initial(&plan(&text(100))), []);
    assert_eq!(initial(&plan(&text(8192))), [("db", Some(8192))]);
}

/// Names follow renames of files and of directories, and a name that is used again means the new
/// file.
#[test]
fn calls_mean_the_object_that_has_the_name_then() {
    let plan = plan(
        r#"
7 1.0 openat(AT_FDCWD</m>, "a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</m/a> <0.0>
7 1.1 mkdir("/m/d", 0755) = 0 <0.0>
7 1.2 rename("/m/a", "/m/d/b") = 0 <0.0>
7 1.3 rename("/m/d", "/m/e") = 0 <0.0>
7 1.4 fsync(3</m/e/b>) = 0 <0.0>
7 1.5 openat(AT_FDCWD</m>, "a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4</m/a> <0.0>
7 1.6 fsync(4</m/a>) = 0 <0.0>
"#,
    );
    let objects: Vec<usize> = plan
        .calls
        .iter()
        .filter_map(|call| match call.step {
            Step::Open { object, .. } | Step::Sync { object, .. } => Some(object),
            _ => None,
        })
        .collect();
    assert_eq!((objects[0], objects[2]), (objects[1], objects[3]));
    assert_ne!(objects[0], objects[2]);
    assert_eq!(initial(&plan), []);
}

/// A program's fdatasync and msync make contents durable, its fsync the file; sync_file_range makes
/// nothing durable. Would catch a recorded database whose every commit pays for an inode.
#[test]
fn an_fdatasync_stays_one_and_a_range_is_no_sync() {
    let plan = plan(
        r#"
7 1.0 openat(AT_FDCWD</m>, "a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</m/a> <0.0>
7 1.1 fsync(3</m/a>) = 0 <0.0>
7 1.2 fdatasync(3</m/a>) = 0 <0.0>
7 1.3 sync_file_range(3</m/a>, 0, 4096, SYNC_FILE_RANGE_WRITE) = 0 <0.0>
"#,
    );
    let sync = |call: &PlannedCall| match call.step {
        Step::Sync { data, .. } => Some(data),
        _ => None,
    };
    assert_eq!(plan.calls.iter().filter_map(sync).collect::<Vec<_>>(), [false, true]);
}

/// A name below a symbolic link is that of the file that it leads to.
#[test]
fn names_below_symbolic_links_mean_the_targets() {
    let plan = plan(
        r#"
7 1.0 mkdir("/m/d", 0755) = 0 <0.0>
7 1.1 symlink("d", "/m/l") = 0 <0.0>
7 1.2 openat(AT_FDCWD</m>, "d/a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</m/d/a> <0.0>
7 1.3 rename("/m/l/a", "/m/l/b") = 0 <0.0>
7 1.4 unlink("/m/d/b") = 0 <0.0>
7 1.5 unlink("/m/l") = 0 <0.0>
"#,
    );
    assert_eq!(initial(&plan), []);
    assert_eq!(plan.calls[3].step, Step::Rename { from: "d/a".into(), to: "d/b".into() });
    assert_eq!(plan.calls[5].step, Step::Remove { path: "l".into(), is_directory: false });
}

/// A process waits for those that had ended before it, for a child that began and ended between two
/// of its calls, and for another one's file that it opens, and for nothing else: two that ran at
/// once need not wait for each other.
#[test]
fn calls_wait_for_what_the_recording_shows() {
    let plan = plan(
        r#"
1 1.0 openat(AT_FDCWD</m>, "list", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/list> <0.01>
2 1.1 openat(AT_FDCWD</m>, "x", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/x> <0.01>
3 1.15 openat(AT_FDCWD</m>, "y", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/y> <0.01>
2 1.2 write(3</m/x>, ""..., 10) = 10 <0.01>
3 1.25 write(3</m/y>, ""..., 10) = 10 <0.01>
2 1.3 close(3</m/x>) = 0 <0.01>
1 1.4 openat(AT_FDCWD</m>, "x", O_RDONLY) = 4</m/x> <0.01>
3 1.5 close(3</m/y>) = 0 <0.01>
4 2.0 openat(AT_FDCWD</m>, "z", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/z> <0.01>
1 3.0 unlink("/m/z") = 0 <0.01>
"#,
    );
    let waits: Vec<&[usize]> = plan.calls.iter().map(|call| &call.waits[..]).collect();
    // The open of x by process 1 waits for the close by process 2, its child.
    assert_eq!(waits[6], [5]);
    // Process 3 ran beside process 2: only its first call waits, for the call that ended before it.
    assert_eq!((waits[2], waits[4], waits[7]), (&[1][..], &[][..], &[][..]));
    // Process 4 begins when 2 and 3 have ended; the unlink waits for its file.
    assert_eq!((plan.calls[8].gate, waits[9]), (2, &[8][..]));
    let places: Vec<usize> = plan.processes.iter().map(|(_, place)| *place).collect();
    assert_eq!(places, [3, 0, 1, 2]);
    assert_eq!(plan.calls[9].think, 990_000_000);
    // Processes 1, 2 and 3 were under way at once.
    assert_eq!(plan.width(), 3);
}

/// A process waits for its child also where both use nothing in common.
#[test]
fn a_process_waits_for_its_child_whatever_it_did() {
    let plan = plan(
        r#"
1 1.0 openat(AT_FDCWD</m>, "list", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/list> <0.01>
2 1.1 openat(AT_FDCWD</m>, "x", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/x> <0.01>
2 1.2 write(3</m/x>, ""..., 10) = 10 <0.01>
1 1.4 write(3</m/list>, ""..., 10) = 10 <0.01>
"#,
    );
    assert_eq!(plan.calls[3].waits, [2]);
}

/// A process that was under way waits for a file that another one makes, while that goes on with
/// other work.
#[test]
fn a_process_waits_for_a_file_that_another_one_makes() {
    let plan = plan(
        r#"
1 1.0 openat(AT_FDCWD</m>, "a", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/a> <0.01>
2 1.1 openat(AT_FDCWD</m>, "b", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/b> <0.01>
1 1.2 close(3</m/a>) = 0 <0.01>
2 1.3 openat(AT_FDCWD</m>, "a", O_RDONLY) = 4</m/a> <0.01>
1 1.4 openat(AT_FDCWD</m>, "c", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/c> <0.01>
2 1.5 unlink("/m/a") = 0 <0.01>
"#,
    );
    assert_eq!(plan.calls[3].waits, [2]);
    assert_eq!(plan.calls[4].waits, [0; 0]);
}

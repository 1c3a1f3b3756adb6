//! Reading of what strace prints.

use super::*;

const TEXT: &str = r#"
7 100.000001 openat(AT_FDCWD</m/top>, "a.tmp", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/top/a.tmp> <0.000020>
7 100.000100 write(3</m/top/a.tmp>, "x, \"y)\""..., 4096) = 4096 <0.000010>
8 100.000150 fsync(3</m/top/a.tmp> <unfinished ...>
7 100.000160 write(3</m/top/a.tmp>, "z", 1) = 1 <0.000010>
8 100.000900 <... fsync resumed>) = -1 EIO (Input/output error) <0.000750>
7 100.001000 rename("a.tmp", "sub/../a") = 0 <0.000005>
7 100.001100 write(1</dev/null>, "ok\n", 3) = 3 <0.000005>
7 100.001200 openat(AT_FDCWD</m/top>, "log", O_WRONLY|O_APPEND) = 4</m/top/log> <0.000020>
7 100.001300 write(4</m/top/log>, "12", 2) = 2 <0.000005>
7 100.001400 write(4</m/top/log>, "345", 3) = 3 <0.000005>
7 100.001500 fsync(5</m/top>) = 0 <0.000005>
7 100.001600 +++ exited with 0 +++
"#;

/// Calls are read with paths, offsets and errors, and interrupted ones are joined. Calls
/// outside the directory are left out.
#[test]
fn output_of_strace_is_parsed() {
    let calls = parse(TEXT, "/m/top");
    let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
    assert_eq!(
        texts,
        [
            "openat(a.tmp)",
            "write(a.tmp, bytes 0 to 4095)",
            "fsync(a.tmp) = EIO",
            "write(a.tmp, bytes 4096 to 4096)",
            "rename(a.tmp -> a)",
            "openat(log)",
            "write(log, bytes 0 to 1)",
            "write(log, bytes 2 to 4)",
            "fsync(.)",
        ]
    );
    assert_eq!(calls[2].ended - calls[2].began, 750_000);
    assert_eq!((calls[1].fd, calls[1].began), (Some(3), 100_000_100_000));
}

/// A shell copies descriptors, which the trace does not show. A new file begins at byte 0 all
/// the same, whatever was written through that descriptor to an earlier file of its name.
#[test]
fn a_new_file_of_an_old_name_begins_at_its_start() {
    let round = |at: u32| {
        format!(
            "7 100.{at}1 openat(AT_FDCWD</m>, \"new\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</m/new> <0.000020>\n\
             7 100.{at}2 write(1</m/new>, \"1\\n\", 2) = 2 <0.000010>\n\
             7 100.{at}3 rename(\"/m/new\", \"/m/db\") = 0 <0.000005>\n"
        )
    };
    let calls = parse(&(round(1) + &round(2)), "/m");
    let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
    let round = ["openat(new)", "write(new, bytes 0 to 1)", "rename(new -> db)"];
    assert_eq!(texts, [round, round].concat());
}

/// A copy names both files, and is a read where the copy goes to a connection.
#[test]
fn copies_have_two_files() {
    let text = "7 1.1 copy_file_range(3</m/a>, NULL, 4</m/b>, NULL, 9223372035781033984, 0) = 70 <0.1>\n\
        7 1.2 sendfile(5<socket:[9]>, 3</m/a>, [0] => [70], 70) = 70 <0.1>\n";
    let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
    assert_eq!(texts, ["copy_file_range(a -> b, bytes 0 to 69)", "read(a, bytes 0 to 69)"]);
}

/// A symbolic link leads to a file by its own directory, whatever the process's.
#[test]
fn symbolic_links_have_their_targets() {
    let text = "7 1.1 symlink(\"../b/c\", \"/m/a/l\") = 0 <0.1>\n\
        7 1.2 symlinkat(\"/m/b\", AT_FDCWD</m/a>, \"k\") = 0 <0.1>\n\
        7 1.3 symlink(\"/etc/passwd\", \"/m/a/e\") = 0 <0.1>\n";
    let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
    assert_eq!(texts, ["symlink(a/l -> b/c)", "symlinkat(a/k -> b)", "symlink(a/e)"]);
}

/// A child's relative names are below the directory that `AT_FDCWD` shows.
#[test]
fn a_childs_directory_is_learnt_from_its_calls() {
    let text = "9 1.1 openat(AT_FDCWD</m/sub>, \"/lib/c.so\", O_RDONLY) = 3</lib/c.so> <0.1>\n\
        9 1.2 unlink(\"./old\") = 0 <0.1>\n";
    let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
    assert_eq!(texts, ["unlink(sub/old)"]);
}

/// A call about memory has the file and the bytes that are mapped there, also in another
/// thread; private mappings and those of other files have none.
#[test]
fn memory_has_its_files() {
    let text = "7 1.1 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_SHARED, 3</m/a>, 0x1000) = 0x7f0000 <0.1>\n\
        7 1.2 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE, 4</m/b>, 0) = 0x8f0000 <0.1>\n\
        8 1.3 msync(0x7f1000, 4096, MS_SYNC) = 0 <0.1>\n\
        8 1.4 msync(0x8f0000, 4096, MS_SYNC) = 0 <0.1>\n\
        7 1.5 munmap(0x7f0000, 8192) = 0 <0.1>\n\
        7 1.6 msync(0x7f0000, 4096, MS_SYNC) = -1 ENOMEM (Cannot allocate memory) <0.1>\n";
    let calls = parse(text, "/m");
    let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
    let mapped = ["mmap(a, bytes 4096 to 12287)", "msync(a, bytes 8192 to 12287)"];
    assert_eq!(texts, [&mapped[..], &["munmap(a, bytes 4096 to 12287)"]].concat());
    assert_eq!((calls[0].fd, &*calls[1].flags), (Some(3), "MS_SYNC"));
}

/// A ring's requests are calls about the files of their descriptors; those about a socket or
/// another directory are none.
#[test]
fn requests_of_rings_have_their_files() {
    let text = "7 1.1 io_uring_setup(8, {flags=0}) = 3<anon_inode:[io_uring]> <0.1>\n\
        7 1.2 openat(AT_FDCWD</m>, \"log\", O_RDWR|O_CREAT, 0644) = 4</m/log> <0.1>\n\
        7 1.3 openat(AT_FDCWD</m>, \"/etc/x\", O_RDWR) = 5</etc/x> <0.1>\n\
        7 1.8 close(4</m/log>) = 0 <0.1>\n";
    let request = |fd: Option<i64>, at: i64, operation: &str, result: i64| RingRequest {
        pid: 9,
        began: at * 100_000_000,
        ended: Some(at * 100_000_000 + 5),
        operation: operation.to_owned(),
        fd,
        result,
    };
    let rings = [
        request(Some(4), 14, "WRITE", 4096),
        request(Some(5), 15, "WRITE", 4096),
        request(None, 16, "FSYNC", 0),
        request(Some(4), 17, "FSYNC", -5),
        request(Some(4), 20, "WRITE", 1),
    ];
    let of = |rings: Option<Vec<RingRequest>>| {
        let calls = parse_with(text, "/m", &Beside { rings, ..Beside::default() });
        let told = |call: &Syscall| format!("{} {}", call.text(), call.flags);
        calls.iter().map(told).collect::<Vec<_>>()
    };
    let seen = of(Some(rings.to_vec()));
    let rest = ["io_uring_write(log) ", "io_uring_fsync() ", "io_uring_fsync(log) = error 5 "];
    let setup = ["io_uring_setup() seen", "openat(log) O_RDWR|O_CREAT"];
    assert_eq!(seen, [&setup[..], &rest, &["close(log) "]].concat());
    assert_eq!(of(None)[0], "io_uring_setup() ");
}

/// `pwritev2` at -1 writes at the descriptor's place, and its flags are kept. A file that was
/// there before is appended to at its end. A file without a name gets one.
#[test]
fn places_of_writes_are_known() {
    let text = "7 1.1 openat(AT_FDCWD</m>, \"log\", O_WRONLY|O_APPEND) = 3</m/log> <0.1>\n\
        7 1.2 pwritev2(3</m/log>, [{iov_base=\"ab\", iov_len=2}], 1, -1, RWF_DSYNC) = 2 <0.1>\n\
        7 1.3 write(3</m/log>, \"c\", 1) = 1 <0.1>\n\
        7 1.4 openat(AT_FDCWD</m>, \".\", O_RDWR|O_TMPFILE, 0600) = 4</m/#12 (deleted)> <0.1>\n\
        7 1.5 linkat(AT_FDCWD</m>, \"/proc/self/fd/4\", AT_FDCWD</m>, \"new\", AT_SYMLINK_FOLLOW) = 0 <0.1>\n\
        7 1.6 fallocate(4</m/new>, FALLOC_FL_KEEP_SIZE, 4096, 100) = 0 <0.1>\n";
    let beside = Beside { existing: vec![("log".to_owned(), Some(10))], rings: None };
    let calls = parse_with(text, "/m", &beside);
    let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
    let log = ["openat(log)", "pwritev2(log, bytes 10 to 11)", "write(log, bytes 12 to 12)"];
    let new = ["openat(#12)", "linkat(#12 -> new)", "fallocate(new, bytes 4096 to 4195)"];
    assert_eq!(texts, [log, new].concat());
    assert_eq!((&*calls[1].flags, &*calls[5].flags), ("RWF_DSYNC", "FALLOC_FL_KEEP_SIZE"));
}

/// Lines that are no calls, or are cut off, are skipped.
#[test]
fn damage_is_passed_over() {
    for text in ["", "x", "1 2", "1 2.0 open(", "1 2.0 write(3</m/top/a", "1 z write(3) = 1"] {
        assert!(parse(text, "/m/top").is_empty(), "{text}");
    }
}

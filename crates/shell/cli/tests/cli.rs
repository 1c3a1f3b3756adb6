//! The command as a user runs it: output, errors, exit status.
//!
//! Fault model: a command that does the wrong thing and reports success; an error without what,
//! where and the next step; output that differs from run to run.

use std::fs;
use std::path::Path;

use std::rc::Rc;

use assert_cmd::Command;
use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_runtime::Executor;
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_vfs::{FileSystem, NewNode};
use serde_json::Value;

fn ordo(args: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("ordo").unwrap().args(args).assert()
}

fn stdout(assert: &assert_cmd::assert::Assert) -> String {
    String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
}

fn stderr(assert: &assert_cmd::assert::Assert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The error and the exit status of a command that must fail.
fn refused(args: &[&str]) -> (i32, String) {
    let assert = ordo(args);
    let code = assert.get_output().status.code().unwrap();
    assert_ne!(code, 0, "{args:?}: {}", stdout(&assert));
    (code, stderr(&assert))
}

#[test]
fn a_directory_goes_into_an_image_and_comes_out_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, image) = (temp.path().join("in"), temp.path().join("a.img"));
    fs::create_dir_all(dir.join("sub/deep")).unwrap();
    fs::write(dir.join("sub/file"), vec![9; 100_000]).unwrap();
    fs::hard_link(dir.join("sub/file"), dir.join("twin")).unwrap();
    std::os::unix::fs::symlink("sub", dir.join("link")).unwrap();
    let out = stdout(&ordo(&["import", text(&dir), text(&image)]).success());
    assert!(out.starts_with("5 entries copied, 97.7 KB"), "{out}");
    ordo(&["fsck", text(&image)]).code(0);
    let back = temp.path().join("out");
    ordo(&["export", text(&image), text(&back)]).success();
    assert_eq!(fs::read(back.join("twin")).unwrap(), vec![9; 100_000]);
    assert_eq!(fs::read_link(back.join("link")).unwrap(), Path::new("sub"));
    assert!(back.join("sub/deep").is_dir());
    // The file system's own listing shows what was imported.
    let out = stdout(&ordo(&["ls", "-R", "--json", text(&image)]).success());
    let lines: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(lines.len(), 5, "{out}");
    let twin = lines.iter().find(|l| l["path"] == "twin").unwrap();
    assert_eq!((twin["links"].as_u64(), twin["size"].as_u64()), (Some(2), Some(100_000)));
}

#[test]
fn files_are_copied_listed_and_printed_one_by_one() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    let note = temp.path().join("note");
    fs::write(&note, "hello\n").unwrap();
    let out = stdout(&ordo(&["mkfs", text(&image), "--size", "16m", "-L", "box"]).success());
    assert!(out.contains("16 MB, 512 blocks of 32 KB, fragments of 4 KB"), "{out}");
    let inside = |path: &str| format!("{}:{path}", text(&image));
    ordo(&["cp", text(&note), &inside("/")]).success();
    ordo(&["cp", text(&note), &inside("/other")]).success();
    assert_eq!(
        stdout(&ordo(&["cat", text(&image), "/note", "/other"]).success()),
        "hello\nhello\n"
    );
    let out = stdout(&ordo(&["ls", "-l", text(&image)]).success());
    assert!(out.lines().any(|l| l.starts_with("-rw") && l.ends_with(" note")), "{out}");
    let copy = temp.path().join("copy");
    ordo(&["cp", &inside("/other"), text(&copy)]).success();
    assert_eq!(fs::read(&copy).unwrap(), b"hello\n");
    let out = stdout(&ordo(&["info", "--json", text(&image)]).success());
    let info: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((info["label"].as_str(), info["clean"].as_bool()), (Some("box"), Some(true)));
    assert!(stdout(&ordo(&["info", "--groups", text(&image)]).success()).contains("cg 0:"));
}

/// An image after a power cut, with twenty names in its log only.
fn with_names_in_its_log() -> Vec<u8> {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disks = [Rc::new(RamDisk::new(16 << 20))];
    let journaled = Journaled::new(LogPlace::File, true, None);
    let work = async {
        journaled.make(&rt, &Device::of_each(&disks), &MkfsOptions::default()).await.unwrap();
        let (fs, _) =
            journaled.mount(&rt, &Device::of_each(&disks), &MountOptions::default()).await.unwrap();
        for n in 0..20 {
            let name = format!("file-{n}").into_bytes();
            fs.create(fs.root(), &name, &NewNode::file(0o644)).await.unwrap();
        }
        disks[0].snapshot().to_vec()
    };
    executor.block_on(work).unwrap()
}

/// A command that reads an image sees the log's changes, says so, and changes neither image nor
/// log; a command that writes does not start before the log is replayed. Would catch a listing that
/// lacks durable names.
#[test]
fn commands_read_files_that_are_only_in_the_log() {
    let temp = tempfile::tempdir().unwrap();
    let (image, out) = (temp.path().join("a.img"), temp.path().join("out"));
    let crashed = with_names_in_its_log();
    fs::write(&image, &crashed).unwrap();
    let ls = ordo(&["ls", text(&image)]).success();
    assert_eq!(stdout(&ls).lines().filter(|l| l.starts_with("file-")).count(), 20);
    assert!(
        stderr(&ls).contains("a.img: its log was replayed in memory only, "),
        "{}",
        stderr(&ls)
    );
    ordo(&["export", text(&image), text(&out)]).success();
    assert!(out.join("file-19").exists());
    assert!(fs::read(&image).unwrap() == crashed, "reading has changed the image");
    let (_, said) = refused(&["cp", text(&out.join("file-1")), &format!("{}:/new", text(&image))]);
    assert!(said.contains("not unmounted cleanly; check it first (ordo fsck)"), "{said}");
    ordo(&["fsck", "-p", text(&image)]).success();
    ordo(&["cp", text(&out.join("file-1")), &format!("{}:/new", text(&image))]).success();
    let ls = ordo(&["ls", text(&image)]).success();
    assert_eq!((stdout(&ls).lines().count(), stderr(&ls)), (22, String::new()));
}

#[test]
fn errors_say_what_where_and_what_next() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    let (_, said) = refused(&["mkfs", text(&image)]);
    assert!(said.contains("a.img: does not exist; give --size"), "{said}");
    ordo(&["mkfs", text(&image), "--size", "16m"]).success();
    let (_, said) = refused(&["mkfs", text(&image)]);
    assert!(said.contains("holds a UFS2 file system (byte 66,908); --force"), "{said}");
    ordo(&["mkfs", text(&image), "--force"]).success();
    let (_, said) = refused(&["cat", text(&image), "/no/such"]);
    assert_eq!(said, "ordo: no such file or directory: /no/such\n");
    let (_, said) = refused(&["cp", "-r", "a", "b"]);
    assert!(said.contains("IMAGE:/path"), "{said}");
    let (code, said) = refused(&["compare", "--workload", "postmrk"]);
    assert!(code == 2 && said.contains("no workload is called 'postmrk'"), "{said}");
    for (list, wanted) in [
        ("lfs:cleaner=lazy", "cleaner=lazy: 'lazy': expected greedy, cost-benefit or hot-cold"),
        ("lfs:idle=1,clean-low=200", "clean-low=200: '200': expected percent from 0 to 100"),
        ("ffs-sync:cleaner=greedy", "ffs-sync has no cleaner"),
        ("ffs-sync:maxcontig=0", "maxcontig=0: '0': expected blocks from 1 to 256"),
        ("lfs:rotgap=1", "the cleaner has no option 'rotgap'"),
        ("lfs,speed=9", "the cleaner has no option 'speed'"),
    ] {
        let (code, said) = refused(&["compare", "--fs", list]);
        assert!(code == 2 && said.contains(wanted), "{list}: {said}");
    }
    let (_, said) = refused(&["compare", "--disk", "floppy"]);
    assert!(said.contains("no disk model is called 'floppy'; there are"), "{said}");
    let empty = temp.path().join("empty");
    fs::write(&empty, vec![0; 1 << 20]).unwrap();
    let (_, said) = refused(&["ls", text(&empty)]);
    assert!(said.contains("empty: is empty") && !said.contains("fsck"), "{said}");
}

#[test]
fn fsck_gives_the_exit_status_of_fsck() {
    let temp = tempfile::tempdir().unwrap();
    let image = temp.path().join("a.img");
    ordo(&["mkfs", text(&image), "--size", "16m"]).success();
    ordo(&["fsck", text(&image)]).code(0);
    // A byte of the first group's free-fragment map is wrong.
    let mut bytes = fs::read(&image).unwrap();
    let group = 32 * 4096;
    bytes[group + 3000] ^= 0xff;
    fs::write(&image, &bytes).unwrap();
    ordo(&["fsck", text(&image)]).code(4);
    let out = stdout(&ordo(&["fsck", "-y", text(&image)]).code(1));
    assert!(out.contains("repaired"), "{out}");
    ordo(&["fsck", "--json", text(&image)]).code(0);
    assert_eq!(refused(&["fsck", "/no/such"]).0, 8);
    assert_eq!(refused(&["fsck", "--nonsense"]).0, 16);
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    assert_eq!(refused(&["fsck", text(&image)]).0, 8);
}

#[test]
fn a_comparison_is_the_same_every_time_and_is_written_where_asked() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("rows.json");
    let args = [
        "compare",
        "--workload",
        "postmark:files=20,transactions=60",
        "-w",
        "create-delete:files=20",
        "--fs",
        "ffs-sync,ffs-soft-updates,ffs-none",
    ];
    let first = stdout(&ordo(&args).success());
    assert_eq!(first, stdout(&ordo(&args).success()));
    // There is a table for each workload, with systems as lines, no wider than a terminal.
    assert_eq!(first.lines().filter(|l| l.starts_with("ffs-soft-updates ")).count(), 2, "{first}");
    assert!(first.contains("waited for") && first.contains("Power cut"), "{first}");
    assert!(first.lines().all(|line| line.chars().count() <= 100), "{first}");
    let wide = stdout(&ordo(&[&args[..], &["--wide"]].concat()).success());
    assert!(
        wide.contains("[1] ffs-sync  [1] ffs-soft-updates  [1] ffs-none  [2] ffs-sync"),
        "{wide}"
    );
    assert!(wide.contains("writes waited for") && wide.contains("inode block"), "{wide}");
    ordo(&[&args[..], &["--json", "-o", text(&file)]].concat()).success().stdout("");
    let rows: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let rows = rows["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for field in ["system", "workload", "app_seconds", "total_seconds", "disk_seconds", "requests"]
    {
        assert!(rows[0].get(field).is_some(), "{field}");
    }
    assert!(rows[0]["writes"]["inode_block"].as_u64().unwrap() > 20);
    let one =
        stdout(&ordo(&["compare", "-w", "create-delete:files=9", "--fs", "ffs-none"]).success());
    assert!(!one.contains("ffs-sync"), "{one}");
}

/// Would catch a page that leaves out a system or a kind of block, needs a network or a script, or
/// differs from run to run.
#[test]
fn a_comparison_has_a_page_for_a_browser() {
    let temp = tempfile::tempdir().unwrap();
    let page = |name: &str| {
        let file = temp.path().join(name);
        let fs = "ffs-none,ffs-soft-updates,lffs-file";
        let args =
            ["compare", "-w", "postmark:files=20,transactions=60", "-f", fs, "--html", text(&file)];
        let said = stdout(&ordo(&args).success());
        (said, fs::read_to_string(&file).unwrap())
    };
    let (said, html) = page("one.html");
    assert!(said.contains("app s"), "{said}");
    assert_eq!(html, page("two.html").1);
    for system in ["ffs-none", "ffs-soft-updates", "lffs-file"] {
        // Each system has a bar of the time, one of the writes, and a line about the power cut.
        assert_eq!(html.matches(&format!("<div>{system}</div>")).count(), 2, "{html}");
        assert_eq!(html.matches(&format!("<tr><td>{system}</td>")).count(), 1, "{html}");
    }
    for kind in ["inode block", "directory", "log"] {
        assert!(html.contains(kind), "{kind}: {html}");
    }
    assert!(html.contains("class=\"mark ") && html.ends_with("</html>\n"));
    assert!(!html.contains("http") && !html.contains("<script"));
}

#[test]
fn a_workload_runs_on_one_system_and_in_a_directory_of_the_host() {
    let temp = tempfile::tempdir().unwrap();
    let out = stdout(&ordo(&["bench", "micro:total=64k,sizes=8k"]).success());
    assert!(out.contains("create 8 KB") && out.contains("sync waits"), "{out}");
    let dir = text(temp.path());
    let out = stdout(&ordo(&["bench", "postmark:files=5,transactions=9", "--dir", dir]).success());
    assert!(out.contains("in real time") && out.contains("transactions"), "{out}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "something was left behind");
}

/// A personality of filebench, and a user's own file, run on a system and in a directory of the
/// host; the mix of their operations is printed; a fault is shown with its line and column.
#[test]
fn a_personality_of_filebench_runs_on_a_system_and_in_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let own = temp.path().join("own.f");
    let script = "set $nthreads=2\ndefine fileset name=set,size=4k,entries=20,dirwidth=5,prealloc=50\n\
         define process name=p { thread name=t,instances=$nthreads {\n\
         flowop createfile name=make,filesetname=set,fd=1\n\
         flowop writewholefile name=fill,fd=1,iosize=1k\nflowop fsync name=sync,fd=1\n\
         flowop closefile name=close,fd=1\nflowop deletefile name=drop,filesetname=set } }\nrun 1";
    fs::write(&own, script).unwrap();
    let own = format!("filebench:{}", own.display());
    let dir = temp.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for workload in ["filebench:varmail,run=1,nfiles=30,nthreads=3", own.as_str()] {
        let args = ["bench", workload, "--fs", "ffs-soft-updates", "--disk", "nvme"];
        let out = stdout(&ordo(&args).success());
        assert!(
            out.contains("percent") && (out.contains("new-sync") || out.contains("fill")),
            "{out}"
        );
        assert!(out.lines().skip(1).all(|line| line.chars().count() <= 100), "{out}");
        let out = stdout(&ordo(&["bench", workload, "--dir", text(&dir), "--json"]).success());
        let row: Value = serde_json::from_str(&out).unwrap();
        let run = &row["phases"][1];
        assert!(run["mix"].as_array().unwrap().len() >= 5 && run["operations"].as_u64() > Some(20));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "something was left behind");
    }
    fs::write(temp.path().join("own.f"), script.replace("entries=20", "entrys=20")).unwrap();
    let (_, said) = refused(&["bench", &own]);
    assert!(
        said.contains("own.f:2:33: a fileset has no attribute 'entrys' here; it has"),
        "{said}"
    );
}

#[test]
fn every_command_has_help_completions_and_a_manual_page() {
    let temp = tempfile::tempdir().unwrap();
    ordo(&["man", text(temp.path())]).success();
    let bash = stdout(&ordo(&["completions", "bash"]).success());
    for command in
        ["compare", "bench", "mkfs", "info", "fsck", "ls", "cat", "cp", "import", "export"]
    {
        let help = stdout(&ordo(&[command, "--help"]).success());
        assert!(help.contains("Examples:") && help.contains("ordo "), "{command}: {help}");
        assert!(bash.contains(command));
        let page = fs::read_to_string(temp.path().join(format!("ordo-{command}.1"))).unwrap();
        assert!(page.contains(".SH"), "{command}");
    }
}

#[test]
fn a_log_takes_lines_and_gives_them_back() {
    let temp = tempfile::tempdir().unwrap();
    let log = temp.path().join("events.log");
    let log = text(&log);
    assert!(refused(&["log", "stat", log]).1.contains("No such file"));
    ordo(&["log", "create", log, "--size", "64k"]).success();
    assert!(refused(&["log", "create", log]).1.contains("--force"));
    let append = |input: &str, more: &[&str]| {
        let mut args = vec!["log", "append", log, "--verbose"];
        args.extend(more);
        let out = Command::cargo_bin("ordo").unwrap().args(args).write_stdin(input).assert();
        stdout(&out.success())
    };
    let first = append("one\ntwo\n", &[]);
    let second = append("three", &["--each"]);
    assert_eq!((first.as_str(), second.as_str()), ("0\n4\n", "8\n"));
    assert_eq!(stdout(&ordo(&["log", "read", log]).success()), "one\ntwo\nthree\n");
    assert_eq!(stdout(&ordo(&["log", "read", log, "--from", "4", "-c", "1"]).success()), "two\n");
    let (code, said) = refused(&["log", "read", log, "--from", "5"]);
    assert_eq!(code, 1);
    assert!(said.contains("no record begins at 5; the log has records from 0 to 14"), "{said}");
    assert_eq!(
        stdout(&ordo(&["log", "follow", log, "--from", "4", "-c", "2"]).success()),
        "two\nthree\n"
    );
    ordo(&["log", "truncate", log, "8"]).success();
    let out = stdout(&ordo(&["log", "stat", log, "--json"]).success());
    let stat: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&stat["start"], &stat["end"], &stat["records"]),
        (&8.into(), &14.into(), &1.into())
    );
    // A record is larger than the free space: it is refused, or the oldest are removed.
    let many = "x".repeat(99) + "\n";
    let many = many.repeat(1000);
    let full = Command::cargo_bin("ordo")
        .unwrap()
        .args(["log", "append", log])
        .write_stdin(many.clone())
        .assert();
    assert!(stderr(&full.failure()).contains("the log is full"));
    append(&many, &["--wrap"]);
    let kept = stdout(&ordo(&["log", "read", log]).success()).lines().count();
    assert!((200..1000).contains(&kept), "{kept}");
    // Damage is reported, and the records before it can be read.
    let mut bytes = fs::read(log).unwrap();
    bytes[30_000..30_600].fill(0);
    fs::write(log, bytes).unwrap();
    let (_, said) = refused(&["log", "read", log]);
    assert!(said.contains("the log is damaged at"), "{said}");
}

#[test]
fn a_log_is_made_where_it_was_asked_for_and_shown() {
    let temp = tempfile::tempdir().unwrap();
    let other = temp.path().join("log.img");
    for (place, bytes) in [("file", 1 << 20), ("behind", 512 << 10), (text(&other), 256 << 10)] {
        let image = temp.path().join("a.img");
        let size = bytes.to_string();
        let options = ["-J", place, "--journal-size", &size, "--size", "32m", "--force"];
        ordo(&[&["mkfs"], &options[..], &[text(&image)]].concat()).success();
        ordo(&["fsck", text(&image)]).code(0);
        let out = stdout(&ordo(&["info", "--json", text(&image)]).success());
        let info: serde_json::Value = serde_json::from_str(&out).unwrap();
        let out = stdout(&ordo(&["info", text(&image)]).success());
        if place == text(&other) {
            assert_eq!(fs::metadata(&other).unwrap().len(), bytes);
            assert!(!out.contains("\nlog\t"), "{out}");
            ordo(&["fsck", "-J", place, text(&image)]).code(0);
            continue;
        }
        assert!(out.contains(&format!("\nlog\t{place}\tsize\t")), "{out}");
        assert_eq!(
            (&info["log"]["place"], info["log"]["bytes"].as_u64()),
            (&place.into(), Some(bytes - 1024))
        );
        assert_eq!(fs::metadata(&image).unwrap().len(), 32 << 20);
    }
}

/// A disk of today is behind a processor of today, unless another one is asked for; the disks of
/// the papers are behind theirs. Would catch an NVMe disk behind a processor of 300 MHz, on which
/// the processor's work would decide every comparison.
#[test]
fn a_disk_comes_with_the_processor_of_its_time() {
    let cpu = |options: &[&str]| {
        let args = ["compare", "--workload", "create-delete:files=2", "--fs", "ffs-none"];
        let out = ordo(&[&args[..], &["--no-recovery", "--json"], options].concat()).success();
        let rows: Value = serde_json::from_str(&stdout(&out)).unwrap();
        rows["rows"][0]["cpu"].as_str().unwrap().to_owned()
    };
    for disk in ["nvme", "sata-ssd", "hdd-4tb", "network-volume"] {
        assert_eq!(cpu(&["--disk", disk]), "modern", "{disk}");
    }
    assert_eq!(cpu(&["--disk", "viking"]), "pentium2-300");
    assert_eq!(cpu(&["--disk", "nvme", "--cpu", "pentium2-300"]), "pentium2-300");
    assert_eq!(cpu(&["--disk", "viking", "--cpu", "modern"]), "modern");
}

//! `ordo compare` with the kernel's file systems, and with commands: each in a guest kernel.
//!
//! Fault models: a row of another system is measured by other rules than its neighbours; a power
//! cut takes what was durable, or what was not survives it; one system's failure hides the others'
//! rows. Skipped with a message where there is no guest kernel.

use std::process::{Command, Output};

use serde_json::Value;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

/// Whether there is a guest kernel. Prints the reason if not.
fn has_guest() -> bool {
    ordo_testkit::has_guest(ORDO)
}

/// A comparison, on a solid-state disk unless `args` names another.
fn compare(fs: &str, args: &[&str]) -> Output {
    let mut command = Command::new(ORDO);
    command.args(["compare", "--quiet", "--memory", "256m", "--dirty", "64m", "--fs", fs]);
    command.args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The rows of a comparison that ended with `status`.
fn rows(output: &Output, status: i32) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(status), "{}", said(output));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["rows"].as_array().unwrap().clone()
}

/// The same workload does the same operations and writes the same bytes on Ordo's systems and on
/// the kernel's, and pays the same for its calls where no disk is waited for; a second run gives
/// the same bytes of output. Would catch a workload that runs otherwise in a guest, calls that cost
/// more there, and anything of the host that reaches a guest.
#[test]
fn the_kernels_systems_stand_beside_ordos_by_the_same_rules() {
    if !has_guest() {
        return;
    }
    let work = ["-w", "postmark:files=100,transactions=300", "--json"];
    let [first, second] = [(), ()].map(|()| compare("ffs-none,ext4,xfs,btrfs,f2fs", &work));
    let all = rows(&first, 0);
    assert!(first.stdout == second.stdout, "one seed gave two results");
    let of = |key: &str| all.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    for key in ["own_bytes", "files_made"] {
        let values = of(key);
        assert!(
            values.iter().all(|v| *v == values[0] && v.as_u64() > Some(0)),
            "{key}: {values:?}"
        );
    }
    let operations = |row: &Value| {
        let phases = row["phases"].as_array().unwrap().iter();
        phases.map(|p| (p["name"].clone(), p["operations"].clone())).collect::<Vec<_>>()
    };
    assert!(all.iter().all(|row| operations(row) == operations(&all[0])));
    let times: Vec<f64> = of("app_seconds").iter().map(|v| v.as_f64().unwrap()).collect();
    // Only Ordo's systems pay for what they compute besides.
    assert!(times.iter().all(|t| (0.5..1.5).contains(&(t / times[1]))), "{times:?}");
    for row in &all[1..] {
        assert_eq!(row["recovery"]["own_check"]["is_clean"], true, "{row}");
        assert!(row["recovery"]["oldest_lost_seconds"].as_f64() > Some(0.0), "{row}");
        let unnamed = row["bytes_written_by_kind"]["unknown"].as_u64().unwrap_or(0);
        assert!(20 * unnamed <= row["bytes_written"].as_u64().unwrap(), "{row}");
    }
}

/// Many clients wait for one commit: their fsyncs are under way at once in a guest as they are in
/// this process. Would catch a workload whose clients wait for each other at their calls.
#[test]
fn fsyncs_of_many_clients_share_commits() {
    if !has_guest() {
        return;
    }
    let done = compare("ext4", &["-w", "filebench:varmail,run=1", "--no-recovery", "--json"]);
    let row = &rows(&done, 0)[0];
    let (fsyncs, flushes) = (&row["fsyncs"]["count"], row["flushes"].as_u64().unwrap());
    assert!(fsyncs.as_u64().unwrap() > 2 * flushes, "{fsyncs} fsyncs, {flushes} flushes");
}

/// A command is cut in its middle: what it had synced is there, and what it wrote two seconds
/// before the cut is gone, on a system of the kernel's and on one of Ordo's. With a mount that
/// writes at once nothing is gone. Would catch a cut at another time, changes that are not seen,
/// promises that are not kept, and options that do not reach the mount.
#[test]
fn a_power_cut_takes_what_a_command_had_not_synced() {
    if !has_guest() {
        return;
    }
    let script = "echo one > a; sync a; sleep 2; echo two > b; sleep 6";
    let args = ["--json", "--", "sh", "-ec", script];
    let all = rows(&compare("ext4,ext4:sync,ffs-soft-updates,ffs-sync,lfs", &args), 0);
    let lost: Vec<Option<f64>> =
        all.iter().map(|row| row["recovery"]["oldest_lost_seconds"].as_f64()).collect();
    for (n, row) in all.iter().enumerate() {
        let seconds = row["app_seconds"].as_f64().unwrap();
        assert!((8.0..8.1).contains(&seconds), "{row}");
        assert_eq!(row["own_bytes"], 8, "{row}");
        assert_eq!(row["fsyncs"]["count"], 1, "{row}");
        match n {
            1 => assert_eq!(lost[n], None, "{row}"),
            _ => assert!(lost[n].is_some_and(|s| (1.9..2.1).contains(&s)), "{lost:?}: {row}"),
        }
    }
}

/// A command that fails on one system: its row says so, with the command's last words, the others
/// stand, and the exit status is 3. Marks are phases, `--setup` and `--files` come before, and
/// outputs are kept apart. Would catch a failure that ends the comparison, or is not told.
#[test]
fn a_command_that_fails_on_one_system_leaves_the_others() {
    if !has_guest() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("files");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("given"), "a file").unwrap();
    let script = "cat given made; echo mark linking > $ORDO_MARK; ln -s given link";
    let outputs = folder.path().join("outputs");
    let args = ["--setup", "echo too > made", "--files", dir.to_str().unwrap()];
    let kept = ["--outputs", outputs.to_str().unwrap(), "--no-recovery"];
    let command = ["--json", "--", "sh", "-ec", script];
    let all = rows(&compare("vfat,ext4,lfs", &[&args[..], &kept, &command].concat()), 3);
    let failed = all[0]["failed"].as_str().unwrap();
    assert!(failed.contains("exit status 1") && failed.contains("link"), "{failed}");
    for (row, name) in all.iter().zip(["vfat", "ext4", "lfs"]) {
        assert_eq!(row["system"], name);
        assert_eq!(row["failed"].is_null(), name != "vfat", "{row}");
        let phases = row["phases"].as_array().unwrap();
        assert_eq!(phases.last().unwrap()["name"], "linking", "{row}");
        let written = std::fs::read_to_string(outputs.join(format!("{name}.out"))).unwrap();
        assert_eq!(written, "a filetoo\n", "{name}");
    }
    let shown = compare("vfat,ext4", &["--no-recovery", "--", "sh", "-ec", "ln -s x y"]);
    assert_eq!(shown.status.code(), Some(3), "{}", said(&shown));
    assert!(said(&shown).contains("It failed on vfat: exit status 1"), "{}", said(&shown));
}

/// A mount option that the kernel refuses, a command that is not there, and no guest kernel at all
/// end with words about it.
#[test]
fn what_cannot_be_compared_is_said() {
    if !has_guest() {
        return;
    }
    let empty = ["-w", "create-delete:files=1"];
    let refused = compare("ext4:nonsense", &empty);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("mounting ext4"), "{}", said(&refused));
    let aged = compare("ext4", &[&empty[..], &["--aged"]].concat());
    assert_eq!(aged.status.code(), Some(1), "a row that is not aged: {}", said(&aged));
    let missing = compare("ext4", &["--", "no-such-command"]);
    assert!(said(&missing).contains("no-such-command"), "{}", said(&missing));
    let nowhere = ["--kernel", "/no/such/kernel"];
    let refused = compare("ext4", &[&nowhere[..], &empty].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("/no/such/kernel"), "{}", said(&refused));
    let own = compare("ffs-none", &[&nowhere[..], &empty].concat());
    assert!(own.status.success(), "Ordo's own systems need no guest: {}", said(&own));
}

/// File systems that flush as they must are whole after a power cut on disks with a volatile cache,
/// by whatever seed: the kernel mounts them, reads every file, and their own programs find nothing.
/// Would catch a check that asks a question, writes that are torn within a sector of today's disks
/// (e2fsck and F2FS then find faults that no disk makes), and a cut that keeps what was not flushed
/// without what was.
#[test]
fn nobody_is_accused_of_what_no_disk_does() {
    if !has_guest() {
        return;
    }
    let args = ["-w", "filebench:varmail,run=1", "--sweep", "seed=1,2,3", "--jobs", "2", "--json"];
    let fs = "ext4,ext4:data=journal,xfs,btrfs,f2fs,reiserfs";
    let done = compare(fs, &[&args[..], &["--disk", "hdd-4tb"]].concat());
    for row in rows(&done, 0) {
        assert_eq!(row["recovery"]["own_check"]["is_clean"], true, "{row}");
    }
}

/// Files that are there before the command are on disk before it begins, on Ordo's systems too,
/// whose server a plain `sync` does not reach. Would catch files of `--setup` among the lost
/// changes.
#[test]
fn what_comes_before_a_command_is_on_disk() {
    if !has_guest() {
        return;
    }
    let args = ["--setup", "mkdir before; date > before/file", "--json", "--", "sleep", "4"];
    for row in rows(&compare("ext4,ffs-none,ffs-soft-updates,lfs", &args), 0) {
        assert!(row["recovery"]["oldest_lost_seconds"].is_null(), "{row}");
        assert_eq!(row["own_bytes"], 0, "{row}");
    }
}

/// A sweep runs everything once for each value, of an option of the machine or of a parameter of
/// the workload, and two jobs give the same bytes as one. Would catch a value that is not set, and
/// rows whose order or contents depend on who ends first.
#[test]
fn sweeps_try_each_value_and_jobs_change_nothing() {
    if !has_guest() {
        return;
    }
    let ordo = |args: &[&str]| Command::new(ORDO).args(["compare", "--quiet"]).args(args).output();
    let work = ["--fs", "ext4,lfs,ffs-sync", "-w", "create-delete:files=20"];
    let disks = [&work[..], &["--sweep", "disk=hdd-4tb,nvme"]].concat();
    let one = ordo(&[&disks[..], &["--json"]].concat()).unwrap();
    let two = ordo(&[&disks[..], &["--json", "--jobs", "2"]].concat()).unwrap();
    assert!(one.stdout == two.stdout, "two jobs gave other rows");
    let all = rows(&one, 0);
    let of = |n: usize| (all[n]["system"].as_str().unwrap(), all[n]["disk"].as_str().unwrap());
    assert_eq!((all.len(), of(0), of(5)), (6, ("ext4", "hdd-4tb"), ("ffs-sync", "nvme")));
    let seconds = |n: usize| all[n]["app_seconds"].as_f64().unwrap();
    assert!(
        seconds(2) > 5.0 * seconds(5),
        "ffs-sync waits for the disk: {} {}",
        seconds(2),
        seconds(5)
    );
    let shown = said(&ordo(&disks).unwrap());
    assert!(shown.contains("disk=hdd-4tb") && shown.contains("disk=nvme"), "{shown}");
    let files = ["--sweep", "files=10,40", "--json"];
    let all = rows(&ordo(&[&work[..], &files].concat()).unwrap(), 0);
    let made = |n: usize| all[n]["files_made"].as_u64().unwrap();
    assert_eq!((made(0), made(3)), (10, 40));
    for wrong in ["fish=1,2", "disk=floppy", "disk"] {
        let refused = ordo(&[&work[..], &["--sweep", wrong]].concat()).unwrap();
        assert!(!refused.status.success(), "{wrong}: {}", said(&refused));
    }
}

/// Without a guest kernel `ordo compare` shows Ordo's own systems, and says how to get the others.
#[test]
fn without_a_guest_kernel_ordos_systems_are_compared() {
    let nowhere = ["--kernel", "/no/such/kernel", "-w", "create-delete:files=5"];
    let done = Command::new(ORDO).args(["compare", "--quiet"]).args(nowhere).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let shown = said(&done);
    assert!(shown.contains("ffs-soft-updates") && !shown.contains("xfs "), "{shown}");
    assert!(shown.contains("make guest-kernel"), "{shown}");
}

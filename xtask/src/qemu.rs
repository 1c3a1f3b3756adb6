//! `make test-qemu`: JFS and ReiserFS of a real kernel in QEMU, their disk served and watched by
//! Ordo over NBD.
//!
//! `KERNEL` names a folder with an unpacked Debian kernel: `boot/vmlinuz-*` and `lib/modules/*`.
//! Each try has a new image. The guest mounts it, works in it, unmounts it, mounts it again and
//! compares all contents. Ordo's analysis of the requests must be right, and the file system's own
//! check afterwards must have no findings. The machine is emulated in software, without KVM. Logs
//! stay in `target/qemu`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

use guest::Kernel;

mod guest;
pub mod logs;
pub mod policies;
pub mod pressure;
pub mod sources;

/// The time limit of a guest, in seconds.
const SECONDS: &str = "300";
/// The programs that all tries need, each with its Debian package.
const NEEDED: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mkfs.jfs", "jfsutils"),
    ("fsck.jfs", "jfsutils"),
    ("mkreiserfs", "reiserfsprogs"),
    ("reiserfsck", "reiserfsprogs"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("timeout", "coreutils"),
];
/// The least number of transactions that the work makes.
const TRANSACTIONS: u64 = 8;

/// A file system, and its mount.
struct Try {
    system: &'static str,
    options: &'static str,
    /// The shell lines of mkfs. The image is appended.
    make: &'static str,
    check: &'static str,
    /// Whether contents of files go to the journal (data journaling).
    journaled_data: bool,
}

/// The shell lines of mkfs. The image is appended.
const MAKE_JFS: &str = "mkfs.jfs -q";
/// ReiserFS's programs end with sync(2), which waits for every disk of the machine. This library
/// prevents that, if it is installed.
const MAKE_REISERFS: &str = "LD_PRELOAD=libeatmydata.so mkreiserfs -q -f -f";

const fn reiserfs(options: &'static str, journaled_data: bool) -> Try {
    Try {
        system: "reiserfs",
        options,
        make: MAKE_REISERFS,
        // As `MAKE_REISERFS`.
        check: "LD_PRELOAD=libeatmydata.so reiserfsck --check -y -q",
        journaled_data,
    }
}

const TRIES: [Try; 3] = [
    Try {
        system: "jfs",
        options: "rw",
        make: MAKE_JFS,
        check: "fsck.jfs -n -f",
        journaled_data: false,
    },
    reiserfs("data=ordered", false),
    reiserfs("data=journal", true),
];

/// The results of a try.
struct Seen {
    analysis: Value,
    seconds: f64,
    /// The conditions that do not hold.
    faults: Vec<String>,
}

/// Runs all tries. Returns whether all conditions hold.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let Some(Prepared { ordo, kernel, folder }) = prepare("test-qemu", &NEEDED, ordo)? else {
        return Ok(true);
    };
    // The emulator sends flushes too when it ends, so an idle guest is measured first.
    let idle = carry_out(&TRIES[0], guest::IDLE, &ordo, &kernel, &folder)?;
    if let Some(fault) = idle.faults.first() {
        return Err(format!("a guest that does nothing: {fault}"));
    }
    let own = number(&idle.analysis, "/flushes");
    let mut all = Vec::new();
    for which in &TRIES {
        let mut seen = carry_out(which, guest::WORK, &ordo, &kernel, &folder)?;
        judge(which, &seen.analysis, own, &mut seen.faults);
        eprintln!("{} {}: {:.0} s", which.system, which.options, seen.seconds);
        for fault in &seen.faults {
            eprintln!("FAILED: {} {}: {fault}", which.system, which.options);
        }
        all.push(seen);
    }
    let page = page(&kernel, own, &all)?;
    print!("{page}");
    let sound = all.iter().all(|seen| seen.faults.is_empty());
    if sound {
        let file = crate::tidy::root().join("docs/results/qemu.md");
        fs::write(&file, page).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(sound)
}

/// The places of what every guest needs.
struct Prepared {
    ordo: PathBuf,
    kernel: Kernel,
    /// The folder for images and logs.
    folder: PathBuf,
}

/// Prepares the guests of a make target; `None` if something is missing, after a message that says
/// what.
///
/// # Errors
/// Ordo or the kernel cannot be read, or the folder cannot be made.
fn prepare(target: &str, needed: &[(&str, &str)], ordo: &Path) -> Result<Option<Prepared>, String> {
    let folder = crate::tidy::root().join("target/qemu");
    let kernel = std::env::var_os("KERNEL").filter(|given| !given.is_empty());
    let kernel = kernel.map_or_else(|| folder.join("kernel"), PathBuf::from);
    let missing = missing(needed, &kernel);
    if !missing.is_empty() {
        println!("SKIPPED: make {target} needs {}", missing.join(", "));
        return Ok(None);
    }
    let ordo = ordo.canonicalize().map_err(|e| format!("{}: {e}", ordo.display()))?;
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let kernel = Kernel::unpack(&kernel, &folder)?;
    Ok(Some(Prepared { ordo, kernel, folder }))
}

/// The missing programs and packages.
fn missing(needed: &[(&str, &str)], kernel: &Path) -> Vec<String> {
    let there =
        |name: &str| shell(&format!("PATH=$PATH:/usr/sbin:/sbin command -v {name}")).is_ok();
    let mut missing: Vec<String> = needed
        .iter()
        .filter(|(name, _)| !there(name))
        .map(|(name, package)| format!("{name} (package {package})"))
        .collect();
    if !guest::busybox_is_static() {
        missing.push(format!("{} without libraries (package busybox-static)", guest::BUSYBOX));
    }
    if !kernel.join("boot").is_dir() || !kernel.join("lib/modules").is_dir() {
        missing.push(format!(
            "a kernel in {}, as `apt-get download` and `dpkg -x` of linux-image-6.1.*-amd64 make it, or KERNEL=/folder",
            kernel.display()
        ));
    }
    missing
}

/// Makes the image, serves it to a guest, and checks it.
fn carry_out(
    which: &Try,
    work: &str,
    ordo: &Path,
    kernel: &Kernel,
    folder: &Path,
) -> Result<Seen, String> {
    let name = format!("{}-{}", which.system, which.options.replace('=', "-"));
    let (image, serial) = (folder.join("disk.img"), folder.join(format!("{name}.serial")));
    let initramfs = folder.join(format!("{name}.cpio"));
    let archive = kernel.initramfs((which.system, which.options), work, &[], &[])?;
    fs::write(&initramfs, archive).map_err(|e| format!("{}: {e}", initramfs.display()))?;
    let path = image.display();
    shell(&format!(
        "PATH=$PATH:/usr/sbin:/sbin; rm -f {path}; truncate -s 128M {path}; {} {path}",
        which.make
    ))?;
    let begun = Instant::now();
    let guest = Guest { seconds: SECONDS, ..Guest::default() };
    let out = emulate(ordo, kernel, &initramfs, &image, &serial, &guest)?;
    let seconds = begun.elapsed().as_secs_f64();
    fs::write(folder.join(format!("{name}.json")), &out.stdout).map_err(|e| e.to_string())?;
    let mut faults = Vec::new();
    let said = fs::read(&serial).unwrap_or_default();
    if !String::from_utf8_lossy(&said).contains(guest::AT_THE_END) {
        faults.push(format!("the guest did not come to its end, see {}", serial.display()));
    }
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        faults.push(format!("ordo trace serve: {}: {}", out.status, error.trim()));
    }
    let check = format!("PATH=$PATH:/usr/sbin:/sbin; {} {path}", which.check);
    faults.extend(shell(&check).err());
    let analysis = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    let _ = fs::remove_file(&image);
    Ok(Seen { analysis, seconds, faults })
}

/// The settings of a guest.
struct Guest<'a> {
    /// The time limit, in seconds.
    seconds: &'a str,
    /// The memory, in MB.
    memory: &'a str,
    /// More options of `ordo trace serve`.
    serve: &'a [&'a str],
    /// Whether the lines that it writes to its second serial port are marks.
    marks: bool,
}

impl Default for Guest<'_> {
    fn default() -> Self {
        Guest { seconds: SECONDS, memory: "256", serve: &[], marks: false }
    }
}

/// Starts a guest whose disk is `image`, and ends it at its time limit if it has not ended. Its
/// console goes to `serial`; the output is that of `ordo trace serve`.
fn emulate(
    ordo: &Path,
    kernel: &Kernel,
    initramfs: &Path,
    image: &Path,
    serial: &Path,
    guest: &Guest<'_>,
) -> Result<Output, String> {
    let _ = fs::remove_file(serial);
    // The path of a socket has at most 107 bytes.
    let socket = std::env::temp_dir().join(format!("ordo-qemu-{}", std::process::id()));
    let drive = format!(
        "driver=nbd,server.type=unix,server.path={},cache.direct=on,if=none,id=disk",
        socket.display()
    );
    // The path of the pipe for marks is known in the command's environment only.
    const AS_IT_IS: &str = "exec \"$@\"";
    const WITH_MARKS: &str = "exec \"$@\" -serial \"file:$ORDO_MARK\"";
    let mut serve = Command::new(ordo);
    serve.args(["trace", "serve", "--json"]).args(guest.serve);
    serve.arg("--socket").arg(&socket).arg(image).arg("--");
    serve.args(["sh", "-c", if guest.marks { WITH_MARKS } else { AS_IT_IS }, "sh"]);
    serve.args(["timeout", "-k", "10", guest.seconds, "qemu-system-x86_64"]);
    serve.args(["-machine", "q35,accel=tcg", "-m", guest.memory, "-nodefaults"]);
    // On a busy machine the emulated timer may be late when the kernel checks it.
    serve.args(["-no-reboot", "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
    serve.args(["-display", "none"]);
    serve.arg("-serial").arg(format!("file:{}", serial.display()));
    serve.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    serve.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=disk"]).stdin(Stdio::null());
    let out = serve.output().map_err(|e| format!("{}: {e}", ordo.display()));
    let _ = fs::remove_file(&socket);
    out
}

/// Checks the analysis. The emulator sent `own` flushes itself.
fn judge(which: &Try, analysis: &Value, own: u64, faults: &mut Vec<String>) {
    let mut hold = |what: &str, holds: bool| {
        if !holds {
            faults.push(format!("it does not hold: {what}"));
        }
    };
    hold("the file system is known", analysis["system"] == which.system);
    hold("no block is unknown", analysis["unknown"].as_object().is_some_and(|u| u.is_empty()));
    for none in ["unclaimed", "orphan_blocks", "without_contents"] {
        hold(&format!("{none}: none"), analysis[none] == 0);
    }
    hold("every checksum is right", analysis["transactions"]["bad_checksums"] == 0);
    let committed = number(analysis, "/transactions/committed");
    hold("transactions were committed", committed >= TRANSACTIONS);
    hold("the journal was written", number(analysis, "/journal/blocks") >= TRANSACTIONS);
    // JFS sends no flushes, so none are demanded of it.
    let flushed = number(analysis, "/flushes").saturating_sub(own);
    hold("each transaction was flushed", which.system == "jfs" || flushed >= committed.max(1));
    let (data, copies) = (
        number(analysis, "/writes/file_data/blocks"),
        number(analysis, "/transactions/data_copies"),
    );
    hold("contents went to their place", data > 0);
    match which.journaled_data {
        true => hold("contents went to the journal first", copies >= data),
        false => hold("no contents went to the journal", copies == 0),
    }
}

fn number(analysis: &Value, at: &str) -> u64 {
    analysis.pointer(at).and_then(Value::as_u64).unwrap_or(0)
}

fn page(kernel: &Kernel, own: u64, all: &[Seen]) -> Result<String, String> {
    let version = shell("qemu-system-x86_64 --version")?;
    let version = version.lines().next().unwrap_or_default();
    let cpu = shell("nproc; sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1")?;
    let cpu = cpu.trim().replacen('\n', " cores of ", 1);
    let mut out = format!(
        "# JFS and ReiserFS, live\n\nWritten by `make test-qemu`: Linux {} in {version}, emulated in software on {cpu}.\n\
         The disk is a virtio-blk device (flushes, no FUA) that `ordo trace serve` serves over NBD.\n\n\
         In each the guest makes, overwrites, renames, links and removes some 200 files and directories, with fsync and sync between,\n\
         unmounts, mounts again read-only, and finds all contents as they were. Then the file system's own check finds nothing.\n\
         No block is unknown, none is left to a guess.\n\n\
         | | requests: reads, writes | flushes | transactions | blocks: journal | of these file data | file data in place | metadata in \
         place | bytes written for each of file data | seconds |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        kernel.release
    );
    for (which, Seen { analysis, seconds, .. }) in TRIES.iter().zip(all) {
        let requests = |side: &str| -> u64 {
            let kinds = analysis[side].as_object();
            kinds.into_iter().flatten().map(|(_, counts)| number(counts, "/requests")).sum()
        };
        let options = if which.options == "rw" { "" } else { which.options };
        let each = analysis["bytes_per_data_byte"].as_f64().unwrap_or(0.0);
        let _ = writeln!(
            out,
            "| {} | {}, {} | {} | {} | {} | {} | {} | {} | {each:.2} | {seconds:.0} |",
            format!("{} {options}", which.system).trim(),
            requests("reads"),
            requests("writes"),
            number(analysis, "/flushes").saturating_sub(own),
            number(analysis, "/transactions/committed"),
            number(analysis, "/journal/blocks"),
            number(analysis, "/transactions/data_copies"),
            number(analysis, "/writes/file_data/blocks"),
            number(analysis, "/fixed_metadata/blocks"),
        );
    }
    if number(&all[0].analysis, "/flushes") <= own {
        out.push_str(
            "\nJFS sent no flush, neither for fsync, nor for sync, nor when it was unmounted.",
        );
    }
    let _ = writeln!(
        out,
        "\nFlushes are the guest's; {own} more are the emulator's own, sent as it ends, also where nothing was mounted.\n\
         Seconds are from the start of the emulator to its end, on a machine that may do other work, and measure no file system.\n\
         Counts differ between runs, by how the work meets the kernel's timers."
    );
    Ok(out)
}

/// The output of a script, which must succeed.
fn shell(script: &str) -> Result<String, String> {
    let out = Command::new("bash").args(["-c", script]).output().map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!(
            "{script}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A right analysis passes, and each planted fault is reported once. Would catch a target that
    /// accepts any analysis.
    #[test]
    fn each_planted_fault_is_reported_once() {
        let sound = serde_json::json!({
            "system": "reiserfs", "unknown": {}, "unclaimed": 0, "orphan_blocks": 0, "without_contents": 0, "flushes": 40,
            "writes": {"file_data": {"blocks": 3000}}, "journal": {"blocks": 90},
            "transactions": {"committed": 11, "bad_checksums": 0, "data_copies": 0},
        });
        let faults = |which: &Try, at: &str, value: Value| {
            let mut analysis = sound.clone();
            *analysis.pointer_mut(at).unwrap() = value;
            let mut faults = Vec::new();
            judge(which, &analysis, 2, &mut faults);
            faults.len()
        };
        let [jfs, ordered, journal] = &TRIES;
        assert_eq!(faults(ordered, "/unclaimed", 0.into()), 0);
        assert_eq!(faults(jfs, "/system", "jfs".into()), 0);
        assert_eq!(faults(jfs, "/flushes", 2.into()), 1, "the wrong system, and no more");
        assert_eq!(faults(journal, "/transactions/data_copies", 3000.into()), 0);
        let planted = [
            ("/system", Value::from("jfs")),
            ("/unknown", serde_json::json!({"damaged": 1})),
            ("/unclaimed", 2.into()),
            ("/orphan_blocks", 1.into()),
            ("/without_contents", 1.into()),
            ("/flushes", 12.into()),
            ("/writes/file_data/blocks", 0.into()),
            ("/journal/blocks", 0.into()),
            ("/transactions/committed", 1.into()),
            ("/transactions/bad_checksums", 1.into()),
            ("/transactions/data_copies", 1.into()),
        ];
        for (at, value) in planted {
            assert_eq!(faults(ordered, at, value), 1, "{at}");
        }
        assert_eq!(faults(journal, "/transactions/data_copies", 2999.into()), 1);
        // The analysis is empty.
        let mut all = Vec::new();
        judge(ordered, &Value::Null, 2, &mut all);
        assert!(all.len() > 6, "{all:?}");
    }
}

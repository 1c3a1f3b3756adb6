//! `make bench-qemu`: the source trees of the DualFS paper on JFS and ReiserFS in QEMU, recorded
//! for `make bench`.
//!
//! The guest runs `ordo bench sources` on a disk that `ordo trace serve` serves, and marks the
//! phases over a second serial port. The traces, `target/qemu/sources-SYSTEM`, have no contents;
//! the section "The micro-benchmarks on one disk" of docs/results/dualfs-kernel.md plays them
//! beside those of the kernel of this machine.

use std::fs;
use std::path::Path;

use super::guest::{self, AT_THE_END};
use super::{Guest, MAKE_JFS, MAKE_REISERFS, Prepared, emulate, prepare, shell};

/// The size of the disk, as `truncate` takes it: the paper's.
const DISK: &str = "4G";
/// The time limit of a guest, in seconds.
const SECONDS: &str = "3000";
/// The memory of the guest in MB: enough that no tree has to leave the cache before its phase ends,
/// as on the host.
const MEMORY: &str = "4096";
/// The programs that are needed, each with its Debian package.
const NEEDED: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mkfs.jfs", "jfsutils"),
    ("mkreiserfs", "reiserfsprogs"),
    ("fsfreeze", "util-linux"),
    ("timeout", "coreutils"),
];
/// The systems: the module's name, and mkfs. The image is appended.
const SYSTEMS: [(&str, &str); 2] = [("jfs", MAKE_JFS), ("reiserfs", MAKE_REISERFS)];
/// The guest's work. A carriage return before the end of a mark's line does no harm.
const WORK: &str = "mount -t $1 -o $2 /dev/vda /mnt
cd /mnt
export ORDO_MARK=/dev/ttyS1 PATH=/usr/sbin:/bin
/ordo bench sources --dir . --drop-caches --quiet
cd /
umount /mnt
echo AT_THE_END
";

/// Records both. Returns whether each run came to its end.
///
/// # Errors
/// A program or a file cannot be had.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let Some(prepared) = prepare("bench-qemu", &NEEDED, ordo)? else { return Ok(true) };
    let files = guest_files(&prepared)?;
    let mut sound = true;
    for (system, make) in SYSTEMS {
        match record(&prepared, &files, system, make) {
            Ok(trace) => println!("{system}: recorded in {}", trace.display()),
            Err(why) => {
                eprintln!("FAILED: {system}: {why}");
                sound = false;
            }
        }
    }
    Ok(sound)
}

/// The command and fsfreeze, with their libraries.
fn guest_files(prepared: &Prepared) -> Result<Vec<(String, Vec<u8>)>, String> {
    let ordo = prepared.ordo.display();
    let freeze = shell("PATH=$PATH:/usr/sbin:/sbin command -v fsfreeze")?;
    let freeze = freeze.trim();
    let programs = [(ordo.to_string(), "ordo"), (freeze.to_owned(), "usr/sbin/fsfreeze")];
    guest::with_libraries(&programs)
}

fn record(
    prepared: &Prepared,
    files: &[(String, Vec<u8>)],
    system: &str,
    make: &str,
) -> Result<std::path::PathBuf, String> {
    let folder = &prepared.folder;
    let file = |end: &str| folder.join(format!("sources-{system}{end}"));
    let (image, serial, trace) = (file(".img"), file(".serial"), file(""));
    let archive = prepared.kernel.initramfs((system, "rw"), WORK, &[], files)?;
    let initramfs = file(".cpio");
    fs::write(&initramfs, archive).map_err(|e| format!("{}: {e}", initramfs.display()))?;
    let path = image.display();
    shell(&format!(
        "PATH=$PATH:/usr/sbin:/sbin; rm -f {path}; truncate -s {DISK} {path}; {make} {path}"
    ))?;
    let to = trace.display().to_string();
    let guest = Guest {
        seconds: SECONDS,
        memory: MEMORY,
        serve: &["--without-contents", "--force", "-o", &to],
        marks: true,
    };
    let out = emulate(&prepared.ordo, &prepared.kernel, &initramfs, &image, &serial, &guest)?;
    for made in [&initramfs, &image] {
        let _ = fs::remove_file(made);
    }
    let said = String::from_utf8_lossy(&fs::read(&serial).unwrap_or_default()).into_owned();
    match said.contains(AT_THE_END) && out.status.success() {
        true => Ok(trace),
        false => {
            let error = String::from_utf8_lossy(&out.stderr);
            Err(format!("{}: {}; see {}", out.status, error.trim(), serial.display()))
        }
    }
}

//! FreeBSD's own fsck, if it is available: a judge that shares no code and no author with Ordo's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names the program.
const VARIABLE: &str = "ORDO_FREEBSD_FSCK";

/// The program `fsck_ffs`, and a file in which it examines images.
pub struct FreebsdFsck {
    program: OsString,
    _folder: tempfile::TempDir,
    image: PathBuf,
}

/// The output and result of a run.
#[derive(Clone, Debug)]
pub struct FsckOutput {
    /// The exit status; -1 if a signal ended it.
    pub code: i32,
    /// Standard output and error.
    pub text: String,
}

/// The beginnings of lines that it prints about a clean file system, besides the totals.
const QUIET: [&str; 3] = ["** ", "FILE SYSTEM CLEAN", "***** FILE SYSTEM MARKED CLEAN *****"];

impl FsckOutput {
    /// The lines that report a fault.
    pub fn complaints(&self) -> Vec<&str> {
        let totals = |line: &str| line.contains(" files, ") && line.contains(" fragmentation)");
        let quiet = |line: &str| QUIET.iter().any(|start| line.contains(start)) || totals(line);
        self.text.lines().map(str::trim).filter(|line| !line.is_empty() && !quiet(line)).collect()
    }

    /// Whether it found and reported nothing.
    pub fn is_content(&self) -> bool {
        self.code == 0 && self.complaints().is_empty()
    }
}

impl FreebsdFsck {
    /// The judge, for tests that run only on request.
    ///
    /// # Panics
    /// `ORDO_FREEBSD_FSCK` does not name the program.
    pub fn new() -> FreebsdFsck {
        let program = std::env::var_os(VARIABLE).filter(|v| !v.is_empty());
        let program = program.unwrap_or_else(|| panic!("{VARIABLE} must name FreeBSD's fsck_ffs"));
        let folder = tempfile::tempdir().expect("room for an image");
        let image = folder.path().join("image");
        FreebsdFsck { program, _folder: folder, image }
    }

    /// The judge, if the program is available.
    pub fn given() -> Option<FreebsdFsck> {
        std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(|_| FreebsdFsck::new())
    }

    /// Runs the program on a file.
    pub fn run_on(&self, image: &Path, args: &[&str]) -> FsckOutput {
        let out = Command::new(&self.program).args(args).arg(image).output();
        let out = out.unwrap_or_else(|e| panic!("{VARIABLE}={}: {e}", self.program.display()));
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text).replace(image.to_str().expect("UTF-8"), "IMAGE");
        FsckOutput { code: out.status.code().unwrap_or(-1), text }
    }

    /// Examines an image, without changing it.
    pub fn look(&self, image: &[u8]) -> FsckOutput {
        std::fs::write(&self.image, image).expect("room for an image");
        self.run_on(&self.image, &["-n", "-f"])
    }

    /// Repairs an image, with `-p` or `-y`.
    pub fn repair(&self, image: &mut Vec<u8>, how: &str) -> FsckOutput {
        std::fs::write(&self.image, &*image).expect("room for an image");
        let said = self.run_on(&self.image, &["-f", how]);
        *image = std::fs::read(&self.image).expect("it was just there");
        said
    }
}

impl Default for FreebsdFsck {
    fn default() -> FreebsdFsck {
        FreebsdFsck::new()
    }
}

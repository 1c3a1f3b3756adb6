//! NetBSD's own fsck_lfs and dumplfs, if they are available: judges that share no code and no
//! author with Ordo's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The variable that names fsck_lfs.
const FSCK: &str = "ORDO_NETBSD_FSCK";
/// The variable that names dumplfs.
const DUMP: &str = "ORDO_NETBSD_DUMPLFS";

/// The program `fsck_lfs`, and a file in which it examines images.
pub struct NetbsdFsck {
    program: OsString,
    folder: tempfile::TempDir,
    image: PathBuf,
    /// The contents of the file, so that only changes are written.
    last: RefCell<Vec<u8>>,
}

/// A line in which fsck_lfs reports a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LfsComplaint {
    /// The pass, 0 to 6; none while it reads the superblocks.
    pub pass: Option<u8>,
    /// The line.
    pub words: String,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsckEnd {
    /// The program came to its last line.
    Finished,
    /// The program gave up, with this exit status.
    GaveUp(i32),
    /// A signal ended the program, or an assertion of its own.
    Crashed(i32),
    /// The program did not end in time, or wrote without an end.
    Endless,
}

/// The output of a run of fsck_lfs.
#[derive(Clone, Debug)]
pub struct LfsVerdict {
    /// Lines that report a fault.
    pub complaints: Vec<LfsComplaint>,
    /// The end of the run.
    pub end: FsckEnd,
    /// Standard output and error.
    pub text: String,
}

/// The most that a run may take and write. On a sound image a run takes a fraction of a second and
/// writes a few lines.
const TIME: Duration = Duration::from_secs(30);
const OUTPUT: u64 = 8 << 20;
/// The number of bytes of an image that are compared and written at once.
const PIECE: usize = 4096;

/// Whether a line says nothing about a fault: headings, answers, and the totals.
fn is_quiet(line: &str) -> bool {
    let heading = line.starts_with("** ") && !line.contains("checkpoint invalid");
    let totals = line.contains(" files, ") && line.ends_with(" free");
    let heading = heading || line.starts_with("Alternate super block location");
    line.is_empty() || heading || totals || line.ends_with("? no") || line.ends_with("? yes")
}

impl LfsVerdict {
    fn new(text: String, end: FsckEnd) -> LfsVerdict {
        let (mut pass, mut complaints) = (None, Vec::new());
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("** Phase ") {
                pass = rest.bytes().next().map(|digit| digit - b'0');
            } else if !is_quiet(line) {
                complaints.push(LfsComplaint { pass, words: line.to_owned() });
            }
        }
        LfsVerdict { complaints, end, text }
    }

    /// Whether it came to its end and reported nothing.
    pub fn is_content(&self) -> bool {
        self.end == FsckEnd::Finished && self.complaints.is_empty()
    }

    /// Whether it reported a fault, or refused the image. What it says before a crash counts.
    pub fn finds(&self) -> bool {
        !self.complaints.is_empty() || matches!(self.end, FsckEnd::GaveUp(_))
    }
}

/// Waits for a program until its time is up, or its output is too long.
fn wait(mut child: Child) -> (String, Option<ExitStatus>) {
    let out = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = out.take(OUTPUT).read_to_end(&mut bytes);
        (bytes, read.is_ok_and(|n| n as u64 == OUTPUT))
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            break Some(status);
        }
        if start.elapsed() > TIME {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let (bytes, is_too_long) = reader.join().expect("it only reads");
    (String::from_utf8_lossy(&bytes).into_owned(), status.filter(|_| !is_too_long))
}

/// A program that a variable names.
///
/// # Panics
/// The variable does not name one.
fn named(variable: &str, what: &str) -> OsString {
    let program = std::env::var_os(variable).filter(|v| !v.is_empty());
    program.unwrap_or_else(|| panic!("{variable} must name NetBSD's {what}"))
}

impl NetbsdFsck {
    /// The judge, for tests that run only on request.
    ///
    /// # Panics
    /// `ORDO_NETBSD_FSCK` does not name the program.
    pub fn new() -> NetbsdFsck {
        let folder = tempfile::tempdir().expect("room for an image");
        let image = folder.path().join("image");
        let (program, last) = (named(FSCK, "fsck_lfs"), RefCell::default());
        NetbsdFsck { program, folder, image, last }
    }

    /// Examines an image in a file, without changing it.
    pub fn look_at(&self, image: &Path) -> LfsVerdict {
        self.run(image, &[])
    }

    fn run(&self, image: &Path, more: &[&str]) -> LfsVerdict {
        let errors = self.folder.path().join("errors");
        let child = Command::new(&self.program)
            .args(["-n", "-f"])
            .args(more)
            .arg(image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("room for errors"))
            .spawn();
        let (text, status) = wait(child.unwrap_or_else(|e| panic!("{FSCK}: {e}")));
        // Errors end a run, so they come behind its output.
        let errors = std::fs::read(&errors).expect("just made");
        let text = text + &String::from_utf8_lossy(&errors);
        let text = text.replace(image.to_str().expect("UTF-8"), "IMAGE");
        let end = match status.map(|s| (s.code(), s.signal())) {
            None => FsckEnd::Endless,
            Some((_, Some(signal))) => FsckEnd::Crashed(signal),
            Some((Some(0), _)) => FsckEnd::Finished,
            Some((code, _)) => FsckEnd::GaveUp(code.unwrap_or(-1)),
        };
        assert_ne!(end, FsckEnd::GaveUp(127), "{FSCK} is no program: {text}");
        LfsVerdict::new(text, end)
    }

    /// Examines an image, without changing it.
    pub fn look(&self, image: &[u8]) -> LfsVerdict {
        self.put(image);
        self.run(&self.image, &[])
    }

    /// Examines the newest checkpoint of an LFS64. Left to itself, fsck_lfs takes the older one
    /// where it cannot follow the log to the newer one: where the older one ends so close to the
    /// end of its segment that the log goes on in another.
    pub fn look_at_newest(&self, image: &[u8]) -> LfsVerdict {
        self.put(image);
        let sector = (newest_superblock(image) / 512).to_string();
        self.run(&self.image, &["-b", &sector])
    }

    /// Writes the pieces of an image that differ from the last one's.
    fn put(&self, image: &[u8]) {
        let mut last = self.last.borrow_mut();
        if last.len() != image.len() {
            last.clear();
            last.resize(image.len(), 0);
            let file = File::create(&self.image).expect("room for an image");
            file.set_len(image.len() as u64).expect("room for an image");
        }
        let file = File::options().write(true).open(&self.image).expect("just made");
        for (at, (old, new)) in last.chunks_mut(PIECE).zip(image.chunks(PIECE)).enumerate() {
            if old != new {
                file.write_all_at(new, (at * PIECE) as u64).expect("room for an image");
                old.copy_from_slice(new);
            }
        }
    }
}

/// The byte of the superblock of an LFS64 that has the higher serial number, of the first two.
fn newest_superblock(image: &[u8]) -> u64 {
    const FIRST: usize = 8192;
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let fragment = word(FIRST + 32) & 0xffff_ffff;
    let second = (word(FIRST + 232) * fragment) as usize;
    // Byte 424 of a superblock has the serial number.
    let is_newer = second + 512 <= image.len() && word(second + 424) > word(FIRST + 424);
    if is_newer { second as u64 } else { FIRST as u64 }
}

impl Default for NetbsdFsck {
    fn default() -> NetbsdFsck {
        NetbsdFsck::new()
    }
}

/// The fields that dumplfs prints of the superblock and of the cleaner info, by their names:
/// `bfree`, `clean`.
pub struct Dumped {
    /// The fields of the superblock.
    pub superblock: BTreeMap<String, i64>,
    /// The fields of the IFILE's first block.
    pub cleaner_info: BTreeMap<String, i64>,
    /// All of the output.
    pub text: String,
}

/// Runs NetBSD's dumplfs on an image; `None`, with a message, if `ORDO_NETBSD_DUMPLFS` does not
/// name it.
pub fn netbsd_dumplfs(image: &Path) -> Option<Dumped> {
    let Some(program) = std::env::var_os(DUMP).filter(|v| !v.is_empty()) else {
        crate::skip(&format!("{DUMP} does not name NetBSD's dumplfs"));
        return None;
    };
    let child = Command::new(program).arg("-iS").arg(image).stdout(Stdio::piped()).spawn();
    let (text, status) = wait(child.unwrap_or_else(|e| panic!("{DUMP}: {e}")));
    assert!(status.is_some_and(|s| s.success()), "dumplfs {}: {text}", image.display());
    let (head, ifile) = text.split_once("IFILE contents\n").expect("it prints the IFILE");
    let head = head.split("IFILE inode").next().expect("at least one part");
    let info = ifile.split("segnum\tflags").next().expect("at least one part");
    let (superblock, cleaner_info) = (fields(head), fields(info));
    Some(Dumped { superblock, cleaner_info, text })
}

/// Pairs of a name and a number, decimal or hexadecimal, wherever they are in a text.
fn fields(text: &str) -> BTreeMap<String, i64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    let pairs = words.windows(2).filter(|pair| number(pair[0]).is_none());
    pairs.filter_map(|pair| Some((pair[0].to_owned(), number(pair[1])?))).collect()
}

/// Writes a part of the page of results, if `ORDO_NETBSD_PAGE` names a folder for them.
///
/// # Panics
/// The folder cannot be written.
pub fn netbsd_part(name: &str, text: &str) {
    let Some(folder) = std::env::var_os("ORDO_NETBSD_PAGE").filter(|v| !v.is_empty()) else {
        return;
    };
    let file = Path::new(&folder).join(format!("{name}.md"));
    std::fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

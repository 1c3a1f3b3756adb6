//! The files that a guest boots: a kernel from its package, and an archive with BusyBox, modules
//! and the work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of Debian's BusyBox, static or not.
pub const BUSYBOX: &str = "/bin/busybox";
/// The last line of a guest in which everything went well.
pub const AT_THE_END: &str = "all is as it was written";

/// The modules for the disk. Modules on which these depend come before them.
const DISK: [&str; 2] = ["virtio_pci", "virtio_blk"];

/// The first program of the guest. The first command of the work that fails ends it; the guest ends
/// in any case.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t devtmpfs none /dev
for module in MODULES; do insmod /modules/$module.ko; done
sh -e /work SYSTEM OPTIONS
reboot -f
"#;

/// No work at all, to measure the machine's own requests.
pub const IDLE: &str = "echo AT_THE_END";

/// The work: every command must succeed.
pub const WORK: &str = r#"
text() { yes "$1 is what this file says" | head -c $2; }
mount -t $1 -o $2 /dev/vda /mnt
cd /mnt
for d in $(seq 0 7); do
  mkdir d$d
  for f in $(seq 0 19); do text $d-$f $((f * f * 200 + 10)) > d$d/f$f; done
done
sync
for d in 0 1 2 3; do
  for f in 10 12 14; do text again-$d-$f 6000 | dd of=d$d/f$f conv=notrunc,fsync bs=4096 2>/dev/null; done
done
for d in 0 1 2 3; do
  mv d$d/f1 d4/from$d
  ln d$d/f2 d5/link$d
  ln -s ../d$d/f3 d6/symlink$d
  rm d$d/f4
done
text large 8000000 > large
sync
text over 3000000 | dd of=large bs=65536 seek=3 conv=notrunc,fsync 2>/dev/null
rm -r d7
mkdir -p a/b/c
mv d6 a/b/c
find . -type f | sort | xargs md5sum > /sums
sync
cd /
umount /mnt
mount -t $1 -o ro /dev/vda /mnt
cd /mnt
md5sum -c -s /sums
test -L a/b/c/d6/symlink3
test ! -e d0/f4
test ! -e d7
cd /
umount /mnt
echo AT_THE_END
"#;

/// A kernel that QEMU starts at once, and its modules.
pub struct Kernel {
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// The unpacked image.
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Unpacks the compressed kernel of `boot/vmlinuz-*` into `folder`. Linux,
    /// Documentation/arch/x86/boot.rst, describes its place.
    ///
    /// # Errors
    /// There is no kernel, or its compression is not known.
    pub fn unpack(from: &Path, folder: &Path) -> Result<Kernel, String> {
        let boot =
            fs::read_dir(from.join("boot")).map_err(|e| format!("{}: {e}", from.display()))?;
        let mut releases: Vec<String> = boot
            .flatten()
            .filter_map(|e| Some(e.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned()))
            .collect();
        releases.sort();
        let release =
            releases.pop().ok_or_else(|| format!("{}/boot has no vmlinuz-*", from.display()))?;
        let file = from.join(format!("boot/vmlinuz-{release}"));
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let strange = || format!("{} is no x86 kernel whose payload is known", file.display());
        let (program, payload) = payload(&bytes).ok_or_else(strange)?;
        let (packed, image) = (folder.join("payload"), folder.join("vmlinux"));
        fs::write(&packed, payload).map_err(|e| format!("{}: {e}", packed.display()))?;
        let open = fs::File::open(&packed).and_then(|p| Ok((p, fs::File::create(&image)?)));
        let (input, output) = open.map_err(|e| format!("{}: {e}", image.display()))?;
        let mut unpack = Command::new(program);
        let done =
            unpack.args(["-d", "-c"]).stdin(input).stdout(output).stderr(Stdio::null()).status();
        let elf = fs::read(&image).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
        if !elf || !done.is_ok_and(|status| status.success()) {
            return Err(format!("{program} did not unpack {}", packed.display()));
        }
        let modules = from.join("lib/modules").join(&release);
        Ok(Kernel { release, image, modules })
    }

    /// An initramfs (Linux, Documentation/driver-api/early-userspace/buffer-format.rst) with these
    /// `modules` besides the disk's and the file system's, and these `extra` files by their paths.
    ///
    /// # Errors
    /// A module is missing.
    pub fn initramfs(
        &self,
        (system, options): (&str, &str),
        work: &str,
        extra_modules: &[&str],
        extra: &[(String, Vec<u8>)],
    ) -> Result<Vec<u8>, String> {
        let mut files = Vec::new();
        walk(&self.modules, &mut files);
        let mut modules = Vec::new();
        for name in DISK.iter().chain(extra_modules).chain([&system]) {
            add_module(name, &files, &mut modules)?;
        }
        let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
        let init = INIT.replace("MODULES", &names.join(" "));
        let init = init.replace("SYSTEM", system).replace("OPTIONS", options);
        let mut archive = Archive::default();
        for dir in ["bin", "dev", "proc", "mnt", "modules"] {
            archive.add(dir, 0o040755, b"");
        }
        archive.add("init", 0o100755, init.as_bytes());
        archive.add("work", 0o100755, work.replace("AT_THE_END", AT_THE_END).as_bytes());
        let busybox = fs::read(BUSYBOX).map_err(|e| format!("{BUSYBOX}: {e}"))?;
        archive.add("bin/busybox", 0o100755, &busybox);
        for (name, bytes) in &modules {
            archive.add(&format!("modules/{name}.ko"), 0o100644, bytes);
        }
        archive.add_with_folders(extra);
        Ok(archive.end())
    }
}

/// The program that unpacks a kernel's payload, and the payload.
fn payload(kernel: &[u8]) -> Option<(&'static str, &[u8])> {
    let word =
        |at: usize| Some(u32::from_le_bytes(kernel.get(at..at + 4)?.try_into().ok()?) as usize);
    if kernel.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = (usize::from(kernel[0x1f1]) + 1) * 512 + word(0x248)?;
    let payload = kernel.get(at..at.checked_add(word(0x24c)?)?)?;
    // The unpacked length follows, except for gzip, which contains it.
    let short = &payload[..payload.len().checked_sub(4)?];
    match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some(("xz", short)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(("zstd", short)),
        [0x1f, 0x8b, ..] => Some(("gzip", payload)),
        _ => None,
    }
}

/// Adds a module, after those on which it depends. A built-in module has no file, and no module
/// names it.
fn add_module(
    name: &str,
    files: &[PathBuf],
    modules: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), String> {
    if modules.iter().any(|(there, _)| there == name) {
        return Ok(());
    }
    // A file name may have dashes where the module's name has underscores.
    let is = |file: &&PathBuf| {
        file.file_name()
            .is_some_and(|f| *f.to_string_lossy().replace('-', "_") == *format!("{name}.ko"))
    };
    let file = files.iter().find(is).ok_or_else(|| format!("the kernel has no {name}.ko"))?;
    let bytes = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    for needed in depends(&bytes) {
        add_module(&needed, files, modules)?;
    }
    modules.push((name.to_owned(), bytes));
    Ok(())
}

/// The modules that this one names in its section `.modinfo`.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let names = module[at + KEY.len()..].split(|b| *b == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are not followed, since one may lead to the sources.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            Ok(_) => files.push(entry.path()),
            Err(_) => {}
        }
    }
}

/// Programs of this machine with their libraries, for the archive: each program's path here and
/// there.
///
/// # Errors
/// A program or a library cannot be read.
pub fn with_libraries(programs: &[(String, &str)]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let paths: Vec<&str> = programs.iter().map(|(path, _)| path.as_str()).collect();
    let listed = super::shell(&format!("ldd {}", paths.join(" ")))?;
    let is_library = |word: &&str| word.starts_with('/') && !word.ends_with(':');
    let mut libraries: Vec<&str> = listed.split_whitespace().filter(is_library).collect();
    libraries.sort_unstable();
    libraries.dedup();
    let same = libraries.into_iter().map(|path| (path, &path[1..]));
    let own = programs.iter().map(|(path, name)| (path.as_str(), *name));
    own.chain(same)
        .map(|(path, name)| {
            let bytes = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
            Ok((name.to_owned(), bytes))
        })
        .collect()
}

/// Whether BusyBox names no interpreter, since the guest has no libraries.
pub fn busybox_is_static() -> bool {
    let Ok(bytes) = fs::read(BUSYBOX) else { return false };
    let half = |at: usize| {
        bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])))
    };
    let table = bytes.get(32..40).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (size, count) = (half(54), half(56));
    let headers = bytes.get(table as usize..).unwrap_or_default();
    const INTERPRETER: [u8; 4] = [3, 0, 0, 0];
    size > 0 && !headers.chunks_exact(size).take(count).any(|h| h.starts_with(&INTERPRETER))
}

/// A cpio archive, "newc".
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let links = 1 + u32::from(mode >> 12 == 4);
        let (length, name_length) = (contents.len() as u32, name.len() as u32 + 1);
        // The fields are number, mode, owner, group, links, time, length, four device numbers,
        // length of the name, no checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, length, 0, 0, 0, 0, name_length, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    /// Adds programs and their folders; a folder that was added twice does no harm.
    fn add_with_folders(&mut self, files: &[(String, Vec<u8>)]) {
        let mut there = Vec::new();
        for (name, contents) in files {
            let folders = name.match_indices('/').map(|(at, _)| &name[..at]);
            for folder in folders.filter(|folder| !folder.is_empty()) {
                if !there.contains(&folder) {
                    self.add(folder, 0o040755, b"");
                    there.push(folder);
                }
            }
            self.add(name, 0o100755, contents);
        }
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive is read back by the offsets of its format, and each module comes once, after
    /// those on which it depends. Would catch a length or a padding that is wrong by one: the
    /// kernel would find no first program, without an error.
    #[test]
    fn archives_and_modules_are_as_others_read_them() {
        let mut archive = Archive::default();
        archive.add("bin", 0o040755, b"");
        archive.add("bin/abc", 0o100755, b"12345");
        archive.add("z", 0o100644, b"");
        let bytes = archive.end();
        assert!(bytes.len().is_multiple_of(4));
        let (mut at, mut seen) = (0, Vec::new());
        while at < bytes.len() {
            let field = |i: usize| {
                let digits = std::str::from_utf8(&bytes[at + 6 + 8 * i..][..8]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (name, body) = (at + 110, (at + 110 + field(11)).next_multiple_of(4));
            seen.push((
                &bytes[name..name + field(11) - 1],
                &bytes[body..body + field(6)],
                field(1),
            ));
            at = (body + field(6)).next_multiple_of(4);
        }
        let expected: [(&[u8], &[u8], usize); 4] = [
            (b"bin", b"", 0o040755),
            (b"bin/abc", b"12345", 0o100755),
            (b"z", b"", 0o100644),
            (b"TRAILER!!!", b"", 0),
        ];
        assert_eq!(seen, expected);
        assert_eq!(depends(b"x\0depends=virtio,virtio-ring\0y"), ["virtio", "virtio_ring"]);
        assert_eq!(depends(b"x\0depends=\0y"), [] as [String; 0]);
        assert_eq!(depends(b"x"), [] as [String; 0]);
    }
}

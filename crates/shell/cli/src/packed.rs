//! Images as they are stored and sent: compressed, or in the format of a virtual machine.
//!
//! A compressed image (gzip, xz, zstd) is unpacked to a file without a name, in which zeros take no
//! space, and can only be read. An image in a virtual machine's own format is refused with the
//! command that converts it: such formats may name further files, which a hostile image could
//! choose. The data are hostile: an unpacker takes a bounded amount of memory.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ordo_block::file::{FileAccess, FileDisk};
use ordo_format::signature::{Contents, find};
use ordo_report::progress::Progress;
use ordo_runtime::Runtime;

/// The bytes that are unpacked at a time.
const PIECE: usize = 1 << 20;
/// The unit in which zeros are left out, in bytes.
const HOLE: usize = 64 << 10;
/// The bytes at the beginning in which a signature may be.
const HEAD: usize = 4096;
/// The most memory of an unpacker of xz, in KiB: what `xz -9` needs, four times.
const XZ_MEMORY: u32 = 256 << 10;

/// A way of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    fn by_noun(noun: &str) -> Option<Packing> {
        Some(match noun {
            "gzip data" => Packing::Gzip,
            "xz data" => Packing::Xz,
            "zstd data" => Packing::Zstd,
            _ => return None,
        })
    }

    /// The command that unpacks.
    fn command(self) -> &'static str {
        match self {
            Packing::Gzip => "gunzip -k",
            Packing::Xz => "unxz -k",
            Packing::Zstd => "unzstd",
        }
    }

    fn reader<'f>(self, file: impl Read + 'f) -> io::Result<Box<dyn Read + 'f>> {
        Ok(match self {
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY)),
            Packing::Zstd => Box::new(zstd::Decoder::new(file)?),
        })
    }
}

/// Opens an image or a device; a compressed image is unpacked first.
///
/// # Errors
/// The image cannot be opened or unpacked, is compressed and was to be written, or is in the format
/// of a virtual machine.
pub fn open(runtime: &Runtime, path: &Path, access: FileAccess) -> Result<FileDisk> {
    let Some(packing) = recognise(path)? else {
        return Ok(FileDisk::open(runtime, path, access)?);
    };
    if access == FileAccess::ReadWrite {
        bail!(
            "{}: is compressed, so it can only be read; to write, first: {} {0}",
            path.display(),
            packing.command()
        );
    }
    let unpacked = unpack(path, packing).with_context(|| path.display().to_string())?;
    // The disk has its own descriptor; the file goes with the last one.
    Ok(FileDisk::open(runtime, &name_of(&unpacked), FileAccess::ReadOnly)?)
}

/// Whether an image is compressed.
///
/// # Errors
/// It is in the format of a virtual machine.
pub fn is_packed(path: &Path) -> Result<bool> {
    Ok(recognise(path)?.is_some())
}

/// The compression of an image.
fn recognise(path: &Path) -> Result<Option<Packing>> {
    // A device, or a file that cannot be opened, is left to the disk.
    let is_file =
        std::fs::metadata(path).is_ok_and(|m| !m.file_type().is_block_device() && m.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else { return Ok(None) };
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head).with_context(|| path.display().to_string())?;
    let Some(found) = find(&Contents::new(head.len() as u64, vec![(0, head)])).into_iter().next()
    else {
        return Ok(None);
    };
    let (shown, to) = (path.display(), path.with_extension("raw"));
    match found.noun {
        noun if found.offset != 0 && noun != "a VDI image" => Ok(None),
        noun @ ("a qcow2 image" | "a VMDK image" | "a VHD image" | "a VHDX image"
        | "a VDI image") => bail!(
            "{shown}: is {noun}, which is not read here; first: qemu-img convert -O raw {shown} {}",
            to.display()
        ),
        "bzip2 data" => {
            bail!("{shown}: is bzip2 data, which is not read here; first: bunzip2 -k {shown}")
        }
        noun => Ok(Packing::by_noun(noun)),
    }
}

/// Unpacks an image to a file without a name.
fn unpack(path: &Path, packing: Packing) -> Result<File> {
    unpack_from(File::open(path)?, &path.display().to_string(), packing)
}

/// The contents of a file, which are unpacked if they are compressed.
///
/// # Errors
/// They are damaged, or there is no space for them.
pub fn unpacked(mut file: File, name: &str) -> Result<File> {
    let mut head = [0; HEAD];
    file.rewind()?;
    let len = fill(&mut file, &mut head)?;
    file.rewind()?;
    let contents = Contents::new(len as u64, vec![(0, head[..len].to_vec())]);
    match find(&contents).into_iter().find_map(|found| Packing::by_noun(found.noun)) {
        Some(packing) => unpack_from(file, name, packing),
        None => Ok(file),
    }
}

/// A name by which an open file can be opened again.
pub fn name_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A file without a name, for what may be large.
///
/// # Errors
/// It cannot be made.
pub fn spool_file() -> Result<File> {
    let folder = spool_folder();
    tempfile::tempfile_in(&folder).with_context(|| folder.display().to_string())
}

fn spool_folder() -> PathBuf {
    let folder = match std::env::var_os("TMPDIR") {
        Some(dir) => PathBuf::from(dir),
        // Often on a disk, where the usual folder is in memory.
        None => PathBuf::from("/var/tmp"),
    };
    if folder.is_dir() { folder } else { std::env::temp_dir() }
}

fn unpack_from(from: File, name: &str, packing: Packing) -> Result<File> {
    let to = spool_file()?;
    let (total, mut place) = (from.metadata()?.len(), from.try_clone()?);
    let bar = Progress::new(false);
    bar.begin("unpack", name, total);
    let mut reader = packing.reader(io::BufReader::new(from))?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let len =
            fill(&mut *reader, &mut piece).context("the compressed data are damaged or cut off")?;
        write_sparse(&to, at, &piece[..len]).with_context(|| {
            let folder = spool_folder();
            format!("unpacking to {}; TMPDIR=FOLDER names another place", folder.display())
        })?;
        at += len as u64;
        if len < PIECE {
            break;
        }
        bar.reach(place.stream_position()?, total);
    }
    to.set_len(at)?;
    bar.finish();
    Ok(to)
}

/// Reads until the buffer is full or the data end.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match reader.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(len)
}

/// Writes what is not zero.
fn write_sparse(to: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut at = at;
    for hole in bytes.chunks(HOLE) {
        if hole.iter().any(|byte| *byte != 0) {
            to.write_all_at(hole, at)?;
        }
        at += hole.len() as u64;
    }
    Ok(())
}

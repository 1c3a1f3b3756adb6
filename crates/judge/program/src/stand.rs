//! A stand, the place for a state: a file in memory, a loop device over it, and a directory to mount it on.
//!
//! A stand is made once and used for many states. [`Stand::put`] makes the file hold one state: the device's contents
//! at the start, without its zeros, and the sectors that differ. [`Stand::look`] mounts it by the system call and
//! unmounts it again, so no process is started for a state.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use crate::system::ProgramSystem;
use crate::{ProgramError, sys};

/// The unit in which zeros are skipped, in bytes.
const PIECE: usize = 16 << 10;
const SECTOR: u64 = 512;
/// The number of times that an unmount is tried while the mount is busy; the next constant is the pause between two.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(5);

/// A device's contents at the start, without its zeros.
pub(crate) struct Start {
    bytes: Arc<Vec<u8>>,
    /// The ranges that are not zero: first byte, end.
    pieces: Vec<(usize, usize)>,
}

impl Start {
    /// The parts of `bytes` that are not zero.
    pub(crate) fn new(bytes: Arc<Vec<u8>>) -> Start {
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for (n, piece) in bytes.chunks(PIECE).enumerate() {
            if piece.iter().all(|b| *b == 0) {
                continue;
            }
            let (from, to) = (n * PIECE, n * PIECE + piece.len());
            match pieces.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => pieces.push((from, to)),
            }
        }
        Start { bytes, pieces }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The ranges that are not zero: first byte, end.
    pub(crate) fn pieces(&self) -> &[(usize, usize)] {
        &self.pieces
    }

    /// A copy, with the given sectors in place of its own. Zeros take no memory before somebody writes them.
    pub(crate) fn with<'a>(&self, sectors: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
        let mut out = vec![0; self.bytes.len()];
        for (from, to) in &self.pieces {
            out[*from..*to].copy_from_slice(&self.bytes[*from..*to]);
        }
        for (sector, data) in sectors {
            let at = (sector * SECTOR) as usize;
            out[at..at + data.len()].copy_from_slice(data);
        }
        out
    }

    /// Makes a file hold these contents, with the given sectors in place of their own; sectors are in ascending
    /// order.
    pub(crate) fn write<'a>(
        &self,
        file: &File,
        sectors: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(self.bytes.len() as u64)?;
        for (from, to) in &self.pieces {
            file.write_all_at(&self.bytes[*from..*to], *from as u64)?;
        }
        let (mut at, mut run) = (0, Vec::new());
        for (sector, data) in sectors {
            if at + run.len() as u64 != sector * SECTOR {
                file.write_all_at(&run, at)?;
                run.clear();
                at = sector * SECTOR;
            }
            run.extend_from_slice(data);
        }
        file.write_all_at(&run, at)
    }
}

/// A place at which states are put and mounted.
pub(crate) struct Stand {
    system: ProgramSystem,
    memory: File,
    device: File,
    path: PathBuf,
    folder: tempfile::TempDir,
    /// The stand's number, which tells apart the copies of a btrfs file system that are mounted at once.
    number: u32,
    /// The number of checks that were run here.
    pub(crate) checks: Cell<u64>,
}

impl Stand {
    /// A new stand for devices of `bytes` bytes. Each stand in use at the same time needs another `number`.
    pub(crate) fn new(
        system: &ProgramSystem,
        bytes: u64,
        number: u32,
    ) -> Result<Stand, ProgramError> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("ordo-state", flags).map_err(io::Error::from);
        let memory = File::from(memory.map_err(ProgramError::io("a file in memory"))?);
        memory.set_len(bytes).map_err(ProgramError::io("a file in memory"))?;
        let (path, device) = ordo_fuse::loopdev::over(&memory, Path::new(""))
            .map_err(ProgramError::io("a loop device (the kernel's file systems need root)"))?;
        let folder = tempfile::Builder::new().prefix("ordo-state-").tempdir();
        let folder = folder.map_err(ProgramError::io("a directory to mount on"))?;
        let checks = Cell::new(0);
        Ok(Stand { system: system.clone(), memory, device, path, folder, number, checks })
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the device hold a start, with these sectors in place of its own.
    pub(crate) fn put<'a>(
        &self,
        start: &Start,
        sectors: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), ProgramError> {
        let put = sys::forget(&self.device).and_then(|()| start.write(&self.memory, sectors));
        put.map_err(ProgramError::io("putting a state on a device"))?;
        if self.system.is_btrfs() {
            rename_btrfs(&self.memory, self.number)
                .map_err(ProgramError::io("the superblock of a state"))?;
        }
        Ok(())
    }

    /// Repairs the state if that must come first, mounts it, calls `look`, and unmounts it.
    ///
    /// # Errors
    /// The kernel's error if the state cannot be mounted: the file system was lost.
    pub(crate) fn look<T>(
        &self,
        look: impl FnOnce(&Path) -> T,
    ) -> Result<Result<T, String>, ProgramError> {
        if let [program, args @ ..] = self.system.repair() {
            let done = Command::new(program).args(args).arg(&self.path).output();
            let done = done.map_err(|e| ProgramError::Program(format!("{program}: {e}")))?;
            // Exit code 0: nothing wrong; 1: repaired.
            if !matches!(done.status.code(), Some(0 | 1)) {
                let said = String::from_utf8_lossy(&done.stdout);
                return Ok(Err(format!("{program} cannot repair it: {}", said.trim())));
            }
            sys::forget(&self.device).map_err(ProgramError::io("a loop device"))?;
        }
        if let Err(error) = self.system.mount(&self.path, self.dir()) {
            return Ok(Err(format!("mounting: {error}")));
        }
        let seen = look(self.dir());
        unmount(self.dir()).map_err(ProgramError::io("unmounting a state"))?;
        Ok(Ok(seen))
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // The state is still mounted only if an unmount failed or a check panicked.
        let _ = rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

/// Unmounts. A process that is just ending may keep the mount busy for a moment.
pub(crate) fn unmount(dir: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match rustix::mount::unmount(dir, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) if tries < TRIES => {
                std::thread::sleep(PAUSE);
                tries += 1;
            }
            done => return Ok(done?),
        }
    }
}

// `struct btrfs_super_block`: its place, its length, and bytes in it.
const BTRFS_SUPER: u64 = 64 << 10;
const BTRFS_SUPER_LEN: usize = 4096;
const CSUM: std::ops::Range<usize> = 0..4;
const FSID: std::ops::Range<usize> = 0x20..0x30;
const MAGIC: std::ops::Range<usize> = 0x40..0x48;
const INCOMPAT_FLAGS: std::ops::Range<usize> = 0xbc..0xc4;
const CSUM_TYPE: std::ops::Range<usize> = 0xc4..0xc6;
const METADATA_UUID: std::ops::Range<usize> = 0x23b..0x24b;
/// `BTRFS_FEATURE_INCOMPAT_METADATA_UUID`.
const HAS_METADATA_UUID: u64 = 1 << 10;

/// Gives a btrfs image in memory a UUID of its own.
pub(crate) fn renamed_btrfs(image: &mut [u8], number: u32) {
    let at = BTRFS_SUPER as usize;
    if let Some(sb) = image.get_mut(at..at + BTRFS_SUPER_LEN) {
        named_btrfs(sb, number);
    }
}

/// Gives a btrfs file system a UUID of its own, as `btrfstune -m` does: the kernel takes two mounted copies with one
/// UUID for one file system. A torn superblock stays torn.
fn rename_btrfs(file: &File, number: u32) -> io::Result<()> {
    let mut sb = vec![0; BTRFS_SUPER_LEN];
    file.read_exact_at(&mut sb, BTRFS_SUPER)?;
    if named_btrfs(&mut sb, number) {
        file.write_all_at(&sb, BTRFS_SUPER)?;
    }
    Ok(())
}

fn named_btrfs(sb: &mut [u8], number: u32) -> bool {
    let right = sb[CSUM] == crc32c::crc32c(&sb[FSID.start..]).to_le_bytes();
    if sb[MAGIC] != *b"_BHRfS_M" || sb[CSUM_TYPE] != [0, 0] || !right {
        return false;
    }
    let flags = u64::from_le_bytes(sb[INCOMPAT_FLAGS].try_into().expect("eight bytes"));
    if flags & HAS_METADATA_UUID == 0 {
        sb.copy_within(FSID, METADATA_UUID.start);
        sb[INCOMPAT_FLAGS].copy_from_slice(&(flags | HAS_METADATA_UUID).to_le_bytes());
    }
    // The last four bytes count the copies.
    let (from, to) = (METADATA_UUID.end - 4, FSID.end - 4);
    let last = u32::from_be_bytes(sb[from..from + 4].try_into().expect("four bytes"));
    let last = last.wrapping_add(number).wrapping_add(1);
    sb[to..to + 4].copy_from_slice(&last.to_be_bytes());
    let sum = crc32c::crc32c(&sb[FSID.start..]).to_le_bytes();
    sb[CSUM].copy_from_slice(&sum);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start is written without its zeros, over any earlier contents of the file, with the state's sectors on top.
    #[test]
    fn a_state_is_the_start_and_what_differs() {
        let mut start = vec![0; 100_000 / 512 * 512];
        start[40_000..50_000].fill(7);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[9; 99_000], 0).unwrap();
        let sectors: Vec<(u64, Vec<u8>)> =
            [(3, 1), (4, 2), (90, 3)].map(|(n, b)| (n, vec![b; 512])).to_vec();
        let start = Start::new(Arc::new(start));
        start.write(&file, sectors.iter().map(|(n, data)| (*n, &data[..]))).unwrap();
        let mut expected = start.bytes.to_vec();
        sectors.iter().for_each(|(n, data)| {
            expected[*n as usize * 512..][..512].copy_from_slice(data);
        });
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected);
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
    }

    /// A superblock gets another UUID and a matching checksum. A superblock whose checksum is wrong stays as it is.
    #[test]
    fn superblocks_are_distinguished() {
        let mut sb = vec![0; BTRFS_SUPER_LEN];
        sb[MAGIC].copy_from_slice(b"_BHRfS_M");
        sb[FSID].fill(5);
        assert!(!named_btrfs(&mut sb, 1));
        let sum = crc32c::crc32c(&sb[32..]).to_le_bytes();
        sb[CSUM].copy_from_slice(&sum);
        assert!(named_btrfs(&mut sb, 1) && sb[METADATA_UUID] == [5; 16] && sb[FSID][15] == 7);
        assert!(named_btrfs(&mut sb, 2) && sb[FSID][15] == 8);
    }
}

//! A device or a file on which plans are played in real time.
//!
//! Requests are sent as the plan has them: all at once if nothing keeps them apart, a flush only
//! when the requests before it are complete, FUA as FUA. Each written sector gets bytes of its own,
//! so that no device gains by equal contents.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::{BlockDevice, BlockError, Device, IoBuf, WriteFlags};
use ordo_runtime::Executor;
use ordo_runtime::sync::buffer_unordered;
use ordo_trace::RequestOp;

use crate::plan::{Plan, PlanStep};

/// The bytes of one write while ranges are prepared.
const PIECE: u64 = 1 << 20;

/// The bytes at both ends of a device in which everything that marks its contents begins: partition
/// tables, superblocks.
const ENDS: u64 = 1 << 20;

/// The reason why nothing can be played on a device.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The device cannot be opened, or is mounted.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device holds something.
    #[error(
        "{path}: byte {at} is not zero, so something may be stored here; playback overwrites it. Use --force if it may be lost"
    )]
    NotEmpty {
        /// The device or the file.
        path: PathBuf,
        /// The first byte that is not zero.
        at: u64,
    },
    /// The device is smaller than that of the trace.
    #[error("{path}: has {bytes} bytes, and the device of the trace {needs}; take a larger one")]
    TooSmall {
        /// The device or the file.
        path: PathBuf,
        /// The size in bytes.
        bytes: u64,
        /// The size of the trace's device in bytes.
        needs: u64,
    },
    /// The device cannot be read or written outside of playback.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The device or the file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A write failed while ranges were prepared.
    #[error("{path}: {error}")]
    Device {
        /// The device or the file.
        path: PathBuf,
        /// The device's error.
        error: BlockError,
    },
}

/// A device or a file for playback in real time. Clones are the same device.
#[derive(Clone)]
pub struct Real(Rc<Inner>);

struct Inner {
    path: PathBuf,
    device: Device,
    /// Must be dropped after the device, whose requests are tasks of it.
    executor: Executor,
}

impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Real").field(&self.0.path).finish()
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Real {
    /// Opens a device or a file of at least `bytes` bytes. A missing file is created and loses its
    /// name at once: its space is free again when the last clone is dropped, or the process ends.
    ///
    /// # Errors
    /// It is mounted, in use or too small, or it has contents and `force` is false.
    pub fn open(path: &Path, bytes: u64, force: bool) -> Result<Real, RealError> {
        let executor = Executor::real(1);
        let runtime = executor.runtime();
        let disk = if path.exists() {
            if !force && let Some(at) = first_nonzero(path)? {
                return Err(RealError::NotEmpty { path: path.into(), at });
            }
            FileDisk::open(&runtime, path, FileAccess::ReadWrite)?
        } else {
            let disk = FileDisk::create(&runtime, path, bytes)?;
            std::fs::remove_file(path).map_err(|source| RealError::Io {
                path: path.into(),
                action: "take its name away",
                source,
            })?;
            disk
        };
        let (needs, device) = (bytes, disk.erase());
        let bytes = device.geometry().bytes;
        if bytes < needs {
            return Err(RealError::TooSmall { path: path.into(), bytes, needs });
        }
        Ok(Real(Rc::new(Inner { path: path.into(), device, executor })))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether completed writes may be lost in a power failure.
    pub fn volatile(&self) -> bool {
        self.0.device.geometry().volatile_cache
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.0.executor
    }

    /// Writes every range that the plans read or write once, and flushes: a file's first writes
    /// find space for it, and a solid-state disk's first writes are quicker than later ones.
    /// `reached` gets the bytes done and all bytes.
    ///
    /// # Errors
    /// The device failed.
    pub fn prepare(&self, plans: &[&Plan], reached: impl FnMut(u64, u64)) -> Result<(), RealError> {
        self.fill(touched(plans), reached)
    }

    /// Writes ranges of bytes, and flushes.
    pub(crate) fn fill(
        &self,
        ranges: Vec<Range<u64>>,
        mut reached: impl FnMut(u64, u64),
    ) -> Result<(), RealError> {
        let total = ranges.iter().map(|range| range.end - range.start).sum();
        let (device, mut done) = (&self.0.device, 0);
        let work = async {
            for range in ranges {
                for at in range.clone().step_by(PIECE as usize) {
                    let len = PIECE.min(range.end - at);
                    device.write(at, pattern(at, len as usize), WriteFlags::empty()).await?;
                    done += len;
                    reached(done, total);
                }
            }
            device.flush().await
        };
        let written = self.0.executor.block_on(work).expect("requests that end");
        written.map_err(|error| RealError::Device { path: self.0.path.clone(), error })
    }

    /// Sends one request of a plan.
    pub(crate) async fn request(&self, step: &PlanStep) -> Result<(), BlockError> {
        if step.preflush {
            self.0.device.flush().await?;
        }
        self.send(step.op, (step.offset, step.len), step.fua).await
    }

    /// Sends one request.
    pub(crate) async fn send(
        &self,
        op: RequestOp,
        (first, bytes): (u64, u64),
        fua: bool,
    ) -> Result<(), BlockError> {
        let device = &self.0.device;
        let most = device.geometry().max_request as u64;
        let pieces = (0..bytes.max(1)).step_by(most as usize).map(|at| async move {
            let (offset, len) = (first + at, most.min(bytes - at));
            match op {
                RequestOp::Read => device.read(offset, len as usize).await.map(drop),
                RequestOp::Write => {
                    let flags = if fua { WriteFlags::FUA } else { WriteFlags::empty() };
                    device.write(offset, pattern(offset, len as usize), flags).await
                }
                RequestOp::Flush => device.flush().await,
                RequestOp::Discard | RequestOp::WriteZeroes => device.discard(offset, len).await,
                RequestOp::Mark => Ok(()),
            }
        });
        buffer_unordered(usize::MAX, pieces, |_, result| result).await
    }
}

/// The first byte that is not zero in the first and the last [`ENDS`] bytes of a device or a file.
fn first_nonzero(path: &Path) -> Result<Option<u64>, RealError> {
    let fail = |source| RealError::Io { path: path.into(), action: "read it", source };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_file() && metadata.blocks() == 0 {
        return Ok(None);
    }
    let bytes = match metadata.is_file() {
        true => metadata.len(),
        false => io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(fail)?,
    };
    for start in [0, bytes.saturating_sub(ENDS)] {
        let mut end = vec![0; ENDS.min(bytes - start) as usize];
        file.read_exact_at(&mut end, start).map_err(fail)?;
        if let Some(at) = end.iter().position(|byte| *byte != 0) {
            return Ok(Some(start + at as u64));
        }
    }
    Ok(None)
}

/// The ranges that plans read or write on their first disk, in order, merged where they meet.
fn touched(plans: &[&Plan]) -> Vec<Range<u64>> {
    let steps = plans.iter().flat_map(|plan| plan.live().map(|n| plan.step(n)));
    let moves =
        steps.filter(|step| matches!(step.op, RequestOp::Read | RequestOp::Write) && step.len > 0);
    merged(moves.map(|step| step.offset..step.offset + step.len).collect())
}

/// Ranges in order, merged where they meet.
pub(crate) fn merged(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    all.sort_unstable_by_key(|range| (range.start, range.end));
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in all {
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Bytes for a write at a place: eight of them repeat within a sector, and no two sectors have the
/// same.
fn pattern(offset: u64, len: usize) -> IoBuf {
    let mut buf = IoBuf::scratch(len);
    for (n, sector) in buf.chunks_mut(512).enumerate() {
        let number = offset / 512 + n as u64;
        let word = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        for bytes in sector.chunks_mut(8) {
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{After, RANK};
    use crate::play::{PlayDisk, PlayStage, play};
    use crate::traffic::Role;

    fn step(op: RequestOp, (offset, len): (u64, u64), order: u64) -> PlanStep {
        PlanStep {
            disk: 0,
            op,
            offset,
            len,
            fua: false,
            preflush: false,
            role: if op == RequestOp::Flush { Role::Flush } else { Role::Data },
            transaction: None,
            copies: Vec::new(),
            checkpoint: false,
            recorded: None,
            text: None,
            not_before: 7_000_000_000,
            order: order * RANK,
        }
    }

    /// Two writes, a flush that waits for both, and a long write behind it, in real time. The trace
    /// begins seven seconds into the recorder's clock: these are skipped. Would catch a flush that
    /// overtakes a write, a request longer than the device takes, a request that is lost, and times
    /// that are not on the recorder's clock.
    #[test]
    fn flushes_keep_their_place_in_real_time() {
        let mut plan = Plan::default();
        let a = plan.add(step(RequestOp::Write, (4096, 4096), 1), Vec::new());
        let b = plan.add(step(RequestOp::Write, (1 << 20, 8192), 2), Vec::new());
        let both = [a, b].map(|step| After { step, think: 1_000_000 });
        let flush = plan.add(step(RequestOp::Flush, (0, 0), 3), both.to_vec());
        let long = (4 << 20, (2 << 20) + 512);
        let last = step(RequestOp::Write, long, 4);
        plan.add(PlanStep { fua: true, ..last }, vec![After { step: flush, think: 0 }]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let real = Real::open(&path, 16 << 20, false).unwrap();
        assert!(!path.exists() && real.volatile());
        let plan = Rc::new(plan);
        real.prepare(&[&plan], |_, _| ()).unwrap();
        let played = play(&plan, &PlayStage::one(PlayDisk::Real(real.clone()), 16 << 20)).unwrap();
        let times = played.times;
        assert_eq!(times[0].0 / 1_000_000_000, 7);
        assert!(times.iter().all(|(issued, completed)| issued <= completed));
        assert!(times[2].0 >= times[0].1.max(times[1].1) + 1_000_000, "{times:?}");
        assert!(times[3].0 >= times[2].1, "{times:?}");
        let back = async {
            let mut all = Vec::new();
            for at in (long.0..long.0 + long.1).step_by(512) {
                all.push(real.0.device.read(at, 512).await.unwrap().to_vec());
            }
            all
        };
        let sectors = real.0.executor.block_on(back).unwrap();
        for (n, sector) in sectors.iter().enumerate() {
            assert_eq!(sector[..], pattern(long.0 + 512 * n as u64, 512)[..], "sector {n}");
        }
        assert_ne!(sectors[0], sectors[1]);
    }

    /// A device with contents is not overwritten unless that was asked for, and a device that is
    /// too small is not used.
    #[test]
    fn a_device_with_contents_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        Real::open(&path, 8 << 20, false).unwrap();
        let small = Real::open(&path, 16 << 20, false).unwrap_err();
        assert!(matches!(small, RealError::TooSmall { bytes, .. } if bytes == 8 << 20), "{small}");
        file.write_all_at(b"x", (8 << 20) - 3).unwrap();
        let full = Real::open(&path, 8 << 20, false).unwrap_err();
        assert!(matches!(full, RealError::NotEmpty { at, .. } if at == (8 << 20) - 3), "{full}");
        Real::open(&path, 8 << 20, true).unwrap();
    }

    /// Adjacent and overlapping ranges are prepared once, ranges of reads too.
    #[test]
    fn ranges_that_meet_are_one() {
        let mut plan = Plan::default();
        for (n, range) in [(8192, 4096), (0, 4096), (4096, 4096), (65536, 512)].iter().enumerate() {
            let op = if n == 1 { RequestOp::Read } else { RequestOp::Write };
            plan.add(step(op, *range, n as u64), Vec::new());
        }
        plan.add(step(RequestOp::Flush, (0, 0), 9), Vec::new());
        assert_eq!(touched(&[&plan, &plan]), [0..12288, 65536..66048]);
    }
}

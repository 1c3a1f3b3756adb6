//! Partitions: part of a device as a device, made of one run of bytes or of several.

use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// Runs of another device, one after another, as a device.
#[derive(Debug)]
pub struct Partition<D> {
    inner: D,
    /// Byte offset and length of each run, whole sectors.
    runs: Vec<(u64, u64)>,
    bytes: u64,
}

impl<D: BlockDevice> Partition<D> {
    /// The `len` bytes at `offset`; `len` is rounded down to whole sectors.
    pub fn new(inner: D, offset: u64, len: u64) -> Partition<D> {
        Partition::of(inner, vec![(offset, len)])
    }

    /// Several runs, each an offset and a length in bytes, whole sectors.
    pub fn of(inner: D, runs: Vec<(u64, u64)>) -> Partition<D> {
        let sector = u64::from(inner.geometry().sector);
        let runs: Vec<(u64, u64)> =
            runs.into_iter().map(|(at, len)| (at, len / sector * sector)).collect();
        let bytes = runs.iter().map(|(_, len)| len).sum();
        Partition { inner, runs, bytes }
    }

    /// The part, cut to its first `len` bytes.
    #[must_use]
    pub fn first(self, len: u64) -> Partition<D> {
        let mut left = len;
        let mut runs = self.runs;
        for (_, run) in &mut runs {
            *run = left.min(*run);
            left -= *run;
        }
        runs.retain(|(_, len)| *len > 0);
        Partition::of(self.inner, runs)
    }

    /// The byte of the underlying device at which the first run begins.
    pub fn origin(&self) -> u64 {
        self.runs.first().map_or(0, |(at, _)| *at)
    }

    /// The underlying device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The runs that contain `len` bytes at `offset`: offset and length of each.
    fn places(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let (mut skip, mut left) = (offset, len);
        let mut out = Vec::with_capacity(1);
        for (at, run) in &self.runs {
            if left == 0 {
                break;
            }
            if skip >= *run {
                skip -= run;
                continue;
            }
            let n = left.min(run - skip);
            out.push((at + skip, n));
            (skip, left) = (0, left - n);
        }
        out
    }
}

impl<D: BlockDevice> BlockDevice for Partition<D> {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, ..self.inner.geometry() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.geometry().check(Operation::Read, offset, len)?;
        let places = self.places(offset, len as u64);
        if let [(at, n)] = places[..] {
            return self.inner.read(at, n as usize).await;
        }
        let mut out = IoBuf::scratch(len);
        let mut done = 0;
        for (at, n) in places {
            let part = self.inner.read(at, n as usize).await?;
            out[done..done + part.len()].copy_from_slice(&part);
            done += part.len();
        }
        Ok(out)
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Write, offset, data.len())?;
        let places = self.places(offset, data.len() as u64);
        if let [(at, _)] = places[..] {
            return self.inner.write(at, data, flags).await;
        }
        let mut done = 0;
        for (at, n) in places {
            let part = IoBuf::from_slice(&data[done..done + n as usize]);
            self.inner.write(at, part, flags).await?;
            done += n as usize;
        }
        Ok(())
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Write, offset, data.len())?;
        match self.places(offset, data.len() as u64)[..] {
            [(at, _)] => self.inner.write_list(at, data, flags).await,
            _ => self.write(offset, data.join(), flags).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.inner.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Discard, offset, len as usize)?;
        for (at, n) in self.places(offset, len) {
            self.inner.discard(at, n).await?;
        }
        Ok(())
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use ordo_runtime::Executor;

    use super::*;
    use crate::ram::RamDisk;

    /// A write across the seam of two runs lands in both, in order, and nowhere else.
    #[test]
    fn runs_follow_each_other() {
        let executor = Executor::simulated(1);
        let disk = Rc::new(RamDisk::new(64 << 10));
        let part = Partition::of(disk.clone(), vec![(8192, 1024), (2048, 2048 + 100)]);
        executor
            .block_on(async {
                assert_eq!(part.geometry().bytes, 3072);
                let data: Vec<u8> = (0..3072u32).map(|i| (i / 512) as u8 + 1).collect();
                let written = part.write(0, IoBuf::from_slice(&data), WriteFlags::empty()).await;
                written.unwrap();
                assert_eq!(part.read(512, 1536).await.unwrap()[..], data[512..2048]);
                assert!(part.read(2560, 1024).await.is_err());
            })
            .unwrap();
        let mut out = [0; 512];
        for (at, byte) in
            [(8192, 1), (8704, 2), (2048, 3), (2560, 4), (3584, 6), (9216, 0), (4096, 0)]
        {
            disk.load(at, &mut out);
            assert_eq!(out, [byte; 512], "{at}");
        }
    }
}

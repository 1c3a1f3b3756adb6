//! Reading the device, and repairs that stay in memory until the check is done.

use std::collections::{BTreeMap, BTreeSet};

use ordo_block::{BlockDevice, BlockError, Device, IoBuf, WriteFlags};

use crate::CheckWork;

/// Access to the device in fragments. A read returns the changes made so far. Nothing is written
/// before [`write_out`](Io::write_out), so a check without repair sees exactly what one with repair
/// does.
pub(crate) struct Io<'d> {
    device: &'d Device,
    frag: usize,
    request: usize,
    overlay: BTreeMap<u64, Box<[u8]>>,
    /// Changed fragments to which nothing on the device refers yet.
    fresh: BTreeSet<u64>,
    pub work: CheckWork,
}

impl<'d> Io<'d> {
    pub fn new(device: &'d Device, frag: usize, work: CheckWork) -> Io<'d> {
        let request = device.geometry().max_request / frag * frag;
        let (overlay, fresh) = (BTreeMap::new(), BTreeSet::new());
        Io { device, frag, request: request.max(frag), overlay, fresh, work }
    }

    /// The number of fragments to read at once, if the caller may choose.
    pub fn batch(&self) -> u64 {
        (self.request.min(1 << 20) / self.frag) as u64
    }

    /// Reads `count` fragments, with the repairs so far.
    pub async fn read(&mut self, addr: u64, count: u64) -> Result<IoBuf, BlockError> {
        let len = count as usize * self.frag;
        let at = addr * self.frag as u64;
        let mut bytes = if len <= self.request {
            self.work.reads += 1;
            self.device.read(at, len).await?
        } else {
            let mut whole = IoBuf::zeroed(len);
            for start in (0..len).step_by(self.request) {
                let piece = self.request.min(len - start);
                let part = self.device.read(at + start as u64, piece).await?;
                whole[start..start + piece].copy_from_slice(&part);
                self.work.reads += 1;
            }
            whole
        };
        self.work.bytes_read += len as u64;
        if !self.overlay.is_empty() {
            for (frag, data) in self.overlay.range(addr..addr + count) {
                let start = (frag - addr) as usize * self.frag;
                bytes[start..start + self.frag].copy_from_slice(data);
            }
        }
        Ok(bytes)
    }

    /// Changes bytes from byte `offset` of fragment `addr` on; the range may span several
    /// fragments.
    pub async fn change(
        &mut self,
        addr: u64,
        offset: usize,
        data: &[u8],
    ) -> Result<(), BlockError> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done;
            let (frag, within) = (addr + (at / self.frag) as u64, at % self.frag);
            let len = (self.frag - within).min(data.len() - done);
            if !self.overlay.contains_key(&frag) {
                let old: Box<[u8]> = if len == self.frag {
                    vec![0; len].into()
                } else {
                    self.read(frag, 1).await?.to_vec().into()
                };
                self.overlay.insert(frag, old);
            }
            let kept = self.overlay.get_mut(&frag).expect("just made");
            kept[within..within + len].copy_from_slice(&data[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// Forgets changes to fragments that are no longer in use.
    pub fn forget(&mut self, addr: u64, count: u64) {
        if !self.overlay.is_empty() {
            (addr..addr + count).for_each(|frag| drop(self.overlay.remove(&frag)));
        }
    }

    /// Marks fragments that were free before. Changes that refer to them are written only when the
    /// fragments are on the device.
    pub fn take(&mut self, addr: u64, count: u64) {
        self.fresh.extend(addr..addr + count);
    }

    /// Whether there is anything to write.
    pub fn is_changed(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Writes fragments at once. Allowed only for fragments to which nothing on the device refers
    /// yet.
    pub async fn write_now(&mut self, addr: u64, data: &[u8]) -> Result<(), BlockError> {
        for (i, piece) in data.chunks(self.request).enumerate() {
            let at = addr * self.frag as u64 + (i * self.request) as u64;
            self.work.writes += 1;
            self.work.bytes_written += piece.len() as u64;
            self.device.write(at, IoBuf::from_slice(piece), WriteFlags::META).await?;
        }
        Ok(())
    }

    /// Writes all changes. Fragments without references come first and are flushed, so an
    /// interrupted repair leaves no reference to missing contents. The rest is not flushed.
    pub async fn write_out(&mut self) -> Result<(), BlockError> {
        let all = std::mem::take(&mut self.overlay);
        let (fresh, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(addr, _)| self.fresh.contains(addr));
        if !self.fresh.is_empty() {
            self.write_all(fresh).await?;
            self.device.flush().await?;
        }
        self.write_all(rest).await
    }

    /// Writes fragments in the order of their addresses, neighbours together.
    async fn write_all(&mut self, frags: Vec<(u64, Box<[u8]>)>) -> Result<(), BlockError> {
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (addr, data) in frags {
            let next = start + (run.len() / self.frag) as u64;
            if !run.is_empty() && (addr != next || run.len() + self.frag > self.request) {
                self.write_now(start, &run).await?;
                run.clear();
            }
            if run.is_empty() {
                start = addr;
            }
            run.extend_from_slice(&data);
        }
        if !run.is_empty() {
            self.write_now(start, &run).await?;
        }
        Ok(())
    }
}

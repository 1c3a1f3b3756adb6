//! A metadata device in two halves, each of which has all of it.
//!
//! [`join`] looks at the labels of the halves, makes them equal, and returns devices as if there
//! were one metadata device: a [`Mirror`], which writes to both and reads from one.
//! [`Mirror::close`] marks both as clean.
//!
//! Invariants:
//! - A write or a flush is acknowledged when both halves have it, or when the half that lacks it is
//!   known to lack it: by an epoch on the other half that is higher, and that the data device knows
//!   too ([`MirrorRules::RAISED`], [`MirrorRules::TOLD`]).
//! - Halves that may differ are made equal before anything is read from them
//!   ([`MirrorRules::EQUALISED`]). While a newer half is copied onto an older one, the data device
//!   knows the epoch of the newer one, so that a half that was copied in part is refused.
//! - Bytes [`LABEL_AT`] to [`LABEL_END`] of a half are its own.
//! - A half that has failed in a write is left alone until the next [`join`].
//!
//! Lock order: `writes`, then `raising`.

mod join;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ordo_block::pieces::write_all;
use ordo_block::{
    BlockDevice, BlockError, Device, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags,
};
use ordo_format::dualfs::IDENTITY_SIZE;
use ordo_format::mirror::{
    LABEL_AT, LABEL_END, LABEL_SIZE, MirrorLabel, STATE_CLEAN, STATE_IN_USE, half_name,
};
use ordo_runtime::sync::{Mutex, RwLock, buffer_unordered};

pub use join::{HalfAccess, HalfState, Joined, join, read_label};

use crate::pair::{read_identity, write_identity};

bitflags::bitflags! {
    /// The rules of a mirror. Each can be switched off, to show what it is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MirrorRules: u8 {
        /// Before a write that only one half took is acknowledged, the epoch of this half goes up,
        /// durably.
        const RAISED = 1;
        /// Halves of one epoch that were in use are made equal by copying one whole onto the other.
        const EQUALISED = 1 << 1;
        /// The new epoch is durable on the data device before such a write is acknowledged, and
        /// before a newer half is copied onto an older one.
        const TOLD = 1 << 2;
    }
}

/// The receiver of messages about halves that fail.
pub type LossSink = Rc<dyn Fn(&str)>;

/// A metadata device in two halves, of which one may be missing.
pub struct Mirror {
    /// By the number in their labels.
    halves: [Option<Device>; 2],
    lost: [Cell<bool>; 2],
    /// The label of the halves in use, but for the number.
    label: RefCell<MirrorLabel>,
    data: Device,
    bytes: u64,
    is_writable: bool,
    rules: MirrorRules,
    tell: LossSink,
    /// Writes share it; a repair of what could not be read has it alone.
    writes: RwLock,
    /// Held while an epoch goes up.
    raising: Mutex<()>,
}

/// The parts of a range that are the same on both halves: offset, and range of its bytes.
fn shared_parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let end = offset + len as u64;
    let parts = [offset..end.min(LABEL_AT), offset.max(LABEL_END)..end];
    let some = parts.into_iter().filter(|part| part.start < part.end);
    some.map(move |part| (part.start, (part.start - offset) as usize..(part.end - offset) as usize))
}

/// Writes a label, which is durable when this returns.
async fn write_label(half: &Device, label: &MirrorLabel) -> Result<(), BlockError> {
    let mut bytes = [0; LABEL_SIZE];
    label.seal(&mut bytes);
    let flags = WriteFlags::FUA | WriteFlags::SYNC | WriteFlags::META;
    write_all(half, LABEL_AT, &bytes, flags).await
}

impl Mirror {
    /// Two new halves of a pair that is being made, both empty of any label that they had.
    ///
    /// # Errors
    /// A device failed.
    pub(crate) async fn create(
        halves: &[Device; 2],
        data: &Device,
        uuid: [u8; 16],
        bytes: u64,
    ) -> Result<Rc<Mirror>, BlockError> {
        let label = MirrorLabel::new(uuid, 0, 1);
        let sink: LossSink = Rc::new(|_| {});
        let both = halves.clone().map(Some);
        let mirror = Mirror::new(both, label, (data.clone(), bytes), MirrorRules::all(), sink);
        for half in halves {
            write_all(half, 0, &[0; IDENTITY_SIZE], WriteFlags::FUA | WriteFlags::META).await?;
        }
        mirror.mark(STATE_IN_USE).await?;
        Ok(Rc::new(mirror))
    }

    fn new(
        halves: [Option<Device>; 2],
        label: MirrorLabel,
        (data, bytes): (Device, u64),
        rules: MirrorRules,
        tell: LossSink,
    ) -> Mirror {
        Mirror {
            lost: [0, 1].map(|half| Cell::new(halves[half].is_none())),
            halves,
            label: label.into(),
            data,
            bytes,
            is_writable: true,
            rules,
            tell,
            writes: RwLock::new("the writes of a mirror", 0),
            raising: Mutex::new((), "the epoch of a mirror", 0),
        }
    }

    /// The halves in use, by their numbers.
    fn present(&self) -> impl Iterator<Item = (usize, &Device)> {
        let all = self.halves.iter().enumerate();
        all.filter(|(n, _)| !self.lost[*n].get()).filter_map(|(n, half)| Some((n, half.as_ref()?)))
    }

    /// Whether only one half is in use.
    pub fn is_degraded(&self) -> bool {
        self.present().count() < 2
    }

    /// The epoch of the halves in use.
    pub fn epoch(&self) -> u64 {
        self.label.borrow().epoch
    }

    /// Does the same to each half in use. Where one of two fails, the other goes on without it.
    async fn both<F: Future<Output = Result<(), BlockError>>>(
        &self,
        each: impl Fn(usize, Device) -> F,
    ) -> Result<(), BlockError> {
        let halves: Vec<(usize, Device)> =
            self.present().map(|(n, half)| (n, half.clone())).collect();
        let mut failed = Vec::new();
        let requests = halves.iter().map(|(n, half)| each(*n, half.clone()));
        let noted = buffer_unordered(2, requests, |n, result: Result<(), BlockError>| {
            failed.extend(result.err().map(|error| (halves[n].0, error)));
            Ok::<(), BlockError>(())
        });
        noted.await?;
        match failed[..] {
            [] if halves.is_empty() => Err(self.gone(Operation::Write)),
            [] => Ok(()),
            [(half, error)] if halves.len() == 2 => self.lose(half, error).await,
            [(_, error), ..] => Err(error),
        }
    }

    /// The error of a request for which no half is left.
    fn gone(&self, op: Operation) -> BlockError {
        BlockError { op, offset: 0, len: 0, fault: Fault::Io(libc::EIO) }
    }

    /// Goes on without a half, which failed with `error`: on return it can never be taken for a
    /// half that has everything.
    async fn lose(&self, half: usize, error: BlockError) -> Result<(), BlockError> {
        let _one_at_a_time = self.raising.lock().await;
        if self.lost[half].get() {
            return Ok(());
        }
        let other = 1 - half;
        if self.lost[other].get() {
            // The half that took this write was lost in another one.
            return Err(error);
        }
        if self.rules.contains(MirrorRules::RAISED) {
            self.raise(other).await?;
        }
        self.lost[half].set(true);
        let (lost, other, epoch) = (half_name(half), half_name(other), self.epoch());
        (self.tell)(&format!(
            "the {lost} half of the metadata device failed ({error}); the {other} half goes on alone, epoch {epoch}"
        ));
        Ok(())
    }

    /// Raises the epoch of a half that goes on alone, and tells the data device.
    async fn raise(&self, half: usize) -> Result<(), BlockError> {
        let mut label = self.label.borrow().clone();
        label.epoch += 1;
        (label.half, label.alone, label.state) = (half as u32, 1, STATE_IN_USE);
        let device = self.halves[half].as_ref().expect("this half is in use");
        write_label(device, &label).await?;
        self.label.replace(label);
        self.tell_data().await
    }

    /// Makes the epoch known to the data device, durably: a half with a lower one is refused from
    /// now on.
    async fn tell_data(&self) -> Result<(), BlockError> {
        if self.rules.contains(MirrorRules::TOLD)
            && let Ok(mut identity) = read_identity(&self.data).await?
            && identity.mirror_epoch < self.epoch()
        {
            identity.mirror_epoch = self.epoch();
            write_identity(&self.data, &identity).await?;
        }
        Ok(())
    }

    /// Writes the labels of the halves in use.
    async fn mark(&self, state: u32) -> Result<(), BlockError> {
        self.label.borrow_mut().state = state;
        let label = self.label.borrow().clone();
        self.both(|n, half| {
            // The epoch may go up where one fails, and then this one's is written again.
            let label = MirrorLabel { half: n as u32, ..label.clone() };
            async move { write_label(&half, &label).await }
        })
        .await
    }

    /// Makes all writes durable and marks the halves as clean. The mirror must not be written any
    /// more.
    ///
    /// # Errors
    /// The device failed: both halves, or one of them and the data device.
    pub async fn close(&self) -> Result<(), BlockError> {
        if !self.is_writable {
            return Ok(());
        }
        self.flush().await?;
        self.mark(STATE_CLEAN).await?;
        if self.label.borrow().state != STATE_CLEAN {
            // One half failed just now; the other is in use by its label.
            self.mark(STATE_CLEAN).await?;
        }
        Ok(())
    }

    /// Writes what could not be read from a half, from the other half.
    async fn repair(&self, to: usize, from: usize, offset: u64, len: usize) {
        // No write may come between the read and the write.
        let _alone = self.writes.write().await;
        // A half that was lost in a write meanwhile lacks that write, and is left alone.
        if self.is_degraded() {
            return;
        }
        let (Some(bad), Some(good)) = (&self.halves[to], &self.halves[from]) else { return };
        for (at, part) in shared_parts(offset, len) {
            let Ok(bytes) = good.read(at, part.len()).await else { return };
            if let Err(error) = bad.write(at, bytes, WriteFlags::META).await {
                // The contents of the range are unknown now. If the loss cannot be recorded, the
                // next write fails as well.
                let _ = self.lose(to, error).await;
                return;
            }
        }
    }
}

impl BlockDevice for Mirror {
    fn geometry(&self) -> Geometry {
        let each = self.halves.iter().flatten().map(Device::geometry);
        let joined = each.reduce(|a, b| Geometry {
            bytes: a.bytes.min(b.bytes),
            sector: a.sector.max(b.sector),
            max_request: a.max_request.min(b.max_request),
            volatile_cache: a.volatile_cache || b.volatile_cache,
            read_only: a.read_only || b.read_only,
        });
        let joined = joined.expect("one half is there");
        let bytes = joined.bytes.min(self.bytes) / u64::from(joined.sector);
        Geometry {
            bytes: bytes * u64::from(joined.sector),
            read_only: joined.read_only || !self.is_writable,
            ..joined
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let mut first: Option<(usize, BlockError)> = None;
        for (n, half) in self.present() {
            match half.read(offset, len).await {
                Ok(bytes) => {
                    if let Some((failed, _)) = first
                        && self.is_writable
                    {
                        self.repair(failed, n, offset, len).await;
                    }
                    return Ok(bytes);
                }
                Err(error) => first = first.or(Some((n, error))),
            }
        }
        Err(first.map_or_else(|| self.gone(Operation::Read), |(_, error)| error))
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let mut list = IoList::with_capacity(1);
        list.push(Arc::new(data));
        self.write_list(offset, list, flags).await
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Write, offset, data.len())?;
        let _shared = self.writes.read().await;
        if offset >= LABEL_END || offset + data.len() as u64 <= LABEL_AT {
            return self
                .both(|_, half| {
                    let data = data.clone();
                    async move { half.write_list(offset, data, flags).await }
                })
                .await;
        }
        let data = data.join();
        for (at, part) in shared_parts(offset, data.len()) {
            let bytes = &data[part];
            self.both(
                |_, half| async move { half.write(at, IoBuf::from_slice(bytes), flags).await },
            )
            .await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.both(|_, half| async move { half.flush().await }).await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Discard, offset, len as usize)?;
        let _shared = self.writes.read().await;
        for (at, part) in shared_parts(offset, len as usize) {
            let len = part.len() as u64;
            self.both(|_, half| async move { half.discard(at, len).await }).await?;
        }
        Ok(())
    }
}

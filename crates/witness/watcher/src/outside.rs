//! Decoders of an external log device: a device that holds only the log of a file system elsewhere.
//! The logged blocks belong at fixed locations of another device. If that is not watched, their
//! kinds are not known; if it is, its decoder names the writes to the log, and these decoders only
//! the reads.

use crate::decoder::{Contents, Decoder, DecoderState, PairMember, cover, unknown};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

/// A log that has a device to itself.
pub(crate) trait LogOnly {
    /// The log's name.
    fn system(&self) -> &'static str;

    /// The log's block size, as a shift.
    fn block_shift(&self) -> u32;

    /// The identifier by which the file system names this log; `None` if there is none.
    fn uuid(&self) -> Option<[u8; 16]> {
        None
    }

    /// The size of the log in bytes.
    fn bytes(&self) -> u64;

    /// Names whole blocks that are written from block `block` on, and learns from them. Returns the
    /// kind, the meaning, and the number of bytes that they cover.
    fn write(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning, usize);

    /// Names one block of a read.
    fn read(&self, block: u64, bytes: Option<&[u8]>) -> (Class, BlockMeaning);
}

/// The decoder of an external log device.
pub(crate) struct Outside<L>(pub(crate) L);

impl<L: LogOnly> Decoder for Outside<L> {
    fn system(&self) -> &'static str {
        self.0.system()
    }

    fn block_shift(&self) -> u32 {
        self.0.block_shift()
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let log = &mut self.0;
        let (shift, bytes) = (log.block_shift(), log.bytes());
        cover(out, offset, data.len() as u64, bytes, |at, end| {
            let (block, size) = (at >> shift, 1u64 << shift);
            let whole = (end - at) / size * size;
            if !at.is_multiple_of(size) || whole == 0 {
                let to = ((block + 1) << shift).min(end);
                return unknown(at, to - at, Reason::NotUnderstood);
            }
            let from = (at - offset) as usize;
            let (class, what, len) = log.write(block, &data[from..from + whole as usize], state);
            ClassifiedRange { class, offset: at, len: len as u64, what }
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let shift = self.0.block_shift();
        cover(out, offset, len, self.0.bytes(), |at, end| {
            let block = at >> shift;
            let to = ((block + 1) << shift).min(end);
            let bytes = data.and_then(|d| d.get((at - offset) as usize..(to - offset) as usize));
            let (class, what) = self.0.read(block, bytes);
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn contents(&self, _ino: u64) -> Vec<Contents> {
        Vec::new()
    }

    fn pair(&self) -> Option<PairMember> {
        Some(PairMember { uuid: self.0.uuid()?, has_metadata: false })
    }
}

//! File systems that are made while their device is watched.
//!
//! Every known format has a magic number and an identifier at a fixed place near the start of the
//! device. When writes have changed these, the decoders are asked again whether they know the
//! device: at the next request after a flush, because a superblock may be written before what it
//! describes, and at a read there, because a mount begins with it. A file system that was just made
//! is looked at again as long as its superblock is written without a transaction: mkfs may not have
//! been done.

use std::rc::Rc;

use crate::decoder::DiskImage;

/// The places of a format's magic number and of its identifier.
struct Signature {
    at: u64,
    magic: &'static [u8],
    id_at: u64,
    id_len: usize,
}

const fn signature(at: u64, magic: &'static [u8], id_at: u64, id_len: usize) -> Signature {
    Signature { at, magic, id_at, id_len }
}

/// The signatures of all formats with a fixed place; for ext with the time of mkfs, which has the
/// same identifier where it was asked for.
const SIGNATURES: [Signature; 13] = [
    signature(1024 + 56, &[0x53, 0xef], 1024 + 104, 16),
    signature(1024 + 56, &[0x53, 0xef], 1024 + 264, 4),
    signature(0, b"XFSB", 32, 16),
    signature((64 << 10) + 52, b"ReIsEr", (64 << 10) + 84, 16),
    signature(32 << 10, b"JFS1", (32 << 10) + 136, 16),
    signature(3, b"NTFS    ", 0x48, 8),
    signature(1024 + 6, &[0x34, 0x34], 1024 + 152, 16),
    signature(1024, &[0x10, 0x20, 0xf5, 0xf2], 1024 + 108, 16),
    signature(8192, &[0xfe, 0xf8, 0x9d, 0xe6], 8192 + 60, 4),
    signature(8192, &[0x62, 0x01, 0x07, 0x00], 8192 + 60, 4),
    signature((64 << 10) + 64, b"_BHRfS_M", (64 << 10) + 32, 16),
    // UFS2 of little-endian machines: `fs_magic`, and `fs_id`.
    signature((64 << 10) + 1372, &[0x19, 0x01, 0x54, 0x19], (64 << 10) + 144, 8),
    signature(4096 - 10, crate::disk::SWAP_MAGIC, 1036, 16),
];

/// The end of the space in which signatures are, in bytes.
const END: u64 = 72 << 10;
/// How often a file system that was just made is looked at again, at most.
const AGAIN_MAX: u32 = 16;

/// The identifier of each format whose magic number is on the device.
type Identity = Vec<(usize, [u8; 16])>;

fn identity(image: &dyn DiskImage) -> Identity {
    let found = SIGNATURES.iter().enumerate().filter_map(|(format, signature)| {
        let mut magic = [0; 10];
        let magic = &mut magic[..signature.magic.len()];
        image.read_at(signature.at, magic).ok().filter(|()| *magic == *signature.magic)?;
        let mut id = [0; 16];
        image.read_at(signature.id_at, &mut id[..signature.id_len]).ok()?;
        Some((format, id))
    });
    found.collect()
}

/// Whether one of the writes, each an offset and contents in the order of the requests, makes
/// another file system than that of `start`.
pub fn is_made<'a>(start: &dyn DiskImage, writes: impl Iterator<Item = (u64, &'a [u8])>) -> bool {
    let mut front = vec![0; END.min(start.bytes()) as usize];
    if start.read_at(0, &mut front).is_err() {
        return false;
    }
    let before = identity(&&front[..]);
    let len = front.len() as u64;
    for (offset, bytes) in writes.filter(|(offset, _)| *offset < len) {
        let at = offset as usize;
        let len = bytes.len().min(front.len() - at);
        front[at..at + len].copy_from_slice(&bytes[..len]);
        let now = identity(&&front[..]);
        if !now.is_empty() && now != before {
            return true;
        }
    }
    false
}

/// Whether a signature is on the device.
pub(crate) fn has_signature(image: &dyn DiskImage) -> bool {
    !identity(image).is_empty() || crate::disk::swap_shift(image).is_some()
}

/// Follows which file system is on a device.
pub(crate) struct Births {
    /// The device's present contents.
    pub(crate) image: Rc<dyn DiskImage>,
    known: Identity,
    /// Whether a signature may have changed since the last look.
    touched: bool,
    /// Whether a flush came after that.
    flushed: bool,
    /// How often the present file system was looked at again; `None` if it has been mounted, or was
    /// there before.
    again: Option<u32>,
    /// The number of transactions when it was found.
    begun: u64,
}

impl Births {
    /// Begins with the device's present contents, which `image` goes on to show.
    pub(crate) fn new(image: Rc<dyn DiskImage>) -> Births {
        let known = identity(&*image);
        Births { image, known, touched: false, flushed: false, again: None, begun: 0 }
    }

    /// Notes a write or a discard.
    pub(crate) fn written(&mut self, offset: u64) {
        self.touched |= offset < END;
    }

    /// Whether the device's contents may be looked at before or after the request that is next.
    /// `written` is the offset of a write or a discard.
    pub(crate) fn may_look(&self, written: Option<u64>) -> bool {
        self.touched || self.flushed || written.is_some_and(|offset| offset < END)
    }

    /// Notes a flush.
    pub(crate) fn flushed(&mut self) {
        self.flushed |= self.touched;
    }

    /// Whether the decoders should be asked now, before the request with this number: a write, or a
    /// read at the offset `read`. `begun` is the number of transactions so far.
    pub(crate) fn is_due(&mut self, request: u64, read: Option<u64>, begun: u64) -> bool {
        if begun > self.begun {
            self.again = None;
        }
        if !(self.flushed || self.touched && read.is_some_and(|offset| offset < END)) {
            return false;
        }
        (self.touched, self.flushed) = (false, false);
        self.image.advance(request);
        let now = identity(&*self.image);
        if now != self.known {
            (self.known, self.begun) = (now, begun);
            self.again = Some(0);
            return true;
        }
        match &mut self.again {
            Some(times) if *times < AGAIN_MAX => {
                *times += 1;
                true
            }
            _ => false,
        }
    }
}

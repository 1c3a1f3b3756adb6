//! Buffers that a device may read into or write from directly.

use std::ops::{Deref, DerefMut};

/// The alignment of every buffer, in bytes: what O_DIRECT asks for on any common device.
const ALIGN: usize = 4096;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN]);

/// Owned bytes, aligned to 4,096, of any length.
#[derive(Clone)]
pub struct IoBuf {
    pages: Vec<Page>,
    len: usize,
}

impl IoBuf {
    /// `len` bytes of zero.
    pub fn zeroed(len: usize) -> IoBuf {
        IoBuf { pages: vec![Page([0; ALIGN]); len.div_ceil(ALIGN)], len }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `Page` is `repr(C)` of plain bytes without padding, so the vector's elements are
        // `pages.len() * ALIGN` initialised bytes in a row, and `len` is at most that.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len)
        }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the vector is borrowed mutably.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len)
        }
    }
}

impl std::fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

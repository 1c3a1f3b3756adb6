//! Extended attributes: consecutive records in an inode's own blocks.
//!
//! A record consists of its length (u32), name space (u8), the length of the padding after the
//! content (u8), name length (u8), the name, padding to 8 bytes, the content, and padding to 8
//! bytes. Records fill the area without gaps.

use crate::Endian;

/// The bytes of a record before its name.
pub const HEADER: usize = 7;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The name space of users (`EXTATTR_NAMESPACE_USER`).
pub const NAMESPACE_USER: u8 = 1;
/// The name space of the system (`EXTATTR_NAMESPACE_SYSTEM`).
pub const NAMESPACE_SYSTEM: u8 = 2;

/// The damage of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttrFault {
    /// Fewer bytes are left than the smallest record has.
    #[error("{left} bytes are left, too few for a record")]
    CutShort {
        /// The bytes left.
        left: usize,
    },
    /// The record length is less than its parts need.
    #[error("record length {length} is below the {needs} bytes that its parts need")]
    TooShort {
        /// The length.
        length: u32,
        /// The bytes that the parts need.
        needs: usize,
    },
    /// The record length is not a multiple of 8.
    #[error("record length {length} is not a multiple of 8")]
    Unaligned {
        /// The length.
        length: u32,
    },
    /// The record ends beyond the area.
    #[error("record length {length} is beyond the area, where {left} bytes are left")]
    BeyondArea {
        /// The length.
        length: u32,
        /// The bytes left.
        left: usize,
    },
    /// The name is empty.
    #[error("the name is empty")]
    NameEmpty,
    /// The name contains a NUL.
    #[error("byte {index} of the name is NUL")]
    NameHasNul {
        /// The byte's index in the name.
        index: usize,
    },
    /// The padding after the content is longer than alignment needs.
    #[error("padding of {padding} bytes after the content, where 7 is the most")]
    BadPadding {
        /// The padding.
        padding: u8,
    },
}

/// A damaged record, and its place. Records after it cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("extended attribute at byte {at}: {fault}")]
pub struct AttrError {
    /// The record's first byte in the area.
    pub at: usize,
    /// The damage.
    pub fault: AttrFault,
}

/// An extended attribute, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The first byte of its record in the area.
    pub at: usize,
    /// The length of its record in bytes.
    pub length: usize,
    /// The name space.
    pub namespace: u8,
    /// The name, without its name space.
    pub name: &'a [u8],
    /// The content.
    pub content: &'a [u8],
}

/// The records of an area; iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    area: &'a [u8],
    at: usize,
    endian: Endian,
}

/// The attributes in an area, the `extsize` bytes of an inode.
pub fn attrs(area: &[u8], endian: Endian) -> Attrs<'_> {
    Attrs { area, at: 0, endian }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, AttrError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.area.len() {
            return None;
        }
        let at = self.at;
        match decode(&self.area[at..], at, self.endian) {
            Ok(attr) => {
                self.at += attr.length;
                Some(Ok(attr))
            }
            Err(fault) => {
                self.at = self.area.len();
                Some(Err(AttrError { at, fault }))
            }
        }
    }
}

fn decode(rest: &[u8], at: usize, endian: Endian) -> Result<Attr<'_>, AttrFault> {
    if rest.len() < record_size(1, 0) {
        return Err(AttrFault::CutShort { left: rest.len() });
    }
    // `ea_length`, `ea_namespace`, `ea_contentpadlen` and `ea_namelength` of `struct extattr`.
    let length = endian.get_u32(rest, 0);
    let (namespace, padding, namlen) = (rest[4], rest[5], usize::from(rest[6]));
    let base = (HEADER + namlen).next_multiple_of(8);
    let needs = base + usize::from(padding);
    if namlen == 0 {
        return Err(AttrFault::NameEmpty);
    }
    if padding > 7 {
        return Err(AttrFault::BadPadding { padding });
    }
    if (length as usize) < needs {
        return Err(AttrFault::TooShort { length, needs });
    }
    if !length.is_multiple_of(8) {
        return Err(AttrFault::Unaligned { length });
    }
    if length as usize > rest.len() {
        return Err(AttrFault::BeyondArea { length, left: rest.len() });
    }
    let name = &rest[HEADER..HEADER + namlen];
    if let Some(index) = name.iter().position(|byte| *byte == 0) {
        return Err(AttrFault::NameHasNul { index });
    }
    let length = length as usize;
    let content = &rest[base..length - usize::from(padding)];
    Ok(Attr { at, length, namespace, name, content })
}

/// The bytes that a record needs.
pub const fn record_size(namlen: usize, content: usize) -> usize {
    (HEADER + namlen).next_multiple_of(8) + content.next_multiple_of(8)
}

/// Appends a record to an area. Panics if the name is empty or has more than 255 bytes, or the
/// content has 4 GiB.
pub fn append(area: &mut Vec<u8>, endian: Endian, namespace: u8, name: &[u8], content: &[u8]) {
    assert!((1..=MAX_NAME).contains(&name.len()), "names have 1 to 255 bytes");
    let start = area.len();
    let length = record_size(name.len(), content.len());
    area.resize(start + length, 0);
    let record = &mut area[start..];
    endian.put_u32(record, 0, u32::try_from(length).expect("attributes are small"));
    record[4] = namespace;
    record[5] = (content.len().next_multiple_of(8) - content.len()) as u8;
    record[6] = name.len() as u8;
    record[HEADER..HEADER + name.len()].copy_from_slice(name);
    let base = (HEADER + name.len()).next_multiple_of(8);
    record[base..base + content.len()].copy_from_slice(content);
}

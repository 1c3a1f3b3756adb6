//! BSD file flags: which exist, and what they forbid.
//!
//! Flags of the owner (`UF_`) and of the system (`SF_`) forbid the same; who may change which is the
//! front end's business.

/// Not to be dumped.
pub const UF_NODUMP: u32 = 0x1;
/// Nothing may change but the flags.
pub const UF_IMMUTABLE: u32 = 0x2;
/// Only appending writes.
pub const UF_APPEND: u32 = 0x4;
/// A directory that hides what lies below it in a union mount.
pub const UF_OPAQUE: u32 = 0x8;
/// May not be removed or renamed.
pub const UF_NOUNLINK: u32 = 0x10;
/// Archived.
pub const SF_ARCHIVED: u32 = 0x1_0000;
/// As [`UF_IMMUTABLE`], set by the system.
pub const SF_IMMUTABLE: u32 = 0x2_0000;
/// As [`UF_APPEND`], set by the system.
pub const SF_APPEND: u32 = 0x4_0000;
/// As [`UF_NOUNLINK`], set by the system.
pub const SF_NOUNLINK: u32 = 0x10_0000;

/// No write, truncation, unlink, rename, link or change of attributes; in a directory no entry may
/// come or go.
pub const fn immutable(flags: u32) -> bool {
    flags & (UF_IMMUTABLE | SF_IMMUTABLE) != 0
}

/// A file: only writes that start at its end. A directory: entries come but do not go.
pub const fn append_only(flags: u32) -> bool {
    flags & (UF_APPEND | SF_APPEND) != 0
}

/// Whether the flags forbid every change of attributes but of the flags themselves.
pub const fn attributes_fixed(flags: u32) -> bool {
    immutable(flags) || append_only(flags)
}

/// Whether the flags forbid removing or renaming the inode.
pub const fn names_fixed(flags: u32) -> bool {
    attributes_fixed(flags) || flags & (UF_NOUNLINK | SF_NOUNLINK) != 0
}

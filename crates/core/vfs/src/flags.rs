//! BSD file flags: their values, and the changes that they forbid.
//!
//! Flags of the owner (`UF_`) and of the system (`SF_`) forbid the same changes. The front end
//! decides who may set which.

/// Do not dump the file.
pub const UF_NODUMP: u32 = 0x1;
/// Nothing but the flags may change.
pub const UF_IMMUTABLE: u32 = 0x2;
/// Writes may only append.
pub const UF_APPEND: u32 = 0x4;
/// A directory that hides what lies below it in a union mount.
pub const UF_OPAQUE: u32 = 0x8;
/// The file may not be removed or renamed.
pub const UF_NOUNLINK: u32 = 0x10;
/// The file was archived.
pub const SF_ARCHIVED: u32 = 0x1_0000;
/// As [`UF_IMMUTABLE`], set by the system.
pub const SF_IMMUTABLE: u32 = 0x2_0000;
/// As [`UF_APPEND`], set by the system.
pub const SF_APPEND: u32 = 0x4_0000;
/// As [`UF_NOUNLINK`], set by the system.
pub const SF_NOUNLINK: u32 = 0x10_0000;

/// Whether the flags forbid every write, truncation, unlink, rename, link and change of attributes,
/// and in a directory every change of entries.
pub const fn immutable(flags: u32) -> bool {
    flags & (UF_IMMUTABLE | SF_IMMUTABLE) != 0
}

/// Whether the flags allow, in a file, only writes that start at its end, and in a directory only
/// new entries.
pub const fn append_only(flags: u32) -> bool {
    flags & (UF_APPEND | SF_APPEND) != 0
}

/// Whether the flags forbid every change of attributes other than the flags themselves.
pub const fn attributes_fixed(flags: u32) -> bool {
    immutable(flags) || append_only(flags)
}

/// Whether the flags forbid removing or renaming the inode.
pub const fn names_fixed(flags: u32) -> bool {
    attributes_fixed(flags) || flags & (UF_NOUNLINK | SF_NOUNLINK) != 0
}

//! The errors of mkfs.

use ordo_block::BlockError;

/// The reason why a file system could not be made. Nothing was written, unless the reason is
/// [`Device`](Self::Device).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MkfsError {
    /// The device accepts no writes.
    #[error("the device is read-only; make it writable, or name another")]
    ReadOnly,
    /// The block size is not legal.
    #[error("block size {0} is not a power of two from 4096 to 65536")]
    BlockSize(u32),
    /// The fragment size is not legal.
    #[error("fragment size {0} is not a power of two from 512 to the block size")]
    FragmentSize(u32),
    /// A block would have more than 8 fragments.
    #[error("fragment size {frag} is below an eighth of the block size {block}: use {} or more", block / 8)]
    TooManyFragments {
        /// The block size.
        block: u32,
        /// The fragment size.
        frag: u32,
    },
    /// A fragment is smaller than the device's sector.
    #[error(
        "fragment size {frag} is below the device's sector of {sector} bytes: use {sector} or more"
    )]
    BelowSector {
        /// The fragment size.
        frag: u32,
        /// The device's sector.
        sector: u32,
    },
    /// The device is smaller than the size that was asked for.
    #[error("{size} bytes were asked for, but the device has {device}: use a smaller size")]
    LargerThanDevice {
        /// The size that was asked for.
        size: u64,
        /// The device's size.
        device: u64,
    },
    /// The device cannot hold even one cylinder group and a root directory.
    #[error("{size} bytes are too few: these block and fragment sizes need at least {needs}")]
    TooSmall {
        /// The available size.
        size: u64,
        /// The smallest size that suffices.
        needs: u64,
    },
    /// The summary of so many groups does not fit in the first group, or an address overflows.
    #[error("{size} bytes are too many for these sizes: use larger blocks or cylinder groups")]
    TooLarge {
        /// The size.
        size: u64,
    },
    /// The reserve is not a legal percentage.
    #[error("{0} percent cannot be kept free: use 0 to 99")]
    MinFree(u8),
    /// The label cannot be stored.
    #[error("label {0:?} is not at most 31 letters, digits, '-', '_' and '.'")]
    Label(String),
    /// Both a density and a number of inodes were given, or one of them is zero.
    #[error("give either bytes per inode or a number of inodes, and not zero")]
    Inodes,
    /// The file system cannot have so many inodes: their numbers overflow, or they do not fit in
    /// its size.
    #[error("{inodes} inodes do not fit in {size} bytes: ask for fewer")]
    TooManyInodes {
        /// The number of inodes that was asked for.
        inodes: u64,
        /// The size.
        size: u64,
    },
    /// This option must not be zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The device failed. It holds no file system now.
    #[error(transparent)]
    Device(#[from] BlockError),
}

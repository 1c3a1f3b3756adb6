//! Why a file system could not be made.

use ordo_block::BlockError;

/// Why a file system could not be made. Unless it is [`Device`](Self::Device), nothing was written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MkfsError {
    /// The device takes no writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// Not a legal block size.
    #[error("block size {0} is not a power of two from 4096 to 65536")]
    BlockSize(u32),
    /// Not a legal fragment size.
    #[error("fragment size {0} is not a power of two from 512 to the block size")]
    FragmentSize(u32),
    /// More than 8 fragments in a block.
    #[error("fragment size {frag} is below an eighth of the block size {block}: use {} or more", block / 8)]
    TooManyFragments {
        /// The block size.
        block: u32,
        /// The fragment size.
        frag: u32,
    },
    /// A fragment is smaller than what the device reads or writes at once.
    #[error("fragment size {frag} is below the device's sector of {sector} bytes")]
    BelowSector {
        /// The fragment size.
        frag: u32,
        /// The device's sector.
        sector: u32,
    },
    /// The size asked for is not there.
    #[error("{size} bytes were asked for, but the device has {device}")]
    LargerThanDevice {
        /// The size asked for.
        size: u64,
        /// The device's size.
        device: u64,
    },
    /// Not even one cylinder group and a root directory fit.
    #[error("{size} bytes are too few: these block and fragment sizes need {needs} at least")]
    TooSmall {
        /// The size there is.
        size: u64,
        /// The least there must be.
        needs: u64,
    },
    /// So many groups that their summary does not fit in the first one, or an address overflows.
    #[error("{size} bytes are too many for these sizes: use larger blocks or cylinder groups")]
    TooLarge {
        /// The size.
        size: u64,
    },
    /// Not a percentage that can be kept free.
    #[error("{0} percent cannot be kept free: use 0 to 99")]
    MinFree(u8),
    /// A label that cannot be stored.
    #[error("label {0:?} is not at most 31 letters, digits, '-', '_' and '.'")]
    Label(String),
    /// Both a density and a number of inodes, or one of them zero.
    #[error("give either bytes per inode or a number of inodes, and not zero")]
    Inodes,
    /// More inodes than can be numbered, or than there is room for.
    #[error("{inodes} inodes do not fit in {size} bytes")]
    TooManyInodes {
        /// The inodes asked for.
        inodes: u64,
        /// The size.
        size: u64,
    },
    /// A count that must not be zero is.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The device failed; what is on it is no file system.
    #[error(transparent)]
    Device(#[from] BlockError),
}

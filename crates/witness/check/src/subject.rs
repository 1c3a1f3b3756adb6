//! The inode that a finding is about.

use crate::Finding;

impl Finding {
    /// The inode of the finding, if it has one.
    pub fn ino(&self) -> Option<u32> {
        use Finding::*;
        match self {
            InodeHash { ino }
            | PartlyFreed { ino }
            | BadMode { ino, .. }
            | BadSize { ino, .. }
            | DeviceNumber { ino }
            | DirectorySize { ino, .. }
            | EndsInHole { ino, .. }
            | PointerBeyondEnd { ino, .. }
            | BadBlock { ino, .. }
            | Misaligned { ino, .. }
            | DuplicateBlock { ino, .. }
            | HoleInDirectory { ino, .. }
            | BlockCount { ino, .. }
            | SpecialWithBlocks { ino, .. }
            | AttributesSize { ino, .. }
            | AttributesMissing { ino, .. }
            | AttributesDamaged { ino, .. }
            | DotMissing { ino }
            | DotWrong { ino, .. }
            | DotDotMissing { ino }
            | DotDotWrong { ino, .. }
            | DotDotNoDirectory { ino, .. }
            | ExtraDot { ino, .. }
            | EntryDamaged { ino, .. }
            | EntryOutOfRange { ino, .. }
            | EntryUnallocated { ino, .. }
            | EntryType { ino, .. }
            | DuplicateName { ino, .. }
            | DirectoryLinkedTwice { ino, .. }
            | DirectoryLoop { ino }
            | UnreferencedDirectory { ino, .. }
            | UnreferencedInode { ino, .. }
            | UnlinkedInode { ino }
            | LinkCountHigh { ino, .. }
            | LinkCountLow { ino, .. }
            | TooManyLinks { ino, .. }
            | NoPlace { ino }
            | NoSpace { ino } => Some(*ino),
            _ => None,
        }
    }
}

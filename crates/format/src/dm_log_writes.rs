//! The log of the kernel's dm-log-writes target: `docs/formats/dm-log-writes.md`.

crate::on_disk! {
    /// The log's first sector.
    pub struct LogWritesSuper: 28 {
        0 => /** `0x6a736677736872` */ magic: u64,
        8 => /** 1 */ version: u64,
        16 => /** entries that follow, each from a sector of its own on */ entries: u64,
        24 => /** bytes in a sector: the unit of the log and of every address in it */ sector_size: u32,
    }
}

crate::on_disk! {
    /// What begins each entry. The rest of its sector is zero, or a mark's text.
    pub struct LogWritesEntry: 32 {
        0 => /** the first sector on the device that was watched */ sector: u64,
        8 => /** sectors written, and stored after this one; of a discard: sectors discarded, none stored */ sectors: u64,
        16 => /** 1 flush, 2 FUA, 4 discard, 8 mark, 16 metadata */ flags: u64,
        24 => /** bytes of a mark's text, which follows at once; else 0 */ data_len: u64,
    }
}

impl LogWritesSuper {
    /// What [`LogWritesSuper::magic`] is.
    pub const MAGIC: u64 = 0x6a_7366_7773_6872;
    /// What [`LogWritesSuper::version`] is.
    pub const VERSION: u64 = 1;
}

impl LogWritesEntry {
    /// What was cached before had to be durable first. Without sectors: nothing but a flush.
    pub const FLUSH: u64 = 1;
    /// The write had to be durable itself.
    pub const FUA: u64 = 2;
    /// A discard.
    pub const DISCARD: u64 = 4;
    /// A text that somebody sent to mark a moment.
    pub const MARK: u64 = 8;
    /// The writer called it metadata.
    pub const METADATA: u64 = 16;
    /// Every flag that has a meaning.
    pub const KNOWN: u64 = 31;
}

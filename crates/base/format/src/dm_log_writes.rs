//! The log of the kernel's dm-log-writes target: `docs/formats/dm-log-writes.md`.

crate::on_disk! {
    /// The superblock, in the log's first sector (`struct log_write_super`).
    pub struct LogWritesSuper: 28 {
        0 magic => /** `0x6a736677736872` */ magic: u64,
        8 version => /** version: 1 */ version: u64,
        16 nr_entries => /** number of entries that follow, each of which begins a new sector */ entries: u64,
        24 sectorsize => /** size of a sector in bytes: the unit of the log and of every address in it */ sector_size: u32,
    }
}

crate::on_disk! {
    /// The head of each entry (`struct log_write_entry`). The rest of its sector is zeros, or a
    /// mark's text.
    pub struct LogWritesEntry: 32 {
        0 sector => /** first sector on the recorded device */ sector: u64,
        8 nr_sectors => /** number of sectors that were written, whose contents follow this one; for a discard, the number of sectors, without contents */ sectors: u64,
        16 flags => /** flags: 1 flush, 2 FUA, 4 discard, 8 mark, 16 metadata */ flags: u64,
        24 data_len => /** length of a mark's text in bytes, which follows this structure; otherwise 0 */ data_len: u64,
    }
}

impl LogWritesSuper {
    /// The value of [`LogWritesSuper::magic`] (`WRITE_LOG_MAGIC`).
    pub const MAGIC: u64 = 0x6a_7366_7773_6872;
    /// The value of [`LogWritesSuper::version`].
    pub const VERSION: u64 = 1;
}

impl LogWritesEntry {
    /// A flush: writes that completed before had to be durable first. An entry without sectors is a
    /// flush alone (`LOG_FLUSH_FLAG`).
    pub const FLUSH: u64 = 1;
    /// Force unit access: the write itself had to be durable (`LOG_FUA_FLAG`).
    pub const FUA: u64 = 2;
    /// A discard.
    pub const DISCARD: u64 = 4;
    /// A mark: a text that a program sent to name a moment (`LOG_MARK_FLAG`).
    pub const MARK: u64 = 8;
    /// The write carried metadata (`LOG_METADATA_FLAG`).
    pub const METADATA: u64 = 16;
    /// All flags that have a meaning.
    pub const KNOWN: u64 = 31;
}

//! Events of the kernel's blktrace: `docs/formats/blktrace.md`.

crate::on_disk! {
    /// An event (`struct blk_io_trace`); `pdu_len` bytes of its own follow.
    pub struct BlkEvent: 48 {
        0 magic => /** `0x656174` in the upper three bytes, the version (7) in the lowest. Its byte order is that of the trace */ magic: u32,
        4 sequence => /** number of this event among those of its processor */ sequence: u32,
        8 time => /** nanoseconds since the trace began */ time: u64,
        16 sector => /** first sector of the request, in units of 512 bytes */ sector: u64,
        24 bytes => /** length of the request in bytes */ bytes: u32,
        28 action => /** lower half: the event; upper half: the kind of request */ action: u32,
        32 pid => /** number of the process that was running */ pid: u32,
        36 device => /** device number: minor in the lower 20 bits, major above */ device: u32,
        40 cpu => /** number of the processor */ cpu: u32,
        44 error => /** for a completion, the negative error number; otherwise 0 */ error: u16,
        46 pdu_len => /** number of bytes that follow this structure */ pdu_len: u16,
    }
}

impl BlkEvent {
    /// The magic number: [`BlkEvent::magic`] without the version (`BLK_IO_TRACE_MAGIC`).
    pub const MAGIC: u32 = 0x6561_7400;
    /// The version that is read (`BLK_IO_TRACE_VERSION`).
    pub const VERSION: u8 = 7;

    /// Queued: a bio was submitted (`__BLK_TA_QUEUE`).
    pub const QUEUE: u16 = 1;
    /// Requeued: put back to be sent again (`__BLK_TA_REQUEUE`).
    pub const REQUEUE: u16 = 6;
    /// Issued to the driver (`__BLK_TA_ISSUE`).
    pub const ISSUE: u16 = 7;
    /// Completed (`__BLK_TA_COMPLETE`).
    pub const COMPLETE: u16 = 8;
    /// A message, in an event of the category [`NOTICE`](Self::NOTICE) (`__BLK_TN_MESSAGE`).
    pub const MESSAGE: u16 = 2;
    /// The name of a process, in a notice (`__BLK_TN_PROCESS`).
    pub const PROCESS: u16 = 0;
    /// A flag: the payload begins with the number of a control group (`__BLK_TA_CGROUP`).
    pub const CGROUP: u16 = 0x100;

    /// A read.
    pub const READ: u16 = 1;
    /// A write.
    pub const WRITE: u16 = 2;
    /// A flush: writes that completed before must be durable first.
    pub const FLUSH: u16 = 4;
    /// A synchronous request, for which a task waits.
    pub const SYNC: u16 = 8;
    /// A command of a driver's own.
    pub const PASSTHROUGH: u16 = 0x200;
    /// A notice, which is no request.
    pub const NOTICE: u16 = 0x400;
    /// Metadata.
    pub const META: u16 = 0x1000;
    /// A discard.
    pub const DISCARD: u16 = 0x2000;
    /// Force unit access (FUA): durable when completed.
    pub const FUA: u16 = 0x8000;

    /// The action: the event of the request that is recorded.
    pub fn act(&self) -> u16 {
        self.action as u16 & !Self::CGROUP
    }

    /// The categories of the request.
    pub fn category(&self) -> u16 {
        (self.action >> 16) as u16
    }
}

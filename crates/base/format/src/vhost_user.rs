//! The messages between a guest kernel and the server of its devices and of its clock: vhost-user,
//! the disk of virtio, and the calendar of user-mode Linux.
//!
//! | part | names from |
//! |---|---|
//! | vhost-user | Linux's `arch/um/drivers/vhost_user.h`, QEMU's `docs/interop/vhost-user.rst` |
//! | the disk | `include/uapi/linux/virtio_blk.h` |
//! | the calendar | `include/uapi/linux/um_timetravel.h` |
//!
//! The rings themselves are those of `include/uapi/linux/virtio_ring.h`, which the crate
//! `virtio-queue` reads. Numbers of vhost-user and of the calendar have the machine's byte order;
//! those of the disk are little-endian.

use crate::on_disk;

/// The kinds of messages of vhost-user (`enum vhost_user_request`), as far as Linux as a guest
/// sends it.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_SLAVE_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const VRING_KICK: u32 = 35;
}

/// `VHOST_USER_SLAVE_VRING_CALL`: the server's message that a ring has news.
pub const SLAVE_VRING_CALL: u32 = 4;
/// `VHOST_USER_VERSION`, in a message's flags.
pub const VERSION: u32 = 1;
/// `VHOST_USER_FLAG_REPLY`, in a message's flags.
pub const FLAG_REPLY: u32 = 1 << 2;
/// `VHOST_USER_FLAG_NEED_REPLY`, in a message's flags.
pub const FLAG_NEED_REPLY: u32 = 1 << 3;
/// `VHOST_USER_F_PROTOCOL_FEATURES`, a feature.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_RING_F_INDIRECT_DESC`, a feature.
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_VERSION_1`, a feature.
pub const F_VERSION_1: u64 = 1 << 32;
/// `VIRTIO_BLK_F_SIZE_MAX`, a feature of a disk.
pub const BLK_F_SIZE_MAX: u64 = 1 << 1;
/// `VIRTIO_BLK_F_SEG_MAX`, a feature of a disk.
pub const BLK_F_SEG_MAX: u64 = 1 << 2;
/// `VIRTIO_BLK_F_RO`, a feature of a disk.
pub const BLK_F_RO: u64 = 1 << 5;
/// `VIRTIO_BLK_F_BLK_SIZE`, a feature of a disk.
pub const BLK_F_BLK_SIZE: u64 = 1 << 6;
/// `VIRTIO_BLK_F_FLUSH`, a feature of a disk.
pub const BLK_F_FLUSH: u64 = 1 << 9;
/// `VIRTIO_BLK_F_DISCARD`, a feature of a disk.
pub const BLK_F_DISCARD: u64 = 1 << 13;
/// Bits of protocol features: acknowledged messages, a channel for the server's messages, the
/// device's configuration, and notifications as messages (`VHOST_USER_PROTOCOL_F_REPLY_ACK`,
/// `_SLAVE_REQ`, `_CONFIG`, `_INBAND_NOTIFICATIONS`).
pub const PROTOCOL_FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14;

on_disk! {
    /// The head of a message.
    pub struct VhostHeader: 12 {
        0 request => /** the kind of message */ request: u32,
        4 flags => /** version, and whether a reply is wanted */ flags: u32,
        8 size => /** bytes that follow */ size: u32,
    }
}

on_disk! {
    /// The number or the state of a ring.
    pub struct VringState: 8 {
        0 index => /** the ring */ index: u32,
        4 num => /** entries, or the next one */ num: u32,
    }
}

on_disk! {
    /// The addresses of a ring, in the kernel's own memory.
    pub struct VringAddr: 40 {
        0 index => /** the ring */ index: u32,
        4 flags => /** unused */ flags: u32,
        8 desc => /** the descriptors */ desc: u64,
        16 used => /** the entries that the device has used */ used: u64,
        24 avail => /** the entries for the device */ avail: u64,
        32 log => /** unused */ log: u64,
    }
}

on_disk! {
    /// A range of the guest's memory. Its file comes with the message.
    pub struct MemRegion: 32 {
        0 guest_addr => /** the guest's address */ guest_addr: u64,
        8 size => /** bytes */ size: u64,
        16 user_addr => /** the address in the kernel's own memory */ user_addr: u64,
        24 mmap_offset => /** the place in the file */ mmap_offset: u64,
    }
}

on_disk! {
    /// The head of a message about the device's configuration.
    pub struct VhostConfig: 12 {
        0 offset => /** the first byte */ offset: u32,
        4 size => /** bytes, which follow */ size: u32,
        8 flags => /** unused */ flags: u32,
    }
}

on_disk! {
    /// The configuration of a disk, as far as the features above need it.
    pub struct VirtioBlkConfig: 60 {
        0 capacity => /** sectors of 512 bytes */ capacity: u64,
        8 size_max => /** the largest piece of a request */ size_max: u32,
        12 seg_max => /** the most pieces of a request */ seg_max: u32,
        16 geometry => /** cylinders, heads, sectors: unused */ geometry: u32,
        20 blk_size => /** the smallest request, in bytes */ blk_size: u32,
        24 topology => /** alignment of requests: unused */ topology: [u8; 8],
        32 wce => /** whether the cache is written back */ wce: u8,
        33 unused => /** unused */ unused: u8,
        34 num_queues => /** rings */ num_queues: u16,
        36 max_discard_sectors => /** the largest range of a discard */ max_discard_sectors: u32,
        40 max_discard_seg => /** the most ranges of a discard */ max_discard_seg: u32,
        44 discard_sector_alignment => /** the unit of ranges */ discard_sector_alignment: u32,
        48 max_write_zeroes_sectors => /** unused */ max_write_zeroes_sectors: u32,
        52 max_write_zeroes_seg => /** unused */ max_write_zeroes_seg: u32,
        56 write_zeroes_may_unmap => /** unused */ write_zeroes_may_unmap: u8,
        57 unused1 => /** unused */ unused1: [u8; 3],
    }
}

/// The kinds of requests to a disk, and their results (`VIRTIO_BLK_T_`).
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod blk {
    pub const T_IN: u32 = 0;
    pub const T_OUT: u32 = 1;
    pub const T_FLUSH: u32 = 4;
    pub const T_GET_ID: u32 = 8;
    pub const T_DISCARD: u32 = 11;
    pub const S_OK: u8 = 0;
    pub const S_IOERR: u8 = 1;
    pub const S_UNSUPP: u8 = 2;
}

on_disk! {
    /// The head of a request to a disk. Data and a byte for the status follow.
    pub struct VirtioBlkOuthdr: 16 {
        0 type => /** the kind of request (`VIRTIO_BLK_T_`) */ kind: u32,
        4 ioprio => /** priority */ ioprio: u32,
        8 sector => /** the first sector of 512 bytes */ sector: u64,
    }
}

on_disk! {
    /// A range of a discard.
    pub struct VirtioBlkDiscard: 16 {
        0 sector => /** the first sector of 512 bytes */ sector: u64,
        8 num_sectors => /** sectors */ num_sectors: u32,
        12 flags => /** unused */ flags: u32,
    }
}

/// The kinds of messages of the calendar (`enum um_timetravel_ops`).
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod timetravel {
    pub const ACK: u32 = 0;
    pub const START: u32 = 1;
    pub const REQUEST: u32 = 2;
    pub const WAIT: u32 = 3;
    pub const GET: u32 = 4;
    pub const UPDATE: u32 = 5;
    pub const RUN: u32 = 6;
    pub const FREE_UNTIL: u32 = 7;
    pub const GET_TOD: u32 = 8;
    pub const BROADCAST: u32 = 9;
}

on_disk! {
    /// A message between a kernel and its calendar.
    pub struct TimetravelMsg: 16 {
        0 op => /** the kind of message */ op: u32,
        4 seq => /** its number, for the reply */ seq: u32,
        8 time => /** nanoseconds */ time: u64,
    }
}

/// `UM_TIMETRAVEL_SCHEDSHM_VERSION`.
pub const SCHEDSHM_VERSION: u32 = 2;
/// `UM_TIMETRAVEL_SCHEDSHM_FLAGS_REQ_RUN`: the client has asked to run.
pub const SCHEDSHM_FLAGS_REQ_RUN: u32 = 1;
/// The bytes before the first client in the shared memory (`struct um_timetravel_schedshm`).
pub const SCHEDSHM_HEADER: usize = 4096;
/// The bytes of a client there.
pub const SCHEDSHM_CLIENT: usize = 128;

on_disk! {
    /// The head of the memory that a kernel and its calendar share.
    pub struct Schedshm: 28 {
        0 version => /** [`SCHEDSHM_VERSION`] */ version: u32,
        4 len => /** bytes of all of it */ len: u32,
        8 free_until => /** the time before which the client needs not ask */ free_until: u64,
        16 current_time => /** nanoseconds */ current_time: u64,
        24 running_id => /** the client that runs */ running_id: u16,
        26 max_clients => /** clients */ max_clients: u16,
    }
}

on_disk! {
    /// A client of the calendar, in the memory that they share.
    pub struct SchedshmClient: 24 {
        0 capa => /** what it can do */ capa: u32,
        4 flags => /** whether it has asked to run */ flags: u32,
        8 req_time => /** the time at which it asks to run */ req_time: u64,
        16 name => /** its name */ name: u64,
    }
}

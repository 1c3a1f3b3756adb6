//! The structures of FUSE, which kernel and server exchange: version 7.45, with the names of
//! Linux's `include/uapi/linux/fuse.h`.
//!
//! Numbers have the machine's byte order ([`Endian::NATIVE`](crate::Endian::NATIVE)).

use crate::on_disk;

on_disk! {
    /// The header of a request.
    pub struct InHeader: 40 {
        0 len => /** bytes of the whole request */ len: u32,
        4 opcode => /** the kind of request */ opcode: u32,
        8 unique => /** the request's number, for the reply */ unique: u64,
        16 nodeid => /** the node */ nodeid: u64,
        24 uid => /** the caller's user */ uid: u32,
        28 gid => /** the caller's group */ gid: u32,
        32 pid => /** the caller's thread */ pid: u32,
        36 total_extlen => /** bytes of extensions, in units of 8 */ total_extlen: u16,
        38 padding => /** unused */ padding: u16,
    }
}

on_disk! {
    /// The header of a reply or a notification.
    pub struct OutHeader: 16 {
        0 len => /** bytes of the whole reply */ len: u32,
        4 error => /** 0, a negative errno, or the code of a notification */ error: i32,
        8 unique => /** the request's number; 0 of a notification */ unique: u64,
    }
}

on_disk! {
    /// FORGET.
    pub struct ForgetIn: 8 {
        0 nlookup => /** look-ups that the kernel gives back */ nlookup: u64,
    }
}

on_disk! {
    /// An entry of BATCH_FORGET.
    pub struct ForgetOne: 16 {
        0 nodeid => /** the node */ nodeid: u64,
        8 nlookup => /** look-ups that the kernel gives back */ nlookup: u64,
    }
}

on_disk! {
    /// BATCH_FORGET, before its entries.
    pub struct BatchForgetIn: 8 {
        0 count => /** the number of entries */ count: u32,
        4 dummy => /** unused */ dummy: u32,
    }
}

on_disk! {
    /// SETATTR.
    pub struct SetattrIn: 88 {
        0 valid => /** the fields that count (`FATTR_`) */ valid: u32,
        4 padding => /** unused */ padding: u32,
        8 fh => /** the open file */ fh: u64,
        16 size => /** size in bytes */ size: u64,
        24 lock_owner => /** the owner of locks */ lock_owner: u64,
        32 atime => /** last access, in seconds */ atime: u64,
        40 mtime => /** last change of contents, in seconds */ mtime: u64,
        48 ctime => /** last change of the inode, in seconds */ ctime: u64,
        56 atimensec => /** nanoseconds of it */ atimensec: u32,
        60 mtimensec => /** nanoseconds of it */ mtimensec: u32,
        64 ctimensec => /** nanoseconds of it */ ctimensec: u32,
        68 mode => /** type and permissions */ mode: u32,
        72 unused4 => /** unused */ unused4: u32,
        76 uid => /** the owner */ uid: u32,
        80 gid => /** the group */ gid: u32,
        84 unused5 => /** unused */ unused5: u32,
    }
}

on_disk! {
    /// MKNOD, before the name.
    pub struct MknodIn: 16 {
        0 mode => /** type and permissions */ mode: u32,
        4 rdev => /** the device number */ rdev: u32,
        8 umask => /** the caller's umask */ umask: u32,
        12 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// MKDIR, before the name.
    pub struct MkdirIn: 8 {
        0 mode => /** permissions */ mode: u32,
        4 umask => /** the caller's umask */ umask: u32,
    }
}

on_disk! {
    /// RENAME, before both names.
    pub struct RenameIn: 8 {
        0 newdir => /** the node of the new directory */ newdir: u64,
    }
}

on_disk! {
    /// RENAME2, before both names.
    pub struct Rename2In: 16 {
        0 newdir => /** the node of the new directory */ newdir: u64,
        8 flags => /** how (`RENAME_`) */ flags: u32,
        12 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// LINK, before the name.
    pub struct LinkIn: 8 {
        0 oldnodeid => /** the node of the file */ oldnodeid: u64,
    }
}

on_disk! {
    /// CREATE and TMPFILE, before the name.
    pub struct CreateIn: 16 {
        0 flags => /** how it is opened (`O_`) */ flags: u32,
        4 mode => /** permissions */ mode: u32,
        8 umask => /** the caller's umask */ umask: u32,
        12 open_flags => /** flags of the protocol */ open_flags: u32,
    }
}

on_disk! {
    /// The reply to an opening.
    pub struct OpenOut: 16 {
        0 fh => /** the open file, as later requests name it */ fh: u64,
        8 open_flags => /** flags (`FOPEN_`) */ open_flags: u32,
        12 backing_id => /** a file of the host that stands in */ backing_id: i32,
    }
}

on_disk! {
    /// READ, READDIR and READDIRPLUS.
    pub struct ReadIn: 40 {
        0 fh => /** the open file */ fh: u64,
        8 offset => /** byte, or the place in a directory */ offset: u64,
        16 size => /** the most bytes of the reply */ size: u32,
        20 read_flags => /** flags (`FUSE_READ_`) */ read_flags: u32,
        24 lock_owner => /** the owner of locks */ lock_owner: u64,
        32 flags => /** how the file was opened */ flags: u32,
        36 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// WRITE, before the data.
    pub struct WriteIn: 40 {
        0 fh => /** the open file */ fh: u64,
        8 offset => /** the first byte */ offset: u64,
        16 size => /** the number of bytes */ size: u32,
        20 write_flags => /** flags (`FUSE_WRITE_`) */ write_flags: u32,
        24 lock_owner => /** the owner of locks */ lock_owner: u64,
        32 flags => /** how the file was opened */ flags: u32,
        36 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// The reply to a write, a copy, and to the question how long an extended attribute is.
    pub struct WriteOut: 8 {
        0 size => /** the number of bytes */ size: u32,
        4 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// SETXATTR with `FUSE_SETXATTR_EXT`, before name and value.
    pub struct SetxattrIn: 16 {
        0 size => /** bytes of the value */ size: u32,
        4 flags => /** how (`XATTR_`) */ flags: u32,
        8 setxattr_flags => /** flags of the protocol */ setxattr_flags: u32,
        12 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// GETXATTR, before the name, and LISTXATTR.
    pub struct GetxattrIn: 8 {
        0 size => /** the most bytes of the reply; 0 asks how many there are */ size: u32,
        4 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// The first part of INIT, which every kernel sends.
    pub struct InitIn: 16 {
        0 major => /** the kernel's version, 7 */ major: u32,
        4 minor => /** and its minor number */ minor: u32,
        8 max_readahead => /** the most read-ahead, in bytes */ max_readahead: u32,
        12 flags => /** features that the kernel offers */ flags: u32,
    }
}

on_disk! {
    /// The second part of INIT.
    pub struct InitInExt: 48 {
        0 flags2 => /** features above the first 32 */ flags2: u32,
        4 unused => /** unused */ unused: [u32; 11],
    }
}

on_disk! {
    /// The reply to INIT.
    pub struct InitOut: 64 {
        0 major => /** the server's version, 7 */ major: u32,
        4 minor => /** and its minor number */ minor: u32,
        8 max_readahead => /** the most read-ahead, in bytes */ max_readahead: u32,
        12 flags => /** features on which both agree */ flags: u32,
        16 max_background => /** requests in the background */ max_background: u16,
        18 congestion_threshold => /** the number of them at which the kernel begins to hold back */ congestion_threshold: u16,
        20 max_write => /** the most bytes of a write */ max_write: u32,
        24 time_gran => /** the granularity of times, in nanoseconds */ time_gran: u32,
        28 max_pages => /** the most pages of a request */ max_pages: u16,
        30 map_alignment => /** the alignment of mappings */ map_alignment: u16,
        32 flags2 => /** features above the first 32 */ flags2: u32,
        36 max_stack_depth => /** file systems that may be stacked on this one */ max_stack_depth: u32,
        40 request_timeout => /** seconds after which the kernel gives the server up */ request_timeout: u16,
        42 unused => /** unused */ unused: [u16; 11],
    }
}

on_disk! {
    /// FSYNC and FSYNCDIR.
    pub struct FsyncIn: 16 {
        0 fh => /** the open file */ fh: u64,
        8 fsync_flags => /** what is to be durable (`FUSE_FSYNC_`) */ fsync_flags: u32,
        12 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// FALLOCATE.
    pub struct FallocateIn: 32 {
        0 fh => /** the open file */ fh: u64,
        8 offset => /** the first byte */ offset: u64,
        16 length => /** the number of bytes */ length: u64,
        24 mode => /** how (`FALLOC_FL_`) */ mode: u32,
        28 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// LSEEK.
    pub struct LseekIn: 24 {
        0 fh => /** the open file */ fh: u64,
        8 offset => /** from this byte on */ offset: u64,
        16 whence => /** for data or for a hole (`SEEK_`) */ whence: u32,
        20 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// BMAP.
    pub struct BmapIn: 16 {
        0 block => /** the block of the file */ block: u64,
        8 blocksize => /** bytes of a block */ blocksize: u32,
        12 padding => /** unused */ padding: u32,
    }
}

on_disk! {
    /// IOCTL, before the argument.
    pub struct IoctlIn: 32 {
        0 fh => /** the open file */ fh: u64,
        8 flags => /** flags (`FUSE_IOCTL_`) */ flags: u32,
        12 cmd => /** the command */ cmd: u32,
        16 arg => /** the argument */ arg: u64,
        24 in_size => /** bytes that the caller gives */ in_size: u32,
        28 out_size => /** bytes for which the caller has room */ out_size: u32,
    }
}

on_disk! {
    /// The reply to IOCTL, before the answer.
    pub struct IoctlOut: 16 {
        0 result => /** the result of the call */ result: i32,
        4 flags => /** flags (`FUSE_IOCTL_`) */ flags: u32,
        8 in_iovs => /** buffers of an unrestricted call */ in_iovs: u32,
        12 out_iovs => /** and those for its answer */ out_iovs: u32,
    }
}

on_disk! {
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    pub struct CopyFileRangeIn: 56 {
        0 fh_in => /** the open file that is read */ fh_in: u64,
        8 off_in => /** its first byte */ off_in: u64,
        16 nodeid_out => /** the node that is written */ nodeid_out: u64,
        24 fh_out => /** its open file */ fh_out: u64,
        32 off_out => /** its first byte */ off_out: u64,
        40 len => /** the number of bytes */ len: u64,
        48 flags => /** unused */ flags: u64,
    }
}

on_disk! {
    /// An inode's attributes.
    pub struct FuseAttr: 88 {
        0 ino => /** inode number */ ino: u64,
        8 size => /** size in bytes */ size: u64,
        16 blocks => /** units of 512 bytes on disk */ blocks: u64,
        24 atime => /** last access, in seconds */ atime: u64,
        32 mtime => /** last change of contents, in seconds */ mtime: u64,
        40 ctime => /** last change of the inode, in seconds */ ctime: u64,
        48 atimensec => /** nanoseconds of it */ atimensec: u32,
        52 mtimensec => /** nanoseconds of it */ mtimensec: u32,
        56 ctimensec => /** nanoseconds of it */ ctimensec: u32,
        60 mode => /** type and permissions */ mode: u32,
        64 nlink => /** links */ nlink: u32,
        68 uid => /** the owner */ uid: u32,
        72 gid => /** the group */ gid: u32,
        76 rdev => /** the device number */ rdev: u32,
        80 blksize => /** the best size of a request, in bytes */ blksize: u32,
        84 flags => /** flags (`FUSE_ATTR_`) */ flags: u32,
    }
}

on_disk! {
    /// The reply to GETATTR and SETATTR.
    pub struct AttrOut: 104 {
        0 attr_valid => /** seconds for which the kernel may keep it */ attr_valid: u64,
        8 attr_valid_nsec => /** and nanoseconds */ attr_valid_nsec: u32,
        12 dummy => /** unused */ dummy: u32,
        16 attr => /** the attributes */ attr: FuseAttr,
    }
}

on_disk! {
    /// The reply to LOOKUP, and to whatever makes a name. Node 0 is a name that does not exist.
    pub struct EntryOut: 128 {
        0 nodeid => /** the node */ nodeid: u64,
        8 generation => /** the generation of the inode's number */ generation: u64,
        16 entry_valid => /** seconds for which the kernel may keep the name */ entry_valid: u64,
        24 attr_valid => /** and the attributes */ attr_valid: u64,
        32 entry_valid_nsec => /** nanoseconds of the former */ entry_valid_nsec: u32,
        36 attr_valid_nsec => /** nanoseconds of the latter */ attr_valid_nsec: u32,
        40 attr => /** the attributes */ attr: FuseAttr,
    }
}

on_disk! {
    /// An entry of a directory, before its name.
    pub struct FuseDirent: 24 {
        0 ino => /** inode number */ ino: u64,
        8 off => /** the place at which reading goes on */ off: u64,
        16 namelen => /** bytes of the name */ namelen: u32,
        20 type => /** the type (`DT_`); 0: not known */ kind: u32,
    }
}

on_disk! {
    /// The reply to STATFS.
    pub struct Kstatfs: 80 {
        0 blocks => /** units of `frsize` */ blocks: u64,
        8 bfree => /** free ones */ bfree: u64,
        16 bavail => /** those that are not reserved */ bavail: u64,
        24 files => /** inodes */ files: u64,
        32 ffree => /** free ones */ ffree: u64,
        40 bsize => /** the best size of a request, in bytes */ bsize: u32,
        44 namelen => /** the longest name, in bytes */ namelen: u32,
        48 frsize => /** the unit, in bytes */ frsize: u32,
        52 padding => /** unused */ padding: u32,
        56 spare => /** unused */ spare: [u32; 6],
    }
}

on_disk! {
    /// A time of [`FuseStatx`].
    pub struct SxTime: 16 {
        0 tv_sec => /** seconds */ tv_sec: i64,
        8 tv_nsec => /** nanoseconds */ tv_nsec: u32,
        12 reserved => /** unused */ reserved: i32,
    }
}

on_disk! {
    /// An inode's attributes in the form of statx(2).
    pub struct FuseStatx: 256 {
        0 mask => /** the fields that count (`STATX_`) */ mask: u32,
        4 blksize => /** the best size of a request, in bytes */ blksize: u32,
        8 attributes => /** flags (`STATX_ATTR_`) */ attributes: u64,
        16 nlink => /** links */ nlink: u32,
        20 uid => /** the owner */ uid: u32,
        24 gid => /** the group */ gid: u32,
        28 mode => /** type and permissions */ mode: u16,
        30 spare0 => /** unused */ spare0: u16,
        32 ino => /** inode number */ ino: u64,
        40 size => /** size in bytes */ size: u64,
        48 blocks => /** units of 512 bytes on disk */ blocks: u64,
        56 attributes_mask => /** the flags that the file system has */ attributes_mask: u64,
        64 atime => /** last access */ atime: SxTime,
        80 btime => /** birth */ btime: SxTime,
        96 ctime => /** last change of the inode */ ctime: SxTime,
        112 mtime => /** last change of contents */ mtime: SxTime,
        128 rdev_major => /** the device number of a device */ rdev_major: u32,
        132 rdev_minor => /** and its minor number */ rdev_minor: u32,
        136 dev_major => /** the device number of the file system */ dev_major: u32,
        140 dev_minor => /** and its minor number */ dev_minor: u32,
        144 spare2 => /** unused */ spare2: [u64; 14],
    }
}

on_disk! {
    /// The reply to STATX.
    pub struct StatxOut: 288 {
        0 attr_valid => /** seconds for which the kernel may keep it */ attr_valid: u64,
        8 attr_valid_nsec => /** and nanoseconds */ attr_valid_nsec: u32,
        12 flags => /** unused */ flags: u32,
        16 spare => /** unused */ spare: [u64; 2],
        32 stat => /** the attributes */ stat: FuseStatx,
    }
}

on_disk! {
    /// The notification that cached data of an inode are no longer valid.
    pub struct NotifyInvalInodeOut: 24 {
        0 ino => /** the node */ ino: u64,
        8 off => /** the first byte; a negative one leaves the contents cached */ off: i64,
        16 len => /** the number of bytes; 0: to the end */ len: i64,
    }
}

on_disk! {
    /// The argument of `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`, which come by IOCTL.
    pub struct Fsxattr: 28 {
        0 fsx_xflags => /** flags (`FS_XFLAG_`) */ fsx_xflags: u32,
        4 fsx_extsize => /** a hint: bytes of an extent */ fsx_extsize: u32,
        8 fsx_nextents => /** the number of extents */ fsx_nextents: u32,
        12 fsx_projid => /** the project */ fsx_projid: u32,
        16 fsx_cowextsize => /** a hint for copies on write */ fsx_cowextsize: u32,
        20 fsx_pad => /** unused */ fsx_pad: [u8; 8],
    }
}

on_disk! {
    /// The last part of a request or reply over io_uring (`struct fuse_uring_ent_in_out`).
    pub struct UringEntInOut: 32 {
        0 flags => /** flags */ flags: u64,
        8 commit_id => /** the number by which the reply is given */ commit_id: u64,
        16 payload_sz => /** bytes of names or data */ payload_sz: u32,
        20 padding => /** unused */ padding: u32,
        24 reserved => /** unused */ reserved: u64,
    }
}

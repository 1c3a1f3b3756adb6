//! Requests and replies: version 7.45 of the protocol, whose structures are [`ordo_format::fuse`].
//!
//! A request is a header of 40 bytes, a structure of its own, and names or data. A reply is a
//! header of 16 bytes and the result. All numbers have the machine's byte order.

use std::cell::RefCell;

use ordo_format::fuse::{
    AttrOut, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, EntryOut, FallocateIn, ForgetIn,
    FsyncIn, FuseAttr, FuseDirent, FuseStatx, GetxattrIn, InHeader, InitIn, IoctlIn, Kstatfs,
    LinkIn, LseekIn, MkdirIn, MknodIn, NotifyInvalInodeOut, OutHeader, ReadIn, Rename2In, RenameIn,
    SetattrIn, SetxattrIn, StatxOut, SxTime, WriteIn,
};
use ordo_format::{Endian, OnDisk};
use ordo_vfs::{Attr, FileType, IoBuf, StatFs, Timestamp};

/// The protocol's version.
pub const VERSION: (u32, u32) = (7, 45);
/// The root's node id.
pub const ROOT: u64 = 1;
/// The bytes of a request's header.
pub const IN_HEADER: usize = InHeader::SIZE;
/// The bytes of a reply's header.
pub const OUT_HEADER: usize = OutHeader::SIZE;
/// The most data in one read or write, in bytes.
pub const MAX_DATA: usize = 1 << 20;
/// The bytes before a write's data: the header and the structure.
pub const WRITE_HEAD: usize = IN_HEADER + WriteIn::SIZE;

macro_rules! opcodes {
    ($($name:ident = $number:literal, $structure:ty;)*) => {
        /// The kind of a request.
        #[allow(missing_docs, reason = "the protocol's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// The kind with this number.
            pub fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }

            /// The size of its structure, which names and data follow.
            pub fn structure(self) -> usize {
                match self { $(Opcode::$name => <$structure as OnDisk>::SIZE,)* }
            }
        }
    };
}

// Of some kinds the structure has nothing that matters here.
opcodes! {
    Lookup = 1, [u8; 0];
    Forget = 2, ForgetIn;
    Getattr = 3, [u8; 16];
    Setattr = 4, SetattrIn;
    Readlink = 5, [u8; 0];
    Symlink = 6, [u8; 0];
    Mknod = 8, MknodIn;
    Mkdir = 9, MkdirIn;
    Unlink = 10, [u8; 0];
    Rmdir = 11, [u8; 0];
    Rename = 12, RenameIn;
    Link = 13, LinkIn;
    Open = 14, [u8; 8];
    Read = 15, ReadIn;
    Write = 16, WriteIn;
    Statfs = 17, [u8; 0];
    Release = 18, [u8; 24];
    Fsync = 20, FsyncIn;
    Setxattr = 21, SetxattrIn;
    Getxattr = 22, GetxattrIn;
    Listxattr = 23, GetxattrIn;
    Removexattr = 24, [u8; 0];
    Flush = 25, [u8; 24];
    Init = 26, InitIn;
    Opendir = 27, [u8; 8];
    Readdir = 28, ReadIn;
    Releasedir = 29, [u8; 24];
    Fsyncdir = 30, FsyncIn;
    Access = 34, [u8; 8];
    Create = 35, CreateIn;
    Interrupt = 36, [u8; 8];
    Bmap = 37, BmapIn;
    Destroy = 38, [u8; 0];
    Ioctl = 39, IoctlIn;
    BatchForget = 42, BatchForgetIn;
    Fallocate = 43, FallocateIn;
    Readdirplus = 44, ReadIn;
    Rename2 = 45, Rename2In;
    Lseek = 46, LseekIn;
    CopyFileRange = 47, CopyFileRangeIn;
    Syncfs = 50, [u8; 8];
    Tmpfile = 51, CreateIn;
    Statx = 52, [u8; 24];
    CopyFileRange64 = 53, CopyFileRangeIn;
}

bitflags::bitflags! {
    /// The features on which kernel and server agree at the beginning (`FUSE_*` flags of INIT).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Reads of one file may be concurrent.
        const ASYNC_READ = 1;
        /// `.` and `..` can be looked up by node.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes may have more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// READDIRPLUS, which reads a directory with attributes, is supported.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel decides when READDIRPLUS pays.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be concurrent.
        const ASYNC_DIO = 1 << 15;
        /// The kernel caches writes and sends them later.
        const WRITEBACK_CACHE = 1 << 16;
        /// The kernel can do without OPEN.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Operations in one directory may be concurrent.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel enforces POSIX ACLs, and the server stores them.
        const POSIX_ACL = 1 << 20;
        /// Requests may have up to `max_pages` pages.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// The kernel can do without OPENDIR.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The server removes set-id bits when the kernel says so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has flags.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Requests may go over io_uring.
        const OVER_IO_URING = 1 << 41;
        /// The kernel gives up a server that has not answered a request in time.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

/// Bits for the valid fields of a SETATTR (`FATTR_*`).
pub mod fattr {
    #![allow(missing_docs, reason = "the protocol's own names")]
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// An FSYNC is an `fdatasync`.
pub const FSYNC_FDATASYNC: u32 = 1;

/// The write must remove set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// The code of a notification to the kernel that its cached data of an inode is no longer valid
/// (`FUSE_NOTIFY_INVAL_INODE`). It stands in the place of a reply's error, with no request number.
pub const INVALIDATE_INODE: i32 = 2;

/// The body of such a notification for attributes alone.
pub fn invalid_attributes(node: u64) -> [u8; NotifyInvalInodeOut::SIZE] {
    let mut out = [0; NotifyInvalInodeOut::SIZE];
    NotifyInvalInodeOut { ino: node, off: -1, len: 0 }.encode(&mut out, Endian::NATIVE);
    out
}

/// A reply's header, or a notification's.
pub fn out_header(unique: u64, error: i32, body: usize) -> [u8; OUT_HEADER] {
    let mut out = [0; OUT_HEADER];
    let len = (OUT_HEADER + body) as u32;
    OutHeader { len, error, unique }.encode(&mut out, Endian::NATIVE);
    out
}

/// A parsed request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The kind of request.
    pub opcode: Opcode,
    /// The request's identity.
    pub unique: u64,
    /// The node.
    pub node: u64,
    /// The caller's user id.
    pub uid: u32,
    /// The caller's group id.
    pub gid: u32,
    /// The caller's thread.
    pub thread: u32,
    /// The structure.
    pub fields: &'a [u8],
    /// The names or data after the structure.
    pub rest: &'a [u8],
    /// The data of a write, in the place of `rest`, if the transport has it in a buffer of its own.
    pub data: RefCell<Option<IoBuf>>,
}

/// The reason why a message is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// The message is too short.
    Short,
    /// The kind of request is not known here.
    Unknown {
        /// The request's identity, for the reply.
        unique: u64,
    },
}

impl<'a> Request<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// The message is not a known request.
    pub fn parse(message: &'a [u8]) -> Result<Request<'a>, BadRequest> {
        let (header, body) = message.split_at_checked(IN_HEADER).ok_or(BadRequest::Short)?;
        let header = InHeader::decode(header, Endian::NATIVE);
        let unknown = BadRequest::Unknown { unique: header.unique };
        let opcode = Opcode::from_number(header.opcode).ok_or(unknown)?;
        let (fields, rest) = body.split_at_checked(opcode.structure()).ok_or(BadRequest::Short)?;
        Ok(Request::of(opcode, &header, fields, rest))
    }

    /// The kind and the identity in a message's header. `None` where the message is too short, or
    /// its kind is not known here.
    pub fn head(message: &[u8]) -> Option<(Opcode, u64)> {
        let header = InHeader::decode(message.get(..IN_HEADER)?, Endian::NATIVE);
        Some((Opcode::from_number(header.opcode)?, header.unique))
    }

    /// A request in separate parts: its header, a buffer as large as any structure, and names or
    /// data. `None` if its kind is not known here. Panics if a part is too small.
    pub fn parts(header: &'a [u8], structure: &'a [u8], rest: &'a [u8]) -> Option<Request<'a>> {
        let header = InHeader::decode(header, Endian::NATIVE);
        let opcode = Opcode::from_number(header.opcode)?;
        Some(Request::of(opcode, &header, &structure[..opcode.structure()], rest))
    }

    fn of(opcode: Opcode, header: &InHeader, fields: &'a [u8], rest: &'a [u8]) -> Request<'a> {
        Request {
            opcode,
            unique: header.unique,
            node: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            thread: header.pid,
            fields,
            rest,
            data: RefCell::default(),
        }
    }

    /// The structure, of the type that this kind of request has.
    pub fn structure<T: OnDisk>(&self) -> T {
        T::get(self.fields, 0, Endian::NATIVE)
    }

    /// The next name, and the bytes after it.
    pub fn name(&self) -> (&'a [u8], &'a [u8]) {
        split_name(self.rest)
    }
}

/// A name that ends in NUL, and the bytes after it.
pub fn split_name(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|b| *b == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// A reply that is being built in a buffer.
#[derive(Debug)]
pub struct Out<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    /// An empty reply in a buffer.
    pub fn new(buf: &'a mut [u8]) -> Out<'a> {
        Out { buf, len: 0 }
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes. Panics at the end of the buffer; all replies except lists and data are small.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buf[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends a structure or a number.
    pub fn put<T: OnDisk>(&mut self, value: &T) {
        value.put(self.buf, self.len, Endian::NATIVE);
        self.len += T::SIZE;
    }

    /// Appends zeros.
    pub fn zeroes(&mut self, n: usize) {
        self.buf[self.len..self.len + n].fill(0);
        self.len += n;
    }

    /// The next `n` bytes for the caller to fill, or as many as there are.
    /// [`advance`](Self::advance) must follow.
    pub fn space(&mut self, n: usize) -> &mut [u8] {
        let end = (self.len + n).min(self.buf.len());
        &mut self.buf[self.len..end]
    }

    /// Adds `n` bytes that were filled in [`space`](Self::space).
    pub fn advance(&mut self, n: usize) {
        self.len += n;
    }

    /// Removes everything after the first `len` bytes.
    pub fn cut(&mut self, len: usize) {
        self.len = len;
    }

    /// Appends an inode's attributes, valid for `seconds`.
    pub fn attr_out(&mut self, a: &Attr, seconds: u64) {
        self.put(&AttrOut { attr_valid: seconds, attr_valid_nsec: 0, dummy: 0, attr: attr(a) });
    }

    /// Appends a name's node and attributes, valid for `seconds`.
    pub fn entry_out(&mut self, node: u64, a: &Attr, seconds: u64) {
        self.put(&EntryOut {
            nodeid: node,
            generation: a.generation,
            entry_valid: seconds,
            attr_valid: seconds,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: attr(a),
        });
    }

    /// Appends the answer that a name does not exist, valid for `seconds`.
    pub fn no_entry(&mut self, seconds: u64) {
        self.put(&EntryOut { entry_valid: seconds, ..EntryOut::zeroed() });
    }

    /// Appends a directory entry. Returns false if there is no space for it.
    pub fn dirent(&mut self, ino: u64, next: u64, kind: Option<FileType>, name: &[u8]) -> bool {
        let size = (FuseDirent::SIZE + name.len()).next_multiple_of(8);
        if self.len + size > self.buf.len() {
            return false;
        }
        let kind = kind.map_or(0, |kind| u32::from(kind.mode_bits() >> 12));
        self.put(&FuseDirent { ino, off: next, namelen: name.len() as u32, kind });
        self.bytes(name);
        self.zeroes(size - FuseDirent::SIZE - name.len());
        true
    }

    /// Appends the structure of a file system's space.
    pub fn statfs(&mut self, s: &StatFs) {
        self.put(&Kstatfs {
            blocks: s.blocks,
            bfree: s.blocks_free,
            bavail: s.blocks_available,
            files: s.inodes,
            ffree: s.inodes_free,
            bsize: s.block_size,
            namelen: s.name_max,
            frsize: s.fragment_size,
            padding: 0,
            spare: [0; 6],
        });
    }

    /// Appends an inode's attributes in the form of statx(2), valid for `seconds`.
    pub fn statx(&mut self, a: &Attr, seconds: u64) {
        const BASIC_AND_BIRTH: u32 = 0xfff;
        let time = |t: Timestamp| SxTime { tv_sec: t.seconds, tv_nsec: t.nanos, reserved: 0 };
        let stat = FuseStatx {
            mask: BASIC_AND_BIRTH,
            blksize: a.block_size,
            nlink: a.links,
            uid: a.uid,
            gid: a.gid,
            mode: mode(a),
            ino: a.ino.0,
            size: a.size,
            blocks: a.blocks,
            atime: time(a.atime),
            btime: time(a.birthtime),
            ctime: time(a.ctime),
            mtime: time(a.mtime),
            rdev_major: libc::major(a.rdev),
            rdev_minor: libc::minor(a.rdev),
            ..FuseStatx::zeroed()
        };
        self.put(&StatxOut { attr_valid: seconds, stat, ..StatxOut::zeroed() });
    }
}

/// The structure of an inode's attributes.
fn attr(a: &Attr) -> FuseAttr {
    FuseAttr {
        ino: a.ino.0,
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.seconds.cast_unsigned(),
        mtime: a.mtime.seconds.cast_unsigned(),
        ctime: a.ctime.seconds.cast_unsigned(),
        atimensec: a.atime.nanos,
        mtimensec: a.mtime.nanos,
        ctimensec: a.ctime.nanos,
        mode: u32::from(mode(a)),
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: rdev_to_kernel(a.rdev),
        blksize: a.block_size,
        flags: 0,
    }
}

fn mode(a: &Attr) -> u16 {
    a.file_type.mode_bits() | a.permissions
}

/// The protocol's form of a device number: 12 bits of major and 20 of minor, in 32 bits.
pub fn rdev_to_kernel(rdev: u64) -> u32 {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// A device number from the protocol's form.
pub fn rdev_from_kernel(rdev: u32) -> u64 {
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00);
    libc::makedev(major, minor)
}

/// A time in a SETATTR.
pub fn timestamp(seconds: u64, nanos: u32) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanos }
}

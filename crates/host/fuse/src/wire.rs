//! The protocol's numbers and structures: version 7.45, as Linux documents it in
//! `include/uapi/linux/fuse.h`.
//!
//! A request is a header of 40 bytes, a structure of its own, and names or data. A reply is a
//! header of 16 bytes and the result. All numbers have the machine's byte order.

use std::cell::RefCell;

use ordo_vfs::{Attr, FileType, IoBuf, StatFs, Timestamp};

/// The protocol's version.
pub const VERSION: (u32, u32) = (7, 45);
/// The root's node id.
pub const ROOT: u64 = 1;
/// The bytes of a request's header.
pub const IN_HEADER: usize = 40;
/// The bytes of a reply's header.
pub const OUT_HEADER: usize = 16;
/// The most data in one read or write, in bytes.
pub const MAX_DATA: usize = 1 << 20;
/// The bytes before a write's data: the header and the structure.
pub const WRITE_HEAD: usize = IN_HEADER + 40;

macro_rules! opcodes {
    ($($name:ident = $number:literal, $size:literal;)*) => {
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
                match self { $(Opcode::$name => $size,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, 0;
    Forget = 2, 8;
    Getattr = 3, 16;
    Setattr = 4, 88;
    Readlink = 5, 0;
    Symlink = 6, 0;
    Mknod = 8, 16;
    Mkdir = 9, 8;
    Unlink = 10, 0;
    Rmdir = 11, 0;
    Rename = 12, 8;
    Link = 13, 8;
    Open = 14, 8;
    Read = 15, 40;
    Write = 16, 40;
    Statfs = 17, 0;
    Release = 18, 24;
    Fsync = 20, 16;
    Setxattr = 21, 16;
    Getxattr = 22, 8;
    Listxattr = 23, 8;
    Removexattr = 24, 0;
    Flush = 25, 24;
    Init = 26, 16;
    Opendir = 27, 8;
    Readdir = 28, 40;
    Releasedir = 29, 24;
    Fsyncdir = 30, 16;
    Access = 34, 8;
    Create = 35, 16;
    Interrupt = 36, 8;
    Bmap = 37, 16;
    Destroy = 38, 0;
    Ioctl = 39, 32;
    BatchForget = 42, 8;
    Fallocate = 43, 32;
    Readdirplus = 44, 40;
    Rename2 = 45, 16;
    Lseek = 46, 24;
    CopyFileRange = 47, 56;
    Syncfs = 50, 8;
    Tmpfile = 51, 16;
    Statx = 52, 24;
    CopyFileRange64 = 53, 56;
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

/// The write must remove set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// The code of a notification to the kernel that its cached data of an inode is no longer valid
/// (`FUSE_NOTIFY_INVAL_INODE`). It stands in the place of a reply's error, with no request number.
pub const INVALIDATE_INODE: i32 = 2;

/// The body of such a notification for attributes alone: node, offset, length. A negative offset
/// leaves the contents cached.
pub fn invalid_attributes(node: u64) -> [u8; 24] {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&node.to_ne_bytes());
    out[8..16].copy_from_slice(&(-1i64).to_ne_bytes());
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
        let header = message.get(..IN_HEADER).ok_or(BadRequest::Short)?;
        let (unique, body) = (get_u64(header, 8), &message[IN_HEADER..]);
        let opcode =
            Opcode::from_number(get_u32(header, 4)).ok_or(BadRequest::Unknown { unique })?;
        let (fields, rest) = body.split_at_checked(opcode.structure()).ok_or(BadRequest::Short)?;
        Ok(Request::of(opcode, header, fields, rest))
    }

    /// The kind and the identity in a message's header. `None` where the message is too short, or
    /// its kind is not known here.
    pub fn head(message: &[u8]) -> Option<(Opcode, u64)> {
        let header = message.get(..IN_HEADER)?;
        Some((Opcode::from_number(get_u32(header, 4))?, get_u64(header, 8)))
    }

    /// A request in separate parts: its header, a buffer as large as any structure, and names or
    /// data. `None` if its kind is not known here. Panics if a part is too small.
    pub fn parts(header: &'a [u8], structure: &'a [u8], rest: &'a [u8]) -> Option<Request<'a>> {
        let opcode = Opcode::from_number(get_u32(header, 4))?;
        Some(Request::of(opcode, header, &structure[..opcode.structure()], rest))
    }

    fn of(opcode: Opcode, header: &[u8], fields: &'a [u8], rest: &'a [u8]) -> Request<'a> {
        Request {
            opcode,
            unique: get_u64(header, 8),
            node: get_u64(header, 16),
            uid: get_u32(header, 24),
            gid: get_u32(header, 28),
            thread: get_u32(header, 32),
            fields,
            rest,
            data: RefCell::default(),
        }
    }

    /// The number of 32 bits at byte `at` of the structure.
    pub fn u32(&self, at: usize) -> u32 {
        get_u32(self.fields, at)
    }

    /// The number of 64 bits at byte `at` of the structure.
    pub fn u64(&self, at: usize) -> u64 {
        get_u64(self.fields, at)
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

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
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

    /// Appends a number.
    pub fn u16(&mut self, n: u16) {
        self.bytes(&n.to_ne_bytes());
    }

    /// Appends a number.
    pub fn u32(&mut self, n: u32) {
        self.bytes(&n.to_ne_bytes());
    }

    /// Appends a number.
    pub fn u64(&mut self, n: u64) {
        self.bytes(&n.to_ne_bytes());
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

    /// Appends the structure of an inode's attributes, 88 bytes (`struct fuse_attr`).
    pub fn attr(&mut self, a: &Attr) {
        for n in [a.ino.0, a.size, a.blocks] {
            self.u64(n);
        }
        for t in [a.atime, a.mtime, a.ctime] {
            self.u64(t.seconds.cast_unsigned());
        }
        for t in [a.atime, a.mtime, a.ctime] {
            self.u32(t.nanos);
        }
        self.u32(u32::from(mode(a)));
        for n in [a.links, a.uid, a.gid, rdev_to_kernel(a.rdev), a.block_size, 0] {
            self.u32(n);
        }
    }

    /// Appends an inode's attributes, valid for `seconds`.
    pub fn attr_out(&mut self, a: &Attr, seconds: u64) {
        self.u64(seconds);
        self.u64(0);
        self.attr(a);
    }

    /// Appends a name's node and attributes, valid for `seconds`, 128 bytes (`struct
    /// fuse_entry_out`).
    pub fn entry_out(&mut self, node: u64, a: &Attr, seconds: u64) {
        for n in [node, a.generation, seconds, seconds, 0] {
            self.u64(n);
        }
        self.attr(a);
    }

    /// Appends the answer that a name does not exist, valid for `seconds`.
    pub fn no_entry(&mut self, seconds: u64) {
        for n in [0, 0, seconds, 0, 0] {
            self.u64(n);
        }
        self.zeroes(88);
    }

    /// Appends a directory entry. Returns false if there is no space for it.
    pub fn dirent(&mut self, ino: u64, next: u64, kind: Option<FileType>, name: &[u8]) -> bool {
        let size = (24 + name.len()).next_multiple_of(8);
        if self.len + size > self.buf.len() {
            return false;
        }
        self.u64(ino);
        self.u64(next);
        self.u32(name.len() as u32);
        self.u32(kind.map_or(0, |kind| u32::from(kind.mode_bits() >> 12)));
        self.bytes(name);
        self.zeroes(size - 24 - name.len());
        true
    }

    /// Appends the structure of a file system's space.
    pub fn statfs(&mut self, s: &StatFs) {
        for n in [s.blocks, s.blocks_free, s.blocks_available, s.inodes, s.inodes_free] {
            self.u64(n);
        }
        self.u32(s.block_size);
        self.u32(s.name_max);
        self.u32(s.fragment_size);
        self.zeroes(28);
    }

    /// Appends an inode's attributes in the form of statx(2), valid for `seconds`.
    pub fn statx(&mut self, a: &Attr, seconds: u64) {
        const BASIC_AND_BIRTH: u32 = 0xfff;
        self.u64(seconds);
        self.zeroes(24);
        self.u32(BASIC_AND_BIRTH);
        self.u32(a.block_size);
        self.u64(0);
        self.u32(a.links);
        self.u32(a.uid);
        self.u32(a.gid);
        self.u16(mode(a));
        self.u16(0);
        self.u64(a.ino.0);
        self.u64(a.size);
        self.u64(a.blocks);
        self.u64(0);
        for t in [a.atime, a.birthtime, a.ctime, a.mtime] {
            self.u64(t.seconds.cast_unsigned());
            self.u32(t.nanos);
            self.u32(0);
        }
        let rdev = a.rdev;
        self.u32(libc::major(rdev));
        self.u32(libc::minor(rdev));
        self.zeroes(8 + 14 * 8);
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

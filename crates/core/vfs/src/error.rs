//! The errors that a user of a file system sees: an errno, and a text that says what and where.

use std::fmt;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $c:ident, $text:literal;)*) => {
        /// The errors a file system returns, each with its number on Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Errno { $($(#[$doc])* $name,)* }

        impl Errno {
            /// The error number on Linux.
            pub fn raw(self) -> i32 {
                match self { $(Errno::$name => libc::$c,)* }
            }

            /// The error with this number on Linux, if any operation returns it.
            pub fn from_raw(raw: i32) -> Option<Errno> {
                match raw { $(libc::$c => Some(Errno::$name),)* _ => None }
            }

            /// The symbol, and a description of the error.
            pub fn text(self) -> (&'static str, &'static str) {
                match self { $(Errno::$name => (stringify!($c), $text),)* }
            }
        }
    };
}

errnos! {
    /// The caller may not do this, for example because the file is immutable or append-only.
    NotPermitted = EPERM, "operation not permitted";
    /// No such name or inode exists.
    NotFound = ENOENT, "no such file or directory";
    /// The device failed.
    Io = EIO, "input/output error";
    /// The permission bits forbid the access.
    Access = EACCES, "permission denied";
    /// The file or file system is still in use.
    Busy = EBUSY, "device or resource busy";
    /// The name exists already.
    Exists = EEXIST, "file exists";
    /// The inode is not a directory, but must be one.
    NotDir = ENOTDIR, "not a directory";
    /// The inode is a directory, but must not be one.
    IsDir = EISDIR, "is a directory";
    /// An argument is not valid.
    Invalid = EINVAL, "invalid argument";
    /// The file would be larger than the largest possible.
    TooBig = EFBIG, "file too large";
    /// No space is left.
    NoSpace = ENOSPC, "no space left on device";
    /// The file system is mounted read-only, or has become read-only.
    ReadOnly = EROFS, "read-only file system";
    /// The inode has the largest possible link count.
    TooManyLinks = EMLINK, "too many links";
    /// The name is longer than 255 bytes, or the link's target longer than the longest possible.
    NameTooLong = ENAMETOOLONG, "file name too long";
    /// The directory has entries.
    NotEmpty = ENOTEMPTY, "directory not empty";
    /// No such extended attribute exists.
    NoAttribute = ENODATA, "no data available";
    /// The value does not fit in the buffer.
    Range = ERANGE, "result too large";
    /// The file system does not support this operation.
    NotSupported = EOPNOTSUPP, "operation not supported";
    /// The data on disk contradict themselves.
    Corrupt = EUCLEAN, "structure needs cleaning";
    /// The inode number belongs to another file now, or to none.
    Stale = ESTALE, "stale file handle";
    /// No data, or no hole, follows the offset.
    NoAddress = ENXIO, "no such device or address";
    /// A path leads through too many symbolic links.
    Loop = ELOOP, "too many levels of symbolic links";
    /// The other file is on another file system.
    CrossDevice = EXDEV, "invalid cross-device link";
    /// The operation would block, or must be tried again.
    Again = EAGAIN, "resource temporarily unavailable";
}

/// A failed operation: the errno and, where possible, a more exact description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsError {
    /// The error for a program.
    pub errno: Errno,
    /// The error for a person: the structure, the place, and what to do next.
    pub detail: Option<Box<str>>,
}

/// The result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

impl FsError {
    /// An error with a description beside its errno.
    pub fn with_detail(errno: Errno, detail: impl fmt::Display) -> FsError {
        FsError { errno, detail: Some(detail.to_string().into_boxed_str()) }
    }

    /// The error for data on disk that contradict themselves.
    pub fn corrupt(detail: impl fmt::Display) -> FsError {
        FsError::with_detail(Errno::Corrupt, detail)
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> FsError {
        FsError { errno, detail: None }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.errno.text().1)?;
        match &self.detail {
            Some(d) => write!(f, ": {d}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FsError {}

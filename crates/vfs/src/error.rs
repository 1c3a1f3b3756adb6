//! Errors as a user of a file system sees them: an errno, and what and where.

use std::fmt;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $c:ident, $text:literal;)*) => {
        /// The errors a file system returns, each with its number on Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Errno { $($(#[$doc])* $name,)* }

        impl Errno {
            /// The number on Linux.
            pub fn raw(self) -> i32 {
                match self { $(Errno::$name => libc::$c,)* }
            }

            /// The error with this number on Linux, if a file system returns it.
            pub fn from_raw(raw: i32) -> Option<Errno> {
                match raw { $(libc::$c => Some(Errno::$name),)* _ => None }
            }

            /// The symbol and the words for it.
            pub fn text(self) -> (&'static str, &'static str) {
                match self { $(Errno::$name => (stringify!($c), $text),)* }
            }
        }
    };
}

errnos! {
    /// The caller may not do this: an immutable or append-only file.
    NotPermitted = EPERM, "operation not permitted";
    /// No such name or inode.
    NotFound = ENOENT, "no such file or directory";
    /// The device failed.
    Io = EIO, "input/output error";
    /// Permission bits forbid it.
    Access = EACCES, "permission denied";
    /// Still in use.
    Busy = EBUSY, "device or resource busy";
    /// The name is taken.
    Exists = EEXIST, "file exists";
    /// Not a directory.
    NotDir = ENOTDIR, "not a directory";
    /// A directory.
    IsDir = EISDIR, "is a directory";
    /// An argument makes no sense.
    Invalid = EINVAL, "invalid argument";
    /// Larger than a file can be.
    TooBig = EFBIG, "file too large";
    /// No space left.
    NoSpace = ENOSPC, "no space left on device";
    /// The file system is mounted or has become read-only.
    ReadOnly = EROFS, "read-only file system";
    /// The inode has as many names as it can have.
    TooManyLinks = EMLINK, "too many links";
    /// The name is longer than 255 bytes, or the target longer than a link can hold.
    NameTooLong = ENAMETOOLONG, "file name too long";
    /// The directory has entries.
    NotEmpty = ENOTEMPTY, "directory not empty";
    /// No such extended attribute.
    NoAttribute = ENODATA, "no data available";
    /// The value does not fit.
    Range = ERANGE, "result too large";
    /// Not a thing this file system can do.
    NotSupported = EOPNOTSUPP, "operation not supported";
    /// What is on disk contradicts itself.
    Corrupt = EUCLEAN, "structure needs cleaning";
    /// The inode number stands for another file now, or for none.
    Stale = ESTALE, "stale file handle";
    /// There is neither data nor a hole from there on.
    NoAddress = ENXIO, "no such device or address";
    /// A path leads through too many symbolic links.
    Loop = ELOOP, "too many levels of symbolic links";
    /// On another file system.
    CrossDevice = EXDEV, "invalid cross-device link";
    /// Would block or must be tried again.
    Again = EAGAIN, "resource temporarily unavailable";
}

/// A failed operation: the errno, and where there is more to say, what and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsError {
    /// What a program is told.
    pub errno: Errno,
    /// What a person is told: the structure, the place, what to do next.
    pub detail: Option<Box<str>>,
}

/// The result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

impl FsError {
    /// An error with more to say than its errno.
    pub fn with_detail(errno: Errno, detail: impl fmt::Display) -> FsError {
        FsError { errno, detail: Some(detail.to_string().into_boxed_str()) }
    }

    /// What is on disk contradicts itself.
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

//! The rules for names in a directory.

use crate::{Errno, FsResult};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Checks a name before any look-up: this error comes before all others.
///
/// # Errors
/// [`Errno::Invalid`] if the name is empty or has `/` or NUL, [`Errno::NameTooLong`] if it has more
/// than [`NAME_MAX`] bytes.
pub fn check(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name.iter().any(|b| matches!(b, 0 | b'/')) {
        return Err(Errno::Invalid.into());
    }
    if name.len() > NAME_MAX {
        return Err(Errno::NameTooLong.into());
    }
    Ok(())
}

/// Whether the name is `.` or `..`.
pub fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Checks the name of an extended attribute, name space included. Returns the length of the name
/// space, with its dot.
///
/// # Errors
/// [`Errno::NotSupported`] for an unknown name space, [`Errno::Invalid`] if the rest of the name is
/// empty or has a NUL, [`Errno::NameTooLong`] if the rest has more than [`NAME_MAX`] bytes.
pub fn check_xattr(name: &[u8]) -> FsResult<usize> {
    let Some(space) = [&b"user."[..], b"system."].into_iter().find(|s| name.starts_with(s)) else {
        return Err(Errno::NotSupported.into());
    };
    let rest = &name[space.len()..];
    if rest.is_empty() || rest.contains(&0) {
        return Err(Errno::Invalid.into());
    }
    if rest.len() > NAME_MAX {
        return Err(Errno::NameTooLong.into());
    }
    Ok(space.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_to_255_bytes_without_slash_or_nul() {
        let errno = |n: &[u8]| check(n).err().map(|e| e.errno);
        assert_eq!(errno(b""), Some(Errno::Invalid));
        assert_eq!(errno(b"a/b"), Some(Errno::Invalid));
        assert_eq!(errno(b"a\0"), Some(Errno::Invalid));
        assert_eq!(errno(&[b'x'; 255]), None);
        assert_eq!(errno(&[b'x'; 256]), Some(Errno::NameTooLong));
        assert_eq!(errno(b"\xff\x01"), None);
    }

    #[test]
    fn an_attribute_needs_a_name_space() {
        let errno = |n: &[u8]| check_xattr(n).err().map(|e| e.errno);
        assert_eq!(check_xattr(b"user.a"), Ok(5));
        assert_eq!(check_xattr(b"system.a"), Ok(7));
        assert_eq!(errno(b"trusted.a"), Some(Errno::NotSupported));
        assert_eq!(errno(b"user."), Some(Errno::Invalid));
        assert_eq!(errno(&[b"user.", &[b'x'; 256][..]].concat()), Some(Errno::NameTooLong));
    }
}

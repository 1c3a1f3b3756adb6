//! Sizes that a user gave, checked against the width of a format's field.

use crate::SystemError;

/// A number of bytes as the 32 bits of a format's field.
pub(crate) fn u32_of(what: &'static str, bytes: u64) -> Result<u32, SystemError> {
    u32::try_from(bytes).map_err(|_| SystemError::TooLarge { what, bytes })
}

//! Sizes that a user gives, as formats hold them.

use crate::SystemError;

/// A number of bytes in the 32 bits that a format has for it.
pub(crate) fn u32_of(what: &'static str, bytes: u64) -> Result<u32, SystemError> {
    u32::try_from(bytes).map_err(|_| SystemError::TooLarge { what, bytes })
}

//! Everything that `mount.rs` tests, with requests over io_uring.

#[path = "mount.rs"]
mod mount;

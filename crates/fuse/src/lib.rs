//! The mount: any [`ordo_vfs::FileSystem`] served to the kernel through FUSE.
//!
//! Layers, lowest first:
//! - [`wire`]: the protocol's numbers and structures; requests taken apart, replies put together.
//! - [`handler`]: one request in, one reply out. It knows no transport.
//! - [`dev`]: requests from and replies to `/dev/fuse`, on the executor's own thread.
//! - [`uring`]: the same over io_uring, where kernel and server have agreed on it.
//! - [`kernel`]: attaching to a directory, and letting go of it.
//!
//! Invariants:
//! - The file system is the kernel's alone: nobody else changes it, so names and attributes that the kernel
//!   was told of stay valid until it changes them itself.
//! - An inode that the kernel knows is open ([`FileSystem::open`](ordo_vfs::FileSystem::open)) until the kernel
//!   forgets it. So files need no opening of their own: the kernel is told so once, and sends no OPEN,
//!   RELEASE or FLUSH any more.
//! - A request gets exactly one reply, FORGET none. Its reply is sent from the task that carried it out.
//! - After DESTROY nothing is under way: the reply to it is sent when the disk is clean.
//!
//! Typical sequence: open `/dev/fuse` and attach it ([`kernel::attach`]), make a [`Handler`], then
//! [`dev::serve`] until the kernel lets go or the program is told to end; unmount the file system; only then
//! [`dev::Farewell::send`].

pub mod dev;
pub mod handler;
pub mod kernel;
pub mod loopdev;
pub mod uring;
pub mod wire;

pub use handler::{Handler, Options};

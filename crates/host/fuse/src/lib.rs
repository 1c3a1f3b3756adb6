//! The mount: any [`ordo_vfs::FileSystem`] served to the kernel through FUSE.
//!
//! Layers, lowest first:
//! - [`wire`]: the protocol's numbers and structures; parsing requests, building replies.
//! - [`handler`]: one request in, one reply out, over any transport.
//! - [`dev`]: requests from and replies to `/dev/fuse`, on the executor's own thread.
//! - [`uring`]: requests and replies over io_uring, if kernel and server have agreed on it.
//! - [`mounts`]: the table of mounts.
//! - [`kernel`]: mounting on a directory, and unmounting.
//!
//! Invariants:
//! - Only the kernel changes the file system. So names and attributes that the kernel was told of
//!   stay valid until the kernel changes them itself.
//! - An inode that the kernel knows is open ([`FileSystem::open`](ordo_vfs::FileSystem::open))
//!   until the kernel forgets it. So files need no opening of their own: the kernel is told this
//!   once, and sends no OPEN, RELEASE or FLUSH any more.
//! - A request gets exactly one reply, and FORGET none. The task that carried a request out sends
//!   its reply.
//! - After DESTROY no request is under way. The reply to DESTROY is sent when the disk is clean.
//!
//! Typical sequence: open `/dev/fuse` and mount it ([`kernel::attach`]), make a [`Handler`], and
//! run [`dev::serve`] until the kernel unmounts or the program is told to end. Then unmount the
//! file system, and only after that call [`dev::ShutdownReply::send`].

pub mod dev;
pub mod handler;
pub mod kernel;
pub mod loopdev;
pub mod mounts;
pub mod uring;
pub mod wire;

pub use handler::{Handler, HandlerOptions};

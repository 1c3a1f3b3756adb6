//! The commands, each in a module of its own or with a few related ones.

pub mod age;
pub mod analyze;
pub mod attach;
pub mod bench;
mod calls;
mod cleanup;
pub mod compare;
pub mod copy;
pub mod crash;
pub mod files;
pub mod fsck;
pub mod generate;
pub mod infer;
pub mod info;
mod instead;
pub mod lfs;
pub mod log;
pub mod mkfs;
pub mod mount;
mod parts;
pub mod record;
pub mod reproduce;
mod rotate;
mod running;
pub mod trace;
mod traffic;
pub mod whatif;

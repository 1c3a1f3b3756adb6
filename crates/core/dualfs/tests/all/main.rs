//! DualFS: pairs of devices, where data lies, crashes, and what the check finds. One program, so
//! that the file systems are compiled into it once.

mod check;
mod crash;
mod durable;
mod locality;
mod pair;
mod reuse;
mod salvage;
mod times;

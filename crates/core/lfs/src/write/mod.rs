//! The file system mounted for writing: a layout of `ufs` that writes a log.

mod blocks;
mod budget;
mod cleaner;
mod contents;
mod copy;
mod cut;
mod directory;
mod idle;
mod ifile;
mod layout;
mod locality;
mod mount;
mod order;
mod plan;
mod recover;
mod rules;
mod state;
mod store;
mod tree;
mod work;
mod writer;

use std::rc::Rc;

use ordo_ufs::Ufs;

pub use cleaner::CleanerCounts;
pub use copy::CopyIndex;
pub use layout::LogLayout;
pub use mount::{MountOptions, mount, mount_with};
pub use rules::{CleanEvery, CleanerPolicy, Cleaning, CleaningError, LfsRules};

/// A mounted log as a file system.
pub type LogFs = Ufs<LogLayout>;

/// The state that the parts of a mounted file system share.
type Shared = Rc<store::Store>;

//! Reading a damaged UFS past its damage, without a mount or for one.

use ordo_block::Device;
use ordo_vfs::AnyFs;

pub use ordo_rescue::{
    DeletedEntry, DeletedState, LeftOut, Mapfile, MapfileError, Reason, RescueFs, Unreadable,
};

use crate::mounted::OnlyRead;
use crate::{Mounted, SystemError};

/// Opens the UFS on a device, of which parts may be unreadable.
///
/// # Errors
/// Neither a superblock nor a copy of one is found.
pub async fn open(disk: &Device, unreadable: Unreadable) -> Result<RescueFs, SystemError> {
    Ok(RescueFs::open(disk, unreadable).await?)
}

/// The same file system as a mounted one.
pub fn mounted(fs: &RescueFs) -> Mounted {
    Mounted::new(AnyFs::new(fs.clone()), OnlyRead)
}

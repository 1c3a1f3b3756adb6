//! Extended attributes: get, set, list, remove, on the area that the layout stores.

use ordo_format::Endian;
use ordo_format::ufs2::extattr;
use ordo_ordering::{OpKind, What};
use ordo_vfs::{Errno, FsError, FsResult, Ino, XattrMode, flags, name};

use crate::layout::{AttributeArea, Layout};
use crate::names::require;
use crate::{Ufs, io_error};

/// The prefixes of names, each with its name space.
const SPACES: [(&[u8], u8); 2] =
    [(b"user.", extattr::NAMESPACE_USER), (b"system.", extattr::NAMESPACE_SYSTEM)];

fn split(full: &[u8]) -> FsResult<(u8, &[u8])> {
    let prefix = name::check_xattr(full)?;
    let space = SPACES.iter().find(|(p, _)| *p == &full[..prefix]);
    let (_, space) = space.ok_or(Errno::NotSupported)?;
    Ok((*space, &full[prefix..]))
}

fn corrupt(ino: Ino, error: impl std::fmt::Display) -> FsError {
    FsError::corrupt(format_args!(
        "extended attributes of inode {}: {error}; run a check (fsck)",
        ino.0
    ))
}

/// Edits an area: sets one attribute to `value`, in its old place if it had one, or removes it.
fn with_attribute(
    area: &[u8],
    endian: Endian,
    space: u8,
    short: &[u8],
    value: Option<&[u8]>,
) -> Result<Vec<u8>, extattr::AttrError> {
    let mut new = Vec::with_capacity(area.len() + 64);
    let mut value = value;
    for attribute in extattr::attrs(area, endian) {
        let a = attribute?;
        if a.namespace != space || a.name != short {
            new.extend_from_slice(&area[a.at..a.at + a.length]);
        } else if let Some(value) = value.take() {
            extattr::append(&mut new, endian, space, short, value);
        }
    }
    if let Some(value) = value {
        extattr::append(&mut new, endian, space, short, value);
    }
    Ok(new)
}

impl<L: Layout> Ufs<L> {
    fn attribute_area(&self) -> FsResult<AttributeArea> {
        self.limits().attributes.ok_or_else(|| Errno::NotSupported.into())
    }

    pub(crate) async fn get_xattr(&self, ino: Ino, full: &[u8]) -> FsResult<Vec<u8>> {
        let (space, short) = split(full)?;
        let AttributeArea { endian, .. } = self.attribute_area()?;
        let ip = self.inode_of(ino).await?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let area = self.layout().read_attributes(&ip).await?;
        for attribute in extattr::attrs(&area, endian) {
            let a = attribute.map_err(|e| corrupt(ino, e))?;
            if a.namespace == space && a.name == short {
                return Ok(a.content.to_vec());
            }
        }
        Err(Errno::NoAttribute.into())
    }

    pub(crate) async fn list_xattrs(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let AttributeArea { endian, .. } = self.attribute_area()?;
        let ip = self.inode_of(ino).await?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let area = self.layout().read_attributes(&ip).await?;
        let mut names = Vec::new();
        for attribute in extattr::attrs(&area, endian) {
            let a = attribute.map_err(|e| corrupt(ino, e))?;
            // Attributes of other name spaces, which have no prefix here, are kept but not listed.
            if let Some((prefix, _)) = SPACES.iter().find(|(_, s)| *s == a.namespace) {
                names.push([prefix, a.name].concat());
            }
        }
        Ok(names)
    }

    pub(crate) async fn set_xattr(
        &self,
        ino: Ino,
        full: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        let (space, short) = split(full)?;
        self.edit_xattrs(ino, |there, endian, area| {
            match mode {
                XattrMode::Create => require(!there(space, short)?, Errno::Exists)?,
                XattrMode::Replace => require(there(space, short)?, Errno::NoAttribute)?,
                XattrMode::Set => {}
            }
            Ok(with_attribute(area, endian, space, short, Some(value)))
        })
        .await
    }

    pub(crate) async fn remove_xattr(&self, ino: Ino, full: &[u8]) -> FsResult<()> {
        let (space, short) = split(full)?;
        self.edit_xattrs(ino, |there, endian, area| {
            require(there(space, short)?, Errno::NoAttribute)?;
            Ok(with_attribute(area, endian, space, short, None))
        })
        .await
    }

    /// Replaces an inode's area by what `edit` makes of it.
    async fn edit_xattrs(
        &self,
        ino: Ino,
        edit: impl FnOnce(
            &dyn Fn(u8, &[u8]) -> FsResult<bool>,
            Endian,
            &[u8],
        ) -> FsResult<Result<Vec<u8>, extattr::AttrError>>,
    ) -> FsResult<()> {
        let AttributeArea { bytes_max, endian } = self.attribute_area()?;
        let ip = self.inode_of(ino).await?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        let area = self.layout().read_attributes(&ip).await?;
        let there = |space: u8, short: &[u8]| {
            for attribute in extattr::attrs(&area, endian) {
                let a = attribute.map_err(|e| corrupt(ino, e))?;
                if a.namespace == space && a.name == short {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let new = edit(&there, endian, &area)?.map_err(|e| corrupt(ino, e))?;
        require(!flags::attributes_fixed(ip.record().flags), Errno::NotPermitted)?;
        require(new.len() <= bytes_max, Errno::NoSpace)?;
        let _pinned = self.pin([&ip]).await?;
        let mut op = self.begin(OpKind::Attributes).await?;
        self.layout().write_attributes(&mut op, &ip, &new).await?;
        let now = self.now();
        let what = What::SetAttributes { ino: ip.ino() };
        self.update_inode(&mut op, &ip, what, |d| d.ctime = now).await?;
        op.end().await.map_err(io_error)
    }
}

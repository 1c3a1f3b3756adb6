//! The mapping of owners, groups and permissions between disk and mount.

use ordo_vfs::FileType;

/// The mapping of owners, groups and permissions.
#[derive(Clone, Debug, Default)]
pub struct IdMap {
    /// Owners.
    pub users: Ids,
    /// Groups.
    pub groups: Ids,
    /// Permissions that nobody has in the mount.
    pub hidden: HiddenPermissions,
}

/// Permissions that files have on disk, but not in the mount. A change of a file's mode leaves them
/// as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenPermissions {
    /// The bits that are hidden of every directory.
    pub directories: u16,
    /// The bits that are hidden of every other file but symbolic links.
    pub files: u16,
}

impl HiddenPermissions {
    /// The bits that are hidden of a file of this type.
    pub fn of(&self, file_type: FileType) -> u16 {
        match file_type {
            FileType::Directory => self.directories,
            FileType::Symlink => 0,
            _ => self.files,
        }
    }

    /// The bits in an octal number, as `umask` takes it.
    ///
    /// # Errors
    /// A description of the fault in the text.
    pub fn parse(text: &str) -> Result<u16, String> {
        let bits = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
        bits.ok_or_else(|| format!("'{text}' is not an octal number up to 777"))
    }
}

/// The mapping of one kind of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// Numbers are the same on disk and in the mount.
    #[default]
    Same,
    /// Every file belongs to `here` in the mount. New files belong to `disk` on disk.
    All {
        /// The number in the mount.
        here: u32,
        /// The number on disk.
        disk: u32,
    },
    /// Pairs of numbers that change places: (in the mount, on disk).
    Pairs(Vec<(u32, u32)>),
}

impl Ids {
    /// The number in the mount for one on disk.
    pub fn here(&self, disk: u32) -> u32 {
        match self {
            Ids::Same => disk,
            Ids::All { here, .. } => *here,
            Ids::Pairs(pairs) => swap(pairs.iter().map(|(here, there)| (*there, *here)), disk),
        }
    }

    /// The number on disk for one in the mount.
    pub fn disk(&self, here: u32) -> u32 {
        match self {
            Ids::Same => here,
            Ids::All { disk, .. } => *disk,
            Ids::Pairs(pairs) => swap(pairs.iter().copied(), here),
        }
    }

    /// Parses `N` (every file belongs to N in the mount), `N:M` (and new files belong to M on
    /// disk), or `N=M+...` (N in the mount is M on disk, and the reverse).
    ///
    /// # Errors
    /// A description of the fault in the text.
    pub fn parse(text: &str) -> Result<Ids, String> {
        let number = |n: &str| n.parse::<u32>().map_err(|_| format!("'{n}' is not a number"));
        if text.contains('=') {
            let pairs = text.split('+').map(|pair| match pair.split_once('=') {
                Some((here, disk)) => Ok((number(here)?, number(disk)?)),
                None => Err(format!("'{pair}' is not HERE=DISK")),
            });
            return pairs.collect::<Result<_, _>>().map(Ids::Pairs);
        }
        let (here, disk) = text.split_once(':').unwrap_or((text, text));
        Ok(Ids::All { here: number(here)?, disk: number(disk)? })
    }
}

/// The partner of `n` in either direction, so that no two numbers become one.
fn swap(mut pairs: impl Iterator<Item = (u32, u32)> + Clone, n: u32) -> u32 {
    let partner = pairs.clone().find(|(from, _)| *from == n).map(|(_, to)| to);
    partner.or_else(|| pairs.find(|(_, to)| *to == n).map(|(from, _)| from)).unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is written with an owner must read back with the same owner, for every kind of
    /// mapping. Two owners must not become one when numbers change places.
    #[test]
    fn numbers_come_back() {
        for text in ["1000=0", "1000=0+1001=5"] {
            let ids = Ids::parse(text).unwrap();
            let mut seen: Vec<u32> = (0..1100).map(|n| ids.here(n)).collect();
            assert!((0..1100).all(|n| ids.here(ids.disk(n)) == n), "{text}");
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 1100, "{text}");
        }
        let all = Ids::parse("1000:7").unwrap();
        assert_eq!((all.here(0), all.disk(1000)), (1000, 7));
        assert!(Ids::parse("me").is_err() && Ids::parse("1=x").is_err());
    }
}

//! Owners and groups on disk, and as they are shown here.

/// Owners and groups.
#[derive(Clone, Debug, Default)]
pub struct IdMap {
    /// Owners.
    pub users: Ids,
    /// Groups.
    pub groups: Ids,
}

/// One kind of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// The same here and there.
    #[default]
    Same,
    /// Everything belongs to this one here. What is made belongs to `disk` there.
    All {
        /// Here.
        here: u32,
        /// On disk.
        disk: u32,
    },
    /// These change places: (here, on disk).
    Pairs(Vec<(u32, u32)>),
}

impl Ids {
    /// What a number on disk is here.
    pub fn here(&self, disk: u32) -> u32 {
        match self {
            Ids::Same => disk,
            Ids::All { here, .. } => *here,
            Ids::Pairs(pairs) => swap(pairs.iter().map(|(here, there)| (*there, *here)), disk),
        }
    }

    /// What a number here is on disk.
    pub fn disk(&self, here: u32) -> u32 {
        match self {
            Ids::Same => here,
            Ids::All { disk, .. } => *disk,
            Ids::Pairs(pairs) => swap(pairs.iter().copied(), here),
        }
    }

    /// Reads `N` (everything belongs to N here), `N:M` (and what is made belongs to M on disk), or
    /// `N=M+...` (N here is M on disk and the other way round).
    ///
    /// # Errors
    /// What is wrong with it.
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

/// The partner of `n`, in either direction, so that no two numbers become one.
fn swap(mut pairs: impl Iterator<Item = (u32, u32)> + Clone, n: u32) -> u32 {
    let partner = pairs.clone().find(|(from, _)| *from == n).map(|(_, to)| to);
    partner.or_else(|| pairs.find(|(_, to)| *to == n).map(|(from, _)| from)).unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written as somebody must be read as the same one, for every kind of map; two owners must
    /// not become one where numbers change places.
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

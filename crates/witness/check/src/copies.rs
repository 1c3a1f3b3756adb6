//! Comparison of the superblock with its copies.

use ordo_format::ufs2::superblock::{SBLOCK_SIZE, Superblock};

use crate::state::Run;
use crate::superblock::{Found, Search};
use crate::{CheckError, Finding};

/// The number of groups whose copies are compared with another copy.
const GROUPS_ASKED: u32 = 64;

/// The results of reading the copies.
#[derive(Default)]
pub(crate) struct Copies {
    /// The number of copies with the superblock's geometry.
    agreeing: u32,
    /// The first readable copy with another geometry, and its place in bytes.
    other: Option<(u64, Box<Superblock>)>,
}

impl Run<'_> {
    /// Checks a group's copy of the superblock: it must be usable, and of this file system.
    pub fn check_copy(&mut self, cg: u32, bytes: &[u8]) {
        let error = match Superblock::read_copy(bytes) {
            Err(error) => error.to_string(),
            Ok((_, endian)) if endian != self.endian => "of another byte order".into(),
            Ok((copy, _)) => match difference(&copy, &self.sb) {
                None => {
                    self.copies.agreeing += 1;
                    return;
                }
                Some((field, stored, right)) => {
                    let at = self.sb.byte_of(self.sb.cg_superblock(cg));
                    self.copies.other.get_or_insert_with(|| (at, Box::new(copy)));
                    format!("{field} is {stored}, but {right} in the superblock")
                }
            },
        };
        self.finding(Finding::SuperblockCopy { cg, error });
    }

    /// Whether no copy has the superblock's geometry. Valid once all groups were read.
    pub fn is_alone(&self) -> bool {
        self.options.copies && !self.from_copy && self.copies.agreeing == 0
    }
}

impl Search<'_> {
    /// The superblock according to its copies, if no copy has its geometry but two agree on
    /// another. Then a field of the superblock is wrong, and only the copies can correct it.
    pub async fn outvote(&mut self, run: &mut Run<'_>) -> Result<Option<Found>, CheckError> {
        let (sb, endian) = (&run.sb, run.endian);
        let found = match run.copies.other.take() {
            Some((at, copy)) => Some((at, *copy)),
            None => self.find_copy().await?.map(|(at, copy, _)| (at, copy)),
        };
        let Some((at, copy)) = found.filter(|(_, copy)| self.fits(copy)) else { return Ok(None) };
        let Some((field, right, stored)) = difference(&copy, sb) else { return Ok(None) };
        for cg in 0..copy.ncg.min(GROUPS_ASKED) {
            let place = copy.byte_of(copy.cg_superblock(cg));
            if place == at {
                continue;
            }
            let bytes = self.load(place, SBLOCK_SIZE).await?;
            let Some(Ok((other, order))) = bytes.map(|bytes| Superblock::read_copy(&bytes)) else {
                continue;
            };
            if order == endian && difference(&other, &copy).is_none() {
                let error = format!("{field} is {stored}, but {right} in the copies");
                let finding =
                    Finding::SuperblockDamaged { at: sb.sblockloc as u64, copy: at, error };
                let findings = vec![finding];
                return Ok(Some(Found { sb: copy, endian, from_copy: true, findings }));
            }
        }
        Ok(None)
    }
}

/// Whether two superblocks describe the same geometry.
pub(crate) fn same_shape(a: &Superblock, b: &Superblock) -> bool {
    difference(a, b).is_none()
}

/// The first geometry field that differs between two valid superblocks, with its value in each.
fn difference(a: &Superblock, b: &Superblock) -> Option<(&'static str, i64, i64)> {
    let shape = |s: &Superblock| {
        [
            ("bsize", i64::from(s.bsize)),
            ("fsize", s.fsize.into()),
            ("fsbtodb", s.fsbtodb.into()),
            ("sbsize", s.sbsize.into()),
            ("sblkno", s.sblkno.into()),
            ("cblkno", s.cblkno.into()),
            ("iblkno", s.iblkno.into()),
            ("dblkno", s.dblkno.into()),
            ("fpg", s.fpg.into()),
            ("ipg", s.ipg.into()),
            ("ncg", s.ncg.into()),
            ("size", s.size),
            ("cgsize", s.cgsize.into()),
            ("csaddr", s.csaddr),
            ("cssize", s.cssize.into()),
            ("contigsumsize", s.contigsumsize.into()),
            ("maxsymlinklen", s.maxsymlinklen.into()),
            ("sblockloc", s.sblockloc),
        ]
    };
    let older = a.older_shape().into_iter().zip(b.older_shape());
    let pairs = shape(a).into_iter().zip(shape(b)).chain(older);
    pairs.map(|((field, a), (_, b))| (field, a, b)).find(|(_, a, b)| a != b)
}

//! The superblock's copies against it, and it against them.

use ordo_format::ufs2::superblock::{SBLOCK_SIZE, Superblock};

use crate::state::Run;
use crate::superblock::{Found, Search};
use crate::{CheckError, Finding};

/// Groups whose copies are asked whether they agree with another one.
const GROUPS_ASKED: u32 = 64;

/// What the copies say.
#[derive(Default)]
pub(crate) struct Copies {
    /// Those that are of the superblock's shape.
    agreeing: u32,
    /// The first one that can be read and is of another, and where it is, in bytes.
    other: Option<(u64, Box<Superblock>)>,
}

impl Run<'_> {
    /// The copy of the superblock in a group: usable, and of this file system.
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

    /// Whether no copy is of the superblock's shape. Asked once all groups were looked at.
    pub fn is_alone(&self) -> bool {
        self.options.copies && !self.from_copy && self.copies.agreeing == 0
    }
}

impl Search<'_> {
    /// The superblock as its copies have it, where none is of its shape, but two are of one other shape: a
    /// field of it is wrong of which nothing but the copies can tell.
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

/// Whether two superblocks describe the same layout.
pub(crate) fn same_shape(a: &Superblock, b: &Superblock) -> bool {
    difference(a, b).is_none()
}

/// The first field of the layout that differs between two valid superblocks, and what it is in each.
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
    let pairs = shape(a).into_iter().zip(shape(b));
    pairs.map(|((field, a), (_, b))| (field, a, b)).find(|(_, a, b)| a != b)
}

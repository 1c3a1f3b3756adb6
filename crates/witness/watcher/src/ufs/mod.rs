//! The decoder of UFS2, written by any implementation.
//!
//! The places of the superblock, its copies, the summary, the cylinder groups' headers and the
//! inodes follow from the geometry (`area`). The meaning of a block in the data area follows from
//! the pointers to it: `files` keeps, from every inode and indirect block that is written or read,
//! the file of each fragment (`owners`). A block that is written before its pointer is named by its
//! `contents`. `learned` puts these together; `prime` reads the whole device at the start.
//!
//! A block may have a new owner in memory long before the pointer to it reaches the disk. So if
//! contents cannot belong to the known owner, the owner is a guess again.

mod area;
mod contents;
mod files;
mod learned;
mod owners;
mod prime;

#[cfg(test)]
mod tests;

use crate::decoder::{Contents, Decoder, DecoderState};
use crate::kind::{BlockMeaning, ClassifiedRange, EntryChange};
use crate::own_log;
use learned::{ClassifiedParts, LearnedState, RangeData, RequestDetail};

pub(crate) use prime::{probe, sight};

struct Ufs {
    learned: LearnedState,
}

impl Ufs {
    /// Learns the geometry from a superblock in a request.
    fn see_superblock(&mut self, offset: u64, data: &[u8], state: &mut DecoderState) {
        for (sb, endian) in prime::superblocks(offset, data) {
            // A valid superblock at another standard place is a copy or a remnant; the present
            // geometry stays.
            if self.learned.sb.sblockloc == sb.sblockloc && !self.learned.same_geometry(&sb, endian)
            {
                state.pending.give_up();
                self.learned = LearnedState::new(&sb, endian);
            }
        }
    }

    /// Passes on the inodes and names in a write that was classified with its changes.
    fn tell(parts: &[ClassifiedRange], state: &mut DecoderState) {
        for part in parts {
            match &part.what {
                BlockMeaning::Inodes { changed, .. } => {
                    state.inodes.extend(changed.iter().map(|(ino, _)| *ino));
                }
                BlockMeaning::File { ino, entries: Some(entries), .. } => {
                    for entry in entries {
                        let (name, child) = match entry {
                            EntryChange::Added { name, ino } => (name, ino),
                            EntryChange::Redirected { name, to, .. } => (name, to),
                            EntryChange::Removed { .. } => continue,
                        };
                        state.names.seen(*ino, name, (*child).into());
                    }
                }
                _ => {}
            }
        }
    }
}

impl Decoder for Ufs {
    fn system(&self) -> &'static str {
        "ufs"
    }

    fn block_shift(&self) -> u32 {
        self.learned.sb.bshift as u32
    }

    fn claim_shift(&self) -> u32 {
        self.learned.sb.fshift as u32
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        if let Some(part) = own_log::part(offset, data) {
            out.push(part);
            return;
        }
        let detail = if state.only_kinds { RequestDetail::Write } else { RequestDetail::Changes };
        let mut named =
            ClassifiedParts { parts: std::mem::take(out), looks: std::mem::take(&mut state.looks) };
        self.learned.name(detail, &RangeData::of(offset, data), &mut named);
        self.see_superblock(offset, data, state);
        for part in &named.parts {
            let from = (part.offset - offset) as usize;
            self.learned.absorb_write(part, &data[from..from + part.len as usize], state);
        }
        if !state.only_kinds {
            Ufs::tell(&named.parts, state);
        }
        (*out, state.looks) = (named.parts, named.looks);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        if let Some(part) = data.and_then(|data| own_log::part(offset, data)) {
            out.push(part);
            return;
        }
        let mut named = ClassifiedParts { parts: std::mem::take(out), looks: Vec::new() };
        self.learned.name(RequestDetail::Read, &RangeData { offset, len, data }, &mut named);
        if let Some(data) = data {
            self.see_superblock(offset, data, state);
            for part in &named.parts {
                let from = (part.offset - offset) as usize;
                self.learned.absorb_read(part, &data[from..from + part.len as usize], state);
            }
        }
        *out = named.parts;
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.learned.contents(ino)
    }
}

//! Priming: learns the state of a device before requests pass.

use ordo_format::ntfs::{Boot, LogShape, RecordPage, unprotected};

use super::log::{NtfsLog, PAGE, newest};
use super::{Flat, LOG, MFT, Ntfs, ROOT};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::graph::Graph;
use crate::kind::Class;
use crate::runs::{Role, Run};

/// The number of bytes of file records that are read at once.
const PIECE: u64 = 1 << 18;
/// The number of rounds in which `$MFT` is read: with many runs its own records continue in later
/// ones, which must be found first.
const ROUNDS: usize = 16;

/// The decoder of an image, where it holds NTFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Boot::SIZE];
    image.read_at(0, &mut bytes).ok()?;
    let g = Boot::read(&bytes)?;
    let mut ntfs = Ntfs { g, graph: Graph::new(Flat), log: NtfsLog::default(), events: Vec::new() };
    state.names.set_root(ROOT);
    let mut first = vec![0; 1 << g.record_shift];
    image.read_at(g.mft << g.cluster_shift, &mut first).ok()?;
    ntfs.records_written(0, &first, state);
    for _ in 0..ROUNDS {
        let before = ntfs.pieces(MFT, Class::InodeBlock);
        for run in &before {
            ntfs.read_records(run, image, state);
        }
        if before == ntfs.pieces(MFT, Class::InodeBlock) {
            break;
        }
    }
    ntfs.read_log(image);
    state.claims.clear();
    Some(Box::new(ntfs))
}

impl Ntfs {
    /// The runs of a file's contents of one kind, in the order of the file.
    fn pieces(&self, ino: u64, class: Class) -> Vec<Run> {
        let all = self.graph.runs.iter().filter(|run| run.ino == ino && run.class == class);
        let mut all: Vec<Run> = all.copied().collect();
        all.sort_by_key(|run| match run.role {
            Role::Data { lbn } => lbn,
            _ => u64::MAX,
        });
        all
    }

    fn read_records(&mut self, run: &Run, image: &dyn DiskImage, state: &mut DecoderState) {
        let shift = self.g.cluster_shift;
        let (mut at, end) = (run.start << shift, run.end() << shift);
        let mut piece = Vec::new();
        while at < end {
            piece.resize(PIECE.min(end - at) as usize, 0);
            if image.read_at(at, &mut piece).is_err() {
                return;
            }
            self.records_written(self.byte_of(run, at), &piece, state);
            state.claims.clear();
            at += piece.len() as u64;
        }
    }

    /// Reads the log's shape and the LSN of its newest record: later records are new.
    fn read_log(&mut self, image: &dyn DiskImage) {
        let runs = self.pieces(LOG, Class::JournalRecords);
        let shift = self.g.cluster_shift;
        let Some(first) = runs.first() else { return };
        let mut page = vec![0; PAGE];
        let restart = [0, PAGE as u64].into_iter().find_map(|at| {
            image.read_at((first.start << shift) + at, &mut page).ok()?;
            LogShape::read(&unprotected(&page)?)
        });
        self.log.shape = restart;
        let Some(shape) = restart else { return };
        let mut head = [0; RecordPage::SIZE];
        for run in runs {
            for at in ((run.start << shift)..(run.end() << shift)).step_by(shape.page_size) {
                if image.read_at(at, &mut head).is_ok()
                    && let Some(lsn) = newest(&head, &shape)
                {
                    self.log.begin_after(lsn);
                }
            }
        }
    }
}

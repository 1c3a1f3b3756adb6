//! The decoder of UFS2: the classifier behind the trait that watchers of any file system use.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ordo_block::{IoBuf, Operation, WriteFlags};
use ordo_format::ufs2::dir;
use ordo_runtime::Time;

use super::owners::Role;
use super::view::{Ask, View};
use super::{Classifier, named};
use crate::decoder::{Contents, Decoder, DecoderState, DiskImage};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, EntryChange};
use crate::stats::Stats;

const ROOT: u64 = 2;
/// The largest read while learning.
const READ: u64 = 1 << 20;

struct Ufs {
    classifier: Rc<Classifier>,
    block_shift: u32,
}

/// The decoder of an image, where it holds UFS2.
pub(crate) fn probe(
    image: &dyn DiskImage,
    decoder_state: &mut DecoderState,
) -> Option<Box<dyn Decoder>> {
    let classifier = Classifier::new();
    let bytes = image.bytes();
    let read = async |at: u64, len: u64| {
        let mut all = vec![0; len.min(bytes.saturating_sub(at)) as usize];
        image.read_at(at, &mut all)?;
        Ok::<_, io::Error>(IoBuf::from_slice(&all))
    };
    if !at_once(classifier.learn(bytes, READ, &read))?.ok()? {
        return None;
    }
    decoder_state.names.set_root(ROOT);
    let shift = classifier.with_view(|view| {
        names(view, image, decoder_state);
        view.sb.bshift
    })?;
    Some(Box::new(Ufs { classifier, block_shift: shift as u32 }))
}

/// The result of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Learns the names in the directories of the image.
fn names(view: &View, image: &dyn DiskImage, decoder_state: &mut DecoderState) {
    // Directories are read in the order of the device: the last name that is seen of a file is its path.
    let all: BTreeMap<u64, u64> = view.files.directories().into_iter().collect();
    for (start, frags) in all {
        let Some(extent) = view.files.owners.at(start) else { continue };
        let mut block = vec![0; view.sb.byte_of(frags) as usize];
        if image.read_at(view.sb.byte_of(start), &mut block).is_ok() {
            for entry in dir::entries(&block, view.endian).flatten() {
                if entry.ino != 0 {
                    decoder_state.names.seen(extent.ino.into(), entry.name, entry.ino.into());
                }
            }
        }
    }
}

impl Decoder for Ufs {
    fn system(&self) -> &'static str {
        "ufs"
    }

    fn block_shift(&self) -> u32 {
        self.block_shift
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        decoder_state: &mut DecoderState,
    ) {
        let (op, flags, len) = (Operation::Write, decoder_state.flags, data.len() as u64);
        let mut state = self.classifier.state.borrow_mut();
        let parts = state.name(Ask::Changes, offset, len, Some(data));
        let request = named(0, op, offset, len, flags, Time::ZERO, parts);
        state.written(&request, data);
        for part in &request.parts {
            match &part.what {
                BlockMeaning::Inodes { changed, .. } => {
                    decoder_state.inodes.extend(changed.iter().map(|(ino, _)| *ino));
                }
                BlockMeaning::File { ino, entries: Some(entries), .. } => {
                    for entry in entries {
                        let (name, child) = match entry {
                            EntryChange::Added { name, ino } => (name, ino),
                            EntryChange::Redirected { name, to, .. } => (name, to),
                            EntryChange::Removed { .. } => continue,
                        };
                        decoder_state.names.seen(*ino, name, (*child).into());
                    }
                }
                _ => {}
            }
        }
        out.extend(request.parts);
    }

    fn read(&mut self, offset: u64, len: u64, data: Option<&[u8]>, out: &mut Vec<ClassifiedRange>) {
        let (op, flags) = (Operation::Read, WriteFlags::empty());
        let mut state = self.classifier.state.borrow_mut();
        let parts = state.name(Ask::Read, offset, len, data);
        let request = named(0, op, offset, len, flags, Time::ZERO, parts);
        state.read(&request, data);
        out.extend(request.parts);
    }

    fn write_unseen(&mut self, offset: u64, len: u64, out: &mut Vec<ClassifiedRange>) {
        let (op, flags) = (Operation::Write, WriteFlags::empty());
        let mut state = self.classifier.state.borrow_mut();
        let parts = state.name(Ask::Read, offset, len, None);
        let request = named(0, op, offset, len, flags, Time::ZERO, parts);
        state.count(&request);
        out.extend(request.parts);
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        let of = |view: &mut View| {
            let sb = &view.sb;
            let extents = view.files.owners.iter().filter(|e| u64::from(e.ino) == ino);
            let data = extents.filter(|e| view.files.class_of(e) == Class::FileData);
            let mut all: Vec<Contents> = data
                .filter_map(|e| {
                    let Role::Data { lbn } = e.role else { return None };
                    let (offset, len) = (sb.byte_of(e.start), sb.byte_of(e.frags.into()));
                    Some(Contents { at: lbn << sb.bshift, offset, len })
                })
                .collect();
            all.sort_unstable_by_key(|c| c.offset);
            all
        };
        self.classifier.with_view(of).unwrap_or_default()
    }

    fn counted(&self) -> Option<Stats> {
        Some(self.classifier.finish())
    }
}

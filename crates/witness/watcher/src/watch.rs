//! The watcher: a [`TapSink`] around the [`Decoder`] of any format.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_block::{Operation, WriteFlags};
use ordo_runtime::Time;
use rustc_hash::FxHashSet;

use crate::births::Births;
use crate::decoder::{Claim, Contents, Decoder, DecoderState, DiskImage, Share, unknown};
use crate::journal::Transaction;
use crate::kind::{BlockMeaning, Class, ClassifiedRange, ClassifiedRequest, Looks, Reason};
use crate::names::{NameEvent, Names};
use crate::own_log;
use crate::parts::{Ends, PartFindings, PartSoFar};
use crate::pending::Note;
use crate::stats::{Stats, TrafficCounts};

/// A classified request, as listeners receive it.
#[derive(Debug)]
pub struct ClassifiedEvent<'a> {
    /// The request with its meaning.
    pub named: &'a ClassifiedRequest,
    /// Transactions that the request checkpoints: the block that is written at its fixed location,
    /// and the transaction's number.
    pub checkpoints: &'a [(u64, u64)],
    /// The file system's block size as a shift.
    pub block_shift: u32,
    /// The unit of the blocks in `claims`, as a shift.
    pub claim_shift: u32,
    /// The unit of the blocks in `checkpoints`, as a shift.
    pub home_shift: u32,
    /// Inodes that the request changes, in the log or at their fixed location.
    pub inodes: &'a [u64],
    /// Blocks whose owner or kind the request has shown.
    pub claims: &'a [Claim],
    /// The looks of unclaimed parts, by their offset on the device and in this order. The contents
    /// of a part that is not here were not judged.
    pub looks: &'a [(u64, Looks)],
    /// Ranges of the request that belong to files, besides blocks whose names give their file.
    pub shares: &'a [Share],
    /// Whether a pointer may reach the device long after the block that it leads to; see
    /// [`Decoder::pointers_come_late`].
    pub pointers_come_late: bool,
    /// Whether another file system was found on the device since the last request: earlier blocks
    /// were not its own.
    pub has_other_system: bool,
    names: &'a Names,
    /// The names by which paths are made: of this device, or of the one with the metadata.
    paths: &'a Names,
}

impl ClassifiedEvent<'_> {
    /// The path of a file as it was last seen; `None` if a name on the way was not seen.
    pub fn path(&self, ino: u64) -> Option<Arc<str>> {
        self.paths.path(ino)
    }

    /// For a file without a path, the inode on the way to the root whose name is missing.
    pub fn missing(&self, ino: u64) -> Option<u64> {
        self.paths.missing(ino)
    }

    /// Inodes that got names, and inodes whose files are gone, in order.
    pub fn name_events(&self) -> &[NameEvent] {
        self.names.name_events()
    }
}

/// Reads under way that are remembered until they complete. No device has so many at once.
const UNDER_WAY_MAX: usize = 1 << 16;

/// The size of a block as a shift, where no file system is known.
const UNKNOWN_SHIFT: u32 = 12;

type Listener = Box<dyn FnMut(&ClassifiedEvent<'_>)>;

struct State {
    /// `None` until a file system is on the device.
    decoder: Option<Box<dyn Decoder>>,
    decoder_state: DecoderState,
    stats: Stats,
    read_end: Option<u64>,
    write_end: Option<u64>,
    /// Reads under way that begin at the end of the previous read.
    following: FxHashSet<u64>,
    /// The present request: its allocation is reused from request to request.
    named: ClassifiedRequest,
    shares: Vec<TrafficCounts>,
    checkpoints: Vec<(u64, u64)>,
    /// The state at the end of the last part of the recording.
    part: PartSoFar,
    /// Looks for file systems that are made; `None` if the device's contents cannot be seen.
    births: Option<Births>,
    has_other_system: bool,
}

/// Names every request to a device and counts traffic by kind.
pub struct Watch {
    state: RefCell<State>,
    listener: RefCell<Option<Listener>>,
    /// The number of the present request, if it does not come from the tap.
    number: RefCell<Option<Rc<Cell<u64>>>>,
    /// The watcher of the device with the metadata, if this one is of the contents of files or of
    /// the log alone.
    metadata: RefCell<Option<Rc<Watch>>>,
    /// The watcher of the device with the contents of files or with the log, if this one is of the
    /// metadata.
    data: RefCell<Weak<Watch>>,
    /// Whether this is the device with the log of the one with the metadata.
    is_log: Cell<bool>,
}

/// Decoders that know a file system by what is on the device, tried in this order.
type Probe = fn(&dyn DiskImage, &mut DecoderState) -> Option<Box<dyn Decoder>>;
const PROBES: &[Probe] = &[
    crate::ext::probe,
    crate::xfs::probe,
    crate::reiser::probe,
    crate::jfs::probe,
    crate::ntfs::probe,
    crate::nilfs::probe,
    crate::f2fs::probe,
    crate::lfs::probe,
    crate::btrfs::probe,
    crate::ufs::probe,
    crate::disk::probe,
    // Log devices come last: little in a log identifies it, so its probe might match by chance.
    crate::jfs::outside::probe,
    crate::xfs::outside::probe,
];

/// Decoders that know a file system by its superblock, when that is read or written at this offset.
type Sight = fn(u64, &[u8], &mut DecoderState) -> Option<Box<dyn Decoder>>;
const SIGHTS: &[Sight] = &[crate::ufs::sight];

fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    PROBES.iter().find_map(|probe| probe(image, state))
}

impl Watch {
    /// A watcher of a device that now holds the contents of `image`; `None` if it holds no known
    /// file system.
    pub fn over(image: &dyn DiskImage) -> Option<Rc<Watch>> {
        let watch = Watch::over_any(image);
        let is_known = watch.state.borrow().decoder.is_some();
        is_known.then_some(watch)
    }

    /// A watcher of a device that now holds the contents of `image`. Where no known file system is
    /// on it, requests have no names, except those of Ordo's own logs, until a superblock passes:
    /// one of UFS2, the format whose blocks are known by their places.
    pub fn over_any(image: &dyn DiskImage) -> Rc<Watch> {
        let mut decoder_state = DecoderState::default();
        let decoder = probe(image, &mut decoder_state);
        let watch = Watch::new(decoder);
        // Traffic starts at zero, but names learned from the device are kept.
        decoder_state.names.forget_news();
        watch.state.borrow_mut().decoder_state.names = decoder_state.names;
        watch
    }

    /// A watcher for each of the devices that now hold the contents of `images`, as
    /// [`over_any`](Self::over_any). If two of them are the devices of one file system, they are
    /// [joined](Self::join).
    pub fn over_each(images: &[&dyn DiskImage]) -> Vec<Rc<Watch>> {
        let watches: Vec<_> = images.iter().map(|image| Watch::over_any(*image)).collect();
        for later in 1..watches.len() {
            for earlier in 0..later {
                let [one, other] = [earlier, later].map(|n| (&watches[n], images[n]));
                Watch::join(one, other);
            }
        }
        watches
    }

    /// Joins the watchers of two devices, each with its device's contents before the first request.
    /// If one of them has the metadata of a file system and the other one its data, the files of
    /// the data's blocks are learned from the metadata. When a request to the metadata shows owners
    /// of such blocks, or changes names, the listener of the data is told of an event without
    /// parts. If the other one has its log, writes to the log teach the file system what one of its
    /// own would, and the listener of the metadata is told.
    pub fn join(one: (&Rc<Watch>, &dyn DiskImage), other: (&Rc<Watch>, &dyn DiskImage)) {
        let member = |watch: &Watch| watch.state.borrow().decoder.as_ref().and_then(|d| d.pair());
        let (Some(a), Some(b)) = (member(one.0), member(other.0)) else { return };
        let ((metadata, image), (data, data_image)) = match a.has_metadata {
            true => (one, other),
            false => (other, one),
        };
        if a.uuid != b.uuid || a.has_metadata == b.has_metadata {
            return;
        }
        let given = {
            let State { decoder, decoder_state, .. } = &mut *metadata.state.borrow_mut();
            let given = decoder.as_mut().and_then(|d| d.give_blocks(image, decoder_state));
            decoder_state.names.forget_news();
            given
        };
        let adopt = |decoder: &mut Box<dyn Decoder>| decoder.adopt_log(data_image);
        match (given, &mut data.state.borrow_mut().decoder) {
            (Some(blocks), Some(decoder)) => decoder.take_blocks(blocks),
            _ if metadata.state.borrow_mut().decoder.as_mut().is_some_and(adopt) => {
                data.is_log.set(true);
            }
            _ => return,
        }
        *data.metadata.borrow_mut() = Some(metadata.clone());
        *metadata.data.borrow_mut() = Rc::downgrade(data);
    }

    /// A watcher with the caller's own decoder.
    pub fn with(decoder: Box<dyn Decoder>) -> Rc<Watch> {
        Watch::new(Some(decoder))
    }

    fn new(decoder: Option<Box<dyn Decoder>>) -> Rc<Watch> {
        let (op, flags) = (Operation::Write, WriteFlags::empty());
        let (offset, len, at, parts) = (0, 0, Time::ZERO, Vec::new());
        let state = State {
            decoder,
            decoder_state: DecoderState::default(),
            stats: Stats::default(),
            read_end: None,
            write_end: None,
            following: FxHashSet::default(),
            named: ClassifiedRequest { id: 0, op, offset, len, flags, at, parts },
            shares: Vec::new(),
            checkpoints: Vec::new(),
            part: PartSoFar::default(),
            births: None,
            has_other_system: false,
        };
        let (listener, number) = (RefCell::default(), RefCell::default());
        let (state, metadata, data) = (RefCell::new(state), RefCell::default(), RefCell::default());
        Rc::new(Watch { state, listener, number, metadata, data, is_log: Cell::new(false) })
    }

    /// Calls `listener` with every read and write from now on: a write when it is issued, a read
    /// when it has completed.
    pub fn listen(&self, listener: impl FnMut(&ClassifiedEvent<'_>) + 'static) {
        *self.listener.borrow_mut() = Some(Box::new(listener));
    }

    /// Leaves out everything but kinds from now on: names of files and details of changes. Counting
    /// is faster so.
    pub fn count_only(&self) {
        self.state.borrow_mut().decoder_state.only_kinds = true;
    }

    /// Recognises file systems that are made from now on. `image` shows the device's present
    /// contents at any time; when a request is shown, all earlier ones that have completed must be
    /// in it.
    pub fn follow(&self, image: Rc<dyn DiskImage>) {
        self.state.borrow_mut().births = Some(Births::new(image));
    }

    /// Whether the request must be shown before it is carried out. Others may be shown later: only
    /// [what they contain](Issued::data) is looked at, and not the device.
    pub fn must_see_now(&self, r: &Issued<'_>) -> bool {
        let written = matches!(r.op, Operation::Write | Operation::Discard).then_some(r.offset);
        let state = self.state.borrow();
        state.births.as_ref().is_some_and(|births| births.may_look(written))
    }

    /// Starts counting again, and keeps everything that was learned. Guesses so far are not settled
    /// any more.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        state.stats = Stats::default();
        state.decoder_state.pending.restart();
    }

    /// Takes the number of each request from `now`, and not from the tap. A recording may also
    /// count marks, which no tap shows, and one request of a recording may be several at the tap.
    pub fn number_by(&self, now: Rc<Cell<u64>>) {
        *self.number.borrow_mut() = Some(now);
    }

    fn number(&self, id: u64) -> u64 {
        self.number.borrow().as_ref().map_or(id, |now| now.get())
    }

    /// The file system's name.
    pub fn system(&self) -> &'static str {
        self.state.borrow().decoder.as_ref().map_or("none", |d| d.system())
    }

    /// The reason to doubt the names that are given; `None` if there is none.
    pub fn doubt(&self) -> Option<String> {
        self.state.borrow().decoder.as_ref().and_then(|d| d.doubt())
    }

    /// The size of the journal or log on the device in bytes; `None` if there is none, or it is not
    /// known.
    pub fn log_bytes(&self) -> Option<u64> {
        self.state.borrow().decoder.as_ref().and_then(|d| d.log_bytes())
    }

    /// The traffic at the end of a trace. Blocks without a pointer to them are counted by their
    /// most likely kind; [`Stats::unclaimed`] is their number.
    pub fn finish(&self) -> Stats {
        let mut state = self.state.borrow_mut();
        if let Some(late) = state.decoder.as_mut().map(|decoder| decoder.late_claims()) {
            state.decoder_state.claims = late;
            state.settle();
        }
        let mut stats = state.stats.clone();
        stats.unclaimed += state.decoder_state.pending.unclaimed();
        stats
    }

    /// The traffic so far.
    pub fn so_far(&self) -> Stats {
        let state = self.state.borrow();
        let unclaimed = state.stats.unclaimed + state.decoder_state.pending.unclaimed();
        Stats { unclaimed, ..state.stats.clone() }
    }

    /// Ends a part of a recording: returns what was found since the last end. The watcher goes on
    /// with everything that it knows. No request may be under way. After the `last` part nothing
    /// more is shown.
    pub fn end_part(&self, last: bool) -> PartFindings {
        if last {
            let _ = self.finish();
        }
        let system = self.system();
        let State { stats, decoder_state, part, read_end, write_end, .. } =
            &mut *self.state.borrow_mut();
        part.end(system, stats, decoder_state, Ends { write: *write_end, read: *read_end })
    }

    /// Calls `look` with the transactions so far, without those of parts that have ended.
    pub fn transactions<T>(&self, look: impl FnOnce(&[Transaction]) -> T) -> T {
        look(self.state.borrow().decoder_state.journal.transactions())
    }

    /// The ranges that hold a file's contents now, as far as they have blocks of their own.
    pub fn contents(&self, ino: u64) -> Vec<Contents> {
        self.state.borrow().decoder.as_ref().map_or_else(Vec::new, |d| d.contents(ino))
    }

    /// The path of a file as it was last seen; `None` if a name on the way was not seen.
    pub fn path(&self, ino: u64) -> Option<Arc<str>> {
        match &*self.metadata.borrow() {
            Some(metadata) => metadata.path(ino),
            None => self.state.borrow().decoder_state.names.path(ino),
        }
    }

    /// The size of a block of the file system, in bytes.
    pub fn block_bytes(&self) -> u64 {
        let state = self.state.borrow();
        1 << state.decoder.as_ref().map_or(UNKNOWN_SHIFT, |d| d.block_shift())
    }

    /// The inode of the file that has this path; `None` if its name was not seen.
    pub fn find(&self, path: &str) -> Option<u64> {
        match &*self.metadata.borrow() {
            Some(metadata) => metadata.find(path),
            None => self.state.borrow().decoder_state.names.find(path),
        }
    }

    /// Ends the trace for [`Watch::path`]. Names that are in doubt because their directory was not
    /// written again are given to the files that have their inodes now.
    pub fn end_names(&self) {
        self.state.borrow_mut().decoder_state.names.end();
    }

    /// The number of copies in the journal whose transaction is not known.
    pub fn orphan_blocks(&self) -> u64 {
        self.state.borrow().decoder_state.journal.orphan_blocks()
    }

    /// Tells the listener of the present request, and that of the device with the contents of files
    /// of what the request shows about them.
    fn tell(&self) {
        self.tell_as(false);
        if let Some(data) = self.data.borrow().upgrade() {
            data.tell_of_metadata(self);
        }
    }

    /// Tells the listener of owners and names that a request to the device with the metadata has
    /// shown.
    fn tell_of_metadata(&self, metadata: &Watch) {
        let has_names = !metadata.state.borrow().decoder_state.names.name_events().is_empty();
        let mut state = self.state.borrow_mut();
        let mut claims =
            state.decoder.as_mut().map_or_else(Vec::new, |decoder| decoder.late_claims());
        if self.is_log.get() {
            claims = state.claims_of(&metadata.state.borrow());
        }
        if claims.is_empty() && !has_names {
            return;
        }
        let (flags, at) = (WriteFlags::empty(), metadata.state.borrow().named.at);
        state.begin(self.number(0), Operation::Flush, (0, 0), flags, at);
        state.decoder_state.claims = claims;
        state.settle();
        drop(state);
        self.tell_as(true);
    }

    /// Takes in a write to the log of the file system on the device of another watcher, and tells
    /// both listeners.
    fn write_log(&self, metadata: &Watch, r: &Issued<'_>, data: &[u8]) {
        {
            let mut state = self.state.borrow_mut();
            let main = &mut *metadata.state.borrow_mut();
            state.begin(r.id, r.op, (r.offset, r.len), r.flags, r.at);
            state.decoder_state.journal.at(r.id, r.at, r.epoch);
            main.begin(metadata.number(0), Operation::Flush, (0, 0), WriteFlags::empty(), r.at);
            let (Some(decoder), Some(own)) = (&mut main.decoder, &state.decoder) else { return };
            let shift = own.block_shift();
            // The transactions are those of the log's device.
            std::mem::swap(&mut main.decoder_state.journal, &mut state.decoder_state.journal);
            let parts = &mut state.named.parts;
            decoder.log_write(r.offset, data, parts, &mut main.decoder_state);
            std::mem::swap(&mut main.decoder_state.journal, &mut state.decoder_state.journal);
            state.decoder_state.shares = std::mem::take(&mut main.decoder_state.shares);
            state.decoder_state.inodes.clone_from(&main.decoder_state.inodes);
            state.decoder_state.claims = state.claims_of(main);
            state.count(shift);
            main.settle();
        }
        metadata.tell_as(false);
        self.tell_as(true);
    }

    /// Tells the listener of the present request to this device, or of what one to the device with
    /// the metadata has shown.
    fn tell_as(&self, is_of_metadata: bool) {
        let listener = self.listener.take();
        if let Some(mut listener) = listener {
            let state = self.state.borrow();
            let metadata = self.metadata.borrow().clone();
            let other = metadata.as_ref().map(|watch| watch.state.borrow());
            let paths =
                other.as_ref().map_or(&state.decoder_state.names, |s| &s.decoder_state.names);
            let names = if is_of_metadata { paths } else { &state.decoder_state.names };
            let shift =
                |of: fn(&dyn Decoder) -> u32| state.decoder.as_deref().map_or(UNKNOWN_SHIFT, of);
            listener(&ClassifiedEvent {
                named: &state.named,
                checkpoints: &state.checkpoints,
                block_shift: shift(|d| d.block_shift()),
                claim_shift: shift(|d| d.claim_shift()),
                home_shift: shift(|d| d.home_shift()),
                inodes: &state.decoder_state.inodes,
                claims: &state.decoder_state.claims,
                looks: &state.decoder_state.looks,
                shares: &state.decoder_state.shares,
                pointers_come_late: state
                    .decoder
                    .as_deref()
                    .is_some_and(Decoder::pointers_come_late),
                has_other_system: state.has_other_system,
                names,
                paths,
            });
            drop((other, state));
            self.listener.borrow_mut().get_or_insert(listener);
        }
    }
}

impl State {
    /// The claims of the present request to the device with the metadata, if this one's blocks have
    /// the same size.
    fn claims_of(&self, metadata: &State) -> Vec<Claim> {
        let shift = |state: &State| state.decoder.as_ref().map(|d| d.claim_shift());
        match shift(self) == shift(metadata) {
            true => metadata.decoder_state.claims.clone(),
            false => Vec::new(),
        }
    }

    fn begin(
        &mut self,
        id: u64,
        op: Operation,
        (offset, len): (u64, u64),
        flags: WriteFlags,
        at: Time,
    ) {
        let mut parts = std::mem::take(&mut self.named.parts);
        parts.clear();
        self.named = ClassifiedRequest { id, op, offset, len, flags, at, parts };
        self.checkpoints.clear();
        self.decoder_state.begin();
    }

    /// Asks the decoders again, if a file system may have been made. `read` is the offset of a
    /// read.
    fn look_for_births(&mut self, read: Option<u64>) {
        self.has_other_system = false;
        let Some(births) = &mut self.births else { return };
        if !births.is_due(self.named.id, read, self.decoder_state.journal.begun()) {
            return;
        }
        let mut found = DecoderState::default();
        self.decoder = probe(&*births.image, &mut found);
        let before = std::mem::replace(&mut self.decoder_state.names, found.names);
        self.decoder_state.names.take_over(&before);
        self.decoder_state.pending.give_up();
        self.decoder_state.journal.end_system();
        self.has_other_system = true;
    }

    /// Finds the file system where none is known yet and the present request shows it.
    fn look_for_superblock(&mut self, data: Option<&[u8]>) {
        let (None, Some(data)) = (&self.decoder, data) else { return };
        let see = |sight: &Sight| sight(self.named.offset, data, &mut self.decoder_state);
        self.decoder = SIGHTS.iter().find_map(see);
    }

    /// Names the present request where no file system is known.
    fn name_without_decoder(&mut self, data: Option<&[u8]>) {
        let (offset, len) = (self.named.offset, self.named.len);
        let log = data.and_then(|data| own_log::part(offset, data));
        let part = log.unwrap_or_else(|| unknown(offset, len, Reason::NoSuperblock));
        self.named.parts.push(part);
        self.count(UNKNOWN_SHIFT);
    }

    fn write(&mut self, r: &Issued<'_>, data: &[u8]) {
        self.begin(r.id, r.op, (r.offset, r.len), r.flags, r.at);
        self.look_for_births(None);
        self.births.iter_mut().for_each(|births| births.written(r.offset));
        self.decoder_state.journal.at(r.id, r.at, r.epoch);
        self.decoder_state.flags = r.flags;
        self.look_for_superblock(Some(data));
        let Some(decoder) = &mut self.decoder else {
            return self.name_without_decoder(Some(data));
        };
        decoder.write(r.offset, data, &mut self.named.parts, &mut self.decoder_state);
        let (shift, home, claim) =
            (decoder.block_shift(), decoder.home_shift(), decoder.claim_shift());
        self.count(shift);
        let DecoderState { journal, looks, pending, .. } = &mut self.decoder_state;
        pending.set_block(shift - claim);
        let mut looks = looks.iter().peekable();
        for (part, share) in self.named.parts.iter().zip(&self.shares) {
            if part.what == BlockMeaning::Unclaimed {
                let (start, end) =
                    (part.offset >> claim, (part.offset + part.len).div_ceil(1 << claim));
                let known = looks.next_if(|(at, _)| *at == part.offset);
                let looks = known.map_or(Looks::Unjudged, |(_, looks)| *looks);
                let (len, class, counts) = (end - start, part.class, *share);
                pending.note(Note { start, len, class, looks, counts });
            }
            if part.class.is_journal() || !journal.waits() {
                continue;
            }
            for block in part.offset >> home..(part.offset + part.len).div_ceil(1 << home) {
                if let Some(id) = journal.checkpoint(block) {
                    self.checkpoints.push((block, id));
                }
            }
        }
        self.settle();
    }

    /// Counts blocks that were guesses again, by the pointers in the present request.
    fn settle(&mut self) {
        let DecoderState { claims, pending, .. } = &mut self.decoder_state;
        for claim in claims {
            pending.settle(claim.block, claim.blocks, claim.class, &mut self.stats);
        }
    }

    /// Classifies a write whose contents were not recorded, by its address.
    fn write_without_contents(&mut self, r: &Issued<'_>) {
        self.begin(r.id, r.op, (r.offset, r.len), r.flags, r.at);
        self.stats.without_contents += 1;
        self.look_for_births(None);
        self.births.iter_mut().for_each(|births| births.written(r.offset));
        let Some(decoder) = &mut self.decoder else { return self.name_without_decoder(None) };
        decoder.write_without_contents(
            r.offset,
            r.len,
            &mut self.named.parts,
            &mut self.decoder_state,
        );
        let shift = decoder.block_shift();
        self.count(shift);
    }

    /// Reads complete in any order, so whether a read is sequential is decided when it is issued.
    fn read_issued(&mut self, r: &Issued<'_>) {
        if self.read_end.replace(r.offset.saturating_add(r.len)) == Some(r.offset) {
            if self.following.len() >= UNDER_WAY_MAX {
                self.following.clear();
            }
            self.following.insert(r.id);
        }
    }

    fn read(&mut self, r: &Completed<'_>) {
        self.begin(r.id, r.op, (r.offset, r.len), r.flags, r.issued);
        let data = r.data.filter(|data| data.len() as u64 == r.len);
        self.look_for_births(Some(r.offset));
        self.look_for_superblock(data);
        let Some(decoder) = &mut self.decoder else { return self.name_without_decoder(data) };
        decoder.read(r.offset, r.len, data, &mut self.named.parts, &mut self.decoder_state);
        let shift = decoder.block_shift();
        // A write of a block without an owner may be a file's data, whose inode comes later. A read
        // is of free space.
        let is_free = |part: &&mut ClassifiedRange| {
            (part.class, &part.what) == (Class::FileData, &BlockMeaning::Unclaimed)
        };
        self.named.parts.iter_mut().filter(is_free).for_each(|part| part.class = Class::FreeSpace);
        self.count(shift);
        self.settle();
    }

    /// Counts the present request, part by part.
    fn count(&mut self, shift: u32) {
        let named = &self.named;
        debug_assert_eq!(named.parts.iter().map(|p| p.len).sum::<u64>(), named.len);
        let write = named.op == Operation::Write;
        let sequential = match write {
            true => {
                let end = named.offset + named.len;
                self.write_end.replace(end) == Some(named.offset)
            }
            false => self.following.remove(&named.id),
        };
        let by = if write { &mut self.stats.writes } else { &mut self.stats.reads };
        self.shares.clear();
        for (i, part) in named.parts.iter().enumerate() {
            let first = u64::from(i == 0);
            let last_byte = part.offset + part.len.max(1) - 1;
            let counts = TrafficCounts {
                requests: first,
                blocks: (last_byte >> shift) - (part.offset >> shift) + 1,
                bytes: part.len,
                sync: first * u64::from(named.flags.contains(WriteFlags::SYNC)),
                sequential: first * u64::from(sequential),
            };
            by[part.class].add(&counts);
            if let BlockMeaning::Unknown(reason) = part.what {
                *self.stats.unknown.entry(reason).or_default() += 1;
            }
            self.shares.push(counts);
        }
    }
}

impl TapSink for Watch {
    fn issued(&self, r: &Issued<'_>) {
        let r = &Issued { id: self.number(r.id), ..*r };
        match (r.op, r.data) {
            (Operation::Flush, _) => {
                let mut state = self.state.borrow_mut();
                state.stats.flushes += 1;
                state.births.iter_mut().for_each(Births::flushed);
            }
            (Operation::Discard, _) => {
                let mut state = self.state.borrow_mut();
                state.stats.discards += 1;
                state.births.iter_mut().for_each(|births| births.written(r.offset));
            }
            (Operation::Write, Some(data)) if !data.is_empty() && data.len() as u64 == r.len => {
                let metadata = self.metadata.borrow().clone().filter(|_| self.is_log.get());
                if let Some(metadata) = metadata {
                    return self.write_log(&metadata, r, data);
                }
                self.state.borrow_mut().write(r, data);
                self.tell();
            }
            (Operation::Write, None) if r.len != 0 => {
                self.state.borrow_mut().write_without_contents(r);
                self.tell();
            }
            (Operation::Read, _) if r.len != 0 => self.state.borrow_mut().read_issued(r),
            _ => {}
        }
    }

    fn completed(&self, r: &Completed<'_>) {
        if r.op == Operation::Read && r.len != 0 && r.result.is_ok() {
            let r = &Completed { id: self.number(r.id), ..*r };
            self.state.borrow_mut().read(r);
            self.tell();
        }
    }
}

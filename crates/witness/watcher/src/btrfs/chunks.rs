//! The known chunks: the mapping from logical addresses to this device.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_format::btrfs::Chunk;
use ordo_format::btrfs::chunk::Layout;

/// A chunk's stripe on this device.
#[derive(Clone, Debug)]
struct BtrfsPiece {
    end: u64,
    chunk: Rc<Chunk>,
    stripe: usize,
}

/// The mapping of a place on the device.
pub(super) enum There {
    /// A logical address, and the number of bytes for which the mapping continues.
    Address { chunk: Rc<Chunk>, address: u64, left: u64 },
    /// A chunk striped with parity, which is not read, and the number of bytes for which it
    /// continues.
    Parity { left: u64 },
    /// No chunk up to the place `to`.
    Nothing { to: u64 },
}

#[derive(Debug, Default)]
pub(super) struct Chunks {
    devid: u64,
    /// The device's size in bytes.
    bytes: u64,
    /// Every chunk item, with the number of leaves that hold it and the order in which the first
    /// one came.
    said: BTreeMap<Chunk, (u32, u64)>,
    now: u64,
    /// The chunks by address. If two overlap, the later one counts: one transaction may remove a
    /// chunk and give its addresses to another.
    by_address: BTreeMap<u64, Rc<Chunk>>,
    by_place: BTreeMap<u64, BtrfsPiece>,
    changed: bool,
}

impl Chunks {
    /// The chunks of the device `devid`, which has `bytes` bytes.
    pub(super) fn new(devid: u64, bytes: u64) -> Chunks {
        Chunks { devid, bytes, ..Chunks::default() }
    }

    pub(super) fn add(&mut self, chunk: &Chunk) {
        match self.said.get_mut(chunk) {
            Some((count, _)) => *count += 1,
            None => {
                self.now += 1;
                self.said.insert(chunk.clone(), (1, self.now));
                self.changed = true;
            }
        }
    }

    pub(super) fn remove(&mut self, chunk: &Chunk) {
        let Some((count, _)) = self.said.get_mut(chunk) else { return };
        *count -= 1;
        if *count == 0 {
            self.said.remove(chunk);
            self.changed = true;
        }
    }

    /// Builds the maps again if something changed, and returns the new chunks.
    pub(super) fn renewed(&mut self) -> Vec<Rc<Chunk>> {
        if !std::mem::take(&mut self.changed) {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.by_address);
        self.by_place.clear();
        let mut all: Vec<_> = self.said.iter().map(|(chunk, (_, when))| (*when, chunk)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        for (_, chunk) in all {
            let below = self.by_address.range(..chunk.end()).next_back();
            if below.is_some_and(|(_, other)| other.end() > chunk.start) {
                continue;
            }
            let chunk = Rc::new(chunk.clone());
            for (stripe, (devid, start)) in chunk.stripes.iter().enumerate() {
                let end = start + chunk.stripe_bytes();
                let below = self.by_place.range(..end).next_back();
                let free = below.is_none_or(|(_, other)| other.end <= *start);
                if *devid == self.devid && end <= self.bytes && free && *start < end {
                    self.by_place.insert(*start, BtrfsPiece { end, chunk: chunk.clone(), stripe });
                }
            }
            self.by_address.insert(chunk.start, chunk);
        }
        let new = self.by_address.values().filter(|chunk| before.get(&chunk.start) != Some(chunk));
        new.cloned().collect()
    }

    pub(super) fn at(&self, place: u64) -> There {
        let near = self.by_place.range(..=place).next_back();
        let Some((start, piece)) = near.filter(|(_, piece)| place < piece.end) else {
            let next = self.by_place.range(place..).next();
            return There::Nothing { to: next.map_or(u64::MAX, |(start, _)| *start) };
        };
        let left = piece.end - place;
        match piece.chunk.address(piece.stripe, place - start) {
            Some((address, goes_on)) => {
                There::Address { chunk: piece.chunk.clone(), address, left: left.min(goes_on) }
            }
            None if piece.chunk.layout == Layout::Parity => There::Parity { left },
            // The rest of a stripe that is longer than its share of the chunk.
            None => There::Nothing { to: piece.end },
        }
    }

    /// Calls `each` with an address, its place on this device, and the number of bytes for which
    /// the mapping continues.
    pub(super) fn places(&self, address: u64, len: u64, each: impl FnMut(u64, u64, u64)) {
        if let Some((_, chunk)) = self.by_address.range(..=address).next_back()
            && address < chunk.end()
        {
            let inside = |start: u64| {
                self.by_place.range(..=start).next_back().is_some_and(|(_, p)| p.chunk == *chunk)
            };
            let mut each = each;
            chunk.places(self.devid, address, len, |address, place, len| {
                if inside(place) {
                    each(address, place, len);
                }
            });
        }
    }
}

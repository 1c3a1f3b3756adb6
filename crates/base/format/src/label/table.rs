//! All partitions of a disk: primary and logical ones, those of a GPT, and those in BSD slices.
//!
//! A [`PartitionTableReader`] does no I/O: it says which bytes of the disk it wants next, and is
//! given them. Tables are hostile data: a chain of logical partitions is followed only to sectors
//! that were not in it before, entries outside of the disk or over each other are left out with a
//! [`TableProblem`], and a damaged GPT is replaced by its copy at the end of the disk.

use std::collections::VecDeque;
use std::fmt;

use super::{GptHeader, Kind, Range, SECTOR, SECTORS, bsd, gpt_entries, gpt_header, is_gpt, mbr};

/// The most logical partitions of a chain that are read.
const CHAIN_MAX: usize = 128;

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePartition {
    /// The name: a number, a letter of a BSD label, or both.
    pub name: String,
    /// The place on the disk, and the meaning of its type.
    pub range: Range,
    /// Whether other partitions lie in this one, which then holds nothing itself.
    pub contains: bool,
}

/// A fault of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProblem {
    /// The first header or entries of a GPT are damaged; the copy at the disk's end was used.
    FirstGpt,
    /// A GPT and its copy are damaged.
    BothGpts,
    /// A partition ends beyond the end of the disk. It is left out.
    Beyond {
        /// The partition.
        name: String,
        /// The partition's end, in bytes.
        end: u64,
        /// The size of the disk in bytes.
        disk: u64,
    },
    /// A partition lies over another one. It is left out.
    Overlap {
        /// The partition.
        name: String,
        /// The other one, which is kept.
        other: String,
    },
    /// The chain of logical partitions comes back to a sector that it had before.
    ChainLoop {
        /// The sector's offset in bytes.
        at: u64,
    },
    /// The chain of logical partitions leads to a sector that is none of its kind, or outside of
    /// the disk.
    ChainBroken {
        /// The sector's offset in bytes.
        at: u64,
    },
    /// The chain of logical partitions is longer than this; the rest is left out.
    ChainLong {
        /// The number of partitions that were read.
        most: usize,
    },
}

impl fmt::Display for TableProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableProblem::FirstGpt => f.write_str(
                "the GPT is damaged (checksum); its copy at the end of the disk is used \
                 (gdisk can write the first one again)",
            ),
            TableProblem::BothGpts => f.write_str(
                "the GPT and its copy at the end of the disk are damaged (checksums): \
                 no partition is known; --offset BYTES gives the place of a file system",
            ),
            TableProblem::Beyond { name, end, disk } => write!(
                f,
                "partition {name} ends at byte {end}, beyond the end of the disk at {disk}: it is \
                 left out (is the image complete?)"
            ),
            TableProblem::Overlap { name, other } => write!(
                f,
                "partition {name} lies over partition {other}: it is left out; --offset BYTES gives \
                 the place of a file system"
            ),
            TableProblem::ChainLoop { at } => write!(
                f,
                "the chain of logical partitions leads back to byte {at}: the partitions up to there \
                 are used"
            ),
            TableProblem::ChainBroken { at } => write!(
                f,
                "the chain of logical partitions leads to byte {at}, where there is no entry: the \
                 partitions up to there are used"
            ),
            TableProblem::ChainLong { most } => {
                write!(f, "there are more than {most} logical partitions: the rest is left out")
            }
        }
    }
}

/// The partitions of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionTable {
    /// The partitions, all within the disk, in the order of the tables.
    pub partitions: Vec<TablePartition>,
    /// The partitions that begin on the disk and end behind it, as an image that was cut off has:
    /// with the length that is there.
    pub cut: Vec<TablePartition>,
    /// The faults that were found.
    pub problems: Vec<TableProblem>,
    /// The offset and length in bytes of each part of the tables.
    pub areas: Vec<(u64, u64)>,
}

impl PartitionTable {
    /// The partitions that may hold a file system: none of them lies over another one.
    pub fn leaves(&self) -> impl Iterator<Item = &TablePartition> {
        self.partitions.iter().filter(|p| !p.contains)
    }
}

/// The next bytes that are wanted, and their meaning.
enum Wanted {
    Mbr,
    Gpt { unit: u64, is_copy: bool },
    Entries { header: GptHeader, is_copy: bool },
    Logical { at: u64 },
    Label { slice: String, start: u64, len: u64 },
}

/// Reads the tables of a disk, step by step.
pub struct PartitionTableReader {
    bytes: u64,
    wanted: VecDeque<Wanted>,
    /// The offset of the extended partition, and the offsets of the sectors in its chain.
    extended: u64,
    chain: Vec<u64>,
    /// The primary, GPT and logical partitions.
    found: Vec<(u32, Range)>,
    /// The partitions in BSD labels, with the name of the slice.
    labelled: Vec<(String, TablePartition)>,
    table: PartitionTable,
}

impl PartitionTableReader {
    /// A reader of the tables of a disk of `bytes` bytes.
    pub fn new(bytes: u64) -> PartitionTableReader {
        PartitionTableReader {
            bytes,
            wanted: VecDeque::from([Wanted::Mbr]),
            extended: 0,
            chain: Vec::new(),
            found: Vec::new(),
            labelled: Vec::new(),
            table: PartitionTable::default(),
        }
    }

    fn gpt_at(&self, unit: u64, is_copy: bool) -> u64 {
        match is_copy {
            true => (self.bytes / unit).saturating_sub(1) * unit,
            false => unit,
        }
    }

    /// The offset and length of the bytes that are wanted next; `None` at the end.
    pub fn wants(&mut self) -> Option<(u64, usize)> {
        loop {
            let (at, len) = match self.wanted.front()? {
                Wanted::Mbr => (0, SECTOR),
                Wanted::Gpt { unit, is_copy } => (self.gpt_at(*unit, *is_copy), SECTOR),
                Wanted::Entries { header, .. } => (header.entries_at, header.entries_len as u64),
                Wanted::Logical { at } => (*at, SECTOR),
                Wanted::Label { start, .. } => (start + SECTOR, SECTOR),
            };
            if at.checked_add(len).is_some_and(|end| end <= self.bytes) {
                return Some((at, len as usize));
            }
            // Nothing lies beyond the disk's end.
            self.give(&[]);
        }
    }

    /// Takes the wanted bytes; none if they cannot be read.
    pub fn give(&mut self, bytes: &[u8]) {
        match self.wanted.pop_front() {
            Some(Wanted::Mbr) => self.give_mbr(bytes),
            Some(Wanted::Gpt { unit, is_copy }) => self.give_gpt(unit, is_copy, bytes),
            Some(Wanted::Entries { header, is_copy }) => self.give_entries(header, is_copy, bytes),
            Some(Wanted::Logical { at }) => self.give_logical(at, bytes),
            Some(Wanted::Label { slice, start, len }) => self.give_label(&slice, start, len, bytes),
            None => {}
        }
    }

    fn give_mbr(&mut self, bytes: &[u8]) {
        let (slice, start, len) = (String::new(), 0, self.bytes);
        self.wanted.push_back(Wanted::Label { slice, start, len });
        let Some(entries) = mbr(bytes) else { return };
        if !entries.is_empty() {
            self.table.areas.push((0, SECTOR));
        }
        if entries.iter().any(|(_, r)| r.kind == Kind::Protective) {
            let (unit, is_copy) = (SECTORS[0], false);
            return self.wanted.push_back(Wanted::Gpt { unit, is_copy });
        }
        if let Some((_, outer)) = entries.iter().find(|(_, r)| r.kind == Kind::Extended) {
            self.extended = outer.start;
            self.wanted.push_back(Wanted::Logical { at: outer.start });
        }
        self.found_all(entries);
    }

    /// Adds partitions, and wants the labels of BSD slices.
    fn found_all(&mut self, entries: Vec<(u32, Range)>) {
        for (number, range) in &entries {
            if range.kind == Kind::BsdSlice {
                let (slice, start, len) = (number.to_string(), range.start, range.len);
                self.wanted.push_back(Wanted::Label { slice, start, len });
            }
        }
        self.found.extend(entries);
    }

    /// Goes on where no sound GPT is: with larger sectors, then with the copy, first with small
    /// sectors.
    fn no_gpt(&mut self, unit: u64, is_copy: bool) {
        let next = SECTORS.iter().copied().find(|larger| *larger > unit);
        let wanted = match (next, is_copy) {
            (Some(unit), is_copy) => Wanted::Gpt { unit, is_copy },
            (None, false) => Wanted::Gpt { unit: SECTORS[0], is_copy: true },
            (None, true) => return self.table.problems.push(TableProblem::BothGpts),
        };
        self.wanted.push_front(wanted);
    }

    fn give_gpt(&mut self, unit: u64, is_copy: bool, bytes: &[u8]) {
        if is_gpt(bytes) {
            self.table.areas.push((self.gpt_at(unit, is_copy), unit));
        }
        match gpt_header(bytes, unit) {
            Some(header) => self.wanted.push_front(Wanted::Entries { header, is_copy }),
            None => self.no_gpt(unit, is_copy),
        }
    }

    fn give_entries(&mut self, header: GptHeader, is_copy: bool, bytes: &[u8]) {
        let Some(entries) = gpt_entries(&header, bytes) else {
            return self.no_gpt(header.unit, is_copy);
        };
        let len = header.entries_len as u64;
        self.table.areas.push((header.entries_at, len));
        if is_copy {
            self.table.problems.push(TableProblem::FirstGpt);
        } else {
            // The copy's entries lie before its header, at the end of the disk.
            let copy = self.gpt_at(header.unit, true);
            self.table.areas.push((copy.saturating_sub(len), len));
            self.table.areas.push((copy, header.unit));
        }
        self.found_all(entries);
    }

    fn give_logical(&mut self, at: u64, bytes: &[u8]) {
        let Some(pair) = mbr(bytes) else {
            return self.table.problems.push(TableProblem::ChainBroken { at });
        };
        self.chain.push(at);
        self.table.areas.push((at, SECTOR));
        let mut next = None;
        for (_, mut range) in pair {
            match range.kind {
                Kind::Extended if next.is_none() => next = self.extended.checked_add(range.start),
                Kind::Extended => {}
                _ => {
                    range.start += at;
                    // Logical partitions are counted from 5 on.
                    let number = 5 + self.found.iter().filter(|(n, _)| *n >= 5).count();
                    self.found_all(vec![(number as u32, range)]);
                }
            }
        }
        match next {
            None => {}
            Some(at) if self.chain.contains(&at) => {
                self.table.problems.push(TableProblem::ChainLoop { at });
            }
            Some(_) if self.chain.len() >= CHAIN_MAX => {
                self.table.problems.push(TableProblem::ChainLong { most: CHAIN_MAX });
            }
            Some(at) => self.wanted.push_back(Wanted::Logical { at }),
        }
    }

    fn give_label(&mut self, slice: &str, start: u64, len: u64, bytes: &[u8]) {
        let Some(entries) = bsd(bytes) else { return };
        self.table.areas.push((start + SECTOR, SECTOR));
        for (letter, mut range) in entries {
            if range.start.checked_add(range.len).is_some_and(|end| end <= len) {
                range.start += start;
                let name = format!("{slice}{letter}");
                self.labelled
                    .push((slice.to_owned(), TablePartition { name, range, contains: false }));
            }
        }
    }

    /// The partitions, when nothing more is wanted.
    pub fn finish(mut self) -> PartitionTable {
        let mut taken: Vec<(u64, u64, String)> = Vec::new();
        self.add_labelled("", &mut taken);
        for (number, range) in std::mem::take(&mut self.found) {
            let name = number.to_string();
            let has_labels = self.labelled.iter().any(|(slice, _)| *slice == name);
            let contains = has_labels || range.kind == Kind::Extended;
            self.add(TablePartition { name: name.clone(), range, contains }, &mut taken);
            self.add_labelled(&name, &mut taken);
        }
        self.table
    }

    fn add_labelled(&mut self, slice: &str, taken: &mut Vec<(u64, u64, String)>) {
        let all = std::mem::take(&mut self.labelled);
        let (of_this, rest) = all.into_iter().partition(|(of, _)| of == slice);
        self.labelled = rest;
        let of_this: Vec<(String, TablePartition)> = of_this;
        of_this.into_iter().for_each(|(_, partition)| self.add(partition, taken));
    }

    fn add(&mut self, partition: TablePartition, taken: &mut Vec<(u64, u64, String)>) {
        let (name, start) = (partition.name.clone(), partition.range.start);
        let end = start.saturating_add(partition.range.len);
        if start == end {
            return;
        }
        if end > self.bytes {
            let disk = self.bytes;
            if start < disk {
                let range = Range { len: disk - start, ..partition.range };
                self.table.cut.push(TablePartition { range, ..partition });
            }
            return self.table.problems.push(TableProblem::Beyond { name, end, disk });
        }
        if !partition.contains {
            if let Some((.., other)) = taken.iter().find(|(from, to, _)| start < *to && *from < end)
            {
                let other = other.clone();
                return self.table.problems.push(TableProblem::Overlap { name, other });
            }
            taken.push((start, end, name));
        }
        self.table.partitions.push(partition);
    }
}

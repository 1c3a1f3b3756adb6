//! The records of a journal of byte ranges.
//!
//! A record is a byte for its kind, then numbers in seven bits a byte, lowest first. Places are on
//! the file system's device, in sectors of 512 bytes.
//!
//! | kind | then | meaning |
//! |---:|---|---|
//! | 1 | sector; runs: gap, length * 2 + (old is zero), new bytes, old bytes | bytes changed |
//! | 2 | sector, offset, length; runs: zeros, count, bytes | a block, or part of one, is new: these are all of its bytes |
//! | 3 | sector, sectors | these were freed: older records about them are void |
//! | 4 | inode | an inode has lost its last name, and must be freed |
//! | 5 | inode | the inode has been freed, or has a name again |
//! | 6 | flags, kind of operation; where flag 2 is set: numbers of operations | an operation ended; flag 1: none is under way; flag 2: it is rolled back if one of these is |
//! | 7 | | recovery has written everything before this to its fixed location |
//! | 8 | LSN; blocks: gap in sectors, sectors, LSN beyond that one | changes in older records to these blocks are durable at the fixed location |
//! | 9 | number; a record | the record belongs to this operation; without this kind it belongs to the first one, which has number 0 |
//! | 10 | sector, sector, sectors | file contents moved from the first place to the second one, and are not written there yet; the first place is still allocated, and is freed by a later record of kind 3; if both are equal, it only has to be freed |
//! | 11 | sector; bytes | all bytes of a block as they were then; ignored where its operation is rolled back |
//! | 12 | sector; runs: gap, length, new bytes | bytes of a block that changed; ignored where its operation is rolled back |

use std::ops::Range;

use ordo_block::differ;

use super::moves::Moved;

/// The least number of equal bytes between two changed ones that is worth a run of its own for
/// each.
const GAP_MIN: usize = 3;

/// A record, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEntry<'a> {
    /// Bytes from `at` on changed.
    Patch {
        /// Byte address on the device.
        at: u64,
        /// The changed runs.
        runs: ByteRuns<'a>,
    },
    /// A block, or part of one, is new.
    Fresh {
        /// Byte address on the device.
        at: u64,
        /// The length in bytes.
        len: usize,
        /// The contents.
        image: ImageRecord<'a>,
    },
    /// Bytes were freed.
    Revoke {
        /// Byte address on the device.
        at: u64,
        /// The length in bytes.
        len: u64,
    },
    /// All bytes of a block: file contents, or metadata with the changes of all operations so far.
    Image {
        /// Byte address on the device.
        at: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes of a block of file contents that changed.
    Difference {
        /// Byte address on the device.
        at: u64,
        /// The changed runs.
        runs: NewRuns<'a>,
    },
    /// File contents have got a new place.
    Moved(Moved),
    /// An inode that must be freed: it has lost its last name.
    Orphan(u64),
    /// An inode that need not be freed any more.
    Kept(u64),
    /// Recovery has written all records before this one to their fixed locations. This record
    /// counts once a quiescent [`LogEntry::End`] follows it.
    Restart,
    /// Blocks that are durable at their fixed locations, with all changes in records before some
    /// LSN.
    Placed(Blocks<'a>),
    /// An operation ended.
    End {
        /// Whether no other operation that changed anything was under way (a quiescent point).
        quiescent: bool,
        /// The operation's kind.
        kind: u8,
        /// The operations on which this one depends: it is rolled back if one of them is.
        needs: Needs<'a>,
    },
}

/// A block that was written to its fixed location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Byte address on the device.
    pub at: u64,
    /// The length in bytes.
    pub len: u64,
    /// The LSN before which all changes to the block are durable there.
    pub lsn: u64,
}

/// The blocks of a [`LogEntry::Placed`], by address: an iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks<'a> {
    rest: &'a [u8],
    lsn: u64,
    at: u64,
}

impl Iterator for Blocks<'_> {
    type Item = BlockRecord;

    fn next(&mut self) -> Option<BlockRecord> {
        let at = self.at.checked_add(get(&mut self.rest)?.checked_mul(512)?)?;
        let len = get(&mut self.rest)?.checked_mul(512)?;
        let lsn = self.lsn.checked_add(get(&mut self.rest)?)?;
        self.at = at.checked_add(len)?;
        Some(BlockRecord { at, len, lsn })
    }
}

/// The numbers of operations: an iterator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs<'a>(&'a [u8]);

impl Iterator for Needs<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        get(&mut self.0)
    }
}

/// The runs of a patch: an iterator over place, new bytes and old bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRuns<'a> {
    rest: &'a [u8],
    at: u64,
}

/// A run of changed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRun<'a> {
    /// Byte address on the device.
    pub at: u64,
    /// The new bytes.
    pub new: &'a [u8],
    /// The old bytes; `None` if all of them were zeros.
    pub old: Option<&'a [u8]>,
}

impl<'a> Iterator for ByteRuns<'a> {
    type Item = ByteRun<'a>;

    fn next(&mut self) -> Option<ByteRun<'a>> {
        let gap = get(&mut self.rest)?;
        let head = get(&mut self.rest)?;
        let at = self.at.checked_add(gap)?;
        let len = usize::try_from(head >> 1).ok()?;
        let new = take(&mut self.rest, len)?;
        let old = if head & 1 == 1 { None } else { Some(take(&mut self.rest, len)?) };
        self.at = at.checked_add(len as u64)?;
        Some(ByteRun { at, new, old })
    }
}

/// The runs of a difference: an iterator over places and new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRuns<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Iterator for NewRuns<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let at = self.at.checked_add(get(&mut self.rest)?)?;
        let len = usize::try_from(get(&mut self.rest)?).ok()?;
        let new = take(&mut self.rest, len)?;
        self.at = at.checked_add(len as u64)?;
        Some((at, new))
    }
}

/// The contents of a block, without its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRecord<'a>(&'a [u8]);

impl ImageRecord<'_> {
    /// Calls `each` with the offset and the bytes of every run that is not zeros.
    pub fn runs(self, mut each: impl FnMut(usize, &[u8])) {
        let mut rest = self.0;
        let mut at = 0usize;
        while let (Some(zeros), Some(len)) = (get(&mut rest), get(&mut rest)) {
            let Ok(len) = usize::try_from(len) else { return };
            at = at.saturating_add(usize::try_from(zeros).unwrap_or(usize::MAX));
            let Some(bytes) = take(&mut rest, len) else { return };
            each(at, bytes);
            at = at.saturating_add(len);
        }
    }
}

fn put(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn get(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for i in 0..10 {
        let (byte, more) = rest.split_first()?;
        *rest = more;
        n |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (bytes, more) = rest.split_at_checked(len)?;
    *rest = more;
    Some(bytes)
}

/// Appends a patch to `out`: the difference in `ranges` of the block at `address`, whose present
/// contents are `new`. `old` holds the old bytes, range after range. Returns false if no byte
/// differs.
pub fn patch(
    address: u64,
    new: &[u8],
    ranges: &[Range<usize>],
    old: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    out.clear();
    out.push(1);
    put(address / 512, out);
    // A record of this length has only the kind and the sector's number, and no run.
    let empty = out.len();
    let mut end = 0;
    let mut sorted: Vec<(Range<usize>, usize)> = Vec::with_capacity(ranges.len());
    let mut at = 0;
    for range in ranges {
        sorted.push((range.clone(), at));
        at += range.len();
    }
    sorted.sort_by_key(|(range, _)| range.start);
    for (range, at) in sorted {
        let (now, before) = (&new[range.clone()], &old[at..at + range.len()]);
        for run in differ::Runs::new(before, now, GAP_MIN) {
            // Ranges may overlap: bytes that an earlier range covered are skipped.
            let from = (range.start + run.start).max(end);
            let until = range.start + run.end;
            if from >= until {
                continue;
            }
            let (n, o) = (&new[from..until], &before[from - range.start..run.end]);
            let zero = o.iter().all(|b| *b == 0);
            put((from - end) as u64, out);
            put((n.len() as u64) << 1 | u64::from(zero), out);
            out.extend_from_slice(n);
            if !zero {
                out.extend_from_slice(o);
            }
            end = until;
        }
    }
    out.len() > empty
}

/// Appends a record to `out` that says that `bytes`, at `offset` in the block at `address`, are
/// new.
pub fn fresh(address: u64, offset: usize, bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(2);
    put(address / 512, out);
    put(offset as u64, out);
    put(bytes.len() as u64, out);
    let mut at = 0;
    while at < bytes.len() {
        let zeros = bytes[at..].iter().take_while(|b| **b == 0).count();
        let start = at + zeros;
        if start == bytes.len() {
            break;
        }
        // A few zeros in a row are not worth a new run.
        let (mut stop, mut zeros_in_a_row) = (start, 0);
        while stop < bytes.len() && zeros_in_a_row <= GAP_MIN {
            zeros_in_a_row = if bytes[stop] == 0 { zeros_in_a_row + 1 } else { 0 };
            stop += 1;
        }
        stop -= zeros_in_a_row;
        put(zeros as u64, out);
        put((stop - start) as u64, out);
        out.extend_from_slice(&bytes[start..stop]);
        at = stop;
    }
}

/// Appends a record to `out` that says that `len` bytes at `address` are new and zero.
pub fn zeros(address: u64, len: usize, out: &mut Vec<u8>) {
    out.clear();
    out.push(2);
    put(address / 512, out);
    put(address % 512, out);
    put(len as u64, out);
}

/// Appends all bytes of a block to `out`.
pub fn image(address: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(11);
    put(address / 512, out);
    out.extend_from_slice(bytes);
}

/// Appends the bytes of a block that differ from an older version of the same length to `out`.
pub fn difference(address: u64, old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(12);
    put(address / 512, out);
    let mut end = 0;
    for run in differ::Runs::new(old, new, GAP_MIN) {
        put((run.start - end) as u64, out);
        put(run.len() as u64, out);
        out.extend_from_slice(&new[run.clone()]);
        end = run.end;
    }
}

/// Appends a record to `out` that says that `blocks`, in order of address and without overlap, are
/// at their fixed locations.
pub fn placed(blocks: &[BlockRecord], out: &mut Vec<u8>) {
    out.clear();
    out.push(8);
    let lsn = blocks.iter().map(|block| block.lsn).min().unwrap_or(0);
    put(lsn, out);
    let mut end = 0;
    for block in blocks {
        put((block.at - end) / 512, out);
        put(block.len / 512, out);
        put(block.lsn - lsn, out);
        end = block.at + block.len;
    }
}

/// Appends one of the short records to `out`.
pub fn short(entry: &LogEntry<'_>, out: &mut Vec<u8>) {
    out.clear();
    match *entry {
        LogEntry::Revoke { at, len } => {
            out.push(3);
            put(at / 512, out);
            put(len / 512, out);
        }
        LogEntry::Orphan(ino) => {
            out.push(4);
            put(ino, out);
        }
        LogEntry::Kept(ino) => {
            out.push(5);
            put(ino, out);
        }
        LogEntry::Moved(Moved { from, to, len }) => {
            out.push(10);
            [from, to, len].into_iter().for_each(|n| put(n / 512, out));
        }
        LogEntry::Restart => out.push(7),
        LogEntry::End { quiescent, kind, needs } => {
            let flags = u8::from(quiescent) | u8::from(!needs.0.is_empty()) << 1;
            out.extend_from_slice(&[6, flags, kind]);
            out.extend_from_slice(needs.0);
        }
        LogEntry::Patch { .. }
        | LogEntry::Fresh { .. }
        | LogEntry::Image { .. }
        | LogEntry::Difference { .. }
        | LogEntry::Placed(_) => {
            unreachable!("these have functions of their own")
        }
    }
}

/// Appends the end of an operation of this kind to `out`. `needs` are the operations on which it
/// depends.
pub fn end(quiescent: bool, kind: u8, needs: &[u32], out: &mut Vec<u8>) {
    let mut numbers = Vec::new();
    needs.iter().for_each(|number| put((*number).into(), &mut numbers));
    short(&LogEntry::End { quiescent, kind, needs: Needs(&numbers) }, out);
}

/// Makes a record belong to an operation.
pub fn set_owner(number: u32, record: &mut Vec<u8>) {
    if number > 0 {
        let mut head = vec![9];
        put(number.into(), &mut head);
        record.splice(0..0, head);
    }
}

/// The number of the operation to which a record belongs, and the record without that number.
pub fn owner(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes.split_first() {
        Some((9, mut rest)) => match get(&mut rest) {
            Some(number) => (number, rest),
            None => (0, bytes),
        },
        _ => (0, bytes),
    }
}

/// Decodes a record; `None` if the bytes are no record. The runs of a patch end where one makes no
/// sense.
pub fn decode(bytes: &[u8]) -> Option<LogEntry<'_>> {
    let (_, bytes) = owner(bytes);
    let (kind, mut rest) = bytes.split_first()?;
    let rest = &mut rest;
    let place = |rest: &mut &[u8]| get(rest)?.checked_mul(512);
    Some(match kind {
        1 => {
            let at = place(rest)?;
            LogEntry::Patch { at, runs: ByteRuns { rest, at } }
        }
        2 => {
            let at = place(rest)?.checked_add(get(rest)?)?;
            let len = usize::try_from(get(rest)?).ok()?;
            LogEntry::Fresh { at, len, image: ImageRecord(rest) }
        }
        3 => LogEntry::Revoke { at: place(rest)?, len: place(rest)? },
        4 => LogEntry::Orphan(get(rest)?),
        5 => LogEntry::Kept(get(rest)?),
        6 => {
            let (flags, kind) = (*take(rest, 1)?.first()?, *take(rest, 1)?.first()?);
            let needs = Needs(if flags & 2 != 0 { rest } else { &[] });
            LogEntry::End { quiescent: flags & 1 != 0, kind, needs }
        }
        7 => LogEntry::Restart,
        8 => LogEntry::Placed(Blocks { lsn: get(rest)?, rest, at: 0 }),
        11 => LogEntry::Image { at: place(rest)?, bytes: rest },
        12 => {
            let at = place(rest)?;
            LogEntry::Difference { at, runs: NewRuns { rest, at } }
        }
        10 => LogEntry::Moved(Moved { from: place(rest)?, to: place(rest)?, len: place(rest)? }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A patch redoes the change, and rolls it back, for any ranges that cover the change.
        #[test]
        fn patches_redo_and_undo(
            old in prop::collection::vec(0u8..3, 200),
            changes in prop::collection::vec((0usize..200, any::<u8>()), 0..40),
            cut in 1usize..199,
        ) {
            let mut new = old.clone();
            for (at, byte) in changes {
                new[at] = byte;
            }
            let mut out = Vec::new();
            let ranges = [cut..200, 0..cut];
            let before: Vec<u8> = ranges.iter().flat_map(|r| old[r.clone()].to_vec()).collect();
            let any = patch(8192, &new, &ranges, &before, &mut out);
            prop_assert_eq!(any, new != old);
            let Some(LogEntry::Patch { at, runs }) = decode(&out) else { panic!() };
            prop_assert_eq!(at, 8192);
            let (mut redone, mut rolled_back) = (old.clone(), new.clone());
            for run in runs {
                let range = (run.at - 8192) as usize..(run.at - 8192) as usize + run.new.len();
                redone[range.clone()].copy_from_slice(run.new);
                match run.old {
                    Some(old) => rolled_back[range].copy_from_slice(old),
                    None => rolled_back[range].fill(0),
                }
            }
            prop_assert_eq!(redone, new);
            prop_assert_eq!(rolled_back, old);
        }

        /// A difference makes the new version of the old one, and an image of anything.
        #[test]
        fn differences_and_images_come_back(
            old in prop::collection::vec(0u8..3, 200),
            new in prop::collection::vec(0u8..3, 200),
        ) {
            let mut out = Vec::new();
            difference(8192, &old, &new, &mut out);
            let Some(LogEntry::Difference { at: 8192, runs }) = decode(&out) else { panic!() };
            let mut redone = old.clone();
            for (at, bytes) in runs {
                let at = (at - 8192) as usize;
                redone[at..at + bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(&redone, &new);
            image(1024, &new, &mut out);
            prop_assert_eq!(decode(&out), Some(LogEntry::Image { at: 1024, bytes: &new }));
            zeros(1536, 777, &mut out);
            let Some(LogEntry::Fresh { at: 1536, len: 777, image }) = decode(&out) else { panic!() };
            image.runs(|_, _| panic!("zeros have no runs"));
        }

        #[test]
        fn fresh_blocks_come_back(bytes in prop::collection::vec(0u8..2, 0..300)) {
            let mut out = Vec::new();
            fresh(4096, 512, &bytes, &mut out);
            let Some(LogEntry::Fresh { at, len, image }) = decode(&out) else { panic!() };
            prop_assert_eq!((at, len), (4608, bytes.len()));
            let mut back = vec![0; len];
            image.runs(|at, run| back[at..at + run.len()].copy_from_slice(run));
            prop_assert_eq!(back, bytes);
        }

        /// Bytes on disk never make the decoder panic.
        #[test]
        fn anything_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            match decode(&bytes) {
                Some(LogEntry::Patch { runs, .. }) => drop(runs.count()),
                Some(LogEntry::Fresh { image, .. }) => image.runs(|_, _| ()),
                Some(LogEntry::Placed(blocks)) => drop(blocks.count()),
                Some(LogEntry::Difference { runs, .. }) => drop(runs.count()),
                _ => {}
            }
        }
    }

    #[test]
    fn placed_blocks_come_back() {
        let block = |at: u64, len: u64, lsn| BlockRecord { at: at * 512, len: len * 512, lsn };
        let blocks = [block(0, 16, 1 << 33), block(16, 1, 1 << 32), block(1 << 30, 2, 1 << 34)];
        let mut out = Vec::new();
        placed(&blocks, &mut out);
        let Some(LogEntry::Placed(back)) = decode(&out) else { panic!() };
        assert_eq!(back.collect::<Vec<_>>(), blocks);
    }

    #[test]
    fn short_records_come_back() {
        for entry in [
            LogEntry::Revoke { at: 1 << 40, len: 4096 },
            LogEntry::Orphan(77),
            LogEntry::Kept(1 << 20),
            LogEntry::Moved(Moved { from: 512 * 77, to: 1 << 40, len: 3584 }),
            LogEntry::Restart,
            LogEntry::End { quiescent: true, kind: 3, needs: Needs(&[]) },
            LogEntry::End { quiescent: false, kind: 3, needs: Needs(&[5, 0x80, 1]) },
        ] {
            let mut out = Vec::new();
            short(&entry, &mut out);
            assert_eq!(decode(&out), Some(entry));
            set_owner(300, &mut out);
            assert_eq!((owner(&out).0, decode(&out)), (300, Some(entry)));
        }
        let mut out = Vec::new();
        end(false, 1, &[7, 300], &mut out);
        let Some(LogEntry::End { needs, .. }) = decode(&out) else { panic!() };
        assert_eq!(needs.collect::<Vec<_>>(), [7, 300]);
    }
}

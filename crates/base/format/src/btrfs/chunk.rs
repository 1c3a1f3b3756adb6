//! Chunks: the mapping from logical addresses to devices.

use super::LE;

/// Bits of a chunk's type: its contents and its profile.
const DATA: u64 = 1;
const SYSTEM: u64 = 1 << 1;
const METADATA: u64 = 1 << 2;
/// Bits of a chunk's type: its profile. Without any of these bits, the chunk is one range of one
/// device.
const RAID0: u64 = 1 << 3;
const RAID1: u64 = 1 << 4;
const DUP: u64 = 1 << 5;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
const RAID1C3: u64 = 1 << 9;
const RAID1C4: u64 = 1 << 10;
const PROFILES: u64 = RAID0 | RAID1 | DUP | RAID10 | RAID5 | RAID6 | RAID1C3 | RAID1C4;

crate::on_disk! {
    /// The beginning of a chunk item (`struct btrfs_chunk`); its stripes follow. The key's offset
    /// is the chunk's logical address.
    pub struct ChunkHead: 48 {
        0 length => /** size of the chunk in bytes */ length: u64,
        8 owner => /** number of the tree with the block groups: 2 */ owner: u64,
        16 stripe_len => /** bytes in one stripe before the next stripe begins */ stripe_len: u64,
        24 type => /** type, bits: 0 data, 1 system, 2 metadata, 3 RAID0, 4 RAID1, 5 DUP, 6 RAID10, 7 RAID5, 8 RAID6, 9 and 10 RAID1 of 3 and 4 */ kind: u64,
        32 io_align => /** preferred alignment of requests, in bytes */ io_align: u32,
        36 io_width => /** preferred size of requests, in bytes */ io_width: u32,
        40 sector_size => /** bytes in a sector */ sector_size: u32,
        44 num_stripes => /** number of stripes */ num_stripes: u16,
        46 sub_stripes => /** number of copies with RAID10 */ sub_stripes: u16,
    }
}

crate::on_disk! {
    /// A chunk's range on a device (`struct btrfs_stripe`).
    pub struct Stripe: 32 {
        0 devid => /** number of the device */ devid: u64,
        8 offset => /** first byte on the device */ offset: u64,
        16 dev_uuid => /** UUID of the device */ dev_uuid: [u8; 16],
    }
}

/// The layout of a chunk on its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Mirrors: each stripe holds the whole chunk.
    Copies,
    /// Striped: pieces go to the columns in turn, and each column has so many identical stripes.
    Striped {
        /// The number of bytes that go to one column before the next.
        piece: u64,
        /// Identical stripes of a column.
        alike: u64,
    },
    /// Striped with parity, which is not read here.
    Parity,
}

/// A valid chunk: its arithmetic does not overflow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    /// The first logical address.
    pub start: u64,
    /// The number of bytes that the chunk maps.
    pub length: u64,
    /// The layout on its stripes.
    pub layout: Layout,
    /// The device and the first byte of each stripe.
    pub stripes: Vec<(u64, u64)>,
    /// Whether the chunk may have file data.
    pub data: bool,
    /// Whether the chunk may have tree blocks.
    pub trees: bool,
}

impl Chunk {
    /// Reads the chunk at address `start`. Returns it with the number of bytes of its item; `None`
    /// if it makes no sense.
    pub fn read(start: u64, bytes: &[u8]) -> Option<(Chunk, usize)> {
        if bytes.len() < ChunkHead::SIZE {
            return None;
        }
        let head = ChunkHead::decode(bytes, LE);
        let count = usize::from(head.num_stripes);
        let end = ChunkHead::SIZE + count * Stripe::SIZE;
        let list = bytes.get(ChunkHead::SIZE..end)?;
        let stripes = list.chunks_exact(Stripe::SIZE).map(|raw| Stripe::decode(raw, LE));
        let stripes: Vec<_> = stripes.map(|stripe| (stripe.devid, stripe.offset)).collect();
        let profile = head.kind & PROFILES;
        let piece = head.stripe_len;
        let alike = if profile == RAID10 { u64::from(head.sub_stripes) } else { 1 };
        let layout = match profile {
            0 | DUP | RAID1 | RAID1C3 | RAID1C4 => Layout::Copies,
            RAID0 | RAID10 => Layout::Striped { piece, alike },
            RAID5 | RAID6 => Layout::Parity,
            _ => return None,
        };
        let sane = count > 0
            && head.length > 0
            && (1 << 12..=1 << 30).contains(&piece)
            && piece.is_power_of_two()
            && alike > 0
            && (count as u64).is_multiple_of(alike)
            && start.checked_add(head.length).is_some()
            && stripes.iter().all(|(_, at)| at.checked_add(head.length).is_some());
        let data = head.kind & DATA != 0;
        let trees = head.kind & (METADATA | SYSTEM) != 0;
        let chunk = Chunk { start, length: head.length, layout, stripes, data, trees };
        sane.then_some((chunk, end))
    }

    /// The address after its last one.
    pub fn end(&self) -> u64 {
        self.start + self.length
    }

    /// The bytes of each stripe on its device.
    pub fn stripe_bytes(&self) -> u64 {
        let columns = match self.layout {
            Layout::Copies => 1,
            Layout::Striped { alike, .. } => self.stripes.len() as u64 / alike,
            Layout::Parity => self.stripes.len() as u64 - 1,
        };
        self.length / columns.max(1)
    }

    /// The logical address of the byte `within` of a stripe, and the number of bytes for which the
    /// mapping continues; `None` beyond the stripe, and with parity.
    pub fn address(&self, stripe: usize, within: u64) -> Option<(u64, u64)> {
        let (at, left) = match self.layout {
            Layout::Copies => (within, self.length.checked_sub(within)?),
            Layout::Striped { piece, alike } => {
                let (columns, column) = (self.stripes.len() as u64 / alike, stripe as u64 / alike);
                let row = (within / piece).checked_mul(columns)?.checked_add(column)?;
                let left = piece - within % piece;
                (row.checked_mul(piece)?.checked_add(within % piece)?, left)
            }
            Layout::Parity => return None,
        };
        let left = left.min(self.length.checked_sub(at)?);
        (left > 0).then_some((self.start + at, left))
    }

    /// Calls `each` with a logical address, its place on the device `devid`, and the number of
    /// bytes for which the mapping continues: once for each place of the `len` bytes from `address`
    /// on, which lies in this chunk.
    pub fn places(&self, devid: u64, address: u64, len: u64, mut each: impl FnMut(u64, u64, u64)) {
        let (mut at, end) = (address - self.start, (address - self.start).saturating_add(len));
        let end = end.min(self.length);
        while at < end {
            let (column, within, left) = match self.layout {
                Layout::Copies => (None, at, end - at),
                Layout::Striped { piece, alike } => {
                    let columns = self.stripes.len() as u64 / alike;
                    let row = at / piece;
                    let within = row / columns * piece + at % piece;
                    (Some((row % columns, alike)), within, (piece - at % piece).min(end - at))
                }
                Layout::Parity => return,
            };
            for (i, (of, start)) in self.stripes.iter().enumerate() {
                let mine = column.is_none_or(|(column, alike)| i as u64 / alike == column);
                if *of == devid && mine {
                    each(self.start + at, start + within, left);
                }
            }
            at += left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u64, stripes: u16, sub: u16, length: u64) -> Chunk {
        let head = ChunkHead {
            length,
            stripe_len: 65536,
            kind,
            num_stripes: stripes,
            sub_stripes: sub,
            ..ChunkHead::zeroed()
        };
        let mut bytes = vec![0; ChunkHead::SIZE + usize::from(stripes) * Stripe::SIZE];
        head.encode(&mut bytes, LE);
        for (i, raw) in bytes[ChunkHead::SIZE..].chunks_exact_mut(Stripe::SIZE).enumerate() {
            let (devid, offset) = (1 + i as u64 % 2, (i as u64 + 1) << 24);
            Stripe { devid, offset, dev_uuid: [0; 16] }.encode(raw, LE);
        }
        Chunk::read(1 << 30, &bytes).unwrap().0
    }

    /// Every address is found again from its places on the device. A mirror has two places; pieces
    /// of stripes on other devices have none. Catches columns and copies that are mixed up.
    #[test]
    fn an_address_is_found_at_all_its_places() {
        // The profile, the number of stripes, the copies of RAID10, and the number of places on the
        // two devices for each address.
        for (kind, stripes, sub, copies) in
            [(0, 1, 1, 1), (DUP, 2, 1, 2), (RAID1, 2, 1, 2), (RAID0, 4, 1, 1), (RAID10, 4, 2, 2)]
        {
            let chunk = chunk(kind, stripes, sub, 1 << 20);
            let mut seen = 0;
            for at in (0..chunk.length).step_by(4096) {
                for devid in [1, 2] {
                    chunk.places(devid, chunk.start + at, 4096, |_, place, len| {
                        let mut stripes = chunk.stripes.iter().enumerate();
                        let bytes = chunk.stripe_bytes();
                        let of = stripes.find(|(_, (d, start))| {
                            *d == devid && (*start..start + bytes).contains(&place)
                        });
                        let (i, (_, start)) = of.unwrap();
                        let (address, left) = chunk.address(i, place - start).unwrap();
                        assert_eq!((address, len), (chunk.start + at, 4096), "{kind}");
                        assert!(left >= 4096);
                        seen += 1;
                    });
                }
            }
            assert_eq!(seen, copies * (chunk.length / 4096), "{kind}");
        }
    }

    /// Sizes that would overflow, no stripes, more stripes than fit, and two profiles at once.
    #[test]
    fn chunks_that_make_no_sense() {
        let head =
            ChunkHead { length: 1 << 20, stripe_len: 65536, num_stripes: 1, ..ChunkHead::zeroed() };
        let read = |head: ChunkHead, start| {
            let mut bytes = [0; ChunkHead::SIZE + Stripe::SIZE];
            head.encode(&mut bytes, LE);
            Chunk::read(start, &bytes).is_some()
        };
        assert!(read(head.clone(), 0));
        assert!(!read(ChunkHead { length: 0, ..head.clone() }, 0));
        assert!(!read(ChunkHead { length: u64::MAX, ..head.clone() }, 1));
        assert!(!read(head.clone(), u64::MAX - 5));
        assert!(!read(ChunkHead { num_stripes: 0, ..head.clone() }, 0));
        assert!(!read(ChunkHead { num_stripes: 2, ..head.clone() }, 0));
        assert!(!read(ChunkHead { kind: RAID0 | DUP, ..head.clone() }, 0));
        assert!(!read(ChunkHead { kind: RAID0, stripe_len: 3, ..head.clone() }, 0));
        assert!(!read(ChunkHead { kind: RAID10, ..head }, 0), "RAID10 of no copies");
    }
}

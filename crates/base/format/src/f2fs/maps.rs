//! The segment information table (SIT), the node address table (NAT), and the segment summary area
//! (SSA).

use super::LE;

/// The number of entries in a block of the SIT (`SIT_ENTRY_PER_BLOCK`).
pub const SIT_ENTRIES: usize = 55;
/// The number of entries in a block of the NAT (`NAT_ENTRY_PER_BLOCK`).
pub const NAT_ENTRIES: usize = 455;
/// The byte of a summary at which its entries end and its journal begins.
pub(super) const ENTRIES_END: usize = 3584;
/// The number of bytes of the journal in a summary.
pub(super) const JOURNAL: usize = 507;

crate::on_disk! {
    /// An entry of the SIT, for a segment of the main area (`struct f2fs_sit_entry`).
    pub struct SitEntry: 74 {
        0 vblocks => /** lower 10 bits: number of blocks in use; upper 6 bits: type, 0 to 2 hot, warm, cold data, 3 to 5 nodes */ vblocks: u16,
        2 valid_map => /** bitmap of the blocks in use, the first in the highest bit */ valid_map: [u8; 64],
        66 mtime => /** time of the last change */ mtime: u64,
    }
}

crate::on_disk! {
    /// An entry of the NAT, for a node (`struct f2fs_nat_entry`).
    pub struct NatEntry: 9 {
        0 version => /** version: grows each time the node number is used again */ version: u8,
        1 ino => /** inode to which the node belongs; 0: the number is free */ ino: u32,
        5 block_addr => /** address of the node; 0: none */ block_addr: u32,
    }
}

crate::on_disk! {
    /// An entry of a summary, with the node that points to a block (`struct f2fs_summary`).
    pub struct Summary: 7 {
        0 nid => /** for a data block, the node that points to it; for a node, its own number; 0: none */ nid: u32,
        4 version => /** version of that node */ version: u8,
        5 ofs_in_node => /** index of the pointer in that node */ ofs_in_node: u16,
    }
}

crate::on_disk! {
    /// The end of a summary block, after 512 entries and a journal of 507 bytes (`struct
    /// summary_footer`).
    pub struct SummaryEnd: 5 {
        0 entry_type => /** 1: the segment has nodes, 0: data */ entry_type: u8,
        1 check_sum => /** checksum, which is not kept up to date */ check_sum: u32,
    }
}

impl SitEntry {
    /// The number of blocks in use.
    pub fn used(&self) -> u16 {
        self.vblocks & 0x3ff
    }

    /// The segment's type; `None` if it has no block in use.
    pub fn kind(&self) -> Option<u8> {
        let kind = (self.vblocks >> 10) as u8;
        (self.used() > 0 && kind < 6).then_some(kind)
    }
}

/// The entries of a block of the SIT.
pub fn sit_entries(block: &[u8]) -> impl Iterator<Item = SitEntry> {
    block.chunks_exact(SitEntry::SIZE).take(SIT_ENTRIES).map(|raw| SitEntry::decode(raw, LE))
}

/// The entries of a block of the NAT.
pub fn nat_entries(block: &[u8]) -> impl Iterator<Item = NatEntry> {
    block.chunks_exact(NatEntry::SIZE).take(NAT_ENTRIES).map(|raw| NatEntry::decode(raw, LE))
}

/// The entries of a segment's summary.
pub fn summary_entries(block: &[u8]) -> impl Iterator<Item = Summary> {
    let entries = block.get(..ENTRIES_END).unwrap_or_default();
    entries.chunks_exact(Summary::SIZE).map(|raw| Summary::decode(raw, LE))
}

/// Whether a summary is of a node segment.
pub fn is_of_nodes(block: &[u8]) -> bool {
    block.len().checked_sub(SummaryEnd::SIZE).is_some_and(|end| block[end] == 1)
}

/// The entries of a journal in a summary block (`struct f2fs_journal`): `n_nats` or `n_sits` in the
/// first two bytes, then an inode or segment number (`nid`, `segno`) before each entry.
fn journal<T>(bytes: &[u8], size: usize, decode: impl Fn(&[u8]) -> T) -> Vec<(u32, T)> {
    let Some((count, rest)) = bytes.split_at_checked(2) else { return Vec::new() };
    let all = rest.chunks_exact(4 + size).take(LE.get_u16(count, 0).into());
    all.map(|raw| (LE.get_u32(raw, 0), decode(&raw[4..]))).collect()
}

/// The entries of a NAT journal, as many as fit.
pub(super) fn nat_journal(bytes: &[u8]) -> Vec<(u32, NatEntry)> {
    journal(bytes, NatEntry::SIZE, |raw| NatEntry::decode(raw, LE))
}

/// The entries of an SIT journal, as many as fit.
pub(super) fn sit_journal(bytes: &[u8]) -> Vec<(u32, SitEntry)> {
    journal(bytes, SitEntry::SIZE, |raw| SitEntry::decode(raw, LE))
}

//! NTFS and its log, as far as a decoder reads them, described in `docs/formats/ntfs.md`. No code
//! here writes them. All integers are little-endian.

use crate::Endian;

const LE: Endian = Endian::Little;

/// The unit of fixups (update sequence), in bytes: the last two bytes of each unit are protected,
/// on disks of any sector size.
pub const FIXUP_UNIT: usize = 512;

crate::on_disk! {
    /// The boot sector, the first sector of the volume; the last sector is a copy.
    pub struct Boot: 84 {
        0 jump => /** jump to the boot code */ jump: [u8; 3],
        3 oem_id => /** `NTFS` and four spaces */ name: [u8; 8],
        11 bytes_per_sector => /** size of a sector in bytes */ sector_size: u16,
        13 sectors_per_cluster => /** sectors in a cluster; from 244 on, the value is 256 minus the log2 of that number */ cluster_sectors: u8,
        14 reserved_sectors => /** fields of older file systems: zeros, the medium, the disk's geometry */ older: [u8; 26],
        40 number_of_sectors => /** number of sectors */ sectors: u64,
        48 mft_lcn => /** first cluster of `$MFT` */ mft: u64,
        56 mftmirr_lcn => /** first cluster of `$MFTMirr` */ mirror: u64,
        64 clusters_per_mft_record => /** clusters in a file record; if negative, the value is minus the log2 of its bytes */ record_clusters: i8,
        65 reserved0 => /** zero */ pad: [u8; 3],
        68 clusters_per_index_record => /** clusters in an index block, in the same form */ index_clusters: i8,
        69 reserved1 => /** zero */ pad2: [u8; 3],
        72 volume_serial_number => /** serial number of the volume */ serial: u64,
        80 checksum => /** unused */ checksum: u32,
    }
}

crate::on_disk! {
    /// The head of every structure with fixups (`NTFS_RECORD`).
    pub struct Protected: 8 {
        0 magic => /** `FILE`, `INDX`, `RSTR` or `RCRD`; `CHKD` after a check, `BAAD` if the structure was found torn */ magic: [u8; 4],
        4 usa_ofs => /** offset of the update sequence array: a number, followed by the true last two bytes of each sector */ list_at: u16,
        6 usa_count => /** number of entries of that array: one more than the sectors */ list_len: u16,
    }
}

crate::on_disk! {
    /// A file record, or an extension of one (`MFT_RECORD`).
    pub struct FileRecord: 48 {
        0 magic => /** `FILE` */ head: Protected,
        8 lsn => /** log sequence number of the newest log record about it */ lsn: u64,
        16 sequence_number => /** number of times that the record has been used */ sequence: u16,
        18 link_count => /** number of names (hard links) */ links: u16,
        20 attrs_offset => /** offset of the first attribute in bytes */ attributes_at: u16,
        22 flags => /** 1: in use, 2: a directory */ flags: u16,
        24 bytes_in_use => /** number of bytes in use */ used: u32,
        28 bytes_allocated => /** size of the record in bytes */ allocated: u32,
        32 base_mft_record => /** for a record that continues another one: that record */ base: u64,
        40 next_attr_instance => /** number of the next new attribute */ next_attribute: u16,
        42 reserved => /** zero */ pad: u16,
        44 mft_record_number => /** number of this record */ number: u32,
    }
}

crate::on_disk! {
    /// The head of an attribute (`ATTR_RECORD`).
    pub struct AttributeHead: 16 {
        0 type => /** type; all bits set behind the last attribute */ kind: u32,
        4 length => /** length of the attribute in bytes */ len: u32,
        8 non_resident => /** 1: the contents are in clusters */ outside: u8,
        9 name_length => /** length of its name in UTF-16 units */ name_len: u8,
        10 name_offset => /** offset of its name in bytes */ name_at: u16,
        12 flags => /** flags: 1 compressed, 0x4000 encrypted, 0x8000 sparse */ flags: u16,
        14 instance => /** number of the attribute in the record */ number: u16,
    }
}

crate::on_disk! {
    /// The head of a non-resident attribute, whose contents are in clusters. It follows
    /// [`AttributeHead`].
    pub struct Outside: 48 {
        0 lowest_vcn => /** first cluster of the contents that is described here */ first: u64,
        8 highest_vcn => /** last cluster of the contents that is described here */ last: u64,
        16 mapping_pairs_offset => /** offset of the list of runs in bytes */ runs_at: u16,
        18 compression_unit => /** log2 of the clusters in a compression unit */ compression: u16,
        20 reserved => /** zero */ pad: u32,
        24 allocated_size => /** number of bytes that are allocated */ allocated: u64,
        32 data_size => /** size in bytes */ size: u64,
        40 initialized_size => /** number of bytes that have been written */ valid: u64,
    }
}

crate::on_disk! {
    /// A name: the contents of a `$FILE_NAME` attribute, without the characters that follow.
    pub struct FileName: 66 {
        0 parent_directory => /** file reference of the directory: lower 48 bits its number, upper 16 bits its sequence number */ parent: u64,
        8 creation_time => /** four times: creation, last change of the contents, last change of the record, last access */ times: [u64; 4],
        40 allocated_size => /** number of bytes that are allocated */ allocated: u64,
        48 data_size => /** size in bytes */ size: u64,
        56 file_attributes => /** flags */ flags: u32,
        60 packed_ea_size => /** used for reparse points and extended attributes */ extra: u32,
        64 file_name_length => /** length of the name in UTF-16 units */ len: u8,
        65 file_name_type => /** namespace: 0 POSIX, 1 Win32, 2 DOS (8.3), 3 Win32 and DOS */ space: u8,
    }
}

crate::on_disk! {
    /// A restart page; the first two pages of the log are such.
    pub struct RestartPage: 30 {
        0 magic => /** `RSTR` */ head: Protected,
        8 chkdsk_lsn => /** newest log record that a check has seen */ checked: u64,
        16 system_page_size => /** size of a restart page in bytes */ restart_page_size: u32,
        20 log_page_size => /** size of a log page in bytes */ page_size: u32,
        24 restart_area_offset => /** offset of the restart area in bytes */ area_at: u16,
        26 minor_ver => /** minor version */ minor: i16,
        28 major_ver => /** major version */ major: i16,
    }
}

crate::on_disk! {
    /// The restart area.
    pub struct RestartArea: 48 {
        0 current_lsn => /** newest log record when the area was written */ current: u64,
        8 log_clients => /** number of clients */ clients: u16,
        10 client_free_list => /** first free client */ free: u16,
        12 client_in_use_list => /** first client in use; all bits set: none, because the log was closed */ used: u16,
        14 flags => /** 2: the volume was unmounted */ flags: u16,
        16 seq_number_bits => /** number of bits of a log sequence number that are not the position in the log */ sequence_bits: u32,
        20 restart_area_length => /** size of the area with its clients in bytes */ len: u16,
        22 client_array_offset => /** offset of the clients from the start of the area, in bytes */ clients_at: u16,
        24 file_size => /** size of the log in bytes */ size: u64,
        32 last_lsn_data_length => /** length of the data of the newest record in bytes */ last_len: u32,
        36 log_record_header_length => /** size of a record's head in bytes */ head_len: u16,
        38 log_page_data_offset => /** offset of the first record in a log page, in bytes */ records_at: u16,
        40 restart_log_open_count => /** number of times that the log was opened */ opened: u32,
        44 reserved => /** zero */ pad: u32,
    }
}

crate::on_disk! {
    /// A log page with records.
    pub struct RecordPage: 40 {
        0 rhdr => /** `RCRD` */ head: Protected,
        8 lsn => /** newest record that is at least partly in this page; in a copy of the last page, the position of that page in bytes */ last: u64,
        16 rflags => /** 1: a record ends in this page */ flags: u32,
        20 page_count => /** number of pages that are written together */ pages: u16,
        22 page_pos => /** number of this page among these */ page: u16,
        24 next_record_off => /** offset of the end of the last record that ends in this page */ end: u16,
        26 reserved => /** zero */ pad: [u8; 6],
        32 last_end_lsn => /** newest record that ends in this page */ last_whole: u64,
    }
}

crate::on_disk! {
    /// The head of a log record.
    pub struct LogRecord: 48 {
        0 this_lsn => /** log sequence number of this record: lower bits its position in units of 8 bytes, upper bits a count */ lsn: u64,
        8 client_prev_lsn => /** previous record of this transaction */ previous: u64,
        16 client_undo_next_lsn => /** record that is undone next */ undo_next: u64,
        24 client_data_len => /** number of bytes of data that follow */ len: u32,
        28 seq_num => /** sequence number of the client */ client_sequence: u16,
        30 client_idx => /** number of the client */ client: u16,
        32 record_type => /** 1: a record of the client, 2: the start of its restart information */ kind: u32,
        36 transact_id => /** index of the transaction in a table; indexes are used again */ transaction: u32,
        40 flags => /** 1: the record continues in the next page */ flags: u16,
        42 reserved => /** zero */ pad: [u8; 6],
    }
}

crate::on_disk! {
    /// The part that NTFS puts first into the data of its log records. The clusters follow, 8 bytes
    /// each.
    pub struct Action: 32 {
        0 redo_op => /** operation that was done */ redo: u16,
        2 undo_op => /** operation that undoes it */ undo: u16,
        4 redo_off => /** offset of the redo data in bytes */ redo_at: u16,
        6 redo_len => /** length of the redo data in bytes */ redo_len: u16,
        8 undo_off => /** offset of the undo data in bytes */ undo_at: u16,
        10 undo_len => /** length of the undo data in bytes */ undo_len: u16,
        12 target_attr => /** index of the attribute in a table */ attribute: u16,
        14 lcns_follow => /** number of clusters that follow */ clusters: u16,
        16 record_off => /** offset in the file record or index block, in bytes */ record_at: u16,
        18 attr_off => /** offset in the attribute, in bytes */ attribute_at: u16,
        20 cluster_off => /** offset of the record in the first cluster, in units of 512 bytes */ sector: u16,
        22 reserved => /** zero */ pad: u16,
        24 target_vcn => /** cluster of the attribute */ vcn: u64,
    }
}

/// Operations of log records.
pub mod action {
    /// A value of the undo operation: the record is itself the rollback of an earlier one (a
    /// compensation log record).
    pub const COMPENSATION: u16 = 1;
    /// The transaction is committed.
    pub const COMMIT: u16 = 26;
    /// The transaction has ended and can be forgotten.
    pub const FORGET: u16 = 27;
    /// An attribute was opened.
    pub const OPENED: u16 = 28;
    /// The number of the last known operation.
    pub const LAST: u16 = 37;
    /// Whether the operation only tells a restart which tables were open, and changes nothing.
    pub const fn is_table(action: u16) -> bool {
        action >= 28 && action <= 32
    }
}

/// Types of attributes.
pub mod kind {
    /// `$ATTRIBUTE_LIST`: the places of a file's other attributes.
    pub const LIST: u32 = 0x20;
    /// `$FILE_NAME`: a name.
    pub const NAME: u32 = 0x30;
    /// `$SECURITY_DESCRIPTOR`: access rights.
    pub const SECURITY: u32 = 0x50;
    /// `$DATA`: contents.
    pub const DATA: u32 = 0x80;
    /// `$INDEX_ALLOCATION`: an index without its root.
    pub const INDEX: u32 = 0xa0;
    /// `$BITMAP`: the blocks of an index, or the file records, that are in use.
    pub const BITMAP: u32 = 0xb0;
    /// `$REPARSE_POINT`: a symbolic link, or another kind of redirection.
    pub const REPARSE: u32 = 0xc0;
    /// `$EA`: extended attributes.
    pub const EXTENDED: u32 = 0xe0;
    /// The end of a record's attributes.
    pub const END: u32 = u32::MAX;
}

/// The geometry that follows from the boot sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of bytes in a sector, as a shift.
    pub sector_shift: u32,
    /// The number of bytes in a cluster, as a shift.
    pub cluster_shift: u32,
    /// The number of bytes in a file record, as a shift.
    pub record_shift: u32,
    /// The volume's size in bytes, the copy of the boot sector included.
    pub bytes: u64,
    /// First cluster of `$MFT`.
    pub mft: u64,
    /// First cluster of its copy.
    pub mirror: u64,
}

impl Boot {
    /// Decodes a boot sector, and checks the fields from which sizes are computed. `None` if it is
    /// not NTFS's.
    pub fn read(bytes: &[u8]) -> Option<Geometry> {
        if bytes.len() < Boot::SIZE {
            return None;
        }
        let boot = Boot::decode(bytes, LE);
        let sector_shift = u32::from(boot.sector_size).checked_ilog2()?;
        let cluster = match boot.cluster_sectors {
            few @ ..=128 => u64::from(few) << sector_shift,
            // The value stands for more than 64 KiB.
            many => 1 << (sector_shift + (256 - u32::from(many)).min(20)),
        };
        let cluster_shift = cluster.checked_ilog2()?;
        let record_shift = match boot.record_clusters {
            shift @ -31..0 => u32::from(shift.unsigned_abs()),
            clusters => u64::try_from(clusters).ok()?.checked_ilog2()? + cluster_shift,
        };
        // The volume's number of sectors does not count the last one, the copy of the boot sector.
        let bytes = boot.sectors.checked_add(1)?.checked_shl(sector_shift)?;
        let sane = boot.name == *b"NTFS    "
            && boot.sector_size.is_power_of_two()
            && cluster.is_power_of_two()
            && (9..=12).contains(&sector_shift)
            && cluster_shift <= 21
            && (9..=14).contains(&record_shift)
            && boot.sectors >> 48 == 0
            && boot.sectors >= 16
            && boot.mft.checked_shl(cluster_shift).is_some_and(|at| at < bytes);
        let (mft, mirror) = (boot.mft, boot.mirror);
        sane.then_some(Geometry { sector_shift, cluster_shift, record_shift, bytes, mft, mirror })
    }
}

/// The bytes of a structure with its fixups applied: the end of each sector is restored. `None` if
/// the structure is torn, or has no valid fixups.
pub fn unprotected(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < FIXUP_UNIT {
        return None;
    }
    let head = Protected::decode(raw, LE);
    let (at, count) = (usize::from(head.list_at), usize::from(head.list_len));
    if count != raw.len() / FIXUP_UNIT + 1
        || at < Protected::SIZE
        || at + 2 * count > FIXUP_UNIT - 2
    {
        return None;
    }
    let mut out = raw.to_vec();
    let number = [raw[at], raw[at + 1]];
    for (i, sector) in out.chunks_exact_mut(FIXUP_UNIT).enumerate() {
        if sector[FIXUP_UNIT - 2..] != number {
            return None;
        }
        let really = at + 2 * (i + 1);
        sector[FIXUP_UNIT - 2..].copy_from_slice(&raw[really..really + 2]);
    }
    Some(out)
}

/// A run: consecutive clusters of an attribute's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first cluster, counted in the contents.
    pub first: u64,
    /// The first cluster on the volume.
    pub cluster: u64,
    /// The number of clusters.
    pub len: u64,
}

/// The runs of a run list whose first cluster is `first` of the contents; holes are left out. The
/// list ends where it makes no sense.
pub fn runs(list: &[u8], first: u64) -> Vec<Run> {
    let number = |raw: &[u8], signed: bool| {
        let fill = if signed && raw.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
        let mut all = [fill; 8];
        all[..raw.len()].copy_from_slice(raw);
        i64::from_le_bytes(all)
    };
    let (mut out, mut list, mut at, mut cluster) = (Vec::new(), list, first, 0i64);
    while let Some((head, rest)) = list.split_first().filter(|(head, _)| **head != 0) {
        let (lens, places) = (usize::from(head & 15), usize::from(head >> 4));
        if lens == 0 || lens > 8 || places > 8 || rest.len() < lens + places {
            break;
        }
        let Ok(len) = u64::try_from(number(&rest[..lens], true)) else { break };
        let Some(next) = at.checked_add(len) else { break };
        if places > 0 {
            let Some(start) = cluster.checked_add(number(&rest[lens..lens + places], true)) else {
                break;
            };
            let Ok(place) = u64::try_from(start) else { break };
            cluster = start;
            if len > 0 && place.checked_add(len).is_some() {
                out.push(Run { first: at, cluster: place, len });
            }
        }
        at = next;
        list = &rest[lens + places..];
    }
    out
}

/// An attribute of a file record.
#[derive(Clone, Debug)]
pub struct Attribute<'a> {
    /// The head.
    pub head: AttributeHead,
    /// All of its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The name, in UTF-16.
    pub fn name(&self) -> &'a [u8] {
        let from = usize::from(self.head.name_at);
        self.bytes.get(from..from + 2 * usize::from(self.head.name_len)).unwrap_or_default()
    }

    /// The contents, if the attribute is resident (in the record).
    pub fn inside(&self) -> Option<&'a [u8]> {
        if self.head.outside != 0 || self.bytes.len() < AttributeHead::SIZE + 8 {
            return None;
        }
        // `value_length` and `value_offset` of a resident `ATTR_RECORD`.
        let (len, at) = (LE.get_u32(self.bytes, 16) as usize, LE.get_u16(self.bytes, 20));
        self.bytes.get(usize::from(at)..)?.get(..len)
    }

    /// The runs of the contents, if the attribute is non-resident (in clusters).
    pub fn outside(&self) -> Option<Vec<Run>> {
        let raw = self.bytes.get(AttributeHead::SIZE..)?;
        if self.head.outside != 1 || raw.len() < Outside::SIZE {
            return None;
        }
        let outside = Outside::decode(raw, LE);
        Some(runs(self.bytes.get(usize::from(outside.runs_at)..)?, outside.first))
    }
}

/// The attributes of a file record whose fixups were applied.
pub fn attributes(record: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    let sane = record.len() >= FileRecord::SIZE && record.starts_with(b"FILE");
    let first = if sane { FileRecord::decode(record, LE).attributes_at } else { 0 };
    let mut rest = if sane { record.get(usize::from(first)..) } else { None };
    std::iter::from_fn(move || {
        let bytes = rest.filter(|r| r.len() >= AttributeHead::SIZE)?;
        let head = AttributeHead::decode(bytes, LE);
        let len = head.len as usize;
        if head.kind == kind::END || len < AttributeHead::SIZE || len > bytes.len() {
            rest = None;
            return None;
        }
        rest = bytes.get(len..);
        Some(Attribute { head, bytes: &bytes[..len] })
    })
}

impl FileName {
    /// Decodes a name, with its characters as UTF-8. `None` if a value in it is impossible.
    pub fn read(bytes: &[u8]) -> Option<(FileName, String)> {
        if bytes.len() < FileName::SIZE {
            return None;
        }
        let name = FileName::decode(bytes, LE);
        let raw = bytes.get(FileName::SIZE..FileName::SIZE + 2 * usize::from(name.len))?;
        let units: Vec<u16> = raw.chunks_exact(2).map(|c| LE.get_u16(c, 0)).collect();
        Some((name, String::from_utf16_lossy(&units)))
    }
}

/// The layout of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShape {
    /// The size of a page in bytes.
    pub page_size: usize,
    /// The number of low bits of an LSN that are the record's place, in units of 8 bytes.
    pub place_bits: u32,
    /// The byte of a page at which its records begin.
    pub records_at: usize,
    /// The number of bytes in the log.
    pub size: u64,
    /// The number of pages for tail copies of the last page.
    pub copies: u64,
}

impl LogShape {
    /// Decodes a restart page whose fixups were applied. `None` if it makes no sense, or is newer
    /// than what is known.
    pub fn read(page: &[u8]) -> Option<LogShape> {
        if page.len() < RestartPage::SIZE || !matches!(&page[..4], b"RSTR" | b"CHKD") {
            return None;
        }
        let head = RestartPage::decode(page, LE);
        let area =
            page.get(usize::from(head.area_at)..).filter(|a| a.len() >= RestartArea::SIZE)?;
        let area = RestartArea::decode(area, LE);
        let (page_size, records_at) = (head.page_size as usize, usize::from(area.records_at));
        let sane = [1, 2].contains(&head.major)
            && page_size.is_power_of_two()
            && (512..=65536).contains(&page_size)
            && (21..=61).contains(&area.sequence_bits)
            && (RecordPage::SIZE..page_size).contains(&records_at)
            && records_at.is_multiple_of(8)
            && usize::from(area.head_len) == LogRecord::SIZE
            && area.size >= 4 * page_size as u64
            && area.size >> 40 == 0;
        let (place_bits, size) = (64 - area.sequence_bits, area.size);
        let copies = if head.major == 1 { 2 } else { 32 };
        sane.then_some(LogShape { page_size, place_bits, records_at, size, copies })
    }

    /// The place in the log of the record with this LSN, in bytes.
    pub fn place(&self, lsn: u64) -> u64 {
        (lsn & ((1 << self.place_bits) - 1)) << 3
    }
}

impl Action {
    /// Decodes the action in a record's data, with its clusters. `None` if a value in it is
    /// impossible.
    pub fn read(data: &[u8]) -> Option<(Action, Vec<u64>)> {
        if data.len() < Action::SIZE {
            return None;
        }
        let action = Action::decode(data, LE);
        let list = data.get(Action::SIZE..Action::SIZE + 8 * usize::from(action.clusters))?;
        let known = action.redo <= action::LAST && action.undo <= action::LAST;
        known.then(|| (action, list.chunks_exact(8).map(|raw| LE.get_u64(raw, 0)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of runs with a hole, a step back and an end; and lists that make no sense.
    #[test]
    fn runs_of_contents() {
        let list = [0x21, 0x18, 0x34, 0x56, 0x01, 0x08, 0x11, 0x10, 0xf0, 0, 9];
        let run = |first, cluster, len| Run { first, cluster, len };
        assert_eq!(runs(&list, 100), [run(100, 0x5634, 0x18), run(132, 0x5624, 16)]);
        for damaged in [&[0x21, 5][..], &[0x10, 5], &[0x19; 20], &[0x11, 0xff, 3], &[0x11, 4, 0x80]]
        {
            assert_eq!(runs(damaged, 0), [], "{damaged:?}");
        }
    }

    /// A sector whose end has another number is torn. A structure whose fixup list is not inside
    /// the first sector has none.
    #[test]
    fn torn_structures_are_not_decoded() {
        let mut raw = vec![0; 1024];
        raw[..8].copy_from_slice(b"FILE\x30\0\x03\0");
        raw[0x30..0x36].copy_from_slice(&[7, 0, 1, 2, 3, 4]);
        for end in [510, 1022] {
            raw[end] = 7;
        }
        let right = unprotected(&raw).unwrap();
        assert_eq!((&right[510..512], &right[1022..]), (&[1, 2][..], &[3, 4][..]));
        let mut torn = raw.clone();
        torn[1022] = 6;
        assert_eq!(unprotected(&torn), None);
        raw[4] = 0xfd;
        assert_eq!(unprotected(&raw), None);
        raw[5] = 0xff;
        assert_eq!(unprotected(&raw), None);
    }
}

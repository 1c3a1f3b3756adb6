//! Images with one field or one byte changed, and the result that the page of checks promises for
//! each.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Finding;
use ordo_ffs::mkfs::{MkfsOptions, UfsVersion};
use ordo_format::ufs2::csum::CsTotal;
use ordo_format::ufs2::superblock::{RECOVERY_AT, Recovery, SBLOCK_SIZE, Superblock};
use ordo_format::ufs2::{Csum, Group};
use ordo_format::{Endian, Field};

use super::{Surgeon, populated_with};

/// The structures on the page of checks.
pub const STRUCTURES: [(&str, usize, &[Field]); 5] = [
    ("Superblock", Superblock::SIZE, Superblock::FIELDS),
    ("CsTotal", CsTotal::SIZE, CsTotal::FIELDS),
    ("Recovery", Recovery::SIZE, Recovery::FIELDS),
    ("Csum", Csum::SIZE, Csum::FIELDS),
    ("Group", Group::SIZE, Group::FIELDS),
];

/// The way in which a field is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Any other value is found.
    Exact,
    /// An impossible value is found.
    Range,
    /// The field is the check-hash.
    Hash,
    /// The field is not checked.
    No,
}

impl How {
    fn named(word: &str) -> How {
        match word {
            "exact" => How::Exact,
            "range" => How::Range,
            "hash" => How::Hash,
            "no" => How::No,
            other => panic!("{other:?} is no way to look at a field"),
        }
    }
}

/// A line of the page of checks.
pub struct Line {
    pub field: String,
    pub how: How,
    /// The findings, or the reason for none.
    pub text: String,
    /// The way in which the field is checked in a copy of the superblock.
    pub in_copy: Option<How>,
}

impl Line {
    /// The findings that the line names.
    pub fn kinds(&self) -> Vec<&'static str> {
        let named = |kind: &&&str| self.text.split(", ").any(|word| word == **kind);
        Finding::KINDS.iter().filter(named).copied().collect()
    }
}

/// A structure's lines in a format. UFS1's page has only the lines that differ.
pub fn lines(version: UfsVersion, structure: &str) -> Vec<Line> {
    let mut all = lines_of("ufs2", structure);
    let has_lines = ["Superblock", "Group"].contains(&structure);
    if version == UfsVersion::Ufs1 && has_lines {
        for line in lines_of("ufs1", structure) {
            let place = all.iter().position(|other| other.field == line.field);
            let place = place.unwrap_or_else(|| panic!("{structure} has no {}", line.field));
            all[place] = line;
        }
    }
    all
}

fn lines_of(format: &str, structure: &str) -> Vec<Line> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/formats");
    let page = std::fs::read_to_string(format!("{folder}/{format}-checks.md")).unwrap();
    let mark = format!("<!-- checks: {structure} -->\n");
    let start = page.find(&mark).unwrap_or_else(|| panic!("no mark {mark}")) + mark.len();
    let table = &page[start..start + page[start..].find("<!-- end -->").unwrap()];
    let line = |row: &str| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        Line {
            field: cells[0].to_owned(),
            how: How::named(cells[1]),
            text: cells[2].to_owned(),
            in_copy: cells.get(3).map(|word| How::named(word)),
        }
    };
    table.lines().skip(2).map(line).collect()
}

/// A change of one field or byte.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub structure: &'static str,
    /// Whether the structure is a copy of the superblock.
    pub copy: bool,
    /// The group of the structure, if there is one.
    pub cg: u32,
    /// The structure's place, in bytes.
    pub at: u64,
    pub field: &'static Field,
    /// The first changed byte in the structure.
    pub byte: usize,
    pub new: Vec<u8>,
    /// Whether the check-hash is corrected afterwards.
    pub seal: bool,
}

/// A valid file system of some geometry.
pub struct Shape {
    pub name: String,
    pub options: MkfsOptions,
    pub disk: Rc<RamDisk>,
}

/// File systems with a file of every kind, UFS2 and UFS1: four block sizes, with and without
/// check-hashes, one without clusters, one with a single group, and one with fragments as large as
/// its blocks.
pub fn shapes(endian: Endian) -> Vec<Shape> {
    let sizes: [(u32, u32, Option<u32>, u64); 4] = [
        (4096, 512, Some(256), 3000 << 10),
        (8192, 1024, Some(256), (6 << 20) + (5 << 10)),
        (16384, 2048, Some(128), (7 << 20) + (6 << 10)),
        (32768, 4096, Some(128), 13 << 20),
    ];
    let whole = [(4096, 4096, Some(256), 3 << 20), (8192, 1024, None, 6 << 20)];
    let mut shapes = Vec::new();
    for (i, (block_size, frag_size, max_blocks_per_group, bytes)) in
        sizes.into_iter().chain(whole).enumerate()
    {
        for check_hashes in [true, false] {
            let max_contig = (i == 1 && !check_hashes).then_some(1);
            let options = MkfsOptions {
                block_size,
                frag_size,
                max_blocks_per_group,
                max_contig,
                check_hashes,
                endian,
                ..MkfsOptions::default()
            };
            let (disk, _) = populated_with(&options, bytes);
            let name = format!("{block_size}/{frag_size}, {endian:?}, hashes {check_hashes}");
            shapes.push(Shape { name, options: options.clone(), disk });
            if !check_hashes {
                let options = MkfsOptions { version: UfsVersion::Ufs1, ..options };
                let (disk, _) = populated_with(&options, bytes);
                let name = format!("UFS1, {block_size}/{frag_size}, {endian:?}");
                shapes.push(Shape { name, options, disk });
            }
        }
    }
    shapes
}

/// The number of bytes of one number in a field.
fn width(field: &Field) -> usize {
    match field.type_name.trim_start_matches('[').split(';').next().unwrap() {
        "i8" | "u8" => 1,
        "i16" => 2,
        "i32" | "u32" | "Csum" => 4,
        "i64" | "u64" => 8,
        other => panic!("{other} is no number"),
    }
}

impl Shape {
    /// The places of all structures: name, whether it is a copy, group, byte.
    fn places(&self) -> Vec<(&'static str, bool, u32, u64)> {
        let surgeon = Surgeon::new(&self.disk);
        let sb = &surgeon.sb;
        let last = sb.ncg - 1;
        let total = Field::find(Superblock::FIELDS, "cstotal").unwrap().offset as u64;
        let mut places =
            vec![("Superblock", false, 0, surgeon.at), ("CsTotal", false, 0, surgeon.at + total)];
        if !sb.is_ufs1() {
            places.push(("Recovery", false, 0, RECOVERY_AT));
        }
        let mut groups = vec![0, last / 2, last];
        groups.dedup();
        for cg in groups {
            places.push(("Superblock", true, cg, surgeon.byte(sb.cg_superblock(cg))));
            let entry = u64::from(cg) * Csum::SIZE as u64;
            places.push(("Csum", false, cg, surgeon.byte(sb.csaddr as u64) + entry));
            places.push(("Group", false, cg, surgeon.byte(sb.cg_header(cg))));
        }
        places
    }

    /// Mutants of each number in each field: 0, 1, the largest value, one more, one less, all with
    /// corrected check-hashes.
    pub fn by_field(&self) -> Vec<Mutant> {
        let mut all = Vec::new();
        self.each_field(|mutant, old, endian| {
            let width = width(mutant.field);
            let count = mutant.field.bytes / width;
            for index in [0, count / 3, count - 1] {
                let byte = mutant.field.offset + index * width;
                let mut wide = [0; 8];
                let (low, part) = match endian {
                    Endian::Little => (0, 0..width),
                    Endian::Big => (8 - width, 8 - width..8),
                };
                wide[low..low + width].copy_from_slice(&old[byte..byte + width]);
                let value = endian.get_u64(&wide, 0);
                for value in [0, 1, u64::MAX, value.wrapping_add(1), value.wrapping_sub(1)] {
                    let mut bytes = [0; 8];
                    endian.put_u64(&mut bytes, 0, value);
                    let new = bytes[part.clone()].to_vec();
                    all.push(Mutant { byte, new, seal: true, ..mutant.clone() });
                }
            }
        });
        self.that_differ(all)
    }

    /// Mutants of each byte: one bit flipped, or all; check-hashes stay.
    pub fn by_byte(&self) -> Vec<Mutant> {
        let mut all = Vec::new();
        self.each_field(|mutant, old, _| {
            for byte in mutant.field.offset..mutant.field.offset + mutant.field.bytes {
                let flip = [1, 0x80, 0xff, 0x10][byte % 4];
                let new = vec![old[byte] ^ flip];
                all.push(Mutant { byte, new, seal: false, ..mutant.clone() });
            }
        });
        all
    }

    fn each_field(&self, mut each: impl FnMut(&Mutant, &[u8], Endian)) {
        let surgeon = Surgeon::new(&self.disk);
        for (structure, copy, cg, at) in self.places() {
            let (_, size, fields) =
                *STRUCTURES.iter().find(|(name, ..)| *name == structure).unwrap();
            let old = surgeon.load(at, size);
            // The totals have a table of their own.
            for field in fields.iter().filter(|field| field.name != "cstotal") {
                let (byte, new, seal) = (0, Vec::new(), false);
                let mutant = Mutant { structure, copy, cg, at, field, byte, new, seal };
                each(&mutant, &old, surgeon.endian);
            }
        }
    }

    fn that_differ(&self, mut mutants: Vec<Mutant>) -> Vec<Mutant> {
        let mut seen = std::collections::BTreeSet::new();
        mutants.retain(|mutant| {
            let mut old = vec![0; mutant.new.len()];
            self.disk.load(mutant.at + mutant.byte as u64, &mut old);
            let key = (mutant.at, mutant.structure, mutant.byte, mutant.new.clone());
            old != mutant.new && seen.insert(key)
        });
        mutants
    }

    /// A copy of the disk with a mutation.
    pub fn with(&self, mutant: &Mutant) -> Rc<RamDisk> {
        let disk = Rc::new(self.disk.snapshot());
        let surgeon = Surgeon::new(&disk);
        disk.store(mutant.at + mutant.byte as u64, &mutant.new);
        // A changed check-hash must not be corrected.
        if !mutant.seal || mutant.field.name == "ckhash" {
            return disk;
        }
        match mutant.structure {
            "Superblock" | "CsTotal" => {
                let at = if mutant.structure == "CsTotal" { surgeon.at } else { mutant.at };
                let mut bytes = surgeon.load(at, SBLOCK_SIZE);
                let mut sb = Superblock::decode(&bytes, surgeon.endian);
                if !(Superblock::SIZE as i32..=SBLOCK_SIZE as i32).contains(&sb.sbsize) {
                    sb.sbsize = surgeon.sb.sbsize;
                }
                sb.seal(&mut bytes, surgeon.endian);
                disk.store(at, &bytes);
            }
            "Group" => {
                let mut bytes = surgeon.load(mutant.at, surgeon.sb.block_size());
                Group::seal(&mut bytes, surgeon.endian, &surgeon.sb);
                disk.store(mutant.at, &bytes);
            }
            _ => {}
        }
        disk
    }

    /// The page's promise for a mutant: the way in which the field is checked, and the findings. A
    /// check-hash covers changes for which it was not corrected.
    pub fn wanted(&self, mutant: &Mutant, line: &Line) -> (How, Vec<&'static str>) {
        let mut how = if mutant.copy { line.in_copy.unwrap() } else { line.how };
        let mut kinds = if mutant.copy { vec!["SuperblockCopy"] } else { line.kinds() };
        let hashes = self.options.check_hashes;
        let covered = ["Superblock", "CsTotal", "Group"].contains(&mutant.structure);
        if hashes && covered && !mutant.seal {
            // These fields say whether there is a check-hash.
            let tells = ["flags", "metackhash"].contains(&line.field.as_str());
            how = if tells { How::Range } else { How::Exact };
            kinds.push(if mutant.structure == "Group" { "GroupHash" } else { "SuperblockHash" });
            kinds.push(if mutant.copy { "SuperblockCopy" } else { "SuperblockDamaged" });
        }
        match how {
            How::Hash if hashes => (How::Exact, kinds),
            How::Hash => (How::No, kinds),
            how => (how, kinds),
        }
    }
}

//! Random operations: few names, so that they collide; sizes at the edges where layouts change.

use ordo_vfs::{FileType, RenameMode, SetAttr, SetTime, Timestamp, XattrMode, flags};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::op::{OracleName, OracleObject, OracleOp};
use super::run::World;
use super::{OracleConfig, OracleRules};

/// A generator of operations that fit the state of a run.
pub(super) struct Generator {
    rng: Pcg64Mcg,
    rules: OracleRules,
    /// Sizes and offsets at which the layout changes: fragments, blocks, levels of indirection.
    edges: Vec<u64>,
    write_max: usize,
    names: Vec<OracleName>,
}

/// The relative frequency of each kind of operation.
const WEIGHTS: [(u32, Kind); 24] = [
    (90, Kind::CreateFile),
    (45, Kind::CreateDirectory),
    (25, Kind::CreateSymlink),
    (12, Kind::CreateSpecial),
    (45, Kind::Link),
    (85, Kind::Unlink),
    (35, Kind::Rmdir),
    (100, Kind::Rename),
    (60, Kind::Lookup),
    (35, Kind::Open),
    (35, Kind::Close),
    (15, Kind::GetAttr),
    (45, Kind::SetAttr),
    (50, Kind::SetSize),
    (10, Kind::ReadLink),
    (50, Kind::Read),
    (130, Kind::Write),
    (12, Kind::List),
    (14, Kind::ListFirst),
    (25, Kind::ListOn),
    (10, Kind::Fsync),
    (3, Kind::Sync),
    (55, Kind::Xattr),
    (1, Kind::Remount),
];

#[derive(Clone, Copy)]
enum Kind {
    CreateFile,
    CreateDirectory,
    CreateSymlink,
    CreateSpecial,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Lookup,
    Open,
    Close,
    GetAttr,
    SetAttr,
    SetSize,
    ReadLink,
    Read,
    Write,
    List,
    ListFirst,
    ListOn,
    Fsync,
    Sync,
    Xattr,
    Remount,
}

impl Generator {
    pub(super) fn new(config: &OracleConfig) -> Generator {
        let mut rng = Pcg64Mcg::seed_from_u64(config.seed);
        let names = (0..config.names).map(|i| name(i, &mut rng)).collect();
        let (block, fragment) = (u64::from(config.block_size), u64::from(config.fragment_size));
        let pointers = block / 8;
        let mut edges = vec![0, 512, fragment, 2 * fragment, block, 2 * block, 12 * block];
        if config.large_offsets {
            edges.push((12 + pointers) * block);
            edges.push((12 + pointers + pointers * pointers) * block);
            edges.push(config.model.file_size_max);
        }
        let write_max = config.write_max;
        Generator { rng, rules: config.rules.clone(), edges, write_max, names }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())].clone()
    }

    /// A name; now and then one that no directory accepts.
    fn name(&mut self) -> OracleName {
        match self.rng.random_range(0..120) {
            0 => OracleName(b".".to_vec()),
            1 => OracleName(b"..".to_vec()),
            2 => OracleName(Vec::new()),
            3 => OracleName(vec![b'y'; 256]),
            4 => OracleName(b"a/b".to_vec()),
            _ => {
                let i = self.rng.random_range(0..self.names.len());
                self.names[i].clone()
            }
        }
    }

    /// A directory; now and then another object.
    fn directory(&mut self, world: &World) -> OracleObject {
        if self.chance(40) {
            return self.any(world);
        }
        let all = world.of_type(FileType::Directory);
        self.pick(&all)
    }

    fn any(&mut self, world: &World) -> OracleObject {
        let all = world.objects();
        self.pick(&all)
    }

    /// A regular file; now and then another object.
    fn file(&mut self, world: &World) -> OracleObject {
        let all = world.of_type(FileType::Regular);
        if all.is_empty() || self.chance(40) { self.any(world) } else { self.pick(&all) }
    }

    /// An offset or size: at or near an edge, or small.
    fn place(&mut self) -> u64 {
        if self.chance(4) {
            return self.rng.random_range(0..100_000);
        }
        let edges = std::mem::take(&mut self.edges);
        let edge = self.pick(&edges);
        self.edges = edges;
        match self.rng.random_range(0..4) {
            0 => edge,
            1 => edge.saturating_add(self.rng.random_range(0..700)),
            _ => edge.saturating_sub(self.rng.random_range(0..700)),
        }
    }

    fn mode(&mut self) -> u16 {
        self.rng.random_range(0..0o10000) & self.rules.mode_mask | self.rules.mode_always
    }

    fn time(&mut self) -> SetTime {
        match self.rng.random_range(0..4) {
            0 => SetTime::Now,
            1 => SetTime::To(Timestamp { seconds: 5, nanos: 1_000_000_000 }),
            _ => {
                let seconds = self.rng.random_range(-2_000_000_000..8_000_000_000);
                SetTime::To(Timestamp { seconds, nanos: self.rng.random_range(0..1_000_000_000) })
            }
        }
    }

    pub(super) fn next(&mut self, world: &World) -> OracleOp {
        let total: u32 = WEIGHTS.iter().map(|(w, _)| w).sum();
        loop {
            let mut at = self.rng.random_range(0..total);
            let kind = WEIGHTS
                .iter()
                .find(|(w, _)| {
                    let here = at < *w;
                    at = at.wrapping_sub(*w);
                    here
                })
                .expect("at is below the total")
                .1;
            if let Some(op) = self.of_kind(kind, world) {
                return op;
            }
        }
    }

    fn of_kind(&mut self, kind: Kind, world: &World) -> Option<OracleOp> {
        Some(match kind {
            Kind::CreateFile => self.make(FileType::Regular, world),
            Kind::CreateDirectory => self.make(FileType::Directory, world),
            Kind::CreateSymlink => self.make(FileType::Symlink, world),
            Kind::CreateSpecial => {
                let types = self.rules.special_types.clone();
                if types.is_empty() {
                    return None;
                }
                let file_type = self.pick(&types);
                self.make(file_type, world)
            }
            Kind::Link => {
                let object = if self.chance(10) { self.any(world) } else { self.file(world) };
                OracleOp::Link { object, dir: self.directory(world), name: self.name() }
            }
            Kind::Unlink => OracleOp::Unlink { dir: self.directory(world), name: self.name() },
            Kind::Rmdir => OracleOp::Rmdir { dir: self.directory(world), name: self.name() },
            Kind::Rename => self.rename(world),
            Kind::Lookup => OracleOp::Lookup { dir: self.directory(world), name: self.name() },
            Kind::Open => OracleOp::Open { object: self.any(world) },
            Kind::Close => {
                let open = world.open_objects();
                if open.is_empty() {
                    return None;
                }
                OracleOp::Close { object: self.pick(&open) }
            }
            Kind::GetAttr => OracleOp::GetAttr { object: self.any(world) },
            Kind::SetAttr => self.set_attr(world)?,
            Kind::SetSize => {
                let set = SetAttr { size: Some(self.place()), ..SetAttr::default() };
                OracleOp::SetAttr { object: self.file(world), set }
            }
            Kind::ReadLink => OracleOp::ReadLink { object: self.any(world) },
            Kind::Read => {
                let len = self.rng.random_range(0..self.write_max * 2);
                OracleOp::Read { object: self.file(world), offset: self.place(), len }
            }
            Kind::Write => self.write(world),
            Kind::List => OracleOp::List { dir: self.directory(world) },
            Kind::ListFirst => OracleOp::ListFirst {
                dir: self.directory(world),
                count: self.rng.random_range(1..8),
            },
            Kind::ListOn => {
                let listings = world.listings();
                if listings.is_empty() {
                    return None;
                }
                let listing = self.pick(&listings);
                let some = self.chance(2);
                OracleOp::ListOn { listing, count: some.then(|| self.rng.random_range(1..8)) }
            }
            Kind::Fsync => OracleOp::Fsync { object: self.any(world) },
            Kind::Sync => {
                if self.chance(2) {
                    OracleOp::Sync
                } else {
                    OracleOp::StatFs
                }
            }
            Kind::Xattr => self.xattr(world)?,
            Kind::Remount => OracleOp::Remount,
        })
    }

    fn make(&mut self, file_type: FileType, world: &World) -> OracleOp {
        let target = if file_type == FileType::Symlink {
            // UFS2 keeps targets of less than 120 bytes in the inode.
            let lengths = [
                1,
                7,
                60,
                118,
                119,
                120,
                121,
                400,
                1024,
                self.rules.symlink_max,
                self.rules.symlink_max + 1,
                0,
            ];
            OracleName(vec![b't'; self.pick(&lengths)])
        } else {
            OracleName(Vec::new())
        };
        let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        OracleOp::Create {
            dir: self.directory(world),
            name: self.name(),
            file_type,
            permissions: self.mode(),
            owner: if self.rules.owners { self.rng.random_range(0..5) } else { 0 },
            rdev: if device { self.rng.random_range(0..0x10000) } else { 0 },
            target,
        }
    }

    fn rename(&mut self, world: &World) -> OracleOp {
        let from_dir = self.directory(world);
        let to_dir = if self.chance(3) { from_dir } else { self.directory(world) };
        let mode = match self.rng.random_range(0..8) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        OracleOp::Rename { from_dir, from: self.name(), to_dir, to: self.name(), mode }
    }

    fn write(&mut self, world: &World) -> OracleOp {
        let object = self.file(world);
        // Half of the writes append.
        let offset = match world.size(object) {
            Some(size) if self.chance(2) => size,
            _ => self.place(),
        };
        let len = match self.rng.random_range(0..6) {
            0 => self.rng.random_range(0..16),
            1 => self.rng.random_range(0..self.write_max),
            _ => (self.place() as usize).min(self.write_max),
        };
        let fill = if self.chance(8) { 0 } else { self.rng.random_range(1..u64::MAX) };
        OracleOp::Write { object, offset, len, fill }
    }

    fn set_attr(&mut self, world: &World) -> Option<OracleOp> {
        let object = self.any(world);
        let is_link = world.file_type(object) == Some(FileType::Symlink);
        let mut set = SetAttr::default();
        if self.chance(3) && (self.rules.link_modes || !is_link) {
            set.permissions = Some(self.mode());
        }
        if self.chance(3) && self.rules.owners {
            set.uid = Some(self.rng.random_range(0..5));
            set.gid = self.chance(2).then(|| self.rng.random_range(0..5));
        }
        if self.chance(3) {
            set.mtime = Some(self.time());
        }
        if self.chance(3) {
            set.atime = Some(self.time());
        }
        if self.chance(12) {
            set.size = Some(self.place());
        }
        if self.rules.flags && (self.chance(8) || world.flags(object) != 0) {
            let all = [
                0,
                0,
                0,
                flags::UF_NODUMP,
                flags::UF_IMMUTABLE,
                flags::SF_APPEND,
                flags::UF_NOUNLINK,
            ];
            set.flags = Some(self.pick(&all));
        }
        (set != SetAttr::default()).then_some(OracleOp::SetAttr { object, set })
    }

    fn xattr(&mut self, world: &World) -> Option<OracleOp> {
        let object = self.any(world);
        let file_type = world.file_type(object)?;
        if !self.rules.xattr_types.contains(&file_type) {
            return None;
        }
        let spaces = self.rules.xattr_spaces.clone();
        if spaces.is_empty() {
            return None;
        }
        let space = self.pick(&spaces);
        let rest = self.pick(&["a", "b", "cc", "long-name-of-an-attribute", ""]);
        let name = OracleName([space.as_bytes(), rest.as_bytes()].concat());
        let mode =
            self.pick(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
        let lengths = [0, 1, 7, 8, 100, 1000, self.rules.xattr_value_max];
        let len = self.pick(&lengths).max(self.rules.xattr_value_min);
        Some(match self.rng.random_range(0..10) {
            0..=4 => {
                let value = OracleName(super::op::filling(self.rng.random_range(1..1000), len));
                OracleOp::SetXattr { object, name, value, mode }
            }
            5 | 6 => OracleOp::RemoveXattr { object, name },
            7 | 8 => OracleOp::GetXattr { object, name },
            _ => OracleOp::ListXattrs { object },
        })
    }
}

/// The `i`-th name of a run: most are short, some fill a directory block.
fn name(i: usize, rng: &mut Pcg64Mcg) -> OracleName {
    let len = match i % 6 {
        0..=3 => rng.random_range(1..9),
        4 => rng.random_range(9..120),
        _ => rng.random_range(200..256),
    };
    let mut name = format!("{i:x}").into_bytes();
    name.resize(len.max(name.len()), b'a' + (i % 26) as u8);
    OracleName(name)
}

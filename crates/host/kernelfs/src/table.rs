//! The kernel's file systems: the programs that make, check, repair and recover each, and how one
//! of them is mounted.

/// A program with its first arguments. The device comes last.
pub type CommandWords = &'static [&'static str];

/// A file system of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFs {
    /// The kernel's name for it.
    pub name: &'static str,
    /// The program that makes it, without a question.
    pub mkfs: CommandWords,
    /// The program that checks it without a change.
    pub check: CommandWords,
    /// The program that repairs it after a crash, before a mount; empty where the mount recovers.
    pub repair: CommandWords,
    /// Whether `repair` only replays the journal, which the kernel leaves to a program.
    pub is_replayed: bool,
    /// The mount option for an image that exists more than once; empty if none is needed.
    pub copy_option: &'static str,
    /// Whether two of its images may not be mounted at once, with or without an option.
    pub is_alone: bool,
    /// The size of a device for small work, in bytes. Some have a least size.
    pub bytes: u64,
}

const MIB: u64 = 1 << 20;

const EXT4: KernelFs = KernelFs {
    name: "ext4",
    mkfs: &["mke2fs", "-q", "-F", "-t", "ext4"],
    check: &["e2fsck", "-f", "-n"],
    repair: &[],
    is_replayed: false,
    copy_option: "",
    is_alone: false,
    bytes: 64 * MIB,
};

const NTFS: KernelFs = KernelFs {
    name: "ntfs",
    mkfs: &["mkntfs", "-q", "-F", "-Q"],
    check: &["ntfsfix", "-n"],
    ..EXT4
};

/// All that Ordo makes.
pub const ALL: [KernelFs; 14] = [
    KernelFs {
        name: "ext2",
        mkfs: &["mke2fs", "-q", "-F", "-t", "ext2"],
        repair: &["e2fsck", "-f", "-y"],
        ..EXT4
    },
    KernelFs { name: "ext3", mkfs: &["mke2fs", "-q", "-F", "-t", "ext3"], ..EXT4 },
    EXT4,
    KernelFs {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f"],
        check: &["xfs_repair", "-n"],
        copy_option: "nouuid",
        // The least that mkfs.xfs accepts.
        bytes: 300 * MIB,
        ..EXT4
    },
    KernelFs {
        name: "jfs",
        mkfs: &["mkfs.jfs", "-q"],
        check: &["fsck.jfs", "-n"],
        repair: &["fsck.jfs", "-a"],
        is_replayed: true,
        ..EXT4
    },
    KernelFs {
        name: "reiserfs",
        mkfs: &["mkfs.reiserfs", "-q", "-q"],
        check: &["reiserfsck", "--check", "-q"],
        ..EXT4
    },
    NTFS,
    KernelFs {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        check: &["btrfs", "check", "--readonly", "--check-data-csum"],
        is_alone: true,
        bytes: 256 * MIB,
        ..EXT4
    },
    KernelFs { name: "ntfs3", ..NTFS },
    KernelFs {
        name: "f2fs",
        mkfs: &["mkfs.f2fs", "-q", "-f"],
        check: &["fsck.f2fs", "--dry-run"],
        bytes: 128 * MIB,
        ..EXT4
    },
    KernelFs {
        name: "nilfs2",
        mkfs: &["mkfs.nilfs2", "-q", "-f"],
        // No program checks more than the superblocks.
        check: &["nilfs-tune", "-l"],
        bytes: 256 * MIB,
        ..EXT4
    },
    KernelFs { name: "vfat", mkfs: &["mkfs.vfat"], check: &["fsck.vfat", "-n"], ..EXT4 },
    KernelFs { name: "exfat", mkfs: &["mkfs.exfat"], check: &["fsck.exfat", "-n"], ..EXT4 },
    KernelFs {
        name: "bcachefs",
        mkfs: &["bcachefs", "format", "-q", "-f"],
        check: &["bcachefs", "fsck", "-n"],
        bytes: 256 * MIB,
        ..EXT4
    },
];

impl KernelFs {
    /// The file system that the kernel calls so.
    pub fn by_name(name: &str) -> Option<&'static KernelFs> {
        ALL.iter().find(|fs| fs.name == name)
    }

    /// The names of all, for a person.
    pub fn names() -> String {
        ALL.map(|fs| fs.name).join(", ")
    }
}

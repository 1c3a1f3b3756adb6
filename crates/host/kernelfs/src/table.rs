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
    /// Arguments of `mkfs` by which it leaves no work to the first mount.
    pub at_once: CommandWords,
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

/// A file system that its mount recovers, on a small device.
const PLAIN: KernelFs = KernelFs {
    name: "",
    mkfs: &[],
    at_once: &[],
    check: &[],
    repair: &[],
    is_replayed: false,
    copy_option: "",
    is_alone: false,
    bytes: 64 * MIB,
};

const EXT4: KernelFs = KernelFs {
    name: "ext4",
    mkfs: &["mke2fs", "-q", "-F", "-t", "ext4"],
    at_once: &["-E", "lazy_itable_init=0,lazy_journal_init=0"],
    check: &["e2fsck", "-f", "-n"],
    ..PLAIN
};

const NTFS: KernelFs = KernelFs {
    name: "ntfs",
    mkfs: &["mkntfs", "-q", "-F", "-Q"],
    check: &["ntfsfix", "-n"],
    ..PLAIN
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
        ..PLAIN
    },
    KernelFs {
        name: "jfs",
        mkfs: &["mkfs.jfs", "-q"],
        check: &["fsck.jfs", "-n"],
        repair: &["fsck.jfs", "-a"],
        is_replayed: true,
        ..PLAIN
    },
    KernelFs {
        name: "reiserfs",
        mkfs: &["mkfs.reiserfs", "-q", "-q"],
        check: &["reiserfsck", "--check", "-q", "-y"],
        ..PLAIN
    },
    NTFS,
    KernelFs {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        check: &["btrfs", "check", "--readonly", "--check-data-csum"],
        is_alone: true,
        bytes: 256 * MIB,
        ..PLAIN
    },
    KernelFs { name: "ntfs3", ..NTFS },
    KernelFs {
        name: "f2fs",
        mkfs: &["mkfs.f2fs", "-q", "-f"],
        check: &["fsck.f2fs", "--dry-run"],
        bytes: 128 * MIB,
        ..PLAIN
    },
    KernelFs {
        name: "nilfs2",
        mkfs: &["mkfs.nilfs2", "-q", "-f"],
        // No program checks more than the superblocks.
        check: &["nilfs-tune", "-l"],
        bytes: 256 * MIB,
        ..PLAIN
    },
    KernelFs { name: "vfat", mkfs: &["mkfs.vfat"], check: &["fsck.vfat", "-n"], ..PLAIN },
    KernelFs { name: "exfat", mkfs: &["mkfs.exfat"], check: &["fsck.exfat", "-n"], ..PLAIN },
    KernelFs {
        name: "bcachefs",
        mkfs: &["bcachefs", "format", "-q", "-f"],
        check: &["bcachefs", "fsck", "-n"],
        bytes: 256 * MIB,
        ..PLAIN
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

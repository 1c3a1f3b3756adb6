//! The items, and the figures that have no item.

use super::{Item, crashes, dualfs, journaling, micro, soft_updates, tables};

const JOURNALING: &str = "journaling-vs-soft-updates";
const SOFT_UPDATES: &str = "soft-updates";
const DUALFS: &str = "dualfs";

/// The items that can be measured, in the order of the papers.
pub const ITEMS: &[Item] = &[
    Item {
        paper: JOURNALING,
        name: "semantics",
        title: "Table 2, from 4,000 crash states of each system on a disk with a volatile cache; 1 is yes",
        figures: &[
            "journaling_vs_soft_updates.semantics.synchronous_metadata",
            "journaling_vs_soft_updates.semantics.asynchronous_metadata",
            "journaling_vs_soft_updates.semantics.atomic_updates",
            "journaling_vs_soft_updates.semantics.data_before_inode",
            "journaling_vs_soft_updates.semantics.full_scan_recovery",
            "journaling_vs_soft_updates.semantics.may_be_unrecoverable",
        ],
        measure: tables::semantics,
    },
    Item {
        paper: JOURNALING,
        name: "zero-length",
        title: "Section 8.1: 50,000 files of no length, each made and removed; Cheetah, 500 MHz Pentium III",
        figures: &[
            "journaling_vs_soft_updates.microbenchmarks.create_delete_files",
            "journaling_vs_soft_updates.microbenchmarks.wafs_async_vs_ffs_async_zero_length",
        ],
        measure: micro::zero_length,
    },
    Item {
        paper: JOURNALING,
        name: "micro",
        title: "Section 8.1: the sentences about Figures 1 and 2, 32 MB of files of 2 KB to 4 MB each; Cheetah, 500 MHz Pentium III",
        figures: &["journaling_vs_soft_updates.microbenchmarks.drops_at_kb"],
        measure: micro::by_size,
    },
    Item {
        paper: JOURNALING,
        name: "ssh",
        title: "Table 4: a program unpacked, configured and built; Cheetah, 500 MHz Pentium III",
        figures: &[
            "journaling_vs_soft_updates.ssh",
            "journaling_vs_soft_updates.semantics_cost.ssh_percent",
        ],
        measure: tables::ssh,
    },
    Item {
        paper: JOURNALING,
        name: "sdet-like",
        title: "Section 8.2.3: the sentences about Figure 4; commands and their computing are Ordo's; Cheetah",
        figures: &[],
        measure: journaling::sdet_like,
    },
    Item {
        paper: JOURNALING,
        name: "postmark",
        title: "Section 8.2.4, Figure 5: PostMark, 10,000 and 150,000 files; Cheetah, 500 MHz Pentium III",
        figures: &["journaling_vs_soft_updates.postmark"],
        measure: journaling::postmark,
    },
    Item {
        paper: JOURNALING,
        name: "netnews",
        title: "Table 5: 2 GB of news in 520,000 files; Cheetah, 500 MHz Pentium III",
        figures: &[
            "journaling_vs_soft_updates.netnews",
            "journaling_vs_soft_updates.semantics_cost.netnews_percent",
            "journaling_vs_soft_updates.semantics_cost.netnews_share_of_extra_writes_percent",
        ],
        measure: tables::netnews,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "tuning",
        title: "Section 3.5: rewrites after rollbacks; Viking, 300 MHz Pentium II, a cache of 4 MB",
        figures: &[
            "soft_updates.tuning.useless_writes_before_percent",
            "soft_updates.tuning.useless_writes_removed_by_syncer_order_percent",
            "soft_updates.tuning.rollback_writes_after_cache_reclaim_change",
            "soft_updates.tuning.removes_per_disk_write_steady_state",
        ],
        measure: tables::tuning,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "create-writes",
        title: "Section 4.2: disk writes for each file of 2 KB to 64 KB; Viking, 300 MHz Pentium II",
        figures: &["soft_updates.create_disk_writes_per_file"],
        measure: tables::create_writes,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "postmark",
        title: "Tables I and IV: PostMark, 30,000 transactions; Viking, 300 MHz Pentium II",
        figures: &["soft_updates.postmark"],
        measure: tables::postmark_rate,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "sdet-like",
        title: "Sections 4.3 and 4.5: scripts an hour, 1 to 20 users; commands and their computing are Ordo's; Viking",
        figures: &["soft_updates.sdet", "soft_updates.over_logging_percent"],
        measure: soft_updates::sdet_like,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "mail-server",
        title: "Table II: writes of 24 hours in relation, since the load is not published; one Viking for three disks",
        figures: &["soft_updates.mail_server_writes_per_day"],
        measure: soft_updates::mail_server,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "recovery",
        title: "Table III: until a file system of 4.5 GB can be used after a crash; Viking, 300 MHz Pentium II",
        figures: &["soft_updates.recovery_seconds"],
        measure: crashes::recovery_times,
    },
    Item {
        paper: SOFT_UPDATES,
        name: "crash-trials",
        title: "Section 4.4: 25 halts at random times during PostMark; Viking, 300 MHz Pentium II",
        figures: &["soft_updates.crash_trials"],
        measure: crashes::halted,
    },
    Item {
        paper: DUALFS,
        name: "read-meta",
        title: "Table 2: files looked for in four source trees, caches cold; ST-34310A, 450 MHz Pentium III; FFS for Ext2",
        figures: &["dualfs.read_meta_io_seconds.ext2", "dualfs.read_meta_io_seconds.dualfs"],
        measure: dualfs::read_meta,
    },
    Item {
        paper: DUALFS,
        name: "postmark",
        title: "Section 4.2: PostMark, 150,000 files; ST-34310A, 450 MHz Pentium III; FFS for Ext2",
        figures: &[
            "dualfs.postmark_throughput_ratio.setup",
            "dualfs.postmark_throughput_ratio.ext2",
        ],
        measure: dualfs::postmark,
    },
];

/// The reason why the kernel's own file systems have no rows.
const KERNELS: &str = "a file system of the kernel, whose recorded requests are played on the model of the disk: docs/results/dualfs-kernel.md";
/// The reason why the kernel's own file systems have no rows under PostMark.
const KERNELS_POSTMARK: &str =
    "a file system of the kernel: PostMark on it is not recorded for the model of the disk";

/// Published figures that are not measured here, with reasons.
pub const UNMEASURED: &[(&str, &str)] = &[
    (
        "journaling_vs_soft_updates.platform",
        "it describes the machine; the model `cheetah` has its disk",
    ),
    (
        "journaling_vs_soft_updates.semantics.blocks_freed_in_background",
        "it says how a system works, not what can be seen from outside",
    ),
    (
        "journaling_vs_soft_updates.semantics.log_replay_recovery",
        "it says how a system recovers; `full scan recovery` has the other side of it",
    ),
    (
        "journaling_vs_soft_updates.microbenchmarks.total_mb",
        "the curves of Figures 1 to 3 were not printed as numbers; `ordo bench micro:journaling` runs them",
    ),
    ("journaling_vs_soft_updates.microbenchmarks.min_files", "a parameter of `micro:journaling`"),
    (
        "journaling_vs_soft_updates.microbenchmarks.files_per_directory",
        "a parameter of `micro:journaling`",
    ),
    ("journaling_vs_soft_updates.microbenchmarks.lffs_file_cluster_kb", "a parameter of LFFS-file"),
    ("journaling_vs_soft_updates.microbenchmarks.wafs_block_kb", "a parameter of WAFS"),
    (
        "soft_updates.tuning.peak_dependency_memory_kb_per_1000_vnodes",
        "measured in process: docs/results/soft-updates.md",
    ),
    (
        "soft_updates.tuning.block_initialisation_overhead_percent",
        "measured in process: docs/results/soft-updates.md, `without contents before pointers`",
    ),
    (
        "sba",
        "policies of the kernel's file systems: `ordo infer`, as root, finds them by experiment",
    ),
    (
        "stp",
        "`make whatif` holds playback to the change really made (docs/results/whatif-kernel.md); the paper's traces are not public",
    ),
    (
        "lfs_vs_ffs",
        "`make bench` measures them (docs/results/lfs.md); the abstract does not name its disk",
    ),
    ("dualfs.metadata_device_percent", "a parameter of DualFS, the default here"),
    ("dualfs.prefetch_blocks", "a parameter of DualFS, the default here"),
    ("dualfs.block_kb", "a parameter of the file systems, the same here"),
    ("dualfs.directory_affinity_percent", "a parameter of DualFS, the default here"),
    ("dualfs.log_write_interval_seconds", "a parameter of DualFS"),
    ("dualfs.checkpoint_interval_seconds", "a parameter of DualFS"),
    (
        "dualfs.best_overall_improvement_percent",
        "the abstract's best case; the paper does not say of which benchmark and which file system",
    ),
    ("dualfs.read_meta_io_seconds.ext3", KERNELS),
    ("dualfs.read_meta_io_seconds.xfs", KERNELS),
    ("dualfs.read_meta_io_seconds.jfs", KERNELS),
    ("dualfs.read_meta_io_seconds.reiserfs", KERNELS),
    ("dualfs.postmark_throughput_ratio.ext3", KERNELS_POSTMARK),
    ("dualfs.postmark_throughput_ratio.reiserfs", KERNELS_POSTMARK),
    ("dualfs.postmark_throughput_ratio.xfs", KERNELS_POSTMARK),
    ("dualfs.postmark_throughput_ratio.jfs", KERNELS_POSTMARK),
    ("dualfs.read_data_meta", KERNELS),
];

/// The parameters that were fitted to a paper, each with the rows that it was fitted to. Those rows
/// are inputs; all others of the paper are predictions.
pub const FITTED: &[(&str, &str)] = &[
    (
        "the price of a dependency on the papers' processors, 1.5 looks at a buffer",
        "journaling-vs-soft-updates zero-length, ffs-soft-updates; no row of soft-updates",
    ),
    (
        "the computing of the programs of ssh-build",
        "journaling-vs-soft-updates ssh, the seconds of ffs-none",
    ),
];

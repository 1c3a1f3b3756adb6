//! The workloads, the comparison and the oracle, on the systems of the registry. One program, so
//! that the file systems are compiled into it once.

mod acceptance;
mod age;
mod ageing;
mod behaviour;
mod clients;
mod compare;
mod concurrent;
mod crash_lfs;
mod crash_sync;
mod crash_workloads;
mod dualfs_oracle;
mod faults;
mod ffs_oracle;
mod filebench;
mod journal_faults;
mod journal_flushes;
mod journal_mutants;
mod lfs_oracle;
mod lfs_traffic;
mod link_targets;
mod log_oracle;
mod loop_device;
mod oracle;
mod paper_rules;
mod real_images;
mod replay;
mod soft_flushes;
mod whatif;
mod workload;

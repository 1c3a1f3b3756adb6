//! The command line: `ordo` and its commands.

use clap::{Parser, Subcommand};

use crate::args::*;
use crate::commands;

/// Run real file systems that protect their metadata in different ways. See what they write, what
/// that costs, and what a crash loses.
#[derive(Debug, Parser)]
#[command(name = "ordo", version, max_term_width = 100)]
#[command(after_help = "\
Start with `ordo compare`: it needs no arguments and no root.
`ordo COMMAND --help` shows examples. Sizes take k, m, g or t: 64k, 512m.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload or a command on several file systems, and show what each costs and loses.
    Compare(Compare),
    /// Run a workload on one system, or in a directory of this machine, and show each phase.
    Bench(Bench),
    /// Age a file system by creating and removing files, and show how fragmented they become.
    Age(commands::age::Age),
    /// Repeat the papers' measurements, and show published and measured figures side by side.
    Reproduce(commands::reproduce::Reproduce),
    /// Cut the power under a file system or a program, and check the states that this can leave.
    Crash(Box<Crash>),
    /// Analyze a recorded trace of a device: traffic by kind, the journal, transactions.
    Analyze(commands::analyze::Analyze),
    /// Tell which file, and which kind of block, is at a sector of a device; or where a file is.
    Where(commands::place::Where),
    /// Record what a file system writes, and show it request by request.
    Trace(commands::trace::TraceArgs),
    /// Predict the time of a recorded workload for another file system or disk.
    Whatif(commands::whatif::WhatIf),
    /// Find a file system's policies by experiment: journaling mode, thresholds, timers, the order
    /// of writes.
    Infer(commands::infer::Infer),
    /// Show the Linux kernel that runs as a process, in virtual time (`--kernel guest`).
    Guest(commands::guest::GuestArgs),
    /// Make an empty file system in an image or on a device: UFS2, UFS1, LFS or DualFS.
    Mkfs(Mkfs),
    /// Show the superblock and the cylinder groups of a UFS2 file system, the segments of an LFS,
    /// or the pair of a DualFS.
    Info(Info),
    /// Check a UFS2 file system, an LFS or a DualFS, and repair it.
    Fsck(Fsck),
    /// Mount a UFS file system, an LFS or a DualFS, for any program to read and write.
    Mount(commands::mount::Mount),
    /// Unmount a file system of `ordo mount`, and return when the disk is clean.
    Umount(commands::mount::Umount),
    /// List files in an image.
    Ls(Ls),
    /// Print files of an image.
    Cat(Cat),
    /// Copy files into an image, out of one, or from one to another.
    Cp(Cp),
    /// Copy a directory, an archive or a manifest into an image, which is made if need be.
    Import(Import),
    /// Change files in an image: rm, mkdir, mv, ln, chmod, chown, touch, setfattr.
    Edit(commands::edit::Edit),
    /// Copy the contents of an image to a directory.
    Export(Export),
    /// Create, append to, read and follow a log: a WAFS in an image or on a device.
    Log(commands::log::Log),
    /// Show and clean the segments of an LFS.
    Lfs(commands::lfs::Lfs),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write manual pages.
    Man(Man),
}

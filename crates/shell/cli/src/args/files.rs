//! The arguments of commands about the files of an image: ls, cat, cp, import, export.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use ordo_report::number::parse_bytes;

use super::{MetadataPath, PartitionChoice};
pub use crate::reading::RescueChoice;

/// `ordo ls`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Names are printed as by ls -b, but spaces are not escaped: a backslash, a control character and a
byte that is not UTF-8 become an escape, as in \\n and \\377. In JSON a name that is not UTF-8 has
its bytes in hexadecimal beside it: path_hex, target_hex.

Examples:
  ordo ls disk.img
  ordo ls -l disk.img /etc
  ordo ls -R --json disk.img
  ordo ls -R --rescue cut.img       past damage; what was left out is listed
  ordo ls -R --deleted disk.img     removed names, and files whose directory is lost (UFS)")]
pub struct Ls {
    /// The image or device.
    pub image: PathBuf,
    /// The file or directory to list.
    #[arg(default_value = "/")]
    pub path: OsString,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Read a DualFS without its metadata device, by the copy of the metadata that its data device
    /// keeps (mkfs --meta-copy): as of the last checkpoint.
    #[arg(long, conflicts_with = "meta_device")]
    pub salvage: bool,
    #[command(flatten)]
    pub rescue: RescueChoice,
    /// List removed names that were not overwritten, each with its inode and what is left of that;
    /// with -R also files whose directory is lost. Only UFS.
    #[arg(long, conflicts_with_all = ["inode", "long"])]
    pub deleted: bool,
    /// List this inode instead of a path, past damage. Only UFS.
    #[arg(long, value_name = "N", conflicts_with = "path")]
    pub inode: Option<u64>,
    /// Show modes, owners, sizes and times.
    #[arg(short)]
    pub long: bool,
    /// List everything below the directory too.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ordo cat`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo cat disk.img /etc/motd
  ordo cat disk.img /a /b > both
  ordo cat --inode 1234 disk.img    a file without a name, as ordo ls --deleted lists them")]
pub struct Cat {
    /// The image or device.
    pub image: PathBuf,
    /// The paths of the files.
    #[arg(required_unless_present = "inode")]
    pub paths: Vec<OsString>,
    /// Print the file with this inode, even if it was removed, past damage. Only UFS.
    #[arg(long, value_name = "N", conflicts_with = "paths")]
    pub inode: Option<u64>,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Read a DualFS without its metadata device, by the copy of the metadata that its data device
    /// keeps (mkfs --meta-copy): as of the last checkpoint.
    #[arg(long, conflicts_with = "meta_device")]
    pub salvage: bool,
    #[command(flatten)]
    pub rescue: RescueChoice,
}

/// `ordo cp`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A path in an image is written IMAGE:/path. --meta-device is about the destination if it is in an
image, otherwise about the source.

Examples:
  ordo cp notes.txt disk.img:/home/          into an image
  ordo cp -r disk.img:/etc ./etc-copy        out of one
  ordo cp -r old.img:/home new.img:/         from one to another
  ordo cp -r --rescue cut.img:/home .        past damage; what was left out is listed")]
pub struct Cp {
    /// The sources, and last the destination.
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "TO"])]
    pub paths: Vec<PathBuf>,
    /// Copy directories with everything in them.
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    #[command(flatten)]
    pub rescue: RescueChoice,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo import`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Types, modes, owners, times to the nanosecond, hard links, holes and extended attributes are kept.
The exit status is 1 if files or extended attributes had to be left out; they are listed. An image
that does not exist is created, as large as the directory needs or as --size says.

Examples:
  ordo import /usr/share/doc doc.img
  ordo import site/ disk.img --into /srv/www --size 2g")]
pub struct Import {
    /// The directory to copy.
    pub dir: PathBuf,
    /// The image.
    pub image: PathBuf,
    /// The destination in the image, created if it does not exist.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub into: String,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Size of an image that is created.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo export`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Owners are set if the caller may set them (as root). All else is kept, as by ordo import. The exit
status is 1 if files or extended attributes had to be left out; they are listed.

Examples:
  ordo export disk.img out/
  ordo export disk.img out/ --from /etc
  ordo export --rescue cut.img out/         past damage; what was left out is listed
  ordo export --rescue --mapfile map copy.img out/    of a copy by GNU ddrescue")]
pub struct Export {
    /// The image.
    pub image: PathBuf,
    /// The destination directory, created if it does not exist.
    pub dir: PathBuf,
    /// The directory or file to copy.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub from: String,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Read a DualFS without its metadata device, by the copy of the metadata that its data device
    /// keeps (mkfs --meta-copy): as of the last checkpoint.
    #[arg(long, conflicts_with = "meta_device")]
    pub salvage: bool,
    #[command(flatten)]
    pub rescue: RescueChoice,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

//! The arguments of commands about the files of an image: ls, cat, cp, import, export.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use ordo_report::number::parse_bytes;

use super::{MakeShape, MetadataPath, PartitionChoice};
use crate::pair::NamedImage;
pub use crate::reading::RescueChoice;

/// The way in which an image is read.
#[derive(Args, Debug)]
pub struct ReadChoice {
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

impl ReadChoice {
    /// The file system of an image.
    pub fn of<'a>(&'a self, image: &'a Path) -> NamedImage<'a> {
        NamedImage::new(image).with(&self.metadata).at(&self.part).salvaged(self.salvage)
    }
}

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
    pub reading: ReadChoice,
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
    pub reading: ReadChoice,
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

fn share(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    percent.filter(|percent| *percent <= 90).ok_or_else(|| format!("'{text}': not 0% to 90%"))
}

/// `ordo import`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Types, modes, owners, times to the nanosecond, hard links, holes and extended attributes are kept.
The exit status is 1 if files or extended attributes had to be left out; they are listed. An image
that does not exist is created, as large as the directory needs or as --size says. A manifest is
that of mtree(5), as FreeBSD's METALOG: owners, modes, flags, devices and times without root, each
file's contents below DIR. With SOURCE_DATE_EPOCH no time is later than that, and the image depends
on nothing but the files and --seed.

Examples:
  ordo import /usr/share/doc doc.img
  ordo import site/ disk.img --into /srv/www --size 2g
  tar c . | ordo import - disk.img --owner 0:0 --minimal
  ordo import world.tar.xz disk.img --free 20% --fs ufs2 -L root -U
  ordo import --mtree METALOG dest/ disk.img
  SOURCE_DATE_EPOCH=0 ordo import site/ disk.img    the same bytes each time")]
pub struct Import {
    /// The directory to copy; or a tar archive, which may be compressed, - for the standard input.
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
    /// Make the image as small as the files allow, without free space or a reserve.
    #[arg(long, conflicts_with_all = ["size", "free"])]
    pub minimal: bool,
    /// Make the image so large that this share of it is free, as in 20%.
    #[arg(long, value_name = "PERCENT", value_parser = share, conflicts_with = "size")]
    pub free: Option<u8>,
    /// Take names, types and attributes from this manifest, and contents from the directory.
    #[arg(long, value_name = "MANIFEST")]
    pub mtree: Option<PathBuf>,
    /// Give everything to this owner and group, by their numbers: 0:0, 80, :80.
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<Owner>,
    /// Replace files that exist in the image.
    #[arg(long, conflicts_with = "merge")]
    pub overwrite: bool,
    /// Keep files that exist in the image.
    #[arg(long)]
    pub merge: bool,
    #[command(flatten, next_help_heading = "A new image")]
    pub shape: MakeShape,
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
    pub reading: ReadChoice,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// An owner, a group, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
}

impl std::str::FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Owner, String> {
        let number = |word: &str| match word {
            "" => Ok(None),
            word => word.parse().map(Some).map_err(|_| format!("{word}: not a number")),
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        let owner = Owner { uid: number(uid)?, gid: number(gid)? };
        match owner {
            Owner { uid: None, gid: None } => Err("neither an owner nor a group".into()),
            owner => Ok(owner),
        }
    }
}

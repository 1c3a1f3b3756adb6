//! `ordo edit`: changes in an image without a mount, as the Unix tools of the same names make them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use ordo_vfs::tree::{self, Visit, Walk, WalkLimits};
use ordo_vfs::{
    AnyFs, Attr, Errno, FileSystem, FileType, Ino, NewNode, RenameMode, SetAttr, SetTime,
    Timestamp, XattrMode, path,
};

use super::mode::ModeChange;
use crate::args::{MetadataPath, Owner, PartitionChoice};
use crate::image::{self, real_time};
use crate::pair::NamedImage;

/// `ordo edit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The image must not be mounted, and is locked meanwhile, as by ordo cp. Paths are those in the image.
The first error ends the command; what was changed before stays.

Examples:
  ordo edit rm -r disk.img /tmp /var/log/old
  ordo edit mkdir --parents disk.img /srv/www
  ordo edit mv disk.img /a /b /dir
  ordo edit ln -s disk.img ../lib /usr/lib64
  ordo edit chmod disk.img u+rwX,go-w /srv -R
  ordo edit chown disk.img 80:80 /srv/www -R
  ordo edit touch --time 0 disk.img /new
  ordo edit setfattr -n user.note -v hello disk.img /new")]
pub struct Edit {
    #[command(subcommand)]
    command: EditCommand,
}

/// An image that is changed.
#[derive(Debug, clap::Args)]
struct Target {
    /// The image or device.
    image: PathBuf,
    #[command(flatten)]
    metadata: MetadataPath,
    #[command(flatten)]
    part: PartitionChoice,
}

#[derive(Debug, clap::Subcommand)]
enum EditCommand {
    /// Remove files.
    Rm {
        /// Remove directories with everything in them.
        #[arg(short)]
        recursive: bool,
        /// A path that does not exist is no error.
        #[arg(short)]
        force: bool,
        #[command(flatten)]
        target: Target,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make directories.
    Mkdir {
        /// Make the directories above too; one that exists is no error.
        #[arg(long)]
        parents: bool,
        /// The permissions, in octal.
        #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal)]
        mode: u16,
        #[command(flatten)]
        target: Target,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Rename files, or move them to a directory.
    Mv {
        #[command(flatten)]
        target: Target,
        /// The paths, and last the new path or the directory.
        #[arg(required = true, num_args = 2.., value_names = ["FROM", "TO"])]
        paths: Vec<OsString>,
    },
    /// Give a file another name, or make a symbolic link.
    Ln {
        /// Make a symbolic link.
        #[arg(short)]
        symbolic: bool,
        #[command(flatten)]
        target: Target,
        /// The file, or the target of the symbolic link.
        to: OsString,
        /// The new name.
        name: OsString,
    },
    /// Change permissions.
    Chmod {
        #[command(flatten)]
        target: Target,
        /// The permissions, in octal or as in u+rwX,go-w.
        mode: ModeChange,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
        /// Everything below a directory too.
        #[arg(short = 'R')]
        recursive: bool,
    },
    /// Change owner and group, by their numbers.
    Chown {
        #[command(flatten)]
        target: Target,
        /// The owner, owner:group, or :group.
        owner: Owner,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
        /// Everything below a directory too.
        #[arg(short = 'R')]
        recursive: bool,
    },
    /// Set the times of files; a file that does not exist is made.
    Touch {
        /// The time, in seconds since 1970 [default: now].
        #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
        time: Option<i64>,
        #[command(flatten)]
        target: Target,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Set or remove an extended attribute.
    Setfattr {
        /// The attribute, with its name space.
        #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
        name: Option<OsString>,
        /// Its value.
        #[arg(short, long, value_name = "VALUE", default_value = "", conflicts_with = "remove")]
        value: OsString,
        /// Remove this attribute.
        #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
        remove: Option<OsString>,
        #[command(flatten)]
        target: Target,
        /// The paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
}

fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text}: not an octal number up to 7777"))
}

impl EditCommand {
    fn target(&self) -> &Target {
        match self {
            EditCommand::Rm { target, .. }
            | EditCommand::Mkdir { target, .. }
            | EditCommand::Mv { target, .. }
            | EditCommand::Ln { target, .. }
            | EditCommand::Chmod { target, .. }
            | EditCommand::Chown { target, .. }
            | EditCommand::Touch { target, .. }
            | EditCommand::Setfattr { target, .. } => target,
        }
    }
}

pub fn run(args: &Edit) -> Result<()> {
    let Target { image, metadata, part } = args.command.target();
    real_time(async |rt| {
        let named = NamedImage::new(image).with(metadata).at(part);
        let mounted = image::open(&rt, named).await?;
        let done = change(mounted.fs(), &args.command).await;
        image::close(image, mounted).await?;
        done.with_context(|| image.display().to_string())
    })
}

async fn change(fs: &AnyFs, command: &EditCommand) -> Result<()> {
    match command {
        EditCommand::Rm { recursive, force, paths, .. } => {
            for path in paths {
                remove(fs, path.as_bytes(), *recursive, *force).await?;
            }
        }
        EditCommand::Mkdir { parents, mode, paths, .. } => {
            for path in paths {
                make_directory(fs, path.as_bytes(), *parents, *mode).await?;
            }
        }
        EditCommand::Mv { paths, .. } => rename(fs, paths).await?,
        EditCommand::Ln { symbolic, to, name, .. } => {
            link(fs, to.as_bytes(), name.as_bytes(), *symbolic).await?;
        }
        EditCommand::Chmod { mode, paths, recursive, .. } => {
            let set = |attr: &Attr| match attr.file_type {
                FileType::Symlink => None,
                _ => Some(SetAttr { permissions: Some(mode.applied(attr)), ..SetAttr::default() }),
            };
            set_all(fs, paths, *recursive, &set).await?;
        }
        EditCommand::Chown { owner, paths, recursive, .. } => {
            let Owner { uid, gid } = *owner;
            let set = |_: &Attr| Some(SetAttr { uid, gid, ..SetAttr::default() });
            set_all(fs, paths, *recursive, &set).await?;
        }
        EditCommand::Touch { time, paths, .. } => {
            let at =
                time.map_or(SetTime::Now, |seconds| SetTime::To(Timestamp { seconds, nanos: 0 }));
            for path in paths {
                touch(fs, path.as_bytes(), at).await?;
            }
        }
        EditCommand::Setfattr { name, value, remove, paths, .. } => {
            for path in paths {
                let ino = lookup(fs, path.as_bytes()).await?.ino;
                let done = match (name, remove) {
                    (Some(name), _) => {
                        let value = value.as_bytes();
                        fs.setxattr(ino, name.as_bytes(), value, XattrMode::Set).await
                    }
                    (None, Some(name)) => fs.removexattr(ino, name.as_bytes()).await,
                    (None, None) => bail!("neither a name nor one to remove"),
                };
                done.with_context(|| shown(path.as_bytes()))?;
            }
        }
    }
    Ok(())
}

fn shown(path: &[u8]) -> String {
    path::display(path).to_string()
}

/// The inode of a path, without following a symbolic link at its end.
async fn lookup(fs: &AnyFs, path: &[u8]) -> Result<Attr> {
    let is_root = path.iter().all(|byte| *byte == b'/');
    if is_root && !path.is_empty() {
        return Ok(fs.getattr(fs.root()).await?);
    }
    let (dir, name) = path::parent(fs, path).await?;
    fs.lookup(dir, name).await.with_context(|| shown(path))
}

async fn remove(fs: &AnyFs, path: &[u8], recursive: bool, force: bool) -> Result<()> {
    let (dir, name) = match path::parent(fs, path).await {
        Err(e) if force && e.errno == Errno::NotFound => return Ok(()),
        found => found?,
    };
    let attr = match fs.lookup(dir, name).await {
        Err(e) if force && e.errno == Errno::NotFound => return Ok(()),
        found => found.with_context(|| shown(path))?,
    };
    if attr.file_type == FileType::Directory && !recursive {
        bail!("{}: is a directory; -r removes it with everything in it", shown(path));
    }
    let limits = WalkLimits::default();
    tree::remove(fs, dir, name, limits).await.with_context(|| shown(path))?;
    Ok(())
}

async fn make_directory(fs: &AnyFs, path: &[u8], parents: bool, mode: u16) -> Result<()> {
    if parents {
        path::make_directories(fs, path, mode).await.with_context(|| shown(path))?;
        return Ok(());
    }
    let (dir, name) = path::parent(fs, path).await?;
    let made = fs.create(dir, name, &NewNode::directory(mode)).await;
    made.map(drop).with_context(|| shown(path))
}

/// The directory and the name of the new place of `from`: in `to`, if that is a directory.
async fn place<'p>(fs: &AnyFs, from: &'p [u8], to: &'p [u8]) -> Result<(Ino, &'p [u8])> {
    match lookup(fs, to).await {
        Ok(attr) if attr.file_type == FileType::Directory => {
            let name = from.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
            Ok((attr.ino, name.ok_or_else(|| anyhow!("the root cannot be moved"))?))
        }
        _ => Ok(path::parent(fs, to).await?),
    }
}

async fn rename(fs: &AnyFs, paths: &[OsString]) -> Result<()> {
    let (to, from) = paths.split_last().expect("clap asks for two");
    let to = to.as_bytes();
    let is_directory =
        matches!(lookup(fs, to).await, Ok(attr) if attr.file_type == FileType::Directory);
    if from.len() > 1 && !is_directory {
        bail!("{}: not a directory, to which several files could be moved", shown(to));
    }
    for from in from {
        let from = from.as_bytes();
        let (old_dir, old) = path::parent(fs, from).await?;
        let (dir, name) = place(fs, from, to).await?;
        let done = fs.rename(old_dir, old, dir, name, RenameMode::Replace).await;
        done.with_context(|| shown(from))?;
    }
    Ok(())
}

async fn link(fs: &AnyFs, to: &[u8], name: &[u8], symbolic: bool) -> Result<()> {
    let (dir, new) = place(fs, to, name).await?;
    let done = match symbolic {
        true => fs.create(dir, new, &NewNode::symlink(to)).await,
        false => fs.link(lookup(fs, to).await?.ino, dir, new).await,
    };
    done.map(drop).with_context(|| shown(name))
}

async fn touch(fs: &AnyFs, path: &[u8], at: SetTime) -> Result<()> {
    let (dir, name) = path::parent(fs, path).await?;
    let ino = match fs.lookup(dir, name).await {
        Ok(attr) => attr.ino,
        Err(e) if e.errno == Errno::NotFound => {
            let made = fs.create(dir, name, &NewNode::file(0o644)).await;
            made.with_context(|| shown(path))?.ino
        }
        Err(e) => return Err(e).with_context(|| shown(path)),
    };
    let set = SetAttr { atime: Some(at), mtime: Some(at), ..SetAttr::default() };
    fs.setattr(ino, &set).await.map(drop).with_context(|| shown(path))
}

/// Sets attributes of files, and of everything below directories if `recursive`. `set` gives the
/// change for each; `None` leaves it as it is.
async fn set_all(
    fs: &AnyFs,
    paths: &[OsString],
    recursive: bool,
    set: &dyn Fn(&Attr) -> Option<SetAttr>,
) -> Result<()> {
    for path in paths {
        let top = lookup(fs, path.as_bytes()).await?;
        if let Some(set) = set(&top) {
            fs.setattr(top.ino, &set).await.with_context(|| shown(path.as_bytes()))?;
        }
        if !recursive || top.file_type != FileType::Directory {
            continue;
        }
        let mut walk = Walk::new(fs, top.ino, WalkLimits::default()).await?;
        while let Some(visit) = walk.next().await? {
            if let Visit::Enter(entry) = visit
                && let Some(set) = set(&entry.attr)
            {
                fs.setattr(entry.attr.ino, &set).await.with_context(|| shown(&entry.path))?;
            }
        }
    }
    Ok(())
}

//! `ordo import`: an image made or filled from a directory, a manifest, or an archive.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use ordo_block::BlockDevice;
use ordo_block::file::FileDisk;
use ordo_report::progress::Progress;
use ordo_runtime::Runtime;
use ordo_systems::{MakeOptions, SystemError};
use ordo_vfs::host::HostDir;
use ordo_vfs::tree::{self, CopyOptions, Existing, Totals, WalkLimits};
use ordo_vfs::{Errno, FileSystem, FsError, StatFs, Timestamp, path};

use super::copy::{Done, copy_tree};
use super::mkfs::shape_options;
use crate::args::{Import, Owner};
use crate::created::CreatedFiles;
use crate::image::{self, real_time, source_date};
use crate::pair::NamedImage;
use crate::sources::{mtree, tarball};

/// The space of a small file, with its share of other structures, in bytes.
const FRAGMENT: u64 = 4096;
/// The size in bytes of a tree up to which a minimal image has the smallest blocks.
const SMALL: u64 = 16 << 20;
/// The most sizes that are tried for a minimal image.
const TRIES: u32 = 60;

pub fn import(args: &Import) -> Result<ExitCode> {
    let epoch = source_date()?;
    let time = Timestamp { seconds: epoch.unwrap_or(0), nanos: 0 };
    if let Some(manifest) = &args.mtree {
        let (tree, missing) = mtree::read(manifest, &args.dir, time)?;
        missing.iter().for_each(|path| eprintln!("ordo: left out: {path}: no such file"));
        let done = import_tree(args, &tree, epoch)?;
        return Ok(if missing.is_empty() { done } else { ExitCode::FAILURE });
    }
    match args.dir.is_dir() {
        true => import_tree(args, &HostDir::open(&args.dir)?, epoch),
        false => import_tree(args, &tarball::read(&args.dir, time)?, epoch),
    }
}

fn import_tree<F: FileSystem>(args: &Import, from: &F, epoch: Option<i64>) -> Result<ExitCode> {
    let mut created = CreatedFiles::default();
    let bar = Progress::new(args.quiet);
    bar.begin("import", "counting", 1);
    let totals =
        real_time(async |_| Ok(tree::measure(from, from.root(), WalkLimits::default()).await?))?;
    let options = copy_options(args, epoch);
    let work = Work { args, from, totals: &totals, options: &options, bar: &bar, epoch };
    let done = if args.image.exists() {
        args.shape.refuse_for(&args.image)?;
        if args.minimal || args.free.is_some() || args.size.is_some() {
            bail!("{}: exists: its size is what it is", args.image.display());
        }
        work.pass(None)?.0
    } else {
        if args.metadata.meta_device.is_some() {
            bail!(
                "{}: does not exist; ordo mkfs --fs dualfs --meta-device makes a pair",
                args.image.display()
            );
        }
        created.add(&args.image);
        work.make_and_fill()?
    };
    created.keep();
    done.report(args.json)
}

fn copy_options(args: &Import, epoch: Option<i64>) -> CopyOptions {
    let existing = match (args.overwrite, args.merge) {
        (true, _) => Existing::Replace,
        (_, true) => Existing::Keep,
        _ => Existing::Refuse,
    };
    let newest = epoch.map(|seconds| Timestamp { seconds, nanos: 0 });
    let owner = args.owner.map_or((None, None), |Owner { uid, gid }| (uid, gid));
    CopyOptions { existing, newest, owner, ..CopyOptions::default() }
}

/// A source, its counts, and how it is copied.
struct Work<'w, F> {
    args: &'w Import,
    from: &'w F,
    totals: &'w Totals,
    options: &'w CopyOptions,
    bar: &'w Progress,
    epoch: Option<i64>,
}

impl<F: FileSystem> Work<'_, F> {
    /// Copies the source into the image, which is made first if a size is given. Returns the space
    /// of the file system, too. Each pass has an executor of its own, with which all use of the
    /// image ends.
    fn pass(&self, new: Option<(&MakeOptions, u64)>) -> Result<(Done, StatFs)> {
        real_time(async |rt| {
            self.epoch.iter().for_each(|seconds| rt.fix_wall_time(*seconds));
            if let Some((options, bytes)) = new {
                make(&rt, self.args, options, bytes).await?;
            }
            self.fill(&rt).await
        })
    }

    async fn fill(&self, rt: &Runtime) -> Result<(Done, StatFs)> {
        let Work { args, from, totals, options, bar, .. } = *self;
        let named = NamedImage::new(&args.image).with(&args.metadata).at(&args.part);
        let mounted = image::open(rt, named).await?;
        let into = path::make_directories(mounted.fs(), args.into.as_bytes(), 0o755).await?;
        bar.begin("import", &args.dir.display().to_string(), totals.entries);
        let target = (mounted.fs(), into.ino);
        let copied = copy_tree((from, from.root()), target, options, (bar, totals)).await;
        bar.finish();
        let space = mounted.fs().statfs().await;
        image::close(&args.image, mounted).await?;
        let copied = copied.with_context(|| {
            let (dir, image) = (args.dir.display(), args.image.display());
            format!("importing {dir} into {image}; what was copied is there")
        });
        Ok((copied?, space?))
    }

    fn make_and_fill(&self) -> Result<Done> {
        let (args, totals) = (self.args, self.totals);
        let options = options(args, totals);
        let usual = usual_size(totals);
        let free = match (args.minimal, args.free) {
            (false, None) => {
                let bytes = args.size.unwrap_or(usual);
                return Ok(self.pass(Some((&options, bytes)))?.0);
            }
            (_, free) => u64::from(free.unwrap_or(0)),
        };
        // An image with much space shows how much the tree takes.
        let space = self.pass(Some((&options, usual)))?.1;
        let unit = u64::from(space.fragment_size);
        let used = (space.blocks - space.blocks_free) * unit + (totals.entries + 16) * 256;
        let mut size = (used * 100 / (100 - free) + (96 << 10)).next_multiple_of(32 << 10);
        for _ in 0..TRIES {
            match self.pass(Some((&options, size))) {
                Ok((done, space)) if space.blocks_free * 100 >= space.blocks * free => {
                    return Ok(done);
                }
                Ok(_) => {}
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
            size = (size + (size / 40).max(32 << 10)).next_multiple_of(32 << 10);
        }
        Err(anyhow!("no size up to {size} bytes is enough; --size gives one"))
    }
}

/// The size for a tree, with the reserve of a twelfth, inodes and group headers, and some free
/// space.
fn usual_size(totals: &Totals) -> u64 {
    let needs = totals.bytes + (totals.entries + totals.directories) * FRAGMENT;
    (needs + needs / 4 + (32 << 20)).next_multiple_of(1 << 20)
}

/// Whether an image was too small, for its files or for any file system with these options.
fn is_full(error: &anyhow::Error) -> bool {
    let is_full = |e: &FsError| e.errno == Errno::NoSpace;
    error.chain().any(|cause| {
        cause.downcast_ref::<FsError>().is_some_and(is_full)
            || cause.downcast_ref::<SystemError>().is_some_and(SystemError::is_size)
    })
}

/// The options of mkfs for a tree.
fn options(args: &Import, totals: &Totals) -> MakeOptions {
    let mut options = shape_options(&args.shape);
    let inodes = totals.entries + totals.entries / 4 + 1000;
    if args.minimal {
        options.inodes = options.density.is_none().then_some(totals.entries + 16);
        options.min_free = Some(args.shape.min_free.unwrap_or(0));
        if totals.bytes < SMALL && options.block_size.is_none() {
            (options.block_size, options.frag_size) = (Some(4096), options.frag_size.or(Some(512)));
        }
        return options;
    }
    options.frag_size = options.frag_size.or(options.block_size.is_none().then_some(FRAGMENT));
    let bytes = args.size.unwrap_or_else(|| usual_size(totals));
    let is_enough = bytes / (2 * FRAGMENT) >= inodes;
    options.inodes = (!is_enough && options.density.is_none()).then_some(inodes);
    options
}

async fn make(rt: &Runtime, args: &Import, options: &MakeOptions, bytes: u64) -> Result<()> {
    let named = |path: &Path| path.display().to_string();
    let disk = FileDisk::create(rt, &args.image, bytes)?.erase();
    let made = args.shape.fs.format().make(rt, &[disk], options).await;
    made.map(drop).with_context(|| named(&args.image))
}

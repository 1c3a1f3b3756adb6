//! Reading a file system in an image, if need be past its damage.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use ordo_report::number;
use ordo_runtime::Runtime;
use ordo_systems::rescue::{self, LeftOut, Mapfile, RescueFs, Unreadable};
use ordo_systems::{MountOptions, probe};
use ordo_vfs::{AnyFs, Errno, FsError};

use crate::image::{open_to_read, replay_log};
use crate::pair::{self, NamedImage, erased};
use crate::partition::Disk;
use ordo_block::file::FileAccess;

/// The most notes that are printed.
const SHOWN_MAX: usize = 1000;

/// Reading past damage.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RescueChoice {
    /// Go on past damage: whatever cannot be read is left out, or is zeros, and is listed with its
    /// inode and the reason; the exit status is then 1. Needs no superblock if there is a copy.
    #[arg(long)]
    pub rescue: bool,
    /// A mapfile of GNU ddrescue, by which the image was copied: whatever it could not read counts
    /// as unreadable.
    #[arg(long, value_name = "FILE", requires = "rescue")]
    pub mapfile: Option<PathBuf>,
}

/// A file system that is read.
pub struct Reader {
    fs: AnyFs,
    /// The same one, if it is a UFS that is read past damage.
    rescued: Option<RescueFs>,
    goes_on: bool,
}

impl Reader {
    /// Opens the file system in an image.
    ///
    /// # Errors
    /// The image cannot be opened, or its file system cannot be read.
    pub async fn open(
        runtime: &Runtime,
        named: NamedImage<'_>,
        choice: &RescueChoice,
    ) -> Result<Reader> {
        if !choice.rescue {
            let fs = open_to_read(runtime, named).await.map_err(advised)?;
            return Ok(Reader { fs, rescued: None, goes_on: false });
        }
        let named = NamedImage { rescue: true, ..named };
        let name = || named.words();
        let files = named.open(runtime, FileAccess::ReadOnly).await?;
        let unreadable = marked(choice, files.last().expect("there is an image"))?;
        let disks = erased(files, true);
        let disk = pair::image(&disks);
        let format = probe(disk).await.with_context(name)?;
        if let Some(format) = format
            && let Some(said) = replay_log(runtime, format, &disks, named.image, true).await
        {
            eprintln!("{said}");
        }
        match format.filter(|format| !format.is_ufs()) {
            Some(format) => {
                let options = MountOptions { salvage: named.salvage, ..MountOptions::default() };
                let mounted = format.read(runtime, &disks, &options).await.with_context(name)?;
                Ok(Reader { fs: mounted.fs().clone(), rescued: None, goes_on: true })
            }
            None => {
                let fs = rescue::open(disk, unreadable).await.with_context(name)?;
                Ok(Reader { fs: AnyFs::new(fs.clone()), rescued: Some(fs), goes_on: true })
            }
        }
    }

    /// The file system.
    pub fn fs(&self) -> &AnyFs {
        &self.fs
    }

    /// The file system as one that is read past damage.
    ///
    /// # Errors
    /// The format cannot be read in this way.
    pub fn rescued(&self) -> Result<&RescueFs> {
        self.rescued.as_ref().ok_or_else(|| anyhow!("only a UFS can be searched for lost files"))
    }

    /// Whether reading goes on after an error, which is of one file or directory.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Notes an error after which reading goes on, if the file system does not do so itself.
    pub fn lose(&self, error: &FsError) {
        if self.rescued.is_none() {
            eprintln!("ordo: left out: {error}");
        }
    }

    /// Everything that was left out so far, and the number of notes that are not in the list.
    pub fn left_out(&self) -> (Vec<LeftOut>, u64) {
        self.rescued.as_ref().map_or_else(Default::default, RescueFs::left_out)
    }

    /// Lists what was left out. The exit status is 1 if that is anything.
    pub fn end(&self) -> ExitCode {
        let (all, more) = self.left_out();
        for left in all.iter().take(SHOWN_MAX) {
            eprintln!("ordo: {left}");
        }
        let more = more + all.len().saturating_sub(SHOWN_MAX) as u64;
        if more > 0 {
            eprintln!("ordo: and {} more", number::count(more));
        }
        ExitCode::from(u8::from(!all.is_empty()))
    }
}

/// The unreadable parts of the image, according to a mapfile of all of it.
fn marked(choice: &RescueChoice, disk: &Disk) -> Result<Unreadable> {
    let Some(path) = &choice.mapfile else { return Ok(Unreadable::default()) };
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(name)?;
    let map = Mapfile::parse(&text).with_context(name)?;
    Ok(map.of_part(disk.origin(), ordo_block::BlockDevice::geometry(disk).bytes))
}

/// An error about damage, with the way past it.
pub fn advised(error: anyhow::Error) -> anyhow::Error {
    let is_damage = |cause: &(dyn std::error::Error + 'static)| {
        let fs = cause.downcast_ref::<FsError>();
        fs.is_some_and(|e| matches!(e.errno, Errno::Corrupt | Errno::Io))
            || cause.to_string().contains("was it truncated?")
            || cause.to_string().starts_with("superblock at byte")
    };
    match error.chain().any(is_damage) {
        true => anyhow!("{}; --rescue reads whatever can be read", crate::told(&error)),
        false => error,
    }
}

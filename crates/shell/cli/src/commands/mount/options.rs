//! The options after `-o`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use ordo_fuse::handler::ids::{HiddenPermissions, IdMap, Ids};
use ordo_report::number::parse_bytes;
use ordo_runtime::Duration;
use ordo_systems::{AccessTimes, Cleaning, DualOptions, Format, JournalMode, Tuning};

/// The registry's name of an ordering that a user names.
fn ordering(name: &str) -> Result<&'static str> {
    let all = ordo_systems::orderings();
    let found = all.iter().find(|(first, also)| *first == name || also.contains(&name));
    match found {
        Some((first, _)) => Ok(*first),
        None => {
            let known: Vec<&str> = all.iter().map(|(first, _)| *first).collect();
            bail!("no ordering is called '{name}'; there are {}", known.join(", "))
        }
    }
}

/// The place of a journal's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In a file of the image.
    File,
    /// Behind the file system.
    Behind,
    /// On a device of its own.
    Device(PathBuf),
}

/// All options.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The ordering, by its name in the registry.
    pub ordering: Option<&'static str>,
    pub log: Option<LogPlace>,
    /// The metadata device of the image.
    pub meta_device: Option<PathBuf>,
    pub log_sync: bool,
    pub group_commit: bool,
    /// The longest wait of the first caller of a group for others.
    pub group_delay: Option<Duration>,
    /// The most callers in a group.
    pub group_batch: Option<usize>,
    pub read_only: bool,
    /// A read-only mount is an error.
    pub read_write: bool,
    pub partition: Option<String>,
    pub cache: Option<u64>,
    pub dirty: Option<u64>,
    /// Memory for the dependencies of soft updates.
    pub dependencies: Option<u64>,
    pub ids: IdMap,
    pub allow_other: Option<bool>,
    pub acl: Option<bool>,
    /// The unit of writing, if it is not the usual one.
    pub write_unit: Option<WriteUnit>,
    pub access_times: AccessTimes,
    pub bsd_groups: bool,
    pub synchronous: bool,
    pub write_back: bool,
    pub names_only: bool,
    pub use_reserve: bool,
    /// The policy of a log's cleaner, and when it works.
    pub cleaning: Cleaning,
    /// The mechanisms of a DualFS.
    pub dual: DualOptions,
    /// Runs of blocks of an FFS, and the gaps between them.
    pub tuning: Tuning,
    /// The modes of a journal, if any was given.
    pub journal: Option<JournalMode>,
    /// The last option that only a log with a cleaner takes, that only a DualFS takes, and that
    /// only an FFS takes.
    for_cleaners: Option<String>,
    for_pairs: Option<String>,
    for_ffs: Option<String>,
    pub force: bool,
    /// Read a DualFS by the copy of the metadata on its data device.
    pub salvage: bool,
    /// Read a damaged UFS past its damage.
    pub rescue: bool,
    /// Remount: only the options of the kernel change.
    pub remount: bool,
    /// Use requests over io_uring, if the kernel offers them.
    pub io_uring: bool,
    /// The seconds after which the kernel gives up on a server that does not answer; 0: never.
    pub timeout: u16,
    /// The options of the kernel.
    pub flags: Vec<String>,
}

impl MountRequest {
    /// Refuses an option that means nothing for the file system that was found.
    pub fn check(&self, format: &dyn Format) -> Result<()> {
        let cleaner = self.for_cleaners.as_ref().filter(|_| !format.has_cleaner());
        let pair = self.for_pairs.as_ref().filter(|_| !format.has_pairs());
        let tuned = self.for_ffs.as_ref().filter(|_| !format.has_tuning());
        if self.salvage && !self.read_only {
            bail!("-o salvage only reads: -o ro,salvage");
        }
        if self.rescue && !format.is_ufs() {
            bail!("-o rescue reads a damaged UFS, not {}", format.noun());
        }
        match cleaner.or(pair).or(tuned) {
            Some(key) => bail!("-o {key}= does not go with {}", format.noun()),
            None => Ok(()),
        }
    }

    /// Parses lists of options.
    pub fn parse(lists: &[String]) -> Result<MountRequest> {
        let mut wanted = MountRequest::default();
        let all = lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
        for word in all {
            wanted.take(word).with_context(|| format!("-o {word}"))?;
        }
        if wanted.acl == Some(true) && wanted.hides_permissions() {
            bail!(
                "-o acl does not go with umask=, fmask= or dmask=: an ACL gives more permissions than a mode shows"
            );
        }
        Ok(wanted)
    }

    /// Whether some permissions are hidden.
    pub fn hides_permissions(&self) -> bool {
        self.ids.hidden != HiddenPermissions::default()
    }

    fn take(&mut self, word: &str) -> Result<()> {
        if let Some((key, value)) = word.split_once('=') {
            return self.take_value(key, value);
        }
        match word {
            "ro" => (self.read_only, self.read_write) = (true, false),
            "rw" => (self.read_only, self.read_write) = (false, true),
            "log-sync" => self.log_sync = true,
            "group-commit" => self.group_commit = true,
            "allow_other" => self.allow_other = Some(true),
            "private" => self.allow_other = Some(false),
            "acl" => self.acl = Some(true),
            "noacl" => self.acl = Some(false),
            "atime" | "strictatime" => self.access_times = AccessTimes::Always,
            "relatime" => self.access_times = AccessTimes::Relative,
            "noatime" => self.access_times = AccessTimes::Never,
            "bsdgroups" | "grpid" => self.bsd_groups = true,
            "nogrpid" | "sysvgroups" => self.bsd_groups = false,
            "sync" => {
                self.synchronous = true;
                self.flags.push(word.into());
            }
            "writeback" => self.write_back = true,
            "noreaddirplus" => self.names_only = true,
            "reserve" => self.use_reserve = true,
            "force" => self.force = true,
            "salvage" => self.salvage = true,
            "rescue" => self.rescue = true,
            "remount" => self.remount = true,
            "io_uring" => self.io_uring = true,
            "no_io_uring" => self.io_uring = false,
            "nodev" | "nosuid" | "noexec" | "dirsync" | "nodiratime" => {
                self.flags.push(word.into());
            }
            // Options that mount(8) handles itself, and options that are always on.
            "defaults"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "nofail"
            | "_netdev"
            | "dev"
            | "suid"
            | "exec"
            | "async"
            | "diratime"
            | "default_permissions"
            | "nosymfollow"
            | "lazytime"
            | "nolazytime" => {}
            _ if word.starts_with("x-") || word.starts_with("X-") => {}
            _ => bail!("there is no such option; ordo mount --help lists them"),
        }
        Ok(())
    }

    fn take_value(&mut self, key: &str, value: &str) -> Result<()> {
        let bytes = || parse_bytes(value).map_err(|e| anyhow!("{e}"));
        let ids = || Ids::parse(value).map_err(|e| anyhow!("{e}"));
        let bits = || HiddenPermissions::parse(value).map_err(|e| anyhow!("{e}"));
        match key {
            "ordering" => self.ordering = Some(ordering(value)?),
            "log" => {
                self.log = Some(match value {
                    "file" => LogPlace::File,
                    "behind" => LogPlace::Behind,
                    _ => bail!("a log is in a 'file' or 'behind' the file system; logdev=PATH"),
                });
            }
            "group-delay" => {
                let delay = value.parse().map_err(|e| anyhow!("microseconds: {e}"))?;
                self.group_delay = Some(Duration::from_micros(delay));
                self.group_commit = true;
            }
            "group-batch" => {
                self.group_batch = Some(value.parse().map_err(|e| anyhow!("a number: {e}"))?);
                self.group_commit = true;
            }
            "logdev" => self.log = Some(LogPlace::Device(value.into())),
            "metadev" => self.meta_device = Some(value.into()),
            "partition" => self.partition = Some(value.into()),
            _ if Cleaning::KEYS.contains(&key) => {
                self.cleaning.set(key, value)?;
                self.for_cleaners = Some(key.to_owned());
            }
            _ if DualOptions::KEYS.contains(&key) => {
                self.dual.set(key, value)?;
                self.for_pairs = Some(key.to_owned());
            }
            _ if JournalMode::KEYS.contains(&key) => {
                self.journal.get_or_insert_default().set(key, value)?;
                self.for_ffs = Some(key.to_owned());
            }
            _ if Tuning::KEYS.contains(&key) => {
                self.tuning.set(key, value)?;
                self.for_ffs = Some(key.to_owned());
            }
            "cache" => self.cache = Some(bytes()?),
            "write-unit" => self.write_unit = Some(WriteUnit::parse(value)?),
            "dirty" => self.dirty = Some(bytes()?),
            "timeout" => self.timeout = value.parse().map_err(|e| anyhow!("seconds: {e}"))?,
            "dependencies" => self.dependencies = Some(bytes()?),
            "uid" => self.ids.users = ids()?,
            "gid" => self.ids.groups = ids()?,
            "umask" => (self.ids.hidden.files, self.ids.hidden.directories) = (bits()?, bits()?),
            "fmask" => self.ids.hidden.files = bits()?,
            "dmask" => self.ids.hidden.directories = bits()?,
            "comment" | "fsname" | "subtype" => {}
            // Options that the table of mounts shows. mount(8) passes them on when it remounts.
            "user_id" | "group_id" | "max_read" | "blksize" => {}
            _ if key.starts_with("x-") || key.starts_with("X-") => {}
            _ => bail!("there is no such option; ordo mount --help lists them"),
        }
        Ok(())
    }
}

/// The unit in which the changed part of a file's block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteUnit {
    /// Whole blocks.
    Block,
    /// As many bytes: a power of two from 4,096 on, which every device can write.
    Bytes(usize),
}

impl WriteUnit {
    /// The usual unit: a page, in which programs and the kernel write.
    const USUAL: usize = 4096;

    fn parse(value: &str) -> Result<WriteUnit> {
        if value == "block" {
            return Ok(WriteUnit::Block);
        }
        let bytes = parse_bytes(value).map_err(|e| anyhow!("{e}"))?;
        match bytes.is_power_of_two() && (4096..=65_536).contains(&bytes) {
            true => Ok(WriteUnit::Bytes(bytes as usize)),
            false => bail!("a power of two from 4k to 64k, or block"),
        }
    }

    /// The cache's unit; `None` for whole blocks.
    pub fn of(chosen: Option<WriteUnit>) -> Option<usize> {
        match chosen {
            Some(WriteUnit::Block) => None,
            Some(WriteUnit::Bytes(bytes)) => Some(bytes),
            None => Some(WriteUnit::USUAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ordo_systems::{CleanerPolicy, Locality};

    /// The options in a line of fstab are understood: those of the kernel, of mount(8), and of
    /// Ordo. An unknown one is refused, not ignored.
    #[test]
    fn options_are_read() {
        let line = "rw,nofail,x-systemd.automount,nodev,ordering=soft-updates,cache=64m,uid=1000:0";
        let wanted = MountRequest::parse(&[line.into(), "ro".into()]).unwrap();
        assert!(wanted.read_only && !wanted.read_write);
        assert_eq!(wanted.ordering, Some("soft-updates"));
        assert_eq!((wanted.cache, wanted.flags.len()), (Some(64 << 20), 1));
        assert_eq!(wanted.ids.users, Ids::All { here: 1000, disk: 0 });
        let greedy = MountRequest::parse(&["cleaner=greedy,idle=0.5,clean-low=30".into()]).unwrap();
        assert_eq!(wanted.cleaning, Cleaning::default());
        let (policy, idle) = (CleanerPolicy::Greedy, Some(Duration::from_millis(500)));
        assert_eq!(
            greedy.cleaning,
            Cleaning { policy, idle, clean_low: 30, ..Cleaning::default() }
        );
        assert_eq!(MountRequest::parse(&["idle=off".into()]).unwrap().cleaning.idle, None);
        let dual = MountRequest::parse(&["prefetch=off,order=number,relocate=9,affinity=3".into()])
            .unwrap();
        let locality = Locality { prefetch: 0, inverse: false, relocate: 9 };
        assert_eq!(dual.dual, DualOptions { affinity: Some(3), locality });
        let tuned = MountRequest::parse(&["maxcontig=8,rotgap=2".into()]).unwrap().tuning;
        assert_eq!(tuned, Tuning { max_contig: Some(8), gap: 2 });
        let journal = MountRequest::parse(&["contents=data,commits=tangled,commit-every=5".into()]);
        let journal = journal.unwrap().journal.unwrap();
        assert_eq!(journal.every, Some(Duration::from_secs(5)));
        let group = MountRequest::parse(&["group-delay=250,group-batch=8".into()]).unwrap();
        assert!(group.group_commit);
        assert_eq!(group.group_delay, Some(Duration::from_micros(250)));
        assert_eq!(group.group_batch, Some(8));
        assert_eq!(MountRequest::parse(&["timeout=30".into()]).unwrap().timeout, 30);
        for wrong in [
            "group-delay=soon",
            "orderin=sync",
            "ordering=fast",
            "cache=much",
            "uid=me",
            "umask=9",
            "write-unit=1000",
            "fmask=1000",
            "umask=22,acl",
            "cleaner=lazy",
            "idle=soon",
            "idle=-1",
            "clean-low=101",
            "prefetch=1",
            "prefetch=many",
            "order=any",
            "relocate=0",
            "affinity=-1",
            "maxcontig=0",
            "maxcontig=257",
            "contents=all",
            "phases=",
            "commit-every=0",
            "rotgap=-1",
            "rotgap=65",
            "timeout=soon",
            "timeout=70000",
            "rww",
        ] {
            assert!(MountRequest::parse(&[wrong.into()]).is_err(), "{wrong}");
        }
    }
}

//! A news server: journaling-versus-soft-updates-2000, section 7.3.2 and Table 5.
//!
//! A file system has articles in many directories, more than the cache holds. New articles arrive,
//! and old ones are removed. Successive articles seldom belong to one group, so successive
//! operations are seldom in one directory. The paper replays traces of a live server, which are not
//! public: here a seed determines the group and the length of each article.

use std::fmt;

use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netnews {
    /// The number of articles at the start.
    pub files: u64,
    /// The number of groups, each with a directory.
    pub directories: u64,
    /// The number of articles that arrive.
    pub unbatch: u64,
    /// The number of articles that are removed.
    pub expire: u64,
}

/// The mean length of an article in bytes: 2 GB for 520,000 at the start, 270 MB for the 78,000
/// that arrive.
const MEAN_AT_START: u64 = (2 << 30) / 520_000;
const MEAN_NEW: u64 = (270 << 20) / 78_000;

/// Lengths of articles, equally likely, in hundredths of the mean. They are those of an exponential
/// distribution.
const LENGTHS: [u64; 20] =
    [3, 8, 13, 19, 26, 32, 39, 47, 55, 64, 74, 86, 98, 112, 129, 149, 174, 208, 259, 405];

/// The number of groups in a directory of groups.
const FAN_OUT: u64 = 100;

/// An article: its group and its number.
type Article = (u32, u32);

impl Netnews {
    /// As in the paper: 520,000 articles in 7,000 directories; 78,000 arrive, and 91,000 are
    /// removed.
    pub const PAPER: Netnews =
        Netnews { files: 520_000, directories: 7_000, unbatch: 78_000, expire: 91_000 };

    pub(super) fn describe(&self) -> String {
        format!(
            "a news server: {} articles in {} directories, then {} come in and {} go",
            self.files, self.directories, self.unbatch, self.expire
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        // On average, half of an article's last fragment of 1 KB is unused; its directory has a
        // share too.
        (self.files + self.unbatch) * (MEAN_AT_START + 600) + self.directories * 8192
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let bytes = Bytes::new(seed, (MEAN_AT_START * 5) as usize);
        run.begin("fill", self.files);
        let groups = self.make_groups(run).await?;
        let mut articles = Vec::with_capacity(self.files as usize);
        for number in 0..self.files {
            let group = (number % self.directories) as u32;
            let article = (group, number as u32);
            let length = length(&mut random, MEAN_AT_START);
            self.add(run, &groups, article, bytes.get(length)).await?;
            articles.push(article);
        }
        run.end();
        run.drop_caches().await?;

        run.begin("unbatch", self.unbatch);
        for number in self.files..self.files + self.unbatch {
            let group = random.random_range(0..self.directories) as u32;
            let length = length(&mut random, MEAN_NEW);
            self.add(run, &groups, (group, number as u32), bytes.get(length)).await?;
        }
        run.end();

        run.begin("expire", self.expire);
        for _ in 0..self.expire.min(self.files) {
            let (group, number) = articles.swap_remove(random.random_range(0..articles.len()));
            let name = number.to_string();
            let gone = run.fs().unlink(groups[group as usize], name.as_bytes()).await;
            gone.doing(|| format!("removing article {number} of group {group}"))?;
            run.step(0);
        }
        run.end();
        Ok(())
    }

    /// Makes the groups' directories, [`FAN_OUT`] in a directory above them.
    async fn make_groups<S: WorkloadStage>(
        &self,
        run: &Run<'_, S>,
    ) -> Result<Vec<Ino>, WorkloadError> {
        let fs = run.fs();
        let new = NewNode::directory(0o755);
        let mut groups = Vec::with_capacity(self.directories as usize);
        let mut above = fs.root();
        for group in 0..self.directories {
            let doing = || format!("making the directory of group {group}");
            if group.is_multiple_of(FAN_OUT) {
                let name = format!("hierarchy{}", group / FAN_OUT);
                above = fs.create(fs.root(), name.as_bytes(), &new).await.doing(doing)?.ino;
            }
            let name = format!("group{group}");
            groups.push(fs.create(above, name.as_bytes(), &new).await.doing(doing)?.ino);
        }
        Ok(groups)
    }

    async fn add<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        groups: &[Ino],
        (group, number): Article,
        text: &[u8],
    ) -> Result<(), WorkloadError> {
        let name = number.to_string();
        let made = create(run.fs(), groups[group as usize], name.as_bytes(), text, 8192).await;
        made.doing(|| format!("writing article {number} of group {group}"))?;
        run.log.made(1);
        run.step(text.len() as u64);
        Ok(())
    }
}

/// The length of an article, in bytes.
fn length(random: &mut Pcg64Mcg, mean: u64) -> u64 {
    (mean * LENGTHS[random.random_range(0..LENGTHS.len())] / 100).max(1)
}

impl fmt::Display for Netnews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Netnews::PAPER {
            return write!(f, "netnews");
        }
        let Netnews { files, directories, unbatch, expire } = self;
        write!(
            f,
            "netnews:files={files},directories={directories},unbatch={unbatch},expire={expire}"
        )
    }
}

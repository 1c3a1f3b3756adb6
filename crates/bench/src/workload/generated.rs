//! A tree that follows from a seed, so that a figure about trees is the same on every machine.
//!
//! Its shape is that of a tree of sources: a median file of some 4 KB, a few that are a hundred times as long, a
//! dozen and a half entries to a directory, directories within directories.

use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, random_size};

/// The largest file, in bytes.
const LARGEST: u64 = 512 << 10;

/// Sizes of files.
const SIZES: [(u32, u64); 6] =
    [(8, 512), (28, 2 << 10), (66, 8 << 10), (88, 32 << 10), (97, 128 << 10), (100, LARGEST)];

/// Files to a directory, on average.
const FILES_EACH: u64 = 14;

/// Directories below one another at most.
const DEPTH_MAX: u32 = 6;

/// What a tree follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The seed.
    pub seed: u64,
    /// Files, directories not among them.
    pub files: u64,
}

impl Generated {
    /// How many files there are where nothing else is said.
    pub const FILES: u64 = 4000;

    /// The tree, in memory.
    ///
    /// # Errors
    /// None that the model of a file system does not have.
    pub(super) async fn make(&self) -> FsResult<ModelFs> {
        let fs = ModelFs::new(ModelConfig::ufs2(8192), || Timestamp {
            seconds: 1_000_000_000,
            nanos: 0,
        });
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let bytes = Bytes::new(self.seed, LARGEST as usize);
        let mut places: Vec<(Ino, u32)> = vec![(fs.root(), 0)];
        for number in 0..self.files {
            if number > 0 && number.is_multiple_of(FILES_EACH) {
                let deeper: Vec<_> = places.iter().filter(|(_, d)| *d < DEPTH_MAX).collect();
                let (parent, depth) = *deeper[random.random_range(0..deeper.len())];
                let name = format!("{}{}", word(&mut random), places.len());
                let dir = fs.make(parent, name.as_bytes(), &NewNode::directory(0o755)).await?;
                places.push((dir.ino, depth + 1));
            }
            // Mostly into the directory made last: a tree is filled one directory after another.
            let place = match random.random_range(0..4) {
                0 => places[random.random_range(0..places.len())].0,
                _ => places[places.len() - 1].0,
            };
            let name = format!("{}{number}.c", word(&mut random));
            create(
                &fs,
                place,
                name.as_bytes(),
                bytes.get(random_size(&mut random, &SIZES, 0)),
                64 << 10,
            )
            .await?;
        }
        Ok(fs)
    }
}

/// The beginning of a name: 3 to 14 letters.
fn word(random: &mut Pcg64Mcg) -> String {
    let len = random.random_range(3..15);
    (0..len).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
}

//! A tree that is generated from a seed, so that figures about trees are the same on every machine.
//!
//! The generated tree has the shape of a tree of sources: a median file of some 4 KB, a few files a
//! hundred times as long, about eighteen entries in a directory, nested directories.

use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, random_size};

/// The largest file, in bytes.
const LARGEST: u64 = 512 << 10;

/// The distribution of file sizes.
const SIZES: [(u32, u64); 6] =
    [(8, 512), (28, 2 << 10), (66, 8 << 10), (88, 32 << 10), (97, 128 << 10), (100, LARGEST)];

/// The average number of files in a directory.
const FILES_EACH: u64 = 14;

/// The deepest nesting of directories.
const DEPTH_MAX: u32 = 6;

/// The parameters of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The seed.
    pub seed: u64,
    /// The number of files, without directories.
    pub files: u64,
}

impl Generated {
    /// The default number of files.
    pub const FILES: u64 = 4000;

    /// The tree, in memory.
    ///
    /// # Errors
    /// The errors of the reference model only.
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
                let dir = fs.create(parent, name.as_bytes(), &NewNode::directory(0o755)).await?;
                places.push((dir.ino, depth + 1));
            }
            // Most files go to the directory that was made last, since real trees are filled
            // directory by directory.
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

/// A random word of 3 to 14 letters, for a name.
fn word(random: &mut Pcg64Mcg) -> String {
    let len = random.random_range(3..15);
    (0..len).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
}

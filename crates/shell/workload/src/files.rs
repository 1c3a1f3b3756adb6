//! Operations on whole files, as a program does them: create, read, overwrite, append.

use ordo_vfs::{Attr, Cookie, Errno, FileSystem, FsResult, Ino, NewNode};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bytes without a pattern, for the contents of files.
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    /// `len` bytes that are generated from `seed`.
    pub(super) fn new(seed: u64, len: usize) -> Bytes {
        let mut bytes = vec![0; len];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
        Bytes(bytes)
    }

    /// The first `len` of the bytes.
    pub(super) fn get(&self, len: u64) -> &[u8] {
        &self.0[..usize::try_from(len).expect("cut from memory")]
    }
}

/// Writes all of `data` in calls of at most `unit` bytes.
pub(super) async fn write<F: FileSystem>(
    fs: &F,
    ino: Ino,
    offset: u64,
    data: &[u8],
    unit: usize,
) -> FsResult<()> {
    let mut done = 0;
    while done < data.len() {
        let end = (done + unit).min(data.len());
        let n = fs.write(ino, offset + done as u64, &data[done..end]).await?;
        if n == 0 {
            return Err(Errno::NoSpace.into());
        }
        done += n;
    }
    Ok(())
}

/// The number of a random kind, of which each has its percentage.
pub(super) fn random_kind(random: &mut Pcg64Mcg, percentages: &[u32]) -> usize {
    let share = random.random_range(0..100);
    let mut sum = 0;
    let is_it = |percentage: &u32| {
        sum += percentage;
        share < sum
    };
    percentages.iter().position(is_it).expect("the percentages are 100 in all")
}

/// A distribution of sizes: pairs of a percentage and an upper bound in bytes. Each pair's lower
/// bound is the upper one of the pair before.
pub(super) type Sizes = [(u32, u64)];

/// A random size of a file, in bytes, at least `least`.
pub(super) fn random_size(random: &mut Pcg64Mcg, sizes: &Sizes, least: u64) -> u64 {
    let share = random.random_range(0..100);
    let line = sizes.iter().position(|(up_to, _)| share < *up_to).unwrap_or(sizes.len() - 1);
    let least = if line == 0 { least } else { sizes[line - 1].1 };
    random.random_range(least..sizes[line].1)
}

/// Creates a file with the contents `data`.
pub(super) async fn create<F: FileSystem>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    data: &[u8],
    unit: usize,
) -> FsResult<Attr> {
    let file = fs.create(dir, name, &NewNode::file(0o644)).await?;
    fs.open(file.ino).await?;
    let written = write(fs, file.ino, 0, data, unit).await;
    fs.close(file.ino).await?;
    written.map(|()| file)
}

/// Reads a file to its end in calls of `unit` bytes, and passes each piece with its offset to
/// `each`.
pub(super) async fn read<F: FileSystem>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    unit: usize,
    each: &mut dyn FnMut(u64, &[u8]),
) -> FsResult<u64> {
    let file = fs.lookup(dir, name).await?;
    fs.open(file.ino).await?;
    let mut buf = vec![0; unit.max(1)];
    let mut offset = 0;
    let result = loop {
        match fs.read(file.ino, offset, &mut buf).await {
            Ok(0) => break Ok(offset),
            Ok(n) => {
                each(offset, &buf[..n]);
                offset += n as u64;
                if offset >= file.size {
                    break Ok(offset);
                }
            }
            Err(e) => break Err(e),
        }
    };
    fs.close(file.ino).await?;
    result
}

/// The names in a directory, without `.` and `..`.
pub(super) async fn names<F: FileSystem>(fs: &F, dir: Ino) -> FsResult<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    };
    fs.readdir(dir, Cookie::START, &mut each).await?;
    Ok(names)
}

/// A size for a person: in whole KB or MB where that is exact, or the size is large.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 20 || (b >= 1 << 20 && b.is_multiple_of(1 << 20)) => {
            format!("{} MB", (b + (1 << 19)) >> 20)
        }
        b if b >= 10 << 10 || (b >= 1 << 10 && b.is_multiple_of(1 << 10)) => {
            format!("{} KB", (b + (1 << 9)) >> 10)
        }
        b => format!("{b} bytes"),
    }
}

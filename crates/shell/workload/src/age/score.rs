//! The layout score: the share of the files' blocks that are contiguous.

use ordo_vfs::{Extent, FileSystem, FsResult, Ino};

/// The layout score of files: the share of their blocks that directly follow, on the device, the
/// block before them in the file. The first block of a file does not count, so files of one block
/// have no score. The best score is 1.
///
/// Source: Smith and Seltzer, "File System Aging: Increasing the Relevance of File System
/// Benchmarks" (SIGMETRICS 1997), section 4.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileLayout {
    /// The number of blocks that have a block before them in their file.
    pub blocks: u64,
    /// The number of those blocks that directly follow it on the device.
    pub contiguous: u64,
}

impl FileLayout {
    /// The score; `None` if no file has two blocks.
    pub fn score(&self) -> Option<f64> {
        (self.blocks > 0).then(|| self.contiguous as f64 / self.blocks as f64)
    }

    /// Adds a file's extents. Parts that follow one another on the device, in the order of the
    /// file, count as one piece even if a hole is between them.
    pub(super) fn add(&mut self, extents: &[Extent], block: u64) {
        let blocks: u64 = extents.iter().map(|extent| extent.len.div_ceil(block)).sum();
        let breaks = extents.windows(2).filter(|w| w[0].address + w[0].len != w[1].address).count();
        let behind = blocks.saturating_sub(1);
        self.blocks += behind;
        self.contiguous += behind.saturating_sub(breaks as u64);
    }
}

/// The layout of some files.
pub(super) async fn of<F: FileSystem>(
    fs: &F,
    files: impl Iterator<Item = Ino>,
) -> FsResult<FileLayout> {
    let block = u64::from(fs.statfs().await?.block_size).max(1);
    let mut layout = FileLayout::default();
    for ino in files {
        layout.add(&fs.extents(ino).await?, block);
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that are apart lower the score; the first block of a file and files of one block do
    /// not. Would catch a score that small files improve.
    #[test]
    fn blocks_apart_lower_the_score() {
        let at = |offset: u64, len: u64, address: u64| Extent { offset, len, address };
        let mut layout = FileLayout::default();
        assert_eq!(layout.score(), None);
        layout.add(&[at(0, 8192, 0)], 8192);
        assert_eq!(layout.score(), None, "one block has no place to be compared with");
        layout.add(&[at(0, 32_768, 0)], 8192);
        assert_eq!(layout.score(), Some(1.0));
        layout.add(&[at(0, 8192, 0), at(8192, 16_384, 65_536)], 8192);
        assert_eq!(layout, FileLayout { blocks: 5, contiguous: 4 });
        layout.add(&[at(0, 8192, 8192), at(8192, 8192, 0)], 8192);
        assert_eq!(layout, FileLayout { blocks: 6, contiguous: 4 });
    }
}

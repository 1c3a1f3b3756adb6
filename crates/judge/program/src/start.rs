//! The contents of a device at the start, without their zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The unit in which zeros are skipped, in bytes.
const PIECE: usize = 16 << 10;
const SECTOR: u64 = 512;

/// A device's contents at the start, without its zeros.
pub(crate) struct Start {
    bytes: Arc<Vec<u8>>,
    /// The ranges that are not zero: first byte, end.
    pieces: Vec<(usize, usize)>,
}

impl Start {
    /// The parts of `bytes` that are not zero.
    pub(crate) fn new(bytes: Arc<Vec<u8>>) -> Start {
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for (n, piece) in bytes.chunks(PIECE).enumerate() {
            if piece.iter().all(|b| *b == 0) {
                continue;
            }
            let (from, to) = (n * PIECE, n * PIECE + piece.len());
            match pieces.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => pieces.push((from, to)),
            }
        }
        Start { bytes, pieces }
    }

    /// The contents, shared.
    pub(crate) fn shared(&self) -> Arc<Vec<u8>> {
        self.bytes.clone()
    }

    /// The contents.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The ranges that are not zero: first byte, end.
    pub(crate) fn pieces(&self) -> &[(usize, usize)] {
        &self.pieces
    }

    /// A copy, with the given sectors in place of its own. Zeros take no memory before somebody writes them.
    pub(crate) fn with<'a>(&self, sectors: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
        let mut out = vec![0; self.bytes.len()];
        for (from, to) in &self.pieces {
            out[*from..*to].copy_from_slice(&self.bytes[*from..*to]);
        }
        for (sector, data) in sectors {
            let at = (sector * SECTOR) as usize;
            out[at..at + data.len()].copy_from_slice(data);
        }
        out
    }

    /// Makes a file hold these contents, with the given sectors in place of their own; sectors are in ascending
    /// order.
    pub(crate) fn write<'a>(
        &self,
        file: &File,
        sectors: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(self.bytes.len() as u64)?;
        for (from, to) in &self.pieces {
            file.write_all_at(&self.bytes[*from..*to], *from as u64)?;
        }
        let (mut at, mut run) = (0, Vec::new());
        for (sector, data) in sectors {
            if at + run.len() as u64 != sector * SECTOR {
                file.write_all_at(&run, at)?;
                run.clear();
                at = sector * SECTOR;
            }
            run.extend_from_slice(data);
        }
        file.write_all_at(&run, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start is written without its zeros, over any earlier contents of the file, with the state's sectors on top.
    #[test]
    fn a_state_is_the_start_and_what_differs() {
        let mut start = vec![0; 100_000 / 512 * 512];
        start[40_000..50_000].fill(7);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[9; 99_000], 0).unwrap();
        let sectors: Vec<(u64, Vec<u8>)> =
            [(3, 1), (4, 2), (90, 3)].map(|(n, b)| (n, vec![b; 512])).to_vec();
        let start = Start::new(Arc::new(start));
        start.write(&file, sectors.iter().map(|(n, data)| (*n, &data[..]))).unwrap();
        let mut expected = start.bytes.to_vec();
        sectors.iter().for_each(|(n, data)| {
            expected[*n as usize * 512..][..512].copy_from_slice(data);
        });
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected);
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
    }
}

//! A file's contents, in pages. Pages of zeros are left out.

use std::collections::BTreeMap;
use std::rc::Rc;

const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Sparse contents. Clones share the pages, and a page is copied when one of them writes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pages: BTreeMap<u64, Rc<Page>>,
    size: u64,
}

impl Contents {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of all stored pages.
    pub(super) fn stored(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        for_each_page(offset, n, |page, within, range| {
            let out = &mut out[range];
            match self.pages.get(&page) {
                Some(p) => out.copy_from_slice(&p[within..within + out.len()]),
                None => out.fill(0),
            }
        });
        n
    }

    /// Writes `data` at `offset`. `offset + data.len()` fits in 64 bits.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for_each_page(offset, data.len(), |page, within, range| {
            let data = &data[range];
            let p = self.pages.entry(page).or_insert_with(|| Rc::new([0; PAGE as usize]));
            Rc::make_mut(p)[within..within + data.len()].copy_from_slice(data);
        });
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            let tail = (size % PAGE) as usize;
            if tail != 0
                && let Some(p) = self.pages.get_mut(&(size / PAGE))
            {
                Rc::make_mut(p)[tail..].fill(0);
            }
        }
        self.size = size;
    }
}

/// Calls `f(page, offset within the page, range of the caller's bytes)` for each page in a range.
fn for_each_page(offset: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let n = (PAGE as usize - within).min(len - done);
        f(at / PAGE, within, done..done + n);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_bytes_read_as_zero_when_the_file_grows_again() {
        let mut c = Contents::default();
        c.write(5000, &[7; 6000]);
        c.resize(6000);
        c.resize(20_000);
        let mut out = vec![1; 20_000];
        assert_eq!(c.read(0, &mut out), 20_000);
        assert!(out[..5000].iter().all(|b| *b == 0));
        assert!(out[5000..6000].iter().all(|b| *b == 7));
        assert!(out[6000..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_file_of_terabytes_takes_one_page() {
        let mut c = Contents::default();
        c.write(1 << 50, &[1]);
        assert_eq!(c.stored(), PAGE);
        assert_eq!(c.read((1 << 50) + 1, &mut [0; 8]), 0);
    }
}

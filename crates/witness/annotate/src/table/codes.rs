//! Columns of few different words, read as one number for each row: each word is looked up once a
//! page.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;

/// The number for an unknown word.
pub(crate) const NO_CODE: u8 = u8::MAX;

fn damaged() -> ParquetError {
    ParquetError::General("a page of words is damaged".into())
}

/// Appends the numbers of all words, at most `rows` of them; `code` gives the number of a word.
pub(super) fn read(
    pages: &mut dyn PageReader,
    rows: usize,
    code: impl Fn(&[u8]) -> u8,
    into: &mut Vec<u8>,
) -> Result<(), ParquetError> {
    // The words of the dictionary by number; a number beyond it stands for no word.
    let mut words = [NO_CODE; 256];
    while let Some(page) = pages.get_next_page()? {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                words = dictionary(&buf, num_values, &code)?;
            }
            Page::DataPage { buf, num_values, encoding: Encoding::RLE_DICTIONARY, .. } => {
                let values = num_values as usize;
                if values > rows.saturating_sub(into.len()) {
                    return Err(damaged());
                }
                numbers(&buf, values, &words, into).ok_or_else(damaged)?;
            }
            _ => return Err(ParquetError::General("words without a dictionary".into())),
        }
    }
    Ok(())
}

/// A dictionary page: each word follows its length in four bytes.
fn dictionary(
    bytes: &[u8],
    words: u32,
    code: impl Fn(&[u8]) -> u8,
) -> Result<[u8; 256], ParquetError> {
    let (mut codes, mut rest) = ([NO_CODE; 256], bytes);
    for slot in codes.get_mut(..words as usize).ok_or_else(damaged)? {
        let (len, more) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (word, more) = more.split_at_checked(len).ok_or_else(damaged)?;
        (*slot, rest) = (code(word), more);
    }
    Ok(codes)
}

/// A data page: a byte with the width of a number in bits, then runs. A run is a repeated number,
/// or groups of eight numbers.
fn numbers(bytes: &[u8], values: usize, words: &[u8; 256], into: &mut Vec<u8>) -> Option<()> {
    let (&width, mut rest) = bytes.split_first()?;
    if width > 8 {
        return None;
    }
    let end = into.len() + values;
    let mask = (1u64 << width) - 1;
    while into.len() < end {
        let (head, more) = varint(rest)?;
        rest = more;
        let left = end - into.len();
        if head & 1 == 0 {
            let run = usize::try_from(head >> 1).ok().filter(|run| *run > 0 && *run <= left)?;
            let (number, more) = rest.split_at_checked(usize::from(width.div_ceil(8)))?;
            rest = more;
            let word = words[usize::from(number.first().copied().unwrap_or(0))];
            into.resize(into.len() + run, word);
            continue;
        }
        let groups = usize::try_from(head >> 1).ok().filter(|groups| *groups > 0)?;
        let (packed, more) = rest.split_at_checked(groups.checked_mul(usize::from(width))?)?;
        rest = more;
        if width == 0 {
            into.resize(into.len() + left.min(groups.checked_mul(8)?), words[0]);
            continue;
        }
        for group in packed.chunks_exact(usize::from(width)) {
            let mut eight = [0; 8];
            eight[..group.len()].copy_from_slice(group);
            let eight = u64::from_le_bytes(eight);
            let word = |i: u32| words[(eight >> (i * u32::from(width)) & mask) as usize];
            let some = [0, 1, 2, 3, 4, 5, 6, 7].map(word);
            into.extend_from_slice(&some[..8.min(end - into.len())]);
        }
    }
    Some(())
}

/// Reads a varint: seven bits a byte, the lowest first. The top bit means that more bytes follow.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], values: usize) -> Option<Vec<u8>> {
        let mut words = [NO_CODE; 256];
        (0..4).for_each(|i| words[usize::from(i)] = 10 + i);
        let mut all = Vec::new();
        numbers(bytes, values, &words, &mut all).map(|()| all)
    }

    /// Runs and groups as Parquet's format has them, a number without a word, and damage: an empty
    /// run, one beyond the page's values, truncated groups, a header that does not end. Catches a
    /// run that is counted wrongly, and a page that makes the reader loop or take memory.
    #[test]
    fn runs_and_groups_are_read() {
        assert_eq!(read(&[2, 6, 1], 3), Some(vec![11; 3]));
        let groups = [2, 3, 0b11_10_01_00, 0b00_01_10_11];
        assert_eq!(read(&groups, 8), Some(vec![10, 11, 12, 13, 13, 12, 11, 10]));
        assert_eq!(read(&groups, 5), Some(vec![10, 11, 12, 13, 13]), "the last group is filled up");
        assert_eq!(read(&[2, 2, 3, 3, 0, 0], 9).unwrap(), [&[13][..], &[10; 8]].concat());
        assert_eq!(read(&[0, 8], 4), Some(vec![10; 4]));
        assert_eq!(read(&[8, 2, 200], 1), Some(vec![NO_CODE]));
        let damaged: [&[u8]; 6] = [
            &[],
            &[2, 0, 1],
            &[2, 8, 1],
            &[2, 5, 0],
            &[2, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[9, 2, 0],
        ];
        for bytes in damaged {
            assert_eq!(read(bytes, 3), None, "{bytes:?}");
        }
    }

    /// A dictionary that is truncated, or has too many words, is refused.
    #[test]
    fn a_damaged_dictionary_is_refused() {
        let code = |word: &[u8]| word.len() as u8;
        let two = [1, 0, 0, 0, b'a', 2, 0, 0, 0, b'b', b'c'];
        assert_eq!(dictionary(&two, 2, code).unwrap()[..3], [1, 2, NO_CODE]);
        assert!(dictionary(&two, 3, code).is_err());
        assert!(dictionary(&two[..10], 2, code).is_err());
        assert!(dictionary(&two, 257, code).is_err());
    }
}

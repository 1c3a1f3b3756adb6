//! Reads columns from a Parquet file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::{SUMS, Seal, codes};

/// The number of rows that are read at once.
const BATCH: usize = 1 << 16;
/// The most rows of a group, since a reader holds one group of a column in memory.
const GROUP_MAX: usize = 1 << 24;
/// The magic bytes at a file's beginning and end.
const MAGIC: [u8; 4] = *b"PAR1";

/// An open file.
#[derive(Debug)]
pub(crate) struct Table {
    file: File,
    bytes: u64,
    meta: ParquetMetaData,
    seal: Seal,
    /// The check sums by group and column; `None` if the file has none.
    sums: Option<Vec<u32>>,
}

/// The reason why a column was not read.
#[derive(Debug)]
pub(crate) enum Fault {
    Missing,
    Kind,
    /// A damaged page; the number is that of the rows before its group.
    Page(u64, ParquetError),
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Fault {
        Fault::Page(0, error)
    }
}

fn wrong(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

/// The footer, with the eight bytes at the end of the file.
pub(super) fn footer(file: &File) -> Result<Vec<u8>, ParquetError> {
    let bytes = file.metadata()?.len();
    let mut tail = [0; 8];
    let end = bytes.checked_sub(8).ok_or_else(|| wrong("it is too short"))?;
    file.read_exact_at(&mut tail, end)?;
    let [a, b, c, d, magic @ ..] = tail;
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    let start = end.checked_sub(len).filter(|start| *start >= MAGIC.len() as u64);
    let start = start.filter(|_| magic == MAGIC).ok_or_else(|| wrong("it has no end"))?;
    let mut footer = vec![0; (bytes - start) as usize];
    file.read_exact_at(&mut footer, start)?;
    Ok(footer)
}

/// A column chunk: a column of a row group as it is in the file.
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Chunk {
    fn from(&self, at: u64) -> Result<Bytes, ParquetError> {
        let from = at.checked_sub(self.start).filter(|from| *from <= self.bytes.len() as u64);
        let from = from.ok_or_else(|| wrong("a page outside of its column"))?;
        Ok(self.bytes.slice(from as usize..))
    }
}

impl ChunkReader for Chunk {
    type T = Reader<Bytes>;

    fn get_read(&self, at: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(at)?.reader())
    }

    fn get_bytes(&self, at: u64, len: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(at)?;
        if len > bytes.len() {
            return Err(wrong("a page outside of its column"));
        }
        Ok(bytes.slice(..len))
    }
}

impl Table {
    pub(crate) fn open(path: &Path) -> Result<Table, ParquetError> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        guarded(|| {
            let footer = footer(&file)?;
            let meta = ParquetMetaDataReader::decode_metadata(&footer[..footer.len() - 8])?;
            let rows = meta.row_groups().iter().map(|g| u64::try_from(g.num_rows()).ok());
            let rows =
                rows.sum::<Option<u64>>().ok_or_else(|| wrong("a negative number of rows"))?;
            let seal = Seal { rows, sum: crc32c::crc32c(&footer) };
            let mut table = Table { file, bytes, meta, seal, sums: None };
            table.sums = table.says(SUMS).map(sums).transpose()?;
            let columns = table.meta.file_metadata().schema_descr().num_columns();
            match &table.sums {
                Some(sums) if sums.len() != columns * table.groups() => {
                    Err(wrong("not as many check sums as columns"))
                }
                _ => Ok(table),
            }
        })
    }

    /// The file's seal.
    pub(crate) fn seal(&self) -> Seal {
        self.seal
    }

    /// The number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.meta.num_row_groups()
    }

    /// The number of rows before a row group.
    pub(crate) fn rows_before(&self, group: usize) -> u64 {
        self.meta.row_groups().iter().take(group).map(|g| g.num_rows() as u64).sum()
    }

    /// The header value of a key.
    pub(crate) fn says(&self, key: &str) -> Option<&str> {
        let all = self.meta.file_metadata().key_value_metadata()?;
        all.iter().find(|kv| kv.key == key)?.value.as_deref()
    }

    /// The numbers of a column; `None` for rows without.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<Option<u64>>, Fault> {
        let mut all = Vec::new();
        self.index(name)?;
        (0..self.groups()).try_for_each(|group| self.group_ints(name, group, &mut all))?;
        Ok(all.into_iter().map(|n| n.map(|n| n as u64)).collect())
    }

    /// Appends the numbers of one row group; `None` for rows without.
    pub(crate) fn group_ints(
        &self,
        name: &str,
        group: usize,
        all: &mut Vec<Option<i64>>,
    ) -> Result<(), Fault> {
        self.group_maybe::<Int64Type>(name, group, all)
    }

    /// Replaces the contents of `into` by the numbers of a row group in which every row has one.
    pub(crate) fn group_all_ints(
        &self,
        name: &str,
        group: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), Fault> {
        into.clear();
        self.group(name, group, |reader, max, rows| {
            let ColumnReader::Int64ColumnReader(mut reader) = reader else {
                return Err(Fault::Kind);
            };
            whole(max, rows, |n| {
                reader.read_records(n, None, None, into)?;
                Ok(into.len())
            })
        })
    }

    /// Replaces the contents of `into` by the booleans of a row group in which every row has one.
    pub(crate) fn group_all_bools(
        &self,
        name: &str,
        group: usize,
        into: &mut Vec<bool>,
    ) -> Result<(), Fault> {
        into.clear();
        self.group(name, group, |reader, max, rows| {
            let ColumnReader::BoolColumnReader(mut reader) = reader else {
                return Err(Fault::Kind);
            };
            whole(max, rows, |n| {
                reader.read_records(n, None, None, into)?;
                Ok(into.len())
            })
        })
    }

    /// The words of a row group in which every row has one, as the numbers that `code` gives them.
    pub(crate) fn group_codes(
        &self,
        name: &str,
        group: usize,
        code: impl Fn(&[u8]) -> u8,
        into: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        into.clear();
        self.guarded_group(group, || {
            let index = self.index(name)?;
            let column = self.meta.file_metadata().schema_descr().column(index);
            if column.max_def_level() != 0 {
                return Err(Fault::Kind);
            }
            let rows = self.rows(group)?;
            whole(0, rows, |n| {
                codes::read(&mut self.pages(index, group)?, n, &code, into)?;
                Ok(into.len())
            })
        })
    }

    /// Appends the booleans of one row group; `None` for rows without.
    pub(crate) fn group_bools(
        &self,
        name: &str,
        group: usize,
        all: &mut Vec<Option<bool>>,
    ) -> Result<(), Fault> {
        self.group_maybe::<BoolType>(name, group, all)
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<Option<ByteArray>>, Fault> {
        let mut all = Vec::new();
        self.index(name)?;
        (0..self.groups()).try_for_each(|group| self.group_bytes(name, group, &mut all))?;
        Ok(all)
    }

    /// Appends the texts, or bytes, of one row group; `None` for rows without.
    pub(crate) fn group_bytes(
        &self,
        name: &str,
        group: usize,
        all: &mut Vec<Option<ByteArray>>,
    ) -> Result<(), Fault> {
        self.group_maybe::<ByteArrayType>(name, group, all)
    }

    /// Appends the values of one row group; `None` for rows without.
    fn group_maybe<T: DataType>(
        &self,
        name: &str,
        group: usize,
        all: &mut Vec<Option<T::T>>,
    ) -> Result<(), Fault> {
        self.group(name, group, |reader, max, _| {
            let mut reader = T::get_column_reader(reader).ok_or(Fault::Kind)?;
            batches(max, all, |n, levels, values| {
                reader.read_records(n, Some(levels), None, values)
            })
        })
    }

    pub(crate) fn index(&self, name: &str) -> Result<usize, Fault> {
        let schema = self.meta.file_metadata().schema_descr();
        let index = schema.columns().iter().position(|c| c.path().string() == name);
        let index = index.ok_or(Fault::Missing)?;
        let column = schema.column(index);
        if column.max_rep_level() != 0 || column.max_def_level() > 1 {
            return Err(Fault::Kind);
        }
        Ok(index)
    }

    fn rows(&self, group: usize) -> Result<usize, ParquetError> {
        let rows = usize::try_from(self.meta.row_group(group).num_rows()).ok();
        rows.filter(|rows| *rows <= GROUP_MAX).ok_or_else(|| wrong("a group has too many rows"))
    }

    /// Calls `read` with the column, the definition level (1 where rows may lack a value), and the
    /// number of rows.
    fn group(
        &self,
        name: &str,
        group: usize,
        read: impl FnOnce(ColumnReader, i16, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.guarded_group(group, || {
            let index = self.index(name)?;
            let column = self.meta.file_metadata().schema_descr().column(index);
            let (max, rows) = (column.max_def_level(), self.rows(group)?);
            read(get_column_reader(column, Box::new(self.pages(index, group)?)), max, rows)
        })
    }

    fn guarded_group(
        &self,
        group: usize,
        read: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match guarded(|| Ok(read())).unwrap_or_else(|error| Err(error.into())) {
            Err(Fault::Page(_, error)) => Err(Fault::Page(self.rows_before(group), error)),
            other => other,
        }
    }

    /// The pages of a column of a row group, after its check sum was verified.
    fn pages(
        &self,
        index: usize,
        group: usize,
    ) -> Result<SerializedPageReader<Chunk>, ParquetError> {
        let column = self.meta.row_group(group).column(index);
        let first = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let place = (u64::try_from(first).ok(), u64::try_from(column.compressed_size()).ok());
        let (Some(start), Some(len)) = place else {
            return Err(wrong("a column without a position"));
        };
        if start.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(wrong("a column goes beyond the file's end"));
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        let columns = self.meta.row_group(group).num_columns();
        if let Some(sums) = &self.sums
            && sums.get(group * columns + index) != Some(&crc32c::crc32c(&bytes))
        {
            return Err(wrong("its check sum is not right"));
        }
        let chunk = Chunk { start, bytes: bytes.into() };
        SerializedPageReader::new(Arc::new(chunk), column, self.rows(group)?, None)
    }
}

/// The check sums from their hexadecimal digits.
fn sums(digits: &str) -> Result<Vec<u32>, ParquetError> {
    let sum = |eight: &[u8]| {
        let text = std::str::from_utf8(eight).ok().filter(|text| text.len() == 8)?;
        u32::from_str_radix(text, 16).ok()
    };
    let all: Option<Vec<u32>> = digits.as_bytes().chunks(8).map(sum).collect();
    all.ok_or_else(|| wrong("its check sums cannot be read"))
}

/// Reads until all rows are there. `read` gets the number of rows that are missing, and returns the
/// number read so far.
fn whole(
    max: i16,
    rows: usize,
    mut read: impl FnMut(usize) -> Result<usize, ParquetError>,
) -> Result<(), Fault> {
    if max != 0 {
        return Err(Fault::Kind);
    }
    let mut have = 0;
    while have < rows {
        let now = read(rows - have)?;
        if now <= have || now > rows {
            return Err(wrong("it has fewer values than rows").into());
        }
        have = now;
    }
    Ok(())
}

fn batches<T>(
    max: i16,
    all: &mut Vec<Option<T>>,
    mut read: impl FnMut(
        usize,
        &mut Vec<i16>,
        &mut Vec<T>,
    ) -> Result<(usize, usize, usize), ParquetError>,
) -> Result<(), Fault> {
    loop {
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let (rows, ..) = read(BATCH, &mut levels, &mut values)?;
        if rows == 0 {
            return Ok(());
        }
        let mut values = values.into_iter();
        match max {
            0 => all.extend(values.map(Some)),
            _ => all.extend(levels.iter().map(|l| if *l == 0 { None } else { values.next() })),
        }
    }
}

/// Catches a panic of the library: a damaged page can break its assertions, which is the file's
/// fault.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // The library's state after a panic is not used again.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    done.unwrap_or_else(|_| Err(ParquetError::General("a page is damaged".into())))
}

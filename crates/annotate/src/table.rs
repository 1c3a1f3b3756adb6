//! Columns in a Parquet file, and back.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Rows of a group at most: a reader has one group of a column in memory.
const GROUP: usize = 1 << 20;
/// Rows that are read at a time.
const BATCH: usize = 1 << 16;

/// The values of a column, those that are there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Int(Vec<i64>),
    Bool(Vec<bool>),
    /// Text, or bytes.
    Bytes {
        values: Vec<ByteArray>,
        text: bool,
    },
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) values: Values,
    /// Of each row whether it has a value; `None` where all have.
    pub(crate) present: Option<Vec<i16>>,
}

impl Column {
    pub(crate) fn int(name: &'static str, values: impl Iterator<Item = u64>) -> Column {
        let values = Values::Int(values.map(|n| n as i64).collect());
        Column { name, values, present: None }
    }

    pub(crate) fn maybe_int(name: &'static str, all: impl Iterator<Item = Option<u64>>) -> Column {
        let (mut values, mut present) = (Vec::new(), Vec::new());
        for value in all {
            present.push(i16::from(value.is_some()));
            values.extend(value.map(|n| n as i64));
        }
        Column { name, values: Values::Int(values), present: Some(present) }
    }

    pub(crate) fn bool(name: &'static str, values: impl Iterator<Item = bool>) -> Column {
        Column { name, values: Values::Bool(values.collect()), present: None }
    }

    pub(crate) fn maybe_bool(
        name: &'static str,
        all: impl Iterator<Item = Option<bool>>,
    ) -> Column {
        let (mut values, mut present) = (Vec::new(), Vec::new());
        for value in all {
            present.push(i16::from(value.is_some()));
            values.extend(value);
        }
        Column { name, values: Values::Bool(values), present: Some(present) }
    }

    pub(crate) fn text<'a>(
        name: &'static str,
        all: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Column {
        let (mut values, mut present) = (Vec::new(), Vec::new());
        for value in all {
            present.push(i16::from(value.is_some()));
            values.extend(value.map(|v| ByteArray::from(v.to_vec())));
        }
        Column { name, values: Values::Bytes { values, text: true }, present: Some(present) }
    }

    pub(crate) fn bytes<'a>(name: &'static str, all: impl Iterator<Item = &'a [u8]>) -> Column {
        let values = all.map(|v| ByteArray::from(v.to_vec())).collect();
        Column { name, values: Values::Bytes { values, text: false }, present: None }
    }

    fn rows(&self) -> usize {
        match (&self.present, &self.values) {
            (Some(present), _) => present.len(),
            (None, Values::Int(v)) => v.len(),
            (None, Values::Bool(v)) => v.len(),
            (None, Values::Bytes { values, .. }) => values.len(),
        }
    }

    fn declared(&self) -> String {
        let repeated = if self.present.is_some() { "optional" } else { "required" };
        let (physical, logical) = match self.values {
            Values::Int(_) => ("int64", ""),
            Values::Bool(_) => ("boolean", ""),
            Values::Bytes { text: true, .. } => ("binary", " (string)"),
            Values::Bytes { .. } => ("binary", ""),
        };
        format!("{repeated} {physical} {}{logical};", self.name)
    }
}

/// Writes columns of equal length.
pub(crate) fn write(
    path: &Path,
    name: &str,
    columns: &[Column],
    says: &[(&str, String)],
) -> Result<(), ParquetError> {
    let fields: String = columns.iter().map(Column::declared).collect();
    let schema = Arc::new(parse_message_type(&format!("message {name} {{ {fields} }}"))?);
    let says = says.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by("ordo".to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(says.collect()))
        .build();
    let file = File::create(path)?;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let rows = columns.first().map_or(0, Column::rows);
    assert!(columns.iter().all(|c| c.rows() == rows), "columns of one length");
    // Where each column's values go on.
    let mut taken = vec![0; columns.len()];
    for first in (0..rows).step_by(GROUP) {
        let last = (first + GROUP).min(rows);
        let mut group = writer.next_row_group()?;
        for (column, taken) in columns.iter().zip(&mut taken) {
            let mut out = group.next_column()?.expect("as many columns as declared");
            let levels = column.present.as_ref().map(|present| &present[first..last]);
            let some = levels.map_or(last - first, |l| l.iter().filter(|p| **p != 0).count());
            let range = *taken..*taken + some;
            *taken = range.end;
            match &column.values {
                Values::Int(v) => {
                    out.typed::<Int64Type>().write_batch(&v[range], levels, None)?;
                }
                Values::Bool(v) => {
                    out.typed::<BoolType>().write_batch(&v[range], levels, None)?;
                }
                Values::Bytes { values, .. } => {
                    out.typed::<ByteArrayType>().write_batch(&values[range], levels, None)?;
                }
            }
            out.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// A file that is open.
pub(crate) struct Table {
    reader: SerializedFileReader<File>,
}

/// Why a column was not read.
#[derive(Debug)]
pub(crate) enum Fault {
    Missing,
    Kind,
    /// A page that is damaged, in the group behind so many rows.
    Page(u64, ParquetError),
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Fault {
        Fault::Page(0, error)
    }
}

impl Table {
    pub(crate) fn open(path: &Path) -> Result<Table, ParquetError> {
        let file = File::open(path)?;
        let reader = guarded(|| SerializedFileReader::new(file))?;
        Ok(Table { reader })
    }

    /// What the file says under a key.
    pub(crate) fn says(&self, key: &str) -> Option<&str> {
        let all = self.reader.metadata().file_metadata().key_value_metadata()?;
        all.iter().find(|kv| kv.key == key)?.value.as_deref()
    }

    /// Numbers, none for rows without.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<Option<u64>>, Fault> {
        let mut all = Vec::new();
        self.each(name, |reader, max| {
            let ColumnReader::Int64ColumnReader(mut reader) = reader else {
                return Err(Fault::Kind);
            };
            batches(max, &mut all, |n, levels, values: &mut Vec<i64>| {
                reader.read_records(n, Some(levels), None, values)
            })
        })?;
        Ok(all.into_iter().map(|n| n.map(|n| n as u64)).collect())
    }

    pub(crate) fn bools(&self, name: &str) -> Result<Vec<Option<bool>>, Fault> {
        let mut all = Vec::new();
        self.each(name, |reader, max| {
            let ColumnReader::BoolColumnReader(mut reader) = reader else {
                return Err(Fault::Kind);
            };
            batches(max, &mut all, |n, levels, values: &mut Vec<bool>| {
                reader.read_records(n, Some(levels), None, values)
            })
        })?;
        Ok(all)
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<Option<ByteArray>>, Fault> {
        let mut all = Vec::new();
        self.each(name, |reader, max| {
            let ColumnReader::ByteArrayColumnReader(mut reader) = reader else {
                return Err(Fault::Kind);
            };
            batches(max, &mut all, |n, levels, values: &mut Vec<ByteArray>| {
                reader.read_records(n, Some(levels), None, values)
            })
        })?;
        Ok(all)
    }

    fn each(
        &self,
        name: &str,
        read: impl FnMut(ColumnReader, i16) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut before = 0;
        let done = guarded(|| Ok(self.each_group(name, &mut before, read)));
        match done.unwrap_or_else(|error| Err(error.into())) {
            Err(Fault::Page(_, error)) => Err(Fault::Page(before, error)),
            other => other,
        }
    }

    /// `before` is how many rows are before the group that is being read.
    fn each_group(
        &self,
        name: &str,
        before: &mut u64,
        mut read: impl FnMut(ColumnReader, i16) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let schema = self.reader.metadata().file_metadata().schema_descr_ptr();
        let index = schema.columns().iter().position(|c| c.path().string() == name);
        let index = index.ok_or(Fault::Missing)?;
        let column = schema.column(index);
        if column.max_rep_level() != 0 || column.max_def_level() > 1 {
            return Err(Fault::Kind);
        }
        for group in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(group)?;
            read(group.get_column_reader(index)?, column.max_def_level())?;
            *before += u64::try_from(group.metadata().num_rows()).unwrap_or(0);
        }
        Ok(())
    }
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

/// The library asserts what a damaged page can break: that is the file's fault, and no reason to die.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // What it leaves behind is not looked at again.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    done.unwrap_or_else(|_| Err(ParquetError::General("a page is damaged".into())))
}

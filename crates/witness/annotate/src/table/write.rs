//! Writes columns to a Parquet file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::read::footer;
use super::{Column, SUMS, Seal, Values};
use crate::private;

/// Rows of a group. A trace that takes long has several groups for each processor, and one column
/// of a group fits the processor's cache.
pub(crate) const GROUP: usize = 1 << 17;

/// The ends of groups of about `most` rows. `whole` tells whether a row belongs with the one before
/// it.
pub(crate) fn ends(rows: usize, most: usize, whole: impl Fn(usize) -> bool) -> Vec<usize> {
    let (mut ends, mut first) = (Vec::new(), 0);
    while first < rows {
        let mut end = (first + most).min(rows);
        while end < rows && whole(end) {
            end += 1;
        }
        ends.push(end);
        first = end;
    }
    ends
}

/// Writes a file with groups of rows that end at `ends`; `columns` gives the columns of a range of
/// rows.
pub(crate) fn write(
    path: &Path,
    says: &[(&str, String)],
    ends: &[usize],
    columns: impl Fn(Range<usize>) -> Vec<Column>,
) -> Result<Seal, ParquetError> {
    let declared = columns(0..0);
    let fields: String = declared.iter().map(Column::declared).collect();
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or("table");
    let schema = Arc::new(parse_message_type(&format!("message {name} {{ {fields} }}"))?);
    let properties = Arc::new(properties(&declared, says)?);
    let mut writer = SerializedFileWriter::new(private::file(path)?, schema, properties)?;
    let back = File::open(path)?;
    let (mut sums, mut first) = (String::new(), 0);
    for end in ends {
        let columns = columns(first..*end);
        assert!(columns.iter().all(|c| c.rows() == end - first), "columns of one length");
        let mut group = writer.next_row_group()?;
        columns.iter().try_for_each(|column| put(&mut group, column))?;
        let group = group.close()?;
        writer.flush()?;
        for column in group.columns() {
            let (start, len) = column.byte_range();
            let mut bytes = vec![0; len as usize];
            back.read_exact_at(&mut bytes, start)?;
            sums += &format!("{:08x}", crc32c::crc32c(&bytes));
        }
        first = *end;
    }
    writer.append_key_value_metadata(KeyValue::new(SUMS.to_owned(), sums));
    writer.close()?;
    let sum = crc32c::crc32c(&footer(&back)?);
    Ok(Seal { rows: first as u64, sum })
}

fn properties(
    columns: &[Column],
    says: &[(&str, String)],
) -> Result<WriterProperties, ParquetError> {
    let says = says.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by("ordo".to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(says.collect()));
    for column in columns.iter().filter(|column| column.rising) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

fn put(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: &Column,
) -> Result<(), ParquetError> {
    let mut out = group.next_column()?.expect("as many columns as declared");
    let levels = column.present.as_deref();
    match &column.values {
        Values::Int(v) => out.typed::<Int64Type>().write_batch(v, levels, None)?,
        Values::Bool(v) => out.typed::<BoolType>().write_batch(v, levels, None)?,
        Values::Bytes { values, .. } => {
            out.typed::<ByteArrayType>().write_batch(values, levels, None)?
        }
    };
    out.close()
}

//! One file of a stored trace, and every error that it can give.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ordo_trace::RequestOp;
use ordo_watcher::Class;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;

use crate::table::{Fault, Table};

/// The version of the schema. Readers refuse a newer one; columns are added without a new version.
pub const VERSION: u32 = 1;

/// The largest device size that is accepted, in bytes.
pub(crate) const DEVICE_MAX: u64 = 1 << 60;

pub(crate) const REQUESTS: &str = "requests.parquet";
pub(crate) const BLOCKS: &str = "blocks.parquet";
pub(crate) const CONTENTS: &str = "contents.parquet";
pub(crate) const START: &str = "start.parquet";

/// The reason why a trace was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused a file operation.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file is no Parquet file, or its beginning or end is damaged.
    #[error("{}: not a Parquet file that can be read: {error}; it is truncated, or is another kind of file", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The library's message.
        error: ParquetError,
    },
    /// A page of a column cannot be read.
    #[error(
        "{}: a page of column '{column}' is damaged, behind row {rows}: {error}; copy the trace again, or record it \
         again: the other columns can still be read by programs that read Parquet", path.display()
    )]
    Page {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The number of rows before the row group that contains the page.
        rows: u64,
        /// The library's message.
        error: ParquetError,
    },
    /// The file was not written.
    #[error("{}: not written: {error}", path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The library's message.
        error: ParquetError,
    },
    /// The file is Parquet, but not of a trace.
    #[error("{}: not a trace of Ordo: 'ordo.version' is missing", path.display())]
    NoTrace {
        /// The file.
        path: PathBuf,
    },
    /// The file has a version that is newer than this program.
    #[error("{}: a trace of version {found}; versions up to {VERSION} are known", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that it names.
        found: String,
    },
    /// A value in the file's header makes no sense.
    #[error("{}: '{key}' is '{found}'", path.display())]
    Says {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
    },
    /// A column is missing.
    #[error("{}: no column '{column}'", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A column has another type, lacks values that it must have, or has values that it must not
    /// have.
    #[error("{}: column '{column}' does not have the form in docs/formats/trace.md", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A row makes no sense.
    #[error("{}: row {row}: {why}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row's number, from 0.
        row: usize,
        /// The reason.
        why: &'static str,
    },
    /// The file is of another trace than its other files, or was changed since it was written.
    #[error(
        "{}: from another trace, or changed since it was written: {rows} rows, checksum {sum:08x}, but recounted.parquet \
         says {should_rows}, {should_sum:08x}; copy the trace again, or remove recounted.parquet: blocks are then \
         named again", path.display()
    )]
    Another {
        /// The file.
        path: PathBuf,
        /// The number of rows.
        rows: u64,
        /// The CRC-32C of its footer.
        sum: u32,
        /// The number of rows that it should have.
        should_rows: u64,
        /// The CRC-32C that its footer should have.
        should_sum: u32,
    },
}

/// An open file of a trace, with the path for errors.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) path: PathBuf,
    pub(crate) table: Table,
}

impl Reading {
    pub(crate) fn open(dir: &Path, file: &str) -> Result<Reading, StoreError> {
        let path = dir.join(file);
        fs::metadata(&path).map_err(|error| StoreError::Io { path: path.clone(), error })?;
        let table = Table::open(&path);
        let table = table.map_err(|error| StoreError::Parquet { path: path.clone(), error })?;
        Ok(Reading { path, table })
    }

    pub(crate) fn fault(&self, column: &'static str) -> impl Fn(Fault) -> StoreError {
        let path = self.path.clone();
        move |fault| match fault {
            Fault::Missing => StoreError::NoColumn { path: path.clone(), column },
            Fault::Kind => StoreError::Column { path: path.clone(), column },
            Fault::Page(rows, error) => {
                StoreError::Page { path: path.clone(), column, rows, error }
            }
        }
    }

    /// Checks that the file has these columns, also if it has no rows.
    pub(crate) fn has(&self, columns: &[&'static str]) -> Result<(), StoreError> {
        columns
            .iter()
            .try_for_each(|column| self.table.index(column).map(drop).map_err(self.fault(column)))
    }

    pub(crate) fn maybe_ints(&self, column: &'static str) -> Result<Vec<Option<u64>>, StoreError> {
        self.table.ints(column).map_err(self.fault(column))
    }

    pub(crate) fn ints(&self, column: &'static str) -> Result<Vec<u64>, StoreError> {
        let all: Option<Vec<u64>> = self.maybe_ints(column)?.into_iter().collect();
        all.ok_or_else(|| StoreError::Column { path: self.path.clone(), column })
    }

    pub(crate) fn texts(&self, column: &'static str) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let all = self.table.bytes(column).map_err(self.fault(column))?;
        Ok(all.into_iter().map(|v| v.map(|v| v.data().to_vec())).collect())
    }

    pub(crate) fn number(&self, key: &'static str) -> Result<u64, StoreError> {
        let found = self.table.says(key).unwrap_or_default();
        found.parse().map_err(|_| self.says(key, found))
    }

    pub(crate) fn says(&self, key: &'static str, found: &str) -> StoreError {
        StoreError::Says { path: self.path.clone(), key, found: found.to_owned() }
    }

    pub(crate) fn row(&self, row: usize, why: &'static str) -> StoreError {
        StoreError::Row { path: self.path.clone(), row, why }
    }

    /// Checks that the schema's version is known.
    pub(crate) fn version(&self) -> Result<(), StoreError> {
        let path = || self.path.clone();
        let Some(version) = self.table.says("ordo.version") else {
            return Err(StoreError::NoTrace { path: path() });
        };
        if version.parse::<u32>().ok().is_none_or(|v| v > VERSION) {
            return Err(StoreError::Version { path: path(), found: version.to_owned() });
        }
        Ok(())
    }

    /// Parses a header value of several lines.
    pub(crate) fn lines<K: Ord, V>(
        &self,
        key: &'static str,
        one: impl Fn(&str) -> Option<(K, V)>,
    ) -> Result<BTreeMap<K, V>, StoreError> {
        let found = self.table.says(key).unwrap_or_default();
        found.lines().map(one).collect::<Option<_>>().ok_or_else(|| self.says(key, found))
    }

    /// The kinds in a column.
    pub(crate) fn classes(&self, column: &'static str) -> Result<Vec<Class>, StoreError> {
        let class = |(row, key): (usize, Option<Vec<u8>>)| {
            let key = String::from_utf8(key.unwrap_or_default()).ok();
            let class = key.and_then(|key| Class::from_key(&key));
            class.ok_or_else(|| self.row(row, "an unknown kind"))
        };
        self.texts(column)?.into_iter().enumerate().map(class).collect()
    }

    /// The values of a column in a row group, as `read` appends them.
    pub(crate) fn group<T>(
        &self,
        column: &'static str,
        group: usize,
        read: impl FnOnce(&Table, &str, usize, &mut Vec<T>) -> Result<(), Fault>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        read(&self.table, column, group, &mut all).map_err(self.fault(column))?;
        Ok(all)
    }

    /// The texts, or bytes, of a row group; `None` for rows without.
    pub(crate) fn group_texts(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<Option<ByteArray>>, StoreError> {
        self.group(column, group, Table::group_bytes)
    }

    /// The booleans of a row group; `None` for rows without.
    pub(crate) fn group_bools(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<Option<bool>>, StoreError> {
        self.group(column, group, Table::group_bools)
    }

    /// The numbers of a row group, none of them negative; `None` for rows without.
    pub(crate) fn group_maybe_numbers(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let all = self.group_ints(column, group)?;
        let number = |n: Option<i64>| n.map(u64::try_from).transpose();
        let all: Result<_, _> = all.into_iter().map(number).collect();
        all.map_err(|_| StoreError::Column { path: self.path.clone(), column })
    }

    /// The numbers of a row group in which every row has one, none of them negative.
    pub(crate) fn group_numbers(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let all: Option<_> = self.group_maybe_numbers(column, group)?.into_iter().collect();
        all.ok_or_else(|| StoreError::Column { path: self.path.clone(), column })
    }

    /// The numbers of a row group; `None` for rows without.
    pub(crate) fn group_ints(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        self.group(column, group, Table::group_ints)
    }

    /// The numbers of a row group in which every row has one.
    pub(crate) fn group_all_ints(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<i64>, StoreError> {
        self.group(column, group, Table::group_all_ints)
    }
}

/// The operation with this word in the file of requests.
pub(crate) fn op_of(key: &[u8]) -> Option<RequestOp> {
    [
        RequestOp::Read,
        RequestOp::Write,
        RequestOp::Flush,
        RequestOp::Discard,
        RequestOp::WriteZeroes,
        RequestOp::Mark,
    ]
    .into_iter()
    .find(|op| op.words().as_bytes() == key)
}

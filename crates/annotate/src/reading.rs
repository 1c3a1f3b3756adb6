//! A file of a trace, and all that can be wrong with one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ordo_sba::Class;
use parquet::errors::ParquetError;

use crate::store::VERSION;
use crate::table::{Fault, Table};

/// Why a trace was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system's answer.
    #[error("{}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it was.
        error: io::Error,
    },
    /// No Parquet file, or one whose beginning or end is damaged.
    #[error("{}: not a Parquet file that can be read: {error}; it is cut off, or was never one", path.display())]
    Parquet {
        /// Which.
        path: PathBuf,
        /// What the library says.
        error: ParquetError,
    },
    /// A page of a column that cannot be read.
    #[error(
        "{}: a page of column '{column}' is damaged, behind row {rows}: {error}; copy the trace again, or record it \
         again: the other columns can still be read by programs that read Parquet", path.display()
    )]
    Page {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
        /// How many of its rows are before the group of rows that the page is in.
        rows: u64,
        /// What the library says.
        error: ParquetError,
    },
    /// It was not written.
    #[error("{}: not written: {error}", path.display())]
    NotWritten {
        /// Which.
        path: PathBuf,
        /// What the library says.
        error: ParquetError,
    },
    /// A Parquet file, but none of a trace.
    #[error("{}: no trace of Ordo's: it does not say 'ordo.version'", path.display())]
    NoTrace {
        /// Which.
        path: PathBuf,
    },
    /// A version that nobody knew when this was written.
    #[error("{}: a trace of version {found}; versions up to {VERSION} are known", path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// Something that it says about itself makes no sense.
    #[error("{}: '{key}' is '{found}'", path.display())]
    Says {
        /// Which.
        path: PathBuf,
        /// What.
        key: &'static str,
        /// What it says.
        found: String,
    },
    /// A column that is not there.
    #[error("{}: no column '{column}'", path.display())]
    NoColumn {
        /// Which.
        path: PathBuf,
        /// Its name.
        column: &'static str,
    },
    /// A column of another type, or values where there must be none, or the other way round.
    #[error("{}: column '{column}' is not as docs/formats/trace.md has it", path.display())]
    Column {
        /// Which.
        path: PathBuf,
        /// Its name.
        column: &'static str,
    },
    /// A row that makes no sense.
    #[error("{}: row {row}: {why}", path.display())]
    Row {
        /// Which.
        path: PathBuf,
        /// Its number, from 0.
        row: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A file of a trace, but not the one that was written with its other files, or no longer as it was written.
    #[error(
        "{}: not the file that the trace was written with, or changed since: {rows} rows, check sum {sum:08x}, where \
         recounted.parquet says {should_rows}, {should_sum:08x}; copy the trace again; without recounted.parquet it is \
         named anew from what is there", path.display()
    )]
    Another {
        /// Which.
        path: PathBuf,
        /// Its rows.
        rows: u64,
        /// The CRC-32C of its footer.
        sum: u32,
        /// The rows that it had.
        should_rows: u64,
        /// The check sum that it had.
        should_sum: u32,
    },
}

/// A file of a trace, and its name for what is wrong with it.
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

    pub(crate) fn maybe_ints(&self, column: &'static str) -> Result<Vec<Option<u64>>, StoreError> {
        self.table.ints(column).map_err(self.fault(column))
    }

    pub(crate) fn ints(&self, column: &'static str) -> Result<Vec<u64>, StoreError> {
        let all: Option<Vec<u64>> = self.maybe_ints(column)?.into_iter().collect();
        all.ok_or_else(|| StoreError::Column { path: self.path.clone(), column })
    }

    pub(crate) fn maybe_bools(
        &self,
        column: &'static str,
    ) -> Result<Vec<Option<bool>>, StoreError> {
        self.table.bools(column).map_err(self.fault(column))
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

    /// The version of the schema, where it is known.
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

    /// What is said line by line under a key.
    pub(crate) fn lines<K: Ord, V>(
        &self,
        key: &'static str,
        one: impl Fn(&str) -> Option<(K, V)>,
    ) -> Result<BTreeMap<K, V>, StoreError> {
        let found = self.table.says(key).unwrap_or_default();
        found.lines().map(one).collect::<Option<_>>().ok_or_else(|| self.says(key, found))
    }

    /// Kinds.
    pub(crate) fn classes(&self, column: &'static str) -> Result<Vec<Class>, StoreError> {
        let class = |(row, key): (usize, Option<Vec<u8>>)| {
            let key = String::from_utf8(key.unwrap_or_default()).ok();
            let class = key.and_then(|key| Class::from_key(&key));
            class.ok_or_else(|| self.row(row, "a kind that is not known"))
        };
        self.texts(column)?.into_iter().enumerate().map(class).collect()
    }

    /// Numbers of a group of rows, none for rows without.
    pub(crate) fn group_ints(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        let mut all = Vec::new();
        self.table.group_ints(column, group, &mut all).map_err(self.fault(column))?;
        Ok(all)
    }

    /// Numbers of a group of rows that all have one.
    pub(crate) fn group_all_ints(
        &self,
        column: &'static str,
        group: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let mut all = Vec::new();
        self.table.group_all_ints(column, group, &mut all).map_err(self.fault(column))?;
        Ok(all)
    }
}

//! Columns in a Parquet file, and back.
//!
//! A file's footer holds the check sum of each column of each row group. A [`Seal`] identifies the
//! whole file.

mod codes;
mod read;
mod write;

use parquet::data_type::ByteArray;

pub(crate) use codes::NO_CODE;
pub(crate) use read::{Fault, Table};
pub(crate) use write::{GROUP, ends, write};

/// The footer's key for the check sums (CRC-32C) of its columns, group by group, each as eight
/// hexadecimal digits.
const SUMS: &str = "ordo.sums";

/// The identity of a file: the check sum of its footer, which holds those of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The number of rows.
    pub(crate) rows: u64,
    /// The CRC-32C of its footer.
    pub(crate) sum: u32,
}

/// The values of a column; rows without a value are left out.
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
    /// For each row whether it has a value; `None` if all rows have one.
    pub(crate) present: Option<Vec<i16>>,
    /// Whether each number is little more than the one before, so that differences are stored.
    pub(crate) rising: bool,
}

impl Column {
    pub(crate) fn int(name: &'static str, values: impl Iterator<Item = u64>) -> Column {
        let values = Values::Int(values.map(|n| n as i64).collect());
        Column { name, values, present: None, rising: false }
    }

    /// A column of numbers that never fall and rise little.
    pub(crate) fn rising(name: &'static str, values: impl Iterator<Item = u64>) -> Column {
        Column { rising: true, ..Column::int(name, values) }
    }

    pub(crate) fn maybe_int(name: &'static str, all: impl Iterator<Item = Option<u64>>) -> Column {
        let (mut values, mut present) = (Vec::new(), Vec::new());
        for value in all {
            present.push(i16::from(value.is_some()));
            values.extend(value.map(|n| n as i64));
        }
        Column { name, values: Values::Int(values), present: Some(present), rising: false }
    }

    pub(crate) fn bool(name: &'static str, values: impl Iterator<Item = bool>) -> Column {
        Column { name, values: Values::Bool(values.collect()), present: None, rising: false }
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
        Column { name, values: Values::Bool(values), present: Some(present), rising: false }
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
        Column {
            name,
            values: Values::Bytes { values, text: true },
            present: Some(present),
            rising: false,
        }
    }

    /// A column of words in which every row has one of few.
    pub(crate) fn words(name: &'static str, all: impl Iterator<Item = &'static str>) -> Column {
        let values = all.map(|v| ByteArray::from(v.as_bytes().to_vec())).collect();
        Column { name, values: Values::Bytes { values, text: true }, present: None, rising: false }
    }

    pub(crate) fn bytes<'a>(name: &'static str, all: impl Iterator<Item = &'a [u8]>) -> Column {
        let values = all.map(|v| ByteArray::from(v.to_vec())).collect();
        Column { name, values: Values::Bytes { values, text: false }, present: None, rising: false }
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

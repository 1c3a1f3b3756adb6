//! The published figures.

use std::sync::LazyLock;

use toml::{Table, Value};

static FIGURES: LazyLock<Table> = LazyLock::new(|| {
    include_str!("paper-results.toml").parse().expect("it is part of the program")
});

/// All figures: the key, with dots between its parts, and the value. A list is one figure.
pub fn figures() -> Vec<(String, &'static Value)> {
    let mut out = Vec::new();
    let mut open: Vec<(String, &'static Table)> = vec![(String::new(), &FIGURES)];
    while let Some((path, table)) = open.pop() {
        for (key, value) in table {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match value {
                Value::Table(inner) => open.push((path, inner)),
                value => out.push((path, value)),
            }
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// The published value under a key.
///
/// # Panics
/// There is no such figure, or it is not a number. Items use only keys of numbers.
pub fn value(key: &str) -> f64 {
    let mut at = &*FIGURES;
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    for part in path.split('.').filter(|part| !part.is_empty()) {
        at =
            at.get(part).and_then(Value::as_table).unwrap_or_else(|| panic!("no figures in {key}"));
    }
    match at.get(last) {
        Some(Value::Float(value)) => *value,
        Some(Value::Integer(value)) => *value as f64,
        other => panic!("{key} is no number: {other:?}"),
    }
}

/// The published list of numbers under a key.
///
/// # Panics
/// There is no such list. Items use only keys of lists.
pub(super) fn values(key: &str) -> Vec<f64> {
    let found = figures().into_iter().find(|(path, _)| path == key);
    let list = found.and_then(|(_, value)| value.as_array());
    let list = list.unwrap_or_else(|| panic!("no list {key}"));
    let number = |v: &Value| v.as_float().or_else(|| Some(v.as_integer()? as f64));
    list.iter().map(|v| number(v).unwrap_or_else(|| panic!("{key}: {v:?} is no number"))).collect()
}

/// Whether a published list of systems contains one.
///
/// # Panics
/// There is no such list.
pub(super) fn names(key: &str, system: &str) -> bool {
    let found = figures().into_iter().find(|(path, _)| path == key);
    let list =
        found.and_then(|(_, value)| value.as_array()).unwrap_or_else(|| panic!("no list {key}"));
    list.iter().any(|name| name.as_str() == Some(system))
}

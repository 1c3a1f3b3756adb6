//! The papers' measurements, repeated here, with both figures side by side.
//!
//! `paper-results.toml` has the published figures. An [`Item`] is a table, a figure or a sentence
//! of a paper. It runs the paper's workload at its published size, on a model of its disk and its
//! processor in virtual time, and returns [`ReproductionRow`]s: the published figure, the measured
//! one, and whether the same system wins. Rows are of four kinds ([`RowKind`]), which are counted
//! apart: a measurement beside a printed number, an order in a sentence, a property of a system,
//! and a row whose published value is an input here and so agrees by itself. [`FITTED`] says which
//! parameters were fitted, and on which rows. Figures without an item have a reason in
//! [`UNMEASURED`]; a test checks that every figure has one or the other. The module `items` lists
//! the items; `published` reads the figures.
//!
//! ```
//! use ordo_compare::reproduce;
//! let item = reproduce::find(Some("journaling-vs-soft-updates"), Some("semantics")).remove(0);
//! let rows = item.run(&mut ()).unwrap();
//! assert!(rows.iter().any(|row| row.system == "ffs-sync" && row.same_winner == Some(true)));
//! ```

mod crashes;
mod dualfs;
mod items;
mod journaling;
mod micro;
pub mod published;
mod soft_updates;
mod tables;

use serde::Serialize;

use crate::{CompareError, Follow};
pub use items::{FITTED, ITEMS, UNMEASURED};
pub use published::{figures, value};

/// A published figure and the measured one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReproductionRow {
    /// The paper.
    pub paper: &'static str,
    /// The table, figure or section.
    pub item: &'static str,
    /// The system.
    pub system: &'static str,
    /// The quantity, with its unit.
    pub quantity: String,
    /// The published value.
    pub published: f64,
    /// The measured value.
    pub measured: f64,
    /// Whether the same one of two systems wins here and in the paper: this one, or the one with
    /// which the item compares it. `None` for a figure without a comparison.
    pub same_winner: Option<bool>,
    /// Whether the two systems differ in print. `None` for a figure without a comparison.
    pub differs_in_print: Option<bool>,
    /// The kind of the row.
    pub kind: RowKind,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// A quantity beside a number that the paper prints.
    Measurement,
    /// An order or a comparison that a sentence states in words. The published value is the bound
    /// that stands for the words.
    Order,
    /// A property that a system has or has not. 1 is yes.
    Property,
    /// A quantity whose published value is a parameter here.
    Input,
}

/// A published and a measured comparison of two systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Winner {
    same: bool,
    differs_in_print: bool,
}

impl From<bool> for Winner {
    /// A comparison that is no tie in print.
    fn from(same: bool) -> Winner {
        Winner { same, differs_in_print: true }
    }
}

impl ReproductionRow {
    /// The measured value over the published one; `None` if that has no meaning.
    pub fn ratio(&self) -> Option<f64> {
        (self.published != 0.0).then(|| self.measured / self.published)
    }
}

/// A table, a figure or a sentence of a paper.
pub struct Item {
    /// The paper, by its name on the command line.
    pub paper: &'static str,
    /// The item, by its name on the command line.
    pub name: &'static str,
    /// The place in the paper, and the setup here.
    pub title: &'static str,
    /// The tables and keys of the published figures that its rows cover.
    pub figures: &'static [&'static str],
    measure: Measure,
}

type Measure = fn(&Item, &mut dyn Follow) -> Result<Vec<ReproductionRow>, CompareError>;

impl Item {
    /// Measures the item.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn run(&self, follow: &mut dyn Follow) -> Result<Vec<ReproductionRow>, CompareError> {
        (self.measure)(self, follow)
    }

    fn row(
        &self,
        system: &'static str,
        quantity: impl Into<String>,
        (published, measured): (f64, f64),
        winner: Option<Winner>,
    ) -> ReproductionRow {
        let (paper, item) = (self.paper, self.name);
        let same_winner = winner.map(|w| w.same);
        let differs_in_print = winner.map(|w| w.differs_in_print);
        ReproductionRow {
            paper,
            item,
            system,
            quantity: quantity.into(),
            published,
            measured,
            same_winner,
            differs_in_print,
            kind: RowKind::Measurement,
        }
    }

    /// A row for an order that a sentence states: `holds` says whether it is the same here, where
    /// the ratio of the two systems is `measured`.
    fn order(
        &self,
        system: &'static str,
        quantity: impl Into<String>,
        (bound, measured): (f64, f64),
        holds: bool,
    ) -> ReproductionRow {
        let row = self.row(system, quantity, (bound, measured), Some(holds.into()));
        ReproductionRow { kind: RowKind::Order, ..row }
    }

    /// A row whose published value is a parameter here.
    fn input(
        &self,
        system: &'static str,
        quantity: impl Into<String>,
        both: (f64, f64),
    ) -> ReproductionRow {
        ReproductionRow { kind: RowKind::Input, ..self.row(system, quantity, both, None) }
    }
}

/// The items of a paper, or of all papers; only the item of this name if one is given.
pub fn find(paper: Option<&str>, item: Option<&str>) -> Vec<&'static Item> {
    let of_paper = |i: &&Item| paper.is_none_or(|paper| i.paper == paper);
    ITEMS.iter().filter(of_paper).filter(|i| item.is_none_or(|item| i.name == item)).collect()
}

/// Two values that differ by less than this share are a tie.
const TIE: f64 = 0.03;

/// The winner: 1 if a value is larger than a baseline, -1 if it is smaller, 0 for a tie.
fn winner(value: f64, baseline: f64) -> i8 {
    match value / baseline {
        ratio if (ratio - 1.0).abs() < TIE => 0,
        ratio if ratio > 1.0 => 1,
        _ => -1,
    }
}

/// Whether the same one of two wins, published and measured. A tie on one side agrees with neither
/// winner.
fn same_winner(published: (f64, f64), measured: (f64, f64)) -> Option<Winner> {
    let in_print = winner(published.0, published.1);
    let same = in_print == winner(measured.0, measured.1);
    Some(Winner { same, differs_in_print: in_print != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every published figure has a measured one or a reason why there is none. Would catch a
    /// figure with neither.
    #[test]
    fn each_published_figure_has_a_row_or_a_reason() {
        let measured = |key: &str| ITEMS.iter().flat_map(|i| i.figures).any(|f| covers(f, key));
        let excused = |key: &str| UNMEASURED.iter().any(|(f, _)| covers(f, key));
        for (key, _) in figures() {
            assert!(measured(&key) != excused(&key), "{key}: a row or a reason, and not both");
        }
        for named in ITEMS.iter().flat_map(|i| i.figures).chain(UNMEASURED.iter().map(|(f, _)| f)) {
            assert!(figures().iter().any(|(key, _)| covers(named, key)), "{named}: no such figure");
        }
    }

    fn covers(named: &str, key: &str) -> bool {
        key.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    #[test]
    fn equal_results_are_no_win() {
        let is = |same, differs_in_print| Some(Winner { same, differs_in_print });
        assert_eq!(same_winner((0.99, 1.0), (1.02, 1.0)), is(true, false));
        assert_eq!(same_winner((0.99, 1.0), (0.90, 1.0)), is(false, false));
        assert_eq!(same_winner((3.1, 1.1), (5.0, 1.0)), is(true, true));
        assert_eq!(same_winner((3.1, 1.1), (0.5, 1.0)), is(false, true));
    }
}

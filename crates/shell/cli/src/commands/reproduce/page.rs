//! `ordo reproduce --html`: one page for a browser, with each published figure above the measured
//! one.

use std::fmt::Write;

use ordo_compare::reproduce::{Item, ReproductionRow, RowKind};
use ordo_report::html::{Bar, BarPart, MAIN, PALE, bars, begin, escape, legend};

use super::digits;

/// The page: for each item and quantity two bars for each system, the published value and the
/// measured one, on one scale. The same rows give the same bytes.
pub(super) fn page(items: &[&Item], rows: &[ReproductionRow], summary: &str) -> String {
    let mut out = begin("Ordo: what the papers published, and what is measured here");
    let _ = writeln!(out, "<p class=\"faint\">{}</p>", escape(summary));
    out.push_str(
        "<p>Workloads have the published sizes; disks and processors are models, in virtual time, with seed 1. \
         Compare ratios, not seconds.</p>\n",
    );
    legend(
        &mut out,
        [(PALE, "published"), (MAIN, "measured")].map(|(a, w)| (a.into(), w.into())).into_iter(),
    );
    for item in items {
        let _ = writeln!(out, "<h2>{} {}</h2>", escape(item.paper), escape(item.name));
        let _ = writeln!(out, "<p class=\"faint\">{}</p>", escape(item.title));
        let of_item = |row: &&ReproductionRow| row.paper == item.paper && row.item == item.name;
        let of_item: Vec<_> = rows.iter().filter(of_item).collect();
        let mut quantities: Vec<&str> = Vec::new();
        for row in &of_item {
            if !quantities.contains(&row.quantity.as_str()) {
                quantities.push(&row.quantity);
            }
        }
        for quantity in quantities {
            let of_quantity: Vec<_> =
                of_item.iter().copied().filter(|row| row.quantity == quantity).collect();
            let _ = writeln!(out, "<h3>{}</h3>", escape(quantity));
            pairs(&mut out, &of_quantity);
        }
    }
    out.push_str("</html>\n");
    out
}

/// The bars of one quantity. A value below zero has no bar, and its number says it.
fn pairs(out: &mut String, rows: &[&ReproductionRow]) {
    let bar = |name, value: f64, attributes: &str, what: &str, verdict: &str| Bar {
        name,
        parts: vec![BarPart {
            width: value.max(0.0),
            attributes: attributes.into(),
            words: format!("{what}: {}", digits(value)),
        }],
        value: format!("{}{verdict}", digits(value)),
    };
    let both = |row: &&ReproductionRow| {
        let verdict = match (row.kind, row.same_winner) {
            (RowKind::Input, _) => ", an input",
            (_, Some(true)) => ", same winner",
            (_, Some(false)) => ", ANOTHER winner",
            (_, None) => "",
        };
        let (system, nothing) = (row.system, "");
        [
            bar(system, row.published, PALE, "published", nothing),
            bar(nothing, row.measured, MAIN, "measured", verdict),
        ]
    };
    let all: Vec<Bar<'_>> = rows.iter().flat_map(both).collect();
    bars(out, &all);
}

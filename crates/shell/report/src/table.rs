//! Tables of plain text.

use std::fmt;

use comfy_table::{Cell, CellAlignment, ContentLineStyle, LineStyle, TableStyle};

/// The style: two blanks between columns, and one rule under the headings.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table of headings, a rule, and rows. Lines are not wrapped and nothing is coloured.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[(&str, Align)]) -> Table {
        let headings = headings.iter().map(|(h, a)| ((*h).to_string(), *a)).collect();
        Table { headings, rows: Vec::new() }
    }

    /// Adds a column.
    pub fn column(&mut self, heading: &str, align: Align) {
        self.headings.push((heading.to_string(), align));
    }

    /// Adds a row, one cell a column.
    ///
    /// # Panics
    /// The number of cells differs from the number of columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.headings.len(), "a cell for every column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE);
        let cell = |text: &str, align: Align| {
            Cell::new(text).set_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            })
        };
        table.set_header(self.headings.iter().map(|(h, a)| cell(h, *a)));
        for row in &self.rows {
            table.add_row(row.iter().zip(&self.headings).map(|(c, (_, a))| cell(c, *a)));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_each_other_and_no_line_ends_in_blanks() {
        let mut t = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        t.column("note", Align::Left);
        t.row(["a".into(), "1".into(), String::new()]);
        t.row(["longer".into(), "1,000".into(), "x".into()]);
        let text = t.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines.iter().all(|l| !l.ends_with(' ')), "{text}");
        let ends: Vec<_> = [2, 3].map(|i| lines[i].rfind(['1', '0']).unwrap()).into();
        assert_eq!(ends[0], ends[1], "{text}");
    }
}

//! Output for people and programs: tables, numbers, progress, JSON.
//!
//! Layers: [`number`] formats numbers; [`table`] sets them in columns; [`progress`] shows the
//! progress of a long command; [`html`] has the parts of a page for a browser, and [`page`] draws
//! timelines there; [`json`] is for programs.
//!
//! Invariants:
//! - The same values give the same text, byte for byte, for any destination.
//! - Colour and progress bars appear only on a terminal, and never in redirected output.
//!
//! ```
//! use ordo_report::{number, table::{Align, Table}};
//! let mut table = Table::new(&[("system", Align::Left), ("writes", Align::Right)]);
//! table.row(["ffs-sync".into(), number::count(12_345)]);
//! let text = table.to_string();
//! assert!(text.lines().any(|l| l == "ffs-sync  12,345"), "{text}");
//! ```

pub mod html;
pub mod number;
pub mod page;
pub mod progress;
pub mod table;

/// A value as indented JSON with a newline at its end. Control characters of every kind are
/// escaped, so that a name in it does nothing to a terminal.
///
/// The value has no form in JSON, as `serde_json` reports it.
pub fn json(value: &impl serde::Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        // Outside of strings there are line ends only, and serde_json escapes those inside.
        match c {
            '\n' => out.push(c),
            c if c.is_control() || ordo_shown::is_direction(c) => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('\n');
    Ok(out)
}

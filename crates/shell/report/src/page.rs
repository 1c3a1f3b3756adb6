//! A page for a browser without a network: timelines one above the other, on one scale.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::html::{begin, escape};

/// The events of one run.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    /// The run's name.
    pub title: &'a str,
    /// The length in seconds.
    pub seconds: f64,
    /// For each request its lane, its beginning and its end in seconds.
    pub spans: Vec<(&'static str, f64, f64)>,
}

/// The width of a timeline in pixels, and so the number of pieces of time that it distinguishes.
const WIDTH: usize = 1100;
/// The height of a lane, and its distance to the next.
const LANE: usize = 14;
/// The width of the lanes' names.
const NAMES: usize = 130;

/// A page with a title, a text, and a drawing of each run. For each piece of time, a lane shows the
/// share in which at least one of its requests was under way.
pub fn timelines(title: &str, text: &str, runs: &[Timeline<'_>]) -> String {
    let longest = runs.iter().map(|run| run.seconds).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut lanes: Vec<&str> = runs.iter().flat_map(|run| run.spans.iter().map(|s| s.0)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut page = begin(title);
    let _ = writeln!(page, "<pre>{}</pre>", escape(text));
    for run in runs {
        let _ = writeln!(page, "<h2>{}, {:.3} s</h2>", escape(run.title), run.seconds);
        drawing(&mut page, run, &lanes, longest);
    }
    page.push_str("</html>\n");
    page
}

fn drawing(page: &mut String, run: &Timeline<'_>, lanes: &[&str], longest: f64) {
    let (width, height) = (NAMES + WIDTH + 10, (lanes.len() + 2) * LANE);
    let _ = writeln!(page, "<svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
    for (n, lane) in lanes.iter().enumerate() {
        let y = n * LANE;
        let _ = writeln!(page, "<text x=\"0\" y=\"{}\">{}</text>", y + 10, escape(lane));
        let spans = run.spans.iter().filter(|span| span.0 == *lane);
        for (piece, part) in covered(spans.map(|span| (span.1, span.2)), longest) {
            let _ = writeln!(
                page,
                "<rect x=\"{}\" y=\"{y}\" width=\"1\" height=\"{}\" opacity=\"{part:.2}\"/>",
                NAMES + piece,
                LANE - 3
            );
        }
    }
    let y = lanes.len() * LANE + 2;
    let end = NAMES + ((run.seconds / longest) * WIDTH as f64) as usize;
    let _ = writeln!(page, "<line x1=\"{NAMES}\" x2=\"{end}\" y1=\"{y}\" y2=\"{y}\"/>");
    for tenth in 0..=10 {
        let (x, seconds) = (NAMES + WIDTH * tenth / 10, longest * tenth as f64 / 10.0);
        let _ = writeln!(page, "<text x=\"{x}\" y=\"{}\">{seconds:.3}</text>", y + 14);
    }
    page.push_str("</svg>\n");
}

/// The pieces of the time axis, each with the part that the spans cover. Overlaps count once for
/// each span, but a part is never more than 1.
fn covered(spans: impl Iterator<Item = (f64, f64)>, longest: f64) -> BTreeMap<usize, f64> {
    let mut pieces = BTreeMap::new();
    let scale = WIDTH as f64 / longest;
    for (begin, end) in spans {
        let (begin, end) = (begin.max(0.0) * scale, end.max(begin) * scale);
        let last = (end as usize).min(WIDTH - 1);
        for piece in (begin as usize).min(last)..=last {
            let part = (end.min(piece as f64 + 1.0) - begin.max(piece as f64)).max(0.0);
            let whole: &mut f64 = pieces.entry(piece).or_insert(0.0);
            *whole = (*whole + part.max(0.05)).min(1.0);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of any number of requests stays small, shows each lane of each run, and lets no
    /// text become markup.
    #[test]
    fn a_page_is_bounded_and_its_text_is_text() {
        let spans = (0..50_000).map(|n| ("data", f64::from(n) * 1e-4, f64::from(n) * 1e-4 + 5e-5));
        let run = Timeline { title: "<b>", seconds: 5.0, spans: spans.collect() };
        let other = Timeline { title: "b", seconds: 1.0, spans: vec![("flush", 0.0, 1.0)] };
        let page = timelines("t & u", "x < y", &[run, other]);
        assert!(page.len() < 400_000, "{}", page.len());
        assert!(!page.contains("<b>") && page.contains("&lt;b&gt;") && page.contains("x &lt; y"));
        assert_eq!(page.matches(">flush</text>").count(), 2, "one scale, the same lanes");
        let half = covered([(0.0, 0.5)].into_iter(), 1.0);
        assert_eq!(half.values().filter(|part| **part > 0.99).count(), WIDTH / 2);
    }
}

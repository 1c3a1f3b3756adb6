//! The parts of a page for a browser: one file without scripts, which needs no network.

use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// A part of a bar.
#[derive(Clone, Debug)]
pub struct BarPart {
    /// Its width, in the unit of the picture.
    pub width: f64,
    /// Its class or style, as attributes of the element; a style that is there may be empty.
    pub attributes: String,
    /// The text that appears when the pointer is on it.
    pub words: String,
}

/// A bar: its name, its parts from left to right, and its value in words.
#[derive(Clone, Debug)]
pub struct Bar<'a> {
    /// The name.
    pub name: &'a str,
    /// The parts.
    pub parts: Vec<BarPart>,
    /// The value.
    pub value: String,
}

/// The attributes of a bar's main part.
pub const MAIN: &str = "class=\"app\" style=\"\"";
/// The attributes of a part, or of a bar, that is paler than the main one.
pub const PALE: &str = "class=\"later\" style=\"\"";

/// A text as HTML and XML show it, in an element or in an attribute.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a page, up to its heading. It ends with `</html>`.
pub fn begin(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>\n"
    )
}

/// Bars on one scale, the longest as wide as the page.
pub fn bars(out: &mut String, bars: &[Bar<'_>]) {
    let width = |bar: &Bar<'_>| bar.parts.iter().map(|p| p.width).sum::<f64>();
    let most = bars.iter().map(width).fold(f64::MIN_POSITIVE, f64::max);
    out.push_str("<div class=\"bars\">\n");
    for bar in bars {
        let _ = write!(out, "<div>{}</div><div class=\"track\">", escape(bar.name));
        for part in &bar.parts {
            let BarPart { width, attributes, words } = part;
            let style = format!("style=\"width:{:.2}%;", 100.0 * width / most);
            let attributes = attributes.replacen("style=\"", &style, 1);
            let _ = write!(out, "<span {attributes} title=\"{}\"></span>", escape(words));
        }
        let _ = writeln!(out, "</div><div class=\"value\">{}</div>", escape(&bar.value));
    }
    out.push_str("</div>\n");
}

/// The meanings of colours: the attributes of a part, and its meaning.
pub fn legend(out: &mut String, entries: impl Iterator<Item = (String, String)>) {
    out.push_str("<ul class=\"legend\">");
    for (attributes, words) in entries {
        let _ = write!(out, "<li><i {attributes}></i>{}</li>", escape(&words));
    }
    out.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest bar is as wide as the page, and no text becomes markup. Would catch widths that
    /// are not on one scale.
    #[test]
    fn bars_share_a_scale() {
        let bar = |name, width| Bar {
            name,
            parts: vec![BarPart { width, attributes: MAIN.into(), words: "\"a\" & b".into() }],
            value: format!("{width}"),
        };
        let mut out = begin("<x>");
        bars(&mut out, &[bar("<one>", 2.0), bar("two", 0.5)]);
        assert!(out.contains("<h1>&lt;x&gt;</h1>") && out.contains("&lt;one&gt;"), "{out}");
        assert!(out.contains("width:100.00%") && out.contains("width:25.00%"), "{out}");
        assert!(out.contains("title=\"&quot;a&quot; &amp; b\""), "{out}");
    }
}

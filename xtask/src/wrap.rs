//! The width of comments: a check, and `cargo xtask tidy --wrap`, which wraps what is wider.
//!
//! A comment is a run of lines with one indentation and one marker (`//`, `///`, `//!`). In it, a
//! paragraph ends at an empty line, a list item, a table, a heading or a fence. Only paragraphs
//! with a line that is too wide are wrapped anew. Code in fences, tables, headings and link targets
//! stay as they are.

/// The most columns of a comment's line.
const COLUMNS: usize = 100;

/// A comment's line: its indentation with the marker, and the text behind it.
fn comment(line: &str) -> Option<(&str, &str)> {
    let start = line.len() - line.trim_start().len();
    let rest = &line[start..];
    let marker = ["///", "//!", "//"].into_iter().find(|marker| rest.starts_with(marker))?;
    // Four slashes are no documentation.
    let text = &rest[marker.len()..];
    (!text.starts_with('/')).then(|| (&line[..start + marker.len()], text))
}

/// The lines of a text that are comments of too many columns, outside of tables and fences: their
/// numbers, from 1.
pub fn wide(text: &str) -> Vec<usize> {
    let wrapped = wrap(text);
    if wrapped == text {
        return Vec::new();
    }
    let all = (1..).zip(text.lines());
    let is_wide = |line: &str| comment(line).is_some() && line.chars().count() > COLUMNS;
    all.filter(|(_, line)| is_wide(line)).map(|(number, _)| number).collect()
}

/// The text with its comments wrapped.
pub fn wrap(text: &str) -> String {
    let mut out = Vec::new();
    let mut block: Vec<(&str, &str)> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        let Some((prefix, content)) = comment(line) else {
            flush(&mut block, &mut out);
            fenced = false;
            out.push(line.to_owned());
            continue;
        };
        let bare = content.trim_start();
        let fence = bare.starts_with("```");
        if fenced || fence || stays(content) {
            flush(&mut block, &mut out);
            out.push(line.to_owned());
            fenced ^= fence;
            continue;
        }
        if block.first().is_some_and(|(first, _)| *first != prefix) || item(bare).is_some() {
            flush(&mut block, &mut out);
        }
        block.push((prefix, content));
    }
    flush(&mut block, &mut out);
    out.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

/// Whether a line is none of a paragraph: empty, of a table, a heading, a link's target, or code by
/// its indentation.
fn stays(content: &str) -> bool {
    let bare = content.trim();
    bare.is_empty()
        || bare.starts_with(['|', '#', '<'])
        || bare.starts_with('[') && bare.contains("]: ")
        || content.starts_with("     ")
}

/// The width of the mark of a list item.
fn item(bare: &str) -> Option<usize> {
    if bare.starts_with("- ") || bare.starts_with("* ") {
        return Some(2);
    }
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0 && digits < 3 && bare[digits..].starts_with(". ")).then_some(digits + 2)
}

/// Writes a paragraph, wrapped if a line of it is too wide.
fn flush(block: &mut Vec<(&str, &str)>, out: &mut Vec<String>) {
    let lines = std::mem::take(block);
    let Some((prefix, first)) = lines.first().copied() else { return };
    let whole = |(prefix, content): &(&str, &str)| format!("{prefix}{content}");
    if lines.iter().all(|line| whole(line).chars().count() <= COLUMNS) {
        out.extend(lines.iter().map(whole));
        return;
    }
    let indent = first.len() - first.trim_start().len();
    let hang = indent + item(first.trim_start()).unwrap_or(0);
    let mut line = format!("{prefix}{}", " ".repeat(indent));
    let mut is_empty = true;
    for word in words(&lines) {
        let more = usize::from(!is_empty) + word.chars().count();
        if !is_empty && line.chars().count() + more > COLUMNS {
            out.push(std::mem::replace(&mut line, format!("{prefix}{}", " ".repeat(hang))));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    out.push(line);
}

/// The words of a paragraph. A word that would begin a list, a table or a heading at the beginning
/// of a line stays with the word before it.
fn words(lines: &[(&str, &str)]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in lines.iter().flat_map(|(_, content)| content.split_whitespace()) {
        let number = word.trim_end_matches(['.', ')']);
        let is_number =
            number.len() + 1 == word.len() && number.bytes().all(|b| b.is_ascii_digit());
        let begins =
            is_number || matches!(word, "-" | "*" | "+") || word.starts_with(['|', '#', '>']);
        match all.last_mut() {
            Some(last) if begins => {
                last.push(' ');
                last.push_str(word);
            }
            _ => all.push(word.to_owned()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long paragraph is wrapped, an item hangs, and code, tables and short paragraphs stay.
    #[test]
    fn comments_are_wrapped_and_nothing_else() {
        let long = "word ".repeat(30);
        let text = format!(
            "//! {long}\n//! - {long}\n//! ```\n//! {long}\n//! ```\n//! | {long} |\n//! short\n//! lines\n{long}\n"
        );
        let wrapped = wrap(&text);
        assert!(wrapped.contains("\n//!   word"), "{wrapped}");
        assert!(wrapped.contains(&format!("//! ```\n//! {long}\n//! ```\n//! | {long} |\n")));
        assert!(wrapped.ends_with(&format!("//! short\n//! lines\n{long}\n")), "{wrapped}");
        assert_eq!(wrap(&wrapped), wrapped);
        assert_eq!((wide(&text), wide(&wrapped)), (vec![1, 2, 4, 6], Vec::new()));
        let words = |text: &str| {
            let text = text.replace("//!", " ");
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words(&wrapped), words(&text));
        let number = format!("/// {} of 1) and\n", "x".repeat(93));
        assert!(wrap(&number).contains("\n/// of 1)"), "no list begins: {}", wrap(&number));
    }
}

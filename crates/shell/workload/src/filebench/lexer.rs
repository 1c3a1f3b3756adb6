//! The words of WML.

use std::fmt;

use super::error::{Fault, WmlPlace, WmlProblem};

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A keyword, a name or a path.
    Word(String),
    /// A number, with `k`, `m` or `g` applied.
    Number(u64),
    /// A variable, without its `$`.
    Variable(String),
    /// A text in quotation marks.
    Text(String),
    /// One of `= , { } ( )`.
    Mark(char),
    /// The end of the file.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(f, "'{}'", word.escape_debug()),
            Token::Number(number) => write!(f, "{number}"),
            Token::Variable(name) => write!(f, "${name}"),
            Token::Text(_) => write!(f, "a text"),
            Token::Mark(mark) => write!(f, "'{mark}'"),
            Token::End => write!(f, "the end of the file"),
        }
    }
}

/// A word with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) place: WmlPlace,
}

/// The characters that are still to be read.
struct Reader<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    place: WmlPlace,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        match c {
            '\n' => self.place = WmlPlace { line: self.place.line + 1, column: 1 },
            _ => self.place.column += 1,
        }
        Some(c)
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while self.peek().is_some_and(&fits) {
            taken.extend(self.next());
        }
        taken
    }
}

/// Splits a file into words. The last one is [`Token::End`].
///
/// # Errors
/// A character without meaning, a text without end, a number that is too large.
pub(super) fn words(text: &str) -> Result<Vec<Lexeme>, Fault> {
    let mut reader =
        Reader { rest: text.chars().peekable(), place: WmlPlace { line: 1, column: 1 } };
    let mut all = Vec::new();
    loop {
        let place = reader.place;
        let token = match reader.peek() {
            None => Token::End,
            Some(c) if c.is_whitespace() => {
                reader.next();
                continue;
            }
            Some('#') => {
                reader.take_while(|c| c != '\n');
                continue;
            }
            Some(mark @ ('=' | ',' | '{' | '}' | '(' | ')')) => {
                reader.next();
                Token::Mark(mark)
            }
            Some('"') => quoted(&mut reader).map_err(|problem| problem.at(place))?,
            Some('$') => variable(&mut reader).map_err(|problem| problem.at(place))?,
            Some(c) if c.is_ascii_digit() => number(&mut reader).map_err(|p| p.at(place))?,
            Some(c) if c.is_ascii_alphabetic() || matches!(c, '/' | '-' | '_' | '.') => {
                Token::Word(reader.take_while(is_word))
            }
            Some(other) => return Err(WmlProblem::Character(other).at(place)),
        };
        let ends = token == Token::End;
        all.push(Lexeme { token, place });
        if ends {
            return Ok(all);
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | ':' | ';' | '-')
}

/// A text up to its second quotation mark. `\"` and `\$` stand for the character.
fn quoted(reader: &mut Reader<'_>) -> Result<Token, WmlProblem> {
    reader.next();
    let mut text = String::new();
    loop {
        match reader.next() {
            None => return Err(WmlProblem::OpenText),
            Some('"') => return Ok(Token::Text(text)),
            Some('\\') => text.extend(reader.next().map(|c| if c == 'n' { '\n' } else { c })),
            Some(c) => text.push(c),
        }
    }
}

/// `$name`, `${name}` or `$(name)`.
fn variable(reader: &mut Reader<'_>) -> Result<Token, WmlProblem> {
    reader.next();
    let close = match reader.peek() {
        Some('{') => Some('}'),
        Some('(') => Some(')'),
        _ => None,
    };
    if close.is_some() {
        reader.next();
    }
    let name = reader.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.is_empty() {
        return Err(WmlProblem::Character('$'));
    }
    if let Some(close) = close
        && reader.next() != Some(close)
    {
        let found = format!("${name}");
        let expected = if close == '}' { "a variable with '}'" } else { "a variable with ')'" };
        return Err(WmlProblem::Expected { expected, found });
    }
    Ok(Token::Variable(name))
}

/// A number. A unit may follow it at once.
fn number(reader: &mut Reader<'_>) -> Result<Token, WmlProblem> {
    let digits = reader.take_while(|c| c.is_ascii_digit());
    let shift = match reader.peek() {
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        _ => 0,
    };
    if shift > 0 {
        reader.next();
    }
    let value = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    let value = value.filter(|n| *n <= i64::MAX as u64);
    value.map(Token::Number).ok_or(WmlProblem::Number(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        words(text).unwrap().into_iter().map(|lexeme| lexeme.token).collect()
    }

    #[test]
    fn words_numbers_variables_texts_and_marks_are_told_apart() {
        let word = |w: &str| Token::Word(w.into());
        assert_eq!(
            tokens("set $a=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5) # x"),
            [
                word("set"),
                Token::Variable("a".into()),
                Token::Mark('='),
                word("cvar"),
                Token::Mark('('),
                word("type"),
                Token::Mark('='),
                word("cvar-gamma"),
                Token::Mark(','),
                word("parameters"),
                Token::Mark('='),
                word("mean:16384;gamma:1.5"),
                Token::Mark(')'),
                Token::End,
            ]
        );
        assert_eq!(tokens("16k ${b}")[..2], [Token::Number(16384), Token::Variable("b".into())]);
        assert_eq!(tokens(r#""a \$b\"""#)[0], Token::Text("a $b\"".into()));
    }

    #[test]
    fn faults_have_a_line_and_a_column() {
        let fault = |text: &str| {
            let fault = words(text).unwrap_err();
            (fault.place.to_string(), fault.problem.to_string())
        };
        assert_eq!(fault("run 1\n  *").0, "2:3");
        assert!(fault("echo \"a").1.contains("no closing quotation mark"));
        assert!(fault("99999999999999999999").1.contains("too large"));
        assert!(fault("9223372036854775807k").1.contains("too large"));
        assert!(fault("${a").1.contains("a variable with '}'"));
        assert_eq!(fault("é").1, "the character 'é' means nothing here");
    }
}

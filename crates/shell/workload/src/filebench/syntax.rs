//! The commands of WML, as they stand in a file. Their variables are resolved later (`resolve`),
//! because a command may use a variable that gets its last value only after it.

use std::collections::BTreeMap;

use super::error::{Fault, WmlPlace, WmlProblem};
use super::lexer::{self, Lexeme, Token};

/// The value of an attribute or a variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(u64),
    Bool(bool),
    Text(String),
    Variable(String),
    /// A random variable: `cvar(...)` or `randvar(...)`.
    Random(Random),
}

/// A random variable with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Random {
    /// `cvar` or `randvar`.
    pub(super) kind: &'static str,
    pub(super) attributes: Attributes,
    /// The rows of a `randtable`: a percentage, and the least and the most value.
    pub(super) table: Vec<[Value; 3]>,
}

/// An attribute: a name, a value, and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) place: WmlPlace,
}

/// The attributes of one entity, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attributes {
    pub(super) entity: String,
    pub(super) place: WmlPlace,
    pub(super) list: Vec<Attribute>,
}

/// `define file` or `define fileset`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilesetText {
    pub(super) is_file: bool,
    pub(super) attributes: Attributes,
}

/// `define process`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessText {
    pub(super) attributes: Attributes,
    pub(super) threads: Vec<ThreadText>,
}

/// `thread`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadText {
    pub(super) attributes: Attributes,
    pub(super) flowops: Vec<FlowopText>,
}

/// `flowop`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowopText {
    pub(super) kind: String,
    pub(super) attributes: Attributes,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuitMode {
    /// After a time (`timeout`).
    Time,
    /// When the first client has no more to do (`firstdone`).
    FirstDone,
    /// When all clients have no more to do (`alldone`).
    AllDone,
}

/// A file of WML.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    pub(super) variables: BTreeMap<String, (Value, WmlPlace)>,
    pub(super) filesets: Vec<FilesetText>,
    pub(super) processes: Vec<ProcessText>,
    pub(super) rate: Option<Attributes>,
    pub(super) run: Option<(Value, WmlPlace)>,
    pub(super) quit: QuitMode,
}

/// Reads a file of WML. The variables of `overrides` keep these values, whatever the file sets them
/// to.
///
/// # Errors
/// A [`Fault`] with its place; one of `overrides` is not a variable of the file.
pub(super) fn read(text: &str, overrides: &[(String, Value)]) -> Result<Script, Fault> {
    let mut parser = Parser {
        words: lexer::words(text)?,
        at: 0,
        overrides,
        script: Script {
            variables: BTreeMap::new(),
            filesets: Vec::new(),
            processes: Vec::new(),
            rate: None,
            run: None,
            quit: QuitMode::Time,
        },
    };
    while parser.command()? {}
    let variables = &parser.script.variables;
    if let Some((name, _)) = overrides.iter().find(|(name, _)| !variables.contains_key(name)) {
        let known = variables.keys().map(|name| format!("${name}"));
        let known = known.collect::<Vec<_>>().join(", ");
        let problem = WmlProblem::Override { name: name.clone(), known };
        return Err(problem.at(WmlPlace { line: 1, column: 1 }));
    }
    Ok(parser.script)
}

/// The commands, for an error.
const COMMANDS: &str = "a command (set, define, eventgen, create, echo, run, psrun, quit)";

struct Parser<'o> {
    words: Vec<Lexeme>,
    at: usize,
    overrides: &'o [(String, Value)],
    script: Script,
}

impl Parser<'_> {
    fn peek(&self) -> &Lexeme {
        // The last word is the end of the file, which is never passed.
        &self.words[self.at.min(self.words.len() - 1)]
    }

    fn next(&mut self) -> Lexeme {
        let lexeme = self.peek().clone();
        self.at += 1;
        lexeme
    }

    fn is_mark(&self, mark: char) -> bool {
        self.peek().token == Token::Mark(mark)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().token, Token::Word(w) if w == word)
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, Fault> {
        let found = self.peek();
        Err(WmlProblem::Expected { expected, found: found.token.to_string() }.at(found.place))
    }

    fn mark(&mut self, mark: char, expected: &'static str) -> Result<(), Fault> {
        match self.is_mark(mark) {
            true => {
                self.next();
                Ok(())
            }
            false => self.expected(expected),
        }
    }

    /// Reads one command. Returns false at the end.
    fn command(&mut self) -> Result<bool, Fault> {
        let Lexeme { token, place } = self.peek().clone();
        let word = match token {
            Token::End => return Ok(false),
            Token::Word(word) => word,
            _ => return self.expected(COMMANDS),
        };
        self.next();
        match word.as_str() {
            "set" => self.set()?,
            "define" => self.define(place)?,
            "eventgen" => {
                let rate = self.attributes("eventgen", place)?;
                self.script.rate = Some(rate);
            }
            // Files are always created before the run.
            "create" if self.is_word("files") || self.is_word("filesets") => drop(self.next()),
            "echo" | "usage" | "debug" | "version" | "list" | "stats" => self.remark(place),
            "run" => self.script.run = self.seconds()?,
            // The first number is the time between two prints of results.
            "psrun" => {
                self.seconds()?;
                self.script.run = self.seconds()?;
            }
            "quit" => return Ok(false),
            "system" | "sleep" | "enable" | "domultisync" => {
                let instead = "; it works on the file system alone, in the time of `run`";
                return Err(
                    WmlProblem::unsupported(format!("the command `{word}`"), instead).at(place)
                );
            }
            _ => {
                let found = format!("'{}'", word.escape_debug());
                return Err(WmlProblem::Expected { expected: COMMANDS, found }.at(place));
            }
        }
        Ok(true)
    }

    /// Passes over a text for a person, or the words of the same line.
    fn remark(&mut self, from: WmlPlace) {
        while self.peek().token != Token::End && self.peek().place.line == from.line {
            self.next();
        }
    }

    fn seconds(&mut self) -> Result<Option<(Value, WmlPlace)>, Fault> {
        let Lexeme { token, place } = self.peek().clone();
        let value = match token {
            Token::Number(number) => Value::Number(number),
            Token::Variable(name) => Value::Variable(name),
            Token::Word(word) if word.strip_prefix('-').is_some_and(is_digits) => {
                match word[1..].parse() {
                    Ok(number) => Value::Number(number),
                    Err(_) => return Err(WmlProblem::Number(word).at(place)),
                }
            }
            _ => return Ok(None),
        };
        self.next();
        Ok(Some((value, place)))
    }

    fn set(&mut self) -> Result<(), Fault> {
        if self.is_word("mode") {
            self.next();
            return self.mode();
        }
        let Lexeme { token: Token::Variable(name), place } = self.peek().clone() else {
            return self.expected("a variable, as in `set $nfiles=1000`");
        };
        self.next();
        self.mark('=', "'='")?;
        let mut value = self.value()?;
        // A variable that is set from another one gets its value of now.
        if let Value::Variable(other) = &value {
            let (found, _) = self
                .script
                .variables
                .get(other)
                .ok_or_else(|| WmlProblem::Unset(other.clone()).at(place))?;
            value = found.clone();
        }
        if let Some((_, kept)) = self.overrides.iter().find(|(other, _)| *other == name) {
            value = kept.clone();
        }
        self.script.variables.insert(name, (value, place));
        Ok(())
    }

    fn mode(&mut self) -> Result<(), Fault> {
        if self.is_word("noUsage") || self.is_word("nousestats") {
            self.next();
            return Ok(());
        }
        if !self.is_word("quit") {
            return self.expected("`quit` with timeout, firstdone or alldone");
        }
        self.next();
        self.script.quit = match &self.peek().token {
            Token::Word(word) if word == "timeout" => QuitMode::Time,
            Token::Word(word) if word == "firstdone" => QuitMode::FirstDone,
            Token::Word(word) if word == "alldone" => QuitMode::AllDone,
            _ => return self.expected("timeout, firstdone or alldone"),
        };
        self.next();
        Ok(())
    }

    fn define(&mut self, place: WmlPlace) -> Result<(), Fault> {
        let Token::Word(word) = self.peek().token.clone() else {
            return self.expected("file, fileset, process or randvar");
        };
        match word.as_str() {
            "file" | "fileset" | "filesets" => {
                self.next();
                let is_file = word == "file";
                let entity = if is_file { "file" } else { "fileset" };
                let attributes = self.attributes(entity, place)?;
                self.script.filesets.push(FilesetText { is_file, attributes });
            }
            "process" | "processes" => {
                self.next();
                let attributes = self.attributes("process", place)?;
                let threads = self.block("a thread", Self::thread)?;
                self.script.processes.push(ProcessText { attributes, threads });
            }
            "randvar" => {
                self.next();
                self.define_random(place)?;
            }
            "flowop" => {
                let instead = "; write its flowops out in each thread";
                return Err(WmlProblem::unsupported("a flowop made of others", instead).at(place));
            }
            _ => return self.expected("file, fileset, process or randvar"),
        }
        Ok(())
    }

    /// `define randvar name=$x, ...`: a random variable in the older way.
    fn define_random(&mut self, place: WmlPlace) -> Result<(), Fault> {
        let mut random = self.random("randvar", place)?;
        let list = &mut random.attributes.list;
        let name = list.iter().position(|a| a.name == "name").map(|n| list.remove(n).value);
        let Some(Value::Variable(name)) = name else {
            let entity = "randvar".to_owned();
            return Err(WmlProblem::Missing { entity, name: "name=$VARIABLE" }.at(place));
        };
        self.script.variables.insert(name, (Value::Random(random), place));
        Ok(())
    }

    /// `{ ... }` with one thing or more.
    fn block<T>(
        &mut self,
        expected: &'static str,
        mut one: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        self.mark('{', "'{'")?;
        let mut all = Vec::new();
        while !self.is_mark('}') {
            if self.peek().token == Token::End {
                return self.expected(expected);
            }
            all.push(one(self)?);
        }
        self.next();
        Ok(all)
    }

    fn thread(&mut self) -> Result<ThreadText, Fault> {
        let place = self.peek().place;
        if !self.is_word("thread") {
            return self.expected("`thread` or '}'");
        }
        self.next();
        let attributes = self.attributes("thread", place)?;
        Ok(ThreadText { attributes, flowops: self.block("a flowop", Self::flowop)? })
    }

    fn flowop(&mut self) -> Result<FlowopText, Fault> {
        if !self.is_word("flowop") {
            return self.expected("`flowop` or '}'");
        }
        self.next();
        let Lexeme { token: Token::Word(kind), place } = self.peek().clone() else {
            return self.expected("the kind of flowop, as in `flowop read`");
        };
        self.next();
        let attributes = self.attributes(&format!("flowop {kind}"), place)?;
        Ok(FlowopText { kind, attributes })
    }

    /// `name=value,name,...`, which may be empty.
    fn attributes(&mut self, entity: &str, place: WmlPlace) -> Result<Attributes, Fault> {
        let mut list = Vec::new();
        while let Token::Word(name) = self.peek().token.clone() {
            // Without a comma before it, a word begins the next command.
            if list.is_empty() && !self.begins_attribute() {
                break;
            }
            let place = self.next().place;
            let value = match self.is_mark('=') {
                true => {
                    self.next();
                    self.value()?
                }
                false => Value::Bool(true),
            };
            list.push(Attribute { name, value, place });
            if !self.is_mark(',') {
                break;
            }
            self.next();
            if !matches!(self.peek().token, Token::Word(_)) {
                return self.expected("the name of an attribute");
            }
        }
        Ok(Attributes { entity: entity.to_owned(), place, list })
    }

    /// Whether the word here is followed by `=` or `,`, so that it can only be an attribute.
    fn begins_attribute(&self) -> bool {
        let after = self.words.get(self.at + 1).map(|lexeme| &lexeme.token);
        matches!(after, Some(Token::Mark('=' | ',')))
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let Lexeme { token, place } = self.peek().clone();
        let value = match token {
            Token::Number(number) => Value::Number(number),
            Token::Variable(name) => Value::Variable(name),
            Token::Text(text) => Value::Text(text),
            Token::Word(word) => match word.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "cvar" => return self.random_in_parentheses("cvar", place),
                "randvar" | "rand" => return self.random_in_parentheses("randvar", place),
                _ => Value::Text(word),
            },
            _ => return self.expected("a value"),
        };
        self.next();
        Ok(value)
    }

    fn random_in_parentheses(
        &mut self,
        kind: &'static str,
        place: WmlPlace,
    ) -> Result<Value, Fault> {
        self.next();
        self.mark('(', "'('")?;
        let random = self.random(kind, place)?;
        self.mark(')', "')'")?;
        Ok(Value::Random(random))
    }

    /// The attributes of a random variable, one of which may be a table.
    fn random(&mut self, kind: &'static str, place: WmlPlace) -> Result<Random, Fault> {
        let mut attributes = Attributes { entity: kind.to_owned(), place, list: Vec::new() };
        let mut table = Vec::new();
        loop {
            if self.is_word("randtable") {
                self.next();
                self.mark('=', "'='")?;
                table = self.table()?;
            } else {
                let Token::Word(name) = self.peek().token.clone() else {
                    return self.expected("the name of an attribute");
                };
                let place = self.next().place;
                self.mark('=', "'='")?;
                let value = self.value()?;
                if matches!(value, Value::Random(_)) {
                    let what = "a random variable inside of another one";
                    return Err(WmlProblem::unsupported(what, "").at(place));
                }
                attributes.list.push(Attribute { name, value, place });
            }
            if !self.is_mark(',') {
                return Ok(Random { kind, attributes, table });
            }
            self.next();
        }
    }

    /// `{{percent, least, most}, ...}`.
    fn table(&mut self) -> Result<Vec<[Value; 3]>, Fault> {
        self.mark('{', "'{'")?;
        let mut rows = Vec::new();
        loop {
            self.mark('{', "'{'")?;
            let mut row = [const { Value::Number(0) }; 3];
            for (n, cell) in row.iter_mut().enumerate() {
                if n > 0 {
                    self.mark(',', "','")?;
                }
                *cell = self.value()?;
            }
            self.mark('}', "'}'")?;
            rows.push(row);
            if self.is_mark(',') {
                self.next();
                continue;
            }
            self.mark('}', "'}'")?;
            return Ok(rows);
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

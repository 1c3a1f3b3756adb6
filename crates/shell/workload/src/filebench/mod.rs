//! Personalities of filebench: workloads that are written in its workload model language (WML).
//!
//! Ordo has four of them, [`PERSONALITIES`], in its own words with filebench's published
//! parameters, and reads the files of others as far as they use the same part of the language;
//! `docs/filebench.md` has that part. A run creates the files, makes them durable, and then lets
//! all clients work for a time: the instances of each thread of each process are clients that work
//! at once.
//!
//! In the order in which a file passes through them: `lexer` splits it into words, `syntax` into
//! commands, `resolve` makes a `model` of them with the `attributes`' values; `fileset` has the
//! files, `client` carries out the flowops on the state in `shared`.

mod amount;
mod attributes;
mod background;
mod client;
mod error;
mod fileset;
mod lexer;
mod model;
mod resolve;
mod shared;
mod syntax;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Read;

use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::FileSystem;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, size};
use super::parse::{ParseError, parameters};
use super::{Doing, Run, WorkloadError, WorkloadStage};
use amount::Amount;
use client::Client;
pub use error::{WmlError, WmlPlace, WmlProblem};
use fileset::Fileset;
use model::{Action, Model};
use shared::Shared;
use syntax::Value;

/// The personalities that come with Ordo: names and texts.
pub const PERSONALITIES: [(&str, &str); 4] = [
    ("varmail", include_str!("personalities/varmail.f")),
    ("fileserver", include_str!("personalities/fileserver.f")),
    ("webserver", include_str!("personalities/webserver.f")),
    ("oltp", include_str!("personalities/oltp.f")),
];

/// The longest file that is read, in bytes.
const FILE_MOST: u64 = 1 << 20;
/// The bytes for which a file is counted beside its contents.
const BESIDE: u64 = 4096;

/// A personality that is ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Filebench {
    /// The text of the user, without `filebench:`.
    text: String,
    /// The name or the path of the personality.
    name: String,
    model: Model,
}

impl Filebench {
    /// The personality of a text: `varmail`, or the path of a file, with `,run=SECONDS` and
    /// `,VARIABLE=VALUE`.
    ///
    /// # Errors
    /// There is no such personality or file; it cannot be read; it is not in the part of WML that
    /// is read here.
    pub(super) fn parse(text: &str) -> Result<Filebench, ParseError> {
        let (name, rest) = text.split_once(',').unwrap_or((text, ""));
        let mut seconds = None;
        let mut overrides = Vec::new();
        for (key, value) in parameters(rest) {
            match (key, value) {
                ("run", value) => seconds = Some(super::parse::number(key, value, 1)?),
                (key, Some(value)) => {
                    let key = key.strip_prefix('$').unwrap_or(key);
                    overrides.push((key.to_owned(), value_of(value)));
                }
                (key, None) => {
                    let expected = "VARIABLE=VALUE, as in nthreads=4, or run=SECONDS";
                    let (parameter, value) = (key.to_owned(), String::new());
                    return Err(ParseError::Value { parameter, value, expected });
                }
            }
        }
        let script = text_of(name)?;
        let model = syntax::read(&script, &overrides)
            .and_then(|script| resolve::model(&script, seconds))
            .map_err(|fault| fault.in_file(name))?;
        Ok(Filebench { text: text.to_owned(), name: name.to_owned(), model })
    }

    /// The number of clients.
    fn clients(&self) -> u64 {
        self.model.threads.iter().map(|thread| thread.clients).sum()
    }

    pub(super) fn describe(&self) -> String {
        let files: u64 = self.model.filesets.iter().map(|fileset| fileset.entries).sum();
        format!(
            "filebench's {}: {} clients for {} s, on {files} files of {} together",
            self.name,
            self.clients(),
            self.model.seconds,
            size(self.bytes())
        )
    }

    /// The mean bytes of all files that may exist.
    fn bytes(&self) -> u64 {
        let filesets = self.model.filesets.iter();
        filesets.fold(0, |sum: u64, f| sum.saturating_add(f.entries.saturating_mul(f.size.mean())))
    }

    /// Half as much again as the files, because they grow.
    pub(super) fn footprint(&self) -> u64 {
        let files: u64 = self.model.filesets.iter().map(|fileset| fileset.entries).sum();
        let all = self.bytes().saturating_add(files * BESIDE);
        all.saturating_add(all / 2).min(1 << 50)
    }

    /// The bytes of contents that the flowops write at once.
    fn longest_write(&self) -> u64 {
        let most = |amount: &Amount| match amount {
            Amount::Fixed(number) => *number,
            Amount::Random(distribution) => distribution.range.1 as u64,
        };
        let whole = self.model.filesets.iter().map(|fileset| most(&fileset.size)).max();
        let flowops = self.model.threads.iter().flat_map(|thread| &thread.flowops);
        let longest = flowops.map(|flowop| match &flowop.action {
            Action::WriteWhole(_, Amount::Fixed(0), _) => whole.unwrap_or(0),
            Action::WriteWhole(_, amount, _)
            | Action::Append(_, amount)
            | Action::AppendRandom(_, amount) => most(amount),
            Action::Write(_, transfer) | Action::AsyncWrite(_, transfer) => most(&transfer.iosize),
            _ => 0,
        });
        longest.max().unwrap_or(0).clamp(fileset::PREALLOC_UNIT, resolve::IO_MOST)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let data = Bytes::new(seed, self.longest_write() as usize);
        let numbered = self.model.filesets.iter().zip(0..);
        let filesets: Vec<Fileset> =
            numbered.map(|(model, n)| Fileset::plan(model, n, &mut random)).collect();
        self.create(run, &filesets, &data, &mut random).await?;
        run.begin("run", self.model.seconds * 1000);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let named = (&self.model, self.name.as_str());
        let shared = Shared::new((fs, runtime), named, &filesets, &data, &mut run.log);
        let threads = self.model.threads.iter().enumerate();
        let numbers = threads
            .flat_map(|(n, thread)| (0..thread.clients as usize).map(move |client| (n, client)));
        let clients = numbers.zip(1..).map(|(number, count)| {
            let own = seed.wrapping_add(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(count));
            Client::new(&shared, number, Pcg64Mcg::seed_from_u64(own)).run()
        });
        buffer_unordered(self.clients() as usize, clients, |_, result| result).await?;
        let mix = shared.mix();
        drop(shared);
        run.log.mix(mix);
        run.end();
        Ok(())
    }

    /// Creates the files that exist at the start, and makes them durable.
    async fn create<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        filesets: &[Fileset],
        data: &Bytes,
        random: &mut Pcg64Mcg,
    ) -> Result<(), WorkloadError> {
        let models = self.model.filesets.iter().zip(filesets);
        let chosen: Vec<Vec<usize>> =
            models.map(|(model, fileset)| fileset.choose(model.prealloc, random)).collect();
        run.begin("create", chosen.iter().map(Vec::len).sum::<usize>() as u64);
        for (fileset, chosen) in filesets.iter().zip(chosen) {
            let doing = || format!("creating {}", fileset.name);
            let made = fileset.create_directories(run.fs()).await.doing(doing)?;
            run.log.made(made + chosen.len() as u64);
            for number in chosen {
                let bytes = fileset.create_file(run.fs(), number, data).await.doing(doing)?;
                run.step(bytes);
            }
        }
        run.fs().sync().await.doing(|| "making the files durable".into())?;
        run.end();
        Ok(())
    }
}

/// The value of a variable of the command line.
fn value_of(text: &str) -> Value {
    match (text, super::parse::number("", Some(text), 0)) {
        ("true" | "yes", _) => Value::Bool(true),
        ("false" | "no", _) => Value::Bool(false),
        (_, Ok(number)) => Value::Number(number),
        (_, Err(_)) => Value::Text(text.to_owned()),
    }
}

/// The text of a personality of Ordo, or of a file.
fn text_of(name: &str) -> Result<String, ParseError> {
    if let Some((_, text)) = PERSONALITIES.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    let failed = |error: String| {
        if name.contains('/') || name.ends_with(".f") {
            return ParseError::Personality { path: name.to_owned(), error };
        }
        ParseError::NoPersonality(name.to_owned())
    };
    let file = std::fs::File::open(name).map_err(|e| failed(e.to_string()))?;
    let mut text = String::new();
    let read = file.take(FILE_MOST + 1).read_to_string(&mut text);
    read.map_err(|e| failed(e.to_string()))?;
    if text.len() as u64 > FILE_MOST {
        let error = "longer than a megabyte, which no workload is".to_owned();
        return Err(ParseError::Personality { path: name.to_owned(), error });
    }
    Ok(text)
}

impl fmt::Display for Filebench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filebench:{}", self.text)
    }
}

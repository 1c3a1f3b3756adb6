//! From the text of a personality to its model: variables get their values, names are looked up.

use super::amount::Amount;
use super::attributes::{AttributeReader, Variables, fixed};
use super::error::{Fault, WmlPlace, WmlProblem};
use super::model::{
    Action, Block, FilesetModel, Finish, Flowop, Model, Target, ThreadModel, Transfer,
};
use super::syntax::{FilesetText, FlowopText, ProcessText, QuitMode, Script};

/// The seconds of a run that gives none; filebench has the same.
const SECONDS: u64 = 60;
/// The seconds of a run that ends when its clients are done, if they never are.
const SECONDS_MOST: u64 = 3600;
/// The descriptors of a client.
pub(super) const DESCRIPTORS: usize = 128;
/// The most clients.
const CLIENTS_MOST: u64 = 10_000;
/// The most files of all filesets together.
const FILES_MOST: u64 = 10_000_000;
/// The most bytes of one call.
pub(super) const IO_MOST: u64 = 64 << 20;

const FILE: [&str; 3] = ["name", "size", "prealloc"];
const FILESET: [&str; 6] = ["name", "size", "entries", "dirwidth", "dirgamma", "prealloc"];
/// Attributes that say how or where filebench creates files. All files are new, in the file system
/// of the run, and nobody writes to a fileset unless a flowop does.
const OF_CREATION: [&str; 7] =
    ["path", "reuse", "paralloc", "trusttree", "cached", "readonly", "writeonly"];
const FLOWOP: [&str; 16] = [
    "name",
    "filesetname",
    "filename",
    "fd",
    "srcfd",
    "iosize",
    "iters",
    "random",
    "workingset",
    "opennext",
    "dsync",
    "directio",
    "value",
    "highwater",
    "target",
    "blocking",
];
const KINDS: &str = "openfile, createfile, closefile, deletefile, statfile, read, write, \
     readwholefile, writewholefile, appendfile, appendfilerand, fsync, fsyncset, aiowrite, aiowait, \
     semblock, sempost, hog, delay, eventlimit, opslimit, iopslimit, bwlimit, finishoncount, \
     finishonbytes";

/// The place of faults of the whole file.
const START: WmlPlace = WmlPlace { line: 1, column: 1 };

/// The model of a file. `seconds`, if it is given, comes before `run`.
///
/// # Errors
/// A [`Fault`].
pub(super) fn model(script: &Script, seconds: Option<u64>) -> Result<Model, Fault> {
    let variables = &script.variables;
    let filesets = filesets(&script.filesets, variables)?;
    let rate = rate(script)?;
    let mut resolver = Resolver {
        variables,
        filesets,
        rate,
        threads: Vec::new(),
        wanted: Vec::new(),
        blocks: Vec::new(),
    };
    for process in &script.processes {
        resolver.process(process)?;
    }
    resolver.targets()?;
    let clients = resolver.threads.iter().try_fold(0_u64, |n, t| n.checked_add(t.clients));
    let clients = clients.unwrap_or(u64::MAX);
    if clients > CLIENTS_MOST {
        let name = "the number of clients".to_owned();
        let (found, expected) = (clients.to_string(), format!("{CLIENTS_MOST} at most"));
        return Err(WmlProblem::Value { name, found, expected }.at(START));
    }
    if clients == 0 || resolver.threads.iter().all(|thread| thread.flowops.is_empty()) {
        return Err(WmlProblem::Nothing.at(START));
    }
    let seconds = match (seconds, &script.run) {
        (Some(seconds), _) => seconds,
        (None, Some((value, place))) => fixed("run", value, variables, *place)?,
        (None, None) => 0,
    };
    let Resolver { filesets, threads, blocks, .. } = resolver;
    let seconds = match (seconds, script.quit) {
        (0, QuitMode::Time) => SECONDS,
        (0, _) => SECONDS_MOST,
        (seconds, _) => seconds.min(1_000_000),
    };
    Ok(Model { filesets, threads, blocks, rate, seconds, quit: script.quit })
}

fn rate(script: &Script) -> Result<Option<u64>, Fault> {
    let Some(attributes) = &script.rate else { return Ok(None) };
    let reader = AttributeReader::new(attributes, &script.variables, &["rate"], &[])?;
    Ok(Some(reader.number("rate", 0, 0..=1_000_000_000)?).filter(|rate| *rate > 0))
}

fn filesets(texts: &[FilesetText], variables: &Variables) -> Result<Vec<FilesetModel>, Fault> {
    let mut all: Vec<FilesetModel> = Vec::new();
    let mut files = 0;
    for FilesetText { is_file, attributes } in texts {
        let known: &[&str] = if *is_file { &FILE } else { &FILESET };
        let reader = AttributeReader::new(attributes, variables, known, &OF_CREATION)?;
        let name = reader.needed("name")?;
        let is_name = !name.is_empty() && name.len() <= 200 && !name.contains(['/', '\0']);
        if !is_name || name == "." || name == ".." {
            let (found, expected) = (format!("'{name}'"), "a file's name without '/'".to_owned());
            let problem = WmlProblem::Value { name: "name".to_owned(), found, expected };
            return Err(problem.at(reader.place_of("name")));
        }
        if all.iter().any(|fileset| fileset.name == name) {
            return Err(WmlProblem::Twice(name).at(reader.place_of("name")));
        }
        let entries = if *is_file { 1 } else { reader.number("entries", 0, 0..=FILES_MOST)? };
        files += entries;
        if files > FILES_MOST {
            let name = "entries of all filesets together".to_owned();
            let (found, expected) = (files.to_string(), format!("{FILES_MOST} at most"));
            let problem = WmlProblem::Value { name, found, expected };
            return Err(problem.at(reader.place_of("entries")));
        }
        all.push(FilesetModel {
            name,
            is_file: *is_file,
            entries,
            size: reader.amount("size", 1024)?,
            dirwidth: if *is_file { 1 } else { reader.number("dirwidth", 10, 2..=1 << 40)? },
            dirgamma: if *is_file {
                0.0
            } else {
                reader.number("dirgamma", 1500, 0..=1_000_000)? as f64 / 1000.0
            },
            prealloc: reader.percent("prealloc")?,
        });
    }
    Ok(all)
}

struct Resolver<'s> {
    variables: &'s Variables,
    filesets: Vec<FilesetModel>,
    rate: Option<u64>,
    threads: Vec<ThreadModel>,
    /// The attribute `target` of each flowop of each thread.
    wanted: Vec<Vec<Option<String>>>,
    blocks: Vec<Block>,
}

impl Resolver<'_> {
    fn process(&mut self, process: &ProcessText) -> Result<(), Fault> {
        let variables = self.variables;
        let known = ["name", "instances"];
        let reader = AttributeReader::new(&process.attributes, variables, &known, &["nice"])?;
        let instances = reader.number("instances", 1, 0..=CLIENTS_MOST)?;
        for text in &process.threads {
            let ignored = ["memsize", "useism", "ioprio"];
            let reader = AttributeReader::new(&text.attributes, variables, &known, &ignored)?;
            let name = reader.needed("name")?;
            let clients = instances * reader.number("instances", 1, 0..=CLIENTS_MOST)?;
            let thread = self.threads.len();
            let (mut flowops, mut wanted) = (Vec::new(), Vec::new());
            for text in &text.flowops {
                if let Some((flowop, target)) = self.flowop(text, thread)? {
                    flowops.push(flowop);
                    wanted.push(target);
                }
            }
            self.wanted.push(wanted);
            self.threads.push(ThreadModel { name, clients, flowops });
        }
        Ok(())
    }

    /// A flowop and the name of its target; `None` if it has no effect here.
    fn flowop(
        &mut self,
        text: &FlowopText,
        thread: usize,
    ) -> Result<Option<(Flowop, Option<String>)>, Fault> {
        let variables = self.variables;
        let ignored = ["useism", "noreadahead"];
        let reader = AttributeReader::new(&text.attributes, variables, &FLOWOP, &ignored)?;
        if reader.flag("directio")? {
            let what = "directio";
            let instead = "; every read and write goes through the file system's cache";
            return Err(WmlProblem::unsupported(what, instead).at(reader.place_of("directio")));
        }
        let name = reader.text("name")?.unwrap_or_else(|| text.kind.clone());
        let Some(action) = self.action(text, &name, &reader, thread)? else { return Ok(None) };
        let iters = reader.amount("iters", 1)?;
        let flowop = Flowop { name, place: reader.place(), iters, action };
        Ok(Some((flowop, reader.text("target")?)))
    }

    fn action(
        &mut self,
        text: &FlowopText,
        name: &str,
        reader: &AttributeReader<'_>,
        thread: usize,
    ) -> Result<Option<Action>, Fault> {
        let iosize = || amount_of_io(reader);
        let target = || self.target(reader);
        Ok(Some(match text.kind.as_str() {
            "openfile" => Action::Open(self.target_with_fileset(reader)?),
            "createfile" => Action::Create(self.target_with_fileset(reader)?),
            "closefile" => Action::Close(target()?),
            "deletefile" => Action::Delete(target()?),
            "statfile" => Action::Stat(target()?),
            "read" => Action::Read(target()?, transfer(reader)?),
            "write" => Action::Write(target()?, transfer(reader)?),
            "readwholefile" => Action::ReadWhole(target()?, iosize()?),
            "writewholefile" => {
                let source = reader.number("srcfd", 0, 0..=DESCRIPTORS as u64 - 1)? as usize;
                Action::WriteWhole(target()?, iosize()?, source)
            }
            "appendfile" => Action::Append(target()?, needed_io(reader)?),
            "appendfilerand" => Action::AppendRandom(target()?, needed_io(reader)?),
            "fsync" => Action::Fsync(target()?),
            "fsyncset" => {
                let target = self.target_with_fileset(reader)?;
                Action::FsyncSet(target.fileset.expect("it has one"))
            }
            "aiowrite" => {
                let transfer = transfer(reader)?;
                if !transfer.random {
                    let instead = ", nor does filebench; add `random`";
                    let what = "aiowrite without `random`";
                    return Err(WmlProblem::unsupported(what, instead).at(reader.place()));
                }
                Action::AsyncWrite(target()?, transfer)
            }
            _ => return self.other_action(text, name, reader, thread),
        }))
    }

    /// A flowop that waits, computes, or ends the run.
    fn other_action(
        &mut self,
        text: &FlowopText,
        name: &str,
        reader: &AttributeReader<'_>,
        thread: usize,
    ) -> Result<Option<Action>, Fault> {
        Ok(Some(match text.kind.as_str() {
            "aiowait" => Action::AsyncWait,
            "semblock" => {
                let highwater = reader.number("highwater", 1, 0..=1 << 40)?;
                self.blocks.push(Block { name: name.to_owned(), thread, highwater });
                Action::SemBlock(self.blocks.len() - 1, reader.amount("value", 0)?)
            }
            "sempost" => Action::SemPost {
                to: Vec::new(),
                value: reader.amount("value", 0)?,
                blocking: reader.flag("blocking")?,
            },
            "hog" => Action::Hog(reader.amount("value", 0)?),
            "delay" => Action::Delay(reader.amount("value", 0)?),
            "eventlimit" if self.rate.is_none() => return Ok(None),
            "eventlimit" => Action::EventLimit,
            "opslimit" | "iopslimit" | "bwlimit" if self.rate.is_none() => return Ok(None),
            "opslimit" | "iopslimit" | "bwlimit" => {
                let what = format!("{} with a rate of events", text.kind);
                let instead = "; `eventlimit` is";
                return Err(WmlProblem::unsupported(what, instead).at(reader.place()));
            }
            "finishoncount" | "finishonbytes" => {
                let bytes = text.kind == "finishonbytes";
                let at = reader.number("value", 0, 0..=1 << 60)?;
                Action::Finish(Finish { at, of: None, bytes })
            }
            other => {
                let what = format!("the flowop '{}'", other.escape_debug());
                let instead = format!(", which has {KINDS}");
                return Err(WmlProblem::unsupported(what, instead).at(text.attributes.place));
            }
        }))
    }

    fn target(&self, reader: &AttributeReader<'_>) -> Result<Target, Fault> {
        let name = match reader.text("filesetname")? {
            Some(name) => Some(name),
            None => reader.text("filename")?,
        };
        let fileset = match name {
            None => None,
            Some(name) => {
                let found = self.filesets.iter().position(|fileset| fileset.name == name);
                let place = reader.place_of("filesetname");
                Some(found.ok_or_else(|| WmlProblem::NoFileset(name).at(place))?)
            }
        };
        Ok(Target {
            fileset,
            fd: reader.number("fd", 0, 0..=DESCRIPTORS as u64 - 1)? as usize,
            rotates: reader.flag("opennext")?,
            dsync: reader.flag("dsync")?,
        })
    }

    fn target_with_fileset(&self, reader: &AttributeReader<'_>) -> Result<Target, Fault> {
        let target = self.target(reader)?;
        if target.fileset.is_none() {
            reader.needed("filesetname")?;
        }
        Ok(target)
    }

    /// Looks up the names to which posts go, and those that finish a run.
    fn targets(&mut self) -> Result<(), Fault> {
        for (thread, wanted) in self.threads.iter_mut().zip(&self.wanted) {
            let names: Vec<String> = thread.flowops.iter().map(|f| f.name.clone()).collect();
            for (flowop, wanted) in thread.flowops.iter_mut().zip(wanted) {
                let no = |kind| {
                    let name = wanted.clone().unwrap_or_default();
                    WmlProblem::NoTarget { kind, name }.at(flowop.place)
                };
                match &mut flowop.action {
                    Action::SemPost { to, .. } => {
                        let blocks = self.blocks.iter().enumerate();
                        let found = blocks.filter(|(_, b)| Some(&b.name) == wanted.as_ref());
                        to.extend(found.map(|(number, _)| number));
                        if to.is_empty() {
                            return Err(no("semblock"));
                        }
                    }
                    Action::Finish(finish) if wanted.is_some() => {
                        finish.of = names.iter().position(|name| Some(name) == wanted.as_ref());
                        finish.of.ok_or_else(|| no("flowop of this thread"))?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The bytes of one call; 0 is the whole file.
fn amount_of_io(reader: &AttributeReader<'_>) -> Result<Amount, Fault> {
    match reader.amount("iosize", 0)? {
        Amount::Fixed(number) if number > IO_MOST => {
            reader.number("iosize", 0, 0..=IO_MOST).map(Amount::Fixed)
        }
        Amount::Random(mut distribution) => {
            distribution.range.1 = distribution.range.1.min(IO_MOST as f64);
            Ok(Amount::Random(distribution))
        }
        amount => Ok(amount),
    }
}

/// The bytes of one call, more than 0.
fn needed_io(reader: &AttributeReader<'_>) -> Result<Amount, Fault> {
    let amount = amount_of_io(reader)?;
    if amount == Amount::Fixed(0) {
        reader.needed("iosize")?;
        return reader.number("iosize", 1, 1..=IO_MOST).map(Amount::Fixed);
    }
    Ok(amount)
}

fn transfer(reader: &AttributeReader<'_>) -> Result<Transfer, Fault> {
    Ok(Transfer {
        iosize: needed_io(reader)?,
        random: reader.flag("random")?,
        workingset: reader.number("workingset", 0, 0..=1 << 50)?,
    })
}

//! A kernel built from its sources: DualFS (2007), section 3.2, "Kernel Compilation" with one
//! process and with four.
//!
//! The sources are those of [`Sources`](super::Sources), which have about the shape of Linux
//! 2.4.19, unpacked with cold caches before the measured phases. `make dep` reads every source and
//! writes a list of dependencies in each directory. The build compiles a part of the sources: each
//! is read with some headers, computes, and gives an object; the objects of each directory are read
//! and joined, and at last all of these. Computing is a model: the paper's times are not published,
//! so only ratios between systems have a meaning.

use std::cell::{Cell, RefCell};
use std::fmt;

use ordo_runtime::Runtime;
use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, read};
use super::processor::compute;
use super::sources::{Entry, LARGEST, Sources};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The bytes of one call of the compiler.
const UNIT: usize = 8192;
/// Every so many files one is a header.
const HEADER_EACH: usize = 4;
/// The headers among which most includes are.
const POPULAR: usize = 200;
/// The computing of a source on a 300 MHz Pentium II, in microseconds: to look for dependencies, to
/// compile, to link a directory.
const DEPEND_US: u64 = 2_000;
const COMPILE_US: u64 = 400_000;
const LINK_US: u64 = 60_000;
/// The bytes of a directory's list of dependencies for each source.
const DEPEND: u64 = 900;
/// The bytes of the name of a file that an object depends on, and of the command that makes an
/// object.
const DEPENDENCY: u64 = 35;
const COMMAND: u64 = 900;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBuild {
    /// The number of compilers at once.
    pub processes: u64,
    /// The number of files of the sources.
    pub files: u64,
    /// The percentage of the other files that are compiled: a configuration leaves most drivers
    /// out.
    pub compiled: u64,
    /// The headers that a source includes, those that headers include too.
    pub includes: u64,
    /// Whether each object has files with its dependencies and its command beside it, and each
    /// directory an archive, as in the kernel's build since 2.6.
    pub commands: bool,
    /// Whether the compiler computes.
    pub compute: bool,
}

/// A file of the sources.
#[derive(Clone)]
struct SourceFile {
    dir: usize,
    name: String,
    size: u64,
}

/// The unpacked sources: directories, headers and sources to compile.
struct Tree {
    directories: Vec<Ino>,
    all: Vec<SourceFile>,
    headers: Vec<SourceFile>,
    compiled: Vec<SourceFile>,
}

impl Tree {
    /// Files by the numbers of their directories.
    fn by_directory(&self, files: &[SourceFile]) -> Vec<Vec<SourceFile>> {
        let mut all = vec![Vec::new(); self.directories.len()];
        files.iter().for_each(|file| all[file.dir].push(file.clone()));
        all
    }
}

impl KernelBuild {
    /// One process, the sources of a kernel.
    pub const USUAL: KernelBuild = KernelBuild {
        processes: 1,
        files: 12_000,
        compiled: 30,
        includes: 30,
        commands: false,
        compute: true,
    };

    pub(super) fn describe(&self) -> String {
        let KernelBuild { processes, files, .. } = self;
        format!("a kernel of {files} files built by {processes} process(es)")
    }

    pub(super) fn footprint(&self) -> u64 {
        self.files * (40 << 10) + (16 << 20)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let bytes = Bytes::new(seed, 4 * LARGEST as usize);
        let entries = Sources { files: self.files, ..Sources::PAPER }.entries(seed);
        let tree = unpack(run, &entries, &bytes, self.compiled as usize).await?;
        run.drop_caches().await?;

        let (all, compiled) = (tree.by_directory(&tree.all), tree.by_directory(&tree.compiled));
        self.each(
            run,
            "make dep",
            (tree.all.len(), all.into_iter().enumerate()),
            {
                async |maker: &Maker<'_, _>, (dir, files): (usize, Vec<SourceFile>)| {
                    maker.depend(dir, &files).await
                }
            },
            (&tree, &bytes),
        )
        .await?;
        let sources = tree.compiled.iter().cloned().enumerate();
        self.each(
            run,
            "compile",
            (tree.compiled.len(), sources),
            {
                async |maker: &Maker<'_, _>, (number, source): (usize, SourceFile)| {
                    maker.compile(seed ^ number as u64, &source).await
                }
            },
            (&tree, &bytes),
        )
        .await?;
        let is_joined = |files: &[SourceFile]| self.commands || !files.is_empty();
        let joined = compiled.into_iter().enumerate().filter(|(_, files)| is_joined(files));
        let joined: Vec<_> = joined.collect();
        let last: Vec<SourceFile> = joined
            .iter()
            .map(|(dir, _)| SourceFile { dir: *dir, name: "built-in.c".into(), size: 0 })
            .collect();
        self.each(
            run,
            "link",
            (joined.len() + 1, joined.into_iter()),
            {
                async |maker: &Maker<'_, _>, (dir, files): (usize, Vec<SourceFile>)| {
                    maker.link(dir, "built-in.o", &files).await
                }
            },
            (&tree, &bytes),
        )
        .await?;
        self.each(
            run,
            "link the kernel",
            (1, std::iter::once(last)),
            {
                async |maker: &Maker<'_, _>, files: Vec<SourceFile>| {
                    maker.link(0, "vmlinux", &files).await
                }
            },
            (&tree, &bytes),
        )
        .await
    }

    /// A phase: so many processes take the tasks in order.
    async fn each<'t, S: WorkloadStage, T>(
        &self,
        run: &mut Run<'_, S>,
        name: &str,
        (total, tasks): (usize, impl Iterator<Item = T>),
        work: impl AsyncFn(&Maker<'_, S::Fs>, T) -> FsResult<()>,
        (tree, bytes): (&'t Tree, &'t Bytes),
    ) -> Result<(), WorkloadError> {
        run.begin(name, total as u64);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let done = Default::default();
        let &KernelBuild { includes, commands, compute: computes, .. } = self;
        let maker = Maker { fs, runtime, tree, bytes, computes, includes, commands, done: &done };
        let log = RefCell::new(&mut run.log);
        let each = tasks.map(|task| {
            let (maker, log, work) = (&maker, &log, &work);
            async move {
                work(maker, task).await.doing(|| name.to_owned())?;
                log.borrow_mut().reached(maker.done.files.get(), maker.done.bytes.get());
                Ok::<_, WorkloadError>(())
            }
        });
        buffer_unordered(self.processes as usize, each, |_, result| result).await?;
        run.log.made(done.made.get());
        run.end();
        Ok(())
    }
}

/// Writes the sources.
async fn unpack<S: WorkloadStage>(
    run: &mut Run<'_, S>,
    entries: &[Entry],
    bytes: &Bytes,
    percent: usize,
) -> Result<Tree, WorkloadError> {
    let files = entries.iter().filter(|entry| entry.size.is_some()).count();
    run.begin("unpack", files as u64);
    let top = run.fs().create(run.fs().root(), b"linux", &NewNode::directory(0o755)).await;
    let mut directories = vec![top.doing(|| "making the top".into())?.ino];
    let mut all = Vec::new();
    for entry in entries {
        let doing = || format!("unpacking {}", entry.name);
        let (dir, name) = (directories[entry.dir], entry.name.as_bytes());
        let Some(size) = entry.size else {
            let made = run.fs().create(dir, name, &NewNode::directory(0o755)).await;
            directories.push(made.doing(doing)?.ino);
            continue;
        };
        create(run.fs(), dir, name, bytes.get(size), UNIT).await.doing(doing)?;
        run.log.made(1);
        run.step(size);
        all.push(SourceFile { dir: entry.dir, name: entry.name.clone(), size });
    }
    run.fs().sync().await.doing(|| "making the sources durable".into())?;
    run.end();
    let (mut headers, mut compiled) = (Vec::new(), Vec::new());
    for (number, file) in all.iter().enumerate() {
        match number % HEADER_EACH {
            0 => headers.push(file.clone()),
            _ if is_compiled(number / HEADER_EACH, percent) => compiled.push(file.clone()),
            _ => {}
        }
    }
    Ok(Tree { directories, all, headers, compiled })
}

/// Whether files of a group are compiled: so many percent of the groups, spread evenly.
fn is_compiled(group: usize, percent: usize) -> bool {
    group * percent % 100 < percent
}

/// The counts of a phase.
#[derive(Default)]
struct Done {
    files: Cell<u64>,
    bytes: Cell<u64>,
    made: Cell<u64>,
}

/// The compilers and linkers.
struct Maker<'m, F> {
    fs: &'m F,
    runtime: &'m Runtime,
    tree: &'m Tree,
    bytes: &'m Bytes,
    computes: bool,
    includes: u64,
    commands: bool,
    done: &'m Done,
}

impl<F: FileSystem> Maker<'_, F> {
    async fn compute(&self, micros: u64) {
        if self.computes {
            compute(self.runtime, micros).await;
        }
    }

    async fn read(&self, dir: usize, name: &str) -> FsResult<()> {
        let dir = self.tree.directories[dir];
        let bytes = read(self.fs, dir, name.as_bytes(), UNIT, &mut |_, _| {}).await?;
        self.done.bytes.set(self.done.bytes.get() + bytes);
        Ok(())
    }

    async fn write(&self, dir: usize, name: &str, len: u64) -> FsResult<()> {
        let text = self.bytes.get(len.min(4 * LARGEST));
        create(self.fs, self.tree.directories[dir], name.as_bytes(), text, UNIT).await?;
        self.done.made.set(self.done.made.get() + 1);
        self.done.bytes.set(self.done.bytes.get() + text.len() as u64);
        Ok(())
    }

    fn count(&self, files: usize) {
        self.done.files.set(self.done.files.get() + files as u64);
    }

    /// Reads the sources of a directory and lists their dependencies.
    async fn depend(&self, dir: usize, files: &[SourceFile]) -> FsResult<()> {
        for file in files {
            self.read(dir, &file.name).await?;
            self.compute(DEPEND_US).await;
        }
        self.count(files.len());
        self.write(dir, ".depend", files.len() as u64 * DEPEND).await
    }

    /// Compiles a source, with headers of which a few are in most sources.
    async fn compile(&self, seed: u64, source: &SourceFile) -> FsResult<()> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        self.read(source.dir, &source.name).await?;
        let headers = &self.tree.headers;
        for _ in 0..self.includes.min(headers.len() as u64) {
            let among = match random.random_range(0..10) {
                0 => headers.len(),
                _ => headers.len().min(POPULAR),
            };
            let header = &headers[random.random_range(0..among)];
            self.read(header.dir, &header.name).await?;
        }
        self.compute(COMPILE_US).await;
        self.count(1);
        let object = object(&source.name);
        self.write(source.dir, &object, 1200 + source.size * 3 / 4).await?;
        if self.commands {
            let dependencies = format!(".{object}.d");
            self.write(source.dir, &dependencies, self.includes * DEPENDENCY).await?;
            self.read(source.dir, &dependencies).await?;
            self.remove(source.dir, &dependencies).await?;
        }
        self.write_command(source.dir, &object, self.includes * DEPENDENCY).await
    }

    /// Writes the command that made a file, with what it depends on.
    async fn write_command(&self, dir: usize, made: &str, len: u64) -> FsResult<()> {
        if self.commands {
            self.write(dir, &format!(".{made}.cmd"), COMMAND + len).await
        } else {
            Ok(())
        }
    }

    async fn remove(&self, dir: usize, name: &str) -> FsResult<()> {
        self.fs.unlink(self.tree.directories[dir], name.as_bytes()).await
    }

    /// Joins objects.
    async fn link(&self, dir: usize, name: &str, files: &[SourceFile]) -> FsResult<()> {
        for file in files {
            self.read(file.dir, &object(&file.name)).await?;
        }
        self.compute(LINK_US).await;
        self.count(1);
        let len: u64 = files.iter().map(|file| 1200 + file.size * 3 / 4).sum();
        self.write(dir, name, len).await?;
        self.write_command(dir, name, files.len() as u64 * DEPENDENCY).await
    }
}

fn object(source: &str) -> String {
    source.replace(".c", ".o")
}

impl fmt::Display for KernelBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == KernelBuild::USUAL {
            return write!(f, "kernel-build");
        }
        let KernelBuild { processes, files, compiled, includes, commands, compute } = self;
        let [commands, compute] = [commands, compute].map(|is| if *is { "yes" } else { "no" });
        write!(
            f,
            "kernel-build:processes={processes},files={files},compiled={compiled},includes={includes},commands={commands},compute={compute}"
        )
    }
}

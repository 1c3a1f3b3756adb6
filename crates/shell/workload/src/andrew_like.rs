//! The five phases of the Andrew benchmark: directories are made, a source tree is copied into
//! them, every file is looked at, every byte is read, and the copy is built.
//!
//! Source: Howard and others, "Scale and Performance in a Distributed File System" (ACM TOCS 6(1),
//! 1988), section 2, for the phases and the tree of about 70 files and 200 KB. Its sources are not
//! public, so the tree is generated from the seed, and the results compare with each other only.

use std::fmt;

use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, Sizes, create, names, random_size, read, size};
use super::processor::compute;
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The distribution of the files' sizes: 3 KB on average.
const SIZES: &Sizes =
    &[(25, 1 << 10), (60, 2 << 10), (85, 4 << 10), (97, 12 << 10), (100, 24 << 10)];
/// The directories of the copy: five subtrees of three.
const SUBTREES: u64 = 5;
const PARTS: [&str; 2] = ["src", "obj"];
/// Every so many files one is a source that is compiled; the others are headers.
const SOURCE_EACH: u64 = 2;
/// The bytes of one call of the programs.
const UNIT: usize = 8192;
/// The computing of a file on a 300 MHz Pentium II, in microseconds: to compile it, and to link it.
const COMPILE_US: u64 = 400_000;
const LINK_US: u64 = 10_000;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AndrewLike {
    /// The number of files of the sources.
    pub files: u64,
    /// The headers that a source includes, with those that they include.
    pub includes: u64,
    /// Whether the compiler computes.
    pub compute: bool,
}

/// A file of the sources.
#[derive(Clone, Copy)]
struct SourceFile {
    number: u64,
    size: u64,
}

impl SourceFile {
    fn is_compiled(self) -> bool {
        self.number.is_multiple_of(SOURCE_EACH)
    }

    fn name(self) -> String {
        format!("file{}.{}", self.number, if self.is_compiled() { "c" } else { "h" })
    }

    fn object(self) -> String {
        format!("file{}.o", self.number)
    }

    fn object_size(self) -> u64 {
        1200 + self.size * 3 / 4
    }
}

/// The directories: the sources, and the copy with its parts.
struct Tree {
    from: Ino,
    copy: Ino,
    src: Ino,
    obj: Ino,
}

impl AndrewLike {
    /// The tree of the benchmark.
    pub const USUAL: AndrewLike = AndrewLike { files: 70, includes: 10, compute: true };

    pub(super) fn describe(&self) -> String {
        let bytes = size(self.files * (3 << 10));
        format!(
            "the phases of the Andrew benchmark on {} files of {bytes}; Andrew-like",
            self.files
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.files * (32 << 10) + (1 << 20)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let files: Vec<SourceFile> = (0..self.files)
            .map(|number| SourceFile { number, size: random_size(&mut random, SIZES, 200) })
            .collect();
        let bytes = Bytes::new(seed, 24 << 10);
        let from = prepare(run, &files, &bytes).await.doing(|| "making the sources".into())?;
        run.drop_caches().await?;
        let tree = directories(run, from).await.doing(|| "making directories".into())?;
        copy(run, &tree, &files).await.doing(|| "copying".into())?;
        scan(run, &tree).await.doing(|| "looking at the files".into())?;
        read_all(run, &tree, &files).await.doing(|| "reading".into())?;
        self.make(run, (&tree, &files), &mut random).await.doing(|| "building".into())
    }

    /// Compiles each source with headers, and links the objects.
    async fn make<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        (tree, files): (&Tree, &[SourceFile]),
        random: &mut Pcg64Mcg,
    ) -> FsResult<()> {
        let is_source = |file: &&SourceFile| file.is_compiled();
        let sources: Vec<&SourceFile> = files.iter().filter(is_source).collect();
        let headers: Vec<&SourceFile> = files.iter().filter(|file| !is_source(file)).collect();
        let code = Bytes::new(self.files, 24 << 10);
        run.begin("make", sources.len() as u64 + 1);
        for source in &sources {
            read(run.fs(), tree.src, source.name().as_bytes(), UNIT, &mut |_, _| {}).await?;
            for _ in 0..self.includes.min(headers.len() as u64) {
                let header = headers[random.random_range(0..headers.len())].name();
                read(run.fs(), tree.src, header.as_bytes(), UNIT, &mut |_, _| {}).await?;
            }
            self.compute(run, COMPILE_US).await;
            let object = code.get(source.object_size());
            create(run.fs(), tree.obj, source.object().as_bytes(), object, UNIT).await?;
            run.log.made(1);
            run.step(source.size + source.object_size());
        }
        let mut program = Vec::new();
        for source in &sources {
            let object = source.object();
            read(run.fs(), tree.obj, object.as_bytes(), UNIT, &mut |_, piece| {
                program.extend_from_slice(piece);
            })
            .await?;
        }
        self.compute(run, LINK_US * sources.len() as u64).await;
        create(run.fs(), tree.copy, b"program", &program, UNIT).await?;
        run.log.made(1);
        run.step(program.len() as u64);
        run.end();
        Ok(())
    }

    async fn compute<S: WorkloadStage>(&self, run: &Run<'_, S>, micros: u64) {
        if self.compute {
            compute(run.stage.runtime(), micros).await;
        }
    }
}

/// Writes the sources.
async fn prepare<S: WorkloadStage>(
    run: &mut Run<'_, S>,
    files: &[SourceFile],
    bytes: &Bytes,
) -> FsResult<Ino> {
    run.begin("make the sources", files.len() as u64);
    let new = NewNode::directory(0o755);
    let from = run.fs().create(run.fs().root(), b"from", &new).await?.ino;
    for file in files {
        create(run.fs(), from, file.name().as_bytes(), bytes.get(file.size), UNIT).await?;
        run.log.made(1);
        run.step(file.size);
    }
    run.fs().sync().await?;
    run.end();
    Ok(from)
}

/// MakeDir: the directories of the copy.
async fn directories<S: WorkloadStage>(run: &mut Run<'_, S>, from: Ino) -> FsResult<Tree> {
    run.begin("make directories", 1 + SUBTREES * (1 + PARTS.len() as u64));
    let (fs, new) = (run.stage.fs(), NewNode::directory(0o755));
    let copy = fs.create(fs.root(), b"to", &new).await?.ino;
    let mut parts = Vec::new();
    for number in 0..SUBTREES {
        let tree = fs.create(copy, format!("tree{number}").as_bytes(), &new).await?.ino;
        for part in PARTS {
            parts.push(fs.create(tree, part.as_bytes(), &new).await?.ino);
        }
    }
    let made = 1 + SUBTREES + parts.len() as u64;
    run.log.made(made);
    run.log.reached(made, 0);
    run.end();
    Ok(Tree { from, copy, src: parts[0], obj: parts[1] })
}

/// Copy: each file is read and written.
async fn copy<S: WorkloadStage>(
    run: &mut Run<'_, S>,
    tree: &Tree,
    files: &[SourceFile],
) -> FsResult<()> {
    run.begin("copy", files.len() as u64);
    for file in files {
        let (name, mut contents) = (file.name(), Vec::new());
        let mut gather = |_: u64, piece: &[u8]| contents.extend_from_slice(piece);
        read(run.fs(), tree.from, name.as_bytes(), UNIT, &mut gather).await?;
        create(run.fs(), tree.src, name.as_bytes(), &contents, UNIT).await?;
        run.log.made(1);
        run.step(2 * file.size);
    }
    run.end();
    Ok(())
}

/// ScanDir: the attributes of everything in the copy, twice, as `find` and `ls` want them.
async fn scan<S: WorkloadStage>(run: &mut Run<'_, S>, tree: &Tree) -> FsResult<()> {
    run.begin("scan", 2);
    for _ in 0..2 {
        let mut rest = vec![tree.copy];
        while let Some(dir) = rest.pop() {
            for name in names(run.fs(), dir).await? {
                let found = run.fs().lookup(dir, &name).await?;
                if found.file_type == ordo_vfs::FileType::Directory {
                    rest.push(found.ino);
                }
            }
        }
        run.step(0);
    }
    run.end();
    Ok(())
}

/// ReadAll: every byte, twice, as `grep` and `wc` do.
async fn read_all<S: WorkloadStage>(
    run: &mut Run<'_, S>,
    tree: &Tree,
    files: &[SourceFile],
) -> FsResult<()> {
    run.begin("read", 2 * files.len() as u64);
    for file in files.iter().chain(files) {
        let name = file.name();
        let bytes = read(run.fs(), tree.src, name.as_bytes(), UNIT, &mut |_, _| {}).await?;
        run.step(bytes);
    }
    run.end();
    Ok(())
}

impl fmt::Display for AndrewLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == AndrewLike::USUAL {
            return write!(f, "andrew-like");
        }
        let AndrewLike { files, includes, compute } = self;
        let compute = if *compute { "yes" } else { "no" };
        write!(f, "andrew-like:files={files},includes={includes},compute={compute}")
    }
}

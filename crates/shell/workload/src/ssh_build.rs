//! Unpacking, configuring and building a program: journaling-versus-soft-updates-2000, section
//! 7.3.1 and Table 4.
//!
//! The paper builds ssh 1.2.26. Here a model of its phases does the same operations on the file
//! system: files are created, read and removed as by `tar`, `configure`, `make`, the compiler and
//! the linker, as a recording of a build of OpenSSH shows them (`crates/lab/figures/recordings`).
//! The computing itself is modelled as think time. The sizes of the sources are generated from the
//! seed. The amount of computing is chosen so that FFS without order takes about as long as the
//! paper's (1.02, 10.38 and 42.60 seconds), so only ratios between systems have a meaning.

use std::fmt;

use ordo_runtime::Duration;
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode, RenameMode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, random_size, read};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshBuild {
    /// Whether think time passes between operations.
    pub compute: bool,
    /// The headers of the program that each of its sources includes, with those that they include.
    pub includes: u64,
}

/// The directories of the sources, each with its number of files: the program, a library of large
/// integers with its parts, and a library for compression.
const DIRECTORIES: [(&str, u64); 9] = [
    ("ssh", 236),
    ("gmp", 44),
    ("gmp-mpn", 98),
    ("gmp-mpz", 96),
    ("gmp-mpf", 40),
    ("gmp-mpq", 18),
    ("rsaref", 26),
    ("zlib", 46),
    ("doc", 22),
];

/// The distribution of the sources' sizes.
const SIZES: [(u32, u64); 6] =
    [(10, 700), (35, 2 << 10), (70, 8 << 10), (92, 24 << 10), (98, 64 << 10), (100, 160 << 10)];

/// The small programs that `configure` compiles and runs.
const TESTS: u64 = 120;
/// The files that `configure` creates at its end.
const MADE_BY_CONFIGURE: u64 = 14;
/// The number of sources that are compiled.
const COMPILED: u64 = 260;
/// The number of the other files that are included.
const HEADERS: usize = 60;
/// The libraries and programs that are linked at the end, with their sizes.
const LINKED: [(&str, u64); 8] = [
    ("libgmp.a", 420 << 10),
    ("libz.a", 80 << 10),
    ("librsaref.a", 60 << 10),
    ("ssh1", 1300 << 10),
    ("sshd1", 1400 << 10),
    ("ssh-keygen1", 700 << 10),
    ("ssh-agent1", 720 << 10),
    ("scp1", 60 << 10),
];

/// The think time of each phase, in milliseconds: see the head of the module.
const UNPACK_MS: u64 = 810;
const CONFIG_MS: u64 = 10_100;
const BUILD_MS: u64 = 42_000;

/// The bytes of one call.
const UNIT: usize = 8192;

/// A source file.
struct SourceFile {
    dir: Ino,
    name: String,
    size: u64,
}

impl SshBuild {
    /// The paper's parameters.
    pub const PAPER: SshBuild = SshBuild { compute: true, includes: 20 };

    pub(super) fn describe(&self) -> String {
        let files: u64 = DIRECTORIES.iter().map(|(_, files)| files).sum();
        format!(
            "{files} sources unpacked, configured and built, as a program of the size of ssh is"
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        24 << 20
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let bytes = Bytes::new(seed, 1400 << 10);
        let sources = self.unpack(run, &mut random, &bytes).await?;
        self.configure(run, &mut random, &bytes, sources[0].dir).await?;
        self.build(run, &mut random, &bytes, &sources).await
    }

    /// Lets the processor compute for `micros` microseconds.
    async fn compute<S: WorkloadStage>(&self, run: &Run<'_, S>, micros: u64) {
        if self.compute {
            run.stage.runtime().sleep(Duration::from_micros(micros)).await;
        }
    }

    async fn unpack<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        random: &mut Pcg64Mcg,
        bytes: &Bytes,
    ) -> Result<Vec<SourceFile>, WorkloadError> {
        let count: u64 = DIRECTORIES.iter().map(|(_, files)| files).sum();
        run.begin("unpack", count);
        let root = run.fs().root();
        let mut sources = Vec::new();
        for (directory, files) in DIRECTORIES {
            let made =
                run.fs().create(root, directory.as_bytes(), &NewNode::directory(0o755)).await;
            let dir = made.doing(|| format!("making {directory}"))?.ino;
            for n in 0..files {
                let (name, size) = (format!("source{n}.c"), random_size(random, &SIZES, 100));
                self.compute(run, UNPACK_MS * 1000 / count).await;
                let made = create(run.fs(), dir, name.as_bytes(), bytes.get(size), UNIT).await;
                made.doing(|| format!("unpacking {directory}/{name}"))?;
                run.log.made(1);
                run.step(size);
                sources.push(SourceFile { dir, name, size });
            }
        }
        run.end();
        Ok(sources)
    }

    /// Writes, compiles, links, runs and removes each of the small programs.
    async fn configure<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        random: &mut Pcg64Mcg,
        bytes: &Bytes,
        dir: Ino,
    ) -> Result<(), WorkloadError> {
        run.begin("config", TESTS);
        let doing = || "configuring".to_owned();
        let new =
            async |name: &[u8], len| create(run.stage.fs(), dir, name, bytes.get(len), UNIT).await;
        let log = new(b"config.log", 200).await.doing(doing)?.ino;
        new(b"confdefs.h", 100).await.doing(doing)?;
        let mut configure =
            Configure { fs: run.stage.fs(), dir, bytes, log, logged: 200, defines: 100 };
        run.log.made(2);
        for number in 1..=TESTS {
            let test = Test::random(random);
            configure.write_test(&test).await.doing(doing)?;
            self.compute(run, CONFIG_MS * 1000 / TESTS / 2).await;
            configure.compile(&test).await.doing(doing)?;
            self.compute(run, CONFIG_MS * 1000 / TESTS / 2).await;
            configure.finish(&test).await.doing(doing)?;
            let others = [test.is_linked, test.is_object, test.is_filtered];
            run.log.made(2 + others.iter().filter(|made| **made).count() as u64);
            run.log.reached(number, 0);
        }
        for n in 0..MADE_BY_CONFIGURE {
            let name = format!("made{n}");
            let text = bytes.get(random.random_range(1 << 10..24 << 10));
            create(run.fs(), dir, name.as_bytes(), text, UNIT).await.doing(doing)?;
            run.log.made(1);
        }
        run.fs().unlink(dir, b"confdefs.h").await.doing(doing)?;
        run.end();
        Ok(())
    }

    /// Compiles the sources in order, then links the libraries and programs.
    async fn build<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        random: &mut Pcg64Mcg,
        bytes: &Bytes,
        sources: &[SourceFile],
    ) -> Result<(), WorkloadError> {
        run.begin("build", COMPILED + LINKED.len() as u64);
        let (compiled, others) = sources.split_at(COMPILED as usize);
        let headers = &others[..HEADERS];
        for source in compiled {
            let doing = || format!("compiling {}", source.name);
            let name = source.name.as_bytes();
            read(run.fs(), source.dir, name, UNIT, &mut |_, _| {}).await.doing(doing)?;
            self.compute(run, BUILD_MS * 900 / COMPILED).await;
            for _ in 0..self.includes {
                let header = &headers[random.random_range(0..headers.len())];
                let name = header.name.as_bytes();
                read(run.fs(), header.dir, name, UNIT, &mut |_, _| {}).await.doing(doing)?;
            }
            let object = source.name.replace(".c", ".o");
            let code = bytes.get(1200 + source.size * 3 / 4);
            create(run.fs(), source.dir, object.as_bytes(), code, UNIT).await.doing(doing)?;
            run.log.made(1);
            run.step(source.size);
        }
        for (n, (linked, size)) in LINKED.into_iter().enumerate() {
            let doing = || format!("linking {linked}");
            for source in compiled.iter().skip(n).step_by(LINKED.len() / 2) {
                let object = source.name.replace(".c", ".o");
                let object = object.as_bytes();
                read(run.fs(), source.dir, object, UNIT, &mut |_, _| {}).await.doing(doing)?;
            }
            self.compute(run, BUILD_MS * 100 / LINKED.len() as u64).await;
            let text = bytes.get(size);
            let dir = sources[0].dir;
            create(run.fs(), dir, linked.as_bytes(), text, UNIT).await.doing(doing)?;
            run.log.made(1);
            run.step(size);
        }
        run.end();
        Ok(())
    }
}

/// A test of `configure`. The shares are those of the recording, of 533 tests.
struct Test {
    /// The bytes of the program's text, and of its object.
    text: u64,
    object: u64,
    /// Whether a program is linked, or an object made; some tests only run the preprocessor.
    is_linked: bool,
    is_object: bool,
    /// Whether the compiler's messages are read, and whether they are filtered through another
    /// file.
    has_messages: bool,
    is_filtered: bool,
    /// Whether the result is a definition.
    is_defined: bool,
}

impl Test {
    fn random(random: &mut Pcg64Mcg) -> Test {
        let mut percent = |of: u32| random.random_range(0..100) < of;
        let is_linked = percent(56);
        Test {
            is_linked,
            is_object: !is_linked || percent(10),
            has_messages: percent(50),
            is_filtered: percent(40),
            is_defined: percent(75),
            text: random.random_range(80..600),
            object: random.random_range(600..1500),
        }
    }
}

/// The bytes of a linked test.
const LINKED_TEST: u64 = 18 << 10;
/// The bytes of a test's lines in the log, and of a definition.
const LOGGED: u64 = 120;
const DEFINITION: u64 = 26;

/// A `configure` at work.
struct Configure<'c, F> {
    fs: &'c F,
    dir: Ino,
    bytes: &'c Bytes,
    log: Ino,
    /// The bytes of the log, and of the definitions.
    logged: u64,
    defines: u64,
}

impl<F: FileSystem> Configure<'_, F> {
    async fn create(&self, name: &str, len: u64) -> FsResult<()> {
        create(self.fs, self.dir, name.as_bytes(), self.bytes.get(len), UNIT).await.map(drop)
    }

    async fn read(&self, name: &str) -> FsResult<u64> {
        read(self.fs, self.dir, name.as_bytes(), UNIT, &mut |_, _| {}).await
    }

    async fn remove(&self, name: &str) -> FsResult<()> {
        self.fs.unlink(self.dir, name.as_bytes()).await
    }

    /// The definitions so far, and the test's own text.
    async fn write_test(&self, test: &Test) -> FsResult<()> {
        let defines = self.read("confdefs.h").await?;
        self.create("conftest.c", defines + test.text).await
    }

    /// The compiler with its messages, and the linker.
    async fn compile(&mut self, test: &Test) -> FsResult<()> {
        self.create("conftest.err", if test.has_messages { 90 } else { 0 }).await?;
        self.read("conftest.c").await?;
        if test.is_object {
            self.create("conftest.o", test.object).await?;
        }
        if test.is_linked {
            self.create("conftest", LINKED_TEST).await?;
        }
        if test.is_filtered {
            self.create("conftest.er1", 80).await?;
            self.read("conftest.er1").await?;
            let (dir, mode) = (self.dir, RenameMode::Replace);
            self.fs.rename(dir, b"conftest.er1", dir, b"conftest.err", mode).await?;
        }
        if test.has_messages {
            self.read("conftest.err").await?;
        }
        Ok(())
    }

    /// The result, in the log and among the definitions; the test's files go.
    async fn finish(&mut self, test: &Test) -> FsResult<()> {
        if test.has_messages {
            // The text of a test that fails goes into the log.
            self.read("conftest.c").await?;
        }
        self.fs.write(self.log, self.logged, self.bytes.get(LOGGED)).await?;
        self.logged += LOGGED;
        if test.is_defined {
            let found = self.fs.lookup(self.dir, b"confdefs.h").await?;
            self.fs.open(found.ino).await?;
            let line = self.bytes.get(DEFINITION);
            let written = self.fs.write(found.ino, self.defines, line).await;
            self.fs.close(found.ino).await?;
            self.defines += written? as u64;
        }
        self.remove("conftest.c").await?;
        self.remove("conftest.err").await?;
        if test.is_object {
            self.remove("conftest.o").await?;
        }
        if test.is_linked {
            self.remove("conftest").await?;
        }
        Ok(())
    }
}

impl fmt::Display for SshBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == SshBuild::PAPER {
            return f.write_str("ssh-build");
        }
        let compute = if self.compute { "yes" } else { "no" };
        write!(f, "ssh-build:compute={compute},includes={}", self.includes)
    }
}

//! Unpacking, configuring and building a program: journaling-versus-soft-updates-2000, section 7.3.1 and Table 4.
//!
//! The paper builds ssh 1.2.26. Here a model of its phases does the same operations on the file system: files are
//! created, read and removed as by `tar`, `configure`, `make`, the compiler and the linker. The computing itself
//! is modelled as think time. The sizes of the sources are generated from the seed. The amount of computing is
//! chosen so that FFS without order takes about as long as the paper's (1.02, 10.38 and 42.60 seconds), so only
//! ratios between systems have a meaning.

use std::fmt;

use ordo_runtime::Duration;
use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, random_size, read};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshBuild {
    /// Whether think time passes between operations.
    pub compute: bool,
}

/// The directories of the sources, each with its number of files: the program, a library of large integers with
/// its parts, and a library for compression.
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
    pub const PAPER: SshBuild = SshBuild { compute: true };

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
        self.build(run, &bytes, &sources).await
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
        let new = |name: &'static [u8], len| create_in(dir, name, bytes.get(len));
        let log = new(b"config.log", 200).run(run).await?;
        let mut logged = 200;
        for _ in 0..TESTS {
            new(b"conftest.c", random.random_range(80..600)).run(run).await?;
            self.compute(run, CONFIG_MS * 1000 / TESTS / 2).await;
            new(b"conftest.o", random.random_range(600..1500)).run(run).await?;
            self.compute(run, CONFIG_MS * 1000 / TESTS / 2).await;
            new(b"conftest", 18 << 10).run(run).await?;
            for name in [&b"conftest.c"[..], b"conftest.o", b"conftest"] {
                run.fs().unlink(dir, name).await.doing(doing)?;
            }
            run.fs().write(log, logged, bytes.get(120)).await.doing(doing)?;
            logged += 120;
            run.step(0);
        }
        for n in 0..MADE_BY_CONFIGURE {
            let name = format!("made{n}");
            let text = bytes.get(random.random_range(1 << 10..24 << 10));
            create(run.fs(), dir, name.as_bytes(), text, UNIT).await.doing(doing)?;
            run.log.made(1);
        }
        run.end();
        Ok(())
    }

    /// Compiles the sources in order, then links the libraries and programs.
    async fn build<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        bytes: &Bytes,
        sources: &[SourceFile],
    ) -> Result<(), WorkloadError> {
        run.begin("build", COMPILED + LINKED.len() as u64);
        let compiled: Vec<&SourceFile> = sources.iter().take(COMPILED as usize).collect();
        for source in &compiled {
            let doing = || format!("compiling {}", source.name);
            let name = source.name.as_bytes();
            read(run.fs(), source.dir, name, UNIT, &mut |_, _| {}).await.doing(doing)?;
            self.compute(run, BUILD_MS * 900 / COMPILED).await;
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

/// A file that a phase creates.
struct NewFile<'a> {
    dir: Ino,
    name: &'static [u8],
    text: &'a [u8],
}

fn create_in<'a>(dir: Ino, name: &'static [u8], text: &'a [u8]) -> NewFile<'a> {
    NewFile { dir, name, text }
}

impl NewFile<'_> {
    async fn run<S: WorkloadStage>(&self, run: &mut Run<'_, S>) -> Result<Ino, WorkloadError> {
        let made = create(run.fs(), self.dir, self.name, self.text, UNIT).await;
        run.log.made(1);
        let made = made.doing(|| format!("making {}", String::from_utf8_lossy(self.name)))?;
        Ok(made.ino)
    }
}

impl fmt::Display for SshBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.compute { "ssh-build" } else { "ssh-build:compute=no" })
    }
}

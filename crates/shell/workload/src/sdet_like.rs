//! An SDET-like workload: users who each carry out a script of commands, all at once; the result is
//! scripts an hour.
//!
//! Public facts about SDET (spec.org, `sdet_descr.txt` and `sdet_command.txt`; "Soft Updates",
//! 2000, section 4.3): each user has a home directory with a tree of files, and a script with the
//! same commands as the others in another random order; the commands edit, compile, format, search,
//! copy and list. The numbers of commands, what each does with files, and its computing are Ordo's
//! own, in [`COMMANDS`]: the scripts of SPEC are not public.

use std::cell::RefCell;
use std::fmt;

use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::{FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, create};
use super::processor::compute;
use super::tally::Tally;
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The bytes of one call of a program.
const UNIT: usize = 8192;
/// The longest file, in bytes.
const LONGEST: u64 = 256 << 10;
/// The files of a home directory: a directory's name, the number of its files, their least and most
/// bytes.
const HOME: [(&str, usize, u64, u64); 3] =
    [("src", 12, 2 << 10, 12 << 10), ("doc", 6, 4 << 10, 16 << 10), ("bin", 4, 16 << 10, 32 << 10)];
/// The headers that all users' compilers read, and those that one compilation reads.
const HEADERS: usize = 10;
const HEADERS_READ: usize = 3;

/// A command of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// A file is read, kept in a temporary file, and written anew.
    Edit,
    /// A source and headers are read, and an object is written by way of a temporary file.
    Compile,
    /// All objects are read, and a program is written.
    Link,
    /// A file is copied to a new one.
    Copy,
    /// An empty file is created.
    Touch,
    /// A file that was copied or touched is removed.
    Remove,
    /// A file that was copied or touched gets another name.
    Move,
    /// A directory is created.
    MakeDirectory,
    /// A directory is removed.
    RemoveDirectory,
    /// A directory is listed with its files' attributes.
    List,
    /// The whole home is walked.
    Find,
    /// A directory's files are read.
    Search,
    /// Two files are read.
    Compare,
    /// A document is read, and a longer one is written.
    Format,
    /// A document is read, and two temporary files are written, read and removed.
    Spell,
    /// The home's sources are read, and an archive of them is written anew.
    Archive,
    /// A command that uses no files.
    Shell,
}

/// The commands of a script: each with its name, its number, and the computing of one on a 300 MHz
/// Pentium II, in microseconds. A millisecond of it is the start of a process; the rest is little,
/// since SDET's files are short.
const COMMANDS: [(Command, &str, usize, u64); 17] = [
    (Command::Edit, "edit", 15, 2000),
    (Command::Compile, "compile", 12, 15000),
    (Command::Link, "link", 3, 8000),
    (Command::Copy, "copy", 12, 1200),
    (Command::Touch, "touch", 8, 1000),
    (Command::Remove, "remove", 14, 1000),
    (Command::Move, "move", 6, 1000),
    (Command::MakeDirectory, "mkdir", 8, 1000),
    (Command::RemoveDirectory, "rmdir", 8, 1000),
    (Command::List, "list", 15, 1500),
    (Command::Find, "find", 6, 3000),
    (Command::Search, "search", 16, 2000),
    (Command::Compare, "compare", 5, 2000),
    (Command::Format, "format", 4, 10000),
    (Command::Spell, "spell", 4, 6000),
    (Command::Archive, "archive", 2, 5000),
    (Command::Shell, "shell", 20, 1200),
];

/// The number of commands of a script.
fn commands() -> u64 {
    COMMANDS.iter().map(|command| command.2 as u64).sum()
}

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdetLike {
    /// The number of users, each with one script.
    pub users: u64,
    /// Whether commands compute.
    pub compute: bool,
}

impl SdetLike {
    /// One user.
    pub const USUAL: SdetLike = SdetLike { users: 1, compute: true };

    pub(super) fn describe(&self) -> String {
        format!(
            "SDET-like: {} user(s) at once, each with a script of {} commands",
            self.users,
            commands()
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        self.users * (2 << 20) + (1 << 20)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let bytes = Bytes::new(seed, LONGEST as usize);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        run.begin("homes", self.users);
        let shared = Shared::create(run.fs(), &mut random, &bytes).await;
        let shared = shared.doing(|| "creating headers".into())?;
        let mut users = Vec::new();
        for number in 0..self.users {
            let own = Pcg64Mcg::seed_from_u64(seed.wrapping_add(1 + number));
            let user = User::create(run.fs(), number, own, &bytes).await;
            users.push(user.doing(|| format!("creating the home of user {number}"))?);
            run.step(0);
        }
        run.fs().sync().await.doing(|| "making the homes durable".into())?;
        run.end();

        let total = self.users * commands();
        run.begin("scripts", total);
        let (fs, runtime) = (run.stage.fs(), run.stage.runtime());
        let counts = RefCell::new([Tally::default(); COMMANDS.len()]);
        let log = RefCell::new(&mut run.log);
        let place = Place { fs, shared: &shared, bytes: &bytes };
        let scripts = users.into_iter().map(|mut user| {
            let (counts, log, place) = (&counts, &log, &place);
            async move {
                for number in user.script() {
                    let (command, name, _, micros) = COMMANDS[number];
                    let begun = runtime.now();
                    let done = user.carry_out(place, command).await;
                    let moved = done.doing(|| format!("command {name}"))?;
                    if self.compute {
                        compute(runtime, micros).await;
                    }
                    let nanos = runtime.now().as_nanos() - begun.as_nanos();
                    counts.borrow_mut()[number].add(moved, nanos);
                    let (done, bytes) = Tally::all(&*counts.borrow());
                    log.borrow_mut().reached_share(done, bytes, (done, total));
                }
                log.borrow_mut().made(user.made);
                Ok::<_, WorkloadError>(())
            }
        });
        buffer_unordered(self.users as usize, scripts, |_, result| result).await?;
        let named = COMMANDS.iter().zip(counts.into_inner());
        run.log.mix(named.map(|((_, name, ..), tally)| tally.entry(*name)).collect());
        run.end();
        Ok(())
    }
}

/// The parts of a run that all users share.
struct Place<'r, F> {
    fs: &'r F,
    shared: &'r Shared,
    bytes: &'r Bytes,
}

/// The directories that all users share.
struct Shared {
    headers: Ino,
    temporary: Ino,
}

impl Shared {
    async fn create<F: FileSystem>(
        fs: &F,
        random: &mut Pcg64Mcg,
        bytes: &Bytes,
    ) -> FsResult<Shared> {
        let new = NewNode::directory(0o755);
        let headers = fs.create(fs.root(), b"include", &new).await?.ino;
        for number in 0..HEADERS {
            let text = bytes.get(random.random_range(2 << 10..8 << 10));
            create(fs, headers, format!("header{number}.h").as_bytes(), text, UNIT).await?;
        }
        let temporary = fs.create(fs.root(), b"tmp", &new).await?.ino;
        Ok(Shared { headers, temporary })
    }
}

/// A user: the home directory, and what is in it.
struct User {
    number: u64,
    random: Pcg64Mcg,
    home: Ino,
    /// The directories of [`HOME`].
    places: Vec<Ino>,
    /// The names of copied and touched files, and of directories, in the home.
    extra: Vec<String>,
    directories: Vec<String>,
    next_name: u64,
    objects: Vec<String>,
    made: u64,
}

impl User {
    async fn create<F: FileSystem>(
        fs: &F,
        number: u64,
        random: Pcg64Mcg,
        bytes: &Bytes,
    ) -> FsResult<User> {
        let new = NewNode::directory(0o755);
        let home = fs.create(fs.root(), format!("user{number}").as_bytes(), &new).await?.ino;
        let mut user = User {
            number,
            random,
            home,
            places: Vec::new(),
            extra: Vec::new(),
            directories: Vec::new(),
            next_name: 0,
            objects: Vec::new(),
            made: 0,
        };
        for (name, count, least, most) in HOME {
            let place = fs.create(home, name.as_bytes(), &new).await?.ino;
            user.places.push(place);
            for file in 0..count {
                let text = bytes.get(user.random.random_range(least..most));
                create(fs, place, format!("{name}{file}").as_bytes(), text, UNIT).await?;
            }
        }
        Ok(user)
    }

    /// The numbers of the commands of the user's script, in an order of its own in which nothing is
    /// removed before it was made.
    fn script(&mut self) -> Vec<usize> {
        let all = COMMANDS.iter().enumerate();
        let mut script: Vec<usize> =
            all.flat_map(|(number, command)| vec![number; command.2]).collect();
        script.shuffle(&mut self.random);
        let (mut files, mut directories) = (0, 0);
        for at in 0..script.len() {
            let lacks = |command| match command {
                Command::Remove | Command::Move => files == 0,
                Command::RemoveDirectory => directories == 0,
                _ => false,
            };
            if lacks(COMMANDS[script[at]].0) {
                let later = (at + 1..script.len()).find(|n| match COMMANDS[script[at]].0 {
                    Command::RemoveDirectory => COMMANDS[script[*n]].0 == Command::MakeDirectory,
                    _ => COMMANDS[script[*n]].0 == Command::Copy,
                });
                script.swap(at, later.expect("more is made than removed"));
            }
            match COMMANDS[script[at]].0 {
                Command::Copy | Command::Touch => files += 1,
                Command::Remove => files -= 1,
                Command::MakeDirectory => directories += 1,
                Command::RemoveDirectory => directories -= 1,
                _ => {}
            }
        }
        script
    }

    fn new_name(&mut self, kind: &str) -> String {
        self.next_name += 1;
        self.made += 1;
        format!("{kind}{}", self.next_name)
    }

    /// A file of the home: its directory and its name.
    fn file(&mut self, place: usize) -> (Ino, String) {
        let (name, count, ..) = HOME[place];
        (self.places[place], format!("{name}{}", self.random.random_range(0..count)))
    }

    /// Carries out a command. Returns the bytes that it read and wrote.
    async fn carry_out<F: FileSystem>(
        &mut self,
        place: &Place<'_, F>,
        command: Command,
    ) -> FsResult<u64> {
        let Place { fs, .. } = *place;
        match command {
            Command::Edit => self.edit(place).await,
            Command::Compile => self.compile(place).await,
            Command::Link => self.link(place).await,
            Command::Copy => {
                let (dir, name) = self.file(0);
                let length = read(fs, dir, &name).await?;
                let copy = self.new_name("copy");
                create(fs, self.home, copy.as_bytes(), place.bytes.get(length), UNIT).await?;
                self.extra.push(copy);
                Ok(2 * length)
            }
            Command::Touch => {
                let name = self.new_name("touched");
                create(fs, self.home, name.as_bytes(), &[], UNIT).await?;
                self.extra.push(name);
                Ok(0)
            }
            Command::Remove => {
                let at = self.random.random_range(0..self.extra.len());
                fs.unlink(self.home, self.extra.swap_remove(at).as_bytes()).await.map(|()| 0)
            }
            Command::Move => {
                let at = self.random.random_range(0..self.extra.len());
                self.next_name += 1;
                let to = format!("moved{}", self.next_name);
                let from = std::mem::replace(&mut self.extra[at], to.clone());
                let (home, mode) = (self.home, RenameMode::Replace);
                fs.rename(home, from.as_bytes(), home, to.as_bytes(), mode).await.map(|()| 0)
            }
            Command::MakeDirectory => {
                let name = self.new_name("directory");
                fs.create(self.home, name.as_bytes(), &NewNode::directory(0o755)).await?;
                self.directories.push(name);
                Ok(0)
            }
            Command::RemoveDirectory => {
                let name = self.directories.pop().expect("one was made");
                fs.rmdir(self.home, name.as_bytes()).await.map(|()| 0)
            }
            Command::Format => {
                let (dir, name) = self.file(1);
                let length = read(fs, dir, &name).await?;
                let text = place.bytes.get(length * 3 / 2);
                self.write_anew(fs, self.home, "formatted", text).await?;
                Ok(length + text.len() as u64)
            }
            Command::Spell => self.spell(place).await,
            Command::Shell => Ok(0),
            _ => self.look(place, command).await,
        }
    }

    /// Carries out a command that looks at many files.
    async fn look<F: FileSystem>(
        &mut self,
        place: &Place<'_, F>,
        command: Command,
    ) -> FsResult<u64> {
        let fs = place.fs;
        let mut bytes = 0;
        match command {
            Command::List => {
                let dir = self.places[self.random.random_range(0..HOME.len())];
                for name in files::names(fs, dir).await? {
                    fs.lookup(dir, &name).await?;
                }
            }
            Command::Find => {
                let mut left = vec![self.home];
                while let Some(dir) = left.pop() {
                    for name in files::names(fs, dir).await? {
                        let attr = fs.lookup(dir, &name).await?;
                        left.extend((attr.file_type == FileType::Directory).then_some(attr.ino));
                    }
                }
            }
            Command::Search => {
                let (dir, name) = self.file(1);
                bytes += read(fs, dir, &name).await?;
                for _ in 0..4 {
                    let (dir, name) = self.file(0);
                    bytes += read(fs, dir, &name).await?;
                }
            }
            Command::Compare => {
                for _ in 0..2 {
                    let (dir, name) = self.file(0);
                    bytes += read(fs, dir, &name).await?;
                }
            }
            Command::Archive => {
                for number in 0..HOME[0].1 {
                    bytes += read(fs, self.places[0], &format!("src{number}")).await?;
                }
                let text = place.bytes.get(bytes.min(LONGEST));
                self.write_anew(fs, self.home, "archive", text).await?;
                bytes += text.len() as u64;
            }
            other => unreachable!("the caller has {other:?}"),
        }
        Ok(bytes)
    }

    async fn edit<F: FileSystem>(&mut self, place: &Place<'_, F>) -> FsResult<u64> {
        let fs = place.fs;
        let (dir, name) = self.file(0);
        let length = read(fs, dir, &name).await?;
        let kept = self.temporary(place, "edit", length).await?;
        let attr = fs.lookup(dir, name.as_bytes()).await?;
        let longer = (length + 40).min(LONGEST / 8);
        fs.setattr(attr.ino, &SetAttr { size: Some(0), ..SetAttr::default() }).await?;
        files::write(fs, attr.ino, 0, place.bytes.get(longer), UNIT).await?;
        fs.unlink(place.shared.temporary, kept.as_bytes()).await?;
        Ok(2 * length + longer)
    }

    async fn compile<F: FileSystem>(&mut self, place: &Place<'_, F>) -> FsResult<u64> {
        let fs = place.fs;
        let (dir, name) = self.file(0);
        let length = read(fs, dir, &name).await?;
        let mut bytes = length;
        for _ in 0..HEADERS_READ {
            let header = format!("header{}.h", self.random.random_range(0..HEADERS));
            bytes += read(fs, place.shared.headers, &header).await?;
        }
        let assembly = self.temporary(place, "assembly", length * 3 / 2).await?;
        bytes += length * 3 / 2 + read(fs, place.shared.temporary, &assembly).await?;
        let object = format!("{name}.o");
        self.write_anew(fs, dir, &object, place.bytes.get(length)).await?;
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        fs.unlink(place.shared.temporary, assembly.as_bytes()).await?;
        Ok(bytes + length)
    }

    async fn link<F: FileSystem>(&mut self, place: &Place<'_, F>) -> FsResult<u64> {
        let mut bytes = 0;
        for object in self.objects.clone() {
            bytes += read(place.fs, self.places[0], &object).await?;
        }
        let program = place.bytes.get((bytes + (16 << 10)).min(LONGEST));
        self.write_anew(place.fs, self.places[2], "program", program).await?;
        Ok(bytes + program.len() as u64)
    }

    async fn spell<F: FileSystem>(&mut self, place: &Place<'_, F>) -> FsResult<u64> {
        let fs = place.fs;
        let (dir, name) = self.file(1);
        let length = read(fs, dir, &name).await?;
        let mut bytes = length;
        for part in [length / 2, length / 4] {
            let words = self.temporary(place, "words", part).await?;
            bytes += part + read(fs, place.shared.temporary, &words).await?;
            fs.unlink(place.shared.temporary, words.as_bytes()).await?;
        }
        Ok(bytes)
    }

    /// Creates a temporary file. Returns its name.
    async fn temporary<F: FileSystem>(
        &mut self,
        place: &Place<'_, F>,
        kind: &str,
        length: u64,
    ) -> FsResult<String> {
        let own = self.new_name(kind);
        let name = format!("user{}-{own}", self.number);
        let text = place.bytes.get(length);
        create(place.fs, place.shared.temporary, name.as_bytes(), text, UNIT).await?;
        Ok(name)
    }

    /// Writes a file that may exist from its start.
    async fn write_anew<F: FileSystem>(
        &mut self,
        fs: &F,
        dir: Ino,
        name: &str,
        text: &[u8],
    ) -> FsResult<()> {
        match fs.lookup(dir, name.as_bytes()).await {
            Ok(attr) => {
                fs.setattr(attr.ino, &SetAttr { size: Some(0), ..SetAttr::default() }).await?;
                files::write(fs, attr.ino, 0, text, UNIT).await
            }
            Err(error) if error.errno == ordo_vfs::Errno::NotFound => {
                self.made += 1;
                create(fs, dir, name.as_bytes(), text, UNIT).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads a whole file. Returns its bytes.
async fn read<F: FileSystem>(fs: &F, dir: Ino, name: &str) -> FsResult<u64> {
    files::read(fs, dir, name.as_bytes(), UNIT, &mut |_, _| {}).await
}

impl fmt::Display for SdetLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compute = if self.compute { "yes" } else { "no" };
        match *self == SdetLike::USUAL {
            true => write!(f, "sdet-like"),
            false => write!(f, "sdet-like:users={},compute={compute}", self.users),
        }
    }
}

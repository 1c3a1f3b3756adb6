//! Parsing workloads from text.

use std::str::FromStr;

use super::sources::Benchmark;
use super::{
    AndrewLike, Calls, CreateDelete, Filebench, Generated, KernelBuild, MailServer, Micro, Netnews,
    Overwrite, PostMark, ReadCalls, SdetLike, SourceTree, Sources, SpecwebLike, SshBuild, Tpcb,
    TpccLike, WmlError, Workload,
};

/// The syntax of [`Workload::from_str`], for help texts.
pub const SYNTAX: &str = "\
create-delete[:files=N]
    empty files, each made and removed before the next (default 50000)
micro[:soft-updates|journaling][,total=BYTES][,files-min=N][,per-directory=N][,sizes=A+B+..]
    files of each size made, read, written and removed, caches emptied in between
postmark[:soft-updates|small|large][,files=N][,transactions=N][,directories=N][,min=BYTES]
        [,max=BYTES][,block=BYTES][,buffered=yes|no]
    Katcher's PostMark
tree:PATH
    a directory of the host copied in, read back and compared, removed
tree:seed=N[,files=N]
    the same with a tree generated from a seed, alike on every machine (default 4000 files)
sources[:processes=N][,copies=N][,files=N][,only=BENCHMARK]
    copies of a source tree unpacked, looked through, read, copied and removed, with cold caches (default
    one process, 4 copies of 12000 files); only=read-meta: that benchmark, on trees made by one process
ssh-build[:compute=yes|no][,includes=N]
    the sources of a program unpacked, configured and built
netnews[:files=N][,directories=N][,unbatch=N][,expire=N]
    a news server: articles that are there, come in and go (default 520000 in 7000 directories)
overwrite[:full=PERCENT][,size=BYTES][,block=BYTES][,warm=N][,writes=N][,hot=PERCENT][,burst=N]
        [,pause=MILLISECONDS]
    random overwrites on a file system kept this full; hot=90: nine of ten in a tenth of the files
tpcb[:accounts=BYTES][,warm=N][,transactions=N][,commit=N][,pool=BYTES]
    transactions like TPC-B's: random pages, a history, a log with fsync; pool=4m: the database's own cache
sdet-like[:users=N][,compute=yes|no]
    users at once, each with a script of commands that edit, compile, copy and search; SDET-like (default
    one user)
mail-server[:minutes=N][,messages=N][,users=N][,read=PERCENT][,sync-directories=yes|no]
    a mail server: messages a minute that are queued durably, delivered and read (default 120 for a day)
kernel-build[:processes=N][,files=N][,compiled=PERCENT][,includes=N][,commands=yes|no][,compute=yes|no]
    a kernel built from its sources: dependencies, compiling, linking (default 12000 files, one process)
andrew-like[:files=N][,includes=N][,compute=yes|no]
    the phases of the Andrew benchmark: directories made, sources copied, looked at, read and built (default 70
    files)
specweb-like[:directories=N][,requests=N][,clients=N][,dynamic=yes|no]
    a web server: clients read files and dynamic pages by SPECweb's classes and popularity, logs grow (default
    630 directories with 3 GB, 100 clients)
tpcc-like[:warehouses=N][,transactions=N][,clients=N][,pool=BYTES]
    transactions like TPC-C's: random pages of nine tables, a log with fsync (default 4 warehouses, 40 clients);
    pool=8m: the database's own cache
filebench:varmail|fileserver|webserver|oltp|FILE.f[,run=SECONDS][,VARIABLE=VALUE]
    many clients at once, by a personality of filebench: one of Ordo's, or a file in filebench's language
calls:FILE[,dir=DIR][,think=yes|no]
    recorded system calls: what strace -f -y -ttt -T wrote, or a trace of `ordo trace run --calls`; dir: the
    directory whose files count
Sizes take k, m or g: 64k, 4m.";

/// The reason why a text is not a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No workload has this name.
    #[error(
        "no workload is called '{0}'; there are create-delete, micro, postmark, tree:PATH, tree:seed=N, \
         sources, ssh-build, netnews, overwrite, tpcb, sdet-like, mail-server, kernel-build, andrew-like, specweb-like, \
         tpcc-like, calls:FILE and \
         filebench:PERSONALITY"
    )]
    Unknown(String),
    /// The workload has no parameter of this name.
    #[error("{workload} has no parameter '{parameter}'; it has {known}")]
    Parameter {
        /// The workload.
        workload: &'static str,
        /// The text of the user.
        parameter: String,
        /// The parameters that exist.
        known: &'static str,
    },
    /// The value does not fit the parameter.
    #[error("'{value}' is not a value for {parameter}: {expected}")]
    Value {
        /// The parameter.
        parameter: String,
        /// The text of the user.
        value: String,
        /// The values that would fit.
        expected: &'static str,
    },
    /// A tree has no path, or one that cannot be read.
    #[error("{0}")]
    Tree(String),
    /// No personality of filebench has this name.
    #[error(
        "no personality is called '{0}'; there are varmail, fileserver, webserver, oltp and files: \
         filebench:./mine.f"
    )]
    NoPersonality(String),
    /// The file of a personality cannot be read.
    #[error("{path}: {error}")]
    Personality {
        /// The file.
        path: String,
        /// The operating system's error.
        error: String,
    },
    /// Recorded calls cannot be read, or there are none.
    #[error("{file}: {reason}")]
    Calls {
        /// The file or the trace.
        file: String,
        /// The reason, with what to do.
        reason: String,
    },
    /// A personality is not in the part of WML that is read.
    #[error(transparent)]
    Wml(#[from] WmlError),
}

impl FromStr for Workload {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Workload, ParseError> {
        Workload::parse(text, &|_| Err("a recorded trace cannot be read here".into()))
    }
}

impl Workload {
    /// Parses a text in which `calls:` may name a recorded trace, whose calls `stored` reads.
    ///
    /// # Errors
    /// The text is not a workload's, or names files that cannot be read.
    pub fn parse(text: &str, stored: ReadCalls<'_>) -> Result<Workload, ParseError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "create-delete" => create_delete(rest).map(Workload::CreateDelete),
            "micro" => micro(rest).map(Workload::Micro),
            "postmark" => postmark(rest).map(Workload::PostMark),
            "tree" if rest.is_empty() => Err(ParseError::Tree(
                "tree needs a directory, or a seed: tree:/usr/include, tree:seed=1".into(),
            )),
            "tree" if rest.starts_with("seed=") => generated(rest).map(Workload::Tree),
            "tree" => SourceTree::new(rest)
                .map(Workload::Tree)
                .map_err(|e| ParseError::Tree(e.to_string())),
            "sources" => sources(rest).map(Workload::Sources),
            "ssh-build" => ssh_build(rest).map(Workload::SshBuild),
            "netnews" => netnews(rest).map(Workload::Netnews),
            "overwrite" => overwrite(rest).map(Workload::Overwrite),
            "tpcb" => tpcb(rest).map(Workload::Tpcb),
            "sdet-like" => sdet_like(rest).map(Workload::SdetLike),
            "mail-server" => mail_server(rest).map(Workload::MailServer),
            "kernel-build" => kernel_build(rest).map(Workload::KernelBuild),
            "andrew-like" => andrew_like(rest).map(Workload::AndrewLike),
            "specweb-like" => specweb_like(rest).map(Workload::SpecwebLike),
            "tpcc-like" => tpcc_like(rest).map(Workload::TpccLike),
            "calls" => Calls::parse(rest, stored).map(Workload::Calls),
            "filebench" => Filebench::parse(rest).map(Workload::Filebench),
            _ => Err(ParseError::Unknown(name.to_string())),
        }
    }
}

fn sources(rest: &str) -> Result<Sources, ParseError> {
    let mut out = Sources::PAPER;
    for (key, value) in parameters(rest) {
        let to = match key {
            "processes" => &mut out.processes,
            "copies" => &mut out.copies,
            "files" => &mut out.files,
            "only" => {
                let expected = "write-meta, read-write-meta, write-data-meta, read-meta, read-data-meta, \
                                read-write-data-meta or delete";
                let named = value.and_then(Benchmark::named);
                out.only = Some(named.ok_or_else(|| bad(key, value, expected))?);
                continue;
            }
            _ => return Err(unknown("sources", key, "processes, copies, files, only")),
        };
        *to = number(key, value, 1)?;
    }
    if out.processes > out.copies || out.copies > 100 || out.files > 100_000 {
        let most = "100 copies of 100,000 files, and no more processes than copies";
        return Err(bad("processes, copies or files", Some(rest), most));
    }
    Ok(out)
}

fn ssh_build(rest: &str) -> Result<SshBuild, ParseError> {
    let mut out = SshBuild::PAPER;
    for (key, value) in parameters(rest) {
        match key {
            "compute" => out.compute = yes_or_no(key, value)?,
            "includes" => out.includes = number(key, value, 0)?,
            _ => return Err(unknown("ssh-build", key, "compute, includes")),
        }
    }
    if out.includes > 10_000 {
        return Err(bad("includes", Some(&out.includes.to_string()), "10,000 at most"));
    }
    Ok(out)
}

fn netnews(rest: &str) -> Result<Netnews, ParseError> {
    let mut out = Netnews::PAPER;
    for (key, value) in parameters(rest) {
        match key {
            "files" => out.files = number(key, value, 1)?,
            "directories" => out.directories = number(key, value, 1)?,
            "unbatch" => out.unbatch = number(key, value, 0)?,
            "expire" => out.expire = number(key, value, 0)?,
            _ => {
                return Err(unknown("netnews", key, "files, directories, unbatch, expire"));
            }
        }
    }
    if out.files + out.unbatch > 100_000_000 || out.directories > 30_000 {
        return Err(bad(
            "files",
            Some(&out.files.to_string()),
            "100 million files, 30,000 directories",
        ));
    }
    if out.expire > out.files {
        return Err(bad(
            "expire",
            Some(&out.expire.to_string()),
            "as many as there are files, at most",
        ));
    }
    Ok(out)
}

fn overwrite(rest: &str) -> Result<Overwrite, ParseError> {
    let mut out = Overwrite::USUAL;
    for (key, value) in parameters(rest) {
        let to = match key {
            "full" => &mut out.full,
            "size" => &mut out.size,
            "block" => &mut out.block,
            "warm" => &mut out.warm,
            "writes" => &mut out.writes,
            "hot" => &mut out.hot,
            "burst" => &mut out.burst,
            "pause" => &mut out.pause,
            _ => {
                let known = "full, size, block, warm, writes, hot, burst, pause";
                return Err(unknown("overwrite", key, known));
            }
        };
        let least = u64::from(!matches!(key, "warm" | "writes" | "hot" | "pause"));
        *to = number(key, value, least)?;
    }
    if out.full > 100 || out.hot > 100 {
        return Err(bad("full or hot", Some(rest), "100 percent at most"));
    }
    if out.block > out.size || out.size > 1 << 30 {
        return Err(bad("size", Some(&out.size.to_string()), "a block or more, 1 GB at most"));
    }
    Ok(out)
}

fn tpcb(rest: &str) -> Result<Tpcb, ParseError> {
    let mut out = Tpcb::USUAL;
    for (key, value) in parameters(rest) {
        match key {
            "accounts" => out.accounts = number(key, value, 8192)?,
            "warm" => out.warm = number(key, value, 0)?,
            "transactions" => out.transactions = number(key, value, 0)?,
            "commit" => out.commit = number(key, value, 1)?,
            "pool" => out.pool = number(key, value, 0)?,
            _ => return Err(unknown("tpcb", key, "accounts, warm, transactions, commit, pool")),
        }
    }
    Ok(out)
}

fn sdet_like(rest: &str) -> Result<SdetLike, ParseError> {
    let mut out = SdetLike::USUAL;
    for (key, value) in parameters(rest) {
        match key {
            "users" => out.users = number(key, value, 1)?,
            "compute" => out.compute = yes_or_no(key, value)?,
            _ => return Err(unknown("sdet-like", key, "users, compute")),
        }
    }
    if out.users > 1000 {
        return Err(bad("users", Some(&out.users.to_string()), "1000 at most"));
    }
    Ok(out)
}

fn mail_server(rest: &str) -> Result<MailServer, ParseError> {
    let mut out = MailServer::DAY;
    for (key, value) in parameters(rest) {
        let (to, least) = match key {
            "minutes" => (&mut out.minutes, 1),
            "messages" => (&mut out.messages, 1),
            "users" => (&mut out.users, 1),
            "read" => (&mut out.read, 0),
            "sync-directories" => {
                out.sync_directories = yes_or_no(key, value)?;
                continue;
            }
            _ => {
                let known = "minutes, messages, users, read, sync-directories";
                return Err(unknown("mail-server", key, known));
            }
        };
        *to = number(key, value, least)?;
    }
    if out.read > 100 {
        return Err(bad("read", Some(&out.read.to_string()), "100 percent at most"));
    }
    if out.minutes > 1_000_000 || out.messages > 100_000 || out.users > 100_000 {
        let most = "1,000,000 minutes, 100,000 messages a minute and 100,000 users at most";
        return Err(bad("minutes, messages or users", Some(rest), most));
    }
    Ok(out)
}

fn kernel_build(rest: &str) -> Result<KernelBuild, ParseError> {
    let mut out = KernelBuild::USUAL;
    for (key, value) in parameters(rest) {
        match key {
            "processes" => out.processes = number(key, value, 1)?,
            "files" => out.files = number(key, value, 1)?,
            "compiled" => out.compiled = number(key, value, 1)?,
            "includes" => out.includes = number(key, value, 0)?,
            "commands" => out.commands = yes_or_no(key, value)?,
            "compute" => out.compute = yes_or_no(key, value)?,
            _ => {
                let known = "processes, files, compiled, includes, commands, compute";
                return Err(unknown("kernel-build", key, known));
            }
        }
    }
    if out.processes > 1000 || out.files > 1_000_000 || out.includes > 10_000 {
        let most = "1,000 processes, 1,000,000 files and 10,000 includes at most";
        return Err(bad("processes, files or includes", Some(rest), most));
    }
    if out.compiled > 100 {
        return Err(bad("compiled", Some(&out.compiled.to_string()), "100 percent at most"));
    }
    Ok(out)
}

fn andrew_like(rest: &str) -> Result<AndrewLike, ParseError> {
    let mut out = AndrewLike::USUAL;
    for (key, value) in parameters(rest) {
        match key {
            "files" => out.files = number(key, value, 1)?,
            "includes" => out.includes = number(key, value, 0)?,
            "compute" => out.compute = yes_or_no(key, value)?,
            _ => return Err(unknown("andrew-like", key, "files, includes, compute")),
        }
    }
    if out.files > 100_000 || out.includes > 10_000 {
        return Err(bad(
            "files or includes",
            Some(rest),
            "100,000 files and 10,000 includes at most",
        ));
    }
    Ok(out)
}

fn specweb_like(rest: &str) -> Result<SpecwebLike, ParseError> {
    let mut out = SpecwebLike::USUAL;
    for (key, value) in parameters(rest) {
        let (to, least) = match key {
            "directories" => (&mut out.directories, 1),
            "requests" => (&mut out.requests, 0),
            "clients" => (&mut out.clients, 1),
            "dynamic" => {
                out.dynamic = yes_or_no(key, value)?;
                continue;
            }
            _ => {
                return Err(unknown(
                    "specweb-like",
                    key,
                    "directories, requests, clients, dynamic",
                ));
            }
        };
        *to = number(key, value, least)?;
    }
    if out.directories > 1_000_000 || out.clients > 10_000 {
        let most = "1,000,000 directories and 10,000 clients at most";
        return Err(bad("directories or clients", Some(rest), most));
    }
    Ok(out)
}

fn tpcc_like(rest: &str) -> Result<TpccLike, ParseError> {
    let mut out = TpccLike::USUAL;
    for (key, value) in parameters(rest) {
        let (to, least) = match key {
            "warehouses" => (&mut out.warehouses, 1),
            "transactions" => (&mut out.transactions, 0),
            "clients" => (&mut out.clients, 1),
            "pool" => (&mut out.pool, 0),
            _ => return Err(unknown("tpcc-like", key, "warehouses, transactions, clients, pool")),
        };
        *to = number(key, value, least)?;
    }
    if out.warehouses > 1000 || out.clients > 10_000 {
        let most = "1,000 warehouses and 10,000 clients at most";
        return Err(bad("warehouses or clients", Some(rest), most));
    }
    Ok(out)
}

fn create_delete(rest: &str) -> Result<CreateDelete, ParseError> {
    let mut out = CreateDelete::PAPER;
    for (key, value) in parameters(rest) {
        match key {
            "files" => out.files = number(key, value, 1)?,
            _ => return Err(unknown("create-delete", key, "files")),
        }
    }
    Ok(out)
}

fn generated(rest: &str) -> Result<SourceTree, ParseError> {
    /// The most files of a generated tree: they are generated within a second or two, and fit into
    /// memory.
    const FILES_MAX: u64 = 50_000;
    let mut out = Generated { seed: 1, files: Generated::FILES };
    for (key, value) in parameters(rest) {
        match key {
            "seed" => out.seed = number(key, value, 0)?,
            "files" => out.files = number(key, value, 1)?,
            _ => return Err(unknown("tree", key, "seed, files")),
        }
    }
    if out.files > FILES_MAX {
        return Err(bad("files", Some(&out.files.to_string()), "50,000 at most"));
    }
    SourceTree::generated(out).map_err(|e| ParseError::Tree(e.to_string()))
}

fn micro(rest: &str) -> Result<Micro, ParseError> {
    let mut out = Micro::soft_updates();
    for (key, value) in parameters(rest) {
        match key {
            "soft-updates" if value.is_none() => out = Micro::soft_updates(),
            "journaling" if value.is_none() => out = Micro::journaling(),
            "total" => out.total = number(key, value, 1)?,
            "files-min" => out.files_min = number(key, value, 1)?,
            "per-directory" => out.files_per_directory = number(key, value, 1)?,
            "sizes" => {
                let sizes = value.unwrap_or("").split('+');
                out.sizes =
                    sizes.map(|s| number(key, Some(s), 1)).collect::<Result<_, ParseError>>()?;
            }
            _ => {
                let known = "soft-updates, journaling, total, files-min, per-directory, sizes";
                return Err(unknown("micro", key, known));
            }
        }
    }
    let largest = out.sizes.iter().max().copied().unwrap_or(0);
    if largest > 1 << 30 {
        return Err(bad("sizes", Some(&largest.to_string()), "files of 1 GB at most"));
    }
    Ok(out)
}

fn postmark(rest: &str) -> Result<PostMark, ParseError> {
    let mut out = PostMark::SOFT_UPDATES;
    for (key, value) in parameters(rest) {
        match key {
            "soft-updates" if value.is_none() => out = PostMark::SOFT_UPDATES,
            "small" if value.is_none() => out = PostMark::SMALL,
            "large" if value.is_none() => out = PostMark::LARGE,
            "files" => out.files = number(key, value, 1)?,
            "transactions" => out.transactions = number(key, value, 0)?,
            "directories" => out.directories = number(key, value, 0)?,
            "min" => out.size_min = number(key, value, 0)?,
            "max" => out.size_max = number(key, value, 1)?,
            "block" => out.block = number(key, value, 1)?,
            "buffered" => out.buffered = yes_or_no(key, value)?,
            _ => {
                let known = "soft-updates, small, large, files, transactions, directories, min, max, \
                             block, buffered";
                return Err(unknown("postmark", key, known));
            }
        }
    }
    if out.size_min > out.size_max || out.size_max > 1 << 30 {
        return Err(bad("max", Some(&out.size_max.to_string()), "min or more, 1 GB at most"));
    }
    if out.files > 100_000_000 {
        return Err(bad("files", Some(&out.files.to_string()), "100 million at most"));
    }
    Ok(out)
}

/// Splits `a,b=c` into pairs.
pub(super) fn parameters(rest: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    rest.split(',').filter(|p| !p.is_empty()).map(|p| match p.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (p, None),
    })
}

pub(super) fn number(parameter: &str, value: Option<&str>, min: u64) -> Result<u64, ParseError> {
    let expected = "a number, with k, m or g behind it if wanted";
    let wrong = || bad(parameter, value, expected);
    let text = value.ok_or_else(wrong)?;
    let (digits, shift) = match text.to_ascii_lowercase().strip_suffix(['k', 'm', 'g']) {
        Some(digits) => {
            let shift = match text.as_bytes()[text.len() - 1].to_ascii_lowercase() {
                b'k' => 10,
                b'm' => 20,
                _ => 30,
            };
            (digits.to_string(), shift)
        }
        None => (text.to_string(), 0),
    };
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    n.checked_mul(1 << shift).filter(|n| *n >= min).ok_or_else(wrong)
}

/// The value of a switch.
pub(super) fn yes_or_no(parameter: &str, value: Option<&str>) -> Result<bool, ParseError> {
    match value {
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        _ => Err(bad(parameter, value, "yes or no")),
    }
}

fn bad(parameter: &str, value: Option<&str>, expected: &'static str) -> ParseError {
    let value = value.unwrap_or("").to_string();
    ParseError::Value { parameter: parameter.to_string(), value, expected }
}

fn unknown(workload: &'static str, parameter: &str, known: &'static str) -> ParseError {
    ParseError::Parameter { workload, parameter: parameter.to_string(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        text.parse::<Workload>().unwrap_err().to_string()
    }

    #[test]
    fn a_workloads_name_parses_to_the_same_workload() {
        for text in [
            "create-delete",
            "create-delete:files=7",
            "micro",
            "micro:journaling",
            "micro:total=1024,files-min=3,per-directory=9,sizes=1+70000",
            "postmark",
            "postmark:small",
            "postmark:large",
            "postmark:files=5,transactions=6,directories=0,min=1,max=2,block=3,buffered=no",
            "tree:seed=3",
            "tree:seed=3,files=40",
            "sources",
            "sources:processes=2,copies=3,files=40",
            "sources:only=read-meta",
            "sources:processes=4,copies=4,files=12000,only=delete",
            "ssh-build",
            "ssh-build:compute=no,includes=20",
            "netnews",
            "netnews:files=9,directories=2,unbatch=3,expire=4",
            "overwrite",
            "overwrite:full=7,size=8192,block=512,warm=0,writes=3,hot=90,burst=2,pause=5",
            "tpcb",
            "tpcb:accounts=8192,warm=0,transactions=3,commit=2",
            "tpcb:accounts=65536,warm=0,transactions=3,commit=2,pool=16384",
            "sdet-like",
            "sdet-like:users=20,compute=no",
            "mail-server",
            "mail-server:minutes=5,messages=60,users=7,read=20",
            "mail-server:minutes=5,messages=60,users=7,read=0,sync-directories=yes",
            "kernel-build",
            "kernel-build:processes=4,files=40,compiled=7,includes=30,commands=yes,compute=no",
            "andrew-like",
            "andrew-like:files=9,includes=2,compute=no",
            "specweb-like",
            "specweb-like:directories=2,requests=30,clients=4",
            "specweb-like:directories=2,requests=30,clients=4,dynamic=no",
            "tpcc-like",
            "tpcc-like:warehouses=1,transactions=9,clients=3",
            "tpcc-like:warehouses=1,transactions=9,clients=3,pool=8192",
            "filebench:oltp,nshadows=3,run=2",
            "tree:/",
        ] {
            if text != "tree:/" {
                assert_eq!(workload(text).to_string(), text);
            }
        }
        assert_eq!(workload("postmark:soft-updates"), workload("postmark"));
        assert_eq!(workload("micro:total=32M,files-min=1"), workload("micro"));
    }

    #[test]
    fn parse_errors_list_the_possible_values() {
        assert!(refused("postmrk").contains("'postmrk'; there are create-delete, micro"));
        assert!(refused("micro:size=3").contains("no parameter 'size'; it has soft-updates"));
        assert!(
            refused("postmark:files=many").contains("'many' is not a value for files: a number")
        );
        assert!(refused("postmark:files=99999999999g").contains("not a value for files"));
        assert!(refused("postmark:min=3,max=2").contains("not a value for max: min or more"));
        assert!(refused("create-delete:files=0").contains("not a value for files"));
        assert!(refused("tree:seed=1,file=3").contains("no parameter 'file'; it has seed, files"));
        assert!(refused("tree:seed=x").contains("'x' is not a value for seed"));
        assert!(refused("tree:seed=1,files=9m").contains("50,000 at most"));
        assert!(refused("netnews:files=3,expire=4").contains("as many as there are files"));
        assert!(refused("overwrite:full=101").contains("100 percent"));
        assert!(refused("overwrite:size=1k").contains("a block or more"));
        assert!(refused("overwrite:heat=1").contains("no parameter 'heat'; it has full"));
        assert!(refused("tpcb:commit=0").contains("not a value for commit"));
        assert!(refused("sources:processes=5").contains("no more processes than copies"));
        assert!(refused("sources:only=read").contains("read-data-meta"));
        assert!(refused("ssh-build:compute=maybe").contains("yes or no"));
        assert!(refused("sdet-like:users=1001").contains("1000 at most"));
        assert!(refused("mail-server:mail=1").contains("no parameter 'mail'; it has minutes,"));
        assert!(refused("mail-server:read=101").contains("100 percent at most"));
        assert!(refused("andrew-like:files=0").contains("not a value for files"));
        assert!(refused("specweb-like:clients=0").contains("not a value for clients"));
        assert!(refused("tpcc-like:warehouses=1001").contains("1,000 warehouses"));
        assert!(refused("tree").contains("tree needs a directory"));
        assert!(refused("tree:/no/such").contains("no such file or directory: /no/such"));
    }
}

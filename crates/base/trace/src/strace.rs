//! The system calls of a program, as strace(1) prints them, with the paths of descriptors (`-y`)
//! and times (`-ttt -T`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The calls that strace records: those that change files or make changes durable. A question mark
/// marks calls that some processors lack.
pub const TRACED: &str = "?open,?creat,openat,close,write,pwrite64,writev,pwritev,?pwritev2,lseek,ftruncate,truncate,\
    fallocate,fsync,fdatasync,sync_file_range,msync,sync,syncfs,?rename,renameat,renameat2,?link,linkat,?symlink,\
    symlinkat,?unlink,unlinkat,?mkdir,mkdirat,?rmdir,copy_file_range,sendfile,chdir,fchdir";

/// The calls that read files, which strace records too when all of a program's calls are wanted.
pub const READS: &str = "read,pread64,readv,preadv,?preadv2";

/// A system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscall {
    /// The process or thread.
    pub pid: u32,
    /// The beginning, in nanoseconds of the clock of strace's times.
    pub began: i64,
    /// The end, in nanoseconds of the same clock.
    pub ended: i64,
    /// The call's name.
    pub name: String,
    /// The file, as a path below the directory; for a rename, the old name.
    pub file: Option<String>,
    /// A second path: the new name, the file that is copied from, or the file that a symbolic link
    /// leads to.
    pub other: Option<String>,
    /// The descriptor.
    pub fd: Option<i64>,
    /// The offset in the file, in bytes, if it is known.
    pub offset: Option<u64>,
    /// The number of bytes.
    pub len: u64,
    /// Flags, and other arguments that change the call's effect.
    pub flags: String,
    /// The error, if the call failed.
    pub error: Option<String>,
    /// The number that the call returned, if it succeeded and returned one.
    #[serde(default)]
    pub outcome: Option<i64>,
}

impl Syscall {
    /// Whether the call copies from its second file to its first one.
    pub fn is_copy(&self) -> bool {
        matches!(&*self.name, "copy_file_range" | "sendfile")
    }

    /// The call as a person would write it.
    pub fn text(&self) -> String {
        let file = self.file.as_deref().map(|f| if f.is_empty() { "." } else { f });
        let what = match (file, &self.other) {
            (Some(file), Some(from)) if self.is_copy() => format!("{from} -> {file}"),
            (Some(file), Some(other)) => format!("{file} -> {other}"),
            (Some(file), None) => file.to_owned(),
            (None, _) => String::new(),
        };
        let range = match (self.offset, self.len) {
            (Some(at), len) if len > 0 => format!(", bytes {at} to {}", at + len - 1),
            _ => String::new(),
        };
        let end = self.error.as_ref().map(|e| format!(" = {e}")).unwrap_or_default();
        format!("{}({what}{range}){end}", self.name)
    }
}

/// Parses strace's output. Only calls about files below `dir`, and calls about all files, are kept.
pub fn parse(text: &str, dir: &str) -> Vec<Syscall> {
    let mut reader =
        Reader { dir, unfinished: BTreeMap::new(), at: BTreeMap::new(), cwd: BTreeMap::new() };
    let mut calls: Vec<Syscall> = text.lines().filter_map(|line| reader.line(line)).collect();
    calls.sort_by_key(|call| (call.began, call.ended));
    let mut sizes = Sizes::default();
    calls.iter_mut().for_each(|call| sizes.place(call));
    calls.retain(|call| call.file.is_some() || matches!(&*call.name, "sync" | "syncfs"));
    calls
}

struct Reader<'a> {
    dir: &'a str,
    /// For each process, the beginning of a call that had not ended when it was printed: its time
    /// and text.
    unfinished: BTreeMap<u32, (i64, String)>,
    /// For each process, the time of its last line.
    at: BTreeMap<u32, i64>,
    cwd: BTreeMap<u32, String>,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Option<Syscall> {
        let (pid, rest) = line.trim_start().split_once(' ')?;
        let (time, rest) = rest.trim_start().split_once(' ')?;
        let (pid, at) = (pid.parse().ok()?, nanos(time)?);
        self.at.insert(pid, at);
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            self.unfinished.insert(pid, (at, begun.trim_end().to_owned()));
            return None;
        }
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let (began, begun) = self.unfinished.remove(&pid)?;
            let (_, rest) = resumed.split_once('>')?;
            return self.call(pid, (began, Some(at)), &format!("{begun}{rest}"));
        }
        self.call(pid, (at, None), rest)
    }

    fn call(
        &mut self,
        pid: u32,
        (began, heard): (i64, Option<i64>),
        text: &str,
    ) -> Option<Syscall> {
        let (name, rest) = text.split_once('(')?;
        let (args, result) = split_args(rest)?;
        let result = result.trim_start().strip_prefix('=')?.trim();
        let (result, took) = match result.rsplit_once(" <") {
            Some((result, took)) if took.ends_with('>') => {
                (result, nanos(took.trim_end_matches('>')).unwrap_or(0))
            }
            _ => (result, 0),
        };
        let ended = heard.unwrap_or(began).max(began + took);
        let error = result
            .starts_with("-1 ")
            .then(|| result[3..].split_whitespace().next().unwrap_or("an error").to_owned());
        let mut call = Syscall {
            pid,
            began,
            ended,
            name: name.trim().to_owned(),
            file: None,
            other: None,
            fd: None,
            offset: None,
            len: 0,
            flags: String::new(),
            outcome: match error {
                None => result.split(['<', ' ']).next().and_then(|number| number.parse().ok()),
                Some(_) => None,
            },
            error,
        };
        self.understand(&mut call, &args, result);
        Some(call)
    }

    fn understand(&mut self, call: &mut Syscall, args: &[String], result: &str) {
        let arg = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
        let (fd, path) = descriptor(arg(0));
        // A child begins in its parent's directory, which its first calls show.
        if let Some(path) = path.as_ref().filter(|_| arg(0).starts_with("AT_FDCWD")) {
            self.cwd.insert(call.pid, path.clone());
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let returned = result.split(['<', ' ']).next().and_then(number).unwrap_or(0);
        let pid = call.pid;
        match &*call.name {
            "copy_file_range" | "sendfile" => self.copy(call, args, returned),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.len = returned;
                if call.name.starts_with('p') {
                    call.offset = number(arg(3));
                }
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.len = returned;
                if call.name.starts_with('p') {
                    call.offset = number(arg(3));
                }
            }
            "fsync" | "fdatasync" | "syncfs" | "close" | "fallocate" | "sync_file_range" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
            }
            "lseek" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.offset = Some(returned);
            }
            "ftruncate" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.offset = number(arg(1));
            }
            "truncate" => {
                call.file = self.named(pid, "", arg(0));
                call.offset = number(arg(1));
            }
            "open" | "creat" | "openat" => self.open(call, args, result),
            "rename" | "link" => {
                (call.file, call.other) =
                    (self.named(pid, "", arg(0)), self.named(pid, "", arg(1)));
            }
            "renameat" | "renameat2" | "linkat" => {
                call.file = self.named(pid, arg(0), arg(1));
                call.other = self.named(pid, arg(2), arg(3));
                call.flags = arg(4).trim_matches('0').to_owned();
            }
            "symlink" => self.symlink(call, self.named(pid, "", arg(1)), arg(0)),
            "symlinkat" => self.symlink(call, self.named(pid, arg(1), arg(2)), arg(0)),
            "unlink" | "mkdir" | "rmdir" => call.file = self.named(pid, "", arg(0)),
            "mkdirat" => call.file = self.named(pid, arg(0), arg(1)),
            "unlinkat" => {
                call.file = self.named(pid, arg(0), arg(1));
                call.flags = arg(2).trim_matches('0').to_owned();
            }
            "chdir" if call.error.is_none() => {
                let to = self.absolute(pid, "", arg(0));
                self.cwd.insert(pid, to);
            }
            "fchdir" if call.error.is_none() => {
                path.map(|path| self.cwd.insert(pid, path));
            }
            _ => {}
        }
    }

    /// A file that is opened. One that is not there has the name by which it was wanted.
    fn open(&self, call: &mut Syscall, args: &[String], result: &str) {
        let arg = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
        let (dir, name) = if call.name == "openat" { (arg(0), 1) } else { ("", 0) };
        let (opened, path) = descriptor(result);
        (call.fd, call.file) = (opened, path.and_then(|p| self.below(&p)));
        call.flags = match &*call.name {
            "creat" => "O_CREAT|O_TRUNC".into(),
            _ => arg(name + 1).into(),
        };
        if call.error.is_some() {
            call.file = self.named(call.pid, dir, arg(name));
        }
    }

    /// A copy from one file to another. One to a file elsewhere, or to a connection, is a read.
    fn copy(&self, call: &mut Syscall, args: &[String], copied: u64) {
        let file = |n: usize| {
            let (fd, path) = descriptor(args.get(n).map(String::as_str).unwrap_or_default());
            (fd, path.and_then(|path| self.below(&path)))
        };
        let (from, to) = if call.name == "sendfile" { (1, 0) } else { (0, 2) };
        call.len = copied;
        (call.fd, call.file) = file(to);
        let (fd, source) = file(from);
        if call.file.is_some() {
            call.other = source;
        } else {
            let place = args.get(2).and_then(|at| at.strip_prefix('[')?.split(']').next());
            call.offset = place.and_then(|at| at.parse().ok());
            call.name = "read".to_owned();
            (call.fd, call.file) = (fd, source);
        }
    }

    /// A symbolic link, with the file that it leads to if that is below the directory.
    fn symlink(&self, call: &mut Syscall, file: Option<String>, target: &str) {
        let above =
            file.as_deref().and_then(|file| file.rsplit_once('/')).map_or("", |(dir, _)| dir);
        let from = format!("AT_FDCWD<{}/{above}>", self.dir);
        call.other = self.named(call.pid, &from, target);
        call.file = file;
    }

    /// The path below the directory; empty for the directory itself.
    fn below(&self, path: &str) -> Option<String> {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let rest = path.strip_prefix(self.dir)?;
        match rest.strip_prefix('/') {
            Some(rest) => Some(rest.to_owned()),
            None => rest.is_empty().then(String::new),
        }
    }

    fn absolute(&self, pid: u32, at: &str, quoted: &str) -> String {
        let name = unquoted(quoted);
        let base = match descriptor(at).1 {
            Some(path) => path,
            None => self.cwd.get(&pid).cloned().unwrap_or_else(|| self.dir.to_owned()),
        };
        let whole = if name.starts_with('/') { name } else { format!("{base}/{name}") };
        let mut parts: Vec<&str> = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    fn named(&self, pid: u32, at: &str, quoted: &str) -> Option<String> {
        self.below(&self.absolute(pid, at, quoted))
    }
}

/// Sizes of files and positions in them, as far as the calls show them.
#[derive(Default)]
struct Sizes {
    sizes: BTreeMap<String, u64>,
    places: BTreeMap<(i64, String), u64>,
    appending: BTreeMap<(i64, String), bool>,
}

impl Sizes {
    /// Fills in the offset at which a call writes.
    fn place(&mut self, call: &mut Syscall) {
        let Some(file) = call.file.clone().filter(|_| call.error.is_none()) else { return };
        let key = (call.fd.unwrap_or(-1), file.clone());
        match &*call.name {
            "open" | "creat" | "openat" => {
                // Descriptors of an earlier file of this name, which strace does not show when they
                // are copied, say nothing about a new one.
                let created = call.flags.contains("O_CREAT") && !self.sizes.contains_key(&file);
                if call.flags.contains("O_TRUNC") || created {
                    self.places.retain(|(_, name), _| *name != file);
                    self.appending.retain(|(_, name), _| *name != file);
                }
                if call.flags.contains("O_TRUNC") {
                    self.sizes.insert(file, 0);
                }
                self.appending.insert(key.clone(), call.flags.contains("O_APPEND"));
                self.places.insert(key, 0);
            }
            "lseek" => drop(self.places.insert(key, call.offset.unwrap_or(0))),
            "ftruncate" | "truncate" => drop(self.sizes.insert(file, call.offset.unwrap_or(0))),
            "write" | "writev" | "copy_file_range" | "sendfile" => {
                let size = self.sizes.entry(file).or_default();
                let at = match self.appending.get(&key) {
                    Some(true) => *size,
                    _ => self.places.get(&key).copied().unwrap_or(*size),
                };
                call.offset = Some(at);
                *size = (*size).max(at + call.len);
                self.places.insert(key, at + call.len);
            }
            "read" | "readv" => {
                // A sendfile with a place of its own leaves that of the descriptor.
                if call.offset.is_some() {
                    return;
                }
                let at = self.places.get(&key).copied();
                call.offset = at;
                if let Some(at) = at {
                    self.places.insert(key, at + call.len);
                }
            }
            "pwrite64" | "pwritev" | "pwritev2" => {
                let end = call.offset.unwrap_or(0) + call.len;
                let size = self.sizes.entry(file).or_default();
                *size = (*size).max(end);
            }
            "rename" | "renameat" | "renameat2" => {
                if let (Some(size), Some(to)) = (self.sizes.remove(&file), &call.other) {
                    self.sizes.insert(to.clone(), size);
                }
            }
            "unlink" | "unlinkat" => drop(self.sizes.remove(&file)),
            _ => {}
        }
    }
}

/// Seconds with a fraction, in nanoseconds.
fn nanos(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = seconds.parse().ok()?;
    let digits = format!("{fraction:0<9}");
    Some(seconds * 1_000_000_000 + digits.get(..9)?.parse::<i64>().ok()?)
}

/// Splits `3</path>` into number and path.
fn descriptor(text: &str) -> (Option<i64>, Option<String>) {
    let (number, rest) = text.split_once('<').unwrap_or((text, ""));
    let end = rest.rfind('>');
    let path = end.map(|end| rest[..end].to_owned()).filter(|path| path.starts_with('/'));
    (number.trim().parse().ok(), path)
}

fn unquoted(text: &str) -> String {
    let text = text.trim().trim_end_matches("...");
    text.trim_matches('"').replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Splits the arguments up to the closing parenthesis from the rest of the line.
fn split_args(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut args, mut one, mut depth, mut quoted) = (Vec::new(), String::new(), 0, false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if quoted {
            one.push(c);
            match c {
                '\\' => one.extend(chars.next().map(|(_, c)| c)),
                '"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => quoted = true,
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                args.push(one.trim().to_owned());
                return Some((args, &text[at + 1..]));
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                args.push(std::mem::take(&mut one).trim().to_owned());
                continue;
            }
            _ => {}
        }
        one.push(c);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
7 100.000001 openat(AT_FDCWD</m/top>, "a.tmp", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</m/top/a.tmp> <0.000020>
7 100.000100 write(3</m/top/a.tmp>, "x, \"y)\""..., 4096) = 4096 <0.000010>
8 100.000150 fsync(3</m/top/a.tmp> <unfinished ...>
7 100.000160 write(3</m/top/a.tmp>, "z", 1) = 1 <0.000010>
8 100.000900 <... fsync resumed>) = -1 EIO (Input/output error) <0.000750>
7 100.001000 rename("a.tmp", "sub/../a") = 0 <0.000005>
7 100.001100 write(1</dev/null>, "ok\n", 3) = 3 <0.000005>
7 100.001200 openat(AT_FDCWD</m/top>, "log", O_WRONLY|O_APPEND) = 4</m/top/log> <0.000020>
7 100.001300 write(4</m/top/log>, "12", 2) = 2 <0.000005>
7 100.001400 write(4</m/top/log>, "345", 3) = 3 <0.000005>
7 100.001500 fsync(5</m/top>) = 0 <0.000005>
7 100.001600 +++ exited with 0 +++
"#;

    /// Calls are read with paths, offsets and errors, and interrupted ones are joined. Calls
    /// outside the directory are left out.
    #[test]
    fn output_of_strace_is_parsed() {
        let calls = parse(TEXT, "/m/top");
        let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
        assert_eq!(
            texts,
            [
                "openat(a.tmp)",
                "write(a.tmp, bytes 0 to 4095)",
                "fsync(a.tmp) = EIO",
                "write(a.tmp, bytes 4096 to 4096)",
                "rename(a.tmp -> a)",
                "openat(log)",
                "write(log, bytes 0 to 1)",
                "write(log, bytes 2 to 4)",
                "fsync(.)",
            ]
        );
        assert_eq!(calls[2].ended - calls[2].began, 750_000);
        assert_eq!((calls[1].fd, calls[1].began), (Some(3), 100_000_100_000));
    }

    /// A shell copies descriptors, which the trace does not show. A new file begins at byte 0 all
    /// the same, whatever was written through that descriptor to an earlier file of its name.
    #[test]
    fn a_new_file_of_an_old_name_begins_at_its_start() {
        let round = |at: u32| {
            format!(
                "7 100.{at}1 openat(AT_FDCWD</m>, \"new\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</m/new> <0.000020>\n\
                 7 100.{at}2 write(1</m/new>, \"1\\n\", 2) = 2 <0.000010>\n\
                 7 100.{at}3 rename(\"/m/new\", \"/m/db\") = 0 <0.000005>\n"
            )
        };
        let calls = parse(&(round(1) + &round(2)), "/m");
        let texts: Vec<String> = calls.iter().map(Syscall::text).collect();
        let round = ["openat(new)", "write(new, bytes 0 to 1)", "rename(new -> db)"];
        assert_eq!(texts, [round, round].concat());
    }

    /// A copy names both files, and is a read where the copy goes to a connection.
    #[test]
    fn copies_have_two_files() {
        let text = "7 1.1 copy_file_range(3</m/a>, NULL, 4</m/b>, NULL, 9223372035781033984, 0) = 70 <0.1>\n\
            7 1.2 sendfile(5<socket:[9]>, 3</m/a>, [0] => [70], 70) = 70 <0.1>\n";
        let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
        assert_eq!(texts, ["copy_file_range(a -> b, bytes 0 to 69)", "read(a, bytes 0 to 69)"]);
    }

    /// A symbolic link leads to a file by its own directory, whatever the process's.
    #[test]
    fn symbolic_links_have_their_targets() {
        let text = "7 1.1 symlink(\"../b/c\", \"/m/a/l\") = 0 <0.1>\n\
            7 1.2 symlinkat(\"/m/b\", AT_FDCWD</m/a>, \"k\") = 0 <0.1>\n\
            7 1.3 symlink(\"/etc/passwd\", \"/m/a/e\") = 0 <0.1>\n";
        let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
        assert_eq!(texts, ["symlink(a/l -> b/c)", "symlinkat(a/k -> b)", "symlink(a/e)"]);
    }

    /// A child's relative names are below the directory that `AT_FDCWD` shows.
    #[test]
    fn a_childs_directory_is_learnt_from_its_calls() {
        let text = "9 1.1 openat(AT_FDCWD</m/sub>, \"/lib/c.so\", O_RDONLY) = 3</lib/c.so> <0.1>\n\
            9 1.2 unlink(\"./old\") = 0 <0.1>\n";
        let texts: Vec<String> = parse(text, "/m").iter().map(Syscall::text).collect();
        assert_eq!(texts, ["unlink(sub/old)"]);
    }

    /// Lines that are no calls, or are cut off, are skipped.
    #[test]
    fn damage_is_passed_over() {
        for text in ["", "x", "1 2", "1 2.0 open(", "1 2.0 write(3</m/top/a", "1 z write(3) = 1"] {
            assert!(parse(text, "/m/top").is_empty(), "{text}");
        }
    }
}

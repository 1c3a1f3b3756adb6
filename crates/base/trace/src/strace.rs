//! The system calls of a program, as strace(1) prints them, with the paths of descriptors (`-y`)
//! and times (`-ttt -T`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod memory;
#[cfg(test)]
mod tests;

use memory::{Descriptors, Mappings, hex};
pub use memory::{RING_CALL, RING_SEEN, RingRequest};

/// The calls that strace records: those that change files or make changes durable. A question mark
/// marks calls that some processors lack.
pub const TRACED: &str = "?open,?creat,openat,close,write,pwrite64,writev,pwritev,?pwritev2,lseek,ftruncate,truncate,\
    fallocate,fsync,fdatasync,sync_file_range,msync,sync,syncfs,?rename,renameat,renameat2,?link,linkat,?symlink,\
    symlinkat,?unlink,unlinkat,?mkdir,mkdirat,?rmdir,copy_file_range,sendfile,chdir,fchdir";

/// The calls that read files, which strace records too when all of a program's calls are wanted.
pub const READS: &str = "read,pread64,readv,preadv,?preadv2";

/// The calls that show changes beside [`TRACED`]: mappings of files, rings, modes, owners,
/// attributes.
pub const CHANGES: &str = "?mmap,?mmap2,munmap,mremap,?io_uring_setup,?chmod,fchmod,fchmodat,?chown,fchown,?lchown,\
    fchownat,setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,?mknod,mknodat";

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
    parse_with(text, dir, &Beside::default())
}

/// Facts that strace does not tell.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The files below the directory before the program began, with their sizes; `None` for a
    /// directory.
    pub existing: Vec<(String, Option<u64>)>,
    /// The requests of rings of io_uring; `None` if they could not be seen.
    pub rings: Option<Vec<RingRequest>>,
}

/// Parses strace's output as [`parse`] does, with what is known beside it. Each request of a ring
/// becomes a call whose name begins with [`RING_CALL`]; one about an unknown file has none.
pub fn parse_with(text: &str, dir: &str, beside: &Beside) -> Vec<Syscall> {
    let mut reader = Reader { dir, ..Reader::default() };
    let mut calls: Vec<Syscall> = text.lines().filter_map(|line| reader.line(line)).collect();
    for call in calls.iter_mut().filter(|call| call.name == "io_uring_setup") {
        call.flags = beside.rings.as_ref().map_or(String::new(), |_| RING_SEEN.to_owned());
    }
    // Rings serve sockets and files elsewhere too. Descriptors of these are known, or were never
    // seen below the directory.
    for request in beside.rings.iter().flatten() {
        let path =
            request.fd.and_then(|fd| reader.descriptors.file(request.pid, request.began, fd));
        let file = path.and_then(|path| reader.below(path));
        if file.is_some() || request.fd.is_none() {
            calls.push(request.call(file));
        }
    }
    calls.sort_by_key(|call| (call.began, call.ended));
    let mut sizes = Sizes::default();
    sizes
        .sizes
        .extend(beside.existing.iter().filter_map(|(path, size)| Some((path.clone(), (*size)?))));
    calls.iter_mut().for_each(|call| sizes.place(call));
    let is_general = |call: &Syscall| {
        matches!(&*call.name, "sync" | "syncfs") || call.name.starts_with(RING_CALL)
    };
    calls.retain(|call| call.file.is_some() || is_general(call));
    calls
}

#[derive(Default)]
struct Reader<'a> {
    dir: &'a str,
    /// For each process, the beginning of a call that had not ended when it was printed: its time
    /// and text.
    unfinished: BTreeMap<u32, (i64, String)>,
    /// For each process, the time of its last line.
    at: BTreeMap<u32, i64>,
    cwd: BTreeMap<u32, String>,
    mappings: Mappings,
    descriptors: Descriptors,
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
        if let (Some(fd), Some(path)) = (fd, path.as_ref().filter(|_| call.name != "close")) {
            self.descriptors.note(pid, call.began, fd, Some(path.clone()));
        }
        match &*call.name {
            "copy_file_range" | "sendfile" => self.copy(call, args, returned),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.len = returned;
                if call.name.starts_with('p') {
                    call.offset = number(arg(3));
                }
                call.flags = arg(4).trim_matches('0').to_owned();
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.len = returned;
                if call.name.starts_with('p') {
                    call.offset = number(arg(3));
                }
            }
            "fsync" | "fdatasync" | "syncfs" | "close" | "sync_file_range" | "fchmod"
            | "fchown" | "fsetxattr" | "fremovexattr" => {
                if let Some(fd) = fd.filter(|_| call.name == "close") {
                    self.descriptors.note(pid, call.ended, fd, None);
                }
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
            }
            "fallocate" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                (call.offset, call.len) = (number(arg(2)), number(arg(3)).unwrap_or(0));
                call.flags = arg(1).trim_matches('0').to_owned();
            }
            "mmap" | "mmap2" | "munmap" | "mremap" | "msync" => self.memory(call, args, result),
            "lseek" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.offset = Some(returned);
            }
            "ftruncate" => {
                (call.fd, call.file) = (fd, path.and_then(|p| self.below(&p)));
                call.offset = number(arg(1));
            }
            "open" | "creat" | "openat" => self.open(call, args, result),
            "chdir" if call.error.is_none() => {
                let to = self.absolute(pid, "", arg(0));
                self.cwd.insert(pid, to);
            }
            "fchdir" if call.error.is_none() => {
                path.map(|path| self.cwd.insert(pid, path));
            }
            _ => self.names(call, args),
        }
    }

    /// A call about names.
    fn names(&self, call: &mut Syscall, args: &[String]) {
        let arg = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
        let pid = call.pid;
        match &*call.name {
            "chmod" | "chown" | "lchown" | "setxattr" | "lsetxattr" | "removexattr"
            | "lremovexattr" | "mknod" => call.file = self.named(pid, "", arg(0)),
            "fchmodat" | "fchownat" | "mknodat" => call.file = self.named(pid, arg(0), arg(1)),
            "truncate" => {
                call.file = self.named(pid, "", arg(0));
                call.offset = arg(1).parse().ok();
            }
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
            _ => {}
        }
    }

    /// A call about mapped memory. Only shared mappings that may be written change files.
    fn memory(&mut self, call: &mut Syscall, args: &[String], result: &str) {
        let arg = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
        let (at, len) = (hex(arg(0)).unwrap_or(0), hex(arg(1)).unwrap_or(0));
        let to = result.split_whitespace().next().and_then(hex).filter(|_| call.error.is_none());
        match &*call.name {
            "mmap" | "mmap2" => {
                let is_written = arg(2).contains("PROT_WRITE") && arg(3).contains("MAP_SHARED");
                let (fd, path) = descriptor(arg(4));
                let (Some(to), Some(path), true) = (to, path, is_written) else { return };
                (call.fd, call.file) = (fd, self.below(&path));
                (call.offset, call.len) = (hex(arg(5)), len);
                call.name = "mmap".to_owned();
                self.mappings.add(call, to);
            }
            "munmap" if call.error.is_none() => {
                self.mappings.place(call, at, len);
                self.mappings.remove(call.pid, at);
            }
            "mremap" => {
                let longer = hex(arg(2)).unwrap_or(len);
                self.mappings.moved(call.pid, at, (to.unwrap_or(at), longer));
                self.mappings.place(call, to.unwrap_or(at), longer);
            }
            _ => {
                self.mappings.place(call, at, len);
                call.flags = arg(2).to_owned();
            }
        }
    }

    /// A file that is opened. One that is not there has the name by which it was wanted.
    fn open(&mut self, call: &mut Syscall, args: &[String], result: &str) {
        let arg = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
        let (dir, name) = if call.name == "openat" { (arg(0), 1) } else { ("", 0) };
        let (opened, path) = descriptor(result);
        if let Some(fd) = opened.filter(|_| call.error.is_none()) {
            self.descriptors.note(call.pid, call.began, fd, path.clone());
        }
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
        let path = self.absolute(pid, at, quoted);
        // A file without a name gets one by the name of its descriptor.
        let fd = path.strip_prefix("/proc/self/fd/").and_then(|fd| fd.parse().ok());
        let now = self.at.get(&pid).copied().unwrap_or(i64::MAX);
        let opened = fd.and_then(|fd| self.descriptors.file(pid, now, fd));
        self.below(opened.unwrap_or(&path))
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
    /// A write at the descriptor's place, or at the end.
    fn write(&mut self, call: &mut Syscall, key: (i64, String)) {
        let size = self.sizes.entry(key.1.clone()).or_default();
        let at = match self.appending.get(&key) {
            Some(true) => *size,
            _ => self.places.get(&key).copied().unwrap_or(*size),
        };
        call.offset = Some(at);
        *size = (*size).max(at + call.len);
        self.places.insert(key, at + call.len);
    }

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
            "fallocate" if !call.flags.contains("KEEP_SIZE") => {
                let size = self.sizes.entry(file).or_default();
                *size = (*size).max(call.offset.unwrap_or(0) + call.len);
            }
            "write" | "writev" | "copy_file_range" | "sendfile" => self.write(call, key),
            // Its offset of -1 is the descriptor's place.
            "pwritev2" if call.offset.is_none() => self.write(call, key),
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

//! Programs with one well-known mistake each, and their correct twins, in Rust:
//!
//!     mistakes NAME [twin]
//!
//! Each works in the current directory and promises by lines to `$ORDO_MARK`. `mistakes.py` has the
//! checks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;

const BLOCK: usize = 4096;
const ROUNDS: u32 = 3;

fn mark(words: &str, n: u32) -> io::Result<()> {
    let path = std::env::var_os("ORDO_MARK").ok_or(io::ErrorKind::NotFound)?;
    OpenOptions::new().write(true).open(path)?.write_all(format!("{words} {n}\n").as_bytes())
}

/// Blocks that all say which round they are of.
fn contents(n: u32) -> Vec<u8> {
    let mut piece = [b'.'; 16];
    piece[..4].copy_from_slice(&n.to_le_bytes());
    piece.repeat(3 * BLOCK / 16)
}

fn sync_dir() -> io::Result<()> {
    File::open(".")?.sync_all()
}

fn write(path: &str, n: u32, sync: bool) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&contents(n))?;
    if sync { file.sync_all() } else { Ok(()) }
}

/// A file is replaced by rename; nobody waits for its contents. (An fsync of the directory would
/// hide it where the journal writes contents first.)
fn rename_without_file_sync(twin: bool) -> io::Result<()> {
    for n in 1..=ROUNDS {
        mark("begin done", n)?;
        write("new", n, twin)?;
        fs::rename("new", "db")?;
        if twin {
            sync_dir()?;
        }
        mark("done", n)?;
        // Time in which the kernel may write what it has.
        std::thread::sleep(Duration::from_millis(120));
    }
    Ok(())
}

/// The program waits for the contents, and not for the rename.
fn rename_without_dir_sync(twin: bool) -> io::Result<()> {
    for n in 1..=ROUNDS {
        mark("begin done", n)?;
        write("new", n, true)?;
        fs::rename("new", "db")?;
        if twin {
            sync_dir()?;
        }
        mark("done", n)?;
    }
    Ok(())
}

/// A new directory is promised for which nobody waited: its name is all there is.
fn create_without_dir_sync(twin: bool) -> io::Result<()> {
    for n in 1..=ROUNDS {
        fs::create_dir(format!("item{n}"))?;
        if twin {
            sync_dir()?;
        }
        mark("done", n)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let twin = words.get(1).is_some_and(|word| word == "twin");
    match words.first().map(String::as_str) {
        Some("rename-without-file-sync") => rename_without_file_sync(twin),
        Some("rename-without-dir-sync") => rename_without_dir_sync(twin),
        Some("create-without-dir-sync") => create_without_dir_sync(twin),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

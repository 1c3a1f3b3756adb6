//! redb under the power cut: `redb-rounds setup|run|check immediate|none`, in the program's
//! directory.
//!
//! Its documentation says that a commit with `Durability::Immediate` is on the disk when it has
//! returned, and that one with `Durability::None` may be lost, together with those after it, until
//! the next one that is immediate.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("t");
const ROUNDS: u64 = 6;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let durable = words.get(1).is_none_or(|word| word != "none");
    let done = match words.first().map(String::as_str) {
        Some("setup") => setup(),
        Some("run") => run(durable),
        Some("check") => check(),
        _ => Err("redb-rounds setup|run|check immediate|none".into()),
    };
    if let Err(error) = done {
        println!("redb: {error}");
        std::process::exit(1);
    }
}

fn setup() -> Result<(), Box<dyn Error>> {
    let db = Database::create("db")?;
    let write = db.begin_write()?;
    write.open_table(TABLE)?;
    Ok(write.commit()?)
}

/// A commit a round, promised when it has returned.
fn run(durable: bool) -> Result<(), Box<dyn Error>> {
    let marks = std::env::var("ORDO_MARK")?;
    let db = Database::open("db")?;
    for n in 1..=ROUNDS {
        let mut write = db.begin_write()?;
        write.set_durability(if durable { Durability::Immediate } else { Durability::None })?;
        write.open_table(TABLE)?.insert(n, [b'x'; 3000].as_slice())?;
        write.commit()?;
        std::fs::write(&marks, format!("committed {n}\n"))?;
        std::thread::sleep(Duration::from_millis(30));
    }
    // A clean end would write what was never waited for.
    std::process::exit(0);
}

/// All rounds from 1 without gaps, those included that were promised, in a sound file.
fn check() -> Result<(), Box<dyn Error>> {
    let acked = std::fs::read_to_string(std::env::var("ORDO_ACKED")?)?;
    let last = acked.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).max();
    let mut db = Database::open("db")?;
    let mut found = Vec::new();
    {
        let read = db.begin_read()?;
        for row in read.open_table(TABLE)?.iter()? {
            let (key, value) = row?;
            if value.value() != [b'x'; 3000] {
                return Err(format!("round {} has other contents", key.value()).into());
            }
            found.push(key.value());
        }
    }
    db.check_integrity()?;
    let there = found.len() as u64;
    if !found.iter().copied().eq(1..=there) || there < last.unwrap_or(0) {
        return Err(format!("{} was committed, {found:?} are there", last.unwrap_or(0)).into());
    }
    Ok(())
}

//! A key-value store that is made durable by a write-ahead log.
//!
//! The store is a map in memory and a snapshot of it on the device; every change is a record in a
//! WAFS. A change is acknowledged when its record is durable. Opening reads the newest snapshot and
//! applies the records behind it, so a crash at any time loses no acknowledged change. When the log
//! is half full, a new snapshot is written and the log before it is freed.
//!
//! ```text
//! cargo run --example kv -- store.img set colour green
//! cargo run --example kv -- store.img get colour
//! cargo run --example kv            a demonstration: crashes at random, and what is there afterwards
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use ordo_block::file::{FileAccess, FileDisk};
use ordo_block::partition::Partition;
use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_runtime::{Executor, Runtime};
use ordo_wafs::{LogError, MkfsOptions, MountOptions, Wafs, mkfs};

type Map = BTreeMap<String, String>;

/// A store on a device: the log is in the first half, and two places for snapshots are in the rest.
struct Store<D> {
    disk: Rc<D>,
    log: Wafs,
    map: RefCell<Map>,
    /// The place to which the next snapshot goes: 0 or 1.
    next: RefCell<u64>,
}

impl<D: BlockDevice> Store<D> {
    async fn create(disk: &Rc<D>) -> Result<(), LogError> {
        let half = disk.geometry().bytes / 2;
        mkfs(&Partition::new(disk.clone(), 0, half).erase(), &MkfsOptions::default(), 0)
            .await
            .map(|_| ())
    }

    async fn open(rt: &Runtime, disk: Rc<D>) -> Result<Store<D>, LogError> {
        let half = disk.geometry().bytes / 2;
        let part = Partition::new(disk.clone(), 0, half);
        let log = Wafs::mount(rt, part, &MountOptions::grouped()).await?;
        let client = log.superblock().client;
        // The log's superblock names the snapshot to which the log's start belongs.
        let word = |i: usize| u64::from_le_bytes(client[i * 8..][..8].try_into().expect("8 bytes"));
        let (place, len) = (word(0), word(1) as usize);
        let mut map = Map::new();
        if len > 0 {
            let bytes = disk.read(place, len.next_multiple_of(512)).await?;
            let mut rest = &bytes[..len];
            while let Some((key, value, after)) = decode(rest) {
                map.insert(key, value.unwrap_or_default());
                rest = after;
            }
        }
        let mut reader = log.reader(log.start());
        while let Some(record) = reader.next().await? {
            if let Some((key, value, _)) = decode(&record.bytes) {
                match value {
                    Some(value) => map.insert(key, value),
                    None => map.remove(&key),
                };
            }
        }
        let next = if place == half { half + half / 2 } else { half };
        let next = next / 512 * 512;
        Ok(Store { disk, log, map: RefCell::new(map), next: RefCell::new(next) })
    }

    fn get(&self, key: &str) -> Option<String> {
        self.map.borrow().get(key).cloned()
    }

    /// Sets a key, or removes it. The change is durable on return; concurrent callers share a write
    /// of the log.
    async fn set(&self, key: &str, value: Option<&str>) -> Result<(), LogError> {
        if self.log.free_space() < self.log.capacity() / 2 {
            self.snapshot().await?;
        }
        // The record is appended before the map changes, with no await between the two, so the log
        // has the order that readers saw.
        let at = self.log.append(&encode(key, value))?;
        match value {
            Some(value) => self.map.borrow_mut().insert(key.into(), value.into()),
            None => self.map.borrow_mut().remove(key),
        };
        self.log.force(at.end).await
    }

    async fn snapshot(&self) -> Result<(), LogError> {
        let end = self.log.end();
        let bytes: Vec<u8> =
            self.map.borrow().iter().flat_map(|(k, v)| encode(k, Some(v))).collect();
        let place = *self.next.borrow();
        let mut image = IoBuf::zeroed(bytes.len().next_multiple_of(512));
        image[..bytes.len()].copy_from_slice(&bytes);
        if !image.is_empty() {
            self.disk.write(place, image, WriteFlags::empty()).await?;
        }
        self.disk.flush().await?;
        self.log.force(end).await?;
        self.log.truncate(end);
        let mut client = [0; 64];
        client[..8].copy_from_slice(&place.to_le_bytes());
        client[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        // The superblock is one sector, written wholly or not at all: after a crash the store has
        // the old snapshot and its log, or the new ones.
        self.log.checkpoint(Some(client)).await?;
        let half = self.disk.geometry().bytes / 2 / 512 * 512;
        let other = (half + half / 2) / 512 * 512;
        *self.next.borrow_mut() = if place == half { other } else { half };
        Ok(())
    }
}

/// An encoded change: the key's length, the value's length plus one (0 for a removal), then both.
fn encode(key: &str, value: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&value.map_or(0, |v| v.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.unwrap_or_default().as_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<(String, Option<String>, &[u8])> {
    let key_len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let value_len = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    let text = |at: usize, len: usize| {
        Some(String::from_utf8_lossy(bytes.get(at..at + len)?).into_owned())
    };
    let key = text(8, key_len)?;
    let value = match value_len {
        0 => None,
        len => Some(text(8 + key_len, len - 1)?),
    };
    Some((key, value, &bytes[8 + key_len + value_len.saturating_sub(1)..]))
}

/// Crashes at random; every acknowledged change must be there afterwards.
fn demonstrate() {
    let mut disk = RamDisk::new(256 << 10);
    let executor = Executor::simulated(1);
    let made = Rc::new(disk);
    executor.block_on(Store::create(&made)).expect("no deadlock").expect("room for a log");
    disk = made.snapshot();
    let mut acknowledged = Map::new();
    let mut sets = 0;
    for life in 0..50u64 {
        let executor = Executor::simulated(life);
        let rt = executor.runtime();
        let cache = Rc::new(VolatileCache::new(disk));
        let done = executor.block_on(async {
            let store = Store::open(&rt, cache.clone()).await?;
            for (key, value) in &acknowledged {
                assert_eq!(store.get(key).as_ref(), Some(value), "life {life}");
            }
            for _ in 0..rt.random_below(200) {
                let key = format!("key-{}", rt.random_below(40));
                let value = format!("{:x}", rt.random_u64()).repeat(3);
                store.set(&key, Some(&value)).await?;
                acknowledged.insert(key, value);
                sets += 1;
            }
            Ok::<_, LogError>(())
        });
        done.expect("no deadlock").expect("the device works");
        drop(executor);
        disk = cache.crash_image_seeded(Loss::Subset, life);
    }
    println!("{sets} changes acknowledged, 50 crashes, {} keys, none lost", acknowledged.len());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (path, command) = match words.split_first() {
        None => {
            demonstrate();
            return Ok(());
        }
        Some((path, command)) => (Path::new(*path), command),
    };
    let executor = Executor::real(1);
    let rt = executor.runtime();
    executor.block_on(async {
        let fresh = !path.exists();
        let disk = match fresh {
            true => FileDisk::create(&rt, path, 4 << 20)?,
            false => FileDisk::open(&rt, path, FileAccess::ReadWrite)?,
        };
        let disk = Rc::new(disk);
        if fresh {
            Store::create(&disk).await?;
        }
        let store = Store::open(&rt, disk).await?;
        match command {
            ["get", key] => println!("{}", store.get(key).unwrap_or_default()),
            ["set", key, value] => store.set(key, Some(value)).await?,
            ["remove", key] => store.set(key, None).await?,
            ["list"] => {
                for (key, value) in store.map.borrow().iter() {
                    println!("{key} {value}");
                }
            }
            _ => println!("usage: kv STORE get KEY | set KEY VALUE | remove KEY | list"),
        }
        Ok(())
    })?
}

#[test]
fn nothing_acknowledged_is_lost() {
    demonstrate();
}

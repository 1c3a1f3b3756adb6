//! The contents of a device in words, by their signatures.

use anyhow::{Result, bail};
use ordo_block::{BlockDevice, Device};
use ordo_format::signature::{Contents, Found, find, ranges};
use ordo_report::number;
use ordo_systems::{FORMATS, Format, probe};

/// The most bytes of a read.
const PIECE: usize = 1 << 20;

/// Reads the parts of a device in which signatures may be.
///
/// # Errors
/// The device failed.
pub async fn read(disk: &Device) -> Result<Contents> {
    let size = disk.geometry().bytes;
    let mut pieces = Vec::new();
    for (at, len) in ranges(size) {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = (len - bytes.len()).min(PIECE);
            bytes.extend_from_slice(&disk.read(at + bytes.len() as u64, next).await?);
        }
        pieces.push((at, bytes));
    }
    Ok(Contents::new(size, pieces))
}

/// The nouns of signatures with their places: "a GPT partition table (bytes 512 and 1,048,064) and
/// swap space (byte 4,086)".
pub fn named(found: &[Found]) -> String {
    let all: Vec<String> = nouns(found).iter().map(|noun| named_one(noun, found)).collect();
    listed(&all)
}

fn nouns(found: &[Found]) -> Vec<&'static str> {
    let mut nouns = Vec::new();
    for Found { noun, .. } in found {
        if !nouns.contains(noun) {
            nouns.push(*noun);
        }
    }
    nouns
}

fn named_one(noun: &str, found: &[Found]) -> String {
    let places: Vec<u64> = found.iter().filter(|f| f.noun == noun).map(|f| f.offset).collect();
    let mut shown: Vec<String> = places.iter().take(2).map(|at| number::count(*at)).collect();
    if places.len() > 2 {
        shown.push(format!("{} more", places.len() - 2));
    }
    let bytes = if places.len() == 1 { "byte" } else { "bytes" };
    format!("{noun} ({bytes} {})", listed(&shown))
}

/// Words as a list: "a, b and c".
fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// The nouns of a device's contents, without their places; empty if nothing is recognised.
///
/// # Errors
/// The device failed.
pub async fn recognised(disk: &Device) -> Result<String> {
    let words: Vec<String> =
        nouns(&find(&read(disk).await?)).into_iter().map(str::to_owned).collect();
    Ok(listed(&words))
}

/// The format of a device that is to be read.
///
/// # Errors
/// The device holds none of the formats: the error says what it holds, and where a copy of a
/// superblock is. Or the device failed.
pub async fn format(disk: &Device) -> Result<&'static dyn Format> {
    if let Some(format) = probe(disk).await? {
        return Ok(format);
    }
    match ordo_check::find_copy(disk).await? {
        Some(at) => bail!(
            "the superblock of a UFS file system is destroyed, but a copy of it is at byte {} \
             (sector {}); ordo fsck -y restores it, ordo export --rescue needs none",
            number::count(at),
            at / 512
        ),
        None => without_superblock(disk).await,
    }
}

/// The format of a device that is to be checked. A check can begin with a copy of a superblock.
///
/// # Errors
/// As for [`format`], but for a device with a copy of a superblock.
pub async fn format_to_check(disk: &Device) -> Result<&'static dyn Format> {
    if let Some(format) = probe(disk).await? {
        return Ok(format);
    }
    match ordo_check::find_copy(disk).await? {
        Some(_) => Ok(FORMATS[0]),
        None => without_superblock(disk).await,
    }
}

/// The first format for a device that has a superblock of UFS which no format takes, and of which
/// the format itself says best what is wrong.
async fn without_superblock(disk: &Device) -> Result<&'static dyn Format> {
    let contents = read(disk).await?;
    let found = find(&contents);
    if found.iter().any(|found| found.noun.contains("UFS")) {
        return Ok(FORMATS[0]);
    }
    let formats = "not UFS, LFS or DualFS, nor a copy of a superblock of UFS";
    match contents.first_byte() {
        _ if !found.is_empty() => bail!("holds {}, {formats}", named(&found)),
        None => bail!("is empty: all bytes that were read are zero"),
        Some(_) => bail!("holds nothing that Ordo knows: {formats}"),
    }
}

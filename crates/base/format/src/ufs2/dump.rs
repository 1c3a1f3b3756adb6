//! Superblock and groups as text, in the manner of dumpfs.

use std::fmt::Write as _;

use super::superblock::{self as s, Superblock};
use super::{Csum, Group, bitmap};
use crate::Endian;
use crate::calendar::Date;

/// Names and values that share a line.
type Row = Vec<(&'static str, String)>;

fn n(value: impl Into<i64>) -> String {
    value.into().to_string()
}

/// The superblock in two dozen lines.
pub fn superblock(sb: &Superblock, endian: Endian) -> String {
    let mut out = String::new();
    for row in [identity(sb, endian), sizes(sb), places(sb)].concat() {
        let mut text = String::new();
        for (name, value) in row {
            let item = format!("{name} {value}");
            let _ = write!(text, "{item:<26}");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// The identity of the file system.
fn identity(sb: &Superblock, endian: Endian) -> Vec<Row> {
    let order = match endian {
        Endian::Little => "little",
        Endian::Big => "big",
    };
    let kind = sb.format_name();
    vec![
        vec![("magic", format!("{:x} ({kind}, {order}-endian)", sb.magic)), ("", time(sb.time))],
        vec![
            ("location", n(sb.sblockloc)),
            ("id", format!("{:08x} {:08x}", sb.id[0], sb.id[1])),
            ("swuid", sb.swuid.to_string()),
        ],
        vec![("ncg", n(sb.ncg)), ("size", n(sb.size)), ("blocks", n(sb.dsize))],
    ]
}

/// Sizes and free space.
fn sizes(sb: &Superblock) -> Vec<Row> {
    let optim = if sb.optim == s::OPT_TIME { "time" } else { "space" };
    let total = &sb.cstotal;
    vec![
        vec![
            ("bsize", n(sb.bsize)),
            ("shift", n(sb.bshift)),
            ("mask", format!("{:#010x}", sb.bmask)),
        ],
        vec![
            ("fsize", n(sb.fsize)),
            ("shift", n(sb.fshift)),
            ("mask", format!("{:#010x}", sb.fmask)),
        ],
        vec![("frag", n(sb.frag)), ("shift", n(sb.fragshift)), ("fsbtodb", n(sb.fsbtodb))],
        vec![
            ("minfree", format!("{}%", sb.minfree)),
            ("optim", optim.into()),
            ("symlinklen", n(sb.maxsymlinklen)),
        ],
        vec![
            ("maxbsize", n(sb.maxbsize)),
            ("maxbpg", n(sb.maxbpg)),
            ("maxcontig", n(sb.maxcontig)),
            ("contigsumsize", n(sb.contigsumsize)),
        ],
        vec![
            ("nbfree", n(total.nbfree)),
            ("ndir", n(total.ndir)),
            ("nifree", n(total.nifree)),
            ("nffree", n(total.nffree)),
        ],
        vec![
            ("bpg", n(sb.fpg >> sb.fragshift)),
            ("fpg", n(sb.fpg)),
            ("ipg", n(sb.ipg)),
            ("unrefs", n(sb.unrefs)),
        ],
    ]
}

/// The places of structures, and the file system's state.
fn places(sb: &Superblock) -> Vec<Row> {
    vec![
        vec![
            ("nindir", n(sb.nindir)),
            ("inopb", n(sb.inopb)),
            ("maxfilesize", sb.maxfilesize.to_string()),
        ],
        vec![
            ("sbsize", n(sb.sbsize)),
            ("cgsize", n(sb.cgsize)),
            ("csaddr", n(sb.csaddr)),
            ("cssize", n(sb.cssize)),
        ],
        vec![
            ("sblkno", n(sb.sblkno)),
            ("cblkno", n(sb.cblkno)),
            ("iblkno", n(sb.iblkno)),
            ("dblkno", n(sb.dblkno)),
        ],
        vec![
            ("cgrotor", n(sb.cgrotor)),
            ("fmod", n(sb.fmod)),
            ("ronly", n(sb.ronly)),
            ("clean", n(sb.clean)),
        ],
        vec![
            ("metaspace", n(sb.metaspace)),
            ("avgfpdir", n(sb.avgfpdir)),
            ("avgfilesize", n(sb.avgfilesize)),
        ],
        vec![("pendingblocks", n(sb.pendingblocks)), ("pendinginodes", n(sb.pendinginodes))],
        vec![("flags", flags(sb))],
        vec![("check hashes", hashes(sb))],
        vec![("volname", text(&sb.volname)), ("fsmnt", text(&sb.fsmnt))],
        vec![("providersize", n(sb.providersize))],
    ]
}

/// The summary area, with one entry for each group.
pub fn summary(entries: &[Csum]) -> String {
    let mut out = String::from("cs[].(nbfree,ndir,nifree,nffree):\n");
    for row in entries.chunks(4) {
        let row: Vec<_> = row
            .iter()
            .map(|c| format!("({},{},{},{})", c.nbfree, c.ndir, c.nifree, c.nffree))
            .collect();
        let _ = writeln!(out, "    {}", row.join(" "));
    }
    out
}

/// A group's header with its bitmaps. `bytes` are those from which `group` was read.
pub fn group(sb: &Superblock, group: &Group, bytes: &[u8], endian: Endian) -> String {
    let layout = group.layout(sb);
    let at = sb.byte_of(sb.cg_header(group.cgx));
    let mut out = format!("cg {}:\n", group.cgx);
    let _ = writeln!(out, "magic {:x}  at byte {at}  {}", group.magic, time(group.time));
    let _ = writeln!(
        out,
        "ndblk {}  niblk {}  initediblk {}  unrefs {}",
        group.ndblk, group.niblk, group.initediblk, group.unrefs
    );
    let c = &group.cs;
    let _ = writeln!(
        out,
        "nbfree {}  ndir {}  nifree {}  nffree {}",
        c.nbfree, c.ndir, c.nifree, c.nffree
    );
    let _ =
        writeln!(out, "rotor {}  irotor {}  frotor {}", group.rotor, group.irotor, group.frotor);
    let frsum: Vec<_> = group.frsum[1..].iter().map(i32::to_string).collect();
    let held: i64 = (1..8).map(|n| n * i64::from(group.frsum[n as usize])).sum();
    let _ = writeln!(out, "frsum {} (sum {held})", frsum.join(" "));
    if !layout.clusters.is_empty() {
        let sums: Vec<_> = (1..layout.cluster_sum.len() / 4)
            .map(|n| endian.get_i32(bytes, layout.cluster_sum.start + 4 * n).to_string())
            .collect();
        let _ = writeln!(out, "clusters by length: {}", sums.join(" "));
        let free = ranges(&bytes[layout.clusters.clone()], group.nclusterblks);
        let _ = writeln!(out, "clusters free: {free}");
    }
    let _ = writeln!(out, "inodes used: {}", ranges(&bytes[layout.inodes], group.niblk));
    let _ = writeln!(out, "fragments free: {}", ranges(&bytes[layout.frags], group.ndblk));
    out
}

/// The runs of set bits, as `a-b, c`.
fn ranges(map: &[u8], bits: u32) -> String {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(first) = bitmap::next_set(map, at, bits) {
        at = bitmap::next_clear(map, first, bits).unwrap_or(bits);
        out.push(if at - first == 1 { first.to_string() } else { format!("{first}-{}", at - 1) });
    }
    if out.is_empty() { "none".into() } else { out.join(", ") }
}

/// The names of the set bits of `value`.
fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let set: Vec<_> =
        names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".into() } else { set.join(" ") }
}

fn flags(sb: &Superblock) -> String {
    bits(
        sb.flags as u32,
        &[
            (s::FS_UNCLEAN as u32, "unclean"),
            (s::FS_DOSOFTDEP as u32, "soft-updates"),
            (s::FS_NEEDSFSCK as u32, "needs-fsck"),
            (s::FS_SUJ as u32, "journaled-soft-updates"),
            (s::FS_ACLS as u32, "acls"),
            (s::FS_MULTILABEL as u32, "multilabel"),
            (s::FS_GJOURNAL as u32, "gjournal"),
            (s::FS_NFS4ACLS as u32, "nfsv4acls"),
            (s::FS_METACKHASH as u32, "check-hashes"),
            (s::FS_TRIM as u32, "trim"),
        ],
    )
}

fn hashes(sb: &Superblock) -> String {
    bits(
        sb.metackhash,
        &[
            (s::CK_SUPERBLOCK, "superblock"),
            (s::CK_CYLGRP, "cylinder-groups"),
            (s::CK_INODE, "inodes"),
        ],
    )
}

/// A NUL-padded string.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].escape_ascii().to_string()
}

/// Seconds since 1970 as a date in UTC, or the number alone if it is beyond any calendar.
fn time(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    if !(-100_000_000..100_000_000).contains(&days) {
        return format!("time {seconds}");
    }
    let date = Date::of_days(days);
    let second = seconds.rem_euclid(86_400);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("time {date} {h:02}:{m:02}:{s:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(time(0), "time 1970-01-01 00:00:00 UTC");
        assert_eq!(time(951_782_400), "time 2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_722_785_999), "time 2024-08-04 15:39:59 UTC");
        assert_eq!(time(-1), "time 1969-12-31 23:59:59 UTC");
        assert_eq!(time(i64::MIN), format!("time {}", i64::MIN));
    }

    #[test]
    fn runs_of_bits_are_listed() {
        assert_eq!(ranges(&[0b1011_0110, 1], 9), "1-2, 4-5, 7-8");
        assert_eq!(ranges(&[0], 8), "none");
    }
}

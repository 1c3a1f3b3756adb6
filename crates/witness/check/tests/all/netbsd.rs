//! Damage to LFS, judged by Ordo's check and by NetBSD's own fsck_lfs. `make test-netbsd` runs
//! these tests.
//!
//! Fault model: damage that Ordo's check does not see, or a repair that satisfies only its own
//! checker. Each case of `lfs_damage` and random damage is planted in images that NetBSD wrote and
//! in ones that Ordo wrote. Required: what fsck_lfs finds, Ordo finds too, and fsck_lfs finds
//! nothing after Ordo's repair. What only Ordo finds must have a reason.

use std::collections::BTreeMap;
use std::fmt::Write;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_format::lfs::{IFILE_INO, ROOT_INO};
use ordo_testkit::{FsckEnd, LfsVerdict, NetbsdFsck, netbsd_part};

use crate::lfs::{check, image, try_check};
use crate::lfs_damage::{CASES, Surgeon};
use crate::lfs_made::made;
use crate::lfs_random::{PLACES, Place, Targets};

/// The images, each with its name in tables. NetBSD's are left out, with a message, where they are
/// absent.
fn images(netbsd: &[&'static str]) -> Vec<(String, RamDisk)> {
    let ours = [(8192, 1024), (4096, 512)];
    let ours = ours.map(|(block, frag)| (format!("Ordo's, {block}/{frag}"), made(block, frag)));
    let theirs = netbsd.iter().filter_map(|name| Some((format!("NetBSD's {name}"), image(name)?)));
    ours.into_iter().chain(theirs).collect()
}

/// Nothing is found in images that are sound for Ordo: without this the other results would mean
/// nothing.
#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_sound_images() {
    let fsck = NetbsdFsck::new();
    for (name, disk) in images(&["fresh64-8k", "tree64-8k", "tree32-8k", "full64-8k", "cut64-8k"]) {
        let said = fsck.look(&disk.to_vec());
        assert!(said.is_content(), "{name}: {}", said.text);
        assert!(check(&disk, Repair::No).0.is_consistent(), "{name}");
    }
    let version = std::env::var("ORDO_NETBSD_VERSION").unwrap_or_default();
    netbsd_part("0-head", &include_str!("netbsd_head.md").replace("@VERSION@", &version));
}

/// The findings that fsck_lfs need not have, each with the reason.
const UNSEEN: [(&str, &str); 7] = [
    (
        "BadBlock",
        "it only asks whether an address is on the device, not whether a label or superblock is there",
    ),
    ("Unreferenced", PASS_4),
    ("Orphan", PASS_4),
    ("NamedOrphan", "it does not look at the mark"),
    ("LinkCount", PASS_4),
    ("ExtraDot", PASS_4),
    ("DuplicateName", "it compares no names with each other"),
];
const PASS_4: &str =
    "its pass 4 ends at the number of the inode that has the highest address, often the IFILE's";

/// fsck_lfs's first words about an image, with the pass, and fit for a table.
fn words(said: &LfsVerdict) -> String {
    let end = match said.end {
        FsckEnd::Finished => "",
        FsckEnd::GaveUp(_) => "; gives up",
        FsckEnd::Crashed(_) => "; crashes",
        FsckEnd::Endless => "; does not end",
    };
    let Some(first) = said.complaints.first() else { return format!("nothing{end}") };
    let pass = first.pass.map_or("start".into(), |pass| format!("pass {pass}"));
    // The program's name stands before its last words.
    let rest = first.words.starts_with("fsck_lfs").then(|| first.words.split_once(": ")).flatten();
    let all = rest.map_or(first.words.as_str(), |(_, rest)| rest);
    let short = all.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = short.chars().take(70).collect();
    format!("{pass}: {}{end}", short.replace('|', "/"))
}

/// A row of the table: one case, on all images.
struct Row {
    text: String,
    said: String,
    unseen_on: Vec<String>,
}

#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_each_damage_and_nothing_after_its_repair() {
    let fsck = NetbsdFsck::new();
    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    let images = images(&["tree64-8k", "tree32-8k"]);
    for (name, image) in &images {
        for (case, (kind, _, plant)) in CASES.iter().enumerate() {
            let mut surgeon = Surgeon::new(image);
            plant(&mut surgeon);
            let report = check(&surgeon.disk, Repair::No).0;
            let found = report.findings.iter().find(|f| f.kind() == *kind);
            let found = found.unwrap_or_else(|| panic!("{name}: {kind}, but found:\n{report}"));
            let said = fsck.look(&surgeon.disk.to_vec());
            assert_after_repair(&fsck, &surgeon.disk, &format!("{name}, {kind}"));
            let row = || Row { text: found.to_string(), said: words(&said), unseen_on: Vec::new() };
            let row = rows.entry(case).or_insert_with(row);
            if said.is_content() {
                let has_reason = UNSEEN.iter().any(|(unseen, _)| unseen == kind);
                assert!(has_reason, "{name}: fsck_lfs does not see {kind}\n{}", said.text);
                row.unseen_on.push(name.clone());
            } else if row.said == "nothing" {
                row.said = words(&said);
            }
        }
    }
    netbsd_part("4-damage", &table(&rows, images.len()));
}

/// Plants damage.
type Plant = fn(&mut Surgeon);

/// Damage that no repair of Ordo's removes, or that makes a check impossible.
const UNREPAIRED: [(&str, Plant); 8] = [
    ("the root is a file", |s| s.change_inode(ROOT_INO, |i| i.mode = 0o100_644)),
    ("the root's inode is free", |s| s.change_entry(ROOT_INO, |e| e.daddr = 0)),
    ("a directory lacks its first block", |s| s.change_inode(s.find("bigdir"), |i| i.db[0] = 0)),
    ("the IFILE's inode has another number", |s| s.change_inode(IFILE_INO, |i| i.inumber = 9)),
    ("the IFILE is too small", |s| s.change_inode(IFILE_INO, |i| i.size = 8192)),
    ("the IFILE has a hole", |s| s.change_inode(IFILE_INO, |i| i.db[2] = 0)),
    ("the IFILE has a block twice", |s| s.change_inode(IFILE_INO, |i| i.db[2] = i.db[1])),
    ("the IFILE has a block off the device", |s| {
        s.change_inode(IFILE_INO, |i| i.db[2] = 1 << 30);
    }),
];

/// Without a sound IFILE or root neither program can go far; Ordo's names the cause.
#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_accepts_nothing_that_cannot_be_repaired_here() {
    let fsck = NetbsdFsck::new();
    let mut out = String::from("## Damage that no repair removes\n\n");
    out +=
        "On Ordo's image.\n\n| damage | Ordo's words | fsck_lfs's first words |\n|---|---|---|\n";
    for (at, (name, image)) in images(&["tree64-8k", "tree32-8k"]).iter().enumerate() {
        for (damage, plant) in UNREPAIRED {
            let mut surgeon = Surgeon::new(image);
            plant(&mut surgeon);
            let ours = match try_check(&surgeon.disk, Repair::Yes).0 {
                Ok(report) => report.findings.first().map_or(String::new(), ToString::to_string),
                Err(error) => error.to_string(),
            };
            assert!(!ours.is_empty(), "{name}: {damage}");
            let said = fsck.look(&surgeon.disk.to_vec());
            assert!(!said.is_content(), "{name}: {damage}: {}", said.text);
            if at == 0 {
                writeln!(out, "| {damage} | {ours} | {} |", words(&said)).unwrap();
            }
        }
    }
    netbsd_part("5-unrepaired", &out);
}

/// Repairs an image. fsck_lfs must then find nothing.
fn assert_after_repair(fsck: &NetbsdFsck, disk: &RamDisk, what: &str) {
    let (report, repaired) = check(disk, Repair::Yes);
    if report.exit_code() > 1 {
        return;
    }
    let after = fsck.look(&repaired.to_vec());
    assert!(after.is_content(), "{what}: repaired:\n{report}\n{}", after.text);
}

fn table(rows: &BTreeMap<usize, Row>, images: usize) -> String {
    let mut out = String::from("## Each kind of damage\n\n");
    writeln!(
        out,
        "{} cases, each planted in {images} images, Ordo's and NetBSD's. After `ordo fsck -y`, fsck_lfs finds nothing\nin any of them.\n",
        rows.len()
    )
    .unwrap();
    out += "| finding | Ordo's words | fsck_lfs's first words | agree |\n|---|---|---|---|\n";
    for (case, row) in rows {
        let kind = CASES[*case].0;
        let reason = UNSEEN.iter().find(|(unseen, _)| *unseen == kind).map_or("", |(_, why)| why);
        let agree = match row.unseen_on.len() {
            0 => "yes".to_owned(),
            n if n == images => format!("no: {reason}"),
            _ => format!("not on {}: {reason}", row.unseen_on.join(" and ")),
        };
        writeln!(out, "| {kind} | {} | {} | {agree} |", row.text.replace('|', "/"), row.said)
            .unwrap();
    }
    out
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// The verdicts on damaged images.
#[derive(Default)]
struct Verdicts {
    /// The number of images with each pair of verdicts: Ordo's, then fsck_lfs's.
    counts: BTreeMap<(Place, &'static str, &'static str), u64>,
    /// The first finding of Ordo's in each image in which fsck_lfs finds nothing: how often each
    /// kind is the first.
    only_ours: BTreeMap<&'static str, u64>,
}

/// Plants random damage. The error says where the two judges differ in a way that they must not.
fn judge(
    fsck: &NetbsdFsck,
    disk: &RamDisk,
    verdicts: &mut Verdicts,
    place: Place,
) -> Result<(), String> {
    let checked = try_check(disk, Repair::No).0;
    let said = fsck.look(&disk.to_vec());
    let ours = match &checked {
        Ok(report) if report.is_consistent() => "sound",
        Ok(_) => "damaged",
        Err(_) => "refused",
    };
    let theirs = match said.end {
        FsckEnd::Finished if said.complaints.is_empty() => "sound",
        FsckEnd::Finished | FsckEnd::GaveUp(_) => "damaged",
        FsckEnd::Crashed(_) | FsckEnd::Endless if said.finds() => "damaged",
        FsckEnd::Crashed(_) | FsckEnd::Endless => "cannot judge",
    };
    *verdicts.counts.entry((place, ours, theirs)).or_default() += 1;
    if let (Ok(report), "damaged", "sound") = (&checked, ours, theirs) {
        *verdicts.only_ours.entry(report.findings[0].kind()).or_default() += 1;
    }
    if (ours, theirs) == ("sound", "damaged") {
        return Err(format!("Ordo finds nothing, but fsck_lfs:\n{}", said.text));
    }
    if ours != "damaged" {
        return Ok(());
    }
    let (repaired, disk) = try_check(disk, Repair::Yes);
    let report = repaired.map_err(|e| format!("checked before, but not repaired: {e}"))?;
    if report.exit_code() > 1 {
        return Ok(());
    }
    let after = fsck.look(&disk.to_vec());
    match after.is_content() {
        true => Ok(()),
        false => Err(format!("repaired:\n{report}\nbut fsck_lfs:\n{}", after.text)),
    }
}

/// `ORDO_NETBSD_RANDOM` says how many images of each kind are damaged, from the seed
/// `ORDO_NETBSD_SEED` on.
#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_no_random_damage_that_is_missed_here() {
    let fsck = NetbsdFsck::new();
    let (each, seed) = (number("ORDO_NETBSD_RANDOM", 40), number("ORDO_NETBSD_SEED", 1));
    let (mut verdicts, mut wrong) = (Verdicts::default(), Vec::new());
    let images = images(&["tree64-8k", "tree32-8k", "full64-8k", "cut64-8k"]);
    for (name, image) in &images {
        let targets = Targets::new(image);
        for place in PLACES {
            for seed in seed..seed + each {
                let disk = targets.damaged(place, seed);
                if let Err(error) = judge(&fsck, &disk, &mut verdicts, place) {
                    wrong.push(format!("{name}, {}, seed {seed}: {error}", place.name()));
                }
            }
        }
    }
    let text = random_table(&verdicts, images.len(), each, seed);
    println!("{text}");
    netbsd_part("6-random", &text);
    let first: Vec<_> = wrong.iter().take(8).cloned().collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), first.join("\n\n"));
}

fn random_table(verdicts: &Verdicts, images: usize, each: u64, seed: u64) -> String {
    let total: u64 = verdicts.counts.values().sum();
    let mut out = String::from("## Random damage\n\n");
    writeln!(
        out,
        "{total} images: {each} for each kind of metadata in each of {images} images, Ordo's and NetBSD's, with one or two\nplaces of eight bytes changed, seeds {seed} to {}. The checksums of superblocks are right. After a repair by\nOrdo, fsck_lfs finds nothing.\n",
        seed + each - 1
    )
    .unwrap();
    out += "| place | Ordo | fsck_lfs | images |\n|---|---|---|---:|\n";
    for ((place, ours, theirs), count) in &verdicts.counts {
        writeln!(out, "| {} | {ours} | {theirs} | {count} |", place.name()).unwrap();
    }
    if !verdicts.only_ours.is_empty() {
        let list = verdicts.only_ours.iter().map(|(kind, count)| format!("{kind} {count}"));
        let list = list.collect::<Vec<_>>().join(", ");
        writeln!(out, "\nOrdo's first findings where fsck_lfs has none: {list}.").unwrap();
    }
    out
}

//! The checker's findings, as repair steps.

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_check::{Finding, Report, Severity};
use ordo_format::Endian;
use ordo_format::ufs2::{Dinode, Group, Superblock, bitmap};

/// One resource to free or to correct. Inodes are as they were at the mount.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Fragments of one block to which no pointer leads.
    Block { address: u64, frags: u32 },
    /// An inode that is used according to its bitmap only.
    Inode { ino: u64 },
    /// A file or directory without a name.
    Orphan { ino: u64, then: Box<Dinode> },
    /// A link count, and its excess.
    Links { ino: u64, then: Box<Dinode>, excess: u32 },
    /// A size and a count of sectors, with the right values.
    Measures { ino: u64, then: Box<Dinode>, size: Option<u64>, sectors: Option<u64> },
    /// A group's number of directories, and the number to add to it.
    Directories { cg: u32, by: i32 },
    /// A directory's second name, and its first: directory and name of each.
    Name { target: u64, second: (u64, Box<[u8]>), first: (u64, Box<[u8]>) },
}

/// All steps, and the number of findings without a step.
///
/// A name must be gone on disk before the count that it raises is lowered; otherwise a crash in
/// between would show a name too many. So the steps come in rounds, and each round must be on disk
/// before the next. The first rounds are second names, and directories without a name, outer ones
/// before inner ones. Then come all others.
#[derive(Default)]
pub(crate) struct StepsFound {
    pub rounds: Vec<Vec<Step>>,
    pub left: u64,
}

/// The facts about each group at the mount.
pub(crate) struct Groups {
    /// The bitmap of free fragments; no check reads their contents.
    pub free: Vec<Box<[u8]>>,
    /// The number of directories in each group, according to the mount.
    pub directories: Vec<i32>,
}

/// Reads the headers of all groups.
pub(crate) async fn groups(
    snapshot: &Device,
    sb: &Superblock,
    endian: Endian,
) -> Result<Groups, BlockError> {
    let len = (sb.cgsize as usize).next_multiple_of(snapshot.geometry().sector as usize);
    let mut groups = Groups { free: Vec::new(), directories: Vec::new() };
    for cg in 0..sb.ncg {
        let bytes = snapshot.read(sb.byte_of(sb.cg_header(cg)), len).await?;
        let Ok(group) = Group::parse(&bytes, endian, sb, cg) else {
            // The checker reports the damage later.
            groups.free.push(vec![0; (sb.fpg as usize).div_ceil(8)].into());
            groups.directories.push(0);
            continue;
        };
        let layout = group.layout(sb);
        let used = bitmap::count(&bytes[layout.inodes], sb.ipg).cast_signed();
        groups.free.push(bytes[layout.frags].into());
        groups.directories.push(group.cs.ndir.clamp(0, used));
    }
    Ok(groups)
}

/// Turns a report into steps.
pub(crate) async fn gather(
    snapshot: &Device,
    sb: &Superblock,
    endian: Endian,
    report: &Report,
    directories: &[i32],
) -> Result<StepsFound, BlockError> {
    let depth = report.cleared_directories.iter().map(|(_, depth)| depth + 1).max();
    let mut rounds = vec![Vec::new(); depth.unwrap_or(1) as usize];
    for (cg, (there, believed)) in report.directories.iter().zip(directories).enumerate() {
        let by = there.cast_signed() - believed;
        if by != 0 {
            rounds[0].push(Step::Directories { cg: cg as u32, by });
        }
    }
    for extra in &report.extra_names {
        rounds[0].push(Step::Name {
            target: extra.target.into(),
            second: (extra.dir.into(), extra.name.clone()),
            first: (extra.kept_dir.into(), extra.kept_name.clone()),
        });
    }
    for (ino, depth) in &report.cleared_directories {
        let ino = (*ino).into();
        let then = inode(snapshot, sb, endian, ino).await?;
        rounds[*depth as usize].push(Step::Orphan { ino, then });
    }
    let (mut rest, mut left) = (Vec::new(), report.suppressed);
    for finding in &report.findings {
        let then = match finding {
            Finding::LinkCountHigh { ino, .. }
            | Finding::BlockCount { ino, .. }
            | Finding::EndsInHole { ino, .. }
            | Finding::UnreferencedInode { ino, .. }
            | Finding::UnlinkedInode { ino } => {
                Some(inode(snapshot, sb, endian, (*ino).into()).await?)
            }
            _ => None,
        };
        if !steps_of(sb, finding, then, &mut rest) && !follows(report, finding) {
            left += 1;
        }
    }
    rounds.push(rest);
    Ok(StepsFound { rounds, left })
}

/// Adds the steps for a finding. Returns false if there are none.
fn steps_of(
    sb: &Superblock,
    finding: &Finding,
    then: Option<Box<Dinode>>,
    steps: &mut Vec<Step>,
) -> bool {
    match (finding, then) {
        (Finding::BlocksLeaked { addr, count }, _) => {
            let frag = sb.frag as u64;
            let (mut at, end) = (*addr, addr + u64::from(*count));
            while at < end {
                let next = end.min((at / frag + 1) * frag);
                steps.push(Step::Block { address: at, frags: (next - at) as u32 });
                at = next;
            }
        }
        (Finding::InodesLeaked { ino, count }, _) => {
            steps.extend((*ino..ino + count).map(|ino| Step::Inode { ino: ino.into() }));
        }
        (Finding::LinkCountHigh { ino, stored, found }, Some(then)) => {
            let excess = (i64::from(*stored) - i64::from(*found)) as u32;
            steps.push(Step::Links { ino: (*ino).into(), then, excess });
        }
        (Finding::EndsInHole { ino, end, .. }, Some(then)) => {
            let (ino, size) = ((*ino).into(), Some(*end));
            steps.push(Step::Measures { ino, then, size, sectors: None });
        }
        (Finding::BlockCount { ino, found, .. }, Some(then)) => {
            let wanted = u64::from(*ino);
            // The finding about sectors follows directly that about the size.
            match steps.last_mut() {
                Some(Step::Measures { ino, sectors, .. }) if *ino == wanted => {
                    *sectors = Some(*found);
                }
                _ => {
                    let sectors = Some(*found);
                    steps.push(Step::Measures { ino: wanted, then, size: None, sectors });
                }
            }
        }
        (Finding::UnreferencedInode { ino, .. } | Finding::UnlinkedInode { ino }, Some(then)) => {
            steps.push(Step::Orphan { ino: (*ino).into(), then })
        }
        _ => return false,
    }
    true
}

/// Whether a finding needs no step of its own, since the mount has rebuilt everything that follows
/// from the bitmaps.
fn follows(report: &Report, finding: &Finding) -> bool {
    match finding {
        Finding::Totals { .. }
        | Finding::Summary { .. }
        | Finding::OlderField { .. }
        | Finding::GroupCounts { .. }
        | Finding::FragmentRuns { .. }
        | Finding::ClusterMap { .. }
        | Finding::ClusterCounts { .. }
        // These findings have lists of their own.
        | Finding::DirectoryLinkedTwice { .. }
        | Finding::UnreferencedDirectory { .. } => true,
        Finding::GroupHash { .. } | Finding::SuperblockHash { .. } => {
            report.severity(finding) == Severity::CountsOnly
        }
        _ => false,
    }
}

async fn inode(
    snapshot: &Device,
    sb: &Superblock,
    endian: Endian,
    ino: u64,
) -> Result<Box<Dinode>, BlockError> {
    let (addr, within) = sb.inode_block(ino);
    let at = sb.byte_of(addr) + within as u64;
    let sector = u64::from(snapshot.geometry().sector);
    let start = at / sector * sector;
    let len = (at + sb.inode_size() as u64 - start).next_multiple_of(sector);
    let bytes = snapshot.read(start, len as usize).await?;
    Ok(Box::new(sb.inode(&bytes[(at - start) as usize..], endian)))
}

//! What the checker found, as steps to be taken.

use ordo_block::{BlockDevice, BlockError};
use ordo_check::{Finding, Report, Severity};
use ordo_format::Endian;
use ordo_format::ufs2::{Dinode, Group, Superblock};

/// One thing to be given back. Inodes are as they were at the mount.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Fragments of one block that nothing has.
    Block { address: u64, frags: u32 },
    /// An inode that is only marked.
    Inode { ino: u64 },
    /// A file or directory without a name.
    Unnamed { ino: u64, then: Box<Dinode> },
    /// A link count, and by how much it is too high.
    Links { ino: u64, then: Box<Dinode>, excess: u32 },
    /// A count of sectors, and what it should be.
    Sectors { ino: u64, then: Box<Dinode>, right: u64 },
    /// A directory's second name, and its first: directory and name of each.
    Name { target: u64, second: (u64, Box<[u8]>), first: (u64, Box<[u8]>) },
}

/// All steps, and how many findings there is no step for.
#[derive(Default)]
pub(crate) struct Found {
    pub steps: Vec<Step>,
    pub left: u64,
}

/// For each group the bitmap of fragments that were free: nobody will look at them.
pub(crate) async fn free_space<D: BlockDevice>(
    view: &D,
    sb: &Superblock,
    endian: Endian,
) -> Result<Vec<Box<[u8]>>, BlockError> {
    let len = (sb.cgsize as usize).next_multiple_of(view.geometry().sector as usize);
    let mut maps = Vec::with_capacity(sb.ncg as usize);
    for cg in 0..sb.ncg {
        let bytes = view.read(sb.byte_of(sb.cg_header(cg)), len).await?;
        let map = match Group::parse(&bytes, endian, sb, cg) {
            Ok(group) => bytes[group.layout(sb).frags].into(),
            // The checker will say what is wrong with it.
            Err(_) => vec![0; (sb.fpg as usize).div_ceil(8)].into(),
        };
        maps.push(map);
    }
    Ok(maps)
}

/// Turns a report into steps. Names go first, and counts before the files that they may free; space that
/// nothing has comes last.
pub(crate) async fn gather<D: BlockDevice>(
    view: &D,
    sb: &Superblock,
    endian: Endian,
    report: &Report,
) -> Result<Found, BlockError> {
    let mut found = Found { steps: Vec::new(), left: report.suppressed };
    for extra in &report.extra_names {
        found.steps.push(Step::Name {
            target: extra.target.into(),
            second: (extra.dir.into(), extra.name.clone()),
            first: (extra.kept_dir.into(), extra.kept_name.clone()),
        });
    }
    for finding in &report.findings {
        let then = match finding {
            Finding::LinkCountHigh { ino, .. }
            | Finding::BlockCount { ino, .. }
            | Finding::UnreferencedInode { ino, .. }
            | Finding::UnreferencedDirectory { ino, .. }
            | Finding::UnlinkedInode { ino } => Some(inode(view, sb, endian, (*ino).into()).await?),
            _ => None,
        };
        if !steps_of(sb, finding, then, &mut found.steps) && !follows(report, finding) {
            found.left += 1;
        }
    }
    found.steps.sort_by_key(rank);
    Ok(found)
}

fn rank(step: &Step) -> u8 {
    match step {
        Step::Name { .. } => 0,
        Step::Links { .. } => 1,
        Step::Sectors { .. } => 2,
        Step::Unnamed { .. } => 3,
        Step::Inode { .. } => 4,
        Step::Block { .. } => 5,
    }
}

/// Adds the steps for a finding; false where there are none.
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
        (Finding::BlockCount { ino, found, .. }, Some(then)) => {
            steps.push(Step::Sectors { ino: (*ino).into(), then, right: *found });
        }
        (
            Finding::UnreferencedInode { ino, .. }
            | Finding::UnreferencedDirectory { ino, .. }
            | Finding::UnlinkedInode { ino },
            Some(then),
        ) => steps.push(Step::Unnamed { ino: (*ino).into(), then }),
        _ => return false,
    }
    true
}

/// Whether a finding needs no step of its own: what follows from the bitmaps was made right by the mount.
fn follows(report: &Report, finding: &Finding) -> bool {
    match finding {
        Finding::Totals { .. }
        | Finding::Summary { .. }
        | Finding::GroupCounts { .. }
        | Finding::FragmentRuns { .. }
        | Finding::ClusterMap { .. }
        | Finding::ClusterCounts { .. }
        // Its names are steps.
        | Finding::DirectoryLinkedTwice { .. } => true,
        Finding::GroupHash { .. } | Finding::SuperblockHash { .. } => {
            report.severity(finding) == Severity::CountsOnly
        }
        _ => false,
    }
}

async fn inode<D: BlockDevice>(
    view: &D,
    sb: &Superblock,
    endian: Endian,
    ino: u64,
) -> Result<Box<Dinode>, BlockError> {
    let (addr, within) = sb.inode_block(ino);
    let at = sb.byte_of(addr) + within as u64;
    let sector = u64::from(view.geometry().sector);
    let start = at / sector * sector;
    let len = (at + Dinode::SIZE as u64 - start).next_multiple_of(sector);
    let bytes = view.read(start, len as usize).await?;
    Ok(Box::new(Dinode::decode(&bytes[(at - start) as usize..], endian)))
}

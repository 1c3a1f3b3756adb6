//! Valid file systems to change, and the places of their metadata.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::{self, MountOptions};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, SEARCH, Superblock};
use ordo_format::ufs2::{Dinode, Group, ROOT_INO};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, FileType, NewNode, XattrMode};

/// The number of valid file systems.
const BASES: usize = 6;
/// The flag in the first byte that asks for corrected check-hashes after the changes.
const SEAL: u8 = 0x80;

/// A valid file system, and the runs of bytes that hold its metadata.
struct Base {
    disk: RamDisk,
    metadata: Vec<(u64, u64)>,
    sb: Superblock,
    endian: Endian,
    /// The places of the inodes in use, in bytes.
    inodes: Vec<u64>,
}

thread_local! {
    static MADE: RefCell<[Option<Rc<Base>>; BASES]> = const { RefCell::new([const { None }; BASES]) };
}

/// A copy of one of the file systems, with changes to its metadata.
pub fn changed(which: u8, changes: &[u8]) -> Rc<RamDisk> {
    let seals = which & SEAL != 0;
    let which = usize::from(which & !SEAL) % BASES;
    let made = MADE.with_borrow(|made| made[which].clone());
    let base = made.unwrap_or_else(|| {
        let base = Rc::new(make(which));
        MADE.with_borrow_mut(|made| made[which] = Some(base.clone()));
        base
    });
    let disk = Rc::new(base.disk.snapshot());
    let total: u64 = base.metadata.iter().map(|(_, len)| len).sum();
    let mut rest = changes;
    while let [a, b, c, len, after @ ..] = rest {
        let mut offset = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % total;
        let (bytes, left) = after.split_at(usize::from(len % 17).min(after.len()));
        rest = left;
        for (from, len) in &base.metadata {
            if offset < *len {
                disk.store(from + offset, bytes);
                break;
            }
            offset -= len;
        }
    }
    if seals {
        base.seal(&disk);
    }
    disk
}

impl Base {
    /// Corrects the check-hashes of all structures.
    fn seal(&self, disk: &RamDisk) {
        let (sb, endian) = (&self.sb, self.endian);
        let edit = |at: u64, len: usize, edit: &dyn Fn(&mut [u8])| {
            let mut bytes = vec![0; len];
            disk.load(at, &mut bytes);
            edit(&mut bytes);
            disk.store(at, &bytes);
        };
        edit(SEARCH[0], SBLOCK_SIZE, &|bytes| sb.seal(bytes, endian));
        for cg in 0..sb.ncg {
            let at = sb.byte_of(sb.cg_header(cg));
            edit(at, sb.block_size(), &|bytes| Group::seal(bytes, endian, sb));
        }
        for at in &self.inodes {
            edit(*at, Dinode::SIZE, &|bytes| Dinode::seal(bytes, endian));
        }
    }
}

fn make(which: usize) -> Base {
    let options = MkfsOptions {
        block_size: [4096, 8192, 32768][which / 2],
        frag_size: [512, 1024, 4096][which / 2],
        endian: if which.is_multiple_of(2) { Endian::Little } else { Endian::Big },
        check_hashes: which >= 3,
        max_blocks_per_group: (which < 4).then_some(64),
        ..MkfsOptions::default()
    };
    let disk = Rc::new(RamDisk::new(if which < 4 { 1 << 20 } else { 3 << 20 }));
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            mkfs(&disk.clone().erase(), &options, 1_700_000_000).await.expect("sizes are legal");
            let runtime = executor.runtime();
            let mounting = MountOptions::default();
            let mounted = mount::mount(&runtime, disk.clone(), NoOrder, &mounting).await;
            let fs = mounted.unwrap_or_else(|error| panic!("just made: {error}"));
            fill(&fs, u64::from(options.block_size)).await.expect("there is space");
            fs.unmount().await.expect("a disk in memory");
        })
        .expect("no one waits");
    describe(disk.snapshot())
}

/// Creates a file of every kind.
async fn fill<F: FileSystem>(fs: &F, block: u64) -> Result<(), ordo_vfs::FsError> {
    let (root, file, pointers) = (fs.root(), NewNode::file(0o644), block / 8);
    let small = fs.create(root, b"small", &file).await?.ino;
    fs.write(small, 0, &[1; 700]).await?;
    let large = fs.create(root, b"large", &file).await?.ino;
    for lbn in [0, 1, 12, 13, 12 + pointers, 12 + pointers + pointers * pointers] {
        fs.write(large, lbn * block, b"data").await?;
    }
    let dir = fs.create(root, b"dir", &NewNode::directory(0o755)).await?.ino;
    let sub = fs.create(dir, b"sub", &NewNode::directory(0o755)).await?.ino;
    for i in 0..30 {
        fs.link(small, sub, format!("name-{i}").as_bytes()).await?;
    }
    fs.create(root, b"short", &NewNode::symlink(b"small")).await?;
    fs.create(root, b"long", &NewNode::symlink(&[b'x'; 300])).await?;
    let fifo = NewNode { file_type: FileType::Fifo, ..file };
    fs.create(root, b"fifo", &fifo).await?;
    fs.setxattr(small, b"user.name", b"value", XattrMode::Create).await?;
    fs.setxattr(small, b"user.other", &[7; 200], XattrMode::Create).await
}

/// Finds the places of the metadata.
fn describe(disk: RamDisk) -> Base {
    let load = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        disk.load(at, &mut bytes);
        bytes
    };
    let (sb, endian) = Superblock::read(&load(SEARCH[0], SBLOCK_SIZE), SEARCH[0]).expect("sound");
    let mut runs = vec![(SEARCH[0], Superblock::SIZE as u64)];
    let mut inodes = Vec::new();
    runs.push((sb.byte_of(sb.csaddr as u64), u64::from(sb.ncg) * 16));
    for cg in 0..sb.ncg {
        let at = sb.byte_of(sb.cg_header(cg));
        let header = load(at, sb.block_size());
        let group = Group::read(&header, endian, &sb, cg).expect("sound");
        runs.push((at, u64::from(group.nextfreeoff)));
        for ino in sb.cg_first_inode(cg)..sb.cg_first_inode(cg) + u64::from(group.initediblk) {
            let (addr, within) = sb.inode_block(ino);
            let at = sb.byte_of(addr) + within as u64;
            let node = Dinode::decode(&load(at, Dinode::SIZE), endian);
            if ino < ROOT_INO || node.mode == 0 {
                continue;
            }
            inodes.push(at);
            runs.push((at, Dinode::SIZE as u64));
            let direct = if node.size < 1000 { &node.db[..] } else { &[] };
            let addrs = direct.iter().chain(&node.ib).chain(&node.extb);
            for addr in addrs.filter(|addr| **addr > 0 && **addr < sb.size) {
                runs.push((sb.byte_of(*addr as u64), 512));
            }
        }
    }
    Base { disk, metadata: runs, sb, endian, inodes }
}

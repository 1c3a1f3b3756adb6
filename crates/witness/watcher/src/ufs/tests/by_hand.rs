use ordo_format::ufs2::dir;
use ordo_format::ufs2::inode::{IFDIR, IFLNK, IFREG};
use ordo_format::wafs::{SUPER_MAGIC, VERSION, WafsSuper};

use super::super::learned::{ClassifiedParts, RangeData, RequestDetail};
use super::*;
use crate::kind::Class;

impl WatchedUfs {
    fn bytes(&self, class: Class) -> u64 {
        self.watch.finish().writes[class].bytes
    }

    fn describe(&self, addr: u64, data: &[u8]) -> String {
        self.name(RequestDetail::Changes, &RangeData::of(self.sb.byte_of(addr), data))
    }

    /// The name of a request in the present state.
    fn name(&self, ask: RequestDetail, request: &RangeData<'_>) -> String {
        let mut named = ClassifiedParts::default();
        self.ufs.borrow().learned.name(ask, request, &mut named);
        let parts: Vec<String> = named.parts.iter().map(ToString::to_string).collect();
        parts.join("; ")
    }

    fn directory(&self, ino: u32, names: &[(&str, u32)]) -> Vec<u8> {
        let mut chunk = vec![0; 1024];
        dir::write_first_chunk(&mut chunk[..512], self.endian, ino, 2);
        dir::write_free_chunk(&mut chunk[512..], self.endian);
        let mut at = 512;
        for (i, (name, to)) in names.iter().enumerate() {
            let need = dir::entry_size(name.len());
            let len = if i + 1 == names.len() { 1024 - at } else { need };
            let kind = dir::DT_REG;
            dir::write_entry(&mut chunk[at..], self.endian, *to, len as u16, kind, name.as_bytes());
            at += len;
        }
        chunk
    }
}

/// The fixed places, by geometry alone, are compared with the format. A request that spans several
/// is counted once, under the first, and its bytes under each.
#[test]
fn fixed_places_are_named() {
    let w = WatchedUfs::small(64 << 20);
    assert!(w.sb.ncg > 1);
    let name = |offset, len| w.name(RequestDetail::Read, &RangeData { offset, len, data: None });
    let byte = |addr| w.sb.byte_of(addr);
    assert_eq!(name(0, 8192), "boot area");
    assert_eq!(name(65536, 8192), "superblock");
    assert_eq!(
        name(byte(w.sb.cg_superblock(1)), 8192),
        "copy of the superblock in cylinder group 1"
    );
    assert_eq!(name(byte(w.sb.cg_header(1)), 512), "cylinder group 1: header and bitmaps");
    let first = w.sb.cg_first_inode(1);
    let inodes = format!("inodes {} to {}", first + 2, first + 3);
    assert_eq!(name(byte(w.sb.cg_inodes(1)) + 512, 512), inodes);
    assert_eq!(name(byte(w.sb.csaddr as u64), 512), "summary area");
    assert_eq!(name(byte(w.sb.size as u64), 512), "behind the file system's end");
    // Backup superblock, header and the first inodes in one write.
    let start = w.sb.cg_superblock(1);
    let len = byte(w.sb.cg_inodes(1) - start) as usize + 8192;
    let mut data = vec![0; len];
    w.ram.load(byte(start), &mut data);
    w.put(start, &data);
    let stats = w.watch.finish();
    assert_eq!(stats.writes.total().requests, 1);
    assert_eq!(stats.writes[Class::SuperblockCopy].requests, 1);
    assert_eq!(stats.writes[Class::SuperblockCopy].sync, 1);
    assert_eq!(stats.writes[Class::CylinderGroup].blocks, 1);
    assert_eq!(stats.writes[Class::InodeBlock].bytes, 8192);
}

/// Data, the target of a long link and a directory are written before their inodes. They are
/// counted by what they look like first, and as what they are when the inodes are written.
#[test]
fn blocks_are_settled_when_their_inode_comes() {
    let w = WatchedUfs::small(64 << 20);
    let (file, link, directory) = (w.data(1, 0), w.data(1, 1), w.data(1, 2));
    w.put(file, &[1; 3072]);
    w.put(link, &[b'x'; 1024]);
    let contents = w.directory(12, &[("name", 10)]);
    assert_eq!(w.describe(directory, &contents), "directory, nothing points to it yet");
    w.put(directory, &contents);
    assert_eq!((w.bytes(Class::FileData), w.bytes(Class::Directory)), (4096, 1024));
    assert_eq!(w.watch.finish().unclaimed, 3);

    let mut inodes = [
        (10, inode(IFREG | 0o644, 3000, 1)),
        (11, inode(IFLNK | 0o777, 900, 1)),
        (12, inode(IFDIR | 0o755, 1024, 1)),
    ];
    for ((_, inode), addr) in inodes.iter_mut().zip([file, link, directory]) {
        inode.db[0] = addr as i64;
    }
    w.put_inodes(&inodes);
    let stats = w.watch.finish();
    assert_eq!((stats.settled, stats.unclaimed), (3, 0));
    assert_eq!(stats.writes[Class::FileData].bytes, 3072);
    assert_eq!(stats.writes[Class::Symlink].requests, 1);
    assert_eq!(stats.writes[Class::Directory].requests, 1);
    assert_eq!(w.describe(file, &[1; 1024]), "file data block 0 of inode 10");

    let more = w.directory(12, &[("name", 10), ("other", 11)]);
    assert_eq!(
        w.describe(directory, &more),
        "directory block 0 of inode 12, 1 entry changed: +other (inode 11)"
    );
    let moved = w.directory(12, &[("name", 11)]);
    assert_eq!(
        w.describe(directory, &moved),
        "directory block 0 of inode 12, 1 entry changed: name (inode 10 to 11)"
    );
}

/// Indirect blocks, two levels deep, are written before anything points to them. When the inode is
/// written, everything below must be known, and when the file is truncated, it must be given up
/// again.
#[test]
fn indirect_blocks_are_followed() {
    let w = WatchedUfs::small(64 << 20);
    let (single, double, below) = (w.data(1, 0), w.data(1, 1), w.data(1, 2));
    let blocks: Vec<u64> = (10..14).map(|i| w.data(1, i)).collect();
    let table = |entries: &[(usize, u64)]| {
        let mut bytes = vec![0; 8192];
        for (i, addr) in entries {
            w.endian.put_u64(&mut bytes, i * 8, *addr);
        }
        bytes
    };
    for addr in &blocks {
        w.put(*addr, &[5; 8192]);
    }
    w.put(single, &table(&[(0, blocks[0]), (7, blocks[1])]));
    w.put(below, &table(&[(1, blocks[2])]));
    w.put(double, &table(&[(3, below)]));
    assert_eq!(w.bytes(Class::Indirect), 3 * 8192);
    let mut file = inode(IFREG, 30 << 20, 1);
    (file.ib[0], file.ib[1]) = (single as i64, double as i64);
    w.put_inodes(&[(10, file.clone())]);

    let per = w.sb.addresses_per_block();
    let said = |addr| w.describe(addr, &[1; 8192]);
    assert_eq!(said(blocks[0]), "file data block 12 of inode 10");
    assert_eq!(said(blocks[1]), "file data block 19 of inode 10");
    let lbn = 12 + per + 3 * per + 1;
    assert_eq!(said(blocks[2]), format!("file data block {lbn} of inode 10"));
    assert_eq!(said(blocks[3]), "file data, nothing points to it yet");
    assert_eq!(
        w.describe(single, &table(&[(0, blocks[0]), (8, blocks[3])])),
        "single indirect block of inode 10, 2 addresses changed"
    );
    assert_eq!(
        w.describe(double, &table(&[(3, below)])),
        "double indirect block of inode 10, 0 addresses changed"
    );
    w.put(single, &table(&[(0, blocks[0]), (8, blocks[3])]));
    assert_eq!(said(blocks[3]), "file data block 20 of inode 10");
    assert_eq!(said(blocks[1]), "file data, nothing points to it yet");
    file.ib[1] = 0;
    w.put_inodes(&[(10, file)]);
    assert_eq!(said(blocks[2]), "file data, nothing points to it yet");
    assert_eq!(said(below), "file data, nothing points to it yet");
}

/// A block passes from a file to a directory in memory only: the directory's contents reach the
/// disk first, and the inodes of both follow in one write. The first write stays file data; the
/// second is the directory's.
#[test]
fn a_block_that_is_used_again_is_counted_for_each_owner() {
    let w = WatchedUfs::small(64 << 20);
    let addr = w.data(1, 0);
    let mut old = inode(IFREG, 1024, 1);
    old.db[0] = addr as i64;
    w.put(addr, &[1; 1024]);
    w.put_inodes(&[(10, old.clone())]);
    w.put(addr, &w.directory(11, &[]));
    assert_eq!((w.bytes(Class::FileData), w.bytes(Class::Directory)), (1024, 1024));

    // The reverse cannot be told by the contents: a directory's block gets a link's target.
    let mut new = inode(IFDIR, 1024, 1);
    new.db[0] = addr as i64;
    w.put_inodes(&[(10, Dinode::zeroed()), (11, new)]);
    w.put(addr, &[b'x'; 1024]);
    assert_eq!((w.bytes(Class::FileData), w.bytes(Class::Directory)), (2048, 1024));
    let mut link = inode(IFLNK, 800, 2);
    link.db[0] = addr as i64;
    w.put_inodes(&[(11, link)]);
    let stats = w.watch.finish();
    assert_eq!(stats.writes[Class::FileData].bytes, 1024);
    assert_eq!(stats.writes[Class::Directory].bytes, 1024);
    assert_eq!(stats.writes[Class::Symlink].bytes, 1024);
    assert_eq!(stats.unclaimed, 0);
}

/// Inode writes report which inodes change, and how.
#[test]
fn inode_changes_are_told() {
    let w = WatchedUfs::small(64 << 20);
    w.put_inodes(&[
        (10, inode(IFREG, 100, 1)),
        (11, inode(IFREG, 100, 1)),
        (12, inode(IFREG, 0, 1)),
    ]);
    let (addr, _) = w.sb.inode_block(10);
    let mut block = vec![0; 8192];
    w.ram.load(w.sb.byte_of(addr), &mut block);
    let mut set = |ino: u64, d: Dinode| d.encode(&mut block[w.sb.inode_block(ino).1..], w.endian);
    set(10, inode(IFREG, 5000, 1));
    set(11, Dinode::zeroed());
    set(12, inode(IFDIR, 512, 2));
    set(13, inode(IFLNK, 5, 1));
    assert_eq!(
        w.describe(addr, &block),
        "inodes 0 to 31, 4 changed: 10 size 100 to 5000, 11 freed, 12 now another directory, \
         13 new symbolic link"
    );
}

/// Nothing but a log has a name until a superblock passes; everything has one from then on.
#[test]
fn the_geometry_is_learned_from_a_superblock_that_passes() {
    let w = WatchedUfs::small(64 << 20);
    let (magic, version, sector, sectors) = (SUPER_MAGIC, VERSION, 512, 100);
    let mut log = vec![0; WafsSuper::SIZE];
    WafsSuper { magic, version, sector, sectors, ..WafsSuper::zeroed() }.seal(&mut log);
    log.resize(512, 0);
    let log = IoBuf::from_slice(&log);
    let watch = Watch::over_any(&RamDisk::new(64 << 20));
    let tap = Tap::new(&w.executor.runtime(), w.ram.clone());
    tap.attach(watch.clone());
    w.executor
        .block_on(async {
            tap.read(0, 512).await.unwrap();
            tap.write(0, log.clone(), WriteFlags::empty()).await.unwrap();
            tap.read(65536, 8192).await.unwrap();
            tap.write(0, log, WriteFlags::empty()).await.unwrap();
            tap.read(w.sb.byte_of(w.sb.cg_header(1)), 8192).await.unwrap();
            tap.flush().await.unwrap();
            tap.discard(0, 512).await.unwrap();
        })
        .unwrap();
    let stats = watch.finish();
    assert_eq!(stats.reads[Class::Unknown].requests, 1);
    assert_eq!(stats.reads[Class::Superblock].requests, 1);
    assert_eq!(stats.writes[Class::Log].requests, 2);
    assert_eq!(stats.reads[Class::CylinderGroup].requests, 1);
    assert_eq!((stats.flushes, stats.discards), (1, 1));
    assert_eq!(watch.system(), "ufs");
    watch.restart();
    assert_eq!(watch.finish(), Default::default());
}

/// A file's block gets contents that look like another file's, and the file's inode is written
/// again: without a change, or with one that leaves the pointer as it is. Both confirm whose the
/// block is, so that no guess is left.
#[test]
fn a_pointer_that_stays_settles_a_guess() {
    let w = WatchedUfs::small(64 << 20);
    let addr = w.data(1, 0);
    let mut file = inode(IFREG, 1024, 1);
    file.db[0] = addr as i64;
    w.put(addr, &[1; 1024]);
    w.put_inodes(&[(10, file.clone())]);
    for links in [1, 2] {
        w.put(addr, &w.directory(11, &[]));
        assert_eq!(w.watch.finish().unclaimed, 1);
        file.nlink = links;
        w.put_inodes(&[(10, file.clone())]);
        assert_eq!(w.watch.finish().unclaimed, 0, "{links} links");
    }
    w.put(addr, &w.directory(11, &[]));
    w.watch.restart();
    w.put_inodes(&[(10, file)]);
    let stats = w.watch.finish();
    assert_eq!((stats.unclaimed, stats.settled), (0, 0), "a guess from before the restart");
}

/// A watcher that has seen nothing but the superblock learns from an inode that is read.
#[test]
fn a_read_settles_a_guess() {
    let w = WatchedUfs::small(64 << 20);
    let addr = w.data(1, 0);
    let mut link = inode(IFLNK, 800, 1);
    link.db[0] = addr as i64;
    w.put_inodes(&[(10, link)]);
    let watch = Watch::over_any(&RamDisk::new(64 << 20));
    let tap = Tap::new(&w.executor.runtime(), w.ram.clone());
    tap.attach(watch.clone());
    let target = IoBuf::from_slice(&[b'x'; 1024]);
    w.executor
        .block_on(async {
            tap.read(65536, 8192).await.unwrap();
            tap.write(w.sb.byte_of(addr), target, WriteFlags::empty()).await.unwrap();
            assert_eq!(watch.finish().unclaimed, 1);
            tap.read(w.sb.byte_of(w.sb.inode_block(10).0), 8192).await.unwrap();
        })
        .unwrap();
    let stats = watch.finish();
    assert_eq!((stats.unclaimed, stats.writes[Class::Symlink].bytes), (0, 1024));
}

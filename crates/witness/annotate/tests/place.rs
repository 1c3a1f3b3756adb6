//! The meaning of places on a device, of an ext4 that mke2fs filled.

use std::io;

use ordo_annotate::place::meaning;
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::{Class, Watch};

/// A device on which a range cannot be read, as the kernel reports it with its sector.
struct Worn<'a> {
    bytes: &'a [u8],
    bad: (u64, u64),
}

impl DiskImage for Worn<'_> {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (from, to) = self.bad;
        if offset < to && offset + buf.len() as u64 > from {
            return Err(io::Error::other("medium error"));
        }
        self.bytes.read_at(offset, buf)
    }
}

/// The file at a sector is asked for mostly since the sector cannot be read. The pointers to the
/// block tell the file, so a medium error must not hide it. Catches an answer that needs the
/// contents of the place, and a byte of the file that is that of the block's beginning.
#[test]
fn a_place_that_cannot_be_read_has_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("a"), vec![7; 70_000]).unwrap();
    let image = folder.path().join("fs.img");
    let args = ["-q", "-t", "ext4", "-d", tree.to_str().unwrap(), image.to_str().unwrap(), "16m"];
    if ordo_testkit::judge("mke2fs", &args).is_none() {
        return;
    }
    let bytes = std::fs::read(image).unwrap();
    let whole = Watch::over(&&bytes[..]).expect("an ext4");
    let ino = whole.find("/a").expect("a file");
    assert_eq!(whole.find("/b"), None);
    let at = whole.contents(ino)[0];
    let disk = Worn { bytes: &bytes, bad: (at.offset + 1024, at.offset + 2048) };
    let watch = Watch::over(&disk).expect("metadata that can be read");
    let all = meaning(&disk, &watch, (at.offset + 1536, 512)).unwrap();
    assert_eq!((all.len(), all[0].ino, all[0].path.as_deref()), (1, Some(ino), Some("/a")));
    assert_eq!((all[0].kind, all[0].file_offset), (Class::FileData, Some(at.at + 1536)));
    // Beyond the end there is nothing.
    assert!(meaning(&disk, &watch, (bytes.len() as u64 - 512, 1024)).is_err());
    assert!(meaning(&disk, &watch, (u64::MAX, 512)).is_err());
}

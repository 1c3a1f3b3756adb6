//! A file that grows shows zeros where nothing was written, whatever lay behind its end.
//!
//! Fault model: the power went while a file's last block was being written, and behind the file's
//! end the block has bytes of a file that was there before. A program that then writes behind the
//! end, or sets a larger size, must read zeros between the two. After a write into the same block
//! the old bytes once stayed, and were shown even after an fsync: another user's data, and wrong
//! contents for a program.

use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_runtime::{Executor, Runtime};
use ordo_systems::{MakeOptions, MountOptions, System};
use ordo_vfs::{FileSystem, NewNode, SetAttr};

/// The end of the file, in a block that is neither its first nor whole.
const END: usize = 41_282;
/// The file's last bytes. Nothing else on the disk has them.
const MARK: &[u8] = b"here the file ends, at a place that is on no block's border";
/// The bytes of an older file, and the fewest that a fragment has behind the end.
const OLD: [u8; 702] = [0xa5; 702];
/// Bytes that a program writes.
const NEW: [u8; 100] = [0x4e; 100];

#[derive(Clone, Copy, Debug)]
enum Growth {
    Write { at: usize },
    SetSize(usize),
}

/// Growth within the fragment, the block, the direct blocks, and to an indirect one.
const GROWTHS: [Growth; 10] = [
    Growth::Write { at: END },
    Growth::Write { at: END + 300 },
    Growth::Write { at: END + 4_000 },
    Growth::Write { at: 70_000 },
    Growth::Write { at: 400_123 },
    Growth::SetSize(END + 300),
    Growth::SetSize(END + 4_000),
    Growth::SetSize(65_536),
    Growth::SetSize(70_000),
    Growth::SetSize(400_123),
];

fn contents() -> Vec<u8> {
    let mut contents = vec![b'c'; END];
    contents[END - MARK.len()..].copy_from_slice(MARK);
    contents
}

/// Puts bytes of an older file behind each copy of the file's end.
fn put_old_bytes(disk: &RamDisk) -> usize {
    let bytes = disk.to_vec();
    let copies = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let ends: Vec<_> = copies.map(|(at, _)| (at + MARK.len()) as u64).collect();
    ends.iter().for_each(|end| disk.store(*end, &OLD));
    ends.len()
}

/// Images of a file system with such a file.
async fn images(rt: &Runtime, system: System, options: &MakeOptions) -> Vec<RamDisk> {
    let block = options.block_size.unwrap_or(32 << 10) as u32;
    let sizes = system.devices(32 << 20, block).into_iter();
    let disks: Vec<_> = sizes.map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    let devices = Device::of_each(&disks);
    system.make(rt, &devices, options).await.unwrap();
    let mounted = system.mount(rt, &devices, &MountOptions::default()).await.unwrap();
    let fs = mounted.fs();
    let file = fs.create(fs.root(), b"file", &NewNode::file(0o644)).await.unwrap().ino;
    fs.write(file, 0, &contents()).await.unwrap();
    mounted.unmount().await.unwrap();
    let copies: usize = disks.iter().map(|disk| put_old_bytes(disk)).sum();
    assert!(copies > 0, "{}: the file's end is not on disk", system.name());
    disks.iter().map(|disk| disk.snapshot()).collect()
}

/// The first wrong byte after growth: as it is read at once, and as it is on disk.
async fn wrong(rt: &Runtime, system: System, images: &[RamDisk], growth: Growth) -> Vec<String> {
    let mut expected = contents();
    match growth {
        Growth::Write { at } => {
            expected.resize(at, 0);
            expected.extend(NEW);
        }
        Growth::SetSize(size) => expected.resize(size, 0),
    }
    let disks: Vec<_> = images.iter().map(|image| Rc::new(image.snapshot())).collect();
    let devices = Device::of_each(&disks);
    let mut wrong = Vec::new();
    for mount in ["at once", "after a mount"] {
        let mounted = system.mount(rt, &devices, &MountOptions::default()).await.unwrap();
        let fs = mounted.fs();
        let file = fs.lookup(fs.root(), b"file").await.unwrap().ino;
        if mount == "at once" {
            match growth {
                Growth::Write { at } => drop(fs.write(file, at as u64, &NEW).await.unwrap()),
                Growth::SetSize(size) => {
                    let size = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                    fs.setattr(file, &size).await.unwrap();
                }
            }
        }
        let mut read = vec![0; expected.len() + 1];
        let len = fs.read(file, 0, &mut read).await.unwrap();
        read.truncate(len);
        let first = read.iter().zip(&expected).position(|(read, expected)| read != expected);
        if read.len() != expected.len() || first.is_some() {
            let name = system.name();
            wrong.push(format!("{name}, {growth:?}, {mount}: {len} bytes, wrong at {first:?}"));
        }
        mounted.unmount().await.unwrap();
    }
    wrong
}

#[test]
fn behind_the_old_end_are_zeros() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let small = MakeOptions {
        block_size: Some(8 << 10),
        frag_size: Some(1 << 10),
        ..MakeOptions::default()
    };
    let all = executor.block_on(async {
        let mut all = Vec::new();
        for system in System::runnable() {
            for options in [MakeOptions::default(), small.clone()] {
                let images = images(&rt, system, &options).await;
                for growth in GROWTHS {
                    all.extend(wrong(&rt, system, &images, growth).await);
                }
            }
        }
        all
    });
    let all = all.unwrap();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

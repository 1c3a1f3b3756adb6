//! Requests as bytes, on the reference model: the replies that a kernel would get, without a
//! kernel.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_runtime::Executor;
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode, SetAttr, Timestamp};

use super::{Answer, Handler, HandlerOptions};
use crate::wire::{self, IN_HEADER, Opcode, ROOT};

fn message(opcode: Opcode, node: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut out = Vec::new();
    out.extend(((IN_HEADER + body.len()) as u32).to_ne_bytes());
    out.extend((opcode as u32).to_ne_bytes());
    out.extend(7u64.to_ne_bytes());
    out.extend(node.to_ne_bytes());
    for n in [1000u32, 1000, 1, 0] {
        out.extend(n.to_ne_bytes());
    }
    out.extend(body);
    out
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

struct Bench {
    executor: Executor,
    handler: Handler<Rc<ModelFs>>,
}

impl Bench {
    fn new() -> Bench {
        let fs = Rc::new(ModelFs::new(ModelConfig::default(), Timestamp::default));
        let handler = Handler::new(fs, HandlerOptions::default(), Rc::new(|_| ()));
        Bench { executor: Executor::simulated(1), handler }
    }

    /// The reply to a message, or its errno.
    fn ask(&self, message: &[u8]) -> Result<Vec<u8>, i32> {
        let mut reply = vec![0; 8192];
        let answer = self.executor.block_on(self.handler.message(message, &mut reply)).unwrap();
        match answer.expect("a request").1 {
            Answer::Reply(len) => Ok(reply[..len].to_vec()),
            Answer::Error(number) => Err(number),
            Answer::Silence => Ok(Vec::new()),
        }
    }

    fn make(&self, name: &[u8]) -> Ino {
        let fs = self.handler.fs();
        let new = NewNode::file(0o644);
        self.executor.block_on(fs.create(fs.root(), name, &new)).unwrap().unwrap().ino
    }

    /// The node of a name, as the kernel is told.
    fn node(&self, name: &[u8]) -> u64 {
        let reply = self.ask(&message(Opcode::Lookup, ROOT, &[name, b"\0"])).unwrap();
        assert_eq!(reply.len(), 128);
        get_u64(&reply, 0)
    }

    fn exists(&self, ino: Ino) -> bool {
        self.executor.block_on(self.handler.fs().getattr(ino)).unwrap().is_ok()
    }
}

/// A file that was removed while the kernel knew it must live until it is forgotten as often as it
/// was looked up, and no longer. Catches a program that loses its open file, and space that is
/// never freed.
#[test]
fn inodes_that_the_kernel_knows_stay_alive() {
    let bench = Bench::new();
    let ino = bench.make(b"file");
    let node = bench.node(b"file");
    assert_eq!((node, bench.node(b"file")), (ino.0, ino.0));
    bench.ask(&message(Opcode::Unlink, ROOT, &[b"file\0"])).unwrap();
    bench.ask(&message(Opcode::Forget, node, &[&1u64.to_ne_bytes()])).unwrap();
    assert!(bench.exists(ino));
    let list = [&1u32.to_ne_bytes()[..], &[0; 4], &node.to_ne_bytes(), &1u64.to_ne_bytes()];
    bench.ask(&message(Opcode::BatchForget, 0, &list)).unwrap();
    assert!(!bench.exists(ino));
}

/// A missing name is an answer that the kernel may cache, and not an error.
#[test]
fn a_name_that_is_not_there() {
    let bench = Bench::new();
    assert_eq!(bench.node(b"nothing"), 0);
}

/// A forgotten file is found again by its number, with the generation that it had, and counts as
/// known. The number of a removed file, or of none, is stale. The number of a new file has another
/// generation. Would catch a server that treats `.` as a name of directories only, or that lets an
/// old handle open a new file.
#[test]
fn forgotten_inodes_are_found_by_number() {
    let bench = Bench::new();
    let ino = bench.make(b"file");
    let again = |node: u64| bench.ask(&message(Opcode::Lookup, node, &[b".\0"]));
    let first = again(ino.0).unwrap();
    assert_eq!((first.len(), get_u64(&first, 0)), (128, ino.0));
    assert!(bench.handler.known.remove(ino, 1), "the kernel knows it once");
    let fs = bench.handler.fs();
    let attr = bench.executor.block_on(fs.getattr(ino)).unwrap().unwrap();
    assert_eq!(get_u64(&first, 8), attr.generation);
    bench.executor.block_on(fs.close(ino)).unwrap().unwrap();
    bench.executor.block_on(fs.unlink(fs.root(), b"file")).unwrap().unwrap();
    assert_eq!(again(ino.0), Err(libc::ESTALE));
    assert_eq!(again(1 << 60), Err(libc::ESTALE));
    let next = bench.make(b"next");
    let other = again(next.0).unwrap();
    assert_ne!(get_u64(&other, 8), attr.generation);
    assert_eq!(get_u64(&again(ROOT).unwrap(), 0), ROOT);
    assert_eq!(get_u64(&bench.ask(&message(Opcode::Lookup, ROOT, &[b"..\0"])).unwrap(), 0), ROOT);
}

/// A list with attributes counts as a look-up for each entry except `.` and `..`: forgetting what
/// it lists must leave no reference behind.
#[test]
fn listing_with_attributes_is_looking_up() {
    let bench = Bench::new();
    let ino = bench.make(b"file");
    let mut read = [0; 40];
    read[16..20].copy_from_slice(&4096u32.to_ne_bytes());
    let reply = bench.ask(&message(Opcode::Readdirplus, ROOT, &[&read])).unwrap();
    // Two entries of 160 bytes for the dots, and one for the file.
    assert_eq!(reply.len(), 3 * 160);
    assert_eq!((get_u64(&reply, 0), get_u64(&reply, 320)), (0, ino.0));
    bench.ask(&message(Opcode::Unlink, ROOT, &[b"file\0"])).unwrap();
    assert!(bench.exists(ino));
    bench.ask(&message(Opcode::Forget, ino.0, &[&1u64.to_ne_bytes()])).unwrap();
    assert!(!bench.exists(ino));
}

/// Giving a file away removes its set-id bits. A write removes them when the kernel says so, a copy
/// when the caller was not root. If the kernel did not ask for the removal, it must be told of it;
/// otherwise it shows the old mode.
#[test]
fn set_id_bits_are_removed() {
    for by in [Opcode::Setattr, Opcode::Write, Opcode::CopyFileRange] {
        let bench = Bench::new();
        let ino = bench.make(b"file");
        let fs = bench.handler.fs();
        let set = SetAttr { permissions: Some(0o6755), ..SetAttr::default() };
        bench.executor.block_on(fs.setattr(ino, &set)).unwrap().unwrap();
        if by == Opcode::Write {
            let mut write = [0; 40];
            write[16..20].copy_from_slice(&1u32.to_ne_bytes());
            write[20..24].copy_from_slice(&wire::WRITE_KILL_SUIDGID.to_ne_bytes());
            bench.ask(&message(Opcode::Write, ino.0, &[&write, b"x"])).unwrap();
        } else if by == Opcode::CopyFileRange {
            let mut copy = [0; 56];
            copy[16..24].copy_from_slice(&ino.0.to_ne_bytes());
            copy[40..48].copy_from_slice(&1u64.to_ne_bytes());
            bench.ask(&message(by, ino.0, &[&copy])).unwrap();
        } else {
            let mut setattr = [0; 88];
            setattr[..4].copy_from_slice(&wire::fattr::UID.to_ne_bytes());
            setattr[76..80].copy_from_slice(&5u32.to_ne_bytes());
            bench.ask(&message(Opcode::Setattr, ino.0, &[&setattr])).unwrap();
        }
        let attr = bench.executor.block_on(fs.getattr(ino)).unwrap().unwrap();
        assert_eq!(attr.permissions, 0o755, "{by:?}");
        let told = if by == Opcode::Setattr { vec![] } else { vec![ino.0] };
        assert_eq!(bench.handler.take_stale(), told, "{by:?}");
    }
}

/// Flags of files, as `chattr` sets them, and as the kernel asks for them before it lets a user do
/// so. Flags that were set in one way are seen in the other way, and flags that UFS cannot store
/// are refused. In the message the structure has 28 bytes.
#[test]
fn flags_of_files() {
    const GET: (u32, u32) = (0x8008_6601, 0x801c_581f);
    const SET: (u32, u32) = (0x4008_6602, 0x401c_5820);
    let bench = Bench::new();
    let ino = bench.make(b"file");
    let ioctl = |command: u32, data: &[u8], wants: u32| {
        let mut head = [0; 32];
        head[12..16].copy_from_slice(&command.to_ne_bytes());
        head[24..28].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        head[28..32].copy_from_slice(&wants.to_ne_bytes());
        bench.ask(&message(Opcode::Ioctl, ino.0, &[&head, data]))
    };
    let structure = |flags: u32, hint: u32| {
        [flags, hint, 0, 0, 0, 0, 0].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>()
    };
    // The flags are nodump and immutable.
    ioctl(SET.0, &0x50u32.to_ne_bytes(), 0).unwrap();
    let reply = ioctl(GET.1, &[], 28).unwrap();
    assert_eq!((reply.len(), get_u32(&reply, 16)), (16 + 28, 0x88));
    assert_eq!(ioctl(SET.1, &structure(0x2, 0), 0), Err(libc::EOPNOTSUPP));
    assert_eq!(ioctl(SET.1, &structure(0, 1), 0), Err(libc::EOPNOTSUPP));
    assert_eq!(ioctl(SET.0, &4u32.to_ne_bytes(), 0), Err(libc::EOPNOTSUPP));
    assert_eq!(ioctl(SET.1, &[0; 27], 0), Err(libc::EINVAL));
    // The flag is append-only, in place of both.
    ioctl(SET.1, &structure(0x8000_0010, 0), 0).unwrap();
    let reply = ioctl(GET.0, &[], 8).unwrap();
    assert_eq!((reply.len(), get_u32(&reply, 16)), (16 + 8, 0x20));
}

/// An unknown request is refused by its number, so that the kernel does not wait. An incomplete
/// message is not a request. A kernel that is too old is refused.
#[test]
fn unknown_requests_are_refused() {
    let bench = Bench::new();
    let mut unknown = message(Opcode::Lookup, ROOT, &[b"x\0"]);
    unknown[4..8].copy_from_slice(&4000u32.to_ne_bytes());
    assert_eq!(bench.ask(&unknown), Err(libc::ENOSYS));
    let half = &message(Opcode::Read, 2, &[&[0; 40]])[..60];
    let answer = bench.executor.block_on(bench.handler.message(half, &mut [0; 64])).unwrap();
    assert!(answer.is_none());
    let init = |minor: u32| [&7u32.to_ne_bytes()[..], &minor.to_ne_bytes(), &[0xff; 56]].concat();
    assert_eq!(bench.ask(&message(Opcode::Init, 0, &[&init(20)])), Err(libc::EPROTO));
    assert_eq!(bench.ask(&message(Opcode::Init, 0, &[&init(45)])).unwrap().len(), 64);
}

/// The reference model, and the order in which files were made durable.
struct Synced(ModelFs, RefCell<Vec<&'static str>>);

impl FileSystem for Synced {
    ordo_vfs::delegate! { this => this.0; root, lookup, open, close, getattr, setattr, create, tmpfile, link, unlink, rmdir,
    rename, readlink, read, write, allocate, punch_hole, seek, extents, readdir, statfs, sync, getxattr, setxattr,
    listxattr, removexattr }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.1.borrow_mut().push("fsync");
        self.0.fsync(ino).await
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.1.borrow_mut().push("fdatasync");
        self.0.fdatasync(ino).await
    }
}

/// The kernel sends one request for fsync and fdatasync, with a flag. Would catch a mount on which
/// an fdatasync costs what an fsync does, and one on which an fsync leaves out the inode.
#[test]
fn the_flag_of_an_fsync_tells_an_fdatasync() {
    let model = ModelFs::new(ModelConfig::default(), Timestamp::default);
    let fs = Synced(model, RefCell::default());
    let handler = Handler::new(fs, HandlerOptions::default(), Rc::new(|_| ()));
    let executor = Executor::simulated(1);
    for (opcode, flags) in [(Opcode::Fsync, 0u32), (Opcode::Fsync, 1), (Opcode::Fsyncdir, 1)] {
        let body = [&7u64.to_ne_bytes()[..], &flags.to_ne_bytes(), &[0; 4]];
        let message = message(opcode, ROOT, &body);
        let answer = executor.block_on(handler.message(&message, &mut [0; 8192])).unwrap();
        assert!(matches!(answer.expect("a request").1, Answer::Reply(0)));
    }
    assert_eq!(*handler.fs().1.borrow(), ["fsync", "fdatasync", "fdatasync"]);
}

//! The handler: one request in, one reply out.
//!
//! `names`, `files`, `attributes` and `directories` carry requests out; `known` counts the kernel's
//! references. The kernel enforces permission bits, sticky directories, and who may change what
//! (`default_permissions`). The consequences of a change (removed set-id bits, inherited groups)
//! are handled here.

mod acl;
mod attributes;
mod directories;
mod files;
pub mod ids;
mod known;
mod names;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_format::Endian;
use ordo_format::fuse::{BatchForgetIn, ForgetIn, ForgetOne, InitIn, InitInExt, InitOut, OpenOut};
use ordo_vfs::{Attr, Errno, Extent, FileSystem, FsError, Ino, IoBuf};

use crate::wire::{
    BadRequest, IN_HEADER, InitFlags, MAX_DATA, Opcode, Out, ROOT, Request, VERSION, WRITE_HEAD,
};
use ids::IdMap;
use known::Known;

/// The time for which the kernel may cache names and attributes, in seconds. It is long, since only
/// the kernel changes them.
const VALID_SECONDS: u64 = 1 << 24;

/// Options of serving a file system.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// Whether the kernel caches writes and sends them later.
    pub write_back: bool,
    /// Whether directories are read without attributes, so that the kernel asks separately for the
    /// attributes that it wants.
    pub names_only: bool,
    /// Whether POSIX ACLs are served.
    pub acl: bool,
    /// Whether every change is durable before it is answered.
    pub synchronous: bool,
    /// Whether a new file's group is always its directory's, as on BSD.
    pub bsd_groups: bool,
    /// Whether numbers in stored ACLs are big-endian.
    pub big_endian: bool,
    /// The mapping of owners and groups.
    pub ids: IdMap,
    /// Whether requests go over io_uring, if the kernel can.
    pub io_uring: bool,
    /// The seconds without an answer to a request after which the kernel gives up the mount, if it
    /// can: every waiting program gets an error. 0: never.
    pub timeout: u16,
    /// A place for the writer of each write, which is noted just before the file system is called.
    /// With it, every opening of a file has a number.
    pub writer: Option<Rc<Cell<FileWriter>>>,
}

/// The writer of some bytes: a thread, through one opening of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileWriter {
    /// The number of the opening. A descriptor that was inherited or duplicated is the same
    /// opening.
    pub opening: u64,
    /// The thread, by its number in the mount's namespace of processes.
    pub thread: u32,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A reply of this many bytes.
    Reply(usize),
    /// An error, by its errno.
    Error(i32),
    /// No reply.
    Silence,
}

/// The errno with which a request fails.
pub(crate) struct Failure(i32);

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure(errno.raw())
    }
}

pub(crate) type Handled = Result<(), Failure>;

/// A function that reports errors for a person.
pub type Tell = Rc<dyn Fn(&str)>;

/// The handler, which carries requests out on a file system.
pub struct Handler<F> {
    fs: F,
    options: HandlerOptions,
    known: Known,
    tell: Tell,
    flags: Cell<InitFlags>,
    told: Cell<u32>,
    /// Nodes whose attributes were changed without the kernel's knowledge.
    stale: RefCell<Vec<u64>>,
    /// The places of the file that was last asked for, until another request may change them.
    places: RefCell<Option<(Ino, Rc<Vec<Extent>>)>>,
    /// The number of openings so far, if they are numbered.
    openings: Cell<u64>,
}

/// The most errors that are reported, since a broken disk causes endless ones.
const REPORTED_MAX: u32 = 100;

impl<F: FileSystem> Handler<F> {
    /// A handler for a mounted file system. `tell` reports damage and device failures.
    pub fn new(fs: F, options: HandlerOptions, tell: Tell) -> Handler<F> {
        Handler {
            fs,
            options,
            known: Known::default(),
            tell,
            flags: Cell::new(InitFlags::empty()),
            told: Cell::new(0),
            stale: RefCell::default(),
            places: RefCell::default(),
            openings: Cell::default(),
        }
    }

    /// The file system.
    pub fn fs(&self) -> &F {
        &self.fs
    }

    /// The features agreed on with the kernel.
    pub fn agreed(&self) -> InitFlags {
        self.flags.get()
    }

    /// Takes the nodes whose attributes the kernel must forget before it gets the reply to the
    /// request that changed them.
    pub fn take_stale(&self) -> Vec<u64> {
        self.stale.take()
    }

    /// The inode of a node.
    pub(crate) fn ino(&self, node: u64) -> Ino {
        if node == ROOT { self.fs.root() } else { Ino(node) }
    }

    /// The node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        if ino == self.fs.root() { ROOT } else { ino.0 }
    }

    /// Attributes as the mount shows them.
    pub(crate) fn shown(&self, mut attr: Attr) -> Attr {
        attr.uid = self.options.ids.users.here(attr.uid);
        attr.gid = self.options.ids.groups.here(attr.gid);
        attr.permissions &= !self.options.ids.hidden.of(attr.file_type);
        attr
    }

    /// The error for the kernel. An error that a person should know of is reported.
    pub(crate) fn fail(&self, error: FsError) -> Failure {
        let serious = matches!(error.errno, Errno::Io | Errno::Corrupt) || error.detail.is_some();
        if serious && self.told.get() < REPORTED_MAX {
            self.told.set(self.told.get() + 1);
            (self.tell)(&error.to_string());
        }
        Failure(error.errno.raw())
    }

    /// Replies with a name's inode, to which the kernel has one more reference.
    pub(crate) async fn entry(&self, attr: Attr, out: &mut Out<'_>) -> Handled {
        self.know(attr.ino).await?;
        out.entry_out(self.node(attr.ino), &self.shown(attr), VALID_SECONDS);
        Ok(())
    }

    /// Notes the kernel's first reference to an inode that is open already.
    pub(crate) fn know_opened(&self, ino: Ino) {
        let first = self.known.add(ino);
        assert!(first, "what was just made was not known");
    }

    /// Counts one more reference of the kernel to an inode.
    pub(crate) async fn know(&self, ino: Ino) -> Handled {
        if ino != self.fs.root() && self.known.add(ino) {
            self.fs.open(ino).await.map_err(|e| {
                self.known.remove(ino, 1);
                self.fail(e)
            })?;
        }
        Ok(())
    }

    /// Removes references. An inode without any is closed, and may then be freed.
    pub(crate) async fn forget(&self, node: u64, count: u64) {
        let ino = self.ino(node);
        if node != ROOT
            && self.known.remove(ino, count)
            && let Err(error) = self.fs.close(ino).await
        {
            let _ = self.fail(error);
        }
    }

    /// Removes all references at the end of the mount, whether or not the kernel has sent FORGETs.
    /// Files without names are freed.
    pub async fn let_go(&self) {
        for ino in self.known.take() {
            if let Err(error) = self.fs.close(ino).await {
                let _ = self.fail(error);
            }
        }
    }

    /// Makes a change durable if the mount is synchronous.
    pub(crate) async fn changed(&self) -> Handled {
        match self.options.synchronous {
            true => self.fs.sync().await.map_err(|e| self.fail(e)),
            false => Ok(()),
        }
    }

    /// Carries out a message from a transport, and puts the reply into `reply`. Returns the
    /// request's identity and its result; `None` if the message is not a request.
    pub async fn message(&self, message: &[u8], reply: &mut [u8]) -> Option<(u64, Answer)> {
        match Request::parse(message) {
            Ok(request) => Some((request.unique, self.request(&request, reply).await)),
            Err(BadRequest::Unknown { unique }) => Some((unique, Answer::Error(libc::ENOSYS))),
            Err(BadRequest::Short) => None,
        }
    }

    /// Carries out a write from a transport that has its data in a buffer of its own: `head` is
    /// what is before the data. The reply is as for [`message`](Self::message).
    pub async fn write_message(
        &self,
        head: &[u8; WRITE_HEAD],
        data: IoBuf,
        reply: &mut [u8],
    ) -> Option<(u64, Answer)> {
        let (header, structure) = head.split_at(IN_HEADER);
        let request = Request::parts(header, structure, &[])?;
        request.data.replace(Some(data));
        Some((request.unique, self.request(&request, reply).await))
    }

    /// Carries a request out.
    pub async fn request(&self, r: &Request<'_>, reply: &mut [u8]) -> Answer {
        let mut out = Out::new(reply);
        match self.dispatch(r, &mut out).await {
            Ok(()) if matches!(r.opcode, Opcode::Forget | Opcode::BatchForget) => Answer::Silence,
            Ok(()) => Answer::Reply(out.len()),
            Err(Failure(number)) => Answer::Error(number),
        }
    }

    async fn dispatch(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        if r.opcode != Opcode::Bmap {
            self.places.take();
        }
        match r.opcode {
            Opcode::Lookup => self.lookup(r, out).await,
            Opcode::Forget => {
                self.forget(r.node, r.structure::<ForgetIn>().nlookup).await;
                Ok(())
            }
            Opcode::BatchForget => {
                let BatchForgetIn { count, .. } = r.structure();
                for one in r.rest.chunks_exact(ForgetOne::SIZE).take(count as usize) {
                    let one = ForgetOne::decode(one, Endian::NATIVE);
                    self.forget(one.nodeid, one.nlookup).await;
                }
                Ok(())
            }
            Opcode::Getattr => self.getattr(r, out).await,
            Opcode::Statx => self.statx(r, out).await,
            Opcode::Setattr => self.setattr(r, out).await,
            Opcode::Tmpfile => self.tmpfile(r, out).await,
            Opcode::Readlink => self.readlink(r, out).await,
            Opcode::Symlink => self.symlink(r, out).await,
            Opcode::Mknod => self.mknod(r, out).await,
            Opcode::Mkdir => self.mkdir(r, out).await,
            Opcode::Unlink => self.unlink(r).await,
            Opcode::Rmdir => self.rmdir(r).await,
            Opcode::Rename | Opcode::Rename2 => self.rename(r).await,
            Opcode::Link => self.link(r, out).await,
            Opcode::Read => self.read(r, out).await,
            Opcode::Write => self.write(r, out).await,
            Opcode::Fsync | Opcode::Fsyncdir => self.fsync(r).await,
            Opcode::Syncfs => self.fs.sync().await.map_err(|e| self.fail(e)),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => self.copy(r, out).await,
            Opcode::Fallocate => self.fallocate(r).await,
            Opcode::Bmap => self.bmap(r, out).await,
            Opcode::Lseek => self.lseek(r, out).await,
            Opcode::Ioctl => self.ioctl(r, out).await,
            Opcode::Statfs => self.statfs(out).await,
            Opcode::Setxattr => self.setxattr(r).await,
            Opcode::Getxattr => self.getxattr(r, out).await,
            Opcode::Listxattr => self.listxattr(r, out).await,
            Opcode::Removexattr => self.removexattr(r).await,
            Opcode::Readdir => self.readdir(r, out).await,
            Opcode::Readdirplus => self.readdirplus(r, out).await,
            Opcode::Init => self.init(r, out),
            Opcode::Destroy => Ok(()),
            Opcode::Open if self.options.writer.is_some() => {
                self.openings.update(|openings| openings + 1);
                out.put(&OpenOut { fh: self.openings.get(), open_flags: 0, backing_id: 0 });
                Ok(())
            }
            // An inode that the kernel knows needs no opening; after this answer the kernel does
            // not ask again.
            Opcode::Open | Opcode::Opendir | Opcode::Flush | Opcode::Create => {
                Err(Failure(libc::ENOSYS))
            }
            Opcode::Release | Opcode::Releasedir => Ok(()),
            _ => Err(Failure(libc::ENOSYS)),
        }
    }

    async fn statfs(&self, out: &mut Out<'_>) -> Handled {
        let statfs = self.fs.statfs().await.map_err(|e| self.fail(e))?;
        out.statfs(&statfs);
        Ok(())
    }

    /// The features that the file system wants of the kernel.
    fn wanted(&self) -> InitFlags {
        use InitFlags as I;
        let mut wanted = I::ASYNC_READ
            | I::EXPORT_SUPPORT
            | I::BIG_WRITES
            | I::DO_READDIRPLUS
            | I::READDIRPLUS_AUTO
            | I::ASYNC_DIO
            | I::NO_OPEN_SUPPORT
            | I::PARALLEL_DIROPS
            | I::MAX_PAGES
            | I::CACHE_SYMLINKS
            | I::NO_OPENDIR_SUPPORT
            | I::HANDLE_KILLPRIV_V2
            | I::SETXATTR_EXT
            | I::INIT_EXT;
        if self.options.names_only {
            wanted -= I::DO_READDIRPLUS | I::READDIRPLUS_AUTO;
        }
        wanted.set(I::NO_OPEN_SUPPORT, self.options.writer.is_none());
        wanted.set(I::WRITEBACK_CACHE, self.options.write_back);
        wanted.set(I::POSIX_ACL | I::DONT_MASK, self.options.acl);
        wanted.set(I::OVER_IO_URING, self.options.io_uring);
        wanted.set(I::REQUEST_TIMEOUT, self.options.timeout > 0);
        wanted
    }

    fn init(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let InitIn { major, minor, flags: low, .. } = r.structure();
        if major != VERSION.0 || minor < 33 {
            (self.tell)(&format!(
                "the kernel speaks FUSE {major}.{minor}, but 7.33 (Linux 5.11) is needed"
            ));
            return Err(Failure(libc::EPROTO));
        }
        let more = r.rest.get(..InitInExt::SIZE);
        let high = more.map_or(0, |more| InitInExt::decode(more, Endian::NATIVE).flags2);
        let offered = InitFlags::from_bits_truncate(u64::from(high) << 32 | u64::from(low));
        let flags = offered & self.wanted();
        self.flags.set(flags);
        let times_out = flags.contains(InitFlags::REQUEST_TIMEOUT);
        out.put(&InitOut {
            major: VERSION.0,
            minor: VERSION.1,
            // Read-ahead is left to the kernel.
            max_readahead: MAX_DATA as u32,
            flags: flags.bits() as u32,
            max_background: 64,
            congestion_threshold: 48,
            max_write: MAX_DATA as u32,
            time_gran: 1,
            max_pages: (MAX_DATA / 4096) as u16,
            map_alignment: 0,
            flags2: (flags.bits() >> 32) as u32,
            max_stack_depth: 0,
            request_timeout: if times_out { self.options.timeout } else { 0 },
            unused: [0; 11],
        });
        Ok(())
    }
}

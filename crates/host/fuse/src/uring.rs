//! Requests over io_uring, beside `/dev/fuse`.
//!
//! The kernel has a queue of entries for each processor. An entry is memory that server and kernel
//! share, and one command of the server that stays with the kernel until there is a request. The
//! command completes with the request in the memory; the next command hands over the reply and asks
//! for the next request. So a reply and the wait for the next request are one system call, or none
//! while other entries are ready. FORGET and INTERRUPT stay on `/dev/fuse`.
//!
//! The head of an entry's memory, from `include/uapi/linux/fuse.h` (7.42):
//!
//! | byte | what |
//! |---|---|
//! | 0 | header of the request (40 bytes) or of the reply (16) |
//! | 128 | the request's structure |
//! | 256 | flags |
//! | 264 | which request it is, for the reply |
//! | 272 | bytes of names or data, or of the reply, in the other part of the memory |

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ordo_format::Endian;
use ordo_format::fuse::{InHeader, UringEntInOut};
use ordo_runtime::{Command, IoBuf, Runtime};
use ordo_vfs::FileSystem;

use crate::dev::{Clean, SMALL_REPLY, Shared};
use crate::handler::Answer;
use crate::wire::{MAX_DATA, OUT_HEADER, Opcode, Request, out_header};

/// The number of requests of one queue that may be under way.
const DEPTH: usize = 8;

/// An entry's head: the bytes for the header, and as many for the structure; then
/// [`UringEntInOut`].
const STRUCTURE: usize = 128;
const ENT_IN_OUT: usize = 2 * STRUCTURE;
const HEAD: usize = ENT_IN_OUT + UringEntInOut::SIZE;

/// The command that registers an entry (`FUSE_IO_URING_CMD_REGISTER`).
const REGISTER: u32 = 1;
/// The command that sends a reply and asks for the next request
/// (`FUSE_IO_URING_CMD_COMMIT_AND_FETCH`).
const COMMIT_AND_FETCH: u32 = 2;

/// Whether the machine's administrator allows FUSE over io_uring.
pub fn is_enabled() -> bool {
    let parameter = std::fs::read("/sys/module/fuse/parameters/enable_uring");
    parameter.is_ok_and(|text| text.first() == Some(&b'Y'))
}

/// The number of queues: one for each possible processor.
///
/// # Errors
/// The number cannot be found out.
fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let count = text.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    });
    count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of processors"))
}

/// Registers entries in every queue, and serves them from then on. The kernel sends no request
/// before each queue has an entry.
///
/// # Errors
/// The number of queues cannot be found out.
pub(crate) fn start<F: FileSystem + 'static>(shared: &Rc<Shared<F>>) -> io::Result<()> {
    let runtime = &shared.runtime;
    for queue in 0..queues()? {
        for _ in 0..DEPTH {
            let device = shared.device.clone();
            let entry = Entry { runtime: runtime.clone(), device, queue, memory: Memory::new() };
            runtime.spawn_daemon("requests over io_uring", serve(entry, shared.clone()));
        }
    }
    Ok(())
}

async fn serve<F: FileSystem>(mut entry: Entry, shared: Rc<Shared<F>>) {
    let mut given = entry.register().await;
    let mut small = Vec::new();
    loop {
        match given {
            Ok(()) => {}
            // The kernel has unmounted.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
                return;
            }
            Err(e) => return shared.fail(e),
        }
        shared.begin();
        let (mut last, mut answer) = entry.carry_out(&shared, &mut small).await;
        // Removed files may not have been forgotten yet, since FORGET comes through the device.
        if matches!(answer, Answer::Error(libc::ENOSPC)) && shared.catch_up().await {
            (last, answer) = entry.carry_out(&shared, &mut small).await;
        }
        entry.put_reply(answer);
        shared.tell_stale();
        shared.end();
        if let Some(clean) = &last {
            shared.ask(clean);
            clean.wait().await;
        }
        given = shared.looking(entry.commit()).await;
        if let Some(clean) = last {
            return clean.taken();
        }
    }
}

/// One entry of a queue.
struct Entry {
    runtime: Runtime,
    device: Arc<File>,
    queue: u16,
    memory: Memory,
}

impl Entry {
    async fn register(&mut self) -> io::Result<()> {
        self.command(REGISTER, 0, self.memory.places()).await
    }

    /// Sends the reply in the memory, and waits for the next request.
    async fn commit(&mut self) -> io::Result<()> {
        let id = ent_in_out(self.memory.parts().0).commit_id;
        self.command(COMMIT_AND_FETCH, id, (0, 0)).await
    }

    #[allow(unsafe_code)]
    async fn command(&mut self, op: u32, id: u64, memory: (u64, u32)) -> io::Result<()> {
        let command = Command { op, memory, args: [0, id, self.queue.into()] };
        // SAFETY: an entry's memory is never freed, and is not read before the command completes:
        // it is borrowed exclusively until then.
        unsafe { self.runtime.command(&self.device, command).await }.map(drop)
    }

    /// Carries out the request in the memory, and puts the reply's data there. If it was the
    /// kernel's last request, which is answered when the disk is clean, returns the signal to wait
    /// for.
    async fn carry_out<F: FileSystem>(
        &mut self,
        shared: &Shared<F>,
        small: &mut Vec<u8>,
    ) -> (Option<Rc<Clean>>, Answer) {
        let (head, payload) = self.memory.parts();
        let len = (ent_in_out(head).payload_sz as usize).min(payload.len());
        let opcode = Request::head(&head[..STRUCTURE]).map(|(opcode, _)| opcode);
        let header: [u8; STRUCTURE] = head[..STRUCTURE].try_into().expect("as long");
        let structure = &head[STRUCTURE..2 * STRUCTURE];
        let answer = if len == 0 {
            // The request has no data there, so the reply may use the space.
            match Request::parts(&header, structure, &[]) {
                None => Answer::Error(libc::ENOSYS),
                Some(request) if request.opcode == Opcode::Destroy => {
                    return (Some(Rc::default()), Answer::Reply(0));
                }
                Some(request) => shared.handler.request(&request, payload).await,
            }
        } else if opcode == Some(Opcode::Write) {
            small.resize(SMALL_REPLY, 0);
            let structure: [u8; STRUCTURE] = structure.try_into().expect("as long");
            let data = self.memory.lend(len);
            let answer = match Request::parts(&header, &structure, &[]) {
                None => Answer::Error(libc::ENOSYS),
                Some(request) => {
                    request.data.replace(Some(data));
                    shared.handler.request(&request, small).await
                }
            };
            if let Answer::Reply(len) = answer {
                self.memory.parts().1[..len].copy_from_slice(&small[..len]);
            }
            answer
        } else {
            small.resize(SMALL_REPLY, 0);
            let answer = match Request::parts(&header, structure, &payload[..len]) {
                None => Answer::Error(libc::ENOSYS),
                Some(request) => shared.handler.request(&request, small).await,
            };
            if let Answer::Reply(len) = answer {
                payload[..len].copy_from_slice(&small[..len]);
            }
            answer
        };
        (None, answer)
    }

    /// Writes the reply's header into the memory, over the request's.
    fn put_reply(&mut self, answer: Answer) {
        let (head, _) = self.memory.parts();
        let unique = InHeader::decode(head, Endian::NATIVE).unique;
        match answer {
            Answer::Reply(len) => put_reply(head, unique, 0, len),
            Answer::Error(number) => put_reply(head, unique, number, 0),
            // FORGET, which has no reply, does not come over the ring.
            Answer::Silence => put_reply(head, unique, libc::ENOSYS, 0),
        }
    }
}

fn put_reply(head: &mut [u8], unique: u64, error: i32, len: usize) {
    head[..OUT_HEADER].copy_from_slice(&out_header(unique, -error, len));
    let last = UringEntInOut { payload_sz: len as u32, ..ent_in_out(head) };
    last.encode(&mut head[ENT_IN_OUT..], Endian::NATIVE);
}

/// The last part of an entry's head.
fn ent_in_out(head: &[u8]) -> UringEntInOut {
    UringEntInOut::decode(&head[ENT_IN_OUT..], Endian::NATIVE)
}

/// The memory of an entry, which the kernel writes while it has the entry. It is never freed, since
/// nothing else may ever lie where the kernel writes.
struct Memory {
    head: NonNull<[u8; HEAD]>,
    payload: NonNull<[u8]>,
    /// The addresses and lengths of the two parts, as the kernel is told.
    vectors: &'static [(u64, u64); 2],
}

impl Memory {
    fn new() -> Memory {
        let head = NonNull::from(Box::leak(Box::new([0; HEAD])));
        // Untouched memory costs nothing. It is aligned, so that a disk can take it.
        let mut payload = std::mem::ManuallyDrop::new(IoBuf::zeroed(MAX_DATA));
        let payload = NonNull::from(&mut payload[..]);
        let place =
            |at: NonNull<u8>, len: usize| (at.as_ptr().expose_provenance() as u64, len as u64);
        let vectors = [place(head.cast(), HEAD), place(payload.cast(), MAX_DATA)];
        Memory { head, payload, vectors: Box::leak(Box::new(vectors)) }
    }

    /// The address of the vector of parts and its length, for registration.
    fn places(&self) -> (u64, u32) {
        (self.vectors.as_ptr().expose_provenance() as u64, self.vectors.len() as u32)
    }

    /// The data of a write, as a buffer.
    #[allow(unsafe_code)]
    fn lend(&mut self, len: usize) -> IoBuf {
        let start = self.payload.cast();
        assert!(len <= self.payload.len(), "more data than there is memory");
        // SAFETY: the memory was leaked, so it lives for ever, and all of it was zeroed. A file
        // system drops the buffer before its write returns (`FileSystem::write_buf`); only then
        // does the entry use the memory again, or give it to the kernel.
        unsafe { IoBuf::lent(start, len) }
    }

    /// Both parts, while the kernel does not have the entry.
    #[allow(unsafe_code)]
    fn parts(&mut self) -> (&mut [u8; HEAD], &mut [u8]) {
        // SAFETY: both parts were leaked, so they live for ever. Only this value refers to them,
        // and the kernel only during a command, which borrows this value exclusively.
        unsafe { (self.head.as_mut(), self.payload.as_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply must be where the kernel reads it: the header at byte 0, with its length and errno,
    /// and the length of its data at byte 272.
    #[test]
    fn a_reply_is_where_the_kernel_reads_it() {
        let mut memory = Memory::new();
        let (head, payload) = memory.parts();
        assert_eq!((head.len(), payload.len()), (288, 1 << 20));
        put_reply(head, 9, 0, 100);
        let number =
            |head: &[u8], at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!((number(head, 0), number(head, 4), number(head, 8)), (116, 0, 9));
        assert_eq!(number(head, 272), 100);
        put_reply(head, 9, libc::ENOENT, 0);
        assert_eq!((number(head, 0), number(head, 4)), (16, (-libc::ENOENT).cast_unsigned()));
        assert_eq!(memory.vectors.map(|(_, len)| len), [288, 1 << 20]);
    }
}

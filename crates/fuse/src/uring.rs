//! Requests over io_uring, beside `/dev/fuse`.
//!
//! The kernel has a queue of entries for each processor. An entry is memory that the two share and one command
//! of the server's that stays with the kernel until there is a request: it completes with the request in the
//! memory, and the next command brings the reply there and asks for the next one. So a reply and the wait
//! for what comes after it are one system call, and none while others are ready. FORGET and INTERRUPT stay on
//! `/dev/fuse`.
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

use ordo_runtime::{Command, Runtime};
use ordo_vfs::FileSystem;

use crate::dev::{Clean, Shared};
use crate::handler::Answer;
use crate::wire::{MAX_DATA, OUT_HEADER, Opcode, Request, get_u32, get_u64};

/// Requests of one queue that may be under way.
const DEPTH: usize = 8;

const STRUCTURE: usize = 128;
const COMMIT_ID: usize = 264;
const PAYLOAD: usize = 272;
const HEAD: usize = 288;

/// Replies to what came with names or data: an attribute's value at most.
const SMALL: usize = (64 << 10) + 4096;

/// Offers an entry.
const REGISTER: u32 = 1;
/// Answers a request, and asks for the next.
const COMMIT_AND_FETCH: u32 = 2;

/// Whether the kernel may be asked for requests over io_uring: whoever runs the machine says so.
pub fn is_enabled() -> bool {
    let parameter = std::fs::read("/sys/module/fuse/parameters/enable_uring");
    parameter.is_ok_and(|text| text.first() == Some(&b'Y'))
}

/// How many queues there are: one for each processor that there may be.
///
/// # Errors
/// It cannot be found out.
fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let count = text.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    });
    count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of processors"))
}

/// Offers entries in every queue, and serves them from then on. No request comes before each queue has one.
///
/// # Errors
/// It cannot be found out how many queues there are.
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
            // The kernel has let go.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
                return;
            }
            Err(e) => return shared.fail(e),
        }
        shared.begin();
        let (mut last, mut answer) = entry.carry_out(&shared, &mut small).await;
        // What was removed may not be forgotten yet, because that comes another way.
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

    /// Sends the reply that lies in the memory, and waits for the next request.
    async fn commit(&mut self) -> io::Result<()> {
        let id = get_u64(self.memory.parts().0, COMMIT_ID);
        self.command(COMMIT_AND_FETCH, id, (0, 0)).await
    }

    #[allow(unsafe_code)]
    async fn command(&mut self, op: u32, id: u64, memory: (u64, u32)) -> io::Result<()> {
        let command = Command { op, memory, args: [0, id, self.queue.into()] };
        // SAFETY: an entry's memory is never given back, and is not looked at before the command completes:
        // it is borrowed alone until then.
        unsafe { self.runtime.command(&self.device, command).await }.map(drop)
    }

    /// Carries out the request that lies in the memory, and puts there what the reply brings. With the last
    /// request, which is to be answered when the disk is clean, what waits for that.
    async fn carry_out<F: FileSystem>(
        &mut self,
        shared: &Shared<F>,
        small: &mut Vec<u8>,
    ) -> (Option<Rc<Clean>>, Answer) {
        let (head, payload) = self.memory.parts();
        let len = (get_u32(head, PAYLOAD) as usize).min(payload.len());
        let header: [u8; STRUCTURE] = head[..STRUCTURE].try_into().expect("as long");
        let structure = &head[STRUCTURE..2 * STRUCTURE];
        let answer = if len == 0 {
            // Nothing came there: the reply may go there.
            match Request::parts(&header, structure, &[]) {
                None => Answer::Error(libc::ENOSYS),
                Some(request) if request.opcode == Opcode::Destroy => {
                    return (Some(Rc::default()), Answer::Reply(0));
                }
                Some(request) => shared.handler.request(&request, payload).await,
            }
        } else {
            small.resize(SMALL, 0);
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

    /// Puts the reply's head into the memory, over the request's.
    fn put_reply(&mut self, answer: Answer) {
        let (head, _) = self.memory.parts();
        let unique = get_u64(head, 8);
        match answer {
            Answer::Reply(len) => put_reply(head, unique, 0, len),
            Answer::Error(number) => put_reply(head, unique, number, 0),
            // FORGET does not come here.
            Answer::Silence => put_reply(head, unique, libc::ENOSYS, 0),
        }
    }
}

fn put_reply(head: &mut [u8], unique: u64, error: i32, len: usize) {
    head[..4].copy_from_slice(&((OUT_HEADER + len) as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(-error).to_ne_bytes());
    head[8..16].copy_from_slice(&unique.to_ne_bytes());
    head[PAYLOAD..PAYLOAD + 4].copy_from_slice(&(len as u32).to_ne_bytes());
}

/// Memory of an entry, which the kernel writes while the entry is with it. It is never given back: nothing
/// else may ever lie where the kernel writes.
struct Memory {
    head: NonNull<[u8; HEAD]>,
    payload: NonNull<[u8]>,
    /// Where the two are, as the kernel is told.
    vectors: &'static [(u64, u64); 2],
}

impl Memory {
    fn new() -> Memory {
        let head = NonNull::from(Box::leak(Box::new([0; HEAD])));
        // Untouched memory costs nothing.
        let payload = NonNull::from(Box::leak(vec![0; MAX_DATA].into_boxed_slice()));
        let place =
            |at: NonNull<u8>, len: usize| (at.as_ptr().expose_provenance() as u64, len as u64);
        let vectors = [place(head.cast(), HEAD), place(payload.cast(), MAX_DATA)];
        Memory { head, payload, vectors: Box::leak(Box::new(vectors)) }
    }

    /// What the kernel is told at the start: an address and a number of places.
    fn places(&self) -> (u64, u32) {
        (self.vectors.as_ptr().expose_provenance() as u64, self.vectors.len() as u32)
    }

    /// Both parts, while the entry is not with the kernel.
    #[allow(unsafe_code)]
    fn parts(&mut self) -> (&mut [u8; HEAD], &mut [u8]) {
        // SAFETY: both were leaked, so they are there for ever, and nobody else has them: the kernel only
        // while a command is under way, and that borrows this value alone.
        unsafe { (self.head.as_mut(), self.payload.as_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply must lie where the kernel looks for it: header at 0, its length and the error in it, the
    /// length of what it brings at 272.
    #[test]
    fn a_reply_lies_in_its_place() {
        let mut memory = Memory::new();
        let (head, payload) = memory.parts();
        assert_eq!((head.len(), payload.len()), (288, 1 << 20));
        put_reply(head, 9, 0, 100);
        assert_eq!((get_u32(head, 0), get_u32(head, 4), get_u64(head, 8)), (116, 0, 9));
        assert_eq!(get_u32(head, 272), 100);
        put_reply(head, 9, libc::ENOENT, 0);
        assert_eq!((get_u32(head, 0), get_u32(head, 4)), (16, (-libc::ENOENT).cast_unsigned()));
        assert_eq!(memory.vectors.map(|(_, len)| len), [288, 1 << 20]);
    }
}

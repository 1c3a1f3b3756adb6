//! The connection by which a guest's clock is Ordo's: the calendar of user-mode Linux, in memory
//! that both share.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ordo_format::vhost_user::{
    SCHEDSHM_CLIENT, SCHEDSHM_FLAGS_REQ_RUN, SCHEDSHM_HEADER, SCHEDSHM_VERSION, Schedshm,
    SchedshmClient, TimetravelMsg, timetravel,
};
use ordo_format::{Endian, Field, OnDisk};
use ordo_runtime::Time;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::error::{GuestError, protocol, starting};
use crate::wire;

/// Bytes of the shared memory: its head, and one client.
const SHARED: usize = SCHEDSHM_HEADER + SCHEDSHM_CLIENT;

/// The place of a field.
fn place(fields: &'static [Field], name: &str) -> usize {
    Field::find(fields, name).expect("a field of the structure").offset
}

/// The place of a field of the shared memory's head.
fn head(name: &str) -> usize {
    place(Schedshm::FIELDS, name)
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A question, which was answered.
    Answered,
    /// The guest waits until it is told to run.
    Waits,
    /// The guest has closed its end.
    Closed,
}

/// A guest's place in the calendar.
pub(crate) struct Calendar {
    socket: UnixStream,
    shared: MmapRegion<()>,
    file: OwnedFd,
    /// The moment at which the guest's own time began.
    origin: Time,
    /// The time of day at Ordo's time zero, in nanoseconds since 1970.
    epoch_ns: u64,
    runs: u32,
}

impl Calendar {
    /// A calendar for the guest at the other end of a socket, which starts at `now`.
    pub(crate) fn new(socket: UnixStream, now: Time, epoch_ns: u64) -> Result<Self, GuestError> {
        let failed = starting("memory for the calendar");
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("calendar", flags).map_err(&failed)?;
        rustix::fs::ftruncate(&file, SHARED as u64).map_err(&failed)?;
        let own = std::fs::File::from(file.try_clone().map_err(starting("the calendar"))?);
        let shared = MmapRegion::from_file(FileOffset::new(own, 0), SHARED);
        let shared = shared.map_err(starting("memory for the calendar"))?;
        let calendar = Calendar { socket, shared, file, origin: now, epoch_ns, runs: 0 };
        calendar.word(head("version")).store(SCHEDSHM_VERSION, Ordering::Relaxed);
        calendar.word(head("len")).store(SHARED as u32, Ordering::Relaxed);
        // Client 0 runs, and there is one.
        calendar.word(head("running_id")).store(1 << 16, Ordering::Relaxed);
        calendar.set_time(now);
        Ok(calendar)
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.shared.get_atomic_ref(at).expect("within the memory")
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        self.shared.get_atomic_ref(at).expect("within the memory")
    }

    /// The time that the guest has reached.
    pub(crate) fn time(&self) -> Time {
        Time::from_nanos(self.long(head("current_time")).load(Ordering::Acquire))
    }

    /// Sets the time, while the guest waits.
    pub(crate) fn set_time(&self, now: Time) {
        self.long(head("current_time")).store(now.as_nanos(), Ordering::Release);
    }

    /// Sets the time before which the guest need not ask.
    pub(crate) fn set_free_until(&self, until: Time) {
        // The kernel subtracts from it; half of all times is far enough.
        let until = until.as_nanos().min(1 << 62);
        self.long(head("free_until")).store(until, Ordering::Release);
    }

    /// The time at which the guest has asked to run.
    pub(crate) fn request(&self) -> Option<Time> {
        let client = |name| SCHEDSHM_HEADER + place(SchedshmClient::FIELDS, name);
        let flags = self.word(client("flags")).load(Ordering::Acquire);
        let at = self.long(client("req_time")).load(Ordering::Acquire);
        (flags & SCHEDSHM_FLAGS_REQ_RUN != 0).then_some(Time::from_nanos(at))
    }

    /// Lets the waiting guest run, at the time that was set.
    pub(crate) fn run(&mut self) -> Result<(), GuestError> {
        let time = self.time().since(self.origin).as_nanos() as u64;
        self.runs = (self.runs + 1) & 0x3fff_ffff;
        self.send(TimetravelMsg { op: timetravel::RUN, seq: self.runs | 0x4000_0000, time }, &[])
    }

    /// Takes a message in.
    pub(crate) fn hear(&mut self) -> Result<Said, GuestError> {
        let got = wire::receive(&self.socket, TimetravelMsg::SIZE);
        let (bytes, _) = got.map_err(|e| protocol("calendar", e))?;
        if bytes.is_empty() {
            return Ok(Said::Closed);
        }
        let TimetravelMsg { op, seq, time } = TimetravelMsg::decode(&bytes, Endian::NATIVE);
        let mut reply = TimetravelMsg { op: timetravel::ACK, seq, time: 0 };
        match op {
            timetravel::ACK => return Ok(Said::Answered),
            // With shared memory a wait has no acknowledgement.
            timetravel::WAIT => return Ok(Said::Waits),
            timetravel::START => {
                let log = std::fs::File::open("/dev/null").map_err(starting("/dev/null"))?;
                let file = self.file.try_clone().map_err(starting("the calendar"))?;
                self.send(reply, &[file, log.into()])?;
                return Ok(Said::Answered);
            }
            timetravel::GET => reply.time = self.time().since(self.origin).as_nanos() as u64,
            timetravel::UPDATE => {}
            timetravel::GET_TOD => reply.time = self.epoch_ns + self.time().as_nanos(),
            _ => return Err(protocol("calendar", format!("message {op} at {time} ns"))),
        }
        self.send(reply, &[])?;
        Ok(Said::Answered)
    }

    fn send(&self, message: TimetravelMsg, files: &[OwnedFd]) -> Result<(), GuestError> {
        let mut bytes = vec![0; TimetravelMsg::SIZE];
        message.put(&mut bytes, 0, Endian::NATIVE);
        let sent = match files {
            [] => wire::send(&self.socket, &bytes),
            files => wire::send_files(&self.socket, &bytes, files),
        };
        sent.map_err(|e| protocol("calendar", e))
    }
}

//! A disk of a guest: a device of `block`, served over vhost-user.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

use ordo_block::{BlockDevice, BlockError, Device, Geometry, IoBuf, WriteFlags, pieces};
use ordo_format::vhost_user::{
    BLK_F_BLK_SIZE, BLK_F_DISCARD, BLK_F_FLUSH, BLK_F_RO, BLK_F_SEG_MAX, BLK_F_SIZE_MAX,
    F_INDIRECT_DESC, F_PROTOCOL_FEATURES, F_VERSION_1, FLAG_NEED_REPLY, FLAG_REPLY,
    PROTOCOL_FEATURES, SLAVE_VRING_CALL, VERSION, VhostConfig, VhostHeader, VirtioBlkConfig,
    VirtioBlkDiscard, VirtioBlkOuthdr, VringAddr, VringState, blk, request,
};
use ordo_format::{Endian, OnDisk};
use ordo_runtime::Runtime;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT};

use crate::error::{GuestError, protocol};
use crate::memory::Memory;
use crate::wire;

/// Bytes of a sector of virtio.
const SECTOR: u64 = 512;
/// The most entries of a ring that Linux asks for.
const RING: u16 = 1024;
/// The largest piece of a request in bytes, and the most pieces: no request is above 1 MiB.
const PIECE: u32 = 8192;
const PIECES: u32 = 128;
/// The longest wait for a guest's answer to a call. It gives it at once, unless it hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// The longest message.
const LONGEST: u32 = 4096;

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A question, which was answered.
    Answered,
    /// There are requests in the ring. The guest waits for the acknowledgement.
    Kick,
    /// The guest has closed its end.
    Closed,
}

/// A disk, as its guest sees it.
pub(crate) struct Disk {
    name: String,
    device: Device,
    listener: UnixListener,
    socket: OnceCell<UnixStream>,
    /// The channel for the disk's own messages.
    channel: RefCell<Option<UnixStream>>,
    memory: RefCell<Option<Rc<Memory>>>,
    queue: RefCell<Queue>,
    /// Whether the ring has results of which the guest has not been told.
    has_news: Cell<bool>,
    /// Whether the guest has closed its end.
    is_closed: Cell<bool>,
}

impl Disk {
    pub(crate) fn new(name: String, device: Device, listener: UnixListener) -> Disk {
        Disk {
            name,
            device,
            listener,
            socket: OnceCell::new(),
            channel: RefCell::default(),
            memory: RefCell::default(),
            queue: RefCell::new(Queue::new(RING).expect("a power of two")),
            has_news: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// The file that can be read when there is something to hear.
    pub(crate) fn ears(&self) -> BorrowedFd<'_> {
        self.socket.get().map_or_else(|| self.listener.as_fd(), AsFd::as_fd)
    }

    fn socket(&self) -> Result<&UnixStream, GuestError> {
        self.socket.get().ok_or_else(|| self.wrong("it is not connected"))
    }

    fn wrong(&self, why: impl std::fmt::Display) -> GuestError {
        protocol(&self.name, why)
    }

    /// Takes a message or the connection in.
    pub(crate) fn hear(&self) -> Result<Heard, GuestError> {
        let Some(socket) = self.socket.get() else {
            let (socket, _) = self.listener.accept().map_err(|e| self.wrong(e))?;
            let _ = self.socket.set(socket);
            return Ok(Heard::Answered);
        };
        let received = wire::receive(socket, VhostHeader::SIZE).map_err(|e| self.wrong(e))?;
        let (head, files) = received;
        if head.is_empty() {
            self.is_closed.set(true);
            return Ok(Heard::Closed);
        }
        let head = VhostHeader::decode(&head, Endian::NATIVE);
        if head.size > LONGEST {
            return Err(self.wrong(format!("a message of {} bytes", head.size)));
        }
        let body = wire::receive_rest(socket, head.size as usize).map_err(|e| self.wrong(e))?;
        match head.request {
            request::VRING_KICK => return Ok(Heard::Kick),
            request::GET_FEATURES => self.reply(head.request, &self.features().to_ne_bytes())?,
            request::GET_PROTOCOL_FEATURES => {
                self.reply(head.request, &PROTOCOL_FEATURES.to_ne_bytes())?;
            }
            request::GET_CONFIG => self.reply(head.request, &self.config(&body)?)?,
            request::GET_VRING_BASE => {
                let num = u32::from(self.queue.borrow().next_avail());
                let state = VringState { index: self.ring(&body)?.index, num };
                self.reply(head.request, &bytes_of(&state))?;
            }
            _ => {
                self.set(head.request, &body, files)?;
                if head.flags & FLAG_NEED_REPLY != 0 {
                    self.acknowledge(head.request)?;
                }
            }
        }
        Ok(Heard::Answered)
    }

    /// Carries out a message that changes the disk's state.
    fn set(&self, what: u32, body: &[u8], files: Vec<File>) -> Result<(), GuestError> {
        match what {
            request::SET_MEM_TABLE => {
                let memory = Memory::map(body, files).map_err(|why| self.wrong(why))?;
                self.memory.replace(Some(Rc::new(memory)));
            }
            request::SET_VRING_NUM => {
                let size = u16::try_from(self.ring(body)?.num).unwrap_or(u16::MAX);
                self.queue.borrow_mut().try_set_size(size).map_err(|e| self.wrong(e))?;
            }
            request::SET_VRING_BASE => {
                let next = (self.ring(body)?.num & 0xffff) as u16;
                let mut queue = self.queue.borrow_mut();
                queue.set_next_avail(next);
                queue.set_next_used(next);
            }
            request::SET_VRING_ADDR => self.set_ring(body)?,
            request::SET_SLAVE_REQ_FD => {
                let file = files.into_iter().next().ok_or_else(|| self.wrong("no channel"))?;
                let channel = UnixStream::from(OwnedFd::from(file));
                channel.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(|e| self.wrong(e))?;
                self.channel.replace(Some(channel));
            }
            // The ring is ready from its address on; notifications are messages.
            request::SET_FEATURES
            | request::SET_PROTOCOL_FEATURES
            | request::SET_OWNER
            | request::SET_VRING_ENABLE
            | request::SET_VRING_KICK
            | request::SET_VRING_CALL
            | request::SET_CONFIG => {}
            _ => return Err(self.wrong(format!("message {what} is not known"))),
        }
        Ok(())
    }

    fn set_ring(&self, body: &[u8]) -> Result<(), GuestError> {
        if body.len() < VringAddr::SIZE {
            return Err(self.wrong("a ring's address is cut off"));
        }
        let addr = VringAddr::decode(body, Endian::NATIVE);
        let memory = self.memory()?;
        let place = |user: u64| {
            let found = memory.guest_address(user);
            found.ok_or_else(|| self.wrong(format!("{user:#x} is not in the guest's memory")))
        };
        let mut queue = self.queue.borrow_mut();
        queue.try_set_desc_table_address(place(addr.desc)?).map_err(|e| self.wrong(e))?;
        queue.try_set_avail_ring_address(place(addr.avail)?).map_err(|e| self.wrong(e))?;
        queue.try_set_used_ring_address(place(addr.used)?).map_err(|e| self.wrong(e))?;
        queue.set_ready(true);
        Ok(())
    }

    fn ring(&self, body: &[u8]) -> Result<VringState, GuestError> {
        let state = body.get(..VringState::SIZE).map(|b| VringState::decode(b, Endian::NATIVE));
        let state = state.ok_or_else(|| self.wrong("a ring's state is cut off"))?;
        if state.index == 0 { Ok(state) } else { Err(self.wrong("it has one ring")) }
    }

    fn memory(&self) -> Result<Rc<Memory>, GuestError> {
        self.memory.borrow().clone().ok_or_else(|| self.wrong("no memory was announced"))
    }

    fn features(&self) -> u64 {
        let Geometry { volatile_cache, read_only, .. } = self.device.geometry();
        let always = F_VERSION_1 | F_PROTOCOL_FEATURES | F_INDIRECT_DESC;
        let flush = if volatile_cache { BLK_F_FLUSH } else { 0 };
        let limits = BLK_F_SIZE_MAX | BLK_F_SEG_MAX | BLK_F_BLK_SIZE;
        always | limits | flush | if read_only { BLK_F_RO } else { BLK_F_DISCARD }
    }

    /// The answer to a question for the configuration.
    fn config(&self, asked: &[u8]) -> Result<Vec<u8>, GuestError> {
        if asked.len() < VhostConfig::SIZE {
            return Err(self.wrong("a question for the configuration is cut off"));
        }
        let Geometry { bytes, sector, .. } = self.device.geometry();
        let config = VirtioBlkConfig {
            capacity: bytes / SECTOR,
            size_max: PIECE,
            seg_max: PIECES,
            blk_size: sector,
            num_queues: 1,
            max_discard_sectors: u32::MAX,
            max_discard_seg: 1,
            discard_sector_alignment: sector / SECTOR as u32,
            ..VirtioBlkConfig::zeroed()
        };
        let mut all = vec![0; VirtioBlkConfig::SIZE];
        config.encode(&mut all, Endian::Little);
        // The configuration is as long as it was asked for; what is not known is zero.
        let mut answer = asked.to_vec();
        let rest = &mut answer[VhostConfig::SIZE..];
        let known = rest.len().min(all.len());
        rest[..known].copy_from_slice(&all[..known]);
        Ok(answer)
    }

    fn reply(&self, request: u32, body: &[u8]) -> Result<(), GuestError> {
        let head = VhostHeader { request, flags: VERSION | FLAG_REPLY, size: body.len() as u32 };
        let message = [&bytes_of(&head)[..], body].concat();
        wire::send(self.socket()?, &message).map_err(|e| self.wrong(e))
    }

    fn acknowledge(&self, request: u32) -> Result<(), GuestError> {
        self.reply(request, &0u64.to_ne_bytes())
    }

    /// Lets the guest go on after a kick.
    pub(crate) fn acknowledge_kick(&self) -> Result<(), GuestError> {
        self.acknowledge(request::VRING_KICK)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether the ring has results of which the guest has not been told.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.get()
    }

    /// Tells the guest of results. It takes the message in at once, and runs later.
    pub(crate) fn call(&self) -> Result<(), GuestError> {
        self.has_news.set(false);
        let channel = self.channel.borrow();
        let channel = channel.as_ref().ok_or_else(|| self.wrong("it has no channel"))?;
        let flags = VERSION | FLAG_NEED_REPLY;
        let head = VhostHeader { request: SLAVE_VRING_CALL, flags, size: VringState::SIZE as u32 };
        let ring = VringState { index: 0, num: 0 };
        let message = [bytes_of(&head), bytes_of(&ring)].concat();
        wire::send(channel, &message).map_err(|e| self.wrong(e))?;
        let (reply, _) = wire::receive(channel, VhostHeader::SIZE).map_err(|e| self.wrong(e))?;
        if reply.is_empty() {
            return Err(self.wrong("it ended while it was told of results"));
        }
        let size = VhostHeader::decode(&reply, Endian::NATIVE).size.min(LONGEST);
        wire::receive_rest(channel, size as usize).map(drop).map_err(|e| self.wrong(e))
    }

    /// Starts a task for each new request of the ring, in the ring's order.
    pub(crate) fn take_requests(self: &Rc<Self>, runtime: &Runtime) -> Result<(), GuestError> {
        let memory = self.memory()?;
        loop {
            let chain = self.queue.borrow_mut().pop_descriptor_chain(memory.mapped());
            let Some(chain) = chain else { return Ok(()) };
            let head = chain.head_index();
            let parts: Vec<Descriptor> = chain.collect();
            let request =
                Request { disk: Rc::clone(self), memory: Rc::clone(&memory), head, parts };
            runtime.spawn_daemon("a guest's request", request.carry_out());
        }
    }
}

fn bytes_of<T: OnDisk>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::SIZE];
    value.put(&mut bytes, 0, Endian::NATIVE);
    bytes
}

/// A request, from the ring.
struct Request {
    disk: Rc<Disk>,
    memory: Rc<Memory>,
    head: u16,
    parts: Vec<Descriptor>,
}

impl Request {
    /// Carries the request out, and puts its result into the ring.
    async fn carry_out(self) {
        let (status, given) = match self.result().await {
            Ok(given) => (blk::S_OK, given),
            Err(status) => (status, 0),
        };
        let Some(last) = self.parts.last() else { return };
        // The status is the last byte of the request.
        let end = last.addr().0.saturating_add(u64::from(last.len()).saturating_sub(1));
        self.memory.write(&[status], vm_memory::GuestAddress(end));
        let mut queue = self.disk.queue.borrow_mut();
        if queue.add_used(self.memory.mapped(), self.head, given + 1).is_ok() {
            self.disk.has_news.set(true);
        }
    }

    /// Carries the request out, and returns the bytes that the guest is given.
    async fn result(&self) -> Result<u32, u8> {
        let [first, data @ .., _] = &self.parts[..] else { return Err(blk::S_IOERR) };
        let mut head = [0; VirtioBlkOuthdr::SIZE];
        if (first.len() as usize) < head.len() || !self.memory.read(&mut head, first.addr()) {
            return Err(blk::S_IOERR);
        }
        let head = VirtioBlkOuthdr::decode(&head, Endian::Little);
        let offset = head.sector.checked_mul(SECTOR).ok_or(blk::S_IOERR)?;
        let len: u64 = data.iter().map(|part| u64::from(part.len())).sum();
        let most = u64::from(PIECE) * u64::from(PIECES);
        if len > most {
            return Err(blk::S_IOERR);
        }
        let device = &self.disk.device;
        let failed = |_: BlockError| blk::S_IOERR;
        match head.kind {
            blk::T_IN => {
                let bytes = pieces::read_all(device, offset, len as usize).await.map_err(failed)?;
                self.scatter(data, &bytes)?;
                Ok(len as u32)
            }
            blk::T_OUT => {
                let bytes = self.gather(data, len as usize)?;
                write(device, offset, bytes).await.map_err(failed)?;
                Ok(0)
            }
            blk::T_FLUSH => device.flush().await.map_err(failed).map(|()| 0),
            blk::T_GET_ID => {
                let mut name = self.disk.name.clone().into_bytes();
                name.resize(len as usize, 0);
                self.scatter(data, &name)?;
                Ok(len as u32)
            }
            blk::T_DISCARD => {
                let bytes = self.gather(data, len as usize)?;
                for range in bytes.chunks_exact(VirtioBlkDiscard::SIZE) {
                    let range = VirtioBlkDiscard::decode(range, Endian::Little);
                    let offset = range.sector.checked_mul(SECTOR).ok_or(blk::S_IOERR)?;
                    let len = u64::from(range.num_sectors) * SECTOR;
                    device.discard(offset, len).await.map_err(failed)?;
                }
                Ok(0)
            }
            _ => Err(blk::S_UNSUPP),
        }
    }

    /// Copies bytes to the guest's memory.
    fn scatter(&self, to: &[Descriptor], mut bytes: &[u8]) -> Result<(), u8> {
        for part in to {
            let (now, rest) = bytes.split_at_checked(part.len() as usize).ok_or(blk::S_IOERR)?;
            if !self.memory.write(now, part.addr()) {
                return Err(blk::S_IOERR);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Copies bytes from the guest's memory.
    fn gather(&self, from: &[Descriptor], len: usize) -> Result<IoBuf, u8> {
        let mut bytes = IoBuf::scratch(len);
        let mut done = 0;
        for part in from {
            let next = done + part.len() as usize;
            if !self.memory.read(&mut bytes[done..next], part.addr()) {
                return Err(blk::S_IOERR);
            }
            done = next;
        }
        Ok(bytes)
    }
}

/// Writes in one request if the device takes it in one.
async fn write(device: &Device, offset: u64, bytes: IoBuf) -> Result<(), BlockError> {
    if bytes.len() <= device.geometry().max_request {
        return device.write(offset, bytes, WriteFlags::empty()).await;
    }
    pieces::write_all(device, offset, &bytes, WriteFlags::empty()).await
}

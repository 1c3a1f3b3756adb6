//! The disk by which a guest gets its orders and answers them, in virtual time.
//!
//! | bytes from | read | written |
//! |---|---|---|
//! | 0 | zeros | refused |
//! | [`ORDERS`] + n * [`SLOT`] | order n, as soon as there is one | the answer to order n |
//! | [`MARKS`] | zeros | a mark |
//!
//! Each text is JSON after its length, a number of 4 bytes, little-endian.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, Fault, Geometry, IoBuf, Operation, WriteFlags};
use ordo_runtime::sync::Notify;

use crate::error::GuestError;
use crate::orders::{GuestAnswer, Order};

/// The name by which the guest finds the disk.
pub(crate) const SERIAL: &str = "ordo-orders";
/// The first order.
pub(crate) const ORDERS: u64 = 1 << 30;
/// Bytes from one order to the next.
pub(crate) const SLOT: u64 = 1 << 20;
/// The place of marks.
pub(crate) const MARKS: u64 = 1 << 50;
/// Bytes of the first read of an order.
pub(crate) const FIRST: usize = 64 << 10;
/// Bytes of the disk, of which none exists.
const BYTES: u64 = 1 << 51;

/// Bytes with their length before them, of whole pages.
pub(crate) fn framed(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

/// The bytes whose length is before them, as far as they are there.
pub(crate) fn unframed(bytes: &[u8]) -> Option<&[u8]> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    bytes.get(4..)?.get(..len)
}

/// Called with each mark, at its time.
pub(crate) type OnMark = Box<dyn Fn(&str)>;

/// The orders, and the disk of which the guest reads them.
pub(crate) struct Control {
    /// The last order, framed, and its number.
    order: RefCell<Option<(u64, Vec<u8>)>>,
    answer: RefCell<Option<GuestAnswer>>,
    next: Cell<u64>,
    changed: Notify,
    failed: RefCell<Option<GuestError>>,
    on_mark: RefCell<Option<OnMark>>,
}

impl Control {
    pub(crate) fn new() -> Rc<Control> {
        Rc::new(Control {
            order: RefCell::default(),
            answer: RefCell::default(),
            next: Cell::new(0),
            changed: Notify::new("a guest's answer", 0),
            failed: RefCell::default(),
            on_mark: RefCell::default(),
        })
    }

    pub(crate) fn on_mark(&self, call: OnMark) {
        self.on_mark.replace(Some(call));
    }

    /// Gives an order, and waits for the answer.
    pub(crate) async fn ask(&self, order: &Order) -> Result<GuestAnswer, GuestError> {
        let text = serde_json::to_vec(order).map_err(|e| GuestError::Order(e.to_string()))?;
        let bytes = framed(&text);
        if bytes.len() as u64 > SLOT {
            let why = "a program's arguments and environment are longer than 1 MiB";
            return Err(GuestError::Order(why.to_owned()));
        }
        let number = self.next.get();
        self.next.set(number + 1);
        self.order.replace(Some((number, bytes)));
        self.changed.notify_all();
        loop {
            if let Some(answer) = self.answer.take() {
                return Ok(answer);
            }
            if let Some(error) = &*self.failed.borrow() {
                return Err(error.clone());
            }
            self.changed.notified().await;
        }
    }

    /// Ends each wait: the guest is gone.
    pub(crate) fn fail(&self, error: GuestError) {
        self.failed.borrow_mut().get_or_insert(error);
        self.changed.notify_all();
    }

    /// The reason why the guest is gone.
    pub(crate) fn failure(&self) -> Option<GuestError> {
        self.failed.borrow().clone()
    }

    /// The part of order `number` from byte `from` on, which may be behind its end.
    async fn part(&self, number: u64, from: usize, len: usize) -> IoBuf {
        loop {
            if let Some((last, bytes)) = &*self.order.borrow()
                && *last == number
            {
                let mut buf = IoBuf::zeroed(len);
                let rest = bytes.get(from..).unwrap_or_default();
                let len = rest.len().min(len);
                buf[..len].copy_from_slice(&rest[..len]);
                return buf;
            }
            self.changed.notified().await;
        }
    }
}

/// The disk of a guest's orders.
pub(crate) struct ControlDisk(pub(crate) Rc<Control>);

impl BlockDevice for ControlDisk {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: BYTES,
            sector: 512,
            max_request: SLOT as usize,
            volatile_cache: false,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        if !(ORDERS..MARKS).contains(&offset) {
            return Ok(IoBuf::zeroed(len));
        }
        let (number, from) = ((offset - ORDERS) / SLOT, (offset - ORDERS) % SLOT);
        Ok(self.0.part(number, from as usize, len).await)
    }

    async fn write(&self, offset: u64, data: IoBuf, _: WriteFlags) -> Result<(), BlockError> {
        let fault = Fault::OutOfRange;
        let refused = BlockError { op: Operation::Write, offset, len: data.len(), fault };
        let text = unframed(&data).ok_or(refused)?;
        if offset >= MARKS {
            if let Some(call) = &*self.0.on_mark.borrow() {
                call(&String::from_utf8_lossy(text));
            }
            return Ok(());
        }
        let answer = serde_json::from_slice(text).map_err(|_| refused)?;
        self.0.answer.replace(Some(answer));
        self.0.changed.notify_all();
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), BlockError> {
        Ok(())
    }
}

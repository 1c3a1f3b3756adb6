//! Requests that the observer is shown after they were sent on: naming a block then costs no time
//! of the program that waits for the request.
//!
//! The observer sees every request in order. It is shown those that it may see later when the
//! server has nothing else to do, or when too many bytes wait, and all of them before one that it
//! must see at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ordo_block::tap::{Completed, Issued, KeptData, TapSink};
use ordo_block::{BlockError, Operation, WriteFlags};
use ordo_runtime::sync::Notify;
use ordo_runtime::{Runtime, Time};

use crate::device::{Core, IsUrgent};

/// The most contents that wait, in bytes.
const WAITING_MAX: usize = 16 << 20;
/// The most requests that wait.
const REQUESTS_MAX: usize = 4096;

/// A request that waits to be shown.
struct WaitingRequest {
    id: u64,
    op: Operation,
    offset: u64,
    len: u64,
    flags: WriteFlags,
    issued: Time,
    epoch: u64,
    step: Step,
}

enum Step {
    Issued { data: Option<KeptData> },
    Completed { order: u64, at: Time, result: Result<(), BlockError> },
}

/// A sink that shows requests to another one later.
pub(crate) struct ShownLater {
    sink: Rc<dyn TapSink>,
    is_urgent: IsUrgent,
    waiting: RefCell<VecDeque<WaitingRequest>>,
    bytes: Cell<usize>,
    wake: Notify,
}

impl ShownLater {
    pub(crate) fn new(sink: Rc<dyn TapSink>, is_urgent: IsUrgent) -> ShownLater {
        let wake = Notify::new("requests to show to the observer", 0);
        let (waiting, bytes) = (RefCell::default(), Cell::new(0));
        ShownLater { sink, is_urgent, waiting, bytes, wake }
    }

    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    fn is_full(&self) -> bool {
        self.bytes.get() > WAITING_MAX || self.waiting.borrow().len() > REQUESTS_MAX
    }

    fn push(&self, request: WaitingRequest) {
        self.waiting.borrow_mut().push_back(request);
        self.wake.notify_one();
    }

    /// Shows the oldest request. Returns whether there was one.
    fn show(&self) -> bool {
        let Some(request) = self.waiting.borrow_mut().pop_front() else { return false };
        let WaitingRequest { id, op, offset, len, flags, issued, epoch, step } = request;
        match step {
            Step::Issued { data } => {
                self.bytes.update(|bytes| bytes - data.as_ref().map_or(0, |data| data.len()));
                let (data, at, shared) = (data.as_deref(), issued, None);
                let request = Issued { id, op, offset, len, flags, data, shared, at, epoch };
                self.sink.issued(&request);
            }
            Step::Completed { order, at, result } => {
                let data = None;
                self.sink.completed(&Completed {
                    id,
                    order,
                    op,
                    offset,
                    len,
                    flags,
                    data,
                    issued,
                    at,
                    epoch,
                    result,
                });
            }
        }
        true
    }

    /// Shows all requests that wait.
    pub(crate) fn show_all(&self) {
        while self.show() {}
    }
}

impl TapSink for ShownLater {
    fn issued(&self, r: &Issued<'_>) {
        if (self.is_urgent)(r) {
            self.show_all();
            return self.sink.issued(r);
        }
        let data = r.data.map(|data| KeptData::of(data, r.shared));
        self.bytes.update(|bytes| bytes + r.data.map_or(0, <[u8]>::len));
        let (id, op, offset, len, flags) = (r.id, r.op, r.offset, r.len, r.flags);
        let (issued, epoch, step) = (r.at, r.epoch, Step::Issued { data });
        self.push(WaitingRequest { id, op, offset, len, flags, issued, epoch, step });
        while self.is_full() && self.show() {}
    }

    fn completed(&self, r: &Completed<'_>) {
        // The data of a read are not kept for later.
        if r.data.is_some() || self.is_empty() {
            self.show_all();
            return self.sink.completed(r);
        }
        let (id, op, offset, len, flags) = (r.id, r.op, r.offset, r.len, r.flags);
        let (issued, epoch) = (r.issued, r.epoch);
        let step = Step::Completed { order: r.order, at: r.at, result: r.result };
        self.push(WaitingRequest { id, op, offset, len, flags, issued, epoch, step });
    }
}

/// Shows requests to the observer of a device while the server has nothing else to do.
pub(crate) async fn show_while_idle(runtime: Runtime, core: Rc<Core>) {
    core.may_show_later();
    loop {
        let Some(later) = core.shown_later() else {
            core.attached.notified().await;
            continue;
        };
        if later.is_empty() {
            later.wake.notified().await;
        }
        // Requests go out, and replies are sent, before anything is named.
        if runtime.look() {
            runtime.yield_now().await;
        } else {
            later.show();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests that a sink was shown: the number, whether it was the end of the request, and
    /// the data.
    type Shown = Rc<RefCell<Vec<(u64, bool, Option<Vec<u8>>)>>>;

    #[derive(Default)]
    struct Seen(Shown);

    impl TapSink for Seen {
        fn issued(&self, r: &Issued<'_>) {
            self.0.borrow_mut().push((r.id, false, r.data.map(<[u8]>::to_vec)));
        }
        fn completed(&self, r: &Completed<'_>) {
            self.0.borrow_mut().push((r.id, true, r.data.map(<[u8]>::to_vec)));
        }
    }

    fn issued(id: u64, offset: u64, data: Option<&[u8]>) -> Issued<'_> {
        let op = if data.is_some() { Operation::Write } else { Operation::Read };
        let (len, flags) = (data.map_or(512, |data| data.len() as u64), WriteFlags::empty());
        let (shared, at, epoch) = (None, Time::from_nanos(id), 0);
        Issued { id, op, offset, len, flags, data, shared, at, epoch }
    }

    fn completed<'a>(r: &Issued<'a>, data: Option<&'a [u8]>) -> Completed<'a> {
        let Issued { id, op, offset, len, flags, at, epoch, .. } = *r;
        let (order, result) = (id, Ok(()));
        Completed { id, order, op, offset, len, flags, data, issued: at, at, epoch, result }
    }

    /// Writes are shown later, in order and with their data; all of them before an urgent write,
    /// before the data of a read, and before more waits than may. Would catch a request that is
    /// shown out of order, or with other data, and memory without bound.
    #[test]
    fn requests_are_shown_later_and_in_order() {
        let shown = Shown::default();
        let sink = Rc::new(Seen(shown.clone()));
        let later = ShownLater::new(sink, Rc::new(|r: &Issued<'_>| r.offset == 0));
        let numbers = || shown.borrow().iter().map(|(id, end, _)| (*id, *end)).collect::<Vec<_>>();
        let (first, second) = (issued(0, 4096, Some(&[1; 512])), issued(1, 8192, Some(&[2; 512])));
        later.issued(&first);
        later.issued(&second);
        later.completed(&completed(&second, None));
        assert_eq!(numbers(), []);
        assert!(later.show());
        assert_eq!(shown.borrow()[0], (0, false, Some(vec![1; 512])));
        later.issued(&issued(2, 0, Some(&[3; 512])));
        assert_eq!(numbers(), [(0, false), (1, false), (1, true), (2, false)]);
        let read = issued(3, 4096, None);
        later.issued(&read);
        assert_eq!(shown.borrow().len(), 4);
        later.completed(&completed(&read, Some(&[1; 512])));
        assert_eq!(numbers()[4..], [(3, false), (3, true)]);
        let long = vec![9; 1 << 20];
        (4..40).for_each(|id| later.issued(&issued(id, 4096, Some(&long))));
        assert!(later.bytes.get() <= WAITING_MAX && shown.borrow().len() > 6);
        later.show_all();
        assert_eq!((later.bytes.get(), numbers().last()), (0, Some(&(39, false))));
    }
}

//! One type for every device. Code above this crate is compiled once, and not once for each stack
//! of wrappers.
//!
//! An operation on a [`Device`] is ready or boxed. If a device answers at once
//! ([`BlockDevice::immediate`]), the operation's future lives on the stack, is polled once, and
//! allocates nothing. Any other device boxes its future, which costs little beside a request that
//! takes time.

use std::any::Any;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ordo_runtime::MaybeFuture;

use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, WriteFlags};

/// Any device. Clones are the same device.
///
/// ```
/// use ordo_block::{BlockDevice, Device, ram::RamDisk};
/// let devices: [Device; 2] = [RamDisk::new(4096).erase(), RamDisk::new(8192).erase()];
/// assert_eq!(devices.map(|device| device.geometry().bytes), [4096, 8192]);
/// ```
#[derive(Clone)]
pub struct Device(Rc<dyn Erased>);

impl Device {
    /// Erases the type of a shared device; a [`Device`] is not wrapped again.
    pub(crate) fn shared<D: BlockDevice>(device: Rc<D>) -> Device {
        match (&*device as &dyn Any).downcast_ref::<Device>() {
            Some(device) => device.clone(),
            None => Device(device),
        }
    }

    /// Each of `devices` as a [`Device`], in their order.
    pub fn of_each<D: BlockDevice + Clone>(devices: &[D]) -> Vec<Device> {
        devices.iter().map(|device| device.clone().erase()).collect()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.geometry()).finish()
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        self.0.what_geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.0.begin_read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.0.begin_write(offset, data, flags).await
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.0.begin_write_list(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.0.begin_flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.0.begin_discard(offset, len).await
    }

    fn immediate(&self) -> bool {
        self.0.is_immediate()
    }

    fn erase(self) -> Device {
        self
    }
}

/// An operation that has completed, or one to wait for.
type Begun<'d, T> = MaybeFuture<'d, Result<T, BlockError>>;

/// The operations of [`BlockDevice`], with types that are the same for every device.
trait Erased: 'static {
    fn what_geometry(&self) -> Geometry;
    fn is_immediate(&self) -> bool;
    fn begin_read(&self, offset: u64, len: usize) -> Begun<'_, IoBuf>;
    fn begin_write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Begun<'_, ()>;
    fn begin_write_list(&self, offset: u64, data: IoList, flags: WriteFlags) -> Begun<'_, ()>;
    fn begin_flush(&self) -> Begun<'_, ()>;
    fn begin_discard(&self, offset: u64, len: u64) -> Begun<'_, ()>;
}

impl<D: BlockDevice> Erased for D {
    fn what_geometry(&self) -> Geometry {
        self.geometry()
    }
    fn is_immediate(&self) -> bool {
        self.immediate()
    }
    fn begin_read(&self, offset: u64, len: usize) -> Begun<'_, IoBuf> {
        begin(self, self.read(offset, len))
    }
    fn begin_write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Begun<'_, ()> {
        begin(self, self.write(offset, data, flags))
    }
    fn begin_write_list(&self, offset: u64, data: IoList, flags: WriteFlags) -> Begun<'_, ()> {
        begin(self, self.write_list(offset, data, flags))
    }
    fn begin_flush(&self) -> Begun<'_, ()> {
        begin(self, self.flush())
    }
    fn begin_discard(&self, offset: u64, len: u64) -> Begun<'_, ()> {
        begin(self, self.discard(offset, len))
    }
}

/// Polls `operation` where `device` answers at once, and boxes it elsewhere.
fn begin<'d, D: BlockDevice, T>(
    device: &D,
    operation: impl Future<Output = Result<T, BlockError>> + 'd,
) -> Begun<'d, T> {
    if !device.immediate() {
        return Begun::boxed(operation);
    }
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Begun::ready(result),
        Poll::Pending => {
            let name = std::any::type_name::<D>();
            panic!("{name} says that it answers at once (BlockDevice::immediate), but waits")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ordo_runtime::{Duration, Executor, Runtime};

    use super::*;
    use crate::fault::{Faults, Faulty};
    use crate::model::{Model, Modeled};
    use crate::overlay::Overlay;
    use crate::partition::Partition;
    use crate::ram::RamDisk;
    use crate::read_around::ReadAround;
    use crate::snapshot::SnapshotDevice;
    use crate::tap::Tap;
    use crate::volatile::VolatileCache;

    /// A device that takes a millisecond for each operation, even if [`BlockDevice::immediate`] is
    /// true, and counts its operations.
    struct Late {
        runtime: Runtime,
        says_immediate: bool,
        begun: Cell<u32>,
        ram: RamDisk,
    }

    impl Late {
        fn new(runtime: &Runtime, says_immediate: bool) -> Rc<Late> {
            let (runtime, begun) = (runtime.clone(), Cell::new(0));
            Rc::new(Late { runtime, says_immediate, begun, ram: RamDisk::new(1 << 16) })
        }

        async fn wait(&self) {
            self.begun.set(self.begun.get() + 1);
            self.runtime.sleep(Duration::from_millis(1)).await;
        }
    }

    impl BlockDevice for Late {
        fn geometry(&self) -> Geometry {
            self.ram.geometry()
        }
        async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
            self.wait().await;
            self.ram.read(offset, len).await
        }
        async fn write(
            &self,
            offset: u64,
            data: IoBuf,
            flags: WriteFlags,
        ) -> Result<(), BlockError> {
            self.wait().await;
            self.ram.write(offset, data, flags).await
        }
        async fn flush(&self) -> Result<(), BlockError> {
            self.wait().await;
            self.ram.flush().await
        }
        async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
            self.wait().await;
            self.ram.discard(offset, len).await
        }
        fn immediate(&self) -> bool {
            self.says_immediate
        }
    }

    /// Every operation once.
    async fn use_it(device: &Device) {
        device.write(512, IoBuf::from_slice(&[7; 1024]), WriteFlags::empty()).await.unwrap();
        let mut list = IoList::with_capacity(2);
        list.push(IoBuf::from_slice(&[8; 512]).into());
        list.push(IoBuf::from_slice(&[9; 1024]).into());
        device.write_list(2048, list, WriteFlags::empty()).await.unwrap();
        device.flush().await.unwrap();
        assert_eq!(device.read(1024, 512).await.unwrap()[..], [7; 512]);
        let listed = device.read(2048, 1536).await.unwrap();
        assert!(listed[..512] == [8; 512] && listed[512..] == [9; 1024]);
        device.discard(0, 512).await.unwrap();
        assert!(device.read(1 << 20, 512).await.is_err());
    }

    /// Wrappers that never wait, over memory: each operation is ready and unboxed through every one
    /// of them. Over a device that waits, or with a disk model between, operations are boxed, and
    /// give the same results.
    #[test]
    fn operations_are_ready_or_boxed() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let late = Late::new(&rt, false);
        let stacks = |inner: Device| -> [Device; 8] {
            let snapshot = SnapshotDevice::new(inner.clone(), 1 << 20);
            [
                inner.clone(),
                Partition::new(inner.clone(), 512, 8192).erase(),
                Overlay::new(inner.clone()).erase(),
                Faulty::new(inner.clone(), &Faults::new()).erase(),
                ReadAround::new(inner.clone()).erase(),
                Tap::new(&rt, inner.clone()).erase(),
                VolatileCache::new(inner.clone()).erase(),
                snapshot.erase(),
            ]
        };
        let ready = stacks(RamDisk::new(1 << 16).erase());
        let boxed = stacks(late.clone().erase());
        let hdd = Model::by_name("viking").expect("in the catalogue");
        let slow = Modeled::new(&rt, hdd, RamDisk::new(1 << 16)).erase();
        for (device, is_ready) in ready
            .iter()
            .map(|device| (device, true))
            .chain(boxed.iter().map(|device| (device, false)))
            .chain([(&slow, false)])
        {
            assert_eq!(device.immediate(), is_ready);
            let began = device.0.begin_read(0, 512);
            assert_eq!(matches!(began.result(), Some(Ok(_))), is_ready);
            drop(began);
            let list = device.0.begin_write_list(0, IoList::default(), WriteFlags::empty());
            assert_eq!(matches!(list.result(), Some(Ok(()))), is_ready);
            drop(list);
            assert_eq!(matches!(device.0.begin_flush().result(), Some(Ok(()))), is_ready);
            executor.block_on(use_it(device)).unwrap();
        }
        assert!(late.begun.get() > 20 && rt.now().as_nanos() > 20_000_000);
    }

    /// A boxed operation that is dropped before it is polled never begins, as with any other
    /// future.
    #[test]
    fn nothing_begins_before_it_is_polled() {
        let executor = Executor::simulated(1);
        let late = Late::new(&executor.runtime(), false);
        let device = late.clone().erase();
        drop(device.flush());
        assert_eq!(late.begun.get(), 0);
        executor.block_on(device.flush()).unwrap().unwrap();
        assert_eq!(late.begun.get(), 1);
    }

    /// A device that is erased twice, or shared and erased, is the same device and not one around
    /// it.
    #[test]
    fn nothing_is_wrapped_twice() {
        let ram = Rc::new(RamDisk::new(4096));
        let inside: *const () = Rc::as_ptr(&ram).cast();
        let is_the_same = |device: &Device| Rc::as_ptr(&device.0).cast::<()>() == inside;
        let device = ram.clone().erase();
        assert!(is_the_same(&device));
        assert!(is_the_same(&device.clone().erase()));
        assert!(is_the_same(&Rc::new(device.clone()).erase()));
        assert!(Device::of_each(&[ram.clone(), ram.clone()]).iter().all(is_the_same));
    }

    #[test]
    #[should_panic(expected = "Late says that it answers at once")]
    fn a_device_that_claims_to_be_immediate_and_waits_is_caught() {
        let executor = Executor::simulated(1);
        let device = Late::new(&executor.runtime(), true).erase();
        drop(executor.block_on(device.flush()));
    }
}

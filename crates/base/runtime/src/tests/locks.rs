use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::sync::{Mutex, Notify, RwLock, Semaphore, oneshot};
use crate::{Executor, Schedule};

/// Polls a future once and leaves it in its state: queued, if it had to wait.
async fn poll_once<F: Future + Unpin>(f: &mut F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(pin!(&mut *f).poll(cx).is_ready())).await
}

/// Waiters get the mutex in the order in which they asked, under any schedule, and never two at
/// once.
#[test]
fn a_mutex_is_fair_and_exclusive() {
    for seed in 0..10 {
        let executor = Executor::simulated(seed);
        executor.set_schedule(Schedule::Seeded);
        let rt = executor.runtime();
        let lock = Rc::new(Mutex::new((), "lock", 0));
        let (asked, got) = (Rc::new(RefCell::new(vec![])), Rc::new(RefCell::new(vec![])));
        for i in 0..8 {
            let (lock, rt2) = (lock.clone(), rt.clone());
            let (asked, got) = (asked.clone(), got.clone());
            rt.spawn("locker", async move {
                asked.borrow_mut().push(i);
                let _held = lock.lock().await;
                got.borrow_mut().push(i);
                for _ in 0..3 {
                    rt2.yield_now().await;
                    assert!(lock.try_lock().is_none(), "two hold it");
                }
            });
        }
        executor.run_until_idle().unwrap();
        assert_eq!(asked.take(), got.take(), "seed {seed}");
    }
}

/// A waiter that is dropped while queued, and one that is dropped after its grant but before it
/// ran, must both leave the lock to the next waiter.
#[test]
fn a_dropped_waiter_does_not_keep_the_mutex() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let lock = Mutex::new(1, "lock", 0);
            let held = lock.lock().await;
            let mut queued = Box::pin(lock.lock());
            let mut granted = Box::pin(lock.lock());
            let mut last = Box::pin(lock.lock());
            assert!(!poll_once(&mut queued).await);
            assert!(!poll_once(&mut granted).await);
            assert!(!poll_once(&mut last).await);
            drop(queued);
            drop(held);
            assert!(lock.try_lock().is_none(), "a grant was overtaken");
            drop(granted);
            *last.await.get_mut() += 1;
            assert_eq!(*lock.try_lock().unwrap().get(), 2);
        })
        .unwrap();
}

/// A writer that is dropped must not keep back the readers that queued behind it.
#[test]
fn readers_behind_a_writer_that_gives_up_go_on() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let lock = RwLock::new("lock", 0);
            let reader = lock.read().await;
            let mut writer = Box::pin(lock.write());
            let mut second = Box::pin(lock.read());
            assert!(!poll_once(&mut writer).await);
            assert!(!poll_once(&mut second).await, "a reader overtook a waiting writer");
            assert!(lock.try_read().is_none());
            drop(writer);
            let both = second.await;
            assert!(lock.try_write().is_none());
            drop((reader, both));
            assert!(!lock.is_held());
            drop(lock.try_write().unwrap());
        })
        .unwrap();
}

/// Many readers share; a writer waits for all of them and then has it alone.
#[test]
fn a_writer_waits_for_every_reader() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let lock = RwLock::new("lock", 0);
            let readers = [lock.read().await, lock.read().await, lock.read().await];
            let mut writer = Box::pin(lock.write());
            for reader in readers {
                assert!(!poll_once(&mut writer).await);
                drop(reader);
            }
            let alone = writer.await;
            assert!(lock.try_read().is_none());
            drop(alone);
            assert!(lock.try_read().is_some());
        })
        .unwrap();
}

/// A large request is not overtaken by small ones for ever, and forgotten permits stay taken.
#[test]
fn a_semaphore_serves_in_order() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let semaphore = Semaphore::new(3, "slots", 0);
            let two = semaphore.acquire(2).await;
            let mut three = Box::pin(semaphore.acquire(3));
            assert!(!poll_once(&mut three).await);
            assert!(semaphore.try_acquire(1).is_none(), "a small request overtook a large one");
            drop(two);
            three.await.forget();
            assert_eq!(semaphore.available(), 0);
            semaphore.release(1);
            assert!(semaphore.try_acquire(1).is_some());
        })
        .unwrap();
}

/// One notification wakes one waiter, the first; if that one is dropped before it runs, the next is
/// woken.
#[test]
fn a_notification_is_not_lost_with_its_waiter() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let notify = Notify::new("change", 0);
            notify.notify_one();
            let mut first = Box::pin(notify.notified());
            let mut second = Box::pin(notify.notified());
            assert!(!poll_once(&mut first).await, "a notification without a waiter was kept");
            assert!(!poll_once(&mut second).await);
            notify.notify_one();
            drop(first);
            assert!(poll_once(&mut second).await);
            assert!(!notify.has_waiters());
        })
        .unwrap();
}

/// `notify_all` wakes the present waiters; a woken one that is dropped must not wake a later one.
#[test]
fn notify_all_wakes_only_those_that_wait() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let notify = Notify::new("change", 0);
            let mut first = Box::pin(notify.notified());
            let mut second = Box::pin(notify.notified());
            poll_once(&mut first).await;
            poll_once(&mut second).await;
            notify.notify_all();
            let mut late = Box::pin(notify.notified());
            poll_once(&mut late).await;
            drop(first);
            assert!(poll_once(&mut second).await);
            assert!(!poll_once(&mut late).await);
        })
        .unwrap();
}

/// The receiver learns of the value, and of a sender that was dropped without one.
#[test]
fn a_oneshot_ends_either_way() {
    let executor = Executor::simulated(1);
    executor
        .block_on(async {
            let (tx, mut rx) = oneshot::channel("an answer");
            assert!(!poll_once(&mut rx).await);
            tx.send(5);
            assert_eq!(rx.await, Some(5));
            let (tx, mut rx) = oneshot::channel::<u8>("an answer");
            assert!(!poll_once(&mut rx).await);
            drop(tx);
            assert_eq!(rx.await, None);
        })
        .unwrap();
}
